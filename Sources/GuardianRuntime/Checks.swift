import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

/// Makes the probes that the fleet asks for, by processes of `guardian-check`, so that libcurl, name look-ups, files that
/// hang and programs of checks are all outside of this process and its loop.
///
/// A helper is started when it is first needed and ends when it has had nothing to do for a while, or when guardian has
/// gone. As root there is one without privileges for what comes over the network, one for each user whose sockets are
/// looked at, and one of guardian's own for programs, which run as their service's user, and for the age of files.
///
/// Every probe is answered: by its helper, or here when that has died or hangs.
final class CheckTable {
  private struct Waiting {
    var request: ProbeRequest, service: ServiceID
  }
  private struct Open {
    var request: ProbeRequest, service: ServiceID
    /// The helper has answered by then, or hangs.
    var deadline: Instant
  }
  /// As whom a helper runs.
  private enum Rights: Hashable {
    case own
    case nobody
    case user(Identity)

    var identity: Identity? {
      switch self {
      case .own: nil
      // The overflow ids, which own nothing and need no entry in a user database.
      case .nobody:
        Identity(user: "nobody", uid: 65_534, gid: 65_534, groups: [65_534], home: "/", shell: "/bin/false")
      case .user(let identity): identity
      }
    }
  }
  private final class Helper {
    let rights: Rights
    let child: RunningChild
    let socket: OwnedFD
    var source: EventSource?
    var open: [UInt64: Open] = [:]
    var lastUse: Instant
    /// Told to end.
    var dismissed = false
    init(_ rights: Rights, _ child: RunningChild, _ socket: consuming OwnedFD, now: Instant) {
      self.rights = rights
      self.child = child
      self.socket = socket
      lastUse = now
    }
    // Always the source first, and then its descriptor.
    deinit { source?.cancel() }
  }

  private unowned let shell: Shell
  private var helpers: [Rights: Helper] = [:]
  /// Those that are to end as well.
  private var byPid: [Int32: Helper] = [:]
  private var waiting: [Waiting] = []
  /// Before `waiting`'s elements: those that have been begun or are not wanted any more.
  private var begun = 0
  private var serial: UInt64 = 0
  private var openCount = 0
  private var timer: EventSource?
  /// No helper is started before that: one that dies at once would be started for every probe.
  private var notBefore: [Rights: Instant] = [:]
  private var trouble: String?
  /// Rights cannot be given up here, as in a container whose root has none of a root's power.
  private var keepsRights = false

  /// However many checks are due: a start of thousands must not become a storm of looks.
  static let atOnce = 64
  /// Beyond a probe's own time-out, before its helper counts as hanging.
  private static let grace = Duration.seconds(5)
  private static let idle = Duration.minute * 10
  private static let pause = Duration.seconds(1)
  static let name = "guardian-check"

  init(_ shell: Shell) throws(SystemError) {
    self.shell = shell
    timer = try shell.loop.timer(.monotonic, priority: .time) { [unowned self] in lookAround() }
  }

  func isHelper(_ pid: Int32) -> Bool { byPid[pid] != nil }
  var isEmpty: Bool { byPid.isEmpty }

  static func program() -> String? { Companions.program(name) }

  /// What is to be said where services have checks and nobody can make them.
  static var missing: String {
    "\(name) is neither beside guardian nor in ../libexec/guardian: health checks cannot be made, and count for nothing"
  }

  // MARK: Probes

  func probe(_ request: ProbeRequest, for service: ServiceID) {
    if openCount >= Self.atOnce {
      waiting.append(Waiting(request: request, service: service))
    } else {
      begin(request, service)
    }
  }

  /// Nobody waits for these any more.
  func end(_ run: RunID, _ numbers: [UInt64]) {
    for helper in helpers.values {
      for (serial, open) in helper.open where open.request.run == run && numbers.contains(open.request.number) {
        helper.open[serial] = nil
        openCount -= 1
        _ = give(ProbeOrder(number: serial, work: .cancel), to: helper)
      }
    }
    if begun < waiting.count {
      waiting.removeSubrange(..<begun)
      begun = 0
      waiting.removeAll { $0.request.run == run && numbers.contains($0.request.number) }
    }
    beginNext()
  }

  private func beginNext() {
    while openCount < Self.atOnce, begun < waiting.count {
      let next = waiting[begun]
      begun += 1
      begin(next.request, next.service)
    }
    if begun == waiting.count {
      waiting.removeAll(keepingCapacity: begun <= 256)
      begun = 0
    }
  }

