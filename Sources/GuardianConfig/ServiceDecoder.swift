import GuardianModel

/// From the tree of a file to a `ServiceSpec`. Goes on after a fault, so that all are reported.
struct ServiceDecoder {
  let context: ConfigurationContext
  var log: DiagnosticLog
  /// Values from another file (the defaults) may well have no effect on this service; no warning is due for them.
  let mainFile: String
  private var inDefaults = false
  /// Other services that are named, with their places: whether they are there is for those to say who know all files.
  private(set) var references: [ServiceReference] = []
  var isDefaults: Bool { inDefaults }

  init(context: ConfigurationContext, log: DiagnosticLog, mainFile: String) {
    self.context = context
    self.log = log
    self.mainFile = mainFile
  }

  // MARK: guardian.yaml

  private mutating func groups(_ node: Node?) -> GroupsWish? {
    guard let node else { return nil }
    guard let text = text(node, "'cgroup'") else { return nil }
    switch text {
    case "auto": return .automatic
    case "off": return .off
    default:
      guard text.hasPrefix("/") else {
        wrong(node, "'cgroup'", "auto, off, or a path", suggestion: nearestWord(to: text, among: ["auto", "off"]))
        return nil
      }
      let parts = text.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
      guard text != "/", !parts.contains(where: { ["", ".", ".."].contains($0) || $0.utf8.count > 255 }) else {
        fault(
          node, "'cgroup' cannot be '\(text)'",
          "it is the name of a control group as /proc/PID/cgroup has it, as in /guardian")
        return nil
      }
      if text.hasPrefix("/sys/fs/cgroup") {
        fault(node, "'cgroup' starts with '/sys/fs/cgroup'", "the place of the mount is left out, as in /guardian")
      }
      return .path(text)
    }
  }

  private mutating func reportsTotal(_ node: Node?) -> UInt64? {
    guard let node else { return nil }
    guard let value = plain(node).flatMap(Scalars.size) else {
      wrong(node, "'history.total'", "a size", Scalars.sizeForm)
      return nil
    }
    guard value >= 1 << 20 else {
      fault(node, "'history.total' must be at least 1M", "one report may have a tenth of that")
      return nil
    }
    return value
  }

  private mutating func swiftBacktrace(_ node: Node?) -> SwiftBacktraceWish? {
    guard let node, let text = text(node, "'swift-backtrace'") else { return nil }
    switch text {
    case "auto": return .automatic
    case "off": return .off
    default:
      guard text.hasPrefix("/"), !text.utf8.contains(where: { $0 == UInt8(ascii: ",") || $0 < 0x20 }) else {
        wrong(
          node, "'swift-backtrace'", "auto, off, or the path of the program",
          suggestion: nearestWord(to: text, among: ["auto", "off"]))
        return nil
      }
      return .path(text)
    }
  }

  /// - Returns: What is written, `defaults` checked as a service would be; else what holds without it.
  mutating func host(_ root: Node) -> HostSpec {
    var host = HostSpec()
    guard let top = fields(of: root, at: "", in: .host, called: "guardian.yaml") else { return host }
    host.defaults = ServiceDefaults(node: hostDefaults(top), reported: [])
    let history = fields(of: top["history"], at: "history", in: .host, called: "'history'")
    host.historyEvents = integer(history?["events"], "'history.events'", 100...10_000_000) ?? host.historyEvents
    host.reportsPerService =
      integer(history?["reports-per-service"], "'history.reports-per-service'", 1...10_000) ?? host.reportsPerService
    host.reportsTotal = reportsTotal(history?["total"]) ?? host.reportsTotal
    host.swiftBacktrace = swiftBacktrace(top["swift-backtrace"]) ?? host.swiftBacktrace
    host.groups = groups(top["cgroup"]) ?? host.groups
    if let node = top["governor"] { host.governor = governor(node) }
    if let node = top["common-cause"] { host.commonCause = commonCause(node) }
    if let node = top["logs"] { host.logs = logs(node) }
    host.access = access(top["access"], in: .host)
    if let node = top["metrics"] { host.metrics = metrics(node) }
    return host
  }

  private mutating func governor(_ node: Node) -> GovernorSpec? {
    if isOff(node, "'governor'") { return nil }
    var spec = GovernorSpec()
    guard let fields = fields(of: node, at: "governor", in: .host, called: "'governor'") else { return nil }
    spec.startsPerSecond =
      integer(fields["starts-per-second"], "'starts-per-second'", 1...1_000_000) ?? spec.startsPerSecond
    spec.concurrent = integer(fields["concurrent"], "'concurrent'", 1...100_000) ?? spec.concurrent
    return spec
  }

  private mutating func commonCause(_ node: Node) -> CommonCauseSpec? {
    if isOff(node, "'common-cause'") { return nil }
    var spec = CommonCauseSpec()
    guard let fields = fields(of: node, at: "common-cause", in: .host, called: "'common-cause'") else { return nil }
    spec.services = integer(fields["services"], "'services'", 2...100_000) ?? spec.services
    spec.within = duration(fields["within"], "'within'", atLeast: .milliseconds(1)) ?? spec.within
    spec.freeze = duration(fields["freeze"], "'freeze'", atLeast: .seconds(1)) ?? spec.freeze
    return spec
  }

  private mutating func logs(_ node: Node) -> LogsSpec {
    var spec = LogsSpec()
    guard let fields = fields(of: node, at: "logs", in: .host, called: "'logs'") else { return spec }
    if let node = fields["directory"] { spec.directory = exactPath(node, "'directory'") }
    if let node = fields["rotate"] {
      spec.rotate = logSize(node, "'rotate'", atLeast: Self.smallestLog) ?? spec.rotate
    }
    if let node = fields["age"], plain(node) != "never" {
      spec.age = duration(node, "'age'", atLeast: .minute, or: "'never'")
    }
    spec.keep = integer(fields["keep"], "'keep'", 0...10_000) ?? spec.keep
    if let node = fields["total"] { spec.total = logSize(node, "'total'", atLeast: 2 * Self.smallestLog) ?? spec.total }
    if spec.total < spec.rotate {
      fault(
        fields["total"] ?? fields["rotate"],
        "'total' (\(spec.total) bytes) is less than 'rotate' (\(spec.rotate) bytes)",
        "what all services have together is at least one file")
    } else if let node = fields["keep"] ?? fields["total"] ?? fields["rotate"] {
      let (files, over) = (spec.rotate).multipliedReportingOverflow(by: UInt64(spec.keep) + 1)
      if over || files > spec.total {
        warn(
          node, "'keep' (\(spec.keep)) can hardly be reached",
          "\(spec.keep) files that were put aside and the present one have up to \(spec.rotate) bytes each by 'rotate', "
            + (over ? "" : "\(files) together, ") + "and 'total' is \(spec.total) bytes for all services")
      }
    }
    spec.compress = word(fields["compress"], "'compress'", LogsSpec.Compression.self) ?? spec.compress
    spec.full = word(fields["full"], "'full'", LogsSpec.Full.self) ?? spec.full
    return spec
  }

