package import GuardianModel

/// All services and their one owner: events go in, actions and answers come out, the next deadlines fall out.
///
/// The shell reads the clocks once, gives every event it has to `handle`, evidence first, then calls `passTime`, then
/// performs what `takeOutput` returns. Nothing in here knows what time it is, or does anything.
package struct Fleet: Sendable {
  package enum Output: Hashable, Sendable {
    case act(ServiceID, Action)
    case answer(RequestID, Answer)
    /// After `shutDown`: the last service has stopped.
    case allStopped
  }

  /// What an operator's request came to.
  package enum Answer: Hashable, Sendable {
    /// Done and true. `note` is for the operator: `not quarantined`, what would release it, …
    case done(note: String)
    case failed(reason: String)
  }

  /// By `ServiceID.index`; nil once forgotten. A number is never given out twice.
  private var machines: [ServiceMachine?] = []
  private var numbers: [ServiceName: Int] = [:]
  /// The entries of `numbers` by name: every look at the fleet wants them so, and only a reload changes them.
  private var inOrder: [(name: ServiceName, id: ServiceID)] = []
  /// When each service was last started, as a running number; shutdown goes backwards.
  private var startOrder: [Int] = []
  private var starts = 0
  private var random: Randomness
  private var monotonicDue = DeadlineQueue()
  private var bootDue = DeadlineQueue()
  private var waiters: [Int: [Waiter]] = [:]
  private var output: [Output] = []
  private var shutdown = Shutdown.no
  /// During a shutdown: everything below has stopped, for good. So a look at the rest is not a look at all.
  private var idleBelow = 0
  private var care = Care()

  private enum Shutdown { case no, going, done }

  private struct Waiter {
    var request: RequestID
    var goal: Goal
    /// The order itself must be durable before it is answered.
    var ticket: Ticket
    enum Goal {
      case durable(Answer)
      case ready(note: String)
      case stopped(note: String)
      case reloaded(note: String, after: Int)
    }
  }

  /// - Parameter seed: 256 bits of randomness: run ids and jitter come from it and from nothing else.
  package init(seed: (UInt64, UInt64, UInt64, UInt64)) { random = Randomness(seed: seed) }

  // MARK: Services

  /// A new service, in phase `stopped` (or as `record` says); `begin` starts it if it is wanted.
  package mutating func add(_ spec: ServiceSpec, record: ServiceRecord?, now: Now) -> ServiceID {
    let index = machines.count
    machines.append(ServiceMachine(spec, record: record, now: now))
    startOrder.append(0)
    if shutdown != .no { machines[index]?.shuttingDown = true }
    machines[index]?.guardianObserving = observing
    number(spec.name, index)
    if machines[index]?.isSuspect ?? false { care.suspects.append(index) }
    schedule(index, machines[index]?.nextDeadline ?? (nil, nil))
    return ServiceID(index)
  }

  /// A service as the store has kept it, in the phase in which it was; nil: a new one.
  ///
  /// What an earlier instance of guardian has left alive is listed by `adoptees(of:)`. When each of them has been
  /// answered for, `begin` starts what is wanted and does not live. Entries that close the book of what the machine took
  /// down with it come out of this call, before anything can be started.
  package mutating func add(_ spec: ServiceSpec, stored: StoredRecord?, now: Now) -> ServiceID {
    let id = add(spec, record: nil, now: now)
    guard let stored else { return id }
    var turn = Turn(now: now, random: random)
    machines[id.index]?.restore(stored, &turn)
    if machines[id.index]?.isSuspect ?? false { care.suspects.append(id.index) }
    absorb(&turn, id.index)
    return id
  }

  /// What the shell has to look for, and to answer for with `adopted`, `ended` and `emptied`, `hookAdopted` or
  /// `hookEnded`: a run or a hook, or a run and the command of its reload, for a service that has just been added.
  package func adoptees(of id: ServiceID) -> [Adoptee] { machine(id.index)?.adoptees ?? [] }

  /// Guardian does not trust itself: restarts go on, repairs, safe mode and quarantine are only logged.
  package mutating func setObserving(_ observing: Bool) {
    self.observing = observing
    for index in machines.indices { machines[index]?.setGuardianObserving(observing) }
  }
  package private(set) var observing = false

  /// Nil: the name is free again.
  private mutating func number(_ name: ServiceName, _ index: Int?) {
    var low = 0, high = inOrder.count
    while low < high {
      let middle = (low + high) / 2
      if inOrder[middle].name < name { low = middle + 1 } else { high = middle }
    }
    if low < inOrder.count, inOrder[low].name == name { inOrder.remove(at: low) }
    if let index { inOrder.insert((name, ServiceID(index)), at: low) }
    numbers[name] = index
  }

  /// Nil for a name that is unknown or forgotten.
  package func id(named name: ServiceName) -> ServiceID? { numbers[name].map { ServiceID($0) } }
  /// In order of name.
  package var ids: [ServiceID] { inOrder.map(\.id) }
  package var count: Int { numbers.count }
  /// The service's definition as it was read last, whether its process keys are in force yet or not.
  package func latestSpec(of id: ServiceID) -> ServiceSpec? {
    guard var spec = spec(of: id) else { return nil }
    if let process = machine(id.index)?.nextProcess { spec.process = process.value }
    return spec
  }
  /// The service's definition in force.
  package func spec(of id: ServiceID) -> ServiceSpec? { machine(id.index)?.spec }
  package func machine(of id: ServiceID) -> ServiceMachine? { machine(id.index) }

  private func machine(_ index: Int) -> ServiceMachine? {
    machines.indices.contains(index) ? machines[index] : nil
  }

  // MARK: Events, orders, time

  package mutating func handle(_ event: ServiceEvent, for id: ServiceID, now: Now) {
    guard machines.indices.contains(id.index) else { return }
    if case .spawned = event {
      starts += 1
      startOrder[id.index] = starts
    }
    var turn = Turn(now: now, random: random)
    machines[id.index]?.handle(event, &turn)
    absorb(&turn, id.index)
  }

  /// An operator's order. With a `request`, exactly one answer follows, when the order has come to its outcome
  /// (`wait` false: when it has been accepted and is durable).
  package mutating func order(_ command: Command, for id: ServiceID, request: RequestID?, wait: Bool, now: Now) {
    var turn = Turn(now: now, random: random)
    guard machines.indices.contains(id.index), let expectation = machines[id.index]?.order(command, &turn) else {
      if let request { output.append(.answer(request, .failed(reason: "no such service"))) }
      return
    }
    // Milestones of this very order belong to those who waited before; the new waiter judges by the state.
    absorb(&turn, id.index)
    guard let request, let machine = machine(id.index) else {
      if let request { output.append(.answer(request, .done(note: "removed"))) }
      return
    }
    let goal: Waiter.Goal =
      switch expectation {
      case .accepted(let note): .durable(.done(note: note))
      case .inVain(let reason): .durable(.failed(reason: reason))
      case .ready(let note): wait ? .ready(note: note) : .durable(.done(note: note))
      case .stopped(let note): wait ? .stopped(note: note) : .durable(.done(note: note))
      case .reloaded(let note, let after):
        wait ? .reloaded(note: note, after: after) : .durable(.done(note: note))
      }
    waiters[id.index, default: []].append(Waiter(request: request, goal: goal, ticket: machine.issued))
    if case .ready = expectation, wait, case .quarantined = machine.phase {
      // The start came to nothing before anybody could wait for it.
      meet([.failed(machine.reason)], id.index)
    } else {
      meet([], id.index)
    }
  }

  /// The client is gone; the order itself stands.
  package mutating func abandon(_ request: RequestID) {
    for (index, list) in waiters where list.contains(where: { $0.request == request }) {
      let rest = list.filter { $0.request != request }
      waiters[index] = rest.isEmpty ? nil : rest
    }
  }

  /// Stops every service in the reverse of the order in which they started; `allStopped` follows. Wishes are kept.
  package mutating func shutDown(now: Now) {
    guard shutdown == .no else { return }
    shutdown = .going
    let order = machines.indices.filter { machines[$0] != nil }.sorted { (startOrder[$0], $0) > (startOrder[$1], $1) }
    for index in order { handle(.shutdown, for: ServiceID(index), now: now) }
    for index in order {
      // Nothing will become ready any more.
      meet([.failed("guardian is going down")], index)
    }
    checkShutdown()
  }

  /// How many deadlines have happened: while one is due and this stands still, nothing is being done about it.
  package private(set) var deadlinesPassed: UInt64 = 0

  /// Lets every due deadline happen.
  package mutating func passTime(now: Now) {
    // Each service may have a few deadlines due at once; more than that in one turn would be a machine running in
    // circles, which must cost one service its pace and not the loop its life.
    var left = 4 * machines.count + 4
    while left > 0 {
      left -= 1
      if let (due, index) = monotonicDue.first, due <= now.monotonic.nanoseconds {
        handle(.deadline, for: ServiceID(index), now: now)
      } else if let (due, index) = bootDue.first, due <= now.boot.nanoseconds {
        handle(.deadline, for: ServiceID(index), now: now)
      } else {
        return
      }
      deadlinesPassed &+= 1
    }
  }

  /// When `passTime` has something to do next, on either clock.
  package var nextDeadline: (monotonic: Instant?, boot: BootInstant?) {
    (
      monotonicDue.first.map { Instant(nanoseconds: $0.due) }, bootDue.first.map { BootInstant(nanoseconds: $0.due) }
    )
  }

  /// What is to be done, in order; emptied by the call.
  package mutating func takeOutput() -> [Output] {
    guard !output.isEmpty else { return [] }
    defer { output.removeAll(keepingCapacity: output.count <= 256) }
    return output
  }

  private mutating func absorb(_ turn: inout Turn, _ index: Int) {
    random = turn.random
    let id = ServiceID(index)
    var forgotten = false
    for action in turn.actions {
      if action == .forget { forgotten = true }
      output.append(.act(id, action))
    }
    meet(turn.milestones, index)
    if forgotten {
      if let name = machines[index]?.spec.name, numbers[name] == index { number(name, nil) }
      machines[index] = nil
      for waiter in waiters.removeValue(forKey: index) ?? [] {
        output.append(.answer(waiter.request, .failed(reason: "the service was removed")))
      }
    }
    schedule(index, forgotten ? (nil, nil) : turn.due)
    checkShutdown()
    goOnWithCare(now: turn.now)
  }

  /// Rises whenever a service may have changed: what was derived from the same number is still true.
  package private(set) var revision: UInt64 = 0

  private mutating func schedule(_ index: Int, _ due: (monotonic: Instant?, boot: BootInstant?)) {
    revision &+= 1
    monotonicDue.set(due.monotonic?.nanoseconds, for: index)
    bootDue.set(due.boot?.nanoseconds, for: index)
  }

  private mutating func checkShutdown() {
    guard shutdown == .going else { return }
    while idleBelow < machines.count {
      if machines[idleBelow]?.isBusy ?? false { return }
      idleBelow += 1
    }
    shutdown = .done
    output.append(.allStopped)
  }

  // MARK: Careful start

  /// The next suspect starts when it is its turn; see `Care`.
  private mutating func goOnWithCare(now: Now) {
    guard !care.suspects.isEmpty, shutdown == .no, let next = care.next(machines) else { return }
    var turn = Turn(now: now, random: random)
    machines[next]?.takeTurn(&turn)
    absorb(&turn, next)
  }

  // MARK: Those who wait

  private mutating func meet(_ milestones: [Milestone], _ index: Int) {
    guard var list = waiters[index], let machine = machines[index] else { return }
    for milestone in milestones {
      for place in list.indices {
        switch (list[place].goal, milestone) {
        case (.ready(let note), .ready): list[place].goal = .durable(.done(note: note))
        case (.ready, .failed(let why)): list[place].goal = .durable(.failed(reason: why))
        case (.ready, .stopped): list[place].goal = .durable(.failed(reason: "stopped by another order"))
        case (.stopped(let note), .stopped): list[place].goal = .durable(.done(note: note))
        case (.stopped, .ready): list[place].goal = .durable(.failed(reason: "started by another order"))
        case (.stopped, .overtaken): list[place].goal = .durable(.failed(reason: "started by another order"))
        case (.reloaded(let note, let after), .reloaded(let failure)):
          if after > 0 {
            list[place].goal = .reloaded(note: note, after: after - 1)
          } else {
            list[place].goal = .durable(failure.map { .failed(reason: $0) } ?? .done(note: note))
          }
        case (.reloaded, .reloadsOver(let why)): list[place].goal = .durable(.failed(reason: why))
        case (.stopped, .failed), (.ready, .overtaken), (.durable, _), (_, .forgotten), (_, .reloaded),
          (_, .reloadsOver), (.reloaded, _):
          break
        }
      }
    }
    list.removeAll { waiter in
      guard case .durable(let answer) = waiter.goal, machine.confirmed >= waiter.ticket else { return false }
      output.append(.answer(waiter.request, answer))
      return true
    }
    waiters[index] = list.isEmpty ? nil : list
  }

  /// An order that waits for its outcome, as one program of guardian hands it to the next.
  package struct Waiting: Hashable, Sendable {
    package enum Goal: Hashable, Sendable {
      case ready(note: String)
      case stopped(note: String)
      case reloaded(note: String, after: Int)
      /// It has come; only the record of it was awaited.
      case come(Answer)
    }
    package var request: RequestID
    package var service: ServiceID
    package var goal: Goal
    package init(request: RequestID, service: ServiceID, goal: Goal) {
      self.request = request
      self.service = service
      self.goal = goal
    }
  }

  package var waiting: [Waiting] {
    waiters.keys.sorted().flatMap { index in
      (waiters[index] ?? []).map { waiter in
        let goal: Waiting.Goal =
          switch waiter.goal {
          case .durable(let answer): .come(answer)
          case .ready(let note): .ready(note: note)
          case .stopped(let note): .stopped(note: note)
          case .reloaded(let note, let after): .reloaded(note: note, after: after)
          }
        return Waiting(request: waiter.request, service: ServiceID(index), goal: goal)
      }
    }
  }

  /// Goes on to wait. What the order itself changed is durable already.
  package mutating func wait(_ waiting: Waiting) {
    let goal: Waiter.Goal =
      switch waiting.goal {
      case .come(let answer): .durable(answer)
      case .ready(let note): .ready(note: note)
      case .stopped(let note): .stopped(note: note)
      case .reloaded(let note, let after): .reloaded(note: note, after: after)
      }
    guard machine(waiting.service.index) != nil else {
      return output.append(.answer(waiting.request, .failed(reason: "the service was removed")))
    }
    waiters[waiting.service.index, default: []].append(Waiter(request: waiting.request, goal: goal, ticket: .none))
    meet([], waiting.service.index)
  }

  /// Every record that was to be saved is, or counts as volatile.
  package var allSaved: Bool { machines.allSatisfy { $0.map { $0.confirmed >= $0.issued } ?? true } }

  // MARK: Looking

  package func status(of id: ServiceID, now: Now, brief: Bool = false) -> ServiceStatus {
    guard machines.indices.contains(id.index) else { return ServiceStatus(name: "") }
    return machines[id.index]?.status(now, brief: brief) ?? ServiceStatus(name: "")
  }

  package func summary() -> FleetSummary {
    var summary = FleetSummary()
    for (_, id) in inOrder { machines[id.index]?.count(into: &summary) }
    return summary
  }

  /// What would happen, and when, if the service kept dying as soon as it is started: by the same machine, from its
  /// present state. Ends at the first trial from quarantine, or after 64 lines.
  package func plan(for id: ServiceID, now: Now) -> [PlanEntry] {
    machine(id.index).map { GuardianCore.plan($0, now: now) } ?? []
  }

  /// The same from zero.
  package static func plan(_ spec: ServiceSpec) -> [PlanEntry] {
    let now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
    return GuardianCore.plan(ServiceMachine(spec, record: nil, now: now), now: now)
  }
}

extension ServiceMachine {
  /// Something lives, or will in this turn.
  var isBusy: Bool {
    switch phase {
    case .starting, .running, .stopping, .repairing: true
    case .stopped, .finished, .waiting, .backingOff, .quarantined: false
    }
  }
}
