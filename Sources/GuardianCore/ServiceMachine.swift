package import GuardianModel

// One service, from its first start to its removal.
//
// What the service is *wanted* to do (up or down) is the operator's wish and stands apart from what it does, its
// *phase*. A wish is never refused and never counted; guardian's own doing always follows from the phase.
//
//   stopped ──start──▶ starting ──ready──▶ running ──startup window over──▶ running, settled
//      ▲                  │                   │
//      │                  └───── death ───────┤          A *run* is one life of the main process. Its end leads to
//      │                                      ▼          `stopping` until nothing of its set is left; only then is
//   finished ◀──────────────────────────── stopping      the end judged and the next thing decided, so there are
//                                             │          never two runs at once.
//        ┌── waiting out guardian's own       │
//        │   trouble (no strike)              ▼
//     waiting              backing-off ◀── judged ──▶ starting at once (late death within the budget)
//                              │              │
//            restart, safe mode│  repair      ▼
//                 ◀────────────┴──▶ repairing ──▶ starting        quarantined ──trial──▶ starting
//
// A death before *settled* is a strike, and so is a late death beyond the late budget. The K-th strike in a row on a
// step moves the service one step up the ladder; each step waits, then acts, then starts: `restart` just starts,
// `repair` runs the repairs first, `safe-mode` starts with the plugins off, and in `quarantine` nothing runs but a
// trial now and then. Settling clears the strikes; the step itself goes down slowly.
//
// Recorded before done: whatever must survive lives in `record`. A start is allowed only when the record that announces
// it is durable (`saved`), except the immediate restart after a late death, which is saved alongside. A save that stays
// unanswered for two seconds is given up as volatile and the action goes on.
//
// The next deadline is computed from the state alone, so no timer can go stale. News of an earlier run or hook is dropped
// where it comes in. Nothing here reads a clock, rolls dice or touches the host.

