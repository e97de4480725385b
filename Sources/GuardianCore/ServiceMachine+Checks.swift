package import GuardianModel

// Health checks: when each is probed, what a probe counts for, and when a run has to go because of them.
//
// A check begins unknown with every run. `successes` good probes in a row make it passing, `failures` bad ones failing.
// Failing is a verdict, which ends the run, once the check has passed in this run, or once the startup window is over;
// before that it has no say. With `ready: check` the run is ready when all pass, and `start-timeout` speaks until then.
// A run whose window is over settles when all pass, and not before.
//
// A probe that could not be made is guardian's trouble: it counts for nothing, and neither readiness nor settling waits
// for it any longer than for the others. A bad probe during which the clocks stood counts for nothing either.

extension ServiceMachine {
  /// The checks of one run.
  package struct Health: Hashable, Sendable {
    package let run: RunID
    /// In the order of the file.
    package var checks: [Check] = []
    /// The startup window is over, and the run waits for its checks to settle.
    package var awaited = false
    init(run: RunID) { self.run = run }
  }

  package struct Check: Hashable, Sendable {
    package let spec: CheckSpec
    /// It confirms that plugins are off, and has no other say.
    let confirms: Bool
    package var state = CheckState.unknown
    package var since: WallTime
    /// It has been passing at some time of this run.
    package var hasPassed = false
    /// Probes in a row, counted up to what makes a difference.
    package var good = 0, bad = 0
    /// Of the last probe.
    package var text = ""
    /// The last probe could not be made.
    package var notMade = false
    package var dueAt: Instant
    /// The number of the probe that is under way.
    package var probe: UInt64?
    /// The clocks stood meanwhile: a bad end of it counts for nothing.
    package var disturbed = false
    init(_ spec: CheckSpec, confirms: Bool, since: WallTime, dueAt: Instant) {
      self.spec = spec
      self.confirms = confirms
      self.since = since
      self.dueAt = dueAt
    }
    var unhealthy: Bool { !confirms && state == .failing && bad >= spec.failures }
    /// Nothing waits for it any more.
    var isGoodEnough: Bool { confirms || state == .passing || notMade && state == .unknown }
  }

  /// The run whose checks have, or may come to have, a say.
  private var checkedRun: Run? {
    guard !spec.checks.isEmpty, !removed, !shuttingDown else { return nil }
    switch phase {
    case .starting(let run): return run.stage == .up && spec.ready == .check ? run : nil
    case .running(let run): return run.stage == .up ? run : nil
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: return nil
    }
  }

  /// When the next probe is due.
  var nextProbeAt: Instant? {
    guard let health else { return nil }
    var next: Instant?
    for check in health.checks where check.probe == nil { next = min(next ?? check.dueAt, check.dueAt) }
    return next
  }

  /// Settling waits for a check.
  var settlingIsPutOff: Bool { health?.awaited ?? false }

  /// At the end of every turn: checks come and go with the run and with the definition, and what is due is probed.
  mutating func tendChecks(_ turn: inout Turn) {
    guard let run = checkedRun else {
      guard let health else { return }
      let unfinished = health.checks.compactMap(\.probe)
      if !unfinished.isEmpty { turn.actions.append(.endProbes(health.run, unfinished)) }
      self.health = nil
      // A definition without checks: nothing is to be waited for.
      if health.awaited, case .running(let run) = phase, run.id == health.run, run.stage == .up { lookAt(run, &turn) }
      return
    }
    if health?.run != run.id {
      let unfinished = health?.checks.compactMap(\.probe) ?? []
      if let old = health?.run, !unfinished.isEmpty { turn.actions.append(.endProbes(old, unfinished)) }
      health = Health(run: run.id)
    }
    let wanted = checksToProbe(run)
    if let health, !health.checks.elementsEqual(wanted, by: { $0.spec == $1 && $0.confirms == isConfirmation($1) }) {
      takeUpChecks(wanted, of: run, before: health, &turn)
    }
    probeWhatIsDue(&turn)
  }

