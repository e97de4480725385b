import GuardianConfig
import GuardianLinux
import GuardianModel

/// What is on disk, compared with what is in force: the last good definition of each service, and what is wrong.
struct Definitions {
  /// Everything that the last reading had to say.
  private(set) var diagnostics: [Diagnostic] = []
  /// Never valid since guardian's start: shown as quarantined, with nothing to run.
  private(set) var broken: [ServiceName: [Diagnostic]] = [:]
  /// Broken now, in force as last read.
  private(set) var stale: [ServiceName: [Diagnostic]] = [:]
  /// The last good guardian.yaml.
  private(set) var host = HostSpec()
  private(set) var hostIsStale = false
  /// The last reading could not even list the services.
  private(set) var directoryIsUnusable = false
  /// Good services of the last reading.
  private(set) var count = 0
  /// Keys of guardian.yaml in which the last reading differs from the one before.
  private(set) var hostChanges: [String] = []

  struct Change {
    /// Valid, whether new, changed or as before.
    var defined: [ServiceSpec] = []
    var removed: [ServiceName] = []
  }

  /// - Parameter notifyDirectory: Where notify sockets will be made; a path that is too long is a fault of the
  ///   definition, found before anything is started.
  mutating func apply(_ loaded: LoadedConfiguration, inForce: [ServiceName], notifyDirectory: String) -> Change {
    diagnostics = loaded.diagnostics
    hostChanges = []
    if let good = loaded.host {
      hostChanges = good.changedKeys(from: host)
      host = good
    }
    hostIsStale = loaded.host == nil
    directoryIsUnusable = !loaded.listed
    // An unreadable directory says nothing about any service.
    guard loaded.listed else { return Change() }

    var change = Change()
    broken = [:]
    stale = [:]
    count = loaded.services.count
    let running = Set(inForce)
    var there = Set<ServiceName>()
    func isBroken(_ name: ServiceName, _ why: [Diagnostic]) {
      there.insert(name)
      if running.contains(name) { stale[name] = why } else { broken[name] = why }
    }
    for spec in loaded.services {
      let path = "\(notifyDirectory)/\(spec.name)"
      if spec.needsNotifySocket, path.utf8.count > UnixAddress.longestPath {
        let fault = Diagnostic(
          file: "services/\(spec.name).yaml",
          what: "the notify socket's path \(path) has \(path.utf8.count) bytes",
          why: "the kernel takes \(UnixAddress.longestPath); choose a shorter --runtime or a shorter name")
        diagnostics.append(fault)
        isBroken(spec.name, [fault])
      } else {
        there.insert(spec.name)
        change.defined.append(spec)
      }
    }
    for name in loaded.invalid { isBroken(name, loaded.byService[name] ?? []) }
    change.removed = inForce.filter { !there.contains($0) }
    return change
  }

  /// Services whose files are not valid now, in order of name.
  var invalid: [ServiceName] { (Array(broken.keys) + Array(stale.keys)).sorted() }

  /// How a service without any definition is shown.
  static func status(ofBroken name: ServiceName, _ why: [Diagnostic]) -> ServiceStatus {
    var status = ServiceStatus(name: name.text)
    status.wanted = .up
    status.phase = .quarantined
    status.step = .quarantine
    let first = why.first { $0.severity == .error } ?? why.first
    status.reason = "its file is not valid" + (first.map { ": \($0)" } ?? "")
    status.clears = "a corrected file and 'guardianctl reload'"
    status.notes = why.dropFirst().map(\.description)
    return status
  }
}

extension ServiceSpec {
  var needsNotifySocket: Bool {
    if case .status? = plugins.acknowledge { return true }
    return ready == .notify || watchdog > .zero
  }
}
