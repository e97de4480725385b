import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

/// One run of a service, from the decision to start it until nothing of it is left.
final class Run {
  enum Stage {
    /// The environment files are being read.
    case preparing
    /// On its way to exec by a road that may block.
    case pending(PendingSpawn)
    case alive
    /// The main process is gone, others of its set may be there.
    case draining
  }
  let id: RunID
  let service: ServiceID
  var request: StartRequest
  var stage = Stage.preparing
  /// Plugins that are off beside those of the request.
  var newcomers: [PluginSpec] = []
  /// What it sees in the place of files of plugins that are off.
  var standIns: [GoodCopies.StandIn] = []
  var pid: Int32 = 0
  /// Of the main process.
  var child: RunningChild?
  /// What was ordered before there was a process to signal, in order.
  var queued: [(Signal, set: Bool)] = []
  var sentKill = false
  /// Who debugs it; nil: nobody, as far as is known, or somebody who is gone.
  var tracer: Tracer?
  /// As far as is known. Stays true if the debugger goes after it.
  var isTraced = false
  /// The host's count of OOM kills when it was started.
  var oomKills: UInt64 = 0
  /// Its control group's; nil where nobody counts there.
  var groupOomKills: UInt64?
  var killedAt: Instant?
  // Taken off the loop and closed when the run is let go.
  var pendingSource: EventSource?
  var readySource: EventSource?
  var readyPipe: OwnedFD?
  var streamSource: EventSource?
  var stream: OwnedFD?
  var groupSource: EventSource?
  var groupEvents: OwnedFD?
  /// That it was, or is to be, born in.
  var group: RunGroup?
  /// Of one that is not guardian's child.
  var strangersEnd: StrangersEnd?
  /// When it was started, in nanoseconds since 1970; nil: by an earlier guardian.
  var begunAt: Int64?
  /// How many descriptors the main process had open when it was last signalled; nil: not known.
  var openDescriptors: Int?

  init(_ request: StartRequest, for service: ServiceID) {
    id = request.run
    self.service = service
    self.request = request
  }

  // Always the source first, and then its descriptor.
  func letGoOfPending() {
    pendingSource?.cancel()
    pendingSource = nil
  }
  func letGoOfReadiness() {
    readySource?.cancel()
    readySource = nil
    readyPipe = nil
  }
  func letGoOfStream() {
    streamSource?.cancel()
    streamSource = nil
    stream = nil
  }
  func letGoOfGroup() {
    groupSource?.cancel()
    groupSource = nil
    groupEvents = nil
  }
  deinit {
    groupSource?.cancel()
    pendingSource?.cancel()
    readySource?.cancel()
    streamSource?.cancel()
  }
}

/// What the shell knows of a service beside the fleet: its sockets, its output, its own words.
final class ServiceFacts {
  var notify: NotifySocket?
  var notifySource: EventSource?
  var run: RunID?
  var statusText = ""
  /// `journal`, `file`, `inherit`, `none`, or `degraded`; empty before the first run.
  var log = ""
  var notes: [String] = []
  var droppedNotifications = 0
  /// READY=1 of what is ready, and more like it.
  var ignoredNotifications = 0
  var said = Said()
  /// The last ERRNO; 0: none.
  var errorNumber: Int32 = 0
  /// Of the run that ended last, until its report is begun.
  var remains: EvidenceTable.Remains?
  var lastDropLine = Instant(nanoseconds: .min)
  /// What the last round of repairs came to, as in `fix-aof done, drop-cache failed: exit 1`.
  var repairs = "", repairRound = 0
  /// For `status`: a service that is well after a repair, or beyond help, tells which repairs were made.
  var repairStory: String? {
    if repairs.isEmpty { return nil }
    return (repairRound == 0 ? "repairs, by order: " : "repairs, round \(repairRound): ") + repairs
  }

