import Glibc
import GuardianLinux
import GuardianModel
import Testing

private struct LoopScratch: ~Copyable {
  let path: String
  init() throws {
    var template = Array("/tmp/guardian-linux-test.XXXXXX".utf8CString)
    try #require(mkdtemp(&template) != nil)
    path = template.withUnsafeBytes { String(decoding: $0.dropLast(), as: UTF8.self) }
  }
  deinit {
    for name in ["notify", "control.sock", "file"] { unlink("\(path)/\(name)") }
    rmdir(path)
  }
}

/// Runs the loop until `condition` holds; false after ten seconds.
private func turn(_ loop: EventLoop, until condition: () -> Bool) throws -> Bool {
  let deadline = SystemClocks.monotonic() + .seconds(10)
  while !condition() {
    guard SystemClocks.monotonic() < deadline else { return false }
    _ = try loop.runOne(atMost: .milliseconds(100))
  }
  return true
}

@Suite struct `the event loop` {
  @Test func `fires a timer at its time, not before, and once for each arming`() throws {
    let loop = try EventLoop()
    var fired: [Instant] = []
    let timer = try loop.timer(.monotonic, priority: .time) { fired.append(SystemClocks.monotonic()) }
    let due = SystemClocks.monotonic() + .milliseconds(30)
    timer.arm(at: due.nanoseconds + 1)
    #expect(try turn(loop) { !fired.isEmpty })
    #expect(try #require(fired.first) > due)
    #expect(try !loop.runOne(atMost: .milliseconds(30)))
    timer.arm(at: due.nanoseconds)
    #expect(try turn(loop) { fired.count == 2 })
    timer.arm(at: SystemClocks.monotonic().nanoseconds + 1_000_000)
    timer.disarm()
    #expect(try !loop.runOne(atMost: .milliseconds(20)) && fired.count == 2)
  }

  @Test func `serves the important first, and a source may let go of itself`() throws {
    let loop = try EventLoop()
    var ends: [Int32] = [0, 0]
    try #require(pipe(&ends) == 0)
    defer { for end in ends { close(end) } }
    var order: [String] = []
    var late: EventSource?
    var early: EventSource?
    late = try loop.onIO(ends[0], .read, priority: .control) { _ in
      order.append("control")
      late = nil
    }
    let other = dup(ends[0])
    defer { close(other) }
    early = try loop.onIO(other, .read, priority: .deaths) { _ in
      order.append("death")
      early = nil
    }
    #expect(late != nil && early != nil)
    var byte: UInt8 = 1
    write(ends[1], &byte, 1)
    #expect(try turn(loop) { order.count == 2 })
    #expect(order == ["death", "control"])
    #expect(try !loop.runOne(atMost: .zero))
  }

  @Test func `forgets a descriptor that its handler closes, though somebody else has a copy of it`() throws {
    let loop = try EventLoop()
    var ends: [Int32] = [0, 0]
    try #require(pipe(&ends) == 0)
    // As a run has a copy of its output stream.
    let copy = dup(ends[0])
    defer { for descriptor in [copy, ends[1]] { close(descriptor) } }
    var calls = 0
    var source: EventSource?
    source = try loop.onIO(ends[0], .read, priority: .outcomes) { _ in
      calls += 1
      source?.cancel()
      source = nil
      close(ends[0])
    }
    var byte: UInt8 = 1
    write(ends[1], &byte, 1)
    #expect(try turn(loop) { calls == 1 })
    for _ in 0..<3 { #expect(try !loop.runOne(atMost: .milliseconds(5))) }
    #expect(calls == 1)
  }

  @Test func `tells of a file that appears in a watched directory`() throws {
    let scratch = try LoopScratch()
    let loop = try EventLoop()
    var names: [String] = []
    let watch = try loop.onDirectoryChange(scratch.path, priority: .outcomes) { names.append($0) }
    close(open("\(scratch.path)/file", O_CREAT | O_WRONLY, 0o600))
    #expect(try turn(loop) { names.contains("file") })
    withExtendedLifetime(watch) {}
    #expect(throws: SystemError.self) { try loop.onDirectoryChange("/nonexistent", priority: .outcomes) { _ in } }
  }

  @Test func `hears of a job's end on its own thread, in the order of the jobs`() throws {
    let loop = try EventLoop()
    let worker = try Worker(loop: loop)
    let here = pthread_self()
    var results: [Int] = []
    for number in 0..<10 {
      #expect(
        worker.submit({ pthread_equal(pthread_self(), here) == 0 ? number : -1 }) { results.append($0) })
    }
    #expect(try turn(loop) { results.count == 10 })
    #expect(results == Array(0..<10))
  }
}

