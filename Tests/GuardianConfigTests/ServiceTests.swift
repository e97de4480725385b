import GuardianConfig
import GuardianModel
import Testing

@Suite struct `a service's file` {
  @Test func `with a command alone has every default`() throws {
    let spec = try valid("")
    let name = try #require(ServiceName("x"))
    #expect(spec == ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/x"])))
  }

  @Test func `names the valid keys once, however many are unknown`() {
    let parsed = parse("command: [/bin/x]\nqqqqqq: 1\nzzzzzz: 2\nwwwwww: 3\n")
    #expect(parsed.diagnostics.count { $0.what.hasPrefix("unknown key") } == 3)
    #expect(parsed.diagnostics.count { $0.why.hasPrefix("valid here:") } == 1)
  }

  @Test func `gives all that it says`() throws {
    let parsed = parse(
      """
      description: Shop front end
      command: [/usr/bin/node, /srv/web/server.js]
      user: web
      directory: /srv/web
      environment: {PORT: "8080", MODE: fast}
      environment-file: [/etc/default/web, -/etc/default/more]
      umask: "0027"
      limits: {open-files: 65536, core: 0, stack: unlimited, cpu-time: 1min30s, file-size: 2G}
      oom-score-adjust: -5
      nice: -3
      start: manual
      type: daemon
      ready: {fd: 3}
      start-timeout: 30s
      startup-window: 20s
      watchdog: 10s
      stop: {signal: SIGINT, timeout: 1min30s, leftovers: term}
      restart: on-crash
      backoff: {first: 0s, factor: 1.5, max: 5min, jitter: 12.5%}
      escalation: {restart: 4, repair: 1, safe-mode: 3, deescalate-after: 2h}
      late: {budget: 3, within: 30min}
      success-exit: [0, 143]
      fatal-exit: [64]
      repair:
        - {name: drop-cache, move-aside: /var/cache/web/}
        - name: hotfix
          run: [/usr/libexec/guardian/fetch-hotfix, web]
          on: ["exit:78", "signal:SEGV", oom, "class:config"]
          at-most: {times: 2, within: 24h}
          timeout: 90s
          user: web
      plugins:
        retry-after: 12h
        list:
          - {name: payments, environment: {WEB_PAYMENTS: "off"}}
          - {name: social, hide: /srv/web/plugins/social.so}
          - {name: metrics, arguments: [--disable-extension, metrics], hide: [/a/b, /a/c]}
      quarantine: {retry-after: 10min, max: 2h}
      mode: observe
      runbook: https://wiki.example/web
      contact: ops@example.org
      notices: {on-quarantine: [/usr/libexec/guardian/notify-mail], on-crash: "/bin/say 'it died'"}
      log: journal
      """)
    #expect(parsed.diagnostics.map(\.description) == [])
    let spec = try #require(parsed.spec)
    #expect(spec.description == "Shop front end")
    #expect(spec.process.command == ["/usr/bin/node", "/srv/web/server.js"])
    #expect(spec.process.identity == someone)
    #expect(spec.process.directory == "/srv/web")
    #expect(spec.process.environment == [.init("PORT", "8080"), .init("MODE", "fast")])
    #expect(
      spec.process.environmentFiles == [
        .init(path: "/etc/default/web", optional: false), .init(path: "/etc/default/more", optional: true),
      ])
    #expect(spec.process.umask == 0o027)
    #expect(
      spec.process.limits == [
        .init(.openFiles, 65536), .init(.core, 0), .init(.stack, .max), .init(.fileSize, 2 << 30), .init(.cpuTime, 90),
      ])
    #expect(spec.process.oomScoreAdjust == -5)
    #expect(spec.process.nice == -3)
    #expect(spec.start == .manual)
    #expect(spec.ready == .descriptor(3))
    #expect(spec.startTimeout == .seconds(30))
    #expect(spec.startupWindow == .seconds(20))
    #expect(spec.watchdog == .seconds(10))
    #expect(spec.stop.signal == .int)
    #expect(spec.stop.timeout == .seconds(90))
    #expect(spec.stop.leftovers == .term)
    #expect(spec.restart == .onCrash)
    #expect(spec.backoff.first == .zero)
    #expect(spec.backoff.factor == 1.5)
    #expect(spec.backoff.max == .seconds(300))
    #expect(spec.backoff.jitter == 0.125)
    #expect(spec.escalation.restart == 4)
    #expect(spec.escalation.repair == 1)
    #expect(spec.escalation.safeMode == 3)
    #expect(spec.escalation.deescalateAfter == .seconds(7200))
    #expect(spec.late.budget == 3)
    #expect(spec.late.within == .seconds(1800))
    #expect(spec.successExit == [0, 143])
    #expect(spec.fatalExit == [64])
    #expect(spec.repairs.count == 2)
    #expect(spec.repairs[0].kind == .moveAside("/var/cache/web"))
    #expect(spec.repairs[0].timeout == .seconds(60))
    #expect(spec.repairs[1].kind == .run(["/usr/libexec/guardian/fetch-hotfix", "web"]))
    #expect(spec.repairs[1].on == [.exit(78), .signal(.segv), .cause("oom"), .crashClass(.config)])
    #expect(spec.repairs[1].atMost == RunLimit(times: 2, within: .day))
    #expect(spec.repairs[1].timeout == .seconds(90))
    #expect(spec.repairs[1].identity == someone)
    #expect(spec.plugins.retryAfter == .seconds(43200))
    #expect(spec.process.plugins.map(\.name) == ["payments", "social", "metrics"])
    #expect(spec.process.plugins[0].environment == [.init("WEB_PAYMENTS", "off")])
    #expect(spec.process.plugins[1].hide == ["/srv/web/plugins/social.so"])
    #expect(spec.process.plugins[2].arguments == ["--disable-extension", "metrics"])
    #expect(spec.process.plugins[2].hide == ["/a/b", "/a/c"])
    #expect(spec.quarantine.retryAfter == .seconds(600))
    #expect(spec.quarantine.max == .seconds(7200))
    #expect(spec.mode == .observe)
    #expect(spec.runbook == "https://wiki.example/web")
    #expect(spec.contact == "ops@example.org")
    #expect(
      spec.notices == [.onQuarantine: ["/usr/libexec/guardian/notify-mail"], .onCrash: ["/bin/say", "it died"]])
    #expect(spec.log == .journal)
  }

  @Test func `of a task restarts on a crash only, unless it says otherwise`() throws {
    #expect(try valid("type: task").restart == .onCrash)
    #expect(try valid("type: task\nrestart: always").restart == .always)
    #expect(try valid("type: daemon").restart == .always)
  }

  @Test func `may say that no trial is wanted, and that nothing escalates`() throws {
    #expect(try valid("quarantine: {retry-after: never}").quarantine.retryAfter == nil)
    #expect(try !valid("escalation: off").escalation.enabled)
  }

  /// Every key of the table, with its example: the reader knows it, and it does something.
  @Test(arguments: KeyTable.service.keys) func `shows each key at work`(_ key: KeyTable.Key) throws {
    let plain = key.example.hasPrefix("command:") ? "" : "command: [/bin/x]\n"
    let parsed = parse(plain + key.example)
    #expect(parsed.diagnostics.map(\.description) == [])
    let spec = try #require(parsed.spec)
    #expect(spec != parse("command: [/bin/x]").spec)
    #expect(key.example.contains(key.word), "the example shows the key")
  }

  @Test func `reports all of its faults at once, in the order of the file`() {
    let parsed = parse(
      """
      comand: [/bin/x]
      user: nobody-here
      startup-window: 0s
      environment: [A]
      stop: {signal: BANG, timeout: soon}
      """)
    #expect(parsed.spec == nil)
    #expect(
      parsed.diagnostics.map { "\($0.line ?? 0):\($0.column ?? 0)" } == ["1:1", "2:7", "3:17", "4:14", "5:16", "5:31"])
    #expect(parsed.diagnostics.first?.suggestion == "command")
  }

  @Test func `that is empty is told what it needs`() {
    for text in ["", "# nothing but a comment\n", "---\n"] {
      let parsed = parse(text)
      #expect(parsed.spec == nil)
      #expect(parsed.diagnostics.first?.what == "the file is empty")
    }
  }

  @Test func `that is no mapping is refused`() {
    #expect(
      parse("- a\n- b\n").diagnostics.map(\.description).first?.hasPrefix(
        "x.yaml:1:1: a service's file must be a mapping") == true)
    #expect(parse("just words").spec == nil)
  }
}

