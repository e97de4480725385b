/// In which keys of its file one definition of a service differs from another, and which of them can wait for nothing but
/// a start.
///
/// The words are those at the top of `services/NAME.yaml`, in the order of the manual. A test makes each key of the key
/// table differ and wants it named here.
package struct SpecDifference: Hashable, Sendable {
  /// In force at once, also for a run that goes on.
  package var live: [String] = []
  /// What a process is given at its birth and cannot be given later.
  package var atStart: [String] = []

  package var isEmpty: Bool { live.isEmpty && atStart.isEmpty }

  package init(from old: ServiceSpec, to new: ServiceSpec) {
    var (old, new) = (old, new)
    // How files were seen is no part of a definition.
    old.process.forgetSights()
    new.process.forgetSights()
    guard old != new else { return }
    for key in Self.keys where key.differs(old, new) {
      if key.atStart { atStart.append(key.word) } else { live.append(key.word) }
    }
    // A field without a key of its own: what is not known to be live is not.
    if isEmpty { atStart = ["definition"] }
  }

  private struct Key: Sendable {
    var word: String
    var atStart: Bool
    var differs: @Sendable (ServiceSpec, ServiceSpec) -> Bool
  }

  private static func live(_ word: String, _ value: @escaping @Sendable (ServiceSpec) -> some Equatable & Sendable)
    -> Key
  {
    Key(word: word, atStart: false) { value($0) != value($1) }
  }
  private static func atStart(_ word: String, _ value: @escaping @Sendable (ServiceSpec) -> some Equatable & Sendable)
    -> Key
  {
    Key(word: word, atStart: true) { value($0) != value($1) }
  }

  private static let keys: [Key] = [
    live("description") { $0.description },
    atStart("command") { $0.process.command },
    atStart("user") { [$0.process.identity?.user, $0.process.identity?.uid.description] },
    // Another group, or another membership in the user database.
    Key(word: "group", atStart: true) { old, new in
      guard let a = old.process.identity, let b = new.process.identity else { return false }
      return a.uid == b.uid && a.user == b.user && a != b
    },
    atStart("directory") { $0.process.directory },
    atStart("environment") { $0.process.environment },
    atStart("environment-file") { $0.process.environmentFiles },
    atStart("umask") { $0.process.umask },
    atStart("limits") { $0.process.limits },
    // Those of the control group hold for whoever is in it.
    Key(word: "limits", atStart: false) {
      $0.process.limits == $1.process.limits && $0.process.groupLimits != $1.process.groupLimits
    },
    atStart("oom-score-adjust") { $0.process.oomScoreAdjust },
    atStart("nice") { $0.process.nice },
    atStart("capabilities") { $0.process.capabilities },
    atStart("sockets") { $0.process.sockets },
    atStart("before-start") { $0.process.beforeStart },
    live("start") { $0.start },
    live("requires") { $0.requires },
    live("after") { $0.after },
    live("groups") { $0.groups },
    live("type") { $0.kind },
    // The variables that tell it so, and the descriptor or socket behind them.
    atStart("ready") { $0.ready },
    live("start-timeout") { $0.startTimeout },
    live("startup-window") { $0.startupWindow },
    atStart("watchdog") { $0.watchdog },
    live("checks") { $0.checks },
    live("stop") { $0.stop },
    live("reload") { $0.reload },
    live("restart") { $0.restart },
    live("backoff") { $0.backoff },
    live("escalation") { $0.escalation },
    live("late") { $0.late },
    live("success-exit") { $0.successExit },
    live("fatal-exit") { $0.fatalExit },
    live("repair") { $0.repairs },
    Key(word: "plugins", atStart: true) { !$0.process.hasSamePlugins(as: $1.process) },
    // Of the plugins only their list shapes the process.
    Key(word: "plugins", atStart: false) { $0.process.hasSamePlugins(as: $1.process) && $0.plugins != $1.plugins },
    live("quarantine") { $0.quarantine },
    live("mode") { $0.mode },
    live("mitigate") { $0.mitigate },
    live("runbook") { $0.runbook },
    live("contact") { $0.contact },
    live("access") { $0.access },
    live("notices") { $0.notices },
    // Its output is connected at its birth.
    atStart("log") { $0.log },
  ]
}
