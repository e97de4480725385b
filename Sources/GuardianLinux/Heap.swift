import CGuardian

/// The C library's heap, on which Swift's lives too.
package enum Heap {
  /// One arena for both threads: with an arena each, what one has freed is of no use to the other. To be called before
  /// the first thread is made.
  package static func useOneArena() {
    guardian_use_one_arena()
  }

  /// Gives freed pages back to the host: after work that took much and keeps little, such as reading the configuration.
  /// About a millisecond.
  package static func giveBack() { guardian_trim_heap() }
}
