/// JSON as these tests read it: a second reading of what the programs write, by other code than theirs.
enum JSON: Hashable {
  case null, bool(Bool), number(Double), string(String), array([JSON]), object([String: JSON])

  struct Malformed: Error, CustomStringConvertible {
    var text: String, offset: Int
    var description: String { "not JSON at byte \(offset): \(text.prefix(400))" }
  }

  init(_ text: String) throws {
    var parser = Parser(text)
    self = try parser.value()
    parser.skipSpace()
    guard parser.at == parser.bytes.count else { throw parser.malformed }
  }

  subscript(key: String) -> JSON {
    if case .object(let members) = self { members[key] ?? .null } else { .null }
  }
  var string: String? { if case .string(let value) = self { value } else { nil } }
  var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
  var int: Int? { if case .number(let value) = self { Int(exactly: value) } else { nil } }
  var array: [JSON] { if case .array(let values) = self { values } else { [] } }

  private struct Parser {
    let text: String
    let bytes: [UInt8]
    var at = 0

    init(_ text: String) {
      self.text = text
      bytes = Array(text.utf8)
    }

    var malformed: Malformed { Malformed(text: text, offset: at) }
    var next: UInt8? { at < bytes.count ? bytes[at] : nil }

    mutating func skipSpace() {
      while let byte = next, byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09 { at += 1 }
    }

    mutating func take(_ byte: Character) throws {
      guard next == byte.asciiValue else { throw malformed }
      at += 1
    }

    mutating func value() throws -> JSON {
      skipSpace()
      switch next {
      case UInt8(ascii: "{"): return try object()
      case UInt8(ascii: "["): return try array()
      case UInt8(ascii: "\""): return .string(try string())
      case UInt8(ascii: "t"): return try word("true", .bool(true))
      case UInt8(ascii: "f"): return try word("false", .bool(false))
      case UInt8(ascii: "n"): return try word("null", .null)
      default:
        let start = at
        while let byte = next, "+-.0123456789eE".utf8.contains(byte) { at += 1 }
        guard let number = Double(String(decoding: bytes[start..<at], as: UTF8.self)) else { throw malformed }
        return .number(number)
      }
    }

    mutating func word(_ word: String, _ value: JSON) throws -> JSON {
      for character in word { try take(character) }
      return value
    }

    mutating func object() throws -> JSON {
      var members: [String: JSON] = [:]
      try take("{")
      skipSpace()
      if next == UInt8(ascii: "}") {
        at += 1
        return .object(members)
      }
      while true {
        skipSpace()
        let key = try string()
        skipSpace()
        try take(":")
        // Said twice is a fault, though many readers take it.
        guard members.updateValue(try value(), forKey: key) == nil else { throw malformed }
        skipSpace()
        if next == UInt8(ascii: ",") {
          at += 1
        } else {
          try take("}")
          return .object(members)
        }
      }
    }

    mutating func array() throws -> JSON {
      var values: [JSON] = []
      try take("[")
      skipSpace()
      if next == UInt8(ascii: "]") {
        at += 1
        return .array(values)
      }
      while true {
        values.append(try value())
        skipSpace()
        if next == UInt8(ascii: ",") {
          at += 1
        } else {
          try take("]")
          return .array(values)
        }
      }
    }

    mutating func string() throws -> String {
      try take("\"")
      var out: [UInt8] = []
      while let byte = next {
        at += 1
        if byte == UInt8(ascii: "\"") { return String(decoding: out, as: UTF8.self) }
        guard byte == UInt8(ascii: "\\") else {
          guard byte >= 0x20 else { throw malformed }
          out.append(byte)
          continue
        }
        guard let escape = next else { throw malformed }
        at += 1
        switch escape {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): out.append(escape)
        case UInt8(ascii: "b"): out.append(0x08)
        case UInt8(ascii: "f"): out.append(0x0c)
        case UInt8(ascii: "n"): out.append(0x0a)
        case UInt8(ascii: "r"): out.append(0x0d)
        case UInt8(ascii: "t"): out.append(0x09)
        case UInt8(ascii: "u"): out += Array(try escapedScalar().utf8)
        default: throw malformed
        }
      }
      throw malformed
    }

    mutating func escapedScalar() throws -> String {
      guard at + 4 <= bytes.count, let unit = UInt32(String(decoding: bytes[at..<at + 4], as: UTF8.self), radix: 16)
      else { throw malformed }
      at += 4
      if let scalar = Unicode.Scalar(unit) { return String(Character(scalar)) }
      guard 0xd800..<0xdc00 ~= unit, at + 6 <= bytes.count, bytes[at] == UInt8(ascii: "\\"),
        bytes[at + 1] == UInt8(ascii: "u"),
        let low = UInt32(String(decoding: bytes[at + 2..<at + 6], as: UTF8.self), radix: 16), 0xdc00..<0xe000 ~= low,
        let scalar = Unicode.Scalar(0x10000 + (unit - 0xd800) << 10 + (low - 0xdc00))
      else { throw malformed }
      at += 6
      return String(Character(scalar))
    }
  }
}
