import Glibc
import Testing

/// What stands in for journald: a socket for streams, and one for records.
private final class FakeJournal {
  let streams: String, records: String
  private var listener: Int32 = -1
  private var record: Int32 = -1
  private(set) var accepted: [Int32] = []

  init(_ scratch: Scratch) {
    streams = scratch.path + "/journal-stdout"
    records = scratch.path + "/journal-socket"
  }
  deinit {
    closeStreams()
    stop()
  }

  var environment: [String: String] {
    ["GUARDIAN_JOURNAL_STREAM": streams, "GUARDIAN_JOURNAL_RECORDS": records]
  }

  func start(backlog: Int32 = 64) throws {
    listener = try Self.bound(streams, Int32(SOCK_STREAM.rawValue))
    guard listen(listener, backlog) == 0 else { throw Failure.errno("listen") }
  }
  func startRecords() throws { record = try Self.bound(records, Int32(SOCK_DGRAM.rawValue)) }
  func stop() {
    if listener >= 0 { close(listener) }
    if record >= 0 { close(record) }
    unlink(streams)
    unlink(records)
    listener = -1
    record = -1
  }
  func closeStreams() {
    for stream in accepted { close(stream) }
    accepted = []
  }

  /// Takes in who waits.
  func accept() -> Int32? {
    let made = Glibc.accept(listener, nil, nil)
    if made < 0 { return nil }
    _ = fcntl(made, F_SETFL, O_NONBLOCK)
    accepted.append(made)
    return made
  }
  /// All that has come by now.
  static func text(_ socket: Int32) -> String {
    var bytes = [UInt8](repeating: 0, count: 65_536), text: [UInt8] = []
    while true {
      let got = recv(socket, &bytes, bytes.count, Int32(MSG_DONTWAIT))
      if got <= 0 { return String(decoding: text, as: UTF8.self) }
      text += bytes[..<got] + [10]
    }
  }
  func recordText() -> String { Self.text(record) }

