import GuardianImport
import Testing

/// Blocks of README's section, without their indentation.
private func blocks(_ title: String) throws -> [String] {
  let readme = try #require(read("README.md"))
  var found: [String] = [], inside = false, open = false
  for line in readme.split(separator: "\n", omittingEmptySubsequences: false) {
    if line.hasPrefix("#") { inside = line == "### \(title)" }
    guard inside, line.hasPrefix("    ") else {
      open = false
      continue
    }
    if !open { found.append("") }
    open = true
    found[found.count - 1] += line.dropFirst(4) + "\n"
  }
  return found
}

@Suite struct `README's example` {
  @Test func `of a unit is what import makes of it`() throws {
    let texts = try blocks("From systemd")
    try #require(texts.count == 3)
    let service = try only(unit(texts[0], named: "shop.service"))
    #expect(service.yaml == texts[1])
    #expect(service.remarks.map { "\($0)\n" }.joined() == texts[2])
    _ = try spec(service)
  }

  @Test func `of a program of supervisord is what import makes of it`() throws {
    let texts = try blocks("From supervisord")
    try #require(texts.count == 2)
    let file = ImportedFile(name: "supervisord.conf", text: texts[0])
    let service = try only(SupervisordSource(files: [file], here: "/etc").imported)
    #expect(service.yaml == texts[1])
    _ = try spec(service)
  }

  @Test func `of a directory of runit is what import makes of it`() throws {
    let texts = try blocks("From runit")
    try #require(texts.count == 2)
    let service = try only(
      RunitSource(directory: "/etc/sv/shop", files: [ImportedFile(name: "run", text: texts[0])]).imported)
    #expect(service.yaml == texts[1])
    _ = try spec(service)
  }
}
