import Testing

extension Programs {
  @Suite struct `the manual` {
    struct Table: CustomTestStringConvertible {
      var number: Int, what: String, yaml: String
      var testDescription: String { "of a service with \(what)" }
    }

    @Test(arguments: [
      Table(
        number: 0, what: "repairs and plugins",
        yaml: """
          repair:
            - {name: mend, run: [/bin/true]}
          plugins:
            list:
              - {name: extra, environment: {EXTRA: "off"}}
          """),
      Table(number: 1, what: "neither", yaml: ""),
    ])
    func `guardian-ladder(7) prints the time line that plan computes`(_ table: Table) async throws {
      let scratch = try Scratch(), config = try scratch.directory("config")
      _ = try scratch.directory("config/services")
      try Files.write("command: [/bin/false]\n\(table.yaml)\n", to: config + "/services/doomed.yaml")
      let answer = try await run([
        Place.products + "/guardianctl", "--runtime", scratch.path, "--config", config, "--json", "plan", "doomed",
        "--from-start",
      ])
      #expect(answer.code == 0, "\(answer)")
      let entries = try JSON(answer.output)["plans"].array.first?["entries"].array ?? []
      // Each death, and the step on which the next thing happens.
      var computed: [[String]] = []
      for (n, entry) in entries.enumerated() where entry["action"].string == "death" {
        let next = entries[n...].first { ["start", "quarantine"].contains($0["action"].string ?? "") }
        computed.append([
          clock(try #require(entry["earliest_ms"].int)), "\(computed.count + 1)", next?["step"].string ?? "none",
        ])
      }
      let page = try Files.read(Place.repository + "/man/guardian-ladder.7")
      let tables = page.components(between: ".Bl -column", and: ".El").filter { $0.contains(".It Sy time") }
      let printed = try #require(tables.dropFirst(table.number).first).split(separator: "\n").filter {
        $0.hasPrefix(".It \"")
      }
      .map { row in row.dropFirst(4).components(separatedBy: " Ta ").map { String($0.filter { $0 != "\"" }) } }
      #expect(printed.filter { $0[1] != "-" }.map { Array($0.prefix(3)) } == computed, "\(answer.output)")
      let trial = printed.first { $0[1] == "-" }
      if let trial {
        let planned = try #require(entries.first { $0["action"].string == "trial" }?["earliest_ms"].int)
        #expect(trial[0] == clock(planned))
      }
    }

    @Test func `guardian(8) names every option that guardian has, and no other`() async throws {
      let help = try await run([Place.products + "/guardian", "--help"])
      #expect(help.code == 0)
      let page = try Files.read(Place.repository + "/man/guardian.8")
      let shown = Set(help.output.matches(of: /--([a-z][a-z-]*)/).map { String($0.1) })
      // Only the list of options: the text may speak of others' options.
      let list = page.components(between: "The options are:", and: ".El").first ?? ""
      let written = Set(list.matches(of: /\.It Fl -([a-z][a-z-]*)/).map { String($0.1) })
      #expect(shown == written)
    }

    @Test func `README names every page`() throws {
      let readme = try Files.read(Place.repository + "/README.md")
      for page in Files.names(in: Place.repository + "/man") {
        let parts = page.split(separator: ".")
        let name = parts.dropLast().joined(separator: ".")
        #expect(readme.contains("[\(name)(\(parts.last ?? ""))](man/\(page))"), "\(page)")
      }
    }

    /// As the table has it: minutes, seconds and tenths.
    func clock(_ milliseconds: Int) -> String {
      let tenths = milliseconds / 100
      let seconds = tenths / 10 % 60
      return "\(tenths / 600):\(seconds < 10 ? "0" : "")\(seconds).\(tenths % 10)"
    }
  }
}

extension StringProtocol {
  func components(separatedBy separator: String) -> [String] {
    var parts: [String] = [], rest = String(self)[...]
    while let range = rest.firstRange(of: separator) {
      parts.append(String(rest[..<range.lowerBound]))
      rest = rest[range.upperBound...]
    }
    return parts + [String(rest)]
  }

  /// The texts between each `start` and the next `end`.
  func components(between start: String, and end: String) -> [String] {
    components(separatedBy: start).dropFirst().compactMap { $0.components(separatedBy: end).first }
  }
}
