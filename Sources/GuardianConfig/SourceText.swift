import GuardianModel

/// The bytes of a file that are fit for the YAML parser: UTF-8 without a byte order mark and control characters.
struct SourceText {
  let bytes: [UInt8]
  let file: String
  static func checked(_ bytes: [UInt8], file: String, log: inout DiagnosticLog) -> SourceText? {
    SourceText(bytes: bytes, file: file)
  }
}
enum Composer {
  static func compose(_ text: SourceText, log: inout DiagnosticLog) -> Node?? { .some(nil) }
}
struct ServiceDecoder {
  let context: ConfigurationContext
  var log: DiagnosticLog
  let mainFile: String
  mutating func service(named name: ServiceName, root: Node, defaults: Node?) -> ServiceSpec? { nil }
  mutating func host(_ root: Node) -> Node? { nil }
}
