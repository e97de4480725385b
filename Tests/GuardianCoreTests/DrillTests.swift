import GuardianModel
import Testing

@testable import GuardianCore

@Suite struct `a drill` {
  private let now = Now(
    monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 1_790_000_000_000_000_000))

  private func drill(
    _ spec: ServiceSpec, _ cause: DrillCause = .usual, crashes: Int = 100, repairs: Bool = false,
    switches: [Switch] = []
  ) -> Drill {
    Drill(
      spec, switches: switches, Drill.Request(cause: cause, crashes: crashes, runsRepairs: repairs), seed: (1, 2, 3, 5),
      now: now)
  }
  private func spec(_ change: (inout ServiceSpec) -> Void = { _ in }) -> ServiceSpec {
    fullService { spec in
      spec.repairs.append(RepairSpec(name: "other", kind: .run(["/bin/other"])))
      change(&spec)
    }
  }

  @Test func `walks the ladder as plan has it, up to quarantine`() {
    var walk = drill(spec())
    let lines = walk.takeLines()
    #expect(walk.isOver && walk.awaited == nil && walk.takeLines().isEmpty)
    #expect(lines.last?.action == "quarantine" && lines.filter { $0.action == "death" }.count == 7)
    let plan = Fleet.plan(spec()).prefix { $0.action != "trial" }
    #expect(lines.map(\.action) == plan.map(\.action))
    #expect(lines.map(\.earliest) == plan.map(\.earliest))
  }

  @Test func `ends after so many crashes`() {
    var walk = drill(spec(), crashes: 2)
    let lines = walk.takeLines()
    #expect(
      walk.isOver && lines.filter { $0.action == "death" }.count == 2
        && lines.filter { $0.action == "start" }.count == 2)
    var forever = drill(spec { $0.escalation.enabled = false }, crashes: 1_000)
    #expect(forever.takeLines().filter { $0.action == "death" }.count == 1_000 && forever.isOver)
  }

  @Test func `dies as it is told to`() {
    var fatal = drill(spec { $0.fatalExit = [64] }, .exit(64))
    #expect(fatal.takeLines().filter { $0.action == "start" }.count == 1)
    var picky = drill(spec { $0.repairs[0].on = [.signal(.segv)] }, .signal(.segv))
    #expect(picky.takeLines().contains { $0.text.contains("repair fix") })
    var other = drill(spec { $0.repairs[0].on = [.signal(.segv)] }, .oom)
    #expect(!other.takeLines().contains { $0.text.contains("repair fix") })
  }

  @Test func `dies of what guardian itself ends it for, of what cannot be executed, and as its evidence says`() {
    for (cause, matcher) in [
      (DrillCause.check, CauseMatcher.cause("check")), (.watchdog, .cause("watchdog")),
      (.startTimeout, .cause("start-timeout")), (.exec, .cause("exec")), (.crashClass(.config), .crashClass(.config)),
      (.crashClass(.wild), .crashClass(.wild)),
    ] {
      var walk = drill(spec { $0.repairs[0].on = [matcher] }, cause)
      let lines = walk.takeLines()
      #expect(lines.contains { $0.text.contains("repair fix") }, "\(cause)")
      #expect(lines.last?.action == "quarantine" && walk.isOver, "\(cause)")
      var other = drill(spec { $0.repairs[0].on = [.exit(1)] }, cause)
      #expect(!other.takeLines().contains { $0.text.contains("repair fix") }, "\(cause)")
    }
    // A plain restart cannot cure it.
    var loader = drill(spec(), .exec)
    #expect(loader.takeLines().filter { $0.action == "death" && $0.step == .restart }.count == 1)
    // Within the late budget, and so without a strike.
    var killed = drill(spec(), .killed, crashes: 3)
    #expect(killed.takeLines().allSatisfy { $0.strikes == 0 })
  }

  @Test func `waits for each repair of each round, in order, and goes on by what it comes to`() {
    var walk = drill(spec(), repairs: true)
    var names: [String] = []
    while let hook = walk.awaited {
      #expect(!walk.isOver)
      names.append(hook.purpose.name)
      #expect(hook.context.step == .repair && hook.context.end?.status == .code(1))
      walk.repairEnded(names.count == 2 ? .failed(.code(3)) : .succeeded)
    }
    #expect(names == ["fix", "other", "fix", "other"] && walk.isOver)
    let ended = walk.takeLines().filter { $0.action == "repair-ended" }.map(\.text)
    #expect(
      ended == ["repair fix done", "repair other failed: exit 3", "repair fix done", "repair other done"])
    var hopeless = drill(spec(), repairs: true)
    hopeless.repairEnded(.cannotRepair)
    #expect(hopeless.isOver && hopeless.takeLines().last?.action == "quarantine")
  }

  @Test func `heeds the switches of the host`() {
    var off = Switch(file: "a.yaml", reason: "r", services: .all)
    off.steps = [.repair]
    var walk = drill(spec(), repairs: true, switches: [off])
    #expect(walk.awaited == nil && walk.isOver)
    #expect(!walk.takeLines().contains { $0.action == "repair" })
  }

  @Test func `has its cause as it is written`() {
    for text in [
      "exit:0", "exit:255", "signal:SEGV", "oom", "killed", "watchdog", "start-timeout", "check", "exec", "class:wild",
    ] { #expect(DrillCause(text)?.text == text) }
    #expect(DrillCause("signal:SIGSEGV") == .signal(.segv))
    for text in [
      "", "exit", "exit:", "exit:256", "exit:-1", "exit:+1", "signal:", "signal:X", "crash", "exit:1:2", "class:",
      "class:clean", "class:x",
    ] {
      #expect(DrillCause(text) == nil, "\(text)")
    }
  }
}
