import GuardianModel
import Testing

@testable import GuardianCore

private func off(
  _ file: String = "a.yaml", until: WallTime? = nil, of services: Switch.Services = .all,
  _ change: (inout Switch) -> Void
) -> Switch {
  var value = Switch(file: file, reason: "OPS-1", until: until, services: services)
  change(&value)
  return value
}

@Suite struct `a switch of this host` {
  @Test func `turns a step off, whose strikes go to the restart step, and the skip is recorded`() {
    var talk = Conversation(fullService())
    talk.set([off { $0.steps = [.repair] }])
    #expect(
      talk.told.map(\.kind) == [
        .switchInForce(file: "a.yaml", what: "step repair", reason: "OPS-1", until: nil)
      ])
    #expect(talk.status.strikesAllowed == 5)
    for _ in 1...4 { talk.crash() }
    #expect(talk.step == .restart)
    talk.crash()
    #expect(talk.step == .safeMode && talk.hooks.isEmpty)
    #expect(talk.occurrences.contains(.escalated(from: .restart, to: .safeMode, skipped: [.repair])))
    #expect(talk.occurrences.contains(.stepSwitchedOff(.repair, file: "a.yaml")))
    #expect(talk.status.switches.map(\.file) == ["a.yaml"])
  }

  @Test func `of a group is one of whoever is in it`() throws {
    let shop = try #require(ServiceName("shop"))
    var group = off(of: .named([])) { $0.steps = [.repair] }
    group.groups = [shop]
    var talk = Conversation(fullService())
    talk.set([group])
    #expect(talk.status.switches.isEmpty && talk.status.strikesAllowed == 3)
    talk.define(fullService { $0.groups = [shop] })
    #expect(talk.status.switches.map(\.file) == ["a.yaml"] && talk.status.strikesAllowed == 5)
    talk.define(fullService())
    #expect(talk.status.switches.isEmpty)
  }

  @Test func `that has gone leaves everything as the definition says`() {
    var talk = Conversation(fullService())
    talk.set([off { $0.steps = [.repair] }])
    talk.set([])
    #expect(talk.told.last?.kind == .switchOver(file: "a.yaml", what: "step repair", why: "its file is gone"))
    #expect(talk.status.switches.isEmpty && talk.status.strikesAllowed == 3)
    for _ in 1...3 { talk.crash() }
    #expect(talk.phase == .repairing)
  }

  @Test func `takes a service that stands on the step to the one below, at once`() {
    var talk = Conversation(fullService())
    for _ in 1...3 { talk.crash() }
    #expect(talk.phase == .repairing && talk.step == .repair)
    talk.set([off { $0.steps = [.repair] }])
    #expect(talk.step == .restart && talk.status.strikes == 0)
    #expect(talk.occurrences.last == .stepSwitchedOff(.repair, file: "a.yaml"))
    // The repair that runs goes on to its end, and no other one follows.
    let hooks = talk.hooks.count
    talk.tell(.hookEnded(talk.hooks[hooks - 1].id, .failed(.code(1))))
    #expect(talk.hooks.count == hooks && talk.phase == .starting)
  }

  @Test func `turns the ladder off as escalation off does`() {
    var talk = Conversation(fullService())
    for _ in 1...3 { talk.crash() }
    talk.set([off { $0.ladder = true }])
    #expect(talk.step == .restart)
    #expect(talk.occurrences.contains(.released(why: "the ladder is switched off by a.yaml")))
    talk.repairAll()
    for _ in 1...20 {
      talk.end()
      talk.pass(.seconds(70))
    }
    #expect(talk.step == .restart && talk.hooks.count == 1 && talk.status.strikesAllowed == 0)
    talk.set([])
    talk.end()
    talk.pass(.seconds(70))
    #expect(talk.phase == .repairing)
  }

  @Test func `turns quarantine off, whatever would lead there, and lets out who is in it`() {
    var talk = Conversation(service { $0.fatalExit = [9] })
    #expect(talk.dieOut() == 7)
    talk.set([off { $0.steps = [.quarantine] }])
    #expect(talk.phase == .backingOff && talk.step == .restart)
    #expect(talk.occurrences.contains(.released(why: "quarantine is switched off by a.yaml")))
    for _ in 1...20 {
      talk.pass(.seconds(70))
      talk.end()
      #expect(talk.phase == .backingOff)
    }
    talk.pass(.seconds(70))
    talk.end(.code(9))
    #expect(talk.phase == .backingOff && talk.status.reason.contains("switched off by a.yaml"))
    #expect(talk.occurrences.contains(.stepSwitchedOff(.quarantine, file: "a.yaml")))
    #expect(talk.status.strikesAllowed == 0)
    talk.set([])
    #expect(talk.status.strikesAllowed == 7)
  }

  @Test func `keeps the restart step from ending`() {
    var talk = Conversation(fullService())
    talk.set([off { $0.steps = [.restart] }])
    for _ in 1...20 {
      talk.end()
      talk.pass(.seconds(70))
    }
    #expect(talk.step == .restart && talk.status.strikesAllowed == 0 && talk.hooks.isEmpty)
  }

  @Test func `concerns those it names, and several are joined, the first by file told`() throws {
    let name = fullService().name
    let other = try #require(ServiceName("other"))
    var talk = Conversation(fullService())
    talk.set([off(of: .named([other])) { $0.ladder = true }])
    #expect(talk.status.switches.isEmpty && talk.status.strikesAllowed == 3)
    talk.set([
      off("b.yaml", of: .named([name])) { $0.steps = [.repair] }, off("a.yaml") { $0.steps = [.repair, .quarantine] },
      off("c.yaml", of: .named([other, name])) { $0.steps = [.safeMode] },
    ])
    #expect(talk.status.switches.map(\.file) == ["a.yaml", "b.yaml", "c.yaml"])
    #expect(talk.fleet.switches.map(\.file) == ["a.yaml", "b.yaml", "c.yaml"])
    #expect(talk.status.strikesAllowed == 0)
    let switches = try #require(talk.fleet.machine(of: talk.id)).switches
    #expect(switches.first(turningOff: .repair)?.file == "a.yaml")
  }

  @Test func `is in force for a service from its first start on, and for one that was remembered`() {
    var talk = Conversation(fullService(), begin: false)
    talk.set([off { $0.steps = [.repair] }])
    var fleet = talk.fleet
    let another = fleet.add(fullService { $0.description = "x" }, record: nil, now: talk.now)
    #expect(fleet.status(of: another, now: talk.now).strikesAllowed == 5)
    var stored = ServiceRecord()
    stored.wanted = .up
    stored.step = .repair
    stored.strikes = 1
    let remembered = fleet.add(
      fullService(), stored: StoredRecord(record: stored, mark: talk.now, sameBoot: true), now: talk.now)
    #expect(fleet.status(of: remembered, now: talk.now).step == .restart)
  }

  @Test func `shows in what plan says`() {
    let entries = Fleet.plan(fullService(), switches: [off { $0.steps = [.repair, .safeMode] }])
    #expect(!entries.contains { $0.action == "repair" || $0.action == "plugins-off" })
    #expect(entries.filter { $0.action == "death" }.first?.strikesAllowed == 7)
    #expect(entries.contains { $0.action == "switched-off" })
  }
}

