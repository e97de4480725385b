import Glibc
import Testing

/// One request on a connection of its own: sent at once, answered when guardian likes.
private final class Asked {
  private let descriptor: Int32
  private var bytes: [UInt8] = []

  init(_ guardian: Guardian, _ method: String, _ parameters: String) throws {
    descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: (guardian.runtime + "/control.sock").utf8) }
    let connected = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard connected == 0 else { throw Failure.errno("connect") }
    let message = Array("{\"method\":\"io.guardian.Supervisor.\(method)\",\"parameters\":\(parameters)}\0".utf8)
    guard send(descriptor, message, message.count, Int32(MSG_NOSIGNAL)) == message.count else {
      throw Failure.errno("send")
    }
  }
  deinit { close(descriptor) }

  /// The one answer; throws where none comes in time.
  func answer(seconds: Int32 = 30) throws -> JSON {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while bytes.last != 0 {
      var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      guard poll(&waiting, 1, seconds * 1000) == 1 else { throw Failure("no answer within \(seconds) s") }
      let count = recv(descriptor, &buffer, buffer.count, 0)
      guard count > 0 else { throw Failure("guardian closed the connection without an answer") }
      bytes += buffer[..<count]
    }
    return try JSON(String(decoding: bytes.dropLast(), as: UTF8.self))
  }
}

private let rounds = getenv("GUARDIAN_ROUNDS").flatMap { Int(String(cString: $0)) }

extension PatientPrograms {
  @Suite struct `orders that come fast` {
    /// Keeps its port for three seconds after TERM: itself, or by a child that it leaves behind.
    static let server = """
      import os, signal, socket, sys, time
      port, child = int(sys.argv[1]), sys.argv[2] == "child"
      listener = socket.socket()
      try:
        listener.bind(("127.0.0.1", port))
      except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(98)
      listener.listen()
      def closing(*_):
        time.sleep(3)
        os._exit(0)
      signal.signal(signal.SIGTERM, closing)
      if child and os.fork() != 0:
        listener.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
      while True:
        time.sleep(1000)
      """

    @Test(.enabled(if: Place.program("python3") != nil, "not shown: needs python3"))
    func `CASES 20: a server that keeps its port for three seconds is started when it is free, each of twenty times`()
      async throws
    {
      let scratch = try Scratch()
      try Files.write(Self.server, to: scratch.path + "/server.py")
      let python = try #require(Place.program("python3"))
      var services: [String: String] = [:]
      for number in 0..<5 {
        services["server\(number)"] = """
          command: ["\(python)", "\(scratch.path)/server.py", "\(try freePort())", "\(number % 2 == 0 ? "self" : "child")"]
          startup-window: 100ms
          log: none
          """
      }
      let guardian = try await Guardian(scratch, services: services)
      for name in services.keys { try await guardian.wait(for: name, "settles") { $0["settled"].bool == true } }
      // Five of them side by side, four times: twenty restarts in a quarter of a minute.
      for _ in 0..<4 {
        let asked = try services.keys.map { try Asked(guardian, "Restart", "{\"name\":\"\($0)\"}") }
        for one in asked { #expect(try one.answer(seconds: 60)["error"].string == nil) }
        for name in services.keys {
          try await guardian.wait(for: name, "settles again") { $0["settled"].bool == true || $0["strikes"].int != 0 }
        }
      }
      for name in services.keys {
        let last = try await guardian.status(name)
        #expect(last["strikes"].int == 0 && last["settled"].bool == true, "\(last)")
        #expect(last["last_end"]["class"].string == "ordered", "no death by an address in use: \(last)")
      }
      #expect(!guardian.log.contains("code 98") && !guardian.log.contains("exit 98"))
      try await guardian.stop(seconds: 60)
    }

    @Test func `CASES 32: down, up, down, up ten milliseconds apart: the last word counts, and each has its answer`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "looper": """
          command: [/bin/sh, -c, "exit 1"]
          escalation: off
          backoff: {first: 30ms, max: 30ms}
          stop: {timeout: 1s}
          log: none
          """
        ])
      let count = rounds ?? 60
      var inOrder = 0
      for round in 0..<count {
        let words = round % 2 == 0 ? ["Stop", "Start", "Stop", "Start"] : ["Start", "Stop", "Start", "Stop"]
        var asked: [Asked] = []
        for word in words {
          asked.append(try Asked(guardian, word, "{\"name\":\"looper\"}"))
          usleep(10_000)
        }
        for (word, one) in zip(words, asked) {
          let answer = try one.answer()
          // Done, or overtaken by a later one; nothing else, and never silence.
          let isDone = answer["parameters"]["name"].string == "looper"
          let isOvertaken = answer["error"].string == "io.guardian.Supervisor.Failed"
          #expect(isDone || isOvertaken, "\(word): \(answer)")
        }
        let list = try Asked(guardian, "List", "{\"names\":[\"looper\"]}").answer()
        let last = try #require(list["parameters"]["services"].array.first)
        // Where this machine has kept guardian waiting, two orders of two clients came to it at the same time.
        let heard = try #require(guardian.log.split(separator: "\n").last { $0.contains(" asked for by ") })
        let up = heard.contains("looper: start asked for by")
        if up == (words[3] == "Start") { inOrder += 1 }
        #expect(last["wanted"].string == (up ? "up" : "down"), "round \(round): \(last)")
        if !up {
          #expect(last["phase"].string == "stopped" && last["pid"].int == nil, "round \(round): \(last)")
        } else {
          #expect(last["phase"].string != "stopped", "round \(round): \(last)")
        }
      }
      #expect(inOrder > count / 2, "\(inOrder) of \(count)")
      try await guardian.stop()
    }

    @Test func `CASES 59: restarts beside reloads all come to an end`() async throws {
      let scratch = try Scratch()
      let yaml = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 1h\nlog: none\n"
      let guardian = try await Guardian(scratch, services: ["one": yaml])
      for round in 0..<(rounds ?? 100) {
        // Each third reload finds something: a policy key, so that it restarts nothing by itself.
        if round % 3 == 0 {
          let path = scratch.path + "/config/services/one.yaml"
          try Files.write(yaml + "description: round \(round)\n", to: path + ".new")
          rename(path + ".new", path)
        }
        let restart = try Asked(guardian, "Restart", "{\"name\":\"one\"}")
        let reload = try Asked(guardian, "Reload", round % 5 == 4 ? "{\"restart\":true}" : "{}")
        #expect(try reload.answer()["parameters"]["services"].int == 1)
        #expect(try restart.answer()["parameters"]["name"].string == "one")
      }
      #expect(try await guardian.status("one")["strikes"].int == 0)
      try await guardian.stop()
    }
  }
}
