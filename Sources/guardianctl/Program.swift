import Glibc
import GuardianControl
import GuardianModel

/// One run of guardianctl: arguments in, exit status out.
struct Program {
  let arguments: [String]
  var output = Output()

  init(arguments: [String]) { self.arguments = arguments }

  mutating func run() -> Int32 {
    let status = perform()
    // An answer that did not get out is a failure, whatever it said.
    return output.flush() ? status : max(status, ExitCode.failed)
  }

  private mutating func perform() -> Int32 {
    if Completing.isAsked(arguments) {
      output.bytes += Completing.lines(Array(arguments.dropFirst(2))).utf8
      return ExitCode.done
    }
    switch parseArguments(arguments) {
    case .help(let json): return help(json: json)
    case .version(let json):
      if json {
        self.json { json in
          json.key("client")
          json.string(guardianVersion)
        }
      } else {
        output.bytes += "guardianctl \(guardianVersion)\n".utf8
      }
      return ExitCode.done
    case .usage(let text, let json):
      return fail(ExitCode.usage, "usage", text, json: json)
    case .run(let invocation): return perform(invocation)
    }
  }

  private mutating func perform(_ invocation: Invocation) -> Int32 {
    output.isText = !invocation.json
    switch invocation.verb {
    case .status: return invocation.watch ? watchStatus(invocation) : status(invocation)
    case .start, .stop, .restart, .release, .reset, .hold, .safeMode, .repair: return order(invocation)
    case .plugins: return invocation.plugins == nil ? plugins(invocation) : order(invocation)
    case .reload: return invocation.isSelecting ? order(invocation) : reload(invocation)
    case .wait: return wait(invocation)
    case .plan: return plan(invocation)
    case .drill: return drill(invocation)
    case .crashes: return crashes(invocation)
    case .logs: return logs(invocation)
    case .events: return events(invocation)
    case .top: return top(invocation)
    case .check: return check(invocation)
    case .importing: return importing(invocation)
    case .metrics: return metrics(invocation)
    case .upgrade: return upgrade(invocation)
    case .version: return version(invocation)
    case .completion:
      if invocation.json {
        json { json in
          json.key("script")
          json.string(invocation.shell.script)
        }
      } else {
        output.bytes += invocation.shell.script.utf8
      }
      return ExitCode.done
    case .help: return help(json: invocation.json)
    }
  }

  private mutating func help(json: Bool) -> Int32 {
    if json {
      self.json { json in
        json.key("help")
        json.string(helpText(width: nil))
      }
    } else {
      output.bytes += helpText(width: standardStyle().width).utf8
    }
    return ExitCode.done
  }

  // MARK: - Verbs

  /// Seconds without a byte after which guardian counts as unreachable, for questions that it answers at once.
  let patience: Int32 = 10
  /// The same for what guardian has to work for.
  static let longPatience: Int32 = 120

  private mutating func status(_ invocation: Invocation) -> Int32 {
    let named = !invocation.names.isEmpty
    // A few that were asked for by name are shown in full.
    let closely = named && !invocation.needsChoice
    let brief = !closely && !invocation.json
    let list = ControlRequest.list(names: nil, brief: brief)
    var summary = DaemonSummary()
    var services: [ServiceStatus] = [], missing: [String] = []
    var refusal: ControlError?
    do throws(Daemon.Fault) {
      let daemon = try Daemon.connect(to: invocation.target)
      // What is said of a few has no head line.
      if !named || invocation.json {
        try daemon.send([ControlCall(.summary)] + (named ? [] : [ControlCall(list, more: true)]))
        switch try daemon.reply(to: .summary, patience: patience) {
        case .summary(let told): summary = told
        // A stranger is told once, and shown out.
        case .error(let error): return fail(error, json: invocation.json)
        case .services, .done, .reloaded, .upgraded, .plan, .drill, .crashes, .crash, .events, .version: break
        }
      }
      if invocation.json, !named { return try wholeList(daemon, list, summary) }
      if named {
        switch try Self.choose(invocation, daemon, patience: patience) {
        case .success(let chosen):
          missing = chosen.unmatched
          if !chosen.names.isEmpty {
            switch try daemon.list(chosen.names, brief: brief, patience: patience) {
            case .success(let found):
              services = found.services
              missing += found.missing
            case .failure(let error): refusal = error
            }
          }
        case .failure(let error): refusal = error
        }
      } else {
        refusal = try daemon.briefServices(list, patience: patience, into: &services)
      }
    } catch {
      return fail(error, json: invocation.json)
    }
    if let refusal { return fail(refusal, json: invocation.json) }

    var worst: Int32 = 0
    // By their places: a service is large, and need not be copied for this.
    for index in services.indices { worst = max(worst, services[index].exitCode(named: named)) }
    if !named, services.isEmpty { worst = max(worst, summary.exitCodeWithoutServices) }
    if !missing.isEmpty { worst = max(worst, ExitCode.noSuchService) }
    for name in missing { complain(Self.noSuch(name)) }

    if invocation.json {
      json { json in
        json.key("summary")
        json.beginObject()
        encode(summary, into: &json)
        json.endObject()
        json.key("services")
        json.beginArray()
        for service in services { encode(service, brief: false, into: &json) }
        json.endArray()
        encodeMissing(missing, into: &json)
      }
      return worst
    }

    let style = standardStyle()
    if closely {
      let wall = Self.wallTime()
      for (index, service) in services.enumerated() {
        if index > 0 { output.bytes.append(UInt8(ascii: "\n")) }
        output.bytes += renderDetail(service, now: wall, style: style)
      }
    } else {
      if !named { output.bytes += renderHead(summary, style: style) }
      output.bytes += renderTable(services, style: style)
    }
    return worst
  }

