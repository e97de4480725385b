import Glibc

/// A descriptor with one owner, closed when the owner lets go of it. Borrow it for a call, or give it away.
package struct OwnedFD: ~Copyable, Sendable {
  private let raw: Int32

  /// Takes over `raw`, which nobody else may close from here on.
  package init(adopting raw: Int32) {
    precondition(raw >= 0, "not a descriptor: \(raw)")
    self.raw = raw
  }

  deinit { _ = close(raw) }

  /// For one call; the number must not outlive it.
  package borrowing func withRaw<R: ~Copyable, E: Error>(_ body: (Int32) throws(E) -> R) throws(E) -> R {
    try body(raw)
  }

  /// The number, for registering with an event source that borrows it. It is valid as long as `self` is.
  package var number: Int32 { raw }

  /// The caller owns the descriptor now.
  package consuming func release() -> Int32 {
    let raw = raw
    discard self
    return raw
  }
}

/// A failed call to the kernel or the C library: what was tried, on what, and errno.
package struct SystemError: Error, Hashable, Sendable, CustomStringConvertible {
  /// What was tried, as in "cannot …": `open`, `read`.
  package var operation: String
  /// The path or the like that it concerned; may be empty.
  package var target: String
  package var errno: Int32

  package init(_ operation: String, _ target: String = "", errno code: Int32) {
    self.operation = operation
    self.target = target
    self.errno = code
  }

  /// Of the call that has just failed on this thread.
  package static func last(_ operation: String, _ target: String = "") -> SystemError {
    SystemError(operation, target, errno: Glibc.errno)
  }

  /// `cannot open /etc/x: no such file or directory`
  package var description: String {
    "cannot \(operation)\(target.isEmpty ? "" : " " + target): \(ErrnoText.reason(errno))"
  }
}

extension Optional where Wrapped == OwnedFD {
  /// The number where there is a descriptor; borrowed like `OwnedFD.number`, and without consuming a stored property.
  package var number: Int32? {
    switch self {
    case .some(let descriptor): descriptor.number
    case .none: nil
    }
  }
}
