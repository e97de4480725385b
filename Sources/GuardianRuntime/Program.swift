import Glibc
import GuardianConfig
import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel
import GuardianStore

/// The program `guardian`: arguments in, exit status out.
///
/// Exit status: 0 an orderly end · 1 could not start (another guardian is here, a directory or socket cannot be had) ·
/// 4 `--plan` of an unknown service · 64 usage · 70 the event loop failed · 78 a fault in the configuration.
package func guardianMain() -> Int32 {
  // First of all, so that an order to stop is heard even in the first millisecond.
  blockSignals()
  let options: Options
  do throws(Options.UsageFault) {
    options = try Options(Array(ProgramArguments.all.dropFirst()))
  } catch {
    complain("\(error)", next: "Try 'guardian --help'.")
    return 64
  }
  let directories = Directories(options, root: geteuid() == 0, environment: environmentVariable)
  switch options.mode {
  case .help:
    return output(Options.usage + "\n") ? 0 : 1
  case .version:
    return output("guardian \(guardianVersion)\n") ? 0 : 1
  case .check: return check(options, directories)
  case .explain: return explain(options)
  case .schema(let kind):
    let file: KnownKey.File = kind == "host" ? .host : kind == "switches" ? .switches : .service
    return output(Configuration.schema(of: file)) ? 0 : 1
  case .plan(let name): return plan(name, options.causes, directories)
  case .moveAside(let path): return told(MoveAside.perform(path))
  case .restore(let place, let files): return told(GoodCopies(directory: place).restore(files))
  case .releaseControllers: return releaseControllers()
  case .takeOverCheck: return takeOverCheck(directories)
  case .takeOver(let snapshot): return takeOver(directories, snapshot, back: options.back)
  case .run: return run(directories)
  }
}

private func blockSignals() {
  var set = sigset_t()
  sigemptyset(&set)
  // TTOU and TTIN too: a terminal that belongs to others for now is no reason to stop.
  for number in [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCHLD, SIGTTOU, SIGTTIN] { sigaddset(&set, number) }
  pthread_sigmask(SIG_BLOCK, &set, nil)
  // A client or a pipe that goes away is an error of one write, and nothing in here means anything by USR1 or USR2.
  signal(SIGPIPE, SIG_IGN)
  // As process 1 it passes these on.
  if !Process1.isHere { for number in [SIGUSR1, SIGUSR2] { signal(number, SIG_IGN) } }
}

/// What is quoted in it is somebody else's, and this may be a terminal: nothing of `text` is obeyed there.
///
/// - Parameter next: A line of its own.
private func complain(_ text: String, next: String? = nil) {
  _ = StandardError.write("guardian: \(printable(text))\n" + (next.map { $0 + "\n" } ?? ""))
}

/// False if the text did not all get out: an answer that nobody can read is none. The reason has been told.
private func output(_ text: String) -> Bool {
  var rest = Array(text.utf8)[...]
  while !rest.isEmpty {
    let written = rest.withUnsafeBytes { write(1, $0.baseAddress, $0.count) }
    if written < 0 && errno == EINTR { continue }
    guard written > 0 else {
      if errno != EPIPE { complain("cannot write the answer: \(String(cString: strerror(errno)))") }
      return false
    }
    rest = rest.dropFirst(written)
  }
  return true
}

private func check(_ options: Options, _ directories: Directories) -> Int32 {
  let loader = Surroundings.look().loader(directories.configuration)
  let check: ConfigurationCheck
  if options.words.isEmpty {
    check = ConfigurationCheck(loader.load())
  } else {
    let drafts = DraftFiles(options.words, directory: directories.configuration)
    check = ConfigurationCheck(loader.load(drafts: drafts), drafts: drafts)
  }
  let text =
    options.json
    ? check.json + "\n"
    : check.text(style: standardStyle()) { FileText.read($0, limit: Configuration.largestFile + 1) }
  let told = output(text)
  return told ? check.exitStatus : max(check.exitStatus, 1)
}

private func explain(_ options: Options) -> Int32 {
  let explanation = Explanation(options.words, style: standardStyle())
  for complaint in explanation.complaints { complain(complaint) }
  let told = output(options.json ? explanation.json + "\n" : explanation.text)
  return told ? explanation.exitStatus : max(explanation.exitStatus, 1)
}

/// How to write to this standard output.
private func standardStyle() -> Style {
  let isTerminal = isatty(STDOUT_FILENO) == 1
  var size = winsize()
  let told = isTerminal && ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0
  return Style(isTerminal: isTerminal, columns: told ? Int(size.ws_col) : nil) { name in
    environmentVariable(name).flatMap { $0.isEmpty ? nil : $0 }
  }
}

