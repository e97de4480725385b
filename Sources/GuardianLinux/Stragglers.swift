package import GuardianModel

extension Orphans {
  package static let none = Orphans(looks: [])

  package var pids: [Int32] { looks.map(\.pid) }

  package func without(_ others: Orphans) -> Orphans {
    Orphans(
      looks: looks.filter { look in
        !others.looks.contains { $0.pid == look.pid && $0.startTicks == look.startTicks }
      })
  }

  /// To each that is still the process it was when seen.
  package func signal(_ signal: Signal) { ProcessSet.signal(looks.map { ProcessSet.Member($0) }, signal) }
}
