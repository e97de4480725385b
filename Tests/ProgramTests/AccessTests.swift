import Glibc
import Testing

extension Programs {
  /// `access:` of guardian.yaml and of services' files, with users whom every Debian has.
  @Suite(.enabled(if: isRoot, "not shown: needs root, to be somebody else")) struct `who may do what` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 50ms\nlog: none\n"

    private func guardianctl(
      _ guardian: Guardian, as uid: Int, groups: String? = nil, _ words: String...
    ) async throws -> (code: Int32, output: String, error: String) {
      let groups = groups.map { ["--groups", $0] } ?? ["--clear-groups"]
      return try await run(
        ["/usr/bin/setpriv", "--reuid", "\(uid)", "--regid", "\(uid)"] + groups + ["--"]
          + [Place.products + "/guardianctl", "--runtime", guardian.runtime] + words)
    }

    @Test
    func
      `J1: is by user and group, of the host and of one service, and a refusal names the grant; a reload changes it`()
      async throws
    {
      // 2 is bin, 5 games, 33 www-data and 34 backup.
      let scratch = try Scratch()
      let host = "access:\n  view: [\"@backup\", no-such-user]\n  operate: [games]\n"
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": Self.sleeper + "access: {operate: [www-data]}\ngroups: [all]\n",
          "db": Self.sleeper + "groups: [all]\n",
        ], host: host)
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try await guardian.wait(for: "db", "settles") { $0["settled"].bool == true }
      func refused(
        _ answer: (code: Int32, output: String, error: String), _ text: String,
        sourceLocation: SourceLocation = #_sourceLocation
      ) {
        #expect(answer.code == 77 && answer.output.isEmpty, "\(answer)", sourceLocation: sourceLocation)
        #expect(answer.error.contains(text), "\(answer.error)", sourceLocation: sourceLocation)
      }

      // Nobody: not even whether there is such a service.
      let stranger = "add uid 2, or a group it is in, to access.view in"
      refused(try await guardianctl(guardian, as: 2, "status"), "needs view: \(stranger) guardian.yaml")
      for name in ["web", "no-such"] {
        refused(
          try await guardianctl(guardian, as: 2, "plan", name),
          "needs view on '\(name)': \(stranger) services/\(name).yaml or guardian.yaml")
      }
      refused(try await guardianctl(guardian, as: 2, "events"), "needs view")
      #expect(try await guardianctl(guardian, as: 2, "version").code == 77)

      // One service alone.
      let seen = try JSON(try await guardianctl(guardian, as: 33, "--json", "status").output)
      #expect(seen["services"].array.compactMap(\.["name"].string) == ["web"], "\(seen)")
      #expect(try await guardianctl(guardian, as: 33, "status").output.contains("1 service: 1 settled"))
      let group = try JSON(try await guardianctl(guardian, as: 33, "--json", "status", "@all").output)
      #expect(group["services"].array.compactMap(\.["name"].string) == ["web"], "\(group)")
      refused(try await guardianctl(guardian, as: 33, "status", "db"), "needs view on 'db'")
      refused(
        try await guardianctl(guardian, as: 33, "stop", "db"),
        "needs operate on 'db': add www-data (uid 33), or a group it is in, to access.operate in services/db.yaml or")
      refused(try await guardianctl(guardian, as: 33, "reload"), "to access.admin in guardian.yaml")
      refused(try await guardianctl(guardian, as: 33, "reload", "--dry-run"), "to access.view in guardian.yaml")
      refused(try await guardianctl(guardian, as: 33, "drill", "web", "--with-repairs"), "needs admin on 'web'")
      #expect(try await guardianctl(guardian, as: 33, "drill", "web").code == 0)
      #expect(try await guardianctl(guardian, as: 33, "stop", "web").code == 0)

      // Who it was is shown, and kept.
      let stopped = try await guardian.status("web")
      let by = try #require(stopped["stopped_by"].string)
      #expect(by.hasPrefix("www-data (uid 33), pid ") && by.hasSuffix(" stop web"), "\(by)")
      #expect(try await guardian.control("status", "web").output.contains("www-data (uid 33), pid"))
      let told = try JSON(try await guardianctl(guardian, as: 33, "--json", "events").output)["events"].array
      #expect(!told.isEmpty && told.allSatisfy { $0["service"].string == "web" }, "\(told)")
      let order = try #require(told.last { $0["name"].string == "requested" })
      #expect(order["details"]["verb"].string == "stop" && order["details"]["caller_uid"].int == 33, "\(order)")
      #expect(order["details"]["caller_user"].string == "www-data", "\(order)")
      #expect(order["details"]["caller_command"].string?.hasSuffix("stop web") == true, "\(order)")
      #expect(order["details"]["caller_pid"].int != nil)

      // A supplementary group, and the host's operator.
      let both = try JSON(try await guardianctl(guardian, as: 2, groups: "34", "--json", "status").output)
      #expect(both["services"].array.count == 2, "\(both)")
      refused(
        try await guardianctl(guardian, as: 2, groups: "34", "stop", "db"), "needs operate on 'db': add uid 2")
      #expect(try await guardianctl(guardian, as: 5, "start", "web").code == 0)
      refused(try await guardianctl(guardian, as: 5, "upgrade"), "access.admin in guardian.yaml")
      refused(try await guardianctl(guardian, as: 5, "reset", "--guardian"), "access.admin in guardian.yaml")
      // A name that nobody has grants nothing, and harms nothing.
      #expect(try await guardian.control("status").output.contains("no-such-user"))

      // Connected already, and not allowed any more.
      let follower = try Process(
        Guardian.command(as: User(name: "backup", uid: 34, gid: 34)) + [
          Place.products + "/guardianctl", "--runtime", guardian.runtime, "events", "--follow",
        ], output: scratch.path + "/followed", error: scratch.path + "/said")
      try await eventually("is told of the past") { try Files.read(scratch.path + "/followed").isEmpty ? nil : () }
      try Files.write("access: {operate: [bin]}\n", to: scratch.path + "/config/guardian.yaml")
      #expect(try await guardian.control("reload").code == 0)
      #expect(try await follower.wait() == 77)
      #expect(try Files.read(scratch.path + "/said").contains("needs view"))
      refused(try await guardianctl(guardian, as: 34, "status"), "needs view")
      refused(try await guardianctl(guardian, as: 5, "stop", "db"), "needs operate")
      #expect(try await guardianctl(guardian, as: 2, "restart", "db").code == 0)
      // The next program reads the grants before it hears anybody.
      #expect(try await guardian.control("upgrade").code == 0)
      #expect(try await guardianctl(guardian, as: 2, "restart", "db").code == 0)
      refused(try await guardianctl(guardian, as: 5, "stop", "db"), "needs operate")
      // What is done to guardian itself is in its own history, with the one who did it.
      let own = try JSON(try await guardian.control("--json", "events", "guardian").output)["events"].array
      let reload = try #require(own.last { $0["details"]["verb"].string == "reload" })
      #expect(own.contains { $0["details"]["verb"].string == "upgrade" }, "\(own)")
      #expect(reload["name"].string == "requested" && reload["details"]["caller_uid"].int == 0, "\(reload)")
      #expect(reload["text"].string?.hasPrefix("reload asked for by root, pid ") == true, "\(reload)")
      // A broken file changes nothing, here neither.
      try Files.write("access: {oprate: [games]}\n", to: scratch.path + "/config/guardian.yaml")
      #expect(try await guardian.control("reload").code == 1)
      #expect(try await guardianctl(guardian, as: 2, "restart", "db").code == 0)
      try await guardian.stop()
    }
  }
}
