package import GuardianModel

/// The finer diagnosis of an end that nobody asked for, from the wait status and memory evidence.
///
/// Source: the table "End classification"; rows that need a fault address or a program's own record come with those.
package func classify(_ status: ExitStatus, cause: Cause) -> CrashClass {
  switch cause {
  case .oom: return .oom
  case .watchdog, .startTimeout, .check: return .hang
  case .exec: return .loader
  case .killed: return .externalKill
  case .unknown, .host: return .unknown
  case .exit, .signal: break
  }
  switch status {
  case .unseen: return .unknown
  case .code(0): return .clean
  case .code(126), .code(127): return .loader
  case .code(78): return .config
  case .code: return .errorExit
  case .signal(let signal, _):
    switch signal {
    case .ill, .trap: return .trap
    case .abrt: return .abort
    case .segv: return .segv
    case .bus: return .bus
    case .fpe: return .fpe
    case .sys: return .sandbox
    case .xcpu, .xfsz: return .limit
    default: return .errorExit
    }
  }
}

/// Why a run ended that guardian did not end itself.
package func cause(of death: Death) -> Cause {
  switch death.status {
  case .unseen: return .unknown
  case .code: return .exit
  case .signal(.kill, _):
    switch death.oom {
    case .none: return .killed
    case .perhaps: return .oom(certain: false)
    case .certain: return .oom(certain: true)
    }
  case .signal(.term, _): return .killed
  case .signal: return .signal
  }
}

/// Why a run ended that was told to: its signal is ours and accuses nobody.
func causeOfOrderedEnd(_ death: Death) -> Cause {
  switch death.status {
  case .unseen: .unknown
  case .code: .exit
  case .signal: .signal
  }
}
