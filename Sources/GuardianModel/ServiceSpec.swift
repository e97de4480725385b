/// What one YAML file says about one service, validated and with every default filled in.
package struct ServiceSpec: Hashable, Sendable {
  package var name: ServiceName
  package var description = ""
  /// What is executed, as whom and with what. A change in here gives the service a fresh ladder.
  package var process: ProcessSpec
  package var start = StartCondition.boot
  /// It waits until these are ready; a task: until it has finished well. Each once, never itself.
  package var requires: [ServiceName] = []
  /// It starts after these where they start at the same time, however that goes.
  package var after: [ServiceName] = []
  /// What it can be called by together with others: `@shop`. Each once.
  package var groups: [ServiceName] = []
  package var kind = ServiceKind.daemon
  package var ready = Readiness.none
  package var startTimeout = Duration.seconds(90)
  package var startupWindow = Duration.seconds(60)
  /// How often WATCHDOG=1 is expected; zero turns the watchdog off.
  package var watchdog = Duration.zero
  /// Their names are unique.
  package var checks: [CheckSpec] = []
  package var stop = StopSpec()
  /// Nil: it cannot be told to reload.
  package var reload: ReloadSpec?
  package var restart = RestartPolicy.always
  package var backoff = BackoffSpec()
  package var escalation = EscalationSpec()
  package var late = LateSpec()
  package var successExit: [Int32] = [0]
  package var fatalExit: [Int32] = []
  package var repairs: [RepairSpec] = []
  package var plugins = PluginsSpec()
  package var quarantine = QuarantineSpec()
  package var mode = LadderMode.enforce
  /// Whether what surrounds a program that crashes may be changed, to see whether that helps.
  package var mitigate = MitigationMode.off
  package var runbook: String?
  package var contact: String?
  /// Who may do what about it, beside those whom guardian.yaml grants that.
  package var access = AccessSpec()
  /// Programs to run, one argument list for each kind.
  package var notices: [NoticeKind: [String]] = [:]
  package var log = LogTarget.automatic

  package init(name: ServiceName, process: ProcessSpec) {
    self.name = name
    self.process = process
  }
}

/// The process keys: everything that shapes the executed process.
package struct ProcessSpec: Hashable, Sendable {
  /// The program's absolute path and its arguments; never empty.
  package var command: [String]
  /// Nil: guardian's own user, groups and home.
  package var identity: Identity?
  package var directory: String?
  /// In file order, names unique; on top of the base environment.
  package var environment: [EnvironmentVariable] = []
  package var environmentFiles: [EnvironmentFile] = []
  package var umask: UInt32 = 0o022
  package var limits: [ResourceLimit] = []
  package var groupLimits = GroupLimits()
  package var oomScoreAdjust: Int32?
  package var nice: Int32?
  /// What it keeps of root's power beside its own user's; ascending, none twice.
  package var capabilities: [Capability] = []
  /// Names of sockets that the service manager passed to guardian, handed on in this order.
  package var sockets: [String] = []
  /// A program to run before each start, within `start-timeout`; empty: none.
  package var beforeStart: [String] = []
  /// Those of the file first, then those found in `pluginDirectory`, in the order of their entries. Names are unique.
  package var plugins: [PluginSpec] = []
  /// Nil: there are no plugins but those of the file.
  @Rare package var pluginDirectory: PluginDirectory?

  package init(command: [String]) { self.command = command }
}

/// A user with all groups, resolved from the user database when the file was loaded.
package struct Identity: Hashable, Sendable {
  package var user: String
  package var uid: UInt32, gid: UInt32
  /// Supplementary groups, `gid` included.
  package var groups: [UInt32]
  package var home: String, shell: String
  package init(user: String, uid: UInt32, gid: UInt32, groups: [UInt32], home: String, shell: String) {
    self.user = user
    self.uid = uid
    self.gid = gid
    self.groups = groups
    self.home = home
    self.shell = shell
  }
}

