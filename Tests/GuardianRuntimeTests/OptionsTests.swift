import GuardianModel
import Testing

@testable import GuardianRuntime

@Suite struct `the command line of guardian` {
  struct Case: CustomTestStringConvertible {
    var words: [String], complaint: String
    var testDescription: String { words.joined(separator: " ") }
  }

  @Test func `names directories and one mode`() throws {
    let options = try Options(["--config", "/c", "--runtime=/r", "--state", "/s", "--logs", "/l"])
    #expect(options.configuration == "/c" && options.runtime == "/r" && options.state == "/s" && options.logs == "/l")
    let check = try Options(["--check", "--config", "/c", "--json"])
    #expect(check.mode == .check && check.json && check.configuration == "/c")
    #expect(try Options(["--explain", "--json"]).json)
    #expect(try Options(["--take-over-check", "--config", "/c", "--state=/s"]).mode == .takeOverCheck)
    // An older guardian ran with that; its successor must not refuse it.
    #expect(try Options(["--json", "--logs", "/l", "--take-over", "7"]).mode == .takeOver(7))
    #expect(try Options([]).mode == .run)
    #expect(try Options(["--plan", "web"]).mode == .plan("web"))
    #expect(try Options(["--move-aside", "/var/cache/x"]).mode == .moveAside("/var/cache/x"))
    #expect(
      try Options(["--restore", "/s", "--file", "/a", "--file", "/b"]).mode == .restore("/s", files: ["/a", "/b"]))
    #expect(throws: Options.UsageFault.self) { try Options(["--file", "/a"]) }
    #expect(try Options(["--take-over-check"]).mode == .takeOverCheck)
    #expect(try Options(["--release-controllers"]).mode == .releaseControllers)
    let back = try Options(["--take-over", "7", "--back", "SIGSEGV"])
    #expect(back.mode == .takeOver(7) && back.back == "SIGSEGV")
    #expect(try Options(["--config", "relative"]).configuration?.hasPrefix("/") == true)
  }

  @Test(arguments: [
    Case(words: ["--confg", "/c"], complaint: "unknown option '--confg'; did you mean '--config'?"),
    Case(words: ["--confg=/c"], complaint: "unknown option '--confg'; did you mean '--config'?"),
    Case(words: ["--utterly-strange"], complaint: "unknown option '--utterly-strange'"),
    Case(words: ["--config"], complaint: "--config needs a directory"),
    Case(words: ["--state", ""], complaint: "--state needs a directory"),
    Case(words: ["--check=1"], complaint: "--check takes no value"),
    Case(words: ["--check", "--version"], complaint: "--check and --version do not go together"),
    Case(words: ["--take-over", "2"], complaint: "--take-over needs a descriptor"),
    Case(words: ["--take-over"], complaint: "--take-over needs a descriptor"),
    Case(words: ["--check", "--take-over=7"], complaint: "--check and --take-over do not go together"),
    Case(words: ["--json"], complaint: "--json goes with --check or --explain"),
    Case(words: ["--json", "--plan", "web"], complaint: "--json goes with --check or --explain"),
    Case(words: ["--version", "--json"], complaint: "--json goes with --check or --explain"),
    Case(words: ["--cause", "oom"], complaint: "--cause goes with --plan"),
    Case(words: ["--check", "--cause=oom"], complaint: "--cause goes with --plan"),
    Case(words: ["--back", "x"], complaint: "--back goes with --take-over"),
    Case(words: ["--state", "/s", "--check"], complaint: "--state does nothing with --check"),
    Case(words: ["--plan", "web", "--logs=/l"], complaint: "--logs does nothing with --plan"),
    Case(words: ["--explain", "--config", "/c"], complaint: "--config does nothing with --explain"),
    Case(words: ["--schema", "host", "--runtime", "/r"], complaint: "--runtime does nothing with --schema"),
    Case(words: ["--config", "/c", "-h"], complaint: "--config does nothing with -h"),
    Case(words: ["--release-controllers", "--state=/s"], complaint: "--state does nothing with --release-controllers"),
    Case(words: ["--schema", "host", "--check"], complaint: "--schema and --check do not go together"),
    Case(words: ["start"], complaint: "unexpected argument 'start'; services are named in the configuration directory"),
  ])
  func `is strict, and names the nearest word`(_ c: Case) {
    #expect(throws: Options.UsageFault(description: c.complaint)) { try Options(c.words) }
  }

  @Test func `is handed on without what one image says to the next`() {
    #expect(
      Options.withoutTakeOver(["--config", "/c", "--take-over", "7", "--back", "x", "--take-over=8", "--logs=/l"])
        == ["--config", "/c", "--logs=/l"])
    #expect(Options.withoutTakeOver(["--take-over"]) == [])
  }

  @Test func `decides where things are: flags, then systemd, then who runs it`() throws {
    let environment = [
      "CONFIGURATION_DIRECTORY": "/etc/guardian:/etc/other", "RUNTIME_DIRECTORY": "/run/systemd-made",
      "HOME": "/home/a", "XDG_RUNTIME_DIR": "/run/user/7",
    ]
    let flagged = Directories(try Options(["--config", "/c"]), root: true) { environment[$0] }
    #expect(flagged.configuration == "/c" && flagged.runtime == "/run/systemd-made")
    #expect(flagged.state == "/var/lib/guardian" && flagged.logs == "/var/log/guardian")
    let plain = Directories(try Options([]), root: true) { _ in nil }
    #expect(plain.configuration == "/etc/guardian" && plain.controlSocket == "/run/guardian/control.sock")
    let user = Directories(try Options([]), root: false) {
      $0.hasPrefix("XDG") || $0 == "HOME" ? environment[$0] : nil
    }
    #expect(user.configuration == "/home/a/.config/guardian" && user.state == "/home/a/.local/state/guardian")
    #expect(user.runtime == "/run/user/7/guardian" && user.logs == "/home/a/.local/state/guardian/log")
  }
}

