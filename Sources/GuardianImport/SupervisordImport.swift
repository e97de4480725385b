/// A configuration of supervisord, with the files that it includes.
package struct SupervisordSource: Hashable, Sendable {
  /// supervisord.conf, then what its [include] names, in the order of the names.
  package var files: [ImportedFile]
  /// The directory of the first, for %(here)s.
  package var here: String
  package var host: String
  /// For %(ENV_X)s.
  package var environment: [String: String]
  /// Where a program without a path is found; nil: nowhere.
  package var find: @Sendable (String) -> String?

  package init(
    files: [ImportedFile], here: String, host: String = "", environment: [String: String] = [:],
    find: @escaping @Sendable (String) -> String? = { _ in nil }
  ) {
    self.files = files
    self.here = here
    self.host = host
    self.environment = environment
    self.find = find
  }
  package static func == (a: SupervisordSource, b: SupervisordSource) -> Bool { a.files == b.files && a.here == b.here }
  package func hash(into hasher: inout Hasher) { hasher.combine(files) }

  package var imported: Imported {
    var work = SupervisordImport(self)
    return work.result()
  }

  /// What [include] names, relative to `here` where it is not absolute.
  package static func includes(_ text: String, here: String) -> [String] {
    IniFile(ImportedFile(name: "", text: text)).sections.filter { $0.name == "include" }.flatMap { section in
      section.options.filter { $0.key == "files" }.flatMap { option in
        option.value.split { " \t\n".contains($0) }.map { pattern in
          let path = pattern.split(separator: "%(here)s", omittingEmptySubsequences: false).joined(separator: here)
          return path.hasPrefix("/") ? path : here + "/" + path
        }
      }
    }
  }
}

/// Sections of `key = value` as Python's configuration parser reads them: a line that begins with a blank goes on with
/// the value above it.
struct IniFile {
  struct Option { var key: String, value: String, place: Place }
  struct Section { var name: String, place: Place, options: [Option] = [] }
  var sections: [Section] = []
  var faults: [(place: Place, why: String)] = []

  init(_ file: ImportedFile) {
    for (index, line) in file.text.lines.enumerated() {
      let bare = Self.withoutComment(line).trimmed
      let place = Place(file: file.name, line: index + 1, what: bare)
      if bare.isEmpty || bare.hasPrefix("#") || bare.hasPrefix(";") { continue }
      let last = sections.count - 1
      if line.first == " " || line.first == "\t", last >= 0, let option = sections[last].options.indices.last {
        sections[last].options[option].value += "\n" + bare
      } else if bare.hasPrefix("["), bare.hasSuffix("]") {
        sections.append(Section(name: String(bare.dropFirst().dropLast()).trimmed, place: place))
      } else if let separator = bare.firstIndex(where: { $0 == "=" || $0 == ":" }), last >= 0 {
        sections[last].options.append(
          Option(
            key: String(bare[..<separator]).trimmed.lowercased(),
            value: String(bare[bare.index(after: separator)...]).trimmed, place: place))
      } else {
        faults.append((place, last < 0 ? "it stands before the first section" : "it is no assignment"))
      }
    }
    for index in sections.indices {
      for option in sections[index].options where option.value.hasBrokenBytes {
        faults.append((option.place, brokenBytes))
      }
      sections[index].options.removeAll { $0.value.hasBrokenBytes }
    }
  }

  /// A semicolon behind a blank begins a comment.
  private static func withoutComment(_ line: String) -> String {
    var blank = true, result = ""
    for character in line {
      if character == ";", blank { break }
      blank = character == " " || character == "\t"
      result.append(character)
    }
    return result
  }
}

private struct SupervisordImport {
  private let source: SupervisordSource
  private var sections: [IniFile.Section] = []
  private var imported = Imported()
  /// Of [supervisord]: what all programs have.
  private var environment: [(String, String)] = []
  private var directory: String?
  private var umask: String?
  private var openFiles: String?

  init(_ source: SupervisordSource) {
    self.source = source
    for file in source.files {
      let ini = IniFile(file)
      sections += ini.sections
      for fault in ini.faults { remark(.lost, fault.place, fault.why) }
    }
  }

