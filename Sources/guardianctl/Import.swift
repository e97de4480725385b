import Glibc
import GuardianControl
import GuardianImport
import GuardianModel

/// `import`: reads what was written for other supervisors, and writes services.
struct Importing {
  /// A whole file that nobody writes by hand is larger.
  private static let largest = 1 << 20
  private static let mostFiles = 512
  /// Where systemd looks, what comes first wins.
  private static let unitDirectories = [
    "/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
    "/lib/systemd/system",
  ]

  struct Fault: Error { var text: String }

  enum Source {
    case unit(UnitSource)
    case supervisord(SupervisordSource)
    case runit(RunitSource)

    var names: [String] {
      switch self {
      case .unit(let unit): [unit.name]
      case .runit(let directory): [directory.name]
      case .supervisord: []
      }
    }

    /// - Parameter services: those that the services may name.
    func imported(beside services: Set<String>) -> Imported {
      switch self {
      case .unit(var unit):
        unit.services = services
        return unit.imported
      case .runit(var directory):
        directory.services = services
        return directory.imported
      case .supervisord(let configuration): return configuration.imported
      }
    }
  }

  static func read(_ path: String) throws(Fault) -> Source {
    if path.hasSuffix(".service") { return .unit(try unit(path)) }
    var information = stat()
    guard stat(path, &information) == 0 else { throw Fault(text: "cannot read \(path): \(reason(errno))") }
    if information.st_mode & S_IFMT == S_IFDIR { return .runit(try runit(path)) }
    let text = try file(path).text
    if text.contains("[program:") || text.contains("[supervisord]") || text.contains("[include]") {
      return .supervisord(try supervisord(path, text))
    }
    throw Fault(
      text: "\(path) is none of UNIT.service, a supervisord.conf with a [program:…], and a directory with a 'run'")
  }

  // MARK: systemd

  private static func unit(_ path: String) throws(Fault) -> UnitSource {
    var host = utsname()
    uname(&host)
    let name = String(path.split(separator: "/").last ?? "")
    var candidates = [path]
    if !path.contains("/") { candidates += unitDirectories.map { "\($0)/\(path)" } }
    // An instance is what its template says.
    if let at = name.firstIndex(of: "@") {
      candidates += candidates.map { String($0.dropLast(name.count)) + name[...at] + ".service" }
    }
    guard let found = candidates.first(where: isFile) else {
      throw Fault(text: "cannot read \(path): \(reason(ENOENT))")
    }
    var files = [try file(found)]
    let beside = found.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
    var directories = [beside.isEmpty ? "." : beside]
    if unitDirectories.contains(beside) { directories = unitDirectories }
    var units = [name]
    let own = String(found.split(separator: "/").last ?? "")
    if own != name { units.append(own) }
    // Of one name the first counts, and all are read in the order of their names.
    var extra: [String: String] = [:]
    for directory in directories {
      for unit in units {
        for entry in entries("\(directory)/\(unit).d") where entry.hasSuffix(".conf") && extra[entry] == nil {
          extra[entry] = (directory == "." && !found.contains("/") ? "" : directory + "/") + "\(unit).d/\(entry)"
        }
      }
    }
    for entry in extra.keys.sorted().prefix(mostFiles) { if let path = extra[entry] { files.append(try file(path)) } }
    return UnitSource(unit: name, files: files, host: nodeName())
  }

