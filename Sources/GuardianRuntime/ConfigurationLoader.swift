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
  package var stopGrace: ConfigurationContext.StopGrace?

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

  /// - Parameters:
  ///   - fallback: The last good `guardian.yaml`, used while the present one is broken.
  ///   - drafts: Files that are read in place of those of the directory.
  package func load(fallback: HostSpec = HostSpec(), drafts: DraftFiles = DraftFiles()) -> LoadedConfiguration {
    var loaded = LoadedConfiguration()
    let files: ConfigurationFiles
    do throws(ConfigurationFiles.Fault) {
      files = try ConfigurationFiles(path: directory, trust: trust, largest: Configuration.largestFile)
    } catch {
      loaded.listed = false
      loaded.diagnostics = [error.diagnostic]
      loaded.switches.complete = false
      takeAlone(drafts, fallback, &loaded)
      return loaded
    }
    var read: [(spec: ServiceSpec, references: [ServiceReference])] = []
    let context = context()
    let listing = files.list()
    loaded.listed = listing.complete
    loaded.diagnostics = listing.diagnostics
    if let draft = drafts.host, !draft.inPlace {
      takeHost((draft.reading, draft.path), context, &loaded)
    } else {
      // What cannot be copied cannot be captured by `??` either, here and below.
      let path = if let draft = drafts.host { draft.path } else { files.hostPath }
      takeHost((files.readHost(), path), context, &loaded)
    }
    let defaults = (loaded.host ?? fallback).defaults
    let more = drafts.services.keys.filter { !listing.services.contains($0) }
    for name in more.isEmpty ? listing.services : (listing.services + more).sorted() {
      let draft = drafts.services[name]
      if let draft, !draft.inPlace {
        take(name, draft.reading, draft.path, defaults, context, &loaded, &read)
      } else {
        let path = if let draft { draft.path } else { files.path(of: name) }
        take(name, files.read(name), path, defaults, context, &loaded, &read)
      }
    }
    check(read, known: [], &loaded)
    loaded.switches = Self.loadSwitches(files, drafts: drafts.switches)
    return loaded
  }

  /// Drafts beside a directory that cannot be read.
  private func takeAlone(_ drafts: DraftFiles, _ fallback: HostSpec, _ loaded: inout LoadedConfiguration) {
    guard !drafts.isEmpty else { return }
    var read: [(spec: ServiceSpec, references: [ServiceReference])] = []
    let context = context()
    takeHost(drafts.host.map { ($0.reading, $0.path) } ?? (.absent, ""), context, &loaded)
    let defaults = (loaded.host ?? fallback).defaults
    for (name, draft) in drafts.services.sorted(by: { $0.key < $1.key }) {
      take(name, draft.reading, draft.path, defaults, context, &loaded, &read)
    }
    // Which services there are is not known here, so that none can be missing.
    check(read, known: read.flatMap { $0.references.map(\.name) }, &loaded)
    for (name, draft) in drafts.switches.sorted(by: { $0.key < $1.key }) {
      loaded.switches.files += Self.switchFile(name, draft.reading, draft.path)
    }
  }

  private func takeHost(
    _ host: (reading: ConfigurationFiles.Reading, path: String), _ context: ConfigurationContext,
    _ loaded: inout LoadedConfiguration
  ) {
    switch host.reading {
    case .absent: loaded.host = HostSpec()
    case .fault(var diagnostic):
      if !host.path.isEmpty { diagnostic.file = host.path }
      loaded.diagnostics.append(diagnostic)
    case .bytes(let bytes):
      let parsed = Configuration.parseHost(bytes: bytes, file: host.path, context: context)
      loaded.host = parsed.host
      loaded.diagnostics += parsed.diagnostics
    }
  }

  private func take(
    _ name: ServiceName, _ reading: ConfigurationFiles.Reading, _ path: String, _ defaults: ServiceDefaults,
    _ context: ConfigurationContext, _ loaded: inout LoadedConfiguration,
    _ read: inout [(spec: ServiceSpec, references: [ServiceReference])]
  ) {
    switch reading {
    case .absent: return  // gone since the listing: removed
    case .fault(var diagnostic):
      loaded.invalid.append(name)
      diagnostic.file = path
      loaded.byService[name] = [diagnostic]
    case .bytes(let bytes):
      let parsed = Configuration.parseService(
        name: name, bytes: bytes, file: path, defaults: defaults, context: context)
      if let spec = parsed.spec { read.append((spec, parsed.references)) } else { loaded.invalid.append(name) }
      if !parsed.diagnostics.isEmpty { loaded.byService[name] = parsed.diagnostics }
    }
  }

  /// How the services name each other can be judged only when all files have been read.
  ///
  /// - Parameter known: Services that are there beside those that were read.
  private func check(
    _ read: [(spec: ServiceSpec, references: [ServiceReference])], known: [ServiceName],
    _ loaded: inout LoadedConfiguration
  ) {
    let found = DependencyCheck(read, known: Set(read.map(\.spec.name) + loaded.invalid + known)).found
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
      }, canHide: canHide, ownUID: trust.uid, mayGive: { capabilities?.contains($0) ?? true }, passedSockets: sockets,
      stopGrace: stopGrace)
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
