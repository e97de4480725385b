import Glibc
import Testing

/// Reports from the field about other supervisors, tried on guardian with real processes.
extension PatientPrograms {
  @Suite struct `what went wrong elsewhere` {
    private let steady = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    // MARK: Process trees and signals

    @Test func `CASES 22: TERM while three hundred start: no further start, the reverse order, and nothing is left`()
      async throws
    {
      let scratch = try Scratch()
      let names = (100..<400).map { "s\($0)" }
      var services: [String: String] = [:]
      for (name, before) in zip(names, [nil] + names.map(Optional.init)) {
        services[name] = steady + (before.map { "after: [\($0)]\n" } ?? "")
      }
      let guardian = try await Guardian(
        scratch, services: services, host: "governor: {starts-per-second: 100, concurrent: 8}\n")
      /// Of each line that has these words, whom it is about, in order.
      func about(_ words: String) -> [String] {
        guardian.log.split(separator: "\n").compactMap { line in
          line.firstRange(of: ": \(words)").map { String(line[..<$0.lowerBound].split(separator: " ").last ?? "") }
        }
      }
      try await eventually("sixty are started") { about("started, pid ").count >= 60 ? () : nil }
      kill(guardian.process.pid, SIGTERM)
      // The longest stop time-out is 10 s.
      #expect(try await guardian.process.wait(seconds: 10) == 0)
      let log = guardian.log
      let asked = try #require(log.firstRange(of: "stopping everything"), "\(log.suffix(2_000))")
      // Those whose exec was under way when the signal came, which the governor allows to be eight, and no further one.
      let after = log[asked.upperBound...].split(separator: "\n").dropFirst().map { $0.contains(": started, pid ") }
      #expect(after.prefix { $0 }.count <= 8 && !after.drop { $0 }.contains(true), "\(log[asked.upperBound...])")
      let started = about("started, pid ")
      #expect(started.count >= 60 && started.count < 300 && started == Array(names.prefix(started.count)))
      // Those that had been born; one that had been decided on may have been called off, and is said to be stopped too.
      let stopped = about("stopped").filter(Set(started).contains)
      #expect(stopped == started.reversed(), "\(stopped)")
      let pids = Set(
        log.split(separator: "\n").compactMap { line in
          line.firstRange(of: ": started, pid ").flatMap { Int32(line[$0.upperBound...].prefix { $0.isNumber }) }
        })
      #expect(processes { pid, session, _ in pids.contains(session) || pids.contains(pid) } == [])
    }

    @Test func `CASES 23: the manual says that a container's script ends in exec`() throws {
      #expect(try Files.read(Place.repository + "/man/guardian.8").contains(".Ic exec guardian"))
    }

    @Test(.enabled(if: Place.program("python3") != nil, "not shown: python3 is not there"))
    func `CASES 26: where orphans do not come to guardian, it says so, and where they do, they are reaped`()
      async throws
    {
      let scratch = try Scratch()
      let filter = scratch.path + "/filter.py"
      // The kernel's answer to whoever wants to be a subreaper is EPERM. seccomp(2).
      try Files.write(
        """
        import ctypes, os, platform, struct, sys
        libc = ctypes.CDLL(None, use_errno=True)
        prctl = {"x86_64": 157, "aarch64": 167}[platform.machine()]
        lines = [(0x20, 0, 0, 0), (0x15, 0, 3, prctl), (0x20, 0, 0, 16), (0x15, 0, 1, 36), (6, 0, 0, 0x50001),
          (6, 0, 0, 0x7fff0000)]
        text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
        class Program(ctypes.Structure): _fields_ = [("count", ctypes.c_ushort), ("text", ctypes.c_void_p)]
        program = Program(len(lines), ctypes.addressof(text))
        if os.geteuid() != 0: libc.prctl(38, 1, 0, 0, 0)
        if libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0: sys.exit("no filter can be had")
        os.execv(sys.argv[1], sys.argv[1:])

        """, to: filter)
      // Forks twice: the second child is nobody's.
      let forking = """
        command: [/bin/sh, -c, "(sleep 0.2 &); exec sleep 1000000"]
        startup-window: 100ms
        log: none
        """
      let python = try #require(Place.program("python3"))
      let weaker = try await Guardian(scratch, services: ["web": forking], wrappedIn: [python, filter])
      try await weaker.wait(for: "web", "settles") { $0["settled"].bool == true }
      let version = try await weaker.control("version").output
      #expect(version.contains("reaping       parent only"), "\(version)")
      let lines = weaker.log.split(separator: "\n").filter { $0.contains("subreaper") }
      #expect(
        lines.count == 1 && lines.first?.contains("what a service leaves behind may be missed") == true, "\(lines)")
      #expect(try await weaker.control("status").output.contains("become a subreaper"))
      #expect(try await weaker.control("restart", "web").code == 0)
      try await weaker.stop()

