import Glibc
import GuardianConfig
import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel
import GuardianStore

/// The thin shell around the fleet: it hears, lets the fleet decide, and does what the fleet says.
///
/// **A turn.** sd-event sources fire, most important first (deaths, then other evidence, then outcomes, then people), and
/// each puts `(ServiceID, ServiceEvent)` into the inbox. When nothing more is due, or 64 sources have fired, one turn
/// happens: the clocks are read once, the fleet hears the inbox and then the time, and what it wants done is done, in
/// order. Outcomes go into the inbox of the next turn, which follows at once. Then one timer for each clock is armed at
/// the fleet's next deadline, and the loop sleeps; an idle guardian never wakes.
///
/// Everything in here belongs to one thread. The worker's thread sees nothing of it.
final class Shell {
  let loop: EventLoop
  let worker: Worker
  let spawner: Spawner
  let log: OwnLog
  let directories: Directories
  let surroundings: Surroundings
  /// Of guardian itself, for services without `user:`.
  var ownIdentity: Identity { surroundings.identity }
  var language: String? { surroundings.language }
  /// What guardian's own soft limit was before it raised it.
  var softOpenFiles: UInt64? { surroundings.softOpenFiles }

  var fleet: Fleet
  var names: [ServiceID: ServiceName] = [:]
  private(set) var definitions = Definitions()
  var store: Store
  var storeSource: EventSource?
  private var storeState = Store.State.durable
  /// What the store remembers of services that have not been added yet.
  private var stored: [ServiceName: StoredRecord]
  private var openRuns: [RunEntry]
  /// The id that was given last.
  private(set) var lastEvent: EventID
  /// What the guardian before this one had noticed, until it has been told to the fleet.
  private var commonCauseBefore: CommonCause?
  private var graceShortage: String?
  /// The guardian before this one ran in this boot of the machine.
  private let sameBoot: Bool
  /// Lines of the book of runs whose record has not come yet: both are written in one transaction.
  private var unfiled: [ServiceID: [RunEntry]] = [:]
  let kept: KeptDescriptors
  /// Held as long as this process lives, whichever program it runs.
  var locks: [DirectoryLock] = []
  private let faults: FaultMarks?
  /// Nil where there are no control groups for services, and why.
  private(set) var groups: GroupTable?
  private var groupsMissing: String?
  /// Nil where it cannot be had: then a start that guardian did not live to write down is found by its environment.
  private(set) var births: BirthMarks?
  /// What the program before this one handed on, until it has been taken up.
  var takeOver: TakeOver?
  /// Called once, before the first thing is done that cannot be undone.
  var beforeFirstDeed: (() -> Void)?
  lazy var upgrade = Upgrade(self)
  /// Guardian does not trust itself until then.
  private var observeTimer: EventSource?
  private let orphanWatch = OrphanWatch()
  /// Nil where no systemd has started guardian, and until it has answered.
  private var unitAdvice: UnitAdvice?
  // Made right after `self`, which they refer to.
  var runs: RunTable!
  var hooks: HookTable!
  var checks: CheckTable!
  var outputTable: OutputTable!
  var helpers: HelperTable!
  var companion: MetricsCompanion!
  private(set) var measures: Measures
  var evidence: EvidenceTable!
  var changes: ChangeTable!
  private var watches: WatchTable!
  var switches: SwitchTable!
  var drills: DrillTable!
  var control: ControlServer!
  private var host: HostManager?

  var inbox: [(ServiceID, ServiceEvent)] = []
  /// Of the clock, when the time zone was looked at last.
  private var utcQuarter = Int64.min
  var outputs: [Fleet.Output] = []
  /// Tickets that have become durable.
  var answered: [(ServiceID, Ticket)] = []
  var done = 0
  /// Since guardian's start: see `Diligence`.
  private var eventsHeard: UInt64 = 0, actionsPerformed: UInt64 = 0
  /// The fleet has been told something since its last output was taken.
  var fleetTold = false
  private var sources: [EventSource] = []
  /// Says that children have ended; off for moments while only orphans die, and many.
  private var deathSource: EventSource?
  private var deathTimer: EventSource?
  private var strangersInARow = 0
  private var monotonicTimer: EventSource?
  private var bootTimer: EventSource?
  private var armed: (monotonic: Instant?, boot: BootInstant?) = (nil, nil)
  private var asleepSince: Instant
  private var clockDistance: Int64
  private var line = ""
  private var lineRevision: UInt64?
  /// Services whose output goes to the journal, as of the last reading.
  private var streams = 0
  /// Services whose output goes to files, as of the last reading.
  private var filed = 0
  /// Services with checks, as of the last reading.
  private var checked = 0
  private var reloads: [Reload] = []
  var reloading = false
  /// Why not all services can run at once.
  var descriptorShortage: String?
  /// Since the heap was last tidied.
  private var heapIsUntidy = false
  /// The configuration was read, and nothing has been quiet since.
  private var codeIsLoaded = false
  var stopping = false
  private var allStopped = false
  private var endTimer: EventSource?
  private var stragglerRounds = 0
  private var exitStatus: Int32?

  /// Deaths of orphans alone, one look after the other, before the next look waits for so long.
  private static let strangersTolerated = 4
  private static let strangerPause = Duration.milliseconds(5)
  /// Room that a queue keeps between turns: a start of thousands is over when it is over.
  private static let queueKept = 256
  /// Sources heard before a turn happens all the same, so that no flood of anything can hold up decisions.
  private static let sourcesPerTurn = 64
  /// With nothing due for so long, a start of services is over, and so is what was saved for it.
  private static let quietTime = Duration.seconds(5)
  /// How long actions may take before new evidence is heard.
  private static let actionsPerTurn = Duration.milliseconds(20)
  /// A deadline missed by more than this was missed by guardian itself: it was stopped, or starved.
  private static let stall = Duration.milliseconds(500)
  /// Streams beyond this are more than journald takes by default (its own limit is 4,096).
  private static let manyStreams = 2000
  /// Of the configuration's diagnostics, in each answer to `status`.
  private static let diagnosticsShown = 100

  private struct Reload {
    var mode: ReloadMode
    var by: Author
    var then: (Reloaded) -> Void
  }

  /// What came of reading the configuration again.
  struct Reloaded {
    var services = 0
    var change = ReloadChange()
    var diagnostics: [Diagnostic] = []
    /// False: nothing could be read, and everything is as it was.
    var listed = true
  }

