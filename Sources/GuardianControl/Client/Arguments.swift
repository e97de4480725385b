package import GuardianModel

/// What the command line asks for.
package struct Invocation: Hashable, Sendable {
  /// A name that means all services of a group.
  package static func isGroup(_ name: String) -> Bool { Selection.isGroup(name) }
  package enum Target: Hashable, Sendable {
    /// The user's, then the system's.
    case automatic
    case user, system
    case directory(String)
  }
  package var verb = Verb.status
  /// Names, groups and patterns.
  package var names: [String] = []
  /// All services.
  package var all = false
  package var target = Target.automatic
  package var config: String?
  package var json = false
  package var wait = true
  package var untilBoot = false
  /// Guardian itself is meant, and no service.
  package var guardian = false
  package var holdMilliseconds: Int64 = 0
  package var fromStart = false
  package var drill = DrillRequest()
  /// `plan`: how it dies, in turn; none: as it last did.
  package var deaths: [PlanDeath] = []
  package var shell = CompletionShell.bash
  package var reload = ReloadMode.apply
  /// `wait`: what for; one of them is enough; how long.
  package var goal = WaitGoal.settled
  package var any = false
  package var timeoutMilliseconds: Int64?
  /// `status`: go on with what changes.
  package var watch = false
  /// Nil: they are to be shown.
  package var plugins: PluginOrder?
  package var safeMode = true
  /// Nil: all of them.
  package var repair: String?
  package var crashes = Crashes.list(nil)
  /// `logs`, `events`: go on with what comes.
  package var follow = false
  /// So many of the last lines; nil: as is usual.
  package var lines: Int?
  /// `check`: the names are keys, and none of them is to be checked.
  package var explain = false
  /// The beginning of a run's id.
  package var run: String?
  package var since: Since?
  /// `import`: the directory to write to.
  package var output: String?
  /// `import`: what is there may be replaced.
  package var force = false
  /// `metrics`: the file to write, and how often; nil: once.
  package var textfile: String?
  package var everyMilliseconds: Int64?
  package init() {}

  package enum Since: Hashable, Sendable {
    case ago(milliseconds: Int64)
    case time(WallTime)
    case event(EventID)
  }

  package enum Crashes: Hashable, Sendable {
    case list(String?)
    case show(String)
    case export(String)
  }
}

extension Invocation {
  /// Services are meant, and not the whole.
  package var isSelecting: Bool { all || !names.isEmpty }

  /// Somebody has to be asked which services that are.
  package var needsChoice: Bool { all || names.contains { Selection.isGroup($0) || Selection.isPattern($0) } }

  /// What is going on while it is waited for.
  package var doing: String {
    switch verb {
    case .start: "starting"
    case .stop: "stopping"
    case .restart: "restarting"
    case .reload: names.isEmpty && reload == .restart ? "reloading and restarting" : "reloading"
    case .release: "releasing"
    case .repair: "repairing"
    case .upgrade: "upgrading"
    case .wait: "waiting for \(goal.rawValue)"
    case .safeMode, .plugins, .reset, .hold, .status, .plan, .drill, .crashes, .logs, .events, .top, .check, .importing,
      .metrics, .version, .completion, .help:
      verb.rawValue
    }
  }

  /// An order that guardian answers as soon as it has taken it, and not when it has come true.
  package var isAnsweredAtOnce: Bool { !wait || verb == .reset || verb == .hold }

  /// What an order came to, where guardian has nothing to add.
  package var outcome: String {
    if !wait { return "accepted" }
    switch verb {
    case .start: return "started"
    case .stop: return "stopped"
    case .restart: return "restarted"
    case .release: return "released"
    case .reset: return "reset"
    case .hold where holdMilliseconds == 0: return "hold ended"
    case .hold: return "held for \(shortTime(milliseconds: holdMilliseconds))"
    case .reload: return "reloaded"
    case .plugins: return "done"
    case .safeMode: return safeMode ? "all plugins off" : "plugins on"
    case .repair: return "repaired"
    case .status, .wait, .plan, .drill, .crashes, .logs, .events, .top, .check, .importing, .metrics, .upgrade,
      .version, .completion, .help:
      return "done"
    }
  }
}

package enum ParsedArguments: Hashable, Sendable {
  case run(Invocation)
  case help(json: Bool)
  case version(json: Bool)
  /// Exit 64; `json` as far as it has been seen anywhere on the line.
  case usage(String, json: Bool)
}

