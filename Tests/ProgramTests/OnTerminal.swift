import Glibc

/// A program on a terminal of its own.
final class OnTerminal {
  let pid: pid_t
  private let master: CInt
  private(set) var output: [UInt8] = []
  private(set) var status: Int32?

  init(_ arguments: [String], width: UInt16, height: UInt16, environment: [String: String] = [:]) throws {
    // What posix_openpt, unlockpt and ptsname do, which the C library shows to X/Open programs only. ioctl_tty(2):
    // TIOCSPTLCK and TIOCGPTN, the same on all Linux ports that Swift has.
    master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    var unlocked: CInt = 0, number: CUnsignedInt = 0
    guard master >= 0, ioctl(master, 0x4004_5431, &unlocked) == 0, ioctl(master, 0x8004_5430, &number) == 0 else {
      throw Failure.errno("a terminal")
    }
    let path = "/dev/pts/\(number)"
    var size = winsize(ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0)
    _ = ioctl(master, UInt(TIOCSWINSZ), &size)
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor in [0, 1, 2] as [CInt] { posix_spawn_file_actions_addopen(&actions, descriptor, path, O_RDWR, 0) }
    var merged = ["PATH": "/usr/bin:/bin", "TERM": "xterm", "LC_ALL": "C.UTF-8"]
    merged.merge(environment) { $1 }
    // A session of its own makes the terminal its own with the first descriptor, so that signals of the terminal work.
    let command = ["/usr/bin/setsid", "--ctty"] + arguments
    var argv = command.map { strdup($0) }, envp = merged.map { strdup("\($0.key)=\($0.value)") }
    argv.append(nil)
    envp.append(nil)
    defer { for pointer in argv + envp { free(pointer) } }
    var pid: pid_t = 0
    let failed = posix_spawn(&pid, command[0], &actions, nil, argv, envp)
    guard failed == 0 else { throw Failure("cannot run \(command[0]): \(String(cString: strerror(failed)))") }
    self.pid = pid
    _ = fcntl(master, F_SETFL, O_NONBLOCK)
  }

  deinit {
    if status == nil {
      kill(pid, SIGKILL)
      waitpid(pid, nil, 0)
    }
    close(master)
  }

  func type(_ text: String) { _ = Array(text.utf8).withUnsafeBytes { write(master, $0.baseAddress, $0.count) } }

  func resize(width: UInt16, height: UInt16) {
    var size = winsize(ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0)
    _ = ioctl(master, UInt(TIOCSWINSZ), &size)
  }

  private func take() {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = read(master, &buffer, buffer.count)
      if count <= 0 { break }
      output += buffer[..<count]
    }
    var raw: Int32 = 0
    if status == nil, waitpid(pid, &raw, WNOHANG) == pid {
      status = raw & 0x7f == 0 ? raw >> 8 & 0xff : 128 + (raw & 0x7f)
    }
  }

  /// The screen as it is now, by what has been written to it: absolute places, text, and the end of a line.
  var screen: [String] {
    take()
    var rows: [String] = []
    let text = String(decoding: output, as: UTF8.self)
    for piece in text.split(separator: "\u{1b}[").dropFirst() {
      guard let end = piece.firstIndex(where: { $0.isLetter }) else { continue }
      let parameters = piece[..<end], rest = piece[piece.index(after: end)...]
      switch piece[end] {
      case "H":
        let row = Int(parameters.prefix { $0 != ";" }) ?? 1
        while rows.count < row { rows.append("") }
        current = row - 1
        rows[current] = String(rest)
      case "J": if parameters.isEmpty, current < rows.count { rows.removeSubrange(current...) }
      default: if current < rows.count { rows[current] += rest }
      }
    }
    return rows
  }
  private var current = 0

  /// Waits until `condition` holds for the screen.
  @discardableResult
  func see(_ what: String, _ condition: ([String]) -> Bool) async throws -> [String] {
    do {
      return try await eventually(what, seconds: 20) {
        let rows = screen
        return condition(rows) ? rows : nil
      }
    } catch {
      throw Failure("\(error)\nlast seen:\n\(screen.joined(separator: "\n"))")
    }
  }

  /// Waits until this has been written.
  func shows(_ text: String) async throws {
    do {
      try await eventually(text, seconds: 20) { self.text.contains(text) ? () : nil }
    } catch {
      throw Failure("\(error)\n\(self.text)")
    }
  }

  func end() async throws -> Int32 {
    try await eventually("it ends", seconds: 20) {
      take()
      return status
    }
  }

  /// Echo and lines, as a shell wants them.
  var isUsable: Bool {
    var state = termios()
    guard tcgetattr(master, &state) == 0 else { return false }
    return state.c_lflag & tcflag_t(ECHO) != 0 && state.c_lflag & tcflag_t(ICANON) != 0
  }
  var text: String {
    take()
    return String(decoding: output, as: UTF8.self)
  }
}
