import CSQLite
import CStoreFaults
import Glibc
import GuardianModel
import Testing

@testable import GuardianStore

/// A store over a file system that can be made to fail.
struct Faulty {
  let faults: OpaquePointer
  let vfs: String
  let scratch = Scratch()
  /// Short pauses, so that the tests are quick.
  let limits = Store.Limits(firstPause: .milliseconds(5), longestPause: .milliseconds(20))

  init?(_ name: String) {
    guard let faults = store_faults_new(name) else { return nil }
    self.faults = faults
    vfs = name
  }
  func store() -> Store { Store(directory: scratch.path, bootID: bootA, limits: limits, vfs: vfs) }
  func fail(_ kinds: Int, _ code: Int32, skip: Int32 = 0, times: Int32 = -1) {
    store_faults_fail(faults, Int32(kinds), code, skip, times)
  }
  func heal() { fail(0, 0) }
}

@Test func `one sync for a turn's tickets, and one for several turns when the disk is slower`() throws {
  let faulty = try #require(Faulty("coalesce"))
  let store = faulty.store()
  _ = store.load()
  #expect(eventually { store_faults_syncs(faulty.faults) > 0 && store.state == .durable })
  store.submit(saves: [save("warm", strikes: 0)], now: at(1))
  #expect(store.answers(1).count == 1)
  let before = store_faults_syncs(faulty.faults)
  store.submit(saves: (0..<200).map { save("s\($0)", strikes: $0, ticket: $0) }, now: at(1))
  #expect(store.answers(200).count == 200)
  #expect(store_faults_syncs(faulty.faults) - before == 1)

  // While one sync hangs, a hundred turns come; they share the next.
  store_faults_hang(faulty.faults, Int32(FAULT_SYNC))
  let hit = store_faults_hit(faulty.faults)
  store.submit(saves: [save("web", strikes: 0, ticket: 1)], now: at(2))
  #expect(eventually { store_faults_hit(faulty.faults) > hit })
  for number in 2...100 { store.submit(saves: [save("web", strikes: number, ticket: number)], now: at(3)) }
  #expect(store.takeAnswers().isEmpty)
  store_faults_hang(faulty.faults, 0)
  #expect(store.answers(100) == (1...100).map { Ticket(UInt64($0)) })
  #expect(store_faults_syncs(faulty.faults) - before == 3)
  #expect(store.close(orderly: true, within: .seconds(10)))
  #expect(look(faulty.scratch.path).loaded.services[name("web")]?.record.strikes == 100)
}

@Test(arguments: [
  ("E5: a full disk", FAULT_WRITE, SQLITE_FULL), ("E6: a disk that became read-only", FAULT_WRITE, SQLITE_READONLY),
  ("E7: EIO on write", FAULT_WRITE, SQLITE_IOERR | 3 << 8), ("E7: EIO on fsync", FAULT_SYNC, SQLITE_IOERR | 4 << 8),
])
func `E5, E6, E7: trouble with the disk makes the store volatile and loses nothing`(
  _ title: String, _ kind: Int, _ code: Int32
) throws {
  let faulty = try #require(Faulty("trouble \(kind) \(code)"))
  let store = faulty.store()
  _ = store.load()
  store.submit(
    saves: [save("web", strikes: 1)], events: [Occurrence(service: name("web"), at: at(1).wall, kind: .stopped)],
    now: at(1))
  #expect(store.answers(1).count == 1)
  faulty.fail(kind, code)
  let run = RunID(high: 5, low: 5)
  store.submit(
    saves: [save("web", strikes: 2, ticket: 2)],
    entries: [.opened(run, service: name("web"), purpose: .main(.ordinary), at: at(2).wall)],
    events: [Occurrence(service: name("web"), at: at(2).wall, kind: .stopped)], meta: ["a": "b"], now: at(2))
  #expect(eventually { store.volatileBecause() != nil })
  store.submit(
    saves: [save("db", strikes: 3, ticket: 3)],
    entries: [.closed(run, service: name("web"), .notBegun, at: at(3).wall, madeUp: false)], now: at(3))
  let hit = store_faults_hit(faulty.faults)
  #expect(eventually { store_faults_hit(faulty.faults) >= hit + 3 })
  #expect(store.takeAnswers().isEmpty)
  faulty.heal()
  #expect(Set(store.answers(2)) == [Ticket(2), Ticket(3)])
  #expect(eventually { store.state == .durable })
  #expect(store.ignoredEnds == 0 && store.droppedEvents == 0)
  #expect(store.close(orderly: true, within: .seconds(10)))
  let (loaded, why) = look(faulty.scratch.path)
  #expect(why == nil && loaded.notes == [] && loaded.orderly)
  #expect(loaded.services[name("web")]?.record.strikes == 2 && loaded.services[name("db")]?.record.strikes == 3)
  #expect(loaded.meta == ["a": "b"] && loaded.openRuns.isEmpty)
  #expect(question(faulty.scratch.file("guardian.db"), "SELECT count(*) FROM event") == 2)
  #expect(question(faulty.scratch.file("guardian.db"), "SELECT count(*) FROM run WHERE closed IS NOT NULL") == 1)
}

