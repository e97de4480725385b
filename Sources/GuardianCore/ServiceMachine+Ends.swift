import GuardianModel

// Ending: the stop sequence, the judgement of an end, strikes, and quarantine.

extension ServiceMachine {
  /// The run has to go, and its end will be a death with this cause.
  ///
  /// - Parameter detail: As in `End.detail`.
  mutating func fault(_ run: Run, _ cause: Cause, signal: Signal, detail: String = "", _ turn: inout Turn) {
    turn.actions.append(.signal(run.id, signal))
    var stop = Stop(purpose: purposeOfDeparture ?? .fault(cause), killAt: turn.now.monotonic + spec.stop.timeout)
    stop.excused = sharesBlame
    departure = nil
    stop.detail = detail
    phase = .stopping(run, stop)
  }

  /// Somebody wants the run down, for now or for good.
  mutating func stopRun(_ run: Run, _ purpose: Stop.Purpose, _ turn: inout Turn) {
    if mustGoLast, run.stage == .up {
      let restarts = purpose == .restart
      if restarts, departure == .stop { turn.milestones.append(.overtaken) }
      departure = restarts ? .restart : .stop
      return
    }
    departure = nil
    if case .saving = run.stage {
      // Not born yet.
      record.openRun = nil
      save()
      phase = .stopped
      return concludeStop(run, Stop(purpose: purpose, killAt: turn.now.monotonic), &turn)
    }
    var stop = Stop(purpose: purpose, killAt: turn.now.monotonic + spec.stop.timeout)
    if run.stage != .up {
      stop.owed = spec.stop.signal
    } else {
      turn.actions.append(.signal(run.id, spec.stop.signal))
    }
    phase = .stopping(run, stop)
  }

  /// A step of the stop sequence has had its time.
  mutating func nextStopStep(_ run: Run, _ stop: Stop, _ turn: inout Turn) {
    var stop = stop
    // It said that it would go by itself, and did not.
    if stop.purpose == .leaving, stop.death == nil { stop.purpose = .fault(.watchdog) }
    // What a crash has left over gets one signal.
    guard stop.killedAt == nil, stop.purpose != .death, stop.step + 1 < spec.stop.steps else {
      return kill(run, stop, &turn)
    }
    stop.step += 1
    let step = spec.stop.step(stop.step)
    if run.stage != .up {
      stop.owed = step.signal
    } else if stop.death == nil {
      turn.actions.append(.signal(run.id, step.signal))
    } else {
      turn.actions.append(.signalSet(run.id, step.signal))
    }
    stop.killAt = turn.now.monotonic + step.timeout
    phase = .stopping(run, stop)
  }

  private mutating func kill(_ run: Run, _ stop: Stop, _ turn: inout Turn) {
    var stop = stop
    if run.stage != .up {
      stop.owed = .kill
    } else {
      turn.actions.append(.signalSet(run.id, .kill))
    }
    if let killedAt = stop.killedAt {
      let waited = turn.now.monotonic - killedAt
      let seconds = Duration.seconds(waited.nanoseconds / 1_000_000_000)
      reason = "SIGKILL sent \(seconds.description) ago, waiting for the kernel"
      if waited >= Self.killAgain { turn.milestones.append(.stuck(reason)) }
      if waited >= Self.killAgain, waited < Self.killAgain * 2 {
        note(.stuck(pids: max(1, stop.death?.leftovers ?? 1), since: waited), &turn)
      }
    } else {
      stop.killedAt = turn.now.monotonic
    }
    stop.killAt = turn.now.monotonic + Self.killAgain
    phase = .stopping(run, stop)
  }

