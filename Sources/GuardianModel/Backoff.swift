extension BackoffSpec {
  /// The delay before the `n`-th try on a step, n from 1: `min(max / (1 + j), first · factor^(n − 1)) · (1 + j · u)`.
  ///
  /// Never above `max`, whatever the jitter; saturates instead of overflowing.
  /// - Parameter share: u, uniform in [0, 1).
  package func delay(beforeTry n: Int, share: Double) -> Duration {
    let cap = Double(max.nanoseconds) / (1 + jitter)
    var delay = Double(first.nanoseconds)
    // At most 2000 factors: 1.01^2000 is beyond any cap that a duration can hold, and a factor of 1 changes nothing.
    if factor > 1 {
      var left = Swift.min(n - 1, 2000)
      while left > 0, delay < cap {
        delay *= factor
        left -= 1
      }
    }
    let spread = Swift.min(cap, delay) * (1 + jitter * share)
    return .nanoseconds(Int64(Swift.min(Swift.max(spread, 0), Double(Int64.max / 2))))
  }
}