  private mutating func metrics(_ node: Node) -> MetricsSpec {
    var spec = MetricsSpec()
    guard let fields = fields(of: node, at: "metrics", in: .host, called: "'metrics'") else { return spec }
    if let node = fields["textfile"] {
      spec.textfile = exactPath(node, "'textfile'")
      if let path = spec.textfile, !path.hasSuffix(".prom") {
        warn(node, "'textfile' does not end in .prom", "node_exporter's collector reads no other files")
      }
    }
    spec.every = duration(fields["every"], "'every'", atLeast: .seconds(1)) ?? spec.every
    if spec.every > .day {
      fault(fields["every"], "'every' must be at most 1d", "nobody would call that a measurement")
    }
    if fields["every"] != nil, fields["textfile"] == nil {
      warn(fields["every"], "'every' has no effect", "without 'textfile' nothing is written")
    }
    return spec
  }

  /// Smaller ones would be mostly what the logger writes itself.
  private static let smallestLog: UInt64 = 16 << 10

  private mutating func logSize(_ node: Node, _ name: String, atLeast least: UInt64) -> UInt64? {
    guard let text = plain(node), let size = Scalars.size(text), size >= least else {
      wrong(node, name, "a size of at least \(least >> 10)K", Scalars.sizeForm)
      return nil
    }
    return size
  }

  /// `off`, or a scalar that is none and a fault; a mapping is not.
  private mutating func isOff(_ node: Node, _ name: String) -> Bool {
    guard case .scalar(let text, _) = node.content else { return false }
    if text != "off" {
      wrong(node, name, "a mapping, or off", suggestion: ["no", "false"].contains(text) ? "off" : nil)
    }
    return true
  }

  private mutating func hostDefaults(_ fields: Fields) -> Node? {
    guard let defaults = fields["defaults"] else { return nil }
    guard case .mapping(let entries) = defaults.content else {
      wrong(defaults, "'defaults'", "a mapping of service keys")
      return nil
    }
    for entry in entries {
      if case .scalar(let word, _) = entry.key.content, KeyTable.notInDefaults.contains(word) {
        fault(entry.key, "'\(word)' under 'defaults'", "it belongs to one service; write it in that service's file")
      }
    }
    guard let name = ServiceName("defaults") else { return nil }
    inDefaults = true
    _ = service(named: name, root: defaults, defaults: nil)
    inDefaults = false
    return defaults
  }

  // MARK: services/NAME.yaml

  /// Nil without a command; otherwise whatever could be read, to be used only if `log` is not blocked.
  mutating func service(named name: ServiceName, root: Node, defaults: Node?) -> ServiceSpec? {
    let merged = defaults.map { merge(root, over: $0, at: "") } ?? root
    guard let fields = fields(of: merged, at: "", in: .service, called: "a service's file") else { return nil }
    var command: [String] = []
    if let node = fields["command"] {
      command = self.command(node, "'command'") ?? []
    } else if !inDefaults && !fields.misspelt.contains("command") {
      fault(root, "no 'command'", "a service needs the program to run, as in 'command: [/path/to/program, argument]'")
    }
    var spec = ServiceSpec(name: name, process: ProcessSpec(command: command))
    process(fields, &spec)

    if let text = oneLine(fields["description"], "'description'") { spec.description = text }
    spec.start = word(fields["start"], "'start'", StartCondition.self) ?? spec.start
    spec.requires = services(fields["requires"], "requires", of: name)
    spec.after = services(fields["after"], "after", of: name)
    spec.groups = names(fields["groups"], "groups").map(\.name)
    spec.kind = word(fields["type"], "'type'", ServiceKind.self) ?? spec.kind
    if let node = fields["ready"] { spec.ready = ready(node) ?? spec.ready }
    if case .descriptor(let number) = spec.ready, !spec.process.sockets.isEmpty,
      number < 3 + Int32(spec.process.sockets.count)
    {
      fault(
        fields["ready"], "'fd: \(number)' is one of the sockets",
        "the \(spec.process.sockets.count) of 'sockets' have the numbers from 3 on; take a higher one")
    }
    if let value = duration(fields["start-timeout"], "'start-timeout'", atLeast: .milliseconds(1)) {
      spec.startTimeout = value
      if spec.ready == .none, spec.process.beforeStart.isEmpty {
        warn(fields["start-timeout"], "'start-timeout' has no effect", "with 'ready: none' a service is ready at once")
      }
    }
    if let node = fields["startup-window"], let value = duration(node, "'startup-window'") {
      spec.startupWindow = value
      if value == .zero {
        fault(
          node, "'startup-window' must be longer than 0s",
          "no death could come before it is over, so that none would ever be a strike; 'escalation: off' says that")
      }
    }
    spec.watchdog = duration(fields["watchdog"], "'watchdog'") ?? spec.watchdog
    checks(fields, &spec)
    stop(fields["stop"], &spec)
    if let node = fields["reload"] { spec.reload = reload(node) }
    spec.restart = restart(fields["restart"]) ?? (spec.kind == .task ? .onCrash : .always)
    backoff(fields["backoff"], &spec)
    escalation(fields["escalation"], &spec)
    late(fields, &spec)
    exits(fields, &spec)
    repairs(fields["repair"], &spec)
    plugins(fields["plugins"], &spec)
    quarantine(fields["quarantine"], &spec)
    spec.mode = word(fields["mode"], "'mode'", LadderMode.self) ?? spec.mode
    spec.mitigate = word(fields["mitigate"], "'mitigate'", MitigationMode.self) ?? spec.mitigate
    spec.runbook = oneLine(fields["runbook"], "'runbook'")
    spec.contact = oneLine(fields["contact"], "'contact'")
    spec.access = access(fields["access"], in: .service)
    if let notices = self.fields(of: fields["notices"], at: "notices", called: "'notices'") {
      for kind in NoticeKind.allCases {
        guard let node = notices[kind.rawValue] else { continue }
        spec.notices[kind] = self.command(node, "'\(kind.rawValue)'")
      }
    }
    if let node = fields["log"] { spec.log = logTarget(node) ?? spec.log }
    contradictions(fields, spec)
    return spec
  }

