@testable import GuardianControl
import GuardianModel
import Glibc
import Testing

/// Compares with a file under Tests/Snapshots; with RECORD_SNAPSHOTS set, writes it instead.
private func expectSnapshot(_ bytes: [UInt8], _ name: String, at location: SourceLocation = #_sourceLocation) {
  let path =
    String(#filePath.dropLast("GuardianControlTests/ViewTests.swift".count)) + "Snapshots/guardianctl/\(name).txt"
  if getenv("RECORD_SNAPSHOTS") != nil {
    guard let stream = fopen(path, "w") else {
      Issue.record("cannot write \(path)", sourceLocation: location)
      return
    }
    fwrite(bytes, 1, bytes.count, stream)
    fclose(stream)
    return
  }
  var expected: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 65_536)
  if let stream = fopen(path, "r") {
    expected += buffer[..<fread(&buffer, 1, buffer.count, stream)]
    fclose(stream)
  }
  #expect(bytes.text == expected.text, sourceLocation: location)
}

@Suite struct `the table of status` {
  @Test(arguments: [40, 60, 80, 120])
  func `fits the terminal`(width: Int) {
    let bytes = renderTable(zoo, style: Style(width: width))
    for line in bytes.text.split(separator: "\n") { #expect(line.count <= width, "\(line)") }
    expectSnapshot(bytes, "table-\(width)")
  }

  @Test func `is whole in a pipe`() { expectSnapshot(renderTable(zoo, style: Style()), "table-pipe") }

  @Test func `of healthy services has nothing to say but names, states and times`() {
    let services = [settledService("db"), settledService("web", hours: 80)]
    #expect(
      renderTable(services, style: Style(width: 80)).text == """
        NAME  STATE    UPTIME
        db    settled  2h13min
        web   settled  3d8h

        """)
    #expect(renderTable([], style: Style()) == [])
  }

  @Test func `is painted where colour is wanted, and only the paint differs`() {
    let plain = renderTable(zoo, style: Style(width: 80)).text
    var painted = renderTable(zoo, style: Style(width: 80, colour: true)).text
    #expect(painted.contains("\u{1b}[31mquarantined\u{1b}[0m"))
    for ink in ["0", "1", "2", "31", "32", "33"] { painted.replace("\u{1b}[\(ink)m", with: "") }
    #expect(painted == plain)
  }

  @Test func `without UTF-8 cuts with a tilde`() {
    let text = renderTable(zoo, style: Style(width: 60, unicode: false)).text
    #expect(text.utf8.allSatisfy { $0 < 0x80 })
    #expect(text.contains("~"))
  }

  @Test func `J11: lets no service write to the terminal`() {
    var hostile = settledService("x")
    hostile.settled = false
    hostile.reason = "\u{1b}]0;owned\u{7}\n\u{9b}2J \u{202e}evil 日本語 e\u{301}"
    let text = renderTable([hostile], style: Style()).text
    #expect(text.split(separator: "\n").count == 2)
    #expect(text.contains(#"\x1b]0;owned\x07\n\x9b2J \u{202e}evil 日本語"#))
    for width in 20..<70 {
      let cut = renderTable([hostile], style: Style(width: width)).text
      #expect(!cut.unicodeScalars.contains { $0.value < 0x20 && $0 != "\n" })
    }
  }

  @Test(arguments: [20, 25, 30, 33, 50, 70, 100, 200])
  func `never overflows, whatever is in it`(width: Int) {
    var services = zoo
    services.append(settledService(String(repeating: "n", count: 64)))
    for line in renderTable(services, style: Style(width: width)).text.split(separator: "\n") {
      #expect(line.count <= max(width, 26), "\(line)")
    }
  }
}

@Suite struct `the answer to an upgrade` {
  @Test func `says from what to what, and what stayed as it was`() {
    #expect(
      upgradedText(Upgraded(from: "0.1.0", to: "0.2.0", pid: 4711, services: 12))
        == "upgraded: guardian 0.1.0 → 0.2.0, pid 4711 kept, 12 services untouched\n")
    let odd = upgradedText(Upgraded(from: "0.1.0", to: "\u{1b}c", pid: 1, services: 1))
    #expect(odd.contains("→ \\x1bc, pid 1 kept, 1 service "))
  }
}

