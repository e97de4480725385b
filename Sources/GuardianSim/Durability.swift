package import GuardianCore
import GuardianModel

/// A guardian that is killed between any two of its actions, restarted, and rebooted under, while its services live and
/// die: what it has written down must be true, and enough.
///
/// Watched from outside: no second run beside a living one; every start has one end in the book; the strikes are as many
/// as the ends that count, whatever happened in between; what was acknowledged holds.
package struct DurabilityWorld {
  package enum Bug: String, CaseIterable, Sendable {
    /// A save is called durable as soon as it is asked for.
    case acknowledgedBeforeSaved
    /// The book and the record are not written in one piece.
    case bookWithoutRecord
    /// What lives is not looked for.
    case notLookedFor
    /// At adoption an end is told of what has been counted already.
    case countedTwice
    /// Everybody starts at once.
    case ungoverned
    /// The next guardian knows nothing of the common cause that this one has noticed.
    case freezeForgotten
  }

  private struct Process {
    var run: RunID
    var alive = true
  }
  private struct Pending {
    var service: Int, record: ServiceRecord, ticket: Ticket, entries: [Line]
  }
  /// A line of the book. `counts`: its end was not put down to a common cause.
  private struct Line {
    var entry: RunEntry
    var counts: Bool
  }

  private static let governor = {
    var governor = GovernorSpec()
    governor.startsPerSecond = 3
    governor.concurrent = 4
    return governor
  }()
  private static let cause = {
    var cause = CommonCauseSpec()
    // Few of them settle, and no guardian lives for long.
    cause.services = 2
    cause.within = .minute
    cause.freeze = .seconds(40)
    return cause
  }()

  private let bug: Bug?
  private var dice: Dice
  private var fleet = Fleet(seed: (1, 2, 3, 4))
  private var specs: [ServiceSpec] = []
  private var ids: [ServiceID] = []
  private var now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 1_790_000_000 * second))

  // The host's: outlives guardian.
  private var mains: [Process?]
  private var hooks: [Process?], reloads: [Process?]
  // The disk's: outlives the host.
  private var durable: [ServiceRecord?]
  private var open: [Set<RunID>]
  private var closed: [Set<RunID>]
  private var counting: [Int]
  private var successors: [Set<RunID>]
  private var durableCause: CommonCause?
  /// Until then whatever starts dies at once, for a reason that is none of its own.
  private var calamityUntil: Instant = .zero
  private var steps = 0
  // Guardian's own: gone with it.
  private var outbox: [(Int, Action)] = []
  private var inbox: [(Int, ServiceEvent)] = []
  private var pending: [Pending] = []
  private var entries: [[Line]]
  /// The end that comes next in the book is one that is not counted.
  private var uncounted: [Bool]
  /// When it has decided starts, in the last second.
  private var starts: [Instant] = []
  private var noticed: CommonCause?
  /// Written with the save that comes next.
  private var unsavedCause: CommonCause??
  private var bornBefore: Set<RunID> = []
  // The operators'.
  private var asked: [RequestID: (service: Int, wanted: Wanted)] = [:]
  private var acknowledged: [Wanted?]
  private var requests: UInt64 = 0

  package private(set) var kills = 0, reboots = 0, spawns = 0, adopted = 0, waits = 0, freezes = 0, resumed = 0

  package init(seed: UInt64, services: Int, bug: Bug? = nil) {
    self.bug = bug
    dice = Dice(seed: seed)
    mains = Array(repeating: nil, count: services)
    hooks = mains
    reloads = mains
    durable = Array(repeating: nil, count: services)
    open = Array(repeating: [], count: services)
    closed = open
    successors = open
    counting = Array(repeating: 0, count: services)
    entries = Array(repeating: [], count: services)
    uncounted = Array(repeating: false, count: services)
    acknowledged = Array(repeating: nil, count: services)
    for number in 0..<services {
      guard let name = ServiceName("d\(number)") else { continue }
      var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/d\(number)"]))
      spec.backoff.max = .seconds(5)
      if Self.neverForgets(number) {
        // Every end counts, and nothing is ever forgiven.
        spec.startupWindow = .day * 300
        spec.escalation.restart = 1_000_000
      } else {
        spec.startupWindow = .seconds(2)
        spec.escalation.restart = 1
        spec.late.budget = 20
        spec.repairs = [
          RepairSpec(name: "one", kind: .run(["/bin/one"])), RepairSpec(name: "two", kind: .run(["/bin/two"])),
        ]
        spec.quarantine.retryAfter = .seconds(20)
        if number % 3 == 0 { spec.ready = .notify }
        spec.reload = .command(["/bin/reload"])
        if number % 4 == 1 {
          var check = CheckSpec(name: "check", kind: .exec(["/bin/check"]))
          check.failures = 2
          spec.checks = [check]
          if number % 8 == 1 { spec.ready = .check }
        }
      }
      if number % 5 == 0 { spec.process.beforeStart = ["/bin/prepare"] }
      specs.append(spec)
    }
    comeUp(sameBoot: true, mark: now)
  }

  private static func neverForgets(_ number: Int) -> Bool { number % 2 == 0 }

  private func violation(_ service: Int, _ rule: String) -> Violation {
    Violation(
      at: .nanoseconds(now.monotonic.nanoseconds), service: specs[service].name.text, number: service, rule: rule)
  }

  // MARK: - Running

  package mutating func run(steps: Int) throws(Violation) {
    for _ in 0..<steps { try step() }
  }

  /// No more kills and orders: whatever is under way comes to its end, and the books are compared.
  package mutating func finish() throws(Violation) {
    for _ in 0..<100_000 where !(outbox.isEmpty && inbox.isEmpty && pending.isEmpty) { try work() }
    for service in specs.indices {
      guard let record = durable[service] else { continue }
      if !open[service].isSubset(of: Set([Self.live(record.situation)].compactMap { $0 })) {
        throw violation(service, "the book has open lines for what does not live")
      }
    }
    // Whoever stands in line has their turn, however many guardians have come and gone.
    let end = now.monotonic + .minute * 10
    while fleet.inLine > 0 {
      if now.monotonic > end {
        let waiting = specs.indices.first { fleet.status(of: ids[$0], now: now).phase == .waiting }
        throw violation(waiting ?? 0, "in line for ten minutes, and nobody else starts")
      }
      try work()
    }
  }

  private static func successor(_ situation: Situation?) -> RunID? {
    switch situation {
    case .living(let run), .stopping(let run, _): run.successor
    case .repairing, .stopped, .finished, .waiting, .backingOff, .quarantined, nil: nil
    }
  }

  private static func live(_ situation: Situation) -> RunID? {
    switch situation {
    case .living(let run), .stopping(let run, _): run.id
    case .repairing(let repair): repair.hook?.id
    case .stopped, .finished, .waiting, .backingOff, .quarantined: nil
    }
  }

  private mutating func step() throws(Violation) {
    steps += 1
    // Between times nobody dies alone, so that some settle and may begin to loop together.
    let isCalm = steps / 400 % 2 == 1
    switch dice.below(1000) {
    case 0..<8:
      kills += 1
      try goDown()
      let mark = now
      now = now.advanced(by: .nanoseconds(dice.time(millisecond, 10 * second)))
      for service in specs.indices where dice.chance(150) { die(service) }
      comeUp(sameBoot: true, mark: mark)
    case 8..<10:
      reboots += 1
      try goDown()
      for service in specs.indices {
        mains[service] = nil
        hooks[service] = nil
        reloads[service] = nil
      }
      let mark = now
      now = Now(
        monotonic: Instant(nanoseconds: dice.time(0, 10 * second)),
        boot: BootInstant(nanoseconds: dice.time(0, 10 * second)), wall: now.wall)
      calamityUntil = .zero
      comeUp(sameBoot: false, mark: mark)
    case 10..<40: order(dice.below(specs.count))
    case 40..<120:
      if isCalm { return try work() }
      die(dice.below(specs.count))
    case 120..<150:
      let service = dice.below(specs.count)
      if let main = mains[service], main.alive {
        switch dice.below(6) {
        case 0: inbox.append((service, .reloading(main.run, stamp: nil)))
        case 1 where !Self.neverForgets(service): inbox.append((service, .leaving(main.run)))
        case 2: inbox.append((service, .mainMoved(main.run, ProcessIdentity(pid: 5, startTicks: 5))))
        default: inbox.append((service, .ready(main.run)))
        }
      }
      if dice.chance(300) {
        fleet.order(Command(.reload, by: "root"), for: ids[service], request: nil, wait: false, now: now)
        try listen()
      }
      if let hook = reloads[service], dice.chance(500) {
        reloads[service] = nil
        inbox.append((service, .hookEnded(hook.run, dice.chance(500) ? .succeeded : .failed(.code(1)))))
      }
    case 150..<200:
      let service = dice.below(specs.count)
      if let hook = hooks[service] {
        hooks[service] = nil
        inbox.append((service, .hookEnded(hook.run, dice.chance(500) ? .succeeded : .failed(.code(1)))))
      }
    case 200..<208 where isCalm:
      calamityUntil = now.monotonic + .nanoseconds(dice.time(second, 8 * second))
      for service in specs.indices { die(service) }
    default: try work()
    }
  }

  private mutating func work() throws(Violation) {
    if !outbox.isEmpty {
      let (service, action) = outbox.removeFirst()
      return try perform(action, service)
    }
    if !inbox.isEmpty {
      let (service, event) = inbox.removeFirst()
      fleet.handle(event, for: ids[service], now: now)
      return try listen()
    }
    if !pending.isEmpty {
      let save = pending.removeFirst()
      try write(save)
      fleet.handle(.saved(save.ticket), for: ids[save.service], now: now)
      return try listen()
    }
    var wait = Duration.nanoseconds(dice.time(millisecond, second))
    let due = fleet.nextDeadline
    if let monotonic = due.monotonic { wait = min(wait, max(.zero, monotonic - now.monotonic)) }
    if let boot = due.boot { wait = min(wait, max(.zero, boot - now.boot)) }
    now = now.advanced(by: wait)
    fleet.passTime(now: now)
    try listen()
  }

  private mutating func listen() throws(Violation) {
    if fleet.inLine > 0 { waits += 1 }
    for output in fleet.takeOutput() {
      switch output {
      case .act(let id, let action):
        try checkFrozen(action, id.index)
        outbox.append((id.index, action))
      case .commonCause(let cause):
        if cause == nil, let noticed, now.boot < noticed.until { throw violation(0, "a freeze ended too soon") }
        if cause != nil { freezes += 1 }
        noticed = cause
        unsavedCause = .some(cause)
      case .answer(let request, let answer):
        guard let order = asked.removeValue(forKey: request), case .done = answer else { continue }
        acknowledged[order.service] = order.wanted
      case .allStopped, .record: break
      }
    }
  }

  /// As long as a common cause lasts nothing moves up, whichever guardian has noticed it.
  private func checkFrozen(_ action: Action, _ service: Int) throws(Violation) {
    guard case .record(let occurrence) = action else { return }
    let frozen = noticed.map { now.boot < $0.until } ?? false
    switch occurrence.kind {
    case .strike, .escalated, .quarantined:
      if frozen { throw violation(service, "\(occurrence.name) during a common cause") }
    case .notCounted:
      if !frozen { throw violation(service, "not counted, and there is no common cause") }
    default: break
    }
  }

  /// So many a second in the long run, and as many at once after a quiet second.
  private mutating func startDecided(_ service: Int) throws(Violation) {
    starts.removeAll { now.monotonic - $0 >= .seconds(1) }
    starts.append(now.monotonic)
    if starts.count > 2 * Self.governor.startsPerSecond {
      throw violation(service, "more starts than the governor allows")
    }
  }

  // MARK: - Guardian goes and comes

  /// SIGKILL: what it was about to do is not done. The store may have come some way with what it was given.
  private mutating func goDown() throws(Violation) {
    for save in pending.prefix(dice.below(pending.count + 1)) {
      if bug == .bookWithoutRecord {
        try book(save.entries, save.service, counts: true)
      } else {
        try write(save)
      }
    }
    for (_, order) in asked { acknowledged[order.service] = nil }  // not answered: either is right
    asked = [:]
    outbox = []
    inbox = []
    pending = []
    bornBefore = []
    starts = []
    unsavedCause = nil
    for service in specs.indices {
      entries[service] = []
      uncounted[service] = false
    }
    for service in specs.indices {
      if let wanted = acknowledged[service], durable[service]?.wanted ?? .up != wanted {
        throw violation(service, "what was acknowledged has been forgotten: it is to be \(wanted.rawValue)")
      }
    }
  }

  private mutating func comeUp(sameBoot: Bool, mark: Now) {
    fleet = Fleet(seed: (dice.next(), dice.next(), dice.next(), dice.next()))
    fleet.govern(bug == .ungoverned ? nil : Self.governor, now: now)
    fleet.watchCommonCauses(Self.cause, now: now)
    // The boot clock has begun anew, and whatever was wrong then.
    if !sameBoot { durableCause = nil }
    noticed = durableCause.flatMap { now.boot < $0.until ? $0 : nil }
    if let noticed {
      resumed += 1
      if bug != .freezeForgotten { fleet.resume(noticed, now: now) }
    }
    ids = specs.indices.map { service in
      fleet.add(
        specs[service],
        stored: durable[service].map { StoredRecord(record: $0, mark: mark, sameBoot: sameBoot) }, now: now)
    }
    for service in specs.indices {
      for adoptee in fleet.adoptees(of: ids[service]) { answer(adoptee, service) }
      if bug == .countedTwice, let end = durable[service]?.lastEnd, !end.hadBegun || end.cause == .exit,
        let adoptee = fleet.adoptees(of: ids[service]).first
      {
        inbox.append((service, .ended(adoptee.run, Death(.code(1)))))
        inbox.append((service, .emptied(adoptee.run)))
      }
      // Processes of which nothing is known any more belong to nobody, and a dead one is nobody's.
      if mains[service]?.alive == false { mains[service] = nil }
      inbox.append((service, .begin))
    }
    for output in fleet.takeOutput() { if case .act(let id, let action) = output { outbox.append((id.index, action)) } }
  }

  private mutating func answer(_ adoptee: Adoptee, _ service: Int) {
    if let successor = adoptee.successor, let main = mains[service], main.run == successor, main.alive {
      bornBefore.insert(successor)
      inbox.append((service, .superseded(adoptee.run)))
    }
    var place = adoptee.isHook ? hooks[service] : mains[service]
    if case .hook(let request) = adoptee.work, request.purpose == .reload { place = reloads[service] }
    let found = place?.run == adoptee.run && place?.alive == true && bug != .notLookedFor
    if adoptee.isHook {
      inbox.append(
        (service, found ? .hookAdopted(adoptee.run, pid: 2, startTicks: 2) : .hookEnded(adoptee.run, .failed(.unseen))))
    } else if found {
      adopted += 1
      inbox.append((service, .adopted(adoptee.run, pid: 2, startTicks: 2, readinessKnown: dice.chance(500))))
    } else {
      if !adoptee.mainEnded { inbox.append((service, .ended(adoptee.run, Death(.unseen)))) }
      inbox.append((service, .emptied(adoptee.run)))
    }
  }

  // MARK: - The host

  private mutating func die(_ service: Int) {
    guard let main = mains[service], main.alive else { return }
    mains[service] = nil
    inbox.append((service, .ended(main.run, Death(.code(1)))))
    inbox.append((service, .emptied(main.run)))
  }

  private mutating func order(_ service: Int) {
    requests += 1
    let request = RequestID(requests)
    let stop = dice.chance(500)
    asked[request] = (service, stop ? .down : .up)
    acknowledged[service] = nil
    fleet.order(
      Command(stop ? .stop(untilBoot: false) : dice.chance(500) ? .start : .restart, by: "root"), for: ids[service],
      request: request, wait: false, now: now)
    try? listen()
  }

  private mutating func perform(_ action: Action, _ service: Int) throws(Violation) {
    switch action {
    case .spawn(let request):
      if bornBefore.remove(request.run) == nil {
        if mains[service]?.alive == true { throw violation(service, "a second run beside a living one") }
        if hooks[service] != nil { throw violation(service, "a run beside a hook") }
        if request.run == mains[service]?.run { throw violation(service, "one run, spawned twice") }
        // A restart at once is written down alongside; it has a name that is known.
        if !open[service].contains(request.run), Self.successor(durable[service]?.situation) != request.run,
          !successors[service].contains(request.run)
        {
          throw violation(service, "started before it was written down")
        }
        mains[service] = Process(run: request.run)
        spawns += 1
        if specs[service].process.beforeStart.isEmpty { try startDecided(service) }
      }
      inbox.append((service, .spawned(request.run, pid: 2, executable: nil, startTicks: 2)))
      if now.monotonic < calamityUntil { die(service) }
    case .runHook(let request) where request.purpose == .reload:
      // What it concerns may have died a moment ago.
      reloads[service] = Process(run: request.id)
      inbox.append((service, .hookStarted(request.id, pid: 4, startTicks: 4)))
    case .reload(let run, _):
      if let main = mains[service], main.alive, main.run != run {
        throw violation(service, "a reload of what is not its own")
      }
    case .runHook(let request):
      if mains[service]?.alive == true || hooks[service] != nil {
        throw violation(service, "a repair beside what lives")
      }
      if request.purpose == .beforeStart { try startDecided(service) }
      hooks[service] = Process(run: request.id)
      inbox.append((service, .hookStarted(request.id, pid: 3, startTicks: 3)))
    case .signal(let run, _), .signalSet(let run, _):
      if let main = mains[service], main.alive {
        if main.run != run { throw violation(service, "a signal to what is not its own") }
        die(service)
      }
    case .signalHook(let hook, _):
      if reloads[service]?.run == hook {
        reloads[service] = nil
        inbox.append((service, .hookEnded(hook, .failed(.signal(.term, core: false)))))
      }
      if let process = hooks[service], process.run == hook {
        hooks[service] = nil
        inbox.append((service, .hookEnded(hook, .failed(.signal(.term, core: false)))))
      }
    case .probe(let probe):
      inbox.append(
        (service, .probed(probe.run, number: probe.number, dice.chance(800) ? .passed("") : .failed(""))))
    case .endProbes: break
    case .look(let run): if mains[service]?.run == run { inbox.append((service, .looked(run, .alive))) }
    case .examine(let report): if dice.chance(900) { inbox.append((service, .examined(report.end.run, Finding()))) }
    case .enter(let entry):
      var line = Line(entry: entry, counts: true)
      if case .closed = entry {
        line.counts = !uncounted[service]
        uncounted[service] = false
      }
      entries[service].append(line)
    case .save(let record, let ticket):
      let save = Pending(service: service, record: record, ticket: ticket, entries: entries[service])
      entries[service] = []
      if bug == .acknowledgedBeforeSaved { inbox.append((service, .saved(ticket))) }
      pending.append(save)
    case .record(let occurrence):
      if case .internalError(let text) = occurrence.kind { throw violation(service, text) }
      if case .notCounted = occurrence.kind { uncounted[service] = true }
    case .notify, .watch, .forget, .measure: break
    }
  }

  // MARK: - The disk

  private mutating func book(_ lines: [Line], _ service: Int, counts: Bool) throws(Violation) {
    for line in lines {
      switch line.entry {
      case .opened(let id, _, _, _):
        if open[service].contains(id) || closed[service].contains(id) {
          throw violation(service, "one start, written down twice")
        }
        open[service].insert(id)
      case .closed(let id, _, let outcome, _, _):
        if open[service].remove(id) == nil { throw violation(service, "an end without a start, or a second one") }
        closed[service].insert(id)
        if case .ended(let end) = outcome, counts, line.counts, end.crashClass != .ordered,
          end.cause != .host
        {
          counting[service] += 1
        }
      }
    }
  }

  private mutating func write(_ save: Pending) throws(Violation) {
    if let cause = unsavedCause {
      durableCause = cause
      unsavedCause = nil
    }
    // What is not wanted any more is not counted either.
    try book(save.entries, save.service, counts: save.record.wanted == .up)
    if let successor = Self.successor(save.record.situation) { successors[save.service].insert(successor) }
    durable[save.service] = save.record
    if open[save.service].count > 1 { throw violation(save.service, "two lines of the book are open") }
    if Self.neverForgets(save.service), save.record.quarantine == nil, save.record.step == .restart,
      save.record.strikes != counting[save.service]
    {
      throw violation(
        save.service, "\(save.record.strikes) strikes, and \(counting[save.service]) ends that count")
    }
  }
}
