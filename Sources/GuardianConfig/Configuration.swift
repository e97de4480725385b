package import GuardianModel

/// From the bytes of a YAML file to a validated value, or to everything that is wrong with it.
///
/// Pure: what only the machine can know (users, whether a program is there) is asked of the `ConfigurationContext`.
package enum Configuration {
  /// A file of more bytes is refused unread.
  package static let largestFile = 1 << 20

  /// Reads `services/NAME.yaml`.
  ///
  /// - Parameter file: The path shown in diagnostics.
  /// - Parameter defaults: What `guardian.yaml` says under `defaults:`.
  package static func parseService(
    name: ServiceName, bytes: [UInt8], file: String, defaults: ServiceDefaults = .none, context: ConfigurationContext
  ) -> ParsedService {
    var log = DiagnosticLog(known: defaults.reported)
    guard let root = compose(bytes, file: file, into: &log) else {
      return ParsedService(spec: nil, diagnostics: log.sorted())
    }
    guard let root else {
      log.fault(file: file, what: "the file is empty", why: "a service needs at least 'command: [/path/to/program]'")
      return ParsedService(spec: nil, diagnostics: log.sorted())
    }
    var decoder = ServiceDecoder(context: context, log: log, mainFile: file)
    let spec = decoder.service(named: name, root: root, defaults: defaults.node)
    let valid = decoder.log.blocked ? nil : spec
    return ParsedService(
      spec: valid, diagnostics: decoder.log.sorted(), references: valid == nil ? [] : decoder.references)
  }

  /// Reads `guardian.yaml`.
  package static func parseHost(bytes: [UInt8], file: String, context: ConfigurationContext) -> ParsedHost {
    var log = DiagnosticLog()
    guard let root = compose(bytes, file: file, into: &log) else {
      return ParsedHost(host: nil, diagnostics: log.sorted())
    }
    guard let root else { return ParsedHost(host: HostSpec(), diagnostics: log.sorted()) }
    var decoder = ServiceDecoder(context: context, log: log, mainFile: file)
    let read = decoder.host(root)
    let diagnostics = decoder.log.sorted()
    if decoder.log.blocked { return ParsedHost(host: nil, diagnostics: diagnostics) }
    var host = read
    host.defaults = ServiceDefaults(node: read.defaults.node, reported: Set(diagnostics))
    host.written = root
    return ParsedHost(host: host, diagnostics: diagnostics)
  }

  /// Nil after a fault of syntax; an empty document is `.some(nil)`.
  private static func compose(_ bytes: [UInt8], file: String, into log: inout DiagnosticLog) -> Node?? {
    guard let text = SourceText.checked(bytes, file: file, log: &log) else { return nil }
    return Composer.compose(text, log: &log)
  }
}

/// What a service's file gave.
package struct ParsedService: Sendable {
  /// Nil where a fault leaves no definition to run. A command that is not there (yet) is an error too, but leaves one.
  package var spec: ServiceSpec?
  /// In the order of the file.
  package var diagnostics: [Diagnostic]
  /// The other services that the definition names; empty where there is none.
  package var references: [ServiceReference] = []
}

/// What `guardian.yaml` gave.
package struct ParsedHost: Sendable {
  /// Nil after any error: the last good copy stays in force.
  package var host: HostSpec?
  package var diagnostics: [Diagnostic]
}

