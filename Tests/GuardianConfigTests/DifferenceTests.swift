import GuardianConfig
import GuardianModel
import Testing

@Suite struct `the difference of two definitions` {
  /// A key that is missing there would be shown as `definition`, and wait for a start.
  @Test(arguments: KeyTable.service.keys)
  func `names each key that a file may have`(_ key: KeyTable.Key) throws {
    if key.path == "command" { return }  // every example has it already
    let word = String(key.path.split(separator: ".").first.map(String.init)?.prefix { $0 != "[" } ?? "")
    var (plain, changed) = (try valid(""), try valid(key.example))
    if word == "group" {
      // The user database of these tests has one group only.
      plain.process.identity = someone
      changed.process.identity?.gid = 77
    }
    let difference = SpecDifference(from: plain, to: changed)
    #expect((difference.live + difference.atStart).contains(word), "\(key.path): \(difference)")
    #expect(!difference.atStart.contains("definition"))
  }

  @Test func `is empty between equals, and tells what a process cannot be given later`() throws {
    let plain = try valid("")
    #expect(SpecDifference(from: plain, to: plain).isEmpty)
    let difference = SpecDifference(
      from: plain, to: try valid("stop: {timeout: 1s}\nlog: none\numask: \"0077\"\nrestart: never"))
    #expect(difference.live == ["stop", "restart"])
    #expect(difference.atStart == ["umask", "log"])
  }

  @Test func `of the whole guardian is told by its keys, wherever they are written`() throws {
    func host(_ text: String) throws -> HostSpec {
      let parsed = Configuration.parseHost(bytes: Array(text.utf8), file: "guardian.yaml", context: context())
      return try #require(parsed.host, "\(parsed.diagnostics)")
    }
    let first = try host("defaults: {nice: 5}\nhistory: {events: 1000}\n")
    #expect(try host("history: {events: 1000}\n\n# moved\ndefaults:\n  nice: 5\n").changedKeys(from: first) == [])
    #expect(try host("defaults: {nice: 6}\n").changedKeys(from: first) == ["defaults", "history"])
    #expect(try host("").changedKeys(from: HostSpec()) == [])
  }
}
