import Glibc
import Testing

/// Whole programs, one scenario after the other: each of them keeps real servers busy.
@Suite(.serialized) struct Programs {}

/// The same for scenarios that mostly wait: a second line, beside the busy one.
@Suite(.serialized) struct PatientPrograms {}

/// And a third one, for those in which guardian waits for programs with plugins to be well.
@Suite(.serialized) struct PluginPrograms {}

struct Failure: Error, CustomStringConvertible {
  var description: String
  init(_ text: String) { description = text }
  static func errno(_ what: String) -> Failure { Failure("\(what): \(String(cString: strerror(Glibc.errno)))") }
}

// MARK: - Where things are

enum Place {
  /// The root of the repository.
  static let repository: String = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3)
    .joined(separator: "/")

  /// Where `guardian` and its sisters have been built: beside the running test, unless it is told otherwise, as in
  /// `GUARDIAN_PROGRAMS=.build/release` for figures.
  static let products: String = {
    if let other = getenv("GUARDIAN_PROGRAMS") {
      let path = String(cString: other)
      return path.hasPrefix("/") ? path : repository + "/" + path
    }
    var buffer = [UInt8](repeating: 0, count: 4_096)
    let length = readlink("/proc/self/exe", &buffer, buffer.count)
    let own = length > 0 ? parent(String(decoding: buffer.prefix(length), as: UTF8.self)) : ""
    return access(own + "/guardian", X_OK) == 0 ? own : repository + "/.build/debug"
  }()

  /// Servers that were unpacked for these tests, by Tests/Support/fetch-programs.
  static let unpacked = repository + "/.build/programs"

  static func parent(_ path: String) -> String {
    path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
  }

  /// A program of the machine or of the unpacked ones; nil where neither has it.
  static func program(_ name: String) -> String? {
    let versions = ["17", "16", "15"].map { "/usr/lib/postgresql/\($0)/bin" }
    // PostgreSQL's own directories first: what Debian has in /usr/bin is a wrapper that needs more than is unpacked.
    for root in [unpacked, ""] {
      for directory in versions + ["/usr/sbin", "/usr/bin", "/sbin", "/bin"] {
        let path = "\(root)\(directory)/\(name)"
        if access(path, X_OK) == 0 { return path }
      }
    }
    return nil
  }

  /// What the unpacked programs need to find their libraries.
  static var libraries: String { "\(unpacked)/usr/lib/x86_64-linux-gnu:\(unpacked)/usr/lib/aarch64-linux-gnu" }
}

enum Files {
  static func read(_ path: String) throws -> String { String(decoding: try bytes(path), as: UTF8.self) }

  static func bytes(_ path: String) throws -> [UInt8] {
    let fd = open(path, O_RDONLY | O_CLOEXEC)
    guard fd >= 0 else { throw Failure.errno(path) }
    defer { close(fd) }
    var bytes: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
      let n = Glibc.read(fd, &buffer, buffer.count)
      guard n > 0 else { break }
      bytes += buffer[0..<n]
    }
    return bytes
  }

  static func write(_ content: String, to path: String, mode: mode_t = 0o644) throws {
    let fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
    guard fd >= 0 else { throw Failure.errno(path) }
    defer { close(fd) }
    let bytes = Array(content.utf8)
    guard Glibc.write(fd, bytes, bytes.count) == bytes.count else { throw Failure.errno(path) }
    fchmod(fd, mode)
  }

  static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

  static func names(in directory: String) -> [String] {
    guard let stream = opendir(directory) else { return [] }
    defer { closedir(stream) }
    var found: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      if name != "." && name != ".." { found.append(name) }
    }
    return found.sorted()
  }
}

/// A directory of this test alone, gone with the value.
final class Scratch {
  let path: String

