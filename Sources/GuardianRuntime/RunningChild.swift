import Glibc
import GuardianLinux
import GuardianModel

/// A process of guardian's with all that it has brought into the world.
final class RunningChild {
  /// The process that it began with.
  let leader: Int32
  private(set) var pid: Int32
  private var handle: OwnedFD?
  private let pending: PendingSpawn?
  private let set: ProcessSet
  private var mainLives = true
  /// It has not been reaped, so that its number is surely its own.
  private var leaderLives = true
  private var adopted: AdoptedProcess?
  private var isOwn = false
  /// Where it has one, that and nothing else tells who belongs to it.
  var group: RunGroup?

  init(_ child: consuming Child, run: RunID) {
    pid = child.pid
    leader = child.pid
    set = ProcessSet(leader: child.pid, run: run)
    pending = nil
    handle = child.takeHandle()
  }

  /// One that has not come to its exec yet, and whose own report nobody waits for.
  init(_ pending: PendingSpawn, run: RunID) {
    pid = pending.pid
    leader = pending.pid
    set = ProcessSet(leader: pending.pid, run: run)
    self.pending = pending
    handle = nil
  }

  /// Guardian's own child that an earlier program of the same process started.
  ///
  /// - Parameter began: The process that the run began with, where that is another one.
  init(own process: ProcessIdentity, run: RunID, began: ProcessIdentity? = nil) {
    pid = process.pid
    leader = began?.pid ?? process.pid
    leaderLives = began.map { Self.isOwn($0) } ?? true
    set = ProcessSet(leader: leader, run: run)
    pending = nil
    handle = try? ProcessHandle.open(process.pid)
    isOwn = true
  }

  /// One that an earlier guardian started, and that has another parent now.
  ///
  /// - Parameter began: As above. Where that is still guardian's own child, the set is found as that of any such run.
  init(_ process: AdoptedProcess, run: RunID, began: ProcessIdentity? = nil) {
    pid = process.pid
    leader = began?.pid ?? process.pid
    if let began, Self.isOwn(began) {
      set = ProcessSet(leader: began.pid, run: run)
    } else {
      leaderLives = began == nil
      set = ProcessSet(leader: leader, run: run, adoptedStart: began?.startTicks ?? process.startTicks)
    }
    pending = nil
    handle = nil
    adopted = process
  }

  /// What may be left of a run whose main process is gone.
  init(leftoversOf leader: ProcessIdentity, run: RunID) {
    pid = leader.pid
    self.leader = leader.pid
    leaderLives = false
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
  ///
  /// - Parameter ending: CONT follows in any case: a look may come a moment before the process is stopped. What is not to
  ///   end it wakes only who is seen to be stopped.
  func signal(_ signal: Signal, ending: Bool = true) {
    if signal != .kill, let group, group.groups.state(group.name)?.frozen ?? false { group.groups.thaw(group.name) }
    defer {
      // Who is stopped hears nothing but KILL.
      if signal != .kill, signal != .cont, mainLives, ending || ProcessLook(pid)?.isStopped ?? false { deliver(.cont) }
    }
    deliver(signal)
  }

  private func deliver(_ signal: Signal) {
    if let number = handle?.number { _ = try? ProcessHandle.signal(number, signal) }
    if let number = adopted?.pidfd { _ = try? ProcessHandle.signal(number, signal) }
    // No descriptor was to be had for it; nobody else reaps it, so its number is its own as long as it has not ended.
    if handle == nil, isOwn, mainLives { kill(pid, signal.number) }
    pending?.signal(signal)
  }

  /// To everybody that is left. With KILL as often as new ones turn up, since they may fork meanwhile.
  func signalSet(_ signal: Signal, orphans: () -> Orphans) {
    if let group {
      if signal == .kill {
        // Where the kernel refuses, each of them by itself.
        if !group.groups.kill(group.name) {
          for _ in 0..<8 where group.groups.signal(group.name, .kill) > 0 {}
        }
      } else {
        if group.groups.state(group.name)?.frozen ?? false { group.groups.thaw(group.name) }
        _ = group.groups.signal(group.name, signal)
        if signal != .cont { _ = group.groups.signal(group.name, .cont) }
      }
      // It may have left its group by itself.
      if mainLives, !group.groups.holds(group.name, pid) { self.signal(signal) }
      return
    }
    for _ in 0..<(signal == .kill ? 8 : 1) {
      let members = set.members(orphans(), mainLives: leaderLives)
      if members.isEmpty || ProcessSet.signal(members, signal) == 0 { break }
      if signal != .kill, signal != .cont { _ = ProcessSet.signal(members, .cont) }
    }
    if mainLives { self.signal(signal) }
  }

  /// It has been reaped: from here on its pid may be another's.
  func mainEnded() {
    mainLives = false
    if pid == leader { leaderLives = false }
    handle = nil
    adopted = nil
  }

  private static func isOwn(_ process: ProcessIdentity) -> Bool {
    guard let look = ProcessLook(process.pid) else { return false }
    return look.startTicks == process.startTicks && look.parent == getpid()
  }

  /// `pid` as one of the run's processes, if it can be proved to be one now.
  func member(_ pid: Int32) -> ProcessLook? {
    guard let group else { return set.member(pid, leaderLives: leaderLives) }
    guard let look = ProcessLook(pid), !look.isDead, group.groups.holds(group.name, pid),
      ProcessLook(pid)?.startTicks == look.startTicks
    else { return nil }
    return look
  }

  /// Another process of the set is the main one from now on.
  func moveMain(to process: AdoptedProcess) {
    pid = process.pid
    handle = nil
    isOwn = false
    adopted = process
  }

  /// What it began with has been reaped, and is not its main process.
  func leaderEnded() { leaderLives = false }

  /// The main process has not ended.
  var isAlive: Bool { mainLives }

  /// Who is left besides a main process that has ended.
  struct Remaining {
    /// How many are alive.
    var count: Int
    /// Nothing is left. A group says so itself, which may be a moment after the last of its processes was seen to end.
    var isEmpty: Bool
  }

  func remaining(_ orphans: () -> Orphans) -> Remaining {
    remaining { set.members(orphans(), mainLives: leaderLives).count }
  }
  /// The same for what was adopted, by a look that serves several.
  func remaining(in landscape: Landscape) -> Remaining { remaining { set.members(in: landscape).count } }

  private func remaining(withoutGroup: () -> Int) -> Remaining {
    guard let group else {
      let count = withoutGroup()
      return Remaining(count: count, isEmpty: count == 0)
    }
    guard group.isPopulated else { return Remaining(count: 0, isEmpty: true) }
    let count = group.living(but: mainLives ? nil : pid).count
    return Remaining(count: count, isEmpty: count == 0 && !group.isPopulated)
  }

  /// A few of those who are left, as they are now: for people.
  func looks(_ orphans: () -> Orphans) -> [ProcessLook] {
    let pids = group?.living(but: nil) ?? set.members(orphans(), mainLives: leaderLives).map(\.pid)
    return pids.prefix(64).compactMap { ProcessLook($0) }
  }
}
