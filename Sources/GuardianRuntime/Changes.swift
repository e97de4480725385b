import Glibc
import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel

/// What services are made of: looked at before starts and after changes, kept when a run has settled, compared when one has
/// died. All of it on the worker's thread.
final class ChangeTable {
  private final class Known {
    var sights: [GoodCopies.Sight] = []
    /// How the declared files looked before the start of this run.
    var before: [GoodCopies.Sight] = []
    var beforeRun: RunID?
    /// Why a good copy has not been taken, by path.
    var untaken: [String: String] = [:]
    /// When the first run began that has failed since the last healthy one.
    var failing: WallTime?
    /// Why the plugin directory cannot be looked at; empty: it can.
    var directoryTrouble = ""
    /// Of the plugin directory, beyond what there can be of plugins.
    var entriesLeft = 0
  }
  private struct Blessing {
    var service: ServiceID
    var run: RunID
  }

  private unowned let shell: Shell
  /// Of most services there is nothing to know.
  private var known: [ServiceID: Known] = [:]
  private var settled: [Blessing] = []
  private var isBlessing = false
  private let system = SystemLook()

  /// Runs that have settled and are looked at in one job, so that a start of thousands leaves room for other jobs.
  private static let atOnce = 16

  init(_ shell: Shell) { self.shell = shell }

  func copies(of name: ServiceName) -> GoodCopies {
    GoodCopies(directory: "\(shell.directories.state)/good/\(name)")
  }

  private func known(_ service: ServiceID) -> Known {
    if let there = known[service] { return there }
    let new = Known()
    known[service] = new
    return new
  }

  // MARK: Declared files

  /// Looks at the declared files of these services, and tells the fleet.
  func look(_ services: some Sequence<ServiceID>) {
    for id in services {
      guard let spec = shell.fleet.spec(of: id) else { continue }
      lookAtPluginFiles(of: id)
      let files = spec.declaredFiles
      guard !files.isEmpty else {
        known[id]?.sights = []
        continue
      }
      let copies = copies(of: spec.name), compared = spec.process.plugins.flatMap(\.goodCopy)
      _ = shell.worker.submit({ copies.look(at: files, comparing: compared) }) { [weak self] sights in
        self?.seen(sights, of: id)
      }
    }
  }

  /// Looks at the files of plugins that are off, and tells the fleet.
  func lookAtPluginFiles(of id: ServiceID) {
    lookAtPluginFiles(of: id) { [weak self] sights in
      guard let self, shell.names[id] != nil else { return }
      shell.post(id, .pluginsSeen(sights))
    }
  }

  /// - Returns: False: there is nothing to look at, or no time for it.
  @discardableResult
  func lookAtPluginFiles(of id: ServiceID, then: @escaping ([FileSight]) -> Void) -> Bool {
    let files = shell.fleet.machine(of: id)?.pluginFiles ?? []
    return !files.isEmpty && shell.worker.submit({ Self.sights(of: files) }, then: then)
  }

  /// What is a directory looks different when an entry comes or goes. For the worker's thread.
  private static func sights(of files: [String]) -> [FileSight] {
    files.prefix(StateLook.mostFiles).map { path in
      guard let look = ExecutableLook(at: path) else { return FileSight(path: path, look: 0) }
      var print = Fingerprint()
      print.add(look.device)
      print.add(look.inode)
      print.add(look.size)
      print.add(look.modified)
      return FileSight(path: path, look: max(print.value, 1))
    }
  }

  /// - Parameter run: They were looked at for its start.
  func seen(_ sights: [GoodCopies.Sight], of service: ServiceID, before run: RunID? = nil) {
    guard shell.names[service] != nil else { return }
    let known = known(service)
    known.sights = sights
    if let run {
      known.beforeRun = run
      known.before = sights
    }
    shell.post(
      service,
      .filesSeen(
        sights.map {
          var sight = FileSight(path: $0.path, look: $0.look?.print ?? 0, restored: $0.restored != nil)
          if $0.differs { sight.change = FileChange(path: $0.path, at: $0.changedAt.map(WallTime.init(nanoseconds:))) }
          return sight
        }))
  }

  // MARK: Plugin directories

  /// Looks at the plugin directory of this service, and tells the fleet.
  func lookAtPlugins(_ service: ServiceID) {
    guard let process = shell.fleet.latestSpec(of: service)?.process, let directory = process.pluginDirectory else {
      return
    }
    _ = shell.worker.submit({ PluginEntries.list(directory.path) }) { [weak self] entries in
      guard let self, shell.names[service] != nil else { return }
      let listed = process.plugins.filter { $0.entry == nil }
      if let entries = looked(entries, of: service) { found(entries, in: directory, of: service, beside: listed) }
    }
  }

