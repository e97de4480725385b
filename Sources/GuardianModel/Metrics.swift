/// Everything that guardian measures: `guardianctl metrics` and the manual have it from here.
///
/// Names and units are those of OpenMetrics: a counter's samples end in `_total`, a family with a unit ends in it.
package enum MetricFamily: String, CaseIterable, Hashable, Sendable {
  // Of guardian itself.
  case build = "guardian_build"
  case start = "guardian_start_time_seconds"
  case services = "guardian_services"
  case memory = "guardian_resident_memory_bytes"
  case turns = "guardian_turns"
  case events = "guardian_events"
  case actions = "guardian_actions"
  case turnTime = "guardian_turn_seconds"
  case lateness = "guardian_loop_lateness_seconds"
  case queues = "guardian_queue_length"
  case tokens = "guardian_governor_tokens"
  case inLine = "guardian_governor_waiting"
  case underWay = "guardian_governor_starts_under_way"
  case commonCause = "guardian_common_cause"
  case storeWrites = "guardian_store_writes"
  case volatile = "guardian_store_volatile"
  case lostEvents = "guardian_store_lost_events"
  case droppedNotices = "guardian_notices_dropped"
  case droppedRecords = "guardian_log_records_dropped"
  case ready = "guardian_time_to_ready_seconds"
  case recovery = "guardian_time_to_recovery_seconds"

  // Of each service.
  case state = "guardian_service_state"
  case settled = "guardian_service_settled"
  case degraded = "guardian_service_degraded"
  case quarantined = "guardian_service_quarantined"
  case held = "guardian_service_held"
  case step = "guardian_service_step"
  case stepTime = "guardian_service_step_seconds"
  case strikesNow = "guardian_service_strikes_in_a_row"
  case strikes = "guardian_service_strikes"
  case lateDeaths = "guardian_service_late_deaths"
  case restarts = "guardian_service_restarts"
  case backoff = "guardian_service_backoff_seconds"
  case hooks = "guardian_service_hooks"
  case plugins = "guardian_service_plugin"

  package enum Kind: String, Hashable, Sendable { case gauge, counter, histogram, info }

  package var kind: Kind {
    switch self {
    case .build: .info
    case .turns, .events, .actions, .storeWrites, .lostEvents, .droppedNotices, .droppedRecords, .stepTime, .strikes,
      .lateDeaths, .restarts, .hooks:
      .counter
    case .turnTime, .lateness, .ready, .recovery: .histogram
    case .start, .services, .memory, .queues, .tokens, .inLine, .underWay, .commonCause, .volatile, .state, .settled,
      .degraded, .quarantined, .held, .step, .strikesNow, .backoff, .plugins:
      .gauge
    }
  }

  package var unit: String {
    for unit in ["seconds", "bytes"] where rawValue.hasSuffix("_" + unit) { return unit }
    return ""
  }

  /// So many of what a sample counts in are one unit.
  package var scale: Int64 { unit == "seconds" ? 1_000_000 : 1 }

  package var labels: [String] {
    switch self {
    case .build: ["version"]
    case .services: ["state"]
    case .queues: ["queue"]
    case .state: ["service", "state"]
    case .settled, .degraded, .quarantined, .held, .step, .strikesNow, .lateDeaths, .restarts, .backoff: ["service"]
    case .stepTime: ["service", "step"]
    case .strikes: ["service", "cause"]
    case .hooks: ["service", "hook", "result"]
    case .plugins: ["service", "plugin", "state"]
    case .start, .memory, .turns, .events, .actions, .turnTime, .lateness, .tokens, .inLine, .underWay, .commonCause,
      .storeWrites, .volatile, .lostEvents, .droppedNotices, .droppedRecords, .ready, .recovery:
      []
    }
  }

  /// Upper bounds of a histogram's buckets, in microseconds, ascending; one more bucket has the rest.
  package var bounds: [Int64] {
    switch self {
    case .turnTime, .lateness: [100, 1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000]
    case .ready, .recovery:
      [
        10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000, 300_000_000,
        1_800_000_000, 7_200_000_000,
      ]
    default: []
    }
  }

  package var help: String {
    switch self {
    case .build: "The version of guardian"
    case .start: "When guardian's program was started, or took over from another one: counters begin then"
    case .services: "Services by what they are"
    case .memory: "Memory of guardian's own process"
    case .turns: "Turns of guardian's loop"
    case .events: "What services have been heard to do"
    case .actions: "What has been done for services"
    case .turnTime: "How long a turn of the loop has taken"
    case .lateness: "How late the loop has come to a deadline"
    case .queues: "What waits: events and actions for the loop, clients that are connected, clients that follow events"
    case .tokens: "Starts that the governor would allow at once"
    case .inLine: "Services that wait for the governor"
    case .underWay: "Starts under way, as the governor counts them"
    case .commonCause: "1 while escalation is frozen for a common cause"
    case .storeWrites: "Batches of state given to the store"
    case .volatile: "1 while the state cannot be kept"
    case .lostEvents: "Events that were lost to the history"
    case .droppedNotices: "Notices that were dropped"
    case .droppedRecords: "Log records that were lost"
    case .ready: "From a start to ready, of all services"
    case .recovery: "From the first death that counted to settled, of all services"
    case .state: "1 for the state in which the service is"
    case .settled: "1 if it is settled"
    case .degraded: "1 if it is settled without some of its plugins"
    case .quarantined: "1 if it is in quarantine"
    case .held: "1 if it is held"
    case .step: "Its step: 0 restart, 1 repair, 2 safe-mode, 3 quarantine"
    case .stepTime: "Time spent on a step other than restart"
    case .strikesNow: "Strikes in a row on its step"
    case .strikes: "Strikes by cause"
    case .lateDeaths: "Late deaths within the budget"
    case .restarts: "Starts after the first"
    case .backoff: "Time left before its next try"
    case .hooks: "Hooks that have ended, by what they are for and what they came to"
    case .plugins: "1 for the state in which the plugin is"
    }
  }
}

