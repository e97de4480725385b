/// One fact of a service's history: logged, kept, streamed.
package struct Occurrence: Hashable, Sendable {
  package var service: ServiceName
  package var at: WallTime
  package var kind: Kind
  /// Given when it is recorded; until then it has none.
  package var id = EventID.none
  package init(service: ServiceName, at: WallTime, kind: Kind) {
    self.service = service
    self.at = at
    self.kind = kind
  }

  package enum Kind: Hashable, Sendable {
    case started(run: RunID, pid: Int32, kind: RunKind, disabledPlugins: [String])
    case ready(run: RunID)
    /// A check has come to another state than before; `said` is the text of the last probe.
    case check(run: RunID, name: String, passing: Bool, said: String)
    case settled(run: RunID, degraded: Bool)
    case ended(End)
    case strike(step: Step, count: Int, allowed: Int)
    case lateDeath(count: Int, budget: Int)
    case escalated(from: Step, to: Step, skipped: [Step])
    case deescalated(from: Step, to: Step)
    case backingOff(delay: Duration, next: Step)
    case repairStarted(hook: RunID, name: String, attempt: Int)
    case repairEnded(hook: RunID, name: String, result: HookResult)
    case beforeStart(hook: RunID)
    case beforeStartEnded(hook: RunID, result: HookResult)
    case quarantined(reason: String, trialIn: Duration?)
    case trialFailed(nextIn: Duration?)
    case pluginsOff(names: [String], retryIn: Duration)
    case pluginsOn(names: [String])
    case pluginRetryFailed(nextIn: Duration)
    /// Its startup window is over, and nothing has confirmed that they are off.
    case pluginsUnconfirmed(run: RunID, names: [String])
    case mitigation(MitigationChange)
    /// It is settled in safe mode, and one of these is to blame.
    case searchBegan(plugins: [String])
    case searchSuggested(plugins: [String])
    /// The search wants a start with these on; `full`: for the whole startup window.
    case probing(number: Int, on: [String], off: [String], full: Bool)
    case probed(number: Int, outcome: ProbeOutcome)
    /// It is stopped, to be started with other plugins.
    case pluginRestart
    /// They were off, and are due now.
    case pluginsChanged(names: [String])
    case searchEnded(SearchResult, probes: Int, failing: Int)
    /// This plugin is off, and the service sees the last known good copies of these files from its next start on.
    case goodCopyUsed(plugin: String, files: [FileChange])
    case released(why: String)
    case held(for: Duration, by: Author)
    case holdEnded
    case reset(by: Author)
    /// Of guardian itself too: reload, upgrade, reset, drill.
    case requested(verb: String, by: Author)
    case stopped
    case finished(crashed: Bool)
    case waiting(SpawnFailure, retryIn: Duration)
    /// Other services come first; one of them.
    case waitingFor(ServiceName, required: Bool)
    /// What it requires is being stopped.
    case standingDown(for: ServiceName)
    /// Its death is no strike and no late death.
    case notCounted(why: String)
    /// What mode observe would have done.
    case observed(would: Step)
    case stuck(pids: Int, since: Duration)
    case volatile
    case resumed(slept: Duration)
    /// Told of the service with which it was noticed.
    case commonCause(CommonCause, freeze: Duration)
    case commonCauseEnded
    case internalError(String)
    /// `ordered`: asked for; else it does so by itself.
    case reloading(run: RunID, ordered: Bool)
    case reloaded(run: RunID)
    /// The run goes on, if it has not ended meanwhile.
    case reloadFailed(run: RunID, why: String)
    /// It has said STOPPING=1.
    case leaving(run: RunID)
    /// It has said WATCHDOG_USEC.
    case watchdogSet(run: RunID, Duration)
    /// It has said MAINPID.
    case mainMoved(run: RunID, pid: Int32)
    /// A file of `switches.d`, by its name, turns this off.
    case switchInForce(file: String, what: String, reason: String, until: WallTime?)
    case switchOver(file: String, what: String, why: String)
    /// It changes nothing.
    case switchBroken(file: String, why: String)
    /// A step that was due is not taken.
    case stepSwitchedOff(Step, file: String)
  }

  /// Whom events are told of that are no service's, or many services'.
  package static let guardian = ServiceName.guardian

  package var event: EventName {
    switch kind {
    case .started: .started
    case .ready: .ready
    case .check(_, _, let passing, _): passing ? .checkPassing : .checkFailing
    case .settled: .settled
    case .ended: .ended
    case .strike: .strike
    case .lateDeath: .lateDeath
    case .escalated: .escalated
    case .deescalated: .deescalated
    case .backingOff: .backingOff
    case .repairStarted: .repairStarted
    case .repairEnded: .repairEnded
    case .beforeStart: .beforeStart
    case .beforeStartEnded: .beforeStartEnded
    case .quarantined: .quarantined
    case .trialFailed: .trialFailed
    case .pluginsOff: .pluginsOff
    case .pluginsOn: .pluginsOn
    case .pluginRetryFailed: .pluginRetryFailed
    case .pluginsUnconfirmed: .pluginsUnconfirmed
    case .mitigation: .mitigation
    case .searchBegan: .searchBegan
    case .searchSuggested: .searchSuggested
    case .probing: .probing
    case .probed: .probed
    case .pluginRestart: .pluginRestart
    case .pluginsChanged: .pluginsChanged
    case .searchEnded: .searchEnded
    case .goodCopyUsed: .goodCopyUsed
    case .released: .released
    case .held: .held
    case .holdEnded: .holdEnded
    case .reset: .reset
    case .requested: .requested
    case .stopped: .stopped
    case .finished: .finished
    case .waiting: .waiting
    case .waitingFor: .waitingFor
    case .standingDown: .standingDown
    case .notCounted: .notCounted
    case .observed: .observed
    case .stuck: .stuck
    case .volatile: .volatile
    case .resumed: .resumed
    case .commonCause: .commonCause
    case .commonCauseEnded: .commonCauseEnded
    case .internalError: .internalError
    case .reloading: .reloading
    case .reloaded: .reloaded
    case .reloadFailed: .reloadFailed
    case .leaving: .leaving
    case .watchdogSet: .watchdogSet
    case .mainMoved: .mainMoved
    case .switchInForce: .switchInForce
    case .switchOver: .switchOver
    case .switchBroken: .switchBroken
    case .stepSwitchedOff: .stepSwitchedOff
    }
  }

  /// Stable, for machines: `io.guardian` events and the journal's GUARDIAN_EVENT field.
  package var name: String { event.rawValue }
}

