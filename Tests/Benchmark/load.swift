// load PROGRAMS BENCH [many] [restarts] [loops] [--services N] [--restarts N] : guardian under more than it is made for.
//
// many      10,000 services in one instance: started under the governor, guardianctl asked meanwhile; idle; a hundred
//           deaths a second; all of them killed at once; stopped.
// restarts  1,000,000 restarts of programs that exit at once: descriptors, memory and control groups stay what they were.
// loops     a hundred and a thousand services in a crash loop: what that costs is bounded.

import Glibc

/// How long guardianctl takes, asked again and again by a process of its own kind.
struct Asking {
  let arguments: [String]
  var times: [Double] = []
  var first: UInt64?

  /// Asks once; false: nobody answered.
  mutating func ask() throws -> Bool {
    let start = now()
    let code = try Program(arguments).wait()
    guard code < 6 else { return false }
    times.append(Double(now() - start))
    first = first ?? now()
    return true
  }
  var figures: String {
    times.isEmpty
      ? "never" : "\(milliseconds(times.median)), p99 \(milliseconds(times.quantile(0.99))), of \(times.count)"
  }
}

func line(_ what: String, _ value: String) {
  print(pad(what, 58) + value)
  fflush(nil)
}

/// Directories below guardian's control groups, wherever they are; 0 without any.
func controlGroups(_ pid: pid_t) -> Int {
  guard let own = try? text("/proc/\(pid)/cgroup").split(separator: "\n").first(where: { $0.hasPrefix("0::") }) else {
    return 0
  }
  func below(_ path: String) -> Int {
    guard let entries = try? names(in: path) else { return 0 }
    return entries.reduce(0) { count, name in
      var status = stat()
      let there = path + "/" + name
      return lstat(there, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR ? count + 1 + below(there) : count
    }
  }
  for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
    let path = mount + own.dropFirst(3)
    if access(path + "/cgroup.procs", F_OK) == 0 { return below(path) }
  }
  return 0
}

func many(_ count: Int, _ place: Place, _ reports: Reports) throws {
  let rate = 2_000, concurrent = 128
  print("\n\(count) services, governor: {starts-per-second: \(rate), concurrent: \(concurrent)}")
  let supervisor = try Supervisor(
    .guardian, count: count, mode: "stay", reports: reports, place: place, window: "200ms",
    host: "governor: {starts-per-second: \(rate), concurrent: \(concurrent)}")
  let ctl = ["\(place.programs)/guardianctl", "--runtime", supervisor.runtime]

  // Start, with somebody who wants to know.
  var one = Asking(arguments: ctl + ["status", "s\(count / 2)"])
  var born: [Report] = []
  let deadline = now() + 600_000_000_000
  while born.count < count {
    guard now() < deadline else { throw Failure("only \(born.count) of \(count) started within ten minutes") }
    if try !one.ask() { usleep(10_000) }
    born += reports.take()
  }
  let times = born.map(\.time).sorted()
  var most = 0, low = 0
  for high in times.indices {
    while times[high] - times[low] > 1_000_000_000 { low += 1 }
    most = max(most, high - low + 1)
  }
  line(
    "first answer of guardianctl, from guardian's exec",
    one.first.map { milliseconds(Double($0 - supervisor.began)) } ?? "-")
  line("all started, from guardian's exec", milliseconds(Double((times.last ?? 0) - supervisor.began)))
  line("all started, from the first main", milliseconds(Double((times.last ?? 0) - (times.first ?? 0))))
  line("most starts within a second (bound \(2 * rate))", "\(most)")
  line("status of one meanwhile", one.figures)

  // Idle.
  sleep(5)
  _ = reports.take()
  let before = try supervisor.program.activity(), start = now()
  sleep(10)
  let after = try supervisor.program.activity(), seconds = Double(now() - start) / 1e9
  line(
    "idle: context switches/s, CPU ms/s",
    show(Double(after.switches - before.switches) / seconds) + ", "
      + show(Double(after.cpu - before.cpu) / 1e6 / seconds))
  let memory = try supervisor.program.memory()
  line("memory (PSS; anonymous), MB", show(Double(memory.pss) / 1024) + "; " + show(Double(memory.anonymous) / 1024))
  line("memory of each service, KiB", show(Double(memory.pss) / Double(count)))
  let list = try wholeProcess(ctl + ["status"], times: 20),
    json = try wholeProcess(ctl + ["--json", "status"], times: 20)
  line("status of all, text", milliseconds(list.median))
  line("status of all, JSON (<= 100 ms)", milliseconds(json.median))

  // A hundred deaths a second.
  var alive = born.map(\.pid)
  var delays: [Double] = []
  one = Asking(arguments: ctl + ["status", "s\(count / 2)"])
  let storm = now()
  var killed: [(index: Int, at: UInt64)] = [], waiting: [Report] = []
  for n in 0..<2_000 {
    let due = storm + UInt64(n) * 10_000_000
    while now() < due { usleep(500) }
    killed.append((n % count, now()))
    kill(alive[n % count], SIGKILL)
    waiting += reports.take()
    if n % 50 == 0 { _ = try one.ask() }
  }
  let rest = try reports.wait(for: 2_000 - waiting.count, seconds: 60)
  waiting += rest
  // Restarts at once come in the order of the deaths, but for what overtakes on two processors.
  for (death, birth) in zip(killed, waiting.sorted { $0.time < $1.time }) {
    delays.append(Double(birth.time) - Double(death.at))
    alive[death.index] = birth.pid
  }
  line(
    "100 deaths/s for 20 s: death -> successor, p50, p99",
    milliseconds(delays.median) + ", " + milliseconds(delays.quantile(0.99)))
  line("status of one meanwhile", one.figures)

  // All at once.
  one = Asking(arguments: ctl + ["status", "s\(count / 2)"])
  let massacre = now()
  for pid in alive { kill(pid, SIGKILL) }
  line("\(count) killed within", milliseconds(Double(now() - massacre)))
  var back: [Report] = []
  while back.count < count {
    guard now() < massacre + 600_000_000_000 else { throw Failure("only \(back.count) of \(count) are back") }
    _ = try one.ask()
    back += reports.take()
  }
  line("all of them back after", milliseconds(Double((back.map(\.time).max() ?? 0) - massacre)))
  line("status of one meanwhile", one.figures)
  sleep(3)
  let later = try supervisor.program.memory()
  line(
    "memory (PSS; anonymous) after it, MB", show(Double(later.pss) / 1024) + "; " + show(Double(later.anonymous) / 1024)
  )

  let stop = now()
  try supervisor.end()
  line("all stopped after", milliseconds(Double(now() - stop)))
}

