import Glibc
import Testing

extension PluginPrograms {
  /// Not shown without root, which a mount namespace of a child's own needs.
  @Suite(.enabled(if: isRoot, "not shown: needs root")) struct `plugins that are off` {
    /// Dies with its plugins on; without them it writes down what it finds, and stays.
    private func program(_ scratch: Scratch, look: String) throws -> String {
      let path = scratch.path + "/program"
      try Files.write(
        """
        #!/bin/sh
        [ -z "$GUARDIAN_DISABLED_PLUGINS" ] && exit 1
        { \(look); } >'\(scratch.path)/.found' 2>&1
        mv '\(scratch.path)/.found' '\(scratch.path)/found'
        exec sleep 1000000

        """, to: path, mode: 0o755)
      return path
    }

    private let policy = """
      startup-window: 200ms
      backoff: {first: 10ms, max: 10ms}
      escalation: {restart: 1, repair: 1, safe-mode: 2}
      log: none

      """

    private func settled(_ guardian: Guardian, _ scratch: Scratch) async throws -> (status: JSON, found: [String]) {
      let status = try await guardian.wait(for: "shop", "settles in safe mode") {
        $0["settled"].bool == true && $0["degraded"].bool == true
      }
      let found = try await eventually("it says what it found") { try? Files.read(scratch.path + "/found") }
      return (status, found.split(separator: "\n").map(String.init))
    }

    @Test
    func `are off in every way at once, and in no other: variables, lists, arguments, and what is in directories`()
      async throws
    {
      let scratch = try Scratch()
      let plugins = try scratch.directory("plugins"), themes = try scratch.directory("themes")
      for name in ["a.so", "b.so"] { try Files.write(name, to: plugins + "/" + name) }
      try Files.write("x", to: themes + "/dark")
      let program = try program(
        scratch, look: "env; printf 'argument %s\\n' \"$@\"; ls -A '\(plugins)'; ls -A '\(themes)' | wc -l")
      let guardian = try await Guardian(
        scratch,
        services: [
          "shop": """
          command: [\(program), --with-search, --load, s.so, --load=t.so, "--mods=a,b,c", --engine=fast, last]
          environment: {MODS: "a:b:c", TRACE: "1", KEPT: "yes", LD_PRELOAD: "/none/libnone.so"}
          \(policy)plugins:
            search: off
            list:
              - {name: set, environment: {SEARCH: "off"}}
              - {name: unset, unset: [TRACE]}
              - name: lists
                remove-from: [{variable: MODS, item: b, separator: ":"}, {argument: --mods, item: a}]
              - {name: preloaded, preload: libnone.so}
              - {name: add, arguments: [--without, search]}
              - {name: remove, remove-arguments: [--with-search, [--load, s.so], [--load, t.so]]}
              - {name: replace, replace-arguments: [{from: --engine=fast, to: [--engine, plain]}]}
              - {name: hide, hide: \(plugins)/a.so}
              - {name: empty, empty: \(themes)}

          """
        ])
      let (status, found) = try await settled(guardian, scratch)
      let names = ["set", "unset", "lists", "preloaded", "add", "remove", "replace", "hide", "empty"]
      #expect(status["disabled_plugins"].array.compactMap(\.string) == names)
      let variables = Set(found.filter { $0.contains("=") && !$0.hasPrefix("argument") })
      #expect(
        variables.isSuperset(of: [
          "SEARCH=off", "MODS=a:c", "KEPT=yes", "GUARDIAN_MODE=safe",
          "GUARDIAN_DISABLED_PLUGINS=" + names.joined(separator: " "),
        ]), "\(found)")
      #expect(!variables.contains { $0.hasPrefix("TRACE=") || $0.hasPrefix("LD_PRELOAD=") }, "\(found)")
      #expect(
        found.filter { $0.hasPrefix("argument ") }.map { String($0.dropFirst(9)) }
          == ["--mods=b,c", "--engine", "plain", "last", "--without", "search"])
      #expect(Array(found.suffix(2)) == ["b.so", "0"])
      #expect(Files.names(in: plugins) == ["a.so", "b.so"] && Files.names(in: themes) == ["dark"])
      try await guardian.stop()
    }

    @Test func `are the entries of a directory, and what is new in it is off too, without a reload`() async throws {
      let scratch = try Scratch()
      let plugins = try scratch.directory("plugins.d")
      for name in ["a.so", "b.so", ".hidden", "notes.txt"] { try Files.write(name, to: plugins + "/" + name) }
      let program = try program(scratch, look: "ls -A '\(plugins)'; touch '\(plugins)/new' || echo read-only")
      let guardian = try await Guardian(
        scratch,
        services: [
          "shop": "command: [\(program)]\n\(policy)plugins: {directory: \(plugins), only: \"*.so\", search: off}\n"
        ])
      var (status, found) = try await settled(guardian, scratch)
      #expect(status["disabled_plugins"].array.compactMap(\.string) == ["a.so", "b.so"])
      #expect(Array(found.prefix(2)) == [".hidden", "notes.txt"] && found.last == "read-only", "\(found)")
      #expect(Files.names(in: plugins) == [".hidden", "a.so", "b.so", "notes.txt"])

      // At the next start it is seen, and off in it as all are; from the one after that on it is a plugin like any.
      try Files.write("c", to: plugins + "/c.so")
      #expect(unlink(plugins + "/a.so") == 0)
      for expected in [nil, ["b.so", "c.so"]] as [[String]?] {
        #expect(unlink(scratch.path + "/found") == 0)
        #expect(try await guardian.control("restart", "shop").code == 0)
        (status, found) = try await settled(guardian, scratch)
        #expect(Array(found.prefix(2)) == [".hidden", "notes.txt"] && found.last == "read-only", "\(found)")
        if let expected { #expect(status["disabled_plugins"].array.compactMap(\.string) == expected) }
      }
      #expect(status["step"].string == "safe-mode", "what comes and goes changes no definition: \(status)")
      try await guardian.stop()
    }

    /// Imports whatever is in its directory, as many programs do, and says what it has found.
    private static let host = """
      import importlib, os, socket, sys, time
      directory, loaded = sys.argv[1:]
      sys.path.insert(0, directory)
      sys.dont_write_bytecode = True
      names = sorted(name[:-3] for name in os.listdir(directory) if name.endswith(".py"))
      for name in names: importlib.import_module(name)
      open(loaded, "w").write(" ".join(names))
      words = "READY=1\\nSTATUS=" + ("normal" if names else "safe mode, nothing is loaded")
      socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(words.encode(), os.environ["NOTIFY_SOCKET"])
      while True: time.sleep(1000)

      """

    /// Of two that are fine alone, the second one reads where it must not when the first one is there too.
    private static let pair = [
      "maps": "places = {}\n", "metrics": "counters = {}\n", "search": "index = []\n",
      "social": "import ctypes, sys\nif 'metrics' in sys.modules: ctypes.string_at(0)\n", "video": "frames = 0\n",
    ]

    @Test(.enabled(if: Place.program("python3") != nil, "not shown: python3 is not there"))
    func `of a Python program that crashes at the import of one when another is there: one of the two stays off`()
      async throws
    {
      let scratch = try Scratch()
      let plugins = try scratch.directory("plugins"), loaded = scratch.path + "/loaded"
      for (name, text) in Self.pair { try Files.write(text, to: "\(plugins)/\(name).py") }
      try Files.write(Self.host, to: scratch.path + "/host.py")
      let python = try #require(Place.program("python3"))
      let guardian = try await Guardian(
        scratch,
        services: [
          "shop": """
          command: [\(python), \(scratch.path)/host.py, \(plugins), \(loaded)]
          ready: notify
          startup-window: 200ms
          backoff: {first: 10ms, max: 10ms}
          escalation: {restart: 1, repair: 1, safe-mode: 2}
          log: none
          plugins: {directory: \(plugins), only: "*.py", acknowledge: {status: safe mode}}

          """
        ])
      let found = try await guardian.wait(for: "shop", "settles with one of the pair off", seconds: 60) {
        $0["settled"].bool == true && $0["disabled_plugins"].array.count == 1
      }
      let off = try #require(found["disabled_plugins"].array.compactMap(\.string).first)
      #expect(["metrics.py", "social.py"].contains(off) && found["degraded"].bool == true, "\(found)")
      let rest = Self.pair.keys.sorted().filter { $0 + ".py" != off }
      #expect(try Files.read(loaded) == rest.joined(separator: " "), "it lives with all the others")
      #expect(Files.names(in: plugins) == Self.pair.keys.sorted().map { $0 + ".py" })
      let events = try await guardian.control("events", "shop").output
      #expect(!events.contains("not confirmed"), "\(events)")
      try await guardian.stop()
    }

    @Test func `that the service does not confirm are said to be unconfirmed, and no culprit is searched for`()
      async throws
    {
      let scratch = try Scratch()
      let program = try program(scratch, look: "true")
      let guardian = try await Guardian(
        scratch,
        services: [
          "shop": """
          command: [\(program)]
          \(policy)plugins:
            acknowledge: {status: safe mode}
            list: [{name: a, unset: [A]}, {name: b, unset: [B]}]

          """
        ])
      let (status, _) = try await settled(guardian, scratch)
      #expect(status["disabled_plugins"].array.compactMap(\.string) == ["a", "b"])
      let notes = status["notes"].array.compactMap(\.string)
      #expect(
        notes.contains { $0.hasPrefix("that plugins are off has not been confirmed by a STATUS=") }, "\(notes)")
      let events = try await guardian.control("events", "shop").output
      #expect(events.contains("it has not confirmed that plugins are off: a, b"), "\(events)")
      #expect(try await guardian.status("shop")["run"] == status["run"])
      try await guardian.stop()
    }
  }
}
