import GuardianCore
import GuardianModel
import Testing

/// Faults that other supervisors had, section A of the collection; those of other sections stand with their subjects.
@Suite struct `crash loops in the field` {
  @Test func `1: the limit that arithmetic made unreachable`() {
    var talk = Conversation(
      service {
        $0.escalation.restart = 5
        $0.escalation.repair = 0
        $0.escalation.safeMode = 0
        $0.startupWindow = .seconds(2)
        $0.backoff.first = .seconds(5)
        $0.backoff.factor = 1
        $0.backoff.max = .seconds(5)
      })
    #expect(talk.dieOut() == 5)
  }

  @Test func `2: ninety thousand restarts under a limit of one`() {
    // Never ready: a crash however long it lasted.
    var talk = Conversation(
      service {
        $0.ready = .notify
        $0.startupWindow = .seconds(1)
      })
    var deaths = 0
    while talk.phase != .quarantined, deaths < 20 {
      talk.end(after: .seconds(3))
      deaths += 1
      talk.pass(.seconds(60))
    }
    #expect(deaths == 7)
  }

  @Test func `2: dying again and again just outside the window climbs too`() {
    var talk = Conversation(service { $0.startupWindow = .seconds(1) })
    var deaths = 0
    while talk.phase != .quarantined, deaths < 50 {
      talk.end(after: .seconds(3))
      deaths += 1
      talk.pass(.seconds(60))
    }
    #expect(deaths == 12, "five within the late budget, then seven strikes")
  }

  @Test func `4: core dumps stretched the interval past the window`() {
    // The window is over while the kernel writes the core: the look finds it dumping, and it has not settled.
    var talk = Conversation(service { $0.startupWindow = .seconds(5) })
    talk.looksAnswered = false
    for death in 1...7 {
      talk.exec()
      talk.pass(.seconds(5))
      talk.tell(.looked(talk.run, .dumping))
      talk.end(.signal(.abrt, core: true), after: .seconds(10))
      #expect(talk.count("strike") == death)
      talk.pass(.seconds(60))
    }
    #expect(talk.phase == .quarantined)
    #expect(talk.status.lastEnd?.text == "SIGABRT (core dumped)")
  }

  @Test func `5: the strikes count also where the window is as short as can be`() {
    // A window of zero is refused at load; the shortest one must not turn the ladder off.
    var talk = Conversation(service { $0.startupWindow = .milliseconds(1) })
    #expect(talk.dieOut() == 7)
  }

  @Test func `7: a restart by hand in backoff starts at once and does not erase the history`() {
    var talk = Conversation(service())
    talk.end()
    talk.order(.restart)
    #expect(talk.spawns.count == 2)
    #expect(talk.status.strikes == 1)
    talk.end()
    #expect(talk.status.strikes == 2)
    talk.order(.reset)
    #expect(talk.status.strikes == 0)
  }

  @Test func `10: a clean exit punished as a crash`() {
    var talk = Conversation(
      service {
        $0.kind = .task
        $0.restart = .always
      })
    var gaps: Set<Duration> = []
    for round in 1...50 {
      talk.end(.code(0), after: .seconds(2))
      if let gap = talk.nextSpawn(after: round, since: talk.time) { gaps.insert(gap) }
    }
    #expect(gaps == [.milliseconds(500)])
    #expect(talk.status.strikes == 0 && talk.step == .restart)
  }

  @Test func `10: the same as a daemon climbs`() {
    var talk = Conversation(service())
    #expect(talk.dieOut(.code(0)) == 7)
  }

  @Test func `11: the first crash got no delay at all`() {
    var talk = Conversation(
      service {
        $0.backoff.first = .seconds(4)
        $0.escalation.restart = 10
      })
    #expect(talk.crash() == .seconds(4))
    #expect(talk.crash() == .seconds(8))
    #expect(talk.crash() == .seconds(16))
  }

