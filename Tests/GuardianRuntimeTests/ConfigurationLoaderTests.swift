import Glibc
import GuardianConfig
import GuardianLinux
import GuardianModel
import GuardianRuntime
import Testing

/// A configuration directory of its own for one test, removed with it.
private final class Place {
  let path: String

  init() throws {
    var template = Array("/tmp/guardian-configuration-XXXXXX".utf8CString)
    let made = template.withUnsafeMutableBufferPointer { buffer in
      buffer.baseAddress.flatMap { mkdtemp($0) }.map { String(cString: $0) }
    }
    path = try #require(made)
    try #require(mkdir(path + "/services", 0o755) == 0)
    // The umask of whoever runs the tests is not what is tested.
    try #require(chmod(path, 0o755) == 0 && chmod(path + "/services", 0o755) == 0)
  }

  deinit { remove(path) }
  private func remove(_ path: String) {
    if unlink(path) == 0 { return }
    if let directory = opendir(path) {
      var names: [String] = []
      while let entry = readdir(directory) {
        let name = withUnsafeBytes(of: &entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        if name != "." && name != ".." { names.append(name) }
      }
      closedir(directory)
      for name in names { remove(path + "/" + name) }
    }
    rmdir(path)
  }

  func write(_ name: String, _ text: String, mode: mode_t = 0o644) throws {
    let raw = open(path + "/" + name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
    try #require(raw >= 0)
    defer { close(raw) }
    let bytes = Array(text.utf8)
    try #require(Glibc.write(raw, bytes, bytes.count) == bytes.count)
    try #require(fchmod(raw, mode) == 0)
  }

  func loader(trust: ConfigurationFiles.Trust = .current, canHide: Bool = true) -> ConfigurationLoader {
    ConfigurationLoader(
      directory: path,
      resolveUser: { user, group in
        user == "web"
          ? .success(Identity(user: "web", uid: geteuid(), gid: 0, groups: [0], home: "/", shell: "/bin/sh"))
          : .failure(.init("no user '\(user ?? "")' in the user database"))
      }, canHide: canHide, trust: trust)
  }
  func load() -> LoadedConfiguration { loader().load() }
}

private let good = "command: [/bin/sh]\n"
private func names(_ loaded: LoadedConfiguration) -> [String] { loaded.services.map(\.name.text) }
/// What is said, without the directory's name in front.
private func said(_ loaded: LoadedConfiguration, _ place: Place) -> [String] {
  loaded.diagnostics.map { diagnostic in
    let text = diagnostic.description
    return text.hasPrefix(place.path + "/") ? String(text.dropFirst(place.path.count + 1)) : text
  }
}

@Suite struct `loading a configuration` {
  @Test func `gives every service in the order of names`() throws {
    let place = try Place()
    for name in ["b", "a", "c@1"] { try place.write("services/\(name).yaml", good) }
    try place.write("services/README", "not a service")
    try place.write("services/.hidden.yaml", "rubbish: [")
    try place.write("services/a.yaml~", "rubbish: [")
    let loaded = place.load()
    #expect(names(loaded) == ["a", "b", "c@1"])
    #expect(loaded.diagnostics.isEmpty && loaded.invalid.isEmpty && loaded.listed && loaded.host != nil)
  }

  @Test func `with a bad file leaves the others alone`() throws {
    let place = try Place()
    try place.write("services/bad.yaml", "comand: [/bin/sh]\n")
    try place.write("services/good.yaml", good)
    let loaded = place.load()
    #expect(names(loaded) == ["good"])
    #expect(loaded.invalid.map(\.text) == ["bad"])
    #expect(said(loaded, place) == ["services/bad.yaml:1:1: unknown key 'comand'; did you mean 'command'?"])
    #expect(loaded.byService[try #require(ServiceName("bad"))]?.count == 1)
  }

  @Test func `with a broken guardian_yaml uses the last good one`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good)
    try place.write("guardian.yaml", "defaults: {nice: 7}\n")
    let host = try #require(place.load().host)
    #expect(place.load().services.first?.process.nice == 7)
    try place.write("guardian.yaml", "defaults: {nice: seven}\n")
    #expect(place.load().host == nil)
    #expect(place.load().services.first?.process.nice == nil)
    let kept = place.loader().load(fallback: host)
    #expect(kept.services.first?.process.nice == 7)
    #expect(said(kept, place).first?.hasPrefix("guardian.yaml:1:18: 'nice' must be a whole number") == true)
  }

