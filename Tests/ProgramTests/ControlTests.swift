import Glibc
import Testing

extension Programs {
  /// Whatever comes over the control socket, it is its own connection's affair.
  @Suite struct `the control socket` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 50ms\nlog: none\n"

    private func guardian(_ scratch: Scratch, _ names: String...) async throws -> Guardian {
      let guardian = try await Guardian(
        scratch, services: Dictionary(uniqueKeysWithValues: names.map { ($0, Self.sleeper) }))
      for name in names { try await guardian.wait(for: name, "settles") { $0["settled"].bool == true } }
      return guardian
    }
    /// KiB of memory that it holds.
    private func memory(_ guardian: Guardian) throws -> Int {
      let line = try Files.read("/proc/\(guardian.process.pid)/status").split(separator: "\n").first {
        $0.hasPrefix("RssAnon:")
      }
      return try #require(line?.split(separator: " ").dropLast().last.flatMap { Int($0) })
    }
    private func descriptors(_ guardian: Guardian) -> Int { Files.names(in: "/proc/\(guardian.process.pid)/fd").count }

    /// How long a client with nothing special about it waits for an answer.
    private func answerTime(_ guardian: Guardian) throws -> Duration {
      let clock = ContinuousClock()
      return try clock.measure {
        let client = try Conversation(guardian)
        client.call("Summary")
        #expect(try client.reply()?["parameters"]["line"].string != nil)
      }
    }

