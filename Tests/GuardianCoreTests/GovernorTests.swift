import GuardianCore
import GuardianModel
import Testing

/// A fleet in which everything that is asked for happens at once, or when the test says so.
private struct Host {
  var fleet = Fleet(seed: (1, 2, 3, 4))
  var now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 1_790_000_000_000_000_000))
  var ids: [ServiceID] = []
  var spawns: [(service: Int, run: RunID, at: Duration)] = []
  var occurrences: [(service: Int, kind: Occurrence.Kind)] = []
  var answers: [UInt64: Fleet.Answer] = [:]
  var saves = 0
  var notices: [[String]] = []
  var hooks: [(service: Int, id: RunID)] = []
  var causes: [CommonCause?] = []
  /// Whose exec is reported at once.
  var execs: (Int) -> Bool = { _ in true }
  var alive: [Int: RunID] = [:]
  var allStopped = false

  static func name(_ number: Int) -> ServiceName {
    ServiceName("s\(number / 100)\(number / 10 % 10)\(number % 10)") ?? { preconditionFailure() }()
  }

  init(
    _ count: Int, governor: GovernorSpec?, cause: CommonCauseSpec? = nil, begin: Bool = true,
    _ change: (Int, inout ServiceSpec) -> Void = { _, _ in }
  ) {
    fleet.govern(governor, now: now)
    fleet.watchCommonCauses(cause, now: now)
    for number in 0..<count {
      var spec = ServiceSpec(name: Self.name(number), process: ProcessSpec(command: ["/bin/s"]))
      change(number, &spec)
      ids.append(fleet.add(spec, record: nil, now: now))
    }
    if begin { for number in 0..<count { tell(number, .begin) } }
  }

  var time: Duration { .nanoseconds(now.monotonic.nanoseconds) }
  func status(_ number: Int) -> ServiceStatus { fleet.status(of: ids[number], now: now) }
  func phases(_ phase: PhaseName) -> Int { ids.indices.count { status($0).phase == phase } }
  func count(_ name: String) -> Int {
    occurrences.count { Occurrence(service: Self.name($0.service), at: now.wall, kind: $0.kind).name == name }
  }

  mutating func tell(_ number: Int, _ event: ServiceEvent) {
    fleet.handle(event, for: ids[number], now: now)
    fleet.passTime(now: now)
    listen()
  }
  mutating func order(_ number: Int, _ verb: Command.Verb, request: UInt64 = 0) {
    fleet.order(
      Command(verb, by: "root"), for: ids[number], request: request > 0 ? RequestID(request) : nil, wait: true, now: now
    )
    listen()
  }
  mutating func exec(_ number: Int) {
    if let run = alive[number] { tell(number, .spawned(run, pid: 7, executable: nil)) }
  }
  mutating func die(_ number: Int, _ status: GuardianModel.ExitStatus = .code(1)) {
    guard let run = alive.removeValue(forKey: number) else { return }
    tell(number, .ended(run, Death(status)))
    tell(number, .emptied(run))
  }

  mutating func listen() {
    while true {
      let output = fleet.takeOutput()
      if output.isEmpty { return }
      for item in output {
        switch item {
        case .act(let id, let action): perform(action, ids.firstIndex(of: id) ?? 0, id)
        case .answer(let request, let answer): answers[request.number] = answer
        case .commonCause(let cause): causes.append(cause)
        case .record: break
        case .allStopped: allStopped = true
        }
      }
    }
  }

  private mutating func perform(_ action: Action, _ number: Int, _ id: ServiceID) {
    switch action {
    case .spawn(let request):
      spawns.append((number, request.run, time))
      alive[number] = request.run
      if execs(number) { fleet.handle(.spawned(request.run, pid: 7, executable: nil), for: id, now: now) }
    case .signal(let run, _), .signalSet(let run, _):
      guard alive[number] == run else { return }
      alive[number] = nil
      fleet.handle(.ended(run, Death(.signal(.term, core: false))), for: id, now: now)
      fleet.handle(.emptied(run), for: id, now: now)
    case .look(let run): fleet.handle(.looked(run, .alive), for: id, now: now)
    case .examine(let report): fleet.handle(.examined(report.end.run, Finding()), for: id, now: now)
    case .save(_, let ticket):
      saves += 1
      fleet.handle(.saved(ticket), for: id, now: now)
    case .record(let occurrence): occurrences.append((number, occurrence.kind))
    case .notify(let request): if case .run(let command) = request.kind { notices.append(command) }
    case .runHook(let request): hooks.append((number, request.id))
    case .signalHook, .watch, .forget, .enter, .reload, .probe, .endProbes, .measure: break
    }
  }

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
}

