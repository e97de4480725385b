import Glibc
import GuardianLinux
import GuardianModel

/// Programs of the machine that answer a question by what they print, as `journalctl`: guardian's own libraries would wait
/// for the answer, or take memory for good.
///
/// Each has an end: by itself, or when its time is over. What it prints beyond a bound is let go.
final class HelperTable {
  struct Answer {
    /// What it printed, at most as much as was asked for; the last of it.
    var output: [UInt8]
    /// Nil: it was not there, could not be started, or was ended for taking too long.
    var status: ExitStatus?
    /// Why there is no status.
    var trouble: String?
  }

  private final class Helper {
    /// Nil: answered. Nobody is answered twice.
    var then: ((Answer) -> Void)?
    let limit: Int
    var child: RunningChild?
    var pipe: OwnedFD?
    var source: EventSource?
    var output: [UInt8] = []
    var status: ExitStatus?
    let deadline: Instant
    init(limit: Int, deadline: Instant, then: @escaping (Answer) -> Void) {
      self.limit = limit
      self.deadline = deadline
      self.then = then
    }
    deinit { source?.cancel() }
  }

  private unowned let shell: Shell
  private var helpers: [Int32: Helper] = [:]
  private var waiting: [([String], Int, Duration, (Answer) -> Void)] = []
  private var timer: EventSource?
  private var serial: UInt64 = 0

  private static let atOnce = 4
  private static let queue = 64

  init(_ shell: Shell) throws(SystemError) {
    self.shell = shell
    timer = try shell.loop.timer(.monotonic, priority: .time) { [unowned self] in endLate() }
  }

  func isHelper(_ pid: Int32) -> Bool { helpers[pid] != nil }
  var isEmpty: Bool { helpers.isEmpty }

  /// In /usr/bin or /bin; nil where there is none.
  static func program(_ name: String) -> String? {
    ["/usr/bin/", "/bin/"].map { $0 + name }.first { access($0, X_OK) == 0 }
  }

  /// - Parameters:
  ///   - command: An absolute path and its arguments.
  ///   - limit: So many bytes of what it prints are kept, the last ones.
  ///   - patience: From now on, the time in which it waits for its turn included.
  func ask(_ command: [String], limit: Int, patience: Duration, then: @escaping (Answer) -> Void) {
    if helpers.count >= Self.atOnce {
      guard waiting.count < Self.queue else {
        return then(Answer(output: [], trouble: "too many questions wait already"))
      }
      waiting.append((command, limit, patience, then))
      return
    }
    start(command, limit, SystemClocks.monotonic() + patience, then)
  }

  private func start(_ command: [String], _ limit: Int, _ deadline: Instant, _ then: @escaping (Answer) -> Void) {
    let helper = Helper(limit: limit, deadline: deadline, then: then)
    do throws(SystemError) {
      let ends = try makePipe()
      let readEnd = OwnedFD(adopting: ends.read)
      let writeEnd = OwnedFD(adopting: ends.write)
      var request = SpawnRequest(
        command: command,
        environment: ChildEnvironment(user: shell.ownIdentity, language: shell.language).strings)
      request.output = .descriptor(writeEnd.number)
      request.softOpenFiles = shell.softOpenFiles
      request.nice = shell.surroundings.nice
      request.oomScoreAdjust = shell.surroundings.oomScoreAdjust
      serial += 1
      let run = RunID(high: UInt64.random(in: .min ... .max), low: serial)
      switch shell.spawner.spawn(request) {
      case .failed(let failure): return then(Answer(output: [], trouble: failure.sentence))
      case .pending(let pending): helper.child = RunningChild(pending, run: run)
      case .started(let child): helper.child = RunningChild(child, run: run)
      }
      if let pid = helper.child?.pid { helpers[pid] = helper }
      let number = readEnd.number
      helper.pipe = consume readEnd
      helper.source = try shell.loop.onIO(number, .read, priority: .outcomes) { [weak self, weak helper] _ in
        if let helper { self?.hear(helper) }
      }
      arm()
    } catch {
      if let pid = helper.child?.pid {
        helper.child?.signalSet(.kill, orphans: shell.orphans)
        helpers[pid] = nil
      }
      then(Answer(output: [], trouble: error.description))
    }
  }

  private func hear(_ helper: Helper) {
    guard let number = helper.pipe.number else { return }
    var bytes = [UInt8](repeating: 0, count: 16 << 10)
    for _ in 0..<8 {
      let got = read(number, &bytes, bytes.count)
      if got < 0 && (errno == EAGAIN || errno == EINTR) { return }
      guard got > 0 else {
        letGo(helper)
        return settle(helper)
      }
      helper.output += bytes[..<got]
      if helper.output.count > 2 * helper.limit { helper.output.removeFirst(helper.output.count - helper.limit) }
    }
  }

  private func letGo(_ helper: Helper) {
    helper.source?.cancel()
    helper.source = nil
    helper.pipe = nil
  }

  /// When both its end and the end of its words are known.
  private func settle(_ helper: Helper) {
    guard helper.pipe.number == nil, let status = helper.status else { return }
    finish(helper, Answer(output: Array(helper.output.suffix(helper.limit)), status: status))
  }

  private func finish(_ helper: Helper, _ answer: Answer) {
    guard let then = helper.then else { return }
    helper.then = nil
    then(answer)
    beginNext()
  }

  private func beginNext() {
    let now = SystemClocks.monotonic()
    while helpers.count < Self.atOnce, !waiting.isEmpty {
      let (command, limit, patience, then) = waiting.removeFirst()
      start(command, limit, now + patience, then)
    }
    arm()
  }

  /// - Returns: False if the process is none of these.
  func ended(_ end: ChildReaper.Ended, orphans: () -> Orphans) -> Bool {
    guard let helper = helpers.removeValue(forKey: end.pid) else { return false }
    helper.child?.mainEnded()
    if helper.child?.remaining(orphans).count ?? 0 > 0 { helper.child?.signalSet(.kill, orphans: shell.orphans) }
    helper.status = end.status
    // What it has printed is in the pipe by now.
    hear(helper)
    settle(helper)
    beginNext()
    return true
  }

  private func arm() {
    if let next = helpers.values.map(\.deadline).min() { timer?.arm(at: next.nanoseconds) } else { timer?.disarm() }
  }

  private func endLate() {
    let now = SystemClocks.monotonic()
    for helper in Array(helpers.values) where now >= helper.deadline {
      helper.child?.signalSet(.kill, orphans: shell.orphans)
      if helper.source != nil || helper.pipe.number != nil {
        letGo(helper)
        finish(helper, Answer(output: Array(helper.output.suffix(helper.limit)), trouble: "it took too long"))
      }
    }
    // Those that were killed are heard of by their ends; until then nothing more is due for them.
    let next = helpers.values.filter { $0.source != nil }.map(\.deadline).min()
    if let next { timer?.arm(at: next.nanoseconds) } else { timer?.disarm() }
  }

  /// Guardian goes down: nobody waits for answers.
  func endAll() {
    waiting = []
    for helper in helpers.values { helper.child?.signalSet(.kill, orphans: shell.orphans) }
  }
}
