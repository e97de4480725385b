/// Splits one line into words as a POSIX shell does, without there being a shell: what only a shell could do is refused.
enum ShellWords {
  struct Fault: Error, Hashable { var what: String, why: String }

  static let needsShell =
    "nothing expands it; for a shell write [/bin/sh, -c, \"…\"], for the character itself quote it"

  static func split(_ line: String) throws(Fault) -> [String] {
    var words: [String] = []
    var word = ""
    var inWord = false
    var scalars = Substring(line).unicodeScalars
    while let scalar = scalars.popFirst() {
      switch scalar {
      case " ", "\t":
        if inWord { words.append(word) }
        (word, inWord) = ("", false)
      case "\n", "\r":
        // The end of a block scalar is no second command.
        guard scalars.allSatisfy({ $0 == "\n" || $0 == "\r" || $0 == " " }) else {
          throw Fault(what: "a line break between words", why: "a shell would run two commands; \(needsShell)")
        }
      case "'":
        inWord = true
        var closed = false
        while let next = scalars.popFirst() {
          if next == "'" {
            closed = true
            break
          }
          word.unicodeScalars.append(next)
        }
        if !closed { throw Fault(what: "a ' that is not closed", why: "in a word on its own write \\'") }
      case "\"":
        inWord = true
        var closed = false
        while let next = scalars.popFirst() {
          if next == "\"" {
            closed = true
            break
          }
          if next == "$" || next == "`" { throw Fault(what: "'\(next)' in double quotes", why: needsShell) }
          guard next == "\\", let escaped = scalars.first else {
            word.unicodeScalars.append(next)
            continue
          }
          switch escaped {
          case "$", "`", "\"", "\\":
            word.unicodeScalars.append(escaped)
            scalars.removeFirst()
          case "\n": scalars.removeFirst()
          default: word.unicodeScalars.append(next)
          }
        }
        if !closed { throw Fault(what: "a \" that is not closed", why: "in a word on its own write \\\"") }
      case "\\":
        guard let escaped = scalars.popFirst() else { throw Fault(what: "a \\ at the end", why: "it quotes nothing") }
        if escaped == "\n" { continue }
        inWord = true
        word.unicodeScalars.append(escaped)
      case "$", "|", "&", ";", "<", ">", "*", "`", "(", ")":
        throw Fault(what: "an unquoted '\(scalar)'", why: needsShell)
      case "#" where !inWord, "~" where !inWord:
        throw Fault(what: "an unquoted '\(scalar)' at the start of a word", why: needsShell)
      default:
        inWord = true
        word.unicodeScalars.append(scalar)
      }
    }
    if inWord { words.append(word) }
    return words
  }
}
