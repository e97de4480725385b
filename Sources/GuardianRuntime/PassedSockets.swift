import GuardianLinux
import GuardianModel

/// A socket that the service manager passed to guardian, for services that name it. Guardian keeps it open, so that
/// nobody is refused while a service is restarted.
package struct PassedSocket: Hashable, Sendable {
  package var name: String
  package var descriptor: Int32
  package init(name: String, descriptor: Int32) {
    self.name = name
    self.descriptor = descriptor
  }
}

extension SpawnRequest {
  /// Hands on the sockets that a definition names, as sd_listen_fds(3) expects them: from descriptor 3 on, in the order
  /// of the names, all of one name together.
  ///
  /// - Parameter passed: What guardian has.
  /// - Returns: Why it cannot be done; nil where it has been.
  mutating func handOn(
    _ names: [String], of passed: [PassedSocket], ready: Readiness, _ environment: inout ChildEnvironment
  ) -> SpawnFailure? {
    if names.isEmpty { return nil }
    var found: [PassedSocket] = []
    for name in names {
      let those = passed.filter { $0.name == name }
      if those.isEmpty {
        let known = Set(passed.map(\.name)).sorted()
        return SpawnFailure(
          stage: .prepare, errno: 0, target: name,
          sentence: "no socket '\(name)' was passed to guardian"
            + (known.isEmpty ? " by a service manager" : ", only " + known.prefix(8).joined(separator: ", "))
            + "; check 'sockets', and FileDescriptorName= and Service= of its socket unit")
      }
      found += those
    }
    let numbers = 3..<Int32(3 + found.count)
    if case .descriptor(let number) = ready, numbers.contains(number) {
      return SpawnFailure(
        stage: .prepare, errno: 0, target: "\(number)",
        sentence:
          "descriptor \(number) of 'ready' is one of its \(found.count) sockets; take \(numbers.upperBound) or above")
    }
    for (number, socket) in zip(numbers, found) {
      self.passed.append(PassedDescriptor(target: number, source: socket.descriptor))
    }
    environment["LISTEN_FDS"] = String(found.count)
    environment["LISTEN_FDNAMES"] = found.map(\.name).joined(separator: ":")
    ownPidVariable = "LISTEN_PID"
    return nil
  }
}
