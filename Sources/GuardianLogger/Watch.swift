import Glibc
import GuardianModel

/// Looks after the pipes while a disk keeps the logger waiting, where output is to be dropped then and not to be waited for.
///
/// The logger holds the lock all the time but while it uses the disk or sleeps. Where that takes too long, the thread in
/// here gets the lock now and then, and lets the pipes be emptied by `look`, which touches nothing that the logger is
/// changing meanwhile. It sleeps as long as nobody uses the disk.
final class Watch: @unchecked Sendable {
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let wake = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)
  private var thread: pthread_t?
  // All below only with the lock.
  private var since: Instant?
  private var asleep = true
  private var ended = false
  private var look: () -> Void = {}
  /// A disk that has not answered for so long is not waited for any longer.
  var patience = Duration.seconds(1)
  /// Between two looks.
  var pause = Duration.milliseconds(250)

  init() {
    pthread_mutex_init(mutex, nil)
    sem_init(wake, 0, 0)
  }
  deinit {
    pthread_mutex_destroy(mutex)
    sem_destroy(wake)
    mutex.deallocate()
    wake.deallocate()
  }

  /// By the logger's thread, which has the lock from here on.
  func begin(_ look: @escaping () -> Void) {
    self.look = look
    pthread_mutex_lock(mutex)
    var made = pthread_t()
    let own = Unmanaged.passRetained(self)
    let failed = pthread_create(
      &made, nil,
      { raw in
        if let raw { Unmanaged<Watch>.fromOpaque(raw).takeRetainedValue().run() }
        return nil
      }, own.toOpaque())
    // Without it a disk that hangs is waited for.
    if failed == 0 { thread = made } else { own.release() }
  }

  /// Returns when the thread has gone.
  func end() {
    ended = true
    look = {}
    pthread_mutex_unlock(mutex)
    guard let thread else { return }
    sem_post(wake)
    pthread_join(thread, nil)
    self.thread = nil
  }

  /// Without the lock, as while nothing is due.
  func idle<R>(_ body: () -> R) -> R {
    pthread_mutex_unlock(mutex)
    defer { pthread_mutex_lock(mutex) }
    return body()
  }

  /// While the disk is used; `body` leaves alone what `look` touches.
  func disk<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
    // Within another one, or before the thread is there.
    guard since == nil, thread != nil else { return try body() }
    since = Clock.monotonic()
    if asleep {
      asleep = false
      sem_post(wake)
    }
    pthread_mutex_unlock(mutex)
    defer {
      pthread_mutex_lock(mutex)
      since = nil
    }
    return try body()
  }

  private func run() {
    var quiet = 0
    while true {
      pthread_mutex_lock(mutex)
      if ended {
        pthread_mutex_unlock(mutex)
        return
      }
      if let since {
        quiet = 0
        if Clock.monotonic() - since > patience { look() }
      } else {
        quiet += 1
      }
      // Nobody has used the disk for a while.
      let sleeps = quiet > 8
      if sleeps { asleep = true }
      pthread_mutex_unlock(mutex)
      if sleeps {
        quiet = 0
        while sem_wait(wake) != 0, errno == EINTR {}
      } else {
        usleep(UInt32(clamping: pause.nanoseconds / 1000))
      }
    }
  }
}
