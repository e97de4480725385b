/// A rung of the ladder.
package enum Step: String, Hashable, Comparable, Sendable, CaseIterable {
  case restart, repair, safeMode = "safe-mode", quarantine

  private var height: Int {
    switch self {
    case .restart: 0
    case .repair: 1
    case .safeMode: 2
    case .quarantine: 3
    }
  }
  package static func < (a: Step, b: Step) -> Bool { a.height < b.height }
}

package enum PhaseName: String, Hashable, Sendable, CaseIterable {
  case stopped, waiting, starting, running, backingOff = "backing-off", repairing, stopping, quarantined, finished
}

package enum Wanted: String, Hashable, Sendable { case up, down }

/// What a run is for, told to it as GUARDIAN_MODE and more.
package enum RunKind: String, Hashable, Sendable {
  case ordinary
  /// Half-open trial from quarantine: its failure does not walk the ladder.
  case trial
  /// Plugins on again for one start: its failure does not walk the ladder either.
  case pluginRetry = "plugin-retry"
  /// With some of the plugins, to find the one that is to blame: its failure is no strike.
  case probe
}
