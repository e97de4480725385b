import CGuardian
import Glibc

/// Another program in place of this one, with the same pid, children and locks.
package enum ReExec {
  /// Replaces the process's program; returns only where that failed, and then nothing has changed.
  ///
  /// - Parameters:
  ///   - path: What to execute, and what `descriptor` is where there is one.
  ///   - descriptor: A file opened earlier, which is executed whatever is at `path` by now.
  ///   - arguments: The first is the program's name.
  ///   - environment: `NAME=value` lines.
  ///   - keeping: Descriptors that the new program is to have, by the same numbers. All others are CLOEXEC, as guardian
  ///     makes them.
  /// - Source: execve(2), execveat(2). Pending signals, the blocked ones and children stay.
  package static func exec(
    path: String, descriptor: Int32? = nil, arguments: [String], environment: [String], keeping: [Int32]
  ) -> SystemError {
    for kept in keeping {
      let answer = guardian_set_cloexec(kept, 0)
      if answer < 0 {
        for undone in keeping { _ = guardian_set_cloexec(undone, 1) }
        return SystemError("keep descriptor \(kept) for", path, errno: -answer)
      }
    }
    let argv = CStrings(arguments)
    let envp = CStrings(environment)
    let answer = withExtendedLifetime((argv, envp)) {
      guardian_exec(descriptor ?? -1, path, argv.pointers, envp.pointers)
    }
    for undone in keeping { _ = guardian_set_cloexec(undone, 1) }
    return SystemError("execute", path, errno: -answer)
  }

  /// A file in memory that holds `bytes`, CLOEXEC, to be read from its beginning.
  package static func memoryFile(_ name: String, _ bytes: [UInt8]) throws(SystemError) -> OwnedFD {
    let made = guardian_memfd(name)
    if made < 0 { throw SystemError("make a file in memory for", name, errno: -made) }
    let file = OwnedFD(adopting: made)
    var written = 0
    while written < bytes.count {
      let count = bytes[written...].withUnsafeBytes { write(file.number, $0.baseAddress, $0.count) }
      if count < 0 && errno == EINTR { continue }
      if count <= 0 { throw SystemError.last("fill a file in memory for", name) }
      written += count
    }
    if lseek(file.number, 0, SEEK_SET) != 0 { throw SystemError.last("rewind a file in memory for", name) }
    return file
  }

  /// All that is in an open file, from its beginning; nil where it cannot be read, or is longer than `limit` bytes.
  package static func contents(of descriptor: Int32, limit: Int = 64 << 20) -> [UInt8]? {
    guard lseek(descriptor, 0, SEEK_SET) == 0 else { return nil }
    return FileText.readAll(descriptor, limit: limit)
  }

  /// Whether descriptor `number` is open, as one that another program was to leave behind.
  package static func isOpen(_ number: Int32) -> Bool { fcntl(number, F_GETFD) >= 0 }

  /// Lets `descriptor` through the next exec, or not.
  package static func keep(_ descriptor: Int32, _ on: Bool = true) throws(SystemError) {
    let answer = guardian_set_cloexec(descriptor, on ? 0 : 1)
    if answer < 0 { throw SystemError("change descriptor \(descriptor)", errno: -answer) }
  }
}