      let guardian = try await Guardian(Scratch(), services: ["web": forking])
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(try await guardian.control("version").output.contains("reaping       orphans too"))
      // The orphan came to guardian, and would stay in this list as a zombie.
      try await eventually("the orphan is reaped") { children(of: guardian.process.pid).count == 1 ? () : nil }
      try await guardian.stop()
    }

    @Test(.enabled(if: Frozen.missing == nil, "not shown: \(Frozen.missing ?? "")"))
    func `CASES 31: what KILL does not end stays 'stopping', is not started twice, and harms nobody else`() async throws
    {
      let scratch = try Scratch()
      let frozen = try Frozen(scratch)
      let reads = "/bin/cat \(frozen.path)/file"
      let yaml = """
        command: \(reads)
        startup-window: 100ms
        stop: {timeout: 100ms}
        log: none
        """
      let guardian = try await Guardian(
        scratch, services: ["stuck": yaml, "other": steady], wrappedIn: frozen.wrapper)
      defer { frozen.letGo() }
      let before = try await guardian.wait(for: "stuck", "settles") { $0["settled"].bool == true }
      let told = scratch.path + "/told"
      let stop = try Process(
        [Place.products + "/guardianctl", "--runtime", guardian.runtime, "stop", "stuck"], output: told)
      let waiting = try await guardian.wait(for: "stuck", "waits for the kernel") { one in
        one["notes"].array.contains {
          $0.string?.contains("in uninterruptible sleep: KILL waits for the kernel") == true
        }
      }
      #expect(waiting["phase"].string == "stopping" && waiting["pid"] == before["pid"], "\(waiting)")
      // Meanwhile the others have all that they need.
      #expect(try await guardian.control("restart", "other").code == 0)
      #expect(try await stop.wait() == 1)
      let answer = try Files.read(told)
      #expect(answer.contains("SIGKILL sent 5s ago, waiting for the kernel"), "\(answer)")
      #expect(try await guardian.control("start", "--no-wait", "stuck").code == 0)
      let still = try await guardian.status("stuck")
      #expect(still["phase"].string == "stopping" && still["pid"] == before["pid"], "\(still)")
      #expect(processes { _, _, line in line == reads }.count == 1)
      #expect(try await guardian.control("stop", "--no-wait", "stuck").code == 0)
      frozen.letGo()
      try await guardian.wait(for: "stuck", "is stopped") { $0["phase"].string == "stopped" }
      try await guardian.stop()
    }

    // MARK: Descriptors and environment

    /// How often a service is started.
    static let starts = getenv("GUARDIAN_STARTS").flatMap { Int(String(cString: $0)) } ?? 80

    @Test func `CASES 43: a service has 0, 1 and 2 in each of its starts, whatever guardian does meanwhile`()
      async throws
    {
      let scratch = try Scratch()
      let seen = scratch.path + "/seen"
      let yaml = """
        command: [/bin/sh, -c, "ls /proc/self/fd >>'\(seen)'"]
        escalation: off
        backoff: {first: 0s}
        log: none
        """
      let guardian = try await Guardian(
        scratch, services: ["looks": yaml, "other": steady + "ready: notify\n"], host: "governor: off\n")
      // It has some that could be left open: database, locks, sockets, timers.
      #expect(Files.names(in: "/proc/\(guardian.process.pid)/fd").count > 10)
      while try await guardian.status("looks")["restarts"].int ?? 0 < Self.starts {
        #expect(try await guardian.control("reload").code == 0)
        #expect(try await guardian.control("restart", "--no-wait", "other").code == 0)
      }
      try await guardian.stop()
      let lines = try Files.read(seen).split(separator: "\n")
      #expect(lines.count >= 4 * Self.starts)
      // 3 is the directory that `ls` reads. Whoever was stopped while it wrote is the last one.
      #expect(lines.enumerated().allSatisfy { $1 == "\($0 % 4)" }, "\(Set(lines))")
    }

