import GuardianControl
package import GuardianModel

/// What `guardian --check` says, and with which exit status it ends.
package struct ConfigurationCheck: Sendable {
  package var diagnostics: [Diagnostic]
  /// Those that could run, and those that could not.
  package var services: Int, invalid: Int
  /// 0, or 78 where there is any error. Warnings alone are no reason to fail.
  package var exitStatus: Int32

  package init(_ loaded: LoadedConfiguration) {
    diagnostics = loaded.diagnostics + loaded.switches.allDiagnostics(beside: loaded)
    services = loaded.services.count
    invalid = loaded.invalid.count
    exitStatus = diagnostics.contains { $0.severity == .error } || !loaded.listed ? 78 : 0
  }

  /// One diagnostic a line, then a summary.
  package var lines: [String] {
    let errors = diagnostics.count { $0.severity == .error }
    let warnings = diagnostics.count - errors
    func count(_ number: Int, _ what: String) -> String { "\(number) \(what)\(number == 1 ? "" : "s")" }
    var summary = count(services + invalid, "service")
    if invalid > 0 { summary += ", \(invalid) of them without a valid definition" }
    summary +=
      errors == 0 && warnings == 0 ? ": no fault found" : ": \(count(errors, "error")), \(count(warnings, "warning"))"
    return diagnostics.map(\.description) + [summary]
  }

  /// One object with `"schema": 1`, without a newline.
  package var json: String {
    var json = JSONWriter()
    json.beginObject()
    json.key("schema")
    json.integer(1)
    json.key("valid")
    json.bool(exitStatus == 0)
    json.key("services")
    json.integer(services + invalid)
    json.key("invalid")
    json.integer(invalid)
    json.key("diagnostics")
    encode(diagnostics, into: &json)
    if exitStatus != 0 {
      json.key("error")
      json.beginObject()
      json.key("name")
      json.string("configuration-fault")
      json.key("message")
      json.string(lines.last ?? "")
      json.endObject()
    }
    json.endObject()
    return String(decoding: json.bytes, as: UTF8.self)
  }
}
