import Glibc
import GuardianModel

@testable import GuardianStore

let bootA = "aaaaaaaa-0000-4000-8000-000000000001"
let bootB = "bbbbbbbb-0000-4000-8000-000000000002"

/// A directory of its own, removed with all that is in it.
final class Scratch {
  let path: String
  init() {
    // In memory where that can be: many of these tests are thousands of syncs.
    let parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"
    var template = Array("\(parent)/guardian-store-XXXXXX".utf8CString)
    guard let made = mkdtemp(&template) else { fatalError("no scratch directory: \(errno)") }
    path = String(cString: made)
  }
  deinit { Scratch.remove(path) }

  static func remove(_ path: String) {
    for name in names(path) where unlink(path + "/" + name) != 0 { remove(path + "/" + name) }
    rmdir(path)
  }
  static func names(_ path: String) -> [String] {
    guard let stream = opendir(path) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != ".", name != ".." { names.append(name) }
    }
    return names.sorted()
  }
  var names: [String] { Scratch.names(path) }
  func file(_ name: String) -> String { path + "/" + name }
  func read(_ name: String) -> [UInt8] {
    let descriptor = open(file(name), O_RDONLY)
    guard descriptor >= 0 else { return [] }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65536)
    while case let count = Glibc.read(descriptor, &buffer, buffer.count), count > 0 { bytes += buffer[..<count] }
    return bytes
  }
  func write(_ name: String, _ bytes: [UInt8]) {
    let descriptor = open(file(name), O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    guard descriptor >= 0 else { return }
    defer { close(descriptor) }
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
      if count <= 0 { return }
      rest = rest.dropFirst(count)
    }
  }
}

func name(_ text: String) -> ServiceName {
  guard let name = ServiceName(text) else { fatalError("not a service's name: \(text)") }
  return name
}

func at(_ seconds: Int) -> Now {
  let nanoseconds = Int64(seconds) * 1_000_000_000
  return Now(
    monotonic: Instant(nanoseconds: nanoseconds), boot: BootInstant(nanoseconds: nanoseconds + 5),
    wall: WallTime(nanoseconds: 1_700_000_000_000_000_000 + nanoseconds))
}

func save(_ text: String, strikes: Int, ticket: Int = 1, id: Int = 0) -> Store.Save {
  var record = ServiceRecord()
  record.strikes = strikes
  record.wanted = .up
  return Store.Save(id: ServiceID(id), name: name(text), record: record, ticket: Ticket(UInt64(ticket)))
}

/// Polls with a deadline: what is waited for comes from another thread.
func eventually(within seconds: Int = 20, _ condition: () -> Bool) -> Bool {
  let deadline = monotonicNow() + .seconds(seconds)
  while !condition() {
    if monotonicNow() > deadline { return false }
    usleep(2000)
  }
  return true
}

extension Store {
  /// Waits until `count` tickets are answered.
  func answers(_ count: Int) -> [Ticket] {
    var tickets: [Ticket] = []
    _ = eventually {
      tickets += takeAnswers().map(\.1)
      return tickets.count >= count
    }
    return tickets
  }
  func volatileBecause() -> String? { if case .volatile(let why) = state { why } else { nil } }
}
