import CGuardian
import CSystemd
import Glibc
package import GuardianModel

/// The piece of the tree of control groups (version 2) that is guardian's alone, and what can be done with the groups in it.
///
/// A group has a name without a slash, and is known by it; no descriptor is kept for any. Version 1 is left alone wherever
/// it is mounted beside. Nobody is moved between groups but guardian itself: children are born in theirs.
///
/// - Source: cgroups(7), and the kernel's Documentation/admin-guide/cgroup-v2.rst.
package final class ControlGroups {
  /// Why there are none, as in `no systemd …`, without a full stop.
  package struct Unavailable: Error, Hashable, Sendable, CustomStringConvertible {
    package var description: String
    package init(_ text: String) { description = text }
  }

  package enum Controller: String, Hashable, Sendable, CaseIterable { case memory, pids, cpu }

  /// As /proc/PID/cgroup names it; never `/`.
  package let path: String
  /// Where that is mounted.
  package let directory: String
  /// Borrowed by all that is done to groups.
  private let base: OwnedFD
  /// The group that holds guardian and all this: the one that was delegated, where one was. `directory`, or above it.
  private let outer: String
  /// A controller, and why it is not in force.
  package private(set) var refused: [Controller: String] = [:]
  package private(set) var controllers: Set<Controller> = []
  /// Made by this very object, and not killed since.
  private var pristine: Set<String> = []
  /// It was found empty or made: at the end it may go.
  private let isOwn: Bool

  /// Guardian's own place, out of the way of the rule that processes and controllers are not at home in one group.
  static let supervisor = "supervisor"
  private static let runAttribute = "user.invocation_id"
  /// Deep enough for any service that has groups of its own; bounded, as the tree is others' to change.
  private static let deepest = 32

  private init(path: String, directory: String, outer: String, isOwn: Bool) throws(Unavailable) {
    let raw = Glibc.open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard raw >= 0 else { throw Unavailable("\(path) cannot be opened: \(ErrnoText.reason(errno))") }
    base = OwnedFD(adopting: raw)
    self.path = path
    self.directory = directory
    self.outer = outer
    self.isOwn = isOwn
  }

  // MARK: Finding

  /// Looks for a piece of the tree that may be used, and makes it where it is not there.
  ///
  /// - Parameters:
  ///   - identity: Tells this guardian from another on the same machine, for a group beside others: digits and letters.
  ///   - isMain: systemd has started this very process, so that a group that was delegated is guardian's and no other's.
  package static func find(_ wish: GroupsWish, identity: String, isMain: Bool) throws(Unavailable) -> ControlGroups {
    if wish == .off { throw Unavailable("switched off by 'cgroup: off'") }
    guard guardian_has_clone3() == 1 else { throw Unavailable("the kernel, or a filter, has no clone3") }
    guard let mount = Mount.find() else { throw Unavailable("no control groups of version 2 are mounted") }
    if case .path(let path) = wish {
      return try make(path, mount, outer: path, isOwn: true, forced: true)
    }
    guard let own = mount.ownGroup else { throw Unavailable("guardian's own control group cannot be seen") }
    var stem = own
    if stem.hasSuffix("/" + supervisor) { stem = String(stem.dropLast(supervisor.count + 1)) }
    let name = "guardian." + identity
    if stem.hasSuffix("/" + name) {
      let above = String(stem.dropLast(name.count + 1))
      return try make(stem, mount, outer: above.isEmpty ? "/" : above, isOwn: true)
    }
    if stem.isEmpty { stem = "/" }
    let below = stem == "/" ? "/" + name : stem + "/" + name
    if isDelegated(mount.directory(of: stem)), stem != "/" {
      return isMain
        ? try make(stem, mount, outer: stem, isOwn: false) : try make(below, mount, outer: stem, isOwn: true)
    }
    guard access("/run/systemd/system", F_OK) != 0 else {
      throw Unavailable("systemd manages the tree, and has not delegated \(stem) to guardian")
    }
    return try make(below, mount, outer: stem, isOwn: true)
  }

  private static func make(
    _ path: String, _ mount: Mount, outer: String, isOwn: Bool, forced: Bool = false
  ) throws(Unavailable) -> ControlGroups {
    let directory = mount.directory(of: path)
    var made = ""
    for part in path.split(separator: "/") {
      made += "/" + part
      let place = mount.directory(of: made)
      if mkdir(place, 0o755) != 0, errno != EEXIST {
        let why = errno
        // What is above a group that was delegated may not be ours to write to, and is there.
        if access(place, F_OK) != 0 { throw Unavailable("\(made) cannot be made: \(ErrnoText.reason(why))") }
      }
    }
    let groups = try ControlGroups(path: path, directory: directory, outer: mount.directory(of: outer), isOwn: isOwn)
    guard access(directory + "/cgroup.procs", W_OK) == 0 else {
      throw Unavailable("\(path) is not guardian's to write to: \(ErrnoText.reason(errno))")
    }
    // Whoever is born in a group needs the right to write where its way from guardian's own group branches off.
    if !forced, access(groups.outer + "/cgroup.procs", W_OK) != 0 {
      throw Unavailable("\(outer) is not guardian's to write to: \(ErrnoText.reason(errno))")
    }
    guard access(directory + "/cgroup.kill", W_OK) == 0 else { throw Unavailable("Linux 5.14 or newer is needed") }
    guard FileText.text(directory + "/cgroup.type") == "domain\n" else {
      throw Unavailable("\(path) is in a threaded part of the tree")
    }
    return groups
  }

  /// Where version 2 is mounted, alone or beside version 1.
  private struct Mount {
    let place: String
    /// What is seen there of the tree: `/`, unless a part of it is mounted.
    let root: String

    static func find() -> Mount? {
      guard let text = FileText.text("/proc/self/mountinfo", limit: 16 << 20) else { return nil }
      var found: Mount?
      for line in text.split(separator: "\n") {
        let words = line.split(separator: " ")
        guard words.count > 6, let dash = words[6...].firstIndex(of: "-"), dash + 1 < words.count,
          words[dash + 1] == "cgroup2"
        else { continue }
        let mount = Mount(place: plain(words[4]), root: plain(words[3]))
        // The usual places first; another mount of the same tree may be anybody's.
        if ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].contains(mount.place) { return mount }
        found = found ?? mount
      }
      return found
    }

    /// Blanks and the like are written in octal.
    private static func plain(_ word: Substring) -> String {
      var bytes: [UInt8] = []
      let text = Array(word.utf8)
      var at = 0
      while at < text.count {
        if text[at] == UInt8(ascii: "\\"), at + 3 < text.count,
          let byte = UInt8(String(decoding: text[(at + 1)...(at + 3)], as: UTF8.self), radix: 8)
        {
          bytes.append(byte)
          at += 4
        } else {
          bytes.append(text[at])
          at += 1
        }
      }
      return String(decoding: bytes, as: UTF8.self)
    }

    /// Nil where it is not below what is mounted.
    var ownGroup: String? {
      guard let own = ControlGroups.path(of: "self"), !own.split(separator: "/").contains("..") else { return nil }
      if root == "/" { return own }
      guard own == root || own.hasPrefix(root + "/") else { return nil }
      return own
    }

    func directory(of path: String) -> String {
      let below = root == "/" ? path : path.hasPrefix(root) ? String(path.dropFirst(root.count)) : path
      return below == "/" || below.isEmpty ? place : place + below
    }
  }

  /// The group of a process, as /proc/PID/cgroup names it. Nil where that is not to be read.
  package static func path(of process: String) -> String? {
    FileText.text("/proc/\(process)/cgroup", limit: 1 << 16)?.split(separator: "\n").first { $0.hasPrefix("0::") }
      .map { String($0.dropFirst(3)) }
  }

  /// Has a child born in a new group, to see that the kernel and its filters let it live.
  ///
  /// - Throws: Why it does not.
  package func prove() throws(Unavailable) {
    let name = "probe"
    remove(name)
    do throws(SystemError) {
      try make(name)
      let place = try open(name)
      let answer = guardian_probe_cgroup(place.number)
      remove(name)
      if answer < 0 { throw SystemError("start a process in", at(name), errno: -answer) }
      if answer == 0 { throw SystemError("keep a process alive in", at(name), errno: ECHILD) }
    } catch { throw Unavailable(error.description) }
  }

  // MARK: Controllers

  /// Moves guardian itself out of the way, where it stands in the very group that holds those of its services.
  ///
  /// - Throws: Why it could not be; guardian is then where it was.
  package func makeRoom() throws(SystemError) {
    guard Self.path(of: "self") == path else { return }
    try moveSelf()
  }

  private func moveSelf() throws(SystemError) {
    try make(Self.supervisor)
    try write("\(getpid())", to: Self.supervisor + "/cgroup.procs")
  }

  /// Puts controllers in force for the groups of services, as far as they are there; `refused` says why not.
  package func enable(_ wanted: [Controller]) {
    for controller in wanted where !controllers.contains(controller) {
      refused[controller] = refusal(of: controller)
      if refused[controller] == nil { controllers.insert(controller) }
    }
  }

  private func refusal(of controller: Controller) -> String? {
    var places = [outer]
    if outer != directory { places += inBetween() + [directory] }
    for place in places {
      let has = Self.words(place + "/cgroup.controllers")
      guard has.contains(controller.rawValue) else {
        return place == outer && outer == directory || place == outer
          ? "the kernel has no such controller here" : "it is not handed on to \(place)"
      }
      if Self.words(place + "/cgroup.subtree_control").contains(controller.rawValue) { continue }
      var error = Self.write("+\(controller.rawValue)", to: place + "/cgroup.subtree_control")
      if error == EBUSY, Self.processes(place + "/cgroup.procs") == [getpid()] {
        // It is guardian itself that is in the way.
        do throws(SystemError) {
          try moveSelf()
          error = Self.write("+\(controller.rawValue)", to: place + "/cgroup.subtree_control")
        } catch let failure { error = failure.errno }
      }
      if error == EBUSY { return "there are other processes in \(place)" }
      if error != 0 { return "\(place): \(ErrnoText.reason(error))" }
    }
    return nil
  }

  /// Directories between `outer` and `directory`, from above.
  private func inBetween() -> [String] {
    guard directory.hasPrefix(outer) else { return [] }
    var place = outer
    var found: [String] = []
    for part in directory.dropFirst(outer.count).split(separator: "/").dropLast() {
      place += "/" + part
      found.append(place)
    }
    return found
  }

  private static func words(_ path: String) -> [String] {
    (FileText.text(path) ?? "").split { $0 == " " || $0 == "\n" }.map(String.init)
  }

  /// Takes every controller out of force for what is below the delegated group in which this process is, or above it.
  ///
  /// systemd before 254 puts the next main process into that group, which the kernel refuses as long as a group below it
  /// has processes and controllers are in force.
  ///
  /// - Returns: The group, as /proc/PID/cgroup names it, and what it was that was taken out; nil where nothing was
  ///   delegated.
  package static func releaseControllers() throws(SystemError) -> (group: String, controllers: [String])? {
    guard let mount = Mount.find(), var group = mount.ownGroup else { return nil }
    for name in ["/.control", "/" + supervisor] where group.hasSuffix(name) {
      group = String(group.dropLast(name.count))
    }
    let directory = mount.directory(of: group)
    guard !group.isEmpty, group != "/", isDelegated(directory) else { return nil }
    let file = directory + "/cgroup.subtree_control"
    let inForce = words(file)
    for controller in inForce {
      let error = write("-" + controller, to: file)
      if error != 0 { throw SystemError("take \(controller) out of", file, errno: error) }
    }
    return (group, inForce)
  }

  // MARK: Groups

  /// One that is there already is as good.
  package func make(_ name: String) throws(SystemError) {
    if mkdirat(base.number, name, 0o755) == 0 {
      pristine.insert(name)
    } else if errno != EEXIST {
      throw .last("make the control group", at(name))
    }
  }

  /// Whether a run may be born in it once more, when it is empty: it was made here and `cgroup.kill` was never used on it,
  /// the last run has left no groups in it and nobody is in it; and it keeps no account of memory, which would be that of
  /// all its runs together.
  package func canBeUsedAgain(_ name: String) -> Bool {
    guard pristine.contains(name), !controllers.contains(.memory), let state = state(name), !state.populated,
      !state.frozen
    else { return false }
    var status = stat()
    // Each group in it would be a link more.
    return fstatat(base.number, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_nlink == 2
  }

  /// For `SpawnRequest.group`.
  package func open(_ name: String) throws(SystemError) -> OwnedFD {
    let raw = openat(base.number, name, O_DIRECTORY | O_CLOEXEC | Int32(GUARDIAN_O_PATH))
    if raw < 0 { throw .last("open the control group", at(name)) }
    return OwnedFD(adopting: raw)
  }

  /// The names of all groups in here but guardian's own.
  package func all() -> [String] { Self.groups(in: directory).filter { $0 != Self.supervisor && $0 != ".control" } }

  package struct State: Hashable, Sendable {
    /// Somebody lives in it, or below it. Who is dead and has not been reaped does not count.
    package var populated: Bool
    package var frozen: Bool
  }

  /// What all its processes have used of the processor, those that are gone included; nil where that is not told.
  /// Source: cgroups(7), cpu.stat.
  package func cpuTime(_ name: String) -> Duration? {
    guard let text = read(name + "/cpu.stat") else { return nil }
    for line in text.split(separator: UInt8(ascii: "\n")) {
      let words = line.split(separator: UInt8(ascii: " "))
      guard words.count == 2, words[0].elementsEqual("usage_usec".utf8) else { continue }
      return Int64(String(decoding: words[1], as: UTF8.self)).map { .microseconds($0) }
    }
    return nil
  }

  /// Nil where there is no such group.
  package func state(_ name: String) -> State? {
    let descriptor = openat(base.number, name + "/cgroup.events", O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    // Two lines, which the kernel shows whole in one read.
    var count = 0
    let text = [UInt8](unsafeUninitializedCapacity: 256) { room, initialized in
      repeat { count = Glibc.read(descriptor, room.baseAddress, room.count) } while count < 0 && errno == EINTR
      initialized = max(count, 0)
    }
    return count < 0 ? nil : Self.state(in: text)
  }

  static func state(in text: [UInt8]) -> State {
    // What cannot be read is not taken for empty.
    State(
      populated: FileText.number(after: "populated", in: text) != 0,
      frozen: FileText.number(after: "frozen", in: text) == 1)
  }

  /// Kills everybody in it and below, those who are born meanwhile included.
  ///
  /// - Returns: False where the kernel refuses; then each is to be signalled.
  package func kill(_ name: String) -> Bool {
    pristine.remove(name)
    return writes("1", to: name + "/cgroup.kill") == 0
  }

  /// Lets what was frozen go on, so that it can hear a signal. (KILL is heard by the frozen too.)
  package func thaw(_ name: String) { _ = writes("0", to: name + "/cgroup.freeze") }

  /// Who is in it or below it, as far as this pid namespace sees them.
  package func processes(_ name: String) -> [Int32] { Self.processes(below: at(name), depth: 0) }

  private static func processes(below directory: String, depth: Int) -> [Int32] {
    var found = processes(directory + "/cgroup.procs")
    if depth < deepest {
      for name in groups(in: directory) { found += processes(below: directory + "/" + name, depth: depth + 1) }
    }
    return found
  }

  private static func processes(_ file: String) -> [Int32] {
    // 0 is somebody of another namespace.
    FileText.numbers(in: FileText.read(file, limit: 16 << 20) ?? []).filter { $0 > 0 }
  }

  /// Whether `process` is in the group or below it.
  package func holds(_ name: String, _ process: Int32) -> Bool {
    guard let place = Self.path(of: String(process)) else { return false }
    let group = path + "/" + name
    return place == group || place.hasPrefix(group + "/")
  }

  /// The group of `process`, where that is one of these or below one.
  package func name(of process: Int32) -> String? {
    guard let place = Self.path(of: String(process)), place.hasPrefix(path + "/") else { return nil }
    let name = place.dropFirst(path.utf8.count + 1).prefix { $0 != "/" }
    return name.isEmpty || name == Self.supervisor ? nil : String(name)
  }

  /// Signals each process in it that is still there when its handle is open.
  ///
  /// - Returns: How many have got it.
  package func signal(_ name: String, _ signal: Signal) -> Int {
    processes(name).count { pid in
      guard pid != getpid() else { return false }
      let raw = guardian_pidfd_open(pid)
      if raw < 0 { return false }
      let handle = OwnedFD(adopting: raw)
      // Only now is it certain whom the handle holds.
      return holds(name, pid) && guardian_pidfd_signal(handle.number, signal.number) == 0
    }
  }

  /// Removes it and what is below it.
  ///
  /// - Returns: False where somebody is in it.
  @discardableResult package func remove(_ name: String) -> Bool { removal(name) == 0 }

  /// The same.
  ///
  /// - Returns: 0, or the errno of what stands in the way: EBUSY as long as somebody lives in it.
  package func removal(_ name: String) -> Int32 {
    pristine.remove(name)
    return Self.removal(at(name), depth: 0)
  }

  private static func removal(_ directory: String, depth: Int) -> Int32 {
    if rmdir(directory) == 0 || errno == ENOENT { return 0 }
    guard errno == EBUSY, depth < deepest else { return errno }
    let below = groups(in: directory)
    if below.isEmpty { return EBUSY }
    for name in below { _ = removal(directory + "/" + name, depth: depth + 1) }
    return rmdir(directory) == 0 ? 0 : errno
  }

  /// Removes all that is empty and guardian's own. What is not empty stays.
  package func removeAll() {
    for name in all() { remove(name) }
    guard isOwn, Self.path(of: "self").map({ $0 != path && !$0.hasPrefix(path + "/") }) ?? false else { return }
    remove(Self.supervisor)
    rmdir(directory)
  }

  /// A descriptor that has urgent data when somebody comes into an empty group, or the last one goes. Read `state(of:)`
  /// first, and after each time.
  package func watch(_ name: String) throws(SystemError) -> OwnedFD {
    let raw = openat(base.number, name + "/cgroup.events", O_RDONLY | O_CLOEXEC)
    if raw < 0 { throw .last("watch the control group", at(name)) }
    return OwnedFD(adopting: raw)
  }

  /// - Parameter watched: Of `watch`.
  package static func state(of watched: Int32) -> State? {
    guard lseek(watched, 0, SEEK_SET) == 0 else { return nil }
    return FileText.readAll(watched, limit: 1 << 16).map { state(in: $0) }
  }

  // MARK: What a group is told, and tells

  /// Sets limits; nil means the kernel's own.
  ///
  /// - Parameter before: What the group has: only what differs is written. Nil: not known.
  /// - Returns: What could not be set, one sentence each.
  package func limit(_ name: String, to limits: GroupLimits, before: GroupLimits?) -> [String] {
    var faults: [String] = []
    func set(
      _ key: String, _ controller: Controller, _ file: String, _ value: UInt64?, _ old: UInt64?, standard: String
    ) {
      guard controllers.contains(controller) else {
        if value != nil {
          faults.append("limits.\(key) is not in force: \(refused[controller] ?? "no such controller is in force")")
        }
        return
      }
      if before != nil, value == old { return }
      let text = value.map { $0 == .max ? "max" : "\($0)" } ?? standard
      let error = writes(text, to: name + "/" + file)
      if error != 0, value != nil { faults.append("limits.\(key) is not in force: \(ErrnoText.reason(error))") }
    }
    set("memory", .memory, "memory.max", limits.memory, before?.memory, standard: "max")
    set("tasks", .pids, "pids.max", limits.tasks, before?.tasks, standard: "max")
    set("cpu-weight", .cpu, "cpu.weight", limits.cpuWeight, before?.cpuWeight, standard: "100")
    return faults
  }

  /// How many of its processes have been killed for want of memory. Nil where nobody counts.
  package func oomKills(_ name: String) -> UInt64? {
    guard controllers.contains(.memory) else { return nil }
    return read(name + "/memory.events").flatMap { FileText.number(after: "oom_kill", in: $0) }
  }

  /// What the group's files say of its memory; nil where they say nothing.
  package func memoryEvidence(_ name: String) -> CrashReport.MemoryEvidence? {
    var evidence = CrashReport.MemoryEvidence()
    func lines(_ file: String) -> [Substring] {
      read(name + "/" + file).map { String(decoding: $0, as: UTF8.self).split(separator: "\n") } ?? []
    }
    if controllers.contains(.memory) {
      evidence.peak = lines("memory.peak").first.flatMap { UInt64($0) }
      evidence.events = lines("memory.events").filter { !$0.hasSuffix(" 0") }.prefix(16).map(String.init)
    }
    evidence.pressure =
      lines("memory.pressure").first { $0.hasPrefix("some ") && !$0.hasSuffix("total=0") }.map(String.init) ?? ""
    return evidence.isEmpty ? nil : evidence
  }

  /// Whose group it is, for whoever comes after guardian.
  package func mark(_ name: String, _ run: RunID) {
    let text = Array(run.description.utf8)
    _ = setxattr(at(name), Self.runAttribute, text, text.count, 0)
  }

  /// Nil where nobody has said, or the kernel keeps no such marks (before 5.7).
  package func run(of name: String) -> RunID? {
    var text = [UInt8](repeating: 0, count: 64)
    let length = getxattr(at(name), Self.runAttribute, &text, text.count)
    return length > 0 ? RunID(hexadecimal: text[..<length]) : nil
  }

  // MARK: Files

  private func at(_ name: String) -> String { directory + "/" + name }

  private func read(_ file: String) -> [UInt8]? {
    let raw = openat(base.number, file, O_RDONLY | O_CLOEXEC)
    if raw < 0 { return nil }
    let descriptor = OwnedFD(adopting: raw)
    return FileText.readAll(descriptor.number, limit: 1 << 16)
  }

  private func write(_ text: String, to file: String) throws(SystemError) {
    let error = writes(text, to: file)
    if error != 0 { throw SystemError("write to", at(file), errno: error) }
  }

  /// 0 or errno.
  private func writes(_ text: String, to file: String) -> Int32 {
    Self.write(text, openat(base.number, file, O_WRONLY | O_CLOEXEC))
  }

  private static func write(_ text: String, to file: String) -> Int32 {
    write(text, Glibc.open(file, O_WRONLY | O_CLOEXEC))
  }

  private static func write(_ text: String, _ raw: Int32) -> Int32 {
    if raw < 0 { return errno }
    let descriptor = OwnedFD(adopting: raw)
    let bytes = Array(text.utf8)
    return Glibc.write(descriptor.number, bytes, bytes.count) == bytes.count ? 0 : errno
  }

  private static func groups(in directory: String) -> [String] {
    guard let stream = opendir(directory) else { return [] }
    defer { closedir(stream) }
    var found: [String] = []
    while let entry = readdir(stream) {
      guard entry.pointee.d_type == UInt8(DT_DIR) else { continue }
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { found.append(name) }
    }
    return found.sorted()
  }
}
