import GuardianCore
import GuardianModel
import Testing

/// A service with several plugins, some of which make it die half a second after its exec.
private struct Trouble {
  var talk: Conversation
  let names: [String]
  var isDeadly: ([String]) -> Bool
  private var answered = 0
  private(set) var probes: [(on: [String], died: Bool)] = []

  init(_ count: Int = 8, _ change: (inout ServiceSpec) -> Void = { _ in }, isDeadly: @escaping ([String]) -> Bool) {
    names = (0..<count).map { "p\($0)" }
    self.isDeadly = isDeadly
    let plugins = names.map { name in
      var plugin = PluginSpec(name: name)
      plugin.environment = [EnvironmentVariable(name, "off")]
      return plugin
    }
    talk = Conversation(
      service {
        $0.process.plugins = plugins
        change(&$0)
      })
  }

  func on(_ request: StartRequest) -> [String] {
    let off = request.disabledPlugins.map(\.name)
    return names.filter { !off.contains($0) }
  }
  var record: PluginRecords { talk.record.plugins }
  var off: [String] { talk.status.disabledPlugins }

  /// Lets the program conduct itself as it does, until `over`, for at most `time`.
  mutating func play(for time: Duration = .seconds(3600), until over: (Trouble) -> Bool = { _ in false }) {
    let end = talk.time + time
    while talk.time < end, !over(self) {
      if answered < talk.spawns.count, let last = talk.spawns.last {
        answered = talk.spawns.count
        let deadly = isDeadly(on(last.request))
        if last.request.kind == .probe { probes.append((on(last.request), deadly)) }
        talk.exec()
        if deadly { talk.end(.signal(.segv, core: false), after: .milliseconds(500)) }
        continue
      }
      if talk.phase == .stopping {
        talk.pass(.milliseconds(50))
        talk.end(.signal(.term, core: false))
        continue
      }
      talk.pass(.milliseconds(250))
    }
  }
  mutating func playUntilFound() { play { $0.talk.count("search-ended") > 0 && $0.talk.phase == .running } }
  mutating func playUntilProbe(_ count: Int) {
    play {
      $0.talk.count("probing") >= count && $0.answered < $0.talk.spawns.count
        && $0.talk.spawns.last?.request.kind == .probe
    }
  }
}

