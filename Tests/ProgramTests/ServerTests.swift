import Glibc
import Testing

extension Programs {
  /// Debian's own servers with damage that their users know.
  @Suite struct `real programs with real damage` {
    static let libraries = "LD_LIBRARY_PATH: \"\(Place.libraries)\""

    // MARK: - Redis

    @Test(
      .enabled(
        if: Place.program("redis-server") != nil && Place.program("redis-check-aof") != nil,
        "not shown: Redis is not there; make programs unpacks it"))
    func `Redis with a damaged append-only file is cured by redis-check-aof in the repair step`() async throws {
      let server = try #require(Place.program("redis-server")), client = try #require(Place.program("redis-cli"))
      let checker = try #require(Place.program("redis-check-aof"))
      let environment = ["LD_LIBRARY_PATH": Place.libraries]
      let scratch = try Scratch(), data = try scratch.directory("data")
      let socket = data + "/redis.sock", settings = scratch.path + "/redis.conf"
      try Files.write(
        """
        port 0
        unixsocket \(socket)
        dir \(data)
        supervised systemd
        appendonly yes
        appendfsync always
        aof-load-truncated no
        auto-aof-rewrite-percentage 0
        save ""

        """, to: settings)
      func redis(_ words: String...) async throws -> String {
        let answer = try await run([client, "-s", socket] + words, environment: environment)
        return answer.output.split(separator: "\n").first.map(String.init) ?? ""
      }

      // Five keys, then a sixth of which only a part has reached the disk.
      do {
        let first = try Process([server, settings], environment: environment, output: scratch.path + "/first.log")
        try await eventually("Redis answers") { try await redis("ping") == "PONG" ? () : nil }
        for n in 1...5 { #expect(try await redis("set", "key\(n)", "value\(n)") == "OK") }
        kill(first.pid, SIGTERM)
        _ = try await first.wait()
      }
      let file = try #require(
        Files.names(in: data + "/appendonlydir").first { $0.hasSuffix(".incr.aof") }.map {
          "\(data)/appendonlydir/\($0)"
        })
      try Files.write(Files.read(file) + "*3\r\n$3\r\nSET\r\n$4\r\nkey6\r\n$6\r\nval", to: file)

      let repair = scratch.path + "/fix-append-only-file"
      try Files.write(
        """
        #!/bin/sh
        export LD_LIBRARY_PATH='\(Place.libraries)'
        echo y | '\(checker)' --fix '\(data)/appendonlydir/appendonly.aof.manifest'

        """, to: repair, mode: 0o755)
      let guardian = try await Guardian(
        scratch,
        services: [
          "redis": """
          description: Redis with persistence
          command: ["\(server)", "\(settings)"]
          environment: {\(Self.libraries)}
          ready: notify
          startup-window: 2s
          backoff: {first: 200ms, max: 1s}
          repair:
            - {name: fix-append-only-file, run: ["\(repair)"], timeout: 20s}
          log: inherit
          """
        ])
      let settled = try await guardian.wait(for: "redis", "settles") { $0["settled"].bool == true }
      #expect(settled["step"].string == "repair" && settled["degraded"].bool == false, "\(settled)")
      #expect(settled["last_end"]["cause"].string == "exit" && settled["last_end"]["code"].int == 1, "\(settled)")
      // It has no plugins, so the restart step has the strikes of safe mode too, five: four restarts did not help, the fifth
      // start came after the repair.
      #expect(settled["restarts"].int == 5, "\(settled)")
      for n in 1...5 { #expect(try await redis("get", "key\(n)") == "value\(n)") }
      #expect(try await redis("get", "key6") == "")
      let story = try await guardian.control("status", "redis").output
      #expect(story.contains("repair") && story.contains("exit"), "\(story)")
      #expect(try await guardian.control("status").code == 0)
      try await guardian.stop()
    }

    // MARK: - nginx

    @Test(
      .enabled(if: Place.program("nginx") != nil, "not shown: nginx is not there; make programs unpacks it"),
      .enabled(if: isRoot, "not shown: hiding a path from one service needs root"))
    func `nginx with a module that cannot be loaded serves again in safe mode, with the module hidden from it alone`()
      async throws
    {
      let server = try #require(Place.program("nginx"))
      let scratch = try Scratch(), home = try scratch.directory("nginx")
      let enabled = try scratch.directory("nginx/modules-enabled")
      for name in ["html", "tmp"] { _ = try scratch.directory("nginx/\(name)") }
      let port = try freePort(), broken = enabled + "/50-mod-broken.conf"
      try Files.write("hello from nginx\n", to: home + "/html/index.html")
      try Files.write("this is no shared object\n", to: home + "/broken_module.so")
      try Files.write("load_module \(home)/broken_module.so;\n", to: broken)
      try Files.write(
        """
        user nobody nogroup;
        pid \(scratch.path)/nginx.pid;
        daemon off;
        error_log stderr;
        include \(enabled)/*.conf;
        events {}
        http {
          access_log off;
          client_body_temp_path \(scratch.path)/body;
          proxy_temp_path \(scratch.path)/proxy;
          fastcgi_temp_path \(scratch.path)/fastcgi;
          uwsgi_temp_path \(scratch.path)/uwsgi;
          scgi_temp_path \(scratch.path)/scgi;
          server { listen 127.0.0.1:\(port); root \(home)/html; }
        }

        """, to: home + "/nginx.conf")
      func fingerprint() async throws -> String {
        let list =
          "find \(home) -printf '%p %m %u %s %T@ %y\\n' | sort; find \(home) -type f -exec sha256sum {} + | sort"
        return try await run(["/bin/sh", "-c", list]).output
      }
      let before = try await fingerprint()
      let guardian = try await Guardian(
        scratch,
        services: [
          "nginx": """
          description: Web server
          command: ["\(server)", -e, stderr, -c, "\(home)/nginx.conf"]
          environment: {\(Self.libraries)}
          startup-window: 2s
          backoff: {first: 100ms, max: 1s}
          stop: {signal: QUIT}
          repair:
            - {name: look, run: [/bin/true]}
          plugins:
            list:
              - {name: broken-module, hide: "\(broken)"}
          log: inherit
          """
        ])
      let settled = try await guardian.wait(for: "nginx", "settles") { $0["settled"].bool == true }
      #expect(settled["step"].string == "safe-mode" && settled["degraded"].bool == true, "\(settled)")
      #expect(settled["disabled_plugins"].array == [.string("broken-module")], "\(settled)")
      // Two restarts, two rounds of repair, one start in safe mode.
      #expect(settled["restarts"].int == 5, "\(settled)")
      let page = try await run(["/usr/bin/curl", "-sS", "--max-time", "5", "http://127.0.0.1:\(port)/"])
      #expect(page.output == "hello from nginx\n", "\(page)")
      let status = try await guardian.control("status", "nginx")
      #expect(
        status.code == 2 && status.output.contains("degraded") && status.output.contains("broken-module"), "\(status)")

      // For everybody else all is as it was; for nginx the file is not there at all.
      #expect(try await fingerprint() == before)
      let pid = try #require(settled["pid"].int)
      #expect(Files.exists(broken))
      #expect(!Files.names(in: "/proc/\(pid)/root\(enabled)").contains("50-mod-broken.conf"))
      try await guardian.stop()
      #expect(try await fingerprint() == before)
    }

