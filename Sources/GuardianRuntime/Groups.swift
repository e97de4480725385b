import Glibc
import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel

/// The control group of one run or hook.
struct RunGroup {
  let groups: ControlGroups
  let name: String

  var isPopulated: Bool { groups.state(name)?.populated ?? false }

  /// Whose it is, before anybody is born in it: whoever comes after a guardian that was killed meanwhile must not take those
  /// in it for nobody's, though their main process has ended or their service's file cannot be read.
  func mark(_ run: RunID) { groups.mark(name, run) }

  /// Everybody alive in it but `gone`, who has ended.
  func living(but gone: Int32?) -> [Int32] {
    groups.processes(name).filter { pid in
      guard pid != gone, let look = ProcessLook(pid) else { return false }
      return !look.isDead
    }
  }
}

/// The control groups of all services: two for each, used in turn, so that the next one is made while the run before it
/// lives, and no start waits for that; and one for each hook.
final class GroupTable {
  let groups: ControlGroups

  /// One of a service's two groups.
  private struct Half {
    /// Its last run is over.
    var reusable = false
    private var isKnown = false
    @Rare private var some: GroupLimits?
    /// What it has been told. Nil: not known. Mostly it is nothing, which takes no room.
    var limits: GroupLimits? {
      get { isKnown ? some ?? GroupLimits() : nil }
      set {
        isKnown = newValue != nil
        some = newValue.flatMap { $0.isEmpty ? nil : $0 }
      }
    }
  }
  private struct Place {
    var halves: InlineArray<2, Half> = [Half(), Half()]
    /// The group of the run that was started last.
    var current = 1
    /// The other one is ready for a run.
    var prepared = false
    @Rare private var some: GroupLimits?
    /// What is wanted now.
    var wanted: GroupLimits {
      get { some ?? GroupLimits() }
      set { some = newValue.isEmpty ? nil : newValue }
    }

    init(wanted: GroupLimits) { self.wanted = wanted }
  }
  private var places: [ServiceName: Place] = [:]
  /// Limits that are not in force, and why. Not in the places: a long list asks for every service, and most have none.
  private var faults: [ServiceName: [String]] = [:]
  /// Services whose next group is to be made when there is time.
  private var toPrepare: [ServiceName] = []
  /// Groups that were not empty yet when they were to go.
  private var toRemove: [String] = []
  /// Of the groups that were found at guardian's start, whose they are.
  private var found: [RunID: String] = [:]
  private var unclaimed: Set<String> = []

  /// A turn of the loop makes so many groups ready at most.
  private static let preparedAtOnce = 16

  init(_ groups: ControlGroups) {
    self.groups = groups
    for name in groups.all() {
      unclaimed.insert(name)
      if let run = groups.run(of: name) { found[run] = name }
    }
  }

  /// The group's name within guardian's piece of the tree.
  private static func name(_ service: ServiceName, _ index: Int) -> String {
    "service.\(service.text)" + (index == 0 ? "" : ":next")
  }

  // MARK: Starting

  /// The group for a run that is about to be started.
  func take(for spec: ServiceSpec) throws(SystemError) -> RunGroup {
    let limits = spec.process.groupLimits
    var place = places[spec.name] ?? Place(wanted: limits)
    defer { places[spec.name] = place }
    place.wanted = limits
    let index = 1 - place.current
    if !place.prepared { try prepare(spec.name, index, &place) }
    place.prepared = false
    place.halves[index].reusable = false
    let name = Self.name(spec.name, index)
    if place.halves[index].limits != limits { limit(spec.name, index, &place) }
    place.current = index
    toPrepare.append(spec.name)
    return RunGroup(groups: groups, name: name)
  }

  /// After the kernel has refused a group: somebody may have removed it, or have put others into it.
  func remake(_ group: RunGroup, of service: ServiceName) throws(SystemError) {
    guard var place = places[service] else { return }
    defer { places[service] = place }
    place.halves[place.current].reusable = false
    try prepare(service, place.current, &place)
  }

  /// The run of this group is over, and nobody is left of it.
  func emptied(_ group: RunGroup, of service: ServiceName) {
    guard let index = (0...1).first(where: { Self.name(service, $0) == group.name }) else { return }
    places[service]?.halves[index].reusable = true
  }

  /// One as it was made, with the limits that are wanted: mostly a new one, since the kernel's account and what it was told
  /// stay with a group. (Linux 6.18 even kills whoever is born in a group in which `cgroup.kill` was used once: it compares the
  /// group's count of kills with that of the group of the parent.)
  private func prepare(_ service: ServiceName, _ index: Int, _ place: inout Place) throws(SystemError) {
    let name = Self.name(service, index)
    if place.halves[index].reusable, groups.canBeUsedAgain(name) {
      if place.halves[index].limits != place.wanted { limit(service, index, &place) }
      return
    }
    let obstacle = groups.removal(name)
    if obstacle != 0 {
      // A stop that has not come to its end is followed by no start, so this is nobody's who is waited for.
      if obstacle == EBUSY { _ = groups.kill(name) }
      throw SystemError("use the control group", name, errno: obstacle)
    }
    try groups.make(name)
    place.halves[index].limits = GroupLimits()
    if !place.wanted.isEmpty { limit(service, index, &place) }
  }

