package import GuardianModel

/// Lines above a table or a detailed status: the fleet in one line, then what is wrong with guardian itself.
package func renderHead(_ summary: DaemonSummary, style: Style) -> [UInt8] {
  var out: [UInt8] = []
  func line(_ text: String, _ ink: Style.Ink) {
    for part in wrap(printable(text), width: style.width) { out += (style.paint(part, ink) + "\n").utf8 }
  }
  line(summary.line, .strong)
  if summary.state != "durable", !summary.state.isEmpty { line("state: \(summary.state)", .doubtful) }
  for warning in summary.warnings { line(warning, .doubtful) }
  let shown = 3
  for diagnostic in summary.diagnostics.prefix(shown) {
    line(diagnostic.description, diagnostic.severity == .error ? .bad : .doubtful)
  }
  if summary.diagnostics.count > shown {
    line("and \(summary.diagnostics.count - shown) more: see 'guardianctl check'", .doubtful)
  }
  return out
}

extension ServiceStatus {
  /// The one word, and how it is painted.
  var state: (word: String, ink: Style.Ink) {
    switch phase {
    // In mode observe the step is only logged.
    case .running where !settled: (step == .quarantine && !observe ? "trial" : "running", .doubtful)
    case .running: degraded ? ("degraded", .doubtful) : ("settled", .good)
    case .quarantined: ("quarantined", .bad)
    case .stopped: ("stopped", wanted == .up ? .doubtful : .faint)
    case .finished: crashedAndFinished ? ("crashed", .bad) : ("finished", .faint)
    case .waiting, .starting, .backingOff, .repairing, .stopping: (phase.rawValue, .doubtful)
    }
  }

  /// One line of the table, a cell for each column.
  fileprivate var row: (cells: [Cell], ink: Style.Ink) {
    let state = state
    var word = state.word
    if held { word += ", held" }
    if observe { word += ", observed" }
    let explains = step != .restart || strikes > 0
    let allowed = strikesAllowed > 0 ? " of \(strikesAllowed)" : ""
    let why = why
    return (
      [
        Cell(name), Cell(word), explains ? Cell(step.rawValue) : .empty,
        strikes > 0 ? Cell("\(strikes)\(allowed)") : .empty,
        next.map { Cell("\($0.action) in \(shortTime(milliseconds: $0.inMilliseconds))") } ?? .empty,
        uptimeMilliseconds.map { Cell(shortTime(milliseconds: $0)) } ?? .empty, why.isEmpty ? .empty : Cell(why),
      ], state.ink
    )
  }

  var why: String {
    if !reason.isEmpty { return reason }
    if phase == .stopped || (settled && !degraded) || (phase == .finished && !crashedAndFinished) { return "" }
    return lastEnd?.text ?? ""
  }
}

/// Columns in order; `rank` says which go first when there is no room: the highest.
private enum Column: Int, CaseIterable {
  case name, state, step, strikes, next, uptime, why

  var title: String {
    switch self {
    case .name: "NAME"
    case .state: "STATE"
    case .step: "STEP"
    case .strikes: "STRIKES"
    case .next: "NEXT"
    case .uptime: "UPTIME"
    case .why: "WHY"
    }
  }
  var rank: Int {
    switch self {
    case .name: 0
    case .state: 1
    case .next: 2
    case .strikes: 3
    case .step: 4
    case .uptime: 5
    case .why: 6
    }
  }
}

