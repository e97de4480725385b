import GuardianModel

// What is off in a start, and what becomes of it.
//
// A plugin is off because an operator or a switch of the host wants it so, because step safe-mode has switched off all, or
// because the search has found it to be to blame. What guardian has switched off has its time, after which it is due: the
// next start that comes about by itself tries one of those that are due, the least suspicious first. A try that fails is
// no strike; the plugin is off again for twice as long. One that goes well has it on, on probation for another hour.

extension ServiceMachine {
  /// No plugin is off for longer at a time, unless `retry-after` says so.
  static let retryCap = Duration.day * 14
  /// After a try that has failed the service is to be well first: nothing else is tried for so long.
  static let retrySpacing = Duration.hour
  static let probation = Duration.hour
  /// After so long without blame half of it is forgotten.
  static let forgiveness = Duration.day * 7

  // MARK: What is off

  /// What a start is for, as far as plugins go.
  enum PluginChoice {
    /// As the records say.
    case asRecorded
    /// All that may be.
    case none
    /// As the records say, but for this one.
    case trying(String)
    /// As the records say, but for these, which a search wants on.
    case probing([String])
  }

  /// The plugins that are off, by name and in the order of the definition. The one place that says so.
  func disabled(_ choice: PluginChoice) -> [String] {
    spec.process.plugins.filter { plugin in
      let name = plugin.name
      if overrides.contains(name) { return true }
      let record = record.plugins[name]
      if record?.off == .operator { return true }
      if record?.pinned ?? false { return false }
      switch choice {
      case .none: return record?.off != nil || !plugin.isIdle
      case .asRecorded: return record?.off != nil
      case .trying(let tried): return name != tried && record?.off != nil
      case .probing(let on): return record?.off != nil && !on.contains(name)
      }
    }.map(\.name)
  }

  /// Decides what a start has off, and whether it is one in which a plugin is tried again.
  mutating func disabledPlugins(_ kind: inout RunKind, _ turn: inout Turn) -> [String] {
    tidyPlugins(turn.now.boot)
    switch kind {
    case .ordinary, .probe:
      kind = .ordinary
      if record.plugins.search != nil, let probe = probeToStart(&turn), let search = record.plugins.search {
        kind = .probe
        return disabled(.probing(search.names(probe.on)))
      }
      // However the start came about: on this step it is one without plugins.
      if record.step == .safeMode, !observing, hasSomethingToDo(on: .safeMode) { switchPluginsOff(&turn) }
      // The search is not over, and nothing else is tried meanwhile.
      if record.plugins.search != nil { return disabled(.asRecorded) }
      guard let due = duePlugin(turn.now.boot) else { return disabled(.asRecorded) }
      kind = .pluginRetry
      return disabled(.trying(due))
    case .trial: return disabled(hasSomethingToDo(on: .safeMode) && !observing ? .none : .asRecorded)
    case .pluginRetry:
      guard let due = duePlugin(turn.now.boot) else {
        kind = .ordinary
        return disabled(.asRecorded)
      }
      return disabled(.trying(due))
    }
  }

  func plugins(named names: [String]) -> [PluginSpec] {
    names.isEmpty ? [] : spec.process.plugins.filter { names.contains($0.name) }
  }

  var pluginsOffByRecord: [String] { record.plugins.isEmpty && overrides.isEmpty ? [] : disabled(.asRecorded) }

  /// Something is off in this run that neither an operator nor a switch wants off.
  func isDegraded(_ run: Run) -> Bool {
    run.disabled.contains { !overrides.contains($0) && record.plugins[$0]?.off != .operator }
  }

  /// Something that step safe-mode would switch off.
  var hasPluginToSwitchOff: Bool { spec.process.plugins.contains(where: isToBeSwitchedOff) }

  private func isToBeSwitchedOff(_ plugin: PluginSpec) -> Bool {
    // Of a file that is as it was when the service was last well nothing is to be learnt.
    if plugin.isIdle { return false }
    guard let record = record.plugins[plugin.name] else { return true }
    return record.off == nil && !record.pinned
  }

  // MARK: Off

  /// Step safe-mode: whatever is on.
  mutating func switchPluginsOff(_ turn: inout Turn) {
    let names = spec.process.plugins.filter(isToBeSwitchedOff).map(\.name)
    guard !names.isEmpty else { return }
    var shortest: Duration?
    for name in names {
      let time = switchOff(name, by: .ladder, turn.now.boot)
      shortest = min(shortest ?? time, time)
    }
    save()
    note(.pluginsOff(names: names, retryIn: shortest ?? spec.plugins.retryAfter), &turn)
    noteGoodCopies(of: names, &turn)
  }

  /// Which files are not seen by the service from now on.
  mutating func noteGoodCopies(of names: [String], _ turn: inout Turn) {
    for plugin in spec.process.plugins where names.contains(plugin.name) {
      guard let changed = plugin.sight?.changed, !changed.isEmpty else { continue }
      note(.goodCopyUsed(plugin: plugin.name, files: changed), &turn)
    }
  }

