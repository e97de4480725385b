// What the measuring programs have in common: processes, reports of children, a supervisor to measure.

import Glibc

struct Failure: Error, CustomStringConvertible {
  var description: String
  init(_ text: String) { description = text }
  static func errno(_ what: String) -> Failure { Failure("\(what): \(String(cString: strerror(Glibc.errno)))") }
}

// MARK: - Processes

/// A process that this benchmark has started; told to end with the value, if it has not ended by then.
final class Program {
  let pid: pid_t
  private var ended = false

  deinit {
    guard !ended else { return }
    kill(pid, SIGTERM)  // a supervisor ends its children
    _ = wait()
  }

  /// Starts `arguments` with standard output and error on /dev/null, or on ours.
  init(_ arguments: [String], quiet: Bool = true) throws {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    if quiet {
      posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
      posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
    }
    var pid: pid_t = 0
    var argv = arguments.map { strdup($0) }
    argv.append(nil)
    defer { for pointer in argv { free(pointer) } }
    let error = posix_spawn(&pid, arguments[0], &actions, nil, argv, environ)
    guard error == 0 else { throw Failure("cannot run \(arguments[0]): \(String(cString: strerror(error)))") }
    self.pid = pid
  }

  @discardableResult
  func wait() -> Int32 {
    var status: Int32 = 0
    while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
    ended = true
    return status & 0x7f == 0 ? status >> 8 & 0xff : 128 + (status & 0x7f)
  }

  /// TERM, and KILL after half a minute.
  func end() throws {
    kill(pid, SIGTERM)
    let deadline = now() + 30_000_000_000
    var status: Int32 = 0
    while waitpid(pid, &status, WNOHANG) == 0 {
      guard now() < deadline else {
        kill(pid, SIGKILL)
        _ = wait()
        throw Failure("\(pid) did not end within 30 s of TERM")
      }
      usleep(2_000)
    }
    ended = true
  }

  /// Proportional share of memory in KiB, and the anonymous part of it.
  func memory() throws -> (pss: Int, anonymous: Int) {
    var pss = 0, anonymous = 0
    for line in try text("/proc/\(pid)/smaps_rollup").split(separator: "\n") {
      let words = line.split(separator: " ")
      guard words.count >= 2, let value = Int(words[1]) else { continue }
      if words[0] == "Pss:" { pss = value }
      if words[0] == "Pss_Anon:" { anonymous = value }
    }
    return (pss, anonymous)
  }

  /// Context switches of all threads, and CPU time in nanoseconds.
  func activity() throws -> (switches: Int, cpu: Int) {
    var switches = 0, cpu = 0
    for thread in try names(in: "/proc/\(pid)/task") {
      for line in try text("/proc/\(pid)/task/\(thread)/status").split(separator: "\n")
      where line.hasPrefix("voluntary_ctxt") || line.hasPrefix("nonvoluntary_ctxt") {
        switches += line.split(whereSeparator: { $0 == "\t" || $0 == " " }).last.flatMap { Int($0) } ?? 0
      }
      cpu += try text("/proc/\(pid)/task/\(thread)/schedstat").split(separator: " ").first.flatMap { Int($0) } ?? 0
    }
    return (switches, cpu)
  }
}

func now() -> UInt64 {
  var t = timespec()
  clock_gettime(CLOCK_MONOTONIC, &t)
  return UInt64(t.tv_sec) * 1_000_000_000 + UInt64(t.tv_nsec)
}

func text(_ path: String) throws -> String {
  let fd = open(path, O_RDONLY | O_CLOEXEC)
  guard fd >= 0 else { throw Failure.errno(path) }
  defer { close(fd) }
  var bytes: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 65_536)
  while true {
    let n = read(fd, &buffer, buffer.count)
    guard n > 0 else { break }
    bytes += buffer[0..<n]
  }
  return String(decoding: bytes, as: UTF8.self)
}

