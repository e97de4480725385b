import GuardianModel

@testable import GuardianControl

extension Reply {
  /// A chunk of services that are there already.
  static func list(
    _ services: some Sequence<ServiceStatus>, missing: [String] = [], brief: Bool = false, continues: Bool,
    into bytes: inout [UInt8]
  ) {
    list(missing: missing, brief: brief, continues: continues, into: &bytes) { list in
      for service in services { list.add(service) }
    }
  }
}
