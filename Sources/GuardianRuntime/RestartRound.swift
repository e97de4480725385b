import GuardianControl
import GuardianCore
import GuardianModel

/// What `reload --restart` does once the new configuration is in force: what runs on with an earlier definition is restarted,
/// a few at a time, and what has no definition any more is waited for.
///
/// It goes on when its client has left, as any order does. An upgrade of guardian ends it; what it had not come to still
/// needs its restart, and says so.
final class RestartRound {
  private unowned let shell: Shell
  private var waiting: [ServiceName]
  private var inFlight: Set<ServiceName> = []
  private var results: [ReloadChange.Restarted] = []
  private let by: Author
  private let then: ([ReloadChange.Restarted]) -> Void

  /// A new definition that is no good takes no more than this many services down at once.
  private static let atOnce = 8

  private init(_ shell: Shell, _ names: [ServiceName], by: Author, then: @escaping ([ReloadChange.Restarted]) -> Void) {
    self.shell = shell
    waiting = names
    self.by = by
    self.then = then
  }

  /// - Parameter then: Hears the results in order of name; at once where there is nothing to do.
  static func begin(
    _ shell: Shell, after change: ReloadChange, by: Author, then: @escaping ([ReloadChange.Restarted]) -> Void
  ) {
    let round = RestartRound(shell, change.needRestart.compactMap { ServiceName($0.name) }, by: by, then: then)
    for name in change.removed.compactMap({ ServiceName($0) }) {
      round.inFlight.insert(name)
      shell.control.awaitStop(of: name) { _ in round.ended(name) }
    }
    round.goOn()
  }

  private func goOn() {
    while inFlight.count < Self.atOnce, let place = nextPlace {
      let name = waiting.remove(at: place)
      // It may have died, been stopped or been restarted meanwhile: then it has what it needs.
      guard let machine = shell.machine(named: name), !machine.pendingKeys.isEmpty else {
        finished(name, true, "has it already")
        continue
      }
      if machine.held {
        finished(name, false, "held, so it was not restarted")
      } else if machine.spec.kind == .task {
        finished(name, true, "a task that runs is left to its end")
      } else if !shell.control.order(Command(.restart, by: by), named: name, then: { self.answered(name, $0) }) {
        finished(name, true, "removed")
      } else {
        inFlight.insert(name)
      }
    }
    if inFlight.isEmpty, waiting.isEmpty { then(results.sorted { $0.name < $1.name }) }
  }

  /// Of the first whose requirements have had their turn: the restart of one of them takes it along, and then it has what
  /// it needs. Nil: none for now.
  private var nextPlace: Int? {
    let ready = waiting.indices.prefix(64).first { place in
      guard let spec = shell.machine(named: waiting[place])?.spec else { return true }
      return (spec.requires + spec.after).allSatisfy { !inFlight.contains($0) && !waiting.contains($0) }
    }
    // A circle is refused when it is read; whatever else stands in the way must not keep the round from ending.
    return ready ?? (inFlight.isEmpty && !waiting.isEmpty ? 0 : nil)
  }

  private func finished(_ name: ServiceName, _ done: Bool, _ text: String) {
    results.append(ReloadChange.Restarted(name: name.text, done: done, text: text))
  }

  private func ended(_ name: ServiceName) {
    inFlight.remove(name)
    finished(name, true, shell.machine(named: name) == nil ? "stopped and removed" : "is there again")
    goOn()
  }

  private func answered(_ name: ServiceName, _ answer: Fleet.Answer) {
    inFlight.remove(name)
    switch answer {
    case .done(let note): finished(name, true, note)
    case .failed(let reason): finished(name, false, reason)
    }
    goOn()
  }
}
