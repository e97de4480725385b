import Glibc

/// The limits that stop a start, with their values.
package enum Limits {
  enum Kind { case processes, openFiles }

  static func soft(_ kind: Kind) -> String {
    var limit = rlimit()
    let answer =
      switch kind {
      case .processes: getrlimit(__rlimit_resource_t(__RLIMIT_NPROC.rawValue), &limit)
      case .openFiles: getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
      }
    if answer != 0 { return "unknown" }
    return limit.rlim_cur == .max ? "unlimited" : "\(limit.rlim_cur)"
  }

  /// The limit of guardian's or of the host's that is probably reached, with its value; nil where `code` tells of none.
  package static func shortage(_ code: Int32) -> String? {
    switch code {
    case EAGAIN: processShortage()
    case EMFILE: "guardian has too many open files (RLIMIT_NOFILE is \(soft(.openFiles)))"
    case ENFILE: "the host has too many open files (fs.file-max is \(number(in: "/proc/sys/fs/file-max") ?? "unknown"))"
    case ENOMEM: "not enough memory for a process"
    case ENOBUFS: "not enough memory for a socket"
    case ENOSPC: "too many watches for the user (fs.epoll.max_user_watches, or fs.inotify.max_user_instances)"
    case EBUSY: "its control group is busy"
    default: nil
    }
  }

  /// The one word of a small file of the kernel's.
  static func number(in path: String) -> String? {
    guard let text = FileText.text(path, limit: 4096) else { return nil }
    return text.split { $0 == "\n" || $0 == " " || $0 == "\t" }.first.map(String.init)
  }

  /// EAGAIN of clone has three causes; the fullest of them is named.
  static func processShortage() -> String {
    for (group, current, limit) in cgroupTasks() where current >= limit {
      return "too many tasks in guardian's control group \(group) (pids.max \(current)/\(limit))"
    }
    if let threads = FileText.text("/proc/loadavg", limit: 4096)?.split(separator: " ").dropFirst(3).first?
      .split(separator: "/").last.flatMap({ Int($0) }),
      let most = number(in: "/proc/sys/kernel/pid_max").flatMap({ Int($0) }), threads >= most - most / 50
    {
      return "the host has too many processes (kernel.pid_max is \(most))"
    }
    if geteuid() != 0 { return "the user has too many processes (RLIMIT_NPROC is \(soft(.processes)))" }
    let most = number(in: "/proc/sys/kernel/pid_max") ?? "unknown"
    return "a limit of processes is reached (RLIMIT_NPROC \(soft(.processes)), kernel.pid_max \(most), or pids.max)"
  }

  /// Path, pids.current and pids.max of our group and those above it, by the unified hierarchy and the older one.
  private static func cgroupTasks() -> [(group: String, current: Int, limit: Int)] {
    var found: [(String, Int, Int)] = []
    for line in (FileText.text("/proc/self/cgroup") ?? "").split(separator: "\n") {
      // hierarchy:controllers:path
      let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
      guard parts.count == 3 else { continue }
      let root: String
      if parts[0] == "0", parts[1].isEmpty {
        root = "/sys/fs/cgroup/"
      } else if parts[1].split(separator: ",").contains("pids") {
        root = "/sys/fs/cgroup/pids/"
      } else {
        continue
      }
      var components = parts[2].split(separator: "/")
      while !components.isEmpty {
        let group = components.joined(separator: "/")
        if let current = number(in: root + group + "/pids.current").flatMap({ Int($0) }),
          let limit = number(in: root + group + "/pids.max").flatMap({ Int($0) })
        {
          found.append(("/" + group, current, limit))
        }
        components.removeLast()
      }
    }
    return found
  }
}
