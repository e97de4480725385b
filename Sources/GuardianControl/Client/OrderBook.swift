import GuardianModel

/// Orders to many services: which are still to be sent, which are being waited for, and what each came to.
///
/// Whoever performs it sends what `next` gives, side by side, and tells what came back.
package struct OrderBook: Sendable {
  /// Why an order did not come true.
  package enum Failure: Hashable, Sendable {
    case refused(ControlError)
    /// Guardian went away, or the order could not be sent any more.
    case unreachable(String)
    /// A pattern, or a group, that means nobody.
    case unmatched(String)
  }

  package struct Result: Hashable, Sendable {
    package var name: String
    package var note = ""
    package var failure: Failure?
    package init(name: String, note: String = "", failure: Failure? = nil) {
      self.name = name
      self.note = note
      self.failure = failure
    }
  }

  /// As many starts as the governor lets begin at once where nothing else is configured, and a part of the connections
  /// that guardian has.
  package static let sideBySide = 64

  private let names: [String]
  private var results: [Result?]
  private var queue: [Int]
  private var underWay: Set<Int> = []
  /// Told that they wait for another of those that are to be started: asked again when all have been.
  private var again: [(index: Int, reason: String)] = []
  private var round = 0
  private var progressed = false
  private var limit = OrderBook.sideBySide
  private var isLost = false

  package init(_ names: [String]) {
    self.names = names
    results = names.map { _ in nil }
    queue = Array(names.indices.reversed())
  }

  /// The next order to be sent; nil: none now. `isRepeated`: it is one for a start, for the second time.
  package mutating func next() -> (index: Int, name: String, isRepeated: Bool)? {
    if queue.isEmpty, underWay.isEmpty, !again.isEmpty { beginAgain() }
    guard underWay.count < limit, let index = queue.popLast() else { return nil }
    underWay.insert(index)
    return (index, names[index], round > 0)
  }

  /// One chain of requirements may be as long as the list; with each round that helps no one it ends.
  private mutating func beginAgain() {
    if round == 0 || progressed, !isLost {
      queue = again.map(\.index).reversed()
      again = []
      round += 1
      progressed = false
    } else {
      for (index, reason) in again {
        results[index] = Result(name: names[index], failure: .refused(.failed(reason: reason)))
      }
      late += again.compactMap { results[$0.index] }
      again = []
    }
  }
  /// Results that no answer has brought; to be told when `next` has nothing any more.
  private var late: [Result] = []
  package mutating func takeLate() -> [Result] {
    defer { late = [] }
    return late
  }

  /// - Returns: What it came to; nil where it is asked again.
  package mutating func answered(_ index: Int, note: String) -> Result? {
    underWay.remove(index)
    progressed = true
    // Of one that is asked for the second time the answer is about the first.
    return end(index, Result(name: names[index], note: round > 0 ? "" : note))
  }

  package mutating func refused(_ index: Int, _ error: ControlError) -> Result? {
    underWay.remove(index)
    switch error {
    case .failed(let reason) where names.count > 1 && reason.hasPrefix(wantedAndWaits):
      again.append((index, reason))
      return nil
    case .busy where !underWay.isEmpty:
      // Others have connections too.
      limit = max(1, underWay.count)
      queue.append(index)
      return nil
    default: return end(index, Result(name: names[index], failure: .refused(error)))
    }
  }

  /// The connection broke. Whatever has not been sent is not sent any more.
  package mutating func lost(_ index: Int, _ text: String) -> Result? {
    underWay.remove(index)
    isLost = true
    for rest in queue.reversed() + again.map(\.index) {
      let result = Result(name: names[rest], failure: .unreachable("not asked for: guardian is gone"))
      results[rest] = result
      late.append(result)
    }
    queue = []
    again = []
    return end(index, Result(name: names[index], failure: .unreachable(text)))
  }

  private mutating func end(_ index: Int, _ result: Result) -> Result {
    results[index] = result
    return result
  }

  /// Nothing is to be sent any more, and nothing waited for.
  package var isOver: Bool { queue.isEmpty && underWay.isEmpty && again.isEmpty }

  /// In the order of the names, as far as they are known.
  package var known: [Result] { results.compactMap { $0 } }

  package var progress: Progress {
    var progress = Progress()
    progress.total = names.count
    for result in results.lazy.compactMap({ $0 }) {
      if result.failure == nil { progress.done += 1 } else { progress.failed += 1 }
    }
    progress.underWay = underWay.sorted().map { names[$0] }
    return progress
  }
}

extension OrderBook.Failure {
  package var exitCode: Int32 {
    switch self {
    case .refused(let error): error.exitCode
    case .unreachable: ExitCode.unreachable
    case .unmatched: ExitCode.noSuchService
    }
  }
  package var word: String {
    switch self {
    case .refused(let error): error.word
    case .unreachable: "unreachable"
    case .unmatched: "no-such-service"
    }
  }
  package var sentence: String {
    switch self {
    case .refused(let error): error.sentence
    case .unreachable(let text): text
    case .unmatched(let word): Selection.isGroup(word) ? "no such group" : "no service matches"
    }
  }
}

/// The members of guardianctl's own JSON for orders: `results`, then `error` where there is one, which is the worst.
package func encode(_ results: [OrderBook.Result], into json: inout JSONWriter) {
  func error(_ failure: OrderBook.Failure, about name: String?) {
    if case .refused(let error) = failure { return encode(error, about: name, into: &json) }
    json.key("error")
    json.beginObject()
    json.key("name")
    json.string(failure.word)
    json.key("message")
    json.string((name.map { "\($0): " } ?? "") + failure.sentence)
    json.endObject()
  }
  json.key("results")
  json.beginArray()
  for result in results {
    json.beginObject()
    json.key("name")
    json.string(result.name)
    json.key("done")
    json.bool(result.failure == nil)
    if let failure = result.failure {
      error(failure, about: nil)
    } else {
      json.key("note")
      json.string(result.note)
    }
    json.endObject()
  }
  json.endArray()
  // Of several that are equally bad the first is named.
  var worst: (failure: OrderBook.Failure, name: String)?
  for result in results {
    if let failure = result.failure, failure.exitCode > worst?.failure.exitCode ?? 0 { worst = (failure, result.name) }
  }
  if let worst { error(worst.failure, about: worst.name) }
}

/// How far something is that takes its time.
package struct Progress: Hashable, Sendable {
  package var total = 1, done = 0, failed = 0
  /// Names of those that are being waited for.
  package var underWay: [String] = []
  package init() {}

  /// One line, at most `width - 1` columns, so that it never wraps: `⠙ starting 12 of 40, 1 failed: db, web, … 3s`.
  ///
  /// - Parameter turn: Counts the pictures of the spinner.
  package func line(_ doing: String, seconds: Int64, turn: Int, style: Style) -> String {
    let pictures = style.unicode ? ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"] : ["|", "/", "-", "\\"]
    var text = pictures[turn % pictures.count] + " " + printable(doing)
    if total > 1 { text += " \(done + failed) of \(total)" }
    if failed > 0 { text += ", \(failed) failed" }
    let time = " " + shortTime(milliseconds: seconds * 1000)
    let room = (style.width ?? 80) - 1 - columns(text) - columns(time)
    if !underWay.isEmpty, room > 8 {
      let few =
        underWay.prefix(8).map { printable($0) }.joined(separator: ", ") + (underWay.count > 8 ? ", " + style.mark : "")
      text += Cell(": " + few).cut(to: room, mark: style.mark).text
    }
    return Cell(text + time).cut(to: max(1, (style.width ?? 80) - 1), mark: style.mark).text
  }
}
