/// A service's name, which is its file's name too: `[a-z0-9][a-z0-9._@-]{0,63}`.
package struct ServiceName: Hashable, Comparable, Sendable, CustomStringConvertible {
  package let text: String

  /// Nil where `text` does not have the form above.
  package init?(_ text: String) {
    let bytes = text.utf8
    guard let first = bytes.first, bytes.count <= 64, Self.isAlphanumeric(first) else { return nil }
    for byte in bytes where !Self.isAlphanumeric(byte) {
      guard
        byte == UInt8(ascii: ".") || byte == UInt8(ascii: "_") || byte == UInt8(ascii: "@")
          || byte == UInt8(ascii: "-")
      else { return nil }
    }
    self.text = text
  }

  private init(known text: String) { self.text = text }
  /// As which guardian itself is named where a service would be.
  package static let guardian = ServiceName(known: "guardian")

  private static func isAlphanumeric(_ byte: UInt8) -> Bool {
    (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
  }
  package static func < (a: ServiceName, b: ServiceName) -> Bool { a.text < b.text }
  package var description: String { text }
}

/// A service's number within this instance of guardian. Dense, never used again, never shown.
package struct ServiceID: Hashable, Comparable, Sendable {
  package let index: Int
  package init(_ index: Int) { self.index = index }
  package static func < (a: ServiceID, b: ServiceID) -> Bool { a.index < b.index }
}

/// The 128-bit invocation id of one run of a service or of a hook. A pid is never an identity; this is.
package struct RunID: Hashable, Sendable, CustomStringConvertible {
  package let high: UInt64, low: UInt64
  package init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }
  /// 32 lower-case hexadecimal digits, as in INVOCATION_ID.
  package var description: String {
    var digits: [UInt8] = []
    digits.reserveCapacity(32)
    for half in [high, low] {
      for shift in stride(from: 60, through: 0, by: -4) {
        let digit = UInt8(truncatingIfNeeded: half >> UInt64(shift)) & 0xf
        digits.append(digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10)
      }
    }
    return String(decoding: digits, as: UTF8.self)
  }
}

/// Names one request to save; the answer to it carries the same number. Rises within one service.
package struct Ticket: Hashable, Comparable, Sendable {
  package let number: UInt64
  package init(_ number: UInt64) { self.number = number }
  package static let none = Ticket(0)
  package static func < (a: Ticket, b: Ticket) -> Bool { a.number < b.number }
}

/// Names one operator's request that waits for an outcome.
package struct RequestID: Hashable, Comparable, Sendable {
  package let number: UInt64
  package init(_ number: UInt64) { self.number = number }
  package static func < (a: RequestID, b: RequestID) -> Bool { a.number < b.number }
}

/// How the answer begins to an order to start what has to wait for another service that will not come by itself.
package let wantedAndWaits = "it is wanted up now, and "

extension RunID {
  /// 32 lower-case hexadecimal digits and nothing else.
  package init?(hexadecimal digits: ArraySlice<UInt8>) {
    guard digits.count == 32 else { return nil }
    var halves: [UInt64] = [0, 0]
    for (index, digit) in digits.enumerated() {
      let value: UInt8
      switch digit {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): value = digit - UInt8(ascii: "0")
      case UInt8(ascii: "a")...UInt8(ascii: "f"): value = digit - UInt8(ascii: "a") + 10
      default: return nil
      }
      halves[index / 16] = halves[index / 16] << 4 | UInt64(value)
    }
    self.init(high: halves[0], low: halves[1])
  }
}
