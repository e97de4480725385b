import CGuardian
import Glibc

/// The repair `move-aside`: what may be broken gets out of the way, and is kept.
///
/// Runs in a hook process, since it walks directories. Everything goes by descriptors and follows no link, so that the
/// user whom the files belong to cannot lead it elsewhere.
package enum MoveAside {
  /// For the hook's exit status and its one line of output.
  package struct Outcome: Hashable, Sendable {
    /// 0 done, or there was nothing to move; 1 not done.
    package var exitCode: Int32
    package var message: String
  }

  /// How many backups of one path are kept, and how many bytes they may take together. The newest always stays.
  static let keptBackups = 3
  static let keptBytes: Int64 = 1 << 30

  /// Renames `path` to `.NAME.guardian-DATE` beside it. A directory is made again, empty, with its owner, mode and labels.
  ///
  /// - Parameter seconds: Since 1970, for the name; nil: now.
  package static func perform(_ path: String, at seconds: Int? = nil) -> Outcome {
    perform(path, at: seconds ?? time(nil), keptBytes: keptBytes)
  }

  static func perform(_ path: String, at seconds: Int, keptBytes: Int64) -> Outcome {
    do throws(Trouble) {
      return Outcome(exitCode: 0, message: try Move(path, seconds, keptBytes: keptBytes).perform())
    } catch { return Outcome(exitCode: 1, message: error.message) }
  }
}

private struct Trouble: Error {
  var message: String
  init(_ message: String) { self.message = message }
  init(_ what: String, errno code: Int32) { message = what + ": " + ErrnoText.reason(code) }
}

/// A file's name as the kernel has it, which need not be UTF-8; NUL-terminated.
private typealias RawName = [CChar]

private struct Move: ~Copyable {
  private let path: String
  private let name: String
  private let parentPath: String
  private let seconds: Int
  private let keptBytes: Int64

  init(_ path: String, _ seconds: Int, keptBytes: Int64) throws(Trouble) {
    let components = path.split(separator: "/").map(String.init)
    guard path.hasPrefix("/"), !path.utf8.contains(0), let name = components.last,
      !components.contains(where: { $0 == "." || $0 == ".." })
    else { throw Trouble("cannot move '\(path)' aside: it must be an absolute path without . and ..") }
    self.path = path
    self.name = name
    self.seconds = seconds
    self.keptBytes = keptBytes
    parentPath = "/" + components.dropLast().joined(separator: "/")
  }

  /// The name's part in those of its backups: short enough that the rest fits in 255 bytes.
  private var base: String {
    var base = name
    while base.utf8.count > 200 { base.removeLast() }
    return "." + base + ".guardian-"
  }
  private var fresh: String { base + "new" }

