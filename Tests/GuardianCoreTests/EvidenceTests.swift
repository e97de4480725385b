import GuardianCore
import GuardianModel
import Testing

private let trap = Finding(crashClass: .trap, signature: Signature(value: 1, strong: true))
private let other = Finding(crashClass: .trap, signature: Signature(value: 2, strong: true))

@Suite struct `the evidence of a death` {
  private func talk(_ finding: Finding?, _ change: (inout ServiceSpec) -> Void = { _ in }) -> Conversation {
    var talk = Conversation(
      service {
        $0.repairs = [RepairSpec(name: "a", kind: .run(["/bin/a"]))]
        $0.escalation.safeMode = 0
        change(&$0)
      })
    talk.finding = finding
    return talk
  }

  @Test func `is asked for at each death that nobody asked for, and at no other end`() {
    var talk = talk(Finding())
    talk.end()
    #expect(talk.examinations.map(\.crashClass) == [.errorExit])
    talk.pass(.seconds(1))
    talk.order(.stop(untilBoot: false))
    talk.end(.signal(.term, core: false))
    #expect(talk.examinations.count == 1)
  }

  @Test func `is told by status, with its finer class`() {
    var talk = talk(Finding(crashClass: .null, signature: Signature(value: 9, strong: false)))
    talk.end(.signal(.segv, core: true))
    #expect(talk.record.lastEnd?.crashClass == .null)
    #expect(talk.status.lastEnd?.crashClass == "null")
  }

  @Test func `is waited for by repairs, and by nothing else`() {
    var talk = talk(nil) { $0.escalation.restart = 2 }
    talk.end()
    talk.pass(.milliseconds(600))
    #expect(talk.spawns.count == 2, "a plain restart does not wait")
    talk.end()
    #expect(talk.step == .repair)
    talk.pass(.seconds(2))
    #expect(talk.hooks.isEmpty)
    talk.tell(.examined(talk.run, Finding()))
    #expect(talk.hooks.count == 1)
  }

  @Test func `is waited for by repairs for three seconds, and no longer`() {
    var talk = talk(nil) { $0.escalation.restart = 1 }
    talk.end()
    talk.pass(.milliseconds(2_999))
    #expect(talk.hooks.isEmpty)
    talk.pass(.milliseconds(1))
    #expect(talk.hooks.count == 1)
    talk.tell(.examined(talk.run, trap))
    #expect(talk.record.lastEnd?.crashClass == .trap, "late, and known all the same")
  }

  @Test func `chooses the repairs, by the finer class and by the coarse one`() {
    var talk = talk(Finding(crashClass: .stack)) {
      $0.escalation.restart = 1
      $0.repairs = [.stack, .segv, .null].map { (wanted: CrashClass) in
        var repair = RepairSpec(name: wanted.rawValue, kind: .run(["/bin/a"]))
        repair.on = [.crashClass(wanted)]
        return repair
      }
    }
    talk.end(.signal(.segv, core: false))
    talk.pass(.seconds(1))
    talk.tell(.hookEnded(talk.hooks[0].id, .succeeded))
    #expect(talk.hooks.map(\.purpose.name) == ["stack", "segv"])
  }

  @Test func `ends the restart step at the second strike with the same strong signature and a class that comes again`()
  {
    var talk = talk(trap)
    talk.end(.signal(.ill, core: false))
    #expect(talk.step == .restart)
    talk.pass(.seconds(1))
    talk.end(.signal(.ill, core: false))
    #expect(talk.step == .repair)
    talk.pass(.seconds(1))
    #expect(talk.hooks.count == 1)
  }

  @Test(arguments: [
    (trap, other), (Finding(crashClass: .trap, signature: Signature(value: 1, strong: false)), nil),
    (Finding(crashClass: .null, signature: Signature(value: 1, strong: true)), nil), (Finding(crashClass: .trap), nil),
  ])
  func `ends it at no second strike that is another, weak, or of a class that may go away`(
    _ first: Finding, _ second: Finding?
  ) {
    var talk = talk(first)
    talk.end(.signal(.segv, core: false))
    talk.pass(.seconds(1))
    talk.finding = second ?? first
    talk.end(.signal(.segv, core: false))
    #expect(talk.step == .restart)
    #expect(talk.status.strikes == 2)
  }

  @Test func `ends it at the first strike where it shows what no restart can cure`() {
    var talk = talk(Finding(crashClass: .loader))
    talk.end()
    #expect(talk.step == .repair)
  }

  @Test func `ends no restart step where there is nothing better to do`() {
    var talk = talk(Finding(crashClass: .loader)) { $0.repairs = [] }
    talk.end()
    #expect(talk.step == .restart)
    #expect(talk.status.strikes == 1)
  }

  @Test func `that comes when the next run has begun changes no step, and counts for the strike after it`() {
    var talk = talk(nil)
    talk.end(.signal(.ill, core: false))
    let first = talk.run
    talk.pass(.seconds(1))
    talk.tell(.examined(first, trap))
    #expect(talk.step == .restart)
    talk.finding = trap
    talk.end(.signal(.ill, core: false))
    #expect(talk.step == .repair)
  }
}

@Suite struct `a signature` {
  private func end(_ status: Ending, _ crashClass: CrashClass, run: UInt64 = 1) -> End {
    End(
      run: RunID(high: run, low: run), status: status, cause: .signal, crashClass: crashClass,
      at: WallTime(nanoseconds: Int64(run)), uptime: .seconds(Int64(run)))
  }
  private let frames = [
    StackFrame(module: "libc.so.6", function: "abort", offset: 7),
    StackFrame(module: "libshop.so", buildID: "aa", function: "pay", offset: 100, functionOffset: 4),
    StackFrame(module: "shop", function: "", offset: 200),
    StackFrame(module: "shop", function: "main", offset: 300),
  ]

