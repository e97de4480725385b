package import GuardianModel

// The time line of a plan: one row for each start, with bars for the time before it, the repairs, and the run, on one axis.

/// What is drawn, before it is known how wide: from the entries of a plan.
package struct PlanTimeLine: Hashable, Sendable {
  package struct Row: Hashable, Sendable {
    package var step: Step
    /// When its wait began, the repairs before it, its start and its death; milliseconds from the plan's beginning.
    package var from: Int64 = 0
    package var repairs: [Int64] = []
    package var start: Int64?
    package var end: Int64?
    /// It settled meanwhile.
    package var settled: Int64?
    /// What its death came to, as `strike 3 of 7`, or what became of it.
    package var note = ""
  }
  package private(set) var rows: [Row] = []

  package init(_ entries: [PlanEntry]) {
    var row: Row?
    var last: Int64 = 0
    func begin(_ step: Step) -> Row { Row(step: step, from: last) }
    for entry in entries {
      let at = max(last, entry.earliest.milliseconds)
      switch entry.action {
      case "start", "trial", "plugin-retry", "probe":
        if let row, row.start != nil { rows.append(row) }
        var next = row?.start == nil ? row ?? begin(entry.step) : begin(entry.step)
        next.step = entry.step
        next.start = at
        if entry.action != "start" { next.note = entry.action == "plugin-retry" ? "plugin on again" : entry.action }
        row = next
      case "repair":
        if let done = row, done.start != nil {
          rows.append(done)
          row = nil
        }
        var next = row ?? begin(entry.step)
        next.repairs.append(at)
        row = next
      case "settle": row?.settled = at
      case "death":
        row?.end = at
        let words =
          entry.text.hasPrefix("dies: ") ? String(entry.text.dropFirst(6)) : entry.text
        let note = String(words.prefix { $0 != ";" && $0 != "," })
        if let kind = row?.note { row?.note = kind.isEmpty ? note : kind + ": " + note }
        last = at
      case "trial-failed", "quarantine", "finish", "plugin-retry-failed":
        // A row of its own only where no start is there to carry it.
        if entry.action == "quarantine", row?.start != nil {
          row?.note += "; then quarantine"
        } else if entry.action == "finish" {
          let before = row?.note ?? ""
          row?.note = before.isEmpty ? "finished" : before + "; finished"
        }
      default: break
      }
    }
    if let row { rows.append(row) }
  }

  var length: Int64 { rows.reduce(1) { max($0, $1.end ?? $1.start ?? $1.from) } }

  /// The shortest time that is more than nothing.
  fileprivate var grain: Int64 {
    var shortest = length
    for row in rows {
      for part in [(row.start ?? row.from) - row.from, (row.end ?? row.start ?? 0) - (row.start ?? 0)] where part > 0 {
        shortest = min(shortest, part)
      }
    }
    return max(1, shortest)
  }
}

/// From milliseconds to columns: even where that shows all, else ever closer together.
private struct Axis {
  let length: Int64, columns: Int, grain: Int64
  let isEven: Bool

  init(_ line: PlanTimeLine, columns: Int) {
    length = line.length
    grain = line.grain
    self.columns = columns
    // Two columns for the shortest part.
    isEven = line.length / line.grain <= Int64(columns / 2)
  }

  /// 0 …< columns
  func place(_ time: Int64) -> Int {
    let part: Double
    if isEven {
      part = Double(time) / Double(length)
    } else {
      part = Self.logarithm(1 + Double(time) / Double(grain)) / Self.logarithm(1 + Double(length) / Double(grain))
    }
    return min(columns - 1, max(0, Int((part * Double(columns - 1)).rounded())))
  }

  /// To base 2, straight between its powers: it only has to rise, and be the same everywhere.
  private static func logarithm(_ value: Double) -> Double { Double(value.exponent) + (value.significand - 1) }

