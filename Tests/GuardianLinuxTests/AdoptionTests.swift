import Glibc
@testable import GuardianLinux
import GuardianModel
import Testing

/// `guardian-probe`, which is built with every test.
enum Probe {
  static let path: String = {
    var buffer = [UInt8](repeating: 0, count: 4096)
    let length = readlink("/proc/self/exe", &buffer, buffer.count)
    let own = String(decoding: buffer.prefix(max(length, 0)), as: UTF8.self)
    let beside = own.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
    if access(beside + "/guardian-probe", X_OK) == 0 { return beside + "/guardian-probe" }
    let root = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
    return root + "/.build/debug/guardian-probe"
  }()

  static func request(_ arguments: [String], _ environment: [String] = []) -> SpawnRequest {
    SpawnRequest(command: [path] + arguments, environment: ["PATH=/usr/bin:/bin"] + environment)
  }
  static func run(_ arguments: String..., environment: [String] = []) throws -> Finished {
    try Children.run(request(arguments, environment))
  }
}

@Suite struct `a process that an earlier guardian started` {
  private func startTicks(_ pid: Int32) throws -> UInt64 { try #require(ProcessLook(pid)).startTicks }

  @Test func `is found by pid and start, and by nothing less`() throws {
    let child = try Children.start(Children.shell("exec sleep 60"))
    let ticks = try startTicks(child.pid)
    #expect(AdoptedProcess.find(pid: child.pid, startTicks: ticks + 1) == nil)
    #expect(AdoptedProcess.find(pid: getpid(), startTicks: try startTicks(getpid())) == nil)
    #expect(AdoptedProcess.find(pid: 1, startTicks: ProcessLook(1)?.startTicks ?? 0) == nil)
    #expect(AdoptedProcess.find(pid: -5, startTicks: 0) == nil)
    let found = try #require(AdoptedProcess.find(pid: child.pid, startTicks: ticks))
    #expect(found.pid == child.pid && !found.hasEnded && !found.isReaped && found.exitStatus() == nil)
    #expect(fcntl(found.pidfd, F_GETFD) & FD_CLOEXEC != 0)

    #expect(try found.signal(.kill))
    #expect(Children.eventually { found.hasEnded })
    // A zombie: the kernel does not tell yet, and a patient asker waits.
    #expect(found.exitStatus() == nil && !found.isReaped)
    #expect(found.exitStatus(patient: false) == .unseen)
    #expect(AdoptedProcess.find(pid: child.pid, startTicks: ticks) == nil)
    #expect(try Children.finish(child) == .signal(.kill, core: false))
    #expect(found.isReaped)
    #expect(try !found.signal(.kill))
    #expect(found.exitStatus() == (Self.kernelTells ? .signal(.kill, core: false) : .unseen))
    #expect(AdoptedProcess.find(pid: child.pid, startTicks: ticks) == nil)
  }

  /// Linux 6.15 and newer.
  static let kernelTells: Bool = {
    var names = utsname()
    uname(&names)
    let release = withUnsafeBytes(of: &names.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    let numbers = release.split { !$0.isNumber }.prefix(2).compactMap { Int($0) }
    return numbers.count == 2 && (numbers[0], numbers[1]) >= (6, 15)
  }()

  @Test(arguments: [
    ("exit 7", ExitStatus.code(7)), ("kill -USR1 $$", .signal(.usr1, core: false)), ("exit 0", .code(0)),
  ])
  func `its exit status is seen by one that is not its parent`(script: String, status: ExitStatus) throws {
    let go = try Pipe()
    var request = Children.shell("read line; \(script)")
    request.input = .descriptor(go.read)
    let child = try Children.start(request)
    let pipe = try Pipe()
    var probe = Probe.request(["adopt", "\(child.pid)", "\(try startTicks(child.pid))"])
    probe.output = .descriptor(pipe.write)
    let watcher = try Children.start(probe)
    pipe.closeWrite()
    var line = [UInt8](repeating: 0, count: 8)
    #expect(read(pipe.read, &line, 8) == 8)
    #expect(String(decoding: line, as: UTF8.self) == "adopted\n")
    _ = write(go.write, "\n", 1)
    #expect(try Children.finish(child) == status)
    #expect(Children.readAll(pipe.read) == (Self.kernelTells ? "\(status)\n" : "unseen\n"))
    #expect(try Children.finish(watcher) == .code(0))
  }

  @Test func `with the switch for older kernels its end is noticed and its status is not`() throws {
    let child = try Children.start(Children.shell("exec sleep 60"))
    let pipe = try Pipe()
    var probe = Probe.request(["adopt", "\(child.pid)", "\(try startTicks(child.pid))"], ["GUARDIAN_NO_PIDFD_INFO=1"])
    probe.output = .descriptor(pipe.write)
    let watcher = try Children.start(probe)
    pipe.closeWrite()
    var line = [UInt8](repeating: 0, count: 8)
    #expect(read(pipe.read, &line, 8) == 8)
    try ProcessHandle.signal(child.pidfd.number, .term)
    _ = try Children.finish(child)
    #expect(Children.readAll(pipe.read).contains("unseen"))
    #expect(try Children.finish(watcher) == .code(0))
  }

  @Test func `one whose pid nobody wrote down is found by its run`() throws {
    let runs = (0..<3).map { RunID(high: .random(in: 1 ... .max), low: $0) }
    func start(_ run: RunID) throws -> Child {
      var request = Children.shell("sleep 60 & exec sleep 60")
      request.environment.append("INVOCATION_ID=\(run)")
      return try Children.start(request)
    }
    let first = try start(runs[0])
    let second = try start(runs[1])
    let found = AdoptedProcess.find(runs: Set(runs))
    #expect(found.mapValues(\.pid) == [runs[0]: first.pid, runs[1]: second.pid])
    #expect(AdoptedProcess.find(runs: []).isEmpty)
    for pid in [first.pid, second.pid] { kill(-pid, SIGKILL) }
    _ = try Children.finish(first)
    _ = try Children.finish(second)
    #expect(AdoptedProcess.find(runs: Set(runs)).isEmpty)
  }

  @Test func `the numbers of a boot`() {
    let boot = BootID.current()
    #expect(boot.utf8.count == 36 && boot == BootID.current())
  }
}

/// As if this process had come after the one that started them: descent from it proves nothing here.
@Suite struct `the set of an adopted run` {
  private let run = RunID(high: 0x0123_4567_89AB_CDEF, low: .random(in: 1 ... .max))
  init() throws { try Subreaper.enable() }

  private func start(_ script: String, _ output: Pipe, run: RunID?) throws -> Child {
    var request = Children.shell(script)
    if let run { request.environment.append("INVOCATION_ID=\(run)") }
    request.output = .descriptor(output.write)
    return try Children.start(request)
  }
  private func pids(_ pipe: Pipe, _ count: Int) throws -> [Int32] {
    var text = ""
    while text.split(separator: "\n").count < count || !text.hasSuffix("\n") {
      var byte: UInt8 = 0
      try #require(read(pipe.read, &byte, 1) == 1)
      text.append(Character(Unicode.Scalar(byte)))
    }
    return text.split(separator: "\n").compactMap { Int32($0) }
  }
  private func end(_ members: [ProcessSet.Member]) {
    ProcessSet.signal(members, .kill)
    for member in members { _ = Children.eventually(within: 5) { ChildReaper.reap(member.pid) != nil } }
  }

  @Test func `holds main, group, session, those with its invocation, and what descends`() throws {
    let pipe = try Pipe()
    let child = try start(
      "echo $$; sleep 60 & echo $!; setsid sh -c 'echo $$; sleep 60 & echo $!; wait' & wait", pipe, run: run)
    let all = try pids(pipe, 4)
    let ticks = try #require(ProcessLook(child.pid)).startTicks
    let set = ProcessSet(leader: child.pid, run: run, adoptedStart: ticks)
    // The background shell of `setsid` may be a fifth.
    let found = Set(set.members(in: .take()).map(\.pid))
    #expect(found.isSuperset(of: all) && !found.contains(getpid()))
    #expect(!set.isSurelyEmpty(Orphans(looks: [])))

    try ProcessHandle.signal(child.pidfd.number, .kill)
    _ = try Children.finish(child)
    let left = set.members(Orphans(looks: []), mainLives: false)
    #expect(Set(left.map(\.pid)).isSuperset(of: all.dropFirst()))
    end(left)
    #expect(Children.eventually { set.members(in: .take()).isEmpty })
  }

  @Test func `a session whose number proves nothing is left alone`() throws {
    let pipe = try Pipe()
    // Nothing in here carries the invocation, so after main's end nobody can tell whose session this is.
    let child = try start("echo $$; sleep 60 & echo $!; wait", pipe, run: nil)
    let all = try pids(pipe, 2)
    let ticks = try #require(ProcessLook(child.pid)).startTicks
    let set = ProcessSet(leader: child.pid, run: run, adoptedStart: ticks)
    #expect(Set(set.members(in: .take()).map(\.pid)) == Set(all))
    // Another process with main's number: nothing is proven by its session either.
    let reused = ProcessSet(leader: child.pid, run: run, adoptedStart: ticks - 1)
    #expect(reused.members(in: .take()).isEmpty)

    try ProcessHandle.signal(child.pidfd.number, .kill)
    _ = try Children.finish(child)
    #expect(set.members(in: .take()).isEmpty)
    #expect(ProcessLook(all[1])?.isDead == false)
    kill(all[1], SIGKILL)
    #expect(Children.eventually { ChildReaper.reap(all[1]) != nil })
  }

  @Test func `who wiped its environment but kept the session is held as long as a known one is in it`() throws {
    let pipe = try Pipe()
    let child = try start("echo $$; env -i sleep 60 & echo $!; sleep 60 & echo $!; wait", pipe, run: run)
    let all = try pids(pipe, 3)
    #expect(Children.eventually { ProcessTable.invocation(of: all[1]) == nil })
    let ticks = try #require(ProcessLook(child.pid)).startTicks
    let set = ProcessSet(leader: child.pid, run: run, adoptedStart: ticks)
    try ProcessHandle.signal(child.pidfd.number, .kill)
    _ = try Children.finish(child)
    let left = set.members(in: .take())
    #expect(Set(left.map(\.pid)) == Set(all.dropFirst()))
    // Older than main: never, whatever it carries.
    #expect(ProcessSet(leader: child.pid, run: run, adoptedStart: ticks + 1_000_000).members(in: .take()).isEmpty)
    end(left)
  }

  @Test func `a run that we started has no such members`() {
    #expect(ProcessSet(leader: getpid(), run: run).members(in: .take()).isEmpty)
  }
}

@Suite struct `a mark of a birth` {
  @Test(arguments: [false, true])
  func `is left by the child itself, and is there for whoever opens the file next`(slowly: Bool) throws {
    let scratch = try Scratch()
    let run = RunID(high: 7, low: 9)
    var child: Child?
    do {
      let marks = try BirthMarks(directory: scratch.path)
      var request = Children.shell("exec sleep 60")
      request.forceSlowPath = slowly
      request.mark = marks.place(of: ServiceID(3), for: run)
      child = try Children.start(request)
    }
    guard let child = child.take() else { return }
    let mark = try #require(try BirthMarks(directory: scratch.path).all()[run])
    #expect(mark.pid == child.pid && mark.process()?.pid == child.pid)
    var about = stat()
    #expect(stat("\(scratch.path)/births", &about) == 0 && about.st_mode & 0o777 == 0o600)
    // Whoever is younger than the mark has only got the number.
    var before = mark
    before.at = .zero
    #expect(before.process() == nil)
    try ProcessHandle.signal(child.pidfd.number, .kill)
    _ = try Children.finish(child)
    #expect(mark.process() == nil)
  }

  @Test func `a file that is a link, or not as long as it should be, is not read`() throws {
    let scratch = try Scratch()
    try scratch.file("births", "short")
    #expect(try BirthMarks(directory: scratch.path).all().isEmpty)
    unlink(scratch.path + "/births")
    #expect(symlink("/etc/passwd", scratch.path + "/births") == 0)
    #expect(throws: SystemError.self) { try BirthMarks(directory: scratch.path) }
  }
}
