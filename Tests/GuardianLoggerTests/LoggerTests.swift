import CGuardian
import Glibc
import GuardianModel
import Testing

@testable import GuardianLogger

/// A directory of one test, gone with the value.
final class Scratch {
  let path: String
  init() throws {
    var template = Array("/tmp/guardian-logger.XXXXXX".utf8CString)
    try #require(mkdtemp(&template) != nil)
    path = template.withUnsafeBytes { String(decoding: $0.dropLast(), as: UTF8.self) }
  }
  deinit { Self.remove(path) }

  private static func remove(_ path: String) {
    var about = stat()
    guard lstat(path, &about) == 0 else { return }
    if about.st_mode & S_IFMT == S_IFDIR { for name in names(path) { remove(path + "/" + name) } }
    Glibc.remove(path)
  }
  static func names(_ path: String) -> [String] {
    let directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    defer { close(directory) }
    return directory < 0 ? [] : LogDirectory.names(directory).sorted()
  }
  static func bytes(_ path: String) -> [UInt8] {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    defer { close(file) }
    var about = stat()
    guard file >= 0, fstat(file, &about) == 0 else { return [] }
    var bytes = [UInt8](repeating: 0, count: Int(about.st_size))
    let got = read(file, &bytes, bytes.count)
    return Array(bytes.prefix(max(0, got)))
  }
  func write(_ text: String, to name: String) {
    let file = open(path + "/" + name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    _ = Glibc.write(file, text, text.utf8.count)
    close(file)
  }
}

func name(_ text: String) throws -> ServiceName { try #require(ServiceName(text)) }
let runA = RunID(high: 1, low: 0xa), runB = RunID(high: 1, low: 0xb)
/// 2026-11-30T13:45:37.123Z.
let noon = WallTime(nanoseconds: 1_796_046_337_123_456_000)

/// One service's log, without pipes.
struct Bench {
  let scratch: Scratch
  let room = ServiceLog.Room()
  let directory: LogDirectory
  let log: ServiceLog

  init(_ scratch: Scratch, _ spec: LogsSpec = LogsSpec(), service: String = "web") throws {
    self.scratch = scratch
    room.spec = spec
    directory = try LogDirectory(scratch.path + "/logs")
    log = ServiceLog(try name(service), directory, room)
  }

  func pipe(_ run: RunID) throws -> Pipe { Pipe(run, log.service, open("/dev/null", O_RDONLY | O_CLOEXEC)) }

  /// - Returns: How much of it was taken.
  @discardableResult func write(_ bytes: [UInt8], _ pipe: Pipe, at now: WallTime = noon) throws -> Int {
    try log.openIfNeeded(now: now)
    return bytes.withUnsafeBytes { log.append($0, of: pipe, now: now) }
  }
  @discardableResult func write(_ text: String, _ pipe: Pipe, at now: WallTime = noon) throws -> Int {
    try write(Array(text.utf8), pipe, at: now)
  }

  var place: String { scratch.path + "/logs/web" }
  var files: [String] { Scratch.names(place) }
  var current: String { String(decoding: Scratch.bytes(place + "/current"), as: UTF8.self) }
  /// Of all files, the oldest first, without the logger's own.
  var texts: [(continues: Bool, text: [UInt8])] {
    files.filter { $0 != "current" }.appending("current").flatMap { file in
      Scratch.bytes(place + "/" + file).split(separator: 10).compactMap { line in
        if case .text(_, let continues, let text) = LogFormat.read(line) { (continues, Array(text)) } else { nil }
      }
    }
  }
}

extension Array {
  func appending(_ element: Element) -> [Element] { self + [element] }
}

@Suite struct `a line in a log file` {
  @Test func `has the time before it, and what belongs to which run is said once`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    let a = try bench.pipe(runA)
    try bench.write("one\ntwo\n", a)
    try bench.write("three\n", a, at: WallTime(nanoseconds: noon.nanoseconds + 1_000_000))
    #expect(
      bench.current == """
        # run 0000000000000001000000000000000a at 2026-11-30T13:45:37.123Z
        2026-11-30T13:45:37.123Z one
        2026-11-30T13:45:37.123Z two
        2026-11-30T13:45:37.124Z three

        """)
  }

