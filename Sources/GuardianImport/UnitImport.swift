import GuardianModel

/// A service unit of systemd, with its drop-ins.
package struct UnitSource: Hashable, Sendable {
  /// As systemd calls it, with the instance of a template: `web@blue.service`.
  package var unit: String
  /// The unit's own file, then its drop-ins in the order of their names.
  package var files: [ImportedFile]
  /// The host's name, for %H; empty: unknown.
  package var host: String
  /// Services that are there, or will be: only these can be named by `after` and `requires`.
  package var services: Set<String>
  package init(unit: String, files: [ImportedFile], host: String = "", services: Set<String> = []) {
    self.unit = unit
    self.files = files
    self.host = host
    self.services = services
  }

  package var imported: Imported {
    var work = UnitImport(self)
    var result = Imported()
    if let service = work.service() { result.services = [service] } else { result.remarks = work.draft.remarks }
    return result
  }

  /// How the service will be called.
  package var name: String {
    serviceName(unit.hasSuffix(".service") ? String(unit.dropLast(".service".utf8.count)) : unit)
  }
}

private struct UnitImport {
  private typealias Assignment = UnitFile.Assignment
  var draft: Draft
  private let source: UnitSource
  private let specifiers: Specifiers
  private let file: UnitFile
  /// Indices of assignments that have been dealt with.
  private var done: Set<Int> = []
  private var environment: [(name: String, value: String)] = []
  private var hasFiles = false
  private var isTask = false

  init(_ source: UnitSource) {
    self.source = source
    draft = Draft(source: source.files.first?.name ?? source.unit)
    specifiers = Specifiers(unit: source.unit, host: source.host)
    file = UnitFile(source.files)
  }

  /// Nil: there is no command, and a remark says so.
  mutating func service() -> ImportedService? {
    for fault in file.faults { draft.remark(.lost, fault.place, fault.why) }
    description()
    environmentKeys()
    type()
    identity()
    directories()
    limits()
    let canStart = start()
    beforeStart()
    reload()
    stop()
    restart()
    exits()
    output()
    neighbours()
    rest()
    if !canStart {
      draft.remark(.lost, "the unit", "there is no ExecStart= that guardian could run")
      return nil
    }
    return draft.service(named: source.name)
  }

  // MARK: Reading

  /// All that is in force of a key that may be there several times; what an empty assignment has cleared is told.
  private mutating func all(_ section: String, _ key: String) -> [Assignment] {
    var found: [Assignment] = []
    for (index, assignment) in file.assignments.enumerated()
    where assignment.section == section && assignment.key == key {
      done.insert(index)
      if assignment.value.isEmpty {
        for old in found {
          draft.remark(.needless, old.place, "it is cleared at \(assignment.place.file):\(assignment.place.line)")
        }
        draft.remark(
          .needless, assignment.place, found.isEmpty ? "there is nothing to clear" : "what it clears is left out")
        found = []
      } else {
        found.append(assignment)
      }
    }
    return found
  }

  /// The one that is in force of a key of which the last one counts.
  private mutating func last(_ section: String, _ key: String) -> Assignment? {
    var found: Assignment?
    for (index, assignment) in file.assignments.enumerated()
    where assignment.section == section && assignment.key == key {
      done.insert(index)
      if let old = found {
        draft.remark(.needless, old.place, "\(assignment.place.file):\(assignment.place.line) says otherwise")
      }
      if assignment.value.isEmpty {
        draft.remark(.needless, assignment.place, "it is empty")
        found = nil
      } else {
        found = assignment
      }
    }
    return found
  }

  /// With its specifiers; nil, and a remark, where one is not known, or nothing is left of it.
  private mutating func text(_ assignment: Assignment) -> String? {
    let (text, unknown) = specifiers.expand(assignment.value)
    guard let text else {
      draft.remark(.lost, assignment.place, "\(unknown) is not known here")
      return nil
    }
    if text.trimmed.isEmpty {
      draft.remark(.lost, assignment.place, "it is empty, since \(source.unit) is no instance of a template")
      return nil
    }
    return text
  }

  private mutating func words(_ assignment: Assignment) -> [String]? {
    guard let text = text(assignment) else { return nil }
    do throws(UnitFault) {
      return try Words.systemd(text)
    } catch {
      draft.remark(.lost, assignment.place, error.why)
      return nil
    }
  }

