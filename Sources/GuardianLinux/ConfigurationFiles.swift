import CGuardian
import Glibc
package import GuardianModel

/// Reads configuration files that nobody but root and guardian's own user can have written.
///
/// A path is walked component by component, by descriptor, following links itself, so that what has been checked is
/// what is read. Every directory on the way (those that a link leads through included) and the file must belong to root
/// or to `Trust.uid` and must not be writable by others; in a sticky directory that others may write to, the next
/// component must be root's or ours. Nothing is opened for reading before it is known to be a regular file, so a FIFO, a
/// device or a hung link cannot block. Links to files are followed, since configuration management places them.
package struct ConfigurationFiles: ~Copyable {
  /// Who may have written the files.
  package struct Trust: Sendable {
    package var uid: UInt32
    /// A group whose members may write too: that of an ordinary user who is alone in it. Nil for root.
    package var ownGroup: UInt32?
    package init(uid: UInt32, ownGroup: UInt32?) {
      self.uid = uid
      self.ownGroup = ownGroup
    }
    /// That of this process.
    package static var current: Trust {
      let uid = geteuid()
      return Trust(uid: uid, ownGroup: uid == 0 ? nil : getegid())
    }
  }

  package enum Reading: Sendable {
    case bytes([UInt8])
    case absent
    case fault(Diagnostic)
  }

  package struct Listing: Sendable {
    /// Sorted, each with a valid name.
    package var services: [ServiceName] = []
    /// About files that cannot be services at all.
    package var diagnostics: [Diagnostic] = []
    /// False: `services/` could not be read to its end.
    package var complete = true
  }

  /// A directory with more files is not read: it is not one of ours.
  package static let mostFiles = 20_000
  private static let mostLinks = 40

  private let shown: String
  private let trust: Trust
  private let largest: Int
  private let directory: OwnedFD
  private let services: OwnedFD?
  private let servicesFault: Diagnostic?
  private let switches: OwnedFD?
  /// Nil also where the directory is not there, which is no fault.
  private let switchesFault: Diagnostic?

  /// Opens the directory and the `services` and `switches.d` in it.
  ///
  /// - Parameter largest: A file of more bytes is refused unread.
  /// - Throws: The `Diagnostic` that says why the directory cannot be used.
  package init(path: String, trust: Trust, largest: Int) throws(Fault) {
    var shown = path
    while shown.utf8.count > 1, shown.hasSuffix("/") { shown.removeLast() }
    self.shown = shown
    self.trust = trust
    self.largest = largest
    var absolute = shown
    if !absolute.hasPrefix("/") {
      guard let current = getcwd(nil, 0) else { throw Fault(shown, "cannot find the present directory", errno) }
      absolute = String(cString: current) + "/" + absolute
      free(current)
    }
    let handle = try Self.walkToDirectory(
      Self.components(absolute), from: AT_FDCWD, shown: shown, trust: trust,
      why: "the configuration is a directory with guardian.yaml and services/")
    do throws(Fault) {
      services = try Self.walkToDirectory(
        ["services"], from: handle.number, shown: shown + "/services", trust: trust,
        why: "each service is a file services/NAME.yaml")
      servicesFault = nil
    } catch {
      services = nil
      servicesFault = error.diagnostic
    }
    do throws(Fault) {
      switches = try Self.walkToDirectory(
        [Self.switchesName], from: handle.number, shown: shown + "/" + Self.switchesName, trust: trust,
        why: "each switch is a file switches.d/NAME.yaml")
      switchesFault = nil
    } catch {
      switches = nil
      switchesFault = error.absent ? nil : error.diagnostic
    }
    directory = handle
  }

  /// Why a path was refused.
  package struct Fault: Error {
    package var diagnostic: Diagnostic
    fileprivate var absent = false
    fileprivate init(_ file: String, _ what: String, _ why: String) {
      diagnostic = Diagnostic(file: file, what: what, why: why)
    }
    fileprivate init(_ file: String, _ what: String, _ code: CInt) {
      self.init(file, what, ErrnoText.reason(code))
      absent = code == ENOENT
    }
  }

  /// `guardian.yaml`.
  package borrowing func readHost() -> Reading {
    read("guardian.yaml", in: directory.number, shown: shown + "/guardian.yaml")
  }

  /// `services/NAME.yaml`. Absent also where it vanished after the listing.
  package borrowing func read(_ service: ServiceName) -> Reading {
    guard let raw = services.number else { return .absent }
    return read(service.text + ".yaml", in: raw, shown: path(of: service))
  }

  /// As shown in diagnostics.
  package borrowing func path(of service: ServiceName) -> String { shown + "/services/" + service.text + ".yaml" }
  package var hostPath: String { shown + "/guardian.yaml" }

  // MARK: Switches

  package static let switchesName = "switches.d"
  /// Few things are turned off at a time.
  package static let mostSwitches = 256

  package struct SwitchListing: Sendable {
    /// Sorted.
    package var names: [String] = []
    package var diagnostics: [Diagnostic] = []
    /// False: the directory could not be read to its end; what is not listed may be there.
    package var complete = true
    /// A change of what is in the directory shows in the directory itself: no file is reached by a link, and the file
    /// system is none that others change behind this machine's back.
    package var showsAllChanges = true
  }

  /// `switches.d/NAME`, as shown in diagnostics.
  package borrowing func path(ofSwitch name: String) -> String {
    shown + "/" + Self.switchesName + "/" + printable(name)
  }

  package borrowing func readSwitch(_ name: String) -> Reading {
    guard let raw = switches.number else { return .absent }
    return read(name, in: raw, shown: path(ofSwitch: name))
  }

  package borrowing func listSwitches() -> SwitchListing {
    var listing = SwitchListing()
    let inside = shown + "/" + Self.switchesName
    guard let raw = switches.number else {
      guard let switchesFault else { return listing }
      listing.diagnostics.append(switchesFault)
      listing.complete = false
      listing.showsAllChanges = false
      return listing
    }
    var status = stat()
    if fstatat(directory.number, Self.switchesName, &status, AT_SYMLINK_NOFOLLOW) != 0
      || status.st_mode & S_IFMT != S_IFDIR || guardian_is_local(raw) != 1
    {
      listing.showsAllChanges = false
    }
    let readable = openat(raw, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard readable >= 0, let stream = fdopendir(readable) else {
      let code = errno
      if readable >= 0 { close(readable) }
      listing.diagnostics.append(Fault(inside, "cannot be read", code).diagnostic)
      listing.complete = false
      return listing
    }
    defer { closedir(stream) }
    var count = 0
    while true {
      errno = 0
      guard let entry = readdir(stream) else {
        if errno != 0 {
          listing.diagnostics.append(Fault(inside, "cannot be read", errno).diagnostic)
          listing.complete = false
        }
        break
      }
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      // Hidden files are editors' and configuration management's own business.
      if name.hasPrefix(".") { continue }
      count += 1
      if count > Self.mostFiles { break }
      let lower = name.lowercased()
      if name.hasSuffix(".yaml"), name.unicodeScalars.contains(where: { $0.value < 0x20 || $0.value == 0xfffd }) {
        listing.diagnostics.append(
          Diagnostic(file: path(ofSwitch: name), what: "the file is not read", why: "its name cannot be shown"))
      } else if name.hasSuffix(".yaml") {
        listing.names.append(name)
        if fstatat(raw, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT == S_IFLNK {
          listing.showsAllChanges = false
        }
      } else if lower.hasSuffix(".yml") || lower.hasSuffix(".yaml") {
        listing.diagnostics.append(Self.wrongEnding(path(ofSwitch: name)))
      }
    }
    if listing.names.count > Self.mostSwitches || count > Self.mostFiles {
      listing.diagnostics = [
        Diagnostic(
          file: inside, what: "more than \(Self.mostSwitches) switches",
          why: "none is read; one switch can name many services")
      ]
      listing.names = []
      listing.complete = false
    }
    listing.names.sort()
    listing.diagnostics.sort { $0.file < $1.file }
    return listing
  }

  // MARK: Services

  package borrowing func list() -> Listing {
    var listing = Listing()
    var status = stat()
    if fstatat(directory.number, "guardian.yml", &status, AT_SYMLINK_NOFOLLOW) == 0 {
      listing.diagnostics.append(Self.wrongEnding(shown + "/guardian.yml"))
    }
    guard let raw = services.number else {
      if let servicesFault { listing.diagnostics.append(servicesFault) }
      listing.complete = false
      return listing
    }
    let inside = shown + "/services"
    let readable = openat(raw, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard readable >= 0, let stream = fdopendir(readable) else {
      let code = errno
      if readable >= 0 { close(readable) }
      listing.diagnostics.append(Fault(inside, "cannot be read", code).diagnostic)
      listing.complete = false
      return listing
    }
    defer { closedir(stream) }
    var count = 0
    while true {
      errno = 0
      guard let entry = readdir(stream) else {
        if errno != 0 {
          listing.diagnostics.append(Fault(inside, "cannot be read", errno).diagnostic)
          listing.complete = false
        }
        break
      }
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      // Hidden files are editors' and configuration management's own business.
      if name.hasPrefix(".") { continue }
      count += 1
      if count > Self.mostFiles {
        listing.diagnostics.append(
          Diagnostic(file: inside, what: "more than \(Self.mostFiles) files", why: "the directory is not read"))
        listing.services = []
        listing.complete = false
        break
      }
      classify(name, inside, &listing)
    }
    listing.services.sort()
    listing.diagnostics.sort { $0.file < $1.file }
    return listing
  }

  private borrowing func classify(_ name: String, _ inside: String, _ listing: inout Listing) {
    let file = inside + "/" + printable(name)
    let lower = name.lowercased()
    if name.hasSuffix(".yaml") {
      if let service = ServiceName(String(name.dropLast(5))) {
        listing.services.append(service)
      } else {
        listing.diagnostics.append(
          Diagnostic(
            file: file, what: "the file's name is no name of a service",
            why: "a name is 1 to 64 of a-z 0-9 . _ @ - and begins with a letter or digit"))
      }
    } else if lower.hasSuffix(".yml") || lower.hasSuffix(".yaml") {
      listing.diagnostics.append(Self.wrongEnding(file))
    }
  }

  private static func wrongEnding(_ file: String) -> Diagnostic {
    Diagnostic(file: file, what: "the file is not read", why: "its name must end in .yaml")
  }

  // MARK: Reading

  private borrowing func read(_ name: String, in start: CInt, shown: String) -> Reading {
    do throws(Fault) {
      let found = try Self.walk([name], from: start, shown: shown, trust: trust)
      switch consume found {
      case .directory: throw Fault(shown, "a directory", "it must be a file")
      case .file(let parent, let last, let seen):
        return .bytes(try contents(last, in: parent.number ?? start, seen: seen, shown: shown))
      }
    } catch {
      return error.absent ? .absent : .fault(error.diagnostic)
    }
  }

  /// Reads the whole file, again if it was written to meanwhile.
  private borrowing func contents(
    _ name: String, in parent: CInt, seen: Identity, shown: String
  ) throws(Fault) -> [UInt8] {
    let raw = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    guard raw >= 0 else { throw Fault(shown, "cannot be opened", errno) }
    let handle = OwnedFD(adopting: raw)
    for _ in 0..<4 {
      var before = stat()
      guard fstat(handle.number, &before) == 0 else { throw Fault(shown, "cannot be read", errno) }
      // Replaced since the walk: what is open now has not been checked.
      guard before.st_mode & S_IFMT == S_IFREG else { throw Fault(shown, Self.kind(before), "it must be a file") }
      try Self.check(before, trust, shown: shown, what: "the file")
      if before.st_size > Int64(largest) {
        throw Fault(shown, "larger than \(largest) bytes", "a configuration file is at most that large")
      }
      let bytes = try readAll(handle.number, shown: shown)
      var after = stat()
      guard fstat(handle.number, &after) == 0 else { throw Fault(shown, "cannot be read", errno) }
      if Identity(before) == Identity(after), bytes.count == Int(clamping: after.st_size) { return bytes }
      guard lseek(handle.number, 0, SEEK_SET) == 0 else { throw Fault(shown, "cannot be read", errno) }
    }
    throw Fault(shown, "is being written to", "write a new file beside it and rename that")
  }

  private borrowing func readAll(_ raw: CInt, shown: String) throws(Fault) -> [UInt8] {
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 16_384)
    while bytes.count <= largest {
      let count = chunk.withUnsafeMutableBytes { Glibc.read(raw, $0.baseAddress, $0.count) }
      if count == 0 { return bytes }
      if count < 0 {
        if errno == EINTR { continue }
        throw Fault(shown, "cannot be read", errno)
      }
      bytes += chunk[..<count]
    }
    throw Fault(shown, "larger than \(largest) bytes", "a configuration file is at most that large")
  }

  // MARK: The walk

  private enum Found: ~Copyable {
    case directory(OwnedFD)
    /// The directory it is in (nil: the one where the walk began), its name there, and what it was.
    case file(parent: OwnedFD?, name: String, seen: Identity)
  }

  /// Enough of a file's status to notice that it has changed.
  private struct Identity: Equatable {
    var device: UInt64, inode: UInt64, size: Int64, modified: (Int, Int), changed: (Int, Int)
    init(_ status: stat) {
      device = UInt64(status.st_dev)
      inode = UInt64(status.st_ino)
      size = Int64(status.st_size)
      modified = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
      changed = (status.st_ctim.tv_sec, status.st_ctim.tv_nsec)
    }
    static func == (a: Identity, b: Identity) -> Bool {
      a.device == b.device && a.inode == b.inode && a.size == b.size && a.modified == b.modified
        && a.changed == b.changed
    }
  }

  private static func components(_ path: String) -> [String] {
    (path.hasPrefix("/") ? ["/"] : []) + path.split(separator: "/").filter { $0 != "." }.map(String.init)
  }

  /// - Parameter start: A directory that has been checked; not used where the path is absolute.
  private static func walk(
    _ path: [String], from start: CInt, shown: String, trust: Trust
  ) throws(Fault) -> Found {
    var pending = Array(path.reversed())
    var current: OwnedFD?
    var links = 0
    // Whether others may add and rename things in `current`, as in /tmp.
    var shared = false
    if start != AT_FDCWD {
      var status = stat()
      guard fstat(start, &status) == 0 else { throw Fault(shown, "cannot be reached", errno) }
      shared = isShared(status, trust)
    }
    while let name = pending.popLast() {
      let raw = openat(current.number ?? start, name, Int32(GUARDIAN_O_PATH) | O_NOFOLLOW | O_CLOEXEC)
      guard raw >= 0 else {
        let code = errno
        // A dangling link is there, and is not what its owner meant.
        if code == ENOENT && links > 0 { throw Fault(shown, "a link to something that is not there", "") }
        throw Fault(shown, "cannot be opened", code)
      }
      let handle = OwnedFD(adopting: raw)
      var status = stat()
      guard fstat(handle.number, &status) == 0 else { throw Fault(shown, "cannot be opened", errno) }
      if shared && !isTrusted(status, trust) {
        throw Fault(
          shown, "'\(printable(name))' on the way to it belongs to uid \(status.st_uid)",
          "in a directory that others may write to it must be root's or guardian's own")
      }
      switch status.st_mode & S_IFMT {
      case S_IFLNK:
        links += 1
        guard links <= mostLinks else { throw Fault(shown, "cannot be opened", "its links lead in a circle") }
        var target = [UInt8](repeating: 0, count: 4096)
        let length = target.withUnsafeMutableBytes { buffer in
          buffer.withMemoryRebound(to: CChar.self) { text in
            text.baseAddress.map { readlinkat(handle.number, "", $0, text.count) } ?? -1
          }
        }
        guard length > 0, length < target.count else { throw Fault(shown, "a link that cannot be read", errno) }
        let parts = components(String(decoding: target[..<length], as: UTF8.self))
        guard pending.count + parts.count <= 4096 else { throw Fault(shown, "cannot be opened", ENAMETOOLONG) }
        pending += parts.reversed()
        if pending.isEmpty { throw Fault(shown, "a link to its own directory", "it must be a file") }
      case S_IFDIR:
        try check(status, trust, shown: shown, what: "directory '\(printable(name))' on the way to it")
        shared = isShared(status, trust)
        current = consume handle
      case S_IFREG where pending.isEmpty:
        return .file(parent: current.take(), name: name, seen: Identity(status))
      case S_IFREG: throw Fault(shown, "cannot be opened", ENOTDIR)
      default: throw Fault(shown, kind(status), "it must be a file")
      }
    }
    guard let last = current.take() else { throw Fault(shown, "cannot be opened", ENOENT) }
    return .directory(last)
  }

  private static func walkToDirectory(
    _ path: [String], from start: CInt, shown: String, trust: Trust, why: String
  ) throws(Fault) -> OwnedFD {
    let found = try walk(path, from: start, shown: shown, trust: trust)
    switch consume found {
    case .directory(let handle): return handle
    case .file: throw Fault(shown, "not a directory", why)
    }
  }

  private static func kind(_ status: stat) -> String {
    switch status.st_mode & S_IFMT {
    case S_IFIFO: "a FIFO"
    case S_IFSOCK: "a socket"
    case S_IFCHR, S_IFBLK: "a device"
    case S_IFDIR: "a directory"
    default: "not a file"
    }
  }

  private static func isTrusted(_ status: stat, _ trust: Trust) -> Bool {
    status.st_uid == 0 || status.st_uid == trust.uid
  }

  /// Others may write to it, or members of a group that is not ours alone.
  private static func isWritable(_ status: stat, _ trust: Trust) -> Bool {
    status.st_mode & S_IWOTH != 0 || (status.st_mode & S_IWGRP != 0 && status.st_gid != trust.ownGroup)
  }

  private static func isShared(_ status: stat, _ trust: Trust) -> Bool {
    isWritable(status, trust) || !isTrusted(status, trust)
  }

  private static func check(_ status: stat, _ trust: Trust, shown: String, what: String) throws(Fault) {
    let digits = String(status.st_mode & 0o7777, radix: 8)
    let mode = String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + digits
    guard isTrusted(status, trust) else {
      throw Fault(
        shown, "\(what) belongs to uid \(status.st_uid) (mode \(mode))", "it must be root's or guardian's own")
    }
    if isWritable(status, trust) {
      let isSticky = status.st_mode & S_IFMT == S_IFDIR && status.st_mode & S_ISVTX != 0
      let others = status.st_mode & S_IWOTH != 0
      if !isSticky {
        throw Fault(
          shown,
          "\(what) is writable by \(others ? "others" : "its group, gid \(status.st_gid)")"
            + " (uid \(status.st_uid), mode \(mode))",
          "who can write it can run programs as guardian; chmod \(others ? "o-w" : "g-w") it")
      }
    }
  }
}

/// A name from outside, fit for one line of output.
private func printable(_ name: String) -> String {
  var result = ""
  for scalar in name.unicodeScalars.prefix(80) {
    if scalar.value < 0x20 || (0x7f..<0xa0).contains(scalar.value) || scalar.value == 0xfffd {
      result += "\\x" + String(scalar.value, radix: 16)
    } else {
      result.unicodeScalars.append(scalar)
    }
  }
  return name.unicodeScalars.count > 80 ? result + "…" : result
}