  @Test func `with a command that is not there says so and still gives the service`() throws {
    let place = try Place()
    try place.write("services/a.yaml", "command: [/nowhere/at/all]\n")
    try place.write("services/b.yaml", "command: [/etc/passwd]\n")
    try place.write("services/c.yaml", "command: [/tmp]\ndirectory: /nowhere\n")
    let loaded = place.load()
    #expect(names(loaded) == ["a", "b", "c"])
    #expect(
      said(loaded, place) == [
        "services/a.yaml:1:11: 'command': /nowhere/at/all: no such file or directory",
        "services/b.yaml:1:11: 'command': /etc/passwd: not executable; chmod +x it",
        "services/c.yaml:1:11: 'command': /tmp: a directory, not a program",
        "services/c.yaml:2:12: 'directory': /nowhere: no such file or directory",
      ])
    #expect(ConfigurationCheck(loaded).exitStatus == 78)
  }

  @Test func `of a directory that is not there is not the same as no services`() throws {
    let place = try Place()
    let missing = ConfigurationLoader(
      directory: place.path + "/nowhere", resolveUser: { _, _ in .failure(.init("no")) }, canHide: true
    ).load()
    #expect(!missing.listed && missing.host == nil)
    #expect(missing.diagnostics.map(\.what) == ["cannot be opened"])
    #expect(ConfigurationCheck(missing).exitStatus == 78)
    rmdir(place.path + "/services")
    #expect(!place.load().listed)
    try place.write("services", "a file")
    #expect(said(place.load(), place) == ["services: not a directory; each service is a file services/NAME.yaml"])
  }

  @Test func `leaves no descriptor open`() throws {
    let place = try Place()
    for name in ["a", "b"] { try place.write("services/\(name).yaml", good) }
    try #require(symlink("nowhere", place.path + "/services/c.yaml") == 0)
    try #require(mkfifo(place.path + "/services/d.yaml", 0o644) == 0)
    _ = place.load()
    // Other tests of this process open descriptors too: many loadings must show as none.
    let before = try #require(openDescriptors())
    for _ in 0..<200 { _ = place.load() }
    let after = try #require(openDescriptors())
    #expect(after - before < 100)
  }

  private func openDescriptors() -> Int? {
    guard let directory = opendir("/proc/self/fd") else { return nil }
    defer { closedir(directory) }
    var count = 0
    while readdir(directory) != nil { count += 1 }
    return count
  }

  @Test func `works with a relative path`() throws {
    // Relative to whatever the tests' directory is; only that it does not end there.
    let loaded = ConfigurationLoader(
      directory: "no-such-directory/here", resolveUser: { _, _ in .failure(.init("no")) }, canHide: true
    ).load()
    #expect(loaded.diagnostics.map(\.file) == ["no-such-directory/here"])
  }
}

