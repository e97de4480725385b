// bench PROGRAMS BENCH [--rounds N] [--before PROGRAMS] : guardian beside a bare C loop that does the same, in turns, as
// ratios; with `--before`, its restarts also beside those of an earlier guardian.
//
// Only ratios within one run mean anything; the absolute figures are for scale. Both start the same child, which reports
// the time of its first instruction to a FIFO. guardian's profile: as root where possible, `log: none`, release build.

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
    _ side: Side, count: Int, mode: String, reports: Reports, place: Place, window: String = "20ms", extra: String = ""
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

// MARK: - The rows

/// Who restarts, and how.
struct Contender {
  var side: Side
  /// Of the guardian that is measured, or of an earlier one.
  var programs: String
  /// The child that is killed is still starting up, so that its successor has to be recorded first.
  var durable = false
}

/// From the signal that ends a settled child to its successor's first instruction, in nanoseconds for each contender.
///
/// All stand side by side, which costs nothing while they are idle, and take turns kill by kill: what else goes on in the
/// machine meets all of them alike.
func restarts(_ contenders: [Contender], _ count: Int, _ place: Place) throws -> [[Double]] {
  var standing: [(supervisor: Supervisor, reports: Reports, alive: [pid_t])] = []
  for (number, contender) in contenders.enumerated() {
    let own = Place(programs: contender.programs, bench: place.bench, scratch: "\(place.scratch)/\(number)")
    mkdir(own.scratch, 0o755)
    let reports = try Reports(path: own.scratch + "/reports")
    let supervisor = try Supervisor(
      contender.side, count: 10, mode: "stay", reports: reports, place: own, window: contender.durable ? "1h" : "20ms",
      extra: contender.durable ? "escalation: off\nbackoff: {first: 0s}" : "")
    standing.append((supervisor, reports, try reports.wait(for: 10, seconds: 20).map(\.pid)))
  }
  usleep(300_000)
  var times = contenders.map { _ in [Double]() }
  for n in 0..<count {
    for turn in contenders.indices {
      // Nobody always comes after the same other.
      let at = n % 2 == 0 ? turn : contenders.count - 1 - turn
      usleep(8_000)  // ten of them in turn: each has outlived its window of 20 ms
      let start = now()
      kill(standing[at].alive[n % 10], SIGUSR1)
      let next = try standing[at].reports.wait(for: 1, seconds: 10)[0]
      times[at].append(Double(next.time - start))
      standing[at].alive[n % 10] = next.pid
    }
  }
  for one in standing { try one.supervisor.end() }
  return times
}

/// Restarts per second while 200 services exit at once.
func storm(_ side: Side, _ reports: Reports, _ place: Place) throws -> [Double] {
  let supervisor = try Supervisor(
    side, count: 200, mode: "exit", reports: reports, place: place, extra: "escalation: off\nbackoff: {first: 0s}")
  defer { _ = reports.take() }
  _ = try reports.wait(for: 400, seconds: 20)
  let start = now()
  var count = 0
  while now() < start + 4_000_000_000 {
    usleep(5_000)
    count += reports.take().count
  }
  let rate = Double(count) / (Double(now() - start) / 1e9)
  try supervisor.end()
  return [rate]
}

struct Fleet {
  var untilLast: Double, fromFirst: Double, pss: Double, anonymous: Double, switches: Double, cpu: Double
}

