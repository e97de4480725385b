import GuardianControl
import GuardianModel
import Glibc

extension Program {
  /// `status --watch`: the screen drawn anew on a terminal, else a line for whatever changes.
  mutating func watchStatus(_ invocation: Invocation) -> Int32 {
    if let status = lookFirst(invocation) { return status }
    if !invocation.json, let terminal = Terminal() { return watchScreen(invocation, terminal) }
    return watchLines(invocation)
  }

  /// The first look is that of any other status: who is not there, and which names nobody has, is told the same way.
  ///
  /// - Returns: The exit status where that was all.
  mutating func lookFirst(_ invocation: Invocation) -> Int32? {
    let first: Listed
    do throws(Daemon.Fault) {
      let daemon = try Daemon.connect(to: invocation.target)
      switch try Self.choose(invocation, daemon, patience: patience) {
      case .failure(let error): return fail(error, json: invocation.json)
      case .success(let chosen):
        if let name = chosen.unmatched.first {
          return fail(ExitCode.noSuchService, "no-such-service", Self.noSuch(name), json: invocation.json)
        }
        let names = invocation.names.isEmpty ? nil : chosen.names
        switch try daemon.list(names, brief: true, patience: patience) {
        case .failure(let error): return fail(error, json: invocation.json)
        case .success(let found): first = found
        }
      }
    } catch {
      return fail(error, json: invocation.json)
    }
    if let name = first.missing.first {
      return fail(ExitCode.noSuchService, "no-such-service", Self.noSuch(name), json: invocation.json)
    }
    return nil
  }

  private mutating func watchScreen(_ invocation: Invocation, _ terminal: Terminal) -> Int32 {
    var style = standardStyle()
    var model = TopModel(invocation.names)
    var link = LiveLink(invocation.target, patience: patience)
    let closely = !invocation.names.isEmpty && !invocation.needsChoice
    terminal.enter()
    defer { terminal.leave() }
    var size = terminal.measure()
    var keys = KeyReader()
    var readable: [CInt] = []
    while true {
      let now = monotonicMilliseconds()
      _ = model.handle(.time(milliseconds: now))
      if readable.contains(STDIN_FILENO) {
        guard let typed = terminal.read() else { return ExitCode.failed }
        for key in keys.feed(typed) {
          switch key {
          case .control("c"), .character("q"): return ExitCode.done
          case .control("z"):
            terminal.suspend()
            size = terminal.measure()
          default: break
          }
        }
      }
      if readable.contains(terminal.signals) {
        for signal in terminal.takeSignals() {
          if signal != SIGWINCH, signal != SIGCONT { terminal.end(by: signal) }
          size = terminal.measure()
        }
      }
      for news in link.step(now, readable: readable) { model.take(news) }
      style.width = max(20, size.width)
      let lines = watchFrame(
        model.summary, model.agedServices, away: model.away, closely: closely, now: Self.wallTime(),
        height: size.height, style: style)
      if !terminal.draw(lines) { return ExitCode.failed }
      let polled = [STDIN_FILENO, terminal.signals] + link.sockets
      var waiting = polled.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      let pause = min(1000 - now % 1000, link.wakes(now) ?? 1000)
      _ = poll(&waiting, nfds_t(waiting.count), Int32(clamping: max(1, pause)))
      readable = waiting.filter { $0.revents != 0 }.map(\.fd)
    }
  }

  private mutating func watchLines(_ invocation: Invocation) -> Int32 {
    var link = LiveLink(invocation.target, patience: patience)
    var lines = WatchLines(style: standardStyle()), objects = WatchObjects()
    var isFirst = true, isAway = false
    var names: Set<String> = []
    var readable: [CInt] = []
    while true {
      let now = monotonicMilliseconds()
      for news in link.step(now, readable: readable) {
        switch news {
        case .linked:
          if isAway { complain("guardian is back") }
          isAway = false
        case .lost(let fault):
          if !isAway { complain(fault.text) }
          isAway = true
        case .refused(let error):
          if !isAway { complain(error.sentence) }
          isAway = true
        case .summary: break
        case .looked(let found, var missing, let whole):
          let services = found.filter { Selection.includes($0, invocation.names) }
          let there = Set(services.map(\.name))
          // After a look at all, what is not among them is not there.
          if whole { missing = names.subtracting(there).sorted() }
          names.formUnion(there)
          names.subtract(missing)
          let wall = Self.wallTime()
          output.bytes =
            invocation.json
            ? objects.render(services, missing: missing, at: wall, first: isFirst)
            : lines.render(services, missing: missing, at: isFirst ? nil : wall)
          isFirst = false
          if !flushSome() { return ExitCode.failed }
        }
      }
      var waiting = link.sockets.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      // A reader that goes away is noticed though nothing is written.
      waiting.append(pollfd(fd: STDOUT_FILENO, events: 0, revents: 0))
      let pause = link.wakes(now).map { Int32(clamping: max(1, $0)) } ?? -1
      _ = poll(&waiting, nfds_t(waiting.count), pause)
      if let out = waiting.last, out.revents & Int16(POLLERR | POLLNVAL) != 0 { return ExitCode.failed }
      readable = waiting.filter { $0.revents != 0 }.map(\.fd)
    }
  }
}

extension TopModel {
  mutating func take(_ news: LiveLink.News) {
    switch news {
    case .linked: _ = handle(.linked)
    case .lost(let fault): _ = handle(.lost(fault.text))
    case .refused(let error): _ = handle(.lost(error.sentence))
    case .summary(let summary): _ = handle(.summary(summary))
    case .looked(let services, let missing, let whole):
      _ = handle(.looked(services, missing: missing, whole: whole))
    }
  }
}
