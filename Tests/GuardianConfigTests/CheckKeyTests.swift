import GuardianModel
import Testing

@testable import GuardianConfig

@Suite struct `the checks of a service's file` {
  @Test func `are read in all their kinds, with their defaults`() throws {
    let spec = try valid(
      """
      ready: check
      startup-window: 5min
      checks:
        - {name: a, http: "http://127.0.0.1:8080/health"}
        - {name: b, http: "https://[::1]/h", unix: /run/b, status: 204, body: fine, every: 1min, timeout: 1s}
        - {name: c, http: "http://localhost/", status: [200, 301], failures: 1, successes: 4}
        - {name: d, tcp: 5432}
        - {name: e, tcp: "[::1]:80"}
        - {name: f, tcp: "db.example:80"}
        - {name: g, tcp: /run/g.sock}
        - {name: h, exec: /bin/check one 'two three'}
        - {name: i, file: /run/i, within: 90s}
      """)
    #expect(spec.ready == .check)
    #expect(spec.checks.map(\.name) == ["a", "b", "c", "d", "e", "f", "g", "h", "i"])
    let first = try #require(spec.checks.first)
    #expect(first.every == .seconds(10) && first.timeout == .seconds(3) && first.failures == 3 && first.successes == 1)
    #expect(first.kind == .http(HTTPProbe(url: "http://127.0.0.1:8080/health")))
    var unix = HTTPProbe(url: "https://[::1]/h")
    (unix.unix, unix.statuses, unix.body) = ("/run/b", [204], "fine")
    #expect(spec.checks[1].kind == .http(unix))
    #expect(spec.checks[1].every == .minute && spec.checks[1].timeout == .seconds(1))
    #expect(spec.checks[2].failures == 1 && spec.checks[2].successes == 4)
    #expect(
      spec.checks.dropFirst(3).map(\.kind) == [
        .tcp(.host("127.0.0.1", port: 5432)), .tcp(.host("::1", port: 80)), .tcp(.host("db.example", port: 80)),
        .tcp(.unix("/run/g.sock")), .exec(["/bin/check", "one", "two three"]),
        .file(FileProbe(path: "/run/i", within: .seconds(90))),
      ])
  }

  @Test(arguments: [
    Faulty("ready: check", "2:8", has: "without 'checks'"),
    Faulty("checks: [{name: a}]", "2:10", has: "without http, tcp, exec or file"),
    Faulty("checks: [{tcp: 80}]", "2:10", has: "without 'name'"),
    Faulty("checks: [{name: a, htttp: x}]", "2:20", has: "http"),
    Faulty("checks: [{name: a, tcp: 80, exec: [/bin/x]}]", "2:35", has: "in one check"),
    Faulty("checks: [{name: a, tcp: 80}, {name: a, tcp: 81}]", "2:37", has: "twice"),
    Faulty("checks: [{name: a, tcp: 80, body: x}]", "2:35", has: "belongs to http"),
    Faulty("checks: [{name: a, tcp: 80, within: 1s}]", "2:37", has: "belongs to file"),
    Faulty("checks: [{name: a, tcp: 0}]", "2:25", has: "HOST:PORT"),
    Faulty("checks: [{name: a, tcp: 65536}]", "2:25", has: "HOST:PORT"),
    Faulty("checks: [{name: a, tcp: \"a b:80\"}]", "2:25", has: "HOST:PORT"),
    Faulty("checks: [{name: a, tcp: \"::1:80\"}]", "2:25", has: "brackets"),
    Faulty("checks: [{name: a, http: \"ftp://x/\"}]", "2:26", has: "http://"),
    Faulty("checks: [{name: a, http: \"http:///x\"}]", "2:26", has: "a host"),
    Faulty("checks: [{name: a, http: \"http://x/a b\"}]", "2:26", has: "http://"),
    Faulty("checks: [{name: a, http: \"http://u:p@x/\"}]", "2:26", has: "password"),
    Faulty("checks: [{name: a, http: \"http://x/\", status: 99}]", "2:47", has: "100 … 599"),
    Faulty("checks: [{name: a, http: \"http://x/\", status: []}]", "2:47", has: "empty"),
    Faulty("checks: [{name: a, http: \"http://x/\", body: \"\"}]", "2:45", has: "1 to 1000"),
    Faulty("checks: [{name: a, exec: [check]}]", "2:27", has: "absolute path"),
    Faulty("checks: [{name: a, file: /run/x}]", "2:10", has: "within"),
    Faulty("checks: [{name: a, file: run/x, within: 1min}]", "2:26", has: "absolute path"),
    Faulty("checks: [{name: a, tcp: 80, every: 10ms}]", "2:36", has: "at least 100ms"),
    Faulty("checks: [{name: a, tcp: 80, every: 10}]", "2:36", has: "10s"),
    Faulty("checks: [{name: a, tcp: 80, timeout: 0s}]", "2:38", has: "at least 1ms"),
    Faulty("checks: [{name: a, tcp: 80, timeout: 2h}]", "2:38", has: "1h"),
    Faulty("checks: [{name: a, tcp: 80, failures: 0}]", "2:39", has: "1 … 1000"),
    Faulty("checks: [{name: a, tcp: 80, successes: 0}]", "2:40", has: "1 … 1000"),
  ])
  func `get one diagnostic at the right place where they are wrong`(_ faulty: Faulty) { faulty.check() }

  @Test func `are bounded in number`() {
    let many = (0..<40).map { "  - {name: c\($0), tcp: 80}" }.joined(separator: "\n")
    #expect(said("checks:\n" + many).count == 1)
  }

  @Test func `may be the defaults of all services`() throws {
    let parsed = Configuration.parseHost(
      bytes: Array("defaults: {ready: check}\n".utf8), file: "guardian.yaml", context: context())
    #expect(parsed.diagnostics.isEmpty)
  }
}
