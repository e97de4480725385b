package import GuardianModel

extension ServiceSpec {
  /// A step with nothing to do is skipped. With `escalation: off` there is nothing to do but restarts.
  package func hasSomethingToDo(on step: Step) -> Bool {
    switch step {
    case .restart, .quarantine: true
    case .repair: escalation.enabled && !repairs.isEmpty
    case .safeMode: escalation.enabled && !process.plugins.isEmpty
    }
  }

  /// How many strikes in a row end `step`. A skipped step's strikes are added to the restart step, so that a service
  /// without repairs and plugins is not given up any sooner. 0: no number ends it.
  package func strikesAllowed(on step: Step) -> Int {
    guard escalation.enabled else { return 0 }
    switch step {
    case .restart:
      return escalation.restart + (hasSomethingToDo(on: .repair) ? 0 : escalation.repair)
        + (hasSomethingToDo(on: .safeMode) ? 0 : escalation.safeMode)
    case .repair: return escalation.repair
    case .safeMode: return escalation.safeMode
    case .quarantine: return 0
    }
  }

  /// The next step up that has something to do, and those passed over.
  package func step(after step: Step) -> (step: Step, skipped: [Step]) {
    var skipped: [Step] = []
    for candidate in Step.allCases where candidate > step {
      if hasSomethingToDo(on: candidate) { return (candidate, skipped) }
      skipped.append(candidate)
    }
    return (.quarantine, skipped)
  }

  /// The next step down that has something to do.
  package func step(below step: Step) -> Step {
    Step.allCases.last { $0 < step && hasSomethingToDo(on: $0) } ?? .restart
  }
}
