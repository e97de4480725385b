/// What a service was doing when its record was written: what the next instance of guardian goes on with.
///
/// Monotonic instants in here mean something within the boot in which they were written; on another boot
/// `ServiceRecord.rebased` turns them into what was left.
package enum Situation: Hashable, Sendable {
  case stopped
  case finished
  /// Guardian's or the host's own trouble is waited out.
  case waiting(until: Instant, delay: Duration, kind: RunKind)
  /// `acts`: the step's action follows the delay, not just a start.
  case backingOff(until: Instant, acts: Bool)
  /// Starting or running: also before it is known whether the exec came about.
  case living(LiveRun)
  indirect case stopping(LiveRun, LiveStop)
  case repairing(LiveRepair)
  case quarantined
}

extension Situation {
  /// What lives, or may live: the run or the hook, and what may have followed the run at once.
  package var runs: [RunID] {
    switch self {
    case .living(let run), .stopping(let run, _):
      [run.id] + [run.successor, run.reload?.hook].compactMap { $0 }
    case .repairing(let repair): repair.hook.map { [$0.id] } ?? []
    case .stopped, .finished, .waiting, .backingOff, .quarantined: []
    }
  }
}

/// What names a process for the life of the machine.
package struct ProcessIdentity: Hashable, Sendable {
  package var pid: Int32
  /// Clock ticks since boot, field 22 of proc(5)'s stat.
  package var startTicks: UInt64
  package init(pid: Int32, startTicks: UInt64) {
    self.pid = pid
    self.startTicks = startTicks
  }
}

/// A run that lives, or may live.
package struct LiveRun: Hashable, Sendable {
  package var id: RunID
  package var kind: RunKind
  /// Some are off; with `disabled` empty all of them, as an earlier guardian wrote it down.
  package var pluginsOff: Bool
  /// The plugins that are off, by name.
  package var disabled: [String] = []
  /// Nil: allowed to exec, but nobody has written down that it did.
  package var process: ProcessIdentity?
  package var startedAt: Instant?
  package var readyBy: Instant?
  package var wasReady = false
  package var settlesAt: Instant?
  /// Since when it has been ready.
  package var readyAt: Instant?
  package var settled = false
  /// It has confirmed that its plugins are off.
  package var confirmed = false
  /// As the process has been told.
  package var watchdog = Duration.zero
  package var clearsAt: Instant?
  package var deescalatesAt: Instant?
  package var byOperator = false
  /// The id that a restart at once will have, which is not written down before its exec: so that it is found.
  package var successor: RunID?
  /// The process that the run began with, where another one has become its main process.
  package var leader: ProcessIdentity?
  package var reload: LiveReload?
  /// What has been changed of its surroundings.
  package var mitigation: Mitigation?
  /// Why the last reload of this run came to nothing.
  package var reloadFailure: String?
  /// It was to be stopped once nothing ran any more that required it.
  package var leaves: Leaving?
  package enum Leaving: Hashable, Sendable { case stop, restart }
  package init(id: RunID, kind: RunKind, pluginsOff: Bool) {
    self.id = id
    self.kind = kind
    self.pluginsOff = pluginsOff
  }
}

/// A reload of the service that was under way.
package struct LiveReload: Hashable, Sendable {
  package var ordered: Bool
  package var since: Instant
  package var until: Instant
  /// The command: its id, and its process where that has been written down.
  package var hook: RunID?
  package var process: ProcessIdentity?
  package var failure: String?
  package var announced = false
  package var answered = false
  package var quietUntil: Instant?
  package var again = false
  package init(ordered: Bool, since: Instant, until: Instant) {
    self.ordered = ordered
    self.since = since
    self.until = until
  }
}

/// A stop that was under way.
package struct LiveStop: Hashable, Sendable {
  package enum Purpose: Hashable, Sendable {
    case order, restart
    /// Start time-out, watchdog: the cause's name as in `Cause.name`.
    case fault(String)
    case death
    /// It had said that it was stopping.
    case leaving
    /// It makes room for a start with other plugins.
    case plugins
  }
  package var purpose: Purpose
  package var killAt: Instant
  package var killed: Bool
  /// How the main process went, where that was seen.
  package var death: Death?
  package var thenStart: Bool
  /// How many of the signals before KILL have been sent, less one.
  package var step = 0
  /// The end was the fault of something that the service requires.
  package var excused = false
  /// As in `End.detail`.
  package var detail = ""
  package init(purpose: Purpose, killAt: Instant, killed: Bool, death: Death?, thenStart: Bool) {
    self.purpose = purpose
    self.killAt = killAt
    self.killed = killed
    self.death = death
    self.thenStart = thenStart
  }
}

