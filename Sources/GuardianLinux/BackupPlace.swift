import CGuardian
import Glibc

struct Trouble: Error {
  var message: String
  init(_ message: String) { self.message = message }
  init(_ what: String, errno code: Int32) { message = what + ": " + ErrnoText.reason(code) }
}

/// A file's name as the kernel has it, which need not be UTF-8; NUL-terminated.
typealias RawName = [CChar]

/// Where guardian's own repairs keep what was there before: `.NAME.guardian-DATE` beside it.
struct BackupPlace {
  let path: String
  let name: String
  let parentPath: String
  private let seconds: Int
  private let keptBytes: Int64
  /// For what is said: cannot move … aside, cannot restore ….
  private let verb: String, adverb: String

  init(_ path: String, _ seconds: Int, keptBytes: Int64, verb: String, adverb: String) throws(Trouble) {
    let components = path.split(separator: "/").map(String.init)
    guard path.hasPrefix("/"), !path.utf8.contains(0), let name = components.last,
      !components.contains(where: { $0 == "." || $0 == ".." })
    else { throw Trouble("cannot \(verb) '\(path)'\(adverb): it must be an absolute path without . and ..") }
    self.path = path
    self.name = name
    self.seconds = seconds
    self.keptBytes = keptBytes
    self.verb = verb
    self.adverb = adverb
    parentPath = "/" + components.dropLast().joined(separator: "/")
  }

  /// The name's part in those of its backups: short enough that the rest fits in 255 bytes.
  private var base: String {
    var base = name
    while base.utf8.count > 200 { base.removeLast() }
    return "." + base + ".guardian-"
  }
  /// What is to stand in its place is prepared under this name.
  var fresh: String { base + "new" }
  /// A file that takes its place by one rename, and is of no use before.
  var temporary: String { base + "temp" }

  /// Nil: it is not there. Through no link.
  func openParent() throws(Trouble) -> OwnedFD? {
    let raw = guardian_openat2(
      AT_FDCWD, parentPath, UInt64(O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0,
      UInt64(GUARDIAN_RESOLVE_NO_SYMLINKS | GUARDIAN_RESOLVE_NO_MAGICLINKS))
    if raw == -ENOENT { return nil }
    if raw == -ELOOP {
      throw Trouble("cannot \(verb) \(path)\(adverb): \(parentPath) leads through a symbolic link; name the real path")
    }
    if raw < 0 { throw Trouble("cannot open \(parentPath)", errno: -raw) }
    return OwnedFD(adopting: raw)
  }

  /// Keeps what is there under a backup's name, too, until something else takes its place. Returns that name; nil where this
  /// file system has no second names for a file.
  func link(_ parent: Int32) throws(Trouble) -> String? {
    let stem = base + date
    for number in 1...1000 {
      let backup = number == 1 ? stem : "\(stem)-\(number)"
      if linkat(parent, name, parent, backup, 0) == 0 { return backup }
      if errno == EEXIST { continue }
      if [EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV].contains(errno) { return nil }
      throw Trouble("cannot keep \(path)", errno: errno)
    }
    throw Trouble("cannot keep \(path): there are a thousand backups of this second")
  }

  /// Returns the name it has now.
  func rename(_ parent: Int32) throws(Trouble) -> String {
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
      if answer == -EBUSY { throw Trouble("cannot \(verb) \(path)\(adverb): it is a mount point, or in use as one") }
      throw Trouble("cannot \(verb) \(path)\(adverb)", errno: -answer)
    }
    throw Trouble("cannot \(verb) \(path)\(adverb): there are a thousand backups of this second")
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
  func prune(_ parent: Int32, owner: uid_t) -> String {
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
enum Tree {
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
