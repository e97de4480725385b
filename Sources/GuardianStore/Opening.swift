import CSQLite
import GuardianModel

/// A database that is open, checked and of this version.
struct Opened {
  var connection: Connection
  var contents: Contents
  var directory: Directory.Identity
  var file: Directory.Identity
  var runs: Int
  var events: Int
}

/// Opens DIRECTORY/guardian.db, or makes it; moves aside what cannot be used.
struct Opening {
  var path: String
  var vfs: String?
  /// The directory that was opened first, which is the one that is locked.
  var expected: Directory.Identity?
  /// It proved damaged while it was in use.
  var suspect = false
  private(set) var notes: [String] = []
  private var lost = false

  init(path: String, vfs: String?, expected: Directory.Identity?, suspect: Bool) {
    self.path = path
    self.vfs = vfs
    self.expected = expected
    self.suspect = suspect
  }

  /// Tells a file's own fault from the disk's.
  private enum Fault: Error {
    /// The file is of no use; what could be read of it may be.
    case damaged(String, Contents?)
    case refused(String)
  }

  mutating func open() throws(Refusal) -> Opened {
    let directory = try Directory(path)
    if let expected, directory.identity != expected {
      throw Refusal(why: "\(path) is no longer the directory that guardian locked; put it back or restart guardian")
    }
    directory.removeUnfinished()
    let sizes = try directory.checkParts()
    try prepare(directory, sizes)
    let saved: Contents?
    switch attempt(directory) {
    case .success(let opened): return opened
    case .failure(.refused(let why)): throw Refusal(why: why)
    case .failure(.damaged(let why, let contents)):
      saved = contents
      let name = try directory.moveAside()
      lost = true
      notes.append("the state was damaged (\(why)) and is moved aside as \(directory.file(name))")
    }
    try directory.create(Directory.database)
    switch attempt(directory) {
    case .failure(.refused(let why)), .failure(.damaged(let why, _)): throw Refusal(why: why)
    case .success(var opened):
      if let saved {
        opened.contents.take(saved)
        opened.contents.notes += saved.notes
        opened.contents.notes.append(
          "what could be read of it is used: the records of \(saved.records.count) services, \(saved.openRuns.count) "
            + "open runs; the history begins anew")
      }
      return opened
    }
  }

  /// Sees to it that there is a file, and none that another version or another program made.
  private mutating func prepare(_ directory: Directory, _ sizes: [String: Int64]) throws(Refusal) {
    let logs = Directory.parts.dropFirst().contains { sizes[$0] ?? 0 > 0 }
    if let size = sizes[Directory.database] {
      let head = size > 0 ? try directory.head(Directory.database, 100) : []
      if size == 0 {
        notes.append("\(directory.file(Directory.database)) was empty; there is no state")
        lost = true
      }
      if Header(head)?.newer == true { throw Self.newer(directory) }
      guard suspect || size == 0 && logs else { return }
    } else if !logs {
      return try directory.create(Directory.database)
    }
    let name = try directory.moveAside()
    lost = true
    notes.append(
      suspect
        ? "the state was damaged and is moved aside as \(directory.file(name)); what guardian knows is written anew"
        : "a log without its database is moved aside as \(directory.file(name))")
    try directory.create(Directory.database)
  }

  private static func newer(_ directory: Directory) -> Refusal {
    Refusal(
      why: "\(directory.file(Directory.database)) was written by a newer guardian; it is left as it is")
  }

  private func attempt(_ directory: Directory) -> Result<Opened, Fault> {
    do {
      return .success(try use(directory))
    } catch let error as DatabaseError {
      if error.isDamage { return .failure(.damaged(error.sentence, salvage(directory))) }
      return .failure(.refused("\(directory.file(Directory.database)): \(error.sentence)"))
    } catch let error as Refusal {
      return .failure(.refused(error.why))
    } catch {
      return .failure(.refused("\(directory.file(Directory.database)) cannot be opened"))
    }
  }

