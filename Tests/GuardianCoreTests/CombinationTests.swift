import GuardianCore
import GuardianModel
import Testing

/// Two things at once, each of them harmless alone.

private func changed(_ spec: ServiceSpec, _ change: (inout ServiceSpec) -> Void = { _ in }) -> ServiceSpec {
  var new = spec
  new.process.environment = [EnvironmentVariable("VERSION", "2")]
  change(&new)
  return new
}
private func policy(_ spec: ServiceSpec, _ change: (inout ServiceSpec) -> Void) -> ServiceSpec {
  var new = spec
  change(&new)
  return new
}
private func file(_ inode: UInt64) -> FileIdentity { FileIdentity(device: 1, inode: inode, size: 1, modified: 1) }

extension Conversation {
  fileprivate var lastKind: RunKind? { spawns.last?.request.kind }
}

@Suite struct `a trial` {
  @Test func `that ends under a debugger is begun anew as a trial`() {
    var talk = Conversation(service())
    _ = talk.dieOut()
    talk.pass(.seconds(900))
    var death = Death(.code(1))
    death.traced = true
    talk.end(death)
    talk.tell(.emptied(talk.run))
    talk.pass(.seconds(1))
    #expect(talk.lastKind == .trial)
    talk.settle()
    #expect(talk.step == .restart && talk.record.quarantine == nil)
  }

  @Test func `that is restarted by hand with a changed definition is an ordinary start`() {
    let spec = service()
    var talk = Conversation(spec)
    _ = talk.dieOut()
    talk.order(.start)
    talk.exec()
    talk.tell(.defined(changed(spec)))
    talk.order(.restart)
    talk.end(.signal(.term, core: false))
    #expect(talk.lastKind == .ordinary)
    talk.end()
    #expect(talk.phase == .backingOff && talk.status.strikes == 1)
  }

  @Test func `that is killed from outside after its definition changed is followed by an ordinary start`() {
    let spec = service()
    var talk = Conversation(spec)
    _ = talk.dieOut()
    talk.order(.start)
    talk.exec()
    talk.tell(.defined(changed(spec)))
    talk.end(.signal(.kill, core: false))
    #expect(talk.lastKind == .ordinary)
    talk.end()
    #expect(talk.phase == .backingOff)
  }

  @Test func `that fails after its definition changed is followed by the new definition, not by a wait`() {
    let spec = service()
    var talk = Conversation(spec)
    _ = talk.dieOut()
    talk.pass(.seconds(900))
    talk.exec()
    talk.tell(.defined(changed(spec)))
    let starts = talk.spawns.count
    talk.end()
    #expect(talk.spawns.count == starts + 1)
    #expect(talk.lastKind == .ordinary && talk.record.quarantine == nil)
  }

  @Test func `that is being stopped when it is released does not go back to a quarantine that is over`() {
    var talk = Conversation(service { $0.ready = .notify })
    _ = talk.dieOut()
    talk.pass(.seconds(900))
    talk.exec()
    talk.pass(.seconds(90))
    #expect(talk.phase == .stopping)
    talk.order(.release)
    talk.end(.signal(.term, core: false))
    #expect(talk.phase == .backingOff && talk.status.strikes == 1)
    talk.pass(.seconds(1))
    #expect(talk.lastKind == .ordinary)
  }

  @Test func `that waits for resources is an ordinary start at once when it is released`() {
    var talk = Conversation(service())
    _ = talk.dieOut()
    talk.pass(.seconds(900))
    talk.failToSpawn(eagain)
    let starts = talk.spawns.count
    talk.order(.release)
    #expect(talk.spawns.count == starts + 1)
    #expect(talk.lastKind == .ordinary)
  }

  @Test func `of a new executable is an ordinary start on a fresh ladder`() {
    var talk = Conversation(service())
    talk.exec(executable: file(1))
    _ = talk.dieOut()
    talk.pass(.seconds(900))
    talk.exec(executable: file(2))
    #expect(talk.record.quarantine == nil && talk.step == .restart)
    talk.end()
    #expect(talk.status.strikes == 1 && talk.phase == .backingOff)
  }

  @Test func `that an operator makes in a wait for resources doubles no delay`() {
    var talk = Conversation(service())
    _ = talk.dieOut()
    talk.pass(.seconds(900))
    talk.failToSpawn(eagain)
    talk.order(.start)
    talk.end()
    #expect(talk.record.trialDelay == .seconds(900))
  }

