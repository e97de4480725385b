import GuardianModel

// JSON Schema of the three kinds of files, for editors, from the table that the reader uses. Draft 07, which is what editors
// understand best. It knows less than the reader: sizes and times are patterns, and what one key means for another is left
// out. What the reader takes the schema takes too.

extension Configuration {
  /// One document, with a line break at its end.
  package static func schema(of file: KnownKey.File) -> String {
    var members: [(String, Schema)] = [
      ("$schema", .text("http://json-schema.org/draft-07/schema#")), ("title", .text("guardian: \(file.rawValue)")),
    ]
    switch file {
    case .service:
      members.append(("description", .text("A service that guardian supervises, see guardian.yaml(5).")))
    case .host: members.append(("description", .text("Settings of the whole host, see guardian.yaml(5).")))
    case .switches: members.append(("description", .text("What is turned off on this host, see guardian-switches(5).")))
    }
    members += SchemaMaker(table: file.table).mapping(at: "", needs: SchemaMaker.needs(of: file))
    if file == .host {
      let service = SchemaMaker(table: .service, isDefaults: true).mapping(at: "", needs: [])
      members.append(("definitions", .object([("service", .object(service))])))
    }
    return Schema.object(members).json + "\n"
  }
}

/// A piece of JSON, its members in order.
package indirect enum Schema: Hashable, Sendable {
  case text(String), number(Int), bool(Bool), list([Schema]), object([Member])
  package struct Member: Hashable, Sendable {
    package var key: String, value: Schema
  }
  static func object(_ members: [(String, Schema)]) -> Schema {
    .object(members.map { Member(key: $0.0, value: $0.1) })
  }
  static func texts(_ words: [String]) -> Schema { .list(words.map { .text($0) }) }

  /// Two blanks for each level; what is short stays on one line.
  package var json: String { written(indent: 0) }

  private func written(indent: Int) -> String {
    let short = flat
    if short.utf8.count + indent <= 100 { return short }
    let inner = String(repeating: " ", count: indent + 2), outer = String(repeating: " ", count: indent)
    switch self {
    case .text, .number, .bool: return short
    case .list(let items):
      return "[\n" + items.map { inner + $0.written(indent: indent + 2) }.joined(separator: ",\n") + "\n\(outer)]"
    case .object(let members):
      let lines = members.map { "\(inner)\(Self.quoted($0.key)): \($0.value.written(indent: indent + 2))" }
      return "{\n" + lines.joined(separator: ",\n") + "\n\(outer)}"
    }
  }
  private var flat: String {
    switch self {
    case .text(let text): Self.quoted(text)
    case .number(let number): String(number)
    case .bool(let value): value ? "true" : "false"
    case .list(let items): "[" + items.map(\.flat).joined(separator: ", ") + "]"
    case .object(let members):
      "{" + members.map { "\(Self.quoted($0.key)): \($0.value.flat)" }.joined(separator: ", ") + "}"
    }
  }
  private static func quoted(_ text: String) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"": result += "\\\""
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result + "\""
  }
}

struct SchemaMaker {
  let table: KeyTable
  /// Only what may stand under `defaults`.
  var isDefaults = false
  /// Paths may begin with the entry's own, and nothing is called by a name.
  private var isEntry = false

  init(table: KeyTable, isDefaults: Bool = false) {
    self.table = table
    self.isDefaults = isDefaults
  }

  /// Of one mapping, one of each of these has to be there.
  struct Need {
    enum HowMany: String { case exactlyOne = "oneOf", some = "anyOf" }
    var keys: [String]
    var howMany = HowMany.exactlyOne
  }

  static func needs(of file: KnownKey.File) -> [Need] {
    switch file {
    case .service: [Need(keys: ["command"])]
    case .host: []
    case .switches:
      [Need(keys: ["reason"]), Need(keys: ["services"]), Need(keys: ["plugins", "steps", "ladder"], howMany: .some)]
    }
  }