  mutating func ended(_ id: RunID, _ death: Death, _ turn: inout Turn) {
    switch phase {
    case .starting(let run), .running(let run):
      guard run.id == id, run.stage == .up || run.stage == .adopting else { return }
      var stop = Stop(purpose: purposeOfDeparture ?? .death, killAt: turn.now.monotonic + spec.stop.timeout)
      departure = nil
      stop.excused = sharesBlame
      stop.unseen = run.stage == .adopting
      stop.death = death
      stop.diedAt = turn.now
      if death.leftovers > 0 {
        switch spec.stop.leftovers {
        case .kill:
          turn.actions.append(.signalSet(id, .kill))
          stop.killedAt = turn.now.monotonic
          stop.killAt = turn.now.monotonic + Self.killAgain
        case .term: turn.actions.append(.signalSet(id, .term))
        }
      }
      var run = run
      run.stage = .up
      phase = .stopping(run, stop)
    case .stopping(var run, var stop):
      guard run.id == id, run.stage == .up || run.stage == .adopting, stop.death == nil else { return }
      stop.unseen = run.stage == .adopting
      stop.excused = stop.excused || sharesBlame
      run.stage = .up
      stop.death = death
      stop.diedAt = turn.now
      if death.leftovers > 0 {
        // The rest gets what is left of the shared time-out.
        turn.actions.append(.signalSet(id, stop.killedAt == nil ? .term : .kill))
      }
      phase = .stopping(run, stop)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: return
    }
  }

  /// Nothing is left: now the end is judged, or the order is done.
  mutating func emptied(_ id: RunID, _ turn: inout Turn) {
    guard case .stopping(let run, let stop) = phase, run.id == id, let death = stop.death else { return }
    endsUnseen = stop.unseen
    if stop.unseen, run.pid == nil, !run.superseded { return concludeNotBegun(run, stop, &turn) }
    let at = stop.diedAt ?? turn.now
    let excused = stop.excused || (sharesBlame && turn.now.monotonic - at.monotonic <= Dependencies.blameTime)
    let uptime = run.startedAt.map { at.monotonic - $0 } ?? .zero
    let cause: Cause
    let ordered: Bool
    switch stop.purpose {
    case .order, .restart, .plugins:
      (cause, ordered) = (interrupted && death.status == .unseen ? .host : causeOfOrderedEnd(death), true)
    case .fault(let why): (cause, ordered) = (why, false)
    case .death, .leaving: (cause, ordered) = (GuardianCore.cause(of: death), false)
    }
    var end = End(
      run: id, status: death.status, cause: cause,
      crashClass: ordered ? .ordered : classify(death.status, cause: cause), at: at.wall, uptime: uptime,
      leftovers: death.leftovers, detail: stop.detail)
    if case .code(let code) = death.status, cause == .exit, !ordered, spec.successExit.contains(code) {
      end.crashClass = .clean
    }
    record.openRun = nil
    if ordered {
      record.lastEnd = end
      finishedWell = false
      note(.ended(end), &turn)
      if run.superseded { return goOnWithSuccessor(of: run, stop.purpose, &turn) }
      return concludeStop(run, stop, &turn)
    }
    phase = .stopped
    var judged = run
    // Whoever ordered the start that follows waits for that one, and is not told of this run's end.
    if stop.thenStart { judged.wasReady = true }
    judge(end, of: judged, traced: death.traced, excused: excused, &turn)
    if stop.thenStart, phase.run == nil, beginOrderedRepairs(&turn) { return }
    if stop.thenStart, phase.run == nil { _ = orderStart(by: "", &turn) }
  }

  /// The run that was to be stopped had been followed by another, which now has to go in its place.
  private mutating func goOnWithSuccessor(of run: Run, _ purpose: Stop.Purpose, _ turn: inout Turn) {
    phase = .stopped
    careful = true
    start(run.kind, atOnce: true, id: run.successor, prepared: true, isThere: true, &turn)
    if let successor = phase.run { stopRun(successor, purpose, &turn) }
  }

  /// An ordered stop is complete.
  mutating func concludeStop(_ run: Run, _ stop: Stop, _ turn: inout Turn) {
    phase = .stopped
    reason = ""
    save()
    if removed { return forget(&turn) }
    if beginOrderedRepairs(&turn) { return }
    if case .plugins = stop.purpose, mayStart { return start(.ordinary, &turn) }
    if case .restart = stop.purpose, record.wanted == .up, !shuttingDown {
      firstStart = true
      return start(record.quarantine == nil ? .ordinary : .trial, byOperator: true, &turn)
    }
    if let quarantine = record.quarantine {
      phase = .quarantined
      reason = quarantine.reason
    }
    note(.stopped, &turn)
    turn.milestones.append(.stopped)
  }

