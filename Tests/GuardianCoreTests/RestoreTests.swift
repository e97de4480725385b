import GuardianCore
import GuardianModel
import Testing

/// Guardian goes and comes back: the table "Adoption", cell by cell, on the same boot.
@Suite struct SameBootTests {
  @Test func `starting: adopted, and its time-out gets the absence back`() {
    var c = Conversation(service { $0.ready = .notify })
    c.exec()
    let run = c.run
    c.pass(.seconds(80))
    c.guardianDies(away: .seconds(60))
    #expect(c.phase == .starting)
    #expect(c.adoptee?.run == run)
    #expect(c.adoptee?.process == ProcessIdentity(pid: 101, startTicks: 0))
    c.adopt()
    c.tell(.begin)
    #expect(c.spawns.count == 1 && c.signals.isEmpty)
    c.pass(.seconds(9))
    #expect(c.phase == .starting && c.signals.isEmpty)
    c.tell(.ready(run))
    #expect(c.phase == .running)
    c.pass(.seconds(60))
    #expect(c.status.settled)
  }

  @Test func `starting: a time-out goes on after adoption`() {
    var c = Conversation(service { $0.ready = .notify })
    c.exec()
    c.pass(.seconds(80))
    c.guardianDies(away: .seconds(60))
    c.adopt()
    c.pass(.seconds(11))
    #expect(c.phase == .stopping && c.signals.map(\.signal) == [.term])
  }

  @Test func `nothing is due while adoption is unanswered`() {
    var c = Conversation(service { $0.ready = .notify })
    c.exec()
    c.guardianDies(away: .hour)
    c.pass(.hour)
    #expect(c.phase == .starting && c.signals.isEmpty && c.spawns.count == 1)
  }

  @Test func `readiness unknown: no start time-out, shown, and settled by age`() {
    var c = Conversation(service { $0.ready = .notify })
    c.exec()
    c.pass(.seconds(20))
    c.guardianDies(away: .seconds(10))
    c.adopt(readinessKnown: false)
    #expect(c.phase == .starting)
    #expect(c.status.reason.contains("readiness unknown"))
    c.pass(.seconds(29))
    #expect(!c.status.settled)
    c.pass(.seconds(2))
    #expect(c.status.settled && c.phase == .running && c.status.reason == "")
  }

  @Test func `running: adopted untouched, its window goes on, counters are kept`() {
    var c = Conversation(service())
    c.crash()
    c.exec()
    c.pass(.seconds(30))
    let restarts = c.status.restarts
    c.guardianDies(away: .seconds(20))
    c.adopt()
    c.tell(.begin)
    #expect(c.spawns.count == 2 && c.signals.isEmpty)
    #expect(c.status.strikes == 1 && c.status.restarts == restarts && c.status.pid == 102)
    c.pass(.seconds(11))
    #expect(c.status.settled && c.status.strikes == 0)
  }

  @Test func `a watchdog has one fresh period at adoption`() {
    var c = Conversation(
      service {
        $0.ready = .notify
        $0.watchdog = .seconds(30)
      })
    c.ready()
    c.guardianDies(away: .hour)
    c.adopt()
    c.pass(.seconds(29))
    #expect(c.phase == .running)
    c.pass(.seconds(2))
    #expect(c.signals.map(\.signal) == [.abrt])
  }

  @Test func `G2: a death that nobody saw is a strike before settled, counted once`() {
    var c = Conversation(service())
    c.exec()
    c.pass(.seconds(5))
    c.guardianDies(away: .seconds(5))
    c.miss()
    #expect(c.status.strikes == 1 && c.phase == .backingOff)
    #expect(c.status.lastEnd?.cause == "unknown")
    #expect(c.count("strike") == 1)
    // And once more guardian dies, with what it has concluded saved.
    c.guardianDies()
    #expect(c.adoptee == nil)
    c.tell(.begin)
    #expect(c.status.strikes == 1)
    c.pass(.seconds(1))
    #expect(c.spawns.count == 2 && c.openEntries == [c.run])
    #expect(c.madeUp.count == 1)
  }

  @Test func `an unseen death after settled is a late death`() {
    var c = Conversation(service())
    c.settle()
    c.guardianDies(away: .seconds(5))
    c.miss()
    #expect(c.status.strikes == 0 && c.count("late-death") == 1)
    #expect(c.spawns.count == 2)
  }

