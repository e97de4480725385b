import GuardianCore
import GuardianModel
import Testing

@Suite struct `a repair` {
  /// On step repair after the first strike, with these repairs.
  func talk(_ repairs: [RepairSpec], _ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    Conversation(
      service {
        $0.repairs = repairs
        $0.escalation.restart = 1
        $0.escalation.safeMode = 0
        change(&$0)
      })
  }
  func repair(_ name: String, _ change: (inout RepairSpec) -> Void = { _ in }) -> RepairSpec {
    var repair = RepairSpec(name: name, kind: .run(["/bin/\(name)"]))
    change(&repair)
    return repair
  }
  func names(_ talk: Conversation) -> [String] { talk.hooks.map(\.purpose.name) }

  @Test func `runs in the order of the file, one at a time, and then the service starts at once`() {
    var talk = talk([repair("a"), repair("b"), repair("c")])
    talk.end()
    talk.pass(.milliseconds(499))
    #expect(talk.hooks.isEmpty)
    talk.pass(.milliseconds(1))
    #expect(names(talk) == ["a"])
    talk.pass(.seconds(20))
    #expect(names(talk) == ["a"])
    for expected in [["a", "b"], ["a", "b", "c"]] {
      talk.tell(.hookEnded(talk.hooks[talk.hooks.count - 1].id, .succeeded))
      #expect(names(talk) == expected)
      #expect(talk.spawns.count == 1)
    }
    talk.tell(.hookEnded(talk.hooks[2].id, .succeeded))
    #expect(talk.spawns.count == 2)
  }

