package import GuardianControl
package import GuardianModel

/// The lines of a configuration file, broken where the parser breaks them, so that a diagnostic's line is found.
package struct SourceLines: Sendable {
  private var lines: [Substring.UnicodeScalarView] = []

  package init(_ bytes: [UInt8]) {
    let start = bytes.starts(with: [0xef, 0xbb, 0xbf]) ? 3 : 0
    let text = String(decoding: bytes[start...], as: UTF8.self)
    var rest = Substring(text).unicodeScalars
    while let end = rest.firstIndex(where: { [0x0a, 0x0d, 0x85, 0x2028, 0x2029].contains($0.value) }) {
      lines.append(rest[..<end])
      var next = rest.index(after: end)
      if rest[end] == "\r", next < rest.endIndex, rest[next] == "\n" { next = rest.index(after: next) }
      rest = rest[next...]
    }
    lines.append(rest)
  }

  /// - Parameter number: Counted from 1.
  package subscript(number: Int) -> Substring.UnicodeScalarView? {
    number >= 1 && number <= lines.count ? lines[number - 1] : nil
  }
}

/// A diagnostic with the piece of its file that it is about, and a caret below that.
package enum Excerpt {
  /// Where nobody says how wide the output may be.
  private static let usualWidth = 120
  private static let tab = 8

  /// - Parameter lines: Of the diagnostic's file; nil: they cannot be had.
  package static func text(_ diagnostic: Diagnostic, in lines: SourceLines?, style: Style) -> String {
    var result = ""
    let head = wrap(style.shown(diagnostic.description), width: style.width.map { max(20, $0 - 2) })
    for (index, line) in head.enumerated() {
      result += (index > 0 ? "  " : "") + style.paint(line, .strong) + "\n"
    }
    if let number = diagnostic.line, let column = diagnostic.column, let line = lines?[number] {
      let ink: Style.Ink = diagnostic.severity == .error ? .bad : .doubtful
      for row in rows(line, number: number, column: column, endColumn: diagnostic.endColumn, ink, style: style) {
        result += row + "\n"
      }
    }
    return result
  }

  /// Two rows: the line, behind its number, and the marks below it.
  ///
  /// - Parameters:
  ///   - column: In characters, from 1.
  ///   - endColumn: Behind the last one that is meant; nil: not known.
  package static func rows(
    _ line: Substring.UnicodeScalarView, number: Int, column: Int, endColumn: Int?, _ ink: Style.Ink = .bad,
    style: Style
  ) -> [String] {
    // Each character as it can be shown, with its columns.
    var cells: [(text: String, width: Int)] = []
    var from = 0, to = 0, used = 0
    for (index, scalar) in line.enumerated() {
      if index + 1 == column { from = used }
      if index + 1 == endColumn { to = used }
      let cell = shown(scalar, at: used, style)
      cells.append(cell)
      used += cell.width
    }
    // Behind the end of the line: there something is missing.
    if column > cells.count { from = used }
    if let endColumn, endColumn > cells.count { to = used }
    let marks = max(1, to - from)

    let gutter = String(number)
    let room = max(12, (style.width ?? usualWidth) - gutter.utf8.count - 4)
    var (text, offset) = ("", 0)
    var marked = marks
    if used <= room && from < room {
      text = cells.map(\.text).joined()
    } else {
      // As much before the place as fits into a third, and at least what is meant.
      let wanted = max(0, min(from - room / 3, used - (room - 2)))
      (text, offset, marked) = cut(cells, from: from, wanted: wanted, room: room, marks: marks, style)
    }
    let blank = String(repeating: " ", count: gutter.utf8.count)
    let caret = "^" + String(repeating: "~", count: max(0, min(marked, room - min(room, from - offset)) - 1))
    return [
      " " + style.paint(gutter + " |", .faint) + " " + text,
      " " + style.paint(blank + " |", .faint) + " " + String(repeating: " ", count: max(0, from - offset))
        + style.paint(caret, ink),
    ]
  }

  /// - Returns: What is shown, the column of the line that its first one is, and how many of the marks are left.
  private static func cut(
    _ cells: [(text: String, width: Int)], from: Int, wanted: Int, room: Int, marks: Int, _ style: Style
  ) -> (String, Int, Int) {
    var text = "", column = 0, width = 0, offset = 0
    var isCut = false
    for cell in cells {
      defer { column += cell.width }
      // A wide character at the edge, and marks above what they combine with, go with what is before.
      if column < wanted || width == 0 && wanted > 0 && cell.width == 0 { continue }
      if width == 0, text.isEmpty {
        offset = column
        if column > 0 {
          text = style.mark
          offset -= 1
          width = 1
        }
      }
      if width + cell.width > room - 1 {
        isCut = true
        break
      }
      text += cell.text
      width += cell.width
    }
    if isCut { text += style.mark }
    return (text, offset, max(1, min(marks, room - 1 - (from - offset))))
  }

  private static func shown(_ scalar: Unicode.Scalar, at column: Int, _ style: Style) -> (text: String, width: Int) {
    if scalar == "\t" {
      let width = tab - column % tab
      return (String(repeating: " ", count: width), width)
    }
    var text = printable(String(scalar))
    if !style.unicode, scalar.value > 0x7e { text = "\\u{" + String(scalar.value, radix: 16) + "}" }
    return (text, columns(text))
  }
}
