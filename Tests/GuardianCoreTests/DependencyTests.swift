import GuardianModel
import Testing

@testable import GuardianCore

/// Several services, in a world that does at once what it is told: what is spawned is born, what gets TERM ends.
struct FleetTalk {
  var fleet: Fleet
  private(set) var now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 1_790_000_000_000_000_000))
  private(set) var ids: [String: ServiceID] = [:]
  private(set) var runs: [String: RunID] = [:]
  /// `+web` a start, `-web` the stop signal, `×web` an end; in order.
  private(set) var story: [String] = []
  private(set) var said: [String: [Occurrence.Kind]] = [:]
  private(set) var answers: [UInt64: Fleet.Answer] = [:]
  private(set) var saved: [String: ServiceRecord] = [:]
  private(set) var allStopped = false
  /// Those that do not end at TERM.
  var stubborn: Set<String> = []
  private var requests: UInt64 = 0
  private var pids: Int32 = 100

  init(_ specs: ServiceSpec...) { self.init(specs) }
  init(_ specs: [ServiceSpec], stored: [String: StoredRecord] = [:], begin: Bool = true) {
    fleet = Fleet(seed: (1, 2, 3, 4))
    for spec in specs { ids[spec.name.text] = fleet.add(spec, stored: stored[spec.name.text], now: now) }
    if begin { self.begin() }
  }

  mutating func begin() {
    for (_, id) in ids.sorted(by: { $0.key < $1.key }) { fleet.handle(.begin, for: id, now: now) }
    listen()
  }

  func id(_ name: String) -> ServiceID { ids[name] ?? ServiceID(-1) }
  func machine(_ name: String) -> ServiceMachine? { fleet.machine(of: id(name)) }
  func status(_ name: String) -> ServiceStatus { fleet.status(of: id(name), now: now) }
  func phase(_ name: String) -> PhaseName { status(name).phase }
  func reason(_ name: String) -> String { status(name).reason }
  func strikes(_ name: String) -> Int { status(name).strikes }
  func count(_ name: String, _ what: String) -> Int {
    (said[name] ?? []).count { kind in
      ServiceName(name).map { Occurrence(service: $0, at: now.wall, kind: kind).name == what } ?? false
    }
  }
  mutating func takeStory() -> [String] {
    defer { story = [] }
    return story
  }

  mutating func tell(_ name: String, _ event: ServiceEvent) {
    fleet.handle(event, for: id(name), now: now)
    listen()
  }
  mutating func add(_ spec: ServiceSpec) {
    ids[spec.name.text] = fleet.add(spec, record: nil, now: now)
    tell(spec.name.text, .begin)
  }
  @discardableResult mutating func order(_ verb: Command.Verb, _ name: String, wait: Bool = true) -> UInt64 {
    requests += 1
    fleet.order(Command(verb, by: "test"), for: id(name), request: RequestID(requests), wait: wait, now: now)
    listen()
    return requests
  }
  mutating func ready(_ name: String) { tell(name, .ready(runs[name] ?? RunID(high: 0, low: 0))) }
  mutating func die(_ name: String, _ status: GuardianModel.ExitStatus = .code(1)) {
    guard let run = runs[name] else { return }
    story.append("×\(name)")
    fleet.handle(.ended(run, Death(status)), for: id(name), now: now)
    fleet.handle(.emptied(run), for: id(name), now: now)
    listen()
  }
  mutating func shutDown() {
    fleet.shutDown(now: now)
    listen()
  }

  mutating func pass(_ time: Duration) {
    let end = now.advanced(by: time)
    for _ in 0..<1_000_000 {
      let due = fleet.nextDeadline
      var next = end
      if let at = due.monotonic, at < next.monotonic { next = now.advanced(by: max(.zero, at - now.monotonic)) }
      if let at = due.boot, at < next.boot { next = now.advanced(by: max(.zero, at - now.boot)) }
      now = next
      fleet.passTime(now: now)
      listen()
      if next.monotonic >= end.monotonic { return }
    }
  }

  private mutating func listen() {
    while true {
      let output = fleet.takeOutput()
      if output.isEmpty { return }
      for item in output {
        switch item {
        case .act(let id, let action): perform(action, id)
        case .answer(let request, let answer): answers[request.number] = answer
        case .commonCause, .record: break
        case .allStopped: allStopped = true
        }
      }
    }
  }

  private mutating func perform(_ action: Action, _ id: ServiceID) {
    let name = fleet.spec(of: id)?.name.text ?? ids.first { $0.value == id }?.key ?? ""
    switch action {
    case .spawn(let request):
      story.append("+\(name)")
      runs[name] = request.run
      pids += 1
      fleet.handle(.spawned(request.run, pid: pids, executable: nil), for: id, now: now)
    case .signal(let run, _):
      story.append("-\(name)")
      if stubborn.contains(name) { return }
      fleet.handle(.ended(run, Death(.signal(.term, core: false))), for: id, now: now)
      fleet.handle(.emptied(run), for: id, now: now)
    case .signalSet(let run, .kill):
      fleet.handle(.ended(run, Death(.signal(.kill, core: false))), for: id, now: now)
      fleet.handle(.emptied(run), for: id, now: now)
    case .look(let run): fleet.handle(.looked(run, .alive), for: id, now: now)
    case .examine(let report): fleet.handle(.examined(report.end.run, Finding()), for: id, now: now)
    case .save(let record, let ticket):
      saved[name] = record
      fleet.handle(.saved(ticket), for: id, now: now)
    case .record(let occurrence): said[occurrence.service.text, default: []].append(occurrence.kind)
    case .runHook(let hook): fleet.handle(.hookEnded(hook.id, .succeeded), for: id, now: now)
    case .signalSet, .signalHook, .notify, .watch, .enter, .forget, .reload, .probe, .endProbes, .measure: break
    }
  }
}

