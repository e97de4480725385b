import Glibc
@testable import GuardianLinux
import Testing

@Suite struct `good copies` {
  /// 2026-01-31 23:59:59 UTC
  private let moment = 1_769_903_999
  private let scratch: Scratch
  private let copies: GoodCopies
  private let place: String

  init() throws {
    scratch = try Scratch()
    copies = GoodCopies(directory: scratch.path + "/good/web")
    place = try scratch.directory("etc")
  }

  private var soon: Int64 { SystemClocks.now().wall.nanoseconds + 1_000_000_000 }
  private func take(_ paths: [String], start: Int64? = nil, before: [GoodCopies.Sight] = []) -> [String: String] {
    copies.take(paths, start: start ?? soon, before: before, now: 1)
  }
  private func mode(_ path: String) -> stat {
    var status = stat()
    lstat(path, &status)
    return status
  }
  private static let date = "20260131T235959Z"

  @Test func `put a file back with its owner and mode, and keep the broken one beside it`() throws {
    let file = try scratch.file("etc/a", "good", mode: 0o640)
    if Children.isRoot { #expect(chown(file, 4711, 4712) == 0) }
    #expect(take([file]).isEmpty)
    let first = copies.look(at: [file])[0]
    #expect(first.copiedAt == 1 && first.restored == nil)

    // As an editor does it: a new file.
    unlink(file)
    try scratch.file("etc/a", "broken", mode: 0o600)
    let outcome = copies.restore([file], at: moment)
    #expect(outcome.exitCode == 0)
    #expect(outcome.message == "restored \(file), the broken one is kept as .a.guardian-\(Self.date)")
    #expect(FileText.text(file) == "good")
    #expect(FileText.text("\(place)/.a.guardian-\(Self.date)") == "broken")
    let now = mode(file)
    #expect(now.st_mode & 0o7777 == 0o640)
    if Children.isRoot { #expect(now.st_uid == 4711 && now.st_gid == 4712) }
    #expect(entries(of: place).sorted() == [".a.guardian-\(Self.date)", "a"])

    // Whose work it is can be told, until somebody else has been there.
    #expect(copies.look(at: [file])[0].restored == "\(place)/.a.guardian-\(Self.date)")
    try scratch.file("etc/a", "mended")
    #expect(copies.look(at: [file])[0].restored == nil)
  }

  @Test func `tell whether a file is another now, and stand in for it`() throws {
    let file = try scratch.file("etc/a", "good", mode: 0o640), none = place + "/none"
    func sights() -> [GoodCopies.Sight] { copies.look(at: [file, none], comparing: [file, none]) }
    #expect(sights().allSatisfy { !$0.differs }, "nothing is known of them")
    #expect(copies.standIns(for: [file]) == [.none(path: file, why: "no good copy of it is known yet")])
    let before = copies.look(at: [file, none])
    #expect(take([file, none], before: before).isEmpty)
    #expect(sights().allSatisfy { !$0.differs })

    // In what it says, be it as long as before; in who may read it; in being there.
    try scratch.file("etc/a", "evil", mode: 0o640)
    #expect(sights()[0].differs && sights()[0].changedAt != nil)
    try scratch.file("etc/a", "good", mode: 0o640)
    #expect(!sights()[0].differs)
    #expect(chmod(file, 0) == 0)
    #expect(sights()[0].differs)
    unlink(file)
    #expect(sights()[0].differs && sights()[0].changedAt == nil)
    try scratch.file("etc/none", "new")
    #expect(sights()[1].differs)

    let standIns = copies.standIns(for: [file, none])
    guard case .copy(let copy) = standIns[0] else {
      Issue.record("\(standIns)")
      return
    }
    #expect(copy.content == Array("good".utf8) && copy.mode == 0o640 && copy.path == file)
    #expect(standIns[1] == .nothing(path: none))
    // What a run has not seen is not kept as good, and the copy before it stays.
    try scratch.file("etc/a", "evil", mode: 0o640)
    #expect(copies.take([file, none], start: soon, before: [], unseen: [file, none], now: 2).count == 2)
    #expect(copies.standIns(for: [file, none]) == standIns)
  }

  @Test func `are said to be missing where there are none`() throws {
    let file = try scratch.file("etc/a", "broken")
    let outcome = copies.restore([file], at: moment)
    #expect(outcome.exitCode == 1 && outcome.message.contains("no good copy is known yet"))
    #expect(FileText.text(file) == "broken")
    #expect(copies.look(at: [file])[0].copiedAt == nil)
  }

  @Test func `are not taken of what a run may not have read`() throws {
    let file = try scratch.file("etc/a", "good")
    #expect(take([file]).isEmpty)
    let look = copies.look(at: [file])
    try scratch.file("etc/a", "later, and never read")
    // By its times, and by its look before the start.
    let began = SystemClocks.now().wall.nanoseconds - 1_000_000_000
    #expect(take([file], start: began)[file]?.contains("changed since the run began") == true)
    #expect(take([file], before: look)[file]?.contains("changed since the run began") == true)
    #expect(copies.restore([file], at: moment).exitCode == 0)
    #expect(FileText.text(file) == "good")
  }

  @Test func `are taken of what was written just before a start, if it is still the same`() throws {
    let file = try scratch.file("etc/a", "good")
    let before = copies.look(at: [file])
    let start = SystemClocks.now().wall.nanoseconds
    #expect(
      take([file], start: start)[file]?.contains("changed since the run began") == true, "nobody knows what was in it")
    #expect(take([file], start: start, before: before).isEmpty)
    // Of the same length, in the same place and at the same time: its content tells.
    let status = mode(file)
    try scratch.file("etc/a", "evil")
    var times = [status.st_atim, status.st_mtim]
    #expect(utimensat(AT_FDCWD, file, &times, 0) == 0)
    #expect(copies.look(at: [file])[0].look == before[0].look)
    #expect(take([file], start: start, before: before)[file]?.contains("changed since the run began") == true)
    #expect(copies.look(at: [file])[0].freshContent != before[0].freshContent)
  }

  @Test func `leave alone what is as it was, and bring back what is gone`() throws {
    let one = try scratch.file("etc/a", "1"), two = try scratch.file("etc/b", "2")
    #expect(take([one, two]).isEmpty)
    let before = mode(one).st_ino
    unlink(two)
    let outcome = copies.restore([one, two], at: moment)
    #expect(outcome.exitCode == 0 && outcome.message == "restored \(two), which was gone")
    #expect(mode(one).st_ino == before && FileText.text(two) == "2")
    #expect(copies.restore([one, two], at: moment).message.hasPrefix("nothing to restore"))
  }

  @Test func `know that a file was not there`() throws {
    let file = place + "/a"
    // Without a look before the start it is not known whether the run had it.
    #expect(!take([file]).isEmpty)
    #expect(take([file], before: [GoodCopies.Sight(path: file)]).isEmpty)
    try scratch.file("etc/a", "does harm")
    #expect(copies.restore([file], at: moment).exitCode == 0)
    #expect(entries(of: place) == [".a.guardian-\(Self.date)"])
    #expect(copies.look(at: [file])[0].restored != nil)
  }

  @Test func `follow no link, neither to take nor to restore`() throws {
    let secret = try scratch.file("secret", "mine")
    let file = place + "/a"
    #expect(symlink(secret, file) == 0)
    #expect(take([file])[file]?.contains("symbolic link") == true)
    unlink(file)
    try scratch.file("etc/a", "good")
    #expect(take([file]).isEmpty)
    unlink(file)
    #expect(symlink(secret, file) == 0)
    #expect(copies.restore([file], at: moment).exitCode == 0)
    #expect(FileText.text(file) == "good" && FileText.text(secret) == "mine")
    #expect(mode(file).st_mode & S_IFMT == S_IFREG)

    #expect(symlink(place, scratch.path + "/link") == 0)
    let through = scratch.path + "/link/a"
    #expect(take([through])[through]?.contains("leads through a symbolic link") == true)
  }

  @Test func `refuse what is too large, no file, or a directory by now`() throws {
    let large = try scratch.file("etc/large", String(repeating: "x", count: GoodCopies.mostBytesOfFile + 1))
    let pipe = place + "/pipe"
    #expect(mkfifo(pipe, 0o600) == 0)
    let why = take([large, pipe, place])
    #expect(why[large]?.contains("larger than 1 MiB") == true)
    #expect(why[pipe]?.contains("no regular file") == true && why[place] != nil)
    let file = try scratch.file("etc/a", "good")
    #expect(take([file]).isEmpty)
    unlink(file)
    try scratch.directory("etc/a")
    let outcome = copies.restore([file], at: moment)
    #expect(outcome.exitCode == 1 && outcome.message.contains("is a directory"))
  }

  @Test func `of one service are bounded, and its old contents go`() throws {
    let files = try (1...17).map { n in
      try scratch.file("etc/\(n)", String(repeating: "\(n % 10)", count: GoodCopies.mostBytesOfFile - n))
    }
    let why = take(files)
    #expect(why.keys.sorted() == [files[16]])
    #expect(entries(of: copies.directory).count == 17)
    let few = try scratch.file("etc/1", "new")
    #expect(take([few]).isEmpty)
    #expect(entries(of: copies.directory).count == 2)
    copies.forget()
    #expect(entries(of: scratch.path + "/good").isEmpty)
  }

  @Test func `keep three broken ones of each file`() throws {
    let file = try scratch.file("etc/a", "good")
    #expect(take([file]).isEmpty)
    for n in 1...6 {
      try scratch.file("etc/a", "broken \(n)")
      #expect(copies.restore([file], at: moment + n).exitCode == 0)
    }
    let left = entries(of: place).filter { $0.hasPrefix(".a.guardian-") }.sorted()
    #expect(left.count == 3)
    #expect(left.compactMap { FileText.text("\(place)/\($0)") } == ["broken 4", "broken 5", "broken 6"])
  }

  @Test func `that are damaged, or whose catalogue is, restore nothing`() throws {
    let file = try scratch.file("etc/a", "good")
    #expect(take([file]).isEmpty)
    try scratch.file("etc/a", "broken")
    let content = try #require(entries(of: copies.directory).first { $0 != "catalogue" })
    try scratch.file("good/web/\(content)", "goof")
    let outcome = copies.restore([file], at: moment)
    #expect(outcome.exitCode == 1 && outcome.message.contains("its good copy is damaged"))
    #expect(FileText.text(file) == "broken")
    try scratch.file("good/web/catalogue", "guardian good copies 1\n\(file)\tx\n")
    #expect(copies.restore([file], at: moment).message.contains("no good copy is known yet"))
    // The next healthy run makes it whole again.
    #expect(take([file]).isEmpty)
    try scratch.file("etc/a", "again")
    #expect(copies.restore([file], at: moment).exitCode == 0 && FileText.text(file) == "broken")
  }

  @Test func `look at what a service is made of`() throws {
    let config = try scratch.file("etc/web.conf", "1"), program = try scratch.file("web", "#!")
    var look = StateLook(
      program: program, files: [config, "/nowhere"], declared: [config], plugins: ["a", "b"], pluginFiles: [],
      startPrint: 7, definition: scratch.path + "/web.yaml", definitionName: "services/web.yaml",
      directories: [place], dependencies: [])
    func value(_ name: String) -> String? { look.take().items.first { $0.name == name }?.value }
    let before = value(config)
    #expect(value(program) == "" && value("plugins") == "a, b" && value("/nowhere") == nil && value(place) != nil)
    try scratch.file("etc/web.conf", "2")
    #expect(value(config) != before)
    chmod(config, 0)
    let closed = value(config)
    chmod(config, 0o644)
    #expect(value(config) != closed)
    unlink(config)
    #expect(value(config) == "absent")
    look.declared = []
    #expect(value(config) == nil)
    // What has changed since a run began is not known to do no harm.
    try scratch.file("web", "#!!")
    let late = look.take(start: SystemClocks.now().wall.nanoseconds - 1_000_000_000)
    #expect(late.items.first { $0.name == program }?.isLate == true)
    #expect(look.take(start: soon).items.allSatisfy { !$0.isLate })
  }
}