  func remember(_ kind: Occurrence.Kind) {
    switch kind {
    case .requested("repair", _): (repairs, repairRound) = ("", 0)
    case .repairStarted(_, _, let round):
      if round != repairRound { (repairs, repairRound) = ("", round) }
    case .repairEnded(_, let name, let result):
      // A round has few repairs; a story that is too long for status is in the log.
      guard repairs.utf8.count < 1_024 else { return }
      repairs += (repairs.isEmpty ? "" : ", ") + "\(name) \(result.description)"
    case .deescalated(_, .restart), .reset, .released: (repairs, repairRound) = ("", 0)
    default: break
    }
  }
  deinit { notifySource?.cancel() }
}

extension SpawnFailure {
  /// Of guardian's own calls before a start. What is short is named with its limit.
  init(preparing error: SystemError) {
    let own = [EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN, ENOSPC, EBUSY].contains(error.errno)
    let limit = own ? Limits.shortage(error.errno).map { " (\($0))" } ?? "" : ""
    self.init(
      stage: .prepare, errno: error.errno, target: "", sentence: error.description + limit, ownTrouble: own)
  }

  /// The worker has too much to do.
  static let slowDisk = SpawnFailure(
    stage: .prepare, errno: EAGAIN, target: "", sentence: "cannot read environment files: the disk is too slow",
    ownTrouble: true)
}

/// All runs: starts them, signals them, notices their readiness, words and ends.
final class RunTable {
  unowned let shell: Shell
  var runs: [RunID: Run] = [:]
  /// Starts that an earlier guardian has carried out and not written down.
  var alreadyBorn: [RunID: Survivors.Born] = [:]
  var byPid: [Int32: RunID] = [:]
  /// Processes that runs began with and that are not their main processes any more.
  var leaders: [Int32: RunID] = [:]
  /// To be closed when what was heard before them has been handled.
  var barriers: [Int32] = []
  private(set) var facts: [ServiceID: ServiceFacts] = [:]
  private var draining: [RunID] = []
  private var drainTimer: EventSource?
  var oom = OomEvidence()
  private var tracers: TracerWatch?

  /// How often sets that are to become empty are looked at without being told: their orphans mostly are ours to reap, and
  /// then the look comes at once.
  private static let drainPause = Duration.milliseconds(200)
  /// Datagrams taken from one socket at a time, so that a talkative service cannot hold up the others.
  static let datagramsAtOnce = 16

  init(_ shell: Shell) throws(SystemError) {
    self.shell = shell
    drainTimer = try shell.loop.timer(.monotonic, priority: .time) { [unowned self] in lookAtDraining() }
    tracers = TracerWatch(loop: shell.loop) { [unowned self] process, tracer in
      if let id = byPid[process], let run = runs[id] { traced(run, by: tracer) }
    }
  }

  /// - Parameter tracer: 0: nobody any more.
  private func traced(_ run: Run, by tracer: Int32) {
    // One that is dead has died before its tracer went, or with it.
    func isAlive(_ run: Run) -> Bool { ProcessLook(run.pid).map { !$0.isDead } ?? false }
    run.tracer = Tracer(tracer, loop: shell.loop) { [weak run] in
      if let run, isAlive(run) { run.isTraced = false }
    }
    run.isTraced = run.tracer != nil || (tracer > 0 && !isAlive(run))
  }

  var isEmpty: Bool { runs.isEmpty }
  var all: some Sequence<Run> { runs.values }
  /// Deaths under a debugger are told from others.
  var noticesTracers: Bool { tracers != nil }
  /// Whether the process is the one that a run began with: whatever else is guardian's child is to be found as an orphan.
  func isMain(_ pid: Int32) -> Bool {
    if leaders[pid] != nil { return true }
    guard let id = byPid[pid], let run = runs[id] else { return false }
    return run.child.map { $0.leader == pid } ?? true
  }

  func facts(of service: ServiceID) -> ServiceFacts {
    if let known = facts[service] { return known }
    let new = ServiceFacts()
    facts[service] = new
    return new
  }

  func forget(_ service: ServiceID) { facts[service] = nil }

  // MARK: Starting

