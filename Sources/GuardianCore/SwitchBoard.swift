import GuardianModel

/// The switches of this host, which of them are in force, and when they end.
///
/// A time in a file is one of the wall clock, which may be set. So an end comes when both clocks say so: the wall clock, and
/// the boot clock by what was left when the switch was last seen to be in force. Where the wall clock has leapt over the end,
/// the switch stays for another ten minutes, in which the clock may be set right again; where it was set back, the switch
/// stays for as long as the wall clock says. What is turned off for a reason is rather off for too long than on too soon.
struct SwitchBoard: Hashable, Sendable {
  private struct Entry: Hashable, Sendable {
    var value: Switch
    /// By the boot clock; nil: it has no end.
    var due: BootInstant?
  }
  private var entries: [Entry] = []
  /// As long as a leap of the wall clock is not believed.
  static let doubt = Duration.minute * 10

  enum News: Hashable, Sendable {
    case inForce(Switch)
    case over(Switch, why: String)
  }

  /// In force, by the files' names.
  var inForce: [Switch] { entries.map(\.value) }
  var isEmpty: Bool { entries.isEmpty }

  func switches(of spec: ServiceSpec) -> Switches {
    guard !entries.isEmpty else { return .none }
    let all = entries.lazy.map(\.value).filter { $0.concerns(spec.name, in: spec.groups) }
    return all.isEmpty ? .none : Switches(Array(all))
  }

  /// When `passTime` has something to do.
  var nextDue: BootInstant? { entries.lazy.compactMap(\.due).min() }

  /// These are there now.
  ///
  /// - Parameter switches: One for each file.
  mutating func set(_ switches: [Switch], now: Now) -> [News] {
    var news: [News] = []
    var next: [Entry] = []
    for value in switches.sorted(by: { $0.file < $1.file }) {
      let before = entries.first { $0.value.file == value.file }
      if let before, before.value == value {
        next.append(before)
        continue
      }
      if let until = value.until, until <= now.wall {
        if let before { news.append(.over(before.value, why: "it has ended")) }
        continue
      }
      next.append(Entry(value: value, due: Self.due(value, now)))
      news.append(.inForce(value))
    }
    for before in entries where !switches.contains(where: { $0.file == before.value.file }) {
      news.append(.over(before.value, why: "its file is gone"))
    }
    entries = next
    return news + passTime(now: now)
  }

  /// Ends what is over. To be called each time that anything is about to be decided.
  mutating func passTime(now: Now) -> [News] {
    guard entries.contains(where: { $0.due != nil }) else { return [] }
    var news: [News] = []
    var left: [Entry] = []
    for var entry in entries {
      guard let until = entry.value.until, let due = entry.due else {
        left.append(entry)
        continue
      }
      if now.wall < until {
        entry.due = Self.due(entry.value, now)
      } else if now.boot >= due {
        news.append(.over(entry.value, why: "its time is over"))
        continue
      } else {
        entry.due = min(due, now.boot + Self.doubt)
      }
      left.append(entry)
    }
    entries = left
    return news
  }

  private static func due(_ value: Switch, _ now: Now) -> BootInstant? {
    value.until.map {
      now.boot + .nanoseconds(max(0, $0.nanoseconds.subtractingSaturating(now.wall.nanoseconds)))
    }
  }
}
