import GuardianModel

// Starting: the delay, the step's action, the start itself, and what settling does.

extension ServiceMachine {
  /// Waits the delay of this step's next try; nothing is waited where it is zero.
  mutating func backOff(then next: Next, _ turn: inout Turn) {
    record.triesOnStep += 1
    let delay = spec.backoff.delay(beforeTry: record.triesOnStep, share: turn.random.share())
    pause(delay, then: next, &turn)
  }

  /// Waits `delay` without counting a try.
  mutating func pause(_ delay: Duration, then next: Next, _ turn: inout Turn) {
    note(.backingOff(delay: delay, next: next == .act && !observing ? record.step : .restart), &turn)
    if actsAt(turn.now.monotonic + delay, next) <= turn.now.monotonic {
      perform(next, &turn)
    } else {
      phase = .backingOff(until: turn.now.monotonic + delay, then: next)
      save()
    }
  }

  mutating func perform(_ next: Next, byOperator: Bool = false, _ turn: inout Turn) {
    switch next {
    case .start:
      // In quarantine whatever starts is a trial, also one that has to begin anew.
      start(record.quarantine == nil ? .ordinary : .trial, byOperator: byOperator, &turn)
    case .act:
      // While several services are in trouble at once, no repair of one of them is the cure.
      if observing || (turn.frozen && !byOperator) { return start(.ordinary, &turn) }
      switch record.step {
      case .restart, .quarantine: start(.ordinary, &turn)
      case .repair: beginRepair(byOperator: byOperator, &turn)
      case .safeMode:
        switchPluginsOff(&turn)
        start(.ordinary, &turn)
      }
    }
  }

  /// Decides a start. Durable before exec, unless `atOnce`: then saved alongside.
  ///
  /// - Parameter prepared: `before-start` has been run, or the start has come about already.
  /// - Parameter isThere: The start has come about already: nothing can hold it up.
  mutating func start(
    _ wish: RunKind, atOnce: Bool = false, id: RunID? = nil, byOperator: Bool = false, late: Bool = false,
    prepared: Bool = false, isThere: Bool = false,
    _ turn: inout Turn
  ) {
    if case .starting = phase { return invariantBroken("a start while starting", &turn) }
    if phase.run != nil { return invariantBroken("a start while a run lives", &turn) }
    inLine = nil
    if !isThere, mustWaitForOthers(wish, atOnce: atOnce, byOperator: byOperator, &turn) { return }
    if !isThere, mustWaitForFallback(wish, byOperator: byOperator, &turn) { return }
    if !prepared {
      if mustWaitForItsTurn(wish, byOperator: byOperator) { return }
      if mustStandInLine(wish, late: late, byOperator: byOperator, &turn) { return }
    }
    // On a fresh ladder there is nothing to be tried: what was to be a trial is a start like any.
    var kind = adoptProcess(&turn) ? .ordinary : wish
    takeUpFoundPlugins()
    if !prepared, !spec.process.beforeStart.isEmpty { return prepare(kind, byOperator: byOperator, &turn) }
    let disabled = disabledPlugins(&kind, &turn)
    if firstStart { record.restarts = 0 } else { record.restarts += 1 }
    firstStart = false
    missing = nil
    startedWith = definition
    var run = Run(id: id ?? turn.random.runID(), kind: kind, disabled: disabled, stage: .spawning)
    run.successor = turn.random.runID()
    run.byOperator = byOperator
    run.isThere = isThere
    run.watchdog = spec.watchdog
    run.mitigation = mitigationToStart(&turn)
    record.openRun = run.id
    record.processHash = spec.process.fingerprint
    let ticket = save()
    run.writtenBy = ticket
    if !atOnce { run.stage = .saving(ticket) }
    phase = .starting(run)
    if atOnce { requestSpawn(run, &turn) }
  }

  mutating func requestSpawn(_ run: Run, _ turn: inout Turn) {
    startedWith = definition  // policy that came since the start was decided is in it
    var run = run
    var request = StartRequest(
      run: run.id, kind: run.kind, disabledPlugins: plugins(named: run.disabled), definition: definition)
    request.mitigation = mitigationOrder(of: &run)
    phase = .starting(run)
    turn.actions.append(.spawn(request))
  }

