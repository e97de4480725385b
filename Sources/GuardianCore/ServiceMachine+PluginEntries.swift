import GuardianModel

// The entries of a plugin directory. They come and go without a change of the definition: what has been found takes effect
// with the next start, and nothing is forgiven for it.

extension ServiceMachine {
  /// The entries that the next start goes by; nil: those that are in force.
  ///
  /// - Parameter directory: As it was looked at; another one has been defined since where it is not the present one.
  mutating func pluginsFound(in directory: PluginDirectory, _ found: [PluginSpec]) {
    guard (nextProcess?.value ?? spec.process).pluginDirectory == directory else { return }
    let known = nextFound?.value ?? (nextProcess?.value ?? spec.process).plugins.filter { $0.entry != nil }
    guard found != known else { return }
    let inForce = spec.process.plugins.filter { $0.entry != nil }
    nextFound = nextProcess == nil && found == inForce ? nil : Shared(found)
  }

  /// - Returns: This definition with the entries that were found last.
  func withFoundPlugins(_ process: ProcessSpec) -> ProcessSpec {
    guard let nextFound, process.pluginDirectory != nil else { return process }
    var process = process.asDefined
    let listed = Set(process.plugins.map(\.name))
    process.plugins += nextFound.value.filter { $0.entry != nil && !listed.contains($0.name) }
    return process
  }

  /// Before a start is decided.
  mutating func takeUpFoundPlugins() {
    guard let found = nextFound?.value else { return }
    spec.process = withFoundPlugins(spec.process)
    nextFound = nil
    // Where there is nothing at all the directory may just not be mounted.
    if !found.isEmpty { takeUpPlugins() }
  }
}
