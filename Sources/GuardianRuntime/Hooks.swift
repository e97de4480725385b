import Glibc
import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel

/// The programs that guardian runs for a purpose: repairs and what comes before a start, whose end the service waits
/// for, and notices, which nobody waits for.
final class HookTable {
  final class Hook {
    let request: HookRequest
    let service: ServiceID
    /// Nil: the environment files are being read.
    var child: RunningChild?
    var strangersEnd: StrangersEnd?
    /// For notices and drills only: the machine keeps the time of repairs.
    var deadline: Instant?
    /// Its service knows nothing of it.
    var isDrill = false
    var timedOut = false
    init(_ request: HookRequest, _ service: ServiceID) {
      self.request = request
      self.service = service
    }
    var isNotice: Bool { if case .notice = request.purpose { true } else { false } }
    /// It may run beside its service, which does not wait for it.
    var isDetached: Bool { isNotice || isDrill }
  }

  unowned let shell: Shell
  private var hooks: [RunID: Hook] = [:]
  private var byPid: [Int32: RunID] = [:]
  private var waiting: [(HookRequest, ServiceID, ServiceSpec)] = []
  private var running = 0
  private var timer: EventSource?
  private(set) var droppedNotices = 0

  /// A burst of crashes must not become a burst of mailers.
  private static let noticesAtOnce = 16
  private static let noticesWaiting = 256
  private static let noticeTimeout = Duration.seconds(60)
  /// From TERM to KILL.
  private static let noticeGrace = Duration.seconds(5)

  init(_ shell: Shell) throws(SystemError) {
    self.shell = shell
    timer = try shell.loop.timer(.monotonic, priority: .time) { [unowned self] in endLate() }
  }

  var isEmpty: Bool { hooks.isEmpty }
  /// Something is kept in memory alone that another program of guardian would not know of.
  var cannotMove: Bool { !waiting.isEmpty || hooks.values.contains { ($0.child?.isReporting ?? true) || $0.isDrill } }
  var all: some Sequence<Hook> { hooks.values }
  func isHook(_ pid: Int32) -> Bool { byPid[pid] != nil }

  /// `pid` is of a repair of that service, or of what runs before its start: the service waits for its end, so it must
  /// not wait for the service.
  func isAwaited(_ pid: Int32, by service: ServiceID) -> Bool {
    hooks.values.contains { $0.service == service && !$0.isDetached && $0.child?.member(pid) != nil }
  }

  func run(_ request: HookRequest, for service: ServiceID, spec: ServiceSpec?) {
    guard let spec else { return shell.post(service, .hookEnded(request.id, .aborted)) }
    let hook = Hook(request, service)
    hooks[request.id] = hook
    let files = request.purpose == .beforeStart ? spec.process.environmentFiles : []
    guard !files.isEmpty else { return launch(hook, spec, []) }
    let accepted = shell.worker.submit({ EnvironmentFileReader.read(files) }) { [weak self] result in
      guard let self, hooks[request.id] === hook else { return }
      switch result {
      case .success(let variables): launch(hook, spec, variables)
      case .failure(let failure): end(hook, .notStarted(failure))
      }
    }
    if !accepted { end(hook, .notStarted(.slowDisk)) }
  }

  private func launch(_ hook: Hook, _ spec: ServiceSpec, _ fileEnvironment: [EnvironmentVariable]) {
    if let failure = start(hook, spec, fileEnvironment) { end(hook, .notStarted(failure)) }
  }

  /// One that has no process.
  private func end(_ hook: Hook, _ result: HookResult) {
    hooks[hook.request.id] = nil
    if hook.isDrill { return tellDrill(hook, result) }
    shell.post(hook.service, .hookEnded(hook.request.id, result))
  }

  /// A repair of a drill: run as the service's own would be, and told to the drill alone.
  func drill(_ request: HookRequest, for service: ServiceID, spec: ServiceSpec) {
    let hook = Hook(request, service)
    hook.isDrill = true
    hook.deadline = SystemClocks.monotonic() + request.timeout
    hooks[request.id] = hook
    launch(hook, spec, [])
    armTimer()
  }

