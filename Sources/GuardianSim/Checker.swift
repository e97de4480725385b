import GuardianCore
import GuardianModel

/// What the simulator has found wrong, with what is needed to see it again.
package struct Violation: Error, Hashable, Sendable, CustomStringConvertible {
  package var at: Duration
  package var service: String
  package var number: Int
  package var rule: String
  package var description: String { "at \(at.description), \(service): \(rule)" }
}

/// Watches what goes into a fleet and what comes out, and holds it against the published rules.
///
/// It keeps a model of its own, counted from events and actions; the machine's own counters are read only to be compared.
/// Every check costs a fixed number of steps. Where two readings of a rule are possible (a definition changed while a run
/// was live, a stall of guardian around the end of a window) both are accepted, and the model follows the machine.
struct Checker {
  /// Files of switches.d, and those that were there a moment ago.
  private var switches: [Switch] = []
  private var former: [(value: Switch, until: Nanoseconds)] = []
  var wall = WallTime(nanoseconds: 0)
  var models: [Model] = []
  private(set) var shuttingDown = false
  private(set) var requests: [UInt64: PendingRequest] = [:]
  private var deaths: [Int] = []
  /// A check has said that the run has to go.
  private var verdicts: [Int] = []
  /// How much longer than written a window may seem, because guardian stalled.
  private var lastStall: (until: Nanoseconds, length: Nanoseconds) = (0, 0)
  private(set) var alive = 0

  var governor: GovernorSpec?
  /// When the bucket of tokens will be full again.
  private var fullAt: Nanoseconds = .min
  var cause: CommonCauseSpec?
  private var frozenUntil: Nanoseconds?
  private var began: [(at: Nanoseconds, service: Int)] = []
  private var causeIsDue = false
  private(set) var stopped = false

  struct PendingRequest {
    var service: Int, verb: String, since: Nanoseconds, abandoned = false
  }

  /// What the next look at the record stream must show for a death.
  enum Verdict: Equatable {
    case nothing, strike, late(Int), either, anything
  }

  struct Model {
    var spec: ServiceSpec
    var wanted: Wanted3
    var gone = false
    /// When notices were told, of late.
    var notices: [Nanoseconds] = []
    var heldUntil: Nanoseconds?
    var step = Step.restart
    var strikes = 0
    /// The ladder may have been made fresh since the last strike, as a change allows.
    var mayBeFresh = false
    /// An operator, or a change, allows the next start.
    var permit = false

    // The current or last run.
    var run: RunID?
    var kind = RunKind.ordinary
    /// The plugins that are off in it.
    var disabled: [String] = []
    /// A search for the guilty plugin is under way; what it wants on next, for the whole window.
    var searching = false
    /// What it wants on and off in its next start.
    var probe: (on: [String], off: [String]) = ([], [])
    /// An operator never wants these switched; and has switched some.
    var pinned: Set<String> = [], pluginsAsOrdered = false
    /// Entries of its plugin directory as they were seen last, and as they had been seen when the start before was decided.
    var found: Set<String> = [], foundBefore: Set<String> = []
    /// This run has said that its plugins are off.
    var confirmed = false
    /// Files that have been seen to be others than their good copies since the last start was decided.
    var newSuspects: Set<String> = []
    /// An order may have stopped the run, or may not, where there was nothing to be done for it.
    var mayBeStopped = false
    /// An operator wants a repair now.
    var repairIsOrdered = false
    var mainAlive = false, setAlive = false, executed = false
    var windowFrom: Nanoseconds?
    var settled = false, finished = false
    var signalled = false
    var signalledAt: Nanoseconds?
    var stopIntended = false
    var endRecords = 0
    var deathAt: Nanoseconds?
    var verdict: Verdict?
    var death: Death?
    var spawnError: SpawnFailure?

    /// Certain late deaths (a fresh ladder forgets them), and possible ones (only `reset` does).
    var late: [Nanoseconds] = [], possiblyLate: [Nanoseconds] = []

    var hook: RunID?
    var hookSince: Nanoseconds = 0
    /// The hook is `before-start`; it has succeeded since the last start; it has failed.
    var hookPrepares = false, prepared = false, preparationFailed = false
    /// When the hook has had its time; guardian has signalled it after that, so that no exit status makes it a success.
    var hookDue: Nanoseconds = 0, hookTimedOut = false
    /// It has said that it is stopping.
    var leftAt: Nanoseconds?
    var reloading: (run: RunID, since: Nanoseconds)?
    /// The command of the last reload, while it runs.
    var reloadHook: RunID?

    // Seen in this turn.
    var strikeSeen: (step: Step, count: Int, allowed: Int)?
    var lateSeen: Int?
    var movedSeen: (from: Step, to: Step, skipped: [Step])?
    var quarantinedSeen = false
    var trialFailedSeen = false
    var notCountedSeen = false
    /// The run has said that it goes by itself.
    var leaving = false
    var spawnSeen = false
    /// Its process is defined anew since it was started: its end starts the new one, perhaps after a wait in line.
    var changed = false
    var releasedAt: Nanoseconds?
    /// The declared files as they were last seen; they have changed, by no work of guardian's, since the last start.
    var files: [String: UInt64] = [:], filesChanged = false, filesAreOld = false
    /// Something entitles the machine to quarantine without the last strike.
    var mayQuarantine = false
    /// The evidence of the last death is being gathered since then; it was a strike; what it said entitles to the next step.
    var examinedSince: Nanoseconds?, examinedRun: RunID?
    var struckLast = false, foundIncurable = false
    var signature: UInt64?, signatureBefore: UInt64?
    /// How many deaths the evidence gave a class for which something may be changed, by what may be.
    var mendable: [Mitigation: Int] = [:]
    var verdictWasOpen = false

    // Delays and trials.
    var notBefore: Nanoseconds?
    var tries = 0, triesMost = 0
    var trialNotBefore: Nanoseconds?
    var trialDelay: Duration?
    var trialByOperator = false
    /// A late death has ended an operator's trial before it settled: the restart at once goes on with it.
    var trialGoesOn = false

    // Saves.
    var open: [(ticket: Ticket, run: RunID?, at: Nanoseconds, saved: Bool)] = []
    var lastTicket = Ticket.none
    var lastRecord: ServiceRecord?

    // Checks of the present run, by the probes' answers, in the order of the definition.
    var checks: [CheckModel] = []
    /// When it was signalled, a check had a say and had failed.
    var signalledForCheck = false
    /// A start is under way since then: decided, and neither ready nor over.
    var underWaySince: Nanoseconds?
    /// Settled once; had what would be a strike since then.
    var everSettled = false, looping = false

    // Liveness.
    var badSince: Nanoseconds? = 0
    var settledAt: Nanoseconds?
  }

  /// Counted here from the answers alone.
  struct CheckModel {
    var spec: CheckSpec
    var probe: UInt64?, disturbed = false
    var good = 0, bad = 0, passing = false, hasPassed = false, notMade = false, failing = false
    var isGoodEnough: Bool { passing || notMade && !failing }

    mutating func hear(_ result: ProbeResult) {
      probe = nil
      switch result {
      case .notMade: notMade = true
      case .failed:
        if disturbed { return }
        (notMade, good) = (false, 0)
        bad += 1
        if bad >= spec.failures { (passing, failing) = (false, true) }
      case .passed:
        (notMade, bad) = (false, 0)
        good += 1
        if good >= spec.successes { (passing, hasPassed, failing) = (true, true, false) }
      }
    }
  }

  /// `perhaps` after an order whose effect on the wish the rules leave open.
  enum Wanted3 { case up, down, perhaps }

  // MARK: - What was put in

  mutating func added(_ spec: ServiceSpec, record: ServiceRecord?, now: Nanoseconds, boot: Nanoseconds) {
    var model = Model(spec: spec, wanted: spec.start == .boot ? .up : .down)
    if let record {
      model.wanted = record.wanted == .up ? .up : .down
      model.step = record.step
      model.strikes = record.strikes
      model.lastRecord = record
      model.heldUntil = record.hold?.until.nanoseconds
      model.trialNotBefore = record.quarantine?.nextTrial?.nanoseconds
      model.trialDelay = record.trialDelay
      model.tries = record.triesOnStep
      model.triesMost = record.triesOnStep
    }
    model.badSince = model.wanted == .down || model.step == .quarantine ? nil : now
    models.append(model)
  }

