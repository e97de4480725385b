import CGuardian
import Glibc
package import GuardianModel

/// Processes that have come to guardian because their parent died, taken once and asked for several runs.
package struct Orphans: Sendable {
  /// Alive, children of guardian, and not known to the caller.
  let looks: [ProcessLook]
  package var isEmpty: Bool { looks.isEmpty }

  /// - Parameter isKnown: Whether a pid is a main process, a hook or a pending start of the caller.
  package static func scan(isKnown: (Int32) -> Bool) -> Orphans {
    take(from: ProcessTable.children(of: getpid()), isKnown)
  }

  fileprivate static func take(from listed: [Int32]?, _ isKnown: (Int32) -> Bool) -> Orphans {
    let own = getpid()
    let children = listed ?? ProcessTable.all().filter { $0.parent == own }.map(\.pid)
    return Orphans(
      looks: children.compactMap { pid in
        // Looked at again as our child: the pid may have been reaped, and used again, since the list was made.
        guard !isKnown(pid), let look = ProcessLook(pid), look.parent == own, !look.isDead else { return nil }
        return look
      })
  }
}

/// The same for a program that starts children by its main thread alone, at less cost: such a look follows every death.
///
/// The kernel lists a child with the thread that started it, and gives orphans to the first thread that lives, which is
/// the main one.
package struct OrphanWatch: ~Copyable {
  private let list: OwnedFD?

  /// To be made by the main thread.
  package init() {
    let raw = open("/proc/self/task/\(getpid())/children", O_RDONLY | O_CLOEXEC)
    list = raw < 0 ? nil : OwnedFD(adopting: raw)
  }

  package borrowing func scan(isKnown: (Int32) -> Bool) -> Orphans {
    guard let descriptor = list.number, lseek(descriptor, 0, SEEK_SET) == 0,
      let text = FileText.readAll(descriptor, limit: 16 << 20)
    else { return Orphans.scan(isKnown: isKnown) }
    return Orphans.take(from: FileText.numbers(in: text), isKnown)
  }
}

