import Glibc
import Testing

extension PatientPrograms {
  /// The unit as `make install` leaves it, under a real systemd that is process 1 of its own namespaces. One boot serves
  /// all of these tests: Tests/Support/systemd-scenario does things and prints what it sees.
  @Suite(
    .enabled(if: Boot.missing == nil, "not shown: \(Boot.missing ?? "")")
  ) struct `under a real systemd` {
    let facts: Facts

    init() async throws { facts = try await Boot.shared.facts() }

    private func expect(_ name: String, _ text: String, at place: SourceLocation = #_sourceLocation) throws {
      let fact = try facts[name]
      #expect(fact == text, "\(name)", sourceLocation: place)
    }

    @Test func `K1: the installed unit becomes active when it answers and has decided for each service`() throws {
      try expect("start", "")
      try expect("start-answers", "answers")
      try expect("active", "active")
    }

    @Test func `systemctl status shows what guardian has to say`() throws {
      try expect("status-text", "3 services: 3 settled")
      #expect(try facts["status-line"].contains("Status: \"3 services: 3 settled\""))
    }

    @Test func `the journal has each service's output under its own name, and guardian's under guardian`() throws {
      let lines = try facts["journal-chatty"].split(separator: "\n")
      #expect(lines.contains("hello from chatty") && lines.contains("trouble from chatty"), "\(lines)")
      #expect(try !facts["journal-own"].contains("from chatty"))
      #expect(try facts["journal-priority"].contains("guardian.service"))
    }

    @Test func `a crash report has the last words of its own run, from the journal`() throws {
      let reports = try facts["lastwords"].split(separator: "\n").map { try JSON(String($0)) }
      #expect(reports.count == 2, "\(reports)")
      for report in reports {
        let lines = report["output"]["lines"].array.compactMap(\.string)
        #expect(lines.count == 4 && lines.contains("bad luck"), "\(report["output"])")
        let words = lines.filter { $0.hasPrefix("word ") }
        #expect(words.map { $0.prefix(7) } == ["word 1 ", "word 2 ", "word 3 "], "\(lines)")
        #expect(Set(words.map { $0.dropFirst(7) }).count == 1, "of one process: \(lines)")
        #expect(
          report["changes"].array.compactMap { $0["what"].string } == ["no healthy run on record"],
          "\(report["changes"])")
      }
      #expect(Set(reports.map { $0["output"]["lines"].array.first?.string }).count == 2, "each has its own")
      let shown = try JSON(facts["lastwords-run"])["lines"].array.compactMap { $0["text"].string }
      #expect(shown == reports[1]["output"]["lines"].array.compactMap(\.string), "\(shown)")
    }

    @Test func `an event is one entry of the journal, with its facts as fields, and journalctl -x explains it`() throws
    {
      let entry = try JSON(try facts["journal-event"])
      #expect(entry["MESSAGE"].string?.hasPrefix("chatty: started, pid ") ?? false, "\(entry)")
      #expect(entry["_SYSTEMD_UNIT"].string == "guardian.service" && entry["_TRANSPORT"].string == "journal")
      #expect(entry["GUARDIAN_SERVICE"].string == "chatty" && entry["GUARDIAN_EVENT"].string == "started")
      #expect(entry["MESSAGE_ID"].string?.utf8.count == 32 && entry["GUARDIAN_EVENT_ID"].string?.utf8.count == 16)
      #expect(entry["GUARDIAN_RUN"].string?.utf8.count == 32 && entry["GUARDIAN_KIND"].string == "ordinary")
      #expect(entry["PRIORITY"].string == "6" && entry["GUARDIAN_PID"].string == entry["OBJECT_PID"].string)
      try expect("journal-event-once", "1")
      try expect("catalog-taken-in", "")
      let text = try facts["journal-explained"]
      #expect(text.contains("Subject: chatty: settled") && text.contains("Strikes and delay are cleared"), "\(text)")
    }

    @Test func `K1: systemctl reload returns when the new service is there`() throws {
      try expect("reload", "")
      let (state, status) = try facts["after-reload"].firstLineAndRest
      #expect(state == "active")
      #expect(try JSON(status)["services"].array.first?["name"] == .string("added"))
    }