  /// All services as JSON: the daemon's own bytes, passed on.
  private mutating func wholeList(
    _ daemon: Daemon, _ list: ControlRequest, _ summary: DaemonSummary
  ) throws(Daemon.Fault) -> Int32 {
    var bytes: [UInt8] = [UInt8(ascii: "[")]
    switch try daemon.listedServices(list, patience: patience, into: &bytes) {
    case .failure(let error): return fail(error, json: true)
    case .success(var worst):
      if bytes.count == 1 { worst = max(worst, summary.exitCodeWithoutServices) }
      bytes.append(UInt8(ascii: "]"))
      json { json in
        json.key("summary")
        json.beginObject()
        encode(summary, into: &json)
        json.endObject()
        json.key("services")
        json.verbatim(bytes)
      }
      return worst
    }
  }

  /// The table of one service's plugins.
  private mutating func plugins(_ invocation: Invocation) -> Int32 {
    var services: [ServiceStatus] = [], missing: [String] = []
    do throws(Daemon.Fault) {
      let daemon = try Daemon.connect(to: invocation.target)
      switch try Self.choose(invocation, daemon, patience: patience) {
      case .success(let chosen):
        missing = chosen.unmatched
        if !chosen.names.isEmpty {
          switch try daemon.list(chosen.names, brief: false, patience: patience) {
          case .success(let found):
            services = found.services
            missing += found.missing
          case .failure(let error):
            return fail(error, json: invocation.json)
          }
        }
      case .failure(let error): return fail(error, json: invocation.json)
      }
    } catch {
      return fail(error, json: invocation.json)
    }
    if invocation.needsChoice {
      for name in missing { complain(Self.noSuch(name)) }
      if invocation.json {
        json { json in
          json.key("services")
          json.beginArray()
          for service in services {
            json.beginObject()
            json.key("name")
            json.string(service.name)
            json.key("plugins")
            encode(service.plugins, into: &json)
            json.endObject()
          }
          json.endArray()
          encodeMissing(missing, into: &json)
        }
      } else {
        for (index, service) in services.enumerated() {
          if index > 0 { output.bytes.append(UInt8(ascii: "\n")) }
          if !service.plugins.isEmpty { output.bytes += "\(printable(service.name)):\n".utf8 }
          output.bytes += renderPlugins(service, now: Self.wallTime(), style: standardStyle())
        }
      }
      return missing.isEmpty ? ExitCode.done : ExitCode.noSuchService
    }
    guard let found = services.first else {
      let name = missing.first ?? invocation.names.first ?? ""
      return fail(ExitCode.noSuchService, "no-such-service", Self.noSuch(name), json: invocation.json)
    }
    if invocation.json {
      json { json in
        json.key("name")
        json.string(found.name)
        json.key("plugins")
        encode(found.plugins, into: &json)
      }
    } else {
      output.bytes += renderPlugins(found, now: Self.wallTime(), style: standardStyle())
    }
    return ExitCode.done
  }

