import GuardianCore
import GuardianModel
import Testing

@Suite struct `limits of a control group` {
  @Test func `that alone have changed are in force at once, without a restart`() {
    var talk = Conversation(service())
    talk.exec()
    talk.pass(.seconds(5))
    var spec = service()
    spec.process.groupLimits.memory = 1 << 30
    talk.tell(.defined(spec))
    #expect(!talk.status.pendingDefinition)
    spec.process.umask = 0o077
    talk.tell(.defined(spec))
    #expect(talk.status.pendingDefinition)
    #expect(talk.spawns.count == 1)
  }
}

@Suite struct `a stop` {
  @Test func `sends the stop signal to the main process, then TERM to the rest, then KILL, all within one time-out`() {
    var talk = Conversation(service { $0.stop.signal = .int })
    talk.exec()
    talk.pass(.seconds(5))
    talk.order(.stop(untilBoot: false))
    #expect(talk.signals.map(\.signal) == [.int])
    #expect(talk.signals.map(\.toSet) == [false])
    talk.pass(.seconds(4))
    talk.end(Death(.code(0), leftovers: 2))
    #expect(talk.signals.map(\.signal) == [.int, .term])
    #expect(talk.signals.map(\.toSet) == [false, true])
    talk.pass(.milliseconds(5999))
    #expect(talk.signals.count == 2)
    talk.pass(.milliseconds(1))
    #expect(talk.signals.map(\.signal) == [.int, .term, .kill])
    #expect(talk.signals.last?.toSet == true)
    #expect(talk.phase == .stopping, "stopped means that nothing is left")
    talk.tell(.emptied(talk.run))
    #expect(talk.phase == .stopped)
  }

  @Test func `with a sequence goes through it, each signal with its own time, and comes to KILL at last`() {
    var talk = Conversation(
      service {
        $0.stop.then = [.init(signal: .int, timeout: .seconds(5)), .init(signal: .quit, timeout: .seconds(2))]
      })
    talk.exec()
    talk.order(.stop(untilBoot: false))
    #expect(talk.signals.map(\.signal) == [.term])
    talk.pass(.milliseconds(9999))
    #expect(talk.signals.count == 1)
    #expect(talk.status.next?.action == "next-signal")
    talk.pass(.milliseconds(1))
    #expect(talk.signals.map(\.signal) == [.term, .int])
    talk.pass(.milliseconds(4999))
    #expect(talk.signals.count == 2)
    talk.pass(.milliseconds(1))
    #expect(talk.signals.map(\.signal) == [.term, .int, .quit])
    #expect(talk.status.next?.action == "kill")
    talk.pass(.seconds(2))
    #expect(talk.signals.map(\.signal) == [.term, .int, .quit, .kill])
    #expect(talk.signals.map(\.toSet) == [false, false, false, true])
    #expect(talk.spawns.count == 1)
  }

  @Test func `with a sequence signals the rest once the main process has ended`() {
    var talk = Conversation(service { $0.stop.then = [.init(signal: .int, timeout: .seconds(5))] })
    talk.exec()
    talk.order(.stop(untilBoot: false))
    talk.pass(.seconds(4))
    talk.end(Death(.code(0), leftovers: 2))
    talk.pass(.seconds(6))
    #expect(talk.signals.map(\.signal) == [.term, .term, .int])
    #expect(talk.signals.map(\.toSet) == [false, true, true])
    talk.pass(.seconds(5))
    #expect(talk.signals.last?.signal == .kill)
  }

  @Test func `with a sequence leaves what a crash has left over without further signals`() {
    var talk = Conversation(
      service {
        $0.stop.then = [.init(signal: .int, timeout: .seconds(5))]
        $0.stop.leftovers = .term
      })
    talk.exec()
    talk.end(Death(.signal(.segv, core: false), leftovers: 2))
    talk.pass(.seconds(10))
    #expect(talk.signals.map(\.signal) == [.term, .kill])
  }

  @Test func `of one that ignores TERM ends by KILL`() {
    var talk = Conversation(service())
    talk.exec()
    talk.order(.stop(untilBoot: false))
    talk.pass(.milliseconds(9999))
    #expect(talk.signals.map(\.signal) == [.term])
    talk.pass(.milliseconds(1))
    #expect(talk.signals.map(\.signal) == [.term, .kill])
  }