  private mutating func commands(_ key: String) -> [(command: UnitCommand, place: Place)] {
    var found: [(command: UnitCommand, place: Place)] = []
    for assignment in all("Service", key) {
      do throws(UnitFault) {
        for command in try UnitCommand.parse(assignment.value, specifiers) {
          if command.words.first?.hasPrefix("/") == true {
            found.append((command, assignment.place))
          } else {
            draft.remark(.lost, assignment.place, "guardian looks along no PATH: write the program's absolute path")
          }
        }
      } catch {
        draft.remark(.lost, assignment.place, error.why)
      }
    }
    return found
  }

  private var hasUser: Bool { draft["user"] != nil && draft["user"] != .text("root") }

  // MARK: What it is

  private mutating func description() {
    if let found = last("Unit", "Description"), let text = text(found) {
      let line = String(
        String.UnicodeScalarView(
          text.unicodeScalars.map {
            $0.value < 0x20 || (0x7f...0x9f).contains($0.value) || (0x2028...0x2029).contains($0.value) ? " " : $0
          }))
      draft["description"] = .text(String(decoding: Array(line.utf8.prefix(1000)), as: UTF8.self))
      draft.carry(found.place, to: "description")
    }
  }

  private mutating func environmentKeys() {
    let files = all("Service", "EnvironmentFile")
    for assignment in files {
      guard let path = text(assignment) else { continue }
      let bare = path.hasPrefix("-") ? String(path.dropFirst()) : path
      if bare.contains(where: { "*?[".contains($0) }) {
        draft.remark(.lost, assignment.place, "guardian expands no patterns; name the files")
      } else if bare.hasPrefix("/") {
        draft.append("environment-file", .text(path))
        draft.carry(assignment.place, to: "environment-file")
        hasFiles = true
      } else {
        draft.remark(.lost, assignment.place, "the path is not absolute")
      }
    }
    for assignment in all("Service", "Environment") {
      guard let words = words(assignment) else { continue }
      var refused: [String] = []
      for word in words {
        guard let equals = word.firstIndex(of: "="), equals != word.startIndex else {
          refused.append(word)
          continue
        }
        let name = String(word[..<equals]), value = String(word[word.index(after: equals)...])
        if ReservedVariables.names.contains(name) || name.utf8.contains(where: { $0 <= 0x20 || $0 == 0x7f }) {
          refused.append(name)
          continue
        }
        if let index = environment.firstIndex(where: { $0.name == name }) {
          environment[index].value = value
        } else {
          environment.append((name, value))
        }
      }
      if !refused.isEmpty {
        draft.remark(
          .lost, assignment.place, "\(refused.joined(separator: ", ")): guardian sets it itself, or it is no variable")
      } else if hasFiles {
        draft.remark(
          .changed, assignment.place, "here 'environment' wins over 'environment-file'; with systemd the file does")
      } else {
        draft.carry(assignment.place, to: "environment")
      }
    }
  }

  private mutating func type() {
    let found = last("Service", "Type")
    let remain = last("Service", "RemainAfterExit")
    if let remain {
      if found?.value == "oneshot" {
        draft.remark(.needless, remain.place, "a task that has ended well stays so")
      } else if UnitValues.truth(remain.value) == true {
        draft.remark(.lost, remain.place, "a service whose main process has ended does not count as running")
      } else {
        draft.remark(.needless, remain.place, "it is off anyway")
      }
    }
    guard let found else { return }
    switch found.value {
    case "simple", "exec", "idle":
      draft.carry(found.place, to: "ready")
      if found.value == "idle" {
        draft.remark(.changed, found.place, "guardian does not wait until all else has started")
      }
    case "notify":
      draft["ready"] = .plain("notify")
      draft.carry(found.place, to: "ready")
    case "notify-reload":
      draft["ready"] = .plain("notify")
      draft["reload"] = .plain("HUP")
      draft.carry(found.place, to: "ready, reload")
    case "oneshot":
      draft["type"] = .plain("task")
      isTask = true
      draft.carry(found.place, to: "type")
    case "dbus":
      draft.remark(
        .changed, found.place,
        "guardian does not look at the bus, and takes it for ready at once; a check can say when it is")
    case "forking": break  // told with the command
    default: draft.remark(.lost, found.place, "guardian has daemons and tasks")
    }
  }

