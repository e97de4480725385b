import Glibc
import GuardianLinux
import GuardianModel

// Guardian as process 1 of a container: it reaps whoever loses its parent, which it does as a subreaper anyway, and
// hears the signals by which runtimes and the kernel speak to an init. They are blocked before `main`, so that none is
// lost.

/// What a signal means to a guardian that is process 1.
enum Process1 {
  static var isHere: Bool { getpid() == 1 }

  /// SIGTERM, SIGINT, SIGQUIT and SIGHUP mean to it what they mean to any guardian.
  enum Meaning: Hashable {
    /// Everything is stopped, in order.
    case stop
    /// To the main process of the only service there is; where there are several, nobody knows whom it is for.
    case passOn
  }

  /// By number, with the name for the log. An init is asked to halt, power off and reboot by real-time signals, as
  /// systemd(1) has it; SIGPWR is what LXC and the kernel send.
  static let table: [(number: Int32, name: String, meaning: Meaning)] = {
    let first = __libc_current_sigrtmin()
    return [
      (SIGPWR, "SIGPWR", .stop), (first + 3, "SIGRTMIN+3", .stop), (first + 4, "SIGRTMIN+4", .stop),
      (first + 5, "SIGRTMIN+5", .stop), (first + 6, "SIGRTMIN+6", .stop), (SIGUSR1, "SIGUSR1", .passOn),
      (SIGUSR2, "SIGUSR2", .passOn), (SIGWINCH, "SIGWINCH", .passOn),
    ]
  }()
}

extension Shell {
  func signalsOfProcess1() throws(SystemError) -> [EventSource] {
    guard Process1.isHere else { return [] }
    var sources: [EventSource] = []
    for (number, name, meaning) in Process1.table {
      sources.append(
        try loop.onSignal(number, priority: .control) { [unowned self] in
          switch meaning {
          case .stop: stop(name)
          case .passOn: passOn(number, name)
          }
        })
    }
    return sources
  }

  private func passOn(_ number: Int32, _ name: String) {
    guard fleet.ids.count == 1, let id = fleet.ids.first, let service = names[id],
      let run = fleet.machine(of: id)?.phase.run?.id, let signal = Signal(number: number)
    else { return log.note(.info, "\(name) is passed on only where there is a single service, and it runs") }
    log.note(.info, "\(name) is passed on to \(service)")
    runs.signal(run, signal, ending: false)
  }
}
