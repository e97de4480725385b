package import GuardianModel

/// One reply as the client sees it.
package enum ReplyBody: Hashable, Sendable {
  case services([ServiceStatus], missing: [String])
  case done(note: String)
  case reloaded(services: Int, diagnostics: [Diagnostic])
  case plan(Plan)
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
) -> Result<(body: ReplyBody, continues: Bool), ReplyFault> {
  let decoded = withJSON(bytes) { root -> Result<(body: ReplyBody, continues: Bool), ReplyFault> in
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
package func decodePlan(_ bytes: UnsafeBufferPointer<UInt8>) -> Result<Plan, ReplyFault> {
  let decoded = withJSON(bytes) { root -> Result<Plan, ReplyFault> in
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
  case .list:
    guard let list = p["services"], list.isArray else { throw ReplyFault(reason: "a list without services") }
    var services: [ServiceStatus] = []
    services.reserveCapacity(Reply.chunk)
    for element in list.elements { services.append(try decodeService(element)) }
    return .services(services, missing: try strings(p, "missing"))
  case .start, .stop, .restart, .release, .reset, .hold: return .done(note: try optionalText(p, "note") ?? "")
  case .reload: return .reloaded(services: Int(try integer(p, "services")), diagnostics: try diagnostics(p))
  case .plan: return .plan(try plan(p))
  case .summary:
    var summary = DaemonSummary()
    summary.line = try text(p, "line")
    summary.state = try text(p, "state")
    summary.warnings = try strings(p, "warnings")
    summary.diagnostics = try diagnostics(p)
    return .summary(summary)
  case .version:
    var version = DaemonVersion()
    version.version = try text(p, "version")
    p["guarantees"]?.forEachMember { key, value in
      version.guarantees.append(.init(String(cString: key), value.string ?? ""))
    }
    return .version(version)
  }
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
  case "io.guardian.Supervisor.NotPermitted": return .notPermitted(reason: member("reason"))
  case "io.guardian.Supervisor.Failed": return .failed(reason: member("reason"))
  case "io.guardian.Supervisor.Busy": return .busy(reason: member("reason"))
  case "io.guardian.Supervisor.ConfigurationFault":
    guard let p else { return .configurationFault([]) }
    return .configurationFault(try diagnostics(p))
  default: return .failed(reason: name)
  }
}

private func decodeService(_ o: JSONValue) throws(ReplyFault) -> ServiceStatus {
  var s = ServiceStatus(name: try text(o, "name"))
  s.phase = try word(o, "phase")
  s.settled = try flag(o, "settled")
  s.wanted = try optionalWord(o, "wanted") ?? .up
  s.step = try optionalWord(o, "step") ?? .restart
  s.degraded = try flag(o, "degraded")
  s.held = try flag(o, "held")
  s.uptimeMilliseconds = try optionalInteger(o, "uptime_ms")
  s.restarts = Int(try optionalInteger(o, "restarts") ?? 0)
  s.strikes = Int(try optionalInteger(o, "strikes") ?? 0)
  s.strikesAllowed = Int(try optionalInteger(o, "strikes_allowed") ?? 0)
  s.disabledPlugins = try strings(o, "disabled_plugins")
  s.kind = try optionalWord(o, "type") ?? .daemon
  s.observe = try flag(o, "observe")
  if let next = present(o, "next") {
    s.next = .init(
      action: try text(next, "action"), at: try time(next, "at"), inMilliseconds: try integer(next, "in_ms"))
  }
  if let end = present(o, "last_end") { s.lastEnd = try decodeEnd(end) }
  s.reason = try optionalText(o, "reason") ?? ""
  // From here on the brief form has nothing; `since` is there in every full one.
  guard o["since"] != nil else { return s }
  s.since = try time(o, "since")
  s.description = try optionalText(o, "description") ?? ""
  s.pid = try optionalInteger(o, "pid").flatMap { Int32(exactly: $0) }
  s.run = try optionalText(o, "run")
  s.clears = try optionalText(o, "clears") ?? ""
  s.pendingDefinition = try flag(o, "pending_definition")
  s.runbook = try optionalText(o, "runbook")
  s.contact = try optionalText(o, "contact")
  s.log = try optionalText(o, "log") ?? ""
  s.statusText = try optionalText(o, "status_text") ?? ""
  s.notes = try strings(o, "notes")
  return s
}

private func decodeEnd(_ o: JSONValue) throws(ReplyFault) -> ServiceStatus.LastEnd {
  var end = ServiceStatus.LastEnd(
    cause: try text(o, "cause"), crashClass: try text(o, "class"), at: try time(o, "at"),
    uptimeMilliseconds: try optionalInteger(o, "uptime_ms") ?? 0, text: try optionalText(o, "text") ?? "")
  end.code = try optionalInteger(o, "code").flatMap { Int32(exactly: $0) }
  end.signal = try optionalText(o, "signal")
  end.core = try flag(o, "core")
  return end
}

private func diagnostics(_ p: JSONValue) throws(ReplyFault) -> [Diagnostic] {
  var result: [Diagnostic] = []
  guard let list = present(p, "diagnostics") else { return [] }
  for o in list.elements {
    result.append(
      Diagnostic(
        try word(o, "severity"), file: try text(o, "file"),
        line: try optionalInteger(o, "line").flatMap { Int(exactly: $0) },
        column: try optionalInteger(o, "column").flatMap { Int(exactly: $0) },
        what: try text(o, "what"), why: try optionalText(o, "why") ?? "",
        suggestion: try optionalText(o, "suggestion")))
  }
  return result
}

private func plan(_ p: JSONValue) throws(ReplyFault) -> Plan {
  var result = Plan(name: try text(p, "name"), entries: [])
  guard let entries = p["entries"], entries.isArray else { throw ReplyFault(reason: "a plan without entries") }
  for o in entries.elements {
    result.entries.append(
      PlanEntry(
        earliest: .milliseconds(try integer(o, "earliest_ms")), latest: .milliseconds(try integer(o, "latest_ms")),
        action: try text(o, "action"), step: try word(o, "step"), strikes: Int(try integer(o, "strikes")),
        strikesAllowed: Int(try integer(o, "strikes_allowed")), text: try text(o, "text")))
  }
  return result
}

// Members. Null counts as absent; a wrong type is a fault.

private func present(_ o: JSONValue, _ key: StaticString) -> JSONValue? {
  guard let value = o[key], !value.isNull else { return nil }
  return value
}
private func wrong(_ key: StaticString) -> ReplyFault { ReplyFault(reason: "'\(key)' is missing, or of the wrong type") }

private func text(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> String {
  guard let value = o[key]?.string else { throw wrong(key) }
  return value
}
private func optionalText(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> String? {
  guard let value = present(o, key) else { return nil }
  guard let text = value.string else { throw wrong(key) }
  return text
}
private func integer(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> Int64 {
  guard let value = o[key]?.integer else { throw wrong(key) }
  return value
}
private func optionalInteger(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> Int64? {
  guard let value = present(o, key) else { return nil }
  guard let number = value.integer else { throw wrong(key) }
  return number
}
private func flag(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> Bool {
  guard let value = present(o, key) else { return false }
  guard let flag = value.bool else { throw wrong(key) }
  return flag
}
private func strings(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> [String] {
  guard let value = present(o, key) else { return [] }
  guard let strings = value.strings else { throw wrong(key) }
  return strings
}
private func time(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> WallTime {
  guard let value = o[key]?.withBytes({ WallTime(rfc3339: $0) }), let time = value else { throw wrong(key) }
  return time
}
private func word<W: RawRepresentable<String>>(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> W {
  guard let word: W = try optionalWord(o, key) else { throw wrong(key) }
  return word
}
private func optionalWord<W: RawRepresentable<String>>(_ o: JSONValue, _ key: StaticString) throws(ReplyFault) -> W? {
  guard let text = try optionalText(o, key) else { return nil }
  guard let word = W(rawValue: text) else {
    throw ReplyFault(reason: "unknown \(key) '\(text)'; is guardian newer than guardianctl?")
  }
  return word
}
