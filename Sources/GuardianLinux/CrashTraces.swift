import Glibc
package import GuardianModel

/// What the kernel's log says of a process that died by a fault of its own. May take some milliseconds: not for the loop.
package enum KernelLog {
  package struct Crash: Hashable, Sendable {
    package var access: BadAccess?
    /// Where it was; nil: the kernel does not say.
    package var frame: StackFrame?
  }

  /// - Parameter pid: As the kernel counts it, so that nothing is found from inside of a pid namespace.
  package static func crash(of pid: Int32) -> Crash? {
    let raw = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    if raw < 0 { return nil }
    let log = OwnedFD(adopting: raw)
    var found: Crash?
    var record = [UInt8](repeating: 0, count: 8192)
    // Each read is one record; the ring has an end, though it may be written while it is read.
    for _ in 0..<100_000 {
      let count = read(log.number, &record, record.count)
      if count < 0, errno == EPIPE || errno == EINVAL { continue }
      if count <= 0 { break }
      if let crash = crash(in: record[..<count], pid: pid) { found = crash }
    }
    return found
  }

  /// `4,12,34,-;shop[4711]: segfault at 10 ip 0000… sp 00007ffc… error 4 in shop[1132,5559…+1000]`, and
  /// `…;traps: shop[4711] trap divide error ip:5559… sp:7ffc… error:0 in shop[1132,5559…+1000]`.
  static func crash(in record: ArraySlice<UInt8>, pid: Int32) -> Crash? {
    let mark = Array("[\(pid)]".utf8)
    guard record.count > mark.count,
      let start = (record.startIndex...(record.endIndex - mark.count)).first(where: {
        record[$0..<$0 + mark.count].elementsEqual(mark)
      })
    else { return nil }
    let text = String(decoding: record[(start + mark.count)...].prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
    let words = text.split(separator: " ")
    func value(_ name: String) -> UInt64? {
      for (index, word) in words.enumerated() {
        if word == name, index + 1 < words.count { return UInt64(words[index + 1], radix: 16) }
        if word.hasPrefix(name + ":") { return UInt64(word.dropFirst(name.count + 1), radix: 16) }
      }
      return nil
    }
    guard let place = value("ip") else { return nil }
    var crash = Crash()
    if text.hasPrefix(": segfault at "), let address = value("at") {
      crash.access = BadAccess(address: address, stackPointer: value("sp"))
    }
    if let last = words.lastIndex(of: "in"), last + 1 < words.count { crash.frame = frame(words[last + 1], place) }
    return crash
  }

  /// `shop[1132,5559ae931000+1000]`: the offset in the file, and where it is mapped; without the offset before Linux 6.9.
  private static func frame(_ text: Substring, _ place: UInt64) -> StackFrame? {
    guard let open = text.firstIndex(of: "["), text.hasSuffix("]") else { return nil }
    let numbers = text[text.index(after: open)...].dropLast().split(separator: ",")
    guard let mapping = numbers.last?.split(separator: "+").first, let base = UInt64(mapping, radix: 16) else {
      return nil
    }
    let offset = numbers.count > 1 ? UInt64(numbers[0], radix: 16) : nil
    return StackFrame(module: String(text[..<open]), offset: offset ?? place &- base)
  }
}

/// Directories into which the crashing programs themselves write: one for each service, its user's own.
package struct TraceDirectories: Sendable {
  let path: String

  /// - Parameter path: Made where it is not there; nobody but root can list it.
  package init(path: String) throws(SystemError) {
    self.path = path
    if mkdir(path, 0o711) != 0, errno != EEXIST { throw SystemError.last("make the directory", path) }
  }

  /// Makes the directory of a service ready for its next run.
  package func prepare(_ service: ServiceName, uid: UInt32, gid: UInt32) -> String? {
    let own = path + "/" + service.text
    if mkdir(own, 0o700) != 0, errno != EEXIST { return nil }
    var about = stat()
    guard lstat(own, &about) == 0, about.st_mode & S_IFMT == S_IFDIR else { return nil }
    if about.st_uid != uid || about.st_gid != gid { guard lchown(own, uid, gid) == 0 else { return nil } }
    return own
  }

  /// The newest report of process `pid`, at most 4 MiB; afterwards there is none of anybody. May block: not for the loop.
  ///
  /// Nothing in there is trusted: no link is followed, and only plain files are read.
  package func take(_ service: ServiceName, pid: Int32) -> [UInt8]? {
    let raw = open(path + "/" + service.text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    if raw < 0 { return nil }
    guard let list = fdopendir(raw) else {
      close(raw)
      return nil
    }
    defer { closedir(list) }
    var best: (name: String, at: Int)?
    var names: [String] = []
    while names.count < 1024, let entry = readdir(list) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name == "." || name == ".." { continue }
      names.append(name)
      guard name.hasSuffix(".json"), name.split(separator: "-").contains("\(pid)") else { continue }
      var about = stat()
      guard fstatat(raw, name, &about, AT_SYMLINK_NOFOLLOW) == 0, about.st_mode & S_IFMT == S_IFREG else { continue }
      if best.map({ about.st_mtim.tv_sec >= $0.at }) ?? true { best = (name, about.st_mtim.tv_sec) }
    }
    var bytes: [UInt8]?
    if let best {
      let file = openat(raw, best.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
      if file >= 0 {
        let descriptor = OwnedFD(adopting: file)
        bytes = FileText.readAll(descriptor.number, limit: 4 << 20)
      }
    }
    for name in names { if unlinkat(raw, name, 0) != 0 { _ = unlinkat(raw, name, AT_REMOVEDIR) } }
    return bytes
  }
}

/// Whether the kernel hands core dumps to systemd-coredump, which then writes to the journal.
package enum CoreDumps {
  package static var goToSystemd: Bool {
    FileText.text("/proc/sys/kernel/core_pattern", limit: 4096)?.contains("systemd-coredump") ?? false
  }
}

/// A program that was named, or is found on a path; nil where it is not there.
package enum ProgramSearch {
  package static func find(_ name: String, in directories: [String]) -> String? {
    directories.map { $0 + "/" + name }.first { access($0, X_OK) == 0 }
  }
}

extension ProcessLook {
  /// For people: `pid 4711 (sh)`.
  package var naming: String {
    let name = FileText.text("/proc/\(pid)/comm", limit: 64).map { $0.filter { $0 != "\n" } } ?? ""
    return "pid \(pid)" + (name.isEmpty ? "" : " (\(name))")
  }
}

package enum OpenDescriptors {
  /// Without a look at each of them; nil where the kernel does not tell (before 6.2).
  package static func count(of pid: Int32) -> Int? {
    var about = stat()
    guard stat("/proc/\(pid)/fd", &about) == 0, about.st_size > 0 else { return nil }
    return Int(about.st_size)
  }
}
