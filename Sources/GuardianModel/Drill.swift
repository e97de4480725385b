/// How a drill lets a service die.
package enum DrillCause: Hashable, Sendable {
  case exit(Int32)
  case signal(Signal)
  case oom
  /// KILL from outside.
  case killed
  /// Guardian ends it: it gave no sign of life, was not ready in time, or was found unhealthy.
  case watchdog, startTimeout, check
  /// It cannot be executed.
  case exec
  /// An end as this class has it, with evidence that says so.
  case crashClass(CrashClass)

  /// The crashes of one drill.
  package static let mostCrashes = 1_000, usualCrashes = 100
  package static let usual = DrillCause.exit(1)
  package static let form =
    "exit:N with N from 0 to 255, signal:NAME, class:NAME, or one of oom killed watchdog start-timeout check exec"
  private static let words: [(word: String, cause: DrillCause)] = [
    ("oom", .oom), ("killed", .killed), ("watchdog", .watchdog), ("start-timeout", .startTimeout), ("check", .check),
    ("exec", .exec),
  ]

  /// Reads what `text` writes; nil for anything else.
  package init?(_ text: String) {
    if let known = Self.words.first(where: { $0.word == text }) {
      self = known.cause
      return
    }
    let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
    guard parts.count == 2 else { return nil }
    switch parts[0] {
    case "exit":
      guard let code = Int32(parts[1]), (0...255).contains(code), parts[1].utf8.allSatisfy({ $0 >= 0x30 }) else {
        return nil
      }
      self = .exit(code)
    case "signal":
      guard let signal = Signal(name: parts[1]) else { return nil }
      self = .signal(signal)
    case "class":
      guard let known = CrashClass(rawValue: parts[1]), known.typicalStatus != nil else { return nil }
      self = .crashClass(known)
    default: return nil
    }
  }

  /// `exit:1`, `signal:SEGV`, `class:wild`, `oom`
  package var text: String {
    switch self {
    case .exit(let code): "exit:\(code)"
    case .signal(let signal): "signal:\(signal)"
    case .crashClass(let name): "class:\(name.rawValue)"
    case .oom, .killed, .watchdog, .startTimeout, .check, .exec:
      Self.words.first { $0.cause == self }?.word ?? ""
    }
  }
}

extension CrashClass {
  /// An end that is taken for one of this class, once its evidence is there; nil: no end by itself is.
  package var typicalStatus: ExitStatus? {
    switch self {
    case .loader: .code(127)
    case .config: .code(78)
    case .errorExit: .code(1)
    case .trap: .signal(.ill, core: false)
    case .abort, .abortHeap: .signal(.abrt, core: false)
    case .segv, .null, .stack, .wild: .signal(.segv, core: false)
    case .bus: .signal(.bus, core: false)
    case .fpe: .signal(.fpe, core: false)
    case .sandbox: .signal(.sys, core: false)
    case .limit: .signal(.xcpu, core: false)
    case .ordered, .clean, .externalKill, .oom, .hang, .unknown: nil
    }
  }
}
