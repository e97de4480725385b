import GuardianControl
import GuardianModel
import Testing

private let run = RunID(high: 0x1122_3344_5566_7788, low: 0x99aa_bbcc_ddee_ff00)

let crashOfZoo = CrashSummary(
  id: run, service: "web", at: WallTime(nanoseconds: 1_790_000_000_000_000_000), crashClass: "null", cause: "signal",
  text: "SIGSEGV (core dumped)", signature: Signature(value: 0xabc, strong: true), count: 7,
  first: WallTime(nanoseconds: 1_780_000_000_000_000_000), last: WallTime(nanoseconds: 1_790_000_000_000_000_000))

let reportOfZoo: CrashReport = {
  guard let name = ServiceName("web") else { preconditionFailure("a name that is none") }
  var end = End(
    run: run, status: .signal(.segv, core: true), cause: .signal, crashClass: .null,
    at: WallTime(nanoseconds: 1_790_000_000_000_000_000), uptime: .milliseconds(1_500))
  end.signature = Signature(value: 0xabc, strong: true)
  var report = CrashReport(
    service: name, end: end, kind: .ordinary, wasReady: true, settled: false, disabledPlugins: ["social"],
    step: .restart)
  report.stepAfter = .repair
  report.strikes = 1
  report.strikesAllowed = 2
  report.reason = "SIGSEGV after 1s500ms"
  report.output = LastOutput(lines: ["first \u{1b}[31mred", "last"], truncated: true)
  report.backtrace.source = "swift-backtrace"
  report.backtrace.frames = [
    StackFrame(module: "web", function: "pay(_:)", offset: 0x10, place: "pay.swift:7"), StackFrame(module: "web"),
  ]
  report.backtrace.access = BadAccess(address: 8)
  report.changes = [ChangeHint(what: "/etc/web/config.json changed", at: end.at, score: 300)]
  report.leftovers = ["pid 12 (helper)"]
  report.environment = ["PORT"]
  return report
}()

@Suite struct `a crash report` {
  @Test func `is shown with all that it knows, and nothing in it reaches a terminal raw`() throws {
    let text = try #require(renderCrash(encode(reportOfZoo), style: Style())).text
    for part in [
      "web: SIGSEGV (core dumped)", "11223344556677889", "null", "restart → repair, strike 1 of 2", "pay(_:)",
      "pay.swift:7", "0x8", "/etc/web/config.json changed", "pid 12 (helper)", "PORT", "last", "social",
      "0000000000000abc", "1.5s",
    ] {
      #expect(text.contains(part), "\(part) is missing in \(text)")
    }
    #expect(!text.utf8.contains(0x1b))
  }

  @Test func `is cut where something in it is too long`() throws {
    var report = reportOfZoo
    report.reason = String(repeating: "x", count: 1 << 20)
    report.leftovers = Array(repeating: String(repeating: "y", count: 10_000), count: 10_000)
    report.environment = report.leftovers
    report.backtrace.frames = Array(repeating: StackFrame(module: "m"), count: 100_000)
    report.backtrace.says = report.reason
    #expect(encode(report).count < 128 << 10)
  }

  @Test func `is listed within any width`() {
    for width in [20, 40, 80] {
      let lines = renderCrashes([crashOfZoo], now: crashOfZoo.at, style: Style(width: width)).text.split(
        separator: "\n")
      #expect(lines.count == 2)
      #expect(lines[1].hasPrefix("11223344"))
    }
    #expect(renderCrashes([], now: crashOfZoo.at, style: Style()).text == "no crashes on record\n")
  }

  @Test(arguments: ["", "12345", "1234567g", String(repeating: "a", count: 33), "../../x"])
  func `is not asked for by what cannot be an id`(_ id: String) { #expect(!isCrashID(id)) }
}

@Suite struct `a backtrace by swift-backtrace` {
  private func parse(_ text: String) -> CrashReport.Backtrace? {
    Array(text.utf8).withUnsafeBufferPointer(parseSwiftBacktrace)
  }
  private let recorded = """
    {"kind": "crashReport", "description": "Illegal instruction", "faultAddress": "0x0000564b68b4e8ff",
     "threads": [ {"name": "other", "frames": []}, {"name": "t", "crashed": true,
       "registers": {"rsp": "0x00007ffc27255bf0"}, "frames": [
      {"kind": "programCounter", "address": "0x564b68b4e8ff", "symbol": "$ss17_assertionFailure", "offset": 623,
       "description": "_assertionFailure(_:_:file:line:flags:) + 623", "image": "t"},
      {"kind": "returnAddress", "address": "0x564b68b259c0", "symbol": "$s1t5inner", "offset": 47,
       "description": "inner(_:_:) + 47", "image": "t",
       "sourceLocation": {"file": "/src/t.swift", "line": 1, "column": 59}},
      {"kind": "truncated"} ]} ],
     "images": [ {"name": "t", "buildId": "0814", "path": "/t", "baseAddress": "0x564b68ac5000"} ]}
    """

