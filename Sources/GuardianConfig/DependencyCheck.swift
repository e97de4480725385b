package import GuardianModel

/// Another service that a service's file names, and where.
package struct ServiceReference: Hashable, Sendable {
  package var name: ServiceName
  /// `requires`, `after`, or `fallback`.
  package var key: String
  package var file: String
  package var line: Int, column: Int
  package var endColumn: Int?
}

/// What is wrong with how services name each other, which no file can tell alone.
///
/// A service that names an unknown one, or that is on a cycle, has no definition to run; all others are left alone,
/// those that require such a service included: they wait for it.
package struct DependencyCheck {
  package private(set) var found: [ServiceName: [Diagnostic]] = [:]

  private let specs: [ServiceSpec]
  private let references: [[ServiceReference]]
  /// Edges of the graph: what `references` lead to, by place in `specs`; only what is there.
  private let edges: [[(target: Int, reference: Int)]]

  /// Of a longer cycle only so much is written out.
  private static let namesShown = 12
  /// In a larger tangle one cycle is looked for, and not the shortest through each of its members.
  private static let tangle = 64
  /// Look-ups of the word that was meant: each compares with every name.
  private static let suggestions = 100

  /// - Parameter services: All valid definitions, with what they name.
  /// - Parameter known: The names of all files, valid or not.
  package init(_ services: [(spec: ServiceSpec, references: [ServiceReference])], known: Set<ServiceName>) {
    specs = services.map(\.spec)
    references = services.map(\.references)
    var places: [ServiceName: Int] = [:]
    for (place, service) in services.enumerated() { places[service.spec.name] = place }
    edges = services.map { service in
      service.references.enumerated().compactMap { index, reference in
        places[reference.name].map { (target: $0, reference: index) }
      }
    }
    guard references.contains(where: { !$0.isEmpty }) else { return }
    nameUnknown(known)
    doubt()
    checkFallbacks()
    for members in tangles() { report(members) }
  }

  private mutating func say(_ place: Int, _ diagnostic: Diagnostic) {
    found[specs[place].name, default: []].append(diagnostic)
  }

  private func diagnostic(
    _ severity: Diagnostic.Severity = .error, at reference: ServiceReference, _ what: String, _ why: String,
    suggestion: String? = nil
  ) -> Diagnostic {
    Diagnostic(
      severity, file: reference.file, line: reference.line, column: reference.column, endColumn: reference.endColumn,
      what: what, why: why, suggestion: suggestion)
  }

  private mutating func nameUnknown(_ known: Set<ServiceName>) {
    var words: [String]?
    var left = Self.suggestions
    for (place, list) in references.enumerated() {
      for reference in list where !known.contains(reference.name) {
        var near: String?
        if left > 0 {
          left -= 1
          let valid = words ?? known.sorted().map(\.text)
          words = valid
          let own = specs[place].name.text
          near = nearestWord(to: reference.name.text, among: valid.filter { $0 != own })
        }
        say(
          place,
          diagnostic(
            at: reference, "unknown service '\(reference.name)' in '\(reference.key)'",
            "there is no services/\(reference.name).yaml", suggestion: near))
      }
    }
  }

  /// Understood, and yet hardly meant.
  private mutating func doubt() {
    for (place, list) in edges.enumerated() where specs[place].start == .boot {
      for edge in list where specs[edge.target].start == .manual {
        let reference = references[place][edge.reference]
        guard reference.key == "requires" else { continue }
        say(
          place,
          diagnostic(
            .warning, at: reference, "'\(reference.name)' has 'start: manual'",
            "'\(specs[place].name)' is started at boot and then waits until somebody starts '\(reference.name)'"))
      }
    }
  }

  /// What runs in another's place is started and stopped with it, and by nothing else that guardian does by itself.
  private mutating func checkFallbacks() {
    var taken: [Int: Int] = [:]
    for (place, list) in edges.enumerated() {
      for edge in list {
        let reference = references[place][edge.reference]
        guard reference.key == "fallback" else { continue }
        let target = specs[edge.target]
        if let first = taken[edge.target] {
          say(
            place,
            diagnostic(
              at: reference, "'\(reference.name)' in 'fallback' stands in for '\(specs[first].name)' already",
              "the one must have stopped before the other starts, which it cannot for two"))
        }
        taken[edge.target] = taken[edge.target] ?? place
        if target.start != .manual {
          say(
            place,
            diagnostic(
              at: reference, "'\(reference.name)' in 'fallback' does not have 'start: manual'",
              "it would run beside '\(specs[place].name)', and not in its place"))
        } else if target.kind == .task {
          say(
            place,
            diagnostic(
              .warning, at: reference, "'\(reference.name)' in 'fallback' is a task",
              "it runs to its end each time that '\(specs[place].name)' is quarantined"))
        }
      }
    }
  }

  // MARK: Cycles

  /// The strongly connected components with more than one member, in order of their first: Tarjan's, without recursion,
  /// since a chain may be as long as there are services.
  private func tangles() -> [[Int]] {
    let count = edges.count
    var index = [Int](repeating: -1, count: count), low = index
    var onStack = [Bool](repeating: false, count: count)
    var stack: [Int] = []
    var path: [(place: Int, next: Int)] = []
    var counter = 0
    var result: [[Int]] = []
    for root in 0..<count where index[root] < 0 {
      path.append((root, 0))
      while let (place, next) = path.last {
        if next == 0 {
          index[place] = counter
          low[place] = counter
          counter += 1
          stack.append(place)
          onStack[place] = true
        }
        if next < edges[place].count {
          path[path.count - 1].next = next + 1
          let target = edges[place][next].target
          if index[target] < 0 {
            path.append((target, 0))
          } else if onStack[target] {
            low[place] = min(low[place], index[target])
          }
          continue
        }
        // A service without edges is entered and left with `next` 0.
        path.removeLast()
        if let parent = path.last?.place { low[parent] = min(low[parent], low[place]) }
        guard low[place] == index[place] else { continue }
        var members: [Int] = []
        while let last = stack.popLast() {
          onStack[last] = false
          members.append(last)
          if last == place { break }
        }
        if members.count > 1 { result.append(members.sorted()) }
      }
    }
    return result.sorted { ($0.first ?? 0) < ($1.first ?? 0) }
  }

  private mutating func report(_ members: [Int]) {
    let within = Set(members)
    let large = members.count > Self.tangle
    let common = large ? cycle(from: members[0], within: within) : []
    for member in members {
      let path = large ? common : cycle(from: member, within: within)
      guard let place = edges[member].first(where: { large ? within.contains($0.target) : $0.target == path[1] })
      else { continue }
      let why =
        large && !common.contains(member)
        ? "'\(specs[member].name)' is one of \(members.count) services that wait for each other in cycles, this one among "
          + "them" : "none of them could ever start"
      say(member, diagnostic(at: references[member][place.reference], "dependency cycle: \(text(of: path))", why))
    }
  }

  /// A shortest one through `start`, which is its first and its last.
  private func cycle(from start: Int, within: Set<Int>) -> [Int] {
    var from: [Int: Int] = [:]
    var queue = [start]
    var head = 0
    while head < queue.count {
      let place = queue[head]
      head += 1
      for edge in edges[place] where within.contains(edge.target) {
        if edge.target == start {
          // Backwards: the start, the last before it, …, the start.
          var path = [start, place]
          while let last = path.last, last != start, let before = from[last] { path.append(before) }
          return path.reversed()
        }
        if from[edge.target] == nil {
          from[edge.target] = place
          queue.append(edge.target)
        }
      }
    }
    return [start, start]
  }

  private func text(of path: [Int]) -> String {
    var names = path.map { specs[$0].name.text }
    if names.count > Self.namesShown {
      let left = names.count - Self.namesShown
      names.replaceSubrange((Self.namesShown - 2)..<(names.count - 2), with: ["(\(left) more)"])
    }
    return names.joined(separator: " → ")
  }
}