  mutating func delivered(_ event: ServiceEvent, to index: Int, now: Nanoseconds) {
    switch event {
    case .spawned(let run, _, _, _):
      guard models[index].run == run, !models[index].executed else { return }
      models[index].executed = true
      // Its start has looked at them, and what was news is told in this turn.
      if !models[index].stopIntended { models[index].filesAreOld = true }
      if models[index].spec.ready == .none { models[index].underWaySince = nil }
      if models[index].spec.ready == .none { models[index].windowFrom = now }
    case .spawnFailed(let run, let failure):
      guard models[index].run == run, models[index].mainAlive else { return }
      models[index].underWaySince = nil
      models[index].mainAlive = false
      models[index].setAlive = false
      alive -= 1
      models[index].deathAt = now
      models[index].spawnError = failure
      models[index].death = nil
      judgeSpawnFailure(failure, of: index)
      deaths.append(index)
    case .saved(let ticket):
      for place in models[index].open.indices where models[index].open[place].ticket == ticket {
        models[index].open[place].saved = true
      }
    case .hookEnded(let hook, let result):
      if models[index].reloadHook == hook { models[index].reloadHook = nil }
      guard models[index].hook == hook else { return }
      models[index].hook = nil
      if models[index].hookPrepares {
        models[index].prepared = result == .succeeded
        models[index].preparationFailed = result != .succeeded || models[index].hookTimedOut
      } else if result == .cannotRepair {
        models[index].mayQuarantine = true
      }
    case .ready(let run):
      guard models[index].run == run, models[index].mainAlive, models[index].windowFrom == nil else { return }
      models[index].windowFrom = now
      models[index].underWaySince = nil
    case .ended(let run, let death):
      guard models[index].run == run, models[index].mainAlive else { return }
      models[index].underWaySince = nil
      models[index].mainAlive = false
      models[index].foundIncurable = false
      models[index].deathAt = now
      models[index].death = death
      models[index].spawnError = nil
    case .emptied(let run):
      guard models[index].run == run, models[index].setAlive else { return }
      models[index].setAlive = false
      alive -= 1
      if let death = models[index].death { judge(death, of: index, now: now) }
      deaths.append(index)
    case .defined(let spec):
      let before = models[index].spec
      models[index].spec = spec
      models[index].spec.process = spec.process.withWhatIsKnown(from: before.process)
      if spec.process.asDefined != before.process.asDefined {
        freshened(index)
        models[index].changed = true
      }
    case .removed:
      if !models[index].executed { models[index].underWaySince = nil }
      models[index].wanted = .down
      models[index].stopIntended = true
      models[index].permit = false
    case .executableSeen: freshened(index)
    case .filesSeen(let sights):
      if models[index].filesAreOld { models[index].filesChanged = false }
      models[index].filesAreOld = false
      for place in models[index].spec.process.plugins.indices {
        let plugin = models[index].spec.process.plugins[place]
        guard !plugin.goodCopy.isEmpty else { continue }
        let sight = GoodCopySight(
          changed: sights.filter { plugin.goodCopy.contains($0.path) }.compactMap(\.change))
        models[index].spec.process.plugins[place].sight = sight
        if plugin.isIdle, !sight.changed.isEmpty { models[index].newSuspects.insert(plugin.name) }
      }
      for sight in sights {
        if let known = models[index].files[sight.path], known != sight.look, !sight.restored {
          models[index].filesChanged = true
        }
        models[index].files[sight.path] = sight.look
      }
      if models[index].filesChanged { freshened(index) }
    case .probed(let run, let number, let result):
      guard models[index].run == run, models[index].mainAlive,
        let place = models[index].checks.firstIndex(where: { $0.probe == number })
      else { return }
      models[index].checks[place].hear(result)
      let check = models[index].checks[place]
      // Around the end of the window, which a stall may have put off, either reading is accepted.
      if check.failing, check.bad >= check.spec.failures, models[index].windowFrom != nil,
        check.hasPassed || models[index].settled, !models[index].signalled
      {
        verdicts.append(index)
      }
    // It is in force with the next start, whose request is judged by the definition that it carries.
    case .pluginsFound(_, let found): models[index].found = Set(found.map(\.name))
    case .pluginsConfirmed(let run): if models[index].run == run { models[index].confirmed = true }
    case .resumed:
      for place in models[index].checks.indices {
        models[index].checks[place].disturbed = models[index].checks[place].probe != nil
      }
    case .examined(let run, let finding):
      guard models[index].examinedRun == run else { return }
      models[index].examinedSince = nil
      models[index].examinedRun = nil
      for mitigation in Self.mitigations(finding.crashClass) { models[index].mendable[mitigation, default: 0] += 1 }
      guard models[index].struckLast else { return }
      let strong = finding.signature.flatMap { $0.strong ? $0.value : nil }
      models[index].signature = strong
      let again = strong != nil && strong == models[index].signatureBefore
      if finding.crashClass?.survivesRestart ?? false || again { models[index].foundIncurable = true }
    case .pluginsSeen, .measured: break
    case .looked, .watchdogPinged, .watchdogTriggered, .timeoutExtended, .begin, .shutdown, .deadline,
      .hookStarted, .adopted, .superseded, .hookAdopted, .readyAgain, .reloading, .watchdogSet, .mainMoved:
      break
    case .leaving(let run):
      if models[index].run == run, models[index].mainAlive { models[index].leftAt = models[index].leftAt ?? now }
    }
  }

  /// Not before it has passed, or the startup window is over; with `ready: check` that window begins when all have.
  private func haveSay(_ index: Int, _ check: CheckModel, now: Nanoseconds) -> Bool {
    guard let from = models[index].windowFrom else { return false }
    return check.hasPassed || models[index].settled || now - from >= models[index].spec.startupWindow.nanoseconds
  }

  private mutating func freshened(_ index: Int) {
    models[index].mayBeFresh = true
    models[index].notBefore = nil
    models[index].permit = models[index].permit || models[index].wanted != .down
    models[index].trialNotBefore = nil
    models[index].late = []
    models[index].mayQuarantine = true  // what was changed may be missing now
  }

  /// By the table of the rules, not by the machine's.
  private static func mitigations(_ crashClass: CrashClass?) -> [Mitigation] {
    switch crashClass {
    case .wild: [.zeroedMemory, .immediateBinding, .singleCPU]
    case .stack: [.largerStack]
    default: []
    }
  }

  mutating func executableChanged(_ index: Int) { freshened(index) }

  mutating func stalled(until: Nanoseconds, length: Nanoseconds) { lastStall = (until, length) }

  mutating func ordered(_ verb: Command.Verb, on index: Int, request: UInt64?, now: Nanoseconds, boot: Nanoseconds) {
    if let request { requests[request] = PendingRequest(service: index, verb: verb.name, since: now) }
    let quarantined = models[index].step == .quarantine
    switch verb {
    case .stop, .restart:
      // What has not come to its exec gets its signal then, but is under way no more.
      if !models[index].executed { models[index].underWaySince = nil }
    case .start, .release, .reset, .reload, .hold, .plugins, .safeMode, .repair: break
    }
    switch verb {
    case .start, .restart:
      models[index].wanted = .up
      // Nothing is started where something runs and goes on running.
      if verb == .restart || !models[index].mainAlive || models[index].signalled { models[index].permit = true }
      models[index].notBefore = nil
      models[index].trialNotBefore = nil
      // A trial whose before-start runs already becomes the operator's.
      if models[index].hook != nil, models[index].hookPrepares { models[index].trialByOperator = true }
      if verb == .restart { intendStop(index) }
      if models[index].badSince == nil, !models[index].settled, !quarantined { models[index].badSince = now }
    case .stop:
      models[index].wanted = .down
      models[index].permit = false
      models[index].notBefore = nil
      intendStop(index)
    case .release:
      if quarantined { fresh(index, wanted: true, now: now) }
    case .reset:
      models[index].late = []
      models[index].possiblyLate = []
      models[index].trialDelay = nil
      fresh(index, wanted: quarantined, now: now)
    case .reload: break
    case .plugins(let order):
      switch order {
      case .pin(let name): models[index].pinned.insert(name)
      case .unpin(let name): models[index].pinned.remove(name)
      case .enable, .disable, .search: break
      }
      if case .search = order { models[index].mayBeFresh = true }
      models[index].pluginsAsOrdered = true
      if case .search = order {
        models[index].mayBeStopped = true
        if models[index].wanted != .down { models[index].permit = true }
      }
    case .safeMode, .repair:
      if case .repair = verb {
        models[index].repairIsOrdered = true
        // The start that follows is a trial of the operator's, whenever the next one would have come.
        models[index].trialNotBefore = nil
      }
      models[index].pluginsAsOrdered = true
      models[index].mayBeFresh = true
      models[index].notBefore = nil
      if !models[index].executed { models[index].underWaySince = nil }
      if models[index].wanted != .down { models[index].permit = true }
      models[index].mayBeStopped = true
    case .hold(let time):
      models[index].heldUntil = time == .zero ? nil : boot + time.nanoseconds
      // A start that waits for the old run to be gone is an operator's order too, and the older one.
      if !models[index].setAlive, time > .zero { models[index].permit = false }
      models[index].notBefore = nil
      if quarantined, !models[index].mainAlive { models[index].badSince = nil }
    }
  }

