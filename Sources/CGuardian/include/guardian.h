#pragma once
// What Swift cannot do, or cannot import. Functions return 0 or -errno, allocate nothing for Swift, and share one prefix.
#include "guardian_faults.h"
#include "guardian_guard.h"
#include "guardian_kernel.h"
#include "guardian_descriptors.h"
#include "guardian_spawn.h"
