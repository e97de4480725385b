import GuardianModel

/// Gathers everything that is wrong with one file.
struct DiagnosticLog {
  /// So that a file of rubbish cannot fill the log.
  static let limit = 100

  private var entries: [Diagnostic] = []
  private let known: Set<Diagnostic>
  private var seen: Set<Diagnostic> = []
  /// An error that leaves no definition to run.
  private(set) var blocked = false
  private var dropped = 0

  init(known: Set<Diagnostic> = []) { self.known = known }

  /// - Parameter blocks: False for an error that the running guardian can live with (a program that is not there yet).
  mutating func add(_ diagnostic: Diagnostic, blocks: Bool = true) {
    if diagnostic.severity == .error && blocks { blocked = true }
    guard !known.contains(diagnostic), seen.insert(diagnostic).inserted else { return }
    guard entries.count < Self.limit else {
      dropped += 1
      return
    }
    entries.append(diagnostic)
  }

  mutating func fault(
    file: String, line: Int? = nil, column: Int? = nil, endColumn: Int? = nil, what: String, why: String = "",
    suggestion: String? = nil
  ) {
    add(
      Diagnostic(
        .error, file: file, line: line, column: column, endColumn: endColumn, what: what, why: why,
        suggestion: suggestion))
  }

  /// In the order of the file; faults of the whole file first.
  func sorted() -> [Diagnostic] {
    var result = entries.enumerated().sorted { a, b in
      let left = (a.element.file, a.element.line ?? 0, a.element.column ?? 0, a.offset)
      let right = (b.element.file, b.element.line ?? 0, b.element.column ?? 0, b.offset)
      return left < right
    }.map(\.element)
    if dropped > 0, let file = entries.first?.file {
      result.append(Diagnostic(.error, file: file, what: "\(dropped) more faults are not shown"))
    }
    return result
  }
}