  /// A run that has died, goes by itself, or has to go for a fault of its own, does not become innocent by an order.
  private mutating func intendStop(_ index: Int) {
    if models[index].mainAlive, !models[index].signalled, !models[index].leaving { models[index].stopIntended = true }
  }

  /// `release` of a quarantined service, and `reset`.
  private mutating func fresh(_ index: Int, wanted: Bool, now: Nanoseconds) {
    if wanted {
      models[index].permit = true
      models[index].trialNotBefore = nil
      models[index].badSince = models[index].badSince ?? now
      if models[index].wanted == .down { models[index].wanted = .perhaps }
    }
    models[index].kind = .ordinary  // what runs as a trial goes on as an ordinary run
    models[index].step = .restart
    models[index].strikes = 0
    models[index].tries = 0
    models[index].late = []
    models[index].mayBeFresh = true
    models[index].notBefore = nil
  }

  mutating func abandoned(_ request: UInt64) { requests[request]?.abandoned = true }
  mutating func shutDownBegan() {
    shuttingDown = true
    for index in models.indices where models[index].setAlive { models[index].stopIntended = true }
  }

  // MARK: - Judging deaths by the book

  private mutating func judge(_ death: Death, of index: Int, now: Nanoseconds) {
    let spec = models[index].spec
    let settled = models[index].settled
    var clean = false
    if case .code(let code) = death.status { clean = spec.successExit.contains(code) }
    var fatal = false
    if case .code(let code) = death.status, spec.fatalExit.contains(code), !models[index].signalled { fatal = true }

    func decide() -> Verdict {
      if models[index].stopIntended || shuttingDown { return .nothing }
      if models[index].heldUntil != nil { return .anything }
      if models[index].mayBeStopped {
        models[index].possiblyLate.append(now)
        if models[index].possiblyLate.count > spec.late.budget + 1 { models[index].possiblyLate.removeFirst() }
        return .anything
      }
      if models[index].wanted != .up { return .anything }
      if death.traced { return .nothing }
      // A trial that somebody killed is no observation, and is repeated whatever `restart` says.
      if spec.restart == .never { return fatal || models[index].kind == .trial ? .anything : .nothing }
      if fatal { return .anything }
      // What goes by itself, cleanly, and had to be helped: whether that is clean is open, and either reading is accepted.
      if models[index].leaving, models[index].signalled, clean {
        if settled { models[index].possiblyLate.append(now) }
        if models[index].possiblyLate.count > spec.late.budget + 1 { models[index].possiblyLate.removeFirst() }
        return .anything
      }
      if !models[index].signalled {
        if clean, spec.kind == .task {
          // A task that has ended well is as good as a settled run.
          models[index].strikes = 0
          models[index].mayBeFresh = true
          models[index].badSince = nil
          return .nothing
        }
        if clean, spec.restart == .onCrash {
          if models[index].kind != .ordinary { models[index].mayBeFresh = true }
          return .nothing
        }
        if death.status == .unseen, spec.kind == .task { return .nothing }
      }
      let killed = !models[index].signalled && death.oom == .none && Self.isKill(death.status)
      if models[index].kind != .ordinary, !settled {
        guard killed else { return .nothing }
        models[index].possiblyLate.append(now)
        if models[index].possiblyLate.count > spec.late.budget + 1 { models[index].possiblyLate.removeFirst() }
        return .anything
      }
      guard settled || killed else { return spec.mode == .observe ? .anything : .strike }
      models[index].late.append(now)
      models[index].possiblyLate.append(now)
      if models[index].late.count > spec.late.budget + 1 { models[index].late.removeFirst() }
      if models[index].possiblyLate.count > spec.late.budget + 1 { models[index].possiblyLate.removeFirst() }
      if spec.mode == .observe { return .anything }
      if models[index].late.count > spec.late.budget { return .strike }
      if models[index].possiblyLate.count <= spec.late.budget { return .late(models[index].late.count) }
      return .either
    }
    if models[index].step == .quarantine {
      models[index].badSince = nil
    } else if models[index].wanted == .up {
      models[index].badSince = models[index].badSince ?? now
    }
    // Settled runs have been forgiven as soon as their late deaths lay within the budget.
    // Once it is being stopped it is no longer settled; either reading is accepted for the time that this takes.
    var at = models[index].leftAt ?? models[index].signalledAt ?? models[index].deathAt ?? now
    if lastStall.until == now { at -= lastStall.length }  // evidence is told before deadlines that the stall has hidden
    forget(index, now: at)
    if settled, models[index].possiblyLate.count <= spec.late.budget {
      models[index].strikes = 0
      models[index].tries = 0
      models[index].triesMost = 0
    }
    forget(index, now: now)
    if settled, models[index].strikes > 0, models[index].late.count <= spec.late.budget {
      models[index].mayBeFresh = true
    }
    models[index].verdict = decide()
    if fatal { models[index].mayQuarantine = true }
  }

  private mutating func forget(_ index: Int, now: Nanoseconds) {
    let oldest = now - models[index].spec.late.within.nanoseconds
    models[index].late.removeAll { $0 < oldest }
    models[index].possiblyLate.removeAll { $0 < oldest }
  }

  private static func isKill(_ status: ExitStatus) -> Bool {
    switch status {
    case .signal(let signal, _): signal == .kill || signal == .term
    case .code, .unseen: false
    }
  }

  private mutating func judgeSpawnFailure(_ failure: SpawnFailure, of index: Int) {
    let spec = models[index].spec
    if models[index].step == .quarantine { models[index].badSince = nil }
    if failure.missing { models[index].mayQuarantine = true }
    if failure.ownTrouble || models[index].stopIntended || models[index].kind != .ordinary {
      models[index].verdict = failure.ownTrouble ? .nothing : .anything
    } else if failure.missing || models[index].heldUntil != nil || spec.mode == .observe || !spec.escalation.enabled
      || models[index].wanted != .up || spec.restart == .never
    {
      models[index].verdict = .anything
    } else {
      models[index].verdict = .strike
    }
  }

  // MARK: Switches

  /// These are there now.
  mutating func set(_ new: [Switch], now: Nanoseconds) {
    for one in switches { former.append((one, now)) }
    // A start that was decided before has had its time by then.
    former.removeAll { now - $0.until > minute }
    switches = new
  }

  private func isSwitchedOff(_ index: Int, _ plugin: String) -> Bool {
    switches.contains { one in
      one.concerns(models[index].spec.name, in: models[index].spec.groups) && one.turnsOff(plugin: plugin)
        && (one.until.map { wall < $0 } ?? true)
    }
  }
  private func mayBeSwitchedOff(_ index: Int, _ plugin: String, _ now: Nanoseconds) -> Bool {
    (switches + former.filter { now - $0.until <= minute }.map(\.value)).contains { one in
      one.concerns(models[index].spec.name, in: models[index].spec.groups) && one.turnsOff(plugin: plugin)
    }
  }

  /// A file that is as it was when the service was last well is none.
  private static func hasSuspect(_ spec: ServiceSpec) -> Bool {
    spec.process.plugins.contains { $0.goodCopy.isEmpty || !($0.sight?.changed ?? []).isEmpty }
  }

