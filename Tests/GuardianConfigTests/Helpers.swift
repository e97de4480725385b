import GuardianConfig
import GuardianModel
import Testing

let someone = Identity(user: "web", uid: 1000, gid: 1000, groups: [1000], home: "/home/web", shell: "/bin/sh")

/// A machine where every path is there and the users are root, web and redis.
func context(canHide: Bool = true, ownUID: UInt32 = 0, missing: [String] = []) -> ConfigurationContext {
  ConfigurationContext(
    resolveUser: { user, group in
      if let group, !["web", "root", "redis", "1000"].contains(group) {
        return .failure(.init("no group '\(group)' in the user database"))
      }
      guard ["web", "redis", "postgres", "www-data", "1000", nil].contains(user) else {
        return .failure(.init("no user '\(user ?? "")' in the user database"))
      }
      return .success(someone)
    }, lookAt: { path, _ in missing.contains(path) ? "no such file or directory" : nil }, canHide: canHide,
    ownUID: ownUID)
}

func parse(
  _ text: String, defaults: ServiceDefaults = .none, in context: ConfigurationContext = context()
) -> ParsedService {
  parse(bytes: Array(text.utf8), defaults: defaults, in: context)
}

func parse(
  bytes: [UInt8], defaults: ServiceDefaults = .none, in context: ConfigurationContext = context()
) -> ParsedService {
  guard let name = ServiceName("x") else { preconditionFailure() }
  return Configuration.parseService(name: name, bytes: bytes, file: "x.yaml", defaults: defaults, context: context)
}

/// `command`, unless it is given, and what is given, which must be without a fault or doubt.
func valid(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) throws -> ServiceSpec {
  let parsed = parse((text.hasPrefix("command:") ? "" : "command: [/bin/x]\n") + text)
  #expect(parsed.diagnostics.map(\.description) == [], sourceLocation: sourceLocation)
  return try #require(parsed.spec, sourceLocation: sourceLocation)
}

/// What is said about `command` (line 1) and `text` (from line 2), as lines.
func said(_ text: String, in context: ConfigurationContext = context()) -> [String] {
  parse("command: [/bin/x]\n" + text, in: context).diagnostics.map(\.description)
}

/// One piece of YAML behind `command` on line 1, and how the one diagnostic about it begins and what else it has.
struct Faulty: CustomTestStringConvertible, Sendable {
  var yaml: String, starts: String, has: String
  init(_ yaml: String, _ starts: String, has: String = "") {
    self.yaml = yaml
    self.starts = starts
    self.has = has
  }
  var testDescription: String { yaml }

  func check() {
    let lines = said(yaml)
    #expect(lines.count == 1, "\(lines)")
    #expect(lines.first?.hasPrefix("x.yaml:" + starts) == true, "\(lines)")
    #expect(has.isEmpty || lines.first?.contains(has) == true, "\(lines)")
  }
}
