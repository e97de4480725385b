import CSystemd
import Glibc
package import GuardianModel

/// The systemd unit that guardian runs as, as far as it decides what becomes of the services when guardian dies.
package struct OwnUnit: Hashable, Sendable {
  /// `guardian.service`.
  package var name: String
  /// As in systemd.kill(5): `control-group`, `mixed`, `process`, `none`.
  package var killMode: String
  /// The control group is guardian's to divide.
  package var isDelegated: Bool
  /// Of a user's own service manager.
  package var isUsers: Bool
  package init(name: String, killMode: String, isDelegated: Bool, isUsers: Bool = false) {
    self.name = name
    self.killMode = killMode
    self.isDelegated = isDelegated
    self.isUsers = isUsers
  }

  /// Asks the manager that started this process. Blocks, so it is not for the loop; the connection is gone afterwards.
  ///
  /// - Parameter patience: How long all of it may take.
  /// - Throws: Why it is not known: no manager can be reached (EACCES, ENOENT, …), or it does not answer (ETIMEDOUT).
  /// - Source: org.freedesktop.systemd1(5), sd_bus_get_property_string(3).
  package static func ask(patience: Duration) throws(SystemError) -> OwnUnit {
    let deadline = SystemClocks.monotonic() + patience
    let runtime = getenv("XDG_RUNTIME_DIR").map { String(cString: $0) }
    // systemd.exec(5): set for what a user's manager starts.
    let isUsers = getenv("MANAGERPID") != nil && runtime != nil
    let directory = isUsers ? runtime ?? "" : "/run"
    do throws(SystemError) {
      // The manager's own socket, which is there before any bus is, and is for its owner only.
      return try ask(directory + "/systemd/private", isBus: false, isUsers: isUsers, deadline)
    } catch {
      let bus = isUsers ? "/bus" : "/dbus/system_bus_socket"
      guard access(directory + bus, F_OK) == 0 else { throw error }
      return try ask(directory + bus, isBus: true, isUsers: isUsers, deadline)
    }
  }

  private static func ask(
    _ socket: String, isBus: Bool, isUsers: Bool, _ deadline: Instant
  ) throws(SystemError) -> OwnUnit {
    func check(_ answer: Int32) throws(SystemError) {
      if answer < 0 { throw SystemError("ask the service manager at", socket, errno: -answer) }
    }
    /// Microseconds that are left.
    func left() throws(SystemError) -> UInt64 {
      let left = deadline - SystemClocks.monotonic()
      guard left > .zero else { throw SystemError("ask the service manager at", socket, errno: ETIMEDOUT) }
      return UInt64(max(1000, left.nanoseconds / 1000))
    }

    var made: OpaquePointer?
    try check(sd_bus_new(&made))
    guard let bus = made else { throw SystemError("ask the service manager at", socket, errno: ENOMEM) }
    defer { sd_bus_close_unref(bus) }
    try check(sd_bus_set_address(bus, "unix:path=" + escaped(socket)))
    if isBus { try check(sd_bus_set_bus_client(bus, 1)) }
    try check(sd_bus_start(bus))
    // A call would wait for this as well, but longer than asked for.
    while true {
      let ready = sd_bus_is_ready(bus)
      try check(ready)
      if ready > 0 { break }
      let progress = sd_bus_process(bus, nil)
      try check(progress)
      if progress == 0 { try check(sd_bus_wait(bus, try left())) }
    }

    let manager = "org.freedesktop.systemd1", service = "org.freedesktop.systemd1.Service"
    // Whose unit that is, the manager finds out by who asks.
    let own = "/org/freedesktop/systemd1/unit/self"
    func text(_ interface: String, _ member: String) throws(SystemError) -> String {
      try check(sd_bus_set_method_call_timeout(bus, try left()))
      var value: UnsafeMutablePointer<CChar>?
      defer { free(value) }
      try check(sd_bus_get_property_string(bus, manager, own, interface, member, nil, &value))
      return value.map { String(cString: $0) } ?? ""
    }
    let name = try text("org.freedesktop.systemd1.Unit", "Id")
    let killMode = try text(service, "KillMode")
    try check(sd_bus_set_method_call_timeout(bus, try left()))
    var delegated: Int32 = 0
    try check(
      sd_bus_get_property_trivial(
        bus, manager, own, service, "Delegate", nil, CChar(bitPattern: UInt8(ascii: "b")), &delegated))
    return OwnUnit(name: name, killMode: killMode, isDelegated: delegated != 0, isUsers: isUsers)
  }

  /// As a value in a D-Bus address.
  private static func escaped(_ path: String) -> String {
    var text = ""
    for byte in path.utf8 {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "/"),
        UInt8(ascii: "."):
        text.unicodeScalars.append(Unicode.Scalar(byte))
      default:
        let digits = String(byte, radix: 16)
        text += digits.utf8.count == 1 ? "%0" + digits : "%" + digits
      }
    }
    return text
  }
}
