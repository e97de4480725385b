import Glibc
import Testing

/// Guardian is killed while a child of its has been born and has not come to its exec, on both roads to it: with
/// guardian's memory, and with its own, as a path that is to be hidden needs it.
extension Programs {
  @Suite(.enabled(if: Book.missing == nil, "not shown: \(Book.missing ?? "")"))
  struct `guardian is killed while a child is on its way to its exec` {
    enum Fate: CaseIterable {
      /// It goes on once the next guardian is there.
      case lives
      /// It comes to its exec before there is another guardian, and ends, and leaves somebody behind.
      case ends
      case killed
    }

    @Test(arguments: ["child.unmarked", "child.marked", "child.exec"], Fate.allCases)
    func `it is neither started twice nor counted twice`(at place: String, _ fate: Fate) async throws {
      try await story(at: place, fate, hides: false)
    }

    @Test(
      .enabled(if: isRoot, "not shown: to hide a path needs root"),
      arguments: ["separate-child.unmarked", "separate-child.marked", "separate-child.exec"], Fate.allCases)
    func `nor is one that has paths hidden from it`(at place: String, _ fate: Fate) async throws {
      try await story(at: place, fate, hides: true)
    }

    private func story(at place: String, _ fate: Fate, hides: Bool) async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: [:])
      try await guardian.stop()
      let plugin = try scratch.directory("plugins") + "/broken", left = scratch.path + "/left"
      if hides { try Files.write("broken", to: plugin) }
      try Files.write("#!/bin/sh\nwhile :; do sleep 0.1; done\n", to: left, mode: 0o755)
      let program = scratch.path + "/web"
      try Files.write(
        """
        #!/bin/sh
        [ -s '\(plugin)' ] && exit 3
        if [ -e '\(scratch.path)/end' ]; then '\(left)' & fi
        echo "$$ $INVOCATION_ID" >>'\(scratch.path)/lives'
        [ -e '\(scratch.path)/end' ] && exit 3
        exec sleep 1000000

        """, to: program, mode: 0o755)
      func configure(backoff: String) throws {
        try guardian.configure(
          "web",
          """
          command: ["\(program)"]
          startup-window: 1h
          escalation: {restart: 1, repair: 1, safe-mode: 5}
          backoff: {first: \(backoff), max: \(backoff)}
          log: none

          """ + (hides ? "plugins: {list: [{name: broken, hide: \"\(plugin)\"}]}\n" : ""))
      }
      func lives() -> [(pid: Int32, run: String)] {
        ((try? Files.read(scratch.path + "/lives")) ?? "").split(separator: "\n").compactMap { line in
          let words = line.split(separator: " ").map(String.init)
          return words.count == 2 ? Int32(words[0]).map { ($0, words[1]) } : nil
        }
      }
      // In safe mode after two deaths with the plugin.
      let before = hides ? 2 : 0
      try configure(backoff: "10ms")
      let go = scratch.path + "/go"
      try guardian.respawn(environment: ["GUARDIAN_FAILPOINT": "hold:\(place):\(go)"])
      try await eventually("a child is held", seconds: 20) {
        if let code = guardian.process.poll() { throw Failure("guardian ended with \(code): \(guardian.log)") }
        return Files.exists(go + ".held") ? () : nil
      }
      let parent = guardian.process.pid
      let born = try Files.read("/proc/\(parent)/task/\(parent)/children").split(separator: " ").compactMap {
        Int32($0)
      }
      let child = try #require(born.count == 1 ? born.first : nil, "\(born)")
      guardian.kill()
      try configure(backoff: "1h")

