import Glibc
import GuardianCore
import GuardianControl
import GuardianLinux
import GuardianModel

/// Where the output of runs goes that is to come to files: to `guardian-logger`, a process of its own, which outlives
/// guardian. Guardian makes the pipes and hands over their read ends; it keeps a duplicate of each until the logger has
/// written all that was in it, and never reads from one.
///
/// **The logger's death.** A new one is started and gets all pipes again, at once the first time, later and later where it
/// keeps dying. Meanwhile the pipes fill, and who writes waits; nobody dies of SIGPIPE.
///
/// **Guardian's death.** The logger goes on. The next guardian finds it by its socket in the runtime directory and gets
/// duplicates of all pipes back; where it has gone too, a pipe is got back from the run itself, which has both ends.
final class OutputTable {
  private final class Pipe {
    let service: ServiceName
    var read: OwnedFD?
    /// Until the run is on its way.
    var write: OwnedFD?
    /// Nobody of the run is left.
    var over = false
    init(_ service: ServiceName, read: consuming OwnedFD?, write: consuming OwnedFD? = nil) {
      self.service = service
      self.read = read
      self.write = write
    }
  }
  private struct Question {
    var run: RunID, service: ServiceName
    var deadline: Instant
    var then: (LastOutput) -> Void
  }

  private unowned let shell: Shell
  private var spec = LogsSpec()
  /// What `logs:` says is known; a logger that lives must not be told anything else before.
  private var isConfigured = false
  private var pipes: [RunID: Pipe] = [:]
  /// Of runs that an earlier guardian started: to be got back from the logger, else from the process itself.
  private var missed: [RunID: (service: ServiceName, pid: Int32)] = [:]
  private var connection: MessageSocket?
  private var source: EventSource?
  /// The process behind it.
  private var pid: Int32?
  private var handle: OwnedFD?
  /// What the logger has been told, and what is to be told it; of `take` the pipe goes with it.
  private var orders: [LogOrder] = []
  /// The logger has told of everything that it held when this guardian came.
  private var isKnown = false
  private var questions: [UInt64: Question] = [:]
  private var serial: UInt64 = 0
  private var timer: EventSource?
  private var startAt: Instant?
  private var startedAt = Instant(nanoseconds: .min)
  private var failures = 0
  private var complaint: String?
  private var finishBy: Instant?
  /// Services whose output is not written now, and why.
  private(set) var troubles: [ServiceName: String] = [:]
  /// Bytes that were dropped since guardian's start.
  private(set) var dropped: [ServiceName: UInt64] = [:]

  static let program = "guardian-logger"
  private static let firstPause = Duration.milliseconds(100), longestPause = Duration.seconds(5)
  /// A logger that has lived so long has done well.
  private static let goodLife = Duration.seconds(10)
  /// After so many failures in a row new runs write where guardian does.
  private static let failuresTolerated = 5
  private static let questionsAtOnce = 256
  /// Pipes of runs that are over and not yet written, of one service.
  private static let leftPipes = 8
  private static let finishPatience = Duration.seconds(5)
  private static let newsAtOnce = 64

  init(_ shell: Shell) throws(SystemError) {
    self.shell = shell
    timer = try shell.loop.timer(.monotonic, priority: .time) { [unowned self] in timePassed() }
  }
  deinit { source?.cancel() }

  private var path: String { shell.directories.runtime + "/logger.sock" }
  var directory: String { spec.directory ?? shell.directories.logs }
  static var isInstalled: Bool { Companions.program(program) != nil }
  func isLogger(_ pid: Int32) -> Bool { self.pid == pid }
  var loggerPid: Int32? { pid }
  func file(of service: ServiceName) -> String { "\(directory)/\(service)/\(LogFormat.current)" }

  static var missing: String {
    "\(program) is neither beside guardian nor in ../libexec/guardian: services with 'log: file' write where guardian does"
  }

  // MARK: Configuration

  /// In force at once, for runs under way too.
  func configure(_ spec: LogsSpec) {
    if isConfigured, spec == self.spec { return }
    self.spec = spec
    isConfigured = true
    tell(.configure(spec, directory: directory))
  }

