import Glibc
import Testing

extension PatientPrograms {
  /// What services say on their notify sockets, and their own reloads: real processes, real datagrams.
  @Suite struct `What a service says` {
    /// A service that does what lines of Python in a FIFO tell it, and writes down what it has to say.
    final class Talker {
      let name: String
      private let fifo: String, notes: String, program: String

      init(_ scratch: Scratch, _ name: String) throws {
        self.name = name
        fifo = scratch.path + "/" + name + ".fifo"
        notes = scratch.path + "/" + name + ".notes"
        program = scratch.path + "/" + name + ".py"
        guard mkfifo(fifo, 0o666) == 0 else { throw Failure.errno(fifo) }
        try Files.write("", to: notes, mode: 0o666)
        try Files.write(
          """
          import array, os, signal, socket, sys, time
          def connect():
            s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            s.connect(os.environ["NOTIFY_SOCKET"])
            return s
          s = connect() if "NOTIFY_SOCKET" in os.environ else None
          def say(text): s.send(text.encode())
          def give(text, fds): s.sendmsg([text.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
          def note(text):
            with open("\(notes)", "a") as f: f.write(str(text) + "\\n")
          def barrier():
            r, w = os.pipe()
            give("BARRIER=1", [w])
            os.close(w)
            return os.read(r, 1) == b""
          hup = lambda: note("hup")
          signal.signal(signal.SIGHUP, lambda *_: hup())
          # Open before it says that it is there, so that nothing it is told is lost.
          orders = os.fdopen(os.open("\(fifo)", os.O_RDWR))
          note("pid " + str(os.getpid()))
          while True:
            line = orders.readline()
            try: exec(line.replace("\\x00", "\\n"), globals())
            except SystemExit: raise
            except BaseException as e: note("error " + repr(e))
          """, to: program)
      }

      func yaml(_ rest: String) -> String {
        let window = rest.contains("startup-window") ? "" : "startup-window: 100ms\n"
        return "command: [/usr/bin/python3, -u, \(program)]\nlog: none\n" + window + rest
      }

      /// Several lines are one program.
      func tell(_ code: String) throws {
        let line = Array((code.split(separator: "\n").joined(separator: "\0") + "\n").utf8)
        let end = open(fifo, O_RDWR | O_CLOEXEC)
        guard end >= 0, write(end, line, line.count) == line.count else { throw Failure.errno(fifo) }
        close(end)
      }

      func isThere() async throws {
        try await eventually("\(name) is there") { heard.contains { $0.hasPrefix("pid") } ? () : nil }
      }
      var heard: [String] { ((try? Files.read(notes)) ?? "").split(separator: "\n").map(String.init) }
      func hears(_ word: String, seconds: Int = 20) async throws {
        try await eventually("\(name) notes \(word)", seconds: seconds) {
          if let error = heard.first(where: { $0.hasPrefix("error") }) { throw Failure(error) }
          return heard.contains(word) ? () : nil
        }
      }
    }
    static let hasPython = access("/usr/bin/python3", X_OK) == 0

    private func alone(_ rest: String, user: String? = nil) async throws -> (Scratch, Guardian, Talker) {
      let scratch = try Scratch()
      let talker = try Talker(scratch, "talker")
      let guardian = try await Guardian(
        scratch, services: ["talker": talker.yaml(rest + (user.map { "user: \($0)\n" } ?? ""))])
      try await talker.isThere()
      return (scratch, guardian, talker)
    }
    private func notes(_ status: JSON) -> String { status["notes"].array.compactMap(\.string).joined(separator: "\n") }
    private func count(of pid: Int32) -> Int { Files.names(in: "/proc/\(pid)/fd").count }