private func name(_ text: String) -> ServiceName { ServiceName(text) ?? service("bad").name }

private func service(
  _ text: String, requires: [String] = [], after: [String] = [], ready: Readiness = .none,
  _ change: (inout ServiceSpec) -> Void = { _ in }
) -> ServiceSpec {
  // Only names of this file: none of them is bad.
  guard let name = ServiceName(text) else { return service("bad") }
  var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/" + text]))
  spec.requires = requires.compactMap { ServiceName($0) }
  spec.after = after.compactMap { ServiceName($0) }
  spec.ready = ready
  change(&spec)
  return spec
}

@Suite struct `what a service requires` {
  @Test func `is waited for until it is ready, not until it has settled`() {
    var talk = FleetTalk(service("db", ready: .notify), service("web", requires: ["db"]))
    #expect(talk.takeStory() == ["+db"])
    #expect(talk.phase("web") == .waiting)
    #expect(talk.reason("web") == "waits for db (starting)")
    #expect(talk.status("web").waitsFor == ["db"])
    talk.ready("db")
    #expect(talk.takeStory() == ["+web"])
    #expect(talk.phase("web") == .running && !talk.status("db").settled)
    #expect(talk.reason("web") == "" && talk.status("web").waitsFor.isEmpty)
  }

  @Test func `is waited for in a chain, the names in any order`() {
    var talk = FleetTalk(
      service("a", requires: ["b"]), service("b", requires: ["c"]), service("c", requires: ["d"]),
      service("d", ready: .notify))
    #expect(talk.takeStory() == ["+d"])
    talk.ready("d")
    #expect(talk.takeStory() == ["+c", "+b", "+a"])
  }

  @Test func `may be a task, which is ready when it has finished well`() {
    var talk = FleetTalk(
      service("migrate") {
        $0.kind = .task
        $0.restart = .onCrash
      }, service("web", requires: ["migrate"]))
    #expect(talk.takeStory() == ["+migrate"])
    #expect(talk.reason("web") == "waits for migrate (not finished yet)")
    talk.die("migrate")
    talk.pass(.seconds(1))
    #expect(talk.takeStory() == ["×migrate", "+migrate"])
    talk.die("migrate", .code(0))
    #expect(talk.takeStory() == ["×migrate", "+web"])
    talk.order(.restart, "migrate", wait: false)
    #expect(talk.phase("web") == .running)
  }

