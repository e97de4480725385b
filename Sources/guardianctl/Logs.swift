import CZlib
import GuardianControl
import GuardianModel
import Glibc

/// `guardianctl logs`: what one service has written, from its files or from the journal.
///
/// Files are read here, by the caller's own right; guardian says no more than where they are.
struct LogReader {
  let invocation: Invocation
  /// A terminal is not steered by what a service writes.
  private let escaped = isatty(STDOUT_FILENO) == 1
  private let width = standardStyle().width
  private var out: [UInt8] = []
  /// Of a file no more than its end is read.
  private static let longestFile = 256 << 20
  private static let pause: Int32 = 200

  init(_ invocation: Invocation) { self.invocation = invocation }

  struct Fault: Error {
    var status: Int32, word: String, text: String
    init(_ status: Int32, _ word: String, _ text: String) {
      self.status = status
      self.word = word
      self.text = text
    }
    static func failed(_ text: String) -> Fault { Fault(ExitCode.failed, "failed", text) }
  }

  private var wanted: String? { invocation.run }
  private var limit: Int? { invocation.lines ?? (wanted == nil ? 100 : nil) }

  // MARK: Files

  private struct Place {
    var directory: Int32, path: String
    /// Those that were put aside before `current` was begun, oldest first.
    var aside: [String]
    /// Open, or -1 where there is none.
    var current: Int32
  }

  private func open(_ current: String) throws(Fault) -> Place {
    guard let slash = current.lastIndex(of: "/") else { throw .failed("\(current) is no path") }
    let path = String(current[..<slash])
    let directory = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    guard directory >= 0 else { throw unreadable(path) }
    var place = Place(directory: directory, path: path, aside: [], current: -1)
    openCurrent(&place)
    if place.current < 0, errno != ENOENT || place.aside.isEmpty && !invocation.follow {
      let fault = unreadable(current)
      close(directory)
      throw fault
    }
    return place
  }

  /// As `current` is only what was begun after the last one was put aside, it is looked twice what was.
  private func openCurrent(_ place: inout Place) {
    place.aside = Self.names(place.directory)
    for _ in 0..<100 {
      place.current = Self.open(LogFormat.current, in: place)
      let failed = errno
      let now = Self.names(place.directory)
      errno = failed
      if Self.plain(now.last) == Self.plain(place.aside.last) { return }
      if place.current >= 0 { close(place.current) }
      place.current = -1
      place.aside = now
    }
  }

  /// The name that it had before it was compressed.
  private static func plain(_ name: String?) -> String {
    guard let name else { return "" }
    return name.hasSuffix(".gz") ? String(name.dropLast(3)) : name
  }

  private func unreadable(_ path: String) -> Fault {
    switch errno {
    case EACCES, EPERM: Fault(ExitCode.notPermitted, "not-permitted", "not permitted to read \(path)")
    case ENOENT: .failed("nothing has been written yet: there is no \(path)")
    default: .failed("cannot read \(path): \(reason(errno))")
    }
  }

