package import GuardianModel

extension WallTime {
  /// Reads what `appendRFC3339` writes, to the millisecond; nil for anything else.
  package init?(rfc3339 text: UnsafeBufferPointer<UInt8>) {
    guard text.count == 24 else { return nil }
    var wrong = false
    func number(_ from: Int, _ count: Int) -> Int {
      var value = 0
      for index in from..<from + count {
        let digit = text[index] &- UInt8(ascii: "0")
        if digit > 9 { wrong = true }
        value = value * 10 + Int(digit)
      }
      return value
    }
    var civil = CivilTime(WallTime(nanoseconds: 0))
    civil.year = number(0, 4)
    civil.month = number(5, 2)
    civil.day = number(8, 2)
    civil.hour = number(11, 2)
    civil.minute = number(14, 2)
    civil.second = number(17, 2)
    civil.millisecond = number(20, 3)
    let marks: [(Int, UInt8)] = [
      (4, UInt8(ascii: "-")), (7, UInt8(ascii: "-")), (10, UInt8(ascii: "T")), (13, UInt8(ascii: ":")),
      (16, UInt8(ascii: ":")), (19, UInt8(ascii: ".")), (23, UInt8(ascii: "Z")),
    ]
    guard !wrong, marks.allSatisfy({ text[$0.0] == $0.1 }), let time = civil.wallTime else { return nil }
    self = time
  }
}
