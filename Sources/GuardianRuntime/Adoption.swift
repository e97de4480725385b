import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

// What an earlier instance of guardian left running is taken over, if it can be proved to be what the record says: the
// process id and the start time of the same boot. What cannot be proved is not touched, and counts as gone.

/// Finds what was left, for all services with one look at the machine.
struct Survivors {
  private let sweep: [RunID: ProcessLook]
  private let births: [RunID: BirthMarks.Mark]
  /// One look at the machine for all of them.
  let landscape = Landscape.take()

  /// - Parameter adoptees: Of all services. Processes of which nobody wrote down the number are looked for by the run's id,
  ///   which their environment carries.
  init(_ adoptees: [Adoptee], births: [RunID: BirthMarks.Mark]) {
    self.births = births
    var unwritten = Set(adoptees.filter { !Self.isWritten($0.process) && !$0.mainEnded }.map(\.run))
    for adoptee in adoptees where adoptee.mainEnded || !Self.lives(adoptee.process) {
      if let successor = adoptee.successor { unwritten.insert(successor) }
    }
    // A process on its way to its exec has not got its environment yet, but has left its mark.
    var sweep: [RunID: ProcessLook] = [:]
    for run in unwritten { sweep[run] = births[run]?.process() }
    unwritten.subtract(sweep.keys)
    if !unwritten.isEmpty { sweep.merge(AdoptedProcess.find(runs: unwritten, in: landscape)) { $1 } }
    self.sweep = sweep
  }

  /// A pid without its start proves nothing.
  private static func isWritten(_ process: ProcessIdentity?) -> Bool { process.map { $0.startTicks != 0 } ?? false }

  /// The process that a run began with, where nobody has written that down and it is gone by now.
  func bornAndGone(_ adoptee: Adoptee) -> ProcessIdentity? {
    guard adoptee.process == nil, let mark = births[adoptee.run] else { return nil }
    return ProcessIdentity(pid: mark.pid, startTicks: 0)
  }

  /// Its number may be another's by now.
  static func lives(_ process: ProcessIdentity?) -> Bool {
    guard let process, let look = ProcessLook(process.pid) else { return false }
    return !look.isDead && look.startTicks == process.startTicks
  }

  enum Found {
    /// Guardian's own child, as after a switch to a new program: dead or alive, it is guardian's to reap.
    case child(ProcessIdentity)
    case stranger(AdoptedProcess)
  }

  /// A start that nobody has written down.
  enum Born {
    case lives(Found)
    /// It is over already. The start of the process is not known.
    case gone(ProcessIdentity)

    func child(of run: RunID) -> RunningChild {
      switch self {
      case .lives(let found): found.child(of: run)
      case .gone(let leader): RunningChild(leftoversOf: leader, run: run)
      }
    }
  }

  /// What was started in an adoptee's place before anybody wrote that down, by its own id.
  func successor(of adoptee: Adoptee) -> (RunID, Born)? {
    guard let id = adoptee.successor else { return nil }
    if let found = sweep[id].flatMap({ Self.found($0) }) { return (id, .lives(found)) }
    return births[id].map { (id, .gone(ProcessIdentity(pid: $0.pid, startTicks: 0))) }
  }

  private static func found(_ look: ProcessLook) -> Found? {
    if look.parent == getpid() { return .child(ProcessIdentity(look)) }
    return AdoptedProcess.find(pid: look.pid, startTicks: look.startTicks).map { .stranger($0) }
  }

  /// Nil: it is gone, or was never there.
  func find(_ adoptee: Adoptee) -> Found? {
    guard let process = adoptee.process, Self.isWritten(process) else {
      return sweep[adoptee.run].flatMap { Self.found($0) }
    }
    guard let look = ProcessLook(process.pid), look.startTicks == process.startTicks else { return nil }
    return Self.found(look)
  }
}

extension Survivors.Found {
  var identity: ProcessIdentity {
    switch self {
    case .child(let identity): identity
    case .stranger(let process): ProcessIdentity(pid: process.pid, startTicks: process.startTicks)
    }
  }

  func child(of run: RunID, began: ProcessIdentity? = nil) -> RunningChild {
    switch self {
    case .child(let identity): RunningChild(own: identity, run: run, began: began)
    case .stranger(let process): RunningChild(process, run: run, began: began)
    }
  }

  /// Nil for a child, whose end is told by SIGCHLD.
  func watchEnd(_ loop: EventLoop, _ ended: @escaping (ChildReaper.Ended) -> Void) -> StrangersEnd? {
    switch self {
    case .child: nil
    case .stranger(let process):
      StrangersEnd(process, loop: loop) { ended(ChildReaper.Ended(pid: process.pid, status: $0)) }
    }
  }
}

extension ProcessIdentity {
  init(_ look: ProcessLook) { self.init(pid: look.pid, startTicks: look.startTicks) }
}

