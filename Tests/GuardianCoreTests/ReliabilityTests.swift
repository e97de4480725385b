import GuardianCore
import GuardianModel
import Testing

/// Rows of the list of what must hold that are the machine's alone.
@Suite struct `a crash` {
  struct Edge: CustomTestStringConvertible {
    var text: String
    /// From the window's end.
    var offset: Duration
    /// The window's end and the death are heard of in one turn.
    var sameTurn = false
    var isStrike: Bool
    var testDescription: String { text }
  }

  @Test(
    arguments: [
      Edge(text: "1 ms before it", offset: .milliseconds(-1), isStrike: true),
      Edge(text: "at it", offset: .zero, sameTurn: true, isStrike: true),
      Edge(text: "at it, when the window's end came first", offset: .zero, isStrike: false),
      Edge(text: "1 ms after it", offset: .milliseconds(1), isStrike: false),
      Edge(text: "1 ms after it, heard of together with it", offset: .milliseconds(1), sameTurn: true, isStrike: true),
    ], [Readiness.none, .notify])
  func `D12: at the very edge of the startup window falls on the documented side, each time`(
    _ edge: Edge, _ ready: Readiness
  ) {
    func story() -> [String] {
      var talk = Conversation(service { $0.ready = ready })
      talk.exec()
      if ready == .notify {
        talk.pass(.seconds(5))
        talk.ready()
      }
      let window = talk.spec.startupWindow
      if edge.sameTurn {
        talk.pass(window - .milliseconds(1))
        talk.passWithoutTurn(edge.offset + .milliseconds(1))
      } else {
        talk.pass(window + edge.offset)
      }
      talk.tell(.ended(talk.run, Death(.code(1))))
      talk.tell(.emptied(talk.run))
      #expect(talk.count("strike") == (edge.isStrike ? 1 : 0))
      #expect(talk.count("late-death") == (edge.isStrike ? 0 : 1))
      #expect(talk.count("settled") == (edge.isStrike ? 0 : 1))
      talk.pass(.seconds(60))
      return talk.names()
    }
    #expect(story() == story())
  }

  @Test func `D14: of a service whose repair succeeds goes on up the ladder, and no repair runs more than promised`() {
    var talk = Conversation(
      fullService {
        $0.repairs.append(RepairSpec(name: "once", kind: .run(["/bin/once"])))
        $0.repairs[1].atMost = RunLimit(times: 1, within: .day)
      })
    var steps: [Step] = []
    for _ in 1...7 {
      talk.end()
      steps.append(talk.step)
      talk.pass(.seconds(70))
      talk.repairAll(.succeeded)
    }
    #expect(steps == [.restart, .restart, .repair, .repair, .safeMode, .safeMode, .quarantine])
    #expect(talk.hooks.map(\.purpose.name) == ["fix", "once", "fix"])
    let trials = talk.spawns.count
    talk.pass(.minute * 20)
    #expect(talk.spawns.count > trials, "the trial")
    #expect(talk.hooks.count == 3, "a trial repairs nothing")
  }

  @Test
  func `D16: just before it would settle, again and again, is a strike each time, told as a warning, and has an end`() {
    var talk = Conversation(service { $0.ready = .notify })
    var deaths = 0
    while talk.phase != .quarantined, deaths < 100 {
      talk.ready()
      talk.pass(talk.spec.startupWindow - .milliseconds(1))
      talk.end()
      deaths += 1
      #expect(talk.count("strike") == deaths && talk.count("settled") == 0)
      talk.pass(.minute)
    }
    #expect(deaths == 7)
    #expect(talk.status.reason.contains("7"), "\(talk.status.reason)")
  }

  @Test func `D16: just after it has settled, again and again, costs the late budget and then strikes`() {
    var talk = Conversation(service { $0.ready = .notify })
    var deaths = 0
    while talk.phase != .quarantined, deaths < 100 {
      talk.ready()
      talk.pass(talk.spec.startupWindow)
      talk.end()
      deaths += 1
      talk.pass(.minute)
    }
    // Five within the hour are free; settling clears no strike while there are more than that.
    #expect(deaths == 12)
    #expect(talk.count("late-death") == 5 && talk.count("strike") == 7)
  }
}
