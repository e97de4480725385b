import Glibc
import GuardianModel
import Testing

@testable import GuardianChecks

private func http(_ server: Server, _ change: (inout HTTPProbe) -> Void = { _ in }) -> ProbeOrder.Probe {
  var probe = HTTPProbe(url: server.path == nil ? server.url : "http://localhost/health")
  probe.unix = server.path
  change(&probe)
  return .http(probe)
}
private let fine = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nall is ok"
private let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"

@Suite(.serialized) struct `a check of kind http` {
  struct Case: CustomTestStringConvertible, Sendable {
    var name: String, manner: Server.Manner, statuses: [Int] = [], body: String? = nil, result: ProbeResult
    var testDescription: String { name }
  }
  @Test(arguments: [
    Case(name: "a good status", manner: .says(fine), result: .passed("status 200")),
    Case(name: "a bad status", manner: .says(busy), result: .failed("status 503")),
    Case(name: "a status that is asked for", manner: .says(busy), statuses: [200, 503], result: .passed("status 503")),
    Case(name: "another than is asked for", manner: .says(fine), statuses: [204], result: .failed("status 200")),
    Case(name: "the body", manner: .says(fine), body: "is ok", result: .passed("status 200, body as wanted")),
    Case(
      name: "another body", manner: .says(fine), body: "is well",
      result: .failed("status 200, but the body has no 'is well'")),
    Case(
      name: "a redirect, which is not followed",
      manner: .says("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"), result: .failed("status 302")),
    Case(
      name: "a body without end", manner: .endless("HTTP/1.1 200 OK\r\n\r\n", String(repeating: "x", count: 4096)),
      result: .passed("status 200")),
    Case(
      name: "a body without end and without what is asked for",
      manner: .endless("HTTP/1.1 200 OK\r\n\r\n", String(repeating: "x", count: 4096)), body: "y",
      result: .failed("status 200, but the body has no 'y'")),
    Case(name: "silence", manner: .silent, result: .failed("timed out after 700ms")),
    Case(
      name: "a head that never ends", manner: .drips("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
      result: .failed("timed out after 700ms")),
  ])
  func `tells`(_ c: Case) throws {
    let server = try Server(c.manner)
    defer { server.stop() }
    let probe = http(server) { ($0.statuses, $0.body) = (c.statuses, c.body) }
    let result = try Companion().probe(probe, timeout: .milliseconds(700))
    #expect(result == c.result)
  }

  @Test(arguments: [
    "", "garbage\n", "HTTP/1.1 \r\n\r\n", "\0\0\0\0", "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nx",
  ])
  func `fails for what is no answer of HTTP, and says why`(_ text: String) throws {
    let server = try Server(.says(text))
    defer { server.stop() }
    guard case .failed(let why) = try Companion().probe(http(server) { $0.body = "ok" }, timeout: .seconds(2)) else {
      Issue.record("it passed")
      return
    }
    #expect(!why.isEmpty && why.utf8.count <= 256)
  }

  @Test func `fails where nobody listens`() throws {
    let server = try Server(.says(fine))
    server.stop()
    let companion = try Companion()
    var last: ProbeResult?
    try eventually("it has stopped: \(String(describing: last))") {
      last = try? companion.probe(http(server))
      return last == .failed("cannot connect: nobody listens there")
    }
  }

  @Test func `goes by a socket of the file system too`() throws {
    let path = "/tmp/guardian-check-\(getpid()).sock"
    unlink(path)
    let server = try Server(.says(fine), path: path)
    defer {
      server.stop()
      unlink(path)
    }
    #expect(try Companion().probe(http(server)) == .passed("status 200"))
    #expect(try Companion().probe(.tcp(.unix(path))) == .passed("connected"))
  }
}

@Suite(.serialized) struct `a check of kind tcp` {
  @Test func `passes when the connection is accepted, and sends nothing`() throws {
    let server = try Server(.silent)
    defer { server.stop() }
    let companion = try Companion()
    #expect(try companion.probe(.tcp(.host("127.0.0.1", port: server.port))) == .passed("connected"))
    #expect(try companion.probe(.tcp(.host("localhost", port: server.port))) == .passed("connected"))
  }
  @Test func `fails where nobody listens`() throws {
    guard case .failed = try Companion().probe(.tcp(.host("127.0.0.1", port: 1))) else {
      Issue.record("it passed")
      return
    }
    guard case .failed = try Companion().probe(.tcp(.unix("/nowhere/at/all"))) else {
      Issue.record("it passed")
      return
    }
  }
}

@Suite(.serialized) struct `a check of kind exec` {
  struct Case: CustomTestStringConvertible, Sendable {
    var script: String, result: ProbeResult
    var testDescription: String { script }
  }
  @Test(arguments: [
    Case(script: "exit 0", result: .passed("exit 0")),
    Case(script: "echo all is well; echo more", result: .passed("all is well")),
    Case(script: "exit 1", result: .failed("exit 1")),
    Case(script: "echo no rows >&2; exit 3", result: .failed("exit 3: no rows")),
    Case(script: "kill -SEGV $$", result: .failed("SIGSEGV")),
    Case(script: "printf 'a\\033[31mb\\tc'", result: .passed("a?[31mb?c")),
    Case(script: "head -c 3000000 /dev/zero | tr '\\0' x", result: .passed(String(repeating: "x", count: 200))),
    Case(script: "exec sleep 100", result: .failed("timed out after 1s")),
    Case(script: "trap '' TERM; while :; do sleep 0.1; done", result: .failed("timed out after 1s")),
  ])
  func `tells`(_ c: Case) throws {
    #expect(try Companion().probe(Companion.shell(c.script), timeout: .seconds(1)) == c.result)
  }