    @Test func `a stopped guardian is restarted by systemd's watchdog, and its services do not run twice`() throws {
      let (pids, state) = try facts["watchdog"].firstLineAndRest
      #expect(state == "active", "\(pids)")
      #expect(pids.contains("restarts=") && !pids.contains("restarts=0"), "\(pids)")
      #expect(try facts["watchdog-log"].contains("timeout"))
      try expect("old-child", "alive")
      try expect("same-child", "same")
      // chatty, added, inspected, inspected-nobody: one main process each, which is `sleep` by now.
      let members = try facts["members"].split(separator: "\n")
      #expect(members.filter { $0.contains("sleep 1000000") }.count == 4, "\(members)")
    }

    @Test
    func `E13: a journal that goes away costs output and nothing else, says so, and is used again when it is back`()
      throws
    {
      #expect(try facts["journal-gone"] == "degraded")
      #expect(try facts["journal-gone-restarted"] == "degraded")
      #expect(try facts["journal-back"] == "journal")
      #expect(try facts["journal-same"] == "same")
    }

    @Test func `a killed guardian is started again by systemd, and its services go on untouched`() throws {
      try expect("killed", "same")
      try expect("killed-restarts", "0")
    }

    @Test func `a READY=1 that was sent while guardian was away is heard, by the socket that systemd has kept`() throws
    {
      #expect(try Int(facts["stored"]) ?? 0 >= 1)
      try expect("heard-by-nobody", "sent")
    }

    @Test func `a service whose file is not valid at guardian's start is left alone, and taken over when it is mended`()
      throws
    {
      try expect("unreadable", "\"phase\":\"quarantined\"")
      try expect("mended", "same")
    }

    @Test func `the end of a service that was taken over is noticed, with its exit status`() throws {
      let leaver = try #require(try JSON(facts["killed-leaver"])["services"].array.first)
      #expect(leaver["phase"].string == "finished", "\(leaver)")
      #expect(leaver["last_end"]["code"].int == (Boot.kernelTells ? 42 : nil), "\(leaver)")
    }

    /// GUARDIAN_HANG=60 is the long form: so many seconds.
    @Test
    func `a disk that hangs longer than the watchdog waits: no watchdog kill, restarts go on, volatile, then durable`()
      throws
    {
      try expect("hanging", "same guardian, restarts went on")
      let (shown, status) = try facts["hanging-state"].firstLineAndRest
      #expect(shown == "state: volatile")
      #expect(status.contains("state: volatile"))
      try expect("hanging-after", "state durable")
    }

    @Test
    func `F8: a loop that turns while the core does nothing gets no watchdog ping; the next guardian takes over`()
      throws
    {
      #expect(try facts["stuck-answers"].hasPrefix("guardian "))
      try expect("stuck", "another guardian, same services")
      let log = try facts["stuck-log"]
      #expect(log.contains("guardian neglects its ") && log.contains("atchdog timeout"), "\(log)")
      try expect("stuck-after", "restarts go on")
    }

    @Test func `G10: the shipped unit lets services outlive guardian; another one is warned about, until it is mended`()
      throws
    {
      let fine = "guardian.service: services outlive guardian"
      for name in ["unit-shipped", "unit-mended", "user-unit"] { try expect(name, fine) }
      try expect("unit-shipped-log", "0")
      #expect(try facts["unit-changed"].hasPrefix("guardian.service: services are killed with guardian"))
      for name in ["unit-changed", "unit-changed-log"] {
        let shown = try facts[name]
        for part in [
          "guardian.service says KillMode=control-group", "write '[Service]' and below it 'KillMode=process'",
          "guardian.service does not say Delegate=yes",
        ] {
          #expect(shown.contains(part), "\(name): \(shown)")
        }
      }
    }

    @Test func `SIGHUP leaves it active`() throws {
      try expect("sighup", "active")
    }

    @Test func `K1, K4: systemctl stop ends well, also beyond the unit's time-out, and leaves no process behind`()
      throws
    {
      try expect("stop", "")
      try expect("stopping", "deactivating")
      #expect(try facts["after-stop"].contains("inactive"))
      try expect("left", "")
      try expect("sleeping", "none")
    }