/// A round of repairs that was under way, or what runs before a start.
package struct LiveRepair: Hashable, Sendable {
  package var attempt: Int
  /// The names of the repairs still to run, in order.
  package var queue: [String]
  package var hook: LiveHook?
  package var byOperator: Bool
  /// Not nil: no repair, but `before-start` of a start of this kind.
  package var beforeStart: RunKind?
  package init(attempt: Int, queue: [String], hook: LiveHook?, byOperator: Bool) {
    self.attempt = attempt
    self.queue = queue
    self.hook = hook
    self.byOperator = byOperator
  }
}

package struct LiveHook: Hashable, Sendable {
  package var id: RunID
  package var name: String
  /// Nil: allowed to exec, but nobody has written down that it did.
  package var process: ProcessIdentity?
  /// TERM is due then.
  package var until: Instant
  package init(id: RunID, name: String, process: ProcessIdentity?, until: Instant) {
    self.id = id
    self.name = name
    self.process = process
    self.until = until
  }
}

/// One line of the book of runs: every start of a main process, a repair or a `before-start` has exactly one end with the
/// same id.
package enum RunEntry: Hashable, Sendable {
  case opened(RunID, service: ServiceName, purpose: RunPurpose, at: WallTime)
  /// `madeUp`: nobody saw the end; it was concluded at guardian's next start.
  case closed(RunID, service: ServiceName, RunOutcome, at: WallTime, madeUp: Bool)
}

package enum RunPurpose: Hashable, Sendable {
  case main(RunKind)
  case repair(name: String)
  case beforeStart
}

package enum RunOutcome: Hashable, Sendable {
  case ended(End)
  case hook(HookResult)
  /// Allowed, but never begun: guardian's own trouble, or overtaken by an order.
  case notBegun
}

/// A record as the store gives it back.
package struct StoredRecord: Hashable, Sendable {
  package var record: ServiceRecord
  /// When guardian was last seen at work in the boot in which it was written.
  package var mark: Now
  /// It was written in this very boot of the machine.
  package var sameBoot: Bool
  package init(record: ServiceRecord, mark: Now, sameBoot: Bool) {
    self.record = record
    self.mark = mark
    self.sameBoot = sameBoot
  }
}

extension ServiceRecord {
  /// The record with every instant moved so that as much is left of each delay at `now` as was left at `mark`.
  ///
  /// The time for which the machine was down is not counted: how long that was, only the wall clock could tell, and a
  /// wall clock may be wrong after a boot.
  package func rebased(from mark: Now, to now: Now) -> ServiceRecord {
    var record = self
    func moved(_ instant: Instant) -> Instant { now.monotonic + (instant - mark.monotonic) }
    func moved(_ instant: BootInstant) -> BootInstant { now.boot + (instant - mark.boot) }
    func moved(_ run: LiveRun) -> LiveRun {
      var run = run
      run.startedAt = run.startedAt.map(moved)
      run.readyBy = run.readyBy.map(moved)
      run.settlesAt = run.settlesAt.map(moved)
      run.readyAt = run.readyAt.map(moved)
      run.clearsAt = run.clearsAt.map(moved)
      run.deescalatesAt = run.deescalatesAt.map(moved)
      // Nothing of it has survived the boot.
      run.reload = nil
      return run
    }
    record.lateDeaths = lateDeaths.map(moved)
    record.plugins = plugins.moved(by: moved)
    record.hold?.until = moved(hold?.until ?? .zero)
    if let trial = quarantine?.nextTrial { record.quarantine?.nextTrial = moved(trial) }
    record.repairRuns = repairRuns.mapValues { $0.map(moved) }
    switch situation {
    case .stopped, .finished, .quarantined: break
    case .waiting(let until, let delay, let kind):
      record.situation = .waiting(until: moved(until), delay: delay, kind: kind)
    case .backingOff(let until, let acts): record.situation = .backingOff(until: moved(until), acts: acts)
    case .living(let run): record.situation = .living(moved(run))
    case .stopping(let run, var stop):
      stop.killAt = moved(stop.killAt)
      record.situation = .stopping(moved(run), stop)
    case .repairing(var repair):
      if let hook = repair.hook { repair.hook?.until = moved(hook.until) }
      record.situation = .repairing(repair)
    }
    return record
  }
}