  /// A changed definition takes effect, with a fresh ladder. False where there is none.
  private mutating func adoptProcess(_ turn: inout Turn) -> Bool {
    guard let process = nextProcess else { return false }
    spec.process = process.value.withWhatIsKnown(from: spec.process)
    nextProcess = nil
    executable = nil
    executableReplaced = false
    fileReplaced = nil
    appearanceTried = false
    takeUpPlugins()
    freshLadder()
    forgetMitigations(why: "its definition changed", &turn)
    note(.released(why: "its definition changed"), &turn)
    return true
  }

  /// Nothing is held against the service any more, and what is under way belongs to no trial.
  mutating func freshLadder() {
    switch phase {
    case .starting(var run):
      makeOrdinary(&run)
      phase = .starting(run)
    case .running(var run):
      makeOrdinary(&run)
      run.clearsAt = nil
      run.deescalatesAt = nil
      phase = .running(run)
    case .stopping(var run, let stop):
      run.kind = .ordinary
      phase = .stopping(run, stop)
    case .waiting(let retryAt, let delay, _): phase = .waiting(retryAt: retryAt, delay: delay, kind: .ordinary)
    case .repairing(var round):
      if round.beforeStart != nil { round.beforeStart = .ordinary }
      phase = .repairing(round)
    case .stopped, .finished, .backingOff, .quarantined: break
    }
    record.step = .restart
    record.strikes = 0
    record.triesOnStep = 0
    record.repairRounds = 0
    record.beforeStartFailures = 0
    record.lateDeaths = []
    record.plugins.giveAnotherChance()
    record.quarantine = nil
    record.trialDelay = nil
    record.hostLosses = 0
    missing = nil
    reason = ""
    save()
  }

  mutating func spawned(_ id: RunID, pid: Int32, executable: FileIdentity?, startTicks: UInt64, _ turn: inout Turn) {
    switch phase {
    case .starting(var run):
      guard run.id == id, run.stage == .spawning else { return }
      run.stage = .up
      run.pid = pid
      run.startTicks = startTicks
      run.startedAt = turn.now.monotonic
      waitedBefore = nil
      note(
        .started(
          run: id, pid: pid, kind: run.kind, disabledPlugins: run.disabled),
        &turn)
      if let executable {
        // Looked at before each start: a new program deserves a new ladder, though this start was decided before.
        if let before = self.executable, before != executable, record.step > .restart || record.strikes > 0 {
          freshLadder()
          run.kind = .ordinary
          note(.released(why: "the executable changed"), &turn)
        }
        if let before = self.executable, before != executable { programChanged(turn.now.boot) }
        self.executable = executable
      }
      programBegan(executable, &run, &turn)
      executableReplaced = false
      fileReplaced = nil
      appearanceTried = false
      if spec.isReadyAtOnce {
        phase = .starting(run)
        becameReady(id, &turn)
      } else {
        run.readyBy = turn.now.monotonic + spec.startTimeout
        phase = .starting(run)
      }
    case .stopping(var run, var stop):
      guard run.id == id, run.stage == .spawning else { return }
      run.stage = .up
      run.pid = pid
      run.startTicks = startTicks
      run.startedAt = turn.now.monotonic
      note(.started(run: id, pid: pid, kind: run.kind, disabledPlugins: []), &turn)
      if let signal = stop.owed {
        turn.actions.append(.signal(id, signal))
        stop.owed = nil
      }
      phase = .stopping(run, stop)
    case .stopped, .finished, .waiting, .running, .backingOff, .repairing, .quarantined: return
    }
  }

  mutating func spawnFailed(_ id: RunID, _ failure: SpawnFailure, _ turn: inout Turn) {
    switch phase {
    case .starting(let run):
      guard run.id == id, run.stage == .spawning else { return }
      if failure.ownTrouble { return waitOut(failure, kind: run.kind, &turn) }
      waitedBefore = nil
      judge(endOf(run, failure, turn.now), of: run, &turn)
    case .stopping(let run, let stop):
      guard run.id == id, run.stage == .spawning else { return }
      record.lastEnd = endOf(run, failure, turn.now)
      concludeStop(run, stop, &turn)
    case .stopped, .finished, .waiting, .running, .backingOff, .repairing, .quarantined: return
    }
  }

  private func endOf(_ run: Run, _ failure: SpawnFailure, _ now: Now) -> End {
    End(
      run: run.id, status: .unseen, cause: .exec(failure), crashClass: .loader, at: now.wall, uptime: .zero)
  }

