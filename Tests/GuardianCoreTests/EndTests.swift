import GuardianCore
import GuardianModel
import Testing

@Suite struct `an end` {
  struct Clean: CustomTestStringConvertible {
    var kind: ServiceKind, policy: RestartPolicy, settled: Bool
    var phase: PhaseName, strikes: Int
    var testDescription: String { "\(kind) \(policy.rawValue), settled \(settled)" }
  }
  @Test(arguments: [
    Clean(kind: .daemon, policy: .always, settled: false, phase: .backingOff, strikes: 1),
    Clean(kind: .daemon, policy: .always, settled: true, phase: .starting, strikes: 0),
    Clean(kind: .daemon, policy: .onCrash, settled: false, phase: .finished, strikes: 0),
    Clean(kind: .daemon, policy: .onCrash, settled: true, phase: .finished, strikes: 0),
    Clean(kind: .daemon, policy: .never, settled: false, phase: .finished, strikes: 0),
    Clean(kind: .task, policy: .always, settled: false, phase: .backingOff, strikes: 0),
    Clean(kind: .task, policy: .onCrash, settled: false, phase: .finished, strikes: 0),
    Clean(kind: .task, policy: .onCrash, settled: true, phase: .finished, strikes: 0),
    Clean(kind: .task, policy: .never, settled: false, phase: .finished, strikes: 0),
  ])
  func `that is clean does what the policy says`(_ c: Clean) {
    var talk = Conversation(
      service {
        $0.kind = c.kind
        $0.restart = c.policy
      })
    if c.settled { talk.settle() }
    talk.end(.code(0), after: .seconds(1))
    #expect(talk.phase == c.phase)
    #expect(talk.status.strikes == c.strikes)
  }

  struct Crash: CustomTestStringConvertible {
    var kind: ServiceKind, policy: RestartPolicy, phase: PhaseName, strikes: Int
    var testDescription: String { "\(kind) \(policy.rawValue)" }
  }
  @Test(arguments: [
    Crash(kind: .daemon, policy: .always, phase: .backingOff, strikes: 1),
    Crash(kind: .daemon, policy: .onCrash, phase: .backingOff, strikes: 1),
    Crash(kind: .daemon, policy: .never, phase: .finished, strikes: 0),
    Crash(kind: .task, policy: .always, phase: .backingOff, strikes: 1),
    Crash(kind: .task, policy: .onCrash, phase: .backingOff, strikes: 1),
    Crash(kind: .task, policy: .never, phase: .finished, strikes: 0),
  ])
  func `that is a crash does what the policy says`(_ c: Crash) {
    var talk = Conversation(
      service {
        $0.kind = c.kind
        $0.restart = c.policy
      })
    talk.end(.code(1))
    #expect(talk.phase == c.phase)
    #expect(talk.status.strikes == c.strikes)
  }

  @Test func `D10, CASES 88: with a code of success-exit is clean, without it 143 is a crash`() {
    var talk = Conversation(
      service {
        $0.restart = .onCrash
        $0.successExit = [0, 143]
      })
    talk.end(.code(143))
    #expect(talk.phase == .finished)
    var other = Conversation(service { $0.restart = .onCrash })
    other.end(.code(143))
    #expect(other.phase == .backingOff)
  }

  @Test func `D10: with a code of fatal-exit quarantines at once`() {
    var talk = Conversation(fullService { $0.fatalExit = [99] })
    talk.end(.code(99))
    #expect(talk.phase == .quarantined)
    #expect(talk.spawns.count == 1)
    #expect(talk.status.reason.contains("99"))
  }

  @Test func `of a settled run with a fatal code quarantines at once too`() {
    var talk = Conversation(service { $0.fatalExit = [99] })
    talk.settle()
    talk.end(.code(99))
    #expect(talk.phase == .quarantined)
  }

  @Test func `under a debugger is not counted`() {
    var talk = Conversation(service())
    talk.end(Death(.signal(.segv, core: true), traced: true))
    talk.tell(.emptied(talk.run))
    #expect(talk.count("strike") == 0)
    #expect(talk.status.strikes == 0)
    talk.pass(.seconds(1))
    #expect(talk.spawns.count == 2)
  }