package struct EnvironmentVariable: Hashable, Sendable {
  package var name: String, value: String
  package init(_ name: String, _ value: String) {
    self.name = name
    self.value = value
  }
}

package struct EnvironmentFile: Hashable, Sendable {
  package var path: String
  /// Written `-/path` in YAML: the file may be missing.
  package var optional: Bool
  package init(path: String, optional: Bool) {
    self.path = path
    self.optional = optional
  }
}

/// One rlimit, soft and hard alike. `UInt64.max` is unlimited.
package struct ResourceLimit: Hashable, Sendable {
  package enum Resource: String, Hashable, Sendable, CaseIterable {
    case openFiles = "open-files", core, stack, processes, fileSize = "file-size", lockedMemory = "locked-memory"
    case addressSpace = "address-space", cpuTime = "cpu-time", data
  }
  package var resource: Resource
  /// Bytes, seconds or a plain count, as setrlimit(2) has it.
  package var value: UInt64
  package init(_ resource: Resource, _ value: UInt64) {
    self.resource = resource
    self.value = value
  }
}

/// What all processes of a run together may have, by their control group. Nil: no limit of guardian's.
package struct GroupLimits: Hashable, Sendable {
  /// Bytes, as memory.max has it; `UInt64.max` is unlimited.
  package var memory: UInt64?
  /// Processes and threads, as pids.max has it; `UInt64.max` is unlimited.
  package var tasks: UInt64?
  /// 1 … 10000, as cpu.weight has it; 100 is what every group has.
  package var cpuWeight: UInt64?
  package init(memory: UInt64? = nil, tasks: UInt64? = nil, cpuWeight: UInt64? = nil) {
    self.memory = memory
    self.tasks = tasks
    self.cpuWeight = cpuWeight
  }
  package var isEmpty: Bool { memory == nil && tasks == nil && cpuWeight == nil }
}

/// Whether guardian may use control groups.
package enum GroupsWish: Hashable, Sendable {
  /// Where its own group is delegated to it, or nobody manages the tree.
  case automatic
  case off
  /// Below this group, as /proc/PID/cgroup names it: `/guardian`.
  case path(String)
}

package enum StartCondition: String, Hashable, Sendable, CaseIterable { case boot, manual }
package enum ServiceKind: String, Hashable, Sendable, CaseIterable { case daemon, task }
package enum Readiness: Hashable, Sendable {
  case none
  /// READY=1 on the notify socket.
  case notify
  /// A newline on this descriptor, as s6 has it; 3 or above.
  case descriptor(Int32)
  /// All checks of the service have passed since this run's start.
  case check
}
package enum RestartPolicy: String, Hashable, Sendable, CaseIterable {
  case always, onCrash = "on-crash", never
}
package enum LadderMode: String, Hashable, Sendable, CaseIterable { case enforce, observe }
package enum LogTarget: String, Hashable, Sendable, CaseIterable {
  /// The journal where its socket exists, else inherited. What a file without `log:` has.
  case automatic
  case journal
  /// By guardian-logger to `NAME/current` in the directory for logs.
  case file
  case inherit, none
}
package enum NoticeKind: String, Hashable, Sendable, CaseIterable {
  case onCrash = "on-crash", onEscalation = "on-escalation", onRecovery = "on-recovery"
  case onQuarantine = "on-quarantine", onCommonCause = "on-common-cause"
}

/// How a service is told to read its own configuration again.
package enum ReloadSpec: Hashable, Sendable {
  /// To the main process.
  case signal(Signal)
  /// An absolute path and arguments, run as the service's user.
  case command([String])
}

