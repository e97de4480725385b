import Glibc
import Testing

extension PatientPrograms {
  @Suite struct `before a service starts` {
    @Test func `its program runs in its place and with its environment, and the start follows`() async throws {
      let scratch = try Scratch()
      let place = try scratch.directory("place")
      try Files.write("FROM_FILE=file\n", to: scratch.path + "/env")
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sh, -c, "cat prepared >seen; exec sleep 1000000"]
          before-start: [/bin/sh, -c, "umask; pwd; echo $FOO $FROM_FILE $GUARDIAN_SERVICE $GUARDIAN_HOOK ${#INVOCATION_ID} $LISTEN_FDS; cat) >prepared 2>&1"]
          directory: \(place)
          umask: "0027"
          environment: {FOO: bar}
          environment-file: [\(scratch.path)/env]
          startup-window: 100ms
          log: none

          """.replacing("\"umask;", with: "\"(umask;")
        ])
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let seen = try Files.read(place + "/seen").split(separator: "\n", omittingEmptySubsequences: false)
      #expect(seen.prefix(3) == ["0027", Substring(place), "bar file web before-start 32"], "\(seen)")
      let json = try JSON(String(seen[3]))
      #expect(json["hook"].string == "before-start" && json["end"] == .null, "\(json)")
      let status = try await guardian.status("web")
      #expect(status["restarts"].int == 0 && status["strikes"].int == 0)
      // What it leaves running does not outlive it.
      try await guardian.stop()
    }

    @Test func `its failure is no crash: no strike, the reason shown, tried again; a missing one too`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sleep, "1000000"]
          before-start: [/bin/sh, -c, "echo x >>'\(scratch.path)/tries'; [ -e '\(scratch.path)/good' ] || exit 7"]
          startup-window: 100ms
          backoff: {first: 50ms, max: 100ms}
          log: none

          """,
          "gone": """
          command: [/bin/sleep, "1000000"]
          before-start: [\(scratch.path)/none]
          backoff: {first: 1h, max: 2h}
          log: none

          """,
        ])
      let gone = try await guardian.wait(for: "gone", "backs off") { $0["phase"].string == "backing-off" }
      #expect(gone["reason"].string?.contains("before-start cannot run \(scratch.path)/none: no such file") == true)
      try await eventually("a few tries") {
        ((try? Files.read(scratch.path + "/tries")) ?? "").split(separator: "\n").count > 8 ? () : nil
      }
      let failing = try await guardian.status("web")
      #expect(failing["strikes"].int == 0 && failing["step"].string == "restart" && failing["run"] == .null)
      let start = try await guardian.control("start", "gone")
      #expect(start.code == 1 && (start.output + start.error).contains("before-start"), "\(start)")
      try await guardian.wait(for: "web", "tells why") {
        $0["phase"].string == "backing-off" && $0["reason"].string?.contains("before-start failed: exit 7") == true
      }
      try Files.write("", to: scratch.path + "/good")
      let well = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(well["restarts"].int == 0 && well["strikes"].int == 0)
      try await guardian.stop()
    }

    @Test func `it goes on when guardian is killed, and the start follows`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sh, -c, "echo $$ >>'\(scratch.path)/runs'; exec sleep 1000000"]
          before-start: [/bin/sh, -c, "echo $$ >>'\(scratch.path)/hooks'; until [ -e '\(scratch.path)/go' ]; do sleep 0.02; done"]
          startup-window: 100ms
          log: none

          """
        ])
      func lines(_ name: String) -> [Substring] {
        ((try? Files.read(scratch.path + "/" + name)) ?? "").split(separator: "\n")
      }
      try await eventually("it runs") { lines("hooks").isEmpty ? nil : () }
      // Also by the switch to another program.
      #expect(try await guardian.control("upgrade").code == 0)
      try await guardian.wait(for: "web", "prepares") { $0["phase"].string == "starting" }
      guardian.kill()
      let hook = try #require(lines("hooks").first.flatMap { Int32($0) })
      #expect(isAlive(hook))
      try await guardian.startAgain()
      let again = try await guardian.wait(for: "web", "prepares") { $0["phase"].string == "starting" }
      #expect(again["reason"].string == "before-start is running", "\(again)")
      #expect(lines("runs").isEmpty && isAlive(hook))
      try Files.write("", to: scratch.path + "/go")
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(web["strikes"].int == 0 && lines("runs").count == 1)
      try await guardian.stop()
      if Book.missing == nil {
        let book = try await Book.read(guardian)["web"] ?? [:]
        #expect(book.values.allSatisfy { $0 }, "\(book)")
      }
    }

    @Test func `a stop and a time limit end it with all that it has started`() async throws {
      let scratch = try Scratch()
      let hangs = { (marker: String) in
        """
        command: [/bin/sleep, "1000000"]
        before-start: [/bin/sh, -c, "trap '' TERM; '\(scratch.path)/\(marker)' & wait; sleep 1000000"]
        start-timeout: \(marker == "slow" ? "300ms" : "1h")
        backoff: {first: 1h, max: 2h}
        log: none

        """
      }
      for marker in ["stopped", "slow"] {
        try Files.write("#!/bin/sh\nwhile :; do sleep 0.1; done\n", to: scratch.path + "/" + marker, mode: 0o755)
      }
      let guardian = try await Guardian(scratch, services: ["stopped": hangs("stopped"), "slow": hangs("slow")])
      func left(_ marker: String) -> [String] {
        processes { _, _, line in line.contains("/bin/sh \(scratch.path)/\(marker)") }
      }
      try await eventually("they run") { left("stopped").isEmpty ? nil : () }
      #expect(try await guardian.control("stop", "stopped").code == 0)
      #expect(left("stopped").isEmpty)
      let slow = try await guardian.wait(for: "slow", "is late") { $0["phase"].string == "backing-off" }
      #expect(slow["reason"].string?.hasPrefix("before-start timed out") == true && slow["strikes"].int == 0, "\(slow)")
      try await eventually("nothing is left") { left("slow").isEmpty ? () : nil }
      try await guardian.stop()
    }
  }
}