  /// Nobody waits for it any more.
  func endDrill(_ id: RunID) {
    guard let hook = hooks[id], hook.isDrill else { return }
    guard hook.child != nil else { return end(hook, .aborted) }
    hook.deadline = SystemClocks.monotonic()
    endLate()
  }

  /// Not from inside of whatever began it.
  private func tellDrill(_ hook: Hook, _ result: HookResult) {
    shell.drills.ended(hook.request.id, of: hook.service, hook.timedOut ? .timedOut : result)
  }

  /// One that an earlier guardian started.
  func enter(_ request: HookRequest, _ service: ServiceID, _ child: RunningChild) -> Hook {
    let hook = Hook(request, service)
    hook.child = child
    hooks[request.id] = hook
    byPid[child.pid] = request.id
    return hook
  }

  func notify(_ request: HookRequest, for service: ServiceID, spec: ServiceSpec?) {
    // Without a definition there is no telling as whom it may run.
    guard let spec else { return }
    guard running < Self.noticesAtOnce else {
      if waiting.count < Self.noticesWaiting {
        waiting.append((request, service, spec))
      } else {
        droppedNotices += 1
        if droppedNotices == 1 { shell.log.note(.warning, "notices are dropped: \(Self.noticesWaiting) wait already") }
      }
      return
    }
    let hook = Hook(request, service)
    let now = SystemClocks.monotonic()
    hook.deadline = now + Self.noticeTimeout
    if let failure = start(hook, spec) {
      return shell.log.note(.warning, "\(request.context.service): notice \(request.purpose.name): \(failure.sentence)")
    }
    hooks[request.id] = hook
    running += 1
    armTimer()
  }

  func signal(_ id: RunID, _ signal: Signal) {
    guard let hook = hooks[id] else { return }
    guard let child = hook.child else { return end(hook, .aborted) }
    child.signalSet(signal, orphans: shell.orphans)
  }

  /// - Returns: False if the process is no hook.
  func ended(_ end: ChildReaper.Ended, orphans: () -> Orphans) -> Bool {
    guard let id = byPid.removeValue(forKey: end.pid), let hook = hooks.removeValue(forKey: id) else { return false }
    // A hook's children do not outlive it.
    hook.child?.mainEnded()
    defer { shell.outputTable.ended(id) }
    if let group = hook.child?.group {
      if group.isPopulated { hook.child?.signalSet(.kill, orphans: shell.orphans) }
      shell.groups?.discard(group.name)
    } else if hook.child?.remaining(orphans).count ?? 0 > 0 {
      hook.child?.signalSet(.kill, orphans: shell.orphans)
    }
    let result: HookResult =
      if let failure = hook.child?.failure() {
        .notStarted(failure)
      } else {
        switch end.status {
        case .code(0): .succeeded
        case .code(125) where hook.request.purpose != .beforeStart: .cannotRepair
        case .code, .signal, .unseen: .failed(end.status)
        }
      }
    if hook.isNotice {
      running -= 1
      if result != .succeeded {
        shell.log.note(
          .warning, "\(hook.request.context.service): notice \(hook.request.purpose.name) \(result.description)")
      }
      if !waiting.isEmpty {
        let (request, service, spec) = waiting.removeFirst()
        notify(request, for: service, spec: spec)
      }
    } else {
      if hook.isDrill { tellDrill(hook, result) } else { shell.post(hook.service, .hookEnded(id, result)) }
      if case .restore = hook.request.kind { shell.changes.look([hook.service]) }
    }
    return true
  }

  /// Guardian goes down: nobody waits for what is left.
  func endAll(_ signal: Signal) {
    waiting = []
    for hook in hooks.values {
      if let child = hook.child { child.signalSet(signal, orphans: shell.orphans) } else { end(hook, .aborted) }
    }
  }

