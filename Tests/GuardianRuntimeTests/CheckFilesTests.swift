import Glibc
import GuardianConfig
import GuardianControl
import GuardianModel
import Testing

@testable import GuardianRuntime

/// Directories and files for one test, removed with it.
private final class Place {
  let path: String
  init() throws {
    var template = Array("/tmp/guardian-check-XXXXXX".utf8CString)
    let made = template.withUnsafeMutableBufferPointer { buffer in
      buffer.baseAddress.flatMap { mkdtemp($0) }.map { String(cString: $0) }
    }
    path = try #require(made)
    try #require(chmod(path, 0o755) == 0)
    for name in ["etc", "etc/services", "etc/switches.d", "drafts", "drafts/switches.d"] {
      try #require(mkdir(path + "/" + name, 0o755) == 0 && chmod(path + "/" + name, 0o755) == 0)
    }
  }
  private var files: [String] = []
  deinit {
    for file in files { unlink(file) }
    for name in ["etc/services", "etc/switches.d", "etc", "drafts/switches.d", "drafts", ""] {
      rmdir(path + "/" + name)
    }
  }

  @discardableResult func write(_ name: String, _ text: String) throws -> String {
    let file = path + "/" + name
    let raw = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    try #require(raw >= 0)
    defer { close(raw) }
    let bytes = Array(text.utf8)
    try #require(Glibc.write(raw, bytes, bytes.count) == bytes.count && fchmod(raw, 0o644) == 0)
    files.append(file)
    return file
  }

  func check(_ words: String..., directory: String = "etc") -> ConfigurationCheck {
    let place = path + "/" + directory
    let loader = ConfigurationLoader(
      directory: place, resolveUser: { user, _ in .failure(.init("no user '\(user ?? "")' in the user database")) },
      canHide: true)
    let drafts = DraftFiles(words, directory: place)
    return ConfigurationCheck(loader.load(drafts: drafts), drafts: drafts)
  }
  /// Without the directory's name in front.
  func said(_ check: ConfigurationCheck) -> [String] {
    check.lines.map { $0.hasPrefix(path + "/") ? String($0.dropFirst(path.utf8.count + 1)) : $0 }
  }
}

private let good = "command: [/bin/sh]\n"

@Suite struct `checking single files` {
  @Test func `says nothing of the others, and reads a file as if it were in the directory`() throws {
    let place = try Place()
    try place.write("etc/guardian.yaml", "defaults: {nice: 5}\n")
    try place.write("etc/services/db.yaml", good)
    try place.write("etc/services/broken.yaml", "comand: [/bin/sh]\n")
    let draft = try place.write("drafts/web.yaml", good + "requires: [db, broken]\n")
    var check = place.check(draft)
    #expect(check.exitStatus == 0 && check.lines == ["1 service: no fault found"])
    // What it would take the place of is not there for it, and others see it.
    try place.write("etc/services/web.yaml", "comand: [/bin/sh]\n")
    #expect(place.check(draft).exitStatus == 0)
    let cycle = try place.write("drafts/db.yaml", good + "requires: [web]\n")
    check = place.check(draft, cycle)
    #expect(check.exitStatus == 78 && check.invalid == 2)
    #expect(
      place.said(check).first == "drafts/db.yaml:2:12: dependency cycle: db → web → db; none of them could ever start")
    try place.write("drafts/db.yaml", good + "requires: [wbe]\n")
    #expect(
      place.said(place.check(cycle)) == [
        "drafts/db.yaml:2:12: unknown service 'wbe' in 'requires'; there is no services/wbe.yaml; did you mean 'web'?",
        "1 service, 1 of them without a valid definition: 1 error, 0 warnings",
      ])
  }

  @Test func `takes a name for the service of the directory, and that file for what it is by any path`() throws {
    let place = try Place()
    let file = try place.write("etc/services/web.yaml", good + "nice: x\n")
    try place.write("etc/services/other.yaml", "rubbish")
    for word in ["web", file, place.path + "/drafts/../etc/services/web.yaml"] {
      let check = place.check(word)
      #expect(check.exitStatus == 78 && check.services + check.invalid == 1 && check.diagnostics.count == 1)
    }
    // By the directory's own rules.
    try #require(chmod(file, 0o666) == 0)
    #expect(place.check("web").diagnostics.first?.what.contains("writable by others") == true)
    #expect(place.check("wbe").diagnostics.first?.why.contains("etc/services/wbe.yaml") == true)
    #expect(place.check("wbe").exitStatus == 78)
  }

  @Test func `knows guardian_yaml by its name and a switch by its place`() throws {
    let place = try Place()
    try place.write("etc/services/web.yaml", good)
    let host = try place.write("drafts/guardian.yaml", "governr: off\n")
    let off = try place.write("drafts/switches.d/a.yaml", "{reason: r, services: [wbe], ladder: off}\n")
    let check = place.check(host, off)
    #expect(
      place.said(check) == [
        "drafts/guardian.yaml:1:1: unknown key 'governr'; did you mean 'governor'?",
        "drafts/switches.d/a.yaml:1:24: warning: no service 'wbe' here; the switch does nothing to it; did you mean 'web'?",
        "2 files: 1 error, 1 warning",
      ])
  }

  @Test func `works without a directory, and then no service is missing`() throws {
    let place = try Place()
    let draft = try place.write("drafts/web.yaml", good + "requires: [db]\n")
    let check = place.check(draft, directory: "nowhere")
    #expect(check.exitStatus == 0 && check.lines == ["1 service: no fault found"])
  }

  @Test func `refuses what is no file that could be read, each with its reason`() throws {
    let place = try Place()
    let yml = try place.write("drafts/a.yml", good)
    let upper = try place.write("drafts/Web.yaml", good)
    let large = try place.write("drafts/large.yaml", good + String(repeating: "#\n", count: 600_000))
    let check = place.check(place.path + "/drafts", place.path + "/none/x.yaml", "/dev/null", yml, upper, large)
    #expect(
      place.said(check) == [
        "drafts: a directory; '--config \(place.path)/drafts' checks all that is in one",
        "none/x.yaml: cannot be checked; no such file or directory", "/dev/null: not a file",
        "drafts/a.yml: warning: guardian would not read the file; its name must end in .yaml",
        "drafts/Web.yaml: the file's name is no name of a service; a name is 1 to 64 of a-z 0-9 . _ @ - and begins with a "
          + "letter or digit",
        "drafts/large.yaml: cannot be read; a file of the configuration has at most 1 MiB",
        "2 services, 1 of them without a valid definition: 5 errors, 1 warning",
      ])
  }

  @Test func `tells in JSON where what is meant begins and ends`() throws {
    let place = try Place()
    let file = try place.write("drafts/web.yaml", good + "backof: 1s\n")
    let json = place.check(file).json
    #expect(
      json
        == #"{"schema":1,"valid":false,"services":1,"invalid":1,"diagnostics":[{"severity":"error","file":"\#(file)","#
        + #""line":2,"column":1,"what":"unknown key 'backof'","why":"","suggestion":"backoff","end_column":7,"#
        + #""message":"unknown key 'backof'","hint":"did you mean 'backoff'?"}],"error":{"name":"configuration-fault","#
        + #""message":"1 service, 1 of them without a valid definition: 1 error, 0 warnings"}}"#)
  }
}

