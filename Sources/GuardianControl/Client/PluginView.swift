package import GuardianModel

/// `plugins NAME` for people.
package func renderPlugins(_ service: ServiceStatus, now: WallTime, style: Style) -> [UInt8] {
  if service.plugins.isEmpty {
    let text = "\(printable(service.name)) has no plugins"
    return Array(wrap(text, width: style.width).map { $0 + "\n" }.joined().utf8)
  }
  func until(_ plugin: PluginStatus) -> String {
    guard let until = plugin.until else { return "" }
    let left = until.nanoseconds.subtractingSaturating(now.nanoseconds) / 1_000_000
    return left <= 0 ? "next start" : "in \(shortTime(milliseconds: left))"
  }
  let titles = ["PLUGIN", "STATE", "BY", "UNTIL", "SUSPECT", "WHY"].map(Cell.init)
  let rows = service.plugins.map { plugin -> [Cell] in
    var why: [String] = []
    if plugin.pinned { why.append("pinned") }
    if plugin.files.count == 1, let file = plugin.files.first { why.append(file.description) }
    if plugin.files.count > 1, let file = plugin.files.first {
      why.append("\(file), and \(plugin.files.count - 1) more")
    }
    if !plugin.partner.isEmpty { why.append("only with \(plugin.partner)") }
    if plugin.off != (plugin.state == .off || plugin.state == .suspect) {
      why.append(plugin.off ? "off in this run" : "on in this run")
    }
    return [
      Cell(plugin.name), Cell(plugin.state.rawValue), Cell(plugin.by), Cell(until(plugin)),
      Cell(plugin.suspicion.map { "\(($0 + 5) / 10) %" } ?? ""), Cell(why.joined(separator: ", ")),
    ]
  }
  var widths = titles.map(\.width)
  for row in rows { for index in row.indices { widths[index] = max(widths[index], row[index].width) } }
  // What nobody has anything in is not shown, and a long name is cut rather than a column lost.
  let shown = widths.indices.filter { column in column < 2 || rows.contains { $0[column].width > 0 } }
  if let width = style.width {
    // The name first, then what is said in words.
    for (column, least) in [(0, 12), (5, 6), (0, 6)] {
      let over = shown.reduce(0) { $0 + widths[$1] + 2 } - 2 - width
      if over > 0 { widths[column] = max(min(least, widths[column]), widths[column] - over) }
    }
  }
  var out: [UInt8] = []
  for (index, row) in ([titles] + rows).enumerated() {
    var line = ""
    for column in shown {
      let cell = row[column].cut(to: widths[column], mark: style.mark)
      line += cell.text
      if column != shown.last { line += String(repeating: " ", count: widths[column] - cell.width + 2) }
    }
    while line.hasSuffix(" ") { line.removeLast() }
    // Where nothing can be narrowed any more.
    if let width = style.width { line = Cell(line).cut(to: width, mark: style.mark).text }
    let plugin = index == 0 ? nil : service.plugins[index - 1]
    let ink: Style.Ink = index == 0 ? .strong : plugin?.state == .on ? .plain : .doubtful
    out += (style.paint(line, ink) + "\n").utf8
  }
  return out
}
