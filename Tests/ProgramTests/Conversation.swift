import Glibc

/// A connection to the control socket, as a program that is not guardianctl would have it.
final class Conversation {
  let descriptor: Int32
  private var unread: [UInt8] = []

  init(_ guardian: Guardian) throws {
    let path = guardian.runtime + "/control.sock"
    descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw Failure.errno("socket") }
    var name = sockaddr_un()
    name.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &name.sun_path) { room in room.copyBytes(from: path.utf8.prefix(room.count - 1)) }
    let result = withUnsafePointer(to: &name) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard result == 0 else { throw Failure.errno(path) }
  }
  deinit { close(descriptor) }

  /// Without waiting for room.
  ///
  /// - Returns: How many bytes were taken.
  @discardableResult func send(_ bytes: [UInt8]) -> Int {
    var sent = 0
    while sent < bytes.count {
      let count = bytes[sent...].withUnsafeBytes {
        Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
      }
      if count <= 0 { break }
      sent += count
    }
    return sent
  }
  func send(_ text: String) { send(Array(text.utf8)) }

  /// One call; `parameters` is an object in JSON.
  func call(_ method: String, _ parameters: String = "{}", _ more: String = "") {
    let name = method.contains(".") ? method : "io.guardian.Supervisor.\(method)"
    send(#"{"method":"\#(name)","parameters":\#(parameters)\#(more)}"# + "\0")
  }

  /// That nothing more will be sent.
  func endSending() { shutdown(descriptor, Int32(SHUT_WR)) }

  /// The next reply; nil where the connection was closed.
  func reply(seconds: Int = 20) throws -> JSON? {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
      if let end = unread.firstIndex(of: 0) {
        let text = String(decoding: unread[..<end], as: UTF8.self)
        unread.removeSubrange(...end)
        return try JSON(text)
      }
      var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      guard poll(&ready, 1, Int32(seconds * 1000)) == 1 else { throw Failure("no reply within \(seconds) s") }
      let count = recv(descriptor, &buffer, buffer.count, 0)
      if count < 0 && errno != ECONNRESET { throw Failure.errno("recv") }
      if count <= 0 { return nil }
      unread += buffer[..<count]
    }
  }

  /// Sends one message with descriptors along.
  func send(_ text: String, passing passed: [Int32]) -> Bool {
    let bytes = Array(text.utf8)
    // struct cmsghdr: its length, SOL_SOCKET, SCM_RIGHTS; then the descriptors. cmsg(3)
    var control = [UInt8](repeating: 0, count: 16 + (passed.count * 4 + 7) / 8 * 8)
    control.withUnsafeMutableBytes { room in
      room.storeBytes(of: 16 + passed.count * 4, as: Int.self)
      room.storeBytes(of: SOL_SOCKET, toByteOffset: 8, as: Int32.self)
      room.storeBytes(of: 1, toByteOffset: 12, as: Int32.self)
      for (index, number) in passed.enumerated() {
        room.storeBytes(of: number, toByteOffset: 16 + index * 4, as: Int32.self)
      }
    }
    return bytes.withUnsafeBytes { content in
      control.withUnsafeMutableBytes { control in
        var part = iovec(iov_base: UnsafeMutableRawPointer(mutating: content.baseAddress), iov_len: content.count)
        return withUnsafeMutablePointer(to: &part) { part in
          var message = msghdr()
          message.msg_iov = part
          message.msg_iovlen = 1
          message.msg_control = control.baseAddress
          message.msg_controllen = control.count
          return sendmsg(descriptor, &message, Int32(MSG_NOSIGNAL)) == content.count
        }
      }
    }
  }
}

extension JSON {
  /// The last part of a Varlink error's name.
  var error: String? { self["error"].string.flatMap { $0.split(separator: ".").last.map(String.init) } }
}
