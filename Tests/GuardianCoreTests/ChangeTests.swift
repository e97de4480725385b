@testable import GuardianCore
import GuardianModel
import Testing

@Suite struct `what has changed since a service was last well` {
  private func at(_ seconds: Int64) -> WallTime { WallTime(nanoseconds: seconds * 1_000_000_000) }
  private let config = "/etc/web/web.conf"

  private func print(_ value: String = "1", since: Int64 = 5, more: [StateItem] = []) -> StatePrint {
    StatePrint(
      [
        StateItem(.program, "/usr/bin/web", "", look: "1:2:3", since: at(1)),
        StateItem(.config, config, value, since: at(since)),
        StateItem(.system, "kernel", "6.1", since: at(1)),
      ] + more)
  }
  private func history(_ prints: StatePrint...) -> ChangeHistory {
    var history = ChangeHistory()
    for (n, print) in prints.enumerated() {
      let start = Int64(n * 100 + 10)
      history.bless(print, startedAt: at(start), settledAt: at(start + 60))
    }
    return history
  }
  private func hints(
    _ history: ChangeHistory?, _ print: StatePrint, failing: Int64 = 1000, lines: [String] = [],
    frames: [StackFrame] = []
  ) -> [ChangeHint] {
    ChangeHistory.hints(history, now: print, failing: at(failing), lines: lines, frames: frames)
  }

  @Test func `is not told where it never was well`() {
    let said = [ChangeHint(what: "no healthy run on record", at: nil, score: 0)]
    #expect(hints(nil, print()) == said)
    #expect(hints(ChangeHistory(), print()) == said)
  }

  @Test func `is nothing where nothing has`() {
    #expect(hints(history(print()), print()).isEmpty)
  }

  @Test func `is a file with the time of its change, and counts three times where the last output names it`() {
    let known = history(print())
    #expect(hints(known, print("2", since: 900)) == [ChangeHint(what: "\(config) changed", at: at(900), score: 100)])
    let named = hints(known, print("2", since: 900), lines: ["[emerg] unknown directive in \(config):3"])
    #expect(named.first?.score == 300)
    // Only the last fifty lines are looked at.
    let early = ["in \(config)"] + Array(repeating: "x", count: 50)
    #expect(hints(known, print("2", since: 900), lines: early).first?.score == 100)
  }

  @Test func `counts for less where the change lies before the healthy run, after the failure, or at a time unknown`() {
    let known = history(print())
    for since: Int64 in [3, 1001] { #expect(hints(known, print("2", since: since)).first?.score == 30) }
    var unknown = print("2")
    unknown.items[1].since = nil
    #expect(hints(known, unknown).first?.score == 30)
  }

  @Test func `leaves out what was so in a healthy run, and what changes at every start`() {
    let known = history(print("1"), print("2"))
    #expect(hints(known, print("1", since: 900)).isEmpty)
    var always = ChangeHistory()
    for n in 1...40 { always.bless(print("\(n)"), startedAt: at(Int64(n)), settledAt: at(Int64(n))) }
    #expect((hints(always, print("new", since: 900)).first?.score ?? 0) < 5)
  }

  @Test func `names a library that was replaced, by its build and not by its times`() {
    func library(_ id: String, look: String) -> StateItem {
      StateItem(.libraries, "/usr/lib/libssl.so.3", id, look: look, since: at(900))
    }
    let known = history(print(more: [library("build-id aa", look: "1")]))
    #expect(known.libraries == ["/usr/lib/libssl.so.3"])
    // Installed once more, and the same.
    #expect(hints(known, print(more: [library("build-id aa", look: "2")])).isEmpty)
    let replaced = hints(known, print(more: [library("build-id bb", look: "2")]))
    #expect(replaced.map(\.what) == ["the library /usr/lib/libssl.so.3 changed"] && replaced[0].score == 80)
    let crashed = hints(
      known, print(more: [library("build-id bb", look: "2")]), frames: [StackFrame(module: "libssl.so.3")])
    #expect(crashed.first?.score == 400)
    // One that was replaced while the healthy run used it is another one than that run had.
    var replacedMeanwhile = library("build-id bb", look: "2")
    replacedMeanwhile.isLate = true
    #expect(
      hints(history(print(more: [replacedMeanwhile])), print(more: [library("build-id bb", look: "2")])).first?.what
        == "the library /usr/lib/libssl.so.3 changed")
  }

