import GuardianLinux
import GuardianModel

/// Guardian's own records: to the journal with fields where systemd started it, else as lines on standard error.
/// What happens to a service goes to the journal in either case, where there is one, but never twice.
///
/// Never waits for a reader; what is lost is counted and told when there is room again.
final class OwnLog {
  /// As syslog(3) numbers them.
  enum Priority: Int { case error = 3, warning = 4, notice = 5, info = 6 }

  /// Where guardian's own words go; nil: to standard error.
  private let journal: JournalRecords?
  /// Of events alone, where `journal` is nil.
  private let events: JournalRecords?
  private var eventsLost = 0
  private let colour: Bool
  private(set) var dropped = 0

  init() {
    // The journal is the place only if standard error leads there: whoever redirects it wants to read it there.
    let underJournal = environmentVariable("JOURNAL_STREAM").map { $0 == Journal.streamName(of: 2) } ?? false
    journal = underJournal ? JournalRecords() : nil
    events = journal == nil ? JournalRecords() : nil
    colour = StandardError.isTerminal && (environmentVariable("NO_COLOR") ?? "").isEmpty
  }

  func record(_ occurrence: Occurrence) {
    let sentence = occurrence.sentence
    let fields = journal != nil || events != nil ? occurrence.journalFields : []
    write(
      occurrence.kind.priority, subject: occurrence.service.text, sentence, at: occurrence.at,
      fields: fields, tint: occurrence.kind.tint)
    guard let events else { return }
    if eventsLost > 0,
      events.send(
        Self.entry(.warning, "guardian", "\(eventsLost) events were lost: the journal did not take them", []))
    {
      eventsLost = 0
    }
    if !events.send(Self.entry(occurrence.kind.priority, occurrence.service.text, sentence, fields)) { eventsLost += 1 }
  }

  private static func entry(
    _ priority: Priority, _ subject: String, _ sentence: String, _ fields: [(String, String)]
  ) -> [(String, String)] {
    let sentence = printable(sentence, atMost: 2048)
    return [
      ("MESSAGE", subject == "guardian" ? sentence : "\(subject): \(sentence)"),
      ("PRIORITY", String(priority.rawValue)), ("SYSLOG_IDENTIFIER", "guardian"),
    ] + fields
  }

  /// About guardian itself.
  func note(_ priority: Priority, _ sentence: String) {
    write(
      priority, subject: "guardian", sentence, at: SystemClocks.now().wall, fields: [],
      tint: priority.rawValue <= Priority.warning.rawValue ? "\u{1B}[33m" : "")
  }

  private func write(
    _ priority: Priority, subject: String, _ sentence: String, at wall: WallTime, fields: [(String, String)],
    tint: String
  ) {
    if dropped > 0, send(.warning, "guardian", "\(dropped) records were lost: nobody read them", wall, [], "") {
      dropped = 0
    }
    if !send(priority, subject, sentence, wall, fields, tint) { dropped += 1 }
  }

  private func send(
    _ priority: Priority, _ subject: String, _ sentence: String, _ wall: WallTime, _ fields: [(String, String)],
    _ tint: String
  ) -> Bool {
    if let journal { return journal.send(Self.entry(priority, subject, sentence, fields)) }
    let sentence = printable(sentence, atMost: 2048)
    let time = SystemClocks.timeOfDay(wall)
    let line =
      colour
      ? "\u{1B}[2m\(time)\u{1B}[0m \u{1B}[1m\(subject):\u{1B}[0m \(tint)\(sentence)\(tint.isEmpty ? "" : "\u{1B}[0m")\n"
      : "\(time) \(subject): \(sentence)\n"
    return StandardError.write(line)
  }
}

/// Without control characters, and not longer than `limit` bytes: fit for a terminal, a log and JSON alike.
func printable(_ text: String, atMost limit: Int) -> String {
  // Nearly all of it is plain.
  if text.utf8.count <= limit, text.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7f }) { return text }
  var result = ""
  var bytes = 0
  for scalar in text.unicodeScalars {
    let size = UTF8.width(scalar)
    if bytes + size > limit { return result + "…" }
    bytes += size
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate: result.unicodeScalars.append("\u{FFFD}")
    default: result.unicodeScalars.append(scalar)
    }
  }
  return result
}