  private mutating func remark(_ kind: Remark.Kind, _ place: Place, _ why: String) {
    imported.remarks.append(
      Remark(kind: kind, file: place.file, line: place.line, what: brief(place.what), why: why))
  }

  mutating func result() -> Imported {
    var groups: [String: [String]] = [:]
    for section in sections {
      let parts = section.name.split(separator: ":", maxSplits: 1).map(String.init)
      switch parts.first {
      case "program"?: break
      case "group"? where parts.count == 2:
        for option in section.options {
          if option.key == "programs" {
            for program in option.value.split(whereSeparator: { ", \n".contains($0) }) {
              groups[String(program), default: []].append(serviceName(parts[1]))
            }
            remark(
              .changed, option.place,
              "each of them has 'groups: [\(serviceName(parts[1]))]'; @\(serviceName(parts[1])) means all of them")
          } else {
            remark(.lost, option.place, "guardian starts services by 'after' and 'requires', not by numbers")
          }
        }
      case "include"?:
        for option in section.options { remark(.needless, option.place, "what it names has been read too") }
      case "supervisord"?: whole(section)
      case "eventlistener"?:
        everything(
          section, .lost,
          "guardian has no event listeners: guardianctl events --follow --json tells what happens, and 'notices' runs programs"
        )
      case "fcgi-program"?:
        everything(
          section, .lost,
          "guardian opens no sockets; a socket unit of systemd with Service=guardian.service does, and 'sockets' hands it on"
        )
      case "unix_http_server"?, "inet_http_server"?, "supervisorctl"?, "ctlplugin"?, "rpcinterface"?:
        everything(section, .needless, "guardianctl talks to guardian over its own socket")
      default: everything(section, .lost, "section [\(brief(section.name))] is none of supervisord's own")
      }
    }
    for section in sections {
      let parts = section.name.split(separator: ":", maxSplits: 1).map(String.init)
      if parts.first == "program", parts.count == 2 { program(section, parts[1], groups[parts[1]] ?? []) }
    }
    return imported
  }

  private mutating func everything(_ section: IniFile.Section, _ kind: Remark.Kind, _ why: String) {
    if section.options.isEmpty { remark(kind, section.place, why) }
    for option in section.options { remark(kind, option.place, why) }
  }

  private mutating func whole(_ section: IniFile.Section) {
    for option in section.options {
      let value = expand(option.value, [:])
      switch option.key {
      case "environment":
        guard let value, let found = Self.variables(value) else {
          remark(.lost, option.place, "it cannot be read as NAME=\"value\", …")
          continue
        }
        environment = found
        remark(.changed, option.place, "every service has it in 'environment'")
      case "directory":
        directory = value
        remark(.changed, option.place, "every service has it in 'directory'")
      case "umask":
        umask = value
        remark(.changed, option.place, "every service has it in 'umask'")
      case "minfds":
        openFiles = value
        remark(.changed, option.place, "every service has it in 'limits.open-files'")
      case "user": remark(.lost, option.place, "guardian runs as root to become other users; a service has 'user'")
      case "logfile", "logfile_maxbytes", "logfile_backups", "loglevel", "silent":
        remark(.needless, option.place, "guardian writes to the journal, or to its standard error")
      case "childlogdir", "strip_ansi", "nocleanup":
        remark(
          .lost, option.place, "'logs' of guardian.yaml says where the files of services are, and how they are kept")
      case "nodaemon", "pidfile", "identifier", "minprocs":
        remark(.needless, option.place, "guardian stays in the foreground, and what starts it knows it")
      default: remark(.lost, option.place, "guardian has nothing like it")
      }
    }
  }

  // MARK: Values