  /// Signals must be blocked, directories locked.
  ///
  /// - Parameter remembered: What `store` gave back.
  init(
    _ surroundings: Surroundings, _ directories: Directories, log: OwnLog, store: Store, remembered: Store.Loaded,
    kept: KeptDescriptors = .none, faults: FaultMarks? = nil,
    takeOver: TakeOver? = nil
  ) throws(SystemError) {
    self.surroundings = surroundings
    self.directories = directories
    self.log = log
    self.store = store
    self.kept = kept
    self.faults = faults
    do throws(SystemError) {
      births = try BirthMarks(directory: directories.runtime)
    } catch {
      log.note(.warning, "starts are not marked for whoever comes after this guardian: \(error)")
    }
    self.takeOver = takeOver
    stored = remembered.services
    openRuns = remembered.openRuns
    lastEvent = max(remembered.lastEvent, takeOver?.lastEvent ?? .none)
    sameBoot = remembered.bootID == BootID.current()
    if sameBoot { commonCauseBefore = remembered.meta[Self.commonCauseKey].flatMap(CommonCause.init(text:)) }
    loop = try EventLoop()
    worker = try Worker(loop: loop)
    spawner = try Spawner()
    fleet = Fleet(seed: randomSeed())
    let now = SystemClocks.now()
    measures = Measures(now: now.wall)
    asleepSince = now.monotonic
    clockDistance = now.boot.nanoseconds.subtractingSaturating(now.monotonic.nanoseconds)

    runs = try RunTable(self)
    hooks = try HookTable(self)
    checks = try CheckTable(self)
    outputTable = try OutputTable(self)
    helpers = try HelperTable(self)
    companion = MetricsCompanion(self)
    evidence = try EvidenceTable(self)
    changes = ChangeTable(self)
    watches = WatchTable(self)
    drills = DrillTable(self)
    switches = SwitchTable(self, remembered: remembered.meta[SwitchTable.key])
    control = try ControlServer(self, path: directories.controlSocket, takeOver: takeOver)
    host = try HostManager(
      loop: loop, log: log, wake: { [unowned self] in showLife() }, statusDue: { [unowned self] in tellStatus() })
    monotonicTimer = try loop.timer(.monotonic, priority: .time) {}
    bootTimer = try loop.timer(.boot, priority: .time) {}
    endTimer = try loop.timer(.monotonic, priority: .time) { [unowned self] in hooks.endAll(.kill) }
    storeSource = try loop.onIO(store.descriptor, .read, priority: .outcomes) { [unowned self] _ in storeAnswered() }
    deathSource = try loop.onSignal(SIGCHLD, priority: .deaths) { [unowned self] in reap() }
    deathTimer = try loop.timer(.monotonic, priority: .deaths) { [unowned self] in hearOfDeathsAgain() }
    sources = [
      try loop.onSignal(SIGTERM, priority: .control) { [unowned self] in stop("SIGTERM") },
      try loop.onSignal(SIGINT, priority: .control) { [unowned self] in stop("SIGINT") },
      try loop.onSignal(SIGQUIT, priority: .control) { [unowned self] in stop("SIGQUIT") },
      try loop.onSignal(SIGHUP, priority: .control) { [unowned self] in reload(.apply, by: "SIGHUP") { _ in } },
    ]
    sources += try signalsOfProcess1()
  }

  // MARK: The loop

  /// Runs until everything has been stopped by order.
  ///
  /// - Returns: The exit status.
  func run() -> Int32 {
    // Nobody keeps what was read: the fleet has what it needs of it.
    if !surroundings.tookOver { host?.starting() }
    observeAfterFaults()
    closeForgottenRuns()
    outputTable.lookForLogger()
    take(surroundings.loader(directories.configuration).load())
    endForeigners()
    let takenUp = takeUpRest()
    turn()
    host?.ready(statusLine)
    lookAtUnit()
    if let takenUp { control.tookOver(takenUp) }
    while exitStatus == nil {
      let busy = fleetTold || !inbox.isEmpty || done < outputs.count || !answered.isEmpty
      if !busy, let groups { groups.work() }
      if !busy { giveBack() }
      asleepSince = SystemClocks.monotonic()
      do throws(SystemError) {
        _ = try loop.runOne(atMost: busy || groups?.hasWork ?? false ? .zero : nil)
        for _ in 1..<Self.sourcesPerTurn { guard try loop.runOne(atMost: .zero) else { break } }
      } catch {
        log.note(.error, error.description)
        return 70
      }
      turn()
      upgrade.performIfDue()
    }
    return exitStatus ?? 0
  }

  /// What is not needed any more goes back to the host, when there is time.
  private func giveBack() {
    if heapIsUntidy {
      heapIsUntidy = false
      Heap.giveBack()
    }
    guard codeIsLoaded, worker.isIdle, !(groups?.hasWork ?? false) else { return }
    let quiet = SystemClocks.monotonic() + Self.quietTime
    guard fleet.nextDeadline.monotonic.map({ $0 > quiet }) ?? true else { return }
    codeIsLoaded = false
    Heap.letGoOfCode()
  }

  /// What is no service's, and no decision of the fleet.
  func record(_ kind: Occurrence.Kind) {
    outputs.append(.record(Occurrence(service: .guardian, at: SystemClocks.now().wall, kind: kind)))
  }

  func post(_ service: ServiceID, _ event: ServiceEvent) { inbox.append((service, event)) }

  func turn() {
    let now = SystemClocks.now()
    noticeGaps(now)
    let changed = failSkip("work") ? false : work(now)
    arm(now)
    if changed {
      noticeStore()
      tellStatus()
    }
    host?.tick(.decisions)
    host?.turnEnded(duties(now), now: now.monotonic)
    measures.turned(from: now.monotonic, to: SystemClocks.monotonic())
    if allStopped, runs.isEmpty, hooks.isEmpty, checks.isEmpty, helpers.isEmpty, companion.isFinished,
      outputTable.isFinished(),
      endStragglers()
    {
      exitStatus = 0
      groups?.removeAll()
      // What is not written by then is lost, and the next guardian says so; nobody may be kept waiting for a disk.
      if !store.close(orderly: true, now: SystemClocks.now(), within: .seconds(5)) {
        log.note(.warning, "the last of the state was not saved")
      }
    }
  }

  /// - Returns: Whether there was anything to do for the world outside.
  private func work(_ now: Now) -> Bool {
    // A time zone changes by quarters of an hour.
    let quarter = now.wall.nanoseconds / 900_000_000_000
    if quarter != utcQuarter {
      utcQuarter = quarter
      fleet.utcOffset = SystemClocks.utcOffset(at: now.wall)
    }
    let events = inbox
    inbox.removeAll(keepingCapacity: events.count <= Self.queueKept)
    for (id, event) in events { fleet.handle(event, for: id, now: now) }
    runs.closeBarriers()
    let answers = answered
    answered.removeAll(keepingCapacity: answers.count <= Self.queueKept)
    for (id, ticket) in answers { fleet.handle(.saved(ticket), for: id, now: now) }
    eventsHeard &+= UInt64(events.count + answers.count)
    fleet.passTime(now: now)
    fleetTold = false
    outputs += fleet.takeOutput()
    guard done < outputs.count else { return false }
    perform(since: now.monotonic)
    return true
  }

  /// What is left to do after a turn, and how much has been done.
  private func duties(_ now: Now) -> [Diligence.Report] {
    let next = fleet.nextDeadline
    let isLate = next.monotonic.map { $0 <= now.monotonic } ?? false || next.boot.map { $0 <= now.boot } ?? false
    return [
      .init(.events, isDue: !inbox.isEmpty || !answered.isEmpty, done: eventsHeard),
      .init(.deadlines, isDue: isLate, done: fleet.deadlinesPassed),
      .init(.actions, isDue: done < outputs.count, done: actionsPerformed),
    ]
  }

