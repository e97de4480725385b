import Glibc
import Testing

extension PatientPrograms {
  @Suite struct `the demonstration of make run` {
    @Test func `shows every step of the ladder to an ordinary user, settles within a minute, and leaves nothing`()
      async throws
    {
      let scratch = try Scratch()
      // A copy that an ordinary user can reach, wherever this repository lies.
      for item in [
        "\(Place.repository)/etc/demonstration", "\(Place.products)/guardian", "\(Place.products)/guardianctl",
      ] {
        #expect(try await run(["/bin/cp", "-RL", item, scratch.path]).code == 0)
      }
      let temporary = try scratch.directory("tmp")
      let user = isRoot ? User.nobody : nil
      if let user { scratch.give(temporary, to: user) }
      let output = scratch.path + "/output"
      let shown = try Process(
        Guardian.command(as: user) + ["/bin/sh", scratch.path + "/demonstration/run", scratch.path],
        environment: ["TMPDIR": temporary, "NO_COLOR": "1"], output: output, ownGroup: true)
      func text() -> String { (try? Files.read(output)) ?? "" }
      do {
        try await eventually("the demonstration settles", seconds: 60) {
          if let code = shown.poll() { throw Failure("it ended with \(code)") }
          return text().contains("everything has found its place") ? () : nil
        }
        try await eventually("it shows the status") { text().contains("Ctrl-C ends it all.\n", times: 2) ? () : nil }
      } catch {
        Issue.record("\(error); it wrote: \(text())")
        kill(-shown.pid, SIGTERM)
        _ = try await shown.wait()
        return
      }

      // The hint that it prints works, and tells what the demonstration promised.
      let line = try #require(text().split(separator: "\n").first { $0.contains("guardianctl --runtime") })
      let runtime = try #require(line.split(separator: " ").drop { $0 != "--runtime" }.dropFirst().first)
      func status(_ name: String) async throws -> JSON {
        let answer = try await run(
          Guardian.command(as: user)
            + [Place.products + "/guardianctl", "--runtime", String(runtime), "--json", "status", name])
        return try JSON(answer.output)["services"].array.first ?? .null
      }
      let steady = try await status("steady"), photos = try await status("photos"), shop = try await status("shop")
      let doomed = try await status("doomed")
      #expect(steady["settled"].bool == true && steady["restarts"].int == 0, "\(steady)")
      #expect(photos["settled"].bool == true && photos["step"].string == "repair", "\(photos)")
      #expect(
        shop["degraded"].bool == true && shop["disabled_plugins"].array == [.string("recommendations")], "\(shop)")
      #expect(doomed["phase"].string == "quarantined" && doomed["next"]["action"].string == "trial", "\(doomed)")

      kill(-shown.pid, SIGINT)  // what a terminal sends on Ctrl-C
      let code = try await shown.wait(seconds: 20)
      #expect(code == 0, "it wrote: \(text())")
      #expect(Files.names(in: temporary) == [])
      #expect(processes { _, _, line in line.contains(temporary) } == [])
    }
  }
}

extension String {
  func contains(_ part: String, times: Int) -> Bool {
    var rest = self[...], found = 0
    while let range = rest.firstRange(of: part) {
      found += 1
      rest = rest[range.upperBound...]
    }
    return found >= times
  }
}
