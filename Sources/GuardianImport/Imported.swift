/// A file as it was read: what it is called where people see it, and its text.
package struct ImportedFile: Hashable, Sendable {
  package var name: String
  package var text: String
  package init(name: String, text: String) {
    self.name = name
    self.text = text
  }
}

extension StringProtocol {
  /// Whether the reader of a file has put U+FFFD into it, where bytes are no text.
  var hasBrokenBytes: Bool { unicodeScalars.contains("\u{fffd}") }
}

/// What is said about it.
let brokenBytes = "a byte in it is no UTF-8"

/// What was written for another supervisor, as services of guardian, and what became of each line of it.
package struct Imported: Hashable, Sendable {
  package var services: [ImportedService] = []
  /// About lines that belong to no service, or to all.
  package var remarks: [Remark] = []
  package init() {}
}

package struct ImportedService: Hashable, Sendable {
  /// A valid name of a service.
  package var name: String
  /// The file to be written: `services/NAME.yaml`.
  package var yaml: String
  package var carried: [CarriedLine]
  package var remarks: [Remark]
}

/// A line that is in the service's file, and as what.
package struct CarriedLine: Hashable, Sendable {
  package var file: String, line: Int
  /// As it is called there: `TimeoutStopSec=`.
  package var what: String
  /// The key of the service's file: `stop.timeout`.
  package var key: String
}

/// A line that is not in the service's file as it was, and why.
package struct Remark: Hashable, Sendable, CustomStringConvertible {
  package enum Kind: String, Hashable, Sendable, CaseIterable {
    /// What it asked for is not done.
    case lost
    /// It is done, in another way.
    case changed
    /// Nothing is missing without it.
    case needless
  }
  package var kind: Kind
  package var file: String
  /// Counted from 1; nil: the whole file is meant.
  package var line: Int?
  /// `PrivateTmp=true`, shortened.
  package var what: String
  package var why: String

  package var description: String {
    let place = line.map { "\(file):\($0)" } ?? file
    let verdict =
      switch kind {
      case .lost: "not carried over"
      case .changed: "carried over, with a difference"
      case .needless: "not needed"
      }
    return "\(place): \(what): \(verdict): \(why)"
  }
}

/// One line of somebody else's file, at most so long in a remark.
func brief(_ text: String) -> String {
  let most = 60
  var shown = ""
  for scalar in text.unicodeScalars.prefix(most) {
    let plain =
      scalar.value >= 0x20 && !(0x7f...0x9f).contains(scalar.value) && !(0x2000...0x206f).contains(scalar.value)
      && scalar.value != 0xfeff
    shown.unicodeScalars.append(plain ? scalar : " ")
  }
  return text.unicodeScalars.count > most ? shown + "…" : shown
}

/// A valid name of a service that is as near to `text` as can be.
func serviceName(_ text: String) -> String {
  var name: [UInt8] = []
  for byte in text.utf8.prefix(64) {
    switch byte {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"): name.append(byte | 0x20)
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"): name.append(byte)
    case UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "@"), UInt8(ascii: "-"):
      if !name.isEmpty { name.append(byte) }
    default: if !name.isEmpty { name.append(UInt8(ascii: "-")) }
    }
  }
  while let last = name.last, last == UInt8(ascii: "@") || last == UInt8(ascii: "-") { name.removeLast() }
  return name.isEmpty ? "service" : String(decoding: name, as: UTF8.self)
}
