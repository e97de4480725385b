/// Which service is due next: a binary heap that knows where each service stands in it, so that moving one deadline
/// among thousands costs a handful of steps.
package struct DeadlineQueue: Sendable {
  private var heap: [(due: Int64, service: Int)] = []
  /// By service; −1 where it has no deadline.
  private var places: [Int32] = []

  package init() {}

  /// The earliest deadline, nanoseconds on the queue's clock.
  package var first: (due: Int64, service: Int)? { heap.first }
  package var count: Int { heap.count }
  package var isEmpty: Bool { heap.isEmpty }
  package func contains(_ service: Int) -> Bool { service < places.count && places[service] >= 0 }

  /// - Parameter due: Nil takes the service out.
  package mutating func set(_ due: Int64?, for service: Int) {
    if due == nil, service >= places.count { return }
    while places.count <= service { places.append(-1) }
    let place = Int(places[service])
    switch (place, due) {
    case (-1, nil): return
    case (-1, let due?):
      heap.append((due, service))
      places[service] = Int32(heap.count - 1)
      rise(heap.count - 1)
    case (_, let due?):
      let before = heap[place].due
      if before == due { return }
      heap[place].due = due
      if due < before { rise(place) } else { sink(place) }
    case (_, nil):
      let last = heap.count - 1
      swap(place, last)
      heap.removeLast()
      places[service] = -1
      if place < heap.count {
        rise(place)
        sink(place)
      }
    }
  }

  private mutating func swap(_ a: Int, _ b: Int) {
    guard a != b else { return }
    heap.swapAt(a, b)
    places[heap[a].service] = Int32(a)
    places[heap[b].service] = Int32(b)
  }

  // Equal deadlines are ordered by service, so that the order never depends on history.
  private func isBefore(_ a: Int, _ b: Int) -> Bool {
    (heap[a].due, heap[a].service) < (heap[b].due, heap[b].service)
  }

  private mutating func rise(_ start: Int) {
    var child = start
    while child > 0 {
      let parent = (child - 1) / 2
      guard isBefore(child, parent) else { return }
      swap(child, parent)
      child = parent
    }
  }

  private mutating func sink(_ start: Int) {
    var parent = start
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count && isBefore(child, least) { least = child }
      guard least != parent else { return }
      swap(parent, least)
      parent = least
    }
  }
}
