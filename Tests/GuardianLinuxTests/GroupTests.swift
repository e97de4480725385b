import Glibc
import GuardianLinux
import GuardianModel
import Testing

/// A piece of the tree for one test, gone with the value.
private final class Piece {
  let groups: ControlGroups

  init() throws {
    let path = "/guardian-linux-tests-\(getpid())-\(UInt32.random(in: 0 ... .max))"
    groups = try ControlGroups.find(.path(path), identity: "test", isMain: false)
  }
  deinit {
    for name in groups.all() { _ = groups.kill(name) }
    _ = Children.eventually(within: 5) {
      groups.removeAll()
      return groups.all().isEmpty
    }
    rmdir(groups.directory)
  }

  /// A shell in the group `name`.
  func start(_ script: String, in name: String) throws -> Child {
    let place = try groups.open(name)
    var request = Children.shell(script)
    request.group = place.number
    let child = try Children.start(request)
    _ = consume place
    return child
  }
}

/// Why there is none here.
private let missing: String? = {
  do {
    _ = try Piece()
    return nil
  } catch { return "\(error)" }
}()

@Suite(.enabled(if: missing == nil, "not shown: \(missing ?? "")")) struct `a control group` {
  @Test func `is empty until a child is born in it, and again when the last is gone`() throws {
    let piece = try Piece(), groups = piece.groups
    #expect(groups.state("a") == nil)
    try groups.make("a")
    #expect(groups.state("a")?.populated == false && groups.state("a")?.frozen == false)
    let child = try piece.start("sleep 1000 & exec sleep 1000", in: "a")
    #expect(groups.state("a")?.populated == true)
    #expect(Children.eventually { groups.processes("a").count == 2 })
    #expect(groups.holds("a", child.pid) && !groups.holds("a", getpid()))
    #expect(groups.name(of: child.pid) == "a" && groups.name(of: getpid()) == nil)
    #expect(!groups.remove("a"))
    let watch = try groups.watch("a")
    #expect(ControlGroups.state(of: watch.number)?.populated == true)
    #expect(groups.kill("a"))
    var event = pollfd(fd: watch.number, events: Int16(POLLPRI), revents: 0)
    #expect(poll(&event, 1, 20_000) == 1)
    #expect(ControlGroups.state(of: watch.number)?.populated == false)
    #expect(try Children.finish(child) == .signal(.kill, core: false))
    #expect(groups.remove("a") && groups.state("a") == nil)
  }

  @Test func `is made anew after a kill, and who is born in it then lives`() throws {
    // Linux 6.18 kills whoever is born in a group in which cgroup.kill was used once.
    let piece = try Piece(), groups = piece.groups
    try groups.make("a")
    let first = try piece.start("exec sleep 1000", in: "a")
    #expect(groups.kill("a"))
    _ = try Children.finish(first)
    #expect(Children.eventually { groups.remove("a") })
    try groups.make("a")
    let second = try piece.start("exit 7", in: "a")
    #expect(try Children.finish(second) == .code(7))
  }

  @Test func `can be used again as long as nothing stays with it`() throws {
    let piece = try Piece(), groups = piece.groups
    let keepsAccounts = groups.controllers.contains(.memory)
    func can(_ name: String) -> Bool { groups.canBeUsedAgain(name) || keepsAccounts }
    try groups.make("a")
    #expect(can("a"))
    let child = try piece.start("exec sleep 1000", in: "a")
    #expect(!groups.canBeUsedAgain("a"), "somebody is in it")
    kill(child.pid, SIGTERM)
    _ = try Children.finish(child)
    #expect(Children.eventually { can("a") })
    // A group of the service's own.
    #expect(mkdir(groups.directory + "/a/theirs", 0o755) == 0)
    #expect(!groups.canBeUsedAgain("a"))
    rmdir(groups.directory + "/a/theirs")
    #expect(can("a"))
    #expect(groups.kill("a"))
    #expect(!groups.canBeUsedAgain("a"), "the kernel kills whoever is born in it")
    #expect(groups.remove("a"))
    #expect(!groups.canBeUsedAgain("a"))
    // Found, and not made.
    #expect(mkdir(groups.directory + "/a", 0o755) == 0)
    try groups.make("a")
    #expect(!groups.canBeUsedAgain("a"))
  }

  @Test func `is proved by a child that lives in it`() throws {
    let piece = try Piece()
    try piece.groups.prove()
    #expect(piece.groups.all() == [])
  }

  @Test func `remembers whose it is`() throws {
    let piece = try Piece(), groups = piece.groups
    try groups.make("a")
    #expect(groups.run(of: "a") == nil)
    let run = RunID(high: 0x0123_4567_89ab_cdef, low: 42)
    groups.mark("a", run)
    #expect(groups.run(of: "a") == run)
  }

  @Test func `is removed with what a service has made below it`() throws {
    let piece = try Piece(), groups = piece.groups
    try groups.make("a")
    let child = try piece.start(
      "mkdir -p \(groups.directory)/a/b/c && echo $$ >\(groups.directory)/a/b/c/cgroup.procs && exec sleep 1000",
      in: "a")
    #expect(Children.eventually { ControlGroups.path(of: "\(child.pid)") == groups.path + "/a/b/c" })
    #expect(groups.processes("a") == [child.pid] && groups.holds("a", child.pid))
    #expect(groups.state("a")?.populated == true)
    #expect(groups.signal("a", .term) == 1)
    #expect(try Children.finish(child) == .signal(.term, core: false))
    #expect(Children.eventually { groups.remove("a") })
    #expect(groups.all() == [])
  }

  @Test func `that is frozen says so, and goes on when it is thawed`() throws {
    let piece = try Piece(), groups = piece.groups
    try groups.make("a")
    let child = try piece.start("while :; do sleep .01; done", in: "a")
    let file = try #require(fopen(groups.directory + "/a/cgroup.freeze", "w"))
    fputs("1", file)
    fclose(file)
    #expect(Children.eventually { groups.state("a")?.frozen == true })
    groups.thaw("a")
    #expect(groups.state("a")?.frozen == false)
    #expect(groups.kill("a"))
    _ = try Children.finish(child)
  }

  @Test func `is entered on the slow road too`() throws {
    let piece = try Piece(), groups = piece.groups
    try groups.make("a")
    let place = try groups.open("a")
    var request = Children.shell("exec sleep 1000")
    request.group = place.number
    request.forceSlowPath = true
    let child = try Children.start(request)
    _ = consume place
    #expect(groups.holds("a", child.pid))
    #expect(groups.kill("a"))
    _ = try Children.finish(child)
  }

  @Test func `that is gone is no place to be born in`() throws {
    let piece = try Piece(), groups = piece.groups
    try groups.make("a")
    let place = try groups.open("a")
    #expect(groups.remove("a"))
    var request = Children.shell("exit 0")
    request.group = place.number
    let failure = try Children.failure(request)
    _ = consume place
    #expect(failure.stage == .clone && [ENODEV, ENOENT].contains(failure.errno), "\(failure)")
  }

  @Test func `without a controller tells which limits are not in force, and why`() throws {
    let piece = try Piece(), groups = piece.groups
    try groups.make("a")
    groups.enable([.memory, .pids])
    let faults = groups.limit("a", to: GroupLimits(memory: 1 << 30, tasks: 100), before: GroupLimits())
    for controller in [ControlGroups.Controller.memory, .pids] {
      #expect(groups.controllers.contains(controller) == (groups.refused[controller] == nil))
    }
    #expect(faults.count == [.memory, .pids].count { groups.refused[$0] != nil }, "\(faults)")
    #expect(groups.limit("a", to: GroupLimits(), before: GroupLimits()) == [])
    if groups.controllers.contains(.pids) { #expect(FileText.text(groups.directory + "/a/pids.max") == "100\n") }
  }

  @Test func `that nobody may use is told why`() {
    #expect(throws: ControlGroups.Unavailable("switched off by 'cgroup: off'")) {
      try ControlGroups.find(.off, identity: "test", isMain: false)
    }
  }
}
