package import GuardianModel
import GuardianStore

/// What one image of guardian hands to the next within the same process: everything that is neither on disk nor in the
/// kernel's own books. Descriptors are numbers here; they stay open over the exec.
///
/// The form: magic, format, length and checksum of the body; the body is a list of fields, each a tag, a length and that
/// many bytes, nested where a value is a structure. An unknown tag is passed over, so a newer guardian may add to it and
/// an older one can still take over; what would change the meaning of a field raises `format`.
package struct TakeOver: Hashable, Sendable {
  package static let format: UInt32 = 1
  /// Hundreds of services take some hundred KiB; a thousand clients with full buffers are more, and still far from this.
  package static let largest = 64 << 20

  /// The version of the guardian that wrote it.
  package var version = guardianVersion
  /// Of the process: whoever takes over must be the same.
  package var pid: Int32 = 0
  /// When it was written.
  package var at = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
  /// The absolute path by which guardian was started; it is executed at an upgrade.
  package var program = ""
  /// With which it was started, without the program's name and without what one image says to the next.
  package var arguments: [String] = []
  /// The open file of the program that wrote this, for the way back.
  package var oldProgram: Int32?
  package var locks: [Held] = []
  package var listener: Held?
  /// What the service manager passed to guardian, by name, in its order.
  package var sockets: [PassedSocket] = []
  package var services: [Service] = []
  /// Orders that wait for an outcome, whether their client is still there or not.
  package var orders: [Order] = []
  package var clients: [Client] = []
  package var host = Host()
  /// The last number given to a request.
  package var lastRequest: UInt64 = 0
  /// The newest that was given.
  package var lastEvent = EventID.none

  /// Something with a path and an open descriptor.
  package struct Held: Hashable, Sendable {
    package var path: String
    package var descriptor: Int32
    package init(path: String, descriptor: Int32) {
      self.path = path
      self.descriptor = descriptor
    }
  }

  package struct Service: Hashable, Sendable {
    package var name: String
    /// Of the durable record, by the store's own codec; nil: as the store has it.
    package var record: [UInt8]?
    package var notify: Held?
    package var run: Run?
    package var statusText = ""
    /// As `status` shows it: `journal`, `inherit`, `none`, `degraded`.
    package var log = ""
    package var notes: [String] = []
    package var repairs = "", repairRound = 0
    package var droppedNotifications = 0, ignoredNotifications = 0
    package init(name: String) { self.name = name }
  }

  /// What the shell holds for a run that lives.
  package struct Run: Hashable, Sendable {
    package var id: RunID
    package var pid: Int32
    package var readiness: Int32?
    package var journal: Int32?
    package var sentKill = false
    package var oomKills: UInt64 = 0
    /// Its main process is gone, and the rest of its set is not.
    package var draining = false
    package init(id: RunID, pid: Int32) {
      self.id = id
      self.pid = pid
    }
  }

  package struct Order: Hashable, Sendable {
    package enum Goal: UInt8, Hashable, Sendable {
      case ready = 1, stopped, done, failed
      /// When the next reload is over, or the one after it.
      case reloaded, reloadedNext
      /// When the repairs are over, or it is ready after them; one of which has failed already, for the reason in `note`.
      case repaired, repairedReady, repairFailed, repairFailedReady
    }
    package var request: UInt64
    package var service: String
    package var goal: Goal
    /// For `failed` the reason.
    package var note: String
    package init(request: UInt64, service: String, goal: Goal, note: String) {
      self.request = request
      self.service = service
      self.goal = goal
      self.note = note
    }
  }

  package struct Client: Hashable, Sendable {
    package enum Waits: Hashable, Sendable {
      case nothing
      case order(request: UInt64, name: String, oneway: Bool)
      case list(names: [String], next: Int, missing: [String], brief: Bool)
      case reload(oneway: Bool)
      case upgrade(oneway: Bool)
      /// It has been told all up to `after`, and follows what comes.
      case events(names: [String], after: EventID)
    }
    package var descriptor: Int32
    package var input: [UInt8] = []
    package var output: [UInt8] = []
    /// No more is read from it.
    package var closing = false
    package var waits = Waits.nothing
    package init(descriptor: Int32) { self.descriptor = descriptor }
  }

  /// What was found when the first image started and cannot be found again, since it has been changed.
  package struct Host: Hashable, Sendable {
    package var softOpenFiles: UInt64?
    /// Children that guardian had before it started anything.
    package var inherited: [Int32] = []
    package init() {}
  }

  package init() {}

  /// All descriptors in it, in no particular order; those of the way back too.
  package var descriptors: [Int32] {
    var all = locks.map(\.descriptor) + clients.map(\.descriptor)
    for service in services {
      all += [service.notify?.descriptor, service.run?.readiness, service.run?.journal].compactMap { $0 }
    }
    all += sockets.map(\.descriptor)
    return all + [listener?.descriptor, oldProgram].compactMap { $0 }
  }
}

