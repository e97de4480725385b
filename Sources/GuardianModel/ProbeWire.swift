// What guardian and its companion `guardian-check` say to each other: one message each way, at most 64 KiB, over a
// socket that keeps messages apart. Both are of one build, yet neither trusts the other's bytes.

/// What guardian wants of `guardian-check`.
package struct ProbeOrder: Hashable, Sendable {
  /// Names the probe among all that are under way.
  package var number: UInt64
  package var work: Work
  package enum Work: Hashable, Sendable {
    /// Not wanted any more; no answer.
    case cancel
    /// - key: Names the check: of one key there is at most one probe at a time.
    indirect case probe(Probe, key: String, timeout: Duration)
  }
  package enum Probe: Hashable, Sendable {
    case http(HTTPProbe)
    case tcp(TCPProbe)
    case exec(ExecProbe)
    case file(FileProbe)
  }
  package init(number: UInt64, work: Work) {
    self.number = number
    self.work = work
  }
}

/// A program to be run for a check.
package struct ExecProbe: Hashable, Sendable {
  /// In its INVOCATION_ID, by which what belongs to it is known.
  package var run: RunID
  package var command: [String]
  /// `NAME=value`.
  package var environment: [String] = []
  package var directory: String?
  package var umask: UInt32 = 0o022
  /// Nil: that of `guardian-check`.
  package var identity: Identity?
  package init(run: RunID, command: [String]) {
    self.run = run
    self.command = command
  }
}

/// What came of an order.
package struct ProbeAnswer: Hashable, Sendable {
  package var number: UInt64
  package var result: ProbeResult
  package init(number: UInt64, result: ProbeResult) {
    self.number = number
    self.result = result
  }
}

extension ProbeOrder {
  /// Longer orders cannot be given.
  package static let largest = 65_536

  package var bytes: [UInt8] {
    var out = WireWriter()
    out.number(number)
    switch work {
    case .cancel: out.number(0)
    case .probe(let probe, let key, let timeout):
      switch probe {
      case .http(let http):
        out.number(1)
        out.text(http.url)
        out.optional(http.unix)
        out.number(UInt64(http.statuses.count))
        for status in http.statuses { out.number(UInt64(clamping: status)) }
        out.optional(http.body)
      case .tcp(.host(let host, let port)):
        out.number(2)
        out.text(host)
        out.number(UInt64(clamping: port))
      case .tcp(.unix(let path)):
        out.number(3)
        out.text(path)
      case .exec(let exec):
        out.number(4)
        out.number(exec.run.high)
        out.number(exec.run.low)
        out.texts(exec.command)
        out.texts(exec.environment)
        out.optional(exec.directory)
        out.number(UInt64(exec.umask))
        out.number(exec.identity == nil ? 0 : 1)
        if let identity = exec.identity {
          out.texts([identity.user, identity.home, identity.shell])
          out.number(UInt64(identity.uid))
          out.number(UInt64(identity.gid))
          out.number(UInt64(identity.groups.count))
          for group in identity.groups { out.number(UInt64(group)) }
        }
      case .file(let file):
        out.number(5)
        out.text(file.path)
        out.number(UInt64(clamping: file.within.nanoseconds))
      }
      out.text(key)
      out.number(UInt64(clamping: timeout.nanoseconds))
    }
    return out.bytes
  }

