import GuardianControl
import Glibc

/// What services take, as this machine's kernel tells anybody who asks.
///
/// A service with a control group of its own is all that is in it. Of others those processes are counted that are in the
/// session of the main process: what has left it, and what has ended without being waited for, is not.
struct UsageMeter {
  private struct Sample {
    var pid: Int32
    /// Microseconds of processor time.
    var used: Int64
    var at: Int64
  }
  private var last: [String: Sample] = [:]
  private let mount = UsageMeter.findMount()
  private let tick = max(1, Int64(sysconf(Int32(_SC_CLK_TCK))))
  private let page = max(1, Int64(sysconf(Int32(_SC_PAGESIZE))))

  init() {}

  /// - Parameter now: Microseconds of the monotonic clock.
  mutating func measure(_ services: [(name: String, pid: Int32)], now: Int64) -> [String: Usage] {
    var result: [String: Usage] = [:]
    var samples: [String: Sample] = [:]
    var sessions: [Int32: (used: Int64, memory: Int64)]?
    for (name, pid) in services {
      var usage = Usage()
      var used: Int64?
      if let group = ownGroup(name, pid) {
        used = Self.number(in: Self.text(group + "/cpu.stat"), behind: "usage_usec ")
        usage.memory = Self.text(group + "/memory.current").flatMap { Self.number(in: $0, behind: "") }
      }
      if used == nil || usage.memory == nil, let session = Self.status(of: pid)?.session {
        let all = sessions ?? countSessions()
        sessions = all
        used = used ?? all[session]?.used
        usage.memory = usage.memory ?? all[session]?.memory
      }
      if let used {
        if let before = last[name], before.pid == pid, now > before.at {
          // A process that has ended takes its time with it.
          usage.cpu = Int(clamping: max(0, used - before.used) * 1000 / (now - before.at))
        }
        samples[name] = Sample(pid: pid, used: used, at: now)
      }
      result[name] = usage
    }
    last = samples
    return result
  }

  /// Where version 2 of the control groups is mounted, and what it shows of them.
  private static func findMount() -> (place: String, root: String)? {
    for line in (text("/proc/self/mountinfo", limit: 1 << 20) ?? "").split(separator: "\n")
    where line.contains(" - cgroup2 ") {
      let words = line.split(separator: " ")
      if words.count > 4 { return (String(words[4]), words[3] == "/" ? "" : String(words[3])) }
    }
    return nil
  }

  private func ownGroup(_ name: String, _ pid: Int32) -> String? {
    guard let mount, let text = Self.text("/proc/\(pid)/cgroup"),
      let line = text.split(separator: "\n").first(where: { $0.hasPrefix("0::/") })
    else { return nil }
    let path = String(line.dropFirst(3))
    let last = path.split(separator: "/").last ?? ""
    // Two are used in turn, and another's would tell of another.
    guard last == "service.\(name)" || last == "service.\(name):next", path.hasPrefix(mount.root) else { return nil }
    return mount.place + path.dropFirst(mount.root.count)
  }

  private func countSessions() -> [Int32: (used: Int64, memory: Int64)] {
    var found: [Int32: (used: Int64, memory: Int64)] = [:]
    guard let directory = opendir("/proc") else { return [:] }
    defer { closedir(directory) }
    while let entry = readdir(directory) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      guard let pid = Int32(name), let status = Self.status(of: pid) else { continue }
      let before = found[status.session] ?? (0, 0)
      found[status.session] = (
        before.used + status.ticks * 1_000_000 / tick, before.memory + status.pages * page
      )
    }
    return found
  }

  /// proc_pid_stat(5).
  private static func status(of pid: Int32) -> (session: Int32, ticks: Int64, pages: Int64)? {
    // The name in brackets may hold anything; the fields behind it cannot.
    guard let text = text("/proc/\(pid)/stat"), let bracket = text.lastIndex(of: ")") else { return nil }
    let fields = text[text.index(after: bracket)...].split(separator: " ")
    guard fields.count > 21, let session = Int32(fields[3]), let user = Int64(fields[11]),
      let system = Int64(fields[12]),
      let children = Int64(fields[13]), let childrenSystem = Int64(fields[14]), let pages = Int64(fields[21])
    else { return nil }
    return (session, user &+ system &+ children &+ childrenSystem, pages)
  }

  private static func number(in text: String?, behind word: String) -> Int64? {
    for line in (text ?? "").split(separator: "\n") where line.hasPrefix(word) {
      return Int64(line.dropFirst(word.utf8.count))
    }
    return nil
  }

  private static func text(_ path: String, limit: Int = 4096) -> String? {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 4096)
    while bytes.count < limit {
      let count = read(descriptor, &buffer, buffer.count)
      if count <= 0 { break }
      bytes += buffer[..<count]
    }
    return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
  }
}
