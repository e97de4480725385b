import GuardianModel
import Testing

@Suite struct `what is kept apart` {
  private struct Owner: Hashable, Sendable {
    @Rare var list: [Int]?
  }

  @Test func `is a value like any other`() {
    var a = Owner()
    #expect(a.list == nil && a == Owner())
    a.list = [1]
    var b = a
    b.list?.append(2)
    #expect(a.list == [1] && b.list == [1, 2] && a != b)
    b.list?.removeLast()
    #expect(a == b && a.hashValue == b.hashValue)
    b.list = nil
    #expect(b == Owner() && a.list == [1])
  }

  @Test func `takes the room of a reference`() {
    #expect(MemoryLayout<Owner>.size == MemoryLayout<Int>.size)
  }
}
