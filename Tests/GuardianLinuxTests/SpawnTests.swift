import Glibc
import GuardianLinux
import GuardianModel
import Testing

/// Both ways of starting must come to the same.
enum Way: String, CaseIterable, CustomTestStringConvertible {
  case quick, separate
  var testDescription: String { rawValue }
}

extension SpawnRequest {
  fileprivate func by(_ way: Way) -> SpawnRequest {
    var copy = self
    copy.forceSlowPath = way == .separate
    return copy
  }
}

@Suite struct `a started process` {
  @Test(arguments: Way.allCases)
  func `leads a session and a group of its own, without a terminal`(_ way: Way) throws {
    let run = try Children.run(Children.shell("cut -d' ' -f5-7 /proc/$$/stat").by(way))
    #expect(run.output == "\(run.pid) \(run.pid) 0\n")
    #expect(run.status == .code(0))
  }

  @Test(arguments: Way.allCases)
  func `CASES 43, D7: has the descriptors 0, 1 and 2 and no other, over many starts`(_ way: Way) throws {
    // First the counter is proven to count.
    let pipe = try Pipe()
    var more = Children.shell("sleep 60").by(way)
    more.passed = [.init(target: 7, source: pipe.read), .init(target: 3, source: pipe.write)]
    #expect(try has(["0", "1", "2", "3", "7"], more))

    for _ in 0..<50 { #expect(try has(["0", "1", "2"], SpawnRequest(command: ["/bin/sleep", "60"]).by(way))) }
  }

  /// The loader opens libraries for a moment; what was passed on by mistake would stay.
  private func has(_ descriptors: [String], _ request: SpawnRequest) throws -> Bool {
    let child = try Children.start(request)
    let answer = Children.eventually { entries(of: "/proc/\(child.pid)/fd").sorted() == descriptors }
    try ProcessHandle.signal(child.pidfd.number, .kill)
    return try Children.finish(child) == .signal(.kill, core: false) && answer
  }

  @Test func `ten thousand starts leave no descriptor and no process behind`() throws {
    let spawner = try Spawner()
    let before = entries(of: "/proc/self/fd").count
    for n in 0..<10_000 {
      var request = SpawnRequest(command: ["/bin/true"])
      request.forceSlowPath = n % 10 == 0
      let child = try Children.start(request, by: spawner)
      #expect(try Children.finish(child) == .code(0))
    }
    // Other tests of this process have descriptors of their own; a leak would be ten thousand.
    #expect(entries(of: "/proc/self/fd").count < before + 1000)
  }

  @Test(arguments: Way.allCases)
  func `J8: has exactly the environment that was asked for`(_ way: Way) throws {
    setenv("LD_PRELOAD_FOR_TEST", "1", 1)
    setenv("NOTIFY_SOCKET_FOR_TEST", "/nowhere", 1)
    var request = SpawnRequest(command: ["/usr/bin/env"], environment: ["A=1", "B=two words", "EMPTY="]).by(way)
    request.umask = 0o027
    #expect(try Children.run(request).output == "A=1\nB=two words\nEMPTY=\n")
    request.environment = []
    #expect(try Children.run(request).output == "")
  }

  @Test(arguments: Way.allCases)
  func `has a clean signal state, and keeps SIGPIPE ignored only when asked`(_ way: Way) throws {
    var request = SpawnRequest(command: ["/bin/grep", "-E", "^(SigPnd|ShdPnd|SigBlk|SigIgn)", "/proc/self/status"]).by(
      way)
    let zero = "0000000000000000"
    #expect(
      try Children.run(request).output
        == "SigPnd:\t\(zero)\nShdPnd:\t\(zero)\nSigBlk:\t\(zero)\nSigIgn:\t\(zero)\n")
    request.keepsSIGPIPEIgnored = true
    #expect(try Children.run(request).output.hasSuffix("SigIgn:\t0000000000001000\n"))
  }

