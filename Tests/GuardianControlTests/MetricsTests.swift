import GuardianControl
import GuardianModel
import Glibc
import Testing

@Suite struct `metrics` {
  private let samples: [MetricSample] = {
    var ready = Histogram()
    for milliseconds in [5, 80, 80, 90_000, 100_000_000] { ready.observe(.milliseconds(milliseconds), in: .ready) }
    return [
      MetricSample(.build, ["1.0"], 1), MetricSample(.start, [], 1_772_366_400_250_000), MetricSample(.turns, [], 12),
      ready.sample(.ready),
      MetricSample(.strikes, ["web", "exit"], 3), MetricSample(.settled, ["web"], 0),
      MetricSample(.strikes, ["we\"b\\\n", "signal"], 1), MetricSample(.backoff, ["web"], 1_500_000),
    ]
  }()

  @Test func `are OpenMetrics, each family in one piece, with labels that nothing breaks`() {
    #expect(
      renderMetrics(samples, format: .openMetrics).text == #"""
        # TYPE guardian_build info
        # HELP guardian_build The version of guardian.
        guardian_build_info{version="1.0"} 1
        # TYPE guardian_start_time_seconds gauge
        # UNIT guardian_start_time_seconds seconds
        # HELP guardian_start_time_seconds When guardian's program was started, or took over from another one: counters begin then.
        guardian_start_time_seconds 1772366400.25
        # TYPE guardian_turns counter
        # HELP guardian_turns Turns of guardian's loop.
        guardian_turns_total 12
        # TYPE guardian_time_to_ready_seconds histogram
        # UNIT guardian_time_to_ready_seconds seconds
        # HELP guardian_time_to_ready_seconds From a start to ready, of all services.
        guardian_time_to_ready_seconds_bucket{le="0.01"} 1
        guardian_time_to_ready_seconds_bucket{le="0.05"} 1
        guardian_time_to_ready_seconds_bucket{le="0.1"} 3
        guardian_time_to_ready_seconds_bucket{le="0.5"} 3
        guardian_time_to_ready_seconds_bucket{le="1.0"} 3
        guardian_time_to_ready_seconds_bucket{le="5.0"} 3
        guardian_time_to_ready_seconds_bucket{le="10.0"} 3
        guardian_time_to_ready_seconds_bucket{le="30.0"} 3
        guardian_time_to_ready_seconds_bucket{le="60.0"} 3
        guardian_time_to_ready_seconds_bucket{le="300.0"} 4
        guardian_time_to_ready_seconds_bucket{le="1800.0"} 4
        guardian_time_to_ready_seconds_bucket{le="7200.0"} 4
        guardian_time_to_ready_seconds_bucket{le="+Inf"} 5
        guardian_time_to_ready_seconds_count 5
        guardian_time_to_ready_seconds_sum 100090.165
        # TYPE guardian_service_settled gauge
        # HELP guardian_service_settled 1 if it is settled.
        guardian_service_settled{service="web"} 0
        # TYPE guardian_service_strikes counter
        # HELP guardian_service_strikes Strikes by cause.
        guardian_service_strikes_total{service="web",cause="exit"} 3
        guardian_service_strikes_total{service="we\"b\\\n",cause="signal"} 1
        # TYPE guardian_service_backoff_seconds gauge
        # UNIT guardian_service_backoff_seconds seconds
        # HELP guardian_service_backoff_seconds Time left before its next try.
        guardian_service_backoff_seconds{service="web"} 1.5
        # EOF

        """#)
  }

  @Test func `are in the older format without what that does not know`() {
    let text = renderMetrics(samples, format: .prometheus).text
    #expect(text.contains("# TYPE guardian_turns_total counter\n# HELP guardian_turns_total Turns"))
    #expect(text.contains("# TYPE guardian_build_info gauge\n"))
    #expect(!text.contains("# UNIT") && !text.contains("# EOF"))
  }

  @Test func `survive the way from guardian to client`() {
    var bytes: [UInt8] = []
    Reply.metrics(samples, continues: true, into: &bytes)
    let decoded = bytes.dropLast().withUnsafeBufferPointer { decodeMetrics($0) }
    guard case .success(let reply) = decoded else { return #expect(Bool(false), "\(decoded)") }
    #expect(reply.samples == samples && reply.continues)
    for broken in [
      #"{"parameters":{}}"#, #"{"parameters":{"metrics":[{}]}}"#, "nonsense",
      #"{"parameters":{"metrics":[{"name":"guardian_turns","labels":["x"],"value":1}]}}"#,
      #"{"parameters":{"metrics":[{"name":"guardian_turn_seconds","labels":[],"buckets":[1]}]}}"#,
    ] {
      let decoded = Array(broken.utf8).withUnsafeBufferPointer { decodeMetrics($0) }
      if case .success = decoded { #expect(Bool(false), "\(broken)") }
    }
    let newer = Array(#"{"parameters":{"metrics":[{"name":"guardian_tomorrow","labels":["x"],"value":1}]}}"#.utf8)
    guard case .success((let none, false)) = newer.withUnsafeBufferPointer({ decodeMetrics($0) }) else {
      return #expect(Bool(false))
    }
    #expect(none.isEmpty)
  }

  @Test func `have names as OpenMetrics wants them`() {
    #expect(Set(MetricFamily.allCases.map(\.rawValue)).count == MetricFamily.allCases.count)
    for family in MetricFamily.allCases {
      let name = family.rawValue
      for suffix in ["_total", "_count", "_sum", "_bucket", "_info", "_created"] { #expect(!name.hasSuffix(suffix)) }
      #expect(name.utf8.allSatisfy { (0x61...0x7a).contains($0) || $0 == 0x5f }, "\(name)")
      #expect((family.kind == .histogram) == !family.bounds.isEmpty && family.bounds == family.bounds.sorted())
      #expect(!family.help.isEmpty && !family.help.hasSuffix(".") && !family.help.contains("\n"))
    }
  }

  @Test func `are in the manual, each with its type, labels and meaning`() throws {
    let path = String(#filePath.dropLast("Tests/GuardianControlTests/MetricsTests.swift".count)) + "man/guardianctl.1"
    let file = try #require(fopen(path, "r"))
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 1 << 20)
    let page = Array(bytes[..<fread(&bytes, 1, bytes.count, file)]).text
    for family in MetricFamily.allCases {
      let labels = family.labels.isEmpty ? "" : " {" + family.labels.joined(separator: ", ") + "}"
      #expect(
        page.contains(".It Li \(family.rawValue) : No \(family.kind.rawValue)\(labels)\n\(family.help).\n"),
        "\(family.rawValue)")
    }
    let listed = page.split(separator: "\n").count { $0.hasPrefix(".It Li guardian_") }
    #expect(listed == MetricFamily.allCases.count)
  }
}
