import GuardianModel

// What operators want of plugins, of safe mode, and of repairs: never refused, never counted.

extension ServiceMachine {
  // MARK: Plugins

  mutating func orderPlugins(_ order: PluginOrder, _ turn: inout Turn) -> Expectation {
    if let name = order.plugin, !spec.process.plugins.contains(where: { $0.name == name }) {
      let known = spec.process.plugins.map(\.name)
      return .inVain(
        reason: known.isEmpty
          ? "it has no plugins" : "it has no plugin '\(name)'; it has \(known.joined(separator: ", "))")
    }
    switch order {
    case .enable(let name):
      let partner = record.plugins[name]?.partner
      record.plugins.change(name) { plugin in
        let pinned = plugin.pinned
        plugin = PluginRecord(name: name)
        plugin.pinned = pinned
      }
      var words = takesEffect(name, on: true)
      if overrides.contains(name) { words = "a switch of the host keeps it off" }
      if let partner {
        words +=
          "; it did harm only together with \(partner): `guardianctl plugins \(spec.name.text) disable \(partner)`"
      }
      return changedPlugins(words, &turn)
    case .disable(let name):
      record.plugins.change(name) { plugin in
        plugin.off = .operator
        plugin.until = nil
        plugin.probationUntil = nil
      }
      return changedPlugins(takesEffect(name, on: false), &turn)
    case .pin(let name):
      record.plugins.change(name) { plugin in
        plugin.pinned = true
        // What is pinned is as an operator wants it.
        if plugin.offByGuardian {
          plugin.off = nil
          plugin.until = nil
        }
      }
      return changedPlugins(takesEffect(name, on: record.plugins[name]?.off == nil), &turn)
    case .unpin(let name):
      record.plugins.change(name) { $0.pinned = false }
      return changedPlugins("", &turn)
    case .search: return orderSearch(&turn)
    }
  }

  private func takesEffect(_ name: String, on: Bool) -> String {
    guard let run = phase.run, run.disabled.contains(name) == on else { return "" }
    return "takes effect with its next start: `guardianctl restart \(spec.name.text)`"
  }

  private mutating func changedPlugins(_ words: String, _ turn: inout Turn) -> Expectation {
    // A search knows nothing of plugins that others switch.
    if let search = record.plugins.search {
      interruptSearch(&turn)
      foundNothing(.abandoned, record.plugins.search ?? search, &turn)
    }
    save()
    return .accepted(note: words)
  }

  private mutating func orderSearch(_ turn: inout Turn) -> Expectation {
    let candidates = spec.process.plugins.count { plugin in
      let record = record.plugins[plugin.name]
      if plugin.isIdle, record?.off == nil { return false }
      return !overrides.contains(plugin.name) && record?.off != .operator && !(record?.pinned ?? false)
    }
    if candidates < 2 { return .inVain(reason: "there are not two plugins that may be switched off and on") }
    if observing { return .inVain(reason: "it is in mode observe") }
    if let off = switches.firstOfLadder { return .inVain(reason: "the ladder is switched off by \(off.file)") }
    if !spec.escalation.enabled { return .inVain(reason: "its definition says 'escalation: off'") }
    if spec.kind == .task { return .inVain(reason: "it is a task, of which nobody can tell whether it is well") }
    if record.plugins.search != nil { return .accepted(note: "it is being searched for") }
    record.plugins.searched = false
    record.plugins.searchWanted = true
    save()
    let soon = "as soon as it is settled in safe mode"
    if record.quarantine != nil { return .accepted(note: soon) }
    if record.step != .safeMode { toSafeMode(&turn) }
    considerSearch(&turn)
    return .accepted(note: record.plugins.search == nil ? soon : "")
  }

  /// By an operator's wish, whatever step it is on; what is off by the search stays what it is.
  private mutating func toSafeMode(_ turn: inout Turn) {
    record.step = .safeMode
    record.strikes = 0
    record.triesOnStep = 0
    save()
    switch phase {
    case .starting(var run):
      run.deescalatesAt = nil
      phase = .starting(run)
    case .running(var run):
      run.deescalatesAt = nil
      phase = .running(run)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: break
    }
    switchPluginsOff(&turn)
    restartForOrder(&turn)
  }

  /// What runs is started anew; what does not is left as it is.
  private mutating func restartForOrder(_ turn: inout Turn) {
    guard isWanted else { return }
    switch phase {
    case .starting(let run), .running(let run): stopRun(run, .restart, &turn)
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: break
    }
  }

  // MARK: Safe mode