  @Test func `CASES 31, D2: that KILL does not end is said so, to who waits too, and no second copy is started`() {
    var talk = Conversation(service())
    talk.exec()
    let restart = talk.order(.restart)
    talk.pass(.seconds(14))
    #expect(talk.answers[restart] == nil)
    talk.pass(.seconds(1))
    // Ten seconds of patience, and five after KILL.
    #expect(talk.answers[restart] == .failed(reason: "SIGKILL sent 5s ago, waiting for the kernel"))
    let stop = talk.order(.stop(untilBoot: false))
    let again = talk.order(.restart)
    talk.pass(.seconds(45))
    #expect(isFailed(talk.answers[stop]) && isFailed(talk.answers[again]))
    #expect(talk.phase == .stopping)
    #expect(talk.status.reason.contains("kernel"))
    #expect(talk.spawns.count == 1)
    #expect(talk.occurrences.contains { if case .stuck = $0 { true } else { false } })
    talk.end(.signal(.kill, core: false))
    #expect(talk.spawns.count == 2)
  }

  @Test func `before the exec has been seen reaches the run all the same`() {
    var talk = Conversation(service())
    #expect(talk.spawns.count == 1)
    talk.order(.stop(untilBoot: false))
    #expect(talk.signals.isEmpty)
    talk.exec()
    #expect(talk.signals.map(\.signal) == [.term])
  }

  @Test func `before the start is durable means that it never comes`() {
    var talk = Conversation(service(), savesAnswered: false)
    talk.order(.stop(untilBoot: false))
    for save in talk.saves { talk.tell(.saved(save.ticket)) }
    talk.pass(.seconds(10))
    #expect(talk.spawns.isEmpty)
    #expect(talk.phase == .stopped)
  }

  @Test func `after a crash kills the rest at once, so that the restart need not wait`() {
    var talk = Conversation(service())
    talk.end(Death(.code(1), leftovers: 3))
    #expect(talk.signals.map(\.signal) == [.kill])
    #expect(talk.signals.last?.toSet == true)
    talk.pass(.seconds(1))
    #expect(talk.spawns.count == 1)
    talk.tell(.emptied(talk.run))
    talk.pass(.milliseconds(500))
    #expect(talk.spawns.count == 2)
  }

  @Test func `after a crash gives the rest the time-out where leftovers are to be terminated`() {
    var talk = Conversation(service { $0.stop.leftovers = .term })
    talk.end(Death(.code(1), leftovers: 3))
    #expect(talk.signals.map(\.signal) == [.term])
    talk.pass(.seconds(10))
    #expect(talk.signals.map(\.signal) == [.term, .kill])
  }

  @Test func `of a service that is removed forgets it when nothing is left`() {
    var talk = Conversation(service())
    talk.exec()
    talk.tell(.removed)
    #expect(!talk.forgotten)
    talk.end(.signal(.term, core: false))
    #expect(talk.forgotten)
    #expect(talk.fleet.id(named: talk.spec.name) == nil)
    #expect(talk.fleet.nextDeadline.monotonic == nil)
  }

  @Test(arguments: ["backing-off", "waiting", "quarantined", "repairing", "finished"])
  func `A17 of a service that is removed in any phase leaves nothing`(_ phase: String) {
    var talk = Conversation(
      fullService {
        $0.escalation.restart = 1
        $0.restart = phase == "finished" ? .onCrash : .always
      })
    switch phase {
    case "backing-off": talk.end()
    case "waiting": talk.failToSpawn(eagain)
    case "quarantined": _ = talk.dieOut()
    case "repairing":
      talk.end()
      talk.pass(.seconds(1))
    default: talk.end(.code(0))
    }
    #expect(talk.phase.rawValue == phase)
    talk.tell(.removed)
    talk.repairAll(.failed(.signal(.term, core: false)))
    #expect(talk.forgotten)
    let starts = talk.spawns.count
    talk.pass(.hour)
    #expect(talk.spawns.count == starts)
  }
}

