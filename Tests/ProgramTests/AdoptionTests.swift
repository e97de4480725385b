import Glibc
import Testing

extension PatientPrograms {
  /// Guardian is killed, and another one goes on where it was.
  @Suite struct `after guardian itself was killed` {
    private func pid(_ guardian: Guardian, _ name: String) async throws -> Int32 {
      Int32(try #require(try await guardian.status(name)["pid"].int))
    }
    private let settling = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"
    /// Whether whoever gets orphans here takes their ends: only then does the kernel tell others how they went.
    private func orphansAreReaped() async throws -> Bool {
      let orphan = try await run(["/bin/sh", "-c", "sleep 0.1 >/dev/null & echo $!"])
      guard let pid = Int32(orphan.output.trimmed) else { throw Failure("no orphan: \(orphan)") }
      try await eventually("the orphan ends") { isAlive(pid) ? nil : () }
      // Well within the time that guardian waits for it.
      for _ in 0..<30 where Files.exists("/proc/\(pid)") { usleep(10_000) }
      return !Files.exists("/proc/\(pid)")
    }

    @Test func `a running service goes on untouched and is taken over, and its end and exit status are noticed`()
      async throws
    {
      let scratch = try Scratch()
      let yaml = """
        command: [/bin/sh, -c, "trap 'exit 42' USR1; while :; do sleep 0.05; done"]
        startup-window: 100ms
        restart: never
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["web": yaml])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      guardian.kill()
      let pid = Int32(try #require(before["pid"].int))
      #expect(isAlive(pid))
      try await guardian.startAgain()
      let after = try await guardian.status("web")
      #expect(after["pid"] == before["pid"] && after["run"] == before["run"], "\(before) \(after)")
      #expect(after["settled"].bool == true && after["restarts"].int == 0, "\(after)")
      Glibc.kill(pid, SIGUSR1)
      let ended = try await guardian.wait(for: "web", "has finished") { $0["phase"].string == "finished" }
      // Under a first process that leaves zombies lying, nobody can know; the tests under systemd show the other.
      if try await orphansAreReaped() {
        #expect(ended["last_end"]["code"].int == 42, "\(ended)")
      } else {
        // Some first processes come round to it now and then: in time, or too late.
        let end = ended["last_end"]
        #expect(end["cause"].string == "unknown" || end["code"].int == 42, "\(ended)")
      }
      try await guardian.stop()
    }

    @Test func `where the kernel does not tell how it went, the cause is unknown`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": settling + "restart: never\n"], environment: ["GUARDIAN_NO_PIDFD_INFO": "1"])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      guardian.kill()
      try await guardian.startAgain()
      Glibc.kill(Int32(try #require(before["pid"].int)), SIGKILL)
      let ended = try await guardian.wait(for: "web", "has finished") { $0["phase"].string == "finished" }
      #expect(ended["last_end"]["cause"].string == "unknown", "\(ended)")
      try await guardian.stop()
    }

    @Test func `what died meanwhile is found, counted once and started again`() async throws {
      let scratch = try Scratch()
      let yaml = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 1h\nlog: none\nbackoff: {first: 50ms}\n"
      let guardian = try await Guardian(scratch, services: ["web": yaml])
      let before = try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      let pid = Int32(try #require(before["pid"].int))
      guardian.kill()
      Glibc.kill(pid, SIGKILL)
      try await guardian.startAgain()
      let after = try await guardian.wait(for: "web", "runs again") {
        $0["phase"].string == "running" && $0["pid"] != before["pid"]
      }
      #expect(after["last_end"]["cause"].string == "unknown", "\(after)")
      #expect(after["strikes"].int == 1 && after["restarts"].int == 1, "\(after)")
      try await guardian.stop()
    }

    @Test func `a run that began and died before guardian could write it down is one strike, once`() async throws {
      let scratch = try Scratch()
      let yaml = """
        command: [/bin/sh, -c, "echo x >>'\(scratch.path)/lives'; exit 3"]
        startup-window: 1h
        backoff: {first: 1h, max: 2h}
        log: none
        """
      let guardian = try await Guardian(scratch, services: [:])
      try await guardian.stop()
      try guardian.configure("web", yaml)
      try guardian.respawn(environment: ["GUARDIAN_FAILPOINT": "spawn.after"])
      #expect(try await guardian.process.wait() == 128 + SIGKILL)
      try await eventually("the run is over") { Files.exists(scratch.path + "/lives") ? () : nil }
      try await guardian.startAgain()
      let after = try await guardian.wait(for: "web", "backs off") { $0["phase"].string == "backing-off" }
      #expect(after["strikes"].int == 1 && after["last_end"]["cause"].string == "unknown", "\(after)")
      #expect(try Files.read(scratch.path + "/lives") == "x\n")
      try await guardian.stop()
    }

    @Test func `what nothing is remembered of is ended before its service is started again, and nobody runs twice`()
      async throws
    {
      let scratch = try Scratch()
      let names = ["one", "two", "three"]
      // With a child, which is to go too.
      let yaml = "command: [/bin/sh, -c, \"sleep 1000000 & wait\"]\nstartup-window: 100ms\nlog: none\n"
      var services: [String: String] = [:]
      for name in names { services[name] = yaml }
      let guardian = try await Guardian(scratch, services: services)
      var pids: [Int32] = []
      for name in names {
        let status = try await guardian.wait(for: name, "settles") { $0["settled"].bool == true }
        let pid = Int32(try #require(status["pid"].int))
        pids.append(pid)
        pids += try await eventually("\(name) has its child") {
          let children = children(of: pid)
          return children.isEmpty ? nil : children
        }
      }
      guardian.kill()
      for file in ["guardian.db", "guardian.db-wal"] { unlink("\(scratch.path)/state/\(file)") }
      try await guardian.startAgain()
      for name in names {
        let status = try await guardian.wait(for: name, "settles") { $0["settled"].bool == true }
        #expect(!pids.contains(Int32(try #require(status["pid"].int))), "\(status)")
      }
      for pid in pids { #expect(!isAlive(pid), "\(pid) of the guardian before lives on") }
      try await guardian.stop()
    }

    @Test func `CASES 89: stopped stays stopped, quarantined quarantined, a delay goes on; since when, and by whom`()
      async throws
    {
      let scratch = try Scratch()
      let doomed = """
        command: [/bin/sh, -c, "exit 3"]
        backoff: {first: 1ms, max: 5ms}
        log: none
        """
      let slow = """
        command: [/bin/sh, -c, "exit 3"]
        backoff: {first: 1h, max: 2h}
        log: none
        """
      let guardian = try await Guardian(
        scratch, services: ["down": settling, "until": settling, "doomed": doomed, "slow": slow])
      try await guardian.wait(for: "doomed", "is quarantined") { $0["phase"].string == "quarantined" }
      let slowBefore = try await guardian.wait(for: "slow", "backs off") { $0["phase"].string == "backing-off" }
      let doomedBefore = try await guardian.status("doomed")
      #expect(try await guardian.control("stop", "down").code == 0)
      #expect(try await guardian.control("stop", "until", "--until-boot").code == 0)
      let me = geteuid() == 0 ? "root" : "uid \(geteuid())"
      let downBefore = try await guardian.status("down")
      #expect(downBefore["stopped_by"].string?.contains(me) == true, "\(downBefore)")
      // In another second, to tell the times apart.
      try await Task.sleep(for: .milliseconds(1_100))
      guardian.kill()
      try await guardian.startAgain()
      for name in ["down", "until"] {
        let after = try await guardian.status(name)
        #expect(after["phase"].string == "stopped" && after["wanted"].string == "down", "\(after)")
        #expect(after["stopped_by"].string?.contains(me) == true, "\(after)")
      }
      #expect(try await guardian.status("down")["since"] == downBefore["since"])
      let shown = try await guardian.control("status", "down").output
      #expect(shown.contains("down, stopped by ") && shown.contains(me), "\(shown)")
      let doomedAfter = try await guardian.status("doomed")
      #expect(doomedAfter["since"] == doomedBefore["since"] && doomedAfter["stopped_by"] == .null, "\(doomedAfter)")
      #expect(doomedAfter["phase"].string == "quarantined" && doomedAfter["step"].string == "quarantine")
      let slowAfter = try await guardian.status("slow")
      #expect(slowAfter["phase"].string == "backing-off" && slowAfter["strikes"].int == 1, "\(slowAfter)")
      let left = try #require(slowAfter["next"]["in_ms"].int), was = try #require(slowBefore["next"]["in_ms"].int)
      #expect(left <= was && left > was - 60_000, "\(was) ms, then \(left) ms")
      try await guardian.stop()
    }

    @Test func `a stop goes on with the patience that was left`() async throws {
      let scratch = try Scratch()
      let yaml = """
        command: [/bin/sh, -c, "trap '' TERM; while :; do sleep 0.05; done"]
        startup-window: 100ms
        stop: {timeout: 2s}
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["web": yaml])
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let pid = try await pid(guardian, "web")
      #expect(try await guardian.control("stop", "web", "--no-wait").code == 0)
      guardian.kill()
      try await guardian.startAgain()
      try await guardian.wait(for: "web", "is stopped") { $0["phase"].string == "stopped" }
      #expect(!isAlive(pid))
      try await guardian.stop()
    }

