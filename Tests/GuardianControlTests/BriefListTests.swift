@testable import GuardianControl
import GuardianModel
import Testing

@Suite struct `a brief list that is read at one look` {
  private let request = ControlRequest.list(names: nil, brief: true)

  private func message(_ services: [ServiceStatus], missing: [String] = [], continues: Bool = true) -> [UInt8] {
    var bytes: [UInt8] = []
    Reply.list(services, missing: missing, brief: true, continues: continues, into: &bytes)
    return Array(bytes.dropLast())
  }
  private func quick(_ bytes: [UInt8]) -> (list: SplicedList, services: [ServiceStatus])? {
    var services = [ServiceStatus(name: "before")]
    guard let list = bytes.withUnsafeBufferPointer({ decodeBriefList($0, into: &services) }) else {
      #expect(services.map(\.name) == ["before"])
      return nil
    }
    return (list, Array(services.dropFirst()))
  }
  private func usual(_ bytes: [UInt8]) -> [ServiceStatus]? {
    let reply = bytes.withUnsafeBufferPointer { decodeReply($0, to: request) }
    if case .success((.services(let services, _), _)) = reply { return services }
    return nil
  }

  private var services: [ServiceStatus] {
    var odd = settledService("odd")
    odd.settled = false
    odd.reason = "a \"quoted\" reason \u{1b}"
    var spoken = settledService("spoken")
    spoken.settled = false
    spoken.reason = "Käse, 漢字"
    spoken.strikes = 2
    spoken.restarts = 9
    spoken.kind = .task
    spoken.observe = true
    spoken.held = true
    return zoo + [odd, spoken, settledService("last")]
  }

  @Test func `is the same as by the usual way`() {
    let bytes = message(services)
    let found = quick(bytes)
    #expect(found?.services == usual(bytes))
    #expect(found?.services.count == services.count && found?.list == SplicedList(worst: 5, continues: true))
    #expect(quick(message([], continues: false))?.list == SplicedList(worst: 0, continues: false))
  }

  @Test func `says the same of a service that is well, whether all of it was looked at or not`() {
    for (uptime, restarts) in [(Int64(0), 0), (7_000, 3)] {
      var service = settledService("a \"b\"")
      service.uptimeMilliseconds = uptime
      service.restarts = restarts
      var short: [UInt8] = []
      Reply.list(brief: true, continues: true, into: &short) { list in
        list.addWell(service.name, uptimeMilliseconds: uptime, restarts: restarts)
      }
      #expect(Array(short.dropLast()) == message([service]))
    }
  }

  @Test func `leaves everything else to the usual way`() {
    #expect(quick(message(zoo, missing: ["nosuch"])) == nil)
    #expect(quick(Array(Reply.error(.noSuchService(name: "a")).dropLast())) == nil)
    #expect(quick([]) == nil && quick(Array("{\"parameters\":{\"services\":[".utf8)) == nil)
  }

  @Test func `that is cut or damaged anywhere traps nobody, and is not half read`() {
    let whole = message(services)
    for end in stride(from: 0, to: whole.count, by: 3) { #expect(quick(Array(whole[..<end])) == nil) }
    var noise = Noise(state: 11)
    for _ in 0..<2_000 {
      var bytes = whole
      bytes[Int.random(in: bytes.indices, using: &noise)] = UInt8.random(in: 0...255, using: &noise)
      // What both understand they understand alike.
      if let found = quick(bytes), let other = usual(bytes) { #expect(found.services == other) }
    }
  }
}
