import GuardianModel
import Testing

@testable import GuardianCore

extension Conversation {
  /// The number of the last probe that was asked for and is not answered; nil: none is.
  fileprivate func openProbe(_ name: String = "c") -> ProbeRequest? {
    var answered: Set<UInt64> = []
    for action in actions { if case .endProbes(_, let numbers) = action { answered.formUnion(numbers) } }
    return probes.last { $0.check.name == name && !answered.contains($0.number) && !self.answered.contains($0.number) }
  }

  /// Waits for the next probe and answers it.
  @discardableResult fileprivate mutating func answer(
    _ result: ProbeResult, _ name: String = "c", within: Duration = .seconds(30)
  ) -> Bool {
    var left = within
    while openProbe(name) == nil, left > .zero {
      pass(.milliseconds(50))
      left -= .milliseconds(50)
    }
    guard let probe = openProbe(name) else { return false }
    answered.insert(probe.number)
    tell(.probed(probe.run, number: probe.number, result))
    return true
  }
}

private func checked(_ change: (inout ServiceSpec) -> Void = { _ in }) -> ServiceSpec {
  service {
    var check = CheckSpec(name: "c", kind: .exec(["/bin/check"]))
    check.failures = 2
    $0.checks = [check]
    $0.startupWindow = .seconds(60)
    change(&$0)
  }
}

@Suite struct `health checks` {
  @Test func `settle a run only when they pass`() {
    var c = Conversation(checked())
    c.exec()
    #expect(c.phase == .running)
    c.answer(.failed("refused"))
    c.pass(.seconds(61))
    #expect(!c.status.settled)
    // Of one bad look nobody can tell, and no more are answered.
    #expect(c.phase == .running)
    c.answer(.passed("fine"))
    #expect(c.status.settled)
  }

  @Test func `have no say before they have passed or the startup window is over`() {
    var c = Conversation(checked())
    c.exec()
    for _ in 0..<4 { c.answer(.failed("refused")) }
    #expect(c.phase == .running)
    #expect(c.status.checks.first?.state == .failing)
    #expect(c.signals.isEmpty)
    c.pass(.seconds(60))
    #expect(c.phase == .stopping)
    #expect(c.signals.count { !$0.toSet } == 1)
    c.end(.signal(.term, core: false))
    #expect(c.status.lastEnd?.cause == "check")
    #expect(c.count("strike") == 1)
    // I74: the reason names the check, how often, and what it said.
    #expect(c.status.lastEnd?.text == "check c failed 2 times: refused (SIGTERM)")
    #expect(c.status.reason.contains("check c failed 2 times: refused"))
  }

  @Test func `have a say within the window once they have passed`() {
    var c = Conversation(checked())
    c.exec()
    c.answer(.passed(""))
    c.answer(.failed("1"))
    #expect(c.phase == .running)
    c.answer(.failed("2"))
    #expect(c.phase == .stopping)
    #expect(c.time < .seconds(60))
  }

  @Test func `need as many bad looks in a row as the file says`() {
    var c = Conversation(checked { $0.checks[0].failures = 3 })
    c.exec()
    c.answer(.passed(""))
    for _ in 0..<5 {
      c.answer(.failed("x"))
      c.answer(.failed("x"))
      c.answer(.passed(""))
    }
    #expect(c.phase == .running && c.status.settled)
    #expect(c.count("check-failing") == 0)
  }

  @Test func `need as many good looks in a row as the file says`() {
    var c = Conversation(checked { $0.checks[0].successes = 2 })
    c.exec()
    c.pass(.seconds(61))
    for _ in 0..<3 {
      c.answer(.passed(""))
      c.answer(.failed("x"))
    }
    #expect(!c.status.settled)
    c.answer(.passed(""))
    #expect(!c.status.settled)
    c.answer(.passed(""))
    #expect(c.status.settled)
  }

