import GuardianLinux
import GuardianModel

/// Who may do what: the grants of guardian.yaml and of all services' files, as of the last reading.
struct AccessTable {
  private struct Who: Hashable {
    var uid: UInt32
    var groups: Set<UInt32>
  }
  /// Of guardian itself, who is admin as root is.
  private let own: UInt32
  private var host = AccessSpec()
  /// Only those that grant anything.
  private var services: [ServiceName: AccessSpec] = [:]
  /// Grows with each reading: what was found out before is to be found out again.
  private(set) var generation = 0
  /// What has been found out since: thousands of connections are of few users.
  private var found: [Who: Rights] = [:]
  private static let kept = 64
  /// Names of users whose number a file has, directly or by name.
  private(set) var names: [UInt32: String] = [:]

  init(own: UInt32) { self.own = own }

  mutating func take(host: AccessSpec, services all: some Sequence<(ServiceName, AccessSpec)>) {
    self.host = host
    services = [:]
    for (name, spec) in all where !spec.grants.isEmpty { services[name] = spec }
    generation += 1
    found = [:]
    names = [:]
    for grant in host.grants + services.values.flatMap(\.grants) where !grant.name.isEmpty {
      if case .user(let uid) = grant.holder { names[uid] = grant.name }
    }
  }

  mutating func rights(of uid: UInt32, in groups: Set<UInt32>) -> Rights {
    if uid == 0 || uid == own { return Rights(host: .admin) }
    let who = Who(uid: uid, groups: groups)
    if let known = found[who] { return known }
    var rights = Rights(host: host.role(of: uid, in: groups))
    for (name, spec) in services { rights.add(spec.role(of: uid, in: groups), on: name) }
    if found.count >= Self.kept { found = [:] }
    found[who] = rights
    return rights
  }
}
