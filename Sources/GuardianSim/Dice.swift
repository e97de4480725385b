/// The simulator's randomness: splitmix64. The same seed rolls the same world on every machine and in every build.
package struct Dice: Hashable, Sendable {
  private var state: UInt64
  package init(seed: UInt64) {
    // Through the mixer once: neighbouring seeds must not be neighbours in one sequence.
    state = seed
    state = next()
  }

  package mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }

  /// 0 … `bound` − 1; 0 for a bound below 2.
  mutating func below(_ bound: Int) -> Int {
    bound < 2 ? 0 : Int(truncatingIfNeeded: next().multipliedFullWidth(by: UInt64(bound)).high)
  }
  /// True in `share` of a thousand cases.
  mutating func chance(_ share: Int) -> Bool { below(1000) < share }
  mutating func pick<T>(_ choices: [T]) -> T { choices[below(choices.count)] }
  /// Uniform between two times.
  mutating func time(_ low: Nanoseconds, _ high: Nanoseconds) -> Nanoseconds {
    low + Nanoseconds(below(Int(high - low)))
  }
  /// About exponential around `mean`, never more than eight times as much: the gap to the next rare thing.
  mutating func gap(mean: Nanoseconds) -> Nanoseconds {
    // The sum of a few geometric halvings; logarithms need a C library, and the exact shape does not matter.
    var scale = mean / 4
    while chance(600), scale < mean * 4 { scale = scale * 8 / 5 }
    return time(scale / 2, scale * 3)
  }
}

/// Times and spans inside the simulator, which are compared and added by the million.
typealias Nanoseconds = Int64
let millisecond: Nanoseconds = 1_000_000
let second: Nanoseconds = 1_000_000_000
let minute: Nanoseconds = 60 * second
let hour: Nanoseconds = 3600 * second
