import Glibc
import Testing

/// What stands between a program and the kernel in these tests: Tests/Support/without.c and bad-day.c.
enum Between {
  private static func build(_ file: String, _ options: [String], to path: String) async throws {
    let compiler = try #require(Place.program("clang") ?? Place.program("cc") ?? Place.program("gcc"))
    let built = try await run(
      [compiler, "-O1"] + options + ["-o", path, Place.repository + "/Tests/Support/" + file, "-ldl"])
    guard built.code == 0 else { throw Failure("\(built)") }
  }

  /// What to put before a command that is to do without some calls of the kernel.
  static func filter(_ scratch: Scratch, _ rules: [String]) async throws -> [String] {
    try await build("without.c", [], to: scratch.path + "/without")
    return [scratch.path + "/without"] + rules + ["--"]
  }

  /// The environment in which calls of the C library have a bad day.
  static func badDay(_ scratch: Scratch, _ what: String) async throws -> [String: String] {
    try await build("bad-day.c", ["-shared", "-fPIC"], to: scratch.path + "/bad-day.so")
    return [
      "LD_PRELOAD": scratch.path + "/bad-day.so", "BAD_DAY": what, "BAD_DAY_FILE": scratch.path + "/bad-day-is-here",
    ]
  }
}

/// A group of version 1 or 2 with a limit of memory, in which a guardian and all of its services are.
private final class MemoryGroup {
  let path: String
  private let limit: String
  private static let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
  static let missing: String? = {
    guard isRoot else { return "a limit of memory needs root" }
    if Programs.isSanitized { return "a sanitized program has its memory elsewhere" }
    return MemoryGroup() == nil ? "no memory controller can be had" : nil
  }()

  init?() {
    for (root, limit) in Self.places {
      let path = root + "/guardian-test-\(getpid())-\(UInt32.random(in: 0 ... .max))"
      guard mkdir(path, 0o755) == 0 else { continue }
      if access(path + "/" + limit, W_OK) == 0 {
        self.path = path
        self.limit = limit
        return
      }
      rmdir(path)
    }
    return nil
  }
  deinit { for _ in 0..<100 where rmdir(path) != 0 { usleep(20_000) } }

  func allow(_ bytes: Int) throws { try Files.put(String(bytes), to: path + "/" + limit) }
}

extension Programs {
  fileprivate static let isSanitized = getenv("TSAN_OPTIONS") != nil

  /// The kernel refuses, is short of something, is old, or is asked through somebody who is no help.
  @Suite struct `the kernel and what it has` {
    private let steady = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    // MARK: Memory

