import GuardianCore
import GuardianLinux
import GuardianModel

/// What must survive, kept in memory only, which is where the machines have it already: it stands where the durable store will stand, and answers like one, in a later
/// turn and for a whole turn's saves together, so that nothing can come to depend on an answer at once.
final class MemoryStore {
  /// As `status` shows it.
  let state = "volatile"
  private var unanswered: [(ServiceID, Ticket)] = []

  /// One turn's saves, together.
  func save(_ saves: [(ServiceID, ServiceRecord, Ticket)]) {
    for (id, _, ticket) in saves { unanswered.append((id, ticket)) }
  }

  /// The tickets whose records are as durable as they get.
  func takeAnswers() -> [(ServiceID, Ticket)] {
    defer { unanswered.removeAll(keepingCapacity: unanswered.count <= 256) }
    return unanswered
  }
  var hasAnswers: Bool { !unanswered.isEmpty }
}
