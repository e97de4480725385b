/// Everything that guardianctl can be told to do. The order is that of the help text and of the manual.
package enum Verb: String, CaseIterable, Hashable, Sendable {
  case status, start, stop, restart, reload, release, reset, hold, plugins
  case safeMode = "safe-mode"
  case repair, wait, plan, drill, crashes, logs, events, top, check
  case importing = "import"
  case metrics, upgrade, version, completion
  case help

  package enum Names: Hashable, Sendable { case none, any, some }

  package var names: Names {
    switch self {
    case .status, .reload, .crashes, .events, .top, .check, .completion, .help: .any
    case .start, .stop, .restart, .release, .reset, .hold, .plugins, .safeMode, .repair, .wait, .plan, .drill, .logs,
      .importing:
      .some
    case .metrics, .upgrade, .version: .none
    }
  }

  package var summary: String {
    switch self {
    case .status: "show all services, or the named ones in detail (the default)"
    case .start: "start, and wait until ready"
    case .stop: "stop, and keep stopped over reboots"
    case .restart: "stop and start; step and strikes are kept"
    case .reload: "read the configuration again; with names: the services' own reload"
    case .release: "let out of quarantine, with a fresh ladder"
    case .reset: "clear strikes, step and delay; start or stop nothing"
    case .hold: "neither start, stop nor repair for a time"
    case .plugins: "show its plugins; enable, disable, pin or unpin one; search"
    case .safeMode: "'on': start without plugins; 'off': with them"
    case .repair: "run its repairs, or one of them, now"
    case .wait: "wait until it is settled, or what --for says"
    case .plan: "show what would happen, and when, if it kept dying"
    case .drill: "walk a copy of the ladder; with --with-repairs run its repairs"
    case .crashes: "list the crashes; 'show ID' or 'export ID': one report"
    case .logs: "show what one service has written, from its files or the journal"
    case .events: "list what has happened, or follow it"
    case .top: "show all services as they change, with keys to act"
    case .check: "check the configuration, or these files, without a daemon"
    case .importing: "make services of units of systemd, supervisord.conf, runit"
    case .metrics: "print what is counted and measured, as OpenMetrics"
    case .upgrade: "let a new program file of guardian take over; no service is touched"
    case .version: "show the versions, and which guarantees hold"
    case .completion: "print the completion script for bash, zsh or fish"
    case .help: "show this text"
    }
  }

  /// Options of this verb alone.
  package var options: [Option] {
    Option.allCases.filter { $0.verbs?.contains(self) ?? false }
  }
}

