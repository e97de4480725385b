#pragma once
#include <stddef.h>
#include <stdint.h>

/// One death of guardian by its own fault, as it stands in the file.
struct guardian_fault {
  uint32_t magic;
  int32_t signal;
  /// Names the boot of the machine.
  uint64_t boot;
  /// CLOCK_BOOTTIME.
  int64_t nanoseconds;
  uint64_t check;
};
#define GUARDIAN_FAULT_MAGIC 0x31544c46u

/// What `check` must be.
uint64_t guardian_fault_check(const struct guardian_fault *_Nonnull mark);

/// From here on SEGV, ILL, TRAP, BUS, ABRT and FPE append a mark to `descriptor`, which must be open for appending as
/// long as the process lives; then they do what they did before, and where that does not end the process (as process 1
/// of a namespace, which the kernel spares) it exits with 128 + the signal's number. For the calling thread on a stack of its own; on the
/// other threads' own. A later call changes only the arguments. 0 or -errno.
int guardian_fault_install(int descriptor, uint64_t boot);

/// Ends this process by SIGKILL where GUARDIAN_FAILPOINT in its environment says so; nothing where it was built without
/// fail-points. See GuardianLinux's `failPoint`.
void guardian_fail_point(const char *_Nonnull name);

/// 1 from the moment that GUARDIAN_FAILPOINT says to skip the work called `name`, else 0. See GuardianLinux's `failSkip`.
int guardian_fail_skip(const char *_Nonnull name);
