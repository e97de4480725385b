import Glibc
import GuardianModel
import Testing

@testable import GuardianStore

private func report(
  _ service: String, _ number: Int, signature: UInt64 = 1, seconds: Int, size: Int = 10
) -> StoredReport {
  StoredReport(
    id: RunID(high: UInt64(number), low: 0), service: name(service), at: at(seconds).wall,
    signature: Signature(value: signature, strong: true), crashClass: "abort", cause: "signal", text: "SIGABRT",
    body: [UInt8](repeating: UInt8(ascii: "x"), count: size))
}

@Suite struct `crash reports in the store` {
  private let scratch = Scratch()

  private func open() -> Store {
    let store = Store(directory: scratch.path, bootID: bootA)
    _ = store.load()
    return store
  }
  private func ask(_ store: Store, _ question: HistoryQuestion) -> HistoryAnswer? {
    var answer: HistoryAnswer?
    store.ask(question) { answer = $0 }
    #expect(answer == nil, "answered from inside of the call")
    for _ in 0..<5_000 where answer == nil {
      store.deliverAnswers()
      usleep(1_000)
    }
    return answer
  }
  private func list(_ store: Store, _ service: String? = nil) -> [CrashSummary] {
    if case .crashes(let list) = ask(store, .crashes(service: service.map(name), limit: 1_000)) { return list }
    Issue.record("no list")
    return []
  }

  @Test func `are there for the next instance, newest first, with how often their like was seen`() {
    let first = open()
    first.submit(reports: [report("web", 1, seconds: 10), report("db", 2, signature: 9, seconds: 20)], now: at(20))
    first.submit(
      reports: [report("web", 3, seconds: 30)],
      counted: [
        CountedDeaths(
          service: name("web"), signature: Signature(value: 1, strong: true), count: 5, first: at(31).wall,
          last: at(40).wall)
      ], now: at(40))
    #expect(first.close(orderly: true, within: .seconds(10)))
    let second = open()
    let all = list(second)
    #expect(all.map(\.id.high) == [3, 2, 1])
    #expect(all.map(\.count) == [7, 1, 7])
    #expect(all[0].first == at(10).wall)
    #expect(all[0].last == at(40).wall)
    #expect(list(second, "db").map(\.id.high) == [2])
    #expect(list(second, "none").isEmpty)
  }

  @Test func `are found by the beginning of their id, and only where they are whole`() throws {
    let store = open()
    store.submit(reports: [report("web", 0x1234, seconds: 1), report("web", 0x1235, seconds: 2)], now: at(2))
    guard case .reports(let two)? = ask(store, .report(idPrefix: "00000000")) else { throw Missing() }
    #expect(two.count == 2)
    guard case .reports(let one)? = ask(store, .report(idPrefix: "0000000000001234")) else { throw Missing() }
    #expect(one.map(\.0.high) == [0x1234] && one[0].1.count == 10)
    guard case .reports(let none)? = ask(store, .report(idPrefix: "ffffff")) else { throw Missing() }
    #expect(none.isEmpty)
    guard case .reports(let wild)? = ask(store, .report(idPrefix: "%")) else { throw Missing() }
    #expect(wild.count == 2, "a per cent sign matches all, which no caller may send")
  }
  private struct Missing: Error {}

  @Test func `of one kind within a day are the first and the two newest, and the others are counted`() {
    let store = open()
    for n in 1...9 { store.submit(reports: [report("web", n, seconds: n)], now: at(n)) }
    #expect(list(store).map(\.id.high) == [9, 8, 1])
    #expect(list(store).map(\.count) == [9, 9, 9])
    store.submit(reports: [report("web", 10, seconds: 10 + 86_400)], now: at(86_410))
    #expect(list(store).map(\.id.high) == [10, 9, 8, 1], "a new day")
  }

  @Test func `of one service are so many, and the first of each kind go last`() {
    let store = open()
    store.keep(reports: ReportLimits(perService: 4))
    for n in 1...3 { store.submit(reports: [report("web", n, signature: UInt64(n), seconds: n)], now: at(n)) }
    for n in 4...8 { store.submit(reports: [report("web", n, signature: 3, seconds: 90_000 * n)], now: at(90_000 * n)) }
    #expect(list(store).map(\.id.high) == [8, 3, 2, 1])
    store.submit(reports: [report("db", 20, seconds: 9)], now: at(9))
    #expect(list(store, "db").count == 1, "another service's are not in the way")
  }

  @Test func `take so many bytes together, and the newest is always kept`() {
    let store = open()
    store.keep(reports: ReportLimits(perService: 1_000, total: 10_000))
    for n in 1...50 {
      store.submit(
        reports: [report("s\(n % 7)", n, signature: UInt64(n), seconds: n, size: 900)], now: at(n))
    }
    let kept = list(store)
    #expect(kept.count <= 11 && kept.count > 2 && kept.first?.id.high == 50)
    store.submit(reports: [report("huge", 99, seconds: 99, size: 50_000)], now: at(99))
    #expect(list(store).map(\.id.high) == [99])
  }

  @Test func `cannot be read where there is no disk, and the answer says why`() {
    let store = Store(directory: nil, bootID: bootA)
    _ = store.load()
    guard case .unavailable(let why)? = ask(store, .crashes(service: nil, limit: 1)) else {
      Issue.record("an answer")
      return
    }
    #expect(why == "no state directory")
  }
}
