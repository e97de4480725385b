import GuardianCore
import GuardianModel
import Testing

private let wild = Finding(crashClass: .wild),
  other = Finding(crashClass: .wild, signature: Signature(value: 7, strong: true))
private let program = FileIdentity(device: 1, inode: 1, size: 1, modified: 1)
private let next = FileIdentity(device: 1, inode: 2, size: 1, modified: 2)

@Suite struct `mitigations on trial` {
  private func talk(_ finding: Finding? = wild, _ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    var talk = Conversation(
      service {
        $0.mitigate = .auto
        $0.escalation.restart = 50
        $0.backoff.factor = 1
        change(&$0)
      })
    talk.finding = finding
    return talk
  }
  private func crash(_ talk: inout Conversation, _ program: FileIdentity = program, _ times: Int = 1) {
    for _ in 0..<times {
      talk.exec(executable: program)
      talk.end(.signal(.segv, core: false))
      talk.pass(.seconds(1))
    }
  }
  private func tried(_ talk: Conversation) -> [Mitigation?] { talk.spawns.map(\.request.mitigation?.mitigation) }

  @Test func `begin at the second failure in a row of a class that they may help, and the service is degraded`() {
    var talk = talk()
    crash(&talk, program, 2)
    #expect(tried(talk) == [nil, nil, .zeroedMemory])
    #expect(talk.spawns[2].request.mitigation?.build == program.print)
    talk.exec(executable: program)
    talk.settle()
    #expect(talk.status.degraded && talk.status.settled)
    #expect(talk.status.notes.contains { $0.contains("zeroed-memory, on trial: 0 of 1 starts failed") })
    #expect(talk.occurrences.contains(.mitigation(.begun(.zeroedMemory, failures: 2))))
  }

  @Test(arguments: CrashClass.allCases)
  func `are never more than the class allows`(crashClass: CrashClass) {
    let allowed = MitigationTrial.allowed(crashClass)
    switch crashClass {
    case .wild: #expect(allowed == [.zeroedMemory, .immediateBinding, .singleCPU])
    case .stack: #expect(allowed == [.largerStack])
    default: #expect(allowed.isEmpty)
    }
    var talk = talk(Finding(crashClass: crashClass))
    crash(&talk, program, 4)
    #expect(tried(talk).compactMap { $0 }.allSatisfy(allowed.contains))
  }

  @Test func `are off unless the definition says auto, and in observe mode`() {
    for change in [{ $0.mitigate = .off }, { $0.mode = .observe }] as [(inout ServiceSpec) -> Void] {
      var talk = talk(wild, change)
      crash(&talk, program, 5)
      #expect(tried(talk).allSatisfy { $0 == nil } && talk.count("mitigation") == 0)
    }
  }

  @Test func `are none for a program that is privileged, or that could not be looked at`() {
    var privileged = program
    privileged.privileged = true
    var talk = talk()
    crash(&talk, privileged, 4)
    #expect(tried(talk).allSatisfy { $0 == nil })
    var unseen = self.talk()
    for _ in 0..<4 { unseen.crash(.signal(.segv, core: false)) }
    #expect(tried(unseen).allSatisfy { $0 == nil })
  }

  @Test func `are dropped when the same crash comes twice with them, and the next one is tried`() {
    var talk = talk(other)
    crash(&talk, program, 4)
    #expect(tried(talk) == [nil, nil, .zeroedMemory, .zeroedMemory, .immediateBinding])
    crash(&talk, program, 4)
    #expect(tried(talk).suffix(3) == [.singleCPU, .singleCPU, nil])
    crash(&talk, program, 3)
    #expect(talk.spawns.last?.request.mitigation == nil, "each was tried in vain")
    #expect(talk.record.mitigation.ineffective == [.zeroedMemory, .immediateBinding, .singleCPU])
  }

