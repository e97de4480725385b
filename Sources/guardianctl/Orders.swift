import GuardianControl
import GuardianModel
import Glibc

extension Program {
  /// One order for each service, side by side: a connection has one answer at a time, so each that is under way has its own.
  mutating func order(_ invocation: Invocation) -> Int32 {
    var status = ExitCode.failed
    guard let chosen = choose(invocation, status: &status) else { return status }
    var results: [OrderBook.Result] = chosen.unmatched.map { OrderBook.Result(name: $0, failure: .unmatched($0)) }
    if chosen.names.isEmpty, invocation.all {
      return fail(ExitCode.noSuchService, "no-such-service", "there is no service at all", json: invocation.json)
    }
    var spinner = Spinner()
    for result in results where !show(result, invocation, &spinner) { return ExitCode.failed }

    var book = OrderBook(chosen.names)
    var lanes: [Lane] = [], free: [Daemon] = []
    var heard = true
    // Without a connection there is one thing to say, and not one for each service.
    if !chosen.names.isEmpty {
      do throws(Daemon.Fault) {
        free.append(try Daemon.connect(to: invocation.target))
      } catch {
        return fail(error, json: invocation.json) { encode(results, into: &$0) }
      }
    }
    func finish(_ result: OrderBook.Result?) {
      guard let result, heard else { return }
      heard = show(result, invocation, &spinner)
    }
    while !book.isOver, heard {
      while let order = book.next() {
        let request =
          order.isRepeated ? ControlRequest.start(name: order.name, wait: true) : request(invocation, order.name)
        do throws(Daemon.Fault) {
          let daemon: Daemon
          if let known = free.popLast() { daemon = known } else { daemon = try Daemon.connect(to: invocation.target) }
          try daemon.send([ControlCall(request)])
          lanes.append(
            Lane(daemon: daemon, index: order.index, request: request, sentAt: monotonicMilliseconds()))
        } catch {
          finish(book.lost(order.index, error.text))
        }
      }
      for result in book.takeLate() { finish(result) }
      if lanes.isEmpty { continue }
      var waiting = lanes.map { pollfd(fd: $0.daemon.socket, events: Int16(POLLIN), revents: 0) }
      let pause = invocation.isAnsweredAtOnce && spinner.wakes < 0 ? 1000 : spinner.wakes
      if poll(&waiting, nfds_t(waiting.count), pause) <= 0 { spinner.show(book.progress, invocation.doing) }
      let silent = monotonicMilliseconds() - Int64(patience) * 1000
      var still: [Lane] = []
      for (lane, state) in zip(lanes, waiting) {
        do throws(Daemon.Fault) {
          if state.revents != 0 { try lane.daemon.receive(patience: nil) }
          guard state.revents != 0, let reply = try lane.daemon.received(lane.request) else {
            if invocation.isAnsweredAtOnce, lane.sentAt <= silent {
              throw .unreachable("guardian at \(lane.daemon.path) has not answered for \(patience) s")
            }
            still.append(lane)
            continue
          }
          switch reply.body {
          case .error(.busy(let reason)): finish(book.refused(lane.index, .busy(reason: reason)))
          case .error(let error):
            finish(book.refused(lane.index, error))
            free.append(lane.daemon)
          case .done(let note):
            finish(book.answered(lane.index, note: note))
            free.append(lane.daemon)
          case .services, .reloaded, .upgraded, .plan, .drill, .summary, .crashes, .crash, .events, .version:
            finish(book.refused(lane.index, .failed(reason: "guardian gave another answer than asked for")))
          }
        } catch {
          finish(book.lost(lane.index, error.text))
        }
      }
      lanes = still
    }
    for result in book.takeLate() { finish(result) }
    spinner.clear()
    results = book.known + results
    if invocation.json { json { encode(results, into: &$0) } }
    let worst = results.reduce(0) { max($0, $1.failure?.exitCode ?? 0) }
    return heard ? worst : max(worst, ExitCode.failed)
  }

  private struct Lane {
    var daemon: Daemon
    var index: Int
    var request: ControlRequest
    var sentAt: Int64
  }

  /// A person who waits wants to see each as it comes; JSON is one object at the end.
  ///
  /// - Returns: False if nobody can see it.
  private mutating func show(_ result: OrderBook.Result, _ invocation: Invocation, _ spinner: inout Spinner) -> Bool {
    if let failure = result.failure {
      spinner.clear()
      complain("\(result.name): \(failure.sentence)")
    }
    if invocation.json || result.failure != nil { return true }
    spinner.clear()
    output.bytes +=
      "\(printable(result.name)): \(printable(result.note.isEmpty ? invocation.outcome : result.note))\n".utf8
    return flushSome()
  }

  /// Writes what there is so far.
  ///
  /// - Returns: False if nobody can see it.
  mutating func flushSome() -> Bool {
    defer { output.bytes = [] }
    return output.flush()
  }
}
