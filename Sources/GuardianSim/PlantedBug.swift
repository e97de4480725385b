import GuardianCore
import GuardianModel

/// Faults put on purpose between the fleet and the world. A simulator is believed once it has caught them.
package enum PlantedBug: String, Hashable, Sendable, CaseIterable {
  /// The machine is told that a save is durable as soon as it has asked for it.
  case unsavedStart = "unsaved-start"
  /// Now and then a start is performed twice.
  case doubleSpawn = "double-spawn"
  /// Now and then the news of a death gets lost.
  case lostDeath = "lost-death"
  /// A service that has just been given up is started once more as if nothing had happened.
  case restartInQuarantine = "restart-in-quarantine"
  /// From step restart straight to safe mode, although there is something to repair.
  case twoStepsAtOnce = "two-steps-at-once"
  /// Now and then the strikes are forgotten before the next one is counted.
  case forgottenStrikes = "forgotten-strikes"
  /// Now and then the answer to an operator gets lost.
  case lostAnswer = "lost-answer"
  /// Deadlines come 300 ms before their time.
  case impatience
  /// Now and then the answer of a probe is told the other way round.
  case probeInverted = "probe-inverted"
  /// What a run leaves behind is declared gone before it is.
  case emptiedTooSoon = "emptied-too-soon"
  /// The failure of what runs before a start is taken for success.
  case unpreparedStart = "unprepared-start"
  /// Now and then a reload goes on for ever, for all that anybody is told.
  case endlessReload = "endless-reload"
  /// The governor lets twice as many start as it may.
  case doubleRate = "double-rate"
  /// A common cause is reported, and escalation goes on.
  case thawed
  /// What guardian itself has restored is taken for an operator's cure.
  case ownCure = "own-cure"
  /// Every file that has a good copy is taken to be another than that.
  case everyFileSuspect = "every-file-suspect"
  /// A program is said to have confirmed that its plugins are off as soon as it is there.
  case rashConfirmation = "rash-confirmation"
  /// Plugin directories are all empty to the fleet.
  case blindToEntries = "blind-to-entries"
  /// A search's start has all plugins on, whatever the search has asked for.
  case wrongSet = "wrong-set"
  /// A probe that died is held against the service.
  case probeCounted = "probe-counted"
  /// Each notice is told a dozen times.
  case noticeFlood = "notice-flood"
  /// Switches of the host come and go, and the fleet is not told.
  case deafToSwitches = "deaf-to-switches"
  /// Mitigations are handed out unasked.
  case eagerMitigation = "eager-mitigation"
  /// A service that was well once is well for ever, for all that a table is told.
  case staleTable = "stale-table"
}

/// The fleet under test, with or without a planted bug. Without one it adds nothing.
struct Subject {
  var fleet: Fleet
  let bug: PlantedBug?
  private var count = 0
  private var lastSpawn: [ServiceID: StartRequest] = [:]
  private var preparing: Set<RunID> = []
  private var cause: CommonCauseSpec?
  private var wasWell: Set<ServiceID> = []

  init(fleet: Fleet, bug: PlantedBug?) {
    self.fleet = fleet
    self.bug = bug
  }

  mutating func govern(_ governor: GovernorSpec?, _ cause: CommonCauseSpec?, now: Now) {
    var governor = governor
    if bug == .doubleRate {
      governor?.startsPerSecond *= 2
      governor?.concurrent *= 2
    }
    self.cause = cause
    fleet.govern(governor, now: now)
    fleet.watchCommonCauses(cause, now: now)
  }

  mutating func allIsWell(with id: ServiceID, now: Now) -> (uptimeMilliseconds: Int64, restarts: Int)? {
    let told = fleet.allIsWell(with: id, now: now)
    guard bug == .staleTable else { return told }
    if told != nil { wasWell.insert(id) }
    return told ?? (wasWell.contains(id) ? (0, 0) : nil)
  }

  /// True once in `n` opportunities.
  private mutating func once(in n: Int) -> Bool {
    count += 1
    return count % n == 0
  }

