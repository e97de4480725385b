package import GuardianModel

/// A record's form on disk, and on the pipe of an upgrade.
///
/// A version, then tagged fields, then an end mark, so that a form cut short is not taken for a record with fewer
/// fields.
/// A field is added with a new tag: older readers skip it, and newer ones have its default where it is missing.
package enum RecordCoding {
  static let version: UInt8 = 1
  private static let endTag: UInt8 = 255

  package static func encode(_ record: ServiceRecord) -> [UInt8] {
    var writer = FieldWriter()
    writer.raw(version)
    writer.write(record)
    writer.unsigned(endTag, 0)
    return writer.bytes
  }

  /// Nil for anything but an encoded record whose every field is within its range.
  package static func decode(_ bytes: [UInt8]) -> ServiceRecord? {
    guard bytes.first == version else { return nil }
    var reader = FieldReader(bytes.dropFirst())
    return try? reader.record(endTag: endTag)
  }

  static func encode(_ purpose: RunPurpose) -> [UInt8] {
    var writer = FieldWriter()
    switch purpose {
    case .main(let kind): writer.string(1, kind.rawValue)
    case .repair(let name): writer.string(2, name)
    case .beforeStart: writer.string(3, "")
    }
    return writer.bytes
  }
  static func purpose(_ bytes: [UInt8]) -> RunPurpose? {
    var reader = FieldReader(bytes[...])
    guard let field = try? reader.next(), let text = try? field.string() else { return nil }
    switch field.tag {
    case 1: return RunKind(rawValue: text).map { .main($0) }
    case 2: return .repair(name: text)
    case 3: return .beforeStart
    default: return nil
    }
  }

  static func encode(_ outcome: RunOutcome) -> [UInt8] {
    var writer = FieldWriter()
    switch outcome {
    case .ended(let end): writer.message(1) { $0.write(end) }
    case .hook(let result): writer.message(2) { $0.write(result) }
    case .notBegun: writer.flag(3, true)
    }
    return writer.bytes
  }
  static func outcome(_ bytes: [UInt8]) -> RunOutcome? {
    var reader = FieldReader(bytes[...])
    guard let field = try? reader.next() else { return nil }
    var inner = field.reader
    switch field.tag {
    case 1: return (try? inner.end()).map { .ended($0) }
    case 2: return (try? inner.hookResult()).map { .hook($0) }
    case 3: return .notBegun
    default: return nil
    }
  }
}

// Tags are never used again for something else.

extension FieldWriter {
  /// Counters are kept within what a reader allows.
  private mutating func count(_ tag: UInt8, _ value: Int) {
    if value != 0 { integer(tag, Int64(min(max(value, 0), 1_000_000_000))) }
  }
  private mutating func instant(_ tag: UInt8, _ value: Instant?) {
    if let value { integer(tag, value.nanoseconds) }
  }
  private mutating func instant(_ tag: UInt8, _ value: BootInstant?) {
    if let value { integer(tag, value.nanoseconds) }
  }
  private mutating func duration(_ tag: UInt8, _ value: Duration?) {
    if let value { integer(tag, max(value.nanoseconds, 0)) }
  }
  private mutating func run(_ tag: UInt8, _ id: RunID?) {
    guard let id else { return }
    message(tag) {
      $0.unsigned(1, id.high)
      $0.unsigned(2, id.low)
    }
  }
  private mutating func process(_ tag: UInt8, _ process: ProcessIdentity?) {
    guard let process else { return }
    message(tag) {
      $0.integer(1, Int64(process.pid))
      $0.unsigned(2, process.startTicks)
    }
  }

