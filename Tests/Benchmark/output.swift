// output PROGRAMS BENCH [BYTES] : how fast one service's output comes to a rotated file, beside other ways, in turns.
//
// The same writer gives lines of 100 bytes, one by one or 64 KiB at a time, to: `cat > FILE`, which does the least that can
// be done; svlogd -tt and s6-log T, where there are any; and a service with `log: file` of guardian. Time is the writer's
// own, from its first write to its last; processor time is that of everybody who reads and writes, for each GB.

import Glibc

struct Figures {
  /// MB/s, and seconds of processor time for each GB: the writer's, and everybody else's.
  var speed: Double, writer: Double, reader: Double
}

private func childrenTime() -> Double {
  var usage = rusage()
  getrusage(RUSAGE_CHILDREN.rawValue, &usage)
  return Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
    + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6
}

private func figures(_ result: String, _ bytes: Int, reader: (Double) throws -> Double) throws -> Figures {
  let words = try text(result).split(whereSeparator: { $0 == " " || $0 == "\n" }).compactMap { Double($0) }
  guard words.count == 2 else { throw Failure("the writer has not told how it went: \(result)") }
  let size = Double(bytes) / 1e9
  return Figures(speed: size * 1000 / words[0], writer: words[1] / size, reader: try reader(words[1]) / size)
}

/// A pipeline of the writer and `reader`, a command of the shell.
private func pipeline(_ reader: String, _ mode: String, _ bytes: Int, _ place: Place) throws -> Figures {
  let home = place.scratch + "/pipeline", result = home + "/result"
  _ = try Program(["/bin/rm", "-rf", home]).wait()
  mkdir(home, 0o755)
  mkdir(home + "/log", 0o755)
  try write("s104857600\nn3\n", to: home + "/log/config")
  let before = childrenTime()
  let code = try Program(
    ["/bin/sh", "-c", "cd '\(home)' && '\(place.bench)/writer' \(mode) \(bytes) '\(result)' | \(reader)"], quiet: false
  ).wait()
  guard code == 0 else { throw Failure("\(reader) ended with \(code)") }
  return try figures(result, bytes) { childrenTime() - before - $0 }
}

private func service(_ mode: String, _ bytes: Int, _ place: Place) throws -> Figures {
  let home = place.scratch + "/guardian", result = home + "/result"
  _ = try Program(["/bin/rm", "-rf", home]).wait()
  for directory in ["", "/config", "/config/services", "/state", "/run", "/logs"] { mkdir(home + directory, 0o755) }
  try write("logs: {rotate: 100M, keep: 3}\n", to: home + "/config/guardian.yaml")
  try write(
    "command: [\(place.bench)/writer, \(mode), \"\(bytes)\", \(result)]\nlog: file\nrestart: never\ntype: task\n",
    to: home + "/config/services/writer.yaml")
  let guardian = try Program([
    "\(place.programs)/guardian", "--config", home + "/config", "--state", home + "/state", "--runtime", home + "/run",
    "--logs", home + "/logs",
  ])
  let deadline = now() + 120_000_000_000
  while (try? text(result))?.hasSuffix("\n") != true {
    guard now() < deadline else { throw Failure("the service has not written all within two minutes") }
    usleep(20_000)
  }
  // What is left in the pipe is next to nothing.
  usleep(200_000)
  let own = try text("/proc/\(guardian.pid)/task/\(guardian.pid)/children").split(separator: " ").compactMap {
    Int32($0)
  }
  guard let logger = own.first(where: { (try? text("/proc/\($0)/comm"))?.hasPrefix("guardian-logge") == true }) else {
    throw Failure("there is no guardian-logger")
  }
  let time = try text("/proc/\(logger)/schedstat").split(separator: " ").first.flatMap { Double($0) } ?? 0
  let answer = try figures(result, bytes) { _ in time / 1e9 }
  try guardian.end()
  return answer
}

@main struct Output {
  static func main() {
    let arguments = CommandLine.arguments
    guard arguments.count >= 3, let bytes = arguments.count > 3 ? Int(arguments[3]) : 1_000_000_000 else {
      let usage = "usage: output PROGRAMS BENCH [BYTES]\n"
      _ = Glibc.write(2, usage, usage.utf8.count)
      exit(64)
    }
    do { try inScratch(arguments[1], arguments[2]) { place, _ in try measure(bytes, place) } } catch { fail(error) }
  }

  static func measure(_ bytes: Int, _ place: Place) throws {
    func found(_ name: String) -> String? {
      let root = place.bench + "/../programs"
      return ["/usr/bin/", "/bin/", root + "/usr/bin/", root + "/bin/"].map { $0 + name }
        .first { access($0, X_OK) == 0 }
    }
    var ways: [(name: String, run: (String) throws -> Figures)] = [
      ("cat > FILE", { try pipeline("exec cat > out", $0, bytes, place) })
    ]
    if let svlogd = found("svlogd") {
      ways.append(("svlogd -tt", { try pipeline("exec '\(svlogd)' -tt log", $0, bytes, place) }))
    } else {
      print("svlogd: not shown, it is not there")
    }
    if let log = found("s6-log") {
      ways.append(
        (
          "s6-log T",
          { try pipeline("exec '\(log)' T s104857600 n3 '\(place.scratch)/pipeline/log'", $0, bytes, place) }
        ))
    } else {
      print("s6-log: not shown, it is not there")
    }
    ways.append(("guardian, log: file", { try service($0, bytes, place) }))
    print(
      "\n\(bytes / 1_000_000) MB of one service in lines of 100 bytes, to a rotated file; the median of three rounds")
    for (mode, what) in [("lines", "one by one"), ("blocks", "64 KiB at a time")] {
      print("\n" + pad(what, 24) + pad("MB/s", 12) + pad("of cat's", 12) + pad("CPU s/GB", 12) + "of it the reader")
      var floor = 0.0
      for way in ways {
        let rounds = try (0..<3).map { _ in try way.run(mode) }
        let speed = rounds.map(\.speed).median, reader = rounds.map(\.reader).median
        let all = rounds.map { $0.reader + $0.writer }.median
        if floor == 0 { floor = speed }
        print(
          pad(way.name, 24) + pad(show(speed, 0), 12) + pad(show(speed / floor), 12) + pad(show(all), 12) + show(reader)
        )
        fflush(nil)
      }
    }
  }
}
