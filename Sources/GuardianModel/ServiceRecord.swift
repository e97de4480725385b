/// What guardian must not forget about a service: saved before the action that depends on it, read back at start.
package struct ServiceRecord: Hashable, Sendable {
  package var wanted = Wanted.down
  /// Wanted returns to what `start:` says at the next boot.
  package var untilBoot = false
  /// Who asked for it to be down (`root`, `uid 1000`, …); empty where nobody did, and while it is wanted up.
  package var stoppedBy = ""
  /// It is wanted up for no other reason than the quarantine of another service.
  package var standsIn = false
  package var step = Step.restart
  /// Strikes in a row on this step.
  package var strikes = 0
  /// Restarts made on this step since it was entered; the delay grows with it.
  package var triesOnStep = 0
  /// Times in a row that `before-start` has failed; the delay before the next try grows with it.
  package var beforeStartFailures = 0
  /// Repair rounds since the last settled run.
  package var repairRounds = 0
  /// The latest deaths of settled runs, oldest first; at most `budget + 1`.
  package var lateDeaths: [Instant] = []
  package var plugins = PluginRecords()
  package var mitigation = MitigationRecord()
  @Rare package var hold: Hold?
  @Rare package var quarantine: Quarantine?
  /// The delay that the next trial from quarantine will have had; nil until the first, kept until step restart.
  package var trialDelay: Duration?
  /// When each repair ran lately, by its name; only for repairs with `at-most`.
  package var repairRuns: [String: [BootInstant]] = [:]
  /// Starts after the first since the last operator's start.
  package var restarts = 0
  /// The open start ticket: a run that has been allowed to exec and has neither settled nor ended.
  package var openRun: RunID?
  @Rare package var lastEnd: End?
  /// The strong signatures of the last strike and of the one before; nil where there was none.
  package var strikeSignature: UInt64?, strikeSignatureBefore: UInt64?
  /// What it was doing when this was written.
  package var situation = Situation.stopped
  /// When it began to do that; 0: not known, as in records of earlier versions.
  package var since = WallTime(nanoseconds: 0)
  /// Times in a row that the machine went down while this service's start ticket was open; cleared when a run settles,
  /// and by a loss of the host that finds the ticket closed.
  package var hostLosses = 0
  /// Why it is as it is, for `status`.
  package var reason = ""

  /// Repairs, by their names, that an operator wants as soon as nothing of the run is left.
  package var orderedRepairs: [String] = []

  /// The declared files as they were last seen, in the order of the definition.
  package var files: [FileSight] = []

  /// `ProcessSpec.fingerprint` of the definition that was started last; 0: none was.
  package var processHash: UInt64 = 0

  package init() {}
}

package struct Hold: Hashable, Sendable {
  package var until: BootInstant
  package var by: String
  package init(until: BootInstant, by: String) {
    self.until = until
    self.by = by
  }
}

package struct Quarantine: Hashable, Sendable {
  package var since: WallTime
  package var reason: String
  /// Nil: never by itself.
  package var nextTrial: BootInstant?
  package init(since: WallTime, reason: String, nextTrial: BootInstant?) {
    self.since = since
    self.reason = reason
    self.nextTrial = nextTrial
  }
}
