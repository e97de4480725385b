import Glibc
import Testing

extension Programs {
  /// The set, not the leader: what a control group holds.
  @Suite(.enabled(if: Groups.missing == nil, "not shown: \(Groups.missing ?? "")"))
  struct `in a control group of its own` {
    /// Three processes: the main one, one that has left its session, and one that has left that too; both have wiped their
    /// environment, so that nothing but the group tells whose they are.
    private func scattering(_ number: Int, _ more: String = "") -> String {
      """
      command: [/bin/sh, -c, "setsid env -i /bin/sh -c 'setsid sleep \(number) & exec sleep \(number)' & exec sleep \(number)"]
      startup-window: 100ms
      log: none
      \(more)
      """
    }
    private func alive(_ number: Int) -> [String] { processes { _, _, line in line == "sleep \(number)" } }
    private func all(_ number: Int, _ count: Int = 3) async throws {
      try await eventually("\(count) of them run") { alive(number).count == count ? () : nil }
    }
    private var number: Int { Int.random(in: 100_000_000..<999_999_999) }
    private func groups(_ guardian: Guardian) -> [String] {
      Files.names(in: guardian.groups ?? "").filter { $0.hasPrefix("service.") || $0.hasPrefix("hook.") }
    }

    @Test func `CASES 19, D3: what leaves its session and wipes its environment is gone after a stop`() async throws {
      let number = number
      let guardian = try await Guardian(Scratch(), services: ["far": scattering(number)])
      try await all(number)
      let version = try await guardian.control("version").output
      #expect(version.contains("control group below /") && version.contains("cgroup.kill"), "\(version)")
      #expect(Groups.processes((guardian.groups ?? "") + "/service.far").count == 3)
      #expect(try await guardian.control("stop", "far").code == 0)
      #expect(alive(number) == [])
      try await guardian.stop()
      #expect(!Files.exists(guardian.groups ?? ""), "its groups are gone with it")
    }

    @Test func `D3, D4: what forks away faster than anybody could signal it is gone after a stop`() async throws {
      let scratch = try Scratch()
      let hopper = scratch.path + "/hopper"
      try Files.write("#!/bin/sh\ntrap '' TERM\nsetsid env -i \(hopper) &\n", to: hopper, mode: 0o755)
      let yaml = """
        command: [/bin/sh, -c, "\(hopper) & exec sleep 1000000"]
        startup-window: 100ms
        stop: {timeout: 100ms}
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["hops": yaml])
      try await guardian.wait(for: "hops", "settles") { $0["settled"].bool == true }
      #expect(try await guardian.control("stop", "hops").code == 0)
      for _ in 0..<20 {
        #expect(processes { _, _, line in line.contains(hopper) } == [])
        try await Task.sleep(for: .milliseconds(5))
      }
      try await guardian.stop()
    }

    @Test(.enabled(if: Place.program("python3") != nil, "not shown: python3 is not there"))
    func `CASES 20: a restart begins when the last of the old one has let go of the port`() async throws {
      let scratch = try Scratch()
      let server = scratch.path + "/server.py"
      // The main process leaves at once, and leaves the port to one that takes its time.
      try Files.write(
        """
        import os, signal, socket, sys, time
        s = socket.socket()
        s.bind(("127.0.0.1", int(sys.argv[1])))
        s.listen()
        if os.fork() == 0:
          os.setsid()
          def slowly(*_): time.sleep(0.2); os._exit(0)
          signal.signal(signal.SIGTERM, slowly)
          while True: signal.pause()
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        while True: signal.pause()
        """, to: server)
      let port = try freePort()
      let yaml = """
        command: [\(Place.program("python3") ?? ""), \(server), "\(port)"]
        startup-window: 10s
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["web": yaml])
      try await guardian.wait(for: "web", "runs") { $0["pid"].int != nil }
      for _ in 0..<10 {
        // Long enough for both to listen to TERM.
        try await eventually("both are there") {
          Groups.processes((guardian.groups ?? "") + "/service.web").count
            + Groups.processes((guardian.groups ?? "") + "/service.web:next").count == 2 ? () : nil
        }
        try await Task.sleep(for: .milliseconds(50))
        #expect(try await guardian.control("restart", "web").code == 0)
      }
      let web = try await guardian.status("web")
      #expect(web["strikes"].int == 0 && web["phase"].string == "running", "\(web)")
      #expect(!guardian.log.contains("strike"), "\(guardian.log)")
      try await guardian.stop()
    }

