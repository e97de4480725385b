import CArguments

/// What this program was started with, its name first. Known without /proc, as `CommandLine` is not.
package enum ProgramArguments {
  package static let all: [String] = (0..<guardian_argument_count()).compactMap { index in
    guardian_argument(index).map { String(cString: $0) }
  }
}