  /// - Parameter refused: Guardian goes down: nothing is started any more, whatever has been decided before.
  func start(_ request: StartRequest, for service: ServiceID, refused: Bool) {
    let run = Run(request, for: service)
    if let found = alreadyBorn.removeValue(forKey: request.run) { return takeForStarted(run, found) }
    if refused { return failed(run, Self.givenUp) }
    runs[run.id] = run
    facts(of: service).run = run.id
    facts(of: service).statusText = ""
    facts(of: service).said = Said()
    facts(of: service).errorNumber = 0
    guard shell.switches.mustBeLookedAt(isInTrouble: shell.fleet.isInTrouble(service)) else {
      return lookAtPlugins(run)
    }
    shell.switches.look { [weak self] in
      guard let self, runs[run.id] === run else { return }
      // A switch that has come since the start was decided is honoured by it.
      if let amended = shell.fleet.amendStart(run.id, of: service, now: SystemClocks.now()) {
        run.request.disabledPlugins = amended.disabledPlugins
      }
      shell.fleetTold = true
      lookAtPlugins(run)
    }
  }

  /// One that is off and has been mended a moment ago is on in this start already.
  private func lookAtPlugins(_ run: Run) {
    guard run.request.kind == .ordinary, !run.request.disabledPlugins.isEmpty else { return prepare(run) }
    let looks = shell.changes.lookAtPluginFiles(of: run.service) { [weak self] sights in
      guard let self, runs[run.id] === run else { return }
      if let amended = shell.fleet.amendStart(run.id, of: run.service, seeing: sights, now: SystemClocks.now()) {
        run.request.kind = amended.kind
        run.request.disabledPlugins = amended.disabledPlugins
      }
      shell.fleetTold = true
      prepare(run)
    }
    if !looks { prepare(run) }
  }

  private func prepare(_ run: Run) {
    let request = run.request, service = run.service
    let files = request.spec.process.environmentFiles
    let declared = request.spec.declaredFiles, copies = shell.changes.copies(of: request.spec.name)
    let directory = request.spec.process.pluginDirectory
    let compared = request.spec.process.plugins.flatMap(\.goodCopy)
    let unseen = request.disabledPlugins.flatMap(\.goodCopy)
    guard !files.isEmpty || !declared.isEmpty || directory != nil else { return spawn(run, fileEnvironment: []) }
    let accepted = shell.worker.submit({
      (
        EnvironmentFileReader.read(files),
        declared.isEmpty ? [] : copies.look(at: declared, comparing: compared),
        directory.map { PluginEntries.list($0.path) }, unseen.isEmpty ? [] : copies.standIns(for: unseen)
      )
    }) { [weak self] result, sights, entries, standIns in
      guard let self, runs[run.id] === run else { return }
      run.standIns = standIns
      if let directory, let result = entries, let entries = shell.changes.looked(result, of: service) {
        run.newcomers = newcomers(entries, in: directory, run)
      }
      // Heard before the start is: what has changed gives it a fresh ladder.
      if !sights.isEmpty { shell.changes.seen(sights, of: service, before: run.id) }
      switch result {
      case .success(let variables): spawn(run, fileEnvironment: variables)
      case .failure(let failure): failed(run, failure)
      }
    }
    if !accepted { failed(run, .slowDisk) }
  }

  /// When a run began, in nanoseconds since 1970; nil where that cannot be told any more.
  func beginning(of id: RunID, _ now: Now) -> Int64? {
    guard let run = runs[id] else { return nil }
    if let begun = run.begunAt { return begun }
    // By an earlier guardian: the kernel counts ticks since boot.
    guard let look = ProcessLook(run.child?.leader ?? run.pid) ?? ProcessLook(run.pid) else { return nil }
    let ticks = max(1, Int64(sysconf(Int32(_SC_CLK_TCK))))
    let (since, overflow) = Int64(clamping: look.startTicks).multipliedReportingOverflow(by: 1_000_000_000 / ticks)
    if overflow { return nil }
    let age = now.boot.nanoseconds.subtractingSaturating(since)
    return now.wall.nanoseconds.subtractingSaturating(age)
  }

  private static let givenUp = SpawnFailure(
    stage: .prepare, errno: ECANCELED, target: "", sentence: "the start was called off", ownTrouble: true)