private func governor(_ rate: Int, _ concurrent: Int) -> GovernorSpec {
  var spec = GovernorSpec()
  spec.startsPerSecond = rate
  spec.concurrent = concurrent
  return spec
}

@Suite struct `the governor` {
  @Test func `starts as many a second as it may, in order, and writes nothing down for those who wait`() {
    var host = Host(50, governor: governor(10, 64))
    #expect(host.spawns.map(\.service) == Array(0..<10))
    #expect(host.phases(.waiting) == 40 && host.fleet.inLine == 40)
    #expect(host.saves == 20, "one for the start, and one for the exec")
    #expect(host.status(10).reason == "governor: waits for its turn to start")
    #expect(host.status(10).next == nil)
    host.pass(.seconds(2))
    #expect(host.spawns.map(\.service) == Array(0..<30))
    host.pass(.seconds(2))
    #expect(host.spawns.map(\.service) == Array(0..<50) && host.fleet.inLine == 0)
    #expect(host.spawns.last?.at == .seconds(4))
    #expect(host.occurrences.allSatisfy { if case .strike = $0.kind { false } else { true } })
  }

  @Test func `bounds the starts that are under way, and keeps an eighth for the urgent`() {
    var host = Host(20, governor: governor(1000, 16)) { _, spec in spec.ready = .notify }
    #expect(host.spawns.count == 14)
    // An order finds a place.
    host.order(19, .start)
    #expect(host.spawns.map(\.service).last == 19)
    // One becomes ready: the reserve comes first.
    host.tell(0, .ready(host.alive[0] ?? RunID(high: 0, low: 0)))
    #expect(host.spawns.count == 15)
    host.tell(1, .ready(host.alive[1] ?? RunID(high: 0, low: 0)))
    #expect(host.spawns.count == 16)
    #expect(host.status(14).phase == .starting)
  }

  @Test func `lets a start that takes long hold its place for ten seconds only`() {
    var host = Host(3, governor: governor(100, 1)) { _, spec in spec.ready = .notify }
    #expect(host.spawns.count == 1)
    host.pass(.milliseconds(9_999))
    #expect(host.spawns.count == 1)
    host.pass(.milliseconds(2))
    #expect(host.spawns.count == 2)
    host.pass(.seconds(10))
    #expect(host.spawns.count == 3)
    #expect(host.occurrences.isEmpty == false && host.count("strike") == 0)
  }

  @Test func `a wait is in no window, no start-timeout, and no strike`() {
    var host = Host(2, governor: governor(1, 8)) { _, spec in
      spec.ready = .notify
      spec.startTimeout = .milliseconds(100)
      spec.startupWindow = .milliseconds(500)
    }
    host.tell(0, .ready(host.alive[0] ?? RunID(high: 0, low: 0)))
    #expect(host.status(1).phase == .waiting)
    host.pass(.milliseconds(999))
    #expect(host.status(1).phase == .waiting && host.count("strike") == 0)
    host.pass(.milliseconds(51))
    #expect(host.status(1).phase == .starting)
    host.pass(.milliseconds(1))
    host.tell(1, .ready(host.alive[1] ?? RunID(high: 0, low: 0)))
    #expect(host.status(1).phase == .running && host.status(1).strikes == 0)
  }

  @Test func `lets a restart at once of a healthy service pass at once, and writes it down no more than before`() {
    var host = Host(30, governor: governor(10, 64))
    host.pass(.seconds(70))
    let (spawns, saves) = (host.spawns.count, host.saves)
    host.die(3)
    #expect(host.spawns.count == spawns + 1 && host.spawns.last?.at == host.time)
    #expect(host.status(3).phase == .running && host.status(3).strikes == 0)
    var free = Host(30, governor: nil)
    free.pass(.seconds(70))
    let before = free.saves
    free.die(3)
    #expect(host.saves - saves == free.saves - before)
  }