    @Test(.enabled(if: Place.program("nginx") != nil, "not shown: nginx is not there; make programs unpacks it"))
    func `nginx with a broken configuration has it named first in its report, and comes back with the last good copy`()
      async throws
    {
      let server = try #require(Place.program("nginx"))
      let scratch = try Scratch(), home = try scratch.directory("nginx")
      _ = try scratch.directory("nginx/html")
      let port = try freePort(), settings = home + "/nginx.conf"
      try Files.write("hello from nginx\n", to: home + "/html/index.html")
      // As root its workers would be nobody, who may not reach what lies below root's home.
      let good = """
        \(isRoot ? "user root root;" : "")
        pid \(scratch.path)/nginx.pid;
        daemon off;
        error_log stderr;
        events {}
        http {
          access_log off;
          client_body_temp_path \(scratch.path)/body;
          proxy_temp_path \(scratch.path)/proxy;
          fastcgi_temp_path \(scratch.path)/fastcgi;
          uwsgi_temp_path \(scratch.path)/uwsgi;
          scgi_temp_path \(scratch.path)/scgi;
          server { listen 127.0.0.1:\(port); root \(home)/html; }
        }

        """
      try Files.write(good, to: settings)
      let guardian = try await Guardian(
        scratch,
        services: [
          "nginx": """
          command: ["\(server)", -e, stderr, -c, "\(settings)"]
          environment: {\(Self.libraries)}
          startup-window: 1s
          backoff: {first: 50ms, max: 100ms}
          escalation: {restart: 1, safe-mode: 1}
          stop: {signal: QUIT}
          repair:
            - {name: config, restore: ["\(settings)"]}
          log: file
          """
        ])
      func wellAgain(_ what: String, after run: String?) async throws -> JSON {
        try await guardian.wait(for: "nginx", what) { $0["settled"].bool == true && $0["run"].string != run }
      }
      let first = try await wellAgain("settles", after: nil)
      try await eventually("a good copy is kept") {
        let notes = try await guardian.status("nginx")["notes"].array
        return notes.contains { $0.string?.contains("no good copy") ?? false } ? nil : ()
      }
      // Guardian itself may go meanwhile: what it knows of healthy runs is on the disk.
      guardian.kill()
      try await guardian.startAgain()

      let broken = good.replacing("access_log off;", with: "access_log off\n  no_such_directive on;")
      try Files.write(broken, to: settings)
      _ = try await guardian.control("restart", "--no-wait", "nginx")
      let second = try await wellAgain("settles again", after: first["run"].string)
      #expect(second["step"].string == "repair", "\(second)")
      let page = try await run(["/usr/bin/curl", "-sS", "--max-time", "5", "http://127.0.0.1:\(port)/"])
      #expect(page.output == "hello from nginx\n", "\(page)")
      #expect(try Files.read(settings) == good)
      let kept = try #require(Files.names(in: home).first { $0.hasPrefix(".nginx.conf.guardian-") })
      #expect(try Files.read("\(home)/\(kept)") == broken)

      // The report of each of its deaths.
      let crashes = try JSON(try await guardian.control("--json", "crashes", "nginx").output)["crashes"].array
      #expect(!crashes.isEmpty)
      for crash in crashes {
        let report = try JSON(try await guardian.control("crashes", "export", try #require(crash["id"].string)).output)
        let hint = try #require(report["changes"].array.first, "\(report)")
        #expect(hint["what"].string == "\(settings) changed" && hint["at"].string != nil, "\(report["changes"])")
        #expect(report["output"]["lines"].array.contains { $0.string?.contains("nginx.conf") ?? false }, "\(report)")
      }
      let story = try await guardian.control("status", "nginx").output
      #expect(story.contains("last known good copy of"), "\(story)")
      #expect(story.replacing("\n", with: "").contains(kept), "\(story)")
      #expect(story.contains("changed since it was last well: \(settings) changed"), "\(story)")
      try await guardian.stop()
    }

    // MARK: - PostgreSQL

    @Test(
      .enabled(
        if: Place.program("postgres") != nil && Place.program("initdb") != nil && Place.program("psql") != nil,
        "not shown: PostgreSQL is not there; make programs unpacks it"))
    func `PostgreSQL that is to preload a missing library is cured by its plugin's arguments`() async throws {
      let scratch = try Scratch()
      let user = isRoot ? User.nobody : nil
      var programs = try ["postgres", "initdb", "psql"].map { try #require(Place.program($0)) }
      // PostgreSQL refuses to be root; its user may not reach what lies below root's home.
      if try await run(Guardian.command(as: user) + [programs[0], "--version"]).code != 0 {
        let copy = try scratch.directory("programs")
        #expect(try await run(["/bin/cp", "-a", Place.unpacked + "/usr", copy], seconds: 60).code == 0)
        programs = programs.map { copy + $0.dropFirst(Place.unpacked.count) }
      }
      let environment = ["LD_LIBRARY_PATH": Place.libraries]
      let place = try scratch.directory("postgres"), data = place + "/data"
      if let user { scratch.give(place, to: user) }
      let made = try await run(
        Guardian.command(as: user) + [programs[1], "-D", data, "--no-sync", "-A", "trust", "-U", "postgres"],
        environment: environment, seconds: 60)
      #expect(made.code == 0, "\(made)")
      let settings = try Files.read(data + "/postgresql.conf")
      try Files.write(settings + "\nshared_preload_libraries = 'no_such_library'\n", to: data + "/postgresql.conf")

      let guardian = try await Guardian(
        scratch,
        services: [
          "postgres": """
          description: Database
          command: ["\(programs[0])", -D, "\(data)", -k, "\(place)", -c, listen_addresses=]
          environment: {\(Self.libraries)}
          \(isRoot ? "user: nobody" : "")
          ready: notify
          startup-window: 2s
          backoff: {first: 100ms, max: 500ms}
          stop: {signal: INT, timeout: 20s}
          plugins:
            list:
              - {name: preloaded, arguments: [-c, shared_preload_libraries=]}
          log: inherit
          """
        ])
      let settled = try await guardian.wait(for: "postgres", "settles", seconds: 40) { $0["settled"].bool == true }
      #expect(settled["step"].string == "safe-mode" && settled["degraded"].bool == true, "\(settled)")
      #expect(settled["disabled_plugins"].array == [.string("preloaded")], "\(settled)")
      // No repairs: their two strikes are the restart step's, so the fifth restart is the first in safe mode.
      #expect(settled["restarts"].int == 5, "\(settled)")
      let answer = try await run(
        [programs[2], "-h", place, "-U", "postgres", "-Atc", "select 40 + 2"], environment: environment)
      #expect(answer.output == "42\n", "\(answer)")
      try await guardian.stop()
    }
  }
}
