import GuardianModel

// What may stand next on a command line, for the shells: from the same tables of verbs and options that read the line, so that
// it cannot know other words. The shells' own scripts are short, and ask.

/// One word that may stand there.
package struct Candidate: Hashable, Sendable {
  package var word: String
  /// For shells that show it; may be empty.
  package var meaning: String
  package init(_ word: String, _ meaning: String = "") {
    self.word = word
    self.meaning = meaning
  }
}

/// What the last word of a line may become.
package struct Completion: Hashable, Sendable {
  /// What only guardian, or the disk, can tell.
  package enum Asked: Hashable, Sendable {
    case services, groups
    case plugins(of: String), repairs(of: String)
    case crashes
    /// Keys of the configuration.
    case keys
    case files, directories
  }
  package var words: [Candidate] = []
  package var asked: [Asked] = []
  /// In front of each word: `--service=`.
  package var prefix = ""
  /// What is there of the word, without `prefix`.
  package var begun = ""
  /// Which guardian is meant.
  package var target = Invocation.Target.automatic
  package var config: String?
  /// On the line already.
  package var given: [String] = []

  /// - Parameter line: All words behind `guardianctl`, the last one as far as it is written; it may be empty.
  package init(_ line: [String]) {
    read(line)
  }

  private mutating func read(_ line: [String]) {
    let last = line.last ?? ""
    var verb: Verb?
    var names: [String] = []
    var isExplained = false, onlyWords = false
    var pending: Option?
    for word in line.dropLast() {
      if let option = pending {
        pending = nil
        note(option, word)
      } else if onlyWords || !word.hasPrefix("-") || word == "-" {
        if verb != nil {
          names.append(word)
        } else if let known = Verb.named(word) {
          verb = known
        } else {
          return  // of an unknown verb nothing is known
        }
      } else if word == "--" {
        onlyWords = true
      } else {
        let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        guard let option = Option.named(String(parts[0])) else { continue }
        if option == .explain { isExplained = true }
        if parts.count > 1 {
          note(option, String(parts[1]))
        } else if option.value != nil {
          pending = option
        } else {
          note(option, "")
        }
      }
    }
    given = names
    begun = last
    // A pattern is the user's own, and no name begins with one.
    if last.utf8.contains(where: { $0 == UInt8(ascii: "*") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "[") }) {
      return
    }
    if let option = pending { return value(of: option, verb) }
    if last.hasPrefix("-"), !onlyWords {
      if let equals = last.firstIndex(of: "="), let option = Option.named(String(last[..<equals])),
        option.value != nil
      {
        prefix = last[...equals].description
        begun = String(last[last.index(after: equals)...])
        return value(of: option, verb)
      }
      for option in Option.allCases {
        guard let verbs = option.verbs else {
          words.append(Candidate(option.rawValue, option.summary))
          continue
        }
        if verb.map({ verbs.contains($0) }) ?? true { words.append(Candidate(option.rawValue, option.summary)) }
      }
      return
    }
    guard let verb else {
      words = Verb.allCases.map { Candidate($0.rawValue, $0.summary) }
      return
    }
    name(of: verb, names, isExplained)
  }

  private mutating func note(_ option: Option, _ value: String) {
    switch option {
    case .runtime: target = .directory(value)
    case .user: target = .user
    case .system: target = .system
    case .config: config = value
    default: break
    }
  }

  /// By the word that the help has for the value, so that new options need nothing here.
  private mutating func value(of option: Option, _ verb: Verb?) {
    switch option.value {
    case "DIR": asked = [.directories]
    case "PATH", "FILE": asked = [.files]
    case "NAME": asked = [option == .group ? .groups : .services]
    case "CAUSE":
      words = ["exit:1", "signal:SEGV", "signal:ABRT", "signal:KILL", "oom", "watchdog", "check", "exec"].map {
        Candidate($0)
      }
    case "TIME|STATE":
      if verb != .hold { words += WaitGoal.allCases.map { Candidate($0.rawValue) } }
      if verb != .wait { words += ["10min", "1h", "1d"].map { Candidate($0) } }
    case "TIME": words = ["10min", "1h", "1d"].map { Candidate($0) }
    default: break
    }
  }

  private mutating func name(of verb: Verb, _ names: [String], _ isExplained: Bool) {
    switch verb {
    case .plugins:
      switch names.count {
      case 0: asked = [.services]
      case 1: words = PluginOrder.words.map { Candidate($0, PluginOrder.meanings[$0] ?? "") }
      case 2 where names[1] != "search": asked = [.plugins(of: names[0])]
      default: break
      }
    case .safeMode:
      if names.isEmpty { asked = [.services] }
      if names.count == 1 { words = [Candidate("on", "start without plugins"), Candidate("off", "with them")] }
    case .repair:
      if names.isEmpty { asked = [.services] }
      if names.count == 1 { asked = [.repairs(of: names[0])] }
    case .crashes:
      switch names.first {
      case nil:
        words = [Candidate("list"), Candidate("show", "one report"), Candidate("export", "one report, as JSON")]
        asked = [.services]
      case "show", "export": if names.count == 1 { asked = [.crashes] }
      case "list": if names.count == 1 { asked = [.services] }
      default: break
      }
    case .check: asked = isExplained ? [.keys] : [.services, .files]
    case .completion: if names.isEmpty { words = CompletionShell.allCases.map { Candidate($0.rawValue) } }
    case .logs, .drill: if names.isEmpty { asked = [.services] }
    case .plan: asked = [.services]
    case .importing: asked = [.files]
    case .help: break
    default:
      if verb.names != .none { asked = [.services, .groups] }
    }
  }

  /// The words that fit what is there, each once: those known here, then `found`, which was asked for.
  package func answer(_ found: [Candidate]) -> [Candidate] {
    var seen: Set<String> = []
    return (words + found).filter { candidate in
      candidate.word.hasPrefix(begun) && isPlain(candidate.word) && !given.contains(candidate.word)
        && seen.insert(candidate.word).inserted
    }.map { Candidate(prefix + $0.word, $0.meaning) }
  }

  /// One line, and nothing that a shell would take for its own.
  private func isPlain(_ word: String) -> Bool {
    !word.isEmpty
      && word.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"):
          true
        default: "@._-+:=/[]%".utf8.contains(byte)
        }
      }
  }

  /// What the shells' scripts read: a line for each word, its meaning behind a tab; then `:files` or `:directories` where the
  /// shell's own are wanted too.
  package func lines(_ found: [Candidate]) -> String {
    var text = ""
    for candidate in answer(found) {
      text += candidate.word + (candidate.meaning.isEmpty ? "" : "\t" + printable(candidate.meaning)) + "\n"
    }
    if asked.contains(.files) { text += ":files\n" }
    if asked.contains(.directories) { text += ":directories\n" }
    return text
  }
}

