import CGuardian
import Glibc
import GuardianModel

/// What writes the output of all services to their files: holds the pipes, and outlives the guardian that gave them.
///
/// **One thread**, and one that only looks after a disk that hangs (`Watch`). A pipe that has something is read once, at most 256 KiB, and what came is written at once: nothing is
/// kept in memory but what the disk has refused, and who writes a lot does not hold up the others for longer than one
/// write takes. A disk that is slow makes everybody wait who writes; guardian is not among them.
package final class Logger {
  private let poll: Int32
  private let listener: Int32
  private var connection: Int32 = -1
  private var connectionWaits = false
  /// To be told, oldest first; of those that carry a pipe its run.
  private var outbox: [LogNews] = []
  private var untold = 0

  private var spec = LogsSpec()
  private var wanted: String?
  private var directory: LogDirectory?
  /// Why there is none.
  private var directoryFault: LogFault?
  private var logs: [ServiceName: ServiceLog] = [:]
  let room = ServiceLog.Room()
  let watch = Watch()
  private var pipes: [Int32: Pipe] = [:]
  private var byRun: [RunID: Pipe] = [:]
  /// In the order in which they came.
  private var byService: [ServiceName: [Pipe]] = [:]
  private let book: Book
  private let reading: Int?
  private let input = UnsafeMutableRawPointer.allocate(byteCount: Logger.readSize, alignment: 4096)
  /// What concerns all services: when it is tried again.
  private var trouble: LogFault?
  private var retryAt: Instant?
  private var pause = Duration.seconds(1)
  private var packer = Packer()
  private var idleSince: Instant?
  private var finishBy: Instant?

  static let readSize = 256 << 10
  private static let longestPause = Duration.seconds(5)
  /// Without a guardian and without a pipe.
  private static let idle = Duration.minute
  private static let outboxBound = 20_000
  /// Pipes of runs that are over, of one service: whoever has one open beyond that has lost it.
  private static let leftPipes = 4
  private static let finishPatience = Duration.seconds(3)

  /// For tests: what stands in for read(2).
  var readCall: (Int32, UnsafeMutableRawPointer, Int) -> Int = { Glibc.read($0, $1, $2) }

  /// - Parameters:
  ///   - listener: A socket that listens and keeps messages apart; borrowed.
  ///   - book: Where what is on its way is noted for whoever comes after this process.
  /// - Throws: Its reason as a sentence.
  package init(listener: Int32, book: String?) throws(Unusable) {
    let poll = guardian_poll_make()
    guard poll >= 0 else { throw Unusable(description: "cannot make a set of descriptors") }
    self.poll = poll
    self.listener = listener
    self.book = Book(path: book)
    reading = ServiceName("reading").flatMap { [book = self.book] in book.slot($0) }
    _ = fcntl(listener, F_SETFL, O_NONBLOCK)
    guard guardian_poll_watch(poll, listener, Int32(GUARDIAN_POLL_READ), 1) == 0 else {
      throw Unusable(description: "standard input is no socket")
    }
  }
  package struct Unusable: Error, CustomStringConvertible { package var description: String }

  deinit {
    input.deallocate()
    scrap.deallocate()
    close(poll)
    if connection >= 0 { close(connection) }
  }

  /// Until it is told to finish, or nobody needs it any more.
  package func run() {
    watch.begin { [unowned self] in skipAll() }
    defer { watch.end() }
    var ready = [Int32](repeating: -1, count: 64)
    while true {
      let wait = timeout()
      let count = watch.idle { guardian_poll_wait(poll, &ready, 64, wait) }
      if count < 0, count != -EINTR { return }
      for descriptor in ready.prefix(Int(max(0, count))) {
        if descriptor == listener {
          accept()
        } else if descriptor == connection {
          hear()
          tell()
        } else if let pipe = pipes[descriptor] {
          serve(pipe)
        }
      }
      if skippedSome { tellOfSkipped() }
      let now = Clock.monotonic()
      rest(now)
      if let retryAt, now >= retryAt { tryAgain(now) }
      watch.disk { packer.work(directory, spec) }
      if finishBy != nil, isFinished(now) { return }
      if isIdle(now) { return }
    }
  }

  /// Who writes line by line would wake this process for each of them, and pay for that: where little came, and again and
  /// again, the pipes are left to fill for a moment.
  private func rest(_ now: Instant) {
    defer { came = 0 }
    guard came > 0 else { return }
    let often = now - cameAt < Self.often
    cameAt = now
    if often, came < Self.little, finishBy == nil { watch.idle { _ = usleep(Self.moment) } }
  }
  /// Bytes, in this round.
  private var came = 0
  private var cameAt = Instant(nanoseconds: .min)
  private static let little = 64 << 10
  private static let often = Duration.milliseconds(5)
  /// Microseconds. At the rate at which a line is written by a call of its own, no pipe fills in that time.
  private static let moment: UInt32 = 400

  private func timeout() -> Int32 {
    let now = Clock.monotonic()
    var next: Instant?
    func by(_ instant: Instant?) { if let instant { next = min(next ?? instant, instant) } }
    by(retryAt)
    by(finishBy.map { min($0, now + .milliseconds(20)) })
    by(idleSince.map { $0 + Self.idle })
    if packer.isBusy { by(now + .milliseconds(200)) }
    guard let next else { return -1 }
    return Int32(clamping: max(0, (next - now).milliseconds + 1))
  }

  // MARK: Guardian

  private func accept() {
    while true {
      let made = Glibc.accept(listener, nil, nil)
      if made < 0 { return }
      _ = fcntl(made, F_SETFD, FD_CLOEXEC)
      _ = fcntl(made, F_SETFL, O_NONBLOCK)
      var credentials: (Int32, UInt32, UInt32) = (0, 0, 0)
      var length = socklen_t(12)
      guard getsockopt(made, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0, length == 12,
        credentials.1 == geteuid() || credentials.1 == 0
      else {
        close(made)
        continue
      }
      // The last one is guardian; the one before it is gone, or about to be.
      hangUp()
      connection = made
      idleSince = nil
      if guardian_poll_watch(poll, made, Int32(GUARDIAN_POLL_READ), 1) != 0 { hangUp() }
      for entry in book.found where !lossIsTold {
        post(
          .note("at most \(entry.bytes) bytes of \(entry.service) were lost when the logger before this one was ended"))
      }
      lossIsTold = true
    }
  }
  private var lossIsTold = false

  private func hangUp() {
    if connection >= 0 {
      _ = guardian_poll_forget(poll, connection)
      close(connection)
    }
    connection = -1
    outbox = []
    untold = 0
  }

  private func hear() {
    var bytes = [UInt8](repeating: 0, count: LogOrder.largest)
    for _ in 0..<64 {
      var passed: Int32 = -1
      let got = guardian_receive_message(connection, &bytes, bytes.count, &passed)
      if got == -Int64(EAGAIN) { return }
      if got == -Int64(EMSGSIZE) { continue }
      guard got > 0 else { return hangUp() }
      let order = LogOrder(Array(bytes[..<Int(got)]))
      if case .take(let run, let service) = order, passed >= 0 {
        take(run, service, passed)
        continue
      }
      if passed >= 0 { close(passed) }
      switch order {
      case .configure(let spec, let path): configure(spec, path)
      case .ended(let run): ended(run)
      case .show(let number, let run, let service): show(number, run, service)
      case .finish: finish()
      case .take, nil: break
      }
    }
  }

  private func post(_ news: LogNews) {
    guard connection >= 0 else { return }
    if outbox.count >= Self.outboxBound {
      untold += 1
      return
    }
    outbox.append(news)
  }

  private func tell() {
    var sent = 0
    defer {
      outbox.removeFirst(sent)
      let waits = !outbox.isEmpty
      if connection >= 0, waits != connectionWaits {
        let both = Int32(GUARDIAN_POLL_READ) | (waits ? Int32(GUARDIAN_POLL_WRITE) : 0)
        _ = guardian_poll_watch(poll, connection, both, 0)
        connectionWaits = waits
      }
    }
    while connection >= 0, sent < outbox.count {
      let news = outbox[sent]
      var descriptor: Int32 = -1
      if case .held(let run, _) = news {
        guard let pipe = byRun[run] else {
          sent += 1
          continue
        }
        descriptor = pipe.descriptor
      }
      let bytes = news.bytes
      let answer = guardian_send_message(connection, bytes, bytes.count, descriptor)
      if answer == 0 {
        sent += 1
      } else if answer == -EAGAIN || answer == -ETOOMANYREFS || answer == -ENOBUFS {
        return
      } else if answer == -EMSGSIZE {
        sent += 1
      } else {
        sent = 0
        return hangUp()
      }
    }
  }

  private func configure(_ spec: LogsSpec, _ path: String) {
    self.spec = spec
    room.spec = spec
    if wanted != path {
      for log in logs.values { log.closeFile() }
      logs = [:]
      directory = nil
      wanted = path
      openDirectory()
    }
    for pipe in byRun.values.sorted(by: { $0.descriptor < $1.descriptor }) {
      post(.held(pipe.run, service: pipe.service))
    }
    post(.ready)
    if spec.compress == .gzip, let directory { watch.disk { packer.lookAround(directory) } }
  }

  private func openDirectory() {
    guard let path = wanted, directory == nil else { return }
    do throws(LogFault) {
      directory = try watch.disk { () throws(LogFault) in try LogDirectory(path) }
      directoryFault = nil
      for entry in book.found where !lossIsSaid {
        log(of: entry.service)?.say("at most \(entry.bytes) bytes were lost here: guardian-logger was ended")
      }
      lossIsSaid = true
    } catch {
      if directoryFault != error { post(.note("no log can be written: \(error)")) }
      directoryFault = error
    }
  }
  private var lossIsSaid = false

  private func log(of service: ServiceName) -> ServiceLog? {
    if let known = logs[service] { return known }
    guard let directory else { return nil }
    let log = ServiceLog(service, directory, room)
    log.putAside = { [unowned self] name in if spec.compress == .gzip { packer.add(service, name) } }
    logs[service] = log
    return log
  }

  private func take(_ run: RunID, _ service: ServiceName, _ descriptor: Int32) {
    guard byRun[run] == nil else {
      close(descriptor)
      return
    }
    _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    let pipe = Pipe(run, service, descriptor)
    guard guardian_poll_watch(poll, descriptor, Int32(GUARDIAN_POLL_READ), 1) == 0 else {
      // It is no pipe, or there is no memory: then it is closed with the object.
      post(.note("the output of \(service) cannot be read"))
      return
    }
    pipes[descriptor] = pipe
    byRun[run] = pipe
    byService[service, default: []].append(pipe)
    idleSince = nil
  }

  /// What has been written by a run is in its pipe by now.
  private func ended(_ run: RunID) {
    guard let pipe = byRun[run] else { return post(.closed(run)) }
    drain(pipe)
    guard byRun[run] != nil else { return }
    pipe.over = true
    let left = byService[pipe.service]?.filter(\.over) ?? []
    if left.count > Self.leftPipes, let oldest = left.first { letGo(oldest) }
    // Guardian need not keep it. Whoever still has it open goes on being heard.
    if byRun[run] != nil, !pipe.paused { post(.closed(run)) }
  }

  private func show(_ number: UInt64, _ run: RunID, _ service: ServiceName) {
    if let pipe = byRun[run] { drain(pipe) }
    let answer =
      log(of: service).map { log in watch.disk { log.lastOutput(of: run) } }
      ?? LastOutput(missing: directoryFault.map { "not in a file: \($0)" } ?? "not in a file yet")
    post(.shown(number, answer))
  }

  // MARK: Pipes

  /// As much as is in there now.
  private func drain(_ pipe: Pipe) {
    // The largest pipe is 1 MiB for most; whoever goes on writing is heard in his turn.
    for _ in 0..<8 where byRun[pipe.run] != nil && !pipe.paused { if !serve(pipe) { break } }
  }

  /// Reads once, and writes that.
  ///
  /// - Returns: False where there was nothing.
  @discardableResult private func serve(_ pipe: Pipe) -> Bool {
    if directory == nil { openDirectory() }
    guard let log = log(of: pipe.service) else {
      return refuse(pipe, nil, directoryFault ?? LogFault("guardian has not said where to"))
    }
    if let fault = trouble ?? log.fault { return refuse(pipe, log, fault) }
    let now = Clock.wall()
    if !log.isOpen {
      do throws(LogFault) {
        try watch.disk { () throws(LogFault) in try log.openIfNeeded(now: now) }
      } catch {
        return refuse(pipe, log, error)
      }
    }
    if let reading {
      book.name(reading, pipe.service)
      book.set(reading, Self.readSize)
    }
    defer { if let reading { book.set(reading, 0) } }
    let got = readCall(pipe.descriptor, input, Self.readSize)
    if got <= 0 { return ended(reading: pipe, got) }
    came += got
    if let reading { book.set(reading, got) }
    let taken = watch.disk { log.append(UnsafeRawBufferPointer(start: input, count: got), of: pipe, now: now) }
    if let fault = log.fault { return refused(pipe, log, fault, taken: taken, of: got) }
    if let directory, directory.used > spec.total { watch.disk { makeRoom(now) } }
    return true
  }

  private func ended(reading pipe: Pipe, _ got: Int) -> Bool {
    if got < 0 {
      let code = errno
      if code == EAGAIN || code == EINTR { return false }
      // Neither given up nor asked for ever: again in half a second.
      if !pipe.complained {
        pipe.complained = true
        post(.note("the output of \(pipe.service) cannot be read now: \(String(cString: strerror(code)).lowercased())"))
        tell()
      }
      suspend(pipe)
      let soon = Clock.monotonic() + .milliseconds(500)
      retryAt = min(retryAt ?? soon, soon)
      return false
    }
    letGo(pipe)
    return false
  }

  /// Nobody writes there any more.
  private func letGo(_ pipe: Pipe) {
    _ = guardian_poll_forget(poll, pipe.descriptor)
    pipes[pipe.descriptor] = nil
    byRun[pipe.run] = nil
    byService[pipe.service]?.removeAll { $0 === pipe }
    if byService[pipe.service]?.isEmpty ?? false { byService[pipe.service] = nil }
    if let log = logs[pipe.service] {
      watch.disk { log.end(pipe) }
      if byService[pipe.service] == nil, log.pending.isEmpty, log.fault == nil {
        log.closeFile()
        logs[pipe.service] = nil
      }
    }
    post(.closed(pipe.run))
    tell()
  }

  // MARK: A disk that does not take it

  private func suspend(_ pipe: Pipe) {
    guard !pipe.paused else { return }
    pipe.paused = true
    _ = guardian_poll_forget(poll, pipe.descriptor)
  }

  /// Something cannot be written, and has not been read yet.
  private func refuse(_ pipe: Pipe, _ log: ServiceLog?, _ fault: LogFault) -> Bool {
    begin(fault, pipe.service, log)
    if spec.full == .wait {
      suspend(pipe)
      return false
    }
    let got = readCall(pipe.descriptor, input, Self.readSize)
    if got <= 0 { return ended(reading: pipe, got) }
    let last = input.load(fromByteOffset: got - 1, as: UInt8.self)
    log?.drop(got, of: pipe, endsLine: last == UInt8(ascii: "\n"))
    return true
  }

  /// Of what was read a part could not be written.
  private func refused(_ pipe: Pipe, _ log: ServiceLog, _ fault: LogFault, taken: Int, of got: Int) -> Bool {
    begin(fault, pipe.service, log)
    // What is kept in memory would be lost with this process.
    if log.slot == nil, !log.pending.isEmpty { log.slot = book.slot(pipe.service) }
    if let slot = log.slot { book.set(slot, log.pending.count + (got - taken)) }
    guard taken < got else { return true }
    if spec.full == .wait {
      pipe.unread = Array(UnsafeRawBufferPointer(start: input + taken, count: got - taken))
      suspend(pipe)
      return false
    }
    let last = input.load(fromByteOffset: got - 1, as: UInt8.self)
    log.drop(got - taken, of: pipe, endsLine: last == UInt8(ascii: "\n"))
    return true
  }

  private func begin(_ fault: LogFault, _ service: ServiceName, _ log: ServiceLog?) {
    if log != nil, !troubled.contains(service) {
      troubled.insert(service)
      post(.trouble(service, fault.description))
      tell()
    }
    if fault.isOfTheDisk || log == nil { trouble = fault } else { log?.fail(fault) }
    if retryAt == nil {
      retryAt = Clock.monotonic() + pause
      pause = min(pause * 2, Self.longestPause)
    }
  }
  /// Services of which it has been told that their output is not written.
  private var troubled: Set<ServiceName> = []

  /// The disk may have room again, the link may be gone, the kernel may have memory.
  private func tryAgain(_ now: Instant) {
    retryAt = nil
    let wall = Clock.wall()
    if directory == nil { openDirectory() }
    trouble = nil
    if let directory, directory.used > spec.total { watch.disk { makeRoom(wall) } }
    for service in troubled.sorted() {
      guard let log = log(of: service) else { continue }
      let why = log.fault?.description ?? "it could not be written"
      do throws(LogFault) {
        try watch.disk { () throws(LogFault) in try log.openIfNeeded(now: wall) }
      } catch {
        log.fail(error)
        begin(error, service, log)
        if trouble != nil { break }
        continue
      }
      log.recover()
      guard watch.disk({ log.flushPending() }) else {
        if let fault = log.fault { begin(fault, service, log) }
        if trouble != nil { break }
        continue
      }
      if let slot = log.slot { book.release(slot) }
      log.slot = nil
      let dropped = log.takeDropped(why)
      watch.disk { log.sayNow(now: wall) }
      if let fault = log.fault {
        begin(fault, service, log)
        if trouble != nil { break }
        continue
      }
      troubled.remove(service)
      post(.recovered(service, dropped: dropped))
    }
    if trouble == nil, troubled.isEmpty { pause = .seconds(1) }
    resume(wall)
    tell()
  }

  private func resume(_ wall: WallTime) {
    for pipe in byRun.values where pipe.paused {
      if trouble != nil || logs[pipe.service]?.fault != nil { continue }
      if !pipe.unread.isEmpty {
        guard let log = log(of: pipe.service) else { continue }
        let bytes = pipe.unread
        pipe.unread = []
        let taken = watch.disk { bytes.withUnsafeBytes { log.append($0, of: pipe, now: wall) } }
        if taken < bytes.count { pipe.unread = Array(bytes[taken...]) }
        if let fault = log.fault {
          begin(fault, pipe.service, log)
          continue
        }
      }
      guard guardian_poll_watch(poll, pipe.descriptor, Int32(GUARDIAN_POLL_READ), 1) == 0 else {
        retryAt = Clock.monotonic() + .seconds(1)
        continue
      }
      pipe.paused = false
      pipe.complained = false
      if pipe.over { post(.closed(pipe.run)) }
    }
  }

  // MARK: A disk that does not answer

  /// By the other thread, with the lock, while this one waits for the disk: touches the set of pipes, what they have
  /// skipped, and the connection, and nothing else.
  private func skipAll() {
    guard spec.full == .drop else { return }
    for pipe in pipes.values where !pipe.paused {
      let before = pipe.skipped
      // As much as a pipe holds, and not more: who writes faster than that waits for the next look.
      for _ in 0..<8 {
        let got = Glibc.read(pipe.descriptor, scrap, Self.scrapSize)
        guard got > 0 else { break }
        pipe.skipped += got
        pipe.skippedEndsLine = scrap.load(fromByteOffset: got - 1, as: UInt8.self) == UInt8(ascii: "\n")
      }
      guard before == 0, pipe.skipped > 0 else { continue }
      skippedSome = true
      let news = LogNews.trouble(pipe.service, Self.noAnswer).bytes
      if connection >= 0 { _ = guardian_send_message(connection, news, news.count, -1) }
    }
  }
  private let scrap = UnsafeMutableRawPointer.allocate(byteCount: Logger.scrapSize, alignment: 4096)
  private static let scrapSize = 64 << 10
  private static let noAnswer = "the disk does not answer"
  private var skippedSome = false

  private func tellOfSkipped() {
    skippedSome = false
    var services: Set<ServiceName> = []
    for pipe in byRun.values where pipe.skipped > 0 {
      log(of: pipe.service)?.drop(pipe.skipped, of: pipe, endsLine: pipe.skippedEndsLine)
      pipe.skipped = 0
      services.insert(pipe.service)
    }
    for service in services.sorted() where !troubled.contains(service) {
      guard let log = log(of: service) else { continue }
      let dropped = log.takeDropped(Self.noAnswer)
      watch.disk { log.sayNow(now: Clock.wall()) }
      post(.recovered(service, dropped: dropped))
    }
    tell()
  }

  // MARK: The bound of all files together

  private func makeRoom(_ wall: WallTime) {
    guard let directory else { return }
    // What was counted may have been changed by others.
    let all = directory.count()
    guard directory.used > spec.total else { return }
    func remove(_ entries: [LogDirectory.Entry]) {
      for entry in entries where directory.used > spec.total {
        guard let place = try? directory.open(entry.service, make: false) else { continue }
        if unlinkat(place, entry.name, 0) == 0 { directory.removed(entry.size) }
        close(place)
      }
    }
    remove(all.filter(\.isAside).sorted { ($0.name, $0.service.text) < ($1.name, $1.service.text) })
    guard directory.used > spec.total else { return }
    // Then what services that do not run have left, the oldest first; and of those that run the largest.
    let idle = all.filter { !$0.isAside && !(logs[$0.service]?.isOpen ?? false) }
    remove(idle.sorted { ($0.modified, $0.service.text) < ($1.modified, $1.service.text) })
    guard directory.used > spec.total, let largest = logs.values.max(by: { $0.size < $1.size }), largest.isOpen else {
      return
    }
    let size = largest.size
    guard size > 0, largest.rotate(now: wall) else { return }
    largest.say("\(size) bytes before this line were removed: all logs together would be larger than is allowed")
    if let place = try? directory.open(largest.service, make: false) {
      for entry in directory.entries(of: largest.service, place) where entry.isAside {
        if unlinkat(place, entry.name, 0) == 0 { directory.removed(entry.size) }
      }
      close(place)
    }
  }

  // MARK: The end

  private func finish() { finishBy = finishBy ?? Clock.monotonic() + Self.finishPatience }

  private func isFinished(_ now: Instant) -> Bool {
    for pipe in byRun.values { drain(pipe) }
    // Who still has a pipe open is not waited for, once it is empty.
    let waiting = byRun.values.contains { $0.paused } || logs.values.contains { !$0.pending.isEmpty }
    if waiting, let finishBy, now < finishBy { return false }
    for log in logs.values {
      let why = log.fault?.description ?? "it could not be written"
      if log.takeDropped(why) > 0 { log.sayNow(now: Clock.wall()) }
    }
    return true
  }

  private func isIdle(_ now: Instant) -> Bool {
    guard connection < 0, byRun.isEmpty else {
      idleSince = nil
      return false
    }
    let since = idleSince ?? now
    idleSince = since
    return now >= since + Self.idle
  }
}

enum Clock {
  static func monotonic() -> Instant { Instant(nanoseconds: read(CLOCK_MONOTONIC)) }
  static func wall() -> WallTime { WallTime(nanoseconds: read(CLOCK_REALTIME)) }
  private static func read(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
  }
}
