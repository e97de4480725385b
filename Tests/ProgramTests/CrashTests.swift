import Glibc
import Testing

extension Programs {
  /// Real programs that die in each of the ways in which programs die.
  @Suite struct `a crash report` {
    struct Way: CustomTestStringConvertible {
      var words: [String], cause: String
      /// Where a source tells the address the first, else the second.
      var classes: [String]
      var more = ""
      var testDescription: String { words.joined(separator: " ") }
    }
    static let ways = [
      Way(words: ["abort"], cause: "signal", classes: ["abort"]),
      Way(words: ["null"], cause: "signal", classes: ["null", "segv"]),
      Way(words: ["wild"], cause: "signal", classes: ["wild", "segv"]),
      Way(words: ["stack"], cause: "signal", classes: ["stack", "segv"]),
      Way(words: ["fpe"], cause: "signal", classes: ["fpe"]),
      Way(words: ["ill"], cause: "signal", classes: ["trap"]),
      Way(words: ["assert"], cause: "signal", classes: ["abort"]),
      Way(words: ["heap"], cause: "signal", classes: ["abort-heap"]),
      Way(words: ["exit", "1"], cause: "exit", classes: ["error-exit"]),
      Way(words: ["exit", "78"], cause: "exit", classes: ["config"]),
      Way(words: ["kill"], cause: "killed", classes: ["external-kill"]),
      Way(words: ["hang"], cause: "watchdog", classes: ["hang"], more: "watchdog: 200ms"),
    ]

    private func reports(_ guardian: Guardian, _ name: String, _ count: Int = 1) async throws -> [JSON] {
      try await eventually("\(count) reports of \(name)") {
        let list = try JSON(try await guardian.control("--json", "crashes", name).output)["crashes"].array
        return list.count >= count ? list : nil
      }
    }
    private func document(_ guardian: Guardian, _ id: String) async throws -> JSON {
      let answer = try await guardian.control("crashes", "export", id)
      #expect(answer.code == 0, "\(answer)")
      return try JSON(answer.output)
    }

