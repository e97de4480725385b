package import GuardianConfig
import GuardianCore
import GuardianLinux
package import GuardianModel
import GuardianStore

/// What `switches.d` gave, all of it. A value, made on the worker's thread.
package struct LoadedSwitches: Sendable {
  package struct File: Sendable {
    /// In the directory, and as shown in diagnostics.
    package var name: String, path: String
    /// Nil where there is an error.
    package var value: Switch?
    package var diagnostics: [Diagnostic] = []
    package var references: [SwitchReference] = []
  }
  /// By name.
  package var files: [File] = []
  /// About the directory.
  package var diagnostics: [Diagnostic] = []
  /// False: the directory could not be read, so a switch that is missing here has not been removed.
  package var complete = true
  /// Whoever watches the directory is told of every change.
  package var showsAllChanges = false
  package init() {}

  /// Valid ones, by the files' names.
  package var switches: [Switch] { files.compactMap(\.value) }

  /// Everything there is to say of them beside these services: what is wrong, then what is doubtful.
  package func allDiagnostics(beside loaded: LoadedConfiguration) -> [Diagnostic] {
    var services: [ServiceName: [String]?] = [:]
    for spec in loaded.services { services[spec.name] = .some(spec.process.plugins.map(\.name)) }
    for name in loaded.invalid { services[name] = .some(nil) }
    let check = SwitchCheck(
      files.compactMap { file in file.value.map { ($0, file.references, file.path) } }, services: services,
      groups: Dictionary(loaded.services.map { ($0.name, $0.groups) }) { first, _ in first })
    return diagnostics + files.flatMap { $0.diagnostics + (check.found[$0.name] ?? []) }
  }
}

extension ConfigurationLoader {
  /// Reads `switches.d` alone.
  package func loadSwitches() -> LoadedSwitches {
    do throws(ConfigurationFiles.Fault) {
      return Self.loadSwitches(
        try ConfigurationFiles(path: directory, trust: trust, largest: Configuration.largestFile))
    } catch {
      var loaded = LoadedSwitches()
      loaded.complete = false
      loaded.diagnostics = [error.diagnostic]
      return loaded
    }
  }

  static func loadSwitches(
    _ files: borrowing ConfigurationFiles, drafts: [String: DraftFile] = [:]
  ) -> LoadedSwitches {
    let listing = files.listSwitches()
    var loaded = LoadedSwitches()
    loaded.diagnostics = listing.diagnostics
    loaded.complete = listing.complete
    loaded.showsAllChanges = listing.showsAllChanges
    for name in drafts.isEmpty ? listing.names : Set(listing.names + drafts.keys).sorted() {
      if let draft = drafts[name], !draft.inPlace {
        loaded.files += switchFile(name, draft.reading, draft.path)
      } else {
        loaded.files += switchFile(name, files.readSwitch(name), drafts[name]?.path ?? files.path(ofSwitch: name))
      }
    }
    return loaded
  }

  /// None where it is gone since the listing: removed.
  static func switchFile(
    _ name: String, _ reading: ConfigurationFiles.Reading, _ path: String
  ) -> [LoadedSwitches.File] {
    var file = LoadedSwitches.File(name: name, path: path)
    switch reading {
    case .absent: return []
    case .fault(var diagnostic):
      diagnostic.file = path
      file.diagnostics = [diagnostic]
    case .bytes(let bytes):
      let parsed = Configuration.parseSwitch(name: name, bytes: bytes, file: path)
      file.value = parsed.value
      file.diagnostics = parsed.diagnostics
      file.references = parsed.references
    }
    return [file]
  }
}

/// The switches of this host: watched, read on the worker's thread, the last good content of each file kept, and told to the
/// fleet.
///
/// A start may not happen with an older state of the directory than that of its own moment, where the service is in trouble
/// or something is known to have changed. The kernel tells of a change before the call that made it returns; so as long as
/// the watch has no news, a start need not wait for a look at the disk.
final class SwitchTable {
  private struct Good {
    var value: Switch
    var references: [SwitchReference] = []
    var path: String
  }

