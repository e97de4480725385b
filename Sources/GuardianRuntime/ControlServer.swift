import Glibc
import GuardianControl
import GuardianCore
import GuardianLinux
import GuardianModel
import GuardianStore

/// The control socket: Varlink requests in, replies and streams out. Whatever a client does, it does to its own
/// connection only.
final class ControlServer {
  private final class Client {
    let socket: ClientSocket
    var connection = ControlConnection()
    var output: [UInt8] = []
    /// Bytes of `output` that have been sent.
    var sent = 0
    var answering = Answering.nothing
    var closing = false
    var patience = Patience()
    /// One who may do nothing here leaves then, whatever he does.
    var strangerUntil: Instant?
    /// When it is closed if it has not gone on by then.
    var deadline: Instant? { strangerUntil ?? patience.deadline }
    /// A request has been taken, and so much has been sent, since it was looked at last.
    var asked = false, read = 0
    var lastSeen: Instant
    var source: EventSource?
    var waits: IOEvents = .read
    var rights = Rights()
    /// The generation of the access table that they are of.
    var rightsAsOf = -1
    init(_ socket: ClientSocket, now: Instant) {
      self.socket = socket
      lastSeen = now
    }
    var unsent: Int { output.count - sent }
    // Before the socket is closed.
    deinit { source?.cancel() }
  }

  private enum Answering {
    case nothing
    /// Begins when the name of the client's user is known, or at this time without it.
    case naming(ControlCall, until: Instant)
    case order(RequestID, name: String, oneway: Bool)
    case list([ServiceName], next: Int, missing: [String], brief: Bool)
    /// The services follow what is told of guardian itself.
    case metrics([ServiceName], next: Int)
    case reload(oneway: Bool)
    case upgrade(oneway: Bool)
    /// The store is being asked.
    case history(oneway: Bool)
    case events(EventReader)
    case drill(ServiceName)
    var isNothing: Bool { if case .nothing = self { true } else { false } }
  }

  private unowned let shell: Shell
  private let path: String
  private var listener: ControlListener
  private var listenerSource: EventSource?
  private var clients: [Int: Client] = [:]
  private var waiting: [RequestID: Int] = [:]
  private var ownOrders: [RequestID: (Fleet.Answer) -> Void] = [:]
  private var nextClient = 0
  private var nextRequest: UInt64 = 0
  private var stream = EventStream()
  /// Clients that are told of events to come.
  private var followers: Set<Int> = []
  private var timer: EventSource?
  private var directorySource: EventSource?
  private var missing = false
  private var access: AccessTable
  /// What the user database has said; nil: it has no name for that number.
  private var userNames: [UInt32: String?] = [:]

  /// An operator has one, a fleet tool some; the rest is a mistake or an attack, and the idlest goes first.
  private static let most = 256
  /// These wait for what may never come, and so are counted apart; each costs its descriptor and little else.
  private static let mostFollowers = 1024
  /// A list goes on when less than this is unsent, so a client that does not read costs this and one chunk.
  private static let outputBound = 65_536
  /// For those who may do nothing here.
  private static let strangerPatience = Duration.seconds(5)
  /// Connections of one user who is neither root nor guardian's own, beside those that follow; and of a stranger.
  private static let mostOfUser = 32, mostOfStranger = 4
  private static let mostFollowersOfUser = 256
  /// For the user database: an order does not wait longer for a name.
  private static let namePatience = Duration.milliseconds(500)
  private static let readAtOnce = 16_384

  /// - Parameter takeOver: The listening socket and the clients of the program before this one.
  init(_ shell: Shell, path: String, takeOver: TakeOver? = nil) throws(SystemError) {
    self.shell = shell
    self.path = path
    access = AccessTable(own: shell.ownIdentity.uid)
    if let held = takeOver?.listener, held.path == path {
      listener = try ControlListener(adopting: held.descriptor, path: path)
    } else {
      listener = try ControlListener(path: path)
    }
    nextRequest = takeOver?.lastRequest ?? 0
    timer = try shell.loop.timer(.monotonic, priority: .time) { [unowned self] in timeIsUp() }
    listenerSource = try listener.onClient(shell.loop) { [unowned self] in accept() }
    directorySource = try? shell.loop.onDirectoryChange(
      shell.directories.runtime, priority: .control
    ) { [unowned self] name in if name == "control.sock" || name.isEmpty { showLife() } }
  }

  /// Makes the socket again where somebody has removed or replaced it: the directory is locked, so there is no other owner.
  func showLife() {
    guard !listener.isInPlace else { return }
    do throws(SystemError) {
      let new = try ControlListener(path: path)
      let source = try new.onClient(shell.loop) { [unowned self] in accept() }
      listenerSource?.cancel()
      listenerSource = source
      listener = new
      missing = false
      shell.log.note(.warning, "\(path) was gone and has been made again")
    } catch {
      if !missing { shell.log.note(.error, error.description) }
      missing = true
    }
  }

