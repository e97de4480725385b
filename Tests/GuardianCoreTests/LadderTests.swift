import GuardianCore
import GuardianModel
import Testing

@Suite struct `the ladder` {
  @Test
  func
    `with everything configured it restarts, repairs twice, enters safe mode, and quarantines at the seventh strike`()
  {
    var talk = Conversation(fullService())
    var steps: [Step] = []
    for _ in 1...7 {
      talk.end(.code(1))
      steps.append(talk.step)
      talk.pass(.seconds(70))
      talk.repairAll(.succeeded)
    }
    #expect(steps == [.restart, .restart, .repair, .repair, .safeMode, .safeMode, .quarantine])
    #expect(talk.hooks.count == 2)
    #expect(talk.spawns.map(\.request.mode) == ["normal", "normal", "normal", "normal", "normal", "safe", "safe"])
    #expect(talk.phase == .quarantined)
  }

  struct Case: CustomTestStringConvertible {
    var repairs: Bool, plugins: Bool
    var allowed: [Step: Int]
    var testDescription: String { "repairs \(repairs), plugins \(plugins)" }
  }
  @Test(arguments: [
    Case(repairs: false, plugins: false, allowed: [.restart: 7]),
    Case(repairs: true, plugins: false, allowed: [.restart: 5, .repair: 2]),
    Case(repairs: false, plugins: true, allowed: [.restart: 5, .safeMode: 2]),
    Case(repairs: true, plugins: true, allowed: [.restart: 3, .repair: 2, .safeMode: 2]),
  ])
  func `a skipped step's strikes are added to the restart step, so that nobody is given up before the seventh`(
    _ c: Case
  ) {
    let spec = fullService {
      if !c.repairs { $0.repairs = [] }
      if !c.plugins { $0.process.plugins = [] }
    }
    for (step, strikes) in c.allowed { #expect(spec.strikesAllowed(on: step) == strikes) }
    var talk = Conversation(spec)
    #expect(talk.dieOut() == 7)
  }

  @Test func `a skipped step is recorded`() {
    var talk = Conversation(service())
    _ = talk.dieOut()
    let moves = talk.occurrences.compactMap { kind -> [Step]? in
      if case .escalated(.restart, .quarantine, let skipped) = kind { skipped } else { nil }
    }
    #expect(moves == [[.repair, .safeMode]])
  }

  @Test func `it moves one step at a time, each strike counted from one on the step it fell on`() {
    var talk = Conversation(fullService())
    _ = talk.dieOut()
    var strikes: [String] = []
    for case .strike(let step, let count, let allowed) in talk.occurrences {
      strikes.append("\(step.rawValue) \(count)/\(allowed)")
    }
    #expect(
      strikes == [
        "restart 1/3", "restart 2/3", "restart 3/3", "repair 1/2", "repair 2/2", "safe-mode 1/2", "safe-mode 2/2",
      ])
    var moves: [String] = []
    for case .escalated(let from, let to, let skipped) in talk.occurrences {
      moves.append("\(from.rawValue)>\(to.rawValue)")
      #expect(skipped.isEmpty)
    }
    #expect(moves == ["restart>repair", "repair>safe-mode", "safe-mode>quarantine"])
  }

  @Test func `escalation off restarts for ever, with backoff`() {
    var talk = Conversation(fullService { $0.escalation.enabled = false })
    for _ in 1...40 {
      talk.end(.signal(.segv, core: true))
      talk.pass(.seconds(61))
    }
    #expect(talk.spawns.count == 41)
    #expect(talk.step == .restart)
    #expect(talk.hooks.isEmpty)
    #expect(talk.spawns.allSatisfy { $0.request.disabledPlugins.isEmpty })
  }

  @Test(arguments: [Ending.code(127), .code(126), .code(78), .signal(.sys, core: false)])
  func `what a restart cannot cure ends the restart step at its first strike`(_ status: Ending) {
    var talk = Conversation(fullService())
    talk.end(status)
    #expect(talk.step == .repair)
  }