  /// Before anything is taken over, or ended: is there a logger of an earlier guardian?
  func lookForLogger() {
    guard connection == nil else { return }
    connect()
  }

  // MARK: Runs

  /// The descriptor for a run's output, borrowed until `begun`; nil where it cannot come to a file now.
  func open(_ run: RunID, _ service: ServiceName, owner: UInt32?) throws(SystemError) -> Int32? {
    guard Self.isInstalled else {
      complain(Self.missing)
      return nil
    }
    if connection == nil, failures >= Self.failuresTolerated { return nil }
    let ends = try OutputPipe.make(owner: owner)
    pipes[run] = Pipe(service, read: OwnedFD(adopting: ends.read), write: OwnedFD(adopting: ends.run))
    if connection == nil { startIfDue() }
    tell(.take(run, service: service))
    return ends.run
  }

  /// It has its output now, or will never have it.
  func begun(_ run: RunID) { pipes[run]?.write = nil }

  /// Nobody of it is left.
  func ended(_ run: RunID) {
    missed[run] = nil
    guard let pipe = pipes[run], !pipe.over else { return }
    pipe.write = nil
    pipe.over = true
    tell(.ended(run))
    left[pipe.service, default: []].append(run)
    // Only where the logger does not come to it for long.
    if let oldest = left[pipe.service]?.first, left[pipe.service]?.count ?? 0 > Self.leftPipes { letGo(oldest) }
  }
  /// Runs that are over and whose pipes are kept, the oldest first.
  private var left: [ServiceName: [RunID]] = [:]

  private func letGo(_ run: RunID) {
    guard let pipe = pipes.removeValue(forKey: run), pipe.over else { return }
    left[pipe.service]?.removeAll { $0 == run }
    if left[pipe.service]?.isEmpty ?? false { left[pipe.service] = nil }
  }

  /// A run that an earlier guardian started: its pipe is to be got back.
  func adopt(_ run: RunID, _ service: ServiceName, pid: Int32) {
    guard pipes[run] == nil else { return }
    missed[run] = (service, pid)
    if connection == nil { startIfDue() } else if isKnown { fetch() }
  }

  /// From the runs themselves, which the logger does not know: it has died while no guardian was there.
  private func fetch() {
    for (run, (service, pid)) in missed {
      guard let end = ReadyPipe.reopen(1, of: pid) ?? ReadyPipe.reopen(2, of: pid) else { continue }
      pipes[run] = Pipe(service, read: OwnedFD(adopting: end))
      tell(.take(run, service: service))
    }
    missed = [:]
  }

  // MARK: The last words of a run

  /// Answers within `LastOutput.patience`, and never before this has returned.
  ///
  /// - Parameter time: When the run was there, and its main process: for those whose words are in the journal.
  func lastOutput(
    of run: RunID, service: ServiceID, _ time: RunTime, then: @escaping (LastOutput) -> Void
  ) {
    guard let name = shell.names[service] else { return later(LastOutput(missing: "the service is gone"), then) }
    switch shell.runs.facts[service]?.log ?? "" {
    case "file": ask(run, name, then)
    case "journal": askJournal(name, time, then)
    case "": later(LastOutput(missing: "not captured"), then)
    case "degraded": later(LastOutput(missing: "not captured (log: degraded)"), then)
    case let other: later(LastOutput(missing: "not captured (log: \(other))"), then)
    }
  }

  struct RunTime {
    var pid: Int32
    /// Not later than its first instruction.
    var begun: WallTime
    var ended: WallTime
  }

  private func later(_ answer: LastOutput, _ then: @escaping (LastOutput) -> Void) {
    hasAnswers.append { then(answer) }
    timer?.arm(at: SystemClocks.monotonic().nanoseconds)
  }
  private var hasAnswers: [() -> Void] = []