@Suite struct `a command` {
  @Test func `of one line is split as a shell would, without a shell`() throws {
    let spec = try #require(parse(#"command: /bin/x -a 'b c' "d \"e\" \\ f" g\ h '' i"j"k"#).spec)
    #expect(spec.process.command == ["/bin/x", "-a", "b c", #"d "e" \ f"#, "g h", "", "i" + "jk"])
  }

  @Test func `may be folded over lines`() throws {
    #expect(try #require(parse("command: >\n  /bin/x -a\n  -b\n").spec).process.command == ["/bin/x", "-a", "-b"])
  }

  @Test(arguments: ["$HOME", "a|b", "a & b", "a; b", "<in", ">out", "*.c", "`date`", "(a)", "\"$HOME\""])
  func `that only a shell could run is an error that says how to have one`(_ word: String) {
    let parsed = parse("command: '/bin/echo \(word)'")
    #expect(parsed.spec == nil)
    #expect(parsed.diagnostics.count == 1)
    #expect(parsed.diagnostics.first?.description.contains("[/bin/sh, -c") == true)
    #expect(parsed.diagnostics.first?.line == 1 && parsed.diagnostics.first?.column == 10)
  }

  @Test func `may have what a shell would expand, in quotes`() throws {
    let spec = try #require(parse(#"command: /bin/echo '$HOME' "a|b" \$x "\$y" '*'"#).spec)
    #expect(spec.process.command == ["/bin/echo", "$HOME", "a|b", "$x", "$y", "*"])
  }