extension TakeOver {
  /// Puts another number in the place of each.
  mutating func mapDescriptors<E: Error>(_ map: (Int32) throws(E) -> Int32) throws(E) {
    func mapped(_ number: Int32?) throws(E) -> Int32? {
      guard let number else { return nil }
      return try map(number)
    }
    for index in locks.indices { locks[index].descriptor = try map(locks[index].descriptor) }
    for index in clients.indices { clients[index].descriptor = try map(clients[index].descriptor) }
    for index in sockets.indices { sockets[index].descriptor = try map(sockets[index].descriptor) }
    if let held = listener { listener?.descriptor = try map(held.descriptor) }
    // The way back needs the original only.
    oldProgram = nil
    for index in services.indices {
      if let held = services[index].notify { services[index].notify?.descriptor = try map(held.descriptor) }
      if var run = services[index].run {
        run.readiness = try mapped(run.readiness)
        run.journal = try mapped(run.journal)
        services[index].run = run
      }
    }
  }
}

/// Why something is no snapshot that this guardian could take over.
package struct TakeOverFault: Error, Hashable, Sendable, CustomStringConvertible {
  package var description: String
  package init(_ description: String) { self.description = description }
}

// MARK: - Bytes

extension TakeOver {
  private static let magic = Array("guardian-takeover".utf8)
  private static let headLength = magic.count + 4 + 8 + 8

  package func encode() -> [UInt8] {
    var body = Fields()
    body.text(1, version)
    body.number(2, pid)
    body.text(3, program)
    if let oldProgram { body.number(4, oldProgram) }
    for lock in locks { body.nested(5, lock.fields) }
    if let listener { body.nested(6, listener.fields) }
    for service in services { body.nested(7, service.fields) }
    for order in orders { body.nested(8, order.fields) }
    for client in clients { body.nested(9, client.fields) }
    body.nested(10, host.fields)
    body.number(11, lastRequest)
    body.number(17, lastEvent.number)
    for argument in arguments { body.text(15, argument) }
    for socket in sockets { body.nested(16, socket.fields) }
    body.number(12, at.monotonic.nanoseconds)
    body.number(13, at.boot.nanoseconds)
    body.number(14, at.wall.nanoseconds)
    return Self.framed(body.bytes)
  }

  static func framed(_ body: [UInt8]) -> [UInt8] {
    var head = magic
    head.append(little: format)
    head.append(little: UInt64(body.count))
    head.append(little: checksum(body[...]))
    return head + body
  }