  private mutating func process(_ fields: Fields, _ spec: inout ServiceSpec) {
    spec.process.identity = identity(user: fields["user"], group: fields["group"])
    if let node = fields["directory"], let path = path(node, "'directory'") {
      spec.process.directory = path
      look(at: path, .directory, node, "'directory'")
    }
    if let node = fields["environment"] { spec.process.environment = environment(node, "'environment'") }
    for node in list(fields["environment-file"], "'environment-file'") ?? [] {
      guard let text = text(node, "a path of 'environment-file'") else { continue }
      let optional = text.hasPrefix("-")
      let bare = optional ? String(text.dropFirst()) : text
      guard let path = path(bare, node, "'environment-file'") else { continue }
      spec.process.environmentFiles.append(EnvironmentFile(path: path, optional: optional))
      if !optional { look(at: path, .environmentFile, node, "'environment-file'") }
    }
    if let node = fields["umask"] {
      if case .scalar(let text, plain: false) = node.content, let mask = Scalars.octal(text) {
        spec.process.umask = mask
      } else {
        wrong(node, "'umask'", "octal digits in quotes", "as in \"0027\"; without quotes YAML libraries disagree on it")
      }
    }
    limits(fields["limits"], &spec)
    if let value = integer(fields["oom-score-adjust"], "'oom-score-adjust'", -1000...1000) {
      spec.process.oomScoreAdjust = Int32(value)
    }
    if let value = integer(fields["nice"], "'nice'", -20...19) { spec.process.nice = Int32(value) }
    capabilities(fields["capabilities"], &spec)
    sockets(fields["sockets"], &spec)
    if let node = fields["before-start"] { spec.process.beforeStart = command(node, "'before-start'") ?? [] }
  }

  private mutating func capabilities(_ node: Node?, _ spec: inout ServiceSpec) {
    guard let items = list(node, "'capabilities'") else { return }
    var found: Set<Capability> = []
    for item in items {
      guard let text = text(item, "an element of 'capabilities'") else { continue }
      guard let one = Capability(name: text) else {
        // As capabilities(7) and units of systemd have it.
        let bare = text.lowercased().split(separator: "_").joined(separator: "-")
        let short = bare.hasPrefix("cap-") ? String(bare.dropFirst(4)) : bare
        wrong(
          item, "an element of 'capabilities'", "the name of a capability", "as in net-bind-service",
          suggestion: Capability(name: short) == nil ? nearestWord(to: short, among: Capability.names) : short)
        continue
      }
      if !found.insert(one).inserted { fault(item, "capability \(one) is here twice") }
    }
    spec.process.capabilities = found.sorted()
    guard let node, !found.isEmpty, !inDefaults else { return }
    if (spec.process.identity?.uid ?? context.ownUID) == 0 {
      fault(
        node, "'capabilities' of a service that runs as root", "root has them all; it needs 'user' to be somebody else")
    } else if context.ownUID != 0 {
      let missing = found.sorted().filter { !context.mayGive($0) }
      if !missing.isEmpty {
        error(
          node, "guardian has no capability " + missing.map(\.description).joined(separator: ", "),
          "it can give only what it has itself", blocks: false)
      }
    }
  }

