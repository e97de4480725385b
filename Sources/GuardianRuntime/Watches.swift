import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

/// Executables that are watched for a change, by their directories: whoever replaces a program makes a new file.
final class WatchTable {
  private struct Watched {
    var path: String
    /// The nearest directory above it that exists.
    var directory: String
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

  /// Nil: watch nothing for this service any more.
  func set(_ id: ServiceID, path: String?) {
    remove(id)
    if let path { add(id, path) }
  }

  private func remove(_ id: ServiceID) {
    unwatched[id] = nil
    touched.remove(id)
    guard let old = watched.removeValue(forKey: id), var entry = directories[old.directory] else { return }
    entry.services.remove(id)
    directories[old.directory] = entry.services.isEmpty ? nil : entry
  }

  private func add(_ id: ServiceID, _ path: String) {
    var directory = Self.parent(of: path)
    while true {
      if let entry = directories[directory] {
        directories[directory] = (entry.source, entry.services.union([id]))
        break
      }
      guard directories.count < Self.most else {
        unwatched[id] = "guardian watches \(Self.most) directories already"
        return
      }
      let name = directory
      do throws(SystemError) {
        let source = try shell.loop.onDirectoryChange(directory, priority: .outcomes) { [unowned self] _ in
          changed(name)
        }
        directories[directory] = (source, [id])
        break
      } catch {
        guard error.errno == ENOENT || error.errno == ENOTDIR, directory != "/" else {
          unwatched[id] = Self.reason(error.errno)
          return
        }
        directory = Self.parent(of: directory)
      }
    }
    watched[id] = Watched(path: path, directory: directory)
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
      let path = entry.path
      _ = shell.worker.submit({ ExecutableLook(at: path) }) { [weak self] look in
        guard let self, watched[id]?.path == path else { return }
        shell.post(
          id,
          .executableSeen(
            look.map { FileIdentity(device: $0.device, inode: $0.inode, size: $0.size, modified: $0.modified) }))
        // A missing directory may be there now, and is watched itself from here on.
        if watched[id]?.directory != Self.parent(of: path) { set(id, path: path) }
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
