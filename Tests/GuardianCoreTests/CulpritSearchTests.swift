import GuardianCore
import GuardianModel
import Testing

@Suite struct `the search for culprits` {
  func toggles(_ count: Int, hints: [Int: Double] = [:]) -> [CulpritSearch.Toggle] {
    (0..<count).map { CulpritSearch.Toggle(name: "p\($0)", hintScore: hints[$0] ?? 0) }
  }
  func search(_ count: Int, hints: [Int: Double] = [:], budget: CulpritSearch.Budget? = nil) -> CulpritSearch {
    CulpritSearch(
      toggles: toggles(count, hints: hints), failures: 5, starts: 5, background: (failures: 0, starts: 80),
      budget: budget)
  }
  /// Answers until it wants no more starts; at most as many as its budget has.
  func end(_ search: inout CulpritSearch, fails: (ToggleSet) -> Bool) -> CulpritSearch.Next {
    for _ in 0...search.budget.probes {
      switch search.next() {
      case .probe(let on): search.observe(.init(on: on, outcome: fails(on) ? .failed : .passed))
      case .final(let on): search.observe(.init(on: on, outcome: fails(on) ? .failed : .passed, full: true))
      case .goOn(let on): search.observe(.init(on: on, outcome: .passed, full: true))
      case .done, .notAPlugin, .exhausted: return search.next()
      }
    }
    return search.next()
  }

  @Test(arguments: [2, 3, 8, 17, 32])
  func `finds each single culprit that always fails`(count: Int) {
    for culprit in 0..<count {
      var search = search(count)
      let end = end(&search) { $0.contains(culprit) }
      #expect(end == .done(off: [culprit], pair: nil), "after \(search.observations)")
    }
  }

  @Test func `a single toggle needs no probe: the safe mode has shown it`() {
    #expect(search(1).next() == .done(off: [0], pair: nil))
  }

  @Test func `without toggles there is nothing to blame`() {
    #expect(search(0).next() == .notAPlugin)
  }

  @Test func `finds two that fail independently`() {
    var search = search(8)
    #expect(end(&search) { $0.contains(1) || $0.contains(6) } == .done(off: [1, 6], pair: nil))
  }

  @Test func `of two that fail only together one stays off, the later one where either would do`() {
    for (a, b) in [(0, 1), (2, 5), (6, 7)] {
      var search = search(8)
      let end = end(&search) { $0.contains(a) && $0.contains(b) }
      guard case .done(let off, let pair) = end else {
        Issue.record("\(end) after \(search.observations)")
        continue
      }
      #expect(off == [a] || off == [b], "after \(search.observations)")
      // Whether it fails alone has not been looked into where that did not matter.
      if let pair { #expect(ToggleSet([pair.disabled]) == off && ToggleSet([pair.disabled, pair.kept]) == [a, b]) }
    }
    var search = search(8)
    #expect(
      end(&search) { $0.contains(2) && $0.contains(5) } == .done(off: [5], pair: .init(disabled: 5, kept: 2)))
  }

  @Test func `a right hint makes it short, a wrong one does not make it wrong`() {
    var right = search(32, hints: [20: 9]), wrong = search(32, hints: [3: 9])
    #expect(end(&right) { $0.contains(20) } == .done(off: [20], pair: nil))
    #expect(right.probes <= 4)
    #expect(end(&wrong) { $0.contains(20) } == .done(off: [20], pair: nil))
  }

  @Test func `a probe that is the answer beyond doubt goes on, and is no further start`() {
    var search = search(4)
    search.observe(.init(on: [0, 1], outcome: .failed))
    search.observe(.init(on: [1], outcome: .failed))
    search.observe(.init(on: [0, 2, 3], outcome: .passed))
    #expect(search.next() == .goOn([0, 2, 3]))
    search.observe(.init(on: [0, 2, 3], outcome: .passed, full: true))
    #expect(search.probes == 3 && search.next() == .done(off: [1], pair: nil))
  }

  @Test func `says that it is no plugin when all of them run together`() {
    var search = search(8)
    #expect(end(&search) { _ in false } == .notAPlugin)
    #expect(search.nothing > 0.9)
  }