  private static func names(_ directory: Int32) -> [String] {
    let own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard own >= 0, let stream = fdopendir(own) else { return [] }
    defer { closedir(stream) }
    var aside: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if LogFormat.isAside(name) { aside.append(name) }
    }
    // While one is being compressed it is there twice.
    let packed = Set(aside.filter { $0.hasSuffix(".gz") })
    return aside.filter { !packed.contains($0 + ".gz") }.sorted()
  }

  private static func open(_ name: String, in place: Place) -> Int32 {
    openat(place.directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
  }

  /// From `descriptor`, which is closed where the file is compressed.
  private static func content(_ descriptor: Int32, packed: Bool) -> [UInt8] {
    var bytes: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 256 << 10)
    if packed {
      guard let file = gzdopen(descriptor, "rb") else { return [] }
      defer { gzclose(file) }
      while bytes.count < longestFile {
        let got = gzread(file, &buffer, UInt32(buffer.count))
        if got <= 0 { break }
        bytes += buffer[..<Int(got)]
      }
      return bytes
    }
    var about = stat()
    if fstat(descriptor, &about) == 0, about.st_size > longestFile {
      lseek(descriptor, about.st_size - off_t(longestFile), SEEK_SET)
    }
    while true {
      let got = read(descriptor, &buffer, buffer.count)
      if got < 0, errno == EINTR { continue }
      if got <= 0 { return bytes }
      bytes += buffer[..<got]
    }
  }

  /// - Returns: The exit status.
  mutating func showFiles(_ current: String, json: (([LogEntry]) -> Void)?) throws(Fault) -> Int32 {
    let place = try open(current)
    defer { close(place.directory) }
    // So many of the latest files that the wanted lines are in them.
    var contents: [[UInt8]] = []
    var lines = 0
    func isEnough() -> Bool {
      guard let limit, wanted == nil, let last = contents.last else { return false }
      lines += last.reduce(0) { $0 + ($1 == UInt8(ascii: "\n") ? 1 : 0) }
      // Some of them are the logger's own.
      return lines > limit + 16
    }
    defer { if place.current >= 0 { close(place.current) } }
    contents.append(place.current < 0 ? [] : Self.content(place.current, packed: false))
    if !isEnough() {
      for name in place.aside.reversed() {
        let descriptor = Self.open(name, in: place)
        guard descriptor >= 0 else {
          // It may have been compressed since.
          if errno == ENOENT { continue }
          throw unreadable("\(place.path)/\(name)")
        }
        let packed = name.hasSuffix(".gz")
        contents.append(Self.content(descriptor, packed: packed))
        if !packed { close(descriptor) }
        if isEnough() { break }
      }
    }
    var unfinished: [UInt8] = []
    var scanner = LogScanner(run: wanted)
    var kept: [LogEntry] = []
    var texts = 0
    for (index, content) in contents.reversed().enumerated() {
      scanner.beginFile()
      var rest = content[...]
      while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
        if let entry = scanner.take(rest[..<end]) {
          if json == nil, limit == nil {
            out += entry.rendered(escaped: escaped, width: width)
            guard flush(atLeast: 64 << 10) else { return ExitCode.failed }
          } else {
            kept.append(entry)
            if !entry.isNote { texts += 1 }
            // Twice as many as are wanted, so that few are moved.
            if let limit, kept.count > 2 * limit + 64 { Self.cut(&kept, &texts, to: limit) }
          }
        }
        rest = rest[(end + 1)...]
      }
      if index == contents.count - 1 { unfinished = Array(rest) }
    }
    if let limit { Self.cut(&kept, &texts, to: limit) }
    if let wanted, !scanner.found, !invocation.follow {
      throw .failed("no output of run \(wanted) is there (any more)")
    }
    if let json {
      json(kept)
      return ExitCode.done
    }
    for entry in kept { out += entry.rendered(escaped: escaped, width: width) }
    guard flush(atLeast: 1) else { return ExitCode.failed }
    return invocation.follow ? follow(place, unfinished, scanner) : ExitCode.done
  }

  /// The last `limit` lines, with what the logger says between them.
  private static func cut(_ entries: inout [LogEntry], _ texts: inout Int, to limit: Int) {
    var first = entries.count, count = 0
    while first > 0 {
      if !entries[first - 1].isNote {
        if count == limit { break }
        count += 1
      }
      first -= 1
    }
    entries.removeFirst(first)
    texts = count
  }

  /// Until nobody reads what is printed. Files that are put aside meanwhile are read to their ends.
  private mutating func follow(_ opened: Place, _ begun: [UInt8], _ scan: LogScanner) -> Int32 {
    var (place, rest, scanner) = (opened, begun, scan)
    place.current = opened.current < 0 ? -1 : dup(opened.current)
    defer { if place.current >= 0 { close(place.current) } }
    var buffer = [UInt8](repeating: 0, count: 256 << 10)
    while true {
      // Before it is read: what was put aside by now is complete.
      let newer = Self.names(place.directory).filter { Self.plain($0) > Self.plain(place.aside.last) }
      while place.current >= 0 {
        let got = read(place.current, &buffer, buffer.count)
        if got < 0, errno == EINTR { continue }
        if got <= 0 { break }
        rest += buffer[..<got]
        guard print(&rest, &scanner) else { return ExitCode.failed }
      }
      if newer.isEmpty {
        guard wait() else { return ExitCode.failed }
        if place.current < 0 { openCurrent(&place) }
        continue
      }
      // The first of them is what has just been read, unless that was removed.
      for (index, name) in newer.enumerated() where index > 0 || !isCurrent(name, place) {
        let packed = name.hasSuffix(".gz")
        var opened = Self.open(name, in: place)
        if opened < 0, !packed { opened = Self.open(name + ".gz", in: place) }
        guard opened >= 0 else { continue }
        scanner.beginFile()
        rest = Self.content(opened, packed: packed)
        if !packed { close(opened) }
        guard print(&rest, &scanner) else { return ExitCode.failed }
      }
      if place.current >= 0 { close(place.current) }
      place.aside = newer
      place.current = -1
      let known = place.aside.last
      openCurrent(&place)
      // Put aside since the look at the top: it comes with the next one.
      if Self.plain(place.aside.last) != Self.plain(known) {
        if place.current >= 0 { close(place.current) }
        place.current = -1
        place.aside = newer
        continue
      }
      rest = []
      scanner.beginFile()
    }
  }

  /// What was open as `current`, under the name that it has got; of one that was compressed only its place tells.
  private func isCurrent(_ name: String, _ place: Place) -> Bool {
    guard place.current >= 0 else { return false }
    if name.hasSuffix(".gz") { return true }
    var own = stat(), about = stat()
    guard fstat(place.current, &own) == 0,
      fstatat(place.directory, name, &about, AT_SYMLINK_NOFOLLOW) == 0
    else { return true }
    return about.st_ino == own.st_ino && about.st_dev == own.st_dev
  }

  private mutating func print(_ bytes: inout [UInt8], _ scanner: inout LogScanner) -> Bool {
    var rest = bytes[...]
    while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
      if let entry = scanner.take(rest[..<end]) { out += entry.rendered(escaped: escaped, width: width) }
      rest = rest[(end + 1)...]
    }
    bytes = Array(rest)
    return flush(atLeast: 1)
  }

  /// A moment, unless whoever reads has gone.
  private func wait() -> Bool {
    var reader = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
    _ = poll(&reader, 1, Self.pause)
    return reader.revents & Int16(POLLERR | POLLHUP | POLLNVAL) == 0
  }

  private mutating func flush(atLeast: Int) -> Bool {
    guard out.count >= atLeast else { return true }
    var output = Output()
    // A file or a pipe has the service's own bytes.
    output.isText = escaped
    output.bytes = out
    out = []
    return output.flush()
  }

  // MARK: The journal

  private static func journalctl() throws(Fault) -> String {
    let usual: [String] = ["/usr/bin/journalctl", "/bin/journalctl"]
    guard let path = usual.first(where: { access($0, X_OK) == 0 }) else {
      throw .failed("its output is in the journal, and journalctl is not there to read it")
    }
    return path
  }

  /// What to ask journalctl for, without how it is to be shown.
  private func question(_ status: ServiceStatus, _ program: String) throws(Fault) -> [String] {
    var arguments = ["--quiet", "--no-pager", "_TRANSPORT=stdout", "SYSLOG_IDENTIFIER=\(status.name)"]
    if let wanted {
      guard let span = span(of: wanted, status, program) else {
        throw .failed("the journal knows of no run \(wanted)")
      }
      let since = "--since=@\(Self.seconds(span.since - 1_000_000))"
      if let stream = stream(span, arguments + [since], program) {
        arguments.append("_STREAM_ID=\(stream)")
      } else {
        // Its main process has said nothing: what others of it said is of its time.
        arguments.append("--since=@\(Self.seconds(span.since - 100_000))")
        if let until = span.until { arguments.append("--until=@\(Self.seconds(until + 100_000))") }
      }
    }
    if let limit { arguments.append("--lines=\(limit)") }
    return arguments
  }

  /// What journald calls the stream of a run; nil where it does not tell.
  private func stream(
    _ span: (since: Int64, until: Int64?, pid: Int32?), _ question: [String], _ program: String
  ) -> String? {
    guard let pid = span.pid,
      let answer = GuardianProgram.run(
        program, question + ["--output=json", "--output-fields=_STREAM_ID,_PID", "--lines=1", "_PID=\(pid)"])
    else { return nil }
    let line = answer.output.split(separator: UInt8(ascii: "\n")).first.flatMap { journalLine($0) }
    return line.flatMap { $0.stream.isEmpty ? nil : $0.stream }
  }

  /// A run's lines carry no id: they are those of its stream, or of its time.
  private func span(
    of run: String, _ status: ServiceStatus, _ program: String
  ) -> (since: Int64, until: Int64?, pid: Int32?)? {
    // Only a whole id can be asked for.
    var id = run
    if let current = status.run, current.hasPrefix(run) {
      id = current
      if let uptime = status.uptimeMilliseconds {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return (Int64(now.tv_sec) * 1_000_000 + Int64(now.tv_nsec) / 1000 - uptime * 1000, nil, status.pid)
      }
    }
    guard id.utf8.count == 32,
      let answer = GuardianProgram.run(
        program, ["--quiet", "--no-pager", "--output=json", "GUARDIAN_RUN=\(id)", "SYSLOG_IDENTIFIER=guardian"])
    else { return nil }
    return journalSpan(answer.output)
  }

  private static func seconds(_ micro: Int64) -> String {
    let rest = String(max(0, micro) % 1_000_000)
    return "\(max(0, micro) / 1_000_000)." + String(repeating: "0", count: 6 - rest.utf8.count) + rest
  }

  /// Becomes journalctl, or gives `json` what that says.
  mutating func showJournal(_ status: ServiceStatus, json: (([LogEntry]) -> Void)?) throws(Fault) -> Int32 {
    let program = try Self.journalctl()
    var arguments = try question(status, program)
    if let json {
      guard let answer = GuardianProgram.run(program, arguments + ["--output=json", "--all"]) else {
        throw .failed("cannot run \(program): \(reason(errno))")
      }
      json(answer.output.split(separator: UInt8(ascii: "\n")).compactMap { journalLine($0)?.entry })
      return answer.status == 0 ? ExitCode.done : ExitCode.failed
    }
    arguments.append("--output=short-iso-precise")
    if invocation.follow { arguments.append("--follow") }
    throw .failed("cannot run \(program): \(reason(GuardianProgram.become(program, arguments)))")
  }

  // MARK: Without guardian

  /// Where a guardian with nothing else said to it would write.
  static func usualFile(_ name: String, _ target: Invocation.Target) -> String? {
    var places: [String] = []
    if target == .user || target == .automatic && geteuid() != 0 {
      if let state = variable("XDG_STATE_HOME"), state.hasPrefix("/") {
        places.append(state + "/guardian/log")
      } else if let home = variable("HOME"), home.hasPrefix("/") {
        places.append(home + "/.local/state/guardian/log")
      }
    }
    if target == .system || target == .automatic { places.append("/var/log/guardian") }
    return places.map { "\($0)/\(name)/\(LogFormat.current)" }.first { access($0, F_OK) == 0 }
  }
}