/// The machine of one service: events in, actions out.
package struct ServiceMachine: Hashable, Sendable {
  /// The definition in force: policy applies at once, process keys from the next start (`nextProcess`).
  package internal(set) var spec: ServiceSpec {
    // No `_read`: without optimization the compiler then ends copies of parts of it by the yielded address, which is
    // another's by that time.
    get { definition.value }
    set { definition = Shared(newValue) }
  }
  var definition: Shared<ServiceSpec>
  /// Process keys that wait for the next start.
  var nextProcess: Shared<ProcessSpec>?
  /// Entries of the plugin directory that wait for the next start.
  var nextFound: Shared<[PluginSpec]>?
  /// As the present run was started; what it was adopted with counts as that.
  var startedWith: Shared<ServiceSpec>?
  /// What is switched off for it on this host; kept by the fleet.
  package internal(set) var switches = Switches.none
  package internal(set) var record: ServiceRecord
  package internal(set) var phase = Phase.stopped
  package internal(set) var phaseSince: WallTime
  /// Why it is as it is, for `status`.
  package internal(set) var reason = ""

  /// The last ticket given out, and the last that is durable or given up as volatile.
  package internal(set) var issued = Ticket.none, confirmed = Ticket.none
  /// When the oldest unanswered save was given out.
  var unansweredSince: Instant?
  /// When the newest save was given out: from then on it may stay unanswered, however slow those before it were.
  var issuedAt = Instant.zero
  /// A save was given up; until the store answers again.
  package internal(set) var volatile = false
  var recordChanged = false

  /// The next start is the first since an operator's start or guardian's own.
  var firstStart = true
  package internal(set) var shuttingDown = false
  package internal(set) var removed = false
  /// What was last executed, or seen in its place.
  var executable: FileIdentity?
  /// It was replaced while its run lives: what that run comes to says nothing about the new one.
  var executableReplaced = false
  /// This declared file changed while its run lives: likewise.
  var fileReplaced: String?
  /// What was missing has appeared, and no start has succeeded since.
  var appearanceTried = false
  /// The last wait for guardian's own trouble, while it lasts.
  var waitedBefore: Duration?
  /// Quarantined because this is not there.
  var missing: String?
  var watched: String?
  var watchedFiles: [String] = []
  /// Guardian itself has come up in observe mode.
  var guardianObserving = false
  /// How long guardian had not been at work before this machine was restored; what is adopted gets the time back.
  var absence = Duration.zero
  /// Not between a restoration and `begin`.
  package internal(set) var begun = true
  /// Restored on another boot: what was interrupted goes on, or is judged, with `begin`.
  var interrupted = false
  /// What keeps it from starting, and whether others have to stop before it; kept by the fleet.
  package internal(set) var obstacle: Obstacle?
  package internal(set) var mustGoLast = false
  /// Something that it requires is not ready, or has died just now; true for a turn of its own at most.
  var sharesBlame = false
  /// Its fallback, as long as anything of that lives; kept by the fleet.
  package internal(set) var fallbackRuns: ServiceName?
  /// In phase waiting, for that.
  var waitsForFallback = false
  /// Was quarantined in guardian's present life.
  var quarantinedNow = false
  /// It is to be stopped as soon as nothing runs that requires it.
  package internal(set) var departure: Departure?
  /// The start that waits for others was asked for by somebody.
  var startIsAnOrder = false
  /// A task whose last run ended well, in this boot.
  var finishedWell = false
  /// What the last end was counted for; only where something is required.
  var lastJudgement: Shared<Judgement>?
  /// This is the suspect's turn in a careful start, or an operator's order overrides it; for one start.
  var careful = false
  /// Waits for the governor.
  var inLine: InLine?
  /// How the hook went that ended in this turn, and whether what ends in this turn was seen by nobody.
  @Rare var hookOutcome: HookResult?
  var endsUnseen = false
  /// Of the run that is running.
  @Rare var reload: Reload?
  /// Why the last one of this run came to nothing.
  var reloadFailure: String?
  /// Nil where nothing is checked now.
  package internal(set) var health: Health?
  /// The evidence of the last death is being gathered.
  @Rare package internal(set) var examination: Examination?
  var notices = NoticeLog()
  /// The number of the last probe.
  var lastProbe: UInt64 = 0

  package init(_ spec: ServiceSpec, record: ServiceRecord?, now: Now) {
    definition = Shared(spec)
    self.record = record ?? ServiceRecord()
    if record == nil { self.record.wanted = spec.start == .boot ? .up : .down }
    phaseSince = now.wall
    if self.record.step == .quarantine, self.record.quarantine == nil, spec.mode == .enforce {
      // Only logged, in mode observe.
      self.record.step = .restart
      self.record.strikes = 0
    }
    if let quarantine = self.record.quarantine {
      phase = .quarantined
      reason = quarantine.reason
    }
    self.record.situation = situation
    self.record.reason = reason
  }

  package enum Phase: Hashable, Sendable {
    case stopped
    case finished
    /// Guardian's or the host's own trouble is waited out.
    case waiting(retryAt: Instant, delay: Duration, kind: RunKind)
    case starting(Run)
    /// Ready.
    case running(Run)
    case backingOff(until: Instant, then: Next)
    indirect case repairing(Repair)
    /// Until nothing of the run's set is left.
    indirect case stopping(Run, Stop)
    case quarantined
  }

  /// What follows a delay.
  package enum Next: Hashable, Sendable {
    /// The step's action, then a start.
    case act
    /// Just a start.
    case start
  }

  /// One life of the main process, from the decision to start it.
  package struct Run: Hashable, Sendable {
    package let id: RunID
    package var kind: RunKind
    /// The plugins that are off for it, by name, in the order of the definition.
    package var disabled: [String]
    package var stage: Stage
    package var pid: Int32?
    var startTicks: UInt64 = 0
    /// The process that it began with, where another one has become its main process.
    var leader: ProcessIdentity?
    package var startedAt: Instant?
    /// Ready is expected by then; nil once it is ready, or where readiness is not configured.
    package var readyBy: Instant?
    package var wasReady = false
    /// The startup window is over then; nil before ready, once settled, and where it will not settle any more.
    package var settlesAt: Instant?
    /// Since when it has been ready.
    var readyAt: Instant?
    package var settled = false
    /// Its plugins are to be looked at again then: one is due, or a search may begin.
    package var pluginsAt: Instant?
    /// What it had used of the processor when it was measured last, for `plugins.when: idle`.
    var load: Load?
    var beingLookedAt = false
    /// The service has confirmed that its plugins are off.
    var confirmed = false
    /// The window is over and a look did not settle it: the next look.
    var lookAgainAt: Instant?
    /// As the process has been told; a reload does not tell it anew.
    var watchdog = Duration.zero
    package var watchdogAt: Instant?
    /// Strikes are cleared then, because the late deaths have become few enough.
    package var clearsAt: Instant?
    package var deescalatesAt: Instant?
    /// What has been changed of its surroundings.
    package var mitigation: Mitigation?
    /// A trial that an operator asked for: its failure does not double the delay.
    package var byOperator = false
    /// The id of the restart at once that would follow this run.
    var successor: RunID?
    /// The save that wrote down this run and its successor's id.
    var writtenBy = Ticket.none
    /// The successor was found alive: the restart at once has happened, whatever is known of the reasons.
    var superseded = false
    /// It had come about before it was decided.
    var isThere = false

    struct Load: Hashable, Sendable {
      var at: Instant, cpu: Duration
    }
    package enum Stage: Hashable, Sendable {
      /// Decided, waiting for the record to be durable.
      case saving(Ticket)
      /// Asked for, outcome not seen yet.
      case spawning
      /// Left by an earlier instance of guardian: whether it still lives is being found out, and nothing is due.
      case adopting
      case up
    }
  }

  package struct Stop: Hashable, Sendable {
    package enum Purpose: Hashable, Sendable {
      /// Somebody wants it down: operator, removal, shutdown.
      case order
      case restart
      /// It has to go: start time-out, watchdog. Its end is a death with that cause.
      case fault(Cause)
      /// It has died by itself; what is left over has to go.
      case death
      /// It has said that it is stopping. Its end is a death like any other.
      case leaving
      /// It makes room for a start with other plugins.
      case plugins
    }
    package var purpose: Purpose
    /// The next step of the sequence is due then, KILL after the last, and again every five seconds until nothing is left.
    package var killAt: Instant
    /// Of the signals before KILL, which one was sent last.
    package var step = 0
    package var killedAt: Instant?
    /// The main process has ended.
    package var death: Death?
    package var diedAt: Now?
    /// A signal owed to a run whose exec has not been seen yet.
    package var owed: Signal?
    /// An operator's order that came meanwhile: start when the end has been judged.
    package var thenStart = false
    /// As in `End.detail`.
    var detail = ""
    /// Found gone at guardian's start.
    var unseen = false
    /// No word of the service puts off KILL beyond this; nil: it has not asked yet.
    var latestKillAt: Instant?
    /// Its end is the fault of something that it requires.
    var excused = false
  }

  /// What runs before a start: a round of repairs, or `before-start`.
  package struct Repair: Hashable, Sendable {
    /// Not nil: `before-start` of a start of this kind.
    package var beforeStart: RunKind?
    package var attempt: Int
    /// Still to run, in order; of the definition that was in force when the round began.
    package var queue: [RepairSpec]
    package var hook: Hook?
    package var outcome = Outcome.start
    /// The start that follows was asked for, so that a hold does not stand in its way.
    var byOperator = false

    package enum Outcome: Hashable, Sendable {
      case start
      /// The definition changed meanwhile: the new one starts with a fresh ladder.
      case startFresh
      case stop
      /// A hold came meanwhile: neither repair on nor start.
      case rest
    }
    package struct Hook: Hashable, Sendable {
      package let id: RunID
      package let repair: RepairSpec
      package var stage: Stage
      package var timedOut = false
      var process: ProcessIdentity?
      package enum Stage: Hashable, Sendable {
        case saving(Ticket)
        /// Left by an earlier instance of guardian, with what is left of its time.
        case adopting(until: Instant)
        case running(until: Instant)
        case terminated(killAt: Instant)
        case killed
      }
    }
  }

  /// How long a save may stay unanswered.
  static let saveTimeout = Duration.seconds(2)
  /// Between looks at a run whose window is over, but which is stopped or being looked at.
  static let lookAgain = Duration.seconds(1)
  /// Between KILLs of a set that does not go.
  static let killAgain = Duration.seconds(5)
  /// From TERM to KILL of a hook's own group.
  static let hookPatience = Duration.seconds(5)
}

