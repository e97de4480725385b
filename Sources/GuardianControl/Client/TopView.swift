import GuardianModel

extension TopModel {
  /// The whole screen: at most `height` lines of at most `width` columns, safe for a terminal but for the paint.
  package func frame(_ style: Style) -> [String] {
    var style = style
    style.width = width
    var lines = head(style)
    let last = foot(style)
    let room = max(0, height - lines.count - 1)
    switch mode {
    case .detail(let offset): lines += detail(style, offset, room)
    case .help: lines += Self.help(width, style).prefix(room)
    case .list, .filter, .confirm, .holdTime: lines += table(style, room)
    }
    while lines.count < height - 1 { lines.append("") }
    return Array(lines.prefix(height - 1)) + [last]
  }

  private func line(_ text: String, _ ink: Style.Ink, _ style: Style) -> String {
    style.paint(Cell(text).cut(to: width, mark: style.mark).text, ink)
  }

  private func head(_ style: Style) -> [String] {
    if height < 3 { return [] }
    var first = line(summary.line.isEmpty ? "guardian" : summary.line, .strong, style)
    var second: String
    if let away {
      second = line("guardian is away: \(away)", .bad, style)
      first = line(summary.line.isEmpty ? "guardian" : summary.line, .faint, style)
    } else if let warning = summary.warnings.first {
      second = line(warning, .doubtful, style)
    } else if summary.state != "durable", !summary.state.isEmpty {
      second = line("state: \(summary.state)", .doubtful, style)
    } else if let diagnostic = summary.diagnostics.first {
      second = line(diagnostic.description, diagnostic.severity == .error ? .bad : .doubtful, style)
    } else {
      var text = "by \(sort.word)" + (isReversed ? ", reversed" : "")
      if rows.count < services.count { text += ", \(rows.count) of \(services.count) shown" }
      second = line(text, .faint, style)
    }
    if !filter.isEmpty || mode == .filter {
      second = line("filter: \(filter)" + (mode == .filter ? "_" : "  (Esc clears it)"), .plain, style)
    }
    return [first, second]
  }

  private func foot(_ style: Style) -> String {
    switch mode {
    case .confirm(let order): return line("\(order.verb) \(order.name)? y, or any other key for no", .strong, style)
    case .holdTime(let name, let text):
      return line("hold \(name) for how long? (30min; 0s ends a hold): \(text)_", .strong, style)
    case .filter: return line("part of a name or of a state; Enter keeps it, Esc clears it", .faint, style)
    case .list, .detail, .help: break
    }
    if let message { return line(message.text, message.isGood ? .good : .bad, style) }
    switch mode {
    case .detail: return line("Esc back  s start  t stop  r restart  l release  e reset  h hold", .faint, style)
    case .help: return line("any key goes back", .faint, style)
    case .list, .filter, .confirm, .holdTime:
      return line(
        "q quit  ? help  / filter  Enter more  s start  t stop  r restart  l release  e reset  h hold", .faint, style)
    }
  }

  private func detail(_ style: Style, _ offset: Int, _ room: Int) -> [String] {
    guard let service = selected else { return [] }
    var plain = style
    plain.colour = false
    let text = String(decoding: renderDetail(aged(service), now: nil, style: plain), as: UTF8.self)
    let all = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map {
      Cell(String($0)).cut(to: width, mark: style.mark).text
    }
    return Array(all.dropFirst(min(offset, max(0, all.count - room))).prefix(room))
  }

  private static func help(_ width: Int, _ style: Style) -> [String] {
    let keys = [
      ("up down j k", "move; PgUp PgDn Home End g G: farther"), ("Enter", "all that is known of the service"),
      ("/", "show what has this in its name or state; Esc: all"),
      ("S N K X C M U", "sort by state, name, strikes, next action, CPU, memory, uptime; again: reversed"),
      ("R", "reverse"), ("s", "start"), ("t", "stop"), ("r", "restart"), ("l", "release from quarantine"),
      ("e", "reset strikes and step"), ("h", "hold for a time; 0s ends it"), ("q Ctrl-C", "quit"),
    ]
    return keys.map { keys, what in
      Cell("  " + keys + String(repeating: " ", count: max(2, 16 - keys.count)) + what).cut(to: width, mark: style.mark)
        .text
    }
  }

  // MARK: The table

  private enum Column: CaseIterable {
    case name, state, step, strikes, next, cpu, memory, uptime, why
    var title: String {
      switch self {
      case .name: "NAME"
      case .state: "STATE"
      case .step: "STEP"
      case .strikes: "STRIKES"
      case .next: "NEXT"
      case .cpu: "CPU"
      case .memory: "MEM"
      case .uptime: "UPTIME"
      case .why: "WHY"
      }
    }
    /// The more columns there are, the farther down one of these is looked for; zero: what is left.
    static let byWorth: [(column: Column, width: Int)] = [
      (.name, 12), (.state, 13), (.next, 16), (.strikes, 7), (.cpu, 6), (.memory, 6), (.step, 10), (.uptime, 8),
      (.why, 0),
    ]
    var isNumber: Bool { self == .cpu || self == .memory }
  }

