import Glibc
package import GuardianModel

/// One reply as the client sees it.
package enum ReplyBody: Hashable, Sendable {
  case services([ServiceStatus], missing: [String])
  case done(note: String)
  case reloaded(services: Int, ReloadChange, diagnostics: [Diagnostic])
  case upgraded(Upgraded)
  case plan(Plan)
  case drill(Plan, failed: Int)
  case crashes([CrashSummary])
  /// One whole report, as JSON.
  case crash([UInt8])
  case events([EventRecord], missed: Int)
  case summary(DaemonSummary)
  case version(DaemonVersion)
  case error(ControlError)
}

package struct Plan: Hashable, Sendable {
  package var name: String
  package var entries: [PlanEntry]
  package init(name: String, entries: [PlanEntry]) {
    self.name = name
    self.entries = entries
  }
}

/// What the other side sent is not what the interface says.
package struct ReplyFault: Error, Hashable, Sendable {
  package var reason: String
}

/// Decodes a reply to `request`. Members that this version does not know are passed over.
package func decodeReply(
  _ bytes: UnsafeBufferPointer<UInt8>, to request: ControlRequest
) -> Answer<(body: ReplyBody, continues: Bool), ReplyFault> {
  let decoded = withJSON(bytes) { root -> Answer<(body: ReplyBody, continues: Bool), ReplyFault> in
    do throws(ReplyFault) {
      guard root.isObject else { throw ReplyFault(reason: "a reply that is no object") }
      if let name = root["error"]?.string {
        return .success((.error(try decodeError(name, root["parameters"])), false))
      }
      guard let parameters = root["parameters"], parameters.isObject else {
        throw ReplyFault(reason: "a reply without parameters")
      }
      return .success((try decodeBody(parameters, request), root["continues"]?.bool ?? false))
    } catch {
      return .failure(error)
    }
  }
  switch decoded {
  case .success(let result): return result
  case .failure(let fault): return .failure(ReplyFault(reason: "a reply that is no JSON: \(fault.reason)"))
  }
}

/// What `guardian --plan NAME` prints.
package func decodePlan(_ bytes: UnsafeBufferPointer<UInt8>) -> Answer<Plan, ReplyFault> {
  let decoded = withJSON(bytes) { root -> Answer<Plan, ReplyFault> in
    do throws(ReplyFault) {
      return .success(try plan(root))
    } catch {
      return .failure(error)
    }
  }
  switch decoded {
  case .success(let result): return result
  case .failure(let fault): return .failure(ReplyFault(reason: "no JSON: \(fault.reason)"))
  }
}

