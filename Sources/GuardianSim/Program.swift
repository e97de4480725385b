import GuardianCore
import GuardianModel

/// How a simulated program conducts itself, run after run.
package enum Behaviour: String, Hashable, Sendable, CaseIterable {
  case healthy
  /// Dies at start until the repair with this service's number has succeeded.
  case needsRepair
  /// Dies at start unless one of its plugins is off.
  case badPlugin
  case crashesForEver
  /// Becomes ready, or shows its true colours, late.
  case slow
  case diesNowAndThen
  case diesEveryTwoMinutes
  /// Says nothing, and is waited for.
  case neverReady
  /// Only KILL ends it.
  case ignoresTerm
  /// Dies and leaves processes behind, some of which ignore TERM.
  case leavesLeftovers
  case exits127, exits78
  /// Ends with a code that the definition calls fatal.
  case exitsFatally
  case outOfMemory
  /// Healthy; somebody outside keeps killing it.
  case shot
  /// Runs to its end; the first runs may fail.
  case task
  /// Its executable is not there, and appears some day.
  case missing
  /// Good and bad by turns.
  case fickle
  /// Stops answering its watchdog now and then.
  case silent
  /// Ends cleanly although it should stay up.
  case endsCleanly
  /// Its checks fail from some time on.
  case unwellNowAndThen
  /// Its checks have never passed.
  case neverWell
}

/// Plugins that make a program die.
struct Guilt {
  var plugins: [String]
  /// Only all of them together do; else each of them alone.
  var together = false
  /// In how many of a thousand starts.
  var chance = 1000

  func acts(without disabled: [String]) -> Bool {
    let on = plugins.filter { !disabled.contains($0) }
    return together ? on.count == plugins.count : !on.isEmpty
  }

  static func make(of plugins: [String], dice: inout Dice) -> Guilt? {
    guard !plugins.isEmpty else { return nil }
    let first = dice.pick(plugins), second = dice.pick(plugins)
    var guilt = Guilt(plugins: [first])
    if second != first, dice.chance(300) {
      guilt.plugins.append(second)
      guilt.together = dice.chance(500)
    }
    if dice.chance(300) { guilt.chance = dice.pick([700, 900]) }
    return guilt
  }
}

/// What one run will do if it is left alone.
struct Course {
  /// From exec; nil: never.
  var readyAfter: Nanoseconds? = 100 * millisecond
  var endsAfter: Nanoseconds?
  var death = Death(.code(1))
  var ignoresTerm = false
  var leftovers = 0
  var leftoversIgnoreTerm = false
  /// The watchdog is answered until then; nil: for ever.
  var silentAfter: Nanoseconds?
  /// Its checks see it well until then; nil: for ever.
  var unwellAfter: Nanoseconds?
}

/// A simulated program: what it is like now, and what every next run of it does.
struct Program {
  var behaviour: Behaviour
  /// Which of its plugins are to blame; nil: none.
  var guilt: Guilt?
  /// The hook whose success cures it.
  var cure = 0
  var repaired = false
  var runs = 0
  /// Nil: the executable is not there.
  var executable: FileIdentity?

  private static let crashes: [Death] = [
    Death(.code(1)), Death(.code(2)), Death(.signal(.segv, core: true)), Death(.signal(.abrt, core: true)),
    Death(.signal(.ill, core: false)), Death(.signal(.bus, core: false)), Death(.signal(.fpe, core: false)),
  ]

