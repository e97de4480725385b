import GuardianModel

// How fast services are started, all of them together: a bucket of tokens for the rate, and a bound on the starts that
// are under way. What may not start yet waits in a line; waiting is a phase, and in no window, time-out or strike.
//
// A start is *under way* from the decision to start, before-start included, until the run is ready (`ready: none`: has come to its exec), has
// ended, or was called off; and no longer than ten seconds, so that programs which take minutes to become ready, or wait
// for one another, hold up nobody for ever.
//
// Whoever is first in the highest rank that has anybody goes first; every eighth start is given to whoever has waited
// longest, whatever the rank, so that no rank starves. An eighth of the places is kept for the urgent ranks: a healthy
// service that has died is back at once, though sixty-four others take their time to become ready.
//
// Nothing is waited for as long as neither bound is reached, and no record is written for the wait: a guardian that
// comes back finds the service as it was before, and starts it as it starts everything that is wanted.

/// Who goes before whom.
enum StartRank: Int, Hashable, Sendable, CaseIterable {
  /// Asked for by an operator.
  case order
  /// A restart at once after a late death.
  case restart
  /// Wanted, and without trouble so far: at boot, after a reload, after a hold.
  case fresh
  /// After a strike, from quarantine, or with anything else that a restart has not cured.
  case troubled

  var urgent: Bool { self <= .restart }
  static func <= (a: Self, b: Self) -> Bool { a.rawValue <= b.rawValue }
}

/// What a machine that wants to start is to the governor; it falls out of the machine's state.
enum StartStanding: Hashable, Sendable {
  case none
  case underWay
  /// `handicap`: stands in line as if it had come so much later.
  case waits(StartRank, handicap: Duration)
}

struct Governor: Sendable {
  /// Nil: off.
  private(set) var spec: GovernorSpec?
  /// The tokens, as the moment at which the bucket will be full again (CLOCK_MONOTONIC, ns).
  private var fullAt = Int64.min
  /// Starts under way, by when they count no more.
  private var underWay = DeadlineQueue()
  /// By rank; the earliest has waited longest.
  private var lines = StartRank.allCases.map { _ in DeadlineQueue() }
  private(set) var waiting = 0
  /// Starts given to somebody in line.
  private var turns = 0

  /// How long a start may count as under way.
  static let placeTime = Duration.seconds(10)
  /// Every so many starts from the line one goes to whoever has waited longest.
  static let fairness = 8
  private static let share = 8

  /// What a start may do in one turn.
  struct Allowance: Hashable, Sendable {
    var urgent: Bool, other: Bool
    static let unlimited = Allowance(urgent: true, other: true)
    func admits(_ rank: StartRank) -> Bool { rank.urgent ? urgent : other }
  }

  mutating func set(_ spec: GovernorSpec?, now: Instant) {
    guard spec != self.spec else { return }
    self.spec = spec
    // No debt from before is larger than the new bucket.
    if let spec { fullAt = min(fullAt, now.nanoseconds.addingSaturating(Self.depth(spec))) }
    if spec == nil { underWay = DeadlineQueue() }
  }

  // MARK: Tokens and places

  private static func interval(_ spec: GovernorSpec) -> Int64 { 1_000_000_000 / Int64(max(1, spec.startsPerSecond)) }
  /// The time that a whole bucket takes to fill.
  private static func depth(_ spec: GovernorSpec) -> Int64 { interval(spec) * Int64(max(1, spec.startsPerSecond)) }

  /// When there is a token.
  private func tokenAt(_ spec: GovernorSpec) -> Int64 {
    fullAt.addingSaturating(Self.interval(spec)).subtractingSaturating(Self.depth(spec))
  }

  private func freePlaces(_ spec: GovernorSpec) -> Int { max(1, spec.concurrent) - underWay.count }
  private func kept(_ spec: GovernorSpec) -> Int { max(1, spec.concurrent) / Self.share }

  private mutating func letGoOfOld(_ now: Instant) {
    while let (due, service) = underWay.first, due <= now.nanoseconds { underWay.set(nil, for: service) }
  }

  /// What may start now without standing in line. Nobody overtakes those who do.
  mutating func allowance(now: Instant) -> Allowance {
    guard let spec else { return .unlimited }
    letGoOfOld(now)
    guard tokenAt(spec) <= now.nanoseconds else { return Allowance(urgent: false, other: false) }
    let free = freePlaces(spec)
    let urgentWait = waiting > 0 && !(lines[0].isEmpty && lines[1].isEmpty)
    return Allowance(urgent: free > 0 && !urgentWait, other: free > kept(spec) && waiting == 0)
  }

  /// Starts that it would allow at once, beside those under way; nil: off.
  mutating func state(now: Instant) -> (tokens: Int, waiting: Int, underWay: Int)? {
    guard let spec else { return nil }
    letGoOfOld(now)
    let missing = max(0, fullAt.subtractingSaturating(now.nanoseconds))
    let tokens = max(0, Self.depth(spec) - min(missing, Self.depth(spec))) / Self.interval(spec)
    return (Int(tokens), waiting, underWay.count)
  }