  @Test func `that repeats as a task stays ready while it runs again`() {
    var talk = FleetTalk(
      service("sync") {
        $0.kind = .task
        $0.restart = .always
      }, service("web", requires: ["sync"]))
    talk.die("sync", .code(0))
    #expect(talk.phase("web") == .running)
    talk.pass(.seconds(2))
    talk.die("web")
    talk.pass(.seconds(2))
    #expect(talk.phase("sync") == .running && talk.phase("web") == .running)
  }

  @Test func `leaves those that run alone when it crashes, and holds up their restarts`() {
    var talk = FleetTalk(service("db"), service("web", requires: ["db"]))
    talk.pass(.seconds(5))
    _ = talk.takeStory()
    talk.die("db")
    #expect(talk.phase("db") == .backingOff && talk.phase("web") == .running)
    talk.die("web")
    #expect(talk.phase("web") == .waiting && talk.strikes("web") == 0)
    #expect(talk.takeStory() == ["×db", "×web"])
    talk.pass(.seconds(1))
    #expect(talk.takeStory() == ["+db", "+web"])
    #expect(talk.strikes("db") == 1 && talk.strikes("web") == 0)
  }

  @Test func `is blamed for a death within a second of its own, whichever is heard of first`() {
    for first in ["db", "web"] {
      var talk = FleetTalk(service("db"), service("web", requires: ["db"]))
      talk.pass(.seconds(5))
      talk.die(first)
      talk.pass(.milliseconds(200))
      talk.die(first == "db" ? "web" : "db")
      talk.pass(.milliseconds(100))
      #expect(talk.strikes("web") == 0, "\(first) first")
      #expect(talk.strikes("db") == 1, "\(first) first")
      talk.pass(.seconds(3))
      #expect(talk.phase("web") == .running)
      // A second later each stands for itself.
      talk.die("web")
      #expect(talk.strikes("web") == 1)
    }
  }

  @Test func `takes back even the strike that led to quarantine, if it dies within the second`() {
    var talk = FleetTalk(service("db"), service("web", requires: ["db"]))
    for _ in 0..<6 {
      talk.die("web")
      talk.pass(.seconds(90 - 35))
      if talk.phase("web") != .running { talk.pass(.seconds(70)) }
    }
    talk = FleetTalk(
      service("db"),
      service("web", requires: ["db"]) { $0.fatalExit = [3] })
    talk.pass(.seconds(5))
    talk.die("web", .code(3))
    #expect(talk.phase("web") == .quarantined)
    talk.pass(.milliseconds(500))
    talk.die("db")
    #expect(talk.phase("web") == .waiting && talk.status("web").step == .restart)
    talk.pass(.seconds(2))
    #expect(talk.phase("web") == .running)
  }

  @Test func `is not blamed for what happens more than a second after it is ready again`() {
    var talk = FleetTalk(service("db"), service("web", requires: ["db"]))
    talk.pass(.seconds(70))
    talk.die("db")  // late: restarted at once
    talk.pass(.milliseconds(1001))
    talk.die("web", .code(1))
    #expect(talk.count("web", "late-death") == 1)
    talk = FleetTalk(service("db"), service("web", requires: ["db"]))
    talk.pass(.seconds(70))
    talk.die("db")
    talk.pass(.milliseconds(999))
    talk.die("web", .code(1))
    #expect(talk.count("web", "late-death") == 0 && talk.count("web", "not-counted") == 1)
    talk.pass(.seconds(1))
    #expect(talk.phase("web") == .running)
  }

