import Glibc
import Testing

extension PatientPrograms {
  @Suite struct `guardian guards itself` {
    private let steady = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\n"

    /// No core files of these deaths.
    private struct NoCores {
      private static let resource = __rlimit_resource_t(4)
      private var before = rlimit()
      init() {
        getrlimit(Self.resource, &before)
        var none = rlimit(rlim_cur: 0, rlim_max: before.rlim_max)
        setrlimit(Self.resource, &none)
      }
      func end() {
        var before = before
        setrlimit(Self.resource, &before)
      }
    }

    @Test func `three deaths by its own fault: it comes up and observes; kills do not count`() async throws {
      let cores = NoCores()
      defer { cores.end() }
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": steady])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let observes = "by its own fault"
      for signal in [SIGABRT, SIGSEGV, SIGKILL, SIGKILL, SIGKILL] {
        kill(guardian.process.pid, signal)
        #expect(try await guardian.process.wait() == 128 + signal)
        try await guardian.startAgain()
        #expect(!guardian.log.contains(observes))
        #expect(try await !guardian.control("status").output.contains(observes))
      }
      kill(guardian.process.pid, SIGILL)
      #expect(try await guardian.process.wait() == 128 + SIGILL)
      try await guardian.startAgain()
      let status = try await guardian.control("status")
      #expect(
        (status.output + status.error + guardian.log).contains(observes), "\(status) \(guardian.log.suffix(2_000))")
      // The service has seen nothing of all this.
      #expect(try await guardian.status("web")["pid"] == web["pid"])

      try await guardian.stop()
    }

