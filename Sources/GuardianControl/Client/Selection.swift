/// Which services a command line means: names, `@GROUP`, patterns as in a shell, or all.
package enum Selection {
  /// A name that means all services of a group.
  package static func isGroup(_ word: String) -> Bool { word.hasPrefix("@") }

  /// No service has one of these in its name.
  package static func isPattern(_ word: String) -> Bool {
    word.utf8.contains { $0 == UInt8(ascii: "*") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "[") }
  }

  /// What the words come to.
  package struct Chosen: Hashable, Sendable {
    /// Each service once: as they were named, those of a pattern in order of name, those of groups last.
    package var names: [String] = []
    /// Patterns that no service matches, and groups that nobody is in.
    package var unmatched: [String] = []
    package init() {}
  }

  /// - Parameters:
  ///   - known: All services in order of name, where a pattern or `all` asks for them.
  ///   - members: Of all the groups together.
  ///   - empty: Groups that have none.
  package static func choose(
    _ words: [String], all: Bool, known: [String], members: [String], empty: [String]
  ) -> Chosen {
    var chosen = Chosen()
    var seen: Set<String> = []
    func add(_ name: String) { if seen.insert(name).inserted { chosen.names.append(name) } }
    if all { for name in known { add(name) } }
    for word in words where !isGroup(word) {
      guard isPattern(word) else {
        add(word)
        continue
      }
      let found = known.filter { matches($0, word) }
      if found.isEmpty { chosen.unmatched.append(word) }
      for name in found { add(name) }
    }
    for name in members { add(name) }
    chosen.unmatched += empty
    return chosen
  }

  /// `*`, `?`, `[a-c]`, `[!a-c]`, as a shell reads them; a bracket that is not closed stands for itself.
  ///
  /// Takes time in proportion to the two lengths multiplied, whatever the pattern: only the last `*` is gone back to.
  package static func matches(_ name: String, _ pattern: String) -> Bool {
    let text = Array(name.utf8), pattern = Array(pattern.utf8)
    var at = 0, place = 0
    var star: (pattern: Int, text: Int)?
    while at < text.count {
      if place < pattern.count, pattern[place] == UInt8(ascii: "*") {
        place += 1
        star = (place, at)
      } else if let next = one(text[at], pattern, place) {
        place = next
        at += 1
      } else if let back = star {
        star = (back.pattern, back.text + 1)
        place = back.pattern
        at = back.text + 1
      } else {
        return false
      }
    }
    return pattern[place...].allSatisfy { $0 == UInt8(ascii: "*") }
  }

  /// Where the pattern goes on behind the element at `index`, if that fits `byte`.
  private static func one(_ byte: UInt8, _ pattern: [UInt8], _ index: Int) -> Int? {
    guard index < pattern.count else { return nil }
    switch pattern[index] {
    case UInt8(ascii: "?"): return index + 1
    case UInt8(ascii: "["):
      guard let set = bracket(pattern, index) else { return byte == UInt8(ascii: "[") ? index + 1 : nil }
      return set.contains(byte) ? set.end : nil
    case let other: return other == byte ? index + 1 : nil
    }
  }

  private struct Bracket {
    var ranges: [ClosedRange<UInt8>] = []
    var excludes = false
    var end: Int
    func contains(_ byte: UInt8) -> Bool { ranges.contains { $0.contains(byte) } != excludes }
  }

  private static func bracket(_ pattern: [UInt8], _ start: Int) -> Bracket? {
    var set = Bracket(end: 0)
    var index = start + 1
    if index < pattern.count, pattern[index] == UInt8(ascii: "!") || pattern[index] == UInt8(ascii: "^") {
      set.excludes = true
      index += 1
    }
    let first = index
    while index < pattern.count {
      // A bracket that comes first is one of the set.
      if pattern[index] == UInt8(ascii: "]"), index > first {
        set.end = index + 1
        return set
      }
      let low = pattern[index]
      if index + 2 < pattern.count, pattern[index + 1] == UInt8(ascii: "-"), pattern[index + 2] != UInt8(ascii: "]") {
        let high = pattern[index + 2]
        if low <= high { set.ranges.append(low...high) }
        index += 3
      } else {
        set.ranges.append(low...low)
        index += 1
      }
    }
    return nil
  }
}
