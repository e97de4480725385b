import GuardianControl
import Glibc
import Testing

@Suite struct `the manual page` {
  private var page: [Substring] {
    let file = String(#filePath.dropLast("Tests/GuardianControlTests/ManualTests.swift".count)) + "man/guardianctl.1"
    guard let stream = fopen(file, "r") else { return [] }
    defer { fclose(stream) }
    var bytes: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 4096)
    while true {
      let count = fread(&buffer, 1, buffer.count, stream)
      if count == 0 { break }
      bytes += buffer[..<count]
    }
    return bytes.text.split(separator: "\n")
  }
  /// First words behind `.It macro` in the page.
  private func items(_ macro: String) -> Set<String> {
    Set(
      page.compactMap { line in
        guard line.hasPrefix(".It \(macro) ") else { return nil }
        return line.split(separator: " ").dropFirst(2).first.map(String.init)
      })
  }

  @Test func `describes the verbs that there are`() { #expect(items("Cm") == Set(Verb.allCases.map(\.rawValue))) }

  @Test func `describes the options that there are`() {
    #expect(items("Fl") == Set(Option.allCases.map { String($0.rawValue.dropFirst()) }))
  }

  @Test func `names every exit status`() {
    let statuses = Set(page.compactMap { $0.hasPrefix(".It ") ? Int32($0.dropFirst(4)) : nil })
    #expect(statuses == [0, 1, 2, 3, 4, 5, 6, 64, 77])
  }

  @Test func `and the help text name each verb and option`() {
    for verb in Verb.allCases { #expect(helpText(width: nil).contains("\n  \(verb.rawValue) ")) }
    for option in Option.allCases { #expect(helpText(width: nil).contains("\n  \(option.rawValue) ")) }
  }
}
