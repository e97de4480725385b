import Glibc
import Testing

/// Guardian is killed again and again, at random instants and at named ones, and started again at once. Every service
/// is its own witness: it writes down each of its lives, and holds a lock as long as it lives.
///
/// GUARDIAN_STORM=1000 is the long form: so many kills, and every fail-point with twenty seeds. GUARDIAN_SEED repeats one.
extension Programs {
  @Suite(.enabled(if: Storm.missing == nil, "not shown: \(Storm.missing ?? "")"))
  struct `guardian is killed while its services run` {
    @Test func `G9: at random instants: nobody is restarted for it, started twice, miscounted or forgotten`()
      async throws
    {
      let storm = try await Storm(seed: Storm.firstSeed)
      for _ in 0..<(Storm.long ?? 25) {
        try await storm.doSomething()
        usleep(UInt32(storm.random(below: 300_000)))
        try await storm.killAndRestart()
      }
      try await storm.finish()
    }

    @Test func `G1, G3: at each of its fail-points`() async throws {
      for round in 0..<(Storm.long == nil ? 1 : 20) {
        let storm = try await Storm(seed: Storm.firstSeed &+ UInt64(round))
        let names = try await storm.failPoints()
        try #require(names.count > 8, "this build of guardian has no fail-points: \(names)")
        for name in names {
          // What comes at every start would otherwise keep it from ever coming up.
          try await storm.restart(failPoint: "\(name):\(1 + storm.random(below: 3))")
          try await storm.doSomething()
          try await storm.awaitDeath(milliseconds: 1_500)
        }
        try await storm.restart(failPoint: nil)
        try await storm.finish()
      }
    }
  }
}

private final class Storm {
  static let long = getenv("GUARDIAN_STORM").flatMap { Int(String(cString: $0)) }
  static let firstSeed = getenv("GUARDIAN_SEED").flatMap { UInt64(String(cString: $0)) } ?? 1
  static let missing = access("/usr/bin/flock", X_OK) != 0 ? "flock is not there" : Book.missing

  let guardian: Guardian
  private let witness: String
  private let seed: UInt64
  private var state: UInt64
  /// What guardian has acknowledged last about the service `toggled`; nil: an order was under way when it was killed.
  private var wanted: Bool? = true
  private var steadyPids: [String: Int] = [:]
  private var kills = 0

  /// Each dies in its own way; `doomed` never live long enough to settle.
  private static let fleet: [(name: String, body: String, yaml: String)] =
    (1...10).map { ("steady-\($0)", "rest", "startup-window: 1s") }
    + [
      ("notifies", "systemd-notify --ready; rest", "ready: notify\nstartup-window: 1s"),
      ("toggled", "rest", "startup-window: 100ms"),
      ("put-down", "rest", "startup-window: 100ms"),
      // Restarts for ever: it is counted, and comes to no end.
      ("crasher", "sleep 0.1 9>&-; exit 3", "escalation: off\nbackoff: {first: 50ms, factor: 1, max: 50ms}"),
      // Settles each time, and dies within its budget.
      ("late", "sleep 0.4 9>&-; exit 3", "startup-window: 50ms\nlate: {budget: 100000, within: 1h}"),
      ("task", "sleep 0.3 9>&-; exit 0", "type: task"),
      (
        "sick", "[ -e $W/cured ] || exit 78; rest",
        "startup-window: 500ms\nbackoff: {first: 100ms}\nrepair: [{name: cure, run: [HOOK]}]"
      ),
    ]
    + ["0.01", "0.2", "0.5"].enumerated().map {
      (
        "doomed-\($0 + 1)", "sleep \($1) 9>&-; exit 3",
        "startup-window: 1min\nbackoff: {first: 200ms, factor: 1.2, max: 1s}\nquarantine: {retry-after: 2h}"
      )
    }

  init(seed: UInt64) async throws {
    self.seed = seed
    state = seed &* 0x9e37_79b9_7f4a_7c15 | 1
    let scratch = try Scratch()
    witness = try scratch.directory("witness", mode: 0o777)
    let hook = scratch.path + "/hook"
    try Files.write(
      "#!/bin/sh\nexec 9>>\(witness)/hook.lock; /usr/bin/flock -n 9 || echo hook $$ >>\(witness)/doubles\n"
        + "echo \"start $$\" >>\(witness)/hook; sleep 0.3 9>&-; : >\(witness)/cured\n", to: hook, mode: 0o755)
    var services: [String: String] = [:]
    for (name, body, yaml) in Self.fleet {
      let program = "\(scratch.path)/\(name)"
      try Files.write(
        """
        #!/bin/sh
        W=\(witness)
        exec 9>>$W/\(name).lock
        /usr/bin/flock -n 9 || echo "\(name) $$" >>$W/doubles
        echo "start $$ $INVOCATION_ID" >>$W/\(name)
        trap 'echo "end $$" >>$W/\(name); exit 0' TERM
        rest() { while :; do sleep 1000 9>&- & wait $!; done; }
        \(body)

        """, to: program, mode: 0o755)
      services[name] =
        "command: [\"\(program)\"]\nlog: none\n" + yaml.replacing("HOOK", with: "\"\(hook)\"") + "\n"
    }
    guardian = try await Guardian(scratch, services: services)
    for name in Self.fleet.map(\.name) where name.hasPrefix("steady") || name == "notifies" {
      let running = try await guardian.wait(for: name, "runs") {
        $0["pid"].int != nil && $0["phase"].string == "running"
      }
      steadyPids[name] = running["pid"].int
    }
    #expect(try await guardian.control("stop", "put-down").code == 0)
  }