  /// What is defined as before keeps what is known of it.
  private mutating func takeUpChecks(_ wanted: [CheckSpec], of run: Run, before: Health, _ turn: inout Turn) {
    var after: [Check] = []
    for spec in wanted {
      let confirms = isConfirmation(spec)
      if let same = before.checks.first(where: { $0.spec == spec && $0.confirms == confirms }) {
        after.append(same)
        continue
      }
      // Soon, since readiness and settling wait for it; a settled run, as after an upgrade of guardian, can wait.
      let share = turn.random.share()
      let wait = run.settled ? spec.every * share : Self.soon(spec) * (0.1 + 0.9 * share)
      after.append(Check(spec, confirms: confirms, since: turn.now.wall, dueAt: turn.now.monotonic + wait))
    }
    let kept = after.compactMap(\.probe)
    let unfinished = before.checks.compactMap(\.probe).filter { !kept.contains($0) }
    if !unfinished.isEmpty { turn.actions.append(.endProbes(run.id, unfinished)) }
    health?.checks = after
    checksMayHold(&turn)
  }

  private static func soon(_ spec: CheckSpec) -> Duration { min(spec.every, .seconds(1)) }

  private mutating func probeWhatIsDue(_ turn: inout Turn) {
    guard let health else { return }
    let now = turn.now.monotonic
    var starting = false
    if case .starting = phase { starting = true }
    for index in health.checks.indices where health.checks[index].probe == nil && now >= health.checks[index].dueAt {
      lastProbe += 1
      let spec = health.checks[index].spec
      // Somebody waits for the service to be ready: it is asked more often until it is.
      let pace = starting ? Self.soon(spec) : spec.every
      self.health?.checks[index].probe = lastProbe
      self.health?.checks[index].disturbed = false
      self.health?.checks[index].dueAt = now + pace * (0.95 + 0.1 * turn.random.share())
      turn.actions.append(.probe(ProbeRequest(run: health.run, number: lastProbe, check: spec)))
    }
  }

  mutating func probed(_ run: RunID, number: UInt64, _ result: ProbeResult, _ turn: inout Turn) {
    guard let health, health.run == run, let index = health.checks.firstIndex(where: { $0.probe == number }) else {
      return
    }
    var check = health.checks[index]
    let now = turn.now
    let before = check.state
    check.probe = nil
    // One that takes longer than its period leaves a little room to the next.
    check.dueAt = max(check.dueAt, now.monotonic + Self.soon(check.spec) * 0.1)
    switch result {
    case .notMade(let text):
      check.notMade = true
      check.text = text
      check.dueAt = max(check.dueAt, now.monotonic + max(.seconds(1), Self.soon(check.spec)))
    case .failed where check.disturbed: break
    case .failed(let text):
      check.notMade = false
      check.text = text
      check.good = 0
      check.bad = min(check.bad + 1, check.spec.failures)
      if check.bad >= check.spec.failures { check.state = .failing }
    case .passed(let text):
      check.notMade = false
      check.text = text
      check.bad = 0
      check.good = min(check.good + 1, check.spec.successes)
      if check.good >= check.spec.successes {
        check.state = .passing
        check.hasPassed = true
      }
    }
    check.disturbed = false
    if check.state != before {
      check.since = now.wall
      if !check.confirms, check.state == .failing || before == .failing {
        note(
          .check(run: run, name: check.spec.name, passing: check.state == .passing, said: check.text), &turn)
      }
    }
    self.health?.checks[index] = check
    if check.confirms, check.state == .passing { pluginsConfirmed(run, &turn) }
    if case .running(let current) = phase, current.id == run, check.unhealthy, !held,
      check.hasPassed || current.settled || health.awaited
    {
      return unhealthy(current, check, &turn)
    }
    checksMayHold(&turn)
  }

  /// All that waits for checks goes on once they hold.
  private mutating func checksMayHold(_ turn: inout Turn) {
    guard let health, health.checks.allSatisfy(\.isGoodEnough) else { return }
    switch phase {
    case .starting(let run):
      // Not by what could not be looked at; the start time-out tells when that is enough.
      if spec.ready == .check, health.checks.allSatisfy({ $0.confirms || $0.state == .passing }) {
        becameReady(run.id, &turn)
      }
    case .running(let run):
      guard health.awaited else { return }
      self.health?.awaited = false
      reason = ""
      lookAt(run, &turn)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: break
    }
  }