  @Test func `has the frames of the thread that crashed, relative to their modules`() throws {
    let backtrace = try #require(parse(recorded))
    #expect(
      backtrace.says == "Illegal instruction" && backtrace.source == "swift-backtrace" && backtrace.missing == nil)
    #expect(backtrace.frames.map(\.function) == ["_assertionFailure(_:_:file:line:flags:)", "inner(_:_:)"])
    #expect(backtrace.frames[1].offset == 0x564b68b259c0 - 0x564b68ac5000)
    #expect(backtrace.frames[1].place == "/src/t.swift:1" && backtrace.frames[1].buildID == "0814")
    #expect(backtrace.access == BadAccess(address: 0x564b68b4e8ff, stackPointer: 0x7ffc27255bf0))
  }

  @Test(arguments: ["", "{", "[]", "{}", #"{"kind":"crashReport"}"#, #"{"kind":"crashReport","threads":7}"#, "\u{0}"])
  func `is none where it is something else`(_ text: String) { #expect(parse(text) == nil) }

  @Test func `is none for every truncation of one`() {
    let bytes = Array(recorded.utf8)
    for length in 0..<bytes.count {
      #expect(bytes[..<length].withUnsafeBufferPointer(parseSwiftBacktrace) == nil)
    }
  }
}

@Suite struct `an entry of systemd-coredump` {
  private func entry(_ pid: String = "4711", _ boot: String = "b00t", at: String = "1790000000000000") -> [UInt8] {
    Array(
      #"""
      {"MESSAGE_ID":"fc2e22bc6ee647b6b90729ab34a250b1","COREDUMP_PID":"\#(pid)","_BOOT_ID":"\#(boot)",
       "COREDUMP_TIMESTAMP":"\#(at)","COREDUMP_SIGNAL":"11",
       "MESSAGE":"Process 4711 (shop) of user 1000 dumped core.\n\nModule libc.so.6 from deb glibc-2.36\nStack trace of thread 4711:\n#0  0x00005612deadbeef n/a (/usr/bin/shop + 0x1139)\n#1  0x00005612deadbf00 pay (shop + 0x1200)\n#2  0x00007f0000000001 __libc_start_call_main (libc.so.6 + 0x2724a)\nStack trace of thread 4712:\n#0  0x1 other (x + 0x1)\nELF object binary architecture: AMD x86-64"}
      """#.utf8)
  }
  private func parse(_ bytes: [UInt8], since: Int64 = 1_789_999_999_000_000_000) -> CrashReport.Backtrace? {
    bytes.withUnsafeBufferPointer {
      parseCoredumpEntry($0, pid: 4711, bootID: "b00t", since: WallTime(nanoseconds: since))
    }
  }

  @Test func `gives the frames of the thread that crashed`() throws {
    let backtrace = try #require(parse(entry()))
    #expect(backtrace.source == "systemd-coredump" && backtrace.missing == nil)
    #expect(backtrace.frames.map(\.function) == ["", "pay", "__libc_start_call_main"])
    #expect(backtrace.frames.map(\.module) == ["shop", "shop", "libc.so.6"])
    #expect(backtrace.frames[1].offset == 0x1200)
  }

  @Test func `of another process, another boot or an earlier owner of the pid is none`() {
    #expect(parse(entry("4712")) == nil)
    #expect(parse(entry(at: "1790000000000000"), since: 1_790_000_000_000_001_000) == nil)
    #expect(parse(entry("4711", "other")) == nil)
    #expect(parse(Array("{}".utf8)) == nil)
  }

  @Test func `without a stack trace says so`() throws {
    let text = String(decoding: entry(), as: UTF8.self).split(separator: "Stack trace of thread 4711")[0] + #""}"#
    let backtrace = try #require(parse(Array(text.utf8)))
    #expect(backtrace.frames.isEmpty && backtrace.missing != nil)
  }
}
