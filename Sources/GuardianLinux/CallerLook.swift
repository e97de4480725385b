import CSystemd  // where the compiler may see the constants of sockets first
import Glibc

// Options of sockets that Debian 12's headers lack, or Swift does not see. asm-generic/socket.h
private let SO_PEERGROUPS: Int32 = 59
private let SO_PEERPIDFD: Int32 = 77

extension ClientSocket {
  /// The supplementary groups of whoever has connected, as they were then. socket(7)
  static func groups(of descriptor: Int32) -> [UInt32] {
    var room = 64
    // The kernel's own limit, NGROUPS_MAX.
    while room <= 65536 {
      var groups = [UInt32](repeating: 0, count: room)
      var length = socklen_t(room * MemoryLayout<UInt32>.size)
      if getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, &groups, &length) == 0 {
        return Array(groups.prefix(Int(length) / MemoryLayout<UInt32>.size))
      }
      guard errno == ERANGE else { return [] }
      room = max(room * 2, Int(length) / MemoryLayout<UInt32>.size)
    }
    return []
  }

  /// The command line of the process that has connected, its arguments separated by NUL, at most so many bytes of it; empty
  /// where that process is gone, or /proc is not there.
  ///
  /// Where the kernel has SO_PEERPIDFD (6.5 and newer) it is certain that no other process with the same number is meant.
  /// Does not wait: /proc gives no pages of a file there. proc_pid_cmdline(5)
  package func commandLine(atMost limit: Int) -> [UInt8] {
    guard peer.pid > 0 else { return [] }
    var handle: Int32 = -1
    var length = socklen_t(MemoryLayout<Int32>.size)
    if getsockopt(descriptor, SOL_SOCKET, SO_PEERPIDFD, &handle, &length) == 0 {
      _ = fcntl(handle, F_SETFD, FD_CLOEXEC)
    } else if errno == ENOPROTOOPT {
      handle = -1
    } else {
      return []
    }
    defer { if handle >= 0 { close(handle) } }
    let file = open("/proc/\(peer.pid)/cmdline", O_RDONLY | O_CLOEXEC | O_NOCTTY)
    guard file >= 0 else { return [] }
    defer { close(file) }
    if handle >= 0 {
      // The open file belongs to one process for good; it is the right one if that still lives now.
      var look = pollfd(fd: handle, events: Int16(POLLIN), revents: 0)
      if poll(&look, 1, 0) != 0 { return [] }
    }
    return [UInt8](unsafeUninitializedCapacity: limit) { room, count in
      count = max(0, Glibc.read(file, room.baseAddress, room.count))
    }
  }
}
