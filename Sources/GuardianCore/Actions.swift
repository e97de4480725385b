package import GuardianModel

/// What the shell is to do for one service. Imperative; every outcome comes back as an event.
///
/// The large ones are boxed, so that a queue of thousands of actions stays small.
package enum Action: Hashable, Sendable {
  /// Answered by `spawned` or `spawnFailed`.
  indirect case spawn(StartRequest)
  /// To the run's main process. No answer; its end is an event. ESRCH is success.
  case signal(RunID, Signal)
  /// To all that is left of the run's set, main process included. `emptied` follows when nothing is left.
  case signalSet(RunID, Signal)
  /// To the run's main process, which is to read its configuration again. As `signal`, but nothing that ends it.
  case reload(RunID, Signal)
  /// Is the run's main process at work? Answered by `looked`, asked when the startup window is over: a process that is
  /// writing its core dump has died, though nobody has seen its end, and one that is stopped has not proved anything.
  case look(RunID)
  /// How much processor time has the run used up to now, all its processes together? Answered by `measured`.
  case measure(RunID)
  /// Probe a check, which takes at most its time-out once it has begun. Answered by `probed`.
  indirect case probe(ProbeRequest)
  /// Nobody waits for the answers to these probes any more: whatever still runs for them is to be ended.
  case endProbes(RunID, [UInt64])
  /// Answered by `hookEnded`, once; the machine keeps the time.
  indirect case runHook(HookRequest)
  /// To the hook's own group.
  case signalHook(RunID, Signal)
  /// Gather the evidence of a death that nobody asked for. Answered by `examined`, once; hooks of the service, notices
  /// included, begin only when its report is complete, or given up.
  indirect case examine(CrashReport)
  /// A notice: run it, bounded and without an answer.
  indirect case notify(HookRequest)
  /// Make this durable, then answer `saved(ticket)`.
  indirect case save(ServiceRecord, Ticket)
  indirect case record(Occurrence)
  /// A line of the book of runs, to be written together with the save of the same turn.
  indirect case enter(RunEntry)
  /// Watch this path (the executable, or what was missing) and answer `executableSeen` when it changes, and `filesSeen`, for
  /// all of them, when one of the declared files does; nothing: no longer.
  case watch(String?, files: [String] = [])
  /// The removed service has nothing left: drop it.
  case forget
}

/// One start, decided.
package struct StartRequest: Hashable, Sendable {
  package var run: RunID
  package var kind: RunKind
  /// Plugins that are off for this run; empty: all on.
  package var disabledPlugins: [PluginSpec]
  /// What of its surroundings is changed.
  package var mitigation: MitigationOrder?
  package var spec: ServiceSpec { definition.value }
  private let definition: Shared<ServiceSpec>
  package init(run: RunID, kind: RunKind, disabledPlugins: [PluginSpec], spec: ServiceSpec) {
    self.init(run: run, kind: kind, disabledPlugins: disabledPlugins, definition: Shared(spec))
  }
  init(run: RunID, kind: RunKind, disabledPlugins: [PluginSpec], definition: Shared<ServiceSpec>) {
    self.run = run
    self.kind = kind
    self.disabledPlugins = disabledPlugins
    self.definition = definition
  }
  /// What would change nothing if it were off may be on.
  package var hasAllOff: Bool {
    let off = Set(disabledPlugins.map(\.name))
    return spec.process.plugins.allSatisfy { off.contains($0.name) || $0.isIdle }
  }
  /// GUARDIAN_MODE: `normal`, `safe`, or `trial`.
  package var mode: String {
    switch kind {
    case .trial, .pluginRetry, .probe: "trial"
    case .ordinary:
      disabledPlugins.isEmpty || !hasAllOff ? "normal" : "safe"
    }
  }
}