func restarts(_ count: Int, _ place: Place, _ reports: Reports) throws {
  print("\n\(count) restarts of 50 programs that exit at once; escalation: off, first: 0s, governor: off")
  print(
    pad("restarts", 12) + pad("restarts/s", 12) + pad("descriptors", 13) + pad("PSS MB", 9) + pad("anonymous MB", 14)
      + pad("groups", 8) + "threads")
  let supervisor = try Supervisor(
    .guardian, count: 50, mode: "exit", reports: reports, place: place,
    extra: "escalation: off\nbackoff: {first: 0s}", host: "governor: off\ncommon-cause: off")
  var done = 0, next = count / 20, last = now(), lastDone = 0, seen = now()
  while done < count {
    usleep(20_000)
    let more = reports.take().count
    done += more
    if more > 0 { seen = now() }
    guard now() < seen + 120_000_000_000 else { throw Failure("no restart for two minutes, after \(done)") }
    guard done >= next else { continue }
    let pid = supervisor.program.pid
    let memory = try supervisor.program.memory()
    let rate = Double(done - lastDone) / (Double(now() - last) / 1e9)
    print(
      pad("\(done)", 12) + pad(show(rate, 0), 12) + pad("\(try names(in: "/proc/\(pid)/fd").count)", 13)
        + pad(show(Double(memory.pss) / 1024), 9) + pad(show(Double(memory.anonymous) / 1024), 14)
        + pad("\(controlGroups(pid))", 8) + "\(try names(in: "/proc/\(pid)/task").count)")
    fflush(nil)
    (last, lastDone, next) = (now(), done, next + count / 20)
  }
  try supervisor.end()
  _ = reports.take()
}

func loops(_ place: Place, _ reports: Reports) throws {
  print("\ncrash loops; escalation: off, first: 0s, max: 1s, the default governor")
  print(pad("services", 12) + pad("starts/s", 12) + pad("CPU ms/s", 12) + "status of one")
  for count in [100, 1_000] {
    let supervisor = try Supervisor(
      .guardian, count: count, mode: "exit", reports: reports, place: place,
      extra: "escalation: off\nbackoff: {first: 0s, max: 1s}")
    sleep(10)
    _ = reports.take()
    let before = try supervisor.program.activity(), start = now()
    var one = Asking(arguments: ["\(place.programs)/guardianctl", "--runtime", supervisor.runtime, "status", "s50"])
    var starts = 0
    while now() < start + 10_000_000_000 {
      _ = try one.ask()
      usleep(100_000)
      starts += reports.take().count
    }
    let after = try supervisor.program.activity(), seconds = Double(now() - start) / 1e9
    print(
      pad("\(count)", 12) + pad(show(Double(starts) / seconds, 0), 12)
        + pad(show(Double(after.cpu - before.cpu) / 1e6 / seconds, 1), 12) + one.figures)
    fflush(nil)
    try supervisor.end()
    _ = reports.take()
  }
}

@main struct Load {
  static func main() {
    do {
      var arguments = Array(CommandLine.arguments.dropFirst())
      func number(_ name: String, _ standard: Int) -> Int {
        guard let at = arguments.firstIndex(of: name), at + 1 < arguments.count, let n = Int(arguments[at + 1]), n > 19
        else { return standard }
        arguments.removeSubrange(at...at + 1)
        return n
      }
      let services = number("--services", 10_000), times = number("--restarts", 1_000_000)
      let known = ["many", "restarts", "loops"]
      guard arguments.count >= 2, arguments.dropFirst(2).allSatisfy(known.contains) else {
        throw Failure("usage: load PROGRAMS BENCH [many] [restarts] [loops] [--services N] [--restarts N]")
      }
      let wanted = arguments.count > 2 ? Array(arguments.dropFirst(2)) : known
      try inScratch(arguments[0], arguments[1]) { place, reports in
        print("\(sysconf(Int32(_SC_NPROCESSORS_ONLN))) CPUs, uid \(getuid())")
        for what in wanted {
          switch what {
          case "many": try many(services, place, reports)
          case "restarts": try restarts(times, place, reports)
          default: try loops(place, reports)
          }
        }
      }
    } catch { fail(error) }
  }
}
