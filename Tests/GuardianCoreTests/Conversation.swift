import GuardianCore
import GuardianModel

/// One service, one fleet around it, and a world that answers at once unless told otherwise.
struct Conversation {
  var fleet: Fleet
  let id: ServiceID
  private(set) var now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 1_790_000_000_000_000_000))
  let spec: ServiceSpec
  /// Saves are answered in the turn in which they are asked for.
  var savesAnswered = true
  /// A look at the process finds it alive.
  var looksAnswered = true
  /// What the evidence of each death says; nil: it is still being gathered.
  var finding: Finding? = Finding()
  /// What the service has used of the processor.
  var cpu = Duration.zero
  private(set) var examinations: [End] = []

  private(set) var actions: [Action] = []
  private(set) var occurrences: [Occurrence.Kind] = []
  /// Of no service, or of many.
  private(set) var told: [Occurrence] = []
  private(set) var answers: [UInt64: Fleet.Answer] = [:]
  private(set) var spawns: [(request: StartRequest, at: Duration)] = []
  private(set) var hooks: [HookRequest] = []
  private(set) var saves: [(record: ServiceRecord, ticket: Ticket)] = []
  private(set) var signals: [(signal: Signal, toSet: Bool, at: Duration)] = []
  private(set) var reloads: [Signal] = []
  private(set) var hookSignals: [(hook: RunID, signal: Signal)] = []
  private(set) var entries: [RunEntry] = []
  private(set) var probes: [ProbeRequest] = []
  /// Numbers of probes to which a test has given its answer.
  var answered: Set<UInt64> = []
  private(set) var allStopped = false
  private var instance: UInt64 = 4
  private(set) var forgotten = false
  private var requests: UInt64 = 0
  private var born = 0

  init(_ spec: ServiceSpec, record: ServiceRecord? = nil, begin: Bool = true, savesAnswered: Bool = true) {
    self.spec = spec
    self.savesAnswered = savesAnswered
    fleet = Fleet(seed: (1, 2, 3, 4))
    id = fleet.add(spec, record: record, now: now)
    if begin { tell(.begin) }
  }

  var time: Duration { .nanoseconds(now.monotonic.nanoseconds) }
  var status: ServiceStatus { fleet.status(of: id, now: now) }
  var phase: PhaseName { status.phase }
  var step: Step { status.step }
  /// The run last asked for.
  var run: RunID { spawns.last?.request.run ?? RunID(high: 0, low: 0) }
  var mode: String? { spawns.last?.request.mode }
  /// As saved last.
  var record: ServiceRecord { saves.last?.record ?? ServiceRecord() }
  /// What happened since, by name.
  func names(since count: Int = 0) -> [String] {
    occurrences.dropFirst(count).map { Occurrence(service: spec.name, at: now.wall, kind: $0).name }
  }
  func count(_ name: String) -> Int { names().count { $0 == name } }

  // MARK: Telling

  mutating func tell(_ event: ServiceEvent) {
    fleet.handle(event, for: id, now: now)
    fleet.passTime(now: now)
    listen()
  }

  @discardableResult mutating func define(_ spec: ServiceSpec) -> ReloadChange.Changed? {
    let told = fleet.define(spec, for: id, now: now)
    listen()
    return told
  }

  mutating func set(_ switches: [Switch]) {
    fleet.setSwitches(switches, now: now)
    listen()
  }

  private mutating func listen() {
    while true {
      let output = fleet.takeOutput()
      if output.isEmpty { return }
      for item in output {
        switch item {
        case .act(_, let action):
          actions.append(action)
          perform(action)
        case .answer(let request, let answer): answers[request.number] = answer
        case .allStopped: allStopped = true
        case .record(let occurrence): told.append(occurrence)
        case .commonCause: break
        }
      }
    }
  }

  private mutating func perform(_ action: Action) {
    switch action {
    case .spawn(let request): spawns.append((request, time))
    case .signal(_, let signal): signals.append((signal, false, time))
    case .signalSet(_, let signal): signals.append((signal, true, time))
    case .runHook(let hook): hooks.append(hook)
    case .look(let run): if looksAnswered { fleet.handle(.looked(run, .alive), for: id, now: now) }
    case .examine(let report):
      examinations.append(report.end)
      if let finding { fleet.handle(.examined(report.end.run, finding), for: id, now: now) }
    case .save(let record, let ticket):
      saves.append((record, ticket))
      if savesAnswered { fleet.handle(.saved(ticket), for: id, now: now) }
    case .record(let occurrence): occurrences.append(occurrence.kind)
    case .forget: forgotten = true
    case .enter(let entry): entries.append(entry)
    case .probe(let request): probes.append(request)
    case .reload(_, let signal): reloads.append(signal)
    case .signalHook(let hook, let signal): hookSignals.append((hook, signal))
    case .measure(let run): fleet.handle(.measured(run, cpu: cpu), for: id, now: now)
    case .notify, .watch, .endProbes: break
    }
  }

  /// Lets time pass, deadline by deadline.
  mutating func pass(_ time: Duration) {
    let end = now.advanced(by: time)
    for _ in 0..<100_000 {
      let due = fleet.nextDeadline
      var next = end
      if let monotonic = due.monotonic, monotonic < next.monotonic {
        next = now.advanced(by: max(.zero, monotonic - now.monotonic))
      }
      if let boot = due.boot, boot < next.boot { next = now.advanced(by: max(.zero, boot - now.boot)) }
      now = next
      fleet.passTime(now: now)
      listen()
      if next.monotonic >= end.monotonic { return }
    }
  }
  /// Lets the boot clock go on alone, as in a suspend.
  mutating func sleep(_ time: Duration) {
    now.boot = now.boot + time
    now.wall = now.wall + time
    fleet.passTime(now: now)
    listen()
  }
  /// Time goes by in which guardian has no turn: what is told next comes in the same turn as the deadlines of that time,
  /// and before them.
  mutating func passWithoutTurn(_ time: Duration) { now = now.advanced(by: time) }
  /// Guardian did not run for so long; that news comes before any deadline is looked at.
  mutating func stall(_ time: Duration) {
    now = now.advanced(by: time)
    tell(.resumed(slept: time))
  }
  mutating func setWallClock(by time: Duration) { now.wall = now.wall + time }

  /// The run last asked for comes to its exec, if it has not yet.
  mutating func exec(executable: FileIdentity? = nil) {
    guard born < spawns.count else { return }
    born = spawns.count
    tell(.spawned(run, pid: Int32(100 + born), executable: executable))
  }
  mutating func failToSpawn(_ failure: SpawnFailure) {
    born = spawns.count
    tell(.spawnFailed(run, failure))
  }
  mutating func ready() {
    exec()
    tell(.ready(run))
  }
  /// Exec, ready, and the startup window over.
  mutating func settle() {
    exec()
    if fleet.spec(of: id)?.ready != ServiceSpec(name: spec.name, process: spec.process).ready { tell(.ready(run)) }
    pass(fleet.spec(of: id)?.startupWindow ?? .zero)
  }
  /// The run ends like this, some time after its exec, and nothing is left.
  mutating func end(_ status: ExitStatus = .code(1), after: Duration = .zero, leftovers: Int = 0) {
    end(Death(status, leftovers: leftovers), after: after)
    if leftovers == 0 { tell(.emptied(run)) }
  }
  mutating func end(_ death: Death, after: Duration = .zero) {
    exec()
    pass(after)
    tell(.ended(run, death))
  }
  /// Dies at once, then waits for the next start; returns how long that took, nil if none came within an hour.
  @discardableResult mutating func crash(_ status: ExitStatus = .code(1)) -> Duration? {
    let before = spawns.count
    let since = time
    end(status)
    return nextSpawn(after: before, since: since)
  }
  mutating func nextSpawn(after count: Int, since: Duration, within: Duration = .seconds(60)) -> Duration? {
    var left = within
    while spawns.count == count, left > .zero, phase != .quarantined, phase != .finished, phase != .repairing {
      pass(.milliseconds(10))
      left -= .milliseconds(10)
    }
    guard spawns.count > count, let at = spawns.last?.at else { return nil }
    return at - since
  }
  /// Crashes until it is quarantined, repairs failing; returns the number of deaths.
  mutating func dieOut(_ status: ExitStatus = .code(1)) -> Int {
    for death in 1...100 {
      end(status)
      pass(.seconds(120))
      repairAll()
      if phase == .quarantined { return death }
    }
    return -1
  }
  /// Every hook asked for ends with this result, one after another.
  mutating func repairAll(_ result: HookResult = .failed(.code(1))) {
    while phase == .repairing, let hook = hooks.last { tell(.hookEnded(hook.id, result)) }
  }

  // MARK: Guardian comes and goes

  /// Guardian is killed, and after `away` its next instance finds what was saved last. Nothing is answered for yet.
  mutating func guardianDies(away: Duration = .zero, definition: ServiceSpec? = nil) {
    let mark = now
    now = now.advanced(by: away)
    comeBack(from: mark, sameBoot: true, definition)
  }
  /// The machine goes down and comes up again; the wall clock may be wrong afterwards.
  mutating func reboot(down: Duration = .zero, definition: ServiceSpec? = nil) {
    let mark = now
    now = Now(
      monotonic: Instant(nanoseconds: 5_000_000_000), boot: BootInstant(nanoseconds: 5_000_000_000),
      wall: now.wall + down)
    comeBack(from: mark, sameBoot: false, definition)
  }
  private mutating func comeBack(from mark: Now, sameBoot: Bool, _ definition: ServiceSpec?) {
    instance += 1
    // Nobody answers the probes of a guardian that is gone.
    probes = []
    answered = []
    fleet = Fleet(seed: (instance, 2 * instance, 3, 4))
    let stored = saves.last.map { StoredRecord(record: $0.record, mark: mark, sameBoot: sameBoot) }
    _ = fleet.add(definition ?? spec, stored: stored, now: now)
    fleet.passTime(now: now)
    listen()
  }
  var adoptee: Adoptee? { fleet.adoptees(of: id).first }
  /// What is looked for is there.
  mutating func adopt(readinessKnown: Bool = true) {
    guard let adoptee else { return }
    let process = adoptee.process ?? ProcessIdentity(pid: 77, startTicks: 7)
    if adoptee.isHook {
      tell(.hookAdopted(adoptee.run, pid: process.pid, startTicks: process.startTicks))
    } else {
      tell(
        .adopted(
          adoptee.run, pid: process.pid, startTicks: process.startTicks, readinessKnown: readinessKnown))
    }
  }
  /// What is looked for is gone, and nobody saw how.
  mutating func miss() {
    guard let adoptee else { return }
    if adoptee.isHook { return tell(.hookEnded(adoptee.run, .failed(.unseen))) }
    if !adoptee.mainEnded { tell(.ended(adoptee.run, Death(.unseen))) }
    tell(.emptied(adoptee.run))
  }

  /// Lines of the book of runs that have no end yet. Nil: the book is wrong.
  var openEntries: [RunID]? {
    var open: [RunID] = []
    var closed: Set<RunID> = []
    for entry in entries {
      switch entry {
      case .opened(let id, _, _, _):
        guard !open.contains(id), !closed.contains(id) else { return nil }
        open.append(id)
      case .closed(let id, _, _, _, _):
        guard let place = open.firstIndex(of: id) else { return nil }
        open.remove(at: place)
        closed.insert(id)
      }
    }
    return open
  }
  var madeUp: [RunOutcome] {
    entries.compactMap { if case .closed(_, _, let outcome, _, true) = $0 { outcome } else { nil } }
  }

  // MARK: Ordering

  /// Returns the request's number.
  @discardableResult mutating func order(_ verb: Command.Verb, wait: Bool = true) -> UInt64 {
    requests += 1
    fleet.order(Command(verb, by: "root"), for: id, request: RequestID(requests), wait: wait, now: now)
    fleet.passTime(now: now)
    listen()
    return requests
  }
  /// The answer that an order gets at once.
  mutating func ask(_ verb: Command.Verb) -> Fleet.Answer? {
    let request = order(verb)
    return answers[request]
  }
  mutating func shutDown() {
    fleet.shutDown(now: now)
    listen()
  }
}

