/// What an operator may want of the plugins of one service. An enabled or disabled plugin is so from the next start on.
package enum PluginOrder: Hashable, Sendable {
  case enable(String)
  /// Off until it is enabled; the service is not degraded by it.
  case disable(String)
  /// Guardian never switches it; or may again.
  case pin(String), unpin(String)
  /// Find the one that is to blame, as soon as the service is settled in safe mode; which it is brought to first.
  case search

  package var name: String {
    switch self {
    case .enable: "enable"
    case .disable: "disable"
    case .pin: "pin"
    case .unpin: "unpin"
    case .search: "search"
    }
  }
  /// Nil: of all.
  package var plugin: String? {
    switch self {
    case .enable(let name), .disable(let name), .pin(let name), .unpin(let name): name
    case .search: nil
    }
  }
  package init?(_ word: String, plugin: String?) {
    switch (word, plugin) {
    case ("enable", let name?): self = .enable(name)
    case ("disable", let name?): self = .disable(name)
    case ("pin", let name?): self = .pin(name)
    case ("unpin", let name?): self = .unpin(name)
    case ("search", nil): self = .search
    default: return nil
    }
  }
  /// For people who are shown the words.
  package static let meanings = [
    "enable": "on again, from the next start on", "disable": "off, from the next start on",
    "pin": "guardian never switches it", "unpin": "guardian may switch it again",
    "search": "find the one that is to blame",
  ]
  package static let words = ["enable", "disable", "pin", "unpin", "search"]
}

/// One plugin of one service as `plugins` shows it.
package struct PluginStatus: Hashable, Sendable {
  package enum State: String, Hashable, Sendable, CaseIterable {
    case on, off
    /// Switched off with others, or by a search that is not over: it may be to blame.
    case suspect
    /// On again after it was to blame, and not yet trusted.
    case probation
  }
  package var name: String
  package var state = State.on
  /// It is off in the present run; of a service that does not run: it will be in the next one.
  package var off = false
  /// Who has switched it off: `ladder`, `search`, `operator`, `switch`; empty: nobody.
  package var by = ""
  /// When it is due to be tried again, or its probation is over; nil: never by itself.
  package var until: WallTime?
  /// How likely it is to be to blame, in thousandths; nil: nothing is known.
  package var suspicion: Int?
  package var pinned = false
  /// Those of its files that are not as their good copies are.
  package var files: [FileChange] = []
  /// To blame only together with this one.
  package var partner = ""
  package init(name: String) { self.name = name }
}
