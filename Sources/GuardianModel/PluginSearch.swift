/// The deaths with all plugins on that lead to step safe-mode: what a search for the culprit begins with.
package struct PluginIncident: Hashable, Sendable {
  /// How many starts with everything on died before they had settled, and of how many.
  package var failures = 0, starts = 0
  /// When the last of them died.
  package var last: BootInstant
  /// How long the longest of them lived.
  package var largestAge = Duration.zero
  /// What the last of them looked like: by its evidence, where that has told, and by its wait status.
  package var signature: Signature?
  package var sameness: UInt64 = 0
  /// What the changes since the last healthy run say.
  package var hints: [PluginHint] = []
  package init(last: BootInstant) { self.last = last }
}

/// How much speaks against a plugin beforehand, in hundredths, 0 … 1000.
package struct PluginHint: Hashable, Sendable {
  package var plugin: String
  package var score: Int
  package init(plugin: String, score: Int) {
    self.plugin = plugin
    self.score = score
  }
}

/// How a search has ended.
package enum SearchResult: Hashable, Sendable {
  /// Without these it has run for its whole startup window; `with`: the one of them does harm only together with this.
  case found(off: [String], with: String?)
  case notAPlugin
  /// What there was too much of, in a word.
  case exhausted(String)
  case abandoned
}

/// What became of one start of a search.
package enum ProbeOutcome: UInt8, Hashable, Sendable, CaseIterable { case passed = 0, failed, otherFailure }

/// One start of a search: with exactly these plugins on.
package struct PluginProbe: Hashable, Sendable {
  package var on: ToggleSet
  /// To pass it has to outlive the whole startup window.
  package var full: Bool
  package init(on: ToggleSet, full: Bool) {
    self.on = on
    self.full = full
  }
}

/// A search for the plugin that is to blame, as it is saved before each of its starts: what is written here is all of it.
package struct PluginSearch: Hashable, Sendable {
  /// The plugins that it may switch, by name, in the order of the definition; at most `ToggleSet.capacity`.
  package var toggles: [String]
  /// What the changes since the last healthy run say of each, in hundredths, 0 … 1000; empty: nothing.
  package var hints: [Int] = []
  package var failures = 1, starts = 1
  package var backgroundFailures = 0, backgroundStarts = 0
  package var signature: Signature?
  package var sameness: UInt64 = 0
  /// How long a start lives to pass.
  package var window = Duration.zero
  /// Its time counts since then; what it had used up before, and whether it stands still now.
  package var since: BootInstant
  package var spent = Duration.zero
  package var paused = false
  package var observations: [Observed] = []
  /// The start that is decided, or under way; nil: none of the search's.
  package var probe: PluginProbe?
  /// The last probe has died, and is counted as soon as its evidence is there, or the next start is due.
  package var death: Death?
  /// No more questions: this is the best set that has passed, to be confirmed.
  package var closing = false

  package struct Observed: Hashable, Sendable {
    package var probe: PluginProbe
    package var outcome: ProbeOutcome
    package init(_ probe: PluginProbe, _ outcome: ProbeOutcome) {
      self.probe = probe
      self.outcome = outcome
    }
  }
  package struct Death: Hashable, Sendable {
    package var probe: PluginProbe
    package var run: RunID
    package var sameness: UInt64
    package init(probe: PluginProbe, run: RunID, sameness: UInt64) {
      self.probe = probe
      self.run = run
      self.sameness = sameness
    }
  }

  package init(toggles: [String], since: BootInstant) {
    self.toggles = Array(toggles.prefix(ToggleSet.capacity))
    self.since = since
  }

  package func names(_ set: ToggleSet) -> [String] { toggles.indices.filter(set.contains).map { toggles[$0] } }
  package var everything: ToggleSet { ToggleSet(toggles.indices) }

  /// The largest set that has passed and has not failed since; empty: safe mode.
  package var best: ToggleSet {
    var best = ToggleSet()
    for (place, one) in observations.enumerated() where one.outcome == .passed && one.probe.on.count > best.count {
      let later = observations[place...].contains { $0.probe.on == one.probe.on && $0.outcome != .passed }
      if !later { best = one.probe.on }
    }
    return best
  }
}
