import CGuardian
import Glibc

/// News of debuggers: who traces whom.
///
/// A process that dies under a tracer is reported to its parent only after the tracer has let go of it, so a look at its
/// end is always too late; the kernel's own news comes when a tracer attaches. Nothing else wakes anybody.
package final class TracerWatch {
  private let descriptor: OwnedFD
  private var source: EventSource?
  private let heard: (_ process: Int32, _ tracer: Int32) -> Void

  /// Nil where the kernel gives no news: without CAP_NET_ADMIN, or in a container.
  ///
  /// - Parameter heard: A process and its new tracer; 0: none any more.
  package init?(loop: EventLoop, heard: @escaping (_ process: Int32, _ tracer: Int32) -> Void) {
    let raw = guardian_tracers_open()
    if raw < 0 { return nil }
    descriptor = OwnedFD(adopting: raw)
    self.heard = heard
    source = try? loop.onIO(raw, .read, priority: .evidence) { [unowned self] _ in hear() }
    if source == nil { return nil }
  }

  deinit { source = nil }  // before its descriptor

  /// Takes the news that is there: before a death is judged, which wakes the loop together with it.
  package func hear() {
    var process: Int32 = 0, tracer: Int32 = 0
    // ENOBUFS says that news was lost in a flood; what follows is as good as ever.
    while guardian_tracers_read(descriptor.number, &process, &tracer) == 1 { heard(process, tracer) }
  }
}

/// Who traces a process, until either is gone.
///
/// The kernel gives no news of a tracer that exits, and one that has seen the process die may be gone, and its number
/// another's, before anybody asks. Its own end is waited for instead: if the process is alive then, it goes on untraced.
package final class Tracer {
  private let handle: OwnedFD
  private var source: EventSource?

  /// Nil: it is gone already, or cannot be watched.
  ///
  /// - Parameter gone: Called at most once, after the deaths of the same turn.
  package init?(_ pid: Int32, loop: EventLoop, gone: @escaping () -> Void) {
    guard pid > 0, let handle = try? ProcessHandle.open(pid) else { return nil }
    self.handle = handle
    source = try? loop.onIO(self.handle.number, .read, priority: .evidence) { [unowned self] _ in
      source?.cancel()
      source = nil
      gone()
    }
    if source == nil { return nil }
  }

  deinit { source?.cancel() }  // before its descriptor
}
