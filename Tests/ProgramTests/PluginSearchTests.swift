import Glibc
import Testing

extension PluginPrograms {
  /// A search for the guilty plugin, in real programs.
  @Suite struct PluginSearch {
    /// A server that dies half a second after its start where one of the plugins `bad` is on.
    private func program(_ scratch: Scratch) throws -> String {
      let path = scratch.path + "/server"
      try Files.write(
        """
        #!/bin/sh
        # server BAD : each plugin is on unless PLUGIN_name is off
        case $1 in
        "$PLUGIN_a"|"$PLUGIN_b"|"$PLUGIN_c"|"$PLUGIN_d"|"$PLUGIN_e"|"$PLUGIN_f"|"$PLUGIN_g"|"$PLUGIN_h") ;;
        *) sleep 0.1; echo "plugin $1 fails" >&2; exit 3 ;;
        esac
        exec sleep 1000

        """, to: path, mode: 0o755)
      return path
    }

    private func definition(_ program: String, bad: String) -> String {
      let names = ["a", "b", "c", "d", "e", "f", "g", "h"]
      let plugins = names.map { "      - {name: \($0), environment: {PLUGIN_\($0): \($0)}}" }
      return """
        command: ["\(program)", \(bad)]
        startup-window: 3s
        backoff: {first: 50ms, max: 100ms}
        escalation: {restart: 2, repair: 1, safe-mode: 2}
        plugins:
          list:
        \(plugins.joined(separator: "\n"))
        log: inherit
        """
    }

    @Test func `one bad plugin of eight is found unattended, and shown with who has switched it off and until when`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": definition(try program(scratch), bad: "f")])
      let found = try await guardian.wait(for: "web", "is well with seven plugins", seconds: 90) {
        $0["settled"].bool == true && $0["disabled_plugins"].array == [.string("f")]
      }
      #expect(found["step"].string == "restart" && found["strikes"].int == 0, "\(found)")
      #expect(found["degraded"].bool == true, "\(found)")
      let table = try await guardian.control("plugins", "web")
      #expect(table.code == 0 && table.output.contains("search"), "\(table)")
      let events = try await guardian.control("events", "web").output
      #expect(events.contains("the search is over: f off"), "\(events)")
      try await guardian.stop()
    }

    /// Plugins are files; one with the word `bad` in it ends the program.
    private func feeder(_ scratch: Scratch, more: String) throws -> String {
      let program = scratch.path + "/feeder", place = try scratch.directory("plugins")
      try Files.write(
        """
        #!/bin/sh
        for plugin in "\(place)"/*; do
          grep -q bad "$plugin" && { sleep 0.1; echo "$plugin fails" >&2; exit 3; }
        done
        exec sleep 1000

        """, to: program, mode: 0o755)
      for name in ["a", "b", "c"] { try Files.write(name == "b" ? "bad" : "good", to: "\(place)/\(name)") }
      return """
        command: ["\(program)"]
        startup-window: 1s
        backoff: {first: 50ms, max: 100ms}
        escalation: {restart: 1, repair: 1, safe-mode: 1}
        late: {budget: 1000, within: 1h}
        plugins: {directory: "\(place)"\(more)}
        log: inherit
        """
    }

