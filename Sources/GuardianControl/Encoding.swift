package import GuardianModel

/// One service as an object. The full form has every member, with null where there is nothing; the brief form leaves out
/// what a table does not show and what has its usual value.
package func encode(_ s: ServiceStatus, brief: Bool, into json: inout JSONWriter) {
  json.beginObject()
  json.key("name")
  json.string(s.name)
  if brief {
    encodeBrief(s, into: &json)
    json.endObject()
    return
  }
  json.key("description")
  json.string(s.description)
  json.key("wanted")
  json.string(s.wanted.rawValue)
  json.key("phase")
  json.string(s.phase.rawValue)
  json.key("step")
  json.string(s.step.rawValue)
  json.key("settled")
  json.bool(s.settled)
  json.key("degraded")
  json.bool(s.degraded)
  json.key("pid")
  if let pid = s.pid { json.integer(pid) } else { json.null() }
  json.key("run")
  if let run = s.run { json.string(run) } else { json.null() }
  json.key("since")
  json.time(s.since)
  json.key("uptime_ms")
  if let uptime = s.uptimeMilliseconds { json.integer(uptime) } else { json.null() }
  json.key("restarts")
  json.integer(s.restarts)
  json.key("strikes")
  json.integer(s.strikes)
  json.key("strikes_allowed")
  json.integer(s.strikesAllowed)
  json.key("held")
  json.bool(s.held)
  json.key("disabled_plugins")
  json.strings(s.disabledPlugins)
  json.key("next")
  if let next = s.next { encode(next, into: &json) } else { json.null() }
  json.key("last_end")
  if let end = s.lastEnd { encode(end, into: &json) } else { json.null() }
  json.key("reason")
  json.string(s.reason)
  json.key("type")
  json.string(s.kind.rawValue)
  json.key("observe")
  json.bool(s.observe)
  json.key("clears")
  json.string(s.clears)
  json.key("pending_definition")
  json.bool(s.pendingDefinition)
  json.key("runbook")
  if let runbook = s.runbook { json.string(runbook) } else { json.null() }
  json.key("contact")
  if let contact = s.contact { json.string(contact) } else { json.null() }
  json.key("log")
  json.string(s.log)
  json.key("log_file")
  if let file = s.logFile { json.string(file) } else { json.null() }
  json.key("status_text")
  json.string(s.statusText)
  json.key("requires")
  json.strings(s.requires)
  json.key("after")
  json.strings(s.after)
  json.key("groups")
  json.strings(s.groups)
  json.key("repairs")
  json.strings(s.repairs)
  json.key("waits_for")
  json.strings(s.waitsFor)
  json.key("checks")
  json.beginArray()
  for check in s.checks {
    json.beginObject()
    json.key("name")
    json.string(check.name)
    json.key("kind")
    json.string(check.kind)
    json.key("state")
    json.string(check.state.rawValue)
    json.key("since")
    json.time(check.since)
    json.key("text")
    json.string(check.text)
    json.key("failures")
    json.integer(check.failures)
    json.endObject()
  }
  json.endArray()
  json.key("plugins")
  encode(s.plugins, into: &json)
  json.key("stopped_by")
  if s.stoppedBy.isEmpty { json.null() } else { json.string(s.stoppedBy) }
  json.key("fallback")
  if let fallback = s.fallback { json.string(fallback) } else { json.null() }
  json.key("stands_in_for")
  json.strings(s.standsInFor)
  json.key("switches")
  json.beginArray()
  for one in s.switches {
    json.beginObject()
    json.key("what")
    json.string(one.what)
    json.key("reason")
    json.string(one.reason)
    json.key("until")
    if let until = one.until { json.time(until) } else { json.null() }
    json.key("file")
    json.string(one.file)
    json.endObject()
  }
  json.endArray()
  json.key("notes")
  json.strings(s.notes)
  json.endObject()
}

