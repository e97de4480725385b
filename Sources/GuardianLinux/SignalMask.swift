import CGuardian

package enum SignalMask {
  /// Blocks the signals that the loop takes, for this thread and those that it makes afterwards: call it first in main.
  /// Started processes get an empty mask. sigprocmask(2).
  package static func blockForLoop() throws(SystemError) {
    let answer = guardian_block_signals()
    if answer < 0 { throw SystemError("block", "signals", errno: -answer) }
  }
}
