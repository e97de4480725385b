package import GuardianModel

// What is left of a service when guardian has gone and come back: the situation that is saved with every record, and
// the way back from it.
//
//                    the same boot                                 another boot
//   living           adopted, or its end judged as not seen        its end made up (cause `host`), started with `begin`
//   backing-off      what is left of the delay                     the same
//   repairing        the hook adopted; gone: failed, the next      the interrupted repair runs again, same round
//   stopping         finished with what is left of its patience    as wanted
//   quarantined      kept                                          kept
//
// Nothing is due for a run or hook that is still being looked for, and what is found gets the time back for which nobody
// listened to it.

/// A process that an earlier instance of guardian has left, or may have left: to be looked for.
package struct Adoptee: Hashable, Sendable {
  /// Of the main process or of the hook.
  package var run: RunID
  /// Nil: allowed to exec, but nobody has written down that it did.
  package var process: ProcessIdentity?
  /// The main process is known to have ended: what is left of its set is looked for.
  package var mainEnded = false
  /// A restart at once is spawned before it is written down. Where a process of this id lives, the answers to the run
  /// itself lead to a `spawn` with this id, and what is already there is to be taken for its outcome.
  package var successor: RunID?
  /// The process that the run began with, where `process` has become its main process later.
  package var leader: ProcessIdentity?
  package var work: Work
  package enum Work: Hashable, Sendable {
    case main(StartRequest)
    case hook(HookRequest)
  }
  package var isHook: Bool { if case .hook = work { true } else { false } }
}

// MARK: - The situation

extension ServiceMachine {
  /// The phase as it is saved. News that comes often (a ping, a look) does not change it.
  var situation: Situation {
    switch phase {
    case .stopped: .stopped
    case .finished: .finished
    // Whoever comes next starts it as it starts all that is wanted.
    case .waiting where inLine != nil: record.quarantine == nil ? .stopped : .quarantined
    case .waiting(let retryAt, let delay, let kind): .waiting(until: retryAt, delay: delay, kind: kind)
    case .starting(let run), .running(let run): .living(living(run))
    case .backingOff(let until, let next): .backingOff(until: until, acts: next == .act)
    case .repairing(let repair): .repairing(Self.live(repair))
    case .stopping(let run, let stop): .stopping(Self.live(run), Self.live(stop))
    case .quarantined: .quarantined
    }
  }

  private func living(_ run: Run) -> LiveRun {
    var live = Self.live(run)
    live.reloadFailure = reloadFailure
    live.leaves = departure.map { $0 == .restart ? .restart : .stop }
    guard let reload else { return live }
    var now = LiveReload(ordered: reload.ordered, since: reload.since, until: reload.until)
    now.hook = reload.hook?.id
    now.process = reload.hook?.process
    now.failure = reload.failure
    now.announced = reload.announced
    now.answered = reload.answered
    now.quietUntil = reload.quietUntil
    now.again = reload.again
    live.reload = now
    return live
  }

  private static func live(_ run: Run) -> LiveRun {
    var live = LiveRun(id: run.id, kind: run.kind, pluginsOff: !run.disabled.isEmpty)
    live.disabled = run.disabled
    live.process = run.pid.map { ProcessIdentity(pid: $0, startTicks: run.startTicks) }
    live.startedAt = run.startedAt
    live.readyBy = run.readyBy
    live.wasReady = run.wasReady
    live.settlesAt = run.settlesAt
    live.readyAt = run.readyAt
    live.settled = run.settled
    live.confirmed = run.confirmed
    live.watchdog = run.watchdog
    live.clearsAt = run.clearsAt
    live.deescalatesAt = run.deescalatesAt
    live.mitigation = run.mitigation
    live.byOperator = run.byOperator
    live.successor = run.successor
    live.leader = run.leader
    return live
  }

  private static func live(_ stop: Stop) -> LiveStop {
    let purpose: LiveStop.Purpose =
      switch stop.purpose {
      case .order: .order
      case .restart: .restart
      case .fault(let cause): .fault(cause.name)
      case .death: .death
      case .leaving: .leaving
      case .plugins: .plugins
      }
    var live = LiveStop(
      purpose: purpose, killAt: stop.killAt, killed: stop.killedAt != nil, death: stop.death, thenStart: stop.thenStart)
    live.step = stop.step
    live.excused = stop.excused
    live.detail = stop.detail
    return live
  }