  mutating func forget(_ turn: inout Turn) {
    turn.milestones += [.stopped, .forgotten]
    turn.actions.append(.forget)
  }

  // MARK: Judgement

  /// What follows from an end that nobody asked for.
  mutating func judge(
    _ end: End, of run: Run, traced: Bool = false, excused: Bool = false, _ turn: inout Turn
  ) {
    record.lastEnd = end
    finishedWell = spec.kind == .task && end.crashClass == .clean
    lastJudgement =
      spec.requires.isEmpty || excused
      ? nil
      : Shared(
        Judgement(
          at: turn.now.monotonic, step: record.step, strikes: record.strikes, triesOnStep: record.triesOnStep,
          lateDeaths: record.lateDeaths, trialDelay: record.trialDelay))
    record.openRun = nil
    save()
    note(.ended(end), &turn)
    if !run.wasReady { turn.milestones.append(.failed(end.description)) }
    phase = .stopped
    examine(end, of: run, &turn)
    if end.crashClass != .clean { notify(.onCrash, about: end.sameness, reason: end.description, &turn) }
    if run.superseded {
      careful = true
      lateDeath(end, run, &turn)
      // An order has come before it was known that there is something to be stopped.
      if record.wanted == .down || shuttingDown || removed, let successor = phase.run {
        stopRun(successor, .order, &turn)
      }
      return
    }
    guard !removed else { return forget(&turn) }
    guard record.wanted == .up, !shuttingDown else {
      if record.quarantine != nil { phase = .quarantined }
      reason = record.quarantine?.reason ?? ""
      note(.stopped, &turn)
      turn.milestones.append(.stopped)
      return
    }
    let clean = end.crashClass == .clean
    let leftAlone = clean ? spec.restart != .always : spec.restart == .never && run.kind != .trial && run.kind != .probe
    if clean, leftAlone || (spec.kind == .task && !held) { return endedClean(end, run, &turn) }
    if held {
      if leftAlone { return finish(crashed: true, end, &turn) }
      if record.quarantine != nil { phase = .quarantined }
      reason = "held; it ended meanwhile (\(end.description)), which is not counted"
      return
    }
    if traced, !leftAlone {
      reason = "ended under a debugger, which is not counted"
      return pause(spec.backoff.delay(beforeTry: 1, share: turn.random.share()), then: .start, &turn)
    }
    if excused, !leftAlone {
      reason = "\(end.description), while something that it requires was not ready; not counted"
      note(.notCounted(why: "something that it requires was not ready"), &turn)
      return startAgain(&turn)
    }
    if case .exec(let failure) = end.cause, failure.missing {
      missing = failure.target
      // A file that appeared, and yet could not be run, is news only once it is another one.
      if !appearanceTried { executable = nil }
      return quarantineOrTrialFailed(run, failure.sentence, &turn)
    }
    if case .code(let code) = end.status, !clean, spec.fatalExit.contains(code) {
      // Without its plugins it has been well: that is where it goes back to.
      if run.kind == .pluginRetry || run.kind == .probe { return died(early: end, run, &turn) }
      return quarantineOrTrialFailed(run, "exit \(code) is listed in fatal-exit", &turn)
    }
    if clean { return endedClean(end, run, &turn) }
    if leftAlone { return finish(crashed: true, end, &turn) }
    if end.cause == .unknown, spec.kind == .task, run.kind == .ordinary {
      reason = "its end was not seen, so it runs again"
      return pause(spec.backoff.first, then: .start, &turn)
    }
    if end.cause == .unknown, run.kind == .probe {
      reason = "its end was not seen, so it is no observation"
      return pauseForSearch(&turn)
    }
    if end.cause == .killed || (run.settled && run.kind == .ordinary) { return lateDeath(end, run, &turn) }
    died(early: end, run, &turn)
  }