@Test func `E5: a disk that is full at start still gives the state`() throws {
  let faulty = try #require(Faulty("full at start"))
  fill(faulty.scratch.path)
  faulty.fail(FAULT_WRITE, SQLITE_FULL)
  let store = faulty.store()
  let loaded = store.load()
  #expect(loaded.services.count == 3 && loaded.orderly)
  #expect(eventually { store.volatileBecause() != nil })
  store.submit(saves: [save("web", strikes: 8)], now: at(1))
  faulty.heal()
  #expect(store.answers(1).count == 1)
  #expect(store.close(orderly: true, within: .seconds(10)))
  #expect(look(faulty.scratch.path).loaded.services[name("web")]?.record.strikes == 8)
}

@Test func `a disk that hangs is volatile after the patience, and answers when it comes back`() throws {
  let faulty = try #require(Faulty("hang"))
  let limits = Store.Limits(patience: .milliseconds(100))
  let store = Store(directory: faulty.scratch.path, bootID: bootA, limits: limits, vfs: faulty.vfs)
  _ = store.load()
  store.submit(saves: [save("web", strikes: 1)], now: at(1))
  #expect(store.answers(1).count == 1)
  store_faults_hang(faulty.faults, Int32(FAULT_SYNC))
  store.submit(saves: [save("web", strikes: 2, ticket: 2)], now: at(2))
  #expect(eventually { store.state == .volatile(why: "the disk does not answer") })
  #expect(store.takeAnswers().isEmpty)
  store.submit(saves: [save("web", strikes: 3, ticket: 3)], now: at(2))
  store_faults_hang(faulty.faults, 0)
  #expect(store.answers(2) == [Ticket(2), Ticket(3)])
  #expect(store.state == .durable)
  #expect(store.close(orderly: true, within: .seconds(10)))
}

@Test func `a disk that hangs at start holds nobody up, and what it says later is not believed`() throws {
  let faulty = try #require(Faulty("hang at start"))
  fill(faulty.scratch.path)
  store_faults_hang(faulty.faults, Int32(FAULT_OPEN))
  let store = Store(
    directory: faulty.scratch.path, bootID: bootA, limits: Store.Limits(loadPatience: .milliseconds(50)),
    vfs: faulty.vfs)
  let loaded = store.load()
  #expect(loaded.services.isEmpty && !loaded.notes.isEmpty)
  #expect(store.state == .volatile(why: "the disk does not answer"))
  store.submit(saves: [save("web", strikes: 50)], now: at(1))
  #expect(!store.close(orderly: true, within: .milliseconds(50)))
  store_faults_hang(faulty.faults, 0)
  // Closing went on in the background: the new record is there, and what nobody replaced is too.
  #expect(eventually { store.state == .volatile(why: "the store is closed") })
  let later = look(faulty.scratch.path).loaded
  #expect(later.services[name("web")]?.record.strikes == 50 && later.services[name("mail")] != nil)
}

