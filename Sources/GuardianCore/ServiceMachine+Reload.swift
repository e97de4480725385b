import GuardianModel

// The service's own reload, and what else a living run says of itself.
//
// A reload is asked for by an operator (a signal, or a command that guardian runs), or done by the service by itself:
// RELOADING=1, later READY=1. It is no phase: whatever becomes of it, the run is running, and it never counts as a crash.
// Its end is: the command has ended, and of a service that tells of its reloads also READY=1. What is not over when its
// time is has failed, and the service runs on.

extension ServiceMachine {
  struct Reload: Hashable, Sendable {
    let run: RunID
    /// Asked for; else the service does it by itself.
    let ordered: Bool
    let since: Instant
    /// It is given up then.
    var until: Instant
    /// The command.
    var hook: Hook?
    var failure: String?
    /// RELOADING=1 has been heard, and READY=1 has not.
    var announced = false
    /// READY=1 has been heard.
    var answered = false
    /// A service that tells of its reloads may still begin to until then.
    var quietUntil: Instant?
    /// Asked for once more: what has changed meanwhile is to be read too.
    var again = false

    struct Hook: Hashable, Sendable {
      let id: RunID
      var process: ProcessIdentity?
      var stage: Stage
      enum Stage: Hashable, Sendable {
        /// Left by an earlier instance of guardian.
        case adopting
        case running
        case terminated(killAt: Instant)
        case killed
      }
    }
  }

  /// How long a service that tells of its reloads has for its first word of one.
  static let reloadGrace = Duration.seconds(1)
  /// How long one that tells of nothing is watched: whoever does not expect the signal dies of it, which is no reload.
  static let survival = Duration.milliseconds(250)

  // MARK: Orders

  mutating func orderReload(_ turn: inout Turn) -> Expectation {
    guard !shuttingDown, !removed else { return .inVain(reason: goingDown) }
    guard let how = spec.reload else {
      return .inVain(reason: "it has no reload: its file does not say 'reload:'; 'restart' reads everything anew")
    }
    let why: String
    switch phase {
    case .running(let run):
      guard run.stage == .up else { return .inVain(reason: "it is just being taken over; try again") }
      guard reload == nil else {
        reload?.again = true
        return .reloaded(note: "after the reload that was under way", after: 1)
      }
      beginReload(how, of: run, &turn)
      if reload != nil { return .reloaded(note: "", after: 0) }
      return .accepted(note: "")
    case .starting: why = "it is not ready yet"
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined:
      why = "it is \(phase.name.rawValue)"
    }
    return .inVain(reason: "only what runs can reload, and \(why)")
  }

  private mutating func beginReload(_ how: ReloadSpec, of run: Run, _ turn: inout Turn) {
    let now = turn.now.monotonic
    var new = Reload(run: run.id, ordered: true, since: now, until: now + spec.startTimeout)
    reloadFailure = nil
    note(.reloading(run: run.id, ordered: true), &turn)
    switch how {
    case .signal(let signal):
      turn.actions.append(.reload(run.id, signal))
      new.quietUntil = now + (tellsOfReloads ? Self.reloadGrace : Self.survival)
    case .command:
      let id = turn.random.runID()
      new.hook = Reload.Hook(id: id, process: nil, stage: .running)
      turn.actions.append(.runHook(reloadRequest(id, of: run)))
    }
    reload = new
    reloadWentOn(&turn)
  }

  private var tellsOfReloads: Bool { spec.ready == .notify }

  /// The command as it is given to the shell, and as it is looked for by a later guardian.
  func reloadRequest(_ id: RunID, of run: Run) -> HookRequest {
    var command: [String] = []
    if case .command(let words)? = spec.reload { command = words }
    var context = hookContext(reason: "reload")
    context.mainPid = run.pid
    return HookRequest(
      id: id, purpose: .reload, kind: .run(command), identity: nil, timeout: spec.startTimeout, context: context)
  }

  // MARK: Its course

  /// Over as soon as nothing is waited for any more.
  private mutating func reloadWentOn(_ turn: inout Turn) {
    guard let current = reload, current.hook == nil else { return }
    if let failure = current.failure { return endReload(failure, &turn) }
    if !current.announced, current.quietUntil == nil { endReload(nil, &turn) }
  }

