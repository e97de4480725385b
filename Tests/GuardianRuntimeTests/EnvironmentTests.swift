import GuardianCore
import GuardianModel
import Testing

@testable import GuardianRuntime

private let alice = Identity(
  user: "alice", uid: 1000, gid: 1000, groups: [1000], home: "/home/alice", shell: "/bin/bash")

private func name(_ text: String) throws -> ServiceName { try #require(ServiceName(text)) }

@Suite struct `a child's environment` {
  @Test func `is the base, the definition and guardian's own words, and nothing else`() throws {
    var environment = ChildEnvironment(user: alice, language: nil)
    environment.add([EnvironmentVariable("PORT", "8080"), EnvironmentVariable("HOME", "/srv/web")])
    let spec = ServiceSpec(name: try name("web"), process: ProcessSpec(command: ["/bin/true"]))
    let off = [PluginSpec(name: "a"), PluginSpec(name: "b")]
    environment.describe(
      StartRequest(run: RunID(high: 1, low: 2), kind: .ordinary, disabledPlugins: off, spec: spec), off: off)
    #expect(
      environment.strings == [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/srv/web", "USER=alice",
        "LOGNAME=alice", "SHELL=/bin/bash", "LANG=C.UTF-8", "PORT=8080",
        "INVOCATION_ID=00000000000000010000000000000002", "GUARDIAN_MODE=safe", "GUARDIAN_DISABLED_PLUGINS=a b",
      ])
  }

  @Test func `is without what plugins that are off take out of it, one after the other`() throws {
    var environment = ChildEnvironment(user: alice, language: nil)
    environment.add([
      EnvironmentVariable("MODS", "a:b:c"), EnvironmentVariable("TRACE", "1"), EnvironmentVariable("KEPT", "x"),
      EnvironmentVariable("LD_PRELOAD", "/lib/liba.so libb.so"),
    ])
    var a = PluginSpec(name: "a"), b = PluginSpec(name: "b"), c = PluginSpec(name: "c")
    a.removeFrom = [ListRemoval(.variable("MODS"), item: "a", separator: ":")]
    a.preload = ["liba.so"]
    a.unset = ["TRACE", "NEVER"]
    b.removeFrom = [
      ListRemoval(.variable("MODS"), item: "b", separator: ":"), ListRemoval(.variable("NONE"), item: "x"),
    ]
    b.environment = [EnvironmentVariable("MODE", "safe")]
    c.unset = ["MODE"]
    c.preload = ["libb.so"]
    func after(_ off: [PluginSpec]) -> [String] {
      var environment = environment
      environment.switchOff(off)
      return Array(environment.strings.dropFirst(6))
    }
    #expect(after([]) == ["MODS=a:b:c", "TRACE=1", "KEPT=x", "LD_PRELOAD=/lib/liba.so libb.so"])
    #expect(after([a]) == ["MODS=b:c", "KEPT=x", "LD_PRELOAD=libb.so"])
    #expect(after([b]) == ["MODS=a:c", "TRACE=1", "KEPT=x", "LD_PRELOAD=/lib/liba.so libb.so", "MODE=safe"])
    #expect(after([a, b, c]) == ["MODS=c", "KEPT=x"])
    #expect(after([c, b, a]) == ["MODS=c", "KEPT=x", "MODE=safe"])
  }

  @Test func `tells a hook what it is for and how the run ended`() throws {
    let end = End(
      run: RunID(high: 3, low: 4), status: .signal(.segv, core: true), cause: .signal, crashClass: .segv,
      at: WallTime(nanoseconds: 0), uptime: .seconds(2))
    let context = HookContext(
      service: try name("web"), step: .repair, attempt: 2, strikes: 1, strikesAllowed: 2, disabledPlugins: ["x"],
      end: end, reason: "two\nlines")
    let request = HookRequest(
      id: RunID(high: 0, low: 9), purpose: .repair(name: "fix"), kind: .run(["/bin/fix"]), identity: nil,
      timeout: .minute, context: context)
    var environment = ChildEnvironment(user: alice, language: "de_DE.UTF-8")
    environment.describe(request)
    let strings = Set(environment.strings)
    #expect(
      strings.isSuperset(of: [
        "GUARDIAN_SERVICE=web", "GUARDIAN_STEP=repair", "GUARDIAN_ATTEMPT=2", "GUARDIAN_STRIKES=1",
        "GUARDIAN_CAUSE=signal", "GUARDIAN_SIGNAL=SEGV", "GUARDIAN_RUN=00000000000000030000000000000004",
        "GUARDIAN_HOOK=fix", "LANG=de_DE.UTF-8",
      ]))
    #expect(!strings.contains { $0.hasPrefix("GUARDIAN_EXIT_CODE") || $0.contains("\n") })
    let json = String(decoding: crashJSON(request), as: UTF8.self)
    #expect(json.hasPrefix(#"{"schema":1,"service":"web","hook":"fix""#) && json.hasSuffix("}\n"), "\(json)")
    #expect(json.contains(#""signal":"SEGV","core":true"#) && json.contains(#""disabled_plugins":["x"]"#))
  }

  @Test(arguments: [20, 26, 27, 100]) func `lets the later entry win, however many there are`(count: Int) {
    var environment = ChildEnvironment(user: alice, language: nil)
    environment.add((0..<count).map { EnvironmentVariable("V\($0)", "first") })
    environment.add((0..<count).map { EnvironmentVariable("V\($0)", "second") })
    environment.add([EnvironmentVariable("HOME", "/elsewhere")])
    #expect(environment.strings.count == 6 + count)
    #expect(environment.strings.count { $0.hasSuffix("=second") } == count)
    #expect(environment["HOME"] == "/elsewhere")
  }

  @Test func `leaves out what execve cannot take`() {
    var environment = ChildEnvironment(user: alice, language: nil)
    environment.add([EnvironmentVariable("BAD", "a\0b")])
    #expect(!environment.strings.contains { $0.hasPrefix("BAD") })
  }
}