    @Test func `D5, D11: after a crash nothing of the old run is there when the new one begins`() async throws {
      let scratch = try Scratch()
      let number = number
      // Counts the others of its kind before it adds one that has left its session.
      let yaml = """
        command: [/bin/sh, -c, "pgrep -c -f 'sleep [\(number / 100_000_000)]\(String(number).dropFirst())' >>\(scratch.path)/seen; setsid sleep \(number) & sleep .05; exit 3"]
        escalation: off
        backoff: {first: 20ms, max: 20ms}
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["weak": yaml])
      try await guardian.wait(for: "weak", "has crashed five times") { $0["restarts"].int ?? 0 >= 5 }
      let counts = try Files.read(scratch.path + "/seen").split(separator: "\n")
      // 1 is the shell that asks, whose words hold the number too.
      #expect(counts.count >= 5 && counts.allSatisfy { $0 == "0" || $0 == "1" }, "\(counts)")
      try await guardian.stop()
      #expect(alive(number) == [])
    }

    @Test func `D5: a run is not stopped as long as one of it lives, and no second one is started`() async throws {
      let scratch = try Scratch()
      let yaml = """
        command: [/bin/sh, -c, "setsid sh -c 'trap : TERM; touch \(scratch.path)/deaf; until [ -e \(scratch.path)/go ]; do sleep .05; done' & exec sleep 1000000"]
        startup-window: 100ms
        stop: {timeout: 1min}
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["slow": yaml])
      try await eventually("it does not hear TERM") { Files.exists(scratch.path + "/deaf") ? () : nil }
      let first = try await guardian.status("slow")["pid"].int
      #expect(try await guardian.control("restart", "--no-wait", "slow").code == 0)
      let waiting = try await guardian.wait(for: "slow", "waits for the rest") {
        $0["phase"].string == "stopping" && $0["pid"].int == nil
      }
      #expect(waiting["next"]["action"].string == "kill", "\(waiting)")
      try Files.write("", to: scratch.path + "/go")
      let second = try await guardian.wait(for: "slow", "runs again") { $0["phase"].string == "running" }
      #expect(second["pid"].int != first)
      try await guardian.stop()
    }

    @Test func `D2: one that is stopped or frozen hears its stop all the same`() async throws {
      let scratch = try Scratch()
      let yaml = """
        command: [/bin/sh, -c, "trap 'exit 42' TERM; while :; do sleep .05; done"]
        startup-window: 100ms
        stop: {timeout: 1min}
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["stopped": yaml, "frozen": yaml])
      for name in ["stopped", "frozen"] {
        try await guardian.wait(for: name, "settles") { $0["settled"].bool == true }
      }
      Glibc.kill(Int32(try #require(try await guardian.status("stopped")["pid"].int)), SIGSTOP)
      try Files.put("1", to: (guardian.groups ?? "") + "/service.frozen/cgroup.freeze")
      for name in ["stopped", "frozen"] {
        #expect(try await guardian.control("stop", name).code == 0)
        #expect(try await guardian.status(name)["last_end"]["code"].int == 42, "\(name): \(guardian.log)")
      }
      try await guardian.stop()
    }

    @Test func `a stop goes through its sequence`() async throws {
      let scratch = try Scratch()
      let yaml = """
        command: [/bin/sh, -c, "trap '' TERM; trap 'exit 7' INT; touch \(scratch.path)/deaf; while :; do sleep .05; done"]
        startup-window: 100ms
        stop: {timeout: 50ms, then: [{signal: INT, timeout: 1min}]}
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["deaf": yaml])
      try await eventually("it does not hear TERM") { Files.exists(scratch.path + "/deaf") ? () : nil }
      #expect(try await guardian.control("stop", "deaf").code == 0)
      #expect(try await guardian.status("deaf")["last_end"]["code"].int == 7)
      try await guardian.stop()
    }

    @Test func `the next guardian takes over a run with all that is in its group`() async throws {
      let number = number
      let guardian = try await Guardian(Scratch(), services: ["far": scattering(number)])
      try await all(number)
      let before = try await guardian.wait(for: "far", "settles") { $0["settled"].bool == true }
      guardian.kill()
      try await guardian.startAgain()
      let after = try await guardian.status("far")
      #expect(after["pid"] == before["pid"] && after["run"] == before["run"], "\(after)")
      #expect(alive(number).count == 3)
      #expect(try await guardian.control("stop", "far").code == 0)
      #expect(alive(number) == [])
      try await guardian.stop()
    }

    @Test func `the next guardian ends what a run has left in its group, before anything is started`() async throws {
      let number = number
      let guardian = try await Guardian(Scratch(), services: ["far": scattering(number)])
      try await all(number)
      let before = try await guardian.wait(for: "far", "settles") { $0["settled"].bool == true }
      guardian.kill()
      Glibc.kill(Int32(try #require(before["pid"].int)), SIGKILL)
      let old = Set(alive(number))
      try await guardian.startAgain()
      try await guardian.wait(for: "far", "runs again") { $0["pid"].int != nil && $0["pid"] != before["pid"] }
      try await all(number)
      #expect(old.isDisjoint(with: alive(number)))
      try await guardian.stop()
    }

    @Test func `the next guardian ends and removes groups that belong to nothing that it remembers`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: [:])
      guardian.kill()
      let group = try #require(guardian.groups) + "/service.ghost"
      #expect(mkdir(group, 0o755) == 0)
      let ghost = try Process(["/bin/sleep", "1000000"])
      try Files.put("\(ghost.pid)", to: group + "/cgroup.procs")
      try await guardian.startAgain()
      #expect(try await ghost.wait() == 128 + SIGKILL)
      #expect(!Files.exists(group))
      #expect(
        guardian.log.contains("ended 1 process that an earlier guardian left in control groups"), "\(guardian.log)")
      try await guardian.stop()
    }

    @Test func `after an upgrade a run still has its group`() async throws {
      let number = number
      let guardian = try await Guardian(Scratch(), services: ["far": scattering(number)])
      try await all(number)
      #expect(try await guardian.control("upgrade").code == 0)
      #expect(alive(number).count == 3)
      #expect(try await guardian.control("restart", "far").code == 0)
      try await all(number)
      #expect(try await guardian.control("stop", "far").code == 0)
      #expect(alive(number) == [])
      try await guardian.stop()
    }

    @Test func `a repair has a group of its own, and what it leaves behind is ended`() async throws {
      let scratch = try Scratch()
      let number = number
      let yaml = """
        command: [/bin/sh, -c, "exit 3"]
        escalation: {restart: 1}
        backoff: {first: 10ms, max: 10ms}
        log: none
        repair:
          - {name: scatter, run: [/bin/sh, -c, "setsid env -i sleep \(number) & echo >>\(scratch.path)/repaired"]}
        """
      let guardian = try await Guardian(scratch, services: ["weak": yaml])
      try await guardian.wait(for: "weak", "is quarantined") { $0["phase"].string == "quarantined" }
      #expect(Files.exists(scratch.path + "/repaired"))
      #expect(alive(number) == [])
      try await eventually("the groups of its repairs are gone") {
        groups(guardian).contains { $0.hasPrefix("hook.") } ? nil : ()
      }
      try await guardian.stop()
    }

    @Test func `CASES 86: a hundred restarts of a forking service use two groups, and none is a crash`() async throws {
      let number = number
      let guardian = try await Guardian(Scratch(), services: ["far": scattering(number)])
      try await all(number)
      for _ in 0..<100 { #expect(try await guardian.control("restart", "far").code == 0) }
      let far = try await guardian.status("far")
      #expect(far["strikes"].int == 0, "\(far)")
      #expect(Set(groups(guardian)).isSubset(of: ["service.far", "service.far:next"]))
      #expect(!guardian.log.contains("strike"), "\(guardian.log)")
      try await guardian.stop()
      #expect(alive(number) == [])
    }

    @Test func `a service that is gone from the configuration leaves no group`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["far": scattering(number), "stays": scattering(number)])
      try await guardian.wait(for: "far", "settles") { $0["settled"].bool == true }
      unlink(scratch.path + "/config/services/far.yaml")
      #expect(try await guardian.control("reload").code == 0)
      try await eventually("its groups are gone") {
        groups(guardian).contains { $0.hasPrefix("service.far") } ? nil : ()
      }
      try await guardian.stop()
    }

    @Test func `CASES 19: 'cgroup: off' uses none and says so, and what is started is ended by session and sweep`()
      async throws
    {
      let number = number
      let yaml = """
        command: [/bin/sh, -c, "setsid sleep \(number) & exec sleep \(number)"]
        startup-window: 100ms
        limits: {memory: 1G}
        log: none
        """
      let guardian = try await Guardian(Scratch(), services: ["web": yaml], host: "cgroup: off\n")
      try await all(number, 2)
      let version = try await guardian.control("version").output
      #expect(version.contains("session, process group, subreaper (no control groups: switched off by"), "\(version)")
      #expect(!Files.exists(guardian.groups ?? ""))
      let notes = try await guardian.control("status", "web").output
      #expect(notes.contains("limits of memory, tasks and cpu-weight are not in force: no control groups"), "\(notes)")
      #expect(try await guardian.control("stop", "web").code == 0)
      #expect(alive(number) == [])
      try await guardian.stop()
    }

    @Test func `'cgroup: PATH' is where they are`() async throws {
      let number = number, path = "/guardian-tests-\(getpid())-\(number)"
      let guardian = try await Guardian(
        Scratch(), services: ["far": scattering(number)], host: "cgroup: \(path)\n")
      try await all(number)
      #expect(try await guardian.control("version").output.contains("control group below \(path), cgroup.kill"))
      #expect(Groups.processes("\(Groups.mount ?? "")\(path)/service.far").count == 3)
      try await guardian.stop()
      #expect(alive(number) == [])
      #expect(!Files.exists("\(Groups.mount ?? "")\(path)"))
    }

    @Test(.enabled(if: !Groups.has("memory"), "not shown: the memory controller is there"))
    func `a limit whose controller is not there is said not to be in force, and the service runs`() async throws {
      let guardian = try await Guardian(
        Scratch(), services: ["far": scattering(number, "limits: {memory: 1G, tasks: 100}")])
      try await guardian.wait(for: "far", "settles") { $0["settled"].bool == true }
      let status = try await guardian.control("status", "far").output
      #expect(status.contains("limits.memory is not in force: the kernel has no such controller here"), "\(status)")
      let version = try await guardian.control("version").output
      #expect(version.contains("no memory (the kernel has no such controller here)"), "\(version)")
      #expect(version.contains("host-wide counter"), "\(version)")
      try await guardian.stop()
    }

    @Test(.enabled(if: Groups.has("memory"), "not shown: there is no memory controller of version 2"))
    func `one that is killed for its memory limit has the cause oom, by its own group's word`() async throws {
      let yaml = """
        command: [/bin/sh, -c, "sleep .2; exec /bin/bash -c 's=x; while :; do s=$s$s; done'"]
        escalation: off
        backoff: {first: 1h, max: 1h}
        limits: {memory: 16M}
        log: none
        """
      let guardian = try await Guardian(Scratch(), services: ["hungry": yaml])
      let hungry = try await guardian.wait(for: "hungry", "is killed") { $0["phase"].string == "backing-off" }
      #expect(hungry["last_end"]["cause"].string == "oom", "\(hungry)")
      try await guardian.stop()
    }
  }
}
