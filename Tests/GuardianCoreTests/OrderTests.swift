import GuardianCore
import GuardianModel
import Testing

/// The verb table, cell by cell.
@Suite struct `an order` {
  enum State: String, CaseIterable, Sendable {
    case starting, running, settled, backingOff, waiting, repairing, quarantined, stopped, finished
  }

  func talk(in state: State) -> Conversation {
    let spec = fullService {
      $0.ready = .notify
      $0.escalation.restart = 2
      $0.restart = state == .finished ? .onCrash : .always
      if state == .stopped { $0.start = .manual }
    }
    var talk = Conversation(spec)
    switch state {
    case .starting: talk.exec()
    case .running: talk.ready()
    case .settled:
      talk.ready()
      talk.pass(spec.startupWindow)
    case .backingOff: talk.end()
    case .waiting: talk.failToSpawn(eagain)
    case .repairing:
      talk.end()
      talk.pass(.seconds(1))
      talk.end()
      talk.pass(.seconds(1))
    case .quarantined: _ = talk.dieOut()
    case .stopped: break
    case .finished: talk.end(.code(0))
    }
    return talk
  }

  @Test(arguments: [State.running, .settled])
  func `start of what runs is done, and changes nothing`(_ state: State) {
    var talk = talk(in: state)
    let starts = talk.spawns.count
    #expect(isDone(talk.ask(.start)))
    #expect(talk.spawns.count == starts)
    #expect(talk.signals.isEmpty)
  }

  @Test func `start of what is starting waits with it`() {
    var talk = talk(in: .starting)
    let request = talk.order(.start)
    #expect(talk.answers[request] == nil)
    talk.ready()
    #expect(isDone(talk.answers[request]))
  }

  @Test(arguments: [Command.Verb.start, .restart], [State.backingOff, .waiting])
  func `start and restart cut a delay short and keep the counters`(_ verb: Command.Verb, _ state: State) {
    var talk = talk(in: state)
    let strikes = talk.status.strikes, step = talk.step, starts = talk.spawns.count
    let request = talk.order(verb)
    #expect(talk.spawns.count == starts + 1)
    #expect(talk.status.strikes == strikes && talk.step == step)
    talk.ready()
    #expect(isDone(talk.answers[request]))
  }

  @Test(arguments: [Command.Verb.start, .restart])
  func `start and restart during a repair come after the hook`(_ verb: Command.Verb) {
    var talk = talk(in: .repairing)
    #expect(talk.phase == .repairing)
    let starts = talk.spawns.count
    let request = talk.order(verb)
    #expect(talk.spawns.count == starts)
    talk.repairAll(.succeeded)
    #expect(talk.spawns.count == starts + 1)
    talk.ready()
    #expect(isDone(talk.answers[request]))
  }

  @Test(arguments: [Command.Verb.start, .restart])
  func `start and restart in quarantine make one trial now and say what would release it`(_ verb: Command.Verb) {
    // CASES 17: ctl start on a quarantined service makes one trial.
    var talk = talk(in: .quarantined)
    let request = talk.order(verb)
    #expect(talk.spawns.last?.request.kind == .trial)
    talk.ready()
    guard case .done(let note) = talk.answers[request] else {
      Issue.record("not done: \(String(describing: talk.answers[request]))")
      return
    }
    #expect(note.contains("release"))
    talk.end()
    #expect(talk.phase == .quarantined)
    let starts = talk.spawns.count
    talk.pass(.seconds(300))
    #expect(talk.spawns.count == starts, "one trial, not two")
  }

  @Test func `a trial by hand that fails does not double the delay`() {
    var talk = talk(in: .quarantined)
    let due = talk.status.next?.at
    talk.pass(.seconds(100))
    let request = talk.order(.start)
    talk.end()
    #expect(isFailed(talk.answers[request]))
    #expect(talk.status.next?.at == due)
  }

  @Test(arguments: [Command.Verb.start, .restart], [State.stopped, .finished])
  func `start and restart of what is down start it, and it is wanted up`(_ verb: Command.Verb, _ state: State) {
    var talk = talk(in: state)
    let starts = talk.spawns.count
    let request = talk.order(verb)
    #expect(talk.status.wanted == .up)
    #expect(talk.spawns.count == starts + 1)
    #expect(talk.answers[request] == nil)
    talk.ready()
    #expect(isDone(talk.answers[request]))
  }

