/// One service as `status` shows it; the keys of the JSON element have the same names in snake_case.
package struct ServiceStatus: Hashable, Sendable {
  package var name: String
  package var description = ""
  package var wanted = Wanted.down
  /// Who asked for it to be down: `root`, `uid 1000`, …; empty where nobody did.
  package var stoppedBy = ""
  package var phase = PhaseName.stopped
  package var step = Step.restart
  package var settled = false
  package var degraded = false
  package var pid: Int32?
  package var run: String?
  /// When the phase was entered.
  package var since = WallTime(nanoseconds: 0)
  package var uptimeMilliseconds: Int64?
  package var restarts = 0
  package var strikes = 0, strikesAllowed = 0
  package var held = false
  package var disabledPlugins: [String] = []
  package var next: NextAction?
  package var lastEnd: LastEnd?
  /// Why it is as it is, one sentence; empty where there is nothing to explain.
  package var reason = ""

  // Beyond the list that is always there:
  package var kind = ServiceKind.daemon
  package var observe = false
  /// What would clear strikes, step or quarantine, one sentence.
  package var clears = ""
  /// A changed definition that takes effect at the next start.
  package var pendingDefinition = false
  package var runbook: String?
  package var contact: String?
  /// `journal`, `file`, `inherit`, `none`, or `degraded`.
  package var log = ""
  /// Where its output is written, for `log: file`.
  package var logFile: String?
  /// The last STATUS= of the service, bounded and escaped.
  package var statusText = ""
  package var requires: [String] = [], after: [String] = [], groups: [String] = []
  /// The names of its repairs.
  package var repairs: [String] = []
  /// Other services that it waits for now, at most four; empty unless it is in phase `waiting` because of them.
  package var waitsFor: [String] = []
  /// Of the present run, in the order of the file.
  package var checks: [CheckStatus] = []
  /// In the order of the definition.
  package var plugins: [PluginStatus] = []
  /// What runs in its place while it is in quarantine.
  package var fallback: String?
  /// Those in quarantine in whose place it runs.
  package var standsInFor: [String] = []
  /// Of this host, in force for it, by the files' names.
  package var switches: [SwitchStatus] = []
  /// Weaker guarantees and doubts, one sentence each: hidden as empty instead of absent, a stale definition, …
  package var notes: [String] = []

  package init(name: String) { self.name = name }

  package struct NextAction: Hashable, Sendable {
    /// `start`, `repair`, `trial`, `kill`, `settle`, `retry`, `release-hold`, …
    package var action: String
    package var at: WallTime
    package var inMilliseconds: Int64
    package init(action: String, at: WallTime, inMilliseconds: Int64) {
      self.action = action
      self.at = at
      self.inMilliseconds = inMilliseconds
    }
  }

  package struct LastEnd: Hashable, Sendable {
    package var cause: String, crashClass: String
    package var code: Int32?
    package var signal: String?
    package var core = false
    package var at: WallTime
    package var uptimeMilliseconds: Int64
    /// `End.description`.
    package var text: String
    package init(cause: String, crashClass: String, at: WallTime, uptimeMilliseconds: Int64, text: String) {
      self.cause = cause
      self.crashClass = crashClass
      self.at = at
      self.uptimeMilliseconds = uptimeMilliseconds
      self.text = text
    }
  }
}

/// The whole of guardian as the head line of `status` shows it.
package struct FleetSummary: Hashable, Sendable {
  /// Counts by what the STATUS line calls them, in its order, zeros left out.
  package var total = 0, settled = 0, starting = 0, running = 0, waiting = 0, backingOff = 0, repairing = 0,
    stopping = 0
  package var degraded = 0, quarantined = 0, stopped = 0, finished = 0, held = 0
  /// Of the finished ones.
  package var crashed = 0
  /// The names shown in brackets, at most three for each word.
  package var names: [String: [String]] = [:]
  package init() {}
}

/// What reading the configuration again has changed, or would.
package struct ReloadChange: Hashable, Sendable {
  /// Nothing has been changed: this is what a reload would do.
  package var dryRun = false
  package var added: [String] = [], removed: [String] = []
  package var changed: [Changed] = []
  package var unchanged = 0
  /// Files that are there and leave no definition: what was in force before goes on, where there was one.
  package var invalid: [String] = []
  /// Changed keys of guardian.yaml.
  package var host: [String] = []
  /// Services that run on with what they were started with, from this change or an earlier one, in order of name.
  package var needRestart: [Pending] = []
  /// What became of each, where it was asked for.
  package var restarts: [Restarted] = []
  package init() {}

  package struct Changed: Hashable, Sendable {
    package var name: String
    /// Keys in force now; all of them where nothing runs.
    package var live: [String] = []
    /// Keys that the present run does not have.
    package var atStart: [String] = []
    /// What follows from it, for people: `starts now, with a fresh ladder`; may be empty.
    package var note = ""
    package init(name: String) { self.name = name }
  }

  package struct Pending: Hashable, Sendable {
    package var name: String
    package var keys: [String]
    package init(name: String, keys: [String]) {
      self.name = name
      self.keys = keys
    }
  }

  package struct Restarted: Hashable, Sendable {
    package var name: String
    package var done: Bool
    /// Why not, or what else there is to say; may be empty.
    package var text: String
    package init(name: String, done: Bool, text: String) {
      self.name = name
      self.done = done
      self.text = text
    }
  }
}

/// One line of what `plan` announces.
package struct PlanEntry: Hashable, Sendable {
  /// From the plan's beginning, without jitter and with all of it.
  package var earliest: Duration, latest: Duration
  /// `start`, `death`, `repair`, `plugins-off`, `quarantine`, `trial`, …
  package var action: String
  package var step: Step
  package var strikes: Int, strikesAllowed: Int
  package var text: String
  package init(
    earliest: Duration, latest: Duration, action: String, step: Step, strikes: Int, strikesAllowed: Int, text: String
  ) {
    self.earliest = earliest
    self.latest = latest
    self.action = action
    self.step = step
    self.strikes = strikes
    self.strikesAllowed = strikesAllowed
    self.text = text
  }
}
