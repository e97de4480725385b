import Glibc
import Testing

extension PluginPrograms {
  @Suite struct `switches of the host` {
    /// Puts a file into `switches.d` as it should be done: never seen half-way.
    private func drop(_ guardian: Guardian, _ name: String, _ text: String) throws {
      let directory = guardian.scratch.path + "/config/switches.d"
      if !Files.exists(directory) { _ = try guardian.scratch.directory("config/switches.d") }
      try Files.write(text, to: "\(directory)/.new")
      try #require(rename("\(directory)/.new", "\(directory)/\(name)") == 0)
    }
    private func nanoseconds() -> Int {
      var now = timespec()
      clock_gettime(CLOCK_REALTIME, &now)
      return now.tv_sec * 1_000_000_000 + now.tv_nsec
    }

    @Test func `a switch dropped in while the service is crash-looping is honoured by the very next start`()
      async throws
    {
      let scratch = try Scratch()
      let starts = scratch.path + "/starts", program = scratch.path + "/shop"
      // One start after the other, with next to no pause in between.
      try Files.write(
        """
        #!/bin/sh
        echo "$(date +%s%N) ${GUARDIAN_DISABLED_PLUGINS:--}" >>'\(starts)'
        [ "$PAYMENTS" = off ] || exit 3
        exec sleep 1000000

        """, to: program, mode: 0o755)
      let guardian = try await Guardian(
        scratch,
        services: [
          "shop": """
          command: ["\(program)"]
          startup-window: 300ms
          backoff: {first: 20ms, factor: 1}
          escalation: {restart: 1000}
          plugins: {list: [{name: payments, environment: {PAYMENTS: "off"}}, {name: social, environment: {X: "off"}}]}
          log: none
          """
        ])
      func lines() throws -> [(at: Int, off: String)] {
        try Files.read(starts).split(separator: "\n").compactMap { line in
          let parts = line.split(separator: " ", maxSplits: 1)
          return parts.count == 2 ? Int(parts[0]).map { ($0, String(parts[1])) } : nil
        }
      }
      try await eventually("it loops", seconds: 20) { (try? lines().count) ?? 0 >= 5 ? () : nil }
      try drop(
        guardian, "payments.yaml",
        "reason: payments 3.2 empties carts, OPS-123\nservices: [shop]\nplugins: [payments]\n")
      let dropped = nanoseconds()
      let well = try await guardian.wait(for: "shop", "settles") { $0["settled"].bool == true }
      // Whatever was born before the rename may write its line after it.
      let after = try lines().filter { $0.at > dropped + 30_000_000 }
      #expect(after.allSatisfy { $0.off == "payments" } && after.count <= 1, "\(after)")
      #expect(try lines().last?.off == "payments")
      #expect(well["degraded"].bool == false, "\(well)")
      #expect(well["disabled_plugins"].array.compactMap(\.string) == ["payments"])
      let one = try #require(well["switches"].array.first)
      #expect(one["file"].string == "payments.yaml" && one["what"].string == "plugin payments" && one["until"] == .null)
      #expect(one["reason"].string == "payments 3.2 empties carts, OPS-123")
      let text = try await guardian.control("status", "shop")
      #expect(text.code == 0 && text.output.contains("Switched off: plugin payments: payments 3.2"), "\(text)")
      #expect(text.output.contains("(switches.d/payments.yaml)"), "\(text)")
      let events = try await guardian.control("events", "shop")
      #expect(events.output.contains("switched off by payments.yaml: plugin payments"), "\(events)")

      // Gone: what runs goes on, and the next start has the plugin.
      unlink(scratch.path + "/config/switches.d/payments.yaml")
      try await eventually("the switch is over") {
        try await guardian.status("shop")["switches"].array.isEmpty ? () : nil
      }
      #expect(try await guardian.status("shop")["run"] == well["run"])
      let count = try lines().count
      _ = try await guardian.control("restart", "shop", "--no-wait")
      try await eventually("it starts again") { try lines().count > count ? () : nil }
      #expect(try lines()[count].off == "-")
      try await guardian.stop()
    }

