import Glibc
import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel
import GuardianStore

/// The exchange of guardian's own program for what its file holds now, within the same process.
///
/// 1. The file is run as `guardian --take-over-check` with a snapshot as its standard input. If it does not answer with
///    `ok` in time, nothing else happens.
/// 2. Nothing new is heard any more; what has been decided is done, recorded and closed.
/// 3. exec, with all that has to go on as open descriptors and one file in memory that says what they are. Children stay
///    children: who dies meanwhile waits to be reaped. Signals stay blocked, and pending.
/// 4. The new program reads the configuration, opens the store and takes up what lives. Until its first deed it is guarded:
///    should it fail, the old program is executed again from its open file, and goes on with the same snapshot. From its
///    first deed on there is no way back, since the snapshot is no longer true.
final class Upgrade {
  private unowned let shell: Shell
  private enum Stage {
    case idle
    case checking(pid: Int32)
    /// The file has answered for itself; as soon as guardian can be left, it is.
    case due(until: Instant)
  }
  private var stage = Stage.idle
  private var output: [UInt8] = []
  private var pipe: OwnedFD?
  private var pipeSource: EventSource?
  private var timer: EventSource?
  private var handle: OwnedFD?
  private var status: ExitStatus?
  private var reason: String?
  /// This is the old program again: why the new one failed.
  var cameBack: String?

  /// The path by which guardian was started, absolute.
  static let program = programPath(ProgramArguments.all.first ?? "")
  /// For the check to answer.
  private static let patience = Duration.seconds(5)
  private static let outputBound = 4096

  init(_ shell: Shell) { self.shell = shell }
  deinit { pipeSource?.cancel() }

  func isCheck(_ pid: Int32) -> Bool { if case .checking(pid) = stage { true } else { false } }

  // MARK: The check

  /// The outcome goes to all clients that wait for it: from here on a failure, from the new program a success.
  func begin() {
    guard case .idle = stage else { return }
    if shell.stopping { return fail("guardian is stopping") }
    // Its repair is nobody's whom the next program could know.
    shell.drills.abandonAll("guardian itself is being exchanged")
    do throws(SystemError) {
      let memory = try ReExec.memoryFile("guardian-take-over", shell.snapshot().encode())
      let ends = try makePipe()
      let readEnd = OwnedFD(adopting: ends.read)
      let writeEnd = OwnedFD(adopting: ends.write)
      var request = SpawnRequest(
        command: [
          Self.program, "--take-over-check", "--config", shell.directories.configuration, "--state",
          shell.directories.state, "--runtime", shell.directories.runtime, "--logs", shell.directories.logs,
        ],
        environment: Descriptors.environment())
      request.input = .descriptor(memory.number)
      request.output = .descriptor(writeEnd.number)
      request.error = .descriptor(writeEnd.number)
      request.directory = workingDirectory()
      let pid: Int32
      switch shell.spawner.spawn(request) {
      case .failed(let failure): return fail(failure.sentence)
      case .pending(let pending):
        // Its file is on a file system that may block, as guardian's own never should.
        pending.signal(.kill)
        return fail("\(Self.program) is not on a local file system")
      case .started(let child):
        pid = child.pid
        handle = child.takeHandle()
      }
      stage = .checking(pid: pid)
      output = []
      status = nil
      reason = nil
      pipe = consume readEnd
      pipeSource = try shell.loop.onIO(ends.read, .read, priority: .outcomes) { [unowned self] _ in hear() }
      timer = try shell.loop.timer(.monotonic, priority: .time) { [unowned self] in late() }
      timer?.arm(at: (SystemClocks.monotonic() + Self.patience).nanoseconds)
    } catch {
      kill()
      fail(error.description)
    }
  }

