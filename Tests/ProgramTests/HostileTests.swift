import Glibc
import Testing

private func number(_ name: String) -> Int? { getenv(name).flatMap { Int(String(cString: $0)) } }

extension Programs {
  /// Deaf, noisy, many and on the run: see Tests/Hostile. It runs as an ordinary user below a limit of processes.
  @Suite(.enabled(if: isRoot, "not shown: needs root, to give the hostile service a user of its own"))
  struct `a hostile service` {
    /// With figures, for so many seconds, as in `GUARDIAN_HOSTILE=60`; else for two, and only the behaviour counts.
    static let long = number("GUARDIAN_HOSTILE")
    static let crowd = number("GUARDIAN_HOSTILE_PROCESSES") ?? (long == nil ? 60 : 400)

    static func bystander(_ number: Int) -> String {
      "command: [/bin/sleep, \"\(1_000_000 + number)\"]\nstartup-window: 50ms\nlog: none\n"
        + "late: {budget: 10000, within: 1h}\n"
    }

    private func scene(_ roles: [String], log: String = "none") async throws -> (Scratch, Guardian, String) {
      let scratch = try Scratch()
      let program = scratch.path + "/hostile", mark = "hostile-of-\(getpid())"
      // Where its user may run it.
      #expect(try await run(["/bin/cp", Place.products + "/guardian-hostile", program]).code == 0)
      chmod(program, 0o755)
      var services = [
        "hostile": """
        command: ["\(program)", \(mark), \(roles.joined(separator: ", "))]
        user: nobody
        limits: {processes: \(Self.crowd)}
        ready: notify
        start-timeout: 1h
        stop: {timeout: 500ms}
        log: \(log)
        """
      ]
      for number in 0..<3 { services["bystander\(number)"] = Self.bystander(number) }
      let guardian = try await Guardian(scratch, services: services)
      return (scratch, guardian, mark)
    }

    private func left(_ mark: String) -> [String] { processes { _, _, line in line.contains(mark) } }

    /// Kills bystanders and asks for the status all the while.
    ///
    /// - Returns: From each death to guardian's decision, and how long each `guardianctl status` took; in milliseconds.
    private func watch(_ guardian: Guardian, seconds: Int) async throws -> (decisions: [Double], statuses: [Double]) {
      let clock = ContinuousClock(), end = clock.now + .seconds(seconds)
      var decisions: [Double] = [], statuses: [Double] = []
      var turn = 0
      while clock.now < end {
        let before = clock.now
        #expect(try await guardian.control("status").code != 6)
        statuses.append(
          Double((clock.now - before).components.attoseconds / 1_000_000_000_000) / 1000
            + Double((clock.now - before).components.seconds) * 1000)
        let name = "bystander\(turn % 3)"
        turn += 1
        let service = try await guardian.wait(for: name, "is there") {
          $0["pid"].int != nil && $0["settled"].bool == true
        }
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        kill(pid_t(try #require(service["pid"].int)), SIGSEGV)
        let killed = Double(now.tv_sec % 60) * 1000 + Double(now.tv_nsec) / 1e6
        let next = try await guardian.wait(for: name, "is there again") {
          $0["run"] != service["run"] && $0["last_end"]["at"].string != nil
        }
        // `…:07.123Z`: guardian's own look at the clock when it heard of the death.
        let at = try #require(next["last_end"]["at"].string).dropLast().split(separator: ":").last.flatMap {
          Double($0)
        }
        var took = (try #require(at)) * 1000 - killed
        if took < -30_000 { took += 60_000 }
        decisions.append(took)
      }
      return (decisions.sorted(), statuses.sorted())
    }

    private func report(_ what: String, _ figures: (decisions: [Double], statuses: [Double])) {
      func text(_ values: [Double]) -> String {
        func at(_ share: Double) -> String {
          let place = min(values.count - 1, Int(Double(values.count) * share))
          return values.isEmpty ? "-" : "\((values[place] * 10).rounded() / 10) ms"
        }
        return "p50 \(at(0.5)), p99 \(at(0.99)), most \(at(1)) of \(values.count)"
      }
      print("\(what): death to decision \(text(figures.decisions)); status \(text(figures.statuses))")
    }

    struct Scene: CustomTestStringConvertible {
      var name: String, roles: [String]
      var log = "none"
      var testDescription: String { name }
    }
    static let scenes = [
      Scene(name: "a fork bomb at its limit", roles: ["deaf", "bomb"]),
      Scene(name: "children that end in thousands", roles: ["deaf", "churn", "churn"]),
      Scene(name: "a gigabyte of output in a second, thrown away", roles: ["deaf", "output=1000"]),
      Scene(name: "output into guardian's own", roles: ["deaf", "output=1000"], log: "inherit"),
      Scene(name: "a million notifications", roles: ["deaf", "notify=1000000", "notify"]),
      Scene(name: "all of it", roles: ["deaf", "output=1000", "notify", "churn", "bomb"]),
    ]

    @Test(arguments: scenes)
    func `leaves nothing after stop, and the others are served meanwhile`(_ scene: Scene) async throws {
      let (scratch, guardian, mark) = try await self.scene(scene.roles, log: scene.log)
      _ = try await eventually("it is there") { left(mark).isEmpty ? nil : () }
      let figures = try await watch(guardian, seconds: Self.long ?? 2)
      if Self.long != nil { report(scene.name, figures) }
      #expect(!figures.decisions.isEmpty)
      let stop = try await guardian.control("stop", "hostile", seconds: 30)
      #expect(stop.code == 0, "\(stop)")
      #expect(left(mark).isEmpty, "nothing is left when stop says so")
      for number in 0..<3 {
        let service = try await guardian.wait(for: "bystander\(number)", "settles") { $0["settled"].bool == true }
        #expect(service["strikes"].int == 0)
      }
      truncate(scratch.path + "/guardian.log", 0)
      try await guardian.stop()
    }

    @Test func `that leaves its session and wipes its environment is gone after stop where there are control groups`()
      async throws
    {
      let (_, guardian, mark) = try await scene(["deaf", "escape=20", "churn"])
      // Nobody can prove whose they are without control groups; then the end of guardian itself has to do.
      let version = try await guardian.control("version").output
      let groups = version.contains("control group below")
      _ = try await eventually("they have fled") { left(mark).count > 10 ? () : nil }
      let stop = try await guardian.control("stop", "hostile", seconds: 30)
      #expect(stop.code == 0, "\(stop)")
      if groups { #expect(left(mark).isEmpty) }
      try await guardian.stop()
      #expect(left(mark).isEmpty, "groups: \(groups)")
    }

    @Test func `that ends and leaves all of it behind is restarted on clean ground`() async throws {
      let (_, guardian, mark) = try await scene(["deaf", "bomb", "output=100", "exit"])
      let again = try await guardian.wait(for: "hostile", "has died twice", seconds: 60) {
        ($0["strikes"].int ?? 0) >= 2
      }
      #expect(again["last_end"]["code"].int == 1, "\(again)")
      _ = try await guardian.control("stop", "hostile", seconds: 30)
      #expect(left(mark).isEmpty)
      try await guardian.stop()
    }
  }
}
