import GuardianModel

/// Who stands in for whom while it is in quarantine. The two never live at the same time: whoever leaves quarantine waits
/// until nothing of its fallback is left.
struct Fallbacks: Sendable {
  private var names: [Int: ServiceName] = [:]
  private var users: [ServiceName: [Int]] = [:]
  /// The present quarantine of these has had its fallback started.
  var served: Set<Int> = []
  private var queue: [ServiceName] = []

  var isEmpty: Bool { users.isEmpty && queue.isEmpty }
  func fallback(of service: Int) -> ServiceName? { names[service] }
  /// In the order of their numbers.
  func users(of name: ServiceName) -> [Int] { users[name] ?? [] }

  mutating func define(_ service: Int, _ name: ServiceName?) {
    let before = names[service]
    guard before != name else { return }
    if let before {
      let left = (users[before] ?? []).filter { $0 != service }
      users[before] = left.isEmpty ? nil : left
      enqueue(before)
    }
    names[service] = name
    served.remove(service)
    guard let name else { return }
    users[name] = ((users[name] ?? []) + [service]).sorted()
    enqueue(name)
  }

  /// Something has changed for this service.
  mutating func noteChanged(_ service: Int, _ name: ServiceName) {
    if let fallback = names[service] { enqueue(fallback) }
    if users[name] != nil { enqueue(name) }
  }

  private mutating func enqueue(_ name: ServiceName) { if !queue.contains(name) { queue.append(name) } }
  mutating func next() -> ServiceName? { queue.isEmpty ? nil : queue.removeFirst() }
}

extension ServiceMachine {
  /// Its fallback has to run.
  func needsFallback(_ now: BootInstant) -> Bool {
    guard case .quarantined = phase, record.wanted == .up, !removed, !shuttingDown else { return false }
    // It is about to make way for a trial.
    return record.quarantine?.nextTrial.map { now < $0 || !mayStart || !begun || obstacle != nil } ?? true
  }

  /// Something of it lives, and not because somebody else wants it to.
  var livesAsFallback: Bool { isBusy && (record.standsIn || record.wanted == .down) }

  /// Another service is in quarantine.
  mutating func standIn(for service: ServiceName, _ turn: inout Turn) {
    let before = phase.name
    let by: Author = "the quarantine of \(service)"
    note(.requested(verb: "start", by: by), &turn)
    _ = orderStart(by: by, &turn)
    record.standsIn = true
    save()
    finish(turn: &turn, phaseBefore: before)
  }

  /// Nobody needs it any more.
  mutating func standAside(_ turn: inout Turn) {
    let before = phase.name
    note(.requested(verb: "stop", by: "the end of a quarantine"), &turn)
    noLongerStandsIn()
    takeDown(&turn)
    finish(turn: &turn, phaseBefore: before)
  }

  mutating func noLongerStandsIn() {
    record.standsIn = false
    record.wanted = .down
    record.stoppedBy = ""
    save()
  }

  /// True where the start has been put off until nothing of its fallback lives any more.
  mutating func mustWaitForFallback(_ kind: RunKind, byOperator: Bool, _ turn: inout Turn) -> Bool {
    guard let fallbackRuns else { return false }
    if !waitsForFallback { note(.waitingFor(fallbackRuns, required: false), &turn) }
    startIsAnOrder = byOperator || (waitsForFallback && startIsAnOrder)
    waitsForFallback = true
    phase = .waiting(retryAt: .distantFuture, delay: .zero, kind: kind)
    reason = "waits until its fallback \(fallbackRuns) has stopped"
    return true
  }

  /// Nothing of its fallback lives any more.
  mutating func fallbackStopped(_ turn: inout Turn) {
    guard waitsForFallback else { return }
    waitsForFallback = false
    neighboursChanged(&turn)
  }
}
