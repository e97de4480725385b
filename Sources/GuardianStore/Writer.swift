import Glibc
import GuardianModel

/// The store's thread: takes what is queued, writes it in one transaction, answers; keeps trying where it cannot.
final class Writer: @unchecked Sendable {
  /// The log is copied back into the database beyond this many bytes.
  static let logLimit = 1 << 20

  private let shared: Shared
  private let directory: String
  private let bootID: String
  private let limits: Store.Limits
  private let vfs: String?

  private var opened: Opened?
  private var expected: Directory.Identity?
  /// What every table has to say, also where the database is gone or cannot be written.
  private var latest: [ServiceName: ServiceRow] = [:]
  private var openRuns: [RunID: OpenRun] = [:]
  private var meta: [String: String] = [:]
  /// The checksums of the records in the database, and their sum.
  private var written: [ServiceName: Int64] = [:]
  private var sum: Int64 = 0
  private var generation: Int64 = 0
  /// How many of the batches that were ever submitted have been taken.
  private var taken: UInt64 = 0
  /// Of all reports in the database; nil: to be counted.
  private var reportBytes: Int64?
  /// Taken from the queue, and not on disk yet.
  private var batch = Batch()
  /// Counts the batches that are on disk.
  private var number = 0
  /// How many of the batch's events were in an attempt that failed, perhaps only after all had been written.
  private var attempted = 0
  /// What was on disk at start is known.
  private var known = false
  /// All that is known is to be written with the next transaction.
  private var rewrite = true
  /// A write or a sync has failed: what the log seems to hold may not be on the disk.
  private var distrust = false
  private var suspect = false
  private var pause: Duration?
  private var retryAt: Instant?

  init(shared: Shared, directory: String, bootID: String, limits: Store.Limits, vfs: String?) {
    self.shared = shared
    self.directory = directory
    self.bootID = bootID
    self.limits = limits
    self.vfs = vfs
  }

  func run() {
    // Writes at once, so that the next instance can tell whether this one ended well.
    attempt { () throws(Refusal) in try write() }
    while next() {
      attempt { () throws(Refusal) in
        if !batch.isEmpty || opened == nil { try write() }
        try answerQuestions()
      }
    }
    finish()
  }

  /// Waits for something to do and takes it.
  /// - Returns: false when all is to end.
  private func next() -> Bool {
    shared.locked { shared in
      while !shared.closing {
        if let retryAt {
          refuseQuestions(shared)
          if !shared.wait(shared.work, until: retryAt) { break }
        } else if shared.queue.isEmpty {
          if !shared.questions.isEmpty { return true }
          _ = shared.wait(shared.work, until: nil)
        } else {
          break
        }
      }
      take(shared)
      return !shared.closing
    }
  }

  private func take(_ shared: Shared) {
    batch.merge(shared.queue)
    let events = batch.events.count
    shared.dropped += batch.trim(to: limits.queuedEvents)
    // The oldest go first.
    attempted = max(attempted - (events - batch.events.count), 0)
    shared.queue = Batch()
    shared.queuedSince = nil
    taken = shared.submissions
  }

  // MARK: Questions

  /// With the lock held: nothing can be read now.
  private func refuseQuestions(_ shared: Shared) {
    guard !shared.questions.isEmpty else { return }
    var why = "the disk does not answer"
    if case .volatile(let known) = shared.state { why = known }
    shared.replies += shared.questions.map { ($0.number, .unavailable(why: why)) }
    shared.questions = []
    shared.tell()
  }

  private func answerQuestions() throws(Refusal) {
    guard let opened else { return }
    let questions = shared.locked { shared in
      let due = shared.questions.filter { $0.after <= taken }
      shared.questions.removeAll { $0.after <= taken }
      return due
    }
    for (number, question, _) in questions {
      do throws(Refusal) {
        let answer = try guarded { () throws(DatabaseError) in try opened.connection.answer(question) }
        shared.reply([(number, answer)])
      } catch {
        shared.reply([(number, .unavailable(why: error.why))])
        throw error
      }
    }
  }

  private func finish() {
    let (orderly, now) = shared.locked { ($0.orderly, $0.closedAt) }
    batch.mark = now ?? batch.mark
    var well = false
    attempt { () throws(Refusal) in
      try write(orderly: orderly)
      if let opened { try guarded { () throws(DatabaseError) in try opened.connection.closeInOrder() } }
      well = true
    }
    opened = nil
    shared.locked { shared in
      shared.ended = true
      shared.endedWell = well
      refuseQuestions(shared)
      if case .durable = shared.state { shared.state = .volatile(why: "the store is closed") }
      pthread_cond_broadcast(shared.news)
    }
    shared.tell()
  }

