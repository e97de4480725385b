import CGuardian

/// Whether paths can be hidden at all, for the diagnostic at load.
package enum HideSupport {
  /// CAP_SYS_ADMIN is in effect.
  package static var available: Bool { guardian_may_mount() == 1 }
}

/// The paths to hide, split for the child: those of one directory follow each other, and a directory comes before those
/// below it, since an overlay over the upper one buries mounts made below it earlier.
struct HiddenParts {
  var paths: [String] = []
  /// `copy`: its place among the copies.
  var parts: [(directory: String, name: String, way: guardian_hide_way, copy: Int?)] = []

  /// What is no absolute path with a name at its end, as `/`, is left out.
  ///
  /// - Parameter views: Directories in which what is hidden is absent even where the service could write in them.
  init(_ paths: [String], empty: [String] = [], copies: [String] = [], views: [String] = []) {
    var all: [(depth: Int, directory: String, name: String, path: String, way: guardian_hide_way, copy: Int?)] = []
    let views = Set(views.map { Self.components($0).joined(separator: "/") })
    let wishes =
      paths.map { ($0, GUARDIAN_HIDE_ABSENT, nil) } + empty.map { ($0, GUARDIAN_HIDE_EMPTY, nil) }
      + copies.enumerated().map { ($1, GUARDIAN_HIDE_COPY, $0 as Int?) }
    for (path, wish, copy) in wishes where path.hasPrefix("/") {
      let components = Self.components(path)
      guard let name = components.last, name != ".." else { continue }
      let directory = components.dropLast().joined(separator: "/")
      let way = wish == GUARDIAN_HIDE_ABSENT && views.contains(directory) ? GUARDIAN_HIDE_IN_VIEW : wish
      all.append((components.count, "/" + directory, String(name), path, way, copy))
    }
    all.sort { ($0.depth, $0.directory, $0.name, $0.way.rawValue) < ($1.depth, $1.directory, $1.name, $1.way.rawValue) }
    for one in all {
      // Written twice is hidden once, and what is absent cannot be empty, or another.
      if let last = parts.last, last.directory == one.directory, last.name == one.name { continue }
      self.paths.append(one.path)
      parts.append((one.directory, one.name, one.way, one.copy))
    }
  }

  private static func components(_ path: String) -> [Substring] { path.split(separator: "/").filter { $0 != "." } }
}
