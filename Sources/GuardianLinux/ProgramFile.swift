import Glibc

/// What the first bytes of a program tell of what it needs to be executed.
///
/// Read only to explain a failure. The bytes are anybody's: nothing in them is believed beyond its bounds.
struct ProgramFile {
  /// The first bytes; the kernel itself looks at 256 for a first line.
  let head: [UInt8]
  /// The path behind `#!`; nil where the file is no script.
  let interpreter: String?
  let elf: ELF?
  let isELF: Bool

  struct ELF {
    /// Nil: none is named, as of a static program.
    var loader: String?
    /// What it is built for, where that is another machine.
    var foreignMachine: String?
  }

  /// Nil where it is no regular file, or cannot be read.
  init?(_ path: String) {
    let raw = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    if raw < 0 { return nil }
    let descriptor = OwnedFD(adopting: raw)
    var status = stat()
    guard fstat(descriptor.number, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
      let head = Self.bytes(of: descriptor.number, at: 0, count: 256)
    else { return nil }
    self.head = head
    interpreter = Self.interpreter(in: head)
    isELF = head.starts(with: [0x7F, UInt8(ascii: "E"), UInt8(ascii: "L"), UInt8(ascii: "F")])
    elf = isELF ? Self.elf(head, descriptor.number) : nil
  }

  private static func bytes(of descriptor: Int32, at offset: UInt64, count: Int) -> [UInt8]? {
    off_t(exactly: offset).flatMap { FileText.read(descriptor, at: $0, count: count) }
  }

  private static func interpreter(in head: [UInt8]) -> String? {
    guard head.starts(with: [UInt8(ascii: "#"), UInt8(ascii: "!")]) else { return nil }
    let line = head.dropFirst(2).prefix { $0 != UInt8(ascii: "\n") }
    let words = line.split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
    return words.first.map { String(decoding: $0, as: UTF8.self) }
  }

  /// A carriage return from another system's editor is part of the name, and invisible.
  static func shown(_ path: String) -> String {
    path.utf8.last == UInt8(ascii: "\r") ? String(decoding: path.utf8.dropLast(), as: UTF8.self) + "\\r" : path
  }

  // MARK: ELF

  /// Numbers of e_machine that a Linux machine may meet. elf(5).
  private static let machines: [UInt64: String] = [
    3: "x86 (32 bit)", 8: "MIPS", 20: "PowerPC", 21: "PowerPC 64", 22: "S/390", 40: "ARM", 62: "x86-64", 183: "AArch64",
    243: "RISC-V", 258: "LoongArch",
  ]

  #if arch(x86_64)
    private static let own: UInt64 = 62
  #elseif arch(arm64)
    private static let own: UInt64 = 183
  #else
    private static let own: UInt64 = 0
  #endif
  static var ownMachine: String { machines[own] ?? "another" }

  private static func elf(_ head: [UInt8], _ descriptor: Int32) -> ELF? {
    guard head.count >= 64, head[4] == 1 || head[4] == 2, head[5] == 1 || head[5] == 2 else { return nil }
    let wide = head[4] == 2, big = head[5] == 2
    func number(_ bytes: [UInt8], _ at: Int, _ size: Int) -> UInt64? {
      guard at >= 0, bytes.count >= size, at <= bytes.count - size else { return nil }
      var value: UInt64 = 0
      for index in 0..<size { value = value << 8 | UInt64(bytes[at + (big ? index : size - 1 - index)]) }
      return value
    }
    var found = ELF()
    guard let machine = number(head, 18, 2) else { return nil }
    if machine != own || !wide { found.foreignMachine = machines[machine] ?? "a machine of number \(machine)" }
    // The headers of its segments, of which one names the loader.
    guard let table = number(head, wide ? 32 : 28, wide ? 8 : 4), let size = number(head, wide ? 54 : 42, 2),
      let count = number(head, wide ? 56 : 44, 2), (32...256).contains(size), count <= 64,
      let segments = bytes(of: descriptor, at: table, count: Int(size * count))
    else { return found }
    for index in 0..<Int(count) {
      let at = index * Int(size)
      guard number(segments, at, 4) == 3 else { continue }  // PT_INTERP
      guard let offset = number(segments, at + (wide ? 8 : 4), wide ? 8 : 4),
        let length = number(segments, at + (wide ? 32 : 16), wide ? 8 : 4), (2...4096).contains(length),
        let path = bytes(of: descriptor, at: offset, count: Int(length))
      else { break }
      found.loader = String(decoding: path.prefix { $0 != 0 }, as: UTF8.self)
      break
    }
    return found
  }
}