  // MARK: From one program to the next

  /// All connections, with what has been read and not answered, and what has been answered and not sent.
  func handOver(into snapshot: inout TakeOver) {
    snapshot.listener = TakeOver.Held(path: path, descriptor: listener.descriptor)
    snapshot.lastRequest = nextRequest
    snapshot.lastEvent = shell.lastEvent
    for (_, client) in clients.sorted(by: { $0.key < $1.key }) {
      var carried = TakeOver.Client(descriptor: client.socket.descriptor)
      carried.input = client.connection.unread ?? []
      carried.output = Array(client.output[client.sent...])
      carried.closing = client.closing || client.connection.unread == nil
      switch client.answering {
      case .nothing: break
      case .order(let request, let name, let oneway):
        carried.waits = .order(request: request.number, name: name, oneway: oneway)
      case .list(let names, let next, let missing, let brief):
        carried.waits = .list(names: names.map(\.text), next: next, missing: missing, brief: brief)
      // A question to the store is asked anew, by whoever is told so.
      case .reload(let oneway), .history(let oneway): carried.waits = .reload(oneway: oneway)
      case .naming(let call, _): carried.waits = .reload(oneway: call.oneway)
      case .drill, .metrics: carried.waits = .reload(oneway: false)
      case .upgrade(let oneway): carried.waits = .upgrade(oneway: oneway)
      case .events(let reader):
        if reader.follows, case .live = reader.stage {
          carried.waits = .events(names: reader.services.map(\.text), after: reader.query.after)
        } else {
          carried.waits = .reload(oneway: false)
        }
      }
      snapshot.clients.append(carried)
    }
  }

  /// Goes on with the connections of the program before this one, once their orders wait again.
  func take(_ carried: [TakeOver.Client]) {
    let now = SystemClocks.monotonic()
    for one in carried {
      guard let socket = ClientSocket(adopting: one.descriptor) else { continue }
      nextClient += 1
      let key = nextClient
      let client = Client(socket, now: now)
      one.input.withUnsafeBytes { client.connection.receive($0) }
      client.output = one.output
      client.closing = one.closing
      switch one.waits {
      case .nothing: break
      case .order(let number, let name, let oneway):
        client.answering = .order(RequestID(number), name: name, oneway: oneway)
        waiting[RequestID(number)] = key
      case .list(let names, let next, let missing, let brief):
        client.answering = .list(names.compactMap { ServiceName($0) }, next: next, missing: missing, brief: brief)
      case .reload(let oneway): client.answering = .reload(oneway: oneway)
      case .upgrade(let oneway): client.answering = .upgrade(oneway: oneway)
      case .events(let names, let after):
        // What came about on the way from one program to the next is in the history.
        let reader = EventReader(names.compactMap { ServiceName($0) }, follows: true, more: true, isOpen: true)
        reader.query.after = after
        // The grants have been read by now.
        _ = reader.go(by: rights(of: client))
        client.answering = .events(reader)
        followers.insert(key)
      }
      guard
        let source = try? shell.loop.onIO(
          socket.descriptor, .read, priority: .control, { [unowned self] events in serve(key, events) })
      else { continue }
      client.source = source
      clients[key] = client
    }
  }

  /// The first turn is over: those who asked for the exchange are told, and everybody is served again.
  func tookOver(_ snapshot: TakeOver) {
    for (key, client) in clients.sorted(by: { $0.key < $1.key }) {
      switch client.answering {
      case .upgrade:
        if let back = shell.upgrade.cameBack {
          upgradeFailed("the new program failed: \(back); the old one goes on")
        } else {
          finish(client) {
            Reply.upgraded(
              Upgraded(
                from: snapshot.version, to: guardianVersion, pid: getpid(), services: snapshot.services.count),
              into: &$0)
          }
        }
      case .reload, .history:
        finish(client) { Reply.error(.failed(reason: "guardian itself was exchanged meanwhile; ask again"), into: &$0) }
      case .nothing, .naming, .order, .list, .metrics, .events, .drill: break
      }
      if clients[key] === client { go(on: key, client) }
    }
  }

  /// It was not to be; everybody who asked for it is told.
  func upgradeFailed(_ reason: String) {
    for (key, client) in clients {
      guard case .upgrade = client.answering else { continue }
      finish(client) { Reply.error(.failed(reason: reason), into: &$0) }
      go(on: key, client)
    }
  }

  private func finish(_ client: Client, _ reply: (inout [UInt8]) -> Void) {
    var oneway = false
    switch client.answering {
    case .upgrade(let silent), .reload(let silent), .history(let silent): oneway = silent
    case .nothing, .naming, .order, .list, .metrics, .events, .drill: break
    }
    client.answering = .nothing
    if !oneway { reply(&client.output) }
  }

