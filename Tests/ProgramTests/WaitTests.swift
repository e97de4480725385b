import Glibc
import Testing

extension PatientPrograms {
  @Suite struct `wait` {
    @Test func `ends when it is so, when it cannot be so any more, and when its time is over`() async throws {
      let guardian = try await Guardian(
        try Scratch(),
        services: [
          "slow": """
          command: [/bin/sh, -c, "sleep 0.5; echo >&3; exec sleep 1000"]
          ready: {fd: 3}
          start: manual
          startup-window: 300ms
          log: none
          groups: [shop]
          """,
          "quick": """
          command: [/bin/sleep, "1000"]
          start: manual
          startup-window: 200ms
          log: none
          groups: [shop]
          """,
          "bad": """
          command: [/bin/false]
          start: manual
          backoff: {first: 30ms, max: 30ms}
          log: none
          """,
          "task": """
          command: [/bin/sh, -c, "sleep 0.3"]
          type: task
          start: manual
          log: none
          """,
        ])
      func ask(_ line: String, seconds: Int = 20) async throws -> (code: Int32, output: String, error: String) {
        let words = line.split(separator: " ").map(String.init)
        return try await run(
          [Place.products + "/guardianctl", "--runtime", guardian.runtime] + words, seconds: seconds)
      }

      // Nothing has been started, and wait starts nothing.
      let never = try await ask("wait quick")
      #expect(never.code == 1 && never.output == "")
      #expect(never.error == "guardianctl: quick: will not become settled: it is stopped\n")
      #expect(try await ask("wait @shop --for=stopped").code == 0)
      let late = try await ask("wait quick --for finished --timeout 200ms --json")
      #expect(late.code == 1)

      #expect(try await ask("start --no-wait --all").code == 0)
      let both = try await ask("wait @shop --timeout 15s --json")
      #expect(both.code == 0 && both.error == "")
      let results = try JSON(both.output)["results"].array
      #expect(results.map { $0["name"].string } == ["quick", "slow"] && results.allSatisfy { $0["done"].bool == true })
      #expect(try await guardian.status("slow")["settled"].bool == true)

      // The seventh strike comes in the middle of this.
      let spoilt = try await ask("wait bad --timeout 15s")
      #expect(spoilt.code == 1)
      #expect(spoilt.error.hasPrefix("guardianctl: bad: will not become settled: it is in quarantine: "))
      #expect(try await ask("wait bad --for quarantined").code == 0)
      #expect(try await ask("wait task --for finished").output == "task: finished\n")
      #expect(try await ask("wait task").code == 0)

      let timed = try await ask("wait quick s* --for=stopped --timeout 300ms --json")
      #expect(timed.code == 1)
      #expect(timed.error.split(separator: "\n").count == 2 && timed.error.contains("slow: not stopped within 300ms: "))
      #expect(try JSON(timed.output)["error"]["name"].string == "timeout")

      let unknown = try await ask("wait quick nosuch")
      #expect(unknown.code == 4 && unknown.error == "guardianctl: nosuch: no such service\n")
      #expect(try await ask("wait quick nosuch --any").code == 0)
      try await guardian.stop()
    }

    @Test func `loses nothing between its look and what it is told, and outlives a guardian that is killed`()
      async throws
    {
      let guardian = try await Guardian(
        try Scratch(),
        services: [
          "flip": "command: [/bin/sleep, \"1000\"]\nstart: manual\nstartup-window: 100ms\nlog: none\n"
        ])
      let control = [Place.products + "/guardianctl", "--runtime", guardian.runtime]
      // Orders and waiters race; each waiter ends by what the order before it has begun.
      for _ in 0..<20 {
        let up = try Process(control + ["start", "flip", "--no-wait"])
        #expect(up.waitBlocking() == 0)
        #expect(try Process(control + ["wait", "flip", "--for=ready", "--timeout", "10s"]).waitBlocking() == 0)
        let waiter = try Process(control + ["wait", "flip", "--for=stopped", "--timeout", "10s"])
        let down = try Process(control + ["stop", "flip", "--no-wait"])
        #expect(down.waitBlocking() == 0)
        #expect(waiter.waitBlocking() == 0)
      }
      #expect(try Process(control + ["start", "flip"]).waitBlocking() == 0)
      let waiter = try Process(control + ["wait", "flip", "--for=stopped", "--timeout", "20s"])
      try await Task.sleep(for: .milliseconds(100))
      guardian.kill()
      try await Task.sleep(for: .milliseconds(300))
      try await guardian.startAgain()
      #expect(waiter.poll() == nil)
      #expect(try Process(control + ["stop", "flip"]).waitBlocking() == 0)
      #expect(try await waiter.wait(seconds: 20) == 0)
      try await guardian.stop()
    }
  }
}
