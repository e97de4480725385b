import CJansson
import Glibc

/// A value inside a document that jansson holds; valid only within the `withJSON` call that gave it.
struct JSONValue {
  fileprivate let raw: UnsafeMutablePointer<json_t>

  /// - Parameter key: a member's name; nil where there is no such member, or this is no object.
  subscript(_ key: StaticString) -> JSONValue? {
    key.withUTF8Buffer { text in
      guard let base = text.baseAddress else { return nil }
      // A static string ends with NUL.
      let name = UnsafeRawPointer(base).assumingMemoryBound(to: CChar.self)
      return json_object_get(raw, name).map(JSONValue.init)
    }
  }

  var isObject: Bool { raw.pointee.type == JSON_OBJECT }
  var isArray: Bool { raw.pointee.type == JSON_ARRAY }
  var isNull: Bool { raw.pointee.type == JSON_NULL }
  /// The bytes are valid UTF-8, which jansson has checked.
  var string: String? { withBytes { String(decoding: $0, as: UTF8.self) } }
  var integer: Int64? { raw.pointee.type == JSON_INTEGER ? Int64(json_integer_value(raw)) : nil }
  var bool: Bool? {
    switch raw.pointee.type {
    case JSON_TRUE: true
    case JSON_FALSE: false
    default: nil
    }
  }

  /// A string's bytes, without making a String.
  func withBytes<R>(_ body: (UnsafeBufferPointer<UInt8>) -> R) -> R? {
    guard let text = json_string_value(raw) else { return nil }
    let count = json_string_length(raw)
    return text.withMemoryRebound(to: UInt8.self, capacity: count) {
      body(UnsafeBufferPointer(start: $0, count: count))
    }
  }

  /// Elements; none for anything but an array.
  var elements: some Sequence<JSONValue> {
    let raw = raw
    return (0..<json_array_size(raw)).lazy.compactMap { json_array_get(raw, $0).map(JSONValue.init) }
  }

  /// Members in their order; none for anything but an object.
  func forEachMember<E: Error>(_ body: (UnsafePointer<CChar>, JSONValue) throws(E) -> Void) throws(E) {
    var iterator = json_object_iter(raw)
    while let current = iterator {
      if let key = json_object_iter_key(current), let value = json_object_iter_value(current) {
        try body(key, JSONValue(raw: value))
      }
      iterator = json_object_iter_next(raw, current)
    }
  }

  /// Written again, compactly, members in their order. json_dumps(3).
  var serialized: [UInt8]? {
    guard let text = json_dumps(raw, Int(JSON_COMPACT)) else { return nil }
    defer { free(text) }
    return Array(UnsafeRawBufferPointer(start: text, count: strlen(text)))
  }

  /// Nil unless this is a list of strings.
  var strings: [String]? {
    guard isArray else { return nil }
    var result: [String] = []
    for element in elements {
      guard let text = element.string else { return nil }
      result.append(text)
    }
    return result
  }
}

/// Parses one JSON text: an object or a list. Duplicate members, invalid UTF-8, lone surrogates, NUL in a string, numbers
/// out of range and nesting beyond jansson's limit of 2,048 are errors.
///
/// - Returns: What `body` made of it, or why it is not JSON.
/// - Source: the corresponding C function is `json_loadb`.
func withJSON<R>(_ bytes: UnsafeBufferPointer<UInt8>, _ body: (JSONValue) -> R) -> Answer<R, JSONFault> {
  var error = json_error_t()
  let root = UnsafeRawPointer(bytes.baseAddress).flatMap { base in
    json_loadb(base.assumingMemoryBound(to: CChar.self), bytes.count, Int(JSON_REJECT_DUPLICATES), &error)
  }
  guard let root else {
    if bytes.isEmpty { return .failure(JSONFault(reason: "empty")) }
    let reason = withUnsafeBytes(of: &error.text) { text in
      String(decoding: text.prefix { $0 != 0 }, as: UTF8.self)
    }
    return .failure(JSONFault(reason: reason))
  }
  defer { json_decref(root) }
  return .success(body(JSONValue(raw: root)))
}

struct JSONFault: Error, Hashable {
  /// jansson's own words.
  var reason: String
}
