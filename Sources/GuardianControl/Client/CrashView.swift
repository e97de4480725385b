package import GuardianModel

/// `crashes list` for people, newest first.
package func renderCrashes(_ crashes: [CrashSummary], now: WallTime, style: Style) -> [UInt8] {
  if crashes.isEmpty { return Array("no crashes on record\n".utf8) }
  let titles = ["ID", "SERVICE", "WHEN", "TIMES", "WHAT"].map(Cell.init)
  let rows = crashes.map { crash -> [Cell] in
    let ago = now.nanoseconds.subtractingSaturating(crash.at.nanoseconds) / 1_000_000
    let finer = crash.crashClass == crash.cause ? crash.crashClass : "\(crash.text), class \(crash.crashClass)"
    return [
      Cell(String(crash.id.description.prefix(8))), Cell(crash.service),
      Cell(ago < 0 ? crash.at.rfc3339 : "\(shortTime(milliseconds: ago)) ago"), Cell("\(crash.count)"), Cell(finer),
    ]
  }
  var widths = titles.map(\.width)
  for row in rows { for index in row.indices { widths[index] = max(widths[index], row[index].width) } }
  var shown = Array(widths.indices)
  if let width = style.width {
    func left() -> Int { width - shown.dropLast().reduce(0) { $0 + widths[$1] + 2 } }
    // A long name is cut first; on a narrow terminal how often, then how long ago, is not said.
    if left() < 16 { widths[1] = max(min(8, widths[1]), widths[1] - (16 - left())) }
    for drop in [3, 2] where left() < 12 { shown.removeAll { $0 == drop } }
    widths[4] = max(1, left())
  }
  var out: [UInt8] = []
  for (index, row) in ([titles] + rows).enumerated() {
    var line = ""
    for column in shown {
      let cell = style.width == nil ? row[column] : row[column].cut(to: widths[column], mark: style.mark)
      line += cell.text
      if column < row.count - 1 { line += String(repeating: " ", count: widths[column] - cell.width + 2) }
    }
    out += (style.paint(line, index == 0 ? .strong : .plain) + "\n").utf8
  }
  return out
}

/// `crashes show`: the document for people. Nil: it is no report.
package func renderCrash(_ document: [UInt8], style: Style) -> [UInt8]? {
  let rendered = document.withUnsafeBufferPointer { bytes in
    withJSON(bytes) { root -> [UInt8]? in
      guard root.isObject, let service = root["service"]?.string else { return nil }
      return render(root, service, style)
    }
  }
  if case .success(let bytes?) = rendered { return bytes }
  return nil
}

private func render(_ root: JSONValue, _ service: String, _ style: Style) -> [UInt8] {
  var out: [UInt8] = []
  func text(_ key: StaticString) -> String { root[key]?.string ?? "" }
  func add(_ label: String, _ value: String, _ ink: Style.Ink = .plain) {
    if value.isEmpty { return }
    let margin = 12
    out.append(contentsOf: repeatElement(UInt8(ascii: " "), count: max(0, margin - label.utf8.count)))
    out += "\(label): ".utf8
    for (index, part) in wrap(printable(value), width: style.width.map { max(20, $0 - margin - 2) }).enumerated() {
      if index > 0 { out.append(contentsOf: repeatElement(UInt8(ascii: " "), count: margin + 2)) }
      out += (style.paint(part, ink) + "\n").utf8
    }
  }
  func list(_ value: JSONValue?) -> [String] { value?.strings ?? [] }

  for part in wrap(printable("\(service): \(text("text"))"), width: style.width) {
    out += (style.paint(part, .strong) + "\n").utf8
  }
  /// Lines that are shown as they are, and go on below themselves where they are too long.
  func quote(_ line: String) {
    for part in wrap(printable(line), width: style.width.map { max(20, $0 - 2) }) { out += "  \(part)\n".utf8 }
  }
  add("Id", text("id"))
  add("When", text("at"))
  let uptime = root["uptime_ms"]?.integer ?? 0
  let life = root["settled"]?.bool ?? false ? "settled" : root["ready"]?.bool ?? false ? "ready" : "not ready"
  add("After", "\(shortTime(milliseconds: uptime)), \(life), \(text("kind")) start")
  add("Cause", "\(text("cause")), class \(text("class"))")
  let after = text("step_after")
  let strikes = root["strikes"]?.integer ?? 0, allowed = root["strikes_allowed"]?.integer ?? 0
  add(
    "Step",
    (after == text("step") ? after : "\(text("step")) \(style.arrow) \(after)")
      + (allowed > 0 ? ", strike \(strikes) of \(allowed)" : ""))
  add("Why", text("reason"))
  let strength = root["signature_strong"]?.bool ?? false ? "" : " (weak: no frames speak for it)"
  add("Signature", text("signature") + strength)
  add("Plugins off", list(root["disabled_plugins"]).joined(separator: ", "), .doubtful)
  for change in root["changes"].map({ Array($0.elements) }) ?? [] {
    let at = change["at"]?.string.map { ", \($0)" } ?? ""
    add("Changed", (change["what"]?.string ?? "") + at, .doubtful)
  }
  if let usage = root["usage"], usage.isObject {
    func number(_ key: StaticString) -> Int64 { usage[key]?.integer ?? 0 }
    add(
      "Used",
      "\(number("user_ms")) ms of CPU, \(number("system_ms")) ms in the kernel"
        + (usage["peak_memory"]?.integer.map { ", at most \($0 >> 10) KiB of memory" } ?? ""))
  }
  if let memory = root["memory"], memory.isObject {
    let peak = memory["peak"]?.integer.map { "peak \($0 >> 10) KiB" } ?? ""
    add(
      "Memory",
      ([peak] + list(memory["events"]) + [memory["pressure"]?.string ?? ""]).filter { !$0.isEmpty }.joined(
        separator: "; "))
  }
  if let count = root["descriptors"]?.integer { add("Descriptors", "\(count)") }
  add("Left over", list(root["leftovers"]).joined(separator: ", "))
  add("Environment", list(root["environment"]).joined(separator: " "))
  add("Repairs", text("repairs"))
  let backtrace = root["backtrace"]
  add("Says", backtrace?["says"]?.string ?? "")
  add("Address", backtrace?["address"]?.string ?? "")
  let source = backtrace?["source"]?.string ?? ""
  add(
    "Backtrace",
    [source.isEmpty ? "" : "by \(source)", backtrace?["missing"]?.string ?? ""].filter { !$0.isEmpty }.joined(
      separator: "; "))
  var frames: [JSONValue] = []
  if let list = backtrace?["frames"] { frames = Array(list.elements) }
  for (index, frame) in frames.enumerated() {
    let name = frame["function"]?.string ?? ""
    let place = frame["place"]?.string.map { " at \($0)" } ?? ""
    let what = name.isEmpty ? frame["offset"]?.string ?? "?" : name
    quote("\(index)  \(what) in \(frame["module"]?.string ?? "?")\(place)")
  }
  let output = root["output"]
  let lines = list(output?["lines"])
  let cut = output?["truncated"]?.bool ?? false ? ", and more before" : ""
  add(
    "Output", lines.isEmpty ? output?["missing"]?.string ?? "none" : "the last \(counted(lines.count, "line"))\(cut)")
  for line in lines { quote(line) }
  return out
}
