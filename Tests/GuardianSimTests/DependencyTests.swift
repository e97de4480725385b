import GuardianSim
import Testing

@Suite struct `services that require each other, under faults` {
  @Test(arguments: UInt64(1)...16)
  func `start when they may, stop in order, are blamed for their own deaths only, and all come up`(
    seed: UInt64
  ) throws {
    var world = DependencyWorld(seed: seed, services: 24)
    try world.run(for: .seconds(900))
    try world.comeToRest()
    try world.shutDown()
    #expect(world.starts > 100 && world.deaths > 50 && world.kills > 2)
  }

  @Test func `have services that stand in for them in quarantine`() throws {
    let stoodIn = try (UInt64(1)...4).reduce(0) { sum, seed in
      var world = DependencyWorld(seed: seed, services: 24)
      try world.run(for: .seconds(900))
      return sum + world.stoodIn
    }
    #expect(stoodIn > 0)
  }

  @Test(arguments: DependencyWorld.Bug.allCases)
  func `are caught where they do not`(bug: DependencyWorld.Bug) {
    let caught = (UInt64(1)...8).contains { seed in
      var world = DependencyWorld(seed: seed, services: 24, bug: bug)
      do {
        try world.run(for: .seconds(900))
        try world.comeToRest()
        try world.shutDown()
        return false
      } catch { return true }
    }
    #expect(caught)
  }
}