package func encode(_ plugins: [PluginStatus], into json: inout JSONWriter) {
  json.beginArray()
  for plugin in plugins {
    json.beginObject()
    json.key("name")
    json.string(plugin.name)
    json.key("state")
    json.string(plugin.state.rawValue)
    json.key("off")
    json.bool(plugin.off)
    json.key("by")
    if plugin.by.isEmpty { json.null() } else { json.string(plugin.by) }
    json.key("until")
    if let until = plugin.until { json.time(until) } else { json.null() }
    json.key("suspicion")
    if let suspicion = plugin.suspicion { json.integer(suspicion) } else { json.null() }
    json.key("pinned")
    json.bool(plugin.pinned)
    json.key("partner")
    if plugin.partner.isEmpty { json.null() } else { json.string(plugin.partner) }
    json.key("files")
    json.beginArray()
    for file in plugin.files {
      json.beginObject()
      json.key("path")
      json.string(file.path)
      json.key("changed")
      if let at = file.at { json.time(at) } else { json.null() }
      json.endObject()
    }
    json.endArray()
    json.endObject()
  }
  json.endArray()
}

/// The members of `Reload`'s reply, in an object that is open.
package func encodeReload(
  services: Int, _ change: ReloadChange, _ diagnostics: [Diagnostic], into json: inout JSONWriter
) {
  json.key("dry_run")
  json.bool(change.dryRun)
  json.key("services")
  json.integer(services)
  json.key("added")
  json.strings(change.added)
  json.key("changed")
  json.strings(change.changed.map(\.name))
  json.key("removed")
  json.strings(change.removed)
  json.key("next_start")
  json.strings(change.changed.filter { !$0.atStart.isEmpty }.map(\.name))
  json.key("unchanged")
  json.integer(change.unchanged)
  json.key("invalid")
  json.strings(change.invalid)
  json.key("host")
  json.strings(change.host)
  json.key("details")
  json.beginArray()
  for changed in change.changed {
    json.beginObject()
    json.key("name")
    json.string(changed.name)
    json.key("live")
    json.strings(changed.live)
    json.key("next_start")
    json.strings(changed.atStart)
    json.key("note")
    json.string(changed.note)
    json.endObject()
  }
  json.endArray()
  json.key("need_restart")
  json.beginArray()
  for pending in change.needRestart {
    json.beginObject()
    json.key("name")
    json.string(pending.name)
    json.key("keys")
    json.strings(pending.keys)
    json.endObject()
  }
  json.endArray()
  json.key("restarts")
  json.beginArray()
  for restarted in change.restarts {
    json.beginObject()
    json.key("name")
    json.string(restarted.name)
    json.key("done")
    json.bool(restarted.done)
    json.key("text")
    json.string(restarted.text)
    json.endObject()
  }
  json.endArray()
  json.key("diagnostics")
  encode(diagnostics, into: &json)
}

/// The brief form of a service whose values are all usual.
func encodeWell(_ name: String, uptimeMilliseconds: Int64, restarts: Int, into json: inout JSONWriter) {
  json.beginObject()
  json.key("name")
  json.string(name)
  json.key("uptime_ms")
  json.integer(uptimeMilliseconds)
  if restarts != 0 {
    json.key("restarts")
    json.integer(restarts)
  }
  json.endObject()
}

/// Usual values, left out: running, settled, wanted up, step restart, nothing held, no strikes.
private func encodeBrief(_ s: ServiceStatus, into json: inout JSONWriter) {
  if s.wanted != .up {
    json.key("wanted")
    json.string(s.wanted.rawValue)
  }
  if s.phase != .running {
    json.key("phase")
    json.string(s.phase.rawValue)
  }
  if s.step != .restart {
    json.key("step")
    json.string(s.step.rawValue)
  }
  if !s.settled {
    json.key("settled")
    json.bool(false)
  }
  if s.degraded {
    json.key("degraded")
    json.bool(true)
  }
  if s.held {
    json.key("held")
    json.bool(true)
  }
  if let uptime = s.uptimeMilliseconds {
    json.key("uptime_ms")
    json.integer(uptime)
  }
  if s.restarts != 0 {
    json.key("restarts")
    json.integer(s.restarts)
  }
  if s.strikes != 0 {
    json.key("strikes")
    json.integer(s.strikes)
    json.key("strikes_allowed")
    json.integer(s.strikesAllowed)
  }
  if !s.disabledPlugins.isEmpty {
    json.key("disabled_plugins")
    json.strings(s.disabledPlugins)
  }
  if s.kind != .daemon {
    json.key("type")
    json.string(s.kind.rawValue)
  }
  if s.observe {
    json.key("observe")
    json.bool(true)
  }
  if let next = s.next {
    json.key("next")
    encode(next, into: &json)
  }
  // A table has room for one explanation, and a healthy service needs none.
  if !s.settled || s.degraded || s.phase == .finished {
    if let end = s.lastEnd {
      json.key("last_end")
      encode(end, into: &json)
    }
    if !s.reason.isEmpty {
      json.key("reason")
      json.string(s.reason)
    }
  }
}

