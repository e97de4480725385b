import Glibc
import Testing

extension Programs {
  @Suite struct `services that require each other, as real processes` {
    /// Writes its name when it starts, and when it is told to stop.
    private func program(_ scratch: Scratch) throws -> String {
      let path = scratch.path + "/member"
      try Files.write(
        """
        #!/bin/sh
        name=$1
        trap 'echo "-$name" >>"$2"; exit 0' TERM
        echo "+$name" >>"$2"
        while :; do sleep 0.05; done

        """, to: path, mode: 0o755)
      return path
    }

    @Test func `start, stop by command and stop with guardian in order, alone and as a group`() async throws {
      let scratch = try Scratch()
      let told = scratch.path + "/told", member = try program(scratch)
      func yaml(_ name: String, _ rest: String) -> String {
        "command: [\"\(member)\", \(name), \"\(told)\"]\nlog: none\ngroups: [shop]\n" + rest
      }
      // The names are in the wrong order on purpose.
      let guardian = try await Guardian(
        scratch,
        services: [
          "a-web": yaml("web", "requires: [m-app]\n"), "m-app": yaml("app", "requires: [z-db]\n"),
          "z-db": yaml("db", ""),
        ])
      func story() throws -> [String] {
        Files.exists(told) ? try Files.read(told).split(separator: "\n").map(String.init) : []
      }
      func waitForStory(_ wanted: [String]) async throws {
        for _ in 0..<400 where try story().count < wanted.count { try await Task.sleep(for: .milliseconds(25)) }
        #expect(try story() == wanted)
        try Files.write("", to: told)
      }
      func up() async throws {
        for name in ["a-web", "m-app", "z-db"] {
          _ = try await guardian.wait(for: name, "runs") { $0["phase"].string == "running" }
        }
      }
      try await up()
      // The shells are as quick as they like to write down that they run; that all did is what counts.
      for _ in 0..<400 where try story().count < 3 { try await Task.sleep(for: .milliseconds(25)) }
      #expect(try Set(story()) == ["+db", "+app", "+web"])
      try Files.write("", to: told)

      #expect(try await guardian.control("stop", "z-db").code == 0)
      try await waitForStory(["-web", "-app", "-db"])
      let waiting = try await guardian.wait(for: "a-web", "waits") { $0["phase"].string == "waiting" }
      #expect(waiting["wanted"].string == "up" && waiting["reason"].string == "waits for m-app (waiting)", "\(waiting)")
      #expect(waiting["waits_for"].array.compactMap(\.string) == ["m-app"])
      let refused = try await guardian.control("start", "a-web")
      #expect(refused.code == 1, "\(refused)")

      // Stopped and started as a whole: each is told once, and waits for what it needs.
      #expect(try await guardian.control("stop", "@shop").code == 0)
      let started = try await guardian.control("start", "--group", "shop")
      #expect(started.code == 0, "\(started)")
      try await up()
      #expect(try await guardian.control("status", "@shop").code <= 1)
      #expect(try await guardian.control("stop", "@nobody").code == 4)
      for _ in 0..<400 where try story().count < 3 { try await Task.sleep(for: .milliseconds(25)) }
      try Files.write("", to: told)

      try await guardian.stop()
      try await waitForStory(["-web", "-app", "-db"])
    }

    @Test func `A13 a cycle and an unknown name leave the others alone, and the last good stays`() async throws {
      let scratch = try Scratch()
      let idle = "command: [/bin/sleep, \"1000000\"]\nlog: none\n"
      let guardian = try await Guardian(
        scratch,
        services: [
          "a": idle + "requires: [b]\n", "b": idle + "requires: [a]\n", "lost": idle + "requires: [wb]\n", "web": idle,
          "follows": idle + "requires: [a]\n",
        ])
      _ = try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      let status = try await guardian.wait(for: "a", "is shown") { $0["phase"].string == "quarantined" }
      #expect(status["reason"].string?.contains("dependency cycle: a → b → a") ?? false, "\(status)")
      let lost = try await guardian.wait(for: "lost", "is shown") { $0["phase"].string == "quarantined" }
      #expect(lost["reason"].string?.contains("unknown service 'wb' in 'requires'") ?? false, "\(lost)")
      let follows = try await guardian.wait(for: "follows", "waits") { $0["phase"].string == "waiting" }
      #expect(follows["reason"].string == "waits for a (without a valid definition)", "\(follows)")

      let services = scratch.path + "/config/services"
      if Files.exists(services) {
        try Files.write(idle, to: services + "/b.yaml")
        #expect(try await guardian.control("reload").code == 1)  // 'lost' is as it was
        for name in ["a", "b", "follows"] {
          _ = try await guardian.wait(for: name, "runs") { $0["phase"].string == "running" }
        }
        try Files.write(idle + "requires: [follows]\n", to: services + "/b.yaml")
        #expect(try await guardian.control("reload").code == 1)
        for name in ["a", "b", "follows"] {
          let status = try await guardian.wait(for: name, "runs on") { $0["phase"].string == "running" }
          #expect(
            status["notes"].array.contains { $0.string?.contains("the last good definition") ?? false }, "\(status)")
        }
      }
      try await guardian.stop()
    }
  }
}
