import Glibc
import Testing

/// How many upgrades in a row, under how many services; the long form is asked for by the environment.
private let rounds = getenv("GUARDIAN_UPGRADES").flatMap { Int(String(cString: $0)) } ?? 5
private let load = getenv("GUARDIAN_UPGRADE_SERVICES").flatMap { Int(String(cString: $0)) } ?? 20

extension PatientPrograms {
  @Suite(.serialized) struct `an upgrade in place` {
    /// A guardian whose program is a copy of its own, which may be replaced while it runs.
    private func guardian(_ services: [String: String]) async throws -> (Guardian, program: String) {
      let scratch = try Scratch()
      let program = scratch.path + "/guardian"
      try put("cp", program)
      return (try await Guardian(scratch, services: services, program: program), program)
    }

    /// Another file at the same path, as an installation makes it.
    private func put(_ how: String, _ program: String) throws {
      let new = program + ".new"
      #expect(try Process(["/bin/cp", Place.products + "/guardian", new]).waitBlocking() == 0)
      guard rename(new, program) == 0 else { throw Failure.errno(program) }
    }

    private func script(_ text: String, _ program: String) throws {
      try Files.write("#!/bin/sh\n" + text, to: program + ".new", mode: 0o755)
      guard rename(program + ".new", program) == 0 else { throw Failure.errno(program) }
    }

    @Test func `CASES 54, K6: keeps the pid, every service and every count`() async throws {
      let (guardian, program) = try await guardian([
        "steady": "command: [/bin/sleep, '1000']\nstartup-window: 1s\n",
        "told": "command: [/bin/sh, -c, 'sleep 1000']\nready: notify\nstart-timeout: 1h\n",
        "weak": "command: [/bin/sh, -c, 'exit 3']\nbackoff: {first: 1h, max: 1h}\n",
      ])
      let steady = try await guardian.wait(for: "steady", "runs", { $0["settled"].bool == true })
      let told = try await guardian.wait(for: "told", "starts", { $0["pid"].int != nil })
      let weak = try await guardian.wait(for: "weak", "backs off", { $0["phase"].string == "backing-off" })
      try put("new", program)
      let answer = try await guardian.control("upgrade")
      #expect(
        answer.code == 0
          && answer.output.hasSuffix("pid \(guardian.process.pid) kept, 3 services untouched\n"), "\(answer)")
      for (name, before) in [("steady", steady), ("told", told), ("weak", weak)] {
        let after = try await guardian.status(name)
        for key in ["pid", "run", "phase", "settled", "strikes", "restarts", "step"] {
          #expect(after[key] == before[key], "\(name): \(key) was \(before[key]), is \(after[key])")
        }
      }
      try await guardian.stop()
    }