  private mutating func sockets(_ node: Node?, _ spec: inout ServiceSpec) {
    for item in list(node, "'sockets'") ?? [] {
      guard let name = text(item, "an element of 'sockets'") else { continue }
      guard (1...255).contains(name.utf8.count),
        name.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: ":") })
      else {
        wrong(
          item, "the name of a socket", "1 to 255 printable characters without a colon",
          "as FileDescriptorName= of the socket's unit has it")
        continue
      }
      if spec.process.sockets.contains(name) {
        fault(item, "socket '\(name)' is here twice")
        continue
      }
      spec.process.sockets.append(name)
      guard let passed = context.passedSockets, !passed.contains(name) else { continue }
      error(
        item, "no socket '\(name)' was passed to guardian",
        passed.isEmpty
          ? "none was; a socket unit with FileDescriptorName=\(name) and Service=guardian.service passes it"
          : "there is " + passed.prefix(8).joined(separator: ", "),
        suggestion: nearestWord(to: name, among: passed), blocks: false)
    }
  }

  private mutating func limits(_ node: Node?, _ spec: inout ServiceSpec) {
    guard let limits = fields(of: node, at: "limits", called: "'limits'") else { return }
    for resource in ResourceLimit.Resource.allCases {
      guard let node = limits[resource.rawValue] else { continue }
      let name = "'\(resource.rawValue)'"
      guard let text = plain(node) else {
        wrong(node, name, "a limit", "a number, or 'unlimited'")
        continue
      }
      if text == "unlimited" {
        spec.process.limits.append(ResourceLimit(resource, .max))
        continue
      }
      var value: UInt64?
      switch resource {
      case .openFiles, .processes:
        value = Scalars.integer(Array(text.utf8)).map { UInt64($0) }
        if value == nil { wrong(node, name, "a plain number, or 'unlimited'") }
      case .cpuTime:
        if let time = Scalars.duration(text), time >= .seconds(1), time.components.attoseconds == 0 {
          value = UInt64(clamping: time.components.seconds)
        } else {
          wrong(node, name, "whole seconds, or 'unlimited'", Scalars.durationForm)
        }
      case .core, .stack, .fileSize, .lockedMemory, .addressSpace, .data:
        value = Scalars.size(text)
        if value == nil { wrong(node, name, "a size, or 'unlimited'", Scalars.sizeForm) }
      }
      guard let value else { continue }
      if resource == .openFiles && value < 16 {
        fault(node, "'open-files' must be at least 16", "with fewer the program cannot even be loaded")
      }
      spec.process.limits.append(ResourceLimit(resource, value))
    }
    groupLimits(limits, &spec)
  }

  /// Whether the kernel has the controllers is known when guardian runs; `status` and `version` tell.
  private mutating func groupLimits(_ limits: Fields, _ spec: inout ServiceSpec) {
    if let node = limits["memory"], let text = plain(node) {
      if text == "unlimited" {
        spec.process.groupLimits.memory = .max
      } else if let value = Scalars.size(text) {
        spec.process.groupLimits.memory = value
        if value < 1 << 20 {
          fault(node, "'memory' must be at least 1M", "with less the program cannot even be loaded")
        }
      } else {
        wrong(node, "'memory'", "a size, or 'unlimited'", Scalars.sizeForm)
      }
    } else if let node = limits["memory"] {
      wrong(node, "'memory'", "a size, or 'unlimited'", Scalars.sizeForm)
    }
    if let node = limits["tasks"] {
      if plain(node) == "unlimited" {
        spec.process.groupLimits.tasks = .max
      } else if let value = plain(node).flatMap({ Scalars.integer(Array($0.utf8)) }), value >= 1 {
        spec.process.groupLimits.tasks = UInt64(value)
      } else {
        wrong(node, "'tasks'", "a number from 1, or 'unlimited'", "processes and threads are tasks")
      }
    }
    if let value = integer(limits["cpu-weight"], "'cpu-weight'", 1...10_000) {
      spec.process.groupLimits.cpuWeight = UInt64(value)
    }
  }

  private mutating func ready(_ node: Node) -> Readiness? {
    switch node.content {
    case .scalar("none", _): return Readiness.none
    case .scalar("notify", _): return .notify
    case .scalar("check", _): return .check
    case .scalar(let text, _):
      wrong(
        node, "'ready'", "none, notify, check or {fd: N}",
        suggestion: nearestWord(to: text, among: ["none", "notify", "check"]))
    case .list: wrong(node, "'ready'", "none, notify, check or {fd: N}")
    case .mapping:
      guard let fields = fields(of: node, at: "ready", called: "'ready'") else { return nil }
      guard let number = fields["fd"] else {
        fault(node, "'ready' without 'fd'", "it is none, notify, check or {fd: N}")
        return nil
      }
      return integer(number, "'fd'", 3...1023).map { .descriptor(Int32($0)) }
    }
    return nil
  }

  /// Names of other services, each once.
  private mutating func services(_ node: Node?, _ key: String, of service: ServiceName) -> [ServiceName] {
    var found: [ServiceName] = []
    for (name, node) in names(node, key) {
      if name == service {
        fault(node, "'\(name)' cannot be in its own '\(key)'", "dependency cycle: \(name) → \(name)")
        continue
      }
      found.append(name)
      references.append(
        ServiceReference(
          name: name, key: key, file: node.file, line: node.line, column: node.column, endColumn: node.endColumn))
    }
    return found
  }

  private mutating func names(_ node: Node?, _ key: String) -> [(name: ServiceName, node: Node)] {
    var found: [(name: ServiceName, node: Node)] = []
    var seen: Set<ServiceName> = []
    for item in list(node, "'\(key)'") ?? [] {
      guard let text = text(item, "an element of '\(key)'") else { continue }
      guard let name = ServiceName(text) else {
        fault(
          item, "'\(brief(text))' in '\(key)' is no name",
          "1 to 64 of a-z, 0-9, '.', '_', '@' and '-', the first a letter or digit")
        continue
      }
      if !seen.insert(name).inserted {
        fault(item, "'\(name)' is in '\(key)' twice")
        continue
      }
      found.append((name, item))
    }
    return found
  }

  /// A signal's name, or a command, which has a slash in its first word.
  private mutating func reload(_ node: Node) -> ReloadSpec? {
    guard case .scalar(let text, _) = node.content, !text.contains("/") else {
      return command(node, "'reload'").map { .command($0) }
    }
    guard let signal = Scalars.signal(text) else {
      wrong(
        node, "'reload'", "the name of a signal, or a command", "as in HUP or [/usr/sbin/program, -s, reload]",
        suggestion: nearestWord(to: text.hasPrefix("SIG") ? String(text.dropFirst(3)) : text, among: Signal.names))
      return nil
    }
    if ["KILL", "STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD"].contains(signal.description) {
      fault(node, "'reload' cannot be \(signal)", "no process reads its configuration for that")
    }
    return .signal(signal)
  }

  private mutating func stop(_ node: Node?, _ spec: inout ServiceSpec) {
    guard let fields = fields(of: node, at: "stop", called: "'stop'") else { return }
    spec.stop.signal = stopSignal(fields["signal"]) ?? spec.stop.signal
    if let node = fields["timeout"], let value = duration(node, "'timeout'") {
      spec.stop.timeout = value
      if value == .zero && spec.stop.signal != .kill {
        warn(node, "a stop 'timeout' of 0s", "the \(spec.stop.signal) is followed by KILL at once")
      }
    }
    spec.stop.leftovers = word(fields["leftovers"], "'leftovers'", StopSpec.Leftovers.self) ?? spec.stop.leftovers
    for node in list(fields["then"], "'then'") ?? [] {
      guard let fields = self.fields(of: node, at: "stop.then[]", called: "an entry of 'then'") else { continue }
      if fields["signal"] == nil {
        fault(node, "an entry of 'then' without 'signal'", "it is {signal: INT, timeout: 5s}; KILL follows by itself")
      }
      var step = StopStep(signal: .term, timeout: spec.stop.timeout)
      step.signal = stopSignal(fields["signal"]) ?? step.signal
      step.timeout = duration(fields["timeout"], "'timeout'") ?? step.timeout
      if step.signal == .kill {
        fault(node, "'then' cannot name KILL", "KILL follows by itself when the last of them has had its time")
      }
      spec.stop.then.append(step)
    }
    if spec.stop.then.count > Self.mostStopSteps {
      fault(fields["then"], "'then' has more than \(Self.mostStopSteps) entries", "somebody waits for the stop to end")
    }
    if spec.stop.signal == .kill, !spec.stop.then.isEmpty {
      warn(fields["then"], "'then' has no effect", "after KILL there is nothing left to signal")
    }
  }

  private static let mostStopSteps = 8

  private mutating func stopSignal(_ node: Node?) -> Signal? {
    guard let node, let text = text(node, "'signal'") else { return nil }
    guard let signal = Scalars.signal(text) else {
      wrong(
        node, "'signal'", "the name of a signal", "as in TERM, INT or RTMIN+3",
        suggestion: nearestWord(to: text.hasPrefix("SIG") ? String(text.dropFirst(3)) : text, among: Signal.names))
      return nil
    }
    if ["STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD"].contains(signal.description) {
      fault(node, "'signal' cannot be \(signal)", "it ends no process")
    }
    return signal
  }

  private mutating func restart(_ node: Node?) -> RestartPolicy? {
    if let node, let text = plain(node) {
      switch text.lowercased() {
      case "no", "false", "off", "n":
        wrong(node, "'restart'", Self.words(RestartPolicy.self), suggestion: "never")
        return nil
      case "yes", "true", "on", "y":
        wrong(node, "'restart'", Self.words(RestartPolicy.self), suggestion: "always")
        return nil
      case "on-failure":
        wrong(node, "'restart'", Self.words(RestartPolicy.self), suggestion: "on-crash")
        return nil
      default: break
      }
    }
    return word(node, "'restart'", RestartPolicy.self)
  }

  private mutating func backoff(_ node: Node?, _ spec: inout ServiceSpec) {
    guard let fields = fields(of: node, at: "backoff", called: "'backoff'") else { return }
    spec.backoff.first = duration(fields["first"], "'first'") ?? spec.backoff.first
    spec.backoff.max = duration(fields["max"], "'max'") ?? spec.backoff.max
    if let node = fields["factor"] {
      if let text = plain(node), let value = Scalars.decimal(text), (1...1000).contains(value) {
        spec.backoff.factor = value
      } else {
        wrong(
          node, "'factor'", "a number from 1 to 1000",
          isTooFine(node) ? "it has more than 6 decimal places" : "below 1 the pauses would grow shorter")
      }
    }
    if let node = fields["jitter"] {
      if let text = plain(node), let value = Scalars.percent(text) {
        spec.backoff.jitter = value
      } else {
        wrong(
          node, "'jitter'", "a share from 0% to 100%", isTooFine(node) ? "it has more than 6 decimal places" : "")
      }
    }
    if spec.backoff.first > spec.backoff.max {
      let (first, max) = (spec.backoff.first.description, spec.backoff.max.description)
      fault(
        fields["max"] ?? fields["first"], "backoff 'first' (\(first)) is longer than 'max' (\(max))",
        "the first pause is the shortest")
    }
  }

  private mutating func escalation(_ node: Node?, _ spec: inout ServiceSpec) {
    if let node, isOff(node, "'escalation'") {
      spec.escalation.enabled = false
      return
    }
    guard let fields = fields(of: node, at: "escalation", called: "'escalation'") else { return }
    let strikes = 1...1000
    spec.escalation.restart = integer(fields["restart"], "'restart'", strikes) ?? spec.escalation.restart
    spec.escalation.repair = integer(fields["repair"], "'repair'", strikes) ?? spec.escalation.repair
    spec.escalation.safeMode = integer(fields["safe-mode"], "'safe-mode'", strikes) ?? spec.escalation.safeMode
    spec.escalation.deescalateAfter =
      duration(fields["deescalate-after"], "'deescalate-after'", atLeast: .seconds(1))
      ?? spec.escalation.deescalateAfter
  }

  private mutating func late(_ top: Fields, _ spec: inout ServiceSpec) {
    let fields = fields(of: top["late"], at: "late", called: "'late'")
    spec.late.budget = integer(fields?["budget"], "'budget'", 0...10_000) ?? spec.late.budget
    spec.late.within = duration(fields?["within"], "'within'", atLeast: .seconds(1)) ?? spec.late.within
  }

  private mutating func exits(_ fields: Fields, _ spec: inout ServiceSpec) {
    spec.successExit = exitCodes(fields["success-exit"], "'success-exit'") ?? spec.successExit
    spec.fatalExit = exitCodes(fields["fatal-exit"], "'fatal-exit'") ?? spec.fatalExit
    if let both = spec.fatalExit.first(where: spec.successExit.contains) {
      fault(
        fields["fatal-exit"] ?? fields["success-exit"], "exit code \(both) is both a success and fatal",
        "'success-exit' is [0] unless it is given")
    }
  }

  private mutating func exitCodes(_ node: Node?, _ name: String) -> [Int32]? {
    guard let items = list(node, name) else { return nil }
    var codes: [Int32] = []
    for item in items {
      guard let code = integer(item, "an exit code of \(name)", 0...255) else { continue }
      if codes.contains(Int32(code)) {
        fault(item, "exit code \(code) is here twice")
      } else {
        codes.append(Int32(code))
      }
    }
    return codes
  }

  // MARK: Repairs and plugins

  private mutating func repairs(_ node: Node?, _ spec: inout ServiceSpec) {
    var names: [String: Node] = [:]
    for item in list(node, "'repair'") ?? [] {
      guard let fields = fields(of: item, at: "repair[]", called: "a repair") else { continue }
      let name = self.name(fields["name"], of: item, "repair", &names)
      var kind: RepairSpec.Kind?
      let kinds = ["run", "move-aside", "restore"].filter { fields[$0] != nil }
      switch (kinds.first, fields["run"], fields["move-aside"], fields["restore"]) {
      case (_, let run?, nil, nil): kind = command(run, "'run'").map { .run($0) }
      case (_, nil, let aside?, nil): kind = exactPath(aside, "'move-aside'").map { .moveAside($0) }
      case (_, nil, nil, let files?): kind = restored(files).map { .restore($0) }
      case (nil, _, _, _):
        if fields.misspelt.isEmpty {
          fault(item, "a repair without 'run', 'move-aside' or 'restore'", "it would do nothing")
        }
      case (let first?, _, _, _):
        let second = kinds.last ?? first
        fault(fields[second], "'\(first)' and '\(second)' in one repair", "write two; they run in order")
      }
      var repair = RepairSpec(name: name ?? "", kind: kind ?? .run([]))
      for cause in list(fields["on"], "'on'") ?? [] {
        guard let matcher = matcher(cause) else { continue }
        repair.on.append(matcher)
        if let why = whyNever(matcher, spec) { warn(cause, "no such death leads to a repair", why) }
      }
      if let on = fields["on"], case .list(let items) = on.content, items.isEmpty {
        warn(on, "'on' is empty", "the repair runs after any death, as without it")
      }
      repair.timeout = duration(fields["timeout"], "'timeout'", atLeast: .milliseconds(1)) ?? repair.timeout
      for word in ["move-aside", "restore"] where fields[word] != nil {
        warn(fields["user"], "'user' has no effect on '\(word)'", "guardian itself renames in the parent directory")
      }
      repair.identity = identity(user: fields["user"], group: nil)
      if let first = integer(fields["from-attempt"], "'from-attempt'", 1...1000) {
        repair.fromAttempt = first
      }
      if let limit = self.fields(of: fields["at-most"], at: "repair[].at-most", called: "'at-most'") {
        let times = integer(limit["times"], "'times'", 1...1000)
        let within = duration(limit["within"], "'within'", atLeast: .seconds(1))
        if let times, let within {
          repair.atMost = RunLimit(times: times, within: within)
        } else if limit["times"] == nil || limit["within"] == nil {
          fault(fields["at-most"], "'at-most' needs 'times' and 'within'", "as in {times: 2, within: 24h}")
        }
      }
      repairLimits(fields, repair, spec)
      spec.repairs.append(repair)
    }
    if let node, spec.declaredFiles.count > RepairSpec.mostRestored {
      fault(
        node, "\(spec.declaredFiles.count) files to restore",
        "a service has at most \(RepairSpec.mostRestored); those that a person edits are the ones that matter")
    }
  }

  private mutating func restored(_ node: Node) -> [String]? {
    guard let items = list(node, "'restore'") else { return nil }
    if items.isEmpty {
      fault(node, "'restore' is empty", "it would do nothing")
      return nil
    }
    var paths: [String] = []
    for item in items {
      guard let path = exactPath(item, "a file of 'restore'") else { continue }
      if paths.contains(path) {
        fault(item, "\(brief(path)) is here twice")
      } else {
        paths.append(path)
      }
    }
    return paths
  }

  /// The causes that `on:` may name. A `host` loss never leads to a repair, and `exit` and `signal` say too little.
  static let causes = ["oom", "watchdog", "start-timeout", "check", "exec", "killed", "unknown"]

  private mutating func matcher(_ node: Node) -> CauseMatcher? {
    let forms = "exit:N, signal:NAME, class:NAME, or one of " + Self.causes.joined(separator: " ")
    guard let text = text(node, "an element of 'on'") else { return nil }
    let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
    guard parts.count == 2 else {
      if Self.causes.contains(text) { return .cause(text) }
      wrong(
        node, "a cause", forms, suggestion: nearestWord(to: text, among: Self.causes + ["exit:", "signal:", "class:"]))
      return nil
    }
    switch parts[0] {
    case "exit":
      if let code = Scalars.integer(Array(parts[1].utf8)), code <= 255 { return .exit(Int32(code)) }
      wrong(node, "the code of 'exit:'", "0 … 255")
    case "signal":
      if let signal = Scalars.signal(parts[1]) { return .signal(signal) }
      wrong(node, "the name of 'signal:'", "a signal", suggestion: nearestWord(to: parts[1], among: Signal.names))
    case "class":
      if let value = CrashClass(rawValue: parts[1]) { return .crashClass(value) }
      let words = CrashClass.allCases.map(\.rawValue)
      wrong(
        node, "the name of 'class:'", "one of " + words.joined(separator: " "),
        suggestion: nearestWord(to: parts[1], among: words))
    default:
      wrong(node, "a cause", forms, suggestion: nearestWord(to: parts[0], among: ["exit", "signal", "class"]))
    }
    return nil
  }

  /// The unique name of a repair or plugin.
  mutating func name(
    _ node: Node?, of item: Node, _ what: String, _ names: inout [String: Node]
  ) -> String? {
    guard let node else {
      fault(item, "a \(what) without 'name'", "status and records need one")
      return nil
    }
    guard let text = text(node, "'name'") else { return nil }
    let valid = text.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"):
        true
      default: false
      }
    }
    guard valid, (1...64).contains(text.utf8.count) else {
      wrong(node, "the name of a \(what)", "1 to 64 letters, digits, '.', '_' or '-'")
      return nil
    }
    if let first = names[text] {
      fault(node, "\(what) '\(text)' is here twice", "first at line \(first.line), column \(first.column)")
      return nil
    }
    names[text] = node
    return text
  }

  private mutating func quarantine(_ node: Node?, _ spec: inout ServiceSpec) {
    guard let fields = fields(of: node, at: "quarantine", called: "'quarantine'") else { return }
    if let node = fields["retry-after"] {
      if plain(node) == "never" {
        spec.quarantine.retryAfter = nil
        warn(fields["max"], "'max' has no effect", "with 'retry-after: never' there is no trial")
      } else if let value = duration(node, "'retry-after'", atLeast: .seconds(1), or: "'never'") {
        spec.quarantine.retryAfter = value
      }
    }
    spec.quarantine.max = duration(fields["max"], "'max'", atLeast: .seconds(1)) ?? spec.quarantine.max
    if let node = fields["fallback"] { spec.quarantine.fallback = fallback(node, of: spec.name) }
    if let first = spec.quarantine.retryAfter, first > spec.quarantine.max {
      fault(
        fields["max"] ?? fields["retry-after"],
        "quarantine 'retry-after' (\(first.description)) is longer than 'max' (\(spec.quarantine.max.description))",
        "the first wait is the shortest")
    }
  }

  private mutating func fallback(_ node: Node, of service: ServiceName) -> ServiceName? {
    guard let text = text(node, "'fallback'") else { return nil }
    guard let name = ServiceName(text) else {
      wrong(node, "'fallback'", "the name of a service", "1 to 64 of a-z 0-9 . _ @ -")
      return nil
    }
    if name == service {
      // What all have in common, the one service that it names need not have.
      if node.file == mainFile { fault(node, "'\(name)' cannot be its own 'fallback'", "it is what runs in its place") }
      return nil
    }
    references.append(
      ServiceReference(
        name: name, key: "fallback", file: node.file, line: node.line, column: node.column, endColumn: node.endColumn))
    return name
  }

  private mutating func logTarget(_ node: Node) -> LogTarget? {
    let valid: [LogTarget] = [.journal, .file, .inherit, .none]
    guard let text = text(node, "'log'") else { return nil }
    if let target = valid.first(where: { $0.rawValue == text }) { return target }
    let words = valid.map(\.rawValue)
    wrong(
      node, "'log'", words.joined(separator: ", "), suggestion: nearestWord(to: text, among: words))
    return nil
  }
}

