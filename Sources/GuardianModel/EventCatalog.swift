/// The number of an event: in the order in which they happened, and its own for ever.
///
/// Microseconds since 1970, moved on where two would have the same or the clock was set back: so it needs no store to
/// be unique, also over a restart of guardian. Events of earlier versions have small numbers.
package struct EventID: Hashable, Comparable, Sendable, CustomStringConvertible {
  package var number: Int64
  package init(_ number: Int64) { self.number = number }
  package static let none = EventID(0)
  package static func < (a: EventID, b: EventID) -> Bool { a.number < b.number }

  /// The first that is free after this one, now.
  package func next(at time: WallTime) -> EventID {
    // Far below the end of Int64: the wall clock has nanoseconds in it.
    EventID(max(number + 1, time.nanoseconds / 1000, 1))
  }

  /// 16 hexadecimal digits.
  package var description: String {
    let text = String(UInt64(bitPattern: number), radix: 16)
    return String(repeating: "0", count: 16 - text.count) + text
  }
  /// - Parameter text: As `description` writes it; any case.
  package init?(_ text: some StringProtocol) {
    guard text.utf8.count == 16, !text.hasPrefix("+"), let number = UInt64(text, radix: 16),
      (1...UInt64(Int64.max / 4)).contains(number)
    else { return nil }
    self.number = Int64(number)
  }
}

