import GuardianControl
import Glibc

/// Finds and runs the `guardian` program, for what needs no daemon.
enum GuardianProgram {
  /// Beside guardianctl's own executable, then the usual place, then PATH.
  static func find() -> String? {
    var candidates: [String] = []
    if let own = ownDirectory() { candidates.append(own + "/guardian") }
    candidates.append("/usr/bin/guardian")
    for directory in (variable("PATH") ?? "").split(separator: ":") where directory.hasPrefix("/") {
      candidates.append("\(directory)/guardian")
    }
    return candidates.first { access($0, X_OK) == 0 && isFile($0) }
  }

  private static func isFile(_ path: String) -> Bool {
    var information = stat()
    return stat(path, &information) == 0 && information.st_mode & S_IFMT == S_IFREG
  }

  private static func ownDirectory() -> String? {
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = buffer.withUnsafeMutableBytes { room in
      room.baseAddress.map { readlink("/proc/self/exe", $0.assumingMemoryBound(to: CChar.self), room.count) } ?? -1
    }
    guard count > 0, count < 4096 else { return nil }
    let path = buffer[..<count]
    guard let slash = path.lastIndex(of: UInt8(ascii: "/")) else { return nil }
    return String(decoding: path[..<slash], as: UTF8.self)
  }

  /// Becomes `guardian`; returns the errno only if that fails.
  static func become(_ path: String, _ arguments: [String]) -> Int32 {
    withArguments([path] + arguments) { list in
      execv(path, list)
      return errno
    }
  }

  /// Runs `guardian` and takes what it prints, at most 1 MiB; its standard error is ours.
  static func run(_ path: String, _ arguments: [String]) -> (status: Int32, output: [UInt8])? {
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0 else { return nil }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    defer { close(ends[0]) }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)
    var child: pid_t = 0
    let failure = withArguments([path] + arguments) { posix_spawn(&child, path, &actions, nil, $0, environ) }
    close(ends[1])
    guard failure == 0 else {
      errno = failure
      return nil
    }
    var output: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = read(ends[0], &buffer, buffer.count)
      if count > 0 {
        if output.count < 1 << 20 { output += buffer[..<count] }
      } else if count == 0 || errno != EINTR {
        break
      }
    }
    var status: Int32 = 0
    while waitpid(child, &status, 0) < 0, errno == EINTR {}
    let code = status & 0x7f == 0 ? (status >> 8) & 0xff : 128 + (status & 0x7f)
    return (code, output)
  }

  private static func withArguments<R>(
    _ arguments: [String], _ body: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> R
  ) -> R {
    let list = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>.allocate(capacity: arguments.count + 1)
    list.initialize(repeating: nil, count: arguments.count + 1)
    for (index, argument) in arguments.enumerated() { list[index] = strdup(argument) }
    defer {
      for index in arguments.indices { free(list[index]) }
      list.deallocate()
    }
    return body(list)
  }
}
