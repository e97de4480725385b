import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

// The notify server: one socket for each service that has something to say, the same path for every run.
//
// Who may speak: root, the service's user, and whoever is in the run's set. The first two are told by the kernel with the
// datagram, so that a sender that has gone already still counts; only for the third it is looked whether it is there.
//
// What a service says costs the others nothing: a socket is read a few datagrams at a time and so often in a tenth of a
// second, after deaths and beside the others; what changes anything, and so is written down, has a budget of its own; and
// what is said twice is dropped here. A sender beyond that waits, as its socket's queue is full.

/// What the present run has said.
struct Said: Hashable {
  var ready = false, reloading = false, stopping = false, store = false, confirmed = false
  /// When the words that have changed something so far will have had their time: as many as `burst` may be ahead of it.
  private var filledAt = Instant(nanoseconds: .min)

  private static let burst = 32
  private static let pace = Duration.milliseconds(250)

  init() {}

  /// False: it has said more than anybody needs to.
  mutating func mayChangeSomething(_ now: Instant) -> Bool {
    let from = max(filledAt, now)
    guard from - now < Self.pace * Self.burst else { return false }
    filledAt = from + Self.pace
    return true
  }
}

extension RunTable {
  func makeNotifySocket(_ facts: ServiceFacts, _ spec: ServiceSpec, _ service: ServiceID) throws(SystemError) {
    if let notify = facts.notify {
      // What an earlier run has said is nothing that this one says.
      var held: [Int32] = []
      for _ in 0..<1024 {
        guard notify.receive(held: &held) != nil else { break }
        facts.ignoredNotifications += 1
        closeAll(&held)
      }
      closeAll(&held)
      return
    }
    try listen(
      facts,
      NotifySocket(
        path: shell.directories.notifySocket(of: spec.name), uid: spec.process.identity?.uid ?? geteuid()),
      service)
    if let number = facts.notify?.descriptor { shell.keep(number, of: spec.name) }
  }

  func listen(_ facts: ServiceFacts, _ notify: NotifySocket, _ service: ServiceID) throws(SystemError) {
    let source = try notify.onReadable(shell.loop) { [weak self, weak facts] in
      if let self, let facts { readNotifications(service, facts, atMost: Self.datagramsAtOnce) }
    }
    // Beyond this it waits for the next tenth of a second, and its senders with it.
    source.limit(to: 100, within: .milliseconds(100))
    facts.notify = notify
    facts.notifySource = source
  }

  func readNotifications(_ service: ServiceID, _ facts: ServiceFacts, atMost limit: Int) {
    guard let notify = facts.notify else { return }
    var held: [Int32] = []
    var pinged = false
    for _ in 0..<limit {
      guard let datagram = notify.receive(held: &held) else { break }
      if let run = facts.run.flatMap({ runs[$0] }) {
        hear(datagram, run, facts, &held, &pinged)
      } else {
        // Of a run that has ended, or of one that is not born yet.
        facts.ignoredNotifications += 1
      }
      closeAll(&held)
    }
    closeAll(&held)
  }

  /// Everything that was heard before has been handled: whoever sent BARRIER=1 waits for this.
  func closeBarriers() {
    if !barriers.isEmpty { closeAll(&barriers) }
  }
  private static let barriersHeld = 256

  private func hear(
    _ datagram: NotifyDatagram, _ run: Run, _ facts: ServiceFacts, _ held: inout [Int32], _ pinged: inout Bool
  ) {
    switch datagram {
    case .unusable(let what): dropped(what, run, facts)
    case .text(let bytes, let pid, let uid):
      guard isHeard(pid, uid, run, facts) else {
        return dropped("a notification of pid \(pid), uid \(uid), which is none of its processes or users", run, facts)
      }
      guard !bytes.isEmpty else { return dropped("an empty notification", run, facts) }
      let message = NotifyMessage(bytes)
      for item in message.items {
        switch item {
        case .barrier:
          guard message.items == [.barrier], held.count == 1 else {
            dropped("a BARRIER=1 that is not alone with one descriptor", run, facts)
            continue
          }
          if barriers.count < Self.barriersHeld { barriers.append(held.removeLast()) }
        case .watchdogPing:
          // Several that were read at once are one sign of life.
          if !pinged { shell.post(run.service, .watchdogPinged(run.id)) }
          pinged = true
        case .status(let text):
          facts.statusText = text
          if !run.request.disabledPlugins.isEmpty, !facts.said.confirmed, confirms(text, run.service) {
            facts.said.confirmed = true
            shell.post(run.service, .pluginsConfirmed(run.id))
          }
        case .errorNumber(let number): facts.errorNumber = number
        case .store:
          if !facts.said.store {
            facts.said.store = true
            shell.log.note(.info, "\(run.request.spec.name): guardian keeps no descriptors for services (FDSTORE=1)")
          }
        case .ready: ready(run, facts)
        case .reloading, .stopping, .watchdogTrigger, .extendTimeout, .watchdog, .mainPid:
          change(item, message, run, facts)
        }
      }
    }
  }

  /// What `plugins.acknowledge` waits for.
  private func confirms(_ status: String, _ service: ServiceID) -> Bool {
    guard case .status(let wanted)? = shell.fleet.spec(of: service)?.plugins.acknowledge else { return false }
    return status.hasPrefix(wanted)
  }

