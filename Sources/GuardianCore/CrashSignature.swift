package import GuardianModel

/// What a crash looks like, for grouping and for `Signature.strong`.
///
/// Source: "Crash signature". Equal for equal ends, whatever the addresses, numbers and times in them.
///
/// - Parameters:
///   - frames: Innermost first, of the thread that crashed; empty: not known.
///   - lastLine: The last line of output that says something; counts only where there are no useful frames.
package func signature(of end: End, frames: [StackFrame], lastLine: String) -> Signature {
  let useful = usefulFrames(frames)
  var print = Fingerprint()
  // Without frames the finer class hangs by a source that may tell it of one crash and not of the next.
  print.add(useful.isEmpty ? end.crashClass.coarse.rawValue : end.crashClass.rawValue)
  print.add(end.cause.name)
  switch end.status {
  case .code(let code): print.add("exit \(code)")
  case .signal(let signal, _): print.add("signal \(signal.number)")
  case .unseen: print.add("unseen")
  }
  if case .exec(let failure) = end.cause { print.add("\(failure.stage.name) \(failure.errno) \(failure.target)") }
  guard useful.isEmpty else {
    print.add(useful) { print, frame in
      print.add(frame.buildID.isEmpty ? frame.module : frame.buildID)
      // A function's name survives another build; so does where it starts, but for what was changed before it.
      if !frame.function.isEmpty {
        print.add(frame.function)
      } else {
        print.add(frame.offset &- (frame.functionOffset ?? 0))
      }
    }
    return Signature(value: print.value, strong: useful.count >= 2)
  }
  print.add(normalised(lastLine))
  return Signature(value: print.value, strong: false)
}

/// At most five, without those that every crash of the kind has.
package func usefulFrames(_ frames: [StackFrame]) -> [StackFrame] {
  Array(frames.lazy.filter { !isNoise($0) }.prefix(5))
}

private let noise: Set<String> = [
  "raise", "gsignal", "abort", "pthread_kill", "__pthread_kill", "__pthread_kill_implementation", "tgkill",
  "__pthread_kill_internal", "__libc_message", "__assert_fail", "__assert_fail_base", "__assert", "__fortify_fail",
  "__stack_chk_fail", "__restore_rt", "__libc_start_main", "__libc_start_call_main", "_start", "malloc_printerr",
  "malloc", "calloc", "realloc", "free", "cfree", "_int_malloc", "_int_free", "_int_realloc", "malloc_consolidate",
  "unlink_chunk", "sysmalloc", "__libc_malloc", "__libc_free", "operator new", "operator delete", "__GI_raise",
  "__GI_abort", "__GI___assert_fail", "std::terminate", "__cxa_throw", "__verbose_terminate_handler",
]
private let noisyBeginnings = [
  "__asan_", "__tsan_", "__ubsan_", "__sanitizer_", "__interceptor_", "swift_runtime_", "swift::runtime::",
  "_swift_runtime_", "Swift._assertionFailure", "Swift.assertionFailure", "_swift_stdlib_reportFatalError",
  "swift_unexpectedError", "$ss17_assertionFailure", "$ss18_fatalErrorMessage", "closure #1 in _assertionFailure",
  "_assertionFailure", "_fatalErrorMessage", "__gnu_cxx::", "__cxxabiv1::",
]
/// Closures and specializations of Swift's own failures have words before the name.
private let noisyParts = ["_assertionFailure(", "_fatalErrorMessage(", "assertionFailure<", "_swift_runtime_"]

private func isNoise(_ frame: StackFrame) -> Bool {
  if frame.module.isEmpty, frame.function.isEmpty, frame.buildID.isEmpty { return true }
  if frame.function.isEmpty {
    // Without a name nothing of the C library tells one crash from another.
    let library = frame.module
    return library.hasPrefix("libc.so") || library.hasPrefix("libc-") || library.hasPrefix("ld-linux")
      || library.hasPrefix("libpthread") || library.hasPrefix("linux-vdso") || library == "[vdso]"
  }
  let name = frame.function
  return noise.contains(name) || noisyBeginnings.contains { name.hasPrefix($0) }
    || noisyParts.contains { name.contains($0) }
}

/// A line without what is another each time: numbers, addresses, times, identifiers become `#`.
package func normalised(_ line: String) -> String {
  var result = ""
  var word = ""
  func isWordly(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: ":"), UInt8(ascii: "."), UInt8(ascii: "+"),
      UInt8(ascii: "_"), 0x80...:
      true
    default: false
    }
  }
  func flush() {
    result += reduced(word)
    word = ""
  }
  for character in line.prefix(512) {
    if character.utf8.allSatisfy(isWordly) {
      word.append(character)
    } else {
      flush()
      // How many blanks there are depends on the width of a number.
      if character.isWhitespace {
        if result.last != " " { result += " " }
      } else {
        result.append(character)
      }
    }
  }
  flush()
  while result.last == " " { result.removeLast() }
  return result
}

private func reduced(_ word: String) -> String {
  func isDigit(_ byte: UInt8) -> Bool { byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9") }
  guard word.utf8.contains(where: isDigit) else { return word }
  // An address, an identifier, a time, a version: digits with what may stand between them.
  let whole = word.utf8.allSatisfy { byte in
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
      UInt8(ascii: "A")...UInt8(ascii: "F"), UInt8(ascii: "-"), UInt8(ascii: ":"), UInt8(ascii: "."), UInt8(ascii: "+"),
      UInt8(ascii: "x"), UInt8(ascii: "T"), UInt8(ascii: "Z"):
      true
    default: false
    }
  }
  if whole { return "#" }
  var result = ""
  var inNumber = false
  for character in word {
    if character.utf8.allSatisfy(isDigit) {
      if !inNumber { result += "#" }
      inNumber = true
    } else {
      result.append(character)
      inNumber = false
    }
  }
  return result
}
