import CGuardian
import Glibc
import GuardianModel

/// What tells one version of an executable from the next.
package struct ExecutableLook: Hashable, Sendable {
  package var device: UInt64, inode: UInt64
  /// Bytes.
  package var size: Int64
  /// Nanoseconds since 1970.
  package var modified: Int64
  /// Who executes it has more power than before. Looked at of programs only; no part of `print`.
  package var privileged = false

  package init(device: UInt64, inode: UInt64, size: Int64, modified: Int64) {
    self.device = device
    self.inode = inode
    self.size = size
    self.modified = modified
  }

  /// Nil where nothing is there, or nothing can be seen. May block on a network file system. stat(2).
  package init?(at path: String) {
    var status = stat()
    guard stat(path, &status) == 0 else { return nil }
    self.init(status)
  }

  /// Of a program that is to be executed. stat(2), getxattr(2).
  package init?(ofProgram path: String) {
    var status = stat()
    guard stat(path, &status) == 0 else { return nil }
    self.init(status)
    privileged =
      status.st_mode & (S_ISUID | S_ISGID) != 0 || guardian_has_capabilities(path) != 0
  }

  /// Of what has that name itself, be it a link. lstat(2).
  package init?(ofLink path: String) {
    var status = stat()
    guard lstat(path, &status) == 0 else { return nil }
    self.init(status)
  }

  /// Never 0. Nil and something never look alike.
  package var print: UInt64 {
    var print = Fingerprint()
    print.add(device)
    print.add(inode)
    print.add(size)
    print.add(modified)
    return print.value == 0 ? 1 : print.value
  }

  init(_ status: stat) {
    let (seconds, overflow) = Int64(status.st_mtim.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
    self.init(
      device: UInt64(status.st_dev), inode: UInt64(status.st_ino), size: Int64(status.st_size),
      modified: overflow ? .max : seconds &+ Int64(status.st_mtim.tv_nsec))
  }
}
