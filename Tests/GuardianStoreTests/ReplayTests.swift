import CSQLite
import CStoreFaults
import GuardianModel
import Testing

@testable import GuardianStore

/// What a disk may hold of one file when the power goes.
private struct Medium {
  private enum Change { case write(Int, [UInt8]), truncate(Int), delete }
  private var durable: [UInt8]?
  private var pending: [Change] = []
  /// Written before a sync that failed: the kernel may call these pages clean, so no later sync brings them to the
  /// disk.
  private var doubtful: [Change] = []

  mutating func apply(_ operation: store_op) {
    switch Int(operation.kind) {
    case OP_WRITE:
      let bytes = operation.data.map { Array(UnsafeBufferPointer(start: $0, count: Int(operation.length))) } ?? []
      pending.append(.write(Int(operation.offset), bytes))
    case OP_TRUNCATE: pending.append(.truncate(Int(operation.length)))
    case OP_DELETE: pending.append(.delete)
    case OP_SYNC:
      durable = image(of: pending)
      pending = []
    case OP_FAILED_SYNC:
      doubtful += pending
      pending = []
    default: break
    }
  }

  private func image(of changes: [Change]) -> [UInt8]? {
    var bytes = durable
    for change in changes {
      switch change {
      case .delete: bytes = nil
      case .truncate(let length):
        var now = bytes ?? []
        if now.count > length { now.removeLast(now.count - length) } else { now += zeros(length - now.count) }
        bytes = now
      case .write(let offset, let data):
        var now = bytes ?? []
        if now.count < offset + data.count { now += zeros(offset + data.count - now.count) }
        now.replaceSubrange(offset..<offset + data.count, with: data)
        bytes = now
      }
    }
    return bytes
  }
  private func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }

  /// One of the states that are allowed now. 0: nothing unsynced came through; 1: all of it; 2: all but half of the
  /// last
  /// write; 3 and more: any part of it.
  func crash(_ way: Int, _ random: inout Seeded) -> [UInt8]? {
    switch way {
    case 0: return image(of: [])
    case 1: return image(of: pending)
    case 2:
      var changes = pending
      if case .write(let offset, let data)? = changes.last {
        changes[changes.count - 1] = .write(offset, Array(data.prefix(data.count / 2)))
      }
      return image(of: changes)
    default: return image(of: (doubtful + pending).filter { _ in Bool.random(using: &random) })
    }
  }
}

/// Opens every image that a power cut could have left, and compares it with what had been acknowledged.
private func replay(_ faults: OpaquePointer, ways: Int, submitted: Int) {
  var media = [Medium(), Medium(), Medium()]
  var random = Seeded(state: 99)
  var acknowledged = 0
  var images = 0
  let names = ["guardian.db", "guardian.db-wal", "guardian.db-journal"]
  for index in 0..<store_faults_count(faults) {
    let operation = store_faults_operation(faults, index)
    if Int(operation.kind) == OP_MARK {
      acknowledged = Int(operation.length)
    } else {
      media[Int(operation.file)].apply(operation)
    }
    for way in 0..<ways {
      let copy = Scratch()
      for (name, medium) in zip(names, media) { if let bytes = medium.crash(way, &random) { copy.write(name, bytes) } }
      let loaded = look(copy.path).loaded
      images += 1
      let strikes = loaded.services[name("web")]?.record.strikes ?? 0
      #expect(
        (acknowledged...submitted).contains(strikes),
        "operation \(index), way \(way): \(strikes), of which \(acknowledged) acknowledged; \(loaded.notes)")
      if acknowledged > 0 { #expect(!loaded.lost, "operation \(index), way \(way): \(loaded.notes)") }
      let open = loaded.openRuns.count
      #expect(open <= 1, "operation \(index), way \(way)")
    }
  }
  #expect(images > 100)
}

@Test
func `H1, H2, H9: every image that a power cut may leave has the old or the new state, and all that was acknowledged`()
  throws
{
  let faulty = try #require(Faulty("replay"))
  store_faults_record(faulty.faults, 1)
  let store = faulty.store()
  _ = store.load()
  var run: RunID?
  for number in 1...6 {
    var entries: [RunEntry] = []
    if let run { entries.append(.closed(run, service: name("web"), .notBegun, at: at(number).wall, madeUp: false)) }
    let next = RunID(high: 7, low: UInt64(number))
    entries.append(.opened(next, service: name("web"), purpose: .main(.ordinary), at: at(number).wall))
    run = next
    var record = save("web", strikes: number, ticket: number)
    if number > 3 {
      record.record.step = .quarantine
      record.record.quarantine = Quarantine(since: at(1).wall, reason: "r", nextTrial: nil)
    }
    store.submit(saves: [record], entries: entries, now: at(number))
    #expect(store.answers(1).count == 1)
    store_faults_mark(faulty.faults, Int64(number))
  }
  #expect(store.close(orderly: true, within: .seconds(10)))
  replay(faulty.faults, ways: 5, submitted: 6)
}

@Test func `E7: after a failed sync nothing is taken for written that may not be on the disk`() throws {
  let faulty = try #require(Faulty("replay after a failed sync"))
  store_faults_record(faulty.faults, 1)
  let store = faulty.store()
  _ = store.load()
  for number in 1...6 {
    if number == 3 || number == 5 { faulty.fail(FAULT_SYNC, SQLITE_IOERR | 4 << 8, times: 2) }
    store.submit(saves: [save("web", strikes: number, ticket: number)], now: at(number))
    #expect(store.answers(1).count == 1)
    store_faults_mark(faulty.faults, Int64(number))
  }
  #expect(store.close(orderly: true, within: .seconds(10)))
  replay(faulty.faults, ways: 5, submitted: 6)
}
