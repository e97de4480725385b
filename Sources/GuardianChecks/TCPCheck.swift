import CCurl
import GuardianModel

/// Somebody accepts a connection, which is closed again at once.
final class TCPCheck: ProbeUnderWay {
  private let timeout: Duration
  private let transfer: Transfer?

  init(_ probe: TCPProbe, timeout: Duration, _ curl: Curl) {
    self.timeout = timeout
    transfer = curl.begin { easy, _ in
      switch probe {
      case .host(let host, let port):
        guardian_curl_text(easy, CURLOPT_URL, "http://\(host.contains(":") ? "[\(host)]" : host):\(port)/")
      case .unix(let path):
        guardian_curl_text(easy, CURLOPT_URL, "http://localhost/")
        guardian_curl_text(easy, CURLOPT_UNIX_SOCKET_PATH, path)
      }
      // Not a byte is sent.
      guardian_curl_long(easy, CURLOPT_CONNECT_ONLY, 1)
      guardian_curl_long(easy, CURLOPT_TIMEOUT_MS, Int(max(1, timeout.milliseconds)))
    }
  }

  func look() -> ProbeResult? {
    guard let transfer else { return .notMade("libcurl cannot be set up") }
    guard let code = transfer.code else { return nil }
    return code == CURLE_OK ? .passed("connected") : transfer.failure(code, timeout: timeout)
  }
  func end() { transfer?.end() }
}