  @Test func `that leaves children behind says that the daemon puts itself in the background`() {
    var talk = Conversation(service())
    talk.end(.code(0), leftovers: 1)
    talk.tell(.emptied(talk.run))
    #expect(talk.status.reason.contains("foreground"))
  }

  @Test func `of a task that nobody saw runs it again without a strike`() {
    var talk = Conversation(
      service {
        $0.kind = .task
        $0.restart = .onCrash
      })
    talk.end(.unseen)
    talk.pass(.seconds(60))
    #expect(talk.spawns.count == 2)
    #expect(talk.count("strike") == 0)
  }

  @Test func `of guardian's own trouble is waited out for as long as it lasts, named, and no strike`() {
    // CASES 76: giving up because fork failed for a moment.
    var talk = Conversation(service())
    for _ in 1...50 {
      talk.failToSpawn(eagain)
      #expect(talk.phase == .waiting)
      #expect(talk.status.reason.contains("EAGAIN"))
      talk.pass(.seconds(60))
    }
    #expect(talk.spawns.count == 51)
    #expect(talk.status.strikes == 0)
    talk.settle()
    #expect(talk.status.settled)
  }

  @Test func `by a missing command quarantines at once, and the path's appearance releases it`() {
    var talk = Conversation(service())
    talk.failToSpawn(enoent)
    #expect(talk.phase == .quarantined)
    #expect(talk.actions.contains(.watch("/bin/web")))
    talk.tell(.executableSeen(FileIdentity(device: 1, inode: 2, size: 3, modified: 4)))
    #expect(talk.spawns.count == 2)
    talk.settle()
    #expect(talk.step == .restart)
  }

  @Test func `by a missing command is tried again on reload and at each trial`() {
    var talk = Conversation(service())
    talk.failToSpawn(enoent)
    talk.pass(.seconds(900))
    #expect(talk.spawns.last?.request.kind == .trial)
    talk.failToSpawn(enoent)
    #expect(talk.phase == .quarantined)
    talk.tell(.defined(talk.spec))
    #expect(talk.spawns.count == 3)
  }

  @Test func `by another failure to start is a strike that names its stage`() {
    var talk = Conversation(service())
    talk.failToSpawn(SpawnFailure(stage: .directory, errno: 13, target: "/srv", sentence: "cannot enter /srv"))
    #expect(talk.status.strikes == 1)
    #expect(talk.status.reason.contains("cannot enter /srv"))
    #expect(talk.status.lastEnd?.cause == "exec")
  }

  @Test func `is recorded once, with how long the run lived`() {
    var talk = Conversation(service())
    talk.end(.signal(.segv, core: true), after: .seconds(3))
    talk.pass(.seconds(10))
    let ends = talk.occurrences.compactMap { if case .ended(let end) = $0 { end } else { nil } }
    #expect(ends.count == 1)
    #expect(ends.first?.uptime == .seconds(3))
    #expect(ends.first?.description == "SIGSEGV (core dumped)")
  }

  @Test func `of an earlier run, or any news of one, changes nothing`() {
    var talk = Conversation(service { $0.ready = .notify })
    talk.exec()
    let old = talk.run
    talk.crash()
    talk.exec()
    let before = talk.status
    talk.tell(.ready(old))
    talk.tell(.ended(old, Death(.code(1))))
    talk.tell(.emptied(old))
    talk.tell(.watchdogTriggered(old))
    talk.tell(.spawned(old, pid: 5, executable: nil))
    talk.tell(.hookEnded(old, .cannotRepair))
    #expect(talk.status == before)
  }

  @Test func `that is told twice is one end`() {
    var talk = Conversation(service())
    talk.end(.code(1))
    let run = talk.run
    talk.tell(.ended(run, Death(.code(1))))
    talk.tell(.emptied(run))
    #expect(talk.count("ended") == 1)
    #expect(talk.count("strike") == 1)
  }
}

@Suite struct `readiness` {
  @Test func `that does not come within start-timeout is a strike with that cause`() {
    var talk = Conversation(service { $0.ready = .notify })
    talk.exec()
    talk.pass(.seconds(90))
    #expect(talk.signals.map(\.signal) == [.term])
    talk.end(.signal(.term, core: false))
    #expect(talk.status.lastEnd?.cause == "start-timeout")
    #expect(talk.status.strikes == 1)
  }

