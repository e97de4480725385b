import GuardianModel

// Switches of this host beat what the service's own file says, for as long as they are there. What runs goes on as it was
// started: a plugin is off from the next start on, and on again with the next start after the switch has gone.

extension ServiceMachine {
  /// These are in force from now on.
  mutating func switched(_ new: Switches, _ turn: inout Turn) {
    guard new != switches else { return }
    let before = phase.name, stoodOn = escalates, overridden = overrides
    switches = new
    if case .starting(var run) = phase, case .saving = run.stage { _ = honourSwitches(&run) }
    endSearch(because: overridden, &turn)
    if record.quarantine != nil {
      if let off = new.first(turningOff: .quarantine) { leaveQuarantine(because: off, &turn) }
    } else if record.step > .restart, !observing {
      if !escalates {
        if stoodOn { escalationEnded("the ladder is switched off by \(new.firstOfLadder?.file ?? "a switch")", &turn) }
      } else if let off = new.first(turningOff: record.step) {
        leaveStep(because: off, &turn)
      }
    }
    finish(turn: &turn, phaseBefore: before)
  }

  private mutating func leaveQuarantine(because off: Switch, _ turn: inout Turn) {
    freshLadder()
    note(.released(why: "quarantine is switched off by \(off.file)"), &turn)
    guard case .quarantined = phase else { return }
    phase = .stopped
    if mayStart, begun { startAgain(&turn) }
  }

  /// It goes on from the step below. A repair that runs ends by itself.
  private mutating func leaveStep(because off: Switch, _ turn: inout Turn) {
    let from = record.step
    standOn(step(below: from), turn.now)
    if case .repairing(var round) = phase, round.beforeStart == nil {
      round.queue = []
      phase = .repairing(round)
    }
    save()
    note(.stepSwitchedOff(from, file: off.file), &turn)
  }

  /// Restarted for ever from here on. Plugins that are off stay so until they are due.
  mutating func escalationEnded(_ why: String, _ turn: inout Turn) {
    standOn(.restart, turn.now)
    save()
    note(.released(why: why), &turn)
  }

  private mutating func standOn(_ step: Step, _ now: Now) {
    record.step = step
    record.strikes = 0
    record.triesOnStep = 0
    if step == .restart { record.trialDelay = nil }
    guard case .running(var run) = phase else { return }
    run.deescalatesAt = run.settled && canStepDown(run) ? now.monotonic + spec.escalation.deescalateAfter : nil
    phase = .running(run)
  }

  /// Steps that would have been taken, and are switched off.
  mutating func noteSwitchedOff(_ skipped: [Step], _ turn: inout Turn) {
    for step in skipped where spec.hasSomethingToDo(on: step) {
      if let off = switches.first(turningOff: step) { note(.stepSwitchedOff(step, file: off.file), &turn) }
    }
  }

  /// - Returns: False: quarantine is switched off, and it is only restarted.
  mutating func mayBeQuarantined(_ why: String, _ turn: inout Turn) -> Bool {
    guard let off = switches.first(turningOff: .quarantine) else { return true }
    note(.stepSwitchedOff(.quarantine, file: off.file), &turn)
    reason = why + "; not quarantined, which is switched off by \(off.file)"
    backOff(then: .start, &turn)
    return false
  }
}

// MARK: Plugins

extension ServiceMachine {
  /// Plugins that a switch turns off, in the order of the definition.
  package var overrides: [String] {
    if switches.isEmpty { return [] }
    return spec.process.plugins.map(\.name).filter { switches.first(turningOff: $0) != nil }
  }

  /// What has come since a start was decided is honoured by it, as long as it has not come about.
  mutating func honourSwitches(_ run: inout Run) -> Bool {
    let missing = overrides.filter { !run.disabled.contains($0) }
    if missing.isEmpty { return false }
    run.disabled = spec.process.plugins.map(\.name).filter { run.disabled.contains($0) || missing.contains($0) }
    phase = .starting(run)
    save()
    return true
  }

  /// - Returns: Nil: as it was decided, or it is over.
  mutating func amendStart(_ id: RunID, _ turn: inout Turn) -> StartRequest? {
    guard case .starting(var run) = phase, run.id == id, run.stage == .spawning else { return nil }
    let before = phase.name
    guard honourSwitches(&run) else { return nil }
    finish(turn: &turn, phaseBefore: before)
    return StartRequest(
      run: run.id, kind: run.kind, disabledPlugins: plugins(named: run.disabled), definition: definition)
  }

  /// A search knows nothing of plugins that others switch: it is over, and what is known to work stays.
  private mutating func endSearch(because before: [String], _ turn: inout Turn) {
    guard let search = record.plugins.search else { return }
    let now = overrides
    guard search.toggles.contains(where: { before.contains($0) != now.contains($0) }) else { return }
    interruptSearch(&turn)
    foundNothing(.abandoned, record.plugins.search ?? search, &turn)
  }
}
