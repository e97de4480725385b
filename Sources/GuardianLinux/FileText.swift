import Glibc

/// Small files read whole, as those of /proc.
package enum FileText {
  /// Nil where it cannot be opened or read, or is longer than `limit` bytes.
  package static func read(_ path: String, limit: Int = 1 << 20) -> [UInt8]? {
    let raw = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY)
    if raw < 0 { return nil }
    let descriptor = OwnedFD(adopting: raw)
    return readAll(descriptor.number, limit: limit)
  }

  /// From the present position to the end.
  static func readAll(_ descriptor: Int32, limit: Int) -> [UInt8]? {
    var bytes: [UInt8] = []
    var room = 4096
    while true {
      var count = 0
      let chunk = [UInt8](unsafeUninitializedCapacity: room) { buffer, initialized in
        repeat { count = Glibc.read(descriptor, buffer.baseAddress, buffer.count) } while count < 0 && errno == EINTR
        initialized = max(count, 0)
      }
      if count < 0 { return nil }
      if count == 0 { return bytes }
      bytes += chunk
      if bytes.count > limit { return nil }
      room = min(room * 2, 1 << 16)
    }
  }

  package static func text(_ path: String, limit: Int = 1 << 20) -> String? {
    read(path, limit: limit).map { String(decoding: $0, as: UTF8.self) }
  }
}
