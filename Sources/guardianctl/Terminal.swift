import Glibc

/// A terminal as a whole screen: raw, on its other page, and put back whatever ends the program.
final class Terminal {
  private var saved = termios()
  private var size = (width: 80, height: 24)
  private var drawn: [String] = []
  private var isRaw = false

  /// Written by the handlers of signals; polled like any other source.
  private(set) var signals: CInt = -1

  /// - Returns: Nil where standard input or output is no terminal.
  init?() {
    guard isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1, tcgetattr(STDIN_FILENO, &saved) == 0 else {
      return nil
    }
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0 else { return nil }
    for end in ends {
      _ = fcntl(end, F_SETFD, FD_CLOEXEC)
      _ = fcntl(end, F_SETFL, O_NONBLOCK)
    }
    signals = ends[0]
    signalPipe = ends[1]
    savedTerminal = saved
    // Whoever has started this may have blocked them.
    var wanted = sigset_t()
    sigemptyset(&wanted)
    for signal in [SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCONT] {
      handle(signal) { tell($0) }
      sigaddset(&wanted, signal)
    }
    sigprocmask(SIG_UNBLOCK, &wanted, nil)
    // A reader that is gone is told by the write.
    Glibc.signal(SIGPIPE, SIG_IGN)
    // Our own faults leave no terminal that cannot be used.
    for signal in [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT, SIGFPE] {
      handle(signal, once: true) {
        restoreTerminal()
        raise($0)
      }
    }
  }

  deinit { leave() }

  func enter() {
    var raw = saved
    cfmakeraw(&raw)
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw)
    isRaw = true
    terminalIsRaw = 1
    drawn = []
    put("\u{1b}[?1049h\u{1b}[?25l\u{1b}[2J")
    measure()
  }

  func leave() {
    guard isRaw else { return }
    isRaw = false
    terminalIsRaw = 0
    restoreTerminal(always: true)
  }

  /// Columns and lines as they are now.
  @discardableResult
  func measure() -> (width: Int, height: Int) {
    var window = winsize()
    if ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &window) == 0, window.ws_col > 0, window.ws_row > 0 {
      size = (Int(window.ws_col), Int(window.ws_row))
    }
    drawn = []
    return size
  }

  /// Draws the lines that are not there yet.
  ///
  /// - Returns: False if nobody can see it.
  func draw(_ lines: [String]) -> Bool {
    var text = ""
    for (index, line) in lines.enumerated() where !(drawn.indices.contains(index) && drawn[index] == line) {
      text += "\u{1b}[\(index + 1);1H\u{1b}[0m\(line)\u{1b}[0m\u{1b}[K"
    }
    if drawn.count > lines.count || drawn.isEmpty { text += "\u{1b}[\(lines.count + 1);1H\u{1b}[J" }
    drawn = lines
    return put(text)
  }

  /// What has been typed; nil: nobody is there any more.
  func read() -> [UInt8]? {
    var buffer = [UInt8](repeating: 0, count: 256)
    let count = Glibc.read(STDIN_FILENO, &buffer, buffer.count)
    if count < 0 { return errno == EINTR || errno == EAGAIN ? [] : nil }
    return count == 0 ? nil : Array(buffer[..<count])
  }

  /// Signals that have come.
  func takeSignals() -> [Int32] {
    var buffer = [UInt8](repeating: 0, count: 64)
    let count = Glibc.read(signals, &buffer, buffer.count)
    return count > 0 ? buffer[..<count].map(Int32.init) : []
  }

  /// Stopped like any other program, until somebody goes on with it.
  func suspend() {
    leave()
    raise(SIGSTOP)
    enter()
  }

  /// Ends as the signal ends a program that does not handle it.
  func end(by signal: Int32) -> Never {
    leave()
    Glibc.signal(signal, SIG_DFL)
    raise(signal)
    exit(128 + signal)
  }

  @discardableResult
  private func put(_ text: String) -> Bool {
    var output = Output()
    output.bytes = Array(text.utf8)
    return output.flush()
  }
}

// What a handler of signals may touch: plain values, and calls that signal-safety(7) lists.
nonisolated(unsafe) private var signalPipe: CInt = -1
nonisolated(unsafe) private var savedTerminal = termios()
nonisolated(unsafe) private var terminalIsRaw: sig_atomic_t = 0

private func handle(_ signal: Int32, once: Bool = false, _ body: @escaping @convention(c) (Int32) -> Void) {
  var action = sigaction()
  action.__sigaction_handler.sa_handler = body
  action.sa_flags = SA_RESTART | (once ? Int32(bitPattern: UInt32(SA_RESETHAND)) | SA_NODEFER : 0)
  sigaction(signal, &action, nil)
}

private func tell(_ signal: Int32) {
  let before = errno
  var byte = UInt8(truncatingIfNeeded: signal)
  write(signalPipe, &byte, 1)
  errno = before
}

private func restoreTerminal(always: Bool = false) {
  guard always || terminalIsRaw != 0 else { return }
  terminalIsRaw = 0
  let text: StaticString = "\u{1b}[0m\u{1b}[?25h\u{1b}[?1049l"
  write(STDOUT_FILENO, text.utf8Start, text.utf8CodeUnitCount)
  tcsetattr(STDIN_FILENO, TCSADRAIN, &savedTerminal)
}