  // MARK: Clients

  private func accept() {
    // A few at a time; the loop comes back.
    for _ in 0..<16 {
      switch listener.accept() {
      case .nobody, .refused: return
      case .client(let socket): add(socket)
      }
    }
  }

  private func add(_ socket: ClientSocket) {
    let now = SystemClocks.monotonic()
    if clients.count - followers.count >= Self.most, let idlest = idlest() { close(idlest) }
    guard clients.count - followers.count < Self.most else {
      _ = socket.write(Reply.error(.busy(reason: "\(clients.count) connections are open already"))[...])
      return
    }
    let client = Client(socket, now: now)
    let isStranger = rights(of: client).most == .nobody
    if !isTrusted(socket.peer.uid) {
      let most = isStranger ? Self.mostOfStranger : Self.mostOfUser
      let own = clients.filter { $0.value.socket.peer.uid == socket.peer.uid && !followers.contains($0.key) }
      if own.count >= most {
        // His own others make room, if one of them is idle.
        guard !isStranger, let idlest = idlest(among: own) else {
          _ = socket.write(
            Reply.error(.busy(reason: "uid \(socket.peer.uid) has \(own.count) connections already"))[...])
          return
        }
        close(idlest)
      }
    }
    nextClient += 1
    let key = nextClient
    if isStranger { client.strangerUntil = now + Self.strangerPatience }
    guard
      let source = try? shell.loop.onIO(
        socket.descriptor, .read, priority: .control, { [unowned self] events in serve(key, events) })
    else { return }
    client.source = source
    clients[key] = client
    armTimer()
  }

  /// Strangers before friends; one that is being answered stays.
  private func idlest(among some: [Int: Client]? = nil) -> Int? {
    (some ?? clients).filter { $0.value.answering.isNothing }.min { a, b in
      let (x, y) = (isStranger(a.value) ? 0 : 1, isStranger(b.value) ? 0 : 1)
      return x != y ? x < y : a.value.lastSeen < b.value.lastSeen
    }?.key
  }

  private func isTrusted(_ uid: UInt32) -> Bool { uid == 0 || uid == shell.ownIdentity.uid }
  private func isStranger(_ client: Client) -> Bool { rights(of: client).most == .nobody }

  private func close(_ key: Int) {
    guard let client = clients.removeValue(forKey: key) else { return }
    followers.remove(key)
    if case .order(let request, _, _) = client.answering {
      waiting[request] = nil
      shell.abandon(request)
    }
    if case .drill(let name) = client.answering { shell.drills.abandon(name) }
  }

  private func serve(_ key: Int, _ events: IOEvents) {
    guard let client = clients[key] else { return }
    if !events.isDisjoint(with: [.hangUp, .error]), events.isDisjoint(with: [.read, .write]) {
      // Whoever gives an order and leaves has given it: only the name is waited for.
      if case .naming = client.answering { return client.source?.pause() ?? () }
      return close(key)
    }
    if !events.isDisjoint(with: [.read, .hangUp]) {
      switch client.socket.read(atMost: Self.readAtOnce) {
      case .bytes(let bytes):
        client.lastSeen = SystemClocks.monotonic()
        bytes.withUnsafeBytes { client.connection.receive($0) }
      case .nothing: break
      case .ended:
        // Half-closed clients may still want their answer, unless it can only come after an order's outcome.
        client.closing = true
        if client.answering.isNothing, client.unsent == 0, !client.connection.hasBytes { return close(key) }
      }
    }
    go(on: key, client)
  }

  /// Answers what has been asked, sends what can be sent, and decides what to wait for.
  private func go(on key: Int, _ client: Client) {
    let isCutShort = fill(key, client)
    guard send(client) else { return close(key) }
    if client.closing, client.unsent == 0, client.answering.isNothing { return close(key) }
    var waits: IOEvents = []
    // All of a long answer may have gone out at once: nothing else would wake this up for the request behind it.
    if client.unsent > 0 || isListing(client) || isCutShort { waits.insert(.write) }
    if client.connection.mayRead, !client.closing, client.unsent < Self.outputBound { waits.insert(.read) }
    if waits != client.waits {
      client.waits = waits
      client.source?.wait(for: waits)
    }
    let owes = client.unsent > 0 || (client.answering.isNothing && client.connection.hasBytes)
    let before = client.deadline
    client.patience.note(owes: owes, asked: client.asked, read: client.read, now: SystemClocks.monotonic())
    client.asked = false
    client.read = 0
    // Looking through all clients is not for each of a thousand that are told the same.
    if client.deadline != before { armTimer() }
  }

  private func isListing(_ client: Client) -> Bool {
    switch client.answering {
    case .list, .metrics: true
    case .nothing, .naming, .order, .reload, .upgrade, .history, .events, .drill: false
    }
  }