@Suite struct `a notify socket` {
  private func send(_ bytes: [UInt8], to path: String, descriptors: Int = 0) throws {
    let sender = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
    defer { close(sender) }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
    let connected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(sender, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    try #require(connected == 0)
    // A control message of `descriptors` copies of standard input, by hand: cmsg(3)'s macros are not for Swift.
    var control = [UInt8](repeating: 0, count: descriptors == 0 ? 0 : 16 + (descriptors * 4 + 7) & ~7)
    if descriptors > 0 {
      let length = UInt64(16 + descriptors * 4)
      withUnsafeBytes(of: length.littleEndian) { control.replaceSubrange(0..<8, with: $0) }
      withUnsafeBytes(of: Int32(SOL_SOCKET).littleEndian) { control.replaceSubrange(8..<12, with: $0) }
      withUnsafeBytes(of: Int32(SCM_RIGHTS).littleEndian) { control.replaceSubrange(12..<16, with: $0) }
    }
    var text = bytes
    let sent = text.withUnsafeMutableBytes { text in
      control.withUnsafeMutableBytes { control in
        var vector = iovec(iov_base: text.baseAddress, iov_len: text.count)
        return withUnsafeMutablePointer(to: &vector) { vector in
          var header = msghdr()
          header.msg_iov = vector
          header.msg_iovlen = 1
          header.msg_control = control.baseAddress
          header.msg_controllen = control.count
          return sendmsg(sender, &header, 0)
        }
      }
    }
    try #require(sent == bytes.count)
  }

  @Test func `takes good datagrams with their sender, and drops the over-long`() throws {
    let scratch = try LoopScratch()
    let path = "\(scratch.path)/notify"
    let socket = try NotifySocket(path: path, uid: geteuid())
    var about = stat()
    #expect(lstat(path, &about) == 0 && about.st_mode & 0o777 == 0o600)
    let full = [UInt8](repeating: UInt8(ascii: "X"), count: 4096)
    for bytes in [[], [1], full, full + [1], [UInt8](repeating: 0, count: 65_536), Array("READY=1".utf8)] {
      try send(bytes, to: path)
    }
    var held: [Int32] = []
    #expect(socket.receive(held: &held) == .text([], pid: getpid(), uid: geteuid()))
    #expect(socket.receive(held: &held) == .text([1], pid: getpid(), uid: geteuid()))
    #expect(socket.receive(held: &held) == .text(full, pid: getpid(), uid: geteuid()))
    for _ in 0..<2 {
      guard case .unusable = socket.receive(held: &held) else {
        Issue.record("an over-long datagram was taken")
        return
      }
    }
    #expect(socket.receive(held: &held) == .text(Array("READY=1".utf8), pid: getpid(), uid: geteuid()))
    #expect(socket.receive(held: &held) == nil && held.isEmpty)
  }

  @Test func `hands out every descriptor that came along, so that all can be closed`() throws {
    let scratch = try LoopScratch()
    let socket = try NotifySocket(path: "\(scratch.path)/notify", uid: geteuid())
    for count in [1, 2, 253] {
      try send(Array("BARRIER=1".utf8), to: socket.path, descriptors: count)
      var held: [Int32] = []
      #expect(socket.receive(held: &held) == .text(Array("BARRIER=1".utf8), pid: getpid(), uid: geteuid()))
      #expect(held.count == count)
      for descriptor in held { #expect(fcntl(descriptor, F_GETFD) & FD_CLOEXEC != 0 && close(descriptor) == 0) }
    }
  }

  @Test func `says path, length and limit where its path is too long`() {
    let path = "/tmp/" + String(repeating: "n", count: 103)
    let error = #expect(throws: SystemError.self) { try NotifySocket(path: path, uid: geteuid()) }
    #expect(error?.description.contains("108 bytes, at most 107") == true, "\(String(describing: error))")
  }
}

@Suite struct `a directory's lock` {
  @Test func `has one holder, is named by its pid, and goes with it`() throws {
    let scratch = try LoopScratch()
    var first: DirectoryLock? = try DirectoryLock(scratch.path)
    #expect(first != nil)
    let error = #expect(throws: DirectoryLock.Failure.self) { try DirectoryLock(scratch.path) }
    #expect(error == .held(path: scratch.path, pid: getpid()))
    first = nil
    // Children that other tests start hold a copy of every descriptor until their exec.
    let deadline = SystemClocks.monotonic() + .seconds(10)
    var again: DirectoryLock?
    while again == nil, SystemClocks.monotonic() < deadline {
      again = try? DirectoryLock(scratch.path)
      if again == nil { usleep(5000) }
    }
    #expect(again != nil)
    #expect(throws: DirectoryLock.Failure.self) { try DirectoryLock("\(scratch.path)/nothing") }
  }
}

@Suite struct `the control socket` {
  @Test func `knows who is there, and notices that its file was taken away`() throws {
    let scratch = try LoopScratch()
    let path = "\(scratch.path)/control.sock"
    let listener = try ControlListener(path: path)
    let client = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(client) }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
    let connected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(client, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    #expect(connected == 0)
    guard case .client(let socket) = listener.accept() else {
      Issue.record("nobody came")
      return
    }
    #expect(socket.peer == Peer(pid: getpid(), uid: geteuid()))
    guard case .nothing = socket.read(atMost: 10) else {
      Issue.record("bytes out of nowhere")
      return
    }
    var text = Array("hello".utf8)
    write(client, &text, 5)
    guard case .bytes(text) = socket.read(atMost: 10) else {
      Issue.record("not what was written")
      return
    }
    #expect(listener.isInPlace)
    unlink(path)
    #expect(!listener.isInPlace)
    let again = try ControlListener(path: path)
    #expect(again.isInPlace && !listener.isInPlace)
  }
}