  /// The same numbers for the same seed: splitmix64.
  func random(below bound: Int) -> Int {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return Int((z ^ (z >> 31)) % UInt64(bound))
  }

  /// Now and then an order, whose answer is believed only where guardian gave it.
  func doSomething() async throws {
    guard random(below: 3) == 0 else { return }
    let up = random(below: 2) == 0
    let answer = try await guardian.control(up ? "start" : "stop", "toggled")
    wanted = answer.code == 0 ? up : nil
  }

  func killAndRestart() async throws {
    kill(guardian.process.pid, SIGKILL)
    try await restart(failPoint: nil)
  }

  /// As an init system does it: at once, and again where it ends by itself.
  func restart(failPoint: String?) async throws {
    kill(guardian.process.pid, SIGKILL)
    _ = try await guardian.process.wait()
    kills += 1
    try guardian.respawn(environment: failPoint.map { ["GUARDIAN_FAILPOINT": $0] } ?? [:])
  }

  /// It dies at its fail-point, or has not come there.
  func awaitDeath(milliseconds: Int) async throws {
    for _ in 0..<(milliseconds / 20) where guardian.process.poll() == nil {
      try await Task.sleep(for: .milliseconds(20))
    }
    if let code = guardian.process.poll() {
      #expect(
        code == 128 + SIGKILL, "guardian ended by itself with \(code), seed \(seed): \(guardian.log.suffix(2_000))")
    }
  }

  /// Those that an instance on this fleet comes to, by its start, orders and deaths.
  func failPoints() async throws -> [String] {
    let list = guardian.scratch.path + "/fail-points"
    try await restart(failPoint: "list:\(list)")
    try await guardian.answers()
    for order in ["stop", "start", "restart"] { _ = try await guardian.control(order, "toggled") }
    wanted = true
    try await Task.sleep(for: .milliseconds(500))
    return Set(((try? Files.read(list)) ?? "").split(separator: "\n").map(String.init)).sorted()
  }

  private func lives(_ name: String) -> [(pid: Int, run: String)] {
    ((try? Files.read("\(witness)/\(name)")) ?? "").split(separator: "\n").compactMap { line in
      let words = line.split(separator: " ")
      guard words.first == "start", words.count > 1, let pid = Int(words[1]) else { return nil }
      return (pid, words.count > 2 ? String(words[2]) : "")
    }
  }

  func finish() async throws {
    let told = "seed \(seed), after \(kills) kills"
    try await guardian.answers()
    for (name, pid) in steadyPids {
      let now = try await guardian.wait(for: name, "runs") { $0["phase"].string == "running" }
      #expect(now["pid"].int == pid && lives(name).count == 1, "\(name): \(now), \(told)")
      #expect(now["restarts"].int ?? 0 == 0 && now["strikes"].int ?? 0 == 0, "\(name): \(now), \(told)")
    }
    for name in ["doomed-1", "doomed-2", "doomed-3"] {
      let now = try await guardian.wait(for: name, "is quarantined", seconds: 60) {
        $0["phase"].string == "quarantined"
      }
      // Strikes 1 … 7 by seven deaths, whoever saw them.
      #expect(lives(name).count == 7, "\(name): \(lives(name).count) starts, \(now), \(told)")
    }
    let sick = try await guardian.wait(for: "sick", "is well", seconds: 60) { $0["settled"].bool == true }
    #expect(!lives("hook").isEmpty, "\(sick), \(told)")
    try await guardian.wait(for: "task", "is finished") { $0["phase"].string == "finished" }
    #expect(try await guardian.status("put-down")["phase"].string == "stopped", "\(told)")
    #expect(lives("put-down").count <= 1, "\(told)")
    if let wanted {
      try await guardian.wait(for: "toggled", "is as it was ordered, \(told)") {
        $0["phase"].string == (wanted ? "running" : "stopped")
      }
    }
    let late = try await guardian.status("late")
    #expect(late["strikes"].int ?? 0 == 0, "\(late), \(told)")
    #expect(((try? Files.read(witness + "/doubles")) ?? "") == "", "two lives at once, \(told)")

    try await guardian.stop()
    let book = try await Book.read(guardian)
    for name in Self.fleet.map(\.name) {
      let entries = book[name] ?? [:], seen = lives(name).map(\.run)
      #expect(Set(seen).count == seen.count, "\(name): a run began twice, \(told)")
      #expect(entries.keys.filter { seen.contains($0) }.count == seen.count, "\(name): lives not in the book, \(told)")
      #expect(entries.values.allSatisfy { $0 }, "\(name): \(entries.filter { !$0.value }) never ended, \(told)")
    }
  }
}
