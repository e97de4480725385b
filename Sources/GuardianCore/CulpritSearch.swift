package import GuardianModel

/// Finds which of a service's toggles make it fail, by starting it with some of them on.
///
/// A toggle is anything that can be off for one start: a plugin, or a file put back to its last good copy. With all on the
/// service fails; with all off it has outlived its window, else there is nothing to search. Each probe is one start; one
/// that passes leaves a service that works, so it is the number of probes that costs, and failing ones cost more.
///
/// The search weighs hypotheses (`CulpritBelief`) by what the probes have shown, and asks next what promises most for its
/// price. It ends with a set that has run for the whole window, or says why it found none.
///
/// A pure value: the same observations give the same answer, in every build, so that a search is resumed by observing
/// again what is on record. It holds a weight for each hypothesis (a quarter of a megabyte for 32 toggles, 2 MB for 64):
/// keep the observations, and make a search of them when the next start is to be decided.
///
/// Source: the section "Culprit search over toggles" of the algorithms.
package struct CulpritSearch: Sendable {
  package struct Toggle: Hashable, Sendable {
    package var name: String
    /// How much speaks for it beforehand: what has changed about it since the service was last well, 0 … 10.
    package var hintScore: Double
    package init(name: String, hintScore: Double = 0) {
      self.name = name
      self.hintScore = hintScore
    }
  }

  package enum Outcome: UInt8, Hashable, Sendable, CaseIterable {
    /// Alive at the end of its window.
    case passed = 0
    /// It failed as in the incident: with its signature, strong or weak.
    case failed = 1
    /// It failed otherwise: repeated once, then counted to what healthy configurations fail.
    case otherFailure = 2
    /// guardian, the host or an operator came between: nothing was learnt.
    case none = 3
  }

  /// One start and what became of it.
  package struct Observation: Hashable, Sendable {
    package var on: ToggleSet
    package var outcome: Outcome
    /// It was a `final` one: to pass it had to outlive the whole startup window.
    package var full: Bool
    package init(on: ToggleSet, outcome: Outcome, full: Bool = false) {
      self.on = on
      self.outcome = outcome
      self.full = full
    }
  }

  /// How much a search may cost. What is over, ends it with the best set that has passed.
  package struct Budget: Hashable, Sendable {
    /// Starts, the final ones among them.
    package var probes: Int
    package var failing: Int
    package init(probes: Int, failing: Int) {
      self.probes = probes
      self.failing = failing
    }
    package static func standard(toggles n: Int) -> Budget {
      Budget(probes: min(40, Int(6 + 3 * logarithm2(Double(max(1, n))))), failing: 8)
    }
    /// For the service's whole search, from its first start; the caller has the clock.
    package static let time = Duration.seconds(15 * 60)
  }

  package enum Exhaustion: String, Hashable, Sendable { case probes, failingProbes = "failing-probes", time }

  /// Two that fail only together.
  package struct Pair: Hashable, Sendable {
    package var disabled: Int, kept: Int
    package init(disabled: Int, kept: Int) {
      self.disabled = disabled
      self.kept = kept
    }
  }

  package enum Next: Hashable, Sendable {
    /// Start with exactly these on, for the probe window.
    case probe(ToggleSet)
    /// Start with exactly these on, for the whole startup window: most likely the answer.
    case final(ToggleSet)
    /// As `final`, but the run with exactly these on that has just passed as a probe needs no other: leave it alone until
    /// the whole window is over, and observe that as a full pass or failure of the same set.
    case goOn(ToggleSet)
    /// The others have run for the whole window.
    case done(off: ToggleSet, pair: Pair?)
    /// The cause is most likely elsewhere.
    case notAPlugin
    /// No more probes; `best` is the largest set that has passed, empty where that is safe mode.
    case exhausted(best: ToggleSet, why: Exhaustion)
  }

  package let toggles: [Toggle]
  package let failures: Int, starts: Int
  package let budget: Budget
  package private(set) var observations: [Observation] = []

  private let backgroundFailures: Int, backgroundStarts: Int
  private var belief: CulpritBelief
  /// How likely a healthy configuration fails within its window.
  private var background: Double

  /// That the final set is safe, before it is run; and the innocent toggles expected to be off in it.
  private static let certainty = 0.95, innocents = 0.3
  /// That it is safe, for a run that has passed as a probe to count as the final one.
  private static let sparing = 0.98
  private static let elsewhere = 0.9
  /// What a failing probe costs beyond the price of a probe.
  private static let failingSurcharge = 0.5
  private static let tie = 1e-9

  /// - Parameters:
  ///   - toggles: In the service's order, without those that are pinned; those beyond 64 are left out (see `groups`).
  ///   - failures: Of `starts` starts with all of them on.
  ///   - background: What healthy configurations have failed within their window, and how often they were started.
  ///   - observations: Of this search so far, oldest first.
  ///   - budget: Nil: the standard one.
  package init(
    toggles: [Toggle], failures k: Int, starts m: Int, background: (failures: Int, starts: Int) = (0, 0),
    observations: [Observation] = [], budget: Budget? = nil
  ) {
    self.toggles = Array(toggles.prefix(ToggleSet.capacity))
    failures = k
    starts = m
    self.budget = budget ?? .standard(toggles: self.toggles.count)
    backgroundFailures = max(0, background.failures)
    backgroundStarts = max(0, background.starts)
    self.background = Self.rate(backgroundFailures, backgroundStarts)
    belief = Self.prior(self.toggles, failures: k, starts: m)
    for observation in observations { observe(observation) }
  }

  private static func prior(_ toggles: [Toggle], failures: Int, starts: Int) -> CulpritBelief {
    // A hint can count at most ten-fold: heavier ones gain little and cost more when wrong.
    let worth = toggles.map { 1 + ($0.hintScore > 0 ? min(9, $0.hintScore) : 0) }
    return CulpritBelief(worth: worth, failures: failures, starts: starts)
  }

  private static func rate(_ failures: Int, _ starts: Int) -> Double {
    min(0.2, max(0.01, (Double(failures) + 1) / (Double(starts) + 20)))
  }

  /// How long a start lives to pass as a probe: four times the age of the incident's oldest failure, at least two seconds,
  /// at most the whole window.
  package static func probeWindow(largestAge: Duration, window: Duration) -> Duration {
    min(window, max(.seconds(2), largestAge * 4))
  }

  package var everything: ToggleSet { .all(toggles.count) }
  /// How likely each toggle is one of the culprits, in their order.
  package var suspicion: [Double] { belief.suspicion }
  /// How likely the cause is none of them.
  package var nothing: Double { belief.nothing }
  /// How likely nothing guilty acts while `on` is on.
  package func safety(of on: ToggleSet) -> Double { belief.safety(of: on.intersection(everything)) }
  package var probes: Int { observations.count }
  package var failingProbes: Int { observations.reduce(0) { $0 + ($1.outcome == .passed ? 0 : 1) } }

  /// What became of a start. A full pass where `next` was `goOn` is that of the last probe's own run: it is no further
  /// start, and tells nothing more about who is guilty.
  package mutating func observe(_ observation: Observation) {
    var observation = observation
    observation.on = observation.on.intersection(everything)
    switch observation.outcome {
    case .none: return
    case .passed, .failed:
      if observation.full, observation.outcome == .passed, next() == .goOn(observation.on) {
        observations[observations.count - 1].full = true
        return
      }
      observations.append(observation)
      belief.observe(on: observation.on, failed: observation.outcome == .failed, background: background)
    case .otherFailure:
      let again = isRepeated(observation)
      observations.append(observation)
      guard again else { return }
      // It accuses nobody, but healthy configurations fail more often than was thought: all is weighed anew.
      let twice = observations.indices.reduce(0) { $0 + (isSecond($1) ? 1 : 0) }
      background = Self.rate(backgroundFailures + twice, backgroundStarts + twice)
      belief = Self.prior(toggles, failures: failures, starts: starts)
      for past in observations where past.outcome != .otherFailure {
        belief.observe(on: past.on, failed: past.outcome == .failed, background: background)
      }
    }
  }

  /// Is it the second failure of another kind in a row, of the same set?
  private func isRepeated(_ observation: Observation) -> Bool {
    guard let last = observations.last, last.outcome == .otherFailure, last.on == observation.on else { return false }
    return !isSecond(observations.count - 1)
  }
  private func isSecond(_ place: Int) -> Bool {
    // Two of a kind are one repetition; a third begins another.
    var length = 0, at = place
    while at >= 0, observations[at].outcome == .otherFailure, observations[at].on == observations[place].on {
      length += 1
      at -= 1
    }
    return length > 0 && length % 2 == 0
  }
  /// Sets that have failed otherwise twice in a row: another start would tell no more.
  private var barred: [ToggleSet] {
    observations.indices.filter { isSecond($0) }.map { observations[$0].on }
  }

  /// What to do next.
  ///
  /// - Parameter outOfTime: `Budget.time` is over.
  package func next(outOfTime: Bool = false) -> Next {
    if let last = observations.last, last.full, last.outcome == .passed { return done(on: last.on) }
    if belief.nothing > Self.elsewhere { return .notAPlugin }
    let suspicion = belief.suspicion
    let answer = finalSet
    // With all off it has run for the whole window before the search.
    if let answer, answer.isEmpty { return done(on: .none) }
    if outOfTime { return .exhausted(best: best, why: .time) }
    if probes >= budget.probes { return .exhausted(best: best, why: .probes) }
    if failingProbes >= budget.failing { return .exhausted(best: best, why: .failingProbes) }
    if let last = observations.last, last.outcome == .otherFailure, !isSecond(observations.count - 1) {
      return last.full ? .final(last.on) : .probe(last.on)
    }
    let barred = barred
    if let answer, !barred.contains(answer) {
      let justPassed = observations.last.map { $0.outcome == .passed && $0.on == answer } ?? false
      // A second start would tell more of a culprit that fails now and then; it is spared where that hardly matters.
      return justPassed && belief.safety(of: answer) >= Self.sparing ? .goOn(answer) : .final(answer)
    }
    guard let probe = bestProbe(suspicion, barred: barred) else { return .exhausted(best: best, why: .failingProbes) }
    return .probe(probe)
  }

  /// What is left on when toggles are taken out, the most accused first, until it is safe enough; nil while too many of
  /// those would be innocent.
  private var finalSet: ToggleSet? {
    var on = everything
    while true {
      let (unsafe, each) = belief.blame(on: on)
      if unsafe <= 1 - Self.certainty { break }
      // Of two as good as equal the later one: the earlier is worth more to the service.
      var worst: Int?
      for place in on.places where each[place] >= (worst.map { each[$0] } ?? 0) - Self.tie { worst = place }
      guard let worst else { break }
      on.remove(worst)
      if belief.innocents(off: everything.subtracting(on)) >= Self.innocents { return nil }
    }
    // Of a pair either will do: the later one goes, where that is as safe.
    if let (pair, probability) = belief.likeliestInteraction, probability > 0.5,
      let earlier = pair.places.first, let later = pair.places.last, !on.contains(earlier), on.contains(later)
    {
      var swapped = on
      swapped.insert(earlier)
      swapped.remove(later)
      if belief.safety(of: swapped) >= Self.certainty { return swapped }
    }
    return on
  }

  private func done(on: ToggleSet) -> Next {
    var found: Pair?
    if let (pair, probability) = belief.likeliestInteraction, probability > 0.5 {
      let disabled = pair.subtracting(on), kept = pair.intersection(on)
      if disabled.count == 1, let off = disabled.places.first, let other = kept.places.first {
        found = Pair(disabled: off, kept: other)
      }
    }
    return .done(off: everything.subtracting(on), pair: found)
  }

  /// The largest set that has passed and not failed since: neither it nor, which tells the same, a part of it. Of two as
  /// large the later one.
  package var best: ToggleSet {
    var best = ToggleSet.none
    for observation in observations where observation.outcome == .passed && observation.on.count >= best.count {
      let failed = observations.contains { $0.outcome == .failed && $0.on.isSubset(of: observation.on) }
      if !failed { best = observation.on }
    }
    return best
  }

  /// Of the sets that hold the most suspicious toggles or the least suspicious ones, that which tells most for its price.
  private func bestProbe(_ suspicion: [Double], barred: [ToggleSet]) -> ToggleSet? {
    // Differences that come of rounding are none; equal ones stay in the service's order.
    let rounded = suspicion.map { Int($0 / Self.tie + 0.5) }
    let descending = toggles.indices.sorted { (rounded[$1], $0) < (rounded[$0], $1) }
    var best: (set: ToggleSet, value: Double, suspects: Double)?
    for order in [descending, Array(descending.reversed())] {
      let (fails, gains) = belief.prospects(order: order, background: background)
      var set = ToggleSet(), suspects = 0.0
      for (place, toggle) in order.enumerated() {
        set.insert(toggle)
        suspects += suspicion[toggle]
        let value = gains[place] / (1 + Self.failingSurcharge * fails[place])
        if barred.contains(set) { continue }
        if let best {
          if value < best.value - Self.tie { continue }
          if value <= best.value + Self.tie, suspects >= best.suspects - Self.tie { continue }
        }
        best = (set, value, suspects)
      }
    }
    return best?.set
  }

  /// Toggles by their places, in at most 64 groups, for a service that has more of them: a search finds the guilty group,
  /// and another one who it is in it. What shares a directory, or else the beginning of its name, stays together where
  /// that is possible, and no group is larger than need be.
  package static func groups(_ names: [String], most: Int = ToggleSet.capacity) -> [[Int]] {
    let most = max(1, most)
    if names.count <= most { return names.indices.map { [$0] } }
    var groups: [[Int]] = [], known: [String: Int] = [:]
    for (place, name) in names.enumerated() {
      let family = family(name)
      if let group = known[family] {
        groups[group].append(place)
      } else {
        known[family] = groups.count
        groups.append([place])
      }
    }
    while groups.count > most {
      // The two neighbours that are smallest together.
      var least = 0
      for place in 0..<(groups.count - 1)
      where groups[place].count + groups[place + 1].count < groups[least].count + groups[least + 1].count {
        least = place
      }
      groups[least] += groups.remove(at: least + 1)
    }
    while groups.count < most {
      var largest = 0
      for place in groups.indices where groups[place].count > groups[largest].count { largest = place }
      let members = groups[largest], half = members.count / 2
      if half == 0 { break }
      groups[largest] = Array(members[..<half])
      groups.insert(Array(members[half...]), at: largest + 1)
    }
    return groups
  }

  private static func family(_ name: String) -> String {
    let cut = name.lastIndex(of: "/") ?? name.lastIndex { "-_.:".contains($0) }
    return cut.map { String(name[..<$0]) } ?? name
  }
}

extension CulpritSearch: Hashable {
  /// The belief follows from the rest.
  package static func == (a: CulpritSearch, b: CulpritSearch) -> Bool {
    a.toggles == b.toggles && a.failures == b.failures && a.starts == b.starts && a.budget == b.budget
      && a.backgroundFailures == b.backgroundFailures && a.backgroundStarts == b.backgroundStarts
      && a.observations == b.observations
  }
  package func hash(into hasher: inout Hasher) {
    hasher.combine(toggles)
    hasher.combine(failures)
    hasher.combine(starts)
    hasher.combine(budget)
    hasher.combine(backgroundFailures)
    hasher.combine(backgroundStarts)
    hasher.combine(observations)
  }
}
