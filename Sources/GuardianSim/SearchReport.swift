import GuardianCore

/// The two tables of guardian-ladder(7): `guardian-sim --search` prints them, a test compares them with the manual.
package struct SearchReport: Sendable {
  package var situations: [[String]], comparison: [[String]]

  /// Incidents behind one cell of the first table.
  package static let runsPerCell = 200

  /// - Parameter incidents: For the comparison.
  package init(incidents: Int, seed: UInt64) {
    let unlimited = CulpritSearch.Budget(probes: 200, failing: 200)
    situations = SearchSituation.all.map { situation in
      var row = [situation.name], share = 1.0
      for toggles in SearchSituation.sizes {
        guard situation.isPlayed(with: toggles) else {
          row.append("-")
          continue
        }
        let tally = situation.play(.search(unlimited), toggles: toggles, runs: Self.runsPerCell, seed: seed)
        row.append(Self.cell(tally))
        share = min(share, tally.share)
      }
      return row + ["\(Self.text(share * 100, digits: 0)) %"]
    }
    let comparison = SearchComparison(incidents: incidents, seed: seed)
    self.comparison = zip(SearchComparison.methods, comparison.tallies).map { method, tally in
      [
        method.name, "\(Self.text(tally.share * 100)) %", Self.text(tally.meanProbes), Self.text(tally.meanFailing),
        "\(Self.text(tally.meanDownSeconds)) s", Self.text(tally.meanInnocents, digits: 2),
      ]
    }
  }

  /// As the table has it: probes, and failing ones.
  package static func cell(_ tally: SearchTally) -> String {
    "\(text(tally.meanProbes)) (\(text(tally.meanFailing)))"
  }

  /// Rounded half up, with as many decimals.
  package static func text(_ number: Double, digits: Int = 1) -> String {
    let scale = [1, 10, 100][max(0, min(2, digits))]
    let whole = Int(number * Double(scale) + 0.5)
    if scale == 1 { return "\(whole)" }
    let rest = "\(whole % scale)"
    return "\(whole / scale)." + String(repeating: "0", count: digits - rest.utf8.count) + rest
  }

  package var lines: [String] {
    let counts: [String] = SearchSituation.sizes.map { "n = \($0)" }
    let first: [[String]] = [["culprits"] + counts + ["correct"]] + situations
    let second: [[String]] =
      [["way of searching", "correct", "probes", "failing", "down", "innocent off"]] + comparison
    return Self.aligned(first) + [""] + Self.aligned(second)
  }

  private static func aligned(_ rows: [[String]]) -> [String] {
    var widths: [Int] = []
    for row in rows {
      for (column, text) in row.enumerated() {
        if column == widths.count { widths.append(0) }
        widths[column] = max(widths[column], text.count)
      }
    }
    return rows.map { row in
      var line = ""
      for (column, text) in row.enumerated() {
        line += text
        if column + 1 < row.count { line += String(repeating: " ", count: widths[column] - text.count + 2) }
      }
      return line
    }
  }
}
