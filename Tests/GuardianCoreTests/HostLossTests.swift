import GuardianCore
import GuardianModel
import Testing

/// Twenty services on a machine that goes down now and then.
private struct Machine {
  var fleet = Fleet(seed: (1, 2, 3, 4))
  var ids: [ServiceID] = []
  var specs: [ServiceSpec]
  var now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
  /// As durable.
  var records: [ServiceName: ServiceRecord] = [:]
  var starts: [(name: String, at: Duration)] = []
  var entries: [RunEntry] = []
  var boots: UInt64 = 0
  private var living: [ServiceID: RunID] = [:]

  init(services: Int = 20, _ change: (inout ServiceSpec) -> Void = { _ in }) {
    specs = (0..<services).compactMap { number in
      guard let name = ServiceName(number < 10 ? "s0\(number)" : "s\(number)") else { return nil }
      var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/\(number)"]))
      spec.backoff.jitter = 0
      change(&spec)
      return spec
    }
    boot()
  }

  /// Power comes back.
  mutating func boot() { comeUp(sameBoot: false) }
  /// Guardian alone was killed.
  mutating func restartGuardian() { comeUp(sameBoot: true) }

  private mutating func comeUp(sameBoot: Bool) {
    let mark = now
    boots += 1
    if !sameBoot {
      now = Now(monotonic: .zero, boot: .zero, wall: now.wall)
      living = [:]
      starts = []
    }
    fleet = Fleet(seed: (boots, 2 &* boots, 3, 4))
    ids = specs.map { spec in
      fleet.add(
        spec, stored: records[spec.name].map { StoredRecord(record: $0, mark: mark, sameBoot: sameBoot) }, now: now)
    }
    listen()
    for id in ids {
      for adoptee in fleet.adoptees(of: id) {
        fleet.handle(.adopted(adoptee.run, pid: 9, startTicks: 1, readinessKnown: true), for: id, now: now)
      }
    }
    for id in ids { fleet.handle(.begin, for: id, now: now) }
    listen()
  }

  mutating func pass(_ time: Duration) {
    let end = now.advanced(by: time)
    while true {
      let due = fleet.nextDeadline
      var wait = end.monotonic - now.monotonic
      if let monotonic = due.monotonic { wait = min(wait, max(.zero, monotonic - now.monotonic)) }
      if let boot = due.boot { wait = min(wait, max(.zero, boot - now.boot)) }
      now = now.advanced(by: wait)
      fleet.passTime(now: now)
      listen()
      if now.monotonic >= end.monotonic { return }
    }
  }

  private mutating func listen() {
    while true {
      let output = fleet.takeOutput()
      if output.isEmpty { return }
      for case .act(let id, let action) in output {
        let name = specs[id.index].name
        switch action {
        case .save(let record, let ticket):
          records[name] = record
          fleet.handle(.saved(ticket), for: id, now: now)
        case .spawn(let request):
          starts.append((name.text, .nanoseconds(now.monotonic.nanoseconds)))
          living[id] = request.run
          fleet.handle(.spawned(request.run, pid: 9, executable: nil, startTicks: 1), for: id, now: now)
        case .look(let run): fleet.handle(.looked(run, .alive), for: id, now: now)
        case .examine(let report): fleet.handle(.examined(report.end.run, Finding()), for: id, now: now)
        case .enter(let entry): entries.append(entry)
        default: break
        }
      }
    }
  }

  mutating func die(_ number: Int) {
    guard let run = living.removeValue(forKey: ids[number]) else { return }
    fleet.handle(.ended(run, Death(.code(1))), for: ids[number], now: now)
    fleet.handle(.emptied(run), for: ids[number], now: now)
    listen()
  }
  mutating func order(_ verb: Command.Verb, _ number: Int) {
    fleet.order(Command(verb, by: "root"), for: ids[number], request: nil, wait: false, now: now)
    listen()
  }

