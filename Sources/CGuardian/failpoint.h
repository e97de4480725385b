#pragma once

/// To be called before a child can come to a `guardian_hold_point`.
void guardian_read_fail_points(void);

/// Holds a child on its way to its exec where GUARDIAN_FAILPOINT in guardian's environment is `hold:NAME:PATH`: it makes
/// the file PATH.held, and goes on once there is a file PATH. Raw system calls only; nothing without fail-points.
void guardian_hold_point(const char *name);
