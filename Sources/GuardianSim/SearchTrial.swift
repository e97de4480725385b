package import GuardianCore
package import GuardianModel

/// One service that fails because of some of its toggles, and how far a way of searching gets with it.
///
/// No machine and no clock: the starts are dice, so that tens of thousands of incidents are played in seconds.
package struct SearchIncident: Sendable {
  package enum Guilt: Hashable, Sendable {
    /// Each by itself.
    case independent(ToggleSet)
    /// Only when both are on.
    case together(ToggleSet)
    /// What made it fail lies elsewhere, and is over.
    case elsewhere
  }
  package var toggles: Int
  package var guilt: Guilt
  /// In how many of a thousand starts one culprit makes it fail.
  package var perMille: Int
  /// In how many of a thousand starts it fails although nothing guilty is on.
  package var background = 0
  package var hints: [Double]
  /// With everything on, before the search.
  package var failures = 5, starts = 5
  /// Until a failing start has failed.
  var failsAfter = second

  /// How many culprits act while `on` is on.
  func acting(_ on: ToggleSet) -> Int {
    switch guilt {
    case .independent(let culprits): culprits.intersection(on).count
    case .together(let pair): pair.isSubset(of: on) ? 1 : 0
    case .elsewhere: 0
    }
  }
  func fails(_ on: ToggleSet, _ dice: inout Dice) -> Bool {
    for _ in 0..<acting(on) where dice.chance(perMille) { return true }
    return background > 0 && dice.chance(background)
  }
  var culprits: ToggleSet {
    switch guilt {
    case .independent(let culprits), .together(let culprits): culprits
    case .elsewhere: .none
    }
  }
  /// What need not be off: of two that fail together one has to be.
  func innocents(off: ToggleSet) -> Int {
    if case .together(let pair) = guilt { return off.count - min(1, off.intersection(pair).count) }
    return off.subtracting(culprits).count
  }
}

package enum SearchMethod: Hashable, Sendable {
  /// guardian's own, with its standard budget or another one.
  case search(CulpritSearch.Budget?)
  /// Half of the suspects on, again and again; a pass counts after so many in a row.
  case halving(passes: Int)
  /// Each one off in turn, all others on.
  case oneAtATime
}

/// What became of an incident.
package struct SearchResult: Hashable, Sendable {
  package var probes = 0, failing = 0
  /// What it is left with; empty: safe mode.
  package var off = ToggleSet.none
  /// It has run for the whole window with exactly these off.
  package var verified = false
  /// Told that no toggle is to blame.
  package var elsewhere = false
  /// The service did not serve.
  var down: Nanoseconds = 0
  package init() {}
}

extension SearchResult {
  package func isCorrect(_ incident: SearchIncident) -> Bool {
    if case .elsewhere = incident.guilt { return elsewhere || verified && off.isEmpty }
    return verified && incident.acting(ToggleSet.all(incident.toggles).subtracting(off)) == 0
  }
}

extension SearchIncident {
  /// Time from the end of one run to the start of the next.
  private static let pause = second

