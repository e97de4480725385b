import CSQLite
import Glibc
import GuardianModel
import Testing

@testable import GuardianStore

/// Opens the store and closes it again.
func look(_ path: String, boot: String = bootA) -> (loaded: Store.Loaded, why: String?) {
  let store = Store(directory: path, bootID: boot)
  let loaded = store.load()
  let why = store.volatileBecause()
  _ = store.close(orderly: false, within: .seconds(10))
  return (loaded, why)
}

/// A closed database with three services, an open and a closed run, and some events.
func fill(_ path: String) {
  let store = Store(directory: path, bootID: bootA)
  _ = store.load()
  var maker = Maker(seed: 77)
  var quarantined = ServiceRecord()
  quarantined.quarantine = Quarantine(since: at(3).wall, reason: "four strikes", nextTrial: at(900).boot)
  quarantined.step = .quarantine
  quarantined.situation = .quarantined
  let open = RunID(high: 1, low: 1)
  let closed = RunID(high: 2, low: 2)
  store.submit(
    saves: [
      save("web", strikes: 3), save("db", strikes: 5),
      Store.Save(id: ServiceID(2), name: name("mail"), record: quarantined, ticket: Ticket(1)),
    ],
    entries: [
      .opened(open, service: name("web"), purpose: .main(.ordinary), at: at(1).wall),
      .opened(closed, service: name("db"), purpose: .repair(name: "clean"), at: at(1).wall),
      .closed(closed, service: name("db"), .ended(maker.end()), at: at(2).wall, madeUp: false),
    ],
    events: (0..<8).map { _ in Occurrence(service: name("web"), at: at(4).wall, kind: .stopped) },
    meta: ["flag": "1"], now: at(10))
  _ = store.answers(3)
  _ = store.close(orderly: true, now: at(20), within: .seconds(10))
}

/// `PRAGMA` and the like on a closed database.
@discardableResult
func sql(_ path: String, _ text: String) -> Bool {
  guard let connection = try? Connection(path: path, flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs: nil) else {
    return false
  }
  guard (try? connection.run(text)) != nil else { return false }
  return (try? connection.closeInOrder()) != nil
}

func question(_ path: String, _ text: String) -> Int64? {
  guard let connection = try? Connection(path: path, flags: SQLITE_OPEN_READONLY, vfs: nil) else { return nil }
  return try? connection.integer(text)
}

@Test func `the database is private, whatever the umask`() {
  let scratch = Scratch()
  fill(scratch.path)
  var status = stat()
  #expect(stat(scratch.file("guardian.db"), &status) == 0 && status.st_mode & 0o777 == 0o600)
  chmod(scratch.file("guardian.db"), 0o644)
  let store = Store(directory: scratch.path, bootID: bootA)
  #expect(store.load().services.count == 3)
  for file in scratch.names {
    #expect(stat(scratch.file(file), &status) == 0 && status.st_mode & 0o777 == 0o600)
  }
  #expect(store.close(orderly: true, within: .seconds(10)))
}

@Test func `a run has one end, and none without a start`() {
  let scratch = Scratch()
  fill(scratch.path)
  let store = Store(directory: scratch.path, bootID: bootA)
  let loaded = store.load()
  let open = RunID(high: 1, low: 1)
  #expect(loaded.openRuns == [.opened(open, service: name("web"), purpose: .main(.ordinary), at: at(1).wall)])
  store.submit(
    saves: [save("web", strikes: 1)],
    entries: [
      .closed(open, service: name("web"), .notBegun, at: at(5).wall, madeUp: true),
      .closed(open, service: name("web"), .notBegun, at: at(6).wall, madeUp: false),
      .closed(RunID(high: 2, low: 2), service: name("db"), .notBegun, at: at(6).wall, madeUp: false),
      .closed(RunID(high: 9, low: 9), service: name("db"), .notBegun, at: at(6).wall, madeUp: false),
    ], now: at(30))
  #expect(store.answers(1).count == 1)
  #expect(store.ignoredEnds == 3)
  #expect(store.close(orderly: true, within: .seconds(10)))
  #expect(look(scratch.path).loaded.openRuns.isEmpty)
  #expect(question(scratch.file("guardian.db"), "SELECT count(*) FROM run") == 2)
  #expect(question(scratch.file("guardian.db"), "SELECT closed FROM run WHERE made_up = 1") == at(5).wall.nanoseconds)
}

