import Glibc
import GuardianConfig
package import GuardianLinux
package import GuardianModel

/// A file that is to be checked as if it were, or as it is, in the configuration directory.
package struct DraftFile: Sendable {
  /// As whoever named it has written it; diagnostics name it so.
  package var path: String
  /// It is the very file that the directory has, and is read there, by the directory's rules.
  package var inPlace: Bool
  /// What was read of a file elsewhere.
  package var reading: ConfigurationFiles.Reading
}

/// What `--check FILE…` names: each takes the place of the file that has its name in the directory.
package struct DraftFiles: Sendable {
  package var host: DraftFile?
  package var services: [ServiceName: DraftFile] = [:]
  /// By the file's name.
  package var switches: [String: DraftFile] = [:]
  /// About what was named and cannot be checked, and about names under which no file would be read.
  package var diagnostics: [Diagnostic] = []
  package init() {}

  package var isEmpty: Bool { host == nil && services.isEmpty && switches.isEmpty }
  package var paths: Set<String> {
    Set([host?.path].compactMap { $0 } + services.values.map(\.path) + switches.values.map(\.path))
  }

  /// Finds out what each word means: a path, or the name of a service of the directory.
  ///
  /// A file is a service's, unless it is called `guardian.yaml` or lies in a `switches.d`.
  package init(_ words: [String], directory: String) {
    for word in words { add(word, directory) }
  }

  private mutating func add(_ word: String, _ directory: String) {
    func fault(_ what: String, _ why: String = "") {
      diagnostics.append(Diagnostic(file: printable(word, atMost: 4096), what: what, why: why))
    }
    var path = word
    var about = stat()
    if stat(path, &about) != 0 {
      let code = errno
      // `web` is short for the file that the directory has for it.
      guard code == ENOENT, !word.contains("/"), let name = ServiceName(word) else {
        return fault("cannot be checked", ErrnoText.reason(code))
      }
      path = "\(directory)/services/\(name).yaml"
      guard stat(path, &about) == 0 else {
        return fault("cannot be checked", "there is no such file, and no \(path)")
      }
    }
    switch about.st_mode & S_IFMT {
    case S_IFREG: break
    case S_IFDIR:
      return fault("a directory", "'--config \(printable(word, atMost: 4096))' checks all that is in one")
    default: return fault("not a file")
    }
    let absolute = path.hasPrefix("/") ? path : workingDirectory() + "/" + path
    let parts = absolute.split(separator: "/")
    let last = parts.last.map(String.init) ?? ""
    var name = last
    for ending in [".yaml", ".yml"] where name.hasSuffix(ending) { name.removeLast(ending.utf8.count) }
    if name == last || last.hasSuffix(".yml") {
      // Wrong for guardian, and right for whoever wants to know what is in it.
      diagnostics.append(
        Diagnostic(
          .warning, file: path, what: "guardian would not read the file", why: "its name must end in .yaml"))
    }
    if name == "guardian" {
      host = draft(path, about, inPlace: directory + "/guardian.yaml")
    } else if parts.dropLast().last == "switches.d" {
      switches[name + ".yaml"] = draft(path, about, inPlace: "\(directory)/switches.d/\(last)")
    } else if let service = ServiceName(name) {
      services[service] = draft(path, about, inPlace: "\(directory)/services/\(last)")
    } else {
      fault(
        "the file's name is no name of a service",
        "a name is 1 to 64 of a-z 0-9 . _ @ - and begins with a letter or digit")
    }
  }

  private func draft(_ path: String, _ about: stat, inPlace place: String) -> DraftFile {
    var there = stat()
    if place.hasSuffix(".yaml"), stat(place, &there) == 0, there.st_dev == about.st_dev, there.st_ino == about.st_ino {
      return DraftFile(path: path, inPlace: true, reading: .absent)
    }
    // One byte more than may be there, so that too large a file is told from one that just fits.
    guard let bytes = FileText.read(path, limit: Configuration.largestFile + 1) else {
      let why =
        about.st_size > Int64(Configuration.largestFile)
        ? "a file of the configuration has at most 1 MiB" : ErrnoText.reason(errno)
      return DraftFile(
        path: path, inPlace: false, reading: .fault(Diagnostic(file: path, what: "cannot be read", why: why)))
    }
    return DraftFile(path: path, inPlace: false, reading: .bytes(bytes))
  }
}
