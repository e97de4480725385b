import GuardianModel
import Testing

@testable import GuardianCore

@Suite struct `a plan with a cause` {
  private func plan(_ deaths: [PlanDeath], _ change: (inout ServiceSpec) -> Void = { _ in }) throws -> [PlanEntry] {
    var spec = ServiceSpec(name: try #require(ServiceName("web")), process: ProcessSpec(command: ["/bin/x"]))
    change(&spec)
    return Fleet.plan(spec, deaths: deaths)
  }
  private func times(_ entries: [PlanEntry], _ action: String) -> [Int64] {
    entries.filter { $0.action == action }.map(\.earliest.milliseconds)
  }
  private let segv = Signal(name: "SEGV") ?? .kill

  @Test func `has a life before each death, and the pauses between them as without one`() throws {
    let at2s = try plan([PlanDeath(cause: .signal(segv), age: .seconds(2))])
    let atOnce = try plan([PlanDeath(cause: .signal(segv))])
    let starts = times(at2s, "start"), deaths = times(at2s, "death")
    #expect(zip(starts, deaths).allSatisfy { $1 - $0 == 2000 } && deaths.count >= 7)
    let pauses = zip(starts.dropFirst(), deaths).map { $0 - $1 }
    #expect(pauses == zip(times(atOnce, "start").dropFirst(), times(atOnce, "death")).map { $0 - $1 })
    #expect(at2s.contains { $0.action == "quarantine" && $0.strikes == 7 || $0.action == "quarantine" })
  }

  @Test func `knows a class that a restart cannot cure`() throws {
    let config = try plan([PlanDeath(cause: .exit(78), age: .seconds(1))]) {
      $0.repairs = [RepairSpec(name: "fix", kind: .run(["/bin/fix"]))]
    }
    // Its first strike ends the step restart.
    let first = try #require(config.firstIndex { $0.action == "death" })
    #expect(config[(first + 1)...].first { $0.action != "escalate" }?.action == "repair")
    let fatal = try plan([PlanDeath(cause: .exit(3), age: .seconds(1))]) { $0.fatalExit = [3] }
    #expect(times(fatal, "quarantine").first == 1000)
    #expect(times(fatal, "start").count == 1)
  }

  @Test func `after the startup window is a late death, and the budget counts them`() throws {
    let late = try plan([PlanDeath(cause: .exit(1), age: .seconds(90))])
    #expect(times(late, "settle").first == 60_000)
    let starts = times(late, "start"), deaths = times(late, "death")
    // Five within the budget are followed by a start at once; the sixth is a strike.
    #expect(zip(starts.dropFirst(), deaths).prefix(5).allSatisfy { $0 == $1 } && starts[6] > deaths[5])
    #expect(late.filter { $0.action == "death" }[5].text.contains("strike 1"))
    // Exactly at its end is not outlived.
    let edge = try plan([PlanDeath(cause: .exit(1), age: .seconds(60))])
    #expect(times(edge, "settle") == [] && edge.first { $0.action == "death" }?.strikes == 1)
  }

  @Test func `takes what guardian ends it for, what cannot be executed, and what the evidence says, as a drill does`()
    throws
  {
    func first(_ cause: DrillCause, _ change: (inout ServiceSpec) -> Void = { _ in }) throws -> [String] {
      try plan([PlanDeath(cause: cause)], change).map(\.action)
    }
    let usual = try first(.exit(1))
    for cause in [DrillCause.watchdog, .check] { #expect(try first(cause) == usual, "\(cause)") }
    #expect(try first(.exec).contains("quarantine"))
    // The first strike of such a class ends the step restart.
    let known = try first(.crashClass(.loader)) { $0.repairs = [RepairSpec(name: "fix", kind: .run(["/bin/fix"]))] }
    let death = try #require(known.firstIndex(of: "death"))
    #expect(known[(death + 1)...].first { $0 != "escalate" } == "repair")
    // Repairs are those that would run.
    for (cause, runs) in [(DrillCause.watchdog, true), (.exit(1), false)] {
      let actions = try first(cause) {
        var fix = RepairSpec(name: "fix", kind: .run(["/bin/fix"]))
        fix.on = [.cause("watchdog")]
        $0.repairs = [fix]
      }
      #expect(actions.contains("repair") == runs, "\(cause)")
    }
  }

  @Test func `takes several in turn`() throws {
    let both = try plan([
      PlanDeath(cause: .exit(1), age: .seconds(1)), PlanDeath(cause: .oom, age: .seconds(5)),
    ])
    let lives = zip(times(both, "start"), times(both, "death")).map { $1 - $0 }
    #expect(lives.prefix(4) == [1000, 5000, 1000, 5000])
  }

  @Test func `is ready at once however that is told, and checks and watchdog do not end it`() throws {
    for ready in [Readiness.notify, .descriptor(3), .check] {
      let entries = try plan([PlanDeath(cause: .exit(1), age: .seconds(70))]) {
        $0.ready = ready
        $0.watchdog = .seconds(1)
        $0.checks = [CheckSpec(name: "a", kind: .exec(["/bin/check"]))]
      }
      #expect(times(entries, "settle").first == 60_000 && times(entries, "death").first == 70_000, "\(ready)")
    }
  }

  @Test func `of a long life has an end all the same`() throws {
    for age in [Duration.hour, .day, PlanDeath.longestLife] {
      let entries = try plan([PlanDeath(cause: .exit(1), age: age)]) {
        $0.process.plugins = [PluginSpec(name: "a")]
      }
      #expect(!entries.isEmpty && entries.count <= 64)
      #expect(times(entries, "death").first == age.milliseconds)
    }
  }
}
