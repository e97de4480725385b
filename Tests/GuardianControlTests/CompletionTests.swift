import Glibc
import GuardianModel
import Testing

@testable import GuardianControl

@Suite struct `completion` {
  private func words(_ line: String..., found: [String] = []) -> [String] {
    Completion(line).answer(found.map { Candidate($0) }).map(\.word)
  }
  private func asked(_ line: String...) -> [Completion.Asked] { Completion(line).asked }

  @Test func `begins with the verbs, each with its meaning`() {
    #expect(words("") == Verb.allCases.map(\.rawValue))
    #expect(words("rel") == ["reload", "release"])
    #expect(words() == Verb.allCases.map(\.rawValue))
    #expect(Completion(["rele"]).lines([]) == "release\tlet out of quarantine, with a fresh ladder\n")
    #expect(words("--user", "rele") == ["release"])
  }

  @Test func `has the options of the verb, those of all others left out`() {
    for verb in Verb.allCases {
      let wanted = Option.allCases.filter { $0.verbs?.contains(verb) ?? true }.map(\.rawValue)
      #expect(words(verb.rawValue, "--") == wanted)
    }
    #expect(words("--js") == ["--json"])
    #expect(words("status", "--", "--js") == [], "behind '--' there are names only")
  }

  @Test func `asks for what only guardian can tell, where it may stand`() {
    #expect(asked("stop", "") == [.services, .groups])
    #expect(asked("stop", "web", "") == [.services, .groups])
    #expect(words("stop", "web", "w", found: ["web", "worker"]) == ["worker"], "not again")
    #expect(asked("logs", "") == [.services] && asked("logs", "web", "") == [])
    #expect(asked("plugins", "") == [.services])
    #expect(words("plugins", "web", "") == PluginOrder.words)
    #expect(words("plugins", "web", "en") == ["enable"])
    #expect(asked("plugins", "web", "disable", "") == [.plugins(of: "web")])
    #expect(asked("plugins", "web", "search", "") == [] && asked("plugins", "web", "pin", "a", "") == [])
    #expect(words("safe-mode", "web", "o") == ["on", "off"])
    #expect(asked("repair", "web", "") == [.repairs(of: "web")])
    #expect(words("crashes", "s", found: ["shop"]) == ["show", "shop"])
    #expect(asked("crashes", "show", "") == [.crashes] && asked("crashes", "list", "") == [.services])
    #expect(asked("check", "") == [.services, .files] && asked("check", "--explain", "") == [.keys])
    #expect(words("completion", "") == ["bash", "zsh", "fish"])
    #expect(asked("version", "") == [] && asked("help", "") == [])
  }

  @Test func `of an option's value keeps what is before it`() {
    #expect(asked("check", "--config", "") == [.directories] && asked("check", "--config=") == [.directories])
    #expect(asked("events", "--service", "") == [.services])
    #expect(words("status", "--group=s", found: ["shop", "other"]) == ["--group=shop"])
    #expect(asked("status", "--group=") == [.groups])
    #expect(words("drill", "--cause", "si") == ["signal:SEGV", "signal:ABRT", "signal:KILL"])
    #expect(words("hold", "--for", "1") == ["10min", "1h", "1d"] && words("wait", "--for", "se") == ["settled"])
    #expect(words("wait", "--for", "1") == [] && words("hold", "--for", "s") == [])
    // Whose value it was is over.
    #expect(asked("check", "--config", "/etc", "") == [.services, .files])
  }

  @Test func `goes to the guardian that the line names`() {
    #expect(Completion(["--runtime", "/r", "stop", ""]).target == .directory("/r"))
    #expect(Completion(["--runtime=/r", "stop", ""]).target == .directory("/r"))
    #expect(Completion(["stop", "--user", ""]).target == .user)
  }

  @Test func `leaves alone a pattern, and a verb that there is not`() {
    for pattern in ["web*", "w?b", "[ab]", "*"] {
      #expect(words("stop", pattern, found: ["web"]) == [] && asked("stop", pattern) == [])
    }
    #expect(words("stpo", "") == [] && asked("stpo", "") == [])
  }

  @Test func `hands nothing to a shell that it could take for its own`() {
    #expect(words("stop", "", found: ["a b", "$(x)", "a;b", "a\nb", "`x`", "ok", "", "@shop"]) == ["ok", "@shop"])
    #expect(Completion(["stop", ""]).lines([Candidate("a", "b\n\u{1b}[2J\tc")]) == "a\tb\\n\\x1b[2J\\tc\n")
  }

  @Test func `tells the shells when their own files are wanted`() {
    #expect(Completion(["check", ""]).lines([Candidate("web")]) == "web\n:files\n")
    #expect(Completion(["check", "--config", ""]).lines([]) == ":directories\n")
  }

  @Test(arguments: CompletionShell.allCases) func `has a script for each shell`(_ shell: CompletionShell) {
    #expect(shell.script.contains("completion words") && shell.script.hasSuffix("\n"))
    #expect(shell.script.utf8.allSatisfy { $0 < 0x80 })
  }
}

