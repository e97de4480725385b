/// A service directory of runit (or of s6, whose files it shares in part).
package struct RunitSource: Hashable, Sendable {
  /// Its absolute path.
  package var directory: String
  /// What is in it, by paths relative to it, `log/run` and `env/PORT` among them; without `supervise`.
  package var files: [ImportedFile]
  /// Services that are there, or will be.
  package var services: Set<String>

  package init(directory: String, files: [ImportedFile], services: Set<String> = []) {
    self.directory = directory
    self.files = files
    self.services = services
  }

  package var name: String { serviceName(directory.split(separator: "/").last.map(String.init) ?? "service") }

  package var imported: Imported {
    var work = RunitImport(self)
    var result = Imported()
    if let service = work.service() { result.services = [service] } else { result.remarks = work.draft.remarks }
    return result
  }
}

private struct RunitImport {
  private let source: RunitSource
  var draft: Draft

  init(_ source: RunitSource) {
    self.source = source
    draft = Draft(source: source.directory)
  }

  private func path(_ name: String) -> String { source.directory + "/" + name }
  private func file(_ name: String) -> ImportedFile? { source.files.first { $0.name == name } }
  private func first(_ file: ImportedFile) -> String { (file.text.lines.first ?? "").trimmed }

  mutating func service() -> ImportedService? {
    guard let run = file("run") else {
      draft.remark(.lost, path("run"), "there is no such file, which is the program of a service")
      return nil
    }
    // runsv waits a second, and sv seven.
    draft.set("backoff", "first", .plain("1s"))
    draft.set("stop", "timeout", .plain("7s"))
    draft["directory"] = .text(source.directory)
    if !plain(run) { whole(run) }
    for file in source.files where file.name != "run" { other(file) }
    return draft.service(named: source.name)
  }

  // MARK: run

  private struct Line {
    var place: Place, words: [String]
  }

  /// Lines of a shell script that do nothing but prepare and execute; nil for anything else.
  private func lines(_ run: ImportedFile) -> [Line]? {
    var found: [Line] = []
    var text = run.text.lines
    guard let head = text.first, head.hasPrefix("#!") else { return nil }
    let interpreter = head.dropFirst(2).split(separator: " ").first?.split(separator: "/").last ?? ""
    let shells = ["sh", "bash", "dash", "ash", "env"]
    guard shells.contains(String(interpreter)) else { return nil }
    text[0] = ""
    var pending = "", start = 0
    for (index, line) in text.enumerated() {
      if pending.isEmpty { start = index + 1 }
      if line.hasSuffix("\\") {
        pending += line.dropLast() + " "
        continue
      }
      let whole = (pending + line).trimmed
      pending = ""
      if whole.isEmpty || whole.hasPrefix("#") { continue }
      var bare = whole
      // Where both streams go, a descriptor is not said again.
      for tail in ["2>&1"] where bare.hasSuffix(" " + tail) { bare = String(bare.dropLast(tail.count + 1)).trimmed }
      // What only a shell can do, or only a file that is not of text can say.
      guard !bare.hasBrokenBytes, !bare.contains(where: { "$`|&;<>(){}*?~#!".contains($0) }),
        let words = Words.shell(bare), !words.isEmpty
      else {
        return nil
      }
      found.append(Line(place: Place(file: path("run"), line: start, what: whole), words: words))
    }
    return pending.isEmpty ? found : nil
  }