  mutating func nextCourse(disabled: [String], dice: inout Dice) -> Course {
    runs += 1
    var course = Course()
    course.readyAfter = dice.time(20 * millisecond, 500 * millisecond)
    func crash(within: Nanoseconds = 2 * second) -> Course {
      var bad = course
      bad.endsAfter = dice.time(5 * millisecond, within)
      bad.death = dice.pick(Self.crashes)
      return bad
    }
    switch behaviour {
    case .healthy: return course
    case .needsRepair: return repaired ? course : crash()
    case .badPlugin:
      guard let guilt, guilt.acts(without: disabled), dice.chance(guilt.chance) else { return course }
      return crash()
    case .crashesForEver: return crash()
    case .slow:
      course.readyAfter = dice.time(5 * second, 14 * second)
      if dice.chance(100) { return crash(within: 20 * second) }
      return course
    case .diesNowAndThen:
      course.endsAfter = dice.gap(mean: 25 * minute)
      course.death = dice.pick(Self.crashes)
    case .diesEveryTwoMinutes:
      course.endsAfter = 2 * minute + dice.time(0, second)
      course.death = dice.pick(Self.crashes)
    case .neverReady: course.readyAfter = nil
    case .ignoresTerm:
      course.ignoresTerm = true
      if dice.chance(300) { course.endsAfter = dice.gap(mean: 20 * minute) }
    case .leavesLeftovers:
      course.endsAfter = dice.chance(500) ? dice.time(millisecond, 5 * second) : dice.gap(mean: 15 * minute)
      course.leftovers = 1 + dice.below(3)
      course.leftoversIgnoreTerm = dice.chance(500)
      course.death.leftovers = course.leftovers
    case .exits127:
      course.endsAfter = dice.time(millisecond, 20 * millisecond)
      course.death = Death(.code(127))
    case .exits78:
      if repaired { return course }
      course.endsAfter = dice.time(millisecond, 20 * millisecond)
      course.death = Death(.code(78))
    case .exitsFatally:
      course.endsAfter = dice.time(millisecond, second)
      course.death = Death(.code(fatalCode))
    case .outOfMemory:
      course.endsAfter = dice.time(second, 30 * second)
      course.death = Death(.signal(.kill, core: false), oom: dice.chance(500) ? .certain : .perhaps)
    case .shot: return course
    case .task:
      course.endsAfter = dice.time(second, 60 * second)
      course.death = Death(.code(runs <= cure || dice.chance(30) ? 1 : 0))
    case .missing: return course
    case .fickle:
      if dice.chance(600) { return crash(within: 15 * second) }
      if dice.chance(500) {
        course.endsAfter = dice.gap(mean: 5 * minute)
        course.death = dice.chance(100) ? Death(.unseen) : dice.pick(Self.crashes)
        course.death.traced = dice.chance(50)
      }
    case .unwellNowAndThen: if dice.chance(700) { course.unwellAfter = dice.gap(mean: 4 * minute) }
    case .neverWell: course.unwellAfter = 0
    case .silent: if dice.chance(500) { course.silentAfter = dice.gap(mean: 10 * minute) }
    case .endsCleanly:
      course.endsAfter = dice.chance(700) ? dice.time(millisecond, 3 * second) : dice.gap(mean: 10 * minute)
      course.death = Death(.code(0))
      if dice.chance(200) {
        course.leftovers = 1
        course.death.leftovers = 1
      }
    }
    return course
  }

  /// When the world calms down, what was fickle becomes good or bad for good, so that an end can be asked for.
  mutating func calmDown(dice: inout Dice) {
    switch behaviour {
    case .healthy, .needsRepair, .badPlugin, .crashesForEver, .neverReady, .exits127, .exits78, .exitsFatally,
      .outOfMemory, .task, .missing, .neverWell:
      break
    case .slow, .diesNowAndThen, .ignoresTerm, .leavesLeftovers, .shot, .silent, .unwellNowAndThen: behaviour = .healthy
    case .diesEveryTwoMinutes, .fickle, .endsCleanly: behaviour = dice.chance(500) ? .healthy : .crashesForEver
    }
    if behaviour == .task { cure = 0 }
    guilt?.chance = 1000
  }
}

/// Some of the simulated services may have what surrounds them changed. By their numbers, so that no dice are rolled for it.
enum Mitigated {
  static func mode(_ number: Int) -> MitigationMode { number % 7 == 3 ? .auto : .off }
  /// What the evidence makes of their SIGSEGV.
  static func crashClass(_ number: Int) -> CrashClass { [.wild, .stack, .null, .wild][number / 7 % 4] }
  /// Whether a run that would die of SIGSEGV lives with it.
  static func helps(_ mitigation: Mitigation, _ number: Int) -> Bool {
    switch mitigation {
    case .largerStack, .immediateBinding: number % 2 == 0
    case .zeroedMemory: number % 3 == 0
    case .singleCPU: false
    }
  }
}

/// In `fatal-exit` of every simulated definition that has one.
let fatalCode: Int32 = 99

