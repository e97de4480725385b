import CCurl
import Glibc
import GuardianLinux
import GuardianModel

/// libcurl, set up when it is first needed: one pool of transfers, driven by the loop of `CheckWorker`.
final class Curl {
  private(set) var pool: UnsafeMutableRawPointer?
  private var transfers: [UnsafeMutableRawPointer: Transfer] = [:]
  private static let ready: Bool = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

  var isBusy: Bool { !transfers.isEmpty }

  /// Nil where libcurl has no memory for it.
  func begin(_ setUp: (UnsafeMutableRawPointer, Transfer) -> Void) -> Transfer? {
    guard Self.ready, let pool = pool ?? curl_multi_init(), let easy = curl_easy_init() else { return nil }
    self.pool = pool
    let transfer = Transfer(easy, self)
    // Neither signals, nor proxies of the environment, nor connections of earlier probes.
    guardian_curl_long(easy, CURLOPT_NOSIGNAL, 1)
    guardian_curl_text(easy, CURLOPT_PROXY, "")
    guardian_curl_long(easy, CURLOPT_FRESH_CONNECT, 1)
    guardian_curl_long(easy, CURLOPT_FORBID_REUSE, 1)
    guardian_curl_text(easy, CURLOPT_PROTOCOLS_STR, "http,https")
    guardian_curl_long(easy, CURLOPT_NOPROGRESS, 1)
    setUp(easy, transfer)
    guard curl_multi_add_handle(pool, easy) == CURLM_OK else { return nil }
    transfers[easy] = transfer
    return transfer
  }

  /// Moves all transfers on, without waiting.
  func advance() {
    guard let pool, isBusy else { return }
    var running: Int32 = 0
    curl_multi_perform(pool, &running)
    var left: Int32 = 0
    while let message = curl_multi_info_read(pool, &left) {
      guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else { continue }
      transfers[easy]?.code = message.pointee.data.result
    }
  }

  /// Waits until a transfer or one of `others` can go on, or `limit` is over.
  func wait(_ others: inout [pollfd], milliseconds limit: Int32) {
    guard let pool, isBusy else {
      _ = poll(&others, nfds_t(others.count), limit)
      return
    }
    var extra = others.map { curl_waitfd(fd: $0.fd, events: Int16(CURL_WAIT_POLLIN), revents: 0) }
    var ready: Int32 = 0
    curl_multi_poll(pool, &extra, UInt32(extra.count), limit, &ready)
    for index in extra.indices { others[index].revents = extra[index].revents }
  }

  fileprivate func drop(_ easy: UnsafeMutableRawPointer) {
    guard transfers.removeValue(forKey: easy) != nil, let pool else { return }
    curl_multi_remove_handle(pool, easy)
  }
}

/// One request of libcurl's.
final class Transfer {
  private let easy: UnsafeMutableRawPointer
  private unowned let curl: Curl
  /// Nil: under way.
  fileprivate(set) var code: CURLcode?
  /// The beginning of the body, up to `most`.
  private(set) var body: [UInt8] = []
  private let most = 65_536
  /// Nobody needs more of the body than has come.
  private(set) var cut = false
  var wantsBody = false

  fileprivate init(_ easy: UnsafeMutableRawPointer, _ curl: Curl) {
    self.easy = easy
    self.curl = curl
  }
  deinit {
    // The pool has let go of it by `end`, or never had it.
    curl_easy_cleanup(easy)
  }

  func end() { curl.drop(easy) }

  var status: Int { guardian_curl_info(easy, CURLINFO_RESPONSE_CODE) }
  var errno: Int32 { Int32(truncatingIfNeeded: guardian_curl_info(easy, CURLINFO_OS_ERRNO)) }

  /// Why it failed, and whether that is trouble of our own.
  func failure(_ code: CURLcode, timeout: Duration) -> ProbeResult {
    let errno = errno
    switch code {
    case CURLE_OPERATION_TIMEDOUT: return .failed("timed out after \(timeout.description)")
    case CURLE_OUT_OF_MEMORY, CURLE_FAILED_INIT: return .notMade("libcurl: \(words(code))")
    default:
      if [EMFILE, ENFILE, ENOMEM, ENOBUFS, EADDRNOTAVAIL].contains(errno) {
        return .notMade("cannot connect: \(ErrnoText.reason(errno))")
      }
      if code == CURLE_COULDNT_CONNECT, errno != 0 { return .failed("cannot connect: \(ErrnoText.reason(errno))") }
      return .failed(words(code))
    }
  }
  private func words(_ code: CURLcode) -> String {
    guard let text = curl_easy_strerror(code) else { return "error \(code.rawValue)" }
    let words = oneLine(String(cString: text).utf8)
    return words.prefix(1).lowercased() + words.dropFirst()
  }

  /// Lets `body` be filled. To be called while the transfer is set up.
  func hear() {
    // The transfer outlives its handle's use of it: `end` comes before the last reference goes.
    let user = Unmanaged.passUnretained(self).toOpaque()
    guardian_curl_write(
      easy,
      { bytes, size, count, user in
        guard let bytes, let user else { return 0 }
        return Unmanaged<Transfer>.fromOpaque(user).takeUnretainedValue().take(
          UnsafeRawBufferPointer(start: bytes, count: size * count))
      }, user)
  }
  private func take(_ bytes: UnsafeRawBufferPointer) -> Int {
    if wantsBody { body += bytes.prefix(most - body.count) }
    // Anything but the number of bytes ends the transfer.
    if !wantsBody || body.count >= most {
      cut = true
      return bytes.count == 0 ? 1 : 0
    }
    return bytes.count
  }
}