  private mutating func unhealthy(_ run: Run, _ check: Check, _ turn: inout Turn) {
    let times = check.spec.failures == 1 ? "failed" : "failed \(check.spec.failures) times"
    fault(
      run, .check, signal: spec.stop.signal, detail: "\(check.spec.name) \(times): \(check.text)", &turn)
  }

  /// The startup window is over. A check that is failing has a say now; one of which too little is known is waited for.
  mutating func windowPassed(_ run: Run, _ turn: inout Turn) {
    guard let health, !health.checks.allSatisfy(\.isGoodEnough) else { return lookAt(run, &turn) }
    if waitsAsProbe(run, turn.now.monotonic) { return }
    if !held, let check = health.checks.first(where: \.unhealthy) { return unhealthy(run, check, &turn) }
    waitForChecks(health)
  }

  /// The probe window is over. Before the startup window is, a check that has not passed has no say: it is waited for.
  private mutating func waitsAsProbe(_ run: Run, _ now: Instant) -> Bool {
    guard run.kind == .probe, let ready = run.readyAt, now < ready + spec.startupWindow else { return false }
    var run = run
    run.settlesAt = min(ready + spec.startupWindow, now + Self.lookAgain)
    run.lookAgainAt = nil
    phase = .running(run)
    return true
  }

  private mutating func waitForChecks(_ health: Health) {
    self.health?.awaited = true
    let waited = health.checks.filter { !$0.isGoodEnough }.map { "\($0.spec.name) is \($0.state.rawValue)" }
    reason = "the startup window is over, but check " + waited.joined(separator: ", check ")
  }

  /// The run was seen alive; whether its checks allow it to settle. If not, they are waited for.
  mutating func checksAllowSettling(_ run: inout Run, _ now: Instant) -> Bool {
    guard let health, health.run == run.id, !health.checks.allSatisfy(\.isGoodEnough) else { return true }
    if waitsAsProbe(run, now) {
      if let waiting = phase.run { run = waiting }
      return false
    }
    run.lookAgainAt = nil
    waitForChecks(health)
    return false
  }

  /// With `ready: check`, at the start time-out: those that could be looked at have passed, and the others nobody can tell.
  var isReadyAsFarAsKnown: Bool {
    guard spec.ready == .check, let health else { return false }
    return health.checks.allSatisfy(\.isGoodEnough)
  }

  /// For a start time-out: which check it was.
  var unreadyDetail: String {
    guard spec.ready == .check, let check = health?.checks.first(where: { !$0.confirms && $0.state != .passing })
    else { return "" }
    return "check \(check.spec.name)" + (check.text.isEmpty ? " has not been answered" : ": \(check.text)")
  }

  /// The clocks stood, or guardian did not run: no probe is held against anybody, and all get a moment.
  mutating func checksResumed(_ turn: inout Turn) {
    guard let health else { return }
    for index in health.checks.indices {
      self.health?.checks[index].disturbed = health.checks[index].probe != nil
      let moment = turn.now.monotonic + Self.soon(health.checks[index].spec) * turn.random.share()
      self.health?.checks[index].dueAt = max(health.checks[index].dueAt, moment)
    }
  }

  /// What failed during a hold has to fail again.
  mutating func checksHeldNoLonger() {
    for index in health?.checks.indices ?? 0..<0 { health?.checks[index].bad = 0 }
  }

  /// For `status`.
  var checkStatuses: [CheckStatus] {
    (health?.checks ?? []).map {
      CheckStatus(
        name: $0.spec.name, kind: $0.spec.kind.name, state: $0.state, since: $0.since, text: $0.text,
        failures: $0.bad)
    }
  }
}

extension ServiceSpec {
  /// Its exec is all there is to wait for.
  package var isReadyAtOnce: Bool { ready == .none || ready == .check && checks.isEmpty }
}