    @Test func `a repair that runs is taken over, and its result is noticed`() async throws {
      let scratch = try Scratch()
      let go = scratch.path + "/go", ran = scratch.path + "/ran"
      let yaml = """
        command: [/bin/sh, -c, "test -e '\(scratch.path)/fixed' && exec sleep 1000000; exit 3"]
        startup-window: 100ms
        backoff: {first: 1ms}
        escalation: {restart: 1, repair: 2}
        repair:
          - {name: fix, run: [/bin/sh, -c, "echo x >>'\(ran)'; until test -e '\(go)'; do sleep 0.05; done; touch '\(scratch.path)/fixed'"]}
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["web": yaml])
      try await guardian.wait(for: "web", "is being repaired") { $0["phase"].string == "repairing" }
      try await eventually("the repair has begun") { Files.exists(ran) ? () : nil }
      guardian.kill()
      try await guardian.startAgain()
      #expect(try await guardian.status("web")["phase"].string == "repairing")
      try Files.write("", to: go)
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(try Files.read(ran) == "x\n")
      try await guardian.stop()
    }

    @Test(.enabled(if: Files.exists("/usr/bin/python3"), "not shown: the service that says so is in Python"))
    func `readiness is heard after the switch, by the same socket`() async throws {
      let scratch = try Scratch()
      let go = scratch.path + "/go"
      let yaml = """
        command: [/usr/bin/python3, -c, "import os,socket,time\\nwhile not os.path.exists('\(go)'): time.sleep(0.05)\\ns=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM)\\ns.sendto(b'READY=1',os.environ['NOTIFY_SOCKET'])\\ntime.sleep(1000000)"]
        ready: notify
        start-timeout: 1min
        startup-window: 1h
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["web": yaml])
      try await guardian.wait(for: "web", "is starting") { $0["phase"].string == "starting" && $0["pid"] != .null }
      guardian.kill()
      try await guardian.startAgain()
      #expect(try await guardian.status("web")["phase"].string == "starting")
      try Files.write("", to: go)
      try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      #expect(try await guardian.status("web")["restarts"].int == 0)
      try await guardian.stop()
    }

