import GuardianModel
import Testing

@testable import GuardianRuntime

@Suite struct `what is measured` {
  private let id = ServiceID(3)
  private func at(_ milliseconds: Int) -> Instant { Instant.zero + .milliseconds(milliseconds) }
  private func run(_ number: UInt64) -> RunID { RunID(high: 0, low: number) }
  private func end(_ number: UInt64, _ cause: Cause) -> End {
    End(
      run: run(number), status: .code(1), cause: cause, crashClass: .errorExit, at: WallTime(nanoseconds: 0),
      uptime: .zero)
  }
  private func told(_ measures: Measures, at now: Int) -> [String: Int64] {
    var status = ServiceStatus(name: "web")
    status.phase = .backingOff
    status.next = .init(action: "start", at: WallTime(nanoseconds: 0), inMilliseconds: 250)
    var found: [String: Int64] = [:]
    for sample in measures.service(id, status, now: at(now)) {
      guard case .number(let value) = sample.value else { continue }
      found[([sample.family.rawValue] + sample.labels.dropFirst()).joined(separator: " ")] = value
    }
    return found
  }

  @Test func `begins with the first trouble, and tells strikes by cause, steps and their time, hooks and restarts`() {
    var measures = Measures(now: WallTime(nanoseconds: 0))
    func hear(_ kind: Occurrence.Kind, _ step: Step, _ time: Int, again: Bool = false) {
      measures.heard(kind, of: id, step: step, again: again, at: at(time))
    }
    hear(.started(run: run(1), pid: 7, kind: .ordinary, disabledPlugins: []), .restart, 0)
    hear(.ready(run: run(1)), .restart, 300)
    #expect(told(measures, at: 400)["guardian_service_restarts"] == 0)
    hear(.ended(end(1, .signal)), .restart, 1000)
    hear(.strike(step: .restart, count: 1, allowed: 3), .restart, 1000)
    hear(.started(run: run(2), pid: 8, kind: .ordinary, disabledPlugins: []), .restart, 1500, again: true)
    hear(.ended(end(2, .exit)), .repair, 2000)
    hear(.strike(step: .restart, count: 2, allowed: 3), .repair, 2000)
    hear(.repairEnded(hook: run(9), name: "mend", result: .timedOut), .repair, 3000)
    hear(.settled(run: run(3), degraded: false), .restart, 6000)
    hear(.escalated(from: .restart, to: .quarantine, skipped: []), .quarantine, 7000)
    let found = told(measures, at: 9000)
    #expect(found["guardian_service_strikes signal"] == 1 && found["guardian_service_strikes exit"] == 1)
    #expect(found["guardian_service_restarts"] == 1)
    #expect(found["guardian_service_hooks repair mend timed-out"] == 1)
    #expect(found["guardian_service_step_seconds repair"] == 4_000_000)
    #expect(found["guardian_service_step_seconds quarantine"] == 2_000_000)
    #expect(found["guardian_service_backoff_seconds"] == 250_000)
    var counts: [MetricFamily: (Int64, Int64)] = [:]
    for case let sample in measures.host(now: at(9000)) {
      if case .histogram(let buckets, let sum) = sample.value { counts[sample.family] = (buckets.reduce(0, +), sum) }
    }
    #expect(counts[.ready]?.0 == 1 && counts[.ready]?.1 == 300_000)
    // From the first strike to the settling.
    #expect(counts[.recovery]?.0 == 1 && counts[.recovery]?.1 == 5_000_000)
    measures.forget(id)
    #expect(told(measures, at: 9000)["guardian_service_strikes exit"] == nil)
  }
}