  func phase(_ number: Int) -> PhaseName { status(number).phase }
  func status(_ number: Int) -> ServiceStatus { fleet.status(of: ids[number], now: now) }
  var openTickets: [String] { records.filter { $0.value.openRun != nil }.map(\.key.text).sorted() }
  var convicted: [String] { specs.indices.filter { phase($0) == .quarantined }.map { specs[$0].name.text } }

  /// The machine goes down three seconds after `killer` was started; false where it was not, for as long as an hour.
  mutating func boot(withKiller killer: Int) -> Bool {
    boot()
    let name = specs[killer].name.text
    for _ in 0..<3600 {
      if let start = starts.last(where: { $0.name == name }) {
        let end = start.at + .seconds(3)
        pass(max(.zero, end - .nanoseconds(now.monotonic.nanoseconds)))
        return true
      }
      pass(.seconds(1))
    }
    return false
  }
}

@Suite struct HostLossTests {
  @Test func `a service that takes the machine down is convicted alone at the third loss, and the others run`() {
    for killer in [0, 7, 19] {
      var machine = Machine()
      machine.pass(.seconds(3))
      // The first boot has just been lost.
      var started = machine.boot(withKiller: killer)
      #expect(started)
      // The second too: from now on with care.
      started = machine.boot(withKiller: killer)
      #expect(started)
      #expect(machine.openTickets == [machine.specs[killer].name.text])
      // The third loss has one open ticket.
      machine.boot()
      machine.pass(.seconds(200))
      #expect(machine.convicted == [machine.specs[killer].name.text])
      #expect(machine.status(killer).reason.contains("went down 3 times"))
      for number in machine.specs.indices where number != killer { #expect(machine.status(number).settled) }
      #expect(machine.records[machine.specs[killer].name]?.hostLosses == 0)
      #expect(machine.specs.indices.allSatisfy { machine.status($0).strikes == 0 })
    }
  }

  @Test func `with plugins it is convicted to safe mode`() {
    var machine = Machine(services: 3) { spec in
      var plugin = PluginSpec(name: "x")
      plugin.environment = [EnvironmentVariable("X", "off")]
      spec.process.plugins = [plugin]
    }
    machine.pass(.seconds(3))
    _ = machine.boot(withKiller: 1)
    _ = machine.boot(withKiller: 1)
    machine.boot()
    machine.pass(.seconds(300))
    #expect(machine.status(1).step == .safeMode && machine.status(1).disabledPlugins == ["x"])
    #expect(machine.status(1).settled && machine.status(1).degraded)
    #expect(machine.status(0).step == .restart && machine.status(2).step == .restart)
  }

  @Test func `three power cuts when all had settled convict nobody, and none is started with care`() {
    var machine = Machine()
    for _ in 0..<3 {
      machine.pass(.seconds(100))
      machine.boot()
      #expect(machine.starts.count == 20)
    }
    #expect(machine.convicted.isEmpty)
    #expect(machine.records.values.allSatisfy { $0.hostLosses == 0 })
  }

  @Test func `after an orderly shutdown no ticket is open`() {
    var machine = Machine(services: 4)
    machine.pass(.seconds(1))
    #expect(machine.openTickets.count == 4)
    machine.fleet.shutDown(now: machine.now)
    machine.pass(.milliseconds(1))
    #expect(machine.openTickets.isEmpty)
    machine.boot()
    #expect(machine.records.values.allSatisfy { $0.hostLosses == 0 })
  }

  @Test func `in a careful start the others go first, and each suspect has settled before the next`() {
    var machine = Machine(services: 4)
    machine.pass(.seconds(1))
    machine.boot()
    machine.pass(.seconds(1))
    machine.boot()
    // All four were starting both times.
    #expect(machine.starts.map(\.name) == ["s00"])
    #expect(machine.phase(1) == .waiting && machine.status(1).reason.contains("careful start"))
    #expect(machine.status(1).next == nil)
    machine.pass(.seconds(59))
    #expect(machine.starts.count == 1)
    machine.pass(.seconds(2))
    #expect(machine.starts.map(\.name) == ["s00", "s01"])
    machine.pass(.seconds(200))
    #expect(machine.starts.map(\.name) == ["s00", "s01", "s02", "s03"])
    #expect(machine.openTickets.isEmpty)
  }

  @Test func `a careful start outlives guardian's own death`() {
    var machine = Machine(services: 4)
    machine.pass(.seconds(1))
    machine.boot()
    machine.pass(.seconds(1))
    machine.boot()
    machine.pass(.seconds(5))
    machine.restartGuardian()
    machine.pass(.seconds(5))
    #expect(machine.starts.map(\.name) == ["s00"])
    #expect(machine.openTickets == ["s00"])
    machine.pass(.seconds(300))
    #expect(machine.starts.count == 4)
  }

  @Test func `a suspect that keeps dying lets the next one go while it waits, and waits for it`() {
    var machine = Machine(services: 3)
    machine.pass(.seconds(1))
    machine.boot()
    machine.pass(.seconds(1))
    machine.boot()
    machine.pass(.seconds(1))
    machine.die(0)
    #expect(machine.starts.map(\.name) == ["s00", "s01"])
    machine.pass(.seconds(2))
    #expect(machine.phase(0) == .waiting && machine.openTickets == ["s01"])
    machine.pass(.seconds(300))
    #expect(machine.specs.indices.allSatisfy { machine.status($0).settled })
  }

  @Test func `an operator's start overrides the care`() {
    var machine = Machine(services: 3)
    machine.pass(.seconds(1))
    machine.boot()
    machine.pass(.seconds(1))
    machine.boot()
    machine.order(.start, 2)
    #expect(machine.starts.map(\.name) == ["s00", "s02"])
  }

  @Test func `the book is even after every loss`() {
    var machine = Machine(services: 5)
    for _ in 0..<6 {
      machine.pass(.seconds(2))
      machine.boot()
    }
    var open: Set<RunID> = []
    for entry in machine.entries {
      switch entry {
      case .opened(let id, _, _, _):
        let fresh = open.insert(id).inserted
        #expect(fresh)
      case .closed(let id, _, _, _, _):
        let known = open.remove(id) != nil
        #expect(known)
      }
    }
    #expect(open.count == machine.openTickets.count)
  }
}

@Suite struct SuccessorTests {
  @Test func `a restart at once that nobody wrote down has the id that was written down before`() {
    var c = Conversation(service())
    c.settle()
    c.guardianDies()
    let foretold = c.adoptee?.successor
    #expect(foretold != nil)
    c.miss()
    #expect(c.spawns.count == 2 && c.run == foretold)
    #expect(c.openEntries == [c.run])
  }

  @Test(arguments: ["stop", "restart", "removal"])
  func `what comes before it is known that a restart had happened, stops what was started by it`(order: String) {
    var c = Conversation(service())
    c.settle()
    c.guardianDies()
    guard let adoptee = c.adoptee, let foretold = adoptee.successor else {
      Issue.record("nobody to be looked for")
      return
    }
    switch order {
    case "stop": c.order(.stop(untilBoot: false), wait: false)
    case "restart": c.order(.restart, wait: false)
    default: c.tell(.removed)
    }
    c.tell(.superseded(adoptee.run))
    c.tell(.ended(adoptee.run, Death(.unseen)))
    c.tell(.emptied(adoptee.run))
    // The shell finds it alive and makes no second one of it; told to go, it goes.
    #expect(c.run == foretold && c.phase == .stopping)
    c.tell(.spawned(foretold, pid: 9, executable: nil, startTicks: 9))
    #expect(c.signals.last?.signal == .term)
    c.tell(.ended(foretold, Death(.signal(.term, core: false))))
    c.tell(.emptied(foretold))
    switch order {
    case "stop": #expect(c.phase == .stopped)
    case "restart": #expect(c.spawns.count == 3 && c.run != foretold)
    default: #expect(c.forgotten)
    }
  }
}
