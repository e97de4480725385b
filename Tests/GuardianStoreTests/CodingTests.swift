import GuardianModel
import Testing

@testable import GuardianStore

/// SplitMix64, so that a failure comes again.
struct Seeded: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
    return z ^ z >> 31
  }
}

/// Records with everything in them that a record can hold.
struct Maker {
  var random: Seeded
  init(seed: UInt64) { random = Seeded(state: seed) }

  mutating func number() -> Int64 {
    switch Int.random(in: 0..<8, using: &random) {
    case 0: .max
    case 1: .min
    case 2: -1
    case 3: 0
    default: Int64.random(in: .min ... .max, using: &random)
    }
  }
  mutating func count() -> Int { Bool.random(using: &random) ? 0 : Int.random(in: 0...1_000_000_000, using: &random) }
  mutating func flag() -> Bool { Bool.random(using: &random) }
  mutating func maybe<Value>(_ make: (inout Maker) -> Value) -> Value? { flag() ? make(&self) : nil }
  mutating func list<Value>(_ make: (inout Maker) -> Value) -> [Value] {
    (0..<Int.random(in: 0..<5, using: &random)).map { _ in make(&self) }
  }
  mutating func pick<Value>(_ values: [Value]) -> Value { values[Int.random(in: 0..<values.count, using: &random)] }
  mutating func text() -> String {
    pick(["", "a", "ä→😀", "line\nline\0", String(repeating: "x", count: 300), "\u{7f}\u{1b}["])
  }
  mutating func instant() -> Instant { Instant(nanoseconds: number()) }
  mutating func bootInstant() -> BootInstant { BootInstant(nanoseconds: number()) }
  mutating func duration() -> Duration { .nanoseconds(Int64.random(in: 0 ... .max, using: &random)) }
  mutating func wall() -> WallTime { WallTime(nanoseconds: number()) }
  mutating func run() -> RunID { RunID(high: random.next(), low: random.next()) }
  mutating func process() -> ProcessIdentity {
    ProcessIdentity(pid: Int32.random(in: 2 ... .max, using: &random), startTicks: random.next())
  }
  mutating func kind() -> RunKind { pick([.ordinary, .trial, .pluginRetry, .probe]) }
  mutating func status() -> GuardianModel.ExitStatus {
    let signal = Signal(number: Int32.random(in: 1...64, using: &random)) ?? .kill
    return pick([
      .code(Int32.random(in: .min ... .max, using: &random)), .signal(signal, core: true), .signal(signal, core: false),
      .unseen,
    ])
  }
  mutating func failure() -> SpawnFailure {
    SpawnFailure(
      stage: pick(SpawnFailure.Stage.allCases), errno: Int32.random(in: .min ... .max, using: &random), target: text(),
      sentence: text(), ownTrouble: flag(), missing: flag())
  }
  mutating func cause() -> Cause {
    pick([
      .exit, .signal, .oom(certain: true), .oom(certain: false), .watchdog, .startTimeout, .check, .exec(failure()),
      .killed, .unknown, .host,
    ])
  }
  mutating func end() -> End {
    var end = End(
      run: run(), status: status(), cause: cause(), crashClass: pick(CrashClass.allCases), at: wall(),
      uptime: duration(), leftovers: count())
    end.signature = maybe { Signature(value: $0.random.next(), strong: $0.flag()) }
    return end
  }
  mutating func liveRun() -> LiveRun {
    var live = LiveRun(id: run(), kind: kind(), pluginsOff: flag())
    live.process = maybe { $0.process() }
    live.startedAt = maybe { $0.instant() }
    live.readyBy = maybe { $0.instant() }
    live.wasReady = flag()
    live.settlesAt = maybe { $0.instant() }
    live.settled = flag()
    live.confirmed = flag()
    live.watchdog = duration()
    live.clearsAt = maybe { $0.instant() }
    live.deescalatesAt = maybe { $0.instant() }
    live.byOperator = flag()
    if flag() { live.successor = run() }
    live.leader = maybe { $0.process() }
    live.reload = maybe { $0.liveReload() }
    live.reloadFailure = maybe { $0.text() }
    live.leaves = maybe { $0.flag() ? .restart : .stop }
    live.disabled = list { $0.text() }
    live.readyAt = maybe { $0.instant() }
    live.mitigation = maybe { $0.pick(Mitigation.allCases) }
    return live
  }
  mutating func liveReload() -> LiveReload {
    var reload = LiveReload(ordered: flag(), since: instant(), until: instant())
    if flag() { reload.hook = run() }
    reload.process = maybe { $0.process() }
    reload.failure = maybe { $0.text() }
    reload.announced = flag()
    reload.answered = flag()
    reload.quietUntil = maybe { $0.instant() }
    reload.again = flag()
    return reload
  }
  mutating func death() -> Death {
    Death(status(), oom: pick([.none, .perhaps, .certain]), traced: flag(), leftovers: count())
  }
  mutating func liveStop() -> LiveStop {
    var stop = LiveStop(
      purpose: pick([.order, .restart, .death, .leaving, .plugins, .fault(text())]), killAt: instant(), killed: flag(),
      death: maybe { $0.death() }, thenStart: flag())
    stop.step = pick([0, 1, 7])
    return stop
  }
  mutating func liveRepair() -> LiveRepair {
    var repair = LiveRepair(
      attempt: count(), queue: list { $0.text() },
      hook: maybe { maker in
        LiveHook(
          id: maker.run(), name: maker.text(), process: maker.maybe { $0.process() }, until: maker.instant())
      },
      byOperator: flag())
    repair.beforeStart = maybe { $0.kind() }
    return repair
  }
  mutating func situation() -> Situation {
    switch Int.random(in: 0..<8, using: &random) {
    case 0: .stopped
    case 1: .finished
    case 2: .waiting(until: instant(), delay: duration(), kind: kind())
    case 3: .backingOff(until: instant(), acts: flag())
    case 4: .living(liveRun())
    case 5: .stopping(liveRun(), liveStop())
    case 6: .repairing(liveRepair())
    default: .quarantined
    }
  }
  mutating func hookResult() -> HookResult {
    pick([.succeeded, .cannotRepair, .failed(status()), .timedOut, .aborted, .notStarted(failure())])
  }
  mutating func signature() -> Signature { Signature(value: random.next(), strong: flag()) }
  mutating func pluginProbe() -> PluginProbe { PluginProbe(on: ToggleSet(bits: random.next()), full: flag()) }
  mutating func incident() -> PluginIncident {
    var incident = PluginIncident(last: bootInstant())
    incident.failures = count()
    incident.starts = count()
    incident.largestAge = duration()
    incident.signature = maybe { $0.signature() }
    incident.sameness = random.next()
    incident.hints = list { PluginHint(plugin: $0.text(), score: $0.count()) }
    return incident
  }
  mutating func search() -> PluginSearch {
    var search = PluginSearch(toggles: list { $0.text() }, since: bootInstant())
    search.hints = list { $0.count() }
    search.failures = count()
    search.starts = count()
    search.backgroundFailures = count()
    search.backgroundStarts = count()
    search.signature = maybe { $0.signature() }
    search.sameness = random.next()
    search.window = duration()
    search.observations = list { .init($0.pluginProbe(), $0.pick(ProbeOutcome.allCases)) }
    search.probe = maybe { $0.pluginProbe() }
    search.death = maybe { .init(probe: $0.pluginProbe(), run: $0.run(), sameness: $0.random.next()) }
    search.closing = flag()
    search.spent = duration()
    search.paused = flag()
    return search
  }
  mutating func mitigation() -> MitigationRecord {
    var record = MitigationRecord()
    record.build = random.next()
    record.failures = count()
    record.active = maybe { maker in
      var tally = MitigationTally(maker.pick(Mitigation.allCases), failedBefore: maker.count())
      tally.kept = maker.flag()
      tally.starts = maker.count()
      tally.failures = maker.count()
      tally.ran = maker.duration()
      tally.signature = maker.maybe { $0.random.next() }
      return tally
    }
    record.ineffective = Array(list { $0.pick(Mitigation.allCases) }.prefix(4))
    return record
  }
  mutating func plugin() -> PluginRecord {
    var plugin = PluginRecord(name: text())
    plugin.off = maybe { $0.pick(PluginRecord.Switcher.allCases) }
    plugin.until = maybe { $0.bootInstant() }
    plugin.timeToLive = maybe { $0.duration() }
    plugin.offences = count()
    plugin.healthySince = maybe { $0.bootInstant() }
    plugin.probationUntil = maybe { $0.bootInstant() }
    plugin.pinned = flag()
    plugin.madeOf = maybe { $0.random.next() } ?? 0
    plugin.partner = maybe { $0.text() }
    plugin.signature = maybe { $0.random.next() }
    plugin.suspicion = count()
    return plugin
  }
  mutating func record() -> ServiceRecord {
    var record = ServiceRecord()
    record.wanted = pick([.up, .down])
    record.untilBoot = flag()
    record.stoppedBy = text()
    record.standsIn = flag()
    record.step = pick(Step.allCases)
    record.strikes = count()
    record.triesOnStep = count()
    record.repairRounds = count()
    record.lateDeaths = list { $0.instant() }
    record.plugins.all = list { $0.plugin() }
    record.plugins.incident = maybe { $0.incident() }
    record.plugins.search = maybe { $0.search() }
    record.plugins.searched = flag()
    record.plugins.searchWanted = flag()
    record.plugins.healthy = (Int.random(in: 0...1000, using: &random), Int.random(in: 0...1000, using: &random))
    record.mitigation = maybe { $0.mitigation() } ?? MitigationRecord()
    record.hold = maybe { Hold(until: $0.bootInstant(), by: $0.text()) }
    record.quarantine = maybe { maker in
      Quarantine(since: maker.wall(), reason: maker.text(), nextTrial: maker.maybe { $0.bootInstant() })
    }
    record.trialDelay = maybe { $0.duration() }
    for name in list({ $0.text() }) { record.repairRuns[name] = list { $0.bootInstant() } }
    record.restarts = count()
    record.openRun = maybe { $0.run() }
    record.lastEnd = maybe { $0.end() }
    record.situation = situation()
    record.strikeSignature = maybe { $0.random.next() }
    record.strikeSignatureBefore = maybe { $0.random.next() }
    record.files = list { FileSight(path: $0.text(), look: $0.random.next()) }
    record.hostLosses = count()
    record.orderedRepairs = list { $0.text() }
    record.reason = text()
    record.processHash = maybe { $0.random.next() } ?? 0
    record.beforeStartFailures = count()
    record.since = wall()
    return record
  }
}