  private mutating func identity() {
    for (key, name) in [("User", "user"), ("Group", "group")] {
      guard let found = last("Service", key), let text = text(found) else { continue }
      draft[name] = .text(text)
      draft.carry(found.place, to: name)
    }
    let capabilities = all("Service", "AmbientCapabilities")
    for assignment in capabilities {
      guard draft["user"] != nil, draft["user"] != .text("root") else {
        draft.remark(.needless, assignment.place, "it runs as root, who has them all")
        continue
      }
      if assignment.value.hasPrefix("~") {
        draft.remark(.lost, assignment.place, "guardian takes a list of what is kept, not of what is not")
        continue
      }
      var unknown: [String] = []
      for word in assignment.value.split(separator: " ") {
        let lower = word.lowercased()
        let bare = (lower.hasPrefix("cap_") ? String(lower.dropFirst(4)) : lower).split(separator: "_").joined(
          separator: "-")
        if Capability(name: bare) != nil {
          draft.append("capabilities", .text(bare))
        } else {
          unknown.append(String(word))
        }
      }
      if unknown.isEmpty {
        draft.carry(assignment.place, to: "capabilities")
      } else {
        draft.remark(.lost, assignment.place, "no capability \(unknown.joined(separator: ", "))")
      }
    }
    if let found = last("Service", "UMask") {
      let digits = found.value.drop { $0 == "0" }
      if digits.utf8.count <= 3, digits.utf8.allSatisfy({ (0x30...0x37).contains($0) }) {
        draft["umask"] = .quoted(String(repeating: "0", count: 4 - digits.utf8.count) + digits)
        draft.carry(found.place, to: "umask")
      } else {
        draft.remark(.lost, found.place, "it is not octal")
      }
    }
    number("OOMScoreAdjust", -1000...1000, to: "oom-score-adjust")
    number("Nice", -20...19, to: "nice")
  }

  private mutating func number(_ key: String, _ range: ClosedRange<Int>, to name: String) {
    guard let found = last("Service", key) else { return }
    if let value = Int(found.value), range.contains(value) {
      draft[name] = .plain("\(value)")
      draft.carry(found.place, to: name)
    } else {
      draft.remark(.lost, found.place, "it is no number from \(range.lowerBound) to \(range.upperBound)")
    }
  }

  /// Directories that systemd makes. As root guardian can have them made before the start.
  private var made: [String] = []

  private mutating func directories() {
    if let found = last("Service", "WorkingDirectory"), let path = text(found) {
      let bare = path.hasPrefix("-") ? String(path.dropFirst()) : path
      if bare == "~" {
        draft.remark(.lost, found.place, "write the user's home into 'directory'")
      } else if bare.hasPrefix("/") {
        draft["directory"] = .text(bare)
        draft.carry(found.place, to: "directory")
        if path != bare { draft.remark(.changed, found.place, "without the directory it does not start") }
      } else {
        draft.remark(.lost, found.place, "the path is not absolute")
      }
    }
    let asRoot = draft["user"] == nil || draft["user"] == .text("root")
    for (key, parent, variable) in [
      ("RuntimeDirectory", "/run", "RUNTIME_DIRECTORY"), ("StateDirectory", "/var/lib", "STATE_DIRECTORY"),
      ("CacheDirectory", "/var/cache", "CACHE_DIRECTORY"), ("LogsDirectory", "/var/log", "LOGS_DIRECTORY"),
      ("ConfigurationDirectory", "/etc", "CONFIGURATION_DIRECTORY"),
    ] {
      let mode = last("Service", key + "Mode"), preserve = last("Service", key + "Preserve")
      let lists = all("Service", key)
      var paths: [String] = []
      for assignment in lists {
        guard let words = words(assignment) else { continue }
        let here = words.map { parent + "/" + ($0.split(separator: ":").first.map(String.init) ?? $0) }
        paths += here
        let octal = mode?.value ?? "0755"
        if asRoot {
          made += here.map { "/bin/mkdir -p -m \(Words.quoted(octal)) \(Words.quoted($0))" }
          draft.carry(assignment.place, to: "before-start")
        } else {
          let owner = [draft["user"], draft["group"] ?? draft["user"]].map { $0?.flow ?? "root" }.joined(separator: " ")
          let lines = here.map { "d \($0) \(octal) \(owner)" }.joined(separator: ", ")
          draft.remark(
            .lost, assignment.place, "guardian makes no directories; a line for tmpfiles.d(5) does: \(lines)")
        }
      }
      if !paths.isEmpty, !environment.contains(where: { $0.name == variable }) {
        environment.append((variable, paths.joined(separator: ":")))
      }
      if let mode {
        if asRoot, !paths.isEmpty {
          draft.carry(mode.place, to: "before-start")
        } else {
          draft.remark(
            paths.isEmpty ? .needless : .lost, mode.place,
            paths.isEmpty ? "there is no \(key)=" : "it goes with the directory")
        }
      }
      if let preserve { draft.remark(.needless, preserve.place, "guardian removes no directories") }
    }
  }

