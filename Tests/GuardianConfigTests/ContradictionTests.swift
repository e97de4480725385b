import GuardianModel
import Testing

@testable import GuardianConfig

/// Warnings about what can never come true, with the numbers that say so.
@Suite struct `contradictions` {
  struct Case: CustomTestStringConvertible {
    /// Behind `command` on line 1.
    var yaml: String
    var place: String, parts: [String]
    var grace: Duration?
    init(_ yaml: String, _ place: String, _ parts: String..., grace: Duration? = nil) {
      (self.yaml, self.place, self.parts, self.grace) = (yaml, place, parts, grace)
    }
    var testDescription: String { yaml }
  }

  private static func machine(_ grace: Duration?) -> ConfigurationContext {
    var machine = context()
    machine.stopGrace = grace.map { .init(time: $0, source: "'TimeoutStopSec=90' in /etc/x") }
    return machine
  }

  @Test(arguments: [
    Case(
      "late: {budget: 2, within: 2min}", "2:27", "3 deaths, each after a startup window of 1min", "2 windows",
      "(2min)"),
    Case(
      "watchdog: 2min", "2:11", "'watchdog' (2min) is longer than 'startup-window' (1min)",
      "has settled 1min before the watchdog ends it"),
    Case("watchdog: 15min", "2:11", "6 of them take 5 times that or more", "'within' (1h)"),
    Case(
      "ready: check\nstart-timeout: 5s\nchecks:\n  - {name: a, tcp: 80, successes: 10}", "5:35",
      "can never become ready", "10 successes in a row, one every 1s, which takes 9s", "'start-timeout' is 5s"),
    Case(
      "ready: check\nchecks:\n  - {name: a, tcp: 80, every: 30s}", "4:31", "speaks too late",
      "3 failures, one every 30s, take 1min30s, and 'startup-window' is 1min"),
    Case(
      "startup-window: 20s\nready: check\nchecks:\n  - {name: a, tcp: 80}", "2:17", "take 30s",
      "'startup-window' is 20s"),
    Case(
      "repair:\n  - {name: a, run: [/x], at-most: {times: 1, within: 1s}}\nbackoff: {first: 5s}", "3:35",
      "'at-most' can never be reached", "to the next the pauses alone are 10s", "(1s)"),
    Case(
      "repair:\n  - {name: a, run: [/x], at-most: {times: 5, within: 30s}}", "3:35", "the step repair has 2 rounds",
      "'startup-window' (1min) and pauses of 1s, more than 'within' (30s)"),
    Case("repair:\n  - {name: a, run: [/x], from-attempt: 3}", "3:40", "can hardly ever run", "waits for round 3", "2"),
    Case(
      "fatal-exit: [64]\nrepair:\n  - {name: a, run: [/x], on: [\"exit:64\"]}", "4:31",
      "no such death leads to a repair",
      "'fatal-exit' has 64"),
    Case("repair:\n  - {name: a, run: [/x], on: [watchdog]}", "3:31", "no such death", "there is no 'watchdog'"),
    Case("repair:\n  - {name: a, run: [/x], on: [check]}", "3:31", "no such death", "there are no 'checks'"),
    Case("repair:\n  - {name: a, run: [/x], on: [start-timeout]}", "3:31", "no such death", "ready at once"),
    Case(
      "startup-window: 10min\nplugins:\n  when: \"23:58-00:03\"\n  list: [{name: a, arguments: [-x]}]", "4:9",
      "'when' (5min long) has no room", "startup window of 10min"),
    Case(
      "stop: {timeout: 1min, then: [{signal: INT, timeout: 40s}]}", "2:17", "a stop may take 1min40s (1min + 40s)",
      "guardian's own only 1min30s", "'TimeoutStopSec=90' in /etc/x gives guardian no longer", grace: .seconds(90)),
    Case(
      "restart: never\nrepair:\n  - {name: a, run: [/x]}", "3:1", "'repair' has no effect",
      "with 'restart: never' nothing follows"),
  ])
  func `are told with the arithmetic, at the place that is most likely meant`(_ c: Case) {
    var yaml = c.yaml
    // Of a block list the place is its first element.
    if c.place == "3:1" { yaml = c.yaml }
    let parsed = parse("command: [/bin/x]\n" + yaml, in: Self.machine(c.grace))
    let warnings = parsed.diagnostics.filter { $0.severity == .warning }
    #expect(
      parsed.spec != nil && warnings.count == parsed.diagnostics.count && warnings.count >= 1, "\(parsed.diagnostics)")
    let text = warnings.map(\.description).joined(separator: "\n")
    for part in c.parts { #expect(text.contains(part), "\(text)") }
    if c.place != "3:1" {
      #expect(warnings.contains { "\($0.line ?? 0):\($0.column ?? 0)" == c.place }, "\(text)")
    }
  }

  @Test(arguments: [
    "watchdog: 30s", "late: {budget: 0, within: 1s}", "ready: check\nchecks:\n  - {name: a, tcp: 80, every: 20s}",
    "repair:\n  - {name: a, run: [/x], at-most: {times: 1, within: 1h}}",
    "repair:\n  - {name: a, run: [/x], at-most: {times: 2, within: 24h}}",
    "watchdog: 30s\nrepair:\n  - {name: a, run: [/x], on: [watchdog]}",
    "ready: notify\nrepair:\n  - {name: a, run: [/x], on: [watchdog, start-timeout]}",
    "stop: {timeout: 80s}",
    "startup-window: 4min\nplugins:\n  when: \"02:00-05:00\"\n  list: [{name: a, arguments: [-x]}]",
    "escalation: off\nwatchdog: 5min",
  ])
  func `are not seen where there are none`(_ yaml: String) {
    let parsed = parse("command: [/bin/x]\n" + yaml, in: Self.machine(.seconds(90)))
    #expect(parsed.diagnostics.map(\.description) == [])
  }

  @Test func `between a service and the defaults are told only of what the service says`() {
    let host = Configuration.parseHost(
      bytes: Array("defaults: {startup-window: 20s}".utf8), file: "guardian.yaml", context: context())
    #expect(host.diagnostics.isEmpty)
    let defaults = host.host?.defaults ?? .none
    #expect(parse("command: [/bin/x]", defaults: defaults).diagnostics.isEmpty)
    let both = parse("command: [/bin/x]\nwatchdog: 30s", defaults: defaults)
    #expect(both.diagnostics.map { "\($0.line ?? 0):\($0.column ?? 0)" } == ["2:11"])
  }

  @Test func `of the host: files that the total has no room for`() {
    func said(_ text: String) -> [String] {
      Configuration.parseHost(bytes: Array(text.utf8), file: "guardian.yaml", context: context()).diagnostics
        .map(\.description)
    }
    #expect(said("logs: {keep: 10, rotate: 10M, total: 1G}") == [])
    let text = said("logs: {keep: 10, total: 64M}").joined()
    #expect(text.hasPrefix("guardian.yaml:1:14: warning: 'keep' (10) can hardly be reached"), "\(text)")
    #expect(text.contains("10485760 bytes each") && text.contains("115343360 together"), "\(text)")
  }
}