/// Definitions for the behaviours, with numbers drawn so that every rule meets short and long, many and none.
struct SpecMaker {
  static func make(number: Int, behaviour: Behaviour, dice: inout Dice) -> ServiceSpec? {
    guard let name = ServiceName("s\(number)") else { return nil }
    var spec = ServiceSpec(name: name, process: ProcessSpec(command: ["/bin/program\(number)"]))
    spec.startupWindow = .seconds(dice.pick([10, 20, 60]))
    spec.startTimeout = .seconds(dice.pick([15, 20, 30]))
    spec.ready = behaviour == .neverReady || dice.chance(400) ? .notify : .none
    spec.stop.timeout = .seconds(dice.pick([1, 5, 10]))
    if dice.chance(300) { spec.stop.leftovers = .term }
    if dice.chance(200) { spec.stop.signal = .int }
    if dice.chance(250) { spec.stop.then = [StopStep(signal: .quit, timeout: .seconds(dice.pick([1, 3])))] }
    switch dice.below(4) {
    case 0:
      spec.backoff.first = .seconds(1)
      spec.backoff.factor = 1.5
    case 1:
      spec.backoff.first = .zero
    case 2:
      spec.backoff.first = .seconds(4)
      spec.backoff.max = .seconds(20)
      spec.backoff.jitter = 0.5
    default: break
    }
    if dice.chance(250) {
      spec.escalation.restart = 1 + dice.below(5)
      spec.escalation.repair = 1 + dice.below(3)
      spec.escalation.safeMode = 1 + dice.below(3)
      spec.escalation.deescalateAfter = .seconds(dice.pick([600, 1800]))
    }
    if dice.chance(30) { spec.escalation.enabled = false }
    if dice.chance(200) {
      spec.late.budget = dice.below(4)
      spec.late.within = .seconds(1800)
    }
    switch dice.below(5) {
    case 0: spec.restart = .onCrash
    case 1 where dice.chance(300): spec.restart = .never
    default: break
    }
    if behaviour == .task {
      spec.kind = .task
      spec.ready = .none
      spec.restart = dice.chance(300) ? .always : .onCrash
      spec.backoff.first = .seconds(5)  // the pace of an `always` task; a faster one only costs time
    }
    if behaviour == .exitsFatally || dice.chance(100) { spec.fatalExit = [fatalCode] }
    if dice.chance(30) { spec.successExit = [0, 2] }
    if behaviour == .silent {
      spec.watchdog = .seconds(30)
      spec.ready = .notify
    }
    switch dice.below(3) {
    case 0: spec.reload = .signal(.hup)
    case 1: spec.reload = .command(["/bin/reload"])
    default: break
    }
    if [.unwellNowAndThen, .neverWell].contains(behaviour) || behaviour != .task && dice.chance(200) {
      for index in 0..<(1 + dice.below(2)) {
        var check = CheckSpec(name: "check\(index)", kind: .exec(["/bin/check"]))
        check.every = .seconds(dice.pick([5, 10, 30]))
        check.failures = 1 + dice.below(3)
        check.successes = 1 + dice.below(2)
        spec.checks.append(check)
      }
      if spec.ready == .none, dice.chance(500) { spec.ready = .check }
    }
    let repairs = [.needsRepair, .exits78].contains(behaviour) ? 1 + dice.below(2) : dice.below(3)
    for index in 0..<repairs {
      let kinds: [RepairSpec.Kind] = [
        .moveAside("/var/cache/\(index)"), .restore(["/etc/s\(number)", "/etc/s\(number).\(index)"]),
        .run(["/bin/repair"]), .run(["/bin/repair"]),
      ]
      var repair = RepairSpec(name: "repair\(index)", kind: dice.pick(kinds))
      repair.timeout = .seconds(dice.pick([5, 20]))
      if dice.chance(150) { repair.atMost = RunLimit(times: 2, within: .seconds(3600)) }
      if dice.chance(150) { repair.fromAttempt = 2 }
      if dice.chance(100) { repair.on = [.signal(.segv), .exit(1), .cause("oom"), .crashClass(.config)] }
      spec.repairs.append(repair)
    }
    let plugins = behaviour == .badPlugin ? 1 + dice.below(6) : dice.below(3)
    for index in 0..<plugins {
      var plugin = PluginSpec(name: "plugin\(index)")
      plugin.environment = [EnvironmentVariable("PLUGIN\(index)", "off")]
      spec.process.plugins.append(plugin)
    }
    // By the number: the dice of all others fall as ever.
    if number % 5 == 3 {
      var plugin = PluginSpec(name: World.configPlugin)
      plugin.goodCopy = [World.configFile]
      spec.process.plugins.append(plugin)
    }
    if number % 5 == 2, !spec.process.plugins.isEmpty {
      spec.process.pluginDirectory = PluginDirectory(path: World.pluginDirectory)
    }
    if number % 3 == 1 { spec.plugins.acknowledge = .status("safe") }
    if number % 4 == 0, let group = World.group { spec.groups = [group] }
    if dice.chance(150) { spec.process.beforeStart = ["/bin/prepare"] }
    spec.plugins.retryAfter = .seconds(dice.pick([900, 3600, 86400]))
    switch dice.below(8) {
    case 0: spec.plugins.search = .off
    case 1: spec.plugins.search = .suggest
    default: break
    }
    switch dice.below(6) {
    case 0: spec.plugins.when = .daily(from: 0, to: 720)
    case 1: spec.plugins.when = .daily(from: 1200, to: 300)
    case 2: spec.plugins.when = .idle
    default: break
    }
    switch dice.below(4) {
    case 0: spec.quarantine.retryAfter = .seconds(120)
    case 1 where dice.chance(300): spec.quarantine.retryAfter = nil
    default: break
    }
    if dice.chance(30) { spec.mode = .observe }
    if spec.mode == .observe || !spec.escalation.enabled {  // restarts for ever: at a pace
      spec.backoff.first = .seconds(1)
      spec.backoff.factor = 3
    }
    spec.mitigate = Mitigated.mode(number)
    if dice.chance(50) { spec.start = .manual }
    if dice.chance(200) { spec.notices = [.onCrash: ["/bin/notice"], .onQuarantine: ["/bin/notice"]] }
    return spec
  }
}