  @Test func `that comes in pieces is one line, and one that another run interrupts is continued`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    let a = try bench.pipe(runA), b = try bench.pipe(runB)
    try bench.write("one, ", a)
    try bench.write("and more, ", a)
    try bench.write("B\n", b)
    try bench.write("and the rest\n", a)
    bench.log.end(a)
    #expect(
      bench.current == """
        # run 0000000000000001000000000000000a at 2026-11-30T13:45:37.123Z
        2026-11-30T13:45:37.123Z one, and more, \n\
        # run 0000000000000001000000000000000b at 2026-11-30T13:45:37.123Z, after 0000000000000001000000000000000a
        2026-11-30T13:45:37.123Z B
        # run 0000000000000001000000000000000a at 2026-11-30T13:45:37.123Z, after 0000000000000001000000000000000b
        2026-11-30T13:45:37.123Z+and the rest

        """)
  }

  @Test func `that nobody ends is ended when nobody writes there any more, or by the next logger`() throws {
    let scratch = try Scratch()
    do {
      let bench = try Bench(scratch)
      let a = try bench.pipe(runA)
      try bench.write("last words", a)
      bench.log.end(a)
      #expect(bench.current.hasSuffix(" last words\n"))
      try bench.write("cut", a)
    }
    let bench = try Bench(scratch)
    try bench.write("next\n", try bench.pipe(runB))
    #expect(bench.texts.map { String(decoding: $0.text, as: UTF8.self) } == ["last words", "cut", "next"])
  }

  @Test func `D6: of binary output every byte is kept`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    let a = try bench.pipe(runA)
    let bytes = (0..<4096).map { UInt8(truncatingIfNeeded: $0 &* 7) } + [10]
    try bench.write(bytes, a)
    let kept = Array(bench.texts.map(\.text).joined(separator: [10])) + [10]
    #expect(kept == bytes)
  }

  @Test func `D6: without an end is split at 64 KiB, and every piece but the first is marked`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    let a = try bench.pipe(runA)
    let bytes = [UInt8](repeating: UInt8(ascii: "x"), count: 250_000)
    for start in stride(from: 0, to: 1_000_000, by: 250_000) {
      #expect(try bench.write(bytes, a) == bytes.count, "\(start)")
    }
    try bench.write("\nnext\n", a)
    let texts = bench.texts
    #expect(texts.first?.continues == false)
    #expect(texts.dropFirst().dropLast().allSatisfy { $0.continues })
    #expect(texts.dropLast(2).allSatisfy { $0.text.count == LogFormat.longestLine })
    #expect(texts.dropLast().reduce(0) { $0 + $1.text.count } == 1_000_000)
    #expect(texts.last.map { String(decoding: $0.text, as: UTF8.self) } == "next" && texts.last?.continues == false)
  }

  @Test func `of exactly 64 KiB is one`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    try bench.write([UInt8](repeating: 65, count: LogFormat.longestLine) + [10], try bench.pipe(runA))
    #expect(bench.texts.count == 1)
  }

  @Test func `that looks like the logger's own is not taken for it`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    try bench.write("# run 0000000000000001000000000000000b at now\n", try bench.pipe(runA))
    #expect(bench.texts.count == 1)
    #expect(bench.log.lastOutput(of: runB).lines == [])
  }

  @Test(
    arguments: [
      (0, "1970-01-01T00:00:00.000Z"), (951_782_400_000, "2000-02-29T00:00:00.000Z"),
      (4_107_542_399_999, "2100-02-28T23:59:59.999Z"), (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
      (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ] as [(Int64, String)])
  func `has a time that can be read back`(_ ms: Int64, _ text: String) {
    // The last of these is beyond what nanoseconds can say.
    guard ms < Int64.max / 1_000_000 else { return }
    var stamp = LogStamp()
    stamp.set(WallTime(nanoseconds: ms * 1_000_000))
    #expect(String(decoding: stamp.bytes, as: UTF8.self) == text)
    #expect(LogStamp.read(stamp.bytes[...])?.nanoseconds == ms * 1_000_000)
  }
}

@Suite struct `files that are put aside` {
  private func spec(_ change: (inout LogsSpec) -> Void) -> LogsSpec {
    var spec = LogsSpec()
    change(&spec)
    return spec
  }

  @Test func `CASES 37: no line is cut by it, and files stay below the size that is allowed`() throws {
    let scratch = try Scratch()
    let bench = try Bench(
      scratch,
      spec {
        $0.rotate = 64 << 10
        $0.keep = 10_000
      })
    let a = try bench.pipe(runA)
    var sent: [UInt8] = []
    let lines = (0..<2_000).map { index in
      Array("\(index) ".utf8) + [UInt8](repeating: UInt8(ascii: "a") + UInt8(index % 26), count: 5_000)
    }
    for line in lines { sent += line + [10] }
    // As a pipe gives them: never at a line's end.
    for start in stride(from: 0, to: sent.count, by: 65_531) {
      let chunk = Array(sent[start..<min(sent.count, start + 65_531)])
      #expect(try bench.write(chunk, a) == chunk.count)
    }
    #expect(bench.texts.map(\.text) == lines)
    for file in bench.files {
      let bytes = Scratch.bytes(bench.place + "/" + file)
      #expect(bytes.count <= 64 << 10 && bytes.last == 10 && bytes.first == UInt8(ascii: "#"))
    }
  }

  @Test func `I9: are as many as are kept, the oldest go first`() throws {
    let scratch = try Scratch()
    let bench = try Bench(
      scratch,
      spec {
        $0.rotate = 16 << 10
        $0.keep = 3
      })
    let a = try bench.pipe(runA)
    for index in 0..<2_000 { try bench.write("line \(index) of many\(String(repeating: ".", count: 80))\n", a) }
    #expect(bench.files.count == 4)
    #expect(bench.texts.last.map { String(decoding: $0.text.prefix(9), as: UTF8.self) } == "line 1999")
    // What is left is without a gap.
    let numbers = bench.texts.compactMap { Int(String(decoding: $0.text, as: UTF8.self).split(separator: " ")[1]) }
    #expect(numbers == Array((2_000 - numbers.count)..<2_000))
  }

  @Test func `are put aside for their age too, also by a logger that came later`() throws {
    let scratch = try Scratch()
    let old = spec { $0.age = .hour }
    do {
      let bench = try Bench(scratch, old)
      try bench.write("old\n", try bench.pipe(runA))
    }
    let bench = try Bench(scratch, old)
    let b = try bench.pipe(runB)
    try bench.write("not yet\n", b, at: WallTime(nanoseconds: noon.nanoseconds + 3_599_000_000_000))
    #expect(bench.files == ["current"])
    try bench.write("now\n", b, at: WallTime(nanoseconds: noon.nanoseconds + 3_601_000_000_000))
    #expect(bench.files.count == 2)
    #expect(bench.texts.count == 3)
  }

  @Test func `J5: a current that has become a link is not written to, nor moved, and that is said`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch, spec { $0.rotate = 16 << 10 })
    let a = try bench.pipe(runA)
    scratch.write("secret", to: "sensitive")
    try bench.write("first\n", a)
    #expect(rename(bench.place + "/current", bench.place + "/elsewhere") == 0)
    #expect(symlink(scratch.path + "/sensitive", bench.place + "/current") == 0)
    let line = String(repeating: "x", count: 1_000) + "\n"
    for _ in 0..<40 where bench.log.fault == nil { try bench.write(line, a) }
    #expect(bench.log.fault?.description.contains("replaced by a link") == true)
    #expect(String(decoding: Scratch.bytes(scratch.path + "/sensitive"), as: UTF8.self) == "secret")
    #expect(throws: LogFault.self) { try bench.log.openIfNeeded(now: noon) }
    // When it is gone, it goes on.
    unlink(bench.place + "/current")
    bench.log.recover()
    try bench.write("again\n", a)
    #expect(bench.current.hasSuffix(" again\n"))
  }

  struct Foreign: CustomTestStringConvertible {
    var testDescription: String
    var make: @Sendable (String, String) -> Void
  }
  @Test(arguments: [
    Foreign(testDescription: "a link to a file") { place, other in symlink(other, place + "/current") },
    Foreign(testDescription: "a link to nothing") { place, other in symlink(other + ".new", place + "/current") },
    Foreign(testDescription: "another name of a file") { place, other in link(other, place + "/current") },
    Foreign(testDescription: "a fifo") { place, _ in mkfifo(place + "/current", 0o600) },
    Foreign(testDescription: "a directory") { place, _ in mkdir(place + "/current", 0o700) },
    Foreign(testDescription: "a file to which everybody may write") { place, _ in
      close(open(place + "/current", O_CREAT | O_WRONLY, 0o600))
      chmod(place + "/current", 0o666)
    },
    Foreign(testDescription: "a directory of the service that is a link") { place, other in
      rmdir(place)
      mkdir(other + ".d", 0o755)
      symlink(other + ".d", place)
    },
  ])
  func `J5: what somebody has put in its place is refused`(_ foreign: Foreign) throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    mkdir(bench.place, 0o755)
    scratch.write("secret", to: "sensitive")
    foreign.make(bench.place, scratch.path + "/sensitive")
    #expect(throws: LogFault.self) { try bench.log.openIfNeeded(now: noon) }
    #expect(String(decoding: Scratch.bytes(scratch.path + "/sensitive"), as: UTF8.self) == "secret")
    #expect(access(scratch.path + "/sensitive.new", F_OK) != 0)
    #expect(Scratch.names(scratch.path + "/sensitive.d") == [])
  }

  @Test func `two loggers do not write to one directory`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    #expect(throws: LogFault.self) { _ = try LogDirectory(bench.directory.path) }
  }

  @Test func `are compressed, and what was in them is in what comes of it`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch, spec { $0.rotate = 16 << 10 })
    let a = try bench.pipe(runA)
    for index in 0..<200 { try bench.write("line \(index) of many\(String(repeating: ".", count: 80))\n", a) }
    let aside = try #require(bench.files.first)
    let before = Scratch.bytes(bench.place + "/" + aside)
    let place = open(bench.place, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    defer { close(place) }
    #expect(Packer.compress(aside, in: place) == 0)
    #expect(bench.files.contains(aside + ".gz") && !bench.files.contains(aside))
    let after = Scratch.bytes(bench.place + "/" + aside + ".gz")
    #expect(after.prefix(2) == [0x1f, 0x8b] && after.count < before.count / 4)
    #expect(LogFormat.isAside(aside + ".gz"))
    #expect(Packer.compress("current", in: place) == 64)
  }
}

