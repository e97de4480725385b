import CSQLite
import Glibc
package import GuardianModel

/// What guardian must not forget, on disk: the record of each service, the book of runs, and the history.
///
/// Belongs to one thread. A thread of its own does all that can block; a turn's requests become one transaction, and
/// with a slow disk the requests of several turns do. Trouble with the disk never reaches the caller but as `state`.
package final class Store {
  package struct Limits: Hashable, Sendable {
    /// How many events, and how many ended runs, the history keeps (`history.events`).
    package var events: Int
    /// How many events wait for the disk; more are dropped and counted.
    package var queuedEvents: Int
    /// How long a save may go unanswered before `state` says so.
    package var patience: Duration
    /// How long `load` waits while the disk shows no sign of life; a large database may take longer than that.
    package var loadPatience: Duration
    /// The pause after the first failed attempt; it doubles up to `longestPause`.
    package var firstPause: Duration
    package var longestPause: Duration
    package init(
      events: Int = 100_000, queuedEvents: Int = 8192, patience: Duration = .seconds(2),
      loadPatience: Duration = .seconds(5), firstPause: Duration = .milliseconds(250),
      longestPause: Duration = .seconds(5)
    ) {
      self.events = max(events, 0)
      self.queuedEvents = max(queuedEvents, 0)
      self.patience = patience
      self.loadPatience = loadPatience
      self.firstPause = firstPause
      self.longestPause = longestPause
    }
  }

  package enum State: Hashable, Sendable {
    case durable
    /// What is submitted is kept in memory; it is written when that is possible again.
    case volatile(why: String)
  }

  /// What was found on disk.
  package struct Loaded: Sendable {
    package var services: [ServiceName: StoredRecord] = [:]
    /// Runs without an end: each is `.opened`.
    package var openRuns: [RunEntry] = []
    package var meta: [String: String] = [:]
    /// Sentences for the log.
    package var notes: [String] = []
    /// The boot in which the store was last written; nil: never.
    package var bootID: String?
    /// The last guardian ended as it should, with everything written.
    package var orderly = false
    /// How often the database has been opened, this time included; 0 without one.
    package var generation = 0
    /// Something that was recorded is gone, or cannot be trusted.
    package var lost = false
    /// The newest in the history: whoever gives ids goes on behind it.
    package var lastEvent = EventID.none
    package init() {}
  }

  package struct Save: Hashable, Sendable {
    package var id: ServiceID
    package var name: ServiceName
    package var record: ServiceRecord
    package var ticket: Ticket
    package init(id: ServiceID, name: ServiceName, record: ServiceRecord, ticket: Ticket) {
      self.id = id
      self.name = name
      self.record = record
      self.ticket = ticket
    }
  }

  private let shared: Shared
  private let limits: Limits
  /// False: nothing may be written into the state directory, by nobody.
  package let hasDirectory: Bool
  private var asked: [UInt64: (HistoryAnswer) -> Void] = [:]
  private var lastQuestion: UInt64 = 0

  /// Starts the thread, which opens or makes DIRECTORY/guardian.db. What is wrong shows in `state` and `Loaded.notes`.
  ///
  /// Every signal that matters must be blocked by now, so that none is delivered to the thread.
  /// - Parameters:
  ///   - directory: ours, checked and locked by the caller; nil: volatile for ever.
  ///   - bootID: the text of /proc/sys/kernel/random/boot_id.
  ///   - vfs: SQLite's name of the file system layer; for tests.
  package init(directory: String?, bootID: String, limits: Limits = Limits(), vfs: String? = nil) {
    self.limits = limits
    hasDirectory = directory != nil
    shared = Shared(limits: limits)
    guard let directory else {
      shared.give(up: "no state directory")
      return
    }
    guard shared.eventDescriptor >= 0 else {
      shared.give(up: "no descriptor is left for the store")
      return
    }
    let writer = Writer(
      shared: shared, directory: directory, bootID: bootID.filter { !$0.isWhitespace }, limits: limits, vfs: vfs)
    var thread = pthread_t()
    let handle = Unmanaged.passRetained(writer)
    let result = pthread_create(
      &thread, nil,
      { argument in
        if let argument { Unmanaged<Writer>.fromOpaque(argument).takeRetainedValue().run() }
        return nil
      }, handle.toOpaque())
    guard result == 0 else {
      handle.release()
      shared.give(up: "the store's thread cannot be started: \(errorName(result))")
      return
    }
    pthread_detach(thread)
  }

  deinit { shared.end(orderly: false, now: nil) }

  /// Readable when `takeAnswers`, `takeNotes` or `state` has news; `takeAnswers` makes it unreadable again.
  ///
  /// Non-blocking; -1 where none could be had.
  package var descriptor: Int32 { shared.eventDescriptor }

  /// What was found on disk; once, at start. Waits for the disk, but gives it up when nothing has come of it for
  /// `Limits.loadPatience`.
  package func load() -> Loaded {
    shared.showProgress()
    return shared.locked { shared in
      while shared.loaded == nil, !shared.ended {
        let deadline = shared.progressAt + limits.loadPatience
        if !shared.wait(shared.news, until: deadline), monotonicNow() >= shared.progressAt + limits.loadPatience {
          break
        }
      }
      defer { shared.loaded = nil }
      if let loaded = shared.loaded { return loaded }
      var loaded = Loaded()
      if !shared.ended {
        shared.loadGivenUp = true
        shared.state = .volatile(why: "the disk does not answer")
      }
      if case .volatile(let why) = shared.state { loaded.notes = ["no state was read: \(why)"] }
      return loaded
    }
  }

  /// Queues what a turn has to record; never blocks on the disk.
  ///
  /// All of one call is written in one transaction, in which a save counts for more than `forgotten`. Of several saves
  /// of one service the newest is written, and all their tickets are answered. With nothing but `now` it still records
  /// that guardian was at work then, from which the next boot reckons what was left of each delay.
  /// - Parameter meta: nil removes the key. Keys that begin with `store.` are the store's own, and ignored.
  package func submit(
    saves: [Save] = [], entries: [RunEntry] = [], events: [Occurrence] = [], meta: [String: String?] = [:],
    reports: [StoredReport] = [], counted: [CountedDeaths] = [], forgotten: [ServiceName] = [], now: Now
  ) {
    // Encoded here: what waits for the disk is then small, and the caller's values are free to change.
    var batch = Batch()
    batch.mark = now
    for name in forgotten { batch.forget(name) }
    for save in saves {
      batch.add(save.name, RecordCoding.encode(save.record), mark: now, answer: Answer(save.id, save.ticket))
    }
    batch.entries = entries
    batch.events = events
    batch.reports = reports
    for deaths in counted { batch.count(deaths) }
    batch.meta = meta.filter { !$0.key.hasPrefix("store.") }
    shared.submit(batch)
  }

  /// Asks the history; `then` hears the answer by `deliverAnswers`, never from inside of this call.
  package func ask(_ question: HistoryQuestion, then: @escaping (HistoryAnswer) -> Void) {
    lastQuestion += 1
    asked[lastQuestion] = then
    shared.ask(lastQuestion, question)
  }

  /// What the history has answered since the last call.
  package func deliverAnswers() {
    let replies = shared.locked { shared in
      defer { shared.replies = [] }
      return shared.replies
    }
    for (number, answer) in replies { asked.removeValue(forKey: number)?(answer) }
  }

  /// What is kept of crash reports from now on; it is seen to with the next of them.
  package func keep(reports: ReportLimits) { shared.locked { $0.keptReports = reports } }

  /// The tickets whose records are on disk and synced since the last call.
  package func takeAnswers() -> [(ServiceID, Ticket)] {
    var count: UInt64 = 0
    if shared.eventDescriptor >= 0 { _ = read(shared.eventDescriptor, &count, 8) }
    return shared.locked { shared in
      defer { shared.answers = [] }
      return shared.answers.map { ($0.id, $0.ticket) }
    }
  }

  /// Sentences for the log that came up since `load`: a file moved aside, a file written anew.
  package func takeNotes() -> [String] {
    shared.locked { shared in
      defer { shared.notes = [] }
      return shared.notes
    }
  }

  package var state: State {
    shared.locked { shared in
      if case .volatile = shared.state { return shared.state }
      if let since = shared.unansweredSince, monotonicNow() - since >= limits.patience {
        return .volatile(why: "the disk does not answer")
      }
      return shared.state
    }
  }

  /// How many events, and how many runs that have ended, are kept from now on; the oldest go with the next write.
  package func keep(events: Int) { shared.locked { $0.keptEvents = max(0, events) } }

  /// Events and whole runs that were never written, since this instance began.
  package var droppedEvents: Int { shared.locked { $0.dropped } }

  /// Ends that were not written, since no run with their id was open.
  package var ignoredEnds: Int { shared.locked { $0.ignoredEnds } }

  /// Writes what is queued and closes the database; nothing may be submitted after it.
  ///
  /// - Parameter orderly: the next `Loaded.orderly`.
  /// - Returns: whether all of it was on disk in time.
  package func close(orderly: Bool, now: Now? = nil, within time: Duration) -> Bool {
    let deadline = monotonicNow() + time
    shared.end(orderly: orderly, now: now)
    return shared.locked { shared in
      while !shared.ended, shared.wait(shared.news, until: deadline) {}
      return shared.ended && shared.endedWell
    }
  }
}

