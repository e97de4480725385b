/// CRC-64 (the polynomial of ECMA-182, reflected) over values with their lengths: every single error of up to 64 bits is
/// seen, also where two values swap places.
struct Checksum {
  private var register = UInt64.max

  private static let table: [UInt64] = (0..<256).map { index in
    var value = UInt64(index)
    for _ in 0..<8 { value = value & 1 == 1 ? value >> 1 ^ 0xC96C_5795_D787_0F42 : value >> 1 }
    return value
  }

  mutating func add(bytes: some Collection<UInt8>) {
    add(Int64(bytes.count))
    for byte in bytes { add(byte: byte) }
  }
  mutating func add(_ text: String) { add(bytes: text.utf8) }
  mutating func add(_ number: Int64) {
    for shift in stride(from: UInt64(0), to: 64, by: 8) {
      add(byte: UInt8(truncatingIfNeeded: UInt64(bitPattern: number) >> shift))
    }
  }
  private mutating func add(byte: UInt8) {
    register = Self.table[Int(UInt8(truncatingIfNeeded: register) ^ byte)] ^ register >> 8
  }

  /// As SQLite keeps integers. The table's name is part of it, so that a row does not pass in another table.
  static func of(_ table: String, _ body: (inout Checksum) -> Void) -> Int64 {
    var sum = Checksum()
    sum.add(table)
    body(&sum)
    return Int64(bitPattern: ~sum.register)
  }
}