  private func use(_ directory: Directory) throws -> Opened {
    let connection = try connect(directory)
    // Before the first look into the file, so that the log's index is in our memory and not in a file.
    try connection.run("PRAGMA locking_mode = EXCLUSIVE")
    var version = try connection.integer("PRAGMA user_version")
    if version > Schema.version { throw Self.newer(directory) }
    let tables = try connection.integer("SELECT count(*) FROM sqlite_schema")
    if tables > 0 {
      let application = try connection.integer("PRAGMA application_id")
      guard application == Schema.applicationID else {
        throw DatabaseError(code: SQLITE_NOTADB, sentence: "not guardian's database")
      }
      guard version > 0 else { throw DatabaseError(code: SQLITE_CORRUPT, sentence: "it has lost its version") }
      let verdict = try connection.text("PRAGMA quick_check(1)")
      guard verdict == "ok" else { throw DatabaseError(code: SQLITE_CORRUPT, sentence: printable(verdict)) }
    } else if version != 0 {
      throw DatabaseError(code: SQLITE_CORRUPT, sentence: "it has lost its tables")
    }
    for setting in [
      "mmap_size = 0", "cache_size = -256", "temp_store = MEMORY", "synchronous = FULL", "wal_autocheckpoint = 0",
    ] {
      try connection.run("PRAGMA \(setting)")
    }
    guard try connection.text("PRAGMA journal_mode = WAL") == "wal" else {
      throw DatabaseError(code: SQLITE_IOERR, sentence: "the write-ahead log cannot be used")
    }
    try connection.run("PRAGMA journal_size_limit = \(Writer.logLimit)")
    if version < Schema.version {
      if version > 0 { try keepCopy(connection, directory, version) }
      try Schema.migrate(connection, from: version)
      version = Schema.version
      // So that whoever looks without the log finds the tables.
      try connection.checkpoint()
    }
    directory.sync()
    guard let status = try directory.status(Directory.database) else {
      throw Refusal(why: "\(directory.file(Directory.database)) is gone")
    }
    var contents = try connection.contents()
    contents.notes = notes + contents.notes
    contents.lost = contents.lost || lost
    let last = try connection.integer("SELECT max(seq) FROM event")
    guard (0..<Int64.max / 2).contains(last) else {
      throw DatabaseError(code: SQLITE_CORRUPT, sentence: "the numbers of the events make no sense")
    }
    return Opened(
      connection: connection, contents: contents, directory: directory.identity, file: Directory.Identity(status),
      runs: Int(clamping: try connection.integer("SELECT count(*) FROM run WHERE closed IS NOT NULL")),
      events: Int(clamping: try connection.integer("SELECT count(*) FROM event")))
  }

  private func connect(_ directory: Directory) throws(DatabaseError) -> Connection {
    try Connection(
      path: directory.file(Directory.database), flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_PRIVATECACHE, vfs: vfs)
  }

  /// The database as it was before a migration: guardian.db.version-N.
  private func keepCopy(_ connection: Connection, _ directory: Directory, _ version: Int64) throws {
    let name = "guardian.db.version-\(version)"
    let unfinished = name + Directory.unfinished
    directory.remove(unfinished)
    try directory.create(unfinished)
    let path = directory.file(unfinished)
    try connection.prepare("VACUUM INTO ?").run(.text(path))
    try directory.syncFile(unfinished)
    try directory.rename(unfinished, name)
  }

  /// What can be read where nothing can be written.
  func readOnly() throws(Refusal) -> Contents? {
    let directory = try Directory(path)
    let sizes = try directory.checkParts()
    guard sizes[Directory.database] ?? 0 > 0, let head = Header(try directory.head(Directory.database, 100)),
      !head.newer
    else { return nil }
    guard
      let connection = try? Connection(
        path: directory.file(Directory.database), flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_PRIVATECACHE, vfs: vfs),
      (try? connection.run("PRAGMA locking_mode = EXCLUSIVE")) != nil,
      (try? connection.integer("PRAGMA user_version")) == Schema.version
    else { return nil }
    return try? connection.contents()
  }

  /// What of a damaged database is whole: each row has its checksum.
  private func salvage(_ directory: Directory) -> Contents? {
    guard let connection = try? connect(directory) else { return nil }
    guard (try? connection.run("PRAGMA locking_mode = EXCLUSIVE")) != nil else { return nil }
    return connection.salvage()
  }
}

/// What stands in the first hundred bytes of a database.
struct Header {
  var version: Int64
  var newer: Bool { version > Schema.version }

  /// Nil: not a database.
  init?(_ bytes: [UInt8]) {
    guard bytes.count >= 100, bytes.starts(with: Array("SQLite format 3\0".utf8)) else { return nil }
    version = bytes[60..<64].reduce(0) { $0 << 8 | Int64($1) }
  }
}
