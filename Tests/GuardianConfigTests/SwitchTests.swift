import Glibc
import GuardianModel
import Testing

@testable import GuardianConfig

private func read(_ path: String) throws -> String {
  let repository = String(#filePath.dropLast("Tests/GuardianConfigTests/SwitchTests.swift".count))
  let file = try #require(fopen(repository + path, "r"), "\(path)")
  defer { fclose(file) }
  var bytes = [UInt8](repeating: 0, count: 1 << 20)
  let count = fread(&bytes, 1, bytes.count, file)
  return String(decoding: bytes[..<count], as: UTF8.self)
}

private func parse(_ text: String) -> ParsedSwitch {
  Configuration.parseSwitch(name: "x.yaml", bytes: Array(text.utf8), file: "switches.d/x.yaml")
}

private func name(_ text: String) throws -> ServiceName { try #require(ServiceName(text)) }

@Suite struct `a file of switches_d` {
  @Test func `says what is off, why, and until when`() throws {
    let parsed = parse(
      """
      reason: payments 3.2 empties carts
      until: 2026-12-24T07:00:00+01:00
      services: [web, shop]
      plugins: [payments, social]
      steps: [quarantine, repair]
      """)
    #expect(parsed.diagnostics.map(\.description) == [])
    let value = try #require(parsed.value)
    #expect(value.file == "x.yaml" && value.reason == "payments 3.2 empties carts")
    #expect(value.until?.rfc3339 == "2026-12-24T06:00:00.000Z")
    #expect(value.services == .named([try name("web"), try name("shop")]))
    #expect(value.plugins == .named(["payments", "social"]) && value.steps == [.repair, .quarantine] && !value.ladder)
    #expect(value.what == "plugins payments, social; steps repair, quarantine")
    #expect(parsed.references.map(\.name) == ["web", "shop", "payments", "social"])
    let group = try #require(parse("{reason: r, services: [web, \"@shop\"], ladder: off}").value)
    #expect(group.services == .named([try name("web")]))
    #expect(group.groups.map(\.text) == ["shop"])
    #expect(Switch(text: group.text) == group)
    let alone = try #require(parse("{reason: r, services: [\"@shop\"], ladder: off}").value)
    let shop = try name("shop"), other = try name("x")
    #expect(Switch(text: alone.text) == alone && alone.concerns(other, in: [shop]) && !alone.concerns(shop, in: []))
    let all = try #require(parse("{reason: r, services: all, plugins: all, ladder: off}").value)
    #expect(all.services == .all && all.plugins == .all && all.ladder && all.until == nil)
    #expect(all.what == "all plugins; the ladder")
  }

  @Test(arguments: [
    Faulty("services: all\nladder: off", "1:1: no 'reason'"),
    Faulty("reason: r\nladder: off", "1:1: no 'services'"),
    Faulty("reason: r\nservices: all", "1:1: the switch turns nothing off"),
    Faulty("reason: \"\"\nservices: all\nladder: off", "1:9: 'reason' is empty"),
    Faulty("reason: r\nservices: web\nladder: off", "2:11: 'services' must be a list of names, or all", has: "[web]"),
    Faulty("reason: r\nservices: al\nladder: off", "2:11: 'services' must be", has: "did you mean 'all'?"),
    Faulty("reason: r\nservices: []\nladder: off", "2:11: 'services' is empty"),
    Faulty("reason: r\nservices: [Web]\nladder: off", "2:12: an element of 'services' must be the name of a service"),
    Faulty("reason: r\nservices: [a, a]\nladder: off", "2:15: service 'a' is here twice"),
    Faulty("reason: r\nservices: [\"@a\", \"@a\"]\nladder: off", "2:18: group '@a' is here twice"),
    Faulty("reason: r\nservices: [\"@A\"]\nladder: off", "2:12: an element of 'services' must be", has: "@GROUP"),
    Faulty("reason: r\nservices: all\nladder: no", "3:9: 'ladder' must be off", has: "did you mean 'off'?"),
    Faulty("reason: r\nservices: all\nsteps: [repiar]", "3:9: an element of 'steps'", has: "did you mean 'repair'?"),
    Faulty("reason: r\nservices: all\nplugins: []", "3:10: 'plugins' is empty"),
    Faulty("reason: r\nservices: all\nplugin: [x]", "3:1: unknown key 'plugin'", has: "did you mean 'plugins'?"),
    Faulty("reason: r\nuntil: tomorrow\nservices: all\nladder: off", "2:8: 'until' must be a time", has: "Z"),
    Faulty("reason: r\nuntil: 2026-02-30T00:00:00Z\nservices: all\nladder: off", "2:8: 'until' must be a time"),
    Faulty("reason: r\nuntil: 2026-12-24T06:00:00\nservices: all\nladder: off", "2:8: 'until' must be a time"),
    Faulty("reason: r\nreason: s\nservices: all\nladder: off", "2:1: "),
  ])
  func `that has a fault is told where and why, and has no value`(_ c: Faulty) {
    let parsed = parse(c.yaml)
    let lines = parsed.diagnostics.map(\.description)
    #expect(parsed.value == nil)
    #expect(lines.count == 1 && lines.first?.hasPrefix("switches.d/x.yaml:" + c.starts) == true, "\(lines)")
    #expect(c.has.isEmpty || lines.first?.contains(c.has) == true, "\(lines)")
  }

  @Test func `that is empty, no YAML or cut off in the middle has no value`() {
    for text in ["", "# nothing yet\n", "reason: r\nservices: [web", "reason: \u{0}", "- a"] {
      let parsed = parse(text)
      #expect(parsed.value == nil && parsed.diagnostics.contains { $0.severity == .error }, "\(text)")
    }
  }

  @Test func `is kept as text and read back the same`() throws {
    for text in [
      "{reason: \"é, a; b\", services: [web, a.b], plugins: [x, y-1], steps: [restart, safe-mode]}",
      "{reason: r, until: 2026-12-24T06:00:00Z, services: all, plugins: all}",
      "{reason: r, services: all, ladder: off}",
    ] {
      let value = try #require(parse(text).value)
      #expect(Switch(text: value.text) == value)
    }
    for text in ["", "a", "\t\t\t\t\t\t", "x.yaml\tnever\t*\t\t\toff\tr", "x.yaml\t-\tA!\t\t\toff\tr"] {
      #expect(Switch(text: text) == nil, "\(text)")
    }
  }

  @Test func `names of services and plugins that are not here are doubts with a place, and no faults`() throws {
    func check(_ text: String) throws -> [String] {
      let parsed = parse(text)
      let value = try #require(parsed.value)
      let services: [ServiceName: [String]?] = [
        try name("web"): .some(["payments", "social"]), try name("mail"): .some([]),
        try name("odd"): Optional<[String]>.none,
      ]
      return SwitchCheck(
        [(value, parsed.references, "switches.d/x.yaml")], services: services,
        groups: [try name("web"): [try name("shop")], try name("mail"): [try name("shop")]]
      ).found["x.yaml"]?.map(\.description) ?? []
    }
    #expect(try check("{reason: r, services: [\"@shop\"], plugins: [payments]}") == [])
    #expect(
      try check("{reason: r, services: [\"@shpo\"], ladder: off}") == [
        "switches.d/x.yaml:1:24: warning: no service is in group '@shpo' here; the switch does nothing for it; did you "
          + "mean '@shop'?"
      ])
    #expect(try check("{reason: r, services: [\"@shop\"], plugins: [other]}").count == 1)
    #expect(try check("{reason: r, services: [web], plugins: [payments]}") == [])
    #expect(try check("{reason: r, services: all, plugins: [nothing]}") == [])  // whoever is not valid may have it
    #expect(
      try check("{reason: r, services: [web], plugins: [payment]}") == [
        "switches.d/x.yaml:1:40: warning: unknown plugin 'payment'; 'web' has no plugin of that name; did you mean "
          + "'payments'?"
      ])
    #expect(
      try check("{reason: r, services: [wbe, mail], ladder: off}") == [
        "switches.d/x.yaml:1:24: warning: no service 'wbe' here; the switch does nothing to it; did you mean 'web'?"
      ])
  }

  @Test func `has an example that is valid, with every key`() throws {
    let text = try read("etc/switches.d/payments.yaml")
    let parsed = Configuration.parseSwitch(name: "payments.yaml", bytes: Array(text.utf8), file: "payments.yaml")
    #expect(parsed.diagnostics.map(\.description) == [] && parsed.value != nil)
    for key in KeyTable.switches.keys {
      #expect(text.contains("\n\(key.path): ") || text.contains("\n#\(key.path): "), "\(key.path)")
    }
  }

  @Test func `has a manual page with each key once, its shape, meaning, default and example`() throws {
    let page = try read("man/guardian-switches.5")
    var entries: [(key: String, text: String)] = []
    for line in page.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.hasPrefix(".It Cm ") {
        entries.append((String(line.dropFirst(7).prefix { $0 != " " }), ""))
      }
      if let last = entries.indices.last { entries[last].text += line + "\n" }
    }
    #expect(entries.map(\.key) == KeyTable.switches.keys.map(\.path))
    for (key, entry) in zip(KeyTable.switches.keys, entries) {
      #expect(entry.text.hasPrefix(".It Cm \(key.path) : No \"\(key.shape)\"\n"))
      #expect(entry.text.lowercased().contains(key.meaning.lowercased()), "\(key.path)")
      #expect(key.standard.isEmpty || entry.text.contains("Default: \(key.standard).\n"), "\(key.path)")
      #expect(entry.text.contains("\n\(key.example)\n"), "\(key.path)")
    }
  }
}