/// Host-wide settings.
package struct HostSpec: Sendable {
  package var defaults = ServiceDefaults.none
  /// Of each, events and runs: that many are kept.
  package var historyEvents = 100_000
  /// Crash reports, of each service and in bytes of all.
  package var reportsPerService = 20
  package var reportsTotal: UInt64 = 50 << 20
  package var swiftBacktrace = SwiftBacktraceWish.automatic
  /// Whether control groups are used. In force from guardian's start on.
  package var groups = GroupsWish.automatic
  /// Nil: `off`.
  package var governor: GovernorSpec? = GovernorSpec()
  /// Nil: `off`.
  package var commonCause: CommonCauseSpec? = CommonCauseSpec()
  package var logs = LogsSpec()
  /// Who may do what, beside root and guardian's own user.
  package var access = AccessSpec()
  package var metrics = MetricsSpec()
  /// The file itself, for telling what has changed in it.
  var written: Node?
  package init() {}

  /// The keys at the top of guardian.yaml that say something else than in `old`, in the order of the manual.
  package func changedKeys(from old: HostSpec) -> [String] {
    let (before, after) = (old.written?.entries ?? [:], written?.entries ?? [:])
    return KeyTable.host.words(under: "").filter { word in
      switch (before[word], after[word]) {
      case (nil, nil): false
      case (let a?, let b?): !a.saysTheSame(as: b)
      case (nil, _), (_, nil): true
      }
    }
  }
}

/// `defaults:` of guardian.yaml, already found to be free of faults.
package struct ServiceDefaults: Sendable {
  let node: Node?
  /// Said once, for guardian.yaml, and not again for every service.
  let reported: Set<Diagnostic>
  package static let none = ServiceDefaults(node: nil, reported: [])
}

/// What only the machine can tell.
package struct ConfigurationContext {
  package struct UserProblem: Error, Hashable, Sendable {
    /// `no user 'wbe' in the user database`, without a full stop.
    package var what: String
    package init(_ what: String) { self.what = what }
  }
  package enum PathUse: Sendable { case command, directory, environmentFile }

  /// (user, group) as written; at least one is given.
  package var resolveUser: (_ user: String?, _ group: String?) -> Result<Identity, UserProblem>
  /// Nil: fine. Else what is wrong with the path, as in `no such file`.
  package var lookAt: (_ path: String, _ use: PathUse) -> String?
  /// Nil: nobody else can change what this path leads to. Else who can, and where, as in `directory /srv/x is writable by
  /// others (uid 0, mode 0777)`.
  package var whoElseWrites: (_ path: String) -> String?
  /// The names of what may be a plugin in this directory, unordered. Asked for `plugins.directory`.
  package var entries: (_ path: String) -> Result<[String], UserProblem>
  /// CAP_SYS_ADMIN is there, so that a path can be hidden from one service.
  package var canHide: Bool
  /// Guardian's own uid; only root may become somebody else.
  package var ownUID: UInt32
  /// Whether guardian may give this to a service. Asked only where it is not root.
  package var mayGive: (Capability) -> Bool
  /// The names of the sockets that the service manager passed to guardian; nil: nobody knows here, as offline.
  package var passedSockets: [String]?
  /// How long guardian itself is given to stop everything, and who says so.
  package struct StopGrace: Hashable, Sendable {
    package var time: Duration
    /// As the beginning of a sentence.
    package var source: String
    package init(time: Duration, source: String) {
      self.time = time
      self.source = source
    }
  }
  /// Nil: as long as it takes, or nobody knows.
  package var stopGrace: StopGrace?

  package init(
    resolveUser: @escaping (String?, String?) -> Result<Identity, UserProblem>,
    lookAt: @escaping (String, PathUse) -> String? = { _, _ in nil },
    whoElseWrites: @escaping (String) -> String? = { _ in nil },
    entries: @escaping (String) -> Result<[String], UserProblem> = { _ in .success([]) }, canHide: Bool = true,
    ownUID: UInt32 = 0,
    mayGive: @escaping (Capability) -> Bool = { _ in true }, passedSockets: [String]? = nil, stopGrace: StopGrace? = nil
  ) {
    self.resolveUser = resolveUser
    self.lookAt = lookAt
    self.whoElseWrites = whoElseWrites
    self.entries = entries
    self.canHide = canHide
    self.ownUID = ownUID
    self.mayGive = mayGive
    self.passedSockets = passedSockets
    self.stopGrace = stopGrace
  }
}
