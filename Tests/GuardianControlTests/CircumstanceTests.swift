@testable import GuardianControl
import GuardianModel
import Glibc
import Testing

/// Every verb in every circumstance in which it cannot do what it is for: the exit status, one clear sentence on standard
/// error, and with `--json` one valid object on standard output. No `default` below: a new verb is thought about here.
@Suite struct `every verb` {
  let scratch = Scratch()

  struct Expected {
    /// The verb with what it needs, about the service `name`.
    var line: [String]
    /// With a guardian in which all is well.
    var well: Int32
    /// Without any guardian.
    var alone: Int32 = 6
    /// For a name that nobody has; nil: it takes none.
    var unknown: Int32? = 4
    /// Whoever may not ask.
    var forbidden: Int32 = 77
    /// It cannot be done without a terminal.
    var needsTerminal = false
    /// It has more to say to people, though all is well.
    var remarks = false
  }

  private func expected(_ verb: Verb, _ name: String = "db") -> Expected {
    let word = verb.rawValue
    switch verb {
    case .status: return Expected(line: [word, name], well: 0)
    case .start, .stop, .restart, .release, .reset, .reload, .repair: return Expected(line: [word, name], well: 0)
    case .hold: return Expected(line: [word, name, "--for", "1min"], well: 0)
    case .plugins, .plan, .events: return Expected(line: [word, name], well: 0)
    case .safeMode: return Expected(line: [word, name, "on"], well: 0)
    case .wait: return Expected(line: [word, name, "--timeout", "5s"], well: 0)
    // One of its repairs has failed.
    case .drill: return Expected(line: [word, name], well: 1)
    case .crashes: return Expected(line: [word, name], well: 0)
    case .logs: return Expected(line: [word, name], well: 0)
    case .top: return Expected(line: [word, name], well: 1, needsTerminal: true)
    case .check: return Expected(line: [word, "--config", scratch.path], well: 0, alone: 0, unknown: nil, forbidden: 0)
    case .importing:
      let unit = scratch.path + "/web.service"
      if let stream = fopen(unit, "w") {
        fputs("[Service]\nExecStart=/bin/true\nRestart=always\n[Install]\nWantedBy=multi-user.target\n", stream)
        fclose(stream)
      }
      // A file that is not there is no service that nobody has.
      return Expected(
        line: [word, name == "db" ? unit : scratch.path + "/nosuch.service"], well: 0, alone: 0, unknown: 1,
        forbidden: 0, remarks: true)
    case .upgrade: return Expected(line: [word], well: 0, unknown: nil)
    case .metrics, .version: return Expected(line: [word], well: 0, unknown: nil)
    case .completion: return Expected(line: [word, "bash"], well: 0, alone: 0, unknown: nil, forbidden: 0)
    case .help: return Expected(line: [word], well: 0, alone: 0, unknown: nil, forbidden: 0)
    case .completion: return Expected(line: [word, "bash"], well: 0, alone: 0, unknown: nil, forbidden: 0)
    }
  }

  /// The zoo, in which `db` writes to a file.
  private func well() -> FakeGuardian {
    let file = scratch.path + "/" + LogFormat.current
    guard let stream = fopen(file, "w") else { return zooGuardian(scratch) }
    fputs("2026-03-01T12:00:00.000Z hello\n", stream)
    fclose(stream)
    return FakeGuardian(in: scratch.path) { call in
      switch call.request {
      case .list(["db"]?, brief: false):
        var db = settledService("db")
        db.log = "file"
        db.logFile = file
        var bytes: [UInt8] = []
        Reply.list([db], missing: [], brief: false, continues: false, into: &bytes)
        return .bytes(bytes)
      case .drill("nosuch", _): return .bytes(Reply.error(.noSuchService(name: "nosuch")))
      default: return zooAnswer(call)
      }
    }
  }

  private func run(
    _ line: [String], json: Bool = false, output: String? = nil, closed: Bool = false
  ) -> Finished {
    // The configuration that `check` reads is none of a guardian's.
    let target = line.first == "check" || line.first == "help" ? [] : ["--runtime", scratch.path]
    return guardianctl(line + target + (json ? ["--json"] : []), in: scratch, output: output, closed: closed)
  }

  /// One line that says who speaks, and what is the matter.
  private func isSentence(_ errors: String) -> Bool {
    let lines = errors.split(separator: "\n")
    return lines.count == 1 && errors.hasSuffix("\n") && lines[0].utf8.count > 20
      && (errors.hasPrefix("guardianctl: ") || errors.hasPrefix("guardian: "))
      && !errors.contains("Optional") && !errors.contains("nil")
  }