  static func bound(_ path: String, _ kind: Int32) throws -> Int32 {
    unlink(path)
    let made = socket(AF_UNIX, kind | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
    let answer = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(made, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard answer == 0 else { throw Failure.errno(path) }
    return made
  }
}

extension Programs {
  @Suite struct `output to the journal` {
    /// Says a word again and again, and lives on where nobody takes it.
    private let talker = """
      command: [/bin/sh, -c, "while :; do echo word; sleep 0.02; done"]
      log: journal
      """

    @Test func `a stream for each run, under the service's name and with priority 6; the service never dies of it`()
      async throws
    {
      let scratch = try Scratch()
      let journal = FakeJournal(scratch)
      try journal.start()
      // A shell does not end for a write that fails.
      let guardian = try await Guardian(scratch, services: ["web": talker], environment: journal.environment)
      let stream = try await eventually("there is a stream") { journal.accept() }
      try await eventually("it has its header and a line") {
        let text = FakeJournal.text(stream)
        return text.hasPrefix("web\n\n6\n1\n0\n0\n0\n") ? () : nil
      }
      let before = try await guardian.status("web")
      #expect(before["log"].string == "journal")
      // journald starts again: nobody reads any more, and whoever writes gets an error instead of a signal.
      journal.closeStreams()
      let after = try await guardian.wait(for: "web", "is degraded") { $0["log"].string == "degraded" }
      #expect(after["pid"] == before["pid"])
      #expect(guardian.log.contains("the journal closed the stream of web"))
      // The next run has one of its own.
      #expect(try await guardian.control("restart", "web").code == 0)
      _ = try await eventually("there is another stream") { journal.accept() }
      #expect(try await guardian.status("web")["log"].string == "journal")
      try await guardian.stop()
    }

    @Test func `E13: where it is absent, inherits and says so, and takes it when it is there`() async throws {
      let scratch = try Scratch()
      let journal = FakeJournal(scratch)
      let guardian = try await Guardian(scratch, services: ["web": talker], environment: journal.environment)
      try await guardian.wait(for: "web", "is degraded") { $0["log"].string == "degraded" }
      try await eventually("its words are guardian's") { guardian.log.contains("\nword\n") ? () : nil }
      try journal.start()
      #expect(try await guardian.control("restart", "web").code == 0)
      _ = try await eventually("there is a stream") { journal.accept() }
      #expect(try await guardian.status("web")["log"].string == "journal")
      try await guardian.stop()
    }

    @Test func `CASES 41, E13: at the limit of streams, or stopped, a start falls back at once and says so`()
      async throws
    {
      let scratch = try Scratch()
      let journal = FakeJournal(scratch)
      try journal.start(backlog: 0)
      let guardian = try await Guardian(
        scratch, services: ["web": talker + "\nstart: manual\n"], environment: journal.environment)
      // A journald that is stopped accepts nobody: what may wait outside is full.
      var waiting: [Int32] = []
      defer { for socket in waiting { close(socket) } }
      full: for _ in 0..<64 {
        let made = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        waiting.append(made)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: journal.streams.utf8) }
        let answer = withUnsafePointer(to: &address) {
          $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(made, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
          }
        }
        if answer != 0 { break full }
      }
      let clock = ContinuousClock()
      let began = clock.now
      #expect(try await guardian.control("start", "web").code == 0)
      #expect(clock.now - began < .seconds(5))
      #expect(try await guardian.status("web")["log"].string == "degraded")
      // One at its limit takes the connection and closes it.
      for socket in waiting { close(socket) }
      waiting = []
      while journal.accept() != nil {}
      journal.closeStreams()
      #expect(try await guardian.control("restart", "web").code == 0)
      _ = try await eventually("it is taken in") { journal.accept() }
      journal.closeStreams()
      try await guardian.wait(for: "web", "is degraded") { $0["log"].string == "degraded" }
      try await guardian.stop()
    }

    @Test func `E13: one that never reads holds up who writes, and not guardian`() async throws {
      let scratch = try Scratch()
      let journal = FakeJournal(scratch)
      try journal.start()
      let guardian = try await Guardian(
        scratch, services: ["web": "command: [/usr/bin/seq, \"1000000000\"]\nlog: journal\n"],
        environment: journal.environment)
      let stream = try await eventually("there is a stream") { journal.accept() }
      let pid = try #require(try await guardian.status("web")["pid"].int)
      _ = stream
      for _ in 0..<3 { #expect(try await guardian.control("status", seconds: 5).code <= 1) }
      #expect(try await guardian.status("web")["pid"].int == pid)
      #expect(try await guardian.control("stop", "web", seconds: 20).code == 0)
      try await guardian.stop()
    }

    @Test func `CASES 40, E13: guardian's own records go on when the journal is back, and how many were lost is said`()
      async throws
    {
      let scratch = try Scratch()
      let journal = FakeJournal(scratch)
      try journal.startRecords()
      // Under a service manager standard error leads to the journal, and the environment says so.
      let guardian = try await Guardian(
        scratch, services: ["web": "command: [/bin/sleep, \"1000\"]\nlog: none\n"], environment: journal.environment,
        wrappedIn: [
          "/bin/sh", "-c", "JOURNAL_STREAM=$(stat -L -c %d:%i /dev/stderr) exec \"$@\"", "sh",
        ])
      try await eventually("a record comes") { journal.recordText().contains("web: started") ? () : nil }
      journal.stop()
      for _ in 0..<3 { #expect(try await guardian.control("restart", "web").code == 0) }
      #expect(try await guardian.control("status").output.contains("log records were lost"))
      try journal.startRecords()
      #expect(try await guardian.control("restart", "web").code == 0)
      var text = ""
      try await eventually("what was lost is told") {
        text += journal.recordText()
        return text.contains("records were lost: nobody read them") && text.contains("web: started") ? () : nil
      }
      try await guardian.stop()
    }
  }

  @Suite struct `guardian's own output as that of services` {
    @Test(arguments: ["a pipe", "a terminal", "a socket", "closed"])
    func `CASES 38: whatever it is, services are started and can write, or guardian says that they cannot`(
      _ kind: String
    )
      async throws
    {
      let scratch = try Scratch()
      let wrapper: [String] =
        switch kind {
        case "a pipe": ["/bin/sh", "-c", "{ exec \"$@\"; } 2>&1 | cat >>'\(scratch.path)/out'", "sh"]
        case "a terminal": []
        case "a socket":
          [
            Place.program("python3") ?? "/usr/bin/python3", "-c",
            """
            import os, socket, sys
            a, b = socket.socketpair()
            if os.fork() == 0:
              b.close()
              out = open(sys.argv[1], "ab", buffering=0)
              while True:
                got = a.recv(65536)
                if not got: os._exit(0)
                out.write(got)
            a.close()
            os.dup2(b.fileno(), 1); os.dup2(b.fileno(), 2); b.close()
            os.execv(sys.argv[2], sys.argv[2:])
            """, "\(scratch.path)/out",
          ]
        default: ["/bin/sh", "-c", "exec \"$@\" >&- 2>&-", "sh"]
        }
      guard kind != "a terminal" else { return try await terminal(scratch) }
      let guardian = try await Guardian(
        scratch, services: ["web": "command: [/bin/sh, -c, \"echo hello; exec sleep 1000\"]\nlog: inherit\n"],
        wrappedIn: wrapper)
      let status = try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      #expect(status["log"].string == "inherit")
      if kind != "closed" {
        try await eventually("its words are there") {
          (try? Files.read(scratch.path + "/out").contains("hello")) == true ? () : nil
        }
      }
      // Of a pipeline the shell is the process of the test.
      let below = children(of: guardian.process.pid)
      let named = below.first { (try? Files.read("/proc/\($0)/comm")) == "guardian\n" }
      let pid = kind == "a pipe" ? try #require(named) : guardian.process.pid
      Glibc.kill(pid, SIGTERM)
      #expect(try await guardian.process.wait() == 0)
    }

    private func terminal(_ scratch: Scratch) async throws {
      let master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
      var locked: Int32 = 0, number: Int32 = -1
      // TIOCSPTLCK and TIOCGPTN, which are not imported.
      try #require(master >= 0 && ioctl(master, 0x4004_5431, &locked) == 0 && ioctl(master, 0x8004_5430, &number) == 0)
      defer { close(master) }
      let name = "/dev/pts/\(number)"
      let guardian = try await Guardian(
        scratch, services: ["web": "command: [/bin/sh, -c, \"echo hello; exec sleep 1000\"]\nlog: inherit\n"],
        wrappedIn: ["/bin/sh", "-c", "exec \"$@\" >'\(name)' 2>&1", "sh"])
      try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      _ = fcntl(master, F_SETFL, O_NONBLOCK)
      var text = ""
      try await eventually("its words are there") {
        var bytes = [UInt8](repeating: 0, count: 4_096)
        let got = read(master, &bytes, bytes.count)
        if got > 0 { text += String(decoding: bytes[..<got], as: UTF8.self) }
        return text.contains("hello") ? () : nil
      }
      try await guardian.stop()
    }
  }
}