  private mutating func limits() {
    enum Shape { case count, bytes, time }
    for (key, name, shape) in [
      ("LimitNOFILE", "open-files", .count), ("LimitCORE", "core", .bytes), ("LimitSTACK", "stack", .bytes),
      ("LimitNPROC", "processes", .count), ("LimitFSIZE", "file-size", .bytes),
      ("LimitMEMLOCK", "locked-memory", .bytes),
      ("LimitAS", "address-space", .bytes), ("LimitCPU", "cpu-time", .time), ("LimitDATA", "data", .bytes),
    ] as [(String, String, Shape)] {
      guard let found = last("Service", key) else { continue }
      let parts = found.value.split(separator: ":").map(String.init)
      // Of two the soft one is what the program lives with.
      let wanted = parts.first ?? ""
      var value: String?
      switch shape {
      case .count: value = wanted == "infinity" ? "unlimited" : wanted.isNumber ? UInt64(wanted).map { "\($0)" } : nil
      case .bytes: value = UnitValues.size(wanted)
      case .time:
        switch UnitValues.time(wanted) {
        case .infinity?: value = "unlimited"
        case .milliseconds(let ms)? where ms >= 1000 && ms % 1000 == 0: value = UnitValues.duration(ms)
        case .milliseconds?, nil: break
        }
      }
      if name == "open-files", let number = value.flatMap({ Int($0) }), number < 16 { value = nil }
      guard let value else {
        draft.remark(.lost, found.place, "guardian takes no such value for 'limits.\(name)'")
        continue
      }
      draft.set("limits", name, .plain(value))
      if parts.count > 1, parts[0] != parts[1] {
        draft.remark(.changed, found.place, "guardian sets both limits to the soft one")
      } else {
        draft.carry(found.place, to: "limits.\(name)")
      }
    }
    for (key, name) in [
      ("MemoryMax", "memory"), ("MemoryLimit", "memory"), ("TasksMax", "tasks"), ("CPUWeight", "cpu-weight"),
    ] {
      guard let found = last("Service", key) else { continue }
      var value: String?
      switch name {
      case "memory": value = UnitValues.size(found.value)
      case "tasks":
        value = found.value == "infinity" ? "unlimited" : Int(found.value).flatMap { $0 > 0 ? "\($0)" : nil }
      default: value = Int(found.value).flatMap { (1...10_000).contains($0) ? "\($0)" : nil }
      }
      if let value {
        draft.set("limits", name, .plain(value))
        draft.carry(found.place, to: "limits.\(name)")
      } else {
        draft.remark(
          .lost, found.place, "guardian takes no shares of the host's; 'limits.\(name)' needs a value of its own")
      }
    }
  }

  // MARK: Commands

  private var values: [String: String] {
    var values: [String: String] = [:]
    for (name, value) in environment { values[name] = value }
    return values
  }

  /// As a list where nothing but words is in it, else by a shell that expands the variables.
  private func list(_ command: UnitCommand) -> (words: [String], byShell: Bool) {
    if command.variables.isEmpty { return (command.expanded([:]) ?? command.words, false) }
    if !hasFiles, let words = command.expanded(values) { return (words, false) }
    return (["/bin/sh", "-c", "set -f; exec " + command.shell], true)
  }

