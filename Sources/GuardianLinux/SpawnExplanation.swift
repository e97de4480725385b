import CGuardian
import Glibc
import GuardianModel

/// Turns stage and errno of a failed start into what the operator reads. Looks at the files concerned only where that
/// cannot wait for a server.
struct SpawnExplanation {
  private let request: SpawnRequest
  private let hidden: [String]
  private var program: String { request.command.first ?? "" }
  private var directory: String { request.directory ?? "/" }

  init(_ request: SpawnRequest, hidden: [String]) {
    self.request = request
    self.hidden = hidden
  }

  /// `index` is that of guardian_spawn.h: of the descriptor, the limit, the hidden path, or the step of the identity.
  func failure(_ stage: SpawnFailure.Stage, _ code: Int32, index: Int) -> SpawnFailure {
    SpawnFailure(
      stage: stage, errno: code, target: target(stage, index), sentence: sentence(stage, code, index),
      ownTrouble: isOwnTrouble(stage, code), missing: isMissing(stage, code))
  }

  private func target(_ stage: SpawnFailure.Stage, _ index: Int) -> String {
    switch stage {
    case .exec: program
    case .directory: directory
    case .identity: request.identity?.user ?? ""
    case .limits: limit(index)?.name ?? ""
    case .hide: hidden.indices.contains(index) ? hidden[index] : ""
    case .capabilities: capability(index) ?? ""
    case .clone, .session, .signals, .descriptors, .priority, .oomScore, .umask, .prepare: program
    }
  }

  private func limit(_ index: Int) -> (name: String, value: UInt64)? {
    let all = request.namedLimits
    return all.indices.contains(index) ? (all[index].name, all[index].limit.soft) : nil
  }

  private func isOwnTrouble(_ stage: SpawnFailure.Stage, _ code: Int32) -> Bool {
    switch code {
    case EAGAIN, EMFILE, ENFILE, ENOMEM, ETXTBSY, EBUSY: true
    default: false
    }
  }

  private func isMissing(_ stage: SpawnFailure.Stage, _ code: Int32) -> Bool {
    // What is hidden from this one start is there for the next, and would never be seen to appear.
    switch stage {
    case .exec: code == ENOENT && !isHidden(program)
    case .directory: code == ENOENT && !isHidden(directory)
    case .clone, .session, .signals, .descriptors, .limits, .priority, .oomScore, .hide, .identity, .umask, .prepare,
      .capabilities:
      false
    }
  }

  private func isHidden(_ path: String) -> Bool { hidden.contains { path == $0 || path.hasPrefix($0 + "/") } }

  private func sentence(_ stage: SpawnFailure.Stage, _ code: Int32, _ index: Int) -> String {
    let reason = ErrnoText.reason(code)
    switch stage {
    case .clone: return "cannot start \(program): \(shortage(code) ?? reason)"
    case .session, .signals, .umask, .prepare: return "cannot start \(program): \(stage.name) failed: \(reason)"
    case .descriptors: return "cannot start \(program): cannot pass on its descriptors: \(shortage(code) ?? reason)"
    case .limits:
      guard let limit = limit(index) else { return "cannot set the limits of \(program): \(reason)" }
      let value = limit.value == .max ? "unlimited" : "\(limit.value)"
      return code == EPERM
        ? "cannot set the limit \(limit.name) to \(value): above guardian's own hard limit, which only root may pass; check 'limits'"
        : "cannot set the limit \(limit.name) to \(value): \(reason); check 'limits'"
    case .priority:
      return "cannot set nice \(request.nice ?? 0): \(reason); check 'nice' (only root may go below guardian's own)"
    case .oomScore:
      return code == ENOENT
        ? "cannot set oom-score-adjust: /proc is not mounted"
        : "cannot set oom-score-adjust \(request.oomScoreAdjust ?? 0): \(reason); "
          + "check 'oom-score-adjust' (only root may go below guardian's own)"
    case .hide: return hideSentence(code, index)
    case .identity: return identitySentence(code, index)
    case .capabilities: return capabilitySentence(code, index)
    case .directory:
      switch code {
      case _ where isHidden(directory): return "cannot enter \(directory): \(hiding); check 'directory' and 'hide'"
      case ENOENT: return "cannot enter \(directory): no such directory; check 'directory'"
      case ENOTDIR: return "cannot enter \(directory): not a directory; check 'directory'"
      case EACCES:
        if let closed = closedDirectory(above: directory + "/.") {
          return "cannot enter \(directory): \(who) may not: \(closed.path) has mode \(String(closed.mode, radix: 8)); "
            + "check it, or 'directory'"
        }
        return "cannot enter \(directory): \(who) may not; check its mode and those above it, or 'directory'"
      default: return "cannot enter \(directory): \(reason); check 'directory'"
      }
    case .exec: return execSentence(code)
    }
  }

