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
    guard let text = FileText.text("/proc/\(pid)/status", limit: 1 << 16) else { return nil }
    self = .alive
    for line in text.split(separator: "\n") {
      if line.hasPrefix("State:\tT") || line.hasPrefix("State:\tt") { self = .stopped }
      if line == "CoreDumping:\t1" {
        self = .dumping
        return
      }
    }
  }
}