      switch fate {
      case .lives: break
      case .ends:
        try Files.write("", to: scratch.path + "/end")
        try Files.write("", to: go)
        try await eventually("it has lived", seconds: 10) { lives().isEmpty || isAlive(child) ? nil : () }
      case .killed:
        Glibc.kill(child, SIGKILL)
        try await eventually("it is gone", seconds: 10) { isAlive(child) ? nil : () }
      }
      try guardian.respawn(environment: [:])
      // While no mark of it has been made, it holds guardian's locks, and the next one waits for them.
      if fate == .lives, place.hasSuffix(".unmarked") {
        try await Task.sleep(for: .milliseconds(200))
        #expect(guardian.process.poll() == nil, "\(guardian.log)")
        try Files.write("", to: go)
      }
      try await guardian.answers()
      let began = !(fate == .killed && place.hasSuffix(".unmarked"))
      switch fate {
      case .lives:
        let adopted = try await guardian.wait(for: "web", "is taken over") { $0["pid"].int != nil }
        #expect(adopted["pid"].int == Int(child) && adopted["phase"].string == "running", "\(adopted)")
        try Files.write("", to: go)
        try await eventually("it comes to its exec", seconds: 10) { lives().isEmpty ? nil : () }
        let running = try await guardian.status("web")
        #expect(running["pid"].int == Int(child) && running["strikes"].int ?? 0 == 0, "\(running)")
        #expect(running["restarts"].int == before, "\(running)")
        Glibc.kill(child, SIGSEGV)
      case .ends: break
      case .killed where began: break
      case .killed:
        // Nothing had begun, so it is no death, and the start is made now.
        let anew = try await guardian.wait(for: "web", "runs") { $0["phase"].string == "running" }
        #expect(anew["strikes"].int ?? 0 == 0 && anew["restarts"].int == before, "\(anew)")
        try await eventually("it comes to its exec", seconds: 10) { lives().isEmpty ? nil : () }
        Glibc.kill(Int32(try #require(anew["pid"].int)), SIGSEGV)
      }
      let after = try await guardian.wait(for: "web", "backs off") { $0["phase"].string == "backing-off" }
      #expect(after["strikes"].int == 1 && after["restarts"].int == before, "\(after)")
      #expect(after["step"].string == (hides ? "safe-mode" : "restart"), "\(after)")
      let seen = lives()
      #expect(seen.count == (fate == .killed && began ? 0 : 1), "\(seen)")
      if began, let first = seen.first { #expect(first.pid == child) }
      try await guardian.stop()
      let book = try await Book.read(guardian)["web"] ?? [:]
      #expect(book.count == before + (began ? 1 : 2) && book.values.allSatisfy { $0 }, "\(book)")
      #expect(seen.allSatisfy { book[$0.run] == true }, "\(book) \(seen)")
    }

    @Test func `a restart at once that began and died before it could be written down is not made again`() async throws
    {
      let scratch = try Scratch()
      let yaml = """
        command: [/bin/sh, -c, "echo $INVOCATION_ID >>'\(scratch.path)/lives'; until [ -e '\(scratch.path)/die' ]; do sleep 0.02; done; exit 3"]
        startup-window: 50ms
        backoff: {first: 1h, max: 2h}
        log: none
        """
      let guardian = try await Guardian(
        scratch, services: ["web": yaml], environment: ["GUARDIAN_FAILPOINT": "spawn.after:2"])
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      try Files.write("", to: scratch.path + "/die")
      #expect(try await guardian.process.wait() == 128 + SIGKILL)
      func lives() -> [Substring] {
        ((try? Files.read(scratch.path + "/lives")) ?? "").split(separator: "\n")
      }
      try await eventually("both lives are over") {
        lives().count == 2 && processes { _, _, line in line.contains(scratch.path + "/lives") }.isEmpty ? () : nil
      }
      try guardian.respawn(environment: ["GUARDIAN_FAILPOINT": ""])
      try await guardian.answers()
      let after = try await guardian.wait(for: "web", "backs off") { $0["phase"].string == "backing-off" }
      #expect(after["strikes"].int == 1 && after["restarts"].int == 1, "\(after)")
      #expect(lives().count == 2 && Set(lives()).count == 2, "\(lives())")
      try await guardian.stop()
      let book = try await Book.read(guardian)["web"] ?? [:]
      #expect(book.count == 2 && book.values.allSatisfy { $0 }, "\(book)")
    }
  }
}
