package import GuardianModel

// Who waits for whom: the edges of `requires` and `after` between all services, and what each service means for its
// neighbours. The fleet tells it how every service stands; it answers, per service and without looking at the others,
//
//   may this service start now, and if not, what is it waiting for   `obstacle(of:)`
//   must something else stop before it                               `mustGoLast(_:)`
//   is its death another's fault                                     `sharesBlame(_:now:)`
//
// Everything is counted as it changes, so a chain of ten thousand costs ten thousand small steps to start, and none of
// them recurses: whoever is affected is put in a queue.

/// What keeps a service from starting that lies outside of it.
package struct Obstacle: Hashable, Sendable {
  package enum Kind: Hashable, Sendable { case requires, after }
  package var kind: Kind
  /// One of those it waits for.
  package var name: ServiceName
  /// It will not come by itself: stopped, quarantined, held, finished, or not defined.
  package var hopeless: Bool
  /// For the record; `status` says it in full.
  var text: String {
    switch kind {
    case .requires: "waits for \(name), which it requires"
    case .after: "starts after \(name)"
    }
  }
}

/// What one service means for those that name it.
package struct Standing: Hashable, Sendable {
  /// What requires it may run.
  var ready = false
  /// It starts, or is about to: what comes `after` it waits.
  var comingUp = false
  /// Something of it runs that has to be stopped before what it requires.
  var live = false
  /// Not ready, and nothing that guardian does by itself will make it so; a trial from quarantine aside.
  var hopeless = false
  /// It waits for its dependents to stop, to go itself.
  var departs = false
  static let absent = Standing(hopeless: true)
}

struct Dependencies: Sendable {
  /// A name that somebody requires or follows, whether it is defined or not.
  private struct Node: Sendable {
    let name: ServiceName
    var service: Int?
    var standing = Standing.absent
    var requiredBy: [Int] = [], followedBy: [Int] = []
    /// Of them, so many live.
    var liveDependents = 0, liveFollowers = 0
  }
  private struct Links: Sendable {
    /// As others call it; −1: nobody does.
    var node = -1
    var requires: [Int] = [], after: [Int] = []
    /// Left out, since with them it would wait for itself. Where a broken file keeps an old definition in force beside
    /// new ones, no check of the files can see that.
    var refused: [ServiceName] = []
    var unready = 0, hopeless = 0, ahead = 0
    /// Where the first of those is that are not ready; moves on as they become so.
    var cursor = 0
    var live = false
    var requirementDied: Instant?
    var isQueued = false
    var isEmpty: Bool { node < 0 && requires.isEmpty && after.isEmpty }
  }

  private var nodes: [Node] = []
  private var numbers: [ServiceName: Int] = [:]
  /// By service; shorter than the fleet where nobody has dependencies.
  private var links: [Links] = []
  /// Those of whose edges one was left out: another change may make it possible.
  private(set) var refusers: [Int] = []
  private var queue: [Int] = []
  private var head = 0
  /// Guardian goes down: `after` orders the stops too.
  var goingDown = false

  /// A death is another's fault so long after that one's.
  static let blameTime = Duration.seconds(1)

  // MARK: Edges

  /// Nobody names it, and it names nobody.
  func concerns(_ service: Int) -> Bool { service < links.count && !links[service].isEmpty }
  func hasRequirements(_ service: Int) -> Bool { service < links.count && !links[service].requires.isEmpty }

  mutating func added(_ service: Int, named name: ServiceName) {
    guard let node = numbers[name] else { return }
    grow(service)
    nodes[node].service = service
    links[service].node = node
  }

  private mutating func grow(_ service: Int) {
    if links.count <= service {
      links.append(contentsOf: repeatElement(Links(), count: service + 1 - links.count))
    }
  }

  /// - Returns: Services that are named now and were not before: their standing is to be told with `note`.
  mutating func define(
    _ service: Int, requires: [ServiceName], after: [ServiceName], _ lookUp: (ServiceName) -> Int?
  ) -> [Int] {
    if requires.isEmpty, after.isEmpty, service >= links.count || links[service].isEmpty { return [] }
    grow(service)
    let same =
      links[service].refused.isEmpty && links[service].requires.map { nodes[$0].name } == requires
      && links[service].after.map { nodes[$0].name } == after
    if same { return [] }
    var met: [Int] = []
    func node(_ name: ServiceName, _ all: inout Dependencies) -> Int {
      if let known = all.numbers[name] { return known }
      let number = all.nodes.count
      all.nodes.append(Node(name: name))
      all.numbers[name] = number
      if let other = lookUp(name) {
        all.grow(other)
        all.nodes[number].service = other
        all.links[other].node = number
        met.append(other)
      }
      return number
    }
    cut(service)
    for name in requires {
      let node = node(name, &self)
      if waits(for: service, node) {
        links[service].refused.append(name)
      } else {
        tie(service, to: node, requires: true)
      }
    }
    for name in after where !requires.contains(name) {
      let node = node(name, &self)
      if waits(for: service, node) {
        links[service].refused.append(name)
      } else {
        tie(service, to: node, requires: false)
      }
    }
    refusers.removeAll { $0 == service }
    if !links[service].refused.isEmpty { refusers.append(service) }
    enqueue(service)
    return met
  }