  func request(_ invocation: Invocation, _ name: String) -> ControlRequest {
    let wait = invocation.wait
    if invocation.guardian { return .resetGuardian }
    switch invocation.verb {
    case .stop: return .stop(name: name, untilBoot: invocation.untilBoot, wait: wait)
    case .restart: return .restart(name: name, wait: wait)
    case .release: return .release(name: name, wait: wait)
    case .reset: return .reset(name: name, wait: wait)
    case .hold: return .hold(name: name, milliseconds: invocation.holdMilliseconds, wait: wait)
    case .reload: return .reloadService(name: name, wait: wait)
    case .plugins: return .plugins(name: name, invocation.plugins ?? .search, wait: wait)
    case .safeMode: return .safeMode(name: name, on: invocation.safeMode, wait: wait)
    case .repair: return .repair(name: name, repair: invocation.repair, wait: wait)
    case .start, .status, .wait, .plan, .drill, .crashes, .logs, .events, .top, .check, .importing, .metrics, .upgrade,
      .version, .completion,
      .help:
      return .start(name: name, wait: wait)
    }
  }

  private mutating func reload(_ invocation: Invocation) -> Int32 {
    let request = ControlRequest.reload(invocation.reload)
    let body: ReplyBody
    do throws(Daemon.Fault) {
      // A reading takes its time, and one that restarts services as long as they need.
      body = try ask(request, invocation, patience: invocation.reload == .restart ? nil : Self.longPatience)
    } catch {
      return fail(error, json: invocation.json)
    }
    switch body {
    case .reloaded(let services, let change, let diagnostics):
      for diagnostic in diagnostics { complain(diagnostic.description) }
      let faults = diagnostics.filter { $0.severity == .error }
      let error = faults.isEmpty ? nil : ControlError.configurationFault(faults)
      if let error { complain(error.sentence + "; " + Self.afterFault(change)) }
      for restarted in change.restarts where !restarted.done { complain("\(restarted.name): \(restarted.text)") }
      if invocation.json {
        json { json in
          encodeReload(services: services, change, diagnostics, into: &json)
          if let error { encode(error, into: &json) }
        }
      } else {
        output.bytes += reloadText(services: services, change).utf8
      }
      return change.restarts.contains { !$0.done } ? ExitCode.failed : error?.exitCode ?? ExitCode.done
    case .error(.configurationFault(let diagnostics)):
      for diagnostic in diagnostics { complain(diagnostic.description) }
      let error = ControlError.configurationFault(diagnostics)
      complain(error.sentence + "; everything is as it was")
      if invocation.json { json { encode(error, into: &$0) } }
      return error.exitCode
    case .error(let error): return fail(error, json: invocation.json)
    case .services, .done, .upgraded, .plan, .drill, .summary, .crashes, .crash, .events, .version:
      return fail(ExitCode.failed, "failed", "guardian gave another answer than asked for", json: invocation.json)
    }
  }

  private static func afterFault(_ change: ReloadChange) -> String {
    change.invalid.isEmpty
      ? "see above" : "a service with a fault keeps its last good definition, if it had one"
  }