/// Waits for the end of a process that is not guardian's child, and tells how it went.
final class StrangersEnd {
  private let process: AdoptedProcess
  private var source: EventSource?
  private var timer: EventSource?
  private var tries = 0
  private let ended: (ExitStatus) -> Void
  /// How often its parent is given time to reap it: only then does the kernel tell how it went.
  private static let patience = 200
  private static let pause = Duration.milliseconds(5)
  private static let rarely = Duration.seconds(1)

  init(_ process: AdoptedProcess, loop: EventLoop, ended: @escaping (ExitStatus) -> Void) {
    self.process = process
    self.ended = ended
    timer = try? loop.timer(.monotonic, priority: .deaths) { [weak self] in self?.ask() }
    source = try? loop.onIO(process.pidfd, .read, priority: .deaths) { [weak self] _ in self?.gone() }
    // Where no more can be watched it is asked now and then: late news of an end is better than none.
    if source == nil { askLater(Self.rarely) }
  }
  deinit {
    source?.cancel()
    timer?.cancel()
  }

  private func gone() {
    source?.cancel()
    source = nil
    ask()
  }

  private func ask() {
    guard process.hasEnded else { return askLater(Self.rarely) }
    tries += 1
    if let status = process.exitStatus(patient: tries < Self.patience) { return ended(status) }
    if tries >= Self.patience { return ended(.unseen) }
    askLater(Self.pause)
  }

  private func askLater(_ time: Duration) { timer?.arm(at: (SystemClocks.monotonic() + time).nanoseconds) }
}

extension RunTable {
  /// Takes a main process over, or says that it is gone.
  func adopt(
    _ adoptee: Adoptee, _ request: StartRequest, for service: ServiceID, from survivors: Survivors,
    kept: KeptDescriptors
  ) {
    let spec = request.spec
    let run = Run(request, for: service)
    run.oomKills = oom.refreshed()
    let facts = facts(of: service)
    if let (id, born) = survivors.successor(of: adoptee) {
      alreadyBorn[id] = born
      shell.post(service, .superseded(run.id))
    }
    if adoptee.mainEnded {
      guard let leader = adoptee.leader ?? adoptee.process else {
        return shell.post(service, .emptied(run.id))
      }
      run.child = RunningChild(leftoversOf: leader, run: run.id)
      run.child?.group = shell.groups?.claim(run.id, of: spec, main: nil)
      run.stage = .draining
      enter(run)
      if run.child?.remaining(in: survivors.landscape).isEmpty ?? true { return emptied(run) }
      shell.post(
        service, .adopted(run.id, pid: leader.pid, startTicks: leader.startTicks, readinessKnown: false))
      return drain(run)
    }
    var readinessKnown = listenAgain(facts, spec, service, kept)
    if case .descriptor(let number) = spec.ready {
      run.readyPipe = kept.readyPipes.removeValue(forKey: run.id).map { OwnedFD(adopting: $0) }
      if run.readyPipe == nil, let process = adoptee.process, Survivors.lives(process),
        let again = ReadyPipe.reopen(number, of: process.pid)
      {
        // Whoever has got the number since has not got the pipe.
        run.readyPipe = OwnedFD(adopting: again)
        readinessKnown = Survivors.lives(process)
      }
      if run.readyPipe == nil { readinessKnown = false }
    }
    // Checks tell anew, whoever was away.
    if spec.ready == .check { readinessKnown = true }
    run.stream = kept.streams.removeValue(forKey: run.id).map { OwnedFD(adopting: $0) }
    facts.log = shell.logName(spec.log)
    if spec.log == .file, let process = adoptee.process { shell.outputTable.adopt(run.id, spec.name, pid: process.pid) }
    switch survivors.find(adoptee) {
    case nil:
      readNotificationsOfTheDead(service, facts, run)
      run.letGoOfReadiness()
      // It has begun, and so its end counts, though nobody saw either.
      let born = survivors.bornAndGone(adoptee)
      if let born {
        shell.post(
          service, .adopted(run.id, pid: born.pid, startTicks: born.startTicks, readinessKnown: readinessKnown))
      }
      guard let leader = adoptee.leader ?? adoptee.process ?? born else {
        shell.post(service, .ended(run.id, Death(.unseen)))
        return shell.post(service, .emptied(run.id))
      }
      endedUnseen(run, leader, survivors.landscape)
    case let found?: take(run, found, readinessKnown, began: adoptee.leader)
    }
  }

  /// The start that the machine has decided anew had come about before: it is not made twice.
  func takeForStarted(_ run: Run, _ born: Survivors.Born) {
    _ = listenAgain(facts(of: run.service), run.request.spec, run.service, .none)
    switch born {
    case .lives(let found): take(run, found, nil)
    case .gone(let leader):
      shell.post(run.service, .spawned(run.id, pid: leader.pid, executable: nil, startTicks: leader.startTicks))
      readNotificationsOfTheDead(run.service, facts(of: run.service), run)
      endedUnseen(run, leader, .take())
    }
  }

