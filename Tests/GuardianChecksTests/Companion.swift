import Glibc
import GuardianModel
import Testing

struct Failure: Error, CustomStringConvertible {
  var description: String
  init(_ text: String) { description = text }
}

/// `guardian-check`, started and talked to as guardian does it.
final class Companion {
  let pid: pid_t
  private let socket: Int32
  private var next: UInt64 = 0
  private var early: [UInt64: ProbeResult] = [:]
  private var over = false
  private var reaped = false

  private static let program: String = {
    var buffer = [UInt8](repeating: 0, count: 4096)
    let length = readlink("/proc/self/exe", &buffer, buffer.count)
    let own = String(decoding: buffer.prefix(max(0, length)), as: UTF8.self)
    let beside = own.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
    let repository = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3)
      .joined(separator: "/")
    return [beside, repository + "/.build/debug"].map { $0 + "/guardian-check" }.first { access($0, X_OK) == 0 } ?? ""
  }()

  init() throws {
    var ends: [Int32] = [-1, -1]
    guard socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0 else { throw Failure("no sockets") }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    socket = ends[0]
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0)
    var started = pid_t()
    let arguments = [strdup(Self.program), nil]
    defer { for argument in arguments { free(argument) } }
    let result = posix_spawn(&started, Self.program, &actions, nil, arguments, environ)
    posix_spawn_file_actions_destroy(&actions)
    close(ends[1])
    guard result == 0 else { throw Failure("cannot start \(Self.program): \(result)") }
    pid = started
    // Whatever hangs ends the test.
    var limit = timeval(tv_sec: 20, tv_usec: 0)
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
  }

  deinit {
    hangUp()
    if reaped { return }
    kill(pid, SIGKILL)
    var status: Int32 = 0
    waitpid(pid, &status, 0)
  }

  /// Its wait status, once it has ended by itself.
  func waitForEnd() throws -> Int32 {
    var status: Int32 = -1
    try eventually("guardian-check has ended") { waitpid(pid, &status, WNOHANG) == pid }
    reaped = true
    return status
  }

  func hangUp() {
    if !over { close(socket) }
    over = true
  }
  func send(_ bytes: [UInt8]) { _ = Glibc.send(socket, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }

  @discardableResult
  func order(_ probe: ProbeOrder.Probe, key: String? = nil, timeout: Duration = .seconds(10)) -> UInt64 {
    next += 1
    send(ProbeOrder(number: next, work: .probe(probe, key: key ?? "key\(next)", timeout: timeout)).bytes)
    return next
  }
  func cancel(_ number: UInt64) { send(ProbeOrder(number: number, work: .cancel).bytes) }

  func answer(to number: UInt64) throws -> ProbeResult {
    while true {
      if let known = early.removeValue(forKey: number) { return known }
      var bytes = [UInt8](repeating: 0, count: 8192)
      let got = recv(socket, &bytes, bytes.count, 0)
      guard got > 0, let answer = ProbeAnswer(Array(bytes[..<got])) else { throw Failure("no answer: \(errno)") }
      early[answer.number] = answer.result
    }
  }

  func probe(_ probe: ProbeOrder.Probe, timeout: Duration = .seconds(10)) throws -> ProbeResult {
    try answer(to: order(probe, timeout: timeout))
  }

  /// Runs this by a shell.
  static func shell(_ script: String) -> ProbeOrder.Probe {
    var exec = ExecProbe(run: RunID(high: .random(in: 1 ... .max), low: 1), command: ["/bin/sh", "-c", script])
    exec.environment = ["PATH=/usr/bin:/bin", "INVOCATION_ID=\(exec.run)"]
    return .exec(exec)
  }
}

/// A server on the loopback, or on a socket of the file system, that says the same to everybody.
final class Server: @unchecked Sendable {
  enum Manner: Sendable {
    /// These bytes, then it hangs up.
    case says(String)
    /// Accepts, and says nothing.
    case silent
    /// These bytes, then as many of the other as anybody takes.
    case endless(String, String)
    /// These bytes, then of the other one after the other, slowly and for ever.
    case drips(String, String)
  }
  private(set) var port = 0
  let path: String?
  private let listener: Int32
  private let manner: Manner

  init(_ manner: Manner, path: String? = nil) throws {
    self.manner = manner
    self.path = path
    listener = Glibc.socket(path == nil ? AF_INET : AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    _ = fcntl(listener, F_SETFD, FD_CLOEXEC)
    if let path {
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
      let bound = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
      }
      guard bound == 0 else { throw Failure("cannot bind \(path)") }
    } else {
      var address = sockaddr_in()
      address.sin_family = sa_family_t(AF_INET)
      address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
      var length = socklen_t(MemoryLayout<sockaddr_in>.size)
      let bound = withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
          bind(listener, address, length) == 0 && getsockname(listener, address, &length) == 0
        }
      }
      guard bound else { throw Failure("cannot bind") }
      port = Int(UInt16(bigEndian: address.sin_port))
    }
    guard listen(listener, 64) == 0 else { throw Failure("cannot listen") }
    var thread = pthread_t()
    pthread_create(
      &thread, nil,
      { argument in
        if let argument { Unmanaged<Server>.fromOpaque(argument).takeRetainedValue().serve() }
        return nil
      }, Unmanaged.passRetained(self).toOpaque())
    pthread_detach(thread)
  }

  var url: String { "http://127.0.0.1:\(port)/health" }
  /// The thread ends with the listener.
  func stop() { shutdown(listener, Int32(SHUT_RDWR)) }

  private func serve() {
    while true {
      let client = accept(listener, nil, nil)
      if client < 0 { break }
      _ = fcntl(client, F_SETFD, FD_CLOEXEC)
      func say(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        return Glibc.send(client, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count
      }
      switch manner {
      case .silent: _ = Self.drain(client)
      case .says(let text):
        if case .says = manner, !text.isEmpty { _ = Self.hearOnce(client) }
        _ = say(text)
      case .endless(let head, let rest):
        _ = Self.hearOnce(client)
        if say(head) { while say(rest) {} }
      case .drips(let head, let rest):
        _ = Self.hearOnce(client)
        var open = say(head)
        while open {
          for character in rest.unicodeScalars where open {
            usleep(20_000)
            open = say(String(character))
          }
        }
      }
      close(client)
    }
    close(listener)
  }
  private static func hearOnce(_ client: Int32) -> Int {
    var bytes = [UInt8](repeating: 0, count: 4096)
    return recv(client, &bytes, bytes.count, 0)
  }
  /// Until the other end hangs up.
  private static func drain(_ client: Int32) -> Int {
    while hearOnce(client) > 0 {}
    return 0
  }
}

func eventually(_ what: @autoclosure () -> String, _ holds: () -> Bool) throws {
  for _ in 0..<1000 {
    if holds() { return }
    usleep(10_000)
  }
  throw Failure("never: \(what())")
}

/// How many processes have this word in their command line.
func processes(with word: String) -> Int {
  guard let directory = opendir("/proc") else { return 0 }
  defer { closedir(directory) }
  var found = 0
  while let entry = readdir(directory) {
    let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    guard Int32(name) != nil, let file = fopen("/proc/\(name)/cmdline", "r") else { continue }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 4096)
    let count = fread(&bytes, 1, bytes.count, file)
    let line = bytes[..<count].map { $0 == 0 ? UInt8(ascii: " ") : $0 }
    if String(decoding: line, as: UTF8.self).contains(word) { found += 1 }
  }
  return found
}
