import GuardianModel

/// A row of the table `service`.
struct ServiceRow {
  var boot: String
  var mark: Now
  var bytes: [UInt8]

  func checksum(_ name: String) -> Int64 {
    Checksum.of("service") {
      $0.add(name)
      $0.add(boot)
      $0.add(mark)
      $0.add(bytes: bytes)
    }
  }
}

/// A run without an end.
struct OpenRun {
  var service: ServiceName
  var purpose: RunPurpose
  var at: WallTime

  func entry(_ id: RunID) -> RunEntry { .opened(id, service: service, purpose: purpose, at: at) }
}

/// All that was found in a database, but for the history.
struct Contents {
  var services: [ServiceName: ServiceRow] = [:]
  var records: [ServiceName: ServiceRecord] = [:]
  var openRuns: [RunID: OpenRun] = [:]
  var meta: [String: String] = [:]
  var own: [String: String] = [:]
  var boots: [String: Now] = [:]
  /// The newest in the history.
  var lastEvent = EventID.none
  var notes: [String] = []
  var lost = false

  /// All but the notes, from another database.
  mutating func take(_ other: Contents) {
    let notes = notes
    self = other
    self.notes = notes
    lost = true
  }
  /// The instance and number of the last transaction.
  var lastBatch: Substring { own[OwnKey.records]?.split(separator: " ").last ?? "" }
}

/// Names and values of the store's own entries in `meta`.
enum OwnKey {
  static let orderly = "store.orderly", generation = "store.generation", boot = "store.boot"
  /// Count and sum of the service records' checksums, which shows a record that is missing, or of another time; then
  /// the number of the transaction.
  static let records = "store.records"
}

extension Checksum {
  mutating func add(_ now: Now) {
    add(now.monotonic.nanoseconds)
    add(now.boot.nanoseconds)
    add(now.wall.nanoseconds)
  }
}

extension RunID {
  var bytes: [UInt8] {
    [high, low].flatMap { half in
      stride(from: UInt64(56), through: 0, by: -8).map { UInt8(truncatingIfNeeded: half >> $0) }
    }
  }
  init?(bytes: [UInt8]) {
    guard bytes.count == 16 else { return nil }
    func half(_ part: ArraySlice<UInt8>) -> UInt64 { part.reduce(0) { $0 << 8 | UInt64($1) } }
    self.init(high: half(bytes[..<8]), low: half(bytes[8...]))
  }
}

extension Connection {
  // MARK: Writing

  func write(_ name: ServiceName, _ row: ServiceRow) throws(DatabaseError) {
    try prepare("INSERT OR REPLACE INTO service VALUES (?, ?, ?, ?, ?, ?, ?)").run(
      .text(name.text), .text(row.boot), .integer(row.mark.monotonic.nanoseconds),
      .integer(row.mark.boot.nanoseconds), .integer(row.mark.wall.nanoseconds), .blob(row.bytes),
      .integer(row.checksum(name.text)))
  }

  func remove(_ name: ServiceName) throws(DatabaseError) {
    try prepare("DELETE FROM service WHERE name = ?").run(.text(name.text))
  }

  func write(boot: String, _ mark: Now) throws(DatabaseError) {
    let sum = Checksum.of("boots") {
      $0.add(boot)
      $0.add(mark)
    }
    try prepare("INSERT OR REPLACE INTO boots VALUES (?, ?, ?, ?, ?)").run(
      .text(boot), .integer(mark.monotonic.nanoseconds), .integer(mark.boot.nanoseconds),
      .integer(mark.wall.nanoseconds), .integer(sum))
  }

  func write(meta key: String, _ value: String?) throws(DatabaseError) {
    guard let value else { return try prepare("DELETE FROM meta WHERE key = ?").run(.text(key)) }
    let sum = Checksum.of("meta") {
      $0.add(key)
      $0.add(value)
    }
    try prepare("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)").run(.text(key), .text(value), .integer(sum))
  }