    @Test(.enabled(if: OwnNumbers.missing == nil, "not shown: \(OwnNumbers.missing ?? "")"))
    func `G11: as process 1 of a container it ends by its own fault with a code of its own, and the state is sound`()
      async throws
    {
      let cores = NoCores()
      defer { cores.end() }
      let scratch = try Scratch()
      let failing = "command: [/bin/sh, -c, \"exit 3\"]\nlog: none\n"
      let guardian = try await Guardian(
        scratch,
        services: [
          "steady": steady, "down": steady, "doomed": failing + "backoff: {first: 1ms, max: 5ms}\n",
          "slow": failing + "backoff: {first: 1h, max: 2h}\n",
        ], environment: ["GUARDIAN_FAILPOINT": "trap:answer.before:2"],
        wrappedIn: OwnNumbers.wrapper)
      /// As the machine outside numbers it.
      func first() throws -> Int32 {
        let unshare = guardian.process.pid
        let text = try Files.read("/proc/\(unshare)/task/\(unshare)/children")
        return try #require(text.split(separator: " ").first.flatMap { Int32($0) })
      }
      /// Its numbers are the container's own, so that the harness must not look for them out here.
      func service(_ name: String) async throws -> JSON {
        try #require(try JSON(try await guardian.control("--json", "status", name).output)["services"].array.first)
      }
      func wait(_ name: String, _ what: String, _ condition: (JSON) -> Bool) async throws {
        try await eventually("\(name) \(what)") { condition(try await service(name)) ? () : nil }
      }
      func isAsItWas(at place: SourceLocation = #_sourceLocation) async throws {
        try await wait("steady", "settles") { $0["settled"].bool == true && $0["strikes"].int == 0 }
        let down = try await service("down"), doomed = try await service("doomed"), slow = try await service("slow")
        #expect(down["phase"].string == "stopped" && down["wanted"].string == "down", "\(down)", sourceLocation: place)
        #expect(
          doomed["phase"].string == "quarantined" && doomed["step"].string == "quarantine", "\(doomed)",
          sourceLocation: place)
        #expect(
          slow["phase"].string == "backing-off" && slow["strikes"].int == 1, "\(slow)", sourceLocation: place)
        let state = try await guardian.control("version").output
        #expect(state.contains("durable"), "\(state)", sourceLocation: place)
        #expect(!guardian.log.contains("moved aside"), "\(guardian.log.suffix(2_000))", sourceLocation: place)
      }
      func faults() -> Int { (try? Files.bytes(scratch.path + "/state/faults").count).map { $0 / 32 } ?? -1 }

      try await wait("doomed", "is quarantined") { $0["phase"].string == "quarantined" }
      try await wait("slow", "backs off") { $0["phase"].string == "backing-off" }
      #expect(try await guardian.control("stop", "down").code == 0)
      try await isAsItWas()

      // A trap of its own, at the answer to the second order.
      #expect(try await guardian.control("reset", "steady").code != 0)
      let trapped = try await guardian.process.wait()
      #expect(trapped == 128 + SIGILL || trapped == 128 + SIGTRAP)
      #expect(faults() == 1)
      try guardian.respawn(environment: ["GUARDIAN_FAILPOINT": ""])
      try await guardian.answers()
      try await isAsItWas()
      #expect(faults() == 1)

      // A signal that was only sent: the kernel lets process 1 ignore that.
      for (count, signal) in [(2, SIGABRT), (3, SIGSEGV)] {
        kill(try first(), signal)
        #expect(try await guardian.process.wait() == 128 + signal)
        #expect(faults() == count)
        try guardian.respawn(environment: ["GUARDIAN_FAILPOINT": ""])
        try await guardian.answers()
        try await isAsItWas()
      }
      #expect(guardian.log.contains("has died 3 times by its own fault"), "\(guardian.log.suffix(2_000))")
      kill(try first(), SIGTERM)
      #expect(try await guardian.process.wait() == 0)
    }

    @Test func `what lives is not started twice though the runtime directory was emptied`() async throws {
      let scratch = try Scratch()
      let notify = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 100ms\nlog: none\nready: notify\n"
      let guardian = try await Guardian(scratch, services: ["web": steady, "silent": notify])
      let web = try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let silent = try await guardian.wait(for: "silent", "starts") { $0["pid"].int != nil }
      kill(guardian.process.pid, SIGKILL)
      _ = try await guardian.process.wait()
      _ = try await run(["/bin/sh", "-c", "rm -rf '\(guardian.runtime)'/*"])
      try await guardian.startAgain()
      #expect(try await guardian.status("web")["pid"] == web["pid"])
      #expect(try await guardian.status("silent")["pid"] == silent["pid"])
      try await guardian.stop()
    }

    /// In process numbers of its own, where the next one can be chosen.
    @Test(.enabled(if: isRoot && access("/proc/sys/kernel/ns_last_pid", F_OK) == 0, "not shown: needs root"))
    func `CASES 29: who has a dead service's pid now is neither taken over nor signalled`() async throws {
      let scratch = try Scratch()
      for name in ["config", "config/services", "state", "run", "logs"] { _ = try scratch.directory(name) }
      try Files.write(steady, to: scratch.path + "/config/services/web.yaml")
      let script = """
        cd '\(scratch.path)'
        guardian() {
          '\(Place.products)/guardian' --config "$PWD/config" --state "$PWD/state" --runtime "$PWD/run" \\
            --logs "$PWD/logs" >>guardian.log 2>&1 &
          guardian=$!
        }
        ctl() { '\(Place.products)/guardianctl' --runtime "$PWD/run" "$@"; }
        settled() {
          for _ in $(seq 200); do
            ctl --json status web 2>/dev/null | tr -d ' \\n' | grep -q '"settled":true' && return
            sleep .05
          done
          echo "web did not settle"
        }
        pid_of() { ctl --json status web | tr -d ' \\n' | sed 's/.*"pid":\\([0-9]*\\).*/\\1/'; }
        guardian; settled
        web=$(pid_of)
        kill -KILL $guardian; wait $guardian
        kill -KILL $web
        while kill -0 $web 2>/dev/null; do sleep .02; done
        # In its session's and its group's place too.
        for _ in $(seq 20); do
          echo $((web - 1)) >/proc/sys/kernel/ns_last_pid
          setsid bash -c 'trap "echo signalled >>heard" TERM HUP INT USR1 CONT; while :; do sleep .05; done' &
          bystander=$!
          [ $bystander = $web ] && break
          kill -KILL $bystander
        done
        echo same $((bystander == web))
        guardian; settled
        echo another $(($(pid_of) != web))
        ctl restart web; ctl stop web
        kill -TERM $guardian; wait $guardian
        kill -0 $bystander && echo alive
        [ -e heard ] || echo untouched

        """
      try Files.write(script, to: scratch.path + "/script")
      let answer = try await run(
        ["/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "/bin/bash", scratch.path + "/script"], seconds: 60)
      let lines = answer.output.split(separator: "\n").map(String.init)
      let log = (try? Files.read(scratch.path + "/guardian.log")) ?? ""
      for line in ["same 1", "another 1", "alive", "untouched"] {
        #expect(lines.contains(line), "\(answer) \(log.suffix(3_000))")
      }
    }
  }
}