@Test(arguments: [false, true])
func `I9: the history keeps what it is told to, and every open run`(later: Bool) {
  let scratch = Scratch()
  let store = Store(directory: scratch.path, bootID: bootA, limits: later ? Store.Limits() : Store.Limits(events: 10))
  _ = store.load()
  if later { store.keep(events: 10) }
  let open = RunID(high: 0, low: 999)
  var entries: [RunEntry] = [.opened(open, service: name("web"), purpose: .main(.trial), at: at(0).wall)]
  for number in 0..<50 {
    let id = RunID(high: 1, low: UInt64(number))
    entries.append(.opened(id, service: name("web"), purpose: .main(.ordinary), at: at(number).wall))
    entries.append(.closed(id, service: name("web"), .notBegun, at: at(number).wall, madeUp: false))
  }
  let events = (0..<50).map { Occurrence(service: name("web"), at: at($0).wall, kind: .stopped) }
  store.submit(saves: [save("web", strikes: 0)], entries: entries, events: events, now: at(60))
  #expect(store.answers(1).count == 1)
  #expect(store.close(orderly: true, within: .seconds(10)))
  let file = scratch.file("guardian.db")
  #expect(question(file, "SELECT count(*) FROM event") == 10)
  #expect(question(file, "SELECT min(at) FROM event") == at(40).wall.nanoseconds)
  #expect(question(file, "SELECT count(*) FROM run WHERE closed IS NOT NULL") == 10)
  #expect(look(scratch.path).loaded.openRuns.count == 1)
}

