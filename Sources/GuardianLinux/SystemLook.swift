import Glibc
import GuardianModel

/// What all services have in common of what they are made of and depend on: looked at once for all whose looks fall together.
///
/// Used by one thread at a time, the worker's: many services that settle or die at once must not read the same files again
/// and again.
package final class SystemLook: @unchecked Sendable {
  private var known: [StateItem] = []
  private var knownAt: Instant?
  private var log: (look: ExecutableLook, entries: [PackageLog.Entry])?
  private var buildIDs: [ExecutableLook: String] = [:]

  private static let fresh = Duration.seconds(1)
  private static let mostBuildIDs = 1024

  package init() {}

  /// Kernel, boot, system, time zone, and how long others have to wait for what the machine has.
  func items() -> [StateItem] {
    let now = SystemClocks.monotonic()
    if let knownAt, now - knownAt < Self.fresh { return known }
    var items: [StateItem] = []
    let booted = Self.bootTime()
    var name = utsname()
    if uname(&name) == 0 {
      let release = withUnsafeBytes(of: &name.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      items.append(StateItem(.system, "kernel", release, since: booted))
    }
    items.append(StateItem(.system, "boot", BootID.current(), since: booted))
    if let system = Self.systemName() { items.append(StateItem(.system, "operating system", system)) }
    if let zone = Self.timeZone() { items.append(StateItem(.system, "time zone", zone)) }
    for resource in ["memory", "io", "cpu"] { if let item = Self.pressure(resource) { items.append(item) } }
    (known, knownAt) = (items, now)
    return items
  }

  /// What the package manager has done lately.
  func packages(_ path: String) -> [StateItem] {
    guard let look = ExecutableLook(at: path) else { return [] }
    let entries = log.flatMap { $0.look == look ? $0.entries : nil } ?? PackageLog.latest(path)
    log = (look, entries)
    return entries.map { entry in
      var item = StateItem(
        .system, StateItem.package + entry.package, entry.after.isEmpty ? StateItem.absent : entry.after,
        since: entry.at)
      item.old = entry.before
      return item
    }
  }

  /// Nil where it has none.
  func buildID(of descriptor: Int32, _ look: ExecutableLook) -> String? {
    if let known = buildIDs[look] { return known.isEmpty ? nil : known }
    if buildIDs.count >= Self.mostBuildIDs { buildIDs = [:] }
    let id = BuildID.of(descriptor)
    buildIDs[look] = id ?? ""
    return id
  }

  private static func systemName() -> String? {
    guard let text = FileText.text("/etc/os-release", limit: 1 << 14) else { return nil }
    for line in text.split(separator: "\n") where line.hasPrefix("PRETTY_NAME=") {
      return String(line.dropFirst(12).filter { $0 != "\"" }.prefix(100))
    }
    return nil
  }

  private static func timeZone() -> String? {
    var buffer = [CChar](repeating: 0, count: 256)
    let length = readlink("/etc/localtime", &buffer, buffer.count)
    guard length > 0, length < buffer.count else { return nil }
    let path = String(decoding: buffer.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return path.split(separator: "/").suffix(2).joined(separator: "/")
  }

  /// By the share of the last minute in which somebody waited for it. proc(5), /proc/pressure.
  private static func pressure(_ resource: String) -> StateItem? {
    guard let text = FileText.text("/proc/pressure/\(resource)", limit: 4096),
      let field = text.split(separator: " ").first(where: { $0.hasPrefix("avg60=") }),
      let share = Double(field.dropFirst(6))
    else { return nil }
    return StateItem(
      .pressure, "waiting for \(resource)", share < 10 ? "less than 10 % of the time" : "10 % of the time or more")
  }

  /// To the second, so that it is the same at every look.
  private static func bootTime() -> WallTime {
    let now = SystemClocks.now()
    let nanoseconds = now.wall.nanoseconds.subtractingSaturating(now.boot.nanoseconds)
    return WallTime(nanoseconds: nanoseconds / 1_000_000_000 * 1_000_000_000)
  }
}
