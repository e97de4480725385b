/// How a process went, as the kernel tells it.
package enum ExitStatus: Hashable, Sendable {
  case code(Int32)
  case signal(Signal, core: Bool)
  /// Gone, and nobody saw how.
  case unseen
}

/// Why a run ended, in the operator's words.
package enum Cause: Hashable, Sendable {
  case exit
  case signal
  /// Killed for want of memory. `certain` is false where only the host's counter rose, shown as `oom?`.
  case oom(certain: Bool)
  case watchdog
  case startTimeout
  case check
  case exec(SpawnFailure)
  /// SIGKILL or SIGTERM that guardian did not send.
  case killed
  case unknown
  /// The machine went down.
  case host

  /// As shown and as matched by `on:`.
  package var name: String {
    switch self {
    case .exit: "exit"
    case .signal: "signal"
    case .oom(let certain): certain ? "oom" : "oom?"
    case .watchdog: "watchdog"
    case .startTimeout: "start-timeout"
    case .check: "check"
    case .exec: "exec"
    case .killed: "killed"
    case .unknown: "unknown"
    case .host: "host"
    }
  }
}

/// The finer diagnosis: what could help.
package enum CrashClass: String, Hashable, Sendable, CaseIterable {
  case ordered, clean, externalKill = "external-kill", oom, limit, loader, config, trap, abort, segv, bus, fpe, sandbox
  /// An abort with a word of the allocator before it; a bad access near address 0, near the stack, elsewhere.
  case abortHeap = "abort-heap", null, stack, wild
  case errorExit = "error-exit", hang, unknown

  /// A plain restart cannot cure these; they end the restart step at their first strike.
  package var survivesRestart: Bool {
    switch self {
    case .loader, .config, .sandbox: true
    case .ordered, .clean, .externalKill, .oom, .limit, .trap, .abort, .abortHeap, .segv, .null, .stack, .wild, .bus,
      .fpe, .errorExit, .hang, .unknown:
      false
    }
  }

  /// The same program with the same input comes to it again: two such ends in a row at the same place are proof enough.
  package var isDeterministic: Bool { survivesRestart || self == .trap || self == .fpe }

  /// What the wait status alone says of it: `on: class:segv` means every kind of bad access.
  package var coarse: CrashClass {
    switch self {
    case .null, .stack, .wild: .segv
    case .abortHeap: .abort
    case .ordered, .clean, .externalKill, .oom, .limit, .loader, .config, .trap, .abort, .segv, .bus, .fpe, .sandbox,
      .errorExit, .hang, .unknown:
      self
    }
  }
}

/// What is known of a run's end, kept as the service's last end.
package struct End: Hashable, Sendable {
  package var run: RunID
  package var status: ExitStatus
  package var cause: Cause
  package var crashClass: CrashClass
  package var at: WallTime
  /// From exec to death.
  package var uptime: Duration
  /// Processes of its set that outlived the main process.
  package var leftovers: Int
  /// What guardian ended it for, where the cause alone says too little: `http failed 3 times: status 503`.
  package var detail: String
  /// Nil: not known yet, or of an end that was asked for.
  package var signature: Signature?
  package init(
    run: RunID, status: ExitStatus, cause: Cause, crashClass: CrashClass, at: WallTime, uptime: Duration,
    leftovers: Int = 0, detail: String = ""
  ) {
    self.run = run
    self.status = status
    self.cause = cause
    self.crashClass = crashClass
    self.at = at
    self.uptime = uptime
    self.leftovers = leftovers
    self.detail = detail
  }
}

/// One entry of a repair's `on:` list.
package enum CauseMatcher: Hashable, Sendable {
  case exit(Int32)
  case signal(Signal)
  case crashClass(CrashClass)
  /// A cause by name: `oom`, `watchdog`, `start-timeout`, …; `oom` matches `oom?` too.
  case cause(String)

  package func matches(_ end: End) -> Bool {
    switch self {
    case .exit(let code): end.status == .code(code)
    case .signal(let signal):
      if case .signal(signal, _) = end.status { true } else { false }
    case .crashClass(let wanted): end.crashClass == wanted || end.crashClass.coarse == wanted
    case .cause(let name):
      if case .oom = end.cause { name == "oom" } else { end.cause.name == name }
    }
  }
}

/// A start that did not come to an exec: at which stage, why, and what it concerned.
package struct SpawnFailure: Error, Hashable, Sendable {
  /// In the order in which the child takes them; the raw values are those of `guardian_spawn.h`.
  package enum Stage: Int32, Hashable, Sendable, CaseIterable {
    case clone = 1, session, signals, descriptors, limits, priority, oomScore, hide, identity, umask, directory, exec
    /// Before the child was born: output, environment file, notify socket.
    case prepare
    /// After `identity`.
    case capabilities = 14

    /// As in `exec` (stage and errno) of the last end.
    package var name: String {
      switch self {
      case .clone: "clone"
      case .session: "session"
      case .signals: "signals"
      case .descriptors: "descriptors"
      case .limits: "limits"
      case .priority: "nice"
      case .oomScore: "oom-score-adjust"
      case .hide: "hide"
      case .identity: "user"
      case .umask: "umask"
      case .directory: "directory"
      case .exec: "exec"
      case .prepare: "prepare"
      case .capabilities: "capabilities"
      }
    }
  }
  package var stage: Stage
  package var errno: Int32
  /// The path, user or limit concerned; may be empty.
  package var target: String
  /// The sentence for the operator; made at the edge, where errno names live.
  package var sentence: String
  /// Guardian's or the host's own trouble, which is no fault of the service: waited out, no strike.
  package var ownTrouble: Bool
  /// The command, user or directory is not there: quarantined at once, tried again when it appears.
  package var missing: Bool

  package init(
    stage: Stage, errno: Int32, target: String, sentence: String, ownTrouble: Bool = false, missing: Bool = false
  ) {
    self.stage = stage
    self.errno = errno
    self.target = target
    self.sentence = sentence
    self.ownTrouble = ownTrouble
    self.missing = missing
  }
}

/// What the shell saw when a main process ended.
package struct Death: Hashable, Sendable {
  package var status: ExitStatus
  /// Memory evidence across the run.
  package var oom: Oom = .none
  /// A tracer was attached at the death.
  package var traced = false
  /// Processes of the set that are still alive.
  package var leftovers = 0
  package enum Oom: Hashable, Sendable { case none, perhaps, certain }
  package init(_ status: ExitStatus, oom: Oom = .none, traced: Bool = false, leftovers: Int = 0) {
    self.status = status
    self.oom = oom
    self.traced = traced
    self.leftovers = leftovers
  }
}