    @Test
    func `each run has a control group below guardian's, which is where guardian left it, and holds what escapes`()
      throws
    {
      try expect("process-set", "process-set control group below /system.slice/guardian.service, cgroup.kill")
      try expect("supervisor", "/system.slice/guardian.service/supervisor")
      for name in ["escaped", "escaped-again"] {
        let group = try facts[name]
        #expect(
          ["service.escaper", "service.escaper:next"].contains { group == "3 /system.slice/guardian.service/\($0)" },
          "\(group)")
      }
      // After SIGKILL of guardian systemd has to place the next one in a group that has other groups with processes.
      try expect("escaped-killed", "same")
      try expect("supervisor-killed", "/system.slice/guardian.service/supervisor")
      try expect("escaped-stopped", "none")
    }

    @Test func `an ordinary user's manager runs it as well`() throws {
      try expect("user-start", "")
      try expect("user-status-text", "1 service: 1 settled")
      #expect(try facts["user-status"].contains("mine"))
      try expect("user-reload", "")
      try expect("user-active", "active")
      try expect("user-killed", "same")
      try expect("user-stop", "")
      try expect("user-left", "none")
    }

    struct Pair: CustomTestStringConvertible {
      var who: String
      var testDescription: String { "as \(who)" }
    }

    /// What guardian(8) lists under "Beside a plain service of systemd", and nothing else.
    @Test(arguments: [Pair(who: "root"), Pair(who: "nobody")])
    func `a supervised program sees what a plain service of systemd sees, but for what is documented`(_ pair: Pair)
      throws
    {
      let ours = Sections(try facts["inspected-guardian-\(pair.who)"])
      let plain = Sections(try facts["inspected-systemd-\(pair.who)"])
      for section in ["oom_score_adj", "nice"] { #expect(ours[section] == plain[section], "\(section)") }

      // Of the status: who it is, its signals, its privileges. The rest differs from run to run.
      let kept = [
        "Umask", "TracerPid", "Uid", "Gid", "Groups", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapInh",
        "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters",
      ]
      // The C library ignores its two internal signals, 32 and 33, in what posix_spawn starts, so in this systemd too.
      let mending = ["SigIgn:\t0000000180001000": "SigIgn:\t0000000000001000"]
      for (mine, its) in zip(ours.fields("status", kept), plain.fields("status", kept)) {
        #expect(mine == mending[its] ?? its)
      }
      #expect(ours.fields("status", kept).count == kept.count)

      for (mine, its) in zip(ours["limits"], plain["limits"]) { #expect(mine == its) }

      // Mount numbers are one namespace's own; the same namespace has the same ones.
      #expect(ours["mountinfo"] == plain["mountinfo"])

      // Its own session and process group, no terminal.
      #expect(ours["session"].first?.split(separator: " ").last == "0")
      #expect(ours["cgroup"].contains { $0.hasPrefix("0::/system.slice/guardian.service") }, "\(ours["cgroup"])")

      // Three descriptors. (The shell that looks has its script open besides, which the scenario leaves out, and 10 and
      // 11 or 11 and 12 are its own copies of 1 and 2.)
      #expect(ours["descriptors"].filter { ["0 ", "1 ", "2 "].contains($0.prefix(2)) }.count == 3)
      #expect(ours["descriptors"].count == plain["descriptors"].count, "\(ours["descriptors"]) \(plain["descriptors"])")

      let names = { (lines: [String]) in Set(lines.compactMap { $0.split(separator: "=").first.map(String.init) }) }
      let mine = names(ours["environ"]), its = names(plain["environ"])
      let identity: Set = ["HOME", "USER", "LOGNAME", "SHELL"]
      #expect(mine.subtracting(its).subtracting(identity) == ["GUARDIAN_MODE", "GUARDIAN_DISABLED_PLUGINS"])
      #expect(its.subtracting(mine) == ["SYSTEMD_EXEC_PID"])
      let values = { (lines: [String]) in Set(lines.filter { $0.hasPrefix("PATH=") || $0.hasPrefix("LANG=") }) }
      #expect(values(ours["environ"]) == values(plain["environ"]))
    }
  }
}

