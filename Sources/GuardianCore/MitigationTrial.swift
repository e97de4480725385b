package import GuardianModel

/// Which mitigation a service's next run has, judged by how the runs with it went.
///
/// Two failures in a row of a class that a mitigation may help begin a trial of the first one that has not been tried in
/// vain; one at a time. After five starts or an hour of running it is kept if its starts most likely fail less often than
/// those before it, else it is dropped, and so is one with which the same crash comes twice. What is dropped stays so until
/// the program changes; then all is forgotten, and it is tried plain.
///
/// Source: the section "Mitigation on trial" of the algorithms, level M1.
package struct MitigationTrial: Hashable, Sendable {
  package private(set) var record: MitigationRecord

  /// Failures in a row without any that begin a trial.
  package static let trigger = 2
  /// Enough to judge by: one of them.
  package static let starts = 5, time = Duration.hour
  /// How likely it has to be that fewer starts fail.
  package static let certainty = 0.9

  package init(_ record: MitigationRecord = MitigationRecord()) { self.record = record }

  /// What may help a program that dies of this, best first. Empty where nothing of this kind is allowed.
  package static func allowed(_ crashClass: CrashClass) -> [Mitigation] {
    switch crashClass {
    case .wild: [.zeroedMemory, .immediateBinding, .singleCPU]
    case .stack: [.largerStack]
    // A null pointer is no less null for it, a trap is deterministic, and what comes of lack of memory or of a wrong
    // configuration is not made better; for a heap that is found corrupt there is nothing without code in the process.
    case .ordered, .clean, .externalKill, .oom, .limit, .loader, .config, .trap, .abortHeap, .abort, .null, .segv, .bus,
      .fpe, .sandbox, .errorExit, .hang, .unknown:
      []
    }
  }

  /// A run has begun, and its program is this version of itself.
  ///
  /// - Parameter privileged: It has more power than who starts it: the loader ignores then what it is told.
  package mutating func program(_ build: UInt64, privileged: Bool) -> [MitigationChange] {
    let changed = record.build != 0 && record.build != build
    if changed || privileged {
      let changes = clear(why: privileged ? "its program is privileged" : "its program has changed")
      record.build = privileged ? 0 : build
      return changes
    }
    record.build = build
    return []
  }

  /// Nothing is known any more of what had been tried.
  package mutating func clear(why: String) -> [MitigationChange] {
    let active = record.active
    record = MitigationRecord()
    return active.map { [.dropped($0.mitigation, why: why)] } ?? []
  }

  /// A run has died of something, nobody having asked for it.
  ///
  /// - Parameters:
  ///   - signature: 0: not known.
  ///   - mitigation: That this run had.
  ///   - ran: How long it lived.
  ///   - settled: It had been counted as a start by `settled` before.
  package mutating func died(
    _ crashClass: CrashClass, signature: UInt64, with mitigation: Mitigation?, ran: Duration, settled: Bool
  ) -> [MitigationChange] {
    let allowed = Self.allowed(crashClass)
    guard let mitigation else {
      guard record.active == nil, !settled else { return [] }
      record.failures = allowed.isEmpty ? 0 : min(record.failures + 1, 1_000)
      return begin(allowed)
    }
    // Of one that has been dropped meanwhile nothing is to be learnt.
    guard var tally = record.active, tally.mitigation == mitigation else { return [] }
    if !settled { tally.starts += 1 }
    tally.failures = min(tally.failures + 1, tally.starts)
    tally.ran = tally.ran + ran
    // Where no signature tells two crashes apart, they are of one kind if both are what it was to help against.
    let again = tally.signature == signature && (signature != 0 || allowed.contains(mitigation))
    tally.signature = signature
    record.active = tally
    var changes: [MitigationChange] = []
    if again {
      changes = drop(tally, "the same crash came again with it")
    } else if let verdict = verdict(tally, ran: tally.ran) {
      changes = verdict
    }
    return record.active == nil ? changes + begin(allowed) : changes
  }

  /// A run has outlived its startup window.
  package mutating func settled(with mitigation: Mitigation?) -> [MitigationChange] {
    guard let mitigation else {
      if record.active == nil { record.failures = 0 }
      return []
    }
    guard var tally = record.active, tally.mitigation == mitigation else { return [] }
    tally.starts += 1
    record.active = tally
    return verdict(tally, ran: tally.ran) ?? []
  }

  /// A run that has settled lives since so long.
  package mutating func lives(since age: Duration, with mitigation: Mitigation?) -> [MitigationChange] {
    guard let tally = record.active, tally.mitigation == mitigation else { return [] }
    return verdict(tally, ran: tally.ran + age) ?? []
  }

  /// At what age a run with `mitigation` is old enough for it to be judged; nil: it has been, or is not the present one.
  package func judgedAt(with mitigation: Mitigation?) -> Duration? {
    guard let tally = record.active, tally.mitigation == mitigation, !tally.kept else { return nil }
    return max(.zero, Self.time - tally.ran)
  }

  private mutating func begin(_ allowed: [Mitigation]) -> [MitigationChange] {
    guard record.build != 0, record.active == nil, record.failures >= Self.trigger,
      let next = allowed.first(where: { !record.ineffective.contains($0) })
    else { return [] }
    record.active = MitigationTally(next, failedBefore: record.failures)
    return [.begun(next, failures: record.failures)]
  }

  /// Nil: it is too early, or has been judged before.
  private mutating func verdict(_ tally: MitigationTally, ran: Duration) -> [MitigationChange]? {
    guard !tally.kept, tally.starts >= Self.starts || ran >= Self.time else { return nil }
    let better = probabilityOfLess(tally.failures, of: tally.starts, than: tally.failedBefore, of: tally.failedBefore)
    // One start that lived for the hour after two that failed is just that likely.
    guard better >= Self.certainty - 1e-9 else {
      return drop(tally, "\(tally.failures) of \(tally.starts) starts failed with it, too")
    }
    record.active?.kept = true
    return [.kept(tally.mitigation, failures: tally.failures, starts: tally.starts)]
  }

  private mutating func drop(_ tally: MitigationTally, _ why: String) -> [MitigationChange] {
    record.ineffective.append(tally.mitigation)
    record.active = nil
    return [.dropped(tally.mitigation, why: why)]
  }
}

/// How likely the true share of `a` of `n` is less than that of `b` of `m`, where any share was as likely before: two Beta
/// distributions compared.
///
/// Source: P(X < Y) for Beta(a+1, n−a+1) and Beta(b+1, m−b+1) is a finite sum, each of its terms follows from the one
/// before.
func probabilityOfLess(_ a: Int, of n: Int, than b: Int, of m: Int) -> Double {
  // A few thousand starts decide as well as more would.
  let most = 4096
  let n = min(max(n, 0), most), m = min(max(m, 0), most)
  let b = min(max(b, 0), m)
  let xa = Double(min(max(a, 0), n) + 1), xb = Double(n + 2) - xa
  let ya = Double(b + 1), yb = Double(m + 2) - ya
  var term = 1.0, factor = 0.0
  while factor < yb {
    term *= (xb + factor) / (xa + xb + factor)
    factor += 1
  }
  var sum = 0.0, i = 0.0
  while i < ya {
    sum += term
    term *= (xa + i) * (yb + i) / ((xa + xb + yb + i) * (i + 1))
    i += 1
  }
  return min(1, max(0, sum))
}