// MARK: - Shapes

extension ServiceDecoder {
  /// The values of one mapping, its keys all known.
  struct Fields {
    fileprivate let values: [String: Node]
    fileprivate let valid: [String]
    /// What unknown keys were probably meant to be; already reported.
    fileprivate let misspelt: Set<String>
    var hasMisspelt: Bool { !misspelt.isEmpty }
    subscript(key: String) -> Node? {
      assert(valid.contains(key), "'\(key)' is not in the table of keys")
      return values[key]
    }
  }

  /// Nil where there is no such node, or where it is no mapping, which is then reported.
  mutating func fields(
    of node: Node?, at path: String, in table: KeyTable = .service, called name: String
  ) -> Fields? {
    guard let node else { return nil }
    let valid = table.words(under: path)
    guard case .mapping(let entries) = node.content else {
      wrong(node, name, "a mapping with " + valid.prefix(8).joined(separator: ", ") + (valid.count > 8 ? ", …" : ""))
      return nil
    }
    var values: [String: Node] = [:]
    var misspelt: Set<String> = []
    var listed = false  // once for each mapping: the list may be long
    for entry in entries {
      guard case .scalar(let word, _) = entry.key.content else { continue }  // reported by the composer
      if valid.contains(word) {
        values[word] = entry.value
        continue
      }
      let near = nearestWord(to: word, among: valid)
      misspelt.insert(near ?? "")
      fault(
        entry.key, "unknown key '\(brief(word))'",
        near == nil && !listed ? "valid here: " + valid.joined(separator: " ") : "", suggestion: near)
      if near == nil { listed = true }
    }
    return Fields(values: values, valid: valid, misspelt: misspelt)
  }