  @Test func `tells of packages that came, went or changed since, and of none from before`() {
    func package(_ name: String, _ old: String, _ new: String, since: Int64) -> StateItem {
      var item = StateItem(.system, "package \(name)", new.isEmpty ? "absent" : new, since: at(since))
      item.old = old
      return item
    }
    let known = history(print(more: [package("libc6", "1", "2", since: 2)]))
    let now = print(more: [
      package("libc6", "1", "2", since: 2), package("openssl", "3.0", "3.1", since: 900),
      package("new", "", "1", since: 901),
      package("old", "7", "", since: 902), package("forgotten", "1", "2", since: 3),
    ])
    #expect(
      hints(known, now).map(\.what)
        == ["package old (7) was removed", "package new (1) was installed", "package openssl: 3.0 before, now 3.1"])
  }

  @Test func `weighs by kind, a frame in the changed module most, and ends at five`() {
    var after = print("2", since: 900)
    after.items[0].look = "9:9:9"
    after.items[0].since = at(900)
    after.items[2].value = "6.2"
    after.items[2].since = at(900)
    let known = history(print())
    #expect(hints(known, after).map(\.score) == [100, 90, 50])
    let frame = StackFrame(module: "web")
    let led = hints(known, after, frames: [frame])
    #expect(led.first?.what == "the program /usr/bin/web changed" && led.first?.score == 450)
    let more = (1...9).map { StateItem(.config, "/etc/\($0)", "x", since: at(900)) }
    #expect(hints(known, print(more: more)).count == 5)
  }

  @Test func `says what is gone, new, full, or down`() {
    let room = StateItem(.state, "/var/lib/web", "5 % free or more")
    let db = StateItem(.dependencies, "database", "running", since: at(5))
    let known = history(print(more: [room, db]))
    var full = room
    full.value = StateItem.full
    var down = db
    down.value = "quarantined"
    down.since = at(900)
    let said = hints(known, print(StateItem.absent, since: 900, more: [full, down, StateItem(.config, "/etc/n", "1")]))
    #expect(
      said.map(\.what) == [
        "\(config) is gone", "database: running before, now quarantined", "/etc/n is new",
        "the file system of /var/lib/web: 5 % free or more before, now full",
      ])
  }

  @Test func `is not blessed by a run that began before the change`() {
    var late = print("2", since: 40)
    late.items[1].isLate = true
    #expect(hints(history(print("1"), late), print("2", since: 140)).map(\.what) == ["\(config) changed"])
    // The first run on record may not have read what is there.
    #expect(hints(history(late), print("2", since: 40)).map(\.what) == ["\(config) changed"])
  }

  @Test func `survives on disk, and damage is told`() throws {
    var known = history(print("1"), print("2"), print("tab\tline\n%25"))
    known.bless(print("2"), startedAt: at(9), settledAt: at(10))
    let bytes = known.encoded()
    #expect(ChangeHistory(bytes) == known)
    #expect(ChangeHistory([]) == nil)
    for index in stride(from: 0, to: bytes.count, by: 7) {
      var damaged = bytes
      damaged[index] ^= 4
      #expect(ChangeHistory(damaged) == nil)
      #expect(ChangeHistory(Array(bytes[..<index])) == nil)
    }
  }

  @Test func `is weighed by logarithms that are right`() {
    #expect(abs(ChangeHistory.logarithm(8) - 3) < 1e-6 && abs(ChangeHistory.logarithm(51) - 5.672_425_341_97) < 1e-6)
    #expect(ChangeHistory.novelty(changes: 0, runs: 1) == 1 && ChangeHistory.novelty(changes: 50, runs: 50) == 0)
  }
}

