import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

/// What is counted for `guardianctl metrics`, from the start of this program on: an upgrade in place begins anew, which
/// whoever reads counters takes as the reset that it is.
///
/// A service without trouble has nothing here. All is fed by what happens anyway, and nothing by time.
struct Measures {
  /// What one service has had, from its first trouble on.
  private struct Troubles {
    /// By the cause's name; a service dies of few.
    var strikes: [(cause: String, count: Int64)] = []
    var hooks: [(hook: String, result: String, count: Int64)] = []
    var lateDeaths: Int64 = 0
    var restarts: Int64 = 0
    /// Its step, and since when, as far as it has left `restart`.
    var step = Step.restart
    var since = Instant.zero
    var stepTimes: [(step: Step, time: Duration)] = []
    /// Since its first death that counted; nil: it has settled since, or was stopped.
    var ill: Instant?
  }

  let started: WallTime
  var turns: Int64 = 0
  var writes: Int64 = 0
  private var turnTime = Histogram(), lateness = Histogram(), ready = Histogram(), recovery = Histogram()
  private var troubles: [ServiceID: Troubles] = [:]
  /// Of runs that are not ready yet.
  private var starting: [ServiceID: (run: RunID, at: Instant)] = [:]
  /// The end that was told last: a strike follows its death at once.
  private var lastEnd: (service: ServiceID, cause: String)?

  init(now: WallTime) { started = now }

  mutating func turned(from start: Instant, to end: Instant) {
    turns &+= 1
    turnTime.observe(end - start, in: .turnTime)
  }
  mutating func late(by delay: Duration) { lateness.observe(delay, in: .lateness) }

  /// - Parameters:
  ///   - step: Where the service stands now.
  ///   - again: It was started before.
  mutating func heard(_ kind: Occurrence.Kind, of id: ServiceID, step: Step, again: Bool, at now: Instant) {
    switch kind {
    case .started(let run, _, _, _):
      starting[id] = (run, now)
      if again { troubles[id, default: Troubles()].restarts &+= 1 }
    case .ready(let run):
      if let start = starting[id], start.run == run { ready.observe(now - start.at, in: .ready) }
      noLongerStarting(id)
    case .ended(let end):
      noLongerStarting(id)
      lastEnd = (id, end.cause.name)
    case .strike:
      let cause = lastEnd?.service == id ? lastEnd?.cause ?? "unknown" : "unknown"
      var one = troubles[id] ?? Troubles()
      if let index = one.strikes.firstIndex(where: { $0.cause == cause }) {
        one.strikes[index].count &+= 1
      } else {
        one.strikes.append((cause, 1))
      }
      one.ill = one.ill ?? now
      troubles[id] = one
    case .lateDeath:
      troubles[id, default: Troubles()].lateDeaths &+= 1
      if troubles[id]?.ill == nil { troubles[id]?.ill = now }
    case .settled:
      noLongerStarting(id)
      if let since = troubles[id]?.ill {
        recovery.observe(now - since, in: .recovery)
        troubles[id]?.ill = nil
      }
    case .stopped: troubles[id]?.ill = nil
    case .repairEnded(_, let name, let result): hook("repair \(name)", result, id)
    case .beforeStartEnded(_, let result): hook("before-start", result, id)
    default: break
    }
    if step != .restart || troubles[id] != nil { stand(on: step, id, now) }
  }

  private mutating func hook(_ name: String, _ result: HookResult, _ id: ServiceID) {
    let word =
      switch result {
      case .succeeded: "succeeded"
      case .cannotRepair: "cannot-repair"
      case .failed: "failed"
      case .timedOut: "timed-out"
      case .aborted: "aborted"
      case .notStarted: "not-started"
      }
    var one = troubles[id] ?? Troubles()
    if let index = one.hooks.firstIndex(where: { $0.hook == name && $0.result == word }) {
      one.hooks[index].count &+= 1
    } else {
      one.hooks.append((name, word, 1))
    }
    troubles[id] = one
  }

  private mutating func stand(on step: Step, _ id: ServiceID, _ now: Instant) {
    var one = troubles[id] ?? Troubles()
    guard one.step != step else { return }
    if one.step != .restart {
      if let index = one.stepTimes.firstIndex(where: { $0.step == one.step }) {
        one.stepTimes[index].time += now - one.since
      } else {
        one.stepTimes.append((one.step, now - one.since))
      }
    }
    (one.step, one.since) = (step, now)
    troubles[id] = one
  }

  private mutating func noLongerStarting(_ id: ServiceID) {
    guard starting.removeValue(forKey: id) != nil else { return }
    // Room for thousands is kept only as long as somebody starts.
    if starting.isEmpty { starting = [:] }
  }

  mutating func forget(_ id: ServiceID) {
    troubles[id] = nil
    noLongerStarting(id)
  }

