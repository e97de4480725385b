import Glibc
import Testing

extension PatientPrograms {
  /// Several boots of a real systemd over the same state directory; each ends like a machine whose plug is pulled.
  @Suite(.enabled(if: Boot.missing == nil, "not shown: \(Boot.missing ?? "")"))
  struct `after the machine went down` {
    private func boot(_ stage: String, _ name: String) async throws -> Facts {
      let boot = try await run(
        [
          "/usr/bin/env", "--chdir=/", Place.repository + "/Tests/Support/with-systemd", "--keep", stage, "/bin/bash",
          "\(stage)/reboot-scenario", stage, name,
        ], seconds: 120)
      guard boot.code == 0 else { throw Failure("with-systemd ended with \(boot.code): \(boot.error) \(boot.output)") }
      return Facts(boot.output)
    }

    private func stage(_ scratch: Scratch) async throws -> String {
      let stage = try scratch.directory("stage")
      let install = try await run(
        [
          "/usr/bin/make", "--no-print-directory", "-C", Place.repository, "install", "DESTDIR=\(stage)/root",
          "PREFIX=/usr", "RELEASE=\(Place.products)",
        ])
      guard install.code == 0 else { throw Failure("make install: \(install.error)") }
      let copied = try await run(["/bin/cp", Place.repository + "/Tests/Support/reboot-scenario", stage])
      guard copied.code == 0 else { throw Failure(copied.error) }
      return stage
    }

    @Test func `CASES 89, CASES 29, K8: everything is as it was, in each step, and backoff resumes with what was left`()
      async throws
    {
      let scratch = try Scratch(), stage = try await stage(scratch)
      let before = try await boot(stage, "first"), after = try await boot(stage, "second")
      let story = "\(before.all)\n\(after.all)"
      func both(_ name: String, _ text: String, at place: SourceLocation = #_sourceLocation) throws {
        #expect(try before[name].contains(text), "\(story)", sourceLocation: place)
        #expect(try after[name].contains(text), "\(story)", sourceLocation: place)
      }
      try both("well", #""settled":true"#)
      #expect(try after["well"].contains(#""strikes":0"#) && after["well"].contains(#""cause":"host""#), "\(story)")
      try both("down", #""wanted":"down""#)
      try both("down", #""phase":"stopped""#)
      try both("down", #""stopped_by":"root"#)
      #expect(try before["until"].contains(#""phase":"stopped""#), "\(story)")
      #expect(try after["until"].contains(#""settled":true"#), "\(story)")
      try both("doomed", #""phase":"quarantined""#)
      try both("slow", #""phase":"backing-off""#)
      try both("slow", #""strikes":1"#)
      try both("mending", #""phase":"repairing""#)
      try both("bare", #""step":"safe-mode""#)
      try both("held", #""held":true"#)
    }

    @Test func `who takes the machine down is convicted alone at the third loss, and the innocent run`() async throws {
      let scratch = try Scratch(), stage = try await stage(scratch)
      for _ in 0..<3 { _ = try await boot(stage, "loss")["lost"] }
      let after = try await boot(stage, "after-loss")
      #expect(try after["killer"].contains(#""phase":"quarantined""#), "\(after.all)")
      #expect(try after["all"].split(separator: "\n").count { $0.contains("quarantined") && $0.hasPrefix("good") } == 0)
    }

    @Test func `a search for a guilty plugin goes on where it was`() async throws {
      let scratch = try Scratch(), stage = try await stage(scratch)
      let before = try await boot(stage, "search"), after = try await boot(stage, "search-again")
      let story = "\(before.all)\n\(after.all)"
      #expect(try before["events"].contains("searching for it") && before["events"].contains("probe"), "\(story)")
      #expect(try !before["events"].contains("the search is over"), "\(story)")
      #expect(try after["off"] == #""disabled_plugins":["f"]"#, "\(story)")
      #expect(try after["searched"].contains(#""step":"restart""#), "\(story)")
      let events = try after["events"].split(separator: "\n")
      #expect(events.count { $0.contains("searching for it") } == 1, "it is the same search: \(story)")
      #expect(events.count { $0.contains("the search is over: f off") } == 1, "\(story)")
    }

    @Test func `three power cuts at random times convict nobody`() async throws {
      let scratch = try Scratch(), stage = try await stage(scratch)
      // The third one after all have settled: whoever is started alone at that moment is rightly convicted by it.
      for name in ["innocent", "innocent", "innocent-late"] { _ = try await boot(stage, name) }
      let after = try await boot(stage, "innocent")
      #expect(try !after["all"].contains("quarantined"), "\(after.all)")
    }
  }
}
