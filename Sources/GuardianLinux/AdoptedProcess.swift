import CGuardian
import Glibc
package import GuardianModel

/// Names the time between two boots of the machine.
package enum BootID {
  /// 36 characters, as in /proc/sys/kernel/random/boot_id; empty where that cannot be read, and then no two are equal.
  package static func current() -> String {
    guard let text = FileText.text("/proc/sys/kernel/random/boot_id", limit: 256) else { return "" }
    return String(text.prefix { $0 != "\n" })
  }
}

/// A process that an earlier instance of guardian started, and that is not our child.
///
/// How to see its end: watch `pidfd`. It becomes readable (EPOLLIN) when the process has died, at which time it may still
/// be a zombie; its new parent (the nearest subreaper, or the machine's first process) reaps it a moment later, and only
/// then the kernel tells how it ended, and says EPOLLHUP (6.9 and newer). So: on EPOLLIN ask `exitStatus()`; on nil watch
/// for `[]` instead (EPOLLHUP is reported unasked, and EPOLLIN would come again at once), and ask again then. Where
/// `exitStatus()` is nil after a second, nobody reaps there: ask `exitStatus(patient: false)`. Where neither the kernel
/// nor a filter knows pidfd_open, `pidfd` cannot be watched (EPERM): ask `hasEnded` now and then.
package final class AdoptedProcess {
  package let pid: Int32
  /// Clock ticks since boot.
  package let startTicks: UInt64
  private let handle: OwnedFD
  /// Where there are no pidfds the handle is a directory, which nobody can wait for.
  private let isDirectory: Bool

  private init(_ handle: consuming OwnedFD, _ look: ProcessLook) {
    isDirectory = guardian_is_proc_handle(handle.number) != 0
    self.handle = handle
    pid = look.pid
    startTicks = look.startTicks
  }

  /// The process with that pid if it started then and has not died. Same boot only: who asks has compared boot ids.
  ///
  /// Nil also where it is a zombie: nobody can learn its end any more than of one that is gone, unless it is found again
  /// with `evenDead`.
  package static func find(pid: Int32, startTicks: UInt64, evenDead: Bool = false) -> AdoptedProcess? {
    guard pid > 1, pid != getpid(), let handle = try? ProcessHandle.open(pid),
      // The handle holds whoever has the number; a look after it was made tells who that is.
      let look = ProcessLook(pid), look.startTicks == startTicks, evenDead || !look.isDead
    else { return nil }
    return AdoptedProcess(handle, look)
  }

  /// The main processes of runs whose exec was allowed and whose pids were not written down: for each of `runs` the oldest
  /// living session leader that carries it as INVOCATION_ID. One look at all of /proc. Where the main process is dead and has
  /// left a daemon behind, that daemon is found: it is the run's, though not its first.
  package static func find(runs: Set<RunID>, in landscape: Landscape = .take()) -> [RunID: ProcessLook] {
    guard !runs.isEmpty else { return [:] }
    var found: [RunID: ProcessLook] = [:]
    for look in landscape.looks where !look.isDead && look.session == look.pid && !landscape.excluded.contains(look.pid)
    {
      guard let run = landscape.invocation(of: look.pid, settled: true), runs.contains(run) else { continue }
      // A service's child may make a session of its own; it is younger.
      if let other = found[run], (other.startTicks, other.pid) <= (look.startTicks, look.pid) { continue }
      found[run] = look
    }
    return found
  }

  /// Borrowed; valid as long as this object is.
  package var pidfd: Int32 { handle.number }

  /// Died, and perhaps not reaped yet.
  package var hasEnded: Bool {
    if isDirectory {
      guard let look = ProcessLook(pid), look.startTicks == startTicks else { return true }
      return look.isDead
    }
    return events & Int16(POLLIN) != 0
  }

  /// The kernel's last news is out. Before Linux 6.9 never true.
  package var isReaped: Bool { events & Int16(POLLHUP) != 0 }

  private var events: Int16 {
    var watch = pollfd(fd: handle.number, events: Int16(POLLIN), revents: 0)
    return poll(&watch, 1, 0) == 1 ? watch.revents : 0
  }

  /// How it ended. Nil while it lives, and while it waits to be reaped; with `patient: false` such a one is `.unseen`.
  ///
  /// `.unseen` also where the kernel does not tell (before 6.15) or GUARDIAN_NO_PIDFD_INFO=1 forbids to ask.
  package func exitStatus(patient: Bool = true) -> ExitStatus? {
    guard hasEnded else { return nil }
    if Self.mayAsk {
      var status: Int32 = 0
      switch guardian_pidfd_end(handle.number, &status) {
      case 1: return Self.status(status)
      case 0: return patient ? nil : .unseen
      default: return .unseen
      }
    }
    return .unseen
  }

  /// Sends `signal` to it and to nobody else; false where it is gone. The handle proves whom it reaches.
  @discardableResult package func signal(_ signal: Signal) throws(SystemError) -> Bool {
    try ProcessHandle.signal(handle.number, signal)
  }

  private static let mayAsk = getenv("GUARDIAN_NO_PIDFD_INFO").map { String(cString: $0) } != "1"

  /// wait(2)'s status: the signal in the low seven bits, core dumped in the eighth, the exit code above.
  static func status(_ wait: Int32) -> ExitStatus {
    let number = wait & 0x7f
    if number == 0 { return .code((wait >> 8) & 0xff) }
    guard let signal = Signal(number: number) else { return .unseen }
    return .signal(signal, core: wait & 0x80 != 0)
  }
}

