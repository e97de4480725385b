/// How other supervisors split a line into words.
enum Words {
  /// As systemd does: quotes anywhere in a word, C escapes outside and inside of them.
  ///
  /// - Throws: Where a quote is not closed, or the bytes of a word are no text.
  /// - Source: systemd.service(5), "Command lines"; systemd.syntax(7), "Quoting".
  static func systemd(_ line: String) throws(UnitFault) -> [String] {
    var words: [String] = []
    var word: [UInt8] = [], inWord = false
    func end() throws(UnitFault) {
      if inWord {
        let text = String(decoding: word, as: UTF8.self)
        guard text.utf8.elementsEqual(word) else { throw UnitFault("an escape in it is a byte that is no UTF-8") }
        words.append(text)
      }
      (word, inWord) = ([], false)
    }
    var quote: Unicode.Scalar?
    var scalars = Substring(line).unicodeScalars
    while let scalar = scalars.popFirst() {
      if scalar == "\\" {
        inWord = true
        word += escape(&scalars)
      } else if let open = quote {
        if scalar == open { quote = nil } else { word += String(scalar).utf8 }
      } else if scalar == "'" || scalar == "\"" {
        inWord = true
        quote = scalar
      } else if scalar == " " || scalar == "\t" || scalar == "\n" || scalar == "\r" {
        try end()
      } else {
        inWord = true
        word += String(scalar).utf8
      }
    }
    if quote != nil { throw UnitFault("a quote is not closed") }
    try end()
    return words
  }

  /// What stands behind a backslash. What is no escape keeps its backslash.
  private static func escape(_ scalars: inout Substring.UnicodeScalarView) -> [UInt8] {
    guard let kind = scalars.popFirst() else { return Array("\\".utf8) }
    switch kind {
    case "a": return [0x07]
    case "b": return [0x08]
    case "f": return [0x0c]
    case "n": return [0x0a]
    case "r": return [0x0d]
    case "t": return [0x09]
    case "v": return [0x0b]
    case "s": return [0x20]
    case "\\", "\"", "'": return Array(String(kind).utf8)
    // A byte, of which several may be one character.
    case "x": if let byte = number(&scalars, digits: 2, radix: 16).flatMap(UInt8.init(exactly:)) { return [byte] }
    case "u": if let scalar = scalar(number(&scalars, digits: 4, radix: 16)) { return scalar }
    case "U": if let scalar = scalar(number(&scalars, digits: 8, radix: 16)) { return scalar }
    case "0"..."7":
      var rest = Substring(String(kind) + String(scalars.prefix(2))).unicodeScalars
      if let byte = number(&rest, digits: 3, radix: 8).flatMap(UInt8.init(exactly:)) {
        scalars.removeFirst(2)
        return [byte]
      }
    default: break
    }
    return Array("\\\(kind)".utf8)
  }

  private static func scalar(_ value: UInt32?) -> [UInt8]? {
    value.flatMap(Unicode.Scalar.init).map { Array(String($0).utf8) }
  }

  /// Takes the digits away, unless they are none.
  private static func number(_ scalars: inout Substring.UnicodeScalarView, digits: Int, radix: Int) -> UInt32? {
    let text = String(scalars.prefix(digits))
    guard text.utf8.count == digits, text.utf8.allSatisfy({ $0 != UInt8(ascii: "+") && $0 != UInt8(ascii: "-") }),
      let value = UInt32(text, radix: radix), value != 0, radix != 16 || Unicode.Scalar(value) != nil
    else { return nil }
    scalars.removeFirst(digits)
    return value
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