  private mutating func start() -> Bool {
    let found = commands("ExecStart")
    guard let first = found.first, let program = first.command.words.first else { return false }
    var differences: [Place: [String]] = [:]
    var order: [Place] = []
    func differ(_ place: Place, _ why: String?) {
      if differences[place] == nil { order.append(place) }
      differences[place, default: []] += why.map { [$0] } ?? []
    }
    if isTask, found.count > 1 || first.command.prefixes.contains("-") {
      draft["command"] = .words(["/bin/sh", "-c", sequence(found.map(\.command))])
      for (_, place) in found {
        differ(place, found.count > 1 ? "a shell runs one after the other" : "a shell forgives its failure")
      }
    } else {
      let (words, byShell) = list(first.command)
      draft["command"] = .words(words)
      differ(first.place, byShell ? "a shell expands the variables" : nil)
      for (_, place) in found.dropFirst() { draft.remark(.lost, place, "a service has one command") }
      if first.command.prefixes.contains("-") {
        differ(first.place, "'-' is left out: an exit code other than those of 'success-exit' is a crash")
      }
    }
    if first.command.prefixes.contains("@") { differ(first.place, "the name that the program sees is its path") }
    if !first.command.prefixes.isDisjoint(with: ["+", "!", "|"]), draft["user"] != nil {
      differ(
        first.place,
        "it runs as 'user'; with '\(first.command.prefixes.contains("+") ? "+" : "!")' systemd starts it as root")
    }
    for place in order {
      let whys = differences[place] ?? []
      if whys.isEmpty {
        draft.carry(place, to: "command")
      } else {
        draft.remark(.changed, place, whys.joined(separator: "; "))
      }
    }
    if let type = file.assignments.last(where: { $0.section == "Service" && $0.key == "Type" }), type.value == "forking"
    {
      let base = program.split(separator: "/").last.map(String.init) ?? program
      let how = UnitKeys.foreground[base].map { "; \(base) does \($0)" } ?? ""
      draft.remark(
        .lost, type.place, "guardian supervises what it starts: the program must stay in the foreground\(how)")
    }
    return true
  }

  /// One after the other, each only after the success of the last.
  private func sequence(_ commands: [UnitCommand], last: String? = nil) -> String {
    var parts = commands.map { command in
      let line = command.shell
      return command.prefixes.contains("-") ? "{ \(line) || :; }" : line
    }
    if let last { parts.append(last) }
    return (commands.contains { !$0.variables.isEmpty } ? "set -f; " : "") + parts.joined(separator: " && ")
  }

  private mutating func beforeStart() {
    let found = commands("ExecStartPre")
    let permissions = last("Service", "PermissionsStartOnly")
    let onlyMain = permissions.flatMap { UnitValues.truth($0.value) } ?? false
    if let permissions {
      draft.remark(
        onlyMain && hasUser ? .lost : .needless, permissions.place,
        onlyMain && hasUser ? "'before-start' runs as 'user' too" : "it runs as root anyway")
    }
    for (command, place) in found {
      let needsRoot = hasUser && (onlyMain || !command.prefixes.isDisjoint(with: ["+", "!", "|"]))
      if needsRoot {
        draft.remark(.changed, place, "'before-start' runs it as 'user'; with systemd it is root")
      } else {
        draft.carry(place, to: "before-start")
      }
    }
    if !environment.isEmpty { draft["environment"] = .map(environment.map { ($0.name, .text($0.value)) }) }
    guard !found.isEmpty || !made.isEmpty else { return }
    if made.isEmpty, found.count == 1, let only = found.first, !only.command.prefixes.contains("-") {
      draft["before-start"] = .words(list(only.command).words)
    } else {
      let line = sequence(found.map(\.command))
      let all = made + (found.isEmpty ? [] : [line])
      draft["before-start"] = .words(["/bin/sh", "-c", all.joined(separator: " && ")])
    }
  }

  private mutating func reload() {
    let found = commands("ExecReload")
    guard !found.isEmpty else { return }
    if found.count == 1, let signal = found[0].command.signalToMain, !UnitValues.endsNothing.contains(signal),
      signal != "KILL"
    {
      draft["reload"] = .plain(signal)
      draft.carry(found[0].place, to: "reload")
      return
    }
    if found.count == 1, !found[0].command.prefixes.contains("-") {
      draft["reload"] = .words(list(found[0].command).words)
    } else {
      draft["reload"] = .words(["/bin/sh", "-c", sequence(found.map(\.command))])
    }
    for (command, place) in found {
      if draft["user"] != nil, !command.prefixes.isDisjoint(with: ["+", "!", "|"]) {
        draft.remark(.changed, place, "it runs as 'user'; with systemd it is root")
      } else {
        draft.carry(place, to: "reload")
      }
    }
  }

  // MARK: Stop and restart