/// Every kind of event by its stable word.
package enum EventName: String, Hashable, Sendable, CaseIterable {
  case started
  case ready
  case checkPassing = "check-passing"
  case checkFailing = "check-failing"
  case settled
  case ended
  case strike
  case lateDeath = "late-death"
  case escalated
  case deescalated = "de-escalated"
  case backingOff = "backing-off"
  case repairStarted = "repair-started"
  case repairEnded = "repair-ended"
  case beforeStart = "before-start"
  case beforeStartEnded = "before-start-ended"
  case quarantined
  case trialFailed = "trial-failed"
  case pluginsOff = "plugins-off"
  case pluginsOn = "plugins-on"
  case pluginRetryFailed = "plugin-retry-failed"
  case pluginsUnconfirmed = "plugins-unconfirmed"
  case mitigation
  case searchBegan = "search-began"
  case searchSuggested = "search-suggested"
  case probing
  case probed
  case pluginRestart = "plugin-restart"
  case pluginsChanged = "plugins-changed"
  case searchEnded = "search-ended"
  case goodCopyUsed = "good-copy-used"
  case released
  case held
  case holdEnded = "hold-ended"
  case reset
  case requested
  case stopped
  case finished
  case waiting
  case waitingFor = "waiting-for"
  case standingDown = "standing-down"
  case notCounted = "not-counted"
  case observed
  case stuck
  case volatile
  case resumed
  case commonCause = "common-cause"
  case commonCauseEnded = "common-cause-ended"
  case internalError = "internal-error"
  case reloading
  case reloaded
  case reloadFailed = "reload-failed"
  case leaving
  case watchdogSet = "watchdog-set"
  case mainMoved = "main-moved"
  case switchInForce = "switch-in-force"
  case switchOver = "switch-over"
  case switchBroken = "switch-broken"
  case stepSwitchedOff = "step-switched-off"

  /// The journal's MESSAGE_ID: 32 hexadecimal digits that no other program uses. Never changed once released.
  package var messageID: String {
    switch self {
    case .started: "ae7798c8dfe44efab1acd289eded5630"
    case .ready: "086542ec75154ec79984ffed8100e57c"
    case .checkPassing: "03e18000741040088f9d216e25598b0b"
    case .checkFailing: "9d181a707fe242ea89745c8b3b8b5651"
    case .settled: "c55848c9063f47a18e589f7e00b5a754"
    case .ended: "0f05041fd87f43269055517986e3ada5"
    case .strike: "025cdde144964760b2deac32d809180b"
    case .lateDeath: "52630db880b14b9e9e64aaccfddd6317"
    case .escalated: "9fad1f71bd8d4def9a559397b5388194"
    case .deescalated: "e48f3cc189214832af2dc57bf2fc40eb"
    case .backingOff: "dd7c7171470c4799b2505a262cf82b89"
    case .repairStarted: "b86f24afde0c4803946360405e92662e"
    case .repairEnded: "f3785ef9597e49c0b70ba00c18af482e"
    case .beforeStart: "50523817a7e74c9196d9825f9348d4ec"
    case .beforeStartEnded: "f237df691d7d4d1bad0693d5a9f3aef4"
    case .quarantined: "819eae3a68aa472c81b75ef13b2ccea7"
    case .trialFailed: "b302d7cada674d71ad965879c3315863"
    case .pluginsOff: "f336bac6f24d46cc91ad491c96b7aea5"
    case .pluginsOn: "3d57f73e6bd64701a739b3343b9bd91e"
    case .pluginRetryFailed: "5164c922331c4e01830ae0103fba8a78"
    case .pluginsUnconfirmed: "e2c1c0d9a4f84b0ab3b7c2c65a4f1d37"
    case .mitigation: "c1b7d0e24f0a4d7f9a35e8b2706d9c41"
    case .searchBegan: "5e8629e3809a4ef7a36630ca24673857"
    case .searchSuggested: "fdfd97b472924451a617b477b314fb10"
    case .probing: "7f32857120ae41a98a8b5b179069e654"
    case .probed: "6b3e7e1e746249acaf25c73306ec6e12"
    case .pluginsChanged: "4bb18f6997ba4f388011b8814a9b7447"
    case .pluginRestart: "e3d1d43f4fd14f059b3e70ee56414d78"
    case .searchEnded: "28d935ff6bcc43beae71494ba83e6cec"
    case .goodCopyUsed: "f9d324b93b324001b4a048de5225c791"
    case .released: "f03d94f2577e4698866699c2e9962d4b"
    case .held: "444c14741c5148888c6139f8484d4057"
    case .holdEnded: "26cb5a87cc254fa09d7a22721151c1af"
    case .reset: "f342576864a2420bbd8c9df6a4035454"
    case .requested: "99ebfbebaa2d41558b3e9311128fab7d"
    case .stopped: "6e2966dd784448209f4f613d44bbd538"
    case .finished: "83215b8ec1ad4f3fab7a20f68b09af87"
    case .waiting: "25855e60884649edb5c79fca0e240966"
    case .waitingFor: "75c1e1e61cee4978a75012885ead9c14"
    case .standingDown: "32d14568ad0145e4a4f1f41f3d7ae99e"
    case .notCounted: "b7751db314c84abaac8cc3a6b1adb2b0"
    case .observed: "57a8ec77ea9542419de77ab8ac6fc1ba"
    case .stuck: "e794cecc86a5468e9776f9db591afb8f"
    case .volatile: "c1e1a7de28d34bc6974a1b6fafd3589a"
    case .resumed: "9b0865b88d8641e686b94637ecef4418"
    case .commonCause: "a616c23525d442819c403071fecd0d9b"
    case .commonCauseEnded: "4a3a58b31ebc46d586f50172c6e23886"
    case .internalError: "4754cbdfc0384316b4584e7c6df93632"
    case .reloading: "ca5f923fcb0843b48f6418f4844d17b0"
    case .reloaded: "ad4a8af719af425bb6aeb3717321f353"
    case .reloadFailed: "7e2de1434c024b6fba3ccdb7ccbbdaa4"
    case .leaving: "f4a4a98b6ca640cda2f207e653da9bbf"
    case .watchdogSet: "c0f9b8a057074af3acc5873f737ca8bb"
    case .mainMoved: "1825f2cb1ff8411ca74e61df778be04a"
    case .switchInForce: "8f032b5a2e354758a9918ac09ae0b622"
    case .switchOver: "6e546b5db74448778b05ae15047fb328"
    case .switchBroken: "87acd5f57d9e4060b8cc2786da3fd4e0"
    case .stepSwitchedOff: "02afdca7080147b99f224f3faa112f4a"
    }
  }

  /// For the message catalog: what has happened, behind the service's name.
  package var title: String {
    switch self {
    case .started: "started"
    case .ready: "ready"
    case .checkPassing: "a check is passing"
    case .checkFailing: "a check is failing"
    case .settled: "settled"
    case .ended: "ended"
    case .strike: "a strike"
    case .lateDeath: "a late death"
    case .escalated: "one step up"
    case .deescalated: "one step down"
    case .backingOff: "waits before the next try"
    case .repairStarted: "a repair runs"
    case .repairEnded: "a repair has ended"
    case .beforeStart: "before-start runs"
    case .beforeStartEnded: "before-start has ended"
    case .quarantined: "quarantined"
    case .trialFailed: "a trial has failed"
    case .pluginsOff: "plugins are off"
    case .pluginsOn: "plugins are on again"
    case .pluginRetryFailed: "plugins still crash it"
    case .pluginsUnconfirmed: "that plugins are off is not confirmed"
    case .mitigation: "mitigation @GUARDIAN_MITIGATION@ @GUARDIAN_STATE@"
    case .searchBegan: "searches for the guilty plugin"
    case .searchSuggested: "a plugin is guilty"
    case .probing: "a probe of the search"
    case .probed: "a probe is over"
    case .pluginRestart: "restarts with other plugins"
    case .pluginsChanged: "a plugin that is off has changed"
    case .searchEnded: "the search for the guilty plugin is over"
    case .goodCopyUsed: "a good copy stands in for a changed file"
    case .released: "released from quarantine"
    case .held: "held"
    case .holdEnded: "no longer held"
    case .reset: "counters reset"
    case .requested: "an order"
    case .stopped: "stopped"
    case .finished: "finished"
    case .waiting: "waits for resources"
    case .waitingFor: "waits for another service"
    case .standingDown: "stops with another service"
    case .notCounted: "a death that is not counted"
    case .observed: "would go a step further"
    case .stuck: "processes that cannot be ended"
    case .volatile: "its state is not saved"
    case .resumed: "the machine slept"
    case .commonCause: "several services fail at once"
    case .commonCauseEnded: "the common cause is over"
    case .internalError: "an error in guardian"
    case .reloading: "reloading"
    case .reloaded: "reloaded"
    case .reloadFailed: "a reload has failed"
    case .leaving: "is about to end"
    case .watchdogSet: "will show signs of life"
    case .mainMoved: "has another main process"
    case .switchInForce: "something is switched off"
    case .switchOver: "something is no longer switched off"
    case .switchBroken: "a switch is not valid"
    case .stepSwitchedOff: "a step is switched off"
    }
  }

  /// For the message catalog: what it means, and what can be done.
  package var explanation: String {
    switch self {
    case .started:
      """
      It has been executed as pid @GUARDIAN_PID@. It counts as settled when it is ready, its startup window is over
      and its checks pass; a death before that is a strike.
      """
    case .ready:
      """
      It has said, or shown, that it is ready. Its startup window begins now.
      """
    case .checkPassing:
      """
      The health check @GUARDIAN_CHECK@ passes, after it had not.
      """
    case .checkFailing:
      """
      The health check @GUARDIAN_CHECK@ has failed as often as its definition allows. The service is ended for it,
      which is counted like any other death.
      """
    case .settled:
      """
      It is ready, its startup window is over and its checks pass. Strikes and delay are cleared.

      Degraded means that it runs without its plugins.
      """
    case .ended:
      """
      Its main process is gone: cause @GUARDIAN_CAUSE@, class @GUARDIAN_CLASS@. What became of it follows: a strike, a
      late death, or an end that is not counted. Of a death that nobody asked for there is a report:

          guardianctl crashes @GUARDIAN_SERVICE@
      """
    case .strike:
      """
      This death counts against the service. When the strikes of a step are used up, guardian goes one step further:
      restart, repair, safe-mode, quarantine. What would come next:

          guardianctl plan @GUARDIAN_SERVICE@
      """
    case .lateDeath:
      """
      It died after it had settled, and not more often than `late` in its definition allows: it is restarted at once,
      and no strike is counted.
      """
    case .escalated:
      """
      The strikes of step @GUARDIAN_FROM@ are used up. From now on it is handled by step @GUARDIAN_STEP@.
      """
    case .deescalated:
      """
      It has run well for as long as `escalation.deescalate-after` says, so it is trusted more again.
      """
    case .backingOff:
      """
      The delay grows with each try on a step, up to `backoff.max`. To start it now:

          guardianctl start @GUARDIAN_SERVICE@
      """
    case .repairStarted:
      """
      The repair @GUARDIAN_HOOK@ of its definition runs; the service is started when all repairs of this round are
      over.
      """
    case .repairEnded:
      """
      A repair that failed does not keep the next one, or the start, from happening. One that exits with 125 says that
      the damage cannot be repaired: the service is quarantined.
      """
    case .beforeStart:
      """
      The program that `before-start` names runs; the service is started when it has ended well.
      """
    case .beforeStartEnded:
      """
      Where it failed the service is not started, and the next try waits. That is no crash of the service.
      """
    case .quarantined:
      """
      Neither restarts nor repairs nor a start without plugins have helped, or the damage is one that they cannot
      cure. Nothing of it runs any more but a trial now and then.

      Look at why, mend it, then let it out:

          guardianctl status @GUARDIAN_SERVICE@
          guardianctl crashes @GUARDIAN_SERVICE@
          guardianctl release @GUARDIAN_SERVICE@

      A changed definition or program lets it out by itself.
      """
    case .trialFailed:
      """
      It was started out of quarantine to see whether it works again, and it does not. It stays in quarantine; the
      time to the next trial doubles.
      """
    case .pluginsOff:
      """
      It is started without @GUARDIAN_PLUGINS@, to find out whether it can live without them. They are due to be tried
      again after `plugins.retry-after`.
      """
    case .pluginsOn:
      """
      It runs with its plugins again.
      """
    case .pluginsUnconfirmed:
      """
      It was started without @GUARDIAN_PLUGINS@, and what `plugins.acknowledge` names has not confirmed it. What it does
      now may be what it does with them: look at how they are switched off.
      """
    case .pluginRetryFailed:
      """
      It was started with its plugins again and did not settle. They are off again; the time to the next retry
      doubles.
      """
    case .mitigation:
      """
      What surrounds its program is changed to see whether it crashes less: larger-stack, zeroed-memory,
      immediate-binding or single-cpu. It has begun, is kept because fewer starts fail with it, or is dropped. A run
      with one is degraded: its fault is still there. See mitigate in guardian.yaml(5).
      """
    case .searchBegan:
      """
      It is well without its plugins, so one of @GUARDIAN_PLUGINS@ is to blame. It is started with some of them at a
      time to find out which; such a start that fails is no strike.
      """
    case .searchSuggested:
      """
      It is well without its plugins, so one of @GUARDIAN_PLUGINS@ is to blame. To have it searched for, with a few
      restarts:

          guardianctl plugins @GUARDIAN_SERVICE@ search
      """
    case .probing:
      """
      It is started with some of its plugins to see whether it lives.
      """
    case .probed:
      """
      What became of a start with some of its plugins; the search goes on from it.
      """
    case .pluginsChanged:
      """
      What @GUARDIAN_PLUGINS@ is made of is another now than when it was switched off, so that it may have been mended.
      The next start tries it again. To try it now:

          guardianctl restart @GUARDIAN_SERVICE@
      """
    case .pluginRestart:
      """
      It runs, and is stopped to be started with other plugins: for a search, after one, or because one is due to be
      tried again.
      """
    case .searchEnded:
      """
      Where a plugin was found to be to blame, it is off and is tried again after `plugins.retry-after`; the others
      are on. What is known of each of them:

          guardianctl plugins @GUARDIAN_SERVICE@
      """
    case .goodCopyUsed:
      """
      A file has changed since the service was last well, and may be to blame or is: @GUARDIAN_FILES@. The file is left as
      it is; the service alone sees its last known good copy. When the file is changed once more, it is tried at the next
      start. To try it as it is:

          guardianctl plugins @GUARDIAN_SERVICE@ enable @GUARDIAN_PLUGIN@
      """
    case .released:
      """
      It is let out of quarantine.
      """
    case .held:
      """
      For that time guardian neither starts, stops nor repairs it. To end that early:

          guardianctl hold @GUARDIAN_SERVICE@ --for 0s
      """
    case .holdEnded:
      """
      It is looked after again; where it is wanted and down it is started.
      """
    case .reset:
      """
      Its strikes, step, delay and late deaths have been cleared.
      """
    case .requested:
      """
      Somebody who may has given an order. Orders are never refused and never counted.
      """
    case .stopped:
      """
      Nothing of it runs any more.
      """
    case .finished:
      """
      It has ended, and `restart` in its definition says to leave it.
      """
    case .waiting:
      """
      It could not be started for want of something that guardian or the machine lacks. That is no fault of the
      service and no strike; it is tried again.
      """
    case .waitingFor:
      """
      It starts when @GUARDIAN_OTHER@ is ready.
      """
    case .standingDown:
      """
      It requires @GUARDIAN_OTHER@, which is to be stopped. It comes back with it.
      """
    case .notCounted:
      """
      The death has a reason that is none of the service's own.
      """
    case .observed:
      """
      `mode: observe` is in force: guardian says what it would do, and does not do it.
      """
    case .stuck:
      """
      They are still there after SIGKILL, since the kernel holds them: most often a file system or a device that does
      not answer. The service is not started before they are gone.
      """
    case .volatile:
      """
      The record of the service could not be written in time, and guardian goes on without. After a crash of guardian,
      or of the machine, it may know less than it does now. Look at the disk of the state directory.
      """
    case .resumed:
      """
      Time that passed while nothing could run is in no window and counts against nobody.
      """
    case .commonCause:
      """
      So many services began to loop within so short a time that one cause for all of them is likely: a disk, a
      network, a database. While it lasts no service moves a step up.
      """
    case .commonCauseEnded:
      """
      From now on deaths are counted again as they are.
      """
    case .internalError:
      """
      Something that must not be has been found in guardian. This service is held, so that no harm comes of it; all
      others go on. Please report it, with the lines of the journal before this one.
      """
    case .reloading:
      """
      It reads its configuration again.
      """
    case .reloaded:
      """
      It is ready again after a reload.
      """
    case .reloadFailed:
      """
      The service runs on if it has not ended; what it makes of its configuration is not known.
      """
    case .leaving:
      """
      It has said STOPPING=1.
      """
    case .watchdogSet:
      """
      It has said WATCHDOG_USEC: from now on it has to say WATCHDOG=1 that often.
      """
    case .mainMoved:
      """
      It has said MAINPID: guardian follows pid @GUARDIAN_PID@ now.
      """
    case .switchInForce:
      """
      A file of switches.d turns off, on this host: @GUARDIAN_WHAT@. Its reason: @GUARDIAN_REASON@. It beats the
      definitions of the services, and ends with the file switches.d/@GUARDIAN_FILE@, or at its time.
      """
    case .switchOver:
      """
      What switches.d/@GUARDIAN_FILE@ had turned off is as the definitions of the services say, from their next start on.
      """
    case .switchBroken:
      """
      switches.d/@GUARDIAN_FILE@ cannot be understood and changes nothing; what it said when it was last valid stays in
      force. All of its faults:

          guardianctl check
      """
    case .stepSwitchedOff:
      """
      Step @GUARDIAN_STEP@ was due, or under way, and switches.d/@GUARDIAN_FILE@ has turned it off on this host.
      """
    }
  }

  /// The whole message catalog, as `journalctl --update-catalog` takes it: units/guardian.catalog.
  package static var catalog: String {
    var text = """
      # What guardian's events mean, for 'journalctl -x'. Made from the table of events in the sources; a test compares.

      """
    for event in allCases {
      text += """

        -- \(event.messageID)
        Subject: @GUARDIAN_SERVICE@: \(event.title)
        Defined-By: guardian
        Documentation: man:guardian-ladder(7) man:guardianctl(1)

        \(event.explanation)

        """
    }
    return text
  }
}