  private static func nodeName() -> String {
    var bytes = [CChar](repeating: 0, count: 256)
    guard gethostname(&bytes, bytes.count - 1) == 0 else { return "" }
    return String(decoding: bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  // MARK: supervisord

  private static func supervisord(_ path: String, _ text: String) throws(Fault) -> SupervisordSource {
    var files = [ImportedFile(name: path, text: text)]
    let whole = absolute(path)
    let here = whole.split(separator: "/").dropLast().map { "/" + $0 }.joined()
    for pattern in SupervisordSource.includes(text, here: here.isEmpty ? "/" : here) {
      for found in matches(pattern) where files.count < mostFiles { files.append(try file(found)) }
    }
    var environment: [String: String] = [:]
    for name in namesOfVariables() { environment[name] = variable(name) ?? "" }
    return SupervisordSource(
      files: files, here: here.isEmpty ? "/" : here, host: nodeName(), environment: environment,
      find: { name in
        let path = (variable("PATH") ?? "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return path.split(separator: ":").map { "\($0)/\(name)" }.first {
          $0.hasPrefix("/") && isFile($0) && access($0, X_OK) == 0
        }
      })
  }

  private static func namesOfVariables() -> [String] {
    var names: [String] = []
    var next = environ
    while let entry = next.pointee {
      names.append(String(String(cString: entry).prefix { $0 != "=" }))
      next += 1
    }
    return names
  }

  private static func matches(_ pattern: String) -> [String] {
    var found = glob_t()
    defer { globfree(&found) }
    guard glob(pattern, 0, nil, &found) == 0 else { return [] }
    return (0..<Int(found.gl_pathc)).compactMap { index in found.gl_pathv?[index].map { String(cString: $0) } }
  }

  // MARK: runit

  private static func runit(_ path: String) throws(Fault) -> RunitSource {
    let directory = absolute(path)
    guard isFile(directory + "/run") else {
      throw Fault(text: "\(path) has no 'run', and so is no service directory of runit")
    }
    var files: [ImportedFile] = []
    for entry in entries(directory).sorted() where entry != "supervise" && entry != "event" {
      if isFile("\(directory)/\(entry)") {
        files.append(ImportedFile(name: entry, text: try file("\(directory)/\(entry)").text))
      } else {
        for inner in entries("\(directory)/\(entry)").sorted()
        where isFile("\(directory)/\(entry)/\(inner)") && files.count < mostFiles {
          files.append(ImportedFile(name: "\(entry)/\(inner)", text: try file("\(directory)/\(entry)/\(inner)").text))
        }
      }
    }
    return RunitSource(directory: directory, files: files)
  }

  // MARK: Files

  private static func isFile(_ path: String) -> Bool {
    var information = stat()
    return stat(path, &information) == 0 && information.st_mode & S_IFMT == S_IFREG
  }

  private static func absolute(_ path: String) -> String {
    guard let found = realpath(path, nil) else { return path }
    defer { free(found) }
    return String(cString: found)
  }

  /// Without those that begin with a dot; empty where it cannot be read.
  static func entries(_ directory: String) -> [String] {
    guard let stream = opendir(directory) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      if !name.hasPrefix(".") { names.append(name) }
    }
    return names
  }

  private static func file(_ path: String) throws(Fault) -> ImportedFile {
    // No FIFO keeps anybody waiting.
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else { throw Fault(text: "cannot read \(path): \(reason(errno))") }
    defer { close(descriptor) }
    var bytes: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = Glibc.read(descriptor, &buffer, buffer.count)
      if count < 0, errno == EINTR { continue }
      if count < 0 { throw Fault(text: "cannot read \(path): \(reason(errno))") }
      if count == 0 { break }
      bytes += buffer[..<count]
      if bytes.count > largest { throw Fault(text: "\(path) is larger than \(largest >> 20) MiB") }
    }
    return ImportedFile(name: path, text: String(decoding: bytes, as: UTF8.self))
  }

  /// A file that is new, or takes another's place in one step.
  static func write(_ text: String, to path: String, force: Bool) throws(Fault) {
    let target = force ? path + ".new" : path
    let descriptor = open(target, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (force ? O_TRUNC : O_EXCL), 0o644)
    guard descriptor >= 0 else {
      let error = errno
      throw Fault(
        text: error == EEXIST
          ? "\(path) is there already; --force replaces it" : "cannot write \(path): \(reason(error))")
    }
    var rest = Array(text.utf8)[...]
    var problem: Int32 = 0
    while !rest.isEmpty, problem == 0 {
      let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
      if count >= 0 { rest = rest.dropFirst(count) } else if errno != EINTR { problem = errno }
    }
    if close(descriptor) != 0, problem == 0 { problem = errno }
    if problem == 0, force, rename(target, path) != 0 { problem = errno }
    if problem != 0 {
      unlink(target)
      throw Fault(text: "cannot write \(path): \(reason(problem))")
    }
  }
}

