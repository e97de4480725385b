import Glibc
import GuardianControl
import GuardianModel
import Testing

private func file(_ path: String) -> String {
  let root = #filePath.dropLast("Tests/GuardianControlTests/VarlinkTests.swift".count)
  guard let stream = fopen(root + path, "r") else { return "" }
  defer { fclose(stream) }
  var bytes: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 4096)
  while true {
    let count = fread(&buffer, 1, buffer.count, stream)
    if count == 0 { break }
    bytes += buffer[..<count]
  }
  return bytes.text
}

/// `method` or `error` of the interface with the names of what it takes and replies.
private struct Declaration {
  var name: String, takes: [String], replies: [String]

  static func all(_ keyword: String) -> [Declaration] {
    let text = supervisorInterface.split(separator: "\n").filter { !$0.hasPrefix("#") }.joined(separator: "\n")
    func members(_ list: Substring) -> [String] {
      list.split(separator: ",").compactMap { part in
        part.split(separator: ":").first.map { $0.filter { $0 != " " && $0 != "\n" } }
      }
    }
    return text.split(separator: "\n" + keyword + " ").dropFirst().map { piece in
      let parts = piece.split(separator: "(", maxSplits: 2, omittingEmptySubsequences: false)
      let hasReply = parts.count > 2 && parts[1].contains("->")
      return Declaration(
        name: parts[0].filter { $0 != " " }, takes: members(parts[1].prefix { $0 != ")" }),
        replies: hasReply ? members(parts[2].prefix { $0 != ")" }) : [])
    }
  }
}

@Suite struct `the Varlink interface` {
  @Test func `is installed as introspection tells it`() {
    #expect(file("etc/io.guardian.Supervisor.varlink") == supervisorInterface)
    #expect(file("Makefile").contains("install -m 644 etc/io.guardian.Supervisor.varlink"))
  }

  /// One of each; the words are those of the manual.
  private static let needs: [(request: ControlRequest, role: String)] = [
    (.list(names: ["a"], brief: true), "view"), (.start(name: "a", wait: true), "operate"),
    (.stop(name: "a", untilBoot: true, wait: true), "operate"), (.restart(name: "a", wait: true), "operate"),
    (.release(name: "a", wait: true), "operate"), (.reset(name: "a", wait: true), "operate"),
    (.reloadService(name: "a", wait: true), "operate"), (.hold(name: "a", milliseconds: 1, wait: true), "operate"),
    (.plugins(name: "a", .search, wait: true), "operate"), (.safeMode(name: "a", on: true, wait: true), "operate"),
    (.repair(name: "a", repair: nil, wait: true), "operate"), (.reload(.apply), "admin of the host"),
    (.upgrade, "admin of the host"), (.resetGuardian, "admin of the host"), (.plan(name: "a", fromStart: true), "view"),
    (.drill(name: "a", DrillRequest()), "view"), (.crashes(name: "a"), "view"), (.crash(id: "00ffaa"), "view"),
    (.events(EventsRequest(names: ["a"])), "view"), (.summary, "view"), (.metrics, "view of the host"),
    (.version, "view"),
  ]

