package import GuardianModel

/// What `guardian --check` says, and with which exit status it ends.
package struct ConfigurationCheck: Sendable {
  /// One diagnostic a line, then a summary.
  package var lines: [String]
  package var diagnostics: [Diagnostic]
  package var services: Int
  /// 0, or 78 where there is any error. Warnings alone are no reason to fail.
  package var exitStatus: Int32
  /// One object with `"schema": 1`, without a newline.
  package var json: String

  package init(_ loaded: LoadedConfiguration) {
    diagnostics = loaded.diagnostics
    services = loaded.services.count
    exitStatus = diagnostics.contains { $0.severity == .error } ? 78 : 0
    lines = diagnostics.map(\.description)
    json = ""
  }
}
