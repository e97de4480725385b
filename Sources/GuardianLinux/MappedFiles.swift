import Glibc

/// The programs and libraries that a process runs code of.
enum MappedFiles {
  struct File: Hashable {
    var path: String
    /// What is mapped is under that name no more: it has been replaced or removed since.
    var isDeleted: Bool
  }

  static let most = 64

  /// In the order of their addresses, each once; empty where nothing can be seen. proc(5), /proc/PID/maps.
  static func of(_ pid: Int32) -> [File] {
    FileText.read("/proc/\(pid)/maps", limit: 4 << 20).map(parse) ?? []
  }

  /// `7f…-7f… r-xp 00028000 fe:00 1234   /usr/lib/libc.so.6`
  static func parse(_ text: [UInt8]) -> [File] {
    var files: [File] = []
    var seen: Set<String> = []
    for line in text.split(separator: UInt8(ascii: "\n")) {
      let fields = line.split(separator: UInt8(ascii: " "), maxSplits: 5)
      guard fields.count == 6, fields[1].count >= 3, fields[1][fields[1].startIndex + 2] == UInt8(ascii: "x"),
        // What has no inode is no file.
        !fields[4].elementsEqual([UInt8(ascii: "0")])
      else { continue }
      var path = String(decoding: fields[5].drop { $0 == UInt8(ascii: " ") }, as: UTF8.self)
      let mark = " (deleted)"
      let isDeleted = path.hasSuffix(mark)
      if isDeleted { path.removeLast(mark.count) }
      guard path.hasPrefix("/"), !path.hasPrefix("/memfd:"), seen.insert(path).inserted else { continue }
      files.append(File(path: path, isDeleted: isDeleted))
      if files.count == most { break }
    }
    return files
  }
}
