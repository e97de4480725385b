import GuardianModel

// What other services mean for this one, as the fleet tells it: it waits for what it requires, and goes after what
// requires it.

extension ServiceMachine {
  /// Why it is not stopped yet, although it is to be.
  package enum Departure: Hashable, Sendable { case stop, restart }

  /// It waits for others to start.
  package var waitsForOthers: Bool {
    if case .waiting(.distantFuture, _, _) = phase {
      (obstacle != nil || waitsForFallback) && inLine == nil
    } else {
      false
    }
  }

  package var standing: Standing {
    var standing = Standing()
    standing.departs = departure != nil
    let stays = departure == nil && record.wanted == .up && !removed && !shuttingDown
    let repeats = spec.kind == .task && spec.restart == .always
    switch phase {
    case .running, .starting:
      var ready = false
      if case .running = phase { ready = spec.kind == .daemon }
      standing.ready = stays && (ready || (repeats && finishedWell))
      standing.comingUp = stays && !standing.ready && !held
      standing.hopeless = !stays && departure != .restart
    case .backingOff:
      standing.ready = stays && repeats && finishedWell
      standing.hopeless = !standing.ready && !mayStart
    case .finished:
      standing.ready = spec.kind == .task && finishedWell
      standing.hopeless = !standing.ready
    case .stopped:
      standing.comingUp = mayStart
      standing.hopeless = !mayStart
    case .waiting:
      standing.hopeless = !mayStart || (waitsForOthers && obstacle?.hopeless ?? false)
      // Whoever waits for the governor is about to start.
      standing.comingUp = (waitsForOthers || inLine != nil) && !standing.hopeless
    case .repairing:
      standing.hopeless = !mayStart
      standing.comingUp = isPreparing && mayStart
    case .stopping: standing.hopeless = !mayStart
    case .quarantined: standing.hopeless = true
    }
    // What has been killed has nothing to lose any more, even where the kernel does not let go of it.
    if phase.run != nil {
      standing.live = true
      if case .stopping(_, let stop) = phase, stop.killedAt != nil { standing.live = false }
      if held, !shuttingDown, !removed { standing.live = false }
    }
    return standing
  }

  /// How those who wait for it call its state.
  var wordForOthers: String {
    if held { return "held" }
    switch phase {
    case .stopped: return "stopped"
    case .finished: return finishedBadly ? "crashed" : "finished"
    case .running:
      if departure != nil || record.wanted == .down { return "stopping" }
      return spec.kind == .task ? "not finished yet" : "running"
    case .waiting, .starting, .backingOff, .repairing, .stopping, .quarantined: return phase.name.rawValue
    }
  }

  // MARK: Starting

  /// True where the start has been put off until what it waits for is ready. `after` holds up no restart at once.
  mutating func mustWaitForOthers(_ kind: RunKind, atOnce: Bool, byOperator: Bool, _ turn: inout Turn) -> Bool {
    guard let obstacle, obstacle.kind == .requires || !atOnce else {
      startIsAnOrder = false
      return false
    }
    if case .waiting(.distantFuture, _, _) = phase, reason == obstacle.text {
      startIsAnOrder = startIsAnOrder || byOperator
    } else {
      startIsAnOrder = byOperator
      note(.waitingFor(obstacle.name, required: obstacle.kind == .requires), &turn)
    }
    phase = .waiting(retryAt: .distantFuture, delay: .zero, kind: kind)
    reason = obstacle.text
    return true
  }

  /// Decided and written down, and what it requires has gone meanwhile: nothing has been started, so it waits.
  mutating func callOff(_ run: Run, _ turn: inout Turn) {
    record.openRun = nil
    if record.restarts > 0 { record.restarts -= 1 } else { firstStart = true }
    save()
    _ = mustWaitForOthers(run.kind, atOnce: false, byOperator: run.byOperator, &turn)
  }

