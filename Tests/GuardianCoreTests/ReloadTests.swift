import GuardianCore
import GuardianModel
import Testing

@Suite struct `a service's own reload` {
  private func running(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    var talk = Conversation(
      service {
        $0.reload = .signal(.hup)
        $0.startTimeout = .seconds(30)
        change(&$0)
      })
    talk.settle()
    return talk
  }

  @Test func `by a signal is done when the service has outlived the signal by a moment`() {
    var talk = running()
    let request = talk.order(.reload)
    #expect(talk.reloads == [.hup])
    talk.pass(.milliseconds(249))
    #expect(talk.answers[request] == nil)
    talk.pass(.milliseconds(1))
    #expect(talk.answers[request] == .done(note: ""))
    #expect(talk.names().suffix(3) == ["requested", "reloading", "reloaded"])
    #expect(talk.phase == .running && talk.signals.isEmpty)
    #expect(talk.record.strikes == 0 && talk.record.lateDeaths.isEmpty)
  }

  @Test(arguments: [Readiness.none, .notify])
  func `that is told of by nobody is done though start-timeout is shorter than what it is watched for`(
    _ ready: Readiness
  ) {
    var talk = running {
      $0.ready = ready
      $0.startTimeout = .milliseconds(100)
    }
    let request = talk.order(.reload)
    talk.pass(.milliseconds(100))
    #expect(talk.answers[request] == .done(note: ""))
  }

  @Test func `by a signal that ends the service has failed, and so it is told`() {
    var talk = running()
    let request = talk.order(.reload)
    talk.end(.signal(.hup, core: false), after: .milliseconds(6))
    #expect(talk.answers[request] == .failed(reason: "the run came to its end meanwhile"))
    #expect(talk.count("reloaded") == 0 && talk.count("reload-failed") == 1)
  }

  @Test func `of a service that tells of it is over when it says READY=1`() {
    var talk = running { $0.ready = .notify }
    let request = talk.order(.reload)
    talk.tell(.reloading(talk.run, stamp: nil))
    talk.pass(.seconds(10))
    #expect(talk.answers[request] == nil)
    #expect(talk.status.reason == "reloading" && talk.status.next?.action == "give-up-reload")
    talk.tell(.ready(talk.run))
    #expect(talk.answers[request] == .done(note: ""))
    #expect(talk.status.reason.isEmpty)
  }

  @Test func `of a service that could tell and does not is done after a second`() {
    var talk = running { $0.ready = .notify }
    let request = talk.order(.reload)
    talk.pass(.milliseconds(999))
    #expect(talk.answers[request] == nil)
    talk.pass(.milliseconds(1))
    #expect(talk.answers[request] == .done(note: ""))
  }

  @Test func `C12: that never says READY=1 has failed after start-timeout, and the run goes on and is settled`() {
    var talk = running { $0.ready = .notify }
    let request = talk.order(.reload)
    talk.tell(.reloading(talk.run, stamp: nil))
    talk.pass(.seconds(31))
    guard case .failed(let why)? = talk.answers[request] else {
      Issue.record("\(String(describing: talk.answers[request]))")
      return
    }
    #expect(why.contains("READY=1"))
    #expect(talk.phase == .running && talk.status.settled)
    #expect(talk.status.notes.contains { $0.contains("its last reload failed") })
    #expect(talk.count("ended") == 0 && talk.count("strike") == 0)
    // The next one that is well clears that.
    talk.order(.reload)
    talk.pass(.seconds(1))
    #expect(!talk.status.notes.contains { $0.contains("reload") })
  }

  @Test func `that the service does by itself is shown, and must be over within start-timeout`() {
    var talk = running { $0.ready = .notify }
    talk.tell(.reloading(talk.run, stamp: nil))
    #expect(talk.status.reason == "reloading by itself")
    talk.tell(.ready(talk.run))
    #expect(talk.names().suffix(2) == ["reloading", "reloaded"])
    talk.tell(.reloading(talk.run, stamp: nil))
    // Saying it again and again puts nothing off.
    for _ in 0..<40 {
      talk.pass(.seconds(1))
      if talk.count("reload-failed") == 1 { break }
      talk.tell(.reloading(talk.run, stamp: nil))
    }
    #expect(talk.count("reload-failed") == 1 && talk.phase == .running)
  }

  @Test func `is not taken for over by the end of one that had begun before it was asked for`() {
    var talk = running { $0.ready = .notify }
    talk.pass(.seconds(10))
    let before = talk.now.monotonic
    talk.pass(.seconds(1))
    let request = talk.order(.reload)
    talk.tell(.reloading(talk.run, stamp: before))
    talk.tell(.ready(talk.run))
    #expect(talk.answers[request] == nil)
    talk.tell(.reloading(talk.run, stamp: talk.now.monotonic))
    talk.pass(.seconds(5))
    #expect(talk.answers[request] == nil)
    talk.tell(.ready(talk.run))
    #expect(talk.answers[request] == .done(note: ""))
  }

