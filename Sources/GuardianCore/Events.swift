package import GuardianModel

/// What has happened to one service. Past tense, but for what guardian itself is told to do.
package enum ServiceEvent: Hashable, Sendable {
  // Outcomes of actions.
  /// The run has come to its exec. `executable` is what was executed, for noticing a change.
  /// `startTicks` as in `ProcessIdentity`; 0 where it is not known.
  case spawned(RunID, pid: Int32, executable: FileIdentity?, startTicks: UInt64 = 0)
  case spawnFailed(RunID, SpawnFailure)
  case saved(Ticket)
  case hookEnded(RunID, HookResult)
  /// The hook has come to its exec.
  case hookStarted(RunID, pid: Int32, startTicks: UInt64)
  case looked(RunID, Liveness)
  /// Since its start; nil: that cannot be told here.
  case measured(RunID, cpu: Duration?)
  /// What the evidence of this run's death says.
  case examined(RunID, Finding)

  // Evidence about a run.
  /// READY=1, or the newline; the newline's end-of-file without one is not this.
  case ready(RunID)
  /// The answer to `probe`. Comes once for each.
  case probed(RunID, number: UInt64, ProbeResult)
  case watchdogPinged(RunID)
  /// WATCHDOG=trigger.
  case watchdogTriggered(RunID)
  /// EXTEND_TIMEOUT_USEC; how far it goes is the machine's to say.
  case timeoutExtended(RunID, Duration)
  /// READY=1 of a run that tells its readiness otherwise: it ends a reload, and is nothing else.
  case readyAgain(RunID)
  /// RELOADING=1, and when it began by its own MONOTONIC_USEC.
  case reloading(RunID, stamp: Instant?)
  /// STOPPING=1.
  case leaving(RunID)
  /// WATCHDOG_USEC.
  case watchdogSet(RunID, Duration)
  /// MAINPID, proved to be in the run's set: from now on this process's end is told by `ended`.
  case mainMoved(RunID, ProcessIdentity)
  /// A STATUS= that `plugins.acknowledge` waits for.
  case pluginsConfirmed(RunID)
  /// The main process is gone. Comes once.
  case ended(RunID, Death)
  /// Nothing of the run's set is left. Comes once, after `ended`; at once where nothing was left over.
  case emptied(RunID)

  // What guardian finds at its start of what an earlier instance has left: the answers to `Fleet.adoptees`. What is not
  // there any more is told by `ended` and `emptied`, or by `hookEnded`.
  /// This process is proved to be the run's, and alive (or, where the main process had ended before, what is left of its
  /// set is). `readinessKnown`: a READY sent meanwhile would have been kept.
  case adopted(RunID, pid: Int32, startTicks: UInt64, readinessKnown: Bool)
  /// A process with the id of this run's successor lives: it had ended, and a restart at once had followed it. Comes before
  /// `ended`.
  case superseded(RunID)
  case hookAdopted(RunID, pid: Int32, startTicks: UInt64)

  // The host.
  /// The definition on disk is now this one, valid.
  case defined(ServiceSpec)
  /// The definition is gone: stop, then forget.
  case removed
  /// The executable was looked at, or appeared, or vanished (nil).
  case executableSeen(FileIdentity?)
  /// The declared files were looked at: before each start, and when one that is watched has changed.
  case filesSeen([FileSight])
  /// The plugin directory was looked at: before each start, and when it is watched and has changed. All that its entries
  /// are, those of the definition's list left out.
  case pluginsFound(PluginDirectory, [PluginSpec])
  /// The files of plugins that are off were looked at: before each start, when they are to be watched, and when one has
  /// changed.
  case pluginsSeen([FileSight])
  /// The clocks stood still or guardian was not run for so long; nobody is to blame.
  case resumed(slept: Duration)

  // Guardian's own course; operators' orders go through `Fleet.order`.
  /// Boot, or guardian's own start: start if wanted.
  case begin
  /// Guardian is going down: stop, want as before, and start nothing more.
  case shutdown
  /// Time has passed: the machine looks for itself which of its deadlines are due.
  case deadline
}

/// What a look at a run's main process found.
package enum Liveness: Hashable, Sendable {
  case alive
  /// Stopped, frozen or traced.
  case stopped
  /// Dumping core: its end is on its way.
  case dumping
}

package struct Command: Hashable, Sendable {
  package enum Verb: Hashable, Sendable {
    case start, restart, release, reset, reload
    case stop(untilBoot: Bool)
    case plugins(PluginOrder)
    /// All plugins off, or on, by an operator.
    case safeMode(Bool)
    /// This repair, or all of them, now.
    case repair(String?)
    /// Zero ends a hold.
    case hold(Duration)

    package var name: String {
      switch self {
      case .start: "start"
      case .restart: "restart"
      case .release: "release"
      case .reset: "reset"
      case .reload: "reload"
      case .stop: "stop"
      case .hold: "hold"
      case .plugins(let order): "plugins " + order.name + (order.plugin.map { " " + $0 } ?? "")
      case .safeMode(let on): on ? "safe-mode on" : "safe-mode off"
      case .repair(let name): "repair" + (name.map { " " + $0 } ?? "")
      }
    }
  }
  package var verb: Verb
  /// Who asked, for the record.
  package var by: Author
  package init(_ verb: Verb, by: Author) {
    self.verb = verb
    self.by = by
  }
}

/// What tells one version of a file from the next.
package struct FileIdentity: Hashable, Sendable {
  package var device: UInt64, inode: UInt64, size: Int64, modified: Int64
  /// Who executes it has more power than before: set-user-id, set-group-id, or capabilities of the file.
  package var privileged = false
  package init(device: UInt64, inode: UInt64, size: Int64, modified: Int64) {
    self.device = device
    self.inode = inode
    self.size = size
    self.modified = modified
  }

  /// Of the version alone. Never 0.
  package var print: UInt64 {
    var print = Fingerprint()
    print.add(device)
    print.add(inode)
    print.add(size)
    print.add(modified)
    return print.value == 0 ? 1 : print.value
  }
}
