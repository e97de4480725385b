import Glibc
import Testing

extension Programs {
  @Suite struct `bad input harms nothing but itself` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    @Test
    func `a faulty file is listed with its place while the others run, and a running service keeps its definition`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["good": Self.sleeper, "bad": "command: [/bin/true]\nstartup-windw: 3s\n"])
      let good = try await guardian.wait(for: "good", "settles") { $0["settled"].bool == true }
      let bad = try await guardian.control("status", "bad")
      #expect(bad.code == 5 && bad.output.contains("bad.yaml:2:1") && bad.output.contains("startup-window"), "\(bad)")
      let check = try await run([Place.products + "/guardian", "--check", "--config", scratch.path + "/config"])
      #expect(check.code == 78, "\(check)")

      try guardian.configure("good", "command: [/bin/sleep\n")
      let reload = try await guardian.control("reload")
      #expect(reload.code == 1 && (reload.output + reload.error).contains("good.yaml:"), "\(reload)")
      let still = try await guardian.status("good")
      #expect(still["pid"] == good["pid"] && still["run"] == good["run"], "\(still)")
      try guardian.configure("good", Self.sleeper)
      try guardian.configure("bad", Self.sleeper)
      #expect(try await guardian.control("reload").code == 0)
      try await guardian.wait(for: "bad", "settles once it is right") { $0["settled"].bool == true }
      try await guardian.stop()
    }

    @Test func `CASES 52, CASES 53: a reload says what it changed, and applies what needs no restart`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["policy": Self.sleeper, "process": Self.sleeper, "same": Self.sleeper])
      let policy = try await guardian.wait(for: "policy", "settles") { $0["settled"].bool == true }
      try await guardian.wait(for: "process", "settles") { $0["settled"].bool == true }
      try guardian.configure("policy", Self.sleeper + "restart: never\n")
      try guardian.configure("process", Self.sleeper + "umask: \"0077\"\n")
      try guardian.configure("new", Self.sleeper)
      let reload = try await guardian.control("--json", "reload")
      let told = try JSON(reload.output)
      #expect(reload.code == 0 && told["schema"].int == 1, "\(reload)")
      #expect(told["added"].array.compactMap(\.string) == ["new"])
      #expect(told["changed"].array.compactMap(\.string) == ["policy", "process"])
      #expect(told["next_start"].array.compactMap(\.string) == ["process"])
      #expect(told["unchanged"].int == 1 && told["removed"].array.isEmpty)
      let again = try await guardian.control("reload")
      #expect(again.output.hasPrefix("configuration read again: 4 services, nothing changed\n"), "\(again)")
      #expect(try await guardian.status("policy")["pid"] == policy["pid"], "nothing restarts by surprise")
      kill(pid_t(try #require(policy["pid"].int)), SIGSEGV)
      try await guardian.wait(for: "policy", "is left alone") { $0["phase"].string == "finished" }
      #expect(try await guardian.control("status", "policy").code == 3)
      try await guardian.stop()
    }

    @Test func `a configuration that is refused whole is no idle guardian`() async throws {
      let scratch = try Scratch()
      chmod(scratch.path, 0o777)  // whoever may write here may put another directory in the configuration's place
      let guardian = try await Guardian(scratch, services: [:])
      #expect(try await guardian.control("status").code == 5)
      #expect(try await guardian.control("--json", "status").code == 5)
      try await guardian.stop()
    }

    @Test func `A16 a crash after a failed reload restarts the service with the old command, whole`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["kept": Self.sleeper])
      let first = try await guardian.wait(for: "kept", "settles") { $0["settled"].bool == true }
      try guardian.configure("kept", "command: [/bin/echo, other]\nstartup-windw: 3s\n")
      #expect(try await guardian.control("reload").code == 1)
      kill(pid_t(try #require(first["pid"].int)), SIGSEGV)
      let second = try await guardian.wait(for: "kept", "settles again") {
        $0["settled"].bool == true && $0["run"] != first["run"]
      }
      let pid = try #require(second["pid"].int)
      #expect(try Files.read("/proc/\(pid)/cmdline") == "/bin/sleep\0" + "1000000\0")
      #expect(second["last_end"]["signal"].string == "SEGV" && second["strikes"].int == 0, "\(second)")
      try await guardian.stop()
    }

    @Test func `closed standard descriptors are not taken by a lock, which services would inherit`() async throws {
      let scratch = try Scratch()
      for name in ["config", "config/services", "state", "run"] { _ = try scratch.directory(name) }
      let yaml = "command: [/bin/sh, -c, \"exec sleep 1000000\"]\nstartup-window: 100ms\nlog: inherit\n"
      try Files.write(yaml, to: scratch.path + "/config/services/heir.yaml")
      let directories = "--config \(scratch.path)/config --state \(scratch.path)/state --runtime \(scratch.path)/run"
      let process = try Process([
        "/bin/sh", "-c", "exec \(Place.products)/guardian \(directories) <&- >&- 2>&-",
      ])
      defer { kill(process.pid, SIGTERM) }
      let control = [Place.products + "/guardianctl", "--runtime", scratch.path + "/run", "--json", "status", "heir"]
      let pid = try await eventually("the service settles", seconds: 20) { () -> Int32? in
        guard process.poll() == nil else { throw Failure("guardian ended") }
        let told = try await run(control)
        guard told.code == 0 else { return nil }
        return try JSON(told.output)["services"].array.first?["pid"].int.map { Int32($0) }
      }
      for owner in [process.pid, pid] {
        for number in 0...2 {
          var buffer = [UInt8](repeating: 0, count: 4_096)
          let length = readlink("/proc/\(owner)/fd/\(number)", &buffer, buffer.count)
          #expect(String(decoding: buffer.prefix(max(0, length)), as: UTF8.self) == "/dev/null", "fd \(number)")
        }
      }
      kill(process.pid, SIGTERM)
      #expect(try await process.wait() == 0)
    }

    @Test(.enabled(if: Files.exists("/dev/full"), "not shown: needs /dev/full"))
    func `an answer of guardian itself that does not get out is a failure`() async throws {
      let scratch = try Scratch()
      for name in ["config", "config/services"] { _ = try scratch.directory(name) }
      try Files.write(Self.sleeper, to: scratch.path + "/config/services/good.yaml")
      let here = ["--config", scratch.path + "/config"]
      for arguments in [
        ["--help"], ["--version"], here + ["--check"], here + ["--check", "--json"], here + ["--plan", "good"],
      ] {
        let process = try Process([Place.products + "/guardian"] + arguments, output: "/dev/full")
        #expect(try await process.wait() == 1, "\(arguments)")
      }
    }

    @Test(arguments: [
      ["guardian", "\u{1b}[31m"], ["guardian", "--bogus\u{1b}[31m"], ["guardian", "--schema", "\u{1b}[31m"],
      ["guardian", "--plan", "\u{1b}[31m"], ["guardian", "--explain", "\u{1b}[31m"],
      ["guardian", "--plan", "x", "--cause", "\u{1b}[31m"], ["guardian", "--check=\u{1b}[31m"],
      ["guardian-sim", "\u{1b}[31m"], ["guardian-sim", "--seed", "\u{1b}[31m"],
      ["guardian-sim", "--seeds", "\u{1b}[31m"], ["guardian-sim", "--hours", "\u{1b}[31m"],
      ["guardian-sim", "--bug", "\u{1b}[31m"], ["guardian-check", "\u{1b}[31m"], ["guardian-logger", "\u{1b}[31m"],
      ["guardian-logger", "--compress", "\u{1b}[31m"],
    ])
    func `a terminal obeys nothing of a command line that is refused`(_ words: [String]) async throws {
      let told = try await run([Place.products + "/" + words[0]] + words.dropFirst())
      #expect(told.code != 0 && told.code < 128, "\(told)")
      for byte in (told.output + told.error).utf8 { #expect(byte >= 0x20 || byte == 0x0a, "\(told)") }
    }

    @Test func `a command that cannot be run did not end after any time`() async throws {
      let scratch = try Scratch()
      try Files.write("no program", to: scratch.path + "/text", mode: 0o644)
      let guardian = try await Guardian(
        scratch, services: ["text": "command: [\(scratch.path)/text]\nlog: none\nbackoff: {first: 1h, max: 1h}\n"])
      try await guardian.wait(for: "text", "backs off") { $0["phase"].string == "backing-off" }
      let told = try await guardian.control("status", "text")
      #expect(told.output.contains("it is not executable"), "\(told)")
      for words in ["after 0s", "after less than"] { #expect(!told.output.contains(words), "\(told)") }
      try await guardian.stop()
    }

    @Test func `status tells which repairs were made and what came of them`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "sick": """
          command: [/bin/sh, -c, "test -e \(scratch.path)/cured && exec sleep 1000000; exit 1"]
          startup-window: 100ms
          log: none
          backoff: {first: 0s}
          escalation: {restart: 1, repair: 1}
          repair:
            - {name: useless, run: [/bin/sh, -c, "exit 3"]}
            - {name: cure, run: [/bin/touch, \(scratch.path)/cured]}
          """
        ])
      try await guardian.wait(for: "sick", "settles") { $0["settled"].bool == true }
      let told = try await guardian.control("status", "sick")
      #expect(told.output.contains("repairs, round 1: useless failed: exit 3, cure done"), "\(told)")
      try await guardian.stop()
    }

    @Test func `a second guardian on the same directories is told who holds them, and touches nothing`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["good": Self.sleeper])
      let before = try await guardian.wait(for: "good", "settles") { $0["settled"].bool == true }
      let second = try await run([
        Place.products + "/guardian", "--config", scratch.path + "/config", "--state", scratch.path + "/state",
        "--runtime", scratch.path + "/run", "--logs", scratch.path + "/logs",
      ])
      #expect(second.code == 1 && second.error.contains("\(guardian.process.pid)"), "\(second)")
      #expect(try await guardian.status("good")["run"] == before["run"])
      try await guardian.stop()
    }

    @Test
    func `B1, B3: garbage, an endless request and one who never reads get an error on their own connection alone`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["good": Self.sleeper])
      try await guardian.wait(for: "good", "settles") { $0["settled"].bool == true }
      let path = guardian.runtime + "/control.sock"
      // Bytes of no meaning, the same in each run.
      var state: UInt64 = 42
      let garbage = (0..<4_096).map { _ in
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return UInt8(truncatingIfNeeded: state >> 33)
      }
      let request = Array(#"{"method":"io.guardian.Supervisor.List","more":true}"#.utf8) + [0]
      for bytes in [
        garbage, [UInt8](repeating: UInt8(ascii: "["), count: 1 << 20), Array(#"{"method":"#.utf8),
        Array(repeatElement(request, count: 10_000).joined()),
      ] {
        let fd = try connect(path)
        defer { close(fd) }
        _ = send(fd, bytes, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
        #expect(try await guardian.control("status", seconds: 10).code == 0)
      }
      try await guardian.stop()
    }

    @Test
    func `CASES 71: notify datagrams of no use, from none to 65,536 bytes, are dropped; the next good one counts`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["quiet": Self.sleeper + "ready: notify\n"])
      let path = guardian.runtime + "/notify/quiet"
      try await eventually("the notify socket is there") { Files.exists(path) ? () : nil }
      let sizes = [0, 1, 4_096, 4_097, 65_536].map { String(repeating: "X", count: $0) }
      let odd = ["READY", "READY=2\nSTATUS=", "\u{0}\u{1}=\n\n==", String(repeating: "\u{0}", count: 4_097)]
      for datagram in sizes + odd + [String(repeating: "A=1\n", count: 10_000)] { try sendDatagram(datagram, to: path) }
      // A queue holds few; whoever sends waits for room, so that a hundred more have been read in part by now.
      for _ in 0..<100 { try sendDatagram("", to: path) }
      try await Task.sleep(for: .milliseconds(200))
      #expect(try await guardian.status("quiet")["phase"].string == "starting")
      #expect(isAlive(guardian.process.pid))
      // However many there were.
      let said = guardian.log.split(separator: "\n").count { $0.contains("quiet: dropped") }
      #expect(said <= 3, "\(guardian.log)")
      try sendDatagram("STATUS=at your service\nREADY=1\n", to: path)
      let ready = try await guardian.wait(for: "quiet", "settles") { $0["settled"].bool == true }
      #expect(ready["status_text"].string == "at your service", "\(ready)")
      try await guardian.stop()
    }

    private func withAddress<R>(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> R) throws -> R {
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      let bytes = Array(path.utf8)
      guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else { throw Failure("too long: \(path)") }
      withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
      return withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
      }
    }

    private func connect(_ path: String) throws -> Int32 {
      let fd = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
      guard fd >= 0, try withAddress(path, { Glibc.connect(fd, $0, $1) }) == 0 else { throw Failure.errno(path) }
      return fd
    }

    private func sendDatagram(_ text: String, to path: String) throws {
      let fd = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
      guard fd >= 0 else { throw Failure.errno("socket") }
      defer { close(fd) }
      let bytes = Array(text.utf8)
      let sent = try withAddress(path) { sendto(fd, bytes, bytes.count, Int32(MSG_NOSIGNAL), $0, $1) }
      guard sent == bytes.count else { throw Failure.errno("sendto \(path)") }
    }
  }
}