package enum CompletionShell: String, CaseIterable, Sendable {
  case bash, zsh, fish

  /// To be installed where the shell looks, or read by `source`.
  package var script: String {
    switch self {
    case .bash:
      #"""
      # bash completion for guardianctl, by `guardianctl completion bash`. What may stand next guardianctl itself tells.
      _guardianctl() {
        local line=${COMP_LINE:0:COMP_POINT} piece=${2-} word= meaning kind= quote= begun= c file
        local -a words
        local -i at
        # The line as the program will see it: bash breaks words at '@', ':' and '=' too, and leaves the quotes.
        for ((at = 0; at < ${#line}; at++)); do
          c=${line:at:1}
          if [[ $c == \\ && $quote != \' ]]; then
            at+=1 begun=1 word+=${line:at:1}
          elif [[ -n $quote ]]; then
            if [[ $c == "$quote" ]]; then quote=; else word+=$c; fi
          elif [[ $c == [\'\"] ]]; then
            quote=$c begun=1
          elif [[ $c != [[:space:]] ]]; then
            begun=1 word+=$c
          elif [[ -n $begun ]]; then
            words+=("$word") word= begun=
          fi
        done
        words+=("$word")
        words=("${words[@]/#\~\//${HOME-}/}")
        local last=${words[${#words[@]}-1]}
        # What bash replaces it says itself: what is behind the last ':' or '=', or from the last '@' on, unless that is quoted.
        piece=${piece//[\'\"\\]/}
        COMPREPLY=()
        while IFS=$'\t' read -r word meaning; do
          case $word in
            :files) kind=-f ;;
            :directories) kind=-d ;;
            *) COMPREPLY+=("${word#"${last%"$piece"}"}") ;;
          esac
        done < <("${words[0]}" completion words "${words[@]:1}" 2>/dev/null)
        if [[ -n $kind ]]; then
          compopt -o filenames 2>/dev/null
          # The piece may be the end of a path: of '/srv/a@b/c' it is '@b/c'.
          file=$last
          [[ $file == --*=* ]] && file=${file#*=}
          [[ $piece == \~* ]] && file=$piece
          while IFS= read -r word; do COMPREPLY+=("${word#"${file%"$piece"}"}"); done < <(compgen $kind -- "$file")
        fi
        # An option that waits for its value, and nothing else, has no blank behind it.
        [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
        return 0
      }
      complete -F _guardianctl guardianctl

      """#
    case .zsh:
      #"""
      #compdef guardianctl
      # zsh completion for guardianctl, by `guardianctl completion zsh`. What may stand next guardianctl itself tells.
      _guardianctl() {
        local line kind=
        local -a found given=("${(@Q)words[1,CURRENT]}")
        given=("${(@)given/#\~\//${HOME-}/}")
        for line in "${(@f)$("${given[1]}" completion words "${(@)given[2,-1]}" 2>/dev/null)}"; do
          case $line in
            '') ;;
            :files) kind=files ;;
            :directories) kind=directories ;;
            *$'\t'*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            *) found+=("${line//:/\\:}") ;;
          esac
        done
        (( $#found )) && _describe 'word' found
        case $kind in
          files) _files ;;
          directories) _files -/ ;;
        esac
      }
      if [[ $funcstack[1] == _guardianctl ]]; then _guardianctl "$@"; else compdef _guardianctl guardianctl; fi

      """#
    case .fish:
      #"""
      # fish completion for guardianctl, by `guardianctl completion fish`. What may stand next guardianctl itself tells.
      function __guardianctl_words
        set -l words (commandline -opc) (commandline -ct)
        for line in ($words[1] completion words $words[2..-1] 2>/dev/null)
          switch $line
            case ':files'
              __fish_complete_path (commandline -ct)
            case ':directories'
              __fish_complete_directories (commandline -ct)
            case '*'
              echo $line
          end
        end
      end
      complete -c guardianctl -f -a '(__guardianctl_words)'

      """#
    }
  }
}
