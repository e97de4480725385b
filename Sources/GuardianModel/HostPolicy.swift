/// How fast services may be started, all of them together: `governor:` of guardian.yaml.
package struct GovernorSpec: Hashable, Sendable {
  /// So many in the long run; as many may come at once after a quiet second.
  package var startsPerSecond = 200
  /// Starts that may be under way at the same time: decided, and neither ready nor over, for ten seconds at most.
  package var concurrent = 64
  package init() {}
}

/// When the troubles of several services are taken for one: `common-cause:` of guardian.yaml.
package struct CommonCauseSpec: Hashable, Sendable {
  /// At least so many, and at least a quarter of those that had been settled, have to begin to loop …
  package var services = 3
  /// … within this time.
  package var within = Duration.seconds(10)
  /// For so long no service moves a step up.
  package var freeze = Duration.minute * 5
  package init() {}
}

/// Several services began to loop at once: most likely for a reason that is none of theirs.
package struct CommonCause: Hashable, Sendable {
  package var since: WallTime
  /// No service moves a step up until then.
  package var until: BootInstant
  /// In the order in which they began; those that came later are not in here.
  package var services: [ServiceName]
  /// Of so many that had been settled.
  package var settled: Int
  package init(since: WallTime, until: BootInstant, services: [ServiceName], settled: Int) {
    self.since = since
    self.until = until
    self.services = services
    self.settled = settled
  }
}

extension CommonCause {
  /// `web, db, cache and 4 others of 12 that were settled began to loop at once`
  package var sentence: String {
    let named = services.prefix(5).map(\.text).joined(separator: ", ")
    let rest = services.count - min(5, services.count)
    return named + (rest > 0 ? " and \(rest) more" : "")
      + ", of \(settled) that had been settled, began to loop at once"
  }
}

extension CommonCause {
  /// As it is kept: when it ends (CLOCK_BOOTTIME, ns), since when (wall, ns), of how many, and the names.
  package var text: String {
    ([String(until.nanoseconds), String(since.nanoseconds), String(settled)] + services.map(\.text))
      .joined(separator: " ")
  }

  /// Nil for what is not of that form.
  package init?(text: String) {
    let parts = text.utf8.split(separator: UInt8(ascii: " ")).map { String(Substring($0)) }
    guard parts.count >= 3, let until = Int64(parts[0]), let since = Int64(parts[1]), let settled = Int(parts[2]) else {
      return nil
    }
    self.init(
      since: WallTime(nanoseconds: since), until: BootInstant(nanoseconds: until),
      services: parts.dropFirst(3).compactMap { ServiceName($0) }, settled: settled)
  }
}

/// `swift-backtrace:` of guardian.yaml.
package enum SwiftBacktraceWish: Hashable, Sendable {
  /// Where it is on PATH.
  case automatic
  case off
  case path(String)
}