  func perform() throws(Trouble) -> String {
    let raw = guardian_openat2(
      AT_FDCWD, parentPath, UInt64(O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0,
      UInt64(GUARDIAN_RESOLVE_NO_SYMLINKS | GUARDIAN_RESOLVE_NO_MAGICLINKS))
    if raw == -ENOENT { return "nothing to move: there is no \(parentPath)" }
    if raw == -ELOOP {
      throw Trouble("cannot move \(path) aside: \(parentPath) leads through a symbolic link; name the real path")
    }
    if raw < 0 { throw Trouble("cannot open \(parentPath)", errno: -raw) }
    let parent = OwnedFD(adopting: raw)

    var status = stat()
    if fstatat(parent.number, name, &status, AT_SYMLINK_NOFOLLOW) != 0 {
      if errno != ENOENT { throw Trouble("cannot look at \(path)", errno: errno) }
      // A move that was cut off between its two renames is finished now.
      if renameat(parent.number, fresh, parent.number, name) == 0 {
        return "finished an earlier move: made \(path) again, empty"
      }
      return "nothing to move: there is no \(path)"
    }
    if guardian_is_mount_root(parent.number, name) == 1 {
      throw Trouble("cannot move \(path) aside: it is a mount point; name a directory or file below it")
    }

    let isDirectory = status.st_mode & S_IFMT == S_IFDIR
    var doubt = ""
    if isDirectory { doubt = try makeFresh(parent.number, like: status) }
    let backup = try rename(parent.number)
    if isDirectory {
      let answer = guardian_rename_new(parent.number, fresh, parent.number, name)
      if answer < 0, renameat(parent.number, fresh, parent.number, name) != 0 {
        throw Trouble("moved \(path) to \(backup), but cannot make it again", errno: errno)
      }
    }
    let pruned = prune(parent.number, owner: status.st_uid)
    // The next start relies on it, perhaps after a power cut.
    _ = fsync(parent.number)
    return "moved \(path) to \(backup)" + (isDirectory ? " and made it again, empty" : "") + doubt + pruned
  }

  /// Prepares the empty directory under a name of its own. Returns what is to be said about it.
  private func makeFresh(_ parent: Int32, like old: stat) throws(Trouble) -> String {
    // Left by an earlier move that was cut off; it goes only while it is empty.
    _ = unlinkat(parent, fresh, AT_REMOVEDIR)
    guard mkdirat(parent, fresh, 0o700) == 0 else { throw Trouble("cannot make a new \(path)", errno: errno) }
    var made = false
    defer { if !made { _ = unlinkat(parent, fresh, AT_REMOVEDIR) } }

    let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
    let newRaw = openat(parent, fresh, flags)
    if newRaw < 0 { throw Trouble("cannot open the new \(path)", errno: errno) }
    let new = OwnedFD(adopting: newRaw)
    var status = stat()
    // Who may write in the parent could have put another directory in its place, to have that one's owner changed.
    guard fstat(new.number, &status) == 0, status.st_uid == geteuid(), status.st_mode & 0o7777 == 0o700,
      Tree.entries(new.number)?.isEmpty == true
    else { throw Trouble("cannot make a new \(path): somebody else works in \(parentPath)") }

    let oldRaw = openat(parent, name, flags)
    if oldRaw < 0 { throw Trouble("cannot open \(path)", errno: errno) }
    let original = OwnedFD(adopting: oldRaw)
    guard fchown(new.number, old.st_uid, old.st_gid) == 0 else {
      throw Trouble("cannot give the new \(path) its owner \(old.st_uid):\(old.st_gid)", errno: errno)
    }
    let attributes = guardian_copy_attributes(original.number, new.number)
    guard fchmod(new.number, old.st_mode & 0o7777) == 0 else {
      throw Trouble("cannot give the new \(path) its mode", errno: errno)
    }
    made = true
    return attributes < 0 ? " (without some of its labels: \(ErrnoText.reason(-attributes)))" : ""
  }

  /// Returns the name it has now.
  private func rename(_ parent: Int32) throws(Trouble) -> String {
    let stem = base + date
    for number in 1...1000 {
      let backup = number == 1 ? stem : "\(stem)-\(number)"
      var answer = guardian_rename_new(parent, name, parent, backup)
      if answer == -EINVAL || answer == -ENOSYS {
        // This file system cannot promise to replace nothing; the name is ours, so a look before is enough.
        var status = stat()
        if fstatat(parent, backup, &status, AT_SYMLINK_NOFOLLOW) == 0 { continue }
        answer = renameat(parent, name, parent, backup) == 0 ? 0 : -errno
      }
      if answer == 0 { return backup }
      if answer == -EEXIST { continue }
      if answer == -EBUSY { throw Trouble("cannot move \(path) aside: it is a mount point, or in use as one") }
      throw Trouble("cannot move \(path) aside", errno: -answer)
    }
    throw Trouble("cannot move \(path) aside: there are a thousand backups of this second")
  }

  /// `20260131T235959Z`
  private var date: String {
    var moment = time_t(seconds)
    var parts = tm()
    gmtime_r(&moment, &parts)
    func digits(_ value: Int32, _ count: Int) -> String {
      let text = String(value)
      return String(repeating: "0", count: max(count - text.count, 0)) + text
    }
    return digits(parts.tm_year &+ 1900, 4) + digits(parts.tm_mon + 1, 2) + digits(parts.tm_mday, 2) + "T"
      + digits(parts.tm_hour, 2) + digits(parts.tm_min, 2) + digits(parts.tm_sec, 2) + "Z"
  }

  /// Removes the oldest backups beyond what is kept. Returns what is to be said about it. Only what has the owner of the
  /// moved one is taken for a backup of it.
  private func prune(_ parent: Int32, owner: uid_t) -> String {
    let prefix = base
    var backups: [(date: String, number: Int, name: RawName)] = []
    for entry in Tree.entries(parent) ?? [] {
      let text = String(decoding: entry.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
      guard text.hasPrefix(prefix), let (date, number) = Self.parse(String(text.dropFirst(prefix.count))) else {
        continue
      }
      var status = stat()
      guard fstatat(parent, entry, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_uid == owner else { continue }
      backups.append((date, number, entry))
    }
    backups.sort { ($0.date, $0.number) > ($1.date, $1.number) }
    var kept = 0
    var bytes: Int64 = 0
    var removed = 0
    var trouble = ""
    for (index, backup) in backups.enumerated() {
      if kept < MoveAside.keptBackups && bytes <= keptBytes {
        bytes += Tree.size(parent, backup.name, limit: keptBytes + 1)
        if bytes <= keptBytes || index == 0 {
          kept += 1
          continue
        }
      }
      if let problem = Tree.remove(parent, backup.name) {
        trouble = "; cannot remove an old backup: \(problem)"
      } else {
        removed += 1
      }
    }
    return (removed == 0 ? "" : "; removed \(removed) old backup\(removed == 1 ? "" : "s")") + trouble
  }

  /// Date and number of a backup's name after the prefix; nil for anything else.
  private static func parse(_ rest: String) -> (String, Int)? {
    let bytes = Array(rest.utf8)
    guard bytes.count >= 16 else { return nil }
    for (index, byte) in bytes.prefix(16).enumerated() {
      switch index {
      case 8: if byte != UInt8(ascii: "T") { return nil }
      case 15: if byte != UInt8(ascii: "Z") { return nil }
      default: if !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) { return nil }
      }
    }
    let date = String(decoding: bytes.prefix(16), as: UTF8.self)
    if bytes.count == 16 { return (date, 1) }
    guard bytes[16] == UInt8(ascii: "-"), let number = Int(String(decoding: bytes.dropFirst(17), as: UTF8.self)),
      number > 1
    else { return nil }
    return (date, number)
  }
}

/// Walks through directories by descriptors: follows no link, enters no mount.
private enum Tree {
  /// Deeper ones are left alone: each level takes a descriptor.
  private static let depth = 200

  /// Names without `.` and `..`; nil where it cannot be read.
  static func entries(_ directory: Int32) -> [RawName]? {
    // A descriptor of its own, since the stream closes it and moves its position.
    let raw = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if raw < 0 { return nil }
    guard let stream = fdopendir(raw) else {
      close(raw)
      return nil
    }
    defer { closedir(stream) }
    var found: [RawName] = []
    while let entry = readdir(stream) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
        bytes.prefix { $0 != 0 }.map { CChar(bitPattern: $0) }
      }
      let dot = CChar(bitPattern: UInt8(ascii: "."))
      if name == [dot] || name == [dot, dot] { continue }
      found.append(name + [0])
    }
    return found
  }

