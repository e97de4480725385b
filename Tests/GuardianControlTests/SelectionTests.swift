import GuardianControl
import GuardianModel
import Testing

@Suite struct `a pattern` {
  struct Case: CustomTestStringConvertible {
    var pattern: String, yes: [String], no: [String]
    var testDescription: String { pattern }
  }
  @Test(arguments: [
    Case(pattern: "*", yes: ["", "a", "web-1"], no: []),
    Case(pattern: "web*", yes: ["web", "web-1"], no: ["we", "my-web"]),
    Case(pattern: "*web", yes: ["web", "my-web", "webweb"], no: ["web-1"]),
    Case(pattern: "w*b*1", yes: ["web1", "wb-b1"], no: ["web", "1"]),
    Case(pattern: "db?", yes: ["db1"], no: ["db", "db12"]),
    Case(pattern: "db[1-3x]", yes: ["db1", "db3", "dbx"], no: ["db4", "db-", "db"]),
    Case(pattern: "[!a-m]*", yes: ["web"], no: ["api", ""]),
    Case(pattern: "[^a-m]*", yes: ["web"], no: ["api"]),
    Case(pattern: "[]a]", yes: ["]", "a"], no: ["b"]),
    Case(pattern: "[a-]", yes: ["a", "-"], no: ["b"]),
    Case(pattern: "[z-a]", yes: [], no: ["z", "a", "m"]),
    Case(pattern: "a[b", yes: ["a[b"], no: ["ab"]),
    Case(pattern: "a[", yes: ["a["], no: ["a"]),
  ])
  func `fits as a shell has it`(_ c: Case) {
    for name in c.yes { #expect(Selection.matches(name, c.pattern), "\(name)") }
    for name in c.no { #expect(!Selection.matches(name, c.pattern), "\(name)") }
  }

  @Test func `of many stars takes no time to speak of`() {
    let pattern = String(repeating: "*a", count: 2_000) + "b"
    #expect(!Selection.matches(String(repeating: "a", count: 4_000), pattern))
  }

  @Test func `a group and a name choose each service once, and what chooses none is told`() {
    let chosen = Selection.choose(
      ["web", "d*", "x*", "@shop", "@none"], all: false, known: ["api", "db", "db2", "web"], members: ["db", "shop"],
      empty: ["@none"])
    #expect(chosen.names == ["web", "db", "db2", "shop"])
    #expect(chosen.unmatched == ["x*", "@none"])
    #expect(Selection.choose([], all: true, known: ["a", "b"], members: [], empty: []).names == ["a", "b"])
  }
}

@Suite struct `orders to many` {
  /// Sends what there is to be sent; the names.
  private func sent(_ book: inout OrderBook) -> [String] {
    var names: [String] = []
    while let order = book.next() { names.append(order.name) }
    return names
  }

  @Test func `are under way side by side, within a bound`() {
    var book = OrderBook((0..<100).map { "s\($0)" })
    #expect(sent(&book).count == OrderBook.sideBySide)
    #expect(book.answered(3, note: "") == .init(name: "s3"))
    #expect(sent(&book) == ["s64"])
    #expect(book.progress.done == 1 && book.progress.total == 100 && book.progress.underWay.count == 64)
  }

  @Test func `are asked again where one waits for another of them, as long as that helps`() {
    var book = OrderBook(["a", "b", "c"])
    #expect(sent(&book) == ["a", "b", "c"])
    let waits = ControlError.failed(reason: wantedAndWaits + "waits for the next")
    #expect(book.refused(0, waits) == nil && book.refused(1, waits) == nil)
    #expect(sent(&book) == [] && !book.isOver)
    #expect(book.answered(2, note: "x")?.note == "x")
    #expect(sent(&book) == ["a", "b"])
    #expect(book.refused(0, waits) == nil)
    #expect(book.answered(1, note: "done already")?.note == "")
    #expect(sent(&book) == ["a"])
    #expect(book.refused(0, waits) == nil)
    // Nothing has come of this round.
    #expect(sent(&book) == [] && book.isOver)
    #expect(book.takeLate().map(\.name) == ["a"])
    #expect(book.known.map { $0.failure == nil } == [false, true, true])
  }

  @Test func `lose no name when guardian goes away`() {
    var book = OrderBook((0..<70).map { "s\($0)" })
    _ = sent(&book)
    #expect(book.answered(0, note: "") != nil)
    #expect(book.lost(1, "gone")?.failure == .unreachable("gone"))
    #expect(sent(&book) == [])
    for index in 2..<64 { _ = book.lost(index, "gone") }
    #expect(book.isOver)
    #expect(book.takeLate().count == 6)
    #expect(book.known.count == 70 && book.known.filter { $0.failure == nil }.map(\.name) == ["s0"])
  }

  @Test func `wait for a connection where there are too many, and fail where there is none to wait for`() {
    var book = OrderBook(["a", "b"])
    _ = sent(&book)
    let busy = ControlError.busy(reason: "256 connections are open already")
    #expect(book.refused(1, busy) == nil)
    #expect(sent(&book) == [])
    #expect(book.answered(0, note: "") != nil)
    #expect(sent(&book) == ["b"])
    #expect(book.refused(1, busy)?.failure == .refused(busy))
    #expect(book.isOver)
  }

  @Test func `show in one line how far they are`() {
    var progress = Progress()
    #expect(progress.line("stopping", seconds: 3, turn: 0, style: Style(width: 80)) == "⠋ stopping 3s")
    progress.total = 40
    progress.done = 11
    progress.failed = 1
    progress.underWay = ["db", "we\u{1b}b"]
    #expect(
      progress.line("starting", seconds: 63, turn: 1, style: Style(width: 80, unicode: false))
        == "/ starting 12 of 40, 1 failed: db, we\\x1bb 1min3s")
    #expect(
      progress.line("starting", seconds: 63, turn: 11, style: Style(width: 40))
        == "⠙ starting 12 of 40, 1 failed 1min3s")
    #expect(progress.line("starting", seconds: 63, turn: 1, style: Style(width: 20)).count == 19)
  }
}

