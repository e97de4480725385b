package import GuardianModel

/// What `Summary` tells: the head of `status`.
package struct DaemonSummary: Hashable, Sendable {
  /// As in STATUS=: `12 services: 10 settled, 2 repairing (web, mail)`.
  package var line = ""
  /// `saved`, `volatile`, or whatever else is true of the durable record.
  package var state = "durable"
  /// One sentence each: a safe default in force, observe mode of guardian itself, a limit that is near, …
  package var warnings: [String] = []
  /// Of the configuration as last read.
  package var diagnostics: [Diagnostic] = []
  package init() {}
}

/// What `GetVersion` tells. `guarantees` are in order of display.
package struct DaemonVersion: Hashable, Sendable {
  package struct Guarantee: Hashable, Sendable {
    package var name: String, value: String
    package init(_ name: String, _ value: String) {
      self.name = name
      self.value = value
    }
  }
  package var version = guardianVersion
  package var guarantees: [Guarantee] = []
  package init() {}
}

/// What `Upgrade` tells once the new program is at work.
package struct Upgraded: Hashable, Sendable {
  /// Versions, before and after.
  package var from: String, to: String
  package var pid: Int32
  /// How many services were taken over as they were.
  package var services: Int
  package init(from: String, to: String, pid: Int32, services: Int) {
    self.from = from
    self.to = to
    self.pid = pid
    self.services = services
  }
}

/// The elements of a list of services: a chunk needs no list of them to be made of.
package struct ServiceListWriter {
  private let brief: Bool
  fileprivate var json = JSONWriter()
  fileprivate var worst: Int32 = 0

  fileprivate init(brief: Bool) { self.brief = brief }

  package mutating func add(_ service: ServiceStatus) {
    encode(service, brief: brief, into: &json)
    worst = max(worst, service.exitCode(named: false))
  }

  /// One with which all is well, in a brief list: what `add` would make of it.
  package mutating func addWell(_ name: String, uptimeMilliseconds: Int64, restarts: Int) {
    encodeWell(name, uptimeMilliseconds: uptimeMilliseconds, restarts: restarts, into: &json)
  }
}

