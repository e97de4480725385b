package import GuardianModel

/// Where run ids and jitter come from: xoshiro256**, seeded from outside, so that a seed replays everything.
package struct Randomness: Hashable, Sendable {
  private var a: UInt64, b: UInt64, c: UInt64, d: UInt64
  /// For plans: every jitter draw gives this instead, 0 … 1.
  package var fixedShare: Double?

  package init(seed: (UInt64, UInt64, UInt64, UInt64)) {
    (a, b, c, d) = seed
    if a | b | c | d == 0 { a = 0x9e37_79b9_7f4a_7c15 }  // the one state that never moves
  }

  package mutating func next() -> UInt64 {
    let five = b &* 5
    let result = ((five << 7) | (five >> 57)) &* 9
    let shifted = b << 17
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= shifted
    d = (d << 45) | (d >> 19)
    return result
  }

  /// Uniform in [0, 1), or the fixed share.
  package mutating func share() -> Double {
    fixedShare ?? Double(next() >> 11) * 0x1p-53
  }

  package mutating func runID() -> RunID { RunID(high: next(), low: next()) }
}
