import GuardianLinux
import Testing

@testable import GuardianRuntime

@Suite struct `the unit that guardian runs as` {
  @Test func `as shipped it gives no cause for a warning`() {
    let advice = UnitAdvice(OwnUnit(name: "guardian.service", killMode: "process", isDelegated: true))
    #expect(advice.warnings.isEmpty)
    #expect(advice.guarantee == "guardian.service: services outlive guardian")
  }

  @Test(arguments: ["control-group", "mixed"])
  func `G10: a kill mode that ends the services with guardian is named, with the way out`(mode: String) throws {
    let advice = UnitAdvice(OwnUnit(name: "own.service", killMode: mode, isDelegated: true, isUsers: true))
    let warning = try #require(advice.warnings.first)
    #expect(advice.warnings.count == 1)
    for part in ["own.service says KillMode=\(mode)", "systemctl --user edit own.service", "'KillMode=process'"] {
      #expect(warning.contains(part), "\(warning)")
    }
  }

  @Test func `a group that is not delegated is named too`() {
    let advice = UnitAdvice(OwnUnit(name: "guardian.service", killMode: "none", isDelegated: false))
    #expect(advice.warnings.count == 1 && advice.warnings.allSatisfy { $0.contains("'Delegate=yes'") })
  }
}
