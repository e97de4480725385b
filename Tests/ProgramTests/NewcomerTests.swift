import Testing

extension PatientPrograms {
  @Suite struct `a newcomer` {
    @Test func `is led by the messages to each mistake, sees it climb, and lets it out, as README shows it`()
      async throws
    {
      let scratch = try Scratch()
      let session = try await run([Place.repository + "/Tests/Support/newcomer", Place.products, scratch.path])
      try #require(session.code == 0, "\(session)")
      let readme = try Files.read(Place.repository + "/README.md")
      let section = try #require(readme.components(between: "## The first half hour\n", and: "\n## ").first)
      let shown = section.split(separator: "\n").filter { $0.hasPrefix("    ") }.map { $0.dropFirst(4) }
      let seen = session.output.split(separator: "\n")
      #expect(inAnyOrder(shown.map(timeless)) == inAnyOrder(seen.map(timeless)))
    }

    /// What comes true within the same moment is told in either order.
    private func inAnyOrder(_ lines: [String]) -> [String] {
      var result: [String] = [], together: [String] = []
      for line in lines {
        if line.hasSuffix(": settled") {
          together.append(line)
        } else {
          result += together.sorted() + [line]
          together = []
        }
      }
      return result + together.sorted()
    }

    /// Without what is another each time, and without what only lines up columns.
    private func timeless(_ line: Substring) -> String {
      var text = line.replacing(/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC/, with: "DATE")
      text = text.replacing(/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z/, with: "TIME")
      text = text.replacing(/[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}/, with: "TIME")
      text = text.replacing(/[0-9a-f]{32}|crash [0-9a-f]{8}/, with: "ID")
      text = text.replacing(/(less than )?[0-9]+(\.[0-9]+)?(us|ms|s|min|h|d)([0-9]+(ms|s|min|h))*/, with: "T")
      text = text.replacing(/(pid|Process:) [0-9]+/, with: "PID")
      return text.split(separator: " ").joined(separator: " ")
    }
  }
}
