/// A piece of text that is safe on a terminal, and how many columns it takes.
struct Cell: Hashable, Sendable {
  var text: String
  var width: Int
  /// There is nothing to say.
  private(set) var isNothing = false

  /// Escapes what a terminal would obey.
  init(_ raw: String) {
    var plain = true
    var count = 0
    for byte in raw.utf8 {
      count += 1
      if byte < 0x20 || byte > 0x7e {
        plain = false
        break
      }
    }
    if plain {
      text = raw
      width = count
    } else {
      text = printable(raw)
      width = columns(text)
    }
  }
  static let empty: Cell = {
    var cell = Cell("-")
    cell.isNothing = true
    return cell
  }()

  /// At most `limit` columns, with a mark where something is missing.
  func cut(to limit: Int, mark: String) -> Cell {
    if width <= limit { return self }
    if limit <= 0 { return Cell("") }
    var result = "", used = 0
    for character in text {
      let more = columns(String(character))
      if used + more > limit - 1 { break }
      result.append(character)
      used += more
    }
    var cell = Cell("")
    cell.text = result + mark
    cell.width = used + 1
    return cell
  }
}

/// Control characters, and marks that turn the direction of text, become visible escapes.
package func printable(_ text: String) -> String {
  var result = ""
  for scalar in text.unicodeScalars {
    switch scalar.value {
    case 0x0a: result += "\\n"
    case 0x09: result += "\\t"
    case 0x0d: result += "\\r"
    case 0..<0x20, 0x7f..<0xa0:
      result += "\\x"
      result.unicodeScalars.append(Unicode.Scalar(hexDigit(UInt8(scalar.value >> 4))))
      result.unicodeScalars.append(Unicode.Scalar(hexDigit(UInt8(scalar.value & 0xf))))
    case 0x200b...0x200f, 0x2028...0x202e, 0x2060...0x206f, 0xfeff, 0xfff9...0xfffb, 0xe0000...0xe007f:
      result += "\\u{" + String(scalar.value, radix: 16) + "}"
    default: result.unicodeScalars.append(scalar)
    }
  }
  return result
}

/// Terminal columns of text that is already printable. Combining marks take none, East Asian wide characters and
/// pictures two. Source: EastAsianWidth.txt of Unicode 15, W and F, with its unassigned gaps closed.
package func columns(_ text: String) -> Int {
  var width = 0
  for scalar in text.unicodeScalars {
    switch scalar.value {
    case 0x300...0x36f, 0x483...0x489, 0x591...0x5bd, 0x610...0x61a, 0x64b...0x65f, 0x1ab0...0x1aff, 0x1dc0...0x1dff,
      0x20d0...0x20ff, 0xfe00...0xfe0f, 0xfe20...0xfe2f, 0xe0100...0xe01ef:
      break
    case 0x1100...0x115f, 0x231a...0x231b, 0x2329...0x232a, 0x23e9...0x23ec, 0x23f0, 0x23f3, 0x25fd...0x25fe,
      0x2614...0x2615, 0x2648...0x2653, 0x267f, 0x2693, 0x26a1, 0x26aa...0x26ab, 0x26bd...0x26be,
      0x26c4...0x26c5, 0x26ce, 0x26d4, 0x26ea, 0x26f2...0x26f3, 0x26f5, 0x26fa, 0x26fd, 0x2705, 0x270a...0x270b,
      0x2728, 0x274c, 0x274e, 0x2753...0x2755, 0x2757, 0x2795...0x2797, 0x27b0, 0x27bf, 0x2b1b...0x2b1c, 0x2b50,
      0x2b55, 0x2e80...0x303e, 0x3041...0x3247, 0x3250...0x4dbf, 0x4e00...0xa4cf, 0xa960...0xa97f,
      0xac00...0xd7a3, 0xf900...0xfaff, 0xfe10...0xfe19, 0xfe30...0xfe6f, 0xff00...0xff60, 0xffe0...0xffe6,
      0x16fe0...0x1b2fb, 0x1f004, 0x1f0cf, 0x1f18e, 0x1f191...0x1f19a, 0x1f200...0x1f320, 0x1f32d...0x1f335,
      0x1f337...0x1f37c, 0x1f37e...0x1f393, 0x1f3a0...0x1f3ca, 0x1f3cf...0x1f3d3, 0x1f3e0...0x1f3f0, 0x1f3f4,
      0x1f3f8...0x1f43e, 0x1f440, 0x1f442...0x1f4fc, 0x1f4ff...0x1f53d, 0x1f54b...0x1f54e, 0x1f550...0x1f567,
      0x1f57a, 0x1f595...0x1f596, 0x1f5a4, 0x1f5fb...0x1f64f, 0x1f680...0x1f6c5, 0x1f6cc, 0x1f6d0...0x1f6d2,
      0x1f6d5...0x1f6df, 0x1f6eb...0x1f6ec, 0x1f6f4...0x1f6fc, 0x1f7e0...0x1f7f0, 0x1f90c...0x1f93a,
      0x1f93c...0x1f945, 0x1f947...0x1f9ff, 0x1fa70...0x1faf8, 0x20000...0x3fffd:
      width += 2
    default: width += 1
    }
  }
  return width
}