  @Test(arguments: [Ending.code(127), .code(78)])
  func `what a restart cannot cure is not given up before the seventh strike where no other step has anything to do`(
    _ status: Ending
  ) {
    var talk = Conversation(service())
    #expect(talk.dieOut(status) == 7)
  }

  @Test func `an incurable death skips the repair step only where there is nothing to repair`() {
    var talk = Conversation(fullService { $0.repairs = [] })
    talk.end(.code(127))
    #expect(talk.step == .safeMode)
  }

  @Test func `settling clears strikes and delay, but not the step`() {
    var talk = Conversation(fullService())
    for _ in 1...2 { talk.crash() }
    talk.settle()
    #expect(talk.status.strikes == 0)
    #expect(talk.crash() == .zero, "the first late death restarts at once")
    talk.end(after: .seconds(1))
    #expect(talk.status.strikes == 1)
    for _ in 1...2 {
      talk.pass(.seconds(60))
      talk.end()
    }
    #expect(talk.step == .repair)
    talk.pass(.seconds(60))
    talk.repairAll(.succeeded)
    talk.settle()
    #expect(talk.step == .repair)
    #expect(talk.status.strikes == 0)
  }

  @Test func `the step goes down by one for each deescalate-after of settled running`() {
    var talk = Conversation(fullService())
    for _ in 1...3 {
      talk.end()
      talk.pass(.seconds(60))
    }
    talk.repairAll(.succeeded)
    talk.settle()
    #expect(talk.step == .repair)
    talk.pass(.hour - .seconds(1))
    #expect(talk.step == .repair)
    talk.pass(.seconds(1))
    #expect(talk.step == .restart)
  }

  @Test func `safe mode is not left by age, since leaving it needs a start with plugins`() {
    var talk = Conversation(fullService())
    for _ in 1...5 {
      talk.end()
      talk.pass(.seconds(60))
      talk.repairAll(.succeeded)
    }
    talk.settle()
    #expect(talk.step == .safeMode)
    #expect(talk.status.degraded && talk.status.settled)
    talk.pass(.hour * 5)
    #expect(talk.step == .safeMode)
    #expect(talk.spawns.count == 6, "and a healthy service is not restarted for it")
  }

  @Test func `a service that dies every two minutes climbs to quarantine`() {
    var talk = Conversation(fullService())
    var deaths = 0
    while talk.phase != .quarantined, deaths < 100 {
      talk.settle()
      talk.end(after: .seconds(60))
      deaths += 1
      talk.pass(.seconds(60))
      talk.repairAll(.succeeded)
    }
    // Five within the budget, and then seven strikes.
    #expect(deaths == 12)
  }
}

@Suite struct `a delay` {
  @Test func `doubles from first to max, and the first one is waited too`() {
    // CASES 11: the first crash got no delay at all.
    var talk = Conversation(service { $0.escalation.restart = 30 })
    var delays: [Duration?] = []
    for _ in 1...9 { delays.append(talk.crash()) }
    let expected: [Duration] = [.milliseconds(500)] + [1, 2, 4, 8, 16, 32, 60, 60].map { Duration.seconds($0) }
    #expect(delays == expected)
  }

  @Test func `starts from first again on every step`() {
    var talk = Conversation(fullService())
    var delays: [Duration] = []
    for _ in 1...6 {
      talk.end()
      for case .backingOff(let delay, _) in talk.occurrences.suffix(3) { delays.append(delay) }
      talk.pass(.seconds(60))
      talk.repairAll(.succeeded)
    }
    #expect(
      delays == [.milliseconds(500), .seconds(1), .milliseconds(500), .seconds(1), .milliseconds(500), .seconds(1)])
  }

  @Test func `may be zero`() {
    var talk = Conversation(service { $0.backoff.first = .zero })
    for _ in 1...6 { #expect(talk.crash() == .zero) }
  }

  @Test func `never exceeds max, whatever the jitter`() {
    var spec = BackoffSpec()
    spec.jitter = 0.5
    for n in 1...64 {
      let least = spec.delay(beforeTry: n, share: 0), most = spec.delay(beforeTry: n, share: 0.999)
      #expect(least <= most && most <= spec.max)
    }
    #expect(spec.delay(beforeTry: 1, share: 0) == .milliseconds(500))
    #expect(spec.delay(beforeTry: 64, share: 0) == .seconds(40))
  }

  @Test func `is not shortened or lengthened by time in hooks`() {
    var talk = Conversation(fullService { $0.escalation.restart = 1 })
    talk.end()
    talk.pass(.milliseconds(500))
    #expect(talk.hooks.count == 1)
    talk.pass(.seconds(30))
    talk.repairAll(.succeeded)
    #expect(talk.spawns.count == 2, "after the hook the start follows at once")
  }
}

