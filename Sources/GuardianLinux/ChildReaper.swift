import CGuardian
import Glibc
package import GuardianModel

/// Takes the dead: guardian's own children, and the orphans that come to it as PID 1 or as subreaper.
package enum ChildReaper {
  package struct Ended: Hashable, Sendable {
    package var pid: Int32
    package var status: ExitStatus
    /// Nil where somebody else has reaped it.
    package var usage: CrashReport.Usage?
    package init(pid: Int32, status: ExitStatus, usage: CrashReport.Usage? = nil) {
      self.pid = pid
      self.status = status
      self.usage = usage
    }
  }

  /// Reaps every child that has ended, at most `limit`; call again where that many came.
  ///
  /// A pid of no service is an orphan's, or that of a pending start. waitid(2).
  ///
  /// - Parameter ofThisThread: Only children that this thread has started; for tests, which share a process.
  package static func drain(limit: Int = 1024, ofThisThread: Bool = false) -> [Ended] {
    var found: [Ended] = []
    var end = guardian_end()
    while found.count < limit, guardian_peek_any(ofThisThread ? 1 : 0, &end) == 1 {
      let pid = end.pid
      // Somebody else's thread may have been quicker; the loop then simply looks again.
      guard guardian_reap(pid, 0, &end) == 1 else { continue }
      found.append(Ended(pid: pid, status: status(end), usage: usage(end)))
    }
    return found
  }

  /// Reaps child `pid` if it has ended; nil where it lives, or is no child of ours (any more).
  package static func reap(_ pid: Int32) -> Ended? {
    var end = guardian_end()
    guard pid > 0, guardian_reap(pid, 0, &end) == 1 else { return nil }
    return Ended(pid: pid, status: status(end), usage: usage(end))
  }

  private static func usage(_ end: guardian_end) -> CrashReport.Usage {
    // A child begins in guardian's own memory, and the kernel counts that as the child's: only what is more is its own.
    var own = rusage()
    getrusage(RUSAGE_SELF.rawValue, &own)
    return CrashReport.Usage(
      user: .milliseconds(end.user_us / 1000),
      system: .milliseconds(end.system_us / 1000),
      peakMemory: end.peak_kib > own.ru_maxrss ? UInt64(clamping: end.peak_kib) << 10 : nil)
  }

  private static func status(_ end: guardian_end) -> ExitStatus {
    if end.code == Int32(CLD_EXITED) { return .code(end.status) }
    guard let signal = Signal(number: end.status) else { return .unseen }
    return .signal(signal, core: end.code == Int32(CLD_DUMPED))
  }
}

/// A descriptor and signals for a process that is known to be the right one.
package enum ProcessHandle {
  /// pidfd_open(2). The caller proves afterwards that it is still the process it meant.
  package static func open(_ pid: Int32) throws(SystemError) -> OwnedFD {
    let raw = guardian_pidfd_open(pid)
    if raw < 0 { throw SystemError("open a handle for", "process \(pid)", errno: -raw) }
    return OwnedFD(adopting: raw)
  }

  /// True where the process is there, false where it is gone. pidfd_send_signal(2).
  @discardableResult
  package static func signal(_ pidfd: Int32, _ signal: Signal) throws(SystemError) -> Bool {
    let answer = guardian_pidfd_signal(pidfd, signal.number)
    if answer == 0 { return true }
    if answer == -ESRCH { return false }
    throw SystemError("send SIG\(signal)", errno: -answer)
  }
}

/// What others may do to this very process.
package enum OwnProcess {
  /// Nobody but root can read or trace it from here on. prctl(2), PR_SET_DUMPABLE.
  package static func hideFromOthers() { guardian_hide_process() }
}

/// Makes guardian the parent of its services' orphans, so that none is lost.
package enum Subreaper {
  /// Set, and read back. prctl(2).
  package static func enable() throws(SystemError) {
    let answer = guardian_become_subreaper()
    if answer < 0 { throw SystemError("become a subreaper", errno: -answer) }
    if guardian_is_subreaper() != 1 { throw SystemError("become a subreaper", errno: EPERM) }
  }
}

/// The host's count of processes killed for want of memory.
package struct OOMCounter: ~Copyable {
  private let table: OwnedFD?

  /// Keeps /proc/vmstat open, so that counting needs no descriptor when there are none left.
  package init() {
    let raw = open("/proc/vmstat", O_RDONLY | O_CLOEXEC)
    table = raw < 0 ? nil : OwnedFD(adopting: raw)
  }

  /// Nil where the kernel does not tell (before 4.13, or without /proc).
  package borrowing func read() -> UInt64? {
    guard let descriptor = table.number, lseek(descriptor, 0, SEEK_SET) == 0,
      let text = FileText.readAll(descriptor, limit: 1 << 20)
    else { return nil }
    return Self.count(in: text)
  }

  static func count(in vmstat: [UInt8]) -> UInt64? {
    FileText.number(after: "oom_kill ", in: vmstat)
  }
}
