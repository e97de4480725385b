import Glibc
import GuardianLinux
import GuardianModel

/// Guardian's own control group, where the service manager that started it has delegated it: whatever is in there was
/// started by an earlier guardian that died. What is remembered is taken over; the rest is ended before anything is started.
///
/// Nothing is touched unless three things hold: the manager says that it started this very process (SYSTEMD_EXEC_PID),
/// the group carries the delegation mark, and a process is seen in the group when its handle is already open.
struct DelegatedGroup {
  private let directory: String
  private let line: String

  /// Nil unless systemd has started this process and has delegated its group to it.
  init?() {
    guard Surroundings.startedBySystemd, var own = ControlGroups.path(of: "self"), own != "/",
      !own.split(separator: "/").contains("..")
    else { return nil }
    // Guardian's own place in it.
    if own.hasSuffix("/supervisor") { own = String(own.dropLast("/supervisor".utf8.count)) }
    // The tree is mounted alone, or beside version 1.
    guard
      let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].first(where: {
        access("\($0)\(own)/cgroup.procs", R_OK) == 0
      })
    else { return nil }
    line = own
    directory = root + own
    guard isDelegated(directory) else { return nil }
  }

  /// Ends everything in the group but this process; waits at most `patience` for it to be gone.
  ///
  /// - Parameter known: What has been taken over.
  /// - Returns: How many were ended.
  func endForeigners(patience: Duration, except known: KnownProcesses) -> Int {
    var ended = Set<Int32>()
    let deadline = SystemClocks.monotonic() + patience
    while true {
      let found = members(directory, depth: 0).filter { $0 != getpid() && !known.contains($0) }
      if found.isEmpty { return ended.count }
      for pid in found {
        guard let handle = try? ProcessHandle.open(pid) else { continue }
        // Only now is it certain whom the handle holds.
        guard let place = ControlGroups.path(of: String(pid)), place == line || place.hasPrefix(line + "/") else {
          continue
        }
        if (try? ProcessHandle.signal(handle.number, .kill)) == true { ended.insert(pid) }
      }
      guard SystemClocks.monotonic() < deadline else { return ended.count }
      usleep(5000)
    }
  }

  /// Guardian's own children among them are none: nothing has been started yet.
  private func members(_ directory: String, depth: Int) -> [Int32] {
    var pids = (FileText.text("\(directory)/cgroup.procs") ?? "").split(separator: "\n").compactMap { Int32($0) }
    guard depth < 4, let handle = opendir(directory) else { return pids }
    defer { closedir(handle) }
    while let entry = readdir(handle) {
      guard entry.pointee.d_type == UInt8(DT_DIR) else { continue }
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { pids += members("\(directory)/\(name)", depth: depth + 1) }
    }
    return pids
  }
}

/// The processes of runs and hooks, as far as session, process group, environment or descent tell.
struct KnownProcesses {
  var leaders: Set<Int32> = []
  var runs: Set<String> = []
  /// Whoever is in one of these is known: those that are not have been ended already.
  var groups: ControlGroups?

  mutating func insert(_ child: RunningChild, _ run: RunID) {
    if child.isAlive { leaders.insert(child.pid) }
    insert(run)
  }

  mutating func insert(_ run: RunID) { runs.insert("INVOCATION_ID=\(run)") }

  func contains(_ pid: Int32) -> Bool {
    if groups?.name(of: pid) != nil { return true }
    var next = pid
    // Bounded, as a chain of parents can change while it is walked.
    for _ in 0..<64 {
      guard next > 1, let look = ProcessLook(next) else { return false }
      if leaders.contains(look.pid) || leaders.contains(look.session) || leaders.contains(look.group) { return true }
      if let environment = FileText.read("/proc/\(next)/environ", limit: 4 << 20),
        environment.split(separator: 0).contains(where: {
          $0.starts(with: "INVOCATION_ID=".utf8) && runs.contains(String(decoding: $0, as: UTF8.self))
        })
      {
        return true
      }
      if look.parent == getpid() { return false }
      next = look.parent
    }
    return false
  }
}
