import Glibc
import Testing

extension Programs {
  @Suite struct `the daemon` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    @Test func `J8: gives a service exactly the documented environment, three descriptors and clean signals`()
      async throws
    {
      let scratch = try Scratch()
      let seen = scratch.path + "/seen"
      let guardian = try await Guardian(
        scratch,
        services: [
          "looks": """
          command: [/bin/sh, -c, 'cat /proc/self/environ | tr "\\\\0" "\\\\n" >\(seen).env; ls /proc/self/fd >\(seen).fd;
            grep -E "^Sig(Blk|Ign)" /proc/self/status >\(seen).sig; cut -d" " -f5,6 /proc/$$/stat >\(seen).ids;
            echo $$ >>\(seen).ids; touch \(seen); exec sleep 1000000']
          environment: {PORT: "8080"}
          startup-window: 100ms
          log: none
          """
        ],
        environment: [
          "LD_PRELOAD": "/nowhere.so", "LD_LIBRARY_PATH": "/nowhere", "NOTIFY_SOCKET": scratch.path + "/above",
          "LISTEN_FDS": "0", "LISTEN_PID": "1", "JOURNAL_STREAM": "8:1", "CREDENTIALS_DIRECTORY": "/nowhere",
          "MANAGERPID": "1", "SECRET": "hush",
        ])
      try await guardian.wait(for: "looks", "settles") { $0["settled"].bool == true }
      try await eventually("it has looked") { Files.exists(seen) ? () : nil }
      let names = try Files.read(seen + ".env").split(separator: "\n").compactMap {
        $0.split(separator: "=").first.map(String.init)
      }
      // PWD and the like are the shell's own.
      #expect(
        Set(names).subtracting(["PWD", "OLDPWD", "SHLVL", "_"]) == [
          "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "PORT", "INVOCATION_ID", "GUARDIAN_MODE",
          "GUARDIAN_DISABLED_PLUGINS",
        ])
      // 3 is the directory that `ls` reads.
      #expect(try Files.read(seen + ".fd").split(separator: "\n") == ["0", "1", "2", "3"])
      for line in try Files.read(seen + ".sig").split(separator: "\n") {
        #expect(line.hasSuffix("0000000000000000"), "\(line)")
      }
      let ids = try Files.read(seen + ".ids").split { $0 == "\n" || $0 == " " }
      #expect(ids.count == 3 && ids[0] == ids[2] && ids[1] == ids[2], "its own group and session: \(ids)")
      try await guardian.stop()
    }

    @Test func `ends what a service leaves behind: after a crash at once, at a stop all of it`() async throws {
      let scratch = try Scratch()
      let mark = scratch.path + "/mark"
      let program = scratch.path + "/escape"
      // Children that leave the session and lose their parents; each carries the scratch directory in its arguments.
      try Files.write(
        """
        #!/bin/sh
        setsid sh -c 'setsid sh -c "sleep 1000000; : \(mark)" & sleep 1000000; : \(mark)' &
        exec sleep 1000000

        """, to: program, mode: 0o755)
      let guardian = try await Guardian(
        scratch, services: ["escape": "command: [\"\(program)\"]\nstartup-window: 100ms\nlog: none\n"])
      func left() -> [String] { processes { _, _, line in line.contains(mark) } }
      let first = try await guardian.wait(for: "escape", "settles") { $0["settled"].bool == true }
      try await eventually("its children are there") { left().count >= 2 ? () : nil }
      let old = Set(left())
      let pid = try #require(first["pid"].int)
      kill(pid_t(pid), SIGKILL)
      try await guardian.wait(for: "escape", "runs again") { $0["settled"].bool == true && $0["pid"].int != pid }
      try await eventually("the old ones are gone") { old.isDisjoint(with: left()) ? () : nil }
      #expect(try await guardian.control("stop", "escape").code == 0)
      #expect(left().isEmpty, "stopped means that nothing is left: \(left())")
      try await guardian.stop()
    }

    @Test(
      .enabled(
        if: Place.program("python3") != nil && isRoot && Tracers.kernelTells,
        "not shown: needs python3, root, and Linux 6.6"))
    func `does not count a death under a debugger, be that gone at once or not`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["debugged": "command: [/bin/sleep, \"1000000\"]\nstartup-window: 1h\nlog: none\n"])
      var pid = try #require(try await guardian.wait(for: "debugged", "runs") { $0["pid"].int != nil }["pid"].int)
      // Attaches as gdb -p does and lets the fatal signal through. The second one is gone before anybody is told of the death.
      func debugger(_ pid: Int, last: String) -> String {
        """
        import ctypes, os, signal, sys, time
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long]
        pid = \(pid)
        assert libc.ptrace(0x4206, pid, 0, 0) == 0  # PTRACE_SEIZE
        os.kill(pid, signal.SIGSEGV)
        os.waitpid(pid, 0)
        assert libc.ptrace(7, pid, 0, signal.SIGSEGV) == 0  # PTRACE_CONT
        \(last)
        """
      }
      for last in ["os.waitpid(pid, 0); time.sleep(2)", "os.waitpid(pid, 0); os._exit(0)"] {
        let debugging = try await run([try #require(Place.program("python3")), "-c", debugger(pid, last: last)])
        #expect(debugging.code == 0, "\(debugging.error)")
        let before = pid
        let after = try await guardian.wait(for: "debugged", "runs again") {
          $0["pid"].int != nil && $0["pid"].int != before && $0["phase"].string == "running"
        }
        #expect(after["last_end"]["signal"].string == "SEGV")
        #expect(after["strikes"].int == 0)
        pid = try #require(after["pid"].int)
      }
      // A debugger that has gone away leaves a process that counts.
      let gone = """
        import ctypes
        assert ctypes.CDLL(None).ptrace(0x4206, \(pid), 0, 0) == 0
        """
      #expect(try await run([try #require(Place.program("python3")), "-c", gone]).code == 0)
      try await guardian.wait(for: "debugged", "is known to be free") { _ in true }
      kill(pid_t(pid), SIGSEGV)
      let counted = try await guardian.wait(for: "debugged", "runs again") {
        $0["pid"].int != nil && $0["pid"].int != pid
      }
      #expect(counted["strikes"].int == 1)
      try await guardian.stop()
    }

    @Test func `tells a repair and a notice why they run, in variables and as JSON`() async throws {
      let scratch = try Scratch()
      let told = scratch.path + "/told"
      let program = scratch.path + "/listens"
      try Files.write(
        """
        #!/bin/sh
        env | grep ^GUARDIAN_ >"\(told).$GUARDIAN_HOOK.env"
        cat >"\(told).$GUARDIAN_HOOK.new" && mv "\(told).$GUARDIAN_HOOK.new" "\(told).$GUARDIAN_HOOK"

        """, to: program, mode: 0o755)
      let guardian = try await Guardian(
        scratch,
        services: [
          "doomed": """
          command: [/bin/sh, -c, "exit 9"]
          startup-window: 1s
          backoff: {first: 20ms, max: 20ms}
          escalation: {restart: 1, repair: 1}
          repair:
            - {name: listen, run: ["\(program)"]}
          notices:
            on-crash: ["\(program)"]
            on-escalation: ["\(program)"]
            on-quarantine: ["\(program)"]
          log: none
          """
        ])
      try await guardian.wait(for: "doomed", "is quarantined") { $0["phase"].string == "quarantined" }
      for hook in ["listen", "on-crash", "on-escalation", "on-quarantine"] {
        try await eventually("\(hook) has run") { Files.exists("\(told).\(hook)") ? () : nil }
        let variables = try Files.read("\(told).\(hook).env").split(separator: "\n")
        for wanted in ["GUARDIAN_SERVICE=doomed", "GUARDIAN_CAUSE=exit", "GUARDIAN_EXIT_CODE=9"] {
          #expect(variables.contains(Substring(wanted)), "\(hook): \(variables)")
        }
        let crash = try JSON(try Files.read("\(told).\(hook)"))
        #expect(crash["schema"].int == 1 && crash["service"].string == "doomed", "\(hook): \(crash)")
        #expect(crash["hook"].string == hook)
      }
      let listen = try Files.read("\(told).listen.env").split(separator: "\n")
      #expect(listen.contains("GUARDIAN_STEP=repair") && listen.contains("GUARDIAN_ATTEMPT=1"), "\(listen)")
      try await guardian.stop()
    }

    @Test func `keeps its notify socket to itself and its services' to theirs`() async throws {
      let scratch = try Scratch()
      let seen = scratch.path + "/seen"
      // A socket that somebody above guardian would listen to.
      let program = scratch.path + "/wrapped"
      try Files.write(
        """
        #!/bin/sh
        env | grep -E '^(NOTIFY_SOCKET|WATCHDOG|SYSTEMD|LISTEN|GUARDIAN_MODE)' >'\(seen).part'
        mv '\(seen).part' '\(seen)'
        exec sleep 1000000

        """, to: program, mode: 0o755)
      let guardian = try await Guardian(
        scratch,
        services: [
          "plain": "command: [\"\(program)\"]\nstartup-window: 100ms\nlog: none\n",
          "told": Self.sleeper + "ready: notify\n",
        ],
        environment: ["NOTIFY_SOCKET": scratch.path + "/above", "WATCHDOG_USEC": "60000000", "LISTEN_FDS": "0"])
      try await guardian.wait(for: "plain", "settles") { $0["settled"].bool == true }
      try await eventually("it has looked") { Files.exists(seen) ? () : nil }
      // The one that is meant to be there proves that the look sees something.
      #expect(try Files.read(seen) == "GUARDIAN_MODE=normal\n")
      var about = stat()
      #expect(lstat(guardian.runtime + "/notify/told", &about) == 0 && about.st_mode & 0o777 == 0o600)
      #expect(lstat(guardian.runtime + "/notify", &about) == 0 && about.st_mode & 0o777 == 0o711)
      #expect(!Files.exists(guardian.runtime + "/notify/plain"))
      try await guardian.stop()
      #expect(
        Files.names(in: guardian.runtime + "/notify").isEmpty && !Files.exists(guardian.runtime + "/control.sock"))
    }

    @Test(
      .enabled(
        if: isRoot && Place.program("python3") != nil, "not shown: needs root, to be somebody else, and python3"))
    func `CASES 71: hears nobody but the service's user and root`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["quiet": Self.sleeper + "ready: notify\nstart-timeout: 60s\n"])
      let path = guardian.runtime + "/notify/quiet"
      try await eventually("the notify socket is there") { Files.exists(path) ? () : nil }
      // As if the file's mode did not keep strangers out.
      chmod(path, 0o666)
      let say = "import socket,sys; s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.sendto(b'READY=1',sys.argv[1])"
      let python = try #require(Place.program("python3"))
      let stranger = try await run(Guardian.command(as: .nobody) + [python, "-c", say, path])
      #expect(stranger.code == 0, "\(stranger)")
      try await eventually("it is said to be dropped") {
        guardian.log.contains("quiet: dropped a notification") ? () : nil
      }
      #expect(try await guardian.status("quiet")["phase"].string == "starting")
      #expect(try await run([python, "-c", say, path]).code == 0)
      try await guardian.wait(for: "quiet", "settles") { $0["settled"].bool == true }
      // Nor does the control socket's mode let a stranger in.
      let refused = try await run(
        Guardian.command(as: .nobody) + [Place.products + "/guardianctl", "--runtime", guardian.runtime, "status"])
      #expect(refused.code == 77, "\(refused)")
      try await guardian.stop()
    }

    @Test func `a newline on the agreed descriptor is readiness, its end without one is not`() async throws {
      let scratch = try Scratch()
      let go = scratch.path + "/go"
      let guardian = try await Guardian(
        scratch,
        services: [
          "says": """
          command: [/bin/sh, -c, 'while [ ! -e \(go) ]; do sleep 0.02; done; echo >&5; exec sleep 1000000']
          ready: {fd: 5}
          startup-window: 100ms
          log: none
          """,
          "hangs-up": """
          command: [/bin/sh, -c, 'exec 4>&-; exec sleep 1000000']
          ready: {fd: 4}
          startup-window: 100ms
          log: none
          """,
        ])
      try await Task.sleep(for: .milliseconds(300))
      #expect(try await guardian.status("says")["phase"].string == "starting")
      try Files.write("", to: go)
      try await guardian.wait(for: "says", "settles") { $0["settled"].bool == true }
      #expect(try await guardian.status("hangs-up")["phase"].string == "starting")
      try await guardian.stop()
    }

    @Test func `reads environment files again when they have changed, and names one that is missing`() async throws {
      let scratch = try Scratch()
      let file = scratch.path + "/environment", seen = scratch.path + "/seen"
      try Files.write("COLOUR=red\n", to: file)
      let yaml = """
        command: [/bin/sh, -c, 'echo $COLOUR >>\(seen); exec sleep 1000000']
        environment-file: [\(file), "-/nonexistent/optional"]
        startup-window: 100ms
        log: none
        """
      let guardian = try await Guardian(scratch, services: ["coloured": yaml])
      try await guardian.wait(for: "coloured", "settles") { $0["settled"].bool == true }
      try Files.write("COLOUR=\"deep blue\"\n", to: file)
      #expect(try await guardian.control("restart", "coloured").code == 0)
      try await eventually("the new value arrives") { try Files.read(seen) == "red\ndeep blue\n" ? () : nil }
      unlink(file)
      let failed = try await guardian.control("restart", "coloured")
      #expect(failed.code == 1 && (failed.output + failed.error).contains(file), "\(failed)")
      try await guardian.stop()
    }

    @Test func `a request behind one whose answer was long and went out at once is answered too`() async throws {
      let scratch = try Scratch()
      let yaml = "command: [/bin/true]\nstart: manual\nstartup-window: 1h\nlog: none\n"
      // A warning for each of them: more than is kept for a client before it reads, less than a socket takes at once.
      var services: [String: String] = [:]
      for number in 0..<300 { services["s\(number)"] = yaml }
      let guardian = try await Guardian(scratch, services: services)
      let answer = try await guardian.control("status")
      #expect(answer.output.contains("300 services:") && answer.output.contains("s299"), "\(answer.error)")
      try await guardian.stop()
    }

    @Test func `makes its control socket again when somebody has removed it`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["good": Self.sleeper])
      let socket = guardian.runtime + "/control.sock"
      unlink(socket)
      try await eventually("the socket is back") { Files.exists(socket) ? () : nil }
      #expect(try await guardian.control("status").code <= 1)
      try await guardian.stop()
    }

    @Test func `SIGTERM while many start: nothing is started afterwards, and nothing is left`() async throws {
      let scratch = try Scratch()
      var services: [String: String] = [:]
      for n in 0..<100 { services["s\(n)"] = Self.sleeper }
      let guardian = try await Guardian(scratch, services: services)
      // Its socket answers before the first start.
      try await eventually("the first is started") { guardian.log.contains(": started, pid ") ? () : nil }
      kill(guardian.process.pid, SIGTERM)
      kill(guardian.process.pid, SIGINT)
      #expect(try await guardian.process.wait(seconds: 30) == 0)
      let log = guardian.log
      let pids = log.split(separator: "\n").compactMap { line in
        line.firstRange(of: ": started, pid ").flatMap { Int32(line[$0.upperBound...].prefix { $0.isNumber }) }
      }
      #expect(!pids.isEmpty)
      #expect(processes { pid, session, _ in pids.contains(session) || pids.contains(pid) }.isEmpty)
    }

    @Test(.enabled(if: Files.exists("/usr/bin/python3"), "not shown: the service that pings is in Python"))
    func `a guardian that was stopped together with a service does not bite it for its silence`() async throws {
      let scratch = try Scratch()
      let program = scratch.path + "/pings"
      try Files.write(
        """
        #!/usr/bin/python3
        import os, socket, time
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.connect(os.environ["NOTIFY_SOCKET"])
        s.send(b"READY=1")
        while True:
          s.send(b"WATCHDOG=1")
          time.sleep(0.3)

        """, to: program, mode: 0o755)
      let guardian = try await Guardian(
        scratch,
        services: [
          "pings": "command: [\"\(program)\"]\nready: notify\nwatchdog: 1s\nstartup-window: 100ms\nlog: inherit\n"
        ])
      let before = try await guardian.wait(for: "pings", "settles") { $0["settled"].bool == true }
      let pid = pid_t(try #require(before["pid"].int))
      kill(pid, SIGSTOP)
      kill(guardian.process.pid, SIGSTOP)
      try await Task.sleep(for: .seconds(3))
      kill(guardian.process.pid, SIGCONT)
      try await Task.sleep(for: .milliseconds(200))
      kill(pid, SIGCONT)
      try await Task.sleep(for: .seconds(2))
      let after = try await guardian.status("pings")
      #expect(after["run"] == before["run"] && after["settled"].bool == true, "\(after) \(guardian.log)")
      #expect(guardian.log.contains("nobody is blamed"), "\(guardian.log)")
      // A service that alone falls silent is another matter.
      kill(pid, SIGSTOP)
      try await guardian.wait(for: "pings", "is replaced") { $0["run"] != before["run"] && $0["settled"].bool == true }
      #expect(try await guardian.status("pings")["last_end"]["cause"].string == "watchdog")
      try await guardian.stop()
    }

    @Test func `I1: an idle guardian does not wake, however many services it has`() async throws {
      let scratch = try Scratch()
      var services = ["good": Self.sleeper]
      for number in 0..<40 { services["s\(number)"] = Self.sleeper }
      let guardian = try await Guardian(scratch, services: services)
      try await eventually("all settle") { try await guardian.control("status").code == 0 ? () : nil }
      func switches() throws -> Int {
        let text = try Files.read("/proc/\(guardian.process.pid)/status")
        return text.split(separator: "\n").filter { $0.hasPrefix("voluntary_ctxt") }.compactMap {
          $0.split(separator: "\t").last.flatMap { Int($0) }
        }.reduce(0, +)
      }
      // What is to be written down of so many that have settled may take a while; what wakes by itself never ends.
      try await eventually("three seconds go by without a wake-up") {
        let before = try switches()
        try await Task.sleep(for: .seconds(3))
        return try switches() == before ? () : nil
      }
      try await guardian.stop()
    }
  }
}

enum Tracers {
  /// The kernel tells of tracers alone, without every fork and exit, since 6.6.
  static var kernelTells: Bool {
    var name = utsname()
    guard uname(&name) == 0 else { return false }
    let release = withUnsafeBytes(of: &name.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    let numbers = release.split { !$0.isNumber }.prefix(2).compactMap { Int($0) }
    return numbers.count == 2 && (numbers[0], numbers[1]) >= (6, 6)
  }
}
