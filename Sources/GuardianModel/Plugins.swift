/// Some of the toggles of one service, by their place in its order: a value of one word, for up to 64 of them.
///
/// A place outside 0 … 63 is in no set, and putting it into one changes nothing.
package struct ToggleSet: Hashable, Sendable {
  package static let capacity = 64
  package static let none = ToggleSet()

  package var bits: UInt64

  package init(bits: UInt64 = 0) { self.bits = bits }
  package init(_ places: some Sequence<Int>) {
    self.init()
    for place in places { insert(place) }
  }
  /// The first `count` places.
  package static func all(_ count: Int) -> ToggleSet {
    ToggleSet(bits: count >= capacity ? .max : (1 << UInt64(max(0, count))) - 1)
  }

  package var count: Int { bits.nonzeroBitCount }
  package var isEmpty: Bool { bits == 0 }
  /// Ascending.
  package var places: [Int] {
    var places: [Int] = [], rest = bits
    places.reserveCapacity(count)
    while rest != 0 {
      places.append(rest.trailingZeroBitCount)
      rest &= rest &- 1
    }
    return places
  }

  package func contains(_ place: Int) -> Bool { bits & Self.bit(place) != 0 }
  package mutating func insert(_ place: Int) { bits |= Self.bit(place) }
  package mutating func remove(_ place: Int) { bits &= ~Self.bit(place) }
  package func union(_ other: ToggleSet) -> ToggleSet { ToggleSet(bits: bits | other.bits) }
  package func intersection(_ other: ToggleSet) -> ToggleSet { ToggleSet(bits: bits & other.bits) }
  package func subtracting(_ other: ToggleSet) -> ToggleSet { ToggleSet(bits: bits & ~other.bits) }
  package func isSubset(of other: ToggleSet) -> Bool { bits & ~other.bits == 0 }

  private static func bit(_ place: Int) -> UInt64 { place < 0 || place >= capacity ? 0 : 1 << UInt64(place) }
}

extension ToggleSet: CustomStringConvertible {
  package var description: String { "{\(places.map { "\($0)" }.joined(separator: " "))}" }
}

extension ToggleSet: ExpressibleByArrayLiteral {
  package init(arrayLiteral places: Int...) { self.init(places) }
}
