import Glibc
@testable import GuardianLinux
import GuardianModel
import Testing

@Suite struct `what goes through a change of program` {
  @Test func `pid, lock, a file in memory and a socket last; the lock is still exclusive`() throws {
    let scratch = try Scratch()
    let finished = try Probe.run("before-exec", scratch.path)
    let lines = finished.output.split(separator: "\n").map(String.init)
    #expect(finished.status == .code(0))
    try #require(lines.count == 5, "\(lines)")
    #expect(lines[0] == lines[1] && lines[0] == "pid \(finished.pid)")
    #expect(lines[2] == "\(scratch.path) belongs to another guardian, pid \(finished.pid)")
    #expect(lines[3] == "contents what survives" && lines[4] == "cloexec true")
  }

  @Test func `a program that is not there changes nothing`() throws {
    let file = try ReExec.memoryFile("x", [1, 2, 3])
    let error = ReExec.exec(
      path: "/nonexistent/guardian", arguments: ["guardian"], environment: [], keeping: [file.number])
    #expect(error.errno == ENOENT)
    #expect(fcntl(file.number, F_GETFD) & FD_CLOEXEC != 0)
    #expect(ReExec.contents(of: file.number) == [1, 2, 3] && ReExec.contents(of: file.number, limit: 2) == nil)
    let bad = ReExec.exec(path: "/bin/true", arguments: ["true"], environment: [], keeping: [987_654])
    #expect(bad.errno == EBADF)
  }

  @Test func `a lock is taken over only of the directory that was meant`() throws {
    let scratch = try Scratch()
    let here = try scratch.directory("here")
    let there = try scratch.directory("there")
    let lock = try DirectoryLock(here)
    #expect(throws: DirectoryLock.Failure.cannot(SystemError("take over the lock of \(there)", errno: ESTALE))) {
      try DirectoryLock(adopting: dup(lock.descriptor), path: there)
    }
    // Another description of the same directory: somebody holds it.
    #expect {
      try DirectoryLock(adopting: open(here, O_RDONLY | O_DIRECTORY), path: here)
    } throws: { if case .held? = $0 as? DirectoryLock.Failure { true } else { false } }
    let file = open(try scratch.file("file"), O_RDONLY)
    #expect(throws: DirectoryLock.Failure.self) { try DirectoryLock(adopting: file, path: here) }
    #expect(throws: DirectoryLock.Failure.self) { try DirectoryLock(adopting: -1, path: here) }
    #expect(try DirectoryLock(adopting: dup(lock.descriptor), path: here).path == here)
  }

  @Test func `a directory that is a link is refused where it must not be one`() throws {
    let scratch = try Scratch()
    let real = try scratch.directory("real")
    let link = scratch.path + "/link"
    #expect(symlink(real, link) == 0)
    for path in [link, link + "/", link + "//"] {
      #expect(throws: DirectoryLock.Failure.self) { try DirectoryLock(path, refusingLink: true) }
    }
    #expect(try DirectoryLock(real + "/", refusingLink: true).path == real + "/")
    #expect(try DirectoryLock(link).path == link)
  }
}

@Suite struct `a notify socket that outlived guardian` {
  @Test func `is taken over with what was sent meanwhile`() throws {
    let scratch = try Scratch()
    let path = scratch.path + "/web"
    var kept: Int32 = -1
    do {
      let first = try NotifySocket(path: path, uid: geteuid())
      first.removesFile = false
      kept = dup(first.descriptor)
    }
    let sender = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
    defer { close(sender) }
    let sent = try #require(UnixAddress(path)).withRaw { sendto(sender, "READY=1", 7, 0, $0, $1) }
    #expect(sent == 7)
    let second = try NotifySocket(adopting: kept, path: path)
    var held: [Int32] = []
    #expect(second.receive(held: &held) == .text(Array("READY=1".utf8), pid: getpid(), uid: geteuid()))
    #expect(second.receive(held: &held) == nil && held.isEmpty)
    #expect(fcntl(kept, F_GETFD) & FD_CLOEXEC != 0)
  }