/// A ticket to answer.
struct Answer: Sendable {
  var id: ServiceID, ticket: Ticket
  init(_ id: ServiceID, _ ticket: Ticket) {
    self.id = id
    self.ticket = ticket
  }
}

/// What is written in one transaction.
struct Batch: Sendable {
  struct Record: Sendable {
    var bytes: [UInt8]
    var mark: Now
  }
  var records: [ServiceName: Record] = [:]
  var answers: [Answer] = []
  var forgotten: Set<ServiceName> = []
  var entries: [RunEntry] = []
  var events: [Occurrence] = []
  var reports: [StoredReport] = []
  var counted: [ServiceName: [UInt64: CountedDeaths]] = [:]
  var meta: [String: String?] = [:]
  var mark: Now?
  var isEmpty: Bool { mark == nil }

  mutating func add(_ name: ServiceName, _ bytes: [UInt8], mark: Now, answer: Answer) {
    records[name] = Record(bytes: bytes, mark: mark)
    forgotten.remove(name)
    answers.append(answer)
  }

  mutating func forget(_ name: ServiceName) {
    records[name] = nil
    forgotten.insert(name)
  }

  mutating func count(_ deaths: CountedDeaths) {
    var all = counted[deaths.service]?[deaths.signature.value] ?? deaths
    if counted[deaths.service]?[deaths.signature.value] != nil {
      all.count += deaths.count
      all.last = deaths.last
    }
    counted[deaths.service, default: [:]][deaths.signature.value] = all
  }