/// - Parameter arguments: without the program's own name.
package func parseArguments(_ arguments: [String]) -> ParsedArguments {
  let json = arguments.prefix { $0 != "--" }.contains(Option.json.rawValue)
  do throws(UsageFault) {
    return try parse(arguments)
  } catch {
    return .usage(error.text, json: json)
  }
}

/// `crashes`, `crashes NAME`, `crashes list NAME`, `crashes show ID`, `crashes export ID`.
private func crashes(_ words: [String]) throws(UsageFault) -> Invocation.Crashes {
  guard let first = words.first else { return .list(nil) }
  switch first {
  case "show", "export":
    guard words.count == 2 else { throw UsageFault(text: "'crashes \(first)' needs one id, as 'crashes' lists it") }
    guard isCrashID(words[1]) else {
      throw UsageFault(
        text: "'\(printable(words[1]))' is no id of a crash: at least six hexadecimal digits, as 'crashes' lists them")
    }
    return first == "show" ? .show(words[1].lowercased()) : .export(words[1].lowercased())
  case "list":
    if words.count > 2 { throw UsageFault(text: "'crashes list' takes one name, but got '\(printable(words[2]))' too") }
    return .list(words.count > 1 ? words[1] : nil)
  default:
    if words.count > 1 {
      let near = suggestion(first, among: ["list", "show", "export"])
      throw UsageFault(text: "'crashes' takes one name, or list, show, export, but got '\(printable(first))'" + near)
    }
    return .list(first)
  }
}

/// `plugins NAME`, `plugins NAME disable PLUGIN`, `plugins NAME search`.
private func plugins(_ words: [String]) throws(UsageFault) -> PluginOrder? {
  guard words.count > 1 else { return nil }
  guard PluginOrder.words.contains(words[1]) else {
    throw UsageFault(
      text: "'plugins' does not know '\(printable(words[1]))'" + suggestion(words[1], among: PluginOrder.words))
  }
  guard let order = PluginOrder(words[1], plugin: words.count > 2 ? words[2] : nil), words.count < 4 else {
    throw UsageFault(
      text: words[1] == "search"
        ? "'plugins NAME search' takes no plugin: it searches among all of them"
        : "'plugins NAME \(words[1])' needs one plugin")
  }
  return order
}

private func safeMode(_ words: [String]) throws(UsageFault) -> Bool {
  guard words.count == 2, words[1] == "on" || words[1] == "off" else {
    throw UsageFault(text: "'safe-mode' needs the name of a service and 'on' or 'off'")
  }
  return words[1] == "on"
}

private struct UsageFault: Error { var text: String }

