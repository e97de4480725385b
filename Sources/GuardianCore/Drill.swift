package import GuardianModel

/// A walk along a throw-away copy of a service's ladder, by the machine that the service itself has: it dies as it is told
/// to, again and again, and no delay is waited for. Its repairs can really be run meanwhile; what they come to is told to
/// the copy, and to nobody else.
package struct Drill {
  package struct Request: Hashable, Sendable {
    package var cause: DrillCause
    /// It ends after so many, or in quarantine.
    package var crashes: Int
    package var runsRepairs: Bool
    package init(cause: DrillCause, crashes: Int, runsRepairs: Bool) {
      self.cause = cause
      self.crashes = crashes
      self.runsRepairs = runsRepairs
    }
  }
  private var forecast: Forecast
  private var told = 0

  /// - Parameter seed: Ids of repairs come from it.
  package init(
    _ spec: ServiceSpec, switches: [Switch], _ request: Request, seed: (UInt64, UInt64, UInt64, UInt64), now: Now
  ) {
    var machine = ServiceMachine(spec, record: nil, now: now)
    machine.switches = Switches(switches.filter { $0.concerns(spec.name, in: spec.groups) })
    var rules = Forecast.Rules()
    rules.death = request.cause.death
    rules.fault = request.cause.fault
    rules.failure = request.cause.failure(of: spec)
    rules.finding = request.cause.finding
    rules.crashes = min(max(1, request.crashes), DrillCause.mostCrashes)
    rules.endsInQuarantine = true
    rules.waitsForRepairs = request.runsRepairs
    rules.lines = 10 * DrillCause.mostCrashes
    rules.seed = seed
    forecast = Forecast(machine, now: now, share: 0, rules: rules)
  }

  /// Lines that have come about since the last call, without jitter.
  package mutating func takeLines() -> [PlanEntry] {
    let lines = Array(forecast.entries[min(told, forecast.entries.count)...])
    told = forecast.entries.count
    return lines
  }

  /// A repair to be run before it goes on.
  package var awaited: HookRequest? { forecast.awaited }
  package var isOver: Bool { forecast.over && forecast.awaited == nil }
  package mutating func repairEnded(_ result: HookResult) { forecast.repairEnded(result) }
}

extension DrillCause {
  var death: Death {
    switch self {
    case .exit(let code): return Death(.code(code))
    case .signal(let signal): return Death(.signal(signal, core: false))
    case .oom:
      var death = Death(.signal(.kill, core: false))
      death.oom = .certain
      return death
    case .killed: return Death(.signal(.kill, core: false))
    case .watchdog: return Death(.signal(.abrt, core: false))
    case .startTimeout, .check, .exec: return Death(.signal(.term, core: false))
    case .crashClass(let name): return Death(name.typicalStatus ?? .code(1))
    }
  }

  /// What guardian ends it for; nil: it ends by itself.
  var fault: Cause? {
    switch self {
    case .watchdog: .watchdog
    case .startTimeout: .startTimeout
    case .check: .check
    case .exit, .signal, .oom, .killed, .exec, .crashClass: nil
    }
  }

  /// Nil unless it does not come to its exec.
  func failure(of spec: ServiceSpec) -> SpawnFailure? {
    guard self == .exec else { return nil }
    let program = spec.process.command.first ?? ""
    return SpawnFailure(
      stage: .exec, errno: 8, target: program, sentence: "cannot run \(program): it is no program for this machine")
  }

  /// What the evidence says of such a death; nil: nothing beyond how it ended.
  var finding: Finding? { if case .crashClass(let name) = self { Finding(crashClass: name) } else { nil } }
}
