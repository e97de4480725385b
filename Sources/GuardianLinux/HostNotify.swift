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
    let path = Self.address
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

  private static var address: String? { getenv("NOTIFY_SOCKET").map { String(cString: $0) } }

  /// What NOTIFY_SOCKET says, where that is no address to which anything can be sent.
  package static var unusableAddress: String? {
    guard let address, !address.isEmpty else { return nil }
    return (address.hasPrefix("/") || address.hasPrefix("@")) && UnixAddress(address) != nil ? nil : address
  }

  /// One datagram of `NAME=value` lines.
  ///
  /// - Returns: False where it did not arrive.
  @discardableResult package func send(_ lines: [String]) -> Bool {
    guard hasRoom() else { return false }
    let answer = sd_notify(0, lines.joined(separator: "\n"))
    if answer <= 0 { failures += 1 }
    return answer > 0
  }

  /// Gives the manager a duplicate of `descriptor` to keep under `name` as long as the unit is not stopped for good.
  ///
  /// - Parameter name: 1 … 255 printable ASCII characters without a colon.
  /// - Returns: False where it was not sent. Whether the manager takes it (FileDescriptorStoreMax=), it does not tell.
  /// - Source: sd_notify(3): FDSTORE, FDNAME, FDPOLL=0 (a descriptor with an error on it is kept all the same).
  @discardableResult package func storeDescriptor(name: String, _ descriptor: Int32) -> Bool {
    guard Self.isValid(name), hasRoom() else { return false }
    var descriptors = [descriptor]
    let answer = sd_pid_notify_with_fds(0, 0, "FDSTORE=1\nFDNAME=\(name)\nFDPOLL=0", &descriptors, 1)
    if answer <= 0 { failures += 1 }
    return answer > 0
  }

  /// Has the manager forget all that is kept under `name`.
  @discardableResult package func removeDescriptor(name: String) -> Bool {
    Self.isValid(name) && send(["FDSTOREREMOVE=1", "FDNAME=\(name)"])
  }

  private static func isValid(_ name: String) -> Bool {
    (1...255).contains(name.utf8.count) && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: ":") }
  }

  private func hasRoom() -> Bool {
    var room = pollfd(fd: probe, events: Int16(POLLOUT), revents: 0)
    if poll(&room, 1, 0) == 1, room.revents & Int16(POLLOUT) != 0 { return true }
    failures += 1
    return false
  }

  /// What the manager has kept for us, each the caller's to close, now CLOEXEC. To be called once, before the first
  /// thread: it takes LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES out of the environment.
  ///
  /// - Source: sd_listen_fds_with_names(3).
  package static func receivedDescriptors() -> [(name: String, descriptor: Int32)] {
    var names: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
    let count = sd_listen_fds_with_names(1, &names)
    defer {
      if let names {
        var at = names
        while let name = at.pointee {
          free(name)
          at += 1
        }
        free(names)
      }
    }
    guard count > 0, let names else { return [] }
    return (0..<count).map { index in
      (name: names[Int(index)].map { String(cString: $0) } ?? "", descriptor: 3 + index)
    }
  }
}