@Suite struct `the answer to a reload` {
  @Test func `names what changed, and what waits for the next start`() {
    var change = ReloadChange()
    change.added = ["new"]
    change.changed = [ReloadChange.Changed(name: "db"), ReloadChange.Changed(name: "web")]
    change.changed[0].live = ["stop"]
    change.changed[0].atStart = ["command", "log"]
    change.changed[1].live = ["command"]
    change.changed[1].note = "starts now, with a fresh ladder"
    change.unchanged = 9
    change.host = ["history"]
    change.needRestart = [ReloadChange.Pending(name: "db", keys: ["command", "log"])]
    #expect(
      reloadText(services: 12, change) == """
        configuration read again: 12 services, 1 added (new), 2 changed (db, web), 9 unchanged, guardian.yaml changed \
        (history)
          db: in force: stop; after a restart: command, log
          web: in force: command; starts now, with a fresh ladder
        needs a restart: db ('guardianctl reload --restart' does it)

        """)
    change.restarts = [ReloadChange.Restarted(name: "db", done: true, text: "")]
    #expect(reloadText(services: 12, change).hasSuffix("\ndb: restarted\n"))
    change.dryRun = true
    #expect(reloadText(services: 12, change).hasPrefix("a reload would find 12 services, 1 added"))
  }
  @Test func `says so when nothing changed, and never lists thousands`() {
    var change = ReloadChange()
    change.unchanged = 1
    #expect(reloadText(services: 1, change) == "configuration read again: 1 service, nothing changed\n")
    change.removed = (0..<1000).map { "s\($0)" }
    #expect(reloadText(services: 1, change).utf8.count < 160)
    change.changed = (0..<1000).map { ReloadChange.Changed(name: "s\($0)") }
    change.needRestart = (0..<1000).map { ReloadChange.Pending(name: "s\($0)", keys: ["command"]) }
    let text = reloadText(services: 1000, change)
    #expect(text.utf8.count < 2_000 && text.contains("  and 960 more; --json has them all\n"), "\(text)")
  }
}

@Suite struct `the details of status` {
  @Test(arguments: [40, 80])
  func `tell the whole story`(width: Int) {
    for service in zoo {
      expectSnapshot(renderDetail(service, now: noon, style: Style(width: width)), "detail-\(service.name)-\(width)")
    }
  }

  @Test func `say what is wrong with guardian itself first`() {
    var summary = DaemonSummary()
    summary.line = "6 services: 1 settled, 1 degraded (web), 1 quarantined (mailer)"
    summary.state = "volatile"
    summary.warnings = ["guardian.yaml has faults; its last good copy is in force"]
    summary.diagnostics = (1...5).map {
      Diagnostic(file: "services/s\($0).yaml", line: 3, column: 1, what: "unknown key 'backof'", suggestion: "backoff")
    }
    expectSnapshot(renderHead(summary, style: Style(width: 80)), "head-80")
    summary.state = "durable"
    summary.warnings = []
    summary.diagnostics = []
    #expect(renderHead(summary, style: Style(width: 80)).text == summary.line + "\n")
  }
}

@Suite struct `a plan` {
  private let plan: Plan = {
    func entry(_ from: Int64, _ to: Int64, _ step: Step, _ strikes: Int, _ allowed: Int, _ text: String) -> PlanEntry {
      PlanEntry(
        earliest: .milliseconds(from), latest: .milliseconds(to), action: "start", step: step, strikes: strikes,
        strikesAllowed: allowed, text: text)
    }
    return Plan(
      name: "web",
      entries: [
        entry(0, 0, .restart, 0, 3, "start"), entry(500, 550, .restart, 1, 3, "start"),
        entry(1500, 1650, .restart, 2, 3, "start"),
        entry(2000, 2200, .repair, 0, 2, "repairs drop-cache, config, hotfix, then start"),
        entry(3000, 3300, .safeMode, 0, 2, "start with plugins off: payments, social"),
        entry(4500, 4950, .quarantine, 0, 0, "quarantined; trial in 15min"),
      ])
  }()

