/// A fault, or a doubt, in a configuration file: where, what, why, and the nearest valid word.
package struct Diagnostic: Hashable, Sendable, CustomStringConvertible {
  package enum Severity: String, Hashable, Sendable { case error, warning }

  package var severity: Severity
  package var file: String
  /// Counted from 1; nil where the whole file is meant.
  package var line: Int?, column: Int?
  /// Behind the last character of what is meant, on the same line; nil where that is not known, or further down.
  package var endColumn: Int?
  /// What is wrong, without a full stop: `unknown key 'backof'`.
  package var what: String
  /// Why it is wrong, or what to do; may be empty.
  package var why: String
  /// The nearest valid word, where there is one.
  package var suggestion: String?

  package init(
    _ severity: Severity = .error, file: String, line: Int? = nil, column: Int? = nil, endColumn: Int? = nil,
    what: String, why: String = "", suggestion: String? = nil
  ) {
    self.severity = severity
    self.file = file
    self.line = line
    self.column = column
    self.endColumn = endColumn
    self.what = what
    self.why = why
    self.suggestion = suggestion
  }

  /// `file:line:column: what; why; did you mean 'word'?` Warnings say so before `what`.
  package var description: String {
    var text = file
    if let line { text += ":\(line)" }
    if let column { text += ":\(column)" }
    text += ": " + (severity == .warning ? "warning: " : "") + what
    if !why.isEmpty { text += "; " + why }
    if let suggestion { text += "; did you mean '\(suggestion)'?" }
    return text
  }

  /// What to do about it, as far as that is known: the reason, and the word that was probably meant.
  package var hint: String? {
    let parts = (why.isEmpty ? [] : [why]) + (suggestion.map { ["did you mean '\($0)'?"] } ?? [])
    return parts.isEmpty ? nil : parts.joined(separator: "; ")
  }
}