  /// In order; what does not fit into this turn's time comes first in the next.
  private func perform(since start: Instant) {
    var saves: [Store.Save] = []
    var entries: [RunEntry] = []
    var forgotten: [ServiceName] = []
    var records: [Occurrence] = []
    var meta: [String: String?] = [:]
    while done < outputs.count {
      if let start = startThatComesFirst() { outputs.swapAt(done, start) }
      let output = outputs[done]
      done += 1
      actionsPerformed &+= 1
      switch output {
      case .act(let id, .save(let record, let ticket)):
        if let name = names[id] { saves.append(Store.Save(id: id, name: name, record: record, ticket: ticket)) }
        entries += unfiled.removeValue(forKey: id) ?? []
      case .act(let id, .enter(let entry)): unfiled[id, default: []].append(entry)
      case .act(let id, .forget):
        if let name = names[id] { forgotten.append(name) }
        entries += unfiled.removeValue(forKey: id) ?? []
        perform(.forget, for: id)
      // Said when it has been done: a start does not wait for the words about the death before it.
      case .act(let id, .record(let occurrence)):
        lastEvent = lastEvent.next(at: occurrence.at)
        var event = occurrence
        event.id = lastEvent
        records.append(event)
        runs.facts[id]?.remember(occurrence.kind)
        if let (step, again) = fleet.progress(of: id) {
          measures.heard(occurrence.kind, of: id, step: step, again: again, at: SystemClocks.monotonic())
        }
        if case .settled(let run, _) = occurrence.kind {
          evidence.settled(id)
          changes.settled(id, run)
        }
      case .record(let occurrence):
        lastEvent = lastEvent.next(at: occurrence.at)
        var event = occurrence
        event.id = lastEvent
        records.append(event)
      case .act(let id, let action): perform(action, for: id)
      case .answer(let request, let answer):
        failPoint("answer.before")
        control.answer(request, answer)
      case .commonCause(let cause): noticeCommonCause(cause, &meta)
      case .allStopped:
        allStopped = true
        evidence.completeAll()
        checks.endAll()
        helpers.endAll()
        companion.end()
        hooks.endAll(.term)
        endTimer?.arm(at: (SystemClocks.monotonic() + .seconds(5)).nanoseconds)
      }
      hearOutcomes()
      if done % 8 == 0, SystemClocks.monotonic() > start + Self.actionsPerTurn { break }
    }
    if done == outputs.count {
      outputs.removeAll(keepingCapacity: done <= Self.queueKept)
      done = 0
    }
    if !saves.isEmpty || !entries.isEmpty || !records.isEmpty || !forgotten.isEmpty || !meta.isEmpty {
      failPoint("save.before")
      measures.writes &+= 1
      store.submit(
        saves: saves, entries: entries, events: records, meta: meta, forgotten: forgotten, now: SystemClocks.now())
      failPoint("save.submitted")
      // Known to be volatile, and shown so: then nobody waits for what will not come, each time anew.
      if case .volatile = storeState { answered += saves.map { ($0.id, $0.ticket) } }
    }
    for occurrence in records { log.record(occurrence) }
    control.publish(records)
  }

  /// What came of an action at once is heard with the time at which it came: a run's window begins with its own exec, and
  /// not with that of the thousandth that was started in the same turn.
  private func hearOutcomes() {
    guard !inbox.isEmpty else { return }
    let now = SystemClocks.now()
    let events = inbox
    inbox.removeAll(keepingCapacity: true)
    for (id, event) in events { fleet.handle(event, for: id, now: now) }
    eventsHeard &+= UInt64(events.count)
    fleetTold = true
  }

  /// A restart at once does not wait for the evidence of the death before it to be asked for: where that is next, the start
  /// behind it, unless somebody in between is to find the evidence under way.
  private func startThatComesFirst() -> Int? {
    guard case .act(let id, .examine) = outputs[done] else { return nil }
    for index in (done + 1)..<min(done + 12, outputs.count) {
      guard case .act(id, let action) = outputs[index] else { continue }
      switch action {
      case .spawn: return index
      case .record, .save, .enter, .watch: continue
      default: return nil
      }
    }
    return nil
  }

  private func perform(_ action: Action, for id: ServiceID) {
    switch action {
    case .spawn(let request):
      failPoint("spawn.before")
      runs.start(request, for: id, refused: stopping)
      failPoint("spawn.after")
    case .signal(let run, let signal):
      failPoint("signal.before")
      runs.signal(run, signal)
      failPoint("signal.after")
    case .reload(let run, let signal):
      failPoint("reload.before")
      runs.signal(run, signal, ending: false)
      failPoint("reload.after")
    case .signalSet(let run, let signal):
      failPoint("signal-set.before")
      runs.signalSet(run, signal)
      failPoint("signal-set.after")
    case .runHook(let request):
      failPoint("hook.before")
      hooks.run(request, for: id, spec: fleet.spec(of: id))
      failPoint("hook.after")
    case .signalHook(let run, let signal):
      failPoint("signal-hook.before")
      hooks.signal(run, signal)
      failPoint("signal-hook.after")
    case .notify(let request):
      let spec = fleet.spec(of: id)
      evidence.whenComplete(id) { [unowned self] in hooks.notify(request, for: id, spec: spec) }
    case .watch(let path, let files):
      let isWatched = path != nil || !files.isEmpty
      let plugins = isWatched ? fleet.latestSpec(of: id)?.process.pluginDirectory?.path : nil
      watches.set(id, path: path, files: files, plugins: plugins)
      changes.lookAtPluginFiles(of: id)
    case .look(let run): runs.look(run)
    case .measure(let run): runs.measure(run)
    case .examine(let report): evidence.examine(report, for: id)
    case .probe(let request): checks.probe(request, for: id)
    case .endProbes(let run, let numbers): checks.end(run, numbers)
    case .forget:
      evidence.forget(id)
      runs.forget(id)
      measures.forget(id)
      if let name = names[id] {
        groups?.forget(name)
        outputTable.forget(name)
      }
      watches.set(id, path: nil, files: [])
      changes.forget(id, names[id])
      names[id] = nil
    case .save, .record, .enter: break  // gathered by the caller
    }
  }

  private func arm(_ now: Now) {
    let next = fleet.nextDeadline
    // What is due already has had its timer fire: it must fire again.
    if next.monotonic != armed.monotonic || next.monotonic.map({ $0 <= now.monotonic }) ?? false {
      if let at = next.monotonic { monotonicTimer?.arm(at: at.nanoseconds) } else { monotonicTimer?.disarm() }
    }
    if next.boot != armed.boot || next.boot.map({ $0 <= now.boot }) ?? false {
      if let at = next.boot { bootTimer?.arm(at: at.nanoseconds) } else { bootTimer?.disarm() }
    }
    armed = next
  }