func names(in directory: String) throws -> [String] {
  guard let stream = opendir(directory) else { throw Failure.errno(directory) }
  defer { closedir(stream) }
  var found: [String] = []
  while let entry = readdir(stream) {
    let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    if name != "." && name != ".." { found.append(name) }
  }
  return found
}

func write(_ content: String, to path: String) throws {
  let fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
  guard fd >= 0 else { throw Failure.errno(path) }
  defer { close(fd) }
  let bytes = Array(content.utf8)
  guard Glibc.write(fd, bytes, bytes.count) == bytes.count else { throw Failure.errno(path) }
}

// MARK: - What the children report

struct Report {
  var pid: pid_t, time: UInt64
}

/// The FIFO that every child reports to; held open for reading and writing, so that no child ever waits for a reader.
final class Reports {
  let path: String
  private let fd: Int32
  private var buffer = [UInt8](repeating: 0, count: 65_536)

  init(path: String) throws {
    guard mkfifo(path, 0o666) == 0 else { throw Failure.errno(path) }
    chmod(path, 0o666)
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)
    guard fd >= 0 else { throw Failure.errno(path) }
    self.path = path
    _ = fcntl(fd, 1031, 1 << 20)  // F_SETPIPE_SZ, which is not imported
  }

  /// What has come by now.
  func take() -> [Report] {
    var reports: [Report] = []
    while true {
      let n = read(fd, &buffer, buffer.count)
      guard n > 0 else { return reports }
      buffer.withUnsafeBytes { bytes in
        for offset in stride(from: 0, to: n, by: 16) {
          reports.append(
            Report(
              pid: bytes.loadUnaligned(fromByteOffset: offset, as: Int32.self),
              time: bytes.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self)))
        }
      }
    }
  }

  /// Waits until `count` reports have come.
  func wait(for count: Int, seconds: Int) throws -> [Report] {
    let deadline = now() + UInt64(seconds) * 1_000_000_000
    var reports = take()
    while reports.count < count {
      guard now() < deadline else { throw Failure("only \(reports.count) of \(count) children within \(seconds) s") }
      var waiting = pollfd(fd: fd, events: Int16(POLLIN), revents: 0)
      poll(&waiting, 1, 100)
      reports += take()
    }
    return reports
  }
}

// MARK: - The two sides

struct Place {
  let programs: String, bench: String, scratch: String
}

enum Side: CaseIterable {
  case floor, guardian
}

/// One of the two, keeping `count` children running.
struct Supervisor {
  let program: Program
  let runtime: String
  let began: UInt64

  init(
    _ side: Side, count: Int, mode: String, reports: Reports, place: Place, window: String = "20ms", extra: String = "",
    host: String = ""
  ) throws {
    switch side {
    case .floor:
      runtime = ""
      began = now()
      program = try Program(["\(place.bench)/floor", String(count), "\(place.bench)/child", reports.path, mode])
    case .guardian:
      let home = place.scratch + "/guardian"
      _ = try Program(["/bin/rm", "-rf", home]).wait()
      for directory in ["", "/config", "/config/services", "/state", "/run", "/logs"] { mkdir(home + directory, 0o755) }
      if !host.isEmpty { try write(host, to: "\(home)/config/guardian.yaml") }
      for n in 0..<count {
        try write(
          """
          command: [\(place.bench)/child, \(reports.path), \(mode)]
          startup-window: \(window)
          late: {budget: 10000, within: 1h}
          log: none
          \(extra)
          """, to: "\(home)/config/services/s\(n).yaml")
      }
      runtime = home + "/run"
      guard try Program(["\(place.programs)/guardian", "--check", "--config", home + "/config"]).wait() == 0 else {
        throw Failure("guardian does not take the benchmark's configuration: \(home)/config")
      }
      began = now()
      program = try Program([
        "\(place.programs)/guardian", "--config", home + "/config", "--state", home + "/state", "--runtime", runtime,
        "--logs", home + "/logs",
      ])
    }
  }

