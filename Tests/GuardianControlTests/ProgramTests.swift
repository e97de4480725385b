import GuardianControl
import GuardianModel
import Glibc
import Testing

/// A directory of its own for each test, and nothing left of it afterwards.
final class Scratch: Sendable {
  let path: String
  init() {
    var template = Array("/tmp/guardianctl-test-XXXXXX".utf8CString)
    path = mkdtemp(&template).map { String(cString: $0) } ?? ""
    precondition(!path.isEmpty, "no scratch directory")
  }
  deinit {
    guard let directory = opendir(path) else { return }
    while let entry = readdir(directory) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      unlink("\(path)/\(name)")
    }
    closedir(directory)
    rmdir(path)
  }
}

/// A guardian that says what the test has written down: a real socket, a thread for each client, the real codec.
final class FakeGuardian: Sendable {
  enum Answer { case bytes([UInt8]), silence, hangUp }
  private let listener: CInt
  private let answer: @Sendable (ControlCall) -> Answer

  init(in directory: String, _ answer: @escaping @Sendable (ControlCall) -> Answer) {
    self.answer = answer
    unlink("\(directory)/control.sock")
    listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var name = sockaddr_un()
    name.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: "\(directory)/control.sock".utf8.prefix(107)) }
    let size = socklen_t(MemoryLayout<sockaddr_un>.size)
    let bound = withUnsafePointer(to: &name) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(listener, $0, size) }
    }
    precondition(bound == 0 && listen(listener, 8) == 0, "cannot listen")
    start { $0.serve() }
  }

  /// The thread ends, and lets go of this object, when the listener has been shut down.
  func stop() { shutdown(listener, Int32(SHUT_RDWR)) }

  private func serve() {
    while true {
      let client = accept(listener, nil, nil)
      if client < 0 { break }
      start { fake in
        fake.converse(client)
        close(client)
      }
    }
    close(listener)
  }

  private final class Work: Sendable {
    let guardian: FakeGuardian
    let body: @Sendable (FakeGuardian) -> Void
    init(_ guardian: FakeGuardian, _ body: @escaping @Sendable (FakeGuardian) -> Void) {
      self.guardian = guardian
      self.body = body
    }
  }
  private func start(_ body: @escaping @Sendable (FakeGuardian) -> Void) {
    var thread = pthread_t()
    pthread_create(
      &thread, nil,
      { raw in
        if let raw {
          let work = Unmanaged<Work>.fromOpaque(raw).takeRetainedValue()
          work.body(work.guardian)
        }
        return nil
      }, Unmanaged.passRetained(Work(self, body)).toOpaque())
    pthread_detach(thread)
  }

  private func converse(_ client: CInt) {
    var connection = ControlConnection()
    var buffer = [UInt8](repeating: 0, count: 16_384)
    while true {
      let count = read(client, &buffer, buffer.count)
      if count <= 0 { return }
      buffer.withUnsafeBytes { connection.receive(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
      while let input = connection.next() {
        var output: [UInt8] = []
        switch input {
        case .reply(let bytes): output = bytes
        case .close(let bytes):
          _ = send(client, bytes, bytes.count, Int32(MSG_NOSIGNAL))
          return
        case .call(let call):
          switch answer(call) {
          case .bytes(let bytes): output = bytes
          case .silence: break
          case .hangUp: return
          }
        }
        _ = send(client, output, output.count, Int32(MSG_NOSIGNAL))
      }
    }
  }
}

/// What `plan` shows of the plan that every service of `zooGuardian` has.
let planOfZoo =
  "web, if it kept dying, from its present state, no other service in its way:\nTIME  STEP     STRIKES  WHAT\n+0s   restart  0 of 3   start\n\n"
  + "restart    █\n           ┴────────────────────────────────────────\n           0\n"
  + "           · wait  █ run  ✗ death\n"

extension String {
  /// How often `part` is in it.
  func components(of part: String) -> Int {
    let all = Array(utf8), part = Array(part.utf8)
    var count = 0
    for start in all.indices where all[start...].starts(with: part) { count += 1 }
    return count
  }
}

struct Finished {
  var status: Int32
  var output: String, errors: String
}

/// Runs guardianctl with a bare environment.
func guardianctl(
  _ arguments: [String], in scratch: Scratch, environment: [String] = [], output: String? = nil,
  descriptor: CInt? = nil,
  closed: Bool = false
) -> Finished {
  var buffer = [UInt8](repeating: 0, count: 4096)
  let length = buffer.withUnsafeMutableBytes { room in
    room.bindMemory(to: CChar.self).baseAddress.map { readlink("/proc/self/exe", $0, room.count) } ?? -1
  }
  let own = String(decoding: buffer[..<max(0, length)], as: UTF8.self)
  let program = own.split(separator: "/").dropLast().reduce("") { $0 + "/" + $1 } + "/guardianctl"

  let standard = output ?? scratch.path + "/stdout", errors = scratch.path + "/stderr"
  var actions = posix_spawn_file_actions_t()
  posix_spawn_file_actions_init(&actions)
  defer { posix_spawn_file_actions_destroy(&actions) }
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
  if closed {
    posix_spawn_file_actions_addclose(&actions, 1)
  } else if let descriptor {
    posix_spawn_file_actions_adddup2(&actions, descriptor, 1)
  } else {
    posix_spawn_file_actions_addopen(&actions, 1, standard, O_WRONLY | O_CREAT | (output == nil ? O_TRUNC : 0), 0o600)
  }
  posix_spawn_file_actions_addopen(&actions, 2, errors, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
  func list(_ words: [String]) -> [UnsafeMutablePointer<CChar>?] { words.map { strdup($0) } + [nil] }
  // Without a locale, as from cron, there is no UTF-8.
  let locale = environment.contains { $0.hasPrefix("LC_") } ? [] : ["LC_ALL=C.UTF-8"]
  let argv = list([program] + arguments), envp = list(["PATH=/nonexistent"] + locale + environment)
  defer { for word in argv + envp { free(word) } }
  var child: pid_t = 0
  let failure = posix_spawn(&child, program, &actions, nil, argv, envp)
  guard failure == 0 else {
    Issue.record("cannot run \(program): \(String(cString: strerror(failure)))")
    return Finished(status: -1, output: "", errors: "")
  }
  var status: Int32 = 0
  while waitpid(child, &status, 0) < 0, errno == EINTR {}
  func contents(_ path: String) -> String {
    guard let stream = fopen(path, "r") else { return "" }
    defer { fclose(stream) }
    var all: [UInt8] = [], piece = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = fread(&piece, 1, piece.count, stream)
      if count == 0 { return all.text }
      all += piece[..<count]
    }
  }
  let code = status & 0x7f == 0 ? (status >> 8) & 0xff : 128 + (status & 0x7f)
  return Finished(status: code, output: output == nil && !closed ? contents(standard) : "", errors: contents(errors))
}

/// A guardian with the services of `zoo`, in chunks of two.
func zooGuardian(_ scratch: Scratch) -> FakeGuardian { FakeGuardian(in: scratch.path, zooAnswer) }

@Sendable func zooAnswer(_ call: ControlCall) -> FakeGuardian.Answer {
  var bytes: [UInt8] = []
  switch call.request {
  case .summary:
    var summary = DaemonSummary()
    summary.line = "6 services: 1 settled, 1 quarantined (mailer)"
    Reply.summary(summary, into: &bytes)
  case .metrics:
    Reply.metrics([MetricSample(.turns, [], 3)], continues: true, into: &bytes)
    Reply.metrics([MetricSample(.settled, ["db"], 1)], continues: false, into: &bytes)
  case .list(let names, let brief):
    let wanted =
      names.map { names in
        zoo.filter { names.contains($0.name) || names.contains("@shop") && ["db", "web"].contains($0.name) }
      } ?? zoo
    let missing = names?.filter { name in name != "@shop" && !zoo.contains { $0.name == name } } ?? []
    for start in stride(from: 0, to: max(1, wanted.count), by: 2) {
      let end = min(start + 2, wanted.count)
      Reply.list(
        wanted[start..<end], missing: end == wanted.count ? missing : [], brief: brief, continues: end < wanted.count,
        into: &bytes)
    }
  case .start(let name, _), .restart(let name, _), .release(let name, _), .reset(let name, _),
    .reloadService(let name, _), .stop(let name, _, _), .hold(let name, _, _), .plugins(let name, _, _),
    .safeMode(let name, _, _), .repair(let name, _, _):
    switch name {
    case "nosuch": Reply.error(.noSuchService(name: name), into: &bytes)
    case "badexec": Reply.error(.failed(reason: "cannot run /bin/x: no such file"), into: &bytes)
    case "forbidden": Reply.error(.notPermitted(reason: "only root may"), into: &bytes)
    case "gone": return .hangUp
    default: Reply.done(name: name, note: name == "mailer" ? "one trial now" : "", into: &bytes)
    }
  case .reload(.dryRun):
    var change = ReloadChange()
    change.dryRun = true
    change.invalid = ["a"]
    change.unchanged = 1
    Reply.reloaded(
      services: 2, change,
      diagnostics: [Diagnostic(file: "services/a.yaml", line: 2, column: 3, what: "unknown key 'x'")], into: &bytes)
  case .reload(.restart):
    var change = ReloadChange()
    change.unchanged = 2
    change.needRestart = [.init(name: "a", keys: ["log"]), .init(name: "b", keys: ["log"])]
    change.restarts = [.init(name: "a", done: true, text: ""), .init(name: "b", done: false, text: "exit 1")]
    Reply.reloaded(services: 2, change, diagnostics: [], into: &bytes)
  case .reload(.apply):
    Reply.error(
      .configurationFault([Diagnostic(file: "services/a.yaml", line: 2, column: 3, what: "unknown key 'x'")]),
      into: &bytes)
  case .resetGuardian: Reply.done(name: "guardian", note: "guardian trusts itself already", into: &bytes)
  case .upgrade: Reply.upgraded(Upgraded(from: "0.1.0", to: "0.2.0", pid: 4711, services: 12), into: &bytes)
  case .drill(let name, _):
    func line(_ action: String, _ text: String) -> PlanEntry {
      PlanEntry(
        earliest: .milliseconds(500), latest: .milliseconds(500), action: action, step: .repair, strikes: 1,
        strikesAllowed: 2, text: text)
    }
    Reply.drill(
      name: name, entries: [line("repair", "repair fix, round 1")], failed: 0, continues: true, into: &bytes)
    Reply.drill(
      name: name, entries: [line("repair-ended", "repair fix failed: exit 3")], failed: 1, continues: false,
      into: &bytes)
  case .plan(let name, _, _):
    if name == "nosuch" {
      Reply.error(.noSuchService(name: name), into: &bytes)
    } else {
      Reply.plan(
        name: name,
        entries: [
          PlanEntry(
            earliest: .zero, latest: .zero, action: "start", step: .restart, strikes: 0, strikesAllowed: 3,
            text: "start")
        ], into: &bytes)
    }
  case .crashes(let name):
    if name == "nosuch" {
      Reply.error(.noSuchService(name: "nosuch"), into: &bytes)
    } else {
      Reply.crashes(name == "well" ? [] : [crashOfZoo], into: &bytes)
    }
  case .events(let asked):
    if asked.names == ["nosuch"] {
      Reply.error(.noSuchService(name: "nosuch"), into: &bytes)
    } else {
      // As a page of the past, then one that a follower has missed something before.
      Reply.events([eventOfZoo], continues: true, into: &bytes)
      Reply.events([EventRecord](), missed: asked.follow ? 7 : 0, continues: asked.follow, into: &bytes)
      if asked.follow { Reply.events([eventOfZoo], continues: false, into: &bytes) }
    }
  case .crash(let id):
    if id == "ffffff" {
      Reply.error(.failed(reason: "there is no report with the id ffffff"), into: &bytes)
    } else {
      Reply.crash(encode(reportOfZoo), into: &bytes)
    }
  case .version:
    var version = DaemonVersion()
    version.guarantees = [.init("process set", "session and subreaper")]
    Reply.version(version, into: &bytes)
  }
  return .bytes(bytes)
}

@Suite struct `guardianctl with a guardian` {
  let scratch = Scratch()

  private func ask(_ line: String) -> Finished {
    let server = zooGuardian(scratch)
    defer { server.stop() }
    return guardianctl(line.split(separator: " ").map(String.init) + ["--runtime", scratch.path], in: scratch)
  }

  @Test func `shows all services, and the worst of them in its exit status`() {
    let shown = ask("status")
    #expect(shown.status == 5)
    #expect(shown.errors == "")
    #expect(shown.output.hasPrefix("6 services: 1 settled, 1 quarantined (mailer)\nNAME "))
    #expect(shown.output.split(separator: "\n").count == zoo.count + 2)
  }

  @Test func `reloads the named services, and without a name the configuration`() {
    let named = ask("reload web badexec")
    #expect(named.status == 1 && named.output == "web: reloaded\n" && named.errors.contains("badexec"))
    #expect(!ask("reload").output.contains("web: reloaded"))
  }

  @Test func `prints one JSON object with all services`() {
    let shown = ask("--json")
    #expect(shown.status == 5)
    #expect(shown.errors == "")
    #expect(shown.output.hasPrefix(#"{"schema":1,"summary":{"line":"6 services"#))
    #expect(shown.output.hasSuffix("]}\n"))
    for service in zoo { #expect(shown.output.contains(#"{"name":"\#(service.name)","description""#)) }
  }

  @Test func `names a service that nobody knows, and shows the others`() {
    let shown = ask("status db nosuch")
    #expect(shown.status == 4)
    #expect(shown.errors == "guardianctl: no such service: nosuch\n")
    #expect(shown.output.hasPrefix("db\n"))
    let json = ask("status db nosuch --json")
    #expect(json.status == 4)
    #expect(json.output.contains(#""error":{"name":"no-such-service","message":"no such service: nosuch""#))
    #expect(ask("status old").status == 3)
    #expect(ask("status web").status == 2)
    #expect(ask("status api").status == 1)
    #expect(ask("status db").status == 0)
  }

  struct Order: CustomTestStringConvertible {
    var line: String, status: Int32, output: String, errors: String
    var testDescription: String { line }
  }
  // What went wrong elsewhere: exit 0 on a failed start.
  @Test(arguments: [
    Order(line: "start db", status: 0, output: "db: started\n", errors: ""),
    Order(line: "stop db", status: 0, output: "db: stopped\n", errors: ""),
    Order(line: "start mailer", status: 0, output: "mailer: one trial now\n", errors: ""),
    Order(line: "restart nosuch", status: 4, output: "", errors: "guardianctl: nosuch: no such service\n"),
    Order(
      line: "start badexec", status: 1, output: "", errors: "guardianctl: badexec: cannot run /bin/x: no such file\n"),
    Order(
      line: "stop forbidden", status: 77, output: "",
      errors: "guardianctl: forbidden: not permitted: only root may\n"),
    Order(
      line: "start badexec db nosuch", status: 4, output: "db: started\n",
      errors: "guardianctl: badexec: cannot run /bin/x: no such file\nguardianctl: nosuch: no such service\n"),
    Order(line: "release db --no-wait", status: 0, output: "db: accepted\n", errors: ""),
    Order(line: "hold db --for 1h", status: 0, output: "db: held for 1h\n", errors: ""),
    Order(
      line: "start gone", status: 6, output: "",
      errors: "guardianctl: gone: guardian closed the connection before it had answered\n"),
    Order(
      line: "stop [dw]?* nosuch", status: 4, output: "db: stopped\nweb: stopped\n",
      errors: "guardianctl: nosuch: no such service\n"),
    Order(line: "reset *x* db", status: 4, output: "db: reset\n", errors: "guardianctl: *x*: no service matches\n"),
    Order(
      line: "release @none @shop", status: 4, output: "db: released\nweb: released\n",
      errors: "guardianctl: @none: no such group\n"),
    Order(
      line: "hold --all --for 1min", status: 0,
      output: zoo.map { "\($0.name): \($0.name == "mailer" ? "one trial now" : "held for 1min")\n" }.joined(),
      errors: ""),
    Order(
      line: "safe-mode --group shop on", status: 0, output: "db: all plugins off\nweb: all plugins off\n", errors: ""),
    Order(line: "plugins w* disable social", status: 0, output: "web: done\n", errors: ""),
    Order(
      line: "repair --all drop-cache --no-wait", status: 0,
      output: zoo.map { "\($0.name): \($0.name == "mailer" ? "one trial now" : "accepted")\n" }.joined(), errors: ""),
    Order(line: "plan x* web", status: 4, output: planOfZoo, errors: "guardianctl: no service matches: x*\n"),
    Order(line: "events x*", status: 4, output: "", errors: "guardianctl: no service matches: x*\n"),
    Order(line: "status x*", status: 4, output: "", errors: "guardianctl: no service matches: x*\n"),
    Order(line: "plugins x*", status: 4, output: "", errors: "guardianctl: no service matches: x*\n"),
    Order(line: "plugins d*", status: 0, output: "db has no plugins\n", errors: ""),
    Order(
      line: "reload", status: 1, output: "",
      errors: "guardianctl: services/a.yaml:2:3: unknown key 'x'\n"
        + "guardianctl: the configuration has a fault; everything is as it was\n"),
    Order(
      line: "reload --dry-run", status: 1, output: "a reload would find 2 services, 1 not valid (a), 1 unchanged\n",
      errors: "guardianctl: services/a.yaml:2:3: unknown key 'x'\n"
        + "guardianctl: the configuration has a fault; a service with a fault keeps its last good definition, if it had one\n"
    ),
    Order(
      line: "reload --restart", status: 1,
      output: "configuration read again: 2 services, nothing changed\na: restarted\n",
      errors: "guardianctl: b: exit 1\n"),
    Order(
      line: "upgrade", status: 0,
      output: "upgraded: guardian 0.1.0 → 0.2.0, pid 4711 kept, 12 services untouched\n", errors: ""),
    Order(line: "plan nosuch", status: 4, output: "", errors: "guardianctl: nosuch: no such service\n"),
  ])
  func `tells the truth about an order`(_ c: Order) {
    let done = ask(c.line)
    #expect(done.status == c.status)
    // Side by side: each result is told as it comes.
    #expect(done.output.split(separator: "\n").sorted() == c.output.split(separator: "\n").sorted())
    #expect(done.errors.split(separator: "\n").sorted() == c.errors.split(separator: "\n").sorted())
  }

  @Test func `prints the results of orders as one JSON object`() {
    let done = ask("start badexec db --json")
    #expect(done.status == 1)
    #expect(
      done.output == #"{"schema":1,"results":[{"name":"badexec","done":false,"error":{"name":"failed","#
        + #""message":"cannot run /bin/x: no such file"}},{"name":"db","done":true,"note":""}],"#
        + #""error":{"name":"failed","message":"badexec: cannot run /bin/x: no such file"}}"# + "\n")
  }

  @Test func `loses no result when guardian goes away in between, and prints one object`() {
    let done = ask("start db gone --json")
    #expect(done.status == 6)
    #expect(done.output.split(separator: "\n").count == 1)
    #expect(done.output.contains(#""name":"unreachable""#))
    #expect(done.output.contains(#"{"name":"db","done":true,"note":""}"#))
  }

  @Test func `B10: all of ten thousand services, of which some fail, hide no result`() {
    let names = (0..<10_000).map { "s\($0)" }.sorted()
    let many = FakeGuardian(in: scratch.path) { call in
      var bytes: [UInt8] = []
      switch call.request {
      case .list:
        for start in stride(from: 0, to: names.count, by: 64) {
          let end = min(start + 64, names.count)
          Reply.list(
            names[start..<end].map { settledService($0) }, missing: [], brief: true, continues: end < names.count,
            into: &bytes)
        }
      case .stop(let name, _, _) where name.hasSuffix("77"):
        Reply.error(.failed(reason: "2 processes are still there"), into: &bytes)
      case .stop(let name, _, _): Reply.done(name: name, note: "", into: &bytes)
      default: return .hangUp
      }
      return .bytes(bytes)
    }
    defer { many.stop() }
    let done = guardianctl(["stop", "s*", "--runtime", scratch.path], in: scratch)
    #expect(done.status == 1)
    let failing = names.filter { $0.hasSuffix("77") }
    #expect(failing.count == 100)
    #expect(
      done.errors.split(separator: "\n").sorted()
        == failing.map { "guardianctl: \($0): 2 processes are still there" }.sorted())
    #expect(
      done.output.split(separator: "\n").sorted()
        == names.filter { !$0.hasSuffix("77") }.map { "\($0): stopped" }.sorted())
    let json = guardianctl(["stop", "--all", "--json", "--runtime", scratch.path], in: scratch)
    #expect(json.status == 1 && json.output.split(separator: "\n").count == 1)
    #expect(json.output.components(of: #""done":true"#) == 9_900 && json.output.components(of: #""done":false"#) == 100)
    #expect(json.output.hasSuffix(#""error":{"name":"failed","message":"s1077: 2 processes are still there"}}"# + "\n"))
  }

  @Test func `shows plan and versions`() {
    #expect(ask("plan web").output.contains("\n+0s   restart  0 of 3   start\n"))
    #expect(ask("plan web --json").output.hasPrefix(#"{"schema":1,"plans":[{"name":"web","entries":[{"#))
    #expect(ask("version").output.contains("process set  session and subreaper"))
  }

  @Test func `told that nothing is permitted says that, though guardian hangs up afterwards`() {
    let stranger = FakeGuardian(in: scratch.path) { call in
      // The first call is refused; what was sent along with it is not looked at any more.
      if case .list(names: nil, brief: _) = call.request { return .hangUp }
      if case .plan("second", _, _) = call.request { return .hangUp }
      return .bytes(Reply.error(.notPermitted(reason: "only root may")))
    }
    defer { stranger.stop() }
    for verb in [["status"], ["status", "web"], ["plan", "first", "second"], ["version"], ["reload"]] {
      let told = guardianctl(verb + ["--runtime", scratch.path], in: scratch)
      #expect(told.status == 77, "\(verb)")
      #expect(told.errors == "guardianctl: not permitted: only root may\n")
      let json = guardianctl(verb + ["--json", "--runtime", scratch.path], in: scratch)
      #expect(json.status == 77, "\(verb)")
      #expect(json.output.contains(#""error":{"name":"not-permitted""#))
    }
  }

  @Test func `B11, CASES 58: whose reader has gone ends quietly, and not as a success`() {
    let server = zooGuardian(scratch)
    defer { server.stop() }
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0 else {
      Issue.record("no pipe")
      return
    }
    close(ends[0])
    for arguments in [["--json"], ["status"], ["help"]] {
      let ended = guardianctl(
        arguments + ["--runtime", scratch.path], in: scratch, output: "", descriptor: ends[1])
      // By the signal, or, where somebody has ignored it for us, by the failed write.
      #expect(ended.status == 128 + SIGPIPE || ended.status == (arguments == ["help"] ? 1 : 5), "\(ended)")
      #expect(ended.errors == "")
    }
    close(ends[1])
  }

  @Test func `whose answer cannot be written fails`() {
    let server = zooGuardian(scratch)
    defer { server.stop() }
    let full = guardianctl(["status", "db", "--runtime", scratch.path], in: scratch, output: "/dev/full")
    #expect(full.status == 1)
    #expect(full.errors.hasPrefix("guardianctl: cannot write the answer: "))
  }

  @Test func `finds the user's own before the system's`() {
    let server = zooGuardian(scratch)
    defer { server.stop() }
    // The socket lies in a directory called guardian below XDG_RUNTIME_DIR.
    let runtime = Scratch()
    symlink(scratch.path, runtime.path + "/guardian")
    let shown = guardianctl(["status", "db"], in: scratch, environment: ["XDG_RUNTIME_DIR=\(runtime.path)"])
    #expect(shown.status == 0)
    #expect(guardianctl(["--user"], in: scratch, environment: ["XDG_RUNTIME_DIR=\(runtime.path)"]).status == 5)
  }

  @Test func `reaches a socket behind a path of any length`() {
    let server = zooGuardian(scratch)
    defer { server.stop() }
    let long = scratch.path + String(repeating: "/.", count: 150)
    #expect(guardianctl(["status", "db", "--runtime", long], in: scratch).status == 0)
  }
}

