import GuardianConfig
import GuardianModel
import Testing

@Suite struct `what shapes a birth` {
  private func parse(_ yaml: String, _ change: (inout ConfigurationContext) -> Void = { _ in }) -> ParsedService {
    var machine = context()
    machine.resolveUser = { user, _ in
      .success(
        Identity(
          user: user ?? "", uid: user == "root" ? 0 : 1000, gid: 1000, groups: [1000], home: "/", shell: "/bin/sh"))
    }
    change(&machine)
    guard let name = ServiceName("x") else { preconditionFailure("a name that is none") }
    return Configuration.parseService(
      name: name, bytes: Array(("command: [/bin/x]\n" + yaml).utf8), file: "x.yaml", context: machine)
  }

  @Test func `capabilities have the kernel's names and numbers`() throws {
    let spec = try #require(parse("user: web\ncapabilities: [net-raw, chown, net-bind-service]\n").spec)
    #expect(spec.process.capabilities.map(\.number) == [0, 10, 13])
    #expect(Capability.names.count == 41 && Capability(name: "checkpoint-restore")?.number == 40)
  }

  @Test(
    arguments: [
      ("net-bind-servic", "net-bind-service"), ("CAP_NET_BIND_SERVICE", "net-bind-service"), ("cap_chown", "chown"),
      ("zzz", nil),
    ] as [(String, String?)])
  func `a capability that is none has a place and the nearest word`(_ written: String, _ meant: String?) {
    let parsed = parse("user: web\ncapabilities: [\(written)]\n")
    #expect(parsed.spec == nil && parsed.diagnostics.count == 1)
    #expect(parsed.diagnostics.first?.suggestion == meant)
    #expect(parsed.diagnostics.first?.line == 3 && parsed.diagnostics.first?.column == 16)
  }

  @Test(arguments: ["capabilities: [chown]\n", "user: root\ncapabilities: [chown]\n"])
  func `root needs none`(_ yaml: String) {
    let parsed = parse(yaml)
    #expect(parsed.spec == nil && parsed.diagnostics.first?.what == "'capabilities' of a service that runs as root")
  }

  @Test func `one that guardian itself has not is told, and the service is there`() {
    let parsed = parse("capabilities: [chown, net-raw]\n") {
      $0.ownUID = 1000
      $0.mayGive = { $0.description == "net-raw" }
    }
    #expect(parsed.spec != nil && parsed.diagnostics.map(\.what) == ["guardian has no capability chown"])
  }

  @Test func `sockets are in order, and one that was not passed is told with those that were`() throws {
    let spec = try #require(parse("sockets: [https, http]\n").spec)
    #expect(spec.process.sockets == ["https", "http"])
    let parsed = parse("sockets: [htp]\n") { $0.passedSockets = ["http", "metrics"] }
    #expect(parsed.spec != nil)
    #expect(
      parsed.diagnostics.map(\.description) == [
        "x.yaml:2:11: no socket 'htp' was passed to guardian; there is http, metrics; did you mean 'http'?"
      ])
    let none = parse("sockets: [http]\n") { $0.passedSockets = [] }
    #expect(none.diagnostics.first?.why.contains("FileDescriptorName=http") == true)
    #expect(parse("sockets: [http]\n") { $0.passedSockets = ["http"] }.diagnostics.isEmpty)
  }

  @Test(arguments: ["sockets: [a, a]", "sockets: [\"a:b\"]", "sockets: [\"\"]", "sockets: http", "sockets: [[a]]"])
  func `a name that is no socket's is a fault`(_ yaml: String) { #expect(parse(yaml).spec == nil) }

  @Test func `a readiness descriptor among the sockets is a fault`() {
    let parsed = parse("sockets: [a, b]\nready: {fd: 4}\n")
    #expect(parsed.spec == nil && parsed.diagnostics.first?.what == "'fd: 4' is one of the sockets")
    #expect(parse("sockets: [a, b]\nready: {fd: 5}\n").spec != nil)
  }

  @Test func `what says where the sockets are is guardian's to say`() {
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"] {
      #expect(parse("environment: {\(name): \"1\"}\n").diagnostics.first?.what == "\(name) is set by guardian itself")
    }
  }

  @Test func `before-start is a command, and gives start-timeout a meaning`() throws {
    let parsed = parse("before-start: /bin/migrate --all\nstart-timeout: 10min\n")
    #expect(parsed.spec?.process.beforeStart == ["/bin/migrate", "--all"] && parsed.diagnostics.isEmpty)
    #expect(parse("before-start: [migrate]\n").spec == nil)
    #expect(parse("before-start: []\n").spec == nil)
  }

  @Test func `a definition without any of them has the fingerprint that it had before there were any`() throws {
    var process = ProcessSpec(command: ["/bin/x"])
    let before = process.fingerprint
    #expect(before == 0xcb307794a75250a9)
    process.capabilities = [try #require(Capability(name: "chown"))]
    let one = process.fingerprint
    process.capabilities = []
    process.sockets = ["chown"]
    let two = process.fingerprint
    process.sockets = []
    process.beforeStart = ["chown"]
    #expect(Set([before, one, two, process.fingerprint]).count == 4)
  }
}