  /// `node` with what only the defaults say; mappings are merged key by key, everything else is replaced.
  func merge(_ node: Node, over defaults: Node, at path: String) -> Node {
    guard case .mapping(let own) = node.content, case .mapping(let given) = defaults.content else { return node }
    let isPolicy = path.isEmpty || path == "environment" || !KeyTable.service.words(under: path).isEmpty
    guard isPolicy else { return node }
    var entries = own
    var places: [String: Int] = [:]
    for (index, entry) in own.enumerated() {
      if case .scalar(let word, _) = entry.key.content { places[word] = index }
    }
    for entry in given {
      guard case .scalar(let word, _) = entry.key.content else { continue }
      if let index = places[word] {
        let inner = path.isEmpty ? word : path + "." + word
        let value = merge(entries[index].value, over: entry.value, at: inner)
        entries[index] = Node.Entry(key: entries[index].key, value: value)
      } else {
        entries.append(entry)
      }
    }
    return Node(.mapping(entries), file: node.file, line: node.line, column: node.column, endColumn: node.endColumn)
  }

  mutating func list(_ node: Node?, _ name: String) -> [Node]? {
    guard let node else { return nil }
    if case .list(let items) = node.content { return items }
    wrong(node, name, "a list", "as in [one, two]")
    return nil
  }

