import GuardianModel

// `before-start`: a program of the service's that runs before each start of its main process, and whose failure is no
// crash of the service: no strike, and the next try comes with the service's own backoff. It goes the way of a repair,
// as a round of one hook, so that orders, holds, time limits and a killed guardian find nothing new in it; the phase is
// called `starting`.
//
// A start at once after a late death waits for it like any other, and so is written down like any other.

extension ServiceMachine {
  static let beforeStartName = "before-start"
  /// However short the service's own backoff is: a program that is not there must not keep the processor busy.
  static let beforeStartPause = Duration.milliseconds(100)

  /// `before-start` runs, or is about to.
  var isPreparing: Bool {
    if case .repairing(let round) = phase { round.beforeStart != nil } else { false }
  }

  /// Where it is when nothing runs and nothing is waited for.
  var idlePhase: Phase { record.quarantine == nil ? .stopped : .quarantined }

  /// As a repair that is always due. It has the time that a start has.
  var beforeStartHook: RepairSpec {
    var hook = RepairSpec(name: Self.beforeStartName, kind: .run(spec.process.beforeStart))
    hook.timeout = spec.startTimeout
    return hook
  }

  mutating func prepare(_ kind: RunKind, byOperator: Bool, _ turn: inout Turn) {
    var round = Repair(attempt: record.repairRounds, queue: [])
    round.beforeStart = kind
    round.byOperator = byOperator
    round.hook = Repair.Hook(id: turn.random.runID(), repair: beforeStartHook, stage: .saving(save()))
    phase = .repairing(round)
  }

  mutating func beforeStartEnded(
    _ round: Repair, _ hook: Repair.Hook, _ kind: RunKind, _ result: HookResult, _ turn: inout Turn
  ) {
    note(.beforeStartEnded(hook: hook.id, result: result), &turn)
    guard round.outcome == .start, result != .succeeded else { return endRepair(round, &turn) }
    phase = idlePhase
    guard mayStart || (round.byOperator && isWanted) else { return endRepair(round, &turn) }
    // Nobody saw its end, or it was ended by an order that another one has overtaken: neither says anything about it.
    if endsUnseen || (hook.wasEnded && !hook.timedOut) {
      phase = .stopped
      return start(kind, byOperator: round.byOperator, &turn)
    }
    if case .notStarted(let failure) = result, failure.ownTrouble {
      return waitOut(failure, kind: kind, started: false, &turn)
    }
    let why = "before-start \(result.description)"
    record.beforeStartFailures += 1
    save()
    turn.milestones.append(.failed(why))
    if kind == .trial { return trialFailed(byOperator: round.byOperator, why, &turn) }
    reason = why + "; this is no crash of the service"
    let delay = spec.backoff.delay(beforeTry: record.beforeStartFailures, share: turn.random.share())
    pause(max(delay, Self.beforeStartPause), then: .start, &turn)
  }

  /// Another boot has interrupted it: it is run again with the start that it belongs to.
  mutating func beforeStartWentDownWithTheHost(_ hook: LiveHook?, _ turn: inout Turn) {
    if let hook {
      hookOutcome = .failed(.unseen)
      endsUnseen = true
      note(.beforeStartEnded(hook: hook.id, result: .failed(.unseen)), &turn)
    }
    firstStart = true
    record.quarantine?.nextTrial = turn.now.boot
    phase = idlePhase
    reason = record.quarantine?.reason ?? ""
  }
}

extension ServiceMachine.Repair.Hook {
  /// By guardian.
  var wasEnded: Bool {
    switch stage {
    case .terminated, .killed: true
    case .saving, .adopting, .running: false
    }
  }
}