  /// A suspended machine, or a guardian that was stopped or starved: no service is to blame for what it could not show.
  private func noticeGaps(_ now: Now) {
    let distance = now.boot.nanoseconds.subtractingSaturating(now.monotonic.nanoseconds)
    let suspended = Duration.nanoseconds(distance.subtractingSaturating(clockDistance))
    clockDistance = distance
    var slept = Duration.zero
    if let due = armed.monotonic, due <= now.monotonic { measures.late(by: now.monotonic - due) }
    if let due = armed.monotonic, now.monotonic - due > Self.stall, now.monotonic - asleepSince > Self.stall {
      // How long exactly is unknown: not longer than since the loop was last seen at work, and on average twice as long as
      // it is late. The second on top lets the services show signs of life that they could not show either.
      slept = min(now.monotonic - asleepSince, (now.monotonic - due) * 2 + .seconds(1))
    }
    let wasSuspended = suspended > .seconds(1)
    guard slept > .zero || wasSuspended else { return }
    log.note(
      .warning,
      wasSuspended
        ? "the machine slept for \(suspended.description)"
        : "guardian was not run for up to \(slept.description); nobody is blamed for that time")
    // The monotonic clock stands still in a suspend: then only what waits for signs of life needs a fresh period.
    for id in fleet.ids { fleet.handle(.resumed(slept: slept), for: id, now: now) }
  }

  // MARK: Evidence

  func reap() {
    var strangers = false, known = false, all = false
    failPoint("reap.before")
    // So many rounds and no more: a service that has its orphans die all the time would keep guardian here for ever.
    for _ in 0..<16 {
      let ended = ChildReaper.drain(limit: 256)
      all = ended.count < 256
      if ended.isEmpty { break }
      // One look at the orphans serves the whole batch, and none is taken where control groups tell.
      var found: Orphans?
      func orphans() -> Orphans {
        let looked = found ?? self.orphans()
        found = looked
        return looked
      }
      for end in ended {
        if runs.ended(end, orphans: orphans) || hooks.ended(end, orphans: orphans) || upgrade.ended(end)
          || checks.ended(end, orphans: orphans) || outputTable.ended(end) || helpers.ended(end, orphans: orphans)
          || companion.ended(end)
        {
          known = true
        } else {
          strangers = true
        }
      }
      if all { break }
    }
    failPoint("reap.after")
    // An orphan of some run's set, most likely.
    if strangers { runs.lookAtDraining() }
    host?.tick(.deaths)
    // Of those who are left no signal tells again.
    if !all { deathTimer?.arm(at: SystemClocks.monotonic().nanoseconds) }
    if strangers, !known { strangersDied() } else { strangersInARow = 0 }
  }

  /// Nothing but orphans, again and again: the rest is heard first, and the next look at them waits a little. Whoever makes
  /// them is held up by that, since the dead count against its limit.
  private func strangersDied() {
    strangersInARow += 1
    guard strangersInARow > Self.strangersTolerated else { return }
    deathSource?.pause()
    deathTimer?.arm(at: (SystemClocks.monotonic() + Self.strangerPause).nanoseconds)
  }

  private func hearOfDeathsAgain() {
    strangersInARow = 0
    deathSource?.resume()
    reap()
  }

  /// Children of guardian that it did not start itself, as of now.
  func orphans() -> Orphans {
    orphanWatch.scan {
      runs.isMain($0) || hooks.isHook($0) || upgrade.isCheck($0) || checks.isHelper($0) || outputTable.isLogger($0)
        || helpers.isHelper($0) || companion.isCompanion($0)
    }
  }

  private func showLife() {
    reap()
    control.showLife()
    host?.tick(.control)
  }

  // MARK: Definitions

  /// Reads the configuration on the worker's thread; `then` hears what came of it, or would.
  ///
  /// A reading that has begun may have passed a file that was changed before this call, so it does not serve for it.
  func reload(_ mode: ReloadMode, by: Author, then: @escaping (Reloaded) -> Void) {
    if mode != .dryRun { record(.requested(verb: mode == .restart ? "reload --restart" : "reload", by: by)) }
    reloads.append(Reload(mode: mode, by: by, then: then))
    if !reloading { readAgain() }
  }

  private func readAgain() {
    let waiting = reloads
    reloads = []
    guard !waiting.isEmpty else { return }
    reloading = true
    let changes = waiting.contains { $0.mode != .dryRun }
    if changes { host?.reloading() }
    let loader = surroundings.loader(directories.configuration)
    let fallback = definitions.host
    let accepted = worker.submit({ loader.load(fallback: fallback) }) { [weak self] loaded in
      self?.reloaded(loaded, for: waiting)
    }
    if !accepted {
      let refused = Reloaded(
        diagnostics: [
          Diagnostic(file: directories.configuration, what: "cannot be read now", why: "the disk does not answer")
        ], listed: false)
      reloadEnded(waiting.map { ($0.then, refused) }, hostWasTold: changes)
    }
  }

  private func reloaded(_ loaded: LoadedConfiguration, for waiting: [Reload]) {
    var answers: [((Reloaded) -> Void, Reloaded)] = []
    func answer(_ definitions: Definitions, _ change: ReloadChange) -> Reloaded {
      Reloaded(
        services: definitions.count, change: change, diagnostics: definitions.diagnostics + switches.diagnostics,
        listed: loaded.listed)
    }
    // Before anything is changed.
    if waiting.contains(where: { $0.mode == .dryRun }) {
      var (definitions, fleet) = (definitions, fleet)
      var change = define(loaded, &definitions, &fleet, SystemClocks.now()).told
      change.dryRun = true
      for one in waiting where one.mode == .dryRun { answers.append((one.then, answer(definitions, change))) }
    }
    let changes = waiting.contains { $0.mode != .dryRun }
    if changes {
      let change = stopping ? ReloadChange() : take(loaded)
      let told = answer(definitions, change)
      for one in waiting where one.mode == .apply { answers.append((one.then, told)) }
      let restarting = waiting.filter { $0.mode == .restart }
      if let first = restarting.first {
        RestartRound.begin(self, after: change, by: first.by) { restarts in
          var told = told
          told.change.restarts = restarts
          for one in restarting { one.then(told) }
        }
      }
    }
    reloadEnded(answers, hostWasTold: changes)
  }

  private func reloadEnded(_ answers: [((Reloaded) -> Void, Reloaded)], hostWasTold: Bool) {
    reloading = false
    if hostWasTold { host?.reloaded() }
    for (then, result) in answers { then(result) }
    lookAtUnit()
    readAgain()
  }

