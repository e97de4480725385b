import CSystemd
import Glibc

/// The service manager that started guardian, told what guardian is doing by libsystemd's `sd_notify`.
///
/// `sd_notify` blocks while the manager's queue is full, and guardian must not: a socket of its own, connected to the
/// same address and never written to, tells beforehand whether there is room. What cannot be sent is counted, said once,
/// and otherwise without effect.
package final class HostNotify {
  private let probe: Int32
  package private(set) var failures = 0
  /// How often the manager wants WATCHDOG=1; nil: not at all.
  package let watchdog: Duration?

  /// Nil where nobody wants to be told. NOTIFY_SOCKET stays in guardian's own environment, where libsystemd looks for it;
  /// children get one that is built for them, so none can speak for guardian.
  package init?() {
    let path = getenv("NOTIFY_SOCKET").map { String(cString: $0) }
    let period = getenv("WATCHDOG_USEC").flatMap { UInt64(String(cString: $0)) }
    let owner = getenv("WATCHDOG_PID").flatMap { Int32(String(cString: $0)) }
    guard let path, path.hasPrefix("/") || path.hasPrefix("@"), let address = UnixAddress(path) else { return nil }
    let made = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard made >= 0 else { return nil }
    probe = made
    // A manager that is not there yet, or no longer: then nothing can be sent, and `send` says so.
    _ = address.withRaw { target, length in connect(made, target, length) }
    if let period, period > 0, period < 1 << 50, owner == nil || owner == getpid() {
      watchdog = .microseconds(Int64(period))
    } else {
      watchdog = nil
    }
  }

  deinit { close(probe) }

  /// One datagram of `NAME=value` lines.
  ///
  /// - Returns: False where it did not arrive.
  @discardableResult package func send(_ lines: [String]) -> Bool {
    var room = pollfd(fd: probe, events: Int16(POLLOUT), revents: 0)
    guard poll(&room, 1, 0) == 1, room.revents & Int16(POLLOUT) != 0 else {
      failures += 1
      return false
    }
    let answer = sd_notify(0, lines.joined(separator: "\n"))
    if answer <= 0 { failures += 1 }
    return answer > 0
  }
}
