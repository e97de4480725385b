import GuardianModel

// The search for the plugin that is to blame.
//
//   settled in safe mode ──▶ probe ──passed──▶ probe … ──▶ final ──settled──▶ culprits off, one step or more down
//                              │  ▲                          │
//                            died  └── after a second ───────┘ died: one observation more
//
// A probe is a start with some of the plugins on. It passes when it lives to the end of the probe window, and the next one
// follows at once; it fails when it dies, and the next one follows after a second, when its evidence is there. What
// guardian, the host, a requirement or an operator has cut short was no observation. What `CulpritSearch` is told, and
// what it asks for, is written down before the next start, so that a search goes on whoever was killed in the middle.
//
// A death of a probe is no strike. Whenever the search must not go on (a hold, an order, a common cause, mode observe) the
// service runs with the best set that has passed, or in safe mode.

extension ServiceMachine {
  /// After a probe that died.
  static let probePause = Duration.seconds(1)

  // MARK: May it

  /// The plugins that a search may switch: those that step safe-mode has switched off.
  private var searchable: [String] {
    spec.process.plugins.map(\.name).filter { name in
      guard let record = record.plugins[name], !overrides.contains(name) else { return false }
      return record.off == .ladder && !record.pinned
    }
  }

  /// Where the search may begin, and go on.
  private func maySearch(_ turn: Turn) -> Bool {
    record.step == .safeMode && escalates && spec.kind == .daemon && !observing && !held && !turn.frozen
      && isWanted && nextProcess == nil && record.quarantine == nil
  }

  /// The service is settled in safe mode; or it has been allowed something that it was waiting for.
  mutating func considerSearch(_ turn: inout Turn) {
    guard case .running(let run) = phase, run.settled, !isUnconfirmed(run), departure == nil, maySearch(turn) else {
      return
    }
    if record.plugins.search != nil { return goOn(&turn) }
    let wanted = record.plugins.searchWanted
    guard wanted || (!record.plugins.searched && spec.plugins.search != .off) else { return }
    let toggles = searchable
    // A single plugin needs no search, and with something on nothing is known of safe mode.
    guard toggles.count > 1, toggles.allSatisfy(run.disabled.contains) else { return }
    if !wanted, spec.plugins.search == .suggest {
      record.plugins.searched = true
      save()
      return note(.searchSuggested(plugins: toggles), &turn)
    }
    if !wanted, !isAllowed(spec.plugins.when, turn) { return }
    var search = PluginSearch(toggles: toggles, since: turn.now.boot)
    if let incident = record.plugins.incident {
      search.failures = incident.failures
      search.starts = incident.starts
      search.signature = incident.signature
      search.sameness = incident.sameness
    }
    let age = record.plugins.incident?.largestAge ?? .zero
    search.window = CulpritSearch.probeWindow(largestAge: age, window: spec.startupWindow)
    (search.backgroundStarts, search.backgroundFailures) = record.plugins.healthy
    let hints = record.plugins.incident?.hints ?? []
    if !hints.isEmpty { search.hints = toggles.map { name in hints.first { $0.plugin == name }?.score ?? 0 } }
    record.plugins.search = search
    record.plugins.searchWanted = false
    note(.searchBegan(plugins: toggles), &turn)
    goOn(&turn)
  }

  // MARK: What next

  /// The next start of the search, or its end. A run that lives is one that has passed, or safe mode.
  mutating func goOn(_ turn: inout Turn) {
    guard var search = record.plugins.search, search.death == nil else { return }
    if search.paused {
      search.paused = false
      search.since = turn.now.boot
    }
    let outOfTime = search.spent + (turn.now.boot - search.since) >= CulpritSearch.Budget.time
    let engine = CulpritSearch(search)
    record.plugins.remember(suspicion: engine.suspicion, of: search.toggles)
    let next: PluginProbe
    var goesOn = false
    switch engine.next(outOfTime: outOfTime) {
    case .probe(let on): next = PluginProbe(on: on, full: false)
    case .final(let on): next = PluginProbe(on: on, full: true)
    case .goOn(let on):
      next = PluginProbe(on: on, full: true)
      goesOn = true
    case .done(let off, let pair):
      let partner = pair.map { (search.toggles[$0.disabled], search.toggles[$0.kept]) }
      return found(search.names(off), pair: partner, search, &turn)
    case .notAPlugin: return foundNothing(.notAPlugin, search, &turn)
    case .exhausted(_, let why):
      // It has had its turn as the last one, and failed.
      if search.closing || search.best.isEmpty { return foundNothing(.exhausted(why.rawValue), search, &turn) }
      if isConfirmed(search) {
        return found(search.names(search.everything.subtracting(search.best)), pair: nil, search, &turn)
      }
      search.closing = true
      next = PluginProbe(on: search.best, full: true)
      goesOn = true
    }
    search.probe = next
    record.plugins.search = search
    save()
    note(
      .probing(
        number: search.observations.count + 1, on: search.names(next.on),
        off: search.names(search.everything.subtracting(next.on)), full: next.full), &turn)
    guard case .running(let run) = phase else { return }
    // It has just passed with this very set, and that is sure enough: it has only to go on for the rest of the window. Where
    // a culprit may have slept, another start is worth its price.
    if goesOn, run.kind == .probe, run.disabled == disabled(.probing(search.names(next.on))) { return }
    stopForPlugins(run, &turn)
  }