  @Test func `that is quarantined, held, stopped, crashed for good or undefined is named by those that wait`() {
    var talk = FleetTalk(
      service("db") { $0.fatalExit = [9] }, service("held"), service("off") { $0.start = .manual },
      service("once") {
        $0.kind = .task
        $0.restart = .never
      },
      service("w1", requires: ["db"]), service("w2", requires: ["held"]), service("w3", requires: ["off"]),
      service("w4", requires: ["once"]), service("w5", requires: ["nobody"]))
    talk.order(.hold(.hour), "held")
    for (name, status) in [("db", GuardianModel.ExitStatus.code(9)), ("held", .code(1)), ("once", .code(1))] {
      talk.die(name, status)
    }
    talk.pass(.seconds(2))
    for web in ["w1", "w2"] {
      talk.die(web)
      talk.pass(.seconds(2))
    }
    #expect(talk.reason("w1") == "waits for db (quarantined)")
    #expect(talk.reason("w2") == "waits for held (held)")
    #expect(talk.reason("w3") == "waits for off (stopped)")
    #expect(talk.reason("w4") == "waits for once (crashed)")
    #expect(talk.reason("w5") == "waits for nobody (without a valid definition)")
    for web in ["w1", "w2", "w3", "w4", "w5"] {
      #expect(talk.phase(web) == .waiting)
      let request = talk.order(.start, web)
      // What has crashed for good and is wanted is started again for it.
      if web == "w4" {
        #expect(talk.phase("once") == .running && talk.answers[request] == nil)
        continue
      }
      guard case .failed(let why)? = talk.answers[request] else {
        Issue.record("\(web): no answer that says what it waits for")
        continue
      }
      #expect(why.hasPrefix("it is wanted up now, and waits for "), "\(why)")
    }
    let summary = talk.fleet.summary().line
    #expect(summary.contains("w1 for db"), "\(summary)")
    // And all of them come when they can.
    talk.order(.release, "db")
    talk.order(.hold(.zero), "held")
    talk.order(.start, "off")
    talk.die("once", .code(0))
    talk.add(service("nobody"))
    talk.pass(.seconds(1))
    for web in ["w1", "w2", "w3", "w4", "w5"] { #expect(talk.phase(web) == .running, "\(web)") }
  }

  @Test func `is started with it by an operator, where it is wanted and only rests`() {
    var talk = FleetTalk(service("db"), service("web", requires: ["db"]) { $0.start = .manual })
    talk.die("db")
    #expect(talk.phase("db") == .backingOff)
    let request = talk.order(.start, "web")
    #expect(talk.phase("db") == .running && talk.phase("web") == .running)
    #expect(talk.answers[request] == .done(note: ""))
  }

  @Test func `an order that waits for it is answered when it comes, or cannot come any more`() {
    var talk = FleetTalk(
      service("db", ready: .notify) { $0.fatalExit = [9] }, service("web", requires: ["db"]) { $0.start = .manual })
    let request = talk.order(.start, "web")
    let quick = talk.order(.start, "web", wait: false)
    #expect(talk.answers[request] == nil)
    #expect(talk.answers[quick] == .done(note: "waits for db (starting)"))
    talk.ready("db")
    #expect(talk.answers[request] == .done(note: ""))
    talk.order(.stop(untilBoot: false), "web")
    talk.die("db", .code(1))
    let second = talk.order(.start, "web")
    talk.die("db", .code(9))
    #expect(talk.answers[second] == .failed(reason: "it is wanted up now, and waits for db (quarantined)"))
  }

  @Test func `keeps a trial waiting in quarantine`() {
    var talk = FleetTalk(
      service("db", ready: .notify), service("web", requires: ["db"]) { $0.fatalExit = [9] })
    talk.ready("db")
    talk.die("web", .code(9))
    talk.pass(.seconds(5))
    talk.order(.stop(untilBoot: false), "db")
    _ = talk.takeStory()
    talk.pass(.hour)
    #expect(talk.phase("web") == .quarantined && talk.takeStory() == [])
    talk.order(.start, "db", wait: false)
    talk.pass(.seconds(1))
    #expect(talk.takeStory() == ["+db"])
    talk.ready("db")
    talk.pass(.seconds(1))
    #expect(talk.takeStory() == ["+web"])
  }
}

@Suite struct `a service that others require` {
  private func shop() -> FleetTalk {
    FleetTalk(
      service("db"), service("app", requires: ["db"]), service("web", requires: ["app"]),
      service("other"))
  }

