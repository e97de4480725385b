package import GuardianModel

/// What a file of `switches.d` gave.
package struct ParsedSwitch: Sendable {
  /// Nil after any error.
  package var value: Switch?
  /// In the order of the file.
  package var diagnostics: [Diagnostic]
  /// The services and plugins that it names, with their places: whether they are there is for those to say who know them.
  package var references: [SwitchReference] = []
}

/// A name in a switch's file, and where.
package struct SwitchReference: Hashable, Sendable {
  package enum Kind: Hashable, Sendable { case service, group, plugin }
  package var kind: Kind
  package var name: String
  package var line: Int, column: Int
  package var endColumn: Int?
}

extension Configuration {
  /// One switch is a sentence or two.
  package static let largestSwitch = 1 << 16
  /// Names in one switch.
  static let mostNames = 1_000

  /// Reads `switches.d/NAME.yaml`.
  ///
  /// - Parameters:
  ///   - name: The file's name, without its directory.
  ///   - file: The path shown in diagnostics.
  package static func parseSwitch(name: String, bytes: [UInt8], file: String) -> ParsedSwitch {
    var log = DiagnosticLog()
    guard let text = SourceText.checked(bytes, file: file, log: &log), let composed = Composer.compose(text, log: &log)
    else { return ParsedSwitch(value: nil, diagnostics: log.sorted()) }
    guard let root = composed else {
      log.fault(
        file: file, what: "the file is empty",
        why: "a switch needs 'reason', 'services' and what it turns off: 'plugins', 'steps' or 'ladder'")
      return ParsedSwitch(value: nil, diagnostics: log.sorted())
    }
    // Nothing of the machine is asked: no switch names a user or a path.
    let context = ConfigurationContext(resolveUser: { _, _ in .failure(.init("not asked")) })
    var decoder = ServiceDecoder(context: context, log: log, mainFile: file)
    var references: [SwitchReference] = []
    let value = decoder.switchFile(root, named: name, &references)
    let valid = decoder.log.blocked ? nil : value
    return ParsedSwitch(
      value: valid, diagnostics: decoder.log.sorted(), references: valid == nil ? [] : references)
  }
}

extension ServiceDecoder {
  /// Whatever could be read, to be used only if `log` is not blocked.
  fileprivate mutating func switchFile(
    _ root: Node, named name: String, _ references: inout [SwitchReference]
  ) -> Switch? {
    guard let fields = fields(of: root, at: "", in: .switches, called: "a switch") else { return nil }
    if fields["reason"] == nil, !fields.hasMisspelt {
      fault(root, "no 'reason'", "whoever finds something turned off wants to know why, as in 'reason: OPS-123, …'")
    }
    let reason = oneLine(fields["reason"], "'reason'") ?? ""
    if let node = fields["reason"], case .scalar(let text, plain: false) = node.content, text.isEmpty {
      fault(node, "'reason' is empty", "whoever finds something turned off wants to know why")
    }
    var result = Switch(file: name, reason: reason, services: .all)
    if let node = fields["until"] { result.until = time(node, "'until'") }
    if let node = fields["services"] {
      if let (services, groups) = services(node, &references) { (result.services, result.groups) = (services, groups) }
    } else if !fields.hasMisspelt {
      fault(root, "no 'services'", "it is a list of names, as in [web], or all")
    }
    if let node = fields["plugins"] { result.plugins = plugins(node, &references) }
    if let node = fields["steps"] { result.steps = steps(node) }
    if let node = fields["ladder"] {
      if plain(node) == "off" {
        result.ladder = true
      } else {
        wrong(node, "'ladder'", "off", suggestion: ["no", "false"].contains(plain(node)) ? "off" : nil)
      }
    }
    if fields["plugins"] == nil, fields["steps"] == nil, fields["ladder"] == nil, !fields.hasMisspelt {
      fault(root, "the switch turns nothing off", "it needs 'plugins', 'steps' or 'ladder'")
    }
    if result.ladder, result.steps.contains(where: { $0 < .quarantine }) {
      warn(
        fields["steps"], "'steps' has no effect here but for quarantine",
        "with 'ladder: off' a service is only restarted")
    }
    return result
  }

  private mutating func time(_ node: Node, _ name: String) -> WallTime? {
    guard case .scalar(let text, _) = node.content, let time = WallTime(rfc3339: text) else {
      wrong(node, name, "a time", "with its zone, as in 2026-12-24T06:00:00Z or 2026-12-24T07:00:00+01:00")
      return nil
    }
    return time
  }

