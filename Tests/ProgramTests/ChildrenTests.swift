import Glibc
import Testing

extension PatientPrograms {
  /// Children that are hostile or odd, and repairs that are no better.
  @Suite struct `odd children` {
    private let steady = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    /// KiB of its own: pages of its code come and go as they please.
    private func memory(of pid: Int32) -> Int {
      let status = (try? Files.read("/proc/\(pid)/status")) ?? ""
      let line = status.split(separator: "\n").first { $0.hasPrefix("RssAnon:") } ?? ""
      return line.split(separator: " ").compactMap { Int($0) }.first ?? 0
    }

    @Test
    func
      `D6, E13: one that fills a pipe that nobody reads waits for itself alone, guardian's own lines are dropped and counted`()
      async throws
    {
      let scratch = try Scratch()
      let pipe = scratch.path + "/pipe"
      #expect(mkfifo(pipe, 0o600) == 0)
      let reader = open(pipe, O_RDWR | O_NONBLOCK | O_CLOEXEC)
      defer { close(reader) }
      let guardian = try await Guardian(
        scratch,
        services: [
          // One line without an end, of bytes that are no text; and somebody who holds the pipe and says nothing.
          "loud":
            "command: [/bin/sh, -c, \"sleep 1000000 & exec cat /dev/zero\"]\nstartup-window: 100ms\nlog: inherit\n",
          "quiet": steady,
        ], wrappedIn: ["/bin/sh", "-c", "exec \"$@\" >'\(pipe)' 2>&1", "sh"])
      let loud = try await guardian.wait(for: "loud", "settles") { $0["settled"].bool == true }
      try await eventually("the pipe is full") {
        var room = pollfd(fd: reader, events: Int16(POLLOUT), revents: 0)
        return poll(&room, 1, 0) == 0 ? () : nil
      }
      let before = memory(of: guardian.process.pid)
      let clock = ContinuousClock(), began = clock.now
      for _ in 0..<3 {
        let quiet = try await guardian.wait(for: "quiet", "settles") { $0["settled"].bool == true }
        kill(Int32(try #require(quiet["pid"].int)), SIGSEGV)
        try await guardian.wait(for: "quiet", "is there again") { $0["run"] != quiet["run"] }
      }
      // Whoever still holds the pipe holds up no restart.
      kill(Int32(try #require(loud["pid"].int)), SIGKILL)
      try await guardian.wait(for: "loud", "is there again") { $0["run"] != loud["run"] }
      #expect(clock.now - began < .seconds(20))
      #expect(memory(of: guardian.process.pid) - before < 4_096, "KiB")
      #expect(try await guardian.control("stop", "loud").code == 0)
      // Somebody reads again, and there is something to say.
      var buffer = [UInt8](repeating: 0, count: 65_536)
      func drain() -> String {
        var text = ""
        while true {
          let got = read(reader, &buffer, buffer.count)
          guard got > 0 else { return text }
          text += String(decoding: buffer[..<got].filter { $0 != 0 }, as: UTF8.self)
        }
      }
      _ = drain()
      #expect(try await guardian.control("restart", "quiet").code == 0)
      var heard = ""
      try await eventually("it tells what was lost: \(heard)") {
        heard += drain()
        return heard.contains(" records were lost: nobody read them") ? () : nil
      }
      try await guardian.stop()
    }

    @Test(.enabled(if: `What a service says`.hasPython, "not shown: python3 is not there"))
    func `D9: what calls itself otherwise, lowers its limits and lies about its pid is the same to guardian`()
      async throws
    {
      let scratch = try Scratch()
      let talker = try `What a service says`.Talker(scratch, "talker")
      let guardian = try await Guardian(scratch, services: ["talker": talker.yaml("")])
      try await talker.isThere()
      let before = try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      let pid = Int32(try #require(before["pid"].int))
      try talker.tell(
        """
        import ctypes, resource
        ctypes.CDLL(None).prctl(15, b"guardian) S 1 1 1 (", 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
        resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))
        os.nice(7)
        open("/proc/self/oom_score_adj", "w").write("700")
        for name in ("talker", "guardian"): open("\(scratch.path)/" + name + ".pid", "w").write("1")
        os.environ["INVOCATION_ID"] = "0" * 32
        os.chdir("/")
        note("changed")
        """)
      try await talker.hears("changed")
      let same = try await guardian.status("talker")
      #expect(same["pid"] == before["pid"] && same["run"] == before["run"] && same["settled"].bool == true)
      guardian.kill()
      try await guardian.startAgain()
      let adopted = try await guardian.status("talker")
      #expect(adopted["pid"] == before["pid"] && adopted["run"] == before["run"], "\(adopted)")
      #expect(try await guardian.control("restart", "talker").code == 0)
      #expect(!isAlive(pid))
      // The next one has nothing of it.
      let next = Int32(try #require(try await guardian.status("talker")["pid"].int))
      #expect(try Files.read("/proc/\(next)/oom_score_adj") == Files.read("/proc/self/oom_score_adj"))
      #expect(try !Files.read("/proc/\(next)/comm").contains("guardian"))
      #expect(getpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(next)) == 0)
      try await guardian.stop()
    }

    @Test
    func
      `D13: repairs that fail, hang, fork, print 100 MiB, break the file and order a restart are bounded and recorded`()
      async throws
    {
      let scratch = try Scratch()
      let control = "\(Place.products)/guardianctl --runtime '\(scratch.path)/run'"
      let file = "\(scratch.path)/config/services/sick.yaml"
      let scripts = [
        "fails": "exit 3", "hangs": "while :; do sleep 0.1; done",
        "forks": "(setsid sleep 1000001 &) ; sleep 1000001 & exit 0", "prints": "exec head -c 104857600 /dev/zero",
        "breaks": "echo 'command: [' >'\(file)'; \(control) reload; echo $? >'\(scratch.path)/reload'",
        // It waits for the service, and the service for it.
        "orders": "\(control) restart sick >'\(scratch.path)/restart' 2>&1; echo $? >>'\(scratch.path)/restart'",
        "cures": "touch '\(scratch.path)/cured'",
      ]
      for (name, script) in scripts {
        try Files.write("#!/bin/sh\n\(script)\n", to: scratch.path + "/" + name, mode: 0o755)
      }
      func repair(_ name: String, _ timeout: String) -> String {
        "  - {name: \(name), run: [\"\(scratch.path)/\(name)\"], timeout: \(timeout)}\n"
      }
      let sick = """
        command: [/bin/sh, -c, "test -e '\(scratch.path)/cured' && exec sleep 1000000; exit 1"]
        startup-window: 200ms
        backoff: {first: 10ms, max: 10ms}
        escalation: {restart: 1, repair: 1, safe-mode: 1}
        log: none
        repair:

        """
      let guardian = try await Guardian(
        scratch,
        services: [
          "sick": sick + repair("fails", "20s") + repair("hangs", "500ms") + repair("forks", "20s")
            + repair("prints", "20s") + repair("breaks", "20s") + repair("orders", "20s") + repair("cures", "20s"),
          "well": steady,
        ],
        // Where a hundred megabytes disappear.
        wrappedIn: ["/bin/sh", "-c", "exec \"$@\" >/dev/null 2>&1", "sh"])
      let well = try await guardian.wait(for: "well", "settles") { $0["settled"].bool == true }
      let clock = ContinuousClock(), began = clock.now
      let cured = try await guardian.wait(for: "sick", "is cured", seconds: 60) { $0["settled"].bool == true }
      #expect(clock.now - began < .seconds(18), "nobody has waited for his own end")
      let notes = cured["notes"].array.compactMap(\.string).joined(separator: "\n")
      #expect(notes.contains("round 1: fails failed: exit 3, hangs timed out, "), "\(notes)")
      for told in ["forks done", "prints done", "breaks done", "orders done", "cures done"] {
        #expect(notes.contains(told), "\(notes)")
      }
      #expect(notes.contains("its file is not valid now, the last good definition is in force"), "\(notes)")
      #expect(try Files.read(scratch.path + "/reload") == "1\n")
      #expect(try Files.read(scratch.path + "/restart").hasSuffix("0\n"))
      #expect(try await guardian.status("well")["run"] == well["run"])
      #expect(processes { _, _, line in line == "sleep 1000001" }.isEmpty)
      try await guardian.stop()
    }

    @Test func `D15: safe mode is real in the child, shown, and left by an operator's word or a plugin retry alone`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "shop": """
          command: [/bin/sh, -c, "test -n \\"$SOCIAL_OFF\\" && exec sleep 1000000; test -e '\(scratch.path)/mended' && exec sleep 1000000; exit 1", shop]
          startup-window: 200ms
          backoff: {first: 10ms, max: 10ms}
          escalation: {restart: 1, repair: 1, safe-mode: 1, deescalate-after: 1s}
          log: none
          plugins:
            list:
              - {name: social, environment: {SOCIAL_OFF: "1"}, arguments: [--without, social]}

          """
        ])
      func child(_ status: JSON) throws -> (environment: Set<String>, line: String) {
        let pid = try #require(status["pid"].int)
        let environment = try Files.read("/proc/\(pid)/environ").split(separator: "\0").map(String.init)
        return (Set(environment), try Files.read("/proc/\(pid)/cmdline"))
      }
      let safe = try await guardian.wait(for: "shop", "settles in safe mode") {
        $0["settled"].bool == true && $0["degraded"].bool == true
      }
      #expect(safe["step"].string == "safe-mode", "\(safe)")
      #expect(safe["disabled_plugins"].array.compactMap(\.string) == ["social"])
      #expect(try await guardian.control("status", "shop").code == 2)
      var now = try child(safe)
      #expect(
        now.environment.isSuperset(of: ["SOCIAL_OFF=1", "GUARDIAN_MODE=safe", "GUARDIAN_DISABLED_PLUGINS=social"]))
      #expect(now.line.hasSuffix("sleep\u{0}1000000\u{0}"))
      // Good running alone changes nothing, be it longer than any step lasts.
      try Files.write("", to: scratch.path + "/mended")
      try await Task.sleep(for: .milliseconds(1_500))
      let still = try await guardian.status("shop")
      #expect(still["run"] == safe["run"] && still["step"].string == "safe-mode" && still["degraded"].bool == true)
      kill(Int32(try #require(still["pid"].int)), SIGKILL)
      let again = try await guardian.wait(for: "shop", "is there again") {
        $0["run"] != safe["run"] && $0["settled"].bool == true
      }
      now = try child(again)
      #expect(again["degraded"].bool == true && now.environment.contains("SOCIAL_OFF=1"), "\(again)")
      #expect(try await guardian.control("reset", "shop").code == 0)
      #expect(try await guardian.control("restart", "shop").code == 0)
      let normal = try await guardian.wait(for: "shop", "settles") { $0["settled"].bool == true }
      #expect(normal["degraded"].bool == false && normal["step"].string == "restart", "\(normal)")
      now = try child(normal)
      #expect(
        now.environment.contains("GUARDIAN_MODE=normal") && now.environment.contains("GUARDIAN_DISABLED_PLUGINS="))
      #expect(!now.environment.contains { $0.hasPrefix("SOCIAL_OFF") })
      try await guardian.stop()
    }

    @Test func `D17: a terminal that others have, and a hang-up, neither stop nor end guardian`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": steady])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      for signal in [SIGTTOU, SIGTTIN, SIGHUP, SIGPIPE, SIGTTOU] {
        kill(guardian.process.pid, signal)
        #expect(try await guardian.control("status", seconds: 10).code == 0, "signal \(signal)")
      }
      #expect(try await guardian.status("web")["run"] == web["run"])
      try await guardian.stop()
    }
  }
}
