package import GuardianModel

extension PlanDeath {
  package static let form =
    "exit:N with N from 0 to 255, signal:NAME, oom or killed, and @TIME for how long it lives, as in signal:SEGV@2s"

  /// Reads what `text` writes, and times as the configuration has them; nil for anything else.
  package init?(_ text: String) {
    let parts = text.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
    guard let cause = DrillCause(parts[0]) else { return nil }
    // What guardian itself would end it for has its own time.
    switch cause {
    case .exit, .signal, .oom, .killed: break
    case .watchdog, .startTimeout, .check, .exec, .crashClass: return nil
    }
    self.init(cause: cause)
    guard parts.count > 1 else { return }
    guard let milliseconds = parseMilliseconds(parts[1]), milliseconds <= Self.longestLife.milliseconds else {
      return nil
    }
    age = .milliseconds(milliseconds)
  }
}
