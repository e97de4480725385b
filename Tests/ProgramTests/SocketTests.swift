import Glibc
import Testing

extension Programs {
  /// Sockets that a service manager passed to guardian go on to the services that name them.
  @Suite struct `sockets that were passed to guardian` {
    /// As systemd does it: descriptors from 3 on, and the pid of whoever is executed.
    private func wrapper(_ scratch: Scratch, names: [String]) throws -> [String] {
      let path = scratch.path + "/activate"
      var script = "#!/bin/bash\n"
      for (index, name) in names.enumerated() {
        try Files.write("content of \(index) \(name)\n", to: "\(scratch.path)/socket\(index)")
        script += "exec \(3 + index)<>'\(scratch.path)/socket\(index)'\n"
      }
      script += "export LISTEN_PID=$$ LISTEN_FDS=\(names.count) LISTEN_FDNAMES=\(names.joined(separator: ":"))\n"
      script += "exec \"$@\"\n"
      try Files.write(script, to: path, mode: 0o755)
      return [path]
    }

    private func tells(_ scratch: Scratch, _ rest: String) -> String {
      """
      command: [/bin/bash, -c, "{ echo \\"$LISTEN_PID $$ $LISTEN_FDS $LISTEN_FDNAMES\\"; for n in 3 4 5; do readlink /proc/$$/fd/$n; done; } >\(scratch.path)/$NAME.$$; mv \(scratch.path)/$NAME.$$ \(scratch.path)/$NAME; exec sleep 1000000"]
      startup-window: 100ms
      log: none
      \(rest)

      """
    }

    @Test func `go by name to those who name them, with their own pid, and stay over an upgrade`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "one": tells(scratch, "sockets: [http]\nenvironment: {NAME: one}"),
          "two": tells(scratch, "sockets: [metrics, http]\nenvironment: {NAME: two}"),
          "none": tells(scratch, "environment: {NAME: none}"),
        ], wrappedIn: wrapper(scratch, names: ["http", "metrics", "http"]))
      func settled() async throws {
        for name in ["one", "two", "none"] {
          try await guardian.wait(for: name, "settles") { $0["settled"].bool == true }
        }
      }
      func check() async throws {
        try await settled()
        let pid = try #require(try await guardian.status("one")["pid"].int)
        #expect(
          try Files.read(scratch.path + "/one")
            == "\(pid) \(pid) 2 http:http\n\(scratch.path)/socket0\n\(scratch.path)/socket2\n")
        let other = try #require(try await guardian.status("two")["pid"].int)
        #expect(
          try Files.read(scratch.path + "/two")
            == "\(other) \(other) 3 metrics:http:http\n\(scratch.path)/socket1\n\(scratch.path)/socket0\n"
            + "\(scratch.path)/socket2\n")
        let third = try #require(try await guardian.status("none")["pid"].int)
        #expect(try Files.read(scratch.path + "/none") == " \(third)  \n")
      }
      try await check()
      #expect(!guardian.log.contains("no socket"), "\(guardian.log)")
      #expect(try await guardian.control("upgrade").code == 0)
      for name in ["one", "two", "none"] {
        unlink(scratch.path + "/" + name)
        #expect(try await guardian.control("restart", name).code == 0)
      }
      try await check()
      try await guardian.stop()
    }

    @Test func `a name that was not passed is told when the file is read and at each start`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": tells(scratch, "sockets: [htp]\nbackoff: {first: 1h, max: 2h}")],
        wrappedIn: wrapper(scratch, names: ["http"]))
      #expect(
        guardian.log.contains("no socket 'htp' was passed to guardian; there is http; did you mean 'http'?"),
        "\(guardian.log)")
      let web = try await guardian.wait(for: "web", "fails") { $0["last_end"]["cause"].string == "exec" }
      #expect(
        web["reason"].string?.contains("no socket 'htp' was passed to guardian, only http") == true, "\(web)")
      #expect(!Files.exists(scratch.path + "/web"))
      // Offline nobody can know, and nothing is said.
      let check = try await run([Place.products + "/guardian", "--config", scratch.path + "/config", "--check"])
      #expect(!check.output.contains("socket"), "\(check)")
      try await guardian.stop()
    }
  }
}
