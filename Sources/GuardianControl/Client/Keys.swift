/// A key of a terminal's keyboard.
package enum Key: Hashable, Sendable {
  case character(Character)
  case up, down, left, right, pageUp, pageDown, home, end
  case enter, escape, backspace
  /// `control("c")`.
  case control(Character)
}

/// Makes keys of what a terminal sends. Whatever it does not know is passed over, and nothing makes it wait for more than
/// the rest of one sequence.
package struct KeyReader: Sendable {
  private var rest: [UInt8] = []
  private static let longest = 16

  package init() {}

  /// - Parameter bytes: What one read has given. An escape at its end is the key; at any other place a sequence begins.
  package mutating func feed(_ bytes: some Sequence<UInt8>) -> [Key] {
    rest += bytes
    var keys: [Key] = []
    var index = 0
    while index < rest.count, let (key, length) = Self.key(rest[index...]) {
      if let key { keys.append(key) }
      index += length
    }
    rest.removeFirst(index)
    if rest == [0x1b] {
      keys.append(.escape)
      rest = []
    }
    if rest.count > Self.longest { rest = [] }
    return keys
  }

  /// Nil: more is needed.
  private static func key(_ bytes: ArraySlice<UInt8>) -> (key: Key?, length: Int)? {
    guard let first = bytes.first else { return nil }
    switch first {
    case 0x1b: return sequence(bytes)
    case 0x0d, 0x0a: return (.enter, 1)
    case 0x7f, 0x08: return (.backspace, 1)
    case 1...26: return (.control(Character(Unicode.Scalar(first + 0x60))), 1)
    case ..<0x20: return (nil, 1)
    case ..<0x80: return (.character(Character(Unicode.Scalar(first))), 1)
    default:
      let length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1
      if bytes.count < length { return nil }
      let text = String(decoding: bytes.prefix(length), as: UTF8.self)
      guard text.count == 1, let character = text.first, character != "\u{fffd}" else { return (nil, 1) }
      return (.character(character), length)
    }
  }

  /// `ESC [ A`, `ESC O A`, `ESC [ 5 ~`, with parameters that are passed over.
  private static func sequence(_ bytes: ArraySlice<UInt8>) -> (key: Key?, length: Int)? {
    let start = bytes.startIndex
    guard bytes.count > 1 else { return nil }
    let second = bytes[start + 1]
    guard second == UInt8(ascii: "[") || second == UInt8(ascii: "O") else {
      // Two keys: an escape, and what follows.
      return (.escape, 1)
    }
    var index = start + 2
    var number = 0
    while index < bytes.endIndex {
      let byte = bytes[index]
      if (0x40...0x7e).contains(byte) {
        let key: Key? =
          switch byte {
          case UInt8(ascii: "A"): .up
          case UInt8(ascii: "B"): .down
          case UInt8(ascii: "C"): .right
          case UInt8(ascii: "D"): .left
          case UInt8(ascii: "H"): .home
          case UInt8(ascii: "F"): .end
          case UInt8(ascii: "~"):
            switch number {
            case 1, 7: .home
            case 4, 8: .end
            case 5: .pageUp
            case 6: .pageDown
            default: nil
            }
          default: nil
          }
        return (key, index - start + 1)
      }
      if index - start > longest { return (nil, index - start) }
      if (0x30...0x39).contains(byte), number < 100 { number = number * 10 + Int(byte - 0x30) }
      index += 1
    }
    return nil
  }
}