  @Test(arguments: [40, 60, 80])
  func `draws the time line`(width: Int) {
    let bytes = renderPlan(plan, fromStart: width == 60, style: Style(width: width))
    for line in bytes.text.split(separator: "\n") { #expect(line.count <= width, "\(line)") }
    expectSnapshot(bytes, "plan-\(width)")
  }
}

@Suite struct `the lines of one run in the journal` {
  private func line(_ text: String, pid: Int32, stream: String, at: Int64) -> JournalLine {
    let json =
      #"{"__REALTIME_TIMESTAMP":"\#(at)","MESSAGE":"\#(text)","_PID":"\#(pid)","_STREAM_ID":"\#(stream)","__CURSOR":"c"}"#
    return journalLine(Array(json.utf8)[...]) ?? JournalLine(entry: LogEntry(), at: -1, pid: nil, stream: "")
  }
  private func texts(_ lines: [JournalLine], pid: Int32) -> [String] {
    journalLines(lines, pid: pid, begun: 100, ended: 200).map { String(decoding: $0.entry.text, as: UTF8.self) }
  }

  @Test func `are those of the streams of its main process, whoever wrote them, also after its end`() {
    let lines = [
      line("of before", pid: 7, stream: "old", at: 90), line("one", pid: 7, stream: "a", at: 110),
      line("of a child", pid: 8, stream: "a", at: 120), line("of the next", pid: 9, stream: "b", at: 201),
      line("late", pid: 7, stream: "a", at: 260),
    ]
    #expect(texts(lines, pid: 7) == ["one", "of a child", "late"])
  }

  @Test func `are those of the streams that began in its time where the main process was silent`() {
    let lines = [
      line("of before", pid: 5, stream: "old", at: 90), line("of before, late", pid: 5, stream: "old", at: 130),
      line("of a child", pid: 8, stream: "a", at: 140), line("and more", pid: 8, stream: "a", at: 260),
      line("of the next", pid: 9, stream: "b", at: 201),
    ]
    #expect(texts(lines, pid: 7) == ["of a child", "and more"])
  }

  @Test func `may be anything, and what is no line of the journal is none`() {
    for text in ["", "{", "null", "[]", #"{"MESSAGE":"x"}"#, #"{"__REALTIME_TIMESTAMP":"many"}"#] {
      #expect(journalLine(Array(text.utf8)[...]) == nil)
    }
    let bytes = journalLine(Array(#"{"__REALTIME_TIMESTAMP":"1","MESSAGE":[104,255,105],"_PID":"x"}"#.utf8)[...])
    #expect(bytes?.entry.text == [104, 255, 105] && bytes?.pid == nil && bytes?.stream == "")
  }
}

@Suite struct `the table of plugins` {
  private var web: ServiceStatus { zoo.first { !$0.plugins.isEmpty } ?? ServiceStatus(name: "none") }

  @Test func `says of each whether it is on, who has switched it off, until when, and how suspect it is`() {
    let now = WallTime(nanoseconds: 1_790_000_000_000_000_000 - 3_600_000_000_000)
    let lines = String(decoding: renderPlugins(web, now: now, style: Style()), as: UTF8.self).split(separator: "\n")
    #expect(lines.count == 4)
    #expect(lines[0].split(separator: " ") == ["PLUGIN", "STATE", "BY", "UNTIL", "SUSPECT", "WHY"])
    #expect(
      lines[1].split(separator: " ") == [
        "payments", "off", "search", "in", "1h", "96", "%", "/etc/pay.conf", "as", "changed", "on",
        "2026-09-21T14:13:20Z,", "and", "1", "more,", "only", "with", "social",
      ])
    #expect(lines[2].split(separator: " ") == ["social", "off", "operator", "pinned"])
    #expect(lines[3].split(separator: " ") == ["maps", "on"])
  }

  @Test func `fits sixty columns, however long a name is`() {
    var style = Style()
    style.width = 60
    var service = web
    service.plugins[0].name = String(repeating: "long-", count: 20)
    let text = String(decoding: renderPlugins(service, now: WallTime(nanoseconds: 0), style: style), as: UTF8.self)
    for line in text.split(separator: "\n") { #expect(line.count <= 60, "\(line)") }
  }
}
