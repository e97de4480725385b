import CArguments
import Glibc
import GuardianControl

// Not `CommandLine`, which needs a /proc.
let arguments = (1..<max(1, guardian_argument_count())).compactMap { index in
  guardian_argument(index).map { String(cString: $0) }
}
// A standard descriptor that is closed would be the next one that is opened, and an answer would go down guardian's own
// socket. What stands in its place cannot be written to, or read from.
for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(descriptor, F_GETFD) < 0 {
  _ = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY)
}
var program = Program(arguments: arguments)
exit(program.run())