    @Test func `CASES 44, CASES 46: a value arrives byte for byte: percent signs, dollars, quotes, hashes`()
      async throws
    {
      let scratch = try Scratch()
      let seen = scratch.path + "/seen"
      let yaml = #"""
        command: [/bin/sh, -c, 'for name in KEY A B C D; do printenv $name; done >"$OUT.new"; mv "$OUT.new" "$OUT"; exec sleep 1000000']
        environment:
          KEY: "a%b%%c $HOME ${X} \\n # ' \" é"
          A: "## x ##"
          B: 'it''s'
          C: "tab\there"
          D: |
            # first
            second # third
          OUT: \#(seen)
        log: none
        """#
      let guardian = try await Guardian(scratch, services: ["prints": yaml])
      try await eventually("it has printed them") { Files.exists(seen) ? () : nil }
      #expect(
        try Files.read(seen) == "a%b%%c $HOME ${X} \\n # ' \" é\n## x ##\nit's\ntab\there\n# first\nsecond # third\n\n")
      try await guardian.stop()
    }

    // MARK: Readiness

    /// How many services say that they are ready.
    static let talkers = getenv("GUARDIAN_TALKERS").flatMap { Int(String(cString: $0)) } ?? 100

    @Test(.enabled(if: Compiler.path != nil, "not shown: no C compiler is there"))
    func `CASES 70: each of many is ready by the word of a child that is gone, and its barrier is lifted`() async throws
    {
      let scratch = try Scratch()
      let says = scratch.path + "/says-ready", barriers = scratch.path + "/barriers"
      try await Compiler.build("says-ready.c", says)
      var services: [String: String] = [:]
      for number in 0..<Self.talkers {
        services["t\(number)"] =
          "command: [\(says), \(barriers)]\nready: notify\nstart-timeout: 20s\nstartup-window: 10ms\nlog: none\n"
      }
      let guardian = try await Guardian(scratch, services: services)
      try await eventually("all have settled") { try await guardian.control("status").code == 0 ? () : nil }
      let json = try JSON(try await guardian.control("--json", "status").output)["services"].array
      #expect(json.count == Self.talkers)
      #expect(json.allSatisfy { $0["settled"].bool == true && $0["restarts"].int == 0 && $0["strikes"].int == 0 })
      try await eventually("all barriers are over") {
        (try? Files.read(barriers))?.split(separator: "\n").count == Self.talkers ? () : nil
      }
      #expect(try Files.read(barriers).split(separator: "\n").allSatisfy { $0 == "closed" })
      try await guardian.stop()
    }

    // MARK: Core dumps

    @Test(
      .enabled(
        if: Frozen.missing == nil && Frozen.dumpsIntoDirectory,
        "not shown: \(Frozen.missing ?? "the kernel does not write core dumps where a process is")"))
    func `CASES 82: a dump that takes its time is told, delays nobody else, and is not made where core is 0`()
      async throws
    {
      let scratch = try Scratch()
      let frozen = try Frozen(scratch)
      func yaml(_ core: String) -> String {
        """
        command: [/bin/sh, -c, "cd '\(frozen.path)' && kill -SEGV $$"]
        startup-window: 1min
        backoff: {first: 1h, max: 1h}
        limits: {core: \(core)}
        log: none
        """
      }
      let guardian = try await Guardian(
        scratch, services: ["dumps": yaml("unlimited"), "bare": yaml("0"), "other": steady],
        wrappedIn: frozen.wrapper)
      defer { frozen.letGo() }
      let dumping = try await guardian.wait(for: "dumps", "dumps core") { one in
        one["notes"].array.contains { $0.string?.contains("is dumping core") == true }
      }
      #expect(dumping["pid"].int != nil && dumping["strikes"].int == 0, "\(dumping)")
      #expect(try await guardian.control("status", "dumps").output.contains("is dumping core"))
      let bare = try await guardian.wait(for: "bare", "has died") { $0["phase"].string == "backing-off" }
      #expect(bare["last_end"]["signal"].string == "SEGV" && bare["last_end"]["core"].bool == false, "\(bare)")
      #expect(try await guardian.control("restart", "other").code == 0)
      frozen.letGo()
      let died = try await guardian.wait(for: "dumps", "has died") { $0["phase"].string == "backing-off" }
      #expect(died["last_end"]["signal"].string == "SEGV" && died["strikes"].int == 1, "\(died)")
      try await guardian.stop()
    }

    // MARK: Paths

    @Test(
      .enabled(if: Compiler.path != nil, "not shown: no C compiler is there"), arguments: [90, 94, 95, 107, 108, 300])
    func `CASES 83: a runtime directory works as long as its sockets' paths can, and else the limit is named`(
      _ length: Int
    ) async throws {
      let scratch = try Scratch()
      let says = scratch.path + "/says-ready"
      try await Compiler.build("says-ready.c", says)
      for name in ["config", "config/services", "state"] { _ = try scratch.directory(name) }
      var runtime = scratch.path
      while runtime.utf8.count < length {
        let room = length - runtime.utf8.count - 1
        runtime += "/" + String(repeating: "r", count: room > 200 ? 199 : room)
        guard mkdir(runtime, 0o755) == 0 else { throw Failure.errno(runtime) }
      }
      #expect(runtime.utf8.count == length)
      let talks = "command: [\(says), \(scratch.path)/barriers]\nready: notify\nstartup-window: 10ms\nlog: none\n"
      let long = "with-a-long-name"
      for (name, yaml) in ["t": talks, long: talks, "plain": steady] {
        try Files.write(yaml, to: "\(scratch.path)/config/services/\(name).yaml")
      }
      let log = scratch.path + "/log"
      let guardian = try Process(
        [
          Place.products + "/guardian", "--config", scratch.path + "/config", "--state", scratch.path + "/state",
          "--runtime", runtime,
        ], output: log)
      func control(_ words: String...) async throws -> (code: Int32, output: String, error: String) {
        try await run([Place.products + "/guardianctl", "--runtime", runtime] + words)
      }
      let socket = runtime + "/control.sock"
      guard socket.utf8.count <= 107 else {
        #expect(try await guardian.wait(seconds: 10) == 1)
        let said = try Files.read(log)
        #expect(said.contains("\(socket) (\(socket.utf8.count) bytes, at most 107)"), "\(said)")
        #expect(!said.contains("started"), "\(said)")
        let answer = try await control("status")
        #expect(answer.code == 6 && answer.error.contains(socket), "\(answer)")
        return
      }
      for name in ["t", "plain"] {
        try await eventually("\(name) settles: \((try? Files.read(log)) ?? "")") {
          try await control("status", name).code == 0 ? () : nil
        }
      }
      let refused = try await control("status", long)
      let path = "\(runtime)/notify/\(long)"
      #expect(
        refused.code == 5
          && refused.output.filter { !$0.isWhitespace }.contains(
            "the notify socket's path \(path) has \(path.utf8.count) bytes; the kernel takes 107".filter {
              !$0.isWhitespace
            }),
        "\(refused)")
      kill(guardian.pid, SIGTERM)
      #expect(try await guardian.wait() == 0)
    }

    // MARK: Exit status

    @Test
    func `CASES 88: after an ordered stop 0, 143 and death by TERM are clean; unasked 143 is none unless it is listed`()
      async throws
    {
      let scratch = try Scratch()
      func yaml(_ name: String, _ code: Int, _ more: String) -> String {
        """
        command: [/bin/sh, -c, "trap 'exit \(code)' TERM; echo >'\(scratch.path)/\(name)'; while :; do sleep 0.02; done"]
        backoff: {first: 20ms}
        log: none
        \(more)
        """
      }
      let guardian = try await Guardian(
        scratch,
        services: [
          "java": yaml("java", 143, "startup-window: 1h"), "zero": yaml("zero", 0, "startup-window: 1h"),
          "listed": yaml("listed", 143, "startup-window: 100ms\nsuccess-exit: [0, 143]\nrestart: on-crash"),
          "plain": steady,
        ])
      for name in ["java", "zero", "listed"] {
        try await eventually("\(name) listens") { Files.exists(scratch.path + "/" + name) ? () : nil }
      }
      for (name, text) in [("java", "exit 143"), ("zero", "exit 0"), ("plain", "SIGTERM")] {
        let stop = try await guardian.control("stop", name)
        #expect(stop.code == 0 && stop.error.isEmpty, "\(stop)")
        let stopped = try await guardian.status(name)
        #expect(
          stopped["last_end"]["class"].string == "ordered" && stopped["last_end"]["text"].string == text, "\(stopped)")
        #expect(stopped["phase"].string == "stopped" && stopped["strikes"].int == 0, "\(stopped)")
      }
      unlink(scratch.path + "/java")
      #expect(try await guardian.control("start", "java").code == 0)
      try await eventually("java listens again") { Files.exists(scratch.path + "/java") ? () : nil }
      kill(Int32(try #require(try await guardian.status("java")["pid"].int)), SIGTERM)
      let judged = try await guardian.wait(for: "java", "has a strike") { $0["strikes"].int == 1 }
      #expect(judged["last_end"]["code"].int == 143 && judged["last_end"]["class"].string == "error-exit", "\(judged)")
      kill(Int32(try #require(try await guardian.status("listed")["pid"].int)), SIGTERM)
      let finished = try await guardian.wait(for: "listed", "has ended") { $0["phase"].string == "finished" }
      #expect(finished["last_end"]["code"].int == 143 && finished["last_end"]["class"].string == "clean", "\(finished)")
      try await guardian.stop()
    }
  }
}

/// A directory in which every file takes for ever, seen by one guardian and what it starts; see Tests/Support/frozen-files.
final class Frozen {
  let path: String
  private let release: String, mounted: String

  /// Why there is none; nil where it can be had.
  static let missing: String? = {
    guard isRoot else { return "a file system of one's own needs root" }
    guard access("/dev/fuse", R_OK | W_OK) == 0 else { return "there is no /dev/fuse" }
    return access("/usr/bin/python3", X_OK) == 0 ? nil : "python3 is not there"
  }()
  /// `kernel.core_pattern` is a name.
  static let dumpsIntoDirectory: Bool = {
    let pattern = (try? Files.read("/proc/sys/kernel/core_pattern")) ?? "|"
    return !pattern.hasPrefix("|") && !pattern.hasPrefix("/") && !pattern.hasPrefix("@") && pattern != "\n"
  }()

  init(_ scratch: Scratch) throws {
    path = try scratch.directory("frozen")
    release = scratch.path + "/release"
    mounted = scratch.path + "/mounted"
  }
  /// In a mount namespace of its own: nothing of this reaches the machine.
  var wrapper: [String] {
    let program = Place.repository + "/Tests/Support/frozen-files"
    let script = """
      '\(program)' '\(path)' '\(release)' >'\(mounted)' &
      until [ -s '\(mounted)' ]; do kill -0 $! || exit 70; sleep 0.02; done
      exec "$@"
      """
    return ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, "sh"]
  }
  /// All who wait go on, with an error.
  func letGo() { try? Files.write("", to: release) }
}

/// For the small C programs of Tests/Support.
enum Compiler {
  static let path = Place.program("clang") ?? Place.program("cc") ?? Place.program("gcc")

  static func build(_ source: String, _ program: String) async throws {
    let compiler = try #require(path)
    let built = try await run([compiler, "-O1", "-o", program, "\(Place.repository)/Tests/Support/\(source)"])
    guard built.code == 0 else { throw Failure("\(built)") }
  }
}