  private mutating func tie(_ service: Int, to node: Int, requires: Bool) {
    let standing = nodes[node].standing
    let live = links[service].live ? 1 : 0
    if requires {
      links[service].requires.append(node)
      nodes[node].requiredBy.append(service)
      nodes[node].liveDependents += live
      if !standing.ready { links[service].unready += 1 }
      if standing.hopeless { links[service].hopeless += 1 }
    } else {
      links[service].after.append(node)
      nodes[node].followedBy.append(service)
      nodes[node].liveFollowers += live
      if standing.comingUp { links[service].ahead += 1 }
    }
    if live > 0, let owner = nodes[node].service { enqueue(owner) }
  }

  /// Takes away all that the service names.
  private mutating func cut(_ service: Int) {
    let live = links[service].live ? 1 : 0
    for node in links[service].requires {
      if let place = nodes[node].requiredBy.firstIndex(of: service) { nodes[node].requiredBy.remove(at: place) }
      nodes[node].liveDependents -= live
      if let owner = nodes[node].service { enqueue(owner) }
    }
    for node in links[service].after {
      if let place = nodes[node].followedBy.firstIndex(of: service) { nodes[node].followedBy.remove(at: place) }
      nodes[node].liveFollowers -= live
      if let owner = nodes[node].service { enqueue(owner) }
    }
    links[service].requires = []
    links[service].after = []
    links[service].refused = []
    (links[service].unready, links[service].hopeless, links[service].ahead) = (0, 0, 0)
    links[service].cursor = 0
    links[service].requirementDied = nil
  }

  /// Whether `node` is the service, or waits for it by any way.
  private func waits(for service: Int, _ node: Int) -> Bool {
    let goal = links[service].node
    // Whom nobody names, nobody waits for.
    guard goal >= 0 else { return false }
    var seen: Set<Int> = [node]
    var stack = [node]
    while let next = stack.popLast() {
      if next == goal { return true }
      guard let owner = nodes[next].service, owner < links.count else { continue }
      for further in [links[owner].requires, links[owner].after].joined() where seen.insert(further).inserted {
        stack.append(further)
      }
    }
    return false
  }

  mutating func forget(_ service: Int) {
    guard concerns(service) else { return }
    note(service, .absent)
    cut(service)
    refusers.removeAll { $0 == service }
    let node = links[service].node
    if node >= 0 { nodes[node].service = nil }
    links[service].node = -1
  }

  // MARK: News

  /// How the service stands after a turn of its own.
  mutating func note(_ service: Int, _ standing: Standing) {
    if standing.live != links[service].live {
      links[service].live = standing.live
      let change = standing.live ? 1 : -1
      for node in links[service].requires {
        nodes[node].liveDependents += change
        if nodes[node].liveDependents == (standing.live ? 1 : 0), let owner = nodes[node].service { enqueue(owner) }
      }
      for node in links[service].after {
        nodes[node].liveFollowers += change
        if goingDown, nodes[node].liveFollowers == (standing.live ? 1 : 0), let owner = nodes[node].service {
          enqueue(owner)
        }
      }
    }
    let number = links[service].node
    guard number >= 0 else { return }
    let before = nodes[number].standing
    guard before != standing else { return }
    nodes[number].standing = standing
    if standing.departs, !before.departs { enqueue(service) }
    if before.ready != standing.ready || before.hopeless != standing.hopeless {
      let unready = (standing.ready ? 0 : 1) - (before.ready ? 0 : 1)
      let hopeless = (standing.hopeless ? 1 : 0) - (before.hopeless ? 1 : 0)
      for other in nodes[number].requiredBy {
        let wasFree = links[other].unready == 0, hadHope = links[other].hopeless == 0
        links[other].unready += unready
        links[other].hopeless += hopeless
        let named = links[other].requires[links[other].cursor] == number
        if wasFree != (links[other].unready == 0) || hadHope != (links[other].hopeless == 0) || named { enqueue(other) }
      }
    }
    if before.comingUp != standing.comingUp {
      for other in nodes[number].followedBy {
        links[other].ahead += standing.comingUp ? 1 : -1
        if links[other].ahead <= 1 { enqueue(other) }
      }
    }
  }

  /// A run of the service has ended.
  ///
  /// - Returns: Those that require it.
  mutating func died(_ service: Int, at now: Instant) -> [Int] {
    guard concerns(service), links[service].node >= 0 else { return [] }
    let dependents = nodes[links[service].node].requiredBy
    for other in dependents { links[other].requirementDied = now }
    return dependents
  }

