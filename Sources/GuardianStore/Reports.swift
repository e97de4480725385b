package import GuardianModel

/// A crash report as it is kept: what lists and rules need, and the whole of it as a document.
package struct StoredReport: Hashable, Sendable {
  package var id: RunID
  package var service: ServiceName
  package var at: WallTime
  package var signature: Signature
  package var crashClass: String, cause: String, text: String
  /// JSON.
  package var body: [UInt8]
  package init(
    id: RunID, service: ServiceName, at: WallTime, signature: Signature, crashClass: String, cause: String,
    text: String,
    body: [UInt8]
  ) {
    self.id = id
    self.service = service
    self.at = at
    self.signature = signature
    self.crashClass = crashClass
    self.cause = cause
    self.text = text
    self.body = body
  }
}

/// Deaths of which no report is kept, only that they were.
package struct CountedDeaths: Hashable, Sendable {
  package var service: ServiceName
  package var signature: Signature
  package var count: Int
  package var first: WallTime, last: WallTime
  package init(service: ServiceName, signature: Signature, count: Int, first: WallTime, last: WallTime) {
    self.service = service
    self.signature = signature
    self.count = count
    self.first = first
    self.last = last
  }
}

/// How much is kept: `history:` of guardian.yaml.
package struct ReportLimits: Hashable, Sendable {
  package var perService: Int
  /// Bytes of all of them.
  package var total: Int64
  package init(perService: Int = 20, total: Int64 = 50 << 20) {
    self.perService = max(1, perService)
    self.total = max(0, total)
  }
  /// Of one signature within a day: the first ever, and the newest.
  static let perDay = 3
  /// Kinds of crashes that are known at all.
  static let signatures = 10_000
}

/// What can be asked of the history. Answered by the store's thread, which alone has the database.
package enum HistoryQuestion: Hashable, Sendable {
  /// Newest first; nil: of all services, or of all of `among`.
  case crashes(service: ServiceName?, limit: Int, among: [ServiceName]? = nil)
  /// The reports whose id, 32 hexadecimal digits, begins with this; two are enough to know that it is not unique.
  /// Of all services, or of those `among`.
  case report(idPrefix: String, among: [ServiceName]? = nil)
  /// Oldest first, at most `EventQuery.limit` of them.
  case events(EventQuery)
}

package enum HistoryAnswer: Hashable, Sendable {
  case crashes([CrashSummary])
  case reports([(RunID, [UInt8])])
  case events(EventPage)
  case unavailable(why: String)

  package static func == (a: HistoryAnswer, b: HistoryAnswer) -> Bool {
    switch (a, b) {
    case (.crashes(let x), .crashes(let y)): x == y
    case (.reports(let x), .reports(let y)): x.map(\.0) == y.map(\.0) && x.map(\.1) == y.map(\.1)
    case (.events(let x), .events(let y)): x == y
    case (.unavailable(let x), .unavailable(let y)): x == y
    default: false
    }
  }
  package func hash(into hasher: inout Hasher) {
    switch self {
    case .crashes(let list): hasher.combine(list)
    case .reports(let list): hasher.combine(list.map(\.0))
    case .events(let page): hasher.combine(page)
    case .unavailable(let why): hasher.combine(why)
    }
  }
}

extension Connection {
  private static func bits(_ signature: Signature) -> Int64 { Int64(bitPattern: signature.value) }

  private static func checksum(
    report id: [UInt8], _ at: Int64, _ service: String, _ signature: Int64, _ body: [UInt8]
  ) -> Int64 {
    Checksum.of("report") {
      $0.add(bytes: id)
      $0.add(at)
      $0.add(service)
      $0.add(signature)
      $0.add(bytes: body)
    }
  }

  func count(_ deaths: CountedDeaths) throws(DatabaseError) {
    try prepare(
      """
      INSERT INTO signature (service, signature, strong, count, first, last) VALUES (?, ?, ?, ?, ?, ?)
      ON CONFLICT (service, signature) DO UPDATE SET
        count = count + excluded.count, first = min(first, excluded.first), last = max(last, excluded.last)
      """
    ).run(
      .text(deaths.service.text), .integer(Self.bits(deaths.signature)), .integer(deaths.signature.strong ? 1 : 0),
      .integer(Int64(deaths.count)), .integer(deaths.first.nanoseconds), .integer(deaths.last.nanoseconds))
  }

