import GuardianModel

// The start after a machine has gone down twice in a row while the same services were starting: everybody else first,
// then these suspects, one at a time, each settled before the next. So a third loss finds one open ticket, and convicts
// exactly one.

struct Care: Sendable {
  /// By number, in the order in which they were added; those that are suspects no more leave by themselves.
  var suspects: [Int] = []
  /// Everything below has begun.
  private var begunBelow = 0

  /// The suspect whose turn it is now.
  mutating func next(_ machines: [ServiceMachine?]) -> Int? {
    suspects.removeAll { !(machines[$0]?.isSuspect ?? false) }
    guard !suspects.isEmpty else { return nil }
    while begunBelow < machines.count {
      if let machine = machines[begunBelow], !machine.begun { return nil }
      begunBelow += 1
    }
    // Whoever has had its turn and prepares for it, or waits for the governor, has no ticket yet.
    let busy = suspects.contains {
      machines[$0]?.record.openRun != nil || machines[$0]?.inLine != nil || machines[$0]?.isPreparing ?? false
    }
    if busy { return nil }
    return suspects.first { machines[$0]?.waitsForItsTurn ?? false }
  }
}

extension ServiceMachine {
  var isSuspect: Bool { record.hostLosses >= Self.lossesForCare }

  var waitsForItsTurn: Bool {
    if mayStart, inLine == nil, obstacle == nil, case .waiting(.distantFuture, _, _) = phase { true } else { false }
  }

  /// True where the start has been put off: every start of a suspect, until it has settled once. An operator's order
  /// overrides it, and what has a new definition is another program.
  mutating func mustWaitForItsTurn(_ kind: RunKind, byOperator: Bool) -> Bool {
    guard isSuspect, !careful, !byOperator, nextProcess == nil else { return false }
    phase = .waiting(retryAt: .distantFuture, delay: .zero, kind: kind)
    reason =
      "careful start: the machine went down \(record.hostLosses) times in a row while this was starting, so it waits "
      + "for its turn to start alone (`guardianctl start \(spec.name.text)` starts it now)"
    return true
  }

  mutating func takeTurn(_ turn: inout Turn) {
    let before = phase.name
    if waitsForItsTurn, case .waiting(_, _, let kind) = phase {
      careful = true
      start(kind, &turn)
    }
    finish(turn: &turn, phaseBefore: before)
  }
}
