import GuardianModel

/// A unit of systemd as text: its own file and its drop-ins, in the order in which systemd reads them.
///
/// Source: systemd.syntax(7).
struct UnitFile {
  struct Assignment {
    var section: String, key: String, value: String
    var place: Place
  }
  var assignments: [Assignment] = []
  /// Lines that are none.
  var faults: [(place: Place, why: String)] = []

  init(_ files: [ImportedFile]) {
    for file in files { read(file) }
  }

  private mutating func read(_ file: ImportedFile) {
    var section = ""
    var pending = "", start = 0
    let lines =
      file.text.unicodeScalars.first == "\u{feff}"
      ? String(file.text.unicodeScalars.dropFirst()).lines : file.text.lines
    for (index, line) in lines.enumerated() {
      let bare = line.trimmed
      // A comment within a continued line is none of it.
      if bare.hasPrefix("#") || bare.hasPrefix(";") { continue }
      if pending.isEmpty, bare.isEmpty { continue }
      if pending.isEmpty { start = index + 1 }
      if line.utf8.last == UInt8(ascii: "\\") {
        pending += line.dropLast() + " "
        if index < lines.count - 1 { continue }
      } else {
        pending += line
      }
      let text = pending.trimmed
      pending = ""
      take(text, Place(file: file.name, line: start, what: text), &section)
    }
    if !pending.trimmed.isEmpty {
      take(pending.trimmed, Place(file: file.name, line: start, what: pending.trimmed), &section)
    }
  }

  private mutating func take(_ text: String, _ place: Place, _ section: inout String) {
    if text.isEmpty { return }
    if text.hasPrefix("[") {
      if text.hasSuffix("]"), text.utf8.count > 2 {
        section = String(text.dropFirst().dropLast())
      } else {
        faults.append((place, "a section is written [Name]"))
      }
      return
    }
    guard let equals = text.firstIndex(of: "="), equals != text.startIndex else {
      faults.append((place, "it is no assignment"))
      return
    }
    // systemd leaves such a line out too.
    if text.hasBrokenBytes {
      faults.append((place, brokenBytes))
      return
    }
    let key = String(text[..<equals]).trimmed
    if section.isEmpty {
      faults.append((place, "it stands before the first section"))
      return
    }
    assignments.append(
      Assignment(section: section, key: key, value: String(text[text.index(after: equals)...]).trimmed, place: place))
  }
}

/// What is known of the host and of the unit, for the specifiers of systemd.unit(5).
struct Specifiers {
  /// `web@blue.service`
  var unit: String
  var host: String

  private var bare: String {
    guard let dot = unit.lastIndex(of: ".") else { return unit }
    return String(unit[..<dot])
  }
  private var prefix: String { bare.firstIndex(of: "@").map { String(bare[..<$0]) } ?? bare }
  /// Nil: a template without its instance.
  private var instance: String? {
    guard let at = bare.firstIndex(of: "@") else { return "" }
    let text = String(bare[bare.index(after: at)...])
    return text.isEmpty ? nil : text
  }

  /// - Returns: nil and the specifier where its value is not known here.
  func expand(_ text: String) -> (text: String?, unknown: String) {
    var result = "", scalars = Substring(text).unicodeScalars
    while let scalar = scalars.popFirst() {
      guard scalar == "%", let kind = scalars.first else {
        result.unicodeScalars.append(scalar)
        continue
      }
      let value: String?
      switch kind {
      case "%": value = "%"
      case "n": value = unit
      case "N": value = bare
      case "p": value = prefix
      case "P": value = unescaped(prefix)
      case "j": value = String(prefix.split(separator: "-", omittingEmptySubsequences: false).last ?? "")
      case "J": value = unescaped(String(prefix.split(separator: "-", omittingEmptySubsequences: false).last ?? ""))
      case "i": value = instance
      case "I": value = instance.map(unescaped)
      case "f":
        let path = instance.map { unescaped($0.isEmpty ? prefix : $0) }
        value = path.map { $0.hasPrefix("/") ? $0 : "/" + $0 }
      case "H", "q": value = host.isEmpty ? nil : host
      case "l": value = host.isEmpty ? nil : String(host.prefix { $0 != "." })
      case "t": value = "/run"
      case "S": value = "/var/lib"
      case "C": value = "/var/cache"
      case "L": value = "/var/log"
      case "E": value = "/etc"
      case "T": value = "/tmp"
      case "V": value = "/var/tmp"
      case "D": value = "/usr/share"
      // Those of the manager, not of the service.
      case "u", "g": value = "root"
      case "U", "G": value = "0"
      case "h": value = "/root"
      case "s": value = "/bin/sh"
      case "a", "A", "b", "B", "c", "d", "m", "M", "o", "r", "R", "v", "w", "W", "y", "Y": value = nil
      default:
        // No specifier: systemd leaves it as it is.
        result.unicodeScalars.append(scalar)
        continue
      }
      scalars.removeFirst()
      guard let value else { return (nil, "%" + String(Character(kind))) }
      result += value
    }
    return (result, "")
  }

