/// A large value that never changes and that many hold: one copy, counted references.
package final class Shared<Value: Hashable & Sendable>: Hashable, Sendable {
  package let value: Value
  package init(_ value: Value) { self.value = value }
  package static func == (a: Shared, b: Shared) -> Bool { a === b || a.value == b.value }
  package func hash(into hasher: inout Hasher) { hasher.combine(value) }
}
