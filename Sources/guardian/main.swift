import Glibc
import GuardianRuntime

exit(guardianMain())
