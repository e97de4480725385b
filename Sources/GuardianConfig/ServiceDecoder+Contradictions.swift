import GuardianModel

// Settings that are each understood, and together cannot do what they are there for. Warnings, with the arithmetic: a number
// that is never reached is no fault of the file, and hardly what was meant.

extension ServiceDecoder {
  mutating func contradictions(_ top: Fields, _ spec: ServiceSpec) {
    withoutEffect(top, spec)
    lateBudget(top, spec)
    watchdog(top, spec)
    checkTimes(top, spec)
    pluginTime(top, spec)
    stopTime(top, spec)
  }

  /// The innermost of these keys that is written: of `late.within` the value, else that of `late`.
  private func place(_ top: Fields, _ key: String, _ inner: String) -> Node? {
    top[key].flatMap { $0.entries[inner] ?? $0 }
  }
  /// At the first place that this file has.
  private mutating func warn(_ places: [Node?], _ what: String, _ why: String) {
    warn(places.lazy.compactMap { $0 }.first { $0.file == mainFile }, what, why)
  }

  /// Settings that are understood and can do nothing beside the others.
  private mutating func withoutEffect(_ fields: Fields, _ spec: ServiceSpec) {
    let why: String
    if spec.restart == .never {
      why = "with 'restart: never' nothing follows a death"
    } else if !spec.escalation.enabled {
      why = "with 'escalation: off' a service is only restarted"
      if spec.backoff.first == .zero {
        warn(
          fields["backoff"], "a service that dies is restarted without any pause",
          "'first: 0s' stays 0s, and 'escalation: off' never gives up")
      }
    } else {
      return
    }
    if !spec.repairs.isEmpty { warn(fields["repair"], "'repair' has no effect", why) }
    if !spec.process.plugins.isEmpty { warn(fields["plugins"], "'plugins' has no effect", why) }
    if spec.restart == .never, let node = fields["escalation"], spec.escalation.enabled {
      warn(node, "'escalation' has no effect", why)
    }
  }

  /// Two late deaths are at least a startup window apart, kills from outside excepted.
  private mutating func lateBudget(_ top: Fields, _ spec: ServiceSpec) {
    let (budget, within, window) = (spec.late.budget, spec.late.within, spec.startupWindow)
    guard spec.escalation.enabled, budget > 0, window.nanoseconds >= within.nanoseconds / Int64(budget) else { return }
    warn(
      [place(top, "late", "within"), place(top, "late", "budget"), top["startup-window"]],
      "the late budget can hardly be exceeded",
      "\(budget + 1) deaths, each after a startup window of \(window.description), take \(budget) windows or more, "
        + "which is not less than 'within' (\(within.description)), so a service that dies just after its window is "
        + "restarted for ever")
  }

  /// It begins when the service is ready, as the startup window does.
  private mutating func watchdog(_ top: Fields, _ spec: ServiceSpec) {
    let (watchdog, window) = (spec.watchdog, spec.startupWindow)
    guard watchdog > window, spec.escalation.enabled, spec.restart != .never else { return }
    var why =
      "a service that hangs from its start on has settled \((watchdog - window).description) before the watchdog ends it, "
      + "so that its end is a late death and no strike"
    if spec.late.budget > 0, watchdog.nanoseconds >= spec.late.within.nanoseconds / Int64(spec.late.budget) {
      why +=
        "; \(spec.late.budget + 1) of them take \(spec.late.budget) times that or more, which is not less than 'late' has as "
        + "'within' (\(spec.late.within.description)), so it is restarted for ever"
    }
    warn(
      [top["watchdog"], top["startup-window"]],
      "'watchdog' (\(watchdog.description)) is longer than 'startup-window' (\(window.description))", why)
  }

  private mutating func checkTimes(_ top: Fields, _ spec: ServiceSpec) {
    guard spec.ready == .check else { return }
    let confirmation: String? = if case .check(let name)? = spec.plugins.acknowledge { name } else { nil }
    var items: [Node] = []
    if case .list(let nodes)? = top["checks"]?.content { items = nodes }
    for (index, check) in spec.checks.enumerated() where check.name != confirmation {
      // Those that could not be read are not among them.
      let item = items.count == spec.checks.count ? items[index] : nil
      // Somebody waits for it to be ready: it is asked once a second at least.
      let pace = min(check.every, .seconds(1))
      let needed = pace * (check.successes - 1)
      if needed > spec.startTimeout {
        warn(
          [item?.entries["successes"], top["start-timeout"], item],
          "the service can never become ready",
          "check '\(check.name)' needs \(check.successes) successes in a row, one every \(pace.description), which takes "
            + "\(needed.description), and 'start-timeout' is \(spec.startTimeout.description)")
      }
      let verdict = check.every * check.failures
      if verdict > spec.startupWindow, spec.escalation.enabled, spec.restart != .never {
        warn(
          [item?.entries["failures"], item?.entries["every"], top["startup-window"], item],
          "check '\(check.name)' speaks too late for the startup window",
          "\(check.failures) failures, one every \(check.every.description), take \(verdict.description), and "
            + "'startup-window' is \(spec.startupWindow.description): a service that fails as soon as it is ready has "
            + "settled by then, so that its end is a late death and no strike")
      }
    }
  }

