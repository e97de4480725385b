/// A process that has asked for something over the control socket, and whose: what the kernel says of it.
package struct Caller: Hashable, Sendable {
  package var uid: UInt32
  /// Of the user database; nil: it has no name for it, or has not said in time.
  package var user: String?
  package var pid: Int32
  /// The arguments, as the process shows them; empty where they could not be read. What a caller writes there is its own
  /// affair, so it is no proof of anything; printable, and short.
  package var command: String
  package init(uid: UInt32, user: String? = nil, pid: Int32, command: String = "") {
    self.uid = uid
    self.user = user
    self.pid = pid
    self.command = command
  }

  /// Bytes of the command line that are kept.
  package static let longestCommand = 200
}

extension Caller: CustomStringConvertible {
  /// `alice (uid 1000), pid 4242: guardianctl stop web`
  package var description: String { "\(person), pid \(pid)" + (command.isEmpty ? "" : ": \(command)") }

  /// `alice (uid 1000)`, `uid 1000`, `root`
  package var person: String { uid == 0 ? "root" : user.map { "\($0) (uid \(uid))" } ?? "uid \(uid)" }
}

/// Who has asked for something, for the record: a process, or a part of guardian with a reason of its own.
package struct Author: Hashable, Sendable, CustomStringConvertible, ExpressibleByStringInterpolation {
  /// As people are told.
  package var text: String
  /// Nil: nobody from outside.
  package var caller: Caller?
  package init(_ text: String) { self.text = text }
  package init(_ caller: Caller) {
    text = caller.description
    self.caller = caller
  }
  package init(stringLiteral text: String) { self.init(text) }
  package var description: String { text }
}
