import Glibc
import GuardianModel
import Testing

@testable import GuardianConfig

/// The repository that these tests belong to.
private let repository = String(#filePath.dropLast("Tests/GuardianConfigTests/PagesTests.swift".count))

private func read(_ path: String) throws -> String {
  let file = try #require(fopen(repository + path, "r"), "\(path)")
  defer { fclose(file) }
  var bytes = [UInt8](repeating: 0, count: 1 << 20)
  let count = fread(&bytes, 1, bytes.count, file)
  return String(decoding: bytes[..<count], as: UTF8.self)
}

/// The paths of all keys below a mapping, as the table writes them; a variable's name is no key.
private func paths(_ node: Node, at path: String = "") -> Set<String> {
  var found: Set<String> = []
  switch node.content {
  case .scalar: break
  case .list(let items): for item in items { found.formUnion(paths(item, at: path + "[]")) }
  case .mapping(let entries):
    for entry in entries {
      guard case .scalar(let word, _) = entry.key.content else { continue }
      let inner = path.isEmpty ? word : path + "." + word
      found.insert(inner)
      // What an entry of a directory has are the keys of a plugin.
      if word == "entry" { found.formUnion(paths(entry.value, at: "plugins.list[]")) }
      if word != "environment", word != "entry" { found.formUnion(paths(entry.value, at: inner)) }
    }
  }
  return found
}

private func tree(_ text: String) throws -> Node {
  var log = DiagnosticLog()
  let checked = SourceText.checked(Array(text.utf8), file: "text", log: &log)
  let source = try #require(checked)
  let composed = Composer.compose(source, log: &log)
  return try #require(composed ?? nil)
}

@Suite struct `the manual and the examples` {
  @Test func `guardian_yaml is valid as it stands`() throws {
    let parsed = Configuration.parseHost(
      bytes: Array(try read("etc/guardian.yaml").utf8), file: "etc/guardian.yaml", context: context())
    #expect(parsed.diagnostics.map(\.description) == [])
    #expect(parsed.host != nil)
  }

  /// The commented reference of etc/guardian.yaml: what remains without the `#` of lines that are no prose.
  private func reference() throws -> (examples: String, defaults: String) {
    let lines = try read("etc/guardian.yaml").split(separator: "\n", omittingEmptySubsequences: false)
    var parts = [""]
    for line in lines {
      if line.hasPrefix("# Then those that have one") { parts.append("") }
      guard line.hasPrefix("#"), !line.hasPrefix("# ") || line.hasPrefix("#  "), line != "#" else { continue }
      parts[parts.count - 1] += line.dropFirst() + "\n"
    }
    try #require(parts.count == 2)
    return (parts[0], parts[1])
  }

  @Test func `etc and the table name the same service keys`() throws {
    let (examples, defaults) = try reference()
    var named = try paths(tree(examples + defaults))
    // It stands there as a comment, since the other one excludes it.
    if examples.contains("#status: ") { named.insert("plugins.acknowledge.status") }
    let known = Set(KeyTable.service.keys.map(\.path))
    #expect(known.subtracting(named).sorted() == [], "not in etc/guardian.yaml")
    #expect(named.subtracting(known).sorted() == [], "in etc/guardian.yaml only")
    #expect(try paths(tree(read("etc/guardian.yaml"))) == Set(KeyTable.host.keys.map(\.path)))
  }

  @Test func `the reference in etc is a valid service`() throws {
    let (examples, defaults) = try reference()
    let parsed = parse(examples + defaults)
    #expect(parsed.diagnostics.map(\.description) == [])
    #expect(parsed.spec != nil)
  }

  @Test func `the defaults in etc are those that hold`() throws {
    let defaults = try reference().defaults
    var spec = try #require(parse("command: [/bin/x]\n" + defaults).spec)
    // Written as 0; unwritten it is what guardian has, or 0.
    #expect(spec.process.oomScoreAdjust == 0 && spec.process.nice == 0)
    spec.process.oomScoreAdjust = nil
    spec.process.nice = nil
    #expect(spec == parse("command: [/bin/x]").spec)
  }

  @Test(arguments: ["redis", "nginx", "postgresql", "feeds"])
  func `each example of a service is valid, without a doubt`(_ name: String) throws {
    let users = ["redis", "postgres", "feeds"]
    var machine = context()
    machine.resolveUser = { user, group in
      users.contains(user ?? "") && [nil, "redis"].contains(group) ? .success(someone) : .failure(.init("nobody"))
    }
    let bytes = Array(try read("etc/services/\(name).yaml").utf8)
    let parsed = Configuration.parseService(
      name: try #require(ServiceName(name)), bytes: bytes, file: name + ".yaml", context: machine)
    #expect(parsed.diagnostics.map(\.description) == [])
    let spec = try #require(parsed.spec)
    #expect(!spec.repairs.isEmpty || !spec.process.plugins.isEmpty)
    #expect(!spec.description.isEmpty)
  }

  private func example(_ name: String) throws -> ServiceSpec {
    let parsed = parse(try read("etc/services/\(name).yaml"))
    return try #require(parsed.spec)
  }

  @Test func `the examples do what they are for`() throws {
    let redis = try example("redis")
    #expect(
      redis.repairs.map(\.kind) == [
        .run([
          "/bin/sh", "-c",
          "echo y | /usr/bin/redis-check-aof --fix /var/lib/redis/appendonlydir/appendonly.aof.manifest",
        ])
      ])
    #expect(redis.process.command.contains("no") && redis.process.command.contains("yes"))
    let postgres = try example("postgresql")
    #expect(postgres.process.plugins.map(\.arguments) == [["-c", "shared_preload_libraries="]])
    let nginx = try example("nginx")
    #expect(nginx.process.command == ["/usr/sbin/nginx", "-g", "daemon off;"])
    #expect(nginx.process.plugins.first?.hide.allSatisfy { $0.hasPrefix("/etc/nginx/modules-enabled/") } == true)
  }

  /// What stands behind each `.It Cm KEY :` of the manual page, up to the next one.
  private func entries() throws -> [(key: String, text: String)] {
    var found: [(String, String)] = []
    for line in try read("man/guardian.yaml.5").split(separator: "\n", omittingEmptySubsequences: false) {
      if line.hasPrefix(".It Cm ") {
        found.append((String(line.dropFirst(7).prefix { $0 != " " }), String(line) + "\n"))
      } else if line.hasPrefix(".El") || line.hasPrefix(".Sh") || line.hasPrefix(".Ss") {
        continue
      } else if let last = found.indices.last {
        found[last].1 += line + "\n"
      }
    }
    return found
  }

  @Test func `the manual page and the table name the same keys, each once`() throws {
    let named = try entries().map(\.key)
    let known = (KeyTable.host.keys + KeyTable.service.keys).map(\.path)
    #expect(Set(known).subtracting(named).sorted() == [], "not in the manual page")
    #expect(Set(named).subtracting(known).sorted() == [], "in the manual page only")
    #expect(named.count == known.count)
  }

  @Test(arguments: KeyTable.host.keys + KeyTable.service.keys)
  func `the manual page has each key's shape, meaning and default`(_ key: KeyTable.Key) throws {
    let all = try entries()
    // A key that both files have stands there twice.
    let entries = all.filter { $0.key == key.path }.map(\.text)
    let text = try #require(entries.first { $0.lowercased().contains(mdoc(key.meaning).lowercased()) } ?? entries.first)
    func mdoc(_ words: String) -> String { words.split(separator: "…").joined(separator: "...") }
    #expect(text.hasPrefix(".It Cm \(key.path) : No \"\(mdoc(key.shape))\"\n"))
    #expect(text.lowercased().contains(mdoc(key.meaning).lowercased()))
    if !key.standard.isEmpty { #expect(text.contains("Default: \(mdoc(key.standard)).")) }
  }

  @Test func `the manual page shows each example, or one like it`() throws {
    let page = try read("man/guardian.yaml.5")
    for key in KeyTable.service.keys { #expect(page.contains("\n\(key.example)\n"), "\(key.path)") }
  }
}

@Suite struct `whatever the bytes` {
  /// Mutations of the examples: the same for a seed, so that a failure can be had again.
  @Test(arguments: UInt64(1)...8) func `there is a definition, or a diagnostic with a place, and never a trap`(
    seed: UInt64
  ) throws {
    struct Generator: RandomNumberGenerator {
      var state: UInt64
      mutating func next() -> UInt64 {  // splitmix64
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ z >> 30) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ z >> 27) &* 0x94d0_49bb_1331_11eb
        return z ^ z >> 31
      }
    }
    var generator = Generator(state: seed)
    let seeds = try ["redis", "nginx", "postgresql", "feeds"].map { Array(try read("etc/services/\($0).yaml").utf8) }
    let words = [
      ": ", "- ", "{", "}", "[", "]", "*a ", "&a ", "\"", "'", "\n", "\t", "#", "~", "<<: ", "!!", "|\n", "0s", "-1",
      "%",
      "99999999999999999999", "\0", "\u{feff}", "é", "?", "---\n", "$", "\\", "1min30s", "off", "10%",
    ].map { Array($0.utf8) }
    for _ in 0..<250 {
      var bytes = seeds.randomElement(using: &generator) ?? []
      for _ in 0..<Int.random(in: 1...6, using: &generator) {
        let place = Int.random(in: 0...bytes.count, using: &generator)
        switch Int.random(in: 0..<5, using: &generator) {
        case 0 where place < bytes.count: bytes[place] = UInt8.random(in: 0...255, using: &generator)
        case 1: bytes.insert(contentsOf: words.randomElement(using: &generator) ?? [], at: place)
        case 2: bytes.removeSubrange(place..<min(bytes.count, place + Int.random(in: 0...20, using: &generator)))
        case 3: bytes.insert(contentsOf: bytes[place..<min(bytes.count, place + 40)], at: place)
        default: bytes.removeLast(min(bytes.count, Int.random(in: 0...40, using: &generator)))
        }
      }
      let parsed = parse(bytes: bytes)
      #expect(parsed.spec != nil || parsed.diagnostics.contains { $0.severity == .error }, "seed \(seed)")
      #expect(
        parsed.diagnostics.allSatisfy { $0.line ?? 1 >= 1 && $0.column ?? 1 >= 1 && !$0.description.contains("\n") },
        "seed \(seed): \(parsed.diagnostics)")
      let host = Configuration.parseHost(bytes: bytes, file: "guardian.yaml", context: context())
      #expect(host.host != nil || host.diagnostics.contains { $0.severity == .error }, "seed \(seed)")
    }
  }
}
