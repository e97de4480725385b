package import GuardianModel

/// `status --watch` on a terminal: the head and the table, cut to the screen.
///
/// - Parameter closely: Few were asked for by name, and are shown in full.
package func watchFrame(
  _ summary: DaemonSummary, _ services: [ServiceStatus], away: String?, closely: Bool, now: WallTime, height: Int,
  style: Style
) -> [String] {
  var bytes: [UInt8] = []
  if closely {
    for (index, service) in services.enumerated() {
      if index > 0 { bytes.append(UInt8(ascii: "\n")) }
      bytes += renderDetail(service, now: now, style: style)
    }
  } else {
    bytes += renderHead(summary, style: style) + renderTable(services, style: style)
  }
  var lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false).dropLast()
    .map(String.init)
  let width = style.width ?? 80
  let last =
    away.map { style.paint(Cell("guardian is away: \($0)").cut(to: width, mark: style.mark).text, .bad) }
    ?? style.paint(Cell("Ctrl-C ends it").cut(to: width, mark: style.mark).text, .faint)
  let room = max(1, height - 1)
  if lines.count > room {
    let hidden = lines.count - room + 1
    lines =
      Array(lines.prefix(room - 1)) + [
        style.paint(
          Cell("and \(counted(hidden, "more line")); see 'guardianctl top'").cut(to: width, mark: style.mark).text,
          .faint)
      ]
  }
  while lines.count < room { lines.append("") }
  return lines + [last]
}

/// `status --watch` in a pipe: one line for whatever has changed.
package struct WatchLines: Sendable {
  private var shown: [String: String] = [:]
  private let style: Style
  package init(style: Style) { self.style = style }

  /// - Parameter at: Nil: no time, as for the first look.
  package mutating func render(_ services: [ServiceStatus], missing: [String], at: WallTime?) -> [UInt8] {
    var out: [UInt8] = []
    func write(_ name: String, _ text: String) {
      let time = at.map { String($0.rfc3339.dropFirst(11).prefix(8)) + "  " } ?? ""
      out += "\(time)\(printable(name)): \(text)\n".utf8
    }
    for service in services {
      let text = Self.line(service)
      if shown.updateValue(text, forKey: service.name) != text { write(service.name, text) }
    }
    for name in missing where shown.removeValue(forKey: name) != nil { write(name, "not defined any more") }
    return out
  }

  /// What is so until something happens; no time that runs.
  private static func line(_ s: ServiceStatus) -> String {
    var parts = [s.state.word + (s.held ? ", held" : "")]
    if s.step != .restart || s.strikes > 0 { parts.append("step \(s.step.rawValue)") }
    if s.strikes > 0 { parts.append("strike \(s.strikes)" + (s.strikesAllowed > 0 ? " of \(s.strikesAllowed)" : "")) }
    if let next = s.next { parts.append("\(next.action) at \(next.at.rfc3339.dropFirst(11).prefix(8))") }
    let why = s.why
    return parts.joined(separator: ", ") + (why.isEmpty ? "" : ": " + printable(why))
  }
}

/// `status --watch --json`: one object a line, with those that have changed.
package struct WatchObjects: Sendable {
  private var shown: [String: ServiceStatus] = [:]
  package init() {}

  /// Nothing, where nothing has changed.
  package mutating func render(_ services: [ServiceStatus], missing: [String], at: WallTime, first: Bool) -> [UInt8] {
    let changed = services.filter { shown.updateValue($0.timeless, forKey: $0.name) != $0.timeless }
    let gone = missing.filter { shown.removeValue(forKey: $0) != nil }
    if changed.isEmpty, gone.isEmpty, !first { return [] }
    var json = JSONWriter()
    json.beginObject()
    json.key("schema")
    json.integer(1)
    json.key("at")
    json.time(at)
    json.key("services")
    json.beginArray()
    for service in changed { encode(service, brief: false, into: &json) }
    json.endArray()
    json.key("removed")
    json.strings(gone)
    json.endObject()
    json.bytes.append(UInt8(ascii: "\n"))
    return json.bytes
  }
}