  @Test func `a task with an unseen end runs again, without a strike`() {
    var c = Conversation(
      service {
        $0.kind = .task
        $0.restart = .onCrash
      })
    c.exec()
    c.guardianDies(away: .seconds(5))
    c.miss()
    c.tell(.begin)
    c.pass(.seconds(1))
    #expect(c.spawns.count == 2 && c.status.strikes == 0)
  }

  @Test func `G1: allowed, and never begun: started again at once, and nothing is counted`() {
    var c = Conversation(service())
    #expect(c.spawns.count == 1)
    c.guardianDies()
    #expect(c.adoptee != nil && c.adoptee?.process == nil)
    c.miss()
    c.tell(.begin)
    #expect(c.spawns.count == 2 && c.status.strikes == 0 && c.status.restarts == 0)
    #expect(c.openEntries == [c.run])
    #expect(c.madeUp == [.notBegun])
  }

  @Test func `G1: begun, and not written down: adopted all the same`() {
    var c = Conversation(service())
    c.guardianDies()
    c.adopt()
    c.tell(.begin)
    #expect(c.phase == .running && c.status.pid == 77 && c.spawns.count == 1)
    c.pass(.seconds(60))
    #expect(c.status.settled)
  }

  @Test func `backing-off: what is left of the delay`() {
    var c = Conversation(service { $0.backoff.first = .seconds(20) })
    c.end()
    c.pass(.seconds(5))
    c.guardianDies(away: .seconds(5))
    c.tell(.begin)
    #expect(c.phase == .backingOff)
    c.pass(.seconds(9))
    #expect(c.spawns.count == 1)
    c.pass(.seconds(2))
    #expect(c.spawns.count == 2 && c.status.strikes == 1)
  }

  @Test func `a delay that was over meanwhile still waits for begin`() {
    var c = Conversation(service { $0.backoff.first = .seconds(20) })
    c.end()
    c.guardianDies(away: .hour)
    #expect(c.spawns.count == 1)
    c.tell(.begin)
    #expect(c.spawns.count == 2)
  }

  @Test func `waiting: what is left of it`() {
    var c = Conversation(service())
    c.failToSpawn(eagain)
    c.guardianDies()
    c.tell(.begin)
    #expect(c.phase == .waiting && c.status.strikes == 0 && c.status.reason.contains("EAGAIN"))
    c.pass(.seconds(2))
    #expect(c.spawns.count == 2)
  }