  /// A death before settled, or a late one beyond the budget.
  private mutating func died(early end: End, _ run: Run, detail: String = "", _ turn: inout Turn) {
    if triesWhatChanged(&turn) { return }
    switch run.kind {
    case .ordinary:
      // What a search has left on has not been proved.
      if !run.settled, record.step == .safeMode, record.plugins.search != nil, !tried(in: run).isEmpty {
        reason = end.description
        return pauseForSearch(&turn)
      }
      rememberFailure(end, turn.now.boot)
      strike(end, detail: detail, &turn)
    case .probe: probeDied(end, of: run, &turn)
    case .trial: trialFailed(byOperator: run.byOperator, end.description, &turn)
    case .pluginRetry: pluginRetryFailed(end, of: run, &turn)
    }
  }

  /// What died has been changed since: the new one is tried, and nothing is held against it.
  private mutating func triesWhatChanged(_ turn: inout Turn) -> Bool {
    if nextProcess != nil {
      start(.ordinary, &turn)
      return true
    }
    guard executableReplaced || fileReplaced != nil else { return false }
    if executableReplaced { executable = nil }
    let why = executableReplaced ? "the executable" : fileReplaced ?? ""
    executableReplaced = false
    fileReplaced = nil
    freshLadder()
    note(.released(why: "\(why) changed"), &turn)
    backOff(then: .start, &turn)
    return true
  }

  private mutating func endedClean(_ end: End, _ run: Run, _ turn: inout Turn) {
    switch (spec.kind, spec.restart) {
    case (.task, let policy):
      // A task that has ended well is as good as a settled run.
      if run.kind == .trial { leaveQuarantine(&turn) }
      if run.kind == .pluginRetry { pluginRetryPassed(run, &turn) }
      record.strikes = 0
      record.triesOnStep = 0
      record.repairRounds = 0
      if !isDegraded(run), record.step > .restart {
        record.step = .restart
        record.trialDelay = nil
      }
      reason = ""
      save()
      if policy == .always {
        pause(spec.backoff.first, then: .start, &turn)
      } else {
        finish(crashed: false, end, &turn)
      }
    case (.daemon, .onCrash), (.daemon, .never):
      finish(crashed: false, end, &turn)
    case (.daemon, .always):
      if run.settled { return lateDeath(end, run, &turn) }
      died(
        early: end, run,
        detail: end.leftovers > 0
          ? "it left \(processes(end.leftovers)) behind and seems to put itself in the background; run it in the foreground"
          : "a daemon should stay up", &turn)
    }
  }

  private mutating func finish(crashed: Bool, _ end: End, _ turn: inout Turn) {
    if record.quarantine != nil { leaveQuarantine(&turn) }
    phase = .finished
    reason = crashed ? "crashed (\(end.description)); restart: never leaves it alone" : ""
    save()
    note(.finished(crashed: crashed), &turn)
  }

  /// Within the budget: at once, whatever the step, without a repair. Beyond it: a strike like any other.
  private mutating func lateDeath(_ end: End, _ run: Run, _ turn: inout Turn) {
    record.lateDeaths.append(turn.now.monotonic)
    pruneLateDeaths(turn.now.monotonic)
    save()
    let count = record.lateDeaths.count
    if count <= spec.late.budget || run.superseded {
      note(.lateDeath(count: count, budget: spec.late.budget), &turn)
      reason = "restarted at once after \(end.description)"
      // At once, but never two steps ahead of what is written down: a later guardian would not know the second by its id.
      let atOnce = run.writtenBy <= confirmed
      start(
        run.kind, atOnce: atOnce, id: run.successor, byOperator: run.byOperator && !run.settled, late: true,
        prepared: run.superseded, isThere: run.superseded, &turn)
      if inLine != nil { reason = end.description }
      return
    }
    died(early: end, run, &turn)
  }

