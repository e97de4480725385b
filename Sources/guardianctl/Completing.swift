import Glibc
import GuardianControl
import GuardianModel

/// `guardianctl completion words WORD…`: what may stand next, for the shells' scripts. Quick, and silent whatever happens.
enum Completing {
  /// Milliseconds for all that guardian is asked.
  private static let patience: Int32 = 1

  static func isAsked(_ arguments: [String]) -> Bool { arguments.starts(with: ["completion", "words"]) }

  static func lines(_ line: [String]) -> String {
    let completion = Completion(line)
    return completion.lines(completion.asked.flatMap { answer($0, completion) })
  }

  private static func answer(_ asked: Completion.Asked, _ completion: Completion) -> [Candidate] {
    switch asked {
    case .files, .directories: return []
    case .services:
      // Groups are written with their sign, so that nobody who writes one waits for the names.
      if completion.begun.hasPrefix("@") { return [] }
      return services(nil, brief: true, completion).map { Candidate($0.name, $0.description) }
    case .groups:
      let isOption = !completion.prefix.isEmpty || !completion.asked.contains(.services)
      guard isOption || completion.begun.hasPrefix("@") || completion.begun.isEmpty else { return [] }
      var members: [String: Int] = [:]
      for service in services(nil, brief: false, completion) {
        for group in service.groups { members[group, default: 0] += 1 }
      }
      return members.sorted { $0.key < $1.key }.map { group, count in
        Candidate((isOption ? "" : "@") + group, counted(count, "service"))
      }
    case .plugins(let name):
      return services([name], brief: false, completion).flatMap(\.plugins).map { Candidate($0.name) }
    case .repairs(let name):
      return services([name], brief: false, completion).flatMap(\.repairs).map { Candidate($0) }
    case .crashes:
      let request = ControlRequest.crashes(name: nil)
      guard let daemon = try? Daemon.connect(to: completion.target), (try? daemon.send([ControlCall(request)])) != nil,
        case .crashes(let list)? = try? daemon.reply(to: request, patience: patience)
      else { return [] }
      return list.map { Candidate(String($0.id.description.prefix(12)), $0.service) }
    case .keys:
      guard let path = GuardianProgram.find(), let told = GuardianProgram.run(path, ["--explain"]), told.status == 0
      else { return [] }
      return String(decoding: told.output, as: UTF8.self).split(separator: "\n").compactMap { line in
        guard line.hasPrefix("  "), !line.hasPrefix("   ") else { return nil }
        let key = line.dropFirst(2).prefix { $0 != " " }
        return Candidate(String(key), String(line.dropFirst(2 + key.count).drop { $0 == " " }))
      }
    }
  }

  private static func services(_ names: [String]?, brief: Bool, _ completion: Completion) -> [ServiceStatus] {
    let list = ControlRequest.list(names: names, brief: brief)
    var found: [ServiceStatus] = []
    guard let daemon = try? Daemon.connect(to: completion.target),
      (try? daemon.send([ControlCall(list, more: true)])) != nil
    else { return [] }
    try? daemon.replies(to: list, patience: patience) { body in
      if case .services(let chunk, _) = body { found += chunk }
    }
    return found
  }
}
