import GuardianModel
import Testing

@testable import GuardianConfig

private func check(_ files: [String: String]) -> [String] {
  var services: [(spec: ServiceSpec, references: [ServiceReference])] = []
  var known: Set<ServiceName> = []
  var said: [String] = []
  for (text, yaml) in files.sorted(by: { $0.key < $1.key }) {
    guard let name = ServiceName(text) else { continue }
    known.insert(name)
    let parsed = Configuration.parseService(
      name: name, bytes: Array(("command: [/bin/x]\n" + yaml).utf8), file: "\(text).yaml", context: context())
    said += parsed.diagnostics.map(\.description)
    if let spec = parsed.spec { services.append((spec, parsed.references)) }
  }
  let found = DependencyCheck(services, known: known).found
  return said + found.keys.sorted().flatMap { (found[$0] ?? []).map(\.description) }
}

@Suite struct `services that name each other` {
  @Test func `are read with requires, after and groups`() {
    let spec = parse("command: [/bin/x]\nrequires: [db, cache]\nafter: [net]\ngroups: [shop, all]").spec
    #expect(spec?.requires.map(\.text) == ["db", "cache"])
    #expect(spec?.after.map(\.text) == ["net"])
    #expect(spec?.groups.map(\.text) == ["shop", "all"])
  }

  @Test func `A13 an unknown one is named at its place, with the nearest word`() {
    #expect(
      check(["web": "requires: [databse]\nafter: [cache, zzz]", "database": "", "cache": ""]) == [
        "web.yaml:2:12: unknown service 'databse' in 'requires'; there is no services/databse.yaml; did you mean "
          + "'database'?",
        "web.yaml:3:16: unknown service 'zzz' in 'after'; there is no services/zzz.yaml",
      ])
  }

  @Test func `A13 one that is there with a fault is known`() {
    #expect(check(["web": "requires: [db]", "db": "restart: sometimes"]).filter { $0.hasPrefix("web") }.isEmpty)
  }

  @Test func `A13 a cycle is a path, told to each member at its own place, and to nobody else`() {
    let said = check([
      "a": "requires: [b]", "b": "after: [x]\nrequires: [c]", "c": "after: [a]", "x": "", "outside": "requires: [a]",
    ])
    #expect(
      said == [
        "a.yaml:2:12: dependency cycle: a → b → c → a; none of them could ever start",
        "b.yaml:3:12: dependency cycle: b → c → a → b; none of them could ever start",
        "c.yaml:2:9: dependency cycle: c → a → b → c; none of them could ever start",
      ])
  }

  @Test func `A13 itself is the shortest cycle`() {
    #expect(
      check(["a": "requires: [a]"]) == ["a.yaml:2:12: 'a' cannot be in its own 'requires'; dependency cycle: a → a"])
  }

  @Test func `a name that is there twice, or is none, is a fault`() {
    let lines = parse("command: [/bin/x]\nrequires: [a, a]\ngroups: [Shop]\nafter: b").diagnostics.map(\.description)
    #expect(
      lines == [
        "x.yaml:2:15: 'a' is in 'requires' twice",
        "x.yaml:3:10: 'Shop' in 'groups' is no name; 1 to 64 of a-z, 0-9, '.', '_', '@' and '-', the first a letter or "
          + "digit",
        "x.yaml:4:8: 'after' must be a list, not 'b'; as in [one, two]",
      ])
  }

  @Test func `that start at boot and require one that does not are doubted`() {
    #expect(
      check(["web": "requires: [db]", "db": "start: manual"]) == [
        "web.yaml:2:12: warning: 'db' has 'start: manual'; 'web' is started at boot and then waits until somebody "
          + "starts 'db'"
      ])
  }

  private func chain(_ count: Int, closed: Bool) -> DependencyCheck {
    var services: [(spec: ServiceSpec, references: [ServiceReference])] = []
    let names = (0..<count).compactMap { ServiceName("s\(100_000 + $0)") }
    for (number, name) in names.enumerated() {
      var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/x"]))
      let next = number + 1 < count ? names[number + 1] : closed ? names[0] : nil
      spec.requires = next.map { [$0] } ?? []
      let references = next.map {
        [ServiceReference(name: $0, key: "requires", file: "\(name).yaml", line: 2, column: 12)]
      }
      services.append((spec, references ?? []))
    }
    return DependencyCheck(services, known: Set(names))
  }

  @Test func `may be a chain of ten thousand, and a cycle of as many is told in one line each`() {
    #expect(chain(10_000, closed: false).found.isEmpty)
    let found = chain(10_000, closed: true).found
    #expect(found.count == 10_000)
    let lines = found.values.flatMap { $0.map(\.description) }
    #expect(lines.allSatisfy { $0.utf8.count < 400 && $0.contains("dependency cycle: s100000 → s100001 → ") })
    #expect(lines.allSatisfy { $0.contains("(9989 more) → s109999 → s100000") })
  }
}