@Suite struct `the excerpt of a diagnostic` {
  private func rows(
    _ line: String, _ column: Int, _ end: Int? = nil, number: Int = 7, width: Int? = 80, unicode: Bool = true
  ) -> [String] {
    let lines = SourceLines(Array(line.utf8))
    guard let first = lines[1] else { return [] }
    return Excerpt.rows(
      first, number: number, column: column, endColumn: end, style: Style(width: width, unicode: unicode))
  }

  @Test func `has the line behind its number, and marks below what is meant`() {
    #expect(rows("nice: x", 7, 8) == [" 7 | nice: x", "   |       ^"])
    #expect(rows("comand: [a]", 1, 7, number: 120) == [" 120 | comand: [a]", "     | ^~~~~~"])
    // Behind the end: something is missing there.
    #expect(rows("a:", 3) == [" 7 | a:", "   |   ^"])
    #expect(rows("", 1) == [" 7 | ", "   | ^"])
    #expect(rows("a", 99, 120) == [" 7 | a", "   |  ^"])
  }

  @Test func `counts tabs, wide characters and escapes as the terminal shows them`() {
    #expect(rows("a:\tbcd", 4, 7) == [" 7 | a:      bcd", "   |         ^~~"])
    #expect(rows("名前: x", 5, 6) == [" 7 | 名前: x", "   |       ^"])
    #expect(rows("名前: x", 1, 3) == [" 7 | 名前: x", "   | ^~~~"])
    #expect(rows("e\u{301}: x", 5, 6) == [" 7 | e\u{301}: x", "   |    ^"])
    #expect(rows("a\u{1b}[2J: x", 8, 9) == [" 7 | a\\x1b[2J: x", "   |           ^"])
    #expect(rows("\u{202e}abc: x", 7, 8) == [" 7 | \\u{202e}abc: x", "   |              ^"])
    #expect(rows("é: x", 4, 5, unicode: false) == [" 7 | \\u{e9}: x", "   |         ^"])
  }

