package import GuardianModel

// What `status` shows of one service.

extension ServiceMachine {
  package var settled: Bool {
    switch phase {
    case .running(let run): run.settled
    case .stopped, .finished, .waiting, .starting, .backingOff, .repairing, .stopping, .quarantined: false
    }
  }
  /// Settled or not, without its plugins by the ladder's decision.
  package var degraded: Bool {
    switch phase {
    case .running(let run), .starting(let run): isDegraded(run) || run.mitigation != nil
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: false
    }
  }
  package var finishedBadly: Bool {
    if case .finished = phase { record.lastEnd.map { $0.crashClass != .clean } ?? false } else { false }
  }

  /// A changed definition waits for the next start.
  package var hasPendingDefinition: Bool { nextProcess != nil }

  /// Keys, by their words in the file, in which the run that goes on differs from the definition. Empty where nothing runs:
  /// whatever starts next has all of it.
  package var pendingKeys: [String] {
    switch phase {
    case .starting, .running: break
    case .stopped, .finished, .waiting, .backingOff, .repairing, .stopping, .quarantined: return []
    }
    if nextProcess == nil, nextFound == nil, startedWith == nil || startedWith === definition { return [] }
    var latest = spec
    if let nextProcess { latest.process = nextProcess.value }
    latest.process = withFoundPlugins(latest.process)
    let difference = SpecDifference(from: startedWith?.value ?? latest, to: latest)
    // It changed while guardian was away, and what it was before is known by its fingerprint only.
    return difference.isEmpty && nextProcess != nil ? ["definition"] : difference.atStart
  }

  /// - Parameter brief: Without what takes a while to say and a table has no room for: run id, what would clear it,
  ///   description, runbook and contact.
  package func status(_ now: Now, brief: Bool = false) -> ServiceStatus {
    var status = ServiceStatus(name: spec.name.text)
    if !brief {
      status.description = spec.description
      status.run = phase.run?.id.description
      status.clears = clears
      status.runbook = spec.runbook
      status.contact = spec.contact
      status.requires = spec.requires.map(\.text)
      status.after = spec.after.map(\.text)
      status.groups = spec.groups.map(\.text)
      status.repairs = spec.repairs.map(\.name)
      status.checks = checkStatuses
      status.plugins = pluginStatuses(now)
    }
    status.switches = switches.all.map(SwitchStatus.init)
    status.wanted = record.wanted
    status.stoppedBy = record.stoppedBy
    status.phase = phase.name
    status.step = record.step
    status.settled = settled
    status.degraded = degraded
    if let run = phase.run {
      if !runHasEnded {
        status.pid = run.pid
        if let started = run.startedAt { status.uptimeMilliseconds = max(0, (now.monotonic - started).milliseconds) }
      }
    }
    status.since = phaseSince
    status.restarts = record.restarts
    status.strikes = record.strikes
    status.strikesAllowed = strikesAllowed(on: record.step)
    status.held = held
    status.disabledPlugins = phase.run?.disabled ?? pluginsOffByRecord
    status.next = nextAction(now)
    status.lastEnd = record.lastEnd.map(Self.lastEnd)
    status.reason = reason.isEmpty && isPreparing ? "before-start is running" : reason
    if let search = record.plugins.search, reason.isEmpty {
      status.reason =
        "searching for the plugin that is to blame, after \(counted(search.observations.count, "probe"))"
    }
    if let reload, reason.isEmpty { status.reason = reload.ordered ? "reloading" : "reloading by itself" }
    let line = lineReason
    if !line.isEmpty { status.reason = line + (reason.isEmpty ? "" : "; " + reason) }
    status.kind = spec.kind
    status.observe = observing
    let pending = pendingKeys
    // A limit of the control group is in force, though the machine takes its process anew with the next start.
    status.pendingDefinition = !pending.isEmpty || (nextProcess != nil && phase.run == nil)
    if !brief, !pending.isEmpty {
      status.notes.append("takes effect with its next start, or by a restart: \(pending.joined(separator: ", "))")
    }
    if let hold = record.hold {
      status.notes.append(
        "held by \(hold.by) for another \((hold.until - now.boot).rounded.description): neither started, stopped nor repaired"
      )
    }
    if !brief, let note = confirmationNote { status.notes.append(note) }
    if let mitigationNote { status.notes.append(mitigationNote) }
    if let reloadFailure { status.notes.append("its last reload failed: \(reloadFailure)") }
    if volatile { status.notes.append("its state could not be saved and is kept in memory only") }
    return status
  }

  private var runHasEnded: Bool {
    if case .stopping(_, let stop) = phase { stop.death != nil } else { false }
  }

