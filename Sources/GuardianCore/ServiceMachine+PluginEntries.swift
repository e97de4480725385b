import GuardianModel

// The entries of a plugin directory. They come and go without a change of the definition: what has been found takes effect
// with the next start, and nothing is forgiven for it.

extension ServiceMachine {
  /// The entries that the next start goes by; nil: those that are in force.
  ///
  /// - Parameter directory: As it was looked at; another one has been defined since where it is not the present one.
  mutating func pluginsFound(in directory: PluginDirectory, _ found: [PluginSpec]) {
    guard (nextProcess?.value ?? spec.process).pluginDirectory == directory else { return }
    // Where there is nothing at all the directory may just not be mounted.
    let found = found.isEmpty ? remembered(in: directory, beside: nextProcess?.value ?? spec.process) : found
    let known = nextFound?.value ?? (nextProcess?.value ?? spec.process).plugins.filter { $0.entry != nil }
    guard found != known else { return }
    let inForce = spec.process.plugins.filter { $0.entry != nil }
    nextFound = nextProcess == nil && found == inForce ? nil : Shared(found)
  }

  /// - Returns: This definition with the entries that were found last.
  func withFoundPlugins(_ process: ProcessSpec) -> ProcessSpec {
    guard let nextFound, process.pluginDirectory != nil else { return process }
    var process = process.asDefined.withWhatIsKnown(from: spec.process.withoutEntries)
    let listed = Set(process.plugins.map(\.name))
    process.plugins += nextFound.value.filter { $0.entry != nil && !listed.contains($0.name) }
    return process
  }

  /// The entries of which something is remembered, as far as their names tell what they are: a directory that cannot be
  /// looked at, or is not mounted yet, is none in which nothing is.
  func remembered(in directory: PluginDirectory, beside process: ProcessSpec) -> [PluginSpec] {
    if record.plugins.isEmpty { return [] }
    let listed = process.plugins.filter { $0.entry == nil }
    var names = record.plugins.all.map(\.name)
    for name in record.plugins.search?.toggles ?? [] where !names.contains(name) { names.append(name) }
    return directory.plugins(of: names, beside: listed).found.filter { names.contains($0.name) }
  }

  /// What a directory holds that has not been looked at.
  mutating func takeUpRememberedPlugins() {
    guard let directory = spec.process.pluginDirectory, !spec.process.plugins.contains(where: { $0.entry != nil })
    else { return }
    let found = remembered(in: directory, beside: spec.process)
    if !found.isEmpty { spec.process.plugins += found }
  }

  /// Before a start is decided.
  mutating func takeUpFoundPlugins() {
    guard nextFound != nil else { return }
    spec.process = withFoundPlugins(spec.process)
    nextFound = nil
    takeUpPlugins()
  }
}