  private func ask(_ run: RunID, _ service: ServiceName, _ then: @escaping (LastOutput) -> Void) {
    guard connection != nil || startAt != nil || !pipes.isEmpty else {
      return later(LastOutput(missing: "not known: \(Self.program) does not run"), then)
    }
    guard questions.count < Self.questionsAtOnce else {
      return later(LastOutput(missing: "not asked for: too many deaths at once"), then)
    }
    serial += 1
    let deadline = SystemClocks.monotonic() + LastOutput.patience
    questions[serial] = Question(run: run, service: service, deadline: deadline, then: then)
    if isKnown { tell(.show(serial, run, service: service)) }
    arm()
  }

  /// journald is asked to write what it has, and then what it has is read.
  private func askJournal(_ service: ServiceName, _ time: RunTime, _ then: @escaping (LastOutput) -> Void) {
    guard let program = HelperTable.program("journalctl") else {
      return later(LastOutput(missing: "not read: journalctl is not there"), then)
    }
    let begun = SystemClocks.monotonic()
    let half = LastOutput.patience / 2 - .milliseconds(100)
    shell.helpers.ask([program, "--sync"], limit: 0, patience: half) { [weak self] synced in
      guard let self else { return }
      let from = max(0, time.begun.nanoseconds) / 1000, to = max(0, time.ended.nanoseconds) / 1000
      // The next run may have begun to talk, so that the last lines are not all of this one.
      let command = [
        program, "--quiet", "--no-pager", "--all", "--output=json", "--output-fields=MESSAGE,_PID,_STREAM_ID",
        "--lines=\(4 * LastOutput.mostLines)", "--since=@\(Self.seconds(time.begun))", "_TRANSPORT=stdout",
        "SYSLOG_IDENTIFIER=\(service)",
      ]
      let left = LastOutput.patience - (SystemClocks.monotonic() - begun) - .milliseconds(100)
      shell.helpers.ask(command, limit: 16 * LastOutput.mostBytes, patience: max(.milliseconds(200), left)) { answer in
        guard answer.status == .code(0) else {
          return then(LastOutput(missing: "the journal was not read: \(answer.trouble ?? "journalctl failed")"))
        }
        // The first one may have been cut, and is none then.
        let lines = answer.output.split(separator: UInt8(ascii: "\n")).compactMap { journalLine($0) }
        let own = journalLines(lines, pid: time.pid, begun: from, ended: to)
        var output = LastOutput(lastOf: own.map { String(decoding: $0.entry.text, as: UTF8.self) })
        if synced.status != .code(0) {
          output.missing = "perhaps not all of it: the journal was not written up to date"
        }
        then(output)
      }
    }
  }

  /// `1764510337.123456`, as journalctl takes it.
  private static func seconds(_ wall: WallTime) -> String {
    let micro = String(max(0, wall.nanoseconds) / 1000 % 1_000_000)
    return "\(max(0, wall.nanoseconds) / 1_000_000_000)." + String(repeating: "0", count: 6 - micro.utf8.count) + micro
  }

  // MARK: The logger

  private func tell(_ order: LogOrder) {
    // Without a connection there is nothing to remember: the next logger is told of everything that is there.
    guard connection != nil else { return }
    orders.append(order)
    flush()
  }

  private func flush() {
    var sent = 0
    loop: while sent < orders.count, let connection {
      var passing: Int32?
      if case .take(let run, _) = orders[sent] {
        guard let read = pipes[run]?.read.number else {
          sent += 1
          continue
        }
        passing = read
      }
      switch connection.send(orders[sent].bytes, passing: passing) {
      case .sent: sent += 1
      case .full: break loop
      case .broken:
        orders = []
        return lost()
      }
    }
    orders.removeFirst(sent)
    source?.wait(for: orders.isEmpty ? .read : [.read, .write])
  }

