import GuardianModel

// Mitigations on trial: the part of the machine that brings runs and `MitigationTrial` together.
//
// They ride along with the starts that the ladder makes anyway, and neither add nor count any. What a death was is known
// only when its evidence is there, so that is when it is counted. Under a hold, in mode observe and during a common cause
// nothing is changed and nothing learnt.

extension ServiceMachine {
  private var mayMitigate: Bool { spec.mitigate == .auto && !observing && !held }

  /// What the next start has.
  mutating func mitigationToStart(_ turn: inout Turn) -> Mitigation? {
    if spec.mitigate == .off, record.mitigation != MitigationRecord() {
      forgetMitigations(why: "mitigate is off", &turn)
    }
    return mayMitigate ? record.mitigation.active?.mitigation : nil
  }

  /// As the shell is told; what has been forbidden since the start was decided is not done.
  mutating func mitigationOrder(of run: inout Run) -> MitigationOrder? {
    guard let mitigation = run.mitigation else { return nil }
    guard mayMitigate, record.mitigation.active?.mitigation == mitigation else {
      run.mitigation = nil
      return nil
    }
    return MitigationOrder(mitigation, build: record.mitigation.build)
  }

  mutating func forgetMitigations(why: String, _ turn: inout Turn) {
    tryMitigations(&turn) { $0.clear(why: why) }
  }

  /// What was executed is known now: for another version than it was meant for, the shell has not done it.
  mutating func programBegan(_ program: FileIdentity?, _ run: inout Run, _ turn: inout Turn) {
    guard spec.mitigate == .auto else { return }
    guard let program else {
      run.mitigation = nil
      return
    }
    if run.mitigation != nil, program.privileged || program.print != record.mitigation.build { run.mitigation = nil }
    tryMitigations(&turn) { $0.program(program.print, privileged: program.privileged) }
  }

  mutating func mitigationSettled(_ run: Run, _ turn: inout Turn) {
    guard mayMitigate else { return }
    tryMitigations(&turn) { $0.settled(with: run.mitigation) }
  }

  /// The evidence of a death is there.
  mutating func mitigationDied(_ examination: Examination, _ turn: inout Turn) {
    guard mayMitigate, !turn.frozen, let end = record.lastEnd,
      examination.struck || (examination.settled && examination.mitigation != nil)
    else { return }
    tryMitigations(&turn) {
      $0.died(
        end.crashClass, signature: end.signature?.value ?? 0, with: examination.mitigation, ran: end.uptime,
        settled: examination.settled)
    }
  }

  /// When the mitigation of a run that goes on is judged by its age.
  func mitigationDue(_ run: Run) -> Instant? {
    guard mayMitigate, run.settled, let started = run.startedAt, let mitigation = run.mitigation,
      let age = MitigationTrial(record.mitigation).judgedAt(with: mitigation)
    else { return nil }
    return started + age
  }

  mutating func mitigationLives(_ run: Run, _ turn: inout Turn) {
    guard let started = run.startedAt else { return }
    let age = turn.now.monotonic - started
    tryMitigations(&turn) { $0.lives(since: age, with: run.mitigation) }
  }

  private mutating func tryMitigations(_ turn: inout Turn, _ change: (inout MitigationTrial) -> [MitigationChange]) {
    var trial = MitigationTrial(record.mitigation)
    let changes = change(&trial)
    if trial.record != record.mitigation {
      record.mitigation = trial.record
      save()
    }
    for change in changes { note(.mitigation(change), &turn) }
  }

  /// For `status`; nil where there is none.
  var mitigationNote: String? {
    guard let mitigation = phase.run?.mitigation else { return nil }
    var text = "runs with mitigation \(mitigation.rawValue)"
    guard let tally = record.mitigation.active, tally.mitigation == mitigation else {
      return text + ", which has been dropped: its next start has none"
    }
    text += tally.kept ? ", kept: " : ", on trial: "
    return text + "\(tally.failures) of \(tally.starts) starts failed with it, \(tally.failedBefore) of "
      + "\(tally.failedBefore) before it"
  }
}
