import GuardianControl
import GuardianModel
import Testing

@Suite struct `the command line` {
  private func run(_ line: String) -> Invocation? {
    if case .run(let invocation) = parseArguments(line.split(separator: " ").map(String.init)) {
      invocation
    } else {
      nil
    }
  }
  private func fault(_ line: String) -> String? {
    if case .usage(let text, _) = parseArguments(line.split(separator: " ").map(String.init)) { text } else { nil }
  }

  @Test func `without anything shows the status`() {
    #expect(run("") == Invocation())
    #expect(run("")?.verb == .status)
  }

  @Test func `takes options before and after the verb`() {
    var wanted = Invocation()
    wanted.verb = .stop
    wanted.names = ["web", "db"]
    wanted.target = .directory("/x")
    wanted.json = true
    wanted.wait = false
    wanted.untilBoot = true
    #expect(run("--json --runtime /x stop web --no-wait db --until-boot") == wanted)
    #expect(run("stop --runtime=/x web db web --until-boot --no-wait --json") == wanted)
    #expect(run("hold web --for 1min30s")?.holdMilliseconds == 90_000)
    #expect(run("hold --for=0s web")?.holdMilliseconds == 0)
    #expect(run("reload")?.names == [] && run("reload web db --no-wait")?.names == ["web", "db"])
    #expect(run("status -- --odd")?.names == ["--odd"])
    #expect(run("plan web --from-start --config etc")?.config == "etc")
    #expect(run("reload")?.reload == .apply)
    #expect(run("reload --dry-run --json")?.reload == .dryRun)
    #expect(run("--restart reload")?.reload == .restart)
    #expect(run("wait web")?.goal == .settled && run("wait web")?.timeoutMilliseconds == nil)
    #expect(run("wait --for=stopped w* --timeout 2min --any")?.goal == .stopped)
    #expect(run("wait w* --timeout 2min")?.timeoutMilliseconds == 120_000)
    #expect(run("stop --all")?.all == true && run("stop --group shop web")?.names == ["web", "@shop"])
    #expect(run("safe-mode --all on")?.names == [] && run("safe-mode --all on")?.safeMode == true)
    #expect(run("safe-mode w* off")?.names == ["w*"] && run("safe-mode w* off")?.safeMode == false)
    #expect(run("plugins --group shop disable maps")?.names == ["@shop"])
    #expect(run("repair @shop fix")?.repair == "fix" && run("repair --group shop")?.repair == nil)
  }

