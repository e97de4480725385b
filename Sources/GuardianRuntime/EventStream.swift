import GuardianControl
import GuardianModel
import GuardianStore

/// The newest events, each encoded once for all who follow them.
struct EventStream {
  struct Entry {
    var id: EventID
    var service: ServiceName
    /// One whole reply.
    var bytes: [UInt8]
  }
  /// What a follower may be behind.
  static let kept = 1024
  /// Dropped at once, so that not every event moves all the others.
  static let step = 256

  private var entries: [Entry] = []
  /// How many have been dropped.
  private(set) var start = 0
  var end: Int { start + entries.count }

  mutating func append(_ occurrence: Occurrence) {
    var bytes: [UInt8] = []
    Reply.events(CollectionOfOne(EventRecord(occurrence)), continues: true, into: &bytes)
    entries.append(Entry(id: occurrence.id, service: occurrence.service, bytes: bytes))
  }

  /// Nobody follows any more.
  mutating func clear() {
    start += entries.count
    entries = []
  }

  /// Drops the oldest where there are too many; readers that have not got so far have missed them.
  mutating func trim(_ readers: some Sequence<EventReader>) {
    while entries.count > Self.kept {
      for reader in readers { reader.miss(entries[..<Self.step], from: start) }
      entries.removeFirst(Self.step)
      start += Self.step
    }
  }

  /// Moves what the reader has not had yet to `output`, until that holds `bound` bytes.
  func read(_ reader: EventReader, into output: inout [UInt8], until bound: Int) {
    var index = max(0, reader.position - start)
    while index < entries.count, output.count < bound {
      let entry = entries[index]
      index += 1
      // What the history had told already may be here too.
      guard reader.wants(entry) else { continue }
      if reader.missed > 0 {
        Reply.events(EmptyCollection<EventRecord>(), missed: reader.missed, continues: true, into: &output)
        reader.missed = 0
      }
      output += entry.bytes
      reader.query.after = entry.id
    }
    reader.position = start + index
  }
}

/// One client's way through the events: first the history, page by page, then what comes.
final class EventReader {
  enum Stage {
    /// The next page is to be asked for.
    case due
    case asking
    case live
  }
  var stage = Stage.due
  /// `after` is the last event that it has been told.
  var query = EventQuery()
  let follows: Bool
  let more: Bool
  /// Said where nothing at all is found: a name that nobody has.
  var unknown: String?
  /// The client has not said since when: without a history there is still what comes.
  let isOpen: Bool
  /// Empty: of all that the client may look at.
  let services: [ServiceName]
  private let names: Set<ServiceName>
  /// Of the client, as they are now.
  private(set) var rights = Rights()
  /// Of the stream: the next to be read.
  var position = 0
  var missed = 0

  init(_ names: [ServiceName], follows: Bool, more: Bool, isOpen: Bool) {
    services = names
    query.limit = Reply.eventsAtOnce
    self.names = Set(names)
    self.follows = follows
    self.more = more
    self.isOpen = isOpen
  }

  func wants(_ entry: EventStream.Entry) -> Bool {
    entry.id > query.after && (names.isEmpty || names.contains(entry.service))
      && rights.may(.view, on: entry.service)
  }

  /// - Returns: False if there is nothing any more that the client may be told.
  func go(by rights: Rights) -> Bool {
    self.rights = rights
    if rights.host >= .view {
      query.services = services
      return true
    }
    query.services =
      services.isEmpty
      ? rights.services.filter { $0.value >= .view }.keys.sorted()
      : services.filter { rights.may(.view, on: $0) }
    return !query.services.isEmpty
  }

  /// - Parameter start: The position of the first of `entries`.
  fileprivate func miss(_ entries: ArraySlice<EventStream.Entry>, from start: Int) {
    let end = start + entries.count
    guard position < end else { return }
    // While the history is being asked, what is missed here is what the next page may still have.
    for (offset, entry) in entries.enumerated() where start + offset >= position && wants(entry) { missed += 1 }
    position = end
  }
}
