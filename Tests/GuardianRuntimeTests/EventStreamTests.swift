import GuardianControl
import GuardianModel
import Testing

@testable import GuardianRuntime

@Suite struct `the stream of events` {
  private func name(_ text: String) throws -> ServiceName { try #require(ServiceName(text)) }
  private func event(_ service: ServiceName, _ number: Int) -> Occurrence {
    var event = Occurrence(service: service, at: WallTime(nanoseconds: 0), kind: .stopped)
    event.id = EventID(Int64(number))
    return event
  }
  /// What a reply of the stream holds: ids, or how many were missed.
  private func replies(_ bytes: [UInt8]) -> (ids: [Int64], missed: Int) {
    var ids: [Int64] = []
    var missed = 0
    for frame in bytes.split(separator: 0) {
      let reply = frame.withUnsafeBufferPointer { decodeReply($0, to: .events(EventsRequest(follow: true))) }
      guard case .success(let (body, continues)) = reply, continues, case .events(let events, let lost) = body else {
        Issue.record("no reply of a stream: \(String(decoding: frame, as: UTF8.self))")
        continue
      }
      ids += events.map(\.id.number)
      missed += lost
    }
    return (ids, missed)
  }
  private func reader(_ names: [ServiceName] = [], at stream: EventStream) -> EventReader {
    let reader = EventReader(names, follows: true, more: true, isOpen: true)
    #expect(reader.go(by: Rights(host: .view)))
    reader.stage = .live
    reader.position = stream.end
    return reader
  }

  @Test func `gives each reader what is new to it, of the services that it asked for`() throws {
    let web = try name("web"), db = try name("db")
    var stream = EventStream()
    stream.append(event(web, 1))
    let all = reader(at: stream), one = reader([db], at: stream)
    stream.append(event(web, 2))
    stream.append(event(db, 3))
    var output: [UInt8] = []
    stream.read(all, into: &output, until: 65_536)
    #expect(replies(output) == ([2, 3], 0))
    output = []
    stream.read(one, into: &output, until: 65_536)
    #expect(replies(output) == ([3], 0))
    stream.read(one, into: &output, until: 65_536)
    #expect(replies(output) == ([3], 0))
    #expect(all.query.after == EventID(3))
  }

  @Test func `does not repeat what the history has told`() throws {
    let web = try name("web")
    var stream = EventStream()
    let late = reader(at: stream)
    for number in 1...5 { stream.append(event(web, number)) }
    late.query.after = EventID(3)
    var output: [UInt8] = []
    stream.read(late, into: &output, until: 65_536)
    #expect(replies(output) == ([4, 5], 0))
  }

  @Test func `counts what a reader that does not read has missed, of its own services, and goes on`() throws {
    let web = try name("web"), db = try name("db")
    var stream = EventStream()
    let all = reader(at: stream), one = reader([db], at: stream), quick = reader(at: stream)
    let count = 3 * EventStream.kept
    var lines = 0, output: [UInt8] = []
    for number in 1...count {
      stream.append(event(number % 4 == 0 ? db : web, number))
      stream.trim([all, one, quick])
      output = []
      stream.read(quick, into: &output, until: 65_536)
      lines += replies(output).ids.count
    }
    #expect(lines == count && quick.missed == 0)
    #expect(stream.end - stream.start <= EventStream.kept)
    for (reader, share) in [(all, 1), (one, 4)] {
      output = []
      while reader.position < stream.end { stream.read(reader, into: &output, until: output.count + 4096) }
      let (ids, missed) = replies(output)
      #expect(missed > 0 && ids.count + missed == count / share, "\(ids.count) \(missed)")
      #expect(ids.last == Int64(count) && ids == ids.sorted())
    }
  }

  @Test func `writes no more than it may at once`() throws {
    let web = try name("web")
    var stream = EventStream()
    let slow = reader(at: stream)
    for number in 1...500 { stream.append(event(web, number)) }
    var output: [UInt8] = []
    stream.read(slow, into: &output, until: 1000)
    #expect(output.count < 2000 && slow.position < stream.end)
  }
}

@Suite struct `an event in the journal` {
  @Test func `has its message id, its details, and whose it is`() throws {
    let web = try #require(ServiceName("web"))
    let run = RunID(high: 1, low: 2)
    var event = Occurrence(
      service: web, at: WallTime(nanoseconds: 0),
      kind: .started(run: run, pid: 77, kind: .ordinary, disabledPlugins: ["a", "b"]))
    event.id = EventID(9)
    let fields = Dictionary(uniqueKeysWithValues: event.journalFields)
    #expect(
      fields == [
        "MESSAGE_ID": EventName.started.messageID, "GUARDIAN_SERVICE": "web", "GUARDIAN_EVENT": "started",
        "GUARDIAN_EVENT_ID": "0000000000000009", "GUARDIAN_RUN": run.description, "INVOCATION_ID": run.description,
        "GUARDIAN_PID": "77", "OBJECT_PID": "77", "GUARDIAN_KIND": "ordinary", "GUARDIAN_PLUGINS": "a b",
      ])
  }

  @Test func `is bounded, whatever is in it`() throws {
    let web = try #require(ServiceName("web"))
    let many = (0..<1000).map { "plugin-\($0)\n" }
    let event = Occurrence(
      service: web, at: WallTime(nanoseconds: 0), kind: .pluginsOff(names: many, retryIn: .seconds(1)))
    let size = event.journalFields.reduce(0) { $0 + $1.0.utf8.count + $1.1.utf8.count }
    #expect(size < 5000)
    #expect(event.journalFields.allSatisfy { !$0.1.contains("\n") })
  }
}