  /// `%(here)s`, `%(program_name)s`, `%(process_num)02d`, `%(ENV_HOME)s`, `%%`; nil where one is not known.
  private func expand(_ text: String, _ names: [String: String]) -> String? {
    var result = "", rest = Substring(text)
    while let character = rest.popFirst() {
      guard character == "%" else {
        result.append(character)
        continue
      }
      if rest.first == "%" {
        result.append("%")
        rest.removeFirst()
        continue
      }
      guard rest.first == "(", let close = rest.firstIndex(of: ")") else { return nil }
      let name = String(rest[rest.index(after: rest.startIndex)..<close])
      rest = rest[rest.index(after: close)...]
      let format = rest.prefix { $0.isASCII && $0.isNumber }
      rest = rest.dropFirst(format.count)
      guard let kind = rest.popFirst(), kind == "s" || kind == "d" else { return nil }
      let value: String? =
        if name == "here" {
          source.here
        } else if name == "host_node_name" {
          source.host.isEmpty ? nil : source.host
        } else if name.hasPrefix("ENV_") {
          environment.first { $0.0 == name.dropFirst(4) }?.1 ?? source.environment[String(name.dropFirst(4))]
        } else {
          names[name]
        }
      guard let value else { return nil }
      let width = min(Int(format) ?? 0, 64)
      let filler = format.hasPrefix("0") && kind == "d" ? "0" : " "
      result += String(repeating: filler, count: max(0, width - value.count)) + value
    }
    return result
  }

  /// `A="1",B='two words',C=3`
  static func variables(_ text: String) -> [(String, String)]? {
    var found: [(String, String)] = []
    var rest = Substring(text)
    while true {
      rest = rest.drop { ", \t\n".contains($0) }
      if rest.isEmpty { return found }
      guard let equals = rest.firstIndex(of: "=") else { return nil }
      let name = String(rest[..<equals]).trimmed
      guard !name.isEmpty, !name.contains(where: { " \t\n\"'".contains($0) }) else { return nil }
      rest = rest[rest.index(after: equals)...].drop { $0 == " " || $0 == "\t" }
      var value = ""
      if let quote = rest.first, quote == "\"" || quote == "'" {
        rest.removeFirst()
        var closed = false
        while let character = rest.popFirst() {
          if character == quote {
            closed = true
            break
          }
          if character == "\\", quote == "\"", let next = rest.first, next == "\"" || next == "\\" {
            value.append(next)
            rest.removeFirst()
          } else {
            value.append(character)
          }
        }
        if !closed { return nil }
      } else {
        let bare = rest.prefix { $0 != "," && $0 != "\n" }
        value = String(bare).trimmed
        rest = rest[bare.endIndex...]
      }
      found.append((name, value))
    }
  }

  private static func truth(_ text: String) -> Bool? {
    switch text.lowercased() {
    case "true", "yes", "on", "1": true
    case "false", "no", "off", "0": false
    default: nil
    }
  }

  // MARK: A program

  private mutating func program(_ section: IniFile.Section, _ name: String, _ groups: [String]) {
    func option(_ key: String) -> IniFile.Option? { section.options.last { $0.key == key } }
    let count = min(max(option("numprocs").flatMap { Int($0.value) } ?? 1, 1), 1000)
    let first = option("numprocs_start").flatMap { Int($0.value) } ?? 0
    for index in 0..<count {
      let (number, overflow) = first.addingReportingOverflow(index)
      var names = [
        "program_name": name, "process_num": "\(overflow ? index : number)", "numprocs": "\(count)",
        "group_name": groups.first ?? name,
      ]
      let written =
        option("process_name")?.value ?? (count > 1 ? "%(program_name)s_%(process_num)02d" : "%(program_name)s")
      let called = expand(written, names) ?? name
      names["process_name"] = called
      var draft = Draft(source: section.place.file)
      one(section, names, groups, &draft)
      // The same lines are told of once.
      let service = draft.service(named: count > 1 && called == name ? "\(name)_\(index)" : called)
      if draft["command"] == nil {
        imported.remarks += service.remarks
        return
      }
      imported.services.append(
        index == 0
          ? service : ImportedService(name: service.name, yaml: service.yaml, carried: [], remarks: []))
    }
  }