  /// Whether all of the script could be put into keys.
  private mutating func plain(_ run: ImportedFile) -> Bool {
    guard let lines = lines(run), let last = lines.last, last.words.first == "exec", last.words.count > 1 else {
      return false
    }
    var attempt = draft
    attempt.carry(Place(file: path("run"), line: 1, what: run.text.lines.first ?? ""), to: "command")
    for line in lines.dropLast() {
      let words = line.words
      switch (words[0], words.count) {
      case ("exec", 1): attempt.carry(line.place, to: "log")
      case ("set", 2) where words[1] == "-e" || words[1] == "-u" || words[1] == "-eu":
        attempt.remark(.needless, line.place, "there is no script")
      case ("cd", 2) where words[1].hasPrefix("/"):
        attempt["directory"] = .text(words[1])
        attempt.carry(line.place, to: "directory")
      case ("umask", 2) where words[1].utf8.allSatisfy({ (0x30...0x37).contains($0) }) && words[1].utf8.count <= 4:
        attempt["umask"] = .quoted(String(repeating: "0", count: 4 - words[1].utf8.count) + words[1])
        attempt.carry(line.place, to: "umask")
      case ("export", 2) where assignment(words[1]) != nil:
        if let (name, value) = assignment(words[1]) { attempt.set("environment", name, .text(value)) }
        attempt.carry(line.place, to: "environment")
      case ("ulimit", 3) where words[1] == "-n" && (Int(words[2]) ?? 0) >= 16:
        attempt.set("limits", "open-files", .plain(words[2]))
        attempt.carry(line.place, to: "limits.open-files")
      case ("ulimit", 3) where words[1] == "-c" && (words[2] == "0" || words[2] == "unlimited"):
        attempt.set("limits", "core", .plain(words[2]))
        attempt.carry(line.place, to: "limits.core")
      default: return false
      }
    }
    guard let problem = execute(Array(last.words.dropFirst()), last.place, &attempt) else {
      draft = attempt
      return true
    }
    _ = problem
    return false
  }

  private func assignment(_ word: String) -> (String, String)? {
    guard let equals = word.firstIndex(of: "="), equals != word.startIndex else { return nil }
    let name = String(word[..<equals])
    guard !ReservedVariables.names.contains(name) else { return nil }
    return (name, String(word[word.index(after: equals)...]))
  }

  /// Takes chpst and its like off the front of a command.
  ///
  /// - Returns: Why it could not be; nil: done.
  private func execute(_ words: [String], _ place: Place, _ draft: inout Draft) -> String? {
    var rest = words[...]
    while let program = rest.first {
      switch program.split(separator: "/").last.map(String.init) ?? program {
      case "chpst":
        rest.removeFirst()
        while let option = rest.first, option.hasPrefix("-"), option != "-", option.utf8.count >= 2 {
          rest.removeFirst()
          if option == "--" { break }
          let letter = option.dropFirst().first ?? "-"
          if "vP012".contains(letter), option.count == 2 {
            if letter == "P" { draft.remark(.needless, place, "-P: each run is a process group of its own") }
            continue
          }
          let joined = String(option.dropFirst(2))
          guard let value = joined.isEmpty ? rest.popFirst() : joined else { return "\(option) has no value" }
          if let problem = self.option(letter, value, place, &draft) { return problem }
        }
      case "softlimit":
        rest.removeFirst()
        while let option = rest.first, option.hasPrefix("-"), option.utf8.count >= 2 {
          rest.removeFirst()
          let letter = option.dropFirst().first ?? "-", joined = String(option.dropFirst(2))
          guard let value = joined.isEmpty ? rest.popFirst() : joined else { return "\(option) has no value" }
          if let problem = self.option(letter, value, place, &draft) { return problem }
        }
      case "setuidgid", "s6-setuidgid":
        rest.removeFirst()
        guard let user = rest.popFirst(), let problem = option("u", user, place, &draft) else { continue }
        return problem
      case "envdir", "s6-envdir":
        rest.removeFirst()
        guard let directory = rest.popFirst(), let problem = option("e", directory, place, &draft) else { continue }
        return problem
      case "pgrphack", "setsid": rest.removeFirst()
      case "nice" where rest.count > 3 && rest[rest.startIndex + 1] == "-n":
        let value = rest[rest.startIndex + 2]
        rest.removeFirst(3)
        if let problem = option("n", value, place, &draft) { return problem }
      case "env":
        rest.removeFirst()
        while let word = rest.first, let (name, value) = assignment(word) {
          draft.set("environment", name, .text(value))
          rest.removeFirst()
        }
        if rest.first?.hasPrefix("-") == true { return "env has options" }
      default:
        guard program.hasPrefix("/") || program.hasPrefix("./") else { return "\(program) is no path" }
        let path = program.hasPrefix("./") ? self.path(String(program.dropFirst(2))) : program
        draft["command"] = .words([path] + rest.dropFirst())
        draft.carry(place, to: "command")
        return nil
      }
    }
    return "there is no program"
  }

