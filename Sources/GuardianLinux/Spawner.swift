import CGuardian
import Glibc
import GuardianModel

/// Starts processes. One for the whole daemon; used from the loop's thread only.
package final class Spawner {
  private let null: OwnedFD
  private let mounts = MountTable()

  /// Opens /dev/null, once.
  package init() throws(SystemError) {
    let raw = open("/dev/null", O_RDWR | O_CLOEXEC)
    if raw < 0 { throw .last("open", "/dev/null") }
    null = OwnedFD(adopting: raw)
  }

  /// Starts a process in a session of its own, with the request's attributes and nothing else of guardian's.
  ///
  /// The caller stands still until the exec, some tens to hundreds of microseconds, where nothing on the way can block;
  /// else the outcome is `pending` at once.
  package func spawn(_ request: SpawnRequest) -> SpawnOutcome {
    let directory = request.directory ?? "/"
    guard let path = request.command.first, path.hasPrefix("/") else {
      return .failed(
        SpawnFailure(
          stage: .exec, errno: EINVAL, target: request.command.first ?? "",
          sentence: "cannot run '\(request.command.first ?? "")': 'command' needs an absolute path"))
    }
    let copied = request.copies.map(\.path)
    if let bad = (request.command + request.environment + [directory] + request.hide + request.empty + copied)
      .first(where: { $0.utf8.contains(0) })
    {
      return .failed(
        SpawnFailure(
          stage: .prepare, errno: EINVAL, target: path,
          sentence: "cannot start \(path): a NUL byte in '\(bad.prefix { $0 != "\0" })…'"))
    }

    let hidden = HiddenParts(request.hide, empty: request.empty, copies: copied, views: request.views)
    let separate =
      request.forceSlowPath || !hidden.parts.isEmpty || mounts.mayBlock(path) || mounts.mayBlock(directory)
    // Looked at before, so that a file replaced in between counts as changed, never as seen.
    let look = separate && mounts.mayBlock(path) ? nil : ExecutableLook(ofProgram: path)
    var request = request
    request.takeSurroundings(look)
    var ends: [Int32] = [-1, -1]
    if separate {
      let answer = guardian_pipe(&ends)
      if answer < 0 {
        return .failed(SpawnExplanation(request, hidden: hidden.paths).failure(.clone, -answer, index: 0))
      }
    }

    var result = guardian_spawn_result()
    let answer = call(request, directory: directory, hidden: hidden, report: separate ? ends[1] : nil, &result)
    // Only the child holds the end that is written to, so the end of file tells its exec.
    if separate { _ = close(ends[1]) }
    guard answer == 0 else {
      if separate { _ = close(ends[0]) }
      let stage = SpawnFailure.Stage(rawValue: Int32(bitPattern: result.stage.rawValue)) ?? .clone
      return .failed(
        SpawnExplanation(request, hidden: hidden.paths).failure(stage, -answer, index: Int(result.index)))
    }
    let pidfd = OwnedFD(adopting: result.pidfd)
    if !separate { return .started(Child(pid: result.pid, pidfd: pidfd, executable: look, hidden: [])) }
    return .pending(
      PendingSpawn(
        pid: result.pid, pidfd: pidfd, report: OwnedFD(adopting: ends[0]), executable: look, request: request,
        hidden: hidden.paths))
  }

  private func call(
    _ request: SpawnRequest, directory: String, hidden: HiddenParts, report: Int32?,
    _ result: inout guardian_spawn_result
  ) -> Int32 {
    let arguments = CStrings(request.command)
    let ownPid = request.ownPidVariable.map { $0 + "=" }
    // Ten digits and their end: the child fills them in.
    let environment = CStrings(request.environment + (ownPid.map { [$0 + "           "] } ?? []))
    let ownPidText = ownPid.flatMap { name in
      environment.pointers[request.environment.count].map { $0 + name.utf8.count }
    }
    let hiddenText = CStrings(hidden.parts.flatMap { [$0.directory, $0.name] })
    defer { withExtendedLifetime((arguments, environment, hiddenText)) {} }
    guard let path = arguments.pointers.pointee else { return -EINVAL }

    var descriptors: [guardian_descriptor] = []
    for (target, stream) in [(0, request.input), (1, request.output), (2, request.error)]
      as [(Int32, SpawnRequest.Stream)]
    {
      switch stream {
      case .null: descriptors.append(guardian_descriptor(source: null.number, target: target))
      case .inherit: descriptors.append(guardian_descriptor(source: target, target: target))
      case .descriptor(let source): descriptors.append(guardian_descriptor(source: source, target: target))
      }
    }
    for passed in request.passed.sorted(by: { $0.target < $1.target }) {
      descriptors.append(guardian_descriptor(source: passed.source, target: passed.target))
    }
    let limits = request.kernelLimits
    let groups = Set(request.identity?.groups ?? []).sorted()
    var groupRoom = [gid_t](repeating: 0, count: groups.count + 1)
    var hide: [guardian_hide] = []
    let contents = request.copies.map { Bytes($0.content) }
    defer { withExtendedLifetime(contents) {} }
    for index in hidden.parts.indices {
      guard let directory = hiddenText.pointers[2 * index], let name = hiddenText.pointers[2 * index + 1] else {
        continue
      }
      var one = guardian_hide(
        directory: directory, name: name, way: Int32(bitPattern: hidden.parts[index].way.rawValue), content: nil,
        size: 0, uid: 0, gid: 0, mode: 0)
      if let place = hidden.parts[index].copy {
        let copy = request.copies[place]
        (one.content, one.size) = (UnsafeRawPointer(contents[place].memory.baseAddress), copy.content.count)
        (one.uid, one.gid, one.mode) = (copy.uid, copy.gid, copy.mode)
      }
      hide.append(one)
    }

    return directory.withCString { directory in
      descriptors.withUnsafeMutableBufferPointer { descriptors in
        limits.withUnsafeBufferPointer { limits in
          groups.withUnsafeBufferPointer { groups in
            groupRoom.withUnsafeMutableBufferPointer { groupRoom in
              hide.withUnsafeBufferPointer { hide in
                var c = guardian_spawn_request(
                  path: path, argv: arguments.pointers, envp: environment.pointers, directory: directory,
                  umask: request.umask & 0o7777, descriptors: descriptors.baseAddress,
                  descriptor_count: descriptors.count, limits: limits.baseAddress, limit_count: limits.count,
                  set_nice: request.nice == nil ? 0 : 1, nice: request.nice ?? 0,
                  set_oom_score: request.oomScoreAdjust == nil ? 0 : 1, oom_score: request.oomScoreAdjust ?? 0,
                  set_identity: request.identity == nil ? 0 : 1, uid: request.identity?.uid ?? 0,
                  gid: request.identity?.gid ?? 0, groups: groups.baseAddress, group_count: groups.count,
                  group_room: groupRoom.baseAddress,
                  capabilities: request.capabilities.reduce(0) { $0 | 1 << UInt64($1.number) },
                  keep_sigpipe_ignored: request.keepsSIGPIPEIgnored ? 1 : 0, own_pid: ownPidText,
                  cgroup: request.group ?? -1, mark: request.mark?.address, run_high: request.mark?.run.high ?? 0,
                  run_low: request.mark?.run.low ?? 0,
                  single_cpu: request.surroundings?.singleCPU == true ? 1 : 0,
                  hide: hide.baseAddress, hide_count: hide.count, separate: report == nil ? 0 : 1,
                  report: report ?? -1)
                return guardian_spawn(&c, &result)
              }
            }
          }
        }
      }
    }
  }
}

