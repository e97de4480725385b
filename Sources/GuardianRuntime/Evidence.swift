import Glibc
import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel
import GuardianStore

/// Gathers what is left to be known of each death, and makes its report: the case file for whoever looks in the morning.
///
/// The decision does not wait for it. Hooks of the service do, at most `Self.patience`, so that they find a whole report on
/// their standard input. A flood of deaths is counted, not reported one by one.
final class EvidenceTable {
  /// What a run's end leaves behind until its report is begun. Replaced by the next one.
  final class Remains {
    let run: RunID
    let pid: Int32
    let usage: CrashReport.Usage?
    let leftovers: [String]
    let openDescriptors: Int?
    let group: RunGroup?
    /// Nanoseconds since 1970, before its exec; nil: by an earlier guardian.
    let begunAt: Int64?
    init(
      run: RunID, pid: Int32, usage: CrashReport.Usage?, leftovers: [String], openDescriptors: Int?, group: RunGroup?,
      begunAt: Int64?
    ) {
      self.run = run
      self.pid = pid
      self.usage = usage
      self.leftovers = leftovers
      self.openDescriptors = openDescriptors
      self.group = group
      self.begunAt = begunAt
    }
  }

  /// What is remembered of a service's last report.
  final class Last {
    var at = Instant(nanoseconds: .min)
    /// Reports of its kind, one after the other.
    var inARow = 0
    /// Within this its like is only counted.
    var pause: Duration {
      let doublings = min(max(0, inARow - EvidenceTable.toldInFull), 20)
      return min(EvidenceTable.flood * (1 << doublings), EvidenceTable.longestFlood)
    }
    var status = ExitStatus.unseen
    var coarse = CrashClass.unknown
    var finding = Finding()
    /// For hooks, until the service has settled; empty: given up.
    var body: [UInt8] = []
    /// One line, for `status`.
    var essence = ""
    var hints: [String] = []
    var id = ""
  }

  private final class Pending {
    var report: CrashReport
    let pid: Int32
    /// Not later than its first instruction.
    let begun: WallTime
    let until: Instant
    var comparison: ChangeTable.Comparison?
    /// Parts that have not come.
    var missing = 0
    var waiters: [() -> Void] = []
    var isOpen = true
    /// Asks for what was not there yet.
    var again: EventSource?
    /// Deaths of the same kind that came while it was open, and have no report of their own.
    var repeated: [WallTime] = []
    init(_ report: CrashReport, pid: Int32, begun: WallTime, until: Instant) {
      self.report = report
      self.pid = pid
      self.begun = begun
      self.until = until
    }
  }

  private unowned let shell: Shell
  /// Of each service in the order of the deaths; few, see `openAtOnce`.
  private var pending: [ServiceID: [Pending]] = [:]
  private(set) var last: [ServiceID: Last] = [:]
  /// Not written down yet, and when that is due.
  private var counted: [Counted: CountedDeaths] = [:]
  private var countedUntil: Instant?
  private var timer: EventSource?
  private var bodies = 0
  private let traces: TraceDirectories?
  /// Swift's own backtracer; nil: there is none, or it is not wanted.
  private(set) var swiftBacktrace: String?
  private var whyNoSwift = "swift-backtrace is not installed"

  /// What has not come by then is left out, and the report says so.
  static let patience = Duration.seconds(2)
  /// Another death of the same kind within this is only counted; the like of what came often before, within longer.
  private static let flood = Duration.milliseconds(300), longestFlood = Duration.minute
  /// So many in a row have reports at that pace.
  private static let toldInFull = 8
  /// Counted deaths are written down so much later at most.
  private static let countedAtOnce = Duration.seconds(1)
  private static let kernelLog = "kernel log"
  /// Of deaths just before guardian's own: how long ago, and how many.
  private static let recoverable = Duration.minute, recoveredAtOnce = 64
  /// journalctl's answer is one entry; more than this is none. Asked for again after the pause.
  private static let mostBytesOfEntry = 1 << 20, pause = Duration.milliseconds(200)
  /// Of one service.
  private static let openAtOnce = 4, repeatsOpen = 10_000
  /// Of all reports that are kept for hooks.
  private static let bodiesKept = 16 << 20

  init(_ shell: Shell) throws(SystemError) {
    self.shell = shell
    traces = try? TraceDirectories(path: shell.directories.runtime + "/backtraces")
    timer = try shell.loop.timer(.monotonic, priority: .time) { [unowned self] in giveUpLate() }
  }