  /// Puts what was read in force in this fleet, which may be a copy of the one that counts: but for what is new.
  private func define(
    _ loaded: LoadedConfiguration, _ definitions: inout Definitions, _ fleet: inout Fleet, _ now: Now
  ) -> (told: ReloadChange, new: [ServiceSpec], gone: [ServiceID]) {
    let inForce = fleet.ids.compactMap { names[$0] }
    let change = definitions.apply(loaded, inForce: inForce, notifyDirectory: directories.notifyDirectory)
    fleet.govern(definitions.host.governor, now: now)
    fleet.watchCommonCauses(definitions.host.commonCause, now: now)
    var told = ReloadChange()
    var new: [ServiceSpec] = []
    for spec in change.defined {
      if let id = fleet.id(named: spec.name) {
        if let changed = fleet.define(spec, for: id, now: now) {
          told.changed.append(changed)
        } else {
          told.unchanged += 1
        }
      } else {
        told.added.append(spec.name.text)
        new.append(spec)
      }
    }
    // One that is still on its way out has been told of.
    told.removed = change.removed.filter { name in
      !(fleet.id(named: name).flatMap { fleet.machine(of: $0) }?.removed ?? true)
    }.map(\.text)
    told.invalid = definitions.invalid.map(\.text)
    told.host = definitions.hostChanges
    let gone = Set(change.removed.map(\.text))
    told.needRestart = fleet.pending.filter { !gone.contains($0.name) }
    return (told, new, change.removed.compactMap { fleet.id(named: $0) })
  }

  @discardableResult private func take(_ loaded: LoadedConfiguration) -> ReloadChange {
    heapIsUntidy = true
    codeIsLoaded = true
    let now = SystemClocks.now()
    fleetTold = true
    defer {
      streams = countStreams()
      let before = checked
      checked = fleet.ids.count { fleet.spec(of: $0)?.checks.isEmpty == false }
      if checked > 0, before == 0, CheckTable.program() == nil { log.note(.warning, CheckTable.missing) }
      let filedBefore = filed
      filed = fleet.ids.count { fleet.spec(of: $0)?.log == .file }
      if filed > 0, filedBefore == 0, !OutputTable.isInstalled { log.note(.warning, OutputTable.missing) }
      noticeDescriptors()
      noticeGrace()
      lineRevision = nil
    }
    if let host = loaded.host {
      store.keep(events: host.historyEvents)
      store.keep(reports: ReportLimits(perService: host.reportsPerService, total: Int64(clamping: host.reportsTotal)))
      evidence.configure(host.swiftBacktrace)
    }
    var (told, new, gone) = define(loaded, &definitions, &fleet, now)
    outputTable.configure(definitions.host.logs)
    companion.configure(definitions.host.metrics)
    // Before anything new is added, let alone started.
    switches.take(loaded.switches)
    let changedOnes = fleet.ids.lazy.compactMap { [fleet] id in fleet.spec(of: id) }
    control.take(
      host: definitions.host.access,
      services: (Array(changedOnes) + new).map { ($0.name, $0.access) })
    for diagnostic in definitions.diagnostics {
      log.note(diagnostic.severity == .error ? .error : .warning, diagnostic.description)
    }
    if let cause = commonCauseBefore { fleet.resume(cause, now: now) }
    commonCauseBefore = nil
    for changed in told.changed {
      if let spec = ServiceName(changed.name).flatMap({ fleet.id(named: $0) }).flatMap({ fleet.latestSpec(of: $0) }) {
        groups?.apply(spec)
      }
    }
    var added = new.map { add($0, now) }
    // What guardian remembers and nobody defines any more is stopped and forgotten; a file that is not valid now may be
    // tomorrow, so that what it names is left as it is until then.
    if loaded.listed {
      let known = Set(loaded.services.map(\.name)).union(loaded.invalid)
      for name in stored.keys.sorted() where !known.contains(name) && fleet.id(named: name) == nil {
        let id = addUndefined(name, now)
        added.append(id)
        gone.append(id)
        told.removed.append(name.text)
      }
    }
    let isFirst = beforeFirstDeed != nil
    beforeFirstDeed?()
    beforeFirstDeed = nil
    if isFirst { findGroups(loaded.host?.groups ?? .automatic) }
    // What has died meanwhile is heard of before what requires it: whose fault it was depends on that.
    added = fleet.inStartOrder(added)
    failPoint("adopt.before")
    adopt(added)
    evidence.recover(added)
    failPoint("adopt.after")
    for id in gone { fleet.handle(.removed, for: id, now: now) }
    for id in added { fleet.handle(.begin, for: id, now: now) }
    switches.checkNames()
    // They may have changed while guardian was away, or be declared only now.
    changes.look(fleet.ids)
    return told
  }

  // MARK: Control groups

  private func findGroups(_ wish: GroupsWish) {
    do throws(ControlGroups.Unavailable) {
      var runtime = stat()
      guard stat(directories.runtime, &runtime) == 0 else { return }
      let identity = String(runtime.st_dev, radix: 16) + "-" + String(runtime.st_ino, radix: 16)
      let found = try ControlGroups.find(wish, identity: identity, isMain: Surroundings.startedBySystemd)
      do throws(SystemError) { try found.makeRoom() } catch {
        log.note(.warning, "guardian stays where it is: \(error)")
      }
      try found.prove()
      found.enable([.memory, .pids])
      groups = GroupTable(found)
    } catch {
      groupsMissing = error.description
      guard wish != .off else { return }
      log.note(.info, "services have no control groups of their own: \(error)")
    }
  }

  /// The kernel does not let anybody be born in one, whatever it said before.
  func giveUpGroups(_ why: String) {
    groups = nil
    groupsMissing = why
    log.note(.warning, "control groups are not used any more: \(why)")
  }

  /// What cannot be had for now is waited for. Whatever else is wrong with a group is no service's fault: better none than
  /// no start.
  func doWithoutGroups(_ error: SystemError) throws(SystemError) {
    if Limits.shortage(error.errno) != nil { throw error }
    giveUpGroups("\(error)")
  }

  private func add(_ spec: ServiceSpec, _ now: Now) -> ServiceID {
    let id = fleet.add(spec, stored: stored.removeValue(forKey: spec.name), now: now)
    names[id] = spec.name
    return id
  }

  /// What is remembered and has no definition: good for nothing but to be stopped.
  private func addUndefined(_ name: ServiceName, _ now: Now) -> ServiceID {
    // Whether its definition has changed, nobody can say.
    stored[name]?.record.processHash = 0
    return add(ServiceSpec(name: name, process: ProcessSpec(command: ["/"])), now)
  }

  // MARK: What an earlier guardian left

  /// Starts without an end that no record knows of, as after damage, get one before anything is started.
  private func closeForgottenRuns() {
    let known = Set(stored.values.flatMap { $0.record.situation.runs })
    let now = SystemClocks.now()
    let entries = openRuns.compactMap { entry -> RunEntry? in
      guard case .opened(let id, let service, let purpose, let at) = entry, !known.contains(id) else { return nil }
      let outcome: RunOutcome =
        switch purpose {
        case .main:
          .ended(
            End(
              run: id, status: .unseen, cause: sameBoot ? .unknown : .host, crashClass: .unknown, at: now.wall,
              uptime: max(.zero, .nanoseconds(now.wall.nanoseconds.subtractingSaturating(at.nanoseconds)))))
        case .repair, .beforeStart: .hook(.failed(.unseen))
        }
      return .closed(id, service: service, outcome, at: now.wall, madeUp: true)
    }
    openRuns = []
    if !entries.isEmpty { store.submit(entries: entries, now: now) }
  }