private func decodeBody(_ p: JSONValue, _ request: ControlRequest) throws(ReplyFault) -> ReplyBody {
  switch request {
  case .list(_, let brief):
    guard let list = p["services"], list.isArray else { throw ReplyFault(reason: "a list without services") }
    var services: [ServiceStatus] = []
    services.reserveCapacity(Reply.chunk)
    for element in list.elements { services.append(try decodeService(element, brief: brief)) }
    return .services(services, missing: try optionalStrings(p, "missing"))
  case .start, .stop, .restart, .release, .reset, .hold, .reloadService, .resetGuardian, .plugins, .safeMode, .repair:
    return .done(note: try optionalText(p, "note") ?? "")
  case .reload:
    var change = ReloadChange()
    change.dryRun = try optionalFlag(p, "dry_run")
    change.added = try optionalStrings(p, "added")
    change.removed = try optionalStrings(p, "removed")
    change.unchanged = present(p, "unchanged") == nil ? 0 : Int(try integer(p["unchanged"], "unchanged"))
    change.invalid = try optionalStrings(p, "invalid")
    change.host = try optionalStrings(p, "host")
    try forEach(p, "details") { (o) throws(ReplyFault) in
      var changed = ReloadChange.Changed(name: try text(o["name"], "name"))
      changed.live = try optionalStrings(o, "live")
      changed.atStart = try optionalStrings(o, "next_start")
      changed.note = try optionalText(o, "note") ?? ""
      change.changed.append(changed)
    }
    try forEach(p, "need_restart") { (o) throws(ReplyFault) in
      change.needRestart.append(
        ReloadChange.Pending(name: try text(o["name"], "name"), keys: try optionalStrings(o, "keys")))
    }
    try forEach(p, "restarts") { (o) throws(ReplyFault) in
      change.restarts.append(
        ReloadChange.Restarted(
          name: try text(o["name"], "name"), done: try flag(o["done"], "done"),
          text: try optionalText(o, "text") ?? ""))
    }
    return .reloaded(
      services: Int(try integer(p["services"], "services")), change, diagnostics: try diagnostics(p))
  case .upgrade:
    guard let pid = Int32(exactly: try integer(p["pid"], "pid")) else { throw wrong("pid") }
    return .upgraded(
      Upgraded(
        from: try text(p["from"], "from"), to: try text(p["to"], "to"), pid: pid,
        services: Int(try integer(p["services"], "services"))))
  // Typed in another way: see `decodeMetrics`.
  case .metrics: throw ReplyFault(reason: "metrics where none are expected")
  case .plan: return .plan(try plan(p))
  case .drill: return .drill(try plan(p), failed: Int(clamping: try integer(p["failed"], "failed")))
  case .crashes:
    var list: [CrashSummary] = []
    try forEach(p, "crashes") { (o) throws(ReplyFault) in list.append(try crash(o)) }
    return .crashes(list)
  case .crash:
    guard let report = p["report"], report.isObject, let bytes = report.serialized else { throw wrong("report") }
    return .crash(bytes)
  case .events:
    var list: [EventRecord] = []
    try forEach(p, "events") { (o) throws(ReplyFault) in list.append(try event(o)) }
    return .events(list, missed: Int(clamping: try optionalInteger(p, "missed") ?? 0))
  case .summary:
    var summary = DaemonSummary()
    summary.line = try text(p["line"], "line")
    summary.state = try text(p["state"], "state")
    summary.warnings = try optionalStrings(p, "warnings")
    summary.diagnostics = try diagnostics(p)
    return .summary(summary)
  case .version:
    var version = DaemonVersion()
    version.version = try text(p["version"], "version")
    p["guarantees"]?.forEachMember { key, value in
      version.guarantees.append(.init(String(cString: key), value.string ?? ""))
    }
    return .version(version)
  }
}

private func event(_ o: JSONValue) throws(ReplyFault) -> EventRecord {
  guard let id = EventID(try text(o["id"], "id")) else { throw wrong("id") }
  guard let details = o["details"], details.isObject, let bytes = details.serialized else { throw wrong("details") }
  return EventRecord(
    id: id, at: try time(o["at"], "at"), service: try text(o["service"], "service"), name: try text(o["name"], "name"),
    text: try text(o["text"], "text"), details: bytes)
}

private func crash(_ o: JSONValue) throws(ReplyFault) -> CrashSummary {
  let id = Array(try text(o["id"], "id").utf8)
  guard let run = RunID(hexadecimal: id[...]) else { throw wrong("id") }
  guard
    let signature = Signature(try text(o["signature"], "signature"), strong: try optionalFlag(o, "signature_strong"))
  else { throw wrong("signature") }
  return CrashSummary(
    id: run, service: try text(o["service"], "service"), at: try time(o["at"], "at"),
    crashClass: try text(o["class"], "class"), cause: try text(o["cause"], "cause"), text: try text(o["text"], "text"),
    signature: signature, count: Int(clamping: try integer(o["count"], "count")), first: try time(o["first"], "first"),
    last: try time(o["last"], "last"))
}

