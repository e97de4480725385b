import CGuardian
import CSystemd  // where the compiler may see the constants of sockets first
import Glibc

/// The address of a Unix socket; 107 bytes at most, which is the kernel's limit.
package struct UnixAddress {
  package static let longestPath = 107
  fileprivate var raw = sockaddr_un()
  fileprivate var length: socklen_t = 0

  /// A path, or with a leading `@` an abstract name. Nil where it is empty or too long.
  package init?(_ path: String) {
    let bytes = Array(path.utf8)
    guard !bytes.isEmpty, bytes.count <= Self.longestPath, !bytes.contains(0) else { return nil }
    raw.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &raw.sun_path) { target in
      target.copyBytes(from: bytes)
      if bytes[0] == UInt8(ascii: "@") { target[0] = 0 }
    }
    // A path is counted with its final NUL, an abstract name without.
    length = socklen_t(2 + bytes.count + (bytes[0] == UInt8(ascii: "@") ? 0 : 1))
  }

  /// The path at which a socket is bound; nil where it is none, or not at a path.
  static func bound(to descriptor: Int32) -> String? {
    var raw = sockaddr_un()
    var length = socklen_t(MemoryLayout<sockaddr_un>.size)
    let answer = withUnsafeMutablePointer(to: &raw) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &length) }
    }
    guard answer == 0, raw.sun_family == sa_family_t(AF_UNIX), length > 2 else { return nil }
    return withUnsafeBytes(of: &raw.sun_path) { bytes in
      String(decoding: bytes.prefix(Int(length) - 2).prefix { $0 != 0 }, as: UTF8.self)
    }
  }

  func withRaw<R>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> R) -> R {
    withUnsafePointer(to: raw) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, length) }
    }
  }
}

/// What one datagram on a notify socket came to.
package enum NotifyDatagram: Hashable, Sendable {
  /// From `pid` (0 where the sender is not visible from here) and `uid`, as the kernel vouches for.
  case text([UInt8], pid: Int32, uid: UInt32)
  /// Longer than 4096 bytes, or without credentials.
  case unusable(String)
}