  private static func open(_ parent: Int32, _ name: RawName) -> OwnedFD? {
    if guardian_is_mount_root(parent, name) == 1 { return nil }
    let raw = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    return raw < 0 ? nil : OwnedFD(adopting: raw)
  }

  /// Bytes on disk; counting ends when `limit` is reached.
  static func size(_ parent: Int32, _ name: RawName, limit: Int64, level: Int = 0) -> Int64 {
    var status = stat()
    guard fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return 0 }
    var sum = min(Int64(status.st_blocks), limit / 512 + 1) * 512
    guard status.st_mode & S_IFMT == S_IFDIR, level < depth, let directory = open(parent, name) else { return sum }
    for entry in entries(directory.number) ?? [] {
      if sum >= limit { return sum }
      sum += size(directory.number, entry, limit: limit - sum, level: level + 1)
    }
    return sum
  }

  /// Nil, or why something of it is still there.
  static func remove(_ parent: Int32, _ name: RawName, level: Int = 0) -> String? {
    if unlinkat(parent, name, 0) == 0 || errno == ENOENT { return nil }
    guard errno == EISDIR || errno == EPERM else { return ErrnoText.reason(errno) }
    if level >= depth { return "it is more than \(depth) directories deep" }
    if guardian_is_mount_root(parent, name) == 1 { return "there is a mount point in it" }
    var problem: String?
    if let directory = open(parent, name) {
      for entry in entries(directory.number) ?? [] {
        problem = remove(directory.number, entry, level: level + 1) ?? problem
      }
    }
    if problem == nil, unlinkat(parent, name, AT_REMOVEDIR) != 0, errno != ENOENT { problem = ErrnoText.reason(errno) }
    return problem
  }
}
