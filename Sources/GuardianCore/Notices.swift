package import GuardianModel

/// What the notices of one service have told lately, so that nobody is told the same again and again: by mail at night a
/// crash loop is one message, and not a thousand.
///
/// In memory only: after a restart of guardian one notice more may be told.
package struct NoticeLog: Hashable, Sendable {
  /// The same kind for the same reason is told once in so long.
  package static let quiet = Duration.minute * 5
  /// Of one service within `quiet`. A quarantine is told all the same.
  package static let perService = 10
  /// Reasons that are remembered.
  static let remembered = 16

  private struct Told: Hashable {
    var kind: NoticeKind
    var about: UInt64
    var at: BootInstant
    /// Of its like, since then.
    var leftOut = 0
  }
  private var told: [Told] = []
  private var times: [BootInstant] = []
  /// For want of room, or of those whose like is not remembered any more.
  private var leftOut = 0

  package init() {}

  /// - Parameters:
  ///   - about: What makes it the same as another of its kind.
  ///   - hasRoom: The host's own limit allows one more.
  /// - Returns: How many were left out that this one speaks for; nil: this one is left out itself, and counted.
  package mutating func admit(_ kind: NoticeKind, about: UInt64, now: BootInstant, hasRoom: Bool = true) -> Int? {
    times.removeAll { now - $0 >= Self.quiet }
    let place = told.firstIndex { $0.kind == kind && $0.about == about }
    if let place, now - told[place].at < Self.quiet {
      told[place].leftOut += 1
      return nil
    }
    guard hasRoom, kind.isUrgent || times.count < Self.perService else {
      leftOut += 1
      return nil
    }
    var count = leftOut
    leftOut = 0
    if let place { count += told.remove(at: place).leftOut }
    // Whoever has been told of new trouble wants to hear of the next recovery.
    if kind != .onRecovery { forget { $0.kind == .onRecovery } }
    told.append(Told(kind: kind, about: about, at: now))
    if let oldest = told.first, told.count > Self.remembered { forget { $0 == oldest } }
    times.append(now)
    return count
  }

  private mutating func forget(_ which: (Told) -> Bool) {
    for one in told where which(one) { leftOut += one.leftOut }
    told.removeAll(where: which)
  }
}

/// How many notices all services together may tell: a power cut of the database is no reason for a thousand mails.
package struct NoticeBudget: Hashable, Sendable {
  /// Within `NoticeLog.quiet`.
  package static let usual = 60
  /// With quarantines and common causes, which matter more.
  package static let urgent = 240

  private var times: [BootInstant] = []
  package init() {}

  package mutating func left(now: BootInstant) -> (usual: Int, urgent: Int) {
    if let first = times.first, now - first >= NoticeLog.quiet { times.removeAll { now - $0 >= NoticeLog.quiet } }
    return (max(0, Self.usual - times.count), max(0, Self.urgent - times.count))
  }
  package mutating func spend(_ count: Int, now: BootInstant) {
    if count > 0 { times.append(contentsOf: repeatElement(now, count: count)) }
  }
}

extension NoticeKind {
  var isUrgent: Bool {
    switch self {
    case .onQuarantine, .onCommonCause: true
    case .onCrash, .onEscalation, .onRecovery: false
    }
  }
}

extension End {
  /// The same for two ends that nobody wants to be told twice of. The signature is not known yet when that is decided.
  var sameness: UInt64 {
    var print = Fingerprint()
    print.add(cause.name)
    print.add(crashClass.rawValue)
    switch status {
    case .code(let code): print.add(Int64(code))
    case .signal(let signal, _): print.add(signal.description)
    case .unseen: break
    }
    return print.value
  }
}