/// The table of `status`. A column in which nothing is said is left out; what does not fit is cut, then dropped.
package func renderTable(_ services: [ServiceStatus], style: Style) -> [UInt8] {
  if services.isEmpty { return [] }
  let columns = Column.allCases
  var rows: [[Cell]] = []
  rows.reserveCapacity(services.count)
  var inks: [Style.Ink] = []
  inks.reserveCapacity(services.count)
  var widths = columns.map { _ in 0 }
  for index in services.indices {
    let row = services[index].row
    for column in row.cells.indices where !row.cells[column].isNothing {
      widths[column] = max(widths[column], row.cells[column].width)
    }
    rows.append(row.cells)
    inks.append(row.ink)
  }

  var shown = columns.filter { widths[$0.rawValue] > 0 }
  for column in shown { widths[column.rawValue] = max(widths[column.rawValue], column.title.utf8.count) }
  if let limit = style.width {
    fit(&shown, &widths, limit)
  } else {
    // In a pipe, too, one broken file does not make every line a page.
    widths[Column.why.rawValue] = min(widths[Column.why.rawValue], 120)
  }

  var out: [UInt8] = []
  out.reserveCapacity(rows.count * 80)
  func write(_ cells: [Cell], ink: Style.Ink, head: Bool) {
    var gap = 0
    for column in shown {
      let width = widths[column.rawValue]
      let cell = cells[column.rawValue].cut(to: width, mark: style.mark)
      for _ in 0..<gap { out.append(UInt8(ascii: " ")) }
      if style.colour {
        let paint: Style.Ink = head ? .strong : column == .state ? ink : cell.isNothing ? .faint : .plain
        out.append(contentsOf: style.paint(cell.text, paint).utf8)
      } else {
        out.append(contentsOf: cell.text.utf8)
      }
      gap = width - cell.width + 2
    }
    out.append(UInt8(ascii: "\n"))
  }
  write(columns.map { Cell($0.title) }, ink: .plain, head: true)
  for (row, ink) in zip(rows, inks) { write(row, ink: ink, head: false) }
  return out
}

/// The explanation shrinks and goes first; long names are cut rather than a column lost, as long as that is enough.
private func fit(_ shown: inout [Column], _ widths: inout [Int], _ limit: Int) {
  func over() -> Int { shown.reduce(-limit) { $0 + widths[$1.rawValue] } + 2 * max(0, shown.count - 1) }
  func shrink(_ column: Column, to least: Int) {
    let excess = over()
    if excess > 0, shown.contains(column) {
      widths[column.rawValue] = max(min(least, widths[column.rawValue]), widths[column.rawValue] - excess)
    }
  }
  let name = Column.name.rawValue
  shrink(.name, to: 24)
  shrink(.why, to: 16)
  while over() > 0, shown.count > 2, let last = shown.max(by: { $0.rank < $1.rank }) {
    // The last column besides name and state is worth a shorter name than the others are.
    let least = last == .why ? 24 : shown.count == 3 ? 10 : 16
    if widths[name] - over() >= least { break }
    shown.removeAll { $0 == last }
  }
  shrink(.name, to: 8)
}