  /// Guardian's own trouble is no fault of the service: retried slowly, without a strike, as long as it lasts.
  ///
  /// - Parameter started: It was counted as a start.
  mutating func waitOut(_ failure: SpawnFailure, kind: RunKind, started: Bool = true, _ turn: inout Turn) {
    let delay = min(waitedBefore.map { $0 * 2 } ?? .seconds(1), .seconds(30))
    waitedBefore = delay
    record.openRun = nil
    // Nothing has been started, so there is nothing to count.
    if started { if record.restarts > 0 { record.restarts -= 1 } else { firstStart = true } }
    save()
    reason = "waiting for resources: " + failure.sentence
    phase = .waiting(retryAt: turn.now.monotonic + delay, delay: delay, kind: kind)
    note(.waiting(failure, retryIn: delay), &turn)
  }

  mutating func becameReady(_ id: RunID, _ turn: inout Turn) {
    guard case .starting(var run) = phase, run.id == id, run.stage == .up else { return }
    run.readyBy = nil
    run.wasReady = true
    run.readyAt = turn.now.monotonic
    run.settlesAt = turn.now.monotonic + window(of: run)
    run.lookAgainAt = nil
    run.beingLookedAt = false
    if run.watchdog > .zero { run.watchdogAt = turn.now.monotonic + run.watchdog }
    phase = .running(run)
    reason = ""
    if spec.ready != .none { note(.ready(run: id), &turn) }
    turn.milestones.append(.ready)
  }

  /// The startup window is over; whether the run has outlived it is for a look at the process to tell.
  mutating func lookAt(_ run: Run, _ turn: inout Turn) {
    var run = run
    run.lookAgainAt = turn.now.monotonic + Self.lookAgain
    run.beingLookedAt = true
    if run.wasReady { phase = .running(run) } else { phase = .starting(run) }
    turn.actions.append(.look(run.id))
  }

  mutating func looked(_ id: RunID, _ liveness: Liveness, _ turn: inout Turn) {
    guard var run = phase.run, run.id == id, run.beingLookedAt else { return }
    switch phase {
    case .running: break
    case .starting:
      // It was adopted, and whether it is ready will never be known: age has to do.
      if liveness == .alive {
        run.wasReady = true
        if run.watchdog > .zero { run.watchdogAt = turn.now.monotonic + run.watchdog }
        turn.milestones.append(.ready)
      }
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: return
    }
    run.beingLookedAt = false
    if run.wasReady { phase = .running(run) } else { phase = .starting(run) }
    switch liveness {
    case .alive:
      guard checksAllowSettling(&run, turn.now.monotonic) else {
        if run.wasReady { phase = .running(run) } else { phase = .starting(run) }
        return
      }
      settle(run, &turn)
    case .stopped: reason = "stopped by a signal; the startup window waits"
    case .dumping:
      run.settlesAt = nil
      run.lookAgainAt = nil
      if run.wasReady { phase = .running(run) } else { phase = .starting(run) }
      reason = "dumping core"
    }
  }

  /// Ready, and the startup window is over: what was held against the service is forgotten, in part.
  mutating func settle(_ settling: Run, _ turn: inout Turn) {
    if settling.kind == .probe, probePassed(settling, &turn) { return }
    var run = settling
    let now = turn.now
    // The strike that led to a step is not counted on it, but the try that followed is.
    let recovered =
      record.strikes > 0 || record.triesOnStep > 0 || record.quarantine != nil || run.kind == .pluginRetry
    run.settlesAt = nil
    run.lookAgainAt = nil
    run.settled = true
    turn.settled = true
    record.openRun = nil
    record.hostLosses = 0
    record.repairRounds = 0
    switch run.kind {
    case .ordinary: rememberSuccess()
    case .probe: break
    case .trial: leaveQuarantine(&turn)
    case .pluginRetry:
      pluginRetryPassed(run, &turn)
      if record.step == .safeMode, !observing { stepDown(&turn) }
    }
    run.kind = .ordinary
    pruneLateDeaths(now.monotonic)
    if record.lateDeaths.count <= spec.late.budget {
      clearStrikes()
    } else {
      run.clearsAt = lateDeathsFewEnoughAt
    }
    if canStepDown(run) { run.deescalatesAt = now.monotonic + spec.escalation.deescalateAfter }
    phase = .running(run)
    reason = ""
    save()
    note(.settled(run: run.id, degraded: isDegraded(run) || run.mitigation != nil), &turn)
    if isUnconfirmed(run) { note(.pluginsUnconfirmed(run: run.id, names: run.disabled), &turn) }
    mitigationSettled(run, &turn)
    if recovered { notify(.onRecovery, about: 0, reason: "settled", &turn) }
    tendPlugins(&turn)
  }