  @Test func `asked for while one is under way is done once more, and all who asked meanwhile wait for that`() {
    var talk = running { $0.ready = .notify }
    let first = talk.order(.reload)
    talk.tell(.reloading(talk.run, stamp: nil))
    let second = talk.order(.reload), third = talk.order(.reload)
    #expect(talk.reloads.count == 1)
    talk.tell(.ready(talk.run))
    #expect(isDone(talk.answers[first]) && talk.answers[second] == nil && talk.answers[third] == nil)
    #expect(talk.reloads.count == 2)
    talk.tell(.reloading(talk.run, stamp: nil))
    talk.tell(.ready(talk.run))
    #expect(isDone(talk.answers[second]) && isDone(talk.answers[third]))
    #expect(talk.reloads.count == 2)
  }

  @Test func `by a command is over when that has ended, and has failed where it failed`() {
    var talk = running { $0.reload = .command(["/bin/reload"]) }
    let request = talk.order(.reload)
    #expect(talk.hooks.last?.purpose == .reload && talk.hooks.last?.kind == .run(["/bin/reload"]))
    #expect(talk.hooks.last?.context.mainPid == 101)
    #expect(talk.phase == .running)
    talk.pass(.seconds(3))
    #expect(talk.answers[request] == nil)
    talk.tell(.hookEnded(talk.hooks[0].id, .succeeded))
    #expect(talk.answers[request] == .done(note: ""))
    let again = talk.order(.reload)
    talk.tell(.hookEnded(talk.hooks[1].id, .failed(.code(3))))
    #expect(talk.answers[again] == .failed(reason: "the command failed: exit 3"))
    #expect(talk.phase == .running && talk.count("strike") == 0)
    // 125 has no meaning here.
    let third = talk.order(.reload)
    talk.tell(.hookEnded(talk.hooks[2].id, .cannotRepair))
    #expect(talk.answers[third] == .failed(reason: "the command failed: exit 125"))
    #expect(talk.phase == .running)
  }

  @Test func `by a command that hangs gets TERM after start-timeout, KILL after that, and has failed when it is gone`()
  {
    var talk = running { $0.reload = .command(["/bin/reload"]) }
    let request = talk.order(.reload)
    let hook = talk.hooks[0].id
    talk.pass(.seconds(30))
    #expect(talk.hookSignals.map(\.signal) == [.term])
    talk.pass(.seconds(5))
    #expect(talk.hookSignals.map(\.signal) == [.term, .kill] && talk.hookSignals.allSatisfy { $0.hook == hook })
    #expect(talk.answers[request] == nil)
    talk.tell(.hookEnded(hook, .failed(.signal(.kill, core: false))))
    #expect(isFailed(talk.answers[request]) && talk.phase == .running)
  }

  struct Refused: CustomTestStringConvertible, Sendable {
    var testDescription: String
    var says: String
    var bring: @Sendable (inout Conversation) -> Void
  }
  @Test(arguments: [
    Refused(testDescription: "starting", says: "not ready yet", bring: { $0.exec() }),
    Refused(testDescription: "backing off", says: "it is backing-off", bring: { $0.end() }),
    Refused(
      testDescription: "stopped", says: "it is stopped",
      bring: {
        $0.ready()
        $0.order(.stop(untilBoot: false))
        $0.end(.code(0))
      }),
    Refused(
      testDescription: "stopping", says: "it is stopping",
      bring: {
        $0.ready()
        $0.order(.stop(untilBoot: false))
      }),
  ])
  func `is refused with the reason where nothing runs`(_ c: Refused) {
    var talk = Conversation(
      service {
        $0.ready = .notify
        $0.reload = .signal(.hup)
      })
    c.bring(&talk)
    guard case .failed(let why)? = talk.ask(.reload) else {
      Issue.record("not refused")
      return
    }
    #expect(why.contains(c.says), "\(why)")
    #expect(talk.reloads.isEmpty && talk.count("reloading") == 0)
  }

  @Test func `is refused with the reason where it has none`() {
    var talk = running { $0.reload = nil }
    guard case .failed(let why)? = talk.ask(.reload) else {
      Issue.record("not refused")
      return
    }
    #expect(why.contains("no reload"))
  }

  @Test func `C12, CASES 55: fails when the run dies, which is a death like any other`() {
    var talk = running { $0.ready = .notify }
    let starts = talk.spawns.count
    let request = talk.order(.reload)
    talk.tell(.reloading(talk.run, stamp: nil))
    talk.end(.code(1))
    #expect(isFailed(talk.answers[request]))
    #expect(talk.spawns.count == starts + 1)
    #expect(talk.count("late-death") == 1 && talk.count("reload-failed") == 1)
    // A reload of the earlier run is nothing to the next.
    talk.exec()
    talk.tell(.ready(talk.run))
    #expect(talk.phase == .running && talk.status.reason.isEmpty)
  }

