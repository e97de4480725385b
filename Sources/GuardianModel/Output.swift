/// The last words of one run of a service or of a hook, as far as anybody kept them.
package struct LastOutput: Hashable, Sendable {
  /// Oldest first, without the time that the log has before them and without line ends; what was no UTF-8 is replaced.
  /// May hold any character, control characters among them.
  package var lines: [String] = []
  /// There was more before them.
  package var truncated = false
  /// Why there are none, or perhaps not all, one sentence: `not captured (log: inherit)`. Nil: these are the last ones.
  package var missing: String?

  package init(lines: [String] = [], truncated: Bool = false, missing: String? = nil) {
    self.lines = lines
    self.truncated = truncated
    self.missing = missing
  }

  /// So many lines, or so many bytes, whichever is less.
  package static let mostLines = 200, mostBytes = 64 << 10
  /// Whoever asks is answered within this.
  package static let patience = Duration.seconds(2)

  /// The last of `lines` that fit. Of a line that alone is too long the end is kept.
  package init(lastOf lines: [String]) {
    var bytes = 0, first = lines.count
    while first > 0, lines.count - first < Self.mostLines {
      let size = lines[first - 1].utf8.count + 1
      guard bytes + size <= Self.mostBytes else { break }
      bytes += size
      first -= 1
    }
    self.lines = Array(lines[first...])
    truncated = first > 0
    if self.lines.isEmpty, let last = lines.last {
      self.lines = [String(decoding: Array(last.utf8.suffix(Self.mostBytes)), as: UTF8.self)]
    }
  }
}

/// How the files of `log: file` are kept: `logs:` of guardian.yaml.
package struct LogsSpec: Hashable, Sendable {
  /// Nil: guardian's own directory for logs.
  package var directory: String?
  /// A file that is larger is put aside.
  package var rotate: UInt64 = 10 << 20
  /// A file that is older is put aside too.
  package var age: Duration?
  /// So many that were put aside are kept of each service.
  package var keep = 10
  /// And so many bytes of all services together.
  package var total: UInt64 = 1 << 30
  package var compress = Compression.nothing
  package var full = Full.drop
  package init() {}

  package enum Compression: String, Hashable, Sendable, CaseIterable { case nothing = "none", gzip }
  /// What happens to output that the disk does not take.
  package enum Full: String, Hashable, Sendable, CaseIterable {
    /// It is dropped and counted, and the service runs on.
    case drop
    /// The service waits.
    case wait
  }
}

// What guardian and `guardian-logger` say to each other, over a socket that keeps messages apart. Neither trusts the
// other's bytes: they may be of two builds, since the logger outlives the guardian that started it.

/// What guardian wants of `guardian-logger`.
package enum LogOrder: Hashable, Sendable {
  /// First of all, and again when it has changed. What the logger holds is told after it.
  case configure(LogsSpec, directory: String)
  /// The read end of a run's pipe comes with it.
  case take(RunID, service: ServiceName)
  /// Nobody of the run is left: when its pipe is empty it need not be kept open.
  case ended(RunID)
  /// For the last output of a run.
  case show(UInt64, RunID, service: ServiceName)
  /// Write what is there, and end.
  case finish

  package static let largest = 8192
}

/// What `guardian-logger` has to tell.
package enum LogNews: Hashable, Sendable {
  /// A duplicate of the read end comes with it. Of all that it had when guardian came.
  case held(RunID, service: ServiceName)
  /// That was all of it.
  case ready
  /// Nobody writes there any more, and all of it has been written.
  case closed(RunID)
  case shown(UInt64, LastOutput)
  /// The output of the service cannot be written, and why.
  case trouble(ServiceName, String)
  /// It can again; so many bytes were dropped.
  case recovered(ServiceName, dropped: UInt64)
  /// About the logger itself.
  case note(String)

  package static let largest = 128 << 10
}

