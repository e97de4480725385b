/// 64 bits of FNV-1a: the same for the same text in every build and on every machine.
package struct Fingerprint {
  package private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325

  package init() {}

  /// Of bytes as they are, without their number.
  package static func of(_ bytes: some Sequence<UInt8>) -> UInt64 {
    var print = Fingerprint()
    for byte in bytes { print.add(byte) }
    return print.value
  }

  package mutating func add(_ byte: UInt8) { value = (value ^ UInt64(byte)) &* 0x100_0000_01b3 }
  package mutating func add(_ number: UInt64) {
    for shift in stride(from: 0, to: 64, by: 8) { add(UInt8(truncatingIfNeeded: number >> UInt64(shift))) }
  }
  package mutating func add(_ number: Int64) { add(UInt64(bitPattern: number)) }
  package mutating func add(_ text: String) {
    add(UInt64(text.utf8.count))
    for byte in text.utf8 { add(byte) }
  }
  package mutating func add<Element>(_ list: [Element], _ each: (inout Fingerprint, Element) -> Void) {
    add(UInt64(list.count))
    for element in list { each(&self, element) }
  }
  /// Nothing and something never look alike.
  package mutating func add<Value>(_ value: Value?, _ some: (inout Fingerprint, Value) -> Void) {
    add(UInt8(value == nil ? 0 : 1))
    if let value { some(&self, value) }
  }
}

extension ProcessSpec {
  /// Tells one definition of a process from the next, also across builds of guardian. Never 0.
  package var fingerprint: UInt64 {
    var print = Fingerprint()
    print.add(command) { $0.add($1) }
    print.add(identity) { print, identity in
      print.add(identity.user)
      print.add(UInt64(identity.uid))
      print.add(UInt64(identity.gid))
      print.add(identity.groups) { $0.add(UInt64($1)) }
      print.add(identity.home)
      print.add(identity.shell)
    }
    print.add(directory) { $0.add($1) }
    func add(_ variables: [EnvironmentVariable], _ print: inout Fingerprint) {
      print.add(variables) { print, variable in
        print.add(variable.name)
        print.add(variable.value)
      }
    }
    add(environment, &print)
    print.add(environmentFiles) { print, file in
      print.add(file.path)
      print.add(UInt8(file.optional ? 1 : 0))
    }
    print.add(UInt64(umask))
    print.add(limits) { print, limit in
      print.add(limit.resource.rawValue)
      print.add(limit.value)
    }
    // Nothing where there are none, so that the print of a definition without them stays what it was.
    for (name, limit) in [
      ("memory", groupLimits.memory), ("tasks", groupLimits.tasks), ("cpu-weight", groupLimits.cpuWeight),
    ] {
      guard let limit else { continue }
      print.add(name)
      print.add(limit)
    }
    print.add(oomScoreAdjust) { $0.add(Int64($1)) }
    print.add(nice) { $0.add(Int64($1)) }
    func add(_ plugin: PluginSpec, _ print: inout Fingerprint) {
      print.add(plugin.name)
      add(plugin.environment, &print)
      print.add(plugin.arguments) { $0.add($1) }
      print.add(plugin.hide) { $0.add($1) }
      func addList<Element>(_ word: String, _ list: [Element], _ each: (inout Fingerprint, Element) -> Void) {
        if list.isEmpty { return }
        print.add(word)
        print.add(list, each)
      }
      addList("unset", plugin.unset) { $0.add($1) }
      addList("remove-from", plugin.removeFrom) { print, removal in
        switch removal.list {
        case .variable(let name):
          print.add(UInt8(0))
          print.add(name)
        case .argument(let option):
          print.add(UInt8(1))
          print.add(option)
        }
        print.add(removal.item)
        print.add(removal.separator)
      }
      addList("preload", plugin.preload) { $0.add($1) }
      addList("remove-arguments", plugin.removeArguments) { $0.add($1) { $0.add($1) } }
      addList("replace-arguments", plugin.replaceArguments) { print, replacement in
        print.add(replacement.from) { $0.add($1) }
        print.add(replacement.to) { $0.add($1) }
      }
      addList("empty", plugin.empty) { $0.add($1) }
      addList("good-copy", plugin.goodCopy) { $0.add($1) }
    }
    // What is found in a directory is no part of the definition.
    print.add(plugins.filter { $0.entry == nil }) { add($1, &$0) }
    if let directory = pluginDirectory {
      print.add("plugins.directory")
      print.add(directory.path)
      print.add(directory.only) { $0.add($1) }
      print.add(directory.way) { add($1, &$0) }
    }
    // What a definition does not use leaves its print as an earlier guardian made it.
    if !capabilities.isEmpty {
      print.add("capabilities")
      print.add(capabilities) { $0.add(UInt64($1.number)) }
    }
    if !sockets.isEmpty {
      print.add("sockets")
      print.add(sockets) { $0.add($1) }
    }
    if !beforeStart.isEmpty {
      print.add("before-start")
      print.add(beforeStart) { $0.add($1) }
    }
    return print.value == 0 ? 1 : print.value
  }
}
