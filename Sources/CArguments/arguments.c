#include "guardian_arguments.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static int count;
static char **arguments;

// The C library gives constructors what it gives to main. This one comes before those of the Swift run-time, which ends a
// statically linked program that has no /proc/self/exe to find its own directory by, unless it is told one.
__attribute__((constructor(101))) static void keep_arguments(int argc, char **argv, char **envp) {
  (void)envp;
  count = argc;
  arguments = argv;
  if (access("/proc/self/exe", F_OK) != 0) setenv("SWIFT_ROOT", "/usr", 0);
}

int guardian_argument_count(void) { return count; }

const char *guardian_argument(int index) { return index >= 0 && index < count ? arguments[index] : NULL; }