private func parse(_ arguments: [String]) throws(UsageFault) -> ParsedArguments {
  var words: [String] = []
  var seen: [(option: Option, value: String)] = []
  var rest = arguments[...]
  while let argument = rest.popFirst() {
    if argument == "--" {
      words += rest
      break
    }
    if argument == "-h" {
      seen.append((.help, ""))
      continue
    }
    guard argument.hasPrefix("-"), argument != "-" else {
      words.append(argument)
      continue
    }
    let parts = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
    let name = String(parts.first ?? "")
    guard let option = Option.named(name) else {
      throw UsageFault(
        text: "unknown option '\(printable(name))'" + suggestion(name, among: Option.allCases.map(\.rawValue)))
    }
    if option.value == nil {
      if parts.count > 1 { throw UsageFault(text: "\(name) takes no value") }
      seen.append((option, ""))
    } else if parts.count > 1 {
      seen.append((option, String(parts[1])))
    } else if let value = rest.popFirst() {
      seen.append((option, value))
    } else {
      throw UsageFault(text: "\(name) needs a value: \(name) \(option.value ?? "")")
    }
  }

  let json = seen.contains { $0.option == .json }
  if seen.contains(where: { $0.option == .help }) { return .help(json: json) }
  if seen.contains(where: { $0.option == .version }) { return .version(json: json) }

  var invocation = Invocation()
  if let word = words.first {
    guard let verb = Verb.named(word) else {
      throw UsageFault(
        text: "unknown verb '\(printable(word))'" + suggestion(word, among: Verb.allCases.map(\.rawValue)))
    }
    invocation.verb = verb
    // A name given twice is one service.
    for name in words.dropFirst() where !invocation.names.contains(name) { invocation.names.append(name) }
  }
  for case (.service, let value) in seen {
    guard ServiceName(value) != nil else {
      throw UsageFault(text: "--service '\(printable(value))' is no service's name")
    }
    if !invocation.names.contains(value) { invocation.names.append(value) }
  }
  for case (.group, let value) in seen {
    guard ServiceName(value) != nil else { throw UsageFault(text: "--group '\(printable(value))' is no group's name") }
    if !invocation.names.contains("@" + value) { invocation.names.append("@" + value) }
  }
  if invocation.verb == .help { return .help(json: json) }
  if invocation.verb == .crashes { invocation.crashes = try crashes(invocation.names) }
  invocation.all = seen.contains { $0.option == .all }
  var named = Array(words.dropFirst())
  // The first word is a name, and what follows is not, unless an option says which services are meant.
  let groups = seen.filter { $0.option == .group }.map { "@" + $0.value }
  if invocation.all || !groups.isEmpty { named.insert("", at: 0) }
  if [.plugins, .safeMode, .repair].contains(invocation.verb), let name = named.first {
    invocation.names = name.isEmpty ? groups : [name]
    switch invocation.verb {
    case .plugins: invocation.plugins = try plugins(named)
    case .safeMode: invocation.safeMode = try safeMode(named)
    default:
      if named.count > 2 { throw UsageFault(text: "'repair' takes one repair, but got '\(printable(named[2]))' too") }
      invocation.repair = named.count > 1 ? named[1] : nil
    }
  }
  let verb = invocation.verb.rawValue
  switch invocation.verb.names {
  case .none:
    if let name = invocation.names.first {
      throw UsageFault(text: "'\(verb)' takes no name, but got '\(printable(name))'")
    }
  case .some:
    let itself = invocation.verb == .reset && seen.contains { $0.option == .guardian }
    if itself, let name = invocation.names.first {
      throw UsageFault(text: "--guardian means guardian itself, but got the name '\(printable(name))' too")
    }
    if invocation.verb == .importing, invocation.names.isEmpty {
      throw UsageFault(text: "'import' needs a UNIT.service, a supervisord.conf, or a service directory of runit")
    }
    if !invocation.isSelecting, !itself { throw UsageFault(text: "'\(verb)' needs the name of a service") }
  case .any: break
  }

  if invocation.all, let name = invocation.names.first {
    throw UsageFault(text: "--all means all services, but got the name '\(printable(name))' too")
  }

  for (option, value) in seen {
    if let verbs = option.verbs, !verbs.contains(invocation.verb) {
      let owners = verbs.map { "'\($0.rawValue)'" }.joined(separator: ", ")
      throw UsageFault(text: "\(option.rawValue) does not go with '\(verb)'; it belongs to \(owners)")
    }
    switch option {
    case .runtime:
      if value.isEmpty { throw UsageFault(text: "--runtime needs a directory") }
      try choose(.directory(value), &invocation)
    case .user: try choose(.user, &invocation)
    case .system: try choose(.system, &invocation)
    case .config:
      if value.isEmpty { throw UsageFault(text: "--config needs a directory") }
      invocation.config = value
    case .json: invocation.json = true
    case .noWait: invocation.wait = false
    case .untilBoot: invocation.untilBoot = true
    case .guardian:
      invocation.guardian = true
      invocation.names = ["guardian"]
    case .holdFor where invocation.verb == .wait:
      guard let goal = WaitGoal(rawValue: value) else {
        let goals = WaitGoal.allCases.map(\.rawValue)
        throw UsageFault(
          text: "--for '\(printable(value))' is nothing to wait for; there is \(goals.joined(separator: ", "))")
      }
      invocation.goal = goal
    case .timeout:
      guard let milliseconds = parseMilliseconds(value), milliseconds <= maximumHold else {
        throw UsageFault(
          text: "--timeout '\(printable(value))' is no time; write it like 500ms, 10s, 5min, 2h, 1d, 1min30s")
      }
      invocation.timeoutMilliseconds = milliseconds
    case .any: invocation.any = true
    case .watch: invocation.watch = true
    case .all: break  // known already
    case .holdFor:
      guard let milliseconds = parseMilliseconds(value) else {
        throw UsageFault(
          text: "--for '\(printable(value))' is no time; write it like 500ms, 10s, 5min, 2h, 1d, 1min30s")
      }
      guard milliseconds <= maximumHold else {
        throw UsageFault(text: "--for \(printable(value)) is longer than ten years")
      }
      invocation.holdMilliseconds = milliseconds
    case .fromStart: invocation.fromStart = true
    case .withRepairs: invocation.drill.withRepairs = true
    case .crashes:
      guard let number = Int(value), (1...DrillCause.mostCrashes).contains(number) else {
        throw UsageFault(
          text: "--crashes '\(printable(value))' is no number from 1 to \(DrillCause.mostCrashes)")
      }
      invocation.drill.crashes = number
    case .cause where invocation.verb == .plan:
      guard let death = PlanDeath(value) else {
        throw UsageFault(text: "--cause '\(printable(value))' is none; write \(PlanDeath.form)")
      }
      guard invocation.deaths.count < PlanDeath.most else {
        throw UsageFault(text: "more than \(PlanDeath.most) causes make no plan clearer")
      }
      invocation.deaths.append(death)
    case .cause:
      guard let cause = DrillCause(value) else {
        throw UsageFault(text: "--cause '\(printable(value))' is none; write \(DrillCause.form)")
      }
      invocation.drill.cause = cause
    case .output:
      if value.isEmpty { throw UsageFault(text: "--output needs a directory") }
      invocation.output = value
    case .force: invocation.force = true
    case .textfile:
      guard value.hasPrefix("/") else { throw UsageFault(text: "--textfile needs an absolute path") }
      invocation.textfile = value
    case .every:
      guard let milliseconds = parseMilliseconds(value), (1...86_400_000).contains(milliseconds) else {
        throw UsageFault(text: "--every '\(printable(value))' is no time from 1ms to 1d; write it like 15s")
      }
      invocation.everyMilliseconds = milliseconds
    case .follow: invocation.follow = true
    case .explain: invocation.explain = true
    case .lines:
      guard let number = Int(value), (0...1_000_000).contains(number) else {
        throw UsageFault(text: "--lines '\(printable(value))' is no number from 0 to 1000000")
      }
      invocation.lines = number
    case .run:
      guard (4...32).contains(value.utf8.count),
        value.utf8.allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) })
      else {
        throw UsageFault(text: "--run '\(printable(value))' is not the id of a run: 4 to 32 digits of 0-9a-f")
      }
      invocation.run = value
    case .since:
      guard let since = parseSince(value) else {
        throw UsageFault(
          text: "--since '\(printable(value))' is no time; write it like 2h, 1d, 2026-03-01, 2026-03-01T12:00:00Z, "
            + "or give the id of an event")
      }
      invocation.since = since
    case .group, .service: break  // among the names already
    case .dryRun: try choose(.dryRun, &invocation)
    case .restart: try choose(.restart, &invocation)
    case .help, .version: break
    }
  }
  if invocation.reload != .apply, invocation.isSelecting {
    let option = (invocation.reload == .dryRun ? Option.dryRun : .restart).rawValue
    let what = invocation.names.first.map { "the name '\(printable($0))'" } ?? "--all"
    throw UsageFault(text: "\(option) is about the configuration, but got \(what) too")
  }
  if invocation.verb == .reload, !invocation.isSelecting, !invocation.wait {
    throw UsageFault(text: "--no-wait goes with 'reload' only where services are named")
  }
  if invocation.verb == .plan, invocation.config != nil, invocation.needsChoice {
    throw UsageFault(text: "--config is without a guardian that could be asked which services are meant; name them")
  }
  if invocation.verb == .top, invocation.json {
    throw UsageFault(text: "'top' is for a terminal; 'status --watch --json' prints what changes")
  }
  if invocation.verb == .logs {
    guard invocation.names.count == 1, !invocation.needsChoice else {
      throw UsageFault(text: "'logs' shows one service at a time")
    }
    if invocation.follow, invocation.json {
      throw UsageFault(text: "--follow and --json exclude each other: JSON is one object")
    }
  }
  if invocation.verb == .drill, invocation.names.count != 1 || invocation.needsChoice {
    throw UsageFault(text: "'drill' walks the ladder of one service at a time")
  }
  if invocation.everyMilliseconds != nil, invocation.textfile == nil {
    throw UsageFault(text: "--every goes with --textfile")
  }
  if invocation.textfile != nil, invocation.json {
    throw UsageFault(text: "--textfile and --json exclude each other: nothing is printed")
  }
  if invocation.force, invocation.output == nil {
    throw UsageFault(text: "--force goes with --output: without it no file is written")
  }
  if invocation.verb == .completion {
    let words = CompletionShell.allCases.map(\.rawValue)
    guard invocation.names.count == 1, let shell = CompletionShell(rawValue: invocation.names[0]) else {
      throw UsageFault(
        text: "'completion' needs one of \(words.joined(separator: ", "))"
          + (invocation.names.first.map { ", not '\(printable($0))'" } ?? ""))
    }
    invocation.shell = shell
  }
  if invocation.verb == .hold, !seen.contains(where: { $0.option == .holdFor }) {
    throw UsageFault(text: "'hold' needs a time: --for 30min")
  }
  return .run(invocation)
}

