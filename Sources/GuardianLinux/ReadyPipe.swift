import Glibc

/// The pipe into which a service writes a newline when it is ready. The service holds both ends of it, as one descriptor.
///
/// So whoever writes never gets SIGPIPE, should guardian have gone meanwhile; and as long as the service has it open, what
/// has been written into it is not lost, and the next guardian can listen again.
package enum ReadyPipe {
  /// The same pipe, to be read and written. Nil where /proc is not there: then the writing end has to do. The caller owns
  /// the new descriptor, and still owns `end`. open(2) of /proc/self/fd/N.
  package static func withReader(_ end: Int32) -> Int32? {
    let both = open("/proc/self/fd/\(end)", O_RDWR | O_CLOEXEC)
    return both < 0 ? nil : both
  }

  /// The reading end of what descriptor `number` of process `pid` is, if that is such a pipe. Not blocking; the caller owns
  /// it. Nil where it is closed, is anything else, or may not be looked at.
  package static func reopen(_ number: Int32, of pid: Int32) -> Int32? {
    guard let about = FileText.read("/proc/\(pid)/fdinfo/\(number)", limit: 4096) else { return nil }
    // No program opens a pipe of its own so.
    guard let flags = Self.flags(in: about), flags & O_ACCMODE == O_RDWR else { return nil }
    let path = "/proc/\(pid)/fd/\(number)"
    var kind = stat()
    guard stat(path, &kind) == 0, kind.st_mode & S_IFMT == S_IFIFO else { return nil }
    let end = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    return end < 0 ? nil : end
  }

  /// `flags:	02100002`, octal. proc(5).
  static func flags(in text: [UInt8]) -> Int32? {
    for line in text.split(separator: UInt8(ascii: "\n")) where line.starts(with: Array("flags:".utf8)) {
      let digits = line.dropFirst(6).filter { $0 != UInt8(ascii: "\t") && $0 != UInt8(ascii: " ") }
      return Int32(String(decoding: digits, as: UTF8.self), radix: 8)
    }
    return nil
  }
}
