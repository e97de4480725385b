import Glibc
import Testing

/// Health checks of real services, by the real `guardian-check`.
extension PatientPrograms {
  @Suite struct `health checks of real services` {
    /// A service that is well as long as `well` is there.
    private func yaml(_ scratch: Scratch, _ more: String = "") -> String {
      """
      command: [/bin/sleep, "1000000"]
      log: none
      startup-window: 1s
      backoff: {first: 50ms, max: 100ms}
      checks:
        - {name: well, exec: [/bin/sh, -c, "test -e '\(scratch.path)/well' || { echo unwell; exit 1; }"], every: 100ms, failures: 2}

      """ + more
    }

    @Test func `CASES 74: end what is unhealthy, and what stays down climbs the ladder into quarantine`() async throws {
      let scratch = try Scratch()
      try Files.write("", to: scratch.path + "/well")
      let guardian = try await Guardian(scratch, services: ["web": yaml(scratch)])
      let settled = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(settled["checks"].array.first?["state"].string == "passing")
      unlink(scratch.path + "/well")
      let given = try await guardian.wait(for: "web", "is given up", seconds: 60) {
        $0["phase"].string == "quarantined"
      }
      #expect(given["last_end"]["cause"].string == "check")
      #expect(given["last_end"]["text"].string == "check well failed 2 times: exit 1: unwell (SIGTERM)")
      #expect(given["reason"].string?.contains("check well failed 2 times: exit 1: unwell") == true)
      // The first was of a settled run, and no strike; seven were.
      #expect(guardian.log.contains("late death 1 of 5"))
      #expect(guardian.log.contains("strike 7 of 7"))
      try await guardian.stop()
    }

    @Test func `CASES 73: somebody else who answers on the port makes no run that dies ready`() async throws {
      let scratch = try Scratch()
      let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
      defer { close(listener) }
      var address = sockaddr_in()
      address.sin_family = sa_family_t(AF_INET)
      address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
      var length = socklen_t(MemoryLayout<sockaddr_in>.size)
      withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          _ = bind(listener, $0, length)
          _ = getsockname(listener, $0, &length)
        }
      }
      #expect(listen(listener, 16) == 0)
      // It cannot bind, and ends.
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sh, -c, "exit 1"]
          ready: check
          log: none
          backoff: {first: 10ms, max: 20ms}
          checks: [{name: port, tcp: \(UInt16(bigEndian: address.sin_port)), every: 100ms}]

          """
        ])
      let given = try await guardian.wait(for: "web", "is given up", seconds: 60) {
        $0["phase"].string == "quarantined"
      }
      #expect(given["last_end"]["cause"].string == "exit")
      #expect(!guardian.log.contains("web: ready"))
      try await guardian.stop()
    }

    @Test func `make a service ready that waits for them, and a start waits for that`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": yaml(scratch, "ready: check\nstart: manual\n")])
      #expect(try await guardian.control("start", "--no-wait", "web").code == 0)
      try await guardian.wait(for: "web", "is looked at") { $0["checks"].array.first?["state"].string == "failing" }
      #expect(try await guardian.status("web")["phase"].string == "starting")
      try Files.write("", to: scratch.path + "/well")
      #expect(try await guardian.control("start", "web").code == 0)
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try await guardian.stop()
    }

    @Test func `go on after guardian-check was killed, and begin anew after guardian was, and after an upgrade`()
      async throws
    {
      let scratch = try Scratch()
      try Files.write("", to: scratch.path + "/well")
      let guardian = try await Guardian(scratch, services: ["web": yaml(scratch)])
      let first = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      func helpers() -> [Int32] {
        children(of: guardian.process.pid).filter { name(of: $0).hasPrefix("guardian-check") }
      }
      let helper = try #require(helpers().first)
      kill(helper, SIGKILL)
      try await eventually("it is started again") { helpers().contains { $0 != helper } ? () : nil }
      try await guardian.wait(for: "web", "is well") { $0["checks"].array.first?["state"].string == "passing" }
      #expect(try await guardian.control("upgrade").code == 0)
      try await guardian.wait(for: "web", "is well after the upgrade") {
        $0["checks"].array.first?["state"].string == "passing"
      }
      guardian.kill()
      try await guardian.startAgain()
      let last = try await guardian.wait(for: "web", "is well after guardian's death") {
        $0["checks"].array.first?["state"].string == "passing"
      }
      #expect(last["settled"].bool == true)
      #expect(last["pid"].int == first["pid"].int)
      // And they have a say again.
      unlink(scratch.path + "/well")
      try await guardian.wait(for: "web", "is restarted") { $0["last_end"]["cause"].string == "check" }
      try await guardian.stop()
    }

    @Test func `that nobody can make are told, and harm no service`() async throws {
      let scratch = try Scratch()
      let program = scratch.path + "/guardian"
      try Files.write("", to: program, mode: 0o755)
      #expect(try await run(["/bin/cp", Place.products + "/guardian", program]).code == 0)
      let guardian = try await Guardian(
        scratch, services: ["web": yaml(scratch, "ready: check\nstart-timeout: 2s\n")], program: program)
      let web = try await guardian.wait(for: "web", "settles all the same") { $0["settled"].bool == true }
      #expect(web["checks"].array.first?["state"].string == "unknown")
      #expect(web["checks"].array.first?["text"].string?.contains("guardian-check is neither") == true)
      #expect(web["strikes"].int == 0)
      let head = try await guardian.control("status")
      #expect(head.output.contains("guardian-check is neither beside guardian nor in ../libexec/guardian"))
      #expect(guardian.log.contains("guardian-check is neither"))
      try await guardian.stop()
    }
  }
}

private func name(of pid: Int32) -> String { (try? Files.read("/proc/\(pid)/comm")) ?? "" }