  @Test func `repairing: the hook is adopted by its own record`() {
    var c = Conversation(fullService())
    for _ in 0..<3 { c.crash() }
    #expect(c.phase == .repairing)
    guard let hook = c.hooks.last?.id else { return #expect(Bool(false), "no hook") }
    c.tell(.hookStarted(hook, pid: 55, startTicks: 5))
    c.guardianDies(away: .seconds(30))
    #expect(c.adoptee?.run == hook && c.adoptee?.isHook == true)
    #expect(c.adoptee?.process == ProcessIdentity(pid: 55, startTicks: 5))
    c.adopt()
    c.tell(.begin)
    c.pass(.seconds(59))
    #expect(c.phase == .repairing)
    c.tell(.hookEnded(hook, .succeeded))
    #expect(c.spawns.count == 4)
    #expect(c.openEntries == [c.run])
  }

  @Test func `G5: a hook whose end was not seen has failed, and the next repair runs`() {
    var c = Conversation(
      fullService { $0.repairs.append(RepairSpec(name: "second", kind: .run(["/bin/second"]))) })
    for _ in 0..<3 { c.crash() }
    c.guardianDies()
    c.miss()
    #expect(c.hooks.map { $0.purpose.name } == ["fix", "second"])
    #expect(c.madeUp == [.hook(.failed(.unseen))])
    c.tell(.hookEnded(c.hooks[1].id, .succeeded))
    #expect(c.spawns.count == 4 && c.openEntries == [c.run])
  }

  @Test func `an order to stop outlives guardian during a repair`() {
    var c = Conversation(fullService())
    for _ in 0..<3 { c.crash() }
    c.order(.stop(untilBoot: false))
    c.guardianDies()
    c.adopt()
    c.tell(.begin)
    #expect(c.phase == .repairing)
    c.tell(.hookEnded(c.hooks[0].id, .failed(.signal(.term, core: false))))
    #expect(c.phase == .stopped && c.spawns.count == 3)
  }

  @Test
  func `repairs that were ordered are made though guardian, or the host, went down while the service was stopped`() {
    for host in [false, true] {
      var c = Conversation(fullService())
      c.settle()
      c.order(.repair(nil))
      #expect(c.phase == .stopping && c.hooks.isEmpty)
      if host {
        c.reboot(down: .seconds(30))
        c.tell(.begin)
      } else {
        c.guardianDies()
        c.adopt()
        c.tell(.begin)
        #expect(c.phase == .stopping && c.hooks.isEmpty)
        c.end(.signal(.term, core: false))
      }
      #expect(c.phase == .repairing && c.hooks.map { $0.purpose.name } == ["fix"])
      if let hook = c.hooks.first?.id { c.tell(.hookEnded(hook, .succeeded)) }
      #expect(c.spawns.count == 2 && c.record.orderedRepairs.isEmpty)
    }
  }

  @Test func `G4: stopping is finished with the remaining patience, and the order holds`() {
    var c = Conversation(service())
    c.settle()
    c.order(.stop(untilBoot: false))
    c.pass(.seconds(4))
    c.guardianDies(away: .seconds(60))
    c.adopt()
    c.tell(.begin)
    #expect(c.signals.map(\.signal) == [.term, .term])
    c.pass(.seconds(5))
    #expect(c.signals.count == 2)
    c.pass(.seconds(2))
    #expect(c.signals.last?.signal == .kill && c.signals.last?.toSet == true)
    c.end(.signal(.kill, core: false))
    #expect(c.phase == .stopped && c.spawns.count == 1 && c.status.wanted == .down)
  }

  @Test func `G4: what was being stopped and is gone is stopped, not dead`() {
    var c = Conversation(service())
    c.exec()
    c.order(.stop(untilBoot: false))
    c.guardianDies(away: .seconds(60))
    c.miss()
    #expect(c.phase == .stopped && c.status.strikes == 0)
    #expect(c.openEntries == [])
  }

  @Test func `a restart that was ordered is finished`() {
    var c = Conversation(service())
    c.settle()
    c.order(.restart)
    c.guardianDies()
    c.miss()
    #expect(c.spawns.count == 2 && c.status.strikes == 0)
  }

  @Test func `a death that was seen, with processes left over, is counted once`() {
    var c = Conversation(service())
    c.end(.signal(.segv, core: true), leftovers: 2)
    #expect(c.phase == .stopping)
    c.guardianDies()
    #expect(c.adoptee?.mainEnded == true)
    c.adopt()
    #expect(c.signals.last?.toSet == true)
    c.tell(.emptied(c.run))
    #expect(c.status.strikes == 1 && c.status.lastEnd?.signal == "SEGV" && c.count("ended") == 1)
  }

  @Test func `a watchdog kill that guardian did not live to see ended is still that`() {
    var c = Conversation(
      service {
        $0.ready = .notify
        $0.watchdog = .seconds(30)
      })
    c.ready()
    c.pass(.seconds(31))
    #expect(c.phase == .stopping)
    c.guardianDies()
    c.miss()
    #expect(c.status.lastEnd?.cause == "watchdog" && c.status.strikes == 1)
  }

  @Test func `quarantined and held are kept`() {
    var c = Conversation(service())
    _ = c.dieOut()
    c.guardianDies(away: .seconds(60))
    c.tell(.begin)
    #expect(c.phase == .quarantined && c.status.reason.contains("strike 7"))
    c.order(.release)
    c.exec()
    c.order(.hold(.seconds(600)))
    c.guardianDies(away: .seconds(300))
    c.adopt()
    #expect(c.status.held)
    c.end()
    #expect(c.status.strikes == 0)
    c.pass(.seconds(301))
    #expect(!c.status.held && c.phase == .starting || c.spawns.count > 8)
  }

  @Test func `what was missing before is still waited for`() {
    var c = Conversation(service())
    c.failToSpawn(enoent)
    #expect(c.phase == .quarantined)
    c.guardianDies()
    c.tell(.begin)
    #expect(c.actions.contains(.watch("/bin/web")))
    let before = c.spawns.count
    c.tell(.executableSeen(FileIdentity(device: 1, inode: 2, size: 3, modified: 4)))
    #expect(c.spawns.count == before + 1 && c.status.step == .restart)
  }

  @Test func `trial: adopted as such`() {
    var c = Conversation(service())
    _ = c.dieOut()
    c.pass(.seconds(901))
    c.exec()
    #expect(c.mode == "trial")
    c.guardianDies()
    c.adopt()
    c.tell(.begin)
    c.end()
    #expect(c.phase == .quarantined && c.count("trial-failed") == 1 && c.status.strikes == 0)
  }

  @Test func `stopped by order stays stopped`() {
    var c = Conversation(service())
    c.settle()
    c.order(.stop(untilBoot: true))
    c.end(.signal(.term, core: false))
    c.guardianDies(away: .hour)
    c.tell(.begin)
    #expect(c.phase == .stopped && c.spawns.count == 1 && c.status.wanted == .down)
  }

  @Test func `finished stays finished`() {
    var c = Conversation(
      service {
        $0.kind = .task
        $0.restart = .onCrash
      })
    c.end(.code(0))
    #expect(c.phase == .finished)
    c.guardianDies()
    c.tell(.begin)
    #expect(c.phase == .finished && c.spawns.count == 1)
  }

  @Test func `a definition changed meanwhile gives a fresh ladder, policy keys do not`() {
    var c = Conversation(service())
    _ = c.dieOut()
    c.guardianDies(definition: service { $0.startTimeout = .seconds(33) })
    c.tell(.begin)
    #expect(c.phase == .quarantined)
    let before = c.spawns.count
    c.guardianDies(definition: service { $0.process.command = ["/bin/web", "--new"] })
    c.tell(.begin)
    #expect(c.spawns.count == before + 1 && c.status.step == .restart)
    #expect(c.spawns.last?.request.spec.process.command == ["/bin/web", "--new"])
  }

  @Test func `removed meanwhile: what lives is stopped, then forgotten`() {
    var living = Conversation(service())
    living.settle()
    living.guardianDies()
    living.tell(.removed)
    living.adopt()
    #expect(living.signals.map(\.signal) == [.term, .term] || living.signals.map(\.signal) == [.term])
    living.end(.signal(.term, core: false))
    #expect(living.forgotten && living.openEntries == [])

    var stopping = Conversation(service())
    stopping.settle()
    stopping.order(.stop(untilBoot: false))
    stopping.guardianDies()
    stopping.tell(.removed)
    stopping.miss()
    #expect(stopping.forgotten && stopping.openEntries == [])

    var repairing = Conversation(fullService())
    for _ in 0..<3 { repairing.crash() }
    repairing.guardianDies(definition: service())
    repairing.tell(.removed)
    repairing.adopt()
    #expect(!repairing.forgotten)
    repairing.tell(.hookEnded(repairing.hooks[0].id, .aborted))
    #expect(repairing.forgotten && repairing.openEntries == [])
  }

  @Test func `neither pings nor looks nor waiting are saved`() {
    var c = Conversation(
      service {
        $0.ready = .notify
        $0.watchdog = .seconds(30)
      })
    c.settleWithPings()
    let saves = c.saves.count
    for _ in 0..<100 {
      c.pass(.seconds(10))
      c.tell(.watchdogPinged(c.run))
    }
    #expect(c.saves.count == saves && c.status.settled)
  }

  @Test func `a service that is stopped by a signal past its window is not saved again and again`() {
    var c = Conversation(service())
    c.exec()
    c.looksAnswered = false
    c.pass(.seconds(60))
    c.tell(.looked(c.run, .stopped))
    let saves = c.saves.count
    for _ in 0..<100 {
      c.pass(.seconds(1))
      c.tell(.looked(c.run, .stopped))
    }
    #expect(c.saves.count == saves)
  }

  @Test func `in guardian's own observe mode nothing but restarts happens`() {
    var c = Conversation(fullService())
    c.fleet.setObserving(true)
    for _ in 0..<12 { c.crash() }
    #expect(c.phase != .quarantined && c.hooks.isEmpty && c.mode == "normal")
    #expect(c.count("observed") > 0)
    c.fleet.setObserving(false)
    c.end()
    #expect(c.phase == .backingOff)
  }
}

extension Conversation {
  fileprivate mutating func settleWithPings() {
    ready()
    for _ in 0..<7 {
      tell(.watchdogPinged(run))
      pass(.seconds(10))
    }
  }
}

/// The same table, after a reboot.
@Suite struct RebootTests {
  @Test func `starting and running: started anew, cause host, no strike`() {
    for settled in [false, true] {
      var c = Conversation(service())
      if settled { c.settle() } else { c.exec() }
      c.reboot(down: .hour)
      #expect(c.adoptee == nil)
      // Before anything is started the book is closed.
      #expect(c.openEntries == [] && c.spawns.count == 1)
      #expect(c.status.lastEnd?.cause == "host")
      c.tell(.begin)
      #expect(c.spawns.count == 2 && c.status.strikes == 0)
      #expect(c.openEntries == [c.run])
    }
  }