  /// - Returns: Whether there is one.
  @discardableResult private func connect() -> Bool {
    do throws(SystemError) {
      guard let made = try MessageSocket.connect(path) else { return false }
      // Whoever has the runtime directory could be it; it is asked for nothing but what it has been given.
      guard made.peer.uid == geteuid() || made.peer.uid == 0 else {
        complain("\(path) belongs to uid \(made.peer.uid)")
        return false
      }
      source = try shell.loop.onIO(made.descriptor, .read, priority: .outcomes) { [unowned self] events in
        if events.contains(.write) { flush() }
        hear()
      }
      connection = made
      pid = made.peer.pid
      handle = try? ProcessHandle.open(made.peer.pid)
      startedAt = SystemClocks.monotonic()
      startAt = nil
      isKnown = false
      if isConfigured { orders = [.configure(spec, directory: directory)] }
      flush()
      return connection != nil
    } catch {
      complain("\(Self.program) cannot be reached: \(error)")
      return false
    }
  }

  /// Begins at once, unless one has just failed.
  private func startIfDue() {
    guard connection == nil, startAt == nil, finishBy == nil else { return }
    if connect() { return }
    start()
  }

  private func start() {
    startAt = nil
    guard let program = Companions.program(Self.program) else { return complain(Self.missing) }
    // One that hangs is not to write beside the next one.
    if let number = handle.number { _ = try? ProcessHandle.signal(number, .kill) }
    handle = nil
    do throws(SystemError) {
      let listener = try MessageSocket.listen(path)
      var request = SpawnRequest(command: [program], environment: ["PATH=/usr/bin:/bin"])
      request.input = .descriptor(listener.number)
      request.error = .inherit
      switch shell.spawner.spawn(request) {
      case .failed(let failure):
        complain(failure.sentence)
        return startLater()
      case .started(let child):
        pid = child.pid
        handle = child.takeHandle()
      case .pending(let pending): pid = pending.pid
      }
      let own = pid
      guard connect() else { return startLater() }
      // The listener was guardian's, and so the kernel takes guardian for who is at its other end.
      pid = own
      if let own { handle = try? ProcessHandle.open(own) }
    } catch {
      complain("\(Self.program) cannot be started: \(error)")
      startLater()
    }
  }

  private func startLater() {
    guard finishBy == nil else { return }
    failures += 1
    var pause = Self.firstPause
    for _ in 1..<min(failures, 10) where failures > 1 { pause = min(pause * 2, Self.longestPause) }
    startAt = SystemClocks.monotonic() + pause
    arm()
  }

  /// The connection is gone: so is the logger, or it is about to be.
  private func lost() {
    guard connection != nil else { return }
    source?.cancel()
    source = nil
    connection = nil
    isKnown = false
    orders = []
    if finishBy != nil { return }
    if SystemClocks.monotonic() - startedAt > Self.goodLife { failures = 0 }
    if pipes.isEmpty && missed.isEmpty && questions.isEmpty { return }
    shell.log.note(.warning, "\(Self.program) has ended; it is started again, and whoever writes waits until then")
    startLater()
  }

  /// - Returns: False if the process is not the logger.
  func ended(_ end: ChildReaper.Ended) -> Bool {
    guard end.pid == pid else { return false }
    pid = nil
    handle = nil
    lost()
    return true
  }

  private func hear() {
    for _ in 0..<Self.newsAtOnce {
      guard let connection else { return }
      switch connection.receive(atMost: LogNews.largest) {
      case .nothing: return
      case .tooLong: continue
      case .ended:
        lost()
        // Of one that is no child nobody else tells.
        if let pid, ProcessLook(pid)?.isDead ?? true, ProcessLook(pid)?.parent != getpid() { self.pid = nil }
        return
      case .message(let bytes, let passed):
        let news = LogNews(bytes)
        if case .held(let run, let service) = news, let passed {
          held(run, service, OwnedFD(adopting: passed))
          continue
        }
        if let passed { close(passed) }
        if let news { heard(news) }
      }
    }
  }

  private func held(_ run: RunID, _ service: ServiceName, _ read: consuming OwnedFD) {
    guard pipes[run] == nil else { return }
    pipes[run] = Pipe(service, read: read)
    if missed.removeValue(forKey: run) == nil {
      // It has ended while no guardian was there. Whether its set has too, is known when all are taken over.
      unclaimed.insert(run)
    }
  }
  /// Held by the logger, and of no run that is known yet.
  private var unclaimed: Set<RunID> = []

