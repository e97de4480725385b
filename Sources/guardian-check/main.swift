import Glibc
import GuardianChecks
import GuardianLinux

// Makes the looks of health checks for guardian, which starts it with a socket as its standard input and tells it what
// to look at. It is of no use by hand.

func leave(_ status: Int32, _ why: String) -> Never {
  let line = Array("guardian-check: \(why)\n".utf8)
  _ = write(2, line, line.count)
  exit(status)
}

var kind: Int32 = 0
var length = socklen_t(MemoryLayout<Int32>.size)
guard getsockopt(0, SOL_SOCKET, SO_TYPE, &kind, &length) == 0, kind == Int32(SOCK_SEQPACKET.rawValue) else {
  leave(64, "guardian starts this program by itself; see guardian.yaml(5), checks")
}
// Whoever has the same user must not be able to answer in its place.
OwnProcess.hideFromOthers()
do {
  try CheckWorker(socket: 0).run()
} catch {
  leave(71, "\(error)")
}
