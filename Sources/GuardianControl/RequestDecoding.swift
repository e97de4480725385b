import GuardianModel

enum DecodedMessage {
  case call(ControlCall)
  /// Answered without the daemon.
  case introspection([UInt8])
  case refused(ControlError, oneway: Bool)
  /// No Varlink call at all: nothing sensible can follow.
  case notVarlink(String)
}

let supervisorName = "io.guardian.Supervisor"
private let serviceName = "org.varlink.service"

/// Objects and lists within each other; the deepest honest call has three.
private let deepest = 32

/// Whether objects and lists are nested deeper than that, however the bytes go on.
private func isTooDeep(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
  var depth = 0, inString = false, escaped = false
  for byte in bytes {
    if inString {
      if escaped {
        escaped = false
      } else if byte == UInt8(ascii: "\\") {
        escaped = true
      } else if byte == UInt8(ascii: "\"") {
        inString = false
      }
      continue
    }
    switch byte {
    case UInt8(ascii: "\""): inString = true
    case UInt8(ascii: "{"), UInt8(ascii: "["):
      depth += 1
      if depth > deepest { return true }
    case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
    default: break
    }
  }
  return false
}

func decodeMessage(_ bytes: UnsafeBufferPointer<UInt8>) -> DecodedMessage {
  if isTooDeep(bytes) { return .notVarlink("nested deeper than \(deepest)") }
  let decoded = withJSON(bytes) { root -> DecodedMessage in
    guard root.isObject else { return .notVarlink("a call is an object") }
    guard let method = root["method"]?.string else { return .notVarlink("'method' is missing, or no string") }
    var oneway = false
    do throws(ControlError) {
      oneway = try flag(root, "oneway", default: false)
      let call = try decodeCall(root, method: method)
      switch call {
      case .left(let request):
        return .call(ControlCall(request, more: try flag(root, "more", default: false), oneway: oneway))
      case .right(let reply): return .introspection(oneway ? [] : reply)
      }
    } catch {
      return .refused(error, oneway: oneway)
    }
  }
  switch decoded {
  case .success(let message): return message
  case .failure(let fault): return .notVarlink("not JSON: \(fault.reason)")
  }
}

private enum Either {
  case left(ControlRequest)
  case right([UInt8])
}

private func decodeCall(_ root: JSONValue, method: String) throws(ControlError) -> Either {
  try only(root, ["method", "parameters", "more", "oneway", "upgrade"])
  if try flag(root, "upgrade", default: false) { throw .methodNotImplemented(method) }
  if let parameters = root["parameters"], !parameters.isObject, !parameters.isNull {
    throw .invalidParameter("parameters")
  }
  let p = root["parameters"]

  guard let dot = method.utf8.lastIndex(of: UInt8(ascii: ".")) else { throw .methodNotFound(method) }
  let interface = String(method[..<dot])
  let name = method[method.utf8.index(after: dot)...]
  switch interface {
  case serviceName:
    switch name {
    case "GetInfo":
      try only(p, [])
      return .right(info())
    case "GetInterfaceDescription":
      try only(p, ["interface"])
      return .right(try description(of: text(p, "interface")))
    default: throw .methodNotFound(method)
    }
  case supervisorName: return .left(try supervisorCall(String(name), p, method: method))
  default: throw .interfaceNotFound(interface)
  }
}