  private func hear() {
    guard let number = pipe.number else { return }
    var bytes = [UInt8](repeating: 0, count: 1024)
    let got = read(number, &bytes, bytes.count)
    if got < 0 && (errno == EAGAIN || errno == EINTR) { return }
    if got > 0 {
      output += bytes[..<got].prefix(max(0, Self.outputBound - output.count))
      return
    }
    pipeSource?.cancel()
    pipeSource = nil
    pipe = nil
    judge()
  }

  private func kill() { if let number = handle.number { _ = try? ProcessHandle.signal(number, .kill) } }

  private func late() {
    switch stage {
    case .idle: break
    case .checking:
      kill()
      reason = "it has not answered within \(Self.patience.description)"
      // Somebody else may hold the pipe.
      pipeSource?.cancel()
      pipeSource = nil
      pipe = nil
      judge()
    case .due: fail(shell.whatCannotMove ?? "guardian found no moment to be left")
    }
  }

  /// - Returns: False if the process is not the one that checks.
  func ended(_ end: ChildReaper.Ended) -> Bool {
    guard isCheck(end.pid) else { return false }
    status = end.status
    handle = nil
    judge()
    return true
  }

  /// When its last word and its end are known.
  private func judge() {
    guard pipe.number == nil, let status else { return }
    timer?.disarm()
    let lines = String(decoding: output, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: true)
    if let reason { return fail("the new program refuses: \(reason)") }
    if status == .code(0), lines.last?.hasPrefix("ok ") == true {
      stage = .due(until: SystemClocks.monotonic() + Self.patience)
      timer?.arm(at: (SystemClocks.monotonic() + Self.patience).nanoseconds)
      return
    }
    let words = lines.last.map(String.init) ?? "it said nothing, and " + Self.ending(status)
    fail("the new program refuses: \(printable(words, atMost: 512))")
  }

  private static func ending(_ status: ExitStatus) -> String {
    switch status {
    case .code(let code): "ended with exit status \(code)"
    case .signal(let signal, _): "was ended by SIG\(signal)"
    case .unseen: "ended"
    }
  }

  private func fail(_ reason: String) {
    stage = .idle
    timer = nil
    handle = nil
    shell.log.note(.warning, "no upgrade: \(reason)")
    shell.control.upgradeFailed(reason)
  }

  // MARK: The switch

  /// After a turn, when nothing is half done.
  func performIfDue() {
    guard case .due(let until) = stage else { return }
    if shell.stopping { return fail("guardian is stopping") }
    // What waits for somebody else's answer is waited for: the loop comes back with it.
    guard shell.whatCannotMove == nil else { return }
    guard shell.settle(until: until) else { return fail("what was decided could not be recorded in time") }
    perform()
  }

  private func perform() {
    var snapshot = shell.snapshot()
    shell.log.note(.notice, "guardian \(guardianVersion) hands over to \(Self.program)")
    // What is not on disk by then is in the snapshot.
    _ = shell.store.close(orderly: false, within: .seconds(2))
    let error: SystemError
    do throws(SystemError) {
      let own = try Descriptors.openOwnProgram()
      snapshot.oldProgram = own.number
      let memory = try ReExec.memoryFile("guardian-take-over", snapshot.encode())
      error = ReExec.exec(
        path: Self.program,
        arguments: [Self.program] + snapshot.arguments + ["--take-over", String(memory.number)],
        environment: Descriptors.environment(), keeping: snapshot.descriptors + [memory.number])
    } catch let failed {
      error = failed
    }
    shell.reopenStore()
    fail(error.description)
  }
}

/// As the shell finds a program by its name, made absolute: `/proc/self/exe` would name the old file for ever.
private func programPath(_ name: String) -> String {
  if name.hasPrefix("/") { return name }
  if name.contains("/") { return workingDirectory() + "/" + name }
  for directory in (environmentVariable("PATH") ?? "").split(separator: ":") where directory.hasPrefix("/") {
    let path = "\(directory)/\(name)"
    if !name.isEmpty, access(path, X_OK) == 0 { return path }
  }
  var buffer = [UInt8](repeating: 0, count: 4096)
  let length = readlink("/proc/self/exe", &buffer, buffer.count)
  return length > 0 ? String(decoding: buffer[..<length], as: UTF8.self) : name
}

