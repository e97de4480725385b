import CGuardian
import Glibc
package import GuardianModel

/// A child on its way to its exec, in memory of its own.
///
/// It may be seen by `ChildReaper` before its report has been read; `advance()` first, then.
package final class PendingSpawn {
  package let pid: Int32
  private var pidfd: OwnedFD?
  private let report: OwnedFD
  private let executable: ExecutableLook?
  private let request: SpawnRequest
  private let hidden: [String]
  private var ways: [HiddenPath] = []
  private var failure: SpawnFailure?
  private var rest: [UInt8] = []

  init(
    pid: Int32, pidfd: consuming OwnedFD, report: consuming OwnedFD, executable: ExecutableLook?,
    request: SpawnRequest, hidden: [String]
  ) {
    self.pid = pid
    self.pidfd = consume pidfd
    self.report = report
    self.executable = executable
    self.request = request
    self.hidden = hidden
  }

  /// Readable when there is something to `advance()`. Borrowed; valid as long as `self` is.
  package var reportDescriptor: Int32 { report.number }

  /// To end a child that hangs on its way; nil once it has been handed out.
  package func signal(_ signal: Signal) {
    if let number = pidfd.number { _ = guardian_pidfd_signal(number, signal.number) }
  }

  /// Reads what the child has told. Nil: not there yet. `started` or `failed` comes once, and then nothing more; a
  /// failed child has been reaped.
  package func advance() -> SpawnOutcome? {
    while true {
      var bytes = [UInt8](repeating: 0, count: 1024)
      let count = read(report.number, &bytes, bytes.count)
      if count > 0 {
        rest += bytes.prefix(count)
        takeReports()
      } else if count < 0 && errno == EINTR {
        continue
      } else if count < 0 && errno == EAGAIN {
        return nil
      } else {
        break
      }
    }
    guard let pidfd = pidfd.take() else { return nil }
    if let failure {
      var end = guardian_end()
      _ = guardian_reap(pid, 1, &end)
      return .failed(failure)
    }
    return .started(Child(pid: pid, pidfd: pidfd, executable: executable, hidden: ways))
  }

  private func takeReports() {
    let size = MemoryLayout<guardian_report>.size
    while rest.count >= size {
      let one = rest.withUnsafeBytes { $0.loadUnaligned(as: guardian_report.self) }
      rest.removeFirst(size)
      if let stage = SpawnFailure.Stage(rawValue: one.stage) {
        failure = SpawnExplanation(request, hidden: hidden).failure(stage, one.value, index: Int(one.index))
      } else if let way = HiddenPath.Way(rawValue: one.value), hidden.indices.contains(Int(one.index)) {
        ways.append(HiddenPath(path: hidden[Int(one.index)], way: way))
      }
    }
  }
}