  @Test func `stopped while what is left of it goes shows why it is in quarantine`() {
    var talk = Conversation(service())
    _ = talk.dieOut()
    let reason = talk.status.reason
    talk.order(.start)
    talk.exec()
    talk.end(Death(.code(1), leftovers: 2))
    talk.order(.stop(untilBoot: false))
    talk.tell(.emptied(talk.run))
    #expect(talk.phase == .quarantined && talk.status.reason == reason)
  }
}

@Suite struct `a changed definition` {
  @Test func `is tried when the last strike falls, instead of a quarantine for the old one`() {
    let spec = service {
      $0.escalation.restart = 1; $0.escalation.repair = 1; $0.escalation.safeMode = 1
    }
    var talk = Conversation(spec)
    talk.crash()
    talk.crash()
    talk.exec()
    talk.tell(.defined(changed(spec)))
    talk.end()
    #expect(talk.phase == .starting && talk.step == .restart && talk.status.strikes == 0)
    #expect(talk.spawns.last?.request.spec.process.environment.first?.value == "2")
  }

  @Test func `is tried when the command of the old one is missing`() {
    let spec = service()
    var talk = Conversation(spec)
    talk.tell(.defined(changed(spec)))
    talk.failToSpawn(enoent)
    #expect(talk.phase == .starting)
    talk.failToSpawn(enoent)
    #expect(talk.phase == .quarantined)
  }

  @Test func `ends a round of repairs with the hook that runs`() {
    let spec = fullService {
      $0.escalation.restart = 1
      $0.repairs.append(RepairSpec(name: "second", kind: .run(["/bin/second"])))
    }
    var talk = Conversation(spec)
    talk.end()
    talk.pass(.seconds(1))
    talk.tell(.defined(changed(spec)))
    talk.repairAll(.succeeded)
    #expect(talk.hooks.count == 1)
    #expect(talk.phase == .starting && talk.step == .restart)
  }

  @Test func `that comes back while the removed service stops starts it again`() {
    let spec = service()
    var talk = Conversation(spec)
    talk.exec()
    talk.tell(.removed)
    talk.tell(.defined(spec))
    talk.end(.signal(.term, core: false))
    #expect(!talk.forgotten)
    #expect(talk.spawns.count == 2)
  }

  @Test func `that comes back while the removed service is repaired starts it after the hook`() {
    let spec = fullService { $0.escalation.restart = 1 }
    var talk = Conversation(spec)
    talk.end()
    talk.pass(.seconds(1))
    talk.tell(.removed)
    talk.tell(.defined(spec))
    talk.repairAll()
    #expect(talk.spawns.count == 2)
  }
}

@Suite struct `a changed executable` {
  @Test func `is noticed although the old one still ran when it changed`() {
    var talk = Conversation(fullService { $0.escalation.restart = 1 })
    talk.exec(executable: file(1))
    talk.end()
    talk.pass(.seconds(1))
    talk.repairAll()
    talk.exec(executable: file(1))
    #expect(talk.step == .repair)
    talk.tell(.executableSeen(file(2)))
    talk.end()
    #expect(talk.step == .restart && talk.status.strikes == 0)
    #expect(talk.phase == .backingOff)
    talk.pass(.seconds(1))
    #expect(talk.spawns.count == 3 && talk.hooks.count == 1)
  }

  @Test func `is no news where it is the file that could not be run before`() {
    var talk = Conversation(service())
    talk.failToSpawn(enoent)
    talk.tell(.executableSeen(file(1)))
    #expect(talk.spawns.count == 2, "it has appeared")
    talk.failToSpawn(enoent)  // it is there, but its interpreter is not
    for _ in 1...10 { talk.tell(.executableSeen(file(1))) }
    #expect(talk.spawns.count == 2, "its directory is busy, and that is all")
    talk.tell(.executableSeen(file(2)))
    #expect(talk.spawns.count == 3)
    talk.failToSpawn(enoent)
    talk.tell(.executableSeen(nil))
    talk.tell(.executableSeen(file(2)))
    #expect(talk.spawns.count == 4, "it went and came back")
  }

  @Test func `is noticed where the same file is moved away and back`() {
    var talk = Conversation(service())
    talk.exec(executable: file(1))
    talk.end()
    talk.pass(.seconds(1))
    talk.failToSpawn(enoent)
    talk.tell(.executableSeen(file(1)))
    #expect(talk.spawns.count == 3)
  }
}

