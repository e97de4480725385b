import Glibc
import Testing

/// What services write, and what becomes of it.
extension Programs {
  @Suite struct `output to files` {
    /// Of one service, oldest first.
    struct Log {
      var notes: [String] = [], lines: [String] = []
    }
    static func log(_ guardian: Guardian, _ name: String = "web") throws -> Log {
      let place = "\(guardian.scratch.path)/logs/\(name)"
      var log = Log()
      for file in Files.names(in: place).filter({ $0.hasSuffix(".log") }).sorted() + ["current"] {
        for line in try Files.read("\(place)/\(file)").split(separator: "\n") {
          if line.hasPrefix("#") {
            log.notes.append(String(line))
          } else {
            log.lines.append(String(line.dropFirst(25)))
          }
        }
      }
      return log
    }

    static func loggers(_ guardian: Guardian) -> [Int32] {
      // Whose socket it is tells whose logger.
      processes { pid, _, line in line.hasSuffix("/guardian-logger") && isLogger(pid, of: guardian) }
        .compactMap { $0.split(separator: " ").first.flatMap { Int32($0) } }
    }
    private static func isLogger(_ pid: Int32, of guardian: Guardian) -> Bool {
      let maps = (try? Files.read("/proc/\(pid)/maps")) ?? ""
      return maps.contains(guardian.runtime + "/logger.book")
    }

