import GuardianModel

// What people and the outside world want: the verb table, holds, changed definitions and files, removal, shutdown.

extension ServiceMachine {
  /// What the one who gave an order waits for.
  package enum Expectation: Hashable, Sendable {
    /// Durable is enough.
    case accepted(note: String)
    case ready(note: String)
    case stopped(note: String)
    /// Until a reload is over, and `after` others before it.
    case reloaded(note: String, after: Int)
    /// Until the repairs that were ordered are over, and, where it is wanted, it is ready again.
    case repaired(note: String, thenReady: Bool)
    /// The wish cannot come true any more, and whoever asks must not be told that it has.
    case inVain(reason: String)
  }

  /// An operator's order: never refused, never counted.
  package mutating func order(_ command: Command, _ turn: inout Turn) -> Expectation {
    let before = phase.name
    note(.requested(verb: command.verb.name, by: command.by), &turn)
    switch command.verb {
    case .stop, .restart: interruptSearch(&turn)
    case .hold(let time): if time > .zero { interruptSearch(&turn) }
    case .repair: interruptSearch(&turn)
    case .start, .release, .reset, .reload, .plugins, .safeMode: break
    }
    let expectation: Expectation =
      switch command.verb {
      case .start: orderStart(by: command.by, &turn)
      case .stop(let untilBoot): orderStop(untilBoot: untilBoot, by: command.by, &turn)
      case .restart: orderRestart(by: command.by, &turn)
      case .release: orderRelease(by: command.by, &turn)
      case .reset: orderReset(by: command.by, &turn)
      case .reload: orderReload(&turn)
      case .hold(let time): orderHold(time, by: command.by, &turn)
      case .plugins(let order): orderPlugins(order, &turn)
      case .safeMode(let on): orderSafeMode(on, &turn)
      case .repair(let name): orderRepair(name, &turn)
      }
    finish(turn: &turn, phaseBefore: before)
    return expectation
  }

  var goingDown: String {
    removed ? "its definition is gone, so it is being stopped for good" : "guardian is going down"
  }

  /// - Parameter by: Who wants it down. The first one's name stays where others want the same.
  private mutating func want(_ wanted: Wanted, untilBoot: Bool = false, by: String = "") {
    guard record.wanted != wanted || record.untilBoot != untilBoot else { return }
    record.wanted = wanted
    record.untilBoot = untilBoot
    record.stoppedBy = wanted == .down ? by : ""
    save()
  }

  mutating func orderStart(by: Author, _ turn: inout Turn) -> Expectation {
    guard !shuttingDown, !removed else { return .inVain(reason: goingDown) }
    want(.up)
    // Whoever else wants it: it is not there for another's quarantine only.
    if !by.text.isEmpty, record.standsIn {
      record.standsIn = false
      save()
    }
    careful = true
    switch phase {
    case .running:
      stay(&turn)
      return departure == .restart ? .ready(note: "after it has stopped") : .accepted(note: "already running")
    case .starting:
      stay(&turn)
      return .ready(note: "")
    case .repairing(var repair):
      if repair.outcome == .stop || repair.outcome == .rest {
        if repair.outcome == .stop { turn.milestones.append(.overtaken) }
        repair.outcome = .start
      }
      repair.byOperator = true
      phase = .repairing(repair)
      return .ready(note: repair.beforeStart == nil ? "after the repair" : "after before-start")
    case .backingOff, .waiting:
      startNow(byOperator: true, &turn)
      return .ready(note: "")
    case .stopped, .finished:
      firstStart = true
      start(.ordinary, &turn)
      return .ready(note: "")
    case .stopping(let run, var stop):
      turn.milestones.append(.overtaken)
      switch stop.purpose {
      case .order: stop.purpose = .restart
      case .restart, .plugins: break
      case .fault, .death, .leaving: stop.thenStart = true
      }
      phase = .stopping(run, stop)
      return .ready(note: "after it has stopped")
    case .quarantined:
      start(.trial, byOperator: true, &turn)
      return .ready(note: "one trial; " + clears)
    }
  }

  /// The delay is cut short; the counters are kept, and the step's action is taken.
  private mutating func startNow(byOperator: Bool = false, _ turn: inout Turn) {
    switch phase {
    case .backingOff(_, let next): perform(next, byOperator: byOperator, &turn)
    case .waiting(_, _, let kind): start(kind, byOperator: byOperator, &turn)
    case .stopped, .finished, .starting, .running, .repairing, .stopping, .quarantined: break
    }
  }

