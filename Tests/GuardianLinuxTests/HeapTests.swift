import Testing

@Suite struct `the pages of code` {
  @Test func `that has been run are given back, and come again as they are needed`() throws {
    let finished = try Probe.run("code")
    let lines = finished.output.split(separator: "\n")
    try #require(finished.status == .code(0) && lines.count == 2, "\(finished.output)")
    let resident = lines[0].split(separator: " ").compactMap { Int($0) }
    try #require(resident.count == 2)
    #expect(resident[1] > 0 && resident[1] < resident[0] * 3 / 4, "\(resident)")
    #expect(lines[1] == "61 62 63")
  }
}