@Suite struct `a goal that is waited for` {
  private func service(_ phase: PhaseName, wanted: Wanted = .up, settled: Bool = false, crashed: Bool = false)
    -> ServiceStatus
  {
    var s = ServiceStatus(name: "a")
    s.phase = phase
    s.wanted = wanted
    s.settled = settled
    if phase == .finished { s.lastEnd = end("exit", crashed ? "error-exit" : "clean", crashed ? "exit 1" : "exit 0") }
    return s
  }
  struct Case: CustomTestStringConvertible {
    var goal: WaitGoal, reached: [String], never: [String]
    var testDescription: String { goal.rawValue }
  }
  private var all: [(name: String, service: ServiceStatus?)] {
    [
      ("gone", nil), ("running", service(.running)), ("settled", service(.running, settled: true)),
      ("done", service(.finished)), ("crashed", service(.finished, crashed: true)),
      ("down", service(.stopped, wanted: .down)), ("held", service(.stopped)),
      ("going down", service(.stopping, wanted: .down)), ("restarting", service(.stopping)),
      ("backing off", service(.backingOff)), ("starting", service(.starting)), ("waiting", service(.waiting)),
      ("repairing", service(.repairing)), ("quarantined", service(.quarantined)),
    ]
  }
  @Test(arguments: [
    Case(
      goal: .ready, reached: ["running", "settled", "done"],
      never: ["gone", "crashed", "down", "going down", "quarantined"]),
    Case(
      goal: .settled, reached: ["settled", "done"], never: ["gone", "crashed", "down", "going down", "quarantined"]),
    Case(goal: .stopped, reached: ["gone", "done", "crashed", "down", "held"], never: []),
    Case(goal: .finished, reached: ["done", "crashed"], never: ["gone", "down", "going down", "quarantined"]),
    Case(goal: .quarantined, reached: ["quarantined"], never: ["gone", "done", "crashed", "down", "going down"]),
  ])
  func `is reached, or out of reach, or neither`(_ c: Case) {
    for (name, service) in all {
      let verdict = c.goal.verdict(on: service)
      switch verdict {
      case .reached: #expect(c.reached.contains(name), "\(name)")
      case .never(let why): #expect(c.never.contains(name) && !why.isEmpty, "\(name)")
      case .pending: #expect(!c.reached.contains(name) && !c.never.contains(name), "\(name)")
      }
    }
  }

  @Test func `of several is reached by all, or by one where that is enough`() {
    var book = WaitBook(["a", "b"], goal: .settled, any: false)
    #expect(book.saw([service(.running, settled: true)], asked: ["a"]).map(\.name) == ["a"])
    #expect(book.outcome == nil && book.pending == ["b"])
    // What has been reached stays so.
    #expect(book.saw([service(.backingOff)], asked: ["a"]) == [])
    #expect(
      book.saw([], asked: ["b"]).first?.sentence(.settled) == "will not become settled: it is not defined any more")
    #expect(book.outcome == .never)
    var any = WaitBook(["a", "b"], goal: .settled, any: true)
    _ = any.saw([], asked: ["b"])
    #expect(any.outcome == nil)
    _ = any.saw([service(.running, settled: true)], asked: ["a"])
    #expect(any.outcome == .reached)
  }
}
