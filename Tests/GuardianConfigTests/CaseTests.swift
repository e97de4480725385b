import GuardianConfig
import GuardianModel
import Testing

/// Reports from the field about other supervisors, each as a small thing to try.
@Suite struct `surprises from the field` {
  @Test func `CASES 1: no limit depends on the delay`() throws {
    let spec = try valid("startup-window: 2s\nescalation: {restart: 5}\nbackoff: {first: 5s, factor: 1, max: 5s}")
    #expect(spec.escalation.restart == 5)
    #expect(spec.backoff.first == spec.backoff.max)
  }

  @Test func `CASES 5: a zero startup window does not silently turn the ladder off`() {
    #expect(
      said("startup-window: 0s").first
        == "x.yaml:2:17: 'startup-window' must be longer than 0s; no death could come before it is over, so that none "
        + "would ever be a strike; 'escalation: off' says that")
  }

  @Test(arguments: [("no", "never"), ("false", "never"), ("yes", "always"), ("true", "always"), ("off", "never")])
  func `CASES 14: a truth value for restart is refused, never turned round`(_ word: String, _ meant: String) {
    let found = parse("command: [/bin/x]\nrestart: \(word)").diagnostics
    #expect(found.count == 1)
    #expect(found.first?.suggestion == meant)
    #expect(said("restart: {on-crash: false}").first?.hasPrefix("x.yaml:2:10: 'restart' must be") == true)
  }

  @Test func `CASES 44: a value is byte for byte what YAML says`() throws {
    let spec = try valid(#"environment: {KEY: "a%b%%c $HOME ${X} \\n # ' \" é"}"#)
    #expect(spec.process.environment == [.init("KEY", #"a%b%%c $HOME ${X} \n # ' " é"#)])
  }

  @Test func `CASES 46: a hash in quotes is no comment`() throws {
    let spec = try valid(
      #"""
      environment:
        A: "## x ##"
        B: 'it''s'
        C: "tab\there"
        D: |
          # first
          second # third
        E: a#b
      """#)
    #expect(
      spec.process.environment == [
        .init("A", "## x ##"), .init("B", "it's"), .init("C", "tab\there"), .init("D", "# first\nsecond # third\n"),
        .init("E", "a#b"),
      ])
  }

  @Test func `CASES 46: text that YAML takes for a comment is pointed out where it matters`() {
    let found = parse(
      """
      command: /bin/x --color #fff
      description: nothing to say # here
      environment:
        é: ü #1
        B: "quoted" # fine
      umask: "0022" # fine
      """
    ).diagnostics
    #expect(found.map(\.severity) == [.warning, .warning])
    #expect(
      found.first?.description.hasPrefix("x.yaml:1:10: warning: '#fff' is a comment and no part of 'command'") == true)
    #expect(
      found.last?.description.hasPrefix("x.yaml:4:6: warning: '#1' is a comment and no part of the value of é") == true)
  }

  @Test func `CASES 47: environment values stay the text that was written`() throws {
    let spec = try valid(
      "environment: {A: yes, B: no, C: on, D: 0644, E: 1e3, F: 12:30:45, H: 1_000, I: null, J: 2024-01-01,"
        + " K: \"\", L: \"~\", NO: .inf}"
    )
    #expect(
      spec.process.environment.map(\.value) == [
        "yes", "no", "on", "0644", "1e3", "12:30:45", "1_000", "null", "2024-01-01", "", "~", ".inf",
      ])
  }

  @Test func `CASES 47: an empty value and a bare tilde are refused with their place`() {
    #expect(
      said("environment: {A: ~, B: }") == [
        "x.yaml:2:18: the value of A has no value; write \"\" for an empty text, \"~\" for a tilde",
        "x.yaml:2:24: the value of B has no value; write \"\" for an empty text",
      ])
  }

  @Test func `CASES 49: anchors mean one thing, merge keys and bombs are refused`() {
    #expect(said("environment: &a {X: y}\nlimits: {<<: *a}").first?.contains("merge keys") == true)
  }

  @Test func `CASES 50: a setting that would do nothing is not silent`() {
    #expect(said("backof: {first: 1s}").first == "x.yaml:2:1: unknown key 'backof'; did you mean 'backoff'?")
    #expect(
      said("startup_windows: 1s").first == "x.yaml:2:1: unknown key 'startup_windows'; did you mean 'startup-window'?")
    #expect(said("watchdog: 10s").isEmpty, "a watchdog has its socket without 'ready: notify'")
    #expect(
      said("stop: {scope: cgroup}").first?.hasPrefix(
        "x.yaml:2:8: unknown key 'scope'; valid here: signal timeout then leftovers") == true)
  }
}

@Suite struct `what control groups are told` {
  private func host(_ text: String) -> ParsedHost {
    Configuration.parseHost(bytes: Array(text.utf8), file: "guardian.yaml", context: context())
  }
  private func service(_ text: String) throws -> ParsedService {
    Configuration.parseService(
      name: try #require(ServiceName("x")), bytes: Array(("command: [/bin/x]\n" + text).utf8), file: "x.yaml",
      context: context())
  }

  @Test func `cgroup is auto, off, or the name of a group`() {
    #expect(host("").host?.groups == .automatic)
    #expect(host("cgroup: auto").host?.groups == .automatic)
    #expect(host("cgroup: off").host?.groups == .off)
    #expect(host("cgroup: /guardian/main").host?.groups == .path("/guardian/main"))
  }

  @Test(arguments: [
    "cgroup: atuo", "cgroup: guardian", "cgroup: /", "cgroup: /a/../b", "cgroup: //a",
    "cgroup: /sys/fs/cgroup/guardian",
    "cgroup: [auto]",
  ])
  func `cgroup that is wrong is a fault with its place`(_ text: String) {
    let parsed = host(text)
    #expect(parsed.host == nil)
    #expect(parsed.diagnostics.first?.description.hasPrefix("guardian.yaml:1:9: ") == true, "\(parsed.diagnostics)")
  }

  @Test func `limits of the group are read beside the others`() throws {
    let parsed = try service("limits: {memory: 512M, tasks: unlimited, cpu-weight: 50, open-files: 64}")
    #expect(parsed.diagnostics.map(\.description) == [])
    #expect(parsed.spec?.process.groupLimits == GroupLimits(memory: 512 << 20, tasks: .max, cpuWeight: 50))
    #expect(parsed.spec?.process.limits == [.init(.openFiles, 64)])
  }

  @Test(arguments: [
    "limits: {memory: 1k}", "limits: {memory: 512}", "limits: {memory: [1G]}", "limits: {tasks: 0}",
    "limits: {tasks: many}", "limits: {cpu-weight: 0}", "limits: {cpu-weight: 10001}",
  ])
  func `limits of the group that are wrong are a fault`(_ text: String) throws {
    let parsed = try service(text)
    #expect(parsed.spec == nil)
    #expect(parsed.diagnostics.first?.description.hasPrefix("x.yaml:2:") == true, "\(parsed.diagnostics)")
  }

  @Test
  func `a limit of the group changes what is executed, and its absence leaves the print of a definition as it was`() {
    var process = ProcessSpec(command: ["/bin/x"])
    let before = process.fingerprint
    process.groupLimits.memory = 1 << 30
    #expect(process.fingerprint != before)
    process.groupLimits = GroupLimits(tasks: 1 << 30)
    #expect(process.fingerprint != before)
    process.groupLimits = GroupLimits()
    #expect(process.fingerprint == before)
  }
}

@Suite struct `a stop sequence` {
  private func service(_ text: String) throws -> ParsedService {
    Configuration.parseService(
      name: try #require(ServiceName("x")), bytes: Array(("command: [/bin/x]\n" + text).utf8), file: "x.yaml",
      context: context())
  }

  @Test func `is a list of signals, each with its time`() throws {
    let parsed = try service("stop: {timeout: 7s, then: [{signal: INT, timeout: 5s}, {signal: SIGQUIT}]}")
    #expect(parsed.diagnostics.map(\.description) == [])
    #expect(
      parsed.spec?.stop.then == [
        StopStep(signal: .int, timeout: .seconds(5)), StopStep(signal: .quit, timeout: .seconds(7)),
      ])
    #expect(parsed.spec?.stop.patience == .seconds(19))
    #expect(parsed.spec?.stop.steps == 3)
  }

  @Test(arguments: [
    "stop: {then: [{timeout: 5s}]}", "stop: {then: [{signal: KILL}]}", "stop: {then: [{signal: STOP}]}",
    "stop: {then: INT}", "stop: {then: [INT]}", "stop: {then: [{signal: INT, patience: 5s}]}",
    "stop: {then: [{signal: A}, {signal: B}]}",
  ])
  func `that is wrong is a fault`(_ text: String) throws {
    let parsed = try service(text)
    #expect(parsed.spec == nil)
    #expect(parsed.diagnostics.first?.description.hasPrefix("x.yaml:2:") == true, "\(parsed.diagnostics)")
  }

  @Test func `has a bound`() throws {
    let many = (0..<9).map { _ in "{signal: INT}" }.joined(separator: ", ")
    #expect(try service("stop: {then: [\(many)]}").spec == nil)
  }
}

@Suite struct `history in guardian_yaml` {
  private func host(_ text: String) -> ParsedHost {
    Configuration.parseHost(bytes: Array(text.utf8), file: "guardian.yaml", context: context())
  }

  @Test func `says how much is kept, 100000 where it says nothing`() {
    #expect(host("").host?.historyEvents == 100_000)
    #expect(host("defaults: {}\nhistory: {events: 20000}").host?.historyEvents == 20_000)
  }

  @Test(arguments: ["history: {events: 99}", "history: {events: many}", "history: {evnts: 200}", "history: 200"])
  func `that is wrong is a fault with its place`(_ text: String) {
    let parsed = host(text)
    #expect(parsed.host == nil)
    #expect(parsed.diagnostics.first?.description.hasPrefix("guardian.yaml:1:") == true, "\(parsed.diagnostics)")
  }
}

@Suite struct `governor and common-cause in guardian_yaml` {
  private func host(_ text: String) -> ParsedHost {
    Configuration.parseHost(bytes: Array(text.utf8), file: "guardian.yaml", context: context())
  }

  @Test func `have defaults, may be given in part, and may be off`() throws {
    #expect(host("").host?.governor == GovernorSpec() && host("").host?.commonCause == CommonCauseSpec())
    let some = try #require(host("governor: {concurrent: 8}\ncommon-cause: {within: 1min}").host)
    #expect(some.governor?.concurrent == 8 && some.governor?.startsPerSecond == 200)
    #expect(some.commonCause?.within == .seconds(60) && some.commonCause?.services == 3)
    let off = try #require(host("governor: off\ncommon-cause: off").host)
    #expect(off.governor == nil && off.commonCause == nil)
  }

  struct Case: CustomTestStringConvertible {
    var text: String, says: String
    var testDescription: String { text }
  }
  @Test(arguments: [
    Case(text: "governor: no", says: "1:11: "), Case(text: "governor: [1]", says: "1:11: "),
    Case(text: "governor: {starts-per-second: 0}", says: "1:31: "),
    Case(text: "governor: {concurent: 3}", says: "1:12: unknown key 'concurent'"),
    Case(text: "common-cause: on", says: "1:15: "), Case(text: "common-cause: {services: 1}", says: "1:26: "),
    Case(text: "common-cause: {freeze: 0s}", says: "1:24: "), Case(text: "common-cause: {within: 5}", says: "1:24: "),
  ])
  func `that are wrong are faults with their place`(_ c: Case) {
    let parsed = host(c.text)
    #expect(parsed.host == nil)
    #expect(parsed.diagnostics.first?.description.hasPrefix("guardian.yaml:" + c.says) == true, "\(parsed.diagnostics)")
  }
}

@Suite struct `defaults in guardian_yaml` {
  private func host(_ text: String) -> ParsedHost {
    Configuration.parseHost(bytes: Array(text.utf8), file: "guardian.yaml", context: context())
  }

  @Test func `may be empty or absent`() {
    for text in ["", "# all comments", "{}", "defaults: {}"] {
      let parsed = host(text)
      #expect(parsed.host != nil)
      #expect(parsed.diagnostics.isEmpty)
    }
  }

  @Test func `are what a service has that does not say otherwise`() throws {
    let defaults = try #require(
      host(
        "defaults:\n  user: web\n  stop: {timeout: 30s, signal: INT}\n  success-exit: [0, 1]\n  environment: {A: a, B: b}"
      ).host
    ).defaults
    let spec = try #require(
      parse("command: [/bin/x]\nstop: {timeout: 5s}\nsuccess-exit: [0, 2]\nenvironment: {B: c}", defaults: defaults)
        .spec)
    #expect(spec.process.identity == someone)
    #expect(spec.stop.timeout == .seconds(5))
    #expect(spec.stop.signal == .int, "mappings are merged key by key")
    #expect(spec.successExit == [0, 2], "lists are replaced")
    #expect(spec.process.environment == [.init("B", "c"), .init("A", "a")])
  }

  @Test func `may be escalation off, which a service can turn on again`() throws {
    let defaults = try #require(host("defaults: {escalation: off}").host).defaults
    #expect(try !#require(parse("command: [/bin/x]", defaults: defaults).spec).escalation.enabled)
    let spec = try #require(parse("command: [/bin/x]\nescalation: {restart: 2}", defaults: defaults).spec)
    #expect(spec.escalation.enabled && spec.escalation.restart == 2)
  }

  @Test func `are checked where they stand, and have no command`() {
    let parsed = host("defaults:\n  command: [/bin/x]\n  startup-window: 0s\n  stop: {timeuot: 1s}\nacess: {}")
    #expect(parsed.host == nil)
    #expect(
      parsed.diagnostics.map { "\($0.line ?? 0):\($0.column ?? 0)" } == ["2:3", "3:19", "4:10", "5:1"])
  }

  @Test func `that do not fit one service are reported with both files' places`() throws {
    let defaults = try #require(host("defaults:\n  backoff: {max: 5s}").host).defaults
    let parsed = parse("command: [/bin/x]\nbackoff: {first: 10s}", defaults: defaults)
    #expect(parsed.diagnostics.map(\.file) == ["guardian.yaml"])
    #expect(parsed.spec == nil)
  }

  @Test func `warn once, in their own file`() throws {
    let parsed = host("defaults:\n  start-timeout: 10s")
    let defaults = try #require(parsed.host).defaults
    #expect(parse("command: [/bin/x]", defaults: defaults).diagnostics.isEmpty)
  }
}
