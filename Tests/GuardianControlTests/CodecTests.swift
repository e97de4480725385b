import GuardianControl
import GuardianModel
import Testing

@Suite struct `a request` {
  struct Case: CustomTestStringConvertible {
    var method: String, parameters: String
    var expected: ControlRequest
    var testDescription: String { "\(method)(\(parameters))" }
  }
  @Test(arguments: [
    Case(method: "List", parameters: "{}", expected: .list(names: nil, brief: false)),
    Case(
      method: "List", parameters: #"{"names":["a","b"],"brief":true}"#, expected: .list(names: ["a", "b"], brief: true)),
    Case(method: "List", parameters: #"{"names":null}"#, expected: .list(names: nil, brief: false)),
    Case(method: "List", parameters: #"{"names":[]}"#, expected: .list(names: [], brief: false)),
    Case(method: "Start", parameters: #"{"name":"web"}"#, expected: .start(name: "web", wait: true)),
    Case(method: "Start", parameters: #"{"name":"web","wait":false}"#, expected: .start(name: "web", wait: false)),
    Case(
      method: "Stop", parameters: #"{"name":"web","until_boot":true}"#,
      expected: .stop(name: "web", untilBoot: true, wait: true)),
    Case(method: "Restart", parameters: #"{"name":"web"}"#, expected: .restart(name: "web", wait: true)),
    Case(method: "Release", parameters: #"{"name":"web"}"#, expected: .release(name: "web", wait: true)),
    Case(
      method: "ReloadService", parameters: #"{"name":"web"}"#, expected: .reloadService(name: "web", wait: true)),
    Case(method: "Reset", parameters: #"{"name":"web"}"#, expected: .reset(name: "web", wait: true)),
    Case(
      method: "Hold", parameters: #"{"name":"web","for_ms":1800000}"#,
      expected: .hold(name: "web", milliseconds: 1_800_000, wait: true)),
    Case(method: "Reload", parameters: "{}", expected: .reload(.apply)),
    Case(method: "Reload", parameters: #"{"dry_run":true}"#, expected: .reload(.dryRun)),
    Case(method: "Reload", parameters: #"{"restart":true,"dry_run":null}"#, expected: .reload(.restart)),
    Case(method: "Upgrade", parameters: "{}", expected: .upgrade),
    Case(method: "ResetGuardian", parameters: "{}", expected: .resetGuardian),
    Case(
      method: "Plan", parameters: #"{"name":"web","from_start":true}"#, expected: .plan(name: "web", fromStart: true)),
    Case(method: "Summary", parameters: "{}", expected: .summary),
    Case(method: "Metrics", parameters: "{}", expected: .metrics),
    Case(method: "GetVersion", parameters: "null", expected: .version),
  ])
  func `is read as what it asks`(_ c: Case) {
    let message = #"{"method":"io.guardian.Supervisor.\#(c.method)","parameters":\#(c.parameters)}"# + "\0"
    #expect(inputs(message) == [.call(ControlCall(c.expected))])
  }

  @Test func `survives the way from client to server`() {
    let requests: [ControlRequest] = [
      .list(names: nil, brief: true), .list(names: ["web", "ü\"\\\n"], brief: false), .start(name: "a", wait: false),
      .stop(name: "a", untilBoot: true, wait: true), .restart(name: "a", wait: true), .release(name: "a", wait: true),
      .reset(name: "a", wait: false), .reloadService(name: "a", wait: false),
      .plugins(name: "a", .disable("p"), wait: true), .plugins(name: "a", .search, wait: false),
      .safeMode(name: "a", on: false, wait: true), .repair(name: "a", repair: nil, wait: true),
      .repair(name: "a", repair: "r", wait: false),
      .hold(name: "a", milliseconds: 0, wait: true), .reload(.apply), .reload(.dryRun), .reload(.restart),
      .upgrade, .resetGuardian, .plan(name: "a", fromStart: true), .drill(name: "a", DrillRequest()),
      .crashes(name: nil), .crashes(name: "a"),
      .crash(id: "00ffaa"), .events(EventsRequest()),
      .events(
        EventsRequest(
          names: ["a", "@b"], since: WallTime(nanoseconds: 1_790_000_000_001_000_000), after: EventID(0x650_1234),
          follow: true)), .summary, .metrics, .version,
    ]
    var bytes: [UInt8] = []
    for request in requests { ControlCall(request, more: request == requests[0]).encode(into: &bytes) }
    #expect(inputs(bytes) == requests.map { .call(ControlCall($0, more: $0 == requests[0])) })
  }

  struct Refusal: CustomTestStringConvertible {
    var message: String, error: ControlError
    var testDescription: String { message }
  }
  @Test(arguments: [
    Refusal(message: #"{"method":"io.guardian.Supervisor.Fly"}"#, error: .methodNotFound("io.guardian.Supervisor.Fly")),
    Refusal(message: #"{"method":"io.guardian.Other.Start"}"#, error: .interfaceNotFound("io.guardian.Other")),
    Refusal(message: #"{"method":"Start"}"#, error: .methodNotFound("Start")),
    Refusal(message: #"{"method":""}"#, error: .methodNotFound("")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Plugins","parameters":{"name":"web","action":"disable"}}"#,
      error: .invalidParameter("plugin")),
    Refusal(
      message:
        #"{"method":"io.guardian.Supervisor.Plugins","parameters":{"name":"web","action":"search","plugin":"a"}}"#,
      error: .invalidParameter("plugin")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Plugins","parameters":{"name":"web","action":"x","plugin":"a"}}"#,
      error: .invalidParameter("action")),
    Refusal(message: #"{"method":"io.guardian.Supervisor.Start"}"#, error: .invalidParameter("name")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Start","parameters":{"name":7}}"#, error: .invalidParameter("name")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Start","parameters":{"name":"a","wiat":true}}"#,
      error: .invalidParameter("wiat")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Start","parameters":{"name":"a","wait":1}}"#,
      error: .invalidParameter("wait")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Start","parameters":["a"]}"#, error: .invalidParameter("parameters")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Summary","parameters":{"x":1}}"#, error: .invalidParameter("x")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.List","parameters":{"names":["a",1]}}"#,
      error: .invalidParameter("names")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Hold","parameters":{"name":"a","for_ms":-1}}"#,
      error: .invalidParameter("for_ms")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Hold","parameters":{"name":"a","for_ms":9223372036854775807}}"#,
      error: .invalidParameter("for_ms")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Hold","parameters":{"name":"a","for_ms":1.5}}"#,
      error: .invalidParameter("for_ms")),
    Refusal(message: #"{"method":"io.guardian.Supervisor.Summary","colour":true}"#, error: .invalidParameter("colour")),
    Refusal(message: #"{"method":"io.guardian.Supervisor.Summary","more":"yes"}"#, error: .invalidParameter("more")),
    Refusal(
      message: #"{"method":"io.guardian.Supervisor.Summary","upgrade":true}"#,
      error: .methodNotImplemented("io.guardian.Supervisor.Summary")),
    Refusal(
      message: #"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"no.such"}}"#,
      error: .interfaceNotFound("no.such")),
    Refusal(message: #"{"method":"org.varlink.service.Fly"}"#, error: .methodNotFound("org.varlink.service.Fly")),
  ])
  func `B6: that is wrong gets a typed error and the connection goes on`(_ c: Refusal) {
    let good = #"{"method":"io.guardian.Supervisor.Summary"}"#
    #expect(inputs(c.message + "\0" + good + "\0") == [.reply(Reply.error(c.error)), .call(ControlCall(.summary))])
  }

  @Test func `without answer gets no answer, not even an error`() {
    #expect(inputs(#"{"method":"io.guardian.Supervisor.Fly","oneway":true}"# + "\0") == [.reply([])])
    #expect(
      inputs(#"{"method":"io.guardian.Supervisor.Reload","oneway":true}"# + "\0")
        == [.call(ControlCall(.reload(.apply), oneway: true))])
  }

  /// Shown shortened: two of them are long.
  struct Nonsense: CustomTestStringConvertible, ExpressibleByStringLiteral {
    var text: String
    init(_ text: String) { self.text = text }
    init(stringLiteral text: String) { self.text = text }
    var testDescription: String { text.utf8.count > 80 ? "\(text.prefix(60))…, \(text.utf8.count) bytes" : text }
  }

  @Test(arguments: [
    "", "x", "{", "[]", "7", "null", "{}", #"{"method":7}"#, #"{"method":"a.b","method":"a.b"}"#,
    #"{"method":"a.b","parameters":{"name":"\ud800"}}"#, #"{"method":"a.b","parameters":{"name":"\u0000"}}"#,
    #"{"method":"a.b"} x"#, #"{"method":"a.b","parameters":{"x":1e999}}"#,
    #"{"method":"a.b","parameters":{"x":99999999999999999999}}"#,
    Nonsense(
      #"{"method":"a.b","parameters":"# + String(repeating: "[", count: 32) + String(repeating: "]", count: 32) + "}"),
    Nonsense(String(repeating: "[", count: 60_000)),
    Nonsense(#"{"method":"a.b","parameters":"# + String(repeating: #"{"a":"#, count: 12_000)),
  ])
  func `B1, B6: that is no Varlink ends the connection with an error`(_ nonsense: Nonsense) {
    let all = inputs(nonsense.text + "\0" + #"{"method":"io.guardian.Supervisor.Summary"}"# + "\0")
    guard all.count == 1, case .close(let bytes) = all[0] else {
      Issue.record("\(all)")
      return
    }
    #expect(bytes.text.hasPrefix(#"{"error":"org.varlink.service.InvalidParameter""#))
  }

  @Test func `with invalid UTF-8 ends the connection`() {
    let bytes = Array(#"{"method":"a.b","parameters":{"name":""#.utf8) + [0xff, 0xc0] + Array(#""}}"#.utf8) + [0]
    guard case .close = inputs(bytes).first else {
      Issue.record("accepted")
      return
    }
  }

  @Test func `B1: that is too long ends the connection before it has ended`() {
    var connection = ControlConnection()
    let piece = [UInt8](repeating: UInt8(ascii: " "), count: 16_384)
    for _ in 0..<4 {
      piece.withUnsafeBytes { connection.receive($0) }
      #expect(connection.next() == nil)
      #expect(connection.mayRead)
    }
    piece.withUnsafeBytes { connection.receive($0) }
    #expect(!connection.mayRead)
    guard case .close = connection.next() else {
      Issue.record("not refused")
      return
    }
    #expect(connection.next() == nil)
    #expect(!connection.mayRead)
  }

  @Test func `may come byte by byte, and many at once`() {
    let one = Array(#"{"method":"io.guardian.Supervisor.GetVersion"}"#.utf8) + [0]
    var connection = ControlConnection()
    for byte in one.dropLast() {
      withUnsafeBytes(of: byte) { connection.receive($0) }
      #expect(connection.next() == nil)
    }
    withUnsafeBytes(of: UInt8(0)) { connection.receive($0) }
    #expect(connection.next() == .call(ControlCall(.version)))
    #expect(connection.next() == nil)
    #expect(inputs(Array(repeatElement(one, count: 500).joined())).count == 500)
  }

  @Test(arguments: 0..<20 as Range<UInt64>)
  func `B1, B6: that noise has damaged never traps`(seed: UInt64) {
    var noise = Noise(state: seed)
    let seeds = [
      #"{"method":"io.guardian.Supervisor.Hold","parameters":{"name":"web","for_ms":1800000,"wait":true},"more":false}"#,
      #"{"method":"io.guardian.Supervisor.List","parameters":{"names":["web","db"],"brief":true},"more":true}"#,
      #"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"io.guardian.Supervisor"}}"#,
    ].map { Array($0.utf8) + [0] }
    for _ in 0..<500 {
      var bytes = seeds[Int.random(in: 0..<seeds.count, using: &noise)]
      for _ in 0..<Int.random(in: 1...4, using: &noise) {
        let place = Int.random(in: 0..<max(1, bytes.count), using: &noise)
        switch Int.random(in: 0..<5, using: &noise) {
        case 0 where !bytes.isEmpty: bytes[place] = UInt8.random(in: 0...255, using: &noise)
        case 1 where !bytes.isEmpty: bytes.remove(at: place)
        case 2: bytes.insert(UInt8.random(in: 0...255, using: &noise), at: min(place, bytes.count))
        case 3: bytes = Array(bytes.prefix(place))
        default: bytes += bytes.prefix(place)
        }
      }
      bytes.append(0)
      _ = inputs(bytes)
      _ = inputs((0..<64).map { _ in UInt8.random(in: 0...255, using: &noise) } + [0])
    }
  }
}

@Suite struct `a reply` {
  @Test(arguments: zoo.indices)
  func `brings a service over in full`(index: Int) {
    var bytes: [UInt8] = []
    let request = ControlRequest.list(names: nil, brief: false)
    Reply.list([zoo[index]], continues: false, into: &bytes)
    #expect(received(bytes, to: request) == .services([zoo[index]], missing: []))
  }

  @Test func `in brief shows the same table`() {
    var bytes: [UInt8] = []
    Reply.list(zoo, missing: ["nobody"], brief: true, continues: true, into: &bytes)
    guard case .services(let services, ["nobody"])? = received(bytes, to: .list(names: nil, brief: true)) else {
      Issue.record("\(bytes.text)")
      return
    }
    #expect(renderTable(services, style: Style()).text == renderTable(zoo, style: Style()).text)
    #expect(services.map { $0.exitCode(named: false) } == zoo.map { $0.exitCode(named: false) })
  }

  @Test func `to an order, a reload, a plan, a summary and a version comes over whole`() {
    func both(_ request: ControlRequest, _ write: (inout [UInt8]) -> Void) -> ReplyBody? {
      var bytes: [UInt8] = []
      write(&bytes)
      return received(bytes, to: request)
    }
    #expect(
      both(.start(name: "web", wait: true)) { Reply.done(name: "web", note: "ready \"now\"\n", into: &$0) }
        == .done(note: "ready \"now\"\n"))
    let faults = [
      Diagnostic(file: "services/web.yaml", line: 3, column: 1, what: "unknown key 'backof'", suggestion: "backoff"),
      Diagnostic(.warning, file: "guardian.yaml", what: "empty", why: "nothing in it"),
    ]
    var change = ReloadChange()
    change.added = ["new"]
    change.changed = [ReloadChange.Changed(name: "web"), ReloadChange.Changed(name: "db")]
    change.changed[1].live = ["stop"]
    change.changed[1].atStart = ["command"]
    change.changed[1].note = "a \"note\""
    change.removed = ["old"]
    change.unchanged = 9
    change.dryRun = true
    change.invalid = ["bad"]
    change.host = ["defaults"]
    change.needRestart = [ReloadChange.Pending(name: "db", keys: ["command"])]
    change.restarts = [ReloadChange.Restarted(name: "db", done: false, text: "exit 1")]
    #expect(
      both(.reload(.apply)) { Reply.reloaded(services: 12, change, diagnostics: faults, into: &$0) }
        == .reloaded(services: 12, change, diagnostics: faults))
    let entries = [
      PlanEntry(
        earliest: .milliseconds(500), latest: .milliseconds(550), action: "start", step: .safeMode, strikes: 1,
        strikesAllowed: 2, text: "starts with all plugins off")
    ]
    #expect(
      both(.plan(name: "web", fromStart: false)) { Reply.plan(name: "web", entries: entries, into: &$0) }
        == .plan(Plan(name: "web", entries: entries)))
    let object = Reply.planObject(name: "web", entries: entries)
    #expect(object.withUnsafeBufferPointer(decodePlan).value == Plan(name: "web", entries: entries))
    var summary = DaemonSummary()
    summary.line = "2 services: 2 settled"
    summary.state = "volatile"
    summary.warnings = ["a default is in force"]
    summary.diagnostics = faults
    #expect(both(.summary) { Reply.summary(summary, into: &$0) } == .summary(summary))
    var version = DaemonVersion()
    version.guarantees = [.init("process set", "session and subreaper"), .init("an odd \"name\"", "ü")]
    #expect(both(.version) { Reply.version(version, into: &$0) } == .version(version))
  }

  @Test(arguments: [
    ControlError.interfaceNotFound("a"), .methodNotFound("a.b"), .methodNotImplemented("a.b"), .invalidParameter("x"),
    .expectedMore, .noSuchService(name: "web"), .notPermitted(reason: "root only"),
    .notPermitted(reason: "needs operate on 'web'", needs: .operate, service: "web"), .failed(reason: "died: exit 1"),
    .configurationFault([Diagnostic(file: "a.yaml", line: 1, column: 2, what: "w", why: "y", suggestion: "s")]),
    .busy(reason: "too many"),
  ])
  func `with an error says which`(error: ControlError) {
    #expect(received(Reply.error(error), to: .summary) == .error(error))
  }

  @Test func `in a list goes to JSON as it is`() throws {
    var out: [UInt8] = [UInt8(ascii: "[")]
    var expected: [UInt8] = out
    for (index, service) in zoo.enumerated() {
      var bytes: [UInt8] = []
      let last = index == zoo.count - 1
      Reply.list([service], continues: !last, into: &bytes)
      let list = bytes.dropLast().withUnsafeBufferPointer { spliceList($0, into: &out) }
      #expect(list == SplicedList(worst: service.exitCode(named: false), continues: !last))
      var json = JSONWriter()
      encode(service, brief: false, into: &json)
      expected += (index > 0 ? [UInt8(ascii: ",")] : []) + json.bytes
    }
    #expect(out.text == expected.text)
  }

  @Test func `of another shape is not passed on unread`() {
    for text in [
      "", "{}", #"{"parameters":{"services":[{]}"#, #"{"parameters":{"services":["#, #"{"parameters":{"services":["\"#,
      #"{"parameters":{"services":[]}}"#, #"{"parameters":{"services":[],"worst":"5"}}"#,
      #"{"parameters":{"services":[],"worst":4,"missing":["a"]}}"#, #"{"parameters":{"services":[],"worst":0}} x"#,
    ] {
      var out: [UInt8] = []
      #expect(Array(text.utf8).withUnsafeBufferPointer { spliceList($0, into: &out) } == nil, "\(text)")
      #expect(out.isEmpty)
    }
  }

  @Test(arguments: 0..<20 as Range<UInt64>)
  func `that noise has damaged never traps the client`(seed: UInt64) {
    var noise = Noise(state: seed)
    var whole: [UInt8] = []
    Reply.list(zoo, continues: true, into: &whole)
    for _ in 0..<500 {
      var bytes = whole
      for _ in 0..<Int.random(in: 1...3, using: &noise) {
        let place = Int.random(in: 0..<bytes.count, using: &noise)
        if Bool.random(using: &noise) {
          bytes[place] = UInt8.random(in: 0...255, using: &noise)
        } else {
          bytes.removeSubrange(place..<min(bytes.count, place + 5))
        }
      }
      var out: [UInt8] = []
      bytes.withUnsafeBufferPointer { all in
        _ = decodeReply(all, to: .list(names: nil, brief: false))
        _ = spliceList(all, into: &out)
      }
    }
  }

  @Test func `B7: of a newer guardian with a new member is understood, with a new phase is explained`() {
    let known = #"{"parameters":{"services":[{"name":"a","phase":"running","settled":true,"aura":[1]}],"worst":0}}"#
    #expect(received(Array((known + "\0").utf8), to: .list(names: nil, brief: false)) != nil)
    let strange = #"{"parameters":{"services":[{"name":"a","phase":"dancing","settled":true}],"worst":0}}"#
    let result = Array(strange.utf8).withUnsafeBufferPointer { decodeReply($0, to: .list(names: nil, brief: false)) }
    guard case .failure(let fault) = result else {
      Issue.record("accepted")
      return
    }
    #expect(fault.reason == "unknown phase 'dancing'; is guardian newer than guardianctl?")
  }
}

@Suite struct `the writer` {
  @Test func `J11: escapes what JSON and terminals want escaped`() {
    var json = JSONWriter()
    json.beginArray()
    json.string("a\"b\\c\n\r\t\u{1b}\u{7f}é🙂\u{0}")
    json.integer(Int64.min)
    json.integer(0)
    json.bool(false)
    json.null()
    json.beginObject()
    json.key("k")
    json.strings([])
    json.key("l")
    json.strings(["x", "y"])
    json.endObject()
    json.endArray()
    #expect(
      json.bytes.text
        == #"["a\"b\\c\n\r\t\u001b\u007fé🙂\u0000",-9223372036854775808,0,false,null,{"k":[],"l":["x","y"]}]"#)
  }

  struct Moment: CustomTestStringConvertible {
    var seconds: Int64, text: String
    var testDescription: String { text }
  }
  @Test(arguments: [
    Moment(seconds: 0, text: "1970-01-01T00:00:00.000Z"), Moment(seconds: -1, text: "1969-12-31T23:59:59.000Z"),
    Moment(seconds: 951_782_400, text: "2000-02-29T00:00:00.000Z"),
    Moment(seconds: 1_772_366_400, text: "2026-03-01T12:00:00.000Z"),
    Moment(seconds: 4_107_542_399, text: "2100-02-28T23:59:59.000Z"),
    Moment(seconds: 4_107_542_400, text: "2100-03-01T00:00:00.000Z"),
    Moment(seconds: -9_000_000_000, text: "1684-10-19T08:00:00.000Z"),
  ])
  func `knows the calendar`(_ c: Moment) {
    let time = WallTime(nanoseconds: c.seconds * 1_000_000_000)
    #expect(time.rfc3339 == c.text)
    #expect(Array(c.text.utf8).withUnsafeBufferPointer { WallTime(rfc3339: $0) } == time)
  }

  @Test func `reads back every time that it writes`() {
    var noise = Noise(state: 1)
    for _ in 0..<5000 {
      let time = WallTime(
        nanoseconds: Int64.random(in: -9_000_000_000_000...9_000_000_000_000, using: &noise) * 1_000_000)
      var bytes: [UInt8] = []
      time.appendRFC3339(to: &bytes)
      #expect(bytes.count == 24)
      #expect(bytes.withUnsafeBufferPointer { WallTime(rfc3339: $0) } == time)
    }
    for extreme in [Int64.min, Int64.max] { #expect(WallTime(nanoseconds: extreme).rfc3339.utf8.count == 24) }
    for wrong in ["", "2026-13-01T12:00:00.000Z", "2026-03-01 12:00:00.000Z", "2026-03-01T12:00:00.000+"] {
      #expect(Array(wrong.utf8).withUnsafeBufferPointer { WallTime(rfc3339: $0) } == nil)
    }
  }
}

@Suite struct `the interface description` {
  /// Names that stand behind `keyword` at the start of a line.
  private func declared(_ keyword: String, in text: String) -> Set<String> {
    Set(
      text.split(separator: "\n").compactMap { line in
        guard line.hasPrefix(keyword + " ") else { return nil }
        return String(line.dropFirst(keyword.count + 1).prefix { $0 != "(" && $0 != " " })
      })
  }
  /// Member names of `type name (…)` or `method name(…)`, the part between the first parentheses.
  private func members(of declaration: String) -> [String] {
    guard let start = supervisorInterface.firstRange(of: declaration)?.upperBound else { return [] }
    let body = supervisorInterface[start...].prefix { $0 != ")" }
    return body.split(whereSeparator: { $0 == "," || $0 == "\n" }).compactMap { part in
      let words = part.split(separator: ":")
      return words.count == 2 ? words[0].drop { $0 == " " }.description : nil
    }
  }

  @Test func `is what introspection answers`() {
    let answer = inputs(
      #"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"io.guardian.Supervisor"}}"#
        + "\0")
    guard case .reply(let bytes)? = answer.first else {
      Issue.record("\(answer)")
      return
    }
    #expect(bytes.text.contains("interface io.guardian.Supervisor"))
    let info = inputs(#"{"method":"org.varlink.service.GetInfo","parameters":{}}"# + "\0")
    guard case .reply(let bytes)? = info.first else {
      Issue.record("\(info)")
      return
    }
    #expect(bytes.text.contains(#""interfaces":["org.varlink.service","io.guardian.Supervisor"]"#))
  }

  @Test func `has the methods that the decoder takes, with their parameters, and no others`() {
    let requests: [ControlRequest] = [
      .list(names: ["a"], brief: true), .start(name: "a", wait: true), .stop(name: "a", untilBoot: true, wait: true),
      .restart(name: "a", wait: true), .release(name: "a", wait: true), .reset(name: "a", wait: true),
      .reloadService(name: "a", wait: true), .hold(name: "a", milliseconds: 1, wait: true), .reload(.restart), .upgrade,
      .resetGuardian, .plugins(name: "a", .disable("p"), wait: true), .safeMode(name: "a", on: true, wait: true),
      .repair(name: "a", repair: "r", wait: true),
      .plan(name: "a", fromStart: true, deaths: [PlanDeath(cause: .oom, age: .seconds(2))]),
      .drill(name: "a", DrillRequest()), .crashes(name: "a"), .crash(id: "00ffaa"),
      .events(EventsRequest(names: ["a"], since: WallTime(nanoseconds: 0), after: EventID(1), follow: true)), .summary,
      .metrics,
      .version,
    ]
    #expect(declared("method", in: supervisorInterface) == Set(requests.map(\.method)))
    for request in requests {
      var bytes: [UInt8] = []
      ControlCall(request).encode(into: &bytes)
      for parameter in members(of: "method \(request.method)(") {
        #expect(bytes.text.contains("\"\(parameter)\":"), "\(request.method) does not send \(parameter)")
      }
    }
  }

  @Test func `has the members of a service, in the encoder's order`() {
    var json = JSONWriter()
    encode(ServiceStatus(name: "a"), brief: false, into: &json)
    var keys: [String] = [], rest = json.bytes.text[...]
    while let colon = rest.firstIndex(of: ":") {
      let before = rest[..<colon]
      if before.hasSuffix("\"") { keys.append(String(before.dropLast().split(separator: "\"").last ?? "")) }
      rest = rest[rest.index(after: colon)...]
    }
    #expect(keys.filter { $0 != "" } == members(of: "type Service ("))
  }

  @Test func `has the errors that the encoder writes`() {
    let own: [ControlError] = [
      .noSuchService(name: ""), .notPermitted(reason: ""), .failed(reason: ""), .configurationFault([]),
      .busy(reason: ""),
    ]
    #expect(
      declared("error", in: supervisorInterface)
        == Set(own.map { $0.name.split(separator: ".").last ?? "" }.map(String.init)))
  }
}