  /// Takes over what lives, and finds out what has died meanwhile.
  private func adopt(_ added: [ServiceID]) {
    let adoptees = added.flatMap { id in fleet.adoptees(of: id).map { (id, $0) } }
    guard !adoptees.isEmpty else { return }
    let survivors = Survivors(adoptees.map(\.1), births: births?.all() ?? [:])
    for (id, adoptee) in adoptees {
      switch adoptee.work {
      case .main(let request): runs.adopt(adoptee, request, for: id, from: survivors, kept: kept)
      case .hook(let request): hooks.adopt(adoptee, request, for: id, from: survivors)
      }
    }
    reap()
    hearOutcomes()
  }

  /// What an earlier guardian started and no record knows of, as where the state could not be read: it is ended before
  /// anything is started, since its service would otherwise be there twice.
  private func endForgotten() {
    let marks = births?.all() ?? [:]
    var forgotten = Set(marks.filter { $1.process() != nil }.keys)
    forgotten.subtract(stored.values.flatMap { $0.record.situation.runs })
    forgotten.subtract(runs.all.map(\.id))
    forgotten.subtract(runs.alreadyBorn.map(\.0))
    forgotten.subtract(hooks.all.map(\.request.id))
    guard !forgotten.isEmpty else { return }
    // A number may be another's by now: the run's id in its environment proves whose it is.
    let sets = AdoptedProcess.find(runs: forgotten).map { run, look in
      ProcessSet(leader: look.pid, run: run, adoptedStart: look.startTicks)
    }
    let ended = sets.isEmpty ? 0 : ProcessSet.end(sets, patience: .seconds(5))
    if ended > 0 {
      log.note(.warning, "ended \(processes(ended)) of an earlier guardian that nothing is remembered of")
    }
  }

  /// Processes that an earlier guardian left in its control group, and that belong to nothing that is remembered.
  private func endForeigners() {
    guard !surroundings.tookOver else { return }
    endForgotten()
    if let groups {
      var kept: Set<RunID> = []
      for record in stored.values where record.sameBoot { kept.formUnion(record.record.situation.runs) }
      let ended = groups.endForeigners(patience: .seconds(5), kept: kept)
      if ended > 0 { log.note(.warning, "ended \(processes(ended)) that an earlier guardian left in control groups") }
    }
    guard let group = DelegatedGroup() else { return }
    var known = KnownProcesses()
    known.groups = groups?.groups
    if let logger = outputTable.loggerPid { known.leaders.insert(logger) }
    for run in runs.all { if let child = run.child { known.insert(child, run.id) } }
    for hook in hooks.all { if let child = hook.child { known.insert(child, hook.request.id) } }
    for (run, found) in runs.alreadyBorn { known.insert(found.child(of: run), run) }
    // Of those whose files cannot be read now: they are taken over when they can.
    for record in stored.values { for run in record.record.situation.runs { known.insert(run) } }
    let ended = group.endForeigners(patience: .seconds(5), except: known)
    if ended > 0 {
      log.note(.warning, "ended \(processes(ended)) that an earlier guardian left in its control group")
    }
  }

  // MARK: The unit

  /// What the service manager would do to the services is said once, and again when it has changed.
  private func lookAtUnit() {
    guard Surroundings.startedBySystemd, !stopping else { return }
    let asked = worker.submit({ () -> UnitAdvice in
      do throws(SystemError) {
        return UnitAdvice(try OwnUnit.ask(patience: .seconds(1)))
      } catch {
        return UnitAdvice(unknown: error)
      }
    }) { [weak self] (advice: UnitAdvice) in
      guard let self, advice != unitAdvice else { return }
      unitAdvice = advice
      for warning in advice.warnings { log.note(.warning, warning) }
    }
    if !asked { log.note(.info, "the service manager is not asked about guardian's unit: the worker is busy") }
  }

  // MARK: The host's patience

  /// What container runtimes grant between TERM and KILL unless they are told otherwise.
  private static let usualGrace = Duration.seconds(10)

  /// A service manager is asked for as much time as the stop takes. Nobody can be asked by process 1 of a container, whose
  /// end takes everything along before its own stop sequences have come to theirs.
  private func noticeGrace() {
    let longest = fleet.longestStop
    var shortage: String?
    if Process1.isHere, host == nil, longest > Self.usualGrace {
      shortage =
        "stopping everything may take \(longest.description), the longest sum of stop time-outs of services that stop one"
        + " after the other, and container runtimes kill after \(Self.usualGrace.description) unless told otherwise:"
        + " grant it more ('docker stop -t', 'terminationGracePeriodSeconds'), or shorten 'stop'"
    }
    if let shortage, shortage != graceShortage { log.note(.warning, shortage) }
    graceShortage = shortage
  }

  // MARK: A common cause

  private static let commonCauseKey = "common-cause"

  /// The fleet records it as an event; here it is kept for the next guardian, and shown.
  private func noticeCommonCause(_ cause: CommonCause?, _ meta: inout [String: String?]) {
    meta.updateValue(cause?.text, forKey: Self.commonCauseKey)
    lineRevision = nil
    tellStatus()
  }

  // MARK: Guardian's own faults

  private static let faultsTolerated = 3
  private static let faultWindow = Duration.minute * 5

  /// A supervisor that keeps dying by its own fault does as little as it can: restarts, and nothing that climbs.
  private func observeAfterFaults() {
    let marks = faults?.recent(within: Self.faultWindow, now: SystemClocks.now().boot) ?? []
    guard marks.count >= Self.faultsTolerated else { return }
    fleet.setObserving(true)
    log.note(
      .error,
      "guardian has died \(marks.count) times by its own fault within \(Self.faultWindow.description): it only restarts"
        + " services now, and logs what else it would do, for five good minutes or until"
        + " 'guardianctl reset --guardian'; please report it")
    observeTimer = try? loop.timer(.monotonic, priority: .time) { [unowned self] in
      trustAgain("five good minutes have passed")
    }
    observeTimer?.arm(at: (SystemClocks.monotonic() + Self.faultWindow).nanoseconds)
  }

  /// - Returns: False if guardian trusted itself anyway.
  @discardableResult func trustAgain(_ why: String) -> Bool {
    faults?.clear()
    guard fleet.observing else { return false }
    observeTimer = nil
    fleet.setObserving(false)
    fleetTold = true
    log.note(.notice, "guardian leaves its observe mode: \(why)")
    return true
  }

  // MARK: What must survive

  func storeAnswered() {
    answered += store.takeAnswers()
    store.deliverAnswers()
    // What many saves have taken while they waited for the disk is not needed again soon.
    if answered.count > Self.queueKept { heapIsUntidy = true }
    for note in store.takeNotes() { log.note(.warning, note) }
    failPoint("save.durable")
    noticeStore()
  }

  /// Said once for each change: how sure it is that nothing is forgotten.
  private func noticeStore() {
    let state = store.state
    guard state != storeState else { return }
    storeState = state
    lineRevision = nil
    switch state {
    case .durable: log.note(.notice, "the state is kept again: durable")
    case .volatile(let why): log.note(.warning, "the state is not kept (volatile): \(why); services go on")
    }
    tellStatus()
  }

  private var stateName: String { if case .durable = storeState { "durable" } else { "volatile" } }

