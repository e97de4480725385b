import CGuardian
import Glibc
import GuardianModel

/// One run's pipe.
final class Pipe {
  let run: RunID
  let service: ServiceName
  let descriptor: Int32
  /// Nobody of the run is left.
  var over = false
  /// The last byte that came was no line's end.
  var midLine = false
  /// Bytes of the piece of a line that is being written.
  var pieceLength = 0
  /// It is not watched: the disk, or the kernel, is to be tried again first.
  var paused = false
  /// Of a read that the disk did not take all of, in the order in which it came. Only where the service waits.
  var unread: [UInt8] = []
  /// An error of reading has been told.
  var complained = false
  /// Bytes that were dropped while the disk kept the logger waiting, and whether the last one ended a line.
  var skipped = 0, skippedEndsLine = true

  init(_ run: RunID, _ service: ServiceName, _ descriptor: Int32) {
    self.run = run
    self.service = service
    self.descriptor = descriptor
  }
  deinit { close(descriptor) }
}

/// The file of one service: `current`, and those that were put aside.
final class ServiceLog {
  let service: ServiceName
  private unowned let directory: LogDirectory
  private unowned let room: Room
  private var file: Int32 = -1
  private var identity: (device: UInt64, inode: UInt64) = (0, 0)
  private(set) var size: UInt64 = 0
  /// Its first line was written then, wall clock, nanoseconds.
  private var began: Int64 = 0
  /// Whose lines came last into the file that is open.
  private(set) var lastRun: RunID?
  /// The end of the file is a piece of a line of this pipe.
  private weak var openLine: Pipe?
  private var lineIsOpen = false
  /// Written as lines and not taken by the disk yet.
  private(set) var pending: [UInt8] = []
  private(set) var fault: LogFault?
  /// Since it was told last.
  private(set) var dropped: UInt64 = 0
  private var words: [String] = []
  /// In the book, while something of it is kept in memory.
  var slot: Int?

  /// Called when a file was put aside, with its name.
  var putAside: ((String) -> Void)?

  /// Memory that all logs use in turn: what is written and how.
  final class Room {
    static let capacity = 512 << 10
    let bytes = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 64)
    /// For tests: what stands in for write(2).
    var writeCall: (Int32, UnsafeRawPointer, Int) -> Int = { Glibc.write($0, $1, $2) }
    var count = 0
    var spec = LogsSpec()
    private var stamp = LogStamp()
    /// The time before a line, where it can be copied from without a look at who else uses it.
    let stampBytes = UnsafeMutableRawPointer.allocate(byteCount: 32, alignment: 32)
    deinit {
      bytes.deallocate()
      stampBytes.deallocate()
    }

