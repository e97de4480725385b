import GuardianControl
import GuardianModel
import Glibc

extension Program {
  /// The shell around `TopModel`: keys, signals, guardian and the clock go in, and its frames to the terminal.
  mutating func top(_ invocation: Invocation) -> Int32 {
    if let status = lookFirst(invocation) { return status }
    guard let terminal = Terminal() else {
      return fail(
        ExitCode.failed, "failed", "'top' needs a terminal; 'status --watch' goes on elsewhere too", json: false)
    }
    let style = standardStyle()
    var model = TopModel(invocation.names)
    var keys = KeyReader()
    var link = LiveLink(invocation.target, patience: patience)
    var meter = UsageMeter()
    var orders: [(daemon: Daemon, order: TopOrder)] = []
    var measuredAt: Int64 = .min / 2

    terminal.enter()
    defer { terminal.leave() }
    let size = terminal.measure()
    _ = model.handle(.resized(width: size.width, height: size.height))

    var readable: [CInt] = []
    while true {
      let now = monotonicMilliseconds()
      _ = model.handle(.time(milliseconds: now))
      var effects: [TopModel.Effect] = []
      if readable.contains(STDIN_FILENO) {
        guard let typed = terminal.read() else { return ExitCode.failed }
        for key in keys.feed(typed) { effects += model.handle(.key(key)) }
      }
      if readable.contains(terminal.signals) {
        for signal in terminal.takeSignals() {
          switch signal {
          case SIGWINCH, SIGCONT:
            let size = terminal.measure()
            _ = model.handle(.resized(width: size.width, height: size.height))
          default: terminal.end(by: signal)
          }
        }
      }
      for news in link.step(now, readable: readable) {
        model.take(news)
        // What has just appeared need not wait for its figures.
        if case .looked(_, _, whole: true) = news { measuredAt = .min / 2 }
      }
      hear(&orders, readable, &model)
      if now >= measuredAt + Self.measuring {
        measuredAt = now
        _ = model.handle(.measured(meter.measure(model.processes, now: now * 1000)))
      }
      for effect in effects {
        switch effect {
        case .quit: return ExitCode.done
        case .suspend:
          terminal.suspend()
          let size = terminal.measure()
          _ = model.handle(.resized(width: size.width, height: size.height))
        case .order(let order): give(order, invocation.target, &orders, &model)
        }
      }
      if !terminal.draw(model.frame(style)) { return ExitCode.failed }

      var polled = [STDIN_FILENO, terminal.signals] + link.sockets + orders.map(\.daemon.socket)
      polled = polled.filter { $0 >= 0 }
      var waiting = polled.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      // Times run on the screen: once a second there is something to be seen.
      let pause = min(1000 - now % 1000, link.wakes(now) ?? 1000)
      _ = poll(&waiting, nfds_t(waiting.count), Int32(clamping: max(1, pause)))
      readable = waiting.filter { $0.revents != 0 }.map(\.fd)
    }
  }

  /// Between two looks at what services take, in milliseconds.
  private static let measuring: Int64 = 2000
  /// Orders that may be under way at once.
  private static let mostOrders = 16

  private func give(
    _ order: TopOrder, _ target: Invocation.Target, _ orders: inout [(daemon: Daemon, order: TopOrder)],
    _ model: inout TopModel
  ) {
    guard orders.count < Self.mostOrders else {
      _ = model.handle(.orderLost(order, "\(orders.count) orders are under way already"))
      return
    }
    do throws(Daemon.Fault) {
      let daemon = try Daemon.connect(to: target)
      try daemon.send([ControlCall(order.request)])
      orders.append((daemon, order))
    } catch {
      _ = model.handle(.orderLost(order, error.text))
    }
  }

  private func hear(
    _ orders: inout [(daemon: Daemon, order: TopOrder)], _ readable: [CInt], _ model: inout TopModel
  ) {
    orders.removeAll { daemon, order in
      guard readable.contains(daemon.socket) else { return false }
      do throws(Daemon.Fault) {
        try daemon.receive(patience: nil)
        guard let reply = try daemon.received(order.request) else { return false }
        switch reply.body {
        case .done(let note): _ = model.handle(.answered(order, note: note))
        case .error(let error): _ = model.handle(.refused(order, error))
        case .services, .reloaded, .upgraded, .plan, .drill, .summary, .crashes, .crash, .events, .version: break
        }
      } catch {
        _ = model.handle(.orderLost(order, error.text))
      }
      return true
    }
  }
}