@Suite struct `a policy changed by reload` {
  @Test func `without a watchdog ends it for what runs`() {
    let spec = service { $0.watchdog = .seconds(5) }
    var talk = Conversation(spec)
    talk.exec()
    talk.pass(.seconds(1))
    talk.tell(.defined(policy(spec) { $0.watchdog = .zero }))
    talk.tell(.watchdogPinged(talk.run))
    talk.pass(.seconds(30))
    #expect(talk.signals.isEmpty)
  }

  @Test func `with a shorter watchdog does not accuse a process that was told the longer one`() {
    let spec = service { $0.watchdog = .seconds(60) }
    var talk = Conversation(spec)
    talk.exec()
    talk.tell(.defined(policy(spec) { $0.watchdog = .seconds(2) }))
    talk.tell(.watchdogPinged(talk.run))
    talk.pass(.seconds(59))
    #expect(talk.signals.isEmpty)
    talk.pass(.seconds(1))
    #expect(talk.signals.map(\.signal) == [.abrt])
  }

  @Test func `without readiness takes a run that waits for it as ready`() {
    let spec = service { $0.ready = .notify }
    var talk = Conversation(spec)
    talk.exec()
    talk.tell(.defined(policy(spec) { $0.ready = .none }))
    #expect(talk.phase == .running)
  }

  @Test func `with escalation off runs no repairs any more, and with it on again climbs`() {
    let spec = fullService { $0.escalation.restart = 1 }
    var talk = Conversation(spec)
    talk.end()
    #expect(talk.step == .repair)
    talk.tell(.defined(policy(spec) { $0.escalation.enabled = false }))
    for _ in 1...20 {
      talk.pass(.seconds(70))
      talk.end()
    }
    #expect(talk.hooks.isEmpty && talk.step == .restart)
    talk.tell(.defined(spec))
    talk.pass(.seconds(70))
    talk.end()
    #expect(talk.step == .repair, "one step, however many strikes there were")
  }

  @Test func `with escalation off leaves safe mode when the plugins are due and well`() {
    let spec = fullService {
      $0.escalation.restart = 1; $0.escalation.repair = 1
    }
    var talk = Conversation(spec)
    talk.end()
    talk.pass(.seconds(1))
    talk.repairAll()
    talk.end()
    talk.pass(.seconds(1))
    talk.settle()
    #expect(talk.status.degraded)
    talk.tell(.defined(policy(spec) { $0.escalation.enabled = false }))
    talk.pass(.day)
    talk.end()
    talk.settle()
    #expect(!talk.status.degraded && talk.step == .restart)
  }

  @Test func `with escalation off does not lead from quarantine to safe mode or repairs`() {
    var talk = Conversation(fullService { $0.escalation.enabled = false })
    talk.failToSpawn(enoent)
    talk.pass(.seconds(900))
    talk.settle()
    #expect(talk.step == .restart && !talk.status.degraded)
    talk.pass(.seconds(3600))
    for _ in 1...20 {
      talk.end()
      talk.pass(.seconds(70))
    }
    #expect(talk.hooks.isEmpty)
  }

  @Test func `from never to a time brings a trial, and back takes it away`() {
    let spec = service { $0.quarantine.retryAfter = nil }
    var talk = Conversation(spec)
    _ = talk.dieOut()
    #expect(talk.status.next == nil)
    talk.tell(.defined(policy(spec) { $0.quarantine.retryAfter = .seconds(60) }))
    #expect(talk.status.next?.action == "trial")
    talk.tell(.defined(spec))
    #expect(talk.status.next == nil)
    talk.tell(.defined(policy(spec) { $0.quarantine.retryAfter = .seconds(60) }))
    let starts = talk.spawns.count
    talk.pass(.seconds(60))
    #expect(talk.spawns.count == starts + 1)
  }

  @Test func `that leaves mode observe takes back no step from what runs`() {
    let spec = service {
      $0.mode = .observe; $0.escalation.restart = 1
    }
    var talk = Conversation(spec)
    for _ in 1...12 {
      talk.end()
      talk.pass(.seconds(70))
    }
    talk.settle()
    talk.tell(.defined(policy(spec) { $0.mode = .enforce }))
    talk.pass(.hour * 3)
    #expect(talk.count("de-escalated") == 0 && talk.step == .restart)
  }