  // Always the source first.
  deinit { timer?.cancel() }

  /// Something is being gathered that another program of guardian would not know of.
  var isBusy: Bool { !pending.isEmpty }

  /// - Parameter wish: `swift-backtrace:` of guardian.yaml.
  func configure(_ wish: SwiftBacktraceWish) {
    switch wish {
    case .off:
      swiftBacktrace = nil
      whyNoSwift = "swift-backtrace is off"
    case .automatic:
      let path = (environmentVariable("PATH") ?? ChildEnvironment.path).split(separator: ":").map(String.init)
      swiftBacktrace = ProgramSearch.find("swift-backtrace", in: path.filter { $0.hasPrefix("/") })
      whyNoSwift = "swift-backtrace is not installed"
    case .path(let path):
      swiftBacktrace = access(path, X_OK) == 0 ? path : nil
      whyNoSwift = "\(path) cannot be run"
    }
  }

  /// What Swift's run-time is told, so that a crash leaves a report; whatever the service itself says of it comes first.
  func prepare(_ environment: inout ChildEnvironment, _ spec: ServiceSpec) {
    guard let program = swiftBacktrace, let traces, environment["SWIFT_BACKTRACE"] == nil else { return }
    let identity = spec.process.identity ?? shell.ownIdentity
    guard let directory = traces.prepare(spec.name, uid: identity.uid, gid: identity.gid) else { return }
    environment["SWIFT_BACKTRACE"] =
      "enable=yes,interactive=no,color=no,format=json,output-to=\(directory)/,swift-backtrace=\(program)"
  }

  // MARK: A death

  /// Begins the report of a death; `examined` follows, in this turn where there is nothing to wait for.
  func examine(_ begun: CrashReport, for service: ServiceID) {
    let facts = shell.runs.facts[service]
    let remains = facts?.remains?.run == begun.end.run ? facts?.remains : nil
    facts?.remains = nil
    let now = SystemClocks.monotonic()
    if let last = last[service], now - last.at < last.pause, last.status == begun.end.status,
      last.coarse == begun.end.crashClass, let signature = last.finding.signature
    {
      count(begun, signature, now)
      return shell.post(service, .examined(begun.end.run, last.finding))
    }
    let open = pending[service] ?? []
    if let same = open.last, same.report.end.status == begun.end.status,
      same.report.end.crashClass == begun.end.crashClass, same.repeated.count < Self.repeatsOpen
    {
      same.repeated.append(begun.end.at)
      return shell.post(service, .examined(begun.end.run, Finding()))
    }
    if open.count >= Self.openAtOnce, let oldest = open.first { complete(oldest, service) }
    var report = begun
    if let remains {
      report.usage = remains.usage
      report.leftovers = remains.leftovers
      report.openDescriptors = remains.openDescriptors
      if let group = remains.group { report.memory = group.groups.memoryEvidence(group.name) }
    }
    let pid = remains?.pid ?? 0
    let since = report.end.at.nanoseconds.subtractingSaturating(report.end.uptime.nanoseconds)
    let begun = Pending(
      report, pid: pid, begun: WallTime(nanoseconds: min(since, remains?.begunAt ?? since)), until: now + Self.patience)
    pending[service, default: []].append(begun)
    begun.missing = 1  // Nothing completes it while its parts are being asked for.
    if pid > 0 { askForBacktrace(begun, service) }
    askForOutput(begun, service)
    askForChanges(begun, service)
    arrived(begun, service)
    armTimer()
  }

  /// A death that guardian itself did not outlive long enough to report it: what is still to be had of it is kept now.
  func recover(_ services: [ServiceID]) {
    let now = SystemClocks.now().wall.nanoseconds
    var recovered = 0
    for service in services where recovered < Self.recoveredAtOnce {
      guard let machine = shell.fleet.machine(of: service), let end = machine.record.lastEnd,
        ![.ordered, .clean].contains(end.crashClass),
        now.subtractingSaturating(end.at.nanoseconds) < Self.recoverable.nanoseconds
      else { continue }
      recovered += 1
      let step = machine.record.step
      shell.store.ask(.report(idPrefix: end.run.description)) { [weak self] answer in
        guard let self, case .reports(let found) = answer, found.isEmpty, let spec = shell.fleet.spec(of: service)
        else {
          return
        }
        let facts = shell.runs.facts(of: service)
        if facts.log.isEmpty { facts.log = shell.logName(spec.log) }
        examine(
          CrashReport(
            service: spec.name, end: end, kind: .ordinary, wasReady: false, settled: false, disabledPlugins: [],
            step: step), for: service)
      }
    }
  }