  // MARK: What people ask

  func order(_ command: Command, named name: ServiceName, request: RequestID?, wait: Bool) -> Bool {
    guard let id = fleet.id(named: name) else { return false }
    fleet.order(command, for: id, request: request, wait: wait, now: SystemClocks.now())
    fleetTold = true
    return true
  }
  /// The process is of a hook for whose end the service waits.
  func isAwaited(_ pid: Int32, by name: ServiceName) -> Bool {
    fleet.id(named: name).map { hooks.isAwaited(pid, by: $0) } ?? false
  }
  func abandon(_ request: RequestID) { fleet.abandon(request) }

  /// The answer says that it has stopped, or is not there any more.
  func awaitStop(of name: ServiceName, request: RequestID) {
    if let id = fleet.id(named: name) {
      fleet.wait(Fleet.Waiting(request: request, service: id, goal: .stopped(note: "")))
    } else {
      outputs.append(.answer(request, .done(note: "")))
    }
    fleetTold = true
  }

  func machine(named name: ServiceName) -> ServiceMachine? { fleet.id(named: name).flatMap { fleet.machine(of: $0) } }

  /// Of everything that has a file, in order of name.
  var allNames: [ServiceName] {
    var all = fleet.ids.compactMap { names[$0] }
    if !definitions.broken.isEmpty { all = (all + definitions.broken.keys).sorted() }
    return all
  }

  func knows(_ name: ServiceName) -> Bool { fleet.id(named: name) != nil || definitions.broken[name] != nil }

  /// Of a group's services.
  func names(of group: ServiceName) -> [ServiceName] { fleet.members(of: group).compactMap { names[$0] } }

  /// The fleet is looked at once for all of them: each look at it from here copies its parts' references.
  ///
  /// - Parameter closely: Their processes are looked at, which takes as long for each as all the rest.
  func list(
    _ names: some Sequence<ServiceName>, now: Now, brief: Bool, closely: Bool, into list: inout ServiceListWriter
  ) {
    let fleet = fleet
    for name in names {
      if brief, let well = fleet.id(named: name).flatMap({ fleet.allIsWell(with: $0, now: now) }) {
        list.addWell(name.text, uptimeMilliseconds: well.uptimeMilliseconds, restarts: well.restarts)
      } else if let id = fleet.id(named: name) {
        var status = fleet.status(of: id, now: now, brief: brief)
        // A table has room for none of it.
        if !brief { complete(&status, of: name, id, in: fleet, closely: closely) }
        list.add(status)
      } else if let why = definitions.broken[name] {
        list.add(Definitions.status(ofBroken: name, why))
      }
    }
  }

  /// What the fleet does not know of a service.
  private func complete(
    _ status: inout ServiceStatus, of name: ServiceName, _ id: ServiceID, in fleet: Fleet, closely: Bool
  ) {
    if let facts = runs.facts[id] {
      status.log = facts.log
      status.statusText = facts.statusText
      status.notes += facts.notes
      if let story = facts.repairStory { status.notes.append(story) }
      status.notes += facts.wordsOfItsOwn
      status.notes += outputTable.notes(of: name)
      if fleet.writesToFile(id) { status.logFile = outputTable.file(of: name) }
      if status.phase == .stopping {
        status.notes += runs.obstacles(id)
      } else if closely, let pid = runs.dumping(id) {
        status.notes.append("pid \(pid) is dumping core: it has died, and is restarted when that is done")
      }
    }
    status.notes += evidence.notes(of: id)
    status.notes += changes.notes(of: id)
    if let why = definitions.stale[name] {
      status.notes.append(
        "its file is not valid now, the last good definition is in force"
          + (why.first.map { ": \($0.description)" } ?? ""))
    }
    if let groups {
      status.notes += groups.faults(of: name)
    } else if let limits = fleet.spec(of: id)?.process.groupLimits, !limits.isEmpty {
      status.notes.append("limits of memory, tasks and cpu-weight are not in force: no control groups")
    }
    if let why = watches.obstacle(id) {
      status.notes.append("its program is not watched, a change is noticed by a reload and a trial: \(why)")
    }
  }

  func isBroken(_ name: ServiceName) -> [Diagnostic]? { definitions.broken[name] }

  func plan(for name: ServiceName, fromStart: Bool, deaths: [PlanDeath]) -> [PlanEntry]? {
    guard let id = fleet.id(named: name) else { return nil }
    if fromStart { return fleet.spec(of: id).map { Fleet.plan($0, switches: fleet.switches, deaths: deaths) } }
    return fleet.plan(for: id, now: SystemClocks.now(), deaths: deaths)
  }

  /// What STATUS= reads: there is no room for a line of its own about the state.
  private var statusLine: String {
    summaryLine + (fleet.commonCause == nil ? "" : "; common cause: escalation is frozen")
      + (storeState == .durable ? "" : "; state: volatile")
  }

  /// Made anew only when something has changed: people ask more often than that.
  private var summaryLine: String {
    if lineRevision != fleet.revision {
      line = summary().line
      lineRevision = fleet.revision
    }
    return line
  }

  private func summary() -> FleetSummary {
    var summary = fleet.summary()
    let broken = definitions.broken.keys.sorted()
    if !broken.isEmpty {
      summary.total += broken.count
      summary.quarantined += broken.count
      let names = (summary.names[PhaseName.quarantined.rawValue] ?? []) + broken.map(\.text)
      summary.names[PhaseName.quarantined.rawValue] = Array(names.sorted().prefix(3))
    }
    return summary
  }

  /// Who may not look at all of it is told of his services only.
  func summary(for rights: Rights) -> DaemonSummary {
    if rights.host >= .view { return daemonSummary }
    var answer = DaemonSummary()
    var summary = fleet.summary { rights.may(.view, on: $0) }
    let faulty = (definitions.broken.merging(definitions.stale) { $1 }).filter { rights.may(.view, on: $0.key) }
    for name in faulty.keys.sorted() where definitions.broken[name] != nil {
      summary.total += 1
      summary.quarantined += 1
      summary.names[PhaseName.quarantined.rawValue, default: []].append(name.text)
    }
    answer.line = summary.line
    answer.state = stateName
    answer.diagnostics = Array(
      faulty.keys.sorted().lazy.flatMap { faulty[$0] ?? [] }.prefix(Self.diagnosticsShown))
    if stopping { answer.warnings.append("guardian is stopping") }
    return answer
  }

