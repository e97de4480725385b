/// Which crash this is: the same for two ends of one kind, and another for others.
package struct Signature: Hashable, Sendable {
  /// 64 bits, the same in every build and on every machine.
  package var value: UInt64
  /// At least two frames of the program speak for it. Weak ones only group.
  package var strong: Bool
  package init(value: UInt64, strong: Bool) {
    self.value = value
    self.strong = strong
  }
}

extension Signature: CustomStringConvertible {
  /// 16 hexadecimal digits.
  package var description: String {
    let text = String(value, radix: 16)
    return String(repeating: "0", count: 16 - text.count) + text
  }

  /// - Parameter text: As `description` writes it.
  package init?(_ text: some StringProtocol, strong: Bool) {
    guard text.utf8.count == 16, let value = UInt64(text, radix: 16), !text.hasPrefix("+") else { return nil }
    self.init(value: value, strong: strong)
  }
}

/// One frame of a backtrace, innermost first.
package struct StackFrame: Hashable, Sendable {
  /// The file name of the program or library; empty: not known.
  package var module: String
  /// Hexadecimal; empty: not known.
  package var buildID: String
  /// Empty: not known.
  package var function: String
  /// Of the code, from the start of the module.
  package var offset: UInt64
  /// From the start of the function; nil: not known.
  package var functionOffset: UInt64?
  /// `FILE:LINE`; empty: not known.
  package var place: String
  package init(
    module: String = "", buildID: String = "", function: String = "", offset: UInt64 = 0, functionOffset: UInt64? = nil,
    place: String = ""
  ) {
    self.module = module
    self.buildID = buildID
    self.function = function
    self.offset = offset
    self.functionOffset = functionOffset
    self.place = place
  }
}

/// What the evidence of a death says about it.
package struct Finding: Hashable, Sendable {
  /// Finer than what the wait status told; nil: it stays.
  package var crashClass: CrashClass?
  package var signature: Signature?
  /// What the changes since the last healthy run say of plugins.
  package var plugins: [PluginHint] = []
  package init(crashClass: CrashClass? = nil, signature: Signature? = nil) {
    self.crashClass = crashClass
    self.signature = signature
  }
}
