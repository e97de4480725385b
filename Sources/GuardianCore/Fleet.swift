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
    /// Several services began to loop at once, and escalation is frozen; nil: that is over.
    case commonCause(CommonCause?)
    /// What has happened to none of the services, or to many of them.
    case record(Occurrence)
  }

  /// What an operator's request came to.
  package enum Answer: Hashable, Sendable {
    /// Done and true. `note` is for the operator: `not quarantined`, what would release it, …
    case done(note: String)
    case failed(reason: String)
  }

  /// By `ServiceID.index`; nil once forgotten. A number is never given out twice.
  private var machines: [ServiceMachine?] = []
  private var tallies: [Tally] = []
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
  /// See `Dependencies`: who waits for whom.
  private var dependencies = Dependencies()
  /// What has changed for others is being followed up.
  private var followsUp = false
  private var governor = Governor()
  private var lineIsMoving = false
  private var causes = CommonCauseWatch()

  private var board = SwitchBoard()
  private var fallbacks = Fallbacks()

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
      case repaired(Repaired)
    }
  }

  /// What became of repairs that were ordered, as far as that is known.
  package struct Repaired: Hashable, Sendable {
    package var note: String
    /// It is wanted, and is to be ready after them.
    package var thenReady: Bool
    /// Nil: none of them has failed.
    package var failure: String?
    package init(note: String, thenReady: Bool, failure: String? = nil) {
      self.note = note
      self.thenReady = thenReady
      self.failure = failure
    }
    fileprivate var answer: Answer { failure.map { .failed(reason: $0) } ?? .done(note: note) }
    fileprivate func with(_ why: String) -> String { failure.map { "\($0); \(why)" } ?? why }
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
    machines[index]?.switches = board.switches(of: spec)
    number(spec.name, index)
    if machines[index]?.isSuspect ?? false { care.suspects.append(index) }
    schedule(index, machines[index]?.nextDeadline ?? (nil, nil))
    tallies.append(machines[index]?.tally ?? Tally(word: .stopped, held: false, waitsForOthers: false))
    dependencies.added(index, named: spec.name)
    defineDependencies(of: index)
    fallbacks.define(index, spec.quarantine.fallback)
    if !fallbacks.isEmpty { fallbacks.noteChanged(index, spec.name) }
    followUp(now: now)
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
    var turn = newTurn(now)
    // They may have come since it was stored, so that they are applied to what it was doing then.
    let switches = machines[id.index]?.switches ?? .none
    machines[id.index]?.switches = .none
    machines[id.index]?.restore(stored, &turn)
    machines[id.index]?.switched(switches, &turn)
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

  /// Of the host's time zone from UTC, in seconds: windows like `plugins.when` are in local time. A deadline that is on its
  /// way when it changes is looked at anew when it comes.
  package var utcOffset = 0

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
    guard let machine = machine(id.index) else { return spec }
    if let process = machine.nextProcess { spec.process = process.value }
    spec.process = machine.withFoundPlugins(spec.process)
    return spec
  }
  /// The service's definition in force.
  package func spec(of id: ServiceID) -> ServiceSpec? { machine(id.index)?.spec }
  package func machine(of id: ServiceID) -> ServiceMachine? { machine(id.index) }
  /// Asked for every service of a long list: nothing is copied for it.
  package func writesToFile(_ id: ServiceID) -> Bool {
    machines.indices.contains(id.index) && machines[id.index]?.spec.log == .file
  }
  /// The same.
  package func hasPlugins(_ id: ServiceID) -> Bool {
    machines.indices.contains(id.index) && machines[id.index]?.spec.process.plugins.isEmpty == false
  }
  /// The step that it stands on, and whether it was started again since it was ordered; asked for at every event, and so
  /// without a copy of the machine.
  package func progress(of id: ServiceID) -> (step: Step, again: Bool)? {
    guard machines.indices.contains(id.index), let step = machines[id.index]?.record.step,
      let restarts = machines[id.index]?.record.restarts
    else { return nil }
    return (step, restarts > 0)
  }
  /// Where the service stands on its ladder, and why.
  package func standing(of id: ServiceID) -> (step: Step, strikes: Int, allowed: Int, reason: String)? {
    machine(id.index).map { ($0.record.step, $0.record.strikes, $0.strikesAllowed(on: $0.record.step), $0.reason) }
  }

  private func machine(_ index: Int) -> ServiceMachine? {
    machines.indices.contains(index) ? machines[index] : nil
  }

  // MARK: Definitions

  /// The definition on disk is now this one.
  ///
  /// - Returns: What that has changed, and when it takes effect; nil where it says what it said before.
  package mutating func define(_ spec: ServiceSpec, for id: ServiceID, now: Now) -> ReloadChange.Changed? {
    guard let before = machine(id.index), let old = latestSpec(of: id) else { return nil }
    var asKnown = spec
    asKnown.process = spec.process.withWhatIsKnown(from: old.process)
    handle(.defined(spec), for: id, now: now)
    if old == asKnown { return nil }
    guard let after = machine(id.index) else { return nil }
    let difference = SpecDifference(from: old, to: asKnown)
    let pending = after.pendingKeys
    var changed = ReloadChange.Changed(name: spec.name.text)
    changed.live = difference.live + difference.atStart.filter { !pending.contains($0) }
    changed.atStart = difference.atStart.filter { pending.contains($0) }
    changed.note = Self.consequence(of: before, after)
    return changed
  }

  private static func consequence(of before: ServiceMachine, _ after: ServiceMachine) -> String {
    switch (before.phase, after.phase) {
    case (.starting, _), (.running, _): ""
    case (_, .starting): "starts now, with a fresh ladder"
    case (.repairing, .repairing):
      after.hasPendingDefinition ? "starts after the repair that is under way, with a fresh ladder" : ""
    case (.quarantined, .stopped): "out of quarantine; not started, since it is wanted down or held"
    default: ""
    }
  }

  /// Services that run on with what they were started with.
  package var pending: [ReloadChange.Pending] {
    inOrder.compactMap { name, id in
      guard let keys = machines[id.index]?.pendingKeys, !keys.isEmpty else { return nil }
      return ReloadChange.Pending(name: name.text, keys: keys)
    }
  }

  // MARK: What holds for all of them

  /// Nil: as many starts at once as there are. Takes effect at once.
  package mutating func govern(_ spec: GovernorSpec?, now: Now) {
    governor.set(spec, now: now.monotonic)
    moveLine(now)
  }
  /// What is told by all services together.
  private var noticeBudget = NoticeBudget()
  /// What the governor allows at once, who waits for it, and the starts under way; nil where it is off.
  package func governorState(now: Instant) -> (tokens: Int, waiting: Int, underWay: Int)? {
    // A look changes nothing.
    var governor = governor
    return governor.state(now: now)
  }
  /// How many services there are of each kind that there is, in words.
  package var counts: [(word: String, count: Int)] {
    var counts = [Int](repeating: 0, count: Tally.Word.allCases.count)
    for (_, id) in inOrder { counts[Int(tallies[id.index].word.rawValue)] += 1 }
    return Tally.Word.allCases.map { ($0.text, counts[Int($0.rawValue)]) }
  }

  /// How many services wait for the governor.
  package var inLine: Int { governor.waiting }

  private mutating func newTurn(_ now: Now) -> Turn {
    var turn = Turn(now: now, random: random)
    turn.allowance = governor.allowance(now: now.monotonic)
    turn.frozen = causes.isFrozen(now.boot)
    turn.utcOffset = utcOffset
    turn.noticesLeft = noticeBudget.left(now: now.boot)
    return turn
  }

  /// Starts those in line whose turn it is.
  private mutating func moveLine(_ now: Now) {
    guard governor.waiting > 0, !lineIsMoving, shutdown == .no else { return }
    lineIsMoving = true
    defer { lineIsMoving = false }
    var left = governor.waiting
    while left > 0, let next = governor.next(now: now.monotonic) {
      left -= 1
      deadlinesPassed &+= 1
      var turn = newTurn(now)
      turn.allowance = .unlimited
      machines[next]?.startFromLine(&turn)
      absorb(&turn, next)
    }
  }

  /// Nil: troubles of several services are never taken for one. Takes effect at once.
  package mutating func watchCommonCauses(_ spec: CommonCauseSpec?, now: Now) {
    let first = causes.current?.services.first
    if causes.set(spec) { commonCauseEnded(first, now) }
  }
  /// While escalation is frozen.
  package var commonCause: CommonCause? { causes.current }
  /// What an earlier guardian has noticed, in the same boot of the machine.
  package mutating func resume(_ cause: CommonCause, now: Now) { causes.resume(cause, now: now.boot) }

  private mutating func noticeCommonCause(_ turn: Turn, _ index: Int) {
    if turn.settled { causes.settled(index) }
    guard turn.beganToLoop, let services = causes.beganToLoop(index, now: turn.now) else { return }
    let cause = causes.begin(services.compactMap { machines[$0]?.spec.name }, now: turn.now)
    let freeze = cause.until - turn.now.boot
    output.append(.commonCause(cause))
    if let name = machines[index]?.spec.name {
      output.append(
        .act(
          ServiceID(index),
          .record(Occurrence(service: name, at: turn.now.wall, kind: .commonCause(cause, freeze: freeze)))))
    }
    // One notice for one cause: whoever is told by the same program is told once.
    var told: [[String]] = []
    for service in services {
      guard let command = machines[service]?.spec.notices[.onCommonCause],
        !told.contains(command)
      else { continue }
      told.append(command)
      var turn = Turn(now: turn.now, random: random)
      turn.noticesLeft = noticeBudget.left(now: turn.now.boot)
      machines[service]?.notify(
        .onCommonCause, about: Fingerprint.of(cause.sentence.utf8), reason: cause.sentence, &turn)
      noticeBudget.spend(turn.noticesTold, now: turn.now.boot)
      random = turn.random
      output += turn.actions.map { .act(ServiceID(service), $0) }
    }
  }

  private mutating func commonCauseEnded(_ first: ServiceName?, _ now: Now) {
    revision &+= 1
    output.append(.commonCause(nil))
    if let first, let id = id(named: first) {
      output.append(.act(id, .record(Occurrence(service: first, at: now.wall, kind: .commonCauseEnded))))
    }
  }

  // MARK: Switches

  /// These are there now, one for each file of `switches.d`; takes effect at once. Those of which the time is over are not in
  /// force, and stay so.
  package mutating func setSwitches(_ switches: [Switch], now: Now) { tell(board.set(switches, now: now), now) }

  /// In force, by the files' names.
  package var switches: [Switch] { board.inForce }

  /// It has strikes, or stands above step restart.
  package func isInTrouble(_ id: ServiceID) -> Bool {
    guard machines.indices.contains(id.index) else { return false }
    return (machines[id.index]?.record.strikes ?? 0) > 0 || (machines[id.index]?.record.step ?? .restart) > .restart
  }

  /// A start that has been asked for and not come about yet, as it is to be now: switches may have come since it was decided.
  ///
  /// - Returns: Nil where nothing has changed, or where the start is over.
  package mutating func amendStart(_ run: RunID, of id: ServiceID, now: Now) -> StartRequest? {
    guard machines.indices.contains(id.index), machines[id.index] != nil else { return nil }
    var amended: StartRequest?
    take(id.index, now: now) { amended = $0.amendStart(run, &$1) }
    return amended
  }

  /// The same for what the files of its plugins look like now.
  package mutating func amendStart(_ run: RunID, of id: ServiceID, seeing sights: [FileSight], now: Now)
    -> StartRequest?
  {
    guard machines.indices.contains(id.index), machines[id.index] != nil else { return nil }
    var amended: StartRequest?
    take(id.index, now: now) { amended = $0.amendStart(run, seeing: sights, &$1) }
    return amended
  }

  /// So many services are told of one by one; more of them have one event together.
  private static let toldOneByOne = 16

  private mutating func tell(_ news: [SwitchBoard.News], _ now: Now) {
    guard !news.isEmpty else { return }
    revision &+= 1
    for one in news {
      let kind: Occurrence.Kind, value: Switch
      switch one {
      case .inForce(let begun):
        kind = .switchInForce(file: begun.file, what: begun.what, reason: begun.reason, until: begun.until)
        value = begun
      case .over(let ended, let why):
        kind = .switchOver(file: ended.file, what: ended.what, why: why)
        value = ended
      }
      var told: [ServiceName] = []
      if case .named(let names) = value.services {
        told = names.filter { numbers[$0] != nil }
        if !value.groups.isEmpty {
          told += inOrder.map(\.name).filter { name in
            !names.contains(name)
              && (id(named: name).flatMap { spec(of: $0)?.groups }?.contains(where: value.groups.contains) ?? false)
          }
        }
      }
      if told.isEmpty || told.count > Self.toldOneByOne { told = [Occurrence.guardian] }
      for name in told { output.append(.record(Occurrence(service: name, at: now.wall, kind: kind))) }
    }
    for index in machines.indices {
      guard let spec = machines[index]?.spec else { continue }
      let switches = board.switches(of: spec)
      if machines[index]?.switches != switches { take(index, now: now) { $0.switched(switches, &$1) } }
    }
  }

  // MARK: Events, orders, time

  package mutating func handle(_ event: ServiceEvent, for id: ServiceID, now: Now) {
    guard machines.indices.contains(id.index) else { return }
    if case .spawned = event {
      starts += 1
      startOrder[id.index] = starts
    }
    let isLinked = dependencies.concerns(id.index)
    if isLinked, dependencies.hasRequirements(id.index) {
      machines[id.index]?.sharesBlame = dependencies.sharesBlame(id.index, now: now.monotonic)
    }
    if case .begin = event { beginAsFallback(id.index, now: now) }
    var turn = newTurn(now)
    machines[id.index]?.handle(event, &turn)
    absorb(&turn, id.index)
    switch event {
    case .defined:
      // It may have come to be in a group, or left one.
      if !board.isEmpty, let machine = machines[id.index] {
        let switches = board.switches(of: machine.spec)
        if machine.switches != switches { take(id.index, now: now) { $0.switched(switches, &$1) } }
      }
      defineDependencies(of: id.index)
      fallbacks.define(id.index, machines[id.index]?.spec.quarantine.fallback)
      followUp(now: now)
    case .removed where isLinked: dismissDependents(of: id.index, now: now)
    case .ended where isLinked: excuseDependents(of: id.index, now: now)
    default: break
    }
  }

  /// An operator's order. With a `request`, exactly one answer follows, when the order has come to its outcome
  /// (`wait` false: when it has been accepted and is durable).
  package mutating func order(_ command: Command, for id: ServiceID, request: RequestID?, wait: Bool, now: Now) {
    var turn = newTurn(now)
    guard machines.indices.contains(id.index), let expectation = machines[id.index]?.order(command, &turn) else {
      if let request { output.append(.answer(request, .failed(reason: "no such service"))) }
      return
    }
    // Milestones of this very order belong to those who waited before; the new waiter judges by the state.
    absorb(&turn, id.index)
    if dependencies.concerns(id.index) {
      switch command.verb {
      case .stop: dismissDependents(of: id.index, now: now)
      case .start, .restart, .release: pullUp(for: id.index, by: command.by, now: now)
      case .reset, .hold, .reload, .plugins, .safeMode, .repair: break
      }
    }
    guard let request, let machine = machine(id.index) else {
      if let request { output.append(.answer(request, .done(note: "removed"))) }
      return
    }
    let goal: Waiter.Goal =
      switch expectation {
      case .accepted(let note): .durable(.done(note: note))
      case .inVain(let reason): .durable(.failed(reason: reason))
      case .ready(let note) where machine.waitsForOthers:
        wait ? .ready(note: note) : .durable(.done(note: waitingSentence(id.index)))
      case .ready(let note): wait ? .ready(note: note) : .durable(.done(note: note))
      case .stopped(let note): wait ? .stopped(note: note) : .durable(.done(note: note))
      case .reloaded(let note, let after):
        wait ? .reloaded(note: note, after: after) : .durable(.done(note: note))
      case .repaired(let note, let thenReady):
        wait ? .repaired(Repaired(note: note, thenReady: thenReady)) : .durable(.done(note: ""))
      }
    waiters[id.index, default: []].append(Waiter(request: request, goal: goal, ticket: machine.issued))
    if case .ready = expectation, wait, case .quarantined = machine.phase {
      // The start came to nothing before anybody could wait for it.
      meet([.failed(machine.reason)], id.index)
    } else {
      meet([], id.index)
      giveUpHope(id.index)
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
    // Who has to go last must be known before the first of them goes.
    dependencies.goingDown = true
    for index in machines.indices where machines[index] != nil {
      machines[index]?.shuttingDown = true
      noteStanding(of: index)
    }
    for index in machines.indices { machines[index]?.mustGoLast = dependencies.mustGoLast(index) }
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
    if let cause = causes.current, now.boot >= cause.until, causes.end() {
      deadlinesPassed &+= 1
      commonCauseEnded(cause.services.first, now)
    }
    if !board.isEmpty {
      let isDue = board.nextDue.map { $0 <= now.boot } ?? false
      tell(board.passTime(now: now), now)
      if isDue { deadlinesPassed &+= 1 }
    }
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
        break
      }
      deadlinesPassed &+= 1
    }
    moveLine(now)
  }

  /// When `passTime` has something to do next, on either clock.
  package var nextDeadline: (monotonic: Instant?, boot: BootInstant?) {
    func earlier<Time: Comparable>(_ a: Time?, _ b: Time?) -> Time? {
      if let a, let b { min(a, b) } else { a ?? b }
    }
    return (
      earlier(monotonicDue.first.map { Instant(nanoseconds: $0.due) }, shutdown == .no ? governor.nextDue : nil),
      earlier(
        earlier(bootDue.first.map { BootInstant(nanoseconds: $0.due) }, causes.current?.until), board.nextDue)
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
    noticeBudget.spend(turn.noticesTold, now: turn.now.boot)
    let id = ServiceID(index)
    var forgotten = false
    for action in turn.actions {
      if action == .forget { forgotten = true }
      output.append(.act(id, action))
    }
    governor.noted(
      forgotten ? .none : turn.standing, starts: turn.starts, of: index, now: turn.now.monotonic)
    noticeCommonCause(turn, index)
    meet(turn.milestones, index)
    if forgotten {
      causes.forget(index)
      fallbacks.define(index, nil)
      if let name = machines[index]?.spec.name, !fallbacks.isEmpty { fallbacks.noteChanged(index, name) }
      if let name = machines[index]?.spec.name, numbers[name] == index { number(name, nil) }
      machines[index] = nil
      dependencies.forget(index)
      for waiter in waiters.removeValue(forKey: index) ?? [] {
        output.append(.answer(waiter.request, .failed(reason: "the service was removed")))
      }
    }
    if !forgotten, !fallbacks.isEmpty, let name = machines[index]?.spec.name { fallbacks.noteChanged(index, name) }
    schedule(index, forgotten ? (nil, nil) : turn.due)
    if let tally = turn.tally { tallies[index] = tally }
    if dependencies.concerns(index) {
      machines[index]?.sharesBlame = false
      noteStanding(of: index)
      giveUpHope(index)
    }
    checkShutdown()
    if followsUp { return }
    followUp(now: turn.now)
    goOnWithCare(now: turn.now)
    moveLine(turn.now)
  }

  // MARK: Dependencies

  private mutating func noteStanding(of index: Int) {
    guard dependencies.concerns(index), let standing = machines[index]?.standing else { return }
    dependencies.note(index, standing)
  }

  private mutating func defineDependencies(of index: Int) {
    defineEdges(of: index)
    // What one file takes away another may have been waiting for, in the same reload.
    for other in dependencies.refusers where other != index { defineEdges(of: other) }
  }

  private mutating func defineEdges(of index: Int) {
    guard let spec = machines[index]?.spec else { return }
    let named = dependencies.define(index, requires: spec.requires, after: spec.after) { numbers[$0] }
    noteStanding(of: index)
    for other in named { noteStanding(of: other) }
  }

  /// Tells everybody for whom something has changed, and whoever changes by that, until nobody does. Never recurses: a
  /// chain may be as long as the fleet.
  private mutating func followUp(now: Now) {
    guard !followsUp else { return }
    followsUp = true
    defer { followsUp = false }
    while true {
      guard let index = dependencies.next() else {
        guard let name = fallbacks.next() else { break }
        lookAtFallback(name, now: now)
        continue
      }
      guard machines[index] != nil else { continue }
      let obstacle = dependencies.obstacle(of: index), mustGoLast = dependencies.mustGoLast(index)
      let changed = machines[index]?.obstacle != obstacle || machines[index]?.mustGoLast != mustGoLast
      machines[index]?.obstacle = obstacle
      machines[index]?.mustGoLast = mustGoLast
      if changed, machines[index]?.heedsNeighbours ?? false {
        take(index, now: now) { $0.neighboursChanged(&$1) }
      } else if changed {
        revision &+= 1
        if let tally = machines[index]?.tally { tallies[index] = tally }
        noteStanding(of: index)
        giveUpHope(index)
      }
      if mustGoLast, machines[index]?.departure != nil { dismissDependents(of: index, now: now) }
    }
  }

  private mutating func take(_ index: Int, now: Now, _ what: (inout ServiceMachine, inout Turn) -> Void) {
    guard var machine = machines[index] else { return }
    machines[index] = nil
    machine.obstacle = dependencies.obstacle(of: index)
    var turn = newTurn(now)
    what(&machine, &turn)
    machine.close(&turn)
    machines[index] = machine
    absorb(&turn, index)
  }

  // MARK: Fallbacks

  /// Starts it where somebody needs it, stops it where nobody does, and lets those go on that have waited for its end.
  private mutating func lookAtFallback(_ name: ServiceName, now: Now) {
    let users = fallbacks.users(of: name)
    var needed: ServiceName?
    var comes = false, isNew = false
    for user in users {
      guard machines[user]?.needsFallback(now.boot) ?? false else {
        fallbacks.served.remove(user)
        continue
      }
      needed = needed ?? machines[user]?.spec.name
      guard let machine = machines[user], machine.begun, !fallbacks.served.contains(user) else { continue }
      comes = true
      isNew = isNew || machine.quarantinedNow
    }
    if let index = numbers[name], let machine = machines[index], machine.begun, shutdown == .no, !machine.removed {
      if let needed {
        if comes {
          for user in users where machines[user]?.needsFallback(now.boot) ?? false {
            fallbacks.served.insert(user)
            machines[user]?.quarantinedNow = false
          }
          // An operator's stop holds until there is another quarantine.
          if machine.record.wanted == .down, isNew || machine.record.stoppedBy.isEmpty {
            take(index, now: now) { $0.standIn(for: needed, &$1) }
            pullUp(for: index, by: "the quarantine of \(needed)", now: now)
          }
        }
      } else if machine.record.standsIn, !machine.held {
        take(index, now: now) { $0.standAside(&$1) }
        dismissDependents(of: index, now: now)
      }
    }
    let lives = numbers[name].flatMap { machines[$0]?.livesAsFallback } ?? false
    for user in users where machines[user] != nil {
      machines[user]?.fallbackRuns = lives ? name : nil
      if !lives, machines[user]?.waitsForFallback ?? false { take(user, now: now) { $0.fallbackStopped(&$1) } }
    }
  }

  /// One that has stood in before guardian's start, and for nobody now, is not started again.
  private mutating func beginAsFallback(_ index: Int, now: Now) {
    guard machines[index]?.record.standsIn ?? false, machines[index]?.isBusy == false,
      let name = machines[index]?.spec.name
    else { return }
    let users = fallbacks.users(of: name)
    if users.contains(where: { machines[$0]?.needsFallback(now.boot) ?? false }) { return }
    machines[index]?.noLongerStandsIn()
  }

  /// It is being stopped by order: whatever requires it goes first, stays wanted, and waits.
  private mutating func dismissDependents(of index: Int, now: Now) {
    guard let name = machines[index]?.spec.name else { return }
    for other in dependencies.dependents(of: index) {
      switch machines[other]?.phase {
      case .starting, .running: take(other, now: now) { $0.standDown(for: name, &$1) }
      case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined, nil: break
      }
    }
  }

  /// It has died: a death of what requires it, just before, was no fault of its own.
  private mutating func excuseDependents(of index: Int, now: Now) {
    guard let name = machines[index]?.spec.name else { return }
    for other in dependencies.died(index, at: now.monotonic) {
      guard let judgement = machines[other]?.lastJudgement?.value,
        now.monotonic - judgement.at <= Dependencies.blameTime
      else { continue }
      take(other, now: now) { $0.takeBack(name, &$1) }
    }
  }

  /// Somebody has asked for a service that waits for others: those of them that are wanted and rest are started too.
  private mutating func pullUp(for index: Int, by: Author, now: Now) {
    guard let machine = machines[index], machine.waitsForOthers else { return }
    let command = Command(.start, by: "\(by), for \(machine.spec.name)")
    var seen: Set<Int> = [index]
    var stack = dependencies.awaited(by: index, .requires).compactMap(\.service)
    while let next = stack.popLast() {
      guard seen.insert(next).inserted, let other = machines[next], other.record.wanted == .up, !other.held else {
        continue
      }
      switch other.phase {
      case .backingOff, .finished, .waiting: take(next, now: now) { _ = $0.order(command, &$1) }
      case .stopped, .starting, .running, .repairing, .stopping, .quarantined: break
      }
      stack += dependencies.awaited(by: next, .requires).compactMap(\.service)
    }
  }

  /// Whoever waits for it to become ready is told when that will not happen by itself.
  private mutating func giveUpHope(_ index: Int) {
    guard waiters[index] != nil, let machine = machines[index], machine.waitsForOthers,
      machine.obstacle?.hopeless ?? false
    else { return }
    meet([.failed(wantedAndWaits + waitingSentence(index))], index)
  }

  /// `waits for db (stopped) and cache (backing-off)`.
  private func waitingSentence(_ index: Int) -> String {
    guard let obstacle = machines[index]?.obstacle else {
      return machines[index]?.fallbackRuns.map { "waits until its fallback \($0) has stopped" } ?? ""
    }
    let awaited = dependencies.awaited(by: index, obstacle.kind)
    var parts = awaited.prefix(3).map { name, service in
      "\(name) (\(service.flatMap { machines[$0] }?.wordForOthers ?? "without a valid definition"))"
    }
    if awaited.count > parts.count { parts.append("\(awaited.count - parts.count) more") }
    let last = parts.popLast() ?? obstacle.name.text
    let list = parts.isEmpty ? last : parts.joined(separator: ", ") + " and " + last
    return (obstacle.kind == .requires ? "waits for " : "starts after ") + list
  }

  /// The services with each behind all that it waits for; else as they were.
  package func inStartOrder(_ ids: [ServiceID]) -> [ServiceID] {
    dependencies.inOrder(ids.map(\.index)).map { ServiceID($0) }
  }

  /// How long an orderly stop of everything takes at most, if everybody uses the whole time-out.
  package var longestStop: Duration {
    var timeouts: [Int: Duration] = [:]
    for (_, id) in inOrder { timeouts[id.index] = machines[id.index]?.spec.stop.patience }
    return dependencies.longestStop(timeouts)
  }

  /// The services of a group, in order of name.
  package func members(of group: ServiceName) -> [ServiceID] {
    inOrder.compactMap { _, id in machines[id.index]?.spec.groups.contains(group) ?? false ? id : nil }
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
    var turn = newTurn(now)
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
        case (.ready, .stuck(let why)), (.stopped, .stuck(let why)): list[place].goal = .durable(.failed(reason: why))
        case (.repaired(var repaired), .repairFailed(let why)):
          repaired.failure = repaired.with(why)
          list[place].goal = .repaired(repaired)
        case (.repaired(let repaired), .repairsOver) where !repaired.thenReady,
          (.repaired(let repaired), .ready):
          list[place].goal = .durable(repaired.answer)
        case (.repaired(let repaired), .failed(let why)), (.repaired(let repaired), .stuck(let why)):
          list[place].goal = .durable(.failed(reason: repaired.with(why)))
        case (.repaired(let repaired), .stopped):
          list[place].goal = .durable(.failed(reason: repaired.with("stopped by another order")))
        case (.stopped, .failed), (.ready, .overtaken), (.durable, _), (_, .forgotten), (_, .reloaded),
          (_, .reloadsOver), (.reloaded, _), (_, .repairFailed), (_, .repairsOver), (.repaired, _):
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
      case repaired(Repaired)
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
          case .repaired(let repaired): .repaired(repaired)
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
      case .repaired(let repaired): .repaired(repaired)
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

  /// Of a service of which a table says no more than this: it is as it should be. Nil: `status` knows. Most are like that
  /// most of the time, and a look at each machine as a whole costs more than all the rest of a table of a thousand.
  package func allIsWell(with id: ServiceID, now: Now) -> (uptimeMilliseconds: Int64, restarts: Int)? {
    guard !observing, tallies.indices.contains(id.index), let since = tallies[id.index].wellSince,
      let restarts = machines[id.index]?.record.restarts
    else { return nil }
    return (max(0, (now.monotonic - since).milliseconds), restarts)
  }

  package func status(of id: ServiceID, now: Now, brief: Bool = false) -> ServiceStatus {
    guard machines.indices.contains(id.index) else { return ServiceStatus(name: "") }
    guard var status = machines[id.index]?.status(now, brief: brief) else { return ServiceStatus(name: "") }
    if let cause = causes.current, now.boot < cause.until, causes.isLooping(id.index) {
      status.notes.append(
        "common cause: \(cause.sentence); no step up for another \((cause.until - now.boot).rounded.description)")
    }
    if !fallbacks.isEmpty, let machine = machines[id.index] {
      if let fallback = fallbacks.fallback(of: id.index) {
        status.fallback = fallback.text
        if numbers[fallback] == nil {
          status.notes.append("its fallback \(fallback) has no valid definition, so that nothing runs in its place")
        }
      }
      if machine.record.standsIn {
        status.standsInFor = fallbacks.users(of: machine.spec.name).compactMap { user in
          machines[user].flatMap { $0.needsFallback(now.boot) ? $0.spec.name.text : nil }
        }
      }
      if machine.waitsForOthers, machine.obstacle == nil { status.reason = waitingSentence(id.index) }
    }
    guard dependencies.concerns(id.index), let machine = machines[id.index] else { return status }
    if machine.waitsForOthers {
      status.reason = waitingSentence(id.index)
      status.waitsFor = dependencies.awaited(by: id.index, machine.obstacle?.kind ?? .requires).prefix(4).map(
        \.name.text)
    } else if machine.departure != nil {
      let names = dependencies.liveDependents(of: id.index, limit: 4).compactMap { machines[$0]?.spec.name.text }
      status.reason = "stops when what needs it has stopped: " + names.joined(separator: ", ")
    }
    for name in dependencies.refused(by: id.index) {
      status.notes.append("it does not wait for \(name), which waits for it: a cycle")
    }
    return status
  }

  /// - Parameter wanted: Which of its services are counted.
  package func summary(of wanted: (ServiceName) -> Bool = { _ in true }) -> FleetSummary {
    var summary = FleetSummary()
    // One more than is shown: whether there are more is shown too.
    var names: [[String]] = Array(repeating: [], count: Tally.Word.allCases.count), held: [String] = []
    for (name, id) in inOrder where wanted(name) {
      let tally = tallies[id.index]
      summary.count(tally)
      if tally.held, held.count < 4 { held.append(name.text) }
      guard names[Int(tally.word.rawValue)].count < 4 else { continue }
      let obstacle = tally.waitsForOthers ? machines[id.index]?.obstacle : nil
      names[Int(tally.word.rawValue)].append(obstacle.map { "\(name) for \($0.name)" } ?? name.text)
    }
    for word in Tally.Word.allCases { summary.names[word.text] = names[Int(word.rawValue)] }
    summary.names["held"] = held
    return summary
  }

  /// What would happen, and when, if the service kept dying as soon as it is started: by the same machine, from its
  /// present state. Ends at the first trial from quarantine, or after 64 lines.
  ///
  /// - Parameter deaths: How it dies instead, and after how long a life; in turn.
  package func plan(for id: ServiceID, now: Now, deaths: [PlanDeath] = []) -> [PlanEntry] {
    machine(id.index).map { GuardianCore.plan($0, now: now, deaths: deaths) } ?? []
  }

  /// The same from zero.
  package static func plan(
    _ spec: ServiceSpec, switches: [Switch] = [], deaths: [PlanDeath] = []
  ) -> [PlanEntry] {
    let now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
    var machine = ServiceMachine(spec, record: nil, now: now)
    machine.switches = Switches(switches.filter { $0.concerns(spec.name, in: spec.groups) })
    return GuardianCore.plan(machine, now: now, deaths: deaths)
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