/// One value of a family, or one histogram.
package struct MetricSample: Hashable, Sendable {
  package enum Value: Hashable, Sendable {
    /// In `1 / family.scale` of its unit.
    case number(Int64)
    /// How many fell into each bucket, the last one for what is beyond all bounds, and the sum in microseconds.
    case histogram([Int64], sum: Int64)
  }
  package var family: MetricFamily
  /// The values of `family.labels`, in their order.
  package var labels: [String]
  package var value: Value
  package init(_ family: MetricFamily, _ labels: [String] = [], _ value: Int64) {
    self.init(family, labels, .number(value))
  }
  package init(_ family: MetricFamily, _ labels: [String] = [], _ value: Value) {
    self.family = family
    self.labels = labels
    self.value = value
  }
}

/// Counts of what fell between fixed bounds. Takes no memory before the first.
package struct Histogram: Hashable, Sendable {
  package private(set) var counts: [Int64] = []
  package private(set) var sum: Int64 = 0
  package init() {}

  package mutating func observe(_ duration: Duration, in family: MetricFamily) {
    let bounds = family.bounds
    if counts.isEmpty { counts = [Int64](repeating: 0, count: bounds.count + 1) }
    let micro = max(0, duration.nanoseconds / 1000)
    counts[bounds.firstIndex { micro <= $0 } ?? bounds.count] &+= 1
    sum = sum.addingSaturating(micro)
  }

  package func sample(_ family: MetricFamily) -> MetricSample {
    let counts = counts.isEmpty ? [Int64](repeating: 0, count: family.bounds.count + 1) : counts
    return MetricSample(family, [], .histogram(counts, sum: sum))
  }
}

/// `metrics:` of guardian.yaml.
package struct MetricsSpec: Hashable, Sendable {
  /// Where they are written; nil: nowhere.
  package var textfile: String?
  package var every = Duration.seconds(15)
  package init() {}
}
