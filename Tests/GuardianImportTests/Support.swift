import Glibc
import GuardianConfig
import GuardianImport
import GuardianModel
import Testing

/// What guardian makes of an imported service, on a machine that has every user and path.
func spec(_ service: ImportedService, sourceLocation: SourceLocation = #_sourceLocation) throws -> ServiceSpec {
  let name = try #require(ServiceName(service.name), sourceLocation: sourceLocation)
  let someone = Identity(user: "web", uid: 1000, gid: 1000, groups: [1000], home: "/home/web", shell: "/bin/sh")
  let parsed = Configuration.parseService(
    name: name, bytes: Array(service.yaml.utf8), file: service.name + ".yaml",
    context: ConfigurationContext(resolveUser: { _, _ in .success(someone) }))
  let errors = parsed.diagnostics.filter { $0.severity == .error }.map(\.description)
  #expect(errors == [], "\(service.yaml)", sourceLocation: sourceLocation)
  return try #require(parsed.spec, "\(service.yaml)", sourceLocation: sourceLocation)
}

func unit(_ text: String, named name: String = "web.service", services: Set<String> = []) -> Imported {
  UnitSource(unit: name, files: [ImportedFile(name: name, text: text)], host: "box.example", services: services)
    .imported
}

/// The one service of it.
func only(_ imported: Imported, sourceLocation: SourceLocation = #_sourceLocation) throws -> ImportedService {
  try #require(
    imported.services.count == 1 ? imported.services.first : nil, "\(imported)", sourceLocation: sourceLocation)
}

extension Imported {
  /// Places of which nothing was said, of those that say anything.
  func unmentioned(_ files: [ImportedFile], isComment: (String) -> Bool) -> [String] {
    var told: Set<String> = []
    for remark in remarks + services.flatMap(\.remarks) {
      if let line = remark.line { told.insert("\(remark.file):\(line)") }
    }
    for line in services.flatMap(\.carried) { told.insert("\(line.file):\(line.line)") }
    var missing: [String] = []
    for file in files {
      var open = false
      for (index, line) in file.text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
        let bare = String(line.drop { $0 == " " || $0 == "\t" })
        let goesOn = open
        if !bare.hasPrefix("#") { open = line.hasSuffix("\\") }
        if bare.isEmpty || goesOn || isComment(bare) || told.contains("\(file.name):\(index + 1)") { continue }
        missing.append("\(file.name):\(index + 1): \(line)")
      }
    }
    return missing
  }
}

let repository = String(#filePath.dropLast("Tests/GuardianImportTests/Support.swift".count))

func read(_ path: String) -> String? {
  guard let file = fopen(repository + path, "r") else { return nil }
  defer { fclose(file) }
  var bytes = [UInt8](repeating: 0, count: 1 << 20)
  let count = fread(&bytes, 1, bytes.count, file)
  return String(decoding: bytes[..<count], as: UTF8.self)
}