/// One service in full. `now` is only for saying how long ago something was; nil: that is not said.
package func renderDetail(_ s: ServiceStatus, now: WallTime?, style: Style) -> [UInt8] {
  let state = s.state
  var lines: [(label: String, value: String, ink: Style.Ink)] = []
  func add(_ label: String, _ value: String, _ ink: Style.Ink = .plain) {
    if !value.isEmpty { lines.append((label, printable(value), ink)) }
  }
  // `joined` of the library is dear the first time, and most services have nothing to join.
  func add(_ label: String, _ values: [String], _ ink: Style.Ink = .plain, after lead: String = "") {
    if !values.isEmpty { add(label, lead + values.joined(separator: ", "), ink) }
  }
  func ago(_ time: WallTime) -> String {
    guard let now else { return "" }
    let passed = (now.nanoseconds.subtractingSaturating(time.nanoseconds)) / 1_000_000
    return passed < 0 ? "" : ", \(shortTime(milliseconds: passed)) ago"
  }

  var line = state.word
  if state.word != s.phase.rawValue { line += " (\(s.phase.rawValue))" }
  if s.since.nanoseconds > 0 { line += " since \(clock(s.since))\(ago(s.since))" }
  add("State", line, state.ink)
  let stopper = s.stoppedBy.isEmpty ? "" : ", stopped by \(s.stoppedBy)"
  add("Wanted", s.wanted.rawValue + stopper + (s.kind == .task ? ", a task" : ""))
  if let pid = s.pid {
    add("Process", "\(pid)" + (s.uptimeMilliseconds.map { ", up \(shortTime(milliseconds: $0))" } ?? ""))
  }
  add("Run", s.run ?? "")
  add("Step", s.step.rawValue, s.step == .restart ? .plain : .doubtful)
  if s.strikesAllowed > 0 || s.strikes > 0 {
    let strikes = s.strikesAllowed > 0 ? "\(s.strikes) of \(s.strikesAllowed)" : "\(s.strikes)"
    add("Strikes", strikes, s.strikes > 0 ? .doubtful : .plain)
  }
  if s.restarts > 0 { add("Restarts", "\(s.restarts)") }
  if let end = s.lastEnd {
    add(
      "Last end",
      (end.text.isEmpty ? end.cause : end.text)
        // What did not come to an exec did not run for any time.
        + (end.cause == "exec"
          ? ", "
          : end.uptimeMilliseconds == 0
            ? " after less than 1ms, " : " after \(shortTime(milliseconds: end.uptimeMilliseconds)), ")
        + "\(clock(end.at))\(ago(end.at)); cause \(end.cause), class \(end.crashClass)")
  }
  add("Why", s.reason)
  if let next = s.next {
    add("Next", "\(next.action) in \(shortTime(milliseconds: next.inMilliseconds)), at \(clock(next.at))")
  }
  add("Clears", s.clears)
  add("Requires", s.requires)
  add("After", s.after)
  add("Groups", s.groups)
  add("Plugins off", s.disabledPlugins, .doubtful)
  if s.phase == .quarantined || s.phase == .waiting, let fallback = s.fallback { add("Fallback", fallback) }
  add("Stands in", s.standsInFor, after: "for ")
  for one in s.switches {
    let until = one.until.map { ", until \(clock($0))" } ?? ""
    add("Switched off", "\(one.what)\(until): \(one.reason) (switches.d/\(one.file))", .doubtful)
  }
  if s.observe { add("Mode", "observe: repair, safe mode and quarantine are only reported", .doubtful) }
  if s.pendingDefinition { add("Pending", "a changed definition takes effect at the next start", .doubtful) }
  add("Says", s.statusText)
  for check in s.checks {
    let since =
      check.state == .unknown || check.since.nanoseconds <= 0 ? "" : " since \(clock(check.since))\(ago(check.since))"
    let ink: Style.Ink =
      switch check.state {
      case .passing: .good
      case .failing: .bad
      case .unknown: .doubtful
      }
    let failed = check.failures > 0 && check.state != .failing ? ", failed \(check.failures) in a row" : ""
    add(
      "Check",
      "\(check.name) (\(check.kind)) \(check.state.rawValue)\(since)\(failed)"
        + (check.text.isEmpty ? "" : ": \(check.text)"), ink)
  }
  add("Log", s.log + (s.logFile.map { ": " + $0 } ?? ""))
  add("Runbook", s.runbook ?? "")
  add("Contact", s.contact ?? "")
  for note in s.notes { add("Note", note, .doubtful) }

  var out: [UInt8] = []
  let name = printable(s.name)
  let title = name + (s.description.isEmpty ? "" : " \(style.dash) \(printable(s.description))")
  for (index, part) in wrap(title, width: style.width).enumerated() {
    // The name is strong, as far as it is in the first line.
    if index == 0, part.hasPrefix(name) {
      out += "\(style.paint(name, .strong))\(part.dropFirst(name.count))\n".utf8
    } else {
      out += "\(part)\n".utf8
    }
  }
  let margin = 12
  for (label, value, ink) in lines {
    out.append(contentsOf: repeatElement(UInt8(ascii: " "), count: margin - label.utf8.count))
    out += "\(label): ".utf8
    for (index, part) in wrap(style.written(value), width: style.width.map { max(20, $0 - margin - 2) }).enumerated() {
      if index > 0 { out.append(contentsOf: repeatElement(UInt8(ascii: " "), count: margin + 2)) }
      out += (style.paint(part, ink) + "\n").utf8
    }
  }
  return out
}

/// `2026-03-01 12:00:00 UTC`.
private func clock(_ time: WallTime) -> String {
  let text = time.rfc3339
  return "\(text.prefix(10)) \(text.dropFirst(11).prefix(8)) UTC"
}

