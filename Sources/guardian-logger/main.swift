import CArguments
import CGuardian
import Glibc
import GuardianLogger

// Writes the output of services with `log: file` for guardian, which starts it with a listening socket as its standard
// input. It is of no use by hand.

func leave(_ status: Int32, _ why: String) -> Never {
  let line = Array("guardian-logger: \(why)\n".utf8)
  _ = write(2, line, line.count)
  exit(status)
}

let arguments = (0..<guardian_argument_count()).map { index in
  guardian_argument(index).map { String(cString: $0) } ?? ""
}
umask(0o027)
signal(SIGPIPE, SIG_IGN)
for number in [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2] { signal(number, SIG_IGN) }
// A file that grows beyond a limit is an error of one write.
signal(SIGXFSZ, SIG_IGN)
if arguments.count == 3, arguments[1] == "--compress" { exit(compressLog(arguments[2])) }

var kind: Int32 = 0, listens: Int32 = 0
var length = socklen_t(MemoryLayout<Int32>.size)
guard arguments.count == 1, getsockopt(0, SOL_SOCKET, SO_TYPE, &kind, &length) == 0,
  kind == Int32(SOCK_SEQPACKET.rawValue), getsockopt(0, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0,
  listens != 0
else {
  leave(64, "guardian starts this program by itself; see guardian-logger(8)")
}

// Whoever connects learns from the kernel who has called this last: this process, and not the guardian that made the socket.
listen(0, 16)

/// Beside the socket: `/run/guardian/logger.book`.
func bookPath() -> String? {
  var address = sockaddr_un()
  var length = socklen_t(MemoryLayout<sockaddr_un>.size)
  let answer = withUnsafeMutablePointer(to: &address) { pointer in
    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(0, $0, &length) }
  }
  guard answer == 0, length > 2 else { return nil }
  let path = withUnsafeBytes(of: address.sun_path) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
  guard path.hasPrefix("/"), path.hasSuffix(".sock") else { return nil }
  return path.dropLast(5) + ".book"
}

// Its files are its own, and that is all the right it needs; nobody of the same user looks into it.
let kept = guardian_give_up_power()
if kept < 0 { leave(71, "cannot give up its privileges: \(String(cString: strerror(-kept)))") }
guardian_hide_process()
guardian_use_one_arena()
do {
  try Logger(listener: 0, book: bookPath()).run()
} catch {
  leave(71, "\(error)")
}