/// The processes of one run: its main process and all that it has brought into the world, as far as that can be proven.
///
/// Proof is one of: descent from the main process, or an orphan of guardian's that is in the run's session or carries
/// the run's INVOCATION_ID in its environment, and descent from such. A process that leaves the session, loses its
/// parents and wipes its environment is not found; only a control group holds such a one.
package struct ProcessSet: Hashable, Sendable {
  /// The main process's pid, which is also its session and its process group.
  package let leader: Int32
  package let run: RunID
  /// Clock ticks since boot at which the main process of an adopted run started; nil for a run that we started.
  package let adoptedStart: UInt64?

  package init(leader: Int32, run: RunID) {
    self.leader = leader
    self.run = run
    adoptedStart = nil
  }

  /// The set of a run that an earlier guardian started. Its orphans have gone elsewhere, so to descend from guardian proves
  /// nothing, and all of /proc is looked at. A member is
  ///
  /// * the main process, by pid and start;
  /// * what carries the run's INVOCATION_ID;
  /// * what is in the run's session or group, as long as the main process has not been reaped, or somebody who carries
  ///   the run's INVOCATION_ID is in it: otherwise its number may be another's by now;
  /// * what descends from these;
  ///
  /// and it is not older than the main process. Guardian itself and those above it never are.
  package init(leader: Int32, run: RunID, adoptedStart: UInt64) {
    self.leader = leader
    self.run = run
    self.adoptedStart = adoptedStart
  }

  /// A process as it was seen; the pid alone may be another's by the time it is used.
  package struct Member: Hashable, Sendable {
    package let pid: Int32
    let startTicks: UInt64
    init(_ look: ProcessLook) {
      pid = look.pid
      startTicks = look.startTicks
    }
  }

  /// No more processes of a set are looked at in one go; who signals them looks again afterwards anyway.
  static let bound = 65536

  /// Whether nothing is left of the run once its main process has been reaped, without a look at other processes. False
  /// says nothing: look at `members`.
  package func isSurelyEmpty(_ orphans: Orphans) -> Bool {
    adoptedStart == nil && orphans.isEmpty && kill(-leader, 0) != 0 && errno == ESRCH
  }

  /// Everything alive of the run. Zombies do not count.
  ///
  /// - Parameter mainLives: The main process has not been reaped yet, so its pid is surely its own.
  package func members(_ orphans: Orphans, mainLives: Bool) -> [Member] {
    if adoptedStart != nil { return members(in: .take()) }
    if !mainLives && isSurelyEmpty(orphans) { return [] }
    var roots: [ProcessLook] = []
    if mainLives, let main = ProcessLook(leader) { roots.append(main) }
    roots += orphans.looks.filter { isProven($0) }
    var found = Self.withDescendants(roots)
    if found.isEmpty {
      // The kernel knows a group of this number and we see nobody: somebody came between two looks.
      if !mainLives && kill(-leader, 0) != 0 && errno == ESRCH { return [] }
      found = Self.withDescendants(ProcessTable.all().filter { $0.session == leader && isOurs($0) })
    }
    return found.filter { !$0.isDead }.map { Member($0) }
  }

  /// `pid`, if it is alive and can be proved to be of this run without a look at all other processes: it, or one of those
  /// it descends from, is the main process, is in that one's session or group while that one lives, or carries the run's
  /// INVOCATION_ID.
  ///
  /// - Parameter leaderLives: The leader has not been reaped, so that its number, session and group are surely its own.
  package func member(_ pid: Int32, leaderLives: Bool) -> ProcessLook? {
    let own = getpid()
    guard pid > 1, let first = ProcessLook(pid), !first.isDead else { return nil }
    var next = first
    // Bounded, as a chain of parents can change while it is walked.
    for _ in 0..<64 where next.pid > 1 && next.pid != own {
      let sure = leaderLives && (adoptedStart.map { next.startTicks >= $0 } ?? true)
      if sure, next.pid == leader || next.session == leader || next.group == leader { return first }
      if carriesInvocation(next.pid) { return first }
      guard let parent = ProcessLook(next.parent) else { return nil }
      next = parent
    }
    return nil
  }

  /// Everything alive of an adopted run, by one look that serves several. Empty for a run that is not adopted.
  package func members(in landscape: Landscape) -> [Member] {
    guard let adoptedStart else { return [] }
    // Thousands of runs may ask one after the other: nobody looks at all processes here.
    let isCandidate = { (look: ProcessLook) in
      look.startTicks >= adoptedStart && !landscape.excluded.contains(look.pid)
    }
    // The main process leads its session.
    var roots = landscape.members(session: leader).filter {
      $0.pid == leader && $0.startTicks == adoptedStart && isCandidate($0)
    }
    roots += landscape.carriers(of: run).filter { $0.pid != leader && isCandidate($0) }
    // Looked at again after the others: as long as a number is taken, it has been the same session all the time.
    let holds = { (look: ProcessLook) in
      guard let again = ProcessLook(look.pid), again.startTicks == look.startTicks else { return false }
      return again.session == look.session && again.group == look.group
    }
    let holders = roots.filter { $0.session == leader || $0.group == leader }
    let session = holders.contains { $0.session == leader && holds($0) }
    let group = holders.contains { $0.group == leader && holds($0) }
    var known = Set(roots.map(\.pid))
    roots += landscape.members(session: session ? leader : nil, group: group ? leader : nil).filter {
      isCandidate($0) && known.insert($0.pid).inserted
    }
    return landscape.withDescendants(roots).filter { !$0.isDead }.map { Member($0) }
  }

  /// Kills adopted sets, and waits until nothing of them lives or `patience` is over. Blocks: for guardian's own start.
  /// - Returns: how many processes were killed.
  package static func end(_ sets: [ProcessSet], patience: Duration) -> Int {
    var ended = Set<Member>()
    let deadline = SystemClocks.monotonic() + patience
    while true {
      let landscape = Landscape.take()
      let members = sets.flatMap { $0.members(in: landscape) }
      if members.isEmpty { return ended.count }
      signal(members, .kill)
      ended.formUnion(members)
      guard SystemClocks.monotonic() < deadline else { return ended.count }
      usleep(5000)
    }
  }

  /// The session's number stays taken as long as anybody is in it, so it names this run's session and no other.
  private func isProven(_ look: ProcessLook) -> Bool {
    look.session == leader || look.group == leader || carriesInvocation(look.pid)
  }

  private func isOurs(_ look: ProcessLook) -> Bool {
    // By descent from guardian; bounded, as a chain of parents can change while it is walked.
    let own = getpid()
    var next = look.parent
    for _ in 0..<256 {
      if next == own { return true }
      guard next > 1, let parent = ProcessLook(next) else { return false }
      next = parent.parent
    }
    return false
  }

  private func carriesInvocation(_ pid: Int32) -> Bool {
    ProcessTable.invocation(of: pid) == run
  }

  /// Breadth first, parents before children.
  private static func withDescendants(_ roots: [ProcessLook]) -> [ProcessLook] {
    var found = roots
    var seen = Set(roots.map(\.pid))
    var next = 0
    while next < found.count, found.count < bound {
      let parent = found[next]
      next += 1
      for pid in ProcessTable.children(of: parent.pid) ?? [] where !seen.contains(pid) {
        // The list may be that of a later process with the parent's number; the child must still name the parent.
        guard let look = ProcessLook(pid), look.parent == parent.pid, look.startTicks >= parent.startTicks else {
          continue
        }
        seen.insert(pid)
        found.append(look)
      }
    }
    return found
  }

  /// Sends `signal` to each member that is still the process it was when seen.
  ///
  /// - Returns: How many have got it.
  /// - Source: pidfd_open(2), pidfd_send_signal(2).
  @discardableResult
  package static func signal(_ members: [Member], _ signal: Signal) -> Int {
    members.count { member in
      let raw = guardian_pidfd_open(member.pid)
      if raw < 0 { return false }
      let handle = OwnedFD(adopting: raw)
      // The handle holds whoever has the number now; only a second look proves that it is the one that was meant.
      guard let look = ProcessLook(member.pid), look.startTicks == member.startTicks else { return false }
      return guardian_pidfd_signal(handle.number, signal.number) == 0
    }
  }
}
