/// How, and how long after its start, a plan lets a service die.
package struct PlanDeath: Hashable, Sendable {
  package var cause: DrillCause
  /// Of its run; zero: at once.
  package var age: Duration
  /// More of them make no plan clearer.
  package static let most = 16
  /// Longer lives are longer than what a plan shows.
  package static let longestLife = Duration.seconds(366 * 86_400)

  package init(cause: DrillCause, age: Duration = .zero) {
    self.cause = cause
    self.age = age
  }

  /// `signal:SEGV@2s`
  package var text: String { age == .zero ? cause.text : "\(cause.text)@\(age.description)" }
}