  /// How many strikes end a step, counted here from the definition and not by the machine.
  static func allowed(_ spec: ServiceSpec, on step: Step) -> Int {
    let repairs = !spec.repairs.isEmpty, plugins = hasSuspect(spec)
    switch step {
    case .restart:
      return spec.escalation.restart + (repairs ? 0 : spec.escalation.repair)
        + (plugins ? 0 : spec.escalation.safeMode)
    case .repair: return spec.escalation.repair
    case .safeMode: return spec.escalation.safeMode
    case .quarantine: return 0
    }
  }

  private static func next(_ spec: ServiceSpec, after step: Step) -> (Step, [Step]) {
    var skipped: [Step] = []
    if step < .repair {
      if !spec.repairs.isEmpty { return (.repair, skipped) }
      skipped.append(.repair)
    }
    if step < .safeMode {
      if hasSuspect(spec) { return (.safeMode, skipped) }
      skipped.append(.safeMode)
    }
    return (.quarantine, skipped)
  }

  private static func below(_ spec: ServiceSpec, _ step: Step) -> Step {
    // Without escalation there is no step but the first.
    if !spec.escalation.enabled { return .restart }
    if step > .safeMode, hasSuspect(spec) { return .safeMode }
    if step > .repair, !spec.repairs.isEmpty { return .repair }
    return .restart
  }

  // MARK: - What came out

  mutating func acted(_ action: Action, by index: Int, now: Nanoseconds, boot: Nanoseconds) throws(Violation) {
    switch action {
    case .spawn(let request): try spawns(request, index, now: now, boot: boot)
    case .signal(let run, _), .signalSet(let run, _):
      if models[index].run == run, models[index].mainAlive, !models[index].signalled {
        models[index].underWaySince = nil
        models[index].signalled = true
        models[index].signalledAt = now
        models[index].signalledForCheck = models[index].checks.contains {
          $0.failing && $0.bad >= $0.spec.failures && haveSay(index, $0, now: now)
        }
      }
    case .probe(let probe):
      try check(probe.run == models[index].run && models[index].mainAlive, index, now, "a probe of what does not run")
      try check(models[index].executed, index, now, "a probe of what has not come to its exec")
      try check(!models[index].signalled, index, now, "a probe of what is being stopped")
      guard let place = models[index].checks.firstIndex(where: { $0.spec == probe.check }) else {
        throw violation(index, now, "a probe of a check that is not defined")
      }
      try check(models[index].checks[place].probe == nil, index, now, "two probes of one check at once")
      models[index].checks[place].probe = probe.number
      models[index].checks[place].disturbed = false
    case .endProbes(_, let numbers):
      for place in models[index].checks.indices where models[index].checks[place].probe.map(numbers.contains) ?? false {
        models[index].checks[place].probe = nil
      }
    case .reload(let run, _):
      try check(
        models[index].run == run && models[index].mainAlive && models[index].reloading != nil, index, now,
        "a reload of what does not run, or that nobody was told of")
    case .runHook(let hook) where hook.purpose == .reload:
      try check(
        models[index].mainAlive && models[index].reloading != nil, index, now,
        "the command of a reload of what does not run, or that nobody was told of")
      models[index].reloadHook = hook.id
    case .runHook(let hook):
      try check(models[index].hook == nil, index, now, "two hooks at once")
      try check(!models[index].setAlive, index, now, "a repair while the run's set is not empty")
      models[index].hookPrepares = hook.purpose == .beforeStart
      models[index].prepared = false
      models[index].preparationFailed = false
      if models[index].hookPrepares {
        // It belongs to the start, also to one that an operator asks for.
        try check(!isHeld(index, boot: boot) || models[index].permit, index, now, "before-start while held")
        models[index].trialByOperator = models[index].permit || models[index].trialGoesOn
      } else {
        let ordered = models[index].repairIsOrdered
        try check(models[index].spec.mode == .enforce || ordered, index, now, "a repair in observe mode")
        try check(
          models[index].permit || ordered || models[index].examinedSince.map { now - $0 >= 3 * second } ?? true, index,
          now,
          "a repair before the evidence is there")
        try check(!isHeld(index, boot: boot) || ordered, index, now, "a repair while held")
      }
      try check(
        (models[index].wanted != .down || models[index].repairIsOrdered) && !shuttingDown, index, now,
        "a repair of a service that is not wanted")
      try checkDelay(index, now: now)
      models[index].hook = hook.id
      models[index].hookSince = now
      models[index].hookDue = now + hook.timeout.nanoseconds
      models[index].hookTimedOut = false
    case .signalHook(let hook, _):
      if models[index].hook == hook, now >= models[index].hookDue { models[index].hookTimedOut = true }
    case .notify(let hook): try told(hook, index, now: now, boot: boot)
    case .watch, .look, .measure, .enter: break
    case .examine(let report):
      try check(report.end.run == models[index].run, index, now, "a look into another run's death")
      models[index].examinedSince = now
      models[index].examinedRun = report.end.run
      models[index].struckLast = false
    case .save(let record, let ticket):
      try check(ticket > models[index].lastTicket, index, now, "ticket \(ticket.number) does not rise")
      models[index].lastTicket = ticket
      let before = models[index].lastRecord
      if let preparation = Self.preparation(record) {
        if preparation != before.flatMap(Self.preparation) { try decided(index, now: now) }
      } else if let run = record.openRun, run != before?.openRun, run != models[index].run {
        if before.flatMap(Self.preparation) == nil { try decided(index, now: now) }
      } else if record.openRun == nil, !models[index].mainAlive {
        models[index].underWaySince = nil
      }
      models[index].lastRecord = record
      if models[index].open.count >= 8 { models[index].open.removeFirst() }
      models[index].open.append((ticket, record.openRun, now, false))
    case .record(let occurrence): try recorded(occurrence.kind, index, now: now, boot: boot)
    case .forget:
      try check(!models[index].setAlive && models[index].hook == nil, index, now, "forgotten while something lives")
      models[index].gone = true
      models[index].badSince = nil
      began.removeAll { $0.service == index }
    }
  }

  /// Nobody is flooded with words about one service.
  private mutating func told(
    _ hook: HookRequest, _ index: Int, now: Nanoseconds, boot: Nanoseconds
  ) throws(Violation) {
    models[index].notices.removeAll { boot - $0 >= NoticeLog.quiet.nanoseconds }
    models[index].notices.append(boot)
    switch hook.purpose {
    case .notice(.onQuarantine), .notice(.onCommonCause): break
    default:
      try check(
        models[index].notices.count <= NoticeLog.perService, index, now, "a flood of notices about one service")
    }
  }

  // MARK: - The governor

  /// What runs before a start is part of it.
  private static func preparation(_ record: ServiceRecord) -> RunID? {
    if case .repairing(let round) = record.situation, round.beforeStart != nil { round.hook?.id } else { nil }
  }

  /// A start, as the record announces it.
  private mutating func decided(_ index: Int, now: Nanoseconds) throws(Violation) {
    guard let governor else { return }
    let interval = second / Nanoseconds(governor.startsPerSecond)
    fullAt = max(fullAt, now) + interval
    try check(
      fullAt <= now + interval * Nanoseconds(governor.startsPerSecond), index, now,
      "more starts than \(governor.startsPerSecond) a second")
    models[index].underWaySince = now
    let count = underWay(now)
    try check(count <= governor.concurrent, index, now, "\(count) starts under way at once")
  }

  private func underWay(_ now: Nanoseconds) -> Int {
    models.count { $0.underWaySince.map { now < $0 + 10 * second } ?? false }
  }

  /// Not everybody may start now; or perhaps not: a start called off in the same turn has cost a token.
  private func isSaturated(_ now: Nanoseconds) -> Bool {
    guard let governor else { return false }
    let interval = second / Nanoseconds(governor.startsPerSecond)
    return fullAt + 2 * interval > now + interval * Nanoseconds(governor.startsPerSecond)
      || underWay(now) + 1 >= governor.concurrent - governor.concurrent / 8
  }

