#pragma once

/// The arguments of this program as the kernel handed them over. Swift's own `CommandLine` reads /proc/self/cmdline, and a
/// container may have no /proc.
int guardian_argument_count(void);

/// Nil at and beyond the count. Borrowed; valid as long as the process lives.
const char *_Nullable guardian_argument(int index);
