package import GuardianModel

/// Whether the core does the work that there is: what the host's watchdog is to be told, and nothing else is.
///
/// A loop that turns proves nothing by itself. After each turn it is noted for each duty whether something is left to do,
/// and how much has ever been done. A duty is neglected while there is something left and nothing gets done: slow is not
/// stuck, and one service whose deadlines run in circles costs that service its pace and not guardian its life.
package struct Diligence: Hashable, Sendable {
  package enum Duty: Int, CaseIterable, Sendable {
    /// What has happened is told to the machines.
    case events
    /// Deadlines that are due happen.
    case deadlines
    /// What the machines want is done.
    case actions
  }

  /// How a duty stands after a turn.
  package struct Report: Hashable, Sendable {
    package var duty: Duty
    /// Something is left that should have been done by now.
    package var isDue: Bool
    /// How much has been done since guardian's start; wraps around.
    package var done: UInt64
    package init(_ duty: Duty, isDue: Bool, done: UInt64) {
      self.duty = duty
      self.isDue = isDue
      self.done = done
    }
  }

  private struct Standing: Hashable {
    var done: UInt64 = 0
    /// Nothing has been done since then, though there was something to do. Nil: all is well.
    var since: Instant?
  }
  private var standings = [Standing](repeating: Standing(), count: Duty.allCases.count)

  package init() {}

  package mutating func note(_ report: Report, now: Instant) {
    var standing = standings[report.duty.rawValue]
    if !report.isDue {
      standing.since = nil
    } else if report.done != standing.done || standing.since == nil {
      standing.since = now
    }
    standing.done = report.done
    standings[report.duty.rawValue] = standing
  }

  /// The duty that has been neglected longest, and for how long; nil: none for more than `patience`.
  package func neglected(longerThan patience: Duration, now: Instant) -> (duty: Duty, time: Duration)? {
    var worst: (duty: Duty, time: Duration)?
    for duty in Duty.allCases {
      guard let since = standings[duty.rawValue].since else { continue }
      let time = now - since
      if time > patience, time > worst?.time ?? .zero { worst = (duty, time) }
    }
    return worst
  }
}
