/// What somebody may do; each includes what the ones before it may.
package enum Role: String, Hashable, Sendable, CaseIterable, Comparable {
  case nobody
  /// May look.
  case view
  /// May give orders about services.
  case operate
  /// May change what guardian itself goes by.
  case admin

  private var rank: Int {
    switch self {
    case .nobody: 0
    case .view: 1
    case .operate: 2
    case .admin: 3
    }
  }
  package static func < (a: Role, b: Role) -> Bool { a.rank < b.rank }
}

/// A role for one user or for all of a group.
package struct Grant: Hashable, Sendable {
  package enum Holder: Hashable, Sendable {
    case user(UInt32)
    case group(UInt32)
  }
  package var role: Role
  package var holder: Holder
  /// The user's or the group's in the user database, when the file was read; empty where there is none.
  package var name: String
  package init(_ role: Role, _ holder: Holder, name: String = "") {
    self.role = role
    self.holder = holder
    self.name = name
  }
}

/// `access:` of guardian.yaml, or of a service's file.
package struct AccessSpec: Hashable, Sendable {
  package var grants: [Grant] = []
  package init(_ grants: [Grant] = []) { self.grants = grants }

  /// - Parameter groups: The primary one too.
  package func role(of user: UInt32, in groups: Set<UInt32>) -> Role {
    var role = Role.nobody
    for grant in grants where grant.role > role {
      switch grant.holder {
      case .user(user): role = grant.role
      case .group(let group) where groups.contains(group): role = grant.role
      case .user, .group: continue
      }
    }
    return role
  }
}

/// What one client may do: on the host, and on those services whose files grant him more than that.
package struct Rights: Hashable, Sendable {
  package var host: Role
  package private(set) var services: [ServiceName: Role] = [:]
  /// The most that he may do anywhere.
  package private(set) var most: Role

  package init(host: Role = .nobody) {
    self.host = host
    most = host
  }

  package mutating func add(_ role: Role, on service: ServiceName) {
    guard role > host else { return }
    services[service] = max(role, services[service] ?? .nobody)
    most = max(most, role)
  }

  package func role(on service: ServiceName) -> Role { max(host, services[service] ?? .nobody) }
  package func may(_ role: Role, on service: ServiceName) -> Bool { self.role(on: service) >= role }
}