  @Test func `F2: backing-off and quarantine go on with what was left, whatever the wall clock says`() {
    for wrong in [Duration.zero, .day * 3650, .zero - .day * 3650] {
      var c = Conversation(service { $0.backoff.first = .seconds(20) })
      c.end()
      c.pass(.seconds(5))
      c.reboot(down: wrong)
      c.tell(.begin)
      c.pass(.seconds(14))
      #expect(c.spawns.count == 1 && c.phase == .backingOff)
      c.pass(.seconds(2))
      #expect(c.spawns.count == 2 && c.status.strikes == 1)

      var q = Conversation(service())
      _ = q.dieOut()
      let before = q.spawns.count
      q.reboot(down: wrong)
      q.tell(.begin)
      #expect(q.phase == .quarantined)
      q.pass(.seconds(700))
      #expect(q.spawns.count == before)
      q.pass(.seconds(201))
      #expect(q.spawns.count == before + 1 && q.mode == "trial")
    }
  }

  @Test func `repairing: the interrupted repair runs again, in the same round, and at-most counts it`() {
    var c = Conversation(
      fullService {
        $0.repairs = [
          RepairSpec(name: "fix", kind: .run(["/bin/fix"])), RepairSpec(name: "second", kind: .run(["/bin/second"])),
        ]
        $0.repairs[0].atMost = RunLimit(times: 2, within: .day)
      })
    for _ in 0..<3 { c.crash() }
    #expect(c.hooks.count == 1)
    c.reboot()
    #expect(c.hooks.count == 1 && c.openEntries == [])
    #expect(c.madeUp == [.hook(.failed(.unseen))])
    c.tell(.begin)
    #expect(c.hooks.map { $0.purpose.name } == ["fix", "fix"])
    #expect(c.hooks.map(\.context.attempt) == [1, 1])
    #expect(c.record.repairRuns["fix"]?.count == 2)
    c.reboot()
    c.tell(.begin)
    // It is used up: the next one runs.
    #expect(c.hooks.map { $0.purpose.name } == ["fix", "fix", "second"])
    c.repairAll(.succeeded)
    #expect(c.spawns.count == 4)
  }