    @Test func `one that is broken changes nothing, is told of, and its last good content outlives guardian`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "down": """
          command: [/bin/false]
          start: manual
          repair: [{name: fix, run: [/bin/true]}]
          log: none
          """
        ])
      func allowed() async throws -> Int? { try await guardian.status("down")["strikes_allowed"].int }
      #expect(try await allowed() == 5)
      // Works while the service is down.
      try drop(guardian, "a.yaml", "{reason: r, services: [down], steps: [repair]}\n")
      try await eventually("the switch is seen") { try await allowed() == 7 ? () : nil }
      try drop(guardian, "a.yaml", "{reason: r, services: [down], stps: [repair]}\n")
      let head = try await eventually("the fault is told") {
        let head = try await guardian.control("status")
        return head.output.contains("switches.d/a.yaml:1:31: unknown key 'stps'") ? head.output : nil
      }
      #expect(head.contains("did you mean 'steps'?") && head.contains("last good content is in force"), "\(head)")
      #expect(try await allowed() == 7)
      #expect(guardian.log.contains("a.yaml:1:31: unknown key 'stps'"))
      let events = try await guardian.control("--json", "events", "guardian")
      #expect(events.output.contains(#""name":"switch-broken""#), "\(events)")
      let check = try await guardian.control("check", "--config", scratch.path + "/config")
      #expect(check.code == 78 && check.output.contains("a.yaml:1:31"), "\(check)")

      guardian.kill()
      try await guardian.startAgain()
      #expect(try await allowed() == 7, "the last good content is remembered")
      // A valid one that is over before it begins, one that ends, and a doubt.
      try drop(guardian, "a.yaml", "{reason: r, until: 2020-01-01T00:00:00Z, services: [down], steps: [repair]}\n")
      try await eventually("it has ended") { try await allowed() == 5 ? () : nil }
      var soon = time(nil) + 2, parts = tm()
      gmtime_r(&soon, &parts)
      func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
      let until =
        "\(parts.tm_year + 1900)-\(two(parts.tm_mon + 1))-\(two(parts.tm_mday))T\(two(parts.tm_hour)):\(two(parts.tm_min)):"
        + "\(two(parts.tm_sec))Z"
      try drop(guardian, "b.yaml", "{reason: r, until: \(until), services: all, plugins: [x], ladder: off}\n")
      try await eventually("it is in force") { try await allowed() == 0 ? () : nil }
      #expect(
        try await guardian.status("down")["switches"].array.first?["until"].string?.hasPrefix(until.dropLast()) == true)
      #expect(try await guardian.control("status").output.contains("warning: unknown plugin 'x'"))
      try await eventually("its time is over") { try await allowed() == 5 ? () : nil }
      // The whole directory goes.
      try drop(guardian, "c.yaml", "{reason: r, services: all, ladder: off}\n")
      try await eventually("it is in force") { try await allowed() == 0 ? () : nil }
      try #require(rename(scratch.path + "/config/switches.d", scratch.path + "/config/gone") == 0)
      try await eventually("it is over") { try await allowed() == 5 ? () : nil }
      try await guardian.stop()
    }
  }

  @Suite struct `a service with a fallback` {
    @Test func `has it run in quarantine only, the two never at the same time`() async throws {
      let scratch = try Scratch()
      let lock = scratch.path + "/port", clashes = scratch.path + "/clashes", cure = scratch.path + "/cure"
      func program(_ last: String) -> String {
        """
        #!/bin/sh
        exec 9>>'\(lock)'
        flock -n 9 || { echo "$GUARDIAN_SERVICE" >>'\(clashes)'; exit 1; }
        \(last)

        """
      }
      try Files.write(
        program("[ -e '\(cure)' ] && exec sleep 1000000\nsleep 0.05; exit 9"), to: scratch.path + "/web", mode: 0o755)
      // Slow to stop.
      try Files.write(
        program("trap 'sleep 0.2; exit 0' TERM\nwhile :; do sleep 0.01; done"), to: scratch.path + "/static",
        mode: 0o755)
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: ["\(scratch.path)/web"]
          startup-window: 300ms
          fatal-exit: [9]
          quarantine: {retry-after: 1s, max: 1s, fallback: web-static}
          log: none
          """,
          "web-static": "command: [\"\(scratch.path)/static\"]\nstart: manual\nstartup-window: 100ms\nlog: none\n",
        ])
      try await guardian.wait(for: "web-static", "stands in") {
        $0["phase"].string == "running" && $0["stands_in_for"].array.compactMap(\.string) == ["web"]
      }
      try await guardian.wait(for: "web", "has had two trials") {
        ($0["restarts"].int ?? 0) >= 2 && $0["phase"].string == "quarantined"
      }
      let text = try await guardian.control("status", "web")
      #expect(text.output.contains("Fallback: web-static"), "\(text)")
      try await guardian.wait(for: "web-static", "stands in again") { $0["phase"].string == "running" }
      #expect(try await guardian.control("status", "web-static").output.contains("Stands in: for web"))
      // Guardian is killed, and goes on with both.
      guardian.kill()
      try await guardian.startAgain()
      try await guardian.wait(for: "web", "goes on") { ($0["restarts"].int ?? 0) >= 4 }
      try Files.write("", to: cure)
      #expect(try await guardian.control("release", "web").code == 0)
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(try await guardian.status("web-static")["phase"].string == "stopped")
      #expect(!Files.exists(clashes), "\((try? Files.read(clashes)) ?? "")")
      try await guardian.stop()
    }
  }

  @Suite struct `guardianctl drill` {
    @Test func `walks a copy of the ladder and runs its repairs, and the service knows nothing of it`() async throws {
      let scratch = try Scratch()
      let trace = scratch.path + "/trace"
      func repair(_ name: String, _ rest: String) throws -> String {
        let path = "\(scratch.path)/\(name)"
        try Files.write(
          "#!/bin/sh\necho \"\(name) $GUARDIAN_DRILL $GUARDIAN_STEP $GUARDIAN_ATTEMPT $GUARDIAN_CAUSE\" >>'\(trace)'\n\(rest)\n",
          to: path, mode: 0o755)
        return path
      }
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sleep, "1000000"]
          startup-window: 100ms
          repair:
            - {name: first, run: ["\(try repair("first", "exit 0"))"]}
            - {name: second, run: ["\(try repair("second", "exit 3"))"]}
            - {name: never, on: ["exit:78"], run: [/bin/false]}
          log: none
          """,
          "slow": """
          command: [/bin/sleep, "1000000"]
          startup-window: 100ms
          repair: [{name: slow, run: ["\(try repair("slow", "exec sleep 1000"))"]}]
          log: none
          """,
        ])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let history = try await guardian.control("--json", "events", "web").output
      let dry = try await guardian.control("drill", "web", "--cause", "signal:SEGV")
      #expect(dry.code == 0 && dry.output.contains("it dies with signal:SEGV"), "\(dry)")
      #expect(dry.output.contains("repair first, round 1") && dry.output.contains("quarantined"), "\(dry)")
      #expect(!Files.exists(trace))

      let real = try await guardian.control("--json", "drill", "web", "--with-repairs")
      let drill = try JSON(real.output)["drill"]
      #expect(real.code == 1 && drill["failed"].int == 2 && drill["cause"].string == "exit:1", "\(real)")
      let ended = drill["entries"].array.filter { $0["action"].string == "repair-ended" }.compactMap {
        $0["text"].string
      }
      #expect(
        ended == [
          "repair first done", "repair second failed: exit 3", "repair first done", "repair second failed: exit 3",
        ])
      #expect(
        try Files.read(trace)
          == "first 1 repair 1 exit\nsecond 1 repair 1 exit\nfirst 1 repair 2 exit\nsecond 1 repair 2 exit\n")
      let few = try await guardian.control("drill", "web", "--crashes", "2")
      #expect(few.code == 0 && few.output.split(separator: "\n").count { $0.contains("dies: strike") } == 2, "\(few)")
      for (arguments, code) in [(["nobody"], 4), (["web", "slow"], 64), (["web", "--cause", "rain"], 64)]
        as [([String], Int32)]
      {
        let refused = try await run(
          [Place.products + "/guardianctl", "--runtime", guardian.runtime, "drill"] + arguments)
        #expect(refused.code == code, "\(refused)")
      }
      let after = try await guardian.status("web")
      for key in ["pid", "run", "strikes", "restarts", "step", "last_end"] {
        #expect(after[key] == before[key], "\(key)")
      }
      #expect(try await guardian.control("--json", "events", "web").output == history)

      // One at a time, and no longer than somebody listens.
      let client = try Process(
        [Place.products + "/guardianctl", "--runtime", guardian.runtime, "drill", "slow", "--with-repairs"],
        output: scratch.path + "/slow.out")
      try await eventually("its repair runs") { (try? Files.read(trace))?.contains("slow 1") == true ? () : nil }
      #expect(try Files.read(scratch.path + "/slow.out").contains("repair slow, round 1"))
      let second = try await guardian.control("drill", "slow", "--with-repairs")
      #expect(second.code == 1 && second.error.contains("under way already"), "\(second)")
      client.end()
      try await eventually("the repair has been ended") {
        let again = try await guardian.control("drill", "slow")
        return again.code == 0 ? () : nil
      }
      #expect(try await guardian.status("slow")["strikes"].int == 0)
      try await guardian.stop()
    }
  }
}