  /// Keeps the report within the limits. The first of a signature is the last to go.
  ///
  /// - Parameter bytes: Of all bodies; kept up to date.
  func write(_ report: StoredReport, _ limits: ReportLimits, bytes: inout Int64) throws(DatabaseError) {
    let service = report.service.text, signature = Self.bits(report.signature), id = report.id.bytes
    try count(
      CountedDeaths(
        service: report.service, signature: report.signature, count: 1, first: report.at, last: report.at))
    let known = try number(
      "SELECT count(*) FROM report WHERE service = ? AND signature = ? AND first", .text(service), .integer(signature))
    let day = report.at.nanoseconds.subtractingSaturating(Duration.day.nanoseconds)
    let today = try number(
      "SELECT count(*) FROM report WHERE service = ? AND signature = ? AND at > ?", .text(service),
      .integer(signature), .integer(day))
    if today >= ReportLimits.perDay {
      try drop(
        "service = ? AND signature = ? AND NOT first ORDER BY at LIMIT ?", &bytes, .text(service),
        .integer(signature), .integer(today - Int64(ReportLimits.perDay) + 1))
    }
    try prepare(
      """
      INSERT OR REPLACE INTO report (id, at, service, signature, class, cause, text, first, size, body, checksum)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      """
    ).run(
      .blob(id), .integer(report.at.nanoseconds), .text(service), .integer(signature), .text(report.crashClass),
      .text(report.cause), .text(report.text), .integer(known == 0 ? 1 : 0), .integer(Int64(report.body.count)),
      .blob(report.body),
      .integer(Self.checksum(report: id, report.at.nanoseconds, service, signature, report.body)))
    bytes += Int64(report.body.count)
    let surplus =
      try number("SELECT count(*) FROM report WHERE service = ?", .text(service))
      - Int64(limits.perService)
    if surplus > 0 {
      try drop(
        "service = ? AND id <> ? ORDER BY first, at LIMIT ?", &bytes, .text(service), .blob(id), .integer(surplus))
    }
    while bytes > limits.total {
      let before = bytes
      try drop("id <> ? ORDER BY first, at LIMIT 8", &bytes, .blob(id))
      if bytes == before { break }
    }
  }

  /// Kinds of crashes that were seen longest ago are forgotten.
  func pruneSignatures() throws(DatabaseError) {
    try prepare(
      """
      DELETE FROM signature WHERE rowid IN (
        SELECT rowid FROM signature ORDER BY last DESC LIMIT -1 OFFSET ?)
      """
    ).run(.integer(Int64(ReportLimits.signatures)))
  }

  private func drop(_ condition: String, _ bytes: inout Int64, _ values: Value...) throws(DatabaseError) {
    let rows = try prepare("SELECT rowid, size FROM report WHERE \(condition)")
    var gone: [Int64] = []
    do {
      defer { rows.reset() }
      try rows.bind(values)
      while try rows.step() {
        gone.append(rows.integer(0))
        bytes -= rows.integer(1)
      }
    }
    for row in gone { try prepare("DELETE FROM report WHERE rowid = ?").run(.integer(row)) }
  }

  private func number(_ sql: String, _ values: Value...) throws(DatabaseError) -> Int64 {
    let rows = try prepare(sql)
    defer { rows.reset() }
    try rows.bind(values)
    return try rows.step() ? rows.integer(0) : 0
  }

  func reportBytes() throws(DatabaseError) -> Int64 { try integer("SELECT coalesce(sum(size), 0) FROM report") }

  /// One text for all names, and the same statement whatever is asked; empty for all there are.
  private static func list(_ names: [ServiceName]?) -> String {
    names.map { "\n" + $0.map(\.text).joined(separator: "\n") + "\n" } ?? ""
  }

  func answer(_ question: HistoryQuestion) throws(DatabaseError) -> HistoryAnswer {
    switch question {
    case .crashes(let service, let limit, let among):
      let rows = try prepare(
        """
        SELECT r.id, r.service, r.at, r.class, r.cause, r.text, r.signature, coalesce(s.strong, 0), coalesce(s.count, 1),
          coalesce(s.first, r.at), coalesce(s.last, r.at)
        FROM report r LEFT JOIN signature s ON s.service = r.service AND s.signature = r.signature
        WHERE (?1 = '' OR r.service = ?1) AND (?2 = '' OR instr(?2, char(10) || r.service || char(10)) > 0)
        ORDER BY r.at DESC, r.rowid DESC LIMIT ?3
        """)
      defer { rows.reset() }
      let name = service?.text ?? ""
      try rows.bind([.text(name), .text(Self.list(among)), .integer(Int64(limit))])
      var list: [CrashSummary] = []
      while try rows.step() {
        guard let id = RunID(bytes: rows.blob(0)) else { continue }
        list.append(
          CrashSummary(
            id: id, service: rows.text(1), at: WallTime(nanoseconds: rows.integer(2)), crashClass: rows.text(3),
            cause: rows.text(4), text: rows.text(5),
            signature: Signature(value: UInt64(bitPattern: rows.integer(6)), strong: rows.integer(7) != 0),
            count: Int(clamping: rows.integer(8)), first: WallTime(nanoseconds: rows.integer(9)),
            last: WallTime(nanoseconds: rows.integer(10))))
      }
      return .crashes(list)
    case .report(let prefix, let among):
      let rows = try prepare(
        """
        SELECT id, at, service, signature, body, checksum FROM report
        WHERE hex(id) LIKE ?1 AND (?2 = '' OR instr(?2, char(10) || service || char(10)) > 0) ORDER BY at DESC LIMIT 2
        """)
      defer { rows.reset() }
      try rows.bind([.text(prefix.uppercased() + "%"), .text(Self.list(among))])
      var found: [(RunID, [UInt8])] = []
      while try rows.step() {
        let bytes = rows.blob(0), body = rows.blob(4)
        guard let id = RunID(bytes: bytes),
          Self.checksum(report: bytes, rows.integer(1), rows.text(2), rows.integer(3), body) == rows.integer(5)
        else { continue }
        found.append((id, body))
      }
      return .reports(found)
    case .events(let query): return .events(try events(query))
    }
  }
}