/// The list of `plan`.
package func renderPlan(_ plan: Plan, fromStart: Bool, deaths: [PlanDeath] = [], style: Style) -> [UInt8] {
  var out: [UInt8] = []
  let head =
    "\(printable(plan.name)), if it kept dying, "
    + (deaths.isEmpty ? "" : deaths.map(\.text).joined(separator: ", then ") + ", ")
    + (fromStart ? "from zero" : "from its present state") + ", no other service in its way:"
  for part in wrap(head, width: style.width) { out += (style.paint(part, .strong) + "\n").utf8 }
  let rows = plan.entries.map { entry -> [Cell] in
    let from = exactTime(milliseconds: entry.earliest.milliseconds)
    let to = exactTime(milliseconds: entry.latest.milliseconds)
    return [
      Cell(from == to ? "+\(from)" : "+\(from) \(style.dash) \(to)"), Cell(entry.step.rawValue),
      entry.strikesAllowed > 0 ? Cell("\(entry.strikes) of \(entry.strikesAllowed)") : .empty,
      Cell(style.written(entry.text.isEmpty ? entry.action : entry.text)),
    ]
  }
  let titles = ["TIME", "STEP", "STRIKES", "WHAT"].map(Cell.init)
  var widths = titles.map(\.width)
  for row in rows { for index in row.indices.dropLast() { widths[index] = max(widths[index], row[index].width) } }
  // The time line matters most; the strikes, then the step, go where there is no room for the words.
  var shown = [0, 1, 2, 3]
  func room() -> Int? { style.width.map { $0 - shown.dropLast().reduce(0) { $0 + widths[$1] + 2 } } }
  for drop in [2, 1] where (room() ?? .max) < 24 { shown.removeAll { $0 == drop } }
  let space = room().map { max(12, $0) }

  func write(_ row: [Cell], head: Bool) {
    var margin = 0
    for index in shown.dropLast() {
      out += style.paint(row[index].text, head ? .strong : .plain).utf8
      out.append(contentsOf: repeatElement(UInt8(ascii: " "), count: widths[index] - row[index].width + 2))
      margin += widths[index] + 2
    }
    for (number, part) in wrap(row[3].text, width: space).enumerated() {
      if number > 0 { out.append(contentsOf: repeatElement(UInt8(ascii: " "), count: margin)) }
      out += (style.paint(part, head ? .strong : .plain) + "\n").utf8
    }
  }
  write(titles, head: true)
  for row in rows { write(row, head: false) }
  return out
}

/// The head of a drill.
package func renderDrillHead(_ name: String, _ drill: DrillRequest, style: Style) -> [UInt8] {
  let head =
    "\(printable(name)), a drill: it dies with \(drill.cause.text), at most \(counted(drill.crashes, "time")); "
    + (drill.withRepairs ? "its repairs are run" : "its repairs are not run")
  return Array(wrap(head, width: style.width).map { style.paint($0, .strong) + "\n" }.joined().utf8)
}

/// Lines of a drill, each as it comes: when it would be, on which step, and what.
package func renderDrill(_ entries: [PlanEntry], style: Style) -> [UInt8] {
  var out: [UInt8] = []
  for entry in entries {
    let time = "+" + exactTime(milliseconds: entry.earliest.milliseconds)
    let strikes = entry.strikesAllowed > 0 ? "\(entry.strikes) of \(entry.strikesAllowed)" : ""
    func pad(_ text: String, _ width: Int) -> String {
      text + String(repeating: " ", count: max(2, width - text.utf8.count))
    }
    // A narrow terminal has the time and the words.
    let isNarrow = (style.width ?? 80) < 60
    let lead = pad(time, 12) + (isNarrow ? "" : pad(entry.step.rawValue, 12) + pad(strikes, 8))
    let failed = entry.action == "repair-ended" && !entry.text.hasSuffix(" done")
    for (number, part) in wrap(
      printable(entry.text.isEmpty ? entry.action : entry.text),
      width: style.width.map {
        max(min(20, $0), $0 - lead.utf8.count)
      }
    ).enumerated() {
      out += (number == 0 ? lead : String(repeating: " ", count: lead.utf8.count)).utf8
      out += (style.paint(part, failed ? .bad : .plain) + "\n").utf8
    }
  }
  return out
}

/// What `version` shows below the versions: one guarantee a line.
package func renderGuarantees(_ version: DaemonVersion, style: Style) -> [UInt8] {
  let width = version.guarantees.map { columns(printable($0.name)) }.max() ?? 0
  var out: [UInt8] = []
  for guarantee in version.guarantees {
    let name = printable(guarantee.name)
    let margin = width + 4
    if let all = style.width, margin + 20 > all {
      for part in wrap("\(name): \(printable(guarantee.value))", width: all) { out += (part + "\n").utf8 }
      continue
    }
    out += "  \(name)".utf8
    out.append(contentsOf: repeatElement(UInt8(ascii: " "), count: width - columns(name) + 2))
    let parts = wrap(printable(guarantee.value), width: style.width.map { max(20, $0 - margin) })
    for (index, part) in parts.enumerated() {
      if index > 0 { out.append(contentsOf: repeatElement(UInt8(ascii: " "), count: margin)) }
      out += (part + "\n").utf8
    }
  }
  return out
}
