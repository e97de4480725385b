import GuardianModel

/// The command line of `guardian`, taken apart.
package struct Options: Hashable, Sendable {
  package enum Mode: Hashable, Sendable {
    case run, check, version, help
    /// The keys of the configuration, or what these are.
    case explain
    /// A JSON Schema of one kind of file: `service`, `host`, `switches`.
    case schema(String)
    /// Prints what would happen to this service if it kept dying, from zero.
    case plan(String)
    /// Guardian's own repair, run as a hook.
    case moveAside(String)
    /// Likewise: puts back the files from the good copies in this directory.
    case restore(String, files: [String])
    /// Takes controllers out of force in the group that was delegated.
    case releaseControllers
    /// Run by a guardian that is to be upgraded, with a snapshot on standard input: could this program take over?
    case takeOverCheck
    /// Started by a guardian in its own place: the snapshot is in this descriptor.
    case takeOver(Int32)

    /// The options that have an effect with it.
    fileprivate var options: [String] {
      switch self {
      case .run: ["--config", "--state", "--runtime", "--logs"]
      // The command line is an older guardian's, which may have taken more: nothing that it took ends its services now.
      case .takeOverCheck: ["--config", "--state", "--runtime", "--logs", "--json"]
      case .takeOver: ["--config", "--state", "--runtime", "--logs", "--back", "--json"]
      case .check: ["--config", "--json"]
      case .explain: ["--json"]
      case .plan: ["--config", "--cause"]
      case .restore: ["--file"]
      case .version, .help, .schema, .moveAside, .releaseControllers: []
      }
    }
  }
  package var mode = Mode.run
  package var configuration: String?
  package var state: String?
  package var runtime: String?
  package var logs: String?
  /// With `--plan`: how it dies, one after the other and then again; none: as it last did, at once.
  package var causes: [String] = []
  /// With `--check` the files that are to be looked at, none: all of them; with `--explain` the keys.
  package var words: [String] = []
  /// With `--check` and `--explain`: one JSON object instead of lines.
  package var json = false
  /// With `takeOver`: this is the old program again, since the new one failed for this reason.
  package var back: String?

  package static let usage = """
    Usage: guardian [--config DIR] [--state DIR] [--runtime DIR] [--logs DIR]
           guardian [--config DIR] --check [--json] [FILE...]
           guardian --explain [--json] [KEY...]
           guardian [--config DIR] --plan NAME [--cause CAUSE[@TIME]]...
           guardian --schema service | host | switches
           guardian --release-controllers
           guardian --version | --help

    Supervises the services described in DIR/services/*.yaml, in the foreground.

      --config DIR    where guardian.yaml and services/ are
      --state DIR     what guardian must not forget
      --runtime DIR   the control socket and the notify sockets
      --logs DIR      log files
      --check         read the configuration, or these files, report every fault, and exit with 0 or 78
      --explain       say what a key of the configuration means; without one, which there are
      --plan NAME     print as JSON what would happen if service NAME kept dying
      --cause CAUSE[@TIME]
                      it dies so, so long after its start, as in signal:SEGV@2s; several: in turn
      --schema KIND   print the JSON Schema of the files of a kind, for editors
      --release-controllers
                      for ExecStopPost= of a unit, see guardian(8)
      --version       print the version
      --help          print this

    As root the directories are /etc/guardian, /var/lib/guardian, /run/guardian and /var/log/guardian, else those of the
    XDG specification. SIGHUP reads the configuration again; SIGTERM and SIGINT stop everything and then guardian.
    """

  package struct UsageFault: Error, Hashable, Sendable, CustomStringConvertible {
    package var description: String
  }

  private static let words = [
    "--config", "--state", "--runtime", "--logs", "--check", "--version", "--help", "--plan", "--json",
    "--release-controllers", "--explain", "--schema", "--cause",
  ]
  private static let schemas = ["service", "host", "switches"]
  /// Those that choose the mode; with none guardian runs.
  private static let choosing = [
    "--check", "--version", "--help", "-h", "--plan", "--release-controllers", "--explain", "--schema", "--move-aside",
    "--restore", "--take-over-check", "--take-over",
  ]
  /// Options of few modes, and which.
  private static let homes = [
    "--json": "--check or --explain", "--cause": "--plan", "--back": "--take-over", "--file": "--restore",
  ]

  /// The command line without what one image of guardian says to the next.
  package static func withoutTakeOver(_ arguments: [String]) -> [String] {
    var kept: [String] = []
    var rest = arguments[...]
    while let word = rest.popFirst() {
      if word == "--take-over" || word == "--back" {
        _ = rest.popFirst()
      } else if !word.hasPrefix("--take-over=") && !word.hasPrefix("--back=") {
        kept.append(word)
      }
    }
    return kept
  }

  /// - Parameter arguments: Without the program's name.
  package init(_ arguments: [String]) throws(UsageFault) {
    var rest = arguments[...]
    var modes: [String] = [], others: [String] = []
    while let word = rest.popFirst() {
      var (name, given) = (word, String?.none)
      if word.hasPrefix("--"), let equals = word.firstIndex(of: "=") {
        name = String(word[..<equals])
        given = String(word[word.index(after: equals)...])
      }
      func value(_ what: String) throws(UsageFault) -> String {
        guard let value = given ?? rest.popFirst(), !value.isEmpty else {
          throw UsageFault(description: "\(name) needs \(what)")
        }
        return value
      }
      func directory() throws(UsageFault) -> String {
        let path = try value("a directory")
        guard path.hasPrefix("/") else { return workingDirectory() + "/" + path }
        return path
      }
      switch name {
      case "--config": configuration = try directory()
      case "--state": state = try directory()
      case "--runtime": runtime = try directory()
      case "--logs": logs = try directory()
      case "--plan": mode = .plan(try value("a service's name"))
      case "--move-aside": mode = .moveAside(try value("a path"))
      case "--restore": mode = .restore(try directory(), files: [])
      case "--file":
        guard case .restore(let place, let files) = mode else {
          throw UsageFault(description: "--file goes with --restore")
        }
        mode = .restore(place, files: files + [try value("a path")])
      case "--release-controllers": mode = .releaseControllers
      case "--take-over-check": mode = .takeOverCheck
      case "--take-over":
        guard let number = Int32(try value("a descriptor")), number > 2 else {
          throw UsageFault(description: "--take-over needs a descriptor")
        }
        mode = .takeOver(number)
      case "--back": back = try value("a reason")
      case "--check": mode = .check
      case "--explain": mode = .explain
      case "--schema":
        let kind = try value("a kind of file")
        guard Self.schemas.contains(kind) else {
          let near = nearest(to: kind, in: Self.schemas).map { "; did you mean '\($0)'?" } ?? ""
          throw UsageFault(description: "--schema '\(kind)' is none of service, host, switches" + near)
        }
        mode = .schema(kind)
      case "--cause": causes.append(try value("a cause"))
      case "--":
        words += rest
        rest = []
      case "--json": json = true
      case "--version": mode = .version
      case "--help", "-h": mode = .help
      default:
        if word.hasPrefix("-") {
          let near = nearest(to: name, in: Self.words)
          throw UsageFault(description: "unknown option '\(name)'" + (near.map { "; did you mean '\($0)'?" } ?? ""))
        }
        words.append(word)
      }
      if [
        "--check", "--version", "--help", "-h", "--json", "--take-over-check", "--release-controllers", "--explain",
        "--schema",
      ]
      .contains(
        name), given != nil
      {
        throw UsageFault(description: "\(name) takes no value")
      }
      if Self.choosing.contains(name) {
        modes.append(name)
      } else if word.hasPrefix("-"), word != "--" {
        others.append(name)
      }
    }
    if modes.count > 1 { throw UsageFault(description: "\(modes[0]) and \(modes[1]) do not go together") }
    for name in others where !mode.options.contains(name) {
      throw UsageFault(
        description: Self.homes[name].map { "\(name) goes with \($0)" }
          ?? "\(name) does nothing with \(modes.first ?? "a guardian that runs")")
    }
    if let word = words.first, mode != .check, mode != .explain {
      throw UsageFault(
        description: "unexpected argument '\(word)'; services are named in the configuration directory")
    }
  }
}

/// The word that takes the fewest single-character edits, if they are few enough for a slip of the finger.
func nearest(to word: String, in words: [String]) -> String? {
  let scored = words.map { (editDistance(word, $0), $0) }
  guard let best = scored.min(by: { $0.0 < $1.0 }), best.0 <= max(2, word.count / 4) else { return nil }
  return best.1
}

private func editDistance(_ a: String, _ b: String) -> Int {
  let (a, b) = (Array(a.utf8.prefix(64)), Array(b.utf8.prefix(64)))
  var row = Array(0...b.count)
  for i in a.indices {
    var diagonal = row[0]
    row[0] = i + 1
    for j in b.indices {
      let replaced = diagonal + (a[i] == b[j] ? 0 : 1)
      diagonal = row[j + 1]
      row[j + 1] = min(replaced, row[j] + 1, row[j + 1] + 1)
    }
  }
  return row[b.count]
}