private func supervisorCall(
  _ name: String, _ p: JSONValue?, method: String
) throws(ControlError) -> ControlRequest {
  switch name {
  case "List":
    try only(p, ["names", "brief"])
    var names: [String]?
    if let list = p?["names"], !list.isNull {
      guard let strings = list.strings else { throw .invalidParameter("names") }
      names = strings
    }
    return .list(names: names, brief: try flag(p, "brief", default: false))
  case "Start":
    try only(p, ["name", "wait"])
    return .start(name: try text(p, "name"), wait: try flag(p, "wait", default: true))
  case "Stop":
    try only(p, ["name", "until_boot", "wait"])
    return .stop(
      name: try text(p, "name"), untilBoot: try flag(p, "until_boot", default: false),
      wait: try flag(p, "wait", default: true))
  case "Restart":
    try only(p, ["name", "wait"])
    return .restart(name: try text(p, "name"), wait: try flag(p, "wait", default: true))
  case "Release":
    try only(p, ["name", "wait"])
    return .release(name: try text(p, "name"), wait: try flag(p, "wait", default: true))
  case "Reset":
    try only(p, ["name", "wait"])
    return .reset(name: try text(p, "name"), wait: try flag(p, "wait", default: true))
  case "Hold":
    try only(p, ["name", "for_ms", "wait"])
    guard let milliseconds = p?["for_ms"]?.integer, (0...maximumHold).contains(milliseconds) else {
      throw .invalidParameter("for_ms")
    }
    return .hold(
      name: try text(p, "name"), milliseconds: milliseconds, wait: try flag(p, "wait", default: true))
  case "Plugins":
    try only(p, ["name", "action", "plugin", "wait"])
    let plugin = p?["plugin"].map { $0.isNull } ?? true ? nil : try text(p, "plugin")
    let action = try text(p, "action")
    guard PluginOrder.words.contains(action) else { throw .invalidParameter("action") }
    // Missing, or with a search, which is about none.
    guard let order = PluginOrder(action, plugin: plugin) else { throw .invalidParameter("plugin") }
    return .plugins(name: try text(p, "name"), order, wait: try flag(p, "wait", default: true))
  case "SafeMode":
    try only(p, ["name", "on", "wait"])
    guard p?["on"] != nil else { throw .invalidParameter("on") }
    return .safeMode(
      name: try text(p, "name"), on: try flag(p, "on", default: true), wait: try flag(p, "wait", default: true))
  case "Repair":
    try only(p, ["name", "repair", "wait"])
    let repair = p?["repair"].map { $0.isNull } ?? true ? nil : try text(p, "repair")
    return .repair(name: try text(p, "name"), repair: repair, wait: try flag(p, "wait", default: true))
  case "Reload":
    try only(p, ["dry_run", "restart"])
    let restart = try flag(p, "restart", default: false)
    if try flag(p, "dry_run", default: false) {
      if restart { throw .invalidParameter("restart") }
      return .reload(.dryRun)
    }
    return .reload(restart ? .restart : .apply)
  case "ReloadService":
    try only(p, ["name", "wait"])
    return .reloadService(name: try text(p, "name"), wait: try flag(p, "wait", default: true))
  case "ResetGuardian":
    try only(p, [])
    return .resetGuardian
  case "Upgrade":
    try only(p, [])
    return .upgrade
  case "Plan":
    try only(p, ["name", "from_start", "causes"])
    var deaths: [PlanDeath] = []
    if let list = p?["causes"], !list.isNull {
      guard let texts = list.strings, texts.count <= PlanDeath.most else { throw .invalidParameter("causes") }
      for text in texts {
        guard let death = PlanDeath(text) else { throw .invalidParameter("causes") }
        deaths.append(death)
      }
    }
    return .plan(name: try text(p, "name"), fromStart: try flag(p, "from_start", default: false), deaths: deaths)
  case "Drill":
    try only(p, ["name", "crashes", "cause", "with_repairs"])
    var drill = DrillRequest()
    if let crashes = p?["crashes"], !crashes.isNull {
      guard let number = crashes.integer, (1...Int64(DrillCause.mostCrashes)).contains(number) else {
        throw .invalidParameter("crashes")
      }
      drill.crashes = Int(number)
    }
    if let cause = p?["cause"], !cause.isNull {
      guard let known = cause.string.flatMap({ DrillCause($0) }) else { throw .invalidParameter("cause") }
      drill.cause = known
    }
    drill.withRepairs = try flag(p, "with_repairs", default: false)
    return .drill(name: try text(p, "name"), drill)
  case "Crashes":
    try only(p, ["name"])
    return .crashes(name: p?["name"].map { $0.isNull } ?? true ? nil : try text(p, "name"))
  case "GetCrash":
    try only(p, ["id"])
    let id = try text(p, "id")
    guard isCrashID(id) else { throw .invalidParameter("id") }
    return .crash(id: id)
  case "Events":
    try only(p, ["names", "since", "after", "follow"])
    var events = EventsRequest(follow: try flag(p, "follow", default: false))
    if let list = p?["names"], !list.isNull {
      guard let strings = list.strings else { throw .invalidParameter("names") }
      events.names = strings
    }
    if let since = p?["since"], !since.isNull {
      guard let text = since.string, let time = wallTime(text) else { throw .invalidParameter("since") }
      events.since = time
    }
    if let after = p?["after"], !after.isNull {
      guard let id = after.string.flatMap({ EventID($0) }) else { throw .invalidParameter("after") }
      events.after = id
    }
    return .events(events)
  case "Summary":
    try only(p, [])
    return .summary
  case "Metrics":
    try only(p, [])
    return .metrics
  case "GetVersion":
    try only(p, [])
    return .version
  default: throw .methodNotFound(method)
  }
}

/// Ten years, in milliseconds: nobody holds a service longer, and no sum with it overflows.
package let maximumHold: Int64 = 10 * 366 * 86_400_000

/// At least six of the 32 hexadecimal digits of a report's id, from the beginning.
package func isCrashID(_ text: String) -> Bool {
  (6...32).contains(text.utf8.count)
    && text.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
        UInt8(ascii: "A")...UInt8(ascii: "F"):
        true
      default: false
      }
    }
}

/// As `appendRFC3339` writes it.
private func wallTime(_ text: String) -> WallTime? {
  var text = text
  return text.withUTF8 { WallTime(rfc3339: $0) }
}

private func text(_ object: JSONValue?, _ key: StaticString) throws(ControlError) -> String {
  guard let value = object?[key]?.string else { throw .invalidParameter("\(key)") }
  return value
}

/// Null counts as left out, as Varlink has it for optional members.
private func flag(
  _ object: JSONValue?, _ key: StaticString, default usual: Bool
) throws(ControlError) -> Bool {
  guard let value = object?[key], !value.isNull else { return usual }
  guard let flag = value.bool else { throw .invalidParameter("\(key)") }
  return flag
}

/// A misspelt member would otherwise be an order with another meaning.
private func only(_ object: JSONValue?, _ known: [String]) throws(ControlError) {
  var stranger: String?
  object?.forEachMember { key, _ in
    let name = String(cString: key)
    if stranger == nil, !known.contains(name) { stranger = name }
  }
  if let stranger { throw .invalidParameter(stranger) }
}

private func info() -> [UInt8] {
  var bytes: [UInt8] = []
  Reply.message(into: &bytes) { json in
    json.key("vendor")
    json.literal("guardian")
    json.key("product")
    json.literal("guardian")
    json.key("version")
    json.string(guardianVersion)
    json.key("url")
    json.literal("")
    json.key("interfaces")
    json.strings([serviceName, supervisorName])
  }
  return bytes
}

private func description(of interface: String) throws(ControlError) -> [UInt8] {
  let text =
    switch interface {
    case serviceName: varlinkServiceInterface
    case supervisorName: supervisorInterface
    default: throw ControlError.interfaceNotFound(interface)
    }
  var bytes: [UInt8] = []
  Reply.message(into: &bytes) { json in
    json.key("description")
    json.string(text)
  }
  return bytes
}