  private mutating func endReload(_ failure: String?, _ turn: inout Turn) {
    guard let ended = reload else { return }
    reload = nil
    reloadFailure = failure
    note(failure.map { .reloadFailed(run: ended.run, why: $0) } ?? .reloaded(run: ended.run), &turn)
    turn.milestones.append(.reloaded(failure: failure))
    guard ended.again else { return }
    if let how = spec.reload, case .running(let run) = phase { return beginReload(how, of: run, &turn) }
    turn.milestones.append(.reloadsOver("it has no reload any more"))
  }

  /// Whatever ended the run ends its reload; at the end of each turn.
  mutating func letGoOfReload(_ turn: inout Turn) {
    guard reload != nil || reloadFailure != nil else { return }
    if case .running(let run) = phase, reload.map({ $0.run == run.id }) ?? true { return }
    reloadFailure = nil
    guard let current = reload else { return }
    reload = nil
    if let hook = current.hook, hook.stage != .adopting { turn.actions.append(.signalHook(hook.id, .kill)) }
    let why = "the run came to its end meanwhile"
    note(.reloadFailed(run: current.run, why: why), &turn)
    turn.milestones.append(.reloadsOver(why))
  }

  /// RELOADING=1.
  ///
  /// - Parameter stamp: MONOTONIC_USEC, if it said so.
  mutating func saidReloading(_ id: RunID, stamp: Instant?, _ turn: inout Turn) {
    guard case .running(let run) = phase, run.id == id, run.stage == .up else { return }
    let now = turn.now.monotonic
    if var current = reload {
      // It was at it before it was asked: that one has a READY=1 of its own.
      if current.announced || (stamp.map { $0 < current.since } ?? false) { return }
      current.announced = true
      current.quietUntil = nil
      current.until = max(current.until, now + spec.startTimeout)
      reload = current
      return
    }
    var new = Reload(run: id, ordered: false, since: now, until: now + spec.startTimeout)
    new.announced = true
    reload = new
    reloadFailure = nil
    note(.reloading(run: id, ordered: false), &turn)
  }

  /// READY=1 of a run that is ready already.
  mutating func saidReadyAgain(_ id: RunID, _ turn: inout Turn) {
    guard var current = reload, current.run == id, current.announced else { return }
    current.announced = false
    current.answered = true
    reload = current
    reloadWentOn(&turn)
  }

  /// - Returns: False if it is no reload's command that has ended.
  mutating func reloadHookEnded(_ id: RunID, _ result: HookResult, _ turn: inout Turn) -> Bool {
    guard var current = reload, current.hook?.id == id else { return false }
    current.hook = nil
    if result != .succeeded {
      current.failure = current.failure ?? "the command \(result.reloadDescription)"
    } else if tellsOfReloads, !current.announced, !current.answered {
      // What it was told by a signal it has still to begin.
      current.quietUntil = turn.now.monotonic + Self.reloadGrace
    }
    reload = current
    reloadWentOn(&turn)
    return true
  }

  /// - Returns: False if it is no reload's command.
  mutating func reloadHookStarted(_ id: RunID, _ process: ProcessIdentity) -> Bool {
    guard reload?.hook?.id == id else { return false }
    reload?.hook?.process = process
    return true
  }

  /// - Returns: False if it is no reload's command.
  mutating func reloadHookAdopted(_ id: RunID, _ process: ProcessIdentity, _ turn: inout Turn) -> Bool {
    guard var current = reload, current.hook?.id == id else { return false }
    current.hook?.process = process
    current.hook?.stage = .running
    if current.failure != nil {
      turn.actions.append(.signalHook(id, .term))
      current.hook?.stage = .terminated(killAt: turn.now.monotonic + Self.hookPatience)
    }
    reload = current
    return true
  }

  /// The run has been adopted. What it may have said while nobody listened is not known.
  mutating func reloadAdopted(readinessKnown: Bool, _ turn: inout Turn) {
    guard var current = reload else { return }
    current.until = current.until + absence
    current.quietUntil = current.quietUntil.map { $0 + absence }
    if !readinessKnown, current.announced || current.quietUntil != nil {
      current.announced = false
      current.quietUntil = nil
      current.failure = current.failure ?? "how it went is not known, guardian was away when it may have said so"
    }
    reload = current
    reloadWentOn(&turn)
  }

  /// What tells one state of a reload from another, without its times; empty: none.
  package var reloadState: [Int] {
    guard let reload else { return [] }
    let stage =
      switch reload.hook?.stage {
      case nil: 0
      case .adopting: 1
      case .running: 2
      case .terminated: 3
      case .killed: 4
      }
    return [
      stage, reload.ordered ? 1 : 0, reload.announced ? 1 : 0, reload.answered ? 1 : 0,
      reload.quietUntil == nil ? 0 : 1,
      reload.failure == nil ? 0 : 1, reload.again ? 1 : 0,
    ]
  }

