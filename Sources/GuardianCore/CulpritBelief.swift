import GuardianModel

/// What is believed about the culprits: one weight for each hypothesis and each probability that a culprit makes a start
/// fail, together 1.
///
/// The hypotheses, for n toggles: nothing (the cause is elsewhere), each single one, each two and each three that fail
/// independently of each other, and each two that fail only when both are on. About n³/6 of them; plain arrays, walked
/// from end to end.
struct CulpritBelief: Sendable {
  /// How likely one culprit makes a start fail that it is on in. A grid, because a wrong constant names the wrong one.
  static let grid = [0.3, 0.5, 0.7, 0.9, 0.99]
  /// Culprits that one hypothesis can hold.
  private static let most = 3
  private static let nothing = 0.05
  /// What each further culprit leaves of the mass, and what interacting pairs have of that of independent ones.
  private static let further = 0.15, interacting = 0.5
  /// Below this a hypothesis is left out of what is only estimated. All of them together stay far below what is compared.
  private static let negligible = 1e-12

  let toggles: Int
  /// Who is guilty by each hypothesis, as bits. The first is "nothing"; the interacting pairs come last.
  private let guilty: [UInt64]
  private let firstInteracting: Int
  /// `grid.count` for each hypothesis.
  private var weights: [Double]

  /// - Parameters:
  ///   - worth: Of each toggle, in proportion; more is more suspicious. At most 64 of them.
  ///   - failures: Of `starts` starts with everything on.
  init(worth: [Double], failures: Int, starts: Int) {
    let n = min(worth.count, ToggleSet.capacity)
    var guilty: [UInt64] = [0], prior = [1.0], classes: [Range<Int>] = []
    let expected = 1 + n + n * n + n * n * n / 6
    guilty.reserveCapacity(expected)
    prior.reserveCapacity(expected)
    func addClass(_ body: () -> Void) {
      let first = guilty.count
      body()
      classes.append(first..<guilty.count)
    }
    func addPairs() {
      for a in 0..<n {
        for b in (a + 1)..<max(n, a + 1) {
          guilty.append(1 << UInt64(a) | 1 << UInt64(b))
          prior.append(worth[a] * worth[b])
        }
      }
    }
    addClass {
      for a in 0..<n {
        guilty.append(1 << UInt64(a))
        prior.append(worth[a])
      }
    }
    addClass(addPairs)
    addClass {
      for a in 0..<n {
        for b in (a + 1)..<max(n, a + 1) {
          for c in (b + 1)..<max(n, b + 1) {
            guilty.append(1 << UInt64(a) | 1 << UInt64(b) | 1 << UInt64(c))
            prior.append(worth[a] * worth[b] * worth[c])
          }
        }
      }
    }
    firstInteracting = guilty.count
    addClass(addPairs)

    // Each class has its share of the mass, whatever the number of its hypotheses; an empty one's is shared by the rest.
    let shares = [1, Self.further, Self.further * Self.further, Self.further * Self.interacting]
    let total = zip(shares, classes).reduce(0) { $0 + ($1.1.isEmpty ? 0 : $1.0) }
    prior[0] = total > 0 ? Self.nothing : 1
    for (share, members) in zip(shares, classes) {
      let sum = members.reduce(0) { $0 + prior[$1] }
      guard sum > 0 else { continue }
      let scale = (1 - Self.nothing) * share / total / sum
      for hypothesis in members { prior[hypothesis] *= scale }
    }

    let byGrid = Self.gridPrior(failures: failures, starts: starts)
    var weights: [Double] = []
    weights.reserveCapacity(prior.count * byGrid.count)
    for mass in prior {
      for share in byGrid { weights.append(mass * share) }
    }
    toggles = n
    self.guilty = guilty
    self.weights = weights
  }

  /// In proportion to p^k · (1 − p)^(m − k).
  private static func gridPrior(failures: Int, starts: Int) -> [Double] {
    // More than a hundred starts say no more about five values, and powers stay within what a number can hold.
    var m = max(0, starts), k = max(0, min(failures, m))
    if m > 100 {
      k = Int(Double(k) / Double(m) * 100)
      m = 100
    }
    var prior = grid.map { p in
      var product = 1.0
      for _ in 0..<k { product *= p }
      for _ in k..<m { product *= 1 - p }
      return product
    }
    let sum = prior.reduce(0, +)
    for place in prior.indices { prior[place] /= sum }
    return prior
  }

  /// How many of the culprits of `hypothesis` act while `on` is on; an interacting pair acts as one.
  private func acting(_ hypothesis: Int, on: UInt64) -> Int {
    let mask = guilty[hypothesis]
    if hypothesis >= firstInteracting { return mask & ~on == 0 ? 1 : 0 }
    return (mask & on).nonzeroBitCount
  }

  /// The likelihood of a failure for each number of acting culprits and each value of the grid.
  private static func failure(background: Double) -> [Double] {
    var table: [Double] = []
    for acting in 0...most {
      for p in grid {
        var survives = 1 - background
        for _ in 0..<acting { survives *= 1 - p }
        table.append(1 - survives)
      }
    }
    return table
  }