  init() throws {
    var template = Array("/tmp/guardian-test.XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Failure.errno("mkdtemp") }
    path = template.withUnsafeBytes { String(decoding: $0.dropLast(), as: UTF8.self) }
    chmod(path, 0o755)
  }

  deinit { _ = try? Process(["/bin/rm", "-rf", path]).waitBlocking() }

  func directory(_ name: String, mode: mode_t = 0o755) throws -> String {
    let path = self.path + "/" + name
    guard mkdir(path, mode) == 0 else { throw Failure.errno(path) }
    return path
  }

  func give(_ path: String, to user: User) { _ = try? Process(["/bin/chown", "-R", user.name, path]).waitBlocking() }
}

struct User {
  var name: String, uid: uid_t, gid: gid_t
  static let nobody = User(name: "nobody", uid: 65_534, gid: 65_534)
}

let isRoot = geteuid() == 0

/// A namespace of process numbers.
enum OwnNumbers {
  /// What to put before a command.
  static let wrapper = ["/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
  /// Why there is none to be had; nil if there is.
  static let missing: String? = {
    guard isRoot else { return "process numbers of one's own need root" }
    return (try? Process(wrapper + ["/bin/true"]).waitBlocking()) == 0
      ? nil : "process numbers of one's own cannot be had"
  }()
}

// MARK: - Processes

/// One process that this test has started; killed with the value, if it has not ended by then.
final class Process {
  let pid: pid_t
  private(set) var status: Int32?

  /// - Parameter output: A file for standard output and error; nil: nowhere.
  init(
    _ arguments: [String], environment: [String: String] = [:], output: String? = nil, error: String? = nil,
    ownGroup: Bool = false
  ) throws {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, output ?? "/dev/null", O_WRONLY | O_CREAT | O_APPEND, 0o644)
    if let error {
      posix_spawn_file_actions_addopen(&actions, 2, error, O_WRONLY | O_CREAT | O_APPEND, 0o644)
    } else {
      posix_spawn_file_actions_adddup2(&actions, 1, 2)
    }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    // Whatever the runner of these tests ignores or blocks is not the programs' business.
    var none = sigset_t(), all = sigset_t()
    sigemptyset(&none)
    sigfillset(&all)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setsigdefault(&attributes, &all)
    var flags = Int16(POSIX_SPAWN_SETSIGMASK) | Int16(POSIX_SPAWN_SETSIGDEF)
    if ownGroup { flags |= Int16(POSIX_SPAWN_SETPGROUP) }
    posix_spawnattr_setflags(&attributes, flags)

    var merged = ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"]
    // A guardian that is sanitized stops at what is found, and is not just killed with it later on.
    if let options = getenv("TSAN_OPTIONS") { merged["TSAN_OPTIONS"] = String(cString: options) }
    merged.merge(environment) { $1 }
    var argv = arguments.map { strdup($0) }, envp = merged.map { strdup("\($0.key)=\($0.value)") }
    argv.append(nil)
    envp.append(nil)
    defer { for pointer in argv + envp { free(pointer) } }
    var pid: pid_t = 0
    let failed = posix_spawn(&pid, arguments[0], &actions, &attributes, argv, envp)
    guard failed == 0 else { throw Failure("cannot run \(arguments[0]): \(String(cString: strerror(failed)))") }
    self.pid = pid
  }

  deinit {
    guard status == nil else { return }
    kill(pid, SIGKILL)
    waitBlocking()
  }

  /// Now, if it has not ended yet.
  func end() {
    guard poll() == nil else { return }
    kill(pid, SIGKILL)
    waitBlocking()
  }

  /// The exit status, or 128 + the signal; nil while it runs.
  func poll() -> Int32? {
    if let status { return status }
    var raw: Int32 = 0
    guard waitpid(pid, &raw, WNOHANG) == pid else { return nil }
    status = raw & 0x7f == 0 ? raw >> 8 & 0xff : 128 + (raw & 0x7f)
    return status
  }

  @discardableResult
  func waitBlocking() -> Int32 {
    while poll() == nil { usleep(2_000) }
    return status ?? -1
  }