@Suite struct `a search for the guilty plugin` {
  @Test func `ends with that one off and all others on, without a strike`() {
    var trouble = Trouble { $0.contains("p5") }
    trouble.playUntilFound()
    #expect(trouble.off == ["p5"])
    #expect(trouble.talk.step == .restart && trouble.talk.status.strikes == 0)
    #expect(trouble.talk.status.settled && trouble.talk.status.degraded)
    // Five strikes on step restart led to safe mode.
    #expect(trouble.talk.count("strike") == 5)
    #expect(
      trouble.talk.occurrences.contains { if case .searchEnded(.found(["p5"], nil), _, _) = $0 { true } else { false } }
    )
    #expect(trouble.record["p5"]?.off == .search && trouble.record.all.count == 1)
    // The published figures: 4.9 probes on the average, 6 in 95 of 100 cases.
    #expect((3...8).contains(trouble.probes.count))
    #expect(trouble.probes.last.map { !$0.died && $0.on.count == 7 } == true)
  }

  @Test(arguments: 0..<8)
  func `finds each of them`(_ guilty: Int) {
    var trouble = Trouble { $0.contains("p\(guilty)") }
    trouble.playUntilFound()
    #expect(trouble.off == ["p\(guilty)"])
  }

  @Test func `finds two`() {
    var trouble = Trouble { $0.contains("p1") || $0.contains("p6") }
    trouble.playUntilFound()
    #expect(trouble.off == ["p1", "p6"])
  }

  @Test func `of two that do harm only together switches one off, and remembers the other where it is known`() {
    var partners: [String] = []
    for (first, second) in [(0, 1), (1, 6), (2, 3), (4, 7)] {
      var trouble = Trouble { $0.contains("p\(first)") && $0.contains("p\(second)") }
      trouble.playUntilFound()
      #expect(trouble.off == ["p\(first)"] || trouble.off == ["p\(second)"])
      if let off = trouble.off.first, let partner = trouble.record[off]?.partner {
        #expect(Set([off, partner]) == ["p\(first)", "p\(second)"])
        partners.append(partner)
      }
    }
    #expect(!partners.isEmpty)
  }

  @Test func `begins with what has changed`() {
    func probes(_ hints: [PluginHint]) -> Int {
      var trouble = Trouble { $0.contains("p7") }
      var finding = Finding(signature: Signature(value: 7, strong: false))
      finding.plugins = hints
      trouble.talk.finding = finding
      trouble.playUntilFound()
      #expect(trouble.off == ["p7"])
      return trouble.probes.count
    }
    #expect(probes([PluginHint(plugin: "p7", score: 900)]) < probes([]))
  }

  @Test func `probes for the probe window, and ends after a whole startup window`() {
    var trouble = Trouble { $0.contains("p3") }
    trouble.playUntilFound()
    var gaps: [Duration] = []
    for (one, next) in zip(trouble.talk.spawns, trouble.talk.spawns.dropFirst()) where one.request.kind == .probe {
      gaps.append(next.at - one.at)
    }
    // What died after half a second is over a second later; what lives is given 2 s.
    #expect(gaps.allSatisfy { $0 < .seconds(4) })
    let last = trouble.talk.spawns.last?.at ?? .zero
    #expect(trouble.talk.time - last >= .seconds(60))
  }

  @Test func `does not begin with a single plugin, with search off, in observe mode, or where it is only suggested`() {
    for change: @Sendable (inout ServiceSpec) -> Void in [
      { $0.plugins.search = .off }, { $0.mode = .observe }, { $0.plugins.search = .suggest },
      { $0.process.plugins = Array($0.process.plugins.prefix(1)) }, { $0.kind = .task },
    ] {
      var trouble = Trouble(8, change) { $0.contains("p0") }
      trouble.play(for: .seconds(900))
      #expect(trouble.probes.isEmpty && trouble.talk.count("search-began") == 0)
    }
    var suggested = Trouble(8, { $0.plugins.search = .suggest }) { $0.contains("p0") }
    suggested.play(for: .seconds(900))
    #expect(suggested.talk.count("search-suggested") == 1)
    #expect(suggested.talk.status.settled && suggested.off.count == 8)
  }

  @Test func `waits for its time of day, and ends where it has begun`() {
    // It is 14:13 where there is no time zone.
    var trouble = Trouble(8, { $0.plugins.when = .daily(from: 16 * 60, to: 16 * 60 + 5) }) { $0.contains("p2") }
    trouble.play(for: .seconds(3600))
    #expect(trouble.probes.isEmpty && trouble.talk.status.settled && trouble.off.count == 8)
    trouble.playUntilFound()
    #expect(trouble.off == ["p2"])
  }

  @Test func `waits until the service has nothing to do where it is told to`() {
    var trouble = Trouble(8, { $0.plugins.when = .idle }) { $0.contains("p2") }
    for _ in 0..<40 {
      trouble.talk.cpu += .seconds(20)
      trouble.play(for: .seconds(30)) { $0.talk.count("search-began") > 0 }
    }
    #expect(trouble.probes.isEmpty && trouble.talk.status.settled)
    trouble.playUntilFound()
    #expect(trouble.off == ["p2"])
  }

  @Test func `goes on where it was when guardian was killed in the middle`() {
    var trouble = Trouble { $0.contains("p4") }
    trouble.playUntilProbe(3)
    let seen = trouble.record.search?.observations.count ?? 0
    #expect(seen >= 2)
    trouble.talk.exec()
    trouble.talk.guardianDies(away: .milliseconds(10))
    trouble.talk.adopt()
    #expect(trouble.record.search?.observations.count == seen)
    trouble.talk.tell(.begin)
    trouble.playUntilFound()
    #expect(trouble.off == ["p4"] && trouble.talk.status.settled)
    #expect(trouble.talk.count("search-began") == 1)
  }

  @Test func `repeats the probe that a reboot has cut short`() {
    var trouble = Trouble { $0.contains("p4") }
    trouble.playUntilProbe(3)
    let before = trouble.talk.spawns.last?.request.disabledPlugins.map(\.name)
    let seen = trouble.record.search?.observations
    trouble.talk.exec()
    trouble.talk.reboot()
    trouble.talk.tell(.begin)
    #expect(trouble.talk.spawns.last?.request.kind == .probe)
    #expect(trouble.talk.spawns.last?.request.disabledPlugins.map(\.name) == before)
    #expect(trouble.record.search?.observations == seen)
    trouble.playUntilFound()
    #expect(trouble.off == ["p4"])
  }

  @Test func `leaves the service with the best set that has passed when it is held`() {
    var trouble = Trouble { $0.contains("p4") }
    trouble.playUntilProbe(4)
    let best = trouble.record.search.map { $0.names($0.best) } ?? []
    trouble.talk.order(.hold(.seconds(3600)))
    let count = trouble.talk.count("probing")
    trouble.talk.exec()
    trouble.talk.end()
    trouble.talk.pass(.seconds(1800))
    #expect(trouble.talk.count("probing") == count && trouble.talk.phase != .running)
    trouble.talk.order(.hold(.zero))
    #expect(trouble.talk.spawns.last.map { trouble.on($0.request) } == best)
    trouble.playUntilFound()
    #expect(trouble.off == ["p4"])
  }

  @Test func `counts no kill from outside`() {
    var trouble = Trouble { $0.contains("p4") }
    trouble.playUntilProbe(2)
    let seen = trouble.record.search?.observations
    let off = trouble.talk.spawns.last?.request.disabledPlugins
    trouble.talk.end(.signal(.kill, core: false), after: .milliseconds(100))
    #expect(trouble.record.search?.observations == seen)
    #expect(trouble.talk.spawns.last?.request.disabledPlugins == off)
  }

  @Test func `counts a death of another kind only when it is repeated`() {
    var trouble = Trouble { $0.contains("p4") }
    trouble.playUntilProbe(1)
    let off = trouble.talk.spawns.last?.request.disabledPlugins
    trouble.talk.end(.code(9))
    trouble.talk.pass(.seconds(2))
    #expect(trouble.record.search?.observations.map(\.outcome) == [.otherFailure])
    #expect(trouble.talk.spawns.last?.request.disabledPlugins == off)
  }

  @Test func `never switches what is pinned`() {
    var trouble = Trouble { $0.contains("p4") }
    trouble.talk.order(.plugins(.pin("p2")))
    trouble.playUntilFound()
    #expect(trouble.off == ["p4"])
    #expect(trouble.talk.spawns.allSatisfy { !$0.request.disabledPlugins.map(\.name).contains("p2") })
  }

  @Test func `tells that it is no plugin where everything dies now`() {
    var trouble = Trouble(4) { !$0.isEmpty }
    trouble.play { $0.talk.count("search-ended") > 0 && $0.talk.status.settled }
    #expect(trouble.off.count == 4 && trouble.talk.step == .safeMode)
    #expect(trouble.talk.count("search-began") == 1)
    trouble.play(for: .seconds(1800))
    #expect(trouble.talk.count("search-began") == 1)
  }
}

