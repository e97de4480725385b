package import GuardianModel

/// What a service takes, as far as it can be told.
package struct Usage: Hashable, Sendable {
  /// Thousandths of one processor, since the last look.
  package var cpu: Int?
  /// Bytes.
  package var memory: Int64?
  package init(cpu: Int? = nil, memory: Int64? = nil) {
    self.cpu = cpu
    self.memory = memory
  }
}

/// An order that `top` gives.
package struct TopOrder: Hashable, Sendable {
  package enum Action: Hashable, Sendable {
    case start, stop, restart, release, reset
    case hold(milliseconds: Int64)
  }
  package var action: Action
  package var name: String

  package var request: ControlRequest {
    switch action {
    case .start: .start(name: name, wait: true)
    case .stop: .stop(name: name, untilBoot: false, wait: true)
    case .restart: .restart(name: name, wait: true)
    case .release: .release(name: name, wait: true)
    case .reset: .reset(name: name, wait: true)
    case .hold(let milliseconds): .hold(name: name, milliseconds: milliseconds, wait: true)
    }
  }
  var verb: String {
    switch action {
    case .start: "start"
    case .stop: "stop"
    case .restart: "restart"
    case .release: "release"
    case .reset: "reset"
    case .hold(0): "end the hold of"
    case .hold: "hold"
    }
  }
  /// What it came to, where guardian says nothing itself.
  var outcome: String {
    switch action {
    case .start: "started"
    case .stop: "stopped"
    case .restart: "restarted"
    case .release: "released"
    case .reset: "reset"
    case .hold(0): "hold ended"
    case .hold(let milliseconds): "held for \(shortTime(milliseconds: milliseconds))"
    }
  }
}