  @Test func `says the message in ASCII too where the terminal takes nothing else`() {
    let diagnostic = Diagnostic(file: "a.yaml", line: 7, column: 1, what: "unknown key '日本' – see…")
    #expect(
      Excerpt.text(diagnostic, in: nil, style: Style(unicode: false))
        == "a.yaml:7:1: unknown key '\\u{65e5}\\u{672c}' - see...\n")
    #expect(Excerpt.text(diagnostic, in: nil, style: Style()) == "a.yaml:7:1: unknown key '日本' – see…\n")
  }

  @Test(arguments: [20, 40, 80, 200]) func `never takes more columns than there are, and shows what is meant`(
    width: Int
  ) {
    let line = "command: [/bin/sh, -c, \"" + String(repeating: "名 and \t so on, ", count: 40) + "\"]"
    let characters = Array(line.unicodeScalars)
    for column in 1...characters.count {
      for (end, unicode) in [(nil, true), (column + 3, true), (column + 300, false)] as [(Int?, Bool)] {
        let rows = rows(line, column, end, width: width, unicode: unicode)
        #expect(rows.allSatisfy { columns($0) <= width }, "\(rows)")
        // The caret is below its character.
        let place = rows[1].unicodeScalars.prefix { $0 != "^" }.count
        var used = 0
        var below = ""
        for scalar in rows[0].unicodeScalars where below.isEmpty {
          if used == place { below = String(scalar) }
          used += columns(String(scalar))
        }
        let wanted = characters[column - 1]
        if wanted == "\t" {
          #expect(below == " ", "\(rows)")
        } else if unicode || wanted.value < 0x7f {
          #expect(below == String(wanted), "\(rows)")
        } else {
          #expect(below == "\\", "\(rows)")
        }
      }
    }
  }

  @Test func `breaks lines where the parser does`() {
    let lines = SourceLines([0xef, 0xbb, 0xbf] + Array("a\r\nb\rc\u{85}d\u{2028}e\n".utf8))
    #expect(
      (1...6).map { String(String.UnicodeScalarView(lines[$0] ?? ""[...].unicodeScalars)) } == [
        "a", "b", "c", "d", "e", "",
      ])
    #expect(lines[0] == nil && lines[7] == nil)
  }

  @Test func `goes with its sentence, coloured only where that is wanted, and without it where the file is gone`() {
    let diagnostic = Diagnostic(
      file: "web.yaml", line: 2, column: 1, endColumn: 7, what: "unknown key 'backof'", suggestion: "backoff")
    let lines = SourceLines(Array("command: x\nbackof: 1s\n".utf8))
    #expect(
      Excerpt.text(diagnostic, in: lines, style: Style())
        == "web.yaml:2:1: unknown key 'backof'; did you mean 'backoff'?\n 2 | backof: 1s\n   | ^~~~~~\n")
    #expect(
      Excerpt.text(diagnostic, in: lines, style: Style(width: 40))
        == "web.yaml:2:1: unknown key 'backof';\n  did you mean 'backoff'?\n 2 | backof: 1s\n   | ^~~~~~\n")
    #expect(Excerpt.text(diagnostic, in: lines, style: Style(colour: true)).contains("\u{1b}[31m^~~~~~\u{1b}[0m\n"))
    #expect(
      Excerpt.text(diagnostic, in: nil, style: Style())
        == "web.yaml:2:1: unknown key 'backof'; did you mean 'backoff'?\n")
  }
}

@Suite struct `the explanation of a key` {
  private func text(_ words: String...) -> String { Explanation(words, style: Style()).text }

  @Test func `is what the manual has`() {
    #expect(
      text("late.budget") == """
        late.budget: 0 … 10000
            As many restart at once and are no strikes.
            Default: 5.
            In services/NAME.yaml; for all services under 'defaults' in guardian.yaml.

                late: {budget: 10}

        """)
    #expect(text("command").contains("In services/NAME.yaml.\n"))
    #expect(
      text("repair[].at-most") == text("repair.at-most")
        && text("repair.at-most").contains("Keys in it: times, within."))
    #expect(text("cgroup").contains("In guardian.yaml.\n"))
    for known in KnownKey.all {
      let said = Explanation([known.key.path], style: Style(width: 40))
      #expect(said.exitStatus == 0 && said.text.contains(known.key.shape))
      #expect(
        said.text.split(separator: "\n").contains { $0.hasPrefix("        ") }, "\(known.key.path) has no example")
    }
  }

  @Test func `is found by the end of a path, and by each file that has it`() {
    #expect(text("at-most") == text("repair[].at-most"))
    #expect(text("deescalate-after").hasPrefix("escalation.deescalate-after: "))
    #expect(text("services").contains("In switches.d/NAME.yaml"))
    #expect(text("plugins").contains("In switches.d/NAME.yaml") && text("plugins").contains("In services/NAME.yaml"))
  }

  @Test func `of a word that is none names the nearest`() {
    for (word, near) in [("late.budgte", "late.budget"), ("stopp.timeout", "stop.timeout"), ("bakoff", "backoff")] {
      let said = Explanation([word], style: Style())
      #expect(said.exitStatus == 64 && said.text == "")
      #expect(said.complaints == ["there is no key '\(word)'; did you mean '\(near)'?"])
      #expect(said.json.contains(#""keys":[],"error":{"name":"no-such-key","#))
    }
    #expect(
      Explanation(["\u{1b}[2Jquux"], style: Style()).complaints == [
        "there is no key '\\x1b[2Jquux'; '--explain' alone lists them"
      ])
  }

  @Test(arguments: [40, 80, 200]) func `without a word is the list of all, as wide as there is room`(width: Int) {
    let lines = Explanation([], style: Style(width: width)).text.split(separator: "\n")
    // A long key is not broken.
    #expect(lines.allSatisfy { columns(String($0)) <= width || !$0.dropFirst(2).contains(" ") }, "\(lines)")
    for known in KnownKey.all { #expect(lines.contains { $0.hasPrefix("  " + known.key.path) }) }
  }
}
