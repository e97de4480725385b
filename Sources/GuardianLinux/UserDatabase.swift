import Glibc
package import GuardianModel

/// Users and groups by the C library's name service. May wait for a network: never on the loop.
package enum UserDatabase {
  package struct Failure: Error, Hashable, Sendable, CustomStringConvertible {
    /// A sentence for the operator without a full stop: `there is no user 'webb'`.
    package var reason: String
    /// The database did not answer; the user may well be there.
    package var unanswered: Bool
    package var description: String { reason }
  }

  /// Everything of a user that a start needs; `user` and `groupOverride` are names or numbers.
  ///
  /// Never falls back to anybody else: what cannot be found is an error. getpwnam_r(3), getgrouplist(3).
  package static func identity(user: String, groupOverride: String? = nil) throws(Failure) -> Identity {
    let group: UInt32? = if let groupOverride { try self.group(groupOverride) } else { nil }
    if let found = try entry(user) {
      let gid = group ?? found.gid
      return Identity(
        user: found.name, uid: found.uid, gid: gid, groups: try groups(of: found.name, gid), home: found.home,
        shell: found.shell)
    }
    guard let number = number(user) else { throw Failure(reason: "there is no user '\(user)'", unanswered: false) }
    guard let group else {
      throw Failure(
        reason: "uid \(number) is not in the user database, so its group is not known; add 'group'", unanswered: false)
    }
    return Identity(user: user, uid: number, gid: group, groups: [group], home: "/", shell: "/bin/sh")
  }

  /// The user that guardian itself runs as; by number where the database has no name for it.
  package static func own() throws(Failure) -> Identity {
    let uid = geteuid()
    guard let found = try entry("\(uid)") else {
      return Identity(user: "\(uid)", uid: uid, gid: getegid(), groups: ownGroups(), home: "/", shell: "/bin/sh")
    }
    // Its groups are those it has, which may be other ones than the database would give today.
    return Identity(
      user: found.name, uid: uid, gid: getegid(), groups: ownGroups(), home: found.home, shell: found.shell)
  }

  /// Nil where the database has none for it, or does not answer.
  package static func name(of uid: UInt32) -> String? {
    do throws(Failure) { return try entry("\(uid)")?.name } catch { return nil }
  }

  /// A group's number, from its name or its number.
  package static func group(_ name: String) throws(Failure) -> UInt32 {
    if let number = number(name) { return number }
    var record = Glibc.group()
    let found = try lookUp(name) { buffer, size in
      var result: UnsafeMutablePointer<Glibc.group>?
      let code = getgrnam_r(name, &record, buffer, size, &result)
      return (code, result != nil)
    } take: {
      record.gr_gid
    }
    guard let found else { throw Failure(reason: "there is no group '\(name)'", unanswered: false) }
    return found
  }

  private struct Entry {
    var name: String, uid: UInt32, gid: UInt32, home: String, shell: String
  }

  private static func entry(_ user: String) throws(Failure) -> Entry? {
    var record = passwd()
    let byNumber = number(user)
    if byNumber == nil && (user.isEmpty || user.utf8.contains(0)) { return nil }
    return try lookUp(user) { buffer, size in
      var result: UnsafeMutablePointer<passwd>?
      let code =
        if let byNumber { getpwuid_r(byNumber, &record, buffer, size, &result) } else {
          getpwnam_r(user, &record, buffer, size, &result)
        }
      return (code, result != nil)
    } take: {
      Entry(
        name: text(record.pw_name) ?? user, uid: record.pw_uid, gid: record.pw_gid,
        home: text(record.pw_dir).flatMap { $0.isEmpty ? nil : $0 } ?? "/",
        shell: text(record.pw_shell).flatMap { $0.isEmpty ? nil : $0 } ?? "/bin/sh")
    }
  }

  private static func text(_ pointer: UnsafeMutablePointer<CChar>?) -> String? { pointer.map { String(cString: $0) } }

  /// All digits, and not the number that means "leave it as it is".
  private static func number(_ text: String) -> UInt32? {
    guard !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else {
      return nil
    }
    return UInt32(text).flatMap { $0 == .max ? nil : $0 }
  }

  /// Calls with more and more room until the entry fits, 1 MiB at most.
  private static func lookUp<T>(
    _ what: String, _ call: (UnsafeMutablePointer<CChar>, Int) -> (code: Int32, found: Bool), take: () -> T
  ) throws(Failure) -> T? {
    var size = 1024
    while true {
      let buffer = UnsafeMutablePointer<CChar>.allocate(capacity: size)
      defer { buffer.deallocate() }
      let (code, found) = call(buffer, size)
      if found && code == 0 { return take() }
      switch code {
      // Different libraries say "not there" in different ways: getpwnam(3), "NOTES".
      case 0, ENOENT, ESRCH, EBADF, EPERM: return nil
      case EINTR: continue
      case ERANGE where size < 1 << 20: size *= 2
      default:
        throw Failure(
          reason: "the user database does not answer for '\(what)': \(ErrnoText.reason(code))", unanswered: true)
      }
    }
  }

  private static func groups(of user: String, _ gid: UInt32) throws(Failure) -> [UInt32] {
    var room: Int32 = 64
    // The kernel's own limit of groups, NGROUPS_MAX.
    while room <= 65536 {
      var found = [gid_t](repeating: 0, count: Int(room))
      var count = room
      if getgrouplist(user, gid, &found, &count) >= 0 { return Array(found.prefix(Int(max(count, 0)))).sorted() }
      room = max(room * 2, count)
    }
    throw Failure(reason: "user '\(user)' is in more than 65536 groups", unanswered: false)
  }

  private static func ownGroups() -> [UInt32] {
    let count = getgroups(0, nil)
    if count <= 0 { return [getegid()] }
    var found = [gid_t](repeating: 0, count: Int(count))
    let got = getgroups(count, &found)
    return Array(Set(found.prefix(Int(max(got, 0))) + [getegid()])).sorted()
  }
}