  /// A scalar that was written without quotes; nil for everything else, without a word.
  func plain(_ node: Node) -> String? {
    if case .scalar(let text, plain: true) = node.content { text } else { nil }
  }

  /// Whether it is a number, or a share, that has more decimal places than are read.
  private func isTooFine(_ node: Node) -> Bool {
    guard let text = plain(node), let point = text.firstIndex(of: ".") else { return false }
    let places = text[text.index(after: point)...].prefix { $0.isASCII && $0.isNumber }
    let short = text[...point] + places.prefix(6) + text[places.endIndex...]
    return places.count > 6 && (Scalars.decimal(String(short)) ?? Scalars.percent(String(short))) != nil
  }

  /// Any scalar, literally; an empty or `~` one has to be quoted.
  mutating func text(_ node: Node, _ name: String) -> String? {
    guard case .scalar(let text, let plain) = node.content else {
      wrong(node, name, "text")
      return nil
    }
    if plain && (text.isEmpty || text == "~") {
      fault(node, "\(name) has no value", "write \"\" for an empty text" + (text == "~" ? ", \"~\" for a tilde" : ""))
      return nil
    }
    if text.utf8.contains(0) {
      fault(node, "\(name) contains a NUL", "no argument, path or variable can")
      return nil
    }
    return text
  }

  /// Text of one line, for people.
  mutating func oneLine(_ node: Node?, _ name: String) -> String? {
    guard let node, let text = text(node, name) else { return nil }
    let breaks: Set<UInt32> = [0x0a, 0x0d, 0x85, 0x2028, 0x2029]
    if text.unicodeScalars.contains(where: { breaks.contains($0.value) }) {
      fault(node, "\(name) must be one line", "it is shown in tables")
      return nil
    }
    if let control = text.unicodeScalars.first(where: { $0.properties.generalCategory == .control }) {
      let number = String(control.value, radix: 16, uppercase: true)
      fault(
        node,
        "\(name) contains the control character U+\(String(repeating: "0", count: 4 - number.utf8.count))\(number)",
        "it is shown on terminals, which might obey it")
      return nil
    }
    guard text.utf8.count <= 1000 else {
      fault(node, "\(name) has \(text.utf8.count) bytes", "it is shown in tables; 1000 are the most")
      return nil
    }
    return text
  }

  /// Text that reaches a program, so that a comment cut off from it is worth a word.
  mutating func argument(_ node: Node, _ name: String) -> String? {
    guard let text = text(node, name) else { return nil }
    if let comment = node.swallowed {
      warn(
        node, "'\(brief(comment))' is a comment and no part of \(name)",
        "put the value in quotes if it belongs to it, else the comment on a line of its own")
    }
    if text.utf8.count > 131_071 {
      fault(node, "\(name) is longer than 131071 bytes", "the kernel takes no longer argument or variable")
      return nil
    }
    return text
  }

  /// A list whose first element is absolute, or one line, split into words.
  mutating func command(_ node: Node, _ name: String) -> [String]? {
    var words: [String] = []
    var first = node
    switch node.content {
    case .mapping:
      wrong(node, name, "a list of arguments, or one line")
      return nil
    case .list(let items):
      for item in items {
        guard let word = argument(item, "an element of \(name)") else { continue }
        words.append(word)
      }
      if words.count < items.count { return nil }
      if let item = items.first { first = item }
    case .scalar:
      guard let line = argument(node, name) else { return nil }
      do throws(ShellWords.Fault) {
        words = try ShellWords.split(line)
      } catch {
        fault(node, "\(name): \(error.what)", error.why)
        return nil
      }
    }
    guard let program = words.first, !program.isEmpty else {
      fault(node, "\(name) is empty", "it needs the program to run")
      return nil
    }
    guard program.hasPrefix("/") else {
      let why =
        program.contains("=")
        ? "variables belong under 'environment'" : "no search path is used, so that it is always the same program"
      fault(first, "\(name) must begin with an absolute path, not '\(brief(program))'", why)
      return nil
    }
    look(at: program, .command, first, name)
    if let who = context.whoElseWrites(program) {
      warn(first, "\(name): \(who)", "who can write there decides what guardian runs")
    }
    return words
  }

