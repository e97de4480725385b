import GuardianControl
import GuardianModel
import Testing

let eventOfZoo = EventRecord(
  id: EventID(0x650_a1b2_c3d4), at: WallTime(nanoseconds: 1_790_000_000_250_000_000), service: "web", name: "strike",
  text: "strike 1 of 3 on \u{1b}[31mstep restart", details: Array(#"{"step":"restart","strikes":1}"#.utf8))

@Suite struct `events for people and programs` {
  @Test func `are lines within any width, and nothing in them reaches a terminal raw`() {
    for width in [20, 40, 80, nil] {
      var view = EventView(style: Style(width: width))
      let text = view.render([eventOfZoo, eventOfZoo]).text
      let lines = text.split(separator: "\n")
      #expect(lines.count == 3)
      #expect(lines[0] == "2026-09-21 UTC")
      #expect(lines[1].hasPrefix("14:13:20.250  web       strike"), "\(lines[1])")
      #expect(!text.utf8.contains(0x1b))
    }
  }

  @Test func `are one JSON object on a line`() throws {
    #expect(
      eventLine(eventOfZoo).text
        == #"{"schema":1,"id":"00000650a1b2c3d4","at":"2026-09-21T14:13:20.250Z","service":"web","name":"strike","#
        + #""text":"strike 1 of 3 on \u001b[31mstep restart","details":{"step":"restart","strikes":1}}"# + "\n")
    #expect(missedLine(3).text == #"{"schema":1,"missed":3}"# + "\n")
  }

  @Test func `survive the way from guardian to client`() {
    var bytes: [UInt8] = []
    Reply.events([eventOfZoo], missed: 4, continues: false, into: &bytes)
    #expect(received(bytes, to: .events(EventsRequest())) == .events([eventOfZoo], missed: 4))
  }
}

@Suite struct `what 'since' is` {
  @Test func `is how long ago, a time in UTC, or the id of an event`() {
    #expect(parseSince("1min30s") == .ago(milliseconds: 90_000))
    #expect(parseSince("00000650a1b2c3d4") == .event(EventID(0x650_a1b2_c3d4)))
    let noon = WallTime(nanoseconds: 1_772_366_400_000_000_000)
    let midnight = WallTime(nanoseconds: 1_772_323_200_000_000_000)
    #expect(parseSince("2026-03-01") == .time(midnight))
    for text in ["2026-03-01T12:00Z", "2026-03-01T12:00:00Z", "2026-03-01T12:00:00.000Z"] {
      #expect(parseSince(text) == .time(noon), "\(text)")
    }
  }
  @Test(arguments: ["", "yesterday", "2026", "2026-03-01T12:00", "2026-13-01", "2026-03-01T12Z", "5", "2026-03-0é"])
  func `is nothing else`(_ text: String) { #expect(parseSince(text) == nil) }
}

@Suite struct `guardianctl events` {
  let scratch = Scratch()
  private func ask(_ line: String) -> Finished {
    let server = zooGuardian(scratch)
    defer { server.stop() }
    return guardianctl(line.split(separator: " ").map(String.init) + ["--runtime", scratch.path], in: scratch)
  }

  @Test func `prints a table, or one JSON object`() {
    let table = ask("events web")
    #expect(table.status == 0 && table.output.hasPrefix("2026-09-21 UTC\n14:13:20.250  web "), "\(table)")
    let json = ask("events --json --service web --since 1h")
    #expect(json.status == 0, "\(json)")
    #expect(json.output.hasPrefix(#"{"schema":1,"events":[{"id":"00000650a1b2c3d4","at""#))
    #expect(json.output.hasSuffix("}}]}\n"))
  }

  @Test func `prints JSON Lines while it follows, and says what was missed`() {
    let lines = ask("events --follow --json").output.split(separator: "\n")
    #expect(lines.count == 3, "\(lines)")
    #expect(lines.map { $0.hasPrefix(#"{"schema":1,""#) && $0.hasSuffix("}") } == [true, true, true])
    #expect(lines.dropFirst().first == #"{"schema":1,"missed":7}"#)
    #expect(ask("events --follow").output.contains("\n7 events were missed"))
  }

  @Test func `fails as all verbs do`() {
    let unknown = ask("events nosuch --json")
    #expect(unknown.status == 4 && unknown.output.contains(#""error":{"name":"no-such-service""#), "\(unknown)")
    #expect(ask("events --since yesterday").status == 64)
    #expect(ask("status --follow").status == 64)
  }
}
