/// How a file of `log: file` is written. Each line has the time at which its first byte was read before it:
///
///     2026-11-30T13:45:37.123Z the line
///     2026-11-30T13:45:37.130Z+the rest of a line that was too long, or was interrupted
///     # run 5bb51622f0c58b105a9b76e37fafc7f5 at 2026-11-30T13:45:40.001Z, after 9f…
///     # 4096 bytes were dropped here: no space left on device
///
/// A line that begins with `#` is the logger's own: the time of every other one begins with a digit, whatever a service
/// writes. The lines that follow a `# run` are that run's, up to the next one; every file begins with one. Bytes are kept
/// as they are, but for a line's end.
package enum LogFormat {
  /// Of the time, without the character behind it.
  package static let stampLength = 24
  /// Longer lines are split; of a piece, without its time and its end.
  package static let longestLine = 64 << 10
  package static let newLine = UInt8(ascii: " "), continuation = UInt8(ascii: "+")
  package static let ownLine = UInt8(ascii: "#")
  /// The file that is being written, in a service's directory.
  package static let current = "current"

  package enum Line: Hashable, Sendable {
    /// What follows is of this run; before it, lines of `after` were written.
    case run(RunID, after: RunID?)
    /// The logger's own words, without the mark.
    case note(String)
    /// `continues`: it is no line of its own, but belongs to one before it.
    case text(stamp: Slice, continues: Bool, text: Slice)
    /// Of a form that the logger does not write: somebody else has written there.
    case foreign(Slice)

    package typealias Slice = ArraySlice<UInt8>
  }

  /// - Parameter line: Without its end.
  package static func read(_ line: ArraySlice<UInt8>) -> Line {
    if line.first == ownLine {
      let words = line.dropFirst(2)
      let prefix = Array("run ".utf8)
      if words.starts(with: prefix), let run = RunID(text: words.dropFirst(4).prefix(32)) {
        var after: RunID?
        let rest = words.dropFirst(36)
        let mark = Array(", after ".utf8)
        if rest.count >= 40, rest.suffix(40).starts(with: mark) { after = RunID(text: rest.suffix(32)) }
        return .run(run, after: after)
      }
      return .note(String(decoding: words, as: UTF8.self))
    }
    let stamp = line.prefix(stampLength)
    guard line.count > stampLength, stamp.last == UInt8(ascii: "Z"), let first = stamp.first,
      (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first)
    else { return .foreign(line) }
    let mark = line[line.startIndex + stampLength]
    guard mark == newLine || mark == continuation else { return .foreign(line) }
    return .text(stamp: stamp, continues: mark == continuation, text: line.dropFirst(stampLength + 1))
  }

  /// The name of a file that was put aside at `wall`: names sort as their times do.
  package static func name(asideAt wall: WallTime) -> String {
    var stamp = LogStamp()
    stamp.set(wall)
    // 2026-11-30T13:45:37.123Z becomes 20261130T134537.123456Z.log.
    let text = stamp.bytes.filter { $0 != UInt8(ascii: "-") && $0 != UInt8(ascii: ":") }.dropLast()
    let micro = wall.nanoseconds / 1000 % 1000
    let digits = String(micro < 0 ? 0 : micro)
    return String(decoding: text, as: UTF8.self) + String(repeating: "0", count: 3 - digits.utf8.count) + digits
      + "Z.log"
  }

  /// When a file of that name was put aside; nil for another name.
  package static func time(ofAside name: String) -> WallTime? {
    guard isAside(name) else { return nil }
    let b = Array(name.utf8)
    let text =
      "\(name.prefix(4))-\(String(decoding: b[4..<6], as: UTF8.self))-\(String(decoding: b[6..<8], as: UTF8.self))"
    let time = [b[9..<11], b[11..<13], b[13..<15]].map { String(decoding: $0, as: UTF8.self) }.joined(separator: ":")
    let whole = "\(text)T\(time).\(String(decoding: b[16..<19], as: UTF8.self))Z"
    guard let wall = LogStamp.read(Array(whole.utf8)[...]),
      let micro = Int64(String(decoding: b[19..<22], as: UTF8.self))
    else { return nil }
    return wall + .microseconds(micro)
  }

  /// Whether a file of that name is one that was put aside, compressed or not.
  package static func isAside(_ name: String) -> Bool {
    let bytes = Array(name.utf8)
    let plain = bytes.count == 27 && name.hasSuffix("Z.log")
    let packed = bytes.count == 30 && name.hasSuffix("Z.log.gz")
    return (plain || packed) && bytes[..<8].allSatisfy { (0x30...0x39).contains($0) } && bytes[8] == UInt8(ascii: "T")
  }
}

extension RunID {
  /// Of 32 hexadecimal digits; nil for anything else.
  package init?(text: some Collection<UInt8>) {
    guard text.count == 32 else { return nil }
    var halves: [UInt64] = [0, 0]
    for (index, byte) in text.enumerated() {
      let digit: UInt8
      switch byte {
      case 0x30...0x39: digit = byte - 0x30
      case 0x61...0x66: digit = byte - 0x61 + 10
      default: return nil
      }
      halves[index / 16] = halves[index / 16] << 4 | UInt64(digit)
    }
    self.init(high: halves[0], low: halves[1])
  }
}

