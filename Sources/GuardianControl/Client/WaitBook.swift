package import GuardianModel

/// What `wait` waits for.
package enum WaitGoal: String, CaseIterable, Hashable, Sendable {
  case ready, settled, stopped, finished, quarantined

  /// One look at a service: it is so, it cannot come to it any more by what guardian does of its own accord, or it may.
  package enum Verdict: Hashable, Sendable {
    case reached
    case never(String)
    case pending
  }

  /// - Parameter service: Nil: it is not there any more.
  package func verdict(on service: ServiceStatus?) -> Verdict {
    guard let s = service else {
      return self == .stopped ? .reached : .never("it is not defined any more")
    }
    switch self {
    case .ready, .settled:
      if s.phase == .running, self == .ready || s.settled { return .reached }
      // A task that has ended well has done all that could be asked of it.
      if s.phase == .finished, !s.crashedAndFinished { return .reached }
    case .stopped: return s.phase == .stopped || s.phase == .finished ? .reached : .pending
    case .finished: if s.phase == .finished { return .reached }
    case .quarantined: if s.phase == .quarantined { return .reached }
    }
    switch s.phase {
    case .quarantined: return .never("it is in quarantine" + (s.reason.isEmpty ? "" : ": \(s.reason)"))
    case .finished: return .never("it has ended" + (s.lastEnd.map { ": \($0.text)" } ?? ""))
    case .stopped, .stopping:
      // One that is held, or waits for the end of a hold, is still wanted.
      return s.wanted == .down ? .never(s.phase == .stopped ? "it is stopped" : "it is being stopped") : .pending
    case .waiting, .starting, .running, .backingOff, .repairing: return .pending
    }
  }
}

/// Services that are waited for, and how far each is.
package struct WaitBook: Sendable {
  package struct Result: Hashable, Sendable {
    package var name: String
    package var verdict: WaitGoal.Verdict
    /// Nil: it has not been seen, or is not there any more.
    package var phase: PhaseName?
    /// What it was doing when it was last seen.
    package var reason = ""
  }
  package enum Outcome: Hashable, Sendable { case reached, never }

  package let goal: WaitGoal
  /// One is enough.
  package let any: Bool
  package private(set) var results: [Result]
  private var places: [String: Int] = [:]

  package init(_ names: [String], goal: WaitGoal, any: Bool) {
    self.goal = goal
    self.any = any
    results = names.map { Result(name: $0, verdict: .pending) }
    for (index, name) in names.enumerated() { places[name] = index }
  }

  /// Those that are not decided; once reached is reached.
  package var pending: [String] { results.filter { $0.verdict == .pending }.map(\.name) }
  package func isPending(_ name: String) -> Bool { places[name].map { results[$0].verdict == .pending } ?? false }

  /// - Parameters:
  ///   - services: Of those asked for, the ones that are there.
  /// - Returns: What has been decided by this look.
  package mutating func saw(_ services: [ServiceStatus], asked names: [String]) -> [Result] {
    var found: [String: ServiceStatus] = [:]
    for service in services { found[service.name] = service }
    var decided: [Result] = []
    for name in names {
      guard let index = places[name], results[index].verdict == .pending else { continue }
      let service = found[name]
      results[index].phase = service?.phase
      results[index].reason = service.map { $0.reason.isEmpty ? $0.lastEnd?.text ?? "" : $0.reason } ?? ""
      results[index].verdict = goal.verdict(on: service)
      if results[index].verdict != .pending { decided.append(results[index]) }
    }
    return decided
  }

  /// Nil: there is something to wait for.
  package var outcome: Outcome? {
    let reached = results.filter { $0.verdict == .reached }.count
    if any, reached > 0 { return .reached }
    if results.contains(where: { $0.verdict == .pending }) { return nil }
    return reached == results.count ? .reached : .never
  }

  package var progress: Progress {
    var progress = Progress()
    progress.total = results.count
    progress.done = results.filter { $0.verdict == .reached }.count
    progress.underWay = pending
    progress.failed = results.count - progress.done - progress.underWay.count
    return progress
  }
}

extension WaitBook.Result {
  /// For people, behind the name; nil for one that is still waited for.
  package func sentence(_ goal: WaitGoal) -> String {
    switch verdict {
    case .reached:
      phase == nil ? "not defined any more" : phase == .finished && goal != .finished ? "finished" : goal.rawValue
    case .never(let why): "will not become \(goal.rawValue): \(why)"
    case .pending:
      "still \(phase?.rawValue ?? "unknown")" + (reason.isEmpty ? "" : " (\(reason))")
    }
  }
}
