package import GuardianModel

/// What a client may ask. A closed list: a method exists if it is here and in `supervisorInterface`.
package enum ControlRequest: Hashable, Sendable {
  /// Services by name, all of them without names, in order of name. `brief` leaves out what a table does not show.
  case list(names: [String]?, brief: Bool)
  case start(name: String, wait: Bool)
  case stop(name: String, untilBoot: Bool, wait: Bool)
  case restart(name: String, wait: Bool)
  case release(name: String, wait: Bool)
  case reset(name: String, wait: Bool)
  /// Zero milliseconds end a hold.
  case hold(name: String, milliseconds: Int64, wait: Bool)
  case plugins(name: String, PluginOrder, wait: Bool)
  /// All plugins off, or on, by an operator.
  case safeMode(name: String, on: Bool, wait: Bool)
  /// This repair, or all of the service, now.
  case repair(name: String, repair: String?, wait: Bool)
  /// The service's own reload.
  case reloadService(name: String, wait: Bool)
  /// The configuration, all of it.
  case reload(ReloadMode)
  /// Guardian itself: the program's file as it is now takes over, with the same pid.
  case upgrade
  /// Guardian trusts itself again after faults of its own.
  case resetGuardian
  case plan(name: String, fromStart: Bool, deaths: [PlanDeath] = [])
  /// A walk along a copy of the ladder; with repairs, those are really run.
  case drill(name: String, DrillRequest)
  /// The newest crash reports, of one service or of all.
  case crashes(name: String?)
  /// One report, by the beginning of its id.
  case crash(id: String)
  /// Events, oldest first; with `follow` also those to come, for as long as the client stays.
  case events(EventsRequest)
  case summary
  /// Everything that is measured, in chunks.
  case metrics
  case version

  /// What a client must be granted for it.
  package enum Need: Hashable, Sendable {
    /// To look at something, whatever it is; the answer has only what he may look at.
    case anything
    case host(Role)
    case service(String, Role)
    /// To look at each of these; of a group, `@shop`, the answer has what he may look at.
    case services([String])
  }

  /// Whether it changes anything: then who has asked is recorded.
  package var changesSomething: Bool {
    switch need {
    case .anything, .services: false
    case .host(let role), .service(_, let role): role > .view
    }
  }

  package var need: Need {
    switch self {
    case .list(let names?, _): .services(names)
    case .events(let asked): .services(asked.names)
    case .list(nil, _), .crashes(nil), .crash, .summary, .version: .anything
    case .plan(let name, _, _), .crashes(let name?): .service(name, .view)
    case .drill(let name, let drill): .service(name, drill.withRepairs ? .admin : .view)
    case .start(let name, _), .stop(let name, _, _), .restart(let name, _), .release(let name, _), .reset(let name, _),
      .hold(let name, _, _), .plugins(let name, _, _), .safeMode(let name, _, _), .repair(let name, _, _),
      .reloadService(let name, _):
      .service(name, .operate)
    case .reload(.dryRun), .metrics: .host(.view)
    case .reload, .upgrade, .resetGuardian: .host(.admin)
    }
  }
}

/// Which events. With neither `since` nor `after`: the newest.
package struct EventsRequest: Hashable, Sendable {
  /// Empty: of all services.
  package var names: [String] = []
  package var since: WallTime?
  package var after: EventID?
  package var follow = false
  package init(names: [String] = [], since: WallTime? = nil, after: EventID? = nil, follow: Bool = false) {
    self.names = names
    self.since = since
    self.after = after
    self.follow = follow
  }
}

package struct DrillRequest: Hashable, Sendable {
  package var cause = DrillCause.usual
  /// 1 … `DrillCause.mostCrashes`.
  package var crashes = DrillCause.usualCrashes
  package var withRepairs = false
  package init() {}
}

package enum ReloadMode: Hashable, Sendable {
  case apply
  /// Tells what `apply` would do, and does nothing.
  case dryRun
  /// Applies, then restarts what runs on with an earlier definition.
  case restart
}

/// One message of a client, decoded.
package struct ControlCall: Hashable, Sendable {
  package var request: ControlRequest
  /// The client takes several replies, each but the last with `continues`.
  package var more: Bool
  /// The client wants no reply at all: encode none.
  package var oneway: Bool
  package init(_ request: ControlRequest, more: Bool = false, oneway: Bool = false) {
    self.request = request
    self.more = more
    self.oneway = oneway
  }
}

/// What can go wrong with a call; each is one Varlink error.
package enum ControlError: Error, Hashable, Sendable {
  // org.varlink.service
  case interfaceNotFound(String)
  case methodNotFound(String)
  case methodNotImplemented(String)
  case invalidParameter(String)
  /// The answer does not fit one reply; ask again with `more`.
  case expectedMore

  // io.guardian.Supervisor
  case noSuchService(name: String)
  /// `needs` is the role that is missing, `service` where: nil for the host.
  case notPermitted(reason: String, needs: Role? = nil, service: String? = nil)
  /// The order was carried out and did not come true, or could not be carried out.
  case failed(reason: String)
  case configurationFault([Diagnostic])
  /// Too many connections or requests wait already.
  case busy(reason: String)
}