  /// Tells the fleet what is in the plugin directory.
  ///
  /// - Returns: What has come to be there since this start was decided, and is to be off in it: where all plugins are, they
  ///   are too.
  private func newcomers(_ entries: [String], in directory: PluginDirectory, _ run: Run) -> [PluginSpec] {
    let known = run.request.spec.process.plugins
    let found = shell.changes.found(entries, in: directory, of: run.service, beside: known.filter { $0.entry == nil })
    guard !run.request.disabledPlugins.isEmpty, run.request.hasAllOff else { return [] }
    let names = Set(known.map(\.name))
    return found.filter { !names.contains($0.name) }
  }

  private func spawn(_ run: Run, fileEnvironment: [EnvironmentVariable]) {
    let spec = run.request.spec
    let facts = facts(of: run.service)
    run.begunAt = SystemClocks.now().wall.nanoseconds
    var environment = ChildEnvironment(user: spec.process.identity ?? shell.ownIdentity, language: shell.language)
    environment.add(fileEnvironment)
    environment.add(spec.process.environment)
    let off = run.request.disabledPlugins + run.newcomers
    environment.switchOff(off)
    environment.describe(run.request, off: off)
    shell.evidence.prepare(&environment, spec)

    var spawn = SpawnRequest(command: off.switchedOff(in: spec.process.command))
    spawn.identity = spec.process.identity
    spawn.directory = spec.process.directory
    spawn.capabilities = spec.process.capabilities
    spawn.umask = spec.process.umask
    spawn.limits = spec.process.limits
    spawn.softOpenFiles = shell.softOpenFiles
    spawn.nice = spec.process.nice ?? shell.surroundings.nice
    spawn.oomScoreAdjust = spec.process.oomScoreAdjust ?? shell.surroundings.oomScoreAdjust
    spawn.hide = off.flatMap(\.hide)
    spawn.empty = off.flatMap(\.empty)
    for one in run.standIns {
      switch one {
      case .copy(let copy): spawn.copies.append(copy)
      case .nothing(let path): spawn.hide.append(path)
      case .none: break
      }
    }
    spawn.views = [spec.process.pluginDirectory?.path].compactMap { $0 }

    do throws(SystemError) {
      if spec.needsNotifySocket {
        try makeNotifySocket(facts, spec, run.service)
        environment["NOTIFY_SOCKET"] = facts.notify?.path
        if spec.watchdog > .zero { environment["WATCHDOG_USEC"] = String(spec.watchdog.nanoseconds / 1000) }
      }
      var writeEnd: OwnedFD?
      if case .descriptor(let number) = spec.ready {
        let pipe = try makePipe()
        run.readyPipe = OwnedFD(adopting: pipe.read)
        // With its own reading end the service never dies of SIGPIPE for a guardian that has gone.
        let source = ReadyPipe.withReader(pipe.write) ?? pipe.write
        if source != pipe.write { close(pipe.write) }
        writeEnd = OwnedFD(adopting: source)
        spawn.passed.append(SpawnRequest.PassedDescriptor(target: number, source: source))
      }
      if let failure = spawn.handOn(spec.process.sockets, of: shell.kept.sockets, ready: spec.ready, &environment) {
        return failed(run, failure)
      }
      defer { _ = writeEnd.take() }
      let output = try shell.output(spec.log, of: spec.name, run.id, owner: spec.process.identity?.uid)
      // The child has its own by then.
      defer { shell.outputTable.begun(run.id) }
      facts.log = output.shown
      if let stream = output.stream {
        run.stream = OwnedFD(adopting: stream)
        environment["JOURNAL_STREAM"] = Journal.streamName(of: stream)
      }
      spawn.output = output.target
      spawn.error = output.target == .inherit ? .inherit : output.target
      spawn.keepsSIGPIPEIgnored = output.needsSIGPIPEIgnored
      if let order = run.request.mitigation {
        spawn.surroundings = Mitigations.surroundings(order, environment, spawn.limits)
      }
      spawn.environment = environment.strings
      spawn.mark = shell.births?.place(of: run.service, for: run.id)
      let outcome = try spawnInGroup(run, &spawn)
      // Reading the count takes a while, and a child of this instant cannot have made it rise.
      run.oomKills = oom.current(now: SystemClocks.monotonic())
      switch consume outcome {
      case .started(let child): started(run, child)
      case .failed(let failure): failed(run, failure)
      case .pending(let pending):
        run.stage = .pending(pending)
        run.pid = pending.pid
        byPid[pending.pid] = run.id
        run.pendingSource = try shell.loop.onIO(pending.reportDescriptor, .read, priority: .evidence) {
          [weak self, weak run] _ in if let run { self?.advance(run) }
        }
      }
    } catch {
      if case .pending(let pending) = run.stage {
        // Nobody would hear what becomes of it.
        pending.signal(.kill)
        run.stage = .preparing
      }
      failed(run, SpawnFailure(preparing: error))
    }
  }