  package func run(_ method: SearchMethod, dice: inout Dice) -> SearchResult {
    var result = SearchResult()
    func start(_ on: ToggleSet) -> Bool {
      result.probes += 1
      result.down += Self.pause
      guard fails(on, &dice) else { return true }
      result.failing += 1
      result.down += failsAfter
      return false
    }
    let all = ToggleSet.all(toggles)
    result.off = all

    switch method {
    case .search(let budget):
      var search = CulpritSearch(
        toggles: hints.enumerated().map { CulpritSearch.Toggle(name: "\($0.offset)", hintScore: $0.element) },
        failures: failures, starts: starts, background: (failures: 0, starts: 80), budget: budget)
      while true {
        switch search.next() {
        case .probe(let on): search.observe(.init(on: on, outcome: start(on) ? .passed : .failed))
        case .final(let on): search.observe(.init(on: on, outcome: start(on) ? .passed : .failed, full: true))
        // What fails does so early.
        case .goOn(let on): search.observe(.init(on: on, outcome: .passed, full: true))
        case .done(let off, _):
          result.off = off
          result.verified = true
          return result
        case .notAPlugin:
          result.elsewhere = true
          return result
        case .exhausted(let best, _):
          result.off = all.subtracting(best)
          return result
        }
      }

    case .halving(let passes):
      var suspects = hints.indices.sorted { (hints[$1], $0) < (hints[$0], $1) }, cleared = ToggleSet.none
      while suspects.count > 1 {
        let half = ToggleSet(suspects[..<(suspects.count / 2)])
        var passed = true
        for _ in 0..<passes where passed { passed = start(half.union(cleared)) }
        if passed { cleared = cleared.union(half) }
        suspects.removeAll { half.contains($0) == passed }
      }
      let off = ToggleSet(suspects)
      if start(all.subtracting(off)) {
        result.off = off
        result.verified = true
      }
      return result

    case .oneAtATime:
      for suspect in hints.indices.sorted(by: { (hints[$1], $0) < (hints[$0], $1) }) {
        let off = ToggleSet([suspect])
        if start(all.subtracting(off)) {
          result.off = off
          result.verified = true
          return result
        }
      }
      return result
    }
  }
}

/// A row of the table: one kind of incident, for several numbers of toggles.
package struct SearchSituation: Sendable {
  package var name: String
  package var culprits: Int
  package var together = false
  package var perMille: Int
  /// With everything on.
  package var failures = 5, starts = 5
  /// One toggle has the largest hint: a culprit in 80 % of the incidents, an innocent one in the others.
  package var hinted = false

  package static let sizes = [4, 8, 16, 32]
  package static let all = [
    SearchSituation(name: "one, always", culprits: 1, perMille: 1000),
    SearchSituation(name: "one, in 90 %", culprits: 1, perMille: 900),
    SearchSituation(name: "one, in 70 %", culprits: 1, perMille: 700, failures: 4),
    SearchSituation(name: "one, in 50 %, 3/5", culprits: 1, perMille: 500, failures: 3),
    SearchSituation(name: "one, in 50 %, 5/5", culprits: 1, perMille: 500),
    SearchSituation(name: "one, with a hint", culprits: 1, perMille: 1000, hinted: true),
    SearchSituation(name: "two, always", culprits: 2, perMille: 1000),
    SearchSituation(name: "two, in 90 % each", culprits: 2, perMille: 900),
    SearchSituation(name: "two together", culprits: 2, together: true, perMille: 1000),
    SearchSituation(name: "three, always", culprits: 3, perMille: 1000),
  ]

  /// Three of four are no search any more.
  package func isPlayed(with toggles: Int) -> Bool { culprits < 3 || toggles > 4 }

  package func incident(toggles: Int, dice: inout Dice) -> SearchIncident {
    var guilty = ToggleSet.none
    while guilty.count < min(culprits, toggles) { guilty.insert(dice.below(toggles)) }
    var hints = [Double](repeating: 0, count: toggles)
    if hinted {
      let right = dice.chance(800)
      var hint = dice.below(toggles)
      while guilty.contains(hint) != right { hint = dice.below(toggles) }
      hints[hint] = 9
    }
    return SearchIncident(
      toggles: toggles, guilt: together ? .together(guilty) : .independent(guilty), perMille: perMille, hints: hints,
      failures: failures, starts: starts)
  }

  /// Plays the row's incident `runs` times with `toggles` toggles.
  package func play(_ method: SearchMethod, toggles: Int, runs: Int, seed: UInt64) -> SearchTally {
    var tally = SearchTally()
    for run in 0..<runs {
      var dice = Dice(seed: seed &+ UInt64(run) &* 1_000_003)
      let incident = incident(toggles: toggles, dice: &dice)
      tally.add(incident.run(method, dice: &dice), of: incident)
    }
    return tally
  }
}

