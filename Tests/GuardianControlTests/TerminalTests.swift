@testable import GuardianControl
import GuardianModel
import Testing

/// Everything that guardianctl shows to people, made of the worst that a service can put into it.
private enum Views {
  static let hostile =
    "\u{1b}[31mred\u{1b}]0;title\u{7} \u{9b}2J\u{202e}turned\u{200b} \r\n\t\u{7f} Käse 漢字 🦊 e\u{301} "
    + String(repeating: "/very-long-path-without-a-space", count: 9)

  static let services: [ServiceStatus] = zoo.map { service in
    var s = service
    s.name = service.name + String(repeating: "n", count: 64 - service.name.count)
    s.description = hostile
    s.reason = hostile
    s.statusText = hostile
    s.lastEnd = end("exit", "error-exit", hostile, code: 1)
    s.clears = hostile
    s.runbook = hostile
    s.contact = hostile
    s.logFile = hostile
    s.notes = [hostile, hostile]
    s.requires = [hostile]
    s.groups = Array(repeating: "group", count: 40)
    s.stoppedBy = hostile
    s.fallback = hostile
    s.switches = [SwitchStatus(what: hostile, reason: hostile, until: noon, file: hostile)]
    for index in s.plugins.indices {
      s.plugins[index].name = hostile
      s.plugins[index].by = hostile
      s.plugins[index].partner = hostile
    }
    for index in s.checks.indices {
      s.checks[index].name = hostile
      s.checks[index].text = hostile
    }
    return s
  }

  static let summary: DaemonSummary = {
    var summary = DaemonSummary()
    summary.line = "6 services: \(hostile)"
    summary.state = "volatile"
    summary.warnings = [hostile]
    summary.diagnostics = [
      Diagnostic(file: hostile, line: 1, column: 1, what: hostile, why: hostile, suggestion: hostile)
    ]
    return summary
  }()

  static let plan = Plan(
    name: hostile,
    entries: [
      PlanEntry(
        earliest: .milliseconds(1), latest: .milliseconds(90_061_000), action: "start", step: .safeMode, strikes: 1,
        strikesAllowed: 3, text: hostile)
    ])

  static let crash: CrashSummary = {
    var crash = crashOfZoo
    crash.service = String(repeating: "s", count: 64)
    crash.text = hostile
    return crash
  }()

  static let report: CrashReport = {
    var report = reportOfZoo
    report.reason = hostile
    report.output = LastOutput(lines: [hostile, hostile], truncated: true)
    report.backtrace.frames = [StackFrame(module: hostile, function: hostile, offset: 1, place: hostile)]
    report.backtrace.says = hostile
    report.leftovers = [hostile]
    report.environment = [hostile]
    report.repairs = hostile
    report.changes = [ChangeHint(what: hostile, at: noon, score: 300)]
    return report
  }()

  static let event = EventRecord(
    id: EventID(7), at: noon, service: String(repeating: "s", count: 64), name: "strike", text: hostile,
    details: Array("{}".utf8))

  static let guarantees: DaemonVersion = {
    var version = DaemonVersion()
    version.guarantees = [.init(hostile, hostile), .init("process set", hostile)]
    return version
  }()

  static let change: ReloadChange = {
    var change = ReloadChange()
    change.added = [hostile]
    change.changed = [ReloadChange.Changed(name: hostile)]
    change.changed[0].note = hostile
    change.restarts = [.init(name: hostile, done: true, text: hostile)]
    change.needRestart = [.init(name: hostile, keys: [hostile])]
    return change
  }()

  struct View: CustomTestStringConvertible, Sendable {
    var name: String
    /// Text that wraps at a terminal's edge by itself, as any output does, is not bound to it.
    var isBound = true
    var render: @Sendable (Style) -> [UInt8]
    var testDescription: String { name }
  }

  private static func lines(_ lines: [String]) -> [UInt8] { Array(lines.map { $0 + "\n" }.joined().utf8) }