/// Start, memory and idle of `count` services; `during` runs while they stand.
func fleet(
  _ side: Side, count: Int, idle: Int, _ reports: Reports, _ place: Place,
  during: (Supervisor) throws -> Void = { _ in }
) throws -> Fleet {
  let supervisor = try Supervisor(side, count: count, mode: "stay", reports: reports, place: place)
  defer { _ = reports.take() }
  let times = try reports.wait(for: count, seconds: 60).map(\.time)
  guard let first = times.min(), let last = times.max() else { throw Failure("no child") }
  usleep(2_000_000)
  let before = try supervisor.program.activity()
  let start = now()
  sleep(UInt32(idle))
  let after = try supervisor.program.activity()
  let seconds = Double(now() - start) / 1e9
  let memory = try supervisor.program.memory()
  try during(supervisor)
  try supervisor.end()
  return Fleet(
    untilLast: Double(last - supervisor.began), fromFirst: Double(last - first), pss: Double(memory.pss) / 1024,
    anonymous: Double(memory.anonymous) / 1024, switches: Double(after.switches - before.switches) / seconds,
    cpu: Double(after.cpu - before.cpu) / 1e6 / seconds)
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

func bench() throws {
  var arguments = Array(CommandLine.arguments.dropFirst()), rounds = 3, before: String?
  if let at = arguments.firstIndex(of: "--rounds"), at + 1 < arguments.count, let n = Int(arguments[at + 1]), n > 0 {
    rounds = n
    arguments.removeSubrange(at...at + 1)
  }
  if let at = arguments.firstIndex(of: "--before"), at + 1 < arguments.count {
    before = arguments[at + 1]
    arguments.removeSubrange(at...at + 1)
  }
  guard arguments.count == 2, let programs = realpath(arguments[0], nil), let bench = realpath(arguments[1], nil) else {
    throw Failure("usage: bench PROGRAMS BENCH [--rounds N] [--before PROGRAMS]")
  }
  var template = Array("/var/tmp/guardian-bench.XXXXXX".utf8CString)  // a real disk, which /tmp need not be
  guard mkdtemp(&template) != nil else { throw Failure.errno("mkdtemp") }
  let scratch = template.withUnsafeBytes { String(decoding: $0.dropLast(), as: UTF8.self) }
  defer { _ = try? Program(["/bin/rm", "-rf", scratch]).wait() }
  let place = Place(programs: String(cString: programs), bench: String(cString: bench), scratch: scratch)
  let reports = try Reports(path: scratch + "/reports")

  var limit = rlimit()
  getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
  limit.rlim_cur = limit.rlim_max
  setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)

  print("\(rounds) rounds in turns, medians; \(sysconf(Int32(_SC_NPROCESSORS_ONLN))) CPUs, uid \(getuid())\n")
  row("", floor: "bare C loop", guardian: "guardian", ratio: "ratio", budget: "budget")

  var contenders = [
    Contender(side: .floor, programs: place.programs), Contender(side: .guardian, programs: place.programs),
    Contender(side: .guardian, programs: place.programs, durable: true),
  ]
  if let before { contenders.append(Contender(side: .guardian, programs: before)) }
  let restart = try restarts(contenders, 300 * rounds, place)
  for (name, share, budget) in [("p50", 0.5, "<= 1.3x"), ("p99", 0.99, "<= 1.5x")] {
    let at = restart.map { $0.quantile(share) }
    row(
      "death -> successor's first instruction, \(name)", floor: milliseconds(at[0]), guardian: milliseconds(at[1]),
      ratio: show(at[1] / at[0]) + "x", budget: budget)
    row(
      "start recorded first : restart at once, \(name)", floor: milliseconds(at[1]) + " (at once)",
      guardian: milliseconds(at[2]), ratio: show(at[2] / at[1]) + "x", budget: "")
    if at.count > 3 {
      row(
        "restart at once : as it was before, \(name)", floor: milliseconds(at[3]) + " (before)",
        guardian: milliseconds(at[1]), ratio: show(at[1] / at[3]) + "x", budget: "1.0x")
    }
  }

  let rate = try inTurns(rounds) { try storm($0, reports, place) }
  row(
    "storm, 200 services, restarts/s", floor: show(rate.floor.median, 0), guardian: show(rate.guardian.median, 0),
    ratio: show(rate.guardian.median / rate.floor.median) + "x", budget: "> 0.58x, then 0.75x")

  var small: [Side: [Fleet]] = [:], large: [Side: [Fleet]] = [:]
  var list: [Double] = [], json: [Double] = [], one: [Double] = [], empty: [Double] = []
  for _ in 0..<rounds {
    for side in Side.allCases {
      small[side, default: []].append(try fleet(side, count: 10, idle: 1, reports, place))
      large[side, default: []].append(
        try fleet(side, count: 1_000, idle: 10, reports, place) { supervisor in
          guard side == .guardian else { return }
          let ctl = ["\(place.programs)/guardianctl", "--runtime", supervisor.runtime]
          list += try wholeProcess(ctl + ["status"], times: 20)
          json += try wholeProcess(ctl + ["--json", "status"], times: 20)
          one += try wholeProcess(ctl + ["status", "s500"], times: 20)
          empty += try wholeProcess(["\(place.bench)/child"], times: 20)
        })
    }
  }
  func median(_ fleets: [Side: [Fleet]], _ side: Side, _ value: (Fleet) -> Double) -> Double {
    (fleets[side] ?? []).map(value).median
  }
  for (name, value, budget) in [
    ("start of 1,000, from the program's exec", { $0.untilLast }, ""),
    ("start of 1,000, from the first main to the last", { $0.fromFirst }, "<= 2.0x"),
  ] as [(String, (Fleet) -> Double, String)] {
    let floor = median(large, .floor, value), guardian = median(large, .guardian, value)
    row(
      name, floor: milliseconds(floor), guardian: milliseconds(guardian), ratio: show(guardian / floor) + "x",
      budget: budget)
  }
  for (name, fleets, budget) in [("10", small, "<= 8.5 MB"), ("1,000", large, "<= 11 MB")] {
    row(
      "memory (PSS; anonymous) with \(name) services, MB",
      floor: show(median(fleets, .floor) { $0.pss }) + "; " + show(median(fleets, .floor) { $0.anonymous }),
      guardian: show(median(fleets, .guardian) { $0.pss }) + "; " + show(median(fleets, .guardian) { $0.anonymous }),
      ratio: "", budget: budget)
  }
  func each(_ side: Side) -> String {
    show((median(large, side) { $0.pss } - median(small, side) { $0.pss }) * 1024 / 990) + " KiB"
  }
  row("memory of each service", floor: each(.floor), guardian: each(.guardian), ratio: "", budget: "<= 2.5 KiB")
  row(
    "idle, 1,000 services: context switches/s", floor: show(median(large, .floor) { $0.switches }),
    guardian: show(median(large, .guardian) { $0.switches }), ratio: "", budget: "0")
  row(
    "idle, 1,000 services: CPU ms/s", floor: show(median(large, .floor) { $0.cpu }),
    guardian: show(median(large, .guardian) { $0.cpu }), ratio: "", budget: "0")
  for (name, times, budget) in [
    ("status of 1,000, whole process (floor: an empty one)", list, "<= 4.4 ms"),
    ("status of 1,000 in JSON", json, "<= 10 ms"), ("status of one of 1,000", one, "<= 1.4 ms"),
  ] {
    row(
      name, floor: milliseconds(empty.median), guardian: milliseconds(times.median),
      ratio: show(times.median / empty.median) + "x", budget: budget)
  }
}

do { try bench() } catch {
  let line = "bench: \(error)\n"
  _ = Glibc.write(2, line, line.utf8.count)
  exit(1)
}