  func wait(seconds: Int = 30) async throws -> Int32 {
    try await eventually("process \(pid) ends", seconds: seconds) { self.poll() }
  }
}

/// Runs a program to its end.
func run(
  _ arguments: [String], environment: [String: String] = [:], seconds: Int = 30
) async throws -> (code: Int32, output: String, error: String) {
  let scratch = try Scratch()
  let process = try Process(
    arguments, environment: environment, output: scratch.path + "/output", error: scratch.path + "/error")
  let code = try await process.wait(seconds: seconds)
  return (code, try Files.read(scratch.path + "/output"), try Files.read(scratch.path + "/error"))
}

/// Asks every 20 ms until there is an answer; with none by the deadline, throws what was waited for.
func eventually<R>(_ what: String, seconds: Int = 30, _ answer: () async throws -> R?) async throws -> R {
  let clock = ContinuousClock(), deadline = clock.now + .seconds(seconds)
  while true {
    if let value = try await answer() { return value }
    guard clock.now < deadline else { throw Failure("not within \(seconds) s: \(what)") }
    try await Task.sleep(for: .milliseconds(20))
  }
}

/// The processes whose command line or session tells that they belong to a test.
func processes(where belongs: (_ pid: Int32, _ session: Int32, _ commandLine: String) -> Bool) -> [String] {
  var found: [String] = []
  for name in Files.names(in: "/proc") {
    guard let pid = Int32(name), let stat = try? Files.read("/proc/\(pid)/stat"),
      let line = try? Files.read("/proc/\(pid)/cmdline")
    else { continue }
    // The name in brackets may hold anything; the fields after it cannot.
    let fields = stat.split(separator: ")").last.map { $0.split(separator: " ") } ?? []
    guard fields.count > 3, fields[0] != "Z", let session = Int32(fields[3]) else { continue }
    let commandLine = line.split(separator: "\0").joined(separator: " ")
    if belongs(pid, session, commandLine) { found.append("\(pid) \(commandLine)") }
  }
  return found
}

/// Of its main thread.
func children(of pid: Int32) -> [Int32] {
  guard let text = try? Files.read("/proc/\(pid)/task/\(pid)/children") else { return [] }
  return text.split(separator: " ").compactMap { Int32($0) }
}

/// A zombie is not.
func isAlive(_ pid: Int32) -> Bool {
  guard let stat = try? Files.read("/proc/\(pid)/stat"), let rest = stat.split(separator: ")").last else {
    return false
  }
  return !rest.hasPrefix(" Z")
}

/// What guardian has written down of its runs: a second reading of the database, by other code than guardian's.
enum Book {
  /// Why it cannot be read on this machine.
  static let missing: String? = {
    guard let python = Place.program("python3") else { return "python3 is not there" }
    let probe = try? Process([python, "-c", "import sqlite3"]).waitBlocking()
    return probe == 0 ? nil : "python3 has no sqlite3"
  }()

  /// For each service its runs by their ids, repairs included, and whether they have their end.
  static func read(_ guardian: Guardian) async throws -> [String: [String: Bool]] {
    let script = """
      import sqlite3, sys
      for id, service, closed in sqlite3.connect(sys.argv[1]).execute("SELECT id, service, closed FROM run"):
        print(id.hex(), service, closed is not None)
      """
    let answer = try await run(
      [Place.program("python3") ?? "", "-c", script, guardian.scratch.path + "/state/guardian.db"])
    guard answer.code == 0 else { throw Failure("the book cannot be read: \(answer.error)") }
    var book: [String: [String: Bool]] = [:]
    for line in answer.output.split(separator: "\n") {
      let words = line.split(separator: " ").map(String.init)
      if words.count == 3 { book[words[1], default: [:]][words[0]] = words[2] == "True" }
    }
    return book
  }
}

// MARK: - Control groups

enum Groups {
  /// Where version 2 is mounted; nil where it is not.
  static let mount: String? = {
    let mounts = (try? Files.read("/proc/self/mountinfo")) ?? ""
    for line in mounts.split(separator: "\n") where line.contains(" - cgroup2 ") {
      let words = line.split(separator: " ")
      if words.count > 4 { return String(words[4]) }
    }
    return nil
  }()

  /// The group of these tests.
  static let own: String? = {
    guard let text = try? Files.read("/proc/self/cgroup") else { return nil }
    return text.split(separator: "\n").first { $0.hasPrefix("0::") }.map { String($0.dropFirst(3)) }
  }()