/// A limit as the kernel takes it, and as the service file names it.
struct NamedLimit {
  var name: String, limit: guardian_limit
}

extension SpawnRequest {
  /// With the name of each, for the sentence about one that is refused.
  var namedLimits: [NamedLimit] {
    var all: [NamedLimit] = []
    if let softOpenFiles, !limits.contains(where: { $0.resource == .openFiles }) {
      let own = guardian_limit(
        resource: ResourceLimit.Resource.openFiles.number, set_hard: 0, soft: softOpenFiles, hard: 0)
      all.append(NamedLimit(name: ResourceLimit.Resource.openFiles.rawValue, limit: own))
    }
    if let stack = surroundings?.stack {
      // Only as far as the hard limit goes: a change that is tried must not be what a start fails of.
      let own = guardian_limit(resource: ResourceLimit.Resource.stack.number, set_hard: 0, soft: stack, hard: 0)
      all.append(NamedLimit(name: ResourceLimit.Resource.stack.rawValue, limit: own))
    }
    for limit in limits where limit.resource != .stack || surroundings?.stack == nil {
      let both = guardian_limit(resource: limit.resource.number, set_hard: 1, soft: limit.value, hard: limit.value)
      all.append(NamedLimit(name: limit.resource.rawValue, limit: both))
    }
    return all
  }
  fileprivate var kernelLimits: [guardian_limit] { namedLimits.map(\.limit) }

  /// What is to be changed for this very program is changed, or nothing.
  mutating func takeSurroundings(_ look: ExecutableLook?) {
    guard let changed = surroundings else { return }
    guard let look, look.print == changed.program, !look.privileged else {
      surroundings = nil
      return
    }
    for variable in changed.environment {
      guard let end = variable.firstIndex(of: "=") else { continue }
      let name = variable[...end]
      environment.removeAll { $0.hasPrefix(name) }
      environment.append(variable)
    }
  }
}

extension ResourceLimit.Resource {
  /// RLIMIT_ of setrlimit(2).
  var number: Int32 {
    switch self {
    case .openFiles: Int32(RLIMIT_NOFILE.rawValue)
    case .core: Int32(RLIMIT_CORE.rawValue)
    case .stack: Int32(RLIMIT_STACK.rawValue)
    case .processes: Int32(__RLIMIT_NPROC.rawValue)
    case .fileSize: Int32(RLIMIT_FSIZE.rawValue)
    case .lockedMemory: Int32(__RLIMIT_MEMLOCK.rawValue)
    case .addressSpace: Int32(RLIMIT_AS.rawValue)
    case .cpuTime: Int32(RLIMIT_CPU.rawValue)
    case .data: Int32(RLIMIT_DATA.rawValue)
    }
  }
}