  static let all: [View] = [
    View(name: "status list") { renderHead(summary, style: $0) + renderTable(services, style: $0) },
    View(name: "status detail") { style in services.flatMap { renderDetail($0, now: noon, style: style) } },
    View(name: "status --watch") {
      lines(watchFrame(summary, services, away: hostile, closely: false, now: noon, height: 20, style: $0))
    },
    View(name: "status --watch of one") {
      lines(watchFrame(summary, services, away: nil, closely: true, now: noon, height: 20, style: $0))
    },
    View(name: "status --watch in a pipe", isBound: false) {
      var view = WatchLines(style: $0)
      return view.render(services, missing: [], at: nil) + view.render([], missing: [services[0].name], at: noon)
    },
    View(name: "plugins") { style in services.flatMap { renderPlugins($0, now: noon, style: style) } },
    View(name: "crashes") { renderCrashes([crash, crash], now: crash.at, style: $0) },
    View(name: "crashes show") { renderCrash(encode(report), style: $0) ?? [] },
    View(name: "events") {
      var view = EventView(style: $0)
      return view.render([event, eventOfZoo]) + view.renderMissed(7)
    },
    View(name: "plan") { renderPlan(plan, fromStart: true, style: $0) },
    View(name: "drill") { renderDrillHead(hostile, DrillRequest(), style: $0) + renderDrill(plan.entries, style: $0) },
    View(name: "version") { renderGuarantees(guarantees, style: $0) },
    View(name: "logs", isBound: false) { _ in
      var entry = LogEntry()
      entry.time = "2026-03-01T12:00:00.000Z"
      entry.text = Array(hostile.utf8.filter { $0 != 0x0a }) + [0xff, 0x9b]
      return entry.rendered(escaped: true)
    },
    View(name: "reload", isBound: false) { _ in Array(reloadText(services: 1, change).utf8) },
    View(name: "upgrade", isBound: false) { _ in
      Array(upgradedText(Upgraded(from: hostile, to: hostile, pid: 1, services: 1)).utf8)
    },
    View(name: "progress") { style in
      var progress = Progress()
      progress.total = 5
      progress.underWay = [hostile]
      return lines([progress.line(hostile, seconds: 5, turn: 1, style: style)])
    },
    View(name: "top") { style in
      var model = TopModel()
      _ = model.handle(.resized(width: style.width ?? 200, height: 20))
      _ = model.handle(.linked)
      _ = model.handle(.summary(summary))
      _ = model.handle(.looked(services, missing: [], whole: true))
      var all = model.frame(style)
      _ = model.handle(.refused(TopOrder(action: .stop, name: hostile), .failed(reason: hostile)))
      _ = model.handle(.lost(hostile))
      all += model.frame(style)
      _ = model.handle(.key(.enter))
      return lines(all + model.frame(style))
    },
  ]
}

@Suite struct `whatever a service puts into what is shown` {
  @Test(arguments: Views.all)
  private func `J11: mangles nothing, and nothing of it reaches a terminal raw`(_ view: Views.View) {
    for width in [40, 80, 200, nil] as [Int?] {
      for colour in [false, true] {
        for unicode in [true, false] {
          let style = Style(width: width, colour: colour, unicode: unicode)
          let bytes = view.render(style)
          var text = (unicode ? bytes : plainASCII(bytes)).text
          let place = "\(view.name) at \(width ?? 0), colour \(colour), unicode \(unicode)"
          if !unicode { #expect(text.utf8.allSatisfy { $0 < 0x80 }, "\(place)") }
          if colour {
            for ink in ["0", "1", "2", "7", "31", "32", "33"] { text = text.replacing("\u{1b}[\(ink)m", with: "") }
          }
          for scalar in text.unicodeScalars {
            let value = scalar.value
            #expect(
              value == 0x0a || value == 0x09 && view.name == "logs"
                || value >= 0x20 && !(0x7f..<0xa0).contains(value) && !(0x200b...0x200f).contains(value)
                  && !(0x2028...0x202e).contains(value),
              "\(place): U+\(String(value, radix: 16))")
            if value < 0x20, value != 0x0a { break }
          }
          // Whatever was told is told: the words are there, if only in part.
          #expect(!text.isEmpty, "\(place)")
          guard let width, view.isBound else { continue }
          for line in text.split(separator: "\n") {
            #expect(columns(String(line)) <= width, "\(place): \(line)")
          }
        }
      }
    }
  }

  @Test func `has the columns that are written, with pictures and without UTF-8`() {
    for picture in ["\u{2705}", "\u{2b50}", "\u{1f7e2}", "\u{231a}", "\u{1f7eb}", "漢"] {
      #expect(columns(picture) == 2, "\(picture)")
    }
    for sign in ["\u{2713}", "\u{2300}", "\u{1f321}", "é"] { #expect(columns(sign) == 1, "\(sign)") }
    var event = Views.event
    event.text = "step restart → repair: " + String(repeating: "→ ", count: 40)
    var view = EventView(style: Style(width: 40, unicode: false))
    for line in plainASCII(view.render([event])).text.split(separator: "\n") { #expect(line.count <= 40, "\(line)") }
    var note = LogEntry()
    (note.isNote, note.text) = (true, Array("run 0123456789abcdef0123456789abcdef began 2026-03-01T12:00:00Z".utf8))
    for line in note.rendered(escaped: true, width: 40).text.split(separator: "\n") {
      #expect(line.hasPrefix("# ") && line.count <= 40, "\(line)")
    }
  }

  @Test func `is escaped in JSON too, and means the same`() {
    var json = JSONWriter()
    json.string("\u{9b}2J\u{85}\u{202e}x\u{feff}é…\u{1b}")
    #expect(json.bytes.text == #""\u009b2J\u0085\u202ex\ufeffé…\u001b""#)
    let all = (0...0x2fff).compactMap { Unicode.Scalar($0).map(Character.init) }
    json = JSONWriter()
    json.strings([String(all)])
    let decoded = json.bytes.withUnsafeBufferPointer { withJSON($0) { $0.strings?.first } }
    // jansson takes no NUL.
    if case .success = decoded { Issue.record("a NUL was taken") }
    json = JSONWriter()
    json.strings([String(all.dropFirst())])
    let whole = json.bytes.withUnsafeBufferPointer { withJSON($0) { $0.strings?.first } }
    #expect(whole.value == String(all.dropFirst()))
  }

  @Test func `is in ASCII where there is nothing else, as wide as it was`() {
    #expect(plainASCII(Array("a – b → c … Käse 漢 e\u{301} ’".utf8)).text == "a - b -> c ... K?se ?? e '")
    #expect(plainASCII(Array("plain".utf8)).text == "plain")
  }
}