@Test func `E6: a state directory that vanishes and comes back`() throws {
  let faulty = try #require(Faulty("vanish"))
  let store = faulty.store()
  _ = store.load()
  store.submit(saves: [save("web", strikes: 1)], now: at(1))
  #expect(store.answers(1).count == 1)
  let away = faulty.scratch.path + "-away"
  #expect(rename(faulty.scratch.path, away) == 0)
  store.submit(saves: [save("web", strikes: 2, ticket: 2)], now: at(2))
  #expect(eventually { store.volatileBecause()?.contains("no such file") == true })
  mkdir(faulty.scratch.path, 0o700)
  #expect(eventually { store.volatileBecause()?.contains("no longer the directory") == true })
  rmdir(faulty.scratch.path)
  #expect(rename(away, faulty.scratch.path) == 0)
  #expect(store.answers(1) == [Ticket(2)])
  #expect(store.close(orderly: true, within: .seconds(10)))
  #expect(look(faulty.scratch.path).loaded.services[name("web")]?.record.strikes == 2)
}

@Test func `a database that is deleted or replaced under the store is written anew`() throws {
  let faulty = try #require(Faulty("replaced"))
  let store = faulty.store()
  _ = store.load()
  let run = RunID(high: 1, low: 2)
  store.submit(
    saves: [save("web", strikes: 1), save("db", strikes: 4)],
    entries: [.opened(run, service: name("web"), purpose: .main(.trial), at: at(1).wall)], meta: ["a": "b"], now: at(1))
  #expect(store.answers(2).count == 2)
  for file in faulty.scratch.names { unlink(faulty.scratch.file(file)) }
  store.submit(saves: [save("web", strikes: 2, ticket: 2)], now: at(2))
  #expect(store.answers(1) == [Ticket(2)])
  #expect(store.takeNotes().contains { $0.contains("taken away") })
  for file in faulty.scratch.names { unlink(faulty.scratch.file(file)) }
  faulty.scratch.write("guardian.db", Array("something else".utf8))
  store.submit(saves: [save("web", strikes: 3, ticket: 3)], now: at(3))
  #expect(store.answers(1) == [Ticket(3)])
  #expect(store.close(orderly: true, within: .seconds(10)))
  let loaded = look(faulty.scratch.path).loaded
  #expect(loaded.services[name("web")]?.record.strikes == 3 && loaded.services[name("db")]?.record.strikes == 4)
  #expect(loaded.openRuns.count == 1 && loaded.meta == ["a": "b"] && !loaded.lost)
  #expect(faulty.scratch.names.contains { $0.hasPrefix("guardian.db.damaged-") })
}

@Test func `a database that is damaged while it is open goes aside, and what guardian knows is written anew`() throws {
  let faulty = try #require(Faulty("damaged in use"))
  let store = faulty.store()
  _ = store.load()
  store.submit(saves: [save("web", strikes: 1), save("db", strikes: 4)], now: at(1))
  #expect(store.answers(2).count == 2)
  faulty.fail(FAULT_WRITE, SQLITE_CORRUPT, times: 1)
  store.submit(saves: [save("web", strikes: 2, ticket: 2)], now: at(2))
  #expect(store.answers(1) == [Ticket(2)])
  #expect(store.takeNotes().contains { $0.contains("was damaged and is moved aside") })
  #expect(store.close(orderly: true, within: .seconds(10)))
  let loaded = look(faulty.scratch.path).loaded
  #expect(loaded.services[name("web")]?.record.strikes == 2 && loaded.services[name("db")]?.record.strikes == 4)
}