private func encode(_ next: ServiceStatus.NextAction, into json: inout JSONWriter) {
  json.beginObject()
  json.key("action")
  json.string(next.action)
  json.key("at")
  json.time(next.at)
  json.key("in_ms")
  json.integer(next.inMilliseconds)
  json.endObject()
}

private func encode(_ end: ServiceStatus.LastEnd, into json: inout JSONWriter) {
  json.beginObject()
  json.key("cause")
  json.string(end.cause)
  json.key("class")
  json.string(end.crashClass)
  json.key("code")
  if let code = end.code { json.integer(code) } else { json.null() }
  json.key("signal")
  if let signal = end.signal { json.string(signal) } else { json.null() }
  json.key("core")
  json.bool(end.core)
  json.key("at")
  json.time(end.at)
  json.key("uptime_ms")
  json.integer(end.uptimeMilliseconds)
  json.key("text")
  json.string(end.text)
  json.endObject()
}

package func encode(_ diagnostics: [Diagnostic], into json: inout JSONWriter) {
  json.beginArray()
  for diagnostic in diagnostics {
    json.beginObject()
    json.key("severity")
    json.string(diagnostic.severity.rawValue)
    json.key("file")
    json.string(diagnostic.file)
    json.key("line")
    if let line = diagnostic.line { json.integer(line) } else { json.null() }
    json.key("column")
    if let column = diagnostic.column { json.integer(column) } else { json.null() }
    json.key("what")
    json.string(diagnostic.what)
    json.key("why")
    json.string(diagnostic.why)
    json.key("suggestion")
    if let suggestion = diagnostic.suggestion { json.string(suggestion) } else { json.null() }
    json.endObject()
  }
  json.endArray()
}

func encodePlan(name: String, entries: [PlanEntry], into json: inout JSONWriter) {
  json.key("name")
  json.string(name)
  json.key("entries")
  json.beginArray()
  for entry in entries {
    json.beginObject()
    json.key("earliest_ms")
    json.integer(entry.earliest.milliseconds)
    json.key("latest_ms")
    json.integer(entry.latest.milliseconds)
    json.key("action")
    json.string(entry.action)
    json.key("step")
    json.string(entry.step.rawValue)
    json.key("strikes")
    json.integer(entry.strikes)
    json.key("strikes_allowed")
    json.integer(entry.strikesAllowed)
    json.key("text")
    json.string(entry.text)
    json.endObject()
  }
  json.endArray()
}

package func encode(_ plan: Plan, into json: inout JSONWriter) {
  encodePlan(name: plan.name, entries: plan.entries, into: &json)
}

/// The members of `Summary`'s reply.
package func encode(_ summary: DaemonSummary, into json: inout JSONWriter) {
  json.key("line")
  json.string(summary.line)
  json.key("state")
  json.string(summary.state)
  json.key("warnings")
  json.strings(summary.warnings)
  json.key("diagnostics")
  encode(summary.diagnostics, into: &json)
}

/// The members of `Upgrade`'s reply.
package func encode(_ upgraded: Upgraded, into json: inout JSONWriter) {
  json.key("from")
  json.string(upgraded.from)
  json.key("to")
  json.string(upgraded.to)
  json.key("pid")
  json.integer(upgraded.pid)
  json.key("services")
  json.integer(upgraded.services)
}

/// The members of `GetVersion`'s reply.
package func encode(_ version: DaemonVersion, into json: inout JSONWriter) {
  json.key("version")
  json.string(version.version)
  json.key("guarantees")
  json.beginObject()
  for guarantee in version.guarantees {
    json.key(dynamic: guarantee.name)
    json.string(guarantee.value)
  }
  json.endObject()
}

/// The member `error` of guardianctl's own JSON.
package func encode(_ error: ControlError, about name: String? = nil, into json: inout JSONWriter) {
  json.key("error")
  json.beginObject()
  json.key("name")
  json.string(error.word)
  json.key("message")
  json.string(name.map { "\($0): \(error.sentence)" } ?? error.sentence)
  if case .configurationFault(let diagnostics) = error {
    json.key("diagnostics")
    encode(diagnostics, into: &json)
  }
  json.endObject()
}
