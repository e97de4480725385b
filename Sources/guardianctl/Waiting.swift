import GuardianControl
import GuardianModel
import Glibc

/// Follows what happens, by a connection of its own. What comes after `begin` has returned is not lost.
struct Follower {
  private let daemon: Daemon
  private let request: ControlRequest

  /// - Parameter names: Of these services; of all, where there are too many to name.
  static func begin(
    _ target: Invocation.Target, names: [String], patience: Int32
  ) throws(Daemon.Fault) -> Answer<Follower, ControlError> {
    let request = ControlRequest.events(EventsRequest(names: names.count > 200 ? [] : names, follow: true))
    let follower = Follower(daemon: try Daemon.connect(to: target), request: request)
    try follower.daemon.send([ControlCall(request, more: true)])
    // The first answer is the past. From the moment on at which guardian has read the question it tells what comes.
    while true {
      if let reply = try follower.daemon.received(request) {
        if case .error(let error) = reply.body { return .failure(error) }
        return .success(follower)
      }
      try follower.daemon.receive(patience: patience)
    }
  }

  var socket: CInt { daemon.socket }

  enum News {
    case nothing
    /// Of these services, or of any where some were missed.
    case of(Set<String>)
    case any
    case over(ControlError?)
  }

  /// - Parameter milliseconds: How long to wait; negative: for ever.
  func next(milliseconds: Int32) throws(Daemon.Fault) -> News {
    var waiting = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
    guard poll(&waiting, 1, milliseconds) > 0 else { return .nothing }
    return try take()
  }

  /// What has come, once the socket is readable.
  func take() throws(Daemon.Fault) -> News {
    try daemon.receive(patience: nil)
    var names: Set<String> = []
    var missed = false
    while let reply = try daemon.received(request) {
      switch reply.body {
      case .events(let events, let count):
        for event in events { names.insert(event.service) }
        missed = missed || count > 0
      case .error(let error): return .over(error)
      case .services, .done, .reloaded, .upgraded, .plan, .drill, .crashes, .crash, .summary, .version: break
      }
      if !reply.continues { return .over(nil) }
    }
    return missed ? .any : names.isEmpty ? .nothing : .of(names)
  }
}

extension Program {
  /// How long guardian may be away before that is the answer: a restart of it takes a moment, and touches no service.
  private static let absence: Int64 = 10_000

  mutating func wait(_ invocation: Invocation) -> Int32 {
    let begun = monotonicMilliseconds()
    let deadline = invocation.timeoutMilliseconds.map { begun + $0 }
    var status = ExitCode.failed
    guard let chosen = choose(invocation, status: &status) else { return status }
    var unmatched = chosen.unmatched
    var spinner = Spinner()
    var book: WaitBook?
    var away: Int64?
    while true {
      do throws(Daemon.Fault) {
        let outcome = try watch(
          invocation, names: chosen.names, deadline: deadline, &book, &unmatched, &spinner)
        away = nil
        spinner.clear()
        switch outcome {
        case .decided: return ended(book, unmatched, invocation, timedOut: false)
        case .timedOut: return ended(book, unmatched, invocation, timedOut: true)
        case .refused(let error): return fail(error, json: invocation.json)
        case .unheard: return ExitCode.failed
        case .lost: break
        }
      } catch {
        guard book != nil, case .unreachable = error else {
          spinner.clear()
          return fail(error, json: invocation.json)
        }
        let now = monotonicMilliseconds()
        let since = away ?? now
        away = since
        if let deadline, now >= deadline { return ended(book, unmatched, invocation, timedOut: true) }
        if now - since >= Self.absence {
          spinner.clear()
          return fail(error, json: invocation.json)
        }
      }
      // Guardian itself is away, and tells nobody when it is back.
      usleep(100_000)
    }
  }

  private enum Watched {
    case decided, timedOut, unheard, lost
    case refused(ControlError)
  }