/// A service's notify socket: same path for every run, removed with this object.
package final class NotifySocket {
  package let path: String
  /// Borrowed, for the descriptor store and for what is kept through an exec.
  package let descriptor: Int32
  private static let bufferSize = 4096
  private var buffer = [UInt8](repeating: 0, count: NotifySocket.bufferSize + 1)
  // Room for credentials and for as many descriptors as one message can carry (253).
  private var control = [UInt8](repeating: 0, count: 2048)

  /// Makes the socket anew, mode 0600, owned by `uid`; what is at `path` already is removed.
  package init(path: String, uid: UInt32) throws(SystemError) {
    let doing = "listen on \(path)"
    guard let address = UnixAddress(path) else {
      throw SystemError("\(doing) (\(path.utf8.count) bytes, at most \(UnixAddress.longestPath))", errno: ENAMETOOLONG)
    }
    let made = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard made >= 0 else { throw SystemError.last(doing) }
    var yes: Int32 = 1
    setsockopt(made, SOL_SOCKET, SO_PASSCRED, &yes, socklen_t(MemoryLayout<Int32>.size))
    // Before bind, so that the file is never there with another mode.
    fchmod(made, 0o600)
    unlink(path)
    guard address.withRaw({ bind(made, $0, $1) }) == 0 else {
      let error = SystemError.last(doing)
      close(made)
      throw error
    }
    if uid != geteuid(), lchown(path, uid, gid_t.max) != 0 {
      let error = SystemError.last("give \(path) to uid \(uid)")
      close(made)
      unlink(path)
      throw error
    }
    self.path = path
    descriptor = made
  }

  /// Takes over a socket of an earlier instance, and with it what services have sent meanwhile. The descriptor is ours
  /// to close from here on, also where it is refused.
  ///
  /// It must be a datagram socket of the Unix family that is bound at `path` and passes credentials, and a socket must
  /// be at `path`; whether the file there is that socket's, no call tells. What is missing is EPROTOTYPE, EADDRNOTAVAIL
  /// or ENOENT.
  package init(adopting descriptor: Int32, path: String) throws(SystemError) {
    if let code = Self.objection(to: descriptor, path) {
      close(descriptor)
      throw SystemError("take over the socket", path, errno: code)
    }
    _ = guardian_set_cloexec(descriptor, 1)
    _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
    self.path = path
    self.descriptor = descriptor
  }

  private static func objection(to descriptor: Int32, _ path: String) -> Int32? {
    func option(_ name: Int32) -> Int32? {
      var value: Int32 = 0
      var length = socklen_t(MemoryLayout<Int32>.size)
      return getsockopt(descriptor, SOL_SOCKET, name, &value, &length) == 0 ? value : nil
    }
    guard let kind = option(SO_TYPE) else { return errno }
    guard option(SO_DOMAIN) == AF_UNIX, kind == Int32(SOCK_DGRAM.rawValue), (option(SO_PASSCRED) ?? 0) != 0 else {
      return EPROTOTYPE
    }
    guard UnixAddress.bound(to: descriptor) == path else { return EADDRNOTAVAIL }
    var about = stat()
    guard lstat(path, &about) == 0 else { return errno }
    return about.st_mode & S_IFMT == S_IFSOCK ? nil : EADDRNOTAVAIL
  }

  deinit {
    close(descriptor)
    if removesFile { unlink(path) }
  }

  /// False: the file stays when this object goes, as at an exec after which the descriptor goes on.
  package var removesFile = true

  package func onReadable(_ loop: EventLoop, _ handler: @escaping () -> Void) throws(SystemError) -> EventSource {
    try loop.onIO(descriptor, .read, priority: .evidence) { _ in handler() }
  }

  /// The next datagram, nil if there is none. `held` receives the descriptors that came along: the caller closes them, after
  /// it has handled the text, since a sender of BARRIER=1 waits for exactly that.
  package func receive(held: inout [Int32]) -> NotifyDatagram? {
    var got = 0
    var header = msghdr()
    var flags: Int32 = 0
    var controlLength = 0
    buffer.withUnsafeMutableBytes { text in
      control.withUnsafeMutableBytes { extra in
        var vector = iovec(iov_base: text.baseAddress, iov_len: text.count)
        withUnsafeMutablePointer(to: &vector) { vector in
          header.msg_iov = vector
          header.msg_iovlen = 1
          header.msg_control = extra.baseAddress
          header.msg_controllen = extra.count
          repeat {
            got = recvmsg(descriptor, &header, Int32(MSG_CMSG_CLOEXEC | MSG_DONTWAIT))
          } while got < 0 && errno == EINTR
        }
      }
    }
    flags = header.msg_flags
    controlLength = Int(header.msg_controllen)
    guard got >= 0 else { return nil }

    var sender: (pid: Int32, uid: UInt32)?
    for (level, type, data) in controlMessages(control[..<min(controlLength, control.count)]) where level == SOL_SOCKET
    {
      if type == Int32(SCM_RIGHTS) {
        held += stride(from: 0, to: data.count - data.count % 4, by: 4).map { data.int32(at: $0) }
      } else if type == 2 /* SCM_CREDENTIALS */, data.count >= 12 {
        sender = (data.int32(at: 0), UInt32(bitPattern: data.int32(at: 4)))
      }
    }
    if flags & Int32(MSG_TRUNC) != 0 || got > Self.bufferSize {
      return .unusable("a notification of more than \(Self.bufferSize) bytes")
    }
    guard let sender else { return .unusable("a notification without credentials") }
    return .text(Array(buffer[..<got]), pid: sender.pid, uid: sender.uid)
  }
}

/// Takes a control buffer apart: (level, type, data) of each message.
///
/// - Source: cmsg(3); the header is a length (8 bytes, itself included), a level and a type, everything aligned to 8.
func controlMessages(_ bytes: ArraySlice<UInt8>) -> [(level: Int32, type: Int32, data: [UInt8])] {
  var messages: [(Int32, Int32, [UInt8])] = []
  let all = Array(bytes)
  var at = 0
  while all.count - at >= 16 {
    let length = all[at..<(at + 8)].reversed().reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
    guard length >= 16, length <= UInt64(all.count - at) else { break }
    messages.append((all.int32(at: at + 8), all.int32(at: at + 12), Array(all[(at + 16)..<(at + Int(length))])))
    at += (Int(length) + 7) & ~7
    if at > all.count { break }
  }
  return messages
}

extension [UInt8] {
  /// Little-endian, as every platform that this runs on has it; zero where there are not four bytes.
  fileprivate func int32(at index: Int) -> Int32 {
    guard index >= 0, index + 4 <= count else { return 0 }
    let value = self[index..<(index + 4)].reversed().reduce(0 as UInt32) { $0 << 8 | UInt32($1) }
    return Int32(bitPattern: value)
  }
}
