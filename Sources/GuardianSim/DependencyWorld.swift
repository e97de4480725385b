import GuardianCore
import GuardianModel

/// Services that require each other, in a random graph: they crash, hang while they start, are slow to stop; operators
/// order, files change, guardian itself is killed and comes back.
///
/// Watched from outside, by what guardian has been told: nothing is started while something that it requires is not
/// ready; nothing that is at work is stopped by order before what requires it; a death that a requirement shares the
/// blame for is no strike; a service and what stands in for it in quarantine are never there together; with the faults gone
/// everything comes up, and everything goes down in time.
package struct DependencyWorld {
  package enum Bug: String, CaseIterable, Sendable {
    /// A service counts as ready before it has said so.
    case readyTooEarly
    /// What a service requires is not in its definition.
    case withoutEdges
    /// The death of what others require is heard of late.
    case lateNews
    /// Who waits is not told that what it waits for is ready.
    case lostReadiness
    /// A fallback counts as gone as soon as it has been told to go.
    case hastyFallback
  }

  private struct Process {
    var serial: Int
    var run: RunID
    var born = false, alive = false, ready = false
    var terminated = false, killed = false
    /// Killed or told to go before it was born.
    var early = false
  }

  private enum Coming {
    case born(Int, serial: Int)
    case ready(Int, serial: Int)
    case dies(Int, serial: Int, ExitStatus)
    case heard(Int, serial: Int, ExitStatus)
    case empties(Int, serial: Int)
    case looked(Int, RunID)
    case examined(Int, RunID)
    case saved(Int, ServiceRecord, Ticket)
    case hookEnds(Int, RunID)
    case disturbance
  }

  private let bug: Bug?
  private var dice: Dice
  private var fleet = Fleet(seed: (1, 2, 3, 4))
  private var queue = EventQueue<Coming>()
  private var specs: [ServiceSpec] = []
  private var names: [ServiceName: Int] = [:]
  private var ids: [ServiceID?] = []
  private var serviceOf: [ServiceID: Int] = [:]
  private var time: Nanoseconds = 0
  private var faults = true
  private var goingDown = false
  private var serials = 0
  private var processes: [Process?] = []
  private var finishedWell: [Bool] = []
  /// As guardian has been told, last.
  private var diedAt: [Nanoseconds] = []
  private var deathExcused: [Bool] = []
  private var hooks: [RunID?] = []
  private var durable: [ServiceRecord?] = []
  private var savedBy: [Nanoseconds] = []
  private var gone: [Bool] = []
  private var allStopped = false
  /// The others are fallbacks, of which nobody orders anything.
  private let ordinary: Int
  /// Who stands in for whom, both ways.
  private var fallbackOf: [Int: Int] = [:], servedBy: [Int: Int] = [:]
  package private(set) var stoodIn = 0

  package private(set) var starts = 0, orderlyStops = 0, deaths = 0, strikes = 0, excused = 0, kills = 0
  package private(set) var trace: [String] = []
  private let tracing: Bool

  package init(seed: UInt64, services: Int, bug: Bug? = nil, tracing: Bool = false) {
    self.bug = bug
    self.tracing = tracing
    ordinary = services
    dice = Dice(seed: seed)
    processes = Array(repeating: nil, count: services)
    finishedWell = Array(repeating: false, count: services)
    diedAt = Array(repeating: -hour, count: services)
    deathExcused = finishedWell
    hooks = Array(repeating: nil, count: services)
    durable = Array(repeating: nil, count: services)
    ids = Array(repeating: nil, count: services)
    gone = finishedWell
    savedBy = Array(repeating: 0, count: services)
    for number in 0..<services {
      guard let name = ServiceName("n\(number)") else { continue }
      names[name] = number
      var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/n\(number)"]))
      spec.ready = dice.chance(500) ? .notify : .none
      spec.startTimeout = .seconds(5)
      spec.startupWindow = .seconds(2)
      spec.stop.timeout = .seconds(3)
      spec.backoff.max = .seconds(4)
      spec.quarantine.retryAfter = .seconds(20)
      spec.quarantine.max = .seconds(60)
      spec.escalation.deescalateAfter = .seconds(30)
      if dice.chance(150) {
        spec.kind = .task
        spec.restart = dice.chance(700) ? .onCrash : .always
        spec.backoff.first = .seconds(1)
      }
      if dice.chance(150) { spec.process.beforeStart = ["/bin/prepare"] }
      specs.append(spec)
      edges(of: number)
    }
    for number in 0..<services where specs[number].kind == .daemon && dice.chance(250) { addFallback(of: number) }
    comeUp()
    queue.add(.disturbance, at: dice.gap(mean: 2 * second))
  }

  private mutating func addFallback(of number: Int) {
    guard let name = ServiceName("f\(number)") else { return }
    let place = specs.count
    var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/f\(number)"]))
    spec.start = .manual
    spec.startupWindow = .seconds(2)
    spec.stop.timeout = .seconds(3)
    spec.backoff.max = .seconds(4)
    specs.append(spec)
    specs[number].quarantine.fallback = name
    // So that there are many quarantines.
    specs[number].escalation.restart = 1
    specs[number].escalation.repair = 0
    specs[number].escalation.safeMode = 0
    names[name] = place
    fallbackOf[number] = place
    servedBy[place] = number
    processes.append(nil)
    finishedWell.append(false)
    diedAt.append(-hour)
    deathExcused.append(false)
    hooks.append(nil)
    durable.append(nil)
    ids.append(nil)
    gone.append(false)
    savedBy.append(0)
  }

  /// Towards lower numbers only, so that there is no cycle; a few long chains, a few hubs.
  private mutating func edges(of number: Int) {
    specs[number].requires = []
    specs[number].after = []
    guard number > 0 else { return }
    for _ in 0..<dice.below(3) {
      let other = dice.chance(400) ? number - 1 : dice.below(dice.chance(500) ? min(number, 3) : number)
      let name = specs[other].name
      if dice.chance(700) {
        if !specs[number].requires.contains(name) { specs[number].requires.append(name) }
      } else if !specs[number].after.contains(name) {
        specs[number].after.append(name)
      }
    }
  }

  private var now: Now {
    Now(
      monotonic: Instant(nanoseconds: time), boot: BootInstant(nanoseconds: time),
      wall: WallTime(nanoseconds: 1_790_000_000 * second + time))
  }

  private func violation(_ service: Int, _ rule: String) -> Violation {
    Violation(at: .nanoseconds(time), service: specs[service].name.text, number: service, rule: rule)
  }

  private mutating func note(_ what: String, _ service: Int? = nil) {
    guard tracing else { return }
    trace.append("\(Duration.nanoseconds(time).description) \(what)" + (service.map { " n\($0)" } ?? ""))
  }

  // MARK: - Guardian's own life

  private func defined(_ service: Int) -> ServiceSpec {
    var spec = specs[service]
    if bug == .withoutEdges { spec.requires = [] }
    return spec
  }

  private mutating func comeUp() {
    fleet = Fleet(seed: (dice.next(), dice.next(), dice.next(), dice.next()))
    serviceOf = [:]
    ids = ids.map { _ in nil }
    // What has been removed and not forgotten yet is remembered, and has to be stopped.
    for service in specs.indices where !gone[service] || durable[service] != nil {
      let stored = durable[service].map { StoredRecord(record: $0, mark: now, sameBoot: true) }
      let id = fleet.add(defined(service), stored: stored, now: now)
      ids[service] = id
      serviceOf[id] = service
    }
    let order = fleet.inStartOrder(fleet.ids)
    for id in order {
      for adoptee in fleet.adoptees(of: id) {
        guard let service = serviceOf[id] else { continue }
        if adoptee.isHook {
          fleet.handle(.hookEnded(adoptee.run, .failed(.unseen)), for: id, now: now)
        } else if let process = processes[service], process.run == adoptee.run || process.run == adoptee.successor {
          if process.run != adoptee.run {
            // A restart at once that nobody has written down; what is there is its outcome.
            fleet.handle(.superseded(adoptee.run), for: id, now: now)
            told(service, dead: true)
            fleet.handle(.ended(adoptee.run, Death(.unseen)), for: id, now: now)
            fleet.handle(.emptied(adoptee.run), for: id, now: now)
            continue
          }
          if process.alive || adoptee.mainEnded {
            fleet.handle(
              .adopted(adoptee.run, pid: 1, startTicks: 1, readinessKnown: true), for: id, now: now)
            if process.ready { fleet.handle(.ready(adoptee.run), for: id, now: now) }
          } else {
            hearEnd(service, process, .unseen)
          }
        } else {
          told(service, dead: true)
          fleet.handle(.ended(adoptee.run, Death(.unseen)), for: id, now: now)
          fleet.handle(.emptied(adoptee.run), for: id, now: now)
        }
      }
    }
    for id in order {
      guard let service = serviceOf[id] else { continue }
      fleet.handle(gone[service] ? .removed : .begin, for: id, now: now)
    }
  }

  /// Killed: what was not durable is lost, what lives lives on.
  private mutating func dieAndComeBack() {
    kills += 1
    note("guardian is killed")
    _ = fleet.takeOutput()
    var left = EventQueue<Coming>()
    var later = [(Coming, Nanoseconds)]()
    while let at = queue.nextTime, let coming = queue.removeFirst(dueAt: at) { later.append((coming, at)) }
    for (coming, at) in later {
      switch coming {
      case .born, .ready, .dies, .empties, .disturbance: left.add(coming, at: at)
      // News to a guardian that is no more; the next one finds out by itself.
      case .heard(let service, let serial, _):
        if processes[service]?.serial == serial { processes[service]?.alive = false }
      case .looked, .examined, .saved, .hookEnds: break
      }
    }
    queue = left
    hooks = hooks.map { _ in nil }
    comeUp()
  }

  // MARK: - Running

  package mutating func run(for span: Duration) throws(Violation) {
    let end = time + span.nanoseconds
    while true {
      try listen()
      var next = queue.nextTime ?? .max
      let due = fleet.nextDeadline
      if let at = due.monotonic { next = min(next, at.nanoseconds) }
      if let at = due.boot { next = min(next, at.nanoseconds) }
      guard next <= end else { break }
      time = max(time, next)
      while let coming = queue.removeFirst(dueAt: time) {
        try happen(coming)
        try listen()
      }
      fleet.passTime(now: now)
    }
    time = end
  }

  /// No more faults; everything is defined, wanted and released, and has to come up.
  package mutating func comeToRest() throws(Violation) {
    faults = false
    for service in specs.indices {
      if gone[service] {
        if ids[service] != nil { try run(for: .seconds(30)) }
        define(service)
      }
      guard let id = ids[service], service < ordinary else { continue }
      for verb in [Command.Verb.hold(.zero), .release, .reset, .start] {
        fleet.order(Command(verb, by: "peace"), for: id, request: nil, wait: false, now: now)
      }
    }
    try run(for: .seconds(60 * Int64(specs.count)))
    for (_, place) in servedBy.keys.sorted().enumerated() where processes[place] != nil {
      throw violation(place, "stands in for a service that is well")
    }
    for service in 0..<ordinary where !isReady(service) {
      if specs[service].kind == .task, specs[service].restart == .always { continue }
      let status = ids[service].map { fleet.status(of: $0, now: now) }
      throw violation(
        service, "not ready, though nothing stands in its way: \(status?.phase.rawValue ?? "") \(status?.reason ?? "")")
    }
  }

  package mutating func shutDown() throws(Violation) {
    let bound = fleet.longestStop
    goingDown = true
    fleet.shutDown(now: now)
    try run(for: bound + .seconds(10))
    guard allStopped else { throw violation(0, "not stopped within \(bound.description)") }
  }

  private func isReady(_ service: Int) -> Bool {
    if gone[service] { return false }
    if specs[service].kind == .task {
      return finishedWell[service] && (processes[service] == nil || specs[service].restart == .always)
    }
    guard let process = processes[service] else { return false }
    return process.ready && process.alive && !process.terminated
  }

  private func requirements(of service: Int) -> [Int] { specs[service].requires.compactMap { names[$0] } }

  private func held(_ service: Int) -> Bool { ids[service].flatMap { fleet.machine(of: $0)?.record.hold } != nil }

  // MARK: - What guardian is told

  private mutating func told(_ service: Int, dead: Bool) {
    diedAt[service] = time
    deaths += 1
    deathExcused[service] = requirements(of: service).contains { other in
      !isReady(other) || time - diedAt[other] <= second
    }
  }

  private mutating func hearEnd(_ service: Int, _ process: Process, _ status: ExitStatus) {
    guard let id = ids[service] else { return }
    processes[service]?.alive = false
    told(service, dead: true)
    if specs[service].kind == .task { finishedWell[service] = status == .code(0) }
    note("×", service)
    fleet.handle(.ended(process.run, Death(status)), for: id, now: now)
    queue.add(.empties(service, serial: process.serial), at: time + dice.time(0, 20 * millisecond))
  }

  private mutating func happen(_ coming: Coming) throws(Violation) {
    switch coming {
    case .born(let service, let serial):
      guard var process = processes[service], process.serial == serial, let id = ids[service] else { return }
      process.born = true
      process.alive = true
      if specs[service].ready == .none { process.ready = specs[service].kind == .daemon }
      processes[service] = process
      fleet.handle(.spawned(process.run, pid: 1, executable: nil, startTicks: 1), for: id, now: now)
      live(service, process)
    case .ready(let service, let serial):
      guard let process = processes[service], process.serial == serial, process.alive, let id = ids[service] else {
        return
      }
      if bug == .lostReadiness {
        queue.add(.ready(service, serial: serial), at: time + 100 * hour)
        return
      }
      processes[service]?.ready = specs[service].kind == .daemon
      fleet.handle(.ready(process.run), for: id, now: now)
    case .dies(let service, let serial, let status):
      guard let process = processes[service], process.serial == serial, process.alive else { return }
      let hidden = bug == .lateNews && requirements(of: service).isEmpty && !process.terminated
      if hidden {
        processes[service]?.alive = false
        diedAt[service] = time
        queue.add(.heard(service, serial: serial, status), at: time + 3 * second)
      } else {
        hearEnd(service, process, status)
      }
    case .heard(let service, let serial, let status):
      if let process = processes[service], process.serial == serial { hearEnd(service, process, status) }
    case .empties(let service, let serial):
      guard let process = processes[service], process.serial == serial, let id = ids[service] else { return }
      processes[service] = nil
      fleet.handle(.emptied(process.run), for: id, now: now)
    case .examined(let service, let run):
      if let id = ids[service] { fleet.handle(.examined(run, Finding()), for: id, now: now) }
    case .looked(let service, let run):
      if let id = ids[service] { fleet.handle(.looked(run, .alive), for: id, now: now) }
    case .saved(let service, let record, let ticket):
      durable[service] = record
      if let id = ids[service] { fleet.handle(.saved(ticket), for: id, now: now) }
    case .hookEnds(let service, let run):
      guard hooks[service] == run, let id = ids[service] else { return }
      hooks[service] = nil
      fleet.handle(.hookEnded(run, .succeeded), for: id, now: now)
    case .disturbance:
      guard faults, !goingDown else { return }
      disturb()
      queue.add(.disturbance, at: time + dice.gap(mean: 2 * second))
    }
  }

  /// What becomes of a process that has just been born.
  private mutating func live(_ service: Int, _ process: Process) {
    let spec = specs[service]
    if process.early { queue.add(.dies(service, serial: process.serial, .signal(.term, core: false)), at: time) }
    if spec.kind == .task {
      let good = !faults || dice.chance(800)
      queue.add(
        .dies(service, serial: process.serial, .code(good ? 0 : 1)), at: time + dice.time(10 * millisecond, 2 * second))
      return
    }
    // Some never become ready, some crash soon; what stands on something that is down falls often.
    if spec.ready == .notify, !faults || dice.chance(950) {
      let at = time + dice.time(millisecond, second)
      if bug == .readyTooEarly, let id = ids[service] { fleet.handle(.ready(process.run), for: id, now: now) }
      queue.add(.ready(service, serial: process.serial), at: at)
    }
    if faults, dice.chance(300) {
      queue.add(.dies(service, serial: process.serial, .code(1)), at: time + dice.time(millisecond, 5 * second))
    }
  }

  private mutating func define(_ service: Int) {
    gone[service] = false
    let id = fleet.add(defined(service), record: nil, now: now)
    ids[service] = id
    serviceOf[id] = service
    fleet.handle(.begin, for: id, now: now)
  }

  private mutating func disturb() {
    let service = dice.below(ordinary)
    switch dice.below(100) {
    case 90..<95:
      // What stands in may crash too.
      guard let place = fallbackOf[service], let process = processes[place], process.alive else { return }
      queue.add(.dies(place, serial: process.serial, .code(1)), at: time)
    case 0..<3: dieAndComeBack()
    case 3..<8:
      // Its file is removed, or comes back, when nothing of it is left.
      guard let id = ids[service] else { return define(service) }
      guard !gone[service] else { return }
      gone[service] = true
      note("removed:", service)
      fleet.handle(.removed, for: id, now: now)
    case 8..<14:
      guard !gone[service], let id = ids[service] else { return }
      edges(of: service)
      fleet.handle(.defined(defined(service)), for: id, now: now)
    case 14..<40:
      // Everything that requires it notices at once.
      guard let process = processes[service], process.alive else { return }
      queue.add(.dies(service, serial: process.serial, .signal(.segv, core: false)), at: time)
      for other in specs.indices where specs[other].requires.contains(specs[service].name) {
        guard let process = processes[other], process.alive, dice.chance(600) else { continue }
        queue.add(
          .dies(other, serial: process.serial, .code(1)), at: time + dice.time(0, 900 * millisecond))
      }
    default:
      guard !gone[service], let id = ids[service] else { return }
      let verbs: [Command.Verb] = [
        .start, .start, .start, .restart, .stop(untilBoot: false), .hold(.seconds(10)), .reset, .release,
      ]
      let verb = dice.pick(verbs)
      note(verb.name, service)
      fleet.order(Command(verb, by: "somebody"), for: id, request: nil, wait: false, now: now)
    }
  }

  // MARK: - What guardian does

  private mutating func listen() throws(Violation) {
    while true {
      let output = fleet.takeOutput()
      if output.isEmpty { return }
      for item in output {
        switch item {
        case .act(let id, let action): if let service = serviceOf[id] { try perform(action, service, id) }
        case .answer: break
        case .commonCause, .record: break
        case .allStopped: allStopped = true
        }
      }
    }
  }

  private func check(start service: Int) throws(Violation) {
    for other in requirements(of: service) where !isReady(other) {
      throw violation(service, "started while \(specs[other].name), which it requires, is not ready")
    }
  }

  private func check(stop service: Int) throws(Violation) {
    // A start time-out, and what has been killed already, is no orderly stop.
    guard let process = processes[service], process.ready, process.alive, !process.terminated else { return }
    for other in specs.indices where !gone[other] {
      let needs = specs[other].requires.contains(specs[service].name)
      let follows = goingDown && specs[other].after.contains(specs[service].name)
      guard needs || follows, let dependent = processes[other], dependent.born, dependent.alive, !dependent.killed,
        goingDown || !held(other)
      else { continue }
      throw violation(service, "stopped by order while \(specs[other].name) needs it")
    }
  }

  private mutating func perform(_ action: Action, _ service: Int, _ id: ServiceID) throws(Violation) {
    switch action {
    case .spawn(let request):
      if let there = processes[service], there.run == request.run { return }
      if processes[service] != nil { throw violation(service, "a second run beside a living one") }
      if let other = fallbackOf[service] ?? servedBy[service], processes[other] != nil {
        throw violation(service, "started beside \(specs[other].name), which stands in for the other")
      }
      if servedBy[service] != nil { stoodIn += 1 }
      try check(start: service)
      starts += 1
      serials += 1
      note("+", service)
      finishedWell[service] = finishedWell[service] && specs[service].restart == .always
      processes[service] = Process(serial: serials, run: request.run)
      queue.add(.born(service, serial: serials), at: time + dice.time(millisecond, 30 * millisecond))
    case .runHook(let hook):
      if case .beforeStart = hook.purpose { try check(start: service) }
      hooks[service] = hook.id
      queue.add(.hookEnds(service, hook.id), at: time + dice.time(millisecond, 100 * millisecond))
    case .signal(let run, _):
      guard let process = processes[service], process.run == run else { return }
      try check(stop: service)
      orderlyStops += 1
      note("-", service)
      processes[service]?.terminated = true
      if bug == .hastyFallback, servedBy[service] != nil {
        fleet.handle(.ended(run, Death(.signal(.term, core: false))), for: id, now: now)
        fleet.handle(.emptied(run), for: id, now: now)
      }
      if !process.born {
        processes[service]?.early = true
      } else if process.alive, !faults || dice.chance(900) {
        queue.add(
          .dies(service, serial: process.serial, .signal(.term, core: false)),
          at: time + dice.time(millisecond, dice.chance(200) ? 2 * second : 100 * millisecond))
      }
    case .signalSet(let run, let signal):
      guard let process = processes[service], process.run == run, process.born else { return }
      processes[service]?.killed = signal == .kill
      processes[service]?.terminated = true
      if process.alive { queue.add(.dies(service, serial: process.serial, .signal(.kill, core: false)), at: time) }
    case .look(let run): queue.add(.looked(service, run), at: time + millisecond)
    case .examine(let report): queue.add(.examined(service, report.end.run), at: time + dice.time(millisecond, second))
    case .probe, .endProbes: break  // None of these services has checks; `World` has those that do.
    case .save(let record, let ticket):
      // In order: the store writes one after the other.
      savedBy[service] = max(savedBy[service], time + dice.time(millisecond, 20 * millisecond))
      queue.add(.saved(service, record, ticket), at: savedBy[service])
    case .record(let occurrence):
      switch occurrence.kind {
      case .strike:
        strikes += 1
        if deathExcused[service] { throw violation(service, "a strike for a death that is another's fault") }
      case .notCounted: excused += 1
      default: break
      }
    case .signalHook(let run, _):
      if hooks[service] == run { queue.add(.hookEnds(service, run), at: time) }
    case .forget:
      serviceOf[id] = nil
      ids[service] = nil
      durable[service] = nil
    case .notify, .watch, .enter, .reload, .measure: break
    }
  }
}
