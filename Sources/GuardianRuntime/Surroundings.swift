import Glibc
import GuardianConfig
import GuardianControl
import GuardianLinux
import GuardianModel

/// What guardian found when it was started, and what follows from it.
struct Surroundings {
  /// Guardian's own user.
  var identity: Identity
  var language: String?
  /// The soft limit of open files that children get; nil: guardian's own, which was not raised.
  var softOpenFiles: UInt64?
  /// What children get that do not say otherwise, where guardian's own is better than that of an ordinary process (its
  /// unit gives it an OOM score of -900). Nil: they inherit. Getting worse needs no privilege.
  var nice: Int32?, oomScoreAdjust: Int32?
  var canHide = false
  /// What guardian may give to its services.
  var capabilities: Set<Capability> = []
  /// Names of the sockets that it was passed; nil: this is no daemon.
  var sockets: [String]?
  /// Orphans of services come to guardian.
  var isSubreaper = false
  /// Children that guardian had before it started anything: not its own, and never signalled.
  var inherited = Orphans.none
  /// The program was switched in place: all children are guardian's.
  var tookOver = false
  /// One sentence each, shown by `status`.
  var warnings: [String] = []

  /// What can be seen without changing anything. May ask the name service: not on the loop.
  static func look() -> Surroundings {
    let uid = geteuid()
    var surroundings = Surroundings(
      identity: Identity(user: "\(uid)", uid: uid, gid: getegid(), groups: [getegid()], home: "/", shell: "/bin/sh"))
    do throws(UserDatabase.Failure) {
      surroundings.identity = try UserDatabase.own()
    } catch {
      surroundings.warnings.append("guardian's own user is known by number only: \(error)")
    }
    surroundings.language = environmentVariable("LANG")
    surroundings.canHide = Capabilities.canMount
    surroundings.capabilities = Capabilities.permitted
    if getpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0) < 0 { surroundings.nice = 0 }
    // Better than 0 is written with a sign.
    if FileText.text("/proc/self/oom_score_adj")?.hasPrefix("-") == true { surroundings.oomScoreAdjust = 0 }
    return surroundings
  }

  /// systemd says that it started this very process.
  static var startedBySystemd: Bool {
    environmentVariable("INVOCATION_ID") != nil
      && environmentVariable("SYSTEMD_EXEC_PID").flatMap { Int32($0) } == getpid()
  }

  /// What guardian needs for itself, and what it must give back to its children.
  /// - Parameter earlier: What the program before this one found, which has changed it since.
  mutating func takeOver(_ earlier: TakeOver.Host? = nil) {
    let known = earlier?.inherited
    inherited = Orphans.scan { pid in known.map { !$0.contains(pid) } ?? false }
    tookOver = earlier != nil
    var files = rlimit()
    if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files) == 0 {
      // guardian.service raises the limit for guardian; its services get what systemd gives to any service.
      softOpenFiles =
        earlier != nil
        ? earlier?.softOpenFiles : Self.startedBySystemd ? min(1024, UInt64(files.rlim_max)) : UInt64(files.rlim_cur)
      files.rlim_cur = files.rlim_max
      _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
    }
    do throws(SystemError) {
      try Subreaper.enable()
      isSubreaper = true
    } catch {
      warnings.append("\(error): what a service leaves behind may be missed")
    }
  }

  func loader(_ directory: String) -> ConfigurationLoader {
    let own = identity
    var loader = ConfigurationLoader(
      directory: directory,
      resolveUser: { user, group in
        do throws(UserDatabase.Failure) {
          if let user { return .success(try UserDatabase.identity(user: user, groupOverride: group)) }
          var identity = own
          if let group {
            identity.gid = try UserDatabase.group(group)
            identity.groups = Set(identity.groups + [identity.gid]).sorted()
          }
          return .success(identity)
        } catch {
          return .failure(ConfigurationContext.UserProblem(error.reason))
        }
      }, canHide: canHide, capabilities: capabilities, sockets: sockets)
    loader.stopGrace = StopGrace.find()
    return loader
  }

  private var usersThatCanBeHad: String {
    let needed = ["setuid", "setgid"].compactMap { Capability(name: $0) }
    return capabilities.isSuperset(of: needed) ? "any" : "only guardian's own (uid \(identity.uid))"
  }

  /// What holds here, shown by `guardianctl version`.
  func guarantees(_ groups: GroupTable?, missing: String?) -> [DaemonVersion.Guarantee] {
    let session = isSubreaper ? "session, process group, subreaper" : "session, process group"
    return [
      .init("process-set", groups?.guarantee ?? session + (missing.map { " (no control groups: \($0))" } ?? "")),
      .init("limits", groups?.limitsInForce ?? "none of memory, tasks, cpu-weight"),
      .init("reaping", isSubreaper ? "orphans too" : "parent only"),
      .init("hide", canHide ? "absent" : "not available (needs CAP_SYS_ADMIN)"),
      .init(
        "oom-evidence",
        groups?.groups.controllers.contains(.memory) ?? false
          ? "each run's own" : access("/proc/vmstat", R_OK) == 0 ? "host-wide counter" : "none"),
      .init("journal", Journal.exists ? "yes" : "no"),
      .init("proc", access("/proc/self/stat", R_OK) == 0 ? "mounted" : "not mounted"),
      .init(
        "kernel",
        KernelCalls.missing.isEmpty
          ? "has all calls that are used"
          : KernelCalls.missing.map { "no \($0.call): \($0.instead)" }.joined(separator: "; ")),
      .init("users", usersThatCanBeHad),
      .init("process-1", Process1.isHere ? "yes" : "no"),
    ]
  }
}
