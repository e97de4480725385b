import Glibc
@testable import GuardianLinux
import GuardianModel
import Testing

@Suite struct `what a service is made of` {
  private let scratch: Scratch
  init() throws { scratch = try Scratch() }

  /// A file with one segment of notes and nothing else: another note first, then the build id.
  private func elf(id: [UInt8], offset: UInt64 = 120) -> [UInt8] {
    func little(_ value: UInt64, _ count: Int) -> [UInt8] {
      (0..<count).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
    }
    let head: [UInt8] =
      [0x7F] + Array("ELF".utf8) + [2, 1, 1, 0] + little(0, 8) + little(3, 2) + little(62, 2) + little(1, 4)
      + little(0, 8)
      + little(64, 8) + little(0, 8) + little(0, 4) + little(64, 2) + little(56, 2) + little(1, 2) + little(0, 6)
    let other: [UInt8] = little(4, 4) + little(5, 4) + little(1, 4) + Array("GNU\0".utf8) + [1, 2, 3, 4, 5, 0, 0, 0]
    let note: [UInt8] = little(4, 4) + little(UInt64(id.count), 4) + little(3, 4) + Array("GNU\0".utf8) + id
    let segment = little(4, 4) + little(4, 4) + little(offset, 8) + little(0, 16)
    return head + segment + little(UInt64(other.count + note.count), 8) + little(0, 16) + other + note
  }
  private func buildID(_ bytes: [UInt8]) throws -> String? {
    let path = scratch.path + "/elf"
    let file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    defer { close(file) }
    try #require(file >= 0 && write(file, bytes, bytes.count) == bytes.count)
    return BuildID.of(file)
  }

  @Test func `has the build id of a program, and none where the file is anything else`() throws {
    let whole = elf(id: [0xDE, 0xAD, 0x0B, 0xEE])
    #expect(try buildID(whole) == "dead0bee")
    #expect(try buildID(Array("#!/bin/sh\n".utf8)) == nil)
    #expect(try buildID([]) == nil)
    #expect(try buildID(elf(id: [1, 2, 3, 4], offset: .max)) == nil)
    // Cut short anywhere, or with any byte wrong, it is at most none.
    for length in 0..<whole.count { #expect(try buildID(Array(whole.prefix(length))) == nil) }
    for at in 0..<whole.count {
      var damaged = whole
      damaged[at] = 0xFF
      _ = try buildID(damaged)
    }
  }

  @Test func `has the libraries that a process runs code of, each once, and knows of those that were replaced`() throws
  {
    let text = """
      00400000-00401000 r-xp 00000000 fe:00 12   /srv/shop
      7f0000000000-7f0000001000 r--p 00000000 fe:00 13                         /usr/lib/libc.so.6
      7f0000001000-7f0000002000 r-xp 00001000 fe:00 13                         /usr/lib/libc.so.6
      7f0000003000-7f0000004000 r-xp 00001000 fe:00 13                         /usr/lib/libc.so.6
      7f0000005000-7f0000006000 r-xp 00001000 fe:00 14                         /usr/lib/my lib.so (deleted)
      7f0000007000-7f0000008000 rw-p 00001000 fe:00 15                         /var/data
      7f0000009000-7f000000a000 r-xp 00000000 00:01 16                         /memfd:jit (deleted)
      7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
      broken line
      """
    #expect(
      MappedFiles.parse(Array(text.utf8)) == [
        MappedFiles.File(path: "/srv/shop", isDeleted: false),
        MappedFiles.File(path: "/usr/lib/libc.so.6", isDeleted: false),
        MappedFiles.File(path: "/usr/lib/my lib.so", isDeleted: true),
      ])
    #expect(MappedFiles.of(getpid()).contains { $0.path.contains("libc") })
    #expect(MappedFiles.of(0).isEmpty)
  }

  @Test func `has what the package manager did last with each package, and survives a log that is none`() throws {
    let log = try scratch.file(
      "dpkg.log",
      """
      2026-03-01 12:00:00 startup archives unpack
      2026-03-01 12:00:01 upgrade libssl3:amd64 3.0.9-1 3.0.11-1
      2026-03-01 12:00:01 status unpacked libssl3:amd64 3.0.11-1
      2026-03-01 12:00:02 install hello:amd64 <none> 2.10
      2026-03-01 12:00:03 remove old:all 7 <none>
      2026-03-01 12:00:04 upgrade libssl3:amd64 3.0.11-1 3.0.12-1
      2026-13-99 99:99:99 upgrade
      2026-x-01 12:00:01 upgrade a 1 2

      """)
    let entries = PackageLog.latest(log)
    #expect(entries.map(\.package) == ["hello:amd64", "old:all", "libssl3:amd64"])
    #expect(entries.map(\.before) == ["", "7", "3.0.11-1"] && entries.map(\.after) == ["2.10", "", "3.0.12-1"])
    #expect(entries[2].at.nanoseconds - entries[0].at.nanoseconds == 2_000_000_000)
    #expect(PackageLog.latest(scratch.path + "/nowhere").isEmpty)
    #expect(PackageLog.parse([0xFF, 0x0A, 0x00, 0x20]).isEmpty)
    // Of a long log only its end is read.
    let line = "2026-03-01 12:00:01 upgrade filler 1 2\n"
    let long = try scratch.file(
      "long.log", String(repeating: line, count: 3000) + "2026-03-01 12:00:02 install x <none> 1\n")
    #expect(PackageLog.latest(long).map(\.package) == ["filler", "x"])
  }

  @Test func `has its libraries in the look of a process, and by name afterwards`() throws {
    var look = StateLook(
      program: "/nowhere", files: [], declared: [], plugins: [], pluginFiles: [], startPrint: 7, definition: "/nowhere",
      definitionName: "services/web.yaml", directories: [], dependencies: [])
    look.packageLog = "/nowhere"
    func libraries() -> [StateItem] { look.take().items.filter { $0.group == .libraries } }
    #expect(libraries().isEmpty)
    look.libraries = .process(getpid())
    let found = libraries()
    #expect(found.contains { $0.name.contains("libc.so") && $0.value.hasPrefix("build-id ") }, "\(found)")
    look.libraries = .named(found.map(\.name))
    #expect(libraries() == found)
    look.libraries = .named(["/nowhere/lib.so"])
    #expect(libraries().map(\.value) == ["absent"])
  }
}