  mutating func orderSafeMode(_ on: Bool, _ turn: inout Turn) -> Expectation {
    let names = spec.process.plugins.map(\.name)
    if names.isEmpty { return .inVain(reason: "it has no plugins") }
    if let search = record.plugins.search {
      interruptSearch(&turn)
      foundNothing(.abandoned, record.plugins.search ?? search, &turn)
    }
    for name in names {
      record.plugins.change(name) { plugin in
        if on, !plugin.pinned {
          plugin.off = .operator
          plugin.until = nil
          plugin.probationUntil = nil
        } else if !on {
          let pinned = plugin.pinned
          plugin = PluginRecord(name: name)
          plugin.pinned = pinned
        }
      }
    }
    if !on, record.step == .safeMode {
      record.step = .restart
      record.strikes = 0
      record.triesOnStep = 0
      note(.released(why: "safe mode was switched off"), &turn)
    }
    save()
    let off = disabled(.asRecorded)
    guard let run = phase.run, run.disabled != off else {
      return .accepted(note: phase.run == nil ? "with its next start" : "")
    }
    restartForOrder(&turn)
    return isWanted ? .ready(note: "") : .accepted(note: "")
  }

  // MARK: Repairs

  /// - Parameter name: Nil: all of them, in order.
  mutating func orderRepair(_ name: String?, _ turn: inout Turn) -> Expectation {
    let repairs = name == nil ? spec.repairs : spec.repairs.filter { $0.name == name }
    if repairs.isEmpty {
      let known = spec.repairs.map(\.name).joined(separator: ", ")
      return .inVain(
        reason: name.map { "it has no repair '\($0)'" + (known.isEmpty ? "" : "; it has \(known)") }
          ?? "it has no repairs")
    }
    guard !shuttingDown, !removed else { return .inVain(reason: goingDown) }
    record.orderedRepairs = repairs.map(\.name)
    save()
    let answer = Expectation.repaired(note: isWanted ? "repaired, and started again" : "", thenReady: isWanted)
    switch phase {
    case .starting(let run), .running(let run):
      stopRun(run, .restart, &turn)
      return answer
    case .stopping(let run, var stop):
      if stop.purpose == .order, record.wanted == .up { stop.purpose = .restart }
      if stop.purpose == .death || stop.purpose == .leaving { stop.thenStart = true }
      phase = .stopping(run, stop)
      return answer
    case .repairing:
      forgetOrderedRepairs()
      return .inVain(reason: "a repair runs already")
    case .stopped, .finished, .waiting, .backingOff, .quarantined:
      beginOrderedRepairs(&turn)
      return answer
    }
  }

  mutating func forgetOrderedRepairs() {
    if record.orderedRepairs.isEmpty { return }
    record.orderedRepairs = []
    save()
  }

  /// True where an operator's repairs come before what was about to happen.
  @discardableResult mutating func beginOrderedRepairs(_ turn: inout Turn) -> Bool {
    guard !record.orderedRepairs.isEmpty else { return false }
    let names = record.orderedRepairs
    forgetOrderedRepairs()
    let due = spec.repairs.filter { names.contains($0.name) }
    guard !due.isEmpty else { return false }
    var round = Repair(attempt: record.repairRounds, queue: due)
    round.byOperator = true
    phase = .repairing(round)
    nextRepair(&turn)
    return true
  }

  // MARK: For status

  func pluginStatuses(_ now: Now) -> [PluginStatus] {
    let off = phase.run?.disabled ?? pluginsOffByRecord
    return spec.process.plugins.map { plugin in
      let name = plugin.name
      var status = PluginStatus(name: name)
      status.off = off.contains(name)
      status.files = plugin.sight?.changed ?? []
      let record = record.plugins[name]
      func wall(_ due: BootInstant) -> WallTime { now.wall + max(.zero, due - now.boot) }
      status.pinned = record?.pinned ?? false
      status.partner = record?.partner ?? ""
      if let search = self.record.plugins.search, search.toggles.contains(name) {
        status.suspicion = record?.suspicion
        status.state = .suspect
        status.by = "search"
        return status
      }
      if overrides.contains(name) {
        (status.state, status.by) = (.off, "switch")
      } else if let record, let who = record.off {
        status.by = who.rawValue
        status.until = record.until.map(wall)
        status.state = who == .ladder ? .suspect : .off
        if who != .operator, record.suspicion > 0 { status.suspicion = record.suspicion }
      } else if let until = record?.probationUntil, until > now.boot {
        (status.state, status.until) = (.probation, wall(until))
      }
      return status
    }
  }
}
