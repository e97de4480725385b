import CGuardian
import Glibc

/// The way back for a new program that has taken the place of an old one and is not at work yet.
///
/// One for the process. While it is armed, a fault signal, or too long a silence, executes the old program instead.
package enum TakeOverGuard {
  nonisolated(unsafe) private static var arguments: CStrings?

  /// - Parameters:
  ///   - program: The old program, open; borrowed until `disarm`.
  ///   - arguments: What it is to be told, its name first.
  package static func arm(program: Int32, arguments: [String], seconds: UInt32) throws(SystemError) {
    let strings = CStrings(arguments)
    self.arguments = strings
    let answer = guardian_guard_arm(program, strings.pointers, seconds)
    if answer < 0 { throw SystemError("guard the new program", errno: -answer) }
  }

  package static func disarm() {
    guardian_guard_disarm()
    arguments = nil
  }
}

/// Descriptors of guardian by themselves.
package enum Descriptors {
  /// One more number for the same open file, CLOEXEC.
  package static func duplicate(_ number: Int32) throws(SystemError) -> Int32 {
    let made = fcntl(number, F_DUPFD_CLOEXEC, 3)
    if made < 0 { throw SystemError.last("duplicate descriptor \(number)") }
    return made
  }

  /// The program that runs, also where its file has been replaced: the link leads to the file itself.
  package static func openOwnProgram() throws(SystemError) -> OwnedFD {
    let made = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)
    if made < 0 { throw SystemError.last("open", "/proc/self/exe") }
    return OwnedFD(adopting: made)
  }

  /// This process's environment, as `NAME=value`.
  package static func environment() -> [String] {
    var all: [String] = []
    var place = environ
    while let entry = place.pointee {
      all.append(String(cString: entry))
      place += 1
    }
    return all
  }
}