/// What a turn brings along and takes away.
package struct Turn {
  package let now: Now
  package var random: Randomness
  package var actions: [Action] = []
  package var milestones: [Milestone] = []
  /// When the machine is to be called again. Every turn ends by saying so: looked up later, it would cost a copy of the
  /// whole machine.
  package internal(set) var due: (monotonic: Instant?, boot: BootInstant?) = (nil, nil)
  /// What the governor allows, how many starts were decided, and what the machine is to the governor afterwards.
  var allowance = Governor.Allowance.unlimited
  var starts = 0
  var standing = StartStanding.none
  /// Nil: as it was.
  var tally: Tally?
  /// How many notices the host's limit leaves, and how many were told.
  var noticesLeft = (usual: Int.max, urgent: Int.max)
  var noticesTold = 0
  /// A common cause is going on: nothing is a strike, and nothing moves up.
  var frozen = false
  /// Of the host's time zone from UTC, in seconds.
  var utcOffset = 0
  /// The service has next to nothing to do.
  var isIdle = false
  /// It has settled, or was found settled; it has had what would be a strike.
  var settled = false, beganToLoop = false
  package init(now: Now, random: Randomness) {
    self.now = now
    self.random = random
  }
}

/// What those who wait for an order's outcome wait for.
package enum Milestone: Hashable, Sendable {
  case ready
  /// It will not become ready by this try.
  case failed(String)
  case stopped
  /// What was being stopped will be started instead: a later order wanted it so.
  case overtaken
  case forgotten
  /// Not even KILL has ended it for a while: nobody knows how long that takes, and whoever waits is told so.
  case stuck(String)
  /// Nil: done.
  case reloaded(failure: String?)
  /// No reload that was asked for will come about any more.
  case reloadsOver(String)
  case repairFailed(String)
  /// No repair is left to run, whatever they came to.
  case repairsOver
}