  private var daemonSummary: DaemonSummary {
    var answer = DaemonSummary()
    answer.line = summaryLine
    noticeStore()
    answer.state = stateName
    if case .volatile(let why) = storeState { answer.warnings.append("the state is not kept: \(why)") }
    if store.droppedEvents > 0 { answer.warnings.append("\(store.droppedEvents) events were lost to the history") }
    let diagnostics = switches.diagnostics + definitions.diagnostics
    answer.diagnostics = Array(diagnostics.prefix(Self.diagnosticsShown))
    // Every answer has them, and thousands of services may have one each. What is an error goes before what is not.
    if diagnostics.count > Self.diagnosticsShown {
      let errors = diagnostics.lazy.filter { $0.severity == .error }.prefix(Self.diagnosticsShown)
      let rest = diagnostics.lazy.filter { $0.severity != .error }
      answer.diagnostics = Array(errors) + rest.prefix(Self.diagnosticsShown - errors.count)
      answer.warnings.append(
        "of \(diagnostics.count) diagnostics \(Self.diagnosticsShown) are shown; 'guardianctl check' lists all"
      )
    }
    answer.warnings += surroundings.warnings + (unitAdvice?.warnings ?? [])
    answer.warnings += switches.warnings
    if definitions.directoryIsUnusable {
      answer.warnings.append("the configuration directory cannot be used: no service was added, changed or removed")
    } else if definitions.hostIsStale {
      answer.warnings.append("guardian.yaml is not valid: its last good copy, or the defaults, are in force")
    }
    if let cause = fleet.commonCause {
      let left = max(.zero, cause.until - SystemClocks.now().boot)
      answer.warnings.append(
        "common cause: \(cause.sentence); escalation is frozen for another \(Duration.seconds(left.components.seconds).description)"
      )
    }
    if log.dropped > 0 { answer.warnings.append("\(log.dropped) log records were lost") }
    if hooks.droppedNotices > 0 { answer.warnings.append("\(hooks.droppedNotices) notices were dropped") }
    if streams > Self.manyStreams {
      answer.warnings.append("\(streams) services have a journal stream each; journald takes 4096 by default")
    }
    if let trouble = companion.trouble { answer.warnings.append("metrics are not written: \(trouble)") }
    if checked > 0, CheckTable.program() == nil { answer.warnings.append(CheckTable.missing) }
    if filed > 0, !OutputTable.isInstalled { answer.warnings.append(OutputTable.missing) }
    if fleet.observing {
      answer.warnings.append(
        "guardian died several times by its own fault and only observes for now; 'guardianctl reset --guardian' ends that"
      )
    }
    if let shortage = descriptorShortage { answer.warnings.append(shortage) }
    if let graceShortage { answer.warnings.append(graceShortage) }
    if stopping { answer.warnings.append("guardian is stopping") }
    return answer
  }

  // MARK: Metrics

  var isVolatile: Bool { storeState != .durable }
  var workDone: (heard: UInt64, performed: UInt64) { (eventsHeard, actionsPerformed) }
  func definitionIsBroken(_ name: ServiceName) -> Bool { definitions.broken[name] != nil }
  /// Services by what they are called in the line about all of them, those without a valid file among the quarantined.
  var fleetCounts: [(String, Int)] {
    fleet.counts.map { $0.word == "quarantined" ? ($0.word, $0.count + definitions.broken.count) : ($0.word, $0.count) }
  }

  var version: DaemonVersion {
    var answer = DaemonVersion()
    answer.guarantees = surroundings.guarantees(groups, missing: groupsMissing)
    if let unitAdvice { answer.guarantees.append(.init("unit", unitAdvice.guarantee)) }
    answer.guarantees.append(.init("state", stateName))
    answer.guarantees.append(
      .init("debuggers", runs.noticesTracers ? "noticed" : "not noticed (needs CAP_NET_ADMIN, no container)"))
    return answer
  }

  /// How many services there are whose output goes to the journal.
  private func countStreams() -> Int {
    let automatic = Journal.exists
    return fleet.ids.count { id in
      switch fleet.spec(of: id)?.log {
      case .journal: true
      case .automatic: automatic
      case .file, .inherit, .some(.none), nil: false
      }
    }
  }

  private func tellStatus() { host?.status({ statusLine }, now: SystemClocks.monotonic()) }

  // MARK: The end

  /// The first order counts; further ones change nothing, least of all call it off.
  func stop(_ why: String) {
    guard !stopping else { return log.note(.info, "\(why) again: already stopping") }
    stopping = true
    log.note(.notice, "\(why): stopping everything")
    stopUndefined()
    drills.abandonAll("guardian is stopping")
    let patience = fleet.longestStop
    host?.stopping(patience: patience + .seconds(10))
    fleet.shutDown(now: SystemClocks.now())
    fleetTold = true
  }

  /// Of services whose files were never valid in this guardian's life, but whose processes an earlier one has left.
  private func stopUndefined() {
    let now = SystemClocks.now()
    let left = stored.filter { $0.value.sameBoot && !$0.value.record.situation.runs.isEmpty }.keys.sorted()
    adopt(left.map { addUndefined($0, now) })
  }

  /// Whoever escaped its run's set and has no other parent left than guardian: stopped means that nothing is left.
  ///
  /// - Returns: True if there is nobody, or if it has been tried often enough.
  private func endStragglers() -> Bool {
    let stragglers = orphans().without(surroundings.inherited)
    guard !stragglers.isEmpty, stragglerRounds < 50 else { return true }
    stragglerRounds += 1
    stragglers.signal(.kill)
    endTimer?.arm(at: (SystemClocks.monotonic() + .milliseconds(20)).nanoseconds)
    return false
  }

  // MARK: Output

  /// Lets the service manager hold a notify socket, so that what is said while guardian is away is not lost.
  func keep(_ socket: Int32, of service: ServiceName) { host?.keep(socket, name: "notify-\(service)") }

  /// How `status` shows where the output of an adopted run goes.
  func logName(_ log: LogTarget) -> String {
    switch log {
    case .none: "none"
    case .inherit: "inherit"
    case .automatic: Journal.exists ? "journal" : "inherit"
    case .journal: "journal"
    case .file: "file"
    }
  }

  struct Output {
    var target: SpawnRequest.Stream
    /// Of the journal; the caller owns it.
    var stream: Int32?
    /// As `status` shows it.
    var shown: String
    /// The journal may go away under a run, which must not die of that.
    var needsSIGPIPEIgnored: Bool { shown == "journal" || shown == "degraded" }
  }

  /// - Parameter owner: Who may open /dev/stdout; nil: guardian's own user.
  /// - Throws: Guardian's own trouble: the start is to be tried again.
  func output(
    _ log: LogTarget, of service: ServiceName, _ run: RunID, owner: UInt32?
  ) throws(SystemError) -> Output {
    switch log {
    case .file:
      if let end = try outputTable.open(run, service, owner: owner) {
        return Output(target: .descriptor(end), stream: nil, shown: "file")
      }
      return Output(target: StandardError.isBroken ? .null : .inherit, stream: nil, shown: "degraded")
    case .none: return Output(target: .null, stream: nil, shown: "none")
    case .inherit: return Output(target: .inherit, stream: nil, shown: "inherit")
    case .automatic where !Journal.exists: return Output(target: .inherit, stream: nil, shown: "inherit")
    case .automatic, .journal:
      do throws(SystemError) {
        let stream = try Journal.openStream(identifier: service.text)
        return Output(target: .descriptor(stream), stream: stream, shown: "journal")
      } catch {
        // Tried again at each start. Guardian's own output may be a stream that went the same way.
        return Output(target: StandardError.isBroken ? .null : .inherit, stream: nil, shown: "degraded")
      }
    }
  }
}
