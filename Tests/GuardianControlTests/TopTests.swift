@testable import GuardianControl
import GuardianModel
import Testing

@Suite struct `keys` {
  private func read(_ text: String) -> [Key] {
    var reader = KeyReader()
    return reader.feed(Array(text.utf8))
  }

  @Test func `are read one by one, sequences as one`() {
    #expect(
      read("j/ä\u{1b}[A\u{1b}OB\r\u{7f}") == [
        .character("j"), .character("/"), .character("ä"), .up, .down, .enter, .backspace,
      ])
    #expect(
      read("\u{1b}[5~\u{1b}[6~\u{1b}[1~\u{1b}[4~\u{1b}[H\u{1b}[F") == [.pageUp, .pageDown, .home, .end, .home, .end])
    #expect(read("\u{3}\u{1a}") == [.control("c"), .control("z")])
    #expect(read("\u{1b}") == [.escape])
    #expect(read("\u{1b}q") == [.escape, .character("q")])
    // F5, a mouse, and what nobody has thought of.
    #expect(read("\u{1b}[15~x\u{1b}[1;5Cy") == [.character("x"), .right, .character("y")])
  }

  @Test func `that come in pieces are the same keys, and noise is none that waits for ever`() {
    var reader = KeyReader()
    #expect(reader.feed([0x1b, 0x5b]) == [])
    #expect(reader.feed([0x41, 0xc3]) == [.up])
    #expect(reader.feed([0xa4]) == [.character("ä")])
    var noise = Noise(state: 7)
    for _ in 0..<2_000 {
      _ = reader.feed((0..<Int.random(in: 0...9, using: &noise)).map { _ in UInt8.random(in: 0...255, using: &noise) })
    }
    for _ in 0..<40 { _ = reader.feed([0x30]) }
    #expect(reader.feed([0x71]) == [.character("q")])
  }
}

@Suite struct `top` {
  private func model(_ services: [ServiceStatus] = zoo, width: Int = 80, height: Int = 14) -> TopModel {
    var model = TopModel()
    _ = model.handle(.resized(width: width, height: height))
    _ = model.handle(.time(milliseconds: 1_000_000))
    _ = model.handle(.linked)
    var summary = DaemonSummary()
    summary.line = "6 services: 1 settled, 1 quarantined (mailer)"
    summary.state = "durable"
    _ = model.handle(.summary(summary))
    _ = model.handle(.looked(services, missing: [], whole: true))
    return model
  }
  private func names(_ model: TopModel) -> [String] { model.rows.map { model.services[$0].name } }
  @discardableResult
  private func press(_ model: inout TopModel, _ text: String) -> [TopModel.Effect] {
    text.flatMap { model.handle(.key($0 == "\n" ? .enter : $0 == "\u{1b}" ? .escape : .character($0))) }
  }