@Suite struct `guardianctl without a guardian` {
  let scratch = Scratch()

  // What went wrong elsewhere: chatter in front of the JSON.
  @Test(arguments: [
    ["status"], ["start", "a"], ["stop", "a"], ["reload"], ["version"], ["hold", "a", "--for", "1s"],
  ])
  func `says so on standard error, and in JSON prints one object`(verb: [String]) {
    let plain = guardianctl(verb + ["--runtime", scratch.path], in: scratch)
    #expect(plain.status == 6)
    #expect(
      plain.errors
        == "guardianctl: cannot reach guardian: there is no \(scratch.path)/control.sock; is guardian running?\n"
    )
    let json = guardianctl(verb + ["--json", "--runtime", scratch.path], in: scratch)
    #expect(json.status == 6)
    #expect(json.output.hasPrefix(#"{"schema":1,"#))
    #expect(json.output.hasSuffix("}}\n"))
    #expect(json.output.contains(#""error":{"name":"unreachable","message":"cannot reach guardian"#))
  }

  @Test func `tells a socket without a listener from a missing one`() {
    FakeGuardian(in: scratch.path) { _ in .silence }.stop()
    let deadline = time(nil) + 5
    var last = Finished(status: 0, output: "", errors: "")
    while time(nil) < deadline {
      last = guardianctl(["--runtime", scratch.path], in: scratch)
      if last.errors.contains("nobody listens") { break }
    }
    #expect(last.status == 6)
    #expect(last.errors.contains("nobody listens at \(scratch.path)/control.sock"))
  }

  @Test func `plans and checks all the same, by the guardian program beside it`() {
    let services = scratch.path + "/services"
    mkdir(services, 0o700)
    defer {
      unlink(services + "/doomed.yaml")
      rmdir(services)
    }
    func write(_ text: String) {
      guard let stream = fopen(services + "/doomed.yaml", "w") else { return }
      fputs(text, stream)
      fclose(stream)
    }
    write("command: [/bin/false]\n")
    let plan = guardianctl(["plan", "doomed", "--config", scratch.path], in: scratch)
    #expect(plan.status == 0, "\(plan)")
    #expect(plan.output.hasPrefix("doomed, if it kept dying, from zero, no other service in its way:\nTIME "))
    #expect(plan.output.contains("strike 7 of 7"))
    let json = guardianctl(["plan", "doomed", "--config", scratch.path, "--json"], in: scratch)
    #expect(json.output.hasPrefix(#"{"schema":1,"plans":[{"name":"doomed","entries":["#))
    let unknown = guardianctl(["plan", "nobody", "--config", scratch.path, "--json"], in: scratch)
    #expect(unknown.status == 4)
    #expect(unknown.output.hasPrefix(#"{"schema":1,"plans":[],"error":{"name":"no-such-service""#))
    #expect(guardianctl(["check", "--config", scratch.path], in: scratch).status == 0)

    write("command: [/bin/false]\nbackof: 1s\n")
    let check = guardianctl(["check", "--config", scratch.path, "--json"], in: scratch)
    #expect(check.status == 78)
    #expect(check.output.hasPrefix(#"{"schema":1,"#))
    #expect(check.output.contains(#""suggestion":"backoff""#))
    #expect(guardianctl(["plan", "doomed", "--config", scratch.path], in: scratch).status == 1)
  }

  @Test func `gives a wrong command line 64, and JSON where that was asked for`() {
    let plain = guardianctl(["stauts"], in: scratch)
    #expect(plain.status == 64)
    #expect(plain.output == "")
    #expect(plain.errors == "guardianctl: unknown verb 'stauts'; did you mean 'status'?\n")
    let json = guardianctl(["stauts", "--json"], in: scratch)
    #expect(json.status == 64)
    #expect(json.output.hasPrefix(#"{"schema":1,"error":{"name":"usage","#))
  }

  @Test func `shows help and its version`() {
    #expect(guardianctl(["--help"], in: scratch).output == helpText(width: nil))
    for width in [40, 80, 200] {
      let narrow = guardianctl(["help"], in: scratch, environment: ["COLUMNS=\(width)"]).output
      #expect(narrow == helpText(width: width) && narrow.split(separator: "\n").allSatisfy { $0.count <= width })
    }
    #expect(guardianctl(["help"], in: scratch).status == 0)
    #expect(guardianctl(["--version"], in: scratch).output == "guardianctl \(guardianVersion)\n")
  }
}