@Test func `every record reads back as it was written`() {
  var maker = Maker(seed: 1)
  for _ in 0..<5000 {
    let record = maker.record()
    #expect(RecordCoding.decode(RecordCoding.encode(record)) == record)
  }
}

/// A field that is added to the record and forgotten here would be lost at every restart of guardian.
@Test func `the coding knows every field of a record`() {
  #expect(Mirror(reflecting: ServiceRecord()).children.count == 28)
  #expect(Mirror(reflecting: LiveRun(id: RunID(high: 0, low: 0), kind: .trial, pluginsOff: true)).children.count == 22)
  #expect(Mirror(reflecting: MitigationRecord()).children.count == 4)
  #expect(Mirror(reflecting: MitigationTally(.singleCPU, failedBefore: 0)).children.count == 7)
  #expect(Mirror(reflecting: PluginIncident(last: .zero)).children.count == 7)
  #expect(Mirror(reflecting: PluginSearch(toggles: [], since: .zero)).children.count == 16)
  #expect(Mirror(reflecting: PluginRecord(name: "")).children.count == 12)
  #expect(Mirror(reflecting: LiveReload(ordered: true, since: .zero, until: .zero)).children.count == 10)
}

@Test func `purposes and outcomes of runs read back as they were written`() {
  var maker = Maker(seed: 2)
  for _ in 0..<1000 {
    let purpose: RunPurpose = maker.pick([.main(maker.kind()), .repair(name: maker.text()), .beforeStart])
    #expect(RecordCoding.purpose(RecordCoding.encode(purpose)) == purpose)
    let outcome: RunOutcome = maker.pick([.ended(maker.end()), .hook(maker.hookResult()), .notBegun])
    #expect(RecordCoding.outcome(RecordCoding.encode(outcome)) == outcome)
  }
}