  /// Takes in what came later.
  mutating func merge(_ later: Batch) {
    if isEmpty {
      self = later
      return
    }
    for name in later.forgotten { forget(name) }
    for (name, record) in later.records {
      records[name] = record
      forgotten.remove(name)
    }
    answers += later.answers
    entries += later.entries
    events += later.events
    reports += later.reports
    for deaths in later.counted.values.flatMap(\.values) { count(deaths) }
    meta.merge(later.meta) { $1 }
    mark = later.mark ?? mark
  }

  static let reportsQueued = 64

  /// Cuts what only the history would miss to `limit`.
  /// - Returns: how much was dropped.
  mutating func trim(to limit: Int) -> Int {
    var dropped = 0
    // Large, and each of them only one of many: the newest are kept, the others counted.
    if reports.count > Self.reportsQueued {
      for report in reports.dropLast(Self.reportsQueued) {
        count(
          CountedDeaths(
            service: report.service, signature: report.signature, count: 1, first: report.at, last: report.at))
      }
      reports.removeFirst(reports.count - Self.reportsQueued)
    }
    if events.count > limit {
      dropped = events.count - limit
      events.removeFirst(dropped)
    }
    guard entries.count > 2 * limit else { return dropped }
    // Runs that began and ended while nothing could be written: no one's end is missing if they are left out whole.
    var ended: Set<RunID> = []
    for case .closed(let id, _, _, _, _) in entries { ended.insert(id) }
    var whole: Set<RunID> = []
    for case .opened(let id, _, _, _) in entries where ended.contains(id) { whole.insert(id) }
    entries.removeAll { entry in
      switch entry {
      case .opened(let id, _, _, _): whole.contains(id)
      case .closed(let id, _, _, _, _): whole.contains(id)
      }
    }
    return dropped + whole.count
  }
}

/// What the two threads share; every access holds the lock.
final class Shared: @unchecked Sendable {
  // Allocated, since a C lock must not move.
  private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  /// For the writer: there is work.
  let work = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  /// For `load` and `close`.
  let news = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  let eventDescriptor: Int32
  let queuedEvents: Int