  @Test func `what is something else is refused`() throws {
    let scratch = try Scratch()
    let path = scratch.path + "/web"
    func code(_ descriptor: Int32, _ path: String) -> Int32? {
      do throws(SystemError) { _ = try NotifySocket(adopting: descriptor, path: path) } catch { return error.errno }
      return nil
    }
    let socket1 = try NotifySocket(path: path, uid: geteuid())
    #expect(code(dup(socket1.descriptor), scratch.path + "/other") == EADDRNOTAVAIL)
    #expect(code(open("/dev/null", O_RDWR), path) == ENOTSOCK)
    #expect(code(socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0), path) == EPROTOTYPE)
    #expect(code(socket(AF_INET, Int32(SOCK_DGRAM.rawValue), 0), path) == EPROTOTYPE)
    #expect(code(socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0), path) == EPROTOTYPE)
    #expect(code(-1, path) == EBADF)
    unlink(path)
    #expect(code(dup(socket1.descriptor), path) == ENOENT)
    // A stale file is replaced by a new socket.
    try scratch.file("web", "stale")
    #expect(try NotifySocket(path: path, uid: geteuid()).path == path)
  }
}

@Suite struct `the host's descriptor store` {
  @Test func `is given a descriptor by name, and told to forget it`() throws {
    let scratch = try Scratch()
    let host = try NotifySocket(path: scratch.path + "/host", uid: geteuid())
    let finished = try Probe.run("store", "notify-web@1", environment: ["NOTIFY_SOCKET=\(host.path)"])
    #expect(finished.output == "stored true\nremoved true\nbad name false\n")
    var held: [Int32] = []
    func next() -> String? {
      guard case .text(let bytes, let pid, _) = host.receive(held: &held) else { return nil }
      #expect(pid == finished.pid)
      return String(decoding: bytes, as: UTF8.self)
    }
    #expect(next() == "FDSTORE=1\nFDNAME=notify-web@1\nFDPOLL=0")
    #expect(held.count == 1 && held.first.flatMap { ReExec.contents(of: $0) } == Array("kept".utf8))
    #expect(next() == "FDSTOREREMOVE=1\nFDNAME=notify-web@1")
    #expect(next() == nil)
    for descriptor in held { close(descriptor) }
  }

  @Test func `what it gives back has its names, and is handed on to nobody`() throws {
    let scratch = try Scratch()
    let one = try scratch.file("one", "first")
    let two = try scratch.file("two", "second")
    // LISTEN_PID must be the probe's own pid, which the shell knows.
    let pipe = try Pipe()
    var request = Children.shell("export LISTEN_PID=$$; exec \(Probe.path) received 3<\(one) 4<\(two)")
    request.environment += ["LISTEN_FDS=2", "LISTEN_FDNAMES=notify-a:notify-b"]
    request.output = .descriptor(pipe.write)
    let child = try Children.start(request)
    pipe.closeWrite()
    #expect(
      Children.readAll(pipe.read) == """
        notify-a 3 cloexec true first
        notify-b 4 cloexec true second
        left false

        """)
    #expect(try Children.finish(child) == .code(0))
    #expect(try Probe.run("received").output == "left false\n")
  }
}

@Suite struct `deaths by guardian's own fault` {
  private func marks(_ scratch: Scratch, _ boot: String = "this") throws -> [FaultMarks.Mark] {
    try FaultMarks(directory: scratch.path, bootID: boot).recent(within: .seconds(300), now: SystemClocks.now().boot)
  }

  @Test(
    .enabled(if: !isSanitized, "not shown: the sanitizer takes faults for itself"),
    arguments: [
      ("segv", [Signal.segv]), ("overflow", [.segv]), ("trap", [.ill, .trap]), ("abort", [.abrt]),
    ])
  func `leave a mark, and end it as they would have`(how: String, signals: [Signal]) throws {
    let scratch = try Scratch()
    let finished = try Probe.run("fault", scratch.path, "this", how)
    #expect(signals.map { .signal($0, core: false) }.contains(finished.status), "\(finished)")
    let found = try marks(scratch)
    #expect(found.count == 1 && found.allSatisfy { mark in signals.contains { $0 == mark.signal } })
    #expect(try marks(scratch, "another").isEmpty)
  }

