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
  var parts: [(directory: String, name: String)] = []

  /// What is no absolute path with a name at its end, as `/`, is left out.
  init(_ paths: [String]) {
    var all: [(depth: Int, directory: String, name: String, path: String)] = []
    for path in paths where path.hasPrefix("/") {
      let components = path.split(separator: "/").filter { $0 != "." }
      guard let name = components.last, name != ".." else { continue }
      let directory = "/" + components.dropLast().joined(separator: "/")
      all.append((components.count, directory, String(name), path))
    }
    all.sort { ($0.depth, $0.directory, $0.name) < ($1.depth, $1.directory, $1.name) }
    for one in all {
      // Written twice is hidden once.
      if let last = parts.last, last.directory == one.directory, last.name == one.name { continue }
      self.paths.append(one.path)
      parts.append((one.directory, one.name))
    }
  }
}
