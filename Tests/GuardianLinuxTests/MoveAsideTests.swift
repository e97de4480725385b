import Glibc
@testable import GuardianLinux
import Testing

@Suite struct `moving aside` {
  /// 2026-01-31 23:59:59 UTC
  private let moment = 1_769_903_999

  private func contents(_ scratch: Scratch) -> [String] { entries(of: scratch.path).sorted() }

  @Test func `keeps a directory under a dated name and makes it again, empty, with its mode and owner`() throws {
    let scratch = try Scratch()
    let cache = try scratch.directory("cache", mode: 0o2750)
    try scratch.file("cache/broken", "x")
    if Children.isRoot { #expect(chown(cache, 4711, 4712) == 0 && chmod(cache, 0o2750) == 0) }
    var before = stat()
    stat(cache, &before)

    let outcome = MoveAside.perform(cache, at: moment)
    #expect(outcome.exitCode == 0)
    #expect(outcome.message == "moved \(cache) to .cache.guardian-20260131T235959Z and made it again, empty")
    #expect(contents(scratch) == [".cache.guardian-20260131T235959Z", "cache"])
    #expect(entries(of: cache).isEmpty)
    #expect(FileText.text(scratch.path + "/.cache.guardian-20260131T235959Z/broken") == "x")
    var after = stat()
    stat(cache, &after)
    #expect(after.st_mode == before.st_mode && after.st_uid == before.st_uid && after.st_gid == before.st_gid)
    #expect(after.st_ino != before.st_ino)
  }

  private static let tool = "/usr/bin/python3"
  @Test(.enabled(if: access(tool, X_OK) == 0, "not shown: no tool that writes extended attributes"))
  func `keeps labels and access lists of a directory`() throws {
    let scratch = try Scratch()
    let cache = try scratch.directory("cache")
    let tool = Self.tool
    func python(_ text: String) throws -> String { try Children.run(SpawnRequest(command: [tool, "-c", text])).output }
    #expect(try python("import os; os.setxattr('\(cache)', 'user.label', b'mine')") == "")
    #expect(MoveAside.perform(cache, at: moment).exitCode == 0)
    #expect(try python("import os; print(os.getxattr('\(cache)', 'user.label').decode())") == "mine\n")
  }

  @Test func `simply moves a file and a link, and never what the link leads to`() throws {
    let scratch = try Scratch()
    let file = try scratch.file("state.db", "x")
    #expect(symlink("state.db", scratch.path + "/link") == 0)
    #expect(MoveAside.perform(scratch.path + "/link", at: moment).exitCode == 0)
    #expect(FileText.text(file) == "x")
    #expect(MoveAside.perform(file, at: moment).exitCode == 0)
    #expect(contents(scratch) == [".link.guardian-20260131T235959Z", ".state.db.guardian-20260131T235959Z"])
  }

  @Test func `has nothing to do where the path or its directory is missing`() throws {
    let scratch = try Scratch()
    for path in [scratch.path + "/none", scratch.path + "/none/below"] {
      let outcome = MoveAside.perform(path, at: moment)
      #expect(outcome.exitCode == 0)
      #expect(outcome.message.hasPrefix("nothing to move"))
    }
    #expect(contents(scratch).isEmpty)
  }

  @Test func `follows no link on the way, and names it`() throws {
    let scratch = try Scratch()
    let real = try scratch.directory("real")
    try scratch.file("real/file")
    #expect(symlink("real", scratch.path + "/link") == 0)
    let outcome = MoveAside.perform(scratch.path + "/link/file", at: moment)
    #expect(outcome.exitCode == 1)
    #expect(outcome.message.contains("\(scratch.path)/link leads through a symbolic link"))
    #expect(entries(of: real) == ["file"])
  }

  @Test(arguments: ["relative", "/", "/a/../b", "/a/.", "", "/a\0b"])
  func `refuses a path that is none`(_ path: String) {
    #expect(MoveAside.perform(path, at: moment).exitCode == 1)
  }

  @Test func `refuses a mount point and names it`() {
    let outcome = MoveAside.perform("/proc", at: moment)
    #expect(outcome.exitCode == 1)
    #expect(outcome.message.contains("/proc aside: it is a mount point"))
  }

  @Test func `never replaces an earlier backup of the same second, and keeps the newest three`() throws {
    let scratch = try Scratch()
    let file = scratch.path + "/state"
    // What only looks like a backup stays.
    try scratch.file(".state.guardian-notes")
    try scratch.directory(".other.guardian-20200101T000000Z")
    for n in 1...5 {
      try scratch.file("state", "\(n)")
      #expect(MoveAside.perform(file, at: moment + n / 3).exitCode == 0)
    }
    #expect(
      contents(scratch) == [
        ".other.guardian-20200101T000000Z", ".state.guardian-20260201T000000Z", ".state.guardian-20260201T000000Z-2",
        ".state.guardian-20260201T000000Z-3", ".state.guardian-notes",
      ])
    #expect(FileText.text(scratch.path + "/.state.guardian-20260201T000000Z-3") == "5")
  }

  @Test func `keeps no more bytes of backups than allowed, but always the newest`() throws {
    #expect(MoveAside.keptBytes == 1 << 30)
    let scratch = try Scratch()
    for n in 1...3 {
      let file = try scratch.file("state", String(repeating: "x", count: 600 << 10))
      #expect(MoveAside.perform(file, at: moment + n, keptBytes: 1 << 20).exitCode == 0)
    }
    #expect(contents(scratch) == [".state.guardian-20260201T000002Z"])
    let large = try scratch.file("state", String(repeating: "x", count: 2 << 20))
    #expect(MoveAside.perform(large, at: moment + 4, keptBytes: 1 << 20).exitCode == 0)
    #expect(contents(scratch) == [".state.guardian-20260201T000003Z"])
  }

  @Test func `removes an old backup with all below it, and nothing that its links lead to`() throws {
    let scratch = try Scratch()
    let cache = scratch.path + "/cache"
    let precious = try scratch.file("precious", "x")
    try scratch.directory("cache")
    try scratch.directory("cache/deep")
    try scratch.file("cache/deep/file")
    #expect(symlink(precious, cache + "/deep/link") == 0)
    #expect(symlink(scratch.path, cache + "/deep/up") == 0)
    for n in 1...4 { #expect(MoveAside.perform(cache, at: moment + n).exitCode == 0) }
    #expect(FileText.text(precious) == "x")
    #expect(contents(scratch).count == 5)
    #expect(access(scratch.path + "/.cache.guardian-20260201T000000Z", F_OK) != 0)
  }

  @Test func `finishes a move that was cut off between its two renames`() throws {
    let scratch = try Scratch()
    try scratch.directory(".cache.guardian-20260131T235959Z")
    try scratch.directory(".cache.guardian-new")
    let outcome = MoveAside.perform(scratch.path + "/cache", at: moment)
    #expect(outcome.exitCode == 0)
    #expect(contents(scratch) == [".cache.guardian-20260131T235959Z", "cache"])
    // Cut off before the first of them, it begins anew.
    try scratch.directory(".cache.guardian-new")
    #expect(MoveAside.perform(scratch.path + "/cache", at: moment + 1).exitCode == 0)
    #expect(contents(scratch).count == 3)
  }
}