    // MARK: Words

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C1: of no byte, one, 4096, 4097 and 65536 the useless are dropped with one line, and READY=1 works after it`()
      async throws
    {
      let (_, guardian, talker) = try await alone("ready: notify\n")
      try talker.tell(
        """
        for n in [0, 1, 4097, 65536]: s.send(b"STATUS=".ljust(n, b"x")[:n])
        s.send(b"STATUS=the whole of it ".ljust(4096, b"y"))
        note(barrier())
        """)
      try await talker.hears("True")
      let status = try await guardian.status("talker")
      #expect(status["phase"].string == "starting" && notes(status).contains("3 unusable"), "\(status)")
      #expect(status["status_text"].string?.hasPrefix("the whole of it y") == true, "\(status)")
      #expect(guardian.log.split(separator: "\n").count { $0.contains("talker: dropped") } == 1, "\(guardian.log)")
      try talker.tell("say('READY=1')")
      try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func
      `C2: NUL, no =, no key, blanks, CRLF and thousands of lines mean nothing, and the good line among them counts`()
      async throws
    {
      let (_, guardian, talker) = try await alone("ready: notify\n")
      try talker.tell(
        """
        for t in [b"\\0\\0", b"READY", b"=x", b"READY=1\\r\\n", b" READY=1", b"READY =1", b"READY= 1", b"\\n" * 4096, b"A\\n" * 2048, b"x\\0READY=1"]: s.send(t)
        s.send(b"A=1\\n" * 10000)
        note(barrier())
        """)
      try await talker.hears("True")
      #expect(try await guardian.status("talker")["phase"].string == "starting")
      try talker.tell("s.send(b'UNKNOWN=1\\n=x\\n\\nnothing\\nREADY=1\\nready=0')")
      let ready = try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      #expect(ready["restarts"].int == 0 && notes(ready).contains("dropped: 1 unusable notification"), "\(ready)")
      try await guardian.stop()
    }

    /// Why a service manager cannot be told anything.
    enum Deaf: String, CaseIterable { case isNotThere, isNoSocket, doesNotListen }

    @Test(arguments: Deaf.allCases)
    func `C13: where the service manager cannot be told, guardian runs on, says so once, and no child sees its socket`(
      _ deaf: Deaf
    ) async throws {
      let scratch = try Scratch()
      let path = scratch.path + "/manager"
      var manager: Int32 = -1
      defer { if manager >= 0 { close(manager) } }
      if deaf == .doesNotListen {
        // Bound and full.
        manager = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let sender = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(sender) }
        withUnsafePointer(to: &address) {
          $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            let size = socklen_t(MemoryLayout<sockaddr_un>.size)
            #expect(manager >= 0 && bind(manager, $0, size) == 0)
            while sendto(sender, "x", 1, Int32(MSG_DONTWAIT), $0, size) == 1 {}
          }
        }
      }
      let told = scratch.path + "/environment"
      let guardian = try await Guardian(
        scratch,
        services: [
          "web":
            "command: [/bin/sh, -c, \"env >'\(told)'; exec sleep 1000000\"]\nstartup-window: 100ms\nlog: none\n"
        ],
        environment: [
          "NOTIFY_SOCKET": deaf == .isNoSocket ? "nonsense" : path, "WATCHDOG_USEC": "2000000",
        ])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      kill(Int32(try #require(web["pid"].int)), SIGSEGV)
      try await guardian.wait(for: "web", "is there again") { $0["run"] != web["run"] && $0["settled"].bool == true }
      #expect(try await guardian.control("reload").code == 0)
      let environment = try Files.read(told)
      #expect(environment.contains("GUARDIAN_MODE=normal\n") && !environment.contains("NOTIFY_SOCKET"))
      #expect(!environment.contains("WATCHDOG"))
      let lines = guardian.log.split(separator: "\n").filter { $0.contains("the service manager cannot be told") }
      #expect(lines.count == 1, "\(guardian.log)")
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C3: READY=1 twice, and after STOPPING=1, is ignored and counted; STOPPING=1 is shown`() async throws {
      let (_, guardian, talker) = try await alone("ready: notify\nstop: {timeout: 2s}\nrestart: on-crash\n")
      try talker.tell("say('READY=1')\nsay('READY=1')\nsay('READY=1')")
      let ready = try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      #expect(notes(ready).contains("2 notifications came at the wrong time"), "\(ready)")
      try talker.tell("say('STOPPING=1')\nsay('READY=1')")
      let leaving = try await guardian.wait(for: "talker", "is stopping") { $0["phase"].string == "stopping" }
      #expect(leaving["reason"].string == "it says that it is stopping")
      // It does not go, and so it is made to.
      let gone = try await guardian.wait(for: "talker", "has gone") { $0["last_end"]["cause"].string != nil }
      #expect(gone["last_end"]["cause"].string == "watchdog", "\(gone)")
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C3: READY=1 after the process has died, or before the next one is born, makes nobody ready and is counted`()
      async throws
    {
      let (_, guardian, talker) = try await alone("ready: notify\nbackoff: {first: 1s, max: 1s}\n")
      try talker.tell("os._exit(1)")
      try await guardian.wait(for: "talker", "waits") { $0["phase"].string == "backing-off" }
      // By root, or whoever runs this: heard by every service of its own user.
      let late = """
        import socket
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.connect("\(guardian.runtime)/notify/talker")
        for _ in range(3): s.send(b"READY=1")
        """
      #expect(try await run(["/usr/bin/python3", "-c", late]).code == 0)
      try await eventually("it is started again") { talker.heard.count { $0.hasPrefix("pid") } == 2 ? () : nil }
      let next = try await guardian.status("talker")
      #expect(next["phase"].string == "starting" && next["strikes"].int == 1, "\(next)")
      #expect(notes(next).contains("3 notifications came at the wrong time"), "\(next)")
      try talker.tell("say('READY=1')")
      try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `CASES 70, C4: a thousand senders that are gone before anybody looks all count`() async throws {
      let (_, guardian, talker) = try await alone("ready: notify\n")
      try talker.tell(
        """
        for i in range(1000):
          if os.fork() == 0:
            s = connect(); say("STATUS=%d" % i + ("\\nREADY=1" if i == 999 else "")); os._exit(0)
          os.wait()
        note("sent")
        """)
      try await talker.hears("sent", seconds: 60)
      let ready = try await guardian.wait(for: "talker", "is ready") { $0["phase"].string == "running" }
      #expect(ready["status_text"].string == "999", "\(ready)")
      try await guardian.stop()
    }

    @Test(.enabled(if: isRoot && hasPython, "not shown: needs root and python3"))
    func `C4: another user is heard where it is one of the service's own processes, and else not`() async throws {
      let (_, guardian, talker) = try await alone("ready: notify\n")
      // Both have the socket from root; one of them is nobody's.
      let stranger = """
        import os, socket
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.connect("\(guardian.runtime)/notify/talker")
        os.setgid(65534); os.setuid(65534)
        s.send(b"READY=1")
        """
      #expect(try await run(["/usr/bin/python3", "-c", stranger]).code == 0)
      try await guardian.wait(for: "talker", "has dropped it") {
        notes($0).contains("dropped: 1 unusable notification")
      }
      #expect(try await guardian.status("talker")["phase"].string == "starting")
      try talker.tell(
        """
        if os.fork() == 0:
          os.setgid(65534); os.setuid(65534); say("READY=1"); time.sleep(2); os._exit(0)
        """)
      try await guardian.wait(for: "talker", "is ready") { $0["phase"].string == "running" }
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C5: MAINPID of nobody, of guardian, of a stranger, of the dead and of no number is refused`() async throws {
      let (_, guardian, talker) = try await alone("ready: notify\n")
      let before = try await guardian.status("talker")["pid"].int
      try talker.tell("say('READY=1')")
      try talker.tell(
        """
        p = os.fork()
        if p == 0: os._exit(0)
        os.wait()
        for n in ["0", "1", "-1", "x", "", "\(guardian.process.pid)", "\(getpid())", str(p), "2147483647"]: say("MAINPID=" + n)
        note(barrier())
        """)
      try await talker.hears("True")
      let status = try await guardian.status("talker")
      #expect(status["pid"].int == before && notes(status).contains("9 unusable"), "\(status)")
      #expect(guardian.log.contains("which is no process of this service"))
      #expect(isAlive(getpid()) && isAlive(guardian.process.pid))
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C5: MAINPID of a child makes that one's end the run's end, and the rest goes with it`() async throws {
      let (_, guardian, talker) = try await alone("ready: notify\nrestart: on-crash\n")
      try talker.tell(
        """
        say("READY=1")
        child = os.fork()
        if child == 0:
          signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
          while True: signal.pause()
        say("MAINPID=%d" % child)
        note(barrier())
        """)
      try await talker.hears("True")
      let moved = try await guardian.wait(for: "talker", "is settled") { $0["settled"].bool == true }
      let first = try #require(talker.heard.first.flatMap { Int32($0.dropFirst(4)) })
      let child = try #require(moved["pid"].int.map { Int32($0) })
      #expect(child != first && isAlive(first))
      let starts = talker.heard.count { $0.hasPrefix("pid") }
      kill(child, SIGUSR1)
      // Its parent has to reap it before anybody is told how it went.
      try talker.tell("os.wait()")
      try await eventually("it is started again") { talker.heard.count { $0.hasPrefix("pid") } > starts ? () : nil }
      let after = try await guardian.status("talker")
      #expect(!isAlive(first))
      #expect([7, nil].contains(after["last_end"]["code"].int), "\(after)")
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `a daemon that forks, says MAINPID and lets its parent go has not died`() async throws {
      let (_, guardian, talker) = try await alone("ready: notify\nrestart: never\n")
      try talker.tell(
        """
        if os.fork() > 0: time.sleep(1000)
        os.setsid()
        os.kill(os.getppid(), 0)
        say("MAINPID=%d\\nREADY=1" % os.getpid())
        note(barrier())
        os.kill(os.getppid(), signal.SIGTERM)
        note("alone")
        """)
      try await talker.hears("alone")
      let first = try #require(talker.heard.first.flatMap { Int32($0.dropFirst(4)) })
      try await eventually("its parent has gone") { isAlive(first) ? nil : () }
      try await Task.sleep(for: .milliseconds(300))
      let status = try await guardian.status("talker")
      #expect(status["phase"].string == "running" && status["last_end"]["cause"].string == nil, "\(status)")
      let child = try #require(status["pid"].int.map { Int32($0) })
      // The next guardian knows it, too.
      guardian.kill()
      try await guardian.startAgain()
      let adopted = try await guardian.wait(for: "talker", "is adopted") { $0["phase"].string == "running" }
      #expect(adopted["pid"].int == Int(child))
      kill(child, SIGKILL)
      try await guardian.wait(for: "talker", "has ended") { $0["phase"].string == "finished" }
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C6: WATCHDOG_USEC in range sets another pace, out of range is dropped, and trigger is a death`() async throws
    {
      let (_, guardian, talker) = try await alone("ready: notify\nwatchdog: 20s\nrestart: on-crash\n")
      try talker.tell(
        "say('READY=1')\nfor v in ['0', '1', '18446744073709551615', 'x']: say('WATCHDOG_USEC=' + v)\nnote(barrier())")
      try await talker.hears("True")
      #expect(notes(try await guardian.status("talker")).contains("4 unusable"))
      try talker.tell("say('WATCHDOG_USEC=300000')")
      try await guardian.wait(for: "talker", "was ended", seconds: 10) { $0["last_end"]["cause"].string == "watchdog" }
      try await eventually("it is started again") { talker.heard.count { $0.hasPrefix("pid") } == 2 ? () : nil }
      try talker.tell("say('READY=1\\nWATCHDOG=trigger')")
      try await guardian.wait(for: "talker", "was ended twice", seconds: 10) { $0["restarts"].int == 2 }
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C8: STATUS of broken UTF-8, escapes and great length is bounded and harmless wherever it is shown`()
      async throws
    {
      let (_, guardian, talker) = try await alone("ready: notify\n")
      try talker.tell("s.send(b'STATUS=\\xff\\xfe\\x1b[31mred\\x07 ' + b'y' * 3000)\nnote(barrier())")
      try await talker.hears("True")
      let text = try #require(try await guardian.status("talker")["status_text"].string)
      #expect(text.contains("red") && text.utf8.count < 300 && !text.unicodeScalars.contains { $0.value < 32 })
      try talker.tell("say('ERRNO=2')\nnote('said')")
      let reports = try await guardian.wait(for: "talker", "reports") { notes($0).contains("ENOENT") }
      #expect(notes(reports).contains("no such file or directory"))
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C9: descriptors are closed, whatever they came with, and a barrier is lifted when all before it is handled`()
      async throws
    {
      let (_, guardian, talker) = try await alone("ready: notify\n")
      try talker.tell("say('READY=1')\nnote(barrier())")
      try await talker.hears("True")
      // Everything before the barrier has been handled: no waiting.
      #expect(try await guardian.status("talker")["phase"].string == "running")
      let before = count(of: guardian.process.pid)
      try talker.tell(
        """
        fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(250)]
        for _ in range(20): give("FDSTORE=1\\nFDNAME=x", fds)
        for _ in range(20): give("STATUS=x", fds[:3])
        say("BARRIER=1"); give("BARRIER=1", fds[:2]); give("BARRIER=1\\nSTATUS=y", fds[:1])
        for fd in fds: os.close(fd)
        note("again " + str(barrier()))
        """)
      try await talker.hears("again True")
      try await eventually("no descriptor is left behind") { count(of: guardian.process.pid) <= before ? () : nil }
      let status = try await guardian.status("talker")
      #expect(notes(status).contains("3 unusable"), "\(status)")
      #expect(guardian.log.contains("keeps no descriptors"))
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C10: a million datagrams of one service delay neither the words of another nor its death`() async throws {
      let scratch = try Scratch()
      let loud = try Talker(scratch, "loud"), quiet = try Talker(scratch, "quiet")
      let guardian = try await Guardian(
        scratch,
        services: [
          "loud": loud.yaml("ready: notify\n"),
          "quiet": quiet.yaml("ready: notify\nbackoff: {first: 0s}\nescalation: off\n"),
        ])
      try await loud.isThere()
      try await quiet.isThere()
      // For as long as the others are asked; what it manages to send is not ours to say.
      try loud.tell(
        """
        note("floods")
        until = time.time() + 10
        n = 0
        while n < 1000000 and time.time() < until:
          for t in (b"READY=1", b"RELOADING=1", b"STATUS=loud", b"WATCHDOG=1", b"EXTEND_TIMEOUT_USEC=9", b"MAINPID=1"):
            s.send(t); n += 1
        note("sent")
        """)
      try await loud.hears("floods")
      var worst = Duration.zero
      let clock = ContinuousClock()
      for round in 1...5 {
        try quiet.tell(
          "say('READY=1')\nt = time.time(); ok = barrier(); note('%d %s' % (\(round), ok and time.time() - t < 0.5))")
        try await quiet.hears("\(round) True")
        let starts = quiet.heard.count { $0.hasPrefix("pid") }
        let began = clock.now
        let pid = try #require(quiet.heard.last { $0.hasPrefix("pid") }.flatMap { Int32($0.dropFirst(4)) })
        kill(pid, SIGKILL)
        try await eventually("it is started again") { quiet.heard.count { $0.hasPrefix("pid") } > starts ? () : nil }
        worst = max(worst, clock.now - began)
        #expect(try await guardian.control("status", seconds: 10).output.contains("loud"))
      }
      #expect(worst < .seconds(3), "\(worst)")
      try await loud.hears("sent", seconds: 30)
      let status = try await guardian.status("loud")
      #expect(notes(status).contains("unusable") && notes(status).contains("wrong time"), "\(status)")
      #expect(status["restarts"].int == 0)
      // What is dropped is said once a minute, and nobody's history is full of it.
      #expect(guardian.log.split(separator: "\n").count < 600)
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `C11: what was said while guardian was stopped is handled in order when it goes on, and no watchdog bites`()
      async throws
    {
      let (_, guardian, talker) = try await alone("ready: notify\nwatchdog: 2s\n")
      try talker.tell("say('READY=1')\nnote(barrier())")
      try await talker.hears("True")
      let run = try await guardian.status("talker")["run"].string
      kill(guardian.process.pid, SIGSTOP)
      try talker.tell(
        "s.setblocking(False)\nfor i in range(2000):\n  try: say('WATCHDOG=1\\nSTATUS=%d' % i); last = i\n  except BlockingIOError: break\nnote('full')"
      )
      try await talker.hears("full")
      try await Task.sleep(for: .seconds(4))
      kill(guardian.process.pid, SIGCONT)
      try talker.tell("s.setblocking(True)\nbarrier(); note('last %d' % last)")
      try await eventually("all is read") { talker.heard.contains { $0.hasPrefix("last") } ? () : nil }
      let status = try await guardian.status("talker")
      #expect(status["run"].string == run)
      #expect(talker.heard.last == "last \(status["status_text"].string ?? "?")")
      try await guardian.stop()
    }

    // MARK: Reload

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `guardianctl reload NAME sends the signal, and of a service that tells waits for READY=1`() async throws {
      let (_, guardian, talker) = try await alone("ready: notify\nreload: HUP\nstart-timeout: 20s\n")
      let early = try await guardian.control("reload", "talker")
      #expect(early.code == 1 && early.error.contains("not ready yet"), "\(early)")
      try talker.tell(
        """
        def hup():
          say("RELOADING=1\\nMONOTONIC_USEC=%d" % (time.monotonic_ns() // 1000)); time.sleep(1); note("read"); say("READY=1")
        say("READY=1")
        """)
      let before = try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      let done = try await guardian.control("reload", "talker")
      #expect(done.code == 0 && done.output == "talker: reloaded\n", "\(done)")
      #expect(talker.heard.last == "read")
      let after = try await guardian.status("talker")
      #expect(after["run"] == before["run"] && after["restarts"].int == 0 && after["settled"].bool == true)
      // One that does not say that it is done.
      try talker.tell("hup = lambda: say('RELOADING=1')")
      _ = try await guardian.control("reload", "--no-wait", "talker")
      let shown = try await guardian.wait(for: "talker", "reloads") { $0["reason"].string == "reloading" }
      #expect(shown["phase"].string == "running" && shown["next"]["action"].string == "give-up-reload")
      try talker.tell("say('READY=1')")
      try await guardian.wait(for: "talker", "is done") { $0["reason"].string == "" }
      // By itself.
      try talker.tell("say('RELOADING=1')")
      try await guardian.wait(for: "talker", "reloads by itself") { $0["reason"].string == "reloading by itself" }
      try talker.tell("os._exit(3)")
      try await eventually("it is started again") { talker.heard.count { $0.hasPrefix("pid") } == 2 ? () : nil }
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `a reload by command knows the main process, is waited for, and fails when it fails, hangs or is not there`()
      async throws
    {
      let scratch = try Scratch()
      let talker = try Talker(scratch, "talker")
      let script = scratch.path + "/reload.sh"
      try Files.write("#!/bin/sh\nkill -HUP $MAINPID && test \"$GUARDIAN_HOOK\" = reload\n", to: script, mode: 0o755)
      let guardian = try await Guardian(
        scratch,
        services: [
          "talker": talker.yaml("reload: [\(script)]\nstart-timeout: 2s\nready: notify\n"),
          "plain": "command: [/bin/sleep, \"1000000\"]\nlog: none\n",
        ])
      try await talker.isThere()
      try talker.tell("say('READY=1')")
      try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      let done = try await guardian.control("reload", "talker")
      #expect(done.code == 0, "\(done)")
      try await talker.hears("hup")
      let plain = try await guardian.control("--json", "reload", "talker", "plain")
      let json = try JSON(plain.output)
      #expect(plain.code == 1 && json["results"].array.map { $0["done"].bool } == [true, false], "\(plain)")
      #expect(plain.output.contains("no reload"))
      try Files.write("#!/bin/sh\nexit 3\n", to: script, mode: 0o755)
      let failed = try await guardian.control("reload", "talker")
      #expect(failed.code == 1 && failed.error.contains("exit 3"), "\(failed)")
      try Files.write("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n", to: script, mode: 0o755)
      let late = try await guardian.control("reload", "talker")
      #expect(late.code == 1 && late.error.contains("did not end within"), "\(late)")
      unlink(script)
      let missing = try await guardian.control("reload", "talker")
      #expect(missing.code == 1 && missing.error.contains("no such file"), "\(missing)")
      let after = try await guardian.status("talker")
      #expect(after["settled"].bool == true && after["restarts"].int == 0)
      #expect(notes(after).contains("its last reload failed"), "\(after)")
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `a reload under way survives guardian's death and its upgrade, and the client of the upgrade gets its answer`()
      async throws
    {
      let scratch = try Scratch()
      let talker = try Talker(scratch, "talker")
      let go = scratch.path + "/go"
      let guardian = try await Guardian(
        scratch,
        services: [
          "talker": talker.yaml(
            "reload: [/bin/sh, -c, \"touch \(scratch.path)/begun; while ! test -e \(go); do sleep 0.05; done; exit 0\"]\n"
          )
        ])
      try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      func reload(_ output: String) throws -> Process {
        try Process(
          [Place.products + "/guardianctl", "--runtime", guardian.runtime, "reload", "talker"],
          output: scratch.path + "/" + output)
      }
      let waiting = try reload("first")
      try await eventually("the command runs") { Files.exists(scratch.path + "/begun") ? () : nil }
      let upgraded = try await guardian.control("upgrade")
      #expect(upgraded.code == 0, "\(upgraded)")
      #expect(try await guardian.status("talker")["reason"].string == "reloading")
      guardian.kill()
      try await guardian.startAgain()
      #expect(try await guardian.wait(for: "talker", "reloads") { $0["reason"].string == "reloading" } != .null)
      #expect(try await waiting.wait() != 0)  // its guardian was killed
      try Files.write("", to: go)
      try await guardian.wait(for: "talker", "is done") { $0["reason"].string == "" }
      unlink(go)
      let again = try reload("second")
      try await guardian.wait(for: "talker", "reloads") { $0["reason"].string == "reloading" }
      #expect(try await guardian.control("upgrade").code == 0)
      try Files.write("", to: go)
      #expect(try await again.wait() == 0)
      #expect(try Files.read(scratch.path + "/second") == "talker: reloaded\n")
      try await guardian.stop()
    }

    // MARK: A newline

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `a newline on its descriptor makes it ready, also when guardian was killed before, and no SIGPIPE ends it`()
      async throws
    {
      let (_, guardian, talker) = try await alone("ready: {fd: 7}\nstart-timeout: 60s\nstartup-window: 60s\n")
      #expect(try await guardian.status("talker")["phase"].string == "starting")
      guardian.kill()
      // Said while nobody listens.
      try talker.tell(
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nos.write(7, b'a word without an end')\nos.write(7, b'\\n')\nnote('said')"
      )
      try await talker.hears("said")
      try await guardian.startAgain()
      let ready = try await guardian.wait(for: "talker", "is ready") { $0["phase"].string == "running" }
      #expect(ready["restarts"].int == 0 && ready["reason"].string == "", "\(ready)")
      try await guardian.stop()
    }

    @Test(.enabled(if: hasPython, "not shown: python3 is not there"))
    func `a newline that went with its descriptor while guardian was away is not known, and the run settles by age`()
      async throws
    {
      let (_, guardian, talker) = try await alone("ready: {fd: 7}\nstart-timeout: 60s\nstartup-window: 3s\n")
      guardian.kill()
      try talker.tell("os.write(7, b'\\n')\nos.close(7)\nnote('said')")
      try await talker.hears("said")
      try await guardian.startAgain()
      let unknown = try await guardian.status("talker")
      #expect(unknown["reason"].string?.contains("readiness unknown") ?? false, "\(unknown)")
      try await guardian.wait(for: "talker", "settles") { $0["settled"].bool == true }
      try await guardian.stop()
    }

    @Test func `a descriptor that closes without a newline says nothing, and start-timeout decides`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "mute": """
          command: [/bin/sh, -c, "exec 5>&-; exec sleep 1000000"]
          ready: {fd: 5}
          start-timeout: 1s
          restart: on-crash
          backoff: {first: 1h, max: 1h}
          log: none
          """
        ])
      let late = try await guardian.wait(for: "mute", "is given up") { $0["phase"].string == "backing-off" }
      #expect(late["last_end"]["cause"].string == "start-timeout", "\(late)")
      try await guardian.stop()
    }
  }
}
