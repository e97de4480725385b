import GuardianModel

// What would happen if the service kept dying: the real machine, played forward against a world in which every start
// dies at once and every repair changes nothing.

/// Two runs, one with no jitter and one with all of it, give the range of every line.
///
/// - Parameter deaths: How it dies, one after the other and then again; none: as it last did, as soon as it is started.
func plan(_ machine: ServiceMachine, now: Now, deaths: [PlanDeath] = []) -> [PlanEntry] {
  var rules = Forecast.Rules()
  rules.deaths = Array(deaths.prefix(PlanDeath.most))
  let early = Forecast(machine, now: now, share: 0, rules: rules).entries
  let late = Forecast(machine, now: now, share: 1, rules: rules).entries
  return zip(early, late).map { entry, later in
    var entry = entry
    entry.latest = later.earliest
    return entry
  }
}

struct Forecast {
  static let lines = 64
  /// What makes it a drill: it is told how it dies and how often, ends in quarantine, and waits for its repairs to be run.
  struct Rules {
    var death: Death?
    /// What guardian ends it for, so that it dies of that; it does not come to its exec; what its evidence says.
    var fault: Cause?, failure: SpawnFailure?, finding: Finding?
    /// In turn; after a life of some length each.
    var deaths: [PlanDeath] = []
    var crashes = Int.max
    var endsInQuarantine = false
    var waitsForRepairs = false
    var lines = Forecast.lines
    var seed: (UInt64, UInt64, UInt64, UInt64) = (1, 2, 3, 4)
  }
  private let rules: Rules
  private var deaths = 0
  /// A repair that is to be run before it can go on.
  private(set) var awaited: HookRequest?
  private(set) var entries: [PlanEntry] = []
  private var machine: ServiceMachine
  private var now: Now
  private let begin: Now
  private var random: Randomness
  private var pending: [ServiceEvent] = []
  /// Lives, and is to be ended by guardian for this.
  private var faulty: (run: RunID, fault: Cause, death: Death)?
  /// The run that lives, and how and when it will die.
  private var life: (run: RunID, until: Instant, death: Death)?
  private(set) var over = false
  /// What the evidence of the next deaths says: what it said of the last one, or what the cause that is given says.
  private var finding: Finding, said = Finding()

  init(_ machine: ServiceMachine, now: Now, share: Double, rules: Rules = Rules()) {
    self.rules = rules
    finding = Finding()
    random = Randomness(seed: rules.seed)
    self.machine = machine
    self.now = now
    begin = now
    if !rules.deaths.isEmpty {
      // Such a life is without trouble until its end: what would be looked at meanwhile is well.
      self.machine.spec.checks = []
      self.machine.spec.watchdog = .zero
      self.machine.spec.plugins.acknowledge = nil
    }
    random.fixedShare = share
    if let end = machine.record.lastEnd, end.crashClass != .ordered, end.crashClass != .clean {
      said = Finding(crashClass: end.crashClass, signature: end.signature)
    }
    finding = rules.finding ?? said
    // Others are as they should be: the plan is about this one's own deaths.
    let waits = machine.waitsForOthers ? machine.obstacle : nil
    self.machine.obstacle = nil
    self.machine.fallbackRuns = nil
    self.machine.waitsForFallback = false
    self.machine.mustGoLast = false
    if let waits {
      entries.append(
        PlanEntry(
          earliest: .zero, latest: .zero, action: "wait", step: machine.record.step, strikes: machine.record.strikes,
          strikesAllowed: machine.strikesAllowed(on: machine.record.step), text: waits.text + "; from then on"))
      give { machine, turn in machine.neighboursChanged(&turn) }
    }
    play()
  }

  private mutating func play() {
    switch machine.phase {
    case .stopped, .finished:
      if machine.record.hold == nil { give { machine, turn in _ = machine.orderStart(by: "", &turn) } }
    case .starting(let run), .running(let run):
      switch run.stage {
      case .saving: pending.append(.saved(machine.issued))
      case .spawning: begun(run.id)
      case .adopting, .up: die(run.id)
      }
    case .stopping(let run, _):
      if run.stage == .spawning { begun(run.id) } else { die(run.id) }
    case .repairing(let repair):
      if let hook = repair.hook {
        if case .saving = hook.stage {
          pending.append(.saved(machine.issued))
        } else {
          pending.append(.hookEnded(hook.id, .succeeded))
        }
      }
    case .waiting: if machine.inLine != nil { give { machine, turn in machine.startFromLine(&turn) } }
    case .backingOff, .quarantined: break
    }
    goOn()
  }

