import CGuardian
import Glibc
import GuardianModel

/// Why a log cannot be written.
struct LogFault: Error, Hashable, CustomStringConvertible {
  var description: String
  /// 0 where it is no failed call: somebody has put something else in the file's place.
  var errno: Int32

  init(_ text: String, errno: Int32 = 0) {
    description = text
    self.errno = errno
  }
  static func last(_ what: String) -> LogFault {
    LogFault("cannot \(what): \(String(cString: strerror(Glibc.errno)).lowercased())", errno: Glibc.errno)
  }
  /// It concerns whatever is written there, and not one service.
  var isOfTheDisk: Bool { [ENOSPC, EDQUOT, EIO, EROFS, ENOMEM, EMFILE, ENFILE].contains(errno) }
}

/// The directory of all logs, with how much is in it. Everything below is reached by its descriptor and follows no link.
final class LogDirectory {
  let path: String
  private let base: Int32
  /// Bytes of all files, as counted last and by what has been written since.
  private(set) var used: UInt64 = 0

  /// Made with its parents where it is missing. The path itself may lead over links: that is its owner's choice.
  ///
  /// - Throws: Also where another guardian-logger writes there.
  init(_ path: String) throws(LogFault) {
    self.path = path
    var made = ""
    for part in path.split(separator: "/") {
      made += "/" + part
      if mkdir(made, 0o755) != 0, errno != EEXIST, errno != EROFS { throw .last("make \(made)") }
    }
    base = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard base >= 0 else { throw .last("open \(path)") }
    do throws(LogFault) {
      try Self.check(base, path, S_IFDIR)
      guard flock(base, LOCK_EX | LOCK_NB) == 0 else {
        throw errno == EWOULDBLOCK
          ? LogFault("another guardian-logger writes to \(path)") : .last("lock \(path)")
      }
    } catch {
      close(base)
      throw error
    }
    count()
  }
  deinit { close(base) }

  /// Of the kind that it is to be, ours or root's, and nobody else may write to it.
  static func check(_ descriptor: Int32, _ path: String, _ kind: mode_t) throws(LogFault) {
    var about = stat()
    guard fstat(descriptor, &about) == 0 else { throw .last("look at \(path)") }
    guard about.st_mode & S_IFMT == kind else {
      throw LogFault("\(path) is no \(kind == S_IFDIR ? "directory" : "regular file")")
    }
    guard about.st_uid == geteuid() || about.st_uid == 0 && kind == S_IFDIR else {
      throw LogFault("\(path) belongs to uid \(about.st_uid)")
    }
    guard about.st_mode & 0o002 == 0 else { throw LogFault("everybody may write to \(path)") }
    guard kind == S_IFDIR || about.st_nlink == 1 else { throw LogFault("\(path) has \(about.st_nlink) names") }
  }

  /// The directory of one service; the caller owns the descriptor.
  func open(_ service: ServiceName, make: Bool = true) throws(LogFault) -> Int32 {
    let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
    var found = openat(base, service.text, flags)
    if found < 0, errno == ENOENT, make {
      if mkdirat(base, service.text, 0o750) != 0, errno != EEXIST { throw .last("make \(path)/\(service)") }
      found = openat(base, service.text, flags)
    }
    guard found >= 0 else {
      if errno == ELOOP || errno == ENOTDIR {
        throw LogFault("\(path)/\(service) is a link, or no directory: it is not followed")
      }
      throw .last("open \(path)/\(service)")
    }
    do throws(LogFault) {
      try Self.check(found, "\(path)/\(service)", S_IFDIR)
      return found
    } catch {
      close(found)
      throw error
    }
  }

  func wrote(_ bytes: Int) { used += UInt64(max(0, bytes)) }
  func removed(_ bytes: UInt64) { used = used > bytes ? used - bytes : 0 }

  /// One file of a service.
  struct Entry {
    var service: ServiceName, name: String, size: UInt64, modified: Int64
    var isAside: Bool { LogFormat.isAside(name) }
  }

  /// What one service has, in no order.
  func entries(of service: ServiceName, _ directory: Int32) -> [Entry] {
    Self.names(directory).compactMap { name in
      guard name == LogFormat.current || LogFormat.isAside(name) else { return nil }
      var about = stat()
      guard fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) == 0, about.st_mode & S_IFMT == S_IFREG else {
        return nil
      }
      return Entry(
        service: service, name: name, size: UInt64(max(0, about.st_size)), modified: Int64(about.st_mtim.tv_sec))
    }
  }

  /// All files of all services, whether they still have a definition or not.
  func all() -> [Entry] {
    var found: [Entry] = []
    for name in Self.names(base) {
      guard let service = ServiceName(name), let directory = try? open(service, make: false) else { continue }
      found += entries(of: service, directory)
      close(directory)
    }
    return found
  }

  /// Counts anew.
  @discardableResult func count() -> [Entry] {
    let all = all()
    used = all.reduce(0) { $0 + $1.size }
    return all
  }

  static func names(_ directory: Int32) -> [String] {
    // A descriptor of its own, since the place in it is shared by duplicates.
    let own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard own >= 0 else { return [] }
    guard let stream = fdopendir(own) else {
      close(own)
      return []
    }
    defer { closedir(stream) }
    var found: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { found.append(name) }
    }
    return found
  }
}
