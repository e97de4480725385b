package import GuardianModel

extension ServiceMachine {
  func count(into summary: inout FleetSummary) {
    summary.total += 1
    let word: String
    switch phase {
    case .stopped:
      summary.stopped += 1
      word = "stopped"
    case .finished:
      summary.finished += 1
      if finishedBadly { summary.crashed += 1 }
      word = finishedBadly ? "crashed" : "finished"
    case .waiting:
      summary.waiting += 1
      word = "waiting"
    case .starting:
      summary.starting += 1
      word = "starting"
    case .running(let run):
      if run.pluginsOff {
        summary.degraded += 1
        word = "degraded"
      } else if run.settled {
        summary.settled += 1
        word = "settled"
      } else {
        summary.running += 1
        word = "running"
      }
    case .backingOff:
      summary.backingOff += 1
      word = "backing-off"
    case .repairing where isPreparing:
      summary.starting += 1
      word = "starting"
    case .repairing:
      summary.repairing += 1
      word = "repairing"
    case .stopping:
      summary.stopping += 1
      word = "stopping"
    case .quarantined:
      summary.quarantined += 1
      word = "quarantined"
    }
    func name(_ word: String) {
      if summary.names[word, default: []].count < 4 { summary.names[word, default: []].append(spec.name.text) }
    }
    if case .waiting = phase, waitsForOthers, let obstacle {
      if summary.names[word, default: []].count < 4 {
        summary.names[word, default: []].append("\(spec.name) for \(obstacle.name)")
      }
    } else {
      name(word)
    }
    if held {
      summary.held += 1
      name("held")
    }
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
