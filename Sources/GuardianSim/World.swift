import GuardianCore
import GuardianModel

/// Many services in virtual time: their processes, their host, its faults and its operators, all from one seed.
///
/// Every action of the fleet is performed with a latency of its own and comes back as an event; after every event the
/// checkers look on. First nothing may ever be wrong, faults or no faults; then, with the faults gone, every wanted
/// service must settle, finish, or be given up with a reason, within the published bound.
package struct World {
  package let seed: UInt64
  private var dice: Dice
  private var subject: Subject
  private var queue = EventQueue<Coming>()
  private var places: [Place] = []
  /// Simulated services by the fleet's numbers.
  private var placeOf: [Int] = []
  private var checker = Checker()
  private var monotonic: Nanoseconds = 0
  /// How far the boot clock is ahead, having gone on through suspends.
  private var slept: Nanoseconds = 0
  private var faults = true
  private var nextSerial: UInt32 = 0
  private var nextRequest: UInt64 = 0
  private var turnsWithoutProgress = 0
  /// Until then whatever starts dies, for a reason that is none of its own.
  private var calamityUntil: Nanoseconds = 0

  package private(set) var events = 0
  package private(set) var spawns = 0
  package private(set) var hooks = 0
  package private(set) var quarantines = 0
  /// The service whose story is kept for the report.
  private let traced: Int?
  package private(set) var trace: [String] = []

  /// Some services have a configuration file that is as it was when they were last well, or is not: the one is no suspect,
  /// the other one is like any plugin.
  static let configPlugin = "config", configFile = "/etc/config"
  /// Others have plugins in a directory, which come and go, and may not be there at all.
  static let pluginDirectory = "/plugins"
  static let group = ServiceName("shop")

  /// One simulated service with what exists of it.
  private struct Place {
    var id: ServiceID
    var spec: ServiceSpec
    var program: Program
    var processes: [Process] = []
    var hooks: [Hook] = []
    var lastRun: RunID?, olderRun: RunID?
    var watched = false, watchedFiles = false
    /// Which version of its declared files is there, and which one guardian has put there last.
    var fileVersion: UInt64 = 1, restoredVersion: UInt64 = 0
    /// Of its plugin directory; nil: that is not mounted, and looks empty.
    var entries: [String]? = ["e0.so", "e1.so"]
    var removed = false
  }

  /// One run as the kernel has it, until its set is empty.
  private struct Process {
    var serial: UInt32
    var run: RunID
    /// The plugins that it runs without.
    var disabled: [String]
    var mitigation: MitigationOrder?
    var course = Course()
    var born = false, mainAlive = false
    /// Sent before there was anybody to receive it.
    var early: Signal?
    /// What its checks see; nil: it is well.
    var unwellFrom: Nanoseconds?
    var dying = false
    var death: Death
  }

  private struct Hook {
    var serial: UInt32
    var request: RunID
    var index: Int
    var restores = false
    /// It is `before-start`.
    var prepares = false
    var ignoresTerm = false
    var killedBy: Signal?
  }

  /// What is still to come.
  private enum Coming {
    case begins
    case born(place: Int, UInt32)
    case ready(place: Int, UInt32)
    case pings(place: Int, UInt32)
    case dies(place: Int, UInt32)
    case empties(place: Int, UInt32)
    case hookEnds(place: Int, UInt32)
    case looked(place: Int, UInt32)
    case probed(place: Int, RunID, UInt64, good: Bool)
    case examined(place: Int, RunID, Finding)
    case saved(place: Int, UInt64)
    case measured(place: Int, RunID, Nanoseconds)
    case shot(place: Int)
    case ordered(place: Int)
    case changed(place: Int)
    case appears(place: Int)
    case disturbed(place: Int)
    case switched
    case stalls
    case suspends
    case calamity
    case hookIsOverdue(place: Int, RunID)
    case requestIsOverdue(UInt64)
    case whim(place: Int, UInt32)
    case says(place: Int, UInt32, Word)
    case reloadIsOverdue(place: Int, Nanoseconds)
  }

  /// What a service may say of itself.
  private enum Word: CaseIterable { case reloading, reloaded, leaving, watchdog, triggers, moved, extends }

  /// - Parameter tracing: The service (by number) whose story is written down.
  package init(seed: UInt64, services: Int, bug: PlantedBug? = nil, tracing: Int? = nil) {
    self.seed = seed
    traced = tracing
    var dice = Dice(seed: seed)
    let fleet = Fleet(seed: (dice.next(), dice.next(), dice.next(), dice.next()))
    var governor: GovernorSpec?
    if dice.chance(600) || bug == .doubleRate {
      governor = GovernorSpec()
      governor?.startsPerSecond = dice.pick([2, 5, 20])
      governor?.concurrent = dice.pick([3, 8, 16])
    }
    var cause: CommonCauseSpec?
    if dice.chance(800) || bug == .thawed {
      cause = CommonCauseSpec()
      cause?.services = 3 + dice.below(4)
      cause?.freeze = .seconds(dice.pick([60, 300]))
    }
    subject = Subject(fleet: fleet, bug: bug)
    self.dice = dice
    subject.govern(governor, cause, now: clock)
    checker.governor = governor
    checker.cause = cause
    let now = clock
    for number in 0..<services {
      let behaviour = self.dice.pick(Behaviour.allCases)
      guard let spec = SpecMaker.make(number: number, behaviour: behaviour, dice: &self.dice) else { continue }
      let record = inherited(spec)
      let id = subject.fleet.add(spec, record: record, now: now)
      var program = Program(behaviour: behaviour, cure: self.dice.below(max(1, spec.repairs.count)))
      program.executable = FileIdentity(device: 1, inode: UInt64(number), size: 1, modified: 0)
      if behaviour == .badPlugin { program.guilt = .make(of: spec.process.plugins.map(\.name), dice: &self.dice) }
      if behaviour == .missing { program.executable = nil }
      while placeOf.count <= id.index { placeOf.append(-1) }
      placeOf[id.index] = places.count
      places.append(Place(id: id, spec: spec, program: program))
      checker.added(spec, record: record, now: 0, boot: 0)
      schedule(number)
    }
    queue.add(.stalls, at: self.dice.gap(mean: 30 * minute))
    queue.add(.switched, at: self.dice.gap(mean: 20 * minute))
    queue.add(.suspends, at: self.dice.gap(mean: 40 * minute))
    queue.add(.calamity, at: self.dice.gap(mean: 30 * minute))
    queue.add(.begins, at: 0)
  }

  /// Some services come with a past.
  private mutating func inherited(_ spec: ServiceSpec) -> ServiceRecord? {
    guard dice.chance(50) else { return nil }
    var record = ServiceRecord()
    record.wanted = dice.chance(800) ? .up : .down
    switch dice.below(4) {
    case 0 where spec.mode == .enforce:
      record.step = .quarantine
      record.quarantine = Quarantine(
        since: WallTime(nanoseconds: 0), reason: "from before",
        nextTrial: BootInstant(nanoseconds: dice.time(second, 10 * minute)))
      record.trialDelay = spec.quarantine.retryAfter
    case 1: record.hold = Hold(until: BootInstant(nanoseconds: dice.time(second, 5 * minute)), by: "somebody")
    case 2 where Checker.allowed(spec, on: .restart) > 1:
      record.strikes = 1
      record.triesOnStep = 1
    default: break
    }
    return record
  }

  /// What happens to a service whatever it does.
  private mutating func schedule(_ place: Int) {
    let behaviour = places[place].program.behaviour
    if behaviour == .shot { queue.add(.shot(place: place), at: dice.gap(mean: 6 * minute)) }
    if behaviour == .missing { queue.add(.appears(place: place), at: dice.gap(mean: 40 * minute)) }
    queue.add(.ordered(place: place), at: dice.gap(mean: hour))
    if dice.chance(300) { queue.add(.changed(place: place), at: dice.gap(mean: hour)) }
    if dice.chance(300) { queue.add(.disturbed(place: place), at: dice.gap(mean: 20 * minute)) }
  }

  private var clock: Now {
    Now(
      monotonic: Instant(nanoseconds: monotonic), boot: BootInstant(nanoseconds: monotonic + slept),
      wall: WallTime(nanoseconds: 1_790_000_000 * second + monotonic + slept))
  }

  // MARK: - Running

  /// Lets virtual time pass. Throws the first broken rule.
  package mutating func run(for time: Duration) throws(Violation) {
    let end = monotonic + time.nanoseconds
    while true {
      var next = queue.nextTime ?? .max
      let deadline = subject.fleet.nextDeadline
      if let due = deadline.monotonic { next = min(next, due.nanoseconds) }
      if let due = deadline.boot { next = min(next, due.nanoseconds - slept) }
      guard next <= end else { break }
      try turn(at: max(next, monotonic))
    }
    monotonic = end
  }

  /// No more faults, operators, changes and whims; programs are good or bad for good.
  package mutating func stopFaults() {
    faults = false
    for place in places.indices { places[place].program.calmDown(dice: &dice) }
  }

  /// How long after `stopFaults` the last wanted service must have settled, finished, or been given up.
  package var settlingBound: Duration {
    // A hold still runs out, and what was decided before takes its course.
    .nanoseconds(places.reduce(Nanoseconds(0)) { max($0, checker.bound($1.spec)) } + 12 * minute)
  }

  /// The names of services that have been unsettled for longer than their bound.
  package var unsettled: [String] { checker.unsettled(now: monotonic).map { checker.models[$0].spec.name.text } }
  /// Throws for the first of them.
  package func checkSettled() throws(Violation) {
    guard let first = checker.unsettled(now: monotonic).first else { return }
    let since = monotonic - (checker.models[first].badSince ?? 0)
    throw checker.violation(
      first, monotonic, "wanted, and neither settled nor given up for \(Duration.nanoseconds(since).description)")
  }

  /// Compares what the fleet says of itself with what is there.
  package func checkStatus() throws(Violation) {
    let now = clock
    var waiting = 0
    for (index, place) in places.enumerated() {
      let model = checker.models[index]
      if model.gone { continue }
      let status = subject.fleet.status(of: place.id, now: now)
      func check(_ holds: Bool, _ rule: String) throws(Violation) {
        if !holds { throw checker.violation(index, monotonic, rule) }
      }
      try check(
        status.phase != .quarantined || !status.reason.isEmpty, "quarantined, and status gives no reason")
      try check(status.settled == (model.settled && model.mainAlive), "status and world differ in what is settled")
      try check(
        ![.running, .starting].contains(status.phase) || model.setAlive || status.phase == .starting,
        "status says \(status.phase), and nothing is there")
      try check(
        ![.stopped, .finished, .quarantined, .backingOff, .waiting].contains(status.phase) || !model.setAlive,
        "status says \(status.phase), and something is there")
      if status.reason.hasPrefix("governor: ") { waiting += 1 }
      if let next = status.next {
        try check(next.inMilliseconds >= 0 || status.held, "status announces something for the past")
      }
    }
    if waiting != subject.fleet.inLine {
      throw checker.violation(
        -1, monotonic, "\(waiting) wait for the governor, and \(subject.fleet.inLine) are in line")
    }
  }

  /// Orders the shutdown and lets it take the longest stop time-out, then expects everything to be gone.
  package mutating func shutDown() throws(Violation) {
    checker.shutDownBegan()
    say(-1) { "shutdown" }
    subject.fleet.shutDown(now: clock)
    try perform()
    let longest = places.reduce(Duration.zero) { max($0, $1.spec.stop.patience) }
    // Before it, a start in progress may still come to its exec, and a hook ends by KILL.
    try run(for: longest * 2 + .seconds(45))
    guard checker.stopped else {
      throw checker.violation(-1, monotonic, "shut down, and \(checker.alive) runs are left")
    }
    try check(noProcess: "a process is left after all had stopped")
  }

  private func check(noProcess rule: String) throws(Violation) {
    for (index, place) in places.enumerated() where !place.processes.isEmpty {
      throw checker.violation(index, monotonic, rule)
    }
  }

  /// What a table is told of a service with which all is well is what its whole status says.
  private mutating func checkShortAnswer(_ place: Int) throws(Violation) {
    let id = places[place].id
    guard let well = subject.allIsWell(with: id, now: clock) else { return }
    let status = subject.fleet.status(of: id, now: clock, brief: true)
    let usual =
      status.wanted == .up && status.phase == .running && status.step == .restart && status.settled && !status.degraded
      && !status.held && status.strikes == 0 && status.disabledPlugins.isEmpty && status.kind == .daemon
      && !status.observe && status.next == nil && status.restarts == well.restarts
      && status.uptimeMilliseconds == well.uptimeMilliseconds
    if !usual { throw checker.violation(place, monotonic, "all is said to be well, and its status says more") }
  }

  private mutating func turn(at time: Nanoseconds) throws(Violation) {
    let progressed = time > monotonic
    monotonic = time
    // A world that stands still is a busy loop in the daemon.
    turnsWithoutProgress = progressed ? 0 : turnsWithoutProgress + 1
    if turnsWithoutProgress > 1000 { throw checker.violation(-1, monotonic, "a thousand turns in one instant") }
    while let coming = queue.removeFirst(dueAt: time) {
      try happen(coming)
      // What follows from one thing is looked at before the next happens, so that the checker sees causes in order.
      try perform()
    }
    subject.passTime(now: clock)
    try perform()
    let deadline = subject.fleet.nextDeadline
    if let due = deadline.monotonic, due.nanoseconds <= monotonic {
      throw checker.violation(-1, monotonic, "a deadline \(monotonic - due.nanoseconds) ns old is still due")
    }
    if let due = deadline.boot, due.nanoseconds <= monotonic + slept {
      throw checker.violation(-1, monotonic, "a boot-clock deadline that is over is still due")
    }
  }

  private mutating func deliver(_ event: ServiceEvent, to place: Int) {
    events += 1
    say(place) { "  ← \(Self.short(event))" }
    checker.delivered(event, to: place, now: monotonic)
    subject.handle(event, for: places[place].id, now: clock)
  }

  // MARK: - What happens

  private mutating func happen(_ coming: Coming) throws(Violation) {
    switch coming {
    case .begins: for place in places.indices { deliver(.begin, to: place) }
    case .born(let place, let serial): born(place, serial)
    case .ready(let place, let serial):
      guard let at = process(place, serial), places[place].processes[at].mainAlive else { return }
      deliver(.ready(places[place].processes[at].run), to: place)
    case .pings(let place, let serial): pings(place, serial)
    case .dies(let place, let serial): dies(place, serial)
    case .empties(let place, let serial):
      guard let at = process(place, serial), !places[place].processes[at].mainAlive else { return }
      let run = places[place].processes.remove(at: at).run
      deliver(.emptied(run), to: place)
    case .hookEnds(let place, let serial): hookEnds(place, serial)
    case .looked(let place, let serial):
      guard let at = process(place, serial) else { return }
      let process = places[place].processes[at]
      let liveness: Liveness = !process.mainAlive ? .dumping : faults && dice.chance(30) ? .stopped : .alive
      deliver(.looked(process.run, liveness), to: place)
    case .probed(let place, let run, let number, let good): probed(place, run, number, good)
    case .examined(let place, let run, let finding): deliver(.examined(run, finding), to: place)
    case .measured(let place, let run, let cpu): deliver(.measured(run, cpu: .nanoseconds(cpu)), to: place)
    case .saved(let place, let ticket): deliver(.saved(Ticket(ticket)), to: place)
    case .shot(let place):
      guard faults, places[place].program.behaviour == .shot else { return }
      queue.add(.shot(place: place), at: monotonic + (dice.chance(300) ? 20 * second : dice.gap(mean: 8 * minute)))
      guard let at = places[place].processes.firstIndex(where: { $0.mainAlive && !$0.dying }) else { return }
      places[place].processes[at].dying = true
      places[place].processes[at].death = Death(.signal(dice.chance(700) ? .kill : .term, core: false))
      dies(place, places[place].processes[at].serial)
    case .ordered(let place):
      guard faults, !places[place].removed else { return }
      queue.add(.ordered(place: place), at: monotonic + dice.gap(mean: hour))
      // What came before the order is looked at before it.
      try perform()
      order(place)
      // Some operators have second thoughts at once.
      if dice.chance(150) {
        try perform()
        order(place)
      }
    case .changed(let place):
      guard faults, !places[place].removed else { return }
      change(place)
    case .appears(let place):
      guard places[place].program.executable == nil, !places[place].removed else { return }
      replaceExecutable(place)
    case .disturbed(let place):
      guard faults, !places[place].removed else { return }
      queue.add(.disturbed(place: place), at: monotonic + dice.gap(mean: 20 * minute))
      guard let old = places[place].olderRun else { return }
      // Late and repeated news of a run that is long over.
      switch dice.below(5) {
      case 4: deliver(.probed(old, number: UInt64(dice.below(100)), .failed("old news")), to: place)
      case 0: deliver(.ready(old), to: place)
      case 1: deliver(.ended(old, Death(.code(1))), to: place)
      case 2: deliver(.emptied(old), to: place)
      default: deliver(.hookEnded(old, .succeeded), to: place)
      }
    case .switched:
      // What came before is looked at before it.
      try perform()
      switches()
      queue.add(.switched, at: monotonic + dice.gap(mean: 20 * minute))
    case .stalls:
      guard faults else { return }
      queue.add(.stalls, at: monotonic + dice.gap(mean: 30 * minute))
      let length = dice.time(second, 15 * second)
      say(-1) { "guardian stalls for \(Duration.nanoseconds(length).description)" }
      monotonic += length
      checker.stalled(until: monotonic, length: length)
      for place in places.indices where !places[place].removed {
        deliver(.resumed(slept: .nanoseconds(length)), to: place)
      }
      // What happened meanwhile is found in the same turn, as the shell finds it: evidence first, deadlines last.
      while let missed = queue.removeFirst(dueAt: monotonic) {
        try perform()
        try happen(missed)
      }
    case .suspends:
      guard faults else { return }
      queue.add(.suspends, at: monotonic + dice.gap(mean: 40 * minute))
      let length = dice.time(second, 20 * minute)
      say(-1) { "the host sleeps for \(Duration.nanoseconds(length).description)" }
      slept += length
    case .whim(let place, let serial):
      guard faults, process(place, serial) != nil else { return }
      queue.add(.whim(place: place, serial), at: monotonic + dice.gap(mean: hour))
      says(place, serial, dice.pick(Word.allCases))
    case .says(let place, let serial, let word): says(place, serial, word)
    case .reloadIsOverdue(let place, let since): try checker.checkReload(since, of: place, now: monotonic)
    case .calamity:
      guard faults else { return }
      queue.add(.calamity, at: monotonic + dice.gap(mean: 40 * minute))
      let until = monotonic + dice.time(10 * second, 4 * minute)
      calamityUntil = until
      say(-1) { "a calamity until \(Duration.nanoseconds(until).description)" }
      for place in places.indices {
        guard dice.chance(700) else { continue }
        guard let at = places[place].processes.firstIndex(where: { $0.mainAlive && !$0.dying }) else { continue }
        places[place].processes[at].dying = true
        places[place].processes[at].death = Death(.code(1))
        queue.add(.dies(place: place, places[place].processes[at].serial), at: monotonic + dice.time(0, 2 * second))
      }
    case .hookIsOverdue(let place, let hook): try checker.checkHook(hook, of: place, now: monotonic)
    case .requestIsOverdue(let request): try checker.checkRequest(request, now: monotonic)
    }
  }

  private func process(_ place: Int, _ serial: UInt32) -> Int? {
    places[place].processes.firstIndex { $0.serial == serial }
  }

  private mutating func born(_ place: Int, _ serial: UInt32) {
    guard let at = process(place, serial) else { return }
    let run = places[place].processes[at].run
    // Looked at before each start, however that goes.
    seeFiles(place)
    if let directory = places[place].spec.process.pluginDirectory {
      let listed = places[place].spec.process.plugins
      let found = directory.plugins(of: places[place].entries ?? [], beside: listed).found
      deliver(.pluginsFound(directory, found), to: place)
    }
    func fail(_ failure: SpawnFailure) {
      places[place].processes.remove(at: at)
      deliver(.spawnFailed(run, failure), to: place)
    }
    if faults, dice.chance(10) {
      let trouble = dice.pick([11, 24, 12, 26] as [Int32])
      return fail(
        SpawnFailure(
          stage: trouble == 26 ? .exec : .clone, errno: trouble, target: "",
          sentence: "cannot start it now: errno \(trouble)",
          ownTrouble: true))
    }
    guard let executable = places[place].program.executable else {
      return fail(
        SpawnFailure(
          stage: .exec, errno: 2, target: "/bin/program\(place)", sentence: "cannot run it: no such file", missing: true
        ))
    }
    if faults, dice.chance(2) {
      return fail(SpawnFailure(stage: .limits, errno: 1, target: "nofile", sentence: "cannot set the limit"))
    }
    let disabled = places[place].processes[at].disabled
    var course = places[place].program.nextCourse(disabled: disabled, dice: &dice)
    if let order = places[place].processes[at].mitigation, order.build == executable.print,
      case .signal(.segv, _) = course.death.status, Mitigated.helps(order.mitigation, place)
    {
      course.endsAfter = nil
    }
    if monotonic < calamityUntil, dice.chance(900) {
      course.endsAfter = dice.time(5 * millisecond, second)
      course.death = Death(.code(1))
      course.leftovers = 0
    }
    places[place].processes[at].course = course
    places[place].processes[at].born = true
    places[place].processes[at].mainAlive = true
    places[place].processes[at].death = course.death
    deliver(.spawned(run, pid: Int32(truncatingIfNeeded: serial) & 0x3f_ffff + 2, executable: executable), to: place)
    // Some say that their plugins are off, and some do not.
    if places[place].spec.plugins.acknowledge != nil, !disabled.isEmpty, serial % 2 == 0 {
      deliver(.pluginsConfirmed(run), to: place)
    }
    guard let at = process(place, serial) else { return }
    places[place].processes[at].unwellFrom = course.unwellAfter.map { monotonic + $0 }
    if ![.none, .check].contains(places[place].spec.ready), let after = course.readyAfter {
      queue.add(.ready(place: place, serial), at: monotonic + after)
    }
    if let after = course.endsAfter { queue.add(.dies(place: place, serial), at: monotonic + after) }
    if places[place].spec.watchdog > .zero { queue.add(.pings(place: place, serial), at: monotonic + 10 * second) }
    if places[place].spec.ready == .notify {
      queue.add(
        .whim(place: place, serial), at: monotonic + dice.gap(mean: dice.chance(100) ? 2 * second : hour))
    }
    if let early = places[place].processes[at].early { signal(place, at, early) }
  }

  private mutating func says(_ place: Int, _ serial: UInt32, _ word: Word) {
    guard let at = process(place, serial), places[place].processes[at].mainAlive else { return }
    let run = places[place].processes[at].run
    switch word {
    case .reloading:
      let stamp = monotonic - (dice.chance(100) ? dice.time(0, 5 * second) : 0)
      deliver(.reloading(run, stamp: dice.chance(500) ? Instant(nanoseconds: stamp) : nil), to: place)
      // Some never say that it is over.
      if dice.chance(800) {
        queue.add(.says(place: place, serial, .reloaded), at: monotonic + dice.gap(mean: 3 * second))
      }
    case .reloaded: deliver(dice.chance(500) ? .ready(run) : .readyAgain(run), to: place)
    case .leaving:
      if dice.chance(700), !places[place].processes[at].dying {
        places[place].processes[at].dying = true
        places[place].processes[at].death = Death(.code(dice.chance(700) ? 0 : 1))
        queue.add(.dies(place: place, serial), at: monotonic + dice.gap(mean: 2 * second))
      }
      deliver(.leaving(run), to: place)
    case .watchdog: deliver(.watchdogSet(run, .seconds(dice.pick([0, 20, 60, 10_000]))), to: place)
    case .triggers: deliver(.watchdogTriggered(run), to: place)
    case .moved:
      deliver(.mainMoved(run, ProcessIdentity(pid: Int32(2 + dice.below(1000)), startTicks: UInt64(serial))), to: place)
    case .extends: deliver(.timeoutExtended(run, .nanoseconds(dice.time(second, hour))), to: place)
    }
  }

  /// A signal after which it is to read its configuration again.
  private mutating func reloads(_ place: Int, _ at: Int, _ signal: Signal) {
    let process = places[place].processes[at]
    guard process.mainAlive, !process.dying else { return }
    if faults, dice.chance(100) {
      // It does not know the signal.
      places[place].processes[at].dying = true
      places[place].processes[at].death = Death(.signal(signal, core: false))
      queue.add(.dies(place: place, process.serial), at: monotonic + dice.time(millisecond, 5 * millisecond))
    } else if places[place].spec.ready == .notify, dice.chance(700) {
      queue.add(.says(place: place, process.serial, .reloading), at: monotonic + dice.gap(mean: 300 * millisecond))
    }
  }

  private mutating func pings(_ place: Int, _ serial: UInt32) {
    guard let at = process(place, serial), places[place].processes[at].mainAlive else { return }
    if let silent = places[place].processes[at].course.silentAfter {
      places[place].processes[at].course.silentAfter = max(0, silent - 10 * second)
      if silent <= 0 { return }
    }
    queue.add(.pings(place: place, serial), at: monotonic + 10 * second)
    deliver(.watchdogPinged(places[place].processes[at].run), to: place)
  }

  private mutating func dies(_ place: Int, _ serial: UInt32) {
    guard let at = process(place, serial), places[place].processes[at].mainAlive else { return }
    places[place].processes[at].mainAlive = false
    var death = places[place].processes[at].death
    death.leftovers = places[place].processes[at].course.leftovers
    let run = places[place].processes[at].run
    deliver(.ended(run, death), to: place)
    if death.leftovers == 0 {
      places[place].processes.remove(at: at)
      deliver(.emptied(run), to: place)
    } else if dice.chance(300) {
      // They go by themselves, sooner or later than guardian's patience.
      queue.add(.empties(place: place, serial), at: monotonic + dice.time(millisecond, 20 * second))
    }
  }

  /// A signal to the main process.
  private mutating func signal(_ place: Int, _ at: Int, _ signal: Signal) {
    guard places[place].processes[at].born else {
      places[place].processes[at].early = signal
      return
    }
    guard places[place].processes[at].mainAlive, !places[place].processes[at].dying || signal == .kill else { return }
    if places[place].processes[at].course.ignoresTerm, signal != .kill { return }
    places[place].processes[at].dying = true
    let after: Nanoseconds
    switch signal {
    case .kill:
      places[place].processes[at].death = Death(.signal(.kill, core: false))
      after = dice.time(millisecond, 5 * millisecond)
    case .abrt:
      places[place].processes[at].death = Death(.signal(.abrt, core: true))
      after = dice.time(millisecond, 500 * millisecond)
    default:
      places[place].processes[at].death = dice.chance(500) ? Death(.code(0)) : Death(.signal(signal, core: false))
      after = dice.time(millisecond, 300 * millisecond)
    }
    queue.add(.dies(place: place, places[place].processes[at].serial), at: monotonic + after)
  }

  /// What a probe sees is how the process was when it began.
  private mutating func probe(_ request: ProbeRequest, of place: Int) {
    let process = places[place].processes.first { $0.run == request.run && $0.mainAlive }
    var good = process.map { $0.unwellFrom.map { monotonic < $0 } ?? true } ?? false
    // Somebody else answers on the port of a service that is not there.
    if process == nil { good = dice.chance(500) }
    if faults, dice.chance(30) { good.toggle() }
    var after = dice.time(millisecond, 200 * millisecond)
    if !good, dice.chance(300) { after = request.check.timeout.nanoseconds }
    queue.add(.probed(place: place, request.run, request.number, good: good), at: monotonic + after)
  }

  private mutating func probed(_ place: Int, _ run: RunID, _ number: UInt64, _ good: Bool) {
    if faults, dice.chance(20) {
      return deliver(.probed(run, number: number, .notMade("too many open files")), to: place)
    }
    deliver(.probed(run, number: number, good ? .passed("well") : .failed("unwell")), to: place)
  }

  private mutating func hookEnds(_ place: Int, _ serial: UInt32) {
    guard let at = places[place].hooks.firstIndex(where: { $0.serial == serial }) else { return }
    let hook = places[place].hooks.remove(at: at)
    var result: HookResult
    // What a restoration has done by its end is seen before that, or after, or at the next start.
    let restores = hook.restores && dice.chance(700)
    if restores {
      places[place].fileVersion = UInt64(monotonic) &+ 2
      places[place].restoredVersion = places[place].fileVersion
      if places[place].watchedFiles, dice.chance(300) { seeFiles(place) }
    }
    defer { if restores, places[place].watchedFiles, dice.chance(700) { seeFiles(place) } }
    switch dice.below(100) {
    case _ where hook.prepares && !faults: result = .succeeded
    case 60..<70 where hook.prepares:
      result = .notStarted(
        SpawnFailure(stage: .clone, errno: 11, target: "/bin/prepare", sentence: "too many", ownTrouble: true))
    case 0..<60: result = .succeeded
    case 60..<62 where faults: result = .cannotRepair
    case 60..<90: result = .failed(.code(1))
    case 90..<95: result = .failed(.signal(.segv, core: false))
    default:
      result = .notStarted(SpawnFailure(stage: .exec, errno: 13, target: "/bin/repair", sentence: "cannot run it"))
    }
    if let signal = hook.killedBy { result = .failed(.signal(signal, core: false)) }
    if result == .succeeded, !hook.prepares, hook.index == places[place].program.cure,
      places[place].program.behaviour != .fickle
    {
      places[place].program.repaired = true
    }
    deliver(.hookEnded(hook.request, result), to: place)
  }

  private mutating func order(_ place: Int) {
    var verbs: [Command.Verb] = [
      .start, .start, .start, .restart, .restart, .release, .reset, .stop(untilBoot: dice.chance(200)),
      .hold(.seconds(30 + dice.below(500))), .hold(.zero), .reload, .reload,
    ]
    let plugins = places[place].spec.process.plugins.map(\.name)
    if !plugins.isEmpty, dice.chance(200) {
      let name = dice.pick(plugins)
      verbs = [
        .plugins(.enable(name)), .plugins(.disable(name)), .plugins(.pin(name)), .plugins(.unpin(name)),
        .plugins(.search), .plugins(.search), .safeMode(true), .safeMode(false),
      ]
    }
    if !places[place].spec.repairs.isEmpty, dice.chance(50) { verbs = [.repair(nil)] }
    let verb = dice.pick(verbs)
    let wait = dice.chance(600)
    nextRequest += 1
    let request: UInt64? = dice.chance(900) ? nextRequest : nil
    events += 1
    say(place) { "  ! \(verb)\(wait ? ", waiting" : "") (request \(request ?? 0))" }
    checker.ordered(verb, on: place, request: request, now: monotonic, boot: monotonic + slept)
    subject.fleet.order(
      Command(verb, by: "operator"), for: places[place].id, request: request.map(RequestID.init), wait: wait, now: clock
    )
    if let request {
      queue.add(.requestIsOverdue(request), at: monotonic + 20 * minute)
      if dice.chance(50) {
        checker.abandoned(request)
        subject.fleet.abandon(RequestID(request))
      }
    }
    // Whoever stops a service wants it back some day, or this fleet would fall silent.
    if case .stop = verb { queue.add(.ordered(place: place), at: monotonic + dice.gap(mean: 5 * minute)) }
  }

  /// Files come to switches.d and go; some have an end. With the faults off all of them go.
  private mutating func switches() {
    var all: [Switch] = []
    for file in ["a.yaml", "b.yaml", "c.yaml"] where faults && dice.chance(400) {
      let place = dice.below(places.count)
      var one = Switch(
        file: file, reason: "a dice", services: dice.chance(300) ? .all : .named([places[place].spec.name]))
      if dice.chance(400) { one.until = clock.wall + .seconds(1 + dice.below(3_000)) }
      if case .named = one.services, let group = Self.group, dice.chance(200) {
        one.services = .named([])
        one.groups = [group]
      }
      one.plugins = dice.chance(200) ? .all : .named(["plugin\(dice.below(3))"])
      all.append(one)
    }
    say(-1) { "switches: " + all.map(\.text).joined(separator: "; ") }
    checker.set(all, now: monotonic)
    if subject.bug != .deafToSwitches { subject.fleet.setSwitches(all, now: clock) }
  }

  private mutating func change(_ place: Int) {
    if dice.chance(300), places[place].program.guilt != nil {
      // One is mended, or another one is broken.
      if places[place].spec.process.plugins.contains(where: { !$0.goodCopy.isEmpty }) {
        places[place].fileVersion = UInt64(monotonic) &+ 2
      }
      places[place].program.guilt =
        dice.chance(500)
        ? nil
        : .make(
          of: places[place].spec.process.plugins.map(\.name)
            + (places[place].spec.process.pluginDirectory == nil ? [] : places[place].entries ?? []), dice: &dice)
    }
    if places[place].spec.process.pluginDirectory != nil {
      places[place].entries = dice.pick([nil, [], ["e0.so"], ["e1.so", "e2.so"], ["e0.so", "e1.so"]])
    }
    switch dice.below(10) {
    case 0..<3:
      places[place].spec.process.environment = [EnvironmentVariable("VERSION", "\(dice.below(1000))")]
      deliver(.defined(places[place].spec), to: place)
    case 3..<5:
      places[place].spec.description = "changed \(dice.below(1000))"
      deliver(.defined(places[place].spec), to: place)
    case 5:
      places[place].removed = true
      deliver(.removed, to: place)
      return
    default:
      if places[place].program.executable != nil { replaceExecutable(place) }
      if dice.chance(500) { editFiles(place) }
    }
    queue.add(.changed(place: place), at: monotonic + dice.gap(mean: hour))
  }

  private mutating func replaceExecutable(_ place: Int) {
    let identity = FileIdentity(
      device: 1, inode: UInt64(place), size: 1, modified: monotonic)
    places[place].program.executable = identity
    if dice.chance(200) { places[place].program.behaviour = .healthy }
    if places[place].watched {
      deliver(.executableSeen(identity), to: place)
    } else {
      checker.executableChanged(place)  // it may be seen at the next start
    }
  }

  /// An operator tries to mend it.
  private mutating func editFiles(_ place: Int) {
    guard !places[place].spec.declaredFiles.isEmpty else { return }
    places[place].fileVersion = UInt64(monotonic) &+ 2
    if dice.chance(200) { places[place].program.behaviour = .healthy }
    if places[place].watchedFiles { seeFiles(place) }
  }

  private mutating func seeFiles(_ place: Int) {
    let files = places[place].spec.declaredFiles
    guard !files.isEmpty else { return }
    let version = places[place].fileVersion
    let restored = version == places[place].restoredVersion
    let differs = places[place].program.guilt?.plugins.contains(Self.configPlugin) ?? (!restored && version % 3 == 0)
    deliver(
      .filesSeen(
        files.map { path in
          var sight = FileSight(path: path, look: version, restored: restored)
          if path == Self.configFile, differs { sight.change = FileChange(path: path, at: nil) }
          return sight
        }), to: place)
    let made = subject.fleet.machine(of: places[place].id)?.pluginFiles ?? []
    if !made.isEmpty { deliver(.pluginsSeen(made.map { FileSight(path: $0, look: version) }), to: place) }
  }

  // MARK: - What the fleet wants done

  private mutating func perform() throws(Violation) {
    for output in subject.takeOutput(now: clock) {
      switch output {
      case .act(let id, let action):
        let place = id.index < placeOf.count ? placeOf[id.index] : -1
        guard place >= 0 else { throw checker.violation(-1, monotonic, "an action for an unknown service") }
        say(place) { "  → \(Self.short(action))" }
        checker.wall = clock.wall
        try checker.acted(action, by: place, now: monotonic, boot: monotonic + slept)
        perform(action, place)
      case .answer(let request, let answer):
        say(-1) { "  answer to \(request.number): \(answer)" }
        try checker.answered(request.number, now: monotonic)
      case .commonCause(let cause): try checker.commonCause(cause, now: monotonic, boot: monotonic + slept)
      case .record: break
      case .allStopped:
        try checker.allStopped(now: monotonic)
        try check(noProcess: "all stopped, and a process is left")
      }
    }
    try checker.turnEnded(now: monotonic, inLine: subject.fleet.inLine)
    if !places.isEmpty { try checkShortAnswer(events % places.count) }
  }

  private mutating func perform(_ action: Action, _ place: Int) {
    switch action {
    case .spawn(let request):
      spawns += 1
      nextSerial += 1
      places[place].olderRun = places[place].lastRun
      places[place].lastRun = request.run
      places[place].processes.append(
        Process(
          serial: nextSerial, run: request.run,
          disabled: request.disabledPlugins.map(\.name), mitigation: request.mitigation, death: Death(.code(1))))
      queue.add(.born(place: place, nextSerial), at: monotonic + dice.time(millisecond, 8 * millisecond))
    case .signal(let run, let signal):
      if let at = places[place].processes.firstIndex(where: { $0.run == run }) { self.signal(place, at, signal) }
    case .reload(let run, let signal):
      if let at = places[place].processes.firstIndex(where: { $0.run == run }) { reloads(place, at, signal) }
    case .signalSet(let run, let signal):
      guard let at = places[place].processes.firstIndex(where: { $0.run == run }) else { return }
      let process = places[place].processes[at]
      self.signal(place, at, signal)
      if process.course.leftovers > 0, !process.mainAlive, signal == .kill || !process.course.leftoversIgnoreTerm {
        queue.add(.empties(place: place, process.serial), at: monotonic + dice.time(millisecond, 20 * millisecond))
      } else if signal == .kill, process.mainAlive {
        places[place].processes[at].course.leftovers = 0
      }
    case .runHook(let request):
      hooks += 1
      nextSerial += 1
      var index = 0
      if case .repair(let name) = request.purpose {
        index = places[place].spec.repairs.firstIndex { $0.name == name } ?? 0
      }
      let prepares = request.purpose == .beforeStart
      let hangs = dice.chance(150) && (faults || !prepares)
      places[place].hooks.append(
        Hook(
          serial: nextSerial, request: request.id, index: index, prepares: prepares, ignoresTerm: dice.chance(300)))
      if case .restore = request.kind { places[place].hooks[places[place].hooks.count - 1].restores = true }
      if !hangs { queue.add(.hookEnds(place: place, nextSerial), at: monotonic + dice.gap(mean: 2 * second)) }
      queue.add(
        .hookIsOverdue(place: place, request.id), at: monotonic + request.timeout.nanoseconds + 45 * second)
    case .signalHook(let id, let signal):
      guard let at = places[place].hooks.firstIndex(where: { $0.request == id }) else { return }
      if places[place].hooks[at].ignoresTerm, signal != .kill { return }
      places[place].hooks[at].killedBy = signal
      queue.add(
        .hookEnds(place: place, places[place].hooks[at].serial), at: monotonic + dice.time(millisecond, second / 5))
    case .notify: break
    case .measure(let run):
      // Busy and idle by turns.
      queue.add(.measured(place: place, run, dice.chance(500) ? 0 : monotonic / 2), at: monotonic + millisecond)
    case .look(let run):
      guard let process = places[place].processes.first(where: { $0.run == run }) else { return }
      if faults, dice.chance(10) { return }  // a look that finds no answer
      queue.add(.looked(place: place, process.serial), at: monotonic + dice.time(0, 3 * millisecond))
    case .probe(let request): probe(request, of: place)
    case .examine(let report):
      if faults, dice.chance(20) { return }  // its answer gets lost
      var finding = Finding()
      // Some programs crash in one place, some in two, of some nothing is known.
      switch place % 4 {
      case 0: finding.signature = Signature(value: UInt64(place), strong: true)
      case 1: finding.signature = Signature(value: UInt64(place + dice.below(2)), strong: true)
      case 2: finding.signature = Signature(value: UInt64(place), strong: false)
      default: break
      }
      if report.end.crashClass == .errorExit, place % 3 == 0 { finding.crashClass = dice.chance(500) ? .trap : .loader }
      if report.end.crashClass == .segv, Mitigated.mode(place) == .auto {
        finding.crashClass = Mitigated.crashClass(place)
      }
      let after = dice.chance(900) ? dice.time(0, 50 * millisecond) : dice.time(0, 2 * second)
      queue.add(.examined(place: place, report.end.run, finding), at: monotonic + after)
    case .save(_, let ticket):
      var after = dice.time(millisecond, 15 * millisecond)
      if faults {
        if dice.chance(10) { return }  // lost
        if dice.chance(20) { after = dice.time(second, 10 * second) }
      }
      queue.add(.saved(place: place, ticket.number), at: monotonic + after)
    case .record(let occurrence):
      if case .quarantined = occurrence.kind { quarantines += 1 }
      if case .reloading = occurrence.kind {
        // As long as a service may put off its own time-out, and what guardian was away.
        let most = places[place].spec.startTimeout.nanoseconds * 11 + 2 * minute
        queue.add(.reloadIsOverdue(place: place, monotonic), at: monotonic + most)
      }
    case .watch(let path, let files):
      places[place].watched = path != nil
      places[place].watchedFiles = !files.isEmpty
    // What was on its way may come all the same.
    case .forget, .enter, .endProbes: break
    }
  }

  // MARK: - The story of one service

  private mutating func say(_ place: Int, _ text: () -> String) {
    guard let traced, place == traced || place == -1 else { return }
    if trace.count >= 4000 { trace.removeFirst(2000) }
    trace.append("\(Duration.nanoseconds(monotonic).description)  \(text())")
  }

  private static func short(_ id: RunID) -> String { String(id.description.prefix(6)) }

  private static func short(_ event: ServiceEvent) -> String {
    switch event {
    case .spawned(let run, let pid, _, _): "spawned \(short(run)), pid \(pid)"
    case .spawnFailed(let run, let failure): "spawn of \(short(run)) failed: \(failure.sentence)"
    case .saved(let ticket): "saved \(ticket.number)"
    case .hookEnded(let hook, let result): "hook \(short(hook)) \(result.description)"
    case .ready(let run): "ready \(short(run))"
    case .probed(let run, let number, let result): "probe \(number) of \(short(run)): \(result)"
    case .examined(let run, let finding):
      "examined \(short(run)): \(finding.crashClass?.rawValue ?? "-"), \(finding.signature?.description ?? "-")"
    case .looked(let run, let liveness): "looked at \(short(run)): \(liveness)"
    case .watchdogPinged(let run): "ping \(short(run))"
    case .watchdogTriggered(let run): "watchdog triggered \(short(run))"
    case .timeoutExtended(let run, let by): "time-out of \(short(run)) extended by \(by.description)"
    case .readyAgain(let run): "ready \(short(run)), again"
    case .reloading(let run, let stamp): "reloading \(short(run))" + (stamp.map { " since \($0.nanoseconds)" } ?? "")
    case .leaving(let run): "stopping \(short(run)), it says"
    case .watchdogSet(let run, let time): "watchdog of \(short(run)) set to \(time.description)"
    case .mainMoved(let run, let process): "main process of \(short(run)) is \(process.pid)"
    case .ended(let run, let death): "ended \(short(run)): \(death.status), \(death.leftovers) left"
    case .emptied(let run): "emptied \(short(run))"
    case .defined(let spec): "defined anew: \(spec.description) \(spec.process.environment.map(\.value))"
    case .removed: "removed"
    case .executableSeen(nil): "executable gone"
    case .executableSeen: "executable changed"
    case .filesSeen(let sights):
      "files seen: "
        + "\(sights.map { "\($0.path) \($0.look)\($0.restored ? " restored" : "")\($0.change == nil ? "" : " changed")" })"
    case .pluginsConfirmed(let run): "plugins of \(short(run)) confirmed to be off"
    case .pluginsFound(_, let found): "plugins found: \(found.map(\.name))"
    case .measured(let run, let cpu): "measured \(short(run)): \(cpu?.description ?? "-")"
    case .pluginsSeen(let sights): "plugins seen: \(sights.map { "\($0.path) \($0.look)" })"
    case .resumed(let slept): "resumed after \(slept.description)"
    case .hookStarted(let hook, let pid, _): "hook \(short(hook)) started, pid \(pid)"
    case .adopted(let run, let pid, _, let known):
      "adopted \(short(run)), pid \(pid)\(known ? "" : ", readiness unknown")"
    case .superseded(let run): "superseded \(short(run))"
    case .hookAdopted(let hook, let pid, _): "adopted hook \(short(hook)), pid \(pid)"
    case .begin: "begin"
    case .shutdown: "shutdown"
    case .deadline: "deadline"
    }
  }

  private static func short(_ action: Action) -> String {
    switch action {
    case .spawn(let request):
      "spawn \(short(request.run)), \(request.kind.rawValue), mode \(request.mode)"
        + (request.mitigation.map { ", \($0.mitigation.rawValue)" } ?? "")
    case .signal(let run, let signal): "\(signal) to \(short(run))"
    case .reload(let run, let signal): "\(signal) to \(short(run)), to reload"
    case .signalSet(let run, let signal): "\(signal) to the set of \(short(run))"
    case .runHook(let hook): "hook \(short(hook.id)): \(hook.purpose.name)"
    case .signalHook(let hook, let signal): "\(signal) to hook \(short(hook))"
    case .notify(let hook): "notice \(hook.purpose.name)"
    case .save(let record, let ticket):
      "save \(ticket.number): step \(record.step.rawValue), \(record.strikes) strikes, run "
        + (record.openRun.map(short) ?? "none")
    case .record(let occurrence): "[\(occurrence.name)] \(occurrence.sentence)"
    case .enter(.opened(let run, _, let purpose, _)): "book: \(short(run)) opened, \(purpose)"
    case .enter(.closed(let run, _, _, _, let madeUp)):
      "book: \(short(run)) closed\(madeUp ? ", made up" : "")"
    case .examine(let report): "examine the death of \(short(report.end.run))"
    case .measure(let run): "measure \(short(run))"
    case .look(let run): "look at \(short(run))"
    case .probe(let probe): "probe \(probe.number) of \(short(probe.run)): \(probe.check.name)"
    case .endProbes(let run, let numbers): "end probes \(numbers) of \(short(run))"
    case .watch(let path?, let files): "watch \(([path] + files).joined(separator: " "))"
    case .watch(nil, _): "watch no longer"
    case .forget: "forget"
    }
  }
}