// MARK: - Events

extension ServiceMachine {
  package mutating func handle(_ event: ServiceEvent, _ turn: inout Turn) {
    let before = phase.name
    switch event {
    case .spawned(let run, let pid, let executable, let startTicks):
      spawned(run, pid: pid, executable: executable, startTicks: startTicks, &turn)
    case .spawnFailed(let run, let failure): spawnFailed(run, failure, &turn)
    case .saved(let ticket): saved(ticket, &turn)
    case .hookEnded(let hook, let result):
      if !reloadHookEnded(hook, result, &turn) { hookEnded(hook, result, &turn) }
    case .hookStarted(let hook, let pid, let startTicks):
      let process = ProcessIdentity(pid: pid, startTicks: startTicks)
      if !reloadHookStarted(hook, process) { hookStarted(hook, process) }
    case .looked(let run, let liveness): looked(run, liveness, &turn)
    case .examined(let run, let finding): examined(run, finding, &turn)
    case .measured(let run, let cpu): measured(run, cpu, &turn)
    // With `ready: check` the service's own word is not enough.
    case .ready(let run):
      if spec.ready != .check { becameReady(run, &turn) }
      saidReadyAgain(run, &turn)
    case .readyAgain(let run): saidReadyAgain(run, &turn)
    case .reloading(let run, let stamp): saidReloading(run, stamp: stamp, &turn)
    case .leaving(let run): saidStopping(run, &turn)
    case .watchdogSet(let run, let interval): setWatchdog(run, interval, &turn)
    case .mainMoved(let run, let process): mainMoved(run, process, &turn)
    case .probed(let run, let number, let result): probed(run, number: number, result, &turn)
    case .adopted(let run, let pid, let startTicks, let readinessKnown):
      adopted(run, ProcessIdentity(pid: pid, startTicks: startTicks), readinessKnown: readinessKnown, &turn)
    case .superseded(let run): superseded(run)
    case .hookAdopted(let hook, let pid, let startTicks):
      let process = ProcessIdentity(pid: pid, startTicks: startTicks)
      if !reloadHookAdopted(hook, process, &turn) { hookAdopted(hook, process, &turn) }
    case .watchdogPinged(let run):
      // Nothing of it is kept, so nothing is saved.
      watchdogPinged(run, &turn)
      close(&turn)
      return
    case .watchdogTriggered(let run):
      switch phase {
      case .starting(let current), .running(let current):
        if current.id == run, current.stage == .up { fault(current, .watchdog, signal: .abrt, &turn) }
      case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: break
      }
    case .timeoutExtended(let run, let extra): timeoutExtended(run, by: extra, &turn)
    case .ended(let run, let death): ended(run, death, &turn)
    case .emptied(let run): emptied(run, &turn)
    case .defined(let spec): defined(spec, &turn)
    case .removed:
      removed = true
      takeDown(&turn)
    case .executableSeen(let identity): executableSeen(identity, &turn)
    case .filesSeen(let sights): filesSeen(sights, &turn)
    case .pluginsFound(let directory, let found): pluginsFound(in: directory, found)
    case .pluginsConfirmed(let run): pluginsConfirmed(run, &turn)
    case .pluginsSeen(let sights): pluginsSeen(sights, &turn)
    case .resumed(let slept): resumed(slept, &turn)
    case .begin: begin(&turn)
    case .shutdown:
      shuttingDown = true
      // The host may go down before everything has stopped, and by nobody's fault.
      if record.openRun != nil {
        record.openRun = nil
        save()
      }
      takeDown(&turn)
    case .deadline: deadlinePassed(&turn)
    }
    finish(turn: &turn, phaseBefore: before)
  }