  @Test func `fails when it is stopped, and its command does not outlive that`() {
    var talk = running { $0.reload = .command(["/bin/reload"]) }
    let request = talk.order(.reload)
    talk.order(.stop(untilBoot: false))
    #expect(isFailed(talk.answers[request]))
    #expect(talk.hookSignals.map(\.signal) == [.kill])
    talk.tell(.hookEnded(talk.hooks[0].id, .failed(.signal(.kill, core: false))))
    talk.end(.signal(.term, core: false))
    #expect(talk.phase == .stopped)
  }

  @Test func `does not stand in the way of the watchdog`() {
    var talk = running {
      $0.ready = .notify
      $0.watchdog = .seconds(10)
      $0.startupWindow = .seconds(5)
    }
    talk.tell(.watchdogPinged(talk.run))
    talk.tell(.reloading(talk.run, stamp: nil))
    talk.pass(.seconds(11))
    #expect(talk.phase == .stopping && talk.signals.last?.signal == .abrt)
  }

  @Test func `is found again by the next guardian, with what is left of its time`() {
    var talk = running { $0.reload = .command(["/bin/reload"]) }
    talk.order(.reload)
    let hook = talk.hooks[0].id
    talk.tell(.hookStarted(hook, pid: 55, startTicks: 5))
    talk.guardianDies(away: .seconds(3))
    let found = talk.fleet.adoptees(of: talk.id)
    #expect(found.map(\.run) == [talk.run, hook] && found.map(\.isHook) == [false, true])
    #expect(found[1].process == ProcessIdentity(pid: 55, startTicks: 5))
    talk.tell(.adopted(talk.run, pid: 101, startTicks: 0, readinessKnown: true))
    talk.tell(.hookAdopted(hook, pid: 55, startTicks: 5))
    #expect(talk.status.reason == "reloading")
    talk.tell(.hookEnded(hook, .succeeded))
    #expect(talk.count("reloaded") == 1 && talk.phase == .running)
  }

  @Test func `whose word may have been missed while guardian was away has failed for all that is known`() {
    var talk = running { $0.ready = .notify }
    talk.order(.reload)
    talk.tell(.reloading(talk.run, stamp: nil))
    talk.guardianDies(away: .seconds(3))
    talk.adopt(readinessKnown: false)
    #expect(talk.count("reload-failed") == 1 && talk.phase == .running)
    #expect(talk.status.notes.contains { $0.contains("guardian was away") })
  }

  @Test func `goes on where the socket was kept meanwhile`() {
    var talk = running { $0.ready = .notify }
    talk.tell(.reloading(talk.run, stamp: nil))
    talk.guardianDies(away: .seconds(3))
    talk.adopt()
    #expect(talk.status.reason == "reloading by itself")
    talk.tell(.ready(talk.run))
    #expect(talk.count("reloaded") == 1)
  }

  @Test func `whose run is gone when guardian comes back leaves no command behind`() {
    var talk = running { $0.reload = .command(["/bin/reload"]) }
    talk.order(.reload)
    let hook = talk.hooks[0].id
    talk.guardianDies()
    talk.miss()
    talk.tell(.hookAdopted(hook, pid: 55, startTicks: 5))
    #expect(talk.hookSignals.map(\.signal) == [.kill] && talk.hookSignals.last?.hook == hook)
  }
}

@Suite struct `what a run says of itself` {
  private func running(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    var talk = Conversation(
      service {
        $0.ready = .notify
        $0.watchdog = .seconds(10)
        $0.startTimeout = .seconds(30)
        $0.stop.timeout = .seconds(5)
        change(&$0)
      })
    talk.ready()
    return talk
  }

  @Test func `CASES 55: STOPPING=1 gives it the stop time-out, and its end is a death like any other`() {
    var talk = running()
    talk.tell(.leaving(talk.run))
    #expect(talk.phase == .stopping && talk.signals.isEmpty)
    talk.end(.code(0), after: .seconds(2))
    #expect(talk.phase == .backingOff && talk.count("strike") == 1)
  }

  @Test func `STOPPING=1 without an end is bounded by the stop time-out, and no kill from outside`() {
    var talk = running()
    talk.tell(.leaving(talk.run))
    talk.pass(.seconds(5))
    #expect(talk.signals.map(\.signal) == [.kill])
    talk.end(.signal(.kill, core: false))
    #expect(talk.record.lastEnd?.cause == .watchdog && talk.record.strikes == 1)
    #expect(talk.phase == .backingOff)
  }