  private mutating func plan(_ invocation: Invocation) -> Int32 {
    var plans: [Plan] = []
    var worst: Int32 = 0
    var failure: (error: ControlError, name: String)?
    var fromStart = invocation.fromStart
    var daemon: Daemon?
    var status = ExitCode.failed
    guard let chosen = choose(invocation, status: &status) else { return status }
    for name in chosen.unmatched {
      complain(Self.noSuch(name))
      (worst, failure) = (ExitCode.noSuchService, (.noSuchService(name: name), name))
    }
    // A configuration directory named on the line is not the daemon's.
    if invocation.config == nil {
      do throws(Daemon.Fault) {
        daemon = try Daemon.connect(to: invocation.target)
        try daemon?.send(
          chosen.names.map { ControlCall(.plan(name: $0, fromStart: fromStart, deaths: invocation.deaths)) })
      } catch {
        // Someone who names a guardian means that one.
        if invocation.target != .automatic { return fail(error, json: invocation.json) }
        if case .notPermitted = error { return fail(error, json: invocation.json) }
        daemon = nil
      }
    }
    if let daemon {
      for name in chosen.names {
        let body: ReplyBody
        do throws(Daemon.Fault) {
          body = try daemon.reply(to: .plan(name: name, fromStart: fromStart), patience: patience)
        } catch {
          return fail(error, json: invocation.json)
        }
        switch body {
        case .plan(let plan): plans.append(plan)
        case .error(let error) where error.exitCode == ExitCode.notPermitted:
          return fail(error, json: invocation.json)
        case .error(let error):
          complain("\(name): \(error.sentence)")
          if error.exitCode >= worst { failure = (error, name) }
          worst = max(worst, error.exitCode)
        case .services, .done, .reloaded, .upgraded, .drill, .summary, .crashes, .crash, .events, .version: break
        }
      }
    } else {
      fromStart = true
      guard let path = GuardianProgram.find() else {
        return fail(
          ExitCode.failed, "failed", "cannot find the guardian program, which makes the plan", json: invocation.json)
      }
      for name in chosen.names {
        var arguments = ["--plan", name]
        for death in invocation.deaths { arguments += ["--cause", death.text] }
        if let config = invocation.config { arguments += ["--config", config] }
        guard let result = GuardianProgram.run(path, arguments) else {
          return fail(ExitCode.failed, "failed", "cannot run \(path): \(reason(errno))", json: invocation.json)
        }
        if result.status == 0 {
          switch result.output.withUnsafeBufferPointer(decodePlan) {
          case .success(let plan): plans.append(plan)
          case .failure(let fault):
            return fail(
              ExitCode.failed, "failed", "cannot understand what \(path) printed: \(fault.reason)",
              json: invocation.json)
          }
        } else {
          // guardian has said why on standard error. Its 4 is ours; its faults of configuration are failures here.
          let unknown = result.status == ExitCode.noSuchService
          let error: ControlError =
            unknown ? .noSuchService(name: name) : .failed(reason: "guardian could not make the plan")
          if error.exitCode >= worst { failure = (error, name) }
          worst = max(worst, error.exitCode)
        }
      }
    }
    if invocation.json {
      json { json in
        json.key("plans")
        json.beginArray()
        for plan in plans {
          json.beginObject()
          encode(plan, into: &json)
          json.endObject()
        }
        json.endArray()
        if let failure { encode(failure.error, about: failure.name, into: &json) }
      }
      return worst
    }
    let style = standardStyle()
    for (index, plan) in plans.enumerated() {
      if index > 0 { output.bytes.append(UInt8(ascii: "\n")) }
      output.bytes += renderPlan(plan, fromStart: fromStart, deaths: invocation.deaths, style: style)
      output.bytes.append(UInt8(ascii: "\n"))
      output.bytes += renderTimeLine(plan, style: style)
    }
    return worst
  }

  private mutating func drill(_ invocation: Invocation) -> Int32 {
    let name = invocation.names.first ?? ""
    let request = ControlRequest.drill(name: name, invocation.drill)
    let style = standardStyle()
    var entries: [PlanEntry] = []
    var failed = 0
    var refusal: ControlError?
    var isHeard = true
    do throws(Daemon.Fault) {
      let daemon = try Daemon.connect(to: invocation.target)
      try daemon.send([ControlCall(request, more: true)])
      try daemon.follow(request, patience: invocation.drill.withRepairs ? nil : patience) { body in
        switch body {
        case .drill(let walked, let failures):
          failed = failures
          if invocation.json {
            entries += walked.entries
            return true
          }
          // Whoever waits for a repair wants to see which.
          if entries.isEmpty { output.bytes += renderDrillHead(name, invocation.drill, style: style) }
          entries = walked.entries.isEmpty ? entries : walked.entries
          output.bytes += renderDrill(walked.entries, style: style)
          isHeard = output.flush()
          output.bytes = []
          return isHeard
        case .error(let error): refusal = error
        case .services, .done, .reloaded, .upgraded, .plan, .crashes, .crash, .events, .summary, .version: break
        }
        return true
      }
    } catch {
      return fail(error, json: invocation.json)
    }
    if let refusal { return fail(refusal, json: invocation.json) }
    let failure = failed == 0 ? nil : ControlError.failed(reason: "\(counted(failed, "repair")) failed")
    if let failure { complain("\(name): \(failure.sentence)") }
    if invocation.json {
      json { json in
        json.key("drill")
        json.beginObject()
        encode(Plan(name: name, entries: entries), into: &json)
        json.key("cause")
        json.string(invocation.drill.cause.text)
        json.key("with_repairs")
        json.bool(invocation.drill.withRepairs)
        json.key("failed")
        json.integer(failed)
        json.endObject()
        if let failure { encode(failure, about: name, into: &json) }
      }
    }
    return isHeard && failed == 0 ? ExitCode.done : ExitCode.failed
  }