  fileprivate mutating func write(_ record: ServiceRecord) {
    string(1, record.wanted.rawValue)
    flag(2, record.untilBoot)
    string(3, record.step.rawValue)
    count(4, record.strikes)
    count(5, record.triesOnStep)
    count(6, record.repairRounds)
    for death in record.lateDeaths { instant(7, death) }
    if let hold = record.hold {
      message(9) {
        $0.instant(1, hold.until)
        $0.string(2, hold.by)
      }
    }
    if let quarantine = record.quarantine {
      message(10) {
        $0.integer(1, quarantine.since.nanoseconds)
        $0.string(2, quarantine.reason)
        $0.instant(3, quarantine.nextTrial)
      }
    }
    duration(11, record.trialDelay)
    for (name, times) in record.repairRuns.sorted(by: { $0.key < $1.key }) {
      message(12) {
        $0.string(1, name)
        for time in times { $0.instant(2, time) }
      }
    }
    count(13, record.restarts)
    run(14, record.openRun)
    if let end = record.lastEnd { message(15) { $0.write(end) } }
    message(16) { $0.write(record.situation) }
    count(17, record.hostLosses)
    if !record.reason.isEmpty { string(18, record.reason) }
    if record.processHash != 0 { unsigned(19, record.processHash) }
    count(30, record.beforeStartFailures)
    if !record.stoppedBy.isEmpty { string(31, record.stoppedBy) }
    if record.since.nanoseconds != 0 { integer(32, record.since.nanoseconds) }
    if let signature = record.strikeSignature { unsigned(33, signature) }
    if let signature = record.strikeSignatureBefore { unsigned(34, signature) }
    if record.mitigation != MitigationRecord() { message(43) { $0.write(record.mitigation) } }
    for name in record.orderedRepairs { string(47, name) }
    for file in record.files {
      message(35) {
        $0.string(1, file.path)
        $0.unsigned(2, file.look)
      }
    }
    if record.standsIn { flag(40, true) }
    for plugin in record.plugins.all { message(36) { $0.write(plugin) } }
    if let incident = record.plugins.incident { message(37) { $0.write(incident) } }
    if let search = record.plugins.search { message(38) { $0.write(search) } }
    let (starts, failures) = record.plugins.healthy
    if record.plugins.searched || record.plugins.searchWanted || starts > 0 || failures > 0 {
      message(39) {
        $0.flag(1, record.plugins.searched)
        $0.flag(2, record.plugins.searchWanted)
        $0.count(3, starts)
        $0.count(4, failures)
      }
    }
  }

  private mutating func signature(weak: UInt8, strong: UInt8, _ signature: Signature?) {
    if let signature { unsigned(signature.strong ? strong : weak, signature.value) }
  }

  private mutating func write(_ incident: PluginIncident) {
    count(1, incident.failures)
    count(2, incident.starts)
    instant(3, incident.last)
    duration(4, incident.largestAge)
    signature(weak: 5, strong: 6, incident.signature)
    unsigned(7, incident.sameness)
    for hint in incident.hints {
      message(8) {
        $0.string(1, hint.plugin)
        $0.count(2, hint.score)
      }
    }
  }

  private mutating func write(_ search: PluginSearch) {
    for name in search.toggles { string(1, name) }
    for hint in search.hints { unsigned(2, UInt64(max(hint, 0))) }
    count(3, search.failures)
    count(4, search.starts)
    count(5, search.backgroundFailures)
    count(6, search.backgroundStarts)
    signature(weak: 7, strong: 8, search.signature)
    unsigned(9, search.sameness)
    duration(10, search.window)
    instant(11, search.since)
    for one in search.observations {
      message(12) {
        $0.write(one.probe)
        $0.unsigned(3, UInt64(one.outcome.rawValue))
      }
    }
    if let probe = search.probe { message(13) { $0.write(probe) } }
    if let death = search.death {
      message(14) {
        $0.write(death.probe)
        $0.run(3, death.run)
        $0.unsigned(4, death.sameness)
      }
    }
    flag(15, search.closing)
    duration(16, search.spent)
    flag(17, search.paused)
  }

  private mutating func write(_ mitigation: MitigationRecord) {
    if mitigation.build != 0 { unsigned(1, mitigation.build) }
    count(2, mitigation.failures)
    if let tally = mitigation.active {
      message(3) {
        $0.string(1, tally.mitigation.rawValue)
        $0.flag(2, tally.kept)
        $0.count(3, tally.starts)
        $0.count(4, tally.failures)
        $0.duration(5, tally.ran)
        if let signature = tally.signature { $0.unsigned(6, signature) }
        $0.count(7, tally.failedBefore)
      }
    }
    for word in mitigation.ineffective { string(4, word.rawValue) }
  }

  private mutating func write(_ probe: PluginProbe) {
    unsigned(1, probe.on.bits)
    flag(2, probe.full)
  }

  private mutating func write(_ plugin: PluginRecord) {
    string(1, plugin.name)
    if let off = plugin.off { string(2, off.rawValue) }
    instant(3, plugin.until)
    duration(4, plugin.timeToLive)
    count(5, plugin.offences)
    instant(6, plugin.healthySince)
    instant(7, plugin.probationUntil)
    if plugin.pinned { flag(8, true) }
    if plugin.madeOf != 0 { unsigned(9, plugin.madeOf) }
    if let partner = plugin.partner { string(10, partner) }
    if let signature = plugin.signature { unsigned(11, signature) }
    count(12, plugin.suspicion)
  }