  @Test func `that cannot be started is our own trouble`() throws {
    let missing = ExecProbe(run: RunID(high: 1, low: 1), command: ["/nowhere/check"])
    guard case .notMade(let why) = try Companion().probe(.exec(missing)) else {
      Issue.record("it was made")
      return
    }
    #expect(why.contains("/nowhere/check"))
  }

  @Test func `leaves no process behind, whether it ends, hangs or is called off`() throws {
    let word = "71\(getpid())"
    let companion = try Companion()
    let children = "sleep \(word) & (setsid sleep \(word) &) ; "
    #expect(try companion.probe(Companion.shell(children + "exit 0")) == .passed("exit 0"))
    try eventually("none is left after its end") { processes(with: word) == 0 }
    let late = try companion.probe(Companion.shell(children + "sleep \(word)"), timeout: .milliseconds(500))
    #expect(late == .failed("timed out after 500ms"))
    try eventually("none is left after its time-out") { processes(with: word) == 0 }
    let number = companion.order(Companion.shell(children + "sleep \(word)"))
    try eventually("it runs") { processes(with: word) >= 3 }
    companion.cancel(number)
    try eventually("none is left after it was called off") { processes(with: word) == 0 }
    // And with guardian's end.
    companion.order(Companion.shell(children + "sleep \(word)"))
    try eventually("it runs") { processes(with: word) >= 3 }
    companion.hangUp()
    try eventually("none is left after guardian's end") { processes(with: word) == 0 }
  }

  @Test func `runs once at a time`() throws {
    let companion = try Companion()
    let first = companion.order(Companion.shell("sleep 1"), key: "web/c")
    let second = companion.order(Companion.shell("exit 0"), key: "web/c")
    #expect(try companion.answer(to: second) == .failed("the look before this one still hangs"))
    #expect(try companion.answer(to: first) == .passed("exit 0"))
    #expect(try companion.answer(to: companion.order(Companion.shell("exit 0"), key: "web/c")) == .passed("exit 0"))
  }