  private func needs(at path: String) -> [Need] {
    guard table.keys.first?.path == KeyTable.service.keys.first?.path else { return [] }
    switch path {
    case "ready": return [Need(keys: ["fd"])]
    case "checks[]": return [Need(keys: ["name"]), Need(keys: ["http", "tcp", "exec", "file"])]
    case "stop.then[]": return [Need(keys: ["signal"])]
    case "repair[]": return [Need(keys: ["name"]), Need(keys: ["run", "move-aside", "restore"])]
    case "repair[].at-most": return [Need(keys: ["times"]), Need(keys: ["within"])]
    case "plugins.list[]":
      let ways = table.words(under: path).filter { $0 != "name" }
      return (isEntry ? [] : [Need(keys: ["name"])]) + [Need(keys: ways, howMany: .some)]
    case "plugins.list[].remove-from[]": return [Need(keys: ["item"]), Need(keys: ["variable", "argument"])]
    case "plugins.list[].replace-arguments[]": return [Need(keys: ["from"]), Need(keys: ["to"])]
    case "plugins.acknowledge": return [Need(keys: ["check", "status"])]
    default: return []
    }
  }

  /// The members of a schema for the mapping at `path`.
  func mapping(at path: String, needs: [Need]) -> [(String, Schema)] {
    var properties: [(String, Schema)] = []
    for key in table.keys where key.parent == path {
      if path.isEmpty, isDefaults, KeyTable.notInDefaults.contains(key.path) { continue }
      if isEntry, key.path == "plugins.list[].name" { continue }
      properties.append((key.word, property(key)))
    }
    var members: [(String, Schema)] = [("type", .text("object")), ("additionalProperties", .bool(false))]
    let all = needs.filter { $0.keys.count == 1 }.flatMap(\.keys)
    if !all.isEmpty { members.append(("required", .texts(all))) }
    for need in needs where need.keys.count > 1 {
      members.append(
        (need.howMany.rawValue, .list(need.keys.map { .object([("required", .texts([$0]))]) })))
    }
    members.append(("properties", .object(properties)))
    return members
  }

  private func property(_ key: KeyTable.Key) -> Schema {
    var text = key.meaning.prefix(1).uppercased() + key.meaning.dropFirst() + "."
    if !key.standard.isEmpty { text += " Default: \(key.standard)." }
    let kinds = kinds(of: key.shape, key)
    var members: [Schema.Member] = [Schema.Member(key: "description", value: .text(text))]
    if let value = standard(key.standard, kinds) { members.append(Schema.Member(key: "default", value: value)) }
    if kinds.count == 1, case .object(let only) = kinds[0] {
      members += only
    } else if !kinds.isEmpty {
      members.append(Schema.Member(key: "anyOf", value: .list(kinds)))
    }
    return .object(members)
  }

  /// The default as a value, where it is one; some are sentences.
  private func standard(_ text: String, _ kinds: [Schema]) -> Schema? {
    for case .object(let members) in kinds {
      func has(_ key: String, _ value: String) -> Bool {
        members.contains { $0.key == key && $0.value == .text(value) }
      }
      let words = members.first { $0.key == "enum" }?.value
      if case .list(let words)? = words, words.contains(.text(text)) { return .text(text) }
      if has("type", "integer") || has("type", "number"), let number = Int(text) { return .number(number) }
      if has("type", "string"), Scalars.duration(text) != nil || text.hasSuffix("%") { return .text(text) }
      if has("type", "string"), text.hasSuffix("M") || text.hasSuffix("G"), Scalars.size(text) != nil {
        return .text(text)
      }
      if has("type", "array"), text == "[]" { return .list([]) }
      if has("type", "object"), text == "{}" { return .object([Schema.Member]()) }
    }
    return nil
  }

  // MARK: Shapes

  /// Whether all words of a shape are known here: a test asks.
  static func understands(_ key: KeyTable.Key, in table: KeyTable) -> Bool {
    let maker = SchemaMaker(table: table)
    return key.shape.split(separator: "|").allSatisfy { part in
      let word = String(part.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
      return isLiteral(word) || maker.kind(word, key) != nil
    }
  }

  private static func isLiteral(_ word: String) -> Bool {
    !vocabulary.contains(word)
      && word.utf8.allSatisfy { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) || $0 == UInt8(ascii: "-") }
  }
  /// Single words that stand for a kind of value and not for themselves.
  private static let vocabulary: Set<String> = [
    "text", "path", "name", "duration", "size", "number", "mapping", "list", "time", "argument", "library", "pattern",
    "variable",
  ]