@Suite struct `the last output of a run` {
  @Test func `is that of the run, at most 200 lines`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    let a = try bench.pipe(runA), b = try bench.pipe(runB)
    for index in 0..<300 { try bench.write("a \(index)\n", a) }
    try bench.write("b\n", b)
    let last = bench.log.lastOutput(of: runA)
    #expect(last.lines == (100..<300).map { "a \($0)" })
    #expect(last.truncated && last.missing == nil)
    let other = bench.log.lastOutput(of: runB)
    #expect(other == LastOutput(lines: ["b"]))
  }

  @Test func `goes back to the file before this one`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    let a = try bench.pipe(runA)
    try bench.write("one\ntwo\n", a)
    #expect(bench.log.rotate(now: noon))
    try bench.write("three\n", a)
    #expect(bench.log.lastOutput(of: runA).lines == ["one", "two", "three"])
  }

  @Test func `is found in a large file where no mark is near, and where another run came after it`() throws {
    let scratch = try Scratch()
    let bench = try Bench(scratch)
    let a = try bench.pipe(runA)
    let line = String(repeating: "x", count: 999) + "\n"
    for _ in 0..<600 { try bench.write(line, a) }
    try bench.write("last\n", a)
    #expect(bench.log.lastOutput(of: runA).lines.last == "last")
    try bench.write("b\n", try bench.pipe(runB))
    #expect(bench.log.lastOutput(of: runA).lines.last == "last")
    #expect(bench.log.lastOutput(of: runA).lines.reduce(0) { $0 + $1.utf8.count } <= LastOutput.mostBytes)
    #expect(bench.log.lastOutput(of: runB).lines == ["b"])
  }
}

