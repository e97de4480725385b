import GuardianModel
import GuardianSim

struct UsageError: Error {
  /// Without what a terminal would obey: words of the command line are in it.
  var text: String
  init(text: String) {
    self.text = text.unicodeScalars.map { scalar in
      switch scalar.properties.generalCategory {
      case .control, .format, .lineSeparator, .paragraphSeparator: scalar.escaped(asASCII: true)
      default: String(scalar)
      }
    }.joined()
  }
}

/// What was asked for on the command line. Everything that shapes a world is printed, so that it can be had again.
struct Options {
  var seeds: ClosedRange<UInt64> = 1...8
  var services = 1000
  /// Virtual hours under faults.
  var hours = 2.0
  var jobs = 1
  var verbose = false
  var help = false
  var bug: PlantedBug?
  /// Walk over this many states of one machine instead of running worlds.
  var walk: Int?
  /// Play this many incidents of the search for culprits instead.
  var search: Int?

  static let usage = """
    usage: guardian-sim [--seed N | --seeds A..B] [--services N] [--hours H] [--jobs N] [--bug NAME] [--verbose]
           guardian-sim --walk N
           guardian-sim --search N [--seed N]
    Runs fleets in virtual time, one for each seed: H hours under faults and orders, then quiet until all have settled,
    then a shutdown. Exit 0: no rule was broken; 1: one was, and its story is told; 64: usage.
    --walk N looks at N states of one machine instead, breadth first, and at all that can happen in each.
    --search N plays N incidents of the search for guilty plugins instead, beside simpler ways, and prints what they cost.
    --bug plants one of: \(PlantedBug.allCases.map(\.rawValue).joined(separator: ", "))
    """

  init(arguments: [String]) throws(UsageError) {
    var rest = arguments[...]
    func number(_ text: String, _ name: String, _ most: UInt64) throws(UsageError) -> UInt64 {
      guard let value = UInt64(text), value <= most else {
        throw UsageError(text: "\(name) takes a number up to \(most), not '\(text)'")
      }
      return value
    }
    while let option = rest.popFirst() {
      func value() throws(UsageError) -> String {
        guard let text = rest.popFirst() else { throw UsageError(text: "\(option) takes a value") }
        return text
      }
      switch option {
      case "--seed":
        let seed = try number(try value(), option, .max)
        seeds = seed...seed
      case "--seeds":
        let text = try value()
        guard let dots = text.firstRange(of: ".."), let first = UInt64(text[..<dots.lowerBound]),
          let last = UInt64(text[dots.upperBound...]), first <= last
        else { throw UsageError(text: "--seeds takes a range like 1..64, not '\(text)'") }
        guard last - first < 1_000_000 else { throw UsageError(text: "at most a million seeds at a time") }
        seeds = first...last
      case "--services": services = Int(try number(try value(), option, 100_000))
      case "--hours":
        let text = try value()
        guard let hours = Double(text), hours > 0, hours <= 10_000 else {
          throw UsageError(text: "--hours takes a number up to 10000, not '\(text)'")
        }
        self.hours = hours
      case "--jobs": jobs = max(1, Int(try number(try value(), option, 256)))
      case "--bug":
        let text = try value()
        guard let bug = PlantedBug(rawValue: text) else { throw UsageError(text: "no planted bug '\(text)'") }
        self.bug = bug
      case "--walk": walk = Int(try number(try value(), option, 10_000_000))
      case "--search": search = Int(try number(try value(), option, 10_000_000))
      case "--verbose", "-v": verbose = true
      case "--help", "-h": help = true
      default: throw UsageError(text: "unknown option '\(option)'")
      }
    }
  }

  var description: String {
    "seeds \(seeds.lowerBound)..\(seeds.upperBound), \(services) services, \(hours) virtual hours under faults, "
      + "\(jobs) jobs" + (bug.map { ", planted: \($0.rawValue)" } ?? "")
  }
  func replay(_ seed: UInt64) -> String {
    "--seed \(seed) --services \(services) --hours \(hours)" + (bug.map { " --bug \($0.rawValue)" } ?? "")
  }

  func drive(_ world: inout World) throws(Violation) {
    try world.run(for: .milliseconds(Int64(hours * 3_600_000)))
    world.stopFaults()
    try world.run(for: world.settlingBound)
    try world.checkSettled()
    try world.checkStatus()
    try world.shutDown()
  }
}