@Suite struct `a declared file that changes` {
  private let path = "/etc/web/config.json"
  private func sight(_ look: UInt64, restored: Bool = false) -> ServiceEvent {
    .filesSeen([FileSight(path: path, look: look, restored: restored)])
  }
  private func talk(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    let path = path
    var talk = Conversation(
      service {
        $0.repairs = [RepairSpec(name: "config", kind: .restore([path]))]
        change(&$0)
      })
    talk.tell(sight(1))
    return talk
  }

  @Test func `releases from quarantine, is watched there, and is known by the record`() {
    var talk = talk()
    _ = talk.dieOut()
    #expect(talk.phase == .quarantined)
    #expect(talk.actions.contains(.watch("/bin/web", files: [path])))
    talk.tell(sight(1))
    #expect(talk.phase == .quarantined)
    talk.tell(sight(2))
    #expect(talk.phase == .starting && talk.step == .restart && talk.status.strikes == 0)
    #expect(talk.spawns.last?.request.kind == .ordinary)
    #expect(talk.record.files == [FileSight(path: path, look: 2)])
  }

  @Test func `does not release where guardian has restored it, whenever that is seen`() {
    var talk = talk { $0.escalation.restart = 1 }
    talk.crash()
    while talk.step == .restart { talk.crash() }
    while talk.hooks.isEmpty { talk.pass(.seconds(1)) }
    #expect(talk.hooks.last?.kind == .restore([path]))
    let hook = talk.hooks.last?.id ?? RunID(high: 0, low: 0)
    // In the middle of it nobody can tell yet whose work it is.
    talk.tell(sight(7))
    talk.tell(sight(0))
    #expect(talk.phase == .repairing && talk.count("released") == 0)
    talk.tell(.hookEnded(hook, .succeeded))
    talk.tell(sight(7, restored: true))
    #expect(talk.phase == .starting && talk.step == .repair && talk.count("released") == 0)
    talk.exec()
    talk.tell(sight(7, restored: true))
    talk.end()
    talk.tell(sight(7, restored: true))
    #expect(talk.step == .repair && talk.status.strikes > 0 && talk.count("released") == 0)
    // But an operator's change after it does.
    talk.tell(sight(8))
    #expect(talk.step == .restart && talk.count("released") == 1)
  }

  @Test func `before a start that was decided gives that start a fresh ladder`() {
    var talk = talk()
    talk.crash()
    talk.crash()
    #expect(talk.phase == .starting && talk.status.strikes == 2)
    talk.tell(sight(2))
    #expect(talk.phase == .starting && talk.status.strikes == 0 && talk.count("released") == 1)
    talk.exec()
    talk.settle()
    #expect(talk.status.settled)
  }

  @Test func `while a run lives is not held against it, and gives the next start a fresh ladder`() {
    var talk = talk()
    talk.crash()
    talk.exec()
    talk.tell(sight(2))
    #expect(talk.phase == .running && talk.status.strikes == 1)
    talk.end()
    #expect(talk.status.strikes == 0 && talk.count("released") == 1)
  }

  @Test func `while guardian was away is noticed when it is back`() {
    var talk = talk()
    _ = talk.dieOut()
    talk.guardianDies(away: .seconds(60))
    talk.tell(.begin)
    #expect(talk.phase == .quarantined)
    talk.tell(sight(2))
    #expect(talk.phase == .starting && talk.step == .restart)
  }

  @Test func `is nothing new when it is declared for the first time, or not any more`() {
    var talk = Conversation(service())
    _ = talk.dieOut()
    talk.tell(sight(1))
    talk.tell(sight(2))
    #expect(talk.phase == .quarantined && talk.record.files.isEmpty)
    var declared = talk.spec
    declared.repairs = [RepairSpec(name: "config", kind: .restore([path]))]
    talk.tell(.defined(declared))
    talk.tell(sight(3))
    #expect(talk.phase == .quarantined)
    talk.tell(sight(4))
    #expect(talk.phase == .starting)
  }
}
