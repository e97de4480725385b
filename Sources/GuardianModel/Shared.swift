/// A large value that never changes and that many hold: one copy, counted references.
package final class Shared<Value: Hashable & Sendable>: Hashable, Sendable {
  package let value: Value
  package init(_ value: Value) { self.value = value }
  package static func == (a: Shared, b: Shared) -> Bool { a === b || a.value == b.value }
  package func hash(into hasher: inout Hasher) { hasher.combine(value) }
}

/// What most values of its owner are without, kept apart so that those need no room for it.
@propertyWrapper package struct Rare<Value: Hashable & Sendable>: Hashable, Sendable {
  private var apart: Shared<Value>?
  package init(wrappedValue: Value?) { apart = wrappedValue.map(Shared.init) }
  package var wrappedValue: Value? {
    get { apart?.value }
    set { apart = newValue.map(Shared.init) }
  }
}