@Suite struct `what guardian and its logger say to each other` {
  @Test func `comes out as it went in`() throws {
    var spec = LogsSpec()
    spec.age = .hour
    spec.compress = .gzip
    spec.full = .wait
    let orders: [LogOrder] = [
      .configure(spec, directory: "/var/log/guardian"), .take(runA, service: try name("web")), .ended(runA),
      .show(7, runA, service: try name("web")), .finish,
    ]
    for order in orders { #expect(LogOrder(order.bytes) == order) }
    let news: [LogNews] = [
      .held(runA, service: try name("web")), .ready, .closed(runA),
      .shown(1, LastOutput(lines: ["a", "b"], truncated: true, missing: "why")), .trouble(try name("web"), "no space"),
      .recovered(try name("web"), dropped: 12), .note("text"),
    ]
    for one in news { #expect(LogNews(one.bytes) == one) }
  }

  @Test func `is refused where it is anything else, and never a trap`() throws {
    var state: UInt64 = 7
    let good = LogNews.shown(1, LastOutput(lines: ["a", "b"])).bytes
    for _ in 0..<2_000 {
      var bytes = good
      for _ in 0..<3 {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        bytes[Int(state >> 33) % bytes.count] = UInt8(truncatingIfNeeded: state >> 24)
      }
      _ = LogNews(bytes)
      _ = LogOrder(Array(bytes.prefix(Int(state >> 40) % bytes.count)))
    }
    #expect(LogOrder([]) == nil && LogNews([1, 2, 3]) == nil)
  }
}

/// A logger in a thread of its own, as its program runs it.
private final class Running: @unchecked Sendable {
  let scratch: Scratch
  let logger: Logger
  private let listener: Int32
  let connection: Int32
  private var thread = pthread_t()

  init(_ scratch: Scratch, _ change: (Logger) -> Void = { _ in }, spec: LogsSpec = LogsSpec()) throws {
    self.scratch = scratch
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: (scratch.path + "/sock").utf8) }
    let kind = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
    let (listener, connection) = (socket(AF_UNIX, kind, 0), socket(AF_UNIX, kind, 0))
    withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        _ = bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        _ = listen(listener, 4)
        _ = connect(connection, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    self.listener = listener
    self.connection = connection
    logger = try Logger(listener: listener, book: nil)
    change(logger)
    let box = Unmanaged.passRetained(logger)
    pthread_create(
      &thread, nil,
      { raw in
        if let raw { Unmanaged<Logger>.fromOpaque(raw).takeRetainedValue().run() }
        return nil
      }, box.toOpaque())
    give(.configure(spec, directory: scratch.path + "/logs"))
  }

  func give(_ order: LogOrder, _ descriptor: Int32 = -1) {
    let bytes = order.bytes
    _ = guardian_send_message(connection, bytes, bytes.count, descriptor)
  }

  /// The next news of which `pick` makes something, within ten seconds.
  func hear<R>(_ pick: (LogNews) -> R?) throws -> R {
    var bytes = [UInt8](repeating: 0, count: LogNews.largest)
    for _ in 0..<200 {
      var waiting = pollfd(fd: connection, events: Int16(POLLIN), revents: 0)
      _ = poll(&waiting, 1, 50)
      var passed: Int32 = -1
      let got = guardian_receive_message(connection, &bytes, bytes.count, &passed)
      if passed >= 0 { close(passed) }
      if got > 0, let news = LogNews(Array(bytes[..<Int(got)])), let found = pick(news) { return found }
    }
    throw LogFault("the logger said nothing")
  }

  func finish() {
    give(.finish)
    pthread_join(thread, nil)
    close(listener)
    close(connection)
  }
}

@Suite struct `a running logger` {
  /// A pipe with something in it.
  private func pipe(_ text: String) -> (read: Int32, write: Int32) {
    var ends: [Int32] = [-1, -1]
    _ = Glibc.pipe(&ends)
    _ = write(ends[1], text, text.utf8.count)
    return (ends[0], ends[1])
  }