@Suite struct `bad configuration files` {
  @Test func `A3 a service cannot have two files, since a yml file is not read`() throws {
    let place = try Place()
    try place.write("services/web.yaml", good)
    try place.write("services/web.yml", good)
    try place.write("guardian.yml", "")
    let loaded = place.load()
    #expect(names(loaded) == ["web"])
    #expect(
      said(loaded, place) == [
        "guardian.yml: the file is not read; its name must end in .yaml",
        "services/web.yml: the file is not read; its name must end in .yaml",
      ])
  }

  @Test func `A8 a bad name is reported, and no path is made from it`() throws {
    let place = try Place()
    for name in ["-x", "Web", "a b", "a\nb", "é", "😀", String(repeating: "a", count: 65)] {
      try place.write("services/\(name).yaml", good)
    }
    let loaded = place.load()
    #expect(loaded.services.isEmpty && loaded.diagnostics.count == 7)
    #expect(loaded.diagnostics.allSatisfy { $0.what == "the file's name is no name of a service" })
    #expect(!loaded.diagnostics.contains { $0.description.contains("\n") })
  }

  @Test func `A9 a file that is replaced while it is read gives the old or the new content, never a mix`() async throws
  {
    let place = try Place()
    let old = "command: [/bin/sh, old]\n" + String(repeating: "# old\n", count: 20_000) + "description: old\n"
    let new = "command: [/bin/sh, new]\n" + String(repeating: "# new\n", count: 20_000) + "description: new\n"
    try place.write("services/a.yaml", old)
    let path = place.path
    let loader = place.loader()
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        for turn in 0..<200 {
          // In place, which is the bad way to do it, and by renaming, which is the good one.
          let target = path + (turn % 2 == 0 ? "/services/a.yaml" : "/services/.a.new")
          let raw = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
          let bytes = Array((turn % 4 < 2 ? new : old).utf8)
          _ = write(raw, bytes, bytes.count / 2)
          _ = bytes.withUnsafeBytes {
            write(raw, $0.baseAddress.map { $0 + bytes.count / 2 }, bytes.count - bytes.count / 2)
          }
          close(raw)
          if turn % 2 == 1 { rename(target, path + "/services/a.yaml") }
        }
      }
      group.addTask {
        for _ in 0..<40 {
          for spec in loader.load().services where !spec.description.isEmpty {
            #expect(spec.process.command.last == spec.description)
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(names(place.load()) == ["a"])
  }

  @Test func `A9 a file that vanishes is a removed service, not a fault`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good)
    let files = try ConfigurationFiles(path: place.path, trust: .current, largest: 1000)
    let listing = files.list()
    unlink(place.path + "/services/a.yaml")
    guard case .absent = files.read(try #require(listing.services.first)) else {
      Issue.record("not absent")
      return
    }
  }

  @Test func `A10 a directory, a FIFO, a socket, a device, a dangling and a looping link are faults at once`() throws {
    let place = try Place()
    let services = place.path + "/services/"
    try #require(mkdir(services + "directory.yaml", 0o755) == 0)
    try #require(mkfifo(services + "fifo.yaml", 0o644) == 0)
    try #require(symlink("/dev/zero", services + "device.yaml") == 0)
    try #require(symlink("nowhere", services + "dangling.yaml") == 0)
    try #require(symlink("loop.yaml", services + "loop.yaml") == 0)
    try #require(symlink(".", services + "self.yaml") == 0)
    let raw = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(raw) }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array((services + "socket.yaml").utf8)) }
    let bound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(raw, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
    }
    try #require(bound == 0)
    chmod(services + "socket.yaml", 0o755)
    try place.write("services/good.yaml", good)

    let loaded = place.load()  // an open that blocks would be here for ever
    #expect(names(loaded) == ["good"])
    #expect(
      said(loaded, place) == [
        "services/dangling.yaml: a link to something that is not there",
        "services/device.yaml: a device; it must be a file",
        "services/directory.yaml: a directory; it must be a file",
        "services/fifo.yaml: a FIFO; it must be a file",
        "services/loop.yaml: cannot be opened; its links lead in a circle",
        "services/self.yaml: a link to its own directory; it must be a file",
        "services/socket.yaml: a socket; it must be a file",
      ])
    #expect(loaded.invalid.count == 7)
  }

  @Test func `A10 a link to a good file is followed`() throws {
    let place = try Place()
    try #require(mkdir(place.path + "/elsewhere", 0o755) == 0)
    try place.write("elsewhere/web.yaml", good)
    try #require(symlink("../elsewhere", place.path + "/services/..data") == 0)
    try #require(symlink("..data/web.yaml", place.path + "/services/web.yaml") == 0)
    try #require(symlink(place.path + "/elsewhere/web.yaml", place.path + "/services/other.yaml") == 0)
    #expect(place.load().diagnostics.isEmpty)
    #expect(names(place.load()) == ["other", "web"])
  }

  @Test func `A11 of ten thousand files with one bad, the bad one alone is missing`() throws {
    let place = try Place()
    for number in 0..<10_000 {
      let text = number == 7777 ? "command: [sh]\n" : "command: [/bin/sh, -c, \"exit \(number % 256)\"]\nuser: web\n"
      try place.write("services/s\(number).yaml", text)
    }
    let loaded = place.load()
    #expect(loaded.services.count == 9999)
    #expect(loaded.invalid.map(\.text) == ["s7777"])
    #expect(loaded.diagnostics.count == 1)
  }

  @Test func `A12 an unknown user has a place`() throws {
    let place = try Place()
    try place.write("services/a.yaml", "command: [/bin/sh]\nuser: wbe\n")
    #expect(said(place.load(), place) == ["services/a.yaml:2:7: no user 'wbe' in the user database"])
    #expect(place.load().invalid.count == 1)
  }

  @Test func `A15 a file that is broken leaves the others as they are read`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good)
    try place.write("services/b.yaml", good)
    let before = place.load()
    try place.write("services/b.yaml", good + "restart: no\n")
    let after = place.load()
    #expect(after.services == before.services.filter { $0.name.text == "a" })
    #expect(after.invalid.map(\.text) == ["b"])
    #expect(ConfigurationCheck(after).exitStatus == 78)
  }

  @Test func `a file of more than 1 MiB is refused unread`() throws {
    let place = try Place()
    try place.write("services/a.yaml", "")
    try #require(truncate(place.path + "/services/a.yaml", 100 << 30) == 0)
    #expect(
      said(place.load(), place) == [
        "services/a.yaml: larger than 1048576 bytes; a configuration file is at most that large"
      ])
  }
}