package enum Option: String, CaseIterable, Hashable, Sendable {
  case runtime = "--runtime", user = "--user", system = "--system", config = "--config", json = "--json"
  case noWait = "--no-wait", untilBoot = "--until-boot", guardian = "--guardian", holdFor = "--for", fromStart =
    "--from-start"
  case crashes = "--crashes", cause = "--cause", withRepairs = "--with-repairs"
  case group = "--group", all = "--all"
  case timeout = "--timeout", any = "--any"
  case watch = "--watch"
  case since = "--since", service = "--service"
  case dryRun = "--dry-run", restart = "--restart"
  case output = "--output", force = "--force"
  case textfile = "--textfile", every = "--every"
  case explain = "--explain"
  case follow = "--follow", lines = "--lines", run = "--run"
  case help = "--help", version = "--version"

  /// The word for its value; nil for a flag.
  package var value: String? {
    switch self {
    case .runtime, .config, .output: "DIR"
    case .textfile: "PATH"
    case .group, .service: "NAME"
    case .holdFor: "TIME|STATE"
    case .since, .timeout, .every: "TIME"
    case .lines, .crashes: "N"
    case .cause: "CAUSE"
    case .run: "ID"
    case .user, .system, .json, .noWait, .untilBoot, .guardian, .fromStart, .withRepairs, .dryRun, .restart, .follow,
      .all, .any, .watch, .force, .explain, .help, .version:
      nil
    }
  }

  /// Nil: with every verb.
  package var verbs: [Verb]? {
    switch self {
    case .runtime, .user, .system, .json, .help, .version: nil
    case .config: [.check, .plan]
    case .noWait: [.start, .stop, .restart, .reload, .release, .reset, .hold, .plugins, .safeMode, .repair]
    case .untilBoot: [.stop]
    case .guardian: [.reset]
    case .holdFor: [.hold, .wait]
    case .timeout, .any: [.wait]
    case .watch: [.status]
    case .fromStart: [.plan]
    case .crashes, .withRepairs: [.drill]
    case .cause: [.drill, .plan]
    case .group:
      [
        .status, .start, .stop, .restart, .reload, .release, .reset, .hold, .plugins, .safeMode, .repair, .wait, .plan,
        .events, .top,
      ]
    case .all:
      [
        .status, .start, .stop, .restart, .reload, .release, .reset, .hold, .plugins, .safeMode, .repair, .wait, .plan,
      ]
    case .since, .service: [.events]
    case .dryRun, .restart: [.reload]
    case .output, .force: [.importing]
    case .textfile, .every: [.metrics]
    case .explain: [.check]
    case .follow: [.logs, .events]
    case .lines, .run: [.logs]
    }
  }

  package var summary: String {
    switch self {
    case .runtime: "the runtime directory of the guardian to talk to"
    case .user: "talk to the user's own guardian"
    case .system: "talk to the system's guardian"
    case .config: "configuration directory, for check and plan"
    case .json: "print one JSON object"
    case .noWait: "return when the order has been accepted"
    case .guardian: "guardian itself: end its observe mode after faults of its own"
    case .untilBoot: "stop until the next boot only"
    case .holdFor: "how long to hold, as in 30min; 0s ends a hold; or what to wait for"
    case .group: "all services of a group; the same as the name @NAME"
    case .all: "all services"
    case .timeout: "how long to wait"
    case .any: "one of them is enough"
    case .watch: "go on, and show what changes"
    case .crashes: "end the drill after so many crashes; 100, or quarantine"
    case .cause: "how it dies: exit:N, signal:NAME, class:NAME, oom, check; of a plan also when: oom@2s"
    case .withRepairs: "really run the repairs, with GUARDIAN_DRILL=1"
    case .fromStart: "plan from zero, not from the present state"
    case .since: "a time, how long ago, or the id of an event"
    case .service: "of this service; the same as a name"
    case .dryRun: "show what a reload would change, and change nothing"
    case .output: "where 'import' writes NAME.yaml, instead of standard output"
    case .force: "'import' replaces files that are there"
    case .textfile: "write them to this file, for node_exporter's text file collector"
    case .every: "write them again and again, so often"
    case .explain: "what these keys of the configuration mean; without one, which there are"
    case .follow: "go on as more is written, or happens"
    case .lines: "so many of the last lines; 100, and of one run all, where nothing is said"
    case .run: "of this run only; the beginning of its id is enough"
    case .restart: "also restart what runs on as it was started, and wait"
    case .help: "show the help text"
    case .version: "show guardianctl's version"
    }
  }
}

/// - Parameter width: Of the terminal; nil: nothing is known of one.
package func helpText(width: Int?) -> String {
  let width = max(40, width ?? 80), margin = 21
  func entry(_ word: String, _ summary: String) -> String {
    let parts = wrap(summary, width: width - margin)
    let gap = String(repeating: " ", count: max(1, margin - 2 - columns(word)))
    return "  " + word + gap + parts.joined(separator: "\n" + String(repeating: " ", count: margin)) + "\n"
  }
  func paragraph(_ text: String) -> String { wrap(text, width: width).joined(separator: "\n") + "\n" }
  var text =
    paragraph("usage: guardianctl [OPTION…] [VERB] [NAME…]") + "\n"
    + paragraph("Shows and commands the services of guardian.") + "\nVerbs:\n"
  for verb in Verb.allCases {
    let names =
      switch verb.names {
      case .none: ""
      case .any:
        verb == .help
          ? "" : verb == .crashes ? " …" : verb == .check ? " [FILE…]" : verb == .completion ? " SHELL" : " [NAME…]"
      case .some where verb == .importing: " PATH…"
      case .some where verb == .plugins || verb == .safeMode || verb == .repair: " NAME …"
      case .some: " NAME…"
      }
    text += entry(verb.rawValue + names, verb.summary)
  }
  text += "\nOptions, before or after the verb:\n"
  for option in Option.allCases {
    text += entry(option.rawValue + (option.value.map { " " + $0 } ?? ""), option.summary)
  }
  text += "\n"
  for line in [
    "Exit status of 'status': 0 all settled, 1 on the way, 2 degraded or in safe mode, 3 stopped, "
      + "4 no such service, 5 quarantined, 6 guardian not reachable, 64 usage; the worst wins.",
    "Other verbs: 0 done, 1 failed, 4, 6, 64, 77 not permitted; check: 0 or 78. See guardianctl(1).",
  ] { text += paragraph(line) }
  return text
}
