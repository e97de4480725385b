import GuardianModel

/// How typed values are written. Each gives nil for anything that is not exactly its form; nothing can overflow.
enum Scalars {
  static let durationForm = "a duration is written 500ms, 10s, 5min, 2h, 1d or 1min30s"
  static let sizeForm = "a size is written 4096, 64K, 512M, 2G or 1T (powers of 1024)"

  /// A hundred years. Longer is a slip of the pen, and would come near the end of the clocks' range.
  static let longest = Duration.seconds(36500 * 86400)

  private static let units: [(String, Int64)] = [
    ("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1),
  ]

  /// `500ms`, `1min30s`: larger units first, each once. Nil also beyond `longest`.
  static func duration(_ text: String) -> Duration? {
    var rest = Array(text.utf8)[...]
    var total: Int64 = 0
    var nextUnit = 0
    guard !rest.isEmpty else { return nil }
    while !rest.isEmpty {
      let digits = rest.prefix { isDigit($0) }
      guard let number = integer(digits) else { return nil }
      rest = rest.dropFirst(digits.count)
      let letters = rest.prefix { !isDigit($0) }
      rest = rest.dropFirst(letters.count)
      guard let unit = units.firstIndex(where: { letters.elementsEqual($0.0.utf8) }), unit >= nextUnit else {
        return nil
      }
      nextUnit = unit + 1
      let (part, overflow) = number.multipliedReportingOverflow(by: units[unit].1)
      let (sum, tooMuch) = total.addingReportingOverflow(part)
      if overflow || tooMuch || sum > longest.milliseconds { return nil }
      total = sum
    }
    return .milliseconds(total)
  }

  /// `4096`, `512M`: bytes.
  static func size(_ text: String) -> UInt64? {
    let bytes = Array(text.utf8)
    let digits = bytes.prefix { isDigit($0) }
    guard let number = integer(digits) else { return nil }
    let shift: UInt64
    switch bytes.count - digits.count {
    case 0: shift = 0
    case 1:
      switch bytes[digits.count] {
      case UInt8(ascii: "K"): shift = 10
      case UInt8(ascii: "M"): shift = 20
      case UInt8(ascii: "G"): shift = 30
      case UInt8(ascii: "T"): shift = 40
      default: return nil
      }
    default: return nil
    }
    let (size, overflow) = UInt64(number).multipliedReportingOverflow(by: 1 << shift)
    return overflow || size > UInt64(Int64.max) ? nil : size
  }

  /// Decimal digits, no sign, no leading zero.
  static func integer(_ text: some Collection<UInt8>) -> Int64? {
    guard let first = text.first, text.count <= 18, text.allSatisfy(isDigit) else { return nil }
    if first == UInt8(ascii: "0") && text.count > 1 { return nil }
    return text.reduce(Int64(0)) { $0 * 10 + Int64($1 & 0x0f) }
  }

  /// `2`, `1.5`: at most 6 digits before the point and 6 behind it.
  static func decimal(_ text: String) -> Double? {
    let parts = text.utf8.split(separator: UInt8(ascii: "."), maxSplits: 1, omittingEmptySubsequences: false)
    guard let whole = integer(parts[0]), whole < 1_000_000 else { return nil }
    if parts.count == 1 { return Double(whole) }
    let digits = parts[1]
    guard !digits.isEmpty, digits.count <= 6, digits.allSatisfy(isDigit) else { return nil }
    var value = 0.0, scale = 1.0
    for digit in digits {
      value = value * 10 + Double(digit & 0x0f)
      scale *= 10
    }
    return Double(whole) + value / scale
  }

  /// `02:00`, as minutes since midnight; `24:00` is none.
  static func minuteOfDay(_ text: String) -> Int? {
    let bytes = Array(text.utf8)
    guard bytes.count == 5, bytes[2] == UInt8(ascii: ":") else { return nil }
    let digits = bytes[..<2] + bytes[3...]
    guard digits.allSatisfy(isDigit) else { return nil }
    let numbers = digits.map { Int($0 & 0x0f) }
    let hour = numbers[0] * 10 + numbers[1], minute = numbers[2] * 10 + numbers[3]
    return hour < 24 && minute < 60 ? hour * 60 + minute : nil
  }

  /// `10%`, `12.5%`, as a share of one.
  static func percent(_ text: String) -> Double? {
    guard text.hasSuffix("%"), let value = decimal(String(text.dropLast())), value <= 100 else { return nil }
    return value / 100
  }

  /// `0027`: one to four octal digits, up to 0777.
  static func octal(_ text: String) -> UInt32? {
    let bytes = text.utf8
    guard (1...4).contains(bytes.count), bytes.allSatisfy({ (0x30...0x37).contains($0) }) else { return nil }
    let value = bytes.reduce(UInt32(0)) { $0 << 3 | UInt32($1 & 7) }
    return value <= 0o777 ? value : nil
  }

  /// `TERM`, `SIGTERM`, `RTMIN+3`, `RT37`.
  static func signal(_ text: String) -> Signal? {
    if let signal = Signal(name: text) { return signal }
    let short = text.hasPrefix("SIG") ? String(text.dropFirst(3)) : text
    if short == "RTMIN" { return Signal(number: 34) }
    if short.hasPrefix("RTMIN+"), let n = integer(Array(short.utf8.dropFirst(6))), n <= 30 {
      return Signal(number: 34 + Int32(n))
    }
    if short.hasPrefix("RT"), let n = integer(Array(short.utf8.dropFirst(2))), (34...64).contains(n) {
      return Signal(number: Int32(n))
    }
    return nil
  }

  private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
}