@Suite struct `who may write the configuration` {
  @Test(arguments: [0o646, 0o666, 0o602] as [mode_t])
  func `J3: a file that others may write to is refused, and its owner and mode are told`(_ mode: mode_t) throws {
    let place = try Place()
    try place.write("services/a.yaml", good, mode: mode)
    #expect(
      said(place.load(), place) == [
        "services/a.yaml: the file is writable by others (uid \(geteuid()), mode 0\(String(mode, radix: 8)));"
          + " who can write it can run programs as guardian; chmod o-w it"
      ])
    #expect(place.load().invalid.count == 1)
  }

  @Test func `J3: a file that its group may write to is refused, unless the group is the user's own`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good, mode: 0o664)
    let group = getegid()
    let refused = place.loader(trust: .init(uid: geteuid(), ownGroup: nil)).load()
    #expect(refused.invalid.count == 1)
    #expect(
      refused.diagnostics.first?.what == "the file is writable by its group, gid \(group) (uid \(geteuid()), mode 0664)"
    )
    #expect(place.loader(trust: .init(uid: geteuid(), ownGroup: group + 1)).load().invalid.count == 1)
    #expect(place.loader(trust: .init(uid: geteuid(), ownGroup: group)).load().diagnostics.isEmpty)
  }

  @Test func `J3: a directory that others may write to is refused, and no service counts as removed`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good)
    chmod(place.path + "/services", 0o777)
    let loaded = place.load()
    #expect(!loaded.listed && loaded.services.isEmpty)
    #expect(
      loaded.diagnostics.first?.what
        == "directory 'services' on the way to it is writable by others (uid \(geteuid()), mode 0777)")
    chmod(place.path + "/services", 0o755)
    chmod(place.path, 0o777)
    #expect(!place.load().listed)
  }

  @Test func `a sticky directory passes if what is in it is ours`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good)
    chmod(place.path + "/services", 0o1777)
    #expect(names(place.load()) == ["a"])
  }

  @Test(.enabled(if: geteuid() == 0, "not shown: needs root to give files away"))
  func `J3: a file or directory of somebody else is refused, in a sticky directory too`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good)
    try place.write("services/b.yaml", good)
    chown(place.path + "/services/a.yaml", 12345, 12345)
    #expect(
      said(place.load(), place) == [
        "services/a.yaml: the file belongs to uid 12345 (mode 0644); it must be root's or guardian's own"
      ])
    #expect(names(place.load()) == ["b"])
    #expect(names(place.loader(trust: .init(uid: 12345, ownGroup: nil)).load()) == ["a", "b"])
    chmod(place.path + "/services", 0o1777)
    #expect(
      said(place.load(), place).first?.hasPrefix("services/a.yaml: 'a.yaml' on the way to it belongs to uid 12345")
        == true)
    chown(place.path + "/services", 12345, 12345)
    #expect(!place.load().listed)
  }

  @Test(.enabled(if: geteuid() == 0, "not shown: needs root to give links away"))
  func `J3: a link that somebody else put into a shared directory is not followed`() throws {
    let place = try Place()
    try place.write("real.yaml", good)
    chmod(place.path + "/services", 0o1777)
    try #require(symlink("../real.yaml", place.path + "/services/a.yaml") == 0)
    #expect(names(place.load()) == ["a"])
    lchown(place.path + "/services/a.yaml", 12345, 12345)
    #expect(place.load().invalid.count == 1)
  }

  @Test func `J3: a link that leads through a directory of others is refused`() throws {
    let place = try Place()
    try #require(mkdir(place.path + "/open", 0o777) == 0)
    chmod(place.path + "/open", 0o777)
    try place.write("open/a.yaml", good)
    try #require(symlink("../open/a.yaml", place.path + "/services/a.yaml") == 0)
    #expect(
      said(place.load(), place).first?.hasPrefix(
        "services/a.yaml: directory 'open' on the way to it is writable by others")
        == true)
  }
}