private func choose(_ target: Invocation.Target, _ invocation: inout Invocation) throws(UsageFault) {
  if invocation.target != .automatic, invocation.target != target {
    throw UsageFault(text: "--runtime, --user and --system exclude each other")
  }
  invocation.target = target
}

private func choose(_ mode: ReloadMode, _ invocation: inout Invocation) throws(UsageFault) {
  if invocation.reload != .apply, invocation.reload != mode {
    throw UsageFault(text: "--dry-run and --restart exclude each other")
  }
  invocation.reload = mode
}

/// `2h` (ago), `2026-03-01`, `2026-03-01T12:00Z`, `2026-03-01T12:00:00Z`, with milliseconds, all of them UTC; or an event's
/// id. Nil for anything else.
package func parseSince(_ text: String) -> Invocation.Since? {
  if let id = EventID(text) { return .event(id) }
  if let milliseconds = parseMilliseconds(text) { return .ago(milliseconds: milliseconds) }
  let whole = "0000-00-00T00:00:00.000Z"
  let shortest = [10, 16, 19, 23]
  var body = Substring(text)
  let zone = body.hasSuffix("Z")
  if zone { body = body.dropLast() }
  // A date alone has no hour that a zone could be about.
  guard shortest.contains(body.utf8.count), zone || body.utf8.count == 10, body.utf8.allSatisfy({ $0 < 0x80 }) else {
    return nil
  }
  var full = body + whole.dropFirst(body.utf8.count)
  return full.withUTF8 { WallTime(rfc3339: $0) }.map { .time($0) }
}

