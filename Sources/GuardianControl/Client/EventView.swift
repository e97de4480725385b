import GuardianModel

/// Events for people, one line each, oldest first. The service's name is as wide as the widest so far, so that what
/// follows stays in its column.
package struct EventView {
  private let style: Style
  private var nameWidth = 8
  private var day = ""

  package init(style: Style) { self.style = style }

  package mutating func render(_ events: [EventRecord]) -> [UInt8] {
    // Time, gaps, and some words of what happened.
    let most = style.width.map { min(32, max(8, $0 - 12 - 2 - 2 - 24)) } ?? 32
    for event in events { nameWidth = max(nameWidth, min(most, columns(printable(event.service)))) }
    var out: [UInt8] = []
    for event in events {
      let at = event.at.rfc3339
      let date = String(at.prefix(10))
      if date != day {
        day = date
        out += (style.paint(date + " UTC", .strong) + "\n").utf8
      }
      var name = Cell(event.service)
      if style.width != nil { name = name.cut(to: nameWidth, mark: style.mark) }
      let pad = String(repeating: " ", count: max(0, nameWidth - name.width))
      let time = String(at.dropFirst(11).prefix(12))
      var text = Cell(style.written(event.text))
      if let width = style.width { text = text.cut(to: max(8, width - 12 - 2 - nameWidth - 2), mark: style.mark) }
      out += "\(style.paint(time, .faint))  \(name.text)\(pad)  \(style.paint(text.text, ink(event.name)))\n".utf8
    }
    return out
  }

  package func renderMissed(_ count: Int) -> [UInt8] {
    let text = "\(count) events were missed: they came faster than they were read"
    return Array(wrap(text, width: style.width).map { style.paint($0, .bad) + "\n" }.joined().utf8)
  }

  private func ink(_ name: String) -> Style.Ink {
    switch EventName(rawValue: name) {
    case .quarantined, .internalError, .stuck, .commonCause, .switchBroken: .bad
    case .ended, .strike, .lateDeath, .escalated, .trialFailed, .pluginsOff, .pluginRetryFailed, .pluginsUnconfirmed,
      .mitigation, .searchBegan,
      .searchSuggested, .searchEnded, .goodCopyUsed, .waiting, .observed, .volatile, .reloadFailed, .notCounted,
      .checkFailing,
      .switchInForce, .stepSwitchedOff:
      .doubtful
    case .settled, .released: .good
    case nil, .started, .ready, .checkPassing, .deescalated, .backingOff, .repairStarted, .repairEnded, .beforeStart,
      .beforeStartEnded, .pluginsOn, .held, .holdEnded, .reset, .requested, .stopped, .finished, .waitingFor,
      .standingDown, .resumed, .commonCauseEnded, .probing, .probed, .pluginRestart, .pluginsChanged,
      .reloading, .reloaded, .leaving, .watchdogSet, .mainMoved, .switchOver:
      .plain
    }
  }
}

/// One event as one line of JSON, for `--follow --json`: the members of an event, behind `schema`.
package func eventLine(_ event: EventRecord) -> [UInt8] {
  var json = JSONWriter()
  json.beginObject()
  json.key("schema")
  json.integer(1)
  var inner = JSONWriter()
  encode(event, into: &inner)
  json.bytes += [UInt8(ascii: ",")] + inner.bytes.dropFirst()
  return json.bytes + [UInt8(ascii: "\n")]
}

/// What a line of `--follow --json` says instead of an event where some were left out.
package func missedLine(_ count: Int) -> [UInt8] {
  Array("{\"schema\":1,\"missed\":\(count)}\n".utf8)
}
