import Glibc
import Testing

extension Programs {
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