/// A point in time as `2026-11-30T13:45:37.123Z`, UTC. Made anew only where the millisecond is another one.
package struct LogStamp: Sendable {
  package private(set) var bytes = Array("1970-01-01T00:00:00.000Z".utf8)
  private var millisecond: Int64 = .min
  private var day: Int64 = .min

  package init() {}

  /// Times before 1970 or after 9999 are shown as the nearest of those that can be.
  package mutating func set(_ wall: WallTime) {
    let ms = min(max(0, wall.nanoseconds / 1_000_000), 253_402_300_799_999)
    if ms == millisecond { return }
    millisecond = ms
    let days = ms / 86_400_000
    if days != day {
      day = days
      // Days to a date of the Gregorian calendar, in eras of 400 years that begin on the first of March.
      let shifted = days + 719_468
      let era = shifted / 146_097, inEra = shifted % 146_097
      let yearOfEra = (inEra - inEra / 1460 + inEra / 36_524 - inEra / 146_096) / 365
      let dayOfYear = inEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
      let shiftedMonth = (5 * dayOfYear + 2) / 153
      let date = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
      let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
      put(yearOfEra + era * 400 + (month <= 2 ? 1 : 0), at: 0, digits: 4)
      put(month, at: 5, digits: 2)
      put(date, at: 8, digits: 2)
    }
    let inDay = ms % 86_400_000
    put(inDay / 3_600_000, at: 11, digits: 2)
    put(inDay / 60_000 % 60, at: 14, digits: 2)
    put(inDay / 1000 % 60, at: 17, digits: 2)
    put(inDay % 1000, at: 20, digits: 3)
  }

  /// The first time that is written in `text` in this form, if that is in its first 128 bytes.
  package static func read(_ text: ArraySlice<UInt8>) -> WallTime? {
    let bytes = Array(text.prefix(128))
    let form = Array("0000-00-00T00:00:00.000Z".utf8)
    guard bytes.count >= form.count else { return nil }
    func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
    next: for start in 0...(bytes.count - form.count) {
      for (index, shape) in form.enumerated() {
        let byte = bytes[start + index]
        guard isDigit(shape) ? isDigit(byte) : byte == shape else { continue next }
      }
      func number(_ place: Int, _ digits: Int) -> Int64 {
        bytes[(start + place)..<(start + place + digits)].reduce(0) { $0 * 10 + Int64($1 - 0x30) }
      }
      let month = number(5, 2), year = number(0, 4) - (month <= 2 ? 1 : 0)
      let era = (year >= 0 ? year : year - 399) / 400, yearOfEra = year - era * 400
      let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + number(8, 2) - 1
      let days = era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
      let seconds = days * 86_400 + number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2)
      return WallTime(nanoseconds: (seconds * 1000 + number(20, 3)) * 1_000_000)
    }
    return nil
  }

  private mutating func put(_ number: Int64, at place: Int, digits: Int) {
    var rest = number
    for index in (place..<place + digits).reversed() {
      bytes[index] = UInt8(truncatingIfNeeded: 0x30 + rest % 10)
      rest /= 10
    }
  }
}

/// Picks the lines of one run out of a stretch of a log file.
package struct RunLines: Sendable {
  private let wanted: RunID
  package private(set) var lines: [String] = []
  private var bytes = 0
  /// Whose the lines are that come now; nil: nobody knows yet.
  private var owner: RunID?
  private var foundBeginning = false
  /// There was more, which is not kept.
  package private(set) var dropped = false
  /// What was read before the first mark of a run.
  private var unowned: [String] = []
  private let most: Int, mostBytes: Int

  package init(of run: RunID, most: Int = LastOutput.mostLines, mostBytes: Int = 2 * LastOutput.mostBytes) {
    wanted = run
    self.most = most
    self.mostBytes = mostBytes
  }

  /// - Parameter line: Without its end.
  package mutating func take(_ line: ArraySlice<UInt8>) {
    switch LogFormat.read(line) {
    case .run(let run, let after):
      if owner == nil, after == wanted { for line in unowned { keep(line) } }
      unowned = []
      owner = run
      if run == wanted { foundBeginning = true }
    case .text(_, _, let text):
      let line = String(decoding: text, as: UTF8.self)
      if owner == wanted {
        keep(line)
      } else if owner == nil {
        unowned.append(line)
        if unowned.count > most { unowned.removeFirst() }
      }
    case .note(let note): if owner == wanted { keep("# " + note) }
    case .foreign: break
    }
  }

  private mutating func keep(_ line: String) {
    lines.append(line)
    bytes += line.utf8.count + 1
    // Twice as much as is wanted, so that few are moved.
    if lines.count > 2 * most || bytes > 2 * mostBytes {
      dropped = true
      while lines.count > most || bytes > mostBytes, let first = lines.first {
        bytes -= first.utf8.count + 1
        lines.removeFirst()
      }
    }
  }

  /// - Parameter lastRun: Whose the last lines are where no mark of a run was read at all.
  package mutating func end(lastRun: RunID?) {
    if owner == nil, lastRun == wanted { for line in unowned { keep(line) } }
    unowned = []
  }
}
