import GuardianModel
import Testing

@Suite struct `ways to switch a plugin off` {
  private func plugin(_ name: String, _ change: (inout PluginSpec) -> Void) -> PluginSpec {
    var plugin = PluginSpec(name: name)
    change(&plugin)
    return plugin
  }

  struct List: Sendable, CustomTestStringConvertible {
    var text: String, item: String, separator = ",", rest: String
    var testDescription: String { "'\(text)' without '\(item)'" }
  }
  @Test(arguments: [
    List(text: "social,maps,metrics", item: "maps", rest: "social,metrics"),
    List(text: "social", item: "social", rest: ""),
    List(text: "", item: "social", rest: ""),
    List(text: "socials,social,social", item: "social", rest: "socials"),
    List(text: "social, maps, metrics", item: "maps", rest: "social, metrics"),
    List(text: "a,,b", item: "maps", rest: "a,,b"),
    List(text: "a,,b", item: "b", rest: "a,"),
    List(
      text: "--max-old-space-size=64 --require /x/y.js --trace", item: "--require /x/y.js", separator: " ",
      rest: "--max-old-space-size=64 --trace"),
    List(text: "--require /a.js", item: "--require /x/y.js", separator: " ", rest: "--require /a.js"),
    List(text: "/a:/b:/c", item: "/b", separator: ":", rest: "/a:/c"),
    List(text: "one::two::three", item: "two", separator: "::", rest: "one::three"),
  ])
  func `take an element out of a list and leave the others as they are written`(_ c: List) {
    let removal = ListRemoval(.variable("X"), item: c.item, separator: c.separator)
    #expect(removal.applied(to: c.text) == c.rest)
    #expect(removal.applied(to: c.rest) == c.rest, "once more changes nothing")
  }

  @Test func `know both separators of LD_PRELOAD, and a library by its path or by its file's name`() {
    let text = "/usr/lib/liba.so:libb.so  /opt/libc.so.2"
    #expect(preload(text, without: "libb.so") == "/usr/lib/liba.so:/opt/libc.so.2")
    #expect(preload(text, without: "libc.so.2") == "/usr/lib/liba.so:libb.so")
    #expect(preload(text, without: "/usr/lib/liba.so") == "libb.so:/opt/libc.so.2")
    #expect(preload(text, without: "/usr/lib/libb.so") == text)
    #expect(preload(text, without: "liba") == text)
    #expect(preload("libb.so", without: "libb.so") == "")
    #expect(preload("", without: "libb.so") == "")
  }

  struct Arguments: Sendable, CustomTestStringConvertible {
    var off: [PluginSpec], becomes: [String]
    var testDescription: String { off.map(\.name).joined(separator: "+") }
  }
  private static let command = [
    "/bin/x", "-v", "--with-search", "--load", "a.so", "--load=b.so", "--plugins=a,b,c", "--modules", "p;q", "-v",
  ]
  private static let all: [PluginSpec] = {
    func plugin(_ name: String, _ change: (inout PluginSpec) -> Void) -> PluginSpec {
      var plugin = PluginSpec(name: name)
      change(&plugin)
      return plugin
    }
    return [
      plugin("search") { $0.removeArguments = [["--with-search"]] },
      plugin("a") {
        $0.removeArguments = [["--load", "a.so"]]
        $0.removeFrom = [ListRemoval(.argument("--plugins"), item: "a")]
      },
      plugin("b") {
        $0.removeArguments = [["--load", "b.so"]]
        $0.removeFrom = [ListRemoval(.argument("--plugins"), item: "b")]
      },
      plugin("q") { $0.removeFrom = [ListRemoval(.argument("--modules"), item: "q", separator: ";")] },
      plugin("quiet") { $0.replaceArguments = [ArgumentReplacement(from: ["-v"], to: ["-q", "--no-color"])] },
      plugin("metrics") { $0.arguments = ["--disable-extension", "metrics"] },
      plugin("last") {
        $0.arguments = ["--last"]
        $0.removeArguments = [["--disable-extension", "metrics"], ["-q"]]
      },
    ]
  }()