  /// `obstacle` or `mustGoLast` is another one now.
  mutating func neighboursChanged(_ turn: inout Turn) {
    let before = phase.name
    switch phase {
    case .waiting(.distantFuture, _, let kind):
      if obstacle == nil, !waitsForFallback, inLine == nil, mayStart, begun {
        careful = startIsAnOrder
        start(kind, byOperator: startIsAnOrder, &turn)
      }
    case .starting(let run), .running(let run):
      if let departure, !mustGoLast, begun { stopRun(run, departure == .restart ? .restart : .order, &turn) }
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: break
    }
    finish(turn: &turn, phaseBefore: before)
  }

  /// Whether `neighboursChanged` would do anything, or move a deadline.
  var heedsNeighbours: Bool {
    switch phase {
    case .waiting(.distantFuture, _, _): obstacle == nil && !waitsForFallback
    case .starting, .running: departure != nil && !mustGoLast
    case .quarantined: true
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping: false
    }
  }

  // MARK: Stopping

  /// What it requires is being stopped by order: it goes first, stays wanted, and waits.
  mutating func standDown(for requirement: ServiceName, _ turn: inout Turn) {
    guard !shuttingDown, !removed, !held else { return }
    let before = phase.name
    switch phase {
    case .starting(let run), .running(let run):
      if departure == nil {
        note(.standingDown(for: requirement), &turn)
        stopRun(run, .restart, &turn)
      }
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: break
    }
    finish(turn: &turn, phaseBefore: before)
  }

  /// A later order wants it to stay.
  mutating func stay(_ turn: inout Turn) {
    guard departure == .stop else { return }
    departure = nil
    turn.milestones.append(.overtaken)
  }

  /// How the end of a run that was to leave counts.
  var purposeOfDeparture: Stop.Purpose? {
    switch departure {
    case .stop: .order
    case .restart: .restart
    case nil: nil
    }
  }

  // MARK: Blame

  /// What is held against a service by one judgement, to be taken back where it turns out to be another's fault.
  struct Judgement: Hashable, Sendable {
    var at: Instant
    var step: Step
    var strikes: Int, triesOnStep: Int
    var lateDeaths: [Instant]
    var trialDelay: Duration?
  }

  /// Something that it requires has died, within a second of its own death: that was no fault of its own.
  mutating func takeBack(_ name: ServiceName, _ turn: inout Turn) {
    guard let judgement = lastJudgement?.value, turn.now.monotonic - judgement.at <= Dependencies.blameTime else {
      return
    }
    lastJudgement = nil
    let before = phase.name
    switch phase {
    case .backingOff, .waiting:
      record.step = judgement.step
      record.strikes = judgement.strikes
      record.triesOnStep = judgement.triesOnStep
    case .quarantined where judgement.step < .quarantine:
      record.step = judgement.step
      record.strikes = judgement.strikes
      record.triesOnStep = judgement.triesOnStep
      record.quarantine = nil
      record.trialDelay = judgement.trialDelay
      phase = .stopped
    case .starting, .running, .stopping, .repairing:
      // A try is under way; what it was counted for is taken back, the step stays.
      if record.step == judgement.step { record.strikes = judgement.strikes }
    case .stopped, .finished, .quarantined: return
    }
    record.lateDeaths = judgement.lateDeaths
    reason = "its death is not counted: \(name), which it requires, died too"
    note(.notCounted(why: "\(name), which it requires, died too"), &turn)
    save()
    switch phase {
    case .backingOff, .stopped: if mayStart { startAgain(&turn) }
    case .finished, .waiting, .starting, .running, .repairing, .stopping, .quarantined: break
    }
    finish(turn: &turn, phaseBefore: before)
  }

  /// Without a count: when what it requires is ready, or after the first pause where it is.
  mutating func startAgain(_ turn: inout Turn) {
    guard obstacle == nil else {
      return start(record.quarantine == nil ? .ordinary : .trial, &turn)
    }
    pause(spec.backoff.delay(beforeTry: 1, share: turn.random.share()), then: .start, &turn)
  }
}