  @Test(arguments: [State.starting, .running, .settled])
  func `stop of what runs stops it, and it is not restarted`(_ state: State) {
    var talk = talk(in: state)
    let request = talk.order(.stop(untilBoot: false))
    #expect(talk.status.wanted == .down)
    #expect(talk.answers[request] == nil)
    talk.end(.signal(.term, core: false))
    #expect(isDone(talk.answers[request]))
    #expect(talk.phase == .stopped)
    #expect(talk.count("strike") == 0 && talk.count("late-death") == 0)
    talk.pass(.hour)
    #expect(talk.spawns.count == 1)
  }

  @Test(arguments: [State.backingOff, .waiting])
  func `stop cancels a delay`(_ state: State) {
    var talk = talk(in: state)
    let starts = talk.spawns.count
    #expect(isDone(talk.ask(.stop(untilBoot: false))))
    #expect(talk.phase == .stopped)
    talk.pass(.hour)
    #expect(talk.spawns.count == starts)
  }

  @Test func `stop in quarantine keeps the quarantine, without trials`() {
    var talk = talk(in: .quarantined)
    let starts = talk.spawns.count
    #expect(isDone(talk.ask(.stop(untilBoot: false))))
    #expect(talk.phase == .quarantined)
    #expect(talk.status.wanted == .down)
    talk.pass(.day * 3)
    #expect(talk.spawns.count == starts)
  }

  @Test(arguments: [State.stopped, .finished])
  func `stop of what is down is done`(_ state: State) {
    var talk = talk(in: state)
    #expect(isDone(talk.ask(.stop(untilBoot: false))))
    #expect(talk.status.wanted == .down)
    #expect(talk.phase == .stopped)
  }

  @Test(arguments: [State.starting, .running, .settled])
  func `restart of what runs stops and starts it, step and strikes kept`(_ state: State) {
    var talk = talk(in: state)
    let request = talk.order(.restart)
    #expect(talk.signals.map(\.signal) == [.term])
    #expect(talk.spawns.count == 1, "the new one comes when the old one is gone")
    talk.end(Death(.code(0), leftovers: 2))
    #expect(talk.spawns.count == 1, "and all that it left")
    talk.tell(.emptied(talk.run))
    #expect(talk.spawns.count == 2)
    talk.ready()
    #expect(isDone(talk.answers[request]))
    #expect(talk.count("strike") == 0)
  }

  @Test(arguments: State.allCases.filter { $0 != .quarantined })
  func `release where nothing is quarantined is done and changes nothing`(_ state: State) {
    var talk = talk(in: state)
    let before = talk.status
    let request = talk.order(.release)
    guard case .done(let note) = talk.answers[request] else {
      Issue.record("not done")
      return
    }
    #expect(note.contains("not quarantined"))
    #expect(talk.status == before)
  }

  @Test(arguments: [Command.Verb.release, .reset])
  func `release and reset in quarantine make the ladder fresh and start`(_ verb: Command.Verb) {
    var talk = talk(in: .quarantined)
    let request = talk.order(verb)
    #expect(talk.step == .restart && talk.status.strikes == 0)
    #expect(talk.spawns.last?.request.kind == .ordinary)
    #expect(talk.spawns.last?.request.disabledPlugins.isEmpty == true)
    talk.ready()
    #expect(isDone(talk.answers[request]))
    talk.end()
    #expect(talk.status.strikes == 1)
    _ = talk.dieOut()
    let trials = talk.occurrences.compactMap { kind -> Duration? in
      if case .quarantined(_, let trial) = kind { trial } else { nil }
    }
    #expect(trials == [.seconds(900), .seconds(900)], "the doubling is forgotten")
  }

  @Test(arguments: State.allCases.filter { $0 != .quarantined })
  func `reset clears the counters and starts or stops nothing`(_ state: State) {
    var talk = talk(in: state)
    let phase = talk.phase, starts = talk.spawns.count, signals = talk.signals.count
    #expect(isDone(talk.ask(.reset)))
    #expect(talk.phase == phase)
    #expect(talk.spawns.count == starts && talk.signals.count == signals)
    #expect(talk.status.strikes == 0 && talk.step == .restart)
  }

  @Test func `reset forgets late deaths`() {
    var talk = Conversation(service())
    for _ in 1...5 {
      talk.settle()
      talk.crash()
    }
    talk.settle()
    talk.order(.reset)
    #expect(talk.crash() == .zero)
    #expect(talk.count("strike") == 0)
  }