/// `1 process`, `2 processes`.
package func processes(_ count: Int) -> String { count == 1 ? "1 process" : "\(count) processes" }
/// `1 line`, `2 lines`: a noun that takes an s.
package func counted(_ count: Int, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }

extension End {
  /// It came to an exec: there is a time after which it ended.
  package var hadBegun: Bool { if case .exec = cause { false } else { true } }

  /// `exit 1`, `SIGSEGV (core dumped)`, `out of memory`, `not ready within start-timeout`, …
  package var description: String {
    let how =
      switch status {
      case .code(let code): "exit \(code)"
      case .signal(let signal, let core): "SIG\(signal)" + (core ? " (core dumped)" : "")
      case .unseen: "its end was not seen"
      }
    switch cause {
    case .exit, .signal: return how
    case .oom(let certain): return certain ? "out of memory" : "perhaps out of memory (\(how))"
    case .watchdog: return "watchdog missed (\(how))"
    case .startTimeout: return "not ready within start-timeout (\(detail.isEmpty ? how : "\(detail); \(how)"))"
    case .check: return detail.isEmpty ? "check failed (\(how))" : "check \(detail) (\(how))"
    case .exec(let failure): return failure.sentence
    case .killed: return "killed from outside (\(how))"
    case .unknown: return "gone, nobody saw how"
    case .host: return "the machine went down"
    }
  }
}

extension SearchResult {
  package var sentence: String {
    switch self {
    case .found(let off, let with?): "\(off.joined(separator: ", ")) off, to blame together with \(with)"
    case .found(let off, nil) where off.isEmpty: "with all plugins on it is well now"
    case .found(let off, nil): "\(off.joined(separator: ", ")) off, to blame"
    case .notAPlugin: "it seems to be no plugin's fault; all stay off"
    case .exhausted(let what): "not found (\(what) used up); all stay off"
    case .abandoned: "given up; all stay off"
    }
  }
  package var name: String {
    switch self {
    case .found: "found"
    case .notAPlugin: "not-a-plugin"
    case .exhausted: "exhausted"
    case .abandoned: "abandoned"
    }
  }
}