/// What the scenario printed, by name.
struct Facts: Sendable {
  private var texts: [String: String] = [:]
  let all: String

  init(_ output: String) {
    all = output
    for part in ("\n" + output).split(separator: "\n== ") {
      let (name, text) = String(part).firstLineAndRest
      texts[name] = String(text.trimmed)
    }
  }

  subscript(name: String) -> String {
    get throws {
      guard let text = texts[name] else {
        throw Failure("the scenario did not come to '\(name)': \(all.suffix(4_000))")
      }
      return text
    }
  }
}

/// Text with headings of the form `-- name`.
struct Sections {
  private var lines: [String: [String]] = [:]
  init(_ text: String) {
    var name = ""
    for line in text.split(separator: "\n") {
      if line.hasPrefix("-- ") {
        name = String(line.dropFirst(3))
      } else {
        lines[name, default: []].append(String(line))
      }
    }
  }
  subscript(name: String) -> [String] { lines[name] ?? [] }
  func fields(_ section: String, _ names: [String]) -> [String] {
    self[section].filter { line in names.contains { line.hasPrefix($0 + ":") } }.map { $0.trimmed }
  }
}

extension StringProtocol {
  var trimmed: String {
    String(drop { $0.isWhitespace }.reversed().drop { $0.isWhitespace }.reversed())
  }
}
extension String {
  var firstLineAndRest: (String, String) {
    guard let end = firstIndex(of: "\n") else { return (self, "") }
    return (String(self[..<end]), self[index(after: end)...].trimmed)
  }
}

/// One boot, made by whoever asks first.
actor Boot {
  static let shared = Boot()
  private var task: Task<Facts, any Error>?

  /// Linux 6.15 and newer say how a process ended that is not one's child.
  static let kernelTells: Bool = {
    let release = (try? Files.read("/proc/sys/kernel/osrelease")) ?? ""
    let numbers = release.split { !$0.isNumber }.prefix(2).compactMap { Int($0) }
    return numbers.count == 2 && (numbers[0], numbers[1]) >= (6, 15)
  }()

  /// Why a systemd cannot be booted here; nil if it can.
  static let missing: String? = {
    if !isRoot { return "a systemd of one's own needs root" }
    for program in ["/lib/systemd/systemd", "/usr/bin/unshare", "/usr/bin/nsenter", "/usr/bin/pgrep", "/usr/bin/make"] {
      if !Files.exists(program) { return "\(program) is not there" }
    }
    if !["/usr/bin/dbus-daemon", "/usr/bin/dbus-broker"].contains(where: Files.exists) {
      return "D-Bus is not there"
    }
    if !["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].contains(where: { access($0 + "/cgroup.procs", W_OK) == 0 }) {
      return "there is no writable cgroup v2 hierarchy"
    }
    return nil
  }()

  func facts() async throws -> Facts {
    if let task { return try await task.value }
    let task = Task {
      let scratch = try Scratch(), stage = try scratch.directory("stage")
      let install = try await run(
        [
          "/usr/bin/make", "--no-print-directory", "-C", Place.repository, "install", "DESTDIR=\(stage)/root",
          "PREFIX=/usr", "RELEASE=\(Place.products)",
        ])
      guard install.code == 0 else { throw Failure("make install: \(install.error)") }
      let support = Place.repository + "/Tests/Support"
      try await HangingDisk.build(stage + "/hanging-disk.so")
      let copied = try await run(["/bin/cp", "\(support)/systemd-scenario", stage])
      guard copied.code == 0 else { throw Failure(copied.error) }
      // The machine's directories are not all there inside, so it starts in one that is.
      let boot = try await run(
        [
          "/usr/bin/env", "--chdir=/", "\(support)/with-systemd", "--keep", stage, "/usr/bin/env",
          "HANG_SECONDS=\(HangingDisk.seconds)", "/bin/bash", "\(stage)/systemd-scenario", stage,
        ], seconds: 120 + HangingDisk.seconds)
      guard boot.code == 0 else { throw Failure("with-systemd ended with \(boot.code): \(boot.error) \(boot.output)") }
      return Facts(boot.output)
    }
    self.task = task
    return try await task.value
  }
}
