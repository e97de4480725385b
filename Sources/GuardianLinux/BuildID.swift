import Glibc

/// The name that the linker gave to a program or library: equal ones are equal in content, whatever their times say.
enum BuildID {
  private static let noteSegment: UInt32 = 4, buildIDNote: UInt32 = 3

  /// In hexadecimal; nil where the file is no 64-bit ELF file of this machine's byte order, or has none.
  ///
  /// Reads its head and its notes, and believes neither. elf(5).
  static func of(_ descriptor: Int32) -> String? {
    guard let head = FileText.read(descriptor, at: 0, count: 64), head.count == 64,
      head.starts(with: [0x7F, UInt8(ascii: "E"), UInt8(ascii: "L"), UInt8(ascii: "F"), 2, 1])
    else { return nil }
    let entrySize = Int(number(head, 54, 2)), entries = min(Int(number(head, 56, 2)), 64)
    guard entrySize >= 56, entrySize <= 256, let table = off_t(exactly: number(head, 32, 8)), table > 0,
      let bytes = FileText.read(descriptor, at: table, count: entrySize * entries)
    else { return nil }
    for start in stride(from: 0, to: bytes.count, by: entrySize) where start + 56 <= bytes.count {
      guard UInt32(number(bytes, start, 4)) == noteSegment, let offset = off_t(exactly: number(bytes, start + 8, 8)),
        let notes = FileText.read(descriptor, at: offset, count: Int(min(number(bytes, start + 32, 8), 4096))),
        let id = buildID(in: notes)
      else { continue }
      return id
    }
    return nil
  }

  private static func buildID(in notes: [UInt8]) -> String? {
    func padded(_ length: UInt64) -> Int { Int((min(length, 4096) + 3) & ~3) }
    var at = 0
    while at + 12 <= notes.count {
      let nameLength = number(notes, at, 4), length = number(notes, at + 4, 4)
      let name = at + 12, value = name + padded(nameLength), end = value + padded(length)
      guard end <= notes.count else { return nil }
      if UInt32(number(notes, at + 8, 4)) == buildIDNote, notes[name..<value].elementsEqual(Array("GNU\0".utf8)),
        length > 0, length <= 64
      {
        return notes[value..<value + Int(length)].map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
      }
      at = end
    }
    return nil
  }

  /// Little-endian. The caller has made sure of the bytes.
  private static func number(_ bytes: [UInt8], _ at: Int, _ count: Int) -> UInt64 {
    bytes[at..<at + count].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }
}
