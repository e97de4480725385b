/// A signal by its Linux number (x86-64 and the other ports that share its table).
package struct Signal: Hashable, Sendable, CustomStringConvertible {
  package let number: Int32
  /// Nil outside 1 … 64.
  package init?(number: Int32) {
    guard (1...64).contains(number) else { return nil }
    self.number = number
  }
  private init(known number: Int32) { self.number = number }

  package static let hup = Signal(known: 1), int = Signal(known: 2), quit = Signal(known: 3)
  package static let ill = Signal(known: 4), trap = Signal(known: 5), abrt = Signal(known: 6)
  package static let bus = Signal(known: 7), fpe = Signal(known: 8), kill = Signal(known: 9)
  package static let usr1 = Signal(known: 10), segv = Signal(known: 11), usr2 = Signal(known: 12)
  package static let pipe = Signal(known: 13), term = Signal(known: 15), cont = Signal(known: 18)
  package static let xcpu = Signal(known: 24), xfsz = Signal(known: 25), sys = Signal(known: 31)

  package static let names: [String] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
  ]

  /// From `TERM` or `SIGTERM`, in upper case.
  package init?(name: String) {
    let short = name.hasPrefix("SIG") ? String(name.dropFirst(3)) : name
    guard let index = Self.names.firstIndex(of: short) else { return nil }
    number = Int32(index) + 1
  }
  /// Without `SIG`: `TERM`; real-time signals by number: `RT34`.
  package var description: String {
    number <= Int32(Self.names.count) ? Self.names[Int(number) - 1] : "RT\(number)"
  }
}