/// What became of many incidents.
package struct SearchTally: Sendable {
  package private(set) var incidents = 0, correct = 0
  private var probes: [Int] = []
  private var failing = 0, innocents = 0, down: Nanoseconds = 0
  package init() {}

  mutating func add(_ result: SearchResult, of incident: SearchIncident) {
    incidents += 1
    if result.isCorrect(incident) { correct += 1 }
    probes.append(result.probes)
    failing += result.failing
    // Safe mode is not a choice of toggles.
    if result.verified { innocents += incident.innocents(off: result.off) }
    down += result.down
  }

  private func mean(_ sum: Int) -> Double { incidents == 0 ? 0 : Double(sum) / Double(incidents) }
  /// Incidents that end with a set that has run for the whole window and can not fail.
  package var share: Double { mean(correct) }
  package var meanProbes: Double { mean(probes.reduce(0, +)) }
  package var meanFailing: Double { mean(failing) }
  package var meanInnocents: Double { mean(innocents) }
  package var meanDownSeconds: Double { mean(Int(down / millisecond)) / 1000 }
  package func percentile(_ percent: Int) -> Int {
    let sorted = probes.sorted()
    return sorted.isEmpty ? 0 : sorted[min(sorted.count - 1, sorted.count * percent / 100)]
  }
}

/// Incidents of all kinds, each met by each way of searching.
package struct SearchComparison: Sendable {
  package static let methods: [(name: String, method: SearchMethod)] = [
    ("guardian's search", .search(nil)), ("halving", .halving(passes: 1)),
    ("halving, three passes", .halving(passes: 3)),
    ("one at a time", .oneAtATime),
  ]
  package private(set) var tallies: [SearchTally]

  package init(incidents: Int, seed: UInt64) {
    tallies = Self.methods.map { _ in SearchTally() }
    for number in 0..<max(0, incidents) {
      var dice = Dice(seed: seed &+ UInt64(number) &* 1_000_003)
      let incident = Self.incident(&dice)
      for (place, method) in Self.methods.enumerated() {
        var dice = Dice(seed: dice.next())
        tallies[place].add(incident.run(method.method, dice: &dice), of: incident)
      }
    }
  }

  /// Mostly one culprit, seldom several; more often than not one that is not quite reliable; every second time a hint,
  /// which is right in 80 %; one start in two hundred fails for nothing.
  static func incident(_ dice: inout Dice) -> SearchIncident {
    let toggles = dice.pick([2, 4, 4, 8, 8, 8, 16, 16, 32])
    let kind = dice.below(100)
    var perMille = dice.pick([1000, 1000, 1000, 1000, 900, 900, 700, 500]), guilty = ToggleSet.none
    let culprits = min(toggles, kind < 70 ? 1 : kind < 92 ? 2 : kind < 95 ? 3 : 0)
    while guilty.count < culprits { guilty.insert(dice.below(toggles)) }
    let guilt: SearchIncident.Guilt
    switch kind {
    case ..<82, 92..<95: guilt = .independent(guilty)
    case 82..<92: guilt = .together(guilty)
    default:
      guilt = .elsewhere
      perMille = 0
    }
    var hints = [Double](repeating: 0, count: toggles)
    if dice.chance(500) {
      let suspects = guilty.isEmpty || !dice.chance(800) ? ToggleSet.all(toggles) : guilty
      hints[dice.pick(suspects.places)] = Double(1 + dice.below(9))
    }
    var incident = SearchIncident(
      toggles: toggles, guilt: guilt, perMille: perMille, background: 5, hints: hints,
      failsAfter: dice.time(second / 5, 5 * second))
    // The ladder was climbed because most of five starts failed.
    if !guilty.isEmpty {
      repeat {
        incident.failures = 0
        for _ in 0..<incident.starts where incident.fails(.all(toggles), &dice) { incident.failures += 1 }
      } while incident.failures < 3
    }
    return incident
  }
}