@Suite struct `a save` {
  @Test func `comes before the start that depends on it`() {
    var talk = Conversation(service(), savesAnswered: false)
    #expect(talk.spawns.isEmpty)
    #expect(talk.saves.last?.record.openRun != nil)
    talk.tell(.saved(talk.saves[talk.saves.count - 1].ticket))
    #expect(talk.spawns.map(\.request.run) == [talk.saves.last?.record.openRun])
  }

  @Test func `of a strike and its step is durable before the next start`() {
    var talk = Conversation(service())
    talk.end()
    #expect(talk.record.strikes == 1)
    talk.savesAnswered = false
    talk.pass(.seconds(1))
    #expect(talk.spawns.count == 1)
    #expect(talk.record.strikes == 1 && talk.record.openRun != nil)
    talk.tell(.saved(talk.saves[talk.saves.count - 1].ticket))
    #expect(talk.spawns.count == 2)
  }

  @Test func `of the restart after a late death goes alongside it`() {
    var talk = Conversation(service())
    talk.settle()
    talk.savesAnswered = false
    talk.end()
    #expect(talk.spawns.count == 2)
    #expect(talk.record.openRun == talk.run)
    #expect(talk.record.lateDeaths.count == 1)
  }

  @Test func `unanswered for two seconds counts as volatile, and the action goes on`() {
    var talk = Conversation(service(), savesAnswered: false)
    talk.pass(.milliseconds(1999))
    #expect(talk.spawns.isEmpty)
    talk.pass(.milliseconds(1))
    #expect(talk.spawns.count == 1)
    #expect(talk.count("volatile") == 1)
    #expect(talk.status.notes.contains { $0.contains("memory only") })
  }

  @Test func `waits its own two seconds, not longer because one before it was answered late`() {
    var talk = Conversation(service())
    talk.exec()
    talk.savesAnswered = false
    talk.end()
    let strike = talk.saves.count - 1
    talk.pass(.milliseconds(1900))
    #expect(talk.saves.count == strike + 2, "the start was asked to be saved after 500 ms")
    talk.tell(.saved(talk.saves[strike].ticket))
    talk.pass(.milliseconds(599))
    #expect(talk.spawns.count == 1)
    talk.pass(.milliseconds(1))
    #expect(talk.spawns.count == 2)
  }

  @Test func `that is answered late ends the doubt`() {
    var talk = Conversation(service(), savesAnswered: false)
    talk.pass(.seconds(3))
    talk.tell(.saved(talk.saves[talk.saves.count - 1].ticket))
    #expect(talk.status.notes.isEmpty)
  }

  @Test func `that was never asked for means nothing`() {
    var talk = Conversation(service(), savesAnswered: false)
    talk.tell(.saved(Ticket(77)))
    talk.tell(.saved(.none))
    #expect(talk.spawns.isEmpty)
  }

  @Test func `is one for all that changed in a turn`() {
    var talk = Conversation(fullService())
    talk.exec()
    talk.tell(.ended(talk.run, Death(.code(1))))
    let before = talk.saves.count
    talk.tell(.emptied(talk.run))
    #expect(talk.saves.count == before + 1)
  }

  @Test func `of an operator's wish comes before the answer`() {
    var talk = Conversation(service())
    talk.end()
    talk.savesAnswered = false
    let stop = talk.order(.stop(untilBoot: false))
    #expect(talk.answers[stop] == nil)
    talk.tell(.saved(talk.saves[talk.saves.count - 1].ticket))
    #expect(isDone(talk.answers[stop]))
  }

  @Test func `holds an open ticket until the run has settled or ended`() {
    var talk = Conversation(service())
    talk.exec()
    #expect(talk.record.openRun == talk.run)
    talk.settle()
    #expect(talk.record.openRun == nil)
  }
}

@Suite struct `a shutdown` {
  @Test func `stops what runs, keeps the wish, starts nothing more, and says when all is gone`() {
    var talk = Conversation(service())
    talk.exec()
    talk.shutDown()
    #expect(talk.signals.map(\.signal) == [.term])
    #expect(!talk.allStopped)
    talk.end(.signal(.term, core: false))
    #expect(talk.allStopped)
    #expect(talk.record.wanted == .up)
    talk.pass(.day)
    #expect(talk.spawns.count == 1)
  }