@Suite struct `who may write what is run` {
  @Test func `J6: a command or hook that everybody may write to, or below such a directory, is run with a warning`()
    throws
  {
    let place = try Place()
    for (directory, mode) in [("open", 0o777), ("sticky", 0o1777), ("safe", 0o755)] as [(String, mode_t)] {
      try #require(mkdir("\(place.path)/\(directory)", 0o755) == 0)
      try place.write("\(directory)/program", "", mode: 0o755)
      chmod("\(place.path)/\(directory)", mode)
    }
    try place.write("safe/loose", "", mode: 0o757)
    try #require(symlink("../open/program", place.path + "/safe/link") == 0)
    func warnings(_ yaml: String) throws -> [String] {
      try place.write("services/a.yaml", yaml)
      let loaded = place.load()
      #expect(loaded.invalid.isEmpty && names(loaded) == ["a"] && ConfigurationCheck(loaded).exitStatus == 0)
      #expect(loaded.diagnostics.allSatisfy { $0.severity == .warning })
      return said(loaded, place)
    }
    let why = "; who can write there decides what guardian runs"
    let open = "directory \(place.path)/open is writable by others (uid \(geteuid()), mode 0777)" + why
    let first = "services/a.yaml:1:11: warning: 'command': "
    #expect(try warnings("command: [\(place.path)/safe/program]\n") == [])
    #expect(try warnings("command: [\(place.path)/sticky/program]\n") == [])
    #expect(try warnings("command: [\(place.path)/open/program]\n") == [first + open])
    #expect(try warnings("command: [\(place.path)/safe/link]\n") == [first + open])
    #expect(
      try warnings("command: [\(place.path)/safe/loose]\n") == [
        first + "\(place.path)/safe/loose is writable by others (uid \(geteuid()), mode 0757)" + why
      ])
    let hooks = """
      command: [/bin/sh]
      before-start: [\(place.path)/open/program]
      repair: [{name: fix, run: [\(place.path)/open/program]}]
      notices: {on-crash: [\(place.path)/open/program]}
      reload: [\(place.path)/open/program]
      checks: [{name: c, exec: [\(place.path)/open/program]}]

      """
    let told = try warnings(hooks)
    #expect(told.count == 5 && told.allSatisfy { $0.hasSuffix(open) }, "\(told)")
  }
}

@Suite struct `checking a configuration` {
  @Test func `that is in order ends with 0 and says what was there`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good)
    let check = ConfigurationCheck(place.load())
    #expect(check.exitStatus == 0)
    #expect(check.lines == ["1 service: no fault found"])
    #expect(check.json == #"{"schema":1,"valid":true,"services":1,"invalid":0,"diagnostics":[]}"#)
  }

  @Test func `with doubts only ends with 0`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good + "start-timeout: 5s\n")
    let check = ConfigurationCheck(place.load())
    #expect(check.exitStatus == 0)
    #expect(check.lines.last == "1 service: 0 errors, 1 warning")
  }

  @Test func `with a fault ends with 78, as text and as JSON`() throws {
    let place = try Place()
    try place.write("services/a.yaml", good + "nice: x\n")
    let check = ConfigurationCheck(place.load())
    #expect(check.exitStatus == 78)
    #expect(check.lines.last == "1 service, 1 of them without a valid definition: 1 error, 0 warnings")
    #expect(
      check.json.hasPrefix(
        #"{"schema":1,"valid":false,"services":1,"invalid":1,"diagnostics":[{"severity":"error","file":""#))
    #expect(check.json.contains(#""line":2,"column":7,"what":"'nice' must be a whole number, -20 … 19, not 'x'""#))
  }
}

@Suite struct `the directory of switches` {
  private func made() throws -> Place {
    let place = try Place()
    try #require(mkdir(place.path + "/switches.d", 0o755) == 0 && chmod(place.path + "/switches.d", 0o755) == 0)
    return place
  }
  private let off = "{reason: r, services: all, ladder: off}\n"