  @Test(arguments: Way.allCases)
  func `has the umask, the directory, the limits and the niceness asked for`(_ way: Way) throws {
    let scratch = try Scratch()
    var request = Children.shell("umask; pwd; ulimit -Sn; ulimit -Hn; ulimit -c; nice").by(way)
    request.directory = scratch.path
    request.umask = 0o027
    request.limits = [ResourceLimit(.openFiles, 77), ResourceLimit(.core, 0)]
    request.nice = 5
    #expect(try Children.run(request).output == "0027\n\(scratch.path)\n77\n77\n0\n5\n")
  }

  @Test(arguments: Way.allCases)
  func `can have fewer open files than guardian needs to set it up`(_ way: Way) throws {
    var request = SpawnRequest(command: ["/bin/true"]).by(way)
    request.limits = [ResourceLimit(.openFiles, 3)]
    request.oomScoreAdjust = 100
    // The loader cannot open a library then, and says so: the program did run.
    #expect(try Children.run(request).status == .code(127))
  }

  @Test func `gets back the soft limit of open files that guardian has raised, and keeps the hard one`() throws {
    var request = Children.shell("ulimit -Sn; ulimit -Hn")
    request.softOpenFiles = 321
    var own = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &own)
    #expect(try Children.run(request).output == "321\n\(own.rlim_max == .max ? "unlimited" : "\(own.rlim_max)")\n")
  }

  @Test(arguments: Way.allCases)
  func `has the OOM score asked for, and guardian keeps its own`(_ way: Way) throws {
    let before = FileText.text("/proc/self/oom_score_adj")
    var request = SpawnRequest(command: ["/bin/cat", "/proc/self/oom_score_adj"]).by(way)
    request.oomScoreAdjust = 321
    #expect(try Children.run(request).output == "321\n")
    #expect(FileText.text("/proc/self/oom_score_adj") == before)
  }

  @Test(arguments: Way.allCases)
  func `gets a descriptor for its readiness under the number asked for`(_ way: Way) throws {
    let pipe = try Pipe()
    var request = Children.shell("echo ready >&4").by(way)
    // The number may be one that guardian uses for something else, even for the source of another.
    request.passed = [.init(target: 4, source: pipe.write), .init(target: 5, source: pipe.read)]
    let child = try Children.start(request)
    pipe.closeWrite()
    #expect(Children.readAll(pipe.read) == "ready\n")
    #expect(try Children.finish(child) == .code(0))
  }

  @Test func `may have guardian's own descriptors crossed over`() throws {
    let one = try Pipe()
    let two = try Pipe()
    var request = Children.shell("echo out; echo error >&2; echo first >/proc/self/fd/\(two.write)")
    request.output = .descriptor(one.write)
    request.error = .descriptor(two.write)
    request.passed = [
      .init(target: two.write, source: one.write), .init(target: one.write, source: two.write),
    ].sorted { $0.target < $1.target }
    let child = try Children.start(request)
    one.closeWrite()
    two.closeWrite()
    #expect(Children.readAll(one.read) == "out\nfirst\n")
    #expect(Children.readAll(two.read) == "error\n")
    _ = try Children.finish(child)
  }

  @Test(arguments: [1, 7, 12])
  func `gets its descriptors, and the end of file is seen, among hundreds of guardian's own`(_ count: Int32) throws {
    let null = open("/dev/null", O_RDWR | O_CLOEXEC)
    var filler = [null]
    while let last = filler.last, last >= 0, last < 400 { filler.append(fcntl(null, F_DUPFD_CLOEXEC, 3)) }
    defer { for descriptor in filler { close(descriptor) } }
    let pipe = try Pipe()
    #expect(pipe.write > 256)
    let script = (3..<(3 + count)).map { "echo \($0) >/proc/self/fd/\($0)" }.joined(separator: ";")
    var request = Children.shell(script)
    request.passed = (3..<(3 + count)).map { .init(target: $0, source: pipe.write) }
    let child = try Children.start(request)
    pipe.closeWrite()
    #expect(Children.readAll(pipe.read) == (3..<(3 + count)).map { "\($0)\n" }.joined())
    #expect(try Children.finish(child) == .code(0))
  }

  @Test func `does not die with the thread that started it`() throws {
    let run = try Children.run(Children.shell("grep -c . /proc/self/status >/dev/null; echo alive"))
    #expect(run.output == "alive\n")
  }

  @Test func `D1: a life of less than a millisecond is seen once, with its status`() throws {
    let spawner = try Spawner()
    for _ in 0..<200 {
      guard case .started(let child) = spawner.spawn(SpawnRequest(command: ["/bin/false"])) else {
        Issue.record("not started")
        return
      }
      var watch = pollfd(fd: child.pidfd.number, events: Int16(POLLIN), revents: 0)
      #expect(poll(&watch, 1, 20_000) == 1)
      #expect(ChildReaper.drain(ofThisThread: true).filter { $0.pid == child.pid }.map(\.status) == [.code(1)])
      #expect(ChildReaper.reap(child.pid) == nil)
    }
  }

  struct Verdict: CustomTestStringConvertible {
    var script: String, status: ExitStatus
    var testDescription: String { script }
  }
  @Test(
    arguments: [0, 1, 77, 126, 127, 143, 255].map { Verdict(script: "exit \($0)", status: .code($0)) }
      + [Signal.hup, .ill, .abrt, .bus, .fpe, .kill, .segv, .usr1, .pipe, .term, .sys, .xcpu].map {
        Verdict(script: "ulimit -c 0; kill -\($0.number) $$", status: .signal($0, core: false))
      })
  func `D10: its end is told as the kernel tells it`(_ verdict: Verdict) throws {
    #expect(try Children.run(Children.shell(verdict.script)).status == verdict.status)
  }

  @Test(.enabled(if: Children.isRoot, "not shown: needs root"))
  func `guardian can still dump core after a start as another user`() throws {
    let before = try #require(prctlDumpable())
    var request = SpawnRequest(command: ["/bin/true"])
    request.identity = Identity(user: "4711", uid: 4711, gid: 4711, groups: [4711], home: "/", shell: "/bin/sh")
    _ = try Children.run(request)
    #expect(prctlDumpable() == before)
  }
  /// prctl(2) is variadic, which Swift does not see.
  private func prctlDumpable() -> Int32? {
    typealias Prctl = @convention(c) (Int32, UInt, UInt, UInt, UInt) -> Int32
    guard let address = dlsym(nil, "prctl") else { return nil }
    return unsafeBitCast(address, to: Prctl.self)(3, 0, 0, 0, 0)
  }
}

