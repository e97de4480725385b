import GuardianControl
import GuardianModel
import Glibc

/// A connection to guardian that asks and waits.
final class Daemon {
  enum Fault: Error {
    /// No guardian there: exit 6.
    case unreachable(String)
    /// The socket may not be opened: exit 77.
    case notPermitted(String)

    var text: String {
      switch self {
      case .unreachable(let text), .notPermitted(let text): text
      }
    }
    var exitCode: Int32 {
      switch self {
      case .unreachable: ExitCode.unreachable
      case .notPermitted: ExitCode.notPermitted
      }
    }
  }

  /// To be polled; closed with this object.
  let socket: CInt
  /// Called ten times a second while an answer is waited for.
  var idle: (() -> Void)?
  var frames = FrameBuffer(limit: 16 << 20)
  /// Left as it is found: filling it with zeros would touch all its pages for an answer of a few hundred bytes.
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 1)
  let path: String

  private init(socket: CInt, path: String) {
    self.socket = socket
    self.path = path
  }
  deinit {
    close(socket)
    buffer.deallocate()
  }

  /// The first guardian of `target` that answers.
  static func connect(to target: Invocation.Target) throws(Fault) -> Daemon {
    var first: Fault?
    for directory in directories(target) {
      do throws(Fault) {
        return try connect(directory: directory)
      } catch {
        // A closed door says more than a missing one.
        if case .notPermitted = error { throw error }
        // The last place is where a guardian would most likely be.
        first = error
      }
    }
    throw first ?? .unreachable("no runtime directory is known")
  }

  private static func directories(_ target: Invocation.Target) -> [String] {
    let user = userDirectory()
    switch target {
    case .directory(let path): return [path]
    case .user: return [user]
    case .system: return ["/run/guardian"]
    case .automatic: return access(user + "/control.sock", F_OK) == 0 ? [user, "/run/guardian"] : ["/run/guardian"]
    }
  }

  /// Where guardian puts it. In /tmp anybody could have made the directory, so there it must be our own.
  private static func userDirectory() -> String {
    if let runtime = variable("XDG_RUNTIME_DIR"), runtime.hasPrefix("/") { return runtime + "/guardian" }
    let path = "/tmp/guardian-\(geteuid())"
    var information = stat()
    let ours =
      lstat(path, &information) == 0 && information.st_uid == geteuid() && information.st_mode & S_IFMT == S_IFDIR
    return ours ? path : "/run/user/\(geteuid())/guardian"
  }

  private static func connect(directory: String) throws(Fault) -> Daemon {
    let path = (directory.hasSuffix("/") ? String(directory.dropLast()) : directory) + "/control.sock"
    let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw .unreachable("cannot make a socket: \(reason(errno))") }
    let daemon = Daemon(socket: descriptor, path: path)

    // A socket's address has 108 bytes; a longer path is gone to by way of its directory's descriptor.
    var address = path
    var directoryDescriptor: CInt = -1
    defer { if directoryDescriptor >= 0 { close(directoryDescriptor) } }
    if path.utf8.count > 107 {
      directoryDescriptor = open(directory, pathOnly | O_DIRECTORY | O_CLOEXEC)
      guard directoryDescriptor >= 0 else {
        throw .unreachable("cannot reach guardian at \(path): \(reason(errno))")
      }
      address = "/proc/self/fd/\(directoryDescriptor)/control.sock"
    }
    var name = sockaddr_un()
    name.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &name.sun_path) { room in room.copyBytes(from: address.utf8.prefix(room.count - 1)) }
    let result = withUnsafePointer(to: &name) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        retrying { Glibc.connect(descriptor, address, socklen_t(MemoryLayout<sockaddr_un>.size)) }
      }
    }
    if result != 0 {
      switch errno {
      case EACCES, EPERM: throw .notPermitted("not permitted to talk to guardian at \(path)")
      case ENOENT: throw .unreachable("cannot reach guardian: there is no \(path); is guardian running?")
      case ECONNREFUSED: throw .unreachable("cannot reach guardian: nobody listens at \(path); is guardian running?")
      default: throw .unreachable("cannot reach guardian at \(path): \(reason(errno))")
      }
    }
    return daemon
  }

  func send(_ calls: [ControlCall]) throws(Fault) {
    var bytes: [UInt8] = []
    for call in calls { call.encode(into: &bytes) }
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      if count >= 0 {
        rest = rest.dropFirst(count)
      } else if errno != EINTR {
        throw .unreachable("guardian closed the connection: \(reason(errno))")
      }
    }
  }

  /// Gives the replies to `request` to `body`, one after the other.
  ///
  /// - Parameter patience: Seconds without a byte before guardian counts as unreachable; nil: as long as it takes.
  func replies(to request: ControlRequest, patience: Int32?, _ body: (ReplyBody) -> Void) throws(Fault) {
    try follow(request, patience: patience) { reply in
      body(reply)
      return true
    }
  }

  /// The next reply to `request` among what has been received; nil: there is none yet.
  func received(_ request: ControlRequest) throws(Fault) -> (body: ReplyBody, continues: Bool)? {
    let decoded: Answer<(body: ReplyBody, continues: Bool), ReplyFault>?
    do throws(FrameBuffer.Fault) {
      decoded = try frames.next { decodeReply($0, to: request) }
    } catch {
      throw .unreachable("guardian's answer is longer than 16 MiB")
    }
    switch decoded {
    case .success(let reply)?: return reply
    case .failure(let fault)?: throw .unreachable("cannot understand guardian's answer: \(fault.reason)")
    case nil: return nil
    }
  }

  /// As above, as long as `body` wants more.
  func follow(_ request: ControlRequest, patience: Int32?, _ body: (ReplyBody) -> Bool) throws(Fault) {
    while true {
      guard let reply = try received(request) else {
        try receive(patience: patience)
        continue
      }
      if !body(reply.body) || !reply.continues { return }
    }
  }

  /// The services of a brief list, appended to `services`; or a refusal.
  func briefServices(
    _ request: ControlRequest, patience: Int32?, into services: inout [ServiceStatus]
  ) throws(Fault) -> ControlError? {
    while true {
      let next: Chunk?
      do throws(FrameBuffer.Fault) {
        next = try frames.next { bytes in
          if let list = decodeBriefList(bytes, into: &services) { return .spliced(list) }
          return .decoded(decodeReply(bytes, to: request))
        }
      } catch {
        throw .unreachable("guardian's answer is longer than 16 MiB")
      }
      switch next {
      case .spliced(let list)?: if !list.continues { return nil }
      case .decoded(.success((.services(let chunk, _), let continues)))?:
        services += chunk
        if !continues { return nil }
      case .decoded(.success((.error(let error), _)))?: return error
      case .decoded(.success)?: throw .unreachable("cannot understand guardian's answer")
      case .decoded(.failure(let fault))?: throw .unreachable("cannot understand guardian's answer: \(fault.reason)")
      case nil: try receive(patience: patience)
      }
    }
  }

  /// The services of a list as bytes of JSON, appended to `out`; the exit status that they stand for, or a refusal.
  func listedServices(
    _ request: ControlRequest, patience: Int32?, into out: inout [UInt8]
  ) throws(Fault) -> Answer<Int32, ControlError> {
    var worst: Int32 = 0
    while true {
      let next: Chunk?
      do throws(FrameBuffer.Fault) {
        next = try frames.next { bytes in
          if let list = spliceList(bytes, into: &out) { return .spliced(list) }
          return .decoded(decodeReply(bytes, to: request))
        }
      } catch {
        throw .unreachable("guardian's answer is longer than 16 MiB")
      }
      switch next {
      case .spliced(let list)?:
        worst = max(worst, list.worst)
        if !list.continues { return .success(worst) }
      case .decoded(.success((.services(let services, _), let continues)))?:
        for service in services {
          var json = JSONWriter()
          encode(service, brief: false, into: &json)
          if let last = out.last, last != UInt8(ascii: "[") { out.append(UInt8(ascii: ",")) }
          out += json.bytes
          worst = max(worst, service.exitCode(named: false))
        }
        if !continues { return .success(worst) }
      case .decoded(.success((.error(let error), _)))?: return .failure(error)
      case .decoded(.success)?: throw .unreachable("cannot understand guardian's answer")
      case .decoded(.failure(let fault))?: throw .unreachable("cannot understand guardian's answer: \(fault.reason)")
      case nil: try receive(patience: patience)
      }
    }
  }
  private enum Chunk {
    case spliced(SplicedList)
    case decoded(Answer<(body: ReplyBody, continues: Bool), ReplyFault>)
  }

  func reply(to request: ControlRequest, patience: Int32?) throws(Fault) -> ReplyBody {
    var last: ReplyBody?
    try replies(to: request, patience: patience) { last = $0 }
    guard let last else { throw .unreachable("guardian gave no answer") }
    return last
  }

  /// Takes in what has come; waits for it, where nothing has.
  func receive(patience: Int32?) throws(Fault) {
    var waiting = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
    // A poll that somebody wants to see something between is done in slices.
    var left = patience.map { Int64($0) * 1000 }
    while patience != nil || idle != nil {
      let slice = idle == nil ? left ?? -1 : min(100, left ?? 100)
      if retrying({ poll(&waiting, 1, Int32(clamping: slice)) }) > 0 { break }
      idle?()
      if let rest = left {
        left = rest - slice
        if rest <= slice { throw .unreachable("guardian at \(path) has not answered for \(patience ?? 0) s") }
      }
    }
    let count = retrying { Int32(recv(socket, buffer.baseAddress, buffer.count, 0)) }
    if count > 0 {
      frames.append(UnsafeRawBufferPointer(rebasing: buffer[..<Int(count)]))
    } else if count == 0 {
      throw .unreachable("guardian closed the connection before it had answered")
    } else {
      throw .unreachable("guardian closed the connection: \(reason(errno))")
    }
  }
}

/// O_PATH, which the C library shows to GNU programs only; the same on all Linux ports that Swift has.
private let pathOnly: Int32 = 0o10000000

func retrying(_ call: () -> Int32) -> Int32 {
  while true {
    let result = call()
    if result >= 0 || errno != EINTR { return result }
  }
}
