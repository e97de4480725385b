import GuardianModel
import Testing

@Suite struct `a service name` {
  @Test(arguments: ["web", "0", "a.b_c@d-e", String(repeating: "a", count: 64)])
  func `is lower case, digits and a few marks`(_ text: String) {
    #expect(ServiceName(text)?.text == text)
  }
  @Test(arguments: [
    "", ".", "..", "-x", "a/b", "Web", "a b", "a\n", "é", "a\u{301}", String(repeating: "a", count: 65),
  ])
  func `is never a path, an option, or another spelling of itself`(_ text: String) {
    #expect(ServiceName(text) == nil)
  }
}

@Suite struct `a duration in words` {
  struct Case: CustomTestStringConvertible {
    var duration: Duration, words: String
    var testDescription: String { words }
  }
  @Test(arguments: [
    Case(duration: .zero, words: "0s"), Case(duration: .milliseconds(500), words: "500ms"),
    Case(duration: .seconds(90), words: "1min30s"), Case(duration: .seconds(86400 * 14), words: "14d"),
    Case(duration: .milliseconds(3_600_001), words: "1h1ms"), Case(duration: .microseconds(20), words: "20us"),
    Case(duration: .seconds(-5), words: "-5s"),
  ])
  func `has the configuration's units, the largest first`(_ c: Case) {
    #expect(c.duration.description == c.words)
  }
  @Test func `saturates where it is longer than a clock can count`() {
    #expect(Duration.seconds(Int64.max).nanoseconds == .max)
    #expect(Duration.seconds(Int64.min).nanoseconds == .min)
    #expect(Instant(nanoseconds: .max) + .seconds(1) == .distantFuture)
    #expect(BootInstant(nanoseconds: .min) - BootInstant(nanoseconds: .max) < .zero)
  }
}

@Suite struct `a signal` {
  @Test func `has the same number by either name`() {
    #expect(Signal(name: "TERM") == .term)
    #expect(Signal(name: "SIGSEGV") == .segv)
    #expect(Signal(name: "SYS")?.number == 31)
    #expect(Signal(name: "term") == nil)
    #expect(Signal(number: 0) == nil)
    #expect(Signal(number: 65) == nil)
    #expect(Signal(number: 34)?.description == "RT34")
  }
}

@Suite struct `a diagnostic` {
  @Test func `says where, what, why, and the nearest word`() {
    let diagnostic = Diagnostic(
      file: "services/web.yaml", line: 3, column: 1, what: "unknown key 'backof'", why: "nothing has this name",
      suggestion: "backoff")
    #expect(
      diagnostic.description
        == "services/web.yaml:3:1: unknown key 'backof'; nothing has this name; did you mean 'backoff'?")
  }
}

@Suite struct `an invocation id` {
  @Test func `is always thirty-two digits`() {
    #expect(RunID(high: 0, low: 255).description == "000000000000000000000000000000ff")
    #expect(RunID(high: .max, low: .max).description == String(repeating: "f", count: 32))
  }
}

@Suite struct `a matcher of causes` {
  func end(_ status: GuardianModel.ExitStatus, _ cause: Cause, _ crashClass: CrashClass) -> End {
    End(
      run: RunID(high: 0, low: 1), status: status, cause: cause, crashClass: crashClass,
      at: WallTime(nanoseconds: 0), uptime: .zero)
  }
  @Test func `knows exit codes, signals, classes and causes apart`() {
    let crash = end(.signal(.segv, core: true), .signal, .segv)
    #expect(CauseMatcher.signal(.segv).matches(crash))
    #expect(!CauseMatcher.signal(.abrt).matches(crash))
    #expect(!CauseMatcher.exit(11).matches(crash))
    #expect(CauseMatcher.crashClass(.config).matches(end(.code(78), .exit, .config)))
    #expect(CauseMatcher.exit(78).matches(end(.code(78), .exit, .config)))
  }
  @Test func `takes a probable lack of memory for one`() {
    #expect(CauseMatcher.cause("oom").matches(end(.signal(.kill, core: false), .oom(certain: false), .oom)))
  }
}
