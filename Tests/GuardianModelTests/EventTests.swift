import Glibc
import GuardianModel
import Testing

@Suite struct `the kinds of events` {
  @Test func `each have an id of 128 bits in the journal, and no two have the same`() {
    let ids = EventName.allCases.map(\.messageID)
    #expect(Set(ids).count == EventName.allCases.count)
    for id in ids { #expect(id.utf8.count == 32 && id.allSatisfy { $0.isHexDigit && !$0.isUppercase }) }
  }

  /// GUARDIAN_WRITE_CATALOG=1 writes it.
  @Test func `are all explained in the message catalog, which is the table in other words`() throws {
    let path =
      String(#filePath.dropLast("Tests/GuardianModelTests/EventTests.swift".count)) + "units/guardian.catalog"
    let wanted = Array(EventName.catalog.utf8)
    if getenv("GUARDIAN_WRITE_CATALOG") != nil {
      let stream = try #require(fopen(path, "w"))
      fwrite(wanted, 1, wanted.count, stream)
      fclose(stream)
    }
    let stream = try #require(fopen(path, "r"))
    defer { fclose(stream) }
    var found = [UInt8](repeating: 0, count: wanted.count + 1)
    let count = fread(&found, 1, found.count, stream)
    #expect(Array(found[..<count]) == wanted)
    for line in EventName.catalog.split(separator: "\n") { #expect(line.utf8.count <= 120) }
  }

  @Test func `have words that the manual lists`() throws {
    let path = String(#filePath.dropLast("Tests/GuardianModelTests/EventTests.swift".count)) + "man/guardianctl.1"
    let stream = try #require(fopen(path, "r"))
    defer { fclose(stream) }
    var bytes = [UInt8](repeating: 0, count: 1 << 20)
    let count = fread(&bytes, 1, bytes.count, stream)
    let words = Set(
      String(decoding: bytes[..<count], as: UTF8.self).split { " ,\n".contains($0) }.map(String.init))
    for event in EventName.allCases { #expect(words.contains(event.rawValue), "\(event)") }
  }
}

@Suite struct `an event's id` {
  @Test func `grows with each event, also when the clock is set back`() {
    var id = EventID.none
    for nanoseconds in [5_000_000, 5_000_000, 5_001_000, 1000, -7, 6_000_000] as [Int64] {
      let next = id.next(at: WallTime(nanoseconds: nanoseconds))
      #expect(next > id)
      id = next
    }
    #expect(id == EventID(6000))
  }

  @Test func `is written as 16 digits, and read as nothing else`() {
    let id = EventID(0x6_50a1_b2c3_d4e5)
    #expect(id.description == "000650a1b2c3d4e5")
    #expect(EventID(id.description) == id)
    for text in ["", "650a1b2c3d4e5", "000650a1b2c3d4eg", "+00650a1b2c3d4e5", "0000000000000000", "ffffffffffffffff"] {
      #expect(EventID(text) == nil, "\(text)")
    }
  }
}

@Suite struct `an event's details` {
  @Test func `are one JSON object with what the sentence is about`() throws {
    let web = try #require(ServiceName("web"))
    var end = End(
      run: RunID(high: 1, low: 2), status: .signal(.segv, core: true), cause: .signal, crashClass: .null,
      at: WallTime(nanoseconds: 0), uptime: .milliseconds(1500), leftovers: 2)
    end.signature = Signature(value: 255, strong: true)
    let event = Occurrence(service: web, at: end.at, kind: .ended(end))
    #expect(
      String(decoding: event.detailsJSON, as: UTF8.self)
        == #"{"run":"00000000000000010000000000000002","cause":"signal","class":"null","signal":"SEGV","core":true,"#
        + #""uptime_ms":1500,"leftovers":2,"signature":"00000000000000ff"}"#)
  }

  @Test func `hold nothing that breaks a line or a terminal, and are bounded`() throws {
    let web = try #require(ServiceName("web"))
    let text = "a\"b\\c\n\u{1b}[31m" + String(repeating: "ü", count: 1000)
    let json = Occurrence(service: web, at: WallTime(nanoseconds: 0), kind: .notCounted(why: text)).detailsJSON
    #expect(json.count < 560)
    #expect(json.allSatisfy { $0 >= 0x20 })
    #expect(String(decoding: json, as: UTF8.self).hasPrefix(#"{"reason":"a\"b\\c"#))
  }
}