  private mutating func write(_ situation: Situation) {
    switch situation {
    case .stopped: flag(1, true)
    case .finished: flag(2, true)
    case .waiting(let until, let delay, let kind):
      message(3) {
        $0.instant(1, until)
        $0.duration(2, delay)
        $0.string(3, kind.rawValue)
      }
    case .backingOff(let until, let acts):
      message(4) {
        $0.instant(1, until)
        $0.flag(2, acts)
      }
    case .living(let run): message(5) { $0.write(run) }
    case .stopping(let run, let stop):
      message(6) {
        $0.message(1) { $0.write(run) }
        $0.message(2) { $0.write(stop) }
      }
    case .repairing(let repair): message(7) { $0.write(repair) }
    case .quarantined: flag(8, true)
    }
  }

  private mutating func write(_ live: LiveRun) {
    run(1, live.id)
    string(2, live.kind.rawValue)
    flag(3, live.pluginsOff)
    process(4, live.process)
    instant(5, live.startedAt)
    instant(6, live.readyBy)
    flag(7, live.wasReady)
    instant(8, live.settlesAt)
    flag(9, live.settled)
    if live.watchdog != .zero { duration(10, live.watchdog) }
    instant(11, live.clearsAt)
    instant(12, live.deescalatesAt)
    flag(13, live.byOperator)
    if let successor = live.successor { run(14, successor) }
    for name in live.disabled { string(15, name) }
    instant(16, live.readyAt)
    if let mitigation = live.mitigation { string(43, mitigation.rawValue) }
    // 20 and further: what a run has said of itself, and its reload.
    process(20, live.leader)
    if let reload = live.reload { message(21) { $0.write(reload) } }
    if let failure = live.reloadFailure { string(22, failure) }
    if live.confirmed { flag(46, true) }
    if let leaves = live.leaves { unsigned(40, leaves == .restart ? 2 : 1) }
  }

  private mutating func write(_ reload: LiveReload) {
    flag(1, reload.ordered)
    instant(2, reload.since)
    instant(3, reload.until)
    if let hook = reload.hook { run(4, hook) }
    process(5, reload.process)
    if let failure = reload.failure { string(6, failure) }
    flag(7, reload.announced)
    flag(8, reload.answered)
    instant(9, reload.quietUntil)
    flag(10, reload.again)
  }

  private mutating func write(_ stop: LiveStop) {
    switch stop.purpose {
    case .order: unsigned(1, 1)
    case .restart: unsigned(1, 2)
    case .death: unsigned(1, 3)
    case .leaving: unsigned(1, 4)
    case .plugins: unsigned(1, 5)
    case .fault(let cause): string(2, cause)
    }
    instant(3, stop.killAt)
    flag(4, stop.killed)
    if let death = stop.death {
      message(5) {
        $0.message(1) { $0.write(death.status) }
        let oom: UInt64 =
          switch death.oom {
          case .none: 0
          case .perhaps: 1
          case .certain: 2
          }
        if oom != 0 { $0.unsigned(2, oom) }
        $0.flag(3, death.traced)
        $0.count(4, death.leftovers)
      }
    }
    flag(6, stop.thenStart)
    if stop.step != 0 { count(7, stop.step) }
    if stop.excused { flag(40, true) }
    if !stop.detail.isEmpty { string(8, stop.detail) }
  }

  private mutating func write(_ repair: LiveRepair) {
    count(1, repair.attempt)
    for name in repair.queue { string(2, name) }
    if let hook = repair.hook {
      message(3) {
        $0.run(1, hook.id)
        $0.string(2, hook.name)
        $0.process(3, hook.process)
        $0.instant(4, hook.until)
      }
    }
    flag(4, repair.byOperator)
    if let kind = repair.beforeStart { string(5, kind.rawValue) }
  }

  fileprivate mutating func write(_ end: End) {
    run(1, end.run)
    message(2) { $0.write(end.status) }
    message(3) { $0.write(end.cause) }
    string(4, end.crashClass.rawValue)
    integer(5, end.at.nanoseconds)
    duration(6, end.uptime)
    count(7, end.leftovers)
    if !end.detail.isEmpty { string(8, end.detail) }
    if let signature = end.signature { unsigned(signature.strong ? 10 : 9, signature.value) }
  }

