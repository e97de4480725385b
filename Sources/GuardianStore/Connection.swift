import CSQLite

/// SQLite says no.
struct DatabaseError: Error {
  /// SQLite's primary code.
  var code: Int32
  var sentence: String

  /// The file itself is at fault, and trying again will not help.
  var isDamage: Bool {
    switch code {
    case SQLITE_FULL, SQLITE_IOERR, SQLITE_READONLY, SQLITE_CANTOPEN, SQLITE_PERM, SQLITE_BUSY, SQLITE_LOCKED,
      SQLITE_NOMEM, SQLITE_INTERRUPT, SQLITE_NOLFS, SQLITE_AUTH, SQLITE_MISUSE:
      false
    default: true
    }
  }
}

/// A connection to the database, for one thread.
final class Connection {
  private let handle: OpaquePointer
  private var statements: [String: Statement] = [:]

  /// - Parameter flags: beside SQLITE_OPEN_NOMUTEX.
  init(path: String, flags: Int32, vfs: String?) throws(DatabaseError) {
    var handle: OpaquePointer?
    let code = sqlite3_open_v2(path, &handle, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, vfs)
    guard let handle else { throw DatabaseError(code: SQLITE_NOMEM, sentence: "out of memory") }
    guard code == SQLITE_OK else {
      let error = Connection.error(handle, code)
      sqlite3_close_v2(handle)
      throw error
    }
    self.handle = handle
    // Only an orderly close may touch the log: by then the path may lead to another file.
    _ = guardian_sqlite_keep_log(handle, 1)
  }

  /// Copies the log back and deletes it.
  func closeInOrder() throws(DatabaseError) {
    try checkpoint()
    _ = guardian_sqlite_keep_log(handle, 0)
  }

  /// Calls `Shared.showProgress` every few thousand steps of whatever SQLite does, until it is nil.
  func reportProgress(to shared: Shared?) {
    guard let shared else { return sqlite3_progress_handler(handle, 0, nil, nil) }
    // Not retained: whoever opens a database holds it meanwhile.
    sqlite3_progress_handler(
      handle, 4096,
      { context in
        if let context { Unmanaged<Shared>.fromOpaque(context).takeUnretainedValue().showProgress() }
        return 0
      }, Unmanaged.passUnretained(shared).toOpaque())
  }

  deinit {
    for statement in statements.values { statement.finalize() }
    sqlite3_close_v2(handle)
  }

  private static func error(_ handle: OpaquePointer, _ code: Int32) -> DatabaseError {
    let primary = code & 0xff
    let number = sqlite3_system_errno(handle)
    let fromSystem = [SQLITE_FULL, SQLITE_IOERR, SQLITE_READONLY, SQLITE_CANTOPEN, SQLITE_PERM].contains(primary)
    let sentence = fromSystem && number != 0 ? errorName(number) : String(cString: sqlite3_errmsg(handle))
    return DatabaseError(code: primary, sentence: sentence)
  }

  func check(_ code: Int32) throws(DatabaseError) {
    guard code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE else { throw Self.error(handle, code) }
  }

  /// Runs statements that give no rows, or whose rows do not matter.
  func run(_ sql: String) throws(DatabaseError) { try check(sqlite3_exec(handle, sql, nil, nil, nil)) }

  /// Prepared once for each text, and ready to be bound.
  func prepare(_ sql: String) throws(DatabaseError) -> Statement {
    if let statement = statements[sql] {
      statement.reset()
      return statement
    }
    var pointer: OpaquePointer?
    try check(sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &pointer, nil))
    guard let pointer else { throw DatabaseError(code: SQLITE_ERROR, sentence: "an empty statement") }
    let statement = Statement(pointer, self)
    statements[sql] = statement
    return statement
  }

  /// The first column of the first row.
  func integer(_ sql: String) throws(DatabaseError) -> Int64 {
    let statement = try prepare(sql)
    defer { statement.reset() }
    return try statement.step() ? statement.integer(0) : 0
  }
  func text(_ sql: String) throws(DatabaseError) -> String {
    let statement = try prepare(sql)
    defer { statement.reset() }
    return try statement.step() ? statement.text(0) : ""
  }

  /// Rows changed by the last statement.
  var changes: Int { Int(sqlite3_changes(handle)) }

  /// Everything in one transaction, which is on disk and synced when this returns.
  func transaction(_ body: () throws(DatabaseError) -> Void) throws(DatabaseError) {
    try run("BEGIN IMMEDIATE")
    do {
      try body()
      try run("COMMIT")
    } catch {
      _ = sqlite3_exec(handle, "ROLLBACK", nil, nil, nil)
      throw error
    }
  }

  /// Copies the log back into the database, syncs that, and cuts the log to nothing.
  func checkpoint() throws(DatabaseError) {
    try check(sqlite3_wal_checkpoint_v2(handle, nil, SQLITE_CHECKPOINT_TRUNCATE, nil, nil))
  }

  /// As `checkpoint`, for a log of which some may not be on the disk although it reads well.
  ///
  /// Until the cut is on the disk too, the part that is there would be copied over newer pages after a power cut.
  func replaceLog() throws(DatabaseError) {
    try checkpoint()
    try check(guardian_sqlite_sync_log(handle))
  }
}

final class Statement {
  private let pointer: OpaquePointer
  private unowned let connection: Connection

  init(_ pointer: OpaquePointer, _ connection: Connection) {
    self.pointer = pointer
    self.connection = connection
  }
  func finalize() { sqlite3_finalize(pointer) }
  func reset() {
    sqlite3_reset(pointer)
    sqlite3_clear_bindings(pointer)
  }

  /// Binds the parameters, in their order, and runs to the end.
  func run(_ values: Value...) throws(DatabaseError) {
    defer { reset() }
    try bind(values)
    while try step() {}
  }
  func bind(_ values: [Value]) throws(DatabaseError) {
    for (index, value) in values.enumerated() {
      let column = Int32(index) + 1
      let code =
        switch value {
        case .integer(let number): sqlite3_bind_int64(pointer, column, number)
        case .blob(let bytes): guardian_sqlite_bind_blob(pointer, column, bytes, Int32(clamping: bytes.count))
        case .text(let text): guardian_sqlite_bind_text(pointer, column, text, Int32(clamping: text.utf8.count))
        }
      try connection.check(code)
    }
  }
  /// - Returns: whether there is a row.
  func step() throws(DatabaseError) -> Bool {
    let code = sqlite3_step(pointer)
    try connection.check(code)
    return code == SQLITE_ROW
  }

  func isNull(_ column: Int32) -> Bool { sqlite3_column_type(pointer, column) == SQLITE_NULL }
  func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(pointer, column) }
  func text(_ column: Int32) -> String {
    guard let bytes = sqlite3_column_text(pointer, column) else { return "" }
    let count = Int(sqlite3_column_bytes(pointer, column))
    return String(decoding: UnsafeBufferPointer(start: bytes, count: count), as: UTF8.self)
  }
  func blob(_ column: Int32) -> [UInt8] {
    guard let bytes = sqlite3_column_blob(pointer, column) else { return [] }
    return [UInt8](UnsafeRawBufferPointer(start: bytes, count: Int(sqlite3_column_bytes(pointer, column))))
  }
}

enum Value {
  case integer(Int64)
  case blob([UInt8])
  case text(String)
}
