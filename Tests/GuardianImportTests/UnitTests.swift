import GuardianImport
import GuardianModel
import Testing

@Suite struct `a unit of systemd` {
  static let shop = """
    # Not Debian's, but what such a unit has.
    [Unit]
    Description=Shop front end
    Documentation=https://wiki.example/shop
    After=network-online.target db.service cache.service
    Requires=db.service
    ConditionPathExists=/srv/shop

    [Service]
    Type=notify
    User=shop
    Environment="PORT=8080" 'TITLE=Two words' LANGUAGE=en
    ; the default is 1024
    LimitNOFILE=65536
    UMask=027
    ExecStartPre=/usr/libexec/shop/migrate --quietly
    ExecStart=/usr/bin/node --title "%p at %H" \\
      # within a continued line
      /srv/shop/server.js --port ${PORT} $$HOME
    ExecReload=/bin/kill -HUP $MAINPID
    ExecStopPost=/usr/libexec/shop/tidy
    Restart=on-failure
    RestartSec=2
    RestartPreventExitStatus=64 CONFIG
    SuccessExitStatus=143
    TimeoutStartSec=2min 30s
    TimeoutStopSec=30
    WatchdogSec=20s
    KillSignal=SIGINT
    KillMode=mixed
    AmbientCapabilities=CAP_NET_BIND_SERVICE
    MemoryMax=1G
    TasksMax=512
    CPUWeight=50
    OOMScoreAdjust=-100
    Nice=5
    WorkingDirectory=/srv/shop
    ProtectSystem=strict
    PrivateTmp=no
    StandardOutput=journal
    Frobnicate=yes

    [Install]
    WantedBy=multi-user.target
    """

  @Test func `leaves out, and lists, what its specifiers leave empty and what is no text`() throws {
    let service = try only(
      unit(
        "[Unit]\nDescription=a\\xffb %p\n[Service]\nUser=%i\nWorkingDirectory=%I\nEnvironment=A=\\xff B=\u{fffd}\n"
          + "ExecStart=/bin/x \\xc3\\xa9 \\303\\251 \\u00e9\nExecReload=/bin/y \\377\n"))
    _ = try spec(service)
    #expect(service.yaml.contains("command: [/bin/x, \"é\", \"é\", \"é\"]\n"), "\(service.yaml)")
    #expect(!service.yaml.contains("user") && !service.yaml.contains("environment"), "\(service.yaml)")
    let lost = service.remarks.filter { $0.kind == .lost }
    func why(_ line: Int) -> String? { lost.first { $0.line == line }?.why }
    #expect(why(4) == "it is empty, since web.service is no instance of a template" && why(5) == why(4), "\(lost)")
    #expect(why(6) == "a byte in it is no UTF-8")
    #expect(why(8) == "an escape in it is a byte that is no UTF-8")
    let none = unit("[Service]\nExecStart=/bin/x \\xff\n")
    #expect(none.services.isEmpty && none.remarks.first?.why == "an escape in it is a byte that is no UTF-8", "\(none)")
  }

