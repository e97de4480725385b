import Glibc
import GuardianLinux
import GuardianModel

/// Where this guardian lives.
package struct Directories: Hashable, Sendable {
  package var configuration: String, state: String, runtime: String, logs: String

  /// Flags win, then what systemd says, then the usual places of root or of this user.
  package init(_ options: Options, root: Bool, environment: (String) -> String?) {
    func systemd(_ name: String) -> String? {
      // systemd separates several by colons; the first is meant.
      environment(name)?.split(separator: ":").first.map(String.init)
    }
    func xdg(_ name: String, _ fallback: String) -> String {
      if let base = environment(name), base.hasPrefix("/") { return base + "/guardian" }
      // Without a HOME, as under some container runtimes, the root: what cannot be had there is said by name.
      var home = environment("HOME").flatMap { $0.hasPrefix("/") ? $0 : nil } ?? ""
      while home.hasSuffix("/") { home.removeLast() }
      return home + fallback
    }
    let runtimeFallback = "/tmp/guardian-\(getuid())"
    configuration =
      options.configuration ?? systemd("CONFIGURATION_DIRECTORY")
      ?? (root ? "/etc/guardian" : xdg("XDG_CONFIG_HOME", "/.config/guardian"))
    state =
      options.state ?? systemd("STATE_DIRECTORY")
      ?? (root ? "/var/lib/guardian" : xdg("XDG_STATE_HOME", "/.local/state/guardian"))
    runtime =
      options.runtime ?? systemd("RUNTIME_DIRECTORY")
      ?? (root
        ? "/run/guardian"
        : environment("XDG_RUNTIME_DIR").flatMap { $0.hasPrefix("/") ? $0 + "/guardian" : nil }
          ?? runtimeFallback)
    logs =
      options.logs ?? systemd("LOGS_DIRECTORY")
      ?? (root ? "/var/log/guardian" : xdg("XDG_STATE_HOME", "/.local/state/guardian") + "/log")
  }

  package var controlSocket: String { runtime + "/control.sock" }
  package var notifyDirectory: String { runtime + "/notify" }
  func notifySocket(of service: ServiceName) -> String { "\(notifyDirectory)/\(service)" }
}

func environmentVariable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

func workingDirectory() -> String {
  guard let text = getcwd(nil, 0) else { return "/" }
  defer { free(text) }
  return String(cString: text)
}

/// Makes a directory and its parents where they are missing, and makes sure that it is a directory of ours that
/// nobody else may write to.
func prepareDirectory(_ path: String, mode: UInt32) throws(SystemError) {
  var made = ""
  for part in path.split(separator: "/") {
    made += "/" + part
    if mkdir(made, made == path ? mode : 0o755) != 0, errno != EEXIST {
      // A read-only file system says EROFS even for what exists.
      var about = stat()
      let number = errno
      if stat(made, &about) != 0 { throw SystemError("make \(made)", errno: number) }
    }
  }
  var about = stat()
  guard stat(path, &about) == 0 else { throw SystemError.last("look at \(path)") }
  guard about.st_mode & S_IFMT == S_IFDIR else { throw SystemError("use \(path)", errno: ENOTDIR) }
  guard about.st_uid == geteuid() || about.st_uid == 0 else {
    throw SystemError("use \(path), which belongs to uid \(about.st_uid)", errno: EPERM)
  }
  guard about.st_mode & 0o002 == 0 else {
    throw SystemError("use \(path), to which everybody may write", errno: EPERM)
  }
}
