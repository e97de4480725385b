import GuardianModel
import Testing

@testable import GuardianCore

@Suite struct `the host's watchdog is told of a core that works` {
  private let patience = Duration.seconds(7)
  private func at(_ seconds: Int64) -> Instant { .zero + .seconds(seconds) }

  @Test func `F8: work that is due and not done is neglect, after a while`() {
    var diligence = Diligence()
    diligence.note(.init(.deadlines, isDue: false, done: 4), now: at(0))
    #expect(diligence.neglected(longerThan: patience, now: at(1_000)) == nil)
    for second in 1_000...1_007 as ClosedRange<Int64> {
      diligence.note(.init(.deadlines, isDue: true, done: 4), now: at(second))
      diligence.note(.init(.events, isDue: false, done: UInt64(second)), now: at(second))
      #expect(diligence.neglected(longerThan: patience, now: at(second)) == nil)
    }
    diligence.note(.init(.deadlines, isDue: true, done: 4), now: at(1_008))
    let neglected = diligence.neglected(longerThan: patience, now: at(1_008))
    #expect(neglected?.duty == .deadlines && neglected?.time == .seconds(8))
  }

  @Test func `slow is not stuck: whatever gets done counts`() {
    var diligence = Diligence()
    for second in 0..<1_000 as Range<Int64> {
      diligence.note(.init(.actions, isDue: true, done: UInt64(second / 6)), now: at(second))
      #expect(diligence.neglected(longerThan: patience, now: at(second)) == nil)
    }
  }

  @Test func `another duty's work does not speak for a neglected one`() {
    var diligence = Diligence()
    for second in 0...20 as ClosedRange<Int64> {
      for duty in Diligence.Duty.allCases {
        diligence.note(.init(duty, isDue: true, done: duty == .events ? 9 : UInt64(second)), now: at(second))
      }
    }
    #expect(diligence.neglected(longerThan: patience, now: at(20))?.duty == .events)
  }

  @Test func `it is forgotten when the work is done after all`() {
    var diligence = Diligence()
    for second in 0...20 as ClosedRange<Int64> {
      diligence.note(.init(.events, isDue: true, done: 1), now: at(second))
    }
    diligence.note(.init(.events, isDue: true, done: 2), now: at(21))
    #expect(diligence.neglected(longerThan: patience, now: at(21)) == nil)
  }

  @Test func `a guardian that was not run for long, in the middle of its work, has not neglected it`() {
    var diligence = Diligence()
    diligence.note(.init(.actions, isDue: true, done: 64), now: at(0))
    // After each turn, and so after the turn that follows the gap.
    diligence.note(.init(.actions, isDue: true, done: 128), now: at(3_600))
    #expect(diligence.neglected(longerThan: patience, now: at(3_600)) == nil)
  }

  @Test func `the fleet counts the deadlines that have passed`() {
    var fleet = Fleet(seed: (1, 2, 3, 4))
    func now(_ seconds: Int64) -> Now {
      let nanoseconds = at(seconds).nanoseconds
      return Now(
        monotonic: at(seconds), boot: BootInstant(nanoseconds: nanoseconds), wall: WallTime(nanoseconds: nanoseconds))
    }
    guard let name = ServiceName("web") else { return }
    let id = fleet.add(
      ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/true"])), record: nil, now: now(0))
    fleet.handle(.begin, for: id, now: now(0))
    fleet.passTime(now: now(0))
    let before = fleet.deadlinesPassed
    // The save that its start waits for is not answered: that counts as volatile when it is due.
    fleet.passTime(now: now(10))
    #expect(fleet.deadlinesPassed > before)
    #expect(fleet.nextDeadline.monotonic.map { $0 > at(10) } ?? true)
  }
}