  @Test func `stopping: as wanted`() {
    var down = Conversation(service())
    down.settle()
    down.order(.stop(untilBoot: false))
    down.reboot()
    down.tell(.begin)
    #expect(down.phase == .stopped && down.spawns.count == 1 && down.openEntries == [])

    var restart = Conversation(service())
    restart.settle()
    restart.order(.restart)
    restart.reboot()
    restart.tell(.begin)
    #expect(restart.spawns.count == 2 && restart.openEntries == [restart.run])

    var shutdown = Conversation(service())
    shutdown.settle()
    shutdown.shutDown()
    shutdown.reboot()
    shutdown.tell(.begin)
    #expect(shutdown.spawns.count == 2 && shutdown.status.strikes == 0)
  }

  @Test func `a death that was seen just before is judged after the boot`() {
    var c = Conversation(service())
    c.end(.signal(.segv, core: true), leftovers: 2)
    c.reboot()
    c.tell(.begin)
    #expect(c.status.strikes == 1 && c.status.lastEnd?.signal == "SEGV" && c.openEntries == [])
  }

  @Test func `quarantined and held are kept over a boot`() {
    var c = Conversation(service())
    _ = c.dieOut()
    c.reboot()
    c.tell(.begin)
    #expect(c.phase == .quarantined)
    var h = Conversation(service())
    h.settle()
    h.order(.hold(.seconds(600)))
    h.pass(.seconds(100))
    h.reboot()
    h.tell(.begin)
    #expect(h.spawns.count == 1 && h.status.held)
    h.pass(.seconds(490))
    #expect(h.spawns.count == 1)
    h.pass(.seconds(20))
    #expect(h.spawns.count == 2 && !h.status.held)
  }

