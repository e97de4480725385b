import CYAML
import GuardianModel

/// Builds the tree of one document from libyaml's events.
///
/// An alias shares its anchor's node, so that nothing is copied; what it would weigh if it were copied is counted, and
/// a file is given up as soon as that, or the depth, passes its bound. An alias within its own anchor is a fault, so
/// the tree has no cycles. Merge keys (`<<`) are refused: their meaning differs from one YAML library to the next.
struct Composer {
  /// Values in a file, with aliases counted as often as they are used.
  static let largestWeight = 20_000
  /// Lists and mappings within one another. The deepest valid file needs 6.
  static let largestDepth = 32

  private struct Frame {
    let isMapping: Bool
    let line: Int, column: Int
    let anchor: String?
    var items: [Node] = []
    var entries: [Node.Entry] = []
    var key: Node?
    var firstOf: [String: Node] = [:]
  }
  private enum Anchor {
    case open(line: Int, column: Int)
    case done(Node)
  }

  private let text: SourceText
  private var stack: [Frame] = []
  private var anchors: [String: Anchor] = [:]
  private var weight = 0
  private var root: Node?
  private var documents = 0
  private var stopped = false

  private init(_ text: SourceText) { self.text = text }

  /// Nil after a fault that leaves no tree; `.some(nil)` for a file with nothing in it but comments.
  static func compose(_ text: SourceText, log: inout DiagnosticLog) -> Node?? {
    var composer = Composer(text)
    return composer.run(&log) ? .some(composer.root) : nil
  }