  private mutating func orderStop(untilBoot: Bool, by: Author, _ turn: inout Turn) -> Expectation {
    want(.down, untilBoot: untilBoot, by: by.text)
    record.standsIn = false
    switch phase {
    case .stopped, .finished:
      reason = ""
      phase = .stopped
      return .accepted(note: "already stopped")
    case .quarantined: return .accepted(note: "stopped; the quarantine stays")
    case .backingOff, .waiting, .starting, .running, .repairing, .stopping:
      takeDown(&turn)
      return phase.run == nil && !isRepairing ? .accepted(note: "") : .stopped(note: "")
    }
  }

  private var isRepairing: Bool { if case .repairing = phase { true } else { false } }

  private mutating func orderRestart(by: Author, _ turn: inout Turn) -> Expectation {
    switch phase {
    case .starting(let run), .running(let run):
      want(.up)
      guard !shuttingDown, !removed else { return .inVain(reason: goingDown) }
      stopRun(run, .restart, &turn)
      return .ready(note: "")
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined:
      return orderStart(by: by, &turn)
    }
  }

  private mutating func orderRelease(by: Author, _ turn: inout Turn) -> Expectation {
    guard record.quarantine != nil else { return .accepted(note: "not quarantined") }
    careful = true
    return release(why: "by \(by)", &turn)
  }

  private mutating func orderReset(by: Author, _ turn: inout Turn) -> Expectation {
    note(.reset(by: by), &turn)
    if record.quarantine != nil { return release(why: "by \(by)", &turn) }
    let reasonBefore = reason
    record.plugins.forgive()
    freshLadder()
    reason = reasonBefore
    return .accepted(note: "")
  }

  /// Out of quarantine with a fresh ladder, and started where it is wanted.
  private mutating func release(why: String, _ turn: inout Turn) -> Expectation {
    record.plugins.forgive()
    freshLadder()
    note(.released(why: why), &turn)
    switch phase {
    case .starting: return .ready(note: "")  // the trial goes on, as an ordinary start
    case .repairing where isPreparing: return .ready(note: "")
    case .running, .stopping, .repairing: return .accepted(note: "")
    case .stopped, .finished, .waiting, .backingOff, .quarantined:
      phase = .stopped
      guard record.wanted == .up else { return .accepted(note: "released; it is wanted down, so it was not started") }
      guard !shuttingDown, !removed else { return .inVain(reason: "released, but \(goingDown)") }
      if held { return .accepted(note: "released; it is held, so it was not started") }
      firstStart = true
      start(.ordinary, &turn)
      return .ready(note: "")
    }
  }

  // MARK: Hold

  private mutating func orderHold(_ time: Duration, by: Author, _ turn: inout Turn) -> Expectation {
    guard time > .zero else {
      guard held else { return .accepted(note: "not held") }
      endHold(&turn)
      return .accepted(note: "hold ended")
    }
    record.hold = Hold(until: turn.now.boot + time, by: by.text)
    record.orderedRepairs = []
    save()
    note(.held(for: time, by: by), &turn)
    switch phase {
    case .starting(let run):
      // Decided but not born: guardian starts nothing now.
      if case .saving = run.stage {
        record.openRun = nil
        phase = record.quarantine == nil ? .stopped : .quarantined
        turn.milestones.append(.failed("held by \(by)"))
      }
    case .repairing(var repair):
      if repair.outcome == .start || repair.outcome == .startFresh {
        if let hook = repair.hook, case .saving = hook.stage {
          phase = idlePhase
          turn.milestones.append(.failed("held by \(by)"))
        } else {
          repair.outcome = .rest
          repair.byOperator = false
          phase = .repairing(repair)
        }
      }
    case .waiting: inLine?.byOperator = false
    case .stopped, .finished, .running, .backingOff, .stopping, .quarantined: break
    }
    return .accepted(note: "")
  }