  private mutating func services(
    _ node: Node, _ references: inout [SwitchReference]
  ) -> (Switch.Services, groups: [ServiceName])? {
    if case .scalar(let text, _) = node.content {
      if text == "all" { return (.all, []) }
      wrong(
        node, "'services'", "a list of names, or all", "as in [web]", suggestion: nearestWord(to: text, among: ["all"]))
      return nil
    }
    guard let items = list(node, "'services'") else { return nil }
    guard !items.isEmpty else {
      fault(node, "'services' is empty", "it would turn nothing off; all services are 'services: all'")
      return nil
    }
    guard isShort(items, node, "'services'") else { return nil }
    var names: [ServiceName] = [], groups: [ServiceName] = []
    for item in items {
      guard let text = text(item, "an element of 'services'") else { continue }
      // No service's name begins so.
      if text.hasPrefix("@"), let group = ServiceName(String(text.dropFirst())) {
        if groups.contains(group) {
          fault(item, "group '\(text)' is here twice")
        } else {
          groups.append(group)
          references.append(
            SwitchReference(kind: .group, name: group.text, line: item.line, column: item.column))
        }
        continue
      }
      guard let name = ServiceName(text) else {
        wrong(item, "an element of 'services'", "the name of a service", "1 to 64 of a-z 0-9 . _ @ -; or @GROUP")
        continue
      }
      if names.contains(name) {
        fault(item, "service '\(name)' is here twice")
        continue
      }
      names.append(name)
      references.append(
        SwitchReference(kind: .service, name: text, line: item.line, column: item.column, endColumn: item.endColumn))
    }
    return names.isEmpty && groups.isEmpty ? nil : (.named(names), groups)
  }

  private mutating func plugins(_ node: Node, _ references: inout [SwitchReference]) -> Switch.Plugins {
    if plain(node) == "all" { return .all }
    guard case .list(let items) = node.content else {
      wrong(node, "'plugins'", "a list of names, or all", "as in [payments]")
      return .none
    }
    if items.isEmpty { fault(node, "'plugins' is empty", "it would turn nothing off; all of them are 'plugins: all'") }
    guard isShort(items, node, "'plugins'") else { return .none }
    var names: [String: Node] = [:], found: [String] = []
    for item in items {
      guard let name = name(item, of: item, "plugin", &names) else { continue }
      found.append(name)
      references.append(
        SwitchReference(kind: .plugin, name: name, line: item.line, column: item.column, endColumn: item.endColumn))
    }
    return .named(found)
  }

  private mutating func steps(_ node: Node) -> [Step] {
    guard let items = list(node, "'steps'") else { return [] }
    if items.isEmpty { fault(node, "'steps' is empty", "it would turn nothing off; the whole ladder is 'ladder: off'") }
    var found: Set<Step> = []
    for item in items {
      guard let step = word(item, "an element of 'steps'", Step.self) else { continue }
      if !found.insert(step).inserted { fault(item, "step '\(step.rawValue)' is here twice") }
    }
    return found.sorted()
  }

  private mutating func isShort(_ items: [Node], _ node: Node, _ name: String) -> Bool {
    if items.count <= Configuration.mostNames { return true }
    fault(node, "\(name) has \(items.count) elements", "at most \(Configuration.mostNames)")
    return false
  }
}

/// What is doubtful about switches beside the services that there are, which no file can tell alone. Never an error: the
/// same switches may well be given to many hosts.
package struct SwitchCheck {
  /// By the switch's file, in the order of each.
  package private(set) var found: [String: [Diagnostic]] = [:]

  /// Look-ups of the word that was meant.
  private static let suggestions = 100

  /// - Parameters:
  ///   - switches: With the path of each file as shown in diagnostics.
  ///   - services: The names of the plugins of each service that there is; without a valid definition: nil.
  ///   - groups: Those that each service is in.
  package init(
    _ switches: [(value: Switch, references: [SwitchReference], path: String)],
    services: [ServiceName: [String]?], groups: [ServiceName: [ServiceName]] = [:]
  ) {
    guard !switches.isEmpty else { return }
    lazy var names = services.keys.sorted().map(\.text)
    var left = Self.suggestions
    for one in switches {
      let concerned: [ServiceName] =
        switch one.value.services {
        case .all: services.keys.sorted()
        case .named(let list):
          list.filter { services[$0] != nil }
            + groups.keys.sorted().filter { name in
              !list.contains(name) && (groups[name] ?? []).contains(where: one.value.groups.contains)
            }
        }
      let isUnsure = concerned.contains { services[$0] == .some(nil) }
      let plugins = concerned.flatMap { (services[$0] ?? nil) ?? [] }
      let known = Set(plugins)
      for reference in one.references {
        func near(_ words: [String]) -> String? {
          guard left > 0 else { return nil }
          left -= 1
          return nearestWord(to: reference.name, among: words)
        }
        var said: (what: String, why: String, near: String?)?
        switch reference.kind {
        case .service:
          guard let name = ServiceName(reference.name), services[name] == nil else { continue }
          said = ("no service '\(reference.name)' here", "the switch does nothing to it", near(names))
        case .group:
          guard !groups.values.contains(where: { $0.contains { $0.text == reference.name } }) else { continue }
          said = (
            "no service is in group '@\(reference.name)' here", "the switch does nothing for it",
            near(Set(groups.values.joined()).sorted().map(\.text)).map { "@" + $0 }
          )
        case .plugin:
          guard !known.contains(reference.name), !isUnsure, !concerned.isEmpty else { continue }
          let why = concerned.count == 1 ? "'\(concerned[0])' has no plugin of that name" : "no service of it has one"
          said = ("unknown plugin '\(reference.name)'", why, near(plugins))
        }
        guard let said else { continue }
        found[one.value.file, default: []].append(
          Diagnostic(
            .warning, file: one.path, line: reference.line, column: reference.column, endColumn: reference.endColumn,
            what: said.what, why: said.why, suggestion: said.near))
      }
    }
  }
}
