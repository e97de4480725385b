import Glibc
import Testing

extension Programs {
  /// The disk on which the state is kept fails; supervision does not.
  @Suite struct `trouble with the disk` {
    /// Dies when it is told to, always while it is starting up.
    private let crasher = """
      command: [/bin/sleep, "1000000"]
      startup-window: 1h
      escalation: {restart: 50}
      backoff: {first: 10ms, max: 10ms}
      log: none
      """

    /// Ends the run and waits for the next one; which must come, whatever the disk does.
    private func crash(_ guardian: Guardian) async throws -> JSON {
      let before = try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      Glibc.kill(Int32(try #require(before["pid"].int)), SIGSEGV)
      return try await guardian.wait(for: "web", "runs again") {
        $0["phase"].string == "running" && $0["run"] != before["run"]
      }
    }

    private func state(_ guardian: Guardian) async throws -> String {
      let answer = try await guardian.control("version")
      return answer.output.contains("volatile") ? "volatile" : answer.output.contains("durable") ? "durable" : "unknown"
    }

    private func waitFor(_ wanted: String, _ guardian: Guardian) async throws {
      try await eventually("the state is \(wanted)") { try await state(guardian) == wanted ? () : nil }
    }

    @Test func `a disk that hangs: restarts go on, status says volatile, and what was saved late is there afterwards`()
      async throws
    {
      let scratch = try Scratch()
      let hang = scratch.path + "/hang", shim = scratch.path + "/hanging-disk.so"
      try await HangingDisk.build(shim)
      let guardian = try await Guardian(
        scratch, services: ["web": crasher], environment: ["LD_PRELOAD": shim, "HANGING_DISK": hang])
      #expect(try await crash(guardian)["strikes"].int == 1)
      #expect(try await state(guardian) == "durable")
      try Files.write("", to: hang)
      #expect(try await crash(guardian)["strikes"].int == 2)
      try await waitFor("volatile", guardian)
      #expect(try await crash(guardian)["strikes"].int == 3)
      let shown = try await guardian.control("status")
      #expect(shown.output.contains("state: volatile"), "\(shown)")
      unlink(hang)
      try await waitFor("durable", guardian)
      guardian.kill()
      try await guardian.startAgain()
      #expect(try await guardian.status("web")["strikes"].int == 3)
      try await guardian.stop()
    }

    @Test(.enabled(if: isRoot, "not shown: a small file system of one's own needs root"))
    func `a full disk in the middle of a crash loop: nothing acknowledged is lost, and it is durable again with space`()
      async throws
    {
      let scratch = try Scratch()
      // The file system is that of guardian's own namespace, and is seen from here through its root.
      let guardian = try await Guardian(
        scratch, services: ["web": crasher, "other": crasher],
        wrappedIn: [
          "/usr/bin/unshare", "--mount", "/bin/sh", "-c",
          "mount -t tmpfs -o size=256k,mode=700 tmpfs '\(scratch.path)/state' && exec \"$@\"", "sh",
        ])
      #expect(try await crash(guardian)["strikes"].int == 1)
      #expect(try await state(guardian) == "durable")
      let inside = "/proc/\(guardian.process.pid)/root\(scratch.path)/state"
      let filler = try await run(["/bin/dd", "if=/dev/zero", "of=\(inside)/filler", "bs=4k"])
      #expect(filler.code != 0, "it is not full")
      #expect(try await guardian.control("stop", "other", "--no-wait").code == 0)
      for _ in 0..<40 where try await state(guardian) == "durable" { _ = try await crash(guardian) }
      #expect(try await state(guardian) == "volatile")
      let strikes = try #require(try await crash(guardian)["strikes"].int)
      unlink(inside + "/filler")
      try await waitFor("durable", guardian)
      // Not killed: its file system would go with it. What is on it is read as another guardian would.
      let copy = try scratch.directory("copy")
      let copied = try await run(["/bin/sh", "-c", "cp '\(inside)'/guardian.db* '\(copy)'"])
      #expect(copied.code == 0, "\(copied)")
      try await guardian.stop()
      let again = try await run([
        "/bin/sh", "-c", "rm -rf '\(scratch.path)/state'; mv '\(copy)' '\(scratch.path)/state'",
      ])
      #expect(again.code == 0)
      guardian.unwrap()
      try await guardian.startAgain()
      #expect(try await guardian.status("other")["wanted"].string == "down")
      #expect(try #require(try await guardian.status("web")["strikes"].int) >= strikes)
      try await guardian.stop()
    }

    @Test(arguments: [0, 1, 100, 4_096, 9_000])
    func `a damaged database is moved aside whole, and guardian goes on`(_ size: Int) async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": crasher])
      try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      try await guardian.stop()
      let database = scratch.path + "/state/guardian.db"
      try Files.write(String(repeating: "\0", count: size), to: database, mode: 0o600)
      try await guardian.startAgain()
      try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      #expect(try await state(guardian) == "durable")
      #expect(guardian.log.contains("guardian.db"), "\(guardian.log)")
      if size > 0 {
        #expect(Files.names(in: scratch.path + "/state").contains { $0.hasPrefix("guardian.db.damaged-") })
      }
      try await guardian.stop()
    }

    @Test func `without a state directory that can be used, services run and status says volatile`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": crasher], arguments: ["--state", "/proc/nothing/here"])
      #expect(try await crash(guardian)["strikes"].int == 1)
      #expect(try await state(guardian) == "volatile")
      try await guardian.stop()
    }
  }
}

/// A library that is preloaded; see Tests/Support/hanging-disk.c.
enum HangingDisk {
  static let seconds = getenv("GUARDIAN_HANG").flatMap { Int(String(cString: $0)) } ?? 7

  static func build(_ path: String) async throws {
    let compiler = try #require(Place.program("clang") ?? Place.program("cc") ?? Place.program("gcc"))
    let built = try await run([
      compiler, "-shared", "-fPIC", "-O1", "-o", path, Place.repository + "/Tests/Support/hanging-disk.c", "-ldl",
    ])
    guard built.code == 0 else { throw Failure("\(built)") }
  }
}