  /// The longest that anybody may stand in line.
  private var longestWait: Nanoseconds {
    guard let governor else { return 0 }
    return 10 * second * Nanoseconds(models.count / governor.concurrent + 1)
      + 2 * second * Nanoseconds(models.count) / Nanoseconds(governor.startsPerSecond)
  }

  // MARK: - Common causes

  private func isFrozen(_ boot: Nanoseconds) -> Bool { frozenUntil.map { boot < $0 } ?? false }

  private mutating func beganToLoop(_ index: Int, now: Nanoseconds, boot: Nanoseconds) {
    guard models[index].everSettled, !models[index].looping else { return }
    models[index].looping = true
    guard let cause, !isFrozen(boot) else { return }
    began.removeAll { now - $0.at > cause.within.nanoseconds }
    began.append((now, index))
    if began.count >= cause.services, began.count * 4 >= settledOnes { causeIsDue = true }
  }

  private var settledOnes: Int { models.count { $0.everSettled && !$0.gone } }

  mutating func commonCause(_ found: CommonCause?, now: Nanoseconds, boot: Nanoseconds) throws(Violation) {
    guard let found else {
      try check(!isFrozen(boot), -1, now, "the freeze ended too soon")
      frozenUntil = nil
      return
    }
    try check(cause != nil && !isFrozen(boot), -1, now, "a common cause where none can be")
    try check(causeIsDue, -1, now, "a common cause of \(found.services.count) services of \(found.settled)")
    causeIsDue = false
    began = []
    frozenUntil = boot + (cause?.freeze.nanoseconds ?? 0)
    try check(found.until.nanoseconds == frozenUntil, -1, now, "a freeze of the wrong length")
  }

  private func check(_ holds: Bool, _ index: Int, _ now: Nanoseconds, _ rule: @autoclosure () -> String)
    throws(Violation)
  {
    if holds { return }
    throw violation(index, now, rule())
  }
  func violation(_ index: Int, _ now: Nanoseconds, _ rule: String) -> Violation {
    Violation(
      at: .nanoseconds(now), service: index < models.count && index >= 0 ? models[index].spec.name.text : "the fleet",
      number: index, rule: rule)
  }

  private func isHeld(_ index: Int, boot: Nanoseconds) -> Bool {
    models[index].heldUntil.map { boot < $0 } ?? false
  }

  private mutating func checkDelay(_ index: Int, now: Nanoseconds) throws(Violation) {
    if let notBefore = models[index].notBefore {
      try check(now >= notBefore, index, now, "acts \(notBefore - now) ns before its delay is over")
      // What is recorded first may take the two seconds after which it counts as volatile; guardian itself may stall.
      try check(
        now - notBefore <= (models[index].step == .repair ? 3 * second : 0) + 2 * second + 100 * millisecond
          + longestWait
          || lastStall.until + 3 * second >= notBefore,
        index, now,
        "acts \(now - notBefore) ns after its delay was over")
      models[index].notBefore = nil
    }
  }

  private mutating func spawns(_ request: StartRequest, _ index: Int, now: Nanoseconds, boot: Nanoseconds)
    throws(Violation)
  {
    try check(!models[index].gone, index, now, "spawned after it was forgotten")
    try check(!models[index].mainAlive, index, now, "a second live run")
    try check(!models[index].setAlive, index, now, "spawned while processes of the run before are left")
    try check(models[index].hook == nil, index, now, "spawned while a hook runs")
    try check(models[index].reloading == nil, index, now, "a reload outlives its run")
    try check(!shuttingDown, index, now, "spawned while shutting down")
    try check(models[index].wanted != .down, index, now, "spawned while wanted down")
    try check(!isHeld(index, boot: boot) || models[index].permit, index, now, "spawned while held")
    try check(request.run != models[index].run, index, now, "a run id used twice")
    try check(
      request.spec.process.beforeStart.isEmpty || models[index].prepared, index, now,
      "started without a before-start that has succeeded")
    models[index].prepared = false
    models[index].preparationFailed = false
    try checkDelay(index, now: now)
    if let order = request.mitigation {
      try check(request.spec.mitigate == .auto, index, now, "a mitigation that nobody has allowed")
      try check(request.spec.mode == .enforce, index, now, "a mitigation in observe mode")
      try check(!isHeld(index, boot: boot), index, now, "a mitigation of what is held")
      try check(
        models[index].mendable[order.mitigation] ?? 0 >= 2, index, now,
        "mitigation \(order.mitigation.rawValue) without two deaths of a class that allows it")
    }

    if request.kind == .ordinary {
      try check(!models[index].quarantinedSeen, index, now, "started in quarantine as soon as it was given up")
      try check(
        models[index].step != .quarantine || models[index].mayBeFresh, index, now,
        "started in quarantine, not as a trial")
    } else if request.kind == .trial {
      if let notBefore = models[index].trialNotBefore, !models[index].permit {
        try check(boot >= notBefore, index, now, "a trial \(notBefore - boot) ns too early")
      }
    }
    var atOnce = false
    if case .late = models[index].verdict { atOnce = true }
    if models[index].verdict == .either || models[index].verdict == .anything { atOnce = true }
    if !atOnce {
      let place = models[index].open.lastIndex { $0.run == request.run }
      try check(place != nil, index, now, "spawned without a save of its start ticket")
      // Or the store has not answered for two seconds, be it this save or one before it.
      let durable = models[index].open.contains {
        $0.run == request.run && $0.saved || !$0.saved && now - $0.at >= 2 * second
      }
      try check(durable, index, now, "spawned before its start ticket was saved")
    }
    if models[index].spec.mode == .enforce, models[index].spec.escalation.enabled, !models[index].mayBeFresh,
      let record = models[index].lastRecord
    {
      try check(
        record.step == models[index].step, index, now,
        "step \(record.step) in the record, \(models[index].step) by the deaths")
      try check(
        record.strikes == models[index].strikes || models[index].step == .quarantine, index, now,
        "\(record.strikes) strikes in the record, \(models[index].strikes) by the deaths")
    }
    // What is in its directory comes and goes without a change of the definition.
    models[index].spec.process.plugins =
      models[index].spec.process.withoutEntries.plugins + request.spec.process.plugins.filter { $0.entry != nil }
    let plugins = models[index].spec.process.plugins
    if models[index].step == .safeMode, request.kind == .ordinary, !models[index].mayBeFresh {
      try check(
        models[index].found.intersection(models[index].foundBefore).allSatisfy { name in
          request.disabledPlugins.contains { $0.name == name } || models[index].pinned.contains(name)
        }, index, now, "started in safe mode with a plugin of its directory on")
    }
    if models[index].step == .safeMode, request.kind == .ordinary, !models[index].mayBeFresh {
      try check(
        plugins.allSatisfy { plugin in
          request.disabledPlugins.contains { $0.name == plugin.name } || models[index].pinned.contains(plugin.name)
            || plugin.isIdle || models[index].newSuspects.contains(plugin.name)
        }, index, now, "started in safe mode with plugins on")
    }
    for plugin in plugins where isSwitchedOff(index, plugin.name) {
      try check(
        request.disabledPlugins.contains { $0.name == plugin.name }, index, now,
        "started with \(plugin.name), which a switch has turned off")
    }
    // Who is left has not been turned off by a switch.
    let disabled = request.disabledPlugins.filter { !mayBeSwitchedOff(index, $0.name, now) }
    if models[index].spec.mode == .observe {
      try check(disabled.isEmpty || models[index].pluginsAsOrdered, index, now, "plugins off in observe mode")
    }
    try check(
      !disabled.contains { models[index].pinned.contains($0.name) } || models[index].pluginsAsOrdered,
      index, now, "a pinned plugin is off")
    if request.kind == .probe {
      try check(models[index].searching, index, now, "a probe without a search")
      try check(!isHeld(index, boot: boot), index, now, "a probe of what is held")
      try check(models[index].spec.mode == .enforce, index, now, "a probe in observe mode")
      try check(!isFrozen(boot), index, now, "a probe during a common cause")
      try check(
        models[index].step == .safeMode || models[index].mayBeFresh, index, now, "a probe outside of safe mode")
      try check(plugins.count > 1, index, now, "a search for a single plugin")
      let off = request.disabledPlugins.map(\.name)
      try check(
        models[index].probe.off.allSatisfy(off.contains) && !models[index].probe.on.contains(where: off.contains),
        index,
        now, "a probe with other plugins than the search has asked for")
    }
    if request.kind == .pluginRetry {
      try check(request.disabledPlugins.count < plugins.count, index, now, "a retry without plugins")
    }

    // A restart at once is written down alongside, and so comes before its record.
    if models[index].lastRecord?.openRun != request.run { try decided(index, now: now) }
    models[index].run = request.run
    models[index].newSuspects = []
    models[index].foundBefore = models[index].found
    models[index].confirmed = false
    models[index].repairIsOrdered = false
    models[index].mayBeStopped = false
    models[index].kind = request.kind
    models[index].disabled = request.disabledPlugins.map(\.name)
    models[index].mainAlive = true
    models[index].setAlive = true
    models[index].executed = false
    models[index].windowFrom = nil
    models[index].settled = false
    models[index].finished = false
    models[index].settledAt = nil
    models[index].leftAt = nil
    models[index].signalled = false
    models[index].signalledAt = nil
    models[index].signalledForCheck = false
    models[index].checks = models[index].spec.checks.map { CheckModel(spec: $0) }
    models[index].leaving = false
    models[index].stopIntended = false
    models[index].spawnSeen = true
    models[index].changed = false
    models[index].trialByOperator = models[index].permit || models[index].trialGoesOn
    models[index].trialGoesOn = false
    models[index].permit = false
    models[index].triesMost += 1
    models[index].endRecords = 0
    if models[index].wanted == .perhaps { models[index].wanted = .up }
    if models[index].spec.kind == .daemon || models[index].badSince != nil {
      models[index].badSince = models[index].badSince ?? now
    }
    alive += 1
  }

