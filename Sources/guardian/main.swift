import Glibc
import GuardianRuntime

exit(guardianMain(CommandLine.arguments))