  private func one(
    _ section: IniFile.Section, _ names: [String: String], _ groups: [String], _ draft: inout Draft
  ) {
    draft.carry(section.place, to: "the service")
    // supervisord's own defaults, where they are not guardian's.
    draft["restart"] = .plain("on-crash")
    draft["startup-window"] = .plain("1s")
    if !groups.isEmpty { draft["groups"] = .words(groups) }
    if let directory { draft["directory"] = directory.hasPrefix("/") ? .text(directory) : nil }
    if let umask { mask(umask, &draft) }
    if let openFiles, let number = Int(openFiles), number >= 16 {
      draft.set("limits", "open-files", .plain("\(number)"))
    }
    var variables = environment
    var place: [String: Place] = [:]
    for option in section.options {
      if let old = place[option.key] { draft.remark(.needless, old, "line \(option.place.line) says otherwise") }
      place[option.key] = option.place
    }
    if place["autorestart"] == nil {
      draft.remark(.changed, "no autorestart=", "'restart: on-crash' is written, as supervisord has it ('unexpected')")
    }
    if place["startsecs"] == nil {
      draft.remark(
        .changed, "no startsecs=", "'startup-window: 1s' is written, as supervisord has it; guardian's own is 60s")
    }
    for option in section.options where place[option.key] == option.place {
      guard let value = expand(option.value, names) else {
        draft.remark(.lost, option.place, "an expression in it is not known here")
        continue
      }
      self.option(option, value, &variables, &draft)
    }
    let allowed = variables.filter { !ReservedVariables.names.contains($0.0) }
    if !allowed.isEmpty {
      var last: [(key: String, value: Draft.Value)] = []
      for (name, value) in allowed {
        last.removeAll { $0.key == name }
        last.append((name, .text(value)))
      }
      draft["environment"] = .map(last)
    }
  }

  private func mask(_ value: String, _ draft: inout Draft) {
    let digits = value.drop { $0 == "0" }
    if digits.utf8.count <= 3, digits.utf8.allSatisfy({ (0x30...0x37).contains($0) }) {
      draft["umask"] = .quoted(String(repeating: "0", count: 4 - digits.utf8.count) + digits)
    }
  }

