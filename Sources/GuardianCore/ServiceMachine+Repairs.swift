import GuardianModel

// The repair step: the service's repairs in order, each recorded before it runs, then a start.

extension ServiceMachine {
  mutating func beginRepair(byOperator: Bool, _ turn: inout Turn) {
    record.repairRounds += 1
    // What is not defined any more has no runs to be remembered.
    record.repairRuns = record.repairRuns.filter { entry in spec.repairs.contains { $0.name == entry.key } }
    let attempt = record.repairRounds
    let end = record.lastEnd
    let due = spec.repairs.filter { repair in
      attempt >= repair.fromAttempt
        && (repair.on.isEmpty || end.map { e in repair.on.contains { $0.matches(e) } } ?? false)
        && !isUsedUp(repair, turn.now.boot)
    }
    save()
    var repair = Repair(attempt: attempt, queue: due)
    repair.byOperator = byOperator
    phase = .repairing(repair)
    nextRepair(&turn)
  }

  func isUsedUp(_ repair: RepairSpec, _ now: BootInstant) -> Bool {
    guard let limit = repair.atMost, let runs = record.repairRuns[repair.name] else { return false }
    return runs.count { now - $0 <= limit.within } >= limit.times
  }

  mutating func nextRepair(_ turn: inout Turn) {
    guard case .repairing(var repair) = phase else { return }
    // Where something changed the hook has finished, and no other one runs for what is there no more.
    guard repair.outcome == .start, !repair.queue.isEmpty else {
      return endRepair(repair, &turn)
    }
    let next = repair.queue.removeFirst()
    if let limit = next.atMost {
      var runs = record.repairRuns[next.name] ?? []
      runs.removeAll { turn.now.boot - $0 > limit.within }
      runs.append(turn.now.boot)
      record.repairRuns[next.name] = runs
    }
    repair.hook = Repair.Hook(id: turn.random.runID(), repair: next, stage: .saving(save()))
    phase = .repairing(repair)
  }

  func runHook(_ hook: Repair.Hook, attempt: Int, _ turn: inout Turn) {
    note(
      isPreparing
        ? .beforeStart(hook: hook.id) : .repairStarted(hook: hook.id, name: hook.repair.name, attempt: attempt), &turn)
    turn.actions.append(.runHook(request(of: hook)))
  }

  func request(of hook: Repair.Hook) -> HookRequest {
    var identity = hook.repair.identity
    if identity == nil, case .run = hook.repair.kind { identity = spec.process.identity }
    return HookRequest(
      id: hook.id, purpose: isPreparing ? .beforeStart : .repair(name: hook.repair.name), kind: hook.repair.kind,
      identity: identity,
      timeout: hook.repair.timeout, context: hookContext(reason: reason))
  }

  mutating func hookEnded(_ id: RunID, _ result: HookResult, _ turn: inout Turn) {
    guard case .repairing(var repair) = phase, let hook = repair.hook, hook.id == id else { return }
    if case .saving = hook.stage { return }
    if case .adopting = hook.stage { endsUnseen = true }
    repair.hook = nil
    phase = .repairing(repair)
    let told: HookResult =
      switch repair.outcome {
      case .stop: result == .succeeded ? .succeeded : .aborted
      case .start, .startFresh, .rest: hook.timedOut ? .timedOut : result
      }
    hookOutcome = told
    if let kind = repair.beforeStart { return beforeStartEnded(repair, hook, kind, told, &turn) }
    note(.repairEnded(hook: id, name: hook.repair.name, result: told), &turn)
    if told != .succeeded { turn.milestones.append(.repairFailed("repair \(hook.repair.name) \(told.description)")) }
    if told == .cannotRepair, repair.outcome == .start {
      // One that an operator had repaired while it was down stays down.
      guard isWanted else { return endRepair(repair, &turn) }
      phase = .stopped
      // A repair that had begun before several services were in trouble at once quarantines nobody while that lasts.
      if turn.frozen {
        turn.beganToLoop = true
        return endedInCommonCause("repair \(hook.repair.name) \(told.description)", &turn)
      }
      return quarantine("repair \(hook.repair.name) \(told.description)", &turn)
    }
    nextRepair(&turn)
  }

  var isWanted: Bool { record.wanted == .up && !shuttingDown && !removed }

  mutating func endRepair(_ repair: Repair, _ turn: inout Turn) {
    phase = .stopped
    if repair.beforeStart == nil, repair.outcome != .stop { turn.milestones.append(.repairsOver) }
    switch repair.outcome {
    case .start, .startFresh:
      if mayStart || (repair.byOperator && isWanted) {
        guard repair.outcome == .start, let kind = repair.beforeStart else {
          return start(record.quarantine == nil ? .ordinary : .trial, byOperator: repair.byOperator, &turn)
        }
        record.beforeStartFailures = 0
        reason = ""
        return start(kind, byOperator: repair.byOperator, prepared: true, &turn)
      }
      rest()
      if record.wanted == .down {
        note(.stopped, &turn)
        turn.milestones.append(.stopped)
      }
    case .rest:
      rest()
      turn.milestones.append(.failed("held by \(record.hold?.by ?? "an order")"))
    case .stop:
      rest()
      if removed { return forget(&turn) }
      note(.stopped, &turn)
      turn.milestones.append(.stopped)
    }
  }

  private mutating func rest() {
    phase = idlePhase
    if let quarantine = record.quarantine { reason = quarantine.reason }
    save()
  }

  /// Ends the round; the hook is terminated and recorded as aborted.
  mutating func abortRepair(_ repair: Repair, _ turn: inout Turn) {
    var repair = repair
    repair.outcome = .stop
    repair.queue = []
    guard var hook = repair.hook else { return endRepair(repair, &turn) }
    switch hook.stage {
    case .saving:
      repair.hook = nil
      return endRepair(repair, &turn)
    case .running:
      turn.actions.append(.signalHook(hook.id, .term))
      hook.stage = .terminated(killAt: turn.now.monotonic + Self.hookPatience)
      repair.hook = hook
    case .adopting:
      // As soon as it is found.
      hook.stage = .adopting(until: turn.now.monotonic)
      repair.hook = hook
    case .terminated, .killed: break
    }
    phase = .repairing(repair)
  }

  mutating func hookDeadlinePassed(_ repair: Repair, _ turn: inout Turn) {
    var repair = repair
    guard var hook = repair.hook else { return }
    let now = turn.now.monotonic
    switch hook.stage {
    case .saving, .adopting, .killed: return
    case .running(let until):
      guard now >= until else { return }
      hook.timedOut = true
      turn.actions.append(.signalHook(hook.id, .term))
      hook.stage = .terminated(killAt: now + Self.hookPatience)
    case .terminated(let killAt):
      guard now >= killAt else { return }
      turn.actions.append(.signalHook(hook.id, .kill))
      hook.stage = .killed
    }
    repair.hook = hook
    phase = .repairing(repair)
  }
}