  @Test func `without a repair forgets when that one ran`() {
    let spec = fullService {
      $0.escalation.restart = 1
      $0.escalation.repair = 5
      $0.repairs[0].atMost = RunLimit(times: 9, within: .day)
    }
    var talk = Conversation(spec)
    talk.end()
    talk.pass(.seconds(1))
    talk.repairAll()
    #expect(talk.record.repairRuns.keys.sorted() == ["fix"])
    talk.exec()
    talk.tell(.defined(policy(spec) { $0.repairs = [RepairSpec(name: "other", kind: .run(["/bin/other"]))] }))
    talk.end()
    talk.pass(.seconds(1))
    #expect(talk.record.repairRuns.isEmpty)
  }
}

@Suite struct `a hold together with` {
  @Test func `an operator's start on step repair repairs and starts`() {
    var talk = Conversation(fullService { $0.escalation.restart = 1 })
    talk.end()
    talk.order(.hold(.hour))
    let start = talk.order(.start)
    talk.repairAll()
    #expect(talk.spawns.count == 2)
    talk.exec()
    #expect(isDone(talk.answers[start]))
  }

  @Test func `a repair tells those who wait for a start`() {
    var talk = Conversation(fullService { $0.escalation.restart = 1 })
    talk.end()
    talk.pass(.seconds(1))
    let start = talk.order(.start)
    talk.order(.hold(.hour))
    talk.repairAll()
    #expect(talk.phase == .stopped)
    #expect(isFailed(talk.answers[start]))
  }

  @Test func `restart never leaves a crash alone when it is over`() {
    var talk = Conversation(service { $0.restart = .never })
    talk.exec()
    talk.order(.hold(.minute))
    talk.end(after: .seconds(1))
    #expect(talk.phase == .finished)
    talk.pass(.hour)
    #expect(talk.spawns.count == 1)
  }

  @Test func `quarantine shows the reason of the quarantine when it is over`() {
    var talk = Conversation(service { $0.quarantine.retryAfter = .day })
    _ = talk.dieOut()
    let reason = talk.status.reason
    talk.order(.start)
    talk.exec()
    talk.order(.hold(.minute))
    talk.end(after: .seconds(1))
    talk.pass(.seconds(59))
    #expect(talk.phase == .quarantined && talk.status.reason == reason)
  }
}

@Suite struct `a death under a debugger` {
  private func traced(_ code: Int32) -> Death {
    var death = Death(.code(code))
    death.traced = true
    return death
  }

  @Test(arguments: [RestartPolicy.onCrash, .never], [Int32(0), 1])
  func `restarts only what would be restarted without one`(_ restart: RestartPolicy, _ code: Int32) {
    var talk = Conversation(service { $0.restart = restart })
    talk.end(traced(code))
    talk.tell(.emptied(talk.run))
    #expect((talk.phase == .backingOff) == (restart == .onCrash && code == 1))
  }
}

@Suite struct `what the ladder has cured` {
  @Test func `is a recovery also where the strike that led to the cure was the last on its step`() {
    var talk = Conversation(
      fullService {
        $0.escalation.restart = 1
        $0.notices = [.onRecovery: ["/bin/tell"]]
      })
    talk.end()
    talk.pass(.seconds(1))
    talk.repairAll(.succeeded)
    talk.settle()
    let notices = talk.actions.count { if case .notify = $0 { true } else { false } }
    #expect(notices == 1)
    talk.end()
    talk.settle()
    #expect(talk.actions.count { if case .notify = $0 { true } else { false } } == 1, "a late death is none")
  }
}

@Suite struct `a plugin retry together with` {
  private func degraded(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    let spec = fullService {
      $0.escalation.restart = 1
      $0.escalation.repair = 1
      change(&$0)
    }
    var talk = Conversation(spec)
    talk.end()
    talk.pass(.seconds(1))
    talk.repairAll()
    talk.end()
    talk.pass(.seconds(1))
    talk.settle()
    return talk
  }

  @Test func `a fatal exit goes back to what was well without the plugins`() {
    var talk = degraded { $0.fatalExit = [3] }
    talk.pass(.day)
    talk.end()
    #expect(talk.lastKind == .pluginRetry)
    talk.end(.code(3))
    #expect(talk.phase == .backingOff && talk.status.strikes == 0)
    talk.pass(.seconds(1))
    #expect(talk.mode == "safe")
  }