  /// A wanted service that is down is started with the counters it had; time-outs that stood still begin anew.
  mutating func endHold(_ turn: inout Turn) {
    record.hold = nil
    save()
    note(.holdEnded, &turn)
    let now = turn.now.monotonic
    switch phase {
    case .stopped:
      reason = ""
      if mayStart { start(.ordinary, &turn) }
    case .backingOff, .waiting: if mayStart { startNow(&turn) }
    case .starting(var run):
      if run.readyBy != nil { run.readyBy = now + spec.startTimeout }
      phase = .starting(run)
    case .running(var run):
      if run.watchdogAt != nil { run.watchdogAt = now + run.watchdog }
      phase = .running(run)
      checksHeldNoLonger()
      tendPlugins(&turn)
    case .repairing(var repair):
      if repair.outcome == .rest { repair.outcome = .start }
      phase = .repairing(repair)
    case .quarantined: reason = record.quarantine?.reason ?? reason
    case .finished, .stopping: break
    }
  }

  // MARK: Going down

  /// Stops whatever is going on, because it is no longer wanted, no longer defined, or guardian goes down.
  mutating func takeDown(_ turn: inout Turn) {
    forgetOrderedRepairs()
    goOnAfterInterruption(&turn)
    switch phase {
    case .starting(let run), .running(let run): stopRun(run, .order, &turn)
    case .stopping(let run, var stop):
      if stop.purpose == .restart || stop.purpose == .plugins { stop.purpose = .order }
      stop.thenStart = false
      phase = .stopping(run, stop)
    case .repairing(let repair): abortRepair(repair, &turn)
    case .backingOff, .waiting:
      // A trial that waits for guardian's own trouble is in quarantine still.
      phase = record.quarantine == nil ? .stopped : .quarantined
      if let quarantine = record.quarantine { reason = quarantine.reason }
      save()
      if removed { return forget(&turn) }
      note(.stopped, &turn)
      turn.milestones.append(.stopped)
    case .stopped, .finished, .quarantined: if removed { forget(&turn) }
    }
  }

  // MARK: Changes

  /// Policy takes effect at once; process keys at the next start, which is now where they may be the cure.
  mutating func defined(_ new: ServiceSpec, _ turn: inout Turn) {
    if removed { comeBack(&turn) }
    let before = spec
    var merged = new
    merged.process = spec.process
    if merged != before { spec = merged }
    policyChanged(from: before, &turn)
    guard new.process.asDefined != spec.process.asDefined else {
      nextProcess = nil
      if let directory = new.process.pluginDirectory {
        // None: it is empty, or could not be looked at, which the look before the next start will tell.
        let found = new.process.plugins.filter { $0.entry != nil }
        if !found.isEmpty { pluginsFound(in: directory, found) }
      }
      // A reload is one of the moments at which what was missing is tried again.
      if missing != nil, case .quarantined = phase, mayStart { startFresh(&turn) }
      return
    }
    nextFound = nil
    var unlimited = spec.process
    unlimited.groupLimits = new.process.groupLimits
    switch phase {
    case .starting, .running, .stopping:
      guard unlimited.asDefined == new.process.asDefined else {
        nextProcess = Shared(new.process)
        return
      }
      // Limits of its control group bind what runs already.
      spec.process.groupLimits = new.process.groupLimits
      nextProcess = nil
      save()
    case .repairing(var repair):
      nextProcess = Shared(new.process)
      if repair.outcome == .start { repair.outcome = .startFresh }
      phase = .repairing(repair)
    case .stopped, .finished: nextProcess = Shared(new.process)
    case .backingOff, .waiting, .quarantined:
      nextProcess = Shared(new.process)
      startFresh(&turn)
    }
  }

  /// What was being taken down, to be forgotten, is defined again: it is stopped first, and then wanted as before.
  private mutating func comeBack(_ turn: inout Turn) {
    removed = false
    guard mayStart else { return }
    switch phase {
    case .stopping(let run, var stop):
      if stop.purpose == .order { stop.purpose = .restart } else { stop.thenStart = true }
      phase = .stopping(run, stop)
    case .repairing(var repair):
      if repair.outcome == .stop { repair.outcome = .start }
      phase = .repairing(repair)
    case .starting, .running: stay(&turn)
    case .stopped, .finished, .waiting, .backingOff, .quarantined: break
    }
  }