@Suite struct `an environment file` {
  @Test func `has names, values, comments and quotes`() throws {
    let text = """
      # comment
      ; another
      A=1
        export B = no
      C="two words \\"and\\" a \\$ \\n"
      D='as $it is'
      E=
      F=a=b # not a comment
      """
    // A blank before '=' belongs to no name.
    #expect(EnvironmentFileReader.parse(text) == .failure(.init(line: 4, what: "'B ' is no variable's name")))
    let good = text.split(separator: "\n").filter { !$0.contains("export") }.joined(separator: "\r\n")
    #expect(
      try EnvironmentFileReader.parse(good).get() == [
        EnvironmentVariable("A", "1"), EnvironmentVariable("C", #"two words "and" a $ \n"#),
        EnvironmentVariable("D", "as $it is"), EnvironmentVariable("E", ""),
        EnvironmentVariable("F", "a=b # not a comment"),
      ])
    #expect(EnvironmentFileReader.parse("A=\"x") == .failure(.init(line: 1, what: "a quote without its end")))
    #expect(EnvironmentFileReader.parse("\nrubbish") == .failure(.init(line: 2, what: "no '=' in it")))
  }

  @Test func `that is missing is a fault of the start, unless it may be missing`() {
    let path = "/nonexistent/environment"
    #expect(EnvironmentFileReader.read([EnvironmentFile(path: path, optional: true)]) == .success([]))
    guard case .failure(let failure) = EnvironmentFileReader.read([EnvironmentFile(path: path, optional: false)]) else {
      Issue.record("no failure")
      return
    }
    #expect(failure.stage == .prepare && failure.sentence.contains(path) && !failure.ownTrouble)
    // A directory, or a FIFO that nobody writes to, must not be waited for.
    guard case .failure = EnvironmentFileReader.read([EnvironmentFile(path: "/", optional: true)]) else {
      Issue.record("a directory was read")
      return
    }
  }
}

