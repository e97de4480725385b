/// What is still to come, earliest first; among equals in the order in which it was added. A binary heap.
struct EventQueue<Element> {
  private struct Entry {
    var at: Nanoseconds, order: UInt64, element: Element
    func isBefore(_ other: Entry) -> Bool { at != other.at ? at < other.at : order < other.order }
  }
  private var heap: [Entry] = []
  private var order: UInt64 = 0

  var nextTime: Nanoseconds? { heap.first?.at }
  var count: Int { heap.count }

  mutating func add(_ element: Element, at: Nanoseconds) {
    order += 1
    let entry = Entry(at: at, order: order, element: element)
    heap.append(entry)
    var child = heap.count - 1
    while child > 0 {
      let parent = (child - 1) / 2
      guard entry.isBefore(heap[parent]) else { break }
      heap[child] = heap[parent]
      child = parent
    }
    heap[child] = entry
  }

  /// The earliest element, if it is due at `time`.
  mutating func removeFirst(dueAt time: Nanoseconds) -> Element? {
    guard let first = heap.first, first.at <= time, let last = heap.popLast() else { return nil }
    guard !heap.isEmpty else { return first.element }
    var parent = 0
    while true {
      var least = 2 * parent + 1
      guard least < heap.count else { break }
      if least + 1 < heap.count, heap[least + 1].isBefore(heap[least]) { least += 1 }
      guard heap[least].isBefore(last) else { break }
      heap[parent] = heap[least]
      parent = least
    }
    heap[parent] = last
    return first.element
  }
}
