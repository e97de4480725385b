import GuardianModel

// Confirmation that plugins are off, by the service itself: `plugins.acknowledge`.
//
// Asked for in each run that has all plugins off. It decides nothing about the run: without it the switch is said to be
// unconfirmed, and nobody takes what the run comes to for what the service does without plugins.

extension ServiceMachine {
  /// A word of this run's is still missing.
  func isUnconfirmed(_ run: Run) -> Bool {
    spec.plugins.acknowledge != nil && !run.confirmed && hasPluginsOff(run)
  }

  /// All that guardian may switch off.
  private func hasPluginsOff(_ run: Run) -> Bool {
    !run.disabled.isEmpty
      && spec.process.plugins.allSatisfy {
        run.disabled.contains($0.name) || record.plugins[$0.name]?.pinned ?? false || $0.isIdle
      }
  }

  /// The checks of the definition that are probed in this run.
  func checksToProbe(_ run: Run) -> [CheckSpec] {
    guard case .check(let name)? = spec.plugins.acknowledge else { return spec.checks }
    return isUnconfirmed(run) ? spec.checks : spec.checks.filter { $0.name != name }
  }

  /// It says nothing about health.
  func isConfirmation(_ check: CheckSpec) -> Bool { spec.plugins.acknowledge == .check(check.name) }

  mutating func pluginsConfirmed(_ id: RunID, _ turn: inout Turn) {
    guard var run = phase.run, run.id == id, run.stage == .up, isUnconfirmed(run) else { return }
    run.confirmed = true
    switch phase {
    case .starting: phase = .starting(run)
    case .running: phase = .running(run)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: return
    }
    save()
    // It may have waited for this.
    if run.settled { tendPlugins(&turn) }
  }

  /// For `status`; nil: there is nothing to be said.
  var confirmationNote: String? {
    guard let wanted = spec.plugins.acknowledge, let run = phase.run, run.stage == .up, hasPluginsOff(run) else {
      return nil
    }
    let what =
      switch wanted {
      case .check(let name): "check \(name)"
      case .status(let text): "a STATUS= that begins with '\(text)'"
      }
    if run.confirmed { return "that plugins are off is confirmed by \(what)" }
    return run.settled
      ? "that plugins are off has not been confirmed by \(what): what it does now may not be what it does without them"
      : "that plugins are off is still to be confirmed by \(what)"
  }
}
