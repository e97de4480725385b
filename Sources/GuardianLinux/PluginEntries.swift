import Glibc

/// What may be a plugin in a directory. Blocks on the disk: for the worker's thread.
package enum PluginEntries {
  /// Entries looked at; a directory with more is no directory of plugins.
  package static let most = 4096

  /// The names of regular files, directories and links, unordered. Names that are no text, and those that begin with a dot
  /// (hidden ones, and backups of guardian's own), are left out.
  package static func list(_ path: String) -> Result<[String], SystemError> {
    let raw = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)
    guard raw >= 0, let stream = fdopendir(raw) else {
      let error = SystemError.last("list", path)
      if raw >= 0 { _ = close(raw) }
      return .failure(error)
    }
    defer { closedir(stream) }
    var names: [String] = []
    for _ in 0..<most {
      guard let entry = readdir(stream) else { break }
      let kind = entry.pointee.d_type
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
        String(validating: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      guard let name, !name.hasPrefix(".") else { continue }
      guard kind == DT_REG || kind == DT_DIR || kind == DT_LNK || kind == DT_UNKNOWN && isFile(raw, name) else {
        continue
      }
      names.append(name)
    }
    return .success(names)
  }

  /// Where the file system does not tell with the entry.
  private static func isFile(_ directory: Int32, _ name: String) -> Bool {
    var status = stat()
    guard fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return false }
    return [S_IFREG, S_IFDIR, S_IFLNK].contains(status.st_mode & S_IFMT)
  }
}