@Suite struct `definitions on disk and in force` {
  private func spec(_ text: String, ready: Readiness = .none) throws -> ServiceSpec {
    var spec = ServiceSpec(name: try #require(ServiceName(text)), process: ProcessSpec(command: ["/bin/true"]))
    spec.ready = ready
    return spec
  }
  private func loaded(_ specs: [ServiceSpec], invalid: [String] = []) throws -> LoadedConfiguration {
    var loaded = LoadedConfiguration()
    loaded.services = specs
    for text in invalid {
      let name = try #require(ServiceName(text))
      loaded.invalid.append(name)
      loaded.byService[name] = [Diagnostic(file: "services/\(text).yaml", line: 3, column: 1, what: "bad")]
    }
    return loaded
  }

  @Test func `a broken file keeps the last good definition, and is listed where there was none`() throws {
    var definitions = Definitions()
    let a = try spec("a"), b = try #require(ServiceName("b"))
    var change = definitions.apply(try loaded([a], invalid: ["b"]), inForce: [], notifyDirectory: "/run/g/notify")
    #expect(change.defined == [a] && change.removed.isEmpty)
    let why = try #require(definitions.broken[b])
    let status = Definitions.status(ofBroken: b, why)
    #expect(status.phase == .quarantined && status.reason.contains("services/b.yaml:3:1: bad"), "\(status)")
    change = definitions.apply(try loaded([], invalid: ["a"]), inForce: [a.name], notifyDirectory: "/run/g/notify")
    #expect(change.defined.isEmpty && change.removed.isEmpty && definitions.stale[a.name] != nil)
    #expect(definitions.broken.isEmpty)
    change = definitions.apply(try loaded([]), inForce: [a.name], notifyDirectory: "/run/g/notify")
    #expect(change.removed == [a.name])
  }

  @Test func `an unreadable directory removes nothing`() throws {
    var definitions = Definitions()
    var nothing = LoadedConfiguration()
    nothing.listed = false
    let change = definitions.apply(nothing, inForce: [try spec("a").name], notifyDirectory: "/n")
    #expect(change.removed.isEmpty && change.defined.isEmpty)
  }

  @Test func `a notify socket whose path is too long is a fault of the definition, with its numbers`() throws {
    var definitions = Definitions()
    let directory = "/" + String(repeating: "d", count: 104)
    let long = try spec("web", ready: .notify), fine = try spec("other")
    let change = definitions.apply(try loaded([long, fine]), inForce: [], notifyDirectory: directory)
    #expect(change.defined == [fine])
    let what = try #require(definitions.broken[long.name]?.first)
    #expect(what.description.contains("109 bytes") && what.description.contains("107"), "\(what)")
    // One byte less than the limit is fine.
    let short = "/" + String(repeating: "d", count: 102)
    #expect(definitions.apply(try loaded([long]), inForce: [], notifyDirectory: short).defined == [long])
  }
}
