import Glibc
import GuardianModel

/// What has been taken out of pipes and is not in a file yet, in memory that outlives this process: its successor reads
/// there how much was lost at most.
final class Book {
  struct Entry: Hashable {
    var service: ServiceName, bytes: UInt64
  }
  /// Of 80 bytes: how many are on their way (8), the length of the service's name (8), the name (64).
  private static let slots = 32, slotSize = 80
  private static let size = slots * slotSize
  private let memory: UnsafeMutableRawPointer
  private let owns: Bool
  /// What the logger before this one had on its way when it was ended.
  let found: [Entry]
  private var taken: [Bool]

  /// - Parameter path: Made where it is missing. Nil, or where it cannot be had: nothing outlives this process.
  init(path: String?) {
    var mapped: UnsafeMutableRawPointer?
    if let path {
      let file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0o600)
      if file >= 0 {
        var about = stat()
        if fstat(file, &about) == 0, about.st_mode & S_IFMT == S_IFREG, about.st_uid == geteuid(),
          ftruncate(file, off_t(Self.size)) == 0
        {
          let room = mmap(nil, Self.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
          if room != MAP_FAILED { mapped = room }
        }
        close(file)
      }
    }
    owns = mapped == nil
    memory = mapped ?? UnsafeMutableRawPointer.allocate(byteCount: Self.size, alignment: 8)
    taken = [Bool](repeating: false, count: Self.slots)
    var found: [Entry] = []
    if mapped != nil {
      for slot in 0..<Self.slots {
        let place = memory + slot * Self.slotSize
        let bytes = place.load(as: UInt64.self), length = Int(clamping: (place + 8).load(as: UInt64.self))
        guard bytes > 0, (1...64).contains(length) else { continue }
        let name = String(decoding: UnsafeRawBufferPointer(start: place + 16, count: length), as: UTF8.self)
        if let service = ServiceName(name) { found.append(Entry(service: service, bytes: bytes)) }
      }
    }
    self.found = found
    memset(memory, 0, Self.size)
  }

  deinit { if owns { memory.deallocate() } else { munmap(memory, Self.size) } }

  /// A place for one service; nil where there is none left, and then its loss is not known.
  func slot(_ service: ServiceName) -> Int? {
    guard let slot = taken.firstIndex(of: false) else { return nil }
    taken[slot] = true
    name(slot, service)
    return slot
  }

  /// The slot that is used for whatever is read just now.
  func name(_ slot: Int, _ service: ServiceName) {
    let place = memory + slot * Self.slotSize
    place.storeBytes(of: 0, as: UInt64.self)
    var text = service.text
    text.withUTF8 { name in
      (place + 8).storeBytes(of: UInt64(min(name.count, 64)), as: UInt64.self)
      if let base = name.baseAddress { (place + 16).copyMemory(from: base, byteCount: min(name.count, 64)) }
    }
  }

  @inline(__always) func set(_ slot: Int, _ bytes: Int) {
    (memory + slot * Self.slotSize).storeBytes(of: UInt64(max(0, bytes)), as: UInt64.self)
  }

  func release(_ slot: Int) {
    set(slot, 0)
    taken[slot] = false
  }
}