  private func begin(_ request: ProbeRequest, _ service: ServiceID) {
    guard let spec = shell.fleet.spec(of: service) else { return answer(request, service, .notMade("")) }
    serial += 1
    let rights = rights(for: request.check.kind, spec)
    let now = SystemClocks.monotonic()
    guard let helper = helper(rights, now) else {
      return answer(request, service, .notMade(trouble ?? "\(Self.name) cannot be started"))
    }
    let order = ProbeOrder(
      number: serial,
      work: .probe(
        work(request, service, spec), key: "\(spec.name)/\(request.check.name)", timeout: request.check.timeout))
    if let why = give(order, to: helper) { return answer(request, service, .notMade(why)) }
    helper.lastUse = now
    helper.open[serial] = Open(
      request: request, service: service, deadline: now + request.check.timeout + Self.grace)
    openCount += 1
    arm(now)
  }

  private func rights(for kind: CheckKind, _ spec: ServiceSpec) -> Rights {
    guard geteuid() == 0, !keepsRights else { return .own }
    switch kind {
    case .exec, .file: return .own
    case .http(let http) where http.unix == nil: return .nobody
    case .tcp(.host): return .nobody
    case .http, .tcp: return spec.process.identity.map { .user($0) } ?? .own
    }
  }

  private func work(_ request: ProbeRequest, _ service: ServiceID, _ spec: ServiceSpec) -> ProbeOrder.Probe {
    switch request.check.kind {
    case .http(let http): return .http(http)
    case .tcp(let tcp): return .tcp(tcp)
    case .file(let file): return .file(file)
    case .exec(let command):
      // Its own, so that what belongs to the check is not taken for what belongs to the run.
      let id = RunID(high: request.run.high ^ 0x6775_6172_6469_616e, low: request.run.low &+ serial)
      var exec = ExecProbe(run: id, command: command)
      var environment = ChildEnvironment(user: spec.process.identity ?? shell.ownIdentity, language: shell.language)
      environment.add(spec.process.environment)
      environment["INVOCATION_ID"] = id.description
      environment["GUARDIAN_SERVICE"] = spec.name.text
      environment["GUARDIAN_CHECK"] = request.check.name
      environment["GUARDIAN_RUN"] = request.run.description
      if let pid = shell.fleet.machine(of: service)?.phase.run?.pid { environment["GUARDIAN_PID"] = String(pid) }
      exec.environment = environment.strings
      exec.directory = spec.process.directory
      exec.umask = spec.process.umask
      exec.identity = spec.process.identity
      return .exec(exec)
    }
  }

  private func answer(_ request: ProbeRequest, _ service: ServiceID, _ result: ProbeResult) {
    shell.post(service, .probed(request.run, number: request.number, result))
  }

  // MARK: Helpers

  /// Nil: it can go. Else why not.
  private func give(_ order: ProbeOrder, to helper: Helper) -> String? {
    let bytes = order.bytes
    guard bytes.count <= ProbeOrder.largest else { return "the environment and command of the check are too long" }
    let sent = send(helper.socket.number, bytes, bytes.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
    return sent == bytes.count ? nil : "\(Self.name) takes no orders now: \(ErrnoText.reason(errno))"
  }

  private func helper(_ rights: Rights, _ now: Instant) -> Helper? {
    if let running = helpers[rights] { return running }
    if let due = notBefore[rights], now < due { return nil }
    notBefore[rights] = now + Self.pause
    guard let program = Self.program() else {
      complain(Self.missing)
      return nil
    }
    do throws(SystemError) {
      var ends: [Int32] = [-1, -1]
      guard socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
        throw .last("make a pair of sockets")
      }
      let own = OwnedFD(adopting: ends[0])
      let theirs = OwnedFD(adopting: ends[1])
      _ = fcntl(own.number, F_SETFL, O_NONBLOCK)
      let identity = rights.identity
      var spawn = SpawnRequest(
        command: [program],
        environment: ChildEnvironment(user: identity ?? shell.ownIdentity, language: shell.language).strings)
      spawn.identity = identity
      spawn.input = .descriptor(theirs.number)
      spawn.error = .inherit
      spawn.softOpenFiles = shell.softOpenFiles
      spawn.nice = shell.surroundings.nice
      spawn.oomScoreAdjust = shell.surroundings.oomScoreAdjust
      let run = RunID(high: UInt64.random(in: .min ... .max), low: serial)
      let child: RunningChild
      switch shell.spawner.spawn(spawn) {
      case .failed(let failure):
        complain(failure.sentence)
        // From the next probe on it goes without.
        if case .nobody = rights, failure.stage == .identity { keepsRights = true }
        return nil
      case .started(let started): child = RunningChild(started, run: run)
      case .pending(let pending): child = RunningChild(pending, run: run)
      }
      let number = own.number
      let helper = Helper(rights, child, own, now: now)
      helpers[rights] = helper
      byPid[child.pid] = helper
      helper.source = try shell.loop.onIO(number, .read, priority: .outcomes) { [weak self, weak helper] _ in
        if let helper { self?.hear(helper) }
      }
      trouble = nil
      return helper
    } catch {
      complain(error.description)
      return nil
    }
  }