/// Not shown without root: an ordinary user cannot become another.
@Suite(.enabled(if: Children.isRoot, "not shown: needs root")) struct `a start as another user` {
  private let somebody = Identity(
    user: "somebody", uid: 4711, gid: 4712, groups: [4712, 4713, 9, 4714], home: "/", shell: "/bin/sh")

  @Test(arguments: Way.allCases)
  func `J7: has the user, the group and the groups asked for, and no others`(_ way: Way) throws {
    var request = SpawnRequest(command: [
      "/bin/grep", "-E", "^(Uid|Gid|Groups|CapEff|CapPrm|CapInh|CapAmb)", "/proc/self/status",
    ])
    .by(way)
    request.identity = somebody
    let zero = "0000000000000000"
    #expect(
      try Children.run(request).output == """
        Uid:\t4711\t4711\t4711\t4711
        Gid:\t4712\t4712\t4712\t4712
        Groups:\t9 4712 4713 4714 
        CapInh:\t\(zero)
        CapPrm:\t\(zero)
        CapEff:\t\(zero)
        CapAmb:\t\(zero)

        """)
  }

  @Test(arguments: Way.allCases)
  func `J7: fails at the stage 'user' and starts nothing where the user cannot be had`(_ way: Way) throws {
    let scratch = try Scratch()
    // The number that means "leave it as it is" would keep root.
    var request = Children.shell("touch \(scratch.path)/started").by(way)
    request.identity = Identity(
      user: "nobody at all", uid: .max, gid: 4712, groups: [4712], home: "/", shell: "/bin/sh")
    let failure = try Children.failure(request)
    #expect(failure.stage == .identity)
    #expect(failure.sentence.contains("nobody at all"))
    #expect(access(scratch.path + "/started", F_OK) != 0)
  }

  @Test func `enters its directory as that user`() throws {
    let scratch = try Scratch()
    let closed = try scratch.directory("closed", mode: 0o700)
    var request = SpawnRequest(command: ["/bin/true"])
    request.identity = somebody
    request.directory = closed
    let failure = try Children.failure(request)
    #expect(failure.stage == .directory)
    #expect(failure.sentence.hasPrefix("cannot enter \(closed): user somebody may not"))
    #expect(!failure.missing && !failure.ownTrouble)
  }
}

