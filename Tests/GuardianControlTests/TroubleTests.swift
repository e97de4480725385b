import GuardianControl
import GuardianModel
import Glibc
import Testing

/// What guardianctl makes of a guardian that hangs, or has no room for one more.
@Suite struct `a guardian in trouble` {
  let scratch = Scratch()

  private func ask(
    _ line: String, json: Bool = false, of answer: @escaping @Sendable (ControlCall) -> FakeGuardian.Answer
  ) -> Finished {
    let server = FakeGuardian(in: scratch.path, answer)
    defer { server.stop() }
    let words = line.split(separator: " ").map(String.init)
    return guardianctl(words + ["--runtime", scratch.path] + (json ? ["--json"] : []), in: scratch)
  }

  @Test func `that hangs keeps nobody longer than the time that wait was given`() {
    let asked = ask("wait db --timeout 1s") { _ in .silence }
    #expect(asked.status == 6 && asked.errors.contains("has not answered for 1 s"), "\(asked)")
    // After the first look it is the time-out itself.
    let later = ask("wait web --timeout 1s") { call in
      if case .events = call.request { .silence } else { zooAnswer(call) }
    }
    #expect(later.status != 0 && later.errors.split(separator: "\n").count == 1, "\(later)")
  }

  @Test(arguments: ["start db --no-wait", "reset db", "hold db --for 0s"])
  func `that hangs is told of by whoever wants no more than its word`(_ line: String) {
    let asked = ask(line) { _ in .silence }
    #expect(asked.status == 6 && asked.errors.contains("has not answered for 10 s"), "\(asked)")
  }

  private static let full = ControlError.busy(reason: "1024 clients follow the events already")

  @Test func `that has no room for a follower still tells wait what is true already`() {
    @Sendable func busy(_ call: ControlCall) -> FakeGuardian.Answer {
      if case .events = call.request { .bytes(Reply.error(Self.full)) } else { zooAnswer(call) }
    }
    let settled = ask("wait db", of: busy)
    #expect(settled.status == 0 && settled.output == "db: settled\n" && settled.errors == "", "\(settled)")
    let waits = ask("wait db --for=stopped", of: busy)
    #expect(waits.status != 0 && waits.errors.contains("1024 clients"), "\(waits)")
  }

  @Test func `of what is not there wait tells at once, and of the others how they are`() {
    let text = ask("wait db nosuch", of: zooAnswer)
    #expect(text.status == 4 && text.output == "db: settled\n", "\(text)")
    #expect(text.errors == "guardianctl: nosuch: no such service\n", "\(text)")
    let object = ask("wait db nosuch", json: true, of: zooAnswer)
    #expect(object.status == 4, "\(object)")
    for part in [
      #"{"name":"db","done":true,"phase":"running","note":"settled"}"#,
      #"{"name":"nosuch","done":false,"phase":null,"note":"no such service: nosuch"}"#,
    ] { #expect(object.output.contains(part), "\(part): \(object)") }
    // What it would have had to wait for is told as that.
    let pending = ask("wait db nosuch --for=stopped", of: zooAnswer)
    #expect(pending.status == 4 && pending.errors.contains("db: not stopped, and not waited for"), "\(pending)")
    let pattern = ask("wait zz*", json: true, of: zooAnswer)
    #expect(pattern.output.contains("no service matches: zz*"), "\(pattern)")
  }

  @Test func `leaves the textfile with its own exit status, and never replaces what is no file`() {
    let file = scratch.path + "/x.prom"
    let alone = guardianctl(["metrics", "--textfile", file, "--runtime", scratch.path + "/none"], in: scratch)
    #expect(alone.status == 6 && alone.errors.contains("cannot reach guardian"), "\(alone)")
    let refused = ask("metrics --textfile \(file)") { _ in .bytes(Reply.error(.notPermitted(reason: "you need view"))) }
    #expect(refused.status == 77 && refused.errors.contains("you need view"), "\(refused)")
    let fifo = scratch.path + "/fifo", link = scratch.path + "/link"
    mkfifo(fifo, 0o600)
    symlink("/nonexistent", link)
    for path in [fifo, link] {
      var before = stat(), after = stat()
      lstat(path, &before)
      let written = ask("metrics --textfile \(path)", of: zooAnswer)
      lstat(path, &after)
      #expect(written.status == 1 && written.errors.contains("no regular file"), "\(written)")
      #expect(before.st_ino == after.st_ino && before.st_mode == after.st_mode)
    }
    #expect(ask("metrics --textfile \(file)", of: zooAnswer).status == 0)
    #expect(ask("metrics --textfile \(file)", of: zooAnswer).status == 0)
    unlink(fifo)
    unlink(link)
    unlink(file)
  }

  @Test func `a drill with a repair that fails says so in one sentence, and in its object`() {
    let text = ask("drill db --with-repairs", of: zooAnswer)
    #expect(text.status == 1 && text.errors == "guardianctl: db: 1 repair failed\n", "\(text)")
    let object = ask("drill db --with-repairs", json: true, of: zooAnswer)
    #expect(object.output.contains(#""error":{"name":"failed","message":"db: 1 repair failed"}"#), "\(object)")
  }
}