  /// Fails so often before it reads.
  private final class Faults: @unchecked Sendable {
    var left = 3
  }

  @Test func `CASES 35: a read that fails is tried again within a second, is told, and nobody else is held up`()
    throws
  {
    let scratch = try Scratch()
    let faults = Faults()
    let bad = pipe("after all\n"), good = pipe("other\n")
    let running = try Running(
      scratch,
      { logger in
        logger.readCall = { descriptor, buffer, count in
          // Of the one service only: told by what is in its pipe.
          var waiting: Int32 = 0
          _ = ioctl(descriptor, UInt(FIONREAD), &waiting)
          if waiting == 10, faults.left > 0 {
            faults.left -= 1
            errno = ENOMEM
            return -1
          }
          return read(descriptor, buffer, count)
        }
      })
    running.give(.take(runA, service: try name("web")), bad.read)
    running.give(.take(runB, service: try name("other")), good.read)
    let told: String = try running.hear {
      if case .note(let text) = $0, text.contains("cannot be read") { text } else { nil }
    }
    #expect(told.contains("web") && told.contains("cannot allocate memory"))
    running.give(.show(1, runB, service: try name("other")))
    #expect(try running.hear { if case .shown(1, let output) = $0 { output.lines } else { nil } } == ["other"])
    for _ in 0..<100 where faults.left > 0 { usleep(50_000) }
    usleep(700_000)
    running.give(.show(2, runA, service: try name("web")))
    #expect(try running.hear { if case .shown(2, let output) = $0 { output.lines } else { nil } } == ["after all"])
    for end in [bad.read, bad.write, good.read, good.write] { close(end) }
    running.finish()
  }