/// All processes as they were seen in one look, to be asked for several runs. What it tells of pids is old at once.
package final class Landscape {
  package let looks: [ProcessLook]
  /// Guardian itself and those above it: whatever their environment says, they are no part of a service.
  let excluded: Set<Int32>
  /// Of `looks`, by their indices.
  private lazy var children = index(\.parent)
  private lazy var sessions = index(\.session)
  private lazy var groups = index(\.group)
  private lazy var carriers: [RunID: [Int]] = {
    var found: [RunID: [Int]] = [:]
    for (place, look) in looks.enumerated() where !excluded.contains(look.pid) {
      if let run = invocation(of: look.pid) { found[run, default: []].append(place) }
    }
    return found
  }()
  private var invocations: [Int32: RunID?] = [:]

  private init(_ looks: [ProcessLook]) {
    self.looks = looks
    let parents = Dictionary(looks.map { ($0.pid, $0.parent) }) { first, _ in first }
    var excluded: Set<Int32> = [1]
    var next = getpid()
    // Bounded, as the table was not made at one instant and need not be a tree.
    for _ in 0..<256 where next > 0 {
      excluded.insert(next)
      next = parents[next] ?? 0
    }
    self.excluded = excluded
  }

  package static func take() -> Landscape { Landscape(ProcessTable.all()) }

  /// What INVOCATION_ID says in the environment with which `pid` was started. Nil where it is not there or not to be read.
  ///
  /// - Parameter settled: Asks again where there is nothing to be read, as in the middle of an exec.
  func invocation(of pid: Int32, settled: Bool = false) -> RunID? {
    if let known = invocations[pid] { return known }
    var run = ProcessTable.invocation(of: pid)
    if settled {
      for _ in 0..<5 where run == nil && ProcessTable.hasNoEnvironment(pid) {
        usleep(2000)
        run = ProcessTable.invocation(of: pid)
      }
    }
    invocations[pid] = .some(run)
    return run
  }

  private func index(_ key: (ProcessLook) -> Int32) -> [Int32: [Int]] {
    Dictionary(grouping: looks.indices) { key(looks[$0]) }
  }

  /// What is in the session or in the process group of that number; some of it twice.
  func members(session: Int32? = nil, group: Int32? = nil) -> [ProcessLook] {
    let found = (session.flatMap { sessions[$0] } ?? []) + (group.flatMap { groups[$0] } ?? [])
    return found.map { looks[$0] }
  }

  /// What carries `run` as its INVOCATION_ID.
  func carriers(of run: RunID) -> [ProcessLook] { (carriers[run] ?? []).map { looks[$0] } }

  /// Breadth first, parents before children, `roots` first.
  func withDescendants(_ roots: [ProcessLook]) -> [ProcessLook] {
    var found = roots
    var seen = Set(roots.map(\.pid))
    var next = 0
    while next < found.count, found.count < ProcessSet.bound {
      let parent = found[next]
      next += 1
      for index in children[parent.pid] ?? [] {
        let look = looks[index]
        guard look.startTicks >= parent.startTicks, !excluded.contains(look.pid), seen.insert(look.pid).inserted
        else { continue }
        found.append(look)
      }
    }
    return found
  }
}

extension ProcessTable {
  /// Empty, which it is also in the middle of an exec.
  static func hasNoEnvironment(_ pid: Int32) -> Bool {
    FileText.read("/proc/\(pid)/environ", limit: 1)?.isEmpty ?? false
  }

  /// Nil where the environment cannot be read, or names no invocation in guardian's form.
  static func invocation(of pid: Int32) -> RunID? {
    guard let environment = FileText.read("/proc/\(pid)/environ", limit: 4 << 20) else { return nil }
    let key = Array("INVOCATION_ID=".utf8)
    for entry in environment.split(separator: 0) where entry.starts(with: key) {
      return RunID(hexadecimal: entry.dropFirst(key.count))
    }
    return nil
  }
}