  /// Times that people count in, as many as have room.
  func ticks() -> [(place: Int, text: String)] {
    var times: [Int64] = []
    for unit in [1, 1000, 60_000, 3_600_000, 86_400_000] as [Int64] {
      let counts: [Int64] =
        switch unit {
        case 1: [100, 200, 500]
        case 1000, 60_000: [1, 2, 5, 10, 20, 30]
        case 3_600_000: [1, 2, 6, 12]
        default: [1, 2, 5, 10, 20, 50, 100, 200]
        }
      times += counts.map { $0 * unit }
    }
    var ticks: [(place: Int, text: String)] = [(0, "0")]
    var used = 1
    for time in times where time <= length {
      let text = shortTime(milliseconds: time)
      let place = place(time)
      guard place >= used + 2, place + text.utf8.count <= columns else { continue }
      ticks.append((place, text))
      used = place + text.utf8.count
    }
    return ticks
  }
}

/// - Parameter style: Without a width it is drawn for 80 columns.
package func renderTimeLine(_ plan: Plan, style: Style) -> [UInt8] {
  let line = PlanTimeLine(plan.entries)
  guard line.rows.contains(where: { $0.start != nil }) else { return [] }
  let width = style.width ?? 80
  let (labels, gap) = (10, 1)
  // Words only where the bars keep the larger part.
  let notes = width >= 70 ? min(34, width / 3) : 0
  let room = max(8, min(120, width - labels - gap - (notes > 0 ? notes + 2 : 0)))
  let axis = Axis(line, columns: room)
  let signs: (wait: String, run: String, repair: String, death: String, tick: String, rule: String) =
    style.unicode ? ("·", "█", "▒", "✗", "┴", "─") : (".", "#", "R", "x", "+", "-")
  let blank = String(repeating: " ", count: labels + gap)
  var out = ""

  var head = "", rule = ""
  let ticks = axis.ticks()
  for (place, text) in ticks {
    head += String(repeating: " ", count: max(0, place - head.utf8.count)) + text
  }
  for column in 0..<room { rule += ticks.contains { $0.place == column } ? signs.tick : signs.rule }
  out += blank + style.paint(head, .faint) + "\n" + blank + style.paint(rule, .faint) + "\n"

  var named: Step?
  for row in line.rows {
    var cells = [(text: String, ink: Style.Ink)](repeating: (" ", .plain), count: room)
    let from = axis.place(row.from)
    let start = row.start.map(axis.place)
    if let start {
      for column in from..<max(from, start) { cells[column] = (signs.wait, .faint) }
      let end = row.end.map(axis.place) ?? start
      for column in start...max(start, end) {
        cells[column] = (signs.run, row.settled.map { column >= axis.place($0) } ?? false ? .good : .plain)
      }
      if row.end != nil { cells[end] = (signs.death, .bad) }
    }
    for time in row.repairs {
      // It takes no time here, and has the column before the start.
      let place = max(0, min(axis.place(time), (start ?? room) - 1))
      cells[place] = (signs.repair, .doubtful)
    }
    let label = row.step == named ? "" : row.step.rawValue
    named = row.step
    var text = style.paint(label, .strong) + String(repeating: " ", count: labels + gap - label.utf8.count)
    var last = cells.lastIndex { $0.text != " " } ?? 0
    if notes > 0 { last = room - 1 }
    for cell in cells[...last] { text += style.paint(cell.text, cell.ink == .plain ? .plain : cell.ink) }
    if notes > 0, !row.note.isEmpty { text += "  " + Cell(row.note).cut(to: notes, mark: style.mark).text }
    while text.hasSuffix(" ") { text.removeLast() }
    out += text + "\n"
  }
  var legend = [(signs.wait, "wait"), (signs.run, "run"), (signs.death, "death")]
  if line.rows.contains(where: { !$0.repairs.isEmpty }) { legend.insert((signs.repair, "repair"), at: 1) }
  let words = legend.map { $0.0 + " " + $0.1 }.joined(separator: "  ")
  let scale = axis.isEven ? "" : (style.unicode ? "  (later times closer together)" : "  (later times closer together)")
  for part in wrap(words + scale, width: style.width.map { max(20, $0 - labels - gap) }) {
    out += blank + style.paint(part, .faint) + "\n"
  }
  return Array(out.utf8)
}
