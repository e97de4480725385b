import Glibc
package import GuardianModel

/// Decodes a reply to a brief list, and appends its services to `services`: the table of a thousand would mostly be the
/// reading of JSON else.
///
/// It knows guardian's own encoder: an element with nothing but plain members is read at one look, any other by the usual
/// way, and a reply of any other shape is nil, with `services` as they were; `decodeReply` then looks at it in full.
package func decodeBriefList(
  _ bytes: UnsafeBufferPointer<UInt8>, into services: inout [ServiceStatus]
) -> SplicedList? {
  let before = services.count
  var reader = BriefReader(bytes: bytes)
  guard reader.take("{\"parameters\":{\"services\":["), let end = reader.elements(into: &services) else {
    services.removeLast(services.count - before)
    return nil
  }
  // The rest is small: read it with an empty list in the place of the long one.
  var rest = Array("{\"parameters\":{\"services\":[".utf8)
  rest += bytes[end...]
  let decoded = rest.withUnsafeBufferPointer { rest in
    withJSON(rest) { root -> SplicedList? in
      guard root["error"] == nil, let p = root["parameters"], let worst = p["worst"]?.integer, p["missing"] == nil
      else { return nil }
      return SplicedList(worst: Int32(clamping: worst), continues: root["continues"]?.bool ?? false)
    }
  }
  if case .success(let list?) = decoded { return list }
  services.removeLast(services.count - before)
  return nil
}

private struct BriefReader {
  let bytes: UnsafeBufferPointer<UInt8>
  private var index = 0

  init(bytes: UnsafeBufferPointer<UInt8>) { self.bytes = bytes }

  private var current: UInt8 { index < bytes.count ? bytes[index] : 0 }

  mutating func take(_ text: StaticString) -> Bool {
    let count = text.utf8CodeUnitCount
    guard bytes.count - index >= count, let base = bytes.baseAddress,
      memcmp(base + index, text.utf8Start, count) == 0
    else { return false }
    index += count
    return true
  }

  private mutating func take(_ byte: UInt8) -> Bool {
    guard current == byte else { return false }
    index += 1
    return true
  }

  /// - Returns: The place of the bracket that ends the list; nil: this is nothing for this reader.
  mutating func elements(into services: inout [ServiceStatus]) -> Int? {
    if current == UInt8(ascii: "]") { return index }
    while true {
      let start = index
      var service = ServiceStatus(name: "")
      // What the brief form leaves out is as usual.
      service.wanted = .up
      service.phase = .running
      service.settled = true
      if plain(&service) {
        services.append(service)
      } else {
        index = start
        guard let other = whole() else { return nil }
        services.append(other)
      }
      if take(UInt8(ascii: ",")) { continue }
      return current == UInt8(ascii: "]") ? index : nil
    }
  }

  /// False: there is something in it that takes more, or it is broken.
  private mutating func plain(_ s: inout ServiceStatus) -> Bool {
    guard take("{\"name\":"), let name = string() else { return false }
    s.name = name
    while !take(UInt8(ascii: "}")) {
      if take(",\"uptime_ms\":") {
        guard let number = integer() else { return false }
        s.uptimeMilliseconds = number
      } else if take(",\"restarts\":") {
        guard let number = integer() else { return false }
        s.restarts = Int(number)
      } else if take(",\"strikes\":") {
        guard let number = integer() else { return false }
        s.strikes = Int(number)
      } else if take(",\"strikes_allowed\":") {
        guard let number = integer() else { return false }
        s.strikesAllowed = Int(number)
      } else if take(",\"settled\":false") {
        s.settled = false
      } else if take(",\"degraded\":true") {
        s.degraded = true
      } else if take(",\"held\":true") {
        s.held = true
      } else if take(",\"observe\":true") {
        s.observe = true
      } else if take(",\"wanted\":") {
        guard let word = string().flatMap(Wanted.init) else { return false }
        s.wanted = word
      } else if take(",\"phase\":") {
        guard let word = string().flatMap(PhaseName.init) else { return false }
        s.phase = word
      } else if take(",\"step\":") {
        guard let word = string().flatMap(Step.init) else { return false }
        s.step = word
      } else if take(",\"type\":") {
        guard let word = string().flatMap(ServiceKind.init) else { return false }
        s.kind = word
      } else if take(",\"reason\":") {
        guard let text = string() else { return false }
        s.reason = text
      } else {
        return false
      }
    }
    return true
  }

  /// A string without escapes, valid UTF-8.
  private mutating func string() -> String? {
    guard take(UInt8(ascii: "\"")) else { return nil }
    let start = index
    while index < bytes.count, bytes[index] != UInt8(ascii: "\"") {
      if bytes[index] == UInt8(ascii: "\\") || bytes[index] < 0x20 { return nil }
      index += 1
    }
    let end = index
    guard take(UInt8(ascii: "\"")) else { return nil }
    return String(validating: UnsafeBufferPointer(rebasing: bytes[start..<end]), as: UTF8.self)
  }

  /// Not negative, and small enough to be none of the odd ones.
  private mutating func integer() -> Int64? {
    let start = index
    var value: Int64 = 0
    while index < bytes.count, (0x30...0x39).contains(bytes[index]) {
      guard index - start < 17 else { return nil }
      value = value * 10 + Int64(bytes[index] - 0x30)
      index += 1
    }
    // No leading zeros in JSON.
    guard index > start, bytes[start] != 0x30 || index - start == 1 else { return nil }
    return value
  }

  /// One element by the usual way.
  private mutating func whole() -> ServiceStatus? {
    let start = index
    var depth = 0
    while index < bytes.count {
      switch bytes[index] {
      case UInt8(ascii: "\""):
        index += 1
        while index < bytes.count, bytes[index] != UInt8(ascii: "\"") {
          index += bytes[index] == UInt8(ascii: "\\") ? 2 : 1
        }
      case UInt8(ascii: "["), UInt8(ascii: "{"): depth += 1
      case UInt8(ascii: "]"), UInt8(ascii: "}"): depth -= 1
      default: break
      }
      index += 1
      if depth <= 0 { break }
    }
    guard depth == 0, index <= bytes.count, index > start else { return nil }
    return decodeBriefService(UnsafeBufferPointer(rebasing: bytes[start..<index]))
  }
}