    @Test func `G6: killed in the middle of a reload it has the old or the new definition, and its socket answers`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": settling, "steady": settling])
      let steady = try await guardian.wait(for: "steady", "settles") { $0["settled"].bool == true }
      for round in 0..<10 {
        try guardian.configure("web", "command: [/bin/sleep, \"\(2_000_000 + round)\"]\nlog: none\n")
        let reload = try Process([Place.products + "/guardianctl", "--runtime", guardian.runtime, "reload"])
        usleep(UInt32(round * 1_500))
        guardian.kill()
        _ = try await reload.wait()
        try await guardian.startAgain()
        let web = try await guardian.wait(for: "web", "runs") { $0["pid"].int != nil }
        let line = try Files.read("/proc/\(try #require(web["pid"].int))/cmdline")
        #expect(line.hasPrefix("/bin/sleep\0"), "\(line)")
        #expect(try await guardian.status("steady")["pid"] == steady["pid"])
        #expect(try await guardian.control("reload").code == 0)
      }
      try await guardian.stop()
    }

    @Test func `G7: of a hundred services half have died meanwhile: each has its own verdict`() async throws {
      let scratch = try Scratch()
      var services: [String: String] = [:]
      let yaml = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 1h\nlog: none\nbackoff: {first: 1h, max: 2h}\n"
      for number in 0..<100 { services["s\(number)"] = yaml }
      let guardian = try await Guardian(scratch, services: services)
      var pids: [Int: Int] = [:]
      for number in 0..<100 {
        pids[number] = try await guardian.wait(for: "s\(number)", "runs") { $0["phase"].string == "running" }["pid"].int
      }
      guardian.kill()
      for (number, pid) in pids where number % 2 == 1 { Glibc.kill(Int32(pid), SIGSEGV) }
      try await guardian.startAgain()
      for number in 0..<100 {
        let status = try await guardian.status("s\(number)")
        if number % 2 == 0 {
          #expect(status["pid"].int == pids[number] && status["strikes"].int == 0, "\(status)")
        } else {
          #expect(status["phase"].string == "backing-off" && status["strikes"].int == 1, "\(status)")
        }
      }
      try await guardian.stop()
    }

    /// GUARDIAN_CROWD=10000 is the long form: so many services.
    @Test(.enabled(if: OwnNumbers.missing == nil, "not shown: \(OwnNumbers.missing ?? "")"))
    func `G7: half have died, some of their pids are others' now: each has its verdict within 5 s, others no signal`()
      async throws
    {
      let count = getenv("GUARDIAN_CROWD").flatMap { Int(String(cString: $0)) } ?? 300
      let scratch = try Scratch()
      let program = scratch.path + "/bystander"
      let compiler = try #require(Place.program("clang") ?? Place.program("cc") ?? Place.program("gcc"))
      let built = try await run([compiler, "-O1", "-o", program, Place.repository + "/Tests/Support/bystander.c"])
      guard built.code == 0 else { throw Failure("\(built)") }
      for name in ["config", "config/services", "state", "run", "logs"] { _ = try scratch.directory(name) }
      let yaml = "command: [\(program)]\nstartup-window: 10min\nlog: none\nbackoff: {first: 1h, max: 2h}\n"
      for number in 0..<count { try Files.write(yaml, to: "\(scratch.path)/config/services/s\(number).yaml") }
      let script = """
        cd '\(scratch.path)'
        ulimit -c 0
        guardian() {
          '\(Place.products)/guardian' --config "$PWD/config" --state "$PWD/state" --runtime "$PWD/run" \\
            --logs "$PWD/logs" >>guardian.log 2>&1 &
          guardian=$!
        }
        ctl() { '\(Place.products)/guardianctl' --runtime "$PWD/run" "$@" 2>/dev/null; }
        milliseconds() { echo $(($(date +%s%N) / 1000000)); }
        guardian
        for _ in $(seq 600); do ctl status | grep -q '\(count) running' && break; sleep .2; done
        ctl --json status >before
        kill -KILL $guardian; wait $guardian
        # NAME PID, one a line
        tr -d ' \\n' <before | grep -oE '"name":"s[0-9]+"|"pid":[0-9]+' | sed 's/.*://; s/"//g' | paste -d ' ' - - >pids
        awk '{ if (substr($1, 2) % 2) print $2 }' pids >dead
        kill -SEGV $(cat dead)
        # Reaped by this shell, as process 1.
        while kill -0 $(tail -n 1 dead) 2>/dev/null; do sleep .02; done
        reused=0
        for pid in $(shuf -n 50 --random-source=before dead); do
          echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid
          ./bystander heard &
          [ $! = $pid ] && reused=$((reused + 1))
          echo $! >>bystanders
        done
        echo reused $reused
        start=$(milliseconds)
        guardian
        until ctl status s0 >/dev/null; [ $? != 6 ]; do :; done
        echo took $(($(milliseconds) - start))
        ctl --json status >after
        kill -TERM $guardian; wait $guardian; echo ended $?
        kill -0 $(cat bystanders) && echo alive
        [ -s heard ] || echo untouched

        """
      try Files.write(script, to: scratch.path + "/script")
      let answer = try await run(
        OwnNumbers.wrapper + ["/bin/bash", scratch.path + "/script"], seconds: 120 + count / 20)
      let lines = answer.output.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
      let story = "\(answer) \((try? Files.read(scratch.path + "/guardian.log"))?.suffix(3_000) ?? "")"
      func number(_ name: String) -> Int? { lines.first { $0.first == name }?.last.flatMap { Int($0) } }
      #expect(lines.contains(["alive"]) && lines.contains(["untouched"]) && number("ended") == 0, "\(story)")
      #expect(try #require(number("reused"), "\(story)") >= min(count / 2, 50) / 2, "\(story)")
      let took = try #require(number("took"), "\(story)")
      #expect(took < 5_000)
      if count > 1_000 { print("G7: \(count) services were taken over or found dead within \(took) ms") }

      func services(_ name: String) throws -> [String: JSON] {
        let list = try JSON(try Files.read(scratch.path + "/" + name))["services"].array
        return Dictionary(list.compactMap { one in one["name"].string.map { ($0, one) } }) { $1 }
      }
      let before = try services("before"), after = try services("after")
      #expect(before.count == count && after.count == count, "\(story)")
      var wrong: [JSON] = []
      for index in 0..<count {
        let was = before["s\(index)"] ?? .null, now = after["s\(index)"] ?? .null
        let isRight =
          index % 2 == 0
          ? now["pid"] == was["pid"] && now["run"] == was["run"] && now["strikes"].int == 0
            && now["phase"].string == "running"
          : now["phase"].string == "backing-off" && now["strikes"].int == 1
            && now["last_end"]["cause"].string == "unknown"
        if !isRight { wrong.append(now) }
      }
      #expect(wrong.isEmpty, "\(wrong.count) are wrong, such as \(wrong.prefix(3))")
    }

    @Test func `CASES 25, G8: who writes while guardian dies is not harmed by it, and no line is lost`() async throws {
      let scratch = try Scratch()
      let yaml = """
        command: [/bin/sh, -c, "n=0; while :; do n=$((n + 1)); echo tick $n; sleep 0.01; done"]
        startup-window: 100ms
        log: inherit
        """
      let guardian = try await Guardian(scratch, services: ["chatty": yaml])
      let before = try await guardian.wait(for: "chatty", "settles") { $0["settled"].bool == true }
      guardian.kill()
      let written = guardian.log.count
      try await eventually("more is written") { guardian.log.count > written + 100 ? () : nil }
      try await guardian.startAgain()
      let after = try await guardian.status("chatty")
      #expect(after["pid"] == before["pid"] && after["restarts"].int == 0, "\(after)")
      let reached = guardian.log.count
      try await eventually("it goes on") { guardian.log.count > reached + 100 ? () : nil }
      try await guardian.stop()
      let ticks = guardian.log.split(separator: "\n").filter { $0.hasPrefix("tick ") }
      #expect(ticks.enumerated().allSatisfy { $1 == "tick \($0 + 1)" }, "\(ticks)")
    }

    @Test func `a service whose file has gone meanwhile is stopped and forgotten`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": settling, "other": settling])
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let pid = try await pid(guardian, "web")
      guardian.kill()
      unlink(scratch.path + "/config/services/web.yaml")
      try await guardian.startAgain()
      try await eventually("it is gone") { isAlive(pid) ? nil : () }
      try await eventually("it is forgotten") { try await guardian.control("status", "web").code == 4 ? () : nil }
      try await guardian.stop()
    }

    @Test func `a service whose file has become invalid meanwhile is left alone, and taken over when it is mended`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": settling, "other": settling])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      guardian.kill()
      try guardian.configure("web", "command: [/bin/sleep\n")
      try await guardian.startAgain()
      #expect(try await guardian.status("web")["phase"].string == "quarantined")
      #expect(isAlive(Int32(try #require(before["pid"].int))))
      try guardian.configure("web", settling)
      #expect(try await guardian.control("reload").code == 0)
      let after = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(after["pid"] == before["pid"] && after["run"] == before["run"], "\(before) \(after)")
      try await guardian.stop()
    }

    @Test func `an orderly stop ends also what has no valid file any more, and keeps what is remembered of it`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": settling, "other": settling])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      guardian.kill()
      try guardian.configure("web", "command: [/bin/sleep\n")
      try await guardian.startAgain()
      try await guardian.stop()
      #expect(!isAlive(Int32(try #require(before["pid"].int))))
      try guardian.configure("web", settling)
      try await guardian.startAgain()
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try await guardian.stop()
    }

    @Test func `without a configuration that can be read nothing is stopped, and all is taken over when it is back`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": settling])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      guardian.kill()
      rename(scratch.path + "/config/services", scratch.path + "/config/away")
      symlink("services", scratch.path + "/config/services")
      try await guardian.startAgain()
      #expect(isAlive(Int32(try #require(before["pid"].int))))
      unlink(scratch.path + "/config/services")
      rename(scratch.path + "/config/away", scratch.path + "/config/services")
      #expect(try await guardian.control("reload").code == 0)
      let after = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(after["pid"] == before["pid"], "\(before) \(after)")
      try await guardian.stop()
    }

    @Test func `the state is durable, and a second guardian names the first and touches nothing`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": settling])
      let version = try await guardian.control("version")
      #expect(version.output.contains("durable"), "\(version)")
      let second = try await run([
        Place.products + "/guardian", "--config", scratch.path + "/config", "--state", scratch.path + "/state",
        "--runtime", scratch.path + "/run", "--logs", scratch.path + "/logs",
      ])
      #expect(second.code == 1 && second.error.contains("pid \(guardian.process.pid)"), "\(second)")
      try await guardian.stop()
    }
  }
}