@Suite struct `the end of a switch` {
  private let start = Conversation(fullService()).now

  @Test func `comes at its time, with an event and without anything else happening`() {
    var talk = Conversation(fullService())
    talk.set([off(until: start.wall + .hour) { $0.ladder = true }])
    #expect(talk.fleet.nextDeadline.boot == start.boot + .hour)
    talk.pass(.hour - .milliseconds(1))
    #expect(talk.status.switches.count == 1)
    talk.pass(.milliseconds(1))
    #expect(talk.status.switches.isEmpty)
    #expect(talk.told.last?.kind == .switchOver(file: "a.yaml", what: "the ladder", why: "its time is over"))
    // The file lies there still, and changes nothing.
    talk.set([off(until: start.wall + .hour) { $0.ladder = true }])
    #expect(talk.status.switches.isEmpty && talk.told.count == 2)
  }

  @Test func `is not believed at once where the clock leaps over it`() {
    var talk = Conversation(fullService())
    talk.set([off(until: start.wall + .day) { $0.ladder = true }])
    talk.setWallClock(by: .day * 400)
    talk.pass(.minute * 9)
    #expect(talk.status.switches.count == 1)
    talk.setWallClock(by: .day * -400)
    talk.pass(.hour)
    #expect(talk.status.switches.count == 1)
    talk.setWallClock(by: .day * 400)
    talk.pass(.minute)
    talk.pass(.minute * 10)
    #expect(talk.status.switches.isEmpty)
  }

  @Test func `waits where the clock was set back`() {
    var talk = Conversation(fullService())
    talk.set([off(until: start.wall + .hour) { $0.ladder = true }])
    talk.setWallClock(by: .hour * -5)
    talk.pass(.hour * 2)
    #expect(talk.status.switches.count == 1)
    talk.pass(.hour * 4)
    #expect(talk.status.switches.isEmpty)
  }

  @Test func `comes while the machine sleeps`() {
    var talk = Conversation(fullService())
    talk.set([off(until: start.wall + .hour) { $0.ladder = true }])
    talk.sleep(.hour * 2)
    #expect(talk.status.switches.isEmpty)
  }

  @Test func `may be put off by another time in the file`() {
    var talk = Conversation(fullService())
    talk.set([off(until: start.wall + .hour) { $0.ladder = true }])
    talk.set([off(until: start.wall + .hour * 3) { $0.ladder = true }])
    talk.pass(.hour * 2)
    #expect(talk.status.switches.count == 1)
    talk.pass(.hour)
    #expect(talk.status.switches.isEmpty)
  }

  @Test func `of times at the ends of the range harms nothing`() {
    for extreme in [Int64.min, .max, 0] {
      var talk = Conversation(fullService())
      talk.set([off(until: WallTime(nanoseconds: extreme)) { $0.ladder = true }])
      talk.pass(.minute)
      #expect(talk.status.switches.isEmpty == (extreme != .max))
    }
  }
}