  /// Nobody saw its end; what it has left behind is its own all the same.
  private func endedUnseen(_ run: Run, _ leader: ProcessIdentity, _ landscape: Landscape) {
    run.child = RunningChild(leftoversOf: leader, run: run.id)
    run.child?.group = shell.groups?.claim(run.id, of: run.request.spec, main: nil)
    run.stage = .draining
    enter(run)
    let remaining = run.child?.remaining(in: landscape)
    shell.post(run.service, .ended(run.id, Death(.unseen, leftovers: remaining?.count ?? 0)))
    if remaining?.isEmpty ?? true { return emptied(run) }
    drain(run)
  }

  /// - Returns: Whether all that the service has said meanwhile has been kept.
  private func listenAgain(
    _ facts: ServiceFacts, _ spec: ServiceSpec, _ service: ServiceID, _ kept: KeptDescriptors
  ) -> Bool {
    guard spec.needsNotifySocket, facts.notify == nil else { return true }
    do throws(SystemError) {
      if let number = kept.notifySockets.removeValue(forKey: spec.name) {
        try listen(facts, NotifySocket(adopting: number, path: shell.directories.notifySocket(of: spec.name)), service)
        return true
      }
      try makeNotifySocket(facts, spec, service)
    } catch {
      shell.log.note(.warning, "\(spec.name): its notifications are not heard: \(error)")
    }
    return false
  }

  /// - Parameter readinessKnown: Nil where this is the outcome of a start.
  private func take(
    _ run: Run, _ found: Survivors.Found, _ readinessKnown: Bool?, began: ProcessIdentity? = nil
  ) {
    let identity = found.identity
    run.child = found.child(of: run.id, began: began)
    if let began, began != identity { leaders[began.pid] = run.id }
    run.child?.group = shell.groups?.claim(run.id, of: run.request.spec, main: identity.pid)
    run.groupOomKills = run.child?.group.flatMap { $0.groups.oomKills($0.name) }
    run.strangersEnd = found.watchEnd(shell.loop) { [weak self, weak run] end in
      guard let self, let run else { return }
      run.strangersEnd = nil
      _ = ended(end, orphans: shell.orphans)
    }
    run.pid = identity.pid
    run.stage = .alive
    enter(run)
    let (pid, ticks) = (identity.pid, identity.startTicks)
    shell.post(
      run.service,
      readinessKnown.map { .adopted(run.id, pid: pid, startTicks: ticks, readinessKnown: $0) }
        ?? .spawned(run.id, pid: pid, executable: nil, startTicks: ticks))
    watchReadiness(run)
    watchStream(run)
  }

  /// What it said while nobody listened counts, though it is gone.
  private func readNotificationsOfTheDead(_ service: ServiceID, _ facts: ServiceFacts, _ run: Run) {
    guard facts.notify != nil else { return }
    facts.run = run.id
    enter(run)
    readNotifications(service, facts, atMost: 64)
    readReadiness(run)
    drop(run)
  }
}

/// Descriptors that outlived the guardian that made them: through the service manager's store, or through the switch to a
/// new program.
final class KeptDescriptors {
  var notifySockets: [ServiceName: Int32] = [:]
  var readyPipes: [RunID: Int32] = [:]
  var streams: [RunID: Int32] = [:]
  /// Of these more than one service may want a copy.
  var sockets: [PassedSocket] = []
  static var none: KeptDescriptors { KeptDescriptors() }

  /// One that the service manager has kept for guardian, or has passed to it for a service.
  func take(_ name: String, _ number: Int32) {
    guard name.hasPrefix("notify-") else {
      sockets.append(PassedSocket(name: name, descriptor: number))
      return
    }
    if let service = ServiceName(String(name.dropFirst(7))), notifySockets[service] == nil {
      notifySockets[service] = number
    } else {
      close(number)
    }
  }

  /// Nobody has asked for these.
  func closeRest() {
    for number in [notifySockets.values.map { $0 }, readyPipes.values.map { $0 }, streams.values.map { $0 }].joined() {
      close(number)
    }
    notifySockets = [:]
    readyPipes = [:]
    streams = [:]
  }
}

extension HookTable {
  /// Takes a repair over, or says that it is gone.
  func adopt(_ adoptee: Adoptee, _ request: HookRequest, for service: ServiceID, from survivors: Survivors) {
    let found = survivors.find(adoptee)
    guard let found else { return shell.post(service, .hookEnded(adoptee.run, .failed(.unseen))) }
    let child = found.child(of: adoptee.run)
    child.group = shell.groups?.claim(adoptee.run, of: nil, main: child.pid)
    let hook = enter(request, service, child)
    let identity = found.identity
    shell.post(service, .hookAdopted(adoptee.run, pid: identity.pid, startTicks: identity.startTicks))
    hook.strangersEnd = found.watchEnd(shell.loop) { [weak self] end in
      guard let self else { return }
      _ = ended(end, orphans: shell.orphans)
    }
  }
}
