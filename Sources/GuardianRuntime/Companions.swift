import Glibc

/// Programs that come with guardian and are started by it.
enum Companions {
  /// Beside guardian's own program, else where an installation has it. Nil: nowhere.
  static func program(_ name: String) -> String? {
    let own = Upgrade.program
    guard let slash = own.lastIndex(of: "/") else { return nil }
    let directory = own[..<slash]
    return ["\(directory)/\(name)", "\(directory)/../libexec/guardian/\(name)"].first { access($0, X_OK) == 0 }
  }
}