  private func endLate() {
    let now = SystemClocks.monotonic()
    for hook in hooks.values {
      guard let deadline = hook.deadline, now >= deadline else { continue }
      hook.timedOut = true
      hook.child?.signalSet(now >= deadline + Self.noticeGrace ? .kill : .term, orphans: shell.orphans)
    }
    armTimer()
  }

  private func armTimer() {
    let now = SystemClocks.monotonic()
    let next = hooks.values.compactMap(\.deadline).map { deadline in
      // After TERM the next look is when its patience ends.
      now < deadline ? deadline : max(deadline + Self.noticeGrace, now + .seconds(1))
    }
    if let first = next.min() { timer?.arm(at: first.nanoseconds) } else { timer?.disarm() }
  }

  /// Nil: it runs.
  private func start(
    _ hook: Hook, _ spec: ServiceSpec, _ fileEnvironment: [EnvironmentVariable] = []
  ) -> SpawnFailure? {
    let request = hook.request
    let identity: Identity?
    var spawn: SpawnRequest
    switch request.kind {
    case .run(let command):
      identity = request.identity ?? spec.process.identity
      spawn = SpawnRequest(command: command)
    case .moveAside(let path):
      identity = request.identity
      // The link names this very program, also after its file has been replaced.
      spawn = SpawnRequest(command: ["/proc/self/exe", "--move-aside", path])
    case .restore(let files):
      identity = request.identity
      let copies = shell.changes.copies(of: request.context.service)
      spawn = SpawnRequest(
        command: ["/proc/self/exe", "--restore", copies.directory] + files.flatMap { ["--file", $0] })
    }
    var environment = ChildEnvironment(user: identity ?? shell.ownIdentity, language: shell.language)
    spawn.nice = shell.surroundings.nice
    spawn.oomScoreAdjust = shell.surroundings.oomScoreAdjust
    if request.purpose == .beforeStart {
      // It prepares what the service will find, so it finds what the service finds.
      let process = spec.process
      environment.add(fileEnvironment)
      environment.add(process.environment)
      spawn.directory = process.directory
      spawn.umask = process.umask
      spawn.limits = process.limits
      spawn.capabilities = process.capabilities
      spawn.nice = process.nice ?? spawn.nice
      spawn.oomScoreAdjust = process.oomScoreAdjust ?? spawn.oomScoreAdjust
    }
    environment.describe(request)
    if hook.isDrill { environment["GUARDIAN_DRILL"] = "1" }
    spawn.identity = identity
    spawn.softOpenFiles = shell.softOpenFiles

    // What a hook has to say is evidence, also where nobody wants the service's own words.
    let output: Shell.Output
    do throws(SystemError) {
      output = try shell.output(
        spec.log == .none ? .automatic : spec.log, of: request.context.service, request.id, owner: identity?.uid)
    } catch {
      return SpawnFailure(preparing: error)
    }
    defer {
      if let number = output.stream { close(number) }
      // What was started has its own by then, and what was not has nothing to say.
      shell.outputTable.begun(request.id)
      if hook.child == nil { shell.outputTable.ended(request.id) }
    }
    if let number = output.stream { environment["JOURNAL_STREAM"] = Journal.streamName(of: number) }
    spawn.output = output.target
    spawn.error = output.target
    spawn.keepsSIGPIPEIgnored = output.needsSIGPIPEIgnored
    spawn.environment = environment.strings
    // A notice may run beside its service, whose mark it must not take.
    if !hook.isDetached { spawn.mark = shell.births?.place(of: hook.service, for: request.id) }

    do throws(SystemError) {
      let input = try crashInput(request, report: hook.isDrill ? [] : shell.evidence.body(of: hook.service))
      spawn.input = .descriptor(input.number)
      var group: RunGroup?
      var place: OwnedFD?
      do throws(SystemError) {
        group = try shell.groups?.hook(request.id)
        if let group { place = try group.groups.open(group.name) }
      } catch {
        try shell.doWithoutGroups(error)
        group = nil
      }
      spawn.group = place.number
      defer { _ = place.take() }
      switch shell.spawner.spawn(spawn) {
      case .failed(let failure):
        if let group { shell.groups?.discard(group.name) }
        return failure
      case .started(let child):
        let pid = child.pid
        byPid[pid] = request.id
        hook.child = RunningChild(child, run: request.id)
        hook.child?.group = group
        tellPid(hook)
      case .pending(let pending):
        let pid = pending.pid
        byPid[pid] = request.id
        hook.child = RunningChild(pending, run: request.id)
        hook.child?.group = group
        tellPid(hook)
      }
      return nil
    } catch {
      return SpawnFailure(preparing: error)
    }
  }
}

