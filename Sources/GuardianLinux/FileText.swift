import Glibc

/// Writes `bytes` to the end, however few the kernel takes at a time. write(2).
///
/// - Returns: False where it did not get that far: errno says why.
@discardableResult package func writeAll(_ bytes: [UInt8], to descriptor: Int32) -> Bool {
  var rest = bytes[...]
  while !rest.isEmpty {
    let written = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
    if written < 0 && errno == EINTR { continue }
    guard written > 0 else { return false }
    rest = rest.dropFirst(written)
  }
  return true
}

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
      if bytes.isEmpty { bytes = chunk } else { bytes += chunk }
      if bytes.count > limit { return nil }
      room = min(room * 2, 1 << 16)
    }
  }

  /// So many bytes from `offset` on, fewer where the file ends; nil where it cannot be read. pread(2).
  static func read(_ descriptor: Int32, at offset: off_t, count: Int) -> [UInt8]? {
    var bytes = [UInt8](repeating: 0, count: count)
    var length = 0
    while length < count {
      let got = bytes.withUnsafeMutableBytes {
        pread(descriptor, $0.baseAddress.map { $0 + length }, count - length, offset + off_t(length))
      }
      if got < 0 && errno == EINTR { continue }
      if got < 0 { return nil }
      if got == 0 { break }
      length += got
    }
    return Array(bytes.prefix(length))
  }

  package static func text(_ path: String, limit: Int = 1 << 20) -> String? {
    read(path, limit: limit).map { String(decoding: $0, as: UTF8.self) }
  }

  /// The whole number behind `key` where a line starts with it, blanks between them skipped; nil where there is none.
  ///
  /// Runs at every death, so it makes no strings.
  static func number(after key: StaticString, in text: [UInt8]) -> UInt64? {
    value(after: key, in: text) { value in
      var number: UInt64?
      for byte in value {
        guard byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") else { break }
        let (shifted, tooLarge) = (number ?? 0).multipliedReportingOverflow(by: 10)
        let (sum, over) = shifted.addingReportingOverflow(UInt64(byte - UInt8(ascii: "0")))
        if tooLarge || over { return nil }
        number = sum
      }
      return number
    }
  }

  /// The first byte behind `key` where a line starts with it, blanks between them skipped; nil where there is none.
  static func byte(after key: StaticString, in text: [UInt8]) -> UInt8? {
    value(after: key, in: text) { value in value.first.flatMap { $0 == UInt8(ascii: "\n") ? nil : $0 } }
  }

  /// - Parameter body: Gets all that follows `key` and its blanks, also the lines below.
  private static func value<Value>(
    after key: StaticString, in text: [UInt8], _ body: (Slice<UnsafeBufferPointer<UInt8>>) -> Value?
  ) -> Value? {
    let wanted = UnsafeBufferPointer(start: key.utf8Start, count: key.utf8CodeUnitCount)
    return text.withUnsafeBufferPointer { text in
      var line = 0
      while line < text.count {
        let rest = text[line...]
        if rest.starts(with: wanted) {
          return body(rest.dropFirst(wanted.count).drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") })
        }
        guard let end = rest.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        line = end + 1
      }
      return nil
    }
  }

  /// All whole numbers that fit, whatever stands between them.
  static func numbers(in text: [UInt8]) -> [Int32] {
    text.withUnsafeBufferPointer { text in
      var found: [Int32] = []
      var number: Int64 = -1
      for byte in text {
        if byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") {
          // Stays beyond Int32 once it is there, and cannot overflow.
          number = min(max(number, 0) * 10 + Int64(byte - UInt8(ascii: "0")), Int64(UInt32.max))
        } else {
          if number >= 0, let fits = Int32(exactly: number) { found.append(fits) }
          number = -1
        }
      }
      if number >= 0, let fits = Int32(exactly: number) { found.append(fits) }
      return found
    }
  }
}
