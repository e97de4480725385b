import CGuardian
import Glibc

/// Which paths lie on file systems that answer from this machine. Asks the kernel's tables only, never a server.
///
/// Used from one thread.
package final class MountTable {
  /// Kept open: the kernel tells through it when mounts have changed.
  private let table: OwnedFD?
  private var remoteMounts: Set<Int64> = []
  private var read = false

  package init() {
    let raw = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)
    table = raw < 0 ? nil : OwnedFD(adopting: raw)
  }

  /// Whether to walk to `path`, or to run it, may wait for a server or for a program that plays one.
  ///
  /// True also where that cannot be told without waiting: nothing of the path is in the kernel's memory, and there are
  /// remote mounts it might lie on. Without any such mount the answer costs one poll(2).
  package func mayBlock(_ path: String) -> Bool {
    refresh()
    if remoteMounts.isEmpty { return false }
    let raw = guardian_openat2(
      AT_FDCWD, path, UInt64(Int32(GUARDIAN_O_PATH) | O_CLOEXEC), 0, UInt64(GUARDIAN_RESOLVE_CACHED))
    if raw == -ENOENT || raw == -ENOTDIR || raw == -EACCES { return false }
    if raw < 0 { return true }
    let descriptor = OwnedFD(adopting: raw)
    let mount = guardian_mount_id(descriptor.number)
    return mount < 0 || remoteMounts.contains(mount)
  }

  private func refresh() {
    guard let descriptor = table.number else { return }
    var watch = pollfd(fd: descriptor, events: Int16(POLLPRI), revents: 0)
    let changed = poll(&watch, 1, 0) > 0
    if read && !changed { return }
    guard lseek(descriptor, 0, SEEK_SET) == 0, let text = FileText.readAll(descriptor, limit: 16 << 20) else { return }
    read = true
    remoteMounts = Self.remoteMounts(in: text)
  }

  /// Numbers of the mounts whose file system may have to wait for somebody. proc(5), "mountinfo".
  static func remoteMounts(in mountinfo: [UInt8]) -> Set<Int64> {
    var found: Set<Int64> = []
    for line in mountinfo.split(separator: UInt8(ascii: "\n")) {
      // 36 35 98:0 /root /mount/point options [optional…] - type source options
      let words = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: true)
      guard let number = words.first.flatMap({ Int64(String(decoding: $0, as: UTF8.self)) }),
        let dash = words.dropFirst(6).firstIndex(where: { $0.elementsEqual([UInt8(ascii: "-")]) }),
        dash + 1 < words.endIndex
      else { continue }
      if isRemote(String(decoding: words[dash + 1], as: UTF8.self)) { found.insert(number) }
    }
    return found
  }

  static func isRemote(_ type: String) -> Bool {
    if type.hasPrefix("fuse") { return type != "fusectl" }
    return remoteTypes.contains(type)
  }
  private static let remoteTypes: Set<String> = [
    "nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "lustre", "gfs2", "ocfs2", "virtiofs", "autofs", "coda",
    "pvfs2",
    "beegfs", "gpfs",
  ]
}
