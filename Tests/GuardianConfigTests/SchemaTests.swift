import Glibc
import GuardianModel
import Testing

@testable import GuardianConfig

private let repository = String(#filePath.dropLast("Tests/GuardianConfigTests/SchemaTests.swift".count))

private func read(_ path: String) throws -> String {
  let file = try #require(fopen(repository + path, "r"), "\(path)")
  defer { fclose(file) }
  var bytes = [UInt8](repeating: 0, count: 1 << 20)
  let count = fread(&bytes, 1, bytes.count, file)
  return String(decoding: bytes[..<count], as: UTF8.self)
}

private func tree(_ text: String) throws -> Node {
  var log = DiagnosticLog()
  let checked = SourceText.checked(Array(text.utf8), file: "text", log: &log)
  let source = try #require(checked)
  return try #require(Composer.compose(source, log: &log) ?? nil, "\(log.sorted())")
}

/// The part of JSON Schema that ours use, over YAML 1.2 as editors read it.
private struct Validator: Sendable {
  let root: Node

  init(_ file: KnownKey.File) throws { root = try tree(Configuration.schema(of: file)) }

  private enum Kind: String { case string, integer, number, boolean, null, array, object }
  private func kind(_ node: Node) -> Kind {
    switch node.content {
    case .list: return .array
    case .mapping: return .object
    case .scalar(_, plain: false): return .string
    case .scalar(let text, plain: true):
      if ["", "~", "null"].contains(text) { return .null }
      if text == "true" || text == "false" { return .boolean }
      let bare = text.hasPrefix("-") || text.hasPrefix("+") ? text.dropFirst() : text[...]
      if !bare.isEmpty, bare.utf8.allSatisfy({ (0x30...0x39).contains($0) }) { return .integer }
      let parts = bare.split(separator: ".", omittingEmptySubsequences: false)
      if parts.count == 2, parts.allSatisfy({ !$0.isEmpty && $0.utf8.allSatisfy { (0x30...0x39).contains($0) } }) {
        return .number
      }
      return .string
    }
  }
  private func text(_ node: Node) -> String { if case .scalar(let text, _) = node.content { text } else { "" } }
  private func items(_ node: Node) -> [Node] { if case .list(let items) = node.content { items } else { [] } }

  func accepts(_ value: Node) throws -> Bool { try accepts(value, root) }

  private func accepts(_ value: Node, _ schema: Node) throws -> Bool {
    let kind = kind(value)
    for (word, rule) in schema.entries {
      switch word {
      case "$schema", "title", "description", "default", "definitions": continue
      case "$ref":
        let name = try #require(text(rule).split(separator: "/").last.map(String.init))
        let target = try #require(root.entries["definitions"]?.entries[name])
        guard try accepts(value, target) else { return false }
      case "type":
        let kinds = rule.entries.isEmpty && !items(rule).isEmpty ? items(rule).map(text) : [text(rule)]
        guard kinds.contains(kind.rawValue) || kind == .integer && kinds.contains("number") else { return false }
      case "enum": guard items(rule).contains(where: { text($0) == text(value) }), kind == .string else { return false }
      case "pattern":
        guard kind == .string else { continue }
        guard matches(text(value), text(rule)) else { return false }
      case "minLength": if kind == .string, text(value).unicodeScalars.count < Int(text(rule)) ?? 0 { return false }
      case "minimum": if let number = Double(text(value)), number < Double(text(rule)) ?? 0 { return false }
      case "maximum": if let number = Double(text(value)), number > Double(text(rule)) ?? 0 { return false }
      case "minItems": if kind == .array, items(value).count < Int(text(rule)) ?? 0 { return false }
      case "items": for item in items(value) { guard try accepts(item, rule) else { return false } }
      case "required":
        guard kind == .object else { continue }
        for key in items(rule) where value.entries[text(key)] == nil { return false }
      case "anyOf": guard try items(rule).contains(where: { try accepts(value, $0) }) else { return false }
      case "allOf": guard try items(rule).allSatisfy({ try accepts(value, $0) }) else { return false }
      case "oneOf": guard try items(rule).filter({ try accepts(value, $0) }).count == 1 else { return false }
      case "propertyNames":
        guard case .mapping(let entries) = value.content else { continue }
        for entry in entries { guard try accepts(entry.key, rule) else { return false } }
      case "properties":
        for (key, inner) in value.entries {
          if let property = rule.entries[key] { guard try accepts(inner, property) else { return false } }
        }
      case "additionalProperties":
        let known = schema.entries["properties"]?.entries ?? [:]
        for (key, inner) in value.entries where known[key] == nil {
          if text(rule) == "false" { return false }
          guard try accepts(inner, rule) else { return false }
        }
      default: Issue.record("the schema has '\(word)', which is not looked at here")
      }
    }
    return true
  }

  /// Extended regular expressions of POSIX, which in these patterns mean what those of ECMA do.
  private func matches(_ text: String, _ pattern: String) -> Bool {
    var expression = regex_t()
    guard regcomp(&expression, pattern, REG_EXTENDED | REG_NOSUB) == 0 else {
      Issue.record("no pattern: \(pattern)")
      return false
    }
    defer { regfree(&expression) }
    return regexec(&expression, text, 0, nil, 0) == 0
  }
}

/// Each made once: there are some thousand values to be looked at.
private let validators = Dictionary(
  uniqueKeysWithValues: KnownKey.File.allCases.map { file in (file, Result { try Validator(file) }) })
private func validator(of file: KnownKey.File) throws -> Validator { try #require(validators[file]).get() }

@Suite struct `the JSON Schema` {
  @Test(arguments: KnownKey.File.allCases)
  func `is in the repository as it is made from the table: guardian --schema KIND writes it`(_ file: KnownKey.File)
    throws
  {
    let name = ["services/NAME.yaml": "service", "guardian.yaml": "host", "switches.d/NAME.yaml": "switches"]
    let path = "etc/schema/\(name[file.rawValue] ?? "").json"
    #expect(try read(path) == Configuration.schema(of: file), "\(path) is not what it would be")
  }

  @Test func `understands the shape of every key`() {
    let strangers = KnownKey.all.filter { !SchemaMaker.understands($0.key, in: $0.file.table) }
    #expect(strangers.map { "\($0.key.path): \($0.key.shape)" } == [])
  }

  @Test func `takes every example`() throws {
    let service = try validator(of: .service)
    for name in ["redis", "nginx", "postgresql", "feeds"] {
      #expect(try service.accepts(tree(read("etc/services/\(name).yaml"))), "\(name)")
    }
    for name in ["doomed", "photos", "shop", "steady"] {
      // The demonstration puts its own place in.
      let text = try read("etc/demonstration/services/\(name).yaml").replacing("@HERE@", with: "/srv")
      #expect(try service.accepts(tree(text)), "\(name)")
    }
    #expect(try validator(of: .host).accepts(tree(read("etc/guardian.yaml"))))
    #expect(try validator(of: .switches).accepts(tree(read("etc/switches.d/payments.yaml"))))
    for known in KnownKey.all where known.file == .service {
      let text = (known.key.example.hasPrefix("command:") ? "" : "command: [/bin/x]\n") + known.key.example
      #expect(try service.accepts(tree(text)), "\(known.key.path)")
    }
    for known in KnownKey.all where known.file == .host {
      #expect(try validator(of: .host).accepts(tree(known.key.example)), "\(known.key.path)")
    }
  }

  /// The example of a key with another value in its place.
  private func variant(_ known: KnownKey, _ value: Node) throws -> Node {
    var text = known.key.example
    if known.file == .service, !text.hasPrefix("command:"), known.key.path != "command" {
      text = "command: [/bin/x]\n" + text
    }
    func put(_ node: Node, _ path: ArraySlice<Substring>) -> Node {
      guard let part = path.first else { return value }
      let word = part.hasSuffix("[]") ? part.dropLast(2) : part
      guard case .mapping(let entries) = node.content else { return node }
      var result: [Node.Entry] = []
      for entry in entries {
        guard case .scalar(let key, _) = entry.key.content, key == word else {
          result.append(entry)
          continue
        }
        if part.hasSuffix("[]"), case .list(let items) = entry.value.content {
          let changed = items.map { put($0, path.dropFirst()) }
          result.append(
            Node.Entry(key: entry.key, value: Node(.list(changed), file: "text", line: 1, column: 1)))
        } else {
          result.append(Node.Entry(key: entry.key, value: put(entry.value, path.dropFirst())))
        }
      }
      return Node(.mapping(result), file: "text", line: 1, column: 1)
    }
    return put(try tree(text), known.key.path.split(separator: ".")[...])
  }

  private func written(_ node: Node) -> String {
    switch node.content {
    // What would end a plain one within braces gets quotes, which such words do not mind.
    case .scalar(let text, plain: true) where !text.contains(where: { ",[]{}#".contains($0) }): text
    case .scalar(let text, _):
      "\"" + text.map { $0 == "\"" || $0 == "\\" ? "\\\($0)" : $0 == "\n" ? "\\n" : String($0) }.joined() + "\""
    case .list(let items): "[" + items.map(written).joined(separator: ", ") + "]"
    case .mapping(let entries):
      "{" + entries.map { written($0.key) + ": " + written($0.value) }.joined(separator: ", ") + "}"
    }
  }

  private static let values = [
    "yes", "5", "0", "-1", "3", "70000", "1.5", "10s", "0s", "500ms", "1min30s", "10", "512M", "10%", "/x", "-/x", "x",
    "[x]", "[/x]", "[]", "[5]", "[300]", "{}", "{a: b}", "[{name: a}]", "\"0027\"", "\"99\"", "off", "never", "auto",
    "none",
    "on-crash", "TERM", "SIGHUP", "RTMIN+3", "http://x/", "\"02:00-05:00\"", "2026-12-24T06:00:00Z", "{fd: 3}",
    "{fd: 1}", "oom", "[oom, \"exit:1\"]", "[\"signal:SEGV\", \"class:config\"]", "[\"exit:x\"]", "restart",
    "[restart]",
    "0%", "100%", "100.0%", "99.999999%", "[net-bind-service]", "[\"chown\"]", "\"777\"", "\"0777\"", "\"7\"",
    "{A.b-c: 5}",
    "0K", "1T", "all", "[web]", "\"[::1]:80\"", "[[a, b], c]", "manual", "task", "true", "{from: a, to: b}",
  ]

  /// The schema may take more; it never refuses what is read.
  @Test(arguments: KnownKey.all) func `takes each value that the reader takes`(_ known: KnownKey) throws {
    let validator = try validator(of: known.file)
    var taken = 0
    for text in Self.values {
      let node = try variant(known, tree(text))
      // As a file, so that both read the same.
      let file = written(node)
      let faults = diagnostics(of: file, known.file).filter { $0.severity == .error }
      guard faults.isEmpty else { continue }
      taken += 1
      #expect(try validator.accepts(tree(file)), "\(file)")
    }
    #expect(taken > 0 || known.file == .switches || !known.key.example.isEmpty)
  }

  @Test(arguments: KnownKey.all) func `refuses a value of another kind, as the reader does`(_ known: KnownKey) throws {
    let validator = try validator(of: known.file)
    for text in ["[[[]]]", "{no-such-key: [1]}"] {
      let file = written(try variant(known, tree(text)))
      #expect(diagnostics(of: file, known.file).contains { $0.severity == .error }, "\(file)")
      #expect(try !validator.accepts(tree(file)), "\(file)")
    }
  }

  @Test(
    arguments: [
      (KnownKey.File.service, "comand: [/bin/x]"), (.service, "command: [/bin/x]\nrestart: allways"),
      (.service, "command: [/bin/x]\nnice: 20"), (.service, "command: [/bin/x]\nstart-timeout: 5"),
      (.service, "command: [/bin/x]\nstartup-window: 0s"), (.service, "command: [/bin/x]\nrepair: [{name: a}]"),
      (.service, "command: [/bin/x]\nrepair: [{name: a, run: /x, move-aside: /y}]"),
      (.service, "command: [/bin/x]\nchecks: [{http: \"http://x/\"}]"),
      (.service, "command: [/bin/x]\nchecks: [{name: a, http: \"http://x/\", tcp: 80}]"),
      (.service, "command: [/bin/x]\nplugins: {list: [{name: a}]}"), (.service, "command: [/bin/x]\numask: 18"),
      (.service, "command: [/bin/x]\nready: {fd: 2}"), (.service, "nice: 5"),
      (.service, "command: [/bin/x]\nlate: {budgt: 5}"), (.service, "command: [/bin/x]\nnice:"),
      (.service, "command: [/bin/x]\ncapabilities: [net-bind]"), (.service, "command: [/bin/x]\ngroups: [Shop]"),
      (.service, "command: [/bin/x]\numask: \"1777\""), (.service, "command: [/bin/x]\nlimits: {memory: \"5\"}"),
      (.service, "command: [/bin/x]\nlimits: {core: \"5\"}"),
      (.service, "command: [/bin/x]\nrepair: [{name: a, restore: []}]"),
      (.service, "command: [/bin/x]\nbackoff: {jitter: 101%}"),
      (.service, "command: [/bin/x]\nbackoff: {jitter: 1.1234567%}"),
      (.service, "command: [/bin/x]\nenvironment: {\"A=B\": x}"),
      (.host, "governor: {starts-per-second: 0}"), (.host, "defaults: {command: [/bin/x]}"),
      (.host, "defaults: {nise: 5}"), (.host, "logs: {rotate: 1K}"), (.host, "logs: {rotate: 512}"),
      (.switches, "{services: all, ladder: off}"), (.switches, "{reason: r, ladder: off}"),
      (.switches, "{reason: r, services: all}"), (.switches, "{reason: r, services: [web], steps: [repare]}"),
    ] as [(KnownKey.File, String)])
  func `refuses what the reader refuses for a key, a word or a number`(_ file: KnownKey.File, _ text: String) throws {
    #expect(diagnostics(of: text, file).contains { $0.severity == .error })
    // A size of a file is a pattern: what is too small only as a number is known.
    if text.hasSuffix("1K}") { return }
    #expect(try !validator(of: file).accepts(tree(text)))
  }

  private func diagnostics(of text: String, _ file: KnownKey.File) -> [Diagnostic] {
    let bytes = Array(text.utf8)
    switch file {
    case .service: return parse(bytes: bytes).diagnostics
    case .host: return Configuration.parseHost(bytes: bytes, file: "guardian.yaml", context: context()).diagnostics
    case .switches: return Configuration.parseSwitch(name: "a.yaml", bytes: bytes, file: "a.yaml").diagnostics
    }
  }

  /// What an editor needs for finding it.
  @Test func `is named by the examples`() throws {
    for name in ["redis", "nginx", "postgresql", "feeds"] {
      #expect(
        try read("etc/services/\(name).yaml").hasPrefix("# yaml-language-server: $schema=../schema/service.json\n"),
        "\(name)")
    }
    #expect(try read("etc/guardian.yaml").hasPrefix("# yaml-language-server: $schema=schema/host.json\n"))
    #expect(
      try read("etc/switches.d/payments.yaml").hasPrefix("# yaml-language-server: $schema=../schema/switches.json\n"))
  }
}