  @Test func `is stopped after them, and brings them back`() {
    var talk = shop()
    _ = talk.takeStory()
    let request = talk.order(.stop(untilBoot: false), "db")
    #expect(talk.takeStory() == ["-web", "-app", "-db"])
    #expect(talk.answers[request] == .done(note: ""))
    #expect(talk.phase("db") == .stopped && talk.phase("app") == .waiting && talk.phase("web") == .waiting)
    #expect(talk.status("web").wanted == .up && talk.phase("other") == .running)
    #expect(talk.reason("app") == "waits for db (stopped)")
    let start = talk.order(.start, "db")
    #expect(talk.takeStory() == ["+db", "+app", "+web"])
    #expect(talk.answers[start] == .done(note: ""))
  }

  @Test func `is restarted in the same order`() {
    var talk = shop()
    _ = talk.takeStory()
    let request = talk.order(.restart, "db")
    #expect(talk.takeStory() == ["-web", "-app", "-db", "+db", "+app", "+web"])
    #expect(talk.answers[request] == .done(note: ""))
    for name in ["db", "app", "web"] { #expect(talk.strikes(name) == 0 && talk.status(name).restarts == 0) }
  }

  @Test func `runs on while they take their time, and says for whom`() {
    var talk = shop()
    talk.stubborn = ["web"]
    _ = talk.takeStory()
    let request = talk.order(.stop(untilBoot: false), "db")
    #expect(talk.takeStory() == ["-web"])
    #expect(talk.phase("db") == .running && talk.phase("app") == .running)
    #expect(talk.reason("db") == "stops when what needs it has stopped: app")
    #expect(talk.answers[request] == nil)
    talk.pass(.seconds(11))
    #expect(talk.phase("db") == .stopped)
    #expect(talk.answers[request] == .done(note: ""))
  }

  @Test func `may be wanted again meanwhile`() {
    var talk = shop()
    talk.stubborn = ["web"]
    let stop = talk.order(.stop(untilBoot: false), "db")
    let start = talk.order(.start, "db")
    #expect(talk.answers[stop] == .failed(reason: "started by another order"))
    #expect(talk.answers[start] == .done(note: "already running"))
    talk.pass(.seconds(11))
    #expect(talk.phase("db") == .running && talk.phase("app") == .running && talk.phase("web") == .running)
  }

  @Test func `that dies while it waits for them has been stopped by order`() {
    var talk = shop()
    talk.stubborn = ["web"]
    let stop = talk.order(.stop(untilBoot: false), "db")
    talk.die("db")
    #expect(talk.phase("db") == .stopped && talk.strikes("db") == 0)
    #expect(talk.answers[stop] == .done(note: ""))
  }

  @Test func `is stopped after them when its file is removed`() {
    var talk = shop()
    _ = talk.takeStory()
    talk.tell("db", .removed)
    #expect(talk.takeStory() == ["-web", "-app", "-db"])
    #expect(talk.fleet.id(named: name("db")) == nil)
    #expect(talk.reason("app") == "waits for db (without a valid definition)")
    talk.add(service("db"))
    #expect(talk.takeStory() == ["+db", "+app", "+web"])
  }

  @Test func `is not stopped before a dependent that is held, but without it`() {
    var talk = FleetTalk(service("db"), service("web", requires: ["db"]))
    talk.order(.hold(.hour), "web")
    _ = talk.takeStory()
    talk.order(.stop(untilBoot: false), "db")
    #expect(talk.takeStory() == ["-db"])
    #expect(talk.phase("web") == .running)
  }

  @Test func `stops in reverse order with guardian, those that come after it first too`() {
    var talk = FleetTalk(
      service("db"), service("app", requires: ["db"]), service("web", after: ["app"]), service("other"))
    _ = talk.takeStory()
    talk.stubborn = ["web"]
    talk.shutDown()
    #expect(talk.takeStory() == ["-web", "-other"] || talk.story == ["-other", "-web"])
    talk.pass(.seconds(11))
    #expect(talk.takeStory() == ["-app", "-db"])
    #expect(talk.allStopped)
    #expect(talk.saved["web"]?.wanted == .up)
  }

  @Test func `does not wait for what the kernel does not let go`() {
    var talk = FleetTalk(service("db"), service("web", requires: ["db"]))
    talk.stubborn = ["web"]
    talk.shutDown()
    talk.pass(.seconds(10))
    #expect(talk.phase("db") == .stopped)
  }
}

@Suite struct `what a service comes after` {
  @Test func `is waited for where both start together`() {
    var talk = FleetTalk(service("a-web", after: ["cache"]), service("cache", ready: .notify))
    #expect(talk.takeStory() == ["+cache"])
    #expect(talk.reason("a-web") == "starts after cache (starting)")
    talk.ready("cache")
    #expect(talk.takeStory() == ["+a-web"])
  }