  package init(decoding bytes: [UInt8]) throws(TakeOverFault) {
    guard bytes.count <= Self.largest else { throw TakeOverFault("the snapshot is too large: \(bytes.count) bytes") }
    guard bytes.count >= Self.headLength, bytes.starts(with: Self.magic) else {
      throw TakeOverFault("that is no snapshot of a guardian")
    }
    let head = bytes[Self.magic.count..<Self.headLength]
    let format = UInt32(truncatingIfNeeded: little(head.prefix(4)))
    guard format == Self.format else {
      throw TakeOverFault("the snapshot has format \(format), and this guardian knows \(Self.format)")
    }
    let body = bytes[Self.headLength...]
    guard little(head.dropFirst(4).prefix(8)) == UInt64(body.count) else {
      throw TakeOverFault("the snapshot is cut off")
    }
    guard little(head.dropFirst(12)) == Self.checksum(body) else { throw TakeOverFault("the snapshot is damaged") }
    try forEachField(body) { (tag, value) throws(TakeOverFault) in
      switch tag {
      case 1: version = text(value)
      case 2: pid = try small(value)
      case 3: program = text(value)
      case 4: oldProgram = try descriptor(value)
      case 5: locks.append(try Held(value))
      case 6: listener = try Held(value)
      case 7: services.append(try Service(value))
      case 8: orders.append(try Order(value))
      case 9: clients.append(try Client(value))
      case 10: host = try Host(value)
      case 11: lastRequest = try number(value)
      case 17: lastEvent = EventID(Int64(clamping: try number(value)))
      case 15: arguments.append(text(value))
      case 16: sockets.append(try PassedSocket(value))
      case 12: at.monotonic = Instant(nanoseconds: Int64(bitPattern: try number(value)))
      case 13: at.boot = BootInstant(nanoseconds: Int64(bitPattern: try number(value)))
      case 14: at.wall = WallTime(nanoseconds: Int64(bitPattern: try number(value)))
      default: break
      }
    }
    let all = descriptors
    guard Set(all).count == all.count else { throw TakeOverFault("the snapshot names a descriptor twice") }
  }

  /// Against a cut or a mix-up, not against an enemy.
  private static func checksum(_ bytes: ArraySlice<UInt8>) -> UInt64 { Fingerprint.of(bytes) }
}

extension TakeOver.Held {
  fileprivate var fields: Fields {
    var fields = Fields()
    fields.text(1, path)
    fields.number(2, descriptor)
    return fields
  }
  fileprivate init(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) {
    self.init(path: "", descriptor: -1)
    try forEachField(bytes) { (tag, value) throws(TakeOverFault) in
      switch tag {
      case 1: path = text(value)
      case 2: descriptor = try GuardianRuntime.descriptor(value)
      default: break
      }
    }
    guard descriptor >= 0, path.hasPrefix("/") else { throw TakeOverFault("the snapshot holds half an entry") }
  }
}

extension PassedSocket {
  fileprivate var fields: Fields {
    var fields = Fields()
    fields.text(1, name)
    fields.number(2, descriptor)
    return fields
  }
  fileprivate init(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) {
    self.init(name: "", descriptor: -1)
    try forEachField(bytes) { (tag, value) throws(TakeOverFault) in
      switch tag {
      case 1: name = text(value)
      case 2: descriptor = try GuardianRuntime.descriptor(value)
      default: break
      }
    }
    guard descriptor >= 0, !name.isEmpty else { throw TakeOverFault("the snapshot holds half a socket") }
  }
}

extension TakeOver.Service {
  fileprivate var fields: Fields {
    var fields = Fields()
    fields.text(1, name)
    if let record { fields.blob(2, record) }
    if let notify { fields.nested(3, notify.fields) }
    if let run { fields.nested(4, run.fields) }
    fields.text(5, statusText)
    fields.text(6, log)
    for note in notes { fields.text(7, note) }
    fields.text(8, repairs)
    fields.number(9, repairRound)
    fields.number(10, droppedNotifications)
    fields.number(20, ignoredNotifications)
    return fields
  }
  fileprivate init(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) {
    self.init(name: "")
    try forEachField(bytes) { (tag, value) throws(TakeOverFault) in
      switch tag {
      case 1: name = text(value)
      case 2: record = Array(value)
      case 3: notify = try TakeOver.Held(value)
      case 4: run = try TakeOver.Run(value)
      case 5: statusText = text(value)
      case 6: log = text(value)
      case 7: notes.append(text(value))
      case 8: repairs = text(value)
      case 9: repairRound = try count(value)
      case 10: droppedNotifications = try count(value)
      case 20: ignoredNotifications = try count(value)
      default: break
      }
    }
    guard ServiceName(name) != nil else { throw TakeOverFault("the snapshot names a service that cannot be one") }
  }
}

