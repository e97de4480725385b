import Glibc
import Testing

extension Programs {
  @Suite struct `what holds for all services` {
    @Test func `the governor lets them start one after the other, and a reload lets go of it`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: Dictionary(
          uniqueKeysWithValues: (1...9).map { ("s\($0)", "command: [/bin/sleep, 1000]\nlog: none\n") }))
      for number in 1...9 { _ = try await guardian.control("stop", "s\(number)") }
      try Files.write("governor: {starts-per-second: 1, concurrent: 1}\n", to: scratch.path + "/config/guardian.yaml")
      #expect(try await guardian.control("reload").code == 0)
      for number in 1...9 { _ = try await guardian.control("start", "--no-wait", "s\(number)") }
      let waiting = try await guardian.wait(for: "s9", "waits") { $0["phase"].string == "waiting" }
      #expect(waiting["reason"].string == "governor: waits for its turn to start")
      #expect(waiting["strikes"].int == 0)
      try Files.write("governor: off\n", to: scratch.path + "/config/guardian.yaml")
      #expect(try await guardian.control("reload").code == 0)
      for number in 1...9 { try await guardian.wait(for: "s\(number)", "runs") { $0["phase"].string == "running" } }
      try await guardian.stop()
    }

    @Test func `a common cause is one event and one notice, freezes the ladder, and outlives guardian`() async throws {
      let scratch = try Scratch()
      let trouble = scratch.path + "/trouble", told = scratch.path + "/told"
      let guardian = try await Guardian(
        scratch,
        services: Dictionary(
          uniqueKeysWithValues: (1...4).map {
            (
              "s\($0)",
              """
              command: [/bin/sh, -c, "while [ ! -e \(trouble) ]; do sleep 0.05; done; exit 1"]
              log: none
              startup-window: 200ms
              late: {budget: 0}
              backoff: {first: 50ms, max: 100ms}
              escalation: {restart: 2, repair: 1, safe-mode: 1}
              notices: {on-common-cause: [/bin/sh, -c, "echo $GUARDIAN_SERVICE >> \(told)"]}

              """
            )
          }))
      for number in 1...4 { try await guardian.wait(for: "s\(number)", "settles") { $0["settled"].bool == true } }
      try Files.write("", to: trouble)
      try await eventually("a common cause is noticed") {
        try await guardian.control("status").output.contains("common cause: ") ? () : nil
      }
      // Four strikes would end the ladder, and each has had more deaths than that.
      for number in 1...4 {
        let seen = try await guardian.wait(for: "s\(number)", "is restarted again and again") {
          ($0["restarts"].int ?? 0) > 12
        }
        #expect(seen["step"].string == "restart")
      }
      try await eventually("the notice is given") { Files.exists(told) ? () : nil }
      #expect(try Files.read(told).split(separator: "\n").count == 1)
      #expect(
        guardian.log.split(separator: "\n").count {
          $0.contains("began to loop at once; escalation is frozen for 5min")
        } == 1)
      guardian.kill()
      try await guardian.startAgain()
      #expect(try await guardian.control("status").output.contains("common cause: "))
      try await guardian.stop()
    }
  }
}
