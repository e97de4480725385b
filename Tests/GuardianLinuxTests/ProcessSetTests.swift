import Glibc
@testable import GuardianLinux
import GuardianModel
import Testing

/// Orphans come to the process that runs the tests, which becomes a subreaper for good; each is ended and reaped by pid.
@Suite struct `the set of a run` {
  private let run = RunID(high: 0x0123_4567_89AB_CDEF, low: .random(in: 1 ... .max))
  init() throws { try Subreaper.enable() }

  private func start(_ script: String, _ output: Pipe? = nil) throws -> Child {
    var request = Children.shell(script)
    request.environment.append("INVOCATION_ID=\(run)")
    if let output { request.output = .descriptor(output.write) }
    return try Children.start(request)
  }

  /// Children of other tests, which run at the same time, are looked at too: none of them may be taken for ours.
  private func members(_ set: ProcessSet, mainLives: Bool) -> [ProcessSet.Member] {
    set.members(Orphans.scan { $0 == set.leader }, mainLives: mainLives)
  }

  /// Ends all of the set and reaps it; the proof that the set can be emptied.
  private func empty(_ set: ProcessSet) -> Bool {
    Children.eventually {
      let left = members(set, mainLives: false)
      ProcessSet.signal(left, .kill)
      for member in left { _ = ChildReaper.reap(member.pid) }
      return left.isEmpty
    }
  }

  @Test func `is its main process, and nothing when that has gone`() throws {
    let child = try start("exec sleep 60")
    let set = ProcessSet(leader: child.pid, run: run)
    #expect(members(set, mainLives: true).map(\.pid) == [child.pid])
    try ProcessHandle.signal(child.pidfd.number, .kill)
    _ = try Children.finish(child)
    #expect(members(set, mainLives: false).isEmpty)
    #expect(set.isSurelyEmpty(Orphans(looks: [])))
  }

  @Test func `holds the children of its main process, and theirs`() throws {
    let pipe = try Pipe()
    let child = try start("sh -c 'sleep 60 & echo; wait' & wait", pipe)
    var byte: UInt8 = 0
    #expect(read(pipe.read, &byte, 1) == 1)
    let set = ProcessSet(leader: child.pid, run: run)
    #expect(members(set, mainLives: true).count == 3)
    try ProcessHandle.signal(child.pidfd.number, .kill)
    _ = try Children.finish(child)
    #expect(members(set, mainLives: false).count == 2)
    #expect(empty(set))
  }

  @Test func `CASES 19, D3: holds a grandchild that made a session of its own, by its invocation`() throws {
    let pipe = try Pipe()
    let child = try start("setsid sh -c 'echo $$; exec sleep 60' & wait $!; exit 3", pipe)
    pipe.closeWrite()
    var text = [UInt8](repeating: 0, count: 32)
    let count = read(pipe.read, &text, text.count)
    let escaped = try #require(Int32(String(decoding: text.prefix(max(count - 1, 0)), as: UTF8.self)))
    try ProcessHandle.signal(child.pidfd.number, .kill)
    _ = try Children.finish(child)

    let set = ProcessSet(leader: child.pid, run: run)
    let look = try #require(ProcessLook(escaped))
    #expect(look.session == escaped && look.parent == getpid())
    #expect(!set.isSurelyEmpty(Orphans.scan { _ in false }))
    #expect(members(set, mainLives: false).map(\.pid) == [escaped])
    // Another run has no claim to it.
    let other = ProcessSet(leader: child.pid, run: RunID(high: 1, low: 1))
    #expect(members(other, mainLives: false).isEmpty)
    #expect(empty(set))
    #expect(ProcessLook(escaped) == nil || ProcessLook(escaped)?.isDead == true)
  }

  @Test func `holds a daemon that forked twice while its main process lives on`() throws {
    let pipe = try Pipe()
    let child = try start("(setsid sh -c 'sleep 60 & echo' &) ; exec sleep 60", pipe)
    var byte: UInt8 = 0
    #expect(read(pipe.read, &byte, 1) == 1)
    let set = ProcessSet(leader: child.pid, run: run)
    #expect(Children.eventually { members(set, mainLives: true).count == 2 })
    ProcessSet.signal(members(set, mainLives: true), .kill)
    #expect(try Children.finish(child) == .signal(.kill, core: false))
    #expect(empty(set))
  }

  @Test func `a stopped process and one that ignores TERM can be ended`() throws {
    let child = try start("trap '' TERM; kill -STOP $$; exec sleep 60")
    #expect(Children.eventually { ProcessLook(child.pid)?.state == UInt8(ascii: "T") })
    let set = ProcessSet(leader: child.pid, run: run)
    #expect(ProcessSet.signal(members(set, mainLives: true), .term) == 1)
    #expect(ProcessLook(child.pid)?.state == UInt8(ascii: "T"))
    #expect(ProcessSet.signal(members(set, mainLives: true), .kill) == 1)
    #expect(try Children.finish(child) == .signal(.kill, core: false))
  }

  @Test func `a process that is not the one it was is not signalled`() throws {
    let child = try start("exec sleep 60")
    var look = try #require(ProcessLook(child.pid))
    look.startTicks += 1
    #expect(ProcessSet.signal([ProcessSet.Member(look)], .kill) == 0)
    try ProcessHandle.signal(child.pidfd.number, .kill)
    #expect(try Children.finish(child) == .signal(.kill, core: false))
    #expect(ProcessSet.signal([ProcessSet.Member(look)], .kill) == 0)
    #expect(try ProcessHandle.signal(child.pidfd.number, .kill) == false)
  }