/// A fact of an event for machines.
package enum EventValue: Hashable, Sendable {
  case text(String)
  case number(Int64)
  case flag(Bool)
  case list([String])
}

extension Occurrence {
  /// What is particular to this kind, in order: the members of an event's `details`, and with GUARDIAN_ before them and
  /// in capitals the journal's fields. Durations are in milliseconds.
  package var details: [(key: String, value: EventValue)] {
    func text(_ key: String, _ value: String) -> (key: String, value: EventValue) { (key, .text(value)) }
    func number(_ key: String, _ value: some BinaryInteger) -> (key: String, value: EventValue) {
      (key, .number(Int64(clamping: value)))
    }
    func run(_ id: RunID) -> (key: String, value: EventValue) { text("run", id.description) }
    func time(_ key: String, _ time: Duration?) -> [(key: String, value: EventValue)] {
      time.map { [number(key, $0.milliseconds)] } ?? []
    }
    func author(_ author: Author) -> [(key: String, value: EventValue)] {
      var all = [text("by", author.text)]
      guard let caller = author.caller else { return all }
      all.append(number("caller_uid", caller.uid))
      if let user = caller.user { all.append(text("caller_user", user)) }
      all.append(number("caller_pid", caller.pid))
      if !caller.command.isEmpty { all.append(text("caller_command", caller.command)) }
      return all
    }
    func result(_ result: HookResult) -> [(key: String, value: EventValue)] {
      switch result {
      case .succeeded: [text("result", "done")]
      case .cannotRepair: [text("result", "cannot-repair"), number("code", 125)]
      case .failed(let status): [text("result", "failed")] + Self.details(of: status)
      case .timedOut: [text("result", "timed-out")]
      case .aborted: [text("result", "aborted")]
      case .notStarted(let failure): [text("result", "not-started")] + Self.details(of: failure)
      }
    }
    switch kind {
    case .started(let id, let pid, let kind, let off):
      return [run(id), number("pid", pid), text("kind", kind.rawValue)] + (off.isEmpty ? [] : [("plugins", .list(off))])
    case .ready(let id), .reloaded(let id), .leaving(let id): return [run(id)]
    case .check(let id, let name, _, let said):
      return [run(id), text("check", name)] + (said.isEmpty ? [] : [text("reason", said)])
    case .settled(let id, let degraded): return [run(id), ("degraded", .flag(degraded))]
    case .ended(let end):
      var all = [run(end.run), text("cause", end.cause.name), text("class", end.crashClass.rawValue)]
      all += Self.details(of: end.status)
      if case .exec(let failure) = end.cause { all += Self.details(of: failure) }
      all.append(number("uptime_ms", end.uptime.milliseconds))
      if end.leftovers > 0 { all.append(number("leftovers", end.leftovers)) }
      if let signature = end.signature { all.append(text("signature", signature.description)) }
      return all
    case .strike(let step, let count, let allowed):
      return [text("step", step.rawValue), number("strikes", count), number("strikes_allowed", allowed)]
    case .lateDeath(let count, let budget): return [number("late_deaths", count), number("budget", budget)]
    case .escalated(let from, let to, let skipped):
      return [text("from", from.rawValue), text("step", to.rawValue)]
        + (skipped.isEmpty ? [] : [("skipped", .list(skipped.map(\.rawValue)))])
    case .deescalated(let from, let to): return [text("from", from.rawValue), text("step", to.rawValue)]
    case .backingOff(let delay, let next): return time("delay_ms", delay) + [text("step", next.rawValue)]
    case .repairStarted(let hook, let name, let attempt):
      return [run(hook), text("hook", name), number("attempt", attempt)]
    case .repairEnded(let hook, let name, let how): return [run(hook), text("hook", name)] + result(how)
    case .beforeStart(let hook): return [run(hook), text("hook", "before-start")]
    case .beforeStartEnded(let hook, let how): return [run(hook), text("hook", "before-start")] + result(how)
    case .quarantined(let reason, let trial):
      return [text("step", Step.quarantine.rawValue), text("reason", reason)] + time("trial_in_ms", trial)
    case .trialFailed(let next): return time("trial_in_ms", next)
    case .pluginsOff(let names, let retry): return [("plugins", .list(names))] + time("retry_in_ms", retry)
    case .pluginsOn(let names), .pluginsChanged(let names): return [("plugins", .list(names))]
    case .pluginRetryFailed(let next): return time("retry_in_ms", next)
    case .pluginsUnconfirmed(let id, let names): return [run(id), ("plugins", .list(names))]
    case .mitigation(let change):
      var all = [text("mitigation", change.mitigation.rawValue), text("state", change.name)]
      if case .dropped(_, let why) = change { all.append(text("reason", why)) }
      return all
    case .searchBegan(let names), .searchSuggested(let names): return [("plugins", .list(names))]
    case .probing(let count, let on, let off, let full):
      return [number("probe", count), ("on", .list(on)), ("plugins", .list(off)), ("full", .flag(full))]
    case .probed(let count, let outcome):
      let word = outcome == .passed ? "passed" : outcome == .failed ? "failed" : "other-failure"
      return [number("probe", count), text("result", word)]
    case .searchEnded(let result, let probes, let failing):
      var all = [text("result", result.name), number("probes", probes), number("failing", failing)]
      if case .found(let off, _) = result { all.append(("plugins", .list(off))) }
      return all
    case .goodCopyUsed(let plugin, let files):
      return [text("plugin", plugin), ("files", .list(files.map(\.description)))]
    case .released(let why): return [text("reason", why)]
    case .held(let length, let by): return time("for_ms", length) + author(by)
    case .holdEnded, .stopped, .volatile, .commonCauseEnded, .pluginRestart: return []
    case .reset(let by): return author(by)
    case .requested(let verb, let by): return [text("verb", verb)] + author(by)
    case .finished(let crashed): return [("crashed", .flag(crashed))]
    case .waiting(let failure, let retry): return Self.details(of: failure) + time("retry_in_ms", retry)
    case .waitingFor(let other, let required): return [text("other", other.text), ("required", .flag(required))]
    case .standingDown(let other): return [text("other", other.text)]
    case .notCounted(let why): return [text("reason", why)]
    case .observed(let would): return [text("step", would.rawValue)]
    case .stuck(let pids, let since): return [number("processes", pids)] + time("for_ms", since)
    case .resumed(let slept): return time("for_ms", slept)
    case .commonCause(let cause, let freeze):
      return [("services", .list(cause.services.prefix(64).map(\.text)))] + time("freeze_ms", freeze)
    case .internalError(let text): return [("reason", .text(text))]
    case .reloading(let id, let ordered): return [run(id), ("ordered", .flag(ordered))]
    case .reloadFailed(let id, let why): return [run(id), text("reason", why)]
    case .watchdogSet(let id, let interval): return [run(id)] + time("watchdog_ms", interval)
    case .mainMoved(let id, let pid): return [run(id), number("pid", pid)]
    case .switchInForce(let file, let what, let reason, let until):
      return [text("file", file), text("what", what), text("reason", reason)]
        + (until.map { [text("until", $0.rfc3339)] } ?? [])
    case .switchOver(let file, let what, let why):
      return [text("file", file), text("what", what), text("reason", why)]
    case .switchBroken(let file, let why): return [text("file", file), text("reason", why)]
    case .stepSwitchedOff(let step, let file): return [text("step", step.rawValue), text("file", file)]
    }
  }