private func decodeError(_ name: String, _ p: JSONValue?) throws(ReplyFault) -> ControlError {
  func member(_ key: StaticString) -> String { p?[key]?.string ?? "" }
  switch name {
  case "org.varlink.service.InterfaceNotFound": return .interfaceNotFound(member("interface"))
  case "org.varlink.service.MethodNotFound": return .methodNotFound(member("method"))
  case "org.varlink.service.MethodNotImplemented": return .methodNotImplemented(member("method"))
  case "org.varlink.service.InvalidParameter": return .invalidParameter(member("parameter"))
  case "org.varlink.service.ExpectedMore": return .expectedMore
  case "org.varlink.service.PermissionDenied": return .notPermitted(reason: "")
  case "io.guardian.Supervisor.NoSuchService": return .noSuchService(name: member("name"))
  case "io.guardian.Supervisor.NotPermitted":
    return .notPermitted(
      reason: member("reason"), needs: (p?["needs"]?.string).flatMap(Role.init(rawValue:)),
      service: p?["service"]?.string)
  case "io.guardian.Supervisor.Failed": return .failed(reason: member("reason"))
  case "io.guardian.Supervisor.Busy": return .busy(reason: member("reason"))
  case "io.guardian.Supervisor.ConfigurationFault":
    guard let p else { return .configurationFault([]) }
    return .configurationFault(try diagnostics(p))
  default: return .failed(reason: name)
  }
}

/// The members of a service, in the order in which guardian writes them: the next one is nearly always the one expected,
/// which is what makes a long list quick.
private enum Member: String, CaseIterable {
  case name, description, wanted, phase, step, settled, degraded, pid, run, since, uptime_ms, restarts, strikes
  case strikes_allowed, held, disabled_plugins, next, last_end, reason, type, observe, clears, pending_definition
  case runbook, contact, log, log_file, status_text, requires, after, groups, repairs, waits_for, checks, plugins,
    stopped_by
  case fallback, stands_in_for, switches, notes
}
private let members = Member.allCases

/// One element of a brief list; nil for what is none.
func decodeBriefService(_ bytes: UnsafeBufferPointer<UInt8>) -> ServiceStatus? {
  let decoded = withJSON(bytes) { object -> ServiceStatus? in
    guard object.isObject else { return nil }
    do throws(ReplyFault) {
      return try decodeService(object, brief: true)
    } catch {
      return nil
    }
  }
  if case .success(let service) = decoded { return service }
  return nil
}

private func decodeService(_ object: JSONValue, brief: Bool) throws(ReplyFault) -> ServiceStatus {
  var s = ServiceStatus(name: "")
  // What the brief form leaves out is as usual.
  s.wanted = .up
  s.phase = .running
  s.settled = true
  var seen: (name: Bool, phase: Bool, settled: Bool) = (false, brief, brief)
  var expected = 0
  try object.forEachMember { (key, value) throws(ReplyFault) in
    var found = expected
    var known = false
    for _ in 0..<members.count {
      if members[found].rawValue.withCString({ strcmp($0, key) == 0 }) {
        known = true
        break
      }
      found = found + 1 == members.count ? 0 : found + 1
    }
    if !known || value.isNull { return }
    expected = found + 1 == members.count ? 0 : found + 1
    switch members[found] {
    case .name:
      s.name = try text(value, "name")
      seen.name = true
    case .description: s.description = try text(value, "description")
    case .wanted: s.wanted = try word(value, "wanted")
    case .phase:
      s.phase = try word(value, "phase")
      seen.phase = true
    case .step: s.step = try word(value, "step")
    case .settled:
      s.settled = try flag(value, "settled")
      seen.settled = true
    case .degraded: s.degraded = try flag(value, "degraded")
    case .pid: s.pid = Int32(exactly: try integer(value, "pid"))
    case .run: s.run = try text(value, "run")
    case .since: s.since = try time(value, "since")
    case .uptime_ms: s.uptimeMilliseconds = try integer(value, "uptime_ms")
    case .restarts: s.restarts = Int(try integer(value, "restarts"))
    case .strikes: s.strikes = Int(try integer(value, "strikes"))
    case .strikes_allowed: s.strikesAllowed = Int(try integer(value, "strikes_allowed"))
    case .held: s.held = try flag(value, "held")
    case .disabled_plugins: s.disabledPlugins = try strings(value, "disabled_plugins")
    case .next:
      s.next = .init(
        action: try text(value["action"], "action"), at: try time(value["at"], "at"),
        inMilliseconds: try integer(value["in_ms"], "in_ms"))
    case .last_end: s.lastEnd = try decodeEnd(value)
    case .reason: s.reason = try text(value, "reason")
    case .type: s.kind = try word(value, "type")
    case .observe: s.observe = try flag(value, "observe")
    case .clears: s.clears = try text(value, "clears")
    case .pending_definition: s.pendingDefinition = try flag(value, "pending_definition")
    case .runbook: s.runbook = try text(value, "runbook")
    case .contact: s.contact = try text(value, "contact")
    case .log: s.log = try text(value, "log")
    case .log_file: s.logFile = try text(value, "log_file")
    case .status_text: s.statusText = try text(value, "status_text")
    case .requires: s.requires = try strings(value, "requires")
    case .after: s.after = try strings(value, "after")
    case .groups: s.groups = try strings(value, "groups")
    case .repairs: s.repairs = try strings(value, "repairs")
    case .waits_for: s.waitsFor = try strings(value, "waits_for")
    case .checks: s.checks = try decodeChecks(value)
    case .plugins: s.plugins = try decodePlugins(value)
    case .stopped_by: s.stoppedBy = try text(value, "stopped_by")
    case .fallback: s.fallback = try text(value, "fallback")
    case .stands_in_for: s.standsInFor = try strings(value, "stands_in_for")
    case .switches: s.switches = try decodeSwitches(value)
    case .notes: s.notes = try strings(value, "notes")
    }
  }
  guard seen.name else { throw wrong("name") }
  guard seen.phase else { throw wrong("phase") }
  guard seen.settled else { throw wrong("settled") }
  return s
}

