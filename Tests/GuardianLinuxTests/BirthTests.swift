import Glibc
import GuardianLinux
import GuardianModel
import Testing

private let somebody = Identity(
  user: "somebody", uid: 4711, gid: 4712, groups: [4712, 4713], home: "/", shell: "/bin/sh")

private func capability(_ name: String) throws -> Capability { try #require(Capability(name: name)) }

private func has(_ name: String) -> Bool { Capability(name: name).map { Capabilities.permitted.contains($0) } ?? false }

@Suite struct `a birth` {
  private func ask(_ request: SpawnRequest) throws -> [String: String] {
    let run = try Children.run(request)
    var found: [String: String] = [:]
    for line in run.output.split(separator: "\n") {
      let words = line.split(separator: ":")
      if words.count == 2 { found[String(words[0])] = words[1].split(separator: "\t").first.map(String.init) }
    }
    return found
  }

  /// Not shown without root: there is nothing to be kept.
  @Test(
    .enabled(if: Children.isRoot && has("net-bind-service") && has("chown"), "not shown: needs root"),
    arguments: Way.allCases)
  func `leaves a user the capabilities asked for, and no other`(_ way: Way) throws {
    var request = SpawnRequest(command: ["/bin/grep", "^Cap\\|^Uid\\|^Groups", "/proc/self/status"])
    request.forceSlowPath = way == .separate
    request.identity = somebody
    let none = try ask(request)
    #expect(none["CapPrm"] == "0000000000000000" && none["CapAmb"] == "0000000000000000")
    request.capabilities = [try capability("chown"), try capability("net-bind-service")]
    let two = try ask(request)
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] { #expect(two[set] == "0000000000000401", "\(two)") }
    #expect(two["CapBnd"] == none["CapBnd"] && two["Uid"] == "4711" && two["Groups"] == "4712 4713 ")
    // Guardian keeps its own, and the right to dump core.
    #expect(Capabilities.permitted.count > 2)
  }

  /// Not shown where guardian has them all.
  @Test(
    .enabled(if: Children.isRoot && !has("sys-resource"), "not shown: CAP_SYS_RESOURCE is there"),
    arguments: Way.allCases)
  func `that cannot keep a capability fails at that stage, and names it`(_ way: Way) throws {
    let scratch = try Scratch()
    var request = Children.shell("touch \(scratch.path)/started")
    request.forceSlowPath = way == .separate
    request.identity = somebody
    request.capabilities = [try capability("chown"), try capability("sys-resource")]
    let failure = try Children.failure(request)
    #expect(failure.stage == .capabilities && failure.target == "sys-resource" && !failure.ownTrouble)
    #expect(failure.sentence.hasPrefix("cannot keep capability sys-resource: guardian does not have it"))
    #expect(access(scratch.path + "/started", F_OK) != 0)
  }

  @Test(arguments: Way.allCases)
  func `tells the program its own pid where that is asked for`(_ way: Way) throws {
    var request = Children.shell("echo $LISTEN_PID $$ $OTHER")
    request.environment.append("OTHER=x")
    request.forceSlowPath = way == .separate
    request.ownPidVariable = "LISTEN_PID"
    for _ in 0..<3 {
      let run = try Children.run(request)
      #expect(run.output == "\(run.pid) \(run.pid) x\n")
    }
  }

  @Test(arguments: Way.allCases)
  func `D7, CASES 43: leaves nothing at the numbers 3 to 1023, whatever guardian has open`(_ way: Way) throws {
    var open: [OwnedFDBox] = []
    for _ in 0..<300 { open.append(OwnedFDBox(Glibc.open("/dev/null", O_RDWR))) }  // no CLOEXEC, on purpose
    var request = SpawnRequest(command: [
      "/bin/bash", "-c", "exec 0<&- 1>&3 2>&-; for ((n = 3; n < 1024; n++)); do echo x >&$n && echo $n; done; :",
    ])
    request.forceSlowPath = way == .separate
    let pipe = try Pipe()
    request.passed = [.init(target: 3, source: pipe.write)]
    let child = try Children.start(request)
    pipe.closeWrite()
    // The pipe itself is there, and nothing else.
    #expect(Children.readAll(pipe.read) == "x\n3\n")
    _ = try Children.finish(child)
    withExtendedLifetime(open) {}
  }

  @Test(.enabled(if: !isSanitized, "not shown: a sanitized program ends by other means"), arguments: Way.allCases)
  func `D8: a program cannot reach guardian by its group or its session`(_ way: Way) throws {
    // To its own group, which would be guardian's if it had none of its own.
    var request = Children.shell("kill -USR1 0; kill -HUP -- -$$; sleep 60")
    request.forceSlowPath = way == .separate
    let child = try Children.start(request)
    let status = try Children.finish(child)
    #expect(status == .signal(.usr1, core: false) || status == .signal(.hup, core: false))
  }

  @Test(arguments: Way.allCases)
  func `D17: has no terminal to open, to read or to be hung up by`(_ way: Way) throws {
    var request = Children.shell("(exec 3</dev/tty) 2>/dev/null && echo opened; cut -d' ' -f7 /proc/$$/stat")
    request.forceSlowPath = way == .separate
    #expect(try Children.run(request).output == "0\n")
  }
}

private final class OwnedFDBox {
  let number: Int32
  init(_ number: Int32) { self.number = number }
  deinit { close(number) }
}

@Suite struct `what a program needs to be executed` {
  /// A 64-bit ELF file of one segment, which names its loader.
  private func elf(machine: UInt16, loader: String) -> [UInt8] {
    func little<T: FixedWidthInteger>(_ value: T) -> [UInt8] { withUnsafeBytes(of: value.littleEndian, Array.init) }
    let text = Array(loader.utf8) + [0]
    var bytes: [UInt8] = [0x7F, 0x45, 0x4C, 0x46, 2, 1, 1] + [UInt8](repeating: 0, count: 9)
    bytes += little(UInt16(2)) + little(machine) + little(UInt32(1))
    bytes += little(UInt64(0x400000)) + little(UInt64(64)) + little(UInt64(0)) + little(UInt32(0))
    bytes += little(UInt16(64)) + little(UInt16(56)) + little(UInt16(1)) + [UInt8](repeating: 0, count: 6)
    bytes += little(UInt32(3)) + little(UInt32(4)) + little(UInt64(120)) + little(UInt64(0)) + little(UInt64(0))
    bytes += little(UInt64(text.count)) + little(UInt64(text.count)) + little(UInt64(1))
    return bytes + text
  }
  #if arch(x86_64)
    private let own: UInt16 = 62
    private let foreign: UInt16 = 183, foreignName = "AArch64"
  #else
    private let own: UInt16 = 183
    private let foreign: UInt16 = 62, foreignName = "x86-64"
  #endif

  private func put(_ bytes: [UInt8], _ scratch: Scratch, _ name: String) throws -> String {
    let path = scratch.path + "/" + name
    let raw = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o755)
    guard raw >= 0, write(raw, bytes, bytes.count) == bytes.count, fchmod(raw, 0o755) == 0 else {
      throw SystemError.last("make", path)
    }
    close(raw)
    return path
  }

  private func sentence(_ path: String) throws -> String {
    let failure = try Children.failure(SpawnRequest(command: [path]))
    #expect(failure.stage == .exec && failure.target == path)
    return String(failure.sentence.dropFirst("cannot run \(path): ".count))
  }

  @Test func `E9: a dynamic loader that is not there is named`() throws {
    let scratch = try Scratch()
    let path = try put(elf(machine: own, loader: "/lib/no-such-loader.so.1"), scratch, "program")
    #expect(
      try sentence(path) == "its dynamic loader /lib/no-such-loader.so.1 is not there (built for another C library or "
        + "another machine?)")
    let script = try scratch.file("script", "#!\(path)\n", mode: 0o755)
    #expect(
      try sentence(script)
        == "the dynamic loader /lib/no-such-loader.so.1 of \(path) is not there (built for another C "
        + "library or another machine?)")
  }

  @Test func `E9: a program for another machine is told from a damaged one`() throws {
    let scratch = try Scratch()
    let path = try put(elf(machine: foreign, loader: "/lib/ld.so"), scratch, "program")
    #expect(try sentence(path).hasPrefix("it is built for \(foreignName), and this machine is "))
    let script = try scratch.file("script", "#!\(path)\n", mode: 0o755)
    #expect(try sentence(script).hasPrefix("its interpreter \(path) is built for \(foreignName), and this machine is "))
    let damaged = try put(Array(elf(machine: own, loader: "/lib/ld.so").prefix(70)), scratch, "damaged")
    #expect(try sentence(damaged) == "it is built for another machine, or damaged")
  }

  @Test func `E9: of interpreters of interpreters the one that is missing is named`() throws {
    let scratch = try Scratch()
    let inner = try scratch.file("inner", "#!/no/such/thing\n", mode: 0o755)
    let outer = try scratch.file("outer", "#!\(inner) -x\n", mode: 0o755)
    #expect(try sentence(outer) == "the first line of \(inner) names /no/such/thing, which is not there")
    let closed = try scratch.file("closed", "#!/bin/sh\n", mode: 0o644)
    let user = try scratch.file("user", "#!\(closed)\n", mode: 0o755)
    #expect(try sentence(user) == "its first line names \(closed), which is not executable")
  }

  @Test(.enabled(if: Children.isRoot, "not shown: needs root"))
  func `E9: the directory that lets the user not through is named`() throws {
    let scratch = try Scratch()
    try scratch.directory("private", mode: 0o750)
    try scratch.directory("private/bin")
    let program = try scratch.file("private/bin/program", "#!/bin/sh\n", mode: 0o755)
    var request = SpawnRequest(command: [program])
    request.identity = somebody
    #expect(
      try Children.failure(request).sentence
        == "cannot run \(program): user somebody may not pass through \(scratch.path)/private (mode 750)")
    request.command = ["/bin/true"]
    request.directory = scratch.path + "/private/bin"
    #expect(
      try Children.failure(request).sentence.hasPrefix(
        "cannot enter \(scratch.path)/private/bin: user somebody may not: \(scratch.path)/private has mode 750"))
  }

  /// Not shown without CAP_SYS_ADMIN: nothing can be mounted.
  @Test(.enabled(if: HideSupport.available, "not shown: needs CAP_SYS_ADMIN"))
  func `E9: an interpreter on a file system that executes nothing is named`() throws {
    let scratch = try Scratch()
    let place = try scratch.directory("noexec")
    let mount = try Children.run(Children.shell("mount -t tmpfs -o noexec tmpfs \(place)"))
    try #require(mount.status == .code(0), "not shown: \(mount.output)")
    defer { _ = try? Children.run(Children.shell("umount \(place)")) }
    let inner = try scratch.file("noexec/inner", "#!/bin/sh\n", mode: 0o755)
    let script = try scratch.file("script", "#!\(inner)\n", mode: 0o755)
    #expect(
      try sentence(script) == "its first line names \(inner), which is on a file system that is mounted noexec")
  }

  @Test(arguments: Way.allCases)
  func `E9: a limit above guardian's own is named with its value`(_ way: Way) throws {
    var own = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &own)
    try #require(own.rlim_max < .max)
    var request = SpawnRequest(command: ["/bin/true"])
    request.forceSlowPath = way == .separate
    request.identity = Children.isRoot ? somebody : nil
    request.limits = [ResourceLimit(.openFiles, 1 << 40)]
    let failure = try Children.failure(request)
    #expect(failure.stage == .limits && failure.target == "open-files" && failure.sentence.contains("1099511627776"))
  }

  @Test(arguments: 0..<64)
  func `bytes of any kind are looked at and never believed`(seed: UInt64) throws {
    let scratch = try Scratch()
    var state = seed &* 0x9e37_79b9_7f4a_7c15 | 1
    func next() -> UInt64 {
      state ^= state << 13
      state ^= state >> 7
      state ^= state << 17
      return state
    }
    var bytes = elf(machine: own, loader: "/lib/no-such-loader.so.1")
    for _ in 0..<(1 + next() % 6) { bytes[Int(next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: next()) }
    bytes.removeLast(Int(next() % 40))
    let path = try put(bytes, scratch, "program")
    // It does not run, or ends at once: there is nothing in it.
    do {
      let child = try Children.start(SpawnRequest(command: [path]))
      try ProcessHandle.signal(child.pidfd.number, .kill)
      _ = try Children.finish(child)
    } catch let failure as SpawnFailure {
      #expect(failure.sentence.hasPrefix("cannot run \(path): "))
    }
  }
}
