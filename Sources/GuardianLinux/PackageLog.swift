import Glibc
import GuardianModel

/// What the package manager has lately done, by its own log.
enum PackageLog {
  struct Entry: Hashable {
    var package: String
    /// Empty: it was not there.
    var before: String
    /// Empty: it was removed.
    var after: String
    var at: WallTime
  }

  /// Debian's.
  static let path = "/var/log/dpkg.log"
  private static let mostBytes = 1 << 16, most = 32

  /// The last change of each package, the latest ones last; empty where there is no such log.
  static func latest(_ path: String) -> [Entry] {
    let raw = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
    if raw < 0 { return [] }
    let file = OwnedFD(adopting: raw)
    var status = stat()
    guard fstat(file.number, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
      let bytes = FileText.read(file.number, at: max(0, status.st_size - off_t(mostBytes)), count: mostBytes)
    else { return [] }
    return parse(bytes)
  }

  /// `2026-03-01 12:00:00 upgrade libssl3:amd64 3.0.9-1 3.0.11-1`, in local time.
  static func parse(_ bytes: [UInt8]) -> [Entry] {
    var entries: [Entry] = []
    for line in bytes.split(separator: UInt8(ascii: "\n")) {
      let words = String(decoding: line, as: UTF8.self).split(separator: " ").map(String.init)
      guard words.count == 6, ["install", "upgrade", "remove", "purge"].contains(words[2]),
        let at = time(words[0], words[1])
      else { continue }
      func version(_ word: String) -> String { word == "<none>" ? "" : word }
      let entry = Entry(package: words[3], before: version(words[4]), after: version(words[5]), at: at)
      entries.removeAll { $0.package == entry.package }
      entries.append(entry)
    }
    return Array(entries.suffix(most))
  }

  private static func time(_ date: String, _ clock: String) -> WallTime? {
    let numbers = (date.split(separator: "-") + clock.split(separator: ":")).map { Int32($0) ?? -1 }
    guard numbers.count == 6, numbers.allSatisfy({ $0 >= 0 && $0 < 10_000 }) else { return nil }
    var broken = tm()
    broken.tm_year = numbers[0] - 1900
    broken.tm_mon = numbers[1] - 1
    broken.tm_mday = numbers[2]
    broken.tm_hour = numbers[3]
    broken.tm_min = numbers[4]
    broken.tm_sec = numbers[5]
    broken.tm_isdst = -1
    let seconds = mktime(&broken)
    guard seconds > 0 else { return nil }
    return WallTime(nanoseconds: Int64(seconds).multipliedReportingOverflow(by: 1_000_000_000).partialValue)
  }
}