extension HookTable {
  /// Of a repair, whose end a later guardian would have to learn.
  private func tellPid(_ hook: Hook) {
    guard !hook.isDetached, let pid = hook.child?.pid else { return }
    shell.post(hook.service, .hookStarted(hook.request.id, pid: pid, startTicks: ProcessLook(pid)?.startTicks ?? 0))
  }
}

/// The crash to be read from the beginning: a file in memory, which holds a whole report. Where the kernel makes none, a
/// pipe, which holds 64 KiB and so goes without the report.
private func crashInput(_ request: HookRequest, report: [UInt8]) throws(SystemError) -> OwnedFD {
  do throws(SystemError) {
    return try ReExec.memoryFile("crash", crashJSON(request, report: report))
  } catch {
    let pipe = try makePipe()
    let readEnd = OwnedFD(adopting: pipe.read), writeEnd = OwnedFD(adopting: pipe.write)
    // The reader expects a descriptor that blocks; the writer must not.
    _ = fcntl(readEnd.number, F_SETFL, 0)
    _ = fcntl(writeEnd.number, F_SETFL, O_NONBLOCK)
    writeAll(crashJSON(request), to: writeEnd.number)
    return readEnd
  }
}

/// The crash as a hook finds it on standard input: one object and a newline.
///
/// - Parameter report: The whole report of that crash, as `guardianctl crashes export` prints it; empty: there is none.
func crashJSON(_ request: HookRequest, report: [UInt8] = []) -> [UInt8] {
  let context = request.context
  var json = JSONWriter()
  json.beginObject()
  json.key("schema")
  json.integer(1)
  json.key("service")
  json.string(context.service.text)
  json.key("hook")
  json.string(request.purpose.name)
  json.key("id")
  json.string(request.id.description)
  json.key("step")
  json.string(context.step.rawValue)
  json.key("attempt")
  json.integer(context.attempt)
  json.key("strikes")
  json.integer(context.strikes)
  json.key("strikes_allowed")
  json.integer(context.strikesAllowed)
  json.key("disabled_plugins")
  json.strings(context.disabledPlugins)
  json.key("reason")
  json.string(printable(context.reason, atMost: 4096))
  if case .notice = request.purpose {
    json.key("suppressed")
    json.integer(context.suppressed)
  }
  json.key("end")
  if let end = context.end {
    json.beginObject()
    json.key("run")
    json.string(end.run.description)
    json.key("cause")
    json.string(end.cause.name)
    json.key("class")
    json.string(end.crashClass.rawValue)
    json.key("code")
    if case .code(let code) = end.status { json.integer(code) } else { json.null() }
    json.key("signal")
    if case .signal(let signal, _) = end.status { json.string(signal.description) } else { json.null() }
    json.key("core")
    if case .signal(_, let core) = end.status { json.bool(core) } else { json.bool(false) }
    json.key("at")
    json.time(end.at)
    json.key("uptime_ms")
    json.integer(end.uptime.milliseconds)
    json.key("leftovers")
    json.integer(end.leftovers)
    json.key("text")
    json.string(printable(end.description, atMost: 1024))
    json.endObject()
  } else {
    json.null()
  }
  json.key("report")
  if report.isEmpty { json.null() } else { json.verbatim(report) }
  json.endObject()
  return json.bytes + [UInt8(ascii: "\n")]
}
