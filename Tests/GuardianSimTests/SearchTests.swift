import Glibc
import GuardianCore
import GuardianModel
import GuardianSim
import Testing

/// How often each cell is played; the long form is exact enough for the last digit.
private let runs = getenv("GUARDIAN_SEARCHES").flatMap { Int(String(cString: $0)) } ?? 40
private let isLong = getenv("GUARDIAN_SEARCHES") != nil

@Suite struct `searches for culprits by the thousand` {
  /// A cell of the published table: what it says, and how far off we may be.
  struct Cell: CustomTestStringConvertible {
    var row: Int, toggles: Int, probes: Double, failing: Double, share: Double
    var testDescription: String { "\(SearchSituation.all[row].name), n = \(toggles)" }
    init(_ row: Int, _ toggles: Int, _ probes: Double, _ failing: Double, _ share: Double) {
      self.row = row
      self.toggles = toggles
      self.probes = probes
      self.failing = failing
      self.share = share
    }
  }

  /// The mean of 40 runs lies within a third of the published one, and its share within 15 of 100: those cells come of
  /// 30 to 150 runs.
  @Test(arguments: [
    Cell(0, 4, 3.4, 1.3, 1), Cell(0, 8, 4.9, 1.9, 1), Cell(0, 16, 5.8, 2.3, 1), Cell(0, 32, 7.2, 3.0, 1),
    Cell(1, 4, 3.8, 1.5, 1), Cell(1, 8, 5.5, 2.1, 0.98), Cell(1, 16, 7.5, 2.7, 0.98), Cell(1, 32, 8.5, 3.4, 1),
    Cell(2, 4, 5.9, 2.0, 0.95), Cell(2, 8, 8.0, 2.6, 0.96), Cell(2, 16, 9.7, 3.4, 0.98), Cell(2, 32, 14, 4.3, 1),
    Cell(3, 4, 12, 2.9, 1), Cell(3, 8, 15, 3.6, 1), Cell(3, 16, 17, 4.2, 0.97), Cell(3, 32, 22, 5.1, 0.93),
    Cell(4, 4, 7.5, .nan, 0.84), Cell(4, 8, 10, .nan, 0.87), Cell(4, 16, 16, .nan, 0.85), Cell(4, 32, 19, .nan, 0.93),
    Cell(5, 4, 1.5, 0.3, 1), Cell(5, 8, 3.7, 1.4, 1), Cell(5, 16, 3.8, 1.4, 1), Cell(5, 32, 3.7, 1.3, 1),
    Cell(6, 4, 6.6, 4.2, 1), Cell(6, 8, 8.4, 5.0, 1), Cell(6, 16, 10.8, 6.2, 1), Cell(6, 32, 13.8, 7.3, 1),
    Cell(7, 8, 10.6, 6.0, 0.97), Cell(7, 16, 13.2, 7.4, 0.92),
    Cell(8, 4, 7.2, 1.8, 1), Cell(8, 8, 11, 3.1, 1), Cell(8, 16, 13, 3.7, 1), Cell(8, 32, 17, 4.9, 1),
    Cell(9, 8, 18, 14, 0.83), Cell(9, 16, 19, 13, 0.9),
  ])
  func `cost what the published table says`(_ cell: Cell) {
    let tally = SearchSituation.all[cell.row].play(
      .search(.init(probes: 200, failing: 200)), toggles: cell.toggles, runs: runs, seed: 1)
    #expect(tally.meanProbes < cell.probes * 1.33 + 0.5, "\(SearchReport.cell(tally))")
    if !cell.failing.isNaN {
      #expect(tally.meanFailing < cell.failing * 1.33 + 0.5, "\(SearchReport.cell(tally))")
    }
    #expect(tally.share > cell.share - 0.15)
  }

  /// Rows of the manual's tables, by what they begin with.
  private func manual() throws -> [[String]] {
    let root = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
    guard let file = fopen(root + "/man/guardian-ladder.7", "r") else { throw NoManual() }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 1 << 18)
    let page = String(decoding: bytes[..<fread(&bytes, 1, bytes.count, file)], as: UTF8.self)
    return page.split(separator: "\n").filter { $0.hasPrefix(".It \"") }.map { row in
      row.dropFirst(4).replacing(" Ta ", with: "\t").split(separator: "\t").map { String($0.filter { $0 != "\"" }) }
    }
  }
  struct NoManual: Error {}

  /// The small columns are played anew, the whole tables only on request.
  @Test func `are what guardian-ladder(7) says they cost`() throws {
    let manual = try manual()
    let unlimited = CulpritSearch.Budget(probes: 200, failing: 200)
    for situation in SearchSituation.all {
      let row = try #require(manual.first { $0.first == situation.name }, "\(situation.name)")
      for (column, toggles) in SearchSituation.sizes.enumerated() where toggles <= 8 {
        guard situation.isPlayed(with: toggles) else { continue }
        let tally = situation.play(.search(unlimited), toggles: toggles, runs: SearchReport.runsPerCell, seed: 1)
        #expect(row[column + 1] == SearchReport.cell(tally), "\(situation.name), n = \(toggles)")
      }
    }
  }

  @Test(.enabled(if: isLong, "ten thousand incidents take a minute: GUARDIAN_SEARCHES=200"))
  func `come out better than halving and one at a time, as guardian-ladder(7) has it`() throws {
    let manual = try manual()
    let report = SearchReport(incidents: 10_000, seed: 1)
    for row in report.situations + report.comparison { #expect(manual.contains(row), "\(row)") }
  }

  @Test func `end in the right set more often than halving and one at a time, with fewer failing starts`() throws {
    let tallies = SearchComparison(incidents: 400, seed: 3).tallies
    let own = try #require(tallies.first)
    #expect(own.share > 0.85)
    for other in tallies.dropFirst() { #expect(own.share > other.share + 0.1) }
    #expect(tallies.last.map { own.meanFailing < $0.meanFailing } ?? false)
    #expect(own.meanInnocents < 0.1)
  }
}