  private func isOneObject(_ output: String) -> Bool {
    guard output.hasSuffix("}\n"), output.split(separator: "\n").count == 1 else { return false }
    let parsed = Array(output.utf8).withUnsafeBufferPointer {
      withJSON($0) { $0.isObject && $0["schema"]?.integer == 1 }
    }
    return parsed.value == true
  }
  private func hasError(_ output: String) -> Bool {
    let parsed = Array(output.utf8).withUnsafeBufferPointer { bytes in
      withJSON(bytes) { root in
        guard let error = root["error"] else { return false }
        return !(error["name"]?.string ?? "").isEmpty && !(error["message"]?.string ?? "").isEmpty
      }
    }
    return parsed.value == true
  }

  @Test(arguments: Verb.allCases)
  func `CASES 56, CASES 58: without a guardian, with a wrong name, where it may not, and with a wrong word`(
    _ verb: Verb
  ) {
    let plain = expected(verb)
    mkdir(scratch.path + "/services", 0o755)
    defer { rmdir(scratch.path + "/services") }

    let alone = run(plain.line)
    #expect(alone.status == plain.alone, "\(alone)")
    if plain.alone != 0 {
      #expect(isSentence(alone.errors), "\(alone)")
    } else if !plain.remarks {
      #expect(alone.errors == "")
    }

    let wrong = run(plain.line + ["--frobnicate"])
    #expect(wrong.status == 64 && isSentence(wrong.errors) && wrong.output == "", "\(wrong)")
    let wrongJSON = run(plain.line + ["--frobnicate"], json: true)
    #expect(wrongJSON.status == 64 && isOneObject(wrongJSON.output) && hasError(wrongJSON.output), "\(wrongJSON)")

    // top is for people alone.
    let takesJSON = verb != .top
    let aloneJSON = run(plain.line, json: true)
    #expect(aloneJSON.status == (takesJSON ? plain.alone : 64) && isOneObject(aloneJSON.output), "\(aloneJSON)")
    #expect(hasError(aloneJSON.output) == (aloneJSON.status != 0), "\(aloneJSON)")

    // Stopped once: its descriptor may be another's afterwards.
    let server = well()
    if let status = plain.unknown {
      let line = expected(verb, "nosuch").line
      let unknown = run(line)
      #expect(unknown.status == status && isSentence(unknown.errors) && unknown.output == "", "\(unknown)")
      #expect(unknown.errors.contains("nosuch"), "\(unknown)")
      if takesJSON {
        let json = run(line, json: true)
        #expect(json.status == status && isOneObject(json.output) && hasError(json.output), "\(json)")
      }
    }
    let well = run(plain.line)
    #expect(well.status == plain.well, "\(well)")
    #expect(plain.remarks || (plain.well == 0 ? well.errors == "" : isSentence(well.errors)), "\(well)")
    if takesJSON {
      let json = run(plain.line, json: true)
      #expect(json.status == plain.well && isOneObject(json.output), "\(json)")
      #expect(plain.well == 0 ? json.errors == "" : isSentence(json.errors) && hasError(json.output), "\(json)")
    }
    server.stop()

    let strict = FakeGuardian(in: scratch.path) { _ in .bytes(Reply.error(.notPermitted(reason: "you need operate"))) }
    defer { strict.stop() }
    let forbidden = run(plain.line)
    #expect(forbidden.status == plain.forbidden, "\(forbidden)")
    if plain.forbidden != 0 {
      #expect(isSentence(forbidden.errors) && forbidden.errors.contains("you need operate"), "\(forbidden)")
      if takesJSON {
        let json = run(plain.line, json: true)
        #expect(json.status == plain.forbidden && isOneObject(json.output) && hasError(json.output), "\(json)")
      }
    }
  }

  @Test(arguments: Verb.allCases)
  func `B11: whose answer cannot be written fails, and writes to nothing else`(_ verb: Verb) {
    let plain = expected(verb)
    mkdir(scratch.path + "/services", 0o755)
    defer { rmdir(scratch.path + "/services") }
    let server = well()
    defer { server.stop() }
    let takesJSON = verb != .top
    for json in takesJSON ? [false, true] : [false] {
      for full in [true, false] {
        let done = run(plain.line, json: json, output: full ? "/dev/full" : nil, closed: !full)
        #expect(done.status != 0, "\(done)")
        #expect(isSentence(plain.remarks || plain.well != 0 ? done.errors.lastLine : done.errors), "\(done)")
        if !plain.needsTerminal { #expect(done.errors.contains("cannot write the answer: "), "\(done)") }
      }
    }
  }
}

extension String {
  /// With its end.
  fileprivate var lastLine: String { (split(separator: "\n").last.map(String.init) ?? "") + "\n" }
}