    @Test(.enabled(if: isRoot, "not shown: hiding a path from one service needs root"))
    func `a plugin whose file was replaced is back at the next start, without anybody's command`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": try feeder(scratch, more: "")])
      let found = try await guardian.wait(for: "web", "is well without b", seconds: 90) {
        $0["settled"].bool == true && $0["step"].string == "restart" && $0["disabled_plugins"].array == [.string("b")]
      }
      try Files.write("good", to: scratch.path + "/plugins/.b.new")
      #expect(rename(scratch.path + "/plugins/.b.new", scratch.path + "/plugins/b") == 0)
      // At once: the start itself looks.
      kill(pid_t(try #require(found["pid"].int)), SIGTERM)
      let whole = try await guardian.wait(for: "web", "is well with all") {
        $0["settled"].bool == true && $0["disabled_plugins"].array.isEmpty
      }
      #expect(whole["degraded"].bool == false && whole["strikes"].int == 0, "\(whole)")
      try await guardian.stop()
    }

    @Test(.enabled(if: isRoot, "not shown: hiding a path from one service needs root"))
    func `a plugin that still fails is off again after one start, for twice as long`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": try feeder(scratch, more: ", retry-after: 2s")])
      func isWell(_ status: JSON) -> Bool {
        status["settled"].bool == true && status["step"].string == "restart"
          && status["disabled_plugins"].array == [.string("b")]
      }
      let found = try await guardian.wait(for: "web", "is well without b", seconds: 90, isWell)
      // It is due by then: two seconds, and a tenth of them by chance.
      try await Task.sleep(for: .milliseconds(2_500))
      kill(pid_t(try #require(found["pid"].int)), SIGTERM)
      let again = try await guardian.wait(for: "web", "is well without b again") {
        isWell($0) && $0["pid"].int != found["pid"].int
      }
      #expect(again["strikes"].int == 0, "\(again)")
      let events = try JSON(try await guardian.control("--json", "events", "web").output)["events"].array
      let failed = events.filter { $0["name"].string == "plugin-retry-failed" }
      #expect(failed.count == 1, "\(events)")
      let time = try #require(failed.first?["details"]["retry_in_ms"].int)
      #expect((3_600...4_400).contains(time), "twice two seconds, give or take a tenth: \(time)")
      try await guardian.stop()
    }

    @Test(.enabled(if: isRoot, "not shown: a file of one service's own needs root"))
    func `a bad edit of a file is found beside the plugins, the file stays as it is, and mended it is in force`()
      async throws
    {
      let scratch = try Scratch()
      let program = scratch.path + "/shop", place = try scratch.directory("etc")
      // The one file may say anything else, the other one nothing but that; one of the plugins is slow, which is no crime.
      try Files.write(
        """
        #!/bin/sh
        grep -q 'port=80' "\(place)/shop.conf" || { sleep 0.1; echo "cannot make sense of shop.conf" >&2; exit 3; }
        grep -q 'level' "\(place)/log.conf" || { sleep 0.1; echo "cannot make sense of log.conf" >&2; exit 4; }
        [ "$SEARCH" = off ] || sleep 0.05
        cat "\(place)/shop.conf" > "\(scratch.path)/seen"
        exec sleep 1000

        """, to: program, mode: 0o755)
      func put(_ name: String, _ text: String) throws {
        try Files.write(text, to: "\(place)/.\(name).new")
        #expect(rename("\(place)/.\(name).new", "\(place)/\(name)") == 0)
      }
      try put("shop.conf", "port=80 first")
      try put("log.conf", "level=1")
      try await Task.sleep(for: .milliseconds(50))
      let guardian = try await Guardian(
        scratch,
        services: [
          "shop": """
          command: ["\(program)"]
          startup-window: 1s
          backoff: {first: 50ms, max: 100ms}
          escalation: {restart: 2, repair: 1, safe-mode: 2}
          late: {budget: 1000, within: 1h}
          plugins:
            list:
              - {name: search, environment: {SEARCH: "off"}}
              - {name: shop-conf, good-copy: "\(place)/shop.conf"}
              - {name: log-conf, good-copy: "\(place)/log.conf"}
          log: inherit
          """
        ])
      _ = try await guardian.wait(for: "shop", "is well, and its files are known to be good") { status in
        status["settled"].bool == true
          && !status["notes"].array.contains { $0.string?.contains("no good copy") == true }
      }
      try put("log.conf", "level=2")
      try put("shop.conf", "prot=80")
      let restarted = try await guardian.control("restart", "--no-wait", "shop")
      #expect(restarted.code == 0, "\(restarted)")
      let found = try await guardian.wait(for: "shop", "is well but for one file", seconds: 90) {
        $0["settled"].bool == true && $0["step"].string == "restart"
          && $0["disabled_plugins"].array == [.string("shop-conf")]
      }
      #expect(found["degraded"].bool == true, "\(found)")
      #expect(
        try Files.read("\(place)/shop.conf") == "prot=80" && Files.read(scratch.path + "/seen") == "port=80 first")
      let note = "\(place)/shop.conf as changed on "
      #expect(found["notes"].array.contains { $0.string?.hasPrefix(note) == true }, "\(found)")
      #expect(try await guardian.control("plugins", "shop").output.contains(note))
      #expect(try await guardian.control("events", "shop").output.contains(note))

      try put("shop.conf", "port=80 mended")
      try await eventually("the change is noticed") {
        try await guardian.control("events", "shop").output.contains("shop-conf changed") ? () : nil
      }
      kill(pid_t(try #require(found["pid"].int)), SIGTERM)
      let whole = try await guardian.wait(for: "shop", "is well with all") {
        $0["settled"].bool == true && $0["disabled_plugins"].array.isEmpty
      }
      #expect(whole["degraded"].bool == false && whole["strikes"].int == 0, "\(whole)")
      #expect(try Files.read(scratch.path + "/seen") == "port=80 mended")
      try await guardian.stop()
    }

    @Test func `a search goes on where it was after guardian was killed in its middle`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["web": definition(try program(scratch), bad: "c")])
      _ = try await guardian.wait(for: "web", "is probed", seconds: 60) {
        $0["plugins"].array.contains { $0["state"].string == "suspect" && $0["by"].string == "search" }
      }
      guardian.kill()
      try await guardian.startAgain()
      _ = try await guardian.wait(for: "web", "is well with seven plugins", seconds: 90) {
        $0["settled"].bool == true && $0["disabled_plugins"].array == [.string("c")]
      }
      let events = try await guardian.control("events", "web").output
      #expect(events.split(separator: "\n").filter { $0.contains("searching for it") }.count == 1, "\(events)")
      try await guardian.stop()
    }
  }
}