  // MARK: Deaths that are only counted

  /// Written down together, now and then.
  private func count(_ report: CrashReport, _ signature: Signature, _ now: Instant) {
    let key = Counted(service: report.service, signature: signature.value)
    if counted[key] == nil, counted.isEmpty {
      countedUntil = now + Self.countedAtOnce
      armTimer()
    }
    counted[
      key,
      default: CountedDeaths(
        service: report.service, signature: signature, count: 0, first: report.end.at, last: report.end.at)
    ].count += 1
    counted[key]?.last = report.end.at
  }

  /// What has been counted is written down now.
  func writeCounted() {
    countedUntil = nil
    guard !counted.isEmpty else { return }
    shell.store.submit(counted: Array(counted.values), now: SystemClocks.now())
    counted = [:]
  }

  private struct Counted: Hashable {
    var service: ServiceName
    var signature: UInt64
  }

  private func arrived(_ open: Pending, _ service: ServiceID) {
    open.missing -= 1
    if open.missing <= 0, open.isOpen { complete(open, service) }
  }

  private func askForOutput(_ open: Pending, _ service: ServiceID) {
    let log = shell.runs.facts[service]?.log ?? ""
    guard log == "file" || log == "journal", open.report.end.hadBegun else {
      open.report.output = LastOutput(missing: "not captured (log: \(log.isEmpty ? "none" : log))")
      return
    }
    open.missing += 1
    let end = open.report.end
    let time = OutputTable.RunTime(pid: open.pid, begun: open.begun, ended: end.at)
    shell.outputTable.lastOutput(of: end.run, service: service, time) { [weak self, weak open] output in
      guard let self, let open, open.isOpen else { return }
      open.report.output = output
      arrived(open, service)
    }
  }

  private func askForChanges(_ open: Pending, _ service: ServiceID) {
    open.missing += 1
    let accepted = shell.changes.compare(service, open.report) { [weak self, weak open] comparison in
      guard let self, let open, open.isOpen else { return }
      open.comparison = comparison
      arrived(open, service)
    }
    if !accepted { open.missing -= 1 }
  }

  /// By whatever has seen it: Swift's own backtracer, the kernel's log, systemd-coredump.
  private func askForBacktrace(_ open: Pending, _ service: ServiceID) {
    guard case .signal(let signal, let core) = open.report.end.status else {
      open.report.backtrace = CrashReport.Backtrace(missing: "none, because no signal ended it")
      return
    }
    let crashes: Set<Signal> = [.ill, .trap, .abrt, .segv, .bus, .fpe, .sys]
    guard crashes.contains(signal) else {
      open.report.backtrace = CrashReport.Backtrace(missing: "none, because SIG\(signal) is no crash")
      return
    }
    let name = open.report.service, pid = open.pid
    let traces = swiftBacktrace == nil ? nil : self.traces
    let tellsKernel = [.segv, .ill, .fpe, .bus, .trap].contains(signal)
    let wantsDump = core
    open.missing += 1
    let accepted = shell.worker.submit({ () -> Traces in
      var found = Traces()
      if let bytes = traces?.take(name, pid: pid) {
        found.backtrace = bytes.withUnsafeBufferPointer(parseSwiftBacktrace)
      }
      if tellsKernel, found.backtrace == nil { found.kernel = KernelLog.crash(of: pid) }
      found.dumpsGoToSystemd = wantsDump && found.backtrace == nil && CoreDumps.goToSystemd
      return found
    }) { [weak self, weak open] found in
      guard let self, let open, open.isOpen else { return }
      take(found, into: open, core: core)
      if found.dumpsGoToSystemd { askForDump(open, service) }
      arrived(open, service)
    }
    if !accepted {
      open.missing -= 1
      open.report.backtrace = CrashReport.Backtrace(missing: "none, because the disk is too slow")
    }
  }

  private struct Traces: Sendable {
    var backtrace: CrashReport.Backtrace?
    var kernel: KernelLog.Crash?
    var dumpsGoToSystemd = false
  }

