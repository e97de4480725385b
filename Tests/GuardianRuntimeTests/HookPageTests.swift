import GuardianCore
import GuardianModel
import Testing

@testable import GuardianRuntime

@Suite struct `guardian-hooks(7)` {
  private let lines: [String]

  init() throws {
    let root = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
    let page = try #require(readWholeFile(root + "/man/guardian-hooks.7", atMost: 1 << 20))
    lines = page.split(separator: "\n").map(String.init)
  }

  /// One of each kind, after each kind of end.
  private func requests() throws -> [HookRequest] {
    let service = try #require(ServiceName("web")), id = RunID(high: 1, low: 2)
    let purposes: [HookPurpose] =
      [.repair(name: "mend"), .beforeStart, .reload] + NoticeKind.allCases.map { .notice($0) }
    let statuses: [GuardianModel.ExitStatus] = [.code(3), .signal(.kill, core: false)]
    return purposes.flatMap { purpose in
      statuses.map { status in
        let end = End(
          run: id, status: status, cause: .exit, crashClass: .errorExit, at: WallTime(nanoseconds: 1),
          uptime: .seconds(1))
        var context = HookContext(
          service: service, step: .repair, attempt: 1, strikes: 1, strikesAllowed: 2, disabledPlugins: ["a"], end: end,
          reason: "exit 3")
        if purpose == .reload { context.mainPid = 5 }
        return HookRequest(
          id: id, purpose: purpose, kind: .run(["/bin/true"]), identity: nil, timeout: .seconds(60), context: context)
      }
    }
  }

  private func section(_ title: String) -> [String] {
    let after = lines.drop { $0 != ".Ss \(title)" }.dropFirst()
    return Array(after.prefix { !$0.hasPrefix(".Ss ") && !$0.hasPrefix(".Sh ") })
  }
  private func items(_ macro: String, _ title: String) -> Set<String> {
    Set(
      section(title).filter { $0.hasPrefix(".It \(macro) ") }.flatMap { line in
        line.dropFirst(".It \(macro) ".count).split { $0 == " " || $0 == "," }.map(String.init)
      })
  }

  @Test func `lists the variables that a hook gets, and no other`() throws {
    let nobody = Identity(user: "nobody", uid: 65534, gid: 65534, groups: [], home: "/", shell: "/bin/sh")
    var names: Set<String> = ["GUARDIAN_DRILL", "JOURNAL_STREAM"]
    for request in try requests() {
      var environment = ChildEnvironment(user: nobody, language: nil)
      let base = Set(environment.strings)
      environment.describe(request)
      for text in environment.strings where !base.contains(text) {
        names.insert(String(text.prefix { $0 != "=" }))
      }
    }
    #expect(items("Ev", "Environment") == names)
  }

  @Test func `lists the members of what a hook reads, and no other`() throws {
    var members: Set<String> = []
    for request in try requests() {
      // No value has quotes in it.
      let parts = String(decoding: crashJSON(request), as: UTF8.self).split(
        separator: "\"", omittingEmptySubsequences: false)
      for (n, part) in parts.enumerated() where n % 2 == 1 && parts.count > n + 1 && parts[n + 1].hasPrefix(":") {
        members.insert(String(part))
      }
    }
    #expect(items("Va", "Standard input") == members)
  }

  @Test func `names the notices that there are`() {
    let text = section("Environment").joined(separator: " ")
    for kind in NoticeKind.allCases { #expect(text.contains(kind.rawValue)) }
  }
}