  private static func live(_ repair: Repair) -> LiveRepair {
    let hook = repair.hook.map { hook in
      let until: Instant =
        switch hook.stage {
        case .saving, .killed: .zero
        case .adopting(let until), .running(let until): until
        case .terminated(let killAt): killAt + (.zero - Self.hookPatience)
        }
      return LiveHook(id: hook.id, name: hook.repair.name, process: hook.process, until: until)
    }
    var live = LiveRepair(
      attempt: repair.attempt, queue: repair.queue.map(\.name), hook: hook, byOperator: repair.byOperator)
    live.beforeStart = repair.beforeStart
    return live
  }

  /// Every start has one end with the same id: whatever lived before this turn and does so no more is closed, and what
  /// lives since is opened.
  mutating func keepBook(from old: Situation, to new: Situation, _ turn: inout Turn) {
    let before = old.entry, after = new.entry
    guard before?.id != after?.id else { return }
    if let before {
      var outcome = RunOutcome.notBegun
      switch before.purpose {
      case .main: if let end = record.lastEnd, end.run == before.id { outcome = .ended(end) }
      case .repair, .beforeStart: if let result = hookOutcome { outcome = .hook(result) }
      }
      turn.actions.append(
        .enter(.closed(before.id, service: spec.name, outcome, at: turn.now.wall, madeUp: endsUnseen)))
    }
    if let after {
      turn.actions.append(.enter(.opened(after.id, service: spec.name, purpose: after.purpose, at: turn.now.wall)))
    }
  }
}

extension Situation {
  /// What has an open line in the book of runs.
  fileprivate var entry: (id: RunID, purpose: RunPurpose)? {
    switch self {
    case .living(let run), .stopping(let run, _): (run.id, .main(run.kind))
    case .repairing(let repair):
      repair.hook.map { ($0.id, repair.beforeStart == nil ? .repair(name: $0.name) : .beforeStart) }
    case .stopped, .finished, .waiting, .backingOff, .quarantined: nil
    }
  }
}

extension Situation {
  /// The phase that it was saved in.
  fileprivate var phase: PhaseName {
    switch self {
    case .stopped: .stopped
    case .finished: .finished
    case .waiting: .waiting
    case .living(let run): run.wasReady ? .running : .starting
    case .backingOff: .backingOff
    case .repairing: .repairing
    case .stopping: .stopping
    case .quarantined: .quarantined
    }
  }
}

// MARK: - The way back

extension ServiceMachine {
  /// Losses of the host in a row after which a service starts with care, and after which it is convicted.
  static let lossesForCare = 2, lossesForConviction = 3

  mutating func restore(_ stored: StoredRecord, _ turn: inout Turn) {
    let now = turn.now
    let sameBoot = stored.sameBoot
    record = sameBoot ? stored.record : stored.record.rebased(from: stored.mark, to: now)
    reason = record.reason
    begun = false
    firstStart = false
    if sameBoot {
      finishedWell = spec.kind == .task && record.lastEnd?.crashClass == .clean
      absence = max(.zero, now.monotonic - stored.mark.monotonic)
    } else if record.untilBoot {
      record.untilBoot = false
      record.wanted = spec.start == .boot ? .up : .down
      record.stoppedBy = ""
      save()
    }
    if record.quarantine == nil, record.step > .restart {
      if (record.step == .quarantine && !observing) || !escalates {
        record.step = .restart
        record.strikes = 0
        record.triesOnStep = 0
      }
    }
    if record.quarantine != nil, case .exec(let failure)? = record.lastEnd?.cause, failure.missing {
      missing = failure.target
    }
    takeUpPlugins()
    takeUp(sameBoot: sameBoot, &turn)
    if record.processHash != 0, record.processHash != spec.process.fingerprint { definitionChangedMeanwhile(&turn) }
    if !sameBoot { countHostLoss(ticketWasOpen: stored.record.openRun != nil, &turn) }
    // What has become something else meanwhile did so after it was last seen.
    let asBefore = phase.name == stored.record.situation.phase && stored.record.since.nanoseconds != 0
    phaseSince = asBefore ? stored.record.since : stored.mark.wall
    finish(turn: &turn, phaseBefore: phase.name)
  }