/// A definition with short names and no jitter.
func service(_ change: (inout ServiceSpec) -> Void = { _ in }) -> ServiceSpec {
  guard let name = ServiceName("web") else { preconditionFailure("a name that is none") }
  var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/web"]))
  spec.backoff.jitter = 0
  change(&spec)
  return spec
}

/// With one repair and one plugin.
func fullService(_ change: (inout ServiceSpec) -> Void = { _ in }) -> ServiceSpec {
  service { spec in
    spec.repairs = [RepairSpec(name: "fix", kind: .run(["/bin/fix"]))]
    var plugin = PluginSpec(name: "social")
    plugin.environment = [EnvironmentVariable("SOCIAL", "off")]
    spec.process.plugins = [plugin]
    change(&spec)
  }
}

let eagain = SpawnFailure(stage: .clone, errno: 11, target: "", sentence: "EAGAIN (pids.max)", ownTrouble: true)
let enoent = SpawnFailure(
  stage: .exec, errno: 2, target: "/bin/web", sentence: "cannot run /bin/web: no such file", missing: true)

func isDone(_ answer: Fleet.Answer?) -> Bool { if case .done = answer { true } else { false } }
func isFailed(_ answer: Fleet.Answer?) -> Bool { if case .failed = answer { true } else { false } }

/// Testing has an ExitStatus too.
typealias Ending = ExitStatus
