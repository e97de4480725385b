import GuardianModel

/// One notification of a service, understood: sd_notify(3)'s lines, as far as guardian has a use for them.
struct NotifyMessage: Hashable {
  enum Item: Hashable {
    case ready, reloading, stopping, watchdogPing, watchdogTrigger
    case extendTimeout(Duration)
    /// Bounded, and without anything that a terminal would obey.
    case status(String)
  }
  var items: [Item] = []

  /// Whole lines only, keys and values exactly as documented; what is unknown or out of range is skipped, since newer
  /// services may say more than this guardian knows.
  init(_ bytes: [UInt8]) {
    // As many as fit: a bound on the work that one datagram makes.
    for line in bytes.split(separator: UInt8(ascii: "\n"), maxSplits: 64).prefix(64) {
      guard let equals = line.firstIndex(of: UInt8(ascii: "=")) else { continue }
      let key = line[..<equals]
      let value = line[(equals + 1)...]
      func isKey(_ text: StaticString) -> Bool {
        text.withUTF8Buffer { $0.elementsEqual(key) }
      }
      func isValue(_ text: StaticString) -> Bool {
        text.withUTF8Buffer { $0.elementsEqual(value) }
      }
      if isKey("READY") {
        if isValue("1") { items.append(.ready) }
      } else if isKey("RELOADING") {
        if isValue("1") { items.append(.reloading) }
      } else if isKey("STOPPING") {
        if isValue("1") { items.append(.stopping) }
      } else if isKey("WATCHDOG") {
        if isValue("1") { items.append(.watchdogPing) }
        if isValue("trigger") { items.append(.watchdogTrigger) }
      } else if isKey("EXTEND_TIMEOUT_USEC") {
        if let microseconds = UInt64(String(decoding: value, as: UTF8.self)), microseconds > 0 {
          items.append(.extendTimeout(.microseconds(Int64(clamping: microseconds))))
        }
      } else if isKey("STATUS") {
        items.append(.status(printable(String(decoding: value, as: UTF8.self), atMost: 256)))
      }
    }
  }
}
