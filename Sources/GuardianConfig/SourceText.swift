import GuardianModel

/// The bytes of a file that are fit for the YAML parser: UTF-8 without a byte order mark and control characters.
struct SourceText {
  let bytes: [UInt8]
  let file: String
  /// Where each line starts, in bytes; empty where the file has no `#` and nobody will ask.
  private let lineStarts: [Int]

  /// Nil after a fault, which is in `log` with its place.
  ///
  /// Accepts a UTF-8 byte order mark and all line ends that YAML knows. Refuses what is not UTF-8 (other encodings
  /// included), NUL, and control characters, before libyaml sees them: it tells no line for those.
  static func checked(_ bytes: [UInt8], file: String, log: inout DiagnosticLog) -> SourceText? {
    if bytes.count > Configuration.largestFile {
      log.fault(
        file: file, what: "the file is larger than \(Configuration.largestFile >> 20) MiB",
        why: "a configuration file has at most \(Configuration.largestFile) bytes")
      return nil
    }
    if bytes.starts(with: [0xff, 0xfe]) || bytes.starts(with: [0xfe, 0xff]) {
      log.fault(file: file, line: 1, column: 1, what: "the file is UTF-16", why: "save it as UTF-8")
      return nil
    }
    let start = bytes.starts(with: [0xef, 0xbb, 0xbf]) ? 3 : 0
    var lineStarts = [0]
    var line = 1
    var column = 1
    var index = start
    while index < bytes.count {
      let byte = bytes[index]
      var scalar = UInt32(byte)
      var length = 1
      if byte >= 0x80 {
        guard let (value, count) = decode(bytes, at: index) else {
          log.fault(
            file: file, line: line, column: column, what: "byte 0x\(String(byte, radix: 16)) is not UTF-8",
            why: "save the file as UTF-8")
          return nil
        }
        scalar = value
        length = count
      }
      index += length
      switch scalar {
      case 0x0d where index < bytes.count && bytes[index] == 0x0a:
        column += 1  // the line ends with the line feed that follows
      case 0x0a, 0x0d, 0x85, 0x2028, 0x2029:
        line += 1
        column = 1
        lineStarts.append(index - start)
      case 0x00:
        log.fault(file: file, line: line, column: column, what: "a NUL byte", why: "the file is not text")
        return nil
      case 0x09, 0x20...0x7e, 0xa0...0xd7ff, 0xe000...0xfefe, 0xff00...0xfffd, 0x10000...0x10ffff:
        column += 1
      default:
        log.fault(
          file: file, line: line, column: column, what: "control character U+\(hex(scalar))",
          why: "in double quotes it can be written as an escape")
        return nil
      }
    }
    let text = start == 0 ? bytes : Array(bytes[start...])
    return SourceText(bytes: text, file: file, lineStarts: text.contains(UInt8(ascii: "#")) ? lineStarts : [])
  }

  /// The comment right behind a plain scalar that ends at this place (counted from 0, in characters), if any.
  func comment(afterLine line: Int, column: Int) -> String? {
    guard line < lineStarts.count, line >= 0 else { return nil }
    var index = lineStarts[line]
    var left = column
    while left > 0, index < bytes.count {
      index += 1
      while index < bytes.count, bytes[index] & 0xc0 == 0x80 { index += 1 }
      left -= 1
    }
    let end = index
    while index < bytes.count, bytes[index] == 0x20 || bytes[index] == 0x09 { index += 1 }
    guard index > end, index < bytes.count, bytes[index] == UInt8(ascii: "#") else { return nil }
    let rest = bytes[index...].prefix { $0 != 0x0a && $0 != 0x0d }
    return String(decoding: rest.prefix(200), as: UTF8.self)
  }

  /// Value and length of the multi-byte character at `index`; nil for anything that RFC 3629 does not allow.
  private static func decode(_ bytes: [UInt8], at index: Int) -> (UInt32, Int)? {
    let first = bytes[index]
    let length: Int
    var value: UInt32
    let smallest: UInt32
    switch first {
    case 0xc2...0xdf: (length, value, smallest) = (2, UInt32(first & 0x1f), 0x80)
    case 0xe0...0xef: (length, value, smallest) = (3, UInt32(first & 0x0f), 0x800)
    case 0xf0...0xf4: (length, value, smallest) = (4, UInt32(first & 0x07), 0x10000)
    default: return nil
    }
    guard bytes.count - index >= length else { return nil }
    for offset in 1..<length {
      let next = bytes[index + offset]
      guard next & 0xc0 == 0x80 else { return nil }
      value = value << 6 | UInt32(next & 0x3f)
    }
    guard value >= smallest, value <= 0x10ffff, !(0xd800...0xdfff).contains(value) else { return nil }
    return (value, length)
  }

  private static func hex(_ value: UInt32) -> String {
    let digits = String(value, radix: 16, uppercase: true)
    return String(repeating: "0", count: max(0, 4 - digits.count)) + digits
  }
}
