import Glibc

/// Who may change what a path leads to, besides those who own it.
package enum Writers {
  /// The first thing on the way to `path`, and at its end, that everybody may write to. In a directory with the sticky bit
  /// nobody can replace what is somebody else's, so that it is passed. A symbolic link is looked at where it leads.
  ///
  /// What a group may write is the administrator's way of sharing it, and is not told.
  ///
  /// - Returns: As in `directory /srv/x is writable by others (uid 0, mode 0777)`; nil: nothing, or it cannot be looked at.
  /// - Source: realpath(3), stat(2).
  package static func beside(_ path: String) -> String? {
    for whole in [path, resolved(path)].compactMap({ $0 }) {
      var part = ""
      for name in whole.split(separator: "/") {
        part += "/" + name
        var status = stat()
        guard stat(part, &status) == 0 else { break }
        let isDirectory = status.st_mode & S_IFMT == S_IFDIR
        if status.st_mode & S_IWOTH == 0 || (isDirectory && status.st_mode & S_ISVTX != 0) { continue }
        let digits = String(status.st_mode & 0o7777, radix: 8)
        return "\(isDirectory ? "directory " : "")\(part) is writable by others (uid \(status.st_uid), mode "
          + String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + "\(digits))"
      }
    }
    return nil
  }

  private static func resolved(_ path: String) -> String? {
    guard let text = realpath(path, nil) else { return nil }
    defer { free(text) }
    return String(cString: text)
  }
}