@Suite struct `the guilty plugin` {
  private func found(_ change: (inout ServiceSpec) -> Void = { _ in }) -> Trouble {
    var trouble = Trouble(8, change) { $0.contains("p5") }
    trouble.playUntilFound()
    return trouble
  }

  @Test func `is tried again at the next start after its time, and off again for twice as long`() {
    var trouble = found()
    trouble.talk.pass(.day)
    #expect(trouble.off == ["p5"])
    let strikes = trouble.talk.count("strike")
    trouble.talk.end()
    #expect(trouble.talk.spawns.last?.request.kind == .pluginRetry)
    trouble.play(for: .seconds(90))
    #expect(trouble.off == ["p5"] && trouble.talk.status.settled)
    #expect(trouble.talk.count("strike") == strikes && trouble.talk.count("plugin-retry-failed") == 1)
    #expect(trouble.record["p5"]?.timeToLive == .day * 2)
  }

  @Test func `is back for good once it is mended`() {
    var trouble = found()
    trouble.isDeadly = { _ in false }
    trouble.talk.pass(.day)
    trouble.talk.end()
    trouble.play(for: .seconds(90))
    #expect(trouble.off.isEmpty && trouble.talk.status.settled && !trouble.talk.status.degraded)
    #expect(trouble.record["p5"]?.probationUntil != nil)
  }

  @Test func `is tried at the next start when its file is another one`() {
    var trouble = found { spec in spec.process.plugins[5].hide = ["/srv/p5.so"] }
    func see(_ look: UInt64) { trouble.talk.tell(.pluginsSeen([FileSight(path: "/srv/p5.so", look: look)])) }
    see(7)
    see(7)
    trouble.talk.end()
    trouble.play(for: .seconds(90))
    #expect(trouble.off == ["p5"])
    see(8)
    #expect(trouble.talk.count("plugins-changed") == 1)
    trouble.isDeadly = { _ in false }
    trouble.talk.end()
    #expect(trouble.talk.spawns.last?.request.kind == .pluginRetry)
    trouble.play(for: .seconds(90))
    #expect(trouble.off.isEmpty && trouble.talk.status.settled)
  }

  @Test func `is tried in its window without waiting for a start`() {
    var trouble = found { $0.plugins.when = .daily(from: 840, to: 900) }
    trouble.isDeadly = { _ in false }
    let starts = trouble.talk.spawns.count
    trouble.play(for: .day * 2) { $0.talk.spawns.count > starts }
    #expect(trouble.talk.spawns.last?.request.kind == .pluginRetry)
  }
}

