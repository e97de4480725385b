/// A NULL-terminated array of C strings, in two allocations, alive as long as the object.
final class CStrings {
  let pointers: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
  private let bytes: UnsafeMutablePointer<CChar>

  init(_ strings: [String]) {
    let size = strings.reduce(0) { $0 + $1.utf8.count + 1 }
    bytes = .allocate(capacity: max(size, 1))
    pointers = .allocate(capacity: strings.count + 1)
    var next = bytes
    for (index, string) in strings.enumerated() {
      (pointers + index).initialize(to: next)
      for byte in string.utf8 {
        next.initialize(to: CChar(bitPattern: byte))
        next += 1
      }
      next.initialize(to: 0)
      next += 1
    }
    (pointers + strings.count).initialize(to: nil)
  }

  deinit {
    pointers.deallocate()
    bytes.deallocate()
  }
}

/// Bytes that stay where they are for as long as this lives.
final class Bytes {
  let memory: UnsafeMutableRawBufferPointer

  init(_ bytes: [UInt8]) {
    memory = .allocate(byteCount: bytes.count, alignment: 1)
    memory.copyBytes(from: bytes)
  }

  deinit { memory.deallocate() }
}