  /// - Returns: False if the connection is broken.
  private func send(_ client: Client) -> Bool {
    while client.unsent > 0 {
      guard let count = client.socket.write(client.output[client.sent...]) else { return false }
      if count == 0 { break }
      client.sent += count
      client.read += count
    }
    if client.unsent == 0 {
      client.output.removeAll(keepingCapacity: client.output.capacity <= Self.outputBound)
      client.sent = 0
    }
    return true
  }

  /// - Returns: Whether there may be requests that could be answered as soon as there is room and time.
  private func fill(_ key: Int, _ client: Client) -> Bool {
    // One chunk of a list, or a handful of requests, each time: others want to be served too.
    for _ in 0..<8 {
      guard client.unsent < Self.outputBound else { return true }
      switch client.answering {
      case .order, .reload, .upgrade, .history, .drill, .naming: return false
      case .list:
        nextChunk(client)
        return true
      case .metrics:
        nextMetrics(client)
        return true
      case .events(let reader):
        switch reader.stage {
        case .asking: return false
        case .due:
          nextPage(reader, key)
          return false
        case .live:
          stream.read(reader, into: &client.output, until: client.sent + Self.outputBound)
          return reader.position < stream.end
        }
      case .nothing: break
      }
      switch client.connection.next() {
      case nil: return false
      case .reply(let bytes)?:
        client.asked = true
        // Each call of a stranger gets this answer, until his patience, not ours, is over.
        if !bytes.isEmpty, let error = refusal(of: .anything, client) {
          Reply.error(error, into: &client.output)
        } else {
          client.output += bytes
        }
      case .close(let bytes)?:
        client.output += bytes
        client.closing = true
        return false
      case .call(let call)?:
        client.asked = true
        begin(call, key, client)
      }
    }
    return true
  }

  // MARK: Requests

  private func answer(_ call: ControlCall, _ key: Int, _ client: Client) {
    func reply(_ body: (inout [UInt8]) -> Void) { if !call.oneway { body(&client.output) } }
    switch call.request {
    case .list(let names, let brief): list(names, brief: brief, call, client)
    case .start(let name, let wait): order(.start, name, wait, call, key, client)
    case .stop(let name, let untilBoot, let wait): order(.stop(untilBoot: untilBoot), name, wait, call, key, client)
    case .restart(let name, let wait): order(.restart, name, wait, call, key, client)
    case .release(let name, let wait): order(.release, name, wait, call, key, client)
    case .reloadService(let name, let wait): order(.reload, name, wait, call, key, client)
    case .reset(let name, let wait): order(.reset, name, wait, call, key, client)
    case .hold(let name, let milliseconds, let wait):
      guard milliseconds >= 0 else { return reply { Reply.error(.invalidParameter("for_ms"), into: &$0) } }
      order(.hold(.milliseconds(milliseconds)), name, wait, call, key, client)
    case .plugins(let name, let wish, let wait): order(.plugins(wish), name, wait, call, key, client)
    case .safeMode(let name, let on, let wait): order(.safeMode(on), name, wait, call, key, client)
    case .repair(let name, let repair, let wait): order(.repair(repair), name, wait, call, key, client)
    case .reload(let mode):
      client.answering = .reload(oneway: call.oneway)
      // Who asks for a look is no news.
      shell.reload(mode, by: mode == .dryRun ? "" : Author(caller(of: client))) { [weak self] result in
        self?.reloaded(key, result)
      }
    case .resetGuardian:
      let author = Author(caller(of: client))
      shell.record(.requested(verb: "reset --guardian", by: author))
      let observed = shell.trustAgain("\(author) says so")
      reply {
        Reply.done(name: "guardian", note: observed ? "" : "guardian trusts itself already", into: &$0)
      }
    case .upgrade:
      client.answering = .upgrade(oneway: call.oneway)
      shell.record(.requested(verb: "upgrade", by: Author(caller(of: client))))
      shell.upgrade.begin()
    case .plan(let name, let fromStart, let deaths):
      guard let service = ServiceName(name),
        let entries = shell.plan(for: service, fromStart: fromStart, deaths: deaths)
      else {
        return reply { Reply.error(unknown(name), into: &$0) }
      }
      reply { Reply.plan(name: name, entries: entries, into: &$0) }
    case .drill(let name, let asked): drill(name, asked, call, key, client)
    case .crashes(let name):
      let service = name.flatMap(ServiceName.init)
      if let name, service == nil { return reply { Reply.error(unknown(name), into: &$0) } }
      let among = service == nil ? visible(to: client) : nil
      ask(.crashes(service: service, limit: Reply.crashesShown, among: among), call, key, client) { answer, bytes in
        // One that is not known any more may still have its reports.
        if case .crashes(let list) = answer {
          if list.isEmpty, let service, !self.shell.knows(service) {
            return Reply.error(.noSuchService(name: service.text), into: &bytes)
          }
          Reply.crashes(list, into: &bytes)
        }
      }
    case .crash(let id):
      let among = visible(to: client)
      ask(.report(idPrefix: id, among: among), call, key, client) { answer, bytes in
        guard case .reports(let found) = answer else { return }
        switch found.count {
        case 0:
          let whose = among == nil ? "" : " of a service that you may look at"
          Reply.error(.failed(reason: "there is no report with the id \(id)\(whose)"), into: &bytes)
        case 1: Reply.crash(found[0].1, into: &bytes)
        default: Reply.error(.failed(reason: "several reports have an id that begins with \(id)"), into: &bytes)
        }
      }
    case .events(let asked): events(asked, call, key, client)
    case .metrics:
      if call.oneway { return }
      if !call.more { return Reply.error(.expectedMore, into: &client.output) }
      client.answering = .metrics(shell.allNames, next: 0)
      let own = shell.hostMetrics(now: SystemClocks.now(), clients: clients.count, followers: followers.count)
      Reply.metrics(own, continues: true, into: &client.output)
    case .summary: reply { Reply.summary(shell.summary(for: rights(of: client)), into: &$0) }
    case .version: reply { Reply.version(shell.version, into: &$0) }
    }
  }

