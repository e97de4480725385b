/// A reading of CLOCK_MONOTONIC: stands still while the machine sleeps. Windows, time-outs and delays use it.
///
/// Nanoseconds since an arbitrary start; only differences mean anything, and only within one boot.
package struct Instant: Hashable, Comparable, Sendable {
  package var nanoseconds: Int64
  package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
  package static let zero = Instant(nanoseconds: 0)
  package static let distantFuture = Instant(nanoseconds: .max)

  package static func < (a: Instant, b: Instant) -> Bool { a.nanoseconds < b.nanoseconds }
  /// Saturates at the ends of the range, so that no configured duration can trap.
  package static func + (a: Instant, d: Duration) -> Instant {
    Instant(nanoseconds: a.nanoseconds.addingSaturating(d.nanoseconds))
  }
  package static func - (a: Instant, b: Instant) -> Duration {
    .nanoseconds(a.nanoseconds.subtractingSaturating(b.nanoseconds))
  }
}

/// A reading of CLOCK_BOOTTIME: goes on while the machine sleeps. Quarantine trials, plugin times and holds use it.
package struct BootInstant: Hashable, Comparable, Sendable {
  package var nanoseconds: Int64
  package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
  package static let zero = BootInstant(nanoseconds: 0)

  package static func < (a: BootInstant, b: BootInstant) -> Bool { a.nanoseconds < b.nanoseconds }
  package static func + (a: BootInstant, d: Duration) -> BootInstant {
    BootInstant(nanoseconds: a.nanoseconds.addingSaturating(d.nanoseconds))
  }
  package static func - (a: BootInstant, b: BootInstant) -> Duration {
    .nanoseconds(a.nanoseconds.subtractingSaturating(b.nanoseconds))
  }
}

/// A reading of CLOCK_REALTIME, nanoseconds since 1970 UTC. For display only; nothing is decided by it.
package struct WallTime: Hashable, Comparable, Sendable {
  package var nanoseconds: Int64
  package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
  package static func < (a: WallTime, b: WallTime) -> Bool { a.nanoseconds < b.nanoseconds }
  package static func + (a: WallTime, d: Duration) -> WallTime {
    WallTime(nanoseconds: a.nanoseconds.addingSaturating(d.nanoseconds))
  }
}

/// The three clocks, read together once per turn.
package struct Now: Hashable, Sendable {
  package var monotonic: Instant
  package var boot: BootInstant
  package var wall: WallTime
  package init(monotonic: Instant, boot: BootInstant, wall: WallTime) {
    self.monotonic = monotonic
    self.boot = boot
    self.wall = wall
  }

  /// All three clocks later by `duration`, as when nobody sleeps and nobody sets the wall clock.
  package func advanced(by duration: Duration) -> Now {
    Now(monotonic: monotonic + duration, boot: boot + duration, wall: wall + duration)
  }
}

extension Duration {
  /// Whole nanoseconds, saturating: about ±292 years.
  package var nanoseconds: Int64 {
    let (seconds, attoseconds) = components
    let (high, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    if overflow { return seconds < 0 ? .min : .max }
    return high.addingSaturating(attoseconds / 1_000_000_000)
  }
  /// Whole milliseconds, saturating.
  package var milliseconds: Int64 { nanoseconds / 1_000_000 }
  package static let minute = Duration.seconds(60)
  package static let hour = Duration.seconds(3600)
  package static let day = Duration.seconds(86400)

  /// In the words of the configuration: `500ms`, `1min30s`, `2d`. The largest units first, nothing that is zero.
  package var description: String {
    var rest = nanoseconds
    if rest == 0 { return "0s" }
    var text = rest < 0 ? "-" : ""
    rest = rest == .min ? .max : abs(rest)
    if rest < 1_000_000 { return text + (rest < 1000 ? "\(rest)ns" : "\(rest / 1000)us") }
    for (unit, size) in [
      ("d", 86_400_000_000_000), ("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000),
      ("ms", 1_000_000),
    ] as [(String, Int64)] where rest >= size {
      text += "\(rest / size)\(unit)"
      rest %= size
    }
    return text
  }
}

extension Int64 {
  package func addingSaturating(_ other: Int64) -> Int64 {
    let (sum, overflow) = addingReportingOverflow(other)
    return overflow ? (other < 0 ? .min : .max) : sum
  }
  package func subtractingSaturating(_ other: Int64) -> Int64 {
    let (difference, overflow) = subtractingReportingOverflow(other)
    return overflow ? (other < 0 ? .max : .min) : difference
  }
}