  func canStepDown(_ run: Run) -> Bool {
    // Leaving safe mode needs a start with plugins, and so happens with a plugin retry.
    escalates && record.step > .restart && (observing || record.step != .safeMode || !isDegraded(run))
  }

  private mutating func clearStrikes() {
    record.strikes = 0
    record.triesOnStep = 0
  }

  mutating func clearLate(_ turn: inout Turn) {
    guard case .running(var run) = phase else { return }
    run.clearsAt = nil
    pruneLateDeaths(turn.now.monotonic)
    if record.lateDeaths.count <= spec.late.budget {
      clearStrikes()
      save()
    } else {
      run.clearsAt = lateDeathsFewEnoughAt
    }
    phase = .running(run)
  }

  mutating func deescalate(_ turn: inout Turn) {
    guard case .running(var run) = phase else { return }
    run.deescalatesAt = nil
    stepDown(&turn)
    if canStepDown(run) { run.deescalatesAt = turn.now.monotonic + spec.escalation.deescalateAfter }
    phase = .running(run)
  }

  private mutating func stepDown(_ turn: inout Turn) {
    let from = record.step
    record.step = step(below: from)
    record.strikes = 0
    record.triesOnStep = 0
    if record.step == .restart { record.trialDelay = nil }
    save()
    note(.deescalated(from: from, to: record.step), &turn)
  }

  /// A trial has settled: the highest lower step that has something to do, and no strikes.
  mutating func leaveQuarantine(_ turn: inout Turn) {
    record.quarantine = nil
    record.step = step(below: .quarantine)
    record.strikes = 0
    record.triesOnStep = 0
    if record.step == .safeMode, !observing { switchPluginsOff(&turn) }
    if record.step == .restart { record.trialDelay = nil }
    save()
    note(.released(why: "the trial settled; now on step \(record.step.rawValue)"), &turn)
  }

  mutating func pruneLateDeaths(_ now: Instant) {
    // They are in order, so the old ones are a prefix; and older ones than budget + 1 can decide nothing.
    let old = record.lateDeaths.prefix { now - $0 > spec.late.within }.count
    let surplus = max(old, record.lateDeaths.count - (spec.late.budget + 1))
    if surplus > 0 { record.lateDeaths.removeFirst(surplus) }
  }

  /// When enough late deaths have left the window. Nil where they are few enough now.
  private var lateDeathsFewEnoughAt: Instant? {
    let surplus = record.lateDeaths.count - spec.late.budget
    // One nanosecond past the window's end, which itself still counts.
    return surplus > 0 ? record.lateDeaths[surplus - 1] + spec.late.within + .nanoseconds(1) : nil
  }

  /// Tells whoever `notices` names, unless they have been told the same just now; see `NoticeLog`.
  ///
  /// - Parameter about: What makes it the same as another of its kind.
  mutating func notify(_ kind: NoticeKind, about: UInt64, reason: String, _ turn: inout Turn) {
    guard let command = spec.notices[kind] else { return }
    let left = kind.isUrgent ? turn.noticesLeft.urgent : turn.noticesLeft.usual
    let hasRoom = turn.noticesTold < left
    guard let suppressed = notices.admit(kind, about: about, now: turn.now.boot, hasRoom: hasRoom) else { return }
    turn.noticesTold += 1
    var context = hookContext(reason: reason)
    context.suppressed = suppressed
    let id = turn.random.runID()
    turn.actions.append(
      .notify(
        HookRequest(
          id: id, purpose: .notice(kind), kind: .run(command), identity: nil, timeout: .seconds(60),
          context: context)))
  }

  func hookContext(reason: String) -> HookContext {
    HookContext(
      service: spec.name, step: record.step, attempt: record.repairRounds, strikes: record.strikes,
      strikesAllowed: strikesAllowed(on: record.step),
      disabledPlugins: pluginsOffByRecord, end: record.lastEnd, reason: reason)
  }
}