  static func lastEnd(_ end: End) -> ServiceStatus.LastEnd {
    var last = ServiceStatus.LastEnd(
      cause: end.cause.name, crashClass: end.crashClass.rawValue, at: end.at,
      uptimeMilliseconds: end.uptime.milliseconds, text: end.description)
    switch end.status {
    case .code(let code): last.code = code
    case .signal(let signal, let core):
      last.signal = signal.description
      last.core = core
    case .unseen: break
    }
    return last
  }

  private func nextAction(_ now: Now) -> ServiceStatus.NextAction? {
    func at(_ due: Instant?, _ action: String) -> ServiceStatus.NextAction? {
      guard let due else { return nil }
      let left = max(.zero, due - now.monotonic)
      return .init(action: action, at: now.wall + left, inMilliseconds: left.milliseconds)
    }
    func at(_ due: BootInstant?, _ action: String) -> ServiceStatus.NextAction? {
      guard let due else { return nil }
      let left = max(.zero, due - now.boot)
      return .init(action: action, at: now.wall + left, inMilliseconds: left.milliseconds)
    }
    switch phase {
    case .stopped: return held && record.wanted == .up ? at(record.hold?.until, "start") : nil
    case .finished: return nil
    case .waiting(let retryAt, _, _):
      if held { return at(record.hold?.until, "start") }
      return at(retryAt < .distantFuture ? retryAt : nil, "start")
    case .backingOff(let until, let next):
      let action = next == .act && record.step == .repair && !observing ? "repair" : "start"
      return held ? at(record.hold?.until, action) : at(until, action)
    case .starting(let run):
      if let due = run.settlesAt { return at(due, "settle") }
      return held ? nil : at(run.readyBy, "give-up-waiting")
    case .running(let run):
      if let due = reload?.until { return at(due, "give-up-reload") }
      if let due = run.settlesAt { return at(due, "settle") }
      if record.strikes > 0, let due = run.clearsAt { return at(due, "clear-strikes") }
      if let due = run.deescalatesAt { return at(due, "step-down") }
      return isDegraded(run) ? at(nextPluginDue, "plugins-due") : nil
    case .repairing(let repair):
      let what = repair.beforeStart == nil ? "repair" : "before-start"
      switch repair.hook?.stage {
      case .running(let until): return at(until, "end-\(what)")
      case .terminated(let killAt): return at(killAt, "kill-\(what)")
      case .saving, .adopting, .killed, nil: return nil
      }
    case .stopping(_, let stop):
      let more = stop.killedAt == nil && stop.purpose != .death && stop.step + 1 < spec.stop.steps
      return at(stop.killAt, more ? "next-signal" : "kill")
    case .quarantined:
      guard let trial = record.quarantine?.nextTrial, record.wanted == .up, !shuttingDown, !removed else { return nil }
      return at(record.hold.map { max($0.until, trial) } ?? trial, "trial")
    }
  }

  /// What would clear strikes, step or quarantine.
  package var clears: String {
    let name = spec.name.text
    if record.quarantine != nil {
      var ways = missing.map { ["\($0) appearing, a reload"] } ?? []
      ways.append(
        spec.declaredFiles.isEmpty
          ? "a changed definition or executable" : "a changed definition, executable or file to restore")
      if record.quarantine?.nextTrial != nil { ways.append("a trial that settles") }
      return ways.joined(separator: ", ") + ", or `guardianctl release \(name)` releases it"
    }
    if record.strikes > 0 || record.step > .restart {
      var ways: [String] = []
      if record.strikes > 0 {
        ways.append(
          settled
            ? "the strikes are cleared once at most \(spec.late.budget) late deaths lie within "
              + "\(spec.late.within.description)"
            : "\(spec.startupWindow.description) of running after ready clears the strikes")
      }
      if record.step > .restart {
        ways.append(
          record.step == .safeMode && record.plugins.off
            ? "a start with plugins that settles leaves safe mode"
            : "\(spec.escalation.deescalateAfter.description) of settled running goes down one step")
      }
      ways.append("`guardianctl reset \(name)` clears all")
      return ways.joined(separator: "; ")
    }
    if let run = phase.run, isDegraded(run) {
      return record.plugins.off
        ? "a start with plugins that settles" : "its next start has the plugins on: `guardianctl restart \(name)`"
    }
    return ""
  }
}

extension Duration {
  /// To whole seconds above ten seconds, else to milliseconds: for people.
  var rounded: Duration {
    let ns = nanoseconds
    return ns >= 10_000_000_000 ? .seconds(ns / 1_000_000_000) : .milliseconds(ns / 1_000_000)
  }
}