  @Test func `orders go first, then restarts at once, then what is new, then what loops; and nobody starves`() {
    var host = Host(40, governor: governor(5, 64)) { number, spec in
      if number >= 21 { spec.start = .manual }
    }
    host.pass(.seconds(70))
    // Drain the bucket with deaths of settled services: five at once, the rest stand in line.
    for number in 0..<10 { host.die(number) }
    #expect(host.fleet.inLine == 5)
    #expect(host.status(9).reason.hasPrefix("governor: waits for its turn to start; exit 1"))
    let before = host.spawns.count
    // One that loops, and one that is asked for.
    host.die(0)  // before settled: a strike, backing off for half a second
    host.order(30, .start, request: 1)
    #expect(host.fleet.inLine == 6)
    host.pass(.milliseconds(200))
    #expect(host.spawns[before...].map(\.service) == [30])
    #expect(host.answers[1] == .done(note: ""))
    host.pass(.seconds(3))
    #expect(host.spawns[(before + 1)...].map(\.service) == [5, 6, 7, 8, 9, 0])
  }

  @Test func `every eighth start goes to whoever has waited longest`() {
    var host = Host(21, governor: governor(1, 8)) { number, spec in if number > 0 { spec.start = .manual } }
    // 0 has started; it crashes and stands in line as one in trouble, while orders keep coming.
    host.die(0)
    host.pass(.milliseconds(700))
    #expect(host.status(0).phase == .waiting)
    for number in 1...20 {
      host.order(number, .start)
      if number > 2 { host.pass(.seconds(1)) }
    }
    // As many orders come as there are starts.
    #expect(host.fleet.inLine == 3)
    #expect(host.spawns.dropFirst().prefix(9).contains { $0.service == 0 })
  }

  @Test func `stop, hold, removal and shutdown take a service out of the line`() {
    var host = Host(8, governor: governor(1, 8))
    #expect(host.fleet.inLine == 7)
    host.order(1, .stop(untilBoot: false), request: 1)
    #expect(host.status(1).phase == .stopped && host.answers[1] == .done(note: ""))
    host.order(2, .hold(.seconds(3600)))
    host.tell(3, .removed)
    #expect(host.fleet.inLine == 4)
    host.pass(.seconds(10))
    #expect(host.spawns.map(\.service) == [0, 4, 5, 6, 7])
    host.order(2, .hold(.zero))
    #expect(host.spawns.last?.service == 2)
    var going = Host(8, governor: governor(1, 8))
    going.fleet.shutDown(now: going.now)
    going.listen()
    #expect(going.allStopped && going.fleet.inLine == 0 && going.fleet.nextDeadline.monotonic == nil)
    going.pass(.seconds(10))
    #expect(going.spawns.count == 1)
  }

  @Test func `an operator's start overrides a hold, also from the line`() {
    var host = Host(4, governor: governor(1, 8)) { number, spec in if number > 0 { spec.start = .manual } }
    host.order(1, .hold(.seconds(3600)))
    host.order(1, .start, request: 1)
    #expect(host.status(1).phase == .waiting && host.fleet.inLine == 1)
    host.pass(.seconds(2))
    #expect(host.spawns.map(\.service) == [0, 1] && host.answers[1] == .done(note: ""))
    host.order(3, .start)
    host.order(2, .start, request: 2)
    host.order(2, .hold(.seconds(3600)))
    host.pass(.seconds(5))
    #expect(host.status(2).phase == .waiting, "a hold that came later keeps it")
    host.order(2, .stop(untilBoot: false))
    #expect(host.answers[2] == .failed(reason: "stopped by another order"))
  }

  @Test func `is changed by a reload at once: faster, slower, off`() {
    var host = Host(30, governor: governor(1, 8))
    #expect(host.spawns.count == 1)
    host.fleet.govern(nil, now: host.now)
    host.listen()
    #expect(host.spawns.count == 30 && host.fleet.inLine == 0)
    host.fleet.govern(governor(2, 8), now: host.now)
    host.pass(.seconds(70))
    for number in 0..<6 { host.die(number) }
    #expect(host.spawns.count == 32)
    host.fleet.govern(governor(1000, 100), now: host.now)
    host.pass(.seconds(1))
    #expect(host.spawns.count == 36)
  }

  @Test func `what is adopted takes no token, and what waited is started anew by the next guardian`() {
    var record = ServiceRecord()
    record.wanted = .up
    var live = LiveRun(id: RunID(high: 9, low: 9), kind: .ordinary, pluginsOff: false)
    live.process = ProcessIdentity(pid: 5, startTicks: 5)
    live.startedAt = .zero
    live.wasReady = true
    record.situation = .living(live)
    var host = Host(0, governor: governor(1, 8))
    let stored = StoredRecord(record: record, mark: host.now, sameBoot: true)
    for number in 0..<5 {
      let spec = ServiceSpec(name: Host.name(number), process: ProcessSpec(command: ["/bin/s"]))
      host.ids.append(host.fleet.add(spec, stored: number < 4 ? stored : nil, now: host.now))
    }
    for number in 0..<4 {
      host.tell(number, .adopted(live.id, pid: 5, startTicks: 5, readinessKnown: true))
    }
    for number in 0..<5 { host.tell(number, .begin) }
    #expect(host.spawns.map(\.service) == [4])
    #expect(host.fleet.inLine == 0)
  }

