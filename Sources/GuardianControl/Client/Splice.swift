/// One reply of a list whose services go to standard output as they are.
package struct SplicedList: Hashable, Sendable {
  package var worst: Int32
  package var continues: Bool
  package init(worst: Int32, continues: Bool) {
    self.worst = worst
    self.continues = continues
  }
}

/// Appends the elements of a list reply to `out`, with a comma before them where something is there already, and decodes
/// only what is around them: parsing ten thousand services to print them again would take most of the time.
///
/// It relies on guardian's own encoder, as far as the shape goes that is checked here. Nil, and `out` untouched, for a
/// reply of any other shape, which `decodeReply` then looks at in full.
package func spliceList(_ bytes: UnsafeBufferPointer<UInt8>, into out: inout [UInt8]) -> SplicedList? {
  let head: StaticString = "{\"parameters\":{\"services\":["
  let start = head.utf8CodeUnitCount
  guard bytes.count > start, (0..<start).allSatisfy({ bytes[$0] == head.utf8Start[$0] }),
    let end = endOfArray(bytes, from: start)
  else { return nil }

  // The rest is small: read it with an empty list in the place of the long one.
  var rest = Array(bytes[..<start])
  rest += bytes[end...]
  let decoded = rest.withUnsafeBufferPointer { rest in
    withJSON(rest) { root -> SplicedList? in
      guard root["error"] == nil, let p = root["parameters"], let worst = p["worst"]?.integer, p["missing"] == nil
      else { return nil }
      return SplicedList(worst: Int32(clamping: worst), continues: root["continues"]?.bool ?? false)
    }
  }
  guard case .success(let list?) = decoded else { return nil }
  if start < end {
    if let last = out.last, last != UInt8(ascii: "[") { out.append(UInt8(ascii: ",")) }
    out += bytes[start..<end]
  }
  return list
}

/// The place of the bracket that closes the array whose elements begin at `start`.
private func endOfArray(_ bytes: UnsafeBufferPointer<UInt8>, from start: Int) -> Int? {
  var depth = 0
  var index = start
  while index < bytes.count {
    switch bytes[index] {
    case UInt8(ascii: "\""):
      index += 1
      while index < bytes.count, bytes[index] != UInt8(ascii: "\"") {
        index += bytes[index] == UInt8(ascii: "\\") ? 2 : 1
      }
    case UInt8(ascii: "["), UInt8(ascii: "{"): depth += 1
    case UInt8(ascii: "]"), UInt8(ascii: "}"):
      if depth == 0 { return index }
      depth -= 1
    default: break
    }
    index += 1
  }
  return nil
}
