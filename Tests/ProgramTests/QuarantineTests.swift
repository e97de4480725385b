import Glibc
import Testing

extension PatientPrograms {
  @Suite struct `a program beyond help` {
    @Test func `is released by a mended configuration file, without anybody's command; a touched policy is none`()
      async throws
    {
      let scratch = try Scratch()
      let settings = scratch.path + "/shop.conf"
      try Files.write("broken\n", to: settings)
      let yaml = """
        command: [/bin/sh, -c, "grep -q works '\(settings)' || exit 78; exec sleep 1000000"]
        startup-window: 200ms
        backoff: {first: 10ms, max: 10ms}
        repair: [{name: config, restore: ["\(settings)"]}]
        quarantine: {retry-after: never}
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["shop": yaml])
      try await guardian.wait(for: "shop", "is quarantined") { $0["phase"].string == "quarantined" }
      // Policy is no reason to try again.
      try guardian.configure("shop", yaml + "\ndescription: policy\n")
      #expect(try await guardian.control("reload").code == 0)
      let still = try await guardian.wait(for: "shop", "has the new policy") { $0["description"].string == "policy" }
      #expect(still["phase"].string == "quarantined")
      try Files.write("works\n", to: settings)
      let well = try await guardian.wait(for: "shop", "settles") { $0["settled"].bool == true }
      #expect(well["step"].string == "restart" && well["strikes"].int == 0, "\(well)")
      let told = try await guardian.control("events", "shop").output
      #expect(told.contains("released") && told.contains(settings), "\(told)")
      try await guardian.stop()
    }

    @Test func `is quarantined after the strikes and at the times that plan announced, tried, and released`()
      async throws
    {
      let scratch = try Scratch()
      let starts = scratch.path + "/starts", cure = scratch.path + "/cure", program = scratch.path + "/doomed"
      try Files.write(
        """
        #!/bin/sh
        date +%s%N >>'\(starts)'
        [ ! -e '\(cure)' ] || exec sleep 1000000
        exit 3

        """, to: program, mode: 0o755)
      let yaml = """
        command: ["\(program)"]
        startup-window: 2s
        backoff: {first: 200ms, factor: 2, max: 2s}
        quarantine: {retry-after: 3s}
        log: inherit
        """
      let guardian = try await Guardian(scratch, services: ["doomed": yaml])
      let plan = try await guardian.control("--json", "plan", "doomed", "--from-start")
      #expect(plan.code == 0, "\(plan)")
      let entries = try JSON(plan.output)["plans"].array.first?["entries"].array ?? []
      let announced = entries.prefix { $0["action"].string != "quarantine" }.filter { $0["action"].string == "start" }
      #expect(announced.count == 7, "\(plan.output)")

      let quarantined = try await guardian.wait(for: "doomed", "is quarantined") { $0["phase"].string == "quarantined" }
      #expect(quarantined["step"].string == "quarantine" && quarantined["pid"] == .null, "\(quarantined)")
      #expect(quarantined["next"]["action"].string == "trial", "\(quarantined)")
      #expect(try await guardian.control("status", "doomed").code == 5)
      func times() throws -> [Int] { try Files.read(starts).split(separator: "\n").compactMap { Int($0) } }
      let actual = try times()
      #expect(actual.count == announced.count)
      // The plan lets every run die at once; here each takes some milliseconds, more on a busy machine, which add up.
      for (n, (time, entry)) in zip(actual, announced).enumerated() {
        let offset = (time - actual[0]) / 1_000_000, slack = 300 + 100 * n
        let earliest = try #require(entry["earliest_ms"].int), latest = try #require(entry["latest_ms"].int)
        #expect(offset >= earliest - 20 && offset <= latest + slack, "start \(n): \(offset) ms, announced \(entry)")
      }

      // The trial fails and the next one is further away.
      let again = try await guardian.wait(for: "doomed", "is back from its trial") {
        $0["restarts"].int == 7 && $0["phase"].string == "quarantined"
      }
      let trial = try times()[7], wait = (trial - actual[6]) / 1_000_000
      #expect(wait >= 2_900 && wait < 6_000, "the trial came after \(wait) ms")
      #expect((again["next"]["in_ms"].int ?? 0) > 3_500, "\(again)")

      try Files.write("", to: cure)
      #expect(try await guardian.control("release", "doomed").code == 0)
      let well = try await guardian.wait(for: "doomed", "settles") { $0["settled"].bool == true }
      #expect(well["step"].string == "restart" && well["strikes"].int == 0, "\(well)")
      #expect(try await guardian.control("status", "doomed").code == 0)
      try await guardian.stop()
    }
  }
}