  private static func details(of status: ExitStatus) -> [(key: String, value: EventValue)] {
    switch status {
    case .code(let code): [("code", .number(Int64(code)))]
    case .signal(let signal, let core): [("signal", .text(signal.description)), ("core", .flag(core))]
    case .unseen: []
    }
  }
  private static func details(of failure: SpawnFailure) -> [(key: String, value: EventValue)] {
    [("stage", .text(failure.stage.name)), ("errno", .number(Int64(failure.errno)))]
  }

  /// `details` as one JSON object: the same bytes in the store and on the wire. Each text is cut at 512 bytes, a list
  /// at 64 elements.
  package var detailsJSON: [UInt8] {
    var out: [UInt8] = [UInt8(ascii: "{")]
    for (index, detail) in details.enumerated() {
      if index > 0 { out.append(UInt8(ascii: ",")) }
      quote(detail.key, into: &out)
      out.append(UInt8(ascii: ":"))
      switch detail.value {
      case .text(let text): quote(text, into: &out)
      case .number(let number): out += String(number).utf8
      case .flag(let flag): out += (flag ? "true" : "false").utf8
      case .list(let list):
        out.append(UInt8(ascii: "["))
        for (index, text) in list.prefix(64).enumerated() {
          if index > 0 { out.append(UInt8(ascii: ",")) }
          quote(text, into: &out)
        }
        out.append(UInt8(ascii: "]"))
      }
    }
    out.append(UInt8(ascii: "}"))
    return out
  }
}

/// Without control characters, quotes escaped, at most 512 bytes.
private func quote(_ text: String, into out: inout [UInt8]) {
  out.append(UInt8(ascii: "\""))
  let start = out.count
  for scalar in text.unicodeScalars {
    if out.count - start + UTF8.width(scalar) > 512 { break }
    switch scalar {
    case "\"", "\\": out += [UInt8(ascii: "\\"), UInt8(truncatingIfNeeded: scalar.value)]
    // Most of all text.
    case " "..."~": out.append(UInt8(truncatingIfNeeded: scalar.value))
    default:
      switch scalar.properties.generalCategory {
      case .control, .lineSeparator, .paragraphSeparator, .surrogate: out += "\u{FFFD}".utf8
      default: out += String(scalar).utf8
      }
    }
  }
  out.append(UInt8(ascii: "\""))
}
