package import GuardianModel

/// For how long one client is waited for: whoever owes something, the rest of a request or the reading of what it was
/// sent, has to go on at a pace that a working program keeps easily.
package struct Patience: Hashable, Sendable {
  /// For the rest of a request, and for reading what it was sent.
  package static let limit = Duration.seconds(30)
  /// So many bytes read within that time are going on; a byte a second is not.
  package static let pace = 4096

  /// When the connection is closed if nothing more comes of it; nil: nothing is owed.
  package private(set) var deadline: Instant?
  private var read = 0

  package init() {}

  /// - Parameters:
  ///   - owes: The client has begun a request and not ended it, or has not read all that it was sent.
  ///   - asked: It has completed a request since the last time.
  ///   - read: Bytes that it has taken since the last time.
  package mutating func note(owes: Bool, asked: Bool, read taken: Int, now: Instant) {
    guard owes else {
      deadline = nil
      read = 0
      return
    }
    read += taken
    if deadline == nil || asked || read >= Self.pace {
      deadline = now + Self.limit
      read = 0
    }
  }
}
