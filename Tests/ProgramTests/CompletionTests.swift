import Glibc
import Testing

extension Programs {
  /// Real shells, with the scripts as they are installed, and a guardian that runs.
  @Suite struct `completion in a shell` {
    private static let shop = """
      command: [/bin/sleep, "1000000"]
      groups: [shop]
      log: none
      repair:
        - {name: drop-cache, run: [/bin/true]}
      plugins:
        list:
          - {name: payments, environment: {PAYMENTS: "off"}}
          - {name: social, environment: {SOCIAL: "off"}}

      """

    private func quoted(_ word: String) -> String {
      "'" + word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
    }

    /// What the script would offer bash for a line, of which bash would replace the piece at the end.
    private func bash(_ scratch: Scratch, _ line: String, _ piece: String) async throws -> (
      code: Int32, words: [String], error: String
    ) {
      let script = """
        set -u; source <('\(Place.products)/guardianctl' completion bash)
        cd '\(scratch.path)'
        COMP_LINE=\(quoted(line)); COMP_POINT=${#COMP_LINE}
        _guardianctl guardianctl \(quoted(piece)) - 2>&1
        printf '%s\\n' "${COMPREPLY[@]}"
        """
      let answer = try await run(["/bin/bash", "--norc", "-c", script])
      return (answer.code, answer.output.split(separator: "\n").map(String.init).sorted(), answer.error)
    }

    @Test func `offers verbs, options and live names in bash, and is silent without a daemon`() async throws {
      let scratch = try Scratch()
      let program = Place.products + "/guardianctl"
      let quiet = try await bash(scratch, "\(program) --runtime \(scratch.path)/none stop ", "")
      #expect(quiet.code == 0 && quiet.words == [] && quiet.error == "", "\(quiet)")

      let guardian = try await Guardian(
        scratch,
        services: ["web": Self.shop, "web-static": Self.shop, "db": "command: [/bin/sleep, \"1000000\"]\nlog: none\n"])
      try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      let runtime = scratch.path + "/run"
      func offered(_ line: String, _ piece: String) async throws -> [String] {
        let answer = try await bash(scratch, "\(program) --runtime \(runtime) \(line)", piece)
        #expect(answer.code == 0 && answer.error == "", "\(answer)")
        return answer.words
      }
      #expect(try await offered("rele", "rele") == ["release"])
      #expect(try await offered("stop --unt", "--unt") == ["--until-boot"])
      #expect(try await offered("stop w", "w") == ["web", "web-static"])
      #expect(try await offered("stop ", "") == ["@shop", "db", "web", "web-static"])
      // bash breaks words at '@', '=' and ':'; it replaces what is behind the last one, an '@' with it.
      #expect(try await offered("stop @sh", "@sh") == ["@shop"])
      #expect(try await offered("stop @", "@") == ["@shop"])
      #expect(try await offered("status --group=s", "s") == ["shop"])
      #expect(try await offered("drill web --cause exit:", "") == ["1"])
      #expect(
        try await offered("plugins web ", "") == ["disable", "enable", "pin", "search", "unpin"])
      #expect(try await offered("plugins web disable ", "") == ["payments", "social"])
      #expect(try await offered("repair web ", "") == ["drop-cache"])
      #expect(try await offered("stop we*", "we*") == [])
      try #require(symlink("run", scratch.path + "/a run") == 0)
      for place in ["'\(scratch.path)/a run'", "\"\(scratch.path)/a run\"", "\(scratch.path)/a\\ run"] {
        let quoted = try await bash(scratch, "\(program) --runtime \(place) stop w", "w")
        #expect(quoted.words == ["web", "web-static"], "\(place): \(quoted)")
      }
      #expect(try await offered("check --explain late.b", "late.b") == ["late.budget"])
      try Files.write("command: [/bin/true]\n", to: scratch.path + "/draft.yaml")
      #expect(try await offered("check dra", "dra") == ["draft.yaml"])
      try Files.write("command: [/bin/true]\n", to: scratch.path + "/a@draft.yaml")
      #expect(try await offered("check a@d", "@d") == ["@draft.yaml"])
      try await guardian.stop()
    }