@Suite struct `keys and their words` {
  @Test func `host keys have examples that are valid`() throws {
    for key in KeyTable.host.keys {
      let parsed = Configuration.parseHost(bytes: Array(key.example.utf8), file: "guardian.yaml", context: context())
      #expect(!key.example.isEmpty && parsed.diagnostics.map(\.description) == [], "\(key.path)")
    }
  }

  /// `1 … 1000` is what the reader says too.
  @Test(arguments: KnownKey.all.filter { $0.key.shape.split(separator: " ").dropFirst().first == "…" })
  func `have the range that the reader has`(_ known: KnownKey) throws {
    let words = known.key.shape.split(separator: " ").map { $0.filter { $0 != "," } }
    guard let least = Int(words[0]), let most = Int(words[2]) else { return }  // percents
    func said(_ number: Int) throws -> [String] {
      let text = known.key.example
      let word = known.key.word + ": "
      let place = try #require(text.range(of: word, from: 0))
      let end = text.utf8.index(text.startIndex, offsetBy: place)
      let rest = text[end...].dropFirst(word.count)
      let tail = rest.first == "[" ? rest.drop { $0 != "]" }.dropFirst() : rest.drop { !"},\n".contains($0) }
      var yaml = text[..<end] + word + "\(number)" + tail
      if known.file == .service { yaml = "command: [/bin/x]\n" + yaml }
      return
        (known.file == .host
        ? Configuration.parseHost(bytes: Array(yaml.utf8), file: "x.yaml", context: context()).diagnostics
        : parse(String(yaml)).diagnostics).filter { $0.severity == .error }.map(\.description)
    }
    #expect(try said(least) == [] && said(most) == [])
    #expect(try !said(least - 1).isEmpty && !said(most + 1).isEmpty)
  }
}

extension String {
  /// The offset in bytes of the first `part`.
  fileprivate func range(of part: String, from start: Int) -> Int? {
    let bytes = Array(utf8), wanted = Array(part.utf8)
    guard bytes.count >= wanted.count else { return nil }
    return (start...(bytes.count - wanted.count)).first { Array(bytes[$0..<($0 + wanted.count)]) == wanted }
  }
}
