// What plugins that are off make of arguments and of lists. Several compose in their order: each finds what those before
// it have left. What is to be removed and is not there is fine.

extension ListRemoval {
  /// Without the element, wherever it is; blanks around an element are none of it.
  package func applied(to text: String) -> String {
    let elements = text.split(separator: separator, omittingEmptySubsequences: false).map(String.init)
    let wanted = item.split(separator: separator, omittingEmptySubsequences: false).map { String($0).trimmed }
    let kept = removing(elements.map(\.trimmed)) { matchLength(wanted, $0) }
    return kept.count == elements.count ? text : kept.map { elements[$0] }.joined(separator: separator)
  }

  /// Of a list in an argument.
  fileprivate func applied(to arguments: [String], at option: String) -> [String] {
    var result = arguments
    for index in result.indices {
      if result[index].hasPrefix(option + "=") {
        result[index] = option + "=" + applied(to: String(result[index].dropFirst(option.count + 1)))
      } else if index > 0, result[index - 1] == option {
        result[index] = applied(to: result[index])
      }
    }
    return result
  }
}

/// `LD_PRELOAD` without a library. Its separators are blank and colon; it is left as it is where the library is not in it.
///
/// - Parameter library: As it is written there, or the name of its file alone.
package func preload(_ text: String, without library: String) -> String {
  let all = text.split { $0 == " " || $0 == ":" }
  let kept = all.filter { element in
    element != library && (library.contains("/") || element.split(separator: "/").last.map(String.init) != library)
  }
  return kept.count == all.count ? text : kept.joined(separator: ":")
}

extension [PluginSpec] {
  /// The command while these plugins are off. Its program stays. What one of them adds comes after everything else, and
  /// none of the others finds anything in it.
  package func switchedOff(in command: [String]) -> [String] {
    guard let program = command.first else { return command }
    var arguments = Array<String>(command.dropFirst())
    for plugin in self {
      for words in plugin.removeArguments {
        arguments = removing(arguments) { argumentLength(words, $0) }.map { arguments[$0] }
      }
      for removal in plugin.removeFrom {
        if case .argument(let option) = removal.list { arguments = removal.applied(to: arguments, at: option) }
      }
      for replacement in plugin.replaceArguments {
        var result: [String] = []
        var index = 0
        while index < arguments.count {
          if let length = argumentLength(replacement.from, arguments[index...]) {
            result += replacement.to
            index += length
          } else {
            result.append(arguments[index])
            index += 1
          }
        }
        arguments = result
      }
    }
    return [program] + arguments + flatMap(\.arguments)
  }
}

extension PluginSpec {
  /// What it is to remove from the command, or to replace in it, and that is not there.
  package func unmatched(in command: [String]) -> [[String]] {
    let arguments = Array(command.dropFirst())
    func isThere(_ words: [String]) -> Bool {
      arguments.indices.contains { argumentLength(words, arguments[$0...]) != nil }
    }
    var missing = (removeArguments + replaceArguments.map(\.from)).filter { !isThere($0) }
    for removal in removeFrom {
      if case .argument(let option) = removal.list, removal.applied(to: arguments, at: option) == arguments {
        missing.append([option, removal.item])
      }
    }
    return missing
  }
}

extension ProcessSpec {
  func hasSamePlugins(as other: ProcessSpec) -> Bool {
    pluginDirectory == other.pluginDirectory
      && plugins.elementsEqual(other.plugins) { mine, its in
        var mine = mine
        mine.sight = its.sight
        return mine == its
      }
  }
  /// As its definition has it, whatever is found in `plugins.directory` and of files.
  package var asDefined: ProcessSpec {
    var bare = withoutEntries
    bare.forgetSights()
    return bare
  }
}

extension ProcessSpec {
  mutating func forgetSights() {
    for place in plugins.indices where plugins[place].sight != nil { plugins[place].sight = nil }
  }
  package var withoutEntries: ProcessSpec {
    var bare = self
    bare.plugins.removeAll { $0.entry != nil }
    return bare
  }
  /// With what has been seen of plugins by the name of another definition: the entries of a directory that could not be
  /// looked at, and how files are.
  package func withWhatIsKnown(from other: ProcessSpec) -> ProcessSpec {
    var known = self
    for place in known.plugins.indices where !known.plugins[place].goodCopy.isEmpty {
      let plugin = known.plugins[place]
      guard plugin.sight == nil else { continue }
      let seen = other.plugins.first { $0.name == plugin.name && $0.goodCopy == plugin.goodCopy }
      if let sight = seen?.sight { known.plugins[place].sight = sight }
    }
    if pluginDirectory != nil, pluginDirectory == other.pluginDirectory, !plugins.contains(where: { $0.entry != nil }) {
      let names = Set(plugins.map(\.name))
      known.plugins += other.plugins.filter { $0.entry != nil && !names.contains($0.name) }
    }
    return known
  }
}