  mutating func handle(_ event: ServiceEvent, for id: ServiceID, now: Now) {
    guard let bug else { return fleet.handle(event, for: id, now: now) }
    switch (bug, event) {
    case (.ownCure, .filesSeen(let sights)):
      let taken = sights.map { sight in
        var sight = sight
        sight.restored = false
        return sight
      }
      return fleet.handle(.filesSeen(taken), for: id, now: now)
    case (.everyFileSuspect, .filesSeen(var sights)):
      for place in sights.indices { sights[place].change = FileChange(path: sights[place].path, at: nil) }
      return fleet.handle(.filesSeen(sights), for: id, now: now)
    case (.rashConfirmation, .spawned(let run, _, _, _)):
      fleet.handle(event, for: id, now: now)
      return fleet.handle(.pluginsConfirmed(run), for: id, now: now)
    case (.blindToEntries, .pluginsFound(let directory, _)):
      return fleet.handle(.pluginsFound(directory, []), for: id, now: now)
    case (.lostDeath, .ended):
      if once(in: 50) { return }
    case (.probeInverted, .probed(let run, let number, let result)):
      guard once(in: 3) else { break }
      let other: ProbeResult =
        switch result {
        case .passed(let text): .failed(text)
        case .failed(let text): .passed(text)
        case .notMade: result
        }
      return fleet.handle(.probed(run, number: number, other), for: id, now: now)
    case (.forgottenStrikes, .ended):
      if once(in: 5) { fleet.order(Command(.reset, by: "nobody"), for: id, request: nil, wait: false, now: now) }
    case (.unpreparedStart, .hookEnded(let hook, _)) where preparing.remove(hook) != nil:
      return fleet.handle(.hookEnded(hook, .succeeded), for: id, now: now)
    case (.emptiedTooSoon, .ended(let run, let death)) where death.leftovers > 0:
      fleet.handle(event, for: id, now: now)
      fleet.handle(.emptied(run), for: id, now: now)
      return
    default: break
    }
    fleet.handle(event, for: id, now: now)
  }

  mutating func passTime(now: Now) {
    fleet.passTime(now: bug == .impatience ? now.advanced(by: .milliseconds(300)) : now)
  }

  mutating func takeOutput(now: Now) -> [Fleet.Output] {
    let output = fleet.takeOutput()
    guard let bug else { return output }
    var changed: [Fleet.Output] = []
    for item in output {
      switch (bug, item) {
      case (.unsavedStart, .act(let id, .save(_, let ticket))): fleet.handle(.saved(ticket), for: id, now: now)
      case (.unpreparedStart, .act(_, .runHook(let hook))):
        if hook.purpose == .beforeStart { preparing.insert(hook.id) }
      case (.doubleSpawn, .act(_, .spawn)):
        if once(in: 100) { changed.append(item) }
      case (.eagerMitigation, .act(let id, .spawn(var request))):
        if once(in: 20) {
          request.mitigation = MitigationOrder(.zeroedMemory, build: 1)
          changed.append(.act(id, .spawn(request)))
          continue
        }
      case (.restartInQuarantine, .act(let id, .spawn(let request))): lastSpawn[id] = request
      case (.wrongSet, .act(let id, .spawn(let request))) where request.kind == .probe:
        changed.append(
          .act(id, .spawn(StartRequest(run: request.run, kind: .probe, disabledPlugins: [], spec: request.spec))))
        continue
      case (.probeCounted, .act(let id, .record(let occurrence))):
        if case .probed(_, .failed) = occurrence.kind {
          changed.append(item)
          var wrong = occurrence
          wrong.kind = .strike(step: .safeMode, count: 1, allowed: 2)
          changed.append(.act(id, .record(wrong)))
          continue
        }
      case (.restartInQuarantine, .act(let id, .record(let occurrence))):
        if case .quarantined = occurrence.kind, let last = lastSpawn[id] {
          changed.append(item)
          let again = RunID(high: last.run.low, low: last.run.high &+ 1)
          changed.append(
            .act(id, .spawn(StartRequest(run: again, kind: .ordinary, disabledPlugins: [], spec: last.spec))))
          continue
        }
      case (.twoStepsAtOnce, .act(let id, .record(let occurrence))):
        if case .escalated(.restart, .repair, let skipped) = occurrence.kind {
          var wrong = occurrence
          wrong.kind = .escalated(from: .restart, to: .safeMode, skipped: skipped)
          changed.append(.act(id, .record(wrong)))
          continue
        }
      case (.endlessReload, .act(_, .record(let occurrence))):
        switch occurrence.kind {
        case .reloaded, .reloadFailed: if once(in: 10) { continue }
        default: break
        }
      case (.thawed, .commonCause(nil)): continue
      case (.thawed, .commonCause):
        fleet.watchCommonCauses(nil, now: now)
        fleet.watchCommonCauses(cause, now: now)
      case (.noticeFlood, .act(_, .notify)):
        for _ in 1..<12 { changed.append(item) }
      case (.lostAnswer, .answer):
        if once(in: 20) { continue }
      default: break
      }
      changed.append(item)
    }
    return bug == .unsavedStart ? changed + fleet.takeOutput() : changed
  }
}