  private mutating func strike(_ end: End, detail: String, _ turn: inout Turn) {
    turn.beganToLoop = true
    if turn.frozen { return endedInCommonCause(end.description, &turn) }
    record.strikes += 1
    examination?.struck = true
    record.strikeSignatureBefore = record.strikeSignature
    record.strikeSignature = nil
    let step = record.step
    let allowed = strikesAllowed(on: step)
    note(.strike(step: step, count: record.strikes, allowed: allowed), &turn)
    reason =
      end.description + (end.hadBegun ? " after \(end.uptime.description)" : "") + (detail.isEmpty ? "" : "; " + detail)
    guard allowed > 0, let up = self.step(after: step) else { return backOff(then: .act, &turn) }
    // Plain restarts cannot cure these classes, so none is wasted on them where a better step is to be had.
    let hopeless = step == .restart && end.crashClass.survivesRestart && up.step < .quarantine
    guard record.strikes >= allowed || hopeless else { return backOff(then: .act, &turn) }
    escalate(from: step, to: up.step, skipped: up.skipped, end, &turn)
  }

  /// Several services are in trouble at once: it is not this one's, and no step would help it.
  mutating func endedInCommonCause(_ why: String, _ turn: inout Turn) {
    note(.notCounted(why: "escalation is frozen by a common cause"), &turn)
    reason = why + "; not counted, because several services began to loop at once"
    backOff(then: .start, &turn)
  }

  mutating func escalate(from: Step, to: Step, skipped: [Step], _ end: End, _ turn: inout Turn) {
    let strikes = record.strikes
    record.step = to
    record.strikes = 0
    if !observing { record.triesOnStep = 0 }
    note(.escalated(from: from, to: to, skipped: skipped), &turn)
    noteSwitchedOff(skipped, &turn)
    notify(
      .onEscalation, about: Self.sameness(from, to),
      reason: "step \(from.rawValue) → \(to.rawValue): \(end.description)", &turn)
    if to == .quarantine {
      quarantine("strike \(strikes) on step \(from.rawValue); the last end: \(end.description)", &turn)
    } else {
      if observing { note(.observed(would: to), &turn) }
      backOff(then: .act, &turn)
    }
  }

  // MARK: Quarantine

  mutating func quarantine(_ why: String, _ turn: inout Turn) {
    if observing {
      note(.observed(would: .quarantine), &turn)
      return backOff(then: .start, &turn)
    }
    guard mayBeQuarantined(why, &turn) else { return }
    let delay = spec.quarantine.retryAfter.map { first in
      record.trialDelay.map { min($0 * 2, spec.quarantine.max) } ?? first
    }
    record.step = .quarantine
    record.plugins.endSearch()
    record.strikes = 0
    record.triesOnStep = 0
    record.trialDelay = delay
    record.quarantine = Quarantine(
      since: turn.now.wall, reason: why, nextTrial: delay.map { turn.now.boot + $0 })
    phase = .quarantined
    quarantinedNow = true
    reason = why
    save()
    note(.quarantined(reason: why, trialIn: delay), &turn)
    turn.milestones.append(.failed("quarantined: \(why)"))
    notify(.onQuarantine, about: Fingerprint.of(why.utf8), reason: why, &turn)
  }

  static func sameness(_ from: Step, _ to: Step) -> UInt64 { Fingerprint.of("\(from.rawValue) \(to.rawValue)".utf8) }

  private mutating func quarantineOrTrialFailed(_ run: Run, _ why: String, _ turn: inout Turn) {
    if triesWhatChanged(&turn) { return }
    if run.kind == .trial { return trialFailed(byOperator: run.byOperator, why, &turn) }
    turn.beganToLoop = true
    if turn.frozen { return endedInCommonCause(why, &turn) }
    quarantine(why, &turn)
  }

  /// Back to quarantine, with the delay doubled and no strikes; an operator's trial changes no delay.
  mutating func trialFailed(byOperator: Bool, _ why: String, _ turn: inout Turn) {
    var delay = spec.quarantine.retryAfter
    if let first = delay {
      let before = record.trialDelay ?? first
      delay = byOperator ? before : min(before * 2, spec.quarantine.max)
    }
    record.trialDelay = delay
    if byOperator, let due = record.quarantine?.nextTrial, due > turn.now.boot {
      delay = due - turn.now.boot
    } else {
      record.quarantine?.nextTrial = delay.map { turn.now.boot + $0 }
    }
    phase = .quarantined
    reason = (record.quarantine?.reason ?? why) + "; the last trial: \(why)"
    save()
    note(.trialFailed(nextIn: delay), &turn)
  }
}