// MARK: - The shell's part

extension KeptDescriptors {
  /// What the snapshot holds by service and run. Its records are newer than those of a store that could not keep up.
  func take(_ snapshot: TakeOver, _ remembered: inout Store.Loaded) {
    sockets = snapshot.sockets
    for service in snapshot.services {
      guard let name = ServiceName(service.name) else { continue }
      if let record = service.record.flatMap({ RecordCoding.decode($0) }) {
        remembered.services[name] = StoredRecord(record: record, mark: snapshot.at, sameBoot: true)
      }
      notifySockets[name] = service.notify?.descriptor
      if let run = service.run {
        readyPipes[run.id] = run.readiness
        streams[run.id] = run.journal
      }
    }
  }
}

extension Shell {
  /// Everything that the next program cannot learn from the store, the files and the kernel.
  func snapshot() -> TakeOver {
    var all = TakeOver()
    all.pid = getpid()
    all.at = SystemClocks.now()
    all.arguments = Options.withoutTakeOver(Array(ProgramArguments.all.dropFirst()))
    all.program = Upgrade.program
    all.sockets = kept.sockets
    all.locks = locks.map { TakeOver.Held(path: $0.path, descriptor: $0.descriptor) }
    let byService = Dictionary(runs.all.map { ($0.service, $0) }) { first, _ in first }
    for id in fleet.ids {
      guard let name = names[id] else { continue }
      var service = TakeOver.Service(name: name.text)
      service.record = (fleet.machine(of: id)?.record).map { RecordCoding.encode($0) }
      if let facts = runs.facts[id] {
        service.notify = facts.notify.map { TakeOver.Held(path: $0.path, descriptor: $0.descriptor) }
        service.statusText = facts.statusText
        service.log = facts.log
        service.notes = facts.notes
        service.repairs = facts.repairs
        service.repairRound = facts.repairRound
        service.droppedNotifications = facts.droppedNotifications
        service.ignoredNotifications = facts.ignoredNotifications
      }
      if let run = byService[id], run.pid > 0 {
        var carried = TakeOver.Run(id: run.id, pid: run.pid)
        carried.readiness = run.readyPipe.number
        carried.journal = run.stream.number
        carried.sentKill = run.sentKill
        carried.oomKills = run.oomKills
        if case .draining = run.stage { carried.draining = true }
        service.run = carried
      }
      all.services.append(service)
    }
    for waiting in fleet.waiting {
      guard let name = names[waiting.service] else { continue }
      let (goal, note): (TakeOver.Order.Goal, String) =
        switch waiting.goal {
        case .ready(let note): (.ready, note)
        case .stopped(let note): (.stopped, note)
        case .reloaded(let note, let after): (after > 0 ? .reloadedNext : .reloaded, note)
        case .repaired(let repaired):
          switch (repaired.failure, repaired.thenReady) {
          case (nil, false): (.repaired, repaired.note)
          case (nil, true): (.repairedReady, repaired.note)
          case (let why?, false): (.repairFailed, why)
          case (let why?, true): (.repairFailedReady, why)
          }
        case .come(.done(let note)): (.done, note)
        case .come(.failed(let reason)): (.failed, reason)
        }
      all.orders.append(
        TakeOver.Order(request: waiting.request.number, service: name.text, goal: goal, note: note))
    }
    control.handOver(into: &all)
    all.host.softOpenFiles = surroundings.softOpenFiles
    all.host.inherited = surroundings.inherited.pids
    return all
  }

  /// Nil: everything that is under way can go on under another program.
  var whatCannotMove: String? {
    if reloading { return "the configuration is being read" }
    for run in runs.all {
      switch run.stage {
      case .preparing, .pending: return "\(run.request.spec.name) is being started, and that takes its time"
      case .alive, .draining: break
      }
    }
    if evidence.isBusy { return "the evidence of a crash is being gathered" }
    if hooks.cannotMove { return "a hook is being started, or a notice waits" }
    return nil
  }

