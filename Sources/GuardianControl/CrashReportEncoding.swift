package import GuardianModel

/// The whole report as one JSON object, bounded: what is long is cut.
package func encode(_ report: CrashReport) -> [UInt8] {
  var json = JSONWriter()
  let end = report.end
  json.beginObject()
  json.key("schema")
  json.integer(1)
  json.key("id")
  json.string(end.run.description)
  json.key("service")
  json.string(report.service.text)
  json.key("at")
  json.time(end.at)
  json.key("text")
  json.string(cut(end.description, 1024))
  json.key("cause")
  json.string(end.cause.name)
  json.key("class")
  json.string(end.crashClass.rawValue)
  json.key("code")
  if case .code(let code) = end.status { json.integer(code) } else { json.null() }
  json.key("signal")
  if case .signal(let signal, _) = end.status { json.string(signal.description) } else { json.null() }
  json.key("core")
  if case .signal(_, let core) = end.status { json.bool(core) } else { json.bool(false) }
  if case .exec(let failure) = end.cause {
    json.key("stage")
    json.string(failure.stage.name)
    json.key("errno")
    json.integer(failure.errno)
  }
  json.key("uptime_ms")
  json.integer(end.uptime.milliseconds)
  json.key("kind")
  json.string(report.kind.rawValue)
  json.key("ready")
  json.bool(report.wasReady)
  json.key("settled")
  json.bool(report.settled)
  json.key("step")
  json.string(report.step.rawValue)
  json.key("step_after")
  json.string(report.stepAfter.rawValue)
  json.key("strikes")
  json.integer(report.strikes)
  json.key("strikes_allowed")
  json.integer(report.strikesAllowed)
  json.key("reason")
  json.string(cut(report.reason, 4096))
  json.key("disabled_plugins")
  json.strings(Array(report.disabledPlugins.prefix(256)))
  json.key("signature")
  json.string(end.signature?.description ?? "")
  json.key("signature_strong")
  json.bool(end.signature?.strong ?? false)
  json.key("changes")
  json.beginArray()
  for change in report.changes.prefix(5) {
    json.beginObject()
    json.key("what")
    json.string(cut(change.what, 1024))
    json.key("at")
    if let at = change.at { json.time(at) } else { json.null() }
    json.key("score")
    json.integer(change.score)
    json.endObject()
  }
  json.endArray()
  encode(report.backtrace, into: &json)
  json.key("output")
  json.beginObject()
  json.key("lines")
  json.strings(report.output.lines)
  json.key("truncated")
  json.bool(report.output.truncated)
  json.key("missing")
  if let missing = report.output.missing { json.string(missing) } else { json.null() }
  json.endObject()
  json.key("usage")
  if let usage = report.usage {
    json.beginObject()
    json.key("user_ms")
    json.integer(usage.user.milliseconds)
    json.key("system_ms")
    json.integer(usage.system.milliseconds)
    json.key("peak_memory")
    if let peak = usage.peakMemory { json.integer(peak) } else { json.null() }
    json.endObject()
  } else {
    json.null()
  }
  json.key("memory")
  if let memory = report.memory {
    json.beginObject()
    json.key("peak")
    if let peak = memory.peak { json.integer(peak) } else { json.null() }
    json.key("events")
    json.strings(Array(memory.events.prefix(32)))
    json.key("pressure")
    json.string(cut(memory.pressure, 256))
    json.endObject()
  } else {
    json.null()
  }
  json.key("descriptors")
  if let count = report.openDescriptors { json.integer(count) } else { json.null() }
  json.key("leftovers")
  json.strings(report.leftovers.prefix(64).map { cut($0, 128) })
  json.key("environment")
  json.strings(report.environment.prefix(256).map { cut($0, 128) })
  json.key("repairs")
  json.string(cut(report.repairs, 2048))
  json.endObject()
  return json.bytes
}

private func encode(_ backtrace: CrashReport.Backtrace, into json: inout JSONWriter) {
  json.key("backtrace")
  json.beginObject()
  json.key("source")
  json.string(backtrace.source)
  json.key("missing")
  if let missing = backtrace.missing { json.string(cut(missing, 512)) } else { json.null() }
  json.key("says")
  json.string(cut(backtrace.says, 1024))
  json.key("address")
  if let access = backtrace.access { json.string("0x" + String(access.address, radix: 16)) } else { json.null() }
  json.key("frames")
  json.beginArray()
  for frame in backtrace.frames.prefix(CrashReport.Backtrace.mostFrames) {
    json.beginObject()
    json.key("function")
    json.string(frame.function)
    json.key("module")
    json.string(frame.module)
    json.key("offset")
    json.string("0x" + String(frame.offset, radix: 16))
    if !frame.place.isEmpty {
      json.key("place")
      json.string(frame.place)
    }
    json.endObject()
  }
  json.endArray()
  json.endObject()
}

func cut(_ text: String, _ most: Int) -> String {
  text.utf8.count <= most ? text : String(text.prefix(most / 4)) + "…"
}

/// One line of `crashes`.
package func encode(_ crash: CrashSummary, into json: inout JSONWriter) {
  json.beginObject()
  json.key("id")
  json.string(crash.id.description)
  json.key("service")
  json.string(crash.service)
  json.key("at")
  json.time(crash.at)
  json.key("cause")
  json.string(crash.cause)
  json.key("class")
  json.string(crash.crashClass)
  json.key("text")
  json.string(crash.text)
  json.key("signature")
  json.string(crash.signature.description)
  json.key("signature_strong")
  json.bool(crash.signature.strong)
  json.key("count")
  json.integer(crash.count)
  json.key("first")
  json.time(crash.first)
  json.key("last")
  json.time(crash.last)
  json.endObject()
}