  // MARK: Time

  /// The next moment at which `reloadDeadlinePassed` does something.
  var reloadDeadline: Instant? {
    guard let current = reload else { return nil }
    switch current.hook?.stage {
    case .adopting, .killed: return nil
    case .terminated(let killAt): return killAt
    case .running: return current.until
    case nil: return current.quietUntil.map { min($0, current.until) } ?? current.until
    }
  }

  mutating func reloadDeadlinePassed(_ turn: inout Turn) {
    guard var current = reload, let due = reloadDeadline, turn.now.monotonic >= due else { return }
    let now = turn.now.monotonic
    switch current.hook?.stage {
    case .adopting, .killed: return
    case .terminated:
      if let hook = current.hook { turn.actions.append(.signalHook(hook.id, .kill)) }
      current.hook?.stage = .killed
    case .running:
      if let hook = current.hook { turn.actions.append(.signalHook(hook.id, .term)) }
      current.hook?.stage = .terminated(killAt: now + Self.hookPatience)
      current.failure = "the command did not end within \((now - current.since).rounded.description)"
    case nil:
      // Whichever time is over, it has begun nothing that would have an end.
      if current.quietUntil != nil {
        current.quietUntil = nil
      } else {
        current.announced = false
        current.failure = "it did not say READY=1 within \((now - current.since).rounded.description)"
      }
    }
    reload = current
    reloadWentOn(&turn)
  }

  // MARK: - Other words of a living run

  /// STOPPING=1: it goes by itself, and has as long for it as if it had been told to.
  mutating func saidStopping(_ id: RunID, _ turn: inout Turn) {
    switch phase {
    case .starting(let run), .running(let run):
      guard run.id == id, run.stage == .up else { return }
      note(.leaving(run: id), &turn)
      let purpose = purposeOfDeparture ?? .leaving
      departure = nil
      phase = .stopping(run, Stop(purpose: purpose, killAt: turn.now.monotonic + spec.stop.timeout))
      reason = "it says that it is stopping"
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: return
    }
  }

  /// What a service may set its watchdog to.
  package static func watchdogRange(configured: Duration) -> ClosedRange<Duration> {
    let least = min(Duration.milliseconds(100), configured)
    return least...(configured * maximumExtension)
  }
  /// No time-out is put off beyond so many times what the definition says.
  package static let maximumExtension = 10

  /// WATCHDOG_USEC: how often it will show life from now on. Only where it has to show life at all.
  mutating func setWatchdog(_ id: RunID, _ interval: Duration, _ turn: inout Turn) {
    guard spec.watchdog > .zero, Self.watchdogRange(configured: spec.watchdog).contains(interval) else { return }
    switch phase {
    case .starting(var run):
      guard run.id == id, run.watchdog > .zero, run.watchdog != interval else { return }
      run.watchdog = interval
      phase = .starting(run)
    case .running(var run):
      guard run.id == id, run.watchdog > .zero, run.watchdog != interval else { return }
      run.watchdog = interval
      if run.watchdogAt != nil { run.watchdogAt = turn.now.monotonic + interval }
      phase = .running(run)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: return
    }
    note(.watchdogSet(run: id, interval), &turn)
  }

  /// MAINPID: another process of the run's set is its main process from now on, as the shell has made sure.
  mutating func mainMoved(_ id: RunID, _ process: ProcessIdentity, _ turn: inout Turn) {
    guard var run = phase.run, run.id == id, run.stage == .up, let before = run.pid else { return }
    guard before != process.pid || run.startTicks != process.startTicks else { return }
    if case .stopping(_, let stop) = phase, stop.death != nil { return }
    run.leader = run.leader ?? ProcessIdentity(pid: before, startTicks: run.startTicks)
    if run.leader == process { run.leader = nil }
    run.pid = process.pid
    run.startTicks = process.startTicks
    switch phase {
    case .starting: phase = .starting(run)
    case .running: phase = .running(run)
    case .stopping(_, let stop): phase = .stopping(run, stop)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: return
    }
    note(.mainMoved(run: id, pid: process.pid), &turn)
  }
}

extension HookResult {
  /// As of a reload's command: no exit code means more than another.
  fileprivate var reloadDescription: String {
    switch self {
    case .cannotRepair: "failed: exit 125"
    case .succeeded, .failed, .timedOut, .aborted, .notStarted: description
    }
  }
}
