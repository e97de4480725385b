/// What is remembered of one plugin of one service. What is on and has never been anything else has no record.
package struct PluginRecord: Hashable, Sendable {
  package enum Switcher: String, Hashable, Sendable, CaseIterable {
    /// With all others, by step safe-mode.
    case ladder
    /// As the guilty one, or one of them.
    case search
    case `operator`
  }
  package var name: String
  /// Who has switched it off; nil: it is on.
  package var off: Switcher?
  /// It is due to be tried again then; nil: never by itself.
  package var until: BootInstant?
  /// How long it is off in the whole, jitter left out; nil: it has not been off by guardian's doing.
  package var timeToLive: Duration?
  /// How often it was to blame; halves with every seven healthy days.
  package var offences = 0
  /// On again since then, or the last halving.
  package var healthySince: BootInstant?
  /// On again, and on probation until then.
  package var probationUntil: BootInstant?
  /// Guardian never switches it.
  package var pinned = false
  /// What its files looked like when it was switched off; 0: not known.
  package var madeOf: UInt64 = 0
  /// Only together with this one it does harm.
  package var partner: String?
  /// Of the deaths it was switched off for; nil: not known.
  package var signature: UInt64?
  /// How likely it is to be to blame, in thousandths, as the last search saw it.
  package var suspicion = 0

  package init(name: String) { self.name = name }

  /// By guardian's doing: tried again when it is due, and the service is degraded meanwhile.
  package var offByGuardian: Bool { off == .ladder || off == .search }
  /// There is nothing to be remembered.
  package var isPlain: Bool {
    off == nil && offences == 0 && probationUntil == nil && !pinned && partner == nil
  }
}

/// What is remembered of the plugins of a service. Boxed, since most services have nothing of the kind.
package struct PluginRecords: Hashable, Sendable {
  private struct Content: Hashable, Sendable {
    var records: [PluginRecord] = []
    var incident: PluginIncident?
    var search: PluginSearch?
    var searched = false, searchWanted = false
    var healthyStarts = 0, healthyFailures = 0
  }
  private var box: Shared<Content>?

  package init() {}

  private var content: Content {
    get { box?.value ?? Content() }
    set { box = newValue == Content() ? nil : Shared(newValue) }
  }

  /// In the order in which they came about; setting leaves out what is plain.
  package var all: [PluginRecord] {
    get { box?.value.records ?? [] }
    set { content.records = newValue.filter { !$0.isPlain } }
  }

  /// Nil: plain.
  package subscript(name: String) -> PluginRecord? { box?.value.records.first { $0.name == name } }

  /// Changes, or makes, one record; a plain one is forgotten.
  package mutating func change(_ name: String, _ change: (inout PluginRecord) -> Void) {
    var records = content.records
    var record = PluginRecord(name: name)
    let place = records.firstIndex { $0.name == name }
    if let place { record = records[place] }
    change(&record)
    if let place { records[place] = record } else { records.append(record) }
    all = records
  }

  package var incident: PluginIncident? {
    get { box?.value.incident }
    set { if newValue != incident { content.incident = newValue } }
  }
  /// Nil: none is under way.
  package var search: PluginSearch? {
    get { box?.value.search }
    set { if newValue != search { content.search = newValue } }
  }
  /// There has been one, and it found nothing, or one has been suggested: there is no other before the ladder is fresh.
  package var searched: Bool {
    get { box?.value.searched ?? false }
    set { if newValue != searched { content.searched = newValue } }
  }
  /// An operator wants one as soon as it can begin.
  package var searchWanted: Bool {
    get { box?.value.searchWanted ?? false }
    set { if newValue != searchWanted { content.searchWanted = newValue } }
  }
  /// Starts with everything on that settled, and those that died though nothing came of it; both at most a thousand.
  package var healthy: (starts: Int, failures: Int) {
    get { (box?.value.healthyStarts ?? 0, box?.value.healthyFailures ?? 0) }
    set {
      guard newValue != healthy else { return }
      var changed = content
      changed.healthyStarts = min(newValue.starts, 1_000)
      changed.healthyFailures = min(newValue.failures, 1_000)
      content = changed
    }
  }

  /// Something is off by guardian's doing.
  package var off: Bool { box?.value.records.contains(where: \.offByGuardian) ?? false }
  package var isEmpty: Bool { box == nil }

  /// What guardian has switched off is on again, and nothing is held against it; what an operator wants stays.
  package mutating func forgive() {
    guard box != nil else { return }
    endSearch()
    searched = false
    incident = nil
    all = all.map { record in
      var plain = PluginRecord(name: record.name)
      plain.pinned = record.pinned
      if record.off == .operator { plain.off = .operator }
      return plain
    }
  }

  /// Something it is made of is another now: what step safe-mode has switched off is on again, with nothing held against
  /// it, and what a search has found is tried at the next start.
  package mutating func giveAnotherChance() {
    guard box != nil else { return }
    endSearch()
    searched = false
    all = all.map { record in
      var record = record
      switch record.off {
      case .ladder:
        var plain = PluginRecord(name: record.name)
        plain.pinned = record.pinned
        return plain
      case .search: record.until = .zero
      case .operator, nil: break
      }
      return record
    }
  }

  package mutating func endSearch() {
    search = nil
    searchWanted = false
  }

  /// With every instant moved.
  package func moved(by move: (BootInstant) -> BootInstant) -> PluginRecords {
    guard box != nil else { return self }
    var records = self
    records.all = all.map { record in
      var record = record
      record.until = record.until.map(move)
      record.healthySince = record.healthySince.map(move)
      record.probationUntil = record.probationUntil.map(move)
      return record
    }
    if let incident { records.incident?.last = move(incident.last) }
    if let search { records.search?.since = move(search.since) }
    return records
  }
}