  /// Does and records what has been decided, and hears nothing new meanwhile.
  ///
  /// - Returns: False if that took longer than until `deadline`.
  func settle(until deadline: Instant) -> Bool {
    evidence.writeCounted()
    while !inbox.isEmpty || fleetTold || done < outputs.count || !answered.isEmpty || !fleet.allSaved {
      guard SystemClocks.monotonic() < deadline else { return false }
      if inbox.isEmpty, !fleetTold, done == outputs.count, answered.isEmpty {
        var watch = pollfd(fd: store.descriptor, events: Int16(POLLIN), revents: 0)
        _ = poll(&watch, 1, 50)
      }
      storeAnswered()
      turn()
    }
    return whatCannotMove == nil
  }

  /// The exchange has failed after the store was closed.
  func reopenStore() {
    storeSource?.cancel()
    // One that was refused still is.
    store = Store(
      directory: store.hasDirectory ? directories.state : nil, bootID: BootID.current(), limits: Store.Limits())
    // What it holds is what this shell has given it.
    for note in store.load().notes { log.note(.warning, note) }
    storeSource = try? loop.onIO(store.descriptor, .read, priority: .outcomes) { [unowned self] _ in storeAnswered() }
  }

  /// What the program before this one handed on, beside what lives: words, waits and clients. What nobody wants is closed.
  func takeUpRest() -> TakeOver? {
    // Of services that do not run now: the next run has the same path.
    for (name, number) in kept.notifySockets.sorted(by: { $0.key < $1.key }) {
      guard let id = fleet.id(named: name), fleet.spec(of: id)?.needsNotifySocket == true else { continue }
      kept.notifySockets[name] = nil
      let facts = runs.facts(of: id)
      let path = "\(directories.notifyDirectory)/\(name)"
      if let socket = try? NotifySocket(adopting: number, path: path) { try? runs.listen(facts, socket, id) }
    }
    kept.closeRest()
    guard let snapshot = takeOver else { return nil }
    takeOver = nil
    for service in snapshot.services {
      guard let name = ServiceName(service.name), let id = fleet.id(named: name) else { continue }
      let facts = runs.facts(of: id)
      facts.statusText = service.statusText
      if !service.log.isEmpty { facts.log = service.log }
      facts.notes = service.notes
      facts.repairs = service.repairs
      facts.repairRound = service.repairRound
      facts.droppedNotifications = service.droppedNotifications
      facts.ignoredNotifications = service.ignoredNotifications
      if let carried = service.run {
        let run = runs.all.first { $0.id == carried.id }
        run?.sentKill = carried.sentKill
        run?.oomKills = carried.oomKills
      }
    }
    for order in snapshot.orders {
      let goal: Fleet.Waiting.Goal =
        switch order.goal {
        case .ready: .ready(note: order.note)
        case .stopped: .stopped(note: order.note)
        case .reloaded: .reloaded(note: order.note, after: 0)
        case .reloadedNext: .reloaded(note: order.note, after: 1)
        case .repaired: .repaired(.init(note: order.note, thenReady: false))
        case .repairedReady: .repaired(.init(note: order.note, thenReady: true))
        case .repairFailed: .repaired(.init(note: "", thenReady: false, failure: order.note))
        case .repairFailedReady: .repaired(.init(note: "", thenReady: true, failure: order.note))
        case .done: .come(.done(note: order.note))
        case .failed: .come(.failed(reason: order.note))
        }
      guard let name = ServiceName(order.service), let id = fleet.id(named: name) else {
        outputs.append(.answer(RequestID(order.request), .failed(reason: "the service was removed")))
        continue
      }
      fleet.wait(Fleet.Waiting(request: RequestID(order.request), service: id, goal: goal))
    }
    control.take(snapshot.clients)
    fleetTold = true
    return snapshot
  }
}
