/// How a drill lets a service die.
package enum DrillCause: Hashable, Sendable {
  case exit(Int32)
  case signal(Signal)
  case oom

  /// The crashes of one drill.
  package static let mostCrashes = 1_000, usualCrashes = 100
  package static let usual = DrillCause.exit(1)
  package static let form = "exit:N with N from 0 to 255, signal:NAME, or oom"

  /// Reads what `text` writes; nil for anything else.
  package init?(_ text: String) {
    if text == "oom" {
      self = .oom
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
    default: return nil
    }
  }

  /// `exit:1`, `signal:SEGV`, `oom`
  package var text: String {
    switch self {
    case .exit(let code): "exit:\(code)"
    case .signal(let signal): "signal:\(signal)"
    case .oom: "oom"
    }
  }
}
