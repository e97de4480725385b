/// The tables, and how they came to be.
enum Schema {
  /// `Grdn`, in the file's header.
  static let applicationID: Int64 = 0x4772_646e

  /// Each step leads from the version that is its index to the next. Never changed once released, only added to.
  static let migrations: [String] = [
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE boots (
      boot TEXT PRIMARY KEY, monotonic INTEGER NOT NULL, boottime INTEGER NOT NULL, wall INTEGER NOT NULL,
      checksum INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE service (
      name TEXT PRIMARY KEY, boot TEXT NOT NULL, monotonic INTEGER NOT NULL, boottime INTEGER NOT NULL,
      wall INTEGER NOT NULL, record BLOB NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE run (
      id BLOB NOT NULL UNIQUE, service TEXT NOT NULL, purpose BLOB NOT NULL, opened INTEGER NOT NULL,
      checksum INTEGER NOT NULL, closed INTEGER, outcome BLOB, made_up INTEGER, closed_checksum INTEGER);
    CREATE INDEX run_open ON run (id) WHERE closed IS NULL;
    CREATE TABLE event (
      seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, service TEXT NOT NULL, name TEXT NOT NULL, sentence TEXT NOT NULL,
      checksum INTEGER NOT NULL);
    """,
    """
    CREATE TABLE report (
      id BLOB NOT NULL UNIQUE, at INTEGER NOT NULL, service TEXT NOT NULL, signature INTEGER NOT NULL,
      class TEXT NOT NULL, cause TEXT NOT NULL, text TEXT NOT NULL, first INTEGER NOT NULL, size INTEGER NOT NULL,
      body BLOB NOT NULL, checksum INTEGER NOT NULL);
    CREATE INDEX report_service ON report (service, signature, at);
    CREATE TABLE signature (
      service TEXT NOT NULL, signature INTEGER NOT NULL, strong INTEGER NOT NULL, count INTEGER NOT NULL,
      first INTEGER NOT NULL, last INTEGER NOT NULL, UNIQUE (service, signature));
    CREATE INDEX signature_last ON signature (last);
    """,
    // `seq` has been the event's id since then, and is given by guardian.
    "ALTER TABLE event ADD COLUMN details TEXT NOT NULL DEFAULT ''",
  ]
  static var version: Int64 { Int64(migrations.count) }

  /// Takes an empty database, or one of an older version, to the end of `steps` in one transaction.
  static func migrate(
    _ connection: Connection, from old: Int64, by steps: [String] = migrations
  ) throws(DatabaseError) {
    try connection.transaction { () throws(DatabaseError) in
      for sql in steps.dropFirst(Int(clamping: old)) { try connection.run(sql) }
      try connection.run("PRAGMA application_id = \(applicationID)")
      try connection.run("PRAGMA user_version = \(steps.count)")
    }
  }

  /// Keeps the database as it is before a migration: guardian.db.version-N.
  static func keepCopy(_ connection: Connection, _ directory: Directory, _ version: Int64) throws {
    let name = "guardian.db.version-\(version)"
    let unfinished = name + Directory.unfinished
    directory.remove(unfinished)
    try directory.create(unfinished)
    let path = directory.file(unfinished)
    try connection.prepare("VACUUM INTO ?").run(.text(path))
    try directory.syncFile(unfinished)
    try directory.rename(unfinished, name)
  }
}