  private var hiding: String { "it is hidden from the service, as its plugins are off" }
  private var who: String { request.identity.map { "user \($0.user)" } ?? "guardian's own user" }

  private func hideSentence(_ code: Int32, _ index: Int) -> String {
    let what = hidden.indices.contains(index) ? hidden[index] : "a path"
    switch code {
    case EPERM, EACCES: return "cannot hide \(what): this needs CAP_SYS_ADMIN; check 'hide'"
    case ENOSPC: return "cannot hide \(what): too many mounts (fs.mount-max) or namespaces (user.max_mnt_namespaces)"
    default: return "cannot hide \(what): \(ErrnoText.reason(code)); check 'hide'"
    }
  }

  private func identitySentence(_ code: Int32, _ index: Int) -> String {
    guard let identity = request.identity else { return "cannot change the user: \(ErrnoText.reason(code))" }
    let step = ["set the groups", "set the group \(identity.gid)", "become"]
    let user = "user \(identity.user) (uid \(identity.uid), gid \(identity.gid))"
    if index == 3 { return "cannot become \(user): the change did not take hold, so nothing was started; check 'user'" }
    let what = step.indices.contains(index) ? step[index] : "become"
    let reason =
      switch code {
      case EPERM: "guardian has no right to; it runs as uid \(geteuid())"
      case EINVAL: "there is no such number in this user namespace"
      case EAGAIN: "the user has too many processes (RLIMIT_NPROC is \(Limits.soft(.processes)))"
      default: ErrnoText.reason(code)
      }
    return what == "become"
      ? "cannot become \(user): \(reason); check 'user'"
      : "cannot \(what) of \(user): \(reason); check 'user' and 'group'"
  }

  private func capability(_ index: Int) -> String? {
    (0..<Capability.names.count).contains(index) ? Capability.names[index] : nil
  }

  private func capabilitySentence(_ code: Int32, _ index: Int) -> String {
    let what = capability(index).map { "capability \($0)" } ?? "the capabilities"
    switch code {
    case EPERM: return "cannot keep \(what): guardian does not have it, or may not pass it on; check 'capabilities'"
    case EINVAL: return "cannot keep \(what): this kernel does not know it; check 'capabilities'"
    case ENOTSUP:
      return
        "cannot keep \(what) and no other: the change did not take hold, so nothing was started; check 'capabilities'"
    default: return "cannot keep \(what): \(ErrnoText.reason(code)); check 'capabilities'"
    }
  }

  private func execSentence(_ code: Int32) -> String {
    let cannot = "cannot run \(program): "
    if isHidden(program) { return cannot + "\(hiding); check 'command' and 'hide'" }
    switch code {
    case ENOENT:
      guard exists(program) else { return cannot + "no such file; check 'command'" }
      return cannot + (missingHelper ?? "something that it needs to be loaded is not there")
    case EACCES:
      return cannot + accessReason()
    case ENOEXEC:
      return cannot + formatReason()
    case ENOTDIR: return cannot + "a component of the path is not a directory; check 'command'"
    case ELOOP:
      return cannot + "too many symbolic links, or scripts that name scripts as their interpreters"
    case ENAMETOOLONG: return cannot + "the path is too long"
    case E2BIG:
      let size = (request.command + request.environment).reduce(0) { $0 + $1.utf8.count + 9 }
      return cannot
        + "arguments and environment are too large: \(size) bytes together; one may have 131072, all about a quarter of "
        + "the stack limit"
    case ETXTBSY:
      let busy = ProgramFile(program)?.interpreter.map { "it, or its interpreter \($0)," } ?? "the file"
      return cannot + "\(busy) is open for writing, as while it is being replaced; tried again later"
    case EPERM:
      return cannot + "not permitted (a security module, or a set-user-id program under a tracer)"
    case EAGAIN:
      let value =
        request.limits.first { $0.resource == .processes }.map { "\($0.value)" } ?? "\(Limits.soft(.processes))"
      return cannot + "\(who) has too many processes (RLIMIT_NPROC is \(value)); check 'limits: processes'"
    case ENOMEM: return cannot + "not enough memory"
    case EMFILE, ENFILE: return cannot + (shortage(code) ?? ErrnoText.reason(code))
    case EISDIR: return cannot + "its interpreter is a directory"
    case ELIBBAD:
      return cannot + "its dynamic loader \(helpers.last?.path ?? "") is damaged, or for another machine"
    case EIO: return cannot + "the device reports an input/output error"
    default: return cannot + ErrnoText.reason(code)
    }
  }