/// `500ms 10s 5min 2h 1d 1min30s`, as in the configuration; `0` needs no unit. Nil for anything else, or beyond Int64.
package func parseMilliseconds(_ text: String) -> Int64? {
  if text == "0" { return 0 }
  var total: Int64 = 0
  var rest = text.utf8[...]
  if rest.isEmpty { return nil }
  while !rest.isEmpty {
    let digits = rest.prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    guard let number = Int64(String(decoding: digits, as: UTF8.self)) else { return nil }
    rest = rest.dropFirst(digits.count)
    let unit = rest.prefix { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) }
    rest = rest.dropFirst(unit.count)
    let size: Int64
    switch String(decoding: unit, as: UTF8.self) {
    case "ms": size = 1
    case "s": size = 1000
    case "min": size = 60_000
    case "h": size = 3_600_000
    case "d": size = 86_400_000
    default: return nil
    }
    let (product, over) = number.multipliedReportingOverflow(by: size)
    let (sum, overflow) = total.addingReportingOverflow(product)
    if over || overflow { return nil }
    total = sum
  }
  return total
}

/// `; did you mean 'word'?`, or nothing where no word is near.
func suggestion(_ word: String, among words: [String]) -> String {
  let limit = max(1, word.utf8.count / 3)
  let near = words.map { (word: $0, distance: editDistance(word, $0)) }.min { $0.distance < $1.distance }
  guard let near, near.distance <= limit else { return "; see 'guardianctl help'" }
  return "; did you mean '\(near.word)'?"
}

/// Optimal string alignment over bytes; words longer than 40 bytes are near to nothing.
func editDistance(_ first: String, _ second: String) -> Int {
  let a = Array(first.utf8), b = Array(second.utf8)
  guard a.count <= 40, b.count <= 40 else { return .max }
  var before: [Int] = [], previous = Array(0...b.count)
  for i in 0..<a.count {
    var current = [i + 1]
    for j in 0..<b.count {
      var best = min(previous[j + 1] + 1, current[j] + 1, previous[j] + (a[i] == b[j] ? 0 : 1))
      if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { best = min(best, before[j - 1] + 1) }
      current.append(best)
    }
    before = previous
    previous = current
  }
  return previous[b.count]
}