  // MARK: Drills

  private func drill(_ name: String, _ asked: DrillRequest, _ call: ControlCall, _ key: Int, _ client: Client) {
    // Nobody would hear of it.
    if call.oneway { return }
    guard let service = ServiceName(name), shell.fleet.id(named: service) != nil else {
      return Reply.error(unknown(name), into: &client.output)
    }
    if asked.withRepairs, !call.more { return Reply.error(.expectedMore, into: &client.output) }
    let request = Drill.Request(cause: asked.cause, crashes: asked.crashes, runsRepairs: asked.withRepairs)
    client.answering = .drill(service)
    var begins = true
    if asked.withRepairs {
      shell.record(.requested(verb: "drill \(name) --with-repairs", by: Author(caller(of: client))))
    }
    let refusal = shell.drills.begin(
      request, for: service, by: client.socket.peer.description,
      tell: { [weak self] lines, isOver, failed in
        guard let self, let client = clients[key], case .drill(service) = client.answering else { return }
        if isOver { client.answering = .nothing }
        Reply.drill(name: name, entries: lines, failed: failed, continues: !isOver, into: &client.output)
        if !begins { go(on: key, client) }
      },
      giveUp: { [weak self] why in
        guard let self, let client = clients[key], case .drill(service) = client.answering else { return }
        client.answering = .nothing
        Reply.error(.failed(reason: why), into: &client.output)
        if !begins { go(on: key, client) }
      })
    begins = false
    if let refusal {
      client.answering = .nothing
      Reply.error(.failed(reason: refusal), into: &client.output)
    }
  }

  /// `encode` writes the answer, if it is one.
  private func ask(
    _ question: HistoryQuestion, _ call: ControlCall, _ key: Int, _ client: Client,
    _ encode: @escaping (HistoryAnswer, inout [UInt8]) -> Void
  ) {
    client.answering = .history(oneway: call.oneway)
    shell.store.ask(question) { [weak self] answer in
      guard let self, let client = clients[key], case .history(let oneway) = client.answering else { return }
      client.answering = .nothing
      if !oneway {
        if case .unavailable(let why) = answer {
          Reply.error(.failed(reason: "the history cannot be read: \(why)"), into: &client.output)
        } else {
          encode(answer, &client.output)
        }
      }
      go(on: key, client)
    }
  }

  // MARK: Events

  private func events(_ asked: EventsRequest, _ call: ControlCall, _ key: Int, _ client: Client) {
    if call.oneway { return }
    func refuse(_ error: ControlError) { Reply.error(error, into: &client.output) }
    var names: [ServiceName] = []
    var unknown: String?
    for text in asked.names {
      if text.hasPrefix("@") {
        let members = members(of: text, client)
        if members.isEmpty { return refuse(.noSuchService(name: text)) }
        names += members
      } else if let name = ServiceName(text) {
        // One that is not known any more may still have its history.
        if !shell.knows(name) { unknown = unknown ?? text }
        names.append(name)
      } else {
        return refuse(.noSuchService(name: text))
      }
    }
    if asked.follow {
      if !call.more { return refuse(.expectedMore) }
      if followers.count >= Self.mostFollowers {
        return refuse(.busy(reason: "\(followers.count) clients follow the events already"))
      }
      let uid = client.socket.peer.uid
      if !isTrusted(uid) {
        let own = followers.count { clients[$0]?.socket.peer.uid == uid }
        if own >= Self.mostFollowersOfUser {
          return refuse(.busy(reason: "\(own) clients of uid \(uid) follow the events already"))
        }
      }
      followers.insert(key)
    }
    let isOpen = asked.since == nil && asked.after == nil
    let reader = EventReader(names, follows: asked.follow, more: call.more, isOpen: isOpen)
    reader.unknown = unknown
    guard reader.go(by: rights(of: client)) else {
      followers.remove(key)
      return refuse(.noSuchService(name: asked.names.first ?? ""))
    }
    reader.query.since = asked.since
    reader.query.after = asked.after ?? .none
    if isOpen { reader.query.newest = asked.follow ? Reply.eventsBeforeFollowing : Reply.eventsShown }
    client.answering = .events(reader)
    nextPage(reader, key)
  }

