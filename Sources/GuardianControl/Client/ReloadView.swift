package import GuardianModel

/// Lines about single services in the answer to a reload; the rest is a number.
private let mostLines = 40

/// What a reload came to, or would: one line, then one for each service of which there is more to say.
package func reloadText(services: Int, _ change: ReloadChange) -> String {
  func list(_ names: [String]) -> String {
    let shown = names.prefix(8).map { printable($0) }.joined(separator: ", ")
    return names.count > 8 ? shown + ", …" : shown
  }
  var parts = ["\(services) \(services == 1 ? "service" : "services")"]
  let kinds = [
    ("added", change.added), ("changed", change.changed.map(\.name)), ("removed", change.removed),
    ("not valid", change.invalid),
  ]
  for (word, names) in kinds where !names.isEmpty { parts.append("\(names.count) \(word) (\(list(names)))") }
  if change.unchanged > 0, parts.count > 1 { parts.append("\(change.unchanged) unchanged") }
  if !change.host.isEmpty { parts.append("guardian.yaml changed (\(list(change.host)))") }
  if parts.count == 1 { parts.append("nothing changed") }
  var lines = [(change.dryRun ? "a reload would find " : "configuration read again: ") + parts.joined(separator: ", ")]

  for changed in change.changed {
    var said: [String] = []
    if !changed.live.isEmpty { said.append("\(change.dryRun ? "at once" : "in force"): \(list(changed.live))") }
    if !changed.atStart.isEmpty { said.append("after a restart: \(list(changed.atStart))") }
    if !changed.note.isEmpty { said.append(printable(changed.note)) }
    lines.append("  \(printable(changed.name)): " + said.joined(separator: "; "))
  }
  for restarted in change.restarts where restarted.done {
    lines.append("\(printable(restarted.name)): \(printable(restarted.text.isEmpty ? "restarted" : restarted.text))")
  }
  let more = lines.count - 1 - mostLines
  if more > 0 { lines.replaceSubrange((mostLines + 1)..., with: ["  and \(more) more; --json has them all"]) }

  // What was restarted successfully needs it no more.
  let settled = Set(change.restarts.map(\.name))
  let left = change.needRestart.filter { !settled.contains($0.name) }.map(\.name)
  if !left.isEmpty {
    lines.append(
      "\(left.count == 1 ? "needs" : "need") a restart: \(list(left)) ('guardianctl reload --restart' does it)")
  }
  return lines.joined(separator: "\n") + "\n"
}

/// What an upgrade came to, in one line.
package func upgradedText(_ upgraded: Upgraded) -> String {
  "upgraded: guardian \(printable(upgraded.from)) → \(printable(upgraded.to)), pid \(upgraded.pid) kept, "
    + "\(upgraded.services) \(upgraded.services == 1 ? "service" : "services") untouched\n"
}