  /// The directory that a guardian with this runtime directory makes for its groups, where systemd does not manage the
  /// tree.
  static func place(of runtime: String) -> String? {
    guard let mount, let own else { return nil }
    var status = stat()
    guard stat(runtime, &status) == 0 else { return nil }
    let name = "guardian.\(String(status.st_dev, radix: 16))-\(String(status.st_ino, radix: 16))"
    return mount + (own == "/" ? "" : own) + "/" + name
  }

  /// Why a guardian of these tests has none; nil if it has.
  static let missing: String? = {
    guard let mount, let own else { return "version 2 of control groups is not mounted" }
    if Files.exists("/run/systemd/system") { return "systemd manages the tree here, and delegates none to these tests" }
    let group = "\(mount)\(own == "/" ? "" : own)/guardian-tests-\(getpid())"
    guard mkdir(group, 0o755) == 0 else { return "groups cannot be made: \(String(cString: strerror(errno)))" }
    defer { rmdir(group) }
    return Files.exists(group + "/cgroup.kill") ? nil : "Linux 5.14 or newer is needed"
  }()

  static func has(_ controller: String) -> Bool {
    guard missing == nil, let mount, let own else { return false }
    return (try? Files.read(mount + own + "/cgroup.controllers"))?.split { $0 == " " || $0 == "\n" }
      .contains { $0 == controller } ?? false
  }

  static func processes(_ directory: String) -> [Int32] {
    ((try? Files.read(directory + "/cgroup.procs")) ?? "").split(separator: "\n").compactMap { Int32($0) }
  }

  /// Kills what is in there, which is only what a failed test has left, and removes it.
  static func remove(_ directory: String) {
    try? Files.put("1", to: directory + "/cgroup.kill")
    for _ in 0..<200 {
      for name in Files.names(in: directory) { rmdir(directory + "/" + name) }
      if rmdir(directory) == 0 || errno == ENOENT { return }
      usleep(5_000)
    }
  }
}

extension Files {
  /// Into a file that is there and is none of its own.
  static func put(_ text: String, to path: String) throws {
    let fd = open(path, O_WRONLY | O_CLOEXEC)
    guard fd >= 0 else { throw Failure.errno(path) }
    defer { close(fd) }
    guard Glibc.write(fd, text, text.utf8.count) == text.utf8.count else { throw Failure.errno(path) }
  }
}

// MARK: - guardian

/// One `guardian` on directories of its own, and `guardianctl` to talk to it.
final class Guardian {
  let scratch: Scratch
  private(set) var process: Process
  let runtime: String
  let user: User?
  private var command: [String]
  private let wrapping: Int
  private let environment: [String: String]
  /// Where guardian makes control groups, if it does.
  let groups: String?
  /// Every main process that `status` has shown: sessions in which nothing may be left at the end.
  private var seen: Set<Int32> = []

  /// - Parameters:
  ///   - services: YAML for each name.
  ///   - user: Whom guardian itself runs as; nil: this test's user.
  ///   - host: guardian.yaml; nil: there is none.
  init(
    _ scratch: Scratch, services: [String: String], host: String? = nil, user: User? = nil, arguments: [String] = [],
    environment: [String: String] = [:], wrappedIn wrapper: [String] = [],
    program: String = Place.products + "/guardian"
  ) async throws {
    self.scratch = scratch
    self.user = user
    let config = try scratch.directory("config")
    _ = try scratch.directory("config/services")
    let state = try scratch.directory("state")
    runtime = try scratch.directory("run")
    let logs = try scratch.directory("logs")
    groups = Groups.place(of: runtime)
    if let host { try Files.write(host, to: config + "/guardian.yaml") }
    for (name, yaml) in services { try Files.write(yaml, to: "\(config)/services/\(name).yaml") }
    if let user { for directory in [config, state, runtime, logs] { scratch.give(directory, to: user) } }
    wrapping = wrapper.count
    command =
      wrapper + Self.command(as: user) + [
        program, "--config", config, "--state", state, "--runtime", runtime, "--logs", logs,
      ] + arguments
    self.environment = environment
    process = try Process(command, environment: environment, output: scratch.path + "/guardian.log")
    try await answers()
  }

  /// One that was killed leaves its groups to the next; the last one's are nobody's.
  deinit {
    guard let groups, Files.exists(groups) else { return }
    process.end()
    Groups.remove(groups)
  }

