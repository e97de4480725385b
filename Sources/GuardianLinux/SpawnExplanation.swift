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
      case EACCES: return "cannot enter \(directory): \(who) may not; check its mode and those above it, or 'directory'"
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
      return "cannot keep \(what) and no other: the change did not take hold, so nothing was started; check 'capabilities'"
    default: return "cannot keep \(what): \(ErrnoText.reason(code)); check 'capabilities'"
    }
  }

  private func execSentence(_ code: Int32) -> String {
    let cannot = "cannot run \(program): "
    if isHidden(program) { return cannot + "\(hiding); check 'command' and 'hide'" }
    switch code {
    case ENOENT:
      if let interpreter = Script.interpreter(of: program), exists(program) {
        return cannot + "its first line names \(interpreter), which is not there"
      }
      if exists(program) {
        return cannot + "its dynamic loader is not there (built for another C library or another machine?)"
      }
      return cannot + "no such file; check 'command'"
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
    case ETXTBSY: return cannot + "the file is open for writing, as while it is being replaced; tried again later"
    case EPERM:
      return cannot + "not permitted (a security module, or a set-user-id program under a tracer)"
    case EAGAIN:
      let value =
        request.limits.first { $0.resource == .processes }.map { "\($0.value)" } ?? "\(Limits.soft(.processes))"
      return cannot + "\(who) has too many processes (RLIMIT_NPROC is \(value)); check 'limits: processes'"
    case ENOMEM: return cannot + "not enough memory"
    case EMFILE, ENFILE: return cannot + (shortage(code) ?? ErrnoText.reason(code))
    case EISDIR: return cannot + "its interpreter is a directory"
    case ELIBBAD: return cannot + "its dynamic loader is damaged, or for another machine"
    case EIO: return cannot + "the device reports an input/output error"
    default: return cannot + ErrnoText.reason(code)
    }
  }

  private func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

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
    if let interpreter = Script.interpreter(of: program), access(interpreter, X_OK) != 0 {
      return "its first line names \(interpreter), which is not executable"
    }
    return "\(who) may not execute it (mode \(String(status.st_mode & 0o7777, radix: 8))); check the file and the "
      + "directories above it"
  }

  private func formatReason() -> String {
    guard let head = Script.head(of: program) else { return "not a program that this machine can run" }
    if head.isEmpty { return "the file is empty" }
    if head.starts(with: [0x7F, UInt8(ascii: "E"), UInt8(ascii: "L"), UInt8(ascii: "F")]) {
      return "it is built for another machine, or damaged"
    }
    if head.contains(0) { return "not a program that this machine can run" }
    return "a script needs an interpreter in its first line, as #!/bin/sh"
  }

  /// The limit that is probably reached, with its value.
  private func shortage(_ code: Int32) -> String? {
    switch code {
    case EAGAIN: Limits.processShortage()
    case EMFILE: "guardian has too many open files (RLIMIT_NOFILE is \(Limits.soft(.openFiles)))"
    case ENFILE:
      "the host has too many open files (fs.file-max is \(Limits.number(in: "/proc/sys/fs/file-max") ?? "unknown"))"
    case ENOMEM: "not enough memory for a process"
    default: nil
    }
  }
}

/// What the first bytes of a program tell.
enum Script {
  /// Nil where it cannot be read.
  static func head(of path: String) -> [UInt8]? {
    let raw = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    if raw < 0 { return nil }
    let descriptor = OwnedFD(adopting: raw)
    var status = stat()
    guard fstat(descriptor.number, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
    var bytes = [UInt8](repeating: 0, count: 256)
    let count = read(descriptor.number, &bytes, bytes.count)
    return count < 0 ? nil : Array(bytes.prefix(count))
  }

  /// The path behind `#!`, or nil.
  static func interpreter(of path: String) -> String? {
    guard let head = head(of: path), head.starts(with: [UInt8(ascii: "#"), UInt8(ascii: "!")]) else { return nil }
    let line = head.dropFirst(2).prefix { $0 != UInt8(ascii: "\n") }
    let words = line.split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
    guard let first = words.first else { return nil }
    // A carriage return from another system's editor is part of the name, and invisible.
    let text = String(decoding: first, as: UTF8.self)
    return text.replacingCarriageReturn
  }
}

extension String {
  fileprivate var replacingCarriageReturn: String {
    utf8.last == UInt8(ascii: "\r") ? String(decoding: utf8.dropLast(), as: UTF8.self) + "\\r" : self
  }
}

/// The limits that stop a start, with their values.
enum Limits {
  enum Kind { case processes, openFiles }

  static func soft(_ kind: Kind) -> String {
    var limit = rlimit()
    let answer =
      switch kind {
      case .processes: getrlimit(__rlimit_resource_t(__RLIMIT_NPROC.rawValue), &limit)
      case .openFiles: getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
      }
    if answer != 0 { return "unknown" }
    return limit.rlim_cur == .max ? "unlimited" : "\(limit.rlim_cur)"
  }

  /// The one word of a small file of the kernel's.
  static func number(in path: String) -> String? {
    guard let text = FileText.text(path, limit: 4096) else { return nil }
    return text.split { $0 == "\n" || $0 == " " || $0 == "\t" }.first.map(String.init)
  }

  /// EAGAIN of clone has three causes; the fullest of them is named.
  static func processShortage() -> String {
    for (current, limit) in cgroupTasks() where current >= limit {
      return "too many tasks in guardian's control group (pids.max is \(limit))"
    }
    if let threads = FileText.text("/proc/loadavg", limit: 4096)?.split(separator: " ").dropFirst(3).first?
      .split(separator: "/").last.flatMap({ Int($0) }),
      let most = number(in: "/proc/sys/kernel/pid_max").flatMap({ Int($0) }), threads >= most - most / 50
    {
      return "the host has too many processes (kernel.pid_max is \(most))"
    }
    if geteuid() != 0 { return "the user has too many processes (RLIMIT_NPROC is \(soft(.processes)))" }
    let most = number(in: "/proc/sys/kernel/pid_max") ?? "unknown"
    return "a limit of processes is reached (RLIMIT_NPROC \(soft(.processes)), kernel.pid_max \(most), or pids.max)"
  }

  /// pids.current and pids.max of our group and those above it, where the unified hierarchy has them.
  private static func cgroupTasks() -> [(Int, Int)] {
    guard let own = FileText.text("/proc/self/cgroup")?.split(separator: "\n").first(where: { $0.hasPrefix("0::/") })
    else { return [] }
    var components = own.dropFirst(3).split(separator: "/")
    var found: [(Int, Int)] = []
    while !components.isEmpty {
      let directory = "/sys/fs/cgroup/" + components.joined(separator: "/")
      if let current = number(in: directory + "/pids.current").flatMap({ Int($0) }),
        let limit = number(in: directory + "/pids.max").flatMap({ Int($0) })
      {
        found.append((current, limit))
      }
      components.removeLast()
    }
    return found
  }
}