  @Test(arguments: [
    Arguments(off: [], becomes: command),
    Arguments(
      off: [all[0]],
      becomes: ["/bin/x", "-v", "--load", "a.so", "--load=b.so", "--plugins=a,b,c", "--modules", "p;q", "-v"]),
    Arguments(
      off: [all[1]],
      becomes: ["/bin/x", "-v", "--with-search", "--load=b.so", "--plugins=b,c", "--modules", "p;q", "-v"]),
    Arguments(
      off: [all[1], all[2]],
      becomes: ["/bin/x", "-v", "--with-search", "--plugins=c", "--modules", "p;q", "-v"]),
    Arguments(
      off: [all[3], all[4]],
      becomes: [
        "/bin/x", "-q", "--no-color", "--with-search", "--load", "a.so", "--load=b.so", "--plugins=a,b,c", "--modules",
        "p", "-q", "--no-color",
      ]),
    // What one adds none of the others takes out again; what one puts in place of something can be found by the next.
    Arguments(
      off: all,
      becomes: [
        "/bin/x", "--no-color", "--plugins=c", "--modules", "p", "--no-color", "--disable-extension", "metrics",
        "--last",
      ]),
  ])
  func `compose in the order of the list`(_ c: Arguments) {
    #expect(c.off.switchedOff(in: Self.command) == c.becomes)
  }

  @Test func `leave the program alone, and fine what is not there`() {
    let off = [plugin("a") { $0.removeArguments = [["/bin/x"], ["--not-there", "b"]] }]
    #expect(off.switchedOff(in: ["/bin/x", "/bin/x", "-v"]) == ["/bin/x", "-v"])
    #expect(off.switchedOff(in: []) == [])
    #expect(off[0].unmatched(in: ["/bin/x", "/bin/x"]) == [["--not-there", "b"]])
    let list = plugin("b") { $0.removeFrom = [ListRemoval(.argument("--plugins"), item: "c")] }
    #expect(list.unmatched(in: ["/bin/x", "--plugins", "a,c"]) == [])
    #expect(list.unmatched(in: ["/bin/x", "--plugins", "a"]) == [["--plugins", "c"]])
  }

  @Test func `belong to a definition, and what is found in a directory does not`() {
    var process = ProcessSpec(command: ["/bin/x"])
    var prints: Set<UInt64> = [process.fingerprint]
    let changes: [(inout PluginSpec) -> Void] = [
      { $0.environment = [EnvironmentVariable("A", "b")] }, { $0.unset = ["A"] }, { $0.unset = ["B"] },
      { $0.removeFrom = [ListRemoval(.variable("A"), item: "b")] },
      { $0.removeFrom = [ListRemoval(.argument("A"), item: "b")] },
      { $0.removeFrom = [ListRemoval(.variable("A"), item: "b", separator: ":")] }, { $0.preload = ["A"] },
      { $0.arguments = ["A"] }, { $0.removeArguments = [["A"]] }, { $0.removeArguments = [["A", "B"]] },
      { $0.replaceArguments = [ArgumentReplacement(from: ["A"], to: ["B"])] }, { $0.hide = ["A"] },
      { $0.empty = ["A"] }, { $0.goodCopy = ["A"] },
    ]
    for change in changes {
      process.plugins = [plugin("p", change)]
      #expect(prints.insert(process.fingerprint).inserted, "\(process.plugins)")
      #expect(!process.plugins[0].hasNoWay)
    }
    process.plugins = []
    process.pluginDirectory = PluginDirectory(path: "/d")
    let print = process.fingerprint
    #expect(prints.insert(print).inserted)
    process.plugins = process.pluginDirectory?.plugins(of: ["x", "y"], beside: []).found ?? []
    #expect(process.plugins.count == 2 && process.fingerprint == print)
    #expect(process.asDefined.plugins.isEmpty)
    process.pluginDirectory?.only = ["x*"]
    #expect(prints.insert(process.fingerprint).inserted)
  }
}