/// Encodes replies, each a whole message with its NUL.
package enum Reply {
  /// Services in one reply of a stream, at most.
  package static let chunk = 64

  /// One chunk of a list.
  ///
  /// - Parameters:
  ///   - missing: Names that were asked for and are unknown; on the last chunk only.
  ///   - services: Adds each service in turn.
  package static func list(
    missing: [String] = [], brief: Bool = false, continues: Bool, into bytes: inout [UInt8],
    of services: (inout ServiceListWriter) -> Void
  ) {
    message(into: &bytes, continues: continues) { json in
      json.key("services")
      json.beginArray()
      var list = ServiceListWriter(brief: brief)
      swap(&list.json, &json)
      services(&list)
      swap(&list.json, &json)
      json.endArray()
      json.key("worst")
      json.integer(list.worst)
      if !missing.isEmpty {
        json.key("missing")
        json.strings(missing)
      }
    }
  }

  /// An order that has been carried out. `note` is for the operator, may be empty.
  package static func done(name: String, note: String, into bytes: inout [UInt8]) {
    message(into: &bytes) { json in
      json.key("name")
      json.string(name)
      json.key("note")
      json.string(note)
    }
  }

  /// The configuration has been read again. Where it could not be read at all: `configurationFault`.
  package static func reloaded(
    services: Int, _ change: ReloadChange, diagnostics: [Diagnostic], into bytes: inout [UInt8]
  ) {
    message(into: &bytes) { encodeReload(services: services, change, diagnostics, into: &$0) }
  }

  /// Guardian itself has been exchanged; the new one says so.
  package static func upgraded(_ upgraded: Upgraded, into bytes: inout [UInt8]) {
    message(into: &bytes) { encode(upgraded, into: &$0) }
  }

  package static func plan(name: String, entries: [PlanEntry], into bytes: inout [UInt8]) {
    message(into: &bytes) { json in encodePlan(name: name, entries: entries, into: &json) }
  }

  /// Lines of a drill.
  ///
  /// - Parameter failed: So many of its repairs have failed up to now.
  package static func drill(
    name: String, entries: [PlanEntry], failed: Int, continues: Bool, into bytes: inout [UInt8]
  ) {
    message(into: &bytes, continues: continues) { json in
      encodePlan(name: name, entries: entries, into: &json)
      json.key("failed")
      json.integer(failed)
    }
  }

  /// The parameters of `plan`'s reply as one bare JSON object, which is what `guardian --plan NAME` prints.
  package static func planObject(name: String, entries: [PlanEntry]) -> [UInt8] {
    var json = JSONWriter()
    json.beginObject()
    encodePlan(name: name, entries: entries, into: &json)
    json.endObject()
    return json.bytes
  }

  /// At most `crashesShown`, newest first.
  package static func crashes(_ crashes: [CrashSummary], into bytes: inout [UInt8]) {
    message(into: &bytes) { json in
      json.key("crashes")
      json.beginArray()
      for crash in crashes { encode(crash, into: &json) }
      json.endArray()
    }
  }
  package static let crashesShown = 200

  /// - Parameter report: A whole report, as it is kept.
  package static func crash(_ report: [UInt8], into bytes: inout [UInt8]) {
    message(into: &bytes) { json in
      json.key("report")
      json.verbatim(report)
    }
  }

  /// Events, oldest first.
  ///
  /// - Parameter missed: How many a follower that did not read in time has not been told of, before these.
  package static func events(
    _ events: some Sequence<EventRecord>, missed: Int = 0, continues: Bool, into bytes: inout [UInt8]
  ) {
    message(into: &bytes, continues: continues) { json in
      json.key("events")
      json.beginArray()
      for event in events { encode(event, into: &json) }
      json.endArray()
      if missed > 0 {
        json.key("missed")
        json.integer(missed)
      }
    }
  }
  /// Events in one reply, and those of the past that are told where nobody says since when.
  package static let eventsAtOnce = 256, eventsShown = 1000, eventsBeforeFollowing = 10

  package static func summary(_ summary: DaemonSummary, into bytes: inout [UInt8]) {
    message(into: &bytes) { encode(summary, into: &$0) }
  }

  package static func version(_ version: DaemonVersion, into bytes: inout [UInt8]) {
    message(into: &bytes) { encode(version, into: &$0) }
  }

  package static func error(_ error: ControlError, into bytes: inout [UInt8]) {
    var json = JSONWriter(into: take(&bytes))
    json.beginObject()
    json.key("error")
    json.string(error.name)
    json.key("parameters")
    json.beginObject()
    switch error {
    case .interfaceNotFound(let name):
      json.key("interface")
      json.string(name)
    case .methodNotFound(let name), .methodNotImplemented(let name):
      json.key("method")
      json.string(name)
    case .invalidParameter(let name):
      json.key("parameter")
      json.string(name)
    case .expectedMore: break
    case .noSuchService(let name):
      json.key("name")
      json.string(name)
    case .notPermitted(let reason, let needs, let service):
      json.key("reason")
      json.string(reason)
      if let needs {
        json.key("needs")
        json.string(needs.rawValue)
      }
      if let service {
        json.key("service")
        json.string(service)
      }
    case .failed(let reason), .busy(let reason):
      json.key("reason")
      json.string(reason)
    case .configurationFault(let diagnostics):
      json.key("diagnostics")
      encode(diagnostics, into: &json)
    }
    json.endObject()
    json.endObject()
    json.bytes.append(0)
    bytes = json.bytes
  }
  package static func error(_ error: ControlError) -> [UInt8] {
    var bytes: [UInt8] = []
    self.error(error, into: &bytes)
    return bytes
  }

  /// `body` writes the members of `parameters`.
  static func message(into bytes: inout [UInt8], continues: Bool = false, _ body: (inout JSONWriter) -> Void) {
    var json = JSONWriter(into: take(&bytes))
    json.beginObject()
    json.key("parameters")
    json.beginObject()
    body(&json)
    json.endObject()
    if continues {
      json.key("continues")
      json.bool(true)
    }
    json.endObject()
    json.bytes.append(0)
    bytes = json.bytes
  }

  /// Moves the buffer out, so that appending does not copy it.
  private static func take(_ bytes: inout [UInt8]) -> [UInt8] {
    var taken: [UInt8] = []
    swap(&taken, &bytes)
    return taken
  }
}

extension ControlError {
  /// The full name on the wire.
  package var name: String {
    switch self {
    case .interfaceNotFound: "org.varlink.service.InterfaceNotFound"
    case .methodNotFound: "org.varlink.service.MethodNotFound"
    case .methodNotImplemented: "org.varlink.service.MethodNotImplemented"
    case .invalidParameter: "org.varlink.service.InvalidParameter"
    case .expectedMore: "org.varlink.service.ExpectedMore"
    case .noSuchService: "io.guardian.Supervisor.NoSuchService"
    case .notPermitted: "io.guardian.Supervisor.NotPermitted"
    case .failed: "io.guardian.Supervisor.Failed"
    case .configurationFault: "io.guardian.Supervisor.ConfigurationFault"
    case .busy: "io.guardian.Supervisor.Busy"
    }
  }
}
