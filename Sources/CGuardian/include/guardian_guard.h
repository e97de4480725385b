#pragma once

/// Until `guardian_guard_disarm`: a fault (SEGV, BUS, ILL, TRAP, ABRT, FPE, SYS), or `seconds` without an end of it,
/// executes the program behind `descriptor` with `argv` and this process's environment, in place of this one. What `argv`
/// points to must stay. 0 or -errno.
int guardian_guard_arm(int descriptor, char *const _Nullable *_Nonnull argv, unsigned seconds);

/// Faults do again what they do by default.
void guardian_guard_disarm(void);
