/// What a hook is for.
package enum HookPurpose: Hashable, Sendable {
  case repair(name: String)
  /// Before each start, which waits for it.
  case beforeStart
  case notice(NoticeKind)
  case reload

  package var name: String {
    switch self {
    case .repair(let name): name
    case .beforeStart: "before-start"
    case .notice(let kind): kind.rawValue
    case .reload: "reload"
    }
  }
}

/// A program that guardian runs for a purpose, off the loop, with a run record of its own.
package struct HookRequest: Hashable, Sendable {
  package var id: RunID
  package var purpose: HookPurpose
  package var kind: RepairSpec.Kind
  /// Nil: the service's user for `run:` and before a start, guardian's own for `move-aside:`
  /// and `restore:`.
  package var identity: Identity?
  package var timeout: Duration
  package var context: HookContext
  package init(
    id: RunID, purpose: HookPurpose, kind: RepairSpec.Kind, identity: Identity?, timeout: Duration,
    context: HookContext
  ) {
    self.id = id
    self.purpose = purpose
    self.kind = kind
    self.identity = identity
    self.timeout = timeout
    self.context = context
  }
}

/// What every hook is told: the GUARDIAN_ variables and the crash as JSON.
package struct HookContext: Hashable, Sendable {
  package var service: ServiceName
  package var step: Step
  package var attempt: Int
  package var strikes: Int, strikesAllowed: Int
  package var disabledPlugins: [String]
  package var end: End?
  /// For notices: the occurrence in words.
  package var reason: String
  /// For notices: how many were left out since the last of its kind, or for want of room.
  package var suppressed = 0
  /// For a reload: the main process, as MAINPID.
  package var mainPid: Int32?
  package init(
    service: ServiceName, step: Step, attempt: Int, strikes: Int, strikesAllowed: Int, disabledPlugins: [String],
    end: End?, reason: String
  ) {
    self.service = service
    self.step = step
    self.attempt = attempt
    self.strikes = strikes
    self.strikesAllowed = strikesAllowed
    self.disabledPlugins = disabledPlugins
    self.end = end
    self.reason = reason
  }
}

/// How a hook went.
package enum HookResult: Hashable, Sendable {
  case succeeded
  /// Exit 125.
  case cannotRepair
  case failed(ExitStatus)
  case timedOut
  case aborted
  case notStarted(SpawnFailure)

  package var description: String {
    switch self {
    case .succeeded: "done"
    case .cannotRepair: "says that it cannot repair this (exit 125)"
    case .failed(.code(let code)): "failed: exit \(code)"
    case .failed(.signal(let signal, _)): "failed: SIG\(signal)"
    case .failed(.unseen): "failed: its end was not seen"
    case .timedOut: "timed out"
    case .aborted: "aborted"
    case .notStarted(let failure): failure.sentence
    }
  }
}