  @Test func `does not matter otherwise`() {
    var talk = FleetTalk(
      service("web", after: ["cache", "nobody"]), service("cache", ready: .notify) { $0.start = .manual })
    #expect(talk.takeStory() == ["+web"])
    talk.order(.start, "cache", wait: false)
    talk.order(.stop(untilBoot: false), "cache")
    #expect(talk.phase("web") == .running)
  }

  @Test func `holds nothing up once it has failed`() {
    var talk = FleetTalk(service("web", after: ["cache"]), service("cache", ready: .notify))
    talk.die("cache")
    #expect(talk.takeStory() == ["+cache", "×cache", "+web"])
  }

  @Test func `may wait itself, and is waited for then`() {
    var talk = FleetTalk(
      service("a", after: ["b"]), service("b", requires: ["c"]), service("c", ready: .notify))
    #expect(talk.takeStory() == ["+c"])
    talk.ready("c")
    #expect(talk.takeStory() == ["+b", "+a"])
    talk = FleetTalk(service("a", after: ["b"]), service("b", requires: ["c"]), service("c") { $0.start = .manual })
    #expect(talk.takeStory() == ["+a"])
  }
}

@Suite struct `dependencies on the way` {
  @Test func `take effect with the next start when they are added`() {
    var talk = FleetTalk(service("db") { $0.start = .manual }, service("web"))
    talk.tell("web", .defined(service("web", requires: ["db"])))
    #expect(talk.phase("web") == .running)
    talk.die("web")
    talk.pass(.seconds(2))
    #expect(talk.phase("web") == .waiting && talk.strikes("web") == 0)
    talk.tell("web", .defined(service("web")))
    #expect(talk.phase("web") == .running)
  }

  @Test func `that would make a service wait for itself are left out, and shown`() {
    var talk = FleetTalk(service("a", requires: ["b"]), service("b"))
    talk.tell("b", .defined(service("b", requires: ["a"])))
    talk.order(.restart, "b")
    #expect(talk.phase("a") == .running && talk.phase("b") == .running)
    #expect(talk.status("b").notes == ["it does not wait for a, which waits for it: a cycle"])
  }

  @Test func `may be turned round by one reload`() {
    var talk = FleetTalk(service("a"), service("b", requires: ["a"]))
    talk.tell("a", .defined(service("a", requires: ["b"])))
    talk.tell("b", .defined(service("b")))
    #expect(talk.status("a").notes == [] && talk.status("b").notes == [])
    _ = talk.takeStory()
    talk.order(.restart, "b")
    #expect(talk.takeStory() == ["-a", "-b", "+b", "+a"])
  }

  @Test func `hold in mode observe as well`() {
    var talk = FleetTalk(
      service("db", ready: .notify) { $0.mode = .observe }, service("web", requires: ["db"]) { $0.mode = .observe })
    #expect(talk.takeStory() == ["+db"])
    talk.ready("db")
    #expect(talk.takeStory() == ["+web"])
  }

  @Test func `are in the plan`() {
    let talk = FleetTalk(service("db", ready: .notify), service("web", requires: ["db"]))
    let plan = talk.fleet.plan(for: talk.id("web"), now: talk.now)
    #expect(plan.first?.action == "wait" && plan.first?.text == "waits for db, which it requires; from then on")
    #expect(plan.dropFirst().first?.action == "start")
    #expect(plan.contains { $0.action == "quarantine" })
  }