  private mutating func stop() {
    for (command, place) in commands("ExecStop") {
      if let signal = command.signalToMain, !UnitValues.endsNothing.contains(signal) {
        draft.set("stop", "signal", .plain(signal))
        draft.carry(place, to: "stop.signal")
      } else {
        draft.remark(
          .lost, place, "guardian stops by signals: write the one that ends it well into 'stop.signal'")
      }
    }
    if let found = last("Service", "KillSignal") {
      if let signal = UnitValues.signal(found.value), !UnitValues.endsNothing.contains(signal) {
        draft.set("stop", "signal", .plain(signal))
        draft.carry(found.place, to: "stop.signal")
      } else {
        draft.remark(.lost, found.place, "guardian stops by a signal that ends a process")
      }
    }
    let both = last("Service", "TimeoutSec")
    let stop = last("Service", "TimeoutStopSec") ?? both
    if let stop {
      timeout(stop) { draft, value in draft.set("stop", "timeout", .plain(value)) }
      draft.carry(stop.place, to: "stop.timeout")
    } else {
      // What systemd gives a service that says nothing.
      draft.set("stop", "timeout", .plain("90s"))
    }
    if let mode = last("Service", "KillMode") {
      switch mode.value {
      case "mixed": draft.carry(mode.place, to: "stop")
      case "control-group":
        draft.remark(
          .changed, mode.place,
          "the main process gets the signal first, and what is left of the others after it has ended")
      case "process":
        draft.remark(
          .lost, mode.place,
          "guardian ends all processes of a run: with a stop, what the service has started for others ends too")
      default: draft.remark(.lost, mode.place, "guardian ends all processes of a run")
      }
    }
    let needed = draft["ready"] != nil || draft["before-start"] != nil
    if let start = last("Service", "TimeoutStartSec") ?? both {
      if needed {
        timeout(start) { draft, value in draft["start-timeout"] = .plain(value == "0s" ? "1d" : value) }
        draft.carry(start.place, to: "start-timeout")
      } else if start.place != both?.place || stop?.place != both?.place {
        draft.remark(.needless, start.place, "it is ready at once")
      }
    }
    if let watchdog = last("Service", "WatchdogSec") {
      switch UnitValues.time(watchdog.value) {
      case .milliseconds(let ms)?:
        draft["watchdog"] = .plain(UnitValues.duration(ms))
        draft.carry(watchdog.place, to: "watchdog")
      case .infinity?: draft.remark(.needless, watchdog.place, "it is off anyway")
      case nil: draft.remark(.lost, watchdog.place, "it is no time")
      }
    }
  }

  /// Guardian waits for nothing for ever: a day takes the place of that.
  private mutating func timeout(_ found: Assignment, _ set: (inout Draft, String) -> Void) {
    switch UnitValues.time(found.value) {
    case .milliseconds(0)?, .infinity?:
      set(&draft, "1d")
      draft.remark(.changed, found.place, "guardian waits for nothing for ever; a day is written")
    case .milliseconds(let ms)?: set(&draft, UnitValues.duration(ms))
    case nil: draft.remark(.lost, found.place, "it is no time")
    }
  }

  private mutating func restart() {
    let found = last("Service", "Restart")
    let word: String
    switch found?.value {
    case nil, "no"?: word = "never"
    case "always"?: word = "always"
    case "on-failure"?: word = "on-crash"
    case "on-abnormal"?, "on-abort"?, "on-watchdog"?:
      word = "on-crash"
      if let found {
        draft.remark(.changed, found.place, "guardian restarts it after an exit code that is no success, too")
      }
    case "on-success"?:
      word = "always"
      if let found { draft.remark(.changed, found.place, "guardian restarts it after a crash, too") }
    default:
      word = "always"
      if let found { draft.remark(.lost, found.place, "guardian has always, on-crash and never") }
    }
    if let found, ["no", "always", "on-failure"].contains(found.value) { draft.carry(found.place, to: "restart") }
    draft["restart"] = .plain(word)
    if found == nil {
      draft.remark(
        .changed, "no Restart=",
        "'restart: never' is written, as systemd has it; with 'always' or 'on-crash' guardian's ladder begins")
    }
    var first: Int64?
    if let pause = last("Service", "RestartSec") {
      if case .milliseconds(let ms)? = UnitValues.time(pause.value) {
        first = ms
        draft.set("backoff", "first", .plain(UnitValues.duration(ms)))
        draft.carry(pause.place, to: "backoff.first")
      } else {
        draft.remark(.lost, pause.place, "it is no time that guardian takes")
      }
    }
    if let most = last("Service", "RestartMaxDelaySec") {
      if case .milliseconds(let ms)? = UnitValues.time(most.value), ms >= first ?? 500 {
        draft.set("backoff", "max", .plain(UnitValues.duration(ms)))
        draft.carry(most.place, to: "backoff.max")
        first = nil
      } else {
        draft.remark(.lost, most.place, "it is no time that guardian takes")
      }
    }
    if let first, first > 60_000 { draft.set("backoff", "max", .plain(UnitValues.duration(first))) }
    if let steps = last("Service", "RestartSteps") {
      draft.remark(.changed, steps.place, "the pauses grow by 'backoff.factor'")
    }
    for section in ["Unit", "Service"] {
      for key in ["StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst"] {
        guard let limit = last(section, key) else { continue }
        let unlimited = key != "StartLimitBurst" && UnitValues.time(limit.value) == .milliseconds(0)
        draft.remark(
          .changed, limit.place,
          unlimited
            ? "the ladder ends in quarantine, with trials; 'escalation: off' restarts for ever"
            : "the ladder takes its place: 'escalation' has the strikes, and quarantine comes instead of 'failed'")
      }
    }
  }