  @Test func `may be missing, and is then watched for by its name`() throws {
    let place = try Place()
    let loaded = place.loader().loadSwitches()
    #expect(loaded.complete && loaded.files.isEmpty && loaded.diagnostics.isEmpty && loaded.showsAllChanges)
    let watch = try DirectoryWatch("switches.d", in: place.path)
    #expect(try !watch.takeNews())
    try place.write("services/web.yaml", good)
    try place.write("guardian.yaml", "{}\n")
    #expect(try !watch.takeNews())
    try #require(mkdir(place.path + "/switches.d", 0o755) == 0)
    #expect(try watch.takeNews())
    try place.write("switches.d/.new", off)
    #expect(try watch.takeNews() && !watch.takeNews())
    try #require(rename(place.path + "/switches.d/.new", place.path + "/switches.d/a.yaml") == 0)
    #expect(try watch.takeNews() && !watch.takeNews())
    // Another directory in its place.
    try #require(rename(place.path + "/switches.d", place.path + "/old") == 0)
    #expect(try watch.takeNews())
    try #require(mkdir(place.path + "/switches.d", 0o755) == 0)
    #expect(try watch.takeNews())
    try place.write("switches.d/b.yaml", off)
    #expect(try watch.takeNews() && !watch.takeNews())
    try place.write("old/c.yaml", off)
    #expect(try !watch.takeNews())
  }

  @Test func `is read with the configuration and alone, each file by itself`() throws {
    let place = try made()
    try place.write("services/web.yaml", good)
    try place.write("switches.d/b.yaml", off)
    try place.write("switches.d/a.yaml", "reason: r\n")
    try place.write("switches.d/.hidden.yaml", "rubbish: [")
    try place.write("switches.d/c.yml", off)
    try place.write("switches.d/README", "rubbish: [")
    for loaded in [place.load().switches, place.loader().loadSwitches()] {
      #expect(loaded.files.map(\.name) == ["a.yaml", "b.yaml"] && loaded.switches.map(\.file) == ["b.yaml"])
      #expect(loaded.complete && loaded.showsAllChanges)
      #expect(loaded.diagnostics.map(\.what) == ["the file is not read"])
    }
    let check = ConfigurationCheck(place.load())
    #expect(check.exitStatus == 78)
    #expect(check.lines.contains { $0.contains("switches.d/a.yaml:1:1: no 'services'") }, "\(check.lines)")
    #expect(unlink(place.path + "/switches.d/a.yaml") == 0 && unlink(place.path + "/switches.d/c.yml") == 0)
    #expect(ConfigurationCheck(place.load()).exitStatus == 0)
    try place.write("switches.d/b.yaml", "{reason: r, services: [wbe], ladder: off}\n")
    let doubts = ConfigurationCheck(place.load())
    #expect(doubts.exitStatus == 0 && doubts.lines.contains { $0.contains("warning: no service 'wbe' here") })
  }

  @Test func `and its files are refused where others may write them`() throws {
    let place = try made()
    try place.write("switches.d/a.yaml", off, mode: 0o666)
    try place.write("switches.d/b.yaml", off)
    var loaded = place.loader().loadSwitches()
    #expect(loaded.switches.map(\.file) == ["b.yaml"])
    #expect(loaded.files.first?.diagnostics.first?.what.contains("writable by others") == true)
    try #require(chmod(place.path + "/switches.d", 0o777) == 0)
    loaded = place.loader().loadSwitches()
    #expect(!loaded.complete && loaded.files.isEmpty && loaded.diagnostics.first?.what.contains("writable") == true)
    // The services do not care.
    try place.write("services/web.yaml", good)
    #expect(names(place.load()) == ["web"])
  }

  @Test func `is looked at where a file may change unseen`() throws {
    let place = try made()
    try place.write("elsewhere.yaml", off)
    try #require(symlink("../elsewhere.yaml", place.path + "/switches.d/a.yaml") == 0)
    let loaded = place.loader().loadSwitches()
    #expect(loaded.switches.count == 1 && !loaded.showsAllChanges)
  }

  @Test func `of too many files gives none, and takes none away`() throws {
    let place = try made()
    for number in 0..<257 { try place.write("switches.d/\(number).yaml", off) }
    let loaded = place.loader().loadSwitches()
    #expect(!loaded.complete && loaded.files.isEmpty && loaded.diagnostics.first?.what == "more than 256 switches")
  }
}