  private mutating func takeUp(sameBoot: Bool, _ turn: inout Turn) {
    /// Where it is when nothing lives and nothing is waited for.
    let idle: Phase = record.quarantine == nil ? .stopped : .quarantined
    let mayGoOn = record.wanted == .up
    switch record.situation {
    case .stopped, .quarantined: phase = idle
    case .finished:
      // A boot is a new start of what starts at boot.
      phase = sameBoot || spec.start == .manual ? .finished : .stopped
      firstStart = true
    case .waiting(let until, let delay, let kind):
      // What has waited for its turn in a careful start gets in line again.
      guard mayGoOn, until < .distantFuture, delay > .zero else {
        phase = idle
        return
      }
      waitedBefore = delay
      phase = .waiting(retryAt: until, delay: delay, kind: kind)
    case .backingOff(let until, let acts):
      phase = mayGoOn ? .backingOff(until: until, then: acts ? .act : .start) : idle
    case .living(let live):
      guard !sameBoot else {
        let run = run(live)
        phase = live.wasReady ? .running(run) : .starting(run)
        takeUpReload(live)
        departure = live.leaves.map { $0 == .restart ? .restart : .stop }
        return
      }
      wentDownWithTheHost(live, &turn)
    case .stopping(let live, let left):
      var run = run(live)
      var stop = Self.stop(left, now: turn.now)
      if sameBoot {
        phase = .stopping(run, stop)
        return
      }
      switch stop.purpose {
      case .fault where stop.death == nil, .death where stop.death == nil, .leaving where stop.death == nil:
        return wentDownWithTheHost(live, &turn)
      case .fault, .death, .leaving, .order, .restart, .plugins: break
      }
      // The end was seen and has not been judged, or was asked for.
      run.stage = .up
      stop.unseen = stop.death == nil
      stop.death = stop.death ?? Death(.unseen)
      stop.death?.leftovers = 0
      interrupted = true
      phase = .stopping(run, stop)
    case .repairing(let live): takeUp(live, sameBoot: sameBoot, &turn)
    }
  }

  private mutating func takeUpReload(_ live: LiveRun) {
    reloadFailure = live.reloadFailure
    guard let left = live.reload, live.wasReady else { return }
    var reload = Reload(run: live.id, ordered: left.ordered, since: left.since, until: left.until)
    reload.hook = left.hook.map { Reload.Hook(id: $0, process: left.process, stage: .adopting) }
    reload.failure = left.failure
    reload.announced = left.announced
    reload.answered = left.answered
    reload.quietUntil = left.quietUntil
    reload.again = left.again
    self.reload = reload
  }

  private mutating func takeUp(_ live: LiveRepair, sameBoot: Bool, _ turn: inout Turn) {
    let isPreparing = live.beforeStart != nil
    if isPreparing, !sameBoot || live.hook == nil { return beforeStartWentDownWithTheHost(live.hook, &turn) }
    func repair(named name: String) -> RepairSpec? {
      isPreparing ? beforeStartHook : spec.repairs.first { $0.name == name }
    }
    var left = Repair(attempt: live.attempt, queue: isPreparing ? [] : live.queue.compactMap(repair))
    left.beforeStart = live.beforeStart
    left.byOperator = live.byOperator
    if record.wanted == .down {
      left.outcome = .stop
      left.queue = []
    } else if held, !live.byOperator {
      left.outcome = .rest
    }
    if let hook = live.hook {
      let definition = repair(named: hook.name)
      if sameBoot {
        // What is not defined any more still has its process, and its time.
        left.hook = Repair.Hook(
          id: hook.id, repair: definition ?? RepairSpec(name: hook.name, kind: .run([])),
          stage: .adopting(until: hook.until), process: hook.process)
      } else {
        hookOutcome = .failed(.unseen)
        endsUnseen = true
        note(.repairEnded(hook: hook.id, name: hook.name, result: .failed(.unseen)), &turn)
        if let definition, left.outcome == .start, !isUsedUp(definition, turn.now.boot) {
          left.queue.insert(definition, at: 0)
        }
      }
    }
    interrupted = left.hook == nil
    phase = .repairing(left)
  }

