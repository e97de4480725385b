import GuardianImport
import GuardianModel
import Testing

@Suite struct `a supervisord_conf` {
  static let text = """
    ; what supervisord's own documentation would call usual
    [supervisord]
    logfile = /var/log/supervisord.log
    environment = LANG="C.UTF-8"
    minfds = 4096

    [unix_http_server]
    file = /run/supervisor.sock

    [program:shop]
    command = /usr/bin/node "/srv/my shop/server.js" --port 80%(process_num)02d   ; one port each
    process_name = %(program_name)s-%(process_num)d
    numprocs = 2
    numprocs_start = 1
    directory = %(here)s/shop
    user = shop
    environment = PORT="8080",TITLE='two words, and a comma',
        HOME="%(ENV_HOME)s"
    autostart = false
    autorestart = unexpected
    exitcodes = 0,2
    startsecs = 10
    startretries = 3
    stopsignal = INT
    stopwaitsecs = 20
    stopasgroup = true
    umask = 027
    priority = 10
    redirect_stderr = true
    stdout_logfile = /var/log/shop.log
    stdout_logfile_maxbytes = 10MB

    [program:cron]
    command = cron -f
    autorestart = true
    stdout_logfile = /dev/stdout

    [group:front]
    programs = shop, cron
    priority = 5

    [eventlistener:mail]
    command = /usr/bin/mailer
    """

  private func imported() -> Imported {
    SupervisordSource(
      files: [ImportedFile(name: "supervisord.conf", text: Self.text)], here: "/etc/supervisor",
      environment: ["HOME": "/root"], find: { $0 == "cron" ? "/usr/sbin/cron" : nil }
    ).imported
  }

  @Test func `becomes a service for each process of each program`() throws {
    let all = imported()
    #expect(all.services.map(\.name) == ["shop-1", "shop-2", "cron"])
    let second = try #require(all.services.dropFirst().first)
    #expect(
      second.yaml == """
        # Made from supervisord.conf by guardianctl import.
        command: [/usr/bin/node, /srv/my shop/server.js, --port, "8002"]
        user: shop
        directory: /etc/supervisor/shop
        environment: {LANG: C.UTF-8, PORT: "8080", TITLE: "two words, and a comma", HOME: /root}
        umask: "0027"
        limits: {open-files: 4096}
        start: manual
        groups: [front]
        startup-window: 10s
        stop: {signal: INT, timeout: 20s}
        restart: on-crash
        success-exit: [0, 2]
        log: file

        """)
    for service in all.services { _ = try spec(service) }
    let last = try #require(all.services.last)
    #expect(last.yaml.contains("\ncommand: [/usr/sbin/cron, -f]\n") && last.yaml.contains("\nlog: inherit\n"))
    #expect(last.yaml.contains("\nstartup-window: 1s\nrestart: always\n"), "\(last.yaml)")
  }

  @Test func `has a word about every line`() {
    let all = imported()
    let missing = all.unmentioned([ImportedFile(name: "supervisord.conf", text: Self.text)]) {
      // A section's head speaks for nothing, and a continued value belongs to the line above.
      $0.hasPrefix(";") || $0.hasPrefix("[") || $0.hasPrefix("HOME=")
    }
    #expect(missing == [])
    let lost = (all.remarks + all.services.flatMap(\.remarks)).filter { $0.kind == .lost }.compactMap(\.line)
    #expect(lost.sorted() == [28, 31, 40, 43])
  }

  @Test func `lists an option in which bytes are no text`() throws {
    let text = "[program:a]\ncommand=/bin/a\nuser=\u{fffd}\nenvironment=A=1,\n  B=\u{fffd}\n"
    let imported = SupervisordSource(files: [ImportedFile(name: "s.conf", text: text)], here: "/etc").imported
    let service = try only(imported)
    #expect(!service.yaml.contains("user") && !service.yaml.contains("environment"), "\(service.yaml)")
    let told = (imported.remarks + service.remarks).filter { $0.why == "a byte in it is no UTF-8" }
    #expect(told.map(\.line) == [3, 4] && told.allSatisfy { $0.kind == .lost }, "\(imported)")
  }

  @Test func `names what it includes`() {
    #expect(
      SupervisordSource.includes("[include]\nfiles = conf.d/*.conf /etc/x.ini\n", here: "/etc/supervisor")
        == ["/etc/supervisor/conf.d/*.conf", "/etc/x.ini"])
  }
}