  private func option(
    _ option: IniFile.Option, _ value: String, _ variables: inout [(String, String)], _ draft: inout Draft
  ) {
    let place = option.place
    func carried(_ key: String) { draft.carry(place, to: key) }
    switch option.key {
    case "command":
      guard let words = Words.shell(value), let program = words.first else {
        draft.remark(.lost, place, "it cannot be split into words")
        return
      }
      if program.hasPrefix("/") {
        draft["command"] = .words(words)
        carried("command")
      } else if let path = source.find(program) {
        draft["command"] = .words([path] + words.dropFirst())
        draft.remark(.changed, place, "guardian looks along no PATH: \(path) is written")
      } else {
        draft["command"] = .words(
          ["/usr/bin/" + (program.split(separator: "/").last.map(String.init) ?? program)] + words.dropFirst())
        draft.remark(
          .changed, place, "guardian looks along no PATH, and \(brief(program)) is not on this one: /usr/bin is written"
        )
      }
    case "process_name", "numprocs", "numprocs_start":
      draft.remark(.changed, place, "each process is a service of its own")
    case "directory":
      if value.hasPrefix("/") {
        draft["directory"] = .text(value)
        carried("directory")
      } else {
        draft.remark(.lost, place, "the path is not absolute")
      }
    case "user":
      draft["user"] = .text(value)
      carried("user")
    case "environment":
      guard let found = SupervisordImport.variables(value) else {
        draft.remark(.lost, place, "it cannot be read as NAME=\"value\", …")
        return
      }
      variables += found
      let refused = found.map(\.0).filter(ReservedVariables.names.contains)
      if refused.isEmpty {
        carried("environment")
      } else {
        draft.remark(.lost, place, "guardian sets \(refused.joined(separator: ", ")) itself")
      }
    case "umask":
      mask(value, &draft)
      carried("umask")
    case "autostart":
      if Self.truth(value) == false { draft["start"] = .plain("manual") }
      carried("start")
    case "autorestart":
      draft["restart"] = .plain(
        value.lowercased() == "unexpected" ? "on-crash" : Self.truth(value) == false ? "never" : "always")
      carried("restart")
    case "startsecs":
      guard let seconds = Int(value), (0...86_400 * 365).contains(seconds) else {
        draft.remark(.lost, place, "it is no number of seconds")
        return
      }
      draft["startup-window"] = .plain(seconds == 0 ? "1s" : "\(seconds)s")
      if seconds == 0 {
        draft.remark(.changed, place, "a startup window cannot be empty; 1s is written")
      } else {
        carried("startup-window")
      }
    case "startretries":
      draft.remark(
        .changed, place,
        "the ladder takes its place: 'escalation' has the strikes, and quarantine comes instead of FATAL")
    case "exitcodes":
      let codes = value.split(whereSeparator: { ", ".contains($0) }).compactMap { Int($0) }.filter {
        (0...255).contains($0)
      }
      var each: [Int] = []
      for code in codes where !each.contains(code) { each.append(code) }
      draft["success-exit"] = .list(each.map { .plain("\($0)") })
      carried("success-exit")
    case "stopsignal":
      if let signal = UnitValues.signal(value), !UnitValues.endsNothing.contains(signal) {
        draft.set("stop", "signal", .plain(signal))
        carried("stop.signal")
      } else {
        draft.remark(.lost, place, "guardian stops by a signal that ends a process")
      }
    case "stopwaitsecs":
      if let seconds = Int(value), (0...86_400 * 365).contains(seconds) {
        draft.set("stop", "timeout", .plain("\(seconds)s"))
        carried("stop.timeout")
      } else {
        draft.remark(.lost, place, "it is no number of seconds")
      }
    case "stopasgroup", "killasgroup":
      if Self.truth(value) == true {
        carried("stop")
      } else {
        draft.remark(.changed, place, "guardian ends all processes of a run, the main one first")
      }
    case "priority": draft.remark(.lost, place, "guardian starts services by 'after' and 'requires', not by numbers")
    case "redirect_stderr":
      if Self.truth(value) == true {
        carried("log")
      } else {
        draft.remark(.changed, place, "guardian keeps both streams in one place")
      }
    case "stdout_logfile", "stderr_logfile": logFile(option.key, value, place, &draft)
    case "stdout_syslog", "stderr_syslog":
      if Self.truth(value) == true, draft["log"] == nil { draft["log"] = .plain("journal") }
      draft.remark(Self.truth(value) == true ? .changed : .needless, place, "'log: journal' keeps both streams")
    case "stdout_logfile_maxbytes", "stdout_logfile_backups", "stderr_logfile_maxbytes", "stderr_logfile_backups":
      draft.remark(.lost, place, "'logs' of guardian.yaml has 'rotate' and 'keep', for all services with 'log: file'")
    case "stdout_capture_maxbytes", "stderr_capture_maxbytes", "stdout_events_enabled", "stderr_events_enabled":
      draft.remark(.lost, place, "guardian reads no events from a service's output")
    case "serverurl": draft.remark(.needless, place, "guardianctl finds guardian by itself")
    default: draft.remark(.lost, place, "guardian has nothing like it")
    }
  }

  private func logFile(_ key: String, _ value: String, _ place: Place, _ draft: inout Draft) {
    if key == "stderr_logfile", draft["log"] != nil {
      draft.remark(.changed, place, "guardian keeps both streams in one place")
      return
    }
    switch value {
    case "NONE", "none", "/dev/null":
      if key == "stdout_logfile" { draft["log"] = .plain("none") }
      draft.remark(.changed, place, "guardian keeps both streams, or neither with 'log: none'")
    case "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/1", "/proc/self/fd/2":
      draft["log"] = .plain("inherit")
      draft.carry(place, to: "log")
    case "syslog":
      draft["log"] = .plain("journal")
      draft.carry(place, to: "log")
    default:
      draft["log"] = .plain("file")
      draft.remark(.changed, place, "'log: file' writes to NAME/current below 'logs.directory'")
    }
  }
}