  // MARK: Telling

  func host(now: Instant) -> [MetricSample] {
    [
      MetricSample(.build, [guardianVersion], 1),
      MetricSample(.start, [], started.nanoseconds / 1000),
      MetricSample(.turns, [], turns),
      MetricSample(.storeWrites, [], writes),
      turnTime.sample(.turnTime), lateness.sample(.lateness), ready.sample(.ready), recovery.sample(.recovery),
    ]
  }

  func service(_ id: ServiceID, _ status: ServiceStatus, now: Instant) -> [MetricSample] {
    let name = status.name
    func flag(_ family: MetricFamily, _ is: Bool) -> MetricSample { MetricSample(family, [name], `is` ? 1 : 0) }
    let heights: [Step: Int64] = [.restart: 0, .repair: 1, .safeMode: 2, .quarantine: 3]
    var samples = [
      MetricSample(.state, [name, status.phase.rawValue], 1), flag(.settled, status.settled),
      flag(.degraded, status.degraded), flag(.quarantined, status.phase == .quarantined), flag(.held, status.held),
      MetricSample(.step, [name], heights[status.step] ?? 0), MetricSample(.strikesNow, [name], Int64(status.strikes)),
    ]
    let one = troubles[id] ?? Troubles()
    samples.append(MetricSample(.restarts, [name], one.restarts))
    if status.phase == .backingOff, let next = status.next {
      samples.append(MetricSample(.backoff, [name], max(0, next.inMilliseconds) * 1000))
    }
    if one.lateDeaths > 0 { samples.append(MetricSample(.lateDeaths, [name], one.lateDeaths)) }
    for (cause, count) in one.strikes { samples.append(MetricSample(.strikes, [name, cause], count)) }
    for (hook, result, count) in one.hooks { samples.append(MetricSample(.hooks, [name, hook, result], count)) }
    for step in Step.allCases where step != .restart {
      var time = one.stepTimes.first { $0.step == step }?.time ?? .zero
      if one.step == step { time += now - one.since }
      if time > .zero { samples.append(MetricSample(.stepTime, [name, step.rawValue], time.nanoseconds / 1000)) }
    }
    for plugin in status.plugins {
      samples.append(MetricSample(.plugins, [name, plugin.name, plugin.state.rawValue], 1))
    }
    return samples
  }
}

extension Shell {
  /// What is told before the services. A look at /proc is the only one at anything outside.
  func hostMetrics(now: Now, clients: Int, followers: Int) -> [MetricSample] {
    var samples = measures.host(now: now.monotonic)
    for (word, count) in fleetCounts { samples.append(MetricSample(.services, [word], Int64(count))) }
    if let text = FileText.text("/proc/self/statm", limit: 4096),
      let pages = text.split(separator: " ").dropFirst().first.flatMap({ Int64($0) })
    {
      samples.append(MetricSample(.memory, [], pages * Int64(sysconf(Int32(_SC_PAGESIZE)))))
    }
    let (heard, performed) = workDone
    samples.append(MetricSample(.events, [], Int64(clamping: heard)))
    samples.append(MetricSample(.actions, [], Int64(clamping: performed)))
    for (queue, length) in [
      ("events", inbox.count), ("actions", outputs.count - done), ("clients", clients), ("followers", followers),
    ] {
      samples.append(MetricSample(.queues, [queue], Int64(length)))
    }
    if let governor = fleet.governorState(now: now.monotonic) {
      samples.append(MetricSample(.tokens, [], Int64(governor.tokens)))
      samples.append(MetricSample(.inLine, [], Int64(governor.waiting)))
      samples.append(MetricSample(.underWay, [], Int64(governor.underWay)))
    }
    samples.append(MetricSample(.commonCause, [], fleet.commonCause == nil ? 0 : 1))
    samples.append(MetricSample(.volatile, [], isVolatile ? 1 : 0))
    samples.append(MetricSample(.lostEvents, [], Int64(store.droppedEvents)))
    samples.append(MetricSample(.droppedNotices, [], Int64(clamping: hooks.droppedNotices)))
    samples.append(MetricSample(.droppedRecords, [], Int64(clamping: log.dropped)))
    return samples
  }

  func serviceMetrics(of names: some Sequence<ServiceName>, now: Now) -> [MetricSample] {
    names.flatMap { name -> [MetricSample] in
      guard let id = fleet.id(named: name) else {
        // A file that was never valid.
        guard definitionIsBroken(name) else { return [] }
        return [
          MetricSample(.state, [name.text, PhaseName.quarantined.rawValue], 1),
          MetricSample(.quarantined, [name.text], 1),
        ]
      }
      return measures.service(id, fleet.status(of: id, now: now, brief: false), now: now.monotonic)
    }
  }
}