  private func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

  /// What the kernel opens beside the program itself, in order: the interpreter of the first line, its interpreter, the
  /// dynamic loader. Bounded as the kernel bounds it.
  private var helpers: [(by: String, path: String, isLoader: Bool)] {
    var found: [(String, String, Bool)] = []
    var next = program
    while found.count < 5, let file = ProgramFile(next) {
      if let interpreter = file.interpreter {
        found.append((next, interpreter, false))
        next = interpreter
      } else {
        if let loader = file.elf?.loader { found.append((next, loader, true)) }
        break
      }
    }
    return found
  }

  private func words(_ helper: (by: String, path: String, isLoader: Bool)) -> String {
    let whose = helper.by == program ? "its" : "the"
    let of = helper.by == program ? "" : " of \(helper.by)"
    return helper.isLoader
      ? "\(whose) dynamic loader \(helper.path)\(of)"
      : "\(whose) first line\(of) names \(ProgramFile.shown(helper.path)), which"
  }

  private var missingHelper: String? {
    guard let helper = helpers.first(where: { !exists($0.path) }) else { return nil }
    if !helper.isLoader { return words(helper) + " is not there" }
    return words(helper) + " is not there (built for another C library or another machine?)"
  }

  private func accessReason() -> String {
    var status = stat()
    guard stat(program, &status) == 0 else {
      return "\(who) may not reach it; check the modes of the directories above it"
    }
    let kind = status.st_mode & S_IFMT
    if kind == S_IFDIR { return "it is a directory; check 'command'" }
    if kind != S_IFREG { return "it is not a regular file; check 'command'" }
    if guardian_is_noexec(program) == 1 { return "its file system is mounted noexec" }
    if status.st_mode & 0o111 == 0 { return "it is not executable; try chmod +x \(program)" }
    for helper in helpers {
      if guardian_is_noexec(helper.path) == 1 { return words(helper) + " is on a file system that is mounted noexec" }
      if access(helper.path, X_OK) != 0 { return words(helper) + " is not executable" }
    }
    if let closed = closedDirectory(above: program) {
      return "\(who) may not pass through \(closed.path) (mode \(String(closed.mode, radix: 8)))"
    }
    return "\(who) may not execute it (mode \(String(status.st_mode & 0o7777, radix: 8))); check the file and the "
      + "directories above it"
  }

  /// The first directory on the way that the user may not search, by its mode bits. Nil where they all let it through,
  /// or nobody can tell.
  private func closedDirectory(above path: String) -> (path: String, mode: UInt32)? {
    guard let identity = request.identity, identity.uid != 0 else { return nil }
    var at = "/"
    for part in path.split(separator: "/").dropLast() {
      at += (at == "/" ? "" : "/") + part
      var status = stat()
      guard stat(at, &status) == 0 else { return nil }
      let bit: UInt32 =
        status.st_uid == identity.uid
        ? 0o100 : status.st_gid == identity.gid || identity.groups.contains(status.st_gid) ? 0o010 : 0o001
      if status.st_mode & bit == 0 { return (at, status.st_mode & 0o7777) }
    }
    return nil
  }

  private func formatReason() -> String {
    // Of a script the kernel may mean its interpreter.
    let culprit = helpers.last { !$0.isLoader }?.path ?? program
    let it = culprit == program ? "it" : "its interpreter \(culprit)"
    guard let file = ProgramFile(culprit) else { return "not a program that this machine can run" }
    if file.head.isEmpty { return culprit == program ? "the file is empty" : "\(it) is empty" }
    if let machine = file.elf?.foreignMachine {
      return "\(it) is built for \(machine), and this machine is \(ProgramFile.ownMachine)"
    }
    if file.isELF { return "\(it) is built for another machine, or damaged" }
    if file.head.starts(with: [UInt8(ascii: "#"), UInt8(ascii: "!")]) {
      return "\(it) has a first line that names no interpreter, or is too long"
    }
    if file.head.contains(0) { return "not a program that this machine can run" }
    return culprit == program
      ? "a script needs an interpreter in its first line, as #!/bin/sh"
      : "\(it) is a script without an interpreter in its first line"
  }

  private func shortage(_ code: Int32) -> String? { Limits.shortage(code) }
}
