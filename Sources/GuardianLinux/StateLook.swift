import Glibc
package import GuardianModel

/// Looks at what a service is made of and depends on. Reads files: for the worker's thread.
package struct StateLook: Sendable {
  package var program: String
  /// Absolute paths; what is no regular file, or is larger than `mostBytesOfFile`, is compared by its look.
  package var files: [String]
  /// The declared ones of them, which are an item also where they are not there.
  package var declared: [String]
  package var plugins: [String]
  /// What plugins hide.
  package var pluginFiles: [String]
  /// Of the definition without its plugins.
  package var startPrint: UInt64
  /// The definition's file.
  package var definition: String
  /// What it is called.
  package var definitionName: String
  package var directories: [String]
  package var dependencies: [StateItem]
  /// The libraries in use: those of this process, or by name what they were when the service was well.
  package var libraries = Libraries.named([])
  /// Where the package manager writes what it does.
  var packageLog = PackageLog.path
  /// Shared by the looks of all services.
  let system: SystemLook

  package enum Libraries: Sendable {
    case process(Int32)
    case named([String])
  }

  package static let mostBytesOfFile = 1 << 20, mostFiles = 48
  /// For one service; what has not been read by then is compared by its look.
  package static let budget = Duration.milliseconds(50)

  package init(
    program: String, files: [String], declared: [String], plugins: [String], pluginFiles: [String], startPrint: UInt64,
    definition: String, definitionName: String, directories: [String], dependencies: [StateItem],
    system: SystemLook = SystemLook()
  ) {
    self.system = system
    self.program = program
    self.files = files
    self.declared = declared
    self.plugins = plugins
    self.pluginFiles = pluginFiles
    self.startPrint = startPrint
    self.definition = definition
    self.definitionName = definitionName
    self.directories = directories
    self.dependencies = dependencies
  }

  /// - Parameter start: When the run began that is to be blessed with this, in nanoseconds since 1970: what has changed
  ///   since then is late. Nil: nobody is.
  /// - Parameter unread: What that run has not seen as it is, since plugins were off in it.
  package func take(start: Int64? = nil, unread: Set<String> = []) -> StatePrint {
    let until = SystemClocks.monotonic() + Self.budget
    var items: [StateItem] = []
    func add(_ item: StateItem) {
      var item = item
      // The clock of a file's times is behind by a tick.
      if let start, let since = item.since, item.group != .system, item.group != .dependencies,
        item.group != .pressure, since.nanoseconds >= start - 20_000_000
      {
        item.isLate = true
      }
      if start != nil, unread.contains(item.name), item.group == .config || item.group == .plugins {
        item.isLate = true
      }
      items.append(item)
    }
    let own = item(.program, program, reading: false)
    add(own)
    for path in pluginFiles.prefix(Self.mostFiles) { add(item(.plugins, path, reading: false)) }
    for path in files.prefix(Self.mostFiles) {
      let found = item(.config, path, reading: SystemClocks.monotonic() < until)
      // An argument that names no file is none.
      if found.value == StateItem.absent, !declared.contains(path) { continue }
      add(found)
    }
    for library in libraryItems() where SystemClocks.monotonic() < until {
      if library.look.isEmpty || library.look != own.look { add(library) }
    }
    if !plugins.isEmpty { add(StateItem(.plugins, "plugins", plugins.joined(separator: ", "))) }
    var file = stat()
    let written = stat(definition, &file) == 0 ? WallTime(nanoseconds: FileTimes.changed(file)) : nil
    var started = StateItem(.start, definitionName, String(startPrint, radix: 16), since: written)
    // It is in force by a reload alone, and no run has another one than it was started with.
    if start != nil { started.since = nil }
    add(started)
    var devices: Set<UInt64> = []
    for directory in directories.prefix(Self.mostFiles) {
      guard SystemClocks.monotonic() < until else { break }
      var status = stat()
      guard stat(directory, &status) == 0, devices.insert(UInt64(status.st_dev)).inserted else { continue }
      if let room = Self.room(directory) { add(StateItem(.state, directory, room)) }
    }
    for item in system.items() { add(item) }
    // What was done before a run that is well is done with.
    if start == nil { for item in system.packages(packageLog) { add(item) } }
    for dependency in dependencies { add(dependency) }
    return StatePrint(items)
  }

  private func libraryItems() -> [StateItem] {
    switch libraries {
    case .named(let paths): return paths.prefix(MappedFiles.most).map { item(.libraries, $0, reading: false) }
    case .process(let pid):
      return MappedFiles.of(pid).map { file in
        var item = item(.libraries, file.path, reading: false)
        // Another one is under that name now, which this run does not use.
        item.isLate = file.isDeleted
        return item
      }
    }
  }

  private func item(_ group: StateItem.Group, _ path: String, reading: Bool) -> StateItem {
    var status = stat()
    guard stat(path, &status) == 0 else { return StateItem(group, path, StateItem.absent) }
    let look = ExecutableLook(status)
    var item = StateItem(
      group, path, "", look: "\(look.device):\(look.inode):\(look.size):\(look.modified)",
      since: WallTime(nanoseconds: FileTimes.changed(status)))
    let isCode = group == .program || group == .libraries
    guard reading || isCode, status.st_mode & S_IFMT == S_IFREG, isCode || status.st_size <= Self.mostBytesOfFile else {
      return item
    }
    let raw = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    if raw < 0 { return item }
    let file = OwnedFD(adopting: raw)
    if isCode {
      if let id = system.buildID(of: file.number, look) { item.value = "build-id \(id)" }
      return item
    }
    if let bytes = FileText.readAll(file.number, limit: Self.mostBytesOfFile) {
      // Who may read it is as much to the point as what it says.
      item.value =
        "\(String(Fingerprint.of(bytes), radix: 16))-\(bytes.count)-\(status.st_uid):\(status.st_gid)-"
        + String(status.st_mode & 0o7777, radix: 8)
    }
    return item
  }

  private static func room(_ directory: String) -> String? {
    var about = statvfs()
    guard statvfs(directory, &about) == 0 else { return nil }
    if about.f_flag & UInt(ST_RDONLY) != 0 { return StateItem.readOnly }
    if about.f_files > 0, about.f_favail == 0 { return StateItem.full }
    guard about.f_blocks > 0 else { return nil }
    let (free, _) = UInt64(about.f_bavail).multipliedReportingOverflow(by: UInt64(about.f_frsize))
    if free < 1 << 20 { return StateItem.full }
    return about.f_bavail < about.f_blocks / 20 ? "less than 5 % free" : "5 % free or more"
  }
}
