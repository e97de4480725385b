package import GuardianModel

// The rungs of one service's ladder, as its definition has them and the switches of this host leave them.

extension ServiceSpec {
  /// Strikes move it up.
  package func escalates(_ switches: Switches = .none) -> Bool { escalation.enabled && !switches.ladder }

  /// A step with nothing to do is skipped, and so is one that is switched off. With `escalation: off` there is nothing to do
  /// but restarts.
  package func hasSomethingToDo(on step: Step, _ switches: Switches = .none) -> Bool {
    switch step {
    case .restart: true
    case .quarantine: !switches.turnsOff(.quarantine)
    case .repair: escalates(switches) && !switches.turnsOff(step) && !repairs.isEmpty
    case .safeMode: escalates(switches) && !switches.turnsOff(step) && process.plugins.contains { !$0.isIdle }
    }
  }

  /// How many strikes in a row end `step`. A skipped step's strikes are added to the restart step, so that a service
  /// without repairs and plugins is not given up any sooner. 0: no number ends it.
  package func strikesAllowed(on step: Step, _ switches: Switches = .none) -> Int {
    guard escalates(switches), self.step(after: step, switches) != nil else { return 0 }
    switch step {
    case .restart:
      if switches.turnsOff(.restart) { return 0 }
      return escalation.restart + (hasSomethingToDo(on: .repair, switches) ? 0 : escalation.repair)
        + (hasSomethingToDo(on: .safeMode, switches) ? 0 : escalation.safeMode)
    case .repair: return escalation.repair
    case .safeMode: return escalation.safeMode
    case .quarantine: return 0
    }
  }

  /// The next step up that has something to do, and those passed over; nil: there is none, since quarantine is switched off.
  package func step(after step: Step, _ switches: Switches = .none) -> (step: Step, skipped: [Step])? {
    var skipped: [Step] = []
    for candidate in Step.allCases where candidate > step {
      if hasSomethingToDo(on: candidate, switches) { return (candidate, skipped) }
      skipped.append(candidate)
    }
    return nil
  }

  /// The next step down that has something to do.
  package func step(below step: Step, _ switches: Switches = .none) -> Step {
    Step.allCases.last { $0 < step && hasSomethingToDo(on: $0, switches) } ?? .restart
  }
}

extension ServiceMachine {
  var escalates: Bool { spec.escalates(switches) }
  func hasSomethingToDo(on step: Step) -> Bool { spec.hasSomethingToDo(on: step, switches) }
  package func strikesAllowed(on step: Step) -> Int { spec.strikesAllowed(on: step, switches) }
  func step(after step: Step) -> (step: Step, skipped: [Step])? { spec.step(after: step, switches) }
  func step(below step: Step) -> Step { spec.step(below: step, switches) }
}