  @Test func `are kept when five starts went better than those before`() {
    var talk = talk()
    crash(&talk, program, 2)
    for start in 1...5 {
      talk.exec(executable: program)
      talk.settle()
      #expect((talk.record.mitigation.active?.kept ?? false) == (start == 5))
      talk.order(.restart)
      talk.end(.signal(.term, core: false))
    }
    #expect(talk.occurrences.contains(.mitigation(.kept(.zeroedMemory, failures: 0, starts: 5))))
    #expect(talk.spawns.last?.request.mitigation?.mitigation == .zeroedMemory)
  }

  @Test func `are judged after an hour of running, too`() {
    var talk = talk()
    crash(&talk, program, 2)
    talk.exec(executable: program)
    talk.pass(.hour - .seconds(1))
    #expect(talk.record.mitigation.active?.kept == false)
    talk.pass(.seconds(2))
    #expect(talk.record.mitigation.active?.kept == true)
  }

  @Test func `are dropped with another program, which is tried plain, and with another definition`() {
    var talk = talk()
    crash(&talk, program, 2)
    talk.exec(executable: next)
    #expect(!talk.status.degraded, "it has not been done for a program that nobody has looked at")
    #expect(talk.count("mitigation") == 2 && talk.record.mitigation.active == nil)

    var redefined = self.talk()
    crash(&redefined, program, 2)
    var spec = redefined.spec
    spec.process.command = ["/bin/web", "anew"]
    redefined.define(spec)
    redefined.exec(executable: program)
    redefined.end(.signal(.segv, core: false))
    redefined.pass(.seconds(1))
    #expect(redefined.spawns.last?.request.mitigation == nil)
  }

  @Test func `are not done while an operator holds, and forgotten when they are switched off`() {
    var talk = talk()
    crash(&talk, program, 2)
    talk.exec(executable: program)
    talk.order(.hold(.hour))
    talk.end(.signal(.segv, core: false))
    talk.order(.start)
    #expect(talk.spawns.count == 4 && talk.spawns[3].request.mitigation == nil)

    var off = self.talk()
    crash(&off, program, 2)
    off.exec(executable: program)
    var spec = off.spec
    spec.mitigate = .off
    off.define(spec)
    off.end(.signal(.segv, core: false))
    off.pass(.seconds(1))
    #expect(off.spawns.last?.request.mitigation == nil && off.record.mitigation == MitigationRecord())
  }

  @Test func `go on after guardian's own death`() {
    var talk = talk()
    crash(&talk, program, 2)
    let record = talk.record
    #expect(record.mitigation.active?.mitigation == .zeroedMemory)
    guard case .living(let live) = record.situation else { return #expect(Bool(false), "\(record.situation)") }
    #expect(live.mitigation == .zeroedMemory)
  }

  @Test func `learn nothing of a service that has settled without them`() {
    var trial = MitigationTrial()
    _ = trial.program(1, privileged: false)
    #expect(trial.died(.wild, signature: 1, with: nil, ran: .zero, settled: false).isEmpty)
    #expect(trial.settled(with: nil).isEmpty)
    #expect(trial.died(.wild, signature: 1, with: nil, ran: .zero, settled: false).isEmpty)
    #expect(trial.died(.null, signature: 1, with: nil, ran: .zero, settled: false).isEmpty)
    #expect(trial.record.failures == 0)
  }

  @Test func `are dropped when too many of five starts fail in different ways`() {
    var trial = MitigationTrial()
    _ = trial.program(1, privileged: false)
    for n in 1...2 { _ = trial.died(.wild, signature: UInt64(n), with: nil, ran: .zero, settled: false) }
    var changes: [MitigationChange] = []
    for n in 1...5 {
      changes += trial.died(.null, signature: UInt64(n), with: .zeroedMemory, ran: .zero, settled: false)
    }
    #expect(changes == [.dropped(.zeroedMemory, why: "5 of 5 starts failed with it, too")])
    #expect(trial.record.active == nil)
  }
}
