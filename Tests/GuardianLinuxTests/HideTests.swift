import Glibc
import GuardianLinux
import GuardianModel
import Testing

/// Not shown without CAP_SYS_ADMIN, which a mount namespace needs.
@Suite(.enabled(if: HideSupport.available, "not shown: needs CAP_SYS_ADMIN")) struct `a hidden path` {
  private let nobody = Identity(
    user: "4711", uid: 4711, gid: 4711, groups: [4711], home: "/", shell: "/bin/sh")

  /// What the host has mounted there.
  private func mounts(below path: String) -> [Substring] {
    (FileText.text("/proc/self/mountinfo", limit: 16 << 20) ?? "").split(separator: "\n").filter { $0.contains(path) }
  }

  @Test func `is absent for the one process, with its neighbours in place and nothing changed on the host`() throws {
    let scratch = try Scratch()
    let hidden = try scratch.file("social.so", "plugin")
    try scratch.file("other.so", "neighbour")
    let directory = try scratch.directory("more")
    var request = Children.shell(
      "ls -A \(scratch.path); cat \(scratch.path)/other.so; test -e \(hidden) && echo there; "
        + "stat -c '%a %U' \(scratch.path); touch \(scratch.path)/new 2>/dev/null || echo read-only")
    request.hide = [hidden]
    let run = try Children.run(request)
    #expect(run.output == "more\nother.so\nneighbour755 root\nread-only\n")
    #expect(run.status == .code(0))
    #expect(run.hidden == [HiddenPath(path: hidden, way: .absent)])

    #expect(FileText.text(hidden) == "plugin")
    #expect(entries(of: scratch.path).sorted() == ["more", "other.so", "social.so"])
    #expect(access(directory, F_OK) == 0)
    #expect(mounts(below: scratch.path).isEmpty)
  }

  @Test func `is there for the host and for another process at the same time`() throws {
    let scratch = try Scratch()
    let hidden = try scratch.file("plugin", "x")
    let pipe = try Pipe()
    var request = Children.shell("test -e \(hidden) && echo there || echo absent; exec sleep 60")
    request.hide = [hidden]
    request.output = .descriptor(pipe.write)
    let child = try Children.start(request)
    var line = [UInt8](repeating: 0, count: 64)
    #expect(read(pipe.read, &line, line.count) == 7)
    #expect(String(decoding: line.prefix(7), as: UTF8.self) == "absent\n")

    #expect(access(hidden, F_OK) == 0)
    #expect(try Children.run(Children.shell("cat \(hidden)")).output == "x")
    // What the host does to the neighbours is seen by the service, since its view lies over the directory itself.
    try scratch.file("later", "y")
    #expect(FileText.text("/proc/\(child.pid)/root\(scratch.path)/later") == "y")
    #expect(FileText.text("/proc/\(child.pid)/root\(hidden)") == nil)
    // The small layer with the whiteout is mounted nowhere.
    let view = FileText.text("/proc/\(child.pid)/mountinfo", limit: 16 << 20) ?? ""
    #expect(view.split(separator: "\n").filter { $0.contains(" \(scratch.path) ") }.count == 1)

    try ProcessHandle.signal(child.pidfd.number, .kill)
    _ = try Children.finish(child)
  }

  @Test func `may be another file instead, of this content, owner and mode, and read-only`() throws {
    let scratch = try Scratch()
    try scratch.directory("conf")
    let file = try scratch.file("conf/a", "bad, and longer"), gone = scratch.path + "/conf/gone"
    let hidden = try scratch.file("conf/hidden"), kept = try scratch.file("conf/kept", "kept")
    var request = Children.shell(
      "cat \(file) \(gone) \(kept); stat -c ' %u:%g %a' \(file); ls \(scratch.path)/conf; "
        + "(echo more >> \(file)) 2>/dev/null || echo read-only")
    request.hide = [hidden]
    request.copies = [
      FileCopy(path: file, content: Array("good;".utf8), uid: 4711, gid: 4712, mode: 0o644),
      FileCopy(path: gone, content: Array("back;".utf8), uid: 0, gid: 0, mode: 0o600),
    ]
    let run = try Children.run(request)
    #expect(run.output == "good;back;kept 4711:4712 644\na\ngone\nkept\nread-only\n")
    #expect(Set(run.hidden.map { "\($0.path) \($0.way)" }) == ["\(file) copy", "\(gone) copy", "\(hidden) absent"])
    #expect(FileText.text(file) == "bad, and longer")
    #expect(entries(of: scratch.path + "/conf").sorted() == ["a", "hidden", "kept"])

    // As large as one may be, and as small. Where the service itself could write, nothing is put that is not there.
    #expect(chmod(scratch.path + "/conf", 0o777) == 0)
    var large = Children.shell("wc -c < \(file); wc -c < \(kept); test -e \(gone) || echo gone")
    large.copies = [
      FileCopy(path: file, content: [UInt8](repeating: 65, count: 1 << 20), uid: 0, gid: 0, mode: 0o644),
      FileCopy(path: kept, content: [], uid: 0, gid: 0, mode: 0o644),
      FileCopy(path: gone, content: [65], uid: 0, gid: 0, mode: 0o644),
    ]
    let second = try Children.run(large)
    #expect(second.output == "1048576\n0\ngone\n")
    #expect(Set(second.hidden.map { "\($0.path) \($0.way)" }) == ["\(file) copy", "\(kept) copy", "\(gone) missing"])
  }

  @Test func `may be several of one directory, a directory, a link, one that is missing, and one above another`() throws
  {
    let scratch = try Scratch()
    let upper = try scratch.directory("upper")
    try scratch.directory("upper/deep")
    try scratch.file("upper/deep/one")
    try scratch.file("upper/deep/kept", "kept")
    try scratch.directory("upper/gone")
    try scratch.file("upper/gone/inside")
    #expect(symlink("deep/kept", upper + "/link") == 0)
    try scratch.file("upper/stays")
    var request = Children.shell("cd \(upper) && find . | sort && cat deep/kept")
    request.hide = [
      upper + "/deep/one", upper + "/gone", upper + "/link", upper + "/never", "/no/such/parent/x", upper + "//gone/",
      upper + "/gone/inside",
    ]
    let run = try Children.run(request)
    #expect(run.output == ".\n./deep\n./deep/kept\n./stays\nkept")
    let ways = Dictionary(uniqueKeysWithValues: run.hidden.map { ($0.path, $0.way) })
    #expect(ways[upper + "/deep/one"] == .absent)
    #expect(ways[upper + "/gone"] == .absent)
    #expect(ways[upper + "/link"] == .absent)
    #expect(ways[upper + "/never"] == .missing)
    #expect(ways["/no/such/parent/x"] == .missing)
    #expect(ways[upper + "/gone/inside"] == .missing)
    #expect(access(upper + "/gone/inside", F_OK) == 0)
  }

  @Test func `is an empty file or directory where the service writes in its directory`() throws {
    let scratch = try Scratch()
    let own = try scratch.directory("own")
    #expect(chown(own, 4711, 4711) == 0)
    try scratch.file("own/file", "contents")
    try scratch.directory("own/directory")
    try scratch.file("own/directory/inside")
    var request = Children.shell(
      "cd \(own); wc -c <file; find directory | wc -l; touch new && echo writable; rm -f file 2>/dev/null; ls -A")
    request.identity = nobody
    request.hide = [own + "/file", own + "/directory"]
    let run = try Children.run(request)
    #expect(run.output == "0\n1\nwritable\ndirectory\nfile\nnew\n")
    #expect(run.hidden.map(\.way) == [.empty, .empty])
    #expect(FileText.text(own + "/file") == "contents")
    #expect(access(own + "/new", F_OK) == 0)

    // Another service, which may not write there, misses them altogether.
    request.identity = Identity(user: "4712", uid: 4712, gid: 4712, groups: [4712], home: "/", shell: "/bin/sh")
    request.command = ["/bin/ls", "-A", own]
    let other = try Children.run(request)
    #expect(other.output == "new\n")
    #expect(other.hidden.map(\.way) == [.absent, .absent])
  }

  @Test func `is empty rather than absent where mounts lie in its directory, so that those stay`() throws {
    // Below / there are mounts on every machine.
    let scratch = try Scratch()
    let hidden = "/" + (scratch.path.split(separator: "/").first.map(String.init) ?? "tmp")
    var request = Children.shell("ls -A \(hidden) | wc -l; test -e /proc/self && echo proc")
    request.hide = [hidden]
    let run = try Children.run(request)
    #expect(run.output == "0\nproc\n")
    #expect(run.hidden == [HiddenPath(path: hidden, way: .empty)])
  }

  @Test func `may be empty by order, beside one that is absent, wherever its directory can be written`() throws {
    let scratch = try Scratch()
    let own = try scratch.directory("own")
    try scratch.file("own/file", "contents")
    try scratch.directory("own/themes")
    try scratch.file("own/themes/dark")
    try scratch.file("own/gone")
    var request = Children.shell("cd \(own); wc -c <file; ls -A themes | wc -l; ls -A")
    request.empty = [own + "/file", own + "/themes", own + "/never"]
    let alone = try Children.run(request)
    #expect(alone.output == "0\n0\nfile\ngone\nthemes\n")
    #expect(Set(alone.hidden.filter { $0.way == .empty }.map(\.path)) == [own + "/file", own + "/themes"])
    #expect(alone.hidden.first { $0.path == own + "/never" }?.way == .missing)
    request.hide = [own + "/gone"]
    #expect(try Children.run(request).output == "0\n0\nfile\nthemes\n")
    #expect(FileText.text(own + "/file") == "contents" && access(own + "/themes/dark", F_OK) == 0)
  }

  @Test func `is absent from a view of its directory even where the service writes in it`() throws {
    let scratch = try Scratch()
    let own = try scratch.directory("own")
    #expect(chown(own, 4711, 4711) == 0)
    for name in ["a", "b", "c"] { try scratch.file("own/" + name, name) }
    var request = Children.shell("cd \(own); ls -A; cat c; touch new 2>/dev/null || echo read-only; stat -c %u .")
    request.identity = nobody
    request.hide = [own + "/a", own + "/b"]
    request.views = [own + "/"]
    let run = try Children.run(request)
    #expect(run.output == "c\ncread-only\n4711\n")
    #expect(run.hidden.map(\.way) == [.absent, .absent])
    request.hide.append(own + "/c")
    #expect(try Children.run(request).output.hasPrefix("cat: c: No such file"), "an empty directory in its place")
  }

  @Test func `is absent from a view that is made of the others one by one where mounts lie in its directory`() throws {
    // In /dev there are mounts on every machine, and links, devices and directories.
    var request = Children.shell(
      "ls -A /dev; echo x >/dev/null && test -c /dev/urandom && test -d /dev/shm && echo kept")
    request.hide = ["/dev/zero"]
    request.views = ["/dev"]
    let run = try Children.run(request)
    let there = Set(run.output.split(separator: "\n").map(String.init))
    #expect(there == Set(entries(of: "/dev")).subtracting(["zero"]).union(["kept"]), "\(run.output)")
    #expect(run.hidden == [HiddenPath(path: "/dev/zero", way: .absent)])
  }

  @Test func `keeps set-user-id programs and devices of its neighbours as they were mounted`() throws {
    let scratch = try Scratch()
    let hidden = try scratch.file("x")
    var request = Children.shell("grep ' \(scratch.path) ' /proc/self/mountinfo | cut -d' ' -f6")
    request.hide = [hidden]
    #expect(try Children.run(request).output == "ro,relatime\n")
  }

  @Test func `below a file is missing`() throws {
    let scratch = try Scratch()
    var request = SpawnRequest(command: ["/bin/true"])
    let file = try scratch.file("file")
    request.hide = [file, file + "/below"]
    let child = try Children.start(request)
    #expect(child.hidden.map(\.way) == [.absent, .missing])
    #expect(try Children.finish(child) == .code(0))
  }

  @Test func `that is the program itself is said to be hidden, and not to be missing`() throws {
    let scratch = try Scratch()
    let program = try scratch.file("program", "#!/bin/sh\n", mode: 0o755)
    var request = SpawnRequest(command: [program])
    request.hide = [program]
    let failure = try Children.failure(request)
    #expect(failure.stage == .exec && failure.errno == ENOENT && !failure.missing)
    #expect(failure.sentence.contains("it is hidden from the service"))
  }
}
