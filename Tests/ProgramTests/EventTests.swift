import Glibc
import Testing

extension Programs {
  @Suite struct `events` {
    private let dying = "command: [/bin/sh, -c, exit 3]\nbackoff: {first: 30s}\nlog: none\n"

    private func events(_ guardian: Guardian, _ more: String...) async throws -> [JSON] {
      let answer = try await run(guardian.controlling + ["--json", "events"] + more)
      #expect(answer.code == 0, "\(answer)")
      return try JSON(answer.output)["events"].array
    }
    private func lines(_ path: String) throws -> [JSON] {
      try Files.read(path).split(separator: "\n").map { try JSON(String($0)) }
    }

    @Test func `are told once, in order, with their facts, and are the same after guardian was killed`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["x": dying, "y": dying])
      let all = try await eventually("both back off") {
        let all = try await events(guardian)
        return all.filter { $0["name"].string == "backing-off" }.count == 2 ? all : nil
      }
      let ids = all.compactMap(\.["id"].string)
      #expect(ids.count == all.count && ids == ids.sorted() && Set(ids).count == ids.count)
      let mine = try await events(guardian, "x")
      #expect(mine.map { $0["name"].string } == ["started", "ended", "strike", "backing-off"], "\(mine)")
      let ended = try #require(mine.first { $0["name"].string == "ended" })
      #expect(ended["details"]["cause"].string == "exit" && ended["details"]["code"].int == 3, "\(ended)")
      #expect(ended["details"]["run"].string == mine.first?["details"]["run"].string)
      let strike = try #require(mine.first { $0["name"].string == "strike" })
      #expect(strike["details"]["strikes"].int == 1 && strike["details"]["step"].string == "restart")

      guardian.kill()
      try await guardian.startAgain()
      let after = try await events(guardian)
      #expect(Array(after.prefix(all.count)) == all)
      let later = after.dropFirst(all.count).compactMap(\.["id"].string)
      #expect(later.allSatisfy { $0 > ids.last ?? "" })
      let last = try #require(ids.last)
      #expect(try await events(guardian, "--since", last).count == later.count)
      #expect(try await run(guardian.controlling + ["events", "nobody"]).code == 4)
      try await guardian.stop()
    }

    @Test func `are followed as they happen, over an upgrade of guardian, until it ends`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["x": dying, "y": dying])
      let output = scratch.path + "/followed"
      let follower = try Process(guardian.controlling + ["--json", "events", "--follow", "x"], output: output)
      func followed(_ name: String, _ count: Int = 1) async throws {
        try await eventually("\(count) times \(name) is followed") {
          try lines(output).filter { $0["name"].string == name }.count >= count ? () : nil
        }
      }
      try await followed("backing-off")
      _ = try await guardian.control("reset", "y")
      _ = try await guardian.control("reset", "x")
      try await followed("reset")
      #expect(try await guardian.control("upgrade").code == 0)
      _ = try await guardian.control("reset", "x")
      try await followed("reset", 2)
      let told = try lines(output)
      #expect(told.allSatisfy { $0["service"].string == "x" })
      let ids = told.compactMap(\.["id"].string)
      #expect(ids == ids.sorted() && Set(ids).count == ids.count, "\(ids)")
      #expect(try await events(guardian, "x").compactMap(\.["id"].string) == ids)
      try await guardian.stop()
      #expect(try await follower.wait() == 6)
    }

    /// GUARDIAN_FOLLOWERS=1000 is the long form.
    @Test func `B3: a crowd of followers hears each event, and one that never reads holds up nobody`() async throws {
      let count = getenv("GUARDIAN_FOLLOWERS").flatMap { Int(String(cString: $0)) } ?? 50
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["x": dying])
      let call = #"{"method":"io.guardian.Supervisor.Events","parameters":{"follow":true},"more":true}"# + "\0"
      var sockets: [Int32] = []
      defer { for socket in sockets { close(socket) } }
      for _ in 0..<count {
        let socket = try connectTo(guardian.runtime + "/control.sock")
        sockets.append(socket)
        try #require(Glibc.send(socket, call, call.utf8.count, Int32(MSG_NOSIGNAL)) == call.utf8.count)
      }
      // Each is told of the past first: then it follows.
      for socket in sockets { try #require(received(socket, until: "\0")) }
      let start = clock()
      for _ in 0..<5 { #expect(try await guardian.control("reset", "x").code == 0) }
      // The first of them has not read and does not.
      for socket in sockets.dropFirst() { #expect(received(socket, until: "reset", times: 5)) }
      #expect(clock() - start < 10)
      #expect(try await guardian.control("status", "x").code == 1)
      try await guardian.stop()
    }

    private func clock() -> Int {
      var now = timespec()
      clock_gettime(CLOCK_MONOTONIC, &now)
      return now.tv_sec
    }
    private func connectTo(_ path: String) throws -> Int32 {
      let made = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
      guard made >= 0 else { throw Failure.errno("socket") }
      var name = sockaddr_un()
      name.sun_family = sa_family_t(AF_UNIX)
      withUnsafeMutableBytes(of: &name.sun_path) { room in room.copyBytes(from: path.utf8.prefix(room.count - 1)) }
      let result = withUnsafePointer(to: &name) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          connect(made, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
      }
      guard result == 0 else {
        close(made)
        throw Failure.errno(path)
      }
      return made
    }
    /// Reads until `text` has come so often, ten seconds at most.
    private func received(_ socket: Int32, until text: String, times: Int = 1) -> Bool {
      let end = clock() + 10
      var all: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 16_384)
      while clock() < end {
        var ready = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
        if poll(&ready, 1, 1000) == 1 {
          let count = recv(socket, &buffer, buffer.count, 0)
          if count <= 0 { return false }
          all += buffer[..<count]
        }
        let heard = String(decoding: all, as: UTF8.self)
        let found = text == "\0" ? (all.contains(0) ? 1 : 0) : heard.components("\"name\":\"\(text)\"")
        if found >= times { return true }
      }
      return false
    }
  }
}

extension Guardian {
  fileprivate var controlling: [String] { [Place.products + "/guardianctl", "--runtime", runtime] }
}

extension String {
  /// How often `part` is in it.
  fileprivate func components(_ part: String) -> Int { ranges(of: part).count }
}
