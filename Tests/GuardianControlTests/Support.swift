import GuardianControl
import GuardianModel

/// Noise from a seed, the same everywhere: splitmix64.
struct Noise: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }
}

/// Gives `text` to a connection, in one piece, and takes what it makes of it.
func inputs(_ text: String) -> [ControlConnection.Input] { inputs(Array(text.utf8)) }
func inputs(_ bytes: [UInt8]) -> [ControlConnection.Input] {
  var connection = ControlConnection()
  bytes.withUnsafeBytes { connection.receive($0) }
  var result: [ControlConnection.Input] = []
  while let input = connection.next() { result.append(input) }
  return result
}

extension [UInt8] {
  var text: String { String(decoding: self, as: UTF8.self) }
  /// Without the NUL of a message.
  var message: String { String(decoding: last == 0 ? self.dropLast() : self[...], as: UTF8.self) }
}

/// What the client makes of what the server wrote.
func received(_ bytes: [UInt8], to request: ControlRequest) -> ReplyBody? {
  precondition(bytes.last == 0)
  return bytes.dropLast().withUnsafeBufferPointer {
    if case .success(let reply) = decodeReply($0, to: request) { reply.body } else { nil }
  }
}

/// 2026-03-01 12:00:00 UTC.
let noon = WallTime(nanoseconds: 1_772_366_400_000_000_000)

func settledService(_ name: String, hours: Int64 = 2) -> ServiceStatus {
  var s = ServiceStatus(name: name)
  s.wanted = .up
  s.phase = .running
  s.settled = true
  s.pid = 4242
  s.run = "0123456789abcdef0123456789abcdef"
  s.since = WallTime(nanoseconds: noon.nanoseconds - hours * 3_600_000_000_000)
  s.uptimeMilliseconds = hours * 3_600_000 + 780_000
  s.strikesAllowed = 3
  s.log = "journal"
  return s
}

func end(_ cause: String, _ crashClass: String, _ text: String, code: Int32? = nil) -> ServiceStatus.LastEnd {
  var end = ServiceStatus.LastEnd(
    cause: cause, crashClass: crashClass, at: WallTime(nanoseconds: noon.nanoseconds - 3_000_000_000),
    uptimeMilliseconds: 230, text: text)
  end.code = code
  return end
}

/// One of each kind that an operator meets.
let zoo: [ServiceStatus] = {
  var backing = ServiceStatus(name: "api")
  backing.wanted = .up
  backing.phase = .backingOff
  backing.strikes = 2
  backing.strikesAllowed = 3
  backing.restarts = 2
  backing.next = .init(
    action: "start", at: WallTime(nanoseconds: noon.nanoseconds + 3_200_000_000), inMilliseconds: 3200)
  backing.lastEnd = end("exit", "error-exit", "exit 1", code: 1)

  var repairing = ServiceStatus(name: "cache-with-a-rather-long-name")
  repairing.wanted = .up
  repairing.phase = .repairing
  repairing.step = .repair
  repairing.strikes = 0
  repairing.strikesAllowed = 2
  repairing.reason = "repair drop-cache runs, round 1"
  repairing.lastEnd = end("signal", "segv", "SIGSEGV (core dumped)")

  var degraded = settledService("web")
  degraded.description = "Shop front end"
  degraded.step = .safeMode
  degraded.degraded = true
  degraded.strikesAllowed = 2
  degraded.disabledPlugins = ["payments", "social"]
  var payments = PluginStatus(name: "payments")
  (payments.state, payments.off, payments.by, payments.suspicion) = (.off, true, "search", 961)
  payments.until = WallTime(nanoseconds: 1_790_000_000_000_000_000)
  payments.partner = "social"
  payments.files = [
    FileChange(path: "/etc/pay.conf", at: WallTime(nanoseconds: 1_790_000_000_000_000_000)),
    FileChange(path: "/etc/pay.key", at: nil),
  ]
  var social = PluginStatus(name: "social")
  (social.state, social.off, social.by, social.pinned) = (.off, true, "operator", true)
  degraded.plugins = [payments, social, PluginStatus(name: "maps")]
  degraded.reason = "runs without its plugins payments, social"
  degraded.next = .init(
    action: "retry", at: WallTime(nanoseconds: noon.nanoseconds + 79_200_000_000_000), inMilliseconds: 79_200_000)
  degraded.clears = "a start with plugins that settles, or 'guardianctl reset web'"
  degraded.runbook = "https://wiki.example/web"
  degraded.contact = "shop team"
  degraded.statusText = "12 workers\u{1b}[31m\nbusy"
  degraded.checks = [
    CheckStatus(
      name: "health", kind: "http", state: .passing, since: WallTime(nanoseconds: noon.nanoseconds - 60_000_000_000),
      text: "status 200", failures: 1),
    CheckStatus(
      name: "beat", kind: "file", state: .failing, since: WallTime(nanoseconds: noon.nanoseconds - 5_000_000_000),
      text: "not written for 2min\u{1b}[31m", failures: 3),
    CheckStatus(name: "port", kind: "tcp", state: .unknown, since: noon),
  ]
  degraded.notes = ["/srv/web/plugins/social.so is hidden as empty, not absent: overlays are missing here"]
  degraded.pendingDefinition = true
  degraded.lastEnd = end("signal", "segv", "SIGSEGV (core dumped)")

  var quarantined = ServiceStatus(name: "mailer")
  quarantined.wanted = .up
  quarantined.phase = .quarantined
  quarantined.step = .quarantine
  quarantined.reason = "7 strikes; the last: exit 78 after 20ms"
  quarantined.next = .init(
    action: "trial", at: WallTime(nanoseconds: noon.nanoseconds + 840_000_000_000), inMilliseconds: 840_000)
  quarantined.lastEnd = end("exit", "config", "exit 78", code: 78)
  quarantined.clears = "'guardianctl release mailer', or a change of its definition or executable"

  var stopped = ServiceStatus(name: "old")
  stopped.phase = .stopped
  return [backing, repairing, settledService("db"), quarantined, stopped, degraded]
}()
