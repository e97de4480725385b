import CZlib
import Glibc
import GuardianModel

/// Compresses files that were put aside, one after the other, each by a process of its own at the lowest priority: no pipe
/// waits for that.
struct Packer {
  private var queue: [(service: ServiceName, name: String)] = []
  private var running: (pid: pid_t, service: ServiceName, name: String)?
  /// More are found again when the logger starts next.
  private static let bound = 10_000

  var isBusy: Bool { running != nil }

  mutating func add(_ service: ServiceName, _ name: String) {
    if queue.count < Self.bound { queue.append((service, name)) }
  }

  /// What an earlier logger has left.
  mutating func lookAround(_ directory: LogDirectory) {
    queue = []
    let left = directory.all().filter { $0.isAside && $0.name.hasSuffix(".log") }.sorted { $0.name < $1.name }
    for entry in left where entry.name != running?.name { add(entry.service, entry.name) }
  }

  /// Begins the next one where none is under way.
  mutating func work(_ directory: LogDirectory?, _ spec: LogsSpec) {
    if let (pid, service, name) = running {
      var status: Int32 = 0
      let answer = waitpid(pid, &status, WNOHANG)
      if answer == 0 || answer < 0 && errno == EINTR { return }
      running = nil
      if let directory, let place = try? directory.open(service, make: false) {
        if status == 0, answer == pid { directory.count() } else { unlinkat(place, Self.unfinished(name), 0) }
        close(place)
      }
    }
    guard spec.compress == .gzip, let directory, !queue.isEmpty else { return }
    let (service, name) = queue.removeFirst()
    guard let place = try? directory.open(service, make: false) else { return }
    defer { close(place) }
    if let pid = Self.start(place, name) { running = (pid, service, name) }
  }

  private static func unfinished(_ name: String) -> String { ".\(name).gz" }

  private static func start(_ directory: Int32, _ name: String) -> pid_t? {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    // As its standard input; the rest closes by itself.
    posix_spawn_file_actions_adddup2(&actions, directory, 0)
    let words = ["guardian-logger", "--compress", name]
    var arguments = words.map { strdup($0) }
    arguments.append(nil)
    defer { for argument in arguments { free(argument) } }
    var environment: [UnsafeMutablePointer<CChar>?] = [nil]
    var pid: pid_t = 0
    let failed = posix_spawn(&pid, "/proc/self/exe", &actions, nil, arguments, &environment)
    return failed == 0 ? pid : nil
  }

  /// What that process does: the directory is its standard input.
  ///
  /// - Returns: Its exit status.
  static func compress(_ name: String, in directory: Int32 = 0) -> Int32 {
    guard LogFormat.isAside(name), name.hasSuffix(".log") else { return 64 }
    let from = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard from >= 0 else { return 1 }
    do throws(LogFault) { try LogDirectory.check(from, name, S_IFREG) } catch { return 1 }
    let unfinished = Self.unfinished(name)
    unlinkat(directory, unfinished, 0)
    let to = openat(directory, unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o640)
    guard to >= 0, let packed = gzdopen(to, "wb6") else { return 1 }
    var buffer = [UInt8](repeating: 0, count: 128 << 10)
    var good = true
    while good {
      let got = Glibc.read(from, &buffer, buffer.count)
      if got < 0, errno == EINTR { continue }
      if got <= 0 {
        good = got == 0
        break
      }
      good = gzwrite(packed, buffer, UInt32(got)) == Int32(got)
    }
    // The time of the file that it stands for.
    var about = stat()
    if fstat(from, &about) == 0 {
      var times = [about.st_atim, about.st_mtim]
      futimens(to, &times)
    }
    good = gzclose(packed) == Z_OK && good
    guard good, renameat(directory, unfinished, directory, "\(name).gz") == 0 else {
      unlinkat(directory, unfinished, 0)
      return 1
    }
    return unlinkat(directory, name, 0) == 0 ? 0 : 1
  }
}

/// For the program.
package func compressLog(_ name: String) -> Int32 {
  // Here and not where it is done: a test does that in its own process, and all that it starts would be as slow.
  setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 19)
  return Packer.compress(name)
}
