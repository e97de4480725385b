/// Bytes that are not of the form they should be.
package struct Malformed: Error {}

/// Writes tagged fields: tag, length, content. A reader skips tags that it does not know, so that fields can be added.
package struct FieldWriter {
  package private(set) var bytes: [UInt8] = []
  package init() {}

  private mutating func varint(_ value: UInt64) {
    var rest = value
    while rest >= 0x80 {
      bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    bytes.append(UInt8(truncatingIfNeeded: rest))
  }

  mutating func raw(_ byte: UInt8) { bytes.append(byte) }

  mutating func message(_ tag: UInt8, _ body: (inout FieldWriter) -> Void) {
    var inner = FieldWriter()
    body(&inner)
    blob(tag, inner.bytes)
  }
  package mutating func blob(_ tag: UInt8, _ content: some Collection<UInt8>) {
    bytes.append(tag)
    varint(UInt64(content.count))
    bytes += content
  }
  package mutating func string(_ tag: UInt8, _ text: String) {
    blob(tag, text.utf8)
  }
  /// Small numbers of either sign are short.
  package mutating func integer(_ tag: UInt8, _ value: Int64) {
    unsigned(tag, UInt64(bitPattern: value << 1 ^ value >> 63))
  }
  package mutating func unsigned(_ tag: UInt8, _ value: UInt64) {
    bytes.append(tag)
    bytes.append(UInt8(max(1, (70 - value.leadingZeroBitCount) / 7)))
    varint(value)
  }
  /// A field that is there or not.
  package mutating func flag(_ tag: UInt8, _ value: Bool) {
    if value { unsigned(tag, 1) }
  }
}

/// Reads what `FieldWriter` wrote; anything else makes it throw, nothing makes it trap.
package struct FieldReader {
  private var rest: ArraySlice<UInt8>
  package init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

  private mutating func varint() throws(Malformed) -> UInt64 {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), through: 63, by: 7) {
      guard let byte = rest.popFirst() else { throw Malformed() }
      // The tenth byte holds the last bit.
      if shift == 63, byte > 1 { throw Malformed() }
      value |= UInt64(byte & 0x7f) << shift
      if byte & 0x80 == 0 { return value }
    }
    throw Malformed()
  }

  /// The next field; nil at the end.
  package mutating func next() throws(Malformed) -> Field? {
    guard let tag = rest.popFirst() else { return nil }
    let length = try varint()
    guard length <= UInt64(rest.count) else { throw Malformed() }
    let content = rest.prefix(Int(length))
    rest = rest.dropFirst(Int(length))
    return Field(tag: tag, content: content)
  }

  fileprivate mutating func only() throws(Malformed) -> UInt64 {
    let value = try varint()
    guard rest.isEmpty else { throw Malformed() }
    return value
  }
}

package struct Field {
  package var tag: UInt8
  package var content: ArraySlice<UInt8>
  package init(tag: UInt8, content: ArraySlice<UInt8>) {
    self.tag = tag
    self.content = content
  }

  var reader: FieldReader { FieldReader(content) }
  func string() throws(Malformed) -> String {
    guard let text = String(validating: content, as: UTF8.self) else { throw Malformed() }
    return text
  }
  func unsigned() throws(Malformed) -> UInt64 {
    var reader = reader
    return try reader.only()
  }
  package func integer() throws(Malformed) -> Int64 {
    let value = try unsigned()
    return Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
  }
  func flag() throws(Malformed) -> Bool {
    switch try unsigned() {
    case 0: false
    case 1: true
    default: throw Malformed()
    }
  }
  /// A count of things.
  func count(_ range: ClosedRange<Int64> = 0...1_000_000_000) throws(Malformed) -> Int {
    let value = try integer()
    guard range.contains(value) else { throw Malformed() }
    return Int(value)
  }
  func int32() throws(Malformed) -> Int32 {
    guard let value = Int32(exactly: try integer()) else { throw Malformed() }
    return value
  }
}

/// What must be there.
func required<Value>(_ value: Value?) throws(Malformed) -> Value {
  guard let value else { throw Malformed() }
  return value
}
