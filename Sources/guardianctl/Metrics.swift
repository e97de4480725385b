import Glibc
import GuardianControl
import GuardianModel

extension Program {
  mutating func metrics(_ invocation: Invocation) -> Int32 {
    if let path = invocation.textfile {
      return MetricsFile(path: path, every: invocation.everyMilliseconds, target: invocation.target).run()
    }
    let samples: [MetricSample]
    do throws(Daemon.Fault) {
      switch try Daemon.connect(to: invocation.target).metrics(patience: 10) {
      case .success(let found): samples = found
      case .failure(let error): return fail(error.exitCode, error.word, error.sentence, json: invocation.json)
      }
    } catch {
      return fail(error, json: invocation.json)
    }
    if invocation.json {
      json { encodeMetrics(samples, into: &$0) }
    } else {
      output.bytes += renderMetrics(samples, format: .openMetrics)
    }
    return ExitCode.done
  }
}

/// The file of a text file collector, written once, or again and again.
private struct MetricsFile {
  let path: String
  /// Nil: once.
  let every: Int64?
  let target: Invocation.Target
  /// Guardian has started this, and is told over standard input of what fails; its end is the end of that.
  private let isCompanion = variable("GUARDIAN_COMPANION") != nil

  func run() -> Int32 {
    var told: Trouble?
    // Guardian may still show what kept the one before this from writing.
    var isFirst = isCompanion
    while true {
      let trouble = write()
      guard let every else {
        if let trouble { complain(trouble.text) }
        return trouble?.exitCode ?? ExitCode.done
      }
      if trouble != told || isFirst { tell(trouble?.text) }
      told = trouble
      isFirst = false
      if !wait(every) { return ExitCode.done }
    }
  }

  private struct Trouble: Equatable {
    var text: String
    var exitCode = ExitCode.failed
  }

  /// - Returns: What has failed.
  private func write() -> Trouble? {
    // A rename would put the file in the place of a device, or of a link that leads elsewhere.
    var there = stat()
    if lstat(path, &there) == 0, there.st_mode & S_IFMT != S_IFREG {
      return Trouble(text: "\(path): there is something that is no regular file; it is left as it is")
    }
    let text: [UInt8]
    do throws(Daemon.Fault) {
      switch try Daemon.connect(to: target).metrics(patience: 10) {
      case .success(let samples): text = renderMetrics(samples, format: .prometheus)
      case .failure(let error): return Trouble(text: error.sentence, exitCode: error.exitCode)
      }
    } catch {
      return Trouble(text: error.text, exitCode: error.exitCode)
    }
    // Beside it, so that the rename is one step. The collector reads only names that end in .prom.
    let new = "\(path).\(getpid()).new"
    unlink(new)
    let descriptor = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o644)
    guard descriptor >= 0 else { return Trouble(text: "\(path): \(reason(errno))") }
    var rest = text[...], problem: Int32 = 0
    while !rest.isEmpty, problem == 0 {
      let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
      if count >= 0 { rest = rest.dropFirst(count) } else if errno != EINTR { problem = errno }
    }
    if close(descriptor) != 0, problem == 0 { problem = errno }
    if problem == 0, rename(new, path) != 0 { problem = errno }
    guard problem != 0 else { return nil }
    unlink(new)
    return Trouble(text: "\(path): \(reason(problem))")
  }

  private func tell(_ trouble: String?) {
    guard isCompanion else {
      complain(trouble ?? "\(path) is written again")
      return
    }
    let bytes = Array((trouble ?? "well").utf8.prefix(512))
    _ = bytes.withUnsafeBytes {
      send(STDIN_FILENO, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
    }
  }

  /// - Returns: False if nobody wants it any more.
  private func wait(_ milliseconds: Int64) -> Bool {
    var input = pollfd(fd: isCompanion ? STDIN_FILENO : -1, events: Int16(POLLIN), revents: 0)
    let ready = poll(&input, 1, Int32(clamping: milliseconds))
    // Guardian sends nothing: what comes is the end.
    return ready <= 0
  }
}

extension Daemon {
  /// All metrics, or a refusal.
  func metrics(patience: Int32) throws(Fault) -> Answer<[MetricSample], ControlError> {
    try send([ControlCall(.metrics, more: true)])
    var samples: [MetricSample] = []
    while true {
      let next: Answer<(samples: [MetricSample], continues: Bool), ReplyFault>?
      var refusal: ControlError?
      do throws(FrameBuffer.Fault) {
        next = try frames.next { bytes in
          let decoded = decodeMetrics(bytes)
          if case .failure = decoded, case .success((.error(let error), _)) = decodeReply(bytes, to: .metrics) {
            refusal = error
          }
          return decoded
        }
      } catch {
        throw .unreachable("guardian's answer is longer than 16 MiB")
      }
      if let refusal { return .failure(refusal) }
      switch next {
      case .success(let chunk)?:
        samples += chunk.samples
        if !chunk.continues { return .success(samples) }
      case .failure(let fault)?: throw .unreachable("cannot understand guardian's answer: \(fault.reason)")
      case nil: try receive(patience: patience)
      }
    }
  }
}