extension Program {
  /// One service, in full.
  private func ask(_ name: String, _ invocation: Invocation) throws(Daemon.Fault) -> Answer<ServiceStatus, ControlError>
  {
    let daemon = try Daemon.connect(to: invocation.target)
    let list = ControlRequest.list(names: [name], brief: false)
    try daemon.send([ControlCall(list, more: true)])
    var answer: Answer<ServiceStatus, ControlError> = .failure(.noSuchService(name: name))
    try daemon.replies(to: list, patience: 10) { body in
      if case .services(let services, _) = body, let service = services.first { answer = .success(service) }
      if case .error(let error) = body { answer = .failure(error) }
    }
    return answer
  }

  mutating func logs(_ invocation: Invocation) -> Int32 {
    let name = invocation.names.first ?? ""
    var status: ServiceStatus?
    do throws(Daemon.Fault) {
      switch try ask(name, invocation) {
      case .success(let found): status = found
      case .failure(let error): return fail(error, json: invocation.json)
      }
    } catch {
      // Whoever asks then wants to know it most.
      guard case .unreachable = error, ServiceName(name) != nil,
        let file = LogReader.usualFile(name, invocation.target)
      else { return fail(error, json: invocation.json) }
      status = ServiceStatus(name: name)
      status?.log = "file"
      status?.logFile = file
    }
    guard let status else { return ExitCode.failed }
    var entries: [LogEntry]?
    let json: (([LogEntry]) -> Void)? = invocation.json ? { entries = $0 } : nil
    var reader = LogReader(invocation)
    do throws(LogReader.Fault) {
      let code: Int32
      switch status.log {
      case "journal": code = try reader.showJournal(status, json: json)
      case "none": throw .failed("nothing is kept of what \(name) writes (log: none)")
      case "inherit": throw .failed("\(name) writes where guardian itself does (log: inherit)")
      default:
        guard let file = status.logFile else {
          throw .failed(
            status.log == "degraded"
              ? "\(name) writes where guardian itself does: the journal could not be had when it was started"
              : "\(name) has not run yet")
        }
        code = try reader.showFiles(file, json: json)
      }
      if let entries {
        self.json { json in
          json.key("service")
          json.string(name)
          json.key("log")
          json.string(status.log)
          json.key("lines")
          json.beginArray()
          for entry in entries where !entry.isMark { entry.encode(into: &json) }
          json.endArray()
        }
      }
      return code
    } catch {
      return fail(error.status, error.word, error.text, json: invocation.json)
    }
  }
}