  @Test func `starts the startup window, so that a slow starter has all of it`() {
    var talk = Conversation(service { $0.ready = .notify })
    talk.exec()
    talk.pass(.seconds(80))
    talk.ready()
    talk.pass(.seconds(59))
    #expect(!talk.status.settled)
    talk.pass(.seconds(1))
    #expect(talk.status.settled)
  }

  @Test func `may be put off by EXTEND_TIMEOUT_USEC`() {
    var talk = Conversation(service { $0.ready = .notify })
    talk.exec()
    talk.pass(.seconds(80))
    talk.tell(.timeoutExtended(talk.run, .seconds(60)))
    talk.pass(.seconds(50))
    #expect(talk.signals.isEmpty)
    talk.ready()
    #expect(talk.phase == .running)
  }

  @Test func `is not doubted again: a second READY does not prolong the window`() {
    var talk = Conversation(service { $0.ready = .notify })
    talk.ready()
    talk.pass(.seconds(59))
    talk.tell(.ready(talk.run))
    talk.pass(.seconds(1))
    #expect(talk.status.settled)
  }

  @Test func `does not make a process settle that is stopped or writing its core`() {
    var talk = Conversation(service())
    talk.looksAnswered = false
    talk.settle()
    #expect(!talk.status.settled)
    talk.tell(.looked(talk.run, .stopped))
    talk.pass(.seconds(1))
    talk.tell(.looked(talk.run, .dumping))
    #expect(!talk.status.settled)
    talk.pass(.seconds(100))
    talk.end(.signal(.abrt, core: true))
    #expect(talk.count("strike") == 1)
  }
}

@Suite struct `a watchdog` {
  @Test func `that is not answered ends the run by ABRT, then KILL, and each time is a strike`() {
    // CASES 68: a frozen service cannot act on the abort signal.
    var talk = Conversation(
      service {
        $0.watchdog = .seconds(2)
        $0.escalation.restart = 5
        $0.escalation.repair = 0
        $0.escalation.safeMode = 0
        $0.ready = .notify
      })
    for death in 1...5 {
      talk.ready()
      talk.pass(.seconds(2))
      #expect(talk.signals.last?.signal == .abrt)
      talk.pass(.seconds(10))
      #expect(talk.signals.last?.signal == .kill)
      talk.end(.signal(.kill, core: false))
      #expect(talk.count("strike") == death)
      talk.pass(.seconds(60))
    }
    #expect(talk.phase == .quarantined)
    #expect(talk.status.lastEnd?.cause == "watchdog")
    #expect(talk.status.reason.contains("watchdog"))
  }

  @Test func `that is answered in time says nothing`() {
    var talk = Conversation(
      service {
        $0.watchdog = .seconds(2)
        $0.ready = .notify
      })
    talk.ready()
    for _ in 1...100 {
      talk.pass(.milliseconds(1900))
      talk.tell(.watchdogPinged(talk.run))
    }
    #expect(talk.signals.isEmpty)
    #expect(talk.status.settled)
  }

  @Test func `may be triggered by the service itself`() {
    var talk = Conversation(
      service {
        $0.watchdog = .seconds(30)
        $0.ready = .notify
      })
    talk.ready()
    talk.tell(.watchdogTriggered(talk.run))
    #expect(talk.signals.map(\.signal) == [.abrt])
    talk.end(.signal(.abrt, core: true))
    #expect(talk.status.lastEnd?.cause == "watchdog")
  }

  @Test func `does not bite after a suspend or a stall`() {
    // CASES 65: the watchdog bit after a suspend.
    var talk = Conversation(
      service {
        $0.watchdog = .seconds(2)
        $0.ready = .notify
      })
    talk.ready()
    talk.pass(.seconds(1))
    talk.stall(.seconds(60))
    #expect(talk.signals.isEmpty)
    talk.pass(.milliseconds(1900))
    #expect(talk.signals.isEmpty, "one fresh period is granted")
    talk.pass(.milliseconds(100))
    #expect(talk.signals.map(\.signal) == [.abrt])
  }
}
