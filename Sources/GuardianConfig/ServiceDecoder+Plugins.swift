import GuardianModel

// `plugins:` of a service's file: its parts that can be switched off, and how.

extension ServiceDecoder {
  mutating func plugins(_ node: Node?, _ spec: inout ServiceSpec) {
    guard let node, let fields = fields(of: node, at: "plugins", called: "'plugins'") else { return }
    spec.plugins.retryAfter =
      duration(fields["retry-after"], "'retry-after'", atLeast: .seconds(1)) ?? spec.plugins.retryAfter
    if let mode = word(fields["search"], "'search'", SearchMode.self) { spec.plugins.search = mode }
    if let when = when(fields["when"]) { spec.plugins.when = when }
    let items = list(fields["list"], "'list'") ?? []
    if items.isEmpty, fields["directory"] == nil, !isDefaults {
      warn(node, "'plugins' has no effect", "there is none in 'list', and no 'directory'")
    }
    var names: [String: Node] = [:]
    var replaced: [(from: [String], by: String)] = []
    for item in items {
      guard let fields = self.fields(of: item, at: "plugins.list[]", called: "a plugin") else { continue }
      guard let name = self.name(fields["name"], of: item, "plugin", &names) else { continue }
      var plugin = PluginSpec(name: name)
      guard ways(fields, of: &plugin, called: "plugin '\(name)'", item) else { continue }
      noteUnmatched(plugin, fields, spec.process.command)
      for replacement in plugin.replaceArguments {
        if let first = replaced.first(where: { $0.from == replacement.from }) {
          warn(
            fields["replace-arguments"],
            "plugins '\(first.by)' and '\(name)' both replace '\(brief(replacement.from.joined(separator: " ")))'",
            "while both are off it is what '\(first.by)' makes of it; 'remove-from' takes one element out of a list")
        } else {
          replaced.append((replacement.from, name))
        }
      }
      spec.process.plugins.append(plugin)
    }
    let files = spec.declaredFiles.count
    if let list = fields["list"], files > RepairSpec.mostRestored,
      spec.process.plugins.contains(where: { !$0.goodCopy.isEmpty })
    {
      fault(
        list, "\(files) files of which good copies are kept",
        "a service has at most \(RepairSpec.mostRestored), those of 'restore' included")
    }
    directory(fields, &spec)
    acknowledge(fields["acknowledge"], &spec)
  }

  /// `incident`, `idle`, `02:00-05:00`.
  private mutating func when(_ node: Node?) -> PluginTime? {
    guard let node, let text = text(node, "'when'") else { return nil }
    switch text {
    case "incident": return .incident
    case "idle": return .idle
    default: break
    }
    let ends = text.split(separator: "-", omittingEmptySubsequences: false).map { Scalars.minuteOfDay(String($0)) }
    guard ends.count == 2, let from = ends[0], let to = ends[1] else {
      fault(node, "'when' cannot be '\(brief(text))'", "it is incident, idle, or a time of day like \"02:00-05:00\"")
      return nil
    }
    if from == to {
      fault(node, "'when' is a time of day of no length", "it begins and ends at the same minute")
      return nil
    }
    return .daily(from: from, to: to)
  }