  /// Closes a turn: one save for all that changed, the watch, the phase's age.
  mutating func finish(turn: inout Turn, phaseBefore: PhaseName) {
    if phase.name != phaseBefore { phaseSince = turn.now.wall }
    careful = false
    letGoOfReload(&turn)
    tendChecks(&turn)
    if phase.name != .waiting {
      inLine = nil
      waitsForFallback = false
    }
    let situation = situation
    if situation != record.situation || reason != record.reason {
      keepBook(from: record.situation, to: situation, &turn)
      record.situation = situation
      record.since = phaseSince
      record.reason = reason
      save()
    }
    hookOutcome = nil
    endsUnseen = false
    if recordChanged {
      recordChanged = false
      issuedAt = turn.now.monotonic
      if unansweredSince == nil { unansweredSince = issuedAt }
      turn.actions.append(.save(record, issued))
    }
    let watch = pathToWatch
    // A declared file matters only where there is something to be released from.
    let files = watch == nil ? [] : spec.declaredFiles + pluginFiles
    if watch != watched || files != watchedFiles {
      watched = watch
      watchedFiles = files
      turn.actions.append(.watch(watch, files: files))
    }
    close(&turn)
  }

  /// Says what the fleet wants to know after each turn.
  func close(_ turn: inout Turn) {
    turn.due = nextDeadline
    turn.standing = startStanding
    turn.tally = tally
  }

  /// Makes the record durable; many changes within a turn are one save.
  @discardableResult mutating func save() -> Ticket {
    if !recordChanged {
      recordChanged = true
      issued = Ticket(issued.number + 1)
    }
    return issued
  }

  func note(_ kind: Occurrence.Kind, _ turn: inout Turn) {
    turn.actions.append(.record(Occurrence(service: spec.name, at: turn.now.wall, kind: kind)))
  }

  /// Traps where a developer is near; in production the one service is held and reported, and guardian goes on.
  mutating func invariantBroken(_ text: String, _ turn: inout Turn) {
    #if DEBUG
      preconditionFailure("\(spec.name): \(text)")
    #else
      note(.internalError(text), &turn)
      record.hold = Hold(until: turn.now.boot + .day, by: "guardian, after an internal error")
      save()
    #endif
  }

  package var held: Bool { record.hold != nil }
  var observing: Bool { spec.mode == .observe || guardianObserving }
  /// Nothing may be started by guardian itself.
  var mayStart: Bool { record.wanted == .up && !held && !shuttingDown && !removed }

  /// Files are watched for services from step repair upwards, and for what is missing.
  private var pathToWatch: String? {
    guard !removed, !shuttingDown else { return nil }
    if let missing { return missing }
    if case .quarantined = phase { return spec.process.command.first }
    return (record.step > .restart || record.plugins.off) && !observing ? spec.process.command.first : nil
  }

  private mutating func saved(_ ticket: Ticket, _ turn: inout Turn) {
    guard ticket > confirmed || volatile, ticket <= issued else { return }
    if unansweredSince != nil { unansweredSince = ticket >= issued ? nil : issuedAt }
    // An answer to an earlier save says nothing of what was given up after it.
    if ticket >= issued { volatile = false }
    if ticket > confirmed {
      confirmed = ticket
      saveConfirmed(&turn)
    }
  }

