import GuardianLinux
import GuardianModel

/// Guardian's own records: to the journal with fields where systemd started it, else as lines on standard error.
///
/// Never waits for a reader; what is lost is counted and told when there is room again.
final class OwnLog {
  /// As syslog(3) numbers them.
  enum Priority: Int { case error = 3, warning = 4, notice = 5, info = 6 }

  private let journal: JournalRecords?
  private let colour: Bool
  private(set) var dropped = 0

  init() {
    // The journal is the place only if standard error leads there: whoever redirects it wants to read it there.
    let underJournal = environmentVariable("JOURNAL_STREAM").map { $0 == Journal.streamName(of: 2) } ?? false
    journal = underJournal ? JournalRecords() : nil
    colour = StandardError.isTerminal && (environmentVariable("NO_COLOR") ?? "").isEmpty
  }

  func record(_ occurrence: Occurrence) {
    var fields = [("GUARDIAN_SERVICE", occurrence.service.text), ("GUARDIAN_EVENT", occurrence.name)]
    if let run = occurrence.kind.run { fields.append(("GUARDIAN_RUN", run.description)) }
    write(
      occurrence.kind.priority, subject: occurrence.service.text, occurrence.sentence, at: occurrence.at,
      fields: fields, tint: occurrence.kind.tint)
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
    let sentence = printable(sentence, atMost: 2048)
    if let journal {
      return journal.send(
        [
          ("MESSAGE", subject == "guardian" ? sentence : "\(subject): \(sentence)"),
          ("PRIORITY", String(priority.rawValue)), ("SYSLOG_IDENTIFIER", "guardian"),
        ] + fields)
    }
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

extension Occurrence.Kind {
  fileprivate var run: RunID? {
    switch self {
    case .started(let run, _, _, _), .ready(let run), .settled(let run, _), .check(let run, _, _, _): run
    case .ended(let end): end.run
    case .repairStarted(let hook, _, _), .repairEnded(let hook, _, _), .beforeStart(let hook),
      .beforeStartEnded(let hook, _):
      hook
    case .reloading(let run, _), .reloaded(let run), .reloadFailed(let run, _), .leaving(let run),
      .watchdogSet(let run, _), .mainMoved(let run, _):
      run
    case .strike, .lateDeath, .escalated, .deescalated, .backingOff, .quarantined, .trialFailed, .pluginsOff,
      .pluginsOn, .pluginRetryFailed, .released, .held, .holdEnded, .reset, .requested, .stopped, .finished, .waiting,
      .waitingFor, .standingDown, .notCounted, .observed, .stuck, .volatile, .resumed, .commonCause,
      .commonCauseEnded, .internalError:
      nil
    }
  }

  fileprivate var priority: OwnLog.Priority {
    switch self {
    case .quarantined, .internalError, .stuck, .commonCause: .error
    case .ended(let end): end.cause == .exit && end.status == .code(0) || end.crashClass == .ordered ? .info : .warning
    case .strike, .lateDeath, .escalated, .trialFailed, .pluginsOff, .pluginRetryFailed, .waiting, .observed, .volatile,
      .reloadFailed, .notCounted:
      .warning
    case .beforeStartEnded(_, let result): result == .succeeded ? .info : .warning
    case .check(_, _, let passing, _): passing ? .notice : .warning
    case .repairStarted, .repairEnded, .released, .held, .holdEnded, .reset, .requested, .pluginsOn, .deescalated,
      .resumed, .settled, .standingDown, .waitingFor, .commonCauseEnded:
      .notice
    case .started, .ready, .backingOff, .stopped, .finished, .beforeStart: .info
    case .reloading, .reloaded, .leaving, .watchdogSet, .mainMoved: .info
    }
  }

  /// The colour of the sentence on a terminal.
  fileprivate var tint: String {
    switch self {
    case .quarantined, .internalError, .stuck, .commonCause: "\u{1B}[31m"
    case .settled(_, let degraded): degraded ? "\u{1B}[35m" : "\u{1B}[32m"
    case .check(_, _, let passing, _): passing ? "" : "\u{1B}[33m"
    case .escalated, .pluginsOff, .repairStarted, .repairEnded, .trialFailed, .pluginRetryFailed: "\u{1B}[35m"
    case .ended, .strike, .lateDeath, .waiting, .observed, .volatile, .reloadFailed, .notCounted: "\u{1B}[33m"
    case .beforeStartEnded(_, let result): result == .succeeded ? "" : "\u{1B}[33m"
    case .reloading, .reloaded, .leaving, .watchdogSet, .mainMoved: ""
    case .started, .ready, .beforeStart, .deescalated, .backingOff, .pluginsOn, .released, .held, .holdEnded, .reset,
      .requested, .stopped, .finished, .resumed, .waitingFor, .standingDown, .commonCauseEnded:
      ""
    }
  }
}