private func plan(_ text: String, _ causes: [String], _ directories: Directories) -> Int32 {
  guard causes.count <= PlanDeath.most else {
    complain("more than \(PlanDeath.most) causes")
    return 64
  }
  var deaths: [PlanDeath] = []
  for cause in causes {
    guard let death = PlanDeath(cause) else {
      complain("--cause '\(printable(cause, atMost: 100))' is none; write \(PlanDeath.form)")
      return 64
    }
    deaths.append(death)
  }
  let loaded = Surroundings.look().loader(directories.configuration).load()
  if let spec = loaded.services.first(where: { $0.name.text == text }) {
    return output(
      String(
        decoding: Reply.planObject(
          name: text, entries: Fleet.plan(spec, switches: loaded.switches.switches, deaths: deaths)),
        as: UTF8.self) + "\n")
      ? 0 : 1
  }
  if let name = ServiceName(text), let why = loaded.byService[name] {
    for diagnostic in why { complain(diagnostic.description) }
    return 78
  }
  for diagnostic in loaded.diagnostics where !loaded.listed { complain(diagnostic.description) }
  let near = nearest(to: text, in: loaded.services.map(\.name.text))
  complain("there is no service '\(text)'" + (near.map { "; did you mean '\($0)'?" } ?? ""))
  return 4
}

/// Whoever starts guardian with standard descriptors closed must not have a lock or a socket take their numbers: words
/// would be written into it, and `log: inherit` would hand it to services, who would hold the lock after guardian's end.
private func fillStandardDescriptors() {
  for number in STDIN_FILENO...STDERR_FILENO where fcntl(number, F_GETFD) < 0 {
    // The lowest free number is the one that is missing.
    _ = open("/dev/null", O_RDWR)
  }
}

/// The next program of a guardian that runs. Where it cannot, the program before it goes on.
private func takeOver(_ directories: Directories, _ descriptor: Int32, back: String?) -> Int32 {
  fillStandardDescriptors()
  let snapshot: TakeOver
  do throws(TakeOverFault) {
    guard let bytes = ReExec.contents(of: descriptor, limit: TakeOver.largest) else {
      throw TakeOverFault("the snapshot cannot be read")
    }
    snapshot = try TakeOver(decoding: bytes)
    guard snapshot.pid == getpid() else { throw TakeOverFault("the snapshot is another process's") }
  } catch {
    complain("\(error)")
    return 1
  }
  // The originals stay as they are for the program before this one, until there is no way back.
  let originals = snapshot.descriptors + [descriptor]
  let again = [snapshot.program] + snapshot.arguments + ["--take-over", String(descriptor), "--back"]
  var guarded = false
  do throws(SystemError) {
    if back == nil, let old = snapshot.oldProgram {
      try TakeOverGuard.arm(program: old, arguments: again + ["it crashed, or was not at work in time"], seconds: 10)
      guarded = true
    }
  } catch {
    complain("\(error)")
  }
  var owned = snapshot
  func goBack(_ reason: String) -> Int32 {
    complain(reason)
    guard guarded, let old = snapshot.oldProgram else { return 1 }
    TakeOverGuard.disarm()
    let error = ReExec.exec(
      path: snapshot.program, descriptor: old, arguments: again + [reason], environment: Descriptors.environment(),
      keeping: originals)
    complain("the program before this one cannot go on: \(error)")
    return 1
  }
  do throws(SystemError) {
    try owned.mapDescriptors { number throws(SystemError) in try Descriptors.duplicate(number) }
  } catch {
    return goBack("\(error)")
  }
  let failed = run(directories, from: owned, back: back) {
    if guarded { TakeOverGuard.disarm() }
    for number in originals { close(number) }
  }
  switch failed {
  case .ended(let status): return status
  case .notBegun(let reason): return goBack(reason)
  }
}

private enum Outcome {
  case ended(Int32)
  case notBegun(String)
}

private func run(_ directories: Directories) -> Int32 {
  fillStandardDescriptors()
  switch run(directories, from: nil, back: nil, begun: {}) {
  case .ended(let status): return status
  case .notBegun(let reason):
    complain(reason)
    return 1
  }
}