  @Test func `a long retry-after is not tried sooner because it failed`() {
    var talk = degraded { $0.plugins.retryAfter = .day * 30 }
    talk.pass(.day * 30)
    talk.end()
    #expect(talk.lastKind == .pluginRetry)
    talk.end()
    #expect(talk.record.plugins["social"]?.timeToLive == .day * 30)
  }

  @Test func `reset counts its failure like any`() {
    var talk = degraded()
    talk.pass(.day)
    talk.end()
    #expect(talk.lastKind == .pluginRetry)
    talk.exec()
    talk.order(.reset)
    talk.end()
    #expect(talk.count("plugin-retry-failed") == 0 && !talk.record.plugins.off)
  }
}

@Suite struct `the count of restarts` {
  @Test func `does not rise while nothing can be started`() {
    var talk = Conversation(service())
    for _ in 1...5 {
      talk.failToSpawn(eagain)
      talk.pass(.seconds(30))
    }
    talk.exec()
    #expect(talk.status.restarts == 0)
    talk.end()
    talk.pass(.seconds(1))
    talk.failToSpawn(eagain)
    talk.pass(.seconds(30))
    talk.exec()
    #expect(talk.status.restarts == 1)
  }
}

@Suite struct `an answer` {
  @Test func `to a start is not that of the run which was on its way out`() {
    var talk = Conversation(service { $0.ready = .notify })
    talk.exec()
    talk.pass(.seconds(90))
    #expect(talk.phase == .stopping)
    let start = talk.order(.start)
    talk.end(.signal(.term, core: false))
    #expect(talk.answers[start] == nil)
    talk.ready()
    #expect(isDone(talk.answers[start]))
  }

  @Test func `of the store to an earlier save does not make a later one durable`() {
    var talk = Conversation(service(), begin: false, savesAnswered: false)
    talk.tell(.begin)
    talk.order(.stop(untilBoot: false))
    talk.pass(.seconds(3))
    let notes = talk.status.notes
    #expect(!notes.isEmpty)
    talk.tell(.saved(talk.saves[0].ticket))
    #expect(talk.status.notes == notes)
    if let last = talk.saves.last { talk.tell(.saved(last.ticket)) }
    #expect(talk.status.notes.isEmpty)
  }
}

@Suite struct `the STATUS line` {
  @Test func `does not call crashed what has finished well`() {
    var fleet = Fleet(seed: (1, 2, 3, 4))
    let now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
    for (name, code) in [("a", Int32(0)), ("b", 1), ("c", 0)] {
      guard let name = ServiceName(name) else { continue }
      var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/a"]))
      spec.restart = .never
      let id = fleet.add(spec, record: nil, now: now)
      fleet.handle(.begin, for: id, now: now)
      for case .act(id, .save(_, let ticket)) in fleet.takeOutput() { fleet.handle(.saved(ticket), for: id, now: now) }
      for case .act(id, .spawn(let request)) in fleet.takeOutput() {
        fleet.handle(.spawned(request.run, pid: 2, executable: nil), for: id, now: now)
        fleet.handle(.ended(request.run, Death(.code(code))), for: id, now: now)
        fleet.handle(.emptied(request.run), for: id, now: now)
      }
    }
    #expect(fleet.summary().line == "3 services: 1 crashed (b), 2 finished")
  }
}

@Suite struct `the plan` {
  enum State: String, CaseIterable, Sendable {
    case stopped, saving, starting, running, settled, backingOff, waiting, repairing, quarantined, stopping, held
    case heldInBackoff, degraded, trial, changed, restarting
  }

  private func talk(in state: State) -> Conversation {
    let spec = fullService {
      $0.ready = .notify
      if state == .stopped { $0.start = .manual }
      $0.escalation.restart = state == .degraded || state == .repairing ? 1 : 2
      if state == .degraded { $0.escalation.repair = 1 }
    }
    var talk = Conversation(spec, savesAnswered: state != .saving)
    switch state {
    case .stopped, .saving: break
    case .starting: talk.exec()
    case .running: talk.ready()
    case .settled: talk.settle()
    case .backingOff: talk.end()
    case .waiting: talk.failToSpawn(eagain)
    case .repairing:
      talk.end()
      talk.pass(.seconds(1))
    case .quarantined: _ = talk.dieOut()
    case .stopping:
      talk.exec()
      talk.pass(.seconds(91))
    case .held:
      talk.exec()
      talk.order(.hold(.minute))
    case .heldInBackoff:
      talk.end()
      talk.order(.hold(.minute))
    case .degraded:
      talk.end()
      talk.pass(.seconds(1))
      talk.repairAll()
      talk.end()
      talk.pass(.seconds(1))
      talk.settle()
      talk.pass(.day)
    case .trial:
      _ = talk.dieOut()
      talk.pass(.seconds(900))
      talk.exec()
    case .changed:
      talk.exec()
      talk.tell(.defined(changed(spec)))
    case .restarting:
      talk.exec()
      talk.order(.restart)
    }
    return talk
  }