  struct Fault: CustomTestStringConvertible {
    var line: String, text: String
    var testDescription: String { line }
  }
  @Test(arguments: [
    Fault(line: "sttaus", text: "unknown verb 'sttaus'; did you mean 'status'?"),
    Fault(line: "relase web", text: "unknown verb 'relase'; did you mean 'release'?"),
    Fault(line: "frobnicate", text: "unknown verb 'frobnicate'; see 'guardianctl help'"),
    Fault(line: "--runtme /x", text: "unknown option '--runtme'; did you mean '--runtime'?"),
    Fault(line: "-x", text: "unknown option '-x'; see 'guardianctl help'"),
    Fault(line: "start", text: "'start' needs the name of a service"),
    Fault(line: "reload --no-wait", text: "--no-wait goes with 'reload' only where services are named"),
    Fault(line: "upgrade web", text: "'upgrade' takes no name, but got 'web'"),
    Fault(line: "hold web", text: "'hold' needs a time: --for 30min"),
    Fault(line: "hold web --for", text: "--for needs a value: --for TIME|STATE"),
    Fault(line: "hold web --for 10", text: "--for '10' is no time; write it like 500ms, 10s, 5min, 2h, 1d, 1min30s"),
    Fault(
      line: "hold web --for 99999999999999999999d",
      text: "--for '99999999999999999999d' is no time; write it like 500ms, 10s, 5min, 2h, 1d, 1min30s"),
    Fault(line: "hold web --for 4000d", text: "--for 4000d is longer than ten years"),
    Fault(line: "reset web --guardian", text: "--guardian means guardian itself, but got the name 'web' too"),
    Fault(line: "start web --guardian", text: "--guardian does not go with 'start'; it belongs to 'reset'"),
    Fault(line: "start web --until-boot", text: "--until-boot does not go with 'start'; it belongs to 'stop'"),
    Fault(line: "status --config x", text: "--config does not go with 'status'; it belongs to 'check', 'plan'"),
    Fault(line: "--user --system", text: "--runtime, --user and --system exclude each other"),
    Fault(line: "reload --dry-run --restart", text: "--dry-run and --restart exclude each other"),
    Fault(line: "reload web --restart", text: "--restart is about the configuration, but got the name 'web' too"),
    Fault(line: "restart web --dry-run", text: "--dry-run does not go with 'restart'; it belongs to 'reload'"),
    Fault(line: "stop --all web", text: "--all means all services, but got the name 'web' too"),
    Fault(
      line: "wait web --for asleep",
      text: "--for 'asleep' is nothing to wait for; there is ready, settled, stopped, finished, quarantined"),
    Fault(
      line: "wait web --timeout soon",
      text: "--timeout 'soon' is no time; write it like 500ms, 10s, 5min, 2h, 1d, 1min30s"),
    Fault(line: "wait", text: "'wait' needs the name of a service"),
    Fault(line: "start web --any", text: "--any does not go with 'start'; it belongs to 'wait'"),
    Fault(line: "logs w*", text: "'logs' shows one service at a time"),
    Fault(
      line: "drill --group shop",
      text:
        "--group does not go with 'drill'; it belongs to 'status', 'start', 'stop', 'restart', 'reload', 'release', 'reset', 'hold', 'plugins', 'safe-mode', 'repair', 'wait', 'plan', 'events', 'top'"
    ),
    Fault(line: "drill @shop", text: "'drill' walks the ladder of one service at a time"),
    Fault(
      line: "plan w* --config x",
      text: "--config is without a guardian that could be asked which services are meant; name them"),
    Fault(line: "reload --all --dry-run", text: "--dry-run is about the configuration, but got --all too"),
    Fault(line: "--json=yes", text: "--json takes no value"),
    Fault(line: "--runtime=", text: "--runtime needs a directory"),
  ])
  func `that is wrong says what is meant`(_ c: Fault) { #expect(fault(c.line) == c.text) }

  @Test func `that is wrong still says whether JSON was wanted`() {
    #expect(parseArguments(["fly", "--json"]) == .usage("unknown verb 'fly'; see 'guardianctl help'", json: true))
  }

  @Test func `asks for help and version anywhere`() {
    #expect(parseArguments(["stop", "--help"]) == .help(json: false))
    #expect(parseArguments(["-h"]) == .help(json: false))
    #expect(parseArguments(["help", "stop"]) == .help(json: false))
    #expect(parseArguments(["--version", "--json"]) == .version(json: true))
  }

  @Test func `with hostile words is shown harmlessly`() {
    #expect(parseArguments(["\u{1b}[31m"]) == .usage("unknown verb '\\x1b[31m'; see 'guardianctl help'", json: false))
  }

  @Test(arguments: ["500ms", "10s", "5min", "2h", "1d", "1min30s", "0", "0s"])
  func `reads times`(text: String) { #expect(parseMilliseconds(text) != nil) }
  @Test(arguments: ["", "s", "1", "-1s", "1.5s", "1 s", "1S", "1m", "99999999999999999999s", "9999999999999999d"])
  func `refuses what is no time`(text: String) { #expect(parseMilliseconds(text) == nil) }
}

@Suite struct `the exit status of status` {
  private func service(
    _ phase: PhaseName, wanted: Wanted = .up, settled: Bool = false, degraded: Bool = false, step: Step = .restart,
    end crashClass: CrashClass? = nil
  ) -> ServiceStatus {
    var s = ServiceStatus(name: "a")
    s.phase = phase
    s.wanted = wanted
    s.settled = settled
    s.degraded = degraded
    s.step = step
    if let crashClass { s.lastEnd = end("exit", crashClass.rawValue, "exit") }
    return s
  }
  @Test func `follows the service`() {
    #expect(service(.running, settled: true).exitCode(named: false) == 0)
    for phase in [PhaseName.starting, .waiting, .backingOff, .repairing, .running, .stopping] {
      #expect(service(phase).exitCode(named: false) == 1, "\(phase)")
    }
    #expect(service(.running, settled: true, degraded: true).exitCode(named: false) == 2)
    #expect(service(.backingOff, step: .safeMode).exitCode(named: false) == 2)
    #expect(service(.backingOff, step: .repair).exitCode(named: false) == 1)
    #expect(service(.stopped, wanted: .down).exitCode(named: true) == 3)
    #expect(service(.stopped, wanted: .down).exitCode(named: false) == 0)
    #expect(service(.stopped, wanted: .up).exitCode(named: false) == 1)
    #expect(service(.finished, wanted: .down, end: .errorExit).exitCode(named: false) == 3)
    #expect(service(.finished, wanted: .up, end: .clean).exitCode(named: true) == 0)
    #expect(service(.finished, wanted: .down, end: .clean).exitCode(named: true) == 0)
    #expect(service(.quarantined, step: .quarantine).exitCode(named: false) == 5)
    #expect(service(.running, step: .quarantine).exitCode(named: false) == 5)
  }
  @Test func `of errors follows the error`() {
    #expect(ControlError.noSuchService(name: "a").exitCode == 4)
    #expect(ControlError.notPermitted(reason: "").exitCode == 77)
    for error in [ControlError.failed(reason: ""), .configurationFault([]), .busy(reason: ""), .methodNotFound("")] {
      #expect(error.exitCode == 1)
    }
  }
}