  @Test func `shows the worst first, with step, strikes, next action and what is taken`() {
    var model = model(width: 120, height: 11)
    _ = model.handle(.measured(["web": Usage(cpu: 1_234, memory: 300 << 20), "db": Usage(cpu: 3, memory: 1_800_000)]))
    #expect(
      Array(model.frame(Style()).prefix(4)) == [
        "6 services: 1 settled, 1 quarantined (mailer)",
        "by state",
        "  NAME                           STATE          STEP        STRIKES  NEXT                 CPU     MEM  UPTIME  ",
        "> mailer                         quarantined    quarantine  -        trial in 14min         -       -  -       ",
      ])
    let text = model.frame(Style()).joined(separator: "\n")
    #expect(text.contains("api ") && text.contains("2 of 3 ") && text.contains("start in 3.2s"))
    #expect(text.contains("123%") && text.contains("300M") && text.contains("0.3%") && text.contains("1.7M"))
    #expect(names(model) == ["mailer", "cache-with-a-rather-long-name", "api", "web", "db", "old"])
  }

  @Test func `lets what comes next come nearer, and uptimes grow, without asking anybody`() {
    var model = model(width: 120)
    _ = model.handle(.time(milliseconds: 1_002_200))
    #expect(model.frame(Style()).joined().contains("start in 1s"))
    _ = model.handle(.time(milliseconds: 1_009_000))
    #expect(model.frame(Style()).joined().contains("start in 0s"))
    _ = model.handle(.time(milliseconds: 1_000_000 + 3_600_000))
    #expect(model.frame(Style()).joined().contains("3h13min"))
  }

  @Test func `sorts by what is asked for, and the other way round`() {
    var model = model()
    press(&model, "N")
    #expect(names(model).first == "api" && names(model).last == "web")
    press(&model, "N")
    #expect(names(model).first == "web" && model.isReversed)
    press(&model, "R")
    #expect(names(model).first == "api")
    press(&model, "K")
    #expect(names(model).first == "api" && model.sort == .strikes)
    press(&model, "C")
    _ = model.handle(.measured(["old": Usage(cpu: 20, memory: 5), "db": Usage(cpu: 10, memory: 50)]))
    #expect(Array(names(model).prefix(2)) == ["old", "db"])
    press(&model, "M")
    #expect(Array(names(model).prefix(2)) == ["db", "old"])
    press(&model, "U")
    #expect(["db", "web"].contains(names(model)[0]))
    press(&model, "X")
    #expect(Array(names(model).prefix(3)) == ["api", "mailer", "web"])
  }

  @Test func `filters by name and by state`() {
    var model = model()
    press(&model, "/quar")
    #expect(names(model) == ["mailer"] && model.mode == .filter)
    #expect(model.frame(Style())[1] == "filter: quar_")
    // Letters that are keys elsewhere are letters here.
    press(&model, "\n")
    #expect(model.mode == .list && model.frame(Style())[1].hasPrefix("filter: quar"))
    press(&model, "\u{1b}")
    #expect(names(model).count == zoo.count)
    press(&model, "/qqq")
    #expect(names(model) == [] && model.selected == nil)
    #expect(press(&model, "\nsy") == [])
  }

  @Test func `stays with the service that was chosen, when rows move and when it goes`() {
    var model = model()
    press(&model, "N")
    press(&model, "jj")
    #expect(model.selected?.name == "db")
    press(&model, "S")
    #expect(model.selected?.name == "db")
    _ = model.handle(.looked([], missing: ["db"], whole: false))
    #expect(model.selected?.name == "mailer" && !names(model).contains("db"))
    press(&model, "G")
    #expect(model.selected?.name == "old")
    for _ in 0..<10 { _ = model.handle(.key(.down)) }
    #expect(model.selected?.name == "old")
    for _ in 0..<10 { _ = model.handle(.key(.up)) }
    #expect(model.selected?.name == "mailer")
  }

  @Test func `acts only after a clear yes`() {
    var model = model()
    #expect(press(&model, "s") == [])
    #expect(model.frame(Style()).last == "start mailer? y, or any other key for no")
    #expect(press(&model, "n") == [] && model.mode == .list)
    #expect(press(&model, "sy") == [.order(TopOrder(action: .start, name: "mailer"))])
    for (key, action) in [
      ("t", TopOrder.Action.stop), ("r", .restart), ("l", .release), ("e", .reset),
    ] {
      #expect(press(&model, key + "y") == [.order(TopOrder(action: action, name: "mailer"))])
    }
    #expect(press(&model, "h30min\n") == [.order(TopOrder(action: .hold(milliseconds: 1_800_000), name: "mailer"))])
    #expect(press(&model, "hsoon\n") == [])
    #expect(model.frame(Style()).last?.hasPrefix("'soon' is no time") == true)
    _ = model.handle(.refused(TopOrder(action: .stop, name: "mailer"), .notPermitted(reason: "only \u{1b}[2Jroot")))
    #expect(model.frame(Style()).last == "mailer: not permitted: only \\x1b[2Jroot")
    _ = model.handle(.answered(TopOrder(action: .stop, name: "mailer"), note: ""))
    #expect(model.frame(Style()).last == "mailer: stopped")
    _ = model.handle(.time(milliseconds: 1_100_000))
    #expect(model.frame(Style()).last?.hasPrefix("q quit") == true)
    #expect(press(&model, "q") == [.quit] && model.handle(.key(.control("c"))) == [.quit])
  }

  @Test func `says that guardian is away, and goes on with what it knew`() {
    var model = model()
    _ = model.handle(.lost("cannot reach guardian: nobody listens"))
    #expect(model.frame(Style())[1] == "guardian is away: cannot reach guardian: nobody listens")
    #expect(names(model).count == zoo.count)
    _ = model.handle(.linked)
    #expect(model.frame(Style())[1] == "by state")
  }

  @Test func `shows all that is known of one, and its keys`() {
    var model = model(height: 30)
    press(&model, "N")
    press(&model, "G\n")
    let text = model.frame(Style()).joined(separator: "\n")
    #expect(text.contains("web – Shop front end") && text.contains("Plugins off: payments, social"))
    #expect(!text.contains("\u{1b}"))
    press(&model, "\u{1b}?")
    #expect(model.frame(Style()).contains { $0.contains("release from quarantine") })
    press(&model, "x")
    #expect(model.mode == .list)
  }

  @Test func `scrolls through a thousand`() {
    let many = (0..<1_000).map { settledService("s\(1_000 + $0)") }
    var model = model(many, height: 10)
    press(&model, "N")
    #expect(model.frame(Style()).count == 10)
    _ = model.handle(.key(.pageDown))
    #expect(model.selected?.name == "s1006")
    press(&model, "G")
    #expect(model.selected?.name == "s1999" && model.frame(Style())[8].hasPrefix("> s1999"))
    _ = model.handle(.looked([many[0]], missing: [], whole: true))
    #expect(model.frame(Style())[3].hasPrefix("> s1000"))
  }

  @Test(arguments: [2, 3, 5, 9, 20, 40, 80, 200])
  func `draws no line wider than the terminal, and no more lines`(width: Int) {
    for height in [1, 2, 3, 4, 5, 24] {
      for keys in ["", "/web", "s", "h10", "\n", "?"] {
        for unicode in [true, false] {
          var model = model(width: width, height: height)
          press(&model, keys)
          let frame = model.frame(Style(unicode: unicode))
          #expect(frame.count <= height)
          for line in frame { #expect(columns(line) <= width, "\(width) x \(height), \(keys): \(line)") }
        }
      }
    }
  }

  @Test func `writes sizes and shares as people do`() {
    #expect(TopModel.percent(3) == "0.3%" && TopModel.percent(99) == "9.9%" && TopModel.percent(1_234) == "123%")
    #expect(TopModel.size(0) == "0K" && TopModel.size(524_288) == "512K" && TopModel.size(1_800_000) == "1.7M")
    #expect(TopModel.size(27 << 20) == "27M" && TopModel.size(5 << 29) == "2.5G" && TopModel.size(.max) == "8388607T")
  }
}
