import GuardianModel
import GuardianSim
import Testing

@Suite struct `a walk over all that one machine can come to` {
  @Test(arguments: [
    "everything", "no repairs, no plugins", "task", "on-crash", "observe", "ready: none", "before-start",
    "reload by signal", "reload by command",
    "checks", "ready: check", "restored files", "two plugins",
  ])
  func `meets no broken rule, and good fortune leads from everywhere to a settled service`(_ variant: String) throws {
    let spec = Walk.spec {
      switch variant {
      case "no repairs, no plugins":
        $0.repairs = []
        $0.process.plugins = []
      case "two plugins": $0.process.plugins.append(PluginSpec(name: "other"))
      case "task":
        $0.kind = .task
        $0.restart = .onCrash
        $0.ready = .none
      case "on-crash": $0.restart = .onCrash
      case "observe": $0.mode = .observe
      case "ready: none": $0.ready = .none
      case "before-start": $0.process.beforeStart = ["/bin/prepare"]
      case "restored files": $0.repairs = [RepairSpec(name: "config", kind: .restore(["/etc/walked"]))]
      case "reload by signal": $0.reload = .signal(.hup)
      case "reload by command": $0.reload = .command(["/bin/reload"])
      case "checks", "ready: check":
        var check = CheckSpec(name: "check", kind: .exec(["/bin/check"]))
        check.every = .seconds(3)
        check.failures = 2
        $0.checks = [check]
        $0.ready = variant == "checks" ? .none : .check
      default: break
      }
    }
    let walk = try Walk(#require(spec), limit: variant == "everything" ? 4000 : 1200)
    #expect(walk.states >= 300)
    #expect(walk.transitions > walk.states)
    // With `restart: always` nothing finishes, and with `on-crash` everything can be.
    if variant == "everything" { #expect(walk.phases == Set(PhaseName.allCases).subtracting([.finished])) }
    if variant == "on-crash" { #expect(walk.phases.contains(.finished)) }
  }

  @Test(arguments: 1...24 as ClosedRange<UInt64>)
  func `also on a long way meets no broken rule`(_ seed: UInt64) throws {
    try Walk.wander(#require(Walk.spec()), seed: seed, steps: 4000)
    try Walk.wander(#require(Walk.spec { $0.ready = .none }), seed: seed, steps: 2000)
    try Walk.wander(#require(Walk.spec { $0.reload = .signal(.hup) }), seed: seed, steps: 3000)
    try Walk.wander(#require(Walk.spec { $0.reload = .command(["/bin/reload"]) }), seed: seed, steps: 3000)
    try Walk.wander(#require(Walk.spec { $0.kind = .task }), seed: seed, steps: 2000)
    try Walk.wander(#require(Walk.spec { $0.process.beforeStart = ["/bin/prepare"] }), seed: seed, steps: 3000)
    let restored = Walk.spec { $0.repairs = [RepairSpec(name: "config", kind: .restore(["/etc/walked"]))] }
    try Walk.wander(#require(restored), seed: seed, steps: 2000)
    let pair = Walk.spec { spec in
      spec.process.plugins.append(PluginSpec(name: "other"))
      spec.plugins.acknowledge = seed % 3 == 0 ? .status("safe") : nil
      spec.plugins.when = seed % 2 == 0 ? .incident : .idle
    }
    try Walk.wander(#require(pair), seed: seed, steps: 4000)
    let patient = Walk.spec { $0.stop.then = [StopStep(signal: .int, timeout: .seconds(2))] }
    try Walk.wander(#require(patient), seed: seed, steps: 2000)
    for ready in [Readiness.none, .check] {
      let spec = Walk.spec {
        $0.ready = ready
        for name in ["one", "two"] {
          var check = CheckSpec(name: name, kind: .exec(["/bin/check"]))
          check.every = .seconds(2)
          check.failures = name == "one" ? 1 : 2
          check.successes = name == "one" ? 2 : 1
          $0.checks.append(check)
        }
      }
      try Walk.wander(#require(spec), seed: seed, steps: 2000)
    }
  }
}
