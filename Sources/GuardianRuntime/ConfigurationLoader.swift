package import GuardianConfig
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

  package init(directory: String, resolveUser: @escaping ResolveUser, canHide: Bool) {
    self.directory = directory
    self.resolveUser = resolveUser
    self.canHide = canHide
  }

  /// - Parameter fallback: The last good `guardian.yaml`, used while the present one is broken.
  package func load(fallback: HostSpec = HostSpec()) -> LoadedConfiguration {
    LoadedConfiguration()
  }
}