  @Test(arguments: State.allCases)
  func `from wherever it is announces the starts and deaths that then come, at their times`(_ state: State) {
    var talk = talk(in: state)
    let plan = talk.fleet.plan(for: talk.id, now: talk.now)
    let begin = talk.time
    var counted = talk.occurrences.count
    if state == .stopped { talk.order(.start) }
    if state == .saving {
      talk.savesAnswered = true
      for save in talk.saves { talk.tell(.saved(save.ticket)) }
    }
    var came: [String] = []
    func since() -> Duration { talk.time - begin }
    var left = 4000
    while left > 0, talk.count("trial-failed") == 0 {
      left -= 1
      switch talk.phase {
      case .starting, .running, .stopping: talk.end()
      case .repairing: talk.repairAll(.succeeded)
      case .stopped, .waiting, .backingOff, .quarantined, .finished:
        let due = talk.fleet.nextDeadline
        let waits = [due.monotonic.map { $0 - talk.now.monotonic }, due.boot.map { $0 - talk.now.boot }]
        guard let wait = waits.compactMap({ $0 }).min() else { left = 0; break }
        talk.pass(max(.zero, wait))
      }
      for kind in talk.occurrences.dropFirst(counted) {
        switch kind {
        case .started(_, _, let kind, _): came.append("\(kind) \(since().description)")
        case .strike(let step, let count, _): came.append("strike \(count) on \(step) \(since().description)")
        case .quarantined: came.append("quarantine \(since().description)")
        case .repairStarted(_, let name, _): came.append("repair \(name) \(since().description)")
        default: break
        }
      }
      counted = talk.occurrences.count
    }
    let announced = plan.compactMap { entry -> String? in
      let at = entry.earliest.description
      switch entry.action {
      case "start": return "ordinary \(at)"
      case "trial": return "trial \(at)"
      case "plugin-retry": return "\(RunKind.pluginRetry) \(at)"
      case "death" where entry.text.contains("strike "):
        return entry.text.contains("no strike")
          ? nil
          : "strike \(entry.strikes) on \(entry.step) \(at)"
      case "quarantine": return "quarantine \(at)"
      case "repair": return entry.text.contains("fix") ? "repair fix \(at)" : nil
      default: return nil
      }
    }
    #expect(announced == came)
    // A trial's failure is the end of both stories.
    #expect(came.count >= (state == .trial ? 0 : state == .quarantined ? 1 : 7))
  }
}

@Suite struct `the plan of a service together with` {
  @Test func `a fatal exit code of 1 is that of a crash all the same`() {
    let usual = Fleet.plan(service()).map(\.action)
    #expect(Fleet.plan(service { $0.fatalExit = [1] }).map(\.action) == usual)
    #expect(
      Fleet.plan(
        service {
          $0.successExit = [0, 1]; $0.restart = .onCrash
        }
      ).map(\.action) == usual)
  }
}

@Suite struct `a shutdown together with` {
  @Test(arguments: [Command.Verb.start, .restart])
  func `an order to start does not answer that it was done`(_ verb: Command.Verb) {
    var talk = Conversation(service())
    talk.exec()
    talk.shutDown()
    let order = talk.order(verb)
    #expect(isFailed(talk.answers[order]))
    talk.end(.signal(.term, core: false))
    #expect(talk.allStopped && talk.record.wanted == .up)
  }

  @Test func `a new definition starts nothing`() {
    var fleet = Fleet(seed: (1, 2, 3, 4))
    let now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
    fleet.shutDown(now: now)
    let id = fleet.add(service(), record: nil, now: now)
    fleet.handle(.begin, for: id, now: now)
    #expect(fleet.takeOutput() == [.allStopped])
  }
}
