import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel

/// Drills under way: each walks a copy of a service's ladder, and the service itself, its record and its history know
/// nothing of it. Only what its repairs do is real.
final class DrillTable {
  private final class Walk {
    var drill: Drill
    let service: ServiceID
    let name: ServiceName
    var hook: RunID?
    var failed = 0
    /// The client has gone, or guardian itself makes way: nothing more is run.
    var isAbandoned = false
    /// Lines, whether it is over, and how many repairs have failed so far.
    let tell: ([PlanEntry], Bool, Int) -> Void
    /// Why it came to no end.
    let giveUp: (String) -> Void
    init(
      _ drill: Drill, _ service: ServiceID, _ name: ServiceName, tell: @escaping ([PlanEntry], Bool, Int) -> Void,
      giveUp: @escaping (String) -> Void
    ) {
      self.drill = drill
      self.service = service
      self.name = name
      self.tell = tell
      self.giveUp = giveUp
    }
  }
  private unowned let shell: Shell
  private var walks: [ServiceID: Walk] = [:]

  init(_ shell: Shell) { self.shell = shell }

  /// - Parameter tell: Called with the first lines before this returns, and then with what each repair comes to.
  /// - Returns: Why not; nil: it has begun, and may be over.
  func begin(
    _ request: Drill.Request, for name: ServiceName, by: String, tell: @escaping ([PlanEntry], Bool, Int) -> Void,
    giveUp: @escaping (String) -> Void
  ) -> String? {
    guard let id = shell.fleet.id(named: name), let spec = shell.fleet.latestSpec(of: id) else {
      return "no such service"
    }
    guard walks[id] == nil else { return "a drill of \(name) is under way already" }
    if shell.stopping { return "guardian is stopping" }
    let drill = Drill(
      spec, switches: shell.fleet.switches, request, seed: randomSeed(), now: SystemClocks.now())
    let walk = Walk(drill, id, name, tell: tell, giveUp: giveUp)
    walks[id] = walk
    if request.runsRepairs { shell.log.note(.notice, "\(name): a drill by \(by), which runs its repairs") }
    goOn(walk, of: spec)
    return nil
  }

  private func goOn(_ walk: Walk, of spec: ServiceSpec?) {
    let lines = walk.drill.takeLines()
    guard let repair = walk.drill.awaited, !walk.isAbandoned, let spec else {
      walks[walk.service] = nil
      if !walk.isAbandoned { walk.tell(lines, true, walk.failed) }
      return
    }
    walk.hook = repair.id
    walk.tell(lines, false, walk.failed)
    shell.hooks.drill(repair, for: walk.service, spec: spec)
  }

  /// - Returns: False if it is none of a drill.
  @discardableResult
  func ended(_ hook: RunID, of service: ServiceID, _ result: HookResult) -> Bool {
    guard let walk = walks[service], walk.hook == hook else { return false }
    walk.hook = nil
    if result != .succeeded { walk.failed += 1 }
    walk.drill.repairEnded(result)
    goOn(walk, of: shell.fleet.latestSpec(of: service))
    return true
  }

  /// Nobody wants to know any more: the repair that runs is ended.
  func abandon(_ name: ServiceName) {
    guard let walk = walks.values.first(where: { $0.name == name }), !walk.isAbandoned else { return }
    walk.isAbandoned = true
    if let hook = walk.hook { shell.hooks.endDrill(hook) } else { walks[walk.service] = nil }
  }

  /// Guardian itself makes way.
  func abandonAll(_ why: String) {
    for walk in Array(walks.values) where !walk.isAbandoned {
      abandon(walk.name)
      walk.giveUp(why)
    }
  }
}