  /// How the files of plugins are: those that have become another than their good copies may be switched off.
  mutating func noteSights(_ sights: [FileSight]) {
    for place in spec.process.plugins.indices where !spec.process.plugins[place].goodCopy.isEmpty {
      let files = spec.process.plugins[place].goodCopy
      let seen = sights.filter { files.contains($0.path) }
      guard seen.count == files.count else { continue }
      let sight = GoodCopySight(changed: seen.compactMap(\.change))
      if spec.process.plugins[place].sight != sight { spec.process.plugins[place].sight = sight }
    }
  }

  /// - Returns: For how long.
  @discardableResult
  mutating func switchOff(_ name: String, by who: PluginRecord.Switcher, _ now: BootInstant) -> Duration {
    let first = spec.plugins.retryAfter
    // A longer `retry-after` is its own cap.
    let cap = max(Self.retryCap, first)
    var time = first
    record.plugins.change(name) { plugin in
      plugin.forgiveInTime(now)
      // What was to blame before, or is off again while on probation, has used up some patience.
      let blamed = plugin.probationUntil != nil || plugin.offences > 0
      time = blamed ? min((plugin.timeToLive ?? first) * 2, cap) : first
      plugin.off = who
      plugin.timeToLive = time
      plugin.until = now + time
      plugin.probationUntil = nil
      plugin.healthySince = nil
      plugin.madeOf = 0
      if who == .search || blamed { plugin.offences = min(plugin.offences + 1, 1_000) }
    }
    return time
  }

  /// What has stood the test of time has no record any more.
  private mutating func tidyPlugins(_ now: BootInstant) {
    for plugin in record.plugins.all where plugin.off == nil && (plugin.probationUntil != nil || plugin.offences > 0) {
      record.plugins.change(plugin.name) { plugin in
        if let until = plugin.probationUntil, now >= until { plugin.probationUntil = nil }
        plugin.forgiveInTime(now)
      }
    }
  }

  // MARK: Tries

  /// What is due, the least suspicious first; of those of equal suspicion the first of the definition.
  func duePlugin(_ now: BootInstant) -> String? {
    guard record.plugins.off else { return nil }
    var best: (name: String, suspicion: Int)?
    for plugin in spec.process.plugins where !overrides.contains(plugin.name) {
      guard let record = record.plugins[plugin.name], record.offByGuardian, let until = record.until, now >= until
      else {
        continue
      }
      let suspicion = record.suspicion + record.offences * 1_000
      if best.map({ suspicion < $0.suspicion }) ?? true { best = (plugin.name, suspicion) }
    }
    return best?.name
  }

  /// When the next one is due.
  var nextPluginDue: BootInstant? {
    guard record.plugins.off else { return nil }
    return spec.process.plugins.compactMap { plugin in
      guard let record = record.plugins[plugin.name], record.offByGuardian, !overrides.contains(plugin.name) else {
        return nil
      }
      return record.until
    }.min()
  }

  /// What the run has on although it is off by guardian's doing. Of what is remembered and not there nothing is learnt.
  func tried(in run: Run) -> [String] {
    if record.plugins.isEmpty { return [] }
    let there = Set(spec.process.plugins.map(\.name))
    return record.plugins.all.filter {
      $0.offByGuardian && !run.disabled.contains($0.name) && there.contains($0.name)
    }.map(\.name)
  }

  /// It has settled with a plugin that had been off.
  mutating func pluginRetryPassed(_ run: Run, _ turn: inout Turn) {
    let names = tried(in: run)
    for name in names { switchOn(name, turn.now.boot) }
    save()
    note(.pluginsOn(names: names), &turn)
  }

  mutating func switchOn(_ name: String, _ now: BootInstant) {
    record.plugins.change(name) { plugin in
      plugin.off = nil
      plugin.until = nil
      plugin.madeOf = 0
      plugin.healthySince = now
      plugin.probationUntil = now + Self.probation
    }
  }

  /// No strike: the plugin is off again, for twice as long.
  mutating func pluginRetryFailed(_ end: End, of run: Run, _ turn: inout Turn) {
    let first = spec.plugins.retryAfter, now = turn.now.boot
    // A longer `retry-after` is its own cap: a failed retry never brings the next one nearer.
    let cap = max(Self.retryCap, first)
    let names = tried(in: run)
    // Fleets must not try again all at once.
    let spread = 0.9 + 0.2 * turn.random.share()
    var next = first
    for name in names {
      record.plugins.change(name) { plugin in
        let time = min((plugin.timeToLive ?? first) * 2, cap)
        plugin.timeToLive = time
        next = time.times(spread)
        plugin.until = now + next
        plugin.offences = min(plugin.offences + 1, 1_000)
        plugin.madeOf = 0
      }
    }
    for other in record.plugins.all where other.offByGuardian && !names.contains(other.name) {
      record.plugins.change(other.name) { $0.until = $0.until.map { max($0, now + Self.retrySpacing) } }
    }
    reason = "\(names.joined(separator: ", ")) tried again and off again: \(end.description)"
    save()
    note(.pluginRetryFailed(nextIn: next), &turn)
    pause(spec.backoff.delay(beforeTry: 1, share: turn.random.share()), then: .start, &turn)
  }

