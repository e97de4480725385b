package import GuardianModel

/// One line of a service's log, as people are shown it.
package struct LogEntry: Hashable, Sendable {
  /// Nil: not known.
  package var run: RunID?
  /// RFC 3339; empty for what the logger says.
  package var time = ""
  package var text: [UInt8] = []
  /// It is no line of its own, but belongs to the one before it.
  package var continues = false
  /// The logger's own words, and whether they only say whose lines follow.
  package var isNote = false, isMark = false

  /// As it is in the file, with its end; for a terminal without what would steer it.
  ///
  /// - Parameter width: Of the terminal: the logger's own words are broken there. A service's are left to the terminal.
  package func rendered(escaped: Bool, width: Int? = nil) -> [UInt8] {
    var line: [UInt8] = []
    if isNote, escaped, let width {
      for part in wrap(printable(String(decoding: text, as: UTF8.self)), width: max(18, width - 2)) {
        line += "# \(part)\n".utf8
      }
      return line
    }
    if isNote {
      line += "# ".utf8
    } else if !time.isEmpty {
      line += time.utf8
      line.append(continues ? LogFormat.continuation : LogFormat.newLine)
    }
    // A tab steers nothing but the eye.
    if escaped, !text.allSatisfy({ $0 >= 0x20 && $0 < 0x7f || $0 == 0x09 }) {
      line += printable(String(decoding: text, as: UTF8.self)).utf8
    } else {
      line += text
    }
    line.append(UInt8(ascii: "\n"))
    return line
  }

  package func encode(into json: inout JSONWriter) {
    json.beginObject()
    json.key("time")
    if time.isEmpty { json.null() } else { json.string(time) }
    json.key("run")
    if let run { json.string(run.description) } else { json.null() }
    json.key("text")
    json.string(String(decoding: text, as: UTF8.self))
    json.key("continues")
    json.bool(continues)
    json.key("note")
    json.bool(isNote)
    json.endObject()
  }
}

/// Reads a log file line by line, and picks what is wanted.
package struct LogScanner: Sendable {
  /// The beginning of a run's id; nil: everything.
  private let wanted: String?
  private var run: RunID?
  /// Lines of the run were seen.
  package private(set) var found = false

  package init(run wanted: String?) { self.wanted = wanted }

  /// Another file begins, and says itself whose its lines are.
  package mutating func beginFile() { run = nil }

  /// - Parameter line: Without its end.
  /// - Returns: Nil where it is not wanted.
  package mutating func take(_ line: ArraySlice<UInt8>) -> LogEntry? {
    var entry = LogEntry()
    switch LogFormat.read(line) {
    case .run(let next, _):
      run = next
      entry.text = Array(line.dropFirst(2))
      entry.isNote = true
      entry.isMark = true
    case .note(let note):
      entry.text = Array(note.utf8)
      entry.isNote = true
    case .text(let stamp, let continues, let text):
      entry.time = String(decoding: stamp, as: UTF8.self)
      entry.continues = continues
      entry.text = Array(text)
    case .foreign(let text): entry.text = Array(text)
    }
    entry.run = run
    if let wanted {
      guard let run, run.description.hasPrefix(wanted) else { return nil }
      found = true
    }
    return entry
  }
}

/// One line of a service's stream into the journal.
package struct JournalLine: Hashable, Sendable {
  package var entry: LogEntry
  /// Microseconds since 1970, by journald's clock when it took the line in: a little later than it was written.
  package var at: Int64
  /// Who wrote it; nil: journald does not say.
  package var pid: Int32?
  /// journald's name for the stream; each run has one of its own. Empty: not said.
  package var stream: String
}

/// One line of `journalctl --output=json`; nil for what is none.
package func journalLine(_ line: ArraySlice<UInt8>) -> JournalLine? {
  let parsed = Array(line).withUnsafeBufferPointer { bytes in
    withJSON(bytes) { object -> JournalLine? in
      guard let micro = object["__REALTIME_TIMESTAMP"]?.string.flatMap({ Int64($0) }) else { return nil }
      var entry = LogEntry()
      var stamp = LogStamp()
      stamp.set(WallTime(nanoseconds: micro.multipliedReportingOverflow(by: 1000).partialValue))
      entry.time = String(decoding: stamp.bytes, as: UTF8.self)
      if let message = object["MESSAGE"] {
        // What is no text comes as a list of numbers.
        if message.isArray {
          entry.text = message.elements.map { UInt8(truncatingIfNeeded: $0.integer ?? 0) }
        } else {
          entry.text = message.withBytes { Array($0) } ?? []
        }
      }
      return JournalLine(
        entry: entry, at: micro, pid: object["_PID"]?.string.flatMap { Int32($0) },
        stream: object["_STREAM_ID"]?.string ?? "")
    }
  }
  guard case .success(let line) = parsed else { return nil }
  return line
}

/// Those of one run: of the streams that its main process has written to, whoever else wrote to them. Where it has said
/// nothing itself, of the streams that began while it lived.
///
/// - Parameters:
///   - begun: Microseconds since 1970, not later than its first instruction; `ended` likewise.
package func journalLines(_ lines: [JournalLine], pid: Int32, begun: Int64, ended: Int64) -> [JournalLine] {
  var streams = Set(lines.filter { $0.pid == pid && $0.at >= begun }.map(\.stream))
  if streams.isEmpty {
    var seen: Set<String> = []
    for line in lines where seen.insert(line.stream).inserted && line.at >= begun && line.at <= ended {
      streams.insert(line.stream)
    }
  }
  return lines.filter { streams.contains($0.stream) && $0.at >= begun }
}

/// Of `journalctl --output=json GUARDIAN_RUN=ID`: from when to when the run was there, microseconds since 1970; `until` is nil
/// while nobody has said that it ended. `pid`: of its main process; nil: not said.
package func journalSpan(_ output: [UInt8]) -> (since: Int64, until: Int64?, pid: Int32?)? {
  var span: (since: Int64, until: Int64?, pid: Int32?)?
  for line in output.split(separator: UInt8(ascii: "\n")) {
    let parsed = Array(line).withUnsafeBufferPointer { bytes in
      withJSON(bytes) { object in
        (
          object["__REALTIME_TIMESTAMP"]?.string.flatMap { Int64($0) }, object["GUARDIAN_EVENT"]?.string,
          object["OBJECT_PID"]?.string.flatMap { Int32($0) }
        )
      }
    }
    guard case .success((let time?, let event, let pid)) = parsed else { continue }
    if span == nil { span = (time, nil, nil) }
    if event == "started" { span?.pid = pid }
    if event == "ended" { span?.until = time }
  }
  return span
}