@Suite struct `a service directory of runit` {
  private func directory(_ files: [(String, String)], services: Set<String> = []) -> Imported {
    RunitSource(
      directory: "/etc/sv/web", files: files.map { ImportedFile(name: $0.0, text: $0.1) }, services: services
    ).imported
  }

  @Test func `gives its keys where run only prepares and executes`() throws {
    let run = """
      #!/bin/sh
      # usual
      exec 2>&1
      cd /srv/web
      umask 027
      exec chpst -u web:www -e ./env -o 4096 -n 5 /usr/bin/web \\
        --port 8080 'a b'
      """
    let service = try only(
      directory([
        ("run", run), ("env/PORT", "8080\n"), ("env/NAME", "two words  \nignored\n"), ("env/GONE", ""), ("down", ""),
        ("check", "#!/bin/sh\n"), ("finish", "#!/bin/sh\n"), ("log/run", "#!/bin/sh\nexec svlogd .\n"), ("README", "x"),
      ]))
    #expect(
      service.yaml == """
        # Made from /etc/sv/web by guardianctl import.
        command: [/usr/bin/web, --port, "8080", a b]
        user: web
        group: www
        directory: /srv/web
        environment: {PORT: "8080", NAME: two words}
        umask: "0027"
        limits: {open-files: 4096}
        nice: 5
        start: manual
        ready: check
        checks: [{name: check, exec: [/etc/sv/web/check]}]
        stop: {timeout: 7s}
        backoff: {first: 1s}
        log: file

        """)
    _ = try spec(service)
    #expect(
      service.remarks.map { "\($0.what) \($0.kind.rawValue)" } == [
        "README needless", "check changed", "env/GONE needless", "env/NAME changed", "finish lost", "log/run changed",
      ])
  }

  @Test func `is run by its script where that does more`() throws {
    let run = "#!/bin/sh\n. /etc/default/web\nexec chpst -u web /usr/bin/web $OPTIONS\n"
    let service = try only(directory([("run", run)]))
    #expect(service.yaml.contains("\ncommand: [/etc/sv/web/run]\ndirectory: /etc/sv/web\n"))
    #expect(!service.yaml.contains("user:") && service.carried.map(\.line) == [1, 2, 3])
    #expect(service.remarks.map(\.kind) == [.changed])
    _ = try spec(service)
  }

  @Test func `keeps its script, and lists a variable, where bytes are no text`() throws {
    let service = try only(
      directory([("run", "#!/bin/sh\nexec /usr/bin/web \u{fffd}\n"), ("env/A", "\u{fffd}\n"), ("env/B", "b\n")]))
    #expect(service.yaml.contains("\ncommand: [/etc/sv/web/run]\n"), "\(service.yaml)")
    #expect(service.yaml.contains("\nenvironment: {B: b}\n"), "\(service.yaml)")
    #expect(service.remarks.contains { $0.what == "env/A" && $0.kind == .lost && $0.why == "a byte in it is no UTF-8" })
    _ = try spec(service)
  }

  @Test func `has what s6 puts beside it`() throws {
    let service = try only(
      directory(
        [
          ("run", "#!/bin/sh\nexec /usr/bin/web\n"), ("notification-fd", "4\n"), ("timeout-kill", "5000\n"),
          ("down-signal", "SIGINT\n"),
          ("dependencies.d/db", ""), ("dependencies.d/other", ""),
        ], services: ["db"]))
    #expect(service.yaml.contains("\nready: {fd: 4}\n") && service.yaml.contains("\nrequires: [db]\n"))
    #expect(service.yaml.contains("\nstop: {timeout: 5s, signal: INT}\n"), "\(service.yaml)")
    _ = try spec(service)
  }

  @Test func `without run is none`() {
    #expect(directory([("finish", "")]).services.isEmpty)
  }
}