  private func complain(_ what: String) {
    if trouble != what { shell.log.note(.warning, "health checks: \(what)") }
    trouble = what
  }

  private func hear(_ helper: Helper) {
    var bytes = [UInt8](repeating: 0, count: ProbeAnswer.largest + 1)
    // More than can be under way; the loop comes back for the rest.
    for _ in 0..<Self.atOnce {
      let got = recv(helper.socket.number, &bytes, bytes.count, Int32(MSG_DONTWAIT))
      if got < 0 && (errno == EAGAIN || errno == EINTR) { break }
      guard got > 0 else {
        // Gone, or about to be: its end is told by SIGCHLD.
        letGo(helper, why: "\(Self.name) has ended")
        break
      }
      guard got <= ProbeAnswer.largest, let answer = ProbeAnswer(Array(bytes[..<got])),
        let open = helper.open.removeValue(forKey: answer.number)
      else { continue }
      openCount -= 1
      let text = printable(answer.result.text, atMost: 256)
      let result: ProbeResult =
        switch answer.result {
        case .passed: .passed(text)
        case .failed: .failed(text)
        case .notMade: .notMade(text)
        }
      self.answer(open.request, open.service, result)
    }
    beginNext()
  }

  /// Nobody is waited for any longer: its probes could not be made.
  private func letGo(_ helper: Helper, why: String) {
    if helpers[helper.rights] === helper { helpers[helper.rights] = nil }
    helper.source?.cancel()
    helper.source = nil
    let left = helper.open.sorted { $0.key < $1.key }
    helper.open = [:]
    openCount -= left.count
    for (_, open) in left { answer(open.request, open.service, .notMade(why)) }
  }

  /// - Returns: False if the process is none of guardian's helpers.
  func ended(_ end: ChildReaper.Ended, orphans: () -> Orphans) -> Bool {
    guard let helper = byPid.removeValue(forKey: end.pid) else { return false }
    helper.child.mainEnded()
    // What it has left has come to guardian.
    if helper.child.remaining(orphans).count > 0 { helper.child.signalSet(.kill, orphans: shell.orphans) }
    if end.status != .code(0), !helper.dismissed {
      let how = HookResult.failed(end.status).description
      shell.log.note(.warning, "\(Self.name) \(how); it is started again when it is needed")
      letGo(helper, why: "\(Self.name) \(how)")
    } else {
      letGo(helper, why: "\(Self.name) has ended")
    }
    beginNext()
    return true
  }

  private func arm(_ now: Instant) {
    var next: Instant?
    for helper in helpers.values {
      var due = helper.lastUse + Self.idle
      for open in helper.open.values { due = min(due, open.deadline) }
      next = min(next ?? due, due)
    }
    if let next { timer?.arm(at: max(next, now).nanoseconds) } else { timer?.disarm() }
  }

  private func lookAround() {
    let now = SystemClocks.monotonic()
    for helper in Array(helpers.values) {
      if helper.open.values.contains(where: { now >= $0.deadline }) {
        shell.log.note(.warning, "\(Self.name) hangs and is ended")
        helper.dismissed = true
        helper.child.signalSet(.kill, orphans: shell.orphans)
        letGo(helper, why: "\(Self.name) hung")
      } else if helper.open.isEmpty, now >= helper.lastUse + Self.idle {
        dismiss(helper)
      }
    }
    beginNext()
    arm(now)
  }

  /// It ends by itself when nobody speaks to it any more.
  private func dismiss(_ helper: Helper) {
    helper.dismissed = true
    letGo(helper, why: "")
    shutdown(helper.socket.number, Int32(SHUT_RDWR))
  }

  /// Guardian goes down: nothing is to be looked at any more.
  func endAll() {
    waiting = []
    begun = 0
    for helper in Array(helpers.values) { dismiss(helper) }
    for helper in byPid.values { helper.child.signalSet(.kill, orphans: shell.orphans) }
  }
}
