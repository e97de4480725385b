import Glibc
import GuardianLinux
import GuardianModel

/// What does not work here as well as it could, each thing once, in words: logged at the start. `guardianctl version`
/// shows what holds instead.
struct Weaknesses {
  private(set) var lines: [String] = []

  /// What root without one of its capabilities cannot do.
  private static let needs: [(capability: String, loss: String)] = [
    ("setuid", "no service can run as another user"), ("setgid", "no service can have other groups"),
    ("kill", "services of other users are not signalled"),
    ("chown", "a notify socket cannot be given to another user"),
    ("dac-override", "files of other users cannot be read or moved aside"),
    ("sys-resource", "no limit above guardian's own, and no OOM score below it"),
    ("sys-nice", "no priority above guardian's own"), ("sys-admin", "no path is hidden from a service"),
    ("net-admin", "a death under a debugger counts"),
    ("sys-ptrace", "what services of other users left is harder to find"),
  ]

  init(_ surroundings: Surroundings) {
    if access("/proc/self/stat", R_OK) != 0 {
      lines.append(
        "/proc is not mounted: what a service leaves outside its process group, what an earlier guardian left, who "
          + "dumps core or is debugged cannot be seen, and nothing is moved aside")
    }
    if geteuid() == 0 {
      for (name, loss) in Self.needs {
        if let one = Capability(name: name), !surroundings.capabilities.contains(one) {
          lines.append("without CAP_\(name.uppercased().split(separator: "-").joined(separator: "_")): \(loss)")
        }
      }
    } else {
      lines.append("guardian is uid \(geteuid()) and not root: all services run as that user, within its limits")
    }
    for missing in KernelCalls.missing {
      lines.append("\(missing.call) is not to be had (an older kernel, or a filter): \(missing.instead)")
    }
    if !Journal.exists { lines.append("there is no journal: services write to guardian's own output") }
    if access("/proc/vmstat", R_OK) != 0 {
      lines.append("nobody counts deaths for want of memory: such a one looks like a kill")
    }
  }
}
