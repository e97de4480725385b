import Glibc

/// The service manager that started guardian, told what guardian is doing: sd_notify(3).
///
/// libsystemd's own `sd_notify` blocks while the manager does not read; guardian must not, so this sends by a
/// non-blocking socket of its own. What cannot be sent is counted, said once, and otherwise without effect.
package final class HostNotify {
  private let descriptor: Int32
  private let address: UnixAddress
  package private(set) var failures = 0
  /// How often the manager wants WATCHDOG=1; nil: not at all.
  package let watchdog: Duration?

  /// Nil where nobody wants to be told. Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: no child
  /// may speak for guardian.
  package init?() {
    let path = getenv("NOTIFY_SOCKET").map { String(cString: $0) }
    let period = getenv("WATCHDOG_USEC").flatMap { UInt64(String(cString: $0)) }
    let owner = getenv("WATCHDOG_PID").flatMap { Int32(String(cString: $0)) }
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] { unsetenv(name) }
    guard let path, path.hasPrefix("/") || path.hasPrefix("@"), let address = UnixAddress(path) else { return nil }
    let made = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard made >= 0 else { return nil }
    descriptor = made
    self.address = address
    if let period, period > 0, period < 1 << 50, owner == nil || owner == getpid() {
      watchdog = .microseconds(Int64(period))
    } else {
      watchdog = nil
    }
  }

  deinit { close(descriptor) }

  /// One datagram of `NAME=value` lines.
  ///
  /// - Returns: False where it did not arrive.
  @discardableResult package func send(_ lines: [String]) -> Bool {
    let bytes = Array(lines.joined(separator: "\n").utf8)
    let sent = address.withRaw { target, length in
      sendto(descriptor, bytes, bytes.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL), target, length)
    }
    if sent < 0 { failures += 1 }
    return sent >= 0
  }
}
