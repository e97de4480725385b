import GuardianControl
import Glibc

/// Standard output is written once, at the end: one whole answer or nothing.
struct Output {
  var bytes: [UInt8] = []
  /// Text for people, and no JSON or a service's own words: in what the locale takes.
  var isText = true

  /// False if the bytes did not all get out; the reason has been told. A reader that is gone needs no telling.
  func flush() -> Bool {
    var rest = isText && !takesUTF8() ? plainASCII(bytes)[...] : bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
      if count >= 0 {
        rest = rest.dropFirst(count)
      } else if errno == EAGAIN {
        var waiting = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
        _ = poll(&waiting, 1, -1)
      } else if errno != EINTR {
        if errno != EPIPE { complain("cannot write the answer: \(reason(errno))") }
        return false
      }
    }
    return true
  }
}

/// One line on standard error, safe for a terminal.
func complain(_ text: String) {
  var line = Array("guardianctl: \(printable(text))\n".utf8)
  if !takesUTF8() { line = plainASCII(line) }
  _ = line.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
}

func reason(_ error: Int32) -> String { String(cString: strerror(error)) }

func variable(_ name: String) -> String? {
  guard let value = getenv(name) else { return nil }
  let text = String(cString: value)
  return text.isEmpty ? nil : text
}

/// How to write to this standard output.
func standardStyle() -> Style { style(of: STDOUT_FILENO) }

/// How to write to this standard error.
func errorStyle() -> Style { style(of: STDERR_FILENO) }

private func style(of descriptor: CInt) -> Style {
  var style = Style()
  let terminal = isatty(descriptor) == 1
  if let given = variable("COLUMNS").flatMap({ Int($0) }), given > 0 {
    style.width = max(20, given)
  } else if terminal {
    var size = winsize()
    style.width = ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0 ? max(20, Int(size.ws_col)) : 80
  }
  style.colour = terminal && variable("NO_COLOR") == nil && variable("TERM") != "dumb"
  style.unicode = takesUTF8()
  return style
}

/// locale(7): the first of these that says something.
func takesUTF8() -> Bool {
  let locale = (variable("LC_ALL") ?? variable("LC_CTYPE") ?? variable("LANG") ?? "").lowercased()
  return locale.hasSuffix("utf-8") || locale.hasSuffix("utf8") || locale.contains(".utf-8@")
}
