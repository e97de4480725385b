import CCurl
import Glibc
import GuardianLinux
import GuardianModel

/// A file is written to again and again.
///
/// Looking at it may block for ever, as on a file system whose server is gone, so that each look has a thread of its own.
final class FileCheck: ProbeUnderWay {
  private let probe: FileProbe
  private let files: Files
  private var look_: Files.Look?

  init(_ probe: FileProbe, _ files: Files) {
    self.probe = probe
    self.files = files
    look_ = files.begin(probe.path)
  }

  var watched: [Int32] { [look_?.descriptor].compactMap { $0 } }

  func look() -> ProbeResult? {
    guard let look_ else { return .notMade("too many looks at files hang, or there is no thread to be had") }
    guard let seen = look_.result else { return nil }
    switch seen {
    case .failure(let error):
      files.forget(probe.path)
      return .failed(ErrnoText.reason(error))
    case .success(let written):
      let now = FileMemory.Now(monotonic: SystemClocks.monotonic(), wall: SystemClocks.now().wall)
      let age = files.memory(of: probe.path, written: written, now)
      return Self.judge(age, within: probe.within)
    }
  }
  func end() {}
  var isEnding: Bool { look_.map { $0.result == nil } ?? false }

  static func judge(_ age: Duration, within: Duration) -> ProbeResult {
    let shown = Duration.seconds(age.components.seconds).description
    return age <= within
      ? .passed("written \(shown) ago") : .failed("not written for \(shown), allowed is \(within.description)")
  }
}

/// How old a file is, by a clock that nobody sets: what has been seen to change is as old as that is long ago.
struct FileMemory {
  struct Now {
    var monotonic: Instant, wall: WallTime
  }
  private var written: WallTime
  private var since: Instant
  private var ageThen: Duration

  /// First seen: as old as it says, and not from the future.
  init(written: WallTime, _ now: Now) {
    self.written = written
    since = now.monotonic
    ageThen = max(.zero, .nanoseconds(now.wall.nanoseconds.subtractingSaturating(written.nanoseconds)))
  }

  mutating func age(written: WallTime, _ now: Now) -> Duration {
    if written != self.written {
      // Written to since the last look, at a time that only the wall clock tells; it may have been set.
      let claimed = Duration.nanoseconds(now.wall.nanoseconds.subtractingSaturating(written.nanoseconds))
      ageThen = min(max(.zero, claimed), now.monotonic - since)
      self.written = written
      since = now.monotonic
      seen = now.monotonic
      return ageThen
    }
    seen = now.monotonic
    return ageThen + (now.monotonic - since)
  }
  private(set) var seen = Instant.zero
}

final class Files {
  /// One look, on its own thread.
  final class Look: @unchecked Sendable {
    private let path: String
    /// Readable once there is a result.
    let descriptor: Int32
    // Written by the thread before it writes to the descriptor, and read after that.
    private var written: Result<WallTime, Failure>?
    private var isOver = false
    struct Failure: Error { var errno: Int32 }

    fileprivate init?(_ path: String) {
      self.path = path
      descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
      if descriptor < 0 { return nil }
    }
    deinit { close(descriptor) }

    enum Seen {
      case success(WallTime), failure(Int32)
    }
    var result: Seen? {
      if !isOver {
        var count: UInt64 = 0
        guard read(descriptor, &count, 8) == 8 else { return nil }
        isOver = true
      }
      switch written {
      case .success(let time)?: return .success(time)
      case .failure(let failure)?: return .failure(failure.errno)
      case nil: return nil
      }
    }

    fileprivate func run() {
      var about = stat()
      if stat(path, &about) == 0 {
        written = .success(
          WallTime(
            nanoseconds: Int64(about.st_mtim.tv_sec).multipliedReportingOverflow(by: 1_000_000_000).partialValue
              .addingSaturating(Int64(about.st_mtim.tv_nsec))))
      } else {
        written = .failure(Failure(errno: errno))
      }
      var one: UInt64 = 1
      while write(descriptor, &one, 8) < 0, errno == EINTR {}
    }
  }

  private var memories: [String: FileMemory] = [:]
  private var hanging: [Look] = []
  private static let mostHanging = 64, mostMemories = 4096

  /// Nil where no thread can be had, or too many hang already.
  func begin(_ path: String) -> Look? {
    hanging.removeAll { $0.result != nil }
    guard hanging.count < Self.mostHanging, let look = Look(path) else { return nil }
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    pthread_attr_setstacksize(&attributes, 256 << 10)
    var thread = pthread_t()
    let box = Unmanaged.passRetained(look)
    let result = pthread_create(
      &thread, &attributes,
      { argument in
        if let argument { Unmanaged<Look>.fromOpaque(argument).takeRetainedValue().run() }
        return nil
      }, box.toOpaque())
    if result != 0 {
      box.release()
      return nil
    }
    hanging.append(look)
    return look
  }

  func memory(of path: String, written: WallTime, _ now: FileMemory.Now) -> Duration {
    if memories.count >= Self.mostMemories, memories[path] == nil,
      let oldest = memories.min(by: { $0.value.seen < $1.value.seen })
    {
      memories[oldest.key] = nil
    }
    var memory = memories[path] ?? FileMemory(written: written, now)
    defer { memories[path] = memory }
    return memory.age(written: written, now)
  }
  func forget(_ path: String) { memories[path] = nil }
}