  private mutating func recorded(_ kind: Occurrence.Kind, _ index: Int, now: Nanoseconds, boot: Nanoseconds)
    throws(Violation)
  {
    switch kind {
    case .internalError(let text): throw violation(index, now, "internal error: \(text)")
    case .settled(let run, _):
      try check(run == models[index].run && models[index].mainAlive, index, now, "settled, but not alive")
      let since = models[index].windowFrom
      try check(since != nil, index, now, "settled without being ready")
      if let since {
        try check(
          now - since >= models[index].spec.startupWindow.nanoseconds, index, now,
          "settled \(now - since) ns after ready")
      }
      try check(
        models[index].checks.allSatisfy(\.isGoodEnough), index, now, "settled with a check that is not passing")
      models[index].settled = true
      models[index].everSettled = true
      if models[index].looping { began.removeAll { $0.service == index } }
      models[index].looping = false
      models[index].settledAt = now
      models[index].badSince = nil
      forget(index, now: now)
      if models[index].possiblyLate.count <= models[index].spec.late.budget {
        models[index].strikes = 0
        models[index].tries = 0
        models[index].triesMost = 0
      }
      if models[index].kind == .trial, models[index].step == .quarantine {
        moved(index, to: Self.below(models[index].spec, .quarantine))
      } else if models[index].kind == .pluginRetry, models[index].step == .safeMode {
        models[index].mayBeFresh = true
      }
    case .ended(let end):
      if end.run == models[index].run {
        models[index].endRecords += 1
        try check(models[index].endRecords == 1, index, now, "one end, recorded twice")
        try check(!models[index].mainAlive, index, now, "recorded as ended while alive")
        if end.cause == .check {
          try check(models[index].signalledForCheck, index, now, "ended by a check that has no say yet")
        }
      }
    case .strike(let step, let count, let allowed):
      try check(models[index].strikeSeen == nil, index, now, "two strikes in one turn")
      try check(!isFrozen(boot), index, now, "a strike during a common cause")
      try check(
        models[index].kind != .probe || models[index].settled || models[index].mayBeFresh || models[index].mayBeStopped,
        index, now, "a probe's death is a strike")
      beganToLoop(index, now: now, boot: boot)
      models[index].strikeSeen = (step, count, allowed)
      models[index].struckLast = models[index].examinedRun == models[index].run
      models[index].signatureBefore = models[index].signature
      models[index].signature = nil
    case .lateDeath(let count, _):
      models[index].lateSeen = count
      models[index].trialGoesOn =
        models[index].trialByOperator && models[index].kind == .trial && !models[index].settled
    case .escalated(let from, let to, let skipped):
      try check(models[index].movedSeen == nil, index, now, "two steps in one turn")
      try check(!isFrozen(boot), index, now, "a step up during a common cause")
      models[index].movedSeen = (from, to, skipped)
      if models[index].verdict == nil { deaths.append(index) }
    case .deescalated(let from, let to):
      if models[index].spec.mode == .enforce, from != .quarantine || models[index].step == .quarantine {
        try check(from == models[index].step || models[index].mayBeFresh, index, now, "came down from \(from)")
        try check(to == Self.below(models[index].spec, from), index, now, "came down from \(from) to \(to)")
        let windowOver =
          models[index].windowFrom.map { now - $0 >= models[index].spec.startupWindow.nanoseconds } ?? false
        try check(
          models[index].mainAlive && windowOver, index, now, "came down without being settled")
        if models[index].kind == .ordinary, let since = models[index].settledAt {
          try check(
            now - since >= models[index].spec.escalation.deescalateAfter.nanoseconds, index, now,
            "came down after \(Duration.nanoseconds(now - since).description) of settled running")
          models[index].settledAt = now
        }
        moved(index, to: to)
      }
    case .backingOff(let delay, _):
      try checkBackoff(delay, index, now: now)
      models[index].tries += 1
      models[index].notBefore = models[index].permit ? nil : now + delay.nanoseconds
    case .quarantined(let reason, let trialIn):
      try check(!reason.isEmpty, index, now, "quarantined without a reason")
      try check(models[index].spec.mode == .enforce, index, now, "quarantined in observe mode")
      try check(!isFrozen(boot), index, now, "quarantined during a common cause")
      beganToLoop(index, now: now, boot: boot)
      models[index].quarantinedSeen = true
      models[index].trialNotBefore = trialIn.map { boot + $0.nanoseconds }
      models[index].trialDelay = trialIn
      models[index].badSince = nil
      if models[index].verdict == nil { deaths.append(index) }
    case .trialFailed(let next):
      models[index].trialFailedSeen = true
      try check(
        models[index].kind == .trial || models[index].preparationFailed, index, now, "a trial failed that was none")
      models[index].trialNotBefore = next.map { boot + $0.nanoseconds }
      // An operator's trial changes no delay: what is left of the present one runs on.
      if !models[index].trialByOperator {
        if let next, let before = models[index].trialDelay {
          try check(
            next == min(before * 2, models[index].spec.quarantine.max), index, now,
            "the next trial in \(next.description) after \(before.description)")
        }
        models[index].trialDelay = next
      } else {
        models[index].trialDelay = nil
      }
      models[index].badSince = nil
    case .released(let why):
      if models[index].spec.declaredFiles.contains(where: { why == "\($0) changed" }) {
        try check(models[index].filesChanged, index, now, "released by guardian's own restoration")
      }
      let windowOver =
        models[index].windowFrom.map { now - $0 >= models[index].spec.startupWindow.nanoseconds } ?? false
      // A run of which something is left is judged as if it had been an ordinary one.
      if models[index].kind != .ordinary, models[index].setAlive {
        let wasTrial = models[index].kind == .trial
        models[index].kind = .ordinary
        if wasTrial, windowOver, models[index].mainAlive, models[index].step == .quarantine {
          // The trial has settled: the highest lower step that has something to do.
          return moved(index, to: Self.below(models[index].spec, .quarantine))
        }
      }
      models[index].releasedAt = now
      models[index].mayBeFresh = true
      models[index].permit = true
      models[index].step = .restart
      models[index].strikes = 0
      models[index].tries = 0
      models[index].late = []
      models[index].notBefore = nil
      models[index].trialNotBefore = nil
      if models[index].wanted != .down, !models[index].finished {
        models[index].badSince = models[index].badSince ?? now
      }
    case .holdEnded:
      models[index].heldUntil = nil
      for place in models[index].checks.indices { models[index].checks[place].bad = 0 }
      if models[index].badSince != nil { models[index].badSince = now }
    case .stopped, .finished:
      try check(!models[index].mainAlive, index, now, "stopped or finished while alive")
      models[index].badSince = nil
      if case .finished = kind { models[index].finished = true }
    case .leaving:
      models[index].leaving = true
      models[index].underWaySince = nil
    case .watchdogSet, .mainMoved, .switchInForce, .switchOver, .switchBroken, .stepSwitchedOff: break
    case .ready(let run):
      guard models[index].run == run, models[index].spec.ready == .check else { break }
      try check(
        models[index].checks.allSatisfy(\.isGoodEnough), index, now, "ready with a check that is not passing")
      models[index].windowFrom = now
      models[index].underWaySince = nil
    case .reset, .started, .check, .repairStarted, .repairEnded, .beforeStart, .beforeStartEnded,
      .pluginsOn, .pluginRetryFailed, .pluginsUnconfirmed, .mitigation, .goodCopyUsed, .pluginsChanged,
      .searchSuggested, .held,
      .requested, .waiting, .waitingFor, .standingDown,
      .stuck, .volatile, .resumed, .commonCause, .commonCauseEnded:
      break
    case .pluginsOff(let names, _):
      try check(
        !models[index].spec.process.plugins.contains { names.contains($0.name) && $0.isIdle }, index, now,
        "a file is suspected that is as it was when the service was well")
    case .searchBegan(let names):
      try check(names.count > 1, index, now, "a search for a single plugin")
      try check(
        models[index].settled && models[index].mainAlive, index, now, "a search of what is not settled in safe mode")
      try check(
        names.allSatisfy(models[index].disabled.contains), index, now, "a search with some of the plugins on")
      if models[index].spec.plugins.acknowledge != nil,
        models[index].spec.process.plugins.allSatisfy({ models[index].disabled.contains($0.name) || $0.isIdle })
      {
        try check(models[index].confirmed, index, now, "a search of what has not confirmed that its plugins are off")
      }
      try checkSearch(index, now: now, boot: boot)
      models[index].searching = true
    case .probing(_, let on, let off, _):
      models[index].probe = (on, off)
      try checkSearch(index, now: now, boot: boot)
      try check(
        models[index].spec.process.plugins.map(\.name).filter { on.contains($0) || off.contains($0) }.count
          == on.count + off.count, index, now, "a probe of plugins that there are not")
    case .probed(_, let outcome):
      guard outcome == .passed else { break }
      try check(
        models[index].kind == .probe && models[index].mainAlive, index, now, "a probe passed that does not live")
      let least = min(2 * second, models[index].spec.startupWindow.nanoseconds)
      try check(
        models[index].windowFrom.map { now - $0 >= least } ?? false, index, now, "a probe passed in no time")
      if models[index].badSince != nil { models[index].badSince = now }
    case .searchEnded(let result, _, _):
      try check(models[index].searching, index, now, "the end of a search that had not begun")
      models[index].searching = false
      if case .found(let off, _) = result, off.count < models[index].spec.process.plugins.count {
        if models[index].mainAlive, !models[index].signalled {
          try check(
            models[index].settled
              || models[index].kind == .probe
                && models[index].windowFrom.map {
                  now - $0 >= models[index].spec.startupWindow.nanoseconds
                } ?? false,
            index, now, "found before it has lived for its whole window")
          try check(
            off.allSatisfy(models[index].disabled.contains), index, now, "found another set than the one that runs")
        }
      }
      if models[index].badSince != nil { models[index].badSince = now }
    case .pluginRestart:
      try check(
        models[index].mainAlive && !models[index].signalled, index, now, "a restart of what does not run")
      try check(!isHeld(index, boot: boot), index, now, "restarted for its plugins while held")
      try check(models[index].wanted != .down && !shuttingDown, index, now, "restarted for its plugins, and not wanted")
      models[index].stopIntended = true
    case .reloading(let run, let ordered): try reloadBegan(run, ordered: ordered, index, now: now)
    case .reloaded(let run), .reloadFailed(let run, _): try reloadEnded(run, index, now: now)
    case .observed(let would): if would == .quarantine { beganToLoop(index, now: now, boot: boot) }
    case .notCounted(let why):
      // Or a death that is put down to what it requires.
      guard why.hasSuffix("a common cause") else { break }
      try check(isFrozen(boot), index, now, "not counted, and there is no common cause")
      models[index].notCountedSeen = true
      beganToLoop(index, now: now, boot: boot)
    }
  }

