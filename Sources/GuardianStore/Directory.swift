import Glibc

/// Why the database is not opened.
struct Refusal: Error {
  var why: String
}

/// The state directory, held open, and the files in it that are the store's.
final class Directory {
  static let database = "guardian.db"
  /// What belongs to the database, the database first: whatever is beside no database is not read.
  static let parts = ["guardian.db", "guardian.db-wal", "guardian.db-journal", "guardian.db-shm"]
  /// Ends the names of files that are not finished.
  static let unfinished = ".part"
  static let damagedPrefix = "guardian.db.damaged-"
  static let damagedKept = 3

  let path: String
  private let descriptor: Int32
  let identity: Identity

  struct Identity: Equatable {
    var device: UInt64, inode: UInt64
    init(_ status: stat) {
      device = UInt64(status.st_dev)
      inode = UInt64(status.st_ino)
    }
  }

  init(_ path: String) throws(Refusal) {
    self.path = path
    descriptor = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    guard descriptor >= 0 else { throw Refusal(why: "cannot open \(path): \(errorName(errno))") }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else {
      let number = errno
      Glibc.close(descriptor)
      throw Refusal(why: "cannot look at \(path): \(errorName(number))")
    }
    identity = Identity(status)
    guard status.st_uid == geteuid(), status.st_mode & 0o022 == 0 else {
      // All is initialised, so `deinit` closes it; a second close would be that of somebody else's descriptor.
      throw Refusal(why: "\(path) must be guardian's own and writable by nobody else")
    }
  }

  deinit { Glibc.close(descriptor) }

  func file(_ name: String) -> String { path + "/" + name }

  /// Nil: there is no such file.
  func status(_ name: String) throws(Refusal) -> stat? {
    var status = stat()
    if fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 { return status }
    if errno == ENOENT { return nil }
    throw Refusal(why: "cannot look at \(file(name)): \(errorName(errno))")
  }

  /// The size of each of the parts that is there; refuses what is not a plain file of ours alone.
  ///
  /// - Parameter tighten: takes away what others may do with them.
  func checkParts(tighten: Bool) throws(Refusal) -> [String: Int64] {
    var sizes: [String: Int64] = [:]
    for name in Self.parts {
      guard let status = try status(name) else { continue }
      guard status.st_mode & S_IFMT == S_IFREG else { throw Refusal(why: "\(file(name)) is not a regular file") }
      guard status.st_uid == geteuid() else { throw Refusal(why: "\(file(name)) belongs to another user") }
      guard status.st_nlink == 1 else { throw Refusal(why: "\(file(name)) has more than one name") }
      if tighten, status.st_mode & 0o077 != 0, fchmodat(descriptor, name, 0o600, 0) != 0 {
        throw Refusal(why: "cannot make \(file(name)) private: \(errorName(errno))")
      }
      sizes[name] = Int64(status.st_size)
    }
    return sizes
  }

  /// An empty file with mode 600, whatever the umask.
  func create(_ name: String) throws(Refusal) {
    let file = openat(descriptor, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard file >= 0 else { throw Refusal(why: "cannot make \(self.file(name)): \(errorName(errno))") }
    defer { Glibc.close(file) }
    guard fchmod(file, 0o600) == 0 else { throw Refusal(why: "cannot make \(self.file(name)): \(errorName(errno))") }
  }

  /// The first bytes of a file, fewer if it is shorter.
  func head(_ name: String, _ count: Int) throws(Refusal) -> [UInt8] {
    let file = openat(descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard file >= 0 else { throw Refusal(why: "cannot open \(self.file(name)): \(errorName(errno))") }
    defer { Glibc.close(file) }
    var bytes = [UInt8](repeating: 0, count: count)
    // A read may give less than there is; taken for the end, that would make a good database a damaged one.
    var length = 0
    while length < count {
      let got = bytes.withUnsafeMutableBytes { read(file, $0.baseAddress.map { $0 + length }, count - length) }
      if got < 0 && errno == EINTR { continue }
      guard got >= 0 else { throw Refusal(why: "cannot read \(self.file(name)): \(errorName(errno))") }
      if got == 0 { break }
      length += got
    }
    return Array(bytes.prefix(length))
  }

  func sync() { _ = fsync(descriptor) }

  /// Moves the database aside with all that belongs to it.
  /// - Returns: the new name of the database.
  func moveAside() throws(Refusal) -> String {
    var seconds = time(nil)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    let date =
      "\(parts.tm_year + 1900)\(two(parts.tm_mon + 1))\(two(parts.tm_mday))"
      + "T\(two(parts.tm_hour))\(two(parts.tm_min))\(two(parts.tm_sec))Z"
    // Numbered within a second, and never again with the number of one that was removed since.
    let same = names().filter { $0.hasPrefix(Self.damagedPrefix + date) }
    let numbers = same.map { name in
      min(Int(name.dropFirst(Self.damagedPrefix.count + date.count + 1).prefix { $0 != "-" }) ?? 1, 1_000_000)
    }
    let name = Self.damagedPrefix + date + (numbers.max().map { ".\($0 + 1)" } ?? "")
    // The database first: a log without one is never read.
    for part in Self.parts {
      guard let status = try status(part) else { continue }
      if part != Self.database, status.st_size == 0 {
        remove(part)
        continue
      }
      guard renameat(descriptor, part, descriptor, name + part.dropFirst(Self.database.count)) == 0 else {
        throw Refusal(why: "cannot move \(file(part)) aside: \(errorName(errno))")
      }
    }
    sync()
    removeOldest()
    return name
  }

  func rename(_ old: String, _ new: String) throws(Refusal) {
    guard renameat(descriptor, old, descriptor, new) == 0 else {
      throw Refusal(why: "cannot name \(file(old)) \(new): \(errorName(errno))")
    }
    sync()
  }

  /// Makes a finished file's content durable.
  func syncFile(_ name: String) throws(Refusal) {
    let file = openat(descriptor, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC)
    guard file >= 0 else { throw Refusal(why: "cannot open \(self.file(name)): \(errorName(errno))") }
    defer { Glibc.close(file) }
    guard fchmod(file, 0o600) == 0, fsync(file) == 0 else {
      throw Refusal(why: "cannot write \(self.file(name)): \(errorName(errno))")
    }
  }

  /// Of what was moved aside the latest few are kept.
  private func removeOldest() {
    let damaged = names().filter { $0.hasPrefix(Self.damagedPrefix) }
    func stem(_ name: String) -> String {
      let rest = name.dropFirst(Self.damagedPrefix.count)
      return String(rest.prefix { $0 != "-" })
    }
    // By date, and within a second by number: shorter ones are earlier.
    let stems = Set(damaged.map(stem)).sorted { a, b in
      let (x, y) = (a.prefix(16), b.prefix(16))
      return x != y ? x < y : (a.utf8.count, a) < (b.utf8.count, b)
    }
    let old = Set(stems.dropLast(Self.damagedKept))
    for name in damaged where old.contains(stem(name)) { unlinkat(descriptor, name, 0) }
  }

  /// Removes what an instance left unfinished. Only called with the directory locked.
  func removeUnfinished() {
    for name in names() where name.hasPrefix("guardian.db.") && name.hasSuffix(Self.unfinished) {
      unlinkat(descriptor, name, 0)
    }
  }

  func remove(_ name: String) { unlinkat(descriptor, name, 0) }

  private func names() -> [String] {
    let copy = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard copy >= 0 else { return [] }
    guard let stream = fdopendir(copy) else {
      Glibc.close(copy)
      return []
    }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      names.append(
        withUnsafePointer(to: &entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        })
    }
    return names
  }
}