  private mutating func goOn() {
    // A plan is bounded by its lines; the second bound is for a machine that would make none.
    var turns = 0
    while !over, awaited == nil, entries.count < rules.lines, turns < 10_000 {
      turns += 1
      if pending.isEmpty {
        if let (run, fault, death) = faulty {
          faulty = nil
          give { machine, turn in machine.fails(run, of: fault, &turn) }
          pending += [.ended(run, death), .emptied(run)]
          continue
        }
        guard advance() else { break }
      } else {
        let event = pending.removeFirst()
        give { machine, turn in machine.handle(event, &turn) }
      }
    }
    if awaited == nil { over = true }
  }

  /// The repair that was awaited has been run.
  mutating func repairEnded(_ result: HookResult) {
    guard let hook = awaited else { return }
    awaited = nil
    pending.append(.hookEnded(hook.id, result))
    goOn()
  }

  /// To the next deadline, whichever clock it is on. False where nothing more will happen by itself.
  private mutating func advance() -> Bool {
    let due = machine.nextDeadline
    let waits = [due.monotonic.map { $0 - now.monotonic }, due.boot.map { $0 - now.boot }].compactMap { $0 }
    if let life, waits.allSatisfy({ $0 >= life.until - now.monotonic }) {
      now = now.advanced(by: max(.zero, life.until - now.monotonic))
      end(life.run, life.death)
      return true
    }
    guard let wait = waits.min() else { return false }
    now = now.advanced(by: max(.zero, wait))
    pending.append(.deadline)
    return true
  }

  private mutating func give(_ what: (inout ServiceMachine, inout Turn) -> Void) {
    var turn = Turn(now: now, random: random)
    let before = machine.phase.name
    what(&machine, &turn)
    if machine.recordChanged { machine.finish(turn: &turn, phaseBefore: before) }
    random = turn.random
    for action in turn.actions { perform(action) }
  }

  private mutating func perform(_ action: Action) {
    switch action {
    case .save(_, let ticket): pending.append(.saved(ticket))
    case .spawn(let request): if deaths < rules.crashes { begun(request.run) } else { over = true }
    case .runHook(let hook):
      if rules.waitsForRepairs, case .repair = hook.purpose {
        awaited = hook
        break
      }
      pending.append(.hookEnded(hook.id, .succeeded))
    case .record(let occurrence): write(occurrence)
    case .look(let run): pending.append(.looked(run, .alive))
    // As the last time: the next death looks the same.
    case .examine(let report): pending.append(.examined(report.end.run, finding))
    case .forget: over = true
    // Guardian ends it, for a plugin's sake.
    case .signal(let run, let signal):
      if life?.run == run { end(run, Death(.signal(signal, core: false))) }
    case .signalSet(let run, let signal):
      if life?.run == run { end(run, Death(.signal(signal, core: false))) }
    case .measure, .signalHook, .notify, .watch, .enter, .reload, .probe, .endProbes: break
    }
  }

  /// How it dies next, where that is given.
  private var nextDeath: PlanDeath? { rules.deaths.isEmpty ? nil : rules.deaths[deaths % rules.deaths.count] }

  private mutating func begun(_ run: RunID) {
    if let failure = rules.failure ?? nextDeath?.cause.failure(of: machine.spec) {
      deaths += 1
      pending.append(.spawnFailed(run, failure))
    } else if rules.death == nil, rules.deaths.isEmpty, case .exec(let failure)? = machine.record.lastEnd?.cause {
      pending.append(.spawnFailed(run, failure))
    } else {
      pending.append(.spawned(run, pid: 0, executable: nil))
      die(run)
    }
  }

  /// The way it died the last time, so that the class and the repairs' `on:` are the right ones.
  private mutating func die(_ run: RunID) {
    // Else with the first exit code that the definition takes for a plain crash.
    let next = nextDeath
    deaths += 1
    if let fault = rules.fault ?? next?.cause.fault {
      faulty = (run, fault, rules.death ?? next?.cause.death ?? Death(.unseen))
      return
    }
    if let next {
      finding = next.cause.finding ?? said
      guard next.age > .zero else { return end(run, next.cause.death) }
      life = (run, now.monotonic + min(next.age, PlanDeath.longestLife), next.cause.death)
      if machine.spec.ready != .none { pending.append(.ready(run)) }
      return
    }
    if let death = rules.death {
      pending.append(.ended(run, death))
      return pending.append(.emptied(run))
    }
    let spec = machine.spec
    let plain = (1...125).first { $0 != 78 && !spec.successExit.contains($0) && !spec.fatalExit.contains($0) }
    var status = ExitStatus.code(plain ?? 1)
    if let end = machine.record.lastEnd, end.cause == .exit || end.cause == .signal, end.crashClass != .clean,
      end.crashClass != .ordered
    {
      status = end.status
    }
    pending.append(.ended(run, Death(status)))
    pending.append(.emptied(run))
  }

