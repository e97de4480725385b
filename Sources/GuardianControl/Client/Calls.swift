extension ControlCall {
  /// The message as a client sends it, with its NUL.
  package func encode(into bytes: inout [UInt8]) {
    var json = JSONWriter()
    json.beginObject()
    json.key("method")
    json.string("\(supervisorName).\(request.method)")
    json.key("parameters")
    json.beginObject()
    func named(_ name: String, wait: Bool) {
      json.key("name")
      json.string(name)
      json.key("wait")
      json.bool(wait)
    }
    switch request {
    case .list(let names, let brief):
      if let names {
        json.key("names")
        json.strings(names)
      }
      if brief {
        json.key("brief")
        json.bool(true)
      }
    case .start(let name, let wait), .restart(let name, let wait), .release(let name, let wait),
      .reset(let name, let wait), .reloadService(let name, let wait):
      named(name, wait: wait)
    case .stop(let name, let untilBoot, let wait):
      named(name, wait: wait)
      json.key("until_boot")
      json.bool(untilBoot)
    case .hold(let name, let milliseconds, let wait):
      named(name, wait: wait)
      json.key("for_ms")
      json.integer(milliseconds)
    case .plugins(let name, let order, let wait):
      named(name, wait: wait)
      json.key("action")
      json.string(order.name)
      if let plugin = order.plugin {
        json.key("plugin")
        json.string(plugin)
      }
    case .safeMode(let name, let on, let wait):
      named(name, wait: wait)
      json.key("on")
      json.bool(on)
    case .repair(let name, let repair, let wait):
      named(name, wait: wait)
      if let repair {
        json.key("repair")
        json.string(repair)
      }
    case .plan(let name, let fromStart, let deaths):
      json.key("name")
      json.string(name)
      json.key("from_start")
      json.bool(fromStart)
      if !deaths.isEmpty {
        json.key("causes")
        json.strings(deaths.map(\.text))
      }
    case .drill(let name, let drill):
      json.key("name")
      json.string(name)
      json.key("crashes")
      json.integer(drill.crashes)
      json.key("cause")
      json.string(drill.cause.text)
      json.key("with_repairs")
      json.bool(drill.withRepairs)
    case .crashes(let name):
      if let name {
        json.key("name")
        json.string(name)
      }
    case .crash(let id):
      json.key("id")
      json.string(id)
    case .events(let events):
      if !events.names.isEmpty {
        json.key("names")
        json.strings(events.names)
      }
      if let since = events.since {
        json.key("since")
        json.time(since)
      }
      if let after = events.after {
        json.key("after")
        json.string(after.description)
      }
      if events.follow {
        json.key("follow")
        json.bool(true)
      }
    case .reload(let mode) where mode != .apply:
      json.key("dry_run")
      json.bool(mode == .dryRun)
      json.key("restart")
      json.bool(mode == .restart)
    case .reload, .upgrade, .resetGuardian, .summary, .metrics, .version: break
    }
    json.endObject()
    if more {
      json.key("more")
      json.bool(true)
    }
    if oneway {
      json.key("oneway")
      json.bool(true)
    }
    json.endObject()
    bytes += json.bytes
    bytes.append(0)
  }
}

extension ControlRequest {
  /// The method's name in `io.guardian.Supervisor`.
  package var method: String {
    switch self {
    case .list: "List"
    case .start: "Start"
    case .stop: "Stop"
    case .restart: "Restart"
    case .release: "Release"
    case .reset: "Reset"
    case .hold: "Hold"
    case .plugins: "Plugins"
    case .safeMode: "SafeMode"
    case .repair: "Repair"
    case .reloadService: "ReloadService"
    case .reload: "Reload"
    case .upgrade: "Upgrade"
    case .resetGuardian: "ResetGuardian"
    case .plan: "Plan"
    case .drill: "Drill"
    case .crashes: "Crashes"
    case .crash: "GetCrash"
    case .events: "Events"
    case .summary: "Summary"
    case .metrics: "Metrics"
    case .version: "GetVersion"
    }
  }
}