  /// `a-b\x2dc` is `a/b-c`.
  private func unescaped(_ text: String) -> String {
    var bytes: [UInt8] = []
    let escaped = Array(text.utf8)
    var index = 0
    while index < escaped.count {
      if escaped[index] == UInt8(ascii: "-") {
        bytes.append(UInt8(ascii: "/"))
      } else if escaped[index] == UInt8(ascii: "\\"), index + 3 < escaped.count,
        escaped[index + 1] == UInt8(ascii: "x"),
        let byte = UInt8(String(decoding: escaped[(index + 2)...(index + 3)], as: UTF8.self), radix: 16), byte != 0
      {
        bytes.append(byte)
        index += 3
      } else {
        bytes.append(escaped[index])
      }
      index += 1
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}

/// Times, sizes and truth values as systemd writes them.
enum UnitValues {
  enum Time: Hashable {
    case infinity
    case milliseconds(Int64)
  }

  /// `90`, `5min 20s`, `infinity`; a bare number is seconds.
  static func time(_ text: String) -> Time? {
    let units: [(String, Double)] = [
      ("microseconds", 0.001), ("usec", 0.001), ("us", 0.001), ("µs", 0.001), ("msec", 1), ("ms", 1),
      ("seconds", 1000), ("second", 1000), ("sec", 1000), ("s", 1000), ("minutes", 60_000), ("minute", 60_000),
      ("min", 60_000), ("months", 2_629_800_000), ("month", 2_629_800_000), ("M", 2_629_800_000), ("m", 60_000),
      ("hours", 3_600_000), ("hour", 3_600_000), ("hr", 3_600_000), ("h", 3_600_000), ("days", 86_400_000),
      ("day", 86_400_000), ("d", 86_400_000), ("weeks", 604_800_000), ("week", 604_800_000), ("w", 604_800_000),
      ("years", 31_557_600_000), ("year", 31_557_600_000), ("y", 31_557_600_000),
    ]
    if text == "infinity" { return .infinity }
    var rest = Substring(text.trimmed), total = 0.0
    guard !rest.isEmpty else { return nil }
    while !rest.isEmpty {
      let digits = rest.prefix { $0.isASCII && $0.isNumber || $0 == "." }
      guard digits.utf8.count <= 15, let number = Double(digits) else { return nil }
      rest = Substring(String(rest.dropFirst(digits.count)).trimmed)
      let letters = rest.prefix { $0.isLetter }
      let factor = letters.isEmpty ? 1000 : units.first { $0.0 == letters }?.1
      guard let factor else { return nil }
      total += number * factor
      rest = Substring(String(rest.dropFirst(letters.count)).trimmed)
    }
    // A hundred years are the longest that guardian takes.
    guard total.isFinite, total < 3e12 else { return .infinity }
    return .milliseconds(Int64(total.rounded(.up)))
  }

  /// As guardian writes it: the largest unit that divides it.
  static func duration(_ milliseconds: Int64) -> String {
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)] as [(String, Int64)]
    where milliseconds >= size && milliseconds % size == 0 {
      return "\(milliseconds / size)\(unit)"
    }
    return milliseconds == 0 ? "0s" : "\(milliseconds)ms"
  }

  /// `512M`, `1G`, `4096`, `infinity`, with powers of 1024; as guardian writes it. Nil for anything else, `50%` too.
  static func size(_ text: String) -> String? {
    if text == "infinity" { return "unlimited" }
    var digits = text.trimmed
    if digits.hasSuffix("B") { digits.removeLast() }
    var shift: UInt64 = 0
    for (letter, bits) in [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)] as [(String, UInt64)]
    where digits.hasSuffix(letter) {
      digits.removeLast()
      shift = bits
    }
    guard digits.isNumber, let number = UInt64(digits) else { return nil }
    let (bytes, overflow) = number.multipliedReportingOverflow(by: 1 << shift)
    guard !overflow, bytes <= UInt64(Int64.max) else { return nil }
    return sizeText(bytes)
  }

  static func sizeText(_ bytes: UInt64) -> String {
    for (letter, bits) in [("T", 40), ("G", 30), ("M", 20), ("K", 10)] as [(String, UInt64)]
    where bytes > 0 && bytes % (1 << bits) == 0 {
      return "\(bytes >> bits)\(letter)"
    }
    return "\(bytes)"
  }

  static func truth(_ text: String) -> Bool? {
    switch text.lowercased() {
    case "1", "yes", "y", "true", "t", "on": true
    case "0", "no", "n", "false", "f", "off": false
    default: nil
    }
  }

  /// The number of an exit status, which may have a name: systemd.exec(5), "Process exit codes".
  static func exitStatus(_ text: String) -> Int? {
    if text.isNumber { return Int(text).flatMap { $0 <= 255 ? $0 : nil } }
    let names = [
      "SUCCESS": 0, "FAILURE": 1, "INVALIDARGUMENT": 2, "NOTIMPLEMENTED": 3, "NOPERMISSION": 4, "NOTINSTALLED": 5,
      "NOTCONFIGURED": 6, "NOTRUNNING": 7, "USAGE": 64, "DATAERR": 65, "NOINPUT": 66, "NOUSER": 67, "NOHOST": 68,
      "UNAVAILABLE": 69, "SOFTWARE": 70, "OSERR": 71, "OSFILE": 72, "CANTCREAT": 73, "IOERR": 74, "TEMPFAIL": 75,
      "PROTOCOL": 76, "NOPERM": 77, "CONFIG": 78, "CHDIR": 200, "EXEC": 203,
    ]
    return names[text]
  }

  /// A signal as guardian writes it, if it is one that ends or tells something.
  static func signal(_ text: String) -> String? {
    var name = text.uppercased()
    if name.isNumber, let number = Int32(name), let signal = Signal(number: number) { return signal.description }
    if name.hasPrefix("SIG") { name = String(name.dropFirst(3)) }
    if name.hasPrefix("RTMIN+"), String(name.dropFirst(6)).isNumber { return name }
    return Signal(name: name)?.description
  }

  /// What guardian refuses as the first signal of a stop, or for a reload.
  static let endsNothing = ["STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD"]
}
