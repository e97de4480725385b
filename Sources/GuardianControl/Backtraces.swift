package import GuardianModel

// What others have written down about a crash, as frames. All of it is outside text: bounded, and never trusted.

/// What Swift's own backtracer has written as JSON; nil for anything else.
///
/// Addresses in a frame are made relative to the module, since a module is somewhere else each time.
package func parseSwiftBacktrace(_ bytes: UnsafeBufferPointer<UInt8>) -> CrashReport.Backtrace? {
  let parsed = withJSON(bytes) { root -> CrashReport.Backtrace? in
    guard root["kind"]?.string == "crashReport" else { return nil }
    var backtrace = CrashReport.Backtrace()
    backtrace.source = "swift-backtrace"
    backtrace.says = bounded(root["description"]?.string ?? "")
    var images: [String: (base: UInt64, buildID: String)] = [:]
    for image in root["images"].map({ Array($0.elements.prefix(1024)) }) ?? [] {
      guard let name = image["name"]?.string else { continue }
      images[name] = (image["baseAddress"]?.string.flatMap(hexadecimal) ?? 0, bounded(image["buildId"]?.string ?? ""))
    }
    let threads = root["threads"].map { Array($0.elements.prefix(4096)) } ?? []
    guard let thread = threads.first(where: { $0["crashed"]?.bool ?? false }) ?? threads.first else { return nil }
    for frame in thread["frames"].map({ Array($0.elements.prefix(CrashReport.Backtrace.mostFrames)) }) ?? [] {
      guard let address = frame["address"]?.string.flatMap(hexadecimal) else { continue }
      let module = bounded(frame["image"]?.string ?? "")
      var one = StackFrame(module: module)
      one.buildID = images[module]?.buildID ?? ""
      one.offset = address &- (images[module]?.base ?? 0)
      one.functionOffset = frame["offset"]?.integer.flatMap { UInt64(exactly: $0) }
      one.function = bounded(function(of: frame))
      if let place = frame["sourceLocation"], let file = place["file"]?.string, let line = place["line"]?.integer,
        line > 0
      {
        one.place = "\(bounded(file)):\(line)"
      }
      backtrace.frames.append(one)
    }
    if let address = root["faultAddress"]?.string.flatMap(hexadecimal) {
      let registers = thread["registers"]
      let pointer = registers?["rsp"] ?? registers?["sp"] ?? registers?["esp"]
      backtrace.access = BadAccess(address: address, stackPointer: pointer?.string.flatMap(hexadecimal))
    }
    if backtrace.frames.isEmpty { backtrace.missing = "swift-backtrace has found no frames" }
    return backtrace
  }
  if case .success(let backtrace) = parsed { return backtrace }
  return nil
}

/// `inner(_:_:) + 47` without the offset; the mangled name where there is nothing better.
private func function(of frame: JSONValue) -> String {
  guard var text = frame["description"]?.string else { return frame["symbol"]?.string ?? "" }
  if let plus = text.utf8.lastIndex(of: UInt8(ascii: "+")) {
    let tail = text[text.index(after: plus)...]
    if tail.utf8.dropFirst().allSatisfy({ $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }) {
      text = String(text[..<plus])
      while text.last == " " { text.removeLast() }
    }
  }
  return text
}

/// The entry that systemd-coredump has left in the journal, as `journalctl -o json` prints it; nil where it is none, or
/// of another crash.
///
/// - Parameters:
///   - pid: Of the process that died.
///   - bootID: 32 hexadecimal digits.
///   - since: When it had been started: an older entry is about an earlier owner of the pid.
package func parseCoredumpEntry(
  _ bytes: UnsafeBufferPointer<UInt8>, pid: Int32, bootID: String, since: WallTime
) -> CrashReport.Backtrace? {
  let parsed = withJSON(bytes) { root -> CrashReport.Backtrace? in
    guard root["MESSAGE_ID"]?.string == "fc2e22bc6ee647b6b90729ab34a250b1", root["COREDUMP_PID"]?.string == "\(pid)",
      root["_BOOT_ID"]?.string == bootID,
      let at = root["COREDUMP_TIMESTAMP"]?.string.flatMap({ Int64($0) }), at >= since.nanoseconds / 1000
    else { return nil }
    return coredumpText(text(root["MESSAGE"]))
  }
  if case .success(let backtrace) = parsed { return backtrace }
  return nil
}

/// A field of the journal is text, or a list of bytes where it holds control characters.
private func text(_ value: JSONValue?) -> String {
  if let text = value?.string { return text }
  let bytes = value.map { Array($0.elements.prefix(1 << 20)) } ?? []
  return String(decoding: bytes.compactMap { $0.integer.flatMap { UInt8(exactly: $0) } }, as: UTF8.self)
}

/// The first thread in it is the one that crashed.
///
///     Stack trace of thread 4711:
///     #0  0x00007f12 raise (libc.so.6 + 0x3ce1)
///     #1  0x00005612 n/a (/usr/bin/shop + 0x1139)
private func coredumpText(_ message: String) -> CrashReport.Backtrace {
  var backtrace = CrashReport.Backtrace()
  backtrace.source = "systemd-coredump"
  var inside = false
  for line in message.split(separator: "\n", omittingEmptySubsequences: false).prefix(10_000) {
    let line = line.trimmingBlanks
    if line.hasPrefix("Stack trace of thread") {
      if inside { break }
      inside = true
      continue
    }
    guard inside else { continue }
    guard line.hasPrefix("#"), backtrace.frames.count < CrashReport.Backtrace.mostFrames else {
      if backtrace.frames.isEmpty { continue }
      break
    }
    let words = line.split(separator: " ", maxSplits: 2)
    guard words.count == 3, words[1].hasPrefix("0x"), let open = words[2].lastIndex(of: "("), words[2].hasSuffix(")")
    else { continue }
    var frame = StackFrame()
    let name = words[2][..<open].trimmingBlanks
    if name != "n/a" { frame.function = bounded(String(name)) }
    let place = words[2][words[2].index(after: open)...].dropLast().split(separator: " ")
    if let module = place.first, module != "n/a" {
      frame.module = bounded(String(module.split(separator: "/").last ?? module))
    }
    if place.count == 3, place[1] == "+" { frame.offset = hexadecimal(String(place[2])) ?? 0 }
    backtrace.frames.append(frame)
  }
  if backtrace.frames.isEmpty { backtrace.missing = "systemd-coredump has written no stack trace" }
  return backtrace
}

private func hexadecimal(_ text: String) -> UInt64? {
  text.hasPrefix("0x") ? UInt64(text.dropFirst(2), radix: 16) : nil
}

private func bounded(_ text: String) -> String { text.utf8.count > 512 ? String(text.prefix(128)) : text }

extension Substring {
  fileprivate var trimmingBlanks: Substring {
    var text = self
    while text.first == " " { text.removeFirst() }
    while text.last == " " { text.removeLast() }
    return text
  }
}