  @Test func `start answers 0 when ready`() {
    var talk = talk(in: .stopped)
    let request = talk.order(.start)
    talk.exec()
    #expect(talk.answers[request] == nil)
    talk.tell(.ready(talk.run))
    #expect(isDone(talk.answers[request]))
  }

  @Test func `start answers 0 at exec where readiness is not configured`() {
    var talk = Conversation(service { $0.start = .manual })
    let request = talk.order(.start)
    #expect(talk.answers[request] == nil)
    talk.exec()
    #expect(isDone(talk.answers[request]))
  }

  @Test func `start answers 1 on a death before ready`() {
    var talk = talk(in: .stopped)
    let request = talk.order(.start)
    talk.end(.code(3))
    #expect(isFailed(talk.answers[request]))
  }

  @Test func `start without waiting answers when the wish is durable`() {
    var talk = Conversation(service { $0.start = .manual }, savesAnswered: false)
    let request = talk.order(.start, wait: false)
    #expect(talk.answers[request] == nil)
    talk.tell(.saved(talk.saves[talk.saves.count - 1].ticket))
    #expect(isDone(talk.answers[request]))
  }

  @Test func `has one answer of its own, whatever the order of orders`() {
    // CASES 32: down, up, down, up within a second.
    var talk = talk(in: .backingOff)
    var requests: [UInt64] = []
    for round in 1...200 {
      requests.append(talk.order(round.isMultiple(of: 2) ? .start : .stop(untilBoot: false)))
      talk.pass(.milliseconds(10))
      if round.isMultiple(of: 7) { talk.exec() }
      if talk.phase == .stopping, talk.signals.count > 0 { talk.end(.signal(.term, core: false)) }
    }
    talk.exec()
    if talk.phase == .stopping { talk.end(.signal(.term, core: false)) }
    talk.pass(.seconds(1))
    talk.ready()
    #expect(talk.status.wanted == .up)
    #expect(talk.phase == .running)
    #expect(requests.allSatisfy { talk.answers[$0] != nil })
  }

  @Test func `stop that is overtaken by a start is answered, also when that start fails`() {
    var talk = talk(in: .quarantined)
    talk.order(.start)
    talk.exec()
    let stop = talk.order(.stop(untilBoot: false))
    let start = talk.order(.start)
    #expect(isFailed(talk.answers[stop]))
    talk.end(.signal(.term, core: false))
    talk.end(.code(1))
    #expect(isFailed(talk.answers[start]))
  }

  @Test func `stop of a trial that waits for resources leaves it in quarantine, and start makes a trial again`() {
    // Found by the walk: the second start was an ordinary one, with plugins on, while the quarantine stood.
    var talk = talk(in: .quarantined)
    talk.order(.start)
    talk.failToSpawn(eagain)
    #expect(talk.phase == .waiting)
    talk.order(.stop(untilBoot: false))
    #expect(talk.phase == .quarantined)
    talk.order(.start)
    #expect(talk.spawns.last?.request.kind == .trial)
  }

  @Test func `release of a trial that is being ended makes its end an ordinary death`() {
    // Found by the simulator: the trial then failed without a quarantine to go back to.
    var talk = talk(in: .quarantined)
    talk.order(.start)
    talk.exec()
    talk.pass(.seconds(90))
    #expect(talk.phase == .stopping)
    talk.order(.release)
    talk.end(.signal(.term, core: false))
    #expect(talk.count("trial-failed") == 0)
    #expect(talk.status.strikes == 1 && talk.step == .restart)
    #expect(talk.phase == .backingOff)
  }

  @Test func `start after a stop that cut the delay before safe mode short is a start in safe mode`() {
    // Found by the simulator: plugins were on, and the step said safe mode.
    var talk = Conversation(fullService { $0.repairs = [] })
    while talk.step == .restart {
      talk.pass(.seconds(60))
      talk.end()
    }
    #expect(talk.phase == .backingOff)
    talk.order(.stop(untilBoot: false))
    talk.order(.start)
    #expect(talk.mode == "safe")
    #expect(talk.spawns.last?.request.disabledPlugins.map(\.name) == ["social"])
  }

  @Test func `of thirty restarts counts nothing and delays nothing`() {
    // CASES 7: manual restarts ate the budget.
    var talk = Conversation(service())
    talk.settle()
    for _ in 1...30 {
      let request = talk.order(.restart)
      talk.end(.signal(.term, core: false))
      talk.exec()
      #expect(isDone(talk.answers[request]))
    }
    #expect(talk.status.strikes == 0)
    #expect(talk.count("backing-off") == 0 && talk.count("late-death") == 0)
  }

