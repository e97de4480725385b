import Glibc
import Testing

extension PatientPrograms {
  @Suite struct `on a terminal` {
    @Test(
      .enabled(if: access("/usr/bin/setsid", X_OK) == 0, "setsid gives a program a terminal of its own"))
    func `top shows, acts, follows a resize, outlives a guardian that is killed, and leaves the terminal as it was`()
      async throws
    {
      let guardian = try await Guardian(
        try Scratch(),
        services: [
          "web": "command: [/bin/sleep, \"1000\"]\nstartup-window: 200ms\nlog: none\ngroups: [shop]\n",
          "idle": "command: [/bin/sleep, \"1000\"]\nstart: manual\nlog: none\n",
          "busy": "command: [/bin/sh, -c, \"while :; do :; done\"]\nstart: manual\nlog: none\nnice: 19\n",
        ])
      let control = Place.products + "/guardianctl"
      let top = try OnTerminal([control, "--runtime", guardian.runtime, "top"], width: 100, height: 12)
      try await top.see("web is settled") { $0.contains { $0.contains("web ") && $0.contains("settled") } }
      // The memory of one that sleeps is told, by the group or by /proc.
      try await top.see("its memory") {
        $0.contains { $0.contains("web ") && ($0.contains("K ") || $0.contains("M ")) }
      }
      #expect(!top.isUsable)

      top.type("/idle\r")
      try await top.see("only idle") { !$0.contains { $0.contains("web ") && $0.contains("settled") } }
      top.type("s")
      try await top.see("a question") { $0.last?.hasPrefix("start idle? y") == true }
      top.type("y")
      try await top.see("idle was started") { $0.contains { $0.contains("idle: started") } }
      try await top.see("idle runs") { $0.contains { $0.contains("idle ") && $0.contains("running") } }
      top.type("\u{1b}")

      // One that takes a processor is told to take it.
      #expect(try await guardian.control("start", "busy").code == 0)
      top.type("C")
      try await top.see("busy is on top") { rows in
        rows.count > 3 && rows[3].contains("busy") && !rows[3].contains("0.0%") && rows[3].contains("%")
      }
      #expect(try await guardian.control("stop", "busy").code == 0)

      top.resize(width: 40, height: 8)
      try await top.see("the narrow screen") { rows in
        rows.count == 8 && rows[2].contains("NAME") && !rows[2].contains("UPTIME")
      }
      top.resize(width: 120, height: 20)
      try await top.see("the wide screen") { $0.count == 20 && $0[2].contains("UPTIME") }

      guardian.kill()
      try await top.see("guardian is away") { $0.count > 1 && $0[1].contains("guardian is away: ") }
      try await guardian.startAgain()
      try await top.see("guardian is back") { $0.count > 1 && $0[1] == "by CPU" }

      top.type("q")
      #expect(try await top.end() == 0)
      #expect(top.isUsable)
      #expect(top.text.hasSuffix("\u{1b}[?25h\u{1b}[?1049l"))

      // A signal from outside.
      let other = try OnTerminal([control, "--runtime", guardian.runtime, "top", "@shop"], width: 80, height: 10)
      try await other.see("web, and nothing else") { rows in
        rows.contains { $0.contains("web ") } && !rows.contains { $0.contains("idle ") }
      }
      kill(other.pid, SIGTERM)
      #expect(try await other.end() == 128 + SIGTERM)
      #expect(other.isUsable && other.text.contains("\u{1b}[?25h\u{1b}[?1049l"))

      // What is drawn without colour and without UTF-8 has neither.
      let plain = try OnTerminal(
        [control, "--runtime", guardian.runtime, "status", "--watch"], width: 60, height: 10,
        environment: ["NO_COLOR": "1", "LC_ALL": "C"])
      try await plain.see("the table") { $0.contains { $0.hasPrefix("web") } }
      #expect(try await guardian.control("stop", "web").code == 0)
      try await plain.see("the change") { $0.contains { $0.hasPrefix("web") && $0.contains("stopped") } }
      plain.type("\u{3}")
      #expect(try await plain.end() == 0)
      #expect(
        plain.isUsable && plain.output.allSatisfy { $0 < 0x80 }
          && plain.text.matches(of: /\u{1b}\[(?:[0-9]+;)*(?:3[0-9]|4[0-9]|9[0-7])m/).isEmpty)
      try await guardian.stop()
    }

    @Test(
      .enabled(if: access("/usr/bin/setsid", X_OK) == 0, "setsid gives a program a terminal of its own"))
    func `an order that takes its time shows how far it is, and elsewhere only what it came to`() async throws {
      let slow =
        "command: [/bin/sh, -c, \"sleep 1.6; echo >&3; exec sleep 1000\"]\nready: {fd: 3}\nstart: manual\nlog: none\n"
      let guardian = try await Guardian(try Scratch(), services: ["a": slow, "b": slow])
      let control = Place.products + "/guardianctl"
      let shown = try OnTerminal([control, "--runtime", guardian.runtime, "start", "--all"], width: 80, height: 24)
      #expect(try await shown.end() == 0)
      #expect(shown.text.contains("⠋ starting 0 of 2: a, b 1s"))
      // Nothing of it is left.
      #expect(shown.text.hasSuffix(": started\r\n"))
      let quiet = try await guardian.control("restart", "a", "b")
      #expect(quiet.code == 0 && quiet.error == "")
      #expect(quiet.output.split(separator: "\n").sorted() == ["a: restarted", "b: restarted"])

      // The same, line by line, for whoever watches in a pipe.
      let file = guardian.scratch.path + "/watched"
      let watch = try Process(
        [control, "--runtime", guardian.runtime, "status", "--watch", "[ab]", "--json"], output: file)
      _ = try await eventually("the first look") { try Files.read(file).contains("\n") ? true : nil }
      #expect(try await guardian.control("stop", "a").code == 0)
      let lines = try await eventually("the stop") { () -> [Substring]? in
        let lines = try Files.read(file).split(separator: "\n")
        return lines.last?.contains("\"phase\":\"stopped\"") == true ? lines : nil
      }
      #expect(try JSON(String(lines[0]))["services"].array.count == 2)
      for line in lines { #expect(try JSON(String(line))["schema"].int == 1) }
      #expect(try JSON(String(lines[lines.count - 1]))["services"].array.map { $0["name"].string } == ["a"])
      watch.end()
      try await guardian.stop()
    }
  }
}
