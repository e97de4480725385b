import GuardianControl
import GuardianModel
import Glibc

/// What is going on, in one line of standard error that is written over and over; nothing anywhere but on a terminal.
struct Spinner {
  private let shown: Bool
  private let style: Style
  private let begun = monotonicMilliseconds()
  private var turn = 0
  private var isDrawn = false

  /// Whatever is over sooner needs no spinner.
  private static let patience: Int64 = 1000
  /// Between two pictures.
  static let pace: Int32 = 100

  init() {
    shown = isatty(STDERR_FILENO) == 1 && variable("TERM") != "dumb"
    style = errorStyle()
  }

  /// Milliseconds after which it is to be shown again; -1: never.
  var wakes: Int32 { shown ? Self.pace : -1 }

  mutating func show(_ progress: Progress, _ doing: String) {
    let passed = monotonicMilliseconds() - begun
    guard shown, passed >= Self.patience else { return }
    put("\r\u{1b}[K" + progress.line(doing, seconds: passed / 1000, turn: turn, style: style))
    turn += 1
    isDrawn = true
  }

  /// Before anything else is written to the terminal.
  mutating func clear() {
    guard isDrawn else { return }
    put("\r\u{1b}[K")
    isDrawn = false
  }

  private func put(_ text: String) {
    let bytes = Array(text.utf8)
    _ = bytes.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
  }
}

extension Program {
  /// One answer that may take its time.
  func ask(_ request: ControlRequest, _ invocation: Invocation, patience: Int32?) throws(Daemon.Fault) -> ReplyBody {
    var spinner = Spinner()
    defer { spinner.clear() }
    let daemon = try Daemon.connect(to: invocation.target)
    if spinner.wakes > 0 { daemon.idle = { spinner.show(Progress(), invocation.doing) } }
    defer { daemon.idle = nil }
    try daemon.send([ControlCall(request)])
    return try daemon.reply(to: request, patience: patience)
  }
}

func monotonicMilliseconds() -> Int64 {
  var now = timespec()
  clock_gettime(CLOCK_MONOTONIC, &now)
  return Int64(now.tv_sec) * 1000 + Int64(now.tv_nsec) / 1_000_000
}