  private mutating func write(_ status: ExitStatus) {
    switch status {
    case .code(let code): integer(1, Int64(code))
    case .signal(let signal, let core): integer(core ? 3 : 2, Int64(signal.number))
    case .unseen: flag(4, true)
    }
  }

  private mutating func write(_ cause: Cause) {
    string(1, cause.name)
    if case .exec(let failure) = cause { message(2) { $0.write(failure) } }
  }

  private mutating func write(_ failure: SpawnFailure) {
    integer(1, Int64(failure.stage.rawValue))
    integer(2, Int64(failure.errno))
    string(3, failure.target)
    string(4, failure.sentence)
    flag(5, failure.ownTrouble)
    flag(6, failure.missing)
  }

  fileprivate mutating func write(_ result: HookResult) {
    switch result {
    case .succeeded: flag(1, true)
    case .cannotRepair: flag(2, true)
    case .failed(let status): message(3) { $0.write(status) }
    case .timedOut: flag(4, true)
    case .aborted: flag(5, true)
    case .notStarted(let failure): message(6) { $0.write(failure) }
    }
  }
}

extension Field {
  fileprivate func instant() throws(Malformed) -> Instant { Instant(nanoseconds: try integer()) }
  fileprivate func bootInstant() throws(Malformed) -> BootInstant { BootInstant(nanoseconds: try integer()) }
  fileprivate func wallTime() throws(Malformed) -> WallTime { WallTime(nanoseconds: try integer()) }
  fileprivate func duration() throws(Malformed) -> Duration {
    let value = try integer()
    guard value >= 0 else { throw Malformed() }
    return .nanoseconds(value)
  }
  /// One of an enumeration's words.
  fileprivate func word<Value: RawRepresentable<String>>() throws(Malformed) -> Value {
    try required(Value(rawValue: try string()))
  }

  fileprivate func run() throws(Malformed) -> RunID {
    var high: UInt64?
    var low: UInt64?
    var reader = reader
    while let field = try reader.next() {
      switch field.tag {
      case 1: high = try field.unsigned()
      case 2: low = try field.unsigned()
      default: break
      }
    }
    return RunID(high: try required(high), low: try required(low))
  }

  fileprivate func process() throws(Malformed) -> ProcessIdentity {
    var pid: Int32?
    var ticks: UInt64?
    var reader = reader
    while let field = try reader.next() {
      switch field.tag {
      case 1: pid = try field.int32()
      case 2: ticks = try field.unsigned()
      default: break
      }
    }
    // 0, 1 and negative numbers would mean more than one process, or not a service's.
    guard let pid, pid > 1 else { throw Malformed() }
    return ProcessIdentity(pid: pid, startTicks: try required(ticks))
  }

  fileprivate func signal() throws(Malformed) -> Signal { try required(Signal(number: try int32())) }
}

extension FieldReader {
  fileprivate mutating func record(endTag: UInt8) throws(Malformed) -> ServiceRecord {
    var record = ServiceRecord()
    var complete = false
    while let field = try next() {
      if complete { throw Malformed() }
      var inner = field.reader
      switch field.tag {
      case 1: record.wanted = try field.word()
      case 2: record.untilBoot = try field.flag()
      case 3: record.step = try field.word()
      case 4: record.strikes = try field.count()
      case 5: record.triesOnStep = try field.count()
      case 6: record.repairRounds = try field.count()
      case 7: record.lateDeaths.append(try field.instant())
      case 8: record.plugins.all.append(try inner.allPlugins())
      case 9: record.hold = try inner.hold()
      case 10: record.quarantine = try inner.quarantine()
      case 11: record.trialDelay = try field.duration()
      case 12:
        let (name, times) = try inner.repairRuns()
        record.repairRuns[name] = times
      case 13: record.restarts = try field.count()
      case 14: record.openRun = try field.run()
      case 15: record.lastEnd = try inner.end()
      case 16: record.situation = try inner.situation()
      case 17: record.hostLosses = try field.count()
      case 18: record.reason = try field.string()
      case 19: record.processHash = try field.unsigned()
      case 30: record.beforeStartFailures = try field.count()
      case 31: record.stoppedBy = try field.string()
      case 32: record.since = WallTime(nanoseconds: try field.integer())
      case 33: record.strikeSignature = try field.unsigned()
      case 34: record.strikeSignatureBefore = try field.unsigned()
      case 35:
        if record.files.count < RepairSpec.mostRestored { record.files.append(try inner.fileSight()) }
      case 36: record.plugins.all.append(try inner.plugin())
      case 37: record.plugins.incident = try inner.incident()
      case 38: record.plugins.search = try inner.search()
      case 39: try inner.pluginCounts(&record.plugins)
      case 40: record.standsIn = try field.flag()
      case 43: record.mitigation = try inner.mitigation()
      case 47:
        if record.orderedRepairs.count < 1_000 { record.orderedRepairs.append(try field.string()) }
      case endTag: complete = true
      default: break
      }
    }
    guard complete else { throw Malformed() }
    return record
  }

