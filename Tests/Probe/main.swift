// Things that a test cannot do in its own process: to die of a signal, to be replaced, to have another environment.
import Glibc
import GuardianLinux
import GuardianModel

let words = CommandLine.arguments

/// Unbuffered: who reads waits for it.
func print(_ text: String) {
  let line = Array((text + "\n").utf8)
  _ = write(1, line, line.count)
}

func fail(_ text: String) -> Never {
  print("failed: \(text)")
  exit(70)
}

/// Recursion that no compiler can turn into a loop, to the end of the stack.
@inline(never) func overflow(_ depth: Int) -> Int {
  withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { room in
    room[0] = UInt8(truncatingIfNeeded: depth)
    return overflow(depth + 1) + Int(room[0])
  }
}

func fault(_ directory: String, _ boot: String, _ how: String) throws {
  var none = rlimit(rlim_cur: 0, rlim_max: 0)
  setrlimit(__rlimit_resource_t(4) /* RLIMIT_CORE */, &none)
  let marks = try FaultMarks(directory: directory, bootID: boot)
  try marks.install()
  switch how {
  case "segv": UnsafeMutablePointer<UInt8>(bitPattern: 8)?.pointee = 1
  case "overflow": print("\(overflow(0))")
  case "trap":
    let words = CommandLine.arguments
    print(words[words.count + 7])
  case "abort": abort()
  case "wait":
    print("waiting")
    pause()
  case "none": exit(0)
  default: fail("no such fault")
  }
  fail("still alive")
}

func beforeExec(_ program: String, _ directory: String) throws {
  let lock = try DirectoryLock(directory, refusingLink: true)
  let state = try ReExec.memoryFile("state", Array("what survives".utf8))
  let notify = try NotifySocket(path: directory + "/notify", uid: geteuid())
  notify.removesFile = false
  print("pid \(getpid())")
  throw ReExec.exec(
    path: program,
    arguments: [
      "probe", "after-exec", directory, "\(lock.descriptor)", "\(state.number)", "\(notify.descriptor)", "\(getppid())",
    ], environment: ["X=1"], keeping: [lock.descriptor, state.number, notify.descriptor])
}

func afterExec(_ directory: String, _ lock: Int32, _ state: Int32, _ notify: Int32) throws {
  print("pid \(getpid())")
  do {
    _ = try DirectoryLock(directory)
    fail("the lock did not last")
  } catch { print("\(error)") }
  let held = try DirectoryLock(adopting: lock, path: directory)
  print("contents \(ReExec.contents(of: state).map { String(decoding: $0, as: UTF8.self) } ?? "none")")
  let socket = try NotifySocket(adopting: notify, path: directory + "/notify")
  let closed = [held.descriptor, socket.descriptor].allSatisfy { fcntl($0, F_GETFD) & FD_CLOEXEC != 0 }
  print("cloexec \(closed)")
}

/// Pages of files in memory, as kilobytes.
func residentOfFiles() -> Int {
  var bytes = [UInt8](repeating: 0, count: 4096)
  let file = open("/proc/self/status", O_RDONLY | O_CLOEXEC)
  defer { close(file) }
  let length = max(read(file, &bytes, bytes.count), 0)
  let lines = String(decoding: bytes[..<length], as: UTF8.self).split(separator: "\n")
  let line = lines.first { $0.hasPrefix("RssFile:") }
  return line.flatMap { Int($0.split(whereSeparator: { !$0.isNumber }).first ?? "") } ?? -1
}

do {
  switch words.dropFirst().first {
  case "fault" where words.count == 5: try fault(words[2], words[3], words[4])
  case "before-exec" where words.count == 3: try beforeExec(words[0], words[2])
  case "after-exec" where words.count == 7:
    try afterExec(words[2], Int32(words[3]) ?? -1, Int32(words[4]) ?? -1, Int32(words[5]) ?? -1)
  case "store" where words.count == 3:
    guard let host = HostNotify() else { fail("no NOTIFY_SOCKET") }
    let file = try ReExec.memoryFile("stored", Array("kept".utf8))
    print("stored \(host.storeDescriptor(name: words[2], file.number))")
    print("removed \(host.removeDescriptor(name: words[2]))")
    print("bad name \(host.storeDescriptor(name: "a:b", file.number))")
  case "received":
    for one in HostNotify.receivedDescriptors() {
      let flags = fcntl(one.descriptor, F_GETFD)
      let text = ReExec.contents(of: one.descriptor).map { String(decoding: $0, as: UTF8.self) } ?? "?"
      print("\(one.name) \(one.descriptor) cloexec \(flags & FD_CLOEXEC != 0) \(text)")
    }
    print("left \(getenv("LISTEN_FDS") != nil || getenv("LISTEN_PID") != nil || getenv("LISTEN_FDNAMES") != nil)")
  case "adopt" where words.count == 4:
    // Not the parent of that process: says when it has it, then how it ended.
    guard let adopted = AdoptedProcess.find(pid: Int32(words[2]) ?? 0, startTicks: UInt64(words[3]) ?? 0) else {
      print("nobody")
      exit(0)
    }
    print("adopted")
    var watch = pollfd(fd: adopted.pidfd, events: Int16(POLLIN), revents: 0)
    poll(&watch, 1, 20_000)
    for _ in 0..<2_000 where adopted.exitStatus() == nil {
      var hangUp = pollfd(fd: adopted.pidfd, events: 0, revents: 0)
      poll(&hangUp, 1, 10)
    }
    print(adopted.exitStatus().map { "\($0)" } ?? "nothing")
  case "fail-points":
    for name in ["one", "two", "one", "three", "one"] {
      failPoint("never")
      switch name {
      case "one": failPoint("one")
      case "two": failPoint("two")
      default: failPoint("three")
      }
      print(name)
    }
  case "code":
    let before = residentOfFiles()
    Heap.letGoOfCode()
    print("\(before) \(residentOfFiles())")
    // Its code comes back as it is needed.
    print(Array("abc".utf8).map { String($0, radix: 16) }.joined(separator: " "))
  default: fail("usage")
  }
} catch { fail("\(error)") }
