/// The valid word that was most likely meant, or nil where none is near.
///
/// Case and `_` for `-` cost nothing. Otherwise up to a third of the letters may be wrong (Damerau–Levenshtein with
/// neighbours swapped once), and never more than three; the start of a word also finds it (`env`).
func nearestWord(to written: String, among valid: [String]) -> String? {
  let word = normalized(written)
  guard !word.isEmpty, word.count <= 64 else { return nil }
  let bound = min(3, max(1, word.count / 3))
  var best: (distance: Int, word: String)?
  for candidate in valid {
    let other = normalized(candidate)
    guard abs(other.count - word.count) <= bound else { continue }
    let distance = editDistance(word, other)
    // One letter of a word of two is half of it: only a swap or a different case is near enough there.
    guard distance <= bound, distance < max(2, min(word.count, other.count)), distance < best?.distance ?? .max else {
      continue
    }
    best = (distance, candidate)
  }
  if let best { return best.word }
  guard word.count >= 3 else { return nil }
  return valid.filter { normalized($0).starts(with: word) }.min { ($0.utf8.count, $0) < ($1.utf8.count, $1) }
}

private func normalized(_ word: String) -> [UInt8] {
  word.utf8.map { byte in
    switch byte {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"): byte | 0x20
    case UInt8(ascii: "_"), UInt8(ascii: " "): UInt8(ascii: "-")
    default: byte
    }
  }
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
private func editDistance(_ a: [UInt8], _ b: [UInt8]) -> Int {
  if a.isEmpty || b.isEmpty { return max(a.count, b.count) }
  var beforeLast = [Int](repeating: 0, count: b.count + 1)
  var last = Array(0...b.count)
  for i in 1...a.count {
    var row = [Int](repeating: i, count: b.count + 1)
    for j in 1...b.count {
      let change = a[i - 1] == b[j - 1] ? 0 : 1
      row[j] = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + change)
      if i > 1, j > 1, a[i - 1] == b[j - 2], a[i - 2] == b[j - 1] { row[j] = min(row[j], beforeLast[j - 2] + 1) }
    }
    (beforeLast, last) = (last, row)
  }
  return last[b.count]
}
