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

    /// What bash would offer for a line whose words readline has broken as it does.
    private func bash(_ scratch: Scratch, _ line: String, _ words: [String]) async throws -> (
      code: Int32, words: [String], error: String
    ) {
      let array = words.map { "'\($0)'" }.joined(separator: " ")
      let script = """
        set -u; source <('\(Place.products)/guardianctl' completion bash)
        cd '\(scratch.path)'
        COMP_LINE='\(line)'; COMP_POINT=${#COMP_LINE}; COMP_WORDS=(\(array)); COMP_CWORD=$((${#COMP_WORDS[@]}-1))
        _guardianctl 2>&1
        printf '%s\\n' "${COMPREPLY[@]}"
        """
      let answer = try await run(["/bin/bash", "--norc", "-c", script])
      return (answer.code, answer.output.split(separator: "\n").map(String.init).sorted(), answer.error)
    }

    @Test func `offers verbs, options and live names in bash, and is silent without a daemon`() async throws {
      let scratch = try Scratch()
      let program = Place.products + "/guardianctl"
      let quiet = try await bash(
        scratch, "\(program) --runtime \(scratch.path)/none stop ",
        [program, "--runtime", scratch.path + "/none", "stop", ""])
      #expect(quiet.code == 0 && quiet.words == [] && quiet.error == "", "\(quiet)")

      let guardian = try await Guardian(
        scratch,
        services: ["web": Self.shop, "web-static": Self.shop, "db": "command: [/bin/sleep, \"1000000\"]\nlog: none\n"])
      try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
      let runtime = scratch.path + "/run"
      func offered(_ line: String, _ words: [String]) async throws -> [String] {
        let answer = try await bash(
          scratch, "\(program) --runtime \(runtime) \(line)", [program, "--runtime", runtime] + words)
        #expect(answer.code == 0 && answer.error == "", "\(answer)")
        return answer.words
      }
      #expect(try await offered("rele", ["rele"]) == ["release"])
      #expect(try await offered("stop --unt", ["stop", "--unt"]) == ["--until-boot"])
      #expect(try await offered("stop w", ["stop", "w"]) == ["web", "web-static"])
      #expect(try await offered("stop ", ["stop", ""]) == ["@shop", "db", "web", "web-static"])
      // readline breaks words at '@', '=' and ':', and replaces what is behind the break.
      #expect(try await offered("stop @sh", ["stop", "@", "sh"]) == ["shop"])
      #expect(try await offered("stop @", ["stop", "@"]) == ["shop"])
      #expect(try await offered("status --group=s", ["status", "--group", "=", "s"]) == ["shop"])
      #expect(try await offered("drill web --cause exit:", ["drill", "web", "--cause", "exit", ":"]) == ["1"])
      #expect(
        try await offered("plugins web ", ["plugins", "web", ""]) == ["disable", "enable", "pin", "search", "unpin"])
      #expect(try await offered("plugins web disable ", ["plugins", "web", "disable", ""]) == ["payments", "social"])
      #expect(try await offered("repair web ", ["repair", "web", ""]) == ["drop-cache"])
      #expect(try await offered("stop we*", ["stop", "we*"]) == [])
      #expect(try await offered("check --explain late.b", ["check", "--explain", "late.b"]) == ["late.budget"])
      try Files.write("command: [/bin/true]\n", to: scratch.path + "/draft.yaml")
      #expect(try await offered("check dra", ["check", "dra"]) == ["draft.yaml"])
      try await guardian.stop()
    }

    private static func find(_ shell: String) -> String? {
      [
        "/usr/bin/", "/bin/", Place.repository + "/.build/programs/usr/bin/",
        Place.repository + "/.build/programs/bin/",
      ]
      .map { $0 + shell }.first { Files.exists($0) }
    }

    @Test(
      .enabled(if: find("zsh") != nil, "not shown: there is no zsh on this machine"))
    func `is a script that zsh reads`() async throws {
      let zsh = try #require(Self.find("zsh"))
      let answer = try await run([zsh, "-f", "-c", "'\(Place.products)/guardianctl' completion zsh | '\(zsh)' -n"])
      #expect(answer.error == "", "\(answer)")
    }

    @Test(
      .enabled(if: find("fish") != nil, "not shown: there is no fish on this machine"))
    func `offers words in fish`() async throws {
      let fish = try #require(Self.find("fish"))
      let program = Place.products + "/guardianctl"
      let answer = try await run([
        fish, "--no-config", "-c",
        "set -x PATH \(Place.products) $PATH; \(program) completion fish | source; complete -C 'guardianctl rele'",
      ])
      #expect(answer.output.hasPrefix("release"), "\(answer)")
    }
  }
}