  private unowned let shell: Shell
  private var watch: DirectoryWatch?
  private var source: EventSource?
  private var timer: EventSource?
  private var patienceTimer: EventSource?
  /// Why it is not watched.
  private var unwatched: String?
  /// By the file's name: as it last was when it was valid.
  private var good: [String: Good] = [:]
  private var broken: [String: [Diagnostic]] = [:]
  private var ofDirectory: [Diagnostic] = []
  private var doubts: [Diagnostic] = []
  private var showsAllChanges = false
  /// Something has changed since the last look began.
  private var isDirty = false
  private var isLooking = false, isTimed = false
  /// Those who wait for the look that is under way, and for the one after it.
  private var waiting: [() -> Void] = [], waitingForNext: [() -> Void] = []

  /// Whoever fills the directory writes more than one file.
  private static let pause = Duration.milliseconds(50)
  /// A start waits so long for a disk that does not answer, and goes on with what is known.
  private static let patience = Duration.seconds(1)
  /// In the store: the switches as they last were when their files were valid, for a guardian that finds one broken.
  static let key = "switches"

  /// - Parameter remembered: What the store has under `key`.
  init(_ shell: Shell, remembered: String?) {
    self.shell = shell
    for line in (remembered ?? "").split(separator: "\n").prefix(ConfigurationFiles.mostSwitches) {
      guard let value = Switch(text: String(line)) else { continue }
      good[value.file] = Good(
        value: value, path: "\(shell.directories.configuration)/\(ConfigurationFiles.switchesName)/\(value.file)")
    }
    timer = try? shell.loop.timer(.monotonic, priority: .time) { [unowned self] in look() }
    patienceTimer = try? shell.loop.timer(.monotonic, priority: .time) { [unowned self] in losePatience() }
    open()
  }

  /// Before anything is read, so that no change is missed.
  private func open() {
    do throws(SystemError) {
      watch = try DirectoryWatch(ConfigurationFiles.switchesName, in: shell.directories.configuration)
      guard let descriptor = watch?.descriptor else { return }
      source = try shell.loop.onIO(descriptor, .read, priority: .outcomes) { [unowned self] _ in
        if takeNews() { timer?.arm(at: (SystemClocks.monotonic() + Self.pause).nanoseconds) }
      }
      unwatched = nil
    } catch {
      giveUpWatching(error)
    }
  }

  private func giveUpWatching(_ error: SystemError) {
    source?.cancel()
    source = nil
    watch = nil
    unwatched = error.description
  }

  /// - Returns: Whether there are any.
  private func takeNews() -> Bool {
    do throws(SystemError) {
      if try watch?.takeNews() ?? false { isDirty = true }
    } catch {
      giveUpWatching(error)
      isDirty = true
    }
    return isDirty
  }

  // MARK: Looking

  /// Whether a start has to wait for a look.
  ///
  /// - Parameter isInTrouble: The service has strikes, or stands above step restart.
  func mustBeLookedAt(isInTrouble: Bool) -> Bool {
    if takeNews() || isLooking { return true }
    return isInTrouble && (watch == nil || !showsAllChanges)
  }

  /// `then` is called when a look that began after this call is over, or when the disk has not answered in time; never from
  /// inside of this call.
  func look(then: @escaping () -> Void) {
    if isLooking { waitingForNext.append(then) } else { waiting.append(then) }
    if !isTimed { patienceTimer?.arm(at: (SystemClocks.monotonic() + Self.patience).nanoseconds) }
    isTimed = true
    look()
  }

  private func look() {
    guard !isLooking else {
      isDirty = true
      return
    }
    isLooking = true
    isDirty = false
    if watch == nil { open() }
    let loader = shell.surroundings.loader(shell.directories.configuration)
    let accepted = shell.worker.submit({ loader.loadSwitches() }) { [weak self] (loaded: LoadedSwitches) in
      guard let self else { return }
      isLooking = false
      take(loaded)
      goOn()
    }
    // The disk does not answer: the timer lets go of those who wait.
    if !accepted {
      isLooking = false
      isDirty = true
    }
  }

  private func goOn() {
    let free = waiting
    waiting = waitingForNext
    waitingForNext = []
    if waiting.isEmpty {
      patienceTimer?.disarm()
      isTimed = false
    }
    for then in free { then() }
    if isDirty || !waiting.isEmpty { look() }
  }

  private func losePatience() {
    let free = waiting + waitingForNext
    waiting = []
    waitingForNext = []
    isTimed = false
    for then in free { then() }
  }

  // MARK: What was found

