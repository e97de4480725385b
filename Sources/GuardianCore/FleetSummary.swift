package import GuardianModel

/// What a service counts as in the line about all of them.
///
/// The fleet keeps one for each: the line is asked for with every answer to guardianctl, and a look at ten thousand
/// machines would cost more than all the rest of the answer.
struct Tally: Hashable, Sendable {
  enum Word: UInt8, CaseIterable, Sendable {
    case settled, degraded, running, starting, waiting, backingOff, repairing, stopping, quarantined, crashed, finished
    case stopped
  }
  var word: Word
  var held: Bool
  var waitsForOthers: Bool
  /// When its run was started, for a daemon that has settled and of which a table has nothing else to say.
  var wellSince: Instant?
}

extension Tally.Word {
  var text: String {
    switch self {
    case .settled: "settled"
    case .degraded: "degraded"
    case .running: "running"
    case .starting: "starting"
    case .waiting: "waiting"
    case .backingOff: "backing-off"
    case .repairing: "repairing"
    case .stopping: "stopping"
    case .quarantined: "quarantined"
    case .crashed: "crashed"
    case .finished: "finished"
    case .stopped: "stopped"
    }
  }
}

extension ServiceMachine {
  var tally: Tally {
    let word: Tally.Word =
      switch phase {
      case .stopped: .stopped
      case .finished: finishedBadly ? .crashed : .finished
      case .waiting: .waiting
      case .starting: .starting
      case .running(let run): isDegraded(run) || run.mitigation != nil ? .degraded : run.settled ? .settled : .running
      case .backingOff: .backingOff
      case .repairing: isPreparing ? .starting : .repairing
      case .stopping: .stopping
      case .quarantined: .quarantined
      }
    return Tally(
      word: word, held: held, waitsForOthers: word == .waiting && waitsForOthers && obstacle != nil,
      wellSince: wellSince)
  }

  private var wellSince: Instant? {
    guard case .running(let run) = phase, run.settled, run.disabled.isEmpty, run.mitigation == nil,
      record.wanted == .up, record.step == .restart, record.strikes == 0, !held, spec.kind == .daemon,
      spec.mode == .enforce,
      reload == nil, run.settlesAt == nil, run.deescalatesAt == nil
    else { return nil }
    return run.startedAt
  }
}

extension FleetSummary {
  mutating func count(_ tally: Tally) {
    total += 1
    switch tally.word {
    case .settled: settled += 1
    case .degraded: degraded += 1
    case .running: running += 1
    case .starting: starting += 1
    case .waiting: waiting += 1
    case .backingOff: backingOff += 1
    case .repairing: repairing += 1
    case .stopping: stopping += 1
    case .quarantined: quarantined += 1
    case .crashed:
      finished += 1
      crashed += 1
    case .finished: finished += 1
    case .stopped: stopped += 1
    }
    if tally.held { held += 1 }
  }
}

extension FleetSummary {
  /// `12 services: 10 settled, 1 repairing (web), 1 quarantined (mailer)`, for STATUS= and the head of `status`.
  package var line: String {
    var parts: [String] = []
    func add(_ count: Int, _ word: String, named: Bool = true) {
      guard count > 0 else { return }
      var part = "\(count) \(word)"
      let known = names[word] ?? []
      if named, !known.isEmpty {
        part += " (" + known.prefix(3).joined(separator: ", ") + (count > min(3, known.count) ? ", …" : "") + ")"
      }
      parts.append(part)
    }
    add(settled, "settled", named: false)
    add(degraded, "degraded")
    add(running, "running")
    add(starting, "starting")
    add(waiting, "waiting")
    add(backingOff, "backing-off")
    add(repairing, "repairing")
    add(stopping, "stopping")
    add(quarantined, "quarantined")
    add(crashed, "crashed")
    add(finished - crashed, "finished", named: false)
    add(stopped, "stopped", named: false)
    add(held, "held")
    let head = total == 1 ? "1 service" : "\(total) services"
    return parts.isEmpty ? head : head + ": " + parts.joined(separator: ", ")
  }
}
