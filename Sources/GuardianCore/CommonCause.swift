import GuardianModel

// Several services that had been well and begin to loop at once have most likely one reason, which is none of theirs: a
// full disk, a network that is gone. Repairs, safe mode and quarantine would be wrong then, one service after the other.
//
// A service counts once it has been settled since guardian's start (or was adopted settled); it begins to loop with its
// first strike since it was settled last, or with what would have quarantined it at once. When enough of them have begun
// within a short time, nothing is a strike and nothing moves up until the freeze is over: restarts go on, with backoff.

struct CommonCauseWatch: Sendable {
  private(set) var spec: CommonCauseSpec?
  /// While the freeze lasts.
  private(set) var current: CommonCause?
  private var marks: [Marks] = []
  private var settledOnes = 0
  /// Who has begun to loop lately, in the order in which they did.
  private var recent: [(at: Instant, service: Int)] = []

  private struct Marks: OptionSet {
    var rawValue: UInt8
    static let settled = Marks(rawValue: 1), looping = Marks(rawValue: 2)
  }

  /// - Returns: True if a freeze has ended by it.
  mutating func set(_ spec: CommonCauseSpec?) -> Bool {
    self.spec = spec
    guard spec == nil else { return false }
    recent = []
    return end()
  }

  func isFrozen(_ now: BootInstant) -> Bool { current.map { now < $0.until } ?? false }

  /// It loops now, and had been settled.
  func isLooping(_ service: Int) -> Bool { marks.indices.contains(service) && marks[service].contains(.looping) }

  mutating func settled(_ service: Int) {
    while marks.count <= service { marks.append([]) }
    if marks[service].contains(.looping) { recent.removeAll { $0.service == service } }
    if !marks[service].contains(.settled) { settledOnes += 1 }
    marks[service] = .settled
  }

  mutating func forget(_ service: Int) {
    guard marks.indices.contains(service), marks[service].contains(.settled) else { return }
    recent.removeAll { $0.service == service }
    marks[service] = []
    settledOnes -= 1
  }

  /// - Returns: Those whose common trouble has just been noticed; nil: none.
  mutating func beganToLoop(_ service: Int, now: Now) -> [Int]? {
    guard marks.indices.contains(service), marks[service] == .settled else { return nil }
    marks[service].insert(.looping)
    guard let spec, !isFrozen(now.boot) else { return nil }
    recent.removeFirst(recent.prefix { now.monotonic - $0.at > spec.within }.count)
    recent.append((now.monotonic, service))
    guard recent.count >= spec.services, recent.count * 4 >= settledOnes else { return nil }
    let found = recent.map(\.service)
    recent = []
    return found
  }

  mutating func begin(_ services: [ServiceName], now: Now) -> CommonCause {
    let cause = CommonCause(
      since: now.wall, until: now.boot + (spec ?? CommonCauseSpec()).freeze, services: services, settled: settledOnes)
    current = cause
    return cause
  }

  /// Goes on with what an earlier guardian has noticed.
  mutating func resume(_ cause: CommonCause, now: BootInstant) {
    if spec != nil, now < cause.until { current = cause }
  }

  /// - Returns: False if there was none.
  mutating func end() -> Bool {
    guard current != nil else { return false }
    current = nil
    return true
  }
}
