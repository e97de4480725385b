package import GuardianModel

/// What a reload came to, in one line; a second one names those that go on as they were until their next start.
package func reloadText(services: Int, _ change: ReloadChange) -> String {
  func list(_ names: [String]) -> String {
    let shown = names.prefix(8).map { printable($0) }.joined(separator: ", ")
    return names.count > 8 ? shown + ", …" : shown
  }
  var parts = ["\(services) \(services == 1 ? "service" : "services")"]
  for (word, names) in [("added", change.added), ("changed", change.changed), ("removed", change.removed)]
  where !names.isEmpty {
    parts.append("\(names.count) \(word) (\(list(names)))")
  }
  if change.unchanged > 0, parts.count > 1 { parts.append("\(change.unchanged) unchanged") }
  if parts.count == 1 { parts.append("nothing changed") }
  var text = "configuration read again: " + parts.joined(separator: ", ") + "\n"
  if !change.nextStart.isEmpty { text += "in part from the next start on: \(list(change.nextStart))\n" }
  return text
}

/// What an upgrade came to, in one line.
package func upgradedText(_ upgraded: Upgraded) -> String {
  "upgraded: guardian \(printable(upgraded.from)) → \(printable(upgraded.to)), pid \(upgraded.pid) kept, "
    + "\(upgraded.services) \(upgraded.services == 1 ? "service" : "services") untouched\n"
}
