import Glibc
import Testing

extension Programs {
  /// Guardian's own limits and the host's: nobody is charged for them, each is named, and guardianctl is answered.
  @Suite struct `own trouble is not the service's` {
    private let steady = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    /// Waiting with a reason that names the limit, and nothing held against it.
    private func waits(_ guardian: Guardian, _ name: String, _ reason: String) async throws -> JSON {
      let seen = try await guardian.wait(for: name, "waits for \(reason)") {
        $0["phase"].string == "waiting" && $0["reason"].string?.contains(reason) == true
      }
      #expect(seen["strikes"].int == 0 && seen["step"].string == "restart" && seen["restarts"].int == 0, "\(seen)")
      #expect(seen["reason"].string?.hasPrefix("waiting for resources: ") == true, "\(seen)")
      #expect(seen["next"]["action"].string == "start")
      return seen
    }

    @Test func `E1, CASES 80: out of descriptors the surplus waits, and guardianctl is answered all the time`()
      async throws
    {
      let scratch = try Scratch()
      var services: [String: String] = [:]
      for number in 0..<100 { services["s\(number)"] = steady }
      // Soft below hard: it raises its own, and its services have what they would have had.
      services["asks"] =
        "command: [/bin/sh, -c, \"ulimit -Sn >'\(scratch.path)/limit'; exec sleep 1000000\"]\nstartup-window: 100ms\nlog: none\n"
      let guardian = try await Guardian(
        scratch, services: services,
        wrappedIn: ["/bin/bash", "-c", "ulimit -Sn 40; ulimit -Hn 90; exec \"$@\"", "bash"])
      let asked = try await guardian.wait(for: "asks", "runs, or waits") {
        ["running", "waiting"].contains($0["phase"].string)
      }
      if asked["phase"].string == "running" {
        try await eventually("it has told its limit") {
          (try? Files.read(scratch.path + "/limit")) == "40\n" ? () : nil
        }
      }
      func phases() async throws -> [String: Int] {
        let answer = try await guardian.control("--json", "status")
        #expect(answer.code == 1, "\(answer.error)")
        return Dictionary(
          try JSON(answer.output)["services"].array.map { ($0["phase"].string ?? "", 1) }, uniquingKeysWith: +)
      }
      let counts = try await eventually("what can run runs, the others wait") {
        let now = try await phases()
        return now["starting"] == nil && now["waiting"] ?? 0 > 0 ? now : nil
      }
      #expect(counts["running"] ?? 0 > 20 && counts["waiting"] ?? 0 > 20, "\(counts)")
      #expect((counts["running"] ?? 0) + (counts["waiting"] ?? 0) == 101, "\(counts)")
      #expect(guardian.log.contains("101 services need about "), "\(guardian.log.prefix(2_000))")
      let list = try JSON(try await guardian.control("--json", "status").output)["services"].array
      let waiting = try #require(list.first { $0["phase"].string == "waiting" })
      _ = try await waits(guardian, try #require(waiting["name"].string), "(RLIMIT_NOFILE is 90)")
      // Many clients at a time, for whom nothing is left but what is kept.
      let clients = try (0..<6).map { _ in
        try Process([Place.products + "/guardianctl", "--runtime", guardian.runtime, "status", "s1"])
      }
      for client in clients { #expect([0, 1].contains(try await client.wait())) }
      #expect(try await guardian.control("version").code == 0)
      let before = try Files.read("/proc/\(guardian.process.pid)/stat")
      try await Task.sleep(for: .milliseconds(500))
      let after = try Files.read("/proc/\(guardian.process.pid)/stat")
      func ticks(_ stat: String) -> Int {
        let fields = stat.split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 12 ? (Int(fields[11]) ?? 0) + (Int(fields[12]) ?? 0) : 0
      }
      #expect(ticks(after) - ticks(before) < 25, "it spins")
      // As soon as others make room, they run.
      var stopped = 0
      for one in list where one["phase"].string == "running" && stopped < 30 {
        if let name = one["name"].string, name != "asks" {
          #expect(try await guardian.control("stop", name).code == 0)
          stopped += 1
        }
      }
      try await eventually("others take the room", seconds: 60) {
        try await phases()["running"] ?? 0 >= (counts["running"] ?? 0) - 5 ? () : nil
      }
      let all = try JSON(try await guardian.control("--json", "status").output)["services"].array
      #expect(all.allSatisfy { $0["strikes"].int == 0 })
      try await guardian.stop(seconds: 60)
    }

    @Test(.enabled(if: isRoot, "not shown: needs root"))
    func `E2, CASES 77: RLIMIT_NPROC of another user is named with its value, and waited out`() async throws {
      let scratch = try Scratch()
      // Nobody else's, and not that of another run of this test, which may have left somebody behind.
      let number = 1_000_000 + UInt32(getpid())
      let user = User(name: "\(number)", uid: number, gid: number)
      let guardian = try await Guardian(
        scratch, services: ["web": steady, "other": steady], user: user,
        // Of a user with no other processes: guardian with its three threads, and one service.
        wrappedIn: ["/usr/bin/prlimit", "--nproc=4:64", "--"])
      let names = ["other", "web"]
      var stuck = ""
      try await eventually("one of them waits") {
        for name in names where try await guardian.status(name)["phase"].string == "waiting" { stuck = name }
        return stuck.isEmpty ? nil : ()
      }
      _ = try await waits(guardian, stuck, "RLIMIT_NPROC is 4")
      #expect(
        try await run(
          Guardian.command(as: user) + ["/usr/bin/prlimit", "--pid", String(guardian.process.pid), "--nproc=64:64"]
        ).code == 0)
      for name in names { try await guardian.wait(for: name, "settles") { $0["settled"].bool == true } }
      #expect(try await guardian.status(stuck)["restarts"].int == 0)
      try await guardian.stop()
    }

    /// A control group of its own with a limit of tasks; nil where there is no controller to be had.
    private final class Tasks {
      let path: String
      init?() {
        let name = "guardian-test-\(getpid())-\(UInt32.random(in: 0 ... .max))"
        for root in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
          let path = root + "/" + name
          guard mkdir(path, 0o755) == 0 else { continue }
          if access(path + "/pids.max", W_OK) == 0 {
            self.path = path
            return
          }
          rmdir(path)
        }
        return nil
      }
      func write(_ text: String, to file: String) throws {
        let fd = open(path + "/" + file, O_WRONLY | O_CLOEXEC)
        guard fd >= 0 else { throw Failure.errno(file) }
        defer { close(fd) }
        guard Glibc.write(fd, text, text.utf8.count) > 0 else { throw Failure.errno(file) }
      }
      var current: Int { (try? Files.read(path + "/pids.current")).flatMap { Int($0.dropLast()) } ?? 0 }
      deinit { for _ in 0..<100 where rmdir(path) != 0 { usleep(20_000) } }
    }