  @Test func `zombies do not count`() throws {
    let child = try start("exit 0")
    var watch = pollfd(fd: child.pidfd.number, events: Int16(POLLIN), revents: 0)
    #expect(poll(&watch, 1, 20_000) == 1)
    let set = ProcessSet(leader: child.pid, run: run)
    #expect(members(set, mainLives: true).isEmpty)
    _ = try Children.finish(child)
  }
}

@Suite struct `the tables of the kernel` {
  @Test func `a process may have any name`() throws {
    let rest = "S 7 4711 12 34817 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 998877 1 2 3\n"
    for name in ["sh", "a) R 1 1 1", "((", "two words", "\n"] {
      let look = try #require(ProcessLook(stat: Array("4712 (\(name)) \(rest)".utf8)))
      #expect(look.pid == 4712 && look.parent == 7 && look.group == 4711 && look.session == 12)
      #expect(look.startTicks == 998877 && look.state == UInt8(ascii: "S"))
    }
  }

  @Test(arguments: ["", "(", ")(", "12", "12 (x)", "12 (x) S", "x (y) S 1 2 3", "12 (x) S 99999999999 1 1"])
  func `a line that is none is no process`(_ text: String) {
    #expect(ProcessLook(stat: Array(text.utf8)) == nil)
  }

  @Test func `remote mounts are told from local ones`() {
    let table = """
      22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
      23 22 0:21 / /srv/share\\040two rw shared:9 master:3 - nfs4 server:/x rw
      24 22 0:22 / /sys/fs/fuse/connections rw - fusectl none rw
      25 22 0:23 / /home/a rw - fuse.sshfs a@b: rw
      26 22 broken
      x

      27 22 0:9 / /tmp rw - tmpfs
      28 22 0:9 / /tmp rw -
      """
    #expect(MountTable.remoteMounts(in: Array(table.utf8)) == [23, 25])
  }

  @Test func `numbers are read whatever stands around them`() {
    #expect(
      FileText.numbers(in: Array("1 22\n-3x 2147483647 2147483648 99999999999999999999 4".utf8)) == [1, 22, 3, .max, 4])
    #expect(FileText.numbers(in: []) == [])
    #expect(FileText.number(after: "b:", in: Array("a:\t1\nbb: 2\nb: \t30\n".utf8)) == 30)
    #expect(FileText.number(after: "b:", in: Array("b: 99999999999999999999\n".utf8)) == nil)
    #expect(FileText.number(after: "b:", in: Array("ab: 1\nb:".utf8)) == nil)
  }

  @Test func `the count of processes killed for want of memory is read again and again`() {
    let counter = OOMCounter()
    let first = counter.read()
    #expect(first != nil && counter.read() != nil)
    #expect(OOMCounter.count(in: Array("pgpgin 4\noom_kill 17\nx 1\n".utf8)) == 17)
    #expect(OOMCounter.count(in: Array("oom_kill x\n".utf8)) == nil)
  }
}

@Suite struct `the user database` {
  @Test func `knows root by name and by number, with all groups`() throws {
    for user in ["root", "0"] {
      let identity = try UserDatabase.identity(user: user)
      #expect(identity.user == "root" && identity.uid == 0 && identity.gid == 0)
      #expect(identity.groups.contains(0) && identity.home == "/root")
    }
  }

  @Test(arguments: ["no-such-user", "", "4294967295", "99999999999", "-1", "a\0b", "root "])
  func `never falls back to anybody`(_ user: String) {
    #expect(throws: UserDatabase.Failure.self) { try UserDatabase.identity(user: user) }
  }

  @Test func `takes another group, and needs one for a number that it does not know`() throws {
    let daemon = try UserDatabase.identity(user: "daemon", groupOverride: "adm")
    #expect(daemon.gid == 4 && daemon.groups.contains(4))
    let error = #expect(throws: UserDatabase.Failure.self) { try UserDatabase.identity(user: "47110") }
    #expect(error?.reason == "uid 47110 is not in the user database, so its group is not known; add 'group'")
    #expect(error?.unanswered == false)
    let number = try UserDatabase.identity(user: "47110", groupOverride: "47111")
    #expect(number.uid == 47110 && number.gid == 47111 && number.groups == [47111])
    #expect(throws: UserDatabase.Failure.self) {
      try UserDatabase.identity(user: "root", groupOverride: "no-such-group")
    }
  }

  @Test func `knows who runs this`() throws {
    let own = try UserDatabase.own()
    #expect(own.uid == geteuid() && own.gid == getegid() && own.groups.contains(getegid()))
  }
}

@Suite struct `errors in words` {
  @Test func `have a reason and a name each`() {
    #expect(ErrnoText.reason(ENOENT) == "no such file or directory")
    #expect(ErrnoText.reason(EDOM) == "numerical argument out of domain")
    #expect(ErrnoText.reason(4711) == "error 4711")
    #expect(ErrnoText.name(ENOENT) == "ENOENT" && ErrnoText.name(4711) == "errno 4711")
    #expect(SystemError("open", "/x", errno: EACCES).description == "cannot open /x: permission denied")
  }
}