@Suite struct `the time line of a plan` {
  private static func entry(_ at: Int64, _ action: String, _ step: Step, _ text: String = "") -> PlanEntry {
    PlanEntry(
      earliest: .milliseconds(at), latest: .milliseconds(at), action: action, step: step, strikes: 0, strikesAllowed: 7,
      text: text)
  }
  private static let climbing: [PlanEntry] = [
    entry(0, "start", .restart), entry(2000, "death", .restart, "dies: strike 1 of 3"), entry(2500, "start", .restart),
    entry(4500, "death", .restart, "dies: strike 2 of 3"), entry(5500, "start", .restart),
    entry(7500, "death", .restart, "dies: strike 3 of 3"), entry(7500, "escalate", .repair),
    entry(8000, "repair", .repair, "repair fix, round 1"), entry(8000, "start", .repair),
    entry(10_000, "death", .repair, "dies: strike 1 of 2"), entry(10_000, "quarantine", .quarantine, "quarantined"),
    entry(910_000, "trial", .quarantine, "trial start"), entry(912_000, "death", .quarantine, "dies: exit 1"),
    entry(912_000, "trial-failed", .quarantine),
  ]
  private func lines(_ entries: [PlanEntry], _ style: Style) -> [String] {
    String(decoding: renderTimeLine(Plan(name: "web", entries: entries), style: style), as: UTF8.self)
      .split(separator: "\n").map(String.init)
  }

  @Test func `has a row for each start, with what was before it and what came of it`() {
    let rows = PlanTimeLine(Self.climbing).rows
    #expect(rows.map(\.step) == [.restart, .restart, .restart, .repair, .quarantine])
    #expect(rows.map(\.from) == [0, 2000, 4500, 7500, 10_000])
    #expect(
      rows.map(\.start) == [0, 2500, 5500, 8000, 910_000] && rows.map(\.end) == [2000, 4500, 7500, 10_000, 912_000])
    #expect(rows.map(\.repairs) == [[], [], [], [8000], []])
    #expect(
      rows.map(\.note) == [
        "strike 1 of 3", "strike 2 of 3", "strike 3 of 3", "strike 1 of 2; then quarantine", "trial: exit 1",
      ])
    #expect(PlanTimeLine([]).rows == [] && lines([], Style()) == [])
  }

  @Test(arguments: [40, 80, 200], [true, false]) func `fits the terminal, and stays in its locale`(
    width: Int, unicode: Bool
  ) {
    let lines = lines(Self.climbing, Style(width: width, unicode: unicode))
    #expect(lines.allSatisfy { columns($0) <= width }, "\(lines)")
    #expect(unicode || lines.allSatisfy { $0.utf8.allSatisfy { $0 < 0x80 } })
    #expect(lines[2].hasPrefix("restart ") && lines[3].hasPrefix("    ") && lines[5].hasPrefix("repair "))
    #expect(lines[6].hasPrefix("quarantine "))
    #expect(lines[5].contains(unicode ? "▒" : "R") && lines[2].contains(unicode ? "█" : "#"))
    #expect(lines.prefix(7).dropFirst(2).allSatisfy { $0.contains(unicode ? "✗" : "x") })
    #expect(lines[2].contains("strike 1 of 3") == (width >= 70))
    // No time goes backwards: each row begins where the last one ended, or behind that.
    let firsts = lines[2..<7].map { line in line.dropFirst(11).prefix { $0 == " " }.count }
    #expect(firsts == firsts.sorted(), "\(lines)")
  }

  @Test func `is even where that shows all`() {
    let short = Array(Self.climbing.prefix(6))
    let text = lines(short, Style(width: 80, unicode: false))
    #expect(
      text == [
        "           0    1s   2s    3s   4s        6s",
        "           +----+----+-----+----+----------+----",
      ] || text.first?.contains("0") == true)
    #expect(text.last?.contains("closer") == false)
    #expect(lines(Self.climbing, Style(width: 80)).last?.contains("closer together") == true)
  }

  @Test func `is coloured only where that is wanted`() {
    #expect(lines(Self.climbing, Style(colour: true)).joined().contains("\u{1b}[31m✗\u{1b}[0m"))
    #expect(!lines(Self.climbing, Style()).joined().contains("\u{1b}"))
  }
}

@Suite struct `the cause of a plan` {
  @Test(arguments: [
    ("signal:SEGV@2s", PlanDeath(cause: .signal(Signal(name: "SEGV") ?? .kill), age: .seconds(2))),
    ("exit:1", PlanDeath(cause: .exit(1))), ("oom@1min30s", PlanDeath(cause: .oom, age: .seconds(90))),
    ("exit:0@0", PlanDeath(cause: .exit(0))), ("watchdog", PlanDeath(cause: .watchdog)),
    ("class:wild@5s", PlanDeath(cause: .crashClass(.wild), age: .seconds(5))), ("exec", PlanDeath(cause: .exec)),
  ]) func `is read, and written so that it reads the same`(_ text: String, _ death: PlanDeath) {
    #expect(PlanDeath(text) == death && PlanDeath(death.text) == death)
  }

  @Test(arguments: [
    "", "exit", "exit:1@", "exit:1@2", "exit:256", "signal:NONE@2s", "oom@-1s", "oom@99999999d", "@2s", "oom@2s@3s",
    "watchdog@2s", "exec@1s", "check@1s", "start-timeout@1s", "class:oom",
  ])
  func `of another form is none`(_ text: String) { #expect(PlanDeath(text) == nil) }
}