  /// The services have changed, or this is what a reading of the whole configuration has found.
  func take(_ loaded: LoadedSwitches) {
    let now = SystemClocks.now()
    showsAllChanges = loaded.showsAllChanges
    if loaded.diagnostics != ofDirectory {
      ofDirectory = loaded.diagnostics
      for diagnostic in ofDirectory where diagnostic.severity == .error {
        report("", diagnostic.description, now)
      }
    }
    // A directory that cannot be read says nothing about any switch.
    guard loaded.complete else { return }
    var next: [String: Good] = [:], faults: [String: [Diagnostic]] = [:]
    var warnings: [Diagnostic] = []
    for file in loaded.files {
      if let value = file.value {
        next[file.name] = Good(value: value, references: file.references, path: file.path)
        warnings += file.diagnostics
      } else {
        next[file.name] = good[file.name]
        faults[file.name] = file.diagnostics
      }
    }
    for (name, why) in faults.sorted(by: { $0.key < $1.key }) where broken[name] != why {
      report(name, why.first?.description ?? "", now)
      for diagnostic in why.dropFirst() { shell.log.note(.error, diagnostic.description) }
    }
    broken = faults
    let hasChanged = next.mapValues(\.value) != good.mapValues(\.value)
    good = next
    checkNames(warnings)
    if hasChanged {
      let text = good.values.map(\.value).sorted { $0.file < $1.file }.map(\.text).joined(separator: "\n")
      shell.store.submit(meta: [Self.key: text.isEmpty ? nil : text], now: now)
    }
    shell.fleet.setSwitches(good.values.map(\.value), now: now)
    shell.fleetTold = true
  }

  private func report(_ file: String, _ why: String, _ now: Now) {
    let kind = Occurrence.Kind.switchBroken(file: file.isEmpty ? ConfigurationFiles.switchesName : file, why: why)
    shell.outputs.append(.record(Occurrence(service: .guardian, at: now.wall, kind: kind)))
    shell.fleetTold = true
  }

  /// To be called when the services have changed too.
  func checkNames(_ warnings: [Diagnostic]? = nil) {
    if let warnings { ofFiles = warnings }
    doubts = ofFiles
    guard !good.isEmpty else { return }
    var services: [ServiceName: [String]?] = [:]
    for id in shell.fleet.ids {
      if let name = shell.names[id] {
        services[name] = .some(shell.fleet.latestSpec(of: id)?.process.plugins.map(\.name))
      }
    }
    var groups: [ServiceName: [ServiceName]] = [:]
    for id in shell.fleet.ids {
      if let spec = shell.fleet.spec(of: id), !spec.groups.isEmpty { groups[spec.name] = spec.groups }
    }
    for name in shell.definitions.broken.keys { services[name] = .some(nil) }
    let check = SwitchCheck(
      good.values.sorted { $0.value.file < $1.value.file }.map { ($0.value, $0.references, $0.path) },
      services: services, groups: groups)
    for name in check.found.keys.sorted() { doubts += check.found[name] ?? [] }
  }
  private var ofFiles: [Diagnostic] = []

  /// For `status`: what is wrong, and then what is doubtful.
  var diagnostics: [Diagnostic] {
    ofDirectory + broken.sorted { $0.key < $1.key }.flatMap(\.value) + doubts
  }

  /// For `status`, one sentence each.
  var warnings: [String] {
    var lines: [String] = []
    for one in shell.fleet.switches {
      let until = one.until.map { " until \($0.rfc3339Second)" } ?? ""
      let whose =
        switch one.services {
        case .all: "all services"
        case .named(let names): Self.brief(names.map(\.text) + one.groups.map { "@\($0)" })
        }
      guard lines.count < Self.shown else {
        lines.append("and \(shell.fleet.switches.count - Self.shown) more switches")
        break
      }
      lines.append(
        "switched off for \(whose): \(one.what)\(until): \(one.reason) (\(ConfigurationFiles.switchesName)/\(one.file))"
          + (broken[one.file] == nil ? "" : "; the file is not valid now, and its last good content is in force"))
    }
    if let unwatched, !good.isEmpty || !broken.isEmpty {
      lines.append(
        "\(ConfigurationFiles.switchesName) is not watched: \(unwatched); it is looked at before each start of a service in"
          + " trouble, and by 'guardianctl reload'")
    }
    return lines
  }
  private static func brief(_ names: [String]) -> String {
    names.prefix(4).joined(separator: ", ") + (names.count > 4 ? ", …" : "")
  }
  private static let shown = 8
}