  @Test func `must be there, and absolute`() {
    #expect(
      parse("user: web").diagnostics.map(\.description)
        == [
          "x.yaml:1:1: no 'command'; a service needs the program to run, as in 'command: [/path/to/program, argument]'"
        ])
    #expect(
      parse("command: [node, x]").diagnostics.first?.what == "'command' must begin with an absolute path, not 'node'")
    #expect(parse("command: A=1 /bin/x").diagnostics.first?.why == "variables belong under 'environment'")
    #expect(parse("command: []").diagnostics.first?.what == "'command' is empty")
    #expect(parse("command: ''").diagnostics.first?.what == "'command' is empty")
    #expect(parse("command: {a: b}").spec == nil)
  }

  @Test func `that does not exist is an error, but the service is there, to be quarantined until it appears`() throws {
    let parsed = parse("command: [/opt/missing]", in: context(missing: ["/opt/missing"]))
    #expect(
      parsed.diagnostics.map(\.description) == ["x.yaml:1:11: 'command': /opt/missing: no such file or directory"])
    #expect(parsed.diagnostics.first?.severity == .error)
    #expect(parsed.spec?.process.command == ["/opt/missing"])
  }
}

@Suite struct `the nearest valid word` {
  @Test(
    arguments: [
      ("backof", "backoff"), ("startup_windows", "startup-window"), ("Restart", "restart"), ("env", "environment"),
      ("comand", "command"), ("descripton", "description"), ("relaod", "reload"), ("zzzz", nil), ("plugin", "plugins"),
      ("success_exit", "success-exit"), ("mdoe", "mode"),
    ] as [(String, String?)])
  func `is named for a misspelt key`(_ written: String, _ meant: String?) {
    let found = parse("command: [/bin/x]\n\(written): 1").diagnostics
    #expect(found.count == 1)
    #expect(found.first?.what == "unknown key '\(written)'")
    #expect(found.first?.suggestion == meant)
    #expect(found.first?.line == 2 && found.first?.column == 1)
  }
}