  /// Nil for what is no order.
  package init?(_ bytes: [UInt8]) {
    var wire = WireReader(bytes)
    guard let number = wire.number(), let kind = wire.number() else { return nil }
    self.number = number
    let probe: Probe
    switch kind {
    case 0:
      work = .cancel
      return
    case 1:
      guard let url = wire.text(), let unix = wire.optional(), let count = wire.count() else { return nil }
      var http = HTTPProbe(url: url)
      http.unix = unix.value
      for _ in 0..<count {
        guard let status = wire.number() else { return nil }
        http.statuses.append(Int(clamping: status))
      }
      guard let body = wire.optional() else { return nil }
      http.body = body.value
      probe = .http(http)
    case 2:
      guard let host = wire.text(), let port = wire.number(), port <= 65_535 else { return nil }
      probe = .tcp(.host(host, port: Int(port)))
    case 3:
      guard let path = wire.text() else { return nil }
      probe = .tcp(.unix(path))
    case 4:
      guard let high = wire.number(), let low = wire.number(), let command = wire.texts(),
        let environment = wire.texts(), let directory = wire.optional(), let umask = wire.number(),
        let hasIdentity = wire.number()
      else { return nil }
      var exec = ExecProbe(run: RunID(high: high, low: low), command: command)
      exec.environment = environment
      exec.directory = directory.value
      exec.umask = UInt32(truncatingIfNeeded: umask) & 0o7777
      if hasIdentity != 0 {
        guard let words = wire.texts(), words.count == 3, let uid = wire.id(), let gid = wire.id(),
          let count = wire.count()
        else { return nil }
        var groups: [UInt32] = []
        for _ in 0..<count {
          guard let group = wire.id() else { return nil }
          groups.append(group)
        }
        exec.identity = Identity(
          user: words[0], uid: uid, gid: gid, groups: groups, home: words[1], shell: words[2])
      }
      probe = .exec(exec)
    case 5:
      guard let path = wire.text(), let within = wire.duration() else { return nil }
      probe = .file(FileProbe(path: path, within: within))
    default: return nil
    }
    guard let key = wire.text(), let timeout = wire.duration(), wire.isAtEnd else { return nil }
    work = .probe(probe, key: key, timeout: timeout)
  }
}

extension ProbeAnswer {
  package static let largest = 4096

  package var bytes: [UInt8] {
    var out = WireWriter()
    out.number(number)
    switch result {
    case .passed: out.number(1)
    case .failed: out.number(2)
    case .notMade: out.number(3)
    }
    out.text(String(decoding: Array(result.text.utf8.prefix(2048)), as: UTF8.self))
    return out.bytes
  }

  /// Nil for what is no answer.
  package init?(_ bytes: [UInt8]) {
    var wire = WireReader(bytes)
    guard let number = wire.number(), let kind = wire.number(), let text = wire.text(), wire.isAtEnd else { return nil }
    self.number = number
    switch kind {
    case 1: result = .passed(text)
    case 2: result = .failed(text)
    case 3: result = .notMade(text)
    default: return nil
    }
  }
}

/// Numbers of eight bytes, the lowest first; texts with their length before them.
struct WireWriter {
  var bytes: [UInt8] = []
  mutating func number(_ value: UInt64) {
    for shift in stride(from: UInt64(0), to: 64, by: 8) { bytes.append(UInt8(truncatingIfNeeded: value >> shift)) }
  }
  mutating func text(_ value: String) {
    number(UInt64(value.utf8.count))
    bytes += value.utf8
  }
  mutating func texts(_ values: [String]) {
    number(UInt64(values.count))
    for value in values { text(value) }
  }
  mutating func optional(_ value: String?) { texts(value.map { [$0] } ?? []) }
}

struct WireReader {
  private let bytes: [UInt8]
  private var place = 0
  init(_ bytes: [UInt8]) { self.bytes = bytes }
  var isAtEnd: Bool { place == bytes.count }

  mutating func number() -> UInt64? {
    guard bytes.count - place >= 8 else { return nil }
    var value: UInt64 = 0
    for index in (place..<place + 8).reversed() { value = value << 8 | UInt64(bytes[index]) }
    place += 8
    return value
  }
  /// Of things that each take at least eight bytes.
  mutating func count() -> Int? {
    guard let value = number(), value <= UInt64(bytes.count / 8) else { return nil }
    return Int(value)
  }
  mutating func id() -> UInt32? { number().flatMap { UInt32(exactly: $0) } }
  mutating func duration() -> Duration? {
    number().flatMap { Int64(exactly: $0) }.map { .nanoseconds($0) }
  }
  mutating func text() -> String? {
    guard let length = number(), length <= UInt64(bytes.count - place) else { return nil }
    defer { place += Int(length) }
    return String(decoding: bytes[place..<place + Int(length)], as: UTF8.self)
  }
  mutating func texts() -> [String]? {
    guard let count = count() else { return nil }
    var values: [String] = []
    for _ in 0..<count {
      guard let value = text() else { return nil }
      values.append(value)
    }
    return values
  }
  struct Optional { var value: String? }
  mutating func optional() -> Optional? {
    guard let values = texts(), values.count <= 1 else { return nil }
    return Optional(value: values.first)
  }
}
