/// A change of what surrounds a program that keeps some of its faults from biting. It needs no change of the program, and
/// mends nothing: a run with one is shown as degraded.
package enum Mitigation: String, Hashable, Sendable, CaseIterable {
  /// The soft limit of the stack four times as large, at most 256 MiB; new threads have that much, too.
  case largerStack = "larger-stack"
  /// Memory fresh from the heap is zero and freed memory is overwritten, by the C library's tunables.
  case zeroedMemory = "zeroed-memory"
  /// The loader resolves every symbol before the program begins.
  case immediateBinding = "immediate-binding"
  /// All threads share one processor, so that fewer races come about.
  case singleCPU = "single-cpu"
}

package enum MitigationMode: String, Hashable, Sendable, CaseIterable { case off, auto }

/// One start's mitigation, and for which version of the program it is meant.
package struct MitigationOrder: Hashable, Sendable {
  package var mitigation: Mitigation
  /// As `MitigationRecord.build`: for another version, or a privileged program, nothing is changed.
  package var build: UInt64
  package init(_ mitigation: Mitigation, build: UInt64) {
    self.mitigation = mitigation
    self.build = build
  }
}

/// What the trials of mitigations of one service have come to, for one version of its program.
package struct MitigationRecord: Hashable, Sendable {
  /// What tells this version of the program from another; 0: nothing has been seen of it.
  package var build: UInt64 = 0
  /// Starts without any that failed, one after the other, of a class that one may help.
  package var failures = 0
  /// The one that is tried, or has proved itself.
  @Rare package var active: MitigationTally?
  /// Tried in vain with this version of the program.
  package var ineffective: [Mitigation] = []
  package init() {}
}

/// One mitigation, and how its runs went.
package struct MitigationTally: Hashable, Sendable {
  package var mitigation: Mitigation
  /// It has proved itself.
  package var kept = false
  /// Starts that have settled or failed, and how many of them failed.
  package var starts = 0, failures = 0
  /// Time that its runs have lived, up to their ends.
  package var ran = Duration.zero
  /// Of the last failure with it; 0: none is known, nil: there was no failure.
  package var signature: UInt64?
  /// All of so many starts failed before it, without it.
  package var failedBefore: Int
  package init(_ mitigation: Mitigation, failedBefore: Int) {
    self.mitigation = mitigation
    self.failedBefore = failedBefore
  }
}

/// What becomes of a mitigation.
package enum MitigationChange: Hashable, Sendable {
  case begun(Mitigation, failures: Int)
  case kept(Mitigation, failures: Int, starts: Int)
  case dropped(Mitigation, why: String)

  package var mitigation: Mitigation {
    switch self {
    case .begun(let mitigation, _), .kept(let mitigation, _, _), .dropped(let mitigation, _): mitigation
    }
  }
  /// `begun`, `kept` or `dropped`.
  package var name: String {
    switch self {
    case .begun: "begun"
    case .kept: "kept"
    case .dropped: "dropped"
    }
  }
  package var sentence: String {
    switch self {
    case .begun(let mitigation, let failures):
      "mitigation \(mitigation.rawValue) is tried from the next start, after \(failures) failures in a row without it"
    case .kept(let mitigation, let failures, let starts):
      "mitigation \(mitigation.rawValue) is kept: \(failures) of \(starts) starts failed with it"
    case .dropped(let mitigation, let why): "mitigation \(mitigation.rawValue) is dropped: \(why)"
    }
  }
}