/// The state of `top`, without terminal, socket or clock: what it is told goes in by `handle`, what is to be done comes
/// out, and `frame` is what is to be seen.
package struct TopModel: Sendable {
  package enum Event: Hashable, Sendable {
    case key(Key)
    case resized(width: Int, height: Int)
    case time(milliseconds: Int64)
    /// Guardian answers.
    case linked
    /// It does not, and is asked again.
    case lost(String)
    case summary(DaemonSummary)
    /// Of those asked for, the ones that are there; `whole`: all were.
    case looked([ServiceStatus], missing: [String], whole: Bool)
    case measured([String: Usage])
    case answered(TopOrder, note: String)
    case refused(TopOrder, ControlError)
    case orderLost(TopOrder, String)
  }

  package enum Effect: Hashable, Sendable {
    case quit, suspend
    case order(TopOrder)
  }

  package enum Sort: Character, CaseIterable, Hashable, Sendable {
    case state = "S", name = "N", strikes = "K", next = "X", cpu = "C", memory = "M", uptime = "U"
    var word: String {
      switch self {
      case .state: "state"
      case .name: "name"
      case .strikes: "strikes"
      case .next: "next action"
      case .cpu: "CPU"
      case .memory: "memory"
      case .uptime: "uptime"
      }
    }
  }

  enum Mode: Hashable, Sendable {
    case list
    case filter
    case confirm(TopOrder)
    case holdTime(name: String, text: String)
    case detail(offset: Int)
    case help
  }

  private(set) var width = 80, height = 24
  private(set) var now: Int64 = 0
  package private(set) var summary = DaemonSummary()
  /// In order of name.
  private(set) var services: [ServiceStatus] = []
  /// When each was seen, which is what its times are counted from.
  private var seen: [String: Int64] = [:]
  private(set) var usage: [String: Usage] = [:]
  /// Nil: guardian answers.
  package private(set) var away: String? = "not yet reached"
  private(set) var mode = Mode.list
  package private(set) var sort = Sort.state
  package private(set) var isReversed = false
  package private(set) var filter = ""
  private(set) var message: (text: String, isGood: Bool, until: Int64)?
  /// What is to be seen, in its order: places in `services`.
  private(set) var rows: [Int] = []
  /// Stays with its service when rows move.
  private var cursor: String?
  private(set) var offset = 0
  /// Which services are shown at all.
  private let words: [String]

  /// A message is gone after so many milliseconds.
  private static let shown: Int64 = 8000
  private static let longestInput = 64

  /// - Parameter words: Names, groups and patterns; none: all.
  package init(_ words: [String] = []) { self.words = words }

  package mutating func handle(_ event: Event) -> [Effect] {
    switch event {
    case .key(let key): return press(key)
    case .resized(let width, let height):
      self.width = max(1, width)
      self.height = max(1, height)
      scroll()
    case .time(let milliseconds):
      now = milliseconds
      if let current = message, current.until <= now { message = nil }
    case .linked: away = nil
    case .lost(let why): away = why
    case .summary(let summary): self.summary = summary
    case .looked(let found, let missing, let whole): look(found, missing, whole)
    case .measured(let usage):
      self.usage = usage
      if sort == .cpu || sort == .memory { arrange() }
    case .answered(let order, let note): say("\(order.name): \(note.isEmpty ? order.outcome : note)", true)
    case .refused(let order, let error): say("\(order.name): \(error.sentence)", false)
    case .orderLost(let order, let why): say("\(order.name): \(why)", false)
    }
    return []
  }

  private mutating func say(_ text: String, _ isGood: Bool) { message = (text, isGood, now + Self.shown) }

  // MARK: What is there

  private mutating func look(_ found: [ServiceStatus], _ missing: [String], _ whole: Bool) {
    var byName: [String: ServiceStatus] = [:]
    if !whole { for service in services { byName[service.name] = service } }
    for service in found {
      byName[service.name] = Selection.includes(service, words) ? service : nil
      seen[service.name] = now
    }
    for name in missing { byName[name] = nil }
    services = byName.values.sorted { $0.name < $1.name }
    arrange()
  }

  /// A service as it is now, by the time that has passed since it was seen.
  func aged(_ service: ServiceStatus) -> ServiceStatus {
    service.aged(by: max(0, now - (seen[service.name] ?? now)))
  }

  package var agedServices: [ServiceStatus] { services.map(aged) }

  /// Main processes, to be measured.
  package var processes: [(name: String, pid: Int32)] { services.compactMap { s in s.pid.map { (s.name, $0) } } }

  private mutating func arrange() {
    let wanted = filter.lowercased()
    var keys: [(place: Int, key: Int64)] = []
    for (place, service) in services.enumerated() {
      if !wanted.isEmpty, !service.name.contains(wanted), !service.state.word.contains(wanted) { continue }
      keys.append((place, key(service)))
    }
    // Places are in order of name, and the sort is stable by them.
    keys.sort { a, b in a.key != b.key ? (a.key < b.key) != isReversed : a.place < b.place }
    if sort == .name, isReversed { keys.reverse() }
    rows = keys.map(\.place)
    scroll()
  }

  /// The lowest comes first.
  private func key(_ s: ServiceStatus) -> Int64 {
    switch sort {
    case .name: 0
    case .state: Int64(s.urgency)
    case .strikes: -Int64(s.strikes)
    case .next: s.next.map { $0.at.nanoseconds } ?? .max
    case .cpu: -Int64(usage[s.name]?.cpu ?? -1)
    case .memory: -(usage[s.name]?.memory ?? -1)
    case .uptime: -(s.uptimeMilliseconds.map { $0 &- (seen[s.name] ?? 0) } ?? .min / 2)
    }
  }

  // MARK: Where the eye is

  /// Lines for services: all but the head, the titles and the last line.
  var room: Int { max(1, height - 4) }

  /// Among `rows`.
  var cursorRow: Int {
    guard let cursor else { return 0 }
    return rows.firstIndex { services[$0].name == cursor } ?? 0
  }

  package var selected: ServiceStatus? {
    let row = cursorRow
    return rows.indices.contains(row) ? services[rows[row]] : nil
  }

  private mutating func move(to row: Int) {
    let row = min(max(0, row), rows.count - 1)
    cursor = rows.indices.contains(row) ? services[rows[row]].name : nil
    scroll()
  }

  private mutating func scroll() {
    let row = cursorRow
    // One that has gone has its place taken by the first.
    if cursor != nil, !(rows.indices.contains(row) && services[rows[row]].name == cursor) { cursor = nil }
    offset = min(offset, max(0, rows.count - room))
    if row < offset { offset = row }
    if row >= offset + room { offset = row - room + 1 }
  }

  // MARK: Keys

  private mutating func press(_ key: Key) -> [Effect] {
    if key == .control("c") { return [.quit] }
    if key == .control("z") { return [.suspend] }
    switch mode {
    case .list: return pressInList(key)
    case .filter:
      switch key {
      case .enter: mode = .list
      case .escape:
        mode = .list
        filter = ""
        arrange()
      case .backspace:
        if !filter.isEmpty { filter.removeLast() }
        arrange()
      case .character(let character) where filter.count < Self.longestInput:
        filter.append(character)
        arrange()
      case .up: move(to: cursorRow - 1)
      case .down: move(to: cursorRow + 1)
      default: break
      }
    case .confirm(let order):
      mode = .list
      // Whatever is no clear yes is a no.
      if key == .character("y") || key == .character("Y") || key == .enter { return [give(order)] }
      say("nothing done", true)
    case .holdTime(let name, let text):
      switch key {
      case .escape: mode = .list
      case .backspace: mode = .holdTime(name: name, text: String(text.dropLast()))
      case .character(let character) where text.count < 16:
        mode = .holdTime(name: name, text: text + String(character))
      case .enter:
        mode = .list
        guard let milliseconds = parseMilliseconds(text), milliseconds <= maximumHold else {
          say("'\(text)' is no time; write it like 10s, 5min, 2h; 0s ends a hold", false)
          return []
        }
        return [give(TopOrder(action: .hold(milliseconds: milliseconds), name: name))]
      default: break
      }
    case .detail(let offset):
      switch key {
      case .down, .character("j"): mode = .detail(offset: offset + 1)
      case .up, .character("k"): mode = .detail(offset: max(0, offset - 1))
      case .pageDown: mode = .detail(offset: offset + room)
      case .pageUp: mode = .detail(offset: max(0, offset - room))
      case .character("q"), .escape, .enter, .left: mode = .list
      default: return pressInList(key)
      }
    case .help: mode = .list
    }
    return []
  }

  private mutating func give(_ order: TopOrder) -> Effect {
    say("\(order.name): \(order.verb) …", true)
    return .order(order)
  }

  private mutating func pressInList(_ key: Key) -> [Effect] {
    func ask(_ action: TopOrder.Action) {
      guard let name = selected?.name else { return }
      mode = .confirm(TopOrder(action: action, name: name))
    }
    switch key {
    case .up, .character("k"): move(to: cursorRow - 1)
    case .down, .character("j"): move(to: cursorRow + 1)
    case .pageUp: move(to: cursorRow - room)
    case .pageDown: move(to: cursorRow + room)
    case .home, .character("g"): move(to: 0)
    case .end, .character("G"): move(to: rows.count - 1)
    case .enter, .right: if selected != nil { mode = .detail(offset: 0) }
    case .escape:
      if !filter.isEmpty {
        filter = ""
        arrange()
      }
    case .character("q"): return [.quit]
    case .character("/"): mode = .filter
    case .character("?"): mode = .help
    case .character("s"): ask(.start)
    case .character("t"): ask(.stop)
    case .character("r"): ask(.restart)
    case .character("l"): ask(.release)
    case .character("e"): ask(.reset)
    case .character("h"): if let name = selected?.name { mode = .holdTime(name: name, text: "") }
    case .character("R"):
      isReversed.toggle()
      arrange()
    case .character(let character):
      guard let wanted = Sort(rawValue: character) else { break }
      // The same once more turns it round.
      isReversed = sort == wanted ? !isReversed : false
      sort = wanted
      arrange()
    case .left, .backspace, .control: break
    }
    return []
  }
}