  @Test(arguments: [
    HookResult.failed(.code(1)), .failed(.signal(.segv, core: true)),
    .notStarted(SpawnFailure(stage: .exec, errno: 13, target: "/bin/a", sentence: "no")),
  ])
  func `that fails is recorded, and the next one still runs`(_ result: HookResult) {
    var talk = talk([repair("a"), repair("b")])
    talk.end()
    talk.pass(.seconds(1))
    talk.tell(.hookEnded(talk.hooks[0].id, result))
    #expect(names(talk) == ["a", "b"])
    #expect(
      talk.occurrences.contains { if case .repairEnded(_, "a", result) = $0 { true } else { false } })
  }

  @Test func `that exits 125 quarantines now`() {
    var talk = talk([repair("a"), repair("b")])
    talk.end()
    talk.pass(.seconds(1))
    talk.tell(.hookEnded(talk.hooks[0].id, .cannotRepair))
    #expect(talk.phase == .quarantined)
    #expect(names(talk) == ["a"])
    #expect(talk.status.reason.contains("a"))
  }

  @Test func `that hangs gets TERM, then KILL, counts as failed, and quarantine still comes at its strike`() {
    // CASES 8: a hook's time-out stopped counting.
    var talk = talk([repair("a") { $0.timeout = .seconds(3) }], { $0.escalation.repair = 2 })
    for round in 1...2 {
      talk.end()
      talk.pass(.seconds(70))
      #expect(talk.hooks.count == round)
      let id = talk.hooks[round - 1].id
      #expect(talk.actions.contains(.signalHook(id, .term)))
      #expect(talk.actions.contains(.signalHook(id, .kill)))
      talk.tell(.hookEnded(id, .failed(.signal(.kill, core: false))))
      #expect(
        talk.occurrences.contains { if case .repairEnded(id, "a", .timedOut) = $0 { true } else { false } })
    }
    talk.end()
    #expect(talk.phase == .quarantined)
    #expect(
      talk.names().filter { ["strike", "escalated", "repair-started", "repair-ended", "quarantined"].contains($0) } == [
        "strike", "escalated", "repair-started", "repair-ended", "strike", "repair-started", "repair-ended", "strike",
        "escalated", "quarantined",
      ])
  }

  struct Match: CustomTestStringConvertible {
    var matcher: CauseMatcher, ending: Ending, oom = Death.Oom.none, runs: Bool
    var testDescription: String { "\(matcher) after \(ending)" }
  }
  @Test(arguments: [
    Match(matcher: .exit(78), ending: .code(78), runs: true),
    Match(matcher: .exit(78), ending: .code(1), runs: false),
    Match(matcher: .signal(.segv), ending: .signal(.segv, core: true), runs: true),
    Match(matcher: .signal(.segv), ending: .signal(.abrt, core: true), runs: false),
    Match(matcher: .crashClass(.config), ending: .code(78), runs: true),
    Match(matcher: .crashClass(.trap), ending: .signal(.ill, core: false), runs: true),
    Match(matcher: .cause("oom"), ending: .signal(.kill, core: false), oom: .certain, runs: true),
    Match(matcher: .cause("oom"), ending: .signal(.kill, core: false), oom: .perhaps, runs: true),
    Match(matcher: .cause("oom"), ending: .code(1), runs: false),
  ])
  func `with on: runs only after such an end`(_ c: Match) {
    var talk = talk([repair("a") { $0.on = [c.matcher] }])
    talk.end(Death(c.ending, oom: c.oom))
    talk.tell(.emptied(talk.run))
    talk.pass(.seconds(1))
    #expect(talk.hooks.count == (c.runs ? 1 : 0))
    talk.repairAll()
    #expect(talk.spawns.count == 2, "with nothing to run it just starts")
  }

  @Test func `with from-attempt waits for that round`() {
    var talk = talk([repair("a"), repair("b") { $0.fromAttempt = 2 }], { $0.escalation.repair = 3 })
    talk.end()
    talk.pass(.seconds(10))
    talk.repairAll()
    #expect(names(talk) == ["a"])
    talk.end()
    talk.pass(.seconds(10))
    talk.repairAll()
    #expect(names(talk) == ["a", "a", "b"])
    #expect(talk.hooks.map(\.context.attempt) == [1, 2, 2])
  }

  @Test func `with at-most is left out when it has had its runs, and comes back when they are old`() {
    var talk = talk(
      [repair("a") { $0.atMost = RunLimit(times: 2, within: .day) }], { $0.escalation.repair = 10 })
    for _ in 1...4 {
      talk.end()
      talk.pass(.seconds(60))
      talk.repairAll()
    }
    #expect(talk.hooks.count == 2)
    talk.sleep(.day)
    talk.end()
    talk.pass(.seconds(60))
    #expect(talk.hooks.count == 3)
  }

  @Test func `counts rounds since the last settled run`() {
    var talk = talk([repair("a")])
    talk.end()
    talk.pass(.seconds(1))
    talk.repairAll(.succeeded)
    talk.settle()
    for _ in 1...7 {
      talk.end()
      talk.pass(.seconds(60))
      talk.repairAll(.succeeded)
      if talk.hooks.count == 2 { break }
      talk.settle()
    }
    #expect(talk.hooks.map(\.context.attempt) == [1, 1])
  }

  @Test func `is told what happened`() {
    var talk = talk([repair("a")])
    talk.end(.signal(.segv, core: true))
    talk.pass(.seconds(1))
    let context = talk.hooks[0].context
    #expect(context.service.text == "web")
    #expect(context.step == .repair)
    #expect(context.end?.status == .signal(.segv, core: true))
    #expect(talk.hooks[0].timeout == .seconds(60))
  }

  @Test func `is aborted by stop, and recorded so`() {
    var talk = talk([repair("a"), repair("b")])
    talk.end()
    talk.pass(.seconds(1))
    let stop = talk.order(.stop(untilBoot: false))
    let id = talk.hooks[0].id
    #expect(talk.actions.contains(.signalHook(id, .term)))
    #expect(talk.answers[stop] == nil, "stopped means nothing is left")
    talk.tell(.hookEnded(id, .failed(.signal(.term, core: false))))
    #expect(isDone(talk.answers[stop]))
    #expect(talk.phase == .stopped)
    #expect(names(talk) == ["a"])
    #expect(talk.occurrences.contains { if case .repairEnded(id, "a", .aborted) = $0 { true } else { false } })
  }

  @Test func `finishes with the old definition when that changes, and the new one starts with a fresh ladder`() {
    var talk = talk([repair("a"), repair("b")])
    talk.end()
    talk.pass(.seconds(1))
    var new = talk.spec
    new.process.command = ["/bin/new"]
    talk.tell(.defined(new))
    #expect(talk.phase == .repairing)
    talk.repairAll(.succeeded)
    #expect(names(talk) == ["a"], "the hook that runs, and none for what is there no more")
    #expect(talk.spawns.last?.request.spec.process.command == ["/bin/new"])
    #expect(talk.step == .restart)
    #expect(talk.status.strikes == 0)
  }

  @Test func `is durable before it runs`() {
    var talk = Conversation(
      service {
        $0.repairs = [repair("a")]
        $0.escalation.restart = 1
        $0.escalation.safeMode = 0
      })
    talk.end()
    talk.savesAnswered = false
    talk.pass(.milliseconds(500))
    #expect(talk.hooks.isEmpty)
    talk.tell(.saved(talk.saves[talk.saves.count - 1].ticket))
    #expect(talk.hooks.count == 1)
  }

  @Test func `that was ordered is answered when all have run, and the service is ready again where it is wanted`() {
    var talk = talk([repair("a"), repair("b")])
    talk.settle()
    let request = talk.order(.repair(nil))
    talk.end(.signal(.term, core: false))
    talk.tell(.hookEnded(talk.hooks[0].id, .succeeded))
    talk.tell(.hookEnded(talk.hooks[1].id, .succeeded))
    #expect(talk.answers[request] == nil && talk.spawns.count == 2)
    talk.exec()
    #expect(talk.answers[request] == .done(note: "repaired, and started again"))
  }

  @Test func `that was ordered for a service that is down is answered when it has run`() {
    var talk = talk([repair("a")])
    talk.settle()
    talk.order(.stop(untilBoot: false))
    talk.end(.signal(.term, core: false))
    let request = talk.order(.repair("a"))
    #expect(talk.phase == .repairing && talk.answers[request] == nil)
    talk.pass(.seconds(3))
    #expect(talk.answers[request] == nil)
    talk.tell(.hookEnded(talk.hooks[0].id, .succeeded))
    #expect(talk.answers[request] == .done(note: "") && talk.phase == .stopped)
  }

  @Test(arguments: [HookResult.failed(.code(1)), .cannotRepair, .timedOut])
  func `that was ordered and fails is told as that, whether the service is down or starts again`(
    _ result: HookResult
  ) {
    for down in [true, false] {
      var talk = talk([repair("a")])
      talk.settle()
      if down {
        talk.order(.stop(untilBoot: false))
        talk.end(.signal(.term, core: false))
      }
      let request = talk.order(.repair(nil))
      if !down { talk.end(.signal(.term, core: false)) }
      talk.tell(.hookEnded(talk.hooks[0].id, result))
      if talk.phase == .starting { talk.exec() }
      guard case .failed(let reason)? = talk.answers[request] else {
        Issue.record("\(String(describing: talk.answers[request])), down: \(down)")
        continue
      }
      #expect(reason.hasPrefix("repair a \(result.description)"), "\(reason)")
    }
  }

  @Test func `that was ordered and is stopped by another order has not come true`() {
    var talk = talk([repair("a")])
    talk.settle()
    let request = talk.order(.repair(nil))
    talk.end(.signal(.term, core: false))
    talk.order(.stop(untilBoot: false))
    talk.tell(.hookEnded(talk.hooks[0].id, .failed(.signal(.term, core: false))))
    guard case .failed? = talk.answers[request] else {
      Issue.record("\(String(describing: talk.answers[request]))")
      return
    }
  }
}

