import GuardianModel
import Testing

@Suite struct `the words between guardian and guardian-check` {
  static let orders: [ProbeOrder] = {
    var http = HTTPProbe(url: "http://localhost/h")
    (http.unix, http.statuses, http.body) = ("/run/x", [200, 301], "ok")
    var exec = ExecProbe(run: RunID(high: 1, low: .max), command: ["/bin/x", ""])
    exec.environment = ["A=b", "C="]
    exec.directory = "/srv"
    exec.umask = 0o27
    exec.identity = Identity(user: "web", uid: 7, gid: 8, groups: [8, 9], home: "/", shell: "/bin/sh")
    let probes: [ProbeOrder.Probe] = [
      .http(HTTPProbe(url: "http://[::1]:8/")), .http(http), .tcp(.host("::1", port: 65535)), .tcp(.unix("/run/s")),
      .exec(exec), .exec(ExecProbe(run: RunID(high: 0, low: 0), command: [])),
      .file(FileProbe(path: "/f", within: .seconds(90))),
    ]
    return [ProbeOrder(number: 3, work: .cancel)]
      + probes.map { ProbeOrder(number: .max, work: .probe($0, key: "web/c", timeout: .milliseconds(5))) }
  }()

  @Test(arguments: orders) func `come back as they were said`(_ order: ProbeOrder) {
    #expect(ProbeOrder(order.bytes) == order)
  }
  @Test(arguments: [ProbeResult.passed("fine"), .failed("é"), .notMade("")])
  func `come back as they were answered`(_ result: ProbeResult) {
    let answer = ProbeAnswer(number: 9, result: result)
    #expect(ProbeAnswer(answer.bytes) == answer)
  }
  @Test func `are bounded`() {
    let long = ProbeAnswer(number: 1, result: .failed(String(repeating: "x", count: 100_000)))
    #expect(long.bytes.count <= ProbeAnswer.largest)
    #expect(ProbeAnswer(long.bytes)?.result.text.utf8.count == 2048)
  }
  @Test(arguments: orders) func `that are cut off or changed are refused, or mean something else, and trap nobody`(
    _ order: ProbeOrder
  ) {
    let bytes = order.bytes
    for length in bytes.indices { #expect(ProbeOrder(Array(bytes[..<length])) == nil) }
    #expect(ProbeOrder(bytes + [0]) == nil || order.work == .cancel)
    for place in bytes.indices {
      for value in [0, 1, 0x7f, 0x80, 0xff] as [UInt8] {
        var changed = bytes
        changed[place] = value
        _ = ProbeOrder(changed)
        _ = ProbeAnswer(changed)
      }
    }
  }
}