  @Test func `gives duplicates of all that it holds to whoever comes, and says when nobody writes any more`() throws {
    let scratch = try Scratch()
    let running = try Running(scratch)
    let one = pipe("one\n")
    running.give(.take(runA, service: try name("web")), one.read)
    running.give(.configure(LogsSpec(), directory: scratch.path + "/logs"))
    let held: RunID = try running.hear { if case .held(let run, _) = $0 { run } else { nil } }
    #expect(held == runA)
    close(one.read)
    close(one.write)
    let closed: RunID = try running.hear { if case .closed(let run) = $0 { run } else { nil } }
    #expect(closed == runA)
    running.finish()
    #expect(Array(Scratch.bytes(scratch.path + "/logs/web/current").suffix(4)) == Array("one\n".utf8))
  }

  @Test func `I9: all logs together are no more than is allowed; what is oldest goes first`()
    throws
  {
    let scratch = try Scratch()
    var spec = LogsSpec()
    spec.rotate = 32 << 10
    spec.total = 100 << 10
    let running = try Running(scratch, spec: spec)
    for index in 0..<6 {
      let run = RunID(high: 9, low: UInt64(index))
      let ends = pipe("")
      running.give(.take(run, service: try name("w\(index)")), ends.read)
      close(ends.read)
      let line = String(repeating: "x", count: 1_000) + "\n"
      for _ in 0..<60 { _ = write(ends.1, line, line.utf8.count) }
      close(ends.1)
      _ = try running.hear { if case .closed(run) = $0 { true } else { nil } }
    }
    running.finish()
    var total = 0
    for service in Scratch.names(scratch.path + "/logs") {
      for file in Scratch.names(scratch.path + "/logs/" + service) {
        total += Scratch.bytes("\(scratch.path)/logs/\(service)/\(file)").count
      }
    }
    // What one write brings may be above it for that moment.
    #expect(total <= (100 << 10) + (64 << 10), "\(total)")
    #expect(Scratch.names(scratch.path + "/logs/w5").contains("current"))
    #expect(!Scratch.names(scratch.path + "/logs/w0").contains { $0 != "current" })
  }
}

@Suite struct `a disk that hangs` {
  /// Lets one write wait until it is told to go on.
  private final class Disk: @unchecked Sendable {
    private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private var waits = true
    init() { pthread_mutex_init(lock, nil) }
    var hangs: Bool {
      get {
        pthread_mutex_lock(lock)
        defer { pthread_mutex_unlock(lock) }
        return waits
      }
      set {
        pthread_mutex_lock(lock)
        waits = newValue
        pthread_mutex_unlock(lock)
      }
    }
  }

  @Test func `D6: with 'full: drop' nobody waits for it, and what was dropped is counted, told, and said in the file`()
    throws
  {
    let scratch = try Scratch()
    let disk = Disk()
    let running = try Running(
      scratch,
      { logger in
        logger.watch.patience = .milliseconds(50)
        logger.watch.pause = .milliseconds(10)
        logger.room.writeCall = { file, bytes, count in
          while disk.hangs { usleep(5_000) }
          return write(file, bytes, count)
        }
      })
    var ends: [Int32] = [-1, -1]
    _ = pipe(&ends)
    running.give(.take(runA, service: try name("web")), ends[0])
    let line = [UInt8](repeating: UInt8(ascii: "x"), count: 999) + [10]
    // Many times what the pipe holds: whoever writes it would wait for ever.
    for _ in 0..<2_000 { #expect(write(ends[1], line, line.count) == line.count) }
    let why: String = try running.hear { if case .trouble(_, let why) = $0 { why } else { nil } }
    #expect(why == "the disk does not answer")
    disk.hangs = false
    _ = write(ends[1], "after\n", 6)
    let dropped: UInt64 = try running.hear { if case .recovered(_, let bytes) = $0, bytes > 0 { bytes } else { nil } }
    close(ends[0])
    close(ends[1])
    running.finish()
    let text = String(decoding: Scratch.bytes(scratch.path + "/logs/web/current"), as: UTF8.self)
    #expect(text.contains("bytes were dropped here: the disk does not answer"))
    // Every byte is in the file, or is counted.
    let kept = text.split(separator: "\n").filter { !$0.hasPrefix("#") }.reduce(0) { $0 + $1.utf8.count - 25 + 1 }
    #expect(kept + Int(dropped) >= 2_000_000 && text.hasSuffix("\n"), "\(kept) and \(dropped)")
  }
}