  private mutating func end(_ run: RunID, _ death: Death) {
    life = nil
    pending.append(.ended(run, death))
    pending.append(.emptied(run))
  }

  private mutating func write(_ occurrence: Occurrence) {
    let action: String
    var text = occurrence.sentence
    var strikes: (Int, Int)?
    var step: Step?
    switch occurrence.kind {
    case .started(_, _, let kind, let off):
      switch kind {
      case .ordinary: (action, text) = ("start", "start")
      case .trial: (action, text) = ("trial", "trial start")
      case .pluginRetry: (action, text) = ("plugin-retry", "start with a plugin on again")
      case .probe: (action, text) = ("probe", "start of the search")
      }
      if !off.isEmpty { text += " without \(off.joined(separator: ", "))" }
    case .strike(let on, let count, let allowed):
      step = on
      action = "death"
      text = allowed > 0 ? "dies: strike \(count) of \(allowed)" : "dies: strike \(count), escalation is off"
      strikes = (count, allowed)
    case .lateDeath: (action, text) = ("death", "dies: " + text)
    case .escalated: action = "escalate"
    case .repairStarted(_, let name, let attempt): (action, text) = ("repair", "repair \(name), round \(attempt)")
    case .beforeStart: (action, text) = ("before-start", "before-start")
    case .pluginsOff: action = "plugins-off"
    case .pluginsOn: action = "plugins-on"
    case .quarantined:
      action = "quarantine"
      if rules.endsInQuarantine { over = true }
    case .repairEnded(_, let name, let result):
      guard rules.waitsForRepairs else { return }
      (action, text) = ("repair-ended", "repair \(name) \(result.description)")
    case .trialFailed:
      action = "trial-failed"
      over = true
    case .pluginRetryFailed: action = "plugin-retry-failed"
    case .pluginsUnconfirmed: action = "plugins-unconfirmed"
    case .mitigation: action = "mitigation"
    case .searchBegan: action = "search"
    case .searchEnded: action = "search-ended"
    case .released: action = "release"
    case .holdEnded: action = "hold-ends"
    case .finished: action = "finish"
    case .waiting: action = "wait"
    case .observed: action = "observe"
    case .notCounted: (action, text) = ("death", "dies: " + text)
    case .settled where life != nil: (action, text) = ("settle", "settled")
    case .deescalated where life != nil: action = "deescalate"
    case .probing, .probed, .goodCopyUsed, .pluginRestart, .pluginsChanged, .searchSuggested, .ready, .check, .settled,
      .ended,
      .waitingFor, .standingDown, .deescalated, .backingOff, .beforeStartEnded, .held, .reset, .requested, .stopped,
      .stuck, .volatile, .resumed, .internalError,
      .commonCause,
      .commonCauseEnded:
      return
    case .reloading, .reloaded, .reloadFailed, .leaving, .watchdogSet, .mainMoved:
      return
    case .stepSwitchedOff: action = "switched-off"
    case .switchInForce, .switchOver, .switchBroken: return
    }
    guard entries.count < rules.lines else { return }
    let at = now.boot - begin.boot
    entries.append(
      PlanEntry(
        earliest: at, latest: at, action: action, step: step ?? machine.record.step,
        strikes: strikes?.0 ?? machine.record.strikes,
        strikesAllowed: strikes?.1 ?? machine.strikesAllowed(on: machine.record.step), text: text))
  }
}

extension ServiceMachine {
  /// In a drill: guardian finds the fault, and ends the run for it.
  fileprivate mutating func fails(_ id: RunID, of cause: Cause?, _ turn: inout Turn) {
    guard let cause, let run = phase.run, run.id == id, run.stage == .up else { return }
    switch phase {
    case .starting, .running: fault(run, cause, signal: cause == .watchdog ? .abrt : spec.stop.signal, &turn)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: break
    }
  }
}
