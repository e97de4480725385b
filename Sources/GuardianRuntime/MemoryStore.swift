import GuardianCore
import GuardianLinux
import GuardianModel

/// What must survive, kept in memory only: it stands where the durable store will stand, and answers like one, in a later
/// turn and for a whole turn's saves together, so that nothing can come to depend on an answer at once.
final class MemoryStore {
  /// As `status` shows it.
  let state = "volatile"
  private var records: [ServiceID: ServiceRecord] = [:]
  private var unanswered: [(ServiceID, Ticket)] = []

  /// One turn's saves, together.
  func save(_ saves: [(ServiceID, ServiceRecord, Ticket)]) {
    for (id, record, ticket) in saves {
      records[id] = record
      unanswered.append((id, ticket))
    }
  }

  func forget(_ id: ServiceID) { records[id] = nil }

  /// The tickets whose records are as durable as they get.
  func takeAnswers() -> [(ServiceID, Ticket)] {
    defer { unanswered.removeAll(keepingCapacity: true) }
    return unanswered
  }
  var hasAnswers: Bool { !unanswered.isEmpty }
}