    @Test
    func
      `B1, B6, B7: no call at all ends its connection with a typed error, a wrong call does not, an unknown one does not`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await guardian(scratch, "web")
      let before = try memory(guardian)
      // Random bytes, the same in each run; what other protocols have for a length of 0, 2^32 − 1 and −1; lone surrogates,
      // members twice, and too deep.
      var state: UInt64 = 7
      let noise = (0..<4_096).map { _ in
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return UInt8(truncatingIfNeeded: state >> 33)
      }
      let nonsense: [[UInt8]] = [
        noise + [0], [0], [0, 0, 0, 0], [0xff, 0xff, 0xff, 0xff, 0],
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
        Array(#"{"method":"a.b","method":"a.b"}"#.utf8) + [0],
        Array(#"{"method":"a.b","parameters":{"x":"\ud800"}}"#.utf8) + [0],
        [UInt8](repeating: UInt8(ascii: "["), count: 1 << 20),
        Array((#"{"method":"a.b","parameters":"# + String(repeating: #"{"a":"#, count: 1_000)).utf8) + [0],
      ]
      for bytes in nonsense {
        let client = try Conversation(guardian)
        client.send(bytes)
        #expect(try client.reply()?.error == "InvalidParameter", "\(bytes.prefix(40))")
        #expect(try client.reply() == nil)
      }
      // Cut off in the middle: there is nobody to tell.
      let cut = try Conversation(guardian)
      cut.send(#"{"method":"io.guardian.Supervisor.Stop","parameters":{"name":"web"}"#)
      cut.endSending()
      #expect(try cut.reply() == nil)
      #expect(try memory(guardian) - before < 8_192)

      // One connection takes all of these, and goes on.
      let client = try Conversation(guardian)
      for (call, error) in [
        (#"{"method":"io.guardian.Supervisor.Fly"}"#, "MethodNotFound"),
        (#"{"method":"io.guardian.Future.List"}"#, "InterfaceNotFound"),
        (#"{"method":"io.guardian.Supervisor.Stop","parameters":{"name":7}}"#, "InvalidParameter"),
        (#"{"method":"io.guardian.Supervisor.Stop","parameters":{"name":"web","force":true}}"#, "InvalidParameter"),
        (#"{"method":"io.guardian.Supervisor.Stop","parameters":{"name":"no-such"}}"#, "NoSuchService"),
        (#"{"method":"io.guardian.Supervisor.Summary","upgrade":true}"#, "MethodNotImplemented"),
        (#"{"method":"io.guardian.Supervisor.Events","parameters":{"follow":true}}"#, "ExpectedMore"),
        (#"{"method":"io.guardian.Supervisor.Repair","parameters":{"name":"web","repair":"no-such"}}"#, "Failed"),
      ] {
        client.send(call + "\0")
        #expect(try client.reply()?.error == error, "\(call)")
      }
      // Without an answer, none, not even an error; what follows is answered.
      client.call("Fly", "{}", #","oneway":true"#)
      client.call("List", #"{"names":["web"]}"#)
      let list = try #require(try client.reply())
      #expect(list["parameters"]["services"].array.first?["name"].string == "web", "\(list)")
      #expect(try await guardian.status("web")["wanted"].string == "up")
      try await guardian.stop()
    }

    /// GUARDIAN_PATIENCE=1 is the long form: it waits until those that owe something have been closed.
    @Test func `B2, B3: a hundred who dribble and some who never read cost their share, and hold up nobody`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await guardian(scratch, "web")
      let before = try memory(guardian), descriptorsBefore = descriptors(guardian)
      var dribbling: [Conversation] = [], deaf: [Conversation] = []
      let call = Array(#"{"method":"io.guardian.Supervisor.List","parameters":{"names":["web"]}}"#.utf8) + [0]
      for _ in 0..<100 { dribbling.append(try Conversation(guardian)) }
      let many = Array(repeatElement(call, count: 20_000).joined())
      for _ in 0..<5 {
        let client = try Conversation(guardian)
        // Guardian stops reading long before.
        #expect(client.send(many) < many.count)
        deaf.append(client)
      }
      for byte in call.prefix(5) {
        for client in dribbling { client.send([byte]) }
        #expect(try answerTime(guardian) < .seconds(1))
      }
      #expect(try await guardian.control("restart", "web").code == 0)
      #expect(try memory(guardian) - before < 16_384)
      if getenv("GUARDIAN_PATIENCE") != nil {
        try await eventually("they are closed", seconds: 60) {
          descriptors(guardian) <= descriptorsBefore + 2 ? () : nil
        }
        #expect(try dribbling.allSatisfy { try $0.reply() == nil })
      }
      #expect(try answerTime(guardian) < .seconds(1))
      withExtendedLifetime((dribbling, deaf)) {}
      try await guardian.stop()
    }

    @Test func `B4, B8: who goes away in the middle has given an order or has not, and what is passed along is closed`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await guardian(scratch, "web", "db")
      let first = try await guardian.status("web"), descriptorsBefore = descriptors(guardian)
      // In the middle of a call: not begun.
      do {
        let client = try Conversation(guardian)
        client.send(#"{"method":"io.guardian.Supervisor.Restart","parameters":{"name":"web"}"#)
      }
      _ = try answerTime(guardian)
      #expect(try await guardian.status("web")["run"] == first["run"])
      // While it waits for the outcome: done, once.
      do { try Conversation(guardian).call("Restart", #"{"name":"web"}"#) }
      let second = try await guardian.wait(for: "web", "runs again") {
        $0["settled"].bool == true && $0["run"] != first["run"]
      }
      // In the middle of answers, of a stream too.
      for _ in 0..<50 {
        let client = try Conversation(guardian)
        for _ in 0..<20 { client.call("List", "{}", #","more":true"#) }
        client.call("Events", #"{"follow":true}"#, #","more":true"#)
      }
      #expect(try await guardian.status("web")["run"] == second["run"])

      // GUARDIAN_PASSED=100000 is the long form.
      let count = getenv("GUARDIAN_PASSED").flatMap { Int(String(cString: $0)) } ?? 500
      let client = try Conversation(guardian)
      let summary = #"{"method":"io.guardian.Supervisor.Summary"}"# + "\0"
      for _ in 0..<count {
        try #require(client.send(summary, passing: [0, 1, 2]))
        #expect(try client.reply()?.error == nil)
      }
      withExtendedLifetime(client) {}
      try await eventually("the descriptors are as before") {
        descriptors(guardian) <= descriptorsBefore + 1 ? () : nil
      }
      try await guardian.stop()
    }

    /// GUARDIAN_CONNECTIONS=10000 is the long form.
    @Test
    func `B5: more connections than there may be, and than there are descriptors for, are turned away without a spin`()
      async throws
    {
      let count = getenv("GUARDIAN_CONNECTIONS").flatMap { Int(String(cString: $0)) } ?? 300
      let scratch = try Scratch()
      let guardian = try await guardian(scratch, "web")
      let before = descriptors(guardian)
      do {
        var idle: [Conversation] = []
        for _ in 0..<count { idle.append(try Conversation(guardian)) }
        #expect(try await guardian.control("status").code == 0)
        #expect(descriptors(guardian) <= before + 256 + 8)
        // The idlest has made way.
        #expect(try idle[0].reply() == nil)
      }
      try await eventually("they are gone") { descriptors(guardian) <= before + 1 ? () : nil }

      // No more descriptors than it has.
      let pid = String(guardian.process.pid)
      #expect(try await run(["/usr/bin/prlimit", "--pid", pid, "--nofile=\(before + 2):1024"]).code == 0)
      do {
        var some: [Conversation] = []
        for _ in 0..<60 { some.append(try Conversation(guardian)) }
        func time() throws -> Int {
          let stat =
            try Files.read("/proc/\(pid)/stat").split(separator: ")").last.map { $0.split(separator: " ") } ?? []
          return (Int(stat[11]) ?? 0) + (Int(stat[12]) ?? 0)
        }
        try await Task.sleep(for: .milliseconds(100))
        let ticks = try time()
        try await Task.sleep(for: .milliseconds(300))
        // Of 30 there are.
        #expect(try time() - ticks < 15)
        #expect(isAlive(guardian.process.pid))
        withExtendedLifetime(some) {}
      }
      #expect(try await run(["/usr/bin/prlimit", "--pid", pid, "--nofile=1024:1024"]).code == 0)
      try await eventually("it answers again") { try await guardian.control("status").code == 0 ? () : nil }
      try await guardian.stop()
    }

    @Test func `B9: of fifty clients with conflicting orders each gets its own answer, and the last order holds`()
      async throws
    {
      let scratch = try Scratch()
      let guardian = try await guardian(scratch, "web")
      let orders = ["Start", "Stop", "Restart", "Reset", "Hold"]
      var clients: [(Conversation, String)] = []
      for number in 0..<50 { clients.append((try Conversation(guardian), orders[number * 7 % 5])) }
      for (client, order) in clients {
        client.call(order, order == "Hold" ? #"{"name":"web","for_ms":0}"# : #"{"name":"web"}"#)
      }
      for (client, order) in clients {
        let reply = try #require(try client.reply(), "\(order)")
        // Another's order may have overtaken it: then it is told so.
        #expect(
          reply["parameters"]["name"].string == "web"
            || reply.error == "Failed" && reply["parameters"]["reason"].string != nil,
          "\(order): \(reply)")
      }
      let events = try JSON(try await guardian.control("--json", "events", "web").output)["events"].array
      let asked = events.filter { $0["name"].string == "requested" }
      #expect(asked.count == 50)
      let last = try #require(
        asked.compactMap { $0["details"]["verb"].string }.last { ["start", "stop", "restart"].contains($0) })
      let status = try await guardian.wait(for: "web", "is as the last order wants it") {
        last == "stop" ? $0["phase"].string == "stopped" : $0["settled"].bool == true
      }
      #expect(status["wanted"].string == (last == "stop" ? "down" : "up"))
      // One run for each start, and never two of them.
      #expect(try await guardian.control("stop", "web").code == 0)
      try await guardian.stop()
    }

    @Test func `B12: a socket file that is removed, or replaced, is made again`() async throws {
      let scratch = try Scratch()
      let guardian = try await guardian(scratch, "web")
      let path = guardian.runtime + "/control.sock", run = try await guardian.status("web")["run"]
      let client = try Conversation(guardian)
      unlink(path)
      try await eventually("it is there again") { try await guardian.control("status").code == 0 ? () : nil }
      try Files.write("not a socket", to: path + ".other")
      #expect(rename(path + ".other", path) == 0)
      try await eventually("it is a socket again") { try await guardian.control("status").code == 0 ? () : nil }
      // Who was connected stays so, and nothing else has changed.
      client.call("Summary")
      #expect(try client.reply()?.error == nil)
      #expect(try await guardian.status("web")["run"] == run)
      #expect(guardian.log.contains("was gone and has been made again"))
      try await guardian.stop()
    }

    @Test(arguments: [107, 108, 300])
    func `B13: a socket path that is too long for the kernel is told with its length, and nothing is started`(
      length: Int
    )
      async throws
    {
      let scratch = try Scratch()
      let config = try scratch.directory("config")
      _ = try scratch.directory("config/services")
      try Files.write(
        "command: [/bin/sh, -c, \"touch \(scratch.path)/started; exec sleep 1000\"]\nlog: none\n",
        to: config + "/services/web.yaml")
      var runtime = scratch.path + "/run"
      let end = "/control.sock"
      while runtime.utf8.count + end.utf8.count < length {
        let room = length - runtime.utf8.count - end.utf8.count
        runtime +=
          (runtime.hasSuffix("/") || room == 1 ? "" : "/")
          + String(repeating: "r", count: min(room == 1 ? 1 : room - 1, 100))
      }
      #expect(runtime.utf8.count + end.utf8.count == length)
      let process = try Process(
        [
          Place.products + "/guardian", "--config", config, "--state", scratch.path + "/state", "--runtime", runtime,
          "--logs", scratch.path + "/logs",
        ], output: scratch.path + "/guardian.log")
      let control = [Place.products + "/guardianctl", "--runtime", runtime, "status"]
      if length <= 107 {
        try await eventually("it answers") { try await run(control).code == 6 ? nil : () }
        kill(process.pid, SIGTERM)
        #expect(try await process.wait() == 0)
      } else {
        #expect(try await process.wait() != 0)
        let log = try Files.read(scratch.path + "/guardian.log")
        #expect(log.contains("\(length) bytes, at most 107"), "\(log)")
        #expect(!Files.exists(scratch.path + "/started"))
        let answer = try await run(control)
        #expect(answer.code == 6 && answer.error.contains(runtime), "\(answer)")
      }
    }

    @Test func `CASES 56: the exit status tells whether it came true, and only standard error why not`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(
        scratch,
        services: [
          "web": Self.sleeper, "bad": "command: [/no/such/program]\nstart: manual\nlog: none\n",
          "off": Self.sleeper + "start: manual\n",
        ])
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      for (words, code) in [
        (["restart", "no-such"], 4), (["start", "bad"], 1), (["stop", "off"], 0), (["start", "web"], 0),
      ] as [([String], Int32)] {
        let answer = try await run([Place.products + "/guardianctl", "--runtime", guardian.runtime] + words)
        #expect(answer.code == code, "\(words): \(answer)")
        if code != 0 { #expect(answer.output.isEmpty && !answer.error.isEmpty, "\(words): \(answer)") }
      }
      try await guardian.stop()
    }
  }

  /// Clients that others have written.
  @Suite struct `Varlink clients` {
    static let sleeper = "command: [/bin/sleep, \"1000000\"]\nstartup-window: 50ms\nlog: none\n"
    /// The package `varlink` as PyPI has it.
    static let package = Place.unpacked + "/python"
    static let python: String? = ["/usr/bin/python3", "/usr/local/bin/python3"].first { path in
      guard Files.exists(package + "/varlink"), Files.exists(path) else { return false }
      return (try? Process([path, "-c", "import varlink"], environment: ["PYTHONPATH": package]).waitBlocking()) == 0
    }

    @Test(.enabled(if: python != nil, "not shown: Python's package varlink is not there; make programs fetches it"))
    func `the one of PyPI reads the interface, lists, follows, gives orders and gets typed errors`() async throws {
      let scratch = try Scratch()
      var services = ["web": Self.sleeper]
      for number in 0..<70 { services["idle-\(number)"] = Self.sleeper + "start: manual\n" }
      let guardian = try await Guardian(scratch, services: services)
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let script = """
        import sys, varlink
        with varlink.Client.new_with_address("unix:" + sys.argv[1]) as client:
          print(sorted(client.get_interfaces()))
          with client.open("io.guardian.Supervisor") as guardian:
            print([s["phase"] for s in guardian.List(["web"])["services"]])
            try: guardian.List()
            except varlink.VarlinkError as e: print(e.error())
            print(sum(len(r["services"]) for r in guardian.List(_more=True)))
            print(guardian.Stop("web")["name"], guardian.List(["web"])["services"][0]["wanted"])
            try: guardian.Start("no-such")
            except varlink.VarlinkError as e: print(e.error(), e.parameters())
            try: guardian.Hold("web", -1)
            except varlink.VarlinkError as e: print(e.error(), e.parameters())
            print(guardian.Start("web")["name"], len(guardian.GetVersion()["version"]) > 0)
            names = []
            for reply in guardian.Events(["web"], None, None, True, _more=True):
              names += [e["name"] for e in reply["events"]]
              if "requested" in names and "started" in names: break
            print("requested" in names)
          with client.open("io.guardian.Supervisor") as guardian:
            guardian.Restart("web", _oneway=True)
            print(guardian.Summary()["state"])
        """
      let answer = try await run(
        [try #require(Self.python), "-c", script, guardian.runtime + "/control.sock"],
        environment: ["PYTHONPATH": Self.package])
      #expect(
        answer.output == """
          ['io.guardian.Supervisor', 'org.varlink.service']
          ['running']
          org.varlink.service.ExpectedMore
          71
          web down
          io.guardian.Supervisor.NoSuchService {'name': 'no-such'}
          org.varlink.service.InvalidParameter {'parameter': 'for_ms'}
          web True
          True
          durable

          """, "\(answer)")
      try await guardian.stop()
    }

    static let varlinkctl: String? = Place.program("varlinkctl")

    @Test(.enabled(if: varlinkctl != nil, "not shown: varlinkctl is not there; systemd 255 and newer has it"))
    func `systemd's own reads the interface and gives orders`() async throws {
      let scratch = try Scratch()
      let guardian = try await Guardian(scratch, services: ["web": Self.sleeper])
      try await guardian.wait(for: "web", "settles") { $0["settled"].bool == true }
      let program = try #require(Self.varlinkctl), path = guardian.runtime + "/control.sock"
      #expect(try await run([program, "info", path]).output.contains("io.guardian.Supervisor"))
      let described = try await run([program, "introspect", path, "io.guardian.Supervisor"])
      #expect(described.code == 0 && described.output.contains("method SafeMode"), "\(described)")
      let stop = try await run([program, "call", path, "io.guardian.Supervisor.Stop", #"{"name":"web"}"#])
      #expect(stop.code == 0 && stop.output.contains("web"), "\(stop)")
      let list = try await run([program, "call", "--more", path, "io.guardian.Supervisor.List", "{}"])
      #expect(list.code == 0 && list.output.contains("stopped"), "\(list)")
      let wrong = try await run([program, "call", path, "io.guardian.Supervisor.Start", #"{"name":"no-such"}"#])
      #expect(wrong.code != 0 && wrong.error.contains("NoSuchService"), "\(wrong)")
      try await guardian.stop()
    }
  }
}
