/// One command of an `Exec…=` line.
struct UnitCommand {
  /// Of `-@:+!|`, those before the path.
  var prefixes: Set<Character> = []
  /// The program and its arguments, specifiers expanded, variables not.
  var words: [String]

  /// The commands of one line, which semicolons of their own separate.
  ///
  /// - Throws: Why it cannot be understood.
  static func parse(_ value: String, _ specifiers: Specifiers) throws(UnitFault) -> [UnitCommand] {
    let words = try Words.systemd(value)
    var commands: [UnitCommand] = []
    for part in words.split(separator: ";") {
      var command = UnitCommand(words: [])
      var rest = part.map { $0 == "\\;" ? ";" : $0 }
      if let first = rest.first {
        let bare = first.drop { "-@:+!|".contains($0) }
        command.prefixes = Set(first.prefix(first.count - bare.count))
        rest[0] = String(bare)
      }
      for word in rest {
        let (text, unknown) = specifiers.expand(word)
        guard let text else { throw UnitFault("\(unknown) is not known here") }
        command.words.append(text)
      }
      // The second word is the name that the program is to see, and no argument.
      if command.prefixes.contains("@"), command.words.count > 1 { command.words.remove(at: 1) }
      if command.words.first?.isEmpty == false { commands.append(command) }
    }
    if commands.isEmpty { throw UnitFault("there is no command") }
    return commands
  }

  private enum Piece {
    case literal(String)
    /// The value as one word, or part of one.
    case value(String)
    /// As many words as the value has.
    case words(String)
  }

  private static func isName(_ text: some StringProtocol) -> Bool {
    guard let first = text.utf8.first, !(0x30...0x39).contains(first) else { return false }
    return text.utf8.allSatisfy { (0x41...0x5a).contains($0 & 0xdf) || (0x30...0x39).contains($0) || $0 == 0x5f }
  }

  /// Source: systemd.service(5): `$FOO` as a word of its own, `${FOO}` anywhere, `$$` for a dollar sign.
  private func pieces(_ word: String) -> [Piece] {
    if prefixes.contains(":") { return [.literal(word)] }
    if word.hasPrefix("$"), Self.isName(word.dropFirst()) { return [.words(String(word.dropFirst()))] }
    var pieces: [Piece] = [], literal = "", rest = Substring(word)
    while let character = rest.popFirst() {
      guard character == "$" else {
        literal.append(character)
        continue
      }
      if rest.first == "$" {
        literal.append("$")
        rest.removeFirst()
      } else if rest.first == "{", let close = rest.firstIndex(of: "}"),
        Self.isName(rest[rest.index(after: rest.startIndex)..<close])
      {
        pieces.append(.literal(literal))
        literal = ""
        pieces.append(.value(String(rest[rest.index(after: rest.startIndex)..<close])))
        rest = rest[rest.index(after: close)...]
      } else {
        literal.append("$")
      }
    }
    return pieces + [.literal(literal)]
  }

  /// The variables that it takes its arguments from.
  var variables: [String] {
    words.dropFirst().flatMap(pieces).compactMap { piece in
      switch piece {
      case .literal: nil
      case .value(let name), .words(let name): name
      }
    }
  }

  /// With the values put in; nil where one of them is not in `environment`.
  func expanded(_ environment: [String: String]) -> [String]? {
    var result = Array(words.prefix(1))
    for word in words.dropFirst() {
      var text = "", isWord = true
      for piece in pieces(word) {
        switch piece {
        case .literal(let literal): text += literal
        case .value(let name):
          guard let value = environment[name] else { return nil }
          text += value
        case .words(let name):
          guard let value = environment[name] else { return nil }
          result += (try? Words.systemd(value)) ?? [value]
          isWord = false
        }
      }
      if isWord { result.append(text) }
    }
    return result
  }

  /// As a shell would have to be told.
  var shell: String {
    let arguments = words.dropFirst().map { word in
      let text = pieces(word).map { piece in
        switch piece {
        case .literal(let text): text.isEmpty ? "" : Words.quoted(text)
        case .value(let name): "\"${\(name)}\""
        case .words(let name): "$\(name)"
        }
      }.joined()
      return text.isEmpty ? "''" : text
    }
    return ([Words.quoted(words.first ?? "")] + arguments).joined(separator: " ")
  }

  /// `kill -HUP $MAINPID`: the signal, as guardian writes it.
  var signalToMain: String? {
    guard let program = words.first?.split(separator: "/").last, program == "kill" else { return nil }
    var arguments = Array(words.dropFirst())
    guard let target = arguments.popLast(), target == "$MAINPID" || target == "${MAINPID}" else { return nil }
    if arguments.last == "--" { arguments.removeLast() }
    switch arguments.count {
    case 0: return "TERM"
    case 1 where arguments[0].hasPrefix("-"): return UnitValues.signal(String(arguments[0].drop { $0 == "-" }))
    case 2 where arguments[0] == "-s" || arguments[0] == "-n" || arguments[0] == "--signal":
      return UnitValues.signal(arguments[1])
    default: return nil
    }
  }
}

struct UnitFault: Error, Hashable {
  var why: String
  init(_ why: String) { self.why = why }
}