    @Test func `E3: a start for which there is no memory waits, is no strike, and is named`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": steady],
        wrappedIn: try await Between.filter(scratch, ["clone3:ENOMEM:88"]))
      let waiting = try await guardian.wait(for: "web", "waits") { $0["phase"].string == "waiting" }
      #expect(waiting["reason"].string?.contains("not enough memory for a process") == true, "\(waiting)")
      #expect(
        waiting["strikes"].int == 0 && waiting["restarts"].int == 0 && waiting["next"]["action"].string == "start")
      // It is tried again, less and less often.
      let tries = guardian.log.split(separator: "\n").count { $0.contains("web: ") && $0.contains("memory") }
      #expect(tries < 10)
      guardian.kill()
      guardian.unwrap()
      try await guardian.startAgain()
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(web["strikes"].int == 0, "\(web)")
      try await guardian.stop()
    }

    @Test(.enabled(if: !isSanitized, "not shown: a sanitized program has its memory elsewhere"))
    func `E3: a guardian that gets no memory itself ends at once; the next one takes all over, and nothing is lost`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": steady, "off": steady,
          "sick": "command: [/bin/false]\nescalation: {restart: 3}\nbackoff: {first: 1h, max: 1h}\nlog: none\n",
        ])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try await guardian.wait(for: "sick", "has a strike") {
        $0["strikes"].int == 1 && $0["phase"].string == "backing-off"
      }
      #expect(try await guardian.control("stop", "off").code == 0)
      // What it has it may keep; it gets no more.
      #expect(
        try await run(["/usr/bin/prlimit", "--pid", String(guardian.process.pid), "--as=1000000"]).code == 0)
      let much = (0..<60).map { "  V\($0): \"\(String(repeating: "v", count: 4_000))\"\n" }.joined()
      for number in 0..<60 { try guardian.configure("more\(number)", steady + "start: manual\nenvironment:\n" + much) }
      let code = try await eventually("guardian has ended") { () async throws -> Int32? in
        kill(guardian.process.pid, SIGHUP)
        return guardian.process.poll()
      }
      #expect(code > 128, "it ended with \(code), by its own fault: \(guardian.log.suffix(500))")
      #expect(isAlive(Int32(try #require(web["pid"].int))))
      try await guardian.startAgain()
      let after = try await guardian.status("web")
      #expect(after["run"] == web["run"] && after["settled"].bool == true, "\(after)")
      #expect(try await guardian.status("sick")["strikes"].int == 1)
      #expect(try await guardian.status("off")["wanted"].string == "down")
      try await guardian.stop()
    }

    @Test(.enabled(if: MemoryGroup.missing == nil, "not shown: \(MemoryGroup.missing ?? "")"))
    func
      `E4: want of memory ends the service or the repair that wants too much, is told as the cause, and spares guardian`()
      async throws
    {
      let group = try #require(MemoryGroup())
      try group.allow(160 << 20)
      let scratch = try Scratch()
      let hungry = """
        command: [/bin/bash, -c, "s=x; while :; do s=$s$s; done"]
        startup-window: 1h
        escalation: {restart: 1, repair: 1, safe-mode: 1}
        backoff: {first: 10ms, max: 10ms}
        log: none
        oom-score-adjust: 500
        repair:
          - {name: eats, run: [/bin/bash, -c, "s=x; while :; do s=$s$s; done"], timeout: 20s}

        """
      let guardian = try await Guardian(
        scratch, services: ["web": steady, "hungry": hungry],
        // A better score than its own, as by the unit, needs a right that root may lack in a container.
        wrappedIn: [
          "/bin/sh", "-c",
          "echo $$ >'\(group.path)/cgroup.procs'; choom -n -900 -p $$ >/dev/null 2>&1; exec \"$@\"", "sh",
        ])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(["-900\n", "0\n"].contains(try Files.read("/proc/\(guardian.process.pid)/oom_score_adj")))
      #expect(try Files.read("/proc/\(try #require(web["pid"].int))/oom_score_adj") == "0\n")
      let dead = try await guardian.wait(for: "hungry", "is given up", seconds: 60) {
        $0["phase"].string == "quarantined"
      }
      // With a group of version 2 of its own it would be known, and not only likely.
      #expect(["oom", "oom?"].contains(dead["last_end"]["cause"].string), "\(dead)")
      let notes = dead["notes"].array.compactMap(\.string).joined(separator: "\n")
      #expect(notes.contains("eats failed: SIGKILL"), "\(notes)")
      #expect(guardian.process.poll() == nil)
      #expect(try await guardian.status("web")["run"] == web["run"])
      // Guardian itself: to the kernel's SIGKILL there is no answer but the next guardian.
      guardian.kill()
      try await guardian.startAgain()
      let adopted = try await guardian.status("web")
      #expect(adopted["run"] == web["run"] && adopted["pid"] == web["pid"])
      try await guardian.stop()
    }

    // MARK: Space

    @Test(.enabled(if: isRoot, "not shown: a small file system of one's own needs root"))
    func `E5: a runtime directory without room stops nothing that runs, and what needs a socket waits for it`()
      async throws
    {
      let scratch = try Scratch()
      for directory in ["config", "config/services", "state", "run"] { _ = try scratch.directory(directory) }
      let services = scratch.path + "/config/services/"
      try Files.write(steady, to: services + "web.yaml")
      // The file system is that of guardian's own namespace, and is seen from here through its root.
      let guardian = try Process(
        [
          "/usr/bin/unshare", "--mount", "/bin/sh", "-c",
          "mount -t tmpfs -o nr_inodes=40,size=1m,mode=755 tmpfs '\(scratch.path)/run' && exec \"$@\"", "sh",
          Place.products + "/guardian", "--config", scratch.path + "/config", "--state", scratch.path + "/state",
          "--runtime", scratch.path + "/run",
        ], output: scratch.path + "/log")
      let runtime = "/proc/\(guardian.pid)/root\(scratch.path)/run"
      func control(_ arguments: String...) async throws -> (code: Int32, output: String, error: String) {
        if let code = guardian.poll() {
          throw Failure("it ended with \(code): \((try? Files.read(scratch.path + "/log")) ?? "")")
        }
        return try await run([Place.products + "/guardianctl", "--runtime", runtime] + arguments)
      }
      func wait(_ name: String, _ what: String, _ condition: (JSON) -> Bool) async throws -> JSON {
        var last = JSON.null
        do {
          return try await eventually("\(name) \(what)") {
            guard let answer = try? JSON(await control("--json", "status", name).output) else { return nil }
            last = answer["services"].array.first ?? .null
            return condition(last) ? last : nil
          }
        } catch { throw Failure("\(error): \(last)") }
      }
      let web = try await wait("web", "settles") { $0["settled"].bool == true }
      var fillers = 0
      while fillers < 100, (try? Files.write("", to: runtime + "/filler\(fillers)")) != nil { fillers += 1 }
      #expect(fillers > 5 && fillers < 40)
      try Files.write(
        "command: [/bin/sleep, \"1000000\"]\nready: notify\nstart-timeout: 1h\nlog: none\n", to: services + "talks.yaml"
      )
      #expect(try await control("reload").code == 0)
      let waiting = try await wait("talks", "waits") { $0["phase"].string == "waiting" }
      #expect(waiting["strikes"].int == 0 && waiting["reason"].string?.contains("no space") == true, "\(waiting)")
      kill(Int32(try #require(web["pid"].int)), SIGSEGV)
      _ = try await wait("web", "is there again") { $0["run"] != web["run"] && $0["settled"].bool == true }
      for number in 0..<fillers { unlink(runtime + "/filler\(number)") }
      let born = try await wait("talks", "is born") { $0["phase"].string == "starting" }
      #expect(born["strikes"].int == 0 && born["restarts"].int == 0)
      kill(guardian.pid, SIGTERM)
      #expect(try await guardian.wait() == 0)
      #expect(processes { pid, _, line in pid != getpid() && line.contains(scratch.path) }.isEmpty)
    }

    // MARK: Calls

    @Test func `E8: where every call is interrupted or does a byte at a time, all goes its way`() async throws {
      let scratch = try Scratch()
      try Files.write("GREETING=hello\n", to: scratch.path + "/environment")
      let fixed = scratch.path + "/fixed"
      let sick = """
        command: [/bin/sh, -c, "test -e '\(fixed)' && exec sleep 1000000; exit 3"]
        startup-window: 200ms
        backoff: {first: 10ms, max: 10ms}
        escalation: {restart: 1}
        log: none
        repair:
          - {name: cure, run: [/bin/sh, -c, "cat >'\(scratch.path)/crash'; touch '\(fixed)'"], timeout: 20s}

        """
      let tells = """
        command: [/bin/sh, -c, "echo $GREETING >'\(scratch.path)/greeting'; echo >&3; exec sleep 1000000"]
        environment-file: [\(scratch.path)/environment]
        before-start: [/bin/true]
        ready: {fd: 3}
        startup-window: 100ms
        log: none
        checks:
          - {name: fine, exec: [/bin/true], every: 1s}

        """
      let guardian = try await Guardian(
        scratch, services: ["sick": sick, "tells": tells, "web": steady],
        environment: try await Between.badDay(scratch, "short"))
      var runs: [String: JSON] = [:]
      for name in ["sick", "tells", "web"] {
        runs[name] = try await guardian.wait(for: name, "settles", seconds: 60) { $0["settled"].bool == true }["run"]
      }
      #expect(try Files.read(scratch.path + "/greeting") == "hello\n")
      // The crash has come to its repair whole.
      let crash = try JSON(try Files.read(scratch.path + "/crash"))
      #expect(crash["service"].string == "sick" && crash["end"]["code"].int == 3, "\(crash)")
      try guardian.configure("web", steady + "restart: on-crash\n")
      let reload = try await guardian.control("--json", "reload")
      #expect(try JSON(reload.output)["changed"].array.compactMap(\.string) == ["web"], "\(reload)")
      #expect(try await guardian.control("upgrade").code == 0, "\(guardian.log)")
      #expect(try await guardian.control("version").output.contains("durable"))
      guardian.kill()
      try await guardian.startAgain()
      for (name, run) in runs {
        let adopted = try await guardian.wait(for: name, "is adopted") { $0["settled"].bool == true }
        #expect(adopted["run"] == run, "\(adopted)")
      }
      kill(Int32(try #require(try await guardian.status("web")["pid"].int)), SIGSEGV)
      try await guardian.wait(for: "web", "is there again") { $0["run"] != runs["web"] && $0["settled"].bool == true }
      #expect(!guardian.log.contains("lost") && !guardian.log.contains("damaged"), "\(guardian.log)")
      try await guardian.stop()
    }

    enum Refusal: String, CaseIterable { case ENOSYS, EPERM }

    @Test(arguments: Refusal.allCases)
    func `E10: without clone3, pidfds, close_range and memfd it says so, and does all by other means`(
      _ refusal: Refusal
    ) async throws {
      let scratch = try Scratch()
      let calls = ["clone3", "pidfd_open", "pidfd_send_signal", "close_range", "memfd_create"]
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": steady,
          // Leaves somebody behind in a session of its own.
          "family":
            "command: [/bin/sh, -c, \"setsid sleep 1000002 & exec sleep 1000000\"]\nstartup-window: 100ms\nlog: none\n",
        ],
        wrappedIn: try await Between.filter(
          scratch,
          (calls + ["execveat"]).map { "\($0):\(refusal)" + ($0 == "clone3" && refusal == .EPERM ? ":88" : "") }))
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try await guardian.wait(for: "family", "settles") { $0["settled"].bool == true }
      let version = try JSON(try await guardian.control("--json", "version").output)
      let kernel =
        version["guarantees"]["kernel"].string ?? version["daemon"]["guarantees"]["kernel"].string ?? "\(version)"
      for call in calls {
        #expect(kernel.contains("no \(call)"), "\(kernel)")
        #expect(guardian.log.contains("\(call) is not to be had"), "\(guardian.log)")
      }
      // Nothing leaks into a child, and a child's end is heard of.
      #expect(Files.names(in: "/proc/\(try #require(web["pid"].int))/fd") == ["0", "1", "2"])
      kill(Int32(try #require(web["pid"].int)), SIGSEGV)
      let second = try await guardian.wait(for: "web", "is there again") {
        $0["run"] != web["run"] && $0["settled"].bool == true
      }
      let upgraded = try await guardian.control("upgrade")
      #expect(upgraded.code == 0, "\(upgraded) \(guardian.log)")
      #expect(try await guardian.status("web")["run"] == second["run"])
      guardian.kill()
      try await guardian.startAgain()
      let adopted = try await guardian.status("web")
      #expect(adopted["run"] == second["run"] && adopted["pid"] == second["pid"], "\(adopted)")
      kill(Int32(try #require(adopted["pid"].int)), SIGKILL)
      try await guardian.wait(for: "web", "is there again") { $0["run"] != second["run"] && $0["settled"].bool == true }
      // One that is guardian's child again, one that is not.
      #expect(try await guardian.control("stop", "web").code == 0)
      #expect(try await guardian.control("stop", "family").code == 0)
      #expect(processes { _, _, line in line == "sleep 1000002" }.isEmpty)
      try await guardian.stop()
    }

    // MARK: Control groups

    struct Tree: CustomTestStringConvertible {
      var text: String, script: String
      var testDescription: String { text }
    }
    static let trees = [
      Tree(text: "read-only", script: "mount -o remount,bind,ro '\(Groups.mount ?? "")'"),
      Tree(text: "not mounted", script: "umount -l '\(Groups.mount ?? "")'"),
      Tree(text: "version 1 alone", script: "mount -t tmpfs tmpfs '\(Groups.mount ?? "")'"),
    ]
    private static let ownMounts: String? = {
      guard isRoot else { return "mounts of one's own need root" }
      if let why = Groups.missing { return why }
      return (try? Process(["/usr/bin/unshare", "--mount", "/bin/true"]).waitBlocking()) == 0
        ? nil : "mounts of one's own cannot be had"
    }()

    @Test(.enabled(if: ownMounts == nil, "not shown: \(ownMounts ?? "")"), arguments: trees)
    func `E11: where control groups are of no use it goes by sessions, says why, and no service is charged`(
      _ tree: Tree
    )
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": steady + "limits: {memory: 1G}\n"],
        wrappedIn: ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", tree.script + " && exec \"$@\"", "sh"])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      #expect(web["strikes"].int == 0 && web["restarts"].int == 0)
      #expect(
        web["notes"].array.contains { $0.string?.contains("are not in force: no control groups") == true }, "\(web)")
      let version = try await guardian.control("version").output
      #expect(version.contains("(no control groups: "), "\(version)")
      #expect(try await guardian.control("restart", "web").code == 0)
      try await guardian.stop()
    }

    @Test(.enabled(if: ownMounts == nil, "not shown: \(ownMounts ?? "")"))
    func
      `E11: groups that are taken away, in use or refused later cost no strike, and the service is born all the same`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": steady],
        wrappedIn: ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", "exec \"$@\"", "sh"])
      let groups = try #require(guardian.groups)
      var web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      func dies(_ what: String) async throws {
        kill(Int32(try #require(web["pid"].int)), SIGSEGV)
        let old = web
        web = try await guardian.wait(for: "web", "is there again: \(what)") {
          $0["run"] != old["run"] && $0["settled"].bool == true
        }
        #expect(web["strikes"].int == 0 && web["step"].string == "restart", "\(what): \(web)")
      }
      /// The one that the next run is to be born in.
      func next() throws -> String {
        let pid = Int32(try #require(web["pid"].int))
        let names = ["service.web", "service.web:next"]
        return groups + "/" + (names.first { !Groups.processes(groups + "/" + $0).contains(pid) } ?? "")
      }
      try await eventually("the next group is ready") { try Files.exists(next()) ? () : nil }
      rmdir(try next())
      try await dies("it was taken away")
      // Somebody else's process sits in it, in a group of its own below.
      try await eventually("the next group is ready") { try Files.exists(next()) ? () : nil }
      let place = try next()
      rmdir(place)
      mkdir(place, 0o755)
      mkdir(place + "/theirs", 0o755)
      let other = try Process(["/bin/sleep", "1000003"])
      try Files.put(String(other.pid), to: place + "/theirs/cgroup.procs")
      try await dies("somebody is in it")
      // From now on the kernel refuses all of it.
      let mount = try #require(Groups.mount)
      let closed = try await run([
        "/usr/bin/nsenter", "--target", String(guardian.process.pid), "--mount", "--", "/bin/mount", "-o",
        "remount,bind,ro", mount,
      ])
      #expect(closed.code == 0, "\(closed)")
      try await dies("the tree is read-only, and the next group was there")
      try await dies("the tree is read-only, and no group was there")
      try await guardian.stop()
    }

    // MARK: Watches

    struct Limit: CustomTestStringConvertible {
      var name: String
      var testDescription: String { name }
    }
    private static let ownUsers: String? = {
      let own = try? Process([
        "/usr/bin/unshare", "--user", "--map-root-user", "/bin/sh", "-c", "echo 0 >/proc/sys/user/max_inotify_watches",
      ]).waitBlocking()
      return own == 0 ? nil : "users of one's own, with limits of their own, cannot be had"
    }()

    @Test(
      .enabled(if: ownUsers == nil, "not shown: \(ownUsers ?? "")"),
      arguments: [Limit(name: "max_inotify_watches"), Limit(name: "max_inotify_instances")])
    func `E12: at the limit of watches a service says that its program is not watched, and a reload looks`(
      _ limit: Limit
    ) async throws {
      let scratch = try Scratch()
      let program = scratch.path + "/program"
      let guardian = try await Guardian(
        scratch, services: ["late": "command: [\(program)]\nstartup-window: 100ms\nlog: none\n", "web": steady],
        wrappedIn: [
          "/usr/bin/unshare", "--user", "--map-root-user", "/bin/sh", "-c",
          "echo 0 >/proc/sys/user/\(limit.name); exec \"$@\"", "sh",
        ])
      let what = limit.name == "max_inotify_watches" ? "fs.inotify.max_user_watches" : "fs.inotify.max_user_instances"
      try await guardian.wait(for: "late", "is missing, and says that nobody watches") {
        let notes = $0["notes"].array.compactMap(\.string).joined(separator: "\n")
        return $0["phase"].string == "quarantined" && notes.contains("its program is not watched")
          && notes.contains(what)
      }
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try Files.write("#!/bin/sh\nexec sleep 1000000\n", to: program, mode: 0o755)
      #expect(try await guardian.control("reload").code == 0)
      try await guardian.wait(for: "late", "settles") { $0["settled"].bool == true }
      try await guardian.stop()
    }

    @Test func `E12: where epoll takes nothing more, restarts go on, nothing spins, and afterwards all is as before`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: ["web": "command: [/bin/sleep, \"1000004\"]\nstartup-window: 100ms\nlog: none\n"],
        environment: try await Between.badDay(scratch, "epoll"))
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let old = Int32(try #require(web["pid"].int))
      let shortage = scratch.path + "/bad-day-is-here"
      try Files.write("", to: shortage)
      try guardian.configure(
        "talks", "command: [/bin/sleep, \"1000000\"]\nready: notify\nstart-timeout: 1h\nlog: none\n")
      kill(guardian.process.pid, SIGHUP)
      kill(old, SIGSEGV)
      func child() -> Int32? { children(of: guardian.process.pid).first { $0 != old && isAlive($0) } }
      _ = try await eventually("it is there again") { child() }
      // Whoever comes now is turned away, and keeps nobody busy.
      let client = try await guardian.control("status", seconds: 20)
      #expect(client.code == 6 || client.code == 1, "\(client)")
      try await eventually("it says what is missing: \(guardian.log)") {
        guardian.log.contains("fs.epoll.max_user_watches") ? () : nil
      }
      func ticks() throws -> Int {
        let stat = try Files.read("/proc/\(guardian.process.pid)/stat")
        let fields = stat.split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 12 ? (Int(fields[11]) ?? 0) + (Int(fields[12]) ?? 0) : 0
      }
      let before = try ticks()
      try await Task.sleep(for: .milliseconds(400))
      #expect(try ticks() - before < 20, "it spins")
      unlink(shortage)
      let after = try await guardian.wait(for: "web", "is settled") { $0["settled"].bool == true }
      #expect(after["strikes"].int == 0 && after["restarts"].int == 1, "\(after)")
      let talks = try await guardian.wait(for: "talks", "is born") { $0["phase"].string == "starting" }
      #expect(talks["strikes"].int == 0)
      try await guardian.stop()
    }

    // MARK: Names and chance

    @Test func `E15: neither random numbers nor the name service are needed to keep services running`() async throws {
      let scratch = try Scratch()
      let hang = scratch.path + "/bad-day-is-here"
      let guardian = try await Guardian(
        scratch,
        services: ["web": steady, "sick": "command: [/bin/false]\nbackoff: {first: 50ms, max: 50ms}\nlog: none\n"],
        environment: try await Between.badDay(scratch, "names,entropy"))
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try Files.write("", to: hang)
      try guardian.configure("new", steady + "user: \(isRoot ? "nobody" : "\(getuid())")\n")
      // It waits for a name.
      let reload = try Process([Place.products + "/guardianctl", "--runtime", guardian.runtime, "reload"])
      kill(Int32(try #require(web["pid"].int)), SIGSEGV)
      let again = try await guardian.wait(for: "web", "is there again", seconds: 10) {
        $0["run"] != web["run"] && $0["settled"].bool == true
      }
      #expect(try await guardian.control("restart", "web").code == 0)
      try await guardian.wait(for: "sick", "climbs", seconds: 10) { $0["phase"].string == "quarantined" }
      // Run ids differ, whoever made them up.
      let last = try await guardian.status("web")
      #expect(Set([web, again, last].map { $0["run"].string }).count == 3)
      if isRoot { #expect(reload.poll() == nil, "it did not need the name") }
      unlink(hang)
      #expect(try await reload.wait() == 0)
      try await guardian.wait(for: "new", "settles") { $0["settled"].bool == true }
      try await guardian.stop()
    }
  }
}
