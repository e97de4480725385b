package import GuardianConfig
package import GuardianControl

/// What `guardian --explain KEY…` says: of each key what the manual has, from the same table. Without a key: which there are.
package struct Explanation: Sendable {
  private var asked: [KnownKey] = []
  private var isList: Bool
  private let style: Style
  /// One sentence for each word that is none of the keys.
  package private(set) var complaints: [String] = []
  /// 64 where a word is no key.
  package var exitStatus: Int32 { complaints.isEmpty ? 0 : 64 }

  package init(_ words: [String], style: Style) {
    self.style = style
    isList = words.isEmpty
    for word in words {
      let found = KnownKey.find(word)
      asked += found
      guard found.isEmpty else { continue }
      let near = KnownKey.nearest(to: word).map { "; did you mean '\($0)'?" } ?? "; '--explain' alone lists them"
      complaints.append("there is no key '\(printable(word))'" + near)
    }
  }

  package var text: String { isList ? list : asked.map(text).joined(separator: "\n") }

  private func text(_ known: KnownKey) -> String {
    let key = known.key
    var text = style.paint(key.path, .strong) + ": " + key.shape + "\n"
    func add(_ sentence: String) {
      for line in wrap(sentence, width: style.width.map { max(20, $0 - 4) }) { text += "    " + line + "\n" }
    }
    add(key.meaning.prefix(1).uppercased() + key.meaning.dropFirst() + ".")
    if !key.standard.isEmpty { add("Default: \(key.standard).") }
    let inner = known.inner
    if !inner.isEmpty { add("Keys in it: \(inner.joined(separator: ", ")).") }
    add(
      known.isCommon
        ? "In \(known.file.rawValue); for all services under 'defaults' in guardian.yaml."
        : "In \(known.file.rawValue).")
    if !key.example.isEmpty {
      text += "\n"
      for line in key.example.split(separator: "\n") { text += "        " + line + "\n" }
    }
    return style.unicode ? text : text.split(separator: "…", omittingEmptySubsequences: false).joined(separator: "...")
  }

  /// One key a line, so that others can read it too.
  private var list: String {
    var text = ""
    for file in KnownKey.File.allCases {
      if !text.isEmpty { text += "\n" }
      text += style.paint(file.rawValue, .strong) + "\n"
      let keys = file.table.keys
      // Where two columns have no room each meaning stands below its key.
      let isNarrow = style.width.map { $0 < 64 } ?? false
      let width = isNarrow ? 2 : min(28, keys.map { columns($0.path) }.max() ?? 0)
      for key in keys {
        let path = "  " + key.path
        let meaning = wrap(key.meaning, width: style.width.map { max(20, $0 - width - 4) })
        let blank = String(repeating: " ", count: width + 4)
        if path.utf8.count > width + 2 {
          text += path + "\n" + blank + meaning[0] + "\n"
        } else {
          text += path + String(repeating: " ", count: width + 4 - path.utf8.count) + meaning[0] + "\n"
        }
        for line in meaning.dropFirst() { text += blank + line + "\n" }
      }
    }
    return text
  }

  /// One object with `"schema": 1`, without a newline.
  package var json: String {
    var json = JSONWriter()
    json.beginObject()
    json.key("schema")
    json.integer(1)
    json.key("keys")
    json.beginArray()
    for known in isList ? KnownKey.all : asked {
      json.beginObject()
      for (name, value) in [
        ("key", known.key.path), ("file", known.file.rawValue), ("shape", known.key.shape),
        ("meaning", known.key.meaning), ("default", known.key.standard), ("example", known.key.example),
      ] as [(StaticString, String)] {
        json.key(name)
        json.string(value)
      }
      json.key("keys")
      json.strings(known.inner)
      json.endObject()
    }
    json.endArray()
    if let complaint = complaints.first {
      json.key("error")
      json.beginObject()
      json.key("name")
      json.string("no-such-key")
      json.key("message")
      json.string(complaint)
      json.endObject()
    }
    json.endObject()
    return String(decoding: json.bytes, as: UTF8.self)
  }
}
