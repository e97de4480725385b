import Glibc
import GuardianModel
import GuardianSim

// Drives fleets in virtual time. Each seed is a world of its own; workers are processes, since worlds share nothing.

let options: Options
do { options = try Options(arguments: CommandLine.arguments.dropFirst().map { $0 }) } catch {
  say("guardian-sim: \(error.text)\n\(Options.usage)", to: STDERR_FILENO)
  exit(64)
}
if options.help {
  say(Options.usage)
  exit(0)
}

let begun = seconds()
if let limit = options.walk, let spec = Walk.spec() {
  do {
    let walk = try Walk(spec, limit: limit)
    say(
      "\(walk.states) states\(walk.complete ? ", all there are" : ""), \(walk.transitions) transitions in "
        + "\(Int(seconds() - begun)) s; no rule broken")
    exit(0)
  } catch {
    say("\(error)")
    exit(1)
  }
}
if let incidents = options.search {
  for line in SearchReport(incidents: incidents, seed: options.seeds.lowerBound).lines { say(line) }
  say("\(incidents) incidents in \(Int(seconds() - begun)) s")
  exit(0)
}
say(options.description)
var workers: [pid_t] = []
var failed = false
let jobs = min(options.jobs, options.seeds.count)
if jobs < 2 {
  for seed in options.seeds where !run(seed, options) {
    failed = true
    break
  }
} else {
  for worker in 0..<jobs {
    let pid = fork()
    if pid < 0 {
      say("guardian-sim: cannot fork: errno \(errno)", to: STDERR_FILENO)
      failed = true
      break
    }
    if pid == 0 {
      // Every jobs-th seed.
      for (index, seed) in options.seeds.enumerated() where index % jobs == worker {
        if !run(seed, options) { exit(1) }
      }
      exit(0)
    }
    workers.append(pid)
  }
  for pid in workers {
    var status: Int32 = 0
    while waitpid(pid, &status, 0) < 0, errno == EINTR {}
    if status != 0 { failed = true }
  }
}
let tenths = Int((seconds() - begun) * 10)
say("\(failed ? "FAILED" : "passed"): \(options.seeds.count) seeds in \(tenths / 10).\(tenths % 10) s")
exit(failed ? 1 : 0)

/// One seed: trouble, then quiet, then the end. False after having told what was wrong.
func run(_ seed: UInt64, _ options: Options) -> Bool {
  let begun = seconds()
  var world = World(seed: seed, services: options.services, bug: options.bug)
  do {
    try options.drive(&world)
    if options.verbose {
      let milliseconds = Int((seconds() - begun) * 1000)
      say(
        "seed \(seed): \(world.events) events, \(world.spawns) starts, \(world.hooks) repairs, "
          + "\(world.quarantines) quarantined; \(milliseconds) ms")
    }
    return true
  } catch {
    say("seed \(seed): \(error)")
    // The same world again, this time with the story of the service concerned written down.
    var again = World(seed: seed, services: options.services, bug: options.bug, tracing: max(0, error.number))
    try? options.drive(&again)
    for line in again.trace.suffix(options.verbose ? 4000 : 40) { say("  " + line) }
    say("replay: guardian-sim \(options.replay(seed))")
    return false
  }
}

func seconds() -> Double {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

/// One line, in one write, so that workers do not tear each other's.
func say(_ line: String, to descriptor: Int32 = STDOUT_FILENO) {
  var text = line + "\n"
  text.withUTF8 { bytes in
    guard let start = bytes.baseAddress else { return }
    var done = 0
    while done < bytes.count {
      let written = write(descriptor, start + done, bytes.count - done)
      if written < 0, errno == EINTR { continue }
      guard written > 0 else { return }
      done += written
    }
  }
}
