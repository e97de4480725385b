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

/// Calls that guardian would rather use, and does without where an older kernel lacks them or a filter forbids them.
package enum KernelCalls {
  package struct Missing: Hashable, Sendable {
    package var call: String
    /// What holds then, as the end of a sentence.
    package var instead: String
  }

  /// Asked once, when guardian starts. Each call is made in a way that does nothing.
  package static let missing: [Missing] = {
    let calls: [(here: Bool, Missing)] = [
      (
        guardian_has_clone3() == 1,
        Missing(call: "clone3", instead: "children are born by clone, without control groups")
      ),
      (
        guardian_has_pidfd_open() == 1,
        Missing(
          call: "pidfd_open",
          instead: "processes of an earlier guardian are held by /proc, and their end is noticed within a second")
      ),
      (guardian_has_pidfd_signal() == 1, Missing(call: "pidfd_send_signal", instead: "signals go by number")),
      (guardian_has_close_range() == 1, Missing(call: "close_range", instead: "descriptors are closed one by one")),
      (
        guardian_has_memfd() == 1,
        Missing(call: "memfd_create", instead: "an upgrade hands its state over in a file without a name")
      ),
    ]
    return calls.filter { !$0.here }.map(\.1)
  }()
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