    @Test func `a death during the switch is noticed, and those who wait are answered`() async throws {
      let (guardian, program) = try await guardian([
        "web": "command: [/bin/sleep, '1000']\nstartup-window: 1s\nbackoff: {first: 10ms, max: 10ms}\n",
        "slow": "command: [/bin/sh, -c, 'trap \"\" TERM; sleep 4 & wait; wait; exit 0']\nstop: {timeout: 3s}\n",
      ])
      let web = try await guardian.wait(for: "web", "is settled", { $0["settled"].bool == true })
      try await guardian.wait(for: "slow", "runs", { $0["pid"].int != nil })
      try put("new", program)
      func begin(_ words: String...) throws -> (process: Process, words: String) {
        let file = guardian.scratch.path + "/" + words.joined(separator: "-")
        let control = [Place.products + "/guardianctl", "--runtime", guardian.runtime]
        return (try Process(control + words, output: file), file)
      }
      let stop = try begin("stop", "slow")
      try await guardian.wait(for: "slow", "stops", { $0["phase"].string == "stopping" })
      let upgrade = try begin("upgrade")
      // Anywhere in the exchange: before the check ends, between the programs, or after.
      try await Task.sleep(for: .milliseconds(30))
      kill(pid_t(try #require(web["pid"].int)), SIGKILL)
      #expect(try await upgrade.process.wait() == 0)
      let again = try await guardian.wait(
        for: "web", "has been restarted",
        {
          $0["pid"].int != nil && $0["pid"].int != web["pid"].int
        })
      #expect(again["last_end"]["signal"].string == "KILL" && again["restarts"].int == 1, "\(again)")
      #expect(try await stop.process.wait() == 0)
      #expect(try Files.read(stop.words) == "slow: stopped\n")
      try await guardian.stop()
    }

    @Test func `a new program that is no good is refused, and the old one goes on`() async throws {
      let (guardian, program) = try await guardian(["web": "command: [/bin/sleep, '1000']\n"])
      let web = try await guardian.wait(for: "web", "runs", { $0["pid"].int != nil })
      func refused(_ why: String) async throws {
        let answer = try await guardian.control("upgrade")
        #expect(answer.code == 1 && answer.error.contains(why), "\(answer)")
        #expect(try await guardian.status("web")["pid"] == web["pid"])
      }
      try script("echo 'no library' >&2\nexit 127\n", program)
      try await refused("the new program refuses: no library")
      #expect(try Process(["/usr/bin/truncate", "-s", "100000", program]).waitBlocking() == 0)
      try await refused("")
      try Files.write("neither program nor script", to: program, mode: 0o755)
      try await refused(program)
      unlink(program)
      try await refused("no such file")
      // Good when it is tried, and then not: the old one comes back by its open file.
      try script(
        """
        case "$*" in
        *--take-over-check*) exec \(Place.products)/guardian "$@" ;;
        *) exec \(Place.products)/guardian "$@" --runtime /dev/null/nowhere ;;
        esac

        """, program)
      try await refused("the new program failed: ")
      // And after all that it still can be exchanged.
      try put("new", program)
      #expect(try await guardian.control("upgrade").code == 0)
      #expect(try await guardian.status("web")["pid"] == web["pid"])
      try await guardian.stop()
    }

    @Test func `many in a row leave no descriptor and no memory behind`() async throws {
      var services: [String: String] = [:]
      for number in 0..<load {
        services["s\(number)"] =
          number % 2 == 0
          ? "command: [/bin/sleep, '1000']\nstartup-window: 1h\n"
          : "command: [/bin/sleep, '0.\(1 + number % 8)']\nbackoff: {first: 50ms, max: 200ms}\n"
            + "escalation: off\n"
      }
      let (guardian, _) = try await guardian(services)
      let pid = guardian.process.pid
      func even() async throws -> [Int?] {
        var pids: [Int?] = []
        for number in stride(from: 0, to: load, by: 2) {
          pids.append(try await guardian.status("s\(number)")["pid"].int)
        }
        return pids
      }
      func resident() throws -> Int {
        let line = try Files.read("/proc/\(pid)/status").split(separator: "\n").first { $0.hasPrefix("RssAnon:") }
        return line.flatMap { Int($0.split(whereSeparator: { $0 == " " || $0 == "\t" })[1]) } ?? 0
      }
      /// Other than those of runs, of which some are there at one time and not at another, and the numbers that
      /// the first start sets aside, which hold nothing.
      func descriptors() -> Int {
        Files.names(in: "/proc/\(pid)/fd").filter { name in
          var buffer = [UInt8](repeating: 0, count: 256)
          let length = readlink("/proc/\(pid)/fd/\(name)", &buffer, buffer.count)
          let target = length > 0 ? String(decoding: buffer[..<length], as: UTF8.self) : "/dev/null"
          return target != "/dev/null" && !target.contains("pidfd")
        }.count
      }
      for number in stride(from: 0, to: load, by: 2) {
        try await guardian.wait(for: "s\(number)", "runs", { $0["pid"].int != nil })
      }
      let before = try await even()
      #expect(try await guardian.control("upgrade").code == 0)
      let (open, memory) = (descriptors(), try resident())
      for _ in 1..<rounds {
        let answer = try await guardian.control("upgrade")
        #expect(answer.code == 0, "\(answer)")
      }
      #expect(try await even() == before)
      // A connection or two may be on their way out.
      #expect(descriptors() <= open + 3)
      #expect(try resident() < memory + memory / 4 + 2048)
      try await guardian.stop()
    }

    @Test func `CASES 62, G12 a second guardian on the same state names its holder and touches nothing`() async throws {
      let (guardian, _) = try await guardian(["web": "command: [/bin/sleep, '1000']\n"])
      try await guardian.wait(for: "web", "runs", { $0["pid"].int != nil })
      #expect(try await guardian.control("upgrade").code == 0)
      let other = try guardian.scratch.directory("other")
      for round in 0..<10 {
        let second = try await run([
          Place.products + "/guardian", "--config", guardian.scratch.path + "/config", "--state",
          guardian.scratch.path + "/state", "--runtime", round % 2 == 0 ? other : guardian.runtime, "--logs", other,
        ])
        #expect(
          second.code == 1 && second.error.contains("belongs to another guardian, pid \(guardian.process.pid)"),
          "\(second)")
        #expect(!Files.exists(other + "/control.sock"))
      }
      #expect(try await guardian.control("status").code < 2)
      try await guardian.stop()
    }
  }
}