@Suite struct `a start that fails` {
  @Test func `E9: every exec error has its own text`() throws {
    let scratch = try Scratch()
    var sentences: Set<String> = []
    func expect(
      _ command: [String], _ code: Int32, _ text: String, missing: Bool = false, ownTrouble: Bool = false,
      location: SourceLocation = #_sourceLocation
    ) throws {
      for way in Way.allCases {
        let failure = try Children.failure(SpawnRequest(command: command).by(way))
        #expect(failure.stage == .exec, sourceLocation: location)
        #expect(failure.errno == code, sourceLocation: location)
        #expect(failure.sentence.contains(text), "\(failure.sentence)", sourceLocation: location)
        #expect(failure.sentence.hasPrefix("cannot run \(command[0]): "), sourceLocation: location)
        #expect(failure.missing == missing, sourceLocation: location)
        #expect(failure.ownTrouble == ownTrouble, sourceLocation: location)
        sentences.insert(String(failure.sentence.dropFirst("cannot run \(command[0]): ".count)))
      }
    }
    try expect([scratch.path + "/none"], ENOENT, "no such file; check 'command'", missing: true)
    try expect(
      [try scratch.file("script", "#!/no/such/interpreter -x\n", mode: 0o755)], ENOENT,
      "its first line names /no/such/interpreter, which is not there", missing: true)
    try expect(
      [try scratch.file("dos", "#!/bin/sh\r\nexit 0\n", mode: 0o755)], ENOENT, "names /bin/sh\\r", missing: true)
    try expect([try scratch.file("plain", "#!/bin/sh\n", mode: 0o644)], EACCES, "try chmod +x")
    try expect([try scratch.directory("directory")], EACCES, "it is a directory")
    try expect(["/dev/null"], EACCES, "not a regular file")
    try expect([try scratch.file("text", "echo hello\n", mode: 0o755)], ENOEXEC, "as #!/bin/sh")
    try expect([try scratch.file("empty", "", mode: 0o755)], ENOEXEC, "the file is empty")
    try expect(
      [try scratch.file("elf", "\u{7F}ELF and then nothing that makes sense, but long enough", mode: 0o755)], ENOEXEC,
      "built for another machine")
    try expect([scratch.path + "/text/below"], ENOTDIR, "not a directory")
    #expect(symlink("loop", scratch.path + "/loop") == 0)
    try expect([scratch.path + "/loop"], ELOOP, "too many symbolic links")
    try expect(
      ["/bin/true", String(repeating: "x", count: 200_000)], E2BIG, "arguments and environment are too large")
    let busy = try scratch.file("busy", "#!/bin/sh\n", mode: 0o755)
    let writer = OwnedFD(adopting: open(busy, O_WRONLY | O_CLOEXEC))
    try expect([busy], ETXTBSY, "open for writing", ownTrouble: true)
    _ = consume writer
    try expect(["/" + String(repeating: "n", count: 300)], ENAMETOOLONG, "too long")
    #expect(sentences.count >= 14)
  }