  /// One of chpst's options.
  private func option(_ letter: Character, _ value: String, _ place: Place, _ draft: inout Draft) -> String? {
    func limit(_ name: String) -> String? {
      guard let bytes = UInt64(value), name != "open-files" || bytes >= 16 else { return "-\(letter) \(value)" }
      draft.set(
        "limits", name, .plain(["open-files", "processes"].contains(name) ? "\(bytes)" : UnitValues.sizeText(bytes)))
      return nil
    }
    switch letter {
    case "u":
      let parts = value.split(separator: ":").map(String.init)
      guard let user = parts.first, parts.count <= 2, !value.hasPrefix(":") else { return "-u \(value)" }
      draft["user"] = .text(user)
      if parts.count == 2 { draft["group"] = .text(parts[1]) }
      return nil
    case "C":
      guard value.hasPrefix("/") else { return "-C \(value)" }
      draft["directory"] = .text(value)
      return nil
    case "n":
      guard let nice = Int(value), (-20...19).contains(nice) else { return "-n \(value)" }
      draft["nice"] = .plain("\(nice)")
      return nil
    case "e":
      let bare = value.hasPrefix("./") ? String(value.dropFirst(2)) : value
      let own = bare.hasPrefix(source.directory + "/") ? String(bare.dropFirst(source.directory.utf8.count + 1)) : bare
      let clean = own.hasSuffix("/") ? String(own.dropLast()) : own
      // Another one's variables are not seen here.
      return clean.contains("/") ? "-e \(value)" : nil
    case "o": return limit("open-files")
    case "p": return limit("processes")
    case "f": return limit("file-size")
    case "c": return limit("core")
    case "d": return limit("data")
    case "s": return limit("stack")
    case "l" where value.isNumber: return limit("locked-memory")
    case "a": return limit("address-space")
    case "m": return limit("data") ?? limit("stack") ?? limit("locked-memory") ?? limit("address-space")
    case "t":
      guard let seconds = UInt64(value), seconds > 0 else { return "-t \(value)" }
      draft.set("limits", "cpu-time", .plain("\(seconds)s"))
      return nil
    default: return "-\(letter)"
    }
  }

  /// The script itself is the service.
  private mutating func whole(_ run: ImportedFile) {
    draft["command"] = .words([path("run")])
    for (index, line) in run.text.lines.enumerated() where !line.trimmed.isEmpty {
      let place = Place(file: path("run"), line: index + 1, what: line.trimmed)
      let bare = line.trimmed
      if bare.hasPrefix("#"), index > 0 { continue }
      draft.carry(place, to: "command")
    }
    draft.remark(
      .changed, path("run"),
      "the script itself is the command, since it does what only a shell can; its last line has to be an exec")
  }

  // MARK: What else there is

