package import GuardianModel

/// Which events; all that is given must be true of each.
package struct EventQuery: Hashable, Sendable {
  /// Those behind this one; with a page's last id, the next page.
  package var after = EventID.none
  /// Those of this time and later.
  package var since: WallTime?
  /// Empty: of all.
  package var services: [ServiceName] = []
  /// Only so many of the newest, however many match.
  package var newest: Int?
  package var limit = 256
  package init() {}
}

/// An event as it is kept.
package struct StoredEvent: Hashable, Sendable {
  package var id: EventID
  package var at: WallTime
  package var service: String, name: String, sentence: String
  /// One JSON object.
  package var details: [UInt8]
  package init(id: EventID, at: WallTime, service: String, name: String, sentence: String, details: [UInt8]) {
    self.id = id
    self.at = at
    self.service = service
    self.name = name
    self.sentence = sentence
    self.details = details
  }
}

package struct EventPage: Hashable, Sendable {
  package var events: [StoredEvent] = []
  /// Where the next page goes on.
  package var after = EventID.none
  /// There may be more.
  package var more = false
  package init() {}
}

extension Connection {
  /// Damaged rows are left out.
  func events(_ query: EventQuery) throws(DatabaseError) -> EventPage {
    var page = EventPage()
    page.after = query.after
    // One text for all names, and the same statements whatever is asked.
    let names = query.services.isEmpty ? "" : "\n" + query.services.map(\.text).joined(separator: "\n") + "\n"
    let condition = "seq > ?1 AND at >= ?2 AND (?3 = '' OR instr(?3, char(10) || service || char(10)) > 0)"
    var values: [Value] = [
      .integer(query.after.number), .integer(query.since?.nanoseconds ?? .min), .text(names),
    ]
    let limit = max(1, query.limit)
    if let newest = query.newest {
      // Where the newest begin.
      let start = try prepare(
        "SELECT min(seq) FROM (SELECT seq FROM event WHERE \(condition) ORDER BY seq DESC LIMIT ?4)")
      defer { start.reset() }
      try start.bind(values + [.integer(Int64(newest))])
      guard try start.step() else { return page }
      values[0] = .integer(max(query.after.number, start.integer(0) - 1))
    }
    let rows = try prepare(
      "SELECT seq, at, service, name, sentence, checksum, details FROM event WHERE \(condition) ORDER BY seq LIMIT ?4")
    defer { rows.reset() }
    try rows.bind(values + [.integer(Int64(limit))])
    var count = 0
    while try rows.step() {
      count += 1
      let at = rows.integer(1), service = rows.text(2), name = rows.text(3), sentence = rows.text(4)
      let details = rows.text(6)
      page.after = EventID(rows.integer(0))
      guard Self.checksum(event: at, service, name, sentence, details) == rows.integer(5) else { continue }
      page.events.append(
        StoredEvent(
          id: page.after, at: WallTime(nanoseconds: at), service: service, name: name, sentence: sentence,
          details: details.isEmpty ? Array("{}".utf8) : Array(details.utf8)))
    }
    page.more = count == limit
    return page
  }
}
