import Glibc
import Testing

private let doomed = """
  command: [/bin/sh, -c, "exit 3"]
  backoff: {first: 10ms, max: 10ms}
  quarantine: {retry-after: never}
  log: inherit

  """

extension PatientPrograms {
  @Suite struct `metrics` {
    private func settled(_ guardian: Guardian) async throws {
      try await guardian.wait(for: "doomed", "is quarantined") { $0["phase"].string == "quarantined" }
    }

    @Test
    func `are printed, and written to a file for as long as guardian.yaml says so, whatever happens to the writer`()
      async throws
    {
      let scratch = try Scratch(), directory = scratch.path + "/metrics", file = directory + "/guardian.prom"
      let guardian = try await Guardian(
        scratch, services: ["steady": "command: [/bin/sleep, \"1000\"]\nlog: inherit\n", "doomed": doomed],
        host: "metrics: {textfile: \(file), every: 1s}\n")
      // The directory is not there: that is told, and harms nobody.
      func warning() async throws -> String? {
        let summary = try JSON(try await guardian.control("--json", "status").output)["summary"]
        return summary["warnings"].array.compactMap(\.string).first { $0.hasPrefix("metrics are not written: ") }
      }
      let told = try await eventually("the trouble is told") { try await warning() }
      #expect(told.contains(file) && told.hasSuffix("No such file or directory"))
      try await settled(guardian)
      let printed = try await guardian.control("metrics")
      #expect(printed.code == 0 && printed.error == "" && printed.output.hasSuffix("\n# EOF\n"))
      for line in [
        #"guardian_service_strikes_total{service="doomed",cause="exit"} 7"#,
        #"guardian_services{state="quarantined"} 1"#,
        #"guardian_service_quarantined{service="doomed"} 1"#, #"guardian_service_step{service="doomed"} 3"#,
        #"guardian_service_quarantined{service="steady"} 0"#, #"guardian_service_restarts_total{service="doomed"} 6"#,
      ] {
        #expect(printed.output.contains("\n\(line)\n"), "\(line) in \(printed.output)")
      }

      _ = try scratch.directory("metrics")
      let written = try await eventually("the file is written") { () -> String? in
        Files.exists(file) ? try Files.read(file) : nil
      }
      #expect(written.contains(#"guardian_service_strikes_total{service="doomed",cause="exit"} 7"#))
      #expect(try await eventually("the trouble is over") { try await warning() == nil ? true : nil })
      if let promtool = Place.program("promtool") {
        let lint = try await run(["/bin/sh", "-c", "exec \(promtool) check metrics < \(file)"])
        #expect(lint.code == 0, "\(lint)")
      }

      // A writer that dies is started again; with the key it goes.
      func writer() -> Int32? {
        children(of: guardian.process.pid).first {
          (try? Files.read("/proc/\($0)/cmdline"))?.contains("--textfile") ?? false
        }
      }
      let first = try await eventually("there is a writer") { writer() }
      Glibc.kill(first, SIGKILL)
      _ = try await eventually("there is another one") { writer().flatMap { $0 == first ? nil : $0 } }
      #expect(try await eventually("the new one has told that it writes") { try await warning() == nil ? true : nil })
      try Files.write("", to: scratch.path + "/config/guardian.yaml")
      #expect(try await guardian.control("reload").code == 0)
      _ = try await eventually("it has gone") { writer() == nil ? () : nil }
      #expect(Files.names(in: directory) == ["guardian.prom"])
      try await guardian.stop()
    }

    @Test(
      .enabled(
        if: Place.program("prometheus") != nil, "not shown: Prometheus is not there; make programs unpacks it"))
    func `are read by a real Prometheus`() async throws {
      let scratch = try Scratch(), port = try freePort()
      let guardian = try await Guardian(scratch, services: ["doomed": doomed])
      try await settled(guardian)
      let listener = try Listener()
      try Files.write(
        """
        global: {scrape_interval: 1s}
        scrape_configs:
          - job_name: guardian
            static_configs: [{targets: ["127.0.0.1:\(listener.port)"]}]

        """, to: scratch.path + "/prometheus.yml")
      let prometheus = try Process(
        [
          Place.program("prometheus") ?? "", "--config.file=\(scratch.path)/prometheus.yml",
          "--storage.tsdb.path=\(scratch.path)/tsdb", "--web.listen-address=127.0.0.1:\(port)", "--log.level=warn",
        ], output: scratch.path + "/prometheus.log")
      defer { prometheus.end() }
      func ask(_ query: String) async throws -> String {
        try await run([
          "/usr/bin/curl", "-sS", "--max-time", "5", "http://127.0.0.1:\(port)/api/v1/query?query=\(query)",
        ]).output
      }
      let answer = try await eventually("Prometheus knows the strikes") { () -> String? in
        if let client = listener.accept() {
          let text = try await guardian.control("metrics").output
          client.answer("application/openmetrics-text; version=1.0.0; charset=utf-8", text)
        }
        let found = try await ask("guardian_service_strikes_total")
        return found.contains(#""service":"doomed""#) ? found : nil
      }
      #expect(answer.contains(#""cause":"exit""#) && answer.contains(#","7"]"#), "\(answer)")
      #expect(try await ask("guardian_time_to_ready_seconds_count").contains("guardian_time_to_ready_seconds_count"))
      #expect(try await ask("guardian_build_info").contains(#""version":"#))
      prometheus.end()
      try await guardian.stop()
    }
  }
}

/// HTTP as far as one scrape needs it.
private final class Listener {
  private let raw: Int32
  let port: UInt16

  init() throws {
    raw = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let listening = withUnsafeMutablePointer(to: &address) { [raw] pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(raw, $0, length) == 0 && listen(raw, 8) == 0 && getsockname(raw, $0, &length) == 0
      }
    }
    port = UInt16(bigEndian: address.sin_port)
    guard listening else { throw Failure.errno("listen") }
  }
  deinit { close(raw) }

  func accept() -> Client? {
    let client = Glibc.accept(raw, nil, nil)
    return client < 0 ? nil : Client(raw: client)
  }

  struct Client {
    let raw: Int32
    func answer(_ type: String, _ body: String) {
      var buffer = [UInt8](repeating: 0, count: 8192)
      _ = recv(raw, &buffer, buffer.count, 0)
      let text =
        "HTTP/1.1 200 OK\r\nContent-Type: \(type)\r\nContent-Length: \(body.utf8.count)\r\nConnection: close\r\n\r\n"
        + body
      let bytes = Array(text.utf8)
      _ = send(raw, bytes, bytes.count, Int32(MSG_NOSIGNAL))
      close(raw)
    }
  }
}
