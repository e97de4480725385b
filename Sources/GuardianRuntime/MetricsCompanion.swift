import Glibc
import GuardianLinux
import GuardianModel

/// `metrics.textfile`: guardianctl, as a child of guardian's, asks guardian every so often and writes what it is told. No
/// disk is waited for in here, and without the key nothing of this is there.
///
/// Between them is a pair of sockets. When guardian's end is closed, be it because guardian has died, the child ends; and
/// it tells there what keeps it from writing.
final class MetricsCompanion {
  private unowned let shell: Shell
  private var spec = MetricsSpec()
  private var pid: Int32?
  private var socket: OwnedFD?
  private var source: EventSource?
  private var timer: EventSource?
  private var failures = 0
  private var startedAt = Instant.zero
  private var isOver = false
  /// What keeps it from being written, one sentence.
  private(set) var trouble: String?

  private static let firstPause = Duration.seconds(1), longestPause = Duration.minute * 5
  private static let goodLife = Duration.minute
  static let program = "guardianctl"

  init(_ shell: Shell) { self.shell = shell }
  deinit { source?.cancel() }

  func isCompanion(_ pid: Int32) -> Bool { self.pid == pid }

  /// In force at once.
  func configure(_ spec: MetricsSpec) {
    guard spec != self.spec else { return }
    self.spec = spec
    failures = 0
    trouble = nil
    let was = pid
    letGo()
    // What it was started for is over; the next one begins when it has gone.
    if was == nil { start() }
  }

  /// Guardian goes down.
  func end() {
    isOver = true
    letGo()
    giveUpAt = SystemClocks.monotonic() + .seconds(4)
  }
  private var giveUpAt: Instant?

  /// After `end`: it has gone, or a disk keeps it, for which nobody waits.
  var isFinished: Bool { pid == nil || giveUpAt.map { SystemClocks.monotonic() >= $0 } ?? false }

  /// The child hears of it by the end of its input.
  private func letGo() {
    timer?.disarm()
    source?.cancel()
    source = nil
    socket = nil
  }

  private func start() {
    guard let path = spec.textfile, !isOver, pid == nil else { return }
    guard let program = Companions.program(Self.program) ?? Self.installed else {
      return complain("\(Self.program), which writes it, is neither beside guardian nor in ../bin")
    }
    var ends: [Int32] = [-1, -1]
    guard socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
      complain("\(Self.program) cannot be started: \(String(cString: strerror(errno)))")
      return startLater()
    }
    let own = OwnedFD(adopting: ends[0]), others = OwnedFD(adopting: ends[1])
    _ = fcntl(own.number, F_SETFL, O_NONBLOCK)
    var request = SpawnRequest(
      command: [
        program, "--runtime", shell.directories.runtime, "metrics", "--textfile", path, "--every",
        "\(max(1, spec.every.milliseconds))ms",
      ], environment: ["PATH=/usr/bin:/bin", "GUARDIAN_COMPANION=1"])
    request.input = .descriptor(others.number)
    request.error = .inherit
    request.softOpenFiles = shell.softOpenFiles
    switch shell.spawner.spawn(request) {
    case .failed(let failure):
      complain(failure.sentence)
      return startLater()
    case .pending(let pending): pid = pending.pid
    case .started(let child): pid = child.pid
    }
    startedAt = SystemClocks.monotonic()
    let number = own.number
    socket = consume own
    source = try? shell.loop.onIO(number, .read, priority: .outcomes) { [unowned self] _ in hear() }
  }

  private static var installed: String? { access("/usr/bin/\(program)", X_OK) == 0 ? "/usr/bin/\(program)" : nil }

  private func startLater() {
    failures += 1
    var pause = Self.firstPause
    for _ in 1..<max(2, min(failures, 12)) where failures > 1 { pause = min(pause * 2, Self.longestPause) }
    if timer == nil { timer = try? shell.loop.timer(.monotonic, priority: .time) { [unowned self] in start() } }
    timer?.arm(at: (SystemClocks.monotonic() + pause).nanoseconds)
  }

  private func hear() {
    guard let number = socket.number else { return }
    var bytes = [UInt8](repeating: 0, count: 600)
    let count = recv(number, &bytes, bytes.count, 0)
    if count < 0 && (errno == EAGAIN || errno == EINTR) { return }
    guard count > 0 else {
      // It has gone, or is about to: its end is told by itself.
      source?.cancel()
      source = nil
      return
    }
    let text = String(decoding: bytes[..<count], as: UTF8.self)
    if text == "well" {
      if trouble != nil { shell.log.note(.info, "metrics are written again") }
      trouble = nil
    } else {
      complain(printable(text, atMost: 512))
    }
  }

  private func complain(_ what: String) {
    if trouble != what { shell.log.note(.warning, "metrics are not written: \(what)") }
    trouble = what
  }

  /// - Returns: False if the process is not this one.
  func ended(_ end: ChildReaper.Ended) -> Bool {
    guard end.pid == pid else { return false }
    pid = nil
    let wasWanted = socket.number != nil
    letGo()
    if isOver { return true }
    // One that was to end makes place for the next.
    guard wasWanted else {
      start()
      return true
    }
    if SystemClocks.monotonic() - startedAt > Self.goodLife { failures = 0 }
    complain("\(Self.program) has ended; it is started again")
    startLater()
    return true
  }
}
