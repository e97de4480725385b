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

  /// Gives back the pages of code that has been run, guardian's own and its libraries': most of what a start needs is not
  /// needed again, and what is comes back from the page cache as it is touched. A fraction of a millisecond.
  package static func letGoOfCode() { guardian_trim_text() }
}
