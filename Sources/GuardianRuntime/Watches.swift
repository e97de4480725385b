import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

/// Executables and declared files that are watched for a change, by their directories: whoever replaces a program makes a new
/// file.
final class WatchTable {
  private struct Watched {
    /// The program, or what was missing.
    var program: String?
    var files: [String]
    /// The directory whose entries are plugins.
    var plugins: String?
    /// For each path the nearest directory above it that exists.
    var directories: [String: String] = [:]
  }
  private unowned let shell: Shell
  private var watched: [ServiceID: Watched] = [:]
  private var directories: [String: (source: EventSource, services: Set<ServiceID>)] = [:]
  /// Why these are not watched.
  private var unwatched: [ServiceID: String] = [:]
  private var touched: Set<ServiceID> = []
  private var timer: EventSource?

  /// Directories; the kernel's own bound is per user, and others want some too.
  private static let most = 128
  /// A package manager touches a directory many times.
  private static let pause = Duration.milliseconds(300)

  init(_ shell: Shell) {
    self.shell = shell
    timer = try? shell.loop.timer(.monotonic, priority: .time) { [unowned self] in look() }
  }

  /// Nil where it is watched, or nothing of it is.
  func obstacle(_ id: ServiceID) -> String? { unwatched[id] }

  /// Nothing: watch nothing for this service any more.
  func set(_ id: ServiceID, path: String?, files: [String], plugins: String? = nil) {
    remove(id)
    var entry = Watched(program: path, files: files, plugins: plugins)
    for path in [path, plugins.map { $0 + "/." }].compactMap({ $0 }) + files where entry.directories[path] == nil {
      entry.directories[path] = add(id, path)
    }
    if !entry.directories.isEmpty { watched[id] = entry }
  }

  private func remove(_ id: ServiceID) {
    unwatched[id] = nil
    touched.remove(id)
    guard let old = watched.removeValue(forKey: id) else { return }
    for directory in Set(old.directories.values) {
      guard var entry = directories[directory] else { continue }
      entry.services.remove(id)
      directories[directory] = entry.services.isEmpty ? nil : entry
    }
  }

  /// Returns the directory that is watched; nil: none is.
  private func add(_ id: ServiceID, _ path: String) -> String? {
    var directory = Self.parent(of: path)
    while true {
      if let entry = directories[directory] {
        directories[directory] = (entry.source, entry.services.union([id]))
        return directory
      }
      guard directories.count < Self.most else {
        unwatched[id] = "guardian watches \(Self.most) directories already"
        return nil
      }
      let name = directory
      do throws(SystemError) {
        let source = try shell.loop.onDirectoryChange(directory, priority: .outcomes) { [unowned self] _ in
          changed(name)
        }
        directories[directory] = (source, [id])
        return directory
      } catch {
        guard error.errno == ENOENT || error.errno == ENOTDIR, directory != "/" else {
          unwatched[id] = Self.reason(error.errno)
          return nil
        }
        directory = Self.parent(of: directory)
      }
    }
  }

  private func changed(_ directory: String) {
    guard let entry = directories[directory] else { return }
    if touched.isEmpty { timer?.arm(at: (SystemClocks.monotonic() + Self.pause).nanoseconds) }
    touched.formUnion(entry.services)
  }

  private func look() {
    let services = touched.sorted()
    touched = []
    for id in services {
      guard let entry = watched[id] else { continue }
      // A missing directory may be there now, and is watched itself from here on.
      if entry.directories.contains(where: { $0.value != Self.parent(of: $0.key) }) {
        set(id, path: entry.program, files: entry.files, plugins: entry.plugins)
      }
      if !entry.files.isEmpty { shell.changes.look([id]) }
      if entry.plugins != nil { shell.changes.lookAtPlugins(id) }
      guard let path = entry.program else { continue }
      _ = shell.worker.submit({ ExecutableLook(ofProgram: path) }) { [weak self] look in
        guard let self, watched[id]?.program == path else { return }
        shell.post(
          id,
          .executableSeen(
            look.map { FileIdentity($0) }))
      }
    }
  }

  private static func reason(_ code: Int32) -> String {
    switch code {
    case ENOSPC: "the user has too many watches (fs.inotify.max_user_watches)"
    // Of guardian's own descriptors some are kept back, so that it is hardly those that are missing.
    case EMFILE:
      "the user has too many inotify instances (fs.inotify.max_user_instances), or guardian too many open files"
    default: ErrnoText.reason(code)
    }
  }

  private static func parent(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/"), slash != path.startIndex else { return "/" }
    return String(path[..<slash])
  }
}
