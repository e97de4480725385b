import Glibc
import GuardianLinux
import GuardianModel

/// A process of guardian's with all that it has brought into the world.
final class RunningChild {
  let pid: Int32
  private var handle: OwnedFD?
  private let pending: PendingSpawn?
  private let set: ProcessSet
  private var mainLives = true
  private var adopted: AdoptedProcess?
  private var isOwn = false

  init(_ child: consuming Child, run: RunID) {
    pid = child.pid
    set = ProcessSet(leader: child.pid, run: run)
    pending = nil
    handle = child.takeHandle()
  }

  /// One that has not come to its exec yet, and whose own report nobody waits for.
  init(_ pending: PendingSpawn, run: RunID) {
    pid = pending.pid
    set = ProcessSet(leader: pending.pid, run: run)
    self.pending = pending
    handle = nil
  }

  /// Guardian's own child that an earlier program of the same process started.
  init(own process: ProcessIdentity, run: RunID) {
    pid = process.pid
    set = ProcessSet(leader: process.pid, run: run)
    pending = nil
    handle = try? ProcessHandle.open(process.pid)
    isOwn = true
  }

  /// One that an earlier guardian started, and that has another parent now.
  init(_ process: AdoptedProcess, run: RunID) {
    pid = process.pid
    set = ProcessSet(leader: process.pid, run: run, adoptedStart: process.startTicks)
    pending = nil
    handle = nil
    adopted = process
  }

  /// What may be left of a run whose main process is gone.
  init(leftoversOf leader: ProcessIdentity, run: RunID) {
    pid = leader.pid
    set = ProcessSet(leader: leader.pid, run: run, adoptedStart: leader.startTicks)
    pending = nil
    handle = nil
    mainLives = false
  }

  /// How it came to its exec is told through a pipe.
  var isReporting: Bool { pending != nil }

  /// Why it did not come to its exec, where it did not. To be asked once it has ended.
  func failure() -> SpawnFailure? {
    switch pending?.advance() {
    case .failed(let failure)?: failure
    case .started?: nil
    case .pending?: nil
    case nil: nil
    }
  }

  /// To the main process. One that is gone has got it.
  func signal(_ signal: Signal) {
    if let number = handle?.number { _ = try? ProcessHandle.signal(number, signal) }
    if let number = adopted?.pidfd { _ = try? ProcessHandle.signal(number, signal) }
    // No descriptor was to be had for it; nobody else reaps it, so its number is its own as long as it has not ended.
    if handle == nil, isOwn, mainLives { kill(pid, signal.number) }
    pending?.signal(signal)
  }

  /// To everybody that is left. With KILL as often as new ones turn up, since they may fork meanwhile.
  func signalSet(_ signal: Signal, orphans: () -> Orphans) {
    for _ in 0..<(signal == .kill ? 8 : 1) {
      let members = set.members(orphans(), mainLives: mainLives)
      if members.isEmpty || ProcessSet.signal(members, signal) == 0 { break }
    }
    if mainLives { self.signal(signal) }
  }

  /// It has been reaped: from here on its pid may be another's.
  func mainEnded() {
    mainLives = false
    handle = nil
    adopted = nil
  }

  /// The main process has not ended.
  var isAlive: Bool { mainLives }

  /// The same for what was adopted, by a look that serves several.
  func remaining(in landscape: Landscape) -> Int { set.members(in: landscape).count }

  /// How many are alive besides a main process that has ended.
  func remaining(_ orphans: Orphans) -> Int { set.members(orphans, mainLives: mainLives).count }
}