  /// Runs `body`; where it fails the database is closed, and tried again after a while.
  private func attempt(_ body: () throws(Refusal) -> Void) {
    do {
      try body()
      pause = nil
      retryAt = nil
      let changed = shared.locked { shared in
        guard shared.state != .durable else { return false }
        shared.state = .durable
        return true
      }
      if changed { shared.tell() }
    } catch {
      opened = nil
      reportBytes = nil
      rewrite = true
      let next = pause.map { min($0 * 2, limits.longestPause) } ?? limits.firstPause
      pause = next
      retryAt = monotonicNow() + next
      shared.locked { $0.state = .volatile(why: error.why) }
      if !known {
        // What cannot be written can perhaps be read.
        let opening = Opening(
          path: directory, vfs: vfs, expected: nil, suspect: false, progress: shared)
        let found = (try? opening.readOnly()) ?? nil
        var contents = found ?? Contents()
        contents.notes.insert(
          (found == nil ? "no state was read: " : "the state was read, but cannot be written: ") + error.why, at: 0)
        if found != nil { adopt(contents) }
        publish(contents)
      }
      shared.tell()
    }
  }

  /// Translates SQLite's errors, and remembers what they say about the file.
  private func guarded<Result>(_ body: () throws(DatabaseError) -> Result) throws(Refusal) -> Result {
    do {
      return try body()
    } catch {
      if error.isDamage { suspect = true } else { distrust = true }
      throw Refusal(why: "\(directory)/\(Directory.database): \(error.sentence)")
    }
  }

  // MARK: Opening

  private func openDatabase() throws(Refusal) {
    var opening = Opening(
      path: directory, vfs: vfs, expected: expected, suspect: suspect, progress: shared)
    let opened = try opening.open()
    suspect = false
    expected = opened.directory
    self.opened = opened
    rewrite = true
    if attempted > 0, opened.contents.lastBatch == batchName {
      // The attempt had failed only after everything was written.
      batch.events.removeFirst(min(attempted, batch.events.count))
    }
    attempted = 0
    adopt(opened.contents)
    publish(opened.contents)
  }

  /// What is on disk counts where guardian knows nothing newer.
  private func adopt(_ contents: Contents) {
    if !known {
      known = true
      generation = contents.own[OwnKey.generation].flatMap { Int64($0) } ?? 0
      generation = min(max(generation, 0), Int64.max - 1) + 1
      openRuns = contents.openRuns
      meta = contents.meta.merging(meta) { $1 }
    }
    for (name, row) in contents.services where latest[name] == nil && !batch.forgotten.contains(name) {
      latest[name] = row
    }
  }

  /// Gives `load` its answer, or else only the notes to the log.
  private func publish(_ contents: Contents) {
    let loaded = loaded(contents)
    let told = shared.locked { shared in
      defer { shared.loadGivenUp = true }
      if shared.loadGivenUp { shared.notes += loaded.notes } else { shared.loaded = loaded }
      pthread_cond_broadcast(shared.news)
      return shared.loadGivenUp && !loaded.notes.isEmpty
    }
    if told { shared.tell() }
  }

  /// The number of the batch in hand, told apart from those of other instances.
  private var batchName: String { "\(generation).\(number)" }

  private func loaded(_ contents: Contents) -> Store.Loaded {
    var loaded = Store.Loaded()
    for (name, row) in contents.services {
      guard let record = contents.records[name] else { continue }
      var mark = row.mark
      if let last = contents.boots[row.boot], last.boot > mark.boot { mark = last }
      loaded.services[name] = StoredRecord(record: record, mark: mark, sameBoot: row.boot == bootID)
    }
    loaded.openRuns = contents.openRuns.map { $1.entry($0) }
    loaded.meta = contents.meta
    loaded.notes = contents.notes
    loaded.bootID = contents.own[OwnKey.boot]
    loaded.orderly = contents.own[OwnKey.orderly] == "1"
    loaded.generation = Int(generation)
    loaded.lost = contents.lost
    loaded.lastEvent = contents.lastEvent
    return loaded
  }

  // MARK: Writing

  private func write(orderly: Bool = false) throws(Refusal) {
    if let opened, try !isInPlace(opened) {
      self.opened = nil
      shared.locked { $0.notes.append("\(directory)/\(Directory.database) was taken away; it is written anew") }
    }
    for (name, record) in batch.records {
      latest[name] = ServiceRow(boot: bootID, mark: record.mark, bytes: record.bytes)
    }
    for name in batch.forgotten { latest[name] = nil }
    for (key, value) in batch.meta { meta[key] = value }
    if opened == nil { try openDatabase() }
    guard var opened else { return }
    let connection = opened.connection
    var done = Done()
    attempted = batch.events.count
    try guarded { () throws(DatabaseError) in
      try connection.transaction { () throws(DatabaseError) in
        done = try self.write(batch, opened, orderly: orderly)
      }
      // After a failed sync the kernel may hold pages to be clean that never reached the disk. Copied back, every page
      // of
      // the log is written again and synced.
      if distrust { try connection.replaceLog() }
    }
    attempted = 0
    number += 1
    distrust = false
    rewrite = false
    opened.runs = done.runs
    opened.events = done.events
    reportBytes = done.reportBytes < 0 ? nil : done.reportBytes
    self.opened = opened
    for (id, run) in done.begun { openRuns[id] = run }
    for id in done.ended { openRuns[id] = nil }
    let answers = batch.answers
    batch = Batch()
    shared.locked { shared in
      shared.answers += answers
      shared.ignoredEnds += done.ignored
      shared.unansweredSince = shared.queuedSince
    }
    if !answers.isEmpty { shared.tell() }
    var log = stat()
    if stat("\(directory)/\(Directory.database)-wal", &log) == 0, log.st_size > Self.logLimit {
      try guarded { () throws(DatabaseError) in try connection.checkpoint() }
    }
  }

