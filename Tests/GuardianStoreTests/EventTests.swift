import CSQLite
import Glibc
import GuardianModel
import Testing

@testable import GuardianStore

@Suite struct `events in the store` {
  private let scratch = Scratch()

  private func open() -> (Store, Store.Loaded) {
    let store = Store(directory: scratch.path, bootID: bootA)
    return (store, store.load())
  }
  private func event(_ service: String, _ number: Int64, _ kind: Occurrence.Kind = .stopped) -> Occurrence {
    var event = Occurrence(service: name(service), at: at(Int(number)).wall, kind: kind)
    event.id = EventID(number)
    return event
  }
  private func page(_ store: Store, _ change: (inout EventQuery) -> Void = { _ in }) -> EventPage {
    var query = EventQuery()
    change(&query)
    var answer: HistoryAnswer?
    store.ask(.events(query)) { answer = $0 }
    _ = eventually {
      store.deliverAnswers()
      return answer != nil
    }
    if case .events(let page)? = answer { return page }
    Issue.record("no page: \(String(describing: answer))")
    return EventPage()
  }

  @Test func `keep id, words and details over a restart, and the next instance knows the newest id`() throws {
    let (first, empty) = open()
    #expect(empty.lastEvent == .none)
    first.submit(
      events: [event("web", 5, .strike(step: .restart, count: 1, allowed: 3)), event("db", 6)], now: at(6))
    #expect(first.close(orderly: true, within: .seconds(10)))
    let (second, loaded) = open()
    #expect(loaded.lastEvent == EventID(6))
    let events = page(second).events
    #expect(events.map(\.id) == [EventID(5), EventID(6)])
    let strike = try #require(events.first)
    #expect(strike.service == "web" && strike.name == "strike" && strike.at == at(5).wall)
    #expect(strike.sentence == "strike 1 of 3 on step restart")
    #expect(
      String(decoding: strike.details, as: UTF8.self) == #"{"step":"restart","strikes":1,"strikes_allowed":3}"#)
    #expect(events.last?.details == Array("{}".utf8))
  }

  @Test func `are there once, however often they are written`() {
    let (store, _) = open()
    for _ in 0..<3 { store.submit(events: [event("web", 1), event("web", 2)], now: at(2)) }
    #expect(page(store).events.map(\.id.number) == [1, 2])
  }

  @Test func `are found by service, by time, behind an id, and the newest of them; page by page`() {
    let (store, _) = open()
    store.submit(events: (1...100).map { event($0 % 10 == 0 ? "db" : "web", $0) }, now: at(100))
    func ids(_ change: (inout EventQuery) -> Void) -> [Int64] { page(store, change).events.map(\.id.number) }
    #expect(ids { $0.services = [name("db")] } == stride(from: 10, through: 100, by: 10).map { Int64($0) })
    #expect(ids { $0.services = [name("d")] }.isEmpty)
    #expect(ids { $0.services = [name("db"), name("web")] }.count == 100)
    #expect(ids { $0.since = at(98).wall } == [98, 99, 100])
    #expect(ids { $0.after = EventID(97) } == [98, 99, 100])
    #expect(ids { $0.newest = 2 } == [99, 100])
    #expect(
      ids {
        $0.newest = 2
        $0.services = [name("db")]
      } == [90, 100])
    var all: [Int64] = [], query = EventQuery()
    query.newest = 50
    query.limit = 7
    while true {
      let page = page(store) { $0 = query }
      all += page.events.map(\.id.number)
      query.after = page.after
      query.newest = nil
      if !page.more { break }
    }
    #expect(all == Array(51...100))
  }

  @Test func `that are damaged are left out, and those of the version before have no details`() throws {
    let (store, _) = open()
    store.submit(events: [event("web", 1), event("web", 2, .notCounted(why: "x")), event("web", 3)], now: at(3))
    #expect(store.close(orderly: true, within: .seconds(10)))
    do {
      let connection = try Connection(path: scratch.file("guardian.db"), flags: SQLITE_OPEN_READWRITE, vfs: nil)
      try connection.run("UPDATE event SET details = '{\"reason\":\"y\"}' WHERE seq = 2")
    }
    let (again, _) = open()
    #expect(page(again).events.map(\.id.number) == [1, 3])
  }
}
