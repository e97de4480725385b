import CCurl
import GuardianModel

/// An HTTP server answers a GET with a good status, and the body that is asked for.
final class HTTPCheck: ProbeUnderWay {
  private let probe: HTTPProbe
  private let timeout: Duration
  private let transfer: Transfer?

  init(_ probe: HTTPProbe, timeout: Duration, _ curl: Curl) {
    self.probe = probe
    self.timeout = timeout
    transfer = curl.begin { easy, transfer in
      transfer.wantsBody = probe.body != nil
      transfer.hear()
      guardian_curl_text(easy, CURLOPT_URL, probe.url)
      if let unix = probe.unix { guardian_curl_text(easy, CURLOPT_UNIX_SOCKET_PATH, unix) }
      guardian_curl_text(easy, CURLOPT_USERAGENT, "guardian-check")
      guardian_curl_long(easy, CURLOPT_TIMEOUT_MS, Int(max(1, timeout.milliseconds)))
    }
  }

  func look() -> ProbeResult? {
    guard let transfer else { return .notMade("libcurl cannot be set up") }
    guard let code = transfer.code else { return nil }
    guard code == CURLE_OK || code == CURLE_WRITE_ERROR && transfer.cut else {
      return transfer.failure(code, timeout: timeout)
    }
    return Self.judge(probe, status: transfer.status, body: transfer.body)
  }
  func end() { transfer?.end() }

  static func judge(_ probe: HTTPProbe, status: Int, body: [UInt8]) -> ProbeResult {
    let good = probe.statuses.isEmpty ? (200...299).contains(status) : probe.statuses.contains(status)
    guard good else { return .failed("status \(status)") }
    guard let wanted = probe.body else { return .passed("status \(status)") }
    guard contains(body, Array(wanted.utf8)) else {
      return .failed("status \(status), but the body has no '\(oneLine(wanted.utf8.prefix(60)))'")
    }
    return .passed("status \(status), body as wanted")
  }

  private static func contains(_ text: [UInt8], _ part: [UInt8]) -> Bool {
    guard let first = part.first, text.count >= part.count else { return part.isEmpty }
    return (0...(text.count - part.count)).contains { text[$0] == first && text[$0...].starts(with: part) }
  }
}