/// - Parameters:
///   - snapshot: From the program before this one; its descriptors are ours.
///   - back: That program was newer than this one, and failed.
///   - begun: Called before the first deed.
private func run(
  _ directories: Directories, from snapshot: TakeOver?, back: String?, begun: @escaping () -> Void
) -> Outcome {
  Heap.useOneArena()
  let log = OwnLog()
  var surroundings = Surroundings.look()
  var locks: [DirectoryLock] = []
  do {
    try prepareDirectory(directories.runtime, mode: 0o755)
    locks.append(try lock(directories.runtime, snapshot))
  } catch {
    return .notBegun("\(error)")
  }
  var state: String? = directories.state
  do {
    try prepareDirectory(directories.state, mode: 0o700)
    // Where a link has led once, something else may be the next time: what is remembered has one place.
    locks.append(try lock(directories.state, snapshot, refusingLink: true))
  } catch DirectoryLock.Failure.held(let path, let pid) {
    return .notBegun(DirectoryLock.Failure.held(path: path, pid: pid).description)
  } catch {
    // Supervision goes on without a place to remember anything.
    surroundings.warnings.append("the state directory cannot be used: \(error)")
    state = nil
  }
  do {
    try prepareNotifyDirectory(directories.notifyDirectory)
    surroundings.takeOver(snapshot?.host)
    for warning in surroundings.warnings { log.note(.warning, warning) }
    for line in Weaknesses(surroundings).lines { log.note(.notice, line) }
    // Before the first thread, so that a fault of any of them leaves its mark.
    var faults: FaultMarks?
    if let state {
      do throws(SystemError) {
        faults = try FaultMarks(directory: state, bootID: BootID.current())
        // The guard of an exchange comes first.
        if snapshot == nil { try faults?.install() }
      } catch {
        log.note(.warning, "guardian's own faults leave no mark: \(error)")
      }
    }
    // What this process was given at its start has long been taken.
    let received = snapshot == nil ? HostNotify.receivedDescriptors() : []
    // While services of an earlier guardian live, a disk that does not answer is waited for: without the records nobody
    // can tell whose they are.
    let patience: Duration = BirthMarks.someLive(in: directories.runtime) ? .minute : .seconds(5)
    let store = Store(directory: state, bootID: BootID.current(), limits: Store.Limits(loadPatience: patience))
    var remembered = store.load()
    for note in remembered.notes { log.note(.warning, note) }
    let kept = KeptDescriptors.none
    for (name, number) in received { kept.take(name, number) }
    if let snapshot { kept.take(snapshot, &remembered) }
    surroundings.sockets = Set(kept.sockets.map(\.name)).sorted()
    let shell = try Shell(
      surroundings, directories, log: log, store: store, remembered: remembered, kept: kept, faults: faults,
      takeOver: snapshot)
    shell.locks = locks
    shell.upgrade.cameBack = back
    shell.beforeFirstDeed = {
      begun()
      guard snapshot != nil else { return }
      do throws(SystemError) {
        try faults?.install()
      } catch {
        log.note(.warning, "guardian's own faults leave no mark: \(error)")
      }
    }
    return .ended(shell.run())
  } catch {
    return .notBegun("\(error)")
  }
}

/// The lock that this process has already, or a new one.
private func lock(
  _ path: String, _ snapshot: TakeOver?, refusingLink: Bool = false
) throws(DirectoryLock.Failure) -> DirectoryLock {
  guard let held = snapshot?.locks.first(where: { $0.path == path }) else {
    // Of a guardian that was killed a child may still be on its way to its exec: until it has left its mark it holds the
    // locks, and nobody is their holder by name.
    for _ in 0..<100 {
      do { return try DirectoryLock(path, refusingLink: refusingLink) } catch {
        guard case .held(_, pid: nil) = error else { throw error }
      }
      usleep(20_000)
    }
    return try DirectoryLock(path, refusingLink: refusingLink)
  }
  return try DirectoryLock(adopting: held.descriptor, path: path)
}

/// Where services may enter but not look. Sockets of an earlier guardian are replaced by those who need them; a service may
/// still talk to the others' names, and finds that nobody listens.
private func prepareNotifyDirectory(_ path: String) throws(SystemError) {
  try prepareDirectory(path, mode: 0o711)
  guard chmod(path, 0o711) == 0 else { throw SystemError.last("set the mode of \(path)") }
}

/// Guardian's own repair: its words go to the service's log, its exit status to the ladder.
private func told(_ outcome: MoveAside.Outcome) -> Int32 {
  _ = output(outcome.message + "\n")
  return outcome.exitCode
}

/// What a service manager runs when guardian is gone.
private func releaseControllers() -> Int32 {
  do throws(SystemError) {
    guard let released = try ControlGroups.releaseControllers(), !released.controllers.isEmpty else { return 0 }
    return output("\(released.controllers.joined(separator: " ")) taken out of force in \(released.group)\n") ? 0 : 1
  } catch {
    complain(error.description)
    return 1
  }
}

/// One line on standard output: `ok VERSION`, or why this program cannot take over.
private func takeOverCheck(_ directories: Directories) -> Int32 {
  guard let bytes = readSnapshot(STDIN_FILENO) else {
    _ = output("it cannot read the snapshot\n")
    return 1
  }
  switch checkTakeOver(bytes, directories) {
  case .success(let version): return output("ok \(version)\n") ? 0 : 1
  case .failure(let fault):
    _ = output("\(printable(fault.description, atMost: 512))\n")
    return 1
  }
}