  @Test func `the plan of one in line begins with its start`() {
    let host = Host(2, governor: governor(1, 8))
    #expect(host.status(1).phase == .waiting)
    let plan = host.fleet.plan(for: host.ids[1], now: host.now)
    #expect(plan.first?.action == "start" && plan.contains { $0.action == "quarantine" })
  }

  @Test func `I3: a thousand that loop cost as many starts a second as it allows`() {
    var host = Host(300, governor: governor(20, 8)) { _, spec in
      spec.escalation.enabled = false
      spec.backoff.first = .zero
    }
    host.execs = { _ in true }
    for _ in 0..<100 {
      host.pass(.milliseconds(100))
      for number in host.alive.keys.sorted() { host.die(number) }
    }
    #expect(host.spawns.count <= 20 * 11 && host.spawns.count >= 20 * 10)
  }
}

@Suite struct `a common cause` {
  private static func host(_ count: Int, _ change: @escaping (Int, inout ServiceSpec) -> Void = { _, _ in }) -> Host {
    var host = Host(count, governor: nil, cause: CommonCauseSpec()) { number, spec in
      spec.late.budget = 0
      spec.startupWindow = .seconds(5)
      change(number, &spec)
    }
    host.pass(.seconds(10))
    return host
  }

  @Test func `is noticed when three that were settled, and a quarter of them, begin to loop within ten seconds`() {
    var host = Self.host(12)
    host.die(0)
    host.pass(.seconds(1))
    host.die(0)  // its second strike is no second service
    host.die(1)
    #expect(host.fleet.commonCause == nil)
    host.pass(.seconds(1))
    host.die(2)
    #expect(host.fleet.commonCause?.services == [Host.name(0), Host.name(1), Host.name(2)])
    #expect(host.fleet.commonCause?.settled == 12)
    #expect(host.count("common-cause") == 1 && host.causes.count == 1)
    #expect(host.status(0).notes.contains { $0.hasPrefix("common cause: s000, s001, s002, of 12") })
    #expect(host.status(5).notes.isEmpty)
  }

  @Test func `is not noticed when they are too few of many, too slow, or have never been settled`() {
    var many = Self.host(13)
    for number in 0..<3 { many.die(number) }
    #expect(many.fleet.commonCause == nil)
    many.die(3)
    #expect(many.fleet.commonCause != nil)
    var slow = Self.host(4) { _, spec in spec.backoff.first = .seconds(30) }
    for number in 0..<3 {
      slow.die(number)
      slow.pass(.milliseconds(5_001))
    }
    #expect(slow.fleet.commonCause == nil)
    var new = Host(4, governor: nil, cause: CommonCauseSpec())
    for number in 0..<4 { new.die(number) }
    #expect(new.fleet.commonCause == nil && new.count("strike") == 4)
  }

  @Test func `freezes escalation: deaths are recorded, restarts go on with backoff, and nothing moves up`() {
    var host = Self.host(4) { _, spec in
      spec.escalation.restart = 2
      spec.repairs = [RepairSpec(name: "fix", kind: .run(["/bin/fix"]))]
    }
    for number in 0..<3 { host.die(number) }
    #expect(host.fleet.commonCause != nil)
    let strikes = host.count("strike"), ends = host.count("ended")
    for _ in 0..<20 {
      host.pass(.seconds(10))
      for number in 0..<4 { host.die(number) }
    }
    #expect(host.count("strike") == strikes && host.count("escalated") == 0 && host.count("repair-started") == 0)
    #expect(host.count("ended") > ends + 8 && host.count("not-counted") > 8)
    #expect((0..<4).allSatisfy { host.status($0).step == .restart })
    #expect(host.status(0).reason.hasSuffix("not counted, because several services began to loop at once"))
    // It ends by itself, and then a death counts again.
    host.pass(.seconds(100))
    #expect(host.fleet.commonCause == nil && host.count("common-cause-ended") == 1 && host.causes.last == .some(nil))
    host.die(0)
    #expect(host.count("strike") == strikes + 1)
  }