    var stampText: String { String(decoding: stamp.bytes, as: UTF8.self) }
    func set(_ now: WallTime) {
      stamp.set(now)
      stamp.bytes.withUnsafeBytes { from in
        if let from = from.baseAddress { stampBytes.copyMemory(from: from, byteCount: LogFormat.stampLength) }
      }
    }
  }

  init(_ service: ServiceName, _ directory: LogDirectory, _ room: Room) {
    self.service = service
    self.directory = directory
    self.room = room
  }
  deinit { if file >= 0 { close(file) } }

  var isOpen: Bool { file >= 0 }

  /// To be said in the file as soon as it can be: one line each, a few at most.
  func say(_ text: String) { if words.count < 8 { words.append(text) } }

  // MARK: Opening

  private var path: String { "\(directory.path)/\(service)/\(LogFormat.current)" }

  func openIfNeeded(now: WallTime) throws(LogFault) {
    if file >= 0 { return }
    let place = try directory.open(service)
    defer { close(place) }
    // Neither a link nor what would make the opener wait.
    let flags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC
    let opened = openat(place, LogFormat.current, flags, 0o640)
    guard opened >= 0 else {
      if errno == ELOOP { throw LogFault("\(path) is a link: it is not followed") }
      if errno == ENXIO || errno == EISDIR { throw LogFault("\(path) is no regular file") }
      throw .last("open \(path)")
    }
    do throws(LogFault) { try LogDirectory.check(opened, path, S_IFREG) } catch {
      close(opened)
      throw error
    }
    var about = stat()
    guard fstat(opened, &about) == 0 else {
      let fault = LogFault.last("look at \(path)")
      close(opened)
      throw fault
    }
    file = opened
    identity = (UInt64(about.st_dev), UInt64(about.st_ino))
    size = UInt64(max(0, about.st_size))
    began = size == 0 ? now.nanoseconds : min(firstStamp() ?? now.nanoseconds, now.nanoseconds)
    lastRun = nil
    openLine = nil
    lineIsOpen = false
    if size > 0 {
      var last: UInt8 = 0
      // Whoever wrote there before was ended within a line.
      if pread(opened, &last, 1, off_t(size) - 1) == 1, last != UInt8(ascii: "\n") { lineIsOpen = true }
    }
  }

  /// When the file's first line was written, as far as that can be told from the file's own times.
  private func firstStamp() -> Int64? {
    var bytes = [UInt8](repeating: 0, count: 128)
    let got = pread(file, &bytes, bytes.count, 0)
    guard got > 0 else { return nil }
    return LogStamp.read(bytes[..<got])?.nanoseconds
  }

  func closeFile() {
    if file >= 0 { close(file) }
    file = -1
  }

  // MARK: Writing

  /// Writes what a pipe gave, as lines with the time before them.
  ///
  /// - Returns: How much of it was taken: all, unless the disk takes no more; then `fault` is there.
  func append(_ input: UnsafeRawBufferPointer, of pipe: Pipe, now: WallTime) -> Int {
    guard let base = input.baseAddress, flushPending() else { return 0 }
    let limit = room.spec.rotate
    if let age = room.spec.age, size > 0, now.nanoseconds - began > age.nanoseconds, !(lineIsOpen && openLine === pipe)
    {
      guard rotate(now: now) else { return 0 }
    }
    room.count = 0
    room.set(now)
    begin(pipe, now)
    var at = 0
    while at < input.count {
      if !lineIsOpen, !pipe.midLine {
        // Nearly all there is to do, for nearly all that services write.
        let space = min(
          Room.capacity - Self.spare - room.count, Int(clamping: limit) - Int(clamping: size) - room.count)
        let (read, written) = Self.copyLines(
          from: base + at, count: input.count - at, to: room.bytes + room.count, space: space, stamp: room.stampBytes)
        at += read
        room.count += written
        if at == input.count { break }
      }
      let start = base + at
      let rest = input.count - at
      let space = LogFormat.longestLine - pipe.pieceLength
      // A line of the greatest length has its end right behind it.
      let end = memchr(start, 10, min(rest, space + 1))
      let length: Int
      if let end { length = UnsafeRawPointer(end) - start } else { length = min(rest, space) }
      let beginsHere = !(lineIsOpen && openLine === pipe)
      let whole = length + LogFormat.stampLength + 2
      if beginsHere, size + UInt64(room.count + whole) > limit, size + UInt64(room.count) > Self.smallest {
        guard flush(), rotate(now: now) else { break }
        begin(pipe, now)
      } else if room.count + whole > ServiceLog.Room.capacity - Self.spare {
        guard flush() else { break }
      }
      let to = room.bytes
      if beginsHere {
        (to + room.count).copyMemory(from: room.stampBytes, byteCount: LogFormat.stampLength)
        (to + room.count + 24).storeBytes(
          of: pipe.midLine ? LogFormat.continuation : LogFormat.newLine, as: UInt8.self)
        room.count += 25
      }
      if length > 0 { memcpy(to + room.count, start, length) }
      room.count += length
      at += length
      if end != nil {
        (to + room.count).storeBytes(of: 10, as: UInt8.self)
        room.count += 1
        at += 1
        pipe.midLine = false
        pipe.pieceLength = 0
        lineIsOpen = false
      } else if pipe.pieceLength + length >= LogFormat.longestLine {
        // Too long for one line of the file: split, and marked as such. Where its end comes next after all, that is no
        // line of its own.
        (to + room.count).storeBytes(of: 10, as: UInt8.self)
        room.count += 1
        pipe.midLine = true
        pipe.pieceLength = 0
        lineIsOpen = false
      } else {
        pipe.midLine = true
        pipe.pieceLength += length
        openLine = pipe
        lineIsOpen = true
      }
    }
    // Whatever the disk has not taken by now is kept as it was to be written.
    _ = flush()
    return at
  }

  /// Whole lines only, as long as there is space, each with the time and a blank before it.
  private static func copyLines(
    from: UnsafeRawPointer, count: Int, to: UnsafeMutableRawPointer, space: Int, stamp: UnsafeRawPointer
  ) -> (read: Int, written: Int) {
    let (first, second, third) = (
      stamp.load(as: UInt64.self), stamp.load(fromByteOffset: 8, as: UInt64.self),
      stamp.load(fromByteOffset: 16, as: UInt64.self)
    )
    var at = 0, out = 0
    while at < count {
      let start = from + at
      guard let end = memchr(start, 10, min(count - at, LogFormat.longestLine + 1)) else { break }
      let length = UnsafeRawPointer(end) - start + 1
      guard out + length + LogFormat.stampLength + 1 <= space else { break }
      let line = to + out
      line.storeBytes(of: first, as: UInt64.self)
      line.storeBytes(of: second, toByteOffset: 8, as: UInt64.self)
      line.storeBytes(of: third, toByteOffset: 16, as: UInt64.self)
      line.storeBytes(of: LogFormat.newLine, toByteOffset: 24, as: UInt8.self)
      memcpy(line + 25, start, length)
      out += length + LogFormat.stampLength + 1
      at += length
    }
    return (at, out)
  }

  private static let spare = 4096
  /// A file that holds no more than this is not put aside for its size.
  private static let smallest: UInt64 = 4096

  /// Ends what others have left open, and says whose lines follow.
  private func begin(_ pipe: Pipe, _ now: WallTime) {
    if lineIsOpen, openLine !== pipe { endLine() }
    if !words.isEmpty || lastRun != pipe.run {
      if lineIsOpen { endLine() }
      for word in words { put("# " + word + "\n") }
      words = []
      if lastRun != pipe.run {
        room.set(now)
        put("# run \(pipe.run) at \(room.stampText)" + (lastRun.map { ", after \($0)" } ?? "") + "\n")
        lastRun = pipe.run
      }
    }
    if !lineIsOpen { pipe.pieceLength = 0 }
  }

  private func endLine() {
    put("\n")
    lineIsOpen = false
    openLine = nil
  }

  private func put(_ text: String) {
    var text = String(text.utf8.prefix(512)) ?? ""
    text.withUTF8 { bytes in
      guard let from = bytes.baseAddress, room.count + bytes.count <= Room.capacity else { return }
      (room.bytes + room.count).copyMemory(from: from, byteCount: bytes.count)
      room.count += bytes.count
    }
  }

  /// Writes what is in the room. What the disk does not take is kept, and `fault` says why; false then.
  private func flush() -> Bool {
    var at = 0
    defer { room.count = 0 }
    while at < room.count {
      let done = room.writeCall(file, room.bytes + at, room.count - at)
      if done > 0 {
        at += done
        size += UInt64(done)
        directory.wrote(done)
      } else if done < 0, errno == EINTR {
        continue
      } else {
        fault = .last("write \(path)")
        pending = Array(UnsafeRawBufferPointer(start: room.bytes + at, count: room.count - at))
        return false
      }
    }
    return true
  }

  /// Tries again what the disk did not take.
  func flushPending() -> Bool {
    guard !pending.isEmpty else { return true }
    guard file >= 0 else {
      fault = fault ?? LogFault("\(path) is not open")
      return false
    }
    var at = 0
    while at < pending.count {
      let done = pending[at...].withUnsafeBytes { write(file, $0.baseAddress, $0.count) }
      if done > 0 {
        at += done
        size += UInt64(done)
        directory.wrote(done)
      } else if done < 0, errno == EINTR {
        continue
      } else {
        fault = .last("write \(path)")
        pending.removeFirst(at)
        return false
      }
    }
    pending = []
    return true
  }

  /// Everything is as it should be again.
  func recover() { fault = nil }

  func fail(_ why: LogFault) { fault = why }

  /// Bytes that came and are nowhere.
  func drop(_ bytes: Int, of pipe: Pipe, endsLine: Bool) {
    dropped += UInt64(max(0, bytes))
    pipe.midLine = !endsLine
    pipe.pieceLength = 0
  }

  /// How many bytes were dropped since this was asked last; it is said in the file too.
  func takeDropped(_ why: String) -> UInt64 {
    defer { dropped = 0 }
    if dropped > 0 { say("\(dropped) bytes were dropped here: \(why)") }
    return dropped
  }

  /// Ends the line that a pipe has left open: nobody writes to it any more.
  func end(_ pipe: Pipe) {
    guard lineIsOpen, openLine === pipe, file >= 0, pending.isEmpty else { return }
    room.count = 0
    endLine()
    _ = flush()
  }

  /// What is to be said is written though no output comes.
  func sayNow(now: WallTime) {
    guard !words.isEmpty, file >= 0, flushPending() else { return }
    room.count = 0
    if lineIsOpen { endLine() }
    for word in words { put("# " + word + "\n") }
    words = []
    _ = flush()
  }

  // MARK: Putting aside

  /// False where that cannot be done; then `fault` says why, and nothing is written to the old file any more.
  @discardableResult func rotate(now: WallTime) -> Bool {
    do throws(LogFault) {
      let place = try directory.open(service)
      defer { close(place) }
      var about = stat()
      let found = fstatat(place, LogFormat.current, &about, AT_SYMLINK_NOFOLLOW) == 0
      if found {
        // Whatever else is there has been put there by somebody else: it is not moved, and not written to.
        if UInt64(about.st_dev) == identity.device, UInt64(about.st_ino) == identity.inode {
          try moveAside(place, now)
        } else if about.st_mode & S_IFMT != S_IFREG {
          closeFile()
          throw LogFault("\(path) has been replaced by a link, or by what is no file: it is not followed")
        }
      }
      closeFile()
      try openIfNeeded(now: now)
      prune(place)
      return true
    } catch {
      fault = error
      return false
    }
  }

  private func moveAside(_ place: Int32, _ now: WallTime) throws(LogFault) {
    // Later than all that are there, whatever has become of the clock: they go by their names.
    let latest = directory.entries(of: service, place).map(\.name).filter(LogFormat.isAside).max()
    var wall = max(now, (latest.flatMap { LogFormat.time(ofAside: $0) } ?? now) + .microseconds(1))
    for _ in 0..<1000 {
      let name = LogFormat.name(asideAt: wall)
      let answer = guardian_rename_new(place, LogFormat.current, place, name)
      if answer == 0 {
        putAside?(name)
        return
      }
      guard answer == -EEXIST else {
        errno = -answer
        throw .last("rename \(path)")
      }
      wall = wall + .microseconds(1)
    }
    throw LogFault("cannot rename \(path): all names are taken", errno: EEXIST)
  }

  /// Of those that were put aside the oldest go, beyond the number that is kept.
  private func prune(_ place: Int32) {
    let aside = directory.entries(of: service, place).filter(\.isAside).sorted { $0.name < $1.name }
    for entry in aside.dropLast(room.spec.keep) where unlinkat(place, entry.name, 0) == 0 {
      directory.removed(entry.size)
    }
  }

  // MARK: Reading back

  /// The last lines of one run, from this file and the one before it.
  func lastOutput(of run: RunID) -> LastOutput {
    var lines = RunLines(of: run)
    let tail = 4 * UInt64(LastOutput.mostBytes)
    var wholeFile = true
    do throws(LogFault) {
      let place = try directory.open(service, make: false)
      defer { close(place) }
      if size < tail {
        let aside = directory.entries(of: service, place).filter { $0.isAside && $0.name.hasSuffix(".log") }
        if let last = aside.max(by: { $0.name < $1.name }) {
          let before = openat(place, last.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
          if before >= 0 {
            wholeFile = take(from: before, size: last.size, tail: tail, &lines) && wholeFile
            close(before)
          }
        }
      }
      let opened = openat(place, LogFormat.current, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
      guard opened >= 0 else { throw .last("open \(path)") }
      defer { close(opened) }
      try LogDirectory.check(opened, path, S_IFREG)
      var about = stat()
      _ = fstat(opened, &about)
      wholeFile = take(from: opened, size: UInt64(max(0, about.st_size)), tail: tail, &lines) && wholeFile
    } catch {
      return LastOutput(missing: error.description)
    }
    lines.end(lastRun: lastRun)
    var answer = LastOutput(lastOf: lines.lines)
    if lines.dropped || !wholeFile && answer.lines.count == lines.lines.count { answer.truncated = true }
    if let fault { answer.missing = "perhaps not all of it: \(fault)" }
    return answer
  }

  /// - Returns: Whether that was all of the file.
  private func take(from file: Int32, size: UInt64, tail: UInt64, _ lines: inout RunLines) -> Bool {
    let start = size > tail ? size - tail : 0
    var bytes = [UInt8](repeating: 0, count: Int(size - start))
    var got = 0
    while got < bytes.count {
      let n = bytes[got...].withUnsafeMutableBytes { pread(file, $0.baseAddress, $0.count, off_t(start) + off_t(got)) }
      if n < 0, errno == EINTR { continue }
      if n <= 0 { break }
      got += n
    }
    var rest = bytes[..<got]
    // Where it begins within a line, that one is not known.
    if start > 0 { rest = rest.drop { $0 != UInt8(ascii: "\n") }.dropFirst() }
    for line in rest.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: true) { lines.take(line) }
    return start == 0
  }
}