  private mutating func fileSight() throws(Malformed) -> FileSight {
    var sight = FileSight(path: "", look: 0)
    while let field = try next() {
      switch field.tag {
      case 1: sight.path = try field.string()
      case 2: sight.look = try field.unsigned()
      default: break
      }
    }
    return sight
  }

  /// Of an earlier guardian, to which all plugins were one: a record without a name.
  private mutating func allPlugins() throws(Malformed) -> PluginRecord {
    var plugins = PluginRecord(name: "")
    while let field = try next() {
      switch field.tag {
      case 1:
        plugins.until = try field.bootInstant()
        plugins.off = .ladder
      case 2: plugins.timeToLive = try field.duration()
      default: break
      }
    }
    return plugins
  }

  private mutating func plugin() throws(Malformed) -> PluginRecord {
    var name: String?
    var plugin = PluginRecord(name: "")
    while let field = try next() {
      switch field.tag {
      case 1: name = try field.string()
      case 2: plugin.off = try field.word() as PluginRecord.Switcher
      case 3: plugin.until = try field.bootInstant()
      case 4: plugin.timeToLive = try field.duration()
      case 5: plugin.offences = try field.count()
      case 6: plugin.healthySince = try field.bootInstant()
      case 7: plugin.probationUntil = try field.bootInstant()
      case 8: plugin.pinned = try field.flag()
      case 9: plugin.madeOf = try field.unsigned()
      case 10: plugin.partner = try field.string()
      case 11: plugin.signature = try field.unsigned()
      case 12: plugin.suspicion = try field.count()
      default: break
      }
    }
    plugin.name = try required(name)
    return plugin
  }

  private mutating func incident() throws(Malformed) -> PluginIncident {
    var incident = PluginIncident(last: .zero)
    while let field = try next() {
      switch field.tag {
      case 1: incident.failures = try field.count()
      case 2: incident.starts = try field.count()
      case 3: incident.last = try field.bootInstant()
      case 4: incident.largestAge = try field.duration()
      case 5: incident.signature = Signature(value: try field.unsigned(), strong: false)
      case 6: incident.signature = Signature(value: try field.unsigned(), strong: true)
      case 7: incident.sameness = try field.unsigned()
      case 8:
        var inner = field.reader
        if incident.hints.count < ToggleSet.capacity { incident.hints.append(try inner.pluginHint()) }
      default: break
      }
    }
    return incident
  }

  private mutating func pluginHint() throws(Malformed) -> PluginHint {
    var hint = PluginHint(plugin: "", score: 0)
    while let field = try next() {
      switch field.tag {
      case 1: hint.plugin = try field.string()
      case 2: hint.score = try field.count()
      default: break
      }
    }
    return hint
  }