  /// - Returns: False: nothing is left to switch it off with, which has been said.
  private mutating func ways(_ fields: Fields, of plugin: inout PluginSpec, called name: String, _ item: Node) -> Bool {
    let isEntry = plugin.name.isEmpty
    if let node = fields["environment"] { plugin.environment = environment(node, "'environment'") }
    for node in list(fields["unset"], "'unset'") ?? [] {
      guard let text = variable(node, "an element of 'unset'") else { continue }
      if plugin.environment.contains(where: { $0.name == text }) {
        fault(node, "\(brief(text)) is both in 'environment' and in 'unset'", "it can be set or missing")
      } else {
        plugin.unset.append(text)
      }
    }
    for node in list(fields["remove-from"], "'remove-from'") ?? [] {
      if let removal = removal(node) { plugin.removeFrom.append(removal) }
    }
    for node in several(fields["preload"]) {
      guard let text = text(node, "'preload'") else { continue }
      if text.isEmpty || text.utf8.contains(where: { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: ":") }) {
        fault(
          node, "'preload' cannot be '\(brief(text))'", "it is one library as LD_PRELOAD names it, or its file's name")
      } else {
        plugin.preload.append(text)
      }
    }
    for node in list(fields["arguments"], "'arguments'") ?? [] {
      if let text = argument(node, "an element of 'arguments'") { plugin.arguments.append(text) }
    }
    for node in list(fields["remove-arguments"], "'remove-arguments'") ?? [] {
      if let words = words(node, "an element of 'remove-arguments'") { plugin.removeArguments.append(words) }
    }
    for node in list(fields["replace-arguments"], "'replace-arguments'") ?? [] {
      guard let pair = self.fields(of: node, at: "plugins.list[].replace-arguments[]", called: "a replacement") else {
        continue
      }
      guard let from = pair["from"], let to = pair["to"] else {
        if !pair.hasMisspelt {
          fault(node, "a replacement without 'from' and 'to'", "as in {from: --fast, to: --safe}")
        }
        continue
      }
      if let from = words(from, "'from'"), let to = words(to, "'to'") {
        plugin.replaceArguments.append(ArgumentReplacement(from: from, to: to))
      }
    }
    for node in several(fields["good-copy"]) {
      if isEntry {
        fault(node, "'good-copy' in 'entry'", "copies are kept of files that are named: give each a plugin in 'list'")
        continue
      }
      guard let path = exactPath(node, "'good-copy'") else { continue }
      if plugin.goodCopy.contains(path) {
        fault(node, "\(brief(path)) is here twice")
      } else {
        plugin.goodCopy.append(path)
      }
    }
    for (key, mayPlace) in [("hide", isEntry), ("empty", isEntry)] {
      for node in several(fields[key]) {
        guard let path = mayPlace ? entryPath(node, "'\(key)'") : exactPath(node, "'\(key)'") else { continue }
        if plugin.goodCopy.contains(path) {
          fault(node, "\(brief(path)) is both in '\(key)' and in 'good-copy'", "it can be one of them")
          continue
        }
        if key == "hide" {
          plugin.hide.append(path)
        } else if plugin.hide.contains(path) {
          fault(node, "\(brief(path)) is both in 'hide' and in 'empty'", "it can be absent or empty")
        } else {
          plugin.empty.append(path)
        }
      }
    }
    if plugin.hasNoWay {
      // Whatever is there and gave nothing has been reported, unless it is really empty.
      let given = Self.ways.compactMap { fields[$0] }.first
      if given == nil && !fields.hasMisspelt || given?.isEmpty == true {
        fault(item, "\(name) cannot be switched off", "it needs one of " + Self.ways.joined(separator: ", "))
      }
      return false
    }
    let mounted = [("hide", plugin.hide), ("empty", plugin.empty), ("good-copy", plugin.goodCopy)].first {
      !$0.1.isEmpty
    }
    guard !context.canHide, let key = mounted?.0, let node = fields[key] else { return true }
    // The service runs all the same; safe mode has to do without this.
    error(
      node, "'\(key)' needs CAP_SYS_ADMIN",
      "guardian does not have it, so safe mode leaves this path alone",
      blocks: false)
    plugin.hide = []
    plugin.empty = []
    plugin.goodCopy = []
    return !plugin.hasNoWay
  }

  /// As in the table.
  private static let ways = KeyTable.service.words(under: "plugins.list[]").filter { $0 != "name" }

  /// One or several.
  private func several(_ node: Node?) -> [Node] {
    guard let node else { return [] }
    if case .list(let items) = node.content { return items }
    return [node]
  }

  /// One argument, or a list of some that follow each other.
  private mutating func words(_ node: Node, _ name: String) -> [String]? {
    let nodes = several(node)
    if nodes.isEmpty {
      fault(node, "\(name) is empty", "it needs at least one argument")
      return nil
    }
    let words = nodes.compactMap { argument($0, name) }
    return words.count == nodes.count ? words : nil
  }

  /// The name of a variable that the definition may set.
  private mutating func variable(_ node: Node, _ name: String) -> String? {
    guard let text = text(node, name) else { return nil }
    let valid = text.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7f && $0 != UInt8(ascii: "=") }
    guard valid, !text.isEmpty else {
      fault(node, "'\(brief(text))' is no name of a variable", "blanks and '=' cannot be in one")
      return nil
    }
    if Self.reserved.contains(text) {
      fault(node, "\(text) is set by guardian itself", "it tells the program about this run")
      return nil
    }
    return text
  }

  private mutating func removal(_ node: Node) -> ListRemoval? {
    guard let fields = fields(of: node, at: "plugins.list[].remove-from[]", called: "an element of 'remove-from'")
    else {
      return nil
    }
    guard let item = fields["item"], fields["variable"] != nil || fields["argument"] != nil else {
      if !fields.hasMisspelt {
        fault(
          node, "an element of 'remove-from' needs 'item', and 'variable' or 'argument'",
          "as in {variable: WEB_PLUGINS, item: social}")
      }
      return nil
    }
    if let second = fields["argument"], fields["variable"] != nil {
      fault(second, "'variable' and 'argument' in one element of 'remove-from'", "write two")
      return nil
    }
    var separator = ","
    if let node = fields["separator"] {
      guard let text = text(node, "'separator'") else { return nil }
      guard (1...16).contains(text.utf8.count) else {
        fault(node, "'separator' must have 1 to 16 bytes", "it stands between the elements, as in \":\"")
        return nil
      }
      separator = text
    }
    guard let text = argument(item, "'item'") else { return nil }
    if text.isEmpty {
      fault(item, "'item' is empty", "it is the element that is to be missing")
      return nil
    }
    if let node = fields["variable"] {
      guard let name = variable(node, "'variable'") else { return nil }
      if name == "LD_PRELOAD" {
        fault(node, "LD_PRELOAD has two kinds of separators", "'preload: \(brief(text))' knows both")
        return nil
      }
      return ListRemoval(.variable(name), item: text, separator: separator)
    }
    guard let node = fields["argument"], let option = argument(node, "'argument'") else { return nil }
    if option.isEmpty || option.contains("=") {
      fault(node, "'argument' cannot be '\(brief(option))'", "it is the option before the list, as in --plugins")
      return nil
    }
    return ListRemoval(.argument(option), item: text, separator: separator)
  }

  private mutating func noteUnmatched(_ plugin: PluginSpec, _ fields: Fields, _ command: [String]) {
    guard !isDefaults, !command.isEmpty else { return }
    for words in plugin.unmatched(in: command) {
      warn(
        fields["remove-arguments"] ?? fields["replace-arguments"] ?? fields["remove-from"],
        "'\(brief(words.joined(separator: " ")))' is not in 'command'",
        "so nothing of it changes while plugin '\(plugin.name)' is off")
    }
  }

  // MARK: A directory

  /// A path, or one that begins with the entry's own.
  private mutating func entryPath(_ node: Node, _ name: String) -> String? {
    if case .scalar(let text, _) = node.content, text == "%p" || text.hasPrefix("%p/") {
      guard text.split(separator: "/").allSatisfy({ $0 != ".." && $0 != "." }) else {
        fault(node, "\(name) cannot be '\(brief(text))'", "write the path itself, without '.' and '..'")
        return nil
      }
      return self.text(node, name)
    }
    return exactPath(node, name)
  }

  private mutating func directory(_ fields: Fields, _ spec: inout ServiceSpec) {
    guard let node = fields["directory"] else {
      for key in ["only", "entry"] where fields[key] != nil && !isDefaults {
        warn(fields[key], "'\(key)' has no effect", "there is no 'directory'")
      }
      return
    }
    guard let path = exactPath(node, "'directory'") else { return }
    var directory = PluginDirectory(path: path)
    for node in several(fields["only"]) {
      guard let pattern = text(node, "'only'") else { continue }
      if pattern.isEmpty || pattern.contains("/") || pattern.utf8.count > 255 {
        fault(node, "'only' cannot be '\(brief(pattern))'", "it is a pattern for names of entries, as in \"*.so\"")
      } else {
        directory.only.append(pattern)
      }
    }
    if let node = fields["entry"] {
      guard let fields = self.fields(of: node, at: "plugins.list[]", called: "'entry'") else { return }
      if let name = fields["name"] { fault(name, "'name' in 'entry'", "each plugin is called by its entry's name") }
      var way = PluginSpec(name: "")
      guard ways(fields, of: &way, called: "an entry", node) else { return }
      for text in way.texts {
        guard let what = PluginDirectory.placeholderFault(text) else { continue }
        fault(
          node, "'\(brief(text))' in 'entry' has '\(brief(what))'", "valid are %n, %s, %p, and %% for a percent sign")
      }
      directory.way = way
    } else if !context.canHide {
      error(
        node, "'directory' needs CAP_SYS_ADMIN",
        "guardian does not have it and cannot hide an entry, so none of them is a plugin; 'entry' names other ways",
        blocks: false)
      return
    }
    spec.process.pluginDirectory = directory
    guard !isDefaults else { return }
    switch context.entries(path) {
    case .failure(let problem):
      warn(node, "'directory': \(brief(path)): \(problem.what)", "it is looked at again before each start")
    case .success(let entries):
      let (found, left) = directory.plugins(of: entries, beside: spec.process.plugins)
      if left > 0 {
        warn(
          node, "'directory': \(left) more entries than there can be plugins",
          "of one service there are at most \(PluginDirectory.most); 'only' can say which")
      }
      let unmatched = found.filter { !$0.unmatched(in: spec.process.command).isEmpty }.map(\.name)
      if !unmatched.isEmpty, !spec.process.command.isEmpty {
        let names = unmatched.prefix(5).joined(separator: ", ") + (unmatched.count > 5 ? ", …" : "")
        warn(
          fields["entry"], "what 'entry' removes or replaces is not in 'command' for \(names)", "nothing of it changes")
      }
      spec.process.plugins += found
    }
  }

  // MARK: Confirmation

  private mutating func acknowledge(_ node: Node?, _ spec: inout ServiceSpec) {
    guard let node, let fields = fields(of: node, at: "plugins.acknowledge", called: "'acknowledge'") else { return }
    switch (fields["check"], fields["status"]) {
    case (nil, nil):
      if !fields.hasMisspelt {
        fault(node, "'acknowledge' without 'check' or 'status'", "as in {status: \"safe mode\"}")
      }
    case (.some, let status?): fault(status, "'check' and 'status' in one 'acknowledge'", "one confirmation is enough")
    case (nil, let status?):
      guard let text = oneLine(status, "'status'") else { return }
      // Longer ones are cut off where they are heard.
      guard (1...200).contains(text.utf8.count) else {
        fault(status, "'status' must have 1 to 200 bytes", "it is how a STATUS= of the program begins")
        return
      }
      spec.plugins.acknowledge = .status(text)
    case (let check?, nil):
      guard let name = text(check, "'check'") else { return }
      guard isDefaults || spec.checks.contains(where: { $0.name == name }) else {
        wrong(
          check, "'check'", "the name of one of 'checks'",
          suggestion: nearestWord(to: name, among: spec.checks.map(\.name)))
        return
      }
      if spec.ready == .check, spec.checks.allSatisfy({ $0.name == name }), !isDefaults {
        fault(
          check, "'ready: check' with no other check than '\(brief(name))'",
          "it is probed only while plugins are off, and says nothing about health")
      }
      spec.plugins.acknowledge = .check(name)
    }
  }
}

extension PluginSpec {
  /// All that may have placeholders.
  fileprivate var texts: [String] {
    var all = environment.map(\.value) + removeFrom.map(\.item) + preload + arguments
    all += removeArguments.joined()
    for replacement in replaceArguments { all += replacement.from + replacement.to }
    return all + hide + empty
  }
}