  /// What is under way by the old policy and would go on under the new one for ever, or against it.
  private mutating func policyChanged(from before: ServiceSpec, _ turn: inout Turn) {
    if record.quarantine == nil, record.step > .restart {
      if before.mode == .observe, !observing {
        freshLadder()
      } else if !escalates {
        escalationEnded("escalation is off now", &turn)
      }
    }
    if record.quarantine != nil, before.quarantine != spec.quarantine {
      let sameFirst = before.quarantine.retryAfter == spec.quarantine.retryAfter
      let delay = sameFirst ? record.trialDelay.map { min($0, spec.quarantine.max) } : spec.quarantine.retryAfter
      let planned = record.quarantine?.nextTrial
      record.trialDelay = delay
      record.quarantine?.nextTrial = delay.map { delay in
        let due = turn.now.boot + delay
        return planned.map { min($0, due) } ?? due
      }
      save()
    }
    if spec.plugins.search == .off, before.plugins.search != .off, let search = record.plugins.search {
      interruptSearch(&turn)
      foundNothing(.abandoned, record.plugins.search ?? search, &turn)
    }
    if before.plugins != spec.plugins { tendPlugins(&turn) }
    if spec.watchdog == .zero, case .running(var run) = phase {
      run.watchdogAt = nil
      phase = .running(run)
    }
    if spec.isReadyAtOnce, case .starting(let run) = phase { becameReady(run.id, &turn) }
  }

  /// Something changed that may be the cure: a fresh ladder, and a start where one is wanted.
  private mutating func startFresh(_ turn: inout Turn) {
    guard mayStart else {
      // The next start adopts it; a quarantine ends here, since its reason is gone.
      if record.quarantine != nil {
        freshLadder()
        phase = .stopped
        note(.released(why: "its definition changed"), &turn)
      }
      return
    }
    phase = .stopped
    if nextProcess == nil {
      freshLadder()
      note(.released(why: "a reload: what was missing is tried again"), &turn)
    }
    start(.ordinary, &turn)
  }

  mutating func executableSeen(_ identity: FileIdentity?, _ turn: inout Turn) {
    guard let identity else {
      if missing != nil { executable = nil }
      return
    }
    let appeared = missing != nil
    guard executable != identity else { return }
    guard appeared || executable != nil else {
      executable = identity
      return
    }
    programChanged(turn.now.boot)
    switch phase {
    case .starting, .running, .stopping:
      executableReplaced = true  // the next start has it, and the end of this run is not held against it
      return
    case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: break
    }
    executable = identity
    appearanceTried = appeared
    changed(appeared ? "what was missing is there" : "the executable changed", &turn)
  }

  /// What it is made of is another now, and none of it lives: nothing is held against it any more.
  private mutating func changed(_ why: String, _ turn: inout Turn) {
    guard record.step > .restart || record.strikes > 0 || record.quarantine != nil else { return }
    switch phase {
    case .quarantined, .backingOff, .waiting:
      freshLadder()
      note(.released(why: why), &turn)
      phase = .stopped
      if mayStart { start(.ordinary, &turn) }
    case .repairing(var repair):
      if repair.outcome == .start { repair.outcome = .startFresh }
      freshLadder()
      note(.released(why: why), &turn)
      phase = .repairing(repair)
    case .stopped, .finished:
      freshLadder()
      note(.released(why: why), &turn)
    case .starting, .running, .stopping: break
    }
  }

  mutating func filesSeen(_ sights: [FileSight], _ turn: inout Turn) {
    noteSights(sights)
    // What guardian itself is about to change is looked at before the next start.
    if case .repairing(let repair) = phase, case .restore = repair.hook?.repair.kind { return }
    let declared = spec.declaredFiles
    let seen = sights.filter { declared.contains($0.path) }
    let news = seen.first { sight in
      !sight.restored && record.files.contains { $0.path == sight.path && $0.look != sight.look }
    }
    let lives =
      switch phase {
      case .starting(let run): run.stage == .up || run.stage == .adopting
      case .running, .stopping: true
      case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: false
      }
    if let news, lives {
      // The next start has it, and finds it changed; the end of this run is not held against it.
      fileReplaced = news.path
      return
    }
    let known = seen.map { FileSight(path: $0.path, look: $0.look) }
    if known != record.files {
      record.files = known
      save()
    }
    guard let news else { return }
    let why = "\(news.path) changed"
    if case .starting(var run) = phase {
      // It was decided before this was known.
      guard record.step > .restart || record.strikes > 0 || record.quarantine != nil else { return }
      // A plugin that is tried because of that is still one that is tried.
      let isTried =
        run.kind == .pluginRetry
        && plugins(named: tried(in: run)).contains { $0.paths.contains(news.path) }
      freshLadder()
      if !isTried { run.kind = .ordinary }
      phase = .starting(run)
      note(.released(why: why), &turn)
      return
    }
    changed(why, &turn)
  }
}