  private func isConfirmed(_ search: PluginSearch) -> Bool {
    search.observations.contains { $0.probe.on == search.best && $0.probe.full && $0.outcome == .passed }
  }

  /// The run makes room for one with other plugins. Those that require it are left alone, as when it crashes.
  mutating func stopForPlugins(_ run: Run, _ turn: inout Turn) {
    departure = nil
    note(.pluginRestart, &turn)
    turn.actions.append(.signal(run.id, spec.stop.signal))
    phase = .stopping(run, Stop(purpose: .plugins, killAt: turn.now.monotonic + spec.stop.timeout))
  }

  // MARK: Starts

  /// A start on step safe-mode while a search is under way: what it has off, or nil for plain safe mode.
  mutating func probeToStart(_ turn: inout Turn) -> PluginProbe? {
    countDeath(nil, &turn)
    guard var search = record.plugins.search, maySearch(turn) else { return nil }
    // Its plugins are not to be switched by anybody else, or not there.
    guard search.toggles.allSatisfy(searchable.contains) else {
      foundNothing(.abandoned, search, &turn)
      return nil
    }
    if search.probe == nil {
      // Something came between: the service is to be well first.
      guard !search.best.isEmpty else { return nil }
      search.probe = PluginProbe(on: search.best, full: false)
      record.plugins.search = search
      note(
        .probing(
          number: search.observations.count + 1, on: search.names(search.best),
          off: search.names(search.everything.subtracting(search.best)), full: false), &turn)
    }
    return search.probe
  }

  /// How long this run must live after ready.
  func window(of run: Run) -> Duration {
    guard run.kind == .probe, let search = record.plugins.search, let probe = search.probe, !probe.full else {
      return spec.startupWindow
    }
    return min(search.window, spec.startupWindow)
  }

  // MARK: Outcomes

  /// It has lived to the end of its window. False: it is to settle, as the last one.
  mutating func probePassed(_ run: Run, _ turn: inout Turn) -> Bool {
    guard var search = record.plugins.search, let probe = search.probe else { return false }
    search.observations.append(.init(probe, .passed))
    search.probe = nil
    record.plugins.search = search
    save()
    note(.probed(number: search.observations.count, outcome: .passed), &turn)
    if probe.full { return false }
    var run = run
    run.settlesAt = max(turn.now.monotonic, (run.readyAt ?? turn.now.monotonic) + spec.startupWindow)
    run.lookAgainAt = nil
    phase = .running(run)
    if maySearch(turn) { goOn(&turn) } else { interruptSearch(&turn) }
    return true
  }

  /// No strike. Counted when its evidence is there.
  mutating func probeDied(_ end: End, of run: Run, _ turn: inout Turn) {
    // While several services are in trouble at once, nothing is learnt of one of them.
    if !turn.frozen, var search = record.plugins.search, let probe = search.probe {
      search.death = .init(probe: probe, run: run.id, sameness: end.sameness)
      search.probe = nil
      record.plugins.search = search
    }
    reason = "searching for the plugin that is to blame: \(end.description)"
    pauseForSearch(&turn)
  }

  mutating func pauseForSearch(_ turn: inout Turn) {
    phase = .backingOff(until: turn.now.monotonic + Self.probePause, then: .start)
    save()
  }

  /// Whether the next start waits for the evidence of this death.
  func searchAwaits(_ run: RunID) -> Bool { record.plugins.search?.death?.run == run }

  /// - Parameter signature: Nil: its evidence says nothing, or has not come.
  mutating func countDeath(_ signature: Signature?, _ turn: inout Turn) {
    guard var search = record.plugins.search, let death = search.death else { return }
    search.death = nil
    let same: Bool =
      // Weak ones differ in the last words, and two culprits do not say the same.
      if let signature, let before = search.signature, signature.strong, before.strong {
        signature == before
      } else {
        death.sameness == search.sameness || search.sameness == 0
      }
    search.observations.append(.init(death.probe, same ? .failed : .otherFailure))
    record.plugins.search = search
    save()
    note(.probed(number: search.observations.count, outcome: same ? .failed : .otherFailure), &turn)
    // Nothing is running: this only decides.
    if maySearch(turn) { goOn(&turn) }
  }