  private func nextPage(_ reader: EventReader, _ key: Int) {
    reader.stage = .asking
    // The answer has all that was recorded before the question; from here on the stream has it.
    reader.position = stream.end
    reader.missed = 0
    shell.store.ask(.events(reader.query)) { [weak self] answer in
      guard let self, let client = clients[key], case .events(let current) = client.answering, current === reader
      else { return }
      hear(answer, reader, key, client)
      go(on: key, client)
    }
  }

  private func hear(_ answer: HistoryAnswer, _ reader: EventReader, _ key: Int, _ client: Client) {
    func end(_ error: ControlError) {
      client.answering = .nothing
      followers.remove(key)
      Reply.error(error, into: &client.output)
    }
    var page = EventPage()
    switch answer {
    case .events(let found): page = found
    case .unavailable(let why):
      guard reader.follows, reader.isOpen else { return end(.failed(reason: "the history cannot be read: \(why)")) }
    case .crashes, .reports: return end(.failed(reason: "the history gave another answer than asked for"))
    }
    if page.events.isEmpty, !page.more, let unknown = reader.unknown { return end(self.unknown(unknown)) }
    if page.more, !reader.more { return end(.expectedMore) }
    if !page.events.isEmpty { reader.unknown = nil }
    reader.query.after = max(reader.query.after, page.after)
    reader.query.newest = nil
    reader.stage = page.more ? .due : .live
    Reply.events(
      page.events.lazy.map {
        EventRecord(
          id: $0.id, at: $0.at, service: $0.service, name: $0.name, text: $0.sentence, details: $0.details)
      }, continues: page.more || reader.follows, into: &client.output)
    if !page.more, !reader.follows { client.answering = .nothing }
  }

  /// What has happened in a turn. Those who follow are written to when the loop comes to them, which is after all that
  /// is more urgent.
  func publish(_ occurrences: [Occurrence]) {
    guard !occurrences.isEmpty else { return }
    guard !followers.isEmpty else { return stream.clear() }
    for occurrence in occurrences { stream.append(occurrence) }
    stream.trim(
      followers.lazy.compactMap { [clients] key in
        if case .events(let reader)? = clients[key]?.answering { reader } else { nil }
      })
    for key in followers {
      guard let client = clients[key], case .events(let reader) = client.answering, case .live = reader.stage,
        !client.waits.contains(.write)
      else { continue }
      client.waits.insert(.write)
      client.source?.wait(for: client.waits)
    }
  }

  private func unknown(_ name: String) -> ControlError {
    guard let service = ServiceName(name), let why = shell.isBroken(service) else { return .noSuchService(name: name) }
    return .failed(
      reason: "the file of '\(name)' is not valid" + (why.first.map { ": \($0.description)" } ?? "")
        + "; correct it, then 'guardianctl reload'")
  }

  private func order(
    _ verb: Command.Verb, _ name: String, _ wait: Bool, _ call: ControlCall, _ key: Int, _ client: Client
  ) {
    nextRequest += 1
    let request = RequestID(nextRequest)
    let command = Command(verb, by: Author(caller(of: client)))
    // The answer may come before `order` returns control to the loop, but never from inside of it.
    waiting[request] = key
    client.answering = .order(request, name: name, oneway: call.oneway)
    let pid = client.socket.peer.pid
    guard let service = ServiceName(name),
      // Each would wait for the other.
      shell.order(command, named: service, request: request, wait: wait && !shell.isAwaited(pid, by: service))
    else {
      waiting[request] = nil
      client.answering = .nothing
      if !call.oneway { Reply.error(unknown(name), into: &client.output) }
      return
    }
  }

  /// An order that a part of guardian gives for itself; `then` hears its outcome, never from inside of this call.
  ///
  /// - Returns: False for a name that nobody has; then `then` hears nothing.
  func order(
    _ command: Command, named service: ServiceName, then: @escaping (Fleet.Answer) -> Void
  ) -> Bool {
    nextRequest += 1
    let request = RequestID(nextRequest)
    ownOrders[request] = then
    if shell.order(command, named: service, request: request, wait: true) { return true }
    ownOrders[request] = nil
    return false
  }