extension TakeOver.Run {
  fileprivate var fields: Fields {
    var fields = Fields()
    fields.number(1, id.high)
    fields.number(2, id.low)
    fields.number(3, pid)
    if let readiness { fields.number(4, readiness) }
    if let journal { fields.number(5, journal) }
    fields.flag(6, sentKill)
    fields.number(7, oomKills)
    fields.flag(8, draining)
    return fields
  }
  fileprivate init(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) {
    self.init(id: RunID(high: 0, low: 0), pid: 0)
    var high: UInt64 = 0, low: UInt64 = 0
    try forEachField(bytes) { (tag, value) throws(TakeOverFault) in
      switch tag {
      case 1: high = try number(value)
      case 2: low = try number(value)
      case 3: pid = try small(value)
      case 4: readiness = try descriptor(value)
      case 5: journal = try descriptor(value)
      case 6: sentKill = try number(value) != 0
      case 7: oomKills = try number(value)
      case 8: draining = try number(value) != 0
      default: break
      }
    }
    id = RunID(high: high, low: low)
    guard pid > 0 else { throw TakeOverFault("the snapshot holds a run without a process") }
  }
}

extension TakeOver.Order {
  fileprivate var fields: Fields {
    var fields = Fields()
    fields.number(1, request)
    fields.text(2, service)
    fields.number(3, goal.rawValue)
    fields.text(4, note)
    return fields
  }
  fileprivate init(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) {
    self.init(request: 0, service: "", goal: .done, note: "")
    try forEachField(bytes) { (tag, value) throws(TakeOverFault) in
      switch tag {
      case 1: request = try number(value)
      case 2: service = text(value)
      case 3:
        guard let known = Goal(rawValue: UInt8(truncatingIfNeeded: try number(value))) else {
          throw TakeOverFault("the snapshot holds an order whose outcome this guardian does not know")
        }
        goal = known
      case 4: note = text(value)
      default: break
      }
    }
  }
}

extension TakeOver.Client {
  fileprivate var fields: Fields {
    var fields = Fields()
    fields.number(1, descriptor)
    fields.blob(2, input)
    fields.blob(3, output)
    fields.flag(4, closing)
    switch waits {
    case .nothing: break
    case .order(let request, let name, let oneway):
      fields.number(5, 1)
      fields.number(6, request)
      fields.text(7, name)
      fields.flag(8, oneway)
    case .list(let names, let next, let missing, let brief):
      fields.number(5, 2)
      // What has been listed already is not listed again.
      for name in names.dropFirst(next) { fields.text(7, name) }
      for name in missing { fields.text(9, name) }
      fields.flag(10, brief)
    case .reload(let oneway):
      fields.number(5, 3)
      fields.flag(8, oneway)
    case .upgrade(let oneway):
      fields.number(5, 4)
      fields.flag(8, oneway)
    case .events(let names, let after):
      fields.number(5, 5)
      for name in names { fields.text(7, name) }
      fields.number(11, after.number)
    }
    return fields
  }
  fileprivate init(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) {
    self.init(descriptor: -1)
    var kind: UInt64 = 0, request: UInt64 = 0, names: [String] = [], missing: [String] = []
    var oneway = false, brief = false, after = EventID.none
    try forEachField(bytes) { (tag, value) throws(TakeOverFault) in
      switch tag {
      case 1: descriptor = try GuardianRuntime.descriptor(value)
      case 2: input = Array(value)
      case 3: output = Array(value)
      case 4: closing = try number(value) != 0
      case 5: kind = try number(value)
      case 6: request = try number(value)
      case 7: names.append(text(value))
      case 8: oneway = try number(value) != 0
      case 9: missing.append(text(value))
      case 10: brief = try number(value) != 0
      case 11: after = EventID(Int64(clamping: try number(value)))
      default: break
      }
    }
    switch kind {
    case 0: waits = .nothing
    case 1: waits = .order(request: request, name: names.first ?? "", oneway: oneway)
    case 2: waits = .list(names: names, next: 0, missing: missing, brief: brief)
    case 3: waits = .reload(oneway: oneway)
    case 4: waits = .upgrade(oneway: oneway)
    case 5: waits = .events(names: names, after: after)
    default: throw TakeOverFault("the snapshot holds a client that waits for what this guardian does not know")
    }
    guard descriptor >= 0 else { throw TakeOverFault("the snapshot holds half an entry") }
  }
}