  // MARK: After a turn

  /// - Parameter starts: How many starts the machine has decided in the turn.
  mutating func noted(_ standing: StartStanding, starts: Int, of service: Int, now: Instant) {
    if let spec, starts > 0 {
      fullAt = max(fullAt, now.nanoseconds).addingSaturating(Self.interval(spec) * Int64(starts))
    }
    switch standing {
    case .none:
      leave(service)
      underWay.set(nil, for: service)
    case .underWay:
      leave(service)
      if spec != nil, starts > 0 { underWay.set((now + Self.placeTime).nanoseconds, for: service) }
    case .waits(let rank, let handicap):
      underWay.set(nil, for: service)
      if lines[rank.rawValue].contains(service) { return }
      leave(service)
      lines[rank.rawValue].set((now + handicap).nanoseconds, for: service)
      waiting += 1
    }
  }

  mutating func leave(_ service: Int) {
    guard waiting > 0 else { return }
    for rank in lines.indices where lines[rank].contains(service) {
      lines[rank].set(nil, for: service)
      waiting -= 1
      // Room for thousands is kept only as long as somebody waits.
      if lines[rank].isEmpty { lines[rank] = DeadlineQueue() }
    }
  }

  // MARK: The line

  /// Who may start now; out of the line by the call.
  mutating func next(now: Instant) -> Int? {
    guard waiting > 0 else { return nil }
    var ranks = lines.count
    if let spec {
      letGoOfOld(now)
      guard tokenAt(spec) <= now.nanoseconds else { return nil }
      let free = freePlaces(spec)
      guard free > 0 else { return nil }
      if free <= kept(spec) { ranks = StartRank.restart.rawValue + 1 }
    }
    let heads = lines[..<ranks].compactMap(\.first)
    let longest = turns % Self.fairness == Self.fairness - 1
    guard let chosen = longest ? heads.min(by: { ($0.due, $0.service) < ($1.due, $1.service) }) : heads.first else {
      return nil
    }
    turns += 1
    leave(chosen.service)
    return chosen.service
  }

  /// When somebody in line may start, if nothing else happens before.
  var nextDue: Instant? {
    guard waiting > 0, let spec else { return nil }
    let token = tokenAt(spec), free = freePlaces(spec)
    let urgentWait = !(lines[0].isEmpty && lines[1].isEmpty)
    if free > kept(spec) || (urgentWait && free > 0) { return Instant(nanoseconds: token) }
    return Instant(nanoseconds: max(token, underWay.first?.due ?? token))
  }
}

// MARK: - The machine's side

extension ServiceMachine {
  /// Stands in line for its start.
  struct InLine: Hashable, Sendable {
    var rank: StartRank
    var byOperator: Bool
  }

  /// - Parameter late: After a late death within the budget.
  private func rank(of kind: RunKind, late: Bool, byOperator: Bool) -> StartRank {
    if byOperator || careful { return .order }
    if late { return .restart }
    return record.strikes > 0 || record.triesOnStep > 0 || record.step > .restart || kind == .trial ? .troubled : .fresh
  }

  /// True where the start has been put off until the governor gives way.
  mutating func mustStandInLine(_ kind: RunKind, late: Bool, byOperator: Bool, _ turn: inout Turn) -> Bool {
    let rank = rank(of: kind, late: late, byOperator: byOperator)
    if turn.allowance.admits(rank) {
      turn.starts += 1
      return false
    }
    inLine = InLine(rank: rank, byOperator: byOperator || careful)
    phase = .waiting(retryAt: .distantFuture, delay: .zero, kind: kind)
    return true
  }

  /// It is this service's turn to start.
  mutating func startFromLine(_ turn: inout Turn) {
    let before = phase.name
    if case .waits = startStanding, let place = inLine, case .waiting(_, _, let kind) = phase {
      careful = true  // it has come through that gate, or has gone past it
      start(kind, byOperator: place.byOperator, &turn)
    }
    finish(turn: &turn, phaseBefore: before)
  }

  var startStanding: StartStanding {
    switch phase {
    case .starting: return .underWay
    case .waiting:
      guard let inLine, mayStart || (inLine.byOperator && mayStartByOrder) else { return .none }
      let tries = inLine.rank == .troubled ? min(max(record.strikes, record.triesOnStep), 60) : 0
      return .waits(inLine.rank, handicap: .seconds(tries))
    // The start has been given, and before-start comes first.
    case .repairing: return isPreparing ? .underWay : .none
    case .stopped, .finished, .running, .backingOff, .stopping, .quarantined: return .none
    }
  }

  /// A hold keeps guardian from starting it, and not the operator.
  private var mayStartByOrder: Bool { record.wanted == .up && !shuttingDown && !removed }

  /// For status.
  var lineReason: String {
    guard case .waits = startStanding else { return "" }
    return "governor: waits for its turn to start"
  }
}
