import Glibc
package import GuardianLinux
import GuardianModel

/// Makes probes for guardian: orders come and answers go over one socket that keeps messages apart.
///
/// One thread, one loop. Ends when guardian closes its end, and takes the programs of its checks along.
package final class CheckWorker {
  private final class Open {
    let number: UInt64
    let key: String
    let deadline: Instant
    let timeout: Duration
    let probe: any ProbeUnderWay
    init(_ number: UInt64, _ key: String, _ timeout: Duration, _ probe: any ProbeUnderWay) {
      self.number = number
      self.key = key
      self.timeout = timeout
      deadline = SystemClocks.monotonic() + timeout
      self.probe = probe
    }
  }

  private let socket: Int32
  private let catalogue: CheckCatalogue
  private let programs: Programs
  private var open: [Open] = []
  /// Over, but something of them is still there.
  private var ending: [Open] = []
  private var answers: [[UInt8]] = []
  private var isOver = false

  /// libcurl ends its own transfers at the same time, and knows more about why.
  private static let grace = Duration.milliseconds(50)
  /// Between KILLs of what does not go.
  private static let killAgain = Duration.milliseconds(200)
  /// Guardian gives no more orders at a time than it waits for.
  private static let mostOpen = 256

  /// - Parameter socket: SOCK_SEQPACKET; borrowed.
  package init(socket: Int32) throws(SystemError) {
    self.socket = socket
    _ = fcntl(socket, F_SETFL, O_NONBLOCK)
    _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
    signal(SIGPIPE, SIG_IGN)
    programs = try Programs()
    catalogue = CheckCatalogue(programs: programs)
    // What a check's program leaves behind comes here, and not to guardian.
    try? Subreaper.enable()
  }

  /// Until guardian has gone.
  package func run() {
    while !isOver { turn() }
    // Nothing of a check outlives it, as far as the kernel lets go of it in reasonable time.
    for one in open { one.probe.end() }
    ending += open
    for _ in 0..<50 {
      programs.reap()
      ending.removeAll { !$0.probe.isEnding }
      if ending.isEmpty { return }
      usleep(10_000)
    }
  }

  private func turn() {
    var watched = [pollfd(fd: socket, events: Int16(POLLIN), revents: 0)]
    if !answers.isEmpty { watched[0].events |= Int16(POLLOUT) }
    for one in open {
      for number in one.probe.watched { watched.append(pollfd(fd: number, events: Int16(POLLIN), revents: 0)) }
    }
    catalogue.curl.wait(&watched, milliseconds: patience)
    catalogue.curl.advance()
    programs.reap()
    let now = SystemClocks.monotonic()
    open.removeAll { one in
      var result = one.probe.look()
      if result == nil, now >= one.deadline + Self.grace {
        result = .failed("timed out after \(one.timeout.description)")
      }
      guard let result else { return false }
      answers.append(ProbeAnswer(number: one.number, result: result).bytes)
      finish(one)
      return true
    }
    ending.removeAll { !$0.probe.isEnding }
    say()
    hear()
  }

  /// Until the next deadline; with something that does not go it is looked at again soon.
  private var patience: Int32 {
    let now = SystemClocks.monotonic()
    var wait: Duration?
    for one in open {
      let left = one.deadline + Self.grace - now
      wait = min(wait ?? left, left)
    }
    if !ending.isEmpty { wait = min(wait ?? Self.killAgain, Self.killAgain) }
    // Where the socket is full: libcurl's wait does not know of writing.
    if !answers.isEmpty { wait = min(wait ?? .milliseconds(10), .milliseconds(10)) }
    return wait.map { Int32(clamping: max(0, $0.milliseconds + 1)) } ?? -1
  }

  private func finish(_ one: Open) {
    one.probe.end()
    if one.probe.isEnding { ending.append(one) }
  }

  private func say() {
    while let first = answers.first {
      let sent = send(socket, first, first.count, Int32(MSG_NOSIGNAL))
      if sent < 0 && (errno == EAGAIN || errno == EINTR) { return }
      if sent < 0 { isOver = true }
      answers.removeFirst()
    }
  }

  private func hear() {
    var bytes = [UInt8](repeating: 0, count: ProbeOrder.largest + 1)
    // What has been taken is begun before more is.
    for _ in 0..<64 {
      let got = recv(socket, &bytes, bytes.count, Int32(MSG_DONTWAIT))
      if got < 0 && (errno == EAGAIN || errno == EINTR) { return }
      // Every order has a length.
      guard got > 0 else {
        isOver = true
        return
      }
      guard got <= ProbeOrder.largest, let order = ProbeOrder(Array(bytes[..<got])) else { continue }
      take(order)
    }
  }

  private func take(_ order: ProbeOrder) {
    switch order.work {
    case .cancel:
      guard let place = open.firstIndex(where: { $0.number == order.number }) else { return }
      finish(open.remove(at: place))
    case .probe(let probe, let key, let timeout):
      open.append(Open(order.number, key, timeout, begin(probe, key, timeout)))
    }
  }

  private func begin(_ probe: ProbeOrder.Probe, _ key: String, _ timeout: Duration) -> any ProbeUnderWay {
    if open.count >= Self.mostOpen { return Stillborn(.notMade("too many checks at a time")) }
    ending.removeAll { !$0.probe.isEnding }
    if ending.contains(where: { $0.key == key }) || open.contains(where: { $0.key == key }) {
      return Stillborn(.failed("the look before this one still hangs"))
    }
    return catalogue.begin(probe, timeout: timeout)
  }
}