  /// Says so where a plugin directory cannot be looked at.
  ///
  /// - Returns: What is in it; nil: nobody knows. Of a directory that is gone the machine knows what it remembers.
  func looked(_ entries: Result<[String], SystemError>, of service: ServiceID) -> [String]? {
    let known = known(service)
    switch entries {
    case .success(let names):
      known.directoryTrouble = ""
      return names
    case .failure(let error):
      let trouble = "its plugins cannot be told: \(error.description)"
      if known.directoryTrouble != trouble, let name = shell.names[service] {
        shell.log.note(.warning, "\(name): \(trouble); what is remembered of them stays")
      }
      known.directoryTrouble = trouble
      return error.errno == ENOENT || error.errno == ENOTDIR ? [] : nil
    }
  }

  @discardableResult func found(
    _ entries: [String], in directory: PluginDirectory, of service: ServiceID, beside listed: [PluginSpec]
  ) -> [PluginSpec] {
    let (found, left) = directory.plugins(of: entries, beside: listed)
    known(service).entriesLeft = left
    shell.post(service, .pluginsFound(directory, found))
    return found
  }

  /// For `status`.
  func notes(of service: ServiceID) -> [String] {
    guard let known = known[service] else { return [] }
    var notes: [String] = []
    for plugin in unseen(by: service) {
      for change in plugin.sight?.changed ?? [] {
        let taken = known.sights.first { $0.path == change.path }?.copiedAt.map { " (of \(time($0)))" } ?? ""
        notes.append("\(change) is not seen by it: the last known good copy\(taken) stands in for it")
      }
    }
    if !known.directoryTrouble.isEmpty { notes.append("\(known.directoryTrouble); what is remembered of them stays") }
    if known.entriesLeft > 0 {
      notes.append(
        "\(known.entriesLeft) more entries of its plugin directory than there can be plugins: they cannot be switched off"
      )
    }
    notes += known.sights.compactMap { sight -> String? in
      if let backup = sight.restored {
        let taken = sight.copiedAt.map { " (of \(time($0)))" } ?? ""
        return "the last known good copy of \(sight.path)\(taken) is in force"
          + (backup.isEmpty ? "" : "; the broken one is kept as \(backup)")
      }
      let why = known.untaken[sight.path].map { ": \($0)" } ?? ""
      if sight.copiedAt == nil { return "no good copy of \(sight.path) is known yet\(why)" }
      return why.isEmpty ? nil : "the good copy of \(sight.path) is of an earlier run\(why)"
    }
    return notes
  }

  /// The plugins of whose files the present run sees the good copies.
  private func unseen(by service: ServiceID) -> [PluginSpec] {
    guard shell.fleet.hasPlugins(service), let machine = shell.fleet.machine(of: service), let run = machine.phase.run
    else { return [] }
    return machine.spec.process.plugins.filter { !$0.goodCopy.isEmpty && run.disabled.contains($0.name) }
  }

  private func time(_ nanoseconds: Int64) -> String { Self.text(WallTime(nanoseconds: nanoseconds)) }
  /// `2026-03-01T12:00:00Z`
  static func text(_ time: WallTime) -> String {
    var bytes: [UInt8] = []
    time.appendRFC3339(to: &bytes)
    return String(decoding: bytes.prefix(19), as: UTF8.self) + "Z"
  }

  func forget(_ service: ServiceID, _ name: ServiceName?) {
    known[service] = nil
    settled.removeAll { $0.service == service }
    guard let name else { return }
    let copies = copies(of: name)
    // One of the same name may have come in the meantime.
    guard shell.fleet.id(named: name).map({ $0 == service }) ?? true else { return }
    _ = shell.worker.submit({ copies.forget() }) {}
  }

  // MARK: Healthy runs

  /// The run is well with what it has found: that is kept as good.
  func settled(_ service: ServiceID, _ run: RunID) {
    known[service]?.failing = nil
    // A state directory that is refused gets no copies either.
    guard shell.store.hasDirectory else { return }
    settled.append(Blessing(service: service, run: run))
    blessNext()
  }

  private struct Job: Sendable {
    var service: ServiceID
    var copies: GoodCopies
    var look: StateLook
    var declared: [String]
    var before: [GoodCopies.Sight]
    /// What plugins that were off in the run are made of, and of that what a good copy stood in for.
    var unread: Set<String>, unseen: Set<String>
    /// To be compared with the good copies.
    var compared: [String]
    var start: Int64
    var now: Int64
  }

