import CGuardian
import CSystemd
import Glibc

/// One owner for a directory: a lock on the directory itself, held as long as this object lives.
package final class DirectoryLock {
  package enum Failure: Error, Hashable, CustomStringConvertible {
    /// Somebody else has it; the pid is nil where /proc does not tell, and where whoever took it is gone.
    case held(path: String, pid: Int32?)
    case cannot(SystemError)
    package var description: String {
      switch self {
      case .held(let path, let pid?): "\(path) belongs to another guardian, pid \(pid)"
      case .held(let path, nil): "\(path) belongs to another guardian"
      case .cannot(let error): error.description
      }
    }
  }
  package let path: String
  /// Borrowed, and CLOEXEC until it is kept through an exec.
  package let descriptor: Int32

  /// Changes nothing in the directory.
  ///
  /// - Parameter refusingLink: The last component must not be a symbolic link (ELOOP or ENOTDIR).
  /// - Source: flock(2); the lock goes with the open file description, so a crash leaves nothing behind.
  package init(_ path: String, refusingLink: Bool = false) throws(Failure) {
    // A final slash would have the link followed all the same.
    let name = refusingLink ? String(path.reversed().drop { $0 == "/" }.reversed()) : path
    let made = open(name.isEmpty ? "/" : name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (refusingLink ? O_NOFOLLOW : 0))
    guard made >= 0 else { throw .cannot(SystemError.last("open \(path)")) }
    guard flock(made, LOCK_EX | LOCK_NB) == 0 else {
      let number = errno
      let holder = number == EWOULDBLOCK ? Self.holder(of: made) : nil
      close(made)
      if number == EWOULDBLOCK { throw .held(path: path, pid: holder) }
      throw .cannot(SystemError("lock \(path)", errno: number))
    }
    self.path = path
    descriptor = made
  }
  /// Takes over a lock that this process held before an exec: `descriptor` is its number, and ours to close from here on.
  ///
  /// It must be a directory, the one at `path`, and locked by nobody else; otherwise it is closed and refused.
  package init(adopting descriptor: Int32, path: String) throws(Failure) {
    var held = stat()
    var named = stat()
    guard fstat(descriptor, &held) == 0 else { throw .cannot(SystemError.last("take over the lock of \(path)")) }
    var error: Failure?
    if held.st_mode & S_IFMT != S_IFDIR {
      error = .cannot(SystemError("take over the lock of \(path)", errno: ENOTDIR))
    } else if stat(path, &named) != 0 || named.st_dev != held.st_dev || named.st_ino != held.st_ino {
      error = .cannot(SystemError("take over the lock of \(path)", errno: ESTALE))
    } else if flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
      // To lock again what this description has locked already succeeds.
      error = .held(path: path, pid: Self.holder(of: descriptor))
    }
    if let error {
      close(descriptor)
      throw error
    }
    _ = guardian_set_cloexec(descriptor, 1)
    self.path = path
    self.descriptor = descriptor
  }
  deinit { close(descriptor) }

  /// From a line of /proc/locks: `1: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF`.
  private static func holder(of descriptor: Int32) -> Int32? {
    var about = stat()
    guard fstat(descriptor, &about) == 0, let text = readSmallFile("/proc/locks", atMost: 1 << 20) else { return nil }
    let suffix = ":\(about.st_ino)"
    for line in text.split(separator: "\n") {
      let words = line.split(separator: " ", omittingEmptySubsequences: true)
      guard words.count >= 6, words[1] == "FLOCK", words[5].hasSuffix(suffix), let pid = Int32(words[4]), pid > 0
      else { continue }
      // Whoever took it may be gone, and have left it to a child that has not come to its exec.
      if let look = ProcessLook(pid), !look.isDead { return pid }
    }
    return nil
  }
}

/// The text of a small file of /proc or /sys, invalid UTF-8 repaired; nil where it cannot be read.
package func readSmallFile(_ path: String, atMost limit: Int = 65_536) -> String? {
  let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
  guard descriptor >= 0 else { return nil }
  defer { close(descriptor) }
  var bytes: [UInt8] = []
  var chunk = [UInt8](repeating: 0, count: 8192)
  while bytes.count < limit {
    let got = read(descriptor, &chunk, chunk.count)
    if got < 0 && errno == EINTR { continue }
    guard got > 0 else { break }
    bytes += chunk[..<got]
  }
  return String(decoding: bytes, as: UTF8.self)
}

/// Whether systemd has marked a control group's directory as delegated.
///
/// - Source: systemd's CGROUP_DELEGATION.md: `trusted.delegate`, and `user.delegate` where the kernel has user attributes.
package func isDelegated(_ directory: String) -> Bool {
  for name in ["trusted.delegate", "user.delegate"] {
    var value: [UInt8] = [0, 0]
    if getxattr(directory, name, &value, value.count) == 1, value[0] == UInt8(ascii: "1") { return true }
  }
  return false
}
