#if FAILPOINTS
  import CGuardian
#endif

/// A named instant at which a test can end guardian, as a power cut or a SIGKILL would. In a release build it is nothing,
/// unless GUARDIAN_FAILPOINTS is in the environment of the build.
///
/// By the environment of the program: `GUARDIAN_FAILPOINT=NAME` kills at the first time it comes to NAME,
/// `GUARDIAN_FAILPOINT=NAME:3` at the third, and `GUARDIAN_FAILPOINT=list:PATH` appends each name to a file, one a line,
/// each time that it comes by. `GUARDIAN_FAILPOINT=trap:NAME` (or `trap:NAME:3`) traps there instead, as a broken
/// invariant would. May be called on any thread. `GUARDIAN_FAILPOINT=hold:NAME:PATH` holds a child between its birth and
/// its exec, see failpoint.h.
///
/// - Parameter name: At most 120 ASCII characters without a colon: `spawn.before`, `saved.after`.
@inline(__always)
package func failPoint(_ name: StaticString) {
  #if FAILPOINTS
    name.withUTF8Buffer { _ in
      name.utf8Start.withMemoryRebound(to: CChar.self, capacity: name.utf8CodeUnitCount + 1) { guardian_fail_point($0) }
    }
  #endif
}

/// Whether the work called `name` is to be left undone: a guardian that is alive and good for nothing.
///
/// By the environment of the program: `GUARDIAN_FAILPOINT=skip:NAME:PATH`. As soon as there is a file PATH it is removed,
/// and from then on the work is not done until this process ends. Always false in a build without fail-points.
@inline(__always)
package func failSkip(_ name: StaticString) -> Bool {
  #if FAILPOINTS
    name.withUTF8Buffer { _ in
      name.utf8Start.withMemoryRebound(to: CChar.self, capacity: name.utf8CodeUnitCount + 1) {
        guardian_fail_skip($0) != 0
      }
    }
  #else
    false
  #endif
}

/// Whether this build has fail-points.
package let hasFailPoints: Bool = {
  #if FAILPOINTS
    true
  #else
    false
  #endif
}()