  private func checkSearch(_ index: Int, now: Nanoseconds, boot: Nanoseconds) throws(Violation) {
    try check(!isHeld(index, boot: boot), index, now, "a search of what is held")
    try check(models[index].spec.mode == .enforce, index, now, "a search in observe mode")
    try check(!isFrozen(boot), index, now, "a search during a common cause")
    try check(
      models[index].step == .safeMode || models[index].mayBeFresh, index, now, "a search outside of safe mode")
  }

  private mutating func moved(_ index: Int, to step: Step) {
    models[index].step = step
    models[index].strikes = 0
    models[index].tries = 0
    models[index].triesMost = 0
  }

  /// `min(max/(1+j), first·factor^(n−1)) · (1 + j·u)` for some n that this step can have come to.
  private func checkBackoff(_ delay: Duration, _ index: Int, now: Nanoseconds) throws(Violation) {
    let backoff = models[index].spec.backoff
    if models[index].spec.kind == .task, models[index].strikes == 0 { return }
    let cap = Double(backoff.max.nanoseconds) / (1 + backoff.jitter)
    func base(_ n: Int) -> Double {
      var base = Double(backoff.first.nanoseconds)
      for _ in 1..<max(2, min(n, 64)) where n > 1 { base *= backoff.factor }
      return min(cap, base)
    }
    let most = base(max(models[index].tries, models[index].triesMost) + 2) * (1 + backoff.jitter) + 2
    let least = base(1) - 2
    let given = Double(delay.nanoseconds)
    // However short the delays are, a before-start that has failed is not run again at once.
    if !models[index].spec.process.beforeStart.isEmpty, delay == .milliseconds(100) { return }
    try check(
      given <= most && given >= least, index, now,
      "a delay of \(delay.description) on try \(models[index].tries + 1) of a step")
  }

  mutating func answered(_ request: UInt64, now: Nanoseconds) throws(Violation) {
    guard let pending = requests.removeValue(forKey: request) else {
      throw violation(-1, now, "request \(request) answered twice, or never made")
    }
    _ = pending
  }

  /// Requests that have waited for longer than any order can take.
  func checkRequest(_ request: UInt64, now: Nanoseconds) throws(Violation) {
    guard let pending = requests[request], !pending.abandoned else { return }
    throw violation(
      pending.service, now,
      "request \(request) (\(pending.verb)) unanswered for \(Duration.nanoseconds(now - pending.since).description)"
    )
  }

  func checkHook(_ hook: RunID, of index: Int, now: Nanoseconds) throws(Violation) {
    try check(
      models[index].hook != hook && models[index].reloadHook != hook, index, now,
      "a hook runs on long after its time-out")
  }

  private mutating func reloadBegan(_ run: RunID, ordered: Bool, _ index: Int, now: Nanoseconds) throws(Violation) {
    try check(models[index].reloading == nil, index, now, "two reloads at once")
    try check(
      models[index].run == run && models[index].mainAlive && models[index].windowFrom != nil, index, now,
      "a reload of what is not ready")
    try check(!ordered || models[index].spec.reload != nil, index, now, "a reload of what has none")
    models[index].reloading = (run, now)
  }

  private mutating func reloadEnded(_ run: RunID, _ index: Int, now: Nanoseconds) throws(Violation) {
    try check(models[index].reloading?.run == run, index, now, "the end of a reload that had not begun")
    models[index].reloading = nil
  }

  func checkReload(_ since: Nanoseconds, of index: Int, now: Nanoseconds) throws(Violation) {
    try check(models[index].reloading?.since != since, index, now, "a reload that never ends")
  }

  mutating func allStopped(now: Nanoseconds) throws(Violation) {
    guard shuttingDown else { throw violation(-1, now, "all stopped, and nobody asked for it") }
    guard !stopped else { throw violation(-1, now, "all stopped, twice") }
    guard alive == 0 else { throw violation(-1, now, "all stopped with \(alive) runs alive") }
    for index in models.indices {
      try check(models[index].hook == nil, index, now, "all stopped while a hook runs")
    }
    stopped = true
  }

