import GuardianCore
import GuardianLinux
import GuardianModel

/// What the service manager above guardian is told, and when.
final class HostManager {
  private let notify: HostNotify
  private let loop: EventLoop
  private var lastLine = ""
  /// When the last few lines were sent, oldest first.
  private var sent: [Instant] = []
  private var statusTimer: EventSource?
  private var watchdogTimer: EventSource?
  private var stopTimer: EventSource?
  private let log: OwnLog
  private var complained = false

  /// What has shown life since the last WATCHDOG=1; it is sent only when all have.
  struct Ticks: OptionSet {
    let rawValue: Int
    static let deaths = Ticks(rawValue: 1), control = Ticks(rawValue: 2), decisions = Ticks(rawValue: 4)
    static let all: Ticks = [.deaths, .control, .decisions]
  }
  private var ticked: Ticks = []
  private var pingDue = false
  private var diligence = Diligence()
  private var withheld = false

  /// A few changes of STATUS= are told at once, a storm of them once a second.
  private static let burst = 5

  /// Nil where nobody wants to be told.
  ///
  /// - Parameter wake: Makes every subsystem show life, and a turn happen.
  init?(loop: EventLoop, log: OwnLog, wake: @escaping () -> Void, statusDue: @escaping () -> Void) throws(SystemError) {
    if let address = HostNotify.unusableAddress {
      log.note(
        .warning,
        "the service manager cannot be told anything: NOTIFY_SOCKET is no socket: \(printable(address, atMost: 128))")
    }
    guard let notify = HostNotify() else { return nil }
    self.notify = notify
    self.loop = loop
    self.log = log
    statusTimer = try loop.timer(.monotonic, priority: .time, statusDue)
    if let period = notify.watchdog {
      watchdogTimer = try loop.timer(.monotonic, priority: .time) { [unowned self] in
        ticked = []
        pingDue = true
        watchdogTimer?.arm(at: (SystemClocks.monotonic() + period / 2).nanoseconds)
        wake()
      }
      watchdogTimer?.arm(at: (SystemClocks.monotonic() + period / 2).nanoseconds)
    }
  }

  func tick(_ what: Ticks) { ticked.insert(what) }

  /// At the end of a turn. A core that leaves its work undone for a quarter of the manager's patience is not spoken for:
  /// the manager ends this guardian, and the next one takes the services over.
  func turnEnded(_ reports: [Diligence.Report], now: Instant) {
    guard let period = notify.watchdog else { return }
    for report in reports { diligence.note(report, now: now) }
    guard pingDue, ticked == .all else { return }
    if let (duty, time) = diligence.neglected(longerThan: period / 4, now: now) {
      if !withheld {
        withheld = true
        log.note(
          .error,
          "guardian neglects its \(duty) for \(time.description): the service manager's watchdog is left to act on it")
      }
      return
    }
    withheld = false
    pingDue = false
    send(["WATCHDOG=1"])
  }

  /// Sends the line if it is new, now or when a second has passed since the last one.
  func status(_ line: () -> String, now: Instant) {
    if sent.count == Self.burst, now < sent[0] + .seconds(Self.burst), now < sent[Self.burst - 1] + .seconds(1) {
      statusTimer?.arm(at: (sent[Self.burst - 1] + .seconds(1)).nanoseconds)
      return
    }
    let line = line()
    guard line != lastLine else { return }
    lastLine = line
    sent = sent.suffix(Self.burst - 1) + [now]
    send(["STATUS=\(printable(line, atMost: 1024))"])
  }

  /// Before the configuration is read and services are taken over, which thousands of files, a slow name service or a slow
  /// disk may draw out. Told once, so that a guardian that hangs is ended all the same.
  func starting() { send(["EXTEND_TIMEOUT_USEC=\(Self.startPatience.nanoseconds / 1000)"]) }
  private static let startPatience = Duration.minute * 5

  func ready(_ line: String) {
    lastLine = line
    send(["READY=1", "STATUS=\(printable(line, atMost: 1024))"])
  }
  func reloading() {
    send(["RELOADING=1", "MONOTONIC_USEC=\(SystemClocks.monotonic().nanoseconds / 1000)"])
  }
  func reloaded() { send(["READY=1"]) }

  /// Says goodbye, and that the end may take as long as the most patient service.
  func stopping(patience: Duration) {
    send(["STOPPING=1"])
    let step = Duration.seconds(5)
    func extend() { send(["EXTEND_TIMEOUT_USEC=\((step * 3).nanoseconds / 1000)"]) }
    var left = patience
    extend()
    stopTimer = try? loop.timer(.monotonic, priority: .time) { [unowned self] in
      left -= step
      guard left > .zero else { return }
      extend()
      stopTimer?.arm(at: (SystemClocks.monotonic() + step).nanoseconds)
    }
    stopTimer?.arm(at: (SystemClocks.monotonic() + step).nanoseconds)
  }

  /// The service manager hands it to the next guardian. One more of the same name takes the place of the first.
  func keep(_ descriptor: Int32, name: String) {
    notify.removeDescriptor(name: name)
    notify.storeDescriptor(name: name, descriptor)
  }
  func letGo(name: String) { notify.removeDescriptor(name: name) }

  private func send(_ lines: [String]) {
    if !notify.send(lines), !complained {
      complained = true
      log.note(.warning, "the service manager cannot be told anything: its notify socket takes no messages")
    }
  }
}
