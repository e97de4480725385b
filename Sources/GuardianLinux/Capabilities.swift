import CGuardian
import Glibc
package import GuardianModel

/// What guardian may do here.
package enum Capabilities {
  /// CAP_SYS_ADMIN is in effect, so that paths can be hidden. capget(2).
  package static var canMount: Bool { guardian_may_mount() == 1 }

  /// What is permitted to guardian, and so to its services. Empty where the kernel does not tell. capget(2).
  package static var permitted: Set<Capability> {
    let bits = guardian_permitted_capabilities()
    return Set(
      Capability.names.enumerated().compactMap { number, name in
        bits >> UInt64(number) & 1 == 1 ? Capability(name: name) : nil
      })
  }
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