  private func take(_ found: Traces, into open: Pending, core: Bool) {
    if let backtrace = found.backtrace {
      open.report.backtrace = backtrace
    } else {
      let dump = core ? "its core dump did not go to systemd-coredump" : "it has left no core dump"
      open.report.backtrace = CrashReport.Backtrace(
        missing: swiftBacktrace == nil
          ? "none, because \(whyNoSwift) and \(dump)" : "none, because it is no Swift program and \(dump)")
    }
    guard let kernel = found.kernel else { return }
    open.report.backtrace.access = kernel.access
    // One frame is no backtrace, and yet it tells one crash from another.
    if let frame = kernel.frame {
      open.report.backtrace.frames = [frame]
      open.report.backtrace.source = Self.kernelLog
    }
  }

  /// The journal's entry comes when systemd-coredump is done with the dump; it is asked for now and then until the report
  /// has to be complete.
  private func askForDump(_ open: Pending, _ service: ServiceID) {
    guard let journalctl = HelperTable.program("journalctl") else { return }
    open.missing += 1
    let boot = BootID.current().filter { $0 != "-" && !$0.isWhitespace }
    let command = [
      journalctl, "--quiet", "--no-pager", "--output=json", "--lines=1", "--reverse",
      "MESSAGE_ID=fc2e22bc6ee647b6b90729ab34a250b1", "COREDUMP_PID=\(open.pid)", "_BOOT_ID=\(boot)",
    ]
    func ask() {
      let left = open.until - SystemClocks.monotonic()
      guard open.isOpen, left > .zero else { return }
      shell.helpers.ask(command, limit: Self.mostBytesOfEntry, patience: left) { [weak self, weak open] answer in
        guard let self, let open, open.isOpen else { return }
        let found = answer.output.withUnsafeBufferPointer {
          parseCoredumpEntry($0, pid: open.pid, bootID: boot, since: open.begun)
        }
        guard var found else {
          open.again?.arm(at: (SystemClocks.monotonic() + Self.pause).nanoseconds)
          return
        }
        found.access = found.access ?? open.report.backtrace.access
        open.report.backtrace = found
        arrived(open, service)
      }
    }
    open.again = try? shell.loop.timer(.monotonic, priority: .time) { [weak open] in if open != nil { ask() } }
    ask()
  }

  // MARK: The report

  private func giveUpLate() {
    let now = SystemClocks.monotonic()
    if let countedUntil, countedUntil <= now { writeCounted() }
    for (service, open) in pending.flatMap({ service, list in list.map { (service, $0) } }) where open.until <= now {
      if open.missing > 0, open.report.backtrace.frames.isEmpty, open.report.backtrace.missing == "not looked for" {
        open.report.backtrace.missing = "none came within \(Self.patience.description)"
      }
      if open.report.output.missing == "not captured" {
        open.report.output.missing = "not known within \(Self.patience.description)"
      }
      complete(open, service)
    }
    armTimer()
  }

  private func armTimer() {
    if let first = (pending.values.compactMap { $0.first?.until } + [countedUntil].compactMap { $0 }).min() {
      timer?.arm(at: first.nanoseconds)
    } else {
      timer?.disarm()
    }
  }

  /// Guardian goes down, or another program of it takes over: what is there has to do.
  func completeAll() {
    writeCounted()
    for service in Array(pending.keys) { completeAll(of: service) }
  }

  private func completeAll(of service: ServiceID) { for open in pending[service] ?? [] { complete(open, service) } }