  private mutating func search() throws(Malformed) -> PluginSearch {
    var search = PluginSearch(toggles: [], since: .zero)
    // What is not written is nothing.
    (search.failures, search.starts) = (0, 0)
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1: if search.toggles.count < ToggleSet.capacity { search.toggles.append(try field.string()) }
      case 2:
        if search.hints.count < ToggleSet.capacity { search.hints.append(Int(clamping: try field.unsigned())) }
      case 3: search.failures = try field.count()
      case 4: search.starts = try field.count()
      case 5: search.backgroundFailures = try field.count()
      case 6: search.backgroundStarts = try field.count()
      case 7: search.signature = Signature(value: try field.unsigned(), strong: false)
      case 8: search.signature = Signature(value: try field.unsigned(), strong: true)
      case 9: search.sameness = try field.unsigned()
      case 10: search.window = try field.duration()
      case 11: search.since = try field.bootInstant()
      case 12:
        let (probe, outcome) = try inner.probe()
        search.observations.append(.init(probe, try required(ProbeOutcome(rawValue: UInt8(clamping: outcome)))))
      case 13: search.probe = try inner.probe().0
      case 14: search.death = try inner.probeDeath()
      case 15: search.closing = try field.flag()
      case 16: search.spent = try field.duration()
      case 17: search.paused = try field.flag()
      default: break
      }
    }
    return search
  }

  private mutating func probe() throws(Malformed) -> (PluginProbe, UInt64) {
    var probe = PluginProbe(on: ToggleSet(), full: false)
    var number: UInt64 = 0
    while let field = try next() {
      switch field.tag {
      case 1: probe.on = ToggleSet(bits: try field.unsigned())
      case 2: probe.full = try field.flag()
      case 3: number = try field.unsigned()
      default: break
      }
    }
    return (probe, number)
  }

  private mutating func probeDeath() throws(Malformed) -> PluginSearch.Death {
    var probe = PluginProbe(on: ToggleSet(), full: false)
    var run: RunID?
    var sameness: UInt64 = 0
    while let field = try next() {
      switch field.tag {
      case 1: probe.on = ToggleSet(bits: try field.unsigned())
      case 2: probe.full = try field.flag()
      case 3: run = try field.run()
      case 4: sameness = try field.unsigned()
      default: break
      }
    }
    return PluginSearch.Death(probe: probe, run: try required(run), sameness: sameness)
  }

  private mutating func pluginCounts(_ plugins: inout PluginRecords) throws(Malformed) {
    while let field = try next() {
      switch field.tag {
      case 1: plugins.searched = try field.flag()
      case 2: plugins.searchWanted = try field.flag()
      case 3: plugins.healthy.starts = try field.count()
      case 4: plugins.healthy.failures = try field.count()
      default: break
      }
    }
  }

  private mutating func hold() throws(Malformed) -> Hold {
    var until: BootInstant?
    var by = ""
    while let field = try next() {
      switch field.tag {
      case 1: until = try field.bootInstant()
      case 2: by = try field.string()
      default: break
      }
    }
    return Hold(until: try required(until), by: by)
  }

  private mutating func quarantine() throws(Malformed) -> Quarantine {
    var since: WallTime?
    var reason = ""
    var nextTrial: BootInstant?
    while let field = try next() {
      switch field.tag {
      case 1: since = try field.wallTime()
      case 2: reason = try field.string()
      case 3: nextTrial = try field.bootInstant()
      default: break
      }
    }
    return Quarantine(since: try required(since), reason: reason, nextTrial: nextTrial)
  }

  private mutating func repairRuns() throws(Malformed) -> (String, [BootInstant]) {
    var name: String?
    var times: [BootInstant] = []
    while let field = try next() {
      switch field.tag {
      case 1: name = try field.string()
      case 2: times.append(try field.bootInstant())
      default: break
      }
    }
    return (try required(name), times)
  }

  private mutating func situation() throws(Malformed) -> Situation {
    var situation: Situation?
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1: situation = .stopped
      case 2: situation = .finished
      case 3: situation = try inner.waiting()
      case 4: situation = try inner.backingOff()
      case 5: situation = .living(try inner.liveRun())
      case 6: situation = try inner.stopping()
      case 7: situation = .repairing(try inner.liveRepair())
      case 8: situation = .quarantined
      default: break
      }
    }
    return try required(situation)
  }

  private mutating func waiting() throws(Malformed) -> Situation {
    var until: Instant?
    var delay: Duration?
    var kind: RunKind?
    while let field = try next() {
      switch field.tag {
      case 1: until = try field.instant()
      case 2: delay = try field.duration()
      case 3: kind = try field.word()
      default: break
      }
    }
    return .waiting(until: try required(until), delay: try required(delay), kind: try required(kind))
  }

  private mutating func backingOff() throws(Malformed) -> Situation {
    var until: Instant?
    var acts = false
    while let field = try next() {
      switch field.tag {
      case 1: until = try field.instant()
      case 2: acts = try field.flag()
      default: break
      }
    }
    return .backingOff(until: try required(until), acts: acts)
  }

  private mutating func stopping() throws(Malformed) -> Situation {
    var run: LiveRun?
    var stop: LiveStop?
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1: run = try inner.liveRun()
      case 2: stop = try inner.liveStop()
      default: break
      }
    }
    return .stopping(try required(run), try required(stop))
  }

  private mutating func mitigation() throws(Malformed) -> MitigationRecord {
    var record = MitigationRecord()
    while let field = try next() {
      switch field.tag {
      case 1: record.build = try field.unsigned()
      case 2: record.failures = try field.count()
      case 3:
        var inner = field.reader
        record.active = try inner.mitigationTally()
      case 4: if record.ineffective.count < Mitigation.allCases.count { record.ineffective.append(try field.word()) }
      default: break
      }
    }
    return record
  }

  private mutating func mitigationTally() throws(Malformed) -> MitigationTally {
    var mitigation: Mitigation?
    var tally = MitigationTally(.zeroedMemory, failedBefore: 0)
    while let field = try next() {
      switch field.tag {
      case 1: mitigation = try field.word()
      case 2: tally.kept = try field.flag()
      case 3: tally.starts = try field.count()
      case 4: tally.failures = try field.count()
      case 5: tally.ran = try field.duration()
      case 6: tally.signature = try field.unsigned()
      case 7: tally.failedBefore = try field.count()
      default: break
      }
    }
    tally.mitigation = try required(mitigation)
    return tally
  }

  private mutating func liveRun() throws(Malformed) -> LiveRun {
    var id: RunID?
    var kind: RunKind?
    var live = LiveRun(id: RunID(high: 0, low: 0), kind: .ordinary, pluginsOff: false)
    while let field = try next() {
      switch field.tag {
      case 1: id = try field.run()
      case 2: kind = try field.word()
      case 3: live.pluginsOff = try field.flag()
      case 4: live.process = try field.process()
      case 5: live.startedAt = try field.instant()
      case 6: live.readyBy = try field.instant()
      case 7: live.wasReady = try field.flag()
      case 8: live.settlesAt = try field.instant()
      case 9: live.settled = try field.flag()
      case 10: live.watchdog = try field.duration()
      case 11: live.clearsAt = try field.instant()
      case 12: live.deescalatesAt = try field.instant()
      case 13: live.byOperator = try field.flag()
      case 14: live.successor = try field.run()
      case 15: live.disabled.append(try field.string())
      case 16: live.readyAt = try field.instant()
      case 43: live.mitigation = try field.word()
      case 20: live.leader = try field.process()
      case 21:
        var inner = field.reader
        live.reload = try inner.liveReload()
      case 46: live.confirmed = try field.flag()
      case 22: live.reloadFailure = try field.string()
      case 40:
        switch try field.unsigned() {
        case 1: live.leaves = .stop
        case 2: live.leaves = .restart
        default: throw Malformed()
        }
      default: break
      }
    }
    live.id = try required(id)
    live.kind = try required(kind)
    return live
  }

  private mutating func liveReload() throws(Malformed) -> LiveReload {
    var since: Instant?, until: Instant?
    var reload = LiveReload(ordered: false, since: .zero, until: .zero)
    while let field = try next() {
      switch field.tag {
      case 1: reload.ordered = try field.flag()
      case 2: since = try field.instant()
      case 3: until = try field.instant()
      case 4: reload.hook = try field.run()
      case 5: reload.process = try field.process()
      case 6: reload.failure = try field.string()
      case 7: reload.announced = try field.flag()
      case 8: reload.answered = try field.flag()
      case 9: reload.quietUntil = try field.instant()
      case 10: reload.again = try field.flag()
      default: break
      }
    }
    reload.since = try required(since)
    reload.until = try required(until)
    return reload
  }

  private mutating func liveStop() throws(Malformed) -> LiveStop {
    var purpose: LiveStop.Purpose?
    var killAt: Instant?
    var stop = LiveStop(purpose: .order, killAt: .zero, killed: false, death: nil, thenStart: false)
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1:
        switch try field.unsigned() {
        case 1: purpose = .order
        case 2: purpose = .restart
        case 3: purpose = .death
        case 4: purpose = .leaving
        case 5: purpose = .plugins
        default: throw Malformed()
        }
      case 2: purpose = .fault(try field.string())
      case 3: killAt = try field.instant()
      case 4: stop.killed = try field.flag()
      case 5: stop.death = try inner.death()
      case 6: stop.thenStart = try field.flag()
      case 7: stop.step = try field.count()
      case 40: stop.excused = try field.flag()
      case 8: stop.detail = try field.string()
      default: break
      }
    }
    stop.purpose = try required(purpose)
    stop.killAt = try required(killAt)
    return stop
  }

  private mutating func death() throws(Malformed) -> Death {
    var status: ExitStatus?
    var death = Death(.unseen)
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1: status = try inner.status()
      case 2:
        switch try field.unsigned() {
        case 0: death.oom = .none
        case 1: death.oom = .perhaps
        case 2: death.oom = .certain
        default: throw Malformed()
        }
      case 3: death.traced = try field.flag()
      case 4: death.leftovers = try field.count()
      default: break
      }
    }
    death.status = try required(status)
    return death
  }

  private mutating func liveRepair() throws(Malformed) -> LiveRepair {
    var repair = LiveRepair(attempt: 0, queue: [], hook: nil, byOperator: false)
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1: repair.attempt = try field.count()
      case 2: repair.queue.append(try field.string())
      case 3: repair.hook = try inner.liveHook()
      case 4: repair.byOperator = try field.flag()
      case 5: repair.beforeStart = try field.word()
      default: break
      }
    }
    return repair
  }

  private mutating func liveHook() throws(Malformed) -> LiveHook {
    var id: RunID?
    var name: String?
    var process: ProcessIdentity?
    var until: Instant?
    while let field = try next() {
      switch field.tag {
      case 1: id = try field.run()
      case 2: name = try field.string()
      case 3: process = try field.process()
      case 4: until = try field.instant()
      default: break
      }
    }
    return LiveHook(id: try required(id), name: try required(name), process: process, until: try required(until))
  }

  fileprivate mutating func end() throws(Malformed) -> End {
    var run: RunID?
    var status: ExitStatus?
    var cause: Cause?
    var crashClass: CrashClass?
    var at: WallTime?
    var uptime: Duration?
    var leftovers = 0
    var detail = ""
    var signature: Signature?
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1: run = try field.run()
      case 2: status = try inner.status()
      case 3: cause = try inner.cause()
      case 4: crashClass = try field.word()
      case 5: at = try field.wallTime()
      case 6: uptime = try field.duration()
      case 7: leftovers = try field.count()
      case 8: detail = try field.string()
      case 9: signature = Signature(value: try field.unsigned(), strong: false)
      case 10: signature = Signature(value: try field.unsigned(), strong: true)
      default: break
      }
    }
    var end = End(
      run: try required(run), status: try required(status), cause: try required(cause),
      crashClass: try required(crashClass), at: try required(at), uptime: try required(uptime), leftovers: leftovers,
      detail: detail)
    end.signature = signature
    return end
  }

  private mutating func status() throws(Malformed) -> ExitStatus {
    var status: ExitStatus?
    while let field = try next() {
      switch field.tag {
      case 1: status = .code(try field.int32())
      case 2: status = .signal(try field.signal(), core: false)
      case 3: status = .signal(try field.signal(), core: true)
      case 4: status = .unseen
      default: break
      }
    }
    return try required(status)
  }

  private mutating func cause() throws(Malformed) -> Cause {
    var name: String?
    var failure: SpawnFailure?
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1: name = try field.string()
      case 2: failure = try inner.spawnFailure()
      default: break
      }
    }
    switch name {
    case "exit": return .exit
    case "signal": return .signal
    case "oom": return .oom(certain: true)
    case "oom?": return .oom(certain: false)
    case "watchdog": return .watchdog
    case "start-timeout": return .startTimeout
    case "check": return .check
    case "exec": return .exec(try required(failure))
    case "killed": return .killed
    case "unknown": return .unknown
    case "host": return .host
    default: throw Malformed()
    }
  }

  private mutating func spawnFailure() throws(Malformed) -> SpawnFailure {
    var stage: SpawnFailure.Stage?
    var failure = SpawnFailure(stage: .exec, errno: 0, target: "", sentence: "")
    while let field = try next() {
      switch field.tag {
      case 1: stage = SpawnFailure.Stage(rawValue: try field.int32())
      case 2: failure.errno = try field.int32()
      case 3: failure.target = try field.string()
      case 4: failure.sentence = try field.string()
      case 5: failure.ownTrouble = try field.flag()
      case 6: failure.missing = try field.flag()
      default: break
      }
    }
    failure.stage = try required(stage)
    return failure
  }

  fileprivate mutating func hookResult() throws(Malformed) -> HookResult {
    var result: HookResult?
    while let field = try next() {
      var inner = field.reader
      switch field.tag {
      case 1: result = .succeeded
      case 2: result = .cannotRepair
      case 3: result = .failed(try inner.status())
      case 4: result = .timedOut
      case 5: result = .aborted
      case 6: result = .notStarted(try inner.spawnFailure())
      default: break
      }
    }
    return try required(result)
  }
}