  private func layout() -> [(column: Column, width: Int)] {
    let longest = services.reduce(4) { max($0, $1.name.utf8.count) }
    let longestNext = width < 140 ? 0 : services.reduce(16) { max($0, cell(.next, aged($1)).cell.width) }
    var left = width - 2
    var widths: [(column: Column, width: Int)] = []
    for (column, usual) in Column.byWorth {
      let gap = widths.isEmpty ? 0 : 2
      var wanted = column == .name ? min(longest, max(usual, width / 4)) : usual
      // Where there is room, what comes next and when is told in full.
      if column == .next, width >= 140 { wanted = min(longestNext, max(usual, width / 5)) }
      if column == .why { wanted = max(12, left - gap) }
      if column == .name || column == .state { wanted = min(wanted, max(1, left - gap)) }
      guard wanted + gap <= left else { continue }
      widths.append((column, wanted))
      left -= wanted + gap
    }
    return Column.allCases.compactMap { column in widths.first { $0.column == column } }
  }

  private func table(_ style: Style, _ room: Int) -> [String] {
    guard room > 0 else { return [] }
    let columns = layout()
    func row(_ cells: [(cell: Cell, ink: Style.Ink)], mark: String, plain: Bool) -> String {
      var text = mark, gap = 0
      for (index, entry) in cells.enumerated() {
        let width = columns[index].width
        let cell = entry.cell.cut(to: width, mark: style.mark)
        let pad = String(repeating: " ", count: width - cell.width)
        text += String(repeating: " ", count: gap)
        let painted = plain ? cell.text : style.paint(cell.text, entry.ink)
        let isLast = index == cells.count - 1
        text += columns[index].column.isNumber ? pad + painted : painted + (isLast && !plain ? "" : pad)
        gap = 2
      }
      return text
    }
    var lines = [
      style.paint(row(columns.map { (Cell($0.column.title), .plain) }, mark: "  ", plain: true), .strong)
    ]
    let current = cursorRow
    for index in rows.indices.dropFirst(offset).prefix(room - 1) {
      let service = aged(services[rows[index]])
      let cells = columns.map { cell($0.column, service) }
      if index == current {
        let text = row(cells, mark: "> ", plain: true)
        lines.append(style.colour ? "\u{1b}[7m\(text)\u{1b}[0m" : text)
      } else {
        lines.append(row(cells, mark: "  ", plain: false))
      }
    }
    if services.isEmpty, away == nil { lines.append(line("  no services", .faint, style)) }
    return lines
  }

  private func cell(_ column: Column, _ s: ServiceStatus) -> (cell: Cell, ink: Style.Ink) {
    func plain(_ text: String) -> (cell: Cell, ink: Style.Ink) {
      text.isEmpty ? (.empty, .faint) : (Cell(text), .plain)
    }
    switch column {
    case .name: return plain(s.name)
    case .state:
      let state = s.state
      return (Cell(state.word + (s.held ? ", held" : "") + (s.observe ? ", observed" : "")), state.ink)
    case .step: return plain(s.step == .restart && s.strikes == 0 ? "" : s.step.rawValue)
    case .strikes:
      return plain(s.strikes == 0 ? "" : "\(s.strikes)" + (s.strikesAllowed > 0 ? " of \(s.strikesAllowed)" : ""))
    case .next: return plain(s.next.map { "\($0.action) in \(shortTime(milliseconds: $0.inMilliseconds))" } ?? "")
    case .cpu: return plain(usage[s.name]?.cpu.map(Self.percent) ?? "")
    case .memory: return plain(usage[s.name]?.memory.map(Self.size) ?? "")
    case .uptime: return plain(s.uptimeMilliseconds.map { shortTime(milliseconds: $0) } ?? "")
    case .why: return plain(s.why)
    }
  }

  /// `0.3%`, `27%`, `340%`: of one processor.
  static func percent(_ thousandths: Int) -> String {
    thousandths < 100 ? "\(thousandths / 10).\(thousandths % 10)%" : "\((thousandths + 5) / 10)%"
  }

  /// `512K`, `3.4M`, `27M`, `1.2G`.
  static func size(_ bytes: Int64) -> String {
    var value = max(0, bytes) >> 10, unit = 0
    var tenths = max(0, bytes) % 1024 * 10 / 1024
    while value >= 1024, unit < 3 {
      tenths = value % 1024 * 10 / 1024
      value >>= 10
      unit += 1
    }
    let letter = ["K", "M", "G", "T"][unit]
    return value < 10 && unit > 0 ? "\(value).\(tenths)\(letter)" : "\(value)\(letter)"
  }
}
