import CGuardian
import CSystemd  // where the compiler may see the constants of sockets first
import Glibc

/// A local connection that keeps messages apart and can carry descriptors. Nothing on it waits.
package final class MessageSocket {
  package let descriptor: Int32
  package let peer: Peer

  /// Who listens at `path`; nil where nobody does.
  ///
  /// - Throws: Where somebody may, and cannot be talked to.
  package static func connect(_ path: String) throws(SystemError) -> MessageSocket? {
    let doing = "connect to \(path)"
    guard let address = UnixAddress(path) else { throw SystemError(doing, errno: ENAMETOOLONG) }
    let made = socket(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard made >= 0 else { throw SystemError.last(doing) }
    guard address.withRaw({ Glibc.connect(made, $0, $1) }) == 0 else {
      let error = SystemError.last(doing)
      close(made)
      if error.errno == ENOENT || error.errno == ECONNREFUSED { return nil }
      throw error
    }
    var credentials: (Int32, UInt32, UInt32) = (0, 0, 0)
    var length = socklen_t(12)
    guard getsockopt(made, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0, length == 12 else {
      let error = SystemError.last(doing)
      close(made)
      throw error
    }
    return MessageSocket(made, Peer(pid: credentials.0, uid: credentials.1))
  }

  private init(_ descriptor: Int32, _ peer: Peer) {
    self.descriptor = descriptor
    self.peer = peer
  }
  deinit { close(descriptor) }

  /// A socket at `path` for others to connect to, replacing what is there; only this user may. The caller owns it.
  package static func listen(_ path: String) throws(SystemError) -> OwnedFD {
    let doing = "listen on \(path)"
    guard let address = UnixAddress(path) else { throw SystemError(doing, errno: ENAMETOOLONG) }
    let made = socket(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard made >= 0 else { throw SystemError.last(doing) }
    let socket = OwnedFD(adopting: made)
    // Before bind, so that the file is never there with another mode.
    fchmod(made, 0o600)
    unlink(path)
    guard address.withRaw({ bind(made, $0, $1) }) == 0, Glibc.listen(made, 16) == 0 else { throw .last(doing) }
    return socket
  }

  package enum Sent: Hashable, Sendable {
    case sent
    /// There is no room now.
    case full
    case broken(errno: Int32)
  }

  /// - Parameter passing: A duplicate of it comes with the message.
  package func send(_ bytes: [UInt8], passing descriptor: Int32? = nil) -> Sent {
    let answer = guardian_send_message(self.descriptor, bytes, bytes.count, descriptor ?? -1)
    switch -answer {
    case 0: return .sent
    case EAGAIN, ENOBUFS, ETOOMANYREFS: return .full
    case let code: return .broken(errno: code)
    }
  }

  package enum Received {
    /// The descriptor, where there is one, is the caller's to close.
    case message([UInt8], passed: Int32?)
    case nothing
    case tooLong
    case ended
  }

  package func receive(atMost limit: Int) -> Received {
    var got: Int64 = 0
    var passed: Int32 = -1
    let bytes = [UInt8](unsafeUninitializedCapacity: limit) { room, count in
      if let base = room.baseAddress { got = guardian_receive_message(descriptor, base, limit, &passed) }
      count = Int(max(0, got))
    }
    if got == -Int64(EAGAIN) { return .nothing }
    if got == -Int64(EMSGSIZE) { return .tooLong }
    guard got > 0 else { return .ended }
    return .message(bytes, passed: passed >= 0 ? passed : nil)
  }
}

/// The pipe into which a run writes what is to come to a file.
///
/// The run holds both ends of it, as one descriptor: so it never dies of SIGPIPE, whoever else has gone, and as long as it
/// lives nothing is lost of what it has written.
package enum OutputPipe {
  /// So much may wait in it.
  package static let room = 256 << 10

  /// The end to be read from, which does not block, and the one for the run. The caller owns both.
  ///
  /// - Parameter owner: May open /dev/stdout and its like.
  package static func make(owner: UInt32?) throws(SystemError) -> (read: Int32, run: Int32) {
    var ends: [Int32] = [-1, -1]
    let answer = guardian_pipe(&ends)
    if answer < 0 { throw SystemError("make a pipe", errno: -answer) }
    // Programs expect an output that blocks. The two ends have flags of their own.
    _ = fcntl(ends[1], F_SETFL, 0)
    _ = guardian_pipe_room(ends[0], Int32(room))
    if let owner, owner != geteuid() { _ = fchown(ends[1], owner, gid_t.max) }
    guard let both = ReadyPipe.withReader(ends[1]) else { return (ends[0], ends[1]) }
    close(ends[1])
    return (ends[0], both)
  }
}