extension LogOrder {
  package var bytes: [UInt8] {
    var out = WireWriter()
    switch self {
    case .configure(let spec, let directory):
      out.number(1)
      out.text(directory)
      out.number(spec.rotate)
      out.number(UInt64(clamping: spec.age?.nanoseconds ?? 0))
      out.number(UInt64(clamping: spec.keep))
      out.number(spec.total)
      out.text(spec.compress.rawValue)
      out.text(spec.full.rawValue)
    case .take(let run, let service):
      out.number(2)
      out.run(run)
      out.text(service.text)
    case .ended(let run):
      out.number(3)
      out.run(run)
    case .show(let number, let run, let service):
      out.number(4)
      out.number(number)
      out.run(run)
      out.text(service.text)
    case .finish: out.number(5)
    }
    return out.bytes
  }

  /// Nil for what is no order. What follows a known order is passed over: a newer guardian may say more.
  package init?(_ bytes: [UInt8]) {
    var wire = WireReader(bytes)
    switch wire.number() {
    case 1:
      var spec = LogsSpec()
      guard let directory = wire.text(), let rotate = wire.number(), let age = wire.duration(),
        let keep = wire.number(), let total = wire.number(), let compress = wire.text(), let full = wire.text()
      else { return nil }
      spec.rotate = rotate
      spec.age = age > .zero ? age : nil
      spec.keep = Int(clamping: keep)
      spec.total = total
      spec.compress = LogsSpec.Compression(rawValue: compress) ?? .nothing
      spec.full = LogsSpec.Full(rawValue: full) ?? .drop
      self = .configure(spec, directory: directory)
    case 2:
      guard let run = wire.run(), let service = wire.service() else { return nil }
      self = .take(run, service: service)
    case 3:
      guard let run = wire.run() else { return nil }
      self = .ended(run)
    case 4:
      guard let number = wire.number(), let run = wire.run(), let service = wire.service() else { return nil }
      self = .show(number, run, service: service)
    case 5: self = .finish
    default: return nil
    }
  }
}

extension LogNews {
  package var bytes: [UInt8] {
    var out = WireWriter()
    switch self {
    case .held(let run, let service):
      out.number(1)
      out.run(run)
      out.text(service.text)
    case .ready: out.number(2)
    case .closed(let run):
      out.number(3)
      out.run(run)
    case .shown(let number, let output):
      out.number(4)
      out.number(number)
      out.texts(output.lines)
      out.number(output.truncated ? 1 : 0)
      out.optional(output.missing)
    case .trouble(let service, let why):
      out.number(5)
      out.text(service.text)
      out.text(why)
    case .recovered(let service, let dropped):
      out.number(6)
      out.text(service.text)
      out.number(dropped)
    case .note(let text):
      out.number(7)
      out.text(text)
    }
    return out.bytes
  }

  /// Nil for what is none.
  package init?(_ bytes: [UInt8]) {
    var wire = WireReader(bytes)
    switch wire.number() {
    case 1:
      guard let run = wire.run(), let service = wire.service() else { return nil }
      self = .held(run, service: service)
    case 2: self = .ready
    case 3:
      guard let run = wire.run() else { return nil }
      self = .closed(run)
    case 4:
      guard let number = wire.number(), let lines = wire.texts(), lines.count <= LastOutput.mostLines,
        let truncated = wire.number(), let missing = wire.optional()
      else { return nil }
      self = .shown(number, LastOutput(lines: lines, truncated: truncated != 0, missing: missing.value))
    case 5:
      guard let service = wire.service(), let why = wire.text() else { return nil }
      self = .trouble(service, why)
    case 6:
      guard let service = wire.service(), let dropped = wire.number() else { return nil }
      self = .recovered(service, dropped: dropped)
    case 7:
      guard let text = wire.text() else { return nil }
      self = .note(text)
    default: return nil
    }
  }
}

extension WireWriter {
  mutating func run(_ run: RunID) {
    number(run.high)
    number(run.low)
  }
}

extension WireReader {
  mutating func run() -> RunID? {
    guard let high = number(), let low = number() else { return nil }
    return RunID(high: high, low: low)
  }
  mutating func service() -> ServiceName? { text().flatMap { ServiceName($0) } }
}