  var queue = Batch()
  var answers: [Answer] = []
  var state = Store.State.durable
  /// When the oldest save was submitted that has no answer.
  var unansweredSince: Instant?
  /// When the oldest save was submitted that the writer has not taken yet.
  var queuedSince: Instant?
  var loaded: Store.Loaded?
  var loadGivenUp = false
  /// When reading the database last got on.
  var progressAt = monotonicNow()
  var notes: [String] = []
  var dropped = 0
  var ignoredEnds = 0
  var closing = false
  var orderly = false
  var closedAt: Now?
  var ended = false
  var endedWell = false
  var keptEvents: Int
  var keptReports = ReportLimits()
  /// How many batches have been submitted, ever.
  var submissions: UInt64 = 0
  /// With how many batches had been submitted before: an answer knows of them.
  var questions: [(number: UInt64, question: HistoryQuestion, after: UInt64)] = []
  var replies: [(UInt64, HistoryAnswer)] = []

  init(limits: Store.Limits) {
    queuedEvents = limits.queuedEvents
    keptEvents = limits.events
    eventDescriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
    pthread_mutex_init(lock, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(work, &attributes)
    pthread_cond_init(news, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  // Both threads hold the object, so neither is inside when it goes.
  deinit {
    if eventDescriptor >= 0 { close(eventDescriptor) }
    pthread_cond_destroy(work)
    pthread_cond_destroy(news)
    pthread_mutex_destroy(lock)
    work.deallocate()
    news.deallocate()
    lock.deallocate()
  }

  func locked<Result>(_ body: (Shared) -> Result) -> Result {
    pthread_mutex_lock(lock)
    defer { pthread_mutex_unlock(lock) }
    return body(self)
  }

  /// With the lock held. Nil waits for ever.
  /// - Returns: false once `deadline` has passed.
  func wait(_ condition: UnsafeMutablePointer<pthread_cond_t>, until deadline: Instant?) -> Bool {
    guard let deadline else {
      pthread_cond_wait(condition, lock)
      return true
    }
    let nanoseconds = max(deadline.nanoseconds, 0)
    var time = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
    return pthread_cond_timedwait(condition, lock, &time) != ETIMEDOUT
  }

  func showProgress() {
    let now = monotonicNow()
    locked { $0.progressAt = now }
  }

  /// There will never be a writer.
  func give(up why: String) {
    locked { shared in
      shared.state = .volatile(why: why)
      shared.ended = true
    }
  }

  func submit(_ batch: Batch) {
    locked { shared in
      guard !shared.ended, !shared.closing else {
        shared.dropped += batch.events.count
        return
      }
      if !batch.answers.isEmpty {
        let now = monotonicNow()
        if shared.queuedSince == nil { shared.queuedSince = now }
        if shared.unansweredSince == nil { shared.unansweredSince = now }
      }
      shared.queue.merge(batch)
      shared.submissions += 1
      shared.dropped += shared.queue.trim(to: shared.queuedEvents)
      pthread_cond_signal(shared.work)
    }
  }

  func ask(_ number: UInt64, _ question: HistoryQuestion) {
    let refused: String? = locked { shared in
      if shared.ended || shared.closing {
        if case .volatile(let why) = shared.state { return why }
        return "the store is closed"
      }
      if shared.questions.count >= Self.questionsQueued { return "too many questions wait already" }
      shared.questions.append((number, question, shared.submissions))
      pthread_cond_signal(shared.work)
      return nil
    }
    if let refused { reply([(number, .unavailable(why: refused))]) }
  }
  static let questionsQueued = 64

  func reply(_ answers: [(UInt64, HistoryAnswer)]) {
    if answers.isEmpty { return }
    locked { $0.replies += answers }
    tell()
  }

  func end(orderly: Bool, now: Now?) {
    locked { shared in
      guard !shared.closing else { return }
      shared.closing = true
      shared.orderly = orderly
      shared.closedAt = now
      pthread_cond_signal(shared.work)
    }
  }

  /// Makes `descriptor` readable.
  func tell() {
    var one: UInt64 = 1
    while eventDescriptor >= 0, write(eventDescriptor, &one, 8) < 0, errno == EINTR {}
  }
}

func monotonicNow() -> Instant {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Instant(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
}

/// The C library's sentence, in lower case as the rest of ours.
func errorName(_ number: Int32) -> String {
  var buffer = [CChar](repeating: 0, count: 128)
  _ = strerror_r(number, &buffer, buffer.count)
  let text = String(decoding: buffer.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
  return text.isEmpty ? "error \(number)" : text.prefix(1).lowercased() + text.dropFirst()
}