extension Selection {
  /// Whether the words mean this service; no words mean all.
  package static func includes(_ service: ServiceStatus, _ words: [String]) -> Bool {
    words.isEmpty
      || words.contains { word in
        isGroup(word)
          ? service.groups.contains(String(word.dropFirst()))
          : isPattern(word) ? matches(service.name, word) : service.name == word
      }
  }
}

extension ServiceStatus {
  /// What is the worst comes first.
  var urgency: Int {
    switch phase {
    case .quarantined: 0
    case .finished: crashedAndFinished ? 1 : 8
    case .repairing: 2
    case .backingOff: 3
    case .waiting: 4
    case .stopping: 5
    case .starting: 5
    case .running: !settled ? 5 : degraded ? 6 : 7
    case .stopped: wanted == .up ? 4 : 9
    }
  }

  /// The same, so much later: uptime has grown, and what comes next is nearer.
  package func aged(by milliseconds: Int64) -> ServiceStatus {
    var s = self
    s.uptimeMilliseconds = uptimeMilliseconds.map { $0 &+ milliseconds }
    s.next?.inMilliseconds = max(0, (next?.inMilliseconds ?? 0) &- milliseconds)
    return s
  }

  /// Without what changes by itself as time passes.
  package var timeless: ServiceStatus {
    var s = self
    s.uptimeMilliseconds = nil
    s.next?.inMilliseconds = 0
    return s
  }
}
