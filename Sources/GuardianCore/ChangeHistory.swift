package import GuardianModel

// What has changed since a service was last well: never a verdict, a place to look first.

/// What is remembered of the healthy runs of one service.
package struct ChangeHistory: Hashable, Sendable {
  /// Healthy runs on record; counting ends at `mostRuns`.
  package private(set) var runs = 0
  /// When the last of them began, and when it settled.
  package private(set) var startedAt = WallTime(nanoseconds: 0)
  package private(set) var settledAt = WallTime(nanoseconds: 0)
  package private(set) var items: [Known] = []

  /// One thing as it was in the last healthy run.
  package struct Known: Hashable, Sendable {
    package var item: StateItem
    /// How often it was another than in the healthy run before, and nothing came of it.
    package var changes = 0
    /// What else it was in healthy runs, the latest last.
    package var past: [String] = []
  }

  private static let mostRuns = 50, mostPast = 8, mostItems = 192
  /// Nobody knows how it was: it changed while the only run on record was starting.
  private static let unknown = "?"

  package init() {}

  /// The service has settled as it is now: whatever it is made of does no harm.
  package mutating func bless(_ print: StatePrint, startedAt: WallTime, settledAt: WallTime) {
    runs = min(runs + 1, Self.mostRuns)
    self.startedAt = startedAt
    self.settledAt = settledAt
    items = print.items.prefix(Self.mostItems).map { item in
      let before = items.first { $0.item.isSame(as: item) }
      if item.isLate {
        // The run has not read it.
        if let before { return before }
        var known = Known(item: item)
        known.item.value = Self.unknown
        known.item.look = Self.unknown
        return known
      }
      guard var known = before else { return Known(item: item) }
      if known.item.differs(from: item) {
        known.changes = min(known.changes + 1, Self.mostRuns)
        let old = known.item.mark
        if old != Self.unknown {
          known.past.removeAll { $0 == old }
          known.past.append(old)
          if known.past.count > Self.mostPast { known.past.removeFirst() }
        }
      }
      known.item = item
      return known
    }
  }

  /// The libraries that the last healthy run had in use.
  package var libraries: [String] { items.filter { $0.item.group == .libraries }.map(\.item.name) }

  /// What to look at first, at most five; one sentence alone where there is no healthy run to compare with.
  ///
  /// - Parameters:
  ///   - failing: When the first run began that failed since the last healthy one.
  ///   - lines: The last output, oldest first; what is named in it counts for more.
  package static func hints(
    _ history: ChangeHistory?, now print: StatePrint, failing: WallTime, lines: [String], frames: [StackFrame]
  ) -> [ChangeHint] {
    guard let history, history.runs > 0 else {
      return [ChangeHint(what: "no healthy run on record", at: nil, score: 0)]
    }
    let words = lines.suffix(50)
    var found: [(hint: ChangeHint, group: Int)] = []
    for item in print.items {
      let known = history.items.first { $0.item.isSame(as: item) }
      if let known {
        guard known.item.differs(from: item) else { continue }
        // It was so in a healthy run.
        if known.past.contains(item.mark) { continue }
      } else if item.group == .system, let since = item.since, since <= history.startedAt {
        continue
      }
      let novelty = novelty(changes: known?.changes ?? 0, runs: history.runs)
      let timing = item.since.map { $0 > history.startedAt && $0 <= failing ? 1 : 0.3 } ?? 0.3
      let link = item.link(words, frames)
      let score = min(10, item.weight * novelty * timing * link)
      guard score >= 0.005 else { continue }
      let hint = ChangeHint(
        what: item.says(before: known?.item), at: item.since, score: Int((score * 100).rounded()))
      found.append((hint, StateItem.Group.allCases.firstIndex(of: item.group) ?? 0))
    }
    // Those of equal scores: the later change first, then in the order of the groups.
    found.sort {
      ($0.hint.score, $0.hint.at?.nanoseconds ?? 0, $1.group, $1.hint.what)
        > ($1.hint.score, $1.hint.at?.nanoseconds ?? 0, $0.group, $0.hint.what)
    }
    return found.prefix(5).map(\.hint)
  }

  /// 1 for what has never changed, 0 for what changes at every start.
  static func novelty(changes: Int, runs: Int) -> Double {
    let runs = Double(max(runs, 1)), changes = Double(max(changes, 0))
    return max(0, logarithm((runs + 1) / (changes + 1)) / logarithm(runs + 1))
  }

  /// To the base 2, of what is not below 1/64; good to six digits.
  static func logarithm(_ value: Double) -> Double {
    guard value > 0, value.isFinite else { return 0 }
    let y = (value.significand - 1) / (value.significand + 1)
    var sum = 0.0, power = y
    for odd in stride(from: 1.0, through: 15, by: 2) {
      sum += power / odd
      power *= y * y
    }
    return Double(value.exponent) + 2 * sum / 0.693_147_180_559_945
  }
}

