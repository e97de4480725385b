import Glibc
import GuardianLinux
import GuardianModel

/// The programs that are running for checks, and how they ended.
final class Programs {
  let spawner: Spawner
  private var running: Set<Int32> = []
  private var ended: [Int32: ExitStatus] = [:]

  init() throws(SystemError) { spawner = try Spawner() }

  func started(_ pid: Int32) { running.insert(pid) }
  func forget(_ pid: Int32) {
    running.remove(pid)
    ended[pid] = nil
  }
  func status(of pid: Int32) -> ExitStatus? { ended[pid] }

  /// Takes whoever has ended, orphans of programs included, which come to this process.
  func reap() {
    for end in ChildReaper.drain() where running.contains(end.pid) { ended[end.pid] = end.status }
  }

  func orphans() -> Orphans { Orphans.scan { running.contains($0) && ended[$0] == nil } }
}

/// A program ends with exit status 0.
///
/// It has a session of its own; whatever it leaves behind is killed, since a check's processes do not outlive it.
final class ExecCheck: ProbeUnderWay {
  private let programs: Programs
  private let exec: ExecProbe
  private var pipe: OwnedFD?
  private var pid: Int32?
  private var handle: OwnedFD?
  private var pending: PendingSpawn?
  private var failure: String?
  private var set: ProcessSet?
  private var said: [UInt8] = []
  private var killing = false
  private static let mostSaid = 512

  init(_ exec: ExecProbe, _ programs: Programs) {
    self.exec = exec
    self.programs = programs
    var ends: [Int32] = [-1, -1]
    guard Glibc.pipe(&ends) == 0 else {
      failure = SystemError.last("make a pipe").description
      return
    }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    // The program's own end is one that blocks, as programs expect it.
    _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
    pipe = OwnedFD(adopting: ends[0])
    let writeEnd = OwnedFD(adopting: ends[1])
    var request = SpawnRequest(command: exec.command, environment: exec.environment)
    request.directory = exec.directory
    request.umask = exec.umask
    request.identity = exec.identity
    request.output = .descriptor(writeEnd.number)
    request.error = .descriptor(writeEnd.number)
    switch programs.spawner.spawn(request) {
    case .failed(let failure): self.failure = failure.sentence
    case .started(let child): started(child)
    case .pending(let pending):
      self.pending = pending
      pid = pending.pid
      programs.started(pending.pid)
    }
  }

  private func started(_ child: consuming Child) {
    pid = child.pid
    programs.started(child.pid)
    set = ProcessSet(leader: child.pid, run: exec.run)
    handle = child.takeHandle()
  }

  var watched: [Int32] { [handle.number, pending?.reportDescriptor, pipe.number].compactMap { $0 } }

  func look() -> ProbeResult? {
    if let failure { return .notMade(failure) }
    if let pending {
      switch pending.advance() {
      case nil: return nil
      case .failed(let failure)?:
        self.pending = nil
        if let pid { programs.forget(pid) }
        pid = nil
        self.failure = failure.sentence
        return .notMade(failure.sentence)
      case .started(let child)?:
        self.pending = nil
        started(child)
      case .pending?: return nil
      }
    }
    hear()
    guard let pid, let status = programs.status(of: pid) else { return nil }
    hear()
    let words = oneLine(said)
    switch status {
    case .code(0): return .passed(words.isEmpty ? "exit 0" : words)
    case .code(let code): return .failed("exit \(code)" + (words.isEmpty ? "" : ": \(words)"))
    case .signal(let signal, _): return .failed("SIG\(signal)" + (words.isEmpty ? "" : ": \(words)"))
    case .unseen: return .notMade("its end was not seen")
    }
  }

  /// Whatever it says is taken, and only the beginning kept; a bounded amount at a time.
  private func hear() {
    guard let number = pipe.number else { return }
    var bytes = [UInt8](repeating: 0, count: 16_384)
    for _ in 0..<4 {
      let got = read(number, &bytes, bytes.count)
      if got > 0 {
        said += bytes.prefix(min(got, max(0, Self.mostSaid - said.count)))
      } else {
        if got == 0 { pipe = nil }  // nobody can say more
        return
      }
    }
  }

  /// Kills all that is left, again and again until nothing is.
  func end() {
    killing = true
    _ = isEnding
  }

  var isEnding: Bool {
    guard killing, let pid else { return false }
    let mainLives = programs.status(of: pid) == nil
    if let pending {
      pending.signal(.kill)
      if mainLives { return true }
    }
    var left = false
    // They may fork meanwhile.
    for _ in 0..<8 {
      let members = set?.members(programs.orphans(), mainLives: mainLives) ?? []
      left = !members.isEmpty
      if !left || ProcessSet.signal(members, .kill) == 0 { break }
    }
    if mainLives || left { return true }
    programs.forget(pid)
    self.pid = nil
    handle = nil
    pipe = nil
    return false
  }
}