@Test func `H1 and C61: a database cut at any length is reported, and never has another value`() {
  let scratch = Scratch()
  fill(scratch.path)
  let whole = scratch.read("guardian.db")
  let expected = look(scratch.path).loaded.services
  #expect(expected.count == 3)
  let lengths = [0, 1, 15, 16, 99, 100, 101] + Array(stride(from: 512, to: whole.count, by: 1531))
  for length in lengths {
    let copy = Scratch()
    copy.write("guardian.db", Array(whole[..<length]))
    let (loaded, why) = look(copy.path)
    #expect(why == nil, "cut at \(length)")
    #expect(loaded.lost && !loaded.notes.isEmpty, "cut at \(length)")
    for (name, stored) in loaded.services { #expect(stored.record == expected[name]?.record, "cut at \(length)") }
  }
}

@Test func `H3: a flipped byte is unused, detected or reported, and never changes a value`() {
  let scratch = Scratch()
  fill(scratch.path)
  let whole = scratch.read("guardian.db")
  let expected = look(scratch.path).loaded
  var flips = Array(0..<100)
  // The long form: each byte, in some minutes.
  let every = getenv("GUARDIAN_EVERY_BYTE") != nil
  // Bytes in use closely, the empty space between them here and there.
  var used = 0
  for (index, byte) in whole.enumerated().dropFirst(100) {
    if byte != 0 { used += 1 }
    if every || (byte != 0 ? used % 7 == 0 : index % 997 == 0) { flips.append(index) }
  }
  var unnoticed = 0
  for index in flips {
    let copy = Scratch()
    var bytes = whole
    bytes[index] ^= 1 << UInt8(index % 8)
    copy.write("guardian.db", bytes)
    let (loaded, why) = look(copy.path)
    for (name, stored) in loaded.services {
      #expect(stored.record == expected.services[name]?.record && stored.mark.boot <= at(20).boot, "byte \(index)")
    }
    for run in loaded.openRuns { #expect(expected.openRuns.contains(run), "byte \(index)") }
    for (key, value) in loaded.meta { #expect(expected.meta[key] == value, "byte \(index)") }
    if why == nil, loaded.notes.isEmpty {
      unnoticed += 1
      #expect(loaded.services.count == 3 && loaded.openRuns.count == 1 && loaded.meta.count == 1, "byte \(index)")
    }
  }
  #expect(unnoticed < flips.count)
}

@Test func `H3: rows that swap places, and a row of an older time, are noticed`() {
  let scratch = Scratch()
  fill(scratch.path)
  let file = scratch.file("guardian.db")
  let original = scratch.read("guardian.db")
  #expect(sql(file, "UPDATE service SET record = (SELECT record FROM service WHERE name = 'db') WHERE name = 'web'"))
  let swapped = look(scratch.path).loaded
  #expect(swapped.lost && swapped.services[name("web")] == nil && swapped.services[name("db")]?.record.strikes == 5)
  scratch.write("guardian.db", original)
  #expect(sql(file, "DELETE FROM service WHERE name = 'mail'"))
  let missing = look(scratch.path).loaded
  #expect(missing.lost && missing.notes == ["the record of a service is missing, or older than it should be"])
}

@Test func `H4: a zero-length or all-NUL file is no state, with a loud note`() {
  for size in [0, 1, 100, 4096, 40960] {
    let scratch = Scratch()
    scratch.write("guardian.db", [UInt8](repeating: 0, count: size))
    let (loaded, why) = look(scratch.path)
    #expect(why == nil && loaded.services.isEmpty && loaded.lost && loaded.notes.count >= 1, "\(size) bytes")
    #expect(look(scratch.path).loaded.notes.isEmpty)
  }
}

@Test func `H5 and C61: a damaged database goes aside whole, what is readable is used, and the loss is reported`() {
  let scratch = Scratch()
  fill(scratch.path)
  var bytes = scratch.read("guardian.db")
  // The page of an index that the records do not need.
  for index in (bytes.count - 4096)..<bytes.count { bytes[index] = 0xa5 }
  scratch.write("guardian.db", bytes)
  let (loaded, why) = look(scratch.path)
  #expect(why == nil && loaded.lost)
  #expect(loaded.notes.first?.contains("moved aside") == true)
  #expect(loaded.services[name("mail")]?.record.quarantine != nil)
  let aside = scratch.names.filter { $0.hasPrefix("guardian.db.damaged-") }
  #expect(aside.count == 1)
  #expect(scratch.read(aside.first ?? "") == bytes)
  #expect(look(scratch.path).loaded.services.count == loaded.services.count)
}

@Test func `of damaged databases three are kept`() {
  let scratch = Scratch()
  for number in 0..<6 {
    scratch.write("guardian.db", Array("not a database \(number)".utf8))
    #expect(look(scratch.path).why == nil)
  }
  let kept = scratch.names.filter { $0.hasPrefix("guardian.db.damaged-") }
  #expect(kept.count == 3)
  #expect(Set(kept.map { String(decoding: scratch.read($0).suffix(1), as: UTF8.self) }) == ["3", "4", "5"])
}

@Test func `H6: unfinished files are cleaned away and never read`() {
  let scratch = Scratch()
  fill(scratch.path)
  for number in 0..<10_000 { scratch.write("guardian.db.version-\(number).part", [1]) }
  scratch.write("mine.part", [1])
  #expect(look(scratch.path).loaded.services.count == 3)
  #expect(scratch.names == ["guardian.db", "mine.part"])
}

@Test func `H7: a newer database is refused and stays as it is, byte for byte`() {
  let scratch = Scratch()
  fill(scratch.path)
  sql(scratch.file("guardian.db"), "PRAGMA user_version = 99")
  let before = scratch.read("guardian.db")
  let (loaded, why) = look(scratch.path)
  #expect(why?.contains("newer guardian") == true)
  #expect(loaded.services.isEmpty && !loaded.notes.isEmpty)
  #expect(scratch.read("guardian.db") == before)
  #expect(scratch.names == ["guardian.db"])
  #expect(Store.readOnlyCheck(directory: scratch.path)?.contains("99") == true)
}

@Test func `H7: a version that only the log knows to be newer is left alone too`() {
  let scratch = Scratch()
  fill(scratch.path)
  do {
    let connection = try Connection(path: scratch.file("guardian.db"), flags: SQLITE_OPEN_READWRITE, vfs: nil)
    try connection.run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA user_version = 99")
  } catch {
    Issue.record("\(error)")
  }
  let before = scratch.names.map { scratch.read($0) }
  #expect(scratch.names == ["guardian.db", "guardian.db-wal"])
  #expect(look(scratch.path).why?.contains("newer guardian") == true)
  #expect(scratch.names.map { scratch.read($0) } == before)
}

@Test func `H7: an older database is migrated, and a copy of it kept`() throws {
  let scratch = Scratch()
  let path = scratch.file("guardian.db")
  // A version that never was, made by the first step of a longer list.
  let older = ["CREATE TABLE old (value TEXT)"]
  let newer = older + ["ALTER TABLE old ADD COLUMN more TEXT DEFAULT 'x'", "CREATE TABLE new (value TEXT)"]
  do {
    let connection = try Connection(path: path, flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs: nil)
    try Schema.migrate(connection, from: 0, by: older)
    try connection.run("INSERT INTO old VALUES ('kept')")
  }
  let directory = try Directory(scratch.path)
  do {
    let connection = try Connection(path: path, flags: SQLITE_OPEN_READWRITE, vfs: nil)
    try Schema.keepCopy(connection, directory, 1)
    try Schema.migrate(connection, from: 1, by: newer)
    #expect(try connection.integer("PRAGMA user_version") == 3)
    #expect(try connection.text("SELECT value || more FROM old") == "keptx")
  }
  #expect(scratch.names == ["guardian.db", "guardian.db.version-1"])
  let copy = try Connection(path: scratch.file("guardian.db.version-1"), flags: SQLITE_OPEN_READONLY, vfs: nil)
  #expect(try copy.integer("PRAGMA user_version") == 1)
  #expect(try copy.text("SELECT value FROM old") == "kept")
}

@Test func `a migration that fails leaves the database as it was`() throws {
  let scratch = Scratch()
  let path = scratch.file("guardian.db")
  let connection = try Connection(path: path, flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs: nil)
  try Schema.migrate(connection, from: 0, by: ["CREATE TABLE a (b)"])
  #expect(throws: DatabaseError.self) {
    try Schema.migrate(connection, from: 1, by: ["", "CREATE TABLE c (d); CREATE TABLE a (again)"])
  }
  #expect(try connection.integer("PRAGMA user_version") == 1)
  #expect(try connection.integer("SELECT count(*) FROM sqlite_schema") == 1)
}

@Test func `H8: a service that is no longer defined is kept until it is forgotten`() {
  let scratch = Scratch()
  fill(scratch.path)
  #expect(look(scratch.path).loaded.services.keys.contains(name("mail")))
  let store = Store(directory: scratch.path, bootID: bootA)
  _ = store.load()
  store.submit(saves: [save("web", strikes: 9)], forgotten: [name("mail"), name("web")], now: at(30))
  #expect(store.answers(1).count == 1)
  #expect(store.close(orderly: true, within: .seconds(10)))
  let loaded = look(scratch.path).loaded
  #expect(Set(loaded.services.keys) == [name("web"), name("db")] && !loaded.lost)
  #expect(loaded.services[name("web")]?.record.strikes == 9)
}

@Test func `H11: a record with silly numbers is reset with a note, and the others are not`() {
  let scratch = Scratch()
  fill(scratch.path)
  var writer = FieldWriter()
  writer.raw(1)
  writer.integer(4, -1)
  writer.unsigned(255, 0)
  let row = ServiceRow(boot: bootA, mark: at(1), bytes: writer.bytes)
  do {
    let connection = try Connection(path: scratch.file("guardian.db"), flags: SQLITE_OPEN_READWRITE, vfs: nil)
    try connection.write(name("web"), row)
    try connection.closeInOrder()
  } catch {
    Issue.record("\(error)")
  }
  let loaded = look(scratch.path).loaded
  #expect(loaded.notes.contains("web: its record makes no sense and is reset"))
  #expect(Set(loaded.services.keys) == [name("db"), name("mail")] && loaded.lost)
}

@Test func `J4: links, pipes and other users' files are refused, and nothing is written through them`() {
  let kinds: [(String, (Scratch, Scratch) -> Void)] = [
    ("not a regular file", { symlink($1.file("victim"), $0.file("guardian.db")) }),
    ("not a regular file", { symlink($1.file("nothing"), $0.file("guardian.db")) }),
    ("not a regular file", { scratch, _ in mkfifo(scratch.file("guardian.db"), 0o600) }),
    ("more than one name", { link($1.file("victim"), $0.file("guardian.db")) }),
    ("not a regular file", { symlink($1.file("victim"), $0.file("guardian.db-wal")) }),
    ("not a regular file", { scratch, _ in mkdir(scratch.file("guardian.db"), 0o700) }),
  ]
  for (words, make) in kinds {
    let scratch = Scratch()
    let other = Scratch()
    other.write("victim", Array("precious".utf8))
    make(scratch, other)
    #expect(look(scratch.path).why?.contains(words) == true)
    #expect(other.names == ["victim"] && other.read("victim") == Array("precious".utf8))
  }
}

@Test(.enabled(if: geteuid() == 0, "not shown: only root can give files away"))
func `J4: another user's database is refused`() {
  let scratch = Scratch()
  fill(scratch.path)
  chown(scratch.file("guardian.db"), 12345, 12345)
  #expect(look(scratch.path).why?.contains("another user") == true)
}

@Test func `J4: a state directory that others can write to is refused`() {
  let scratch = Scratch()
  chmod(scratch.path, 0o777)
  #expect(look(scratch.path).why?.contains("writable by nobody else") == true)
  #expect(scratch.names.isEmpty)
}

@Test func `without a directory the store is volatile for ever, and says so`() {
  let store = Store(directory: nil, bootID: bootA)
  #expect(store.state == .volatile(why: "no state directory"))
  #expect(store.load().services.isEmpty)
  store.submit(saves: [save("web", strikes: 1)], now: at(1))
  #expect(store.takeAnswers().isEmpty)
  #expect(!store.close(orderly: true, within: .seconds(1)))
}

@Test func `the check for an upgrade works beside the instance that has the database open`() {
  let scratch = Scratch()
  #expect(Store.readOnlyCheck(directory: scratch.path) == nil)
  let store = Store(directory: scratch.path, bootID: bootA)
  _ = store.load()
  store.submit(saves: [save("web", strikes: 1)], now: at(1))
  #expect(store.answers(1).count == 1)
  #expect(Store.readOnlyCheck(directory: scratch.path) == nil)
  #expect(store.close(orderly: true, within: .seconds(10)))
  #expect(Store.readOnlyCheck(directory: scratch.path) == nil)
  scratch.write("guardian.db", Array("rubbish".utf8))
  #expect(Store.readOnlyCheck(directory: scratch.path)?.contains("not a database") == true)
  #expect(scratch.names == ["guardian.db"])
}
