package import GuardianModel

/// Writes JSON by appending bytes. Strings come from Swift and so are valid UTF-8; what JSON wants escaped is escaped.
///
/// The caller keeps the order: a `key` before each value in an object. Commas are placed by the writer.
package struct JSONWriter: Sendable {
  package var bytes: [UInt8]
  private var needsComma = false

  package init(into bytes: [UInt8] = []) { self.bytes = bytes }

  package mutating func beginObject() { open(UInt8(ascii: "{")) }
  package mutating func endObject() { close(UInt8(ascii: "}")) }
  package mutating func beginArray() { open(UInt8(ascii: "[")) }
  package mutating func endArray() { close(UInt8(ascii: "]")) }

  /// - Parameter name: plain ASCII without quotes, backslashes or control characters.
  package mutating func key(_ name: StaticString) {
    separate()
    bytes.append(UInt8(ascii: "\""))
    bytes.append(contentsOf: UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
    bytes.append(UInt8(ascii: "\""))
    bytes.append(UInt8(ascii: ":"))
    needsComma = false
  }
  /// A key that is not known when the program is built. It has a label of its own, since a literal would be taken for a
  /// `String` otherwise, and looked through for what has to be escaped.
  package mutating func key(dynamic name: String) {
    separate()
    appendQuoted(name)
    bytes.append(UInt8(ascii: ":"))
    needsComma = false
  }

  package mutating func string(_ value: String) {
    separate()
    appendQuoted(value)
    needsComma = true
  }
  /// - Parameter value: plain ASCII, as for `key`.
  package mutating func literal(_ value: StaticString) {
    separate()
    bytes.append(UInt8(ascii: "\""))
    bytes.append(contentsOf: UnsafeBufferPointer(start: value.utf8Start, count: value.utf8CodeUnitCount))
    bytes.append(UInt8(ascii: "\""))
    needsComma = true
  }
  package mutating func integer(_ value: some BinaryInteger) {
    separate()
    Self.append(Int64(clamping: value), to: &bytes)
    needsComma = true
  }
  package mutating func bool(_ value: Bool) { raw(value ? "true" : "false") }
  package mutating func null() { raw("null") }
  /// `"2026-03-01T12:00:00.000Z"`.
  package mutating func time(_ value: WallTime) {
    separate()
    bytes.append(UInt8(ascii: "\""))
    value.appendRFC3339(to: &bytes)
    bytes.append(UInt8(ascii: "\""))
    needsComma = true
  }
  package mutating func strings(_ values: [String]) {
    beginArray()
    for value in values { string(value) }
    endArray()
  }

  /// - Parameter value: one whole JSON value.
  package mutating func verbatim(_ value: [UInt8]) {
    separate()
    bytes += value
    needsComma = true
  }

  private mutating func raw(_ text: StaticString) {
    separate()
    bytes.append(contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    needsComma = true
  }
  private mutating func separate() { if needsComma { bytes.append(UInt8(ascii: ",")) } }
  private mutating func open(_ bracket: UInt8) {
    separate()
    bytes.append(bracket)
    needsComma = false
  }
  private mutating func close(_ bracket: UInt8) {
    bytes.append(bracket)
    needsComma = true
  }

  private mutating func appendQuoted(_ value: String) {
    bytes.append(UInt8(ascii: "\""))
    var value = value
    value.withUTF8 { text in
      var clean = 0, index = 0
      while index < text.count {
        let byte = text[index]
        if byte >= 0x80 {
          let length = Self.steeringLength(text, index)
          if length > 0 {
            bytes.append(contentsOf: UnsafeBufferPointer(rebasing: text[clean..<index]))
            appendUnit(UnsafeBufferPointer(rebasing: text[index..<index + length]))
            clean = index + length
          }
          index += max(1, length)
          continue
        }
        if Self.mustEscape(byte) {
          bytes.append(contentsOf: UnsafeBufferPointer(rebasing: text[clean..<index]))
          appendEscape(byte)
          clean = index + 1
        }
        index += 1
      }
      bytes.append(contentsOf: UnsafeBufferPointer(rebasing: text[clean...]))
    }
    bytes.append(UInt8(ascii: "\""))
  }

  /// DEL is legal in JSON, but no terminal should see it.
  @inline(__always) private static func mustEscape(_ byte: UInt8) -> Bool {
    byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") || byte == 0x7f
  }

  /// Bytes of a control of U+0080 … U+009F, or of a mark that turns the direction of text (U+200B … U+200F, U+2028 …
  /// U+202E, U+2060 … U+206F, U+FEFF), which are legal too; 0 for everything else.
  private static func steeringLength(_ text: UnsafeBufferPointer<UInt8>, _ index: Int) -> Int {
    func next(_ offset: Int) -> UInt8 { index + offset < text.count ? text[index + offset] : 0 }
    switch (text[index], next(1), next(2)) {
    case (0xc2, 0x80...0x9f, _): return 2
    case (0xe2, 0x80, 0x8b...0x8f), (0xe2, 0x80, 0xa8...0xae), (0xe2, 0x81, 0xa0...0xaf), (0xef, 0xbb, 0xbf): return 3
    default: return 0
    }
  }

  private mutating func appendUnit(_ encoded: UnsafeBufferPointer<UInt8>) {
    for unit in String(decoding: encoded, as: UTF8.self).utf16 {
      bytes.append(contentsOf: "\\u".utf8)
      for shift in [12, 8, 4, 0] { bytes.append(hexDigit(UInt8(unit >> UInt16(shift) & 0xf))) }
    }
  }

  private mutating func appendEscape(_ byte: UInt8) {
    bytes.append(UInt8(ascii: "\\"))
    switch byte {
    case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes.append(byte)
    case 0x0a: bytes.append(UInt8(ascii: "n"))
    case 0x0d: bytes.append(UInt8(ascii: "r"))
    case 0x09: bytes.append(UInt8(ascii: "t"))
    default:
      bytes.append(contentsOf: "u00".utf8)
      bytes.append(hexDigit(byte >> 4))
      bytes.append(hexDigit(byte & 0xf))
    }
  }

  /// Decimal digits, with no String on the way.
  static func append(_ value: Int64, to bytes: inout [UInt8]) {
    if value < 0 { bytes.append(UInt8(ascii: "-")) }
    var rest = value.magnitude
    if rest < 10 {
      bytes.append(UInt8(ascii: "0") + UInt8(rest))
      return
    }
    let start = bytes.count
    while rest > 0 {
      bytes.append(UInt8(ascii: "0") + UInt8(rest % 10))
      rest /= 10
    }
    bytes[start...].reverse()
  }
}

func hexDigit(_ value: UInt8) -> UInt8 { value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10 }
