import GuardianModel
import Testing

@testable import GuardianConfig

@Suite struct `plugins of a service` {
  private func plugin(_ text: String) throws -> PluginSpec {
    let spec = try valid(
      "command: [/bin/x, --fast, --load, a.so, \"--plugins=a,b\"]\nplugins: {list: [{name: a, \(text)}]}")
    return try #require(spec.process.plugins.first)
  }

  @Test func `are switched off in every way that a file can name`() throws {
    #expect(try plugin("unset: [A, B]").unset == ["A", "B"])
    #expect(
      try plugin("remove-from: [{variable: A, item: b}, {argument: --plugins, item: b, separator: \",\"}]").removeFrom
        == [ListRemoval(.variable("A"), item: "b"), ListRemoval(.argument("--plugins"), item: "b")])
    #expect(
      try plugin("remove-from: [{variable: A, item: \"--require b\", separator: \" \"}]").removeFrom
        == [ListRemoval(.variable("A"), item: "--require b", separator: " ")])
    #expect(try plugin("preload: libx.so").preload == ["libx.so"])
    #expect(try plugin("preload: [libx.so, /usr/lib/liby.so]").preload == ["libx.so", "/usr/lib/liby.so"])
    #expect(
      try plugin("remove-arguments: [--fast, [--load, a.so]]").removeArguments == [["--fast"], ["--load", "a.so"]])
    #expect(
      try plugin("replace-arguments: [{from: --fast, to: [--slow, --safe]}]").replaceArguments
        == [ArgumentReplacement(from: ["--fast"], to: ["--slow", "--safe"])])
    let files = try plugin("good-copy: [/etc/a, /etc/b/]")
    #expect(files.goodCopy == ["/etc/a", "/etc/b"] && files.paths == files.goodCopy && files.isIdle)
    let both = try plugin("hide: /a/b, empty: [/a/c, /a/d/]")
    #expect(both.hide == ["/a/b"] && both.empty == ["/a/c", "/a/d"] && both.paths == ["/a/b", "/a/c", "/a/d"])
  }

  @Test(arguments: [
    Faulty("plugins: {list: [{name: a, unset: A}]}", "2:35: 'unset' must be a list"),
    Faulty("plugins: {list: [{name: a, unset: [\"A=B\"]}]}", "2:36: 'A=B' is no name of a variable"),
    Faulty("plugins: {list: [{name: a, unset: [GUARDIAN_MODE]}]}", "2:36: GUARDIAN_MODE is set by guardian itself"),
    Faulty(
      "plugins: {list: [{name: a, environment: {A: b}, unset: [A]}]}", "2:57: A is both in 'environment' and in 'unset'"
    ),
    Faulty(
      "plugins: {list: [{name: a, remove-from: {variable: A, item: b}}]}", "2:41: 'remove-from' must be a list"),
    Faulty(
      "plugins: {list: [{name: a, remove-from: [{variable: A}]}]}",
      "2:42: an element of 'remove-from' needs 'item', and 'variable' or 'argument'"),
    Faulty(
      "plugins: {list: [{name: a, remove-from: [{variable: A, argument: b, item: c}]}]}",
      "2:66: 'variable' and 'argument' in one element"),
    Faulty("plugins: {list: [{name: a, remove-from: [{variable: A, item: \"\"}]}]}", "2:62: 'item' is empty"),
    Faulty(
      "plugins: {list: [{name: a, remove-from: [{variable: A, item: b, separator: \"\"}]}]}",
      "2:76: 'separator' must have 1 to 16 bytes"),
    Faulty(
      "plugins: {list: [{name: a, remove-from: [{variable: LD_PRELOAD, item: b.so}]}]}",
      "2:53: LD_PRELOAD has two kinds of separators", has: "'preload: b.so' knows both"),
    Faulty(
      "plugins: {list: [{name: a, remove-from: [{argument: \"--x=\", item: b}]}]}", "2:53: 'argument' cannot be '--x='"),
    Faulty("plugins: {list: [{name: a, remove-from: [{var: A, item: b}]}]}", "2:43: unknown key 'var'"),
    Faulty("plugins: {list: [{name: a, preload: \"a.so:b.so\"}]}", "2:37: 'preload' cannot be 'a.so:b.so'"),
    Faulty("plugins: {list: [{name: a, remove-arguments: [[]]}]}", "2:47: an element of 'remove-arguments' is empty"),
    Faulty(
      "plugins: {list: [{name: a, remove-arguments: [--no]}]}", "2:46: warning: '--no' is not in 'command'",
      has: "so nothing of it changes while plugin 'a' is off"),
    Faulty(
      "plugins: {list: [{name: a, remove-from: [{argument: --no, item: b}]}]}",
      "2:41: warning: '--no b' is not in 'command'"),
    Faulty(
      "plugins: {list: [{name: a, replace-arguments: [{from: --no, to: --yes}]}]}",
      "2:47: warning: '--no' is not in 'command'"),
    Faulty(
      "plugins: {list: [{name: a, replace-arguments: [{from: --no}]}]}", "2:48: a replacement without 'from' and 'to'"),
    Faulty("plugins: {list: [{name: a, replace-arguments: [{from: [], to: b}]}]}", "2:55: 'from' is empty"),
    Faulty("plugins: {list: [{name: a, empty: relative}]}", "2:35: 'empty' must be an absolute path"),
    Faulty("plugins: {list: [{name: a, good-copy: relative}]}", "2:39: 'good-copy' must be an absolute path"),
    Faulty("plugins: {list: [{name: a, good-copy: [/a, /a]}]}", "2:44: /a is here twice"),
    Faulty("plugins: {list: [{name: a, hide: /a, good-copy: /a}]}", "2:34: /a is both in 'hide' and in 'good-copy'"),
    Faulty("plugins: {directory: /a, entry: {good-copy: \"%p\"}}", "2:45: 'good-copy' in 'entry'"),
    Faulty(
      "plugins: {list: [{name: a, good-copy: [\((0..<33).map { "/a/\($0)" }.joined(separator: ", "))]}]}",
      "2:17: 33 files"),
    Faulty("plugins: {list: [{name: a, hide: /a, empty: /a}]}", "2:45: /a is both in 'hide' and in 'empty'"),
    Faulty("plugins: {list: [{name: a, unset: []}]}", "2:18: plugin 'a' cannot be switched off", has: "remove-from"),
    Faulty("plugins: {directory: plugins.d}", "2:22: 'directory' must be an absolute path"),
    Faulty("plugins: {directory: /a/../b}", "2:22: 'directory' cannot be '/a/../b'"),
    Faulty("plugins: {directory: /a, only: \"a/b\"}", "2:32: 'only' cannot be 'a/b'"),
    Faulty("plugins: {directory: /a, entry: {}}", "2:33: an entry cannot be switched off"),
    Faulty(
      "plugins: {directory: /a, entry: {name: x, unset: [A]}}", "2:40: 'name' in 'entry'", has: "by its entry's name"),
    Faulty("plugins: {directory: /a, entry: {arguments: [\"%x\"]}}", "2:33: '%x' in 'entry' has '%x'"),
    Faulty("plugins: {directory: /a, entry: {hide: \"%p/../x\"}}", "2:40: 'hide' cannot be '%p/../x'"),
    Faulty("plugins: {list: [{name: a, unset: [A]}], only: \"*\"}", "2:48: warning: 'only' has no effect"),
    Faulty(
      "plugins: {list: [{name: a, unset: [A]}], acknowledge: {}}", "2:55: 'acknowledge' without 'check' or 'status'"),
    Faulty(
      "plugins: {list: [{name: a, unset: [A]}], acknowledge: {check: b, status: c}}",
      "2:74: 'check' and 'status' in one 'acknowledge'"),
    Faulty(
      "plugins: {list: [{name: a, unset: [A]}], acknowledge: {status: \"\"}}", "2:64: 'status' must have 1 to 200"),
    Faulty(
      "checks: [{name: safe, tcp: 80}]\nplugins: {list: [{name: a, unset: [A]}], acknowledge: {check: save}}",
      "3:63: 'check' must be the name of one of 'checks'", has: "did you mean 'safe'?"),
    Faulty(
      "ready: check\nchecks: [{name: a, tcp: 80}]\nplugins: {list: [{name: a, unset: [A]}], acknowledge: {check: a}}",
      "4:63: 'ready: check' with no other check than 'a'"),
  ])
  func `are read strictly`(_ c: Faulty) { c.check() }

  @Test func `that replace the same argument are told that only the first one does`() {
    let text =
      "command: [/bin/x, --mods=a]\nplugins:\n  list:\n"
      + "    - {name: a, replace-arguments: [{from: --mods=a, to: --mods=b}]}\n"
      + "    - {name: b, replace-arguments: [{from: --mods=a, to: --mods=c}]}\n"
    let lines = parse(text).diagnostics.map(\.description)
    #expect(lines.count == 1)
    #expect(
      lines.first?.hasPrefix("x.yaml:5:36: warning: plugins 'a' and 'b' both replace '--mods=a'") == true, "\(lines)")
  }

  @Test func `are also the entries of a directory, after those of the list, which win by name`() throws {
    var machine = context()
    machine.entries = { $0 == "/srv/d" ? .success(["b.so", "a.so", ".x", "c"]) : .failure(.init("no such directory")) }
    let text = "command: [/bin/x]\nplugins: {directory: /srv/d/, only: [\"*.so\"], list: [{name: a.so, unset: [A]}]}"
    let parsed = parse(text, in: machine)
    #expect(parsed.diagnostics.map(\.description) == [])
    let process = try #require(parsed.spec).process
    #expect(process.plugins.map(\.name) == ["a.so", "b.so"])
    #expect(process.plugins.map(\.entry) == [nil, "/srv/d/b.so"] && process.plugins[1].hide == ["/srv/d/b.so"])
    #expect(process.pluginDirectory?.path == "/srv/d" && process.pluginDirectory?.only == ["*.so"])

    let missing = parse("command: [/bin/x]\nplugins: {directory: /srv/e}", in: machine)
    #expect(
      missing.diagnostics.map(\.description)
        == ["x.yaml:2:22: warning: 'directory': /srv/e: no such directory; it is looked at again before each start"])
    #expect(missing.spec?.process.pluginDirectory?.path == "/srv/e")

    machine.entries = { _ in .success((0..<70).map { "p\($0)" }) }
    let many = parse("command: [/bin/x]\nplugins: {directory: /srv/d}", in: machine)
    #expect(many.spec?.process.plugins.count == 64)
    #expect(many.diagnostics.first?.description.contains("6 more entries than there can be plugins") == true)

    machine.entries = { _ in .success(["a", "b"]) }
    let other = parse(
      "command: [/bin/x, --load=a]\nplugins: {directory: /d, entry: {remove-arguments: [\"--load=%n\"]}}", in: machine)
    #expect(other.spec?.process.plugins.map(\.removeArguments) == [[["--load=a"]], [["--load=b"]]])
    #expect(other.diagnostics.count == 1)
    #expect(other.diagnostics.first?.description.contains("is not in 'command' for b") == true, "\(other.diagnostics)")
  }

  @Test func `that need a capability are said to, and the service runs without them`() throws {
    let machine = context(canHide: false)
    let copy = parse("command: [/bin/x]\nplugins: {list: [{name: a, good-copy: /b}]}", in: machine)
    #expect(copy.diagnostics.first?.description.contains("2:39: 'good-copy' needs CAP_SYS_ADMIN") == true)
    #expect(copy.spec?.process.plugins == [])
    let empty = parse("command: [/bin/x]\nplugins: {list: [{name: a, empty: /b}]}", in: machine)
    #expect(empty.diagnostics.first?.description.contains("2:35: 'empty' needs CAP_SYS_ADMIN") == true)
    #expect(empty.spec?.process.plugins == [])
    let directory = parse("command: [/bin/x]\nplugins: {directory: /b}", in: machine)
    #expect(directory.diagnostics.first?.description.contains("2:22: 'directory' needs CAP_SYS_ADMIN") == true)
    let process = try #require(directory.spec).process
    #expect(process.plugins == [] && process.pluginDirectory == nil)
    let other = parse("command: [/bin/x]\nplugins: {directory: /b, entry: {unset: [A]}}", in: machine)
    #expect(other.diagnostics.isEmpty && other.spec?.process.pluginDirectory?.way?.unset == ["A"])
  }

  @Test func `name what confirms that they are off`() throws {
    #expect(
      try valid("plugins: {directory: /a, acknowledge: {status: safe mode}}").plugins.acknowledge
        == .status("safe mode"))
    #expect(
      try valid("checks: [{name: s, tcp: 80}]\nplugins: {directory: /a, acknowledge: {check: s}}").plugins.acknowledge
        == .check("s"))
  }
}

