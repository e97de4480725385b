import Glibc
import GuardianCore
import GuardianLinux
import GuardianModel

/// What a child finds in its environment: the base of its user, the files, the definition, and what guardian has to say.
/// Nothing else; later entries win.
///
/// - PATH is the same for all, HOME USER LOGNAME SHELL are those of the user, LANG is guardian's own or C.UTF-8.
/// - `environment-file:` in order, then `environment:`, then what each disabled plugin makes of them.
/// - INVOCATION_ID, GUARDIAN_MODE, GUARDIAN_DISABLED_PLUGINS (names, separated by one space; empty: all on), and where
///   they apply NOTIFY_SOCKET, WATCHDOG_USEC, JOURNAL_STREAM.
struct ChildEnvironment {
  /// Nil: taken out again.
  private var values: [(name: String, value: String?)] = []
  /// Where each name stands, once there are more than are quickly looked through: made at every start.
  private var places: [String: Int] = [:]
  private static let few = 32

  static let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

  init(user: Identity, language: String?) {
    self["PATH"] = Self.path
    self["HOME"] = user.home
    self["USER"] = user.user
    self["LOGNAME"] = user.user
    self["SHELL"] = user.shell
    self["LANG"] = language ?? "C.UTF-8"
  }

  subscript(name: String) -> String? {
    get { place(of: name).flatMap { values[$0].value } }
    set {
      guard let newValue else { return }
      if let place = place(of: name) {
        values[place].value = newValue
        return
      }
      values.append((name, newValue))
      if values.count == Self.few + 1 {
        for (place, entry) in values.enumerated() { places[entry.name] = place }
      } else if values.count > Self.few {
        places[name] = values.count - 1
      }
    }
  }

  private func place(of name: String) -> Int? {
    values.count > Self.few ? places[name] : values.firstIndex { $0.name == name }
  }

  mutating func add(_ variables: [EnvironmentVariable]) { for v in variables { self[v.name] = v.value } }

  private mutating func remove(_ name: String) { if let place = place(of: name) { values[place].value = nil } }

  /// What these make of it, one after the other: each finds what those before it have left, and sets last what it sets.
  mutating func switchOff(_ plugins: [PluginSpec]) {
    for plugin in plugins {
      for name in plugin.unset { remove(name) }
      for removal in plugin.removeFrom {
        guard case .variable(let name) = removal.list, let value = self[name] else { continue }
        self[name] = removal.applied(to: value)
      }
      for library in plugin.preload {
        guard let value = self["LD_PRELOAD"] else { break }
        let rest = preload(value, without: library)
        if rest.isEmpty { remove("LD_PRELOAD") } else { self["LD_PRELOAD"] = rest }
      }
      add(plugin.environment)
    }
  }

  /// What tells a run what it is.
  ///
  /// - Parameter off: The plugins that are.
  mutating func describe(_ request: StartRequest, off: [PluginSpec]) {
    self["INVOCATION_ID"] = request.run.description
    self["GUARDIAN_MODE"] = request.mode
    self["GUARDIAN_DISABLED_PLUGINS"] = off.map(\.name).joined(separator: " ")
  }

  /// What tells a hook why it runs.
  mutating func describe(_ request: HookRequest) {
    let context = request.context
    self["INVOCATION_ID"] = request.id.description
    self["GUARDIAN_SERVICE"] = context.service.text
    self["GUARDIAN_STEP"] = context.step.rawValue
    self["GUARDIAN_ATTEMPT"] = String(context.attempt)
    self["GUARDIAN_STRIKES"] = String(context.strikes)
    self["GUARDIAN_HOOK"] = request.purpose.name
    self["GUARDIAN_REASON"] = printable(context.reason, atMost: 1024)
    if case .notice = request.purpose { self["GUARDIAN_SUPPRESSED"] = String(context.suppressed) }
    if let pid = context.mainPid { self["MAINPID"] = String(pid) }
    guard let end = context.end else { return }
    self["GUARDIAN_CAUSE"] = end.cause.name
    self["GUARDIAN_RUN"] = end.run.description
    switch end.status {
    case .code(let code): self["GUARDIAN_EXIT_CODE"] = String(code)
    case .signal(let signal, _): self["GUARDIAN_SIGNAL"] = signal.description
    case .unseen: break
    }
  }

  /// Of what a definition sets, in order; the files are named by their paths. Values are nobody's business.
  static func names(_ spec: ServiceSpec) -> [String] {
    spec.process.environmentFiles.map(\.path) + spec.process.environment.map(\.name)
  }

  /// `NAME=value`, as execve(2) takes it. Values with a NUL cannot be passed and are left out.
  var strings: [String] {
    values.compactMap { name, value in
      guard let value, !value.utf8.contains(0), !name.utf8.contains(0) else { return nil }
      return "\(name)=\(value)"
    }
  }
}