  @Test func `outlive guardian: what waited waits again, what was leaving leaves`() {
    let specs = [service("db", ready: .notify), service("web", requires: ["db"])]
    var talk = FleetTalk(specs)
    func restarted(_ talk: FleetTalk) -> FleetTalk {
      let stored = talk.saved.mapValues { StoredRecord(record: $0, mark: talk.now, sameBoot: true) }
      var next = FleetTalk(specs, stored: stored, begin: false)
      for id in next.fleet.inStartOrder(next.fleet.ids) {
        for adoptee in next.fleet.adoptees(of: id) {
          next.fleet.handle(
            .adopted(adoptee.run, pid: 1, startTicks: 1, readinessKnown: true), for: id, now: next.now)
        }
      }
      next.begin()
      return next
    }
    talk = restarted(talk)
    #expect(talk.phase("db") == .starting && talk.phase("web") == .waiting)
    talk = FleetTalk(specs)
    talk.ready("db")
    talk.stubborn = ["web"]
    talk.order(.stop(untilBoot: false), "db")
    #expect(talk.phase("db") == .running && talk.phase("web") == .stopping)
    talk = restarted(talk)
    #expect(talk.phase("db") == .stopped && talk.phase("web") == .waiting)
    #expect(talk.status("db").wanted == .down && talk.status("web").wanted == .up)
  }

  @Test func `what died while guardian was away is judged in their order`() {
    let specs = [service("a-web", requires: ["db"]), service("db")]
    let talk = FleetTalk(specs)
    let stored = talk.saved.mapValues { StoredRecord(record: $0, mark: talk.now, sameBoot: true) }
    var next = FleetTalk(specs, stored: stored, begin: false)
    let order = next.fleet.inStartOrder(next.fleet.ids)
    #expect(order == [next.id("db"), next.id("a-web")])
    for id in order {
      for adoptee in next.fleet.adoptees(of: id) {
        next.fleet.handle(.ended(adoptee.run, Death(.unseen)), for: id, now: next.now)
        next.fleet.handle(.emptied(adoptee.run), for: id, now: next.now)
      }
    }
    next.begin()
    #expect(next.strikes("db") == 1 && next.strikes("a-web") == 0)
  }

  @Test func `I6: in a chain of ten thousand start and stop in order, without recursion`() {
    let count = 10_000
    func text(_ number: Int) -> String { "s\(100_000 + number)" }
    // Each requires the one that is named after it: the order of names is the worst.
    let specs = (0..<count).map { service(text($0), requires: $0 + 1 < count ? [text($0 + 1)] : []) }
    var talk = FleetTalk(specs)
    #expect(talk.takeStory() == (0..<count).reversed().map { "+" + text($0) })
    talk.order(.stop(untilBoot: false), text(count - 1))
    #expect(talk.takeStory() == (0..<count).map { "-" + text($0) })
    talk.order(.start, text(count - 1))
    #expect(talk.takeStory() == (0..<count).reversed().map { "+" + text($0) })
    talk.shutDown()
    #expect(talk.takeStory() == (0..<count).map { "-" + text($0) })
    #expect(talk.allStopped)
  }

  @Test func `of ten thousand on one cost no more`() {
    let count = 10_000
    let specs = [service("hub", ready: .notify)] + (0..<count).map { service("s\($0)", requires: ["hub"]) }
    var talk = FleetTalk(specs)
    #expect(talk.takeStory() == ["+hub"])
    talk.ready("hub")
    #expect(talk.takeStory().count == count)
    talk.order(.stop(untilBoot: false), "hub")
    #expect(talk.takeStory().last == "-hub")
    let all = service("all", requires: (0..<count).map { "s\($0)" })
    talk.add(all)
    talk.order(.start, "hub", wait: false)
    talk.ready("hub")
    #expect(talk.takeStory().last == "+all")
  }
}
