import GuardianCore
import GuardianModel
import Testing

/// Two plugins, and something that must confirm that they are off.
private func confirmed(
  by acknowledgement: Acknowledgement?, _ change: (inout ServiceSpec) -> Void = { _ in }
) -> ServiceSpec {
  service {
    for name in ["a", "b"] {
      var plugin = PluginSpec(name: name)
      plugin.unset = [name]
      $0.process.plugins.append(plugin)
    }
    $0.plugins.acknowledge = acknowledgement
    change(&$0)
  }
}

extension Conversation {
  /// Dies until it is started without its plugins, and comes to its exec.
  fileprivate mutating func goToSafeMode() {
    for _ in 0..<10 where spawns.last?.request.disabledPlugins.isEmpty ?? true { crash(.signal(.segv, core: false)) }
    exec()
  }
  fileprivate var confirmation: String { status.notes.first { $0.hasPrefix("that plugins are off") } ?? "" }
}

@Suite struct `the confirmation that plugins are off` {
  @Test func `is asked for while all are off, and missed when the startup window is over`() {
    var c = Conversation(confirmed(by: .status("safe mode")))
    c.exec()
    #expect(c.confirmation == "", "with its plugins on there is nothing to be confirmed")
    c.goToSafeMode()
    #expect(c.confirmation == "that plugins are off is still to be confirmed by a STATUS= that begins with 'safe mode'")
    c.pass(.seconds(61))
    #expect(c.status.settled && c.status.degraded)
    #expect(c.occurrences.contains(.pluginsUnconfirmed(run: c.run, names: ["a", "b"])))
    #expect(c.confirmation.hasPrefix("that plugins are off has not been confirmed"))
    c.pass(.seconds(600))
    #expect(c.count("search-began") == 0, "what is not known to be safe mode proves nothing")
    #expect(c.count("plugins-unconfirmed") == 1)

    c.tell(.pluginsConfirmed(c.run))
    #expect(c.count("search-began") == 1)
  }

  @Test func `in time is no event, and the search begins when the service has settled`() {
    var c = Conversation(confirmed(by: .status("safe mode")))
    c.goToSafeMode()
    c.tell(.pluginsConfirmed(RunID(high: 7, low: 7)))
    #expect(c.confirmation.contains("still to be confirmed"), "of another run")
    c.tell(.pluginsConfirmed(c.run))
    #expect(c.confirmation == "that plugins are off is confirmed by a STATUS= that begins with 'safe mode'")
    #expect(c.count("search-began") == 0)
    c.pass(.seconds(61))
    #expect(c.count("plugins-unconfirmed") == 0 && c.count("search-began") == 1)
  }

  @Test func `is remembered by the next guardian`() {
    var c = Conversation(confirmed(by: .status("x")) { $0.plugins.search = .off })
    c.goToSafeMode()
    c.tell(.pluginsConfirmed(c.run))
    c.guardianDies()
    c.adopt()
    #expect(c.confirmation.hasPrefix("that plugins are off is confirmed"))
    c.pass(.seconds(61))
    #expect(c.status.settled && c.count("plugins-unconfirmed") == 0)
  }

  @Test func `may be a check that is probed in safe mode alone and says nothing about health`() {
    var c = Conversation(
      confirmed(by: .check("safe")) {
        var safe = CheckSpec(name: "safe", kind: .exec(["/bin/safe"]))
        safe.failures = 1
        $0.checks = [safe]
        $0.plugins.search = .off
      })
    c.exec()
    c.pass(.seconds(30))
    #expect(c.probes.isEmpty && c.status.checks.isEmpty)
    c.goToSafeMode()
    for _ in 0..<3 {
      c.pass(.seconds(11))
      if let probe = c.probes.last { c.tell(.probed(probe.run, number: probe.number, .failed("on"))) }
    }
    #expect(c.phase == .running && c.signals.isEmpty && c.count("check") == 0)
    #expect(c.status.checks.map(\.state) == [.failing])
    c.pass(.seconds(61))
    #expect(c.status.settled && c.count("plugins-unconfirmed") == 1, "it holds up nothing")
    c.pass(.seconds(11))
    if let probe = c.probes.last { c.tell(.probed(probe.run, number: probe.number, .passed("off"))) }
    #expect(c.confirmation == "that plugins are off is confirmed by check safe")
    #expect(c.status.checks.isEmpty, "it has said what it had to say")
  }
}

