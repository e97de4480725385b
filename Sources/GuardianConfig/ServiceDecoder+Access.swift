import GuardianModel

// Who may do what: `access:` of guardian.yaml and of a service's file.

extension ServiceDecoder {
  /// More names than this are a group's business.
  private static let mostGrants = 256

  /// A name that the user database does not have grants nothing to anybody, and is a warning only: an account that is
  /// removed must not take services down.
  mutating func access(_ node: Node?, in table: KeyTable) -> AccessSpec {
    var spec = AccessSpec()
    guard let fields = fields(of: node, at: "access", in: table, called: "'access'") else { return spec }
    for role in [Role.view, .operate, .admin] {
      let key = "'\(role.rawValue)'"
      guard let items = list(fields[role.rawValue], key) else { continue }
      if items.count > Self.mostGrants {
        fault(fields[role.rawValue], "\(key) has \(items.count) names, at most \(Self.mostGrants)", "make them a group")
        continue
      }
      for item in items { if let grant = grant(role, item, key) { spec.grants.append(grant) } }
    }
    return spec
  }

  private mutating func grant(_ role: Role, _ node: Node, _ key: String) -> Grant? {
    guard let text = text(node, "an element of \(key)") else { return nil }
    let isGroup = text.hasPrefix("@")
    let name = isGroup ? String(text.dropFirst()) : text
    guard !name.isEmpty, name.utf8.count <= 256, !name.utf8.contains(where: { $0 <= 0x20 || $0 == 0x7f || $0 == 0x3a })
    else {
      fault(
        node, "'\(brief(text))' in \(key) is no user", "a user's name or number, or @ and a group's, as in \"@ops\"")
      return nil
    }
    if isGroup {
      switch context.resolveUser(nil, name) {
      case .success(let found): return Grant(role, .group(found.gid), name: name)
      case .failure(let problem):
        warn(node, "\(problem.what), so \(key) grants it nothing", "correct the name, or make the group, then reload")
        return nil
      }
    }
    switch context.resolveUser(name, nil) {
    case .success(let found): return Grant(role, .user(found.uid), name: found.user)
    case .failure(let problem):
      // A number is as good without a name.
      if let number = UInt32(name), number != .max, name.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
        return Grant(role, .user(number))
      }
      warn(node, "\(problem.what), so \(key) grants it nothing", "correct the name, or make the user, then reload")
      return nil
    }
  }
}
