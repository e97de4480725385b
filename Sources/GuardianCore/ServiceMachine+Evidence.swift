package import GuardianModel

// What a death has left to be found: its evidence comes after the decision, and may change it.

/// The evidence of a death is being gathered.
package struct Examination: Hashable, Sendable {
  package let run: RunID
  /// Repairs wait for it until then.
  package let until: Instant
  /// The death was a strike.
  package internal(set) var struck = false
  /// Of the run: what was changed of its surroundings, and that it had settled.
  var mitigation: Mitigation?
  var settled = false
  /// It was one with everything on.
  var opensIncident = false
}

extension ServiceMachine {
  /// How long repairs wait for what the evidence says; the shell gives up sooner.
  static let examinationTime = Duration.seconds(3)

  mutating func examine(_ end: End, of run: Run, _ turn: inout Turn) {
    examination = nil
    // What ends well, as it is meant to, has done nothing that anybody would look into.
    if end.crashClass == .clean, spec.kind == .task || spec.restart != .always { return }
    examination = Examination(run: end.run, until: turn.now.monotonic + Self.examinationTime)
    examination?.mitigation = run.mitigation
    examination?.settled = run.settled
    turn.actions.append(
      .examine(
        CrashReport(
          service: spec.name, end: end, kind: run.kind, wasReady: run.wasReady, settled: run.settled,
          disabledPlugins: run.disabled, step: record.step)))
  }

  /// When the end of a delay is acted on. Repairs are chosen by what the evidence says, and are told of it.
  func actsAt(_ until: Instant, _ next: Next) -> Instant {
    guard let examination else { return until }
    // So is what a search comes to think of it.
    if next == .start, searchAwaits(examination.run) { return max(until, examination.until) }
    guard next == .act, record.step == .repair, !observing else { return until }
    return max(until, examination.until)
  }

  mutating func examined(_ run: RunID, _ finding: Finding, _ turn: inout Turn) {
    guard let examination, examination.run == run else { return }
    self.examination = nil
    // Something newer has been written down meanwhile.
    guard record.lastEnd?.run == run else { return }
    record.lastEnd?.signature = finding.signature
    if let finer = finding.crashClass, record.lastEnd?.crashClass != finer {
      record.lastEnd?.crashClass = finer
      save()
    }
    if examination.opensIncident {
      record.plugins.incident?.signature = finding.signature
      if !finding.plugins.isEmpty { record.plugins.incident?.hints = Array(finding.plugins.prefix(ToggleSet.capacity)) }
      save()
    }
    if searchAwaits(run) { countDeath(finding.signature, &turn) }
    if examination.struck, let signature = finding.signature, signature.strong {
      record.strikeSignature = signature.value
      save()
    }
    mitigationDied(examination, &turn)
    if examination.struck { reconsider(&turn) }
    // A delay that was over has waited for this alone.
    if case .backingOff(let until, let next) = phase, !held, begun, turn.now.monotonic >= until {
      perform(next, &turn)
    }
  }

  /// A plain restart that cannot help is not made where a better step is to be had.
  private mutating func reconsider(_ turn: inout Turn) {
    guard record.step == .restart, record.strikes > 0, !turn.frozen, case .backingOff(_, .act) = phase,
      let end = record.lastEnd, strikesAllowed(on: .restart) > 0
    else { return }
    let again =
      record.strikes > 1 && record.strikeSignature != nil
      && record.strikeSignature == record.strikeSignatureBefore
    guard end.crashClass.survivesRestart || (again && end.crashClass.isDeterministic) else { return }
    guard let up = step(after: .restart), up.step < .quarantine else { return }
    escalate(from: .restart, to: up.step, skipped: up.skipped, end, &turn)
  }
}
