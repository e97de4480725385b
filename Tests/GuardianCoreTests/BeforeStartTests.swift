import GuardianCore
import GuardianModel
import Testing

extension Conversation {
  /// What runs before the start ends.
  fileprivate mutating func prepared(_ result: HookResult = .succeeded) {
    if let hook = hooks.last { tell(.hookEnded(hook.id, result)) }
  }
}

@Suite struct `what runs before a start` {
  func talk(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    Conversation(
      service {
        $0.process.beforeStart = ["/bin/prepare", "all"]
        change(&$0)
      })
  }

  @Test func `comes first, and the start follows when it has succeeded`() {
    var talk = talk()
    #expect(talk.hooks.map(\.purpose) == [.beforeStart] && talk.hooks[0].kind == .run(["/bin/prepare", "all"]))
    #expect(talk.hooks[0].timeout == talk.spec.startTimeout)
    #expect(talk.phase == .starting && talk.spawns.isEmpty && talk.status.reason == "before-start is running")
    #expect(talk.fleet.summary().line == "1 service: 1 starting (web)")
    talk.pass(.seconds(20))
    #expect(talk.spawns.isEmpty)
    talk.prepared()
    #expect(talk.spawns.count == 1 && talk.phase == .starting)
    talk.settle()
    #expect(talk.status.settled && talk.status.restarts == 0 && talk.status.strikes == 0)
    // Both have their line in the book of runs, and the first has its end.
    #expect(talk.openEntries == [talk.run])
    guard case .opened(talk.hooks[0].id, _, .beforeStart, _)? = talk.entries.first else {
      Issue.record("\(talk.entries)")
      return
    }
  }

  @Test(arguments: [
    HookResult.failed(.code(3)), .failed(.code(125)), .cannotRepair, .failed(.signal(.segv, core: true)),
    .notStarted(SpawnFailure(stage: .exec, errno: 13, target: "/bin/prepare", sentence: "cannot run /bin/prepare")),
  ])
  func `is no crash of the service when it fails: no strike, tried again with backoff, with the reason shown`(
    _ result: HookResult
  ) {
    var talk = talk()
    for delay in [500, 1000, 2000, 4000] {
      let before = talk.hooks.count
      talk.prepared(result)
      #expect(talk.phase == .backingOff && talk.status.reason.hasPrefix("before-start "))
      talk.pass(.milliseconds(delay - 1))
      #expect(talk.hooks.count == before)
      talk.pass(.milliseconds(1))
      #expect(talk.hooks.count == before + 1 && talk.phase == .starting)
    }
    #expect(talk.spawns.isEmpty && talk.count("strike") == 0 && talk.status.strikes == 0 && talk.step == .restart)
    talk.prepared()
    talk.settle()
    #expect(talk.status.settled && talk.status.restarts == 0)
    // The delays of the next failure begin anew.
    talk.end()
    talk.prepared(result)
    let before = talk.hooks.count
    talk.pass(.milliseconds(500))
    #expect(talk.hooks.count == before + 1)
  }

  @Test func `does not keep the processor busy however short the backoff is`() {
    var talk = talk { $0.backoff.first = .zero }
    for _ in 0..<20 {
      talk.prepared(.failed(.code(1)))
      #expect(talk.phase == .backingOff)
      talk.pass(.milliseconds(100))
    }
    #expect(talk.hooks.count == 21)
  }

  @Test func `comes before a restart after a late death too, which is then written down first`() {
    var talk = talk()
    talk.prepared()
    talk.settle()
    talk.end()
    #expect(talk.hooks.count == 2 && talk.spawns.count == 1 && talk.phase == .starting)
    talk.savesAnswered = false
    talk.prepared()
    #expect(talk.spawns.count == 1)
    talk.tell(.saved(talk.saves[talk.saves.count - 1].ticket))
    #expect(talk.spawns.count == 2 && talk.count("strike") == 0 && talk.status.restarts == 1)
  }

  @Test func `has the time of a start, then gets TERM and KILL`() {
    var talk = talk { $0.startTimeout = .seconds(7) }
    talk.pass(.seconds(7))
    let hook = talk.hooks[0].id
    #expect(talk.actions.contains(.signalHook(hook, .term)) && !talk.actions.contains(.signalHook(hook, .kill)))
    #expect(talk.phase == .starting)
    talk.pass(.seconds(5))
    #expect(talk.actions.contains(.signalHook(hook, .kill)))
    talk.prepared(.failed(.signal(.kill, core: false)))
    #expect(talk.phase == .backingOff && talk.status.reason.hasPrefix("before-start timed out"))
  }

  @Test func `is ended by a stop, and run again by a start that comes meanwhile`() {
    var talk = talk()
    let hook = talk.hooks[0].id
    let stop = talk.order(.stop(untilBoot: false))
    #expect(talk.actions.contains(.signalHook(hook, .term)) && talk.answers[stop] == nil)
    talk.prepared(.failed(.signal(.term, core: false)))
    #expect(isDone(talk.answers[stop]) && talk.phase == .stopped && talk.openEntries == [])

    let start = talk.order(.start)
    #expect(talk.hooks.count == 2 && talk.answers[start] == nil)
    talk.order(.stop(untilBoot: false))
    let again = talk.order(.start)
    talk.prepared(.failed(.signal(.term, core: false)))
    #expect(talk.hooks.count == 3 && talk.phase == .starting && talk.count("strike") == 0)
    talk.prepared()
    talk.exec()
    #expect(isDone(talk.answers[start]) && isDone(talk.answers[again]))
  }

  @Test func `fails the order that waits for the start`() {
    var talk = talk { $0.start = .manual }
    #expect(talk.hooks.isEmpty)
    let start = talk.order(.start)
    talk.prepared(.failed(.code(1)))
    #expect(isFailed(talk.answers[start]) && talk.phase == .backingOff)
  }