  /// Born in its control group, where there are any that can be used.
  private func spawnInGroup(_ run: Run, _ spawn: inout SpawnRequest) throws(SystemError) -> SpawnOutcome {
    guard let table = shell.groups else { return shell.spawner.spawn(spawn) }
    do throws(SystemError) {
      return try spawnInGroup(of: table, run, &spawn)
    } catch {
      try shell.doWithoutGroups(error)
      run.group = nil
      run.groupOomKills = nil
      return shell.spawner.spawn(spawn)
    }
  }

  private func spawnInGroup(
    of table: GroupTable, _ run: Run, _ spawn: inout SpawnRequest
  ) throws(SystemError) -> SpawnOutcome {
    let spec = run.request.spec
    let group = try table.take(for: spec)
    run.group = group
    run.groupOomKills = group.groups.oomKills(group.name)
    for round in 0...1 {
      let opened: OwnedFD
      do throws(SystemError) {
        opened = try group.groups.open(group.name)
      } catch {
        // Somebody has taken it away.
        guard error.errno == ENOENT, round == 0 else { throw error }
        try table.remake(group, of: spec.name)
        opened = try group.groups.open(group.name)
      }
      let place = opened
      group.mark(run.id)
      spawn.group = place.number
      let outcome = shell.spawner.spawn(spawn)
      spawn.group = nil
      _ = consume place
      let failure: SpawnFailure
      switch consume outcome {
      case .started(let child): return .started(child)
      case .pending(let pending): return .pending(pending)
      case .failed(let why): failure = why
      }
      guard failure.stage == .clone else { return .failed(failure) }
      switch failure.errno {
      case ENODEV, ENOENT, EBUSY:
        if round == 0 { try table.remake(group, of: spec.name) }
      case EACCES, EPERM, EOPNOTSUPP, ENOSYS, EINVAL:
        // Better without a group than not at all; the weaker guarantee is shown.
        shell.giveUpGroups("\(spec.name) cannot be born in \(group.name): \(failure.sentence)")
        run.group = nil
        run.groupOomKills = nil
        return shell.spawner.spawn(spawn)
      default: return .failed(failure)
      }
    }
    throw SystemError("use the control group", group.name, errno: EBUSY)
  }

  private func advance(_ run: Run) {
    guard case .pending(let pending) = run.stage, let outcome = pending.advance() else { return }
    run.letGoOfPending()
    byPid[pending.pid] = nil
    switch consume outcome {
    case .started(let child): started(run, child)
    case .failed(let failure): failed(run, failure)
    case .pending: break
    }
  }

  private func started(_ run: Run, _ child: consuming Child) {
    let executable = child.executable.map { FileIdentity($0) }
    let facts = facts(of: run.service)
    facts.notes = child.hidden.compactMap { hidden in
      switch hidden.way {
      case .absent: nil
      case .empty: "\(hidden.path) is hidden as empty, not as absent"
      case .missing where run.standIns.contains { $0.path == hidden.path }:
        "\(hidden.path) has no place where its good copy could stand in for it"
      case .missing: "\(hidden.path) was not there to be hidden"
      // Told with the file.
      case .copy: nil
      }
    }
    for case .none(let path, let why) in run.standIns { facts.notes.append("\(path) is seen by it as it is: \(why)") }
    run.pid = child.pid
    byPid[child.pid] = run.id
    run.child = RunningChild(child, run: run.id)
    run.child?.group = run.group
    run.stage = .alive
    // With the start time the number names this process for the life of the machine; a zombie still has it.
    let ticks = ProcessLook(run.pid)?.startTicks ?? 0
    shell.post(run.service, .spawned(run.id, pid: run.pid, executable: executable, startTicks: ticks))
    watchReadiness(run)
    watchStream(run)
    for (signal, set) in run.queued { if set { signalSet(run.id, signal) } else { self.signal(run.id, signal) } }
    run.queued = []
  }