  mutating func environment(_ node: Node, _ name: String) -> [EnvironmentVariable] {
    guard case .mapping(let entries) = node.content else {
      wrong(node, name, "a mapping of names to text", "as in {PORT: \"8080\"}")
      return []
    }
    var variables: [EnvironmentVariable] = []
    for entry in entries {
      guard case .scalar(let variable, _) = entry.key.content else { continue }
      let valid = variable.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7f && $0 != UInt8(ascii: "=") }
      guard valid, !variable.isEmpty else {
        fault(entry.key, "'\(brief(variable))' is no name of a variable", "blanks and '=' cannot be in one")
        continue
      }
      if Self.reserved.contains(variable) {
        fault(entry.key, "\(variable) is set by guardian itself", "it tells the program about this run")
        continue
      }
      if let value = argument(entry.value, "the value of \(brief(variable))") {
        variables.append(EnvironmentVariable(variable, value))
      }
    }
    return variables
  }

  /// What every run is told; a value in the file would be a lie.
  static let reserved: Set<String> = [
    "INVOCATION_ID", "GUARDIAN_MODE", "GUARDIAN_DISABLED_PLUGINS", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
    "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID",
  ]

  mutating func path(_ node: Node, _ name: String) -> String? {
    text(node, name).flatMap { path($0, node, name) }
  }
  private mutating func path(_ text: String, _ node: Node, _ name: String) -> String? {
    guard text.hasPrefix("/"), text.utf8.count < 4096 else {
      wrong(node, name, "an absolute path of at most 4095 bytes")
      return nil
    }
    return text
  }

  /// A path that guardian itself will change or cover: no `.`, `..` or root.
  mutating func exactPath(_ node: Node, _ name: String) -> String? {
    guard let path = path(node, name) else { return nil }
    let parts = path.split(separator: "/")
    guard !parts.isEmpty, !parts.contains("."), !parts.contains("..") else {
      fault(node, "\(name) cannot be '\(brief(path))'", "write the path itself, without '.' and '..', and not '/'")
      return nil
    }
    return "/" + parts.joined(separator: "/")
  }

  mutating func look(at path: String, _ use: ConfigurationContext.PathUse, _ node: Node, _ name: String) {
    guard let problem = context.lookAt(path, use) else { return }
    error(node, "\(name): \(brief(path)): \(problem)", "", blocks: false)
  }

  /// Users are resolved together with groups; the place is the user's where there is one.
  mutating func identity(user: Node?, group: Node?) -> Identity? {
    let userText = user.flatMap { text($0, "'user'") }
    let groupText = group.flatMap { text($0, "'group'") }
    // A value that is there and cannot be read must not become root.
    guard (user == nil) == (userText == nil), (group == nil) == (groupText == nil) else { return nil }
    guard userText != nil || groupText != nil else { return nil }
    switch context.resolveUser(userText, groupText) {
    case .failure(let problem):
      // Each of the two at its own place; a bare number may need the group that is at fault.
      var said = false
      if let userText, let groupText {
        if case .failure(let problem) = context.resolveUser(nil, groupText) {
          fault(group, problem.what)
          said = true
        }
        let isNumber = userText.utf8.allSatisfy { (0x30...0x39).contains($0) }
        if !(said && isNumber), case .failure(let problem) = context.resolveUser(userText, nil) {
          fault(user, problem.what)
          said = true
        }
      }
      if !said { fault(user ?? group, problem.what) }
      return nil
    case .success(let identity):
      if context.ownUID != 0 && identity.uid != context.ownUID {
        error(
          user ?? group, "only root can run a program as '\(brief(identity.user))'", "guardian is not root",
          blocks: false)
      }
      return identity
    }
  }

  mutating func duration(
    _ node: Node?, _ name: String, atLeast least: Duration = .zero, or other: String? = nil
  ) -> Duration? {
    guard let node else { return nil }
    guard let text = plain(node), let value = Scalars.duration(text) else {
      var why = Scalars.durationForm
      if let text = plain(node), let number = Scalars.integer(Array(text.utf8)) {
        why = "a number needs its unit, as in \(number)s"
      } else if let text = plain(node), text.hasPrefix("-") {
        why = "it cannot be negative; " + Scalars.durationForm
      }
      wrong(node, name, "a duration" + (other.map { " or " + $0 } ?? ""), why + "; at most 36500d")
      return nil
    }
    if value < least {
      fault(node, "\(name) must be at least \(least.description)", "it is \(value.description)")
      return nil
    }
    return value
  }

  mutating func integer(_ node: Node?, _ name: String, _ range: ClosedRange<Int>) -> Int? {
    guard let node else { return nil }
    if let text = plain(node) {
      let negative = text.hasPrefix("-")
      if let size = Scalars.integer(Array(text.utf8.dropFirst(negative ? 1 : 0))) {
        let value = negative ? -Int(size) : Int(size)
        if range.contains(value) { return value }
      }
    }
    wrong(node, name, "a whole number, \(range.lowerBound) … \(range.upperBound)")
    return nil
  }

  mutating func word<Word: RawRepresentable<String> & CaseIterable>(
    _ node: Node?, _ name: String, _ type: Word.Type
  ) -> Word? {
    guard let node else { return nil }
    if case .scalar(let text, _) = node.content {
      if let word = Word(rawValue: text) { return word }
      wrong(
        node, name, Self.words(type), suggestion: nearestWord(to: text, among: Word.allCases.map(\.rawValue)))
    } else {
      wrong(node, name, Self.words(type))
    }
    return nil
  }

  static func words<Word: RawRepresentable<String> & CaseIterable>(_ type: Word.Type) -> String {
    Word.allCases.map(\.rawValue).joined(separator: " or ")
  }

  // MARK: Saying it

  mutating func error(
    _ node: Node?, _ what: String, _ why: String, suggestion: String? = nil, blocks: Bool = true
  ) {
    log.add(
      Diagnostic(
        .error, file: node?.file ?? mainFile, line: node?.line, column: node?.column, endColumn: node?.endColumn,
        what: what, why: why, suggestion: suggestion), blocks: blocks)
  }
  mutating func fault(_ node: Node?, _ what: String, _ why: String = "", suggestion: String? = nil) {
    error(node, what, why, suggestion: suggestion)
  }
  /// `name` must be `wanted`, and `node` is not.
  mutating func wrong(
    _ node: Node, _ name: String, _ wanted: String, _ why: String = "", suggestion: String? = nil
  ) {
    var found = node.kind
    if case .scalar(let text, plain: false) = node.content { found = "the quoted text \"\(brief(text))\"" }
    fault(node, "\(name) must be \(wanted), not \(found)", why, suggestion: suggestion)
  }
  /// Only about what this file says: a default that one service cannot use is no fault of anybody.
  mutating func warn(_ node: Node?, _ what: String, _ why: String) {
    guard let node, node.file == mainFile else { return }
    log.add(
      Diagnostic(
        .warning, file: node.file, line: node.line, column: node.column, endColumn: node.endColumn, what: what, why: why
      ))
  }
}
