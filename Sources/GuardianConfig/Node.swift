/// One value of a YAML file, with its place. Never changes; an anchor's value is shared by its aliases.
final class Node: Sendable {
  struct Entry: Sendable { let key: Node, value: Node }
  enum Content: Sendable {
    /// `plain`: written without quotes, so that a typed key may read it as a number or a word.
    case scalar(String, plain: Bool)
    case list([Node])
    case mapping([Entry])
  }
  let content: Content
  let file: String
  /// Counted from 1, in characters.
  let line: Int, column: Int
  /// Behind its last character, where it ends on the line on which it begins.
  let endColumn: Int?
  /// The text that YAML took for a comment right behind this scalar, if any.
  let swallowed: String?
  /// Values in here, aliases counted each time.
  let weight: Int
  let depth: Int

  init(_ content: Content, file: String, line: Int, column: Int, endColumn: Int? = nil, swallowed: String? = nil) {
    self.content = content
    self.file = file
    self.line = line
    self.column = column
    self.endColumn = endColumn
    self.swallowed = swallowed
    switch content {
    case .scalar: (weight, depth) = (1, 1)
    case .list(let items):
      weight = items.reduce(1) { $0 + $1.weight }
      depth = 1 + (items.map(\.depth).max() ?? 0)
    case .mapping(let entries):
      weight = entries.reduce(1) { $0 + $1.key.weight + $1.value.weight }
      depth = 1 + (entries.map { max($0.key.depth, $0.value.depth) }.max() ?? 0)
    }
  }

  /// A list or mapping with nothing in it.
  var isEmpty: Bool {
    switch content {
    case .scalar: false
    case .list(let items): items.isEmpty
    case .mapping(let entries): entries.isEmpty
    }
  }

  /// Of a mapping with words for keys.
  var entries: [String: Node] {
    guard case .mapping(let entries) = content else { return [:] }
    var found: [String: Node] = [:]
    for entry in entries { if case .scalar(let word, _) = entry.key.content { found[word] = entry.value } }
    return found
  }

  /// The same values, wherever they are written. What the composer lets pass is shallow.
  func saysTheSame(as other: Node) -> Bool {
    if self === other { return true }
    switch (content, other.content) {
    case (.scalar(let a, let plainA), .scalar(let b, let plainB)): return a == b && plainA == plainB
    case (.list(let a), .list(let b)):
      return a.count == b.count && zip(a, b).allSatisfy { $0.saysTheSame(as: $1) }
    case (.mapping(let a), .mapping(let b)):
      return a.count == b.count
        && zip(a, b).allSatisfy { $0.key.saysTheSame(as: $1.key) && $0.value.saysTheSame(as: $1.value) }
    case (.scalar, _), (.list, _), (.mapping, _): return false
    }
  }

  /// `a list`, for sentences.
  var kind: String {
    switch content {
    case .scalar(let text, let plain): plain && (text.isEmpty || text == "~") ? "an empty value" : "'\(brief(text))'"
    case .list: "a list"
    case .mapping: "a mapping"
    }
  }
}

/// At most 40 characters of outside text, on one line.
func brief(_ text: String) -> String {
  var result = ""
  var count = 0
  for scalar in text.unicodeScalars {
    if count == 40 { return result + "…" }
    count += 1
    switch scalar {
    case "\n": result += "\\n"
    case "\t": result += "\\t"
    case "\r": result += "\\r"
    case _ where scalar.value < 0x20 || (0x7f..<0xa0).contains(scalar.value):
      result += "\\x\(String(scalar.value, radix: 16))"
    default: result.unicodeScalars.append(scalar)
    }
  }
  return result
}
