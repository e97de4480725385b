import Glibc
import Testing

extension Programs {
  @Suite struct `a reload of the configuration` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    @Test func `CASES 53, A15: a dry run changes nothing, and with --restart each is restarted once that needs it`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "policy": Self.sleeper, "process": Self.sleeper, "broken": Self.sleeper, "gone": Self.sleeper,
          "down": Self.sleeper + "start: manual\n",
        ])
      var before: [String: JSON] = [:]
      for name in ["policy", "process", "broken", "gone"] {
        before[name] = try await guardian.wait(for: name, "settles") { $0["settled"].bool == true }
      }
      try guardian.configure("policy", Self.sleeper + "restart: never\nstop: {timeout: 3s}\n")
      try guardian.configure("process", Self.sleeper + "umask: \"0077\"\nbackoff: {first: 1s}\n")
      try guardian.configure("down", Self.sleeper + "start: manual\numask: \"0077\"\n")
      try guardian.configure("broken", Self.sleeper + "startup-windw: 3s\n")
      try guardian.configure("new", Self.sleeper)
      unlink(scratch.path + "/config/services/gone.yaml")

      let dry = try await guardian.control("--json", "reload", "--dry-run")
      let would = try JSON(dry.output)
      #expect(dry.code == 1 && dry.error.contains("broken.yaml:4:1"), "\(dry)")
      #expect(would["dry_run"].bool == true)
      #expect(would["invalid"].array.compactMap(\.string) == ["broken"])
      #expect(try await guardian.control("status", "new").code == 4, "nothing has been changed")
      #expect(try await guardian.status("gone")["pid"] == before["gone"]?["pid"])
      #expect(try await guardian.status("process")["pending_definition"].bool == false)
      #expect(try await guardian.control("status", "broken").output.contains("not valid") == false)

      let first = try await guardian.control("--json", "reload", "--restart")
      let told = try JSON(first.output)
      #expect(first.code == 1, "one file has a fault: \(first)")
      #expect(told["dry_run"].bool == false)
      for list in ["added", "removed", "changed", "invalid", "unchanged", "details", "need_restart"] {
        #expect(told[list] == would[list], "\(list): a dry run tells what a reload does")
      }
      #expect(told["added"].array.compactMap(\.string) == ["new"])
      #expect(told["removed"].array.compactMap(\.string) == ["gone"])
      #expect(told["changed"].array.compactMap(\.string) == ["down", "policy", "process"])
      #expect(told["next_start"].array.compactMap(\.string) == ["process"])
      let details = told["details"].array
      #expect(details.map { $0["live"].array.compactMap(\.string) } == [["umask"], ["stop", "restart"], ["backoff"]])
      #expect(details.map { $0["next_start"].array.compactMap(\.string) } == [[], [], ["umask"]])
      #expect(told["need_restart"].array.map { $0["name"].string } == ["process"])
      #expect(told["restarts"].array.map { $0["name"].string } == ["gone", "process"])
      #expect(told["restarts"].array.allSatisfy { $0["done"].bool == true }, "\(told["restarts"])")
      #expect(try await guardian.control("status", "gone").code == 4)
      for name in ["policy", "broken"] {
        #expect(try await guardian.status(name)["run"] == before[name]?["run"], "nothing restarts by surprise: \(name)")
      }
      let process = try await guardian.wait(for: "process", "settles") { $0["settled"].bool == true }
      #expect(process["run"] != before["process"]?["run"] && process["pending_definition"].bool == false)
      #expect(process["strikes"].int == 0 && process["last_end"]["class"].string == "ordered", "\(process)")

      try guardian.configure("broken", Self.sleeper)
      let second = try await guardian.control("reload", "--restart")
      #expect(
        second.code == 0 && second.output == "configuration read again: 5 services, nothing changed\n", "\(second)")
      #expect(try await guardian.status("process")["run"] == process["run"], "none in the second")
      try await guardian.stop()
    }

    @Test func `what an earlier reload has left is restarted by a later one, with each result`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["good": Self.sleeper, "bad": Self.sleeper])
      for name in ["good", "bad"] { try await guardian.wait(for: name, "settles") { $0["settled"].bool == true } }
      try guardian.configure("good", Self.sleeper.replacing("1000000", with: "2000000"))
      try guardian.configure(
        "bad", "command: [/bin/sh, -c, exit 3]\nready: {fd: 3}\nlog: none\nbackoff: {first: 1h, max: 1h}\n")
      let plain = try await guardian.control("reload")
      #expect(plain.code == 0 && plain.output.contains("need a restart: bad, good"), "\(plain)")
      let status = try await guardian.control("status", "good")
      #expect(status.output.contains("takes effect with its next start, or by a restart: command"), "\(status.output)")
      let round = try await guardian.control("--json", "reload", "--restart")
      let told = try JSON(round.output)
      #expect(round.code == 1 && round.error.contains("bad: "), "\(round)")
      #expect(told["changed"].array.isEmpty)
      #expect(told["restarts"].array.map { $0["name"].string } == ["bad", "good"])
      #expect(told["restarts"].array.map { $0["done"].bool } == [false, true])
      let pid = try #require(try await guardian.status("good")["pid"].int)
      #expect(try Files.read("/proc/\(pid)/cmdline") == "/bin/sleep\02000000\0")
      try await guardian.stop()
    }

    @Test func `a file that is changed while a reading is under way is read by the one that was asked for afterwards`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["one": Self.sleeper])
      try await guardian.wait(for: "one", "settles") { $0["settled"].bool == true }
      for round in 1...20 {
        // The first one is very likely still reading when the file changes.
        let first = try Process([Place.products + "/guardianctl", "--runtime", guardian.runtime, "reload"])
        let path = scratch.path + "/config/services/one.yaml"
        try Files.write(Self.sleeper + "description: round \(round)\n", to: path + ".new")
        rename(path + ".new", path)
        #expect(try await guardian.control("reload").code == 0)
        #expect(try await guardian.status("one")["description"].string == "round \(round)")
        #expect(try await first.wait() == 0)
      }
      try await guardian.stop()
    }
  }
}