  @Test func `is not undone by a service that begins late`() {
    var talk = Conversation(service(), begin: false)
    talk.shutDown()
    talk.tell(.begin)
    #expect(talk.saves.isEmpty && talk.spawns.isEmpty)
  }

  @Test func `with nothing running is over at once`() {
    var talk = Conversation(service { $0.start = .manual })
    talk.shutDown()
    #expect(talk.allStopped)
  }

  @Test func `ends a repair, and fails those who wait for a start`() {
    var talk = Conversation(fullService { $0.escalation.restart = 1 })
    talk.end()
    talk.pass(.seconds(1))
    let request = talk.order(.start)
    talk.shutDown()
    #expect(isFailed(talk.answers[request]))
    #expect(!talk.allStopped)
    talk.repairAll(.failed(.signal(.term, core: false)))
    #expect(talk.allStopped)
    #expect(talk.spawns.count == 1)
  }

  @Test func `goes in the reverse of the order of starts`() {
    var fleet = Fleet(seed: (1, 2, 3, 4))
    let now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
    var ids: [ServiceID] = []
    for name in ["a", "b", "c"] {
      guard let name = ServiceName(name) else { continue }
      ids.append(fleet.add(ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/x"])), record: nil, now: now))
    }
    for id in ids { fleet.handle(.begin, for: id, now: now) }
    var runs: [ServiceID: RunID] = [:]
    for case .act(let id, .save(let record, let ticket)) in fleet.takeOutput() {
      if let run = record.openRun { runs[id] = run }
      fleet.handle(.saved(ticket), for: id, now: now)
    }
    // They come to their exec as b, c, a.
    for place in [1, 2, 0] {
      guard let run = runs[ids[place]] else { continue }
      fleet.handle(.spawned(run, pid: 1, executable: nil), for: ids[place], now: now)
    }
    _ = fleet.takeOutput()
    fleet.shutDown(now: now)
    var order: [Int] = []
    for case .act(let id, .signal) in fleet.takeOutput() { order.append(id.index) }
    #expect(order == [0, 2, 1])
  }

  @Test func `waits for what an order was just stopping`() {
    var talk = Conversation(service())
    talk.exec()
    talk.order(.restart)
    talk.shutDown()
    talk.end(.signal(.term, core: false))
    #expect(talk.allStopped)
    #expect(talk.spawns.count == 1)
  }
}

@Suite struct `the clocks` {
  @Test func `set back or forward by a year change no state and no delay`() {
    // CASES 64: the clock set back, hang or crash.
    func story(_ jump: Duration) -> [String] {
      var talk = Conversation(fullService())
      var story: [String] = []
      for round in 1...7 {
        talk.end()
        talk.setWallClock(by: jump)
        let delay = talk.nextSpawn(after: round, since: talk.time)
        story.append("\(talk.phase) \(delay?.description ?? "none")")
        talk.repairAll()
        #expect((talk.status.uptimeMilliseconds ?? 0) >= 0)
        #expect((talk.status.next?.inMilliseconds ?? 0) >= 0)
      }
      return story
    }
    let plain = story(.zero)
    #expect(story(.day * 365) == plain)
    #expect(story(.day * -365) == plain)
  }

  @Test func `jumping five hundred times during a stop do not prolong it`() {
    var talk = Conversation(service())
    talk.exec()
    talk.order(.stop(untilBoot: false))
    for jump in 1...500 {
      talk.setWallClock(by: .day * (jump.isMultiple(of: 2) ? 365 : -365))
      talk.pass(.milliseconds(19))
    }
    #expect(talk.signals.map(\.signal) == [.term])
    talk.pass(.milliseconds(500))
    #expect(talk.signals.map(\.signal) == [.term, .kill])
  }

  @Test func `of a suspend do not count towards a startup window`() {
    var talk = Conversation(service())
    talk.exec()
    talk.sleep(.hour)
    #expect(!talk.status.settled)
    talk.end()
    #expect(talk.count("strike") == 1)
  }
}
