import CGuardian
import Glibc

/// The repair `move-aside`: what may be broken gets out of the way, and is kept.
///
/// Runs in a hook process, since it walks directories. Everything goes by descriptors and follows no link, so that the
/// user whom the files belong to cannot lead it elsewhere.
package enum MoveAside {
  /// For the hook's exit status and its one line of output.
  package struct Outcome: Hashable, Sendable {
    /// 0 done, or there was nothing to move; 1 not done.
    package var exitCode: Int32
    package var message: String
  }

  /// How many backups of one path are kept, and how many bytes they may take together. The newest always stays.
  static let keptBackups = 3
  static let keptBytes: Int64 = 1 << 30

  /// Renames `path` to `.NAME.guardian-DATE` beside it. A directory is made again, empty, with its owner, mode and labels.
  ///
  /// - Parameter seconds: Since 1970, for the name; nil: now.
  package static func perform(_ path: String, at seconds: Int? = nil) -> Outcome {
    perform(path, at: seconds ?? time(nil), keptBytes: keptBytes)
  }

  static func perform(_ path: String, at seconds: Int, keptBytes: Int64) -> Outcome {
    do throws(Trouble) {
      return Outcome(exitCode: 0, message: try Move(path, seconds, keptBytes: keptBytes).perform())
    } catch { return Outcome(exitCode: 1, message: error.message) }
  }
}

private struct Move: ~Copyable {
  private let place: BackupPlace
  private var path: String { place.path }
  private var name: String { place.name }
  private var parentPath: String { place.parentPath }
  private var fresh: String { place.fresh }

  init(_ path: String, _ seconds: Int, keptBytes: Int64) throws(Trouble) {
    place = try BackupPlace(path, seconds, keptBytes: keptBytes, verb: "move", adverb: " aside")
  }

  func perform() throws(Trouble) -> String {
    guard let parent = try place.openParent() else { return "nothing to move: there is no \(parentPath)" }
    var status = stat()
    if fstatat(parent.number, name, &status, AT_SYMLINK_NOFOLLOW) != 0 {
      if errno != ENOENT { throw Trouble("cannot look at \(path)", errno: errno) }
      // A move that was cut off between its two renames is finished now.
      if renameat(parent.number, fresh, parent.number, name) == 0 {
        return "finished an earlier move: made \(path) again, empty"
      }
      return "nothing to move: there is no \(path)"
    }
    if guardian_is_mount_root(parent.number, name) == 1 {
      throw Trouble("cannot move \(path) aside: it is a mount point; name a directory or file below it")
    }

    let isDirectory = status.st_mode & S_IFMT == S_IFDIR
    var doubt = ""
    if isDirectory { doubt = try makeFresh(parent.number, like: status) }
    let backup = try place.rename(parent.number)
    if isDirectory {
      let answer = guardian_rename_new(parent.number, fresh, parent.number, name)
      if answer < 0, renameat(parent.number, fresh, parent.number, name) != 0 {
        throw Trouble("moved \(path) to \(backup), but cannot make it again", errno: errno)
      }
    }
    let pruned = place.prune(parent.number, owner: status.st_uid)
    // The next start relies on it, perhaps after a power cut.
    _ = fsync(parent.number)
    return "moved \(path) to \(backup)" + (isDirectory ? " and made it again, empty" : "") + doubt + pruned
  }

  /// Prepares the empty directory under a name of its own. Returns what is to be said about it.
  private func makeFresh(_ parent: Int32, like old: stat) throws(Trouble) -> String {
    // Left by an earlier move that was cut off; it goes only while it is empty.
    _ = unlinkat(parent, fresh, AT_REMOVEDIR)
    guard mkdirat(parent, fresh, 0o700) == 0 else { throw Trouble("cannot make a new \(path)", errno: errno) }
    var made = false
    defer { if !made { _ = unlinkat(parent, fresh, AT_REMOVEDIR) } }

    let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
    let newRaw = openat(parent, fresh, flags)
    if newRaw < 0 { throw Trouble("cannot open the new \(path)", errno: errno) }
    let new = OwnedFD(adopting: newRaw)
    var status = stat()
    // Who may write in the parent could have put another directory in its place, to have that one's owner changed.
    guard fstat(new.number, &status) == 0, status.st_uid == geteuid(), status.st_mode & 0o7777 == 0o700,
      Tree.entries(new.number)?.isEmpty == true
    else { throw Trouble("cannot make a new \(path): somebody else works in \(parentPath)") }

    let oldRaw = openat(parent, name, flags)
    if oldRaw < 0 { throw Trouble("cannot open \(path)", errno: errno) }
    let original = OwnedFD(adopting: oldRaw)
    guard fchown(new.number, old.st_uid, old.st_gid) == 0 else {
      throw Trouble("cannot give the new \(path) its owner \(old.st_uid):\(old.st_gid)", errno: errno)
    }
    let attributes = guardian_copy_attributes(original.number, new.number)
    guard fchmod(new.number, old.st_mode & 0o7777) == 0 else {
      throw Trouble("cannot give the new \(path) its mode", errno: errno)
    }
    made = true
    return attributes < 0 ? " (without some of its labels: \(ErrnoText.reason(-attributes)))" : ""
  }
}