  @Test(
    .enabled(if: !isSanitized, "not shown: the sanitizer takes faults for itself"),
    arguments: [(Signal.abrt, 1), (.kill, 0), (.term, 0)])
  func `an abort from outside counts, a kill does not`(signal: Signal, count: Int) throws {
    let scratch = try Scratch()
    let pipe = try Pipe()
    var request = Probe.request(["fault", scratch.path, "this", "wait"])
    request.output = .descriptor(pipe.write)
    let child = try Children.start(request)
    var line = [UInt8](repeating: 0, count: 8)
    #expect(read(pipe.read, &line, 8) == 8)
    try ProcessHandle.signal(child.pidfd.number, signal)
    #expect(try Children.finish(child) == .signal(signal, core: false))
    #expect(try marks(scratch).count == count)
  }

  @Test func `are counted within a window, survive damage, are bounded, and can be forgotten`() throws {
    let scratch = try Scratch()
    for _ in 0..<3 { _ = try Probe.run("fault", scratch.path, "this", "abort") }
    let file = scratch.path + "/faults"
    #expect(try marks(scratch).count == 3)
    var about = stat()
    #expect(stat(file, &about) == 0 && about.st_mode & 0o777 == 0o600)

    let object = try FaultMarks(directory: scratch.path, bootID: "this")
    let now = SystemClocks.now().boot
    #expect(object.recent(within: .seconds(300), now: now + .seconds(301)).isEmpty)
    #expect(object.recent(within: .seconds(300), now: .zero).isEmpty)

    // One byte of the second is another, and a fourth came only in part.
    let raw = open(file, O_RDWR)
    var byte: UInt8 = 0xff
    #expect(pwrite(raw, &byte, 1, 32 + 9) == 1 && pwrite(raw, &byte, 1, 96) == 1)
    close(raw)
    #expect(try marks(scratch).count == 2)
    _ = try Probe.run("fault", scratch.path, "this", "abort")
    #expect(try marks(scratch).count == 3)

    let one = Array(try #require(FileText.read(file)).prefix(32))
    try scratch.file("faults", "")
    let more = open(file, O_WRONLY | O_APPEND)
    for _ in 0..<5_000 { _ = write(more, one, one.count) }
    close(more)
    #expect(try marks(scratch).count == FaultMarks.kept)
    #expect(stat(file, &about) == 0 && about.st_size == off_t(FaultMarks.kept * 32))
    try FaultMarks(directory: scratch.path, bootID: "this").clear()
    #expect(try marks(scratch).isEmpty)
  }

  @Test func `a link or another thing in the file's place is refused`() throws {
    let scratch = try Scratch()
    let target = try scratch.file("target", "keep")
    #expect(symlink(target, scratch.path + "/faults") == 0)
    #expect(throws: SystemError.self) { try FaultMarks(directory: scratch.path, bootID: "this") }
    #expect(FileText.text(target) == "keep")
    unlink(scratch.path + "/faults")
    #expect(mkfifo(scratch.path + "/faults", 0o600) == 0)
    #expect(throws: SystemError.self) { try FaultMarks(directory: scratch.path, bootID: "this") }
  }
}

@Suite(.enabled(if: hasFailPoints, "not shown: this build has no fail-points")) struct `fail-points` {
  @Test func `end the program at the time that was asked for`() throws {
    let first = try Probe.run("fail-points", environment: ["GUARDIAN_FAILPOINT=one"])
    #expect(first.status == .signal(.kill, core: false) && first.output.isEmpty)
    let third = try Probe.run("fail-points", environment: ["GUARDIAN_FAILPOINT=one:3"])
    #expect(third.status == .signal(.kill, core: false) && third.output == "one\ntwo\none\nthree\n")
    #expect(try Probe.run("fail-points", environment: ["GUARDIAN_FAILPOINT=on"]).status == .code(0))
    let trapped = try Probe.run("fail-points", environment: ["GUARDIAN_FAILPOINT=trap:two"])
    let isTrap = if case .signal(let signal, _) = trapped.status { signal == .ill || signal == .trap } else { false }
    #expect(isTrap, "\(trapped)")
    #expect(trapped.output == "one\n")
    #expect(try Probe.run("fail-points").status == .code(0))
  }

  @Test func `can be listed`() throws {
    let scratch = try Scratch()
    let list = scratch.path + "/list"
    #expect(try Probe.run("fail-points", environment: ["GUARDIAN_FAILPOINT=list:\(list)"]).status == .code(0))
    let names = try #require(FileText.text(list)).split(separator: "\n")
    #expect(names.count == 10 && Set(names) == ["never", "one", "two", "three"])
  }
}
