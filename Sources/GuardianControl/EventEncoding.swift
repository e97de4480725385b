package import GuardianModel

/// An event as clients see it.
package struct EventRecord: Hashable, Sendable {
  package var id: EventID
  package var at: WallTime
  package var service: String
  /// The kind's stable word.
  package var name: String
  /// One sentence, without the service's name.
  package var text: String
  /// One JSON object.
  package var details: [UInt8]
  package init(id: EventID, at: WallTime, service: String, name: String, text: String, details: [UInt8]) {
    self.id = id
    self.at = at
    self.service = service
    self.name = name
    self.text = text
    self.details = details
  }
  package init(_ occurrence: Occurrence) {
    self.init(
      id: occurrence.id, at: occurrence.at, service: occurrence.service.text, name: occurrence.name,
      text: occurrence.sentence, details: occurrence.detailsJSON)
  }
}

/// The members are those of `type Event`.
package func encode(_ event: EventRecord, into json: inout JSONWriter) {
  json.beginObject()
  json.key("id")
  json.string(event.id.description)
  json.key("at")
  json.time(event.at)
  json.key("service")
  json.string(event.service)
  json.key("name")
  json.string(event.name)
  json.key("text")
  json.string(cut(event.text, 2048))
  json.key("details")
  json.verbatim(event.details)
  json.endObject()
}