  private mutating func pluginTime(_ top: Fields, _ spec: ServiceSpec) {
    guard case .daily(let from, let to) = spec.plugins.when else { return }
    let length = Duration.seconds(Int64(to > from ? to - from : to - from + 1440) * 60)
    guard length < spec.startupWindow else { return }
    warn(
      [place(top, "plugins", "when"), top["startup-window"]],
      "'when' (\(length.description) long) has no room for one start that is looked at",
      "such a start is judged when its startup window of \(spec.startupWindow.description) is over, so each day has one, "
        + "which goes on for up to \(spec.startupWindow.description) behind the end of 'when'")
  }

  private mutating func stopTime(_ top: Fields, _ spec: ServiceSpec) {
    guard let grace = context.stopGrace else { return }
    let patience = spec.stop.patience
    guard patience >= grace.time else { return }
    let parts = [spec.stop.timeout] + spec.stop.then.map(\.timeout)
    let sum = parts.count > 1 ? " (" + parts.map(\.description).joined(separator: " + ") + ")" : ""
    warn(
      [place(top, "stop", "timeout"), top["stop"]],
      "a stop may take \(patience.description)\(sum), and guardian's own only \(grace.time.description)",
      "\(grace.source) gives guardian no longer when it is stopped, and then kills it while the service still has time")
  }

  // MARK: Repairs

  /// A death that `on` names and that never leads to a repair; nil where there may be one.
  func whyNever(_ matcher: CauseMatcher, _ spec: ServiceSpec) -> String? {
    switch matcher {
    case .exit(let code) where spec.fatalExit.contains(code):
      "'fatal-exit' has \(code), which leads straight to quarantine"
    case .cause("watchdog") where spec.watchdog == .zero && spec.ready != .notify: "there is no 'watchdog'"
    case .cause("start-timeout") where spec.isAlwaysReadyAtOnce: "with 'ready: none' a service is ready at once"
    case .cause("check") where spec.checks.isEmpty: "there are no 'checks'"
    default: nil
    }
  }

  /// What a repair says about how often it runs, beside how often it could.
  mutating func repairLimits(_ fields: Fields, _ repair: RepairSpec, _ spec: ServiceSpec) {
    let rounds = spec.escalation.repair
    if repair.fromAttempt > rounds {
      warn(
        fields["from-attempt"], "this repair can hardly ever run",
        "it waits for round \(repair.fromAttempt), and 'escalation' gives the step repair \(rounds)")
    }
    guard let limit = repair.atMost, spec.escalation.enabled, !isDefaults else { return }
    // The pauses between one round and the next, each at its shortest; the first round has one before it.
    let between = (2..<(2 + min(limit.times, rounds - 1))).map { spec.backoff.delay(beforeTry: $0, share: 0) }
    let pauses = Duration.milliseconds(between.reduce(Duration.zero, +).milliseconds)
    if limit.times < rounds {
      guard pauses > limit.within else { return }
      warn(
        fields["at-most"], "'at-most' can never be reached",
        "from one round to the \(limit.times == 1 ? "next" : "\(limit.times)th after it") the pauses alone are \(pauses.description) by 'backoff', which is "
          + "more than 'within' (\(limit.within.description))")
    } else if pauses + spec.startupWindow > limit.within {
      warn(
        fields["at-most"], "'at-most' can never be reached",
        "the step repair has \(rounds) rounds by 'escalation'; another one comes only after a run that has settled, which "
          + "takes 'startup-window' (\(spec.startupWindow.description)) and pauses of \(pauses.description), more than "
          + "'within' (\(limit.within.description))")
    }
  }
}

extension ServiceSpec {
  fileprivate var isAlwaysReadyAtOnce: Bool { ready == .none && process.beforeStart.isEmpty }
}
