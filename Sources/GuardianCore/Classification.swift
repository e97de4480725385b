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

/// The class that the evidence gives an end, where it is finer than what the wait status told.
///
/// Source: the rows of "End classification" that need an address or the program's own last words.
///
/// - Parameters:
///   - lines: Of the run's last output, oldest first; the last fifty count.
///   - access: Where the bad access was; nil: no source tells.
package func refined(_ end: End, lines: [String], access: BadAccess?) -> CrashClass? {
  switch end.crashClass {
  case .segv:
    guard let access else { return nil }
    if access.address < 65_536 { return .null }
    if let pointer = access.stackPointer,
      max(pointer, access.address) - min(pointer, access.address) <= 65_536
    {
      return .stack
    }
    return .wild
  case .abort: return contains(allocatorPhrases, in: lines) ? .abortHeap : nil
  // A loader's own code is 127, but who calls it may make another of it.
  case .errorExit: return contains(loaderPhrases, in: lines) ? .loader : nil
  case .ordered, .clean, .externalKill, .oom, .limit, .loader, .config, .trap, .abortHeap, .null, .stack, .wild, .bus,
    .fpe, .sandbox, .hang, .unknown:
    return nil
  }
}

private let allocatorPhrases = [
  "double free", "malloc(): ", "free(): ", "realloc(): ", "munmap_chunk(): ", "corrupted size vs. prev_size",
  "corrupted double-linked list", "malloc_consolidate(): ", "heap corruption", "Scudo ERROR",
]
private let loaderPhrases = [
  "error while loading shared libraries:", "symbol lookup error:", "cannot open shared object file",
  "undefined symbol:",
]

private func contains(_ phrases: [String], in lines: [String]) -> Bool {
  lines.suffix(50).contains { line in phrases.contains { line.contains($0) } }
}