@Test func `a record cut short is none`() {
  var maker = Maker(seed: 3)
  for _ in 0..<50 {
    let bytes = RecordCoding.encode(maker.record())
    for length in 0..<bytes.count { #expect(RecordCoding.decode(Array(bytes[..<length])) == nil) }
  }
}

@Test func `no bytes make the reader trap`() {
  var maker = Maker(seed: 4)
  for _ in 0..<400 {
    var bytes = RecordCoding.encode(maker.record())
    for _ in 0..<20 {
      let index = Int.random(in: 0..<bytes.count, using: &maker.random)
      bytes[index] = UInt8.random(in: 0...255, using: &maker.random)
      _ = RecordCoding.decode(bytes)
      _ = RecordCoding.outcome(bytes)
      _ = RecordCoding.purpose(bytes)
    }
  }
  for _ in 0..<2000 {
    let noise = (0..<Int.random(in: 0..<64, using: &maker.random)).map { _ in
      UInt8.random(in: 0...255, using: &maker.random)
    }
    _ = RecordCoding.decode([1] + noise)
  }
}

@Test func `a field of a later version is passed over`() {
  var record = ServiceRecord()
  record.strikes = 4
  let bytes = RecordCoding.encode(record)
  // Tag 200 with three bytes, before the end mark's three.
  let longer = Array(bytes.dropLast(3)) + [200, 3, 1, 2, 3] + bytes.suffix(3)
  #expect(RecordCoding.decode(longer) == record)
}

@Test func `H11: silly numbers make one record none, and nothing traps`() {
  func encoded(_ tag: UInt8, _ value: Int64) -> [UInt8] {
    var writer = FieldWriter()
    writer.raw(RecordCoding.version)
    writer.integer(tag, value)
    writer.unsigned(255, 0)
    return writer.bytes
  }
  for tag: UInt8 in [4, 5, 6, 13, 17] {
    #expect(RecordCoding.decode(encoded(tag, 3)) != nil)
    for silly: Int64 in [-1, .min, .max, 1_000_000_001] { #expect(RecordCoding.decode(encoded(tag, silly)) == nil) }
  }
  #expect(RecordCoding.decode(encoded(11, -1)) == nil)
  #expect(RecordCoding.decode(encoded(2, 7)) == nil)
}
