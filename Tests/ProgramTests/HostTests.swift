import Glibc
import Testing

extension Programs {
  /// Guardian below a service manager, played by the test where the order of words counts.
  @Suite struct `its host` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    /// The socket of a service manager.
    private final class Manager {
      let path: String
      private let socket: Int32
      init(_ path: String) throws {
        self.path = path
        socket = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        let fits = withUnsafeMutableBytes(of: &address.sun_path) { place in
          guard bytes.count < place.count else { return false }
          place.copyBytes(from: bytes)
          return true
        }
        let bound = withUnsafePointer(to: &address) {
          $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
          }
        }
        guard socket >= 0, fits, bound == 0 else { throw Failure.errno(path) }
      }
      deinit { close(socket) }

      /// The lines of the next message that has come; nil: none has.
      func next() -> [String]? {
        var buffer = [UInt8](repeating: 0, count: 8_192)
        let count = recv(socket, &buffer, buffer.count, 0)
        guard count >= 0 else { return nil }
        return String(decoding: buffer.prefix(count), as: UTF8.self).split(separator: "\n").map(String.init)
      }

      /// Waits for a message with this line, and gives those before it too.
      func hears(_ line: String) async throws -> [[String]] {
        var heard: [[String]] = []
        return try await eventually("the manager is told \(line), after \(heard)") {
          while let message = next() {
            heard.append(message)
            if message.contains(line) { return heard }
          }
          return nil
        }
      }
    }

    private func microseconds() -> Int {
      var time = timespec()
      clock_gettime(CLOCK_MONOTONIC, &time)
      return time.tv_sec * 1_000_000 + time.tv_nsec / 1000
    }

    @Test
    func
      `K1: READY only with the socket and the first load; RELOADING with its time, READY when it is in force; STOPPING`()
      async throws
    {
      let scratch = try Scratch()
      for directory in ["config", "config/services", "state", "run"] { _ = try scratch.directory(directory) }
      let services = scratch.path + "/config/services/"
      for number in 0..<100 { try Files.write(Self.sleeper, to: services + "s\(number).yaml") }
      let manager = try Manager(scratch.path + "/above")
      let guardian = try Process(
        [
          Place.products + "/guardian", "--config", scratch.path + "/config", "--state", scratch.path + "/state",
          "--runtime", scratch.path + "/run",
        ], environment: ["NOTIFY_SOCKET": manager.path], output: scratch.path + "/log")
      func control(_ arguments: String...) async throws -> (code: Int32, output: String, error: String) {
        try await run([Place.products + "/guardianctl", "--runtime", scratch.path + "/run"] + arguments)
      }
      // Looked for all the time, so that a word that came too soon would be heard too soon.
      let deadline = ContinuousClock().now + .seconds(30)
      var before: [String] = []
      while true {
        if let message = manager.next() {
          if message.contains("READY=1") { break }
          before += message
        }
        try #require(ContinuousClock().now < deadline, "never ready: \(before)")
        usleep(500)
      }
      #expect(Files.exists(scratch.path + "/run/control.sock"))
      let seen = try JSON(try await control("--json", "status").output)["services"].array
      #expect(seen.count == 100 && seen.allSatisfy { $0["phase"].string != "stopped" && $0["wanted"].string == "up" })
      #expect(before.first == "EXTEND_TIMEOUT_USEC=300000000", "a long load is no reason to give up: \(before)")

      try Files.write(Self.sleeper, to: services + "new.yaml")
      let asked = microseconds()
      kill(guardian.pid, SIGHUP)
      let reloading = try #require(try await manager.hears("RELOADING=1").last)
      let line = try #require(reloading.first { $0.hasPrefix("MONOTONIC_USEC=") })
      let stamp = try #require(Int(line.dropFirst("MONOTONIC_USEC=".count)))
      #expect(asked <= stamp && stamp <= microseconds(), "\(reloading)")
      _ = try await manager.hears("READY=1")
      #expect(try await control("status", "new").code <= 1, "it is in force")

      kill(guardian.pid, SIGTERM)
      _ = try await manager.hears("STOPPING=1")
      _ = try await manager.hears("EXTEND_TIMEOUT_USEC=15000000")
      #expect(try await guardian.wait() == 0)
    }

    @Test func `K5: neither SIGHUP nor a second SIGTERM calls a shutdown off, or starts anything`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "deaf": """
          command: [/bin/bash, -c, "trap '' TERM INT HUP; while :; do sleep 0.05; done"]
          stop: {timeout: 2s}
          startup-window: 100ms
          log: none
          """
        ])
      let before = try await guardian.wait(for: "deaf", "settles") { $0["settled"].bool == true }
      try guardian.configure("new", Self.sleeper)
      kill(guardian.process.pid, SIGTERM)
      try await eventually("it is stopping") { guardian.log.contains("stopping everything") ? () : nil }
      for signal in [SIGHUP, SIGTERM, SIGINT, SIGHUP, SIGTERM] {
        kill(guardian.process.pid, signal)
        try await Task.sleep(for: .milliseconds(50))
      }
      #expect(isAlive(Int32(try #require(before["pid"].int))), "its patience is not cut short either")
      let order = try await guardian.control("start", "deaf")
      #expect(order.code == 1 && (order.output + order.error).contains("going down"), "\(order)")
      #expect(try await guardian.process.wait() == 0)
      let log = guardian.log
      #expect(log.contains("again: already stopping"), "\(log)")
      #expect(!log.contains("new: started") && log.components(of: "deaf: started") == 1, "\(log)")
      #expect(!isAlive(Int32(try #require(before["pid"].int))))
    }
  }
}

extension String {
  fileprivate func components(of text: String) -> Int {
    split(separator: "\n").count { $0.contains(text) }
  }
}
