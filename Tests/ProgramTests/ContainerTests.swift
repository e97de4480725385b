import Glibc
import Testing

extension PatientPrograms {
  /// Guardian as process 1 of namespaces of its own, with less and less around it.
  @Suite(.enabled(if: OwnNumbers.missing == nil, "not shown: \(OwnNumbers.missing ?? "")"))
  struct `in a container` {
    /// As the machine outside numbers it.
    private func first(_ guardian: Guardian) throws -> Int32 {
      let unshare = guardian.process.pid
      let text = try Files.read("/proc/\(unshare)/task/\(unshare)/children")
      return try #require(text.split(separator: " ").first.flatMap { Int32($0) })
    }
    /// Its numbers are the container's own, so that the harness must not look for them out here.
    private func service(_ guardian: Guardian, _ name: String) async throws -> JSON {
      try #require(try JSON(try await guardian.control("--json", "status", name).output)["services"].array.first)
    }
    private func settles(_ guardian: Guardian, _ name: String) async throws {
      try await eventually("\(name) settles: \(guardian.log)") {
        try await service(guardian, name)["settled"].bool == true ? () : nil
      }
    }

    private let steady = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    enum Asked: Int32, CaseIterable {
      case term = 15, int = 2, quit = 3, power = 30, halt = 37, reboot = 39
    }

    @Test(arguments: Asked.allCases)
    func `K2, CASES 23: an order to stop is heard, ends everything and gives 0`(_ asked: Asked) async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": steady], wrappedIn: OwnNumbers.wrapper)
      try await settles(guardian, "web")
      kill(try first(guardian), asked.rawValue)
      #expect(try await guardian.process.wait(seconds: 5) == 0, "\(guardian.log)")
      #expect(guardian.log.contains("stopping everything"))
      #expect(processes { pid, _, line in pid != getpid() && line.contains(scratch.path) }.isEmpty)
    }