  private func failed(_ run: Run, _ failure: SpawnFailure) {
    drop(run)
    shell.post(run.service, .spawnFailed(run.id, failure))
  }

  func drop(_ run: Run) {
    run.letGoOfPending()
    run.letGoOfReadiness()
    run.letGoOfStream()
    run.letGoOfGroup()
    shell.outputTable.ended(run.id)
    runs[run.id] = nil
    if let leader = run.child?.leader, leaders[leader] == run.id { leaders[leader] = nil }
    if byPid[run.pid] == run.id { byPid[run.pid] = nil }
    let facts = facts(of: run.service)
    if facts.run == run.id { facts.run = nil }
  }

  // MARK: Signals

  func signal(_ id: RunID, _ signal: Signal, ending: Bool = true) {
    guard let run = runs[id] else { return }
    if signal == .kill { run.sentKill = true }
    switch run.stage {
    case .preparing:
      if signal == .kill { failed(run, Self.givenUp) } else { run.queued.append((signal, set: false)) }
    case .pending(let pending):
      // What hangs before its exec hears nothing but KILL.
      if signal == .kill { pending.signal(.kill) } else { run.queued.append((signal, set: false)) }
    case .alive:
      if run.openDescriptors == nil { run.openDescriptors = OpenDescriptors.count(of: run.pid) }
      run.child?.signal(signal, ending: ending)
    case .draining: break
    }
  }

  func signalSet(_ id: RunID, _ signal: Signal) {
    guard let run = runs[id] else { return }
    if signal == .kill {
      run.sentKill = true
      run.killedAt = run.killedAt ?? SystemClocks.monotonic()
    }
    switch run.stage {
    case .preparing:
      if signal == .kill { failed(run, Self.givenUp) } else { run.queued.append((signal, set: true)) }
    case .pending(let pending):
      if signal == .kill { pending.signal(.kill) } else { run.queued.append((signal, set: true)) }
    case .alive: run.child?.signalSet(signal, orphans: shell.orphans)
    case .draining:
      run.child?.signalSet(signal, orphans: shell.orphans)
      // What was killed is gone at once, unless the kernel holds it; its parent may be init elsewhere.
      drainTimer?.arm(at: (SystemClocks.monotonic() + .milliseconds(5)).nanoseconds)
    }
  }

  /// Answers whether the main process is at work.
  func look(_ id: RunID) {
    guard let run = runs[id], case .alive = run.stage else { return }
    switch ProcessState(of: run.pid) {
    // Where nothing can be seen, a process that has not been reaped counts as at work.
    case .alive?, nil: shell.post(run.service, .looked(id, .alive))
    case .stopped?: shell.post(run.service, .looked(id, .stopped))
    case .dumping?: shell.post(run.service, .looked(id, .dumping))
    }
  }

  /// All its processes, where they have a group of their own; else the main one alone.
  func measure(_ id: RunID) {
    guard let run = runs[id], case .alive = run.stage else { return }
    let cpu = run.child?.group.flatMap { $0.groups.cpuTime($0.name) } ?? Self.cpuTime(of: run.pid)
    shell.post(run.service, .measured(id, cpu: cpu))
  }

