import Glibc
import GuardianModel
import Testing

@testable import GuardianStore

@Test func `what was saved is there for the next instance`() {
  let scratch = Scratch()
  let first = Store(directory: scratch.path, bootID: bootA + "\n")
  let fresh = first.load()
  #expect(fresh.services.isEmpty && fresh.notes.isEmpty && !fresh.lost && fresh.bootID == nil && fresh.generation == 1)
  first.submit(saves: [save("web", strikes: 1)], meta: ["crashes": "3"], now: at(10))
  first.submit(saves: [save("web", strikes: 2, ticket: 2), save("db", strikes: 7, ticket: 9)], now: at(20))
  #expect(first.answers(3).sorted() == [Ticket(1), Ticket(2), Ticket(9)])
  #expect(first.state == .durable)
  first.submit(now: at(30))
  #expect(first.close(orderly: true, now: at(40), within: .seconds(10)))
  #expect(scratch.names == ["guardian.db"])

  let second = Store(directory: scratch.path, bootID: bootA)
  let found = second.load()
  #expect(found.services[name("web")]?.record.strikes == 2)
  #expect(found.services[name("db")]?.record.strikes == 7)
  #expect(found.services[name("web")]?.mark == at(40))
  #expect(found.services[name("web")]?.sameBoot == true)
  #expect(found.meta == ["crashes": "3"] && found.bootID == bootA && found.orderly && found.generation == 2)
  #expect(found.notes == [] && !found.lost)
  #expect(second.close(orderly: false, within: .seconds(10)))

  let third = Store(directory: scratch.path, bootID: bootB)
  let later = third.load()
  #expect(!later.orderly && later.services[name("db")]?.sameBoot == false)
  #expect(third.close(orderly: false, within: .seconds(10)))
}