    @Test(.enabled(if: access("/usr/bin/setsid", X_OK) == 0, "setsid gives a program a terminal of its own"))
    func `completes groups, instances and values in bash`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: ["web": Self.shop, "inst@one": "command: [/bin/sleep, \"1000000\"]\nlog: none\n"])
      try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      try #require(symlink("run", scratch.path + "/a run") == 0)
      try Files.write("command: [/bin/true]\n", to: scratch.path + "/a@draft.yaml")
      try Files.write(
        """
        PATH='\(Place.products)':$PATH; PS1='> '; bind 'set bell-style none'; set -u
        source <(guardianctl completion bash)
        cd '\(scratch.path)'
        echo its completion is REA""DY

        """, to: scratch.path + "/rc")
      let terminal = try OnTerminal(
        ["/bin/bash", "--norc", "--noprofile", "-i"], width: 250, height: 50,
        environment: ["TERM": "dumb", "HOME": scratch.path])
      terminal.type("source '\(scratch.path)/rc'\n")
      try await terminal.shows("its completion is READY")
      // The words as a program gets them, of the line that a key has made.
      func become(_ line: String, _ words: String) async throws {
        terminal.type("guardianctl --runtime ~/run \(line)\t\u{1}\u{1b}dprintf '<%s>'\n")
        try await terminal.shows(words)
      }
      try await become("start @s", "<start><@shop>")
      try await become("stop @", "<stop><@shop>")
      try await become("start inst@o", "<start><inst@one>")
      try await become("stop inst@", "<stop><inst@one>")
      try await become("stop 'inst@o", "<stop><inst@one>")
      try await become("stop \"@s", "<stop><@shop>")
      try await become("status --group=s", "<status><--group=shop>")
      try await become("restart --group=", "<restart><--group=shop>")
      try await become("drill web --cause signal:S", "<web><--cause><signal:SEGV>")
      try await become("plugins web disable pa", "<disable><payments>")
      try await become("--runtime '\(scratch.path)/a run' restart @s", "/a run><restart><@shop>")
      try await become("--config '\(scratch.path)/a r", "<--config><\(scratch.path)/a run>")
      try await become("check a@d", "<check><a@draft.yaml>")
      terminal.type("exit\n")
      _ = try await terminal.end()
      try await guardian.stop()
    }

    private static let unpacked = Place.repository + "/.build/programs"
    private static func find(_ shell: String) -> String? {
      ["/usr/bin/", "/bin/", unpacked + "/usr/bin/", unpacked + "/bin/"].map { $0 + shell }.first { Files.exists($0) }
    }
    /// Where an unpacked shell has its libraries; a shell that is installed has its own.
    private static func libraries(_ shell: String) -> String {
      shell.hasPrefix(unpacked) ? "\(unpacked)/usr/lib" : "/usr/lib"
    }

    private func shop(_ scratch: Scratch) async throws -> Guardian {
      let guardian = try await Guardian(
        scratch, services: ["web": Self.shop, "db": "command: [/bin/sleep, \"1000000\"]\nlog: none\n"])
      try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      // A place that has to be quoted.
      try #require(symlink("run", scratch.path + "/a run") == 0)
      return guardian
    }

    @Test(
      .enabled(if: find("zsh") != nil, "not shown: there is no zsh on this machine"),
      .enabled(if: access("/usr/bin/setsid", X_OK) == 0, "setsid gives a program a terminal of its own"))
    func `completes verbs, options and live names in zsh`() async throws {
      let zsh = try #require(Self.find("zsh"))
      let scratch = try Scratch()
      let guardian = try await shop(scratch)
      let share = zsh.hasPrefix(Self.unpacked) ? "\(Self.unpacked)/usr/share/zsh" : "/usr/share/zsh"
      try Files.write(
        """
        module_path=(\(Self.libraries(zsh))/*/zsh/*(/N))
        fpath=(\(share)/functions(/N) \(share)/functions/**/*(/N))
        PATH='\(Place.products)':$PATH; PS1='> '; unsetopt beep
        autoload -Uz compinit; compinit -D -u
        source <(guardianctl completion zsh)
        print -r -- its completion is REA""DY

        """, to: scratch.path + "/rc")
      let terminal = try OnTerminal(
        [zsh, "-f", "-i"], width: 200, height: 50, environment: ["TERM": "dumb", "HOME": scratch.path])
      terminal.type("source '\(scratch.path)/rc'\n")
      try await terminal.shows("its completion is READY")
      // What comes is what a key has made of the line; ^U empties it.
      terminal.type("guardianctl rele\t")
      try await terminal.shows("guardianctl release ")
      terminal.type("\u{15}guardianctl stop --unt\t")
      try await terminal.shows("stop --until-boot ")
      terminal.type("\u{15}guardianctl --runtime '\(scratch.path)/a run' stop w\t")
      try await terminal.shows("stop web ")
      terminal.type("\u{15}guardianctl --runtime \"\(scratch.path)/a run\" plugins web disable pay\t")
      try await terminal.shows("disable payments ")
      terminal.type("\u{15}guardianctl --runtime ~/a\\ run status d\t")
      try await terminal.shows("status db ")
      terminal.type("\u{15}exit\n")
      _ = try await terminal.end()
      try await guardian.stop()
    }

    @Test(
      .enabled(if: find("fish") != nil, "not shown: there is no fish on this machine"))
    func `offers verbs, options and live names in fish`() async throws {
      let fish = try #require(Self.find("fish"))
      let scratch = try Scratch()
      let guardian = try await shop(scratch)
      func offered(_ line: String) async throws -> [String] {
        let program = Place.products + "/guardianctl"
        let answer = try await run([
          "/usr/bin/env", "LD_LIBRARY_PATH=\(Self.unpacked)/usr/lib/\(machine())-linux-gnu", "HOME=\(scratch.path)",
          fish,
          "--no-config", "-c",
          "set -x PATH \(Place.products) $PATH; \(program) completion fish | source; complete -C 'guardianctl \(line)'",
        ])
        #expect(answer.code == 0 && answer.error == "", "\(answer)")
        // The word, and behind a tabulator what it is for.
        return answer.output.split(separator: "\n").map { String($0.prefix { $0 != "\t" }) }.sorted()
      }
      let here = "--runtime \(scratch.path)/a\\\\ run"
      #expect(try await offered("rele") == ["release"])
      #expect(try await offered("stop --unt") == ["--until-boot"])
      #expect(try await offered("\(here) stop w") == ["web"])
      #expect(try await offered("\(here) stop ") == ["@shop", "db", "web"])
      #expect(try await offered("\(here) plugins web disable ") == ["payments", "social"])
      try await guardian.stop()
    }

    /// As Debian's library directories name it.
    private func machine() -> String {
      var name = utsname()
      uname(&name)
      return withUnsafeBytes(of: &name.machine) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }
  }
}
