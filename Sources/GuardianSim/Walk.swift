import GuardianCore
package import GuardianModel

/// A breadth-first walk over what one machine can come to: from its first start, every event that its surroundings
/// allow, in every order, and time only from deadline to deadline.
///
/// States are told apart by what can matter: the phase, the record, the surroundings, and the *order* of what is due
/// instead of the times themselves, so that there are finitely many. Each is visited with the machine that came there
/// first, which is the one with the shortest story.
package struct Walk {
  package struct Broken: Error, CustomStringConvertible {
    package var rule: String, story: [String]
    package var description: String { "\(rule) after: " + story.joined(separator: ", ") }
  }

  /// The service walked: small numbers, and something to do on every step.
  package static func spec(_ change: (inout ServiceSpec) -> Void = { _ in }) -> ServiceSpec? {
    guard let name = ServiceName("walked") else { return nil }
    var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/walked"]))
    spec.ready = .notify
    spec.startTimeout = .seconds(7)
    spec.startupWindow = .seconds(5)
    spec.stop.timeout = .seconds(3)
    spec.backoff.first = .seconds(1)
    spec.backoff.factor = 1
    spec.backoff.jitter = 0
    spec.escalation.restart = 2
    spec.escalation.repair = 1
    spec.escalation.safeMode = 1
    spec.escalation.deescalateAfter = .seconds(40)
    spec.late.budget = 1
    spec.late.within = .seconds(60)
    spec.fatalExit = [fatalCode]
    spec.repairs = [RepairSpec(name: "fix", kind: .run(["/bin/fix"]))]
    spec.process.plugins = [PluginSpec(name: "plugin")]
    spec.plugins.retryAfter = .seconds(30)
    spec.quarantine.retryAfter = .seconds(20)
    spec.quarantine.max = .seconds(40)
    change(&spec)
    return spec
  }

  package private(set) var states = 0
  package private(set) var transitions = 0
  package private(set) var phases: Set<PhaseName> = []
  /// Everything that can be reached has been.
  package private(set) var complete = false

  private struct Node {
    var machine: ServiceMachine
    var now: Now
    var random = Randomness(seed: (1, 2, 3, 4))
    var around = Surroundings()
    /// Which node it came from, and how.
    var parent: Int
    var step: String
  }

  /// What exists outside the machine.
  private struct Surroundings: Hashable {
    enum Main: Hashable { case none, asked, alive, leftovers }
    var main = Main.none
    var run: RunID?, older: RunID?
    var hook: RunID?, reloadHook: RunID?
    /// The hook is `before-start`; it has succeeded since the last start.
    var hookPrepares = false, prepared = false
    var saves: [Ticket] = []
    var look: RunID?
    /// A death whose evidence is being gathered.
    var examined: RunID?
    /// Numbers of probes that have not been answered, of the present run.
    var probes: [UInt64] = []
    var watched = false
    var forgotten = false
    /// What is being heard is guardian's own work.
    var hearsOwnWork = false
  }

  /// What tells one state from another.
  private struct Key: Hashable {
    var phase: PhaseName
    var kind: RunKind?, stage: Int, runPluginsOff: Bool, settled: Bool, byOperator: Bool
    var purpose: String, death: Death?, owed: Bool, killed: Bool, stopStep: Int, thenStart: Bool
    var repairStage: Int, outcome: Int, queue: Int, next: Int
    var wanted: Wanted, step: Step, strikes: Int, tries: Int, rounds: Int, late: Int
    var pluginsOff: Bool, held: Bool, quarantined: Bool, doubled: Bool
    var changed: Bool, volatile: Bool, goingDown: Bool, removed: Bool
    var main: Surroundings.Main, hook: Bool, saves: Int, look: Bool, watched: Bool, forgotten: Bool
    var mode: LadderMode, escalates: Bool, hasTrials: Bool
    var reload: [Int]
    var checks: [[Int]] = [], awaited = false
    var order: [Int]
    /// Of each plugin; of the search; whether repairs are ordered.
    var plugins: [Int] = []
    /// Being gathered, a strike; the last two signatures are there, and equal.
    var evidence: [Bool] = []
  }

  /// - Parameter limit: How many states are looked at, at most.
  package init(_ spec: ServiceSpec, limit: Int) throws(Broken) {
    let now = Now(
      monotonic: Instant(nanoseconds: hour), boot: BootInstant(nanoseconds: hour), wall: WallTime(nanoseconds: hour))
    var nodes = [Node(machine: ServiceMachine(spec, record: nil, now: now), now: now, parent: -1, step: "made")]
    var seen: Set<Key> = [Self.key(nodes[0])]
    var place = 0
    while place < nodes.count, place < limit {
      let node = nodes[place]
      for (name, move) in Self.moves(from: node, spec) {
        var next = node
        next.parent = place
        next.step = name
        do { try Self.make(move, &next) } catch {
          throw Broken(rule: error.rule, story: Self.story(nodes, place) + [name])
        }
        transitions += 1
        guard seen.insert(Self.key(next)).inserted else { continue }
        nodes.append(next)
        phases.insert(next.machine.phase.name)
      }
      place += 1
    }
    states = place
    complete = place == nodes.count
    // From each of a spread of them, good fortune must lead to a settled service.
    for place in stride(from: 0, to: states, by: max(1, states / 1500)) {
      do { try Self.fortune(nodes[place]) } catch {
        throw Broken(rule: error.rule, story: Self.story(nodes, place))
      }
    }
  }

  /// One long way instead of all short ones: what needs twenty things in a row is found here.
  ///
  /// Now and then a stretch of good fortune from where it is; after a removal or a shutdown it begins anew.
  package static func wander(_ spec: ServiceSpec, seed: UInt64, steps: Int) throws(Broken) {
    var dice = Dice(seed: seed)
    let now = Now(
      monotonic: Instant(nanoseconds: hour), boot: BootInstant(nanoseconds: hour), wall: WallTime(nanoseconds: hour))
    let start = Node(machine: ServiceMachine(spec, record: nil, now: now), now: now, parent: -1, step: "made")
    var node = start
    var story: [String] = []
    for _ in 0..<steps {
      if node.around.forgotten || node.machine.shuttingDown || node.machine.removed && dice.chance(200) {
        node = start
        story = []
      }
      // Never empty: orders are always among them.
      var moves = Self.moves(from: node, spec)
      let ends = dice.chance(10)
      moves.removeAll { name, _ in !ends && (name == "removed" || name == "shutdown") }
      // Orders and changes are many, and would leave no run the time to come to anything.
      let quiet = moves.filter { _, move in if case .order = move { false } else { true } }
        .filter { name, _ in !["redefined", "escalation off"].contains(name) && !name.hasPrefix("mode ") }
        .filter { name, _ in name != "no trials, no readiness, no repairs" }
      let (name, move) = dice.pick(dice.chance(700) && !quiet.isEmpty ? quiet : moves)
      story.append(name)
      do {
        try make(move, &node)
        if dice.chance(20) { try fortune(node) }
      } catch { throw Broken(rule: error.rule, story: story) }
    }
  }

  private static func story(_ nodes: [Node], _ last: Int) -> [String] {
    var story: [String] = []
    var place = last
    while place >= 0 {
      story.append(nodes[place].step)
      place = nodes[place].parent
    }
    return story.reversed()
  }

  // MARK: Moves

  private enum Move {
    case event(ServiceEvent)
    case order(Command.Verb)
    /// To the next deadline on either clock.
    case time
  }
  private struct Fault: Error { var rule: String }

  private static let executable = FileIdentity(device: 1, inode: 1, size: 1, modified: 0)

  private static func moves(from node: Node, _ spec: ServiceSpec) -> [(String, Move)] {
    let around = node.around
    var moves: [(String, Move)] = []
    if around.forgotten { return moves }
    let due = node.machine.nextDeadline
    if due.monotonic != nil || due.boot != nil { moves.append(("time", .time)) }
    if let ticket = around.saves.last { moves.append(("saved", .event(.saved(ticket)))) }
    if around.saves.count > 1, let ticket = around.saves.first {
      moves.append(("saved, the older", .event(.saved(ticket))))
    }
    if let run = around.run {
      switch around.main {
      case .none: break
      case .asked:
        moves.append(("spawned", .event(.spawned(run, pid: 2, executable: Self.executable))))
        for (name, own, missing) in [("own trouble", true, false), ("missing", false, true), ("cannot", false, false)] {
          let failure = SpawnFailure(
            stage: .exec, errno: 2, target: "/bin/walked", sentence: name, ownTrouble: own, missing: missing)
          moves.append((name, .event(.spawnFailed(run, failure))))
        }
      case .alive:
        moves.append(("ready", .event(.ready(run))))
        if spec.reload != nil {
          moves.append(("reloading", .event(.reloading(run, stamp: nil))))
          moves.append(("leaving", .event(.leaving(run))))
          moves.append(("triggers", .event(.watchdogTriggered(run))))
        }
        let ends: [(String, ExitStatus)] = [
          ("exit 1", .code(1)), ("exit 0", .code(0)), ("exit 127", .code(127)), ("fatal exit", .code(fatalCode)),
          ("killed", .signal(.kill, core: false)), ("unseen", .unseen),
        ]
        for (name, status) in ends { moves.append((name, .event(.ended(run, Death(status))))) }
        moves.append(("exit 1, leaving some", .event(.ended(run, Death(.code(1), leftovers: 1)))))
        moves.append(("traced", .event(.ended(run, Death(.code(1), traced: true)))))
      case .leftovers: moves.append(("emptied", .event(.emptied(run))))
      }
    }
    if let look = around.look {
      moves.append(("looks alive", .event(.looked(look, .alive))))
      moves.append(("looks stopped", .event(.looked(look, .stopped))))
      moves.append(("looks dumping", .event(.looked(look, .dumping))))
    }
    if let run = around.examined {
      let strong = Signature(value: 7, strong: true)
      moves.append(("examined", .event(.examined(run, Finding()))))
      moves.append(("a trap", .event(.examined(run, Finding(crashClass: .trap, signature: strong)))))
      moves.append(("incurable", .event(.examined(run, Finding(crashClass: .config)))))
    }
    if let hook = around.reloadHook {
      moves.append(("reload done", .event(.hookEnded(hook, .succeeded))))
      moves.append(("reload failed", .event(.hookEnded(hook, .failed(.code(1))))))
    }
    if let probe = around.probes.first, let run = around.run {
      moves.append(("probe passed", .event(.probed(run, number: probe, .passed("")))))
      moves.append(("probe failed", .event(.probed(run, number: probe, .failed("")))))
      moves.append(("probe not made", .event(.probed(run, number: probe, .notMade("")))))
    }
    if let hook = around.hook {
      moves.append(("repaired", .event(.hookEnded(hook, .succeeded))))
      moves.append(("repair failed", .event(.hookEnded(hook, .failed(.code(1))))))
      moves.append(("cannot repair", .event(.hookEnded(hook, .cannotRepair))))
    }
    if around.watched {
      let identity = FileIdentity(device: 1, inode: 1, size: 1, modified: node.now.monotonic.nanoseconds)
      moves.append(("executable", .event(.executableSeen(identity))))
    }
    if !spec.declaredFiles.isEmpty {
      // Seen before each start, too, and not only where it is watched.
      let moment = UInt64(bitPattern: node.now.monotonic.nanoseconds) &+ 1
      for (name, look, restored) in [
        ("file", 1, false), ("file changed", moment, false), ("file restored", moment, true),
      ] {
        moves.append((name, .event(.filesSeen([FileSight(path: "/etc/walked", look: look, restored: restored)]))))
      }
    }
    if let older = around.older, older != around.run {
      moves.append(("old news", .event(.ended(older, Death(.code(1))))))
    }
    let verbs: [Command.Verb] =
      [
        .start, .restart, .release, .reset, .stop(untilBoot: false), .hold(.seconds(9)), .hold(.zero),
      ] + (spec.reload == nil ? [] : [.reload])
    for verb in verbs { moves.append(("order \(verb.name)", .order(verb))) }
    if spec.process.plugins.count > 1, let plugin = spec.process.plugins.first?.name {
      for order in [PluginOrder.enable(plugin), .disable(plugin), .pin(plugin), .unpin(plugin), .search] {
        moves.append(("order plugins \(order.name)", .order(.plugins(order))))
      }
      for on in [true, false] { moves.append(("order safe-mode \(on ? "on" : "off")", .order(.safeMode(on)))) }
      if !spec.repairs.isEmpty { moves.append(("order repair", .order(.repair(nil)))) }
      // What it is to do without is often what it was seen to be well without.
      if let run = around.run, around.main == .alive, spec.plugins.acknowledge != nil {
        moves.append(("confirmed", .event(.pluginsConfirmed(run))))
      }
    }
    var changed = spec
    changed.process.environment = [EnvironmentVariable("V", "2")]
    moves.append(("redefined", .event(.defined(changed))))
    moves.append(("defined back", .event(.defined(spec))))
    // Policies that an operator may change at any moment.
    var policy = spec
    policy.escalation.enabled = false
    moves.append(("escalation off", .event(.defined(policy))))
    policy = spec
    policy.mode = spec.mode == .observe ? .enforce : .observe
    moves.append(("mode \(policy.mode.rawValue)", .event(.defined(policy))))
    policy = spec
    policy.quarantine.retryAfter = nil
    policy.ready = .none
    policy.repairs = []
    moves.append(("no trials, no readiness, no repairs", .event(.defined(policy))))
    moves.append(("resumed", .event(.resumed(slept: .seconds(1)))))
    moves.append(("begin", .event(.begin)))
    moves.append(("removed", .event(.removed)))
    moves.append(("shutdown", .event(.shutdown)))
    return moves
  }

  private static func make(_ move: Move, _ node: inout Node) throws(Fault) {
    switch move {
    case .time:
      let due = node.machine.nextDeadline
      var wait = Duration.seconds(1_000_000)
      if let monotonic = due.monotonic { wait = min(wait, monotonic - node.now.monotonic) }
      if let boot = due.boot { wait = min(wait, boot - node.now.boot) }
      guard wait > .zero else { throw Fault(rule: "a deadline that is over is still due") }
      node.now = node.now.advanced(by: wait)
    case .event(let event):
      switch event {
      case .saved(let ticket): node.around.saves.removeAll { $0 <= ticket }
      case .spawned: node.around.main = .alive
      case .spawnFailed: node.around.main = .none
      case .ended(let run, _) where run == node.around.run: node.around.main = .leftovers
      case .emptied: node.around.main = .none
      case .hookEnded(let hook, _) where hook == node.around.reloadHook: node.around.reloadHook = nil
      case .hookEnded(_, let result):
        node.around.hook = nil
        if node.around.hookPrepares { node.around.prepared = result == .succeeded }
      case .looked: node.around.look = nil
      case .examined: node.around.examined = nil
      case .filesSeen(let sights): node.around.hearsOwnWork = sights.allSatisfy(\.restored)
      case .probed(_, let number, _): node.around.probes.removeAll { $0 == number }
      default: break
      }
      try turn(&node) { $0.handle(event, &$1) }
      node.around.hearsOwnWork = false
    case .order(let verb):
      try turn(&node) { _ = $0.order(Command(verb, by: "walker"), &$1) }
    }
    // What has become due happens in the same turn, and must not go on for ever.
    for _ in 0..<8 {
      let due = node.machine.nextDeadline
      let monotonic = due.monotonic.map { $0 <= node.now.monotonic } ?? false
      let boot = due.boot.map { $0 <= node.now.boot } ?? false
      guard monotonic || boot else { return }
      try turn(&node) { $0.handle(.deadline, &$1) }
    }
    throw Fault(rule: "deadlines that never end")
  }

  private static func turn(_ node: inout Node, _ body: (inout ServiceMachine, inout Turn) -> Void) throws(Fault) {
    var turn = Turn(now: node.now, random: node.random)
    body(&node.machine, &turn)
    node.random = turn.random
    for action in turn.actions { try perform(action, &node) }
    if case .quarantined = node.machine.phase, node.machine.record.quarantine == nil {
      throw Fault(rule: "quarantined, and the record knows of none")
    }
  }

  private static func perform(_ action: Action, _ node: inout Node) throws(Fault) {
    func check(_ holds: Bool, _ rule: String) throws(Fault) { if !holds { throw Fault(rule: rule) } }
    let machine = node.machine
    switch action {
    case .spawn(let request):
      try check(node.around.main == .none, "a second run")
      try check(node.around.hook == nil, "a start while a hook runs")
      try check(
        request.spec.process.beforeStart.isEmpty || node.around.prepared, "a start that before-start has not prepared")
      node.around.prepared = false
      try check(machine.record.wanted == .up, "a start of what is not wanted")
      try check(!machine.shuttingDown && !machine.removed, "a start while going down")
      try check(request.run != node.around.run, "a run id used twice")
      try check(
        (machine.record.step == .quarantine) == (request.kind == .trial) || machine.spec.mode == .observe,
        "an ordinary start in quarantine, or a trial outside")
      try check(
        machine.record.step != .safeMode || request.kind != .ordinary || machine.spec.mode == .observe
          || !machine.spec.escalation.enabled
          || request.spec.process.plugins.allSatisfy { plugin in
            machine.record.plugins[plugin.name]?.pinned ?? false
              || request.disabledPlugins.contains { $0.name == plugin.name }
          } || machine.record.plugins.search != nil && !request.disabledPlugins.isEmpty, "plugins on in safe mode")
      try check(
        request.kind != .probe || machine.record.plugins.search?.probe != nil, "a probe that no search has asked for")
      node.around.older = node.around.run
      node.around.run = request.run
      node.around.main = .asked
    case .signal(let run, _), .signalSet(let run, _):
      try check(run == node.around.run && node.around.main != .none, "a signal to what is not there")
    case .reload(let run, _): try check(run == node.around.run && node.around.main == .alive, "a reload of nobody")
    case .runHook(let hook) where hook.purpose == .reload:
      try check(node.around.main == .alive, "a reload of nobody")
      node.around.reloadHook = hook.id
    case .runHook(let hook):
      try check(node.around.hook == nil, "two hooks at once")
      try check(node.around.main == .none, "a repair while a run lives")
      node.around.hook = hook.id
      node.around.hookPrepares = hook.purpose == .beforeStart
      node.around.prepared = false
    case .signalHook(let hook, _) where hook == node.around.reloadHook: break
    case .signalHook(let hook, _): try check(node.around.hook == hook, "a signal to a hook that is not there")
    case .save(_, let ticket):
      try check(ticket > node.around.saves.last ?? .none, "tickets do not rise")
      node.around.saves.append(ticket)
      if node.around.saves.count > 2 { node.around.saves.removeFirst() }
    case .look(let run): node.around.look = run
    case .examine(let report):
      try check(report.end.crashClass != .ordered, "a look into an end that was asked for")
      node.around.examined = report.end.run
    case .probe(let probe):
      try check(probe.run == node.around.run && node.around.main == .alive, "a probe of what does not run")
      // The machine is as it is at the end of the turn.
      let asked = machine.health?.checks.compactMap(\.probe) ?? []
      try check(Set(asked).count == asked.count, "two probes of one number")
      node.around.probes.append(probe.number)
      try check(node.around.probes.count <= machine.spec.checks.count, "more probes than checks")
    case .endProbes(_, let numbers): node.around.probes.removeAll { numbers.contains($0) }
    case .watch(let path, _): node.around.watched = path != nil
    case .forget:
      try check(node.around.main == .none && node.around.hook == nil, "forgotten while something lives")
      node.around.forgotten = true
    case .record(let occurrence):
      if case .internalError(let text) = occurrence.kind { throw Fault(rule: text) }
      if case .released = occurrence.kind, node.around.hearsOwnWork {
        throw Fault(rule: "released by guardian's own restoration")
      }
    case .notify, .enter, .measure: break
    }
  }

  // MARK: Good fortune

  /// Everything goes well from here on, and an operator lends a hand: the service must settle, or be gone as ordered.
  private static func fortune(_ start: Node) throws(Fault) {
    var node = start
    if node.machine.removed || node.machine.shuttingDown {
      for _ in 0..<60 {
        if node.around.main == .none, node.around.hook == nil { return }
        try lucky(&node)
      }
      throw Fault(rule: "going down, and something is left")
    }
    try make(.order(.hold(.zero)), &node)
    try make(.order(.release), &node)
    try make(.order(.start), &node)
    for _ in 0..<120 {
      if node.machine.settled { return }
      try lucky(&node)
      if case .finished = node.machine.phase { try make(.order(.start), &node) }
      if case .quarantined = node.machine.phase, node.machine.nextDeadline.boot == nil {
        throw Fault(rule: "quarantined without a trial to come")
      }
    }
    throw Fault(rule: "all went well, and it has not settled: \(node.machine.phase.name)")
  }

  private static func lucky(_ node: inout Node) throws(Fault) {
    if let ticket = node.around.saves.last { return try make(.event(.saved(ticket)), &node) }
    if let hook = node.around.reloadHook { return try make(.event(.hookEnded(hook, .succeeded)), &node) }
    if let hook = node.around.hook { return try make(.event(.hookEnded(hook, .succeeded)), &node) }
    if let run = node.around.run {
      switch node.around.main {
      case .asked: return try make(.event(.spawned(run, pid: 2, executable: nil)), &node)
      case .leftovers: return try make(.event(.emptied(run)), &node)
      case .alive:
        if let probe = node.around.probes.first {
          return try make(.event(.probed(run, number: probe, .passed(""))), &node)
        }
        switch node.machine.phase {
        case .starting where node.machine.spec.ready == .check: break
        case .starting: return try make(.event(.ready(run)), &node)
        case .stopping: return try make(.event(.ended(run, Death(.signal(.term, core: false)))), &node)
        case .running(let current):
          // Seen dumping core: its end is on its way.
          if current.settlesAt == nil, !current.settled {
            return try make(.event(.ended(run, Death(.signal(.abrt, core: true)))), &node)
          }
          if let look = node.around.look { return try make(.event(.looked(look, .alive)), &node) }
        case .stopped, .finished, .waiting, .backingOff, .repairing, .quarantined: break
        }
      case .none: break
      }
    }
    let due = node.machine.nextDeadline
    if due.monotonic != nil || due.boot != nil { try make(.time, &node) }
  }

  // MARK: What tells states apart

  private static func key(_ node: Node) -> Key {
    let machine = node.machine, record = machine.record
    var due: [Int64] = []
    func add(_ instant: Instant?) {
      due.append(instant.map { $0.nanoseconds - node.now.monotonic.nanoseconds } ?? .max)
    }
    func add(boot instant: BootInstant?) {
      due.append(instant.map { $0.nanoseconds - node.now.boot.nanoseconds } ?? .max)
    }
    var key = Key(
      phase: machine.phase.name, kind: nil, stage: 0, runPluginsOff: false, settled: false, byOperator: false,
      purpose: "", death: nil, owed: false, killed: false, stopStep: 0, thenStart: false, repairStage: 0, outcome: 0,
      queue: 0,
      next: 0, wanted: record.wanted, step: record.step, strikes: record.strikes, tries: min(record.triesOnStep, 1),
      rounds: min(record.repairRounds, 2), late: record.lateDeaths.count, pluginsOff: record.plugins.off,
      held: record.hold != nil, quarantined: record.quarantine != nil, doubled: record.trialDelay != nil,
      changed: machine.hasPendingDefinition, volatile: machine.volatile, goingDown: machine.shuttingDown,
      removed: machine.removed, main: node.around.main, hook: node.around.hook != nil,
      saves: node.around.saves.count, look: node.around.look != nil, watched: node.around.watched,
      forgotten: node.around.forgotten, mode: machine.spec.mode, escalates: machine.spec.escalation.enabled,
      hasTrials: machine.spec.quarantine.retryAfter != nil, reload: machine.reloadState, order: [])
    key.evidence = [
      node.around.examined != nil, machine.examination != nil, machine.examination?.struck ?? false,
      record.strikeSignature != nil, record.strikeSignatureBefore != nil,
    ]
    if machine.spec.process.plugins.count > 1 {
      for plugin in machine.spec.process.plugins {
        let known = record.plugins[plugin.name]
        let off = [nil, .ladder, .search, .operator].firstIndex(of: known?.off) ?? 0
        key.plugins.append(
          off + (known?.pinned ?? false ? 4 : 0) + (known?.probationUntil == nil ? 0 : 8)
            + (machine.phase.run?.disabled.contains(plugin.name) ?? false ? 16 : 0))
      }
      let search = record.plugins.search
      key.plugins += [
        search.map { min($0.observations.count, 2) } ?? -1, Int(search?.probe?.on.bits ?? 0),
        search?.death == nil ? 0 : 1, search?.paused ?? false ? 1 : 0, record.plugins.searched ? 1 : 0,
        record.plugins.searchWanted ? 1 : 0, record.orderedRepairs.count,
      ]
    }
    if let examination = machine.examination { add(examination.until) }
    if let run = machine.phase.run {
      key.kind = run.kind
      key.runPluginsOff = !run.disabled.isEmpty
      key.settled = run.settled
      key.byOperator = run.byOperator
      switch run.stage {
      case .saving: key.stage = 1
      case .spawning: key.stage = 2
      case .up: key.stage = 3
      case .adopting: key.stage = 4
      }
      add(run.readyBy)
      add(run.settlesAt)
      add(run.clearsAt)
      add(run.deescalatesAt)
    }
    switch machine.phase {
    case .stopping(_, let stop):
      switch stop.purpose {
      case .order: key.purpose = "order"
      case .restart: key.purpose = "restart"
      case .death: key.purpose = "death"
      case .fault: key.purpose = "fault"
      case .leaving: key.purpose = "leaving"
      case .plugins: key.purpose = "plugins"
      }
      key.death = stop.death
      key.owed = stop.owed != nil
      key.killed = stop.killedAt != nil
      key.stopStep = stop.step
      key.thenStart = stop.thenStart
    case .repairing(let repair):
      key.queue = repair.queue.count
      key.kind = repair.beforeStart
      switch repair.outcome {
      case .start: key.outcome = 0
      case .startFresh: key.outcome = 1
      case .stop: key.outcome = 2
      case .rest: key.outcome = 3
      }
      switch repair.hook?.stage {
      case nil: key.repairStage = 0
      case .saving: key.repairStage = 1
      case .running: key.repairStage = 2
      case .terminated: key.repairStage = 3
      case .killed: key.repairStage = 4
      case .adopting: key.repairStage = 5
      }
    case .backingOff(_, let next): key.next = next == .act ? 1 : 2
    case .stopped, .finished, .waiting, .starting, .running, .quarantined: break
    }
    for check in machine.health?.checks ?? [] {
      add(check.probe == nil ? check.dueAt : nil)
      key.checks.append([
        CheckState.allCases.firstIndex(of: check.state) ?? 0, check.good, check.bad, check.hasPassed ? 1 : 0,
        check.notMade ? 1 : 0, check.disturbed ? 1 : 0, check.probe == nil ? 0 : 1,
      ])
    }
    key.awaited = machine.health?.awaited ?? false
    add(machine.nextDeadline.monotonic)
    for plugin in record.plugins.all { add(boot: plugin.until) }
    add(boot: record.hold?.until)
    add(boot: record.quarantine?.nextTrial)
    // The order of what is due, and what is due already; not the times.
    let sorted = Set(due).sorted()
    key.order = due.map { $0 == .max ? -1 : $0 <= 0 ? 0 : 1 + (sorted.firstIndex(of: $0) ?? 0) }
    return key
  }
}