  private func heard(_ news: LogNews) {
    switch news {
    case .held: break
    case .ready:
      isKnown = true
      // What it has already it does not take twice.
      for (run, pipe) in pipes.sorted(by: { ($0.key.high, $0.key.low) < ($1.key.high, $1.key.low) }) {
        tell(.take(run, service: pipe.service))
        if pipe.over { tell(.ended(run)) }
      }
      fetch()
      for (number, question) in questions.sorted(by: { $0.key < $1.key }) {
        tell(.show(number, question.run, service: question.service))
      }
      let known = Set(shell.runs.all.map(\.id)).union(shell.hooks.all.map(\.request.id))
      for run in unclaimed where !known.contains(run) { ended(run) }
      unclaimed = []
    case .closed(let run): letGo(run)
    case .shown(let number, let output):
      guard let question = questions.removeValue(forKey: number) else { return }
      question.then(output)
    case .trouble(let service, let why):
      troubles[service] = printable(why, atMost: 512)
      shell.log.note(.warning, "\(service): its output is not written: \(printable(why, atMost: 512))")
    case .recovered(let service, let bytes):
      troubles[service] = nil
      if bytes > 0 { dropped[service, default: 0] &+= bytes }
      shell.log.note(
        .warning,
        "\(service): its output is written again" + (bytes > 0 ? "; \(bytes) bytes of it were dropped" : ""))
    case .note(let text): shell.log.note(.warning, "\(Self.program): \(printable(text, atMost: 512))")
    }
  }

  /// For `status`.
  func notes(of service: ServiceName) -> [String] {
    var notes: [String] = []
    if let why = troubles[service] { notes.append("its output is not written: \(why)") }
    if let bytes = dropped[service] { notes.append("\(bytes) bytes of its output were dropped") }
    return notes
  }

  func forget(_ service: ServiceName) {
    troubles[service] = nil
    dropped[service] = nil
  }

  private func complain(_ what: String) {
    if complaint != what { shell.log.note(.warning, what) }
    complaint = what
  }

  // MARK: Time

  private func arm() {
    var next: Instant?
    for instant in [startAt, finishBy] + questions.values.map({ Optional($0.deadline) }) {
      if let instant { next = min(next ?? instant, instant) }
    }
    if !hasAnswers.isEmpty { next = SystemClocks.monotonic() }
    if let next { timer?.arm(at: next.nanoseconds) } else { timer?.disarm() }
  }

  private func timePassed() {
    let answers = hasAnswers
    hasAnswers = []
    for answer in answers { answer() }
    let now = SystemClocks.monotonic()
    for (number, question) in questions where now >= question.deadline {
      questions[number] = nil
      question.then(LastOutput(missing: "\(Self.program) did not answer within \(LastOutput.patience.description)"))
    }
    if let startAt, now >= startAt, !connect() { start() }
    arm()
  }

  // MARK: The end

  /// Guardian goes down, and nothing runs any more.
  ///
  /// - Returns: True as soon as the logger has written everything and has gone, or has been given up.
  func isFinished() -> Bool {
    guard finishBy == nil else {
      if pid == nil { return true }
      if let finishBy, SystemClocks.monotonic() < finishBy { return false }
      shell.log.note(.warning, "\(Self.program) has not ended in time: the last of the output may be lost")
      if let number = handle.number { _ = try? ProcessHandle.signal(number, .kill) }
      pid = nil
      return true
    }
    guard connection != nil, let pid else { return true }
    finishBy = SystemClocks.monotonic() + Self.finishPatience
    tell(.finish)
    // One that is not guardian's child is told by nobody else.
    if ProcessLook(pid)?.parent != getpid() { watchEnd() }
    arm()
    return false
  }

  private func watchEnd() {
    guard let number = handle.number else { return }
    endSource = try? shell.loop.onIO(number, .read, priority: .outcomes) { [unowned self] _ in
      endSource?.cancel()
      endSource = nil
      pid = nil
    }
  }
  private var endSource: EventSource?
}
