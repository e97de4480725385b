/// One file of `switches.d`: what it turns off on this host, why, and for how long. It beats what the services' own files
/// say.
package struct Switch: Hashable, Sendable {
  package enum Services: Hashable, Sendable {
    case all
    /// In the file's order, each once; empty only where there are `groups`.
    case named([ServiceName])
  }
  package enum Plugins: Hashable, Sendable {
    case all
    /// In the file's order, each once.
    case named([String])
    package static let none = Plugins.named([])
  }
  /// The file's name, without its directory: `payments-3.2.yaml`.
  package var file: String
  package var reason: String
  /// Nil: as long as the file is there.
  package var until: WallTime?
  package var services: Services
  /// Groups, all services of which are concerned too: `@shop`. In the file's order, each once.
  package var groups: [ServiceName] = []
  package var plugins = Plugins.none
  /// In the ladder's order, each once.
  package var steps: [Step] = []
  /// Services are restarted for ever, as with `escalation: off`.
  package var ladder = false

  package init(file: String, reason: String, until: WallTime? = nil, services: Services) {
    self.file = file
    self.reason = reason
    self.until = until
    self.services = services
  }

  /// - Parameter groups: Those that the service is in.
  package func concerns(_ service: ServiceName, in groups: [ServiceName]) -> Bool {
    switch services {
    case .all: true
    case .named(let names): names.contains(service) || self.groups.contains(where: groups.contains)
    }
  }

  package func turnsOff(plugin: String) -> Bool {
    switch plugins {
    case .all: true
    case .named(let names): names.contains(plugin)
    }
  }

  /// `plugins payments, social; steps repair, quarantine; the ladder`
  package var what: String {
    var parts: [String] = []
    switch plugins {
    case .all: parts.append("all plugins")
    case .named(let names):
      if !names.isEmpty { parts.append("plugin\(names.count == 1 ? "" : "s") " + names.joined(separator: ", ")) }
    }
    if !steps.isEmpty {
      parts.append("step\(steps.count == 1 ? "" : "s") " + steps.map(\.rawValue).joined(separator: ", "))
    }
    if ladder { parts.append("the ladder") }
    return parts.joined(separator: "; ")
  }
}

/// The switches that are in force for one service. What several of them turn off is off; the first by its file's name is the
/// one that is told.
package struct Switches: Hashable, Sendable {
  package static let none = Switches([])
  /// By the files' names.
  package let all: [Switch]
  /// No number of strikes moves it up.
  package let ladder: Bool
  private let steps: Set<Step>

  package init(_ all: [Switch]) {
    self.all = all
    ladder = all.contains { $0.ladder }
    steps = Set(all.flatMap(\.steps))
  }

  package var isEmpty: Bool { all.isEmpty }
  package func turnsOff(_ step: Step) -> Bool { steps.contains(step) }
  package func first(turningOff plugin: String) -> Switch? { all.first { $0.turnsOff(plugin: plugin) } }
  package func first(turningOff step: Step) -> Switch? { all.first { $0.steps.contains(step) } }
  package var firstOfLadder: Switch? { all.first { $0.ladder } }
}

/// A switch as `status` shows it.
package struct SwitchStatus: Hashable, Sendable {
  /// `Switch.what`.
  package var what: String
  package var reason: String
  package var until: WallTime?
  package var file: String
  package init(what: String, reason: String, until: WallTime?, file: String) {
    self.what = what
    self.reason = reason
    self.until = until
    self.file = file
  }
  package init(_ one: Switch) {
    self.init(what: one.what, reason: one.reason, until: one.until, file: one.file)
  }
}

extension Switch {
  /// As it is kept: file, end (wall, ns, or -), services, plugins, steps, ladder and reason, with tabs between them.
  package var text: String {
    let services: String
    switch self.services {
    case .all: services = "*"
    case .named(let names): services = (names.map(\.text) + groups.map { "@\($0)" }).joined(separator: ",")
    }
    let plugins: String
    switch self.plugins {
    case .all: plugins = "*"
    case .named(let names): plugins = names.joined(separator: ",")
    }
    return [
      file, until.map { String($0.nanoseconds) } ?? "-", services, plugins,
      steps.map(\.rawValue).joined(separator: ","), ladder ? "off" : "", reason,
    ].joined(separator: "\t")
  }

  /// Nil for what is not of that form.
  package init?(text: String) {
    let parts = text.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
    guard parts.count == 7, !parts[0].isEmpty else { return nil }
    func list(_ text: String) -> [String] { text.split(separator: ",").map(String.init) }
    let words = list(parts[2])
    let names = words.filter { !$0.hasPrefix("@") }.compactMap { ServiceName($0) }
    let groups = words.filter { $0.hasPrefix("@") }.compactMap { ServiceName(String($0.dropFirst())) }
    guard parts[2] == "*" || (!words.isEmpty && names.count + groups.count == words.count) else { return nil }
    self.init(file: parts[0], reason: parts[6], services: parts[2] == "*" ? .all : .named(names))
    if parts[2] != "*" { self.groups = groups }
    if parts[1] != "-" {
      guard let nanoseconds = Int64(parts[1]) else { return nil }
      until = WallTime(nanoseconds: nanoseconds)
    }
    plugins = parts[3] == "*" ? .all : .named(list(parts[3]))
    steps = list(parts[4]).compactMap { Step(rawValue: $0) }
    ladder = parts[5] == "off"
  }
}