  /// Whatever waited for a ticket goes on.
  private mutating func saveConfirmed(_ turn: inout Turn) {
    switch phase {
    case .starting(var run):
      guard case .saving(let ticket) = run.stage, ticket <= confirmed else { return }
      if obstacle?.kind == .requires, !run.isThere { return callOff(run, &turn) }
      run.stage = .spawning
      run.watchdog = spec.watchdog
      phase = .starting(run)
      requestSpawn(run, &turn)
    case .repairing(var repair):
      guard var hook = repair.hook, case .saving(let ticket) = hook.stage, ticket <= confirmed else { return }
      if obstacle?.kind == .requires, let kind = repair.beforeStart {
        _ = mustWaitForOthers(kind, atOnce: false, byOperator: repair.byOperator, &turn)
        return
      }
      hook.stage = .running(until: turn.now.monotonic + hook.repair.timeout)
      repair.hook = hook
      phase = .repairing(repair)
      runHook(hook, attempt: repair.attempt, &turn)
    case .stopped, .finished, .waiting, .running, .backingOff, .stopping, .quarantined: return
    }
  }

  private mutating func watchdogPinged(_ run: RunID, _ turn: inout Turn) {
    guard case .running(var current) = phase, current.id == run, current.watchdogAt != nil else { return }
    current.watchdogAt = turn.now.monotonic + current.watchdog
    phase = .running(current)
  }

  private mutating func timeoutExtended(_ run: RunID, by extra: Duration, _ turn: inout Turn) {
    let now = turn.now.monotonic
    let most = Self.maximumExtension
    func extended(_ due: Instant, to latest: Instant) -> Instant { max(due, min(now + extra, latest)) }
    switch phase {
    case .starting(var current):
      guard current.id == run, let due = current.readyBy else { return }
      current.readyBy = extended(due, to: (current.startedAt ?? now) + spec.startTimeout * most)
      phase = .starting(current)
    case .stopping(let current, var stop):
      guard current.id == run, stop.killedAt == nil else { return }
      let latest = stop.latestKillAt ?? stop.killAt + spec.stop.timeout * (most - 1)
      stop.latestKillAt = latest
      stop.killAt = extended(stop.killAt, to: latest)
      phase = .stopping(current, stop)
    case .running(var current):
      guard current.id == run else { return }
      if let due = current.watchdogAt { current.watchdogAt = extended(due, to: now + current.watchdog * most) }
      phase = .running(current)
      if var current = reload, current.hook == nil || current.hook?.stage == .running {
        current.until = extended(current.until, to: current.since + spec.startTimeout * most)
        reload = current
      }
    case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: return
    }
  }

  /// The clocks stood, or guardian did not run: everybody gets the time back, nobody is blamed.
  private mutating func resumed(_ slept: Duration, _ turn: inout Turn) {
    let now = turn.now.monotonic
    switch phase {
    case .starting(var run):
      if let due = run.readyBy { run.readyBy = due + slept }
      phase = .starting(run)
    case .running(var run):
      if !run.settled { run.readyAt = run.readyAt.map { $0 + slept } }
      if run.watchdogAt != nil { run.watchdogAt = now + run.watchdog }
      if let due = run.lookAgainAt {
        run.lookAgainAt = due + slept
      } else if let due = run.settlesAt {
        run.settlesAt = due + slept
      }
      phase = .running(run)
      if var current = reload {
        current.until = current.until + slept
        current.quietUntil = current.quietUntil.map { $0 + slept }
        reload = current
      }
    case .stopping(let run, var stop):
      if stop.killedAt == nil { stop.killAt = stop.killAt + slept }
      phase = .stopping(run, stop)
    case .repairing(var repair):
      if var hook = repair.hook, case .running(let until) = hook.stage {
        hook.stage = .running(until: until + slept)
        repair.hook = hook
        phase = .repairing(repair)
      }
    case .stopped, .finished, .waiting, .backingOff, .quarantined: break
    }
    checksResumed(&turn)
    if unansweredSince != nil {
      unansweredSince = now
      issuedAt = now
    }
  }
}

extension ServiceMachine.Phase {
  package var name: PhaseName {
    switch self {
    case .stopped: .stopped
    case .finished: .finished
    case .waiting: .waiting
    case .starting: .starting
    case .running: .running
    case .backingOff: .backingOff
    case .repairing(let round): round.beforeStart == nil ? .repairing : .starting
    case .stopping: .stopping
    case .quarantined: .quarantined
    }
  }

  /// The run that has, or may have, processes.
  package var run: ServiceMachine.Run? {
    switch self {
    case .starting(let run), .running(let run), .stopping(let run, _): run
    case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: nil
    }
  }
}

// MARK: - Deadlines