  /// One connection's life: follow first, then look, then look again at whatever something is told of. So nothing can
  /// happen between the look and the stream.
  private mutating func watch(
    _ invocation: Invocation, names: [String], deadline: Int64?, _ book: inout WaitBook?, _ unmatched: inout [String],
    _ spinner: inout Spinner
  ) throws(Daemon.Fault) -> Watched {
    let daemon = try Daemon.connect(to: invocation.target)
    if book == nil {
      // A name that nobody has is told before anything is waited for.
      switch try daemon.list(names, brief: true, patience: patience(until: deadline)) {
      case .failure(let error): return .refused(error)
      case .success(let found):
        unmatched += found.missing
        let missing = Set(found.missing)
        book = WaitBook(names.filter { !missing.contains($0) }, goal: invocation.goal, any: invocation.any)
      }
      for name in unmatched { complain("\(name): \(noSuch(name))") }
    }
    guard var current = book else { return .decided }
    defer { book = current }
    if current.outcome != nil { return .decided }
    // What is not there cannot come true, and the rest would be waited for in vain: how it is now is all there is to tell.
    if !unmatched.isEmpty, !invocation.any {
      switch try look(at: current.pending, daemon, invocation, deadline, &current, &spinner) {
      case .failure(let error): return .refused(error)
      case .success(let heard): return heard ? .decided : .unheard
      }
    }
    let follower: Follower
    switch try Follower.begin(invocation.target, names: current.pending, patience: patience(until: deadline)) {
    case .success(let begun): follower = begun
    case .failure(let error):
      // What has come true already needs no following.
      if case .success(false) = try look(at: current.pending, daemon, invocation, deadline, &current, &spinner) {
        return .unheard
      }
      return current.outcome == nil ? .refused(error) : .decided
    }
    var due = current.pending
    while true {
      if !due.isEmpty {
        switch try look(at: due, daemon, invocation, deadline, &current, &spinner) {
        case .failure(let error): return .refused(error)
        case .success(let heard): if !heard { return .unheard }
        }
        if current.outcome != nil { return .decided }
      }
      due = []
      while due.isEmpty {
        var pause = spinner.wakes
        if let deadline {
          let left = deadline - monotonicMilliseconds()
          if left <= 0 { return .timedOut }
          let most = Int32(clamping: left)
          pause = pause < 0 ? most : min(pause, most)
        }
        switch try follower.next(milliseconds: pause) {
        case .nothing: spinner.show(current.progress, invocation.doing)
        case .of(let names): due = names.filter { current.isPending($0) }.sorted()
        case .any: due = current.pending
        case .over(let error?): return .refused(error)
        case .over(nil): return .lost
        }
      }
    }
  }

  /// Nothing takes longer than the caller has.
  private func patience(until deadline: Int64?) -> Int32 {
    guard let deadline else { return patience }
    return Int32(clamping: min(Int64(patience), max(1, (deadline - monotonicMilliseconds() + 999) / 1000)))
  }

  /// Tells what this look has decided.
  ///
  /// - Returns: False if nobody can see it.
  private mutating func look(
    at names: [String], _ daemon: Daemon, _ invocation: Invocation, _ deadline: Int64?, _ book: inout WaitBook,
    _ spinner: inout Spinner
  ) throws(Daemon.Fault) -> Answer<Bool, ControlError> {
    switch try daemon.list(names, brief: true, patience: patience(until: deadline)) {
    case .failure(let error): return .failure(error)
    case .success(let found):
      for result in book.saw(found.services, asked: names) {
        spinner.clear()
        if !tell(result, invocation) { return .success(false) }
      }
      return .success(true)
    }
  }

  private func noSuch(_ name: String) -> String {
    Selection.isGroup(name)
      ? "no such group" : Selection.isPattern(name) ? "no service matches" : "no such service"
  }

  private mutating func tell(_ result: WaitBook.Result, _ invocation: Invocation) -> Bool {
    if case .never = result.verdict {
      complain("\(result.name): \(result.sentence(invocation.goal))")
      return true
    }
    if invocation.json { return true }
    output.bytes += "\(printable(result.name)): \(printable(result.sentence(invocation.goal)))\n".utf8
    return flushSome()
  }

  private mutating func ended(
    _ book: WaitBook?, _ unmatched: [String], _ invocation: Invocation, timedOut: Bool
  ) -> Int32 {
    guard let book else { return ExitCode.failed }
    let reached = book.outcome == .reached && (unmatched.isEmpty || invocation.any)
    let status: Int32 = reached ? ExitCode.done : unmatched.isEmpty ? ExitCode.failed : ExitCode.noSuchService
    let time = shortTime(milliseconds: invocation.timeoutMilliseconds ?? 0)
    for result in book.results where result.verdict == .pending && (timedOut || !unmatched.isEmpty) && !reached {
      let within = timedOut ? " within \(time)" : ", and not waited for"
      complain("\(result.name): not \(invocation.goal.rawValue)\(within): \(result.sentence(invocation.goal))")
    }
    if invocation.json {
      json { json in
        json.key("for")
        json.string(invocation.goal.rawValue)
        json.key("results")
        json.beginArray()
        for result in book.results {
          json.beginObject()
          json.key("name")
          json.string(result.name)
          json.key("done")
          json.bool(result.verdict == .reached)
          json.key("phase")
          if let phase = result.phase { json.string(phase.rawValue) } else { json.null() }
          json.key("note")
          json.string(result.sentence(invocation.goal))
          json.endObject()
        }
        for name in unmatched {
          json.beginObject()
          json.key("name")
          json.string(name)
          json.key("done")
          json.bool(false)
          json.key("phase")
          json.null()
          json.key("note")
          json.string(Self.noSuch(name))
          json.endObject()
        }
        json.endArray()
        if !reached {
          json.key("error")
          json.beginObject()
          json.key("name")
          json.string(!unmatched.isEmpty ? "no-such-service" : timedOut ? "timeout" : "failed")
          json.key("message")
          let left = book.results.filter { $0.verdict != .reached }.map(\.name).joined(separator: ", ")
          json.string(
            !unmatched.isEmpty
              ? unmatched.map(Self.noSuch).joined(separator: "; ")
              : timedOut
                ? "not \(invocation.goal.rawValue) within \(time): \(left)"
                : "will not become \(invocation.goal.rawValue): \(left)")
          json.endObject()
        }
      }
    }
    return status
  }
}