  @Test func `I74 a failed check is a death, and what stays down climbs the ladder into quarantine`() {
    var c = Conversation(checked { $0.escalation.restart = 3 })
    var deaths = 0
    while c.phase != .quarantined, deaths < 20 {
      c.exec()
      let before = c.signals.count { !$0.toSet }
      for _ in 0..<40 where c.phase == .running { c.answer(.failed("exit 1")) }
      #expect(c.signals.count { !$0.toSet } == before + 1)
      c.end(.code(0))
      deaths += 1
      c.pass(.seconds(120))
    }
    #expect(c.phase == .quarantined)
    #expect(c.count("strike") == 7)
    #expect(c.status.reason.contains("check c failed 2 times: exit 1"))
  }

  @Test func `a failed check of a settled run is a late death, and the next run is checked anew`() {
    var c = Conversation(checked())
    c.exec()
    c.answer(.passed(""))
    c.pass(.seconds(61))
    #expect(c.status.settled)
    c.answer(.failed("x"))
    c.answer(.failed("x"))
    c.end(.signal(.term, core: false))
    #expect(c.count("late-death") == 1 && c.count("strike") == 0)
    c.exec()
    #expect(c.status.checks.first?.state == .unknown)
    c.answer(.failed("x"))
    c.answer(.failed("x"))
    #expect(c.phase == .running)
    c.pass(.seconds(61))
    #expect(c.phase == .stopping)
    c.end(.signal(.term, core: false))
    #expect(c.count("strike") == 1)
  }

  @Test func `I73 a good look at somebody else's port counts for no run that has died`() {
    var c = Conversation(checked { $0.ready = .check })
    for _ in 0..<30 where c.phase != .quarantined {
      c.exec()
      c.pass(.seconds(1))
      // The port answers well, but not by this process, which cannot bind it and ends.
      let probe = c.probes.last
      c.end(.code(1))
      if let probe { c.tell(.probed(probe.run, number: probe.number, .passed("open"))) }
      #expect(c.count("ready") == 0)
      c.pass(.seconds(70))
    }
    #expect(c.phase == .quarantined)
  }

  @Test func `that pass make a service with ready check ready, all of them`() {
    var c = Conversation(
      checked {
        $0.ready = .check
        $0.checks.append(CheckSpec(name: "d", kind: .tcp(.host("127.0.0.1", port: 1))))
      })
    c.exec()
    #expect(c.phase == .starting)
    c.tell(.ready(c.run))
    #expect(c.phase == .starting)
    c.answer(.passed(""))
    #expect(c.phase == .starting)
    c.answer(.failed("refused"), "d")
    c.answer(.passed(""), "d")
    #expect(c.phase == .running && c.count("ready") == 1)
    // Somebody waited for it, so it was asked about every second.
    #expect(c.time < .seconds(4))
  }

  @Test func `that do not pass in time are a start time-out, which names them`() {
    var c = Conversation(
      checked {
        $0.ready = .check
        $0.startTimeout = .seconds(20)
      })
    c.exec()
    for _ in 0..<40 where c.phase == .starting { c.answer(.failed("refused"), within: .seconds(2)) }
    #expect(c.phase == .stopping)
    #expect(c.time >= .seconds(20))
    c.end(.signal(.term, core: false))
    #expect(c.status.lastEnd?.cause == "start-timeout")
    #expect(c.status.lastEnd?.text.contains("check c: refused") == true)
  }

  @Test func `that cannot be made hold up neither readiness nor settling, and count for nothing`() {
    var c = Conversation(
      checked {
        $0.ready = .check
        $0.startTimeout = .seconds(20)
      })
    c.exec()
    for _ in 0..<40 where c.phase == .starting { c.answer(.notMade("no guardian-check"), within: .seconds(3)) }
    #expect(c.phase == .running)
    #expect(c.time >= .seconds(20))
    for _ in 0..<12 { c.answer(.notMade("no guardian-check")) }
    #expect(c.status.settled)
    #expect(c.status.checks.first?.text == "no guardian-check")
    #expect(c.status.checks.first?.state == .unknown)
    #expect(c.count("strike") == 0)
  }