  /// A start with `on` has failed or passed.
  mutating func observe(on: ToggleSet, failed: Bool, background: Double) {
    let width = Self.grid.count
    let likelihood = Self.failure(background: background).map { failed ? $0 : 1 - $0 }
    var total = 0.0
    for hypothesis in guilty.indices {
      let row = acting(hypothesis, on: on.bits) * width
      for place in 0..<width {
        let weight = weights[hypothesis * width + place] * likelihood[row + place]
        weights[hypothesis * width + place] = weight
        total += weight
      }
    }
    guard total > 0 else { return }
    let scale = 1 / total
    for place in weights.indices { weights[place] *= scale }
  }

  private func mass(_ hypothesis: Int) -> Double {
    let width = Self.grid.count
    var sum = 0.0
    for place in (hypothesis * width)..<((hypothesis + 1) * width) { sum += weights[place] }
    return sum
  }

  /// That the cause is elsewhere.
  var nothing: Double { mass(0) }

  /// How likely each toggle is one of the culprits.
  var suspicion: [Double] {
    var suspicion = [Double](repeating: 0, count: toggles)
    for hypothesis in guilty.indices {
      let mass = mass(hypothesis)
      var rest = guilty[hypothesis]
      while rest != 0 {
        suspicion[rest.trailingZeroBitCount] += mass
        rest &= rest &- 1
      }
    }
    return suspicion
  }

  /// How likely nothing guilty acts while `on` is on.
  func safety(of on: ToggleSet) -> Double {
    var safe = 0.0
    for hypothesis in guilty.indices where acting(hypothesis, on: on.bits) == 0 { safe += mass(hypothesis) }
    return min(1, safe)
  }

  /// The mass of the hypotheses that make `on` unsafe, for each toggle that they accuse and that is on.
  func blame(on: ToggleSet) -> (unsafe: Double, each: [Double]) {
    var unsafe = 0.0, each = [Double](repeating: 0, count: toggles)
    for hypothesis in guilty.indices where acting(hypothesis, on: on.bits) > 0 {
      let mass = mass(hypothesis)
      unsafe += mass
      var rest = guilty[hypothesis] & on.bits
      while rest != 0 {
        each[rest.trailingZeroBitCount] += mass
        rest &= rest &- 1
      }
    }
    return (unsafe, each)
  }

  /// How many of the toggles that are `off` need not be: of two that fail only together one has to be.
  func innocents(off: ToggleSet) -> Double {
    var expected = 0.0
    for hypothesis in guilty.indices {
      var needed = (guilty[hypothesis] & off.bits).nonzeroBitCount
      if hypothesis >= firstInteracting { needed = min(needed, 1) }
      expected += mass(hypothesis) * Double(off.count - needed)
    }
    return expected
  }

  /// The most likely pair that fails only when both are on, and its probability.
  var likeliestInteraction: (pair: ToggleSet, probability: Double)? {
    var best: (pair: ToggleSet, probability: Double)?
    for hypothesis in firstInteracting..<guilty.count {
      let mass = mass(hypothesis)
      if mass > best?.probability ?? 0 { best = (ToggleSet(bits: guilty[hypothesis]), mass) }
    }
    return best
  }

  /// What a start would tell with the first 1, 2, … n toggles of `order` on.
  ///
  /// - Returns: For each, how likely it fails, and by how many bits the hypotheses are expected to be known better.
  func prospects(order: [Int], background: Double) -> (fails: [Double], gains: [Double]) {
    let width = Self.grid.count, failure = Self.failure(background: background)
    var rank = [Int](repeating: 0, count: toggles)
    for (place, toggle) in order.enumerated() { rank[toggle] = place }
    // A hypothesis changes what it says of a prefix only where the prefix takes in one of its culprits: the changes are
    // noted where they happen and summed up afterwards, instead of asking each hypothesis about each prefix.
    var fails = [Double](repeating: 0, count: toggles + 1)
    var known = [Double](repeating: 0, count: toggles + 1)
    for hypothesis in guilty.indices {
      let mass = mass(hypothesis)
      if mass < Self.negligible { continue }
      let first = hypothesis * width
      func outlook(_ acting: Int) -> (fails: Double, unknown: Double) {
        var sum = 0.0
        for place in 0..<width { sum += weights[first + place] * failure[acting * width + place] }
        return (sum, mass * entropy(sum / mass))
      }
      var last = outlook(0)
      fails[0] += last.fails
      known[0] += last.unknown
      func changes(at length: Int, to acting: Int) {
        let next = outlook(acting)
        fails[length] += next.fails - last.fails
        known[length] += next.unknown - last.unknown
        last = next
      }
      // At most three ranks, in ascending order.
      var a = toggles, b = toggles, c = toggles, rest = guilty[hypothesis]
      while rest != 0 {
        let r = rank[rest.trailingZeroBitCount]
        rest &= rest &- 1
        if r < a { (a, b, c) = (r, a, b) } else if r < b { (b, c) = (r, b) } else { c = r }
      }
      if hypothesis >= firstInteracting {
        changes(at: b + 1, to: 1)
      } else {
        if a < toggles { changes(at: a + 1, to: 1) }
        if b < toggles { changes(at: b + 1, to: 2) }
        if c < toggles { changes(at: c + 1, to: 3) }
      }
    }
    var gains: [Double] = []
    gains.reserveCapacity(toggles)
    for length in 1..<max(1, toggles + 1) {
      fails[length] += fails[length - 1]
      known[length] += known[length - 1]
      gains.append(entropy(fails[length]) - known[length])
    }
    return (Array(fails.dropFirst()), gains)
  }
}