  /// Source: proc(5), stat, fields 14 and 15.
  private static func cpuTime(of pid: Int32) -> Duration? {
    guard let text = FileText.read("/proc/\(pid)/stat", limit: 4_096), let name = text.lastIndex(of: UInt8(ascii: ")"))
    else { return nil }
    let fields = text[(name + 1)...].split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) }
    guard fields.count > 12, let user = Int64(fields[11]), let system = Int64(fields[12]) else { return nil }
    let ticks = max(1, Int64(sysconf(Int32(_SC_CLK_TCK))))
    return .milliseconds((user &+ system) * (1_000 / ticks))
  }

  // MARK: Ends

  /// - Returns: False if the process is no main process of a run.
  func ended(_ end: ChildReaper.Ended, orphans: () -> Orphans) -> Bool {
    tracers?.hear()
    guard let id = byPid[end.pid], let run = runs[id] else {
      if let id = leaders.removeValue(forKey: end.pid) { runs[id]?.child?.leaderEnded() }
      return false
    }
    if case .pending = run.stage {
      // Its report tells whether it came to its exec; only after that is its end the end of a run.
      advance(run)
      guard runs[id] != nil else { return true }
    }
    byPid[end.pid] = nil
    // Its last words were said before its end.
    if let facts = facts[run.service], facts.run == id { readNotifications(run.service, facts, atMost: 64) }
    readReadiness(run)
    if run.pid != end.pid {
      // One of them was that another process is the main one.
      if leaders.removeValue(forKey: end.pid) != nil { run.child?.leaderEnded() }
      return false
    }
    run.strangersEnd = nil
    run.letGoOfReadiness()
    run.letGoOfStream()
    run.stage = .draining
    run.child?.mainEnded()
    let remaining = run.child?.remaining(orphans)
    let leftovers = remaining?.count ?? 0
    var death = Death(end.status, traced: run.isTraced, leftovers: leftovers)
    if case .signal(.kill, _) = end.status, !run.sentKill { death.oom = outOfMemory(run) }
    facts(of: run.service).remains = EvidenceTable.Remains(
      run: id, pid: end.pid, usage: end.usage,
      leftovers: leftovers > 0 ? run.child?.looks(orphans).map(\.naming) ?? [] : [],
      openDescriptors: run.openDescriptors, group: run.group, begunAt: run.begunAt)
    shell.post(run.service, .ended(id, death))
    if remaining?.isEmpty ?? true {
      emptied(run)
    } else {
      drain(run)
    }
    return true
  }

  /// The run's own group tells; where there is none, the host's count is a hint.
  private func outOfMemory(_ run: Run) -> Death.Oom {
    if let before = run.groupOomKills, let group = run.child?.group, let now = group.groups.oomKills(group.name) {
      return now > before ? .certain : .none
    }
    return oom.refreshed() > run.oomKills ? .perhaps : .none
  }

  /// Waits until nobody is left: a control group tells, elsewhere a look is taken now and then.
  func drain(_ run: Run) {
    if watchGroup(run) { return }
    draining.append(run.id)
    drainTimer?.arm(at: (SystemClocks.monotonic() + Self.drainPause).nanoseconds)
  }

  /// - Returns: False where there is nothing to wait for.
  private func watchGroup(_ run: Run) -> Bool {
    guard let group = run.child?.group else { return false }
    do throws(SystemError) {
      let events = try group.groups.watch(group.name)
      let number = events.number
      run.groupEvents = consume events
      // Read once before it is waited for, so that nothing is missed in between.
      if let state = ControlGroups.state(of: number), !state.populated {
        emptied(run)
        return true
      }
      run.groupSource = try shell.loop.onIO(number, .urgent, priority: .deaths) { [weak self, weak run] _ in
        guard let self, let run, let events = run.groupEvents.number else { return }
        if !(ControlGroups.state(of: events)?.populated ?? false) { emptied(run) }
      }
      return true
    } catch {
      run.letGoOfGroup()
      return false
    }
  }

  /// For `status`: what holds up the end of a run that was killed, or does not hear its stop.
  func obstacles(_ service: ServiceID) -> [String] {
    guard let id = facts[service]?.run, let run = runs[id], let child = run.child else { return [] }
    var notes: [String] = []
    if let group = child.group, group.groups.state(group.name)?.frozen ?? false {
      notes.append("its control group is frozen")
    }
    for look in child.looks(shell.orphans) {
      if look.isUninterruptible, run.sentKill {
        notes.append("pid \(look.pid) is in uninterruptible sleep: KILL waits for the kernel")
      } else if look.isStopped {
        notes.append("pid \(look.pid) is stopped by a signal")
      } else if run.sentKill, case .dumping? = ProcessState(of: look.pid) {
        notes.append("pid \(look.pid) is dumping core")
      }
      if notes.count >= 4 { break }
    }
    return notes
  }

  /// For `status`: the main process, where it is dying, and will have died only when its core dump is written.
  func dumping(_ service: ServiceID) -> Int32? {
    guard let id = facts[service]?.run, let run = runs[id], case .alive = run.stage, run.pid > 0,
      case .dumping? = ProcessState(of: run.pid)
    else { return nil }
    return run.pid
  }

  /// A run that an earlier guardian started.
  func enter(_ run: Run) {
    runs[run.id] = run
    if run.pid > 0 { byPid[run.pid] = run.id }
    facts(of: run.service).run = run.id
  }

  func emptied(_ run: Run) {
    if let group = run.group, let name = shell.names[run.service] { shell.groups?.emptied(group, of: name) }
    drop(run)
    shell.post(run.service, .emptied(run.id))
  }

  /// After orphans have been reaped, and now and then.
  func lookAtDraining() {
    if draining.isEmpty { return }
    let found = shell.orphans()
    let orphans = { found }
    draining.removeAll { id in
      guard let run = runs[id] else { return true }
      guard let child = run.child, !child.remaining(orphans).isEmpty else {
        emptied(run)
        return true
      }
      // Whoever was born between two looks of the killer is killed now, and not after the machine's five seconds.
      if run.sentKill { child.signalSet(.kill, orphans: shell.orphans) }
      return false
    }
    if !draining.isEmpty { drainTimer?.arm(at: (SystemClocks.monotonic() + Self.drainPause).nanoseconds) }
  }

  // MARK: Readiness and output

  func watchReadiness(_ run: Run) {
    guard let descriptor = run.readyPipe?.number else { return }
    run.readySource = try? shell.loop.onIO(descriptor, .read, priority: .evidence) { [weak self, weak run] _ in
      if let run { self?.readReadiness(run) }
    }
  }

  func readReadiness(_ run: Run) {
    guard let descriptor = run.readyPipe?.number else { return }
    var bytes = [UInt8](repeating: 0, count: 256)
    let got = read(descriptor, &bytes, bytes.count)
    if got < 0 && (errno == EAGAIN || errno == EINTR) { return }
    if got > 0 {
      guard bytes[..<got].contains(UInt8(ascii: "\n")) else { return }
      shell.post(run.service, .ready(run.id))
    }
    // Said, or closed without a word: either way there is nothing more to hear.
    run.letGoOfReadiness()
  }

  func watchStream(_ run: Run) {
    guard let descriptor = run.stream?.number else { return }
    run.streamSource = try? shell.loop.onIO(descriptor, [], priority: .outcomes) { [weak self, weak run] _ in
      guard let self, let run else { return }
      run.letGoOfStream()
      facts(of: run.service).log = "degraded"
      shell.log.note(
        .warning, "the journal closed the stream of \(run.request.spec.name): its output is lost until it starts again")
    }
  }
}

/// A pipe, both ends closed on exec, the read end not blocking. The caller owns both.
func makePipe() throws(SystemError) -> (read: Int32, write: Int32) {
  var ends: [Int32] = [-1, -1]
  guard pipe(&ends) == 0 else { throw SystemError.last("make a pipe") }
  _ = fcntl(ends[0], F_SETFD, FD_CLOEXEC)
  _ = fcntl(ends[1], F_SETFD, FD_CLOEXEC)
  _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
  return (ends[0], ends[1])
}

/// The host's count of processes killed for want of memory, read as rarely as it serves.
struct OomEvidence: ~Copyable {
  private let counter = OOMCounter()
  private var known: UInt64 = 0
  private var readAt = Instant(nanoseconds: .min)

  /// At most a second old: starts come in hundreds.
  mutating func current(now: Instant) -> UInt64 {
    if now > readAt + .seconds(1) {
      readAt = now
      _ = refreshed()
    }
    return known
  }

  mutating func refreshed() -> UInt64 {
    known = counter.read() ?? known
    return known
  }
}