extension Occurrence {
  /// One sentence, without the service's name.
  package var sentence: String {
    func list(_ names: [String]) -> String { names.joined(separator: ", ") }
    switch kind {
    case .started(_, let pid, let kind, let off):
      var text = "started, pid \(pid)"
      switch kind {
      case .ordinary: break
      case .trial: text += ", as a trial"
      case .pluginRetry: text += ", with a plugin on again for a try"
      case .probe: text += ", as a probe"
      }
      return off.isEmpty ? text : text + ", without \(list(off))"
    case .ready: return "ready"
    case .check(_, let name, let passing, let said):
      return "check \(name) is \(passing ? "passing" : "failing")" + (said.isEmpty ? "" : ": \(said)")
    case .settled(_, let degraded): return degraded ? "settled, degraded" : "settled"
    case .ended(let end):
      return (end.hadBegun ? "ended after \(end.uptime.description): " : "did not start: ") + end.description
        + (end.leftovers > 0 ? ", leaving \(processes(end.leftovers)) behind" : "")
    case .strike(let step, let count, let allowed):
      // 0: no number of strikes ends this step, as with `escalation: off`.
      return "strike \(count)" + (allowed > 0 ? " of \(allowed)" : "") + " on step \(step.rawValue)"
    case .lateDeath(let count, let budget): return "late death \(count) of \(budget), no strike"
    case .escalated(let from, let to, let skipped):
      return "step \(from.rawValue) → \(to.rawValue)"
        + (skipped.isEmpty ? "" : ", nothing to do on \(list(skipped.map(\.rawValue)))")
    case .deescalated(let from, let to): return "step \(from.rawValue) → \(to.rawValue) after running well"
    case .backingOff(let delay, let next): return "next try in \(delay.description) (step \(next.rawValue))"
    case .repairStarted(_, let name, let attempt): return "repair \(name), round \(attempt)"
    case .repairEnded(_, let name, let result): return "repair \(name) \(result.description)"
    case .beforeStart: return "before-start runs"
    case .beforeStartEnded(_, let result): return "before-start \(result.description)"
    case .quarantined(let reason, let trial):
      return "quarantined: \(reason); " + (trial.map { "a trial in \($0.description)" } ?? "no trial by itself")
    case .trialFailed(let next):
      return "trial failed; " + (next.map { "the next in \($0.description)" } ?? "no further trial by itself")
    case .pluginsOff(let names, let retry):
      return "plugins off: \(list(names)); due again in \(retry.description)"
    case .pluginsOn(let names): return "plugins on again: \(list(names))"
    case .pluginsUnconfirmed(_, let names):
      return "it has not confirmed that plugins are off: \(list(names))"
    case .mitigation(let change): return change.sentence
    case .pluginRetryFailed(let next): return "plugins still crash it, off again; due again in \(next.description)"
    case .searchBegan(let names): return "one of \(names.count) plugins is to blame; searching for it"
    case .searchSuggested(let names):
      return "one of \(names.count) plugins is to blame; `plugins NAME search` would search for it"
    case .probing(let number, let on, let off, let full):
      let what = off.isEmpty ? "all plugins on" : "\(list(off)) off" + (on.isEmpty ? "" : ", \(list(on)) on")
      return "probe \(number): \(what)" + (full ? ", for the whole startup window" : "")
    case .probed(let number, let outcome):
      switch outcome {
      case .passed: return "probe \(number) passed"
      case .failed: return "probe \(number) failed as before"
      case .otherFailure: return "probe \(number) failed, but in another way"
      }
    case .pluginsChanged(let names): return "\(list(names)) changed, and will be tried at the next start"
    case .pluginRestart: return "stops, to be started with other plugins"
    case .searchEnded(let result, let probes, let failing):
      return "the search is over: \(result.sentence) (\(counted(probes, "probe")), \(failing) of them failed)"
    case .goodCopyUsed(let plugin, let files):
      return "\(plugin) is off: in place of \(list(files.map(\.description))) it sees the last known good copy"
    case .released(let why): return "released: \(why)"
    case .held(let time, let by): return "held for \(time.description) by \(by)"
    case .holdEnded: return "hold ended"
    case .reset(let by): return "counters reset by \(by)"
    case .requested(let verb, let by): return "\(verb) asked for by \(by)"
    case .stopped: return "stopped"
    case .finished(let crashed): return crashed ? "finished with a crash; restart says to leave it" : "finished"
    case .waiting(let failure, let retry):
      return "waiting for resources: \(failure.sentence); next try in \(retry.description)"
    case .waitingFor(let name, let required):
      return required ? "waits for \(name), which it requires" : "starts after \(name)"
    case .standingDown(let name): return "stops, since it requires \(name), which is to be stopped"
    case .notCounted(let why): return "this death is not counted: \(why)"
    case .observed(let would): return "observe mode: would take step \(would.rawValue) now"
    case .stuck(let pids, let since):
      return "\(processes(pids)) still there \(since.description) after SIGKILL; the kernel has not let them go"
    case .volatile: return "the state could not be saved in time; going on without"
    case .resumed(let slept): return "the clock stood for \(slept.description); windows extended"
    case .reloading(_, let ordered): return ordered ? "reloading" : "reloading by itself"
    case .reloaded: return "reloaded"
    case .reloadFailed(_, let why): return "the reload failed: \(why)"
    case .leaving: return "says that it is stopping"
    case .watchdogSet(_, let interval): return "will show life every \(interval.description)"
    case .mainMoved(_, let pid): return "its main process is pid \(pid) now"
    case .switchInForce(let file, let what, let reason, let until):
      return "switched off by \(file): \(what)" + (until.map { " until \($0.rfc3339Second)" } ?? "") + ": \(reason)"
    case .switchOver(let file, let what, let why): return "no longer switched off by \(file): \(what); \(why)"
    case .switchBroken(let file, let why): return "switch \(file) is not valid and changes nothing: \(why)"
    case .stepSwitchedOff(let step, let file): return "step \(step.rawValue) is switched off by \(file)"
    case .commonCause(let cause, let freeze):
      return "common cause: \(cause.sentence); escalation is frozen for \(freeze.description)"
    case .commonCauseEnded: return "the common cause is over: escalation goes on"
    case .internalError(let text): return "internal error: \(text); this service is held, please report it"
    }
  }
}