  /// `then` hears when nothing is left of a service that is being removed, never from inside of this call.
  func awaitStop(of service: ServiceName, then: @escaping (Fleet.Answer) -> Void) {
    nextRequest += 1
    ownOrders[RequestID(nextRequest)] = then
    shell.awaitStop(of: service, request: RequestID(nextRequest))
  }

  /// What an order came to.
  func answer(_ request: RequestID, _ answer: Fleet.Answer) {
    if let then = ownOrders.removeValue(forKey: request) { return then(answer) }
    guard let key = waiting.removeValue(forKey: request), let client = clients[key],
      case .order(request, let name, let oneway) = client.answering
    else { return }
    client.answering = .nothing
    if !oneway {
      switch answer {
      case .done(let note): Reply.done(name: name, note: note, into: &client.output)
      case .failed(let reason): Reply.error(.failed(reason: reason), into: &client.output)
      }
    }
    go(on: key, client)
  }

  private func reloaded(_ key: Int, _ result: Shell.Reloaded) {
    guard let client = clients[key], case .reload(let oneway) = client.answering else { return }
    client.answering = .nothing
    if !oneway {
      if !result.listed {
        Reply.error(.configurationFault(result.diagnostics), into: &client.output)
      } else {
        Reply.reloaded(services: result.services, result.change, diagnostics: result.diagnostics, into: &client.output)
      }
    }
    go(on: key, client)
  }

  private func list(_ wanted: [String]?, brief: Bool, _ call: ControlCall, _ client: Client) {
    let names: [ServiceName]
    var missing: [String] = []
    if let wanted, !wanted.isEmpty {
      var found = Set<ServiceName>()
      for text in wanted {
        if text.hasPrefix("@") {
          let members = members(of: text, client)
          if members.isEmpty { missing.append(text) }
          found.formUnion(members)
        } else if let name = ServiceName(text), shell.knows(name) {
          found.insert(name)
        } else {
          missing.append(text)
        }
      }
      names = found.sorted()
    } else {
      names = visible(to: client) ?? shell.allNames
    }
    if call.oneway { return }
    if names.count > Reply.chunk, !call.more { return Reply.error(.expectedMore, into: &client.output) }
    client.answering = .list(names, next: 0, missing: missing, brief: brief)
    nextChunk(client)
  }

  private func nextChunk(_ client: Client) {
    guard case .list(let names, let next, let missing, let brief) = client.answering else { return }
    let end = min(names.count, next + Reply.chunk)
    let now = SystemClocks.now()
    let rights = rights(of: client)
    let shown = names[next..<end].lazy.filter { rights.may(.view, on: $0) }
    let last = end == names.count
    Reply.list(missing: last ? missing : [], brief: brief, continues: !last, into: &client.output) { list in
      shell.list(shown, now: now, brief: brief, closely: !brief && names.count <= Reply.chunk, into: &list)
    }
    client.answering = last ? .nothing : .list(names, next: end, missing: missing, brief: brief)
  }

  private func nextMetrics(_ client: Client) {
    guard case .metrics(let names, let next) = client.answering else { return }
    let end = min(names.count, next + Reply.chunk)
    let samples = shell.serviceMetrics(of: names[next..<end], now: SystemClocks.now())
    Reply.metrics(samples, continues: end < names.count, into: &client.output)
    client.answering = end == names.count ? .nothing : .metrics(names, next: end)
  }

  // MARK: Who may do what

  private func rights(of client: Client) -> Rights {
    if client.rightsAsOf != access.generation {
      client.rights = access.rights(of: client.socket.peer.uid, in: client.socket.groups)
      client.rightsAsOf = access.generation
    }
    return client.rights
  }

  /// Those services that the client may look at, in order of name; nil: all.
  private func visible(to client: Client) -> [ServiceName]? {
    let rights = rights(of: client)
    if rights.host >= .view { return nil }
    return rights.services.filter { $0.value >= .view && shell.knows($0.key) }.keys.sorted()
  }

  /// Of a group, `@shop`, what the client may look at.
  private func members(of group: String, _ client: Client) -> [ServiceName] {
    let rights = rights(of: client)
    let members = ServiceName(String(group.dropFirst())).map(shell.names) ?? []
    return members.filter { rights.may(.view, on: $0) }
  }

