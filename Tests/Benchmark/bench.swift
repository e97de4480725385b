// bench PROGRAMS BENCH [--rounds N] [--before PROGRAMS] : guardian beside a bare C loop that does the same, in turns, as
// ratios; with `--before`, its restarts also beside those of an earlier guardian.
//
// Only ratios within one run mean anything; the absolute figures are for scale. Both start the same child, which reports
// the time of its first instruction to a FIFO. guardian's profile: as root where possible, `log: none`, release build.

import Glibc

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
    side, count: 200, mode: "exit", reports: reports, place: place, extra: "escalation: off\nbackoff: {first: 0s}",
    host: "governor: off")
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
  let supervisor = try Supervisor(
    side, count: count, mode: "stay", reports: reports, place: place, host: "governor: off")
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
  guard arguments.count == 2 else { throw Failure("usage: bench PROGRAMS BENCH [--rounds N] [--before PROGRAMS]") }
  try inScratch(arguments[0], arguments[1]) { try rows(rounds, before: before, $0, $1) }
}

/// `status` of ten thousand services in JSON, whole process.
func jsonOfMany(_ reports: Reports, _ place: Place) throws -> [Double] {
  let count = 10_000
  let supervisor = try Supervisor(
    .guardian, count: count, mode: "stay", reports: reports, place: place, host: "governor: off")
  defer { _ = reports.take() }
  _ = try reports.wait(for: count, seconds: 120)
  usleep(5_000_000)
  let times = try wholeProcess(
    ["\(place.programs)/guardianctl", "--runtime", supervisor.runtime, "--json", "status"], times: 20)
  try supervisor.end()
  return times
}

func rows(_ rounds: Int, before: String?, _ place: Place, _ reports: Reports) throws {
  print("\(rounds) rounds in turns, medians; \(sysconf(Int32(_SC_NPROCESSORS_ONLN))) CPUs, uid \(getuid())\n")
  row("", floor: "bare C loop", guardian: "guardian", ratio: "ratio", budget: "budget")

  var contenders = [
    Contender(side: .floor, programs: place.programs), Contender(side: .guardian, programs: place.programs),
    Contender(side: .guardian, programs: place.programs, durable: true),
  ]
  if let before {
    contenders.append(Contender(side: .guardian, programs: try installed(before, place.scratch + "/before")))
  }
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
  let many = try jsonOfMany(reports, place)
  for (name, times, budget) in [
    ("status of 1,000, whole process (floor: an empty one)", list, "<= 4.4 ms"),
    ("status of 1,000 in JSON", json, "<= 10 ms"), ("status of 10,000 in JSON", many, "<= 100 ms"),
    ("status of one of 1,000", one, "<= 1.4 ms"),
  ] {
    row(
      name, floor: milliseconds(empty.median), guardian: milliseconds(times.median),
      ratio: show(times.median / empty.median) + "x", budget: budget)
  }
}

@main struct Bench {
  static func main() {
    do { try bench() } catch { fail(error) }
  }
}
