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
