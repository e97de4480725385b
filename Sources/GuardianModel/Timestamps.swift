/// Dates by our own arithmetic: no time zone, no locale, no C library, the same result everywhere.
package struct CivilTime: Hashable, Sendable {
  package var year: Int, month: Int, day: Int, hour: Int, minute: Int, second: Int, millisecond: Int

  /// The proleptic Gregorian calendar, UTC. Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
  package init(_ time: WallTime) {
    let milliseconds = floorDivide(time.nanoseconds, 1_000_000)
    let days = floorDivide(milliseconds.quotient, 86_400_000)
    let inDay = Int(days.remainder)
    millisecond = inDay % 1000
    second = inDay / 1000 % 60
    minute = inDay / 60_000 % 60
    hour = inDay / 3_600_000
    // Years are counted from March, so that the leap day comes last.
    let shifted = Int(days.quotient) + 719_468
    let era = floorDivide(Int64(shifted), 146_097)
    let dayOfEra = Int(era.remainder)
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let march = (5 * dayOfYear + 2) / 153
    day = dayOfYear - (153 * march + 2) / 5 + 1
    month = march < 10 ? march + 3 : march - 9
    year = yearOfEra + Int(era.quotient) * 400 + (month <= 2 ? 1 : 0)
  }

  /// Nil where a field is out of its range.
  package var wallTime: WallTime? {
    guard (1600...2400).contains(year), (1...12).contains(month), (1...31).contains(day), (0...23).contains(hour),
      (0...59).contains(minute), (0...60).contains(second), (0...999).contains(millisecond)
    else { return nil }
    let shiftedYear = month <= 2 ? year - 1 : year
    let era = shiftedYear / 400, yearOfEra = shiftedYear % 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    let days = Int64(era * 146_097 + dayOfEra - 719_468)
    let milliseconds = days * 86_400_000 + Int64(((hour * 60 + minute) * 60 + second) * 1000 + millisecond)
    let (nanoseconds, overflow) = milliseconds.multipliedReportingOverflow(by: 1_000_000)
    return overflow ? nil : WallTime(nanoseconds: nanoseconds)
  }
}

private func floorDivide(_ value: Int64, _ divisor: Int64) -> (quotient: Int64, remainder: Int64) {
  let (quotient, remainder) = value.quotientAndRemainder(dividingBy: divisor)
  return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
}

extension WallTime {
  /// `2026-03-01T12:00:00.000Z`, always 24 bytes: Int64 nanoseconds reach from 1677 to 2262.
  package func appendRFC3339(to bytes: inout [UInt8]) {
    let civil = CivilTime(self)
    func digits(_ value: Int, _ count: Int) {
      var divisor = count == 4 ? 1000 : count == 3 ? 100 : 10
      while divisor > 0 {
        bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: value / divisor % 10))
        divisor /= 10
      }
    }
    digits(civil.year, 4)
    bytes.append(UInt8(ascii: "-"))
    digits(civil.month, 2)
    bytes.append(UInt8(ascii: "-"))
    digits(civil.day, 2)
    bytes.append(UInt8(ascii: "T"))
    digits(civil.hour, 2)
    bytes.append(UInt8(ascii: ":"))
    digits(civil.minute, 2)
    bytes.append(UInt8(ascii: ":"))
    digits(civil.second, 2)
    bytes.append(UInt8(ascii: "."))
    digits(civil.millisecond, 3)
    bytes.append(UInt8(ascii: "Z"))
  }

  package var rfc3339: String {
    var bytes: [UInt8] = []
    appendRFC3339(to: &bytes)
    return String(decoding: bytes, as: UTF8.self)
  }
}

extension WallTime {
  /// Reads a time as RFC 3339 has it, with any fraction and any offset: `2026-12-24T06:00:00Z`,
  /// `2026-12-24T07:00:00.5+01:00`. Nil for anything else, a day that the calendar does not have included.
  package init?(rfc3339 text: String) {
    let bytes = Array(text.utf8)
    guard bytes.count >= 20, bytes.count <= 40 else { return nil }
    func number(_ from: Int, _ count: Int) -> Int? {
      var value = 0
      for byte in bytes[from..<from + count] {
        let digit = byte &- UInt8(ascii: "0")
        guard digit <= 9 else { return nil }
        value = value * 10 + Int(digit)
      }
      return value
    }
    guard bytes[4] == UInt8(ascii: "-"), bytes[7] == UInt8(ascii: "-"), bytes[10] | 0x20 == UInt8(ascii: "t"),
      bytes[13] == UInt8(ascii: ":"), bytes[16] == UInt8(ascii: ":"), let year = number(0, 4), let month = number(5, 2),
      let day = number(8, 2), let hour = number(11, 2), let minute = number(14, 2), let second = number(17, 2)
    else { return nil }
    var civil = CivilTime(WallTime(nanoseconds: 0))
    (civil.year, civil.month, civil.day) = (year, month, day)
    (civil.hour, civil.minute, civil.second) = (hour, minute, second)
    var place = 19
    if bytes[place] == UInt8(ascii: ".") {
      let digits = bytes[(place + 1)...].prefix { $0 &- UInt8(ascii: "0") <= 9 }
      guard !digits.isEmpty else { return nil }
      var scale = 100
      for digit in digits.prefix(3) {
        civil.millisecond += Int(digit &- UInt8(ascii: "0")) * scale
        scale /= 10
      }
      place += 1 + digits.count
    }
    guard place < bytes.count, let time = civil.wallTime else { return nil }
    // A leap second is the next minute's first.
    let read = CivilTime(time)
    guard second == 60 || (read.day == day && read.month == month) else { return nil }
    var offset = 0
    switch bytes[place] {
    case UInt8(ascii: "Z"), UInt8(ascii: "z"): guard place + 1 == bytes.count else { return nil }
    case UInt8(ascii: "+"), UInt8(ascii: "-"):
      guard place + 6 == bytes.count, bytes[place + 3] == UInt8(ascii: ":"), let hours = number(place + 1, 2),
        let minutes = number(place + 4, 2), hours < 24, minutes < 60
      else { return nil }
      offset = (hours * 60 + minutes) * (bytes[place] == UInt8(ascii: "-") ? -1 : 1)
    default: return nil
    }
    self = time + .seconds(-offset * 60)
  }

  /// `2026-12-24T06:00:00Z`: for people, to the second.
  package var rfc3339Second: String { String(rfc3339.prefix(19)) + "Z" }
}