  private mutating func exits() {
    var success = [0]
    for assignment in all("Service", "SuccessExitStatus") {
      var others: [String] = []
      for word in assignment.value.split(separator: " ").map(String.init) {
        if let code = UnitValues.exitStatus(word) {
          if !success.contains(code) { success.append(code) }
        } else {
          others.append(word)
        }
      }
      told(assignment, others, "success-exit")
    }
    if success.count > 1 { draft["success-exit"] = .list(success.map { .plain("\($0)") }) }
    var fatal: [Int] = []
    for assignment in all("Service", "RestartPreventExitStatus") {
      var others: [String] = []
      for word in assignment.value.split(separator: " ").map(String.init) {
        guard let code = UnitValues.exitStatus(word) else {
          others.append(word)
          continue
        }
        if success.contains(code) {
          if draft["restart"] == .plain("always") { others.append(word) }
        } else if !fatal.contains(code) {
          fatal.append(code)
        }
      }
      told(assignment, others, "fatal-exit")
    }
    if !fatal.isEmpty { draft["fatal-exit"] = .list(fatal.map { .plain("\($0)") }) }
  }

  private mutating func told(_ assignment: Assignment, _ others: [String], _ key: String) {
    if others.isEmpty {
      draft.carry(assignment.place, to: key)
    } else {
      draft.remark(
        .changed, assignment.place,
        "without \(others.joined(separator: ", ")): '\(key)' has exit codes that are no contradiction")
    }
  }

  private mutating func output() {
    let out = last("Service", "StandardOutput"), err = last("Service", "StandardError")
    var target: String?
    for found in [out, err].compactMap(\.self) {
      switch found.value {
      case "journal", "syslog", "kmsg", "journal+console", "syslog+console":
        target = target ?? "journal"
        draft.carry(found.place, to: "log")
      case "inherit" where found.key == "StandardError": draft.carry(found.place, to: "log")
      case "null":
        if found.key == "StandardOutput", err?.value == "null" || err?.value == "inherit" {
          target = "none"
          draft.carry(found.place, to: "log")
        } else if found.key == "StandardError", out?.value == "null" {
          draft.carry(found.place, to: "log")
        } else {
          draft.remark(.changed, found.place, "guardian keeps both streams, or neither with 'log: none'")
        }
      case let value where value.hasPrefix("file:") || value.hasPrefix("append:") || value.hasPrefix("truncate:"):
        target = "file"
        draft.remark(.changed, found.place, "'log: file' writes to NAME/current below 'logs.directory', and rotates it")
      default: draft.remark(.lost, found.place, "its output goes where 'log' says")
      }
    }
    if let target, target != "journal" { draft["log"] = .plain(target) }
  }

  // MARK: Others

