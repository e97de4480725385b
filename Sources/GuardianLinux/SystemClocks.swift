import CSystemd
import Glibc
package import GuardianModel

/// The kernel's clocks. Read by the shell once per turn, and by nothing else.
package enum SystemClocks {
  package static func now() -> Now {
    Now(
      monotonic: Instant(nanoseconds: read(CLOCK_MONOTONIC)), boot: BootInstant(nanoseconds: read(CLOCK_BOOTTIME)),
      wall: WallTime(nanoseconds: read(CLOCK_REALTIME)))
  }

  package static func monotonic() -> Instant { Instant(nanoseconds: read(CLOCK_MONOTONIC)) }

  /// Hours, minutes and seconds of `wall` where this process lives: `14:03:59`.
  package static func timeOfDay(_ wall: WallTime) -> String {
    var seconds = time_t(wall.nanoseconds / 1_000_000_000)
    var parts = tm()
    localtime_r(&seconds, &parts)
    func two(_ value: Int32) -> String { value < 10 ? "0\(value)" : "\(value)" }
    return "\(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec))"
  }

  /// How far the local time at `wall` is ahead of UTC, in seconds.
  package static func utcOffset(at wall: WallTime) -> Int {
    var seconds = time_t(wall.nanoseconds / 1_000_000_000)
    var parts = tm()
    localtime_r(&seconds, &parts)
    return parts.tm_gmtoff
  }

  private static func read(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000).partialValue.addingSaturating(
      Int64(time.tv_nsec))
  }
}

/// 256 bits from the kernel; never blocks after boot.
///
/// - Source: getrandom(2). With GRND_NONBLOCK a machine whose pool is not ready yet gets the clocks instead: run ids
///   have to differ, not to be secret.
package func randomSeed() -> (UInt64, UInt64, UInt64, UInt64) {
  var words: [UInt64] = [0, 0, 0, 0]
  let got = words.withUnsafeMutableBytes { getrandom($0.baseAddress, $0.count, UInt32(GRND_NONBLOCK)) }
  if got != 32 {
    let now = SystemClocks.now()
    words = [
      UInt64(bitPattern: now.wall.nanoseconds), UInt64(bitPattern: now.monotonic.nanoseconds),
      UInt64(bitPattern: now.boot.nanoseconds) ^ 0x9e37_79b9_7f4a_7c15, UInt64(UInt32(bitPattern: getpid())),
    ]
  }
  return (words[0], words[1], words[2], words[3])
}
