import Glibc
import GuardianModel
import Testing

@testable import GuardianLinux

@Suite struct `the kernel's log of a crash` {
  private func crash(_ text: String, pid: Int32 = 4711) -> KernelLog.Crash? {
    KernelLog.crash(in: Array(text.utf8)[...], pid: pid)
  }

  @Test func `tells the address of a bad access, the stack and the place`() {
    let text =
      "4,1234,44981888278,-;shop[4711]: segfault at 10 ip 0000559ae931d132 sp 00007ffc12a97ea0 error 6 in "
      + "shop[1132,559ae931d000+1000] likely on CPU 0 (core 0, socket 0)\n SUBSYSTEM=x\n"
    let found = crash(text)
    #expect(found?.access == BadAccess(address: 0x10, stackPointer: 0x7ffc12a97ea0))
    #expect(found?.frame == StackFrame(module: "shop", offset: 0x1132))
    #expect(crash(text, pid: 471) == nil)
  }

  @Test func `of an older kernel has the place by the mapping`() {
    let found = crash(
      "4,1,2,-;shop[4711]: segfault at 0 ip 0000559ae931d132 sp 00007ffc12a97ea0 error 6 in "
        + "shop[559ae931d000+1000]")
    #expect(found?.frame == StackFrame(module: "shop", offset: 0x132))
  }

  @Test func `of a trap has a place and no address`() {
    let found = crash(
      "4,1,2,-;traps: shop[4711] trap divide error ip:559ae931d132 sp:7ffc12a97ea0 error:0 in "
        + "shop[1132,559ae931d000+1000]")
    #expect(found == KernelLog.Crash(access: nil, frame: StackFrame(module: "shop", offset: 0x1132)))
  }

  @Test(arguments: [
    "", "[4711]", "4711", "x[4711]: segfault at", "x[4711]: segfault at zz ip 1 sp 2",
    "x[4711]: segfault at 1 ip 2 in [",
    "x[4711]: segfault at 1 ip 2 in ]", "x[4711]: hello in x[,+]",
  ])
  func `that makes no sense harms nobody`(_ text: String) { _ = crash(text) }
}

@Suite struct `the directories of backtraces` {
  private let path: String
  private let name: ServiceName
  init() throws {
    var template = Array("/tmp/guardian-traces-XXXXXX".utf8CString)
    path = String(cString: try #require(mkdtemp(&template)))
    name = try #require(ServiceName("web"))
  }

  @Test func `give the newest report of that process, and are empty afterwards`() throws {
    let traces = try TraceDirectories(path: path + "/backtraces")
    let own = try #require(traces.prepare(name, uid: getuid(), gid: getgid()))
    for file in ["shop-4711-0.0.json", "shop-47-0.0.json", "junk", "shop-4711-1.0.txt"] {
      let descriptor = open("\(own)/\(file)", O_WRONLY | O_CREAT, 0o600)
      _ = write(descriptor, file, file.utf8.count)
      close(descriptor)
    }
    mkdir(own + "/directory", 0o700)
    #expect(traces.take(name, pid: 4711).map { String(decoding: $0, as: UTF8.self) } == "shop-4711-0.0.json")
    #expect(traces.take(name, pid: 4711) == nil)
    #expect(rmdir(own) == 0, "empty")
    rmdir(path + "/backtraces")
    rmdir(path)
  }

  @Test func `follow no link, neither in them nor in their place`() throws {
    let traces = try TraceDirectories(path: path + "/backtraces")
    let own = try #require(traces.prepare(name, uid: getuid(), gid: getgid()))
    symlink("/etc/passwd", own + "/shop-4711-0.0.json")
    #expect(traces.take(name, pid: 4711) == nil)
    rmdir(own)
    symlink("/etc", own)
    #expect(traces.prepare(name, uid: getuid(), gid: getgid()) == nil)
    #expect(traces.take(name, pid: 4711) == nil)
    #expect(access("/etc/passwd", F_OK) == 0)
    unlink(own)
    rmdir(path + "/backtraces")
    rmdir(path)
  }
}
