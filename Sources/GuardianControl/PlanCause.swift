package import GuardianModel

extension PlanDeath {
  package static let form =
    "\(DrillCause.form); of those by which it ends itself also @TIME for how long it lives, as in signal:SEGV@2s"

  /// Reads what `text` writes, and times as the configuration has them; nil for anything else.
  package init?(_ text: String) {
    let parts = text.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
    guard let cause = DrillCause(parts[0]) else { return nil }
    self.init(cause: cause)
    guard parts.count > 1 else { return }
    switch cause {
    case .exit, .signal, .oom, .killed, .crashClass: break
    // It has no life of its own, or guardian ends it in its own time.
    case .watchdog, .startTimeout, .check, .exec: return nil
    }
    guard let milliseconds = parseMilliseconds(parts[1]), milliseconds <= Self.longestLife.milliseconds else {
      return nil
    }
    age = .milliseconds(milliseconds)
  }
}