  /// Nil: he may.
  private func refusal(of need: ControlRequest.Need, _ client: Client) -> ControlError? {
    let rights = rights(of: client)
    func unless(_ role: Role, on name: String) -> ControlError? {
      let has = ServiceName(name).map { rights.role(on: $0) } ?? rights.host
      return has >= role ? nil : lacks(role, on: name, client)
    }
    switch need {
    case .anything: return rights.most >= .view ? nil : lacks(.view, on: nil, client)
    case .host(let role): return rights.host >= role ? nil : lacks(role, on: nil, client)
    case .service(let name, let role): return unless(role, on: name)
    case .services(let names):
      for name in names where !name.hasPrefix("@") { if let error = unless(.view, on: name) { return error } }
      return rights.most >= .view ? nil : lacks(.view, on: nil, client)
    }
  }

  /// The same whether there is such a service or not: who may not look must not find out either.
  private func lacks(_ role: Role, on name: String?, _ client: Client) -> ControlError {
    let uid = client.socket.peer.uid
    let person = Caller(uid: uid, user: userName(of: uid) ?? nil, pid: 0).person
    let service = name.flatMap { ServiceName($0) }
    let reason =
      "needs \(role.rawValue)" + (service.map { " on '\($0)'" } ?? "") + ": add \(person), or a group it is in, to"
      + " access.\(role.rawValue) in " + (service.map { "services/\($0).yaml or " } ?? "") + "guardian.yaml"
    return .notPermitted(reason: reason, needs: role, service: service?.text)
  }

  /// The configuration has been read: what people may do from now on counts for those who are here already, too.
  func take(host: AccessSpec, services: some Sequence<(ServiceName, AccessSpec)>) {
    access.take(host: host, services: services)
    userNames = [:]
    let now = SystemClocks.monotonic()
    for (key, client) in clients {
      client.strangerUntil = isStranger(client) ? client.strangerUntil ?? now + Self.strangerPatience : nil
      guard case .events(let reader) = client.answering else { continue }
      if reader.go(by: rights(of: client)) { continue }
      client.answering = .nothing
      followers.remove(key)
      Reply.error(lacks(.view, on: reader.services.first?.text, client), into: &client.output)
      go(on: key, client)
    }
    armTimer()
  }

  // MARK: Who has asked

  private func begin(_ call: ControlCall, _ key: Int, _ client: Client) {
    if let error = refusal(of: call.request.need, client) {
      if !call.oneway { Reply.error(error, into: &client.output) }
      return
    }
    if call.request.changesSomething, userName(of: client.socket.peer.uid) == nil, askForName(of: client) {
      client.answering = .naming(call, until: SystemClocks.monotonic() + Self.namePatience)
      return armTimer()
    }
    answer(call, key, client)
  }

  /// Nil: it has not been asked for yet.
  private func userName(of uid: UInt32) -> String?? {
    if uid == 0 { return .some("root") }
    if let name = access.names[uid] { return .some(name) }
    if uid == shell.ownIdentity.uid {
      return .some(shell.ownIdentity.user == "\(uid)" ? nil : shell.ownIdentity.user)
    }
    return userNames[uid]
  }

  /// - Returns: False if it will not be known soon.
  private func askForName(of client: Client) -> Bool {
    let uid = client.socket.peer.uid
    return shell.worker.submit({ UserDatabase.name(of: uid) }) { [weak self] (name: String?) in
      guard let self else { return }
      if userNames.count >= Self.most { userNames = [:] }
      userNames[uid] = .some(name)
      for (key, client) in clients where client.socket.peer.uid == uid { goOnWithName(key, client) }
    }
  }

  private func goOnWithName(_ key: Int, _ client: Client) {
    guard case .naming(let call, _) = client.answering else { return }
    client.answering = .nothing
    client.source?.resume()
    // What he may do can have changed meanwhile.
    if let error = refusal(of: call.request.need, client) {
      if !call.oneway { Reply.error(error, into: &client.output) }
    } else {
      answer(call, key, client)
    }
    go(on: key, client)
  }

  private func caller(of client: Client) -> Caller {
    let peer = client.socket.peer
    var words = client.socket.commandLine(atMost: 1024)
    while words.last == 0 { words.removeLast() }
    for index in words.indices where words[index] == 0 { words[index] = UInt8(ascii: " ") }
    return Caller(
      uid: peer.uid, user: userName(of: peer.uid) ?? nil, pid: peer.pid,
      command: printable(String(decoding: words, as: UTF8.self), atMost: Caller.longestCommand))
  }

  // MARK: Time

  private func armTimer() {
    var first: Instant?
    for client in clients.values {
      if let deadline = client.deadline { first = min(first ?? deadline, deadline) }
      if case .naming(_, let until) = client.answering { first = min(first ?? until, until) }
    }
    if let first { timer?.arm(at: first.nanoseconds) } else { timer?.disarm() }
  }

  private func timeIsUp() {
    let now = SystemClocks.monotonic()
    for (key, client) in clients {
      if case .naming(_, let until) = client.answering, until <= now { goOnWithName(key, client) }
      if let deadline = client.deadline, deadline <= now { close(key) }
    }
    armTimer()
  }
}