@Suite struct `what runs in quarantine's place` {
  private func check(_ files: [(String, String)]) throws -> [String] {
    var read: [(spec: ServiceSpec, references: [ServiceReference])] = []
    for (text, yaml) in files {
      let parsed = Configuration.parseService(
        name: try name(text), bytes: Array("command: [/bin/x]\n\(yaml)\n".utf8), file: "\(text).yaml",
        context: context())
      #expect(parsed.diagnostics.map(\.description) == [])
      read.append((try #require(parsed.spec), parsed.references))
    }
    let found = DependencyCheck(read, known: Set(read.map(\.spec.name))).found
    return found.keys.sorted().flatMap { found[$0] ?? [] }.map(\.description)
  }

  @Test func `is there, started by nobody else, and waits for nobody it stands in for`() throws {
    let web = "quarantine: {fallback: web-static}"
    #expect(try check([("web", web), ("web-static", "start: manual")]) == [])
    #expect(
      try check([("web", web), ("web-static", "")]) == [
        "web.yaml:2:24: 'web-static' in 'fallback' does not have 'start: manual'; it would run beside 'web', and not in its "
          + "place"
      ])
    #expect(
      try check([("web", web), ("web-static2", "start: manual")]) == [
        "web.yaml:2:24: unknown service 'web-static' in 'fallback'; there is no services/web-static.yaml; did you mean "
          + "'web-static2'?"
      ])
    #expect(
      try check([("a", "quarantine: {fallback: c}"), ("b", "quarantine: {fallback: c}"), ("c", "start: manual")]) == [
        "b.yaml:2:24: 'c' in 'fallback' stands in for 'a' already; the one must have stopped before the other starts, which "
          + "it cannot for two"
      ])
    let circle = try check([
      ("web", web), ("web-static", "start: manual\nquarantine: {fallback: web}"),
    ])
    #expect(circle.contains { $0.contains("dependency cycle: web → web-static → web") }, "\(circle)")
    let waits = try check([("web", web), ("web-static", "start: manual\nrequires: [web]")])
    #expect(waits.contains { $0.contains("dependency cycle") }, "\(waits)")
    #expect(
      said("quarantine: {fallback: x}")
        == ["x.yaml:2:24: 'x' cannot be its own 'fallback'; it is what runs in its place"])
  }
}
