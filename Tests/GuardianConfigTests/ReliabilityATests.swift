import GuardianConfig
import GuardianModel
import Testing

/// Bad configuration, row by row; what concerns files and directories is with the loader.
@Suite struct `bad configuration` {
  @Test(arguments: [
    Faulty("user: [web", "3:1: "),
    Faulty("environment:\n\tA: b", "3:1: not YAML: a tab", has: "indent with blanks"),
    Faulty("description: \"no end\nlog: none\n", "2:14: not YAML: this quote is not closed"),
    Faulty("description: a: b", "2:15: not YAML: mapping values are not allowed", has: "needs quotes"),
    Faulty("description: @x", "2:14: not YAML", has: "needs quotes"),
    Faulty("a: }", "2:4: not YAML"),
  ])
  func `A1 a syntax error, a tab, an unclosed quote have a place`(_ c: Faulty) { c.check() }

  @Test func `A2 an unknown key has a place and a suggestion, at every depth`() {
    #expect(said("stop: {singal: TERM}") == ["x.yaml:2:8: unknown key 'singal'; did you mean 'signal'?"])
    #expect(
      said("repair:\n  - name: a\n    run: [/bin/x]\n    form-attempt: 2")
        == ["x.yaml:5:5: unknown key 'form-attempt'; did you mean 'from-attempt'?"])
    #expect(
      said("plugins: {list: [{name: a, hid: /b}]}").first
        == "x.yaml:2:28: unknown key 'hid'; did you mean 'hide'?")
  }

  @Test func `A3 a duplicate key is named with both places`() {
    #expect(
      said("log: none\nnice: 3\nlog: inherit") == ["x.yaml:4:1: key 'log' is here twice; first at line 2, column 1"])
    #expect(said("environment: {A: x, A: y}") == ["x.yaml:2:21: key 'A' is here twice; first at line 2, column 15"])
    #expect(
      said("repair: [{name: a, run: [/bin/x]}, {name: a, run: [/bin/y]}]")
        == ["x.yaml:2:43: repair 'a' is here twice; first at line 2, column 17"])
  }

  @Test(arguments: [
    Faulty("start: yes", "2:8: 'start' must be boot or manual, not 'yes'"),
    Faulty("nice: 0644", "2:7: 'nice' must be a whole number"),
    Faulty("nice: 1e1", "2:7: 'nice' must be a whole number"),
    Faulty("nice: 1_0", "2:7: 'nice'"), Faulty("nice: 0x5", "2:7: 'nice'"), Faulty("nice: ~", "2:7: 'nice'"),
    Faulty("nice: .inf", "2:7: 'nice'"), Faulty("nice: \"5\"", "2:7: 'nice'", has: "quoted text"),
    Faulty("nice: +5", "2:7: 'nice'"), Faulty("nice: -21", "2:7: 'nice'"), Faulty("nice: 1.0", "2:7: 'nice'"),
    Faulty("umask: 0027", "2:8: 'umask' must be octal digits in quotes"),
    Faulty("umask: \"0999\"", "2:8: 'umask'"), Faulty("umask: \"1777\"", "2:8: 'umask'"),
    Faulty("startup-window: 12:30", "2:17: 'startup-window' must be a duration"),
    Faulty("backoff: {factor: .inf}", "2:19: 'factor'"), Faulty("backoff: {factor: 0.5}", "2:19: 'factor'"),
    Faulty("backoff: {factor: nan}", "2:19: 'factor'"), Faulty("backoff: {jitter: 0.1}", "2:19: 'jitter'"),
    Faulty("backoff: {jitter: 101%}", "2:19: 'jitter'"), Faulty("success-exit: [256]", "2:16: an exit code"),
    Faulty("success-exit: 0", "2:15: 'success-exit' must be a list"), Faulty("user: ~", "2:7: 'user' has no value"),
    Faulty("user:", "2:6: 'user' has no value"), Faulty("log: {a: b}", "2:6: 'log'"),
    Faulty("limits: {core: 1m}", "2:16: 'core' must be a size"),
    Faulty("limits: {core: 99999999T}", "2:16: 'core' must be a size"),
    Faulty("limits: {open-files: 64K}", "2:22: 'open-files' must be a plain number"),
    Faulty("limits: {open-files: 3}", "2:22: 'open-files' must be at least 16"),
    Faulty("limits: {cpu-time: 60}", "2:20: 'cpu-time'"),
  ])
  func `A4 words and numbers that YAML libraries disagree on are refused in typed places`(_ c: Faulty) { c.check() }

  @Test(arguments: [
    "10", "1m30s", "-1s", "0", "1e9h", "10 S", "10S", "1.5s", "1h1h", "1s1min", "s", "1", "99999999999999999999s",
    "36501d", "1 min", "1us", "\"10s\"", "[10s]", "{a: b}", "ten",
  ])
  func `A5 a duration in any other form, or beyond a century, is refused`(_ text: String) {
    let lines = said("startup-window: \(text)")
    #expect(lines.count == 1)
    #expect(lines.first?.hasPrefix("x.yaml:2:17: 'startup-window' must be a duration, not") == true, "\(lines)")
    #expect(
      lines.first?.contains("; a duration is written") == true || lines.first?.contains("its unit, as in") == true)
  }

  @Test(
    arguments: [
      ("500ms", .milliseconds(500)), ("10s", .seconds(10)), ("5min", .seconds(300)), ("2h", .seconds(7200)),
      ("1d", .seconds(86400)), ("1min30s", .seconds(90)), ("1d2h3min4s5ms", .milliseconds(93_784_005)),
      ("36500d", .seconds(36500 * 86400)),
    ] as [(String, Duration)])
  func `A5 a duration in its documented forms is read`(_ text: String, _ value: Duration) throws {
    #expect(try valid("quarantine: {max: \(value < .seconds(900) ? "1d" : text)}").quarantine.max >= .seconds(900))
    #expect(try valid("stop: {timeout: \(text)}").stop.timeout == value)
  }

  @Test func `A6 an alias bomb is refused at a bounded number of values`() {
    var text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in 1...10 {
      text += "a\(level): &a\(level) [" + repeatElement("*a\(level - 1)", count: 10).joined(separator: ", ") + "]\n"
    }
    let parsed = parse(text)  // the bound is in values, and so in time and memory too
    #expect(parsed.spec == nil)
    #expect(parsed.diagnostics.count == 1)
    #expect(parsed.diagnostics.first?.what == "more than 20000 values in one file")
    #expect(parsed.diagnostics.first?.line == 4)
  }

  @Test func `A6 an alias within its own anchor is refused`() {
    let lines = parse("environment: &a {B: *a}").diagnostics
    #expect(lines.first?.what == "alias '*a' is within its own anchor")
    #expect(lines.first?.line == 1 && lines.first?.column == 21)
  }

  @Test func `A6 an alias without an anchor, and an anchor set twice, have a place`() {
    #expect(parse("command: [/bin/x]\nuser: *wbe\n").diagnostics.first?.what == "alias '*wbe' has no anchor")
    #expect(
      parse("command: &a [/bin/x]\nuser: &a web\n").diagnostics.map(\.description)
        == ["x.yaml:2:7: anchor '&a' is set twice; first at line 1, column 10"])
  }

  @Test func `A6 a merge key is refused with what to do instead`() {
    let lines = said("environment: &e {A: x}\nlimits:\n  <<: *e\n  <<: *e\n  core: 0")
    #expect(lines.count == 2)
    #expect(lines.first?.hasPrefix("x.yaml:4:3: merge keys ('<<') are not supported; an alias may") == true)
  }

  @Test func `A6 an alias may stand for a whole value`() throws {
    let spec = try valid("environment: {A: &v \"1\", B: *v}\nsuccess-exit: &c [0, 3]\nuser: &u web\ngroup: *u")
    #expect(spec.process.environment == [.init("A", "1"), .init("B", "1")])
  }

  @Test(arguments: ["[", "{a: ", "- "])
  func `A6 a thousand levels are refused in bounded time`(_ piece: String) {
    let text = "command: [/bin/x]\nuser: " + (piece == "- " ? "\n  " : "") + String(repeating: piece, count: 1000)
    let parsed = parse(text)
    #expect(parsed.spec == nil)
    #expect(parsed.diagnostics.count == 1)
    #expect(parsed.diagnostics.first?.what == "lists and mappings more than 32 deep")
  }

  @Test func `A6 a chain of aliases cannot be deep either`() {
    var text = "a0: &a0 [x]\n"
    for level in 1...1000 { text += "a\(level): &a\(level) [*a\(level - 1)]\n" }
    let parsed = parse(text)
    #expect(parsed.diagnostics.first?.what == "lists and mappings more than 32 deep")
  }

  @Test func `A6 a file of more than 1 MiB is refused`() {
    let parsed = parse(bytes: [UInt8](repeating: UInt8(ascii: "#"), count: Configuration.largestFile + 1))
    #expect(parsed.diagnostics.map(\.what) == ["the file is larger than 1 MiB"])
  }

  @Test(arguments: [1000, 30_000, 500_000])
  func `A6 a flood of values, keys, brackets or faults ends in few diagnostics`(_ count: Int) {
    for piece in [
      "a,", "[", "]", "a: b\n", "&a ", "*a ", "? ", "- ", "'", "\"", "\t", "!", "%", "|\n", ">", "#", "\n", ": ",
    ] {
      let text = "command: [/bin/x]\nnice: [" + String(repeating: piece, count: count / piece.utf8.count)
      let parsed = parse(text)
      #expect(parsed.spec == nil)
      #expect((1...101).contains(parsed.diagnostics.count))
    }
    var text = "command: [/bin/x]\n"
    for number in 0..<min(count, 5000) { text += "k\(number): x\n" }
    #expect((1...101).contains(parse(text).diagnostics.count))
  }

  @Test func `A7 a byte order mark and CRLF are accepted`() throws {
    let text = "command: [/bin/x]\r\ndescription: two\r\nenvironment:\r\n  A: b\r\n"
    let plain = parse(bytes: [0xef, 0xbb, 0xbf] + Array(text.utf8))
    #expect(plain.diagnostics.isEmpty)
    #expect(plain.spec?.description == "two")
    #expect(plain.spec?.process.environment == [.init("A", "b")])
    let wrong = parse(bytes: [0xef, 0xbb, 0xbf] + Array("comand: [/bin/x]\r\nnice: x\r\n".utf8))
    #expect(wrong.diagnostics.map { "\($0.line ?? 0):\($0.column ?? 0)" } == ["1:1", "2:7"])
  }

  @Test(
    arguments: [
      ([0x61, 0x3a, 0x20, 0xff], "1:4", "byte 0xff is not UTF-8"),
      ([0x61, 0x0a, 0x62, 0x00], "2:2", "a NUL byte"),
      ([0xc3, 0xa9, 0x3a, 0x20, 0xe2, 0x82], "1:4", "byte 0xe2 is not UTF-8"),
      ([0x0d, 0x0a, 0xed, 0xa0, 0x80], "2:1", "byte 0xed is not UTF-8"),
      ([0x61, 0x3a, 0x20, 0xc0, 0x80], "1:4", "byte 0xc0 is not UTF-8"),
      ([0x61, 0x3a, 0x20, 0x1b, 0x5b], "1:4", "control character U+001B"),
      ([0xff, 0xfe, 0x61, 0x00], "1:1", "the file is UTF-16"),
    ] as [([UInt8], String, String)])
  func `A7 a byte that is no text has a place`(_ bytes: [UInt8], _ place: String, _ what: String) {
    let found = parse(bytes: bytes).diagnostics
    #expect(found.count == 1)
    #expect(found.first?.what == what)
    #expect("\(found.first?.line ?? 0):\(found.first?.column ?? 0)" == place)
  }

  @Test(arguments: [
    "", "..", ".", "a/b", "a\nb", "-x", "A", "é", "e\u{301}", "😀", "a b", "x\0", ".hidden", "_a",
    String(repeating: "a", count: 65), String(repeating: "a", count: 300),
  ])
  func `A8 a name that is no name is none`(_ text: String) { #expect(ServiceName(text) == nil) }

  @Test(arguments: ["a", "0", "web", "a.b_c@d-e", String(repeating: "a", count: 64)])
  func `A8 a name within the pattern is one`(_ text: String) { #expect(ServiceName(text)?.text == text) }

  @Test func `A12 an unknown user or group is an error, and never root`() {
    #expect(said("user: wbe") == ["x.yaml:2:7: no user 'wbe' in the user database"])
    #expect(said("group: staff") == ["x.yaml:2:8: no group 'staff' in the user database"])
    #expect(
      said("user: wbe\ngroup: staff") == [
        "x.yaml:2:7: no user 'wbe' in the user database", "x.yaml:3:8: no group 'staff' in the user database",
      ])
    #expect(said("user: web\ngroup: staff") == ["x.yaml:3:8: no group 'staff' in the user database"])
    #expect(parse("command: [/bin/x]\nuser: [web]").spec == nil)
    #expect(parse("command: [/bin/x]\nuser: wbe").spec == nil)
    #expect(parse("command: [/bin/x]\nuser: 1000").spec?.process.identity == someone)
  }

  @Test func `A12 a guardian that is not root says that it cannot become somebody else`() {
    let parsed = parse("command: [/bin/x]\nuser: web", in: context(ownUID: 2000))
    #expect(
      parsed.diagnostics.map(\.description)
        == ["x.yaml:2:7: only root can run a program as 'web'; guardian is not root"])
    #expect(parse("command: [/bin/x]\nuser: web", in: context(ownUID: 1000)).diagnostics.isEmpty)
  }

  @Test(arguments: [
    Faulty("startup-window: 0s", "2:17: 'startup-window' must be longer than 0s"),
    Faulty("stop: {timeout: 0s}", "2:17: warning: a stop 'timeout' of 0s", has: "KILL at once"),
    Faulty("stop: {signal: STOP}", "2:16: 'signal' cannot be STOP"),
    Faulty("backoff: {first: 2min}", "2:18: backoff 'first' (2min) is longer than 'max' (1min)"),
    Faulty("backoff: {first: 10s, max: 5s}", "2:28: backoff 'first' (10s) is longer than 'max' (5s)"),
    Faulty("quarantine: {retry-after: 2d}", "2:27: quarantine 'retry-after' (2d) is longer than 'max' (1d)"),
    Faulty("quarantine: {retry-after: never, max: 1d}", "2:39: warning: 'max' has no effect"),
    Faulty("escalation: {restart: 0}", "2:23: 'restart' must be a whole number, 1 … 1000"),
    Faulty("escalation: no", "2:13: 'escalation' must be a mapping, or off", has: "did you mean 'off'?"),
    Faulty("late: {budget: -1}", "2:16: 'budget'"), Faulty("late: {within: 0s}", "2:16: 'within' must be at least 1s"),
    Faulty("fatal-exit: [0]", "2:13: exit code 0 is both a success and fatal"),
    Faulty("success-exit: [0, 7]\nfatal-exit: [7]", "3:13: exit code 7 is both a success and fatal"),
    Faulty("success-exit: [0, 0]", "2:19: exit code 0 is here twice"),
    Faulty("ready: {fd: 2}", "2:13: 'fd' must be a whole number, 3 … 1023"),
    Faulty("ready: {}", "2:8: 'ready' without 'fd'"),
    Faulty("reload: HUPP", "2:9: 'reload' must be the name of a signal, or a command", has: "did you mean 'HUP'?"),
    Faulty("reload: KILL", "2:9: 'reload' cannot be KILL"), Faulty("reload: STOP", "2:9: 'reload' cannot be STOP"),
    Faulty("reload: []", "2:9: 'reload' is empty"), Faulty("reload: {signal: HUP}", "2:9: 'reload' must be a list"),
    Faulty("reload: [relative, x]", "2:10: 'reload' must begin with an absolute path"),
    Faulty("ready: chek", "2:8: 'ready' must be none, notify, check or {fd: N}", has: "did you mean 'check'?"),
    Faulty("start-timeout: 10s", "2:16: warning: 'start-timeout' has no effect"),
    Faulty("restart: no", "2:10: 'restart' must be always or on-crash or never", has: "did you mean 'never'?"),
    Faulty("plugins: {list: [{name: a, hide: []}]}", "2:18: plugin 'a' cannot be switched off"),
    Faulty("repair: [{name: a}]", "2:10: a repair without 'run', 'move-aside' or 'restore'"),
    Faulty("repair: [{run: [/bin/x]}]", "2:10: a repair without 'name'"),
    Faulty("repair: [{name: a, run: [/bin/x], move-aside: /b}]", "2:47: 'run' and 'move-aside' in one repair"),
    Faulty("repair: [{name: a, run: [/bin/x], restore: [/b]}]", "2:44: 'run' and 'restore' in one repair"),
    Faulty("repair: [{name: a, move-aside: /b, restore: [/b]}]", "2:45: 'move-aside' and 'restore' in one repair"),
    Faulty("repair: [{name: a, restore: []}]", "2:29: 'restore' is empty"),
    Faulty("repair: [{name: a, restore: /b}]", "2:29: 'restore' must be a list"),
    Faulty("repair: [{name: a, restore: [b]}]", "2:30: a file of 'restore' must be an absolute path"),
    Faulty("repair: [{name: a, restore: [/b/../c]}]", "2:30: a file of 'restore' cannot be '/b/../c'"),
    Faulty("repair: [{name: a, restore: [/b, /b]}]", "2:34: /b is here twice"),
    Faulty(
      "repair: [{name: a, restore: [\((1...33).map { "/f\($0)" }.joined(separator: ", "))]}]",
      "2:9: 33 files to restore"),
    Faulty("repair: [{name: a, move-aside: /}]", "2:32: 'move-aside' cannot be '/'"),
    Faulty("repair: [{name: a, move-aside: /a/../b}]", "2:32: 'move-aside' cannot be '/a/../b'"),
    Faulty("repair: [{name: a, move-aside: b}]", "2:32: 'move-aside' must be an absolute path"),
    Faulty("repair: [{name: a/b, run: [/bin/x]}]", "2:17: the name of a repair must be"),
    Faulty("repair: [{name: a, run: [/bin/x], at-most: {times: 2}}]", "2:44: 'at-most' needs 'times' and 'within'"),
    Faulty("repair: [{name: a, run: [/bin/x], from-attempt: 3}]", "2:49: warning: this repair can hardly ever run"),
    Faulty("repair: [{name: a, run: [/bin/x], on: [omo]}]", "2:40: a cause must be", has: "did you mean 'oom'?"),
    Faulty("repair: [{name: a, run: [/bin/x], on: [\"exit:300\"]}]", "2:40: the code of 'exit:' must be 0 … 255"),
    Faulty("repair: [{name: a, run: [/bin/x], on: [\"signal:SEVG\"]}]", "2:40: ", has: "did you mean 'SEGV'?"),
    Faulty("repair: [{name: a, run: [/bin/x], on: [\"class:loda\"]}]", "2:40: the name of 'class:'"),
    Faulty("plugins: {list: [{name: a}]}", "2:18: plugin 'a' cannot be switched off"),
    Faulty("plugins: {list: []}", "2:10: warning: 'plugins' has no effect"),
    Faulty("restart: never\nrepair: [{name: a, run: [/bin/x]}]", "3:9: warning: 'repair' has no effect"),
    Faulty("escalation: off\nplugins: {list: [{name: a, hide: /b}]}", "3:10: warning: 'plugins' has no effect"),
    Faulty(
      "escalation: off\nbackoff: {first: 0s}", "3:10: warning: a service that dies is restarted without any pause"),
    Faulty("log: files", "2:6: 'log' must be journal, file, inherit, none, not 'files'"),
    Faulty("log: automatic", "2:6: 'log' must be"),
    Faulty("environment: {INVOCATION_ID: x}", "2:15: INVOCATION_ID is set by guardian itself"),
    Faulty("environment: {\"A=B\": x}", "2:15: 'A=B' is no name of a variable"),
    Faulty("description: \"a\\nb\"", "2:14: 'description' must be one line"),
    Faulty("description: \"a\\e[31m\"", "2:14: 'description' contains the control character U+001B"),
    Faulty("backoff: {factor: 1.123456789}", "2:19: 'factor' must be", has: "it has more than 6 decimal places"),
    Faulty("backoff: {factor: 0.5}", "2:19: 'factor' must be", has: "below 1 the pauses would grow shorter"),
    Faulty("backoff: {jitter: 10.1234567%}", "2:19: 'jitter' must be", has: "it has more than 6 decimal places"),
    Faulty("directory: srv", "2:12: 'directory' must be an absolute path"),
    Faulty("user: !!str web", "2:7: tag "), Faulty("? [a]\n: b", "2:3: a key must be a word"),
    Faulty("...\n---\nuser: web", "3:1: a second document"),
    Faulty("environment: {A: \"x\\0y\"}", "2:18: the value of A contains a NUL"),
  ])
  func `A14 contradictions and things without effect are said`(_ c: Faulty) { c.check() }

  @Test func `A14 a late budget that arithmetic makes unreachable is told with the arithmetic`() {
    let lines = said("startup-window: 20min")
    #expect(lines.count == 1)
    #expect(lines.first?.contains("warning: the late budget can hardly be exceeded; 6 deaths") == true, "\(lines)")
    #expect(said("startup-window: 20min\nlate: {within: 2h}").isEmpty)
    #expect(said("startup-window: 20min\nlate: {budget: 0}").isEmpty)
  }

  @Test func `A14 hiding needs a capability, and the service runs without it`() throws {
    let text = "command: [/bin/x]\nplugins: {list: [{name: a, hide: /b}, {name: c, hide: /d, arguments: [-e]}]}"
    let parsed = parse(text, in: context(canHide: false))
    #expect(parsed.diagnostics.count == 2)
    #expect(parsed.diagnostics.first?.description.contains("2:34: 'hide' needs CAP_SYS_ADMIN") == true)
    let plugins = try #require(parsed.spec).process.plugins
    #expect(plugins.map(\.name) == ["c"])
    #expect(plugins[0].hide == [])
  }
}
