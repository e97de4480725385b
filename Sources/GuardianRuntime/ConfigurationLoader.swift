import Glibc
package import GuardianConfig
package import GuardianLinux
package import GuardianModel

/// What a configuration directory gave, all of it: good services, bad ones, and everything there is to say.
///
/// A value, made on the worker thread. Keeping the last good definition of a service in `invalid`, and everything while
/// `listed` is false, is the business of whoever holds the running fleet.
package struct LoadedConfiguration: Sendable {
  /// Sorted by name. A service whose command is not there is among them, with an error in `byService`.
  package var services: [ServiceSpec] = []
  /// Sorted. Files that are there and leave no definition to run; why is in `byService`.
  package var invalid: [ServiceName] = []
  /// False: the directory itself could not be read, so a service that is missing here has not been removed.
  package var listed = true
  /// Nil: guardian.yaml is broken, and the services were read with the `fallback` given to `load`.
  package var host: HostSpec?
  /// All of them: the directory's first, then guardian.yaml's, then the services' by name and place.
  package var diagnostics: [Diagnostic] = []
  /// Those about one service. For look-ups; the order of names is `services` and `invalid`.
  package var byService: [ServiceName: [Diagnostic]] = [:]

  package var switches = LoadedSwitches()

  package init() {}
}

/// Reads a configuration directory. May block (disk, name service): never on the loop.
package struct ConfigurationLoader: Sendable {
  package typealias ResolveUser =
    @Sendable (_ user: String?, _ group: String?) -> Result<Identity, ConfigurationContext.UserProblem>

  /// As given to the program; diagnostics name files below it.
  package var directory: String
  package var resolveUser: ResolveUser
  /// CAP_SYS_ADMIN is in the effective set.
  package var canHide: Bool
  /// What guardian may give to its services; nil: everything.
  package var capabilities: Set<Capability>?
  /// Names of the sockets that were passed to guardian; nil: that is not known here.
  package var sockets: [String]?
  package var trust: ConfigurationFiles.Trust

  package init(
    directory: String, resolveUser: @escaping ResolveUser, canHide: Bool,
    capabilities: Set<Capability>? = nil, sockets: [String]? = nil, trust: ConfigurationFiles.Trust = .current
  ) {
    self.directory = directory
    self.resolveUser = resolveUser
    self.canHide = canHide
    self.capabilities = capabilities
    self.sockets = sockets
    self.trust = trust
  }

  /// - Parameter fallback: The last good `guardian.yaml`, used while the present one is broken.
  package func load(fallback: HostSpec = HostSpec()) -> LoadedConfiguration {
    var loaded = LoadedConfiguration()
    let files: ConfigurationFiles
    do throws(ConfigurationFiles.Fault) {
      files = try ConfigurationFiles(path: directory, trust: trust, largest: Configuration.largestFile)
    } catch {
      loaded.listed = false
      loaded.diagnostics = [error.diagnostic]
      loaded.switches.complete = false
      return loaded
    }
    let listing = files.list()
    loaded.listed = listing.complete
    loaded.diagnostics = listing.diagnostics

    let context = context()
    switch files.readHost() {
    case .absent: loaded.host = HostSpec()
    case .fault(let diagnostic): loaded.diagnostics.append(diagnostic)
    case .bytes(let bytes):
      let parsed = Configuration.parseHost(bytes: bytes, file: files.hostPath, context: context)
      loaded.host = parsed.host
      loaded.diagnostics += parsed.diagnostics
    }
    let defaults = (loaded.host ?? fallback).defaults

    var read: [(spec: ServiceSpec, references: [ServiceReference])] = []
    for name in listing.services {
      switch files.read(name) {
      case .absent: continue  // gone since the listing: removed
      case .fault(let diagnostic):
        loaded.invalid.append(name)
        loaded.byService[name] = [diagnostic]
      case .bytes(let bytes):
        let parsed = Configuration.parseService(
          name: name, bytes: bytes, file: files.path(of: name), defaults: defaults, context: context)
        if let spec = parsed.spec { read.append((spec, parsed.references)) } else { loaded.invalid.append(name) }
        if !parsed.diagnostics.isEmpty { loaded.byService[name] = parsed.diagnostics }
      }
    }
    check(read, &loaded)
    loaded.switches = Self.loadSwitches(files)
    return loaded
  }

  /// How the services name each other can be judged only when all files have been read.
  private func check(
    _ read: [(spec: ServiceSpec, references: [ServiceReference])], _ loaded: inout LoadedConfiguration
  ) {
    let found = DependencyCheck(read, known: Set(read.map(\.spec.name) + loaded.invalid)).found
    for (spec, _) in read {
      let faults = found[spec.name] ?? []
      if !faults.isEmpty { loaded.byService[spec.name, default: []] += faults }
      if faults.contains(where: { $0.severity == .error }) {
        loaded.invalid.append(spec.name)
      } else {
        loaded.services.append(spec)
      }
    }
    loaded.invalid.sort()
    for name in loaded.byService.keys.sorted() { loaded.diagnostics += loaded.byService[name] ?? [] }
  }

  /// Asks the machine, and each question once for one loading: ten thousand services may share one user.
  private func context() -> ConfigurationContext {
    struct Who: Hashable { var user: String?, group: String? }
    var users: [Who: Result<Identity, ConfigurationContext.UserProblem>] = [:]
    var paths: [String: String?] = [:], writers: [String: String?] = [:]
    var listings: [String: Result<[String], ConfigurationContext.UserProblem>] = [:]
    return ConfigurationContext(
      resolveUser: { user, group in
        let who = Who(user: user, group: group)
        if let known = users[who] { return known }
        let found = resolveUser(user, group)
        users[who] = found
        return found
      },
      lookAt: { path, use in
        if let known = paths["\(use) \(path)"] { return known }
        let found = Self.problem(path, use)
        paths["\(use) \(path)"] = .some(found)
        return found
      },
      whoElseWrites: { path in
        if let known = writers[path] { return known }
        let found = Writers.beside(path)
        writers[path] = .some(found)
        return found
      },
      entries: { path in
        if let known = listings[path] { return known }
        let found = PluginEntries.list(path).mapError { ConfigurationContext.UserProblem(ErrnoText.reason($0.errno)) }
        listings[path] = found
        return found
      }, canHide: canHide, ownUID: trust.uid, mayGive: { capabilities?.contains($0) ?? true }, passedSockets: sockets)
  }

  private static func problem(_ path: String, _ use: ConfigurationContext.PathUse) -> String? {
    var status = stat()
    guard stat(path, &status) == 0 else { return ErrnoText.reason(errno) }
    let isDirectory = status.st_mode & S_IFMT == S_IFDIR
    switch use {
    case .directory: return isDirectory ? nil : "not a directory"
    case .environmentFile: return status.st_mode & S_IFMT == S_IFREG ? nil : "not a file"
    case .command:
      if isDirectory { return "a directory, not a program" }
      guard status.st_mode & S_IFMT == S_IFREG else { return "not a program" }
      return status.st_mode & 0o111 == 0 ? "not executable; chmod +x it" : nil
    }
  }
}
