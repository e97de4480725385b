package import GuardianModel

/// All services and their one owner: events go in, actions and answers come out, the next deadlines fall out.
///
/// The shell reads the clocks once, gives every event it has to `handle`, evidence first, then calls `passTime`, then
/// performs what `takeOutput` returns. Nothing in here knows what time it is, or does anything.
package struct Fleet: Sendable {
  package enum Output: Hashable, Sendable {
    case act(ServiceID, Action)
    case answer(RequestID, Answer)
    /// After `shutdown`: the last service has stopped.
    case allStopped
  }

  /// What an operator's request came to.
  package enum Answer: Hashable, Sendable {
    /// Done and true. `note` is for the operator: `not quarantined`, what would release it, …
    case done(note: String)
    case failed(reason: String)
  }

  /// - Parameter seed: 256 bits of randomness: run ids and jitter come from it and from nothing else.
  package init(seed: (UInt64, UInt64, UInt64, UInt64)) {}

  /// A new service, in phase `stopped` (or as `record` says); `begin` starts it if it is wanted.
  package mutating func add(_ spec: ServiceSpec, record: ServiceRecord?, now: Now) -> ServiceID { ServiceID(0) }
  /// Nil for a name that is unknown or forgotten.
  package func id(named name: ServiceName) -> ServiceID? { nil }
  /// In order of name.
  package var ids: [ServiceID] { [] }

  package mutating func handle(_ event: ServiceEvent, for id: ServiceID, now: Now) {}

  /// An operator's order. With a `request`, exactly one answer follows, when the order has come to its outcome
  /// (`wait` false: when it has been accepted and is durable).
  package mutating func order(_ command: Command, for id: ServiceID, request: RequestID?, wait: Bool, now: Now) {}
  /// The client is gone; the order itself stands.
  package mutating func abandon(_ request: RequestID) {}
  /// Stops every service in the reverse of the order in which they started; `allStopped` follows. Wishes are kept.
  package mutating func shutDown(now: Now) {}
  /// Lets every due deadline happen.
  package mutating func passTime(now: Now) {}
  /// When `passTime` has something to do next, on either clock.
  package var nextDeadline: (monotonic: Instant?, boot: BootInstant?) { (nil, nil) }
  /// What is to be done, in order; emptied by the call.
  package mutating func takeOutput() -> [Output] { [] }

  package func status(of id: ServiceID, now: Now) -> ServiceStatus { ServiceStatus(name: "") }
  package func summary() -> FleetSummary { FleetSummary() }
  /// The service's definition in force.
  package func spec(of id: ServiceID) -> ServiceSpec? { nil }

  /// What would happen, and when, if the service kept dying as soon as it is started: by the same machine, from its
  /// present state. Ends at the first trial from quarantine, or after 64 lines.
  package func plan(for id: ServiceID, now: Now) -> [PlanEntry] { [] }
  /// The same from zero.
  package static func plan(_ spec: ServiceSpec) -> [PlanEntry] { [] }
}

extension FleetSummary {
  /// `12 services: 10 settled, 1 repairing (web), 1 quarantined (mailer)`, for STATUS= and the head of `status`.
  package var line: String { "" }
}