  @Test func `is the same for the same crash, whatever run and time it was`() {
    let one = signature(of: end(.signal(.abrt, core: false), .abort), frames: frames, lastLine: "a")
    let two = signature(of: end(.signal(.abrt, core: true), .abort, run: 2), frames: frames, lastLine: "b")
    #expect(one == two)
    #expect(one.strong)
  }

  @Test func `is another for another class, signal, function or place`() {
    let one = signature(of: end(.signal(.abrt, core: false), .abort), frames: frames, lastLine: "")
    var moved = frames
    moved[2].offset = 201
    var renamed = frames
    renamed[1].function = "refund"
    let others = [
      signature(of: end(.signal(.abrt, core: false), .abortHeap), frames: frames, lastLine: ""),
      signature(of: end(.signal(.segv, core: false), .abort), frames: frames, lastLine: ""),
      signature(of: end(.signal(.abrt, core: false), .abort), frames: moved, lastLine: ""),
      signature(of: end(.signal(.abrt, core: false), .abort), frames: renamed, lastLine: ""),
    ]
    #expect(Set(others + [one]).count == 5)
  }

  @Test func `leaves out what every crash of the kind goes through, and what lies deeper than five frames`() {
    #expect(usefulFrames(frames).map(\.module) == ["libshop.so", "shop", "shop"])
    let deep = (0..<9).map { StackFrame(module: "m", function: "f\($0)") }
    #expect(usefulFrames(deep).count == 5)
    let noise = [
      StackFrame(module: "libc.so.6", offset: 5), StackFrame(module: "x", function: "__asan_report_error"),
      StackFrame(module: "x", function: "swift_runtime_on_report"), StackFrame(),
    ]
    #expect(usefulFrames(noise).isEmpty)
  }

  @Test func `without frames goes by the last line, and is weak`() {
    let failed = end(.code(1), .errorExit)
    let one = signature(of: failed, frames: [], lastLine: "12:01:07 cannot open /srv/a1 (pid 4711) at 0x7f12ab")
    #expect(one == signature(of: failed, frames: [], lastLine: "23:59:59 cannot open /srv/a22 (pid 9) at 0xdeadbeef"))
    #expect(one != signature(of: failed, frames: [], lastLine: "12:01:07 cannot read /srv/a1 (pid 4711) at 0x7f12ab"))
    #expect(!one.strong)
    // Of what address it was is known of one crash and perhaps not of the next.
    let null = signature(of: end(.signal(.segv, core: false), .null), frames: [], lastLine: "x")
    #expect(null == signature(of: end(.signal(.segv, core: true), .segv), frames: [], lastLine: "x"))
  }

  @Test(arguments: [
    ("port 8080 in use", "port # in use"), ("id 550e8400-e29b-41d4-a716-446655440000!", "id #!"),
    ("2026-11-30T10:00:00Z x", "# x"), ("worker-12 died", "worker-# died"), ("no numbers", "no numbers"),
    ("a   b\t c", "a b c"), ("", ""), ("0x1F", "#"), ("größe 12µs", "größe #µs"),
  ])
  func `takes numbers, times and identifiers out of a line`(_ line: String, _ expected: String) {
    #expect(normalised(line) == expected)
  }

  @Test func `is written as sixteen digits and read back`() {
    let one = Signature(value: 0xab, strong: true)
    #expect(one.description == "00000000000000ab")
    #expect(Signature(one.description, strong: true) == one)
    #expect(Signature("+0000000000000ab", strong: true) == nil)
    #expect(Signature("ab", strong: true) == nil)
  }
}

@Suite struct `the class of an end` {
  private func end(_ crashClass: CrashClass) -> End {
    End(
      run: RunID(high: 1, low: 1), status: .code(1), cause: .exit, crashClass: crashClass, at: WallTime(nanoseconds: 0),
      uptime: .zero)
  }

  @Test(arguments: [
    (BadAccess(address: 16), CrashClass.null), (BadAccess(address: 65_535, stackPointer: 65_500), .null),
    (BadAccess(address: 65_536), .wild), (BadAccess(address: 1 << 40, stackPointer: 1 << 41), .wild),
    (BadAccess(address: 1 << 40, stackPointer: (1 << 40) + 65_536), .stack),
    (BadAccess(address: (1 << 40) + 65_536, stackPointer: 1 << 40), .stack),
    (BadAccess(address: .max, stackPointer: 0), .wild),
  ])
  func `of a bad access is told by its address`(_ access: BadAccess, _ expected: CrashClass) {
    #expect(refined(end(.segv), lines: [], access: access) == expected)
    #expect(refined(end(.segv), lines: [], access: nil) == nil)
    #expect(refined(end(.abort), lines: [], access: access) == nil)
  }

  @Test func `of an abort and of an exit is told by the last words, of the last fifty lines`() {
    let heap = ["free(): double free detected in tcache 2"]
    #expect(refined(end(.abort), lines: heap, access: nil) == .abortHeap)
    #expect(refined(end(.abort), lines: heap + Array(repeating: "x", count: 50), access: nil) == nil)
    #expect(refined(end(.errorExit), lines: heap, access: nil) == nil)
    let loader = ["x: error while loading shared libraries: libx.so: cannot open shared object file"]
    #expect(refined(end(.errorExit), lines: loader, access: nil) == .loader)
    #expect(refined(end(.abort), lines: loader, access: nil) == nil)
  }
}
