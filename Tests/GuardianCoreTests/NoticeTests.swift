import GuardianModel
import Testing

@testable import GuardianCore

@Suite struct `notices of one service` {
  private func at(_ seconds: Int64) -> BootInstant { BootInstant(nanoseconds: seconds * 1_000_000_000) }

  @Test func `tell the same once in five minutes, and then how often it was left out`() {
    var log = NoticeLog()
    #expect(log.admit(.onCrash, about: 1, now: at(0)) == 0)
    for second in 1...7 { #expect(log.admit(.onCrash, about: 1, now: at(Int64(second))) == nil) }
    #expect(log.admit(.onCrash, about: 2, now: at(8)) == 0, "another crash is news")
    #expect(log.admit(.onEscalation, about: 1, now: at(8)) == 0, "another kind is news")
    #expect(log.admit(.onCrash, about: 1, now: at(299)) == nil)
    #expect(log.admit(.onCrash, about: 1, now: at(300)) == 8)
    #expect(log.admit(.onCrash, about: 1, now: at(600)) == 0)
  }

  @Test func `are ten in five minutes at most, beside a quarantine; what is left out is counted with the next`() {
    var log = NoticeLog()
    for number in 0..<10 { #expect(log.admit(.onCrash, about: UInt64(number), now: at(0)) == 0) }
    for number in 10..<15 { #expect(log.admit(.onCrash, about: UInt64(number), now: at(1)) == nil) }
    #expect(log.admit(.onQuarantine, about: 1, now: at(2)) == 5)
    #expect(log.admit(.onCrash, about: 99, now: at(3)) == nil)
    #expect(log.admit(.onCrash, about: 99, now: at(300)) == 1)
  }

  @Test func `tell of a recovery again when there was new trouble, and not before`() {
    var log = NoticeLog()
    #expect(log.admit(.onCrash, about: 1, now: at(0)) == 0)
    #expect(log.admit(.onRecovery, about: 0, now: at(1)) == 0)
    #expect(log.admit(.onRecovery, about: 0, now: at(2)) == nil)
    #expect(log.admit(.onCrash, about: 1, now: at(3)) == nil, "it has been told")
    #expect(log.admit(.onRecovery, about: 0, now: at(4)) == nil)
    #expect(log.admit(.onCrash, about: 2, now: at(5)) == 0)
    #expect(log.admit(.onRecovery, about: 0, now: at(6)) == 2)
  }

  @Test func `lose no count when a reason is forgotten`() {
    var log = NoticeLog()
    var now: Int64 = 0, told = 0, asked = 0, spokenFor = 0
    for round in 0..<40 {
      for _ in 0..<3 {
        asked += 1
        if let count = log.admit(.onCrash, about: UInt64(round), now: at(now)) {
          told += 1
          spokenFor += count
        }
      }
      now += 40
    }
    now += 1000
    for number in 0..<40 {
      asked += 1
      if let count = log.admit(.onCrash, about: UInt64(number), now: at(now)) {
        told += 1
        spokenFor += count
      }
      now += 40
    }
    #expect(told + spokenFor == asked, "\(told) + \(spokenFor) of \(asked)")
  }

  @Test func `are limited for the host too, and urgent ones get through for longer`() {
    var budget = NoticeBudget()
    #expect(budget.left(now: at(0)) == (60, 240))
    budget.spend(60, now: at(0))
    #expect(budget.left(now: at(1)) == (0, 180))
    var log = NoticeLog()
    #expect(log.admit(.onCrash, about: 1, now: at(1), hasRoom: false) == nil)
    #expect(log.admit(.onCrash, about: 1, now: at(2), hasRoom: true) == 1)
    #expect(budget.left(now: at(300)) == (60, 240))
  }
}

private func notices(_ talk: Conversation) -> [HookRequest] {
  talk.actions.compactMap { if case .notify(let request) = $0 { request } else { nil } }
}
private func kinds(_ talk: Conversation) -> [String] { notices(talk).map(\.purpose.name) }

@Suite struct `a service with notices` {
  private func talk(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    Conversation(
      service {
        for kind in NoticeKind.allCases { $0.notices[kind] = ["/bin/tell"] }
        $0.escalation.safeMode = 0
        change(&$0)
      })
  }

  @Test func `tells of a crash loop once, of each step and of quarantine, and says what it left out`() {
    var talk = talk()
    for _ in 0..<20 where talk.phase != .quarantined {
      talk.end()
      talk.pass(.seconds(17))
    }
    #expect(talk.phase == .quarantined)
    #expect(kinds(talk) == ["on-crash", "on-escalation", "on-quarantine"], "\(kinds(talk))")
    #expect(talk.count("ended") > 3)
    talk.pass(.minute * 16)
    talk.end()
    #expect(kinds(talk).last == "on-crash")
    #expect((notices(talk).last?.context.suppressed ?? 0) > 2)
  }

  @Test func `tells of its recovery once, when it has settled after a strike, and not when it just settles`() {
    var talk = talk()
    talk.settle()
    #expect(kinds(talk).isEmpty)
    talk.order(.restart)
    talk.end(.signal(.term, core: false))
    talk.settle()
    #expect(kinds(talk).isEmpty, "an order is no trouble")
    talk.order(.restart)
    talk.end(.signal(.term, core: false))
    talk.end()
    talk.pass(.seconds(1))
    talk.end()
    talk.pass(.seconds(1))
    talk.settle()
    talk.pass(.minute * 60)
    #expect(kinds(talk).count { $0 == "on-recovery" } == 1, "\(kinds(talk))")
  }

  @Test func `tells of its recovery when a trial has settled`() {
    var talk = talk()
    for _ in 0..<20 where talk.phase != .quarantined {
      talk.end()
      talk.pass(.seconds(17))
    }
    talk.pass(.minute * 16)
    talk.settle()
    talk.pass(.minute * 60)
    #expect(kinds(talk).count { $0 == "on-recovery" } == 1, "\(kinds(talk))")
    #expect(kinds(talk).last == "on-recovery")
  }
}

@Suite struct `notices of many services` {
  @Test func `are sixty in five minutes, with quarantines two hundred and forty`() throws {
    var spec = service {
      $0.notices = [.onCrash: ["/bin/tell"], .onQuarantine: ["/bin/tell"]]
      $0.fatalExit = [3]
    }
    var fleet = Fleet(seed: (1, 2, 3, 4))
    let now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 1_790_000_000_000_000_000))
    var told: [String: Int] = [:]
    func listen(_ fleet: inout Fleet) -> [(ServiceID, RunID)] {
      var runs: [(ServiceID, RunID)] = []
      while true {
        let output = fleet.takeOutput()
        if output.isEmpty { return runs }
        for case .act(let id, let action) in output {
          switch action {
          case .save(_, let ticket): fleet.handle(.saved(ticket), for: id, now: now)
          case .examine(let report): fleet.handle(.examined(report.end.run, Finding()), for: id, now: now)
          case .spawn(let request): runs.append((id, request.run))
          case .notify(let request): told[request.purpose.name, default: 0] += 1
          default: break
          }
        }
      }
    }
    for number in 0..<300 {
      spec.name = try #require(ServiceName("s\(number)"))
      let id = fleet.add(spec, record: nil, now: now)
      fleet.handle(.begin, for: id, now: now)
      for (id, run) in listen(&fleet) {
        fleet.handle(.spawned(run, pid: 7, executable: nil), for: id, now: now)
        fleet.handle(.ended(run, Death(.code(3))), for: id, now: now)
        fleet.handle(.emptied(run), for: id, now: now)
        _ = listen(&fleet)
      }
    }
    // A crash and a quarantine of each; both draw on the same budget.
    #expect(told == ["on-crash": 30, "on-quarantine": 210], "\(told)")
  }
}
