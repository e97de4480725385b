import GuardianConfig
import GuardianLinux
import GuardianModel

/// How long systemd waits for guardian when it stops it, read from its files, since a check has no guardian to ask.
///
/// Source: systemd.service(5) `TimeoutStopSec=`, systemd-system.conf(5) `DefaultTimeoutStopSec=`, systemd.unit(5) for the
/// order of the directories and of drop-ins, systemd.time(7) for the times.
enum StopGrace {
  static let unit = "guardian.service"
  /// The first that has a file wins.
  static let systemDirectories = [
    "/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
    "/lib/systemd/system",
  ]
  private static let managers = ["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"]
  private static let usual = Duration.seconds(90)

  /// Nil where no such unit is installed, or it may take as long as it likes.
  ///
  /// - Parameters:
  ///   - read: The text of a file; nil where there is none.
  ///   - list: The names in a directory, unordered.
  static func find(read: (String) -> String?, list: (String) -> [String]) -> ConfigurationContext.StopGrace? {
    guard let file = systemDirectories.first(where: { read("\($0)/\(unit)") != nil }) else { return nil }
    let units = [file + "/" + unit] + dropIns(systemDirectories.map { "\($0)/\(unit).d" }, list)
    var found: (text: String, source: String)?
    for path in units {
      // The last one counts; an empty one forgets those before it.
      for (key, value) in settings(read(path) ?? "", section: "[Service]")
      where key == "TimeoutStopSec" || key == "TimeoutSec" {
        found = value.isEmpty ? nil : (value, "'\(key)=\(printable(value, atMost: 40))' in \(path)")
      }
    }
    if let found { return grace(found.text, found.source) }
    let configurations =
      (managers.map { $0 + "/system.conf" }.first { read($0) != nil }.map { [$0] } ?? [])
      + dropIns(managers.map { $0 + "/system.conf.d" }, list)
    for path in configurations {
      for (key, value) in settings(read(path) ?? "", section: "[Manager]") where key == "DefaultTimeoutStopSec" {
        found = value.isEmpty ? nil : (value, "'\(key)=\(printable(value, atMost: 40))' in \(path)")
      }
    }
    if let found { return grace(found.text, found.source) }
    return ConfigurationContext.StopGrace(time: usual, source: "systemd, by its default for \(file)/\(unit),")
  }

  /// On this machine.
  static func find() -> ConfigurationContext.StopGrace? {
    find(
      read: { FileText.text($0, limit: 1 << 16) },
      list: { directory in (try? PluginEntries.list(directory).get()) ?? [] })
  }

  private static func grace(_ text: String, _ source: String) -> ConfigurationContext.StopGrace? {
    time(text).map { ConfigurationContext.StopGrace(time: $0, source: source) }
  }

  /// By their names, whatever directory they are in; of one name the first directory's.
  private static func dropIns(_ directories: [String], _ list: (String) -> [String]) -> [String] {
    var paths: [String: String] = [:]
    for directory in directories {
      for name in list(directory) where name.hasSuffix(".conf") && paths[name] == nil {
        paths[name] = directory + "/" + name
      }
    }
    return paths.sorted { $0.key < $1.key }.map(\.value)
  }

  private static func settings(_ text: String, section: String) -> [(key: String, value: String)] {
    var result: [(String, String)] = []
    var inside = false
    for line in text.split(separator: "\n") {
      let line = trimmed(line)
      if line.hasPrefix("[") { inside = line == section }
      guard inside, !line.hasPrefix("#"), !line.hasPrefix(";"), let equals = line.firstIndex(of: "=") else { continue }
      result.append((String(trimmed(line[..<equals])), String(trimmed(line[line.index(after: equals)...]))))
    }
    return result
  }

  private static func trimmed(_ text: Substring) -> Substring {
    var text = text
    while let first = text.first, first == " " || first == "\t" || first == "\r" { text.removeFirst() }
    while let last = text.last, last == " " || last == "\t" || last == "\r" { text.removeLast() }
    return text
  }

  /// `90`, `1min 30s`; nil for `infinity`, `0`, which means the same, and for what is no time.
  static func time(_ text: String) -> Duration? {
    let units: [String: Int64] = [
      "": 1_000_000, "us": 1, "usec": 1, "µs": 1, "ms": 1000, "msec": 1000, "s": 1_000_000, "sec": 1_000_000,
      "second": 1_000_000, "seconds": 1_000_000, "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000,
      "minutes": 60_000_000, "h": 3_600_000_000, "hr": 3_600_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
      "d": 86_400_000_000, "day": 86_400_000_000, "days": 86_400_000_000,
    ]
    var rest = Substring(text)
    var total: Int64 = 0
    while true {
      rest = rest.drop { $0 == " " || $0 == "\t" }
      if rest.isEmpty { break }
      let digits = rest.prefix { ("0"..."9").contains($0) }
      rest = rest.dropFirst(digits.count).drop { $0 == " " }
      let word = rest.prefix { !($0 == " " || $0 == "\t" || ("0"..."9").contains($0)) }
      rest = rest.dropFirst(word.count)
      guard digits.utf8.count <= 12, let number = Int64(digits), let unit = units[String(word)] else { return nil }
      let (part, over) = number.multipliedReportingOverflow(by: unit)
      let (sum, overflow) = total.addingReportingOverflow(part)
      if over || overflow { return nil }
      total = sum
    }
    return total > 0 && total < Int64.max / 1000 ? .microseconds(total) : nil
  }
}
