/// A declared file as it was seen.
package struct FileSight: Hashable, Sendable {
  package var path: String
  /// Tells one version of it from the next; 0: it is not there.
  package var look: UInt64
  /// It is as guardian itself has put it there, so that this version is nobody's cure. Not kept.
  package var restored = false
  /// It is another than its last known good copy. Not kept.
  package var change: FileChange?
  package init(path: String, look: UInt64, restored: Bool = false) {
    self.path = path
    self.look = look
    self.restored = restored
  }
}

/// Lines of fields, with a mark at the end by which a file that was cut short, or damaged, is told: the form of the small
/// books that guardian keeps beside the store.
package enum SealedLines {
  private static let tab = UInt8(ascii: "\t"), newline = UInt8(ascii: "\n"), escape = UInt8(ascii: "%")

  /// Any bytes may stand in a field.
  package static func encode(_ title: String, _ lines: [[String]]) -> [UInt8] {
    var bytes: [UInt8] = []
    func add(_ fields: [String]) {
      for (index, field) in fields.enumerated() {
        if index > 0 { bytes.append(tab) }
        for byte in field.utf8 {
          if byte < 32 || byte == escape || byte == 127 {
            bytes += [escape, digit(byte >> 4), digit(byte & 15)]
          } else {
            bytes.append(byte)
          }
        }
      }
      bytes.append(newline)
    }
    add([title])
    for line in lines { add(line) }
    let sum = Fingerprint.of(bytes)
    add(["end", String(sum, radix: 16)])
    return bytes
  }

  /// Nil for anything but what `encode` makes of that title.
  package static func decode(_ title: String, _ bytes: [UInt8]) -> [[String]]? {
    guard bytes.last == newline else { return nil }
    let body = bytes.dropLast()
    let last = body.lastIndex(of: newline).map { $0 + 1 } ?? 0
    guard fields(body[last...]) == ["end", String(Fingerprint.of(bytes[..<last]), radix: 16)], last > 0 else {
      return nil
    }
    let lines = bytes[..<(last - 1)].split(separator: newline, omittingEmptySubsequences: false).map(fields)
    guard lines.first == [title] else { return nil }
    return Array(lines.dropFirst())
  }

  private static func digit(_ value: UInt8) -> UInt8 { value < 10 ? 48 + value : 87 + value }
  private static func value(_ digit: UInt8) -> UInt8? {
    switch digit {
    case 48...57: digit - 48
    case 97...102: digit - 87
    default: nil
    }
  }

  private static func fields(_ line: ArraySlice<UInt8>) -> [String] {
    line.split(separator: tab, omittingEmptySubsequences: false).map { field in
      guard field.contains(escape) else { return String(decoding: field, as: UTF8.self) }
      var bytes: [UInt8] = []
      var rest = field
      while let byte = rest.popFirst() {
        if byte == escape, rest.count >= 2, let high = value(rest[rest.startIndex]),
          let low = value(rest[rest.startIndex + 1])
        {
          bytes.append(high << 4 | low)
          rest = rest.dropFirst(2)
        } else {
          bytes.append(byte)
        }
      }
      return String(decoding: bytes, as: UTF8.self)
    }
  }
}
