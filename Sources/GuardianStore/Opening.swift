import CSQLite
import Glibc
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

  /// Told as long as the opening gets on.
  private let progress: Shared

  init(path: String, vfs: String?, expected: Directory.Identity?, suspect: Bool, progress: Shared) {
    self.progress = progress
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
    let sizes = try directory.checkParts(tighten: true)
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
    var why = "was gone, but had left a log"
    if let size = sizes[Directory.database] {
      let head = size > 0 ? try directory.head(Directory.database, 100) : []
      if size == 0 {
        notes.append("\(directory.file(Directory.database)) was empty: there is no state")
        lost = true
      }
      let header = Header(head)
      if header?.newer == true { throw Self.newer(directory) }
      guard suspect || size == 0 && logs || size > 0 && header == nil else { return }
      why = suspect ? "was damaged" : size == 0 ? "was empty, but had a log" : "was damaged (not a database)"
    } else if !logs {
      return try directory.create(Directory.database)
    }
    let name = try directory.moveAside()
    lost = true
    notes.append("the state \(why) and is moved aside as \(directory.file(name))")
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
    // EXTRA until the log is in use: a rollback journal that comes back after a power cut would undo what the log
    // holds.
    for setting in [
      "mmap_size = 0", "cache_size = -256", "temp_store = MEMORY", "synchronous = EXTRA", "wal_autocheckpoint = 0",
    ] {
      try connection.run("PRAGMA \(setting)")
    }
    guard try connection.text("PRAGMA journal_mode = WAL") == "wal" else {
      throw DatabaseError(code: SQLITE_IOERR, sentence: "the write-ahead log cannot be used")
    }
    try connection.run("PRAGMA synchronous = FULL")
    try connection.run("PRAGMA journal_size_limit = \(Writer.logLimit)")
    if version < Schema.version {
      if version > 0 { try Schema.keepCopy(connection, directory, version) }
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
    contents.lastEvent = EventID(last)
    // Of what is not read now, a cut would show only when it is. With a log the file may rightly be the shorter one.
    let size = try connection.integer("PRAGMA page_count") * (try connection.integer("PRAGMA page_size"))
    let log = try directory.status(Directory.database + "-wal")?.st_size ?? 0
    guard log > 0 || status.st_size >= size else {
      throw DatabaseError(code: SQLITE_CORRUPT, sentence: "\(size - Int64(status.st_size)) bytes of it are missing")
    }
    let runs = try connection.integer("SELECT count(*) FROM run WHERE closed IS NOT NULL")
    let events = try connection.integer("SELECT count(*) FROM event")
    connection.reportProgress(to: nil)
    return Opened(
      connection: connection, contents: contents, directory: directory.identity, file: Directory.Identity(status),
      runs: Int(clamping: runs), events: Int(clamping: events))
  }

  private func connect(_ directory: Directory) throws(DatabaseError) -> Connection {
    let connection = try Connection(
      path: directory.file(Directory.database), flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_PRIVATECACHE, vfs: vfs)
    connection.reportProgress(to: progress)
    return connection
  }

  /// What can be read where nothing can be written.
  func readOnly() throws(Refusal) -> Contents? {
    let directory = try Directory(path)
    let sizes = try directory.checkParts(tighten: false)
    guard sizes[Directory.database] ?? 0 > 0, let head = Header(try directory.head(Directory.database, 100)),
      !head.newer
    else { return nil }
    guard
      let connection = try? Connection(
        path: directory.file(Directory.database), flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_PRIVATECACHE, vfs: vfs),
      (try? connection.run("PRAGMA locking_mode = EXCLUSIVE")) != nil,
      (try? connection.integer("PRAGMA user_version")) == Schema.version
    else { return nil }
    connection.reportProgress(to: progress)
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

extension Store {
  /// Whether this build could use the database, looking only: nothing is locked, written or waited for.
  ///
  /// Works while another process has the database open. The log is not looked at, so that this sees the state as of the
  /// last time it was copied back; a copying that is just going on can make it fail, so it looks more than once.
  /// - Returns: nil if all is well or there is no database yet, else the reason in words.
  package static func readOnlyCheck(directory: String) -> String? {
    var reason: String?
    for attempt in 0..<3 {
      if attempt > 0 { usleep(100_000) }
      do {
        reason = try check(directory)
      } catch let error as DatabaseError {
        reason = "\(directory)/\(Directory.database): \(error.sentence)"
      } catch let error as Refusal {
        reason = error.why
      } catch {
        reason = "\(directory)/\(Directory.database) cannot be read"
      }
      if reason == nil { return nil }
    }
    return reason
  }

  private static func check(_ path: String) throws -> String? {
    let directory = try Directory(path)
    guard let size = try directory.checkParts(tighten: false)[Directory.database], size > 0 else { return nil }
    let file = directory.file(Directory.database)
    guard let header = Header(try directory.head(Directory.database, 100)) else { return "\(file) is not a database" }
    guard !header.newer else {
      return "\(file) has version \(header.version), and this guardian knows versions up to \(Schema.version)"
    }
    var escaped = ""
    for byte in file.utf8 {
      let plain = byte < 0x80 && byte > 0x20 && !"?#%".utf8.contains(byte)
      escaped += plain ? String(Unicode.Scalar(byte)) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
    }
    let connection = try Connection(
      path: "file:\(escaped)?immutable=1", flags: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, vfs: nil)
    let version = try connection.integer("PRAGMA user_version")
    guard version == Schema.version else {
      // An older one is migrated when the database is opened to be used.
      return version < Schema.version ? nil : "\(file) has the newer version \(version)"
    }
    let contents = try connection.contents()
    return contents.lost ? contents.notes.first ?? "\(file) is damaged" : nil
  }
}
