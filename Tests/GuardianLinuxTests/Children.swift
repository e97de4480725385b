import Glibc
import GuardianLinux
import GuardianModel
import Testing

/// What became of a child that a test has started.
struct Finished {
  var pid: Int32
  var status: ExitStatus
  /// Standard output, and standard error behind it.
  var output: String
  var hidden: [HiddenPath]
}

typealias ExitStatus = GuardianModel.ExitStatus

/// Both ends of a pipe, closed at the latest with the object.
final class Pipe {
  let read: Int32
  let write: Int32
  private var writing = true
  init() throws {
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { throw SystemError.last("make", "a pipe") }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    (read, write) = (ends[0], ends[1])
  }
  func closeWrite() {
    if writing { close(write) }
    writing = false
  }
  deinit {
    closeWrite()
    close(read)
  }
}

/// Real processes for tests, each ended and reaped by its own pid.
enum Children {
  static let isRoot = geteuid() == 0

  /// Polls with a deadline; false where it passed.
  static func eventually(within seconds: Int = 20, _ condition: () -> Bool) -> Bool {
    for _ in 0..<(seconds * 200) {
      if condition() { return true }
      usleep(5000)
    }
    return condition()
  }

  static func readAll(_ descriptor: Int32) -> String {
    var bytes: [UInt8] = []
    while true {
      var chunk = [UInt8](repeating: 0, count: 4096)
      let count = read(descriptor, &chunk, chunk.count)
      if count > 0 { bytes += chunk.prefix(count) } else if count == 0 || errno != EINTR { break }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// Starts it and waits for its exec.
  static func start(_ request: SpawnRequest, by spawner: Spawner? = nil) throws -> Child {
    switch try (spawner ?? Spawner()).spawn(request) {
    case .started(let child): return child
    case .failed(let failure): throw failure
    case .pending(let pending):
      while true {
        var watch = pollfd(fd: pending.reportDescriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&watch, 1, 20_000) == 1 else { throw SystemError("see the exec of", "a child", errno: ETIMEDOUT) }
        switch pending.advance() {
        case .none: continue
        case .some(.started(let child)): return child
        case .some(.failed(let failure)): throw failure
        case .some(.pending): throw SystemError("understand", "a pending child", errno: EINVAL)
        }
      }
    }
  }

  /// Waits for the end, at most 20 seconds, and reaps.
  static func finish(_ child: borrowing Child) throws -> ExitStatus {
    var watch = pollfd(fd: child.pidfd.number, events: Int16(POLLIN), revents: 0)
    guard poll(&watch, 1, 20_000) == 1, let ended = ChildReaper.reap(child.pid) else {
      throw SystemError("see the end of", "process \(child.pid)", errno: ETIMEDOUT)
    }
    return ended.status
  }

  /// Starts it, collects its output, and waits for its end.
  static func run(_ request: SpawnRequest) throws -> Finished {
    let pipe = try Pipe()
    var request = request
    request.output = .descriptor(pipe.write)
    request.error = .descriptor(pipe.write)
    let child = try start(request)
    pipe.closeWrite()
    let output = readAll(pipe.read)
    return Finished(pid: child.pid, status: try finish(child), output: output, hidden: child.hidden)
  }

  static func shell(_ script: String) -> SpawnRequest {
    SpawnRequest(command: ["/bin/sh", "-c", script], environment: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"])
  }

  /// The failure of a start that must fail.
  static func failure(_ request: SpawnRequest) throws -> SpawnFailure {
    do throws(any Error) {
      let child = try start(request)
      try ProcessHandle.signal(child.pidfd.number, .kill)
      _ = try finish(child)
    } catch let failure as SpawnFailure { return failure }
    throw SystemError("see the failure of", request.command.first ?? "", errno: 0)
  }
}

/// These tests run under the thread sanitizer.
let isSanitized = dlsym(nil, "__tsan_init") != nil

/// A directory that goes away with its contents.
final class Scratch {
  let path: String
  init() throws {
    var template = Array("/tmp/guardian-test-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw SystemError.last("make", "a scratch directory") }
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    chmod(path, 0o755)
  }
  deinit {
    _ = try? Children.run(SpawnRequest(command: ["/bin/rm", "-rf", "--one-file-system", path]))
  }

  /// Writes a file and returns its path.
  @discardableResult
  func file(_ name: String, _ text: String = "", mode: mode_t = 0o644) throws -> String {
    let full = path + "/" + name
    let raw = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
    if raw < 0 { throw SystemError.last("make", full) }
    let descriptor = OwnedFD(adopting: raw)
    guard write(descriptor.number, text, text.utf8.count) == text.utf8.count, fchmod(raw, mode) == 0 else {
      throw SystemError.last("write", full)
    }
    return full
  }

  @discardableResult
  func directory(_ name: String, mode: mode_t = 0o755) throws -> String {
    let full = path + "/" + name
    guard mkdir(full, mode) == 0, chmod(full, mode) == 0 else { throw SystemError.last("make", full) }
    return full
  }
}