  private mutating func neighbours() {
    for (key, name) in [
      ("After", "after"), ("Requires", "requires"), ("BindsTo", "requires"), ("Requisite", "requires"), ("Wants", ""),
      ("Upholds", ""),
    ] {
      for assignment in all("Unit", key) {
        guard let words = words(assignment) else { continue }
        var lost: [String] = [], needless: [String] = [], sockets: [String] = []
        for word in words {
          if word.hasSuffix(".service") {
            let other = serviceName(String(word.dropLast(".service".utf8.count)))
            if other == source.name || other == "guardian" {
              needless.append(word)
            } else if source.services.contains(other) {
              if !name.isEmpty { draft.append(name, .text(other)) }
              if name == "requires" {
                // Else it would say the same twice.
                if case .list(let items)? = draft["after"] {
                  let rest = items.filter { $0 != .text(other) }
                  draft["after"] = rest.isEmpty ? nil : .list(rest)
                }
              }
            } else {
              lost.append(word)
            }
          } else if word.hasSuffix(".socket") {
            sockets.append(word)
          } else if word.hasSuffix(".target") {
            needless.append(word)
          } else {
            lost.append(word)
          }
        }
        var whys: [String] = []
        let kind: Remark.Kind =
          !sockets.isEmpty || !lost.isEmpty && !name.isEmpty && name != "after"
          ? .lost : lost.isEmpty ? .needless : .changed
        if !lost.isEmpty {
          whys.append(
            "guardian has no service for \(lost.joined(separator: ", ")); what is not guardian's own can be named by After= in guardian.service"
          )
        }
        if !sockets.isEmpty { whys.append(Self.socketAdvice(sockets)) }
        if !needless.isEmpty, whys.isEmpty { whys.append("guardian starts its services when the host is up") }
        if whys.isEmpty {
          draft.carry(assignment.place, to: name.isEmpty ? "start" : name)
        } else {
          draft.remark(kind, assignment.place, whys.joined(separator: "; "))
        }
      }
    }
    for assignment in all("Unit", "Before") {
      let services = assignment.value.split(separator: " ").filter { $0.hasSuffix(".service") }
      draft.remark(
        services.isEmpty ? .needless : .lost, assignment.place,
        services.isEmpty
          ? "nothing waits for guardian's services one by one"
          : "the order is written in the other service, with 'after'")
    }
    for assignment in all("Service", "Sockets") {
      draft.remark(.lost, assignment.place, Self.socketAdvice([assignment.value]))
    }
    var isInstalled = false
    for key in ["WantedBy", "RequiredBy", "UpheldBy"] {
      for assignment in all("Install", key) {
        isInstalled = true
        draft.carry(assignment.place, to: "start")
      }
    }
    if !isInstalled {
      draft.remark(.changed, "no WantedBy=", "guardian starts it at boot; 'start: manual' leaves that to people")
    }
  }

  private static func socketAdvice(_ units: [String]) -> String {
    "give \(units.joined(separator: ", ")) Service=guardian.service and a FileDescriptorName=, and write that into 'sockets'"
  }

  /// What nothing above has asked for.
  private mutating func rest() {
    for (index, assignment) in file.assignments.enumerated() where !done.contains(index) {
      let (section, key, place) = (assignment.section, assignment.key, assignment.place)
      if section.hasPrefix("X-") || key.hasPrefix("X-") {
        draft.remark(.needless, place, "systemd does not read it either")
      } else if section == "Install" {
        draft.remark(.needless, place, "guardian knows a service by its own name, and each by itself")
      } else if !["Unit", "Service"].contains(section) {
        draft.remark(.lost, place, "section [\(section)] is not one of a service")
      } else if key == "CapabilityBoundingSet", hasUser {
        draft.remark(
          .lost, place,
          "as 'user' it has no more than 'capabilities', but programs with file capabilities still gain theirs")
      } else if assignment.value.isEmpty, key != "CapabilityBoundingSet" {
        draft.remark(.needless, place, "it is empty")
      } else if key.hasPrefix("Condition") || key.hasPrefix("Assert") {
        draft.remark(
          .lost, place, "guardian starts it in any case; a test in 'before-start' that fails keeps it waiting")
      } else if key.hasPrefix("Limit") {
        draft.remark(.lost, place, "guardian has no such limit; start it by prlimit(1) for that")
      } else if key == "IgnoreSIGPIPE" {
        let off = UnitValues.truth(assignment.value) == false
        draft.remark(off ? .needless : .lost, place, "guardian gives every service the signals' defaults")
      } else if let (_, without) = UnitKeys.sandbox.first(where: { key.hasPrefix($0.prefix) }) {
        let off = UnitValues.truth(assignment.value) == false
        draft.remark(
          off ? .needless : .lost, place, off ? "it is off anyway" : "guardian does not shut services in: \(without)")
      } else if let why = UnitKeys.needless[key] {
        draft.remark(.needless, place, why)
      } else if let why = UnitKeys.lost[key] {
        draft.remark(.lost, place, why)
      } else {
        draft.remark(.lost, place, "guardian has nothing like \(key)=")
      }
    }
  }
}

/// What guardian tells each run itself, and no file may set.
enum ReservedVariables {
  static let names: Set<String> = [
    "INVOCATION_ID", "GUARDIAN_MODE", "GUARDIAN_DISABLED_PLUGINS", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
    "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID",
  ]
}