  @Test func `keeps from quarantine what a repair begun before it gives up on`() throws {
    var host = Self.host(4) { number, spec in
      if number == 3 {
        spec.escalation.restart = 1
        spec.escalation.safeMode = 0
        spec.repairs = [RepairSpec(name: "fix", kind: .run(["/bin/fix"]))]
      }
    }
    host.die(3)
    host.pass(.seconds(1))
    let hook = try #require(host.hooks.first)
    #expect(hook.service == 3 && host.status(3).phase == .repairing)
    for number in 0..<3 { host.die(number) }
    #expect(host.fleet.commonCause != nil)
    host.tell(3, .hookEnded(hook.id, .cannotRepair))
    #expect(host.status(3).phase == .backingOff && host.count("quarantined") == 0)
    #expect(host.status(3).reason.hasSuffix("not counted, because several services began to loop at once"))
    host.pass(.seconds(2))
    #expect(host.alive[3] != nil && host.hooks.count == 1)
  }

  @Test func `keeps what is missing for a while from quarantine, and tries again`() {
    var host = Self.host(4)
    for number in 0..<3 { host.die(number) }
    host.die(3)
    host.execs = { _ in false }
    host.pass(.seconds(1))
    let run = host.alive[3] ?? RunID(high: 0, low: 0)
    host.tell(
      3,
      .spawnFailed(
        run, SpawnFailure(stage: .exec, errno: 2, target: "/bin/s", sentence: "cannot run /bin/s", missing: true)))
    #expect(host.status(3).phase == .backingOff)
    host.pass(.seconds(2))
    #expect(host.alive[3] != run && host.status(3).phase == .starting)
  }

  @Test func `is told once by each program, and only of services that take part`() {
    var host = Self.host(8) { number, spec in
      if number < 6 { spec.notices = [.onCommonCause: [number < 4 ? "/bin/tell" : "/bin/shout"]] }
    }
    for number in [0, 1, 4] { host.die(number) }
    #expect(host.notices == [["/bin/tell"], ["/bin/shout"]])
  }

  @Test func `takes services again that have been settled in between`() {
    var host = Self.host(4)
    for number in 0..<3 { host.die(number) }
    host.pass(.seconds(400))
    #expect(host.fleet.commonCause == nil)
    for number in 0..<3 { host.die(number) }
    #expect(host.count("common-cause") == 2)
  }

  @Test func `goes on under the next guardian until its time is over, and can be turned off`() throws {
    var host = Self.host(4)
    for number in 0..<3 { host.die(number) }
    let cause = try #require(host.fleet.commonCause)
    #expect(CommonCause(text: cause.text) == cause)
    #expect(CommonCause(text: "") == nil && CommonCause(text: "1 2") == nil && CommonCause(text: "x y z web") == nil)
    var next = Host(4, governor: nil, cause: CommonCauseSpec(), begin: false)
    next.fleet.resume(cause, now: host.now)
    #expect(next.fleet.commonCause == cause && next.fleet.nextDeadline.boot == cause.until)
    next.fleet.watchCommonCauses(nil, now: host.now)
    next.listen()
    #expect(next.fleet.commonCause == nil && next.causes == [nil])
    next.fleet.watchCommonCauses(CommonCauseSpec(), now: host.now)
    next.fleet.resume(cause, now: host.now.advanced(by: .seconds(301)))
    #expect(next.fleet.commonCause == nil, "it is over")
  }

  @Test func `of services adopted settled counts as of those that settled under this guardian`() {
    var record = ServiceRecord()
    record.wanted = .up
    var live = LiveRun(id: RunID(high: 9, low: 9), kind: .ordinary, pluginsOff: false)
    live.process = ProcessIdentity(pid: 5, startTicks: 5)
    live.startedAt = .zero
    live.wasReady = true
    live.settled = true
    record.situation = .living(live)
    var host = Host(0, governor: nil, cause: CommonCauseSpec())
    for number in 0..<3 {
      var spec = ServiceSpec(name: Host.name(number), process: ProcessSpec(command: ["/bin/s"]))
      spec.late.budget = 0
      let stored = StoredRecord(record: record, mark: host.now, sameBoot: true)
      host.ids.append(host.fleet.add(spec, stored: stored, now: host.now))
      host.alive[number] = live.id
      host.tell(number, .adopted(live.id, pid: 5, startTicks: 5, readinessKnown: true))
      host.tell(number, .begin)
    }
    for number in 0..<3 { host.die(number) }
    #expect(host.fleet.commonCause?.settled == 3)
  }
}