  // MARK: - The turn is over

  mutating func turnEnded(now: Nanoseconds, inLine: Int) throws(Violation) {
    try check(!causeIsDue, -1, now, "several services began to loop at once, and nobody noticed")
    try check(inLine == 0 || isSaturated(now), -1, now, "\(inLine) wait for the governor, and there is room")
    while let index = verdicts.popLast() {
      try check(
        models[index].signalled || models[index].heldUntil != nil || !models[index].mainAlive, index, now,
        "a check has failed, and the run goes on")
    }
    while let index = deaths.popLast() { try settleAccounts(index, now: now) }
  }

  /// Compares what was recorded in this turn with what the deaths of this turn ask for.
  private mutating func settleAccounts(_ index: Int, now: Nanoseconds) throws(Violation) {
    let strike = models[index].strikeSeen, late = models[index].lateSeen, move = models[index].movedSeen
    let quarantined = models[index].quarantinedSeen
    let notCounted = models[index].notCountedSeen
    models[index].notCountedSeen = false
    let verdict = models[index].verdict ?? .anything
    models[index].verdictWasOpen = models[index].verdict == .anything
    models[index].strikeSeen = nil
    models[index].lateSeen = nil
    models[index].movedSeen = nil
    models[index].quarantinedSeen = false
    models[index].trialFailedSeen = false
    let found = models[index].foundIncurable
    models[index].foundIncurable = false
    if models[index].death != nil, !models[index].setAlive, !models[index].spawnSeen {
      try check(models[index].endRecords == 1, index, now, "a death, recorded \(models[index].endRecords) times")
    }
    if case .late = verdict, models[index].heldUntil == nil, !models[index].mayBeFresh,
      models[index].spec.process.beforeStart.isEmpty
    {
      try check(
        models[index].spawnSeen || isSaturated(now), index, now,
        "a late death within the budget, and no restart at once")
    }
    models[index].verdict = nil
    models[index].spawnSeen = false
    let released = models[index].releasedAt == now
    defer {
      models[index].mayQuarantine = false
      if released, !quarantined {
        // The strike came first, and what followed it in the same turn made the ladder fresh.
        moved(index, to: .restart)
        models[index].mayBeFresh = true
      }
    }
    if models[index].spec.mode == .observe || !models[index].spec.escalation.enabled {
      if quarantined { moved(index, to: .quarantine) }
      return
    }

    switch verdict {
    case .strike:
      // What died had been changed meanwhile, so that nothing is held against the new one.
      try check(
        strike != nil || released || notCounted || models[index].changed, index, now,
        "a death before settled, or beyond the budget, and no strike")
    case .late:
      try check(late != nil && strike == nil, index, now, "a late death within the budget, recorded otherwise")
    case .nothing: try check(strike == nil && late == nil, index, now, "a death that must not count was counted")
    case .either:
      try check(
        strike != nil || late != nil || released || notCounted || models[index].changed, index, now,
        "a late death was not counted at all")
    case .anything: break
    }
    let step = models[index].step
    if let strike {
      let expected = Self.allowed(models[index].spec, on: strike.step)
      if !(strike.step == step && strike.count == models[index].strikes + 1) {
        let fresh = models[index].mayBeFresh
        try check(
          fresh, index, now,
          "strike \(strike.count) on step \(strike.step), by the deaths \(models[index].strikes + 1) on \(step)")
        // When the ladder was made fresh is not known, and restarts since then (uncounted ones during a common cause,
        // say) have made the delay longer: the bound on their number stands.
        let (tries, most) = (models[index].tries, models[index].triesMost)
        moved(index, to: strike.step)
        (models[index].tries, models[index].triesMost) = (tries, most)
      }
      try check(
        strike.allowed == expected, index, now,
        "\(strike.allowed) strikes allowed on \(strike.step), by the definition \(expected)")
      try check(strike.count <= max(1, expected), index, now, "strike \(strike.count) of \(expected)")
      models[index].strikes = strike.count
      models[index].mayBeFresh = false
      let used = strike.count >= expected
      let incurable = isIncurable(index) && strike.step == .restart
      let (next, skipped) = Self.next(models[index].spec, after: strike.step)
      if let move {
        try check(
          used || (incurable && next != .quarantine) || models[index].mayQuarantine, index, now,
          "left \(move.from) after \(strike.count) of \(expected) strikes")
        try check(move.from == strike.step, index, now, "left \(move.from) while on \(strike.step)")
        if !models[index].mayQuarantine {
          try check(
            move.to == next && move.skipped == skipped, index, now,
            "went from \(move.from) to \(move.to), skipping \(move.skipped); by the definition to \(next)")
        }
      } else {
        try check(!used || quarantined, index, now, "still on \(strike.step) after all \(expected) strikes")
        if case .some = models[index].death {
          try check(
            !(incurable && next != .quarantine) || quarantined, index, now, "restarts what a restart cannot cure")
        }
      }
      if quarantined {
        try check(
          (used && next == .quarantine) || models[index].mayQuarantine, index, now,
          "quarantined after \(strike.count) of \(expected) strikes on \(strike.step)")
      }
    } else if let move {
      try check(
        models[index].mayQuarantine || move.from == .quarantine || models[index].verdictWasOpen || found, index, now,
        "left \(move.from) without a strike")
    } else if quarantined {
      try check(
        models[index].mayQuarantine || step == .quarantine || verdict == .anything, index, now,
        "quarantined without a strike or another cause")
    }
    if quarantined {
      moved(index, to: .quarantine)
      models[index].mayBeFresh = false
    } else if let move {
      moved(index, to: move.to)
    }
  }

  private func isIncurable(_ index: Int) -> Bool {
    if models[index].spawnError != nil { return true }
    guard !models[index].signalled, let death = models[index].death else { return false }
    switch death.status {
    case .code(let code): return code == 126 || code == 127 || code == 78
    case .signal(let signal, _): return signal == .sys
    case .unseen: return false
    }
  }

  // MARK: - Liveness

  /// The longest that a service, left alone by faults and operators, may take to settle, finish or be given up.
  func bound(_ spec: ServiceSpec) -> Nanoseconds {
    let strikes = max(7, Step.allCases.reduce(0) { $0 + Self.allowed(spec, on: $1) })
    // What runs before a start has the time of a start, and TERM and KILL after that.
    let preparation = spec.process.beforeStart.isEmpty ? 0 : spec.startTimeout.nanoseconds + 15 * second
    let oneTry =
      preparation + spec.startTimeout.nanoseconds + spec.startupWindow.nanoseconds + 2 * spec.stop.patience.nanoseconds
      + 5 * second
      + spec.checks.reduce(0) { most, check in
        max(most, Int64(check.failures + check.successes) * (check.every + check.timeout + .seconds(1)).nanoseconds)
      }
    let hooks = spec.repairs.reduce(0) { $0 + $1.timeout.nanoseconds + 15 * second } * Int64(spec.escalation.repair)
    var delays: Nanoseconds = 0
    var delay = Double(spec.backoff.first.nanoseconds)
    for _ in 0..<strikes {
      delays += Nanoseconds(delay * (1 + spec.backoff.jitter))
      delay = min(delay * spec.backoff.factor, Double(spec.backoff.max.nanoseconds))
    }
    // Once it has begun to loop it does not do so again, and so it can be in few freezes.
    let frozen = cause.map { 3 * ($0.freeze.nanoseconds + spec.backoff.max.nanoseconds) } ?? 0
    // A search has at most eight failing probes between two that pass, or before its end.
    let probes: Int64 = spec.process.plugins.count > 1 ? 10 : 0
    return (Int64(strikes) + probes) * (oneTry + longestWait) + hooks + delays + frozen + 2 * minute
  }

  /// Services that have been unsettled for longer than their bound. Those that restart for ever by order are left out.
  func unsettled(now: Nanoseconds) -> [Int] {
    models.indices.filter { index in
      let model = models[index]
      guard !model.gone, model.wanted == .up, model.heldUntil == nil, let since = model.badSince else { return false }
      if model.spec.mode == .observe || !model.spec.escalation.enabled { return false }
      if model.spec.kind == .task, model.spec.restart == .always { return false }
      return now - since > bound(model.spec)
    }
  }
}