  private func run(_ live: LiveRun) -> Run {
    let all = live.pluginsOff && live.disabled.isEmpty
    var run = Run(
      id: live.id, kind: live.kind, disabled: all ? spec.process.plugins.map(\.name) : live.disabled, stage: .adopting)
    run.pid = live.process?.pid
    run.startTicks = live.process?.startTicks ?? 0
    run.startedAt = live.startedAt
    run.readyBy = live.readyBy
    run.wasReady = live.wasReady
    run.settlesAt = live.settlesAt
    run.readyAt = live.readyAt
    run.settled = live.settled
    run.confirmed = live.confirmed
    run.watchdog = live.watchdog
    run.clearsAt = live.clearsAt
    run.deescalatesAt = live.deescalatesAt
    run.mitigation = live.mitigation
    run.byOperator = live.byOperator
    run.successor = live.successor
    run.leader = live.leader
    return run
  }

  private static func stop(_ live: LiveStop, now: Now) -> Stop {
    let purpose: Stop.Purpose =
      switch live.purpose {
      case .order: .order
      case .restart: .restart
      case .fault(Cause.watchdog.name): .fault(.watchdog)
      case .fault(Cause.startTimeout.name): .fault(.startTimeout)
      case .fault(Cause.check.name): .fault(.check)
      case .fault: .fault(.unknown)
      case .death: .death
      case .leaving: .leaving
      case .plugins: .plugins
      }
    var stop = Stop(purpose: purpose, killAt: live.killAt)
    stop.killedAt = live.killed ? now.monotonic : nil
    stop.death = live.death
    stop.thenStart = live.thenStart
    stop.step = live.step
    stop.excused = live.excused
    stop.detail = live.detail
    return stop
  }

  /// No strike, whatever it was doing: started again with `begin`; a trial or a try of the plugins is repeated.
  private mutating func wentDownWithTheHost(_ run: LiveRun, _ turn: inout Turn) {
    let end = End(
      run: run.id, status: .unseen, cause: .host, crashClass: .unknown, at: turn.now.wall,
      uptime: run.startedAt.map { max(.zero, turn.now.monotonic - $0) } ?? .zero)
    record.lastEnd = end
    endsUnseen = true
    note(.ended(end), &turn)
    firstStart = true
    reason = ""
    guard let quarantine = record.quarantine else {
      phase = .stopped
      return
    }
    if run.kind == .trial { record.quarantine?.nextTrial = turn.now.boot }
    phase = .quarantined
    reason = quarantine.reason
  }

  /// The process keys are not those with which it was started last: nothing is held against the new ones.
  private mutating func definitionChangedMeanwhile(_ turn: inout Turn) {
    nextProcess = Shared(spec.process)
    switch phase {
    case .backingOff, .waiting, .quarantined:
      nextProcess = nil
      freshLadder()
      phase = .stopped
      note(.released(why: "its definition changed"), &turn)
    case .repairing(var repair):
      if repair.outcome == .start { repair.outcome = .startFresh }
      phase = .repairing(repair)
    case .stopped, .finished, .starting, .running, .stopping: break
    }
  }