  /// Not shown without CAP_SYS_ADMIN: nothing can be mounted.
  @Test(.enabled(if: HideSupport.available, "not shown: needs CAP_SYS_ADMIN"))
  func `E9: names a file system that executes nothing`() throws {
    let scratch = try Scratch()
    let place = try scratch.directory("noexec")
    let mount = try Children.run(Children.shell("mount -t tmpfs -o noexec tmpfs \(place)"))
    try #require(mount.status == .code(0), "not shown: \(mount.output)")
    defer { _ = try? Children.run(Children.shell("umount \(place)")) }
    let program = try scratch.file("noexec/program", "#!/bin/sh\n", mode: 0o755)
    let failure = try Children.failure(SpawnRequest(command: [program]))
    #expect(failure.errno == EACCES)
    #expect(failure.sentence == "cannot run \(program): its file system is mounted noexec")
  }

  /// Not shown without root: root's own processes are not counted, and nobody else can become another user.
  @Test(.enabled(if: Children.isRoot, "not shown: needs root"), arguments: Way.allCases)
  func `E2: a limit of processes is guardian's trouble, no crash, and is named with its value`(_ way: Way) throws {
    var request = SpawnRequest(command: ["/bin/true"]).by(way)
    request.identity = Identity(user: "4713", uid: 4713, gid: 4713, groups: [4713], home: "/", shell: "/bin/sh")
    // The kernel counts those that the user has already.
    request.command = ["/bin/sleep", "60"]
    let first = try Children.start(request)
    defer {
      kill(first.pid, SIGKILL)
      _ = try? Children.finish(first)
    }
    request.limits = [ResourceLimit(.processes, 0)]
    let failure = try Children.failure(request)
    #expect(failure.stage == .exec && failure.errno == EAGAIN && failure.ownTrouble && !failure.missing)
    #expect(failure.sentence.contains("RLIMIT_NPROC is 0"))
  }

  @Test func `names the directory that is not there`() throws {
    var request = SpawnRequest(command: ["/bin/true"])
    request.directory = "/no/such/directory"
    let failure = try Children.failure(request)
    #expect(failure.stage == .directory && failure.errno == ENOENT && failure.missing)
    #expect(failure.sentence == "cannot enter /no/such/directory: no such directory; check 'directory'")
    request.directory = "/etc/passwd"
    #expect(try Children.failure(request).sentence == "cannot enter /etc/passwd: not a directory; check 'directory'")
  }

  @Test func `refuses a relative program and a NUL byte before anything is born`() throws {
    #expect(try Children.failure(SpawnRequest(command: ["true"])).sentence.contains("absolute path"))
    #expect(try Children.failure(SpawnRequest(command: [])).stage == .exec)
    #expect(try Children.failure(SpawnRequest(command: ["/bin/true", "a\0b"])).stage == .prepare)
  }

  @Test func `names a descriptor that is not open`() throws {
    var request = SpawnRequest(command: ["/bin/true"])
    request.passed = [.init(target: 3, source: 999_999)]
    let failure = try Children.failure(request)
    #expect(failure.stage == .descriptors && failure.errno == EBADF)
  }

  @Test func `has stages with the raw values of the C header`() {
    #expect(SpawnFailure.Stage.clone.rawValue == 1)
    #expect(SpawnFailure.Stage.exec.rawValue == 12)
  }
}

func entries(of directory: String) -> [String] {
  guard let stream = opendir(directory) else { return [] }
  defer { closedir(stream) }
  var names: [String] = []
  while let entry = readdir(stream) {
    let name = withUnsafePointer(to: &entry.pointee.d_name) {
      $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
    }
    if name != "." && name != ".." { names.append(name) }
  }
  return names
}
