import Glibc
import GuardianLinux
import GuardianModel

/// How many descriptors guardian needs for its services, against how many it may have: told when the configuration is
/// read, so that nobody learns it from the services that wait.
struct DescriptorBudget {
  /// Its own: loop, timers, signals, store, locks, journal, control socket and what it keeps for clients.
  static let own = 48 + ControlListener.reserved

  private(set) var needed = own
  private(set) var services = 0

  /// - Parameter hasJournal: `log: journal` is what a definition without `log` has.
  mutating func add(_ spec: ServiceSpec, hasJournal: Bool) {
    services += 1
    // The handle of its main process.
    needed += 1
    if spec.needsNotifySocket { needed += 1 }
    if case .descriptor = spec.ready { needed += 1 }
    switch spec.log {
    case .journal: needed += 1
    case .automatic: needed += hasJournal ? 1 : 0
    // The end of its pipe that is read from, and for a moment the other one.
    case .file: needed += 1
    case .inherit, .none: break
    }
  }

  /// Nil where there are enough.
  func shortage(limit: UInt64) -> String? {
    guard services > 0, limit < UInt64(needed) else { return nil }
    let each = max(1, (needed - Self.own) / services)
    let enough = max(0, (Int(clamping: limit) - Self.own) / each)
    return "\(services) services need about \(needed) open files, and guardian may have \(limit): about "
      + "\(min(enough, services)) of them can run at once, the others wait; raise its hard limit "
      + "(LimitNOFILE=, ulimit -Hn)"
  }
}

extension Shell {
  /// Said once for each change.
  func noticeDescriptors() {
    var budget = DescriptorBudget()
    let hasJournal = Journal.exists
    for id in fleet.ids { if let spec = fleet.spec(of: id) { budget.add(spec, hasJournal: hasJournal) } }
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
    let shortage = budget.shortage(limit: UInt64(limit.rlim_cur))
    if let shortage, shortage != descriptorShortage { log.note(.warning, shortage) }
    descriptorShortage = shortage
  }
}
