import Glibc
import Testing

extension PluginPrograms {
  /// nginx with eight modules, each a plugin because it has a file in the directory of what is to be loaded.
  @Suite struct `nginx and its modules` {
    static let names = [
      "stream", "mail", "http_echo", "http_fancyindex", "http_headers_more_filter", "http_subs_filter",
      "http_cache_purge", "http_uploadprogress",
    ]
    static func module(_ name: String) -> String? {
      ["\(Place.unpacked)/usr/lib/nginx/modules", "/usr/lib/nginx/modules"].map { "\($0)/ngx_\(name)_module.so" }
        .first { access($0, R_OK) == 0 }
    }
    static let missing: String? =
      Place.program("nginx") == nil || names.contains { module($0) == nil }
      ? "nginx with its modules is not there; make programs unpacks it" : nil

    struct Damage: CustomTestStringConvertible {
      var testDescription: String
      /// Cannot be loaded, or are loaded only now and then.
      var broken: [String] = [], flaky: [String] = []
      /// Starts of the search that the published table has as its 95th percentile, or thereabouts.
      var mostProbes: Int
    }
    static let damages = [
      Damage(testDescription: "one that cannot be loaded", broken: ["http_subs_filter"], mostProbes: 7),
      Damage(testDescription: "two that cannot be loaded", broken: ["mail", "http_cache_purge"], mostProbes: 13),
      Damage(testDescription: "one that fails in 70 % of its loads", flaky: ["http_echo"], mostProbes: 14),
    ]

    /// The module behind a library that ends the program in seven of ten loads, in a fixed order.
    private func flaky(_ module: String, _ place: String) async throws -> String {
      let compiler = try #require(Compiler.path)
      let library = place + "/flaky.so"
      try Files.write(
        """
        #include <fcntl.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        __attribute__((constructor)) static void load(void) {
          int file = open("\(place)/loads", O_RDWR | O_CREAT | O_APPEND, 0600);
          long loads = lseek(file, 0, SEEK_END);
          if (write(file, "x", 1) != 1) _exit(9);
          // As often as it takes to come to safe mode, and then now and then.
          if (loads < 4 || "FPFFFPFFPF"[loads % 10] == 'F') {
            fprintf(stderr, "the module of load %ld does not work today\\n", loads);
            _exit(9);
          }
        }

        """, to: place + "/flaky.c")
      let built = try await run([
        compiler, "-shared", "-fPIC", "-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed", "-o", library,
        place + "/flaky.c", module,
      ])
      #expect(built.code == 0, "\(built.error)")
      return library
    }

    @Test(
      .enabled(if: missing == nil, "not shown: \(missing ?? "")"),
      .enabled(if: isRoot, "not shown: hiding a path from one service needs root"),
      .enabled(if: Compiler.path != nil, "not shown: no C compiler is there"), arguments: damages)
    func `end with all that work on and the bad ones off, unattended`(_ damage: Damage) async throws {
      let server = try #require(Place.program("nginx"))
      let scratch = try Scratch(), home = try scratch.directory("nginx")
      let enabled = try scratch.directory("nginx/modules-enabled")
      for name in ["html", "tmp"] { _ = try scratch.directory("nginx/\(name)") }
      let port = try freePort()
      try Files.write("hello from nginx\n", to: home + "/html/index.html")
      for name in Self.names {
        var library = try #require(Self.module(name))
        if damage.broken.contains(name) {
          library = "\(home)/\(name).so"
          try Files.write("this is no shared object\n", to: library)
        }
        if damage.flaky.contains(name) { library = try await flaky(library, home) }
        try Files.write("load_module \(library);\n", to: "\(enabled)/\(name).conf")
      }
      try Files.write(
        """
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
      let guardian = try await Guardian(
        scratch,
        services: [
          "nginx": """
          command: ["\(server)", -e, stderr, -c, "\(home)/nginx.conf"]
          environment: {LD_LIBRARY_PATH: "\(Place.libraries)"}
          startup-window: 1s
          backoff: {first: 50ms, max: 200ms}
          escalation: {restart: 3, repair: 1, safe-mode: 2}
          stop: {signal: QUIT}
          plugins:
            directory: "\(enabled)"
          log: file
          """
        ])
      let began = ContinuousClock.now
      let bad = Set((damage.broken + damage.flaky).map { $0.replacing("_", with: "-") })
      let settled = try await guardian.wait(for: "nginx", "is well without \(bad)", seconds: 90) { status in
        let off = Set(
          status["disabled_plugins"].array.compactMap(\.string).map { String($0.prefix { $0 != "." }) }
            .map { $0.replacing("_", with: "-") })
        return status["settled"].bool == true && status["step"].string == "restart" && off == bad
      }
      #expect(settled["degraded"].bool == true, "\(settled)")
      let page = try await run(["/usr/bin/curl", "-sS", "--max-time", "5", "http://127.0.0.1:\(port)/"])
      #expect(page.output == "hello from nginx\n", "\(page)")
      let events = try JSON(try await guardian.control("--json", "events", "nginx").output)["events"].array
      let over = try #require(events.last { $0["name"].string == "search-ended" })
      let probes = try #require(over["details"]["probes"].int)
      #expect(probes <= damage.mostProbes, "\(over)")
      print("\(damage): \(probes) probes, \(settled["restarts"].int ?? 0) starts, \(ContinuousClock.now - began)")
      try await guardian.stop()
    }
  }
}