  private mutating func enqueue(_ service: Int) {
    guard !links[service].isQueued else { return }
    links[service].isQueued = true
    queue.append(service)
  }

  /// Everybody is asked again.
  mutating func enqueueAll() { for service in links.indices where !links[service].isEmpty { enqueue(service) } }

  /// The next one for whom something may have changed.
  mutating func next() -> Int? {
    guard head < queue.count else {
      queue.removeAll(keepingCapacity: queue.count <= 256)
      head = 0
      return nil
    }
    let service = queue[head]
    head += 1
    links[service].isQueued = false
    return service
  }

  // MARK: Answers

  /// What keeps the service from starting now; nil: nothing.
  mutating func obstacle(of service: Int) -> Obstacle? {
    guard service < links.count else { return nil }
    let own = links[service]
    if own.unready > 0 {
      // The one named last, or the next: a service that requires thousands looks at each of them once.
      for step in 0..<own.requires.count {
        let place = (own.cursor + step) % own.requires.count
        let node = nodes[own.requires[place]]
        if node.standing.ready { continue }
        links[service].cursor = place
        return Obstacle(kind: .requires, name: node.name, hopeless: own.hopeless > 0)
      }
    }
    if own.ahead > 0, let node = own.after.first(where: { nodes[$0].standing.comingUp }) {
      return Obstacle(kind: .after, name: nodes[node].name, hopeless: false)
    }
    return nil
  }

  /// Something runs that has to be stopped before the service is.
  func mustGoLast(_ service: Int) -> Bool {
    guard service < links.count, links[service].node >= 0 else { return false }
    let node = nodes[links[service].node]
    return node.liveDependents > 0 || (goingDown && node.liveFollowers > 0)
  }

  /// Something that it requires is not ready, or has died just now.
  func sharesBlame(_ service: Int, now: Instant) -> Bool {
    guard service < links.count else { return false }
    if links[service].unready > 0 { return true }
    return links[service].requirementDied.map { now - $0 <= Self.blameTime } ?? false
  }

  func dependents(of service: Int) -> [Int] {
    guard service < links.count, links[service].node >= 0 else { return [] }
    return nodes[links[service].node].requiredBy
  }

  /// What the service waits for: the name, and the service of that name.
  func awaited(by service: Int, _ kind: Obstacle.Kind) -> [(name: ServiceName, service: Int?)] {
    guard service < links.count else { return [] }
    switch kind {
    case .requires:
      return links[service].requires.compactMap { nodes[$0].standing.ready ? nil : (nodes[$0].name, nodes[$0].service) }
    case .after:
      return links[service].after.compactMap { nodes[$0].standing.comingUp ? (nodes[$0].name, nodes[$0].service) : nil }
    }
  }

  /// At most `limit` of those that have to stop before it.
  func liveDependents(of service: Int, limit: Int) -> [Int] {
    guard service < links.count, links[service].node >= 0 else { return [] }
    let node = nodes[links[service].node]
    var found: [Int] = []
    for other in [node.requiredBy, goingDown ? node.followedBy : []].joined() where links[other].live {
      found.append(other)
      if found.count == limit { break }
    }
    return found
  }

  func refused(by service: Int) -> [ServiceName] { service < links.count ? links[service].refused : [] }

  /// The services with each behind all that it waits for.
  func inOrder(_ services: [Int]) -> [Int] {
    guard services.contains(where: { $0 < links.count }) else { return services }
    let asked = Set(services)
    var seen: Set<Int> = []
    var result: [Int] = []
    result.reserveCapacity(services.count)
    for root in services where seen.insert(root).inserted {
      var path = [(service: root, next: 0)]
      while let (service, next) = path.last {
        let own = service < links.count ? links[service] : Links()
        guard next < own.requires.count + own.after.count else {
          path.removeLast()
          if asked.contains(service) { result.append(service) }
          continue
        }
        path[path.count - 1].next += 1
        let node = next < own.requires.count ? own.requires[next] : own.after[next - own.requires.count]
        if let other = nodes[node].service, seen.insert(other).inserted { path.append((other, 0)) }
      }
    }
    return result
  }

  /// The longest way through the stop time-outs: how long an orderly stop of everything may take.
  func longestStop(_ timeouts: [Int: Duration]) -> Duration {
    var total: [Int: Duration] = [:]
    var longest = Duration.zero
    // Whoever waits for others stops before them, so the sum grows from the last started to the first.
    for service in inOrder(timeouts.keys.sorted()).reversed() {
      let sum = (total[service] ?? .zero) + (timeouts[service] ?? .zero)
      longest = max(longest, sum)
      guard service < links.count else { continue }
      for node in [links[service].requires, links[service].after].joined() {
        if let other = nodes[node].service { total[other] = max(total[other] ?? .zero, sum) }
      }
    }
    return longest
  }
}