/// `environment-file:`: lines of `NAME=value`; `#` and `;` begin comments; a value may stand in single quotes (all
/// literal) or double quotes (`\"`, `\\`, `\$` and `` \` `` lose their backslash); `export` before a name is skipped.
enum EnvironmentFileReader {
  /// A file beyond this is no environment.
  static let largest = 1 << 20

  /// May block: the worker's job.
  static func read(_ files: [EnvironmentFile]) -> Result<[EnvironmentVariable], SpawnFailure> {
    var all: [EnvironmentVariable] = []
    for file in files {
      var about = stat()
      guard stat(file.path, &about) == 0 else {
        let number = errno
        if file.optional && (number == ENOENT || number == ENOTDIR) { continue }
        return .failure(failure(number, file.path, "cannot read environment file \(file.path): \(reason(number))"))
      }
      guard about.st_mode & S_IFMT == S_IFREG, about.st_size <= largest else {
        return .failure(
          failure(EINVAL, file.path, "environment file \(file.path) is not a plain file of at most \(largest) bytes"))
      }
      guard let text = readWholeFile(file.path, atMost: largest) else {
        let number = errno
        return .failure(failure(number, file.path, "cannot read environment file \(file.path): \(reason(number))"))
      }
      switch parse(text) {
      case .success(let variables): all += variables
      case .failure(let fault):
        return .failure(failure(EINVAL, file.path, "environment file \(file.path):\(fault.line): \(fault.what)"))
      }
    }
    return .success(all)
  }

  struct Fault: Error, Hashable {
    var line: Int, what: String
  }

  static func parse(_ text: String) -> Result<[EnvironmentVariable], Fault> {
    var variables: [EnvironmentVariable] = []
    var number = 0
    // By bytes: CR LF is one Character, which is no "\n".
    for line in text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
      number += 1
      var rest = Substring(line).drop(while: isBlank)
      if let first = rest.first, first == "#" || first == ";" { continue }
      while let last = rest.last, isBlank(last) { rest.removeLast() }
      if rest.isEmpty { continue }
      if rest.hasPrefix("export ") { rest = rest.dropFirst(7).drop(while: isBlank) }
      guard let equals = rest.firstIndex(of: "=") else { return .failure(Fault(line: number, what: "no '=' in it")) }
      let name = rest[..<equals]
      guard let first = name.utf8.first, !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first),
        name.utf8.allSatisfy({ byte in
          (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
            || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || byte == UInt8(ascii: "_")
        })
      else {
        return .failure(Fault(line: number, what: "'\(printable(String(name), atMost: 64))' is no variable's name"))
      }
      guard let value = unquoted(rest[rest.index(after: equals)...]) else {
        return .failure(Fault(line: number, what: "a quote without its end"))
      }
      variables.append(EnvironmentVariable(String(name), value))
    }
    return .success(variables)
  }

  private static func isBlank(_ character: Character) -> Bool {
    character == " " || character == "\t" || character == "\r"
  }

  private static func unquoted(_ text: Substring) -> String? {
    guard let quote = text.first, quote == "\"" || quote == "'" else { return String(text) }
    guard text.count >= 2, text.last == quote else { return nil }
    let inner = text.dropFirst().dropLast()
    if quote == "'" { return String(inner) }
    var value = ""
    var escaped = false
    for character in inner {
      if escaped {
        if !"\"\\$`".contains(character) { value.append("\\") }
        value.append(character)
        escaped = false
      } else if character == "\\" {
        escaped = true
      } else {
        value.append(character)
      }
    }
    return escaped ? nil : value
  }

  private static func reason(_ number: Int32) -> String { ErrnoText.reason(number) }

  private static func failure(_ number: Int32, _ path: String, _ sentence: String) -> SpawnFailure {
    SpawnFailure(
      stage: .prepare, errno: number, target: path, sentence: sentence,
      ownTrouble: [EMFILE, ENFILE, ENOMEM, EAGAIN].contains(number))
  }
}

func readWholeFile(_ path: String, atMost limit: Int) -> String? {
  let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
  guard descriptor >= 0 else { return nil }
  defer { close(descriptor) }
  var bytes: [UInt8] = []
  var chunk = [UInt8](repeating: 0, count: 16_384)
  while bytes.count <= limit {
    let got = read(descriptor, &chunk, chunk.count)
    if got < 0 && errno == EINTR { continue }
    guard got >= 0 else { return nil }
    if got == 0 { return String(decoding: bytes, as: UTF8.self) }
    bytes += chunk[..<got]
  }
  errno = EFBIG
  return nil
}