  /// Waits until the control socket answers.
  func answers() async throws {
    do {
      try await eventually("the control socket answers", seconds: 20) {
        if let code = process.poll() { throw Failure("guardian ended with \(code): \(log)") }
        return try await control("status").code == 6 ? nil : ()
      }
    } catch {
      throw Failure("\(error); its output: \(log)")
    }
  }

  /// SIGKILL; what it has started lives on.
  func kill() {
    Glibc.kill(process.pid, SIGKILL)
    process.waitBlocking()
  }

  /// The next guardian runs without what this one was wrapped in.
  func unwrap() { command.removeFirst(min(wrapping, command.count)) }

  /// Another guardian on the same directories, after the first one's end.
  func startAgain() async throws {
    process = try Process(command, environment: environment, output: scratch.path + "/guardian.log")
    try await answers()
  }

  /// The same without waiting for it, in an environment of its own.
  func respawn(environment: [String: String]) throws {
    process = try Process(
      command, environment: self.environment.merging(environment) { $1 }, output: scratch.path + "/guardian.log")
  }

  static func command(as user: User?) -> [String] {
    guard let user, user.uid != geteuid() else { return [] }
    return ["/usr/bin/setpriv", "--reuid", "\(user.uid)", "--regid", "\(user.gid)", "--clear-groups", "--"]
  }

  /// What guardian has written.
  var log: String { (try? Files.read(scratch.path + "/guardian.log")) ?? "" }

  func configure(_ name: String, _ yaml: String) throws {
    let path = "\(scratch.path)/config/services/\(name).yaml"
    try Files.write(yaml, to: path)
    if let user { scratch.give(path, to: user) }
  }

  func control(_ arguments: String..., seconds: Int = 60) async throws -> (code: Int32, output: String, error: String) {
    try await run(
      Self.command(as: user) + [Place.products + "/guardianctl", "--runtime", runtime] + arguments, seconds: seconds)
  }

  /// One service as `status --json` shows it.
  func status(_ name: String) async throws -> JSON {
    let answer = try await control("--json", "status", name)
    let json = try JSON(answer.output)
    guard let service = json["services"].array.first else {
      throw Failure("no service in: \(answer.output) \(answer.error)")
    }
    if let pid = service["pid"].int { seen.insert(Int32(pid)) }
    return service
  }

  /// Waits until `condition` holds for `name`; the error tells what it was instead.
  @discardableResult
  func wait(
    for name: String, _ what: String, seconds: Int = 30, _ condition: (JSON) -> Bool
  ) async throws -> JSON {
    var last = JSON.null
    do {
      return try await eventually("\(name) \(what)", seconds: seconds) {
        last = try await status(name)
        return condition(last) ? last : nil
      }
    } catch {
      throw Failure("\(error)\nlast seen: \(last)\nguardian wrote: \(log.suffix(3_000))")
    }
  }

  /// Stops guardian as an init system does; what it had started must be gone.
  func stop(seconds: Int = 30) async throws {
    Glibc.kill(process.pid, SIGTERM)
    let code = try await process.wait(seconds: seconds)
    guard code == 0 else { throw Failure("guardian ended with \(code): \(log.suffix(3_000))") }
    let left = processes { pid, session, line in
      pid != getpid() && (seen.contains(session) || line.contains(scratch.path))
    }
    guard left.isEmpty else { throw Failure("left behind: \(left)") }
  }
}

/// A port of 127.0.0.1 that nobody listens on at the moment.
func freePort() throws -> UInt16 {
  let raw = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
  guard raw >= 0 else { throw Failure.errno("socket") }
  defer { close(raw) }
  var address = sockaddr_in()
  address.sin_family = sa_family_t(AF_INET)
  address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
  var length = socklen_t(MemoryLayout<sockaddr_in>.size)
  let isBound = withUnsafeMutablePointer(to: &address) {
    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
      bind(raw, $0, length) == 0 && getsockname(raw, $0, &length) == 0
    }
  }
  guard isBound else { throw Failure.errno("bind") }
  return UInt16(bigEndian: address.sin_port)
}