extension TakeOver.Host {
  fileprivate var fields: Fields {
    var fields = Fields()
    if let softOpenFiles { fields.number(1, softOpenFiles) }
    for pid in inherited { fields.number(2, pid) }
    return fields
  }
  fileprivate init(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) {
    self.init()
    try forEachField(bytes) { (tag, value) throws(TakeOverFault) in
      switch tag {
      case 1: softOpenFiles = try number(value)
      case 2: inherited.append(try small(value))
      default: break
      }
    }
  }
}

// The fields are those of the store's records.
private typealias Fields = FieldWriter

extension FieldWriter {
  fileprivate mutating func text(_ tag: UInt8, _ value: String) { string(tag, value) }
  fileprivate mutating func nested(_ tag: UInt8, _ value: Fields) { blob(tag, value.bytes) }
  fileprivate mutating func number(_ tag: UInt8, _ value: some BinaryInteger) {
    integer(tag, Int64(truncatingIfNeeded: value))
  }
}

private func forEachField(
  _ bytes: ArraySlice<UInt8>, _ body: (UInt8, ArraySlice<UInt8>) throws(TakeOverFault) -> Void
) throws(TakeOverFault) {
  var reader = FieldReader(bytes)
  while let field = try well({ () throws(Malformed) in try reader.next() }) { try body(field.tag, field.content) }
}

private func well<Value>(_ read: () throws(Malformed) -> Value) throws(TakeOverFault) -> Value {
  do throws(Malformed) { return try read() } catch { throw TakeOverFault("the snapshot is cut off or damaged") }
}

private func number(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) -> UInt64 {
  UInt64(bitPattern: try well { () throws(Malformed) in try Field(tag: 0, content: bytes).integer() })
}
/// The lowest byte first.
private func little(_ bytes: ArraySlice<UInt8>) -> UInt64 {
  bytes.prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) }
}
private func text(_ bytes: ArraySlice<UInt8>) -> String { String(decoding: bytes, as: UTF8.self) }
private func small(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) -> Int32 {
  guard let fits = Int32(exactly: Int64(bitPattern: try number(bytes))) else {
    throw TakeOverFault("the snapshot holds a number that is too large")
  }
  return fits
}
private func count(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) -> Int {
  guard let fits = Int(exactly: try number(bytes)) else {
    throw TakeOverFault("the snapshot holds a number that is too large")
  }
  return fits
}
/// The standard three are guardian's own and are handed on by nobody.
private func descriptor(_ bytes: ArraySlice<UInt8>) throws(TakeOverFault) -> Int32 {
  let descriptor = try small(bytes)
  guard descriptor > 2 else { throw TakeOverFault("the snapshot names a descriptor that cannot be one") }
  return descriptor
}

extension [UInt8] {
  fileprivate mutating func append<Number: FixedWidthInteger>(little number: Number) {
    for shift in stride(from: 0, to: Number.bitWidth, by: 8) { append(UInt8(truncatingIfNeeded: number >> shift)) }
  }
}