  private mutating func countHostLoss(ticketWasOpen: Bool, _ turn: inout Turn) {
    let before = record.hostLosses
    record.hostLosses = ticketWasOpen ? before + 1 : 0
    record.openRun = nil
    if ticketWasOpen || before > 0 { save() }
    guard record.hostLosses >= Self.lossesForConviction, nextProcess == nil else { return }
    let losses = record.hostLosses
    record.hostLosses = 0
    let why = "the machine went down \(losses) times in a row while it was starting"
    if case .living(let run) = record.situation, record.lastEnd?.run != run.id { wentDownWithTheHost(run, &turn) }
    if case .stopping(let run, _) = record.situation, record.lastEnd?.run != run.id { wentDownWithTheHost(run, &turn) }
    interrupted = false
    if let search = record.plugins.search {
      // With nothing on it was well: that is where it goes back to.
      return foundNothing(.abandoned, search, &turn)
    }
    let from = record.step
    let toSafeMode = from < .safeMode && hasSomethingToDo(on: .safeMode) && hasPluginToSwitchOff
    if observing { return note(.observed(would: toSafeMode ? .safeMode : .quarantine), &turn) }
    guard toSafeMode else { return quarantine(why, &turn) }
    record.step = .safeMode
    record.strikes = 0
    record.triesOnStep = 0
    note(.escalated(from: from, to: .safeMode, skipped: []), &turn)
    switchPluginsOff(&turn)
    reason = why
    notify(.onEscalation, about: Self.sameness(from, .safeMode), reason: why, &turn)
  }

  // MARK: Begin

  /// Whatever is wanted, and neither lives nor waits for something, starts.
  mutating func begin(_ turn: inout Turn) {
    begun = true
    goOnAfterInterruption(&turn)
    // An order that guardian died over, while the service was still being stopped for it.
    if case .stopped = phase, beginOrderedRepairs(&turn) { return }
    if mayStart, case .stopped = phase { start(.ordinary, &turn) }
    if let departure, !mustGoLast, let run = phase.run {
      stopRun(run, departure == .restart ? .restart : .order, &turn)
    }
  }

  /// What another boot has interrupted: an end that nobody has judged yet, a round of repairs.
  mutating func goOnAfterInterruption(_ turn: inout Turn) {
    guard interrupted else { return }
    switch phase {
    case .stopping(let run, _): emptied(run.id, &turn)
    case .repairing: nextRepair(&turn)
    case .stopped, .finished, .waiting, .starting, .running, .backingOff, .quarantined: break
    }
    interrupted = false
  }

  // MARK: Adoption

  /// The run or the repair, and the command of a reload.
  package var adoptees: [Adoptee] {
    switch phase {
    case .starting(let run), .running(let run), .stopping(let run, _):
      guard run.stage == .adopting else { return [] }
      let request = StartRequest(
        run: run.id, kind: run.kind, disabledPlugins: plugins(named: run.disabled), definition: definition)
      var adoptee = Adoptee(
        run: run.id, process: run.pid.map { ProcessIdentity(pid: $0, startTicks: run.startTicks) },
        work: .main(request))
      adoptee.successor = run.successor
      adoptee.leader = run.leader
      if case .stopping(_, let stop) = phase { adoptee.mainEnded = stop.death != nil }
      guard let hook = reload?.hook, hook.stage == .adopting else { return [adoptee] }
      return [adoptee, Adoptee(run: hook.id, process: hook.process, work: .hook(reloadRequest(hook.id, of: run)))]
    case .repairing(let repair):
      guard let hook = repair.hook, case .adopting = hook.stage else { return [] }
      return [Adoptee(run: hook.id, process: hook.process, work: .hook(request(of: hook)))]
    case .stopped, .finished, .waiting, .backingOff, .quarantined: return []
    }
  }

