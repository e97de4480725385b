import GuardianControl
import GuardianModel

extension Program {
  /// What a command line with patterns, groups or `--all` means; without them the names as they are.
  ///
  /// - Returns: Nil where that could not be found out, which has been told, and then `status` is the exit status.
  mutating func choose(_ invocation: Invocation, status: inout Int32) -> Selection.Chosen? {
    if !invocation.needsChoice {
      var chosen = Selection.Chosen()
      chosen.names = invocation.names
      return chosen
    }
    do throws(Daemon.Fault) {
      switch try Self.choose(invocation, Daemon.connect(to: invocation.target), patience: patience) {
      case .success(let chosen): return chosen
      case .failure(let error):
        status = fail(error, json: invocation.json)
      }
    } catch {
      status = fail(error, json: invocation.json)
    }
    return nil
  }

  static func noSuch(_ name: String) -> String {
    if Selection.isGroup(name) { return "no such group: \(name)" }
    return Selection.isPattern(name) ? "no service matches: \(name)" : "no such service: \(name)"
  }

  static func choose(
    _ invocation: Invocation, _ daemon: Daemon, patience: Int32
  ) throws(Daemon.Fault) -> Answer<Selection.Chosen, ControlError> {
    if !invocation.needsChoice {
      var chosen = Selection.Chosen()
      chosen.names = invocation.names
      return .success(chosen)
    }
    let groups = invocation.names.filter(Selection.isGroup)
    var known: [String] = [], members: [String] = [], empty: [String] = []
    if invocation.all || invocation.names.contains(where: Selection.isPattern) {
      switch try daemon.list(nil, brief: true, patience: patience) {
      case .success(let found): known = found.services.map(\.name)
      case .failure(let error): return .failure(error)
      }
    }
    if !groups.isEmpty {
      switch try daemon.list(groups, brief: true, patience: patience) {
      case .success(let found):
        members = found.services.map(\.name)
        empty = found.missing
      case .failure(let error): return .failure(error)
      }
    }
    return .success(
      Selection.choose(invocation.names, all: invocation.all, known: known, members: members, empty: empty))
  }
}

struct Listed {
  var services: [ServiceStatus] = []
  var missing: [String] = []
}

extension Daemon {
  /// Names that surely fit one request.
  private static let namesAtOnce = 500

  /// - Parameter names: Nil: all.
  func list(
    _ names: [String]?, brief: Bool, patience: Int32
  ) throws(Fault) -> Answer<Listed, ControlError> {
    var listed = Listed()
    var rest = names?[...]
    repeat {
      let some = rest.map { Array($0.prefix(Self.namesAtOnce)) }
      rest = rest?.dropFirst(Self.namesAtOnce)
      let request = ControlRequest.list(names: some, brief: brief)
      var refusal: ControlError?
      try send([ControlCall(request, more: true)])
      try replies(to: request, patience: patience) { body in
        switch body {
        case .services(let chunk, let unknown):
          listed.services += chunk
          listed.missing += unknown
        case .error(let error): refusal = error
        case .done, .reloaded, .upgraded, .plan, .drill, .summary, .crashes, .crash, .events, .version: break
        }
      }
      if let refusal { return .failure(refusal) }
    } while !(rest?.isEmpty ?? true)
    return .success(listed)
  }
}

/// The member `error` about names that mean nobody; nothing, where there are none.
func encodeMissing(_ missing: [String], into json: inout JSONWriter) {
  if missing.isEmpty { return }
  json.key("error")
  json.beginObject()
  json.key("name")
  json.literal("no-such-service")
  json.key("message")
  json.string(missing.map(Program.noSuch).joined(separator: "; "))
  json.key("services")
  json.strings(missing)
  json.endObject()
}
