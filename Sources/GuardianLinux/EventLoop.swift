import CSystemd
import Glibc
import GuardianModel

/// The sd-event loop: one thread, one epoll, handlers in order of priority.
///
/// Belongs to the thread that made it. A handler runs to its end; none may block.
package final class EventLoop {
  fileprivate let event: OpaquePointer

  /// - Throws: `SystemError` where epoll is not to be had.
  package init() throws(SystemError) {
    var made: OpaquePointer?
    let result = sd_event_new(&made)
    guard result >= 0, let made else { throw SystemError("make an event loop", errno: -result) }
    event = made
  }

  deinit { sd_event_unref(event) }

  /// Waits for at most `limit` (nil: as long as it takes) and runs the handler of the most important source that is due.
  ///
  /// - Returns: False if nothing was due.
  /// - Source: sd_event_run(3).
  package func runOne(atMost limit: Duration?) throws(SystemError) -> Bool {
    let microseconds = limit.map { UInt64(clamping: max(0, $0.nanoseconds / 1000)) } ?? UInt64.max
    let result = sd_event_run(event, microseconds)
    if result == -EINTR { return true }
    guard result >= 0 else { throw SystemError("run the event loop", errno: -result) }
    return result > 0
  }

  /// Calls `handler` while `events` (EPOLLIN, …; hang-up and error always count) are there. The descriptor is borrowed and
  /// must stay open until the source is gone.
  package func onIO(
    _ descriptor: Int32, _ events: IOEvents, priority: EventPriority, _ handler: @escaping (IOEvents) -> Void
  ) throws(SystemError) -> EventSource {
    let source = EventSource(.io(handler))
    let result = sd_event_add_io(
      event, &source.raw, descriptor, events.rawValue,
      { _, _, revents, userdata in EventSource.fire(userdata, revents) }, source.userdata)
    return try added(source, result, "watch a descriptor", priority)
  }

  /// The signal must be blocked already.
  package func onSignal(
    _ signal: Int32, priority: EventPriority, _ handler: @escaping () -> Void
  ) throws(SystemError) -> EventSource {
    let source = EventSource(.plain(handler))
    let result = sd_event_add_signal(
      event, &source.raw, signal, { _, _, userdata in EventSource.fire(userdata, 0) }, source.userdata)
    return try added(source, result, "watch signal \(signal)", priority)
  }

  /// A timer, off until `arm` is called; fires once per arming.
  package func timer(
    _ clock: TimerClock, priority: EventPriority, _ handler: @escaping () -> Void
  ) throws(SystemError) -> EventSource {
    let source = EventSource(.plain(handler))
    let id = clock == .monotonic ? CLOCK_MONOTONIC : CLOCK_BOOTTIME
    // An accuracy of 1 µs: the kernel's default of 250 ms would be added to every restart.
    let result = sd_event_add_time(
      event, &source.raw, id, UInt64.max - 1, 1, { _, _, userdata in EventSource.fire(userdata, 0) }, source.userdata)
    let ready = try added(source, result, "make a timer", priority)
    ready.disarm()
    return ready
  }

  /// Calls `handler` for what happens in the directory at `path`, with the names concerned (empty: the directory itself).
  ///
  /// - Source: inotify(7); sd-event shares one inotify descriptor among all watches.
  package func onDirectoryChange(
    _ path: String, priority: EventPriority, _ handler: @escaping (String) -> Void
  ) throws(SystemError) -> EventSource {
    let source = EventSource(.named(handler))
    let mask =
      IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF
    let result = sd_event_add_inotify(
      event, &source.raw, path, UInt32(bitPattern: Int32(mask)) | UInt32(IN_ONLYDIR),
      { _, happened, userdata in
        var name = ""
        if let happened, happened.pointee.len > 0 {
          let text = UnsafeRawPointer(happened).advanced(by: MemoryLayout<inotify_event>.size)
          name = String(cString: text.assumingMemoryBound(to: CChar.self))
        }
        return EventSource.fire(userdata, name: name)
      }, source.userdata)
    return try added(source, result, "watch \(path)", priority)
  }

  private func added(
    _ source: EventSource, _ result: Int32, _ doing: String, _ priority: EventPriority
  ) throws(SystemError) -> EventSource {
    guard result >= 0, let raw = source.raw else { throw SystemError(doing, errno: -result) }
    sd_event_source_set_priority(raw, priority.rawValue)
    return source
  }
}

