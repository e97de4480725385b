import CSystemd  // where the compiler may see the constants of sockets first
import Glibc

/// Who is at the other end of a connection, as the kernel vouches for.
package struct Peer: Hashable, Sendable, CustomStringConvertible {
  package var pid: Int32, uid: UInt32
  package init(pid: Int32, uid: UInt32) {
    self.pid = pid
    self.uid = uid
  }
  package var description: String { uid == 0 ? "root" : "uid \(uid)" }
}

/// Which file a path names, itself and not where a link leads.
private struct FilePlace: Equatable {
  var device: UInt64, inode: UInt64
  init?(_ path: String) {
    var about = stat()
    guard lstat(path, &about) == 0 else { return nil }
    device = UInt64(about.st_dev)
    inode = UInt64(about.st_ino)
  }
}

/// The listening control socket. The file's mode grants nothing: whoever connects is judged by his credentials.
package final class ControlListener {
  package let path: String
  /// Borrowed.
  package let descriptor: Int32
  private let place: FilePlace?
  /// Kept for the time when no descriptor is left: clients take their place. The last one is only lent, to take in a
  /// client and turn it away, so that the loop does not spin.
  private var reserve: [Int32] = []
  package static let reserved = 8

  /// The directory must be locked already: what is at `path` is removed.
  package init(path: String) throws(SystemError) {
    let doing = "listen on \(path)"
    guard let address = UnixAddress(path) else {
      throw SystemError("\(doing) (\(path.utf8.count) bytes, at most \(UnixAddress.longestPath))", errno: ENAMETOOLONG)
    }
    let made = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard made >= 0 else { throw SystemError.last(doing) }
    unlink(path)
    guard address.withRaw({ bind(made, $0, $1) }) == 0, chmod(path, 0o666) == 0, listen(made, 128) == 0 else {
      let error = SystemError.last(doing)
      close(made)
      throw error
    }
    self.path = path
    descriptor = made
    place = FilePlace(path)
    fillReserve()
  }

  private func fillReserve() {
    while reserve.count < Self.reserved {
      let made = open("/dev/null", O_RDONLY | O_CLOEXEC)
      if made < 0 { return }
      reserve.append(made)
    }
  }

  /// Takes over one that this process had before an exec; the descriptor is ours to close from here on. The file at
  /// `path` is taken for its own if it is a socket: the directory has been locked all the time.
  package init(adopting descriptor: Int32, path: String) throws(SystemError) {
    var listens: Int32 = 0
    var length = socklen_t(MemoryLayout<Int32>.size)
    guard getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0, listens != 0 else {
      close(descriptor)
      throw SystemError("take over the socket", path, errno: EPROTOTYPE)
    }
    _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    self.path = path
    self.descriptor = descriptor
    var about = stat()
    place = lstat(path, &about) == 0 && about.st_mode & S_IFMT == S_IFSOCK ? FilePlace(path) : nil
    fillReserve()
  }

  deinit {
    close(descriptor)
    for descriptor in reserve { close(descriptor) }
    if isInPlace { unlink(path) }
  }

  /// False if somebody has removed or replaced the file, so that no client can come any more.
  package var isInPlace: Bool { place != nil && FilePlace(path) == place }

  package func onClient(_ loop: EventLoop, _ handler: @escaping () -> Void) throws(SystemError) -> EventSource {
    let source = try loop.onIO(descriptor, .read, priority: .accept) { _ in handler() }
    // Where nobody can be let in, those who wait outside must not keep the loop busy.
    source.limit(to: 200, within: .milliseconds(100))
    return source
  }

  package enum Accepted {
    case client(ClientSocket)
    /// Out of descriptors: the client was let in and shown out, so that the loop does not spin.
    case refused
    case nobody
  }

  package func accept() -> Accepted {
    if reserve.count < Self.reserved { fillReserve() }
    var made = Glibc.accept(descriptor, nil, nil)
    if made < 0, errno == EMFILE || errno == ENFILE, reserve.count > 1 {
      close(reserve.removeLast())
      made = Glibc.accept(descriptor, nil, nil)
    }
    if made >= 0 {
      // Nothing is executed between the two calls: this is the thread that spawns.
      _ = fcntl(made, F_SETFD, FD_CLOEXEC)
      _ = fcntl(made, F_SETFL, O_NONBLOCK)
      guard let client = ClientSocket(adopting: made) else { return .refused }
      return .client(client)
    }
    guard errno == EMFILE || errno == ENFILE, let last = reserve.popLast() else { return .nobody }
    close(last)
    let client = Glibc.accept(descriptor, nil, nil)
    if client >= 0 { close(client) }
    fillReserve()
    return .refused
  }
}

/// One client. Non-blocking; closed with this object.
package final class ClientSocket {
  package let peer: Peer
  /// All groups of the peer, the primary one too, as they were when it connected.
  package let groups: Set<UInt32>
  package let descriptor: Int32

  /// Nil, and closed, where it is no connected socket.
  package init?(adopting made: Int32) {
    var credentials: (Int32, UInt32, UInt32) = (0, 0, 0)  // struct ucred: pid, uid, gid
    var length = socklen_t(12)
    guard getsockopt(made, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0, length == 12 else {
      close(made)
      return nil
    }
    peer = Peer(pid: credentials.0, uid: credentials.1)
    groups = Set(Self.groups(of: made) + [credentials.2])
    descriptor = made
  }
  deinit { close(descriptor) }

  package enum Read {
    case bytes([UInt8])
    case nothing
    /// The client has closed, or the connection is broken.
    case ended
  }

  /// Without a control buffer: descriptors that a client sends along are closed by the kernel at once.
  package func read(atMost limit: Int) -> Read {
    var chunk = [UInt8](repeating: 0, count: limit)
    let got = recv(descriptor, &chunk, limit, Int32(MSG_DONTWAIT))
    if got > 0 { return .bytes(Array(chunk[..<got])) }
    if got < 0 && (errno == EAGAIN || errno == EINTR) { return .nothing }
    return .ended
  }

  /// - Returns: How many bytes the kernel took, 0 if it takes none for now, nil if the connection is broken.
  package func write(_ bytes: ArraySlice<UInt8>) -> Int? {
    let sent = bytes.withUnsafeBytes {
      send(descriptor, $0.baseAddress, $0.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL))
    }
    if sent >= 0 { return sent }
    return errno == EAGAIN || errno == EINTR ? 0 : nil
  }
}