private func decodeChecks(_ list: JSONValue) throws(ReplyFault) -> [CheckStatus] {
  var checks: [CheckStatus] = []
  for o in list.elements {
    var check = CheckStatus(
      name: try text(o["name"], "name"), kind: try text(o["kind"], "kind"), state: try word(o["state"], "state"),
      since: try time(o["since"], "since"))
    check.text = try optionalText(o, "text") ?? ""
    check.failures = Int(try optionalInteger(o, "failures") ?? 0)
    checks.append(check)
  }
  return checks
}

private func decodePlugins(_ list: JSONValue) throws(ReplyFault) -> [PluginStatus] {
  var plugins: [PluginStatus] = []
  for o in list.elements {
    var plugin = PluginStatus(name: try text(o["name"], "name"))
    plugin.state = try word(o["state"], "state")
    plugin.off = try optionalFlag(o, "off")
    plugin.by = try optionalText(o, "by") ?? ""
    if let until = present(o, "until") { plugin.until = try time(until, "until") }
    plugin.suspicion = try optionalInteger(o, "suspicion").map { Int(clamping: $0) }
    plugin.pinned = try optionalFlag(o, "pinned")
    plugin.partner = try optionalText(o, "partner") ?? ""
    if let files = present(o, "files") {
      for file in files.elements {
        var change = FileChange(path: try text(file["path"], "path"), at: nil)
        if let at = present(file, "changed") { change.at = try time(at, "changed") }
        plugin.files.append(change)
      }
    }
    plugins.append(plugin)
  }
  return plugins
}

private func decodeSwitches(_ list: JSONValue) throws(ReplyFault) -> [SwitchStatus] {
  var switches: [SwitchStatus] = []
  for o in list.elements {
    switches.append(
      SwitchStatus(
        what: try text(o["what"], "what"), reason: try text(o["reason"], "reason"),
        until: present(o, "until") == nil ? nil : try time(o["until"], "until"), file: try text(o["file"], "file")))
  }
  return switches
}

private func decodeEnd(_ o: JSONValue) throws(ReplyFault) -> ServiceStatus.LastEnd {
  var end = ServiceStatus.LastEnd(
    cause: try text(o["cause"], "cause"), crashClass: try text(o["class"], "class"), at: try time(o["at"], "at"),
    uptimeMilliseconds: try optionalInteger(o, "uptime_ms") ?? 0, text: try optionalText(o, "text") ?? "")
  end.code = try optionalInteger(o, "code").flatMap { Int32(exactly: $0) }
  end.signal = try optionalText(o, "signal")
  end.core = try optionalFlag(o, "core")
  return end
}

