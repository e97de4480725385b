import CArguments
import Glibc
import GuardianControl

// Not `CommandLine`, which needs a /proc.
let arguments = (1..<max(1, guardian_argument_count())).compactMap { index in
  guardian_argument(index).map { String(cString: $0) }
}
var program = Program(arguments: arguments)
exit(program.run())
