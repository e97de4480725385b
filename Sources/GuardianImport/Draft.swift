/// A service's file under construction: values by key, and what has been said about the lines they come from.
struct Draft {
  indirect enum Value: Hashable {
    /// A word, a number, a duration or a size, which YAML takes as it is.
    case plain(String)
    /// Anything, quoted where that is needed.
    case text(String)
    /// In quotes, whatever it is.
    case quoted(String)
    case list([Value])
    case map([(key: String, value: Value)])

    static func == (a: Value, b: Value) -> Bool { a.flow == b.flow }
    func hash(into hasher: inout Hasher) { hasher.combine(flow) }
  }

  var source: String
  private var values: [String: Value] = [:]
  private(set) var carried: [CarriedLine] = []
  private(set) var remarks: [Remark] = []

  init(source: String) { self.source = source }

  /// The order of the manual.
  private static let order = [
    "description", "command", "user", "group", "directory", "environment", "environment-file", "umask", "limits",
    "oom-score-adjust", "nice", "capabilities", "before-start", "start", "requires", "after", "groups", "type", "ready",
    "start-timeout", "startup-window", "watchdog", "checks", "stop", "reload", "restart", "backoff", "escalation",
    "success-exit", "fatal-exit", "runbook", "log",
  ]

  subscript(key: String) -> Value? {
    get { values[key] }
    set { values[key] = newValue }
  }

  /// Sets a key within a mapping; the order is that of the calls.
  mutating func set(_ key: String, _ inner: String, _ value: Value) {
    var entries: [(key: String, value: Value)] = []
    if case .map(let old)? = values[key] { entries = old }
    if let index = entries.firstIndex(where: { $0.key == inner }) {
      entries[index].value = value
    } else {
      entries.append((inner, value))
    }
    values[key] = .map(entries)
  }

  mutating func append(_ key: String, _ value: Value) {
    var items: [Value] = []
    if case .list(let old)? = values[key] { items = old }
    if !items.contains(value) { values[key] = .list(items + [value]) }
  }

  mutating func carry(_ place: Place, to key: String) {
    carried.append(CarriedLine(file: place.file, line: place.line, what: place.what, key: key))
  }
  mutating func remark(_ kind: Remark.Kind, _ place: Place, _ why: String) {
    remarks.append(Remark(kind: kind, file: place.file, line: place.line, what: brief(place.what), why: why))
  }
  mutating func remark(_ kind: Remark.Kind, _ what: String, _ why: String) {
    remarks.append(Remark(kind: kind, file: source, line: nil, what: what, why: why))
  }

  /// - Parameter name: any text; it becomes a valid name.
  func service(named name: String) -> ImportedService {
    let order = { (remark: Remark) in (remark.file == source ? 0 : 1, remark.file, remark.line ?? 0) }
    // A line is told once: as carried over, or with what is to be said about it.
    let told = Set(remarks.map { Place(file: $0.file, line: $0.line ?? 0, what: "") })
    let silent = carried.filter { !told.contains(Place(file: $0.file, line: $0.line, what: "")) }
    return ImportedService(
      name: serviceName(name), yaml: yaml, carried: silent.sorted { ($0.file, $0.line) < ($1.file, $1.line) },
      remarks: remarks.sorted { order($0) < order($1) })
  }

  // MARK: YAML

  private var yaml: String {
    var text = "# Made from \(brief(source)) by guardianctl import.\n"
    for key in Self.order {
      guard let value = values[key] else { continue }
      text += Self.entry(key, value, indent: "")
    }
    return text
  }

  /// In one line where that is short, else in several.
  private static func entry(_ key: String, _ value: Value, indent: String) -> String {
    let line = "\(indent)\(scalar(key)): \(value.flow)"
    if line.utf8.count <= 110 { return line + "\n" }
    switch value {
    case .plain, .text, .quoted: return line + "\n"
    case .list(let items):
      return "\(indent)\(scalar(key)):\n" + items.map { "\(indent)  - \($0.flow)\n" }.joined()
    case .map(let entries):
      return "\(indent)\(scalar(key)):\n" + entries.map { entry($0.key, $0.value, indent: indent + "  ") }.joined()
    }
  }

  /// Without quotes only what no reader of YAML takes for anything but this text.
  fileprivate static func scalar(_ text: String) -> String {
    isPlain(text) ? text : quoted(text)
  }

  private static func isPlain(_ text: String) -> Bool {
    let bytes = Array(text.utf8)
    guard let first = bytes.first, bytes.count <= 200 else { return false }
    func isLetter(_ byte: UInt8) -> Bool { (0x41...0x5a).contains(byte & 0xdf) }
    func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
    let head = isLetter(first) || first == UInt8(ascii: "/") || first == UInt8(ascii: "_")
    // `-f`, `--file=x`, but not `-1` and `---`.
    let option =
      first == UInt8(ascii: "-") && bytes.contains(where: isLetter) && !bytes.dropFirst().contains { $0 == 0x20 }
      && !(bytes.count > 1 && (isDigit(bytes[1]) || bytes[1] == UInt8(ascii: ".")))
    guard head || option else { return false }
    let others = Array("/_.-+=@%".utf8)
    // Blanks within do no harm where no colon and no '#' is near.
    guard bytes.allSatisfy({ isLetter($0) || isDigit($0) || others.contains($0) || $0 == 0x20 }), bytes.last != 0x20
    else {
      return false
    }
    let words = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"]
    return !words.contains(text.lowercased())
  }

  fileprivate static func quoted(_ text: String) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
      switch scalar.value {
      case 0x22: result += "\\\""
      case 0x5c: result += "\\\\"
      case 0x0a: result += "\\n"
      case 0x09: result += "\\t"
      case 0..<0x20, 0x7f..<0xa0: result += "\\x" + hex(scalar.value, digits: 2)
      case 0x200b...0x200f, 0x2028...0x202e, 0x2060...0x206f, 0xfeff, 0xfff9...0xffff:
        result += "\\u" + hex(scalar.value, digits: 4)
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result + "\""
  }

  private static func hex(_ value: UInt32, digits: Int) -> String {
    let text = String(value, radix: 16)
    return String(repeating: "0", count: max(0, digits - text.utf8.count)) + text
  }
}

extension Draft.Value {
  var flow: String {
    switch self {
    case .plain(let text): text
    case .text(let text): Draft.scalar(text)
    case .quoted(let text): Draft.quoted(text)
    case .list(let items): "[" + items.map(\.flow).joined(separator: ", ") + "]"
    case .map(let entries):
      "{" + entries.map { "\(Draft.scalar($0.key)): \($0.value.flow)" }.joined(separator: ", ") + "}"
    }
  }
  static func words(_ texts: [String]) -> Draft.Value { .list(texts.map { .text($0) }) }
}

/// Where something stands, and what it says there.
struct Place: Hashable {
  var file: String, line: Int, what: String
}