  @Test(.enabled(if: geteuid() == 0, "not shown: another user needs root"))
  func `runs as the user it is to run as`() throws {
    var exec = ExecProbe(run: RunID(high: 9, low: 1), command: ["/usr/bin/id", "-u"])
    exec.identity = Identity(user: "nobody", uid: 65_534, gid: 65_534, groups: [65_534], home: "/", shell: "/bin/false")
    #expect(try Companion().probe(.exec(exec)) == .passed("65534"))
  }

  @Test func `of which many hang delays no other`() throws {
    let companion = try Companion()
    for _ in 0..<40 { companion.order(Companion.shell("exec sleep 30"), timeout: .seconds(30)) }
    #expect(try companion.probe(Companion.shell("exit 0"), timeout: .seconds(15)) == .passed("exit 0"))
  }
}

@Suite(.serialized) struct `a check of kind file` {
  @Test func `tells the age of the file`() throws {
    let path = "/tmp/guardian-check-\(getpid()).beat"
    let file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)
    defer {
      close(file)
      unlink(path)
    }
    let companion = try Companion()
    guard case .passed = try companion.probe(.file(FileProbe(path: path, within: .minute))) else {
      Issue.record("a file of this moment is too old")
      return
    }
    var times = [timespec(tv_sec: time(nil) - 600, tv_nsec: 0), timespec(tv_sec: time(nil) - 600, tv_nsec: 0)]
    futimens(file, &times)
    let other = try Companion()
    guard case .failed(let why) = try other.probe(.file(FileProbe(path: path, within: .minute))) else {
      Issue.record("a file of ten minutes ago is fresh")
      return
    }
    #expect(why.hasPrefix("not written for 10min") && why.hasSuffix("allowed is 1min"))
    guard case .failed = try other.probe(.file(FileProbe(path: path + "x", within: .minute))) else {
      Issue.record("a file that is not there is fresh")
      return
    }
  }

  private func now(_ seconds: Int64, wall: Int64) -> FileMemory.Now {
    FileMemory.Now(
      monotonic: Instant(nanoseconds: seconds * 1_000_000_000), wall: WallTime(nanoseconds: wall * 1_000_000_000))
  }
  private func at(_ wall: Int64) -> WallTime { WallTime(nanoseconds: wall * 1_000_000_000) }

  @Test func `F a clock set forward makes no watched file old`() {
    var memory = FileMemory(written: at(1000), now(0, wall: 1001))
    #expect(memory.age(written: at(1010), now(10, wall: 1010)) == .zero)
    #expect(memory.age(written: at(1010), now(15, wall: 9999)) == .seconds(5))
    #expect(memory.age(written: at(9999), now(16, wall: 10_000)) == .seconds(1))
  }
  @Test func `F a clock set back makes no watched file young`() {
    var memory = FileMemory(written: at(1000), now(0, wall: 1001))
    #expect(memory.age(written: at(1000), now(600, wall: 100)) == .seconds(601))
  }
  @Test func `a file from the future is as old as it has been watched`() {
    var memory = FileMemory(written: at(5000), now(0, wall: 1000))
    #expect(memory.age(written: at(5000), now(30, wall: 1030)) == .seconds(30))
  }
}

@Suite(.serialized) struct `guardian-check` {
  @Test func `outlives orders that are none`() throws {
    let companion = try Companion()
    for length in [1, 7, 8, 9, 16, 100, 5000] {
      companion.send([UInt8](repeating: 0xff, count: length))
      companion.send([UInt8](repeating: 4, count: length))
    }
    #expect(try companion.probe(Companion.shell("exit 0")) == .passed("exit 0"))
  }

  @Test func `ends with guardian`() throws {
    let companion = try Companion()
    #expect(try companion.probe(Companion.shell("exit 0")) == .passed("exit 0"))
    companion.hangUp()
    #expect(try companion.waitForEnd() == 0)
  }

  @Test func `shows one printable line of what was said`() throws {
    #expect(oneLine("a\nb".utf8) == "a")
    #expect(oneLine([0xff, 0xfe, 0x41]) == "\u{fffd}\u{fffd}A")
  }
}