  @Test func `is in the manual with each method's role, parameters and reply, and each error`() throws {
    let page = file("man/guardian-varlink.7")
    func entry(_ name: String) -> Substring? {
      page.split(separator: "\n.It Cm ").first { $0.hasPrefix(name + " ") || $0.hasPrefix(name + "\n") }
    }
    let methods = Declaration.all("method")
    #expect(methods.count == Self.needs.count)
    for method in methods {
      let entry = try #require(entry(method.name), "\(method.name)")
      let need = try #require(Self.needs.first { $0.request.method == method.name }, "\(method.name)")
      #expect(entry.hasPrefix("\(method.name) Pq \(need.role)\n"), "\(method.name)")
      let takes = entry.prefix(entry.firstRange(of: "Replies ").map { entry.distance(to: $0.lowerBound) } ?? 0)
      for name in method.takes { #expect(takes.contains("\(name): "), "\(method.name) takes \(name)") }
      for name in method.replies { #expect(entry.contains("\(name): "), "\(method.name) replies \(name)") }
      switch need.request.need {
      case .anything: #expect(need.role == "view")
      case .services(let names): #expect(names == ["a"] && need.role == "view")
      case .host(let role): #expect(need.role == "\(role.rawValue) of the host")
      case .service(let name, let role): #expect(name == "a" && need.role == role.rawValue)
      }
    }
    for error in Declaration.all("error") {
      let entry = try #require(entry(error.name), "\(error.name)")
      for name in error.takes { #expect(entry.contains("\(name): "), "\(error.name) has \(name)") }
    }
    #expect(page.contains("\n.It \(ControlConnection.requestLimit) bytes\n"))
    #expect(page.contains("\n.It \(Patience.limit.components.seconds) seconds\n"))
    #expect(page.contains("at least \(Patience.pace) bytes"))
  }

  @Test func `grants more to whoever changes more`() {
    var drill = DrillRequest()
    drill.withRepairs = true
    #expect(ControlRequest.drill(name: "a", drill).need == .service("a", .admin))
    #expect(ControlRequest.reload(.dryRun).need == .host(.view))
    #expect(!ControlRequest.reload(.dryRun).changesSomething && ControlRequest.reload(.restart).changesSomething)
    #expect(!ControlRequest.list(names: nil, brief: true).changesSomething)
    #expect(ControlRequest.stop(name: "a", untilBoot: false, wait: true).changesSomething)
  }
}

extension Substring {
  fileprivate func distance(to index: Index) -> Int { distance(from: startIndex, to: index) }
}

@Suite struct `patience with a client` {
  private let start = Instant(nanoseconds: 1_000_000_000)

  @Test func `B2: who sends a byte a second is closed after half a minute, not after an hour`() {
    var patience = Patience()
    for second in 0..<30 {
      let now = start + .seconds(second)
      patience.note(owes: true, asked: false, read: 0, now: now)
      #expect(patience.deadline == start + .seconds(30), "second \(second)")
    }
  }

  @Test func `B3: who reads a byte a second is closed too, and who reads well never is`() {
    var slow = Patience(), quick = Patience()
    for second in 0..<120 {
      let now = start + .seconds(second)
      slow.note(owes: true, asked: false, read: 1, now: now)
      quick.note(owes: true, asked: false, read: 500, now: now)
      #expect(quick.deadline.map { $0 > now } ?? false)
    }
    #expect(slow.deadline == start + .seconds(30))
  }

  @Test func `starts anew with each request, and ends when nothing is owed`() {
    var patience = Patience()
    patience.note(owes: true, asked: false, read: 0, now: start)
    patience.note(owes: true, asked: true, read: 0, now: start + .seconds(20))
    #expect(patience.deadline == start + .seconds(50))
    patience.note(owes: false, asked: false, read: 0, now: start + .seconds(21))
    #expect(patience.deadline == nil)
  }
}

@Suite struct `rights` {
  private func service(_ name: String) throws -> ServiceName { try #require(ServiceName(name)) }

  @Test func `J1: are the highest that any grant gives, on the host or on the service`() throws {
    let host = AccessSpec([Grant(.view, .user(1000)), Grant(.operate, .group(50)), Grant(.admin, .group(51))])
    #expect(host.role(of: 1000, in: []) == .view)
    #expect(host.role(of: 1000, in: [50]) == .operate)
    #expect(host.role(of: 1000, in: [50, 51]) == .admin)
    // A group's number is no user's.
    #expect(host.role(of: 50, in: [1000]) == .nobody)
    var rights = Rights(host: .view)
    let web = try service("web"), db = try service("db")
    rights.add(.view, on: db)
    rights.add(.operate, on: web)
    #expect(rights.services.count == 1 && rights.most == .operate)
    #expect(rights.may(.operate, on: web) && !rights.may(.admin, on: web))
    #expect(rights.may(.view, on: db) && !rights.may(.operate, on: db))
    #expect(Rights().most == .nobody && !Rights().may(.view, on: web))
  }
}