  @Test func `becomes a service with all that guardian has`() throws {
    let service = try only(unit(Self.shop, named: "shop.service", services: ["db", "other"]))
    #expect(
      service.yaml == """
        # Made from shop.service by guardianctl import.
        description: Shop front end
        command: [/usr/bin/node, --title, shop at box.example, /srv/shop/server.js, --port, "8080", "$HOME"]
        user: shop
        directory: /srv/shop
        environment: {PORT: "8080", TITLE: Two words, LANGUAGE: en}
        umask: "0027"
        limits: {open-files: 65536, memory: 1G, tasks: 512, cpu-weight: 50}
        oom-score-adjust: -100
        nice: 5
        capabilities: [net-bind-service]
        before-start: [/usr/libexec/shop/migrate, --quietly]
        requires: [db]
        ready: notify
        start-timeout: 150s
        watchdog: 20s
        stop: {signal: INT, timeout: 30s}
        reload: HUP
        restart: on-crash
        backoff: {first: 2s}
        success-exit: [0, 143]
        fatal-exit: [64, 78]

        """)
    let spec = try spec(service)
    #expect(spec.fatalExit == [64, 78] && spec.ready == .notify && spec.stop.signal == .int)
  }

  @Test func `tells line by line what is not in it, and why`() throws {
    let service = try only(unit(Self.shop, named: "shop.service", services: ["db"]))
    let said = service.remarks.map { "\($0.line ?? 0) \($0.kind.rawValue) \($0.what)" }
    #expect(
      said == [
        "4 needless Documentation=https://wiki.example/shop",
        "5 changed After=network-online.target db.service cache.service",
        "7 lost ConditionPathExists=/srv/shop",
        "21 lost ExecStopPost=/usr/libexec/shop/tidy",
        "38 lost ProtectSystem=strict",
        "39 needless PrivateTmp=no",
        "41 lost Frobnicate=yes",
      ])
    #expect(
      service.remarks[4].description
        == "shop.service:38: ProtectSystem=strict: not carried over: guardian does not shut services in: it can write "
        + "below /usr, /boot and /etc where its user may")
    #expect(
      unit(Self.shop, named: "shop.service").unmentioned([ImportedFile(name: "shop.service", text: Self.shop)]) {
        $0.hasPrefix("#") || $0.hasPrefix(";") || $0.hasPrefix("[")
      } == [])
  }

  struct Case: CustomTestStringConvertible, Sendable {
    var lines: String, has: [String], says: [String] = []
    var testDescription: String { lines }
  }

  /// Each beside an ExecStart of /bin/x, unless it has its own.
  @Test(arguments: [
    Case(
      lines: "ExecStart=/bin/old\nExecStart=\nExecStart=/bin/new", has: ["command: [/bin/new]"],
      says: ["2 needless", "3 needless"]),
    Case(lines: "Nice=1\nNice=2", has: ["nice: 2"], says: ["2 needless"]),
    Case(
      lines: "EnvironmentFile=-/etc/default/x\nExecStart=/bin/x -f ${FILE} $OPTIONS 'it''s'",
      has: [
        #"command: [/bin/sh, -c, "set -f; exec /bin/x -f \"${FILE}\" $OPTIONS its"]"#,
        "environment-file: [-/etc/default/x]",
      ],
      says: ["3 changed"]),
    Case(
      lines: "Environment=OPTIONS=\"-a -b\"\nExecStart=/bin/x $OPTIONS ${OPTIONS}",
      has: [#"command: [/bin/x, -a, -b, "-a -b"]"#]),
    Case(lines: "ExecStart=:/bin/x $HOME", has: [#"command: [/bin/x, "$HOME"]"#]),
    Case(lines: "ExecStart=@/bin/x other -v", has: ["command: [/bin/x, -v]"], says: ["2 changed"]),
    Case(lines: "ExecStart=-/bin/x", has: ["command: [/bin/x]"], says: ["2 changed"]),
    Case(lines: "User=web\nExecStart=+/bin/x", has: ["user: web"], says: ["3 changed"]),
    Case(
      lines: "Type=oneshot\nExecStart=/bin/a\nExecStart=-/bin/b",
      has: ["type: task", #"command: [/bin/sh, -c, "/bin/a && { /bin/b || :; }"]"#]),
    Case(
      lines: "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/a ; /bin/b \"c d\"",
      has: [#"command: [/bin/sh, -c, "/bin/a && /bin/b 'c d'"]"#], says: ["3 needless"]),
    Case(lines: "Type=forking", has: ["command: [/bin/x]"], says: ["2 lost"]),
    Case(lines: "Type=dbus\nBusName=org.example", has: [], says: ["2 changed", "3 lost"]),
    Case(lines: "Type=notify-reload", has: ["ready: notify", "reload: HUP"]),
    Case(
      lines: "ExecStartPre=/bin/a\nExecStartPre=-/bin/b",
      has: [#"before-start: [/bin/sh, -c, "/bin/a && { /bin/b || :; }"]"#]),
    Case(
      lines: "ExecReload=/bin/test\nExecReload=/bin/kill -s USR2 $MAINPID",
      has: [#"reload: [/bin/sh, -c, "set -f; /bin/test && /bin/kill -s USR2 $MAINPID"]"#]),
    Case(lines: "ExecStop=/bin/kill -QUIT ${MAINPID}", has: ["stop: {signal: QUIT, timeout: 90s}"]),
    Case(lines: "ExecStop=/bin/x stop", has: [], says: ["2 lost"]),
    Case(lines: "TimeoutStopSec=infinity", has: ["stop: {timeout: 1d}"], says: ["2 changed"]),
    Case(lines: "TimeoutSec=20", has: ["stop: {timeout: 20s}"]),
    Case(lines: "Restart=on-abnormal", has: ["restart: on-crash"], says: ["2 changed"]),
    Case(lines: "Restart=always\nRestartSec=5min", has: ["restart: always", "backoff: {first: 5min, max: 5min}"]),
    Case(lines: "StartLimitBurst=3\nStartLimitIntervalSec=0", has: [], says: ["2 changed", "3 changed"]),
    Case(lines: "SuccessExitStatus=SIGKILL 3", has: ["success-exit: [0, 3]"], says: ["2 changed"]),
    Case(
      lines: "RuntimeDirectory=x\nRuntimeDirectoryMode=0750",
      has: [#"before-start: [/bin/sh, -c, /bin/mkdir -p -m 0750 /run/x]"#, "environment: {RUNTIME_DIRECTORY: /run/x}"]),
    Case(lines: "User=web\nStateDirectory=x", has: ["environment: {STATE_DIRECTORY: /var/lib/x}"], says: ["3 lost"]),
    Case(
      lines: "LimitCPU=1h\nLimitCORE=infinity\nLimitNOFILE=1024:4096\nLimitRTPRIO=4",
      has: ["limits: {open-files: 1024, core: unlimited, cpu-time: 1h}"], says: ["4 changed", "5 lost"]),
    Case(lines: "MemoryMax=50%\nTasksMax=infinity", has: ["limits: {tasks: unlimited}"], says: ["2 lost"]),
    Case(lines: "StandardOutput=null\nStandardError=inherit", has: ["log: none"]),
    Case(lines: "StandardOutput=append:/var/log/x", has: ["log: file"], says: ["2 changed"]),
    Case(lines: "IgnoreSIGPIPE=no", has: [], says: ["2 needless"]),
    Case(lines: "WorkingDirectory=~", has: [], says: ["2 lost"]),
    Case(lines: "Environment=NOTIFY_SOCKET=/x", has: [], says: ["2 lost"]),
    Case(lines: "X-Ours=1", has: [], says: ["2 needless"]),
    Case(lines: "no assignment", has: [], says: ["2 lost"]),
    Case(lines: "ExecStart=/bin/x 'open", has: [], says: ["2 lost"]),
    Case(lines: "Sockets=http.socket", has: [], says: ["2 lost"]),
  ])
  func `is read as systemd reads it`(_ c: Case) throws {
    let own = c.lines.contains("ExecStart=")
    let text = "[Service]\n\(c.lines)\n" + (own ? "" : "ExecStart=/bin/x\n")
    let imported = unit(text)
    if own, imported.services.isEmpty {
      #expect(c.has.isEmpty && imported.remarks.contains { $0.line == 2 && $0.kind == .lost })
      return
    }
    let service = try only(imported)
    _ = try spec(service)
    for line in c.has { #expect(service.yaml.contains("\n\(line)\n"), "\(service.yaml)") }
    let said = service.remarks.compactMap { remark in remark.line.map { "\($0) \(remark.kind.rawValue)" } }
    for line in c.says { #expect(said.contains(line), "\(service.remarks)") }
    #expect(imported.unmentioned([ImportedFile(name: "web.service", text: text)]) { $0.hasPrefix("[") } == [])
  }

  @Test func `has its drop-ins read after it`() throws {
    let files = [
      ImportedFile(name: "web.service", text: "[Service]\nExecStart=/bin/web\nRestart=no\n"),
      ImportedFile(
        name: "web.service.d/10-ours.conf", text: "[Service]\nExecStart=\nExecStart=/opt/web\nRestart=always\n"),
    ]
    let service = try only(UnitSource(unit: "web.service", files: files).imported)
    #expect(service.yaml.contains("\ncommand: [/opt/web]\n") && service.yaml.contains("\nrestart: always\n"))
    #expect(
      service.remarks.contains {
        $0.file == "web.service" && $0.line == 2 && $0.why == "it is cleared at web.service.d/10-ours.conf:2"
      })
  }

  @Test func `knows the instance of a template`() throws {
    let text = "[Service]\nExecStart=/bin/x %i %I %j %%\n"
    let service = try only(unit(text, named: "pg@15-main.service"))
    #expect(service.name == "pg@15-main")
    #expect(service.yaml.contains(#"command: [/bin/x, "15-main", "15/main", pg, "%"]"#), "\(service.yaml)")
    let template = unit(text, named: "pg@.service")
    #expect(template.services.isEmpty && template.remarks.contains { $0.why == "%i is not known here" })
  }

  @Test func `names only services that guardian has`() throws {
    let text =
      "[Unit]\nAfter=a.service b.service\nRequires=b.service\n[Service]\nExecStart=/bin/x\n[Install]\nWantedBy=x.target\n"
    let alone = try only(unit(text))
    #expect(!alone.yaml.contains("after:") && !alone.yaml.contains("requires:"))
    #expect(alone.remarks.filter { $0.line == 3 }.map(\.kind) == [.lost])
    let together = try only(unit(text, services: ["a", "b"]))
    #expect(together.yaml.contains("\nrequires: [b]\nafter: [a]\n"), "\(together.yaml)")
  }

  /// Mutations: the same for a seed.
  @Test(arguments: UInt64(1)...4) func `is never the end of guardianctl, whatever its bytes`(seed: UInt64) throws {
    var state = seed
    func next(_ bound: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int((state >> 33) % UInt64(max(bound, 1)))
    }
    let pieces = [
      "%", "$", "${", "\\", "\"", "'", "=", "\n", "[", "]", ";", "\\x", "\u{85}", "99999999999999999999", "%i", "-",
      "é", "\0", "\r\n", " ",
    ]
    for _ in 0..<60 {
      var text = Array(Self.shop.unicodeScalars)
      for _ in 0..<(1 + next(8)) {
        let place = next(text.count)
        switch next(3) {
        case 0: text.insert(contentsOf: pieces[next(pieces.count)].unicodeScalars, at: place)
        case 1: text.removeSubrange(place..<min(text.count, place + next(30)))
        default: text[place] = Unicode.Scalar(UInt8(next(256)))
        }
      }
      var string = String.UnicodeScalarView()
      string.append(contentsOf: text)
      let imported = unit(String(string))
      if let service = imported.services.first {
        // A NUL in a unit is nobody's; all else is a valid service.
        if !String(string).unicodeScalars.contains("\0") { _ = try spec(service) }
      } else {
        #expect(!imported.remarks.isEmpty)
      }
    }
  }
}
