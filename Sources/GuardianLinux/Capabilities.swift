import CGuardian
import Glibc

/// What guardian may do here.
package enum Capabilities {
  /// CAP_SYS_ADMIN is in effect, so that paths can be hidden. capget(2).
  package static var canMount: Bool { guardian_may_mount() == 1 }
}

/// A process as its `status` file has it.
package enum ProcessState: Hashable, Sendable {
  case alive, stopped, dumping

  /// Nil where it is gone, or /proc does not tell. proc(5): "State" and, since 4.15, "CoreDumping".
  package init?(of pid: Int32) {
    guard let text = FileText.read("/proc/\(pid)/status", limit: 1 << 16) else { return nil }
    if FileText.number(after: "CoreDumping:", in: text) == 1 {
      self = .dumping
    } else {
      let state = FileText.byte(after: "State:", in: text)
      self = state == UInt8(ascii: "T") || state == UInt8(ascii: "t") ? .stopped : .alive
    }
  }
}