extension ServiceMachine {
  /// The next moments at which `deadline` does something, computed from the state.
  package var nextDeadline: (monotonic: Instant?, boot: BootInstant?) {
    var monotonic: Instant?
    func consider(_ due: Instant?) {
      guard let due else { return }
      monotonic = min(monotonic ?? due, due)
    }
    var boot: BootInstant?
    switch phase {
    case .stopped, .finished: break
    case .waiting(let retryAt, _, _): if !held, begun, retryAt < .distantFuture { consider(retryAt) }
    case .backingOff(let until, let next): if !held, begun { consider(actsAt(until, next)) }
    case .starting(let run), .running(let run), .stopping(let run, _):
      // Whatever is due has to wait for news of what an earlier instance of guardian has left.
      if run.stage == .adopting { break }
      if case .starting = phase {
        if !held { consider(run.readyBy) }
        consider(run.lookAgainAt ?? run.settlesAt)
        break
      }
      if case .stopping(_, let stop) = phase {
        if !interrupted { consider(stop.killAt) }
        break
      }
      if !settlingIsPutOff { consider(run.lookAgainAt ?? run.settlesAt) }
      consider(run.clearsAt)
      consider(run.deescalatesAt)
      consider(mitigationDue(run))
      if !held { consider(run.pluginsAt) }
      consider(reloadDeadline)
      if !held { consider(run.watchdogAt) }
    case .repairing(let repair):
      switch repair.hook?.stage {
      case .running(let until): consider(until)
      case .terminated(let killAt): consider(killAt)
      case .saving, .adopting, .killed, nil: break
      }
    case .quarantined: if mayStart, begun, obstacle == nil { boot = record.quarantine?.nextTrial }
    }
    consider(nextProbeAt)
    if let since = unansweredSince { consider(since + Self.saveTimeout) }
    if let until = record.hold?.until { boot = min(boot ?? until, until) }
    return (monotonic, boot)
  }

  private mutating func deadlinePassed(_ turn: inout Turn) {
    let now = turn.now
    if let hold = record.hold, now.boot >= hold.until { endHold(&turn) }
    if let since = unansweredSince, now.monotonic >= since + Self.saveTimeout {
      unansweredSince = nil
      confirmed = issued
      if !volatile {
        volatile = true
        note(.volatile, &turn)
      }
      saveConfirmed(&turn)
    }
    func due(_ instant: Instant?) -> Bool { instant.map { now.monotonic >= $0 } ?? false }
    switch phase {
    case .stopped, .finished: return
    case .waiting(let retryAt, _, let kind):
      if !held, begun, retryAt < .distantFuture, due(retryAt) { start(kind, &turn) }
    case .backingOff(let until, let next): if !held, begun, due(actsAt(until, next)) { perform(next, &turn) }
    case .starting(let run), .running(let run), .stopping(let run, _):
      if run.stage == .adopting { return }
      if case .stopping(_, let stop) = phase {
        if !interrupted, due(stop.killAt) { nextStopStep(run, stop, &turn) }
        return
      }
      if case .starting = phase {
        if !held, due(run.readyBy) {
          if isReadyAsFarAsKnown { return becameReady(run.id, &turn) }
          fault(run, .startTimeout, signal: spec.stop.signal, detail: unreadyDetail, &turn)
        } else if due(run.lookAgainAt ?? run.settlesAt) {
          lookAt(run, &turn)
        }
        return
      }
      if !held, due(run.watchdogAt) {
        fault(run, .watchdog, signal: .abrt, &turn)
      } else if due(reloadDeadline) {
        reloadDeadlinePassed(&turn)
      } else if !settlingIsPutOff, due(run.lookAgainAt ?? run.settlesAt) {
        windowPassed(run, &turn)
      } else {
        if due(run.clearsAt) { clearLate(&turn) }
        if due(run.deescalatesAt) { deescalate(&turn) }
        if due(mitigationDue(run)) { mitigationLives(run, &turn) }
        if !held, due(run.pluginsAt) { tendPlugins(&turn) }
      }
    case .repairing(let repair): hookDeadlinePassed(repair, &turn)
    case .quarantined:
      // A trial without what is required would prove nothing: it waits in quarantine.
      if mayStart, begun, obstacle == nil, let trial = record.quarantine?.nextTrial, now.boot >= trial {
        start(.trial, &turn)
      }
    }
  }
}
