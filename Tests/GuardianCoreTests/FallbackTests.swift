import GuardianModel
import Testing

@testable import GuardianCore

private func name(_ text: String) -> ServiceName { ServiceName(text) ?? .guardian }

private func web(_ change: (inout ServiceSpec) -> Void = { _ in }) -> ServiceSpec {
  var spec = ServiceSpec(name: name("web"), process: ProcessSpec(command: ["/bin/web"]))
  spec.fatalExit = [9]
  spec.backoff.jitter = 0
  spec.quarantine.fallback = name("web-static")
  change(&spec)
  return spec
}
private func staticWeb() -> ServiceSpec {
  var spec = ServiceSpec(name: name("web-static"), process: ProcessSpec(command: ["/bin/static"]))
  spec.start = .manual
  return spec
}

@Suite struct `a fallback` {
  private func quarantined() -> FleetTalk {
    var talk = FleetTalk(web(), staticWeb())
    talk.die("web", .code(9))
    return talk
  }

  @Test func `runs as long as the other is in quarantine, and is told of in both`() {
    var talk = quarantined()
    #expect(talk.takeStory() == ["+web", "×web", "+web-static"])
    #expect(talk.phase("web") == .quarantined && talk.status("web").fallback == "web-static")
    #expect(talk.status("web-static").standsInFor == ["web"] && talk.phase("web-static") == .running)
    talk.order(.release, "web")
    #expect(talk.takeStory() == ["-web-static", "+web"])
    #expect(talk.status("web-static").standsInFor == [] && talk.status("web-static").wanted == .down)
  }

  @Test func `has stopped before a trial begins, and comes back when that fails`() {
    var talk = quarantined()
    talk.stubborn = ["web-static"]
    _ = talk.takeStory()
    talk.pass(.seconds(900))
    #expect(talk.takeStory() == ["-web-static"])
    #expect(talk.phase("web") == .waiting)
    #expect(talk.reason("web") == "waits until its fallback web-static has stopped")
    talk.pass(.seconds(10))  // to KILL
    #expect(talk.takeStory() == ["+web"])
    talk.die("web", .code(9))
    #expect(talk.takeStory() == ["×web", "+web-static"])
    #expect(talk.phase("web") == .quarantined)
    talk.stubborn = []
    talk.pass(.seconds(1_800))
    #expect(talk.takeStory() == ["-web-static", "+web"])
    talk.pass(.seconds(60))
    #expect(talk.status("web").settled && talk.phase("web-static") == .stopped)
  }

  @Test func `gives way to an operator's start of the other, which waits for it`() {
    var talk = quarantined()
    talk.stubborn = ["web-static"]
    let request = talk.order(.start, "web")
    #expect(talk.answers[request] == nil && talk.phase("web") == .waiting)
    talk.pass(.seconds(10))
    #expect(isDone(talk.answers[request]))
  }

  @Test func `stops where the other is not wanted any more`() {
    var talk = quarantined()
    _ = talk.takeStory()
    talk.order(.stop(untilBoot: false), "web")
    #expect(talk.takeStory() == ["-web-static"] && talk.phase("web") == .quarantined)
    talk.order(.start, "web")
    #expect(talk.takeStory() == ["+web"])
  }

  @Test
  func `that an operator has started is left alone, and one that he has stopped until there is another quarantine`() {
    var talk = FleetTalk(web(), staticWeb())
    talk.order(.start, "web-static")
    talk.die("web", .code(9))
    _ = talk.takeStory()
    talk.order(.release, "web")
    #expect(talk.takeStory() == ["+web"] && talk.phase("web-static") == .running)
    talk.order(.stop(untilBoot: false), "web-static")
    talk.die("web", .code(9))
    #expect(talk.phase("web-static") == .running)
    talk.order(.stop(untilBoot: false), "web-static")
    talk.pass(.seconds(900))
    talk.die("web", .code(9))
    #expect(talk.phase("web") == .quarantined && talk.phase("web-static") == .stopped)
    talk.order(.release, "web")
    talk.die("web", .code(9))
    #expect(talk.phase("web-static") == .running)
  }

  @Test func `that crashes is restarted, and not known is told`() {
    var talk = quarantined()
    talk.die("web-static")
    talk.pass(.seconds(1))
    #expect(talk.phase("web-static") == .running)
    var alone = FleetTalk(web())
    alone.die("web", .code(9))
    #expect(alone.status("web").notes.contains { $0.contains("web-static has no valid definition") })
    alone.add(staticWeb())
    #expect(alone.phase("web-static") == .running)
  }

  @Test func `goes on after guardian, and is not started again where nobody needs it`() throws {
    let before = quarantined()
    let now = before.now
    func back(_ change: (inout ServiceSpec) -> Void = { _ in }, sameBoot: Bool) -> FleetTalk {
      var stored: [String: StoredRecord] = [:]
      for (name, record) in before.saved {
        stored[name] = StoredRecord(record: record, mark: now, sameBoot: sameBoot)
      }
      return FleetTalk([web(change), staticWeb()], stored: stored, begin: false)
    }
    // The same boot: it lives.
    var talk = back(sameBoot: true)
    let adoptee = try #require(talk.fleet.adoptees(of: talk.id("web-static")).first)
    talk.tell("web-static", .adopted(adoptee.run, pid: 7, startTicks: 7, readinessKnown: true))
    talk.begin()
    #expect(talk.takeStory() == [] && talk.status("web-static").standsInFor == ["web"])
    talk.order(.release, "web")
    #expect(talk.takeStory().first == "-web-static")
    // Another boot: it starts again.
    talk = back(sameBoot: false)
    talk.begin()
    #expect(talk.takeStory() == ["+web-static"])
    // The other has been mended meanwhile.
    talk = back({ $0.process.command.append("mended") }, sameBoot: false)
    talk.begin()
    #expect(talk.takeStory() == ["+web"] && talk.phase("web-static") == .stopped)
  }

  @Test func `of several, which no check lets pass, has none of them started beside it`() {
    var other = web { $0.name = name("shop") }
    other.process.command = ["/bin/shop"]
    var talk = FleetTalk(web(), other, staticWeb())
    talk.die("web", .code(9))
    talk.die("shop", .code(9))
    _ = talk.takeStory()
    talk.order(.release, "web")
    #expect(talk.phase("web-static") == .running && talk.phase("web") == .waiting)
    talk.order(.stop(untilBoot: false), "shop")
    #expect(talk.takeStory() == ["-web-static", "+web"])
  }

  @Test func `goes down with everything else`() {
    var talk = quarantined()
    talk.shutDown()
    #expect(talk.allStopped)
  }
}