@Suite struct `when plugins may be switched` {
  private func when(_ text: String) -> PluginTime? {
    let yaml = "command: [/bin/x]\nplugins: {when: \(text), list: [{name: a, hide: /b}]}"
    return parse(yaml).spec?.plugins.when
  }

  @Test func `is in an incident, when idle, or at a time of day`() {
    #expect(parse("command: [/bin/x]\nplugins: {list: [{name: a, hide: /b}]}").spec?.plugins.when == .incident)
    #expect(when("idle") == .idle)
    #expect(when("\"02:00-05:30\"") == .daily(from: 120, to: 330))
    #expect(when("22:00-04:00") == .daily(from: 1320, to: 240))
  }

  @Test(arguments: [
    "\"2:00-5:00\"", "\"24:00-01:00\"", "\"02:60-03:00\"", "\"02:00\"", "night", "\"02:00-02:00\"",
    "\"02:00-03:00-04:00\"",
  ])
  func `is nothing else`(_ text: String) {
    #expect(when(text) == nil)
  }

  @Test func `and whether the guilty one is searched for`() {
    func search(_ word: String) -> SearchMode? {
      parse("command: [/bin/x]\nplugins: {search: \(word), list: [{name: a, hide: /b}]}").spec?.plugins.search
    }
    #expect(
      search("suggest") == .suggest && search("auto") == .auto && search("\"off\"") == .off && search("no") == nil)
  }
}
