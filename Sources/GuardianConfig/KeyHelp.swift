/// A key, and the file that has it.
package struct KnownKey: Sendable {
  package enum File: String, CaseIterable, Sendable {
    case service = "services/NAME.yaml"
    case host = "guardian.yaml"
    case switches = "switches.d/NAME.yaml"

    package var table: KeyTable {
      switch self {
      case .service: .service
      case .host: .host
      case .switches: .switches
      }
    }
  }
  package var file: File
  package var key: KeyTable.Key

  /// `repair.at-most`, as people would write `repair[].at-most`.
  var plain: String { Self.plain(key.path) }
  static func plain(_ path: String) -> String { path.filter { $0 != "[" && $0 != "]" } }

  /// The keys within it, by their last words; none where it is no mapping of keys.
  package var inner: [String] {
    let table = file.table
    let list = table.words(under: key.path + "[]")
    return list.isEmpty ? table.words(under: key.path) : list
  }

  /// May stand under `defaults` of guardian.yaml too.
  package var isCommon: Bool {
    file == .service && !KeyTable.notInDefaults.contains(key.path.split(separator: ".").first.map(String.init) ?? "")
  }

  /// In the order of the manuals.
  package static let all = File.allCases.flatMap { file in file.table.keys.map { KnownKey(file: file, key: $0) } }

  /// The keys that `word` may mean: a whole path, with or without `[]`; where there is none, the end of one.
  package static func find(_ word: String) -> [KnownKey] {
    let wanted = plain(word)
    let whole = all.filter { $0.plain == wanted }
    if !whole.isEmpty || wanted.isEmpty { return whole }
    return all.filter { $0.plain.hasSuffix("." + wanted) }
  }

  /// What was probably meant by a word for which nothing is found.
  package static func nearest(to word: String) -> String? {
    let wanted = plain(word)
    if let path = nearestWord(to: wanted, among: all.map(\.plain)) { return path }
    // One slip in one part of a path: `late.budgte`, `stopp.timeout`.
    guard let last = wanted.split(separator: ".").last else { return nil }
    let words = all.map(\.key.word).reduce(into: [String]()) { if !$0.contains($1) { $0.append($1) } }
    return nearestWord(to: String(last), among: words)
  }
}