  @Test func `start after an operator's start counts restarts from zero`() {
    var talk = Conversation(service())
    talk.crash()
    talk.crash()
    #expect(talk.status.restarts == 2)
    talk.order(.stop(untilBoot: false))
    talk.exec()
    talk.end(.signal(.term, core: false))
    talk.order(.start)
    #expect(talk.status.restarts == 0)
  }

  @Test func `stop until boot is remembered as such`() {
    var talk = talk(in: .running)
    talk.order(.stop(untilBoot: true))
    #expect(talk.record.wanted == .down && talk.record.untilBoot)
    #expect(talk.status.stoppedBy == "root")
    talk.order(.start)
    #expect(talk.record.wanted == .up && !talk.record.untilBoot)
    #expect(talk.status.stoppedBy == "")
  }
}

@Suite struct `a hold` {
  @Test func `lets nothing start, stop or be repaired, records deaths and does not count them`() {
    var talk = Conversation(fullService())
    talk.end()
    let strikes = talk.status.strikes
    talk.order(.hold(.seconds(600)))
    talk.pass(.seconds(500))
    #expect(talk.spawns.count == 1)
    #expect(talk.status.held)
    #expect(talk.status.strikes == strikes)
    talk.pass(.seconds(100))
    #expect(talk.spawns.count == 2, "at its end a wanted service that is down is started")
    #expect(talk.status.strikes == strikes, "with the counters it had")
  }

  @Test func `K7: leaves a running service alone, whose death is recorded and not counted, and status says so`() {
    var talk = Conversation(service())
    talk.exec()
    talk.order(.hold(.seconds(600)))
    talk.end(after: .seconds(1))
    #expect(talk.status.held && talk.status.reason.hasPrefix("held; it ended meanwhile"))
    #expect(talk.status.strikes == 0 && talk.status.step == .restart)
    #expect(talk.count("ended") == 1)
    #expect(talk.count("strike") == 0)
    talk.pass(.seconds(598))
    #expect(talk.spawns.count == 1)
    talk.pass(.seconds(1))
    #expect(talk.spawns.count == 2)
  }

  @Test func `does not stop a service that is not ready in time`() {
    var talk = Conversation(service { $0.ready = .notify })
    talk.exec()
    talk.order(.hold(.hour))
    talk.pass(.seconds(3000))
    #expect(talk.signals.isEmpty)
  }

  @Test func `yields to an operator's start and stop`() {
    var talk = Conversation(service())
    talk.end()
    talk.order(.hold(.seconds(600)))
    talk.order(.start)
    #expect(talk.spawns.count == 2)
    let stop = talk.order(.stop(untilBoot: false))
    talk.exec()
    talk.end(.signal(.term, core: false))
    #expect(isDone(talk.answers[stop]))
  }

  @Test func `of zero ends a hold`() {
    var talk = Conversation(service())
    talk.end()
    talk.order(.hold(.seconds(600)))
    talk.order(.hold(.zero))
    #expect(!talk.status.held)
    #expect(talk.spawns.count == 2)
  }

  @Test func `keeps a trial from coming, and is kept in the record`() {
    var talk = Conversation(service())
    _ = talk.dieOut()
    talk.order(.hold(.hour))
    #expect(talk.record.hold != nil)
    let starts = talk.spawns.count
    talk.pass(.seconds(3599))
    #expect(talk.spawns.count == starts)
    talk.pass(.seconds(1))
    #expect(talk.spawns.count == starts + 1)
  }
}

@Suite struct `mode observe` {
  @Test func `restarts with plain backoff, and only logs repair, safe mode and quarantine`() {
    var talk = Conversation(fullService { $0.mode = .observe })
    for _ in 1...30 {
      talk.end()
      talk.pass(.seconds(70))
    }
    #expect(talk.spawns.count == 31)
    #expect(talk.hooks.isEmpty)
    #expect(talk.spawns.allSatisfy { $0.request.disabledPlugins.isEmpty && $0.request.kind == .ordinary })
    #expect(talk.phase != .quarantined)
    for step in [Step.repair, .safeMode, .quarantine] { #expect(talk.occurrences.contains(.observed(would: step))) }
  }

  @Test func `has delays that grow to max like any`() {
    var talk = Conversation(fullService { $0.mode = .observe })
    var last: Duration?
    for _ in 1...12 { last = talk.crash() }
    #expect(last == .seconds(60))
  }
}