  /// - Returns: false if a run with this id is there already.
  func open(_ id: RunID, _ run: OpenRun) throws(DatabaseError) -> Bool {
    let purpose = RecordCoding.encode(run.purpose)
    try prepare("INSERT OR IGNORE INTO run (id, service, purpose, opened, checksum) VALUES (?, ?, ?, ?, ?)").run(
      .blob(id.bytes), .text(run.service.text), .blob(purpose), .integer(run.at.nanoseconds),
      .integer(Self.checksum(opened: id.bytes, run.service.text, purpose, run.at.nanoseconds)))
    return changes == 1
  }
  private static func checksum(opened id: [UInt8], _ service: String, _ purpose: [UInt8], _ at: Int64) -> Int64 {
    Checksum.of("run") {
      $0.add(bytes: id)
      $0.add(service)
      $0.add(bytes: purpose)
      $0.add(at)
    }
  }

  /// - Returns: false if no run with this id is open.
  func close(_ id: RunID, _ outcome: RunOutcome, at: WallTime, madeUp: Bool) throws(DatabaseError) -> Bool {
    let outcome = RecordCoding.encode(outcome)
    let sum = Self.checksum(closed: id.bytes, at.nanoseconds, outcome, madeUp ? 1 : 0)
    try prepare(
      "UPDATE run SET closed = ?, outcome = ?, made_up = ?, closed_checksum = ? WHERE id = ? AND closed IS NULL"
    ).run(
      .integer(at.nanoseconds), .blob(outcome), .integer(madeUp ? 1 : 0), .integer(sum), .blob(id.bytes))
    return changes == 1
  }
  private static func checksum(closed id: [UInt8], _ at: Int64, _ outcome: [UInt8], _ madeUp: Int64) -> Int64 {
    Checksum.of("run end") {
      $0.add(bytes: id)
      $0.add(at)
      $0.add(bytes: outcome)
      $0.add(madeUp)
    }
  }

  /// - Returns: false if it is there already: an attempt that seemed to fail had written it.
  func write(_ event: Occurrence) throws(DatabaseError) -> Bool {
    let sentence = event.sentence
    let details = event.details.isEmpty ? "" : String(decoding: event.detailsJSON, as: UTF8.self)
    let sum = Self.checksum(event: event.at.nanoseconds, event.service.text, event.name, sentence, details)
    try prepare(
      """
      INSERT OR IGNORE INTO event (seq, at, service, name, sentence, checksum, details)
      VALUES (nullif(?, 0), ?, ?, ?, ?, ?, ?)
      """
    ).run(
      .integer(event.id.number), .integer(event.at.nanoseconds), .text(event.service.text), .text(event.name),
      .text(sentence), .integer(sum), .text(details))
    return changes == 1
  }
  static func checksum(
    event at: Int64, _ service: String, _ name: String, _ sentence: String, _ details: String
  ) -> Int64 {
    Checksum.of("event") {
      $0.add(at)
      $0.add(service)
      $0.add(name)
      $0.add(sentence)
      // Those of earlier versions have none.
      if !details.isEmpty { $0.add(details) }
    }
  }

  /// Removes the oldest.
  func pruneEvents(_ count: Int) throws(DatabaseError) {
    try prepare("DELETE FROM event WHERE seq IN (SELECT seq FROM event ORDER BY seq LIMIT ?)").run(
      .integer(Int64(count)))
  }
  func pruneRuns(_ count: Int) throws(DatabaseError) {
    try prepare(
      "DELETE FROM run WHERE rowid IN (SELECT rowid FROM run WHERE closed IS NOT NULL ORDER BY rowid LIMIT ?)"
    ).run(.integer(Int64(count)))
  }

  // MARK: Reading

  /// All that can be trusted. What cannot is named in the notes.
  func contents() throws(DatabaseError) -> Contents {
    var contents = Contents()
    try readMeta(into: &contents)
    try readBoots(into: &contents)
    try readServices(into: &contents)
    try readOpenRuns(into: &contents)
    return contents
  }

  /// As `contents`, but reads on where the database does not make sense.
  func salvage() -> Contents {
    var contents = Contents()
    try? readServices(into: &contents)
    try? readMeta(into: &contents)
    try? readBoots(into: &contents)
    try? readOpenRuns(into: &contents)
    return contents
  }