  private mutating func run(_ log: inout DiagnosticLog) -> Bool {
    let parser = UnsafeMutablePointer<yaml_parser_t>.allocate(capacity: 1)
    defer { parser.deallocate() }
    guard yaml_parser_initialize(parser) != 0 else {
      log.fault(file: text.file, what: "no memory for reading the file")
      return false
    }
    defer { yaml_parser_delete(parser) }
    return text.bytes.withUnsafeBufferPointer { input in
      // An empty array may have no address, and libyaml wants one.
      var nothing: UInt8 = 0
      return withUnsafePointer(to: &nothing) { empty in
        yaml_parser_set_input_string(parser, input.baseAddress ?? empty, input.count)
        yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING)
        return readEvents(parser, &log)
      }
    }
  }

  private mutating func readEvents(_ parser: UnsafeMutablePointer<yaml_parser_t>, _ log: inout DiagnosticLog) -> Bool {
    var event = yaml_event_t()
    while !stopped {
      guard yaml_parser_parse(parser, &event) != 0 else {
        syntaxFault(parser.pointee, &log)
        return false
      }
      defer { yaml_event_delete(&event) }
      let line = Self.count(event.start_mark.line), column = Self.count(event.start_mark.column)
      switch event.type {
      case YAML_STREAM_END_EVENT: return true
      case YAML_DOCUMENT_START_EVENT:
        documents += 1
        if documents > 1 {
          stop(&log, line, column, "a second document", "one file is one document; remove the '---'")
        }
      case YAML_SCALAR_EVENT:
        let scalar = event.data.scalar
        refuseTag(scalar.tag, line, column, &log)
        let plain = scalar.style == YAML_PLAIN_SCALAR_STYLE
        let value = scalar.value.map { start in
          String(decoding: UnsafeBufferPointer(start: start, count: scalar.length), as: UTF8.self)
        }
        let swallowed =
          plain
          ? text.comment(afterLine: Int(clamping: event.end_mark.line), column: Int(clamping: event.end_mark.column))
          : nil
        let node = Node(
          .scalar(value ?? "", plain: plain), file: text.file, line: line, column: column,
          endColumn: Self.end(event, onLine: line, after: column), swallowed: swallowed)
        open(anchor: Self.name(scalar.anchor), line, column, &log)
        add(node, anchor: Self.name(scalar.anchor), weighing: 1, &log)
      case YAML_SEQUENCE_START_EVENT:
        let start = event.data.sequence_start
        refuseTag(start.tag, line, column, &log)
        push(Frame(isMapping: false, line: line, column: column, anchor: Self.name(start.anchor)), &log)
      case YAML_MAPPING_START_EVENT:
        let start = event.data.mapping_start
        refuseTag(start.tag, line, column, &log)
        push(Frame(isMapping: true, line: line, column: column, anchor: Self.name(start.anchor)), &log)
      case YAML_SEQUENCE_END_EVENT, YAML_MAPPING_END_EVENT:
        guard let frame = stack.popLast() else { return false }
        let content = frame.isMapping ? Node.Content.mapping(frame.entries) : .list(frame.items)
        let node = Node(
          content, file: text.file, line: frame.line, column: frame.column,
          endColumn: Self.end(event, onLine: frame.line, after: frame.column))
        add(node, anchor: frame.anchor, weighing: 0, &log)
      case YAML_ALIAS_EVENT:
        alias(Self.name(event.data.alias.anchor) ?? "", line, column, &log)
      default: break  // stream start and document end say nothing
      }
    }
    return false
  }

  private mutating func push(_ frame: Frame, _ log: inout DiagnosticLog) {
    open(anchor: frame.anchor, frame.line, frame.column, &log)
    stack.append(frame)
    weigh(1, frame.line, frame.column, &log)
    if stack.count > Self.largestDepth { tooDeep(frame.line, frame.column, &log) }
  }

  private mutating func open(anchor: String?, _ line: Int, _ column: Int, _ log: inout DiagnosticLog) {
    guard let anchor else { return }
    switch anchors[anchor] {
    case nil: anchors[anchor] = .open(line: line, column: column)
    case .open(let first, let place): again(anchor, first, place, line, column, &log)
    case .done(let node): again(anchor, node.line, node.column, line, column, &log)
    }
  }

  private mutating func again(
    _ anchor: String, _ firstLine: Int, _ firstColumn: Int, _ line: Int, _ column: Int, _ log: inout DiagnosticLog
  ) {
    stop(
      &log, line, column, "anchor '&\(brief(anchor))' is set twice",
      "first at line \(firstLine), column \(firstColumn)")
  }

  private mutating func alias(_ name: String, _ line: Int, _ column: Int, _ log: inout DiagnosticLog) {
    switch anchors[name] {
    case nil:
      let known = anchors.keys.sorted()
      stop(
        &log, line, column, "alias '*\(brief(name))' has no anchor",
        "an anchor '&\(brief(name))' must stand before it; a value that starts with '*' needs quotes",
        suggestion: nearestWord(to: name, among: known))
    case .open(let first, let place):
      stop(
        &log, line, column, "alias '*\(brief(name))' is within its own anchor",
        "the anchor starts at line \(first), column \(place), so the value would have no end")
    case .done(let node):
      if stack.count + node.depth > Self.largestDepth { return tooDeep(line, column, &log) }
      add(node, anchor: nil, weighing: node.weight, &log)
    }
  }

  /// Puts a finished value where it belongs.
  private mutating func add(_ node: Node, anchor: String?, weighing: Int, _ log: inout DiagnosticLog) {
    weigh(weighing, node.line, node.column, &log)
    if let anchor { anchors[anchor] = .done(node) }
    guard !stack.isEmpty else {
      root = isNothing(node) ? nil : node
      return
    }
    let top = stack.count - 1
    guard stack[top].isMapping else {
      stack[top].items.append(node)
      return
    }
    guard let key = stack[top].key else {
      stack[top].key = node
      return
    }
    stack[top].key = nil
    guard case .scalar(let word, let plain) = key.content else {
      log.fault(
        file: text.file, line: key.line, column: key.column, endColumn: key.endColumn,
        what: "a key must be a word, not \(key.kind)")
      return
    }
    if word == "<<" && plain {
      log.fault(
        file: text.file, line: key.line, column: key.column, endColumn: key.endColumn,
        what: "merge keys ('<<') are not supported",
        why: "an alias may stand for a whole value; what many services share belongs under 'defaults' in guardian.yaml")
      return
    }
    if let first = stack[top].firstOf[word] {
      log.fault(
        file: text.file, line: key.line, column: key.column, endColumn: key.endColumn,
        what: "key '\(brief(word))' is here twice",
        why: "first at line \(first.line), column \(first.column)")
      return
    }
    stack[top].firstOf[word] = key
    stack[top].entries.append(Node.Entry(key: key, value: node))
  }

  private func isNothing(_ node: Node) -> Bool {
    if case .scalar("", plain: true) = node.content { true } else { false }
  }

  private mutating func weigh(_ more: Int, _ line: Int, _ column: Int, _ log: inout DiagnosticLog) {
    weight += more
    if weight > Self.largestWeight {
      stop(
        &log, line, column, "more than \(Self.largestWeight) values in one file",
        "each use of an alias counts as much as what it stands for")
    }
  }

  private mutating func tooDeep(_ line: Int, _ column: Int, _ log: inout DiagnosticLog) {
    stop(
      &log, line, column, "lists and mappings more than \(Self.largestDepth) deep",
      "no key needs as many; aliases count too")
  }

  private mutating func refuseTag(
    _ tag: UnsafeMutablePointer<yaml_char_t>?, _ line: Int, _ column: Int, _ log: inout DiagnosticLog
  ) {
    guard let tag = Self.name(tag) else { return }
    log.fault(
      file: text.file, line: line, column: column, what: "tag '\(brief(tag))'",
      why: "tags have no meaning here; a value that starts with '!' needs quotes")
  }

  /// Reports, and reads no further.
  private mutating func stop(
    _ log: inout DiagnosticLog, _ line: Int, _ column: Int, _ what: String, _ why: String, suggestion: String? = nil
  ) {
    if stopped { return }
    stopped = true
    log.fault(file: text.file, line: line, column: column, what: what, why: why, suggestion: suggestion)
  }

  /// Nil where it ends on another line, or is empty.
  private static func end(_ event: yaml_event_t, onLine line: Int, after column: Int) -> Int? {
    let end = count(event.end_mark.column)
    return count(event.end_mark.line) == line && end > column ? end : nil
  }

  private func syntaxFault(_ parser: yaml_parser_t, _ log: inout DiagnosticLog) {
    let problem = parser.problem.map { String(cString: $0) } ?? "cannot be read"
    let context = parser.context.map { String(cString: $0) } ?? ""
    let mark = parser.problem_mark
    var line = Self.count(mark.line), column = Self.count(mark.column)
    var what = "not YAML: " + problem
    var why = ""
    let contextLine = Self.count(parser.context_mark.line), contextColumn = Self.count(parser.context_mark.column)
    if context.hasSuffix("quoted scalar"), problem.hasSuffix("end of stream") || problem.hasSuffix("document indicator")
    {
      (what, why) = ("not YAML: this quote is not closed", "the text runs on to the end of the file")
      (line, column) = (contextLine, contextColumn)
    } else if byte(atLine: mark.line, column: mark.column) == UInt8(ascii: "\t") {
      (what, why) = ("not YAML: a tab at the start of a value or in the indentation", "indent with blanks")
    } else if problem.hasPrefix("mapping values are not allowed") {
      why = "a second ': ' on the line, or wrong indentation; a value with ': ' in it needs quotes"
    } else if problem.hasSuffix("cannot start any token") {
      why = "a value that starts with @ or ` or % needs quotes"
    } else if !context.isEmpty {
      why = context + (contextLine != line ? " that starts at line \(contextLine)" : "")
    }
    log.fault(file: text.file, line: line, column: column, what: what, why: why)
  }

  private func byte(atLine line: Int, column: Int) -> UInt8? {
    var current = 0
    var index = 0
    while current < line, index < text.bytes.count {
      if text.bytes[index] == 0x0a { current += 1 }
      index += 1
    }
    // A tab in the indentation has only single-byte characters before it.
    let (place, overflow) = index.addingReportingOverflow(column)
    return !overflow && place < text.bytes.count && place >= 0 ? text.bytes[place] : nil
  }

  private static func name(_ start: UnsafeMutablePointer<yaml_char_t>?) -> String? {
    start.map { String(decodingCString: $0, as: UTF8.self) }
  }
  /// libyaml counts from 0.
  private static func count(_ zeroBased: Int) -> Int { zeroBased < .max ? zeroBased + 1 : zeroBased }
}