extension Program {
  mutating func importing(_ invocation: Invocation) -> Int32 {
    var sources: [Importing.Source] = [], paths: [String] = []
    // A path of which nothing comes takes nothing from the others.
    var faults: [String] = []
    for path in invocation.names {
      do throws(Importing.Fault) {
        sources.append(try Importing.read(path))
        paths.append(path)
      } catch {
        faults.append(error.text)
      }
    }
    // What the services may name: those of this call, and those that are there.
    var known = Set(sources.flatMap(\.names))
    for entry in invocation.output.map(Importing.entries) ?? [] where entry.hasSuffix(".yaml") {
      known.insert(String(entry.dropLast(".yaml".utf8.count)))
    }
    let all = sources.map { $0.imported(beside: known) }
    for (path, made) in zip(paths, all) where made.services.isEmpty {
      faults.append("there is no service in \(invocation.names.count > 1 ? path : "it")")
    }
    let services = all.flatMap(\.services)
    let remarks = all.flatMap(\.remarks)
    if !invocation.json { for remark in remarks { tell(remark) } }
    var seen: Set<String> = []
    for service in services where !seen.insert(service.name).inserted {
      return fail(
        ExitCode.failed, "failed", "two services would be called \(service.name)", json: invocation.json)
    }
    for fault in faults { complain(fault) }
    let status = faults.isEmpty ? ExitCode.done : ExitCode.failed
    var targets: [String?] = services.map { _ in nil }
    if let directory = invocation.output {
      targets = services.map { "\(directory)/\($0.name).yaml" }
      // All or nothing, as far as that can be known before.
      for case let path? in targets where !invocation.force && access(path, F_OK) == 0 {
        return fail(ExitCode.failed, "failed", "\(path) is there already; --force replaces it", json: invocation.json)
      }
      for (service, path) in zip(services, targets) {
        guard let path else { continue }
        do throws(Importing.Fault) {
          try Importing.write(service.yaml, to: path, force: invocation.force)
        } catch {
          return fail(ExitCode.failed, "failed", error.text, json: invocation.json)
        }
      }
    }
    if invocation.json {
      json { json in
        json.key("services")
        json.beginArray()
        for (service, path) in zip(services, targets) {
          json.beginObject()
          json.key("name")
          json.string(service.name)
          json.key("path")
          if let path { json.string(path) } else { json.null() }
          json.key("yaml")
          json.string(service.yaml)
          json.key("carried")
          json.beginArray()
          for line in service.carried {
            json.beginObject()
            json.key("file")
            json.string(line.file)
            json.key("line")
            json.integer(line.line)
            json.key("what")
            json.string(line.what)
            json.key("key")
            json.string(line.key)
            json.endObject()
          }
          json.endArray()
          Self.write(service.remarks, into: &json)
          json.endObject()
        }
        json.endArray()
        Self.write(remarks, into: &json)
        guard !faults.isEmpty else { return }
        json.key("error")
        json.beginObject()
        json.key("name")
        json.string("failed")
        json.key("message")
        json.string(faults.joined(separator: "; "))
        json.endObject()
      }
      return status
    }
    for (service, path) in zip(services, targets) {
      if let path {
        output.bytes += "\(printable(path))\n".utf8
      } else {
        output.bytes += ((services.count > 1 ? "--- # \(service.name).yaml\n" : "") + service.yaml).utf8
      }
    }
    for service in services {
      for remark in service.remarks { tell(remark) }
      func count(_ kind: Remark.Kind) -> Int { service.remarks.filter { $0.kind == kind }.count }
      complain(
        "\(service.name): \(counted(service.carried.count, "line")) carried over, \(count(.changed)) with a difference, "
          + "\(count(.lost)) not carried over, \(count(.needless)) not needed")
    }
    return status
  }

  private static func write(_ remarks: [Remark], into json: inout JSONWriter) {
    json.key("remarks")
    json.beginArray()
    for remark in remarks {
      json.beginObject()
      json.key("kind")
      json.string(remark.kind.rawValue)
      json.key("file")
      json.string(remark.file)
      json.key("line")
      if let line = remark.line { json.integer(line) } else { json.null() }
      json.key("what")
      json.string(remark.what)
      json.key("why")
      json.string(remark.why)
      json.endObject()
    }
    json.endArray()
  }

  /// As a compiler would say it, so that an editor finds the line.
  private func tell(_ remark: Remark) {
    var line = Array((printable(remark.description) + "\n").utf8)
    if !errorStyle().unicode { line = plainASCII(line) }
    _ = line.withUnsafeBytes { Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
  }
}