  func end() throws { try program.end() }
}

// MARK: - Figures

extension [Double] {
  /// The value below which `share` of them lie.
  func quantile(_ share: Double) -> Double {
    let sorted = self.sorted()
    return sorted[Swift.min(sorted.count - 1, Int(Double(sorted.count) * share))]
  }
  var median: Double { quantile(0.5) }
}

func show(_ value: Double, _ digits: Int = 2) -> String {
  var buffer = [CChar](repeating: 0, count: 64)
  _ = withVaList([value]) { vsnprintf(&buffer, buffer.count, "%.\(digits)f", $0) }
  return buffer.withUnsafeBytes { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
}

func pad(_ text: String, _ width: Int) -> String {
  text + String(repeating: " ", count: max(1, width - text.count))
}

func row(_ what: String, floor: String, guardian: String, ratio: String, budget: String) {
  print(pad(what, 50) + pad(floor, 16) + pad(guardian, 18) + pad(ratio, 10) + budget)
  fflush(nil)
}

func milliseconds(_ nanoseconds: Double) -> String { show(nanoseconds / 1e6, 3) + " ms" }

/// Runs `measure` for both sides in turns and collects what it returns.
func inTurns(_ rounds: Int, _ measure: (Side) throws -> [Double]) rethrows -> (floor: [Double], guardian: [Double]) {
  var floor: [Double] = [], guardian: [Double] = []
  for round in 0..<rounds {
    for side in round % 2 == 0 ? [Side.floor, .guardian] : [.guardian, .floor] {
      let values = try measure(side)
      if side == .floor { floor += values } else { guardian += values }
    }
  }
  return (floor, guardian)
}

func fail(_ error: any Error) -> Never {
  let line = "\(error)\n"
  _ = Glibc.write(2, line, line.utf8.count)
  exit(1)
}

/// The programs of a build, copied as an installation would: what a linker has just written lies in the page cache in small
/// pieces, and each start of it meets more page faults than those of the same file copied, or read from the disk.
func installed(_ programs: String, _ directory: String) throws -> String {
  mkdir(directory, 0o755)
  for name in ["guardian", "guardianctl", "guardian-check", "guardian-logger"] {
    // Not every build has all of them.
    guard access("\(programs)/\(name)", X_OK) == 0 else { continue }
    guard try Program(["/bin/cp", "\(programs)/\(name)", "\(directory)/\(name)"]).wait() == 0 else {
      throw Failure("cannot copy \(programs)/\(name) to \(directory)")
    }
  }
  return directory
}

/// A new directory on a real disk, which /tmp need not be, with room for descriptors; `body` gets it, and then it goes.
func inScratch(_ programs: String, _ bench: String, _ body: (Place, Reports) throws -> Void) throws {
  guard let programs = realpath(programs, nil), let bench = realpath(bench, nil) else { throw Failure.errno(programs) }
  var template = Array("/var/tmp/guardian-bench.XXXXXX".utf8CString)
  guard mkdtemp(&template) != nil else { throw Failure.errno("mkdtemp") }
  let scratch = template.withUnsafeBytes { String(decoding: $0.dropLast(), as: UTF8.self) }
  defer { _ = try? Program(["/bin/rm", "-rf", scratch]).wait() }
  var limit = rlimit()
  getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
  limit.rlim_cur = limit.rlim_max
  setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
  try body(
    Place(
      programs: installed(String(cString: programs), scratch + "/programs"), bench: String(cString: bench),
      scratch: scratch),
    Reports(path: scratch + "/reports"))
}

/// The time of a whole process, from spawn to its end.
func wholeProcess(_ arguments: [String], times: Int) throws -> [Double] {
  try (0..<times).map { _ in
    let start = now()
    let code = try Program(arguments).wait()
    let time = Double(now() - start)
    guard code < 6 else { throw Failure("\(arguments.joined(separator: " ")) ended with \(code)") }
    return time
  }
}