extension Occurrence {
  /// Beside MESSAGE and PRIORITY, for `journalctl GUARDIAN_SERVICE=web`. Bounded: an entry is a few KiB.
  var journalFields: [(String, String)] {
    var fields = [
      ("MESSAGE_ID", event.messageID), ("GUARDIAN_SERVICE", service.text), ("GUARDIAN_EVENT", name),
      ("GUARDIAN_EVENT_ID", id.description),
    ]
    var room = 4096
    func add(_ key: String, _ value: String) {
      let value = printable(value, atMost: 512)
      room -= key.utf8.count + value.utf8.count
      if room >= 0 { fields.append((key, value)) }
    }
    for (key, value) in details {
      let name = "GUARDIAN_" + key.uppercased()
      switch value {
      case .text(let text):
        add(name, text)
        // As systemd names it in its own entries about a unit's run, and as the run has it in its environment.
        if key == "run" { add("INVOCATION_ID", text) }
      case .number(let number):
        add(name, String(number))
        // journald looks up whose process that is.
        if key == "pid" { add("OBJECT_PID", String(number)) }
      case .flag(let flag): add(name, flag ? "yes" : "no")
      case .list(let list): add(name, list.joined(separator: " "))
      }
    }
    return fields
  }
}

extension Occurrence.Kind {
  fileprivate var priority: OwnLog.Priority {
    switch self {
    case .quarantined, .internalError, .stuck, .commonCause: .error
    case .ended(let end): end.cause == .exit && end.status == .code(0) || end.crashClass == .ordered ? .info : .warning
    case .strike, .lateDeath, .escalated, .trialFailed, .pluginsOff, .pluginRetryFailed, .pluginsUnconfirmed,
      .mitigation, .searchBegan, .searchSuggested,
      .searchEnded, .goodCopyUsed, .waiting, .observed, .volatile, .reloadFailed, .notCounted, .switchInForce,
      .stepSwitchedOff:
      .warning
    case .switchBroken: .error
    case .beforeStartEnded(_, let result): result == .succeeded ? .info : .warning
    case .check(_, _, let passing, _): passing ? .notice : .warning
    case .repairStarted, .repairEnded, .released, .held, .holdEnded, .reset, .requested, .pluginsOn, .deescalated,
      .resumed, .settled, .standingDown, .waitingFor, .commonCauseEnded, .probing, .probed, .pluginRestart,
      .pluginsChanged, .switchOver:
      .notice
    case .started, .ready, .backingOff, .stopped, .finished, .beforeStart: .info
    case .reloading, .reloaded, .leaving, .watchdogSet, .mainMoved: .info
    }
  }

  /// The colour of the sentence on a terminal.
  fileprivate var tint: String {
    switch self {
    case .quarantined, .internalError, .stuck, .commonCause, .switchBroken: "\u{1B}[31m"
    case .switchInForce, .stepSwitchedOff: "\u{1B}[35m"
    case .settled(_, let degraded): degraded ? "\u{1B}[35m" : "\u{1B}[32m"
    case .check(_, _, let passing, _): passing ? "" : "\u{1B}[33m"
    case .escalated, .pluginsOff, .repairStarted, .repairEnded, .trialFailed, .pluginRetryFailed, .pluginsUnconfirmed,
      .mitigation,
      .searchBegan,
      .searchSuggested, .searchEnded, .goodCopyUsed:
      "\u{1B}[35m"
    case .ended, .strike, .lateDeath, .waiting, .observed, .volatile, .reloadFailed, .notCounted: "\u{1B}[33m"
    case .beforeStartEnded(_, let result): result == .succeeded ? "" : "\u{1B}[33m"
    case .reloading, .reloaded, .leaving, .watchdogSet, .mainMoved: ""
    case .started, .ready, .beforeStart, .deescalated, .backingOff, .pluginsOn, .released, .held, .holdEnded, .reset,
      .requested, .stopped, .finished, .resumed, .waitingFor, .standingDown, .commonCauseEnded, .probing, .probed,
      .pluginRestart, .pluginsChanged, .switchOver:
      ""
    }
  }
}