  private func limit(_ service: ServiceName, _ index: Int, _ place: inout Place) {
    if place.wanted.cpuWeight != nil { groups.enable([.cpu]) }
    let faults = groups.limit(Self.name(service, index), to: place.wanted, before: place.halves[index].limits)
    self.faults[service] = faults.isEmpty ? nil : faults
    place.halves[index].limits = place.wanted
  }

  /// Has work that can wait, and does not.
  var hasWork: Bool { !toPrepare.isEmpty }

  /// What no start should wait for; to be called when nothing is due.
  func work() {
    for _ in 0..<min(Self.preparedAtOnce, toPrepare.count) {
      guard let service = toPrepare.popLast(), var place = places[service], !place.prepared else { continue }
      // Where it cannot be made now, the start will try again, and say so.
      do throws(SystemError) {
        try prepare(service, 1 - place.current, &place)
        place.prepared = true
      } catch {}
      places[service] = place
    }
    if !toRemove.isEmpty { toRemove.removeAll { groups.remove($0) } }
  }

  /// New limits of a definition are in force at once.
  func apply(_ spec: ServiceSpec) {
    guard var place = places[spec.name], place.wanted != spec.process.groupLimits else { return }
    place.wanted = spec.process.groupLimits
    limit(spec.name, place.current, &place)
    let other = 1 - place.current
    if place.prepared { limit(spec.name, other, &place) }
    places[spec.name] = place
  }

  func faults(of service: ServiceName) -> [String] { faults[service] ?? [] }

  func forget(_ service: ServiceName) {
    guard places.removeValue(forKey: service) != nil else { return }
    faults[service] = nil
    for index in 0...1 { discard(Self.name(service, index)) }
  }

  // MARK: Hooks

  func hook(_ run: RunID) throws(SystemError) -> RunGroup {
    let name = "hook.\(run)"
    try groups.make(name)
    groups.mark(name, run)
    return RunGroup(groups: groups, name: name)
  }

  /// It is not used any more; whoever is left in it has been killed.
  func discard(_ name: String) {
    if !groups.remove(name) { toRemove.append(name) }
  }

  // MARK: What an earlier guardian has left

  /// The group of a run that is taken over. Nil where it has none of these.
  ///
  /// - Parameter main: Its main process, if that lives.
  func claim(_ run: RunID, of spec: ServiceSpec?, main: Int32?) -> RunGroup? {
    var name = found[run]
    if let main {
      // It may have gone elsewhere itself. Then nothing is known of the others by their group.
      if let marked = name, groups.holds(marked, main) {} else { name = groups.name(of: main) }
    }
    guard let name, groups.state(name) != nil else { return nil }
    unclaimed.remove(name)
    if let spec, let index = (0...1).first(where: { Self.name(spec.name, $0) == name }) {
      var place = places[spec.name] ?? Place(wanted: spec.process.groupLimits)
      place.current = index
      place.wanted = spec.process.groupLimits
      // Whatever was in force when it was born, or has been lost since.
      limit(spec.name, index, &place)
      places[spec.name] = place
      toPrepare.append(spec.name)
    }
    return RunGroup(groups: groups, name: name)
  }

  /// Kills what is in groups that belong to nothing that is remembered, and removes them.
  ///
  /// - Parameter kept: Runs of services that cannot be taken over now.
  /// - Returns: How many processes were killed.
  func endForeigners(patience: Duration, kept: Set<RunID>) -> Int {
    let stay = Set(kept.compactMap { found[$0] })
    var left = unclaimed.subtracting(stay).sorted()
    unclaimed.subtract(left)
    var ended = 0
    for name in left {
      let group = RunGroup(groups: groups, name: name)
      guard group.isPopulated else { continue }
      ended += group.living(but: nil).count
      if !groups.kill(name) { _ = groups.signal(name, .kill) }
    }
    let deadline = SystemClocks.monotonic() + patience
    while true {
      left.removeAll { groups.remove($0) }
      guard !left.isEmpty, SystemClocks.monotonic() < deadline else { break }
      usleep(1000)
    }
    toRemove += left
    return ended
  }

  /// Guardian's end: nothing of it stays behind.
  func removeAll() { groups.removeAll() }

  // MARK: What holds

  var guarantee: String { "control group below \(groups.path), cgroup.kill" }

  var limitsInForce: String {
    ControlGroups.Controller.allCases.map { controller in
      let key =
        switch controller {
        case .memory: "memory"
        case .pids: "tasks"
        case .cpu: "cpu-weight"
        }
      if groups.controllers.contains(controller) { return key }
      // Put in force when the first service asks for it.
      if controller == .cpu, groups.refused[.cpu] == nil { return "\(key) when asked for" }
      return "no \(key) (\(groups.refused[controller] ?? "not tried"))"
    }.joined(separator: ", ")
  }
}
