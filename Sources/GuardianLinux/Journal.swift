import CSystemd
import Glibc

/// journald's two sockets: one stream for each run's output, and datagrams for guardian's own records.
package enum Journal {
  // Somewhere else for tests.
  package static let streamPath =
    getenv("GUARDIAN_JOURNAL_STREAM").map { String(cString: $0) } ?? "/run/systemd/journal/stdout"
  package static let recordPath =
    getenv("GUARDIAN_JOURNAL_RECORDS").map { String(cString: $0) } ?? "/run/systemd/journal/socket"

  package static var exists: Bool { access(streamPath, W_OK) == 0 }

  /// Connects a stream whose lines carry `identifier` and, unless they begin with `<N>`, priority 6.
  ///
  /// `sd_journal_stream_fd` blocks while journald is stopped; this does not.
  /// - Returns: A blocking descriptor that closes on exec; the caller owns it.
  /// - Throws: `SystemError`, with EAGAIN where journald accepts no more for now.
  /// - Source: systemd's journald-stream.c, "stdout_stream_line": seven header lines.
  package static func openStream(identifier: String) throws(SystemError) -> Int32 {
    let doing = "open a journal stream"
    guard let address = UnixAddress(streamPath) else { throw SystemError(doing, errno: ENAMETOOLONG) }
    let made = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard made >= 0 else { throw SystemError.last(doing) }
    func fail() -> SystemError {
      let error = SystemError.last(doing)
      close(made)
      return error
    }
    guard address.withRaw({ connect(made, $0, $1) }) == 0 else { throw fail() }
    shutdown(made, Int32(SHUT_RD))
    // Identifier, unit, priority, level prefix, and no forwarding to syslog, kmsg or console.
    var header = Array("\(identifier)\n\n6\n1\n0\n0\n0\n".utf8)[...]
    while !header.isEmpty {
      let sent = header.withUnsafeBytes { send(made, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      if sent < 0 && errno == EINTR { continue }
      guard sent > 0 else { throw fail() }
      header = header.dropFirst(sent)
    }
    // The run shares this file description and expects a descriptor that blocks.
    guard fcntl(made, F_SETFL, 0) == 0 else { throw fail() }
    return made
  }

  /// `dev:inode`, as JOURNAL_STREAM has it; nil for what cannot be looked at.
  package static func streamName(of descriptor: Int32) -> String? {
    var about = stat()
    return fstat(descriptor, &about) == 0 ? "\(about.st_dev):\(about.st_ino)" : nil
  }
}

/// Guardian's own records, in journald's native form; never waits.
package final class JournalRecords {
  private let descriptor: Int32
  private let address: UnixAddress

  /// Nil where there is no journal.
  package init?() {
    guard access(Journal.recordPath, W_OK) == 0, let address = UnixAddress(Journal.recordPath) else { return nil }
    let made = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard made >= 0 else { return nil }
    descriptor = made
    self.address = address
  }
  deinit { close(descriptor) }

  /// Longer ones would have to be handed over as a file, which no record of guardian's is worth.
  package static let largest = 8192

  /// A field that does not fit into `largest` bytes is left out.
  /// - Returns: False where the record was lost: journald is gone, or its queue is full.
  package func send(_ fields: [(String, String)]) -> Bool {
    var bytes: [UInt8] = []
    for (name, value) in fields where bytes.count + name.utf8.count + value.utf8.count + 10 <= Self.largest {
      bytes += name.utf8
      if value.utf8.contains(UInt8(ascii: "\n")) {
        bytes.append(UInt8(ascii: "\n"))
        withUnsafeBytes(of: UInt64(value.utf8.count).littleEndian) { bytes += $0 }
      } else {
        bytes.append(UInt8(ascii: "="))
      }
      bytes += value.utf8
      bytes.append(UInt8(ascii: "\n"))
    }
    let sent = address.withRaw { target, length in
      sendto(descriptor, bytes, bytes.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL), target, length)
    }
    return sent == bytes.count
  }
}

/// Writes to standard error without ever waiting for its reader.
package enum StandardError {
  package static let isTerminal = isatty(2) == 1

  /// Nobody is at the other end any more.
  package static var isBroken: Bool {
    var state = pollfd(fd: 2, events: 0, revents: 0)
    return poll(&state, 1, 0) == 1 && state.revents & Int16(POLLERR | POLLHUP | POLLNVAL) != 0
  }

  /// - Returns: False where it would have blocked or failed; nothing, or only a part, was written then.
  package static func write(_ text: String) -> Bool {
    var rest = Array(text.utf8.prefix(4096))[...]
    while !rest.isEmpty {
      var ready = pollfd(fd: 2, events: Int16(POLLOUT), revents: 0)
      // A pipe that polls as writable takes PIPE_BUF bytes without blocking; a line of guardian's is shorter.
      guard poll(&ready, 1, 0) == 1, ready.revents & Int16(POLLOUT) != 0 else { return false }
      let written = rest.withUnsafeBytes { Glibc.write(2, $0.baseAddress, $0.count) }
      if written < 0 && errno == EINTR { continue }
      guard written > 0 else { return false }
      rest = rest.dropFirst(written)
    }
    return true
  }
}