  /// The run lives on, and so does everything that was counted and measured for it; what it may have said while nobody
  /// listened is not held against it.
  mutating func adopted(_ id: RunID, _ process: ProcessIdentity, readinessKnown: Bool, _ turn: inout Turn) {
    guard var run = phase.run, run.id == id, run.stage == .adopting else { return }
    startedWith = definition
    let now = turn.now.monotonic
    let execWasWrittenDown = run.pid != nil
    run.stage = .up
    switch phase {
    case .starting:
      take(process, &run, now)
      if spec.isReadyAtOnce {
        phase = .starting(run)
        becameReady(id, &turn)
      } else if readinessKnown {
        run.readyBy = execWasWrittenDown ? run.readyBy.map { $0 + absence } : now + spec.startTimeout
        phase = .starting(run)
      } else {
        run.readyBy = nil
        run.settlesAt = run.settlesAt ?? (run.startedAt ?? now) + spec.startupWindow
        phase = .starting(run)
        reason = "readiness unknown: guardian was away when it may have said so; it settles by age"
      }
    case .running:
      take(process, &run, now)
      if run.settled { turn.settled = true }
      run.watchdogAt = run.watchdog > .zero && spec.watchdog > .zero ? now + run.watchdog : nil
      phase = .running(run)
      reloadAdopted(readinessKnown: readinessKnown, &turn)
    case .stopping(_, var stop):
      if stop.death == nil { take(process, &run, now) }
      stop.owed = nil
      if stop.killedAt != nil {
        turn.actions.append(.signalSet(id, .kill))
        stop.killAt = now + Self.killAgain
      } else {
        // Whether its signal was sent before guardian went, nobody knows; to be told twice does no harm.
        stop.killAt = stop.killAt + absence
        if stop.death == nil {
          var signal = spec.stop.step(stop.step).signal
          if case .fault(.watchdog) = stop.purpose, stop.step == 0 { signal = .abrt }
          if stop.purpose != .leaving { turn.actions.append(.signal(id, signal)) }
        } else if case .death = stop.purpose, spec.stop.leftovers == .kill {
          turn.actions.append(.signalSet(id, .kill))
          stop.killedAt = now
          stop.killAt = now + Self.killAgain
        } else {
          turn.actions.append(.signalSet(id, .term))
        }
      }
      phase = .stopping(run, stop)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: return
    }
  }

  private func take(_ process: ProcessIdentity, _ run: inout Run, _ now: Instant) {
    run.pid = process.pid
    run.startTicks = process.startTicks
    run.startedAt = run.startedAt ?? now
  }

  mutating func superseded(_ id: RunID) {
    guard var run = phase.run, run.id == id, run.stage == .adopting else { return }
    run.superseded = true
    switch phase {
    case .starting: phase = .starting(run)
    case .running: phase = .running(run)
    case .stopping(_, let stop): phase = .stopping(run, stop)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: break
    }
  }

  mutating func hookStarted(_ id: RunID, _ process: ProcessIdentity) {
    guard case .repairing(var repair) = phase, repair.hook?.id == id else { return }
    repair.hook?.process = process
    phase = .repairing(repair)
  }

  mutating func hookAdopted(_ id: RunID, _ process: ProcessIdentity, _ turn: inout Turn) {
    guard case .repairing(var repair) = phase, var hook = repair.hook, hook.id == id else {
      // The command of a reload whose run is gone.
      return turn.actions.append(.signalHook(id, .kill))
    }
    guard case .adopting(let until) = hook.stage else { return }
    // Allowed, and not written down that it began: it has its whole time.
    let began = hook.process != nil
    hook.process = process
    hook.stage = .running(until: began ? until + absence : turn.now.monotonic + hook.repair.timeout)
    if repair.outcome == .stop {
      turn.actions.append(.signalHook(id, .term))
      hook.stage = .terminated(killAt: turn.now.monotonic + Self.hookPatience)
    }
    repair.hook = hook
    phase = .repairing(repair)
  }

  /// The run was allowed, and nothing shows that it ever came to an exec: guardian's own trouble, so it is started again
  /// at once, and nothing is counted.
  mutating func concludeNotBegun(_ run: Run, _ stop: Stop, _ turn: inout Turn) {
    record.openRun = nil
    switch stop.purpose {
    case .order, .restart, .plugins: return concludeStop(run, stop, &turn)
    case .fault, .death, .leaving: break
    }
    if record.restarts > 0 { record.restarts -= 1 } else { firstStart = true }
    phase = record.quarantine == nil ? .stopped : .quarantined
    save()
    if removed { return forget(&turn) }
    if mayStart { return start(run.kind, byOperator: run.byOperator, &turn) }
    reason = record.quarantine?.reason ?? ""
    note(.stopped, &turn)
    turn.milestones.append(.stopped)
  }

  // MARK: Guardian's own observe mode

  mutating func setGuardianObserving(_ observing: Bool) {
    guard guardianObserving != observing else { return }
    guardianObserving = observing
    // What was only logged meanwhile leaves nothing behind.
    if !self.observing, record.step == .quarantine, record.quarantine == nil { freshLadder() }
  }
}