/// Smaller comes first: evidence before suspicion, and people after both.
package enum EventPriority: Int64, Sendable {
  case deaths = -40, evidence = -30, outcomes = -20, control = 0, accept = 10, time = 20
}

package enum TimerClock: Sendable { case monotonic, boot }

package struct IOEvents: OptionSet, Sendable {
  package let rawValue: UInt32
  package init(rawValue: UInt32) { self.rawValue = rawValue }
  package static let read = IOEvents(rawValue: 0x001)
  package static let urgent = IOEvents(rawValue: 0x002)
  package static let write = IOEvents(rawValue: 0x004)
  package static let error = IOEvents(rawValue: 0x008)
  package static let hangUp = IOEvents(rawValue: 0x010)
}

/// One source; taken off the loop when its last reference goes, or earlier by `cancel`.
///
/// A handler that closes its own descriptor cancels the source first: the source itself lives until the handler returns,
/// and while somebody else has a copy of the descriptor the kernel goes on reporting it.
package final class EventSource {
  fileprivate enum Handler {
    case io((IOEvents) -> Void)
    case plain(() -> Void)
    case named((String) -> Void)
  }
  fileprivate var raw: OpaquePointer?
  private let handler: Handler

  fileprivate init(_ handler: Handler) { self.handler = handler }
  deinit { cancel() }

  /// Takes it off the loop now; the handler may do this to its own source.
  package func cancel() {
    if let raw { sd_event_source_disable_unref(raw) }
    raw = nil
  }

  /// The loop's view of this object; it never outlives it, since deinit takes the source off the loop first.
  fileprivate var userdata: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

  fileprivate static func fire(_ userdata: UnsafeMutableRawPointer?, _ events: UInt32 = 0, name: String = "") -> Int32 {
    guard let userdata else { return 0 }
    let source = Unmanaged<EventSource>.fromOpaque(userdata).takeUnretainedValue()
    switch source.handler {
    case .io(let handler): handler(IOEvents(rawValue: events))
    case .plain(let handler): handler()
    case .named(let handler): handler(name)
    }
    return 0
  }

  /// For timers: fires once at or just after `instant` (rounded up to a microsecond).
  package func arm(at nanoseconds: Int64) {
    guard let raw else { return }
    let microseconds = UInt64(clamping: nanoseconds / 1000 + (nanoseconds % 1000 > 0 ? 1 : 0))
    sd_event_source_set_time(raw, microseconds)
    sd_event_source_set_enabled(raw, Int32(SD_EVENT_ONESHOT))
  }
  package func disarm() { if let raw { sd_event_source_set_enabled(raw, Int32(SD_EVENT_OFF)) } }
  /// Nothing is lost of what happens meanwhile; it is reported after `resume`.
  package func pause() { if let raw { sd_event_source_set_enabled(raw, Int32(SD_EVENT_OFF)) } }
  package func resume() { if let raw { sd_event_source_set_enabled(raw, Int32(SD_EVENT_ON)) } }
  /// Fires at most so many times within `interval`; then it waits for the interval's end.
  package func limit(to times: UInt32, within interval: Duration) {
    if let raw { sd_event_source_set_ratelimit(raw, UInt64(clamping: interval.nanoseconds / 1000), times) }
  }
  /// For descriptors: what to wait for from now on.
  package func wait(for events: IOEvents) { if let raw { sd_event_source_set_io_events(raw, events.rawValue) } }
}