  private mutating func crashes(_ invocation: Invocation) -> Int32 {
    let request: ControlRequest =
      switch invocation.crashes {
      case .list(let name): .crashes(name: name)
      case .show(let id), .export(let id): .crash(id: id)
      }
    let body: ReplyBody
    do throws(Daemon.Fault) {
      let daemon = try Daemon.connect(to: invocation.target)
      try daemon.send([ControlCall(request)])
      body = try daemon.reply(to: request, patience: patience)
    } catch {
      return fail(error, json: invocation.json)
    }
    switch (body, invocation.crashes) {
    case (.crashes(let list), _):
      if invocation.json {
        json { json in
          json.key("crashes")
          json.beginArray()
          for crash in list { encode(crash, into: &json) }
          json.endArray()
        }
      } else {
        output.bytes += renderCrashes(list, now: Self.wallTime(), style: standardStyle())
      }
    case (.crash(let document), .export):
      output.bytes += document + [UInt8(ascii: "\n")]
      output.isText = false
    case (.crash(let document), _) where invocation.json:
      json { json in
        json.key("crash")
        json.verbatim(document)
      }
    case (.crash(let document), _):
      guard let text = renderCrash(document, style: standardStyle()) else {
        return fail(ExitCode.failed, "failed", "guardian's report cannot be understood", json: false)
      }
      output.bytes += text
    case (.error(let error), _): return fail(error, json: invocation.json)
    case (.services, _), (.done, _), (.reloaded, _), (.upgraded, _), (.plan, _), (.drill, _), (.summary, _),
      (.events, _), (.version, _):
      return fail(ExitCode.failed, "failed", "guardian gave another answer than asked for", json: invocation.json)
    }
    return ExitCode.done
  }

  private mutating func events(_ invocation: Invocation) -> Int32 {
    var status = ExitCode.failed
    guard let chosen = choose(invocation, status: &status) else { return status }
    for name in chosen.unmatched { complain(Self.noSuch(name)) }
    if chosen.names.isEmpty, !chosen.unmatched.isEmpty {
      if invocation.json { json { encodeMissing(chosen.unmatched, into: &$0) } }
      return ExitCode.noSuchService
    }
    // More than fit one request are picked here.
    let picked = chosen.names.count > 500 ? Set(chosen.names) : nil
    var asked = EventsRequest(names: picked == nil ? chosen.names : [], follow: invocation.follow)
    switch invocation.since {
    case nil: break
    case .ago(let milliseconds)?:
      asked.since = WallTime(
        nanoseconds: Self.wallTime().nanoseconds.subtractingSaturating(Duration.milliseconds(milliseconds).nanoseconds))
    case .time(let time)?: asked.since = time
    case .event(let id)?: asked.after = id
    }
    let request = ControlRequest.events(asked)
    var view = EventView(style: standardStyle())
    var found: [EventRecord] = []
    var refusal: ControlError?
    var isHeard = true
    do throws(Daemon.Fault) {
      let daemon = try Daemon.connect(to: invocation.target)
      try daemon.send([ControlCall(request, more: true)])
      try daemon.follow(request, patience: asked.follow ? nil : patience) { body in
        switch body {
        case .events(let all, let missed):
          let events = picked.map { picked in all.filter { picked.contains($0.service) } } ?? all
          if invocation.json, !asked.follow {
            found += events
            return true
          }
          if missed > 0 { output.bytes += invocation.json ? missedLine(missed) : view.renderMissed(missed) }
          if invocation.json {
            for event in events { output.bytes += eventLine(event) }
          } else {
            output.bytes += view.render(events)
          }
          // Whoever follows wants to see each as it comes, and a long past need not be kept.
          isHeard = output.flush()
          output.bytes = []
          return isHeard
        case .error(let error): refusal = error
        case .services, .done, .reloaded, .upgraded, .plan, .drill, .crashes, .crash, .summary, .version: break
        }
        return true
      }
    } catch {
      return fail(error, json: invocation.json)
    }
    if let refusal { return fail(refusal, json: invocation.json) }
    if invocation.json, !asked.follow {
      json { json in
        json.key("events")
        json.beginArray()
        for event in found { encode(event, into: &json) }
        json.endArray()
        encodeMissing(chosen.unmatched, into: &json)
      }
    }
    return !isHeard ? ExitCode.failed : chosen.unmatched.isEmpty ? ExitCode.done : ExitCode.noSuchService
  }

