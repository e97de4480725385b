import GuardianModel
import Testing

@testable import GuardianRuntime

@Suite struct `how long systemd waits for guardian` {
  private func found(_ files: [String: String]) -> (Duration, String)? {
    let grace = StopGrace.find(
      read: { files[$0] },
      list: { directory in
        files.keys.filter { $0.hasPrefix(directory + "/") }.map { String($0.dropFirst(directory.utf8.count + 1)) }
          .filter { !$0.contains("/") }
      })
    return grace.map { ($0.time, $0.source) }
  }
  private let unit = "/usr/lib/systemd/system/guardian.service"

  @Test func `is nobody's business where no unit is installed`() {
    #expect(found([:]) == nil)
    #expect(found(["/etc/systemd/system.conf": "[Manager]\nDefaultTimeoutStopSec=10"]) == nil)
  }

  @Test func `is the unit's, else the manager's, else 90 s`() throws {
    #expect(try #require(found([unit: "[Service]\nType=notify\n"])).0 == .seconds(90))
    let manager = [
      unit: "[Service]\n",
      "/etc/systemd/system.conf": "[Manager]\n#DefaultTimeoutStopSec=5\nDefaultTimeoutStopSec = 45s\n",
    ]
    #expect(try #require(found(manager)) == (.seconds(45), "'DefaultTimeoutStopSec=45s' in /etc/systemd/system.conf"))
    var own = manager
    own[unit] = "[Unit]\nTimeoutStopSec=1\n[Service]\nTimeoutStopSec=2min 30s\n"
    #expect(try #require(found(own)) == (.seconds(150), "'TimeoutStopSec=2min 30s' in \(unit)"))
    own["/etc/systemd/system/guardian.service.d/20-b.conf"] = "[Service]\nTimeoutSec=20\n"
    own["/etc/systemd/system/guardian.service.d/10-a.conf"] = "[Service]\nTimeoutStopSec=10\n"
    #expect(try #require(found(own)).0 == .seconds(20))
    own["/etc/systemd/system/guardian.service"] = "[Service]\n"
    own["/etc/systemd/system/guardian.service.d/30-c.conf"] = "[Service]\nTimeoutStopSec=\n"
    #expect(try #require(found(own)).0 == .seconds(45))
    own["/etc/systemd/system/guardian.service.d/40-d.conf"] = "[Service]\nTimeoutStopSec=infinity\n"
    #expect(found(own) == nil)
  }

  @Test(
    arguments: [
      ("90", 90_000), ("1min30s", 90_000), ("1m 30s", 90_000), ("500ms", 500), ("2 h", 7_200_000), ("infinity", nil),
      ("0", nil),
      ("", nil), ("99999999999999", nil), ("5 parsecs", nil),
    ] as [(String, Int64?)])
  func `is read as systemd_time has it`(_ text: String, _ milliseconds: Int64?) {
    #expect(StopGrace.time(text)?.milliseconds == milliseconds)
  }
}
