import Glibc
import Testing

extension Programs {
  /// Who may do what to guardian, and what guardian does for whom.
  @Suite struct `privilege` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"
    static let python = Place.program("python3")

    @Test(.enabled(if: isRoot, "not shown: needs root, to be somebody else"))
    func `J1, J2: another user, also as root of a namespace of its own, is refused whatever the socket's mode says`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": Self.sleeper])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      chmod(guardian.runtime, 0o755)
      chmod(guardian.runtime + "/control.sock", 0o777)
      let nobody = Guardian.command(as: .nobody)
      var callers = [nobody]
      let namespace = nobody + ["/usr/bin/unshare", "--user", "--map-root-user"]
      if try await run(namespace + ["/bin/true"]).code == 0 { callers.append(namespace) }
      for caller in callers {
        for verb in [
          ["status"], ["stop", "web"], ["restart", "web"], ["release", "web"], ["reset", "web"], ["reload"],
          ["hold", "web", "--for", "1h"],
        ] {
          let answer = try await run(
            caller + [Place.products + "/guardianctl", "--runtime", guardian.runtime] + verb)
          #expect(answer.code == 77, "\(caller) \(verb): \(answer)")
          #expect(answer.error.contains("access."), "\(answer)")
        }
      }
      let after = try await guardian.status("web")
      #expect(after["run"] == before["run"] && after["held"].bool == false && after["wanted"].string == "up")
      try await guardian.stop()
    }

    @Test(.enabled(if: isRoot && python != nil, "not shown: needs root, to be somebody else, and python3"))
    func `J10: it counts who connected, whoever holds the connection now and though that one is gone`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": Self.sleeper])
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      chmod(guardian.runtime, 0o755)
      chmod(guardian.runtime + "/control.sock", 0o777)
      // One user connects, in a process that ends, and leaves the connection to another user.
      let script = """
        import os, socket, sys
        path, connects, asks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        child = os.fork()
        if child == 0:
          os.setresuid(connects, connects, connects)
          s.connect(path)
          os._exit(0)
        os.waitpid(child, 0)
        os.setresuid(asks, asks, asks)
        s.sendall(b'{"method":"io.guardian.Supervisor.Stop","parameters":{"name":"web","wait":true}}\\0')
        answer = b""
        while not answer.endswith(b"\\0"):
          more = s.recv(4096)
          if not more: break
          answer += more
        print(answer.decode())
        """
      func ask(_ connects: Int, _ asks: Int) async throws -> String {
        let answer = try await run([
          try #require(Self.python), "-c", script, guardian.runtime + "/control.sock", "\(connects)", "\(asks)",
        ])
        #expect(answer.code == 0, "\(answer)")
        return answer.output
      }
      #expect(try await ask(65_534, 0).contains("NotPermitted"))
      #expect(try await guardian.status("web")["phase"].string == "running")
      #expect(try await !ask(0, 65_534).contains("NotPermitted"))
      #expect(try await guardian.status("web")["phase"].string == "stopped")
      try await guardian.stop()
    }

    @Test
    func `J3: a file that others may write to is refused, told with owner and mode, and what runs stays as it is`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": Self.sleeper, "db": Self.sleeper])
      let before = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try guardian.configure("web", Self.sleeper + "nice: 7\n")
      chmod(scratch.path + "/config/services/web.yaml", 0o666)
      let reload = try await guardian.control("reload")
      #expect(reload.code == 1, "\(reload)")
      #expect(
        (reload.output + reload.error).contains(
          "web.yaml: the file is writable by others (uid \(geteuid()), mode 0666)"), "\(reload)")
      kill(pid_t(try #require(before["pid"].int)), SIGKILL)
      let after = try await guardian.wait(for: "web", "is back") {
        $0["settled"].bool == true && $0["run"] != before["run"]
      }
      #expect(getpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(try #require(after["pid"].int))) == 0)
      try await guardian.stop()
    }

    @Test func `J4: a state directory that is a link is not used, and nothing is written where it leads`() async throws
    {
      let scratch = try Scratch()
      for directory in ["config", "config/services", "run", "victim"] { _ = try scratch.directory(directory) }
      chmod(scratch.path + "/victim", 0o700)
      try Files.write(Self.sleeper, to: scratch.path + "/config/services/web.yaml")
      try #require(symlink(scratch.path + "/victim", scratch.path + "/state") == 0)
      let guardian = try Process(
        [
          Place.products + "/guardian", "--config", scratch.path + "/config", "--state", scratch.path + "/state",
          "--runtime", scratch.path + "/run",
        ], output: scratch.path + "/log")
      func control(_ arguments: String...) async throws -> (code: Int32, output: String, error: String) {
        try await run([Place.products + "/guardianctl", "--runtime", scratch.path + "/run"] + arguments)
      }
      try await eventually("it runs its service all the same") {
        if let code = guardian.poll() { throw Failure("it ended with \(code)") }
        return try await control("status", "web").code == 0 ? () : nil
      }
      let status = try await control("status").output
      #expect(status.contains("state: volatile") && status.contains(scratch.path + "/state"), "\(status)")
      #expect(Files.names(in: scratch.path + "/victim").isEmpty)
      kill(guardian.pid, SIGTERM)
      #expect(try await guardian.wait() == 0)
      #expect(Files.names(in: scratch.path + "/victim").isEmpty)
    }

    @Test(.enabled(if: isRoot && python != nil, "not shown: needs root, to be somebody else, and python3"))
    func `J9: a service can neither write, trace nor ask guardian, nor read what others were given`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": Self.sleeper + "ready: none\nenvironment: {TOKEN: hush-hush}\n",
          "told": Self.sleeper + "ready: notify\n",
        ])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let script = """
        import ctypes, os, socket, sys
        root, guardian, other = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        def may(what, do):
          try:
            do()
            print("may", what)
          except OSError as e:
            print("may not", what)
        def trace(pid):
          libc = ctypes.CDLL(None, use_errno=True)
          if libc.ptrace(16, pid, 0, 0) != 0: raise OSError(ctypes.get_errno(), "ptrace")
        def tell():
          s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
          s.sendto(b"READY=1", root + "/run/notify/told")
        may("write the state", lambda: open(root + "/state/guardian.db", "r+b"))
        may("read the state", lambda: open(root + "/state/guardian.db", "rb"))
        may("make a file of state", lambda: open(root + "/state/x", "wb"))
        may("make a file beside the socket", lambda: open(root + "/run/x", "wb"))
        may("remove the socket", lambda: os.unlink(root + "/run/control.sock"))
        may("list the notify sockets", lambda: os.listdir(root + "/run/notify"))
        may("speak for another", tell)
        may("signal guardian", lambda: os.kill(guardian, 9))
        may("trace guardian", lambda: trace(guardian))
        may("read guardian's environment", lambda: open(f"/proc/{guardian}/environ").read())
        may("read another's environment", lambda: open(f"/proc/{other}/environ").read())
        may("be itself", lambda: os.kill(os.getpid(), 0))
        """
      let tried = try await run(
        Guardian.command(as: .nobody) + [
          try #require(Self.python), "-c", script, scratch.path, "\(guardian.process.pid)",
          "\(try #require(web["pid"].int))",
        ])
      #expect(tried.code == 0, "\(tried)")
      let granted = tried.output.split(separator: "\n").filter { $0.hasPrefix("may ") && !$0.hasPrefix("may not ") }
      #expect(granted == ["may be itself"], "\(tried.output)")
      // Nor does anybody see by guardianctl or in the log what a service was given.
      for arguments in [["--json", "status", "web"], ["status", "web"], ["--json", "status"]] {
        let answer = try await run([Place.products + "/guardianctl", "--runtime", guardian.runtime] + arguments)
        #expect(!answer.output.contains("hush-hush"), "\(arguments)")
      }
      #expect(!guardian.log.contains("hush-hush"))
      try await guardian.stop()
    }

    @Test func `J11: no name, path or word of a service reaches a terminal as an order, or makes up a line of the log`()
      async throws
    {
      let scratch = try Scratch()
      let escape = "\\e]0;owned\\a\\e[31m"
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          description: "a \(escape) b"
          command: [/bin/true]
          """,
          "runs": """
          command: ["/nowhere/x\\n12:00:00 guardian: all is well\\e[2J"]
          log: none
          """,
          "says": """
          command: [/bin/sh, -c, "exit 7"]
          escalation: {restart: 1, repair: 1, safe-mode: 1}
          repair: [{name: fix, run: ["/nowhere/y\\n12:00:00 guardian: forged\\e[2J"]}]
          backoff: {first: 10ms, max: 10ms}
          log: none
          """,
        ])
      for name in ["web", "runs", "says"] {
        try await guardian.wait(for: name, "is given up") { $0["phase"].string == "quarantined" }
      }
      func harmless(_ text: String) -> Bool {
        text.unicodeScalars.allSatisfy { $0 == "\n" || $0 == "\t" || $0.value >= 0x20 && $0.value != 0x7f }
      }
      for arguments in [["status"], ["status", "web"], ["status", "runs"], ["status", "says"], ["reload"]] {
        let answer = try await run([Place.products + "/guardianctl", "--runtime", guardian.runtime] + arguments)
        #expect(harmless(answer.output) && harmless(answer.error), "\(arguments): \(answer)")
      }
      let json = try await guardian.control("--json", "status")
      #expect(harmless(json.output))
      #expect(try JSON(json.output)["services"].array.count == 3)
      #expect(harmless(guardian.log))
      // Whoever reads the log line by line finds no line that the file has made up.
      let forged = guardian.log.split(separator: "\n").filter {
        $0.contains("all is well") && !$0.contains("/nowhere/x") || $0.contains("forged") && !$0.contains("/nowhere/y")
      }
      #expect(forged.isEmpty, "\(forged)")
      try await guardian.stop()
    }

    private static let capabilities = [
      "setuid", "setgid", "kill", "chown", "dac_override", "sys_resource", "sys_nice", "sys_admin", "net_admin",
      "sys_ptrace",
    ]

    /// Starts guardian with `wrapper` before it, lets it run a service, and ends it.
    ///
    /// - Returns: What it lists as missing.
    private func weaknesses(_ wrapper: [String], as user: User? = nil) async throws -> [String] {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": Self.sleeper], user: user, wrappedIn: wrapper)
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try await guardian.stop()
      return guardian.log.split(separator: "\n").compactMap { line -> String? in
        guard let found = line.firstRange(of: "without CAP_") ?? line.firstRange(of: "guardian is uid ") else {
          return nil
        }
        return String(line[found.lowerBound...])
      }
    }

    @Test(.enabled(if: isRoot, "not shown: needs root, to give capabilities up"))
    func `J12: without one capability after the other it starts, and names what is lost, once`() async throws {
      let all = try await weaknesses([])
      for one in Self.capabilities {
        let name = "without CAP_\(one.uppercased()): "
        // What the machine has taken away already is listed in any case.
        if all.contains(where: { $0.hasPrefix(name) }) { continue }
        let lost = try await weaknesses([
          "/usr/bin/setpriv", "--bounding-set", "-\(one)", "--inh-caps", "-\(one)", "--",
        ])
        #expect(lost.count == all.count + 1 && lost.count { $0.hasPrefix(name) } == 1, "\(one): \(lost)")
      }
      let none = try await weaknesses([
        "/usr/bin/setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--",
      ])
      #expect(none.count == Self.capabilities.count, "\(none)")
      let nobody = try await weaknesses([], as: .nobody)
      #expect(nobody == ["guardian is uid 65534 and not root: all services run as that user, within its limits"])
    }
  }
}