@Suite struct `a late death` {
  @Test func `within the budget restarts at once and is no strike`() {
    var talk = Conversation(service())
    for count in 1...5 {
      talk.settle()
      #expect(talk.crash() == .zero)
      #expect(talk.count("late-death") == count)
    }
    #expect(talk.count("strike") == 0)
  }

  @Test func `beyond the budget is a strike and backs off`() {
    var talk = Conversation(service())
    for _ in 1...5 {
      talk.settle()
      talk.crash()
    }
    talk.settle()
    #expect(talk.crash() == .milliseconds(500))
    #expect(talk.count("strike") == 1)
  }

  @Test func `is forgotten when it is older than within`() {
    var talk = Conversation(service())
    for _ in 1...5 {
      talk.settle()
      talk.crash()
    }
    talk.settle()
    talk.pass(.hour)
    #expect(talk.crash() == .zero)
  }

  @Test func `keeps strikes while more than the budget lie within, and clears them when the number falls back`() {
    var talk = Conversation(service())
    for _ in 1...6 {
      talk.settle()
      talk.crash()
    }
    #expect(talk.status.strikes == 1)
    talk.settle()
    #expect(talk.status.strikes == 1)
    talk.pass(.hour)
    #expect(talk.status.strikes == 0)
  }

  @Test func `restarts at once on a higher step too, without a repair`() {
    var talk = Conversation(fullService { $0.escalation.restart = 1 })
    talk.end()
    talk.pass(.seconds(1))
    talk.repairAll(.succeeded)
    talk.settle()
    #expect(talk.step == .repair)
    #expect(talk.crash() == .zero)
    #expect(talk.hooks.count == 1)
  }

  @Test(arguments: [Signal.kill, .term])
  func `is what a kill from outside is, at any age`(_ signal: Signal) {
    var talk = Conversation(service())
    #expect(talk.crash(.signal(signal, core: false)) == .zero)
    #expect(talk.count("late-death") == 1)
    #expect(talk.status.lastEnd?.cause == "killed")
  }

  @Test func `by a stream of kills becomes a strike`() {
    var talk = Conversation(service())
    for _ in 1...6 { talk.crash(.signal(.kill, core: false)) }
    #expect(talk.count("late-death") == 5)
    #expect(talk.count("strike") == 1)
  }

  @Test func `is not what an exit code after a TERM from outside is`() {
    var talk = Conversation(service())
    talk.crash(.code(143))
    #expect(talk.count("strike") == 1)
  }

  @Test(arguments: [Death.Oom.certain, .perhaps])
  func `is not what running out of memory is`(_ oom: Death.Oom) {
    var talk = Conversation(service())
    talk.end(Death(.signal(.kill, core: false), oom: oom))
    talk.tell(.emptied(talk.run))
    #expect(talk.count("strike") == 1)
    #expect(talk.status.lastEnd?.cause == (oom == .certain ? "oom" : "oom?"))
  }

  @Test func `is what a clean exit of a settled daemon is`() {
    var talk = Conversation(service())
    talk.settle()
    #expect(talk.crash(.code(0)) == .zero)
    #expect(talk.count("late-death") == 1)
  }

  @Test func `is what an unseen end of a settled run is, and before that it is a strike`() {
    var talk = Conversation(service())
    talk.crash(.unseen)
    #expect(talk.count("strike") == 1)
    talk.settle()
    talk.crash(.unseen)
    #expect(talk.count("late-death") == 1)
    #expect(talk.status.lastEnd?.cause == "unknown")
  }
}