    @Test(arguments: ["TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "WINCH", "PWR", "ALRM"])
    func `K2, CASES 23: no signal of the first millisecond is lost, and none ends it by accident`(
      _ name: String
    ) async throws {
      let scratch = try Scratch()
      // Sent by the program that then becomes guardian, with the signal blocked: it is there before the first instruction.
      let script = scratch.path + "/early"
      try Files.write(
        """
        import os, signal, sys
        number = getattr(signal, "SIG" + sys.argv[1])
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
        os.kill(os.getpid(), number)
        os.execv(sys.argv[2], sys.argv[2:])

        """, to: script)
      let python = try #require(Place.program("python3"), "not shown: python3 is not there")
      for directory in ["config", "config/services", "state", "run"] { _ = try scratch.directory(directory) }
      try Files.write(steady, to: scratch.path + "/config/services/web.yaml")
      let guardian = try Process(
        OwnNumbers.wrapper + [python, script, name, Place.products + "/guardian"]
          + ["--config", "config", "--state", "state", "--runtime", "run"].map {
            $0.hasPrefix("--") ? $0 : scratch.path + "/" + $0
          }, output: scratch.path + "/log")
      let ends = ["TERM", "INT", "QUIT", "PWR"].contains(name)
      if ends {
        #expect(try await guardian.wait(seconds: 10) == 0)
      } else {
        try await eventually("it is at work: \((try? Files.read(scratch.path + "/log")) ?? "")") {
          if let code = guardian.poll() { throw Failure("it ended with \(code)") }
          let status = try await run(
            [Place.products + "/guardianctl", "--runtime", scratch.path + "/run", "--json", "status", "web"])
          return try status.code == 0 && JSON(status.output)["services"].array.first?["settled"].bool == true ? () : nil
        }
        let children = (try Files.read("/proc/\(guardian.pid)/task/\(guardian.pid)/children")).split(separator: " ")
        kill(try #require(children.first.flatMap { Int32($0) }), SIGTERM)
        #expect(try await guardian.wait(seconds: 10) == 0)
      }
      let log = try Files.read(scratch.path + "/log")
      #expect(log.contains("stopping everything"), "\(log)")
    }

    @Test func `K2: signals that are the service's are passed on where there is one service`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": """
          command: [/bin/bash, -c, "for s in USR1 USR2 WINCH; do trap \\"echo $s >>'\(scratch.path)/heard'\\" $s; done; touch '\(scratch.path)/ready'; while :; do sleep 0.02; done"]
          startup-window: 100ms
          log: none

          """
        ], wrappedIn: OwnNumbers.wrapper)
      try await settles(guardian, "web")
      try await eventually("it listens") { Files.exists(scratch.path + "/ready") ? () : nil }
      for (signal, name) in [(SIGUSR1, "USR1"), (SIGUSR2, "USR2"), (SIGWINCH, "WINCH")] {
        kill(try first(guardian), signal)
        try await eventually("\(name) is heard") {
          ((try? Files.read(scratch.path + "/heard")) ?? "").contains(name) ? () : nil
        }
      }
      // With a second service nobody knows whom it is for.
      try guardian.configure("other", steady)
      #expect(try await guardian.control("reload").code == 0)
      kill(try first(guardian), SIGUSR1)
      try await eventually("it says so") { guardian.log.contains("only where there is a single service") ? () : nil }
      try await settles(guardian, "other")
      kill(try first(guardian), SIGTERM)
      #expect(try await guardian.process.wait() == 0)
    }

    @Test func `K4: it warns where the stop time-outs of a chain are more than a container's grace, and not below`()
      async throws
    {
      let scratch = try Scratch()
      let words = "stopping everything may take 20s"
      let guardian = try await Guardian(
        scratch, services: ["db": steady, "web": steady], wrappedIn: OwnNumbers.wrapper)
      try await settles(guardian, "web")
      #expect(!guardian.log.contains("stopping everything may take"), "side by side they take ten seconds")
      try guardian.configure("web", steady + "requires: [db]\n")
      _ = try await guardian.control("reload")
      #expect(guardian.log.contains(words) && guardian.log.contains("kill after 10s"), "\(guardian.log)")
      #expect(try await guardian.control("status").output.contains(words))
      try guardian.configure("web", steady + "requires: [db]\nstop: {timeout: 2s}\n")
      try guardian.configure("db", steady + "stop: {timeout: 3s}\n")
      _ = try await guardian.control("reload")
      #expect(try await !guardian.control("status").output.contains("stopping everything may take"))
      kill(try first(guardian), SIGTERM)
      #expect(try await guardian.process.wait() == 0)
    }

    @Test func `K2: strangers are reaped`() async throws {
      let scratch = try Scratch()
      // Orphans of no service: each loses its parent at once, and ends later.
      let wrapper =
        OwnNumbers.wrapper + [
          "/bin/bash", "-c", "for i in 1 2 3 4 5; do (sleep 0.3 & sleep 0.3 &); done; exec \"$@\"", "bash",
        ]
      let guardian = try await Guardian(scratch, services: ["web": steady], wrappedIn: wrapper)
      let pid = try first(guardian)
      try await settles(guardian, "web")
      // One service is left; a zombie would still be listed.
      try await eventually("all strangers are reaped") { children(of: pid).count == 1 ? () : nil }
      kill(pid, SIGTERM)
      #expect(try await guardian.process.wait() == 0)
    }

    @Test
    func `E14: where /proc shows nobody the processes of others, an ordinary user's services are kept all the same`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": steady,
          "family":
            "command: [/bin/sh, -c, \"setsid sleep 1000005 & exec sleep 1000000\"]\nstartup-window: 100ms\nlog: none\n",
        ], user: .nobody,
        wrappedIn: OwnNumbers.wrapper + [
          "/bin/sh", "-c", "mount -o remount,hidepid=2 /proc && exec \"$@\"", "sh",
        ])
      try await settles(guardian, "web")
      try await settles(guardian, "family")
      let before = try await service(guardian, "web")
      #expect(try await guardian.control("restart", "web").code == 0)
      #expect(try await service(guardian, "web")["run"] != before["run"])
      #expect(try await guardian.control("stop", "family").code == 0)
      #expect(processes { _, _, line in line == "sleep 1000005" }.isEmpty)
      kill(try first(guardian), SIGTERM)
      #expect(try await guardian.process.wait() == 0, "\(guardian.log)")
      #expect(processes { pid, _, line in pid != getpid() && line.contains(scratch.path) }.isEmpty)
    }

    @Test
    func
      `K3, E14, CASES 85: no /proc, no journal, no cgroup, a read-only root, noexec /run, any uid: it starts, and lists what is weaker`()
      async throws
    {
      let scratch = try Scratch()
      let programs = try scratch.directory("programs")
      for name in ["guardian", "guardianctl"] {
        #expect(try await run(["/bin/cp", "\(Place.products)/\(name)", programs]).code == 0)
      }
      // A tmpfs over the scratch's runtime directory and an empty /proc; everything else becomes read-only.
      let script = scratch.path + "/enter"
      try Files.write(
        """
        set -e
        mount -t tmpfs -o noexec,mode=0755,uid=4721,gid=4721 tmpfs '\(scratch.path)/run'
        mount -t tmpfs -o ro tmpfs /proc
        mount -t tmpfs -o ro tmpfs /sys/fs/cgroup 2>/dev/null || :
        mount -o remount,bind,ro / 2>/dev/null || mount -o bind,ro / /
        exec /usr/bin/setpriv --reuid 4721 --regid 4721 --clear-groups --bounding-set -all -- "$@"

        """, to: script)
      for directory in ["config", "config/services", "state", "run"] { _ = try scratch.directory(directory) }
      let services = scratch.path + "/config/services/"
      try Files.write(
        """
        command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
        startup-window: 100ms

        """, to: services + "web.yaml")
      try Files.write(
        "command: [/bin/sh, -c, \"exit 3\"]\nbackoff: {first: 10ms, max: 20ms}\n", to: services + "dies.yaml")
      let guardian = try Process(
        [
          "/usr/bin/unshare", "--pid", "--fork", "--mount", "--kill-child", "/bin/sh", script, programs + "/guardian",
          "--config", scratch.path + "/config", "--state", scratch.path + "/state", "--runtime", scratch.path + "/run",
        ], output: scratch.path + "/log")
      func log() -> String { (try? Files.read(scratch.path + "/log")) ?? "" }
      func first() -> Int32? { children(of: guardian.pid).first }
      /// guardianctl where guardian is: among its mounts.
      func inside(_ arguments: String...) async throws -> (code: Int32, output: String, error: String) {
        if let code = guardian.poll() { throw Failure("it ended with \(code): \(log())") }
        return try await run(
          [
            "/usr/bin/nsenter", "--target", String(first() ?? 0), "--mount", "--", programs + "/guardianctl",
            "--runtime",
            scratch.path + "/run",
          ] + arguments)
      }
      func wait(_ name: String, _ condition: (JSON) -> Bool) async throws {
        try await eventually("\(name), in \(log())") { () async throws -> Void? in
          if let code = guardian.poll() { throw Failure("it ended with \(code): \(log())") }
          guard let answer = try? await inside("--json", "status", name), let json = try? JSON(answer.output),
            let service = json["services"].array.first
          else { return nil }
          return condition(service) ? () : nil
        }
      }
      try await wait("web") { $0["settled"].bool == true }
      try await wait("dies") { $0["phase"].string == "quarantined" }
      let version = try await inside("version").output
      for line in [
        "proc          not mounted", "users         only guardian's own (uid 4721)", "journal       no",
        "process-1     yes", "state         volatile",
      ] { #expect(version.contains(line), "\(version)") }
      for line in [
        "/proc is not mounted", "guardian is uid 4721 and not root", "there is no journal",
        "the state is not kept (volatile)",
      ] { #expect(log().count(of: line) == 1, "\(line), in \(log())") }
      #expect(try await inside("restart", "web").code == 0)
      kill(try #require(first()), SIGTERM)
      #expect(try await guardian.wait() == 0, "\(log())")
    }
  }
}

extension String {
  fileprivate func count(of text: String) -> Int {
    var count = 0
    var rest = self[...]
    while let found = rest.firstRange(of: text) {
      count += 1
      rest = rest[found.upperBound...]
    }
    return count
  }
}