  static func wallTime() -> WallTime {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return WallTime(nanoseconds: Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec))
  }

  private mutating func check(_ invocation: Invocation) -> Int32 {
    guard let path = GuardianProgram.find() else {
      return fail(ExitCode.failed, "failed", "cannot find the guardian program, which checks", json: invocation.json)
    }
    var arguments = [invocation.explain ? "--explain" : "--check"]
    if let config = invocation.config { arguments += ["--config", config] }
    if invocation.json { arguments.append("--json") }
    if !invocation.names.isEmpty { arguments += ["--"] + invocation.names }
    let error = GuardianProgram.become(path, arguments)
    return fail(ExitCode.failed, "failed", "cannot run \(path): \(reason(error))", json: invocation.json)
  }

  private mutating func upgrade(_ invocation: Invocation) -> Int32 {
    let body: ReplyBody
    do throws(Daemon.Fault) {
      // The new program is tried first, and then reads the whole configuration.
      body = try ask(.upgrade, invocation, patience: Self.longPatience)
    } catch {
      return fail(error, json: invocation.json)
    }
    switch body {
    case .upgraded(let upgraded):
      if invocation.json {
        json { encode(upgraded, into: &$0) }
      } else {
        output.bytes += upgradedText(upgraded).utf8
      }
      return ExitCode.done
    case .error(let error): return fail(error, json: invocation.json)
    case .services, .done, .reloaded, .plan, .drill, .summary, .crashes, .crash, .events, .version:
      return fail(ExitCode.failed, "failed", "guardian gave another answer than asked for", json: invocation.json)
    }
  }

  private mutating func version(_ invocation: Invocation) -> Int32 {
    if !invocation.json { output.bytes += "guardianctl \(guardianVersion)\n".utf8 }
    let body: ReplyBody
    do throws(Daemon.Fault) {
      let daemon = try Daemon.connect(to: invocation.target)
      try daemon.send([ControlCall(.version)])
      body = try daemon.reply(to: .version, patience: patience)
    } catch {
      return fail(error, json: invocation.json) { json in
        json.key("client")
        json.string(guardianVersion)
      }
    }
    switch body {
    case .version(let version):
      if invocation.json {
        json { json in
          json.key("client")
          json.string(guardianVersion)
          json.key("guardian")
          json.beginObject()
          encode(version, into: &json)
          json.endObject()
        }
      } else {
        output.bytes += "guardian    \(printable(version.version))\n".utf8
        output.bytes += renderGuarantees(version, style: standardStyle())
      }
      return ExitCode.done
    case .error(let error): return fail(error, json: invocation.json)
    case .services, .done, .reloaded, .upgraded, .plan, .drill, .crashes, .crash, .events, .summary:
      return fail(ExitCode.failed, "failed", "guardian gave another answer than asked for", json: invocation.json)
    }
  }

  // MARK: - Answers

  /// The one JSON object of this run; `members` writes what follows `schema`.
  mutating func json(_ members: (inout JSONWriter) -> Void) {
    var json = JSONWriter()
    json.beginObject()
    json.key("schema")
    json.integer(1)
    members(&json)
    json.endObject()
    json.bytes.append(UInt8(ascii: "\n"))
    output.bytes = json.bytes
    output.isText = false
  }

  mutating func fail(
    _ status: Int32, _ word: String, _ sentence: String, json wanted: Bool,
    _ more: (inout JSONWriter) -> Void = { _ in }
  ) -> Int32 {
    complain(sentence)
    if wanted {
      json { json in
        more(&json)
        json.key("error")
        json.beginObject()
        json.key("name")
        json.string(word)
        json.key("message")
        json.string(sentence)
        json.endObject()
      }
    }
    return status
  }

  mutating func fail(_ error: ControlError, json wanted: Bool) -> Int32 {
    // Nobody else has said which.
    var sentence = error.sentence
    if case .noSuchService(let name) = error, !name.isEmpty { sentence = Self.noSuch(name) }
    return fail(error.exitCode, error.word, sentence, json: wanted)
  }

  mutating func fail(
    _ fault: Daemon.Fault, json wanted: Bool, _ more: (inout JSONWriter) -> Void = { _ in }
  ) -> Int32 {
    switch fault {
    case .unreachable(let text): fail(ExitCode.unreachable, "unreachable", text, json: wanted, more)
    case .notPermitted(let text): fail(ExitCode.notPermitted, "not-permitted", text, json: wanted, more)
    }
  }
}
