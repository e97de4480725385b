/// One of the pieces into which Linux has divided root's power, by its number in the kernel: capabilities(7).
package struct Capability: Hashable, Comparable, Sendable, CustomStringConvertible {
  package let number: UInt32

  /// From `net-bind-service`: the kernel's name in lower case, without `CAP_` and with hyphens.
  package init?(name: String) {
    guard let index = Self.names.firstIndex(of: name) else { return nil }
    number = UInt32(index)
  }

  package static func < (a: Capability, b: Capability) -> Bool { a.number < b.number }
  package var description: String { Int(number) < Self.names.count ? Self.names[Int(number)] : "\(number)" }

  /// In the order of their numbers, as of Linux 5.9, which was the last to add one.
  package static let names = [
    "chown", "dac-override", "dac-read-search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
    "linux-immutable", "net-bind-service", "net-broadcast", "net-admin", "net-raw", "ipc-lock", "ipc-owner",
    "sys-module",
    "sys-rawio", "sys-chroot", "sys-ptrace", "sys-pacct", "sys-admin", "sys-boot", "sys-nice", "sys-resource",
    "sys-time",
    "sys-tty-config", "mknod", "lease", "audit-write", "audit-control", "setfcap", "mac-override", "mac-admin",
    "syslog",
    "wake-alarm", "block-suspend", "audit-read", "perfmon", "bpf", "checkpoint-restore",
  ]
}
