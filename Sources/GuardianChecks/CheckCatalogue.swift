import GuardianModel

/// A probe that has begun.
protocol ProbeUnderWay: AnyObject {
  /// Descriptors whose readability is worth a look.
  var watched: [Int32] { get }
  /// What has come of it; nil: it is still under way. Called whenever something may have happened.
  func look() -> ProbeResult?
  /// Its time is over, or nobody wants the answer any more. Whatever cannot be ended at once goes on to `ending`.
  func end()
  /// Something of it is still there after its end, and must be gone before the check is probed again.
  var isEnding: Bool { get }
}

extension ProbeUnderWay {
  var watched: [Int32] { [] }
  var isEnding: Bool { false }
}

/// Begins probes of every kind: the one list of what kinds there are. Each has a file of its own.
struct CheckCatalogue {
  let curl = Curl()
  let programs: Programs
  let files = Files()

  func begin(_ probe: ProbeOrder.Probe, timeout: Duration) -> any ProbeUnderWay {
    switch probe {
    case .http(let http): HTTPCheck(http, timeout: timeout, curl)
    case .tcp(let tcp): TCPCheck(tcp, timeout: timeout, curl)
    case .exec(let exec): ExecCheck(exec, programs)
    case .file(let file): FileCheck(file, files)
    }
  }
}

/// A probe that was over before it began.
final class Stillborn: ProbeUnderWay {
  private let result: ProbeResult
  init(_ result: ProbeResult) { self.result = result }
  func look() -> ProbeResult? { result }
  func end() {}
}

/// One line of at most 200 bytes, without control characters, for people.
func oneLine(_ bytes: some Sequence<UInt8>) -> String {
  let text = String(
    decoding: bytes.prefix(512).prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") }, as: UTF8.self)
  var line = ""
  for scalar in text.unicodeScalars {
    let plain = scalar.value >= 0x20 && !(0x7f...0x9f).contains(scalar.value) && scalar.value & ~1 != 0x2028
    let next = plain ? Character(scalar) : "?"
    if line.utf8.count + next.utf8.count > 200 { break }
    line.append(next)
  }
  return line
}