@Suite struct `entries of a plugin directory` {
  private func spec(_ entries: [String], _ change: (inout ServiceSpec) -> Void = { _ in }) -> ServiceSpec {
    service {
      var listed = PluginSpec(name: "listed")
      listed.unset = ["X"]
      let directory = PluginDirectory(path: "/d")
      $0.process.pluginDirectory = directory
      $0.process.plugins = [listed] + directory.plugins(of: entries, beside: [listed]).found
      change(&$0)
    }
  }
  private func found(_ entries: [String]) -> ServiceEvent {
    let directory = PluginDirectory(path: "/d")
    return .pluginsFound(directory, directory.plugins(of: entries, beside: [PluginSpec(name: "listed")]).found)
  }

  @Test func `that come and go take effect with the next start, and nothing is forgiven for them`() {
    var c = Conversation(spec(["a"]))
    c.crash()
    c.crash()
    #expect(c.status.strikes == 2)
    c.exec()
    c.tell(found(["b", "c"]))
    #expect(c.fleet.spec(of: c.id)?.process.plugins.map(\.name) == ["listed", "a"])
    #expect(c.fleet.latestSpec(of: c.id)?.process.plugins.map(\.name) == ["listed", "b", "c"])
    c.crash()
    #expect(c.spawns.last?.request.spec.process.plugins.map(\.name) == ["listed", "b", "c"])
    #expect(c.count("released") == 0 && c.status.strikes == 3)
    c.crash()
    c.crash()
    #expect(c.spawns.last?.request.disabledPlugins.map(\.name) == ["listed", "b", "c"])
    // What has come since is off with the next start on this step, and what has gone needs no more.
    c.exec()
    c.tell(found(["c", "d"]))
    c.crash()
    #expect(c.spawns.last?.request.disabledPlugins.map(\.name) == ["listed", "c", "d"])
    #expect(c.step == .safeMode)
  }

  @Test func `that cannot be looked at are as they are remembered, also for a guardian that comes after`() {
    func quiet(_ entries: [String]) -> ServiceSpec { spec(entries) { $0.plugins.search = .off } }
    var c = Conversation(quiet(["a", "b"]))
    for _ in 0..<5 { c.crash() }
    #expect(c.step == .safeMode)
    c.settle()
    // It is not mounted when guardian comes up, and not when it looks.
    c.guardianDies(definition: quiet([]))
    c.adopt()
    c.tell(.begin)
    #expect(c.fleet.spec(of: c.id)?.process.plugins.map(\.name) == ["listed", "a", "b"])
    #expect(c.fleet.define(quiet([]), for: c.id, now: c.now) == nil, "nothing has changed")
    c.tell(found([]))
    c.end()
    #expect(c.spawns.last?.request.disabledPlugins.map(\.name) == ["listed", "a", "b"])
    c.settle()
    // It is there: what is not in it is remembered all the same.
    c.tell(found(["b", "c"]))
    c.end()
    #expect(c.spawns.last?.request.disabledPlugins.map(\.name) == ["listed", "b", "c"])
    #expect(c.record.plugins["a"]?.off == .ladder)
  }

  @Test func `that a reload finds are none of its changes, and those of another directory are not heard of`() {
    var c = Conversation(spec(["a"]))
    c.crash()
    c.define(spec(["a", "b"]))
    #expect(c.status.strikes == 1 && c.count("released") == 0)
    c.crash()
    #expect(c.spawns.last?.request.spec.process.plugins.map(\.name) == ["listed", "a", "b"])
    c.tell(.pluginsFound(PluginDirectory(path: "/e"), []))
    c.crash()
    #expect(c.spawns.last?.request.spec.process.plugins.map(\.name) == ["listed", "a", "b"])
    c.define(spec(["a"]) { $0.process.pluginDirectory = PluginDirectory(path: "/e") })
    c.crash()
    #expect(c.count("released") == 1, "another directory is another definition")
  }

  @Test func `that were found before leave nothing to be done when nothing has changed`() {
    var c = Conversation(spec(["a"]))
    c.exec()
    c.tell(found(["b"]))
    #expect(!c.status.notes.filter { $0.contains("plugins") }.isEmpty)
    c.tell(found(["a"]))
    #expect(c.status.notes.filter { $0.contains("plugins") }.isEmpty)
    c.guardianDies(definition: spec(["b"]))
    c.adopt()
    #expect(c.count("released") == 0 && c.status.pid != nil)
  }
}