@Suite struct `plugins` {
  /// In safe mode, settled.
  func degraded(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    var talk = Conversation(
      fullService {
        $0.repairs = []
        $0.escalation.restart = 1
        $0.escalation.repair = 0
        change(&$0)
      })
    talk.end()
    talk.pass(.seconds(1))
    talk.settle()
    return talk
  }

  @Test func `are all off in safe mode, and settled there is degraded`() {
    let talk = degraded()
    #expect(talk.mode == "safe")
    #expect(talk.spawns.last?.request.disabledPlugins.map(\.name) == ["social"])
    #expect(talk.status.settled && talk.status.degraded)
    #expect(talk.status.disabledPlugins == ["social"])
  }

  @Test func `are not tried again on a healthy service, however long it runs`() {
    var talk = degraded()
    talk.pass(.day * 3)
    #expect(talk.spawns.count == 2)
  }

  @Test func `are tried at the next start after retry-after, and not before`() {
    var talk = degraded()
    talk.pass(.day - .seconds(120))
    talk.crash()
    #expect(talk.mode == "safe")
    talk.settle()
    talk.pass(.seconds(120))
    talk.crash()
    #expect(talk.spawns.last?.request.kind == .pluginRetry)
    #expect(talk.mode == "trial")
    #expect(talk.spawns.last?.request.disabledPlugins.isEmpty == true)
  }