  private func complete(_ open: Pending, _ service: ServiceID) {
    open.isOpen = false
    open.again = nil
    pending[service]?.removeAll { $0 === open }
    if pending[service]?.isEmpty ?? false { pending[service] = nil }
    var report = open.report
    let finer = refined(report.end, lines: report.output.lines, access: report.backtrace.access)
    if let finer { report.end.crashClass = finer }
    let line = report.output.lines.last { $0.contains { !$0.isWhitespace } } ?? ""
    // The kernel tells of ten crashes within five seconds and not of the eleventh.
    let frames = report.backtrace.source == Self.kernelLog ? [] : report.backtrace.frames
    let signature = signature(of: report.end, frames: frames, lastLine: line)
    report.end.signature = signature
    var finding = Finding(crashClass: finer, signature: signature)
    if let standing = shell.fleet.standing(of: service) {
      report.stepAfter = standing.step
      report.strikes = standing.strikes
      report.strikesAllowed = standing.allowed
      report.reason = standing.reason
    }
    if let spec = shell.fleet.spec(of: service) {
      report.environment = ChildEnvironment.names(spec)
    }
    if let comparison = open.comparison { report.changes = shell.changes.hints(comparison, for: service, report) }
    finding.plugins = hints(report.changes, for: service)
    report.repairs = shell.runs.facts[service]?.repairs ?? ""
    let body = encode(report)
    shell.store.submit(
      reports: [
        StoredReport(
          id: report.end.run, service: report.service, at: report.end.at, signature: signature,
          crashClass: report.end.crashClass.rawValue, cause: report.end.cause.name, text: report.end.description,
          body: body)
      ], now: SystemClocks.now())
    if let first = open.repeated.first, let last = open.repeated.last {
      shell.store.submit(
        counted: [
          CountedDeaths(
            service: report.service, signature: signature, count: open.repeated.count, first: first, last: last)
        ], now: SystemClocks.now())
    }
    remember(report, finding, body, for: service)
    shell.post(service, .examined(report.end.run, finding))
    for waiter in open.waiters { waiter() }
  }

  /// What the changes say of plugins: those whose files have changed.
  private func hints(_ changes: [ChangeHint], for service: ServiceID) -> [PluginHint] {
    (shell.fleet.spec(of: service)?.process.plugins ?? []).compactMap { plugin in
      let scores = changes.filter { change in
        plugin.paths.contains { change.what.hasPrefix($0 + ",") || change.what.hasPrefix($0 + " ") }
      }.map(\.score)
      return scores.max().map { PluginHint(plugin: plugin.name, score: $0) }
    }
  }

  private func remember(_ report: CrashReport, _ finding: Finding, _ body: [UInt8], for service: ServiceID) {
    let last = last[service] ?? Last()
    self.last[service] = last
    let isSame = last.status == report.end.status && last.finding.signature == finding.signature
    last.inARow = isSame ? last.inARow + 1 : 1
    bodies -= last.body.count
    last.at = SystemClocks.monotonic()
    last.status = report.end.status
    last.coarse = report.end.crashClass.coarse
    last.finding = finding
    last.id = report.end.run.description
    last.hints = report.changes.map { hint in
      hint.score == 0
        ? hint.what
        : "changed since it was last well: \(hint.what)" + (hint.at.map { ", \(ChangeTable.text($0))" } ?? "")
    }
    last.essence = essence(report)
    last.body = bodies + body.count <= Self.bodiesKept ? body : []
    bodies += last.body.count
  }

  /// One line: where it crashed, else its last words.
  private func essence(_ report: CrashReport) -> String {
    let frames = usefulFrames(report.backtrace.frames)
    // What has a place in a source file is more likely the service's own than what has none.
    if let frame = frames.first(where: { !$0.place.isEmpty }) ?? frames.first {
      let says = report.backtrace.says
      return (says.isEmpty ? "" : "\(says), ") + "in \(frame.function.isEmpty ? frame.module : frame.function)"
        + (frame.place.isEmpty ? "" : " (\(frame.place))")
    }
    return report.output.lines.last { $0.contains { !$0.isWhitespace } } ?? ""
  }

  /// `then` runs when the report of the service's last death is complete: at once where none is open.
  func whenComplete(_ service: ServiceID, then: @escaping () -> Void) {
    if let open = pending[service]?.last { open.waiters.append(then) } else { then() }
  }

  /// The last report's document; empty: there is none any more.
  func body(of service: ServiceID) -> [UInt8] { last[service]?.body ?? [] }

  /// For `status`: what the last report of this guardian's life comes to.
  func notes(of service: ServiceID) -> [String] {
    guard let last = last[service] else { return [] }
    let id = String(last.id.prefix(8))
    return ["crash \(id)" + (last.essence.isEmpty ? "" : ": \(last.essence)")]
      + last.hints
  }

  /// It has settled: nobody will be told of the last death any more.
  func settled(_ service: ServiceID) {
    guard let last = last[service] else { return }
    bodies -= last.body.count
    last.body = []
  }

  func forget(_ service: ServiceID) {
    completeAll(of: service)
    if let last = last.removeValue(forKey: service) { bodies -= last.body.count }
  }
}