private func diagnostics(_ p: JSONValue) throws(ReplyFault) -> [Diagnostic] {
  var result: [Diagnostic] = []
  guard let list = present(p, "diagnostics") else { return [] }
  for o in list.elements {
    result.append(
      Diagnostic(
        try word(o["severity"], "severity"), file: try text(o["file"], "file"),
        line: try optionalInteger(o, "line").flatMap { Int(exactly: $0) },
        column: try optionalInteger(o, "column").flatMap { Int(exactly: $0) },
        what: try text(o["what"], "what"), why: try optionalText(o, "why") ?? "",
        suggestion: try optionalText(o, "suggestion")))
  }
  return result
}

private func plan(_ p: JSONValue) throws(ReplyFault) -> Plan {
  var result = Plan(name: try text(p["name"], "name"), entries: [])
  guard let entries = p["entries"], entries.isArray else { throw ReplyFault(reason: "a plan without entries") }
  for o in entries.elements {
    result.entries.append(
      PlanEntry(
        earliest: .milliseconds(try integer(o["earliest_ms"], "earliest_ms")),
        latest: .milliseconds(try integer(o["latest_ms"], "latest_ms")),
        action: try text(o["action"], "action"), step: try word(o["step"], "step"),
        strikes: Int(try integer(o["strikes"], "strikes")),
        strikesAllowed: Int(try integer(o["strikes_allowed"], "strikes_allowed")), text: try text(o["text"], "text")))
  }
  return result
}

// Members. Null counts as absent; a wrong type is a fault.

private func wrong(_ key: StaticString) -> ReplyFault {
  ReplyFault(reason: "'\(key)' is missing, or of the wrong type")
}
private func present(_ o: JSONValue, _ key: StaticString) -> JSONValue? {
  guard let value = o[key], !value.isNull else { return nil }
  return value
}

/// The elements of a list that may be absent.
private func forEach(
  _ o: JSONValue, _ key: StaticString, _ body: (JSONValue) throws(ReplyFault) -> Void
) throws(ReplyFault) {
  guard let list = present(o, key) else { return }
  guard list.isArray else { throw wrong(key) }
  for element in list.elements { try body(element) }
}

private func text(_ value: JSONValue?, _ key: StaticString) throws(ReplyFault) -> String {
  guard let text = value?.string else { throw wrong(key) }
  return text
}
private func optionalText(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> String? {
  guard let value = present(o, key) else { return nil }
  return try text(value, key)
}
private func integer(_ value: JSONValue?, _ key: StaticString) throws(ReplyFault) -> Int64 {
  guard let number = value?.integer else { throw wrong(key) }
  return number
}
private func optionalInteger(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> Int64? {
  guard let value = present(o, key) else { return nil }
  return try integer(value, key)
}
private func flag(_ value: JSONValue?, _ key: StaticString) throws(ReplyFault) -> Bool {
  guard let flag = value?.bool else { throw wrong(key) }
  return flag
}
private func strings(_ value: JSONValue?, _ key: StaticString) throws(ReplyFault) -> [String] {
  guard let strings = value?.strings else { throw wrong(key) }
  return strings
}
private func optionalFlag(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> Bool {
  guard let value = present(o, key) else { return false }
  return try flag(value, key)
}
private func optionalStrings(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> [String] {
  guard let value = present(o, key) else { return [] }
  return try strings(value, key)
}
private func time(_ value: JSONValue?, _ key: StaticString) throws(ReplyFault) -> WallTime {
  guard let read = value?.withBytes({ WallTime(rfc3339: $0) }), let time = read else { throw wrong(key) }
  return time
}
private func word<W: RawRepresentable<String>>(_ value: JSONValue?, _ key: StaticString) throws(ReplyFault) -> W {
  let text = try text(value, key)
  guard let word = W(rawValue: text) else {
    throw ReplyFault(reason: "unknown \(key) '\(text)'; is guardian newer than guardianctl?")
  }
  return word
}