@Test func `H10, I9: a storm of saves behind a disk that is stuck takes no more memory than its services`() throws {
  let faulty = try #require(Faulty("storm"))
  let limits = Store.Limits(queuedEvents: 100, firstPause: .milliseconds(5))
  let store = Store(directory: faulty.scratch.path, bootID: bootA, limits: limits, vfs: faulty.vfs)
  _ = store.load()
  store.submit(saves: [save("web", strikes: 0, ticket: 0)], now: at(0))
  #expect(store.answers(1).count == 1)
  store_faults_hang(faulty.faults, Int32(FAULT_SYNC))
  let hit = store_faults_hit(faulty.faults)
  store.submit(now: at(1))
  #expect(eventually { store_faults_hit(faulty.faults) > hit })
  let syncs = store_faults_syncs(faulty.faults)
  for number in 1...5000 {
    let run = RunID(high: 1, low: UInt64(number))
    store.submit(
      saves: [save("web", strikes: number, ticket: number)],
      entries: [
        .opened(run, service: name("web"), purpose: .main(.ordinary), at: at(number).wall),
        .closed(run, service: name("web"), .notBegun, at: at(number).wall, madeUp: false),
      ], events: [Occurrence(service: name("web"), at: at(number).wall, kind: .stopped)], now: at(number))
  }
  #expect(store.droppedEvents > 4900)
  store_faults_hang(faulty.faults, 0)
  #expect(store.answers(5000).last == Ticket(5000))
  #expect(store_faults_syncs(faulty.faults) - syncs <= 3)
  #expect(store.close(orderly: true, within: .seconds(10)))
  #expect(look(faulty.scratch.path).loaded.services[name("web")]?.record.strikes == 5000)
}

/// Runs `body` on a thread of its own, whose mounts are its own too.
private final class Job {
  let body: () -> Void
  init(_ body: @escaping () -> Void) { self.body = body }
}
private func onThread(_ body: @escaping () -> Void) {
  var thread = pthread_t()
  let result = pthread_create(
    &thread, nil,
    { argument in
      if let argument { Unmanaged<Job>.fromOpaque(argument).takeRetainedValue().body() }
      return nil
    }, Unmanaged.passRetained(Job(body)).toOpaque())
  if result == 0 { pthread_join(thread, nil) }
}

/// A container may refuse even root.
private let noMounts: String? = {
  let scratch = Scratch()
  nonisolated(unsafe) var answer: Int32 = -1
  onThread { answer = store_private_tmpfs(scratch.path, "size=64k,mode=700") }
  return answer == 0 ? nil : "a file system of one's own cannot be had: \(errorName(answer))"
}()

@Test(.enabled(if: noMounts == nil, "not shown: \(noMounts ?? "")"))
func `E5: a small tmpfs fills up in the middle of a crash loop, and has space again`() {
  let scratch = Scratch()
  nonisolated(unsafe) var mounted: Int32 = -1
  nonisolated(unsafe) var seen: [String: Bool] = [:]
  onThread {
    mounted = store_private_tmpfs(scratch.path, "size=512k,mode=700")
    guard mounted == 0 else { return }
    let limits = Store.Limits(firstPause: .milliseconds(5), longestPause: .milliseconds(20))
    let store = Store(directory: scratch.path, bootID: bootA, limits: limits)
    _ = store.load()
    store.submit(saves: [save("web", strikes: 1)], now: at(1))
    seen["saved at first"] = store.answers(1).count == 1
    scratch.write("ballast", [UInt8](repeating: 7, count: 600_000))
    var number = 1
    // The pages that the log has already are written until it must grow.
    while store.volatileBecause() == nil, number < 2000 {
      number += 1
      store.submit(saves: [save("web", strikes: number, ticket: number)], now: at(number))
      usleep(500)
    }
    seen["volatile"] = store.volatileBecause() != nil
    var answered = store.takeAnswers().map(\.1.number).max() ?? 1
    number += 1
    store.submit(saves: [save("web", strikes: number, ticket: number)], now: at(number))
    usleep(50_000)
    seen["nothing answered when full"] = store.takeAnswers().isEmpty
    unlink(scratch.file("ballast"))
    seen["answered"] = eventually {
      answered = max(answered, store.takeAnswers().map(\.1.number).max() ?? 0)
      return answered == UInt64(number)
    }
    seen["durable"] = eventually { store.state == .durable }
    seen["closed"] = store.close(orderly: true, within: .seconds(10))
    seen["kept"] = look(scratch.path).loaded.services[name("web")]?.record.strikes == number
  }
  #expect(mounted == 0)
  #expect(seen.count == 7)
  for (what, true_) in seen { #expect(true_, "\(what)") }
}
