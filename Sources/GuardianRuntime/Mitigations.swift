import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

/// What a mitigation is on Linux with the GNU C library.
enum Mitigations {
  /// The largest stack that is given to anybody for a trial.
  static let largestStack: UInt64 = 256 << 20

  static func surroundings(_ order: MitigationOrder, _ environment: ChildEnvironment, _ limits: [ResourceLimit])
    -> SpawnRequest.Surroundings
  {
    var changed = SpawnRequest.Surroundings(program: order.build)
    switch order.mitigation {
    case .zeroedMemory:
      // What is allocated is filled with the complement of `perturb`, also what the cache of each thread would keep back.
      let own = environment["GLIBC_TUNABLES"].map { $0.isEmpty ? "" : $0 + ":" } ?? ""
      changed.environment = ["GLIBC_TUNABLES=\(own)glibc.malloc.perturb=255:glibc.malloc.tcache_count=0"]
    case .immediateBinding: changed.environment = ["LD_BIND_NOW=1"]
    case .singleCPU: changed.singleCPU = true
    case .largerStack:
      let usual = limits.first { $0.resource == .stack }?.value ?? ownStack
      // Four times nothing known, or of no limit at all, is no change.
      if usual > 0, usual < largestStack { changed.stack = min(usual.multipliedFullWidth(by: 4).low, largestStack) }
    }
    return changed
  }

  /// Bytes; 0: not known.
  private static var ownStack: UInt64 {
    var limit = rlimit()
    return getrlimit(__rlimit_resource_t(RLIMIT_STACK.rawValue), &limit) == 0 ? UInt64(limit.rlim_cur) : 0
  }
}

extension FileIdentity {
  init(_ look: ExecutableLook) {
    self.init(device: look.device, inode: look.inode, size: look.size, modified: look.modified)
    privileged = look.privileged
  }
}
