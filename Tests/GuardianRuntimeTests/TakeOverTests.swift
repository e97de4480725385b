import GuardianModel
import Testing

@testable import GuardianRuntime

/// splitmix64.
private struct Noise: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }
}

@Suite struct `a snapshot for the next image` {
  static let full: TakeOver = {
    var all = TakeOver()
    all.version = "0.9.0"
    all.pid = 4711
    all.program = "/usr/bin/guardian"
    all.oldProgram = 3
    all.arguments = ["--config", "/c", ""]
    all.at = Now(
      monotonic: Instant(nanoseconds: 5), boot: BootInstant(nanoseconds: .max), wall: WallTime(nanoseconds: -1))
    all.locks = [TakeOver.Held(path: "/run/guardian", descriptor: 4), TakeOver.Held(path: "/s", descriptor: 5)]
    all.listener = TakeOver.Held(path: "/run/guardian/control.sock", descriptor: 6)
    var web = TakeOver.Service(name: "web")
    web.record = [1, 2, 0, 255]
    web.notify = TakeOver.Held(path: "/run/guardian/notify/web", descriptor: 7)
    var run = TakeOver.Run(id: RunID(high: .max, low: 1), pid: 99)
    run.readiness = 8
    run.journal = 9
    run.sentKill = true
    run.oomKills = .max
    run.draining = true
    web.run = run
    web.statusText = "serving, ü"
    web.log = "journal"
    web.notes = ["one", ""]
    web.repairs = "fix done"
    web.repairRound = 2
    web.droppedNotifications = 3
    all.services = [web, TakeOver.Service(name: "idle")]
    all.orders = [
      TakeOver.Order(request: 5, service: "web", goal: .stopped, note: "n"),
      TakeOver.Order(request: 6, service: "web", goal: .failed, note: ""),
    ]
    var clients: [TakeOver.Client] = []
    for (number, waits) in [
      TakeOver.Client.Waits.nothing, .order(request: 5, name: "web", oneway: true),
      .list(names: ["b", "c"], next: 0, missing: ["x"], brief: true), .reload(oneway: false), .upgrade(oneway: false),
    ].enumerated() {
      var client = TakeOver.Client(descriptor: 20 + Int32(number))
      client.input = [UInt8](repeating: 7, count: number)
      client.output = [UInt8](repeating: 0, count: 100_000 * number)
      client.closing = number == 2
      client.waits = waits
      clients.append(client)
    }
    all.clients = clients
    all.host.softOpenFiles = 1024
    all.host.inherited = [17, 18]
    all.lastRequest = .max
    return all
  }()

  @Test func `comes over whole`() throws {
    #expect(try TakeOver(decoding: Self.full.encode()) == Self.full)
    #expect(try TakeOver(decoding: TakeOver().encode()) == TakeOver())
    #expect(Set(Self.full.descriptors) == Set(Array(3...9) + Array(20...24)))
  }

  @Test func `goes on with a list where it was`() throws {
    var all = TakeOver()
    var client = TakeOver.Client(descriptor: 9)
    client.waits = .list(names: ["a", "b", "c"], next: 2, missing: [], brief: false)
    all.clients = [client]
    #expect(
      try TakeOver(decoding: all.encode()).clients.first?.waits
        == .list(names: ["c"], next: 0, missing: [], brief: false))
  }

  @Test func `of another format, or none at all, is refused`() {
    #expect(throws: TakeOverFault("that is no snapshot of a guardian")) { try TakeOver(decoding: []) }
    #expect(throws: TakeOverFault("that is no snapshot of a guardian")) {
      try TakeOver(decoding: [UInt8](repeating: 0, count: 5000))
    }
    var other = TakeOver().encode()
    other["guardian-takeover".utf8.count] = 77
    #expect(throws: TakeOverFault("the snapshot has format 77, and this guardian knows 1")) {
      try TakeOver(decoding: other)
    }
  }

  @Test func `with a descriptor twice, or one of the standard three, is refused`() {
    var all = TakeOver()
    all.oldProgram = 9
    all.clients = [TakeOver.Client(descriptor: 9)]
    #expect(throws: TakeOverFault("the snapshot names a descriptor twice")) { try TakeOver(decoding: all.encode()) }
    all.clients = [TakeOver.Client(descriptor: 2)]
    #expect(throws: TakeOverFault("the snapshot names a descriptor that cannot be one")) {
      try TakeOver(decoding: all.encode())
    }
  }

  @Test func `cut off anywhere, or with any byte changed, is refused`() {
    var small = Self.full
    for index in small.clients.indices { small.clients[index].output = [1] }
    let bytes = small.encode()
    for length in 0..<bytes.count {
      #expect(throws: TakeOverFault.self) { try TakeOver(decoding: Array(bytes[..<length])) }
    }
    for place in bytes.indices {
      var changed = bytes
      changed[place] ^= 1 << UInt8(place % 8)
      #expect(throws: TakeOverFault.self) { try TakeOver(decoding: changed) }
    }
  }

  /// The checksum keeps such bytes out in earnest; here they come with the right one.
  @Test(arguments: UInt64(1)...20)
  func `of noise behind a good head never traps`(seed: UInt64) {
    var noise = Noise(state: seed)
    var small = Self.full
    for index in small.clients.indices { small.clients[index].output = [1] }
    let good = small.encode()
    let head = "guardian-takeover".utf8.count + 20
    for _ in 0..<500 {
      var body = Array(good[head...])
      if Bool.random(using: &noise) {
        body = (0..<Int.random(in: 0...200, using: &noise)).map { _ in UInt8.random(in: 0...255, using: &noise) }
      } else {
        for _ in 0..<Int.random(in: 1...6, using: &noise) {
          body[Int.random(in: body.indices, using: &noise)] = UInt8.random(in: 0...255, using: &noise)
        }
      }
      _ = try? TakeOver(decoding: TakeOver.framed(body))
    }
  }
}
