/// What was asked for, or why it is not to be had.
///
/// A `Result`, but for what the standard one asks of its failure: to see that it is an `Error`, the runtime looks through
/// every conformance in the program, which costs a short command a tenth of its time.
package enum Answer<Value, Fault> {
  case success(Value)
  case failure(Fault)

  /// Nil where it is not to be had.
  package var value: Value? { if case .success(let value) = self { value } else { nil } }
}

extension CaseIterable where Self: RawRepresentable, RawValue == String {
  /// As `init(rawValue:)`. Over many words that one makes a dictionary first, which is no way to look up two or three.
  package static func named(_ word: String) -> Self? { allCases.first { $0.rawValue == word } }
}
