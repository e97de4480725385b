import GuardianControl
import Glibc

var program = Program(arguments: Array(CommandLine.arguments.dropFirst()))
exit(program.run())
