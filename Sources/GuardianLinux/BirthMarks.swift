import CGuardian
import Glibc
package import GuardianModel

/// Births that outlive guardian: a small file, mapped by guardian and written by each child on its way to its exec.
///
/// Between the birth of a process and the moment at which its pid has been written down, guardian may be killed. The mark
/// then tells the next one that the run has begun, and which process it is or was.
package final class BirthMarks: @unchecked Sendable {
  package static let fileName = "births"
  /// Of more services than this two share a place, and the later birth is the one that is known.
  package static let places = 4096
  private static let size = MemoryLayout<guardian_birth_mark>.stride

  package struct Mark: Hashable, Sendable {
    package var pid: Int32
    /// The process was there then.
    package var at: BootInstant

    /// That very process, if it lives: whoever has the number and is older than the mark has had it all the time.
    package func process() -> ProcessLook? {
      guard let look = ProcessLook(pid), !look.isDead else { return nil }
      let ticks = max(1, Int64(sysconf(Int32(_SC_CLK_TCK))))
      let (started, overflow) = Int64(clamping: look.startTicks).multipliedReportingOverflow(by: 1_000_000_000 / ticks)
      return !overflow && started <= at.nanoseconds ? look : nil
    }
  }

  /// Where one child leaves its mark.
  package struct Place: @unchecked Sendable {
    let address: UnsafeMutablePointer<guardian_birth_mark>
    let run: RunID
  }

  private let memory: UnsafeMutablePointer<guardian_birth_mark>

  /// Opens or makes `births` in the runtime directory, mode 0600; follows no link there. What is in it stays.
  package init(directory: String) throws(SystemError) {
    let path = directory + "/" + Self.fileName
    let raw = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0o600)
    if raw < 0 { throw SystemError.last("open", path) }
    let file = OwnedFD(adopting: raw)
    var about = stat()
    guard fstat(file.number, &about) == 0 else { throw SystemError.last("look at", path) }
    guard about.st_mode & S_IFMT == S_IFREG, about.st_uid == geteuid(), about.st_nlink == 1 else {
      throw SystemError("use", path, errno: EINVAL)
    }
    let length = Self.places * Self.size
    if about.st_size != off_t(length), ftruncate(file.number, 0) != 0 { throw SystemError.last("empty", path) }
    // All of it now: a page that cannot be had later would end the child that writes into it.
    let answer = posix_fallocate(file.number, 0, off_t(length))
    if answer != 0 { throw SystemError("make room for", path, errno: answer) }
    let mapped = mmap(nil, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0)
    guard let mapped, mapped != MAP_FAILED else { throw SystemError.last("map", path) }
    memory = mapped.bindMemory(to: guardian_birth_mark.self, capacity: Self.places)
  }

  /// Whether a process that has left its mark in the runtime directory seems to live. Errs on the side of yes.
  package static func someLive(in directory: String) -> Bool {
    (try? BirthMarks(directory: directory))?.all().contains { $1.process() != nil } ?? false
  }

  deinit { munmap(memory, Self.places * Self.size) }

  package func place(of service: ServiceID, for run: RunID) -> Place {
    Place(address: memory + service.index % Self.places, run: run)
  }

  /// All that are whole, by their runs.
  package func all() -> [RunID: Mark] {
    var found: [RunID: Mark] = [:]
    for place in 0..<Self.places {
      let mark = memory[place]
      guard mark.high != 0 || mark.low != 0, mark.pid > 1 else { continue }
      found[RunID(high: mark.high, low: mark.low)] = Mark(pid: mark.pid, at: BootInstant(nanoseconds: mark.at))
    }
    return found
  }
}
