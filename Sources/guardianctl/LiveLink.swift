import GuardianControl
import GuardianModel
import Glibc

/// What is known of the services, kept up to date by what guardian tells: one connection follows the events, another looks
/// at whatever they are about. Nothing here waits; `poll` does.
///
/// Where guardian is away it is tried again, for ever.
struct LiveLink {
  enum News {
    case linked
    case lost(Daemon.Fault)
    /// It answers, and refuses; it is tried again all the same.
    case refused(ControlError)
    case summary(DaemonSummary)
    /// Of those asked for the ones that are there; `whole`: all were asked for.
    case looked([ServiceStatus], missing: [String], whole: Bool)
  }

  private let target: Invocation.Target
  private var follower: Daemon?, asker: Daemon?
  private var isFollowing = false
  /// Sent by the asker and not yet answered, in their order.
  private var asked: [ControlRequest] = []
  private var found = Listed()
  private var due: Set<String> = [], allDue = false
  private var askedAt: Int64 = 0, triedAt: Int64 = .min / 2
  private let patience: Int64

  /// Between two looks, so that a storm of events is looked at some times a second.
  private static let pace: Int64 = 200
  private static let retry: Int64 = 500, refusedRetry: Int64 = 5_000
  private static let namesAtOnce = 200

  init(_ target: Invocation.Target, patience: Int32) {
    self.target = target
    self.patience = Int64(patience) * 1000
  }

  private let events = ControlRequest.events(EventsRequest(follow: true))

  /// To be polled for reading.
  var sockets: [CInt] { [follower, asker].compactMap { $0?.socket } }

  /// - Returns: Milliseconds until `step` has something to do though nothing has come; nil: never.
  func wakes(_ now: Int64) -> Int64? {
    if follower == nil { return max(0, triedAt + Self.retry - now) }
    if !asked.isEmpty { return max(0, askedAt + patience - now) }
    return isFollowing && (allDue || !due.isEmpty) ? max(0, askedAt + Self.pace - now) : nil
  }

  /// - Parameter readable: Sockets that have something.
  mutating func step(_ now: Int64, readable: [CInt]) -> [News] {
    var news: [News] = []
    do throws(Daemon.Fault) {
      if follower == nil {
        guard now >= triedAt + Self.retry else { return [] }
        triedAt = now
        try connect()
      }
      if let follower, readable.contains(follower.socket) {
        try follower.receive(patience: nil)
        if let error = try follow(follower, &news) { return news + [refused(error)] }
      }
      if let asker, readable.contains(asker.socket) {
        try asker.receive(patience: nil)
        if let error = try hear(asker, &news) { return news + [refused(error)] }
      }
      if let asker, isFollowing, asked.isEmpty, allDue || !due.isEmpty, now >= askedAt + Self.pace {
        if due.count > Self.namesAtOnce { allDue = true }
        let list = ControlRequest.list(names: allDue ? nil : due.sorted(), brief: false)
        asked = [list, .summary]
        askedAt = now
        (due, allDue) = ([], false)
        found = Listed()
        try asker.send([ControlCall(list, more: true), ControlCall(.summary)])
      }
      if !asked.isEmpty, now >= askedAt + patience {
        throw .unreachable("guardian has not answered for \(patience / 1000) s")
      }
    } catch {
      reset()
      news.append(.lost(error))
    }
    return news
  }

  private mutating func connect() throws(Daemon.Fault) {
    let first = try Daemon.connect(to: target), second = try Daemon.connect(to: target)
    try first.send([ControlCall(events, more: true)])
    (follower, asker) = (first, second)
  }

  private mutating func reset() {
    (follower, asker, isFollowing, asked) = (nil, nil, false, [])
    (due, allDue) = ([], false)
  }

  private mutating func refused(_ error: ControlError) -> News {
    reset()
    // It is there, and will not be of another mind at once.
    triedAt += Self.refusedRetry - Self.retry
    return .refused(error)
  }

  private mutating func follow(_ follower: Daemon, _ news: inout [News]) throws(Daemon.Fault) -> ControlError? {
    while let reply = try follower.received(events) {
      if case .error(let error) = reply.body { return error }
      if !isFollowing {
        // The past; from here on nothing is lost, and so now is the time for the first look.
        isFollowing = true
        allDue = true
        news.append(.linked)
      }
      switch reply.body {
      case .events(let events, let missed):
        if missed > 0 { allDue = true }
        for event in events { due.insert(event.service) }
      case .error, .services, .done, .reloaded, .upgraded, .plan, .drill, .crashes, .crash, .summary, .version: break
      }
      if !reply.continues { throw .unreachable("guardian has ended the stream of events") }
    }
    return nil
  }

  private mutating func hear(_ asker: Daemon, _ news: inout [News]) throws(Daemon.Fault) -> ControlError? {
    while let request = asked.first, let reply = try asker.received(request) {
      switch reply.body {
      case .services(let services, let missing):
        found.services += services
        found.missing += missing
      case .summary(let summary): news.append(.summary(summary))
      case .error(let error): return error
      case .done, .reloaded, .upgraded, .plan, .drill, .crashes, .crash, .events, .version: break
      }
      if reply.continues { continue }
      if case .list(let names, _) = request {
        news.append(.looked(found.services, missing: found.missing, whole: names == nil))
        found = Listed()
      }
      asked.removeFirst()
    }
    return nil
  }
}