  @Test func `13: exits that mean 'do not bother' were respawned in a herd`() {
    var fleet = Fleet(seed: (5, 6, 7, 8))
    var now = Now(monotonic: .zero, boot: .zero, wall: WallTime(nanoseconds: 0))
    for number in 0..<140 {
      guard let name = ServiceName("w\(number)") else { continue }
      var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/w"]))
      spec.fatalExit = [78]
      let id = fleet.add(spec, record: nil, now: now)
      fleet.handle(.begin, for: id, now: now)
    }
    var starts: [Int64: Int] = [:]
    var fatal: [ServiceID: Int] = [:]
    let end = now.advanced(by: .seconds(120))
    while now.monotonic < end.monotonic {
      while true {
        let output = fleet.takeOutput()
        if output.isEmpty { break }
        for case .act(let id, let action) in output {
          switch action {
          case .save(_, let ticket): fleet.handle(.saved(ticket), for: id, now: now)
          case .spawn(let request):
            starts[now.monotonic.nanoseconds / 100_000_000, default: 0] += 1
            if id.index.isMultiple(of: 2) { fatal[id, default: 0] += 1 }
            fleet.handle(.spawned(request.run, pid: 1, executable: nil), for: id, now: now)
            fleet.handle(
              .ended(request.run, Death(.code(id.index.isMultiple(of: 2) ? 78 : 1))), for: id, now: now)
            fleet.handle(.emptied(request.run), for: id, now: now)
          default: break
          }
        }
      }
      let next = fleet.nextDeadline.monotonic ?? end.monotonic
      now = now.advanced(by: max(.nanoseconds(1), min(next, end.monotonic) - now.monotonic))
      fleet.passTime(now: now)
    }
    #expect(fatal.count == 70 && fatal.values.allSatisfy { $0 == 1 })
    for id in fleet.ids { #expect(fleet.status(of: id, now: now).phase == .quarantined) }
    // 10 % of jitter spreads the later tries: in no tenth of a second do all of the other seventy come together.
    let late = starts.filter { $0.key >= 40 }
    #expect(!late.isEmpty && late.values.allSatisfy { $0 < 60 })
  }

  @Test(arguments: [RestartPolicy.always, .onCrash, .never])
  func `14: the polarity of restart conditions`(_ policy: RestartPolicy) {
    var crashed = Conversation(service { $0.restart = policy })
    crashed.end(.code(1))
    #expect(crashed.phase == (policy == .never ? .finished : .backingOff))
    var clean = Conversation(service { $0.restart = policy })
    clean.end(.code(0))
    #expect(clean.phase == (policy == .always ? .backingOff : .finished))
  }

  @Test func `16: a half-done start was replayed at every boot`() {
    // The record of a start that was announced and never seen again: a fact, not work to do.
    var record = ServiceRecord()
    record.wanted = .up
    record.strikes = 2
    record.triesOnStep = 2
    record.openRun = RunID(high: 1, low: 1)
    var talk = Conversation(service(), record: record)
    #expect(talk.run != RunID(high: 1, low: 1))
    talk.end()
    #expect(talk.status.strikes == 3)
    #expect(talk.occurrences.contains(.backingOff(delay: .seconds(2), next: .restart)), "its backoff goes on")
  }

  @Test func `17: a start time-out longer than any window is a crash each time`() {
    var talk = Conversation(
      service {
        $0.ready = .notify
        $0.startTimeout = .seconds(5)
        $0.startupWindow = .seconds(2)
      })
    for _ in 1...7 {
      talk.exec()
      talk.pass(.seconds(5))
      talk.end(.signal(.term, core: false))
      talk.pass(.seconds(60))
    }
    #expect(talk.phase == .quarantined)
    #expect(talk.status.lastEnd?.cause == "start-timeout")
  }

  @Test func `55: died while reloading, never restarted`() {
    var talk = Conversation(service { $0.ready = .notify })
    talk.ready()
    talk.crash()
    #expect(talk.spawns.count == 2)
  }

  @Test func `88: 143 is a clean stop when a stop was asked for, and a failure when not`() {
    var talk = Conversation(service())
    talk.exec()
    let stop = talk.order(.stop(untilBoot: false))
    talk.end(.code(143))
    #expect(isDone(talk.answers[stop]))
    #expect(talk.count("strike") == 0)
    #expect(talk.status.lastEnd?.crashClass == "ordered")
  }

  @Test func `89: stopped by hand stays stopped, quarantined stays quarantined`() {
    var talk = Conversation(service())
    talk.exec()
    talk.order(.stop(untilBoot: false))
    talk.end(.signal(.term, core: false))
    var again = Conversation(service(), record: talk.record)
    again.pass(.hour)
    #expect(again.spawns.isEmpty)
    #expect(again.status.wanted == .down)
  }
}

@Suite struct `a plan` {
  @Test func `announces what the same machine then does, at the same times`() {
    let spec = fullService()
    var talk = Conversation(spec)
    var story: [(Duration, String)] = []
    for _ in 1...7 {
      talk.end()
      let before = talk.spawns.count
      while talk.spawns.count == before, talk.phase != .quarantined {
        talk.pass(.milliseconds(50))
        if talk.phase == .repairing {
          story.append((talk.time, "repair"))
          talk.repairAll(.failed(.code(1)))
        }
      }
    }
    let quarantined = talk.time
    let plan = Fleet.plan(spec)
    let repairs = plan.filter { $0.action == "repair" }.map(\.earliest)
    #expect(repairs == story.map(\.0))
    #expect(plan.filter { $0.action == "quarantine" }.map(\.earliest) == [quarantined])
    #expect(plan.filter { $0.action == "death" }.count >= 7)
    for (a, b) in zip(plan, plan.dropFirst()) { #expect(a.earliest <= b.earliest) }
    for entry in plan { #expect(entry.earliest <= entry.latest) }
  }
}
