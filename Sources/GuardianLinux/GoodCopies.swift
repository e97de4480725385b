import CGuardian
import Glibc
import GuardianModel

/// The last known good copies of the files that one service declares under `restore:`, and the repair that puts them back.
///
/// They are in a directory of guardian's own: a catalogue, and each content under a name made of its bytes. A content is
/// complete on the disk before the catalogue names it, and the catalogue is replaced as a whole. What may block is all of
/// this: it belongs on the worker's thread, or in a hook's process.
package struct GoodCopies: Sendable {
  package let directory: String

  /// Bytes of one file, and of all files of one service.
  package static let mostBytesOfFile = 1 << 20, mostBytes = 16 << 20

  private static let catalogue = "catalogue", catalogueTitle = "guardian good copies 1"
  private static let placed = "restored", placedTitle = "guardian restored 1"

  /// Beside the copies: what else is remembered of healthy runs.
  private static let health = "health"

  package init(directory: String) { self.directory = directory }

  /// What was kept by `keep(health:)`; nil: nothing is.
  package func health() -> [UInt8]? { FileText.read(directory + "/" + Self.health) }

  /// Not waited for: what a power cut takes is the last healthy run's, and is told by its mark.
  package func keep(health: [UInt8]) { _ = OwnFile.replace(directory, Self.health, health, durable: false) }

  // MARK: What is known

  /// How a declared file is now.
  package struct Sight: Hashable, Sendable {
    package var path: String
    /// Nil: it is not there.
    package var look: ExecutableLook?
    /// Nanoseconds since 1970, when a good copy of it was taken; nil: there is none.
    package var copiedAt: Int64?
    /// It is as guardian has put it there; what was there before is kept here. Empty: nothing was.
    package var restored: String?
    /// The name of its content, where it has changed only just before this look: its times cannot tell then on which side of
    /// a start a change lies.
    package var freshContent: String?
    /// It is another than its good copy: in what it says, or in who may read it.
    package var differs = false
    /// When its content or its status changed, in nanoseconds since 1970; nil: it is not there.
    package var changedAt: Int64?
  }

  /// Nanoseconds. The clock of a file's times is behind by a tick.
  private static let tick: Int64 = 20_000_000
  /// What has changed that long before a look is fresh: a start follows its look sooner.
  private static let fresh: Int64 = 1_000_000_000

  /// Looks at the files themselves and at what is known of them.
  ///
  /// - Parameter comparing: Those of them that are compared with their good copies too.
  package func look(at paths: [String], comparing: [String] = []) -> [Sight] {
    let entries = self.entries(), placed = placements(), now = FileTimes.now()
    return paths.map { path in
      let (look, content) = Self.look(at: path, now)
      let entry = entries.first { $0.path == path }
      let own = placed.first { $0.path == path && $0.look == look }
      var sight = Sight(path: path, look: look, copiedAt: entry?.takenAt, restored: own?.backup, freshContent: content)
      if comparing.contains(path), let entry { compare(entry, &sight) }
      return sight
    }
  }

  private func compare(_ entry: Entry, _ sight: inout Sight) {
    var status = stat()
    guard lstat(entry.path, &status) == 0 else {
      sight.differs = errno == ENOENT && !entry.content.isEmpty
      return
    }
    sight.changedAt = FileTimes.changed(status)
    // Nothing can stand in for a directory, nor is it what the service was well with; that is for a person.
    if status.st_mode & S_IFMT == S_IFDIR { return }
    var present = Entry(
      path: entry.path, content: "", size: Int(status.st_size), status: status, takenAt: entry.takenAt)
    present.content = entry.content
    guard status.st_mode & S_IFMT == S_IFREG, !entry.content.isEmpty, present.isLike(entry) else {
      sight.differs = true
      return
    }
    // A copy whose name was another's has a number after it.
    guard let bytes = FileText.read(entry.path, limit: Self.mostBytesOfFile) else { return }
    sight.differs = !entry.content.hasPrefix(Self.name(bytes))
  }

  /// What a run is to see in the place of a file.
  package enum StandIn: Hashable, Sendable {
    case copy(FileCopy)
    /// It was not there when the service was last well.
    case nothing(path: String)
    /// The run sees the file itself.
    case none(path: String, why: String)

    package var path: String {
      switch self {
      case .copy(let copy): copy.path
      case .nothing(let path), .none(let path, _): path
      }
    }
  }

  /// The good copies of these files, for the eyes of one run.
  package func standIns(for paths: [String]) -> [StandIn] {
    let entries = self.entries()
    return paths.map { path in
      guard let entry = entries.first(where: { $0.path == path }) else {
        return .none(path: path, why: "no good copy of it is known yet")
      }
      if entry.content.isEmpty { return .nothing(path: path) }
      guard let bytes = content(of: entry) else { return .none(path: path, why: "its good copy is damaged") }
      return .copy(FileCopy(path: path, content: bytes, uid: entry.uid, gid: entry.gid, mode: entry.mode))
    }
  }

  private func content(of entry: Entry) -> [UInt8]? {
    guard let bytes = FileText.read(directory + "/" + entry.content, limit: Self.mostBytesOfFile),
      bytes.count == entry.size, entry.content.hasPrefix(Self.name(bytes))
    else { return nil }
    return bytes
  }

  private static func look(at path: String, _ now: Int64) -> (ExecutableLook?, String?) {
    var status = stat()
    guard lstat(path, &status) == 0 else { return (nil, nil) }
    let look = ExecutableLook(status)
    guard status.st_mode & S_IFMT == S_IFREG, status.st_size <= mostBytesOfFile,
      FileTimes.changed(status) >= now - fresh, let bytes = FileText.read(path, limit: mostBytesOfFile)
    else { return (look, nil) }
    return (look, name(bytes))
  }

  private struct Entry: Hashable {
    var path: String
    /// Name of the content; empty: the file was not there, and the service was well.
    var content: String
    var size: Int
    var uid: UInt32, gid: UInt32, mode: UInt32
    var takenAt: Int64

    var fields: [String] {
      [path, content, String(size), String(uid), String(gid), String(mode, radix: 8), String(takenAt)]
    }
    init(path: String, content: String, size: Int, status: stat?, takenAt: Int64) {
      self.path = path
      self.content = content
      self.size = size
      uid = status?.st_uid ?? 0
      gid = status?.st_gid ?? 0
      // What would give a program another's rights is not put back.
      mode = (status?.st_mode ?? 0) & 0o777
      self.takenAt = takenAt
    }
    init?(_ fields: [String]) {
      guard fields.count >= 7, let size = Int(fields[2]), let uid = UInt32(fields[3]), let gid = UInt32(fields[4]),
        let mode = UInt32(fields[5], radix: 8), let takenAt = Int64(fields[6]), !fields[1].contains("/")
      else { return nil }
      path = fields[0]
      content = fields[1]
      self.size = size
      self.uid = uid
      self.gid = gid
      self.mode = mode & 0o777
      self.takenAt = takenAt
    }
    func isLike(_ other: Entry) -> Bool {
      var other = other
      other.takenAt = takenAt
      return self == other
    }
  }

  private func lines(_ name: String, _ title: String) -> [[String]] {
    FileText.read(directory + "/" + name).flatMap { SealedLines.decode(title, $0) } ?? []
  }
  private func entries() -> [Entry] { lines(Self.catalogue, Self.catalogueTitle).compactMap(Entry.init) }

  private struct Placement: Hashable {
    var path: String
    /// Nil: guardian has taken it away.
    var look: ExecutableLook?
    var backup: String
    var fields: [String] {
      [path, backup] + (look.map { [String($0.device), String($0.inode), String($0.size), String($0.modified)] } ?? [])
    }
    init(path: String, look: ExecutableLook?, backup: String) {
      self.path = path
      self.look = look
      self.backup = backup
    }
    init?(_ fields: [String]) {
      guard fields.count == 2 || fields.count == 6 else { return nil }
      path = fields[0]
      backup = fields[1]
      if fields.count == 6 {
        guard let device = UInt64(fields[2]), let inode = UInt64(fields[3]), let size = Int64(fields[4]),
          let modified = Int64(fields[5])
        else { return nil }
        look = ExecutableLook(device: device, inode: inode, size: size, modified: modified)
      }
    }
  }
  private func placements() -> [Placement] { lines(Self.placed, Self.placedTitle).compactMap(Placement.init) }

  // MARK: Taking

  /// Keeps what is in the files as good: the service has settled with it.
  ///
  /// What it may not have read is left out, and the copy before it stays: a file whose status has changed since the run
  /// began, or that looks otherwise than it did then.
  ///
  /// - Parameters:
  ///   - start: When the run began, in nanoseconds since 1970.
  ///   - before: How they looked before the start; empty: not known.
  ///   - unseen: Those of them that the run has not seen, since their good copies stood in for them.
  /// - Returns: Why some are not kept, by path.
  @discardableResult package func take(
    _ paths: [String], start: Int64, before: [Sight], unseen: Set<String> = [], now: Int64
  ) -> [String: String] {
    let old = entries()
    var new: [Entry] = []
    var why: [String: String] = [:]
    var total = 0
    for path in paths {
      let known = old.first { $0.path == path }
      do throws(Trouble) {
        if unseen.contains(path) { throw Trouble("its good copy stands in for it") }
        let (entry, bytes) = try read(path, start: start, before: before.first { $0.path == path }, now: now)
        guard total + entry.size <= Self.mostBytes else {
          throw Trouble("the files of the service take more than \(Self.mostBytes >> 20) MiB")
        }
        if let known, known.isLike(entry) {
          new.append(known)
        } else {
          var entry = entry
          if let bytes { entry.content = try store(bytes) }
          // The name may have been another's, which the comparison above could not know.
          new.append(known.map { $0.isLike(entry) ? $0 : entry } ?? entry)
        }
      } catch {
        why[path] = error.message
        if let known { new.append(known) }
      }
      total += new.last { $0.path == path }?.size ?? 0
    }
    guard new != old else { return why }
    do throws(Trouble) {
      try write(Self.catalogue, SealedLines.encode(Self.catalogueTitle, new.map(\.fields)))
      // What no line names any more.
      let used = Set(new.map(\.content) + [Self.catalogue, Self.placed, Self.health])
      for name in contents() where !used.contains(name) { unlink(directory + "/" + name) }
    } catch { for path in paths { why[path] = error.message } }
    return why
  }

  private func read(
    _ path: String, start: Int64, before: Sight?, now: Int64
  ) throws(Trouble) -> (Entry, [UInt8]?) {
    let place = try BackupPlace(path, 0, keptBytes: 0, verb: "keep", adverb: "")
    let changed = Trouble("it has changed since the run began")
    guard let parent = try place.openParent() else {
      guard let before, before.look == nil else { throw changed }
      return (Entry(path: path, content: "", size: 0, status: nil, takenAt: now), nil)
    }
    let raw = openat(parent.number, place.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    if raw < 0 {
      if errno == ELOOP { throw Trouble("it is a symbolic link; name the file that it leads to") }
      guard errno == ENOENT else { throw Trouble("it cannot be read", errno: errno) }
      guard let before, before.look == nil else { throw changed }
      return (Entry(path: path, content: "", size: 0, status: nil, takenAt: now), nil)
    }
    let file = OwnedFD(adopting: raw)
    var status = stat()
    guard fstat(file.number, &status) == 0 else { throw Trouble("it cannot be looked at", errno: errno) }
    guard status.st_mode & S_IFMT == S_IFREG else { throw Trouble("it is no regular file") }
    guard status.st_size <= Self.mostBytesOfFile else {
      throw Trouble("it is larger than \(Self.mostBytesOfFile >> 20) MiB")
    }
    let look = ExecutableLook(status)
    if let before, before.look != look { throw changed }
    let content = before?.freshContent
    guard content != nil || FileTimes.changed(status) < start - Self.tick else { throw changed }
    guard let bytes = FileText.readAll(file.number, limit: Self.mostBytesOfFile) else {
      throw Trouble("it cannot be read", errno: errno)
    }
    var after = stat()
    guard fstat(file.number, &after) == 0, ExecutableLook(after) == look, bytes.count == Int(status.st_size),
      FileTimes.changed(after) == FileTimes.changed(status)
    else { throw changed }
    let name = Self.name(bytes)
    if let content, content != name { throw changed }
    return (Entry(path: path, content: name, size: bytes.count, status: status, takenAt: now), bytes)
  }

  /// Two prints of 64 bits, and the length: what is under that name is compared byte by byte all the same.
  private static func name(_ bytes: [UInt8]) -> String {
    var second = Fingerprint()
    second.add(UInt64(bytes.count))
    for byte in bytes.reversed() { second.add(byte) }
    return "\(String(Fingerprint.of(bytes), radix: 16))-\(String(second.value, radix: 16))-\(bytes.count)"
  }

  private func store(_ bytes: [UInt8]) throws(Trouble) -> String {
    let stem = Self.name(bytes)
    for number in 1...8 {
      let name = number == 1 ? stem : "\(stem)-\(number)"
      guard let there = FileText.read(directory + "/" + name, limit: Self.mostBytesOfFile) else {
        try write(name, bytes)
        return name
      }
      if there == bytes { return name }
      // Damaged: nothing else can be meant by this name.
      if Self.name(there) != stem {
        try write(name, bytes)
        return name
      }
    }
    throw Trouble("its copy has no name left")
  }

  private func contents() -> [String] {
    let raw = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if raw < 0 { return [] }
    let place = OwnedFD(adopting: raw)
    return (Tree.entries(place.number) ?? []).map {
      String(decoding: $0.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
  }

  private func write(_ name: String, _ bytes: [UInt8]) throws(Trouble) {
    if let problem = OwnFile.replace(directory, name, bytes, durable: true) {
      throw Trouble("its copy cannot be written: \(problem)")
    }
  }

  /// The service is defined no more: nothing is kept of it.
  package func forget() {
    for name in contents() { unlink(directory + "/" + name) }
    rmdir(directory)
  }

  // MARK: Restoring

  /// Puts the good copies in the place of what is there, each by one rename; the broken one is kept beside it as
  /// `.NAME.guardian-DATE`. A file that was not there when the service was well is moved aside.
  ///
  /// - Parameter seconds: Since 1970, for the names; nil: now.
  package func restore(_ paths: [String], at seconds: Int? = nil) -> MoveAside.Outcome {
    let known = entries()
    let entries = paths.compactMap { path in known.first { $0.path == path } }
    guard !entries.isEmpty else {
      return MoveAside.Outcome(
        exitCode: 1, message: "cannot restore \(paths.joined(separator: ", ")): no good copy is known yet")
    }
    var said: [String] = []
    var failed = false, done = 0
    for path in paths {
      guard let entry = entries.first(where: { $0.path == path }) else {
        said.append("cannot restore \(path): no good copy is known yet")
        continue
      }
      do throws(Trouble) {
        if let told = try restore(entry, at: seconds ?? time(nil)) {
          said.append(told)
          done += 1
        }
      } catch {
        failed = true
        said.append(error.message)
      }
    }
    if done == 0, !failed {
      said.append("nothing to restore: what is known is as it was when the service was last well")
    }
    return MoveAside.Outcome(exitCode: failed ? 1 : 0, message: said.joined(separator: "; "))
  }

  /// Nil: it is as it was.
  private func restore(_ entry: Entry, at seconds: Int) throws(Trouble) -> String? {
    let path = entry.path
    let place = try BackupPlace(path, seconds, keptBytes: MoveAside.keptBytes, verb: "restore", adverb: "")
    guard let parent = try place.openParent() else {
      if entry.content.isEmpty { return nil }
      throw Trouble("cannot restore \(path): there is no \(place.parentPath)")
    }
    var status = stat()
    let isThere = fstatat(parent.number, place.name, &status, AT_SYMLINK_NOFOLLOW) == 0
    if !isThere, errno != ENOENT { throw Trouble("cannot look at \(path)", errno: errno) }
    if isThere, guardian_is_mount_root(parent.number, place.name) == 1 {
      throw Trouble("cannot restore \(path): it is a mount point")
    }
    if isThere, status.st_mode & S_IFMT == S_IFDIR { throw Trouble("cannot restore \(path): it is a directory") }

    if entry.content.isEmpty {
      guard isThere else { return nil }
      let backup = try place.rename(parent.number)
      try note(Placement(path: path, look: nil, backup: place.parentPath(of: backup)))
      _ = fsync(parent.number)
      return "moved \(path) to \(backup): it was not there when the service was last well"
        + place.prune(parent.number, owner: status.st_uid)
    }

    guard let bytes = content(of: entry) else { throw Trouble("cannot restore \(path): its good copy is damaged") }
    var present: OwnedFD?
    if isThere, status.st_mode & S_IFMT == S_IFREG {
      let raw = openat(parent.number, place.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
      if raw >= 0 { present = OwnedFD(adopting: raw) }
    }
    if let number = present.number, status.st_uid == entry.uid, status.st_gid == entry.gid,
      status.st_mode & 0o777 == entry.mode, status.st_size == bytes.count,
      FileText.readAll(number, limit: Self.mostBytesOfFile) == bytes
    {
      return nil
    }

    // A file of this name is of a restoration that was cut off.
    _ = unlinkat(parent.number, place.temporary, 0)
    let raw = openat(
      parent.number, place.temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    if raw < 0 { throw Trouble("cannot restore \(path)", errno: errno) }
    let fresh = OwnedFD(adopting: raw)
    var placedIt = false
    defer { if !placedIt { _ = unlinkat(parent.number, place.temporary, 0) } }
    if let problem = OwnFile.write(fresh.number, bytes) { throw Trouble("cannot restore \(path): \(problem)") }
    var own = stat()
    guard fstat(fresh.number, &own) == 0 else { throw Trouble("cannot restore \(path)", errno: errno) }
    if own.st_uid != entry.uid || own.st_gid != entry.gid, fchown(fresh.number, entry.uid, entry.gid) != 0 {
      throw Trouble("cannot give \(path) its owner \(entry.uid):\(entry.gid)", errno: errno)
    }
    if let number = present.number { _ = guardian_copy_attributes(number, fresh.number) }
    guard fchmod(fresh.number, entry.mode) == 0 else { throw Trouble("cannot give \(path) its mode", errno: errno) }
    guard fsync(fresh.number) == 0, fstat(fresh.number, &own) == 0 else {
      throw Trouble("cannot restore \(path)", errno: errno)
    }
    var backup = ""
    if isThere {
      if let linked = try place.link(parent.number) {
        backup = linked
      } else {
        backup = try place.rename(parent.number)
      }
    }
    // Before the rename, so that whoever looks afterwards knows whose work it is.
    try note(
      Placement(path: path, look: ExecutableLook(own), backup: backup.isEmpty ? "" : place.parentPath(of: backup)))
    guard renameat(parent.number, place.temporary, parent.number, place.name) == 0 else {
      let code = errno
      if !backup.isEmpty { _ = renameat(parent.number, backup, parent.number, place.name) }
      if code == EBUSY { throw Trouble("cannot restore \(path): it is a mount point, or in use as one") }
      throw Trouble("cannot restore \(path)", errno: code)
    }
    placedIt = true
    let pruned = isThere ? place.prune(parent.number, owner: status.st_uid) : ""
    // The next start relies on it, perhaps after a power cut.
    _ = fsync(parent.number)
    return "restored \(path)" + (backup.isEmpty ? ", which was gone" : ", the broken one is kept as \(backup)") + pruned
  }

  private func note(_ placement: Placement) throws(Trouble) {
    let rest = placements().filter { $0.path != placement.path }.suffix(RepairSpec.mostRestored - 1)
    try write(Self.placed, SealedLines.encode(Self.placedTitle, (rest + [placement]).map(\.fields)))
  }
}

extension BackupPlace {
  fileprivate func parentPath(of name: String) -> String { parentPath == "/" ? "/" + name : parentPath + "/" + name }
}

/// Times of a file in nanoseconds since 1970.
enum FileTimes {
  /// By the same clock, nanoseconds since 1970. clock_gettime(2).
  static func now() -> Int64 {
    var moment = timespec()
    clock_gettime(CLOCK_REALTIME, &moment)
    return time(moment)
  }
  /// Of its status: content, name, owner or mode.
  static func changed(_ status: stat) -> Int64 { time(status.st_ctim) }
  private static func time(_ moment: timespec) -> Int64 {
    let (seconds, overflow) = Int64(moment.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
    return overflow ? .max : seconds &+ Int64(moment.tv_nsec)
  }
}

/// Files in directories that belong to guardian alone.
package enum OwnFile {
  /// Replaces the file as a whole; makes the directory, and the one above it, where they are missing.
  ///
  /// - Parameter durable: It is on the disk afterwards.
  /// - Returns: Nil, or why it is as it was.
  package static func replace(_ directory: String, _ name: String, _ bytes: [UInt8], durable: Bool) -> String? {
    if mkdir(directory, 0o700) != 0, errno == ENOENT {
      let above = directory.split(separator: "/").dropLast().joined(separator: "/")
      mkdir("/" + above, 0o700)
      mkdir(directory, 0o700)
    }
    let place = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    if place < 0 { return ErrnoText.reason(errno) }
    let parent = OwnedFD(adopting: place)
    let temporary = ".new"
    let raw = openat(parent.number, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0o600)
    if raw < 0 { return ErrnoText.reason(errno) }
    let file = OwnedFD(adopting: raw)
    var problem = write(file.number, bytes)
    if problem == nil, durable, fsync(file.number) != 0 { problem = ErrnoText.reason(errno) }
    if problem == nil, renameat(parent.number, temporary, parent.number, name) != 0 {
      problem = ErrnoText.reason(errno)
    }
    if problem != nil { _ = unlinkat(parent.number, temporary, 0) }
    if problem == nil, durable { _ = fsync(parent.number) }
    return problem
  }

  /// Nil, or why not all of it is written.
  static func write(_ descriptor: Int32, _ bytes: [UInt8]) -> String? {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
      if count < 0 {
        if errno == EINTR { continue }
        return ErrnoText.reason(errno)
      }
      rest = rest.dropFirst(count)
    }
    return nil
  }
}