    @Test(.enabled(if: Compiler.path != nil, "not shown: no C compiler is there"))
    func `of each way to die has the right cause and class, and equal ones share a signature`() async throws {
      let scratch = try Scratch()
      let crasher = scratch.path + "/crasher"
      try await Compiler.build("crasher.c", crasher)
      var services: [String: String] = [:]
      for (n, way) in Self.ways.enumerated() {
        services["way\(n)"] = """
          command: ["\(crasher)", \(way.words.map { "\"\($0)\"" }.joined(separator: ", "))]
          backoff: {first: 1100ms}
          log: file
          \(way.more)
          """
      }
      let guardian = try await Guardian(scratch, services: services)
      var signatures: [String: String] = [:]
      for (n, way) in Self.ways.enumerated() {
        let list = try await reports(guardian, "way\(n)")
        let id = try #require(list.last?["id"].string)
        let report = try await document(guardian, id)
        #expect(report["cause"].string == way.cause, "\(way): \(report)")
        #expect(way.classes.contains(report["class"].string ?? ""), "\(way): \(report["class"])")
        // The kernel's own account is the source of the address.
        if way.classes.count > 1, report["backtrace"]["address"].string != nil {
          #expect(report["class"].string == way.classes[0], "\(way): \(report)")
        }
        #expect(report["step"].string == "restart")
        let lines = report["output"]["lines"].array.compactMap(\.string)
        #expect(lines.contains { $0.contains("about to \(way.words[0])") }, "\(way): \(report["output"])")
        if way.words == ["assert"] { #expect(lines.contains { $0.contains("the cart is empty") }) }
        let signature = try #require(report["signature"].string)
        #expect(signatures[signature] == nil, "\(way) and \(signatures[signature] ?? "") have one signature")
        signatures[signature] = way.testDescription
      }
      // The second death of each is of the same kind.
      for (n, way) in Self.ways.enumerated() where !["kill", "exit"].contains(way.words[0]) && way.more.isEmpty {
        let list = try await reports(guardian, "way\(n)", 2)
        #expect(list[0]["signature"] == list[1]["signature"], "\(way)")
        #expect((list[0]["count"].int ?? 0) >= 2)
      }
      try await guardian.stop()
    }

    @Test(.enabled(if: Compiler.path != nil, "not shown: no C compiler is there"))
    func `of a program without its shared library says so`() async throws {
      let scratch = try Scratch()
      let compiler = try #require(Compiler.path)
      let library = scratch.path + "/libgone.so.1", program = scratch.path + "/needy"
      try Files.write("int gone(void) { return 0; }\n", to: scratch.path + "/gone.c")
      try Files.write("int gone(void); int main(void) { return gone(); }\n", to: scratch.path + "/needy.c")
      #expect(
        try await run([compiler, "-shared", "-Wl,-soname,libgone.so.1", "-o", library, scratch.path + "/gone.c"])
          .code == 0)
      #expect(try await run([compiler, "-o", program, scratch.path + "/needy.c", library]).code == 0)
      unlink(library)
      let guardian = try await Guardian(scratch, services: ["needy": "command: [\"\(program)\"]\nlog: file\n"])
      let report = try await document(guardian, try #require(try await reports(guardian, "needy").last?["id"].string))
      #expect(report["class"].string == "loader" && report["code"].int == 127, "\(report)")
      #expect(report["output"]["lines"].array.contains { $0.string?.contains("libgone.so.1") ?? false }, "\(report)")
      try await guardian.stop()
    }

    @Test(.enabled(if: Compiler.path != nil, "not shown: no C compiler is there"))
    func `of a program whose library was replaced names the library first`() async throws {
      let scratch = try Scratch()
      let compiler = try #require(Compiler.path)
      let library = scratch.path + "/libcart.so.1", program = scratch.path + "/shop"
      func build(_ body: String) async throws {
        try Files.write("#include <stdlib.h>\nvoid cart(void) { \(body) }\n", to: scratch.path + "/cart.c")
        let made = try await run(
          [
            compiler, "-shared", "-Wl,--build-id", "-Wl,-soname,libcart.so.1", "-o", library + ".new",
            scratch.path + "/cart.c",
          ])
        #expect(made.code == 0, "\(made.error)")
        // As a package manager does it.
        #expect(rename(library + ".new", library) == 0)
      }
      try await build("")
      try Files.write(
        "#include <unistd.h>\nvoid cart(void); int main(void) { cart(); for (;;) pause(); }\n",
        to: scratch.path + "/shop.c")
      #expect(
        try await run([compiler, "-o", program, scratch.path + "/shop.c", library, "-Wl,-rpath,\(scratch.path)"]).code
          == 0)
      let guardian = try await Guardian(
        scratch,
        services: [
          "shop": "command: [\"\(program)\"]\nstartup-window: 300ms\nbackoff: {first: 1h, max: 1h}\nlog: none\n"
        ])
      let pid = try #require(try await guardian.wait(for: "shop", "settles") { $0["settled"].bool == true }["pid"].int)
      // What it is made of is written down a little after it has settled.
      try await eventually("the healthy run is on record") {
        Files.exists(scratch.path + "/state/good/shop/health") ? () : nil
      }
      try await build("abort();")
      kill(pid_t(pid), SIGTERM)
      let failed = try await eventually("a death of the new library is reported") {
        let list = try JSON(try await guardian.control("--json", "crashes", "shop").output)["crashes"].array
        return list.first { $0["cause"].string == "signal" }
      }
      let report = try await document(guardian, try #require(failed["id"].string))
      #expect(report["changes"].array.first?["what"].string == "the library \(library) changed", "\(report)")
      let shown = try await guardian.control("status", "shop").output
      #expect(shown.contains("the library \(library) changed"), "\(shown)")
      try await guardian.stop()
    }

    @Test func `of a death that guardian did not outlive is made by the next guardian`() async throws {
      let scratch = try Scratch()
      #expect(mkfifo(scratch.path + "/go", 0o600) == 0)
      let guardian = try await Guardian(
        scratch,
        services: [
          "x":
            "command: [/bin/sh, -c, \"echo last words; read line <'\(scratch.path)/go'; exit 9\"]\nbackoff: {first: 1h, max: 1h}\nlog: file\n"
        ])
      try await eventually("it has spoken") {
        (try? Programs.`output to files`.log(guardian, "x").lines) == ["last words"] ? () : nil
      }
      // Who would say what its last words were does not answer, so that the report is not complete yet.
      let logger = try #require(Programs.`output to files`.loggers(guardian).first)
      kill(logger, SIGSTOP)
      defer { kill(logger, SIGCONT) }
      let go = open(scratch.path + "/go", O_WRONLY | O_NONBLOCK | O_CLOEXEC)
      close(go)
      let run = try await guardian.wait(for: "x", "has died") { $0["phase"].string == "backing-off" }["last_end"][
        "code"
      ].int
      #expect(run == 9)
      guardian.kill()
      kill(logger, SIGCONT)
      try await guardian.startAgain()
      let report = try await document(guardian, try #require(try await reports(guardian, "x").last?["id"].string))
      #expect(report["code"].int == 9 && report["strikes"].int == 1, "\(report)")
      #expect(report["output"]["lines"].array.compactMap(\.string) == ["last words"], "\(report["output"])")
      try await guardian.stop()
    }

    static let backtracer: String? =
      (getenv("PATH").map { String(cString: $0) } ?? "").split(separator: ":").map { directory in
        "\(directory)/../libexec/swift/linux/swift-backtrace"
      }.first { access($0, X_OK) == 0 }

    @Test(.enabled(if: backtracer != nil, "not shown: no swift-backtrace beside the swift on PATH"))
    func `of a Swift program has its frames with their functions, and ends the restart step at the second`()
      async throws
    {
      let scratch = try Scratch()
      let yaml = """
        command: ["\(Place.products)/guardian-probe", "fault", "\(scratch.path)", "boot", "trap"]
        repair: [{name: look, run: [/bin/sh, -c, "cat > '\(scratch.path)/seen'"]}]
        log: none
        """
      let guardian = try await Guardian(
        scratch, services: ["swift": yaml], host: "swift-backtrace: \(try #require(Self.backtracer))\n")
      _ = try await guardian.wait(for: "swift", "is on step repair") { $0["step"].string == "repair" }
      let list = try await reports(guardian, "swift", 2)
      let report = try await document(guardian, try #require(list.last?["id"].string))
      let frames = report["backtrace"]["frames"].array
      #expect(report["backtrace"]["source"].string == "swift-backtrace", "\(report)")
      #expect(frames.contains { $0["function"].string?.contains("fault(") ?? false }, "\(frames)")
      #expect(report["class"].string == "trap" && report["signature_strong"].bool == true, "\(report)")
      #expect(list[0]["signature"] == list[1]["signature"])
      let second = try await document(guardian, try #require(list.dropLast().last?["id"].string))
      #expect(second["step"].string == "restart" && second["step_after"].string == "restart", "\(second)")
      let seen = try await eventually("the repair has read the report") {
        let text = (try? Files.read(scratch.path + "/seen")) ?? ""
        return text.hasSuffix("\n") ? try JSON(text) : nil
      }
      #expect(seen["report"]["signature"] == list[0]["signature"], "\(seen)")
      try await guardian.stop()
    }

    @Test func `outlives guardian, is found by the beginning of its id, and is refused for what is none`() async throws
    {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch, services: ["x": "command: [/bin/false]\nbackoff: {first: 1h, max: 1h}\nlog: none\n"])
      let id = try #require(try await reports(guardian, "x").first?["id"].string)
      guardian.kill()
      try await guardian.startAgain()
      let shown = try await guardian.control("crashes", "show", String(id.prefix(8)))
      #expect(shown.code == 0 && shown.output.contains("x: exit 1"), "\(shown)")
      let json = try await guardian.control("--json", "crashes", "show", id)
      #expect(try JSON(json.output)["crash"]["id"].string == id)
      #expect(try await guardian.control("crashes", "show", "ffffffff").code == 1)
      #expect(try await guardian.control("crashes", "show", "no").code == 64)
      #expect(try await guardian.control("crashes", "nobody").code == 4)
      #expect(try await guardian.control("crashes").output.contains("exit 1"))
      try await guardian.stop()
    }

    @Test func `a flood of deaths is counted, and few reports are kept of it`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "x": "command: [/bin/false]\nbackoff: {first: 0s, max: 1ms}\nescalation: off\nlog: none\n"
        ], host: "governor: off\n")
      let many = try await eventually("two hundred deaths are counted") {
        let list = try JSON(try await guardian.control("--json", "crashes", "x").output)["crashes"].array
        return (list.first?["count"].int ?? 0) > 200 ? list : nil
      }
      #expect(many.count <= 3, "\(many.count) reports")
      try await guardian.stop()
    }
  }
}
