import CGuardian
import Glibc
package import GuardianModel

/// What remains of guardian's deaths by its own fault: a small file to which a signal handler appends.
///
/// A kill from outside leaves nothing in it, an abort by the host's watchdog does.
package final class FaultMarks {
  package static let fileName = "faults"
  /// More than this is cut down to the newest when the file is opened.
  static let kept = 64

  package struct Mark: Hashable, Sendable {
    /// Nil for a number that names none.
    package var signal: Signal?
    package var at: BootInstant
  }

  private let file: OwnedFD
  private let boot: UInt64
  private static let size = MemoryLayout<guardian_fault>.size

  /// Opens or makes `faults` in the state directory, mode 0600; follows no link there.
  package init(directory: String, bootID: String) throws(SystemError) {
    let path = directory + "/" + Self.fileName
    let raw = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0o600)
    if raw < 0 { throw SystemError.last("open", path) }
    file = OwnedFD(adopting: raw)
    var about = stat()
    guard fstat(raw, &about) == 0 else { throw SystemError.last("look at", path) }
    guard about.st_mode & S_IFMT == S_IFREG else { throw SystemError("use", path, errno: EINVAL) }
    boot = Fingerprint.of(bootID.utf8)
    // A mark that came only in part (a full disk) would put all later ones out of step.
    if about.st_size > off_t(Self.kept * Self.size) || about.st_size % off_t(Self.size) != 0 {
      let newest = raws().suffix(Self.kept)
      _ = ftruncate(raw, 0)
      for mark in newest { writeAll(withUnsafeBytes(of: mark) { Array($0) }, to: raw) }
    }
  }

  /// From here on a fault of this process leaves a mark, then ends it as it would have without.
  package func install() throws(SystemError) {
    let answer = guardian_fault_install(file.number, boot)
    if answer < 0 { throw SystemError("watch for guardian's own faults", errno: -answer) }
  }

  /// The marks of this boot that are at most `window` old, oldest first.
  package func recent(within window: Duration, now: BootInstant) -> [Mark] {
    raws().compactMap { mark in
      let at = BootInstant(nanoseconds: mark.nanoseconds)
      guard mark.boot == boot, at <= now, now - at <= window else { return nil }
      return Mark(signal: Signal(number: mark.signal), at: at)
    }
  }

  /// Forgets all marks.
  package func clear() { _ = ftruncate(file.number, 0) }

  /// Damaged ones are left out.
  private func raws() -> [guardian_fault] {
    // Only the end counts where the file has grown beyond all measure.
    let end = lseek(file.number, 0, SEEK_END)
    let length = max(0, end - end % off_t(Self.size))
    let start = max(0, length - off_t(4 * Self.kept * Self.size))
    var found: [guardian_fault] = []
    for offset in stride(from: start, to: length, by: Self.size) {
      var mark = guardian_fault()
      guard let bytes = FileText.read(file.number, at: offset, count: Self.size), bytes.count == Self.size else {
        break
      }
      withUnsafeMutableBytes(of: &mark) { $0.copyBytes(from: bytes) }
      if mark.magic == GUARDIAN_FAULT_MAGIC, guardian_fault_check(&mark) == mark.check { found.append(mark) }
    }
    return found
  }
}