  private func isHeard(_ pid: Int32, _ uid: UInt32, _ run: Run, _ facts: ServiceFacts) -> Bool {
    if uid == 0 || uid == run.request.spec.process.identity?.uid ?? geteuid() { return true }
    // A look at a process takes a while, and strangers may be many.
    guard facts.said.mayChangeSomething(SystemClocks.monotonic()) else { return false }
    return run.child?.member(pid) != nil
  }

  private func ready(_ run: Run, _ facts: ServiceFacts) {
    guard !facts.said.stopping, !facts.said.ready || facts.said.reloading else {
      facts.ignoredNotifications += 1
      return
    }
    facts.said.ready = true
    facts.said.reloading = false
    // A process that was told to write a newline, or is asked by checks, is not ready by its word here.
    shell.post(run.service, run.request.spec.ready == .notify ? .ready(run.id) : .readyAgain(run.id))
  }

  /// What may be written down.
  private func change(_ item: NotifyMessage.Item, _ message: NotifyMessage, _ run: Run, _ facts: ServiceFacts) {
    if facts.said.stopping {
      // It has announced its end already. Only how long that takes is news.
      guard case .extendTimeout = item else {
        facts.ignoredNotifications += 1
        return
      }
    }
    guard facts.said.mayChangeSomething(SystemClocks.monotonic()) else {
      return dropped("a notification, since they come too fast", run, facts)
    }
    switch item {
    case .reloading:
      facts.said.reloading = true
      shell.post(run.service, .reloading(run.id, stamp: message.stamp))
    case .stopping:
      facts.said.stopping = true
      shell.post(run.service, .leaving(run.id))
    case .watchdogTrigger: shell.post(run.service, .watchdogTriggered(run.id))
    case .extendTimeout(let time): shell.post(run.service, .timeoutExtended(run.id, time))
    case .watchdog(let time):
      let configured = run.request.spec.watchdog
      guard configured > .zero else {
        facts.ignoredNotifications += 1
        return
      }
      let range = ServiceMachine.watchdogRange(configured: configured)
      guard let time, range.contains(time) else {
        return dropped(
          "a WATCHDOG_USEC outside \(range.lowerBound.description) … \(range.upperBound.description)", run, facts)
      }
      shell.post(run.service, .watchdogSet(run.id, time))
    case .mainPid(let pid): moveMain(run, to: pid, facts)
    case .ready, .watchdogPing, .status, .errorNumber, .barrier, .store: break
    }
  }

  /// Only to a process that is proved to be in the run's set, and that is watched before its proof.
  private func moveMain(_ run: Run, to pid: Int32?, _ facts: ServiceFacts) {
    if let pid, pid == run.pid { return }
    guard let pid, pid > 1, pid != getpid(), byPid[pid] == nil, case .alive = run.stage, let child = run.child,
      let look = child.member(pid), let process = AdoptedProcess.find(pid: pid, startTicks: look.startTicks)
    else {
      return dropped("MAINPID=\(pid.map { String($0) } ?? "?"), which is no process of this service", run, facts)
    }
    if byPid[run.pid] == run.id { byPid[run.pid] = nil }
    // What it began with may still be guardian's to reap.
    if child.leader == run.pid { leaders[run.pid] = run.id }
    leaders[pid] = nil
    byPid[pid] = run.id
    run.pid = pid
    run.tracer = nil
    run.isTraced = false
    child.moveMain(to: process)
    watchEnd(of: process, run)
    shell.post(
      run.service, .mainMoved(run.id, ProcessIdentity(pid: pid, startTicks: process.startTicks)))
  }

  func watchEnd(of process: AdoptedProcess, _ run: Run) {
    run.strangersEnd = StrangersEnd(process, loop: shell.loop) { [weak self, weak run] status in
      guard let self, let run else { return }
      run.strangersEnd = nil
      _ = ended(ChildReaper.Ended(pid: process.pid, status: status), orphans: shell.orphans)
    }
  }

  private func dropped(_ what: String, _ run: Run, _ facts: ServiceFacts) {
    facts.droppedNotifications += 1
    let now = SystemClocks.monotonic()
    guard now > facts.lastDropLine + .minute else { return }
    facts.lastDropLine = now
    shell.log.note(
      .warning,
      "\(run.request.spec.name): dropped \(what)"
        + (facts.droppedNotifications > 1 ? " (\(facts.droppedNotifications) so far)" : ""))
  }

  func closeAll(_ held: inout [Int32]) {
    for descriptor in held { close(descriptor) }
    held.removeAll()
  }
}

extension ServiceFacts {
  /// For `status`.
  var wordsOfItsOwn: [String] {
    var notes: [String] = []
    if droppedNotifications > 0 { notes.append("dropped: \(counted(droppedNotifications, "unusable notification"))") }
    if ignoredNotifications > 0 {
      notes.append("\(counted(ignoredNotifications, "notification")) came at the wrong time")
    }
    if errorNumber > 0 {
      notes.append("it reports \(ErrnoText.name(errorNumber)) (\(ErrnoText.reason(errorNumber)))")
    }
    return notes
  }
}