    @Test(.enabled(if: isRoot, "not shown: needs root"))
    func
      `E2, CASES 76: pids.max is named with its value; what dies under it waits, without a strike, until there is room`()
      async throws
    {
      guard let group = Tasks() else {
        // Reported, and no failure: the machine has no such controller.
        withKnownIssue("not shown: no pids controller can be had") { Issue.record("no pids controller") }
        return
      }
      let scratch = try Scratch()
      try group.write("max", to: "pids.max")
      let guardian = try await Guardian(
        scratch, services: ["web": steady],
        wrappedIn: ["/bin/sh", "-c", "echo $$ >'\(group.path)/cgroup.procs'; exec \"$@\"", "sh"])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try group.write(String(group.current - 1), to: "pids.max")
      kill(Int32(try #require(web["pid"].int)), SIGSEGV)
      let limit = try Files.read(group.path + "/pids.max").dropLast()
      let seen = try await guardian.wait(for: "web", "waits") { $0["phase"].string == "waiting" }
      #expect(seen["reason"].string?.contains("(pids.max \(limit)/\(limit))") == true, "\(seen)")
      #expect(seen["strikes"].int == 0)
      try group.write("max", to: "pids.max")
      let well = try await guardian.wait(for: "web", "settles again") { $0["settled"].bool == true }
      #expect(well["restarts"].int == 1 && well["strikes"].int == 0, "\(well)")
      try await guardian.stop()
    }

    @Test(.enabled(if: OwnNumbers.missing == nil, "not shown: \(OwnNumbers.missing ?? "")"))
    func `CASES 77: pid_max of a namespace is named with its value`() async throws {
      let scratch = try Scratch()
      // Where the kernel has one for each namespace, since 6.14; elsewhere it would be the whole machine's.
      let own = try await run(
        OwnNumbers.wrapper + [
          "/bin/sh", "-c", "echo 400 >/proc/sys/kernel/pid_max; exec /bin/cat /proc/sys/kernel/pid_max",
        ])
      let outside = try Files.read("/proc/sys/kernel/pid_max")
      guard own.output == "400\n", outside != "400\n" else {
        withKnownIssue("not shown: no pid_max of a namespace's own") { Issue.record("\(own) \(outside)") }
        return
      }
      let fill = "for ((i = 0; i < 500; i++)); do sleep 1000000 & done 2>/dev/null"
      let guardian = try await Guardian(
        scratch, services: ["web": steady + "start: manual\n"],
        wrappedIn: OwnNumbers.wrapper + [
          "/bin/bash", "-c", "echo 400 >/proc/sys/kernel/pid_max; exec \"$@\"", "bash",
        ])
      let numbers = try Files.read("/proc/\(guardian.process.pid)/task/\(guardian.process.pid)/children")
      let first = try #require(numbers.split(separator: " ").first)
      let filler = try Process(
        ["/usr/bin/nsenter", "--target", String(first), "--pid", "--mount", "--", "/bin/bash", "-c", fill + "; wait"])
      defer { kill(filler.pid, SIGKILL) }
      try await eventually("no number is left") { () async throws -> Void? in
        _ = try await guardian.control("start", "--no-wait", "web")
        let answer = try JSON(try await guardian.control("--json", "status", "web").output)["services"].array.first
        guard let answer, answer["phase"].string == "waiting" else {
          _ = try await guardian.control("stop", "web")
          return nil
        }
        #expect(answer["reason"].string?.contains("(kernel.pid_max is 400)") == true, "\(answer)")
        #expect(answer["strikes"].int == 0)
        return ()
      }
      kill(guardian.process.pid, SIGKILL)
    }

    @Test func `CASES 79: a program that is still being written is tried again, without a strike`() async throws {
      let scratch = try Scratch()
      let program = scratch.path + "/program"
      try Files.write("#!/bin/sh\nexec sleep 1000000\n", to: program, mode: 0o755)
      let writer = open(program, O_WRONLY | O_CLOEXEC)
      #expect(writer >= 0)
      let guardian = try await Guardian(
        scratch, services: ["web": "command: [\(program)]\nstartup-window: 100ms\nlog: none\n"])
      _ = try await waits(guardian, "web", "is open for writing, as while it is being replaced")
      close(writer)
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(web["strikes"].int == 0 && web["restarts"].int == 0)
      try await guardian.stop()
    }
  }
}