  @Test func `that are well again leave safe mode`() {
    var talk = degraded()
    talk.pass(.day)
    talk.crash()
    talk.settle()
    #expect(!talk.status.degraded)
    #expect(talk.step == .restart)
    #expect(talk.status.disabledPlugins.isEmpty)
  }

  @Test func `that still crash it are off again for twice as long, without a strike`() {
    var talk = degraded()
    talk.pass(.day)
    talk.crash()
    let strikes = talk.count("strike")
    talk.end()
    #expect(talk.count("strike") == strikes)
    // Give or take a tenth, so that a fleet does not try again all at once.
    let next = talk.occurrences.compactMap { if case .pluginRetryFailed(let next) = $0 { next } else { nil } }
    #expect(next.count == 1 && next.allSatisfy { ((.day * 9 / 5)...(.day * 11 / 5)).contains($0) })
    talk.pass(.seconds(60))
    #expect(talk.mode == "safe")
    talk.settle()
    talk.pass(.day * 9 / 5 - .seconds(240))
    talk.crash()
    #expect(talk.mode == "safe")
  }

  @Test func `count their time on the clock that goes on in a suspend`() {
    var talk = degraded()
    talk.sleep(.day)
    talk.crash()
    #expect(talk.spawns.last?.request.kind == .pluginRetry)
  }
}

@Suite struct `quarantine` {
  func given(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    var talk = Conversation(fullService(change))
    _ = talk.dieOut()
    return talk
  }

  @Test func `runs nothing, and shows the reason and the next trial`() {
    var talk = given()
    let starts = talk.spawns.count
    #expect(!talk.status.reason.isEmpty)
    #expect(!talk.status.clears.isEmpty)
    #expect(talk.status.next?.action == "trial")
    talk.pass(.seconds(600))
    #expect(talk.spawns.count == starts)
  }

  @Test func `is tried after retry-after, doubling to max, with plugins off and without repairs`() {
    var talk = given { $0.quarantine.max = .hour }
    let hooks = talk.hooks.count
    var gaps: [Duration] = []
    for _ in 1...5 {
      let since = talk.time, starts = talk.spawns.count
      while talk.spawns.count == starts { talk.pass(.seconds(1)) }
      gaps.append((talk.spawns.last?.at ?? .zero) - since)
      #expect(talk.spawns.last?.request.kind == .trial)
      #expect(talk.spawns.last?.request.disabledPlugins.map(\.name) == ["social"])
      talk.end()
      #expect(talk.phase == .quarantined)
    }
    // The first was entered up to two minutes before the counting began.
    #expect(gaps[0] <= .seconds(900))
    #expect(gaps[1...].elementsEqual([.seconds(1800), .hour, .hour, .hour]))
    #expect(talk.hooks.count == hooks)
    #expect(talk.status.strikes == 0)
  }

  @Test func `may be for ever`() {
    var talk = given { $0.quarantine.retryAfter = nil }
    let starts = talk.spawns.count
    talk.pass(.day * 30)
    #expect(talk.spawns.count == starts)
    #expect(talk.status.next == nil)
  }

