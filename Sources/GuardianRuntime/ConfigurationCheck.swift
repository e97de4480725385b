package import GuardianControl
package import GuardianModel

/// What `guardian --check` says, and with which exit status it ends.
package struct ConfigurationCheck: Sendable {
  package var diagnostics: [Diagnostic]
  /// Those that could run, and those that could not.
  package var services: Int, invalid: Int
  /// Other files that were named.
  private var others = 0
  /// 0, or 78 where there is any error. Warnings alone are no reason to fail.
  package var exitStatus: Int32

  /// Files that were named, and nothing else: what the rest of the directory has to say is left out.
  package init(_ loaded: LoadedConfiguration, drafts: DraftFiles) {
    let paths = drafts.paths
    diagnostics = drafts.diagnostics
    diagnostics += (loaded.diagnostics + loaded.switches.allDiagnostics(beside: loaded)).filter {
      paths.contains($0.file)
    }
    services = loaded.services.count { drafts.services[$0.name] != nil }
    invalid = loaded.invalid.count { drafts.services[$0] != nil }
    others = (drafts.host == nil ? 0 : 1) + drafts.switches.count
    exitStatus = diagnostics.contains { $0.severity == .error } ? 78 : 0
  }

  package init(_ loaded: LoadedConfiguration) {
    diagnostics = loaded.diagnostics + loaded.switches.allDiagnostics(beside: loaded)
    services = loaded.services.count
    invalid = loaded.invalid.count
    exitStatus = diagnostics.contains { $0.severity == .error } || !loaded.listed ? 78 : 0
  }

  /// One diagnostic a line, then a summary.
  package var lines: [String] { diagnostics.map(\.description) + [summary] }

  /// `text`, then its place in the file, for each of them, and the summary.
  ///
  /// - Parameter source: The bytes of a file, by the path in its diagnostics; nil where they cannot be had.
  package func text(style: Style, source: (String) -> [UInt8]?) -> String {
    var sources: [String: SourceLines?] = [:]
    var text = ""
    for diagnostic in diagnostics {
      if diagnostic.line != nil, sources[diagnostic.file] == nil {
        sources[diagnostic.file] = .some(source(diagnostic.file).map(SourceLines.init))
      }
      text += Excerpt.text(diagnostic, in: sources[diagnostic.file] ?? nil, style: style)
    }
    return text + summary + "\n"
  }

  private var summary: String {
    let errors = diagnostics.count { $0.severity == .error }
    let warnings = diagnostics.count - errors
    var summary = counted(services + invalid, "service")
    if others > 0 {
      summary = services + invalid > 0 ? summary + " and " + counted(others, "file") : counted(others, "file")
    }
    if invalid > 0 { summary += ", \(invalid) of them without a valid definition" }
    summary +=
      errors == 0 && warnings == 0
      ? ": no fault found" : ": \(counted(errors, "error")), \(counted(warnings, "warning"))"
    return summary
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
    json.beginArray()
    for diagnostic in diagnostics { Self.encode(diagnostic, into: &json) }
    json.endArray()
    if exitStatus != 0 {
      json.key("error")
      json.beginObject()
      json.key("name")
      json.string("configuration-fault")
      json.key("message")
      json.string(summary)
      json.endObject()
    }
    json.endObject()
    return String(decoding: json.bytes, as: UTF8.self)
  }

  /// `line`, `column` and `end_column` count from 1, in characters; the last one is behind what is meant.
  private static func encode(_ diagnostic: Diagnostic, into json: inout JSONWriter) {
    func number(_ key: StaticString, _ value: Int?) {
      json.key(key)
      if let value { json.integer(value) } else { json.null() }
    }
    func text(_ key: StaticString, _ value: String?) {
      json.key(key)
      if let value { json.string(value) } else { json.null() }
    }
    json.beginObject()
    text("severity", diagnostic.severity.rawValue)
    text("file", diagnostic.file)
    number("line", diagnostic.line)
    number("column", diagnostic.column)
    text("what", diagnostic.what)
    text("why", diagnostic.why)
    text("suggestion", diagnostic.suggestion)
    number("end_column", diagnostic.endColumn)
    text("message", diagnostic.what)
    text("hint", diagnostic.hint)
    json.endObject()
  }
}
