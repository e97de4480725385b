/// All that is known of one death that nobody asked for. Its id is that of the run, which dies once.
///
/// The machine begins it with the decision's side of the matter; the shell adds what it finds.
package struct CrashReport: Hashable, Sendable {
  package var service: ServiceName
  package var end: End
  package var kind: RunKind
  package var wasReady: Bool, settled: Bool
  package var disabledPlugins: [String]
  /// Before the death was judged, and after.
  package var step: Step, stepAfter: Step
  /// After it was judged.
  package var strikes = 0, strikesAllowed = 0
  /// Why the service is as it is now, in words.
  package var reason = ""

  package var output = LastOutput(missing: "not captured")
  package var backtrace = Backtrace(missing: "not looked for")
  package var usage: Usage?
  /// Of the run's control group; nil where it has none, or its controllers are not there.
  package var memory: MemoryEvidence?
  /// Processes that outlived it, as `pid 4711 (sh)`.
  package var leftovers: [String] = []
  /// How many descriptors it had open when it was last looked at, just before guardian ended it; nil: not known, since it
  /// had ended by itself.
  package var openDescriptors: Int?
  /// Names only, of what the definition sets.
  package var environment: [String] = []
  /// What the repairs of the last round came to.
  package var repairs = ""
  /// What has changed since the last good run.
  package var changes: [ChangeHint] = []

  package init(
    service: ServiceName, end: End, kind: RunKind, wasReady: Bool, settled: Bool, disabledPlugins: [String], step: Step
  ) {
    self.service = service
    self.end = end
    self.kind = kind
    self.wasReady = wasReady
    self.settled = settled
    self.disabledPlugins = disabledPlugins
    self.step = step
    stepAfter = step
  }

  /// What a process and those that it has waited for have used. getrusage(2).
  package struct Usage: Hashable, Sendable {
    package var user: Duration, system: Duration
    /// Bytes; nil: not more than guardian itself has used, which cannot be told from it.
    package var peakMemory: UInt64?
    package init(user: Duration, system: Duration, peakMemory: UInt64?) {
      self.user = user
      self.system = system
      self.peakMemory = peakMemory
    }
  }

  /// memory.peak in bytes, the lines of memory.events that are not 0, memory.pressure's line `some`.
  package struct MemoryEvidence: Hashable, Sendable {
    package var peak: UInt64?
    package var events: [String] = []
    package var pressure = ""
    package init() {}
    package var isEmpty: Bool { peak == nil && events.isEmpty && pressure.isEmpty }
  }

  package struct Backtrace: Hashable, Sendable {
    /// Of the thread that crashed, innermost first; at most `mostFrames`.
    package var frames: [StackFrame] = []
    /// `swift-backtrace`, `systemd-coredump`; empty: there is none.
    package var source = ""
    /// What the program itself said, as in `Fatal error: Index out of range`.
    package var says = ""
    package var access: BadAccess?
    /// Why there are no frames; nil: there are.
    package var missing: String?
    package init(missing: String? = nil) { self.missing = missing }
    package static let mostFrames = 64
  }
}

/// Where a program was when the kernel sent it SIGSEGV.
package struct BadAccess: Hashable, Sendable {
  package var address: UInt64
  /// Nil: not known.
  package var stackPointer: UInt64?
  package init(address: UInt64, stackPointer: UInt64? = nil) {
    self.address = address
    self.stackPointer = stackPointer
  }
}

/// One thing that has changed since a service was last well. Says that it changed, never that it is to blame.
package struct ChangeHint: Hashable, Sendable {
  /// `/etc/web/config.json changed`.
  package var what: String
  /// Nil: not known when.
  package var at: WallTime?
  /// Of 10, in hundredths.
  package var score: Int
  package init(what: String, at: WallTime?, score: Int) {
    self.what = what
    self.at = at
    self.score = score
  }
}

/// What `crashes` lists: one death, with how often its like was seen.
package struct CrashSummary: Hashable, Sendable {
  package var id: RunID
  package var service: String
  package var at: WallTime
  package var crashClass: String, cause: String
  /// `exit 1`, `SIGSEGV (core dumped)`.
  package var text: String
  package var signature: Signature
  /// Of this signature and service, ever; and when the first and the last of them were.
  package var count: Int
  package var first: WallTime, last: WallTime
  package init(
    id: RunID, service: String, at: WallTime, crashClass: String, cause: String, text: String, signature: Signature,
    count: Int, first: WallTime, last: WallTime
  ) {
    self.id = id
    self.service = service
    self.at = at
    self.crashClass = crashClass
    self.cause = cause
    self.text = text
    self.signature = signature
    self.count = count
    self.first = first
    self.last = last
  }
}