  struct Way: CustomTestStringConvertible {
    var repairs: Bool, plugins: Bool, step: Step
    var testDescription: String { "repairs \(repairs), plugins \(plugins): \(step.rawValue)" }
  }
  @Test(arguments: [
    Way(repairs: true, plugins: true, step: .safeMode), Way(repairs: true, plugins: false, step: .repair),
    Way(repairs: false, plugins: false, step: .restart),
  ])
  func `is left by a settled trial for the highest lower step that has something to do`(_ way: Way) {
    var talk = given {
      if !way.repairs { $0.repairs = [] }
      if !way.plugins { $0.process.plugins = [] }
    }
    talk.pass(.seconds(900))
    talk.settle()
    #expect(talk.step == way.step)
    #expect(talk.status.strikes == 0)
    #expect(talk.phase == .running)
    #expect(talk.status.degraded == way.plugins)
  }

  @Test func `is forgotten with its doubling when step restart is reached`() {
    var talk = given {
      $0.repairs = []
      $0.process.plugins = []
    }
    talk.pass(.seconds(900))
    talk.end()
    talk.pass(.seconds(1800))
    talk.settle()
    #expect(talk.step == .restart)
    for _ in 1...5 {
      talk.crash()
      talk.settle()
    }
    _ = talk.dieOut()
    let trials = talk.occurrences.compactMap { kind -> Duration? in
      if case .quarantined(_, let trial) = kind { trial } else { nil }
    }
    #expect(trials == [.seconds(900), .seconds(900)])
  }

  @Test func `goes on doubling while no lower step than safe mode has been reached`() {
    var talk = given()
    talk.pass(.seconds(900))
    talk.settle()
    for _ in 1...5 { talk.crash() }
    _ = talk.dieOut()
    let trials = talk.occurrences.compactMap { kind -> Duration? in
      if case .quarantined(_, let trial) = kind { trial } else { nil }
    }
    #expect(trials.last == .seconds(1800))
  }

  @Test func `is left early when the process keys change, with a fresh ladder`() {
    var talk = given()
    var new = talk.spec
    new.process.command = ["/bin/better"]
    talk.tell(.defined(new))
    #expect(talk.step == .restart)
    #expect(talk.spawns.last?.request.kind == .ordinary)
    #expect(talk.spawns.last?.request.spec.process.command == ["/bin/better"])
    #expect(talk.count("released") == 1)
  }

  @Test func `is not left because a policy key changed`() {
    var talk = given()
    var new = talk.spec
    new.backoff.first = .seconds(2)
    new.description = "other"
    talk.tell(.defined(new))
    #expect(talk.phase == .quarantined)
  }

  @Test func `is left early when the executable changes`() {
    var talk = Conversation(service())
    let old = FileIdentity(device: 1, inode: 1, size: 1, modified: 1)
    talk.exec(executable: old)
    _ = talk.dieOut()
    #expect(talk.actions.contains(.watch("/bin/web")))
    talk.tell(.executableSeen(old))
    #expect(talk.phase == .quarantined)
    talk.tell(.executableSeen(FileIdentity(device: 1, inode: 2, size: 1, modified: 2)))
    #expect(talk.step == .restart)
    #expect(talk.spawns.last?.request.kind == .ordinary)
    #expect(talk.phase == .starting)
  }

  @Test func `counts its time on the clock that goes on in a suspend`() {
    var talk = given()
    let starts = talk.spawns.count
    talk.sleep(.seconds(900))
    #expect(talk.spawns.count == starts + 1)
  }

  @Test func `is where a failed trial goes back to, whatever restart says`() {
    var talk = Conversation(
      fullService {
        $0.restart = .never
        $0.fatalExit = [99]
      })
    talk.end(.code(99))
    talk.pass(.seconds(900))
    talk.end(.code(1))
    #expect(talk.phase == .quarantined)
    talk.order(.start)
    #expect(talk.spawns.last?.request.kind == .trial)
  }

  @Test func `survives in the record`() {
    let before = given()
    var talk = Conversation(before.spec, record: before.record)
    #expect(talk.phase == .quarantined)
    #expect(talk.spawns.isEmpty)
    #expect(talk.status.reason == before.status.reason)
    talk.pass(.hour)
    #expect(talk.spawns.first?.request.kind == .trial)
  }
}