  @Test func `trial: no observation, and repeated`() {
    var c = Conversation(service())
    _ = c.dieOut()
    c.pass(.seconds(901))
    c.exec()
    let before = c.spawns.count
    c.reboot()
    #expect(c.count("trial-failed") == 0)
    c.tell(.begin)
    #expect(c.spawns.count == before + 1 && c.mode == "trial")
    c.settle()
    #expect(c.status.step == .restart && c.status.settled)
  }

  @Test func `plugin retry: no observation, and repeated`() {
    var c = Conversation(
      fullService {
        $0.repairs = []
        $0.backoff.max = .seconds(2)
      })
    while c.status.step < .safeMode { c.crash() }
    c.settle()
    c.pass(.day)
    c.end(after: .seconds(1))
    c.exec()
    #expect(c.spawns.last?.request.kind == .pluginRetry)
    c.reboot()
    c.tell(.begin)
    #expect(c.spawns.last?.request.kind == .pluginRetry && c.count("plugins-on") == 0)
    #expect(c.count("plugin-retry-failed") == 0)
  }

  @Test func `stop is remembered, and until-boot is not`() {
    for untilBoot in [false, true] {
      var c = Conversation(service())
      c.settle()
      c.order(.stop(untilBoot: untilBoot))
      c.end(.signal(.term, core: false))
      c.reboot()
      c.tell(.begin)
      #expect(c.spawns.count == (untilBoot ? 2 : 1))
      #expect(c.status.wanted == (untilBoot ? .up : .down))
    }
  }

  @Test
  func `CASES 89: since when it is stopped, quarantined or waits, and who stopped it, outlives guardian and a reboot`()
  {
    var stopped = Conversation(service())
    stopped.settle()
    stopped.order(.stop(untilBoot: false))
    stopped.end(.signal(.term, core: false))
    var quarantined = Conversation(service())
    #expect(quarantined.dieOut() == 7)
    var delayed = Conversation(
      service {
        $0.backoff.first = .hour
        $0.backoff.max = .hour
      })
    delayed.end()
    for var c in [stopped, quarantined, delayed] {
      let before = c.status
      #expect(before.since >= WallTime(nanoseconds: 1_790_000_000_000_000_000) && before.since <= c.now.wall)
      for _ in 0..<2 {
        c.guardianDies(away: .seconds(10))
        #expect(c.status.since == before.since && c.phase == before.phase)
      }
      c.reboot(down: .minute)
      #expect(c.status.since == before.since && c.status.stoppedBy == before.stoppedBy && c.phase == before.phase)
    }
    #expect(stopped.status.stoppedBy == "root" && delayed.status.stoppedBy == "")
    // What was running has ended with the machine, which was last seen just before.
    var running = Conversation(service())
    running.settle()
    running.pass(.hour)
    let last = running.now.wall
    running.reboot(down: .minute)
    #expect(running.phase == .stopped && running.status.since == last)
  }

  @Test func `a task of the boot runs again at the next one`() {
    var c = Conversation(
      service {
        $0.kind = .task
        $0.restart = .onCrash
      })
    c.end(.code(0))
    c.reboot()
    c.tell(.begin)
    #expect(c.spawns.count == 2)
  }
}

@Suite struct ClockTests {
  @Test func `F1: five hundred jumps of the wall clock change nothing`() {
    var c = Conversation(service { $0.backoff.first = .seconds(20) })
    c.end()
    for jump in 0..<500 {
      c.setWallClock(by: (jump % 2 == 0 ? .day * 365 : .zero - .day * 365) + .seconds(jump))
      c.pass(.milliseconds(30))
    }
    #expect(c.spawns.count == 1)
    c.guardianDies()
    c.tell(.begin)
    c.setWallClock(by: .zero - .day * 20_000)
    c.pass(.seconds(6))
    #expect(c.spawns.count == 2)
  }

  @Test func `F3: eight hours of sleep end no start and no watchdog`() {
    var c = Conversation(
      service {
        $0.ready = .notify
        $0.watchdog = .seconds(30)
      })
    c.ready()
    c.sleep(.hour * 8)
    #expect(c.phase == .running && c.signals.isEmpty)
    c.stall(.hour * 8)
    #expect(c.phase == .running && c.signals.isEmpty)
    c.pass(.seconds(29))
    #expect(c.signals.isEmpty)
  }