/// A service with three plugins and a file that is like one while it is another than its good copy.
@Suite struct `a configuration file with a good copy` {
  private static let path = "/etc/web.conf"
  private func make(_ isDeadly: @escaping ([String]) -> Bool, plugins: Int = 4) -> Trouble {
    Trouble(
      plugins,
      { spec in
        spec.process.plugins[plugins - 1] = PluginSpec(name: "p\(plugins - 1)")
        spec.process.plugins[plugins - 1].goodCopy = [Self.path]
      }, isDeadly: isDeadly)
  }
  private func see(_ trouble: inout Trouble, _ look: UInt64, differs: Bool) {
    var sight = FileSight(path: Self.path, look: look)
    if differs { sight.change = FileChange(path: Self.path, at: WallTime(nanoseconds: 1_790_000_000_000_000_000)) }
    trouble.talk.tell(.filesSeen([sight]))
    trouble.talk.tell(.pluginsSeen([FileSight(path: Self.path, look: look)]))
  }

  @Test func `that has changed and is to blame is found, named, and tried when it changes again`() {
    var trouble = make { $0.contains("p3") }
    see(&trouble, 7, differs: true)
    trouble.playUntilFound()
    #expect(trouble.off == ["p3"] && trouble.talk.step == .restart)
    #expect(trouble.talk.status.degraded)
    let files: [FileChange] =
      trouble.talk.occurrences.compactMap { kind -> [FileChange]? in
        if case .goodCopyUsed("p3", let files) = kind { files } else { nil }
      }.last ?? []
    let told = files.map(\.description).joined()
    #expect(told.contains("/etc/web.conf as changed on 2026-09-21T14:13:20Z"), "\(told)")
    #expect(trouble.talk.status.plugins.last?.files.map(\.path) == [Self.path])
    #expect(trouble.talk.spawns.last?.request.disabledPlugins.map(\.goodCopy) == [[Self.path]])

    see(&trouble, 7, differs: true)
    see(&trouble, 8, differs: true)
    trouble.isDeadly = { _ in false }
    trouble.talk.end()
    #expect(trouble.talk.spawns.last?.request.kind == .pluginRetry)
    see(&trouble, 8, differs: true)
    trouble.play(for: .seconds(90))
    #expect(trouble.off.isEmpty && trouble.talk.status.settled && !trouble.talk.status.degraded)
  }

  @Test func `that has changed and is innocent stays on`() {
    var trouble = make { $0.contains("p1") }
    see(&trouble, 7, differs: true)
    trouble.playUntilFound()
    #expect(trouble.off == ["p1"])
    #expect(trouble.probes.contains { !$0.on.contains("p3") }, "it was a suspect too")
  }

  @Test func `that is as it was takes no part`() {
    var trouble = make { $0.contains("p1") }
    see(&trouble, 7, differs: false)
    trouble.playUntilFound()
    #expect(trouble.off == ["p1"])
    #expect(trouble.talk.spawns.allSatisfy { !$0.request.disabledPlugins.map(\.name).contains("p3") })
    #expect(trouble.talk.spawns.contains { $0.request.mode == "safe" })
  }

  @Test func `alone gives safe mode something to do only while it is another`() {
    var same = make({ !$0.isEmpty }, plugins: 1)
    see(&same, 7, differs: false)
    // Restart has the strikes of the steps that are skipped.
    #expect(same.talk.status.strikesAllowed == 7)
    see(&same, 8, differs: true)
    #expect(same.talk.status.strikesAllowed == 5)
    same.play { $0.talk.status.settled }
    #expect(same.talk.step == .safeMode && same.off == ["p0"])
  }

  @Test func `is as it was to an operator who wants that, whatever it is`() {
    var trouble = make { _ in false }
    trouble.talk.order(.plugins(.disable("p3")))
    trouble.talk.order(.restart)
    trouble.play(for: .seconds(90))
    #expect(trouble.off == ["p3"] && !trouble.talk.status.degraded)
  }

  @Test func `is a suspect still for a guardian that has come after the one that saw it`() {
    var trouble = make { $0.contains("p3") }
    see(&trouble, 7, differs: true)
    trouble.playUntilProbe(2)
    trouble.talk.guardianDies()
    trouble.talk.miss()
    trouble.talk.tell(.begin)
    trouble.playUntilFound()
    #expect(trouble.off == ["p3"])
    #expect(trouble.talk.count("search-began") == 1)
  }
}