  @Test func `F a sleep or a stall fails none`() {
    var c = Conversation(checked { $0.checks[0].failures = 1 })
    c.exec()
    c.answer(.passed(""))
    c.pass(.seconds(61))
    for _ in 0..<5 {
      while c.openProbe() == nil { c.pass(.milliseconds(100)) }
      c.stall(.seconds(30))
      c.answer(.failed("timed out"))
    }
    #expect(c.phase == .running && c.status.settled)
    c.answer(.failed("timed out"))
    #expect(c.phase == .stopping)
  }

  @Test func `are made one at a time, at their pace, and no longer than the run`() {
    var c = Conversation(checked())
    c.exec()
    c.pass(.seconds(300))
    #expect(c.probes.count == 1)
    for _ in 0..<10 { c.answer(.passed("")) }
    let since = c.time
    let count = c.probes.count
    for _ in 0..<100 { c.answer(.passed("")) }
    let pace = (c.time - since) / Double(c.probes.count - count)
    #expect(pace > .milliseconds(9400) && pace < .milliseconds(10_600))
    while c.openProbe() == nil { c.pass(.milliseconds(100)) }
    let open = c.openProbe()
    c.tell(.ended(c.run, Death(.code(1))))
    #expect(c.actions.contains { $0 == .endProbes(c.run, [open?.number ?? 0]) })
    c.tell(.emptied(c.run))
    #expect(c.status.checks.isEmpty)
  }

  @Test func `go on during a hold, and end nothing until they fail again after it`() {
    var c = Conversation(checked())
    c.exec()
    c.answer(.passed(""))
    c.order(.hold(.hour))
    for _ in 0..<5 { c.answer(.failed("x")) }
    #expect(c.phase == .running)
    #expect(c.status.checks.first?.state == .failing)
    c.order(.hold(.zero))
    #expect(c.phase == .running)
    c.answer(.failed("x"))
    #expect(c.phase == .running)
    c.answer(.failed("x"))
    #expect(c.phase == .stopping)
  }

  @Test func `change with the definition, and what stays the same keeps what is known of it`() {
    var c = Conversation(checked())
    c.exec()
    c.answer(.passed("fine"))
    var spec = checked()
    spec.checks.append(CheckSpec(name: "d", kind: .exec(["/bin/d"])))
    c.tell(.defined(spec))
    #expect(c.status.checks.map(\.state) == [.passing, .unknown])
    c.pass(.seconds(61))
    #expect(!c.status.settled)
    spec.checks.removeLast()
    c.tell(.defined(spec))
    #expect(c.status.settled)
    spec.checks = []
    c.tell(.defined(spec))
    #expect(c.status.checks.isEmpty && c.status.settled)
  }

  @Test func `are unknown again after guardian has come back, and a settled run stays so`() {
    var c = Conversation(checked())
    c.exec()
    c.answer(.passed(""))
    c.pass(.seconds(61))
    let run = c.run
    c.guardianDies(away: .seconds(5))
    c.tell(.adopted(run, pid: 101, startTicks: 7, readinessKnown: true))
    c.tell(.begin)
    #expect(c.status.settled)
    #expect(c.status.checks.first?.state == .unknown)
    c.answer(.failed("x"))
    c.answer(.failed("x"))
    #expect(c.phase == .stopping)
  }

  @Test func `what a check has said is still known when guardian dies while the run is being stopped`() {
    var c = Conversation(checked())
    c.exec()
    c.answer(.passed(""))
    c.answer(.failed("status 503"))
    c.answer(.failed("status 503"))
    let run = c.run
    c.guardianDies(away: .seconds(1))
    c.tell(.adopted(run, pid: 101, startTicks: 7, readinessKnown: true))
    c.tell(.ended(run, Death(.signal(.term, core: false))))
    c.tell(.emptied(run))
    #expect(c.status.lastEnd?.text == "check c failed 2 times: status 503 (SIGTERM)")
    #expect(c.status.lastEnd?.cause == "check")
  }
}