  // MARK: Early release

  /// What plugins that are off by guardian's doing are made of, as far as their definitions tell.
  package var pluginFiles: [String] {
    guard record.plugins.off else { return [] }
    var files: [String] = []
    for plugin in spec.process.plugins where record.plugins[plugin.name]?.offByGuardian ?? false {
      for path in plugin.paths where !files.contains(path) { files.append(path) }
    }
    return files
  }

  /// What has become another since it was switched off may have been mended: it is due.
  mutating func pluginsSeen(_ sights: [FileSight], _ turn: inout Turn) {
    if noteChangedPlugins(sights, &turn).isEmpty { return }
    tendPlugins(&turn)
  }

  /// - Returns: Those that are due because of it.
  private mutating func noteChangedPlugins(_ sights: [FileSight], _ turn: inout Turn) -> [String] {
    var changed: [String] = []
    for plugin in spec.process.plugins where !plugin.paths.isEmpty {
      guard let known = record.plugins[plugin.name], known.offByGuardian else { continue }
      let seen = sights.filter { plugin.paths.contains($0.path) }
      guard seen.count == plugin.paths.count else { continue }
      var print = Fingerprint()
      for sight in seen { print.add(sight.look) }
      let look = max(print.value, 1)
      if known.madeOf == look { continue }
      record.plugins.change(plugin.name) { $0.madeOf = look }
      save()
      if known.madeOf == 0 { continue }
      changed.append(plugin.name)
      record.plugins.change(plugin.name) { $0.until = turn.now.boot }
    }
    if !changed.isEmpty { note(.pluginsChanged(names: changed), &turn) }
    return changed
  }

  /// What was looked at for a start, after that was decided and before it comes about: who mends a plugin and restarts the
  /// service means both.
  ///
  /// - Returns: Nil: as it was decided, or it is over.
  mutating func amendStart(_ id: RunID, seeing sights: [FileSight], _ turn: inout Turn) -> StartRequest? {
    guard case .starting(var run) = phase, run.id == id, run.stage == .spawning else { return nil }
    let before = phase.name
    // What is gone has not been mended; an entry of a directory is looked for next.
    let changed = noteChangedPlugins(sights.filter { $0.look != 0 }, &turn)
    defer { finish(turn: &turn, phaseBefore: before) }
    guard run.kind == .ordinary, record.plugins.search == nil, let due = duePlugin(turn.now.boot),
      changed.contains(due),
      run.disabled.contains(due)
    else { return nil }
    run.kind = .pluginRetry
    run.disabled = disabled(.trying(due))
    phase = .starting(run)
    save()
    return StartRequest(
      run: run.id, kind: run.kind, disabledPlugins: plugins(named: run.disabled), definition: definition)
  }

  /// The program is another: whatever is off is tried once more.
  mutating func programChanged(_ now: BootInstant) {
    guard record.plugins.off else { return }
    for plugin in record.plugins.all where plugin.offByGuardian {
      record.plugins.change(plugin.name) { $0.until = $0.until.map { min($0, now) } ?? now }
    }
    save()
  }

  // MARK: The way back

  /// A record of an earlier guardian, to which all plugins were one, and records of plugins that are not defined any more.
  mutating func takeUpPlugins() {
    guard !record.plugins.isEmpty else { return }
    let names = spec.process.plugins.map(\.name)
    if let all = record.plugins[""] {
      for name in names where record.plugins[name] == nil {
        record.plugins.change(name) { plugin in
          plugin = all
          plugin.name = name
        }
      }
    }
    // What is not in a directory now may be there tomorrow.
    if spec.process.pluginDirectory != nil { return takeUpRememberedPlugins() }
    record.plugins.all = record.plugins.all.filter { names.contains($0.name) }
  }
}

extension PluginRecord {
  /// Half of its offences are forgotten for every seven days without one.
  mutating func forgiveInTime(_ now: BootInstant) {
    guard var since = healthySince, off == nil else { return }
    // After so many halvings nothing is left of any number.
    for _ in 0..<16 where now - since >= ServiceMachine.forgiveness {
      offences /= 2
      since = since + ServiceMachine.forgiveness
    }
    healthySince = since
    if offences == 0 { timeToLive = nil }
  }
}

extension Duration {
  /// Saturating, and never below nothing.
  fileprivate func times(_ share: Double) -> Duration {
    let product = Double(nanoseconds) * share
    return .nanoseconds(product >= 9e18 ? .max : product > 0 ? Int64(product) : 0)
  }
}