  private mutating func other(_ file: ImportedFile) {
    let place = Place(file: path(file.name), line: 1, what: file.name)
    let parts = file.name.split(separator: "/").map(String.init)
    switch parts.first ?? "" {
    case "env", "environment":
      guard parts.count == 2 else { return }
      variable(parts[1], file, place)
    case "down":
      draft["start"] = .plain("manual")
      draft.carry(place, to: "start")
    case "check":
      draft["checks"] = .list([.map([("name", .text("check")), ("exec", .words([path("check")]))])])
      draft["ready"] = .plain("check")
      draft.remark(
        .changed, place,
        "it says when the service is ready, and from then on every 10s whether it is well: three bad looks in a row end the run"
      )
    case "finish":
      draft.remark(
        .lost, place,
        "guardian runs nothing after an end: what cleans up can be 'before-start', and 'notices: {on-crash: …}' tells of one"
      )
    case "log" where file.name == "log/run":
      draft["log"] = .plain("file")
      draft.remark(
        .changed, place, "'log: file' writes to NAME/current below 'logs.directory' of guardian.yaml, and rotates it")
    case "log":
      if parts.contains("supervise") || parts.contains("main") { return }
      draft.remark(.lost, place, "'logs' of guardian.yaml has 'rotate', 'age', 'keep' and 'compress'")
    case "control":
      draft.remark(.lost, place, "guardian sends signals: 'stop' and 'reload' say which; 'reload' may be a command")
    case "conf":
      draft.remark(.needless, place, "it is read by the script")
    case "notification-fd":
      if let number = Int(first(file)), (3...1023).contains(number) {
        draft["ready"] = .map([("fd", .plain("\(number)"))])
        draft.carry(place, to: "ready.fd")
      } else {
        draft.remark(.lost, place, "it is no descriptor from 3 to 1023")
      }
    case "down-signal":
      if let signal = UnitValues.signal(first(file)), !UnitValues.endsNothing.contains(signal) {
        draft.set("stop", "signal", .plain(signal))
        draft.carry(place, to: "stop.signal")
      } else {
        draft.remark(.lost, place, "guardian stops by a signal that ends a process")
      }
    case "timeout-kill":
      if let ms = Int64(first(file)), ms > 0, ms < 86_400_000 * 365 {
        draft.set("stop", "timeout", .plain(UnitValues.duration(ms)))
        draft.carry(place, to: "stop.timeout")
      } else {
        draft.remark(.changed, place, "guardian kills what does not end; 7s is written")
      }
    case "timeout-up":
      if let ms = Int64(first(file)), ms > 0, ms < 86_400_000 * 365, file.name == "timeout-up",
        self.file("notification-fd") != nil
      {
        draft["start-timeout"] = .plain(UnitValues.duration(ms))
        draft.carry(place, to: "start-timeout")
      } else {
        draft.remark(.needless, place, "it is ready at once")
      }
    case "timeout-finish": draft.remark(.needless, place, "there is no 'finish'")
    case "max-death-tally":
      draft.remark(.changed, place, "the ladder takes its place: 'escalation' has the strikes")
    case "dependencies", "dependencies.d":
      dependency(parts.count == 2 ? [parts[1]] : file.text.lines.map(\.trimmed), place)
    case "type":
      if first(file) == "oneshot" { draft["type"] = .plain("task") }
      draft.carry(place, to: "type")
    case "supervise", "event": return
    default: draft.remark(.needless, place, "it is the service's own, and stays where it is")
    }
  }

  private mutating func variable(_ name: String, _ file: ImportedFile, _ place: Place) {
    // The first line, without blanks at its end; a NUL stands for a line's end.
    let bytes = file.text.utf8.prefix { $0 != UInt8(ascii: "\n") }
    if file.text.isEmpty {
      draft.remark(.needless, place, "guardian gives it no variable of this name that would have to go")
      return
    }
    guard !ReservedVariables.names.contains(name), !name.contains("="), !name.contains(" ") else {
      draft.remark(.lost, place, "guardian sets it itself, or it is no name of a variable")
      return
    }
    var value = String(decoding: bytes.map { $0 == 0 ? UInt8(ascii: "\n") : $0 }, as: UTF8.self)
    while value.last == " " || value.last == "\t" || value.last == "\r" { value.removeLast() }
    guard !value.hasBrokenBytes else { return draft.remark(.lost, place, brokenBytes) }
    draft.set("environment", name, .text(value))
    draft.carry(place, to: "environment")
    if file.text.lines.dropFirst().contains(where: { !$0.isEmpty }) {
      draft.remark(.changed, place, "only its first line is the value")
    }
  }

  private mutating func dependency(_ names: [String], _ place: Place) {
    for name in names where !name.isEmpty {
      if source.services.contains(serviceName(name)) {
        draft.append("requires", .text(serviceName(name)))
        draft.carry(place, to: "requires")
      } else {
        draft.remark(.lost, place, "guardian has no service \(brief(name)) yet; when it has, name it in 'requires'")
      }
    }
  }
}