  @Test func `that cannot be started for guardian's own trouble is waited out`() {
    var talk = talk()
    talk.prepared(.notStarted(eagain))
    #expect(talk.phase == .waiting && talk.status.reason == "waiting for resources: EAGAIN (pids.max)")
    talk.pass(.seconds(1))
    #expect(talk.hooks.count == 2)
    talk.prepared()
    talk.settle()
    #expect(talk.status.settled && talk.status.restarts == 0)
  }

  @Test func `fails a trial from quarantine`() {
    var talk = talk {
      $0.escalation.restart = 1
      $0.escalation.repair = 1
      $0.escalation.safeMode = 1
    }
    for _ in 0..<10 where talk.phase != .quarantined {
      talk.prepared()
      talk.end()
      talk.pass(.seconds(60))
    }
    #expect(talk.phase == .quarantined)
    let spawns = talk.spawns.count
    talk.sleep(.seconds(900))
    #expect(talk.phase == .starting)
    talk.prepared(.failed(.code(1)))
    #expect(talk.phase == .quarantined && talk.spawns.count == spawns && talk.count("trial-failed") == 1)
    #expect(talk.status.next?.inMilliseconds == 1_800_000)
    // A stop and a hold in the middle of the next one leave it quarantined too.
    talk.sleep(.seconds(1800))
    talk.order(.hold(.seconds(60)))
    talk.prepared()
    #expect(talk.phase == .quarantined && talk.spawns.count == spawns)
    talk.order(.hold(.zero))
    talk.order(.start)
    talk.order(.stop(untilBoot: false))
    talk.prepared(.failed(.signal(.term, core: false)))
    #expect(talk.phase == .quarantined && talk.status.wanted == .down)
  }

  @Test func `runs in observe mode too, since it belongs to the start`() {
    var talk = talk { $0.mode = .observe }
    talk.prepared()
    #expect(talk.spawns.count == 1)
  }

  @Test func `a hold lets it finish, and starts nothing`() {
    var talk = talk()
    talk.order(.hold(.seconds(60)))
    talk.prepared()
    #expect(talk.spawns.isEmpty && talk.phase == .stopped)
    talk.sleep(.seconds(61))
    #expect(talk.hooks.count == 2)
    talk.prepared()
    #expect(talk.spawns.count == 1)
  }

  @Test func `a definition that changes meanwhile is prepared anew, with its own program`() {
    var talk = talk()
    var changed = talk.spec
    changed.process.beforeStart = ["/bin/other"]
    talk.tell(.defined(changed))
    talk.prepared()
    #expect(talk.hooks.count == 2 && talk.hooks[1].kind == .run(["/bin/other"]) && talk.spawns.isEmpty)
    changed.process.beforeStart = []
    talk.tell(.defined(changed))
    talk.prepared(.failed(.code(1)))
    #expect(talk.hooks.count == 2 && talk.spawns.count == 1)
  }

  @Test func `is taken over after guardian's end, and the start follows its success`() {
    var talk = talk()
    talk.tell(.hookStarted(talk.hooks[0].id, pid: 7, startTicks: 9))
    talk.guardianDies(away: .seconds(30))
    #expect(talk.adoptee?.process == ProcessIdentity(pid: 7, startTicks: 9) && talk.adoptee?.isHook == true)
    talk.adopt()
    talk.tell(.begin)
    #expect(talk.phase == .starting && talk.hooks.count == 1)
    talk.prepared()
    #expect(talk.spawns.count == 1)
    talk.settle()
    #expect(talk.status.settled && talk.openEntries == [talk.run])
  }

  @Test func `of which nobody saw the end is run again, and counts for nothing`() {
    var talk = talk()
    talk.prepared(.failed(.code(1)))
    talk.pass(.milliseconds(500))
    talk.guardianDies(away: .seconds(5))
    talk.miss()
    talk.tell(.begin)
    #expect(talk.hooks.count == 3 && talk.phase == .starting && talk.count("strike") == 0)
    // The failure before is remembered: the next delay is the second one.
    talk.prepared(.failed(.code(1)))
    talk.pass(.milliseconds(999))
    #expect(talk.hooks.count == 3)
    talk.pass(.milliseconds(1))
    #expect(talk.hooks.count == 4)
  }

  @Test func `that a reboot interrupted is run again with the start`() {
    var talk = talk()
    talk.reboot()
    #expect(talk.adoptee == nil && talk.phase == .stopped)
    talk.tell(.begin)
    #expect(talk.hooks.count == 2 && talk.phase == .starting)
    talk.prepared()
    talk.settle()
    #expect(talk.status.settled && talk.openEntries == [talk.run] && talk.status.restarts == 0)
  }

  @Test func `is not repeated for a restart at once that has come about already`() {
    // Added by the operator while guardian was away.
    var talk = Conversation(service())
    talk.settle()
    var changed = talk.spec
    changed.process.beforeStart = ["/bin/prepare"]
    let run = talk.run
    let successor = talk.adopteesSuccessor
    talk.guardianDies(definition: changed)
    talk.tell(.superseded(run))
    talk.tell(.ended(run, Death(.unseen)))
    talk.tell(.emptied(run))
    #expect(talk.hooks.isEmpty && talk.spawns.last?.request.run == successor)
  }

  @Test func `is in the plan`() {
    let talk = talk()
    let plan = talk.fleet.plan(for: talk.id, now: talk.now)
    #expect(plan.prefix(3).map(\.action) == ["start", "death", "before-start"])
  }
}

extension Conversation {
  /// The id that a restart at once would have.
  fileprivate var adopteesSuccessor: RunID? {
    if case .living(let run) = record.situation { run.successor } else { nil }
  }
}
