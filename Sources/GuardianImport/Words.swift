/// How other supervisors split a line into words.
enum Words {
  /// As systemd does: quotes anywhere in a word, C escapes outside and inside of them.
  ///
  /// - Returns: nil where a quote is not closed.
  /// - Source: systemd.service(5), "Command lines"; systemd.syntax(7), "Quoting".
  static func systemd(_ line: String) -> [String]? {
    var words: [String] = []
    var word = "", inWord = false
    var quote: Unicode.Scalar?
    var scalars = Substring(line).unicodeScalars
    while let scalar = scalars.popFirst() {
      if scalar == "\\" {
        inWord = true
        word += escape(&scalars)
      } else if let open = quote {
        if scalar == open { quote = nil } else { word.unicodeScalars.append(scalar) }
      } else if scalar == "'" || scalar == "\"" {
        inWord = true
        quote = scalar
      } else if scalar == " " || scalar == "\t" || scalar == "\n" || scalar == "\r" {
        if inWord { words.append(word) }
        (word, inWord) = ("", false)
      } else {
        inWord = true
        word.unicodeScalars.append(scalar)
      }
    }
    if quote != nil { return nil }
    if inWord { words.append(word) }
    return words
  }

  /// What stands behind a backslash. What is no escape keeps its backslash.
  private static func escape(_ scalars: inout Substring.UnicodeScalarView) -> String {
    guard let kind = scalars.popFirst() else { return "\\" }
    switch kind {
    case "a": return "\u{07}"
    case "b": return "\u{08}"
    case "f": return "\u{0c}"
    case "n": return "\n"
    case "r": return "\r"
    case "t": return "\t"
    case "v": return "\u{0b}"
    case "s": return " "
    case "\\", "\"", "'": return String(Character(kind))
    case "x": return number(&scalars, digits: 2, radix: 16) ?? "\\x"
    case "u": return number(&scalars, digits: 4, radix: 16) ?? "\\u"
    case "U": return number(&scalars, digits: 8, radix: 16) ?? "\\U"
    case "0"..."7":
      var rest = Substring(String(Character(kind)) + String(scalars.prefix(2))).unicodeScalars
      guard let text = number(&rest, digits: 3, radix: 8) else { return "\\" + String(Character(kind)) }
      scalars.removeFirst(2)
      return text
    default: return "\\" + String(Character(kind))
    }
  }

  private static func number(_ scalars: inout Substring.UnicodeScalarView, digits: Int, radix: Int) -> String? {
    let text = String(scalars.prefix(digits))
    guard text.utf8.count == digits, text.utf8.allSatisfy({ $0 != UInt8(ascii: "+") && $0 != UInt8(ascii: "-") }),
      let value = UInt32(text, radix: radix), value != 0, let scalar = Unicode.Scalar(value)
    else { return nil }
    scalars.removeFirst(digits)
    return String(Character(scalar))
  }

  /// As a POSIX shell does where nothing is expanded, which is how supervisord does it too.
  ///
  /// - Returns: nil where a quote is not closed.
  static func shell(_ line: String) -> [String]? {
    var words: [String] = []
    var word = "", inWord = false
    var quote: Unicode.Scalar?
    var scalars = Substring(line).unicodeScalars
    while let scalar = scalars.popFirst() {
      if let open = quote {
        if scalar == open {
          quote = nil
        } else if scalar == "\\", open == "\"", let next = scalars.first, "\"\\$`".unicodeScalars.contains(next) {
          word.unicodeScalars.append(next)
          scalars.removeFirst()
        } else {
          word.unicodeScalars.append(scalar)
        }
        continue
      }
      switch scalar {
      case "'", "\"":
        inWord = true
        quote = scalar
      case "\\":
        inWord = true
        if let next = scalars.popFirst() { word.unicodeScalars.append(next) }
      case " ", "\t", "\n", "\r":
        if inWord { words.append(word) }
        (word, inWord) = ("", false)
      default:
        inWord = true
        word.unicodeScalars.append(scalar)
      }
    }
    if quote != nil { return nil }
    if inWord { words.append(word) }
    return words
  }

  /// One word as a shell has to see it to take it literally.
  static func quoted(_ word: String) -> String {
    let safe = word.utf8.allSatisfy { byte in
      (0x41...0x5a).contains(byte & 0xdf) || (0x30...0x39).contains(byte) || "/_.-+=@%:,".utf8.contains(byte)
    }
    if safe, !word.isEmpty { return word }
    return "'" + word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
  }
}

extension StringProtocol {
  /// Without blanks at both ends.
  var trimmed: String {
    var part = Substring(self).unicodeScalars
    while let first = part.first, first == " " || first == "\t" || first == "\r" { part.removeFirst() }
    while let last = part.last, last == " " || last == "\t" || last == "\r" { part.removeLast() }
    return String(part)
  }
  var isNumber: Bool { !isEmpty && utf8.count <= 18 && utf8.allSatisfy { (0x30...0x39).contains($0) } }
  /// Lines, whatever they end with.
  var lines: [String] {
    // By scalars: a carriage return and a line feed are one character.
    String(self).unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false).map { line in
      String(line.last == "\r" ? line.dropLast() : line)
    }
  }
}
