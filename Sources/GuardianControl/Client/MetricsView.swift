import CJansson
package import GuardianModel

/// Reads one reply to `Metrics`. Families that this version does not know are passed over.
package func decodeMetrics(
  _ bytes: UnsafeBufferPointer<UInt8>
) -> Answer<(samples: [MetricSample], continues: Bool), ReplyFault> {
  let decoded = withJSON(bytes) { root -> Answer<(samples: [MetricSample], continues: Bool), ReplyFault> in
    guard let list = root["parameters"]?["metrics"], list.isArray else {
      return .failure(ReplyFault(reason: "an answer without metrics"))
    }
    var samples: [MetricSample] = []
    for one in list.elements {
      guard let name = one["name"]?.string else { return .failure(ReplyFault(reason: "a metric without a name")) }
      guard let family = MetricFamily(rawValue: name) else { continue }
      let labels = one["labels"]?.strings ?? []
      guard labels.count == family.labels.count else {
        return .failure(ReplyFault(reason: "\(name) has other labels; is guardian newer than guardianctl?"))
      }
      if let value = one["value"]?.integer {
        samples.append(MetricSample(family, labels, value))
        continue
      }
      var counts: [Int64] = []
      if let buckets = one["buckets"] { for bucket in buckets.elements { counts.append(bucket.integer ?? 0) } }
      guard family.kind == .histogram, counts.count == family.bounds.count + 1 else {
        return .failure(ReplyFault(reason: "\(name) has no value that can be understood"))
      }
      samples.append(MetricSample(family, labels, .histogram(counts, sum: one["sum"]?.integer ?? 0)))
    }
    return .success((samples, root["continues"]?.bool ?? false))
  }
  switch decoded {
  case .success(let result): return result
  case .failure(let fault): return .failure(ReplyFault(reason: "not JSON: \(fault.reason)"))
  }
}

package enum MetricsFormat: Hashable, Sendable {
  /// OpenMetrics 1.0.
  case openMetrics
  /// What Prometheus had before it, which the text file collector of node_exporter reads.
  case prometheus
}

/// All samples of a family together, families in the order of the table; the order of samples is kept.
package func renderMetrics(_ samples: [MetricSample], format: MetricsFormat) -> [UInt8] {
  var families: [MetricFamily: [MetricSample]] = [:]
  for sample in samples { families[sample.family, default: []].append(sample) }
  var text: [UInt8] = []
  for family in MetricFamily.allCases {
    let found = families[family] ?? []
    if found.isEmpty { continue }
    let open = format == .openMetrics
    // The older format knows a family by the name of its samples.
    let suffix =
      switch family.kind {
      case .counter: "_total"
      case .info: "_info"
      case .gauge, .histogram: ""
      }
    let name = open ? family.rawValue : family.rawValue + suffix
    let kind = !open && family.kind == .info ? "gauge" : family.kind.rawValue
    text += "# TYPE \(name) \(kind)\n".utf8
    if open, !family.unit.isEmpty { text += "# UNIT \(name) \(family.unit)\n".utf8 }
    text += "# HELP \(name) \(family.help).\n".utf8
    for sample in found {
      switch sample.value {
      case .number(let value):
        text += "\(family.rawValue)\(suffix)\(labels(sample)) \(decimal(value, family.scale))\n".utf8
      case .histogram(let counts, let sum):
        var total: Int64 = 0
        for (index, count) in counts.enumerated() {
          total &+= count
          let bound = index < family.bounds.count ? decimal(family.bounds[index], family.scale, point: true) : "+Inf"
          text += "\(family.rawValue)_bucket\(labels(sample, le: bound)) \(total)\n".utf8
        }
        text += "\(family.rawValue)_count\(labels(sample)) \(total)\n".utf8
        text += "\(family.rawValue)_sum\(labels(sample)) \(decimal(sum, family.scale))\n".utf8
      }
    }
  }
  if format == .openMetrics { text += "# EOF\n".utf8 }
  return text
}

private func labels(_ sample: MetricSample, le: String? = nil) -> String {
  var parts = zip(sample.family.labels, sample.labels).map { "\($0)=\"\(escaped($1))\"" }
  if let le { parts.append("le=\"\(le)\"") }
  return parts.isEmpty ? "" : "{" + parts.joined(separator: ",") + "}"
}

/// Backslashes, quotes and line ends, as both formats want it.
private func escaped(_ text: String) -> String {
  var result = ""
  for scalar in text.unicodeScalars {
    switch scalar {
    case "\\": result += "\\\\"
    case "\"": result += "\\\""
    case "\n": result += "\\n"
    default: result.unicodeScalars.append(scalar)
    }
  }
  return result
}

/// - Parameter point: `1.0` for one: OpenMetrics wants bounds so.
private func decimal(_ value: Int64, _ scale: Int64, point: Bool = false) -> String {
  if scale == 1 { return "\(value)" }
  let whole = value.magnitude / scale.magnitude, part = value.magnitude % scale.magnitude
  let sign = value < 0 ? "-" : ""
  if part == 0 { return sign + "\(whole)" + (point ? ".0" : "") }
  var digits = String(part + scale.magnitude).dropFirst()
  while digits.last == "0" { digits.removeLast() }
  return sign + "\(whole)." + digits
}