  private func readMeta(into contents: inout Contents) throws(DatabaseError) {
    let rows = try prepare("SELECT key, value, checksum FROM meta")
    defer { rows.reset() }
    while try rows.step() {
      let key = rows.text(0)
      let value = rows.text(1)
      let sum = Checksum.of("meta") {
        $0.add(key)
        $0.add(value)
      }
      if sum != rows.integer(2) {
        contents.lost = true
        contents.notes.append("an entry of the state is damaged and left out: \(printable(key))")
      } else if key.hasPrefix("store.") {
        contents.own[key] = value
      } else {
        contents.meta[key] = value
      }
    }
  }

  private func readBoots(into contents: inout Contents) throws(DatabaseError) {
    let rows = try prepare("SELECT boot, monotonic, boottime, wall, checksum FROM boots")
    defer { rows.reset() }
    while try rows.step() {
      let boot = rows.text(0)
      let mark = Now(rows, from: 1)
      let sum = Checksum.of("boots") {
        $0.add(boot)
        $0.add(mark)
      }
      // Each record has a mark of its own to fall back on.
      if sum == rows.integer(4) {
        contents.boots[boot] = mark
      } else {
        contents.notes.append("the time of a boot is damaged and left out")
      }
    }
  }

  private func readServices(into contents: inout Contents) throws(DatabaseError) {
    let rows = try prepare("SELECT name, boot, monotonic, boottime, wall, record, checksum FROM service")
    defer { rows.reset() }
    var count = 0
    var damaged = 0
    var total: Int64 = 0
    while try rows.step() {
      count += 1
      let text = rows.text(0)
      let row = ServiceRow(boot: rows.text(1), mark: Now(rows, from: 2), bytes: rows.blob(5))
      let sum = rows.integer(6)
      total &+= sum
      if let name = ServiceName(text), row.checksum(text) == sum {
        if let record = RecordCoding.decode(row.bytes) {
          contents.services[name] = row
          contents.records[name] = record
          continue
        }
        contents.notes.append("\(text): its record makes no sense and is reset")
      } else {
        contents.notes.append("\(printable(text)): its record is damaged and is reset")
      }
      damaged += 1
    }
    if damaged > 0 {
      contents.lost = true
    } else if count > 0 || !contents.own.isEmpty,
      contents.own[OwnKey.records]?.hasPrefix(digest(count: count, sum: total) + " ") != true
    {
      contents.lost = true
      contents.notes.append("the record of a service is missing, or older than it should be")
    }
  }

  private func readOpenRuns(into contents: inout Contents) throws(DatabaseError) {
    let rows = try prepare("SELECT id, service, purpose, opened, checksum FROM run WHERE closed IS NULL")
    defer { rows.reset() }
    while try rows.step() {
      let id = rows.blob(0)
      let service = rows.text(1)
      let purpose = rows.blob(2)
      let at = rows.integer(3)
      if Self.checksum(opened: id, service, purpose, at) == rows.integer(4), let run = RunID(bytes: id),
        let name = ServiceName(service), let purpose = RecordCoding.purpose(purpose)
      {
        contents.openRuns[run] = OpenRun(service: name, purpose: purpose, at: WallTime(nanoseconds: at))
      } else {
        contents.lost = true
        contents.notes.append("an open run is damaged and left out: \(printable(service))")
      }
    }
  }
}

func digest(count: Int, sum: Int64) -> String { "\(count):\(sum)" }

extension Now {
  fileprivate init(_ row: Statement, from column: Int32) {
    self.init(
      monotonic: Instant(nanoseconds: row.integer(column)), boot: BootInstant(nanoseconds: row.integer(column + 1)),
      wall: WallTime(nanoseconds: row.integer(column + 2)))
  }
}

/// Outside text for a log line: short, and nothing that a terminal obeys.
func printable(_ text: String) -> String {
  let shown = text.unicodeScalars.prefix(64).map { scalar in
    scalar.value < 0x20 || (0x7f...0x9f).contains(scalar.value) ? "?" : String(scalar)
  }
  return shown.joined()
}