  private static let singular = [
    "paths": "path", "variables": "variable", "arguments": "argument", "patterns": "pattern", "libraries": "library",
  ]

  /// One schema for each alternative; words that stand for themselves together. None: anything goes.
  private func kinds(of shape: String, _ key: KeyTable.Key) -> [Schema] {
    var literals: [String] = []
    var result: [Schema] = []
    for part in shape.split(separator: "|") {
      let word = String(part.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
      if Self.isLiteral(word) {
        literals.append(word)
      } else if let kind = kind(word, key) {
        result.append(.object(kind))
      } else {
        return []
      }
    }
    if literals.isEmpty { return result }
    return [.object([("type", .text("string")), ("enum", .texts(literals))])] + result
  }

  private typealias Members = [(String, Schema)]
  /// Text may be written without quotes, so that other tools take it for something else.
  private static let scalar: Members = [("type", .texts(["string", "number", "boolean"]))]
  private static func scalar(_ pattern: String) -> Members { scalar + [("pattern", .text(pattern))] }
  private static func string(_ pattern: String) -> Members {
    [("type", .text("string")), ("pattern", .text(pattern))]
  }
  private static func list(_ items: Members) -> Members { [("type", .text("array")), ("items", .object(items))] }
  private static func any(_ kinds: [Members]) -> Members { [("anyOf", .list(kinds.map { .object($0) }))] }
  private static let command: Members = any([
    list(scalar) + [("minItems", .number(1))], string("/"),
  ])
  private static let serviceName = scalar("^[a-z0-9][a-z0-9._@-]{0,63}$")
  private static let signal =
    "(SIG)?(" + Signal.names.joined(separator: "|") + "|RTMIN([+][0-9]+)?|RT[0-9]+)"

  private func kind(_ shape: String, _ key: KeyTable.Key) -> Members? {
    switch shape {
    case "text", "argument", "library", "pattern", "name or number": return Self.scalar
    case "name": return Self.scalar("^[A-Za-z0-9._-]{1,64}$")
    case "name of a service": return Self.serviceName
    case "variable", "name of a variable": return Self.scalar("^[^= ]+$")
    case "URL": return Self.string("^[hH][tT][tT][pP][sS]?://[^/?#:]")
    case "path": return Self.string(isEntry ? "^(/|%p)" : "^-?/")
    case "port, HOST:PORT or path":
      return Self.any([
        [("type", .text("integer")), ("minimum", .number(1)), ("maximum", .number(65535))],
        Self.string("^(/.*|(.+:)?[0-9]+)$"),
      ])
    case "signal name": return Self.string("^" + Self.signal + "$")
    case "quoted octal": return Self.string("^0?[0-7]{1,3}$")
    case "0% … 100%": return Self.string("^(100([.]0{1,6})?|[0-9]{1,2}([.][0-9]{1,6})?)%$")
    case "time": return Self.string("^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}")
    case "time of day": return Self.string("^[0-2][0-9]:[0-5][0-9]-[0-2][0-9]:[0-5][0-9]$")
    case "list, or one line": return Self.command
    case "mapping of names to text":
      return [
        ("type", .text("object")), ("propertyNames", .object([("pattern", .text("^[^= ]+$"))])),
        ("additionalProperties", .object(Self.scalar)),
      ]
    case "mapping of service keys": return [("$ref", .text("#/definitions/service"))]
    case "mapping" where key.path == "plugins.entry":
      var inner = self
      inner.isEntry = true
      return inner.mapping(at: "plugins.list[]", needs: inner.needs(at: "plugins.list[]"))
    case "mapping", "{fd: N}": return mapping(at: key.path, needs: needs(at: key.path))
    case "list of mappings":
      let inner = key.path + "[]"
      return Self.list(mapping(at: inner, needs: needs(at: inner)))
    case "list of causes":
      let classes = CrashClass.allCases.map(\.rawValue).joined(separator: "|")
      return Self.list(
        Self.scalar(
          "^(exit:[0-9]{1,3}|signal:\(Self.signal)|class:(\(classes))|" + ServiceDecoder.causes.joined(separator: "|")
            + ")$"))
    case "list of exit codes": return Self.list(Self.integer(0, 255))
    case "list of services": return Self.list(Self.serviceName)
    case "list of users and @groups": return Self.list(Self.scalar("."))
    case "list of names" where key.path == "capabilities":
      return Self.list([("type", .text("string")), ("enum", .texts(Capability.names))])
    case "list of names" where key.path == "groups": return Self.list(Self.serviceName)
    case "list of names": return Self.list(Self.scalar("."))
    case "list of paths" where key.path == "repair[].restore":
      return kind("path", key).map { Self.list($0) + [("minItems", .number(1))] }
    case "list of arguments, or of lists of arguments":
      return Self.list(Self.any([Self.scalar, Self.list(Self.scalar) + [("minItems", .number(1))]]))
    default: break
    }
    // `X, or list of them`, `path, or list of paths`
    if let comma = shape.firstIndex(of: ","), shape[comma...].hasPrefix(", or list of "),
      let one = kind(String(shape[..<comma]), key)
    {
      return Self.any([one, Self.list(one)])
    }
    if shape.hasPrefix("list of ") {
      if let one = Self.singular[String(shape.dropFirst(8))] { return kind(one, key).map { Self.list($0) } }
      // The words themselves.
      let words = shape.dropFirst(8).split(separator: ",").map { String($0.drop { $0 == " " }) }
      guard words.count > 1, words.allSatisfy(Self.isLiteral) else { return nil }
      return Self.list([("type", .text("string")), ("enum", .texts(words))])
    }
    return number(shape)
  }

  private static func integer(_ least: Int, _ most: Int?) -> Members {
    [("type", .text("integer")), ("minimum", .number(least))] + (most.map { [("maximum", .number($0))] } ?? [])
  }

  /// `3 … 1023`, `number`, `number from 1`, `number from 1 to 1000`, `duration from 1s`, `size from 16K`.
  private func number(_ shape: String) -> Members? {
    let words = shape.split(separator: " ").map(String.init)
    if words.count == 3, words[1] == "…", let least = Int(words[0]), let most = Int(words[2]) {
      return Self.integer(least, most)
    }
    guard let kind = words.first else { return nil }
    switch (kind, words.count) {
    case (_, 1): break
    case (_, 3) where words[1] == "from": break
    case (_, 5) where words[1] == "from" && words[3] == "to": break
    default: return nil
    }
    let least = words.count > 2 ? words[2] : nil, most = words.count > 4 ? words[4] : nil
    switch kind {
    case "number":
      if let least, let most {
        guard let least = Int(least), let most = Int(most) else { return nil }
        return [("type", .text("number")), ("minimum", .number(least)), ("maximum", .number(most))]
      }
      guard let least = Int(least ?? "0") else { return nil }
      return Self.integer(least, nil)
    case "size":
      guard let least = Scalars.size(least ?? "0") else { return nil }
      // Without a unit it is a number, and in quotes none.
      return Self.any([
        Self.integer(Int(clamping: least), nil),
        Self.string(least > 0 ? "^[1-9][0-9]*[KMGT]$" : "^(0|[1-9][0-9]*)[KMGT]$"),
      ])
    case "duration":
      if let least, Scalars.duration(least) == nil { return nil }
      if let most, Scalars.duration(most) == nil { return nil }
      let part = "(0|[1-9][0-9]*)"
      let form = "^(\(part)d)?(\(part)h)?(\(part)min)?(\(part)s)?(\(part)ms)?$"
      if least == nil { return Self.string(form) + [("minLength", .number(2))] }
      // Not nothing.
      return [
        ("type", .text("string")),
        ("allOf", .list([.object([("pattern", .text(form))]), .object([("pattern", .text("[1-9]"))])])),
      ]
    default: return nil
    }
  }
}