extension PluginDirectory {
  /// The plugins that its entries are, in order of their names.
  ///
  /// Names are made valid and unique: what cannot be in one is written as a hyphen, and then, as where a name is too long,
  /// a number made from the entry's own name follows, so that a plugin keeps its name whatever else comes and goes. What
  /// begins with a dot is hidden, or a backup of guardian's, and no plugin.
  ///
  /// - Parameter listed: The plugins of the file, which win by name.
  /// - Returns: Also how many more there would have been.
  package func plugins(of entries: [String], beside listed: [PluginSpec]) -> (found: [PluginSpec], left: Int) {
    var names = Set(listed.map(\.name))
    var found: [PluginSpec] = []
    var left = 0
    for entry in entries.sorted(by: { $0.utf8.lexicographicallyPrecedes($1.utf8) }) {
      guard !entry.hasPrefix("."), !entry.isEmpty, only.isEmpty || only.contains(where: { matches($0, entry) }),
        names.insert(Self.pluginName(entry)).inserted
      else { continue }
      if listed.count + found.count >= Self.most { left += 1 } else { found.append(plugin(entry)) }
    }
    return (found, left)
  }

  private func plugin(_ entry: String) -> PluginSpec {
    let place = (path == "/" ? "" : path) + "/" + entry
    var plugin = PluginSpec(name: Self.pluginName(entry))
    plugin.entry = place
    guard let way else {
      plugin.hide = [place]
      return plugin
    }
    func fill(_ text: String) -> String { Self.filled(text, entry, place) }
    plugin.environment = way.environment.map { EnvironmentVariable($0.name, fill($0.value)) }
    plugin.unset = way.unset
    plugin.removeFrom = way.removeFrom.map { ListRemoval($0.list, item: fill($0.item), separator: $0.separator) }
    plugin.preload = way.preload.map(fill)
    plugin.arguments = way.arguments.map(fill)
    plugin.removeArguments = way.removeArguments.map { $0.map(fill) }
    plugin.replaceArguments = way.replaceArguments.map {
      ArgumentReplacement(from: $0.from.map(fill), to: $0.to.map(fill))
    }
    plugin.hide = way.hide.map(fill)
    plugin.empty = way.empty.map(fill)
    return plugin
  }

  /// `social.so` for `social.so`, `my-plugin-4fa2` for `my plugin`.
  package static func pluginName(_ entry: String) -> String {
    var name: [UInt8] = entry.utf8.map { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"):
        byte
      default: UInt8(ascii: "-")
      }
    }
    guard !name.elementsEqual(entry.utf8) || name.count > 64 else { return entry }
    let digits = String(Fingerprint.of(entry.utf8) & 0xffff, radix: 16)
    name =
      name.prefix(64 - 5) + Array("-".utf8) + Array(String(repeating: "0", count: 4 - digits.count).utf8) + digits.utf8
    return String(decoding: name, as: UTF8.self)
  }

  /// What is wrong with a text that has placeholders; nil: nothing.
  package static func placeholderFault(_ text: String) -> String? {
    var percent = false
    for character in text {
      if percent, !"nsp%".contains(character) { return "%\(character)" }
      percent = !percent && character == "%"
    }
    return percent ? "%" : nil
  }

  private static func filled(_ text: String, _ entry: String, _ place: String) -> String {
    guard text.contains("%") else { return text }
    var result = ""
    var percent = false
    for character in text {
      guard percent else {
        if character == "%" { percent = true } else { result.append(character) }
        continue
      }
      percent = false
      switch character {
      case "n": result += entry
      case "s": result += entry.lastIndex(of: ".").map { String(entry[..<$0]) } ?? entry
      case "p": result += place
      default: result.append(character)
      }
    }
    return result
  }

  /// `*` is any text, `?` any character.
  private func matches(_ pattern: String, _ name: String) -> Bool {
    let pattern = Array(pattern), name = Array(name)
    var p = 0, n = 0
    var star: (pattern: Int, name: Int)?
    while n < name.count {
      if p < pattern.count, pattern[p] == "*" {
        star = (p, n)
        p += 1
      } else if p < pattern.count, pattern[p] == "?" || pattern[p] == name[n] {
        p += 1
        n += 1
      } else if let (place, taken) = star {
        star = (place, taken + 1)
        p = place + 1
        n = taken + 1
      } else {
        return false
      }
    }
    return pattern[p...].allSatisfy { $0 == "*" }
  }
}

/// The indices that stay when whatever `length` finds, from left to right, is removed.
private func removing(_ elements: [String], _ length: (ArraySlice<String>) -> Int?) -> [Int] {
  var kept: [Int] = []
  var index = 0
  while index < elements.count {
    if let found = length(elements[index...]) {
      index += max(1, found)
    } else {
      kept.append(index)
      index += 1
    }
  }
  return kept
}

/// How many elements at the beginning are the words; nil: they are not there.
private func matchLength(_ words: [String], _ elements: ArraySlice<String>) -> Int? {
  !words.isEmpty && elements.count >= words.count && elements.prefix(words.count).elementsEqual(words)
    ? words.count : nil
}

/// Likewise of arguments: `--option` and its value are also `--option=value`.
private func argumentLength(_ words: [String], _ arguments: ArraySlice<String>) -> Int? {
  if words.count == 2, words[0].hasPrefix("--"), arguments.first == words[0] + "=" + words[1] { return 1 }
  return matchLength(words, arguments)
}

extension String {
  fileprivate var trimmed: String {
    guard let first = firstIndex(where: { $0 != " " && $0 != "\t" }),
      let last = lastIndex(where: { $0 != " " && $0 != "\t" })
    else { return "" }
    return String(self[first...last])
  }
}
