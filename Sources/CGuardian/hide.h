#pragma once
#include "guardian_spawn.h"

/// Puts the calling process, which must be a child with its own memory, into a mount namespace of its own in which the
/// request's hidden paths are absent, and tells through `report` how. 0, or -errno with the number of the path.
int guardian_hide_paths(const struct guardian_spawn_request *request, int report, int *index);