    @Test func `CASES 34: what is said between the signal and the end is all there, in order`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sh, -c, "trap 'seq 1 20000; exit 0' TERM; echo ready; while :; do sleep 0.05; done"]
          log: file
          """
        ])
      try await eventually("it is ready") { (try? Self.log(guardian).lines) == ["ready"] ? () : nil }
      #expect(try await guardian.status("web")["log_file"].string == scratch.path + "/logs/web/current")
      #expect(try await guardian.control("stop", "web").code == 0)
      let wanted = ["ready"] + (1...20_000).map(String.init)
      try await eventually("all is written") { (try? Self.log(guardian).lines.count) == wanted.count ? () : nil }
      #expect(try Self.log(guardian).lines == wanted)
      try await guardian.stop()
      #expect(Self.loggers(guardian) == [])
    }

    @Test func `the last words before guardian's own end are written before it ends`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sh, -c, "trap 'seq 1 20000; exit 0' TERM; echo ready; while :; do sleep 0.05; done"]
          log: file
          """
        ])
      try await eventually("it is ready") { (try? Self.log(guardian).lines) == ["ready"] ? () : nil }
      try await guardian.stop()
      #expect(try Self.log(guardian).lines.count == 20_001)
    }

    /// Numbered lines in bursts, some MB a second.
    private static let writer = """
      command: [/bin/sh, -c, "i=0; while :; do seq $i $((i+4999)); i=$((i+5000)); sleep 0.03; done"]
      log: file
      """
    /// How much a service has written so far, as far as it is still in the file.
    private func size(_ guardian: Guardian, _ name: String) -> Int {
      var about = stat()
      return stat("\(guardian.scratch.path)/logs/\(name)/current", &about) == 0 ? Int(about.st_size) : 0
    }

    @Test
    func `G8: guardian and guardian-logger are killed while children write: none dies, and loss is bounded and told`()
      async throws
    {
      let scratch = try Scratch()
      // So much that each kill hits somebody, and so little that it can be read here line by line.
      let steady = """
        command: [/bin/sh, -c, "i=0; while :; do seq $i $((i+499)); i=$((i+500)); sleep 0.02; done"]
        log: file
        """
      let names = (0..<4).map { "w\($0)" }
      let guardian = try await Guardian(
        scratch, services: Dictionary(uniqueKeysWithValues: names.map { ($0, steady) }),
        host: "logs: {rotate: 1G}\n")
      for name in names { try await eventually("\(name) writes") { size(guardian, name) > 100_000 ? () : nil } }
      var pids: [String: Int] = [:]
      for name in names { pids[name] = try await guardian.status(name)["pid"].int }
      // The logger alone, guardian alone, and both.
      let first = try #require(Self.loggers(guardian).first)
      kill(first, SIGKILL)
      try await eventually("there is another logger") { Self.loggers(guardian).contains { $0 != first } ? () : nil }
      guardian.kill()
      let second = try #require(Self.loggers(guardian).first)
      try await guardian.startAgain()
      #expect(Self.loggers(guardian) == [second])
      kill(second, SIGKILL)
      guardian.kill()
      try await guardian.startAgain()
      try await eventually("there is a third logger") { Self.loggers(guardian).contains { $0 != second } ? () : nil }
      for name in names {
        let now = try await guardian.status(name)
        #expect(now["pid"].int == pids[name] && now["restarts"].int == 0, "\(now)")
        let before = size(guardian, name)
        try await eventually("\(name) goes on") { size(guardian, name) > before ? () : nil }
      }
      try await guardian.stop()
      for name in names {
        let log = try Self.log(guardian, name)
        // Whole lines are numbers; where a logger was killed, one may be cut, and what it had in its hands is missing.
        var last = -1, missing = 0, cut = 0
        for line in log.lines {
          guard let number = Int(line) else {
            cut += 1
            continue
          }
          if number <= last { cut += 1 } else { if number > last + 1 { missing += number - last - 1 } }
          if number > last, number < last + 200_000 { last = number } else { cut += 1 }
        }
        #expect(cut <= 4, "\(name): \(cut) of \(log.lines.count) lines are cut, or out of order")
        #expect(missing <= 2 * (256 << 10) / 5, "\(name): \(missing) of \(last) are missing")
        // Nor had any file a reason to be put aside, whatever the next guardian knew before it had read its configuration.
        #expect(Files.names(in: "\(scratch.path)/logs/\(name)") == ["current"])
        if missing > 2 { #expect(log.notes.contains { $0.contains("were lost here") }, "\(name): \(missing)") }
      }
    }

    @Test
    func `D6: a line of 100 MB, then silence of somebody who holds the pipe: memory is bounded, no restart waits`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sh, -c, "head -c 100000000 /dev/zero | tr '\\\\0' x; setsid sleep 1000 & exit 3"]
          log: file
          startup-window: 1ms
          late: {budget: 100}
          backoff: {first: 10ms, max: 10ms}
          """
        ], host: "logs: {rotate: 8M, keep: 3}\n")
      let logger = try await eventually("there is a logger") { Self.loggers(guardian).first }
      try await guardian.wait(for: "web", "is started again", seconds: 60) { $0["restarts"].int ?? 0 >= 2 }
      let status = try Files.read("/proc/\(logger)/status")
      let peak = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") })
      let kilobytes = try #require(Int(peak.split { $0 == " " || $0 == "\t" }[1]))
      #expect(kilobytes < 16 << 10, "\(peak)")
      try await guardian.stop()
      #expect(try Self.log(guardian).lines.allSatisfy { $0.utf8.count <= 65_536 })
      #expect(Files.names(in: scratch.path + "/logs/web").count <= 4)
    }

    @Test(.enabled(if: isRoot, "not shown: a small file system of one's own needs root"))
    func `E5: a full directory for logs: services run on, what is dropped is counted, and it goes on with space`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": Self.writer], host: "logs: {rotate: 1G}\n",
        wrappedIn: [
          "/usr/bin/unshare", "--mount", "/bin/sh", "-c",
          "mount -t tmpfs -o size=2m,mode=755 tmpfs '\(scratch.path)/logs' && exec \"$@\"", "sh",
        ])
      let inside = "/proc/\(guardian.process.pid)/root\(scratch.path)/logs"
      try await guardian.wait(for: "web", "says so") {
        $0["notes"].array.contains { $0.string?.contains("its output is not written: cannot write") == true }
      }
      let before = try await guardian.status("web")
      var full = stat()
      #expect(stat(inside + "/web/current", &full) == 0 && full.st_size > 1 << 20)
      #expect(before["phase"].string == "running" && before["restarts"].int == 0)
      // Room, without touching what the logger writes.
      let grown = try await run([
        "/usr/bin/nsenter", "--target", "\(guardian.process.pid)", "--mount", "/bin/mount", "-o", "remount,size=64m",
        scratch.path + "/logs",
      ])
      #expect(grown.code == 0, "\(grown)")
      try await guardian.wait(for: "web", "goes on") {
        $0["notes"].array.contains { $0.string?.contains("bytes of its output were dropped") == true }
          && !$0["notes"].array.contains { $0.string?.contains("not written") == true }
      }
      #expect(try await guardian.status("web")["pid"] == before["pid"])
      let text = try Files.read(inside + "/web/current")
      #expect(text.contains("bytes were dropped here: cannot write"))
      #expect(guardian.log.contains("its output is written again"))
      // Never shorter than it was.
      var after = stat()
      #expect(stat(inside + "/web/current", &after) == 0 && after.st_size >= full.st_size)
      try await guardian.stop()
    }

    @Test(.enabled(if: isRoot, "not shown: a small file system of one's own needs root"))
    func `E5: with 'full: wait' nothing is dropped, and guardian answers while its services wait`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": "command: [/bin/sh, -c, \"seq 300000; exec sleep 1000\"]\nlog: file\n"
        ], host: "logs: {rotate: 1G, full: wait}\n",
        wrappedIn: [
          "/usr/bin/unshare", "--mount", "/bin/sh", "-c",
          "mount -t tmpfs -o size=2m,mode=755 tmpfs '\(scratch.path)/logs' && exec \"$@\"", "sh",
        ])
      let inside = "/proc/\(guardian.process.pid)/root\(scratch.path)/logs"
      try await guardian.wait(for: "web", "says so") {
        $0["notes"].array.contains { $0.string?.contains("its output is not written") == true }
      }
      let grown = try await run([
        "/usr/bin/nsenter", "--target", "\(guardian.process.pid)", "--mount", "/bin/mount", "-o", "remount,size=128m",
        scratch.path + "/logs",
      ])
      #expect(grown.code == 0, "\(grown)")
      try await eventually("all of it is there") {
        let text = try Files.bytes(inside + "/web/current")
        return text.suffix(8).elementsEqual(" 300000\n".utf8) ? () : nil
      }
      let lines = try Files.read(inside + "/web/current").split(separator: "\n").filter { !$0.hasPrefix("#") }
      #expect(lines.count == 300_000)
      #expect(lines.enumerated().allSatisfy { Int($1.dropFirst(25)) == $0 + 1 })
      try await guardian.stop()
    }

    @Test func `J5: a directory of a service that is a link is not followed, the service runs, and status says so`()
      async throws
    {
      let scratch = try Scratch()
      let elsewhere = try scratch.directory("elsewhere")
      let guardian = try await Guardian(scratch, services: ["web": Self.writer + "\nstart: manual\n"])
      #expect(symlink(elsewhere, scratch.path + "/logs/web") == 0)
      #expect(try await guardian.control("start", "web").code == 0)
      try await guardian.wait(for: "web", "says so") {
        $0["notes"].array.contains { $0.string?.contains("is a link") == true } && $0["phase"].string == "running"
      }
      #expect(Files.names(in: elsewhere) == [])
      unlink(scratch.path + "/logs/web")
      try await eventually("it goes on") { size(guardian, "web") > 0 ? () : nil }
      try await guardian.stop()
    }

    @Test func `logs shows the last lines, those of one run, and follows over files that are put aside`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/sh, -c, "seq 1 3000; printf 'bell \\\\a and tail'; echo; exec sleep 1000"]
          log: file
          """
        ], host: "logs: {rotate: 16K, compress: gzip}\n")
      try await eventually("all is written") {
        (try? Self.log(guardian).lines.last?.contains("tail")) == true ? () : nil
      }
      let run = try #require(try await guardian.status("web")["run"].string)
      let few = try await guardian.control("logs", "web", "--lines", "3")
      #expect(few.code == 0)
      let texts = few.output.split(separator: "\n").filter { !$0.hasPrefix("#") }.map { $0.dropFirst(25) }
      #expect(texts == ["2999", "3000", "bell \u{7} and tail"])
      try await eventually("some are compressed") {
        Files.names(in: scratch.path + "/logs/web").contains { $0.hasSuffix(".gz") } ? () : nil
      }
      #expect(try await guardian.control("restart", "web").code == 0)
      let first = try await guardian.control("logs", "web", "--run", String(run.prefix(8)))
      #expect(first.output.split(separator: "\n").filter { !$0.hasPrefix("#") }.count == 3_001, "\(first.error)")
      #expect(!first.output.contains(", after "))
      let json = try await guardian.control("--json", "logs", "web", "--lines", "1")
      #expect(try JSON(json.output)["lines"].array.first?["text"].string?.hasPrefix("bell") == true, "\(json)")
      let none = try await guardian.control("logs", "web", "--run", "0123456789abcdef0123456789abcdef")
      #expect(none.code == 1 && none.output.isEmpty)
      #expect(try await guardian.control("logs", "nothing").code == 4)
      #expect(try await guardian.control("logs", "web", "--lines", "-1").code == 64)

      let follower = try Process(
        [Place.products + "/guardianctl", "--runtime", guardian.runtime, "logs", "web", "--follow", "--lines", "0"],
        output: scratch.path + "/followed")
      // It follows when it has shown that it does.
      func followed() -> [Substring] {
        ((try? Files.read(scratch.path + "/followed")) ?? "").split(separator: "\n").filter { !$0.hasPrefix("#") }
      }
      try await Task.sleep(for: .milliseconds(300))
      #expect(try await guardian.control("restart", "web").code == 0)
      try await eventually("it has followed") { followed().last?.hasSuffix("tail") == true ? () : nil }
      #expect(followed().count == 3_001)
      follower.end()
      // Whoever asks when guardian is not there is told what can be told.
      try await guardian.stop()
      #expect(try await guardian.control("logs", "web").code == 6)
    }
  }
}