/// How output looks: decided once, by the program, from the terminal and the environment.
package struct Style: Hashable, Sendable {
  /// Columns; nil: no limit, as in a pipe.
  package var width: Int?
  package var colour = false
  /// Whether the terminal takes UTF-8.
  package var unicode = true
  package init(width: Int? = nil, colour: Bool = false, unicode: Bool = true) {
    self.width = width
    self.colour = colour
    self.unicode = unicode
  }
  /// As standard output and the environment have it.
  ///
  /// - Parameters:
  ///   - columns: Of the terminal, where it tells.
  ///   - variable: The value of a variable of the environment; nil also where it is empty.
  package init(isTerminal: Bool, columns: Int?, variable: (String) -> String?) {
    if let given = variable("COLUMNS").flatMap({ Int($0) }), given > 0 {
      width = max(20, given)
    } else if isTerminal {
      width = columns.map { max(20, $0) } ?? 80
    }
    colour = isTerminal && variable("NO_COLOR") == nil && variable("TERM") != "dumb"
    // locale(7): the first of these that says something.
    let locale = (variable("LC_ALL") ?? variable("LC_CTYPE") ?? variable("LANG") ?? "").lowercased()
    unicode = locale.hasSuffix("utf-8") || locale.hasSuffix("utf8") || locale.contains(".utf-8@")
  }
  /// Safe on this terminal: `printable`; letters that it does not take can be told apart still.
  package func shown(_ text: String) -> String {
    let safe = printable(text)
    if unicode { return safe }
    var result = ""
    for scalar in safe.unicodeScalars {
      // Punctuation has its usual spelling below.
      let isPlain = scalar.isASCII || (0x2013...0x2019).contains(scalar.value) || "…→".unicodeScalars.contains(scalar)
      result += isPlain ? String(scalar) : "\\u{" + String(scalar.value, radix: 16) + "}"
    }
    return String(decoding: plainASCII(Array(result.utf8)), as: UTF8.self)
  }
  package var mark: String { unicode ? "…" : "~" }
  var arrow: String { unicode ? "→" : "->" }
  var dash: String { unicode ? "–" : "-" }

  /// What will stand there where the terminal does not take UTF-8: what is measured is what is written.
  func written(_ text: String) -> String {
    unicode ? text : String(decoding: plainASCII(Array(printable(text).utf8)), as: UTF8.self)
  }

  package enum Ink: String, Sendable {
    case plain = "", good = "32", doubtful = "33", bad = "31", faint = "2", strong = "1"
  }

  package func paint(_ text: String, _ ink: Ink) -> String {
    !colour || ink == .plain || text.isEmpty ? text : "\u{1b}[\(ink.rawValue)m\(text)\u{1b}[0m"
  }
}

/// Two units at most: `320ms 3.2s 42s 4min10s 2h13min 3d4h`.
package func shortTime(milliseconds: Int64) -> String {
  let ms = milliseconds.magnitude, sign = milliseconds < 0 ? "-" : ""
  func two(_ large: UInt64, _ unit: String, _ small: UInt64, _ part: String) -> String {
    sign + (small == 0 ? "\(large)\(unit)" : "\(large)\(unit)\(small)\(part)")
  }
  switch ms {
  case 0: return "0s"
  case ..<1000: return "\(sign)\(ms)ms"
  case ..<10_000: return two(ms / 1000, "", 0, "") + (ms % 1000 < 100 ? "s" : ".\(ms % 1000 / 100)s")
  case ..<60_000: return "\(sign)\(ms / 1000)s"
  case ..<3_600_000: return two(ms / 60_000, "min", ms / 1000 % 60, "s")
  case ..<86_400_000: return two(ms / 3_600_000, "h", ms / 60_000 % 60, "min")
  default: return two(ms / 86_400_000, "d", ms / 3_600_000 % 24, "h")
  }
}

/// As `shortTime`, but below a minute to the millisecond: `1.65s`.
func exactTime(milliseconds: Int64) -> String {
  guard (1000..<60_000).contains(milliseconds) else { return shortTime(milliseconds: milliseconds) }
  var digits = String(milliseconds % 1000 + 1000).dropFirst()
  while digits.last == "0" { digits.removeLast() }
  return "\(milliseconds / 1000)" + (digits.isEmpty ? "s" : ".\(digits)s")
}

/// Breaks at spaces into lines of at most `width` columns; a word that is longer is broken where a line is full.
package func wrap(_ text: String, width: Int?) -> [String] {
  guard let width, columns(text) > width else { return [text] }
  var lines: [String] = [], line = "", used = 0
  for word in text.split(separator: " ", omittingEmptySubsequences: true) {
    let size = columns(String(word))
    if used > 0, used + 1 + size > width {
      lines.append(line)
      line = ""
      used = 0
    }
    if used > 0 {
      line += " "
      used += 1
    }
    if size <= width {
      line += word
      used += size
      continue
    }
    for character in word {
      let more = columns(String(character))
      if used > 0, used + more > width {
        lines.append(line)
        line = ""
        used = 0
      }
      line.append(character)
      used += more
    }
  }
  lines.append(line)
  return lines
}

/// The same for a terminal that does not take UTF-8: what is beyond ASCII becomes signs of the same width, or what it is
/// usually written as.
package func plainASCII(_ bytes: [UInt8]) -> [UInt8] {
  if bytes.allSatisfy({ $0 < 0x80 }) { return bytes }
  var out: [UInt8] = []
  out.reserveCapacity(bytes.count)
  for scalar in String(decoding: bytes, as: UTF8.self).unicodeScalars {
    switch scalar.value {
    case ..<0x80: out.append(UInt8(scalar.value))
    case 0x2026: out += "...".utf8
    case 0x2192: out += "->".utf8
    case 0x2013, 0x2014: out.append(UInt8(ascii: "-"))
    case 0x2018, 0x2019: out.append(UInt8(ascii: "'"))
    default:
      out.append(contentsOf: repeatElement(UInt8(ascii: "?"), count: columns(String(Character(scalar)))))
    }
  }
  return out
}
