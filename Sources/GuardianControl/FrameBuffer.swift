import Glibc

/// Cuts a byte stream into messages that end with NUL, as Varlink has it. Never holds more than the limit and one read.
package struct FrameBuffer: Sendable {
  package enum Fault: Error, Hashable, Sendable {
    /// More than `limit` bytes and no end in sight.
    case tooLong(limit: Int)
  }

  package let limit: Int
  private var bytes: [UInt8] = []
  /// The first byte not yet handed out.
  private var start = 0
  /// Up to here there is no NUL, so that nothing is searched twice.
  private var searched = 0

  /// - Parameter limit: Bytes of one message without its NUL.
  package init(limit: Int) { self.limit = limit }

  /// Bytes that wait.
  package var count: Int { bytes.count - start }

  /// Those bytes, as they came.
  package var rest: ArraySlice<UInt8> { bytes[start...] }

  package mutating func append(_ new: UnsafeRawBufferPointer) {
    if start == bytes.count {
      bytes.removeAll(keepingCapacity: true)
      start = 0
      searched = 0
    } else if start > 0, bytes.count + new.count > bytes.capacity {
      bytes.removeFirst(start)
      searched -= start
      start = 0
    }
    bytes.append(contentsOf: new)
  }

  /// Gives the next whole message to `body`, without its NUL; nil if there is none yet.
  ///
  /// - Throws: `Fault.tooLong`; the stream cannot be used after that.
  package mutating func next<R>(_ body: (UnsafeBufferPointer<UInt8>) -> R) throws(Fault) -> R? {
    let range = bytes.withUnsafeBufferPointer { all -> Range<Int>? in
      guard let base = all.baseAddress, searched < all.count,
        let end = memchr(base + searched, 0, all.count - searched)
      else { return nil }
      let offset = UnsafeRawPointer(end) - UnsafeRawPointer(base)
      return start..<offset
    }
    guard let range else {
      searched = bytes.count
      if count > limit { throw .tooLong(limit: limit) }
      return nil
    }
    if range.count > limit { throw .tooLong(limit: limit) }
    start = range.upperBound + 1
    searched = start
    return bytes.withUnsafeBufferPointer { body(UnsafeBufferPointer(rebasing: $0[range])) }
  }
}
