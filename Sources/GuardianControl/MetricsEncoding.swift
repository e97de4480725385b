package import GuardianModel

extension Reply {
  /// Samples in one reply of a stream, at most, but for those of one service.
  package static let metricsAtOnce = 512

  package static func metrics(_ samples: some Sequence<MetricSample>, continues: Bool, into bytes: inout [UInt8]) {
    message(into: &bytes, continues: continues) { json in encodeMetrics(samples, into: &json) }
  }
}

/// The member `metrics`, as `guardianctl --json metrics` prints it too.
package func encodeMetrics(_ samples: some Sequence<MetricSample>, into json: inout JSONWriter) {
  json.key("metrics")
  json.beginArray()
  for sample in samples {
    json.beginObject()
    json.key("name")
    json.string(sample.family.rawValue)
    json.key("labels")
    json.strings(sample.labels)
    switch sample.value {
    case .number(let value):
      json.key("value")
      json.integer(value)
    case .histogram(let counts, let sum):
      json.key("buckets")
      json.beginArray()
      for count in counts { json.integer(count) }
      json.endArray()
      json.key("sum")
      json.integer(sum)
    }
    json.endObject()
  }
  json.endArray()
}
