package import GuardianModel

/// Exit statuses of guardianctl.
package enum ExitCode {
  package static let done: Int32 = 0, failed: Int32 = 1, noSuchService: Int32 = 4, unreachable: Int32 = 6
  package static let usage: Int32 = 64, notPermitted: Int32 = 77
}

extension ServiceStatus {
  /// What this service adds to the exit status of `status`; the highest of all services wins.
  ///
  /// - Parameter named: the operator asked for this one by name.
  package func exitCode(named: Bool) -> Int32 {
    if phase == .quarantined || step == .quarantine { return 5 }
    if crashedAndFinished { return 3 }
    if wanted == .down || phase == .stopped {
      if named, phase != .finished { return 3 }
      return wanted == .up ? 1 : 0
    }
    if phase == .finished { return 0 }
    if degraded || step == .safeMode { return 2 }
    return phase == .running && settled ? 0 : 1
  }

  /// Left alone after an end that was no success.
  var crashedAndFinished: Bool {
    guard phase == .finished, let end = lastEnd else { return false }
    return end.crashClass != CrashClass.clean.rawValue && end.crashClass != CrashClass.ordered.rawValue
  }
}

extension DaemonSummary {
  /// What the whole adds to the exit status of `status` where not one service is listed: a configuration that was refused
  /// whole is not an idle guardian, and counts as its services would that were never valid.
  package var exitCodeWithoutServices: Int32 { diagnostics.contains { $0.severity == .error } ? 5 : 0 }
}

extension ControlError {
  package var exitCode: Int32 {
    switch self {
    case .noSuchService: ExitCode.noSuchService
    case .notPermitted: ExitCode.notPermitted
    case .failed, .configurationFault, .busy, .interfaceNotFound, .methodNotFound, .methodNotImplemented,
      .invalidParameter, .expectedMore:
      ExitCode.failed
    }
  }

  /// For the operator, without the service's name where the caller shows it.
  package var sentence: String {
    switch self {
    case .interfaceNotFound(let name): "this guardian does not know the interface \(name)"
    case .methodNotFound(let name), .methodNotImplemented(let name):
      "this guardian does not know \(name); its version differs from guardianctl's"
    case .invalidParameter(let name): "guardian refuses the request: \(name)"
    case .expectedMore: "the answer does not fit one reply"
    case .noSuchService: "no such service"
    case .notPermitted(let reason, _, _): reason.isEmpty ? "not permitted" : "not permitted: \(reason)"
    case .failed(let reason): reason
    case .configurationFault(let diagnostics):
      diagnostics.count == 1 ? "the configuration has a fault" : "the configuration has \(diagnostics.count) faults"
    case .busy(let reason): "guardian is busy: \(reason)"
    }
  }

  /// The last part of `name` in the style of the JSON keys: `no-such-service`.
  package var word: String {
    switch self {
    case .interfaceNotFound: "interface-not-found"
    case .methodNotFound: "method-not-found"
    case .methodNotImplemented: "method-not-implemented"
    case .invalidParameter: "invalid-parameter"
    case .expectedMore: "expected-more"
    case .noSuchService: "no-such-service"
    case .notPermitted: "not-permitted"
    case .failed: "failed"
    case .configurationFault: "configuration-fault"
    case .busy: "busy"
    }
  }
}