  /// The open database is still the one that the path leads to.
  private func isInPlace(_ opened: Opened) throws(Refusal) -> Bool {
    let directory = try Directory(directory)
    guard directory.identity == opened.directory else {
      throw Refusal(
        why: "\(directory.path) is no longer the directory that guardian locked; put it back or restart guardian")
    }
    return try directory.status(Directory.database).map(Directory.Identity.init) == opened.file
  }

  /// What is true once the transaction is.
  private struct Done {
    var runs = 0
    var events = 0
    var begun: [RunID: OpenRun] = [:]
    var ended: Set<RunID> = []
    var ignored = 0
    /// Of all reports; below 0: not known.
    var reportBytes: Int64 = -1
  }

  private func write(_ batch: Batch, _ opened: Opened, orderly: Bool) throws(DatabaseError) -> Done {
    let connection = opened.connection
    var done = Done()
    done.runs = opened.runs
    done.events = opened.events
    if rewrite {
      try writeAll(connection)
    } else {
      for name in batch.forgotten {
        try connection.remove(name)
        sum &-= written.removeValue(forKey: name) ?? 0
      }
      for name in batch.records.keys { if let row = latest[name] { try write(name, row, connection) } }
      for (key, value) in batch.meta { try connection.write(meta: key, value) }
    }
    var here: Set<RunID> = []
    for entry in batch.entries {
      switch entry {
      case .opened(let id, let service, let purpose, let at):
        let run = OpenRun(service: service, purpose: purpose, at: at)
        if try connection.open(id, run) { done.begun[id] = run }
        here.insert(id)
      case .closed(let id, _, let outcome, let at, let madeUp):
        if try connection.close(id, outcome, at: at, madeUp: madeUp) {
          done.begun[id] = nil
          done.runs += 1
        } else if done.ended.contains(id) || openRuns[id] == nil && !here.contains(id) {
          // Not one that an attempt wrote which seemed to fail.
          done.ignored += 1
        }
        done.ended.insert(id)
      }
    }
    for event in batch.events where try connection.write(event) { done.events += 1 }
    // Not one by one, since the oldest and the newest are on different pages.
    let kept = shared.locked { $0.keptEvents }
    let slack = kept / 64
    if done.runs > kept + slack {
      try connection.pruneRuns(done.runs - kept)
      done.runs = kept
    }
    if done.events > kept + slack {
      try connection.pruneEvents(done.events - kept)
      done.events = kept
    }
    for deaths in batch.counted.values.flatMap(\.values) { try connection.count(deaths) }
    if !batch.reports.isEmpty {
      let limits = shared.locked { $0.keptReports }
      if let reportBytes { done.reportBytes = reportBytes } else { done.reportBytes = try connection.reportBytes() }
      for report in batch.reports { try connection.write(report, limits, bytes: &done.reportBytes) }
      try connection.pruneSignatures()
    } else {
      done.reportBytes = reportBytes ?? -1
    }
    if let mark = batch.mark { try connection.write(boot: bootID, mark) }
    try connection.write(meta: OwnKey.records, digest(count: written.count, sum: sum) + " " + batchName)
    if orderly { try connection.write(meta: OwnKey.orderly, "1") }
    return done
  }

  private func write(_ name: ServiceName, _ row: ServiceRow, _ connection: Connection) throws(DatabaseError) {
    try connection.write(name, row)
    let checksum = row.checksum(name.text)
    sum = sum &- (written.updateValue(checksum, forKey: name) ?? 0) &+ checksum
  }

  /// Writes all that is known, whatever the database says.
  private func writeAll(_ connection: Connection) throws(DatabaseError) {
    try connection.run("DELETE FROM service")
    try connection.run("DELETE FROM meta")
    written = [:]
    sum = 0
    for (name, row) in latest { try write(name, row, connection) }
    for (id, run) in openRuns { _ = try connection.open(id, run) }
    for (key, value) in meta { try connection.write(meta: key, value) }
    try connection.write(meta: OwnKey.generation, "\(generation)")
    try connection.write(meta: OwnKey.boot, bootID)
    try connection.write(meta: OwnKey.orderly, "0")
    try connection.run("DELETE FROM boots WHERE boot NOT IN (SELECT boot FROM service)")
  }
}