  private func blessNext() {
    guard !isBlessing, !settled.isEmpty else { return }
    let batch = settled.prefix(Self.atOnce)
    settled.removeFirst(batch.count)
    let now = SystemClocks.now()
    let jobs = batch.compactMap { one -> Job? in
      guard let spec = shell.fleet.spec(of: one.service), let start = shell.runs.beginning(of: one.run, now) else {
        return nil
      }
      let known = known[one.service]
      let disabled = shell.fleet.machine(of: one.service)?.phase.run?.disabled ?? []
      let off = spec.process.plugins.filter { disabled.contains($0.name) }
      var look = look(at: spec, plugins: spec.process.plugins)
      if let pid = shell.runs.runs[one.run]?.pid, pid > 0 { look.libraries = .process(pid) }
      return Job(
        service: one.service, copies: copies(of: spec.name), look: look, declared: spec.declaredFiles,
        before: known.flatMap { $0.beforeRun == one.run ? $0.before : nil } ?? [], unread: Set(off.flatMap(\.paths)),
        unseen: Set(off.flatMap(\.goodCopy)), compared: spec.process.plugins.flatMap(\.goodCopy), start: start,
        now: now.wall.nanoseconds)
    }
    guard !jobs.isEmpty else { return blessNext() }
    isBlessing = true
    let accepted = shell.worker.submit({
      jobs.map { job -> (ServiceID, [String: String], [GoodCopies.Sight]) in
        var why: [String: String] = [:]
        if !job.declared.isEmpty {
          why = job.copies.take(job.declared, start: job.start, before: job.before, unseen: job.unseen, now: job.now)
        }
        var history = job.copies.health().flatMap { ChangeHistory($0) } ?? ChangeHistory()
        history.bless(
          job.look.take(start: job.start, unread: job.unread), startedAt: WallTime(nanoseconds: job.start),
          settledAt: WallTime(nanoseconds: job.now))
        job.copies.keep(health: history.encoded())
        return (
          job.service, why,
          job.declared.isEmpty ? [] : job.copies.look(at: job.declared, comparing: job.compared)
        )
      }
    }) { [weak self] results in
      guard let self else { return }
      isBlessing = false
      for (service, why, sights) in results {
        if !why.isEmpty, shell.names[service] != nil {
          known(service).untaken = why
        } else {
          known[service]?.untaken = why
        }
        if !sights.isEmpty { seen(sights, of: service) }
      }
      blessNext()
    }
    // The disk does not answer; the next run that settles tries again.
    if !accepted { isBlessing = false }
  }

  // MARK: Differences

  struct Comparison: Sendable {
    var history: ChangeHistory?
    var print: StatePrint
  }

  /// - Returns: False: it will not come.
  func compare(_ service: ServiceID, _ report: CrashReport, then: @escaping (Comparison) -> Void) -> Bool {
    guard let spec = shell.fleet.spec(of: service) else { return false }
    let known = known(service)
    if known.failing == nil {
      known.failing = WallTime(
        nanoseconds: report.end.at.nanoseconds.subtractingSaturating(report.end.uptime.nanoseconds))
    }
    let copies = copies(of: spec.name)
    let now = shell.fleet.latestSpec(of: service)?.process.plugins ?? spec.process.plugins
    let look = look(at: spec, plugins: now)
    return shell.worker.submit(
      {
        let history = copies.health().flatMap { ChangeHistory($0) }
        var look = look
        look.libraries = .named(history?.libraries ?? [])
        return Comparison(history: history, print: look.take())
      }, then: then)
  }

  func hints(_ comparison: Comparison, for service: ServiceID, _ report: CrashReport) -> [ChangeHint] {
    ChangeHistory.hints(
      comparison.history, now: comparison.print, failing: known[service]?.failing ?? report.end.at,
      lines: report.output.lines, frames: usefulFrames(report.backtrace.frames))
  }

  /// - Parameter plugins: Those that there are now.
  private func look(at spec: ServiceSpec, plugins: [PluginSpec]) -> StateLook {
    let process = spec.process
    var bare = process
    bare.plugins = []
    let declared = spec.declaredFiles
    var files = declared
    func add(_ path: String) { if path.hasPrefix("/"), !files.contains(path) { files.append(path) } }
    for file in process.environmentFiles { add(file.path) }
    for argument in process.command.dropFirst().prefix(64) {
      add(argument)
      // --config=/etc/x
      if let equals = argument.firstIndex(of: "=") { add(String(argument[argument.index(after: equals)...])) }
    }
    var directories: [String] = []
    for path in files.map(directory) + [process.directory].compactMap({ $0 }) where !directories.contains(path) {
      directories.append(path)
    }
    let dependencies = (spec.requires + spec.after).prefix(32).compactMap { name -> StateItem? in
      guard let machine = shell.machine(named: name) else { return nil }
      return StateItem(.dependencies, name.text, machine.phase.name.rawValue, since: machine.phaseSince)
    }
    return StateLook(
      program: process.command.first ?? "/", files: files, declared: declared, plugins: plugins.map(\.name),
      pluginFiles: plugins.flatMap(\.paths).filter { !files.contains($0) }, startPrint: bare.fingerprint,
      definition: "\(shell.directories.configuration)/services/\(spec.name).yaml",
      definitionName: "services/\(spec.name).yaml", directories: directories, dependencies: dependencies,
      system: system)
  }

  private func directory(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/"), slash != path.startIndex else { return "/" }
    return String(path[..<slash])
  }
}
