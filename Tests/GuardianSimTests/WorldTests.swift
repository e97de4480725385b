import GuardianModel
import GuardianSim
import Testing

@Suite struct `a world` {
  @Test(arguments: UInt64(1)...8)
  func `breaks no rule under faults, settles when they end, and stops when told to`(seed: UInt64) throws {
    var world = World(seed: seed, services: 60)
    try world.run(for: .seconds(7200))
    world.stopFaults()
    try world.run(for: world.settlingBound)
    #expect(world.unsettled.isEmpty, "replay: guardian-sim --seed \(seed) --services 60")
    try world.checkStatus()
    try world.shutDown()
  }

  /// A world in which the rule was broken once, or the checker knew it worse than the machine.
  struct Found: CustomTestStringConvertible {
    var seed: UInt64, services = 10, minutes: Int64, what: String
    var testDescription: String { "\(what) (seed \(seed))" }
  }
  @Test(arguments: [
    Found(
      seed: 2449, minutes: 30,
      what: "uncounted restarts of a common cause make the delay of the first strike after it longer"),
    Found(seed: 706, minutes: 25, what: "a before-start that ends well after its time-out has failed the trial"),
    Found(seed: 1149, minutes: 15, what: "a repair that gives up during a common cause quarantines nobody"),
    Found(seed: 2679, minutes: 20, what: "an order takes over the trial whose before-start runs"),
    Found(seed: 341, services: 60, minutes: 76, what: "a run that goes by itself is not stopped by an order"),
    Found(seed: 40, services: 60, minutes: 120, what: "a start called off before its exec is under way no more"),
    Found(seed: 2, services: 60, minutes: 77, what: "an operator's trial goes on after a late death"),
  ])
  func `breaks no rule where one was broken before`(_ found: Found) throws {
    var world = World(seed: found.seed, services: found.services)
    try world.run(for: .seconds(found.minutes * 60))
    try world.checkStatus()
  }

  @Test func `goes through everything there is: starts, repairs, quarantines`() throws {
    var world = World(seed: 1, services: 200)
    try world.run(for: .seconds(3600))
    #expect(world.spawns > 500)
    #expect(world.hooks > 20)
    #expect(world.quarantines > 20)
  }

  @Test func `is the same every time, and another one for another seed`() throws {
    func story(_ seed: UInt64) throws -> [String] {
      var world = World(seed: seed, services: 20, tracing: 3)
      try world.run(for: .seconds(3600))
      return world.trace + ["\(world.events) \(world.spawns)"]
    }
    let seven = try story(7)
    #expect(try story(7) == seven)
    #expect(try story(8) != seven)
  }
}

@Suite struct `the simulator` {
  /// What must be said of each bug, so that it is caught for the right reason.
  struct Case: CustomTestStringConvertible {
    var bug: PlantedBug, says: [String]
    var testDescription: String { bug.rawValue }
  }
  @Test(arguments: [
    Case(bug: .unsavedStart, says: ["before its start ticket was saved"]),
    Case(bug: .doubleSpawn, says: ["a second live run"]),
    Case(
      bug: .lostDeath,
      says: ["but not alive", "of what does not run", "neither settled nor given up", "unanswered", "no strike"]),
    Case(bug: .restartInQuarantine, says: ["without a save", "started in quarantine"]),
    Case(bug: .twoStepsAtOnce, says: ["by the definition to repair"]),
    Case(bug: .forgottenStrikes, says: ["by the deaths"]),
    Case(bug: .lostAnswer, says: ["unanswered"]),
    Case(
      bug: .impatience,
      says: ["before its delay is over", "settled", "came down", "too early", "before its start ticket was saved"]),
    Case(bug: .unpreparedStart, says: ["without a before-start"]),
    Case(
      bug: .probeInverted,
      says: ["check that is not passing", "no say yet", "a check has failed, and the run goes on"]),
    Case(bug: .doubleRate, says: ["more starts than", "under way at once"]),
    Case(bug: .noticeFlood, says: ["a flood of notices"]),
    Case(bug: .everyFileSuspect, says: ["a file is suspected", "by the definition"]),
    Case(bug: .rashConfirmation, says: ["has not confirmed that its plugins are off"]),
    Case(bug: .blindToEntries, says: ["with a plugin of its directory on"]),
    Case(bug: .wrongSet, says: ["a probe with other plugins than the search has asked for", "a pinned plugin is off"]),
    Case(bug: .probeCounted, says: ["a probe's death is a strike", "strike 1 on step safe-mode"]),
    Case(bug: .eagerMitigation, says: ["a mitigation"]),
    Case(bug: .staleTable, says: ["all is said to be well"]),
    Case(bug: .thawed, says: ["during a common cause"]),
    Case(bug: .ownCure, says: ["released by guardian's own restoration"]),
    Case(bug: .emptiedTooSoon, says: ["processes of the run before are left", "is left", "set is not empty"]),
    Case(bug: .endlessReload, says: ["two reloads at once", "a reload outlives its run", "a reload that never ends"]),
  ])
  func `catches a bug planted on purpose within a few seeds`(_ c: Case) {
    var caught: Violation?
    for seed in UInt64(1)...4 where caught == nil {
      var world = World(seed: seed, services: 50, bug: c.bug)
      do {
        try world.run(for: .seconds(7200))
        world.stopFaults()
        try world.run(for: world.settlingBound)
        try world.checkSettled()
      } catch { caught = error }
    }
    #expect(caught != nil)
    let rule = caught?.rule ?? ""
    #expect(c.says.contains { rule.contains($0) }, "caught for another reason: \(rule)")
  }

  @Test func `knows every planted bug by a name for the command line`() {
    for bug in PlantedBug.allCases { #expect(PlantedBug(rawValue: bug.rawValue) == bug) }
    #expect(PlantedBug.allCases.count == 24)
  }
}