extension StateItem {
  fileprivate func isSame(as other: StateItem) -> Bool { group == other.group && name == other.name }
  /// What tells it from another of its name.
  fileprivate var mark: String { value.isEmpty ? look : value }
  fileprivate func differs(from other: StateItem) -> Bool {
    value.isEmpty || other.value.isEmpty ? look != other.look : value != other.value
  }

  fileprivate var weight: Double {
    switch group {
    case .plugins, .config: 1
    case .program: 0.9
    case .start, .libraries: 0.8
    case .state: [Self.full, Self.readOnly].contains(value) ? 1 : 0.6
    case .system, .dependencies: 0.5
    case .pressure: 0.4
    }
  }

  fileprivate func link(_ lines: ArraySlice<String>, _ frames: [StackFrame]) -> Double {
    let base = name.split(separator: "/").last.map(String.init) ?? name
    let isPath = name.hasPrefix("/")
    if isPath, frames.prefix(5).contains(where: { $0.module == name || $0.module == base }) { return 5 }
    // The last component of a path is one; a short word says nothing.
    guard isPath || group == .dependencies, base.utf8.count >= (isPath ? 3 : 4) else { return 1 }
    return lines.contains { $0.contains(name) || (isPath && $0.contains(base)) } ? 3 : 1
  }

  fileprivate func says(before: StateItem?) -> String {
    switch group {
    case .config, .program, .libraries:
      let what = group == .program ? "the program \(name)" : group == .libraries ? "the library \(name)" : name
      if value == Self.absent { return "\(what) is gone" }
      if before == nil || before?.value == Self.absent { return "\(what) is new" }
      return "\(what) changed"
    case .plugins:
      if name.hasPrefix("/") { return "\(name), which a plugin hides, changed" }
      return "the plugins changed: \(before?.value ?? "none") before, now \(value.isEmpty ? "none" : value)"
    case .start: return "how it is started changed (\(name))"
    case .state: return "the file system of \(name): \(before?.value ?? "not known") before, now \(value)"
    case .system:
      if name == "boot" { return "the machine was started anew" }
      if name.hasPrefix(StateItem.package) {
        if value == StateItem.absent { return "\(name) (\(old)) was removed" }
        return old.isEmpty ? "\(name) (\(value)) was installed" : "\(name): \(old) before, now \(value)"
      }
      return "\(name): \(before?.value ?? "not known") before, now \(value)"
    case .dependencies, .pressure: return "\(name): \(before?.value ?? "not known") before, now \(value)"
    }
  }
}

// MARK: - On disk

extension ChangeHistory {
  private static let title = "guardian health 1"

  package func encoded() -> [UInt8] {
    SealedLines.encode(
      Self.title,
      [[String(runs), String(startedAt.nanoseconds), String(settledAt.nanoseconds)]]
        + items.map { known in
          [
            known.item.group.rawValue, known.item.name, known.item.value, known.item.look,
            known.item.since.map { String($0.nanoseconds) } ?? "", String(known.changes),
          ] + known.past
        })
  }

  /// Nil for anything but an encoded history. Groups of a later guardian are left out.
  package init?(_ bytes: [UInt8]) {
    guard let lines = SealedLines.decode(Self.title, bytes), let head = lines.first, head.count >= 3,
      let runs = Int(head[0]), let started = Int64(head[1]), let settled = Int64(head[2])
    else { return nil }
    self.runs = min(max(runs, 0), Self.mostRuns)
    startedAt = WallTime(nanoseconds: started)
    settledAt = WallTime(nanoseconds: settled)
    for line in lines.dropFirst().prefix(Self.mostItems) where line.count >= 6 {
      guard let group = StateItem.Group(rawValue: line[0]) else { continue }
      let since = Int64(line[4]).map { WallTime(nanoseconds: $0) }
      var known = Known(item: StateItem(group, line[1], line[2], look: line[3], since: since))
      known.changes = min(max(Int(line[5]) ?? 0, 0), Self.mostRuns)
      known.past = Array(line.dropFirst(6).suffix(Self.mostPast))
      items.append(known)
    }
  }
}