@Suite struct `a directory of plugins` {
  private func directory(_ change: (inout PluginDirectory) -> Void = { _ in }) -> PluginDirectory {
    var directory = PluginDirectory(path: "/srv/plugins.d")
    change(&directory)
    return directory
  }

  @Test func `makes one of each entry, by name, hidden ones and backups left out, those of the list first`() {
    let entries = ["b.so", ".hidden", "a", ".b.so.guardian-20260301T120000Z", "maps.so", ""]
    let (found, left) = directory().plugins(of: entries, beside: [PluginSpec(name: "maps.so")])
    #expect(found.map(\.name) == ["a", "b.so"] && left == 0)
    #expect(found.map(\.hide) == [["/srv/plugins.d/a"], ["/srv/plugins.d/b.so"]])
    #expect(found.map(\.entry) == ["/srv/plugins.d/a", "/srv/plugins.d/b.so"])
    #expect(found[0].paths == ["/srv/plugins.d/a"])
  }

  @Test func `makes names valid and keeps them apart, whatever else is there`() {
    let entries = ["my plugin", "my-plugin", "my\tplugin", "mäh", String(repeating: "x", count: 80)]
    let found = directory().plugins(of: entries, beside: []).found
    let names = found.map(\.name)
    #expect(Set(names).count == 5)
    for name in names {
      #expect(
        (1...64).contains(name.utf8.count)
          && name.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || ".-_".contains($0)) }, "\(name)")
    }
    #expect(names.contains("my-plugin") && names.contains { $0.hasPrefix("my-plugin-") })
    for entry in entries {
      let alone = directory().plugins(of: [entry], beside: []).found
      #expect(names.contains(alone[0].name), "a name that depends on others")
    }
  }

  @Test func `is bounded, together with the list`() {
    let entries = (100..<200).map { "p\($0)" }
    let (found, left) = directory().plugins(of: entries, beside: [PluginSpec(name: "x")])
    #expect(found.count == 63 && left == 37)
    #expect(found.first?.name == "p100" && found.last?.name == "p162")
  }

  @Test func `may be of some entries only`() {
    let entries = ["a.py", "b.pyc", "c.py", "__pycache__", "d"]
    func names(_ patterns: [String]) -> [String] {
      directory { $0.only = patterns }.plugins(of: entries, beside: []).found.map(\.name)
    }
    #expect(names(["*.py"]) == ["a.py", "c.py"])
    #expect(names(["?"]) == ["d"])
    #expect(names(["*.py", "d"]) == ["a.py", "c.py", "d"])
    #expect(names(["*p*y*"]) == ["__pycache__", "a.py", "b.pyc", "c.py"])
    #expect(names(["*"]).count == 5 && names(["x"]).isEmpty && names(["*.*.*"]).isEmpty)
  }

  @Test func `may be switched off by another way, in which an entry's name stands`() {
    let found = directory {
      var way = PluginSpec(name: "")
      way.removeFrom = [ListRemoval(.variable("P"), item: "%s")]
      way.arguments = ["--without=%n", "100%%"]
      way.empty = ["%p/data"]
      way.environment = [EnvironmentVariable("OFF", "%p")]
      $0.way = way
    }.plugins(of: ["social.so", "maps"], beside: []).found
    #expect(found.map { $0.removeFrom[0].item } == ["maps", "social"])
    #expect(found[1].arguments == ["--without=social.so", "100%"])
    #expect(found[1].empty == ["/srv/plugins.d/social.so/data"] && found[1].hide.isEmpty)
    #expect(found[1].environment == [EnvironmentVariable("OFF", "/srv/plugins.d/social.so")])
    #expect(PluginDirectory.placeholderFault("%n %s %p %%") == nil)
    #expect(PluginDirectory.placeholderFault("a%x") == "%x" && PluginDirectory.placeholderFault("a%") == "%")
  }
}
