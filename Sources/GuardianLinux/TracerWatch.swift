import CGuardian
import Glibc

/// News of debuggers: who traces whom.
///
/// A process that dies under a tracer is reported to its parent only after the tracer has let go of it, so a look at its
/// end is always too late; the kernel's own news comes when a tracer attaches. Nothing else wakes anybody.
package final class TracerWatch {
  private let descriptor: OwnedFD
  private var source: EventSource?

  /// Nil where the kernel gives no news: without CAP_NET_ADMIN, or in a container.
  ///
  /// - Parameter heard: A process and its new tracer; 0: none any more.
  package init?(loop: EventLoop, heard: @escaping (_ process: Int32, _ tracer: Int32) -> Void) {
    let raw = guardian_tracers_open()
    if raw < 0 { return nil }
    descriptor = OwnedFD(adopting: raw)
    source = try? loop.onIO(raw, .read, priority: .evidence) { _ in
      var process: Int32 = 0, tracer: Int32 = 0
      // ENOBUFS says that news was lost in a flood; what follows is as good as ever.
      while guardian_tracers_read(raw, &process, &tracer) == 1 { heard(process, tracer) }
    }
    if source == nil { return nil }
  }

  deinit { source = nil }  // before its descriptor

  /// Whether a tracer is still there, as far as can be told by its number.
  package static func isThere(_ tracer: Int32) -> Bool { tracer > 0 && (kill(tracer, 0) == 0 || errno == EPERM) }
}
