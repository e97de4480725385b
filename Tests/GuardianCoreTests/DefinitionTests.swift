import GuardianCore
import GuardianModel
import Testing

/// A reload, seen by one service.
@Suite struct `a definition that changed` {
  private func changed(_ spec: ServiceSpec, _ change: (inout ServiceSpec) -> Void) -> ServiceSpec {
    var spec = spec
    change(&spec)
    return spec
  }

  @Test func `of a running service is in force, but for what its process was given at its birth`() {
    let spec = fullService { _ in }
    var talk = Conversation(spec)
    talk.settle()
    let starts = talk.spawns.count
    let new = changed(spec) {
      $0.stop.timeout = .seconds(3)
      $0.process.umask = 0o077
      $0.log = .none
    }
    let told = talk.define(new)
    #expect(told?.live == ["stop"])
    #expect(told?.atStart == ["umask", "log"])
    #expect(talk.status.pendingDefinition)
    #expect(talk.fleet.pending == [.init(name: spec.name.text, keys: ["umask", "log"])])
    #expect(talk.spawns.count == starts, "nothing restarts by surprise")

    // The same again is no change, and what is pending stays so.
    #expect(talk.define(new) == nil)
    #expect(talk.fleet.pending.count == 1)

    talk.order(.restart)
    talk.end(.signal(.term, core: false))
    talk.exec()
    #expect(talk.spawns.last?.request.spec == new)
    #expect(talk.fleet.pending.isEmpty && !talk.status.pendingDefinition)
  }

  @Test func `and changed back needs no restart any more`() {
    let spec = fullService { _ in }
    var talk = Conversation(spec)
    talk.settle()
    talk.define(
      changed(spec) {
        $0.process.umask = 0o077
        $0.log = .none
      })
    let told = talk.define(spec)
    #expect(told?.live == ["umask", "log"] && told?.atStart == [])
    #expect(talk.fleet.pending.isEmpty)
  }

  @Test func `of a service that is down is in force at once`() {
    let spec = fullService { $0.start = .manual }
    var talk = Conversation(spec)
    let told = talk.define(changed(spec) { $0.process.umask = 0o077 })
    #expect(told?.live == ["umask"] && told?.atStart == [] && told?.note == "")
    #expect(talk.fleet.pending.isEmpty)
  }

  @Test func `of a service that waits for its restart starts it, with a fresh ladder`() {
    let spec = fullService { _ in }
    var talk = Conversation(spec)
    talk.exec()
    talk.end()
    #expect(talk.phase == .backingOff && talk.status.strikes == 1)
    let told = talk.define(changed(spec) { $0.process.umask = 0o077 })
    #expect(told?.live == ["umask"] && told?.note == "starts now, with a fresh ladder")
    #expect(talk.status.strikes == 0)
    #expect(talk.spawns.last?.request.spec.process.umask == 0o077)
    #expect(talk.fleet.pending.isEmpty)
  }

  @Test func `is told by a copy of the fleet, which leaves the fleet as it was`() {
    let spec = fullService { _ in }
    var talk = Conversation(spec)
    talk.settle()
    let before = talk.status
    var copy = talk.fleet
    let told = copy.define(changed(spec) { $0.process.umask = 0o077 }, for: talk.id, now: talk.now)
    #expect(told?.atStart == ["umask"])
    #expect(copy.pending.count == 1 && talk.fleet.pending.isEmpty)
    #expect(talk.status == before)
  }
}