  @Test func `C3: after STOPPING=1 neither READY=1 nor RELOADING=1 says anything`() {
    var talk = running()
    talk.tell(.leaving(talk.run))
    talk.tell(.ready(talk.run))
    talk.tell(.reloading(talk.run, stamp: nil))
    talk.tell(.leaving(talk.run))
    #expect(talk.phase == .stopping && talk.count("leaving") == 1 && talk.count("reloading") == 0)
  }

  @Test func `STOPPING=1 survives guardian`() {
    var talk = running()
    talk.tell(.leaving(talk.run))
    talk.guardianDies()
    talk.adopt()
    #expect(talk.signals.isEmpty && talk.phase == .stopping)
    talk.pass(.seconds(5))
    #expect(talk.signals.map(\.signal) == [.kill])
  }

  @Test func `C7: EXTEND_TIMEOUT_USEC puts off the start time-out to ten times its length, and no further`() {
    var talk = Conversation(
      service {
        $0.ready = .notify
        $0.startTimeout = .seconds(30)
      })
    talk.exec()
    for _ in 0..<1_000 {
      talk.tell(.timeoutExtended(talk.run, .seconds(20)))
      talk.pass(.seconds(1))
      if talk.phase == .stopping { break }
    }
    #expect(talk.time == .seconds(300))
    #expect(talk.record.situation.runs == [talk.run] + talk.record.situation.runs.dropFirst())
  }

  @Test func `C7: EXTEND_TIMEOUT_USEC puts off KILL to ten times the stop time-out, and no further`() {
    var talk = running()
    let since = talk.time
    talk.order(.stop(untilBoot: false))
    for _ in 0..<1_000 where !talk.signals.contains(where: { $0.signal == .kill }) {
      talk.tell(.timeoutExtended(talk.run, .seconds(3)))
      talk.pass(.seconds(1))
    }
    #expect((talk.signals.last?.at ?? .zero) - since == .seconds(50))
  }

  @Test func `C6: WATCHDOG_USEC changes the interval within bounds, also over guardian's own death`() {
    var talk = running()
    for bad in [Duration.zero, .nanoseconds(1), .milliseconds(99), .seconds(101), .day * 36_500] {
      talk.tell(.watchdogSet(talk.run, bad))
    }
    #expect(talk.count("watchdog-set") == 0)
    talk.tell(.watchdogSet(talk.run, .seconds(60)))
    talk.pass(.seconds(59))
    #expect(talk.phase == .running)
    talk.guardianDies()
    talk.adopt()
    talk.pass(.seconds(59))
    #expect(talk.phase == .running)
    talk.pass(.seconds(1))
    #expect(talk.phase == .stopping && talk.signals.last?.signal == .abrt)
  }

  @Test func `WATCHDOG_USEC switches on no watchdog that is not configured`() {
    var talk = running { $0.watchdog = .zero }
    talk.tell(.watchdogSet(talk.run, .seconds(1)))
    talk.pass(.seconds(30))
    #expect(talk.phase == .running)
  }

  @Test func `C6: WATCHDOG=trigger is a watchdog's death, before it is ready too`() {
    for early in [true, false] {
      var talk = Conversation(service { $0.ready = .notify })
      if early { talk.exec() } else { talk.ready() }
      talk.tell(.watchdogTriggered(talk.run))
      #expect(talk.signals.map(\.signal) == [.abrt])
      talk.end(.signal(.abrt, core: true))
      #expect(talk.record.lastEnd?.cause == .watchdog && talk.record.strikes == 1)
    }
  }

  @Test func `MAINPID makes another process the main one, which is shown, kept, and adopted as such`() {
    var talk = running()
    let moved = ProcessIdentity(pid: 500, startTicks: 9)
    talk.tell(.mainMoved(talk.run, moved))
    #expect(talk.status.pid == 500 && talk.count("main-moved") == 1)
    talk.guardianDies()
    #expect(talk.adoptee?.process == moved)
    #expect(talk.adoptee?.leader == ProcessIdentity(pid: 101, startTicks: 0))
    talk.adopt()
    #expect(talk.status.pid == 500 && talk.phase == .running)
    // News of an earlier run is none.
    talk.tell(.mainMoved(RunID(high: 1, low: 1), ProcessIdentity(pid: 7, startTicks: 7)))
    #expect(talk.status.pid == 500)
  }

  @Test func `with ready: check its own READY=1 is not enough`() {
    var talk = Conversation(
      service {
        $0.ready = .check
        $0.checks = [CheckSpec(name: "c", kind: .exec(["/bin/check"]))]
      })
    talk.exec()
    talk.tell(.ready(talk.run))
    #expect(talk.phase == .starting)
  }

  @Test func `C3: a second READY=1 changes nothing`() {
    var talk = running()
    let saves = talk.saves.count
    for _ in 0..<10 { talk.tell(.ready(talk.run)) }
    #expect(talk.saves.count == saves && talk.count("ready") == 1)
  }
}
