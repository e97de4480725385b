import Glibc
import Testing

private func number(_ name: String) -> Int? { getenv(name).flatMap { Int(String(cString: $0)) } }

extension Programs {
  /// Small forms; the long ones are measured by `make bench`.
  @Suite struct `under load` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    /// All services as `status --json` shows them.
    private func all(_ guardian: Guardian) async throws -> [JSON] {
      let answer = try await guardian.control("--json", "status")
      #expect(answer.code != 6, "\(answer.error)")
      return try JSON(answer.output)["services"].array
    }

    /// GUARDIAN_SERVICES is the long form.
    @Test(.enabled(if: number("GUARDIAN_SERVICES") ?? 60 >= 20, "not shown: needs twenty services at least"))
    func `I2, I3: they start a few at a time and are seen all the while; all killed at once, each is counted once`()
      async throws
    {
      let scratch = try Scratch()
      let count = number("GUARDIAN_SERVICES") ?? 60
      var services: [String: String] = [:]
      for number in 0..<count {
        services["s\(number)"] = """
          command: [/bin/sh, -c, "sleep 0.1; echo >&3; exec sleep 1000000"]
          ready: {fd: 3}
          startup-window: 50ms
          log: none
          """
      }
      let guardian = try await Guardian(
        scratch, services: services, host: "governor: {starts-per-second: 10000, concurrent: 8}\n")
      var looks = 0
      func settle(after runs: [String?: JSON]) async throws -> [JSON] {
        try await eventually("all settle: \(guardian.log.suffix(2_000))", seconds: 60) {
          let seen = try await all(guardian)
          #expect(seen.count == count)
          #expect(seen.count { $0["phase"].string == "starting" } <= 8)
          let settled = seen.allSatisfy {
            $0["settled"].bool == true && $0["run"].string != nil && $0["run"] != runs[$0["name"].string]
          }
          if !settled { looks += 1 }
          return settled ? seen : nil
        }
      }
      let first = try await settle(after: [:])
      #expect(looks > 0, "it has answered while they were starting")
      looks = 0
      for service in first { kill(pid_t(try #require(service["pid"].int)), SIGKILL) }
      let second = try await settle(
        after: Dictionary(uniqueKeysWithValues: first.map { ($0["name"].string, $0["run"]) }))
      #expect(looks > 0)
      #expect(second.allSatisfy { $0["restarts"].int == 1 && $0["strikes"].int == 0 }, "\(second)")
      let ends = guardian.log.split(separator: "\n").filter { $0.contains(": ended after ") }
      #expect(ends.count == count && ends.allSatisfy { $0.hasSuffix("SIGKILL") || $0.contains("SIGKILL") })
      try await guardian.stop()
    }

    @Test func `I4: of five hundred files one is changed, then all: nobody else is acted on, and nobody restarts`()
      async throws
    {
      let scratch = try Scratch()
      let manual = "command: [/bin/true]\nstart: manual\nlog: none\n"
      var services: [String: String] = [:]
      for number in 0..<497 { services["m\(number)"] = manual }
      for name in ["a", "b", "c"] { services[name] = Self.sleeper }
      let guardian = try await Guardian(scratch, services: services)
      var before: [String: JSON] = [:]
      for name in ["a", "b", "c"] {
        before[name] = try await guardian.wait(for: name, "settles") { $0["settled"].bool == true }
      }
      try guardian.configure("b", Self.sleeper + "nice: 5\n")
      let one = try await guardian.control("--json", "reload", "--restart")
      let told = try JSON(one.output)
      #expect(one.code == 0 && told["changed"].array.compactMap(\.string) == ["b"], "\(one.output.prefix(500))")
      #expect(told["unchanged"].int == 499 && told["restarts"].array.map { $0["name"].string } == ["b"])
      let changed = try await guardian.wait(for: "b", "settles") { $0["settled"].bool == true }
      #expect(changed["run"] != before["b"]?["run"])
      for name in ["a", "c"] { #expect(try await guardian.status(name)["run"] == before[name]?["run"]) }

      for (name, yaml) in services {
        try guardian.configure(name, yaml + "description: another\n" + (name == "b" ? "nice: 5\n" : ""))
      }
      let every = try await guardian.control("--json", "reload", "--restart")
      let toldOfAll = try JSON(every.output)
      #expect(every.code == 0 && toldOfAll["changed"].array.count == 500, "\(every.output.prefix(500))")
      for name in ["a", "c"] { #expect(try await guardian.status(name)["run"] == before[name]?["run"]) }
      #expect(try await guardian.status("b")["run"] == changed["run"])
      #expect(try await guardian.status("m300")["phase"].string == "stopped")
      try await guardian.stop()
    }

    @Test func `I5: fifty clients that ask without end are all answered, and a death is heard meanwhile`() async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": Self.sleeper, "db": Self.sleeper])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      // Each asks until it is told to end, and whoever is refused says so.
      let script = """
        for i in $(seq 50); do (
          while [ ! -e "$3" ]; do "$1" --runtime "$2" status web db >/dev/null || [ $? = 1 ] || echo refused; done
        ) & done; wait
        """
      let crowd = try Process(
        ["/bin/bash", "-c", script, "bash", Place.products + "/guardianctl", guardian.runtime, scratch.path + "/end"],
        output: scratch.path + "/crowd")
      kill(pid_t(try #require(before["pid"].int)), SIGKILL)
      try await guardian.wait(for: "web", "is back among them") {
        $0["settled"].bool == true && $0["run"] != before["run"]
      }
      #expect(crowd.poll() == nil)
      try Files.write("", to: scratch.path + "/end")
      #expect(try await crowd.wait() == 0)
      #expect(try Files.read(scratch.path + "/crowd") == "")
      try await guardian.stop()
    }

    @Test func `I6: a chain of sixty starts and stops in order`() async throws {
      let scratch = try Scratch()
      func name(_ number: Int) -> String { "s\(100 + number)" }
      var services: [String: String] = [:]
      for number in 0..<60 {
        services[name(number)] = Self.sleeper + (number > 0 ? "requires: [\(name(number - 1))]\n" : "")
      }
      let guardian = try await Guardian(scratch, services: services)
      try await guardian.wait(for: name(59), "settles") { $0["settled"].bool == true }
      try await guardian.stop()
      func order(_ what: String) -> [String] {
        guardian.log.split(separator: "\n").filter { $0.contains(what) }.compactMap { line in
          line.split(separator: " ").first { $0.hasPrefix("s1") && $0.hasSuffix(":") }.map { String($0.dropLast()) }
        }
      }
      #expect(order(": started, pid ") == (0..<60).map(name))
      #expect(order(": stopped") == (0..<60).reversed().map(name))
    }

    /// GUARDIAN_RESTARTS=1000000 is the long form: each is on the disk before its exec, so that they take their time.
    @Test func `I7: restarts by the hundred leave no descriptor, no group and no memory behind`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "crasher": """
          command: [/bin/false]
          escalation: off
          backoff: {first: 0s}
          startup-window: 1h
          log: none
          """
        ], host: "governor: off\n")
      let pid = guardian.process.pid
      func restarts() async throws -> Int { try await guardian.status("crasher")["restarts"].int ?? 0 }
      func resident() throws -> Int {
        let text = try Files.read("/proc/\(pid)/status").split(separator: "\n").first { $0.hasPrefix("RssAnon:") }
        return try #require(text?.split(separator: " ").compactMap { Int($0) }.first)
      }
      /// The least of several looks: a run under way has a few of its own.
      func descriptors() -> Int { (0..<20).map { _ in Files.names(in: "/proc/\(pid)/fd").count }.min() ?? 0 }
      func groups() -> Int { guardian.groups.map { Files.names(in: $0).count { $0.hasPrefix("service.") } } ?? 0 }
      let wanted = number("GUARDIAN_RESTARTS") ?? 500
      try await eventually("the first of them are over", seconds: 120) { try await restarts() >= wanted / 4 ? () : nil }
      let (files, memory) = (descriptors(), try resident())
      try await eventually("\(wanted) restarts", seconds: 60 + wanted / 100) {
        try await restarts() >= wanted ? () : nil
      }
      // What was left behind is there at each look, what is under way is not.
      try await eventually("there are no more descriptors than before") { descriptors() <= files ? () : nil }
      #expect(groups() <= 2, "two of one service, in turn")
      #expect(try resident() - memory < 1_024, "KiB")
      try await guardian.stop()
    }

    @Test(.enabled(if: isRoot, "not shown: needs root, to give the many a user of their own"))
    func `I8: a death costs no more beside a service of two thousand processes, and that one's own end is one death`()
      async throws
    {
      let scratch = try Scratch()
      let program = scratch.path + "/hostile", mark = "many-of-\(getpid())"
      #expect(try await run(["/bin/cp", Place.products + "/guardian-hostile", program]).code == 0)
      chmod(program, 0o755)
      let guardian = try await Guardian(
        scratch,
        services: [
          "many": """
          command: ["\(program)", \(mark), many=2000]
          user: nobody
          limits: {processes: 4000}
          start: manual
          startup-window: 100ms
          log: none
          """,
          "other": Self.sleeper + "late: {budget: 1000, within: 1h}\n",
        ])
      /// What guardian has read, in bytes, for so many deaths of the other service.
      func cost(of deaths: Int) async throws -> Int {
        func read() throws -> Int {
          let text = try Files.read("/proc/\(guardian.process.pid)/io").split(separator: "\n")
          return try #require(text.first { $0.hasPrefix("rchar:") }?.split(separator: " ").last.flatMap { Int($0) })
        }
        let before = try read()
        for _ in 0..<deaths {
          let service = try await guardian.wait(for: "other", "settles") { $0["settled"].bool == true }
          kill(pid_t(try #require(service["pid"].int)), SIGKILL)
          try await guardian.wait(for: "other", "is back") {
            $0["settled"].bool == true && $0["run"] != service["run"]
          }
        }
        return try read() - before
      }
      _ = try await cost(of: 1)
      let alone = try await cost(of: 3)
      #expect(try await guardian.control("start", "many").code == 0)
      let crowd = { processes { _, _, line in line.contains(mark) }.count }
      try await eventually("they are there") { crowd() > 2000 ? () : nil }
      let beside = try await cost(of: 3)
      // One look at each of them would be a hundred bytes at least, and two hundred thousand for each death.
      #expect(beside < alone + 100_000, "\(alone) bytes alone, \(beside) beside two thousand")
      let leader = try #require(try await guardian.status("many")["pid"].int)
      kill(pid_t(leader), SIGKILL)
      let after = try await guardian.wait(for: "many", "is back", seconds: 60) {
        $0["pid"].int != nil && $0["pid"].int != leader
      }
      #expect(after["restarts"].int == 1 && after["strikes"].int == 0, "\(after)")
      #expect(try await guardian.control("stop", "many").code == 0)
      #expect(crowd() == 0)
      try await guardian.stop()
    }
  }
}