@Suite struct `a notification` {
  @Test func `is understood line by line, and what is unknown is skipped`() {
    let message = NotifyMessage(
      Array(
        "X=1\nREADY=1\nSTATUS=a\u{1B}[31mb\nWATCHDOG=1\nWATCHDOG=trigger\nEXTEND_TIMEOUT_USEC=5000000\nSTOPPING=1".utf8)
    )
    #expect(
      message.items == [
        .ready, .status("a\u{FFFD}[31mb"), .watchdogPing, .watchdogTrigger, .extendTimeout(.seconds(5)), .stopping,
      ])
  }

  @Test(arguments: [
    "", "\n\n\n", "READY", "READY=2", " READY=1", "READY =1", "READY=1\r", "=x", "\0\0", "WATCHDOG=0", "BARRIER=2",
    "FDSTORE=0",
    "ERRNO=", "ERRNO=-1", "ERRNO=4096", "EXIT_STATUS=1", "NOTIFYACCESS=all", "MONOTONIC_USEC=1", "mainpid=1",
    "EXTEND_TIMEOUT_USEC=-1", "EXTEND_TIMEOUT_USEC=99999999999999999999999",
  ])
  func `C2: that means nothing does nothing`(_ text: String) {
    #expect(NotifyMessage(Array(text.utf8)).items.isEmpty)
  }

  @Test func `knows the whole protocol`() {
    let message = NotifyMessage(
      Array("RELOADING=1\nMONOTONIC_USEC=5\nWATCHDOG_USEC=3000000\nMAINPID=77\nERRNO=2\nBARRIER=1\nFDSTORE=1".utf8))
    #expect(
      message.items == [
        .reloading, .watchdog(.seconds(3)), .mainPid(77), .errorNumber(2), .barrier, .store,
      ])
    #expect(message.stamp == Instant(nanoseconds: 5_000))
  }

  /// C5, C6: what is no number is told apart from a number that cannot be meant.
  @Test func `keeps to the range of each number`() {
    func items(_ text: String) -> [NotifyMessage.Item] { NotifyMessage(Array(text.utf8)).items }
    for text in ["", "x", "1x", " 1", "0x10", "99999999999", "-99999999999"] {
      #expect(items("MAINPID=" + text) == [.mainPid(nil)], "\(text)")
    }
    for (text, pid) in [("0", 0), ("1", 1), ("-1", -1), ("2147483647", Int32.max)] {
      #expect(items("MAINPID=" + text) == [.mainPid(pid)])
    }
    #expect(items("WATCHDOG_USEC=0") == [.watchdog(.zero)])
    #expect(items("WATCHDOG_USEC=1") == [.watchdog(.microseconds(1))])
    #expect(items("WATCHDOG_USEC=x") == [.watchdog(nil)])
    guard case .watchdog(let most?)? = items("WATCHDOG_USEC=18446744073709551615").first else {
      Issue.record("no watchdog")
      return
    }
    #expect(most > .day * 36_500)
    #expect(items("EXTEND_TIMEOUT_USEC=18446744073709551615").count == 1)
    #expect(NotifyMessage(Array("MONOTONIC_USEC=18446744073709551615".utf8)).stamp != nil)
  }

  /// RELIABILITY section 1: no bytes make it trap, and what it says stays bounded.
  @Test func `survives any bytes`() {
    var random = SystemRandomNumberGenerator()
    let keys = [
      "READY", "WATCHDOG_USEC", "MAINPID", "STATUS", "EXTEND_TIMEOUT_USEC", "ERRNO", "MONOTONIC_USEC", "BARRIER",
    ]
    for _ in 0..<20_000 {
      var bytes: [UInt8] = []
      for _ in 0..<Int.random(in: 0..<5, using: &random) {
        bytes += Array((keys.randomElement(using: &random) ?? "").utf8) + [UInt8(ascii: "=")]
        for _ in 0..<Int.random(in: 0..<24, using: &random) {
          bytes.append(Bool.random(using: &random) ? .random(in: 48...57) : .random(in: 0...255))
        }
        bytes.append(UInt8(ascii: "\n"))
      }
      #expect(NotifyMessage(bytes).items.count <= NotifyMessage.lines * 2)
    }
  }

  @Test func `C2: of ten thousand lines is understood in a time that grows with its length alone`() {
    let clock = ContinuousClock()
    func time(_ lines: Int) -> Duration {
      let text = Array(String(repeating: "X=1\n", count: lines).utf8)
      return (0..<5).map { _ in clock.measure { _ = NotifyMessage(text).items } }.min() ?? .zero
    }
    // Quadratic would be ten thousand times as long.
    #expect(time(10_000) < time(100) * 2_000 + .milliseconds(20))
    #expect(NotifyMessage(Array(String(repeating: "STATUS=x\n", count: 10_000).utf8)).items.count <= 65)
    #expect(NotifyMessage(Array("X=1\n=x\n\nREADY=1\nnothing".utf8)).items == [.ready])
  }

  @Test func `is bounded in what it can say`() {
    #expect(NotifyMessage(Array(String(repeating: "READY=1\n", count: 500).utf8)).items.count <= 65)
    guard
      case .status(let text) = NotifyMessage(Array(("STATUS=" + String(repeating: "é", count: 2000)).utf8)).items.first
    else {
      Issue.record("no status")
      return
    }
    #expect(text.utf8.count <= 260)
    // Broken UTF-8 arrives repaired.
    #expect(NotifyMessage(Array("STATUS=".utf8) + [0xff, 0xfe]).items == [.status("\u{FFFD}\u{FFFD}")])
  }
}