  @Test func `names the suspects with their probabilities`() {
    var search = search(4)
    search.observe(.init(on: [0, 1], outcome: .failed))
    search.observe(.init(on: [2, 3], outcome: .passed))
    let suspicion = search.suspicion
    #expect(suspicion.allSatisfy { (0...1).contains($0) })
    #expect(min(suspicion[0], suspicion[1]) > 10 * max(suspicion[2], suspicion[3]))
    #expect(search.safety(of: [2, 3]) > search.safety(of: [0, 2]))
  }

  @Test func `a failure of another kind is repeated once, and then held against nobody`() {
    var search = search(8)
    guard case .probe(let first) = search.next() else { return #expect(Bool(false)) }
    let before = search.suspicion
    search.observe(.init(on: first, outcome: .otherFailure))
    #expect(search.next() == .probe(first))
    search.observe(.init(on: first, outcome: .otherFailure))
    #expect(zip(search.suspicion, before).allSatisfy { abs($0 - $1) < 1e-12 })
    guard case .probe(let next) = search.next() else { return #expect(Bool(false)) }
    #expect(next != first)
    #expect(search.failingProbes == 2)
  }

  @Test func `what guardian, the host or an operator interrupted is no observation`() {
    var search = search(8)
    let before = search, next = search.next()
    search.observe(.init(on: [0], outcome: .none))
    #expect(search == before && search.next() == next)
  }

  @Test func `when its budget is over it leaves the largest set that has passed and not failed since`() {
    var search = search(8, budget: .init(probes: 4, failing: 8))
    search.observe(.init(on: [0, 1, 2], outcome: .passed))
    search.observe(.init(on: [0, 1, 2, 3], outcome: .passed))
    search.observe(.init(on: [3], outcome: .failed))
    #expect(search.next(outOfTime: true) == .exhausted(best: [0, 1, 2], why: .time))
    search.observe(.init(on: [4, 5, 6, 7], outcome: .failed))
    #expect(search.next() == .exhausted(best: [0, 1, 2], why: .probes))

    var unlucky = self.search(8, budget: .init(probes: 15, failing: 1))
    unlucky.observe(.init(on: [0, 1, 2, 3], outcome: .failed))
    #expect(unlucky.next() == .exhausted(best: [], why: .failingProbes))
  }

  @Test func `its budget grows with the logarithm of the toggles`() {
    #expect([1, 4, 8, 32, 64].map { CulpritSearch.Budget.standard(toggles: $0).probes } == [6, 12, 15, 21, 24])
    #expect(CulpritSearch.Budget.standard(toggles: 32).failing == 8)
  }

  @Test func `a probe lives four times as long as the oldest failure, between two seconds and the window`() {
    func window(_ age: Duration) -> Duration { CulpritSearch.probeWindow(largestAge: age, window: .seconds(60)) }
    #expect(window(.milliseconds(10)) == .seconds(2))
    #expect(window(.seconds(3)) == .seconds(12))
    #expect(window(.seconds(40)) == .seconds(60))
    #expect(CulpritSearch.probeWindow(largestAge: .seconds(9), window: .seconds(1)) == .seconds(1))
  }

  @Test(arguments: [65, 100, 1000])
  func `more than 64 toggles are searched by groups that hold each of them once`(count: Int) {
    let names = (0..<count).map { "/srv/plugins/\($0 % 3)/\($0).so" }
    let groups = CulpritSearch.groups(names)
    #expect(groups.count == ToggleSet.capacity)
    #expect(groups.flatMap { $0 }.sorted() == Array(0..<count))
    #expect(groups.allSatisfy { Set($0.map { $0 % 3 }).count == 1 }, "what shares a directory stays together")
    #expect((groups.map(\.count).max() ?? 0) <= 2 * (count / ToggleSet.capacity + 1))
  }

  @Test func `up to 64 toggles are no groups, and families beyond 64 are put together`() {
    #expect(CulpritSearch.groups(["a", "b"]) == [[0], [1]])
    let groups = CulpritSearch.groups((0..<300).map { "family\($0)-x" })
    #expect(groups.count == 64 && groups.flatMap { $0 } == Array(0..<300))
  }

  /// All that the world may answer, by dice: every rule that holds whatever the answers are.
  @Test(arguments: UInt64(1)...60)
  func `keeps its rules whatever the starts come to`(seed: UInt64) {
    var dice = Randomness(seed: (seed, 2, 3, 4))
    func below(_ bound: UInt64) -> Int { Int(dice.next() % bound) }
    let count = 1 + below(20)
    var hints: [Int: Double] = [:]
    for place in 0..<count where below(4) == 0 { hints[place] = Double(below(12)) - 1 }
    let failures = below(6), starts = failures + below(4)
    let toggles = toggles(count, hints: hints)
    func fresh(_ observations: [CulpritSearch.Observation]) -> CulpritSearch {
      CulpritSearch(
        toggles: toggles, failures: failures, starts: starts, background: (failures: 1, starts: 30),
        observations: observations)
    }
    let guilty = ToggleSet(bits: dice.next() & dice.next() & dice.next() & ToggleSet.all(count).bits)
    var search = fresh([])
    var last: (on: ToggleSet, full: Bool, outcome: CulpritSearch.Outcome)?
    while true {
      let next = search.next()
      #expect(fresh(search.observations).next() == next, "resumed, it goes on alike")
      #expect(search.probes <= search.budget.probes && search.failingProbes <= search.budget.failing)
      let on: ToggleSet, full: Bool
      switch next {
      case .probe(let set): (on, full) = (set, false)
      case .final(let set): (on, full) = (set, true)
      case .goOn(let set):
        #expect(last?.on == set && last?.outcome == .passed, "it is that run that goes on")
        (on, full) = (set, true)
      case .done(let off, let pair):
        if off != .all(count) {
          #expect(last?.full == true && last?.outcome == .passed, "the final set has run before")
          #expect(last.map { ToggleSet.all(count).subtracting($0.on) } == off)
        }
        if let pair { #expect(off.contains(pair.disabled) && !off.contains(pair.kept)) }
        return
      case .notAPlugin:
        #expect(search.nothing > 0.9)
        return
      case .exhausted(let best, let why):
        #expect(best.isEmpty || search.observations.contains { $0.on == best && $0.outcome == .passed })
        if why == .probes { #expect(search.probes == search.budget.probes) }
        return
      }
      #expect(on.isSubset(of: .all(count)) && !on.isEmpty, "only what it was given is switched")
      let outcome: CulpritSearch.Outcome
      switch below(20) {
      case 0: outcome = .none
      case 1, 2: outcome = .otherFailure
      default: outcome = !on.intersection(guilty).isEmpty && below(10) < 8 ? .failed : .passed
      }
      search.observe(.init(on: on, outcome: outcome, full: full))
      if outcome != .none { last = (on, full, outcome) }
    }
  }
}

@Suite struct `a set of toggles` {
  @Test func `holds places up to 63 and no other`() {
    var set: ToggleSet = [0, 5, 63]
    #expect(set.places == [0, 5, 63] && set.count == 3)
    for place in [-1, 64, .max, .min] {
      set.insert(place)
      #expect(!set.contains(place))
      set.remove(place)
    }
    #expect(set.places == [0, 5, 63] && set.description == "{0 5 63}")
  }
  @Test func `has all of up to 64`() {
    #expect(ToggleSet.all(0).isEmpty && ToggleSet.all(-3).isEmpty)
    #expect(ToggleSet.all(3).places == [0, 1, 2] && ToggleSet.all(64).count == 64 && ToggleSet.all(99).count == 64)
  }
  @Test func `is added to, taken from and compared`() {
    let a: ToggleSet = [1, 2, 3], b: ToggleSet = [3, 4]
    #expect(a.union(b) == [1, 2, 3, 4] && a.intersection(b) == [3] && a.subtracting(b) == [1, 2])
    #expect(ToggleSet([1, 3]).isSubset(of: a) && !b.isSubset(of: a))
  }
}