package struct StopSpec: Hashable, Sendable {
  package enum Leftovers: String, Hashable, Sendable, CaseIterable { case kill, term }
  package var signal = Signal.term
  /// Shared by the main process and the rest; then what comes `then`, and at last KILL.
  package var timeout = Duration.seconds(10)
  package var then: [StopStep] = []
  /// What the rest gets after a crash of the main process.
  package var leftovers = Leftovers.kill
  package init() {}

  /// How many signals are sent before KILL.
  package var steps: Int { 1 + then.count }
  /// Of the step that is the `index`-th, counted from 0; the last one's for what lies beyond.
  package func step(_ index: Int) -> StopStep {
    index < 1 || then.isEmpty ? StopStep(signal: signal, timeout: timeout) : then[min(index, then.count) - 1]
  }
  /// Until KILL is due.
  package var patience: Duration { then.reduce(timeout) { $0 + $1.timeout } }
}

/// One signal of a stop, and how long it is given.
package struct StopStep: Hashable, Sendable {
  package var signal: Signal, timeout: Duration
  package init(signal: Signal, timeout: Duration) {
    self.signal = signal
    self.timeout = timeout
  }
}

package struct BackoffSpec: Hashable, Sendable {
  package var first = Duration.milliseconds(500)
  package var factor = 2.0
  package var max = Duration.seconds(60)
  /// A share: 0.1 is 10 %.
  package var jitter = 0.1
  package init() {}
}

package struct EscalationSpec: Hashable, Sendable {
  /// False: `escalation: off`, restarts for ever with backoff.
  package var enabled = true
  package var restart = 3, repair = 2, safeMode = 2
  package var deescalateAfter = Duration.hour
  package init() {}
}

package struct LateSpec: Hashable, Sendable {
  package var budget = 5
  package var within = Duration.hour
  package init() {}
}

package struct RepairSpec: Hashable, Sendable {
  package enum Kind: Hashable, Sendable {
    case run([String])
    case moveAside(String)
    /// Absolute paths, each once, at most `mostRestored`.
    case restore([String])
  }
  package var name: String
  package var kind: Kind
  /// Empty: after any death.
  package var on: [CauseMatcher] = []
  /// The first repair round (counted from 1) in which it runs.
  package var fromAttempt = 1
  package var atMost: RunLimit?
  package var timeout = Duration.seconds(60)
  /// Nil: the service's user (for `move-aside` and `restore` guardian's own, since it renames in the parent directory).
  package var identity: Identity?
  package init(name: String, kind: Kind) {
    self.name = name
    self.kind = kind
  }
  /// Files of one `restore`, and of one service.
  package static let mostRestored = 32
}

extension ServiceSpec {
  /// The files that its repairs would restore, and those of which a plugin may have the service see the good copy, each
  /// once: what they contain is part of what the service is.
  package var declaredFiles: [String] {
    var files: [String] = []
    for repair in repairs {
      guard case .restore(let paths) = repair.kind else { continue }
      for path in paths where !files.contains(path) { files.append(path) }
    }
    for path in process.plugins.flatMap(\.goodCopy) where !files.contains(path) { files.append(path) }
    return files
  }
}

package struct RunLimit: Hashable, Sendable {
  package var times: Int, within: Duration
  package init(times: Int, within: Duration) {
    self.times = times
    self.within = within
  }
}

package enum SearchMode: String, Hashable, Sendable, CaseIterable { case off, suggest, auto }

/// When a service that is well, or well in safe mode, may be started anew for its plugins' sake.
package enum PluginTime: Hashable, Sendable {
  /// A search at once; a plugin that is due waits for a start that comes about by itself.
  case incident
  /// While the service has next to nothing to do.
  case idle
  /// Minutes of the local day; over midnight where `to` is not the later one.
  case daily(from: Int, to: Int)
}

package struct PluginsSpec: Hashable, Sendable {
  package var search = SearchMode.auto
  package var when = PluginTime.incident
  package var retryAfter = Duration.day
  /// Nil: what was started with plugins off is taken to have them off.
  package var acknowledge: Acknowledgement?
  package init() {}
}

package struct QuarantineSpec: Hashable, Sendable {
  /// Nil: `never`.
  package var retryAfter: Duration? = .seconds(900)
  package var max = Duration.day
  /// Another service, with `start: manual`, that runs as long as this one is in quarantine.
  package var fallback: ServiceName?
  package init() {}
}