  // MARK: Its end

  private mutating func found(
    _ off: [String], pair: (off: String, kept: String)?, _ search: PluginSearch, _ turn: inout Turn
  ) {
    let now = turn.now.boot
    for name in search.toggles {
      guard off.contains(name) else {
        record.plugins.change(name) { plugin in
          plugin.off = nil
          plugin.until = nil
          plugin.madeOf = 0
          plugin.suspicion = 0
          if plugin.offences == 0 { plugin.timeToLive = nil }
        }
        continue
      }
      switchOff(name, by: .search, now)
      record.plugins.change(name) { plugin in
        plugin.signature = search.signature?.value
        plugin.partner = pair?.off == name ? pair?.kept : nil
      }
    }
    searchOver(.found(off: off, with: pair?.kept), search, &turn)
    noteGoodCopies(of: off, &turn)
    record.plugins.incident = nil
    // Nothing is left to be proved where all are to blame: that is safe mode, and so it stays.
    guard off.count < search.toggles.count, case .running(var run) = phase else {
      record.plugins.searched = true
      return makeItSo(&turn)
    }
    let from = record.step
    record.step = step(below: .safeMode)
    record.strikes = 0
    record.triesOnStep = 0
    if record.step == .restart { record.trialDelay = nil }
    if canStepDown(run) { run.deescalatesAt = turn.now.monotonic + spec.escalation.deescalateAfter }
    phase = .running(run)
    save()
    note(.deescalated(from: from, to: record.step), &turn)
    makeItSo(&turn)
  }

  /// It is safe mode that works, and it stays.
  mutating func foundNothing(_ result: SearchResult, _ search: PluginSearch, _ turn: inout Turn) {
    record.plugins.searched = true
    searchOver(result, search, &turn)
    makeItSo(&turn)
  }

  private mutating func searchOver(_ result: SearchResult, _ search: PluginSearch, _ turn: inout Turn) {
    record.plugins.endSearch()
    save()
    note(
      .searchEnded(
        result, probes: search.observations.count,
        failing: search.observations.count { $0.outcome != .passed }), &turn)
  }

  /// What runs gives way where it has other plugins than it is to have now.
  private mutating func makeItSo(_ turn: inout Turn) {
    guard case .running(var run) = phase else { return }
    if record.step == .safeMode, !observing { switchPluginsOff(&turn) }
    if run.disabled != disabled(.asRecorded) { return stopForPlugins(run, &turn) }
    makeOrdinary(&run)
    phase = .running(run)
  }

  /// Somebody else decides now: what is under way is no probe any more, and the next start has what is known to work.
  mutating func interruptSearch(_ turn: inout Turn) {
    guard var search = record.plugins.search else { return }
    countDeath(nil, &turn)
    search = record.plugins.search ?? search
    guard record.plugins.search != nil else { return }
    search.probe = nil
    search.closing = false
    if !search.paused { search.spent = min(.day, search.spent + max(.zero, turn.now.boot - search.since)) }
    search.paused = true
    record.plugins.search = search
    save()
    switch phase {
    case .starting(var run):
      makeOrdinary(&run)
      phase = .starting(run)
    case .running(var run):
      makeOrdinary(&run)
      phase = .running(run)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: break
    }
  }

  /// A run that belongs to nothing but itself has the whole startup window to prove itself.
  func makeOrdinary(_ run: inout Run) {
    let short = run.kind == .probe
    run.kind = .ordinary
    if short, let ready = run.readyAt, run.settlesAt != nil { run.settlesAt = ready + spec.startupWindow }
  }

  // MARK: The incident

  /// A strike with everything on.
  mutating func rememberFailure(_ end: End, _ now: BootInstant) {
    guard spec.process.plugins.count > 1, record.step < .safeMode else { return }
    var incident = record.plugins.incident ?? PluginIncident(last: now)
    if now - incident.last > .hour {
      // Nothing has come of those.
      record.plugins.healthy.failures += incident.failures
      incident = PluginIncident(last: now)
    }
    incident.last = now
    incident.failures = min(incident.failures + 1, 1_000)
    incident.starts = min(incident.starts + 1, 1_000)
    incident.largestAge = max(incident.largestAge, end.uptime)
    incident.sameness = end.sameness
    incident.signature = nil
    record.plugins.incident = incident
    examination?.opensIncident = true
  }

