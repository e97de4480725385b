import CGuardian
import Glibc

/// What /proc/PID/stat tells about one process.
package struct ProcessLook: Hashable, Sendable {
  package var pid: Int32
  /// As in proc(5): `R`, `S`, `D`, `T`, `Z`, …
  package var state: UInt8
  package var parent: Int32, group: Int32, session: Int32
  /// Clock ticks since boot. With the pid it names a process for the life of the machine.
  package var startTicks: UInt64

  package var isDead: Bool { state == UInt8(ascii: "Z") || state == UInt8(ascii: "X") || state == UInt8(ascii: "x") }

  /// By a signal, not by a debugger.
  package var isStopped: Bool { state == UInt8(ascii: "T") }
  /// In the kernel's hands until that is done with whatever it does: it hears no signal.
  package var isUninterruptible: Bool { state == UInt8(ascii: "D") }

  /// Nil where there is no such process, or /proc does not show it.
  package init?(_ pid: Int32) {
    guard pid > 0, let text = FileText.read("/proc/\(pid)/stat", limit: 8192) else { return nil }
    self.init(stat: text)
  }

  /// The name in brackets is the process's own choice and may hold brackets, blanks and line ends.
  init?(stat text: [UInt8]) {
    guard let open = text.firstIndex(of: UInt8(ascii: "(")), let close = text.lastIndex(of: UInt8(ascii: ")")),
      open < close, let pid = Int32(String(decoding: text[..<open].dropLast(), as: UTF8.self))
    else { return nil }
    let words = text[(close + 1)...].split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\n") }
    guard words.count > 19, let state = words[0].first else { return nil }
    func number<T: FixedWidthInteger>(_ index: Int) -> T? { T(String(decoding: words[index], as: UTF8.self)) }
    guard let parent: Int32 = number(1), let group: Int32 = number(2), let session: Int32 = number(3),
      let start: UInt64 = number(19)
    else { return nil }
    self.pid = pid
    self.state = state
    self.parent = parent
    self.group = group
    self.session = session
    startTicks = start
  }
}

/// Who is whose child, from /proc.
package enum ProcessTable {
  /// Children of all threads of `pid`; nil where the kernel does not list them (CONFIG_PROC_CHILDREN) or it is gone.
  static func children(of pid: Int32) -> [Int32]? {
    guard let threads = numbers(in: "/proc/\(pid)/task") else { return nil }
    var found: [Int32] = []
    for thread in threads {
      guard let text = FileText.read("/proc/\(pid)/task/\(thread)/children", limit: 16 << 20) else {
        if access("/proc/self/task/\(guardian_thread_id())/children", F_OK) != 0 { return nil }
        continue
      }
      found += FileText.numbers(in: text)
    }
    return found
  }

  /// Every process that /proc shows.
  static func all() -> [ProcessLook] { (numbers(in: "/proc") ?? []).compactMap { ProcessLook($0) } }

  /// Names of a directory that are numbers.
  private static func numbers(in directory: String) -> [Int32]? {
    guard let stream = opendir(directory) else { return nil }
    defer { closedir(stream) }
    var found: [Int32] = []
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if let number = Int32(name), number > 0 { found.append(number) }
    }
    return found
  }
}