  @Test func `F4: a guardian that was starved for 30 s blames nobody`() {
    var c = Conversation(service { $0.ready = .notify })
    c.exec()
    c.pass(.seconds(70))
    c.stall(.seconds(30))
    #expect(c.phase == .starting && c.signals.isEmpty)
    c.pass(.seconds(21))
    #expect(c.signals.map(\.signal) == [.term])
  }

  @Test func `F5: ten thousand deadlines in one instant are all met, in one pass each`() {
    var fleet = Fleet(seed: (1, 2, 3, 4))
    let now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
    var spawned: Set<ServiceID> = []
    for number in 0..<10_000 {
      guard let name = ServiceName("s\(number)") else { continue }
      var record = ServiceRecord()
      record.wanted = .up
      record.situation = .backingOff(until: Instant(nanoseconds: 1_000_000_000), acts: true)
      let spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/x"]))
      let id = fleet.add(spec, stored: StoredRecord(record: record, mark: now, sameBoot: true), now: now)
      fleet.handle(.begin, for: id, now: now)
    }
    _ = fleet.takeOutput()
    let later = now.advanced(by: .seconds(1))
    fleet.passTime(now: later)
    for output in fleet.takeOutput() {
      guard case .act(let id, .save(_, let ticket)) = output else { continue }
      fleet.handle(.saved(ticket), for: id, now: later)
    }
    for case .act(let id, .spawn) in fleet.takeOutput() { spawned.insert(id) }
    #expect(spawned.count == 10_000)
  }

  @Test func `F6: instants at the ends of their range do not trap`() {
    for extreme in [Int64.max, Int64.min] {
      var record = ServiceRecord()
      record.wanted = .up
      record.lateDeaths = [Instant(nanoseconds: extreme)]
      record.hold = Hold(until: BootInstant(nanoseconds: extreme), by: "x")
      record.plugins.change("social") { plugin in
        plugin.off = .ladder
        plugin.until = BootInstant(nanoseconds: extreme)
        plugin.probationUntil = BootInstant(nanoseconds: extreme)
      }
      var live = LiveRun(id: RunID(high: 1, low: 2), kind: .ordinary, pluginsOff: false)
      live.startedAt = Instant(nanoseconds: extreme)
      live.settlesAt = Instant(nanoseconds: extreme)
      live.wasReady = true
      live.process = ProcessIdentity(pid: 5, startTicks: 6)
      for situation in [
        Situation.living(live), .backingOff(until: Instant(nanoseconds: extreme), acts: true),
        .waiting(until: Instant(nanoseconds: extreme), delay: .seconds(1), kind: .ordinary),
        .stopping(
          live,
          LiveStop(
            purpose: .death, killAt: Instant(nanoseconds: extreme), killed: false, death: nil, thenStart: false)),
      ] {
        record.situation = situation
        for sameBoot in [true, false] {
          for mark in [Int64.min, 0, .max] {
            var fleet = Fleet(seed: (1, 2, 3, 4))
            let now = Now(
              monotonic: Instant(nanoseconds: 1), boot: BootInstant(nanoseconds: 1), wall: WallTime(nanoseconds: 0))
            let then = Now(
              monotonic: Instant(nanoseconds: mark), boot: BootInstant(nanoseconds: mark),
              wall: WallTime(nanoseconds: mark))
            let id = fleet.add(
              fullService(), stored: StoredRecord(record: record, mark: then, sameBoot: sameBoot), now: now)
            for adoptee in fleet.adoptees(of: id) {
              fleet.handle(
                .adopted(adoptee.run, pid: 5, startTicks: 6, readinessKnown: true), for: id, now: now)
            }
            fleet.handle(.begin, for: id, now: now)
            fleet.passTime(now: now.advanced(by: .hour))
            _ = fleet.status(of: id, now: now)
          }
        }
      }
    }
  }

  @Test func `F7: an hour more or less on the wall changes only what is shown`() {
    var c = Conversation(service())
    c.exec()
    c.setWallClock(by: .zero - .hour)
    c.guardianDies()
    c.adopt()
    c.tell(.begin)
    c.pass(.seconds(61))
    #expect(c.status.settled)
  }
}