  /// A run with everything on has settled.
  mutating func rememberSuccess() {
    guard spec.process.plugins.count > 1, record.step < .safeMode else { return }
    if record.plugins.incident != nil {
      record.plugins.incident?.starts += 1
    } else {
      record.plugins.healthy.starts += 1
    }
  }

  // MARK: When

  /// Whether a healthy service may be started anew for its plugins' sake.
  func isAllowed(_ when: PluginTime, _ turn: Turn) -> Bool {
    switch when {
    case .incident: return true
    case .idle: return turn.isIdle
    case .daily(let from, let to):
      let minute = turn.localSeconds / 60
      return from < to ? (from..<to).contains(minute) : minute >= from || minute < to
    }
  }

  /// Below this share of one processor, over a minute, a service has next to nothing to do.
  static let idleShare = 0.02

  mutating func measured(_ id: RunID, _ cpu: Duration?, _ turn: inout Turn) {
    guard case .running(var run) = phase, run.id == id, run.settled, spec.plugins.when == .idle, let cpu else { return }
    let now = turn.now.monotonic
    if let before = run.load {
      let time = now - before.at
      // A look that came soon after another one says little.
      if time < .seconds(30) { return }
      turn.isIdle = Double((cpu - before.cpu).nanoseconds) < Double(time.nanoseconds) * Self.idleShare
    }
    run.load = Run.Load(at: now, cpu: cpu)
    phase = .running(run)
    if turn.isIdle, !held { tendPlugins(&turn) }
  }

  /// Looks again at what has to wait for its time: the start of a search, and plugins that are due.
  mutating func tendPlugins(_ turn: inout Turn) {
    considerSearch(&turn)
    guard case .running(var run) = phase, run.settled, departure == nil else { return }
    run.pluginsAt = nil
    phase = .running(run)
    guard record.plugins.off, !held, mayStart, record.quarantine == nil else { return }
    let when = spec.plugins.when
    if when != .incident, record.plugins.search == nil, !turn.frozen, !observing, nextProcess == nil,
      duePlugin(turn.now.boot) != nil, isAllowed(when, turn)
    {
      return stopForPlugins(run, &turn)
    }
    if when == .idle, !turn.isIdle, duePlugin(turn.now.boot) != nil || (record.step == .safeMode && waitsToSearch) {
      turn.actions.append(.measure(run.id))
    }
    var wait: Duration?
    if when != .incident, let due = nextPluginDue {
      wait = max(due - turn.now.boot, isAllowed(when, turn) ? .zero : turn.untilLocal(when))
    }
    // What has to wait for a common cause to be over, or for its window, is looked at again.
    if record.step == .safeMode, record.plugins.search != nil || waitsToSearch {
      let window = isAllowed(when, turn) ? Duration.minute : turn.untilLocal(when)
      wait = min(wait ?? window, window)
    }
    run.pluginsAt = wait.map { turn.now.monotonic + max($0, .minute) }
    phase = .running(run)
  }

  private var waitsToSearch: Bool {
    record.plugins.searchWanted || (spec.plugins.search == .auto && !record.plugins.searched && searchable.count > 1)
  }
}

extension Turn {
  /// Of the day, by the host's clock and time zone.
  fileprivate var localSeconds: Int {
    let seconds = (now.wall.nanoseconds / 1_000_000_000 + Int64(utcOffset)) % 86_400
    return Int(seconds < 0 ? seconds + 86_400 : seconds)
  }
  /// Until the window opens the next time.
  fileprivate func untilLocal(_ when: PluginTime) -> Duration {
    guard case .daily(let from, _) = when else { return .minute }
    let left = from * 60 - localSeconds
    return .seconds(left <= 0 ? left + 86_400 : left)
  }
}

extension CulpritSearch {
  init(_ search: PluginSearch) {
    self.init(
      toggles: search.toggles.enumerated().map { place, name in
        Toggle(name: name, hintScore: search.hints.indices.contains(place) ? Double(search.hints[place]) / 100 : 0)
      },
      failures: search.failures, starts: search.starts,
      background: (search.backgroundFailures, search.backgroundStarts),
      observations: search.observations.map { one in
        let outcome: Outcome =
          switch one.outcome {
          case .passed: .passed
          case .failed: .failed
          case .otherFailure: .otherFailure
          }
        return Observation(on: one.probe.on, outcome: outcome, full: one.probe.full)
      })
  }
}

extension PluginRecords {
  fileprivate mutating func remember(suspicion: [Double], of names: [String]) {
    for (name, suspicion) in zip(names, suspicion) {
      let thousandths = Int((min(max(suspicion, 0), 1) * 1_000).rounded())
      if self[name].map({ $0.suspicion != thousandths }) ?? false { change(name) { $0.suspicion = thousandths } }
    }
  }
}
