import CSystemd
import Glibc

/// One thread for jobs that may block: loading configuration, looking at files. Answers by eventfd, on the loop.
///
/// Jobs run one after the other, in the order in which they were given.
package final class Worker {
  /// What the two threads share; every access holds the lock.
  private final class Shared: @unchecked Sendable {
    // Allocated, since a C lock must not move.
    let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    let wake = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    var jobs: [(UInt64, @Sendable () -> any Sendable)] = []
    var results: [(UInt64, any Sendable)] = []
    let eventDescriptor: Int32
    init(eventDescriptor: Int32) {
      self.eventDescriptor = eventDescriptor
      pthread_mutex_init(lock, nil)
      pthread_cond_init(wake, nil)
    }
  }
  private let shared: Shared
  private var waiting: [UInt64: (any Sendable) -> Void] = [:]
  private var nextNumber: UInt64 = 0
  private var source: EventSource?
  /// More than a reload and one look at each watched file: reached only if the disk hangs.
  private static let queueBound = 1024

  /// Starts the thread; every signal that matters must be blocked by now, so that none is delivered to it.
  package init(loop: EventLoop) throws(SystemError) {
    let descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
    guard descriptor >= 0 else { throw SystemError.last("make an eventfd") }
    shared = Shared(eventDescriptor: descriptor)
    source = try loop.onIO(descriptor, .read, priority: .outcomes) { [unowned self] _ in collect() }
    var thread = pthread_t()
    let result = pthread_create(
      &thread, nil,
      { argument in
        if let argument { Worker.run(Unmanaged<Shared>.fromOpaque(argument).takeRetainedValue()) }
        return nil
      }, Unmanaged.passRetained(shared).toOpaque())
    guard result == 0 else { throw SystemError("start the worker thread", errno: result) }
    pthread_detach(thread)
  }

  /// No job waits, is under way, or has come to a result that was not heard.
  package var isIdle: Bool { waiting.isEmpty }

  /// Runs `job` on the thread and then `done` on the loop.
  ///
  /// - Returns: False, and nothing happens, if too many jobs are waiting.
  package func submit<Result: Sendable>(
    _ job: @escaping @Sendable () -> Result, then done: @escaping (Result) -> Void
  ) -> Bool {
    guard waiting.count < Self.queueBound else { return false }
    nextNumber += 1
    waiting[nextNumber] = { result in if let result = result as? Result { done(result) } }
    pthread_mutex_lock(shared.lock)
    shared.jobs.append((nextNumber, job))
    pthread_cond_signal(shared.wake)
    pthread_mutex_unlock(shared.lock)
    return true
  }

  private func collect() {
    var count: UInt64 = 0
    _ = read(shared.eventDescriptor, &count, 8)
    pthread_mutex_lock(shared.lock)
    let results = shared.results
    shared.results = []
    pthread_mutex_unlock(shared.lock)
    for (number, result) in results { waiting.removeValue(forKey: number)?(result) }
  }

  private static func run(_ shared: Shared) {
    while true {
      pthread_mutex_lock(shared.lock)
      while shared.jobs.isEmpty { pthread_cond_wait(shared.wake, shared.lock) }
      let (number, job) = shared.jobs.removeFirst()
      pthread_mutex_unlock(shared.lock)
      let result = job()
      pthread_mutex_lock(shared.lock)
      shared.results.append((number, result))
      pthread_mutex_unlock(shared.lock)
      var one: UInt64 = 1
      while write(shared.eventDescriptor, &one, 8) < 0, errno == EINTR {}
    }
  }
}
