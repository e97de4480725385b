import GuardianLinux
import GuardianModel

/// One notification of a service, understood: sd_notify(3)'s lines, as far as guardian has a use for them.
struct NotifyMessage: Hashable {
  enum Item: Hashable {
    case ready, reloading, stopping, watchdogPing, watchdogTrigger
    case extendTimeout(Duration)
    /// Nil: no time, or none that can be meant.
    case watchdog(Duration?)
    /// Nil: no number of a process.
    case mainPid(Int32?)
    /// Bounded, and without anything that a terminal would obey.
    case status(String)
    case errorNumber(Int32)
    /// The descriptor that came along is to be closed when all that was said before has been handled.
    case barrier
    /// FDSTORE, which guardian does not do.
    case store
  }
  var items: [Item] = []
  /// MONOTONIC_USEC: when what is told began.
  var stamp: Instant?

  /// As many lines as fit: a bound on the work that one datagram makes.
  static let lines = 64

  /// Whole lines only, keys and values exactly as documented; what is unknown or out of range is skipped, since newer
  /// services may say more than this guardian knows.
  init(_ bytes: [UInt8]) {
    for line in bytes.split(separator: UInt8(ascii: "\n"), maxSplits: Self.lines).prefix(Self.lines) {
      guard let equals = line.firstIndex(of: UInt8(ascii: "=")) else { continue }
      read(line[..<equals], line[(equals + 1)...])
    }
  }

  private mutating func read(_ key: ArraySlice<UInt8>, _ value: ArraySlice<UInt8>) {
    func isKey(_ text: StaticString) -> Bool {
      text.withUTF8Buffer { $0.elementsEqual(key) }
    }
    func isValue(_ text: StaticString) -> Bool {
      text.withUTF8Buffer { $0.elementsEqual(value) }
    }
    func isOne(_ item: Item) { if isValue("1") { items.append(item) } }
    /// Microseconds; nil for what is no number. Text that is too long to be one is not looked at.
    func time() -> Duration? {
      guard value.count <= 20, let number = UInt64(String(decoding: value, as: UTF8.self)) else { return nil }
      // No time-out is longer than a century.
      return .microseconds(Int64(min(number, 100 * 366 * 86_400 * 1_000_000)))
    }
    if isKey("READY") {
      isOne(.ready)
    } else if isKey("RELOADING") {
      isOne(.reloading)
    } else if isKey("STOPPING") {
      isOne(.stopping)
    } else if isKey("WATCHDOG") {
      isOne(.watchdogPing)
      if isValue("trigger") { items.append(.watchdogTrigger) }
    } else if isKey("EXTEND_TIMEOUT_USEC") {
      if let time = time(), time > .zero { items.append(.extendTimeout(time)) }
    } else if isKey("WATCHDOG_USEC") {
      items.append(.watchdog(time()))
    } else if isKey("MONOTONIC_USEC") {
      stamp = time().map { Instant(nanoseconds: 0) + $0 }
    } else if isKey("MAINPID") {
      items.append(.mainPid(value.count <= 11 ? Int32(String(decoding: value, as: UTF8.self)) : nil))
    } else if isKey("STATUS") {
      items.append(.status(printable(String(decoding: value, as: UTF8.self), atMost: 256)))
    } else if isKey("ERRNO") {
      if value.count <= 4, let number = Int32(String(decoding: value, as: UTF8.self)), (0...4095).contains(number) {
        items.append(.errorNumber(number))
      }
    } else if isKey("BARRIER") {
      isOne(.barrier)
    } else if isKey("FDSTORE") {
      isOne(.store)
    }
  }
}
